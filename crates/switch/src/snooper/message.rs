//! What a punted frame tells the snooper: IGMP (RFC 1112, 2236, 3376), MLD (RFC 2710, 3810) and PIM hellos (RFC 7761)
//! as events of one kind for both families.
//!
//! Nothing is believed that the hosts and routers of the link do not hear and believe: checksums, lengths, one hop, the link-layer
//! address of the IP destination (a network card filters by it), a general query's destination of all hosts and a group query's
//! destination of the group or all hosts (RFC 3376 section 4.1.12, RFC 3810 section 5.1.15; Linux checks the former), and for MLD a
//! link-local source and the router alert (RFC 3810 sections 6.2 and 7.4). As in Linux, IGMP may lack the router alert. Source filters of IGMPv3 and MLDv2 are reduced to listening or not listening to the group.

use packet::igmp::{Igmp, RecordKind};
use packet::ipv4::Ipv4;
use packet::ipv6::Ipv6;
use packet::mld::Mld;
use packet::{DropReason, FlowKey, L3Kind, MacAddr, PortId, icmpv6, igmp, ip_proto};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::groups::Family;
use crate::multicast::PIM;

/// One thing that a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Somebody listens to the group.
    Join(IpAddr),
    /// Somebody has left the group.
    Leave(IpAddr),
    /// A router or snooper asks who listens.
    Query(Query),
    /// A multicast router is there.
    Router(Family),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) family: Family,
    /// The group asked for, unless the query is general or about single sources.
    pub(super) group: Option<IpAddr>,
    /// Whether all listeners of the link are asked.
    pub(super) is_general: bool,
    /// Longest time to wait with the answer.
    pub(super) max_resp_ns: u64,
    /// Whether timers are to be left alone.
    pub(super) suppress: bool,
    /// Whether it has a source address: what asks from 0.0.0.0 is no router (RFC 4541 section 2.1.1, item 1b).
    pub(super) from_router: bool,
}

/// Reads a punted frame and tells each event. What was told before an error stands.
pub(super) fn read(frame: &[u8], tell: impl FnMut(Event)) -> Result<(), DropReason> {
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
        (L3Kind::Ipv4, Some(l3)) => read_ipv4(&Ipv4::parse(l3).map_err(|error| error.reason())?, tell),
        (L3Kind::Ipv6, Some(l3)) => read_ipv6(&Ipv6::parse(l3).map_err(|error| error.reason())?, tell),
        _ => Err(layers.malformed().unwrap_or(DropReason::MulticastControlBad)),
    }
}

fn read_ipv4(ip: &Ipv4<'_>, mut tell: impl FnMut(Event)) -> Result<(), DropReason> {
    if !ip.checksum_ok() || ip.is_fragment() || ip.ttl() != 1 || !ip.dst().is_multicast() {
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
        Igmp::Query(query) if !asks_who_hears(query.group.into(), ip.dst().into()) => {
            return Err(DropReason::MulticastControlBad);
        }
        Igmp::Query(query) => tell(Event::Query(Query {
            family: Family::V4,
            group: about(query.group.into(), query.sources.is_empty()),
            is_general: query.group.is_unspecified(),
            max_resp_ns: u64::from(query.max_resp) * 100_000_000,
            suppress: query.suppress,
            from_router: ip.src() != Ipv4Addr::UNSPECIFIED,
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
    let from_here = (link_local || ip.src() == Ipv6Addr::UNSPECIFIED) && has_router_alert(ip);
    if upper.proto != ip_proto::ICMPV6 || !from_here || !message.checksum_ok(pseudo_sum) {
        return Err(DropReason::MulticastControlBad);
    }
    match Mld::parse(upper.payload).map_err(|error| error.reason())? {
        Mld::Report { group } => tell(Event::Join(group.into())),
        Mld::Done { group } => tell(Event::Leave(group.into())),
        // RFC 3810 section 6.2: a host without an address may report, but not ask.
        Mld::Query(query) if !link_local || !asks_who_hears(query.group.into(), ip.dst().into()) => {
            return Err(DropReason::MulticastControlBad);
        }
        Mld::Query(query) => tell(Event::Query(Query {
            family: Family::V6,
            group: about(query.group.into(), query.sources.is_empty()),
            is_general: query.group.is_unspecified(),
            max_resp_ns: u64::from(query.max_resp) * 1_000_000,
            suppress: query.suppress,
            from_router: true,
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

/// Version 2, type 0 (RFC 7761 section 4.9). Its options are not read, so neither is its hold time.
fn pim_hello(message: &[u8], family: Family, mut tell: impl FnMut(Event)) -> Result<(), DropReason> {
    match message.first() {
        Some(0x20) => tell(Event::Router(family)),
        Some(_) => {}
        None => return Err(DropReason::MulticastControlBad),
    }
    Ok(())
}

/// Whether a query reaches those it asks: a general one all hosts, one for a group its listeners.
fn asks_who_hears(group: IpAddr, destination: IpAddr) -> bool {
    let all = match destination {
        IpAddr::V4(destination) => destination == Ipv4Addr::new(224, 0, 0, 1),
        IpAddr::V6(destination) => destination == Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
    };
    all || !group.is_unspecified() && destination == group
}

/// Whether the packet has the router alert for MLD among its hop-by-hop options (RFC 2711).
fn has_router_alert(ip: &Ipv6<'_>) -> bool {
    const ALERT: [u8; 4] = [5, 2, 0, 0];
    let Some(&[_, units]) = ip.payload().first_chunk::<2>().filter(|_| ip.next_header() == 0) else {
        return false;
    };
    let mut options = ip.payload().get(2..8 + 8 * usize::from(units)).unwrap_or(&[]);
    while let [kind, rest @ ..] = options {
        if options.starts_with(&ALERT) {
            return true;
        }
        // Pad1 is one octet; all others tell their length.
        let skipped = if *kind == 0 { 0 } else { 1 + rest.first().map_or(0, |length| usize::from(*length)) };
        options = rest.get(skipped..).unwrap_or(&[]);
    }
    false
}

/// The group that a query asks for as a whole.
fn about(group: IpAddr, no_sources: bool) -> Option<IpAddr> {
    (group.is_multicast() && no_sources).then_some(group)
}

/// What a group record means when sources are not told apart (RFC 3376 section 4.2.12, RFC 3810 section 5.2.12).
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
