//! Decodes rtnetlink messages (rtnetlink(7), `linux/rtnetlink.h`, `linux/nexthop.h`, `linux/fib_rules.h`).
//! Lengths in a message are checked. A truncated message is not decoded.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use port::netlink::{attributes, text, u16_at, u32_at};

use crate::state::{
    Address, Family, Hop, Kind, Link, Member, Neighbour, NeighbourKey, NextHop, Path, Prefix, RouteKey, Rule,
    Settings, SettingsKey,
};

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

pub(crate) const NEWLINK: u16 = 16;
const DELLINK: u16 = 17;
pub(crate) const NEWADDR: u16 = 20;
const DELADDR: u16 = 21;
pub(crate) const NEWROUTE: u16 = 24;
pub(crate) const DELROUTE: u16 = 25;
pub(crate) const NEWNEIGH: u16 = 28;
const DELNEIGH: u16 = 29;
pub(crate) const NEWRULE: u16 = 32;
const DELRULE: u16 = 33;
pub(crate) const NEWNETCONF: u16 = 80;
const DELNETCONF: u16 = 81;
pub(crate) const NEWNEXTHOP: u16 = 104;
pub(crate) const DELNEXTHOP: u16 = 105;

const IFF_UP: u32 = 1;
const IFF_RUNNING: u32 = 0x40;
const IFF_LOWER_UP: u32 = 0x10000;
const NUD_USABLE: u16 = 0x02 | 0x04 | 0x08 | 0x10 | NUD_PERMANENT;
const NUD_PERMANENT: u16 = 0x80;
const IFA_F_TENTATIVE: u32 = 0x40;
const NTF_PROXY: u8 = 0x08;
const RTM_F_CLONED: u32 = 0x200;
const RTNH_F_DEAD: u32 = 1;
const RTNH_F_ONLINK: u32 = 4;
const FIB_RULE_PERMANENT: u32 = 1;
const FIB_RULE_INVERT: u32 = 2;

/// A decoded notification or dump message of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether the message reports that the object was deleted.
    pub gone: bool,
    /// Netlink flags of the message (`NLM_F_*`). They determine the position of a route among the routes with
    /// an equal key.
    pub flags: u16,
    /// Object that the message describes.
    pub object: Object,
}

/// Object that a message describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A network device.
    Link(Link),
    /// An IP address of this host.
    Address(Address),
    /// A neighbour. The second value is `None` if the neighbour's link-layer address must not be used.
    Neighbour(NeighbourKey, Option<Neighbour>),
    /// A next-hop object (`ip nexthop`), with its ID.
    NextHop(u32, NextHop),
    /// An IPv4 route.
    Route4(RouteKey<Ipv4Addr>, Path),
    /// An IPv6 route.
    Route6(RouteKey<Ipv6Addr>, Path),
    /// A policy rule.
    Rule(Rule),
    /// Forwarding settings of a device or of all devices. A notification contains only the settings that have
    /// changed.
    Settings(SettingsKey, Settings),
}

/// Decodes a message. Returns `None` for a truncated message, and for messages about state that the mirror
/// does not contain (other families, bridge entries, cached routes, proxy neighbours).
#[must_use]
pub fn decode(kind: u16, flags: u16, payload: &[u8]) -> Option<Event> {
    let object = match kind {
        NEWLINK | DELLINK => Object::Link(link(payload)?),
        NEWADDR | DELADDR => {
            let (address, usable) = address(payload)?;
            return Some(Event { gone: kind == DELADDR || !usable, flags, object: Object::Address(address) });
        }
        NEWNEIGH | DELNEIGH => neighbour(payload)?,
        NEWROUTE | DELROUTE => route(payload)?,
        NEWRULE | DELRULE => Object::Rule(rule(payload)?),
        NEWNEXTHOP | DELNEXTHOP => next_hop(payload)?,
        NEWNETCONF | DELNETCONF => settings(payload)?,
        _ => return None,
    };
    let gone = matches!(kind, DELLINK | DELNEIGH | DELROUTE | DELRULE | DELNEXTHOP | DELNETCONF);
    Some(Event { gone, flags, object })
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Ipv4Addr::from_wire(bytes).map(IpAddr::V4),
        16 => Ipv6Addr::from_wire(bytes).map(IpAddr::V6),
        _ => None,
    }
}

