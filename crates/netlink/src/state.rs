//! The kernel's objects as plain values.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index in the namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its kind as `ip -d link` tells it ("veth", "bridge"); none for plain devices.
    pub kind: Option<String>,
    /// Its link-layer address; empty where it has none.
    pub address: Vec<u8>,
    /// In bytes.
    pub mtu: u32,
    /// Whether the administrator has set it up.
    pub up: bool,
    /// Whether it has a carrier, or is operational without one.
    pub carrier: bool,
    /// Whether it is operational (RFC 2863): that comes a moment after the carrier.
    pub running: bool,
    /// The bridge or virtual router that it belongs to.
    pub master: Option<u32>,
    /// The device below it, or its peer.
    pub parent: Option<u32>,
}

/// An address of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The device that has it.
    pub link: u32,
    /// The address itself.
    pub local: IpAddr,
    /// Bits of the network that is reached through it.
    pub prefix_length: u8,
    /// The other end of a point-to-point device; otherwise the same as `local`.
    pub peer: IpAddr,
}

/// Which neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NeighbourKey {
    /// The device that it is behind.
    pub link: u32,
    /// Its address.
    pub address: IpAddr,
}

/// What is known of a neighbour whose link-layer address may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its link-layer address.
    pub address: Vec<u8>,
    /// Whether somebody has entered it for good.
    pub permanent: bool,
}

/// A next-hop object (`ip nexthop`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Its way out; none for a group and a blackhole.
    pub hop: Option<Hop>,
    /// The members of a group, by id.
    pub group: Vec<Member>,
    /// Whether packets end there.
    pub blackhole: bool,
    /// Buckets of a resilient group.
    pub buckets: Option<u16>,
    /// Who has made it (`RTPROT_*`).
    pub protocol: u8,
}

/// A member of a group of next hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Its id.
    pub id: u32,
    /// Its share.
    pub weight: u16,
}

/// A way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// The device; 0: none.
    pub link: u32,
    /// The next router, which may be of the other family; none where destinations are on the link itself.
    pub gateway: Option<IpAddr>,
    /// Its share, from 1 on.
    pub weight: u16,
    /// Whether the gateway counts as on the link whatever its address.
    pub onlink: bool,
    /// Whether the kernel encapsulates what goes there.
    pub encapsulates: bool,
    /// Whether it is of no use among others, because its device is down or has lost its addresses.
    pub dead: bool,
}

/// What a route says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Go on.
    Unicast,
    /// It is this host.
    Local,
    /// All hosts of the link.
    Broadcast,
    /// One of several hosts, this one among them.
    Anycast,
    /// A group.
    Multicast,
    /// Drop without a word.
    Blackhole,
    /// Drop, and say that the host is unreachable.
    Unreachable,
    /// Drop, and say that it is forbidden.
    Prohibit,
    /// Look in the next table.
    Throw,
    /// Another one (`RTN_*`).
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

/// What a route leads to. Thousands of routes lead to the same: they share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// What it says.
    pub kind: Kind,
    /// Who has made it (`RTPROT_*`).
    pub protocol: u8,
    /// How far its destinations are (`RT_SCOPE_*`).
    pub scope: u8,
    /// The next-hop object that it uses; then `hops` is empty.
    pub next_hop: Option<u32>,
    /// Its ways out, in the order of their values: the kernel does not keep one.
    pub hops: Vec<Hop>,
    /// The source that this host's own packets take.
    pub source: Option<IpAddr>,
    /// Bytes of the largest packet, where it says so.
    pub mtu: Option<u32>,
}

impl Path {
    /// Whether it is good for anything: its ways out are not all dead.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.kind != Kind::Unicast || self.next_hop.is_some() || self.hops.iter().any(|hop| !hop.dead)
    }
}

/// An address and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    /// Its first address.
    pub address: A,
    /// Bits that count.
    pub length: u8,
}

