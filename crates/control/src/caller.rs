//! The client behind a request: what it may do, and how the log names it.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use model::Scope;

/// A client of the API, as its connection or its token tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    /// What it may do; `None`: nothing.
    pub scope: Option<Scope>,
    /// Where it comes from.
    pub from: Origin,
}

/// Where a client comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// A process of this machine, over the unix socket.
    Process { uid: u32, pid: Option<i32> },
    /// The holder of a token, over TCP.
    Token { name: String, address: SocketAddr },
    /// A connection that does not say.
    Unknown,
}

impl Caller {
    /// A client of which nothing is known, which may do nothing.
    pub fn unknown() -> Caller {
        Caller { scope: None, from: Origin::Unknown }
    }

    /// Returns whether this is root, or the daemon's own user, at this machine.
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
