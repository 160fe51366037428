//! The parser of multicast control frames. The parser turns IGMP (RFC 1112, 2236, 3376), MLD (RFC
//! 2710, 3810) and PIM hello messages (RFC 7761) into events. IPv4 and IPv6 share one event type.
//!
//! The parser rejects messages that the hosts and routers of the link do not receive or accept. These are
//! messages that Linux drops (`ip_rcv`, `ip_route_input_mc`, `igmp_rcv`, `ip6_rcv_core`, `ip6_parse_tlv`,
//! `igmp6_event_query`) or other stacks may drop:
//!
//! - messages with a bad checksum or length, fragments, messages with a TTL other than 1, and
//!   messages whose link-layer address does not belong to the IP destination (network cards filter
//!   frames by this address);
//! - messages with an IPv4 source that no host has: loopback, group, broadcast, and reserved addresses
//!   (0.0.0.0 is the source of a host without an address);
//! - messages with IP options other than the router alert and padding, because some options make a host discard the
//!   packet. As in Linux, IGMP may lack the router alert. MLD has exactly one router alert, in a hop-by-hop header
//!   directly before the message (RFC 3810 sections 5, 6.2 and 7.4), and a link-local source;
//! - queries to a destination other than all hosts or the group in question (RFC 3376 section 4.1.12, RFC 3810 section
//!   5.1.15), general queries with sources (sections 4.1.9 and 5.1.10), queries after tags other than the tag of the
//!   VLAN, and queries so long that a listener's MTU may stop them.
//!
//! Source filters of IGMPv3 and MLDv2 are reduced to membership: a host that listens to any source is a member of the
//! group.

use packet::igmp::{Igmp, RecordKind};
use packet::ipv4::{Ipv4, RawOption};
use packet::ipv6::Ipv6;
use packet::mld::{self, Mld};
use packet::{DropReason, FlowKey, L3Kind, MacAddr, PortId, icmpv6, igmp, ip_proto};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::groups::Family;
use crate::multicast::PIM;

/// IPv4 option type of the router alert (RFC 2113).
const ROUTER_ALERT_V4: u8 = 148;
/// IPv6 option type of the router alert (RFC 2711 section 2.1).
const ROUTER_ALERT_V6: u8 = 5;
/// IPv6 option type of one octet of padding, Pad1 (RFC 8200 section 4.2).
const PAD1: u8 = 0;
/// IPv6 option type of two or more octets of padding, PadN (RFC 8200 section 4.2).
const PADN: u8 = 1;
/// First octet of a PIM hello: version 2, type 0 (RFC 7761 section 4.9).
const PIM_HELLO: u8 = 0x20;

/// One event of a multicast control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A host listens to the group.
    Join(IpAddr),
    /// A host has left the group.
    Leave(IpAddr),
    /// A router or snooping switch queries for listeners.
    Query(Query),
    /// A rejected query of the family. Some hosts may answer the query within the time in nanoseconds.
    RejectedQuery(Family, u64),
    /// A multicast router is present.
    Router(Family),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) family: Family,
    /// Group of the query. The value is `None` if the query is general or restricted to certain sources.
    pub(super) group: Option<IpAddr>,
    /// Whether the query is general. All listeners of the link answer a general query.
    pub(super) is_general: bool,
    /// Maximum response time of the query, in nanoseconds.
    pub(super) max_resp_ns: u64,
    /// Whether the S flag (suppress router-side processing) is set. If so, receivers of the query leave their timers
    /// unchanged.
    pub(super) suppress: bool,
    /// IP source of the query. A sender with source 0.0.0.0 is not a router (RFC 4541 section 2.1.1, item
    /// 1b).
    pub(super) source: IpAddr,
}

impl Query {
    /// Returns whether the query is general, or about a group without restriction to sources.
    fn asks_all(&self) -> bool {
        self.is_general || self.group.is_some()
    }
}

/// Maximum length, in octets, of a frame with a general or group query that is accepted. A query without sources has
/// at most 94 octets, and a frame of this length fits the MTU of every port.
const LONGEST_QUERY: usize = 128;

