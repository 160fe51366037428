//! State of virtual routers: what their tables hold, how closely they follow the kernel, and why a packet goes where it goes.
//!
//! As in [`crate::PortState`] the API sends these values as they are here, and counters only grow.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use packet::MacAddr;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::{Miss, Owner, Prefix, text};

/// A virtual router as it runs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RouterState {
    /// Its name.
    pub name: String,
    /// Whose object it is.
    pub owner: Owner,
    /// Its namespace; absent: the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// IPv4 routes of all tables.
    pub routes4: u64,
    /// IPv6 routes of all tables.
    pub routes6: u64,
    /// Routes of both families that there is room for.
    pub routes_limit: u32,
    /// Neighbours of both families.
    pub neighbours: u64,
    /// Neighbours that there is room for.
    pub neighbours_limit: u32,
    /// Tables that hold routes.
    pub tables: u32,
    /// Policy rules.
    pub rules: u32,
    /// Whether everything is known that the kernel has told so far.
    pub in_step: bool,
    /// The kernel's messages that were applied.
    pub events: u64,
    /// Times that the kernel had more to tell than there was room for; everything was read anew then.
    pub overruns: u64,
    /// Times that everything was read: at first, and after each overrun.
    pub resyncs: u64,
    /// Milliseconds that the last of these took.
    pub resync_ms: u64,
    /// Objects that had drifted from the kernel's, and were repaired.
    pub drifted: u64,
    /// Routes that found no room.
    pub refused: u64,
    /// Sessions by which FRR says its routes; absent where the kernel does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fpm: Option<FpmState>,
    /// Packets that workers gave to the kernel, by class.
    #[serde(default)]
    pub punts: Vec<PuntState>,
    /// Its interfaces.
    #[serde(default)]
    pub interfaces: Vec<InterfaceState>,
    /// What is wrong with it now (its namespace is gone, ...), if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// How FRR's routes come by FPM.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FpmState {
    /// Where zebra is waited for.
    pub listen: String,
    /// How it stands.
    pub state: FpmPhase,
    /// Who is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Seconds since it has connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Routes that sessions have announced, those of the last one included that were not announced again so far.
    pub routes: u64,
    /// Sessions so far.
    pub sessions: u64,
    /// Their messages.
    pub messages: u64,
    /// Messages about what is not followed, and routes that the kernel tells.
    pub left: u64,
    /// Announcements that found no room, or led to a next hop that nobody has announced.
    pub refused: u64,
    /// Routes that were not announced again in a whole replay, and went.
    pub swept: u64,
    /// Answers that were sent: a route is in the tables, or found no room.
    pub answers: u64,
    /// Why the last session has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Why zebra cannot connect, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// How a session of FPM stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FpmPhase {
    /// Nobody is connected.
    #[default]
    Waiting,
    /// It has not announced everything yet, as far as can be told.
    Replaying,
    /// It has: what it did not announce is gone.
    Connected,
}

impl fmt::Display for FpmPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FpmPhase::Waiting => "waiting",
            FpmPhase::Replaying => "replaying",
            FpmPhase::Connected => "connected",
        })
    }
}

/// Packets of one class that are the kernel's.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PuntState {
    /// The class, such as `own` or `arp`.
    pub class: String,
    /// Packets per second at most.
    pub limit: u32,
    /// Packets that workers gave to the kernel.
    pub packets: u64,
    /// Packets over the class's rate, which were dropped.
    pub refused: u64,
}

/// A router's interface as it runs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct InterfaceState {
    /// The port.
    pub port: String,
    /// Whose object the interface is.
    pub owner: Owner,
    /// The VLAN of the port that it is; absent: what comes without a tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// The customer's VLAN behind that one, where there are two tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_vlan: Option<u16>,
    /// Its device in the router's namespace.
    pub device: String,
    /// The device's number there; 0 while there is none.
    pub index: u32,
    /// The device's Ethernet address.
    #[serde(default, with = "text::mac_option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub mac: Option<MacAddr>,
    /// Bytes of the largest L3 packet.
    pub mtu: u32,
    /// Whether it is up and has a carrier.
    pub up: bool,
    /// The kernel's addresses on the device, with their prefix lengths.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// What becomes of packets that no route is for.
    pub miss: Miss,
    /// What its DHCP relay has done; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp_relay: Option<DhcpRelayState>,
    /// What its DHCPv6 relay has done; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp6_relay: Option<DhcpRelayState>,
}

