//! Converts a router's copy of the kernel's routing state (the mirror) into values of the API.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use model::{
    DriftState, Explanation, NeighbourEntry, NextHopEntry, NextHopMember, RouteEntry, RouteNextHop,
    RouteProtocol, RouteQuery, RouteWhy, Step, TableId, Tier,
};
use netlink::{Change, Drift, Hop, Kind, Mirror, Path, Paths, Prefix, RouteKey, Routes, Rule, SettingsKey};
use packet::{FlowKey, L3Kind, MacAddr, PortId};

/// Numbers of packets and bytes that were sent to each neighbour of a router, by interface index and neighbour
/// address.
pub type Sent = BTreeMap<(u32, IpAddr), (u64, u64)>;

/// An IPv4 or IPv6 address, with the operations that depend on the address family.
trait Ip: netlink::Family {
    fn ip(self) -> IpAddr;
}

impl Ip for Ipv4Addr {
    fn ip(self) -> IpAddr {
        self.into()
    }
}

impl Ip for Ipv6Addr {
    fn ip(self) -> IpAddr {
        self.into()
    }
}

/// Returns the name of a route type as `ip route` prints it.
fn kind_name(kind: Kind) -> String {
    match kind {
        Kind::Unicast => "unicast".to_owned(),
        Kind::Local => "local".to_owned(),
        Kind::Broadcast => "broadcast".to_owned(),
        Kind::Anycast => "anycast".to_owned(),
        Kind::Multicast => "multicast".to_owned(),
        Kind::Blackhole => "blackhole".to_owned(),
        Kind::Unreachable => "unreachable".to_owned(),
        Kind::Prohibit => "prohibit".to_owned(),
        Kind::Throw => "throw".to_owned(),
        Kind::Other(number) => format!("#{number}"),
    }
}

fn device(mirror: &Mirror, index: u32) -> String {
    mirror.links.get(&index).map_or_else(|| format!("#{index}"), |link| link.name.clone())
}

fn next_hop(mirror: &Mirror, hop: &Hop) -> RouteNextHop {
    RouteNextHop {
        gateway: hop.gateway,
        device: (hop.link != 0).then(|| device(mirror, hop.link)),
        weight: hop.weight,
        dead: hop.dead,
    }
}

/// Returns the next hops of the kernel's next-hop object `id`. If the object is a group, returns the next hops
/// of its members.
fn next_hops_of(mirror: &Mirror, id: u32) -> Vec<RouteNextHop> {
    let Some(object) = mirror.next_hops.get(&id) else { return Vec::new() };
    let own = object.hop.iter().map(|hop| next_hop(mirror, hop));
    let members = object.group.iter().filter_map(|member| {
        let hop = mirror.next_hops.get(&member.id)?.hop?;
        Some(RouteNextHop { weight: member.weight, ..next_hop(mirror, &hop) })
    });
    own.chain(members).collect()
}

fn prefix<A: Ip>(prefix: Prefix<A>) -> Option<model::Prefix> {
    model::Prefix::new(prefix.address.ip(), prefix.length).ok()
}

fn route<A: Ip>(mirror: &Mirror, key: &RouteKey<A>, path: &Path) -> Option<RouteEntry> {
    let tos = (key.tos != 0).then(|| format!("tos {:#04x}", key.tos));
    let from = (key.from.length != 0).then(|| format!("from {}/{}", key.from.address.ip(), key.from.length));
    let only: Vec<String> = [tos, from].into_iter().flatten().collect();
    let next_hops = match path.next_hop {
        Some(id) => next_hops_of(mirror, id),
        None => path.hops.iter().map(|hop| next_hop(mirror, hop)).collect(),
    };
    Some(RouteEntry {
        prefix: prefix(key.prefix)?,
        table: TableId(key.table),
        kind: kind_name(path.kind),
        protocol: RouteProtocol(path.protocol),
        metric: key.metric,
        only: (!only.is_empty()).then(|| only.join(" ")),
        next_hops,
        next_hop: path.next_hop,
    })
}

