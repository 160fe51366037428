//! Errors of the data plane: the affected object, the cause and the remedy.

/// Reason why the data plane refused a request or could not carry it out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{object}: {cause}; {fix}")]
pub struct PlaneError {
    /// Kind of the failure, which determines the HTTP status of the response.
    pub kind: FailureKind,
    /// Path of the affected object, such as `port.eth1`.
    pub object: String,
    /// Cause of the failure, with the texts of its source errors.
    pub cause: String,
    /// Remedy for the failure.
    pub fix: String,
}

/// Kind of a data plane failure. Each kind has an HTTP status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// The object does not exist (404).
    NotFound,
    /// The request is invalid (422).
    Invalid,
    /// Another operation is in progress, and this operation cannot run at the same time (409).
    Busy,
    /// The operation failed on this machine (500).
    Failed,
    /// The operation failed because of an external condition that may end without action of the operator, such as a
    /// change that a tenant made to the peer of a port's device (500). A later attempt may succeed.
    Unready,
}

impl PlaneError {
    /// Returns an error of kind `FailureKind::NotFound` for an object that does not exist.
    pub fn not_found(object: impl Into<String>, cause: impl Into<String>, fix: impl Into<String>) -> Self {
        PlaneError {
            kind: FailureKind::NotFound,
            object: object.into(),
            cause: cause.into(),
            fix: fix.into(),
        }
    }

    /// Returns an error for a virtual router that does not exist or is not running.
    pub fn no_router(router: &str) -> Self {
        let fix = "look at the names with `trivium show routers`";
        PlaneError::not_found(format!("router.{router}"), "no such router runs", fix)
    }

    /// Returns an error for a bridge that does not exist, or that has snooping disabled.
    pub fn no_snooping(bridge: &str) -> Self {
        let fix = "set `snooping`, or look at the names with `trivium show bridges`";
        PlaneError::not_found(format!("bridge.{bridge}"), "no such bridge reads IGMP and MLD", fix)
    }

    /// Returns an error for a bridge that does not exist, or that does not use OpenFlow.
    pub fn no_rules(bridge: &str) -> Self {
        let fix = "give it a table `openflow`, or look at the names with `trivium show bridges`";
        PlaneError::not_found(format!("bridge.{bridge}"), "no such bridge goes by OpenFlow's rules", fix)
    }

    /// Returns an error for an operation that failed on this machine. The cause consists of `error` and its
    /// source errors.
    pub fn failed(object: impl Into<String>, error: &dyn std::error::Error, fix: impl Into<String>) -> Self {
        let mut cause = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            let text = error.to_string();
            // The text of many errors already contains the text of the source.
            if !cause.contains(&text) {
                cause = format!("{cause}: {text}");
            }
            source = error.source();
        }
        PlaneError { kind: FailureKind::Failed, object: object.into(), cause, fix: fix.into() }
    }
}
