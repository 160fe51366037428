//! The client that made a request: its access scope, and its name for log messages.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use model::Scope;

/// A client of the API, identified by its connection or its token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    /// Access scope of the client. `None` means that the client has no access.
    pub scope: Option<Scope>,
    /// Method by which the daemon has identified the client.
    pub from: Origin,
}

/// Method by which the daemon has identified an API client, with the identity of the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// The client is a local process. The kernel has reported its user ID and process ID for the connection to the Unix
    /// socket.
    Process { uid: u32, pid: Option<i32> },
    /// The client has connected over TCP and presented a token.
    Token { name: String, address: SocketAddr },
    /// The daemon could not identify the client.
    Unknown,
}

impl Caller {
    /// Returns an unidentified client without access.
    pub fn unknown() -> Caller {
        Caller { scope: None, from: Origin::Unknown }
    }

    /// Returns whether the client is a local process of root or of the daemon's own user.
    pub fn is_local_root(&self) -> bool {
        self.scope == Some(Scope::Root) && matches!(self.from, Origin::Process { .. })
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.from {
            Origin::Process { uid, pid: Some(pid) } => write!(f, "uid {uid} pid {pid}"),
            Origin::Process { uid, pid: None } => write!(f, "uid {uid}"),
            Origin::Token { name, address } => write!(f, "token {name} from {address}"),
            Origin::Unknown => f.write_str("an unknown client"),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Caller>().cloned().unwrap_or_else(Caller::unknown))
    }
}
