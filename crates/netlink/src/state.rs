//! Objects of the kernel's routing state (links, addresses, neighbours, routes, rules) as plain values.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::rtnetlink::netconf::NETCONFA_IFINDEX_ALL;
use crate::rtnetlink::route::{
    RTN_ANYCAST, RTN_BLACKHOLE, RTN_BROADCAST, RTN_LOCAL, RTN_MULTICAST, RTN_PROHIBIT, RTN_THROW,
    RTN_UNICAST, RTN_UNREACHABLE,
};
use crate::rtnetlink::rule::{FRA_PROTOCOL, FRA_SUPPRESS_PREFIXLEN};

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Interface index of the device in its network namespace.
    pub index: u32,
    /// Name of the device.
    pub name: String,
    /// Kind of the device as shown by `ip -d link` ("veth", "bridge"). `None` for devices without a kind,
    /// such as network cards.
    pub kind: Option<String>,
    /// Link-layer address of the device. Empty if the device has none.
    pub address: Vec<u8>,
    /// MTU of the device in bytes.
    pub mtu: u32,
    /// Whether the device is administratively up.
    pub up: bool,
    /// Whether the device has a carrier. Also true for a device that is operational without a carrier.
    pub carrier: bool,
    /// Whether the device is operational (RFC 2863), which follows the carrier after a short delay.
    pub running: bool,
    /// Index of the bridge or VRF device to which the device belongs. `None` if there is none.
    pub master: Option<u32>,
    /// Index of the lower device, for example of the device below a VLAN device. For a veth device,
    /// index of its peer.
    pub parent: Option<u32>,
}

/// An IP address of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Index of the device to which the address is assigned.
    pub link: u32,
    /// Address of this host on the device.
    pub local: IpAddr,
    /// Length in bits of the network prefix to which the address belongs.
    pub prefix_length: u8,
    /// Address of the other end of a point-to-point link. On other links, equal to `local`.
    pub peer: IpAddr,
}

/// Key of a neighbour: device and IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NeighbourKey {
    /// Index of the device through which the neighbour is reached.
    pub link: u32,
    /// IP address of the neighbour.
    pub address: IpAddr,
}

/// State of a neighbour whose link-layer address may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Link-layer address of the neighbour.
    pub address: Vec<u8>,
    /// Whether the neighbour entry is permanent, which means that it does not expire.
    pub permanent: bool,
}

/// A next-hop object (`ip nexthop`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Next hop of the object. `None` if the object is a group or a blackhole.
    pub hop: Option<Hop>,
    /// Members of the group, ordered by ID. Empty if the object is not a group.
    pub group: Vec<Member>,
    /// Whether the object is a blackhole, which drops packets.
    pub blackhole: bool,
    /// Number of hash buckets of a resilient group. `None` for other objects.
    pub buckets: Option<u16>,
    /// Origin of the next-hop object (`RTPROT_*`).
    pub protocol: u8,
}

/// A member of a next-hop group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// ID of the member's next-hop object.
    pub id: u32,
    /// Weight of the member in the distribution of packets among the members.
    pub weight: u16,
}

/// A next hop of a route: device and gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// Index of the device through which packets are sent. 0 if there is no device.
    pub link: u32,
    /// IP address of the gateway. The gateway may belong to another address family than the route. `None` if the
    /// destinations are on the link.
    pub gateway: Option<IpAddr>,
    /// Weight of the next hop in the distribution of packets, at least 1.
    pub weight: u16,
    /// Whether the gateway is treated as on-link, even if its address is not in a network of the device.
    pub onlink: bool,
    /// Whether the kernel encapsulates packets to this next hop.
    pub encapsulates: bool,
    /// Whether the next hop is unusable, because its device is down, lacks a required carrier, or has lost its
    /// addresses.
    pub dead: bool,
}