/// Maximum number of routes that one call of [`routes`] converts. The number is limited because the call blocks the
/// thread that maintains the mirror (the copy of the kernel's routing state).
const SLICE: usize = 512;

/// Position in a list of routes, from which the list continues. The value is the key of the last route before this
/// position.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// Position among the IPv4 routes. `None` is the position of the first IPv4 route.
    Four(Option<RouteKey<Ipv4Addr>>),
    /// Position among the IPv6 routes. `None` is the position of the first IPv6 route.
    Six(Option<RouteKey<Ipv6Addr>>),
}

impl Place {
    /// Position at which a list of all routes starts.
    pub const START: Place = Place::Four(None);
}

/// Returns the next routes that match the query, IPv4 first, ordered by table and prefix. The second value is
/// the position at which the list continues, and `None` at the end of the list.
pub fn routes(mirror: &Mirror, query: RouteQuery, from: Place) -> (Vec<RouteEntry>, Option<Place>) {
    let table = query.table.map(|table| table.0);
    let within = query.prefix.map(|prefix| (prefix.address(), prefix.length()));
    match from {
        Place::Four(behind) => {
            let prefix = match within {
                None => Prefix { address: Ipv4Addr::UNSPECIFIED, length: 0 },
                Some((IpAddr::V4(address), length)) => Prefix { address, length },
                Some((IpAddr::V6(_), _)) => return (Vec::new(), Some(Place::Six(None))),
            };
            let (entries, last) = slice(mirror, mirror.routes4.within(behind, table, prefix));
            let six = within.is_none().then_some(Place::Six(None));
            (entries, last.map(|last| Place::Four(Some(last))).or(six))
        }
        Place::Six(behind) => {
            let prefix = match within {
                None => Prefix { address: Ipv6Addr::UNSPECIFIED, length: 0 },
                Some((IpAddr::V6(address), length)) => Prefix { address, length },
                Some((IpAddr::V4(_), _)) => return (Vec::new(), None),
            };
            let (entries, last) = slice(mirror, mirror.routes6.within(behind, table, prefix));
            (entries, last.map(|last| Place::Six(Some(last))))
        }
    }
}

/// Converts the first `SLICE` routes of `all` into entries of the API. The second value is the key of the last of these
/// routes if there may be more routes, otherwise `None`.
fn slice<'m, A: Ip + 'm>(
    mirror: &Mirror,
    all: impl Iterator<Item = (&'m RouteKey<A>, &'m Paths)>,
) -> (Vec<RouteEntry>, Option<RouteKey<A>>) {
    let (mut entries, mut last) = (Vec::new(), None);
    for (count, (key, paths)) in (1..).zip(all.take(SLICE)) {
        entries.extend(paths.all().iter().filter_map(|path| route(mirror, key, path)));
        last = (count == SLICE).then_some(*key);
    }
    (entries, last)
}

/// Returns a policy routing rule in the form that `ip rule` prints.
fn rule_text(rule: &Rule) -> String {
    let mut words = vec![format!("{}:", rule.priority)];
    if rule.flags & 2 != 0 {
        words.push("not".to_owned());
    }
    let source = rule.source.map_or_else(|| "all".to_owned(), |source| source.to_string());
    words.push(format!("from {source}"));
    words.extend(rule.destination.map(|to| format!("to {to}")));
    words.extend((rule.tos != 0).then(|| format!("tos {:#04x}", rule.tos)));
    words.extend(rule.mark.map(|(mark, mask)| format!("fwmark {mark:#x}/{mask:#x}")));
    words.extend(rule.input.as_ref().map(|name| format!("iif {name}")));
    words.extend(rule.output.as_ref().map(|name| format!("oif {name}")));
    words.push(match rule.action {
        1 => format!("lookup {}", TableId(rule.table)),
        2 => format!("goto {}", number(rule, 4).unwrap_or_default()),
        3 => "nop".to_owned(),
        6 => "blackhole".to_owned(),
        7 => "unreachable".to_owned(),
        8 => "prohibit".to_owned(),
        other => format!("action {other}"),
    });
    words.extend(rule.other.iter().filter_map(|(kind, value)| more_text(*kind, value)));
    words.join(" ")
}

