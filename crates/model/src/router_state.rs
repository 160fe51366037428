//! State of virtual routers: contents of their tables, synchronization with the kernel, and explanations of
//! route lookups.
//!
//! The API sends these values as JSON. Counters only increase, like those of [`crate::PortState`].

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use packet::MacAddr;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::{Miss, Owner, Prefix, text};

/// State of a virtual router.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RouterState {
    /// Name of the router.
    pub name: String,
    /// Owner of the router: the source that created it, such as `file` or `api`.
    pub owner: Owner,
    /// Namespace of the router. Absent: the daemon's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Number of IPv4 routes in all routing tables of the router.
    pub routes4: u64,
    /// Number of IPv6 routes in all routing tables of the router.
    pub routes6: u64,
    /// Maximum number of routes of both families together.
    pub routes_limit: u32,
    /// Number of neighbours of the router, IPv4 and IPv6 together.
    pub neighbours: u64,
    /// Maximum number of neighbours of both families together.
    pub neighbours_limit: u32,
    /// Number of routing tables of the router that contain routes.
    pub tables: u32,
    /// Number of policy rules (`ip rule`) of the router.
    pub rules: u32,
    /// Whether the router has applied all kernel notifications that it has received so far.
    pub in_step: bool,
    /// Number of kernel notifications that were applied to the router's tables.
    pub events: u64,
    /// Number of overruns of the netlink receive buffer. After an overrun, the router reads all state from the kernel
    /// again.
    pub overruns: u64,
    /// Number of times that all state was read from the kernel: at the start, and after each overrun.
    pub resyncs: u64,
    /// Duration of the last complete read of the kernel's state, in milliseconds.
    pub resync_ms: u64,
    /// Number of the router's objects (such as routes) that were found to differ from those of the kernel and were
    /// repaired.
    pub drifted: u64,
    /// Number of routes that were refused because a table was full.
    pub refused: u64,
    /// State of the FPM server. Absent if the router does not use FPM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fpm: Option<FpmState>,
    /// Counters of packets that workers punted to the kernel, by packet class.
    #[serde(default)]
    pub punts: Vec<PuntState>,
    /// Interfaces of the router.
    #[serde(default)]
    pub interfaces: Vec<InterfaceState>,
    /// Description of a current problem of the router, such as a missing namespace. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// State of a router's FPM server, to which FRR's zebra sends routes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FpmState {
    /// Address on which connections of zebra are accepted.
    pub listen: String,
    /// Phase of the session with zebra.
    pub state: FpmPhase,
    /// Address of the connected peer. Absent if there is no connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Seconds since zebra connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Number of routes of the router that come from FPM sessions. Includes routes of the previous session that the
    /// current session has not announced again yet.
    pub routes: u64,
    /// Number of FPM sessions since the server started.
    pub sessions: u64,
    /// Number of FPM messages received in all sessions.
    pub messages: u64,
    /// Number of FPM messages that were ignored, because they concern objects that the router does not use, or
    /// routes that the router learns from the kernel.
    pub left: u64,
    /// Number of route announcements that were refused, because a table was full or the announced next hop is unknown.
    pub refused: u64,
    /// Number of routes that were removed because zebra did not announce them again after it had connected again.
    pub swept: u64,
    /// Number of messages to zebra that report whether a route was installed in the router.
    pub answers: u64,
    /// Reason for the end of the last FPM session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Reason why zebra cannot connect. Absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Phase of an FPM session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FpmPhase {
    /// Zebra is not connected.
    #[default]
    Waiting,
    /// Zebra is connected, and its initial announcement of routes is probably not complete.
    Replaying,
    /// Zebra is connected, and its initial announcement of routes is complete. Routes that zebra did not announce have
    /// been removed.
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

/// Counters of one class of packets that are punted to the kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PuntState {
    /// Name of the packet class, such as `own` or `arp`.
    pub class: String,
    /// Maximum rate at which packets of the class are punted, in packets per second.
    pub limit: u32,
    /// Number of packets that workers punted to the kernel.
    pub packets: u64,
    /// Number of packets that were dropped because they exceeded the maximum rate of the class.
    pub refused: u64,
}