/// Type of a route, which determines what happens to packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Packets are forwarded to a next hop.
    Unicast,
    /// Packets are delivered to this host.
    Local,
    /// The destination is a broadcast address of a link.
    Broadcast,
    /// The destination is an anycast address, which belongs to several hosts including this one.
    Anycast,
    /// The destination is a multicast group.
    Multicast,
    /// Packets are dropped without a message to the sender.
    Blackhole,
    /// Packets are dropped, and the sender is informed by ICMP that the host is unreachable.
    Unreachable,
    /// Packets are dropped, and the sender is informed by ICMP that communication is prohibited.
    Prohibit,
    /// The lookup continues with the next policy rule, as if the table had no route.
    Throw,
    /// Another route type (`RTN_*`).
    Other(u8),
}

impl Kind {
    pub(crate) const fn of(number: u8) -> Kind {
        match number {
            RTN_UNICAST => Kind::Unicast,
            RTN_LOCAL => Kind::Local,
            RTN_BROADCAST => Kind::Broadcast,
            RTN_ANYCAST => Kind::Anycast,
            RTN_MULTICAST => Kind::Multicast,
            RTN_BLACKHOLE => Kind::Blackhole,
            RTN_UNREACHABLE => Kind::Unreachable,
            RTN_PROHIBIT => Kind::Prohibit,
            RTN_THROW => Kind::Throw,
            other => Kind::Other(other),
        }
    }
}

/// Path of a route: type, origin, next hops and other properties that many routes have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// Type of the route.
    pub kind: Kind,
    /// Origin of the route (`RTPROT_*`).
    pub protocol: u8,
    /// Scope of the route's destinations (`RT_SCOPE_*`).
    pub scope: u8,
    /// ID of the next-hop object that the route uses. `hops` is then empty. `None` if the route does not use
    /// a next-hop object.
    pub next_hop: Option<u32>,
    /// Next hops of the route. The list is sorted, because the kernel does not keep the order of next hops.
    pub hops: Vec<Hop>,
    /// Preferred source address of packets that this host itself sends along this route.
    pub source: Option<IpAddr>,
    /// MTU of the route in bytes. `None` if the route does not specify one.
    pub mtu: Option<u32>,
}

impl Path {
    /// Returns whether the path is usable. A path is not usable if all its next hops are dead.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.kind != Kind::Unicast || self.next_hop.is_some() || self.hops.iter().any(|hop| !hop.dead)
    }
}

/// An IPv4 or IPv6 address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    /// First address of the prefix. All bits beyond the prefix length are zero.
    pub address: A,
    /// Length of the prefix in bits.
    pub length: u8,
}

impl<A: fmt::Display> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// Number of a kernel routing table, and a prefix in this table.
pub type TablePrefix = (u32, Prefix<IpAddr>);

/// Outcome of installing changed routes in the router's tables. Routes that are in neither list were installed
/// immediately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FibOutcome {
    /// Routes that were refused because a table was full.
    pub refused: Vec<TablePrefix>,
    /// Routes that were refused before, and are installed now.
    pub found: Vec<TablePrefix>,
}

/// Key of a route: the fields that identify the route. Two routes with different keys are different routes, even if
/// their paths are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteKey<A> {
    /// Number of the routing table that contains the route.
    pub table: u32,
    /// Destination prefix of the route.
    pub prefix: Prefix<A>,
    /// Type of service (TOS) of the packets to which the route applies. 0 if the route applies to all packets.
    pub tos: u8,
    /// Metric of the route. The route with the lowest metric is preferred.
    pub metric: u32,
    /// Source prefix of the packets to which the route applies (IPv6 only). Length 0 if the route applies to all
    /// packets.
    pub from: Prefix<A>,
}

impl<A> RouteKey<A> {
    /// Returns whether the route applies only to one type of service or to some sources.
    pub(crate) fn is_for_some(&self) -> bool {
        self.tos != 0 || self.from.length != 0
    }
}

/// IP address type of one of the two address families.
pub trait Family: Copy + Ord {
    /// Address with all bits zero.
    const ZERO: Self;
    /// Length of an address of the family in bytes.
    const BYTES: usize;
    /// Decodes an address from bytes in network byte order. Returns `None` if the number of bytes is wrong.
    fn from_wire(bytes: &[u8]) -> Option<Self>;
    /// Returns the address with all bits after the first `length` bits cleared.
    #[must_use]
    fn masked(self, length: u8) -> Self;
}