/// Returns the number in the attribute `kind` of a policy routing rule, which the mirror of the kernel's routing state
/// stores undecoded. Returns `None` if the rule does not have the attribute.
fn number(rule: &Rule, kind: u16) -> Option<u32> {
    let (_, value) = rule.other.iter().find(|(own, _)| *own == kind)?;
    value.as_slice().try_into().ok().map(u32::from_ne_bytes)
}

/// Returns an attribute of a policy routing rule (`linux/fib_rules.h`) in the form that `ip rule` prints.
/// Returns `None` if the attribute does not select packets.
fn more_text(kind: u16, value: &[u8]) -> Option<String> {
    let number = || value.try_into().ok().map(u32::from_ne_bytes);
    let range = || {
        let [a, b, c, d] = value.try_into().ok()?;
        Some(format!("{}-{}", u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d])))
    };
    match kind {
        // The target of a jump is printed with its action, and the protocol selects no packets.
        4 | 21 => None,
        14 => number()
            .filter(|length| *length != u32::MAX)
            .map(|length| format!("suppress_prefixlength {length}")),
        22 => value.first().map(|protocol| format!("ipproto {protocol}")),
        23 => range().map(|ports| format!("sport {ports}")),
        24 => range().map(|ports| format!("dport {ports}")),
        other => Some(format!("attribute {other}")),
    }
}

/// Result of looking up a destination in a routing table of the mirror (the copy of the kernel's routing state).
enum Found {
    Route(Kind, Option<RouteEntry>),
    /// The kernel selects among several routes to the prefix by type of service or source address. The value is the
    /// prefix as text.
    Divided(String),
}

fn found<A: Ip + std::fmt::Display>(
    mirror: &Mirror,
    routes: &Routes<A>,
    table: u32,
    address: A,
    length: u8,
) -> Option<Found> {
    let found = routes.longest(table, Prefix { address, length });
    let divided = (0..=length).rev().map(|length| Prefix { address: address.masked(length), length });
    let divided = divided
        .take_while(|prefix| found.is_none_or(|(key, _)| key.prefix.length <= prefix.length))
        .find(|prefix| routes.is_divided(table, *prefix));
    match (divided, found) {
        (Some(prefix), _) => Some(Found::Divided(prefix.to_string())),
        (None, found) => found.map(|(key, path)| Found::Route(path.kind, route(mirror, key, path))),
    }
}

