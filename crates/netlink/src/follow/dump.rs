//! Requests for complete dumps of the kernel's routing state, and the repetition of interrupted dumps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use port::netlink::Request;

use crate::error::NetlinkError;
use crate::rtnetlink::family::{AF_INET, AF_INET6, AF_UNSPEC};
use crate::rtnetlink::length;
use crate::rtnetlink::message::{
    RTM_GETADDR, RTM_GETLINK, RTM_GETNEIGH, RTM_GETNETCONF, RTM_GETNEXTHOP, RTM_GETROUTE, RTM_GETRULE,
};

/// Maximum number of attempts to dump one part of the state. A change of the state during a dump interrupts the dump.
pub(super) const ATTEMPTS: u32 = 8;
/// Parts of a complete dump. Each part has a message type, an address family and a name.
pub(super) const PARTS: [(u16, u8, &str); 12] = [
    (RTM_GETLINK, AF_UNSPEC, "links"),
    (RTM_GETADDR, AF_INET, "IPv4 addresses"),
    (RTM_GETADDR, AF_INET6, "IPv6 addresses"),
    (RTM_GETNEIGH, AF_INET, "IPv4 neighbours"),
    (RTM_GETNEIGH, AF_INET6, "IPv6 neighbours"),
    (RTM_GETNEXTHOP, AF_UNSPEC, "next-hop objects"),
    (RTM_GETROUTE, AF_INET, "IPv4 routes"),
    (RTM_GETROUTE, AF_INET6, "IPv6 routes"),
    (RTM_GETRULE, AF_INET, "IPv4 rules"),
    (RTM_GETRULE, AF_INET6, "IPv6 rules"),
    (RTM_GETNETCONF, AF_INET, "IPv4 settings"),
    (RTM_GETNETCONF, AF_INET6, "IPv6 settings"),
];

/// Returns true if the deadline has passed or the threads must end. An interrupted dump is then not repeated.
pub(super) fn gives_up(deadline: Option<Instant>, end: &AtomicBool) -> bool {
    end.load(Ordering::Acquire) || deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// Calls `attempt`, which makes a dump. If changes interrupt the dump, repeats the call until the deadline has passed
/// or the threads must end. Returns the result of the last attempt.
pub(super) fn repeat_interrupted(
    deadline: Option<Instant>,
    end: &AtomicBool,
    mut attempt: impl FnMut() -> Result<(), NetlinkError>,
) -> Result<(), NetlinkError> {
    loop {
        match attempt() {
            Err(NetlinkError::Interrupted { .. }) if !gives_up(deadline, end) => {}
            done => return done,
        }
    }
}

/// Returns a netlink request for a dump of all objects of a message type and address family.
pub(super) fn request(kind: u16, family: u8) -> Request {
    // All request headers begin with the family.
    let header = match kind {
        RTM_GETLINK => length::IFINFOMSG,
        RTM_GETADDR => length::IFADDRMSG,
        RTM_GETNEIGH => length::NDMSG,
        RTM_GETNEXTHOP => length::NHMSG,
        RTM_GETRULE => length::FIB_RULE_HDR,
        RTM_GETNETCONF => length::NETCONFMSG,
        _ => length::RTMSG,
    };
    let mut body = vec![0; header];
    body[0] = family;
    Request::new(kind, port::netlink::NLM_F_DUMP, &body)
}
