//! State of a virtual router's tables: routes, next hops, neighbours, and explanations of route lookups.
//!
//! The API sends these values in this form. Counters only increase, like those of [`crate::PortState`].

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use packet::MacAddr;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::table::{Listed, Table};
use crate::{Prefix, text};

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

    /// Words that name the common tables (the default `/etc/iproute2/rt_tables`), with the identifiers.
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

/// Origin of a route (`RTPROT_*`). In text, a common origin is a word and any other origin is a
/// number, like in the output of `ip route`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RouteProtocol(pub u8);

impl RouteProtocol {
    /// Words that name the common origins (include/uapi/linux/rtnetlink.h), with the numbers.
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
    /// Address of the gateway, which may be of the other address family. Absent if the destinations are
    /// directly reachable on the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub gateway: Option<IpAddr>,
    /// Name of the output device. Absent if there is none, as for routes that drop packets.
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
    /// Origin of the route.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub protocol: RouteProtocol,
    /// Metric of the route. Among routes to one prefix, the route with the lowest metric is used.
    pub metric: u32,
    /// Condition that packets must fulfil in addition to the prefix, such as `from 2001:db8::/32` or `tos 0x10`. Absent
    /// if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
    /// Next hops of the route, or of its next-hop object.
    #[serde(alias = "ways", default)]
    pub next_hops: Vec<RouteNextHop>,
    /// Identifier of the kernel next-hop object that the route uses. Absent if the route uses none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<u32>,
}

impl Listed for RouteEntry {
    fn text(routes: &[RouteEntry]) -> String {
        if routes.is_empty() {
            return "there is no such route\n".to_owned();
        }
        Table::of(routes)
            .text("PREFIX", RouteEntry::destination)
            .text("TABLE", |route| route.table.to_string())
            .text("KIND", |route| route.kind.clone())
            .text("PROTOCOL", |route| route.protocol.to_string())
            .number("METRIC", |route| route.metric.to_string())
            .text("WAYS", RouteEntry::leads_to)
            .render()
    }
}

impl RouteEntry {
    /// Returns the destination prefix of the route, and the additional condition for packets if
    /// there is one.
    pub fn destination(&self) -> String {
        match &self.only {
            Some(only) => format!("{} {only}", self.prefix),
            None => self.prefix.to_string(),
        }
    }

    /// Returns the next-hop object and the next hops, or `-` if there are none.
    pub fn leads_to(&self) -> String {
        let hops: Vec<String> = self.next_hops.iter().map(ToString::to_string).collect();
        let hops = if hops.is_empty() { "-".to_owned() } else { hops.join(", ") };
        match self.next_hop {
            Some(id) => format!("nexthop {id}: {hops}"),
            None => hops,
        }
    }
}

/// Query for routes. Absent criteria match all routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteQuery {
    /// Prefix within which the destination prefixes of the routes must lie.
    pub prefix: Option<Prefix>,
    /// Routing table of the routes.
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
    /// Origin of the next-hop object.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub protocol: RouteProtocol,
    /// Next hop of the object. Absent for a group and a blackhole.
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

impl Listed for NextHopEntry {
    fn text(hops: &[NextHopEntry]) -> String {
        let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        Table::of(hops)
            .number("ID", |hop| hop.id.to_string())
            .text("PROTOCOL", |hop| hop.protocol.to_string())
            .text("LEADS TO", NextHopEntry::leads_to)
            .number("PACKETS", |hop| count(hop.packets))
            .number("BYTES", |hop| count(hop.bytes))
            .render()
    }
}