/// Returns the policy routing rule and the route that apply to packets to an address or prefix. Rules that have
/// conditions other than the destination are skipped, and the result names these rules.
pub fn why(mirror: &Mirror, of: model::Prefix) -> RouteWhy {
    let mut why = RouteWhy { of, rule: None, route: None, chosen: Vec::new() };
    for rule in mirror.rules.iter().filter(|rule| rule.v6 == of.address().is_ipv6()) {
        let text = rule_text(rule);
        let conditional = rule.source.is_some()
            || rule.tos != 0
            || rule.mark.is_some()
            || rule.input.is_some()
            || rule.output.is_some()
            || rule.flags & 2 != 0;
        if let Some(to) = rule.destination {
            let to = model::Prefix::new(to.address, to.length);
            if !to.is_ok_and(|to| to.covers(of)) {
                why.chosen.push(format!("rule \"{text}\" is for other destinations"));
                continue;
            }
        }
        if conditional {
            why.chosen.push(format!("rule \"{text}\" decides about some packets, and is passed over here"));
            continue;
        }
        let end = match rule.action {
            3 => {
                why.chosen.push(format!("rule \"{text}\" does nothing"));
                continue;
            }
            6..=8 => Some("ends the search"),
            1 if rule.is_plain() => None,
            _ => Some("asks for what only the kernel follows: packets that reach it are given to the kernel"),
        };
        if let Some(end) = end {
            why.chosen.push(format!("rule \"{text}\" {end}"));
            why.rule = Some(text);
            return why;
        }
        let table = TableId(rule.table);
        let found = match of.address() {
            IpAddr::V4(address) => found(mirror, &mirror.routes4, rule.table, address, of.length()),
            IpAddr::V6(address) => found(mirror, &mirror.routes6, rule.table, address, of.length()),
        };
        match found {
            Some(Found::Divided(prefix)) => {
                why.chosen.push(format!(
                    "rule \"{text}\": some routes of table {table} to {prefix} are for some packets only, among which the kernel chooses: \
                     it is given them"
                ));
                why.rule = Some(text);
                return why;
            }
            None => why.chosen.push(format!("rule \"{text}\": table {table} has no usable route")),
            Some(Found::Route(Kind::Throw, _)) => {
                why.chosen.push(format!("rule \"{text}\": table {table} throws it to the next rule"));
            }
            Some(Found::Route(_, found)) => {
                let prefix = found.as_ref().map_or_else(String::new, |route| route.prefix.to_string());
                why.chosen
                    .push(format!("rule \"{text}\": {prefix} is the longest usable prefix of table {table}"));
                why.rule = Some(text);
                why.route = found;
                return why;
            }
        }
    }
    why.chosen
        .push("no rule leads to a route: the sender is told that the network is unreachable".to_owned());
    why
}

/// Text in the result of `trivium explain` for a route of the kernel that has no effect on packets,
/// because the route did not fit into the workers' tables.
pub const NO_ROOM: &str =
    "it found no room in the router's table (`routes`): packets go by what there is without it";

/// First words of the `explain` step for a packet that the hook (XDP program) routes.
pub const ROUTED: &str = "a route ";

/// Returns the destination address of an IP packet, as a prefix. Returns `None` if the frame contains no IP
/// packet.
pub fn destination(frame: &[u8]) -> Option<model::Prefix> {
    let mut key = FlowKey::default();
    FlowKey::extract(frame, frame.len(), PortId(0), &mut key).ok()?;
    let to: IpAddr = match key.l3_kind() {
        L3Kind::Ipv4 => key.ipv4_dst().into(),
        L3Kind::Ipv6 => key.ipv6_dst().into(),
        L3Kind::None | L3Kind::Arp => return None,
    };
    Some(to.into())
}

/// Inserts a step that names the kernel's route into the explanation of a packet that a worker or
/// the hook has routed. The step is placed before the step of the worker's function or the hook's
/// routing step.
pub fn tell(story: &mut Explanation, why: &RouteWhy) {
    let in_hook = |step: &Step| story.tier == Tier::Hook && step.what.starts_with(ROUTED);
    let place = story.steps.iter().position(|step| step.stage == "function" || in_hook(step));
    let Some(place) = place else { return };
    let Some(route) = &why.route else { return };
    let next_hops: Vec<String> = route.next_hops.iter().map(ToString::to_string).collect();
    let next_hops = match next_hops.as_slice() {
        [] => String::new(),
        [only] => format!(": {only}"),
        several => format!(": one of {}", several.join(", ")),
    };
    let object = route.next_hop.map(|id| format!(", next-hop object {id}")).unwrap_or_default();
    let kind = if route.kind == "unicast" { String::new() } else { format!("{} ", route.kind) };
    let (prefix, table, protocol) = (route.prefix, route.table, route.protocol);
    let lacks = why.chosen.last().filter(|last| *last == NO_ROOM);
    let lacks = lacks.map(|lacks| format!("; {lacks}")).unwrap_or_default();
    let what = format!("{kind}{prefix} in table {table}, made by {protocol}{object}{next_hops}{lacks}");
    story.steps.insert(place, Step { stage: "route".to_owned(), what });
}