/// What the DHCP or DHCPv6 relay of an interface has done, in messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DhcpRelayState {
    /// Whether it listens: the device is there and has an address of that family (IPv6: not of the link alone).
    pub listens: bool,
    /// Requests of clients that went to the servers, each counted once.
    pub requests: u64,
    /// Replies of servers that went to clients.
    pub replies: u64,
    /// Dropped: no message for a relay, not for Ethernet (DHCP), or cut short.
    pub malformed: u64,
    /// Dropped: passed on by 16 relays already (DHCPv6: 8), or by this one.
    pub looping: u64,
    /// Dropped: replies of others than the interface's servers, and requests of others than clients on the link and relays.
    pub strangers: u64,
    /// Dropped: more than the relay takes in a second.
    pub limited: u64,
    /// Dropped: the kernel could not send them.
    pub unsent: u64,
}

/// A routing table's number in the kernel; the usual ones are written as words where people read them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TableId(pub u32);

/// A text that is no table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is neither \"main\", \"local\", \"default\" nor a number from 1 on")]
pub struct TableIdError;

impl TableId {
    /// Where `ip route` looks and adds unless told otherwise.
    pub const MAIN: TableId = TableId(254);
    /// This host's own addresses, and broadcast ones.
    pub const LOCAL: TableId = TableId(255);
    /// Asked last, empty unless somebody fills it.
    pub const DEFAULT: TableId = TableId(253);

    /// The words (`/etc/iproute2/rt_tables` as it comes) and their numbers.
    const WORDS: [(&'static str, TableId); 3] =
        [("main", TableId::MAIN), ("local", TableId::LOCAL), ("default", TableId::DEFAULT)];
}

impl FromStr for TableId {
    type Err = TableIdError;

    fn from_str(text: &str) -> Result<TableId, TableIdError> {
        if let Some((_, table)) = TableId::WORDS.iter().find(|(word, _)| *word == text) {
            return Ok(*table);
        }
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|number| digits && *number > 0).map(TableId).ok_or(TableIdError)
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match TableId::WORDS.iter().find(|(_, table)| table == self) {
            Some((word, _)) => f.write_str(word),
            None => self.0.fmt(f),
        }
    }
}

/// Who has made a route (`RTPROT_*`); written as `ip route` does: the usual ones as words, others as numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RouteProtocol(pub u8);

impl RouteProtocol {
    /// The words (include/uapi/linux/rtnetlink.h) and their numbers.
    const WORDS: [(&'static str, u8); 24] = [
        ("unspec", 0),
        ("redirect", 1),
        ("kernel", 2),
        ("boot", 3),
        ("static", 4),
        ("gated", 8),
        ("ra", 9),
        ("mrt", 10),
        ("zebra", 11),
        ("bird", 12),
        ("dnrouted", 13),
        ("xorp", 14),
        ("ntk", 15),
        ("dhcp", 16),
        ("mrouted", 17),
        ("keepalived", 18),
        ("babel", 42),
        ("openr", 99),
        ("bgp", 186),
        ("isis", 187),
        ("ospf", 188),
        ("rip", 189),
        ("ripng", 190),
        ("eigrp", 192),
    ];
}

impl fmt::Display for RouteProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match RouteProtocol::WORDS.iter().find(|(_, number)| *number == self.0) {
            Some((word, _)) => f.write_str(word),
            None => self.0.fmt(f),
        }
    }
}

impl Serialize for RouteProtocol {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RouteProtocol {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let word = RouteProtocol::WORDS.iter().find(|(word, _)| *word == text).map(|(_, number)| *number);
        let number = word.or_else(|| text.parse().ok());
        number
            .map(RouteProtocol)
            .ok_or_else(|| D::Error::custom(format_args!("{text:?} is no routing protocol")))
    }
}

/// A way out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WayEntry {
    /// The next router, which may be of the other family; absent where destinations are on the link itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub gateway: Option<IpAddr>,
    /// The device; absent where there is none, as of routes that drop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Its share among others, from 1 on.
    pub weight: u16,
    /// Whether it is of no use now, because its device is down or has lost its addresses.
    #[serde(default)]
    pub dead: bool,
}

/// As `ip route` writes it, a share of 1 left out: `via 10.0.0.2 dev eth0 weight 2 dead`.
impl fmt::Display for WayEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gateway = self.gateway.map(|gateway| format!("via {gateway}"));
        let device = self.device.as_ref().map(|device| format!("dev {device}"));
        let weight = (self.weight > 1).then(|| format!("weight {}", self.weight));
        let dead = self.dead.then(|| "dead".to_owned());
        let words: Vec<String> = [gateway, device, weight, dead].into_iter().flatten().collect();
        f.write_str(&words.join(" "))
    }
}