impl NextHopEntry {
    /// Returns the next hop, or the members of the group.
    fn leads_to(&self) -> String {
        let members: Vec<String> =
            self.group.iter().map(|member| format!("{} weight {}", member.id, member.weight)).collect();
        match (&self.hop, self.blackhole, self.buckets) {
            (_, true, _) => "blackhole".to_owned(),
            (Some(hop), ..) => hop.to_string(),
            (None, false, Some(buckets)) => format!("group {}, {buckets} buckets", members.join(", ")),
            (None, false, None) => format!("group {}", members.join(", ")),
        }
    }
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

impl Listed for NeighbourEntry {
    fn text(neighbours: &[NeighbourEntry]) -> String {
        Table::of(neighbours)
            .text("ADDRESS", |neighbour| neighbour.address.to_string())
            .text("DEVICE", |neighbour| neighbour.device.clone())
            .text("ETHERNET", |neighbour| neighbour.mac.map_or_else(|| "-".to_owned(), |mac| mac.to_string()))
            .text("PERMANENT", |neighbour| if neighbour.permanent { "yes" } else { "-" }.to_owned())
            .number("PACKETS", |neighbour| neighbour.packets.to_string())
            .number("BYTES", |neighbour| neighbour.bytes.to_string())
            .render()
    }
}

/// Explanation of the route lookup for an address or a prefix.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RouteWhy {
    /// Prefix for which the client requested the explanation. A requested address is a prefix of full length.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub of: Prefix,
    /// Policy rule that selected the routing table, in the form that `ip rule` prints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Route with the longest prefix that contains the whole queried prefix. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<RouteEntry>,
    /// Steps of the lookup, one sentence each, in the order of the search.
    pub chosen: Vec<String>,
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

    fn route() -> RouteEntry {
        RouteEntry {
            prefix: "10.1.0.0/16".parse().unwrap(),
            table: TableId::MAIN,
            kind: "unicast".to_owned(),
            protocol: RouteProtocol(186),
            metric: 20,
            only: None,
            next_hops: vec![
                RouteNextHop {
                    gateway: "10.0.0.2".parse().ok(),
                    device: Some("eth0".to_owned()),
                    weight: 1,
                    dead: false,
                },
                RouteNextHop {
                    device: Some("eth1".to_owned()),
                    weight: 2,
                    dead: true,
                    ..RouteNextHop::default()
                },
            ],
            next_hop: None,
        }
    }

    #[test]
    fn routes_read_as_in_ip_route() {
        let blackhole = RouteEntry {
            prefix: "2001:db8::/32".parse().unwrap(),
            kind: "blackhole".to_owned(),
            table: TableId(100),
            only: Some("from 2001:db8:1::/48".to_owned()),
            next_hops: Vec::new(),
            ..route()
        };
        let shared = RouteEntry { next_hop: Some(7), ..route() };
        assert_eq!(
            RouteEntry::text(&[route(), blackhole, shared]),
            "\
PREFIX                              TABLE  KIND       PROTOCOL  METRIC  WAYS
10.1.0.0/16                         main   unicast    bgp           20  via 10.0.0.2 dev eth0, dev eth1 weight 2 dead
2001:db8::/32 from 2001:db8:1::/48  100    blackhole  bgp           20  -
10.1.0.0/16                         main   unicast    bgp           20  nexthop 7: via 10.0.0.2 dev eth0, dev eth1 weight 2 dead
"
        );
        assert_eq!(RouteEntry::text(&[]), "there is no such route\n");
    }

    #[test]
    fn next_hops_lead_somewhere() {
        let members = vec![NextHopMember { id: 1, weight: 1 }, NextHopMember { id: 2, weight: 3 }];
        let group = NextHopEntry { id: 7, group: members, buckets: Some(64), ..NextHopEntry::default() };
        let hole = NextHopEntry { id: 8, blackhole: true, ..NextHopEntry::default() };
        let hop = route().next_hops.into_iter().next();
        let hop = NextHopEntry { id: 9, hop, packets: Some(7), bytes: Some(420), ..NextHopEntry::default() };
        assert_eq!(
            NextHopEntry::text(&[group, hole, hop]),
            "\
ID  PROTOCOL  LEADS TO                                  PACKETS  BYTES
 7  unspec    group 1 weight 1, 2 weight 3, 64 buckets        -      -
 8  unspec    blackhole                                       -      -
 9  unspec    via 10.0.0.2 dev eth0                           7    420
"
        );
    }
}