impl<A: fmt::Display> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// A destination in one of the kernel's tables: the table's number and the prefix.
pub type TablePrefix = (u32, Prefix<IpAddr>);

/// What became of changed routes in the workers' tables. Routes that are not named were taken at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FibOutcome {
    /// Routes that found no room.
    pub refused: Vec<TablePrefix>,
    /// Routes that had found no room before and have found it now.
    pub found: Vec<TablePrefix>,
}

/// Which route: all that the kernel tells apart before it looks where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteKey<A> {
    /// Its table.
    pub table: u32,
    /// Its destinations.
    pub prefix: Prefix<A>,
    /// Only for packets with this type of service; 0: all.
    pub tos: u8,
    /// The lowest comes first.
    pub metric: u32,
    /// Only for packets from there; of length 0: all. IPv6 only.
    pub from: Prefix<A>,
}

impl<A> RouteKey<A> {
    /// Whether it is for some of the packets to its destinations only.
    pub(crate) fn is_for_some(&self) -> bool {
        self.tos != 0 || self.from.length != 0
    }
}

/// The two families' addresses.
pub trait Family: Copy + Ord {
    /// The address with all bits zero.
    const ZERO: Self;
    /// Of this many bytes.
    const BYTES: usize;
    /// From bytes in the order of the wire.
    fn from_wire(bytes: &[u8]) -> Option<Self>;
    /// Without the bits behind the first so many.
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

/// Whose settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SettingsKey {
    /// Whether they are of IPv6.
    pub v6: bool,
    /// The device, or [`SettingsKey::ALL`].
    pub link: u32,
}

impl SettingsKey {
    /// `net.ipv4.conf.all` and its kin.
    pub const ALL: u32 = u32::MAX;
}

/// What somebody has set by `sysctl` for a family, on a device or on all of them; `None`: not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whether packets that come in there are routed. IPv6 asks this of all devices together alone.
    pub forwarding: Option<bool>,
    /// Whether routes out of a device without a carrier are passed over.
    pub ignores_linkdown: Option<bool>,
}

impl Settings {
    /// With what was told since.
    #[must_use]
    pub(crate) fn with(self, told: Settings) -> Settings {
        Settings {
            forwarding: told.forwarding.or(self.forwarding),
            ignores_linkdown: told.ignores_linkdown.or(self.ignores_linkdown),
        }
    }
}

/// A policy rule. What is not read here stands in `other`, so that two rules that differ are never taken for one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// The lowest is asked first.
    pub priority: u32,
    /// Whether it is of IPv6.
    pub v6: bool,
    /// `FR_ACT_*`: 1 is "look in the table".
    pub action: u8,
    /// The table that it leads to.
    pub table: u32,
    /// Packets from there.
    pub source: Option<Prefix<IpAddr>>,
    /// Packets to there.
    pub destination: Option<Prefix<IpAddr>>,
    /// Packets with this type of service; 0: all.
    pub tos: u8,
    /// Packets that came in there.
    pub input: Option<String>,
    /// Packets that would leave there.
    pub output: Option<String>,
    /// Packets with this mark, under this mask.
    pub mark: Option<(u32, u32)>,
    /// `FIB_RULE_PERMANENT` and `FIB_RULE_INVERT`.
    pub flags: u32,
    /// Attributes that are not read, by kind.
    pub other: Vec<(u16, Vec<u8>)>,
}

impl Rule {
    /// `FRA_SUPPRESS_PREFIXLEN` and `FRA_PROTOCOL`.
    const SUPPRESS: u16 = 14;
    const PROTOCOL: u16 = 21;

    /// Whether all that it asks for is read.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let none = u32::MAX.to_ne_bytes();
        let is_read = |(kind, value): &(u16, Vec<u8>)| {
            *kind == Rule::PROTOCOL || *kind == Rule::SUPPRESS && *value == none
        };
        self.other.iter().all(is_read)
    }
}