/// A route.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RouteEntry {
    /// Its destinations.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub prefix: Prefix,
    /// Its table.
    #[cfg_attr(feature = "schema", schema(value_type = u32))]
    pub table: TableId,
    /// What it says, in the words of `ip route`: `unicast`, `local`, `blackhole`, ...
    pub kind: String,
    /// Who has made it.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub protocol: RouteProtocol,
    /// Of routes to one prefix the one with the lowest counts.
    pub metric: u32,
    /// Packets that it is for besides, such as `from 2001:db8::/32` or `tos 0x10`; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
    /// Its ways out; those of its next-hop object, if it has one.
    #[serde(default)]
    pub ways: Vec<WayEntry>,
    /// The next-hop object that it uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<u32>,
}

/// Which routes are asked for; what is absent does not matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteQuery {
    /// To this prefix, and to those within it.
    pub prefix: Option<Prefix>,
    /// Of this table.
    pub table: Option<TableId>,
    /// So many at most.
    pub limit: usize,
}

/// A next-hop object (`ip nexthop`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NextHopEntry {
    /// Its number.
    pub id: u32,
    /// Who has made it.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub protocol: RouteProtocol,
    /// Its way out; absent of a group and a blackhole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<WayEntry>,
    /// Whether packets end there.
    #[serde(default)]
    pub blackhole: bool,
    /// The members of a group.
    #[serde(default)]
    pub group: Vec<NextHopMember>,
    /// Buckets of a resilient group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buckets: Option<u16>,
    /// Packets that workers and hooks have sent to its gateway, by whatever route; absent of what has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Bytes of these, from the Ethernet header on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// A member of a group of next-hop objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NextHopMember {
    /// Its number.
    pub id: u32,
    /// Its share.
    pub weight: u16,
}

/// A neighbour whose Ethernet address may be used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NeighbourEntry {
    /// Its address.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub address: IpAddr,
    /// The device that it is behind.
    pub device: String,
    /// Its Ethernet address; absent on devices that have none.
    #[serde(default, with = "text::mac_option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub mac: Option<MacAddr>,
    /// Whether somebody has entered it for good.
    #[serde(default)]
    pub permanent: bool,
    /// Packets that workers and hooks have sent there.
    #[serde(default)]
    pub packets: u64,
    /// Bytes of these, from the Ethernet header on.
    #[serde(default)]
    pub bytes: u64,
}

/// Where packets to an address or a prefix go, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RouteWhy {
    /// What was asked for; an address is a prefix of full length.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub of: Prefix,
    /// The policy rule that led to the route's table, as `ip rule` writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The route: the longest that covers all of it. Absent: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<RouteEntry>,
    /// How it was chosen, one sentence each, in the order of the search.
    pub chosen: Vec<String>,
}

/// What a comparison with the kernel has found. It has been repaired.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DriftState {
    /// Objects that were compared.
    pub checked: u64,
    /// Objects that differed though nobody had told so.
    pub drifted: u64,
    /// These by name; a thousand at most.
    #[serde(default)]
    pub changes: Vec<String>,
    /// Objects that changed while they were compared, and are left to the next time.
    pub busy: u64,
}

impl DriftState {
    /// Most objects that are told by name.
    pub const TOLD: usize = 1000;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_words_or_numbers() {
        for (text, number) in
            [("main", 254), ("local", 255), ("default", 253), ("254", 254), ("4294967295", u32::MAX)]
        {
            assert_eq!(text.parse(), Ok(TableId(number)), "{text}");
        }
        assert_eq!((TableId(254).to_string(), TableId(100).to_string()), ("main".into(), "100".into()));
        for bad in ["", "0", "-1", "+1", "4294967296", "Main", "x"] {
            assert_eq!(bad.parse::<TableId>(), Err(TableIdError), "{bad}");
        }
    }

    #[test]
    fn protocols_come_back_as_they_were_written() {
        for number in 0..=u8::MAX {
            let text = serde_json::to_string(&RouteProtocol(number)).unwrap();
            assert_eq!(
                serde_json::from_str::<RouteProtocol>(&text).unwrap(),
                RouteProtocol(number),
                "{text}"
            );
        }
        assert_eq!(
            (RouteProtocol(186).to_string(), RouteProtocol(77).to_string()),
            ("bgp".into(), "77".into())
        );
        assert!(serde_json::from_str::<RouteProtocol>("\"bpg\"").is_err());
    }

    #[test]
    fn ways_read_as_in_ip_route() {
        let way =
            WayEntry { gateway: "10.0.0.2".parse().ok(), device: Some("eth0".into()), weight: 2, dead: true };
        assert_eq!(way.to_string(), "via 10.0.0.2 dev eth0 weight 2 dead");
        let link = WayEntry { device: Some("eth0".into()), weight: 1, ..WayEntry::default() };
        assert_eq!(link.to_string(), "dev eth0");
    }
}
