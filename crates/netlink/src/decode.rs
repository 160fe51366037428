//! Decodes rtnetlink messages (rtnetlink(7), `linux/rtnetlink.h`, `linux/nexthop.h`, `linux/fib_rules.h`). All lengths
//! in a message are checked. A truncated message is not decoded.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use port::netlink::{attributes, text, u16_at, u32_at};

use crate::rtnetlink::address::{IFA_ADDRESS, IFA_F_TENTATIVE, IFA_FLAGS, IFA_LOCAL};
use crate::rtnetlink::family::{AF_INET, AF_INET6, AF_UNSPEC};
use crate::rtnetlink::length;
use crate::rtnetlink::link::{
    IFF_LOWER_UP, IFF_RUNNING, IFF_UP, IFLA_ADDRESS, IFLA_IFNAME, IFLA_INFO_KIND, IFLA_LINK, IFLA_LINKINFO,
    IFLA_MASTER, IFLA_MTU,
};
use crate::rtnetlink::message::{
    RTM_DELADDR, RTM_DELLINK, RTM_DELNEIGH, RTM_DELNETCONF, RTM_DELNEXTHOP, RTM_DELROUTE, RTM_DELRULE,
    RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNEIGH, RTM_NEWNETCONF, RTM_NEWNEXTHOP, RTM_NEWROUTE, RTM_NEWRULE,
};
use crate::rtnetlink::neighbour::{
    NDA_DST, NDA_LLADDR, NTF_PROXY, NUD_DELAY, NUD_PERMANENT, NUD_PROBE, NUD_REACHABLE, NUD_STALE,
};
use crate::rtnetlink::netconf::{
    NETCONFA_FORWARDING, NETCONFA_IFINDEX, NETCONFA_IFINDEX_DEFAULT, NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN,
};
use crate::rtnetlink::nexthop::{
    NHA_BLACKHOLE, NHA_ENCAP_TYPE, NHA_FDB, NHA_GATEWAY, NHA_GROUP, NHA_ID, NHA_OIF, NHA_RES_GROUP,
    NHA_RES_GROUP_BUCKETS,
};
use crate::rtnetlink::route::{
    RTA_DST, RTA_ENCAP_TYPE, RTA_GATEWAY, RTA_METRICS, RTA_MULTIPATH, RTA_NH_ID, RTA_OIF, RTA_PREFSRC,
    RTA_PRIORITY, RTA_SRC, RTA_TABLE, RTA_VIA, RTAX_MTU, RTM_F_CLONED, RTNH_F_DEAD, RTNH_F_ONLINK,
};
use crate::rtnetlink::rule::{
    FIB_RULE_INVERT, FIB_RULE_PERMANENT, FRA_DST, FRA_FWMARK, FRA_FWMASK, FRA_IIFNAME, FRA_OIFNAME, FRA_PAD,
    FRA_PRIORITY, FRA_SRC, FRA_TABLE,
};
use crate::state::{
    Address, Family, Hop, Kind, Link, Member, Neighbour, NeighbourKey, NextHop, Path, Prefix, RouteKey, Rule,
    Settings, SettingsKey,
};

/// Neighbour states (`NUD_*`) in which the neighbour's link-layer address may be used.
const NUD_USABLE: u16 = NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT;

/// A decoded notification or dump message of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether the message reports that the object was deleted.
    pub gone: bool,
    /// Netlink flags of the message (`NLM_F_*`). The flags determine the position of a new route among the routes with
    /// an equal key.
    pub flags: u16,
    /// Object that the message describes.
    pub object: Object,
}

/// An object of the kernel's routing state, as described by an rtnetlink message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A network device of the namespace.
    Link(Link),
    /// An IP address of this host.
    Address(Address),
    /// A neighbour. The second value is `None` if the neighbour's link-layer address is unknown, or known but not
    /// usable (its `NUD_*` state is not in `NUD_USABLE`).
    Neighbour(NeighbourKey, Option<Neighbour>),
    /// A next-hop object (`ip nexthop`) and its ID.
    NextHop(u32, NextHop),
    /// An IPv4 route: its key and its path.
    Route4(RouteKey<Ipv4Addr>, Path),
    /// An IPv6 route: its key and its path.
    Route6(RouteKey<Ipv6Addr>, Path),
    /// A policy rule (`ip rule`).
    Rule(Rule),
    /// Forwarding settings (`net.ipv4.conf`, `net.ipv6.conf`) of a device or of all devices. A notification contains
    /// only the settings that have changed.
    Settings(SettingsKey, Settings),
}

