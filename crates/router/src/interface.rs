//! Interfaces of a router, and the modes of their reverse path check.

use packet::{MacAddr, PortId};

/// An interface of a router, with its port, MAC address and MTU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Port that the interface belongs to.
    pub port: PortId,
    /// MAC address of the interface. Packets to other unicast MAC addresses are not for this router.
    pub mac: MacAddr,
    /// Maximum size of an IP packet that the interface sends (MTU), in bytes.
    pub mtu: u32,
    /// Whether the interface also accepts packets to the virtual MAC addresses of VRRP (RFC 9568, 7.3). IPv4 and IPv6
    /// have separate virtual MAC addresses.
    pub vrrp: bool,
}

/// The mode in which the source addresses of packets that arrive on an interface are verified (unicast reverse path
/// forwarding).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReversePath {
    /// Source addresses are not verified.
    #[default]
    Off,
    /// Strict mode: the route to the source address must lead to the ingress interface, at least as one of several next
    /// hops (RFC 3704, 2.2 and 2.3).
    Strict,
    /// Loose mode: there must be a route to the source address, which may be a default route (RFC 3704, 2.4).
    Loose,
}