/// State of an interface of a router.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct InterfaceState {
    /// Name of the port that is the interface.
    pub port: String,
    /// Owner of the interface: the source that created it, such as `file` or `api`.
    pub owner: Owner,
    /// VLAN of the interface. Absent: the interface is that of untagged packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Inner VLAN of a double-tagged interface. Absent if the packets of the interface have one tag or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_vlan: Option<u16>,
    /// Name of the device in the namespace of the router.
    pub device: String,
    /// Interface index of the device. 0 if the device does not exist.
    pub index: u32,
    /// Ethernet address of the interface's device.
    #[serde(default, with = "text::mac_option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub mac: Option<MacAddr>,
    /// MTU of the device: maximum size of an L3 packet in bytes.
    pub mtu: u32,
    /// Whether the interface's device is up and has a carrier.
    pub up: bool,
    /// IP addresses that the kernel device has, with prefix lengths.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Handling of packets that arrive at the interface and match no route.
    pub miss: Miss,
    /// State of the DHCP relay for IPv4. Absent if the interface has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp_relay: Option<DhcpRelayState>,
    /// State of the DHCPv6 relay. Absent if the interface has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp6_relay: Option<DhcpRelayState>,
}

/// State of the DHCP or DHCPv6 relay of an interface. All counters count messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DhcpRelayState {
    /// Whether the relay currently receives messages. For this, the device must exist and have an address of the
    /// relay's address family. For DHCPv6, the address must not be link-local.
    pub listens: bool,
    /// Number of client requests that were relayed to the servers. A request that is sent to several servers
    /// counts once.
    pub requests: u64,
    /// Number of server replies that were relayed to clients.
    pub replies: u64,
    /// Number of messages that were dropped because they are truncated, are not for a relay, or (DHCP for IPv4) are not
    /// for Ethernet clients.
    pub malformed: u64,
    /// Number of messages that were dropped because they had already passed this relay, or 16 relays (DHCPv6: 8
    /// relays).
    pub looping: u64,
    /// Number of dropped messages from unexpected senders: replies that are not from the configured servers,
    /// and requests that are neither from on-link clients nor from relays.
    pub strangers: u64,
    /// Number of messages that were dropped by the rate limit of the relay.
    pub limited: u64,
    /// Number of messages that were dropped because the kernel could not send them.
    pub unsent: u64,
}

/// Identifier of a kernel routing table. The text form uses words for the common tables.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TableId(pub u32);

/// Error for a text that does not identify a routing table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is neither \"main\", \"local\", \"default\" nor a number from 1 on")]
pub struct TableIdError;

impl TableId {
    /// Identifier of the table that `ip route` uses by default.
    pub const MAIN: TableId = TableId(254);
    /// Identifier of the table with the host's own addresses and with broadcast addresses.
    pub const LOCAL: TableId = TableId(255);
    /// Identifier of the table that the kernel looks up last. The table is empty by default.
    pub const DEFAULT: TableId = TableId(253);

    /// Names of the common tables (as in the default `/etc/iproute2/rt_tables`), with the identifiers.
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

/// Origin of a route (`RTPROT_*` of the kernel). The text form is that of `ip route`: a word for common origins, a
/// number for others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RouteProtocol(pub u8);

impl RouteProtocol {
    /// Names of the common origins (include/uapi/linux/rtnetlink.h), with the numbers.
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

/// A next hop of a route.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RouteNextHop {
    /// IP address of the gateway, which may be of another address family than the route. Absent if the destinations are
    /// directly reachable on the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub gateway: Option<IpAddr>,
    /// Name of the output device. Absent if there is none, for example for routes that drop packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Weight of the next hop among the next hops of the route, starting at 1.
    pub weight: u16,
    /// Whether the next hop is unusable, because its device is down or has lost its addresses.
    #[serde(default)]
    pub dead: bool,
}

/// Formats the next hop as `ip route` does (`via 10.0.0.2 dev eth0 weight 2 dead`). A weight of 1 is omitted.
impl fmt::Display for RouteNextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gateway = self.gateway.map(|gateway| format!("via {gateway}"));
        let device = self.device.as_ref().map(|device| format!("dev {device}"));
        let weight = (self.weight > 1).then(|| format!("weight {}", self.weight));
        let dead = self.dead.then(|| "dead".to_owned());
        let words: Vec<String> = [gateway, device, weight, dead].into_iter().flatten().collect();
        f.write_str(&words.join(" "))
    }
}