fn link(payload: &[u8]) -> Option<Link> {
    // Messages of family AF_BRIDGE describe bridge ports. The device remains when a bridge port is deleted.
    if *payload.first()? != 0 {
        return None;
    }
    let flags = u32_at(payload, 8)?;
    let mut link = Link {
        index: u32_at(payload, 4)?,
        name: String::new(),
        kind: None,
        address: Vec::new(),
        mtu: 0,
        up: flags & IFF_UP != 0,
        carrier: flags & (IFF_RUNNING | IFF_LOWER_UP) != 0,
        running: flags & IFF_RUNNING != 0,
        master: None,
        parent: None,
    };
    for (kind, value) in attributes(payload.get(16..)?) {
        match kind {
            1 => link.address = value.to_vec(),
            3 => link.name = text(value),
            4 => link.mtu = u32_at(value, 0)?,
            5 => link.parent = u32_at(value, 0).filter(|index| *index != 0),
            10 => link.master = u32_at(value, 0).filter(|index| *index != 0),
            18 => link.kind = attributes(value).find(|(kind, _)| *kind == 1).map(|(_, name)| text(name)),
            _ => {}
        }
    }
    (!link.name.is_empty()).then_some(link)
}

/// Decodes an address, and whether it may be used. An address may not be used during duplicate address
/// detection. Returns `None` if the message is invalid.
fn address(payload: &[u8]) -> Option<(Address, bool)> {
    let (family, prefix_length, link) = (*payload.first()?, *payload.get(1)?, u32_at(payload, 4)?);
    let mut flags = u32::from(*payload.get(2)?);
    let (mut local, mut peer) = (None, None);
    for (kind, value) in attributes(payload.get(8..)?) {
        match kind {
            1 => peer = ip(value),
            2 => local = ip(value),
            8 => flags = u32_at(value, 0)?,
            _ => {}
        }
    }
    let local = local.or(peer)?;
    let of_family = matches!((family, local), (AF_INET, IpAddr::V4(_)) | (AF_INET6, IpAddr::V6(_)));
    let address = Address { link, local, prefix_length, peer: peer.unwrap_or(local) };
    of_family.then_some((address, flags & IFA_F_TENTATIVE == 0))
}

fn neighbour(payload: &[u8]) -> Option<Object> {
    let (family, link, state) = (*payload.first()?, u32_at(payload, 4)?, u16_at(payload, 8)?);
    if ![AF_INET, AF_INET6].contains(&family) || payload.get(10)? & NTF_PROXY != 0 {
        return None;
    }
    let (mut at, mut address) = (None, Vec::new());
    for (kind, value) in attributes(payload.get(12..)?) {
        match kind {
            1 => at = ip(value),
            2 => address = value.to_vec(),
            _ => {}
        }
    }
    let permanent = state & NUD_PERMANENT != 0;
    let known = (state & NUD_USABLE != 0).then_some(Neighbour { address, permanent });
    Some(Object::Neighbour(NeighbourKey { link, address: at? }, known))
}

fn next_hop(payload: &[u8]) -> Option<Object> {
    let (protocol, flags) = (*payload.get(2)?, u32_at(payload, 4)?);
    let mut hop = Hop {
        link: 0,
        gateway: None,
        weight: 1,
        onlink: flags & RTNH_F_ONLINK != 0,
        encapsulates: false,
        dead: false,
    };
    let mut next = NextHop { hop: None, group: Vec::new(), blackhole: false, buckets: None, protocol };
    let (mut id, mut fdb) = (None, false);
    for (kind, value) in attributes(payload.get(8..)?) {
        match kind {
            1 => id = u32_at(value, 0),
            2 => {
                // ID, weight minus one, and the high byte of the weight (Linux 6.12).
                let members = value.chunks_exact(8);
                let member = |bytes: &[u8]| {
                    let weight = u16::from(bytes[4]) | u16::from(bytes[5]) << 8;
                    Some(Member { id: u32_at(bytes, 0)?, weight: weight.saturating_add(1) })
                };
                next.group = members.filter_map(member).collect();
            }
            4 => next.blackhole = true,
            5 => hop.link = u32_at(value, 0)?,
            6 => hop.gateway = ip(value),
            7 => hop.encapsulates = u16_at(value, 0)? != 0,
            11 => fdb = true,
            12 => {
                next.buckets = attributes(value).find(|(kind, _)| *kind == 1).and_then(|(_, n)| u16_at(n, 0))
            }
            _ => {}
        }
    }
    next.group.sort_unstable();
    // Next hops for bridge tables do not forward packets.
    if fdb {
        return None;
    }
    next.hop = (next.group.is_empty() && !next.blackhole).then_some(hop);
    Some(Object::NextHop(id?, next))
}

