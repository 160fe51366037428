//! Kernel objects as plain values.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Interface index of the device in its namespace.
    pub index: u32,
    /// Name of the device.
    pub name: String,
    /// Kind of the device as shown by `ip -d link` ("veth", "bridge"). `None` for plain devices.
    pub kind: Option<String>,
    /// Link-layer address of the device. Empty if it has none.
    pub address: Vec<u8>,
    /// MTU of the device in bytes.
    pub mtu: u32,
    /// Whether the device is administratively up.
    pub up: bool,
    /// Whether the device has a carrier, or is operational without one.
    pub carrier: bool,
    /// Whether the device is operational (RFC 2863), which follows the carrier after a short delay.
    pub running: bool,
    /// Index of the bridge or VRF device that the device belongs to.
    pub master: Option<u32>,
    /// Index of the lower device, or of the peer.
    pub parent: Option<u32>,
}

/// An IP address of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Index of the device with the address.
    pub link: u32,
    /// Local address.
    pub local: IpAddr,
    /// Prefix length of the network in bits.
    pub prefix_length: u8,
    /// Address of the other end of a point-to-point device. Otherwise equal to `local`.
    pub peer: IpAddr,
}

/// Key of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NeighbourKey {
    /// Index of the device that reaches the neighbour.
    pub link: u32,
    /// IP address of the neighbour.
    pub address: IpAddr,
}

/// State of a neighbour whose link-layer address may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Link-layer address of the neighbour.
    pub address: Vec<u8>,
    /// Whether the neighbour entry is permanent.
    pub permanent: bool,
}

/// A next-hop object (`ip nexthop`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Next hop of the object. `None` for a group and a blackhole.
    pub hop: Option<Hop>,
    /// Members of a group, ordered by ID.
    pub group: Vec<Member>,
    /// Whether packets are dropped.
    pub blackhole: bool,
    /// Number of buckets of a resilient group.
    pub buckets: Option<u16>,
    /// Origin of the object (`RTPROT_*`).
    pub protocol: u8,
}

/// A member of a next-hop group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// ID of the member's next-hop object.
    pub id: u32,
    /// Weight of the member.
    pub weight: u16,
}

/// A next hop: device and gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// Index of the device. 0: none.
    pub link: u32,
    /// Address of the gateway, which may be of the other family. `None` if destinations are on the link.
    pub gateway: Option<IpAddr>,
    /// Weight of the next hop, starting at 1.
    pub weight: u16,
    /// Whether the gateway counts as on-link, regardless of its address.
    pub onlink: bool,
    /// Whether the kernel encapsulates packets to this next hop.
    pub encapsulates: bool,
    /// Whether the next hop is unusable, because its device is down or has lost its addresses.
    pub dead: bool,
}

/// Type of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Forwards packets to a next hop.
    Unicast,
    /// Delivers packets to this host.
    Local,
    /// Broadcast address of a link.
    Broadcast,
    /// Anycast address, which belongs to several hosts including this one.
    Anycast,
    /// Multicast group.
    Multicast,
    /// Drops packets silently.
    Blackhole,
    /// Drops packets and reports that the host is unreachable.
    Unreachable,
    /// Drops packets and reports that communication is prohibited.
    Prohibit,
    /// Continues the lookup in the next table.
    Throw,
    /// Another type (`RTN_*`).
    Other(u8),
}

impl Kind {
    pub(crate) const fn of(number: u8) -> Kind {
        match number {
            1 => Kind::Unicast,
            2 => Kind::Local,
            3 => Kind::Broadcast,
            4 => Kind::Anycast,
            5 => Kind::Multicast,
            6 => Kind::Blackhole,
            7 => Kind::Unreachable,
            8 => Kind::Prohibit,
            9 => Kind::Throw,
            other => Kind::Other(other),
        }
    }
}

/// Path of a route: everything that thousands of routes can share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// Type of the route.
    pub kind: Kind,
    /// Origin of the route (`RTPROT_*`).
    pub protocol: u8,
    /// Scope of the destinations (`RT_SCOPE_*`).
    pub scope: u8,
    /// ID of the next-hop object that the route uses. `hops` is then empty.
    pub next_hop: Option<u32>,
    /// Next hops in sorted order, because the kernel does not keep an order.
    pub hops: Vec<Hop>,
    /// Preferred source address of this host's own packets.
    pub source: Option<IpAddr>,
    /// MTU of the route in bytes. `None` if the route does not specify one.
    pub mtu: Option<u32>,
}