/// Longest maximum response time of a query, in nanoseconds: the longest time that an MLD version 2 query can express
/// (RFC 3810 section 5.1.3). The longest time of an IGMP query is shorter.
pub(super) const LONGEST_RESPONSE_NS: u64 = 8_387_584 * 1_000_000;

/// Parses a multicast control frame of the VLAN `vid` and calls `tell` with each event. Returns the IP source of the
/// frame, or the drop reason if the frame is invalid. Events reported before the error remain valid.
pub(super) fn read(frame: &[u8], vid: u16, mut tell: impl FnMut(Event)) -> Result<IpAddr, DropReason> {
    let mut is_bad = false;
    let outcome = read_any(frame, |event| match event {
        Event::Query(query) if query.asks_all() && !reaches_hosts(frame, vid) => is_bad = true,
        event => tell(event),
    });
    let outcome = if is_bad { Err(DropReason::MulticastControlBad) } else { outcome };
    if outcome.is_err()
        && let Some((family, response_ns)) = response_time(frame)
    {
        tell(Event::RejectedQuery(family, response_ns));
    }
    outcome
}

/// Returns the family and the maximum response time, in nanoseconds, of a frame with a query. The frame may be invalid.
fn response_time(frame: &[u8]) -> Option<(Family, u64)> {
    let mut key = FlowKey::ZERO;
    let layers = FlowKey::extract(frame, frame.len(), PortId::default(), &mut key).ok()?;
    let message = frame.get(layers.l4()?..)?;
    match (key.l3_kind(), key.proto(), message.first()?) {
        (L3Kind::Ipv4, ip_proto::IGMP, &igmp::kind::QUERY) => Some((
            Family::V4,
            match Igmp::parse(message) {
                Ok(Igmp::Query(query)) => u64::from(query.max_resp) * 100_000_000,
                _ => LONGEST_RESPONSE_NS,
            },
        )),
        (L3Kind::Ipv6, ip_proto::ICMPV6, &mld::kind::QUERY) => Some((
            Family::V6,
            match Mld::parse(message) {
                Ok(Mld::Query(query)) => u64::from(query.max_resp) * 1_000_000,
                _ => LONGEST_RESPONSE_NS,
            },
        )),
        _ => None,
    }
}

/// Returns whether the hosts of the VLAN accept the frame as an IP packet: the frame has no tag other than the tag
/// of the VLAN and no SNAP header, and is at most [`LONGEST_QUERY`] octets long.
fn reaches_hosts(frame: &[u8], vid: u16) -> bool {
    let is_ip = |at: usize| matches!(frame.get(at..at + 2), Some([0x08, 0] | [0x86, 0xdd]));
    let is_plain = match frame.get(12..16) {
        Some([0x81, 0, high, low]) => {
            let tagged = u16::from_be_bytes([*high, *low]) & 0xfff;
            is_ip(16) && (tagged == 0 || tagged == vid)
        }
        _ => is_ip(12),
    };
    is_plain && frame.len() <= LONGEST_QUERY
}

fn read_any(frame: &[u8], tell: impl FnMut(Event)) -> Result<IpAddr, DropReason> {
    let mut key = FlowKey::ZERO;
    let layers = FlowKey::extract(frame, frame.len(), PortId::default(), &mut key)?;
    let l3 = layers.l3().and_then(|at| frame.get(at..));
    let heard_as = match key.l3_kind() {
        L3Kind::Ipv4 => MacAddr::for_ipv4_multicast(key.ipv4_dst()),
        _ => MacAddr::for_ipv6_multicast(key.ipv6_dst()),
    };
    if l3.is_some() && key.eth_dst() != heard_as {
        return Err(DropReason::MulticastControlBad);
    }
    match (key.l3_kind(), l3) {
        (L3Kind::Ipv4, Some(l3)) => {
            read_ipv4(&Ipv4::parse(l3).map_err(|error| error.reason())?, tell)?;
            Ok(key.ipv4_src().into())
        }
        (L3Kind::Ipv6, Some(l3)) => {
            read_ipv6(&Ipv6::parse(l3).map_err(|error| error.reason())?, tell)?;
            Ok(key.ipv6_src().into())
        }
        _ => Err(layers.malformed().unwrap_or(DropReason::MulticastControlBad)),
    }
}