fn route(payload: &[u8]) -> Option<Object> {
    let flags = u32_at(payload, 8)?;
    if flags & RTM_F_CLONED != 0 {
        return None;
    }
    match *payload.first()? {
        AF_INET => route_of::<Ipv4Addr>(payload, flags).map(|(key, path)| Object::Route4(key, path)),
        AF_INET6 => route_of::<Ipv6Addr>(payload, flags).map(|(key, path)| Object::Route6(key, path)),
        _ => None,
    }
}

fn route_of<A: Family>(payload: &[u8], flags: u32) -> Option<(RouteKey<A>, Path)> {
    let byte = |at: usize| payload.get(at).copied();
    let prefix = |length| Prefix { address: A::ZERO, length };
    let mut key = RouteKey {
        table: u32::from(byte(4)?),
        prefix: prefix(byte(1)?),
        tos: byte(3)?,
        metric: 0,
        from: prefix(byte(2)?),
    };
    let mut path = Path {
        kind: Kind::of(byte(7)?),
        protocol: byte(5)?,
        scope: byte(6)?,
        next_hop: None,
        hops: Vec::new(),
        source: None,
        mtu: None,
    };
    // The flags of a single next hop are in the flags of the route.
    let (onlink, dead) = (flags & RTNH_F_ONLINK != 0, flags & RTNH_F_DEAD != 0);
    let mut only = Hop { link: 0, gateway: None, weight: 1, onlink, encapsulates: false, dead };
    for (kind, value) in attributes(payload.get(12..)?) {
        match kind {
            1 => key.prefix.address = A::from_wire(value)?,
            2 => key.from.address = A::from_wire(value)?,
            6 => key.metric = u32_at(value, 0)?,
            7 => path.source = ip(value),
            8 => {
                path.mtu = attributes(value).find(|(kind, _)| *kind == 2).and_then(|(_, mtu)| u32_at(mtu, 0))
            }
            9 => path.hops = hops(value)?,
            15 => key.table = u32_at(value, 0)?,
            30 => path.next_hop = u32_at(value, 0).filter(|id| *id != 0),
            _ => hop_attribute(&mut only, kind, value),
        }
    }
    if usize::from(key.prefix.length) > A::BYTES * 8 || usize::from(key.from.length) > A::BYTES * 8 {
        return None;
    }
    if path.next_hop.is_some() {
        // The next hops are those of the next-hop object, and may change without a message about the route.
        path.hops.clear();
    } else if path.hops.is_empty() && (only.link != 0 || only.gateway.is_some()) {
        path.hops.push(only);
    }
    path.hops.sort_unstable();
    Some((key, path))
}