impl Path {
    /// Returns whether the path is usable: its next hops are not all dead.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.kind != Kind::Unicast || self.next_hop.is_some() || self.hops.iter().any(|hop| !hop.dead)
    }
}

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    /// First address of the prefix.
    pub address: A,
    /// Length of the prefix in bits.
    pub length: u8,
}

impl<A: fmt::Display> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// A prefix in a kernel routing table, which is identified by its number.
pub type TablePrefix = (u32, Prefix<IpAddr>);

/// Results of changed routes in the workers' tables. Routes that are not contained were installed
/// immediately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FibOutcome {
    /// Routes that were refused because a table is full.
    pub refused: Vec<TablePrefix>,
    /// Routes that were refused before, and are installed now.
    pub found: Vec<TablePrefix>,
}

/// Key of a route: the fields that the kernel distinguishes independently of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteKey<A> {
    /// Number of the routing table.
    pub table: u32,
    /// Destination prefix.
    pub prefix: Prefix<A>,
    /// Type of service of the packets. 0: all packets.
    pub tos: u8,
    /// Metric of the route. The route with the lowest metric comes first.
    pub metric: u32,
    /// Source prefix of the packets (IPv6 only). Length 0: all packets.
    pub from: Prefix<A>,
}

impl<A> RouteKey<A> {
    /// Returns whether the route applies to some packets to its destinations only.
    pub(crate) fn is_for_some(&self) -> bool {
        self.tos != 0 || self.from.length != 0
    }
}

/// An address of one of the two families.
pub trait Family: Copy + Ord {
    /// Address with all bits zero.
    const ZERO: Self;
    /// Length of an address in bytes.
    const BYTES: usize;
    /// Returns the address from bytes in network byte order. `None` if the length is wrong.
    fn from_wire(bytes: &[u8]) -> Option<Self>;
    /// Returns the address with all bits behind the first `length` bits cleared.
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

/// Key of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SettingsKey {
    /// Whether the settings are for IPv6.
    pub v6: bool,
    /// Index of the device, or [`SettingsKey::ALL`].
    pub link: u32,
}

impl SettingsKey {
    /// Key of the settings of all devices, such as `net.ipv4.conf.all`.
    pub const ALL: u32 = u32::MAX;
}

/// Settings made by `sysctl` for a family, on one device or on all devices. `None`: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whether packets that arrive at the device are routed. IPv6 uses only the setting of all devices.
    pub forwarding: Option<bool>,
    /// Whether routes through a device without a carrier are ignored.
    pub ignores_linkdown: Option<bool>,
}

impl Settings {
    /// Returns the settings updated by a notification.
    #[must_use]
    pub(crate) fn with(self, told: Settings) -> Settings {
        Settings {
            forwarding: told.forwarding.or(self.forwarding),
            ignores_linkdown: told.ignores_linkdown.or(self.ignores_linkdown),
        }
    }
}

/// A policy rule. Attributes that are not interpreted are kept in `other`, so that different rules are never
/// equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// Priority of the rule. The rule with the lowest value is evaluated first.
    pub priority: u32,
    /// Whether the rule is for IPv6.
    pub v6: bool,
    /// Action of the rule (`FR_ACT_*`). 1: look up a table.
    pub action: u8,
    /// Number of the table to look up.
    pub table: u32,
    /// Source prefix of the packets.
    pub source: Option<Prefix<IpAddr>>,
    /// Destination prefix of the packets.
    pub destination: Option<Prefix<IpAddr>>,
    /// Type of service of the packets. 0: all packets.
    pub tos: u8,
    /// Name of the input device of the packets.
    pub input: Option<String>,
    /// Name of the output device of the packets.
    pub output: Option<String>,
    /// Mark and mask of the packets.
    pub mark: Option<(u32, u32)>,
    /// Flags of the rule: `FIB_RULE_PERMANENT` and `FIB_RULE_INVERT`.
    pub flags: u32,
    /// Attributes that are not interpreted, by type.
    pub other: Vec<(u16, Vec<u8>)>,
}

impl Rule {
    /// `FRA_SUPPRESS_PREFIXLEN` and `FRA_PROTOCOL`.
    const SUPPRESS: u16 = 14;
    const PROTOCOL: u16 = 21;

    /// Returns whether all conditions of the rule are interpreted.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let none = u32::MAX.to_ne_bytes();
        let is_read = |(kind, value): &(u16, Vec<u8>)| {
            *kind == Rule::PROTOCOL || *kind == Rule::SUPPRESS && *value == none
        };
        self.other.iter().all(is_read)
    }
}
