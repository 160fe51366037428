//! BGP sessions (TCP connections) of the kernel in the routers' namespaces. The sessions are read without a lock on the
//! running configuration, because the kernel searches all TCP connections of a namespace, which can take long.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use control::PlaneError;
use model::{Namespace, RouterName};
use port::tcp_sessions::tcp_sessions;

use super::super::device::inside;
use super::messages::object;

/// TCP port of BGP (RFC 4271, section 8).
const BGP: u16 = 179;
/// Maximum number of BGP sessions that one query reads. For each address family, one query reads the sessions whose
/// local port is the BGP port, and another query reads the sessions whose remote port is the BGP port. The rate limiter
/// of control packets stores at most 4096 known peers, and each session adds up to three peers.
const MOST: usize = 4096;

/// Local and remote addresses of a router's BGP sessions, or the error of the query.
pub type Sessions = Result<Vec<(SocketAddr, SocketAddr)>, PlaneError>;

/// BGP sessions of all routers, by router.
pub type AllSessions = BTreeMap<RouterName, Sessions>;

/// Reads the BGP sessions in the namespaces of routers. `None` is the daemon's own namespace.
pub fn read(routers: Vec<(RouterName, Option<Namespace>)>) -> AllSessions {
    let read = |(name, namespace): (RouterName, Option<Namespace>)| {
        let sessions = inside(&object(&name), namespace.as_ref(), || {
            let fix = "see that the kernel has inet_diag (CONFIG_INET_DIAG)";
            tcp_sessions(BGP, MOST).map_err(|error| PlaneError::failed(object(&name), &error, fix))
        });
        (name, sessions)
    };
    routers.into_iter().map(read).collect()
}