/// Decodes an rtnetlink message of the type `kind`. Returns `None` for a truncated message, and for messages about
/// state that the mirror (the copy of the kernel's routing state in this process) does not contain: other address
/// families, bridge entries, cached routes, proxy neighbours.
#[must_use]
pub fn decode(kind: u16, flags: u16, payload: &[u8]) -> Option<Event> {
    let object = match kind {
        RTM_NEWLINK | RTM_DELLINK => Object::Link(link(payload)?),
        RTM_NEWADDR | RTM_DELADDR => {
            let (address, usable) = address(payload)?;
            return Some(Event {
                gone: kind == RTM_DELADDR || !usable,
                flags,
                object: Object::Address(address),
            });
        }
        RTM_NEWNEIGH | RTM_DELNEIGH => neighbour(payload)?,
        RTM_NEWROUTE | RTM_DELROUTE => route(payload)?,
        RTM_NEWRULE | RTM_DELRULE => Object::Rule(rule(payload)?),
        RTM_NEWNEXTHOP | RTM_DELNEXTHOP => next_hop(payload)?,
        RTM_NEWNETCONF | RTM_DELNETCONF => settings(payload)?,
        _ => return None,
    };
    let gone = matches!(
        kind,
        RTM_DELLINK | RTM_DELNEIGH | RTM_DELROUTE | RTM_DELRULE | RTM_DELNEXTHOP | RTM_DELNETCONF
    );
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
    if *payload.first()? != AF_UNSPEC {
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
    for (kind, value) in attributes(payload.get(length::IFINFOMSG..)?) {
        match kind {
            IFLA_ADDRESS => link.address = value.to_vec(),
            IFLA_IFNAME => link.name = text(value),
            IFLA_MTU => link.mtu = u32_at(value, 0)?,
            IFLA_LINK => link.parent = u32_at(value, 0).filter(|index| *index != 0),
            IFLA_MASTER => link.master = u32_at(value, 0).filter(|index| *index != 0),
            IFLA_LINKINFO => {
                let found = attributes(value).find(|(kind, _)| *kind == IFLA_INFO_KIND);
                link.kind = found.map(|(_, name)| text(name));
            }
            _ => {}
        }
    }
    (!link.name.is_empty()).then_some(link)
}

/// Decodes an IP address of this host. The second value states whether the address is usable. It is `false` while the
/// kernel performs duplicate address detection for the address. Returns `None` if the message is invalid.
fn address(payload: &[u8]) -> Option<(Address, bool)> {
    let (family, prefix_length, link) = (*payload.first()?, *payload.get(1)?, u32_at(payload, 4)?);
    let mut flags = u32::from(*payload.get(2)?);
    let (mut local, mut peer) = (None, None);
    for (kind, value) in attributes(payload.get(length::IFADDRMSG..)?) {
        match kind {
            IFA_ADDRESS => peer = ip(value),
            IFA_LOCAL => local = ip(value),
            IFA_FLAGS => flags = u32_at(value, 0)?,
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
    for (kind, value) in attributes(payload.get(length::NDMSG..)?) {
        match kind {
            NDA_DST => at = ip(value),
            NDA_LLADDR => address = value.to_vec(),
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
    for (kind, value) in attributes(payload.get(length::NHMSG..)?) {
        match kind {
            NHA_ID => id = u32_at(value, 0),
            NHA_GROUP => {
                // ID, weight minus one, and the high byte of the weight (Linux 6.12).
                let members = value.chunks_exact(length::NEXTHOP_GRP);
                let member = |bytes: &[u8]| {
                    let weight = u16::from(bytes[4]) | u16::from(bytes[5]) << 8;
                    Some(Member { id: u32_at(bytes, 0)?, weight: weight.saturating_add(1) })
                };
                next.group = members.filter_map(member).collect();
            }
            NHA_BLACKHOLE => next.blackhole = true,
            NHA_OIF => hop.link = u32_at(value, 0)?,
            NHA_GATEWAY => hop.gateway = ip(value),
            NHA_ENCAP_TYPE => hop.encapsulates = u16_at(value, 0)? != 0,
            NHA_FDB => fdb = true,
            NHA_RES_GROUP => {
                let found = attributes(value).find(|(kind, _)| *kind == NHA_RES_GROUP_BUCKETS);
                next.buckets = found.and_then(|(_, buckets)| u16_at(buckets, 0));
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
    for (kind, value) in attributes(payload.get(length::RTMSG..)?) {
        match kind {
            RTA_DST => key.prefix.address = A::from_wire(value)?,
            RTA_SRC => key.from.address = A::from_wire(value)?,
            RTA_PRIORITY => key.metric = u32_at(value, 0)?,
            RTA_PREFSRC => path.source = ip(value),
            RTA_METRICS => {
                let found = attributes(value).find(|(kind, _)| *kind == RTAX_MTU);
                path.mtu = found.and_then(|(_, mtu)| u32_at(mtu, 0));
            }
            RTA_MULTIPATH => path.hops = hops(value)?,
            RTA_TABLE => key.table = u32_at(value, 0)?,
            RTA_NH_ID => path.next_hop = u32_at(value, 0).filter(|id| *id != 0),
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
        for (kind, value) in attributes(bytes.get(length::RTNEXTHOP..length)?) {
            hop_attribute(&mut hop, kind, value);
        }
        list.push(hop);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Some(list)
}

/// Decodes an attribute of a next hop into `hop`. The attribute belongs to a route with a single next hop, or to one
/// next hop of a multipath route.
fn hop_attribute(hop: &mut Hop, kind: u16, value: &[u8]) {
    match kind {
        RTA_OIF => hop.link = u32_at(value, 0).unwrap_or(0),
        RTA_GATEWAY => hop.gateway = ip(value),
        // `struct rtvia` is a family followed by the address.
        RTA_VIA => hop.gateway = value.get(2..).and_then(ip),
        RTA_ENCAP_TYPE => hop.encapsulates = u16_at(value, 0).is_some_and(|kind| kind != 0),
        _ => {}
    }
}

/// Decodes settings from `struct netconfmsg` (`linux/netconf.h`). Returns `None` for the default settings of
/// new devices, and for an invalid message.
fn settings(payload: &[u8]) -> Option<Object> {
    let v6 = match *payload.first()? {
        AF_INET => false,
        AF_INET6 => true,
        _ => return None,
    };
    let (mut link, mut settings) = (None, Settings::default());
    for (kind, value) in attributes(payload.get(length::NETCONFMSG..)?) {
        let is_set = || u32_at(value, 0).map(|number| number != 0);
        match kind {
            NETCONFA_IFINDEX => link = u32_at(value, 0),
            NETCONFA_FORWARDING => settings.forwarding = is_set(),
            NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN => settings.ignores_linkdown = is_set(),
            _ => {}
        }
    }
    let link = link.filter(|link| *link != NETCONFA_IFINDEX_DEFAULT)?;
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
        // The other flags only state whether the rule's devices exist. The links in the mirror already contain this
        // information.
        flags: u32_at(payload, 8)? & (FIB_RULE_PERMANENT | FIB_RULE_INVERT),
        other: Vec::new(),
    };
    let (mut mark, mut mask) = (0, None);
    for (kind, value) in attributes(payload.get(length::FIB_RULE_HDR..)?) {
        match kind {
            FRA_DST => rule.destination = Some(Prefix { address: ip(value)?, length: to }),
            FRA_SRC => rule.source = Some(Prefix { address: ip(value)?, length: from }),
            FRA_IIFNAME => rule.input = Some(text(value)),
            FRA_PRIORITY => rule.priority = u32_at(value, 0)?,
            FRA_FWMARK => mark = u32_at(value, 0)?,
            FRA_TABLE => rule.table = u32_at(value, 0)?,
            FRA_FWMASK => mask = u32_at(value, 0),
            FRA_OIFNAME => rule.output = Some(text(value)),
            FRA_PAD => {}
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
            decode(RTM_DELLINK, 0, &payload),
            Some(Event { gone: true, object: Object::Link(_), .. })
        ));
        payload[0] = 7;
        assert_eq!(decode(RTM_DELLINK, 0, &payload), None);
    }
}