impl Family for Ipv4Addr {
    const ZERO: Self = Ipv4Addr::UNSPECIFIED;
    const BYTES: usize = 4;
    fn from_wire(bytes: &[u8]) -> Option<Self> {
        <[u8; 4]>::try_from(bytes).ok().map(Ipv4Addr::from)
    }
    fn masked(self, length: u8) -> Self {
        let host = 32_u32.saturating_sub(length.into());
        Ipv4Addr::from_bits(self.to_bits() & u32::MAX.checked_shl(host).unwrap_or(0))
    }
}

impl Family for Ipv6Addr {
    const ZERO: Self = Ipv6Addr::UNSPECIFIED;
    const BYTES: usize = 16;
    fn from_wire(bytes: &[u8]) -> Option<Self> {
        <[u8; 16]>::try_from(bytes).ok().map(Ipv6Addr::from)
    }
    fn masked(self, length: u8) -> Self {
        let host = 128_u32.saturating_sub(length.into());
        Ipv6Addr::from_bits(self.to_bits() & u128::MAX.checked_shl(host).unwrap_or(0))
    }
}

/// Key of forwarding settings: address family and device index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SettingsKey {
    /// Whether the settings are for IPv6.
    pub v6: bool,
    /// Index of the device, or [`SettingsKey::ALL`] for the settings of all devices.
    pub link: u32,
}

impl SettingsKey {
    /// Device index that represents the settings of all devices, such as `net.ipv4.conf.all`.
    pub const ALL: u32 = NETCONFA_IFINDEX_ALL;
}

/// Forwarding settings (set by `sysctl`) of one address family, for one device or for all devices. A setting is `None`
/// if it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whether packets that arrive on the device are forwarded. For IPv6, only the setting of all devices applies.
    pub forwarding: Option<bool>,
    /// Whether routes through a device without a carrier are ignored (`ignore_routes_with_linkdown`).
    pub ignores_linkdown: Option<bool>,
}

impl Settings {
    /// Returns these settings with the values of a notification (`told`) in place of the old ones.
    #[must_use]
    pub(crate) fn with(self, told: Settings) -> Settings {
        Settings {
            forwarding: told.forwarding.or(self.forwarding),
            ignores_linkdown: told.ignores_linkdown.or(self.ignores_linkdown),
        }
    }
}

/// A policy rule (`ip rule`). Attributes that this crate does not interpret are stored in `other`, so that rules that
/// differ only in these attributes are not equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// Priority of the rule. Rules are evaluated in ascending order of this value.
    pub priority: u32,
    /// Whether the rule is for IPv6.
    pub v6: bool,
    /// Action of the rule (`FR_ACT_*`). `FR_ACT_TO_TBL` (1) looks up a routing table.
    pub action: u8,
    /// Number of the routing table that the rule looks up.
    pub table: u32,
    /// Prefix of the source addresses that the rule matches. `None` if it matches any source.
    pub source: Option<Prefix<IpAddr>>,
    /// Prefix of the destination addresses that the rule matches. `None` if it matches any destination.
    pub destination: Option<Prefix<IpAddr>>,
    /// Type of service (TOS) that the rule matches. 0 if the rule matches any type of service.
    pub tos: u8,
    /// Name of the input device that the rule matches. `None` if the rule matches any input device.
    pub input: Option<String>,
    /// Name of the output device that the rule matches. `None` if the rule matches any output device.
    pub output: Option<String>,
    /// Firewall mark that the rule matches, and the mask of the compared bits. `None` if the rule matches any mark.
    pub mark: Option<(u32, u32)>,
    /// Flags of the rule: `FIB_RULE_PERMANENT` and `FIB_RULE_INVERT`.
    pub flags: u32,
    /// Attributes that this crate does not interpret: type and value of each.
    pub other: Vec<(u16, Vec<u8>)>,
}

impl Rule {
    /// Returns whether this crate interprets all conditions of the rule.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let none = u32::MAX.to_ne_bytes();
        let is_read = |(kind, value): &(u16, Vec<u8>)| {
            *kind == FRA_PROTOCOL || *kind == FRA_SUPPRESS_PREFIXLEN && *value == none
        };
        self.other.iter().all(is_read)
    }
}