fn read_ipv4(ip: &Ipv4<'_>, mut tell: impl FnMut(Event)) -> Result<(), DropReason> {
    if !ip.checksum_ok() || ip.is_fragment() || ip.ttl() != 1 || !ip.dst().is_multicast() {
        return Err(DropReason::MulticastControlBad);
    }
    if !may_be_a_source(ip.src()) || !ip.options().all(|option| option.is_ok_and(is_router_alert)) {
        return Err(DropReason::MulticastControlBad);
    }
    if ip.proto() == PIM {
        return pim_hello(ip.payload(), Family::V4, tell);
    }
    if ip.proto() != ip_proto::IGMP || !igmp::checksum_ok(ip.payload()) {
        return Err(DropReason::MulticastControlBad);
    }
    match Igmp::parse(ip.payload()).map_err(|error| error.reason())? {
        Igmp::Report { group, .. } => tell(Event::Join(group.into())),
        Igmp::Leave { group } => tell(Event::Leave(group.into())),
        Igmp::Query(query)
            if !asks_who_hears(query.group.into(), ip.dst().into(), query.sources.is_empty()) =>
        {
            return Err(DropReason::MulticastControlBad);
        }
        Igmp::Query(query) => tell(Event::Query(Query {
            family: Family::V4,
            group: about(query.group.into(), query.sources.is_empty()),
            is_general: query.group.is_unspecified(),
            max_resp_ns: u64::from(query.max_resp) * 100_000_000,
            suppress: query.suppress,
            source: ip.src().into(),
        })),
        Igmp::ReportV3(records) => {
            for record in records {
                let record = record.map_err(|error| error.reason())?;
                filter(record.kind, record.group.into(), record.sources.is_empty())
                    .into_iter()
                    .for_each(&mut tell);
            }
        }
        Igmp::Other(_) => {}
    }
    Ok(())
}

fn read_ipv6(ip: &Ipv6<'_>, mut tell: impl FnMut(Event)) -> Result<(), DropReason> {
    let upper = ip.upper().map_err(|error| error.reason())?;
    if upper.fragment.is_some() || ip.hop_limit() != 1 || !ip.dst().is_multicast() {
        return Err(DropReason::MulticastControlBad);
    }
    if upper.proto == PIM {
        return pim_hello(upper.payload, Family::V6, tell);
    }
    let pseudo_sum = ip.pseudo_sum(upper.proto, upper.payload.len());
    let message = icmpv6::Icmpv6::parse(upper.payload).map_err(|error| error.reason())?;
    let link_local = ip.src().is_unicast_link_local();
    let from_here = (link_local || ip.src() == Ipv6Addr::UNSPECIFIED) && has_router_alert_only(ip);
    if upper.proto != ip_proto::ICMPV6 || !from_here || !message.checksum_ok(pseudo_sum) {
        return Err(DropReason::MulticastControlBad);
    }
    match Mld::parse(upper.payload).map_err(|error| error.reason())? {
        Mld::Report { group } => tell(Event::Join(group.into())),
        Mld::Done { group } => tell(Event::Leave(group.into())),
        // A host without an address may send reports but not queries (RFC 3810 section 6.2).
        Mld::Query(query)
            if !link_local
                || !asks_who_hears(query.group.into(), ip.dst().into(), query.sources.is_empty()) =>
        {
            return Err(DropReason::MulticastControlBad);
        }
        Mld::Query(query) => tell(Event::Query(Query {
            family: Family::V6,
            group: about(query.group.into(), query.sources.is_empty()),
            is_general: query.group.is_unspecified(),
            max_resp_ns: u64::from(query.max_resp) * 1_000_000,
            suppress: query.suppress,
            source: ip.src().into(),
        })),
        Mld::ReportV2(records) => {
            for record in records {
                let record = record.map_err(|error| error.reason())?;
                filter(record.kind, record.group.into(), record.sources.is_empty())
                    .into_iter()
                    .for_each(&mut tell);
            }
        }
        Mld::Other(_) => {}
    }
    Ok(())
}