/// A route of a virtual router.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RouteEntry {
    /// Destination prefix of the route.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub prefix: Prefix,
    /// Routing table of the route.
    #[cfg_attr(feature = "schema", schema(value_type = u32))]
    pub table: TableId,
    /// Type of the route, in the terms of `ip route`: `unicast`, `local`, `blackhole` and others.
    pub kind: String,
    /// Origin of the route, such as `kernel`, `static` or `bgp`.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub protocol: RouteProtocol,
    /// Metric of the route. Among routes to one prefix, the route with the lowest metric is used.
    pub metric: u32,
    /// Condition that packets must meet in addition to the prefix, such as `from 2001:db8::/32` or `tos
    /// 0x10`. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
    /// Next hops of the route, or of its next-hop object.
    #[serde(alias = "ways", default)]
    pub next_hops: Vec<RouteNextHop>,
    /// Identifier of the kernel next-hop object that the route uses. Absent if the route uses none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<u32>,
}

/// Query for routes. Absent criteria match all routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteQuery {
    /// Prefix that must contain the destination prefixes of the routes.
    pub prefix: Option<Prefix>,
    /// Routing table of the selected routes.
    pub table: Option<TableId>,
    /// Maximum number of routes in the result.
    pub limit: usize,
}

/// A kernel next-hop object (`ip nexthop`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NextHopEntry {
    /// Identifier of the next-hop object.
    pub id: u32,
    /// Origin of the next-hop object, such as `kernel` or `zebra`.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub protocol: RouteProtocol,
    /// Next hop of the object. Absent if the object is a group or a blackhole.
    #[serde(alias = "way", default, skip_serializing_if = "Option::is_none")]
    pub hop: Option<RouteNextHop>,
    /// Whether the object is a blackhole, which drops packets.
    #[serde(default)]
    pub blackhole: bool,
    /// Members of the group. Empty if the object is not a group.
    #[serde(default)]
    pub group: Vec<NextHopMember>,
    /// Number of hash buckets of a resilient group. Absent for other objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buckets: Option<u16>,
    /// Number of packets that workers and hooks sent to the gateway of the next hop, for any route. Absent if
    /// there is no gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Number of bytes in the packets that `packets` counts, from the Ethernet header on. Absent if there is
    /// no gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// A member of a next-hop group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NextHopMember {
    /// Identifier of the member's next-hop object.
    pub id: u32,
    /// Weight of the member in the distribution of packets among the members.
    pub weight: u16,
}

/// A neighbour with a usable Ethernet address.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NeighbourEntry {
    /// IP address of the neighbour.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub address: IpAddr,
    /// Name of the device through which the neighbour is reached.
    pub device: String,
    /// Ethernet address of the neighbour. Absent on devices without Ethernet addresses.
    #[serde(default, with = "text::mac_option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub mac: Option<MacAddr>,
    /// Whether the neighbour entry is permanent, which means that it does not expire.
    #[serde(default)]
    pub permanent: bool,
    /// Number of packets that workers and hooks sent to the neighbour.
    #[serde(default)]
    pub packets: u64,
    /// Number of bytes in the packets that workers and hooks sent to the neighbour, from the Ethernet header
    /// on.
    #[serde(default)]
    pub bytes: u64,
}

/// Explanation of the route lookup for an address or a prefix.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RouteWhy {
    /// Prefix for which the client requested the explanation. For a requested address, the prefix length is 32 or 128.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub of: Prefix,
    /// Policy rule that selected the routing table, in the form that `ip rule` prints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Route with the longest prefix that contains the whole prefix `of`. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<RouteEntry>,
    /// Steps of the lookup in their order, one sentence each.
    pub chosen: Vec<String>,
}

/// Result of a comparison of the router's tables with the kernel. Differences have been repaired.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DriftState {
    /// Number of objects (such as routes and neighbours) that were compared.
    pub checked: u64,
    /// Number of objects that differed from the kernel's objects although no kernel notification had announced the
    /// change.
    pub drifted: u64,
    /// Names of the objects that differed, at most 1000.
    #[serde(default)]
    pub changes: Vec<String>,
    /// Number of objects that were not compared, because they changed during the comparison. The next
    /// comparison checks them.
    pub busy: u64,
}

impl DriftState {
    /// Maximum number of differing objects that are listed by name.
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
        let hop = RouteNextHop {
            gateway: "10.0.0.2".parse().ok(),
            device: Some("eth0".into()),
            weight: 2,
            dead: true,
        };
        assert_eq!(hop.to_string(), "via 10.0.0.2 dev eth0 weight 2 dead");
        let link = RouteNextHop { device: Some("eth0".into()), weight: 1, ..RouteNextHop::default() };
        assert_eq!(link.to_string(), "dev eth0");
    }
}
