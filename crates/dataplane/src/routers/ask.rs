//! Requests to the thread that tracks the routing state of a router's namespace.

use std::time::Duration;

use control::{FailureKind, PlaneError};
use model::DriftState;
use netlink::{Follower, Mirror, NetlinkError};

use super::super::routes;

/// Time limit for the router's thread to answer a request. A tenant can keep the thread busy with changes of the
/// namespace.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Time limit for the comparison of a router's copy of the routing state with the kernel. The comparison reads all
/// routes, several times if some differ.
const CHECK_LIMIT: Duration = Duration::from_secs(60);

/// Calls `look` with a router's copy of the kernel's routing state (the mirror), on the thread that maintains the copy.
/// Waits for the result and returns it.
///
/// # Errors
/// Returns an error if the thread has ended or does not answer in time.
pub fn ask<R: Send + 'static>(
    name: &str,
    follower: &Follower,
    look: impl FnOnce(&Mirror) -> R + Send + 'static,
) -> Result<R, PlaneError> {
    follower.look_within(ANSWER_LIMIT, look).map_err(|error| ended(name, &error))
}

/// Compares a router's copy of the kernel's routing state with the kernel, and corrects the copy where it differs.
///
/// # Errors
/// Returns the errors of [`ask`], or an error if the kernel's routing state cannot be read.
pub fn drift(name: &str, follower: &Follower) -> Result<DriftState, PlaneError> {
    let found = follower.check_within(CHECK_LIMIT).map_err(|error| ended(name, &error))?;
    Ok(routes::drift(&found, ask(name, follower, routes::objects)?))
}

fn ended(name: &str, error: &NetlinkError) -> PlaneError {
    let object = format!("router.{name}");
    if let NetlinkError::Busy(_) = error {
        let fix = "try again in a moment; `ip monitor all` in its namespace shows what changes".to_owned();
        return PlaneError { kind: FailureKind::Busy, object, cause: error.to_string(), fix };
    }
    PlaneError::failed(object, error, "restart the daemon if it lasts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_router_is_said_to_be_busy() {
        let said = ended("edge", &NetlinkError::Busy(ANSWER_LIMIT));
        assert_eq!((said.kind, said.object.as_str()), (FailureKind::Busy, "router.edge"));
        assert!(said.cause.contains("within 2s"), "{}", said.cause);
        let said = ended("edge", &NetlinkError::Ended("its thread has panicked".to_owned()));
        assert_eq!(said.kind, FailureKind::Failed);
    }
}