/// Decodes the next hops in an array of `struct rtnexthop`. Returns `None` if the array is invalid.
fn hops(mut bytes: &[u8]) -> Option<Vec<Hop>> {
    let mut list = Vec::new();
    while !bytes.is_empty() {
        let length = usize::from(u16_at(bytes, 0)?);
        let (flags, weight) = (*bytes.get(2)?, *bytes.get(3)?);
        let mut hop = Hop {
            link: u32_at(bytes, 4)?,
            gateway: None,
            weight: u16::from(weight) + 1,
            onlink: u32::from(flags) & RTNH_F_ONLINK != 0,
            encapsulates: false,
            dead: u32::from(flags) & RTNH_F_DEAD != 0,
        };
        for (kind, value) in attributes(bytes.get(8..length)?) {
            hop_attribute(&mut hop, kind, value);
        }
        list.push(hop);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Some(list)
}

/// Decodes a next-hop attribute into `hop`. The attribute belongs either to a route with a single next hop or
/// to one of several next hops.
fn hop_attribute(hop: &mut Hop, kind: u16, value: &[u8]) {
    match kind {
        4 => hop.link = u32_at(value, 0).unwrap_or(0),
        5 => hop.gateway = ip(value),
        // `struct rtvia` is a family followed by the address.
        18 => hop.gateway = value.get(2..).and_then(ip),
        21 => hop.encapsulates = u16_at(value, 0).is_some_and(|kind| kind != 0),
        _ => {}
    }
}

/// Decodes settings from `struct netconfmsg` (`linux/netconf.h`). Returns `None` for the default settings of
/// new devices, and for an invalid message.
fn settings(payload: &[u8]) -> Option<Object> {
    const BEGINNING: u32 = u32::MAX - 1;
    let v6 = match *payload.first()? {
        AF_INET => false,
        AF_INET6 => true,
        _ => return None,
    };
    let (mut link, mut settings) = (None, Settings::default());
    for (kind, value) in attributes(payload.get(4..)?) {
        let is_set = || u32_at(value, 0).map(|number| number != 0);
        match kind {
            1 => link = u32_at(value, 0),
            2 => settings.forwarding = is_set(),
            6 => settings.ignores_linkdown = is_set(),
            _ => {}
        }
    }
    let link = link.filter(|link| *link != BEGINNING)?;
    Some(Object::Settings(SettingsKey { v6, link }, settings))
}

fn rule(payload: &[u8]) -> Option<Rule> {
    let byte = |at: usize| payload.get(at).copied();
    let family = byte(0)?;
    if ![AF_INET, AF_INET6].contains(&family) {
        return None;
    }
    let (to, from) = (byte(1)?, byte(2)?);
    let zero = if family == AF_INET { IpAddr::V4(Ipv4Addr::ZERO) } else { IpAddr::V6(Ipv6Addr::ZERO) };
    let prefix = |length: u8| (length > 0).then_some(Prefix { address: zero, length });
    let mut rule = Rule {
        priority: 0,
        v6: family == AF_INET6,
        action: byte(7)?,
        table: u32::from(byte(4)?),
        source: prefix(from),
        destination: prefix(to),
        tos: byte(3)?,
        input: None,
        output: None,
        mark: None,
        // Other flags report whether the devices of the rule exist, which links report as well.
        flags: u32_at(payload, 8)? & (FIB_RULE_PERMANENT | FIB_RULE_INVERT),
        other: Vec::new(),
    };
    let (mut mark, mut mask) = (0, None);
    for (kind, value) in attributes(payload.get(12..)?) {
        match kind {
            1 => rule.destination = Some(Prefix { address: ip(value)?, length: to }),
            2 => rule.source = Some(Prefix { address: ip(value)?, length: from }),
            3 => rule.input = Some(text(value)),
            6 => rule.priority = u32_at(value, 0)?,
            10 => mark = u32_at(value, 0)?,
            15 => rule.table = u32_at(value, 0)?,
            16 => mask = u32_at(value, 0),
            17 => rule.output = Some(text(value)),
            // Padding attribute.
            18 => {}
            kind => rule.other.push((kind, value.to_vec())),
        }
    }
    rule.mark = mask.filter(|mask| mask | mark != 0).map(|mask| (mark, mask));
    rule.other.sort();
    Some(rule)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_cut_short_or_wrong_is_no_object(
            kind in prop_oneof![16_u16..34, 80_u16..82, 104_u16..106],
            family in prop_oneof![Just(0_u8), Just(2), Just(10), any::<u8>()],
            mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = family;
            }
            let event = decode(kind, 0, &bytes);
            if let Some(Event { object: Object::Route4(key, _), .. }) = event {
                prop_assert!(key.prefix.length <= 32);
            }
        }
    }

    #[test]
    fn ports_that_leave_bridges_stay_devices() {
        let mut payload = vec![0; 16];
        payload.extend([5, 0, 3, 0, b'a', 0, 0, 0]);
        assert!(matches!(
            decode(DELLINK, 0, &payload),
            Some(Event { gone: true, object: Object::Link(_), .. })
        ));
        payload[0] = 7;
        assert_eq!(decode(DELLINK, 0, &payload), None);
    }
}