/// Reads a PIM message. For a hello (version 2, type 0, RFC 7761 section 4.9), calls `tell` with the event that a
/// router is present. The hello's options, and thus its hold time, are not read.
fn pim_hello(message: &[u8], family: Family, mut tell: impl FnMut(Event)) -> Result<(), DropReason> {
    match message.first() {
        Some(&PIM_HELLO) => tell(Event::Router(family)),
        Some(_) => {}
        None => return Err(DropReason::MulticastControlBad),
    }
    Ok(())
}

/// Returns whether hosts answer a query with this destination address: a general query without
/// sources to the all-hosts group, or a group query to the all-hosts group or to the queried group.
fn asks_who_hears(group: IpAddr, destination: IpAddr, no_sources: bool) -> bool {
    let all = match destination {
        IpAddr::V4(destination) => destination == Ipv4Addr::new(224, 0, 0, 1),
        IpAddr::V6(destination) => destination == Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
    };
    if group.is_unspecified() { all && no_sources } else { all || destination == group }
}

/// Returns whether an IPv4 source address is valid for a host of the link, or is 0.0.0.0, the source of a host
/// without an address (RFC 1122 section 3.2.1.3, `ip_mc_validate_source` in Linux).
fn may_be_a_source(source: Ipv4Addr) -> bool {
    match source.octets()[0] {
        0 => source.is_unspecified(),
        127 | 224.. => false,
        _ => true,
    }
}

/// Returns whether the IPv4 option is a router alert (RFC 2113).
fn is_router_alert(option: RawOption<'_>) -> bool {
    option.kind == ROUTER_ALERT_V4 && option.data.len() == 2
}

/// Returns whether a hop-by-hop header is directly before ICMPv6 and holds one router alert for MLD (RFC 2711), padding
/// that Linux accepts (RFC 4942 section 2.1.9.5), and nothing else. A jumbogram (payload length zero) cannot carry MLD.
fn has_router_alert_only(ip: &Ipv6<'_>) -> bool {
    const MOST_PADDING: usize = 7;
    let Some(&[ip_proto::ICMPV6, units]) = ip.payload().first_chunk::<2>() else { return false };
    let options = ip.payload().get(2..8 + 8 * usize::from(units));
    let Some(mut options) =
        options.filter(|_| ip.next_header() == ip_proto::HOP_BY_HOP && ip.header().payload_len.get() != 0)
    else {
        return false;
    };
    let (mut alerts, mut padding) = (0, 0);
    while let [kind, rest @ ..] = options {
        // Pad1 is one octet. All other options carry their length.
        let length =
            if *kind == PAD1 { 1 } else { 2 + rest.first().map_or(0, |length| usize::from(*length)) };
        let Some((option, after)) = options.split_at_checked(length) else { return false };
        match option {
            // The value 0 stands for MLD.
            [ROUTER_ALERT_V6, 2, 0, 0] => (alerts, padding) = (alerts + 1, 0),
            [PAD1] => padding += 1,
            [PADN, _, zeros @ ..] if zeros.iter().all(|octet| *octet == 0) => padding += length,
            _ => return false,
        }
        if padding > MOST_PADDING {
            return false;
        }
        options = after;
    }
    alerts == 1
}

/// Returns the group of a query that is about a group without restriction to sources. Returns `None` for other queries.
fn about(group: IpAddr, no_sources: bool) -> Option<IpAddr> {
    (group.is_multicast() && no_sources).then_some(group)
}

/// Returns the join or leave that an IGMPv3 or MLDv2 group record means if sources are not distinguished (RFC 3376
/// section 4.2.12, RFC 3810 section 5.2.12). Returns `None` if the record does not change the membership of the group.
fn filter(kind: Option<RecordKind>, group: IpAddr, no_sources: bool) -> Option<Event> {
    match (kind?, no_sources) {
        (RecordKind::IsExclude | RecordKind::ToExclude, _) => Some(Event::Join(group)),
        (RecordKind::IsInclude | RecordKind::ToInclude | RecordKind::Allow, false) => {
            Some(Event::Join(group))
        }
        (RecordKind::IsInclude | RecordKind::ToInclude, true) => Some(Event::Leave(group)),
        (RecordKind::Allow, true) | (RecordKind::Block, _) => None,
    }
}