/// Returns at most `limit` neighbours in the mirror of the kernel's routing state as values of the API. `sent` contains
/// the numbers of packets and bytes sent to the neighbours.
pub fn neighbours(mirror: &Mirror, limit: usize, sent: &Sent) -> Vec<NeighbourEntry> {
    let entry = |(key, known): (&netlink::NeighbourKey, &netlink::Neighbour)| {
        let (packets, bytes) = sent.get(&(key.link, key.address)).copied().unwrap_or_default();
        NeighbourEntry {
            address: key.address,
            device: device(mirror, key.link),
            mac: known.address.as_slice().try_into().ok().map(MacAddr),
            permanent: known.permanent,
            packets,
            bytes,
        }
    };
    mirror.neighbours.iter().take(limit).map(entry).collect()
}

/// Returns at most `limit` next-hop objects in the mirror of the kernel's routing state as values of the API. `sent`
/// contains the numbers of packets and bytes sent to the gateways.
pub fn next_hops(mirror: &Mirror, limit: usize, sent: &Sent) -> Vec<NextHopEntry> {
    let to = |hop: &Hop| Some(sent.get(&(hop.link, hop.gateway?)).copied().unwrap_or_default());
    let entry = |(id, object): (&u32, &netlink::NextHop)| NextHopEntry {
        id: *id,
        protocol: RouteProtocol(object.protocol),
        hop: object.hop.as_ref().map(|hop| next_hop(mirror, hop)),
        blackhole: object.blackhole,
        group: object
            .group
            .iter()
            .map(|member| NextHopMember { id: member.id, weight: member.weight })
            .collect(),
        buckets: object.buckets,
        packets: object.hop.as_ref().and_then(to).map(|sent| sent.0),
        bytes: object.hop.as_ref().and_then(to).map(|sent| sent.1),
    };
    mirror.next_hops.iter().take(limit).map(entry).collect()
}

/// Returns the total number of routes, neighbours and other objects in the mirror (the copy of the kernel's
/// routing state).
pub fn objects(mirror: &Mirror) -> u64 {
    let all = [
        mirror.links.len(),
        mirror.addresses.len(),
        mirror.neighbours.len(),
        mirror.next_hops.len(),
        mirror.routes4.len(),
        mirror.routes6.len(),
        mirror.rules.len(),
        mirror.settings.len(),
    ];
    all.into_iter().sum::<usize>() as u64
}

/// Converts the differences between the mirror (the copy of the kernel's routing state) and the kernel into a value of
/// the API. `checked` is the number of compared objects.
pub fn drift(found: &Drift, checked: u64) -> DriftState {
    let name = |change: &Change| match change {
        Change::Link(index) => format!("device #{index}"),
        Change::Address(address) => {
            format!("address {}/{} of device #{}", address.local, address.prefix_length, address.link)
        }
        Change::Neighbour(key) => format!("neighbour {} behind device #{}", key.address, key.link),
        Change::NextHop(id) => format!("next-hop object {id}"),
        Change::Route4(key) => format!("route {} of table {}", key.prefix, TableId(key.table)),
        Change::Route6(key) => format!("route {} of table {}", key.prefix, TableId(key.table)),
        Change::Rules => "rules".to_owned(),
        Change::Settings(SettingsKey { v6, link }) => {
            let family = if *v6 { "IPv6" } else { "IPv4" };
            match *link {
                SettingsKey::ALL => format!("{family} settings of all devices"),
                index => format!("{family} settings of device #{index}"),
            }
        }
    };
    DriftState {
        checked,
        drifted: found.changes.len() as u64,
        changes: found.changes.iter().take(DriftState::TOLD).map(name).collect(),
        busy: found.busy as u64,
    }
}

/// Returns the IP addresses of a device as text, each with its prefix length.
pub fn addresses(mirror: &Mirror, device: u32) -> Vec<String> {
    let own = mirror.addresses.iter().filter(|address| address.link == device);
    own.map(|address| format!("{}/{}", address.local, address.prefix_length)).collect()
}
