//! Compares reverse path checks with a list of routes that is searched linearly. The tests include policy rules, routes
//! with several next hops, and all kinds of routes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use lookup::Prefix;
use packet::record::ReverseRoute;
use packet::{DropReason, FlowKey, Layers, MacAddr, PortId, spec};
use proptest::prelude::*;
use router::{
    Adjacencies, Decision, Errors, Fib, Interface, Lookup, Mirrored, NextHop, Path, Punt, PuntPolicer,
    ReversePath, Router, Scratch, Selector, Verdict,
};
use sync::qsbr::Domain;

/// Devices 10, 11 and 12 are the interfaces 0, 1 and 2. Device 13 is not an interface.
const DEVICES: [u32; 4] = [10, 11, 12, 13];
const OWN: MacAddr = MacAddr([2, 0, 0, 0, 1, 0]);

/// Returns a source address with the last octet `last`. All source addresses are in one network, and all destination
/// addresses are in another network.
fn source(six: bool, last: u8) -> IpAddr {
    if six {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()).into()
    } else {
        Ipv4Addr::new(10, 0, 0, last).into()
    }
}

fn destination(six: bool, last: u8) -> IpAddr {
    if six {
        Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, last.into()).into()
    } else {
        Ipv4Addr::new(10, 0, 1, last).into()
    }
}

fn set(fib: &mut Fib, adjacencies: &mut Adjacencies, address: IpAddr, below: u8, path: &Path) {
    match address {
        IpAddr::V4(a) => fib.set4(Prefix::new(a.to_bits(), 24 + below), path, adjacencies).unwrap(),
        IpAddr::V6(a) => fib.set6(Prefix::new(a.to_bits(), 120 + below), path, adjacencies).unwrap(),
    }
}

/// Routes to source addresses. The values are the last octet of the prefix, the number of significant bits in this
/// octet, and the path.
type Routes = Vec<(u8, u8, Path)>;

/// Returns the path of the route to a source: the matching route with the longest prefix. If several routes have the
/// same prefix, the last one counts.
fn says(routes: &Routes, source: u8) -> Option<&Path> {
    let covers = |(address, bits, _): &&(u8, u8, Path)| {
        let mask = !0xff_u8.checked_shr((*bits).into()).unwrap_or(0);
        address & mask == source & mask
    };
    routes.iter().filter(covers).max_by_key(|(_, bits, _)| *bits).map(|(.., path)| path)
}

/// Returns the devices through which packets to a source leave. The result is empty if there is no such device.
fn ways_back(tables: &[&Routes], source: u8) -> Vec<u32> {
    for routes in tables {
        match says(routes, source) {
            None | Some(Path::Throw) => {}
            Some(Path::NextHops(next_hops)) if next_hops.is_empty() => {}
            Some(Path::NextHops(next_hops)) => return next_hops.iter().map(|hop| hop.interface).collect(),
            Some(_) => return Vec::new(),
        }
    }
    Vec::new()
}

fn paths() -> impl Strategy<Value = Path> {
    let hop = |(device, gateway): (usize, Option<u8>)| NextHop {
        interface: DEVICES[device],
        gateway: gateway.map(|last| Ipv4Addr::new(10, 9, 9, last).into()),
        weight: 1,
    };
    let next_hops = prop::collection::vec((0..4_usize, prop::option::of(1..4_u8)).prop_map(hop), 0..4);
    prop_oneof![
        6 => next_hops.prop_map(Path::NextHops),
        1 => Just(Path::Local),
        1 => Just(Path::Blackhole),
        1 => Just(Path::Unreachable),
        1 => Just(Path::Prohibit),
        1 => Just(Path::Throw),
    ]
}

fn routes() -> impl Strategy<Value = Routes> {
    prop::collection::vec((any::<u8>(), 0..=8_u8, paths()), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn sources_are_judged_as_a_list_of_routes_says(
        six: bool,
        special in routes(),
        main in routes(),
        packets in prop::collection::vec((any::<u8>(), any::<u8>()), 1..64),
        arrival in 0..3_u16,
    ) {
        let domain = Domain::new();
        let mut adjacencies = Adjacencies::new(&domain, 200, 1);
        for (device, number) in DEVICES.iter().zip(0..3) {
            adjacencies.bind(*device, Some(number));
        }
        let mut fibs = [Fib::new(&domain, 1 << 19, 100), Fib::new(&domain, 1 << 19, 100)];
        for (fib, routes) in fibs.iter_mut().zip([&special, &main]) {
            for (last, bits, path) in routes {
                set(fib, &mut adjacencies, source(six, *last), *bits, path);
            }
        }
        let onward = NextHop { interface: 11, gateway: Some(Ipv4Addr::new(10, 9, 9, 200).into()), weight: 1 };
        set(&mut fibs[1], &mut adjacencies, destination(six, 0), 0, &Path::NextHops(vec![onward]));
        adjacencies.resolve(11, Ipv4Addr::new(10, 9, 9, 200).into(), Some(MacAddr([2; 6])));
        // A rule for packets from the lower half of the destinations. Such packets are replies to the checked packets.
        let network = if six { 121 } else { 25 };
        let selector = Selector::ALL.from(destination(six, 0), network);
        let lookups = vec![
            // A rule that names an ingress interface does not match packets in the reverse direction.
            Lookup::say(Selector::ALL.interface(arrival).from(source(six, 0), 0).to(source(six, 0), network), Verdict::NoRoute),
            Lookup::table_for(selector, fibs[0].view()),
            Lookup::table_for(Selector::ALL, fibs[1].view()),
        ];
        let interface = |port| Some(Interface { port: PortId(port), mac: OWN, mtu: 1500, vrrp: false });
        let mut router = Router {
            interfaces: vec![interface(0), interface(1), interface(2)],
            four: lookups.clone(),
            six: lookups,
            adjacencies: adjacencies.view(),
            kernel: None,
            mirrored: Mirrored::default(),
            reverse_paths: Vec::new(),
            own_addresses: Arc::default(),
            errors: Errors::default(),
            punt_policer: Arc::new(PuntPolicer::new(|_| 1, 1, 0)),
            seed: 1,
        };
        let reader = domain.register().unwrap();
        let (mut keys, mut layers) = (Vec::<FlowKey>::new(), Vec::<Layers>::new());
        for (from, to) in &packets {
            let text = format!("eth_dst={OWN},ip_src={},ip_dst={},udp", source(six, *from), destination(six, *to));
            let frame = spec::parse(&text).unwrap();
            let mut key = FlowKey::default();
            layers.push(FlowKey::extract(&frame, frame.len(), PortId(arrival), &mut key).unwrap());
            keys.push(key);
        }
        let mut scratch = Scratch::default();
        let mut decide = |router: &Router| {
            let mut out = vec![Decision::default(); keys.len()];
            router.decide(arrival, &reader, &keys, &layers, &mut scratch, &mut out);
            out
        };
        let unasked = decide(&router);
        for asks in [ReversePath::Off, ReversePath::Strict, ReversePath::Loose] {
            router.reverse_paths = vec![ReversePath::Strict; 3];
            router.reverse_paths[usize::from(arrival)] = asks;
            let decided = decide(&router);
            for (((from, to), before), after) in packets.iter().zip(&unasked).zip(decided) {
                let tables = if *to < 128 { vec![&special, &main] } else { vec![&main] };
                let back = ways_back(&tables, *from);
                let accepted = match asks {
                    ReversePath::Off => true,
                    ReversePath::Strict => back.contains(&DEVICES[usize::from(arrival)]),
                    ReversePath::Loose => !back.is_empty(),
                };
                let wanted = if accepted { *before } else { Decision::Drop(DropReason::ReversePath) };
                prop_assert_eq!(after, wanted, "{:?} from {} to {}: back by {:?}", asks, from, to, back);
            }
        }
        // `reverse_route` reports the same routes.
        for ((from, to), key) in packets.iter().zip(&keys) {
            let tables = if *to < 128 { vec![&special, &main] } else { vec![&main] };
            let back = ways_back(&tables, *from);
            let told = match router.reverse_route(arrival, &reader, key) {
                ReverseRoute::None => back.is_empty(),
                ReverseRoute::Port(PortId(port)) => back.contains(&DEVICES[usize::from(port)]),
                ReverseRoute::Elsewhere => back.contains(&13),
            };
            prop_assert!(told, "from {from} to {to}: back by {back:?}");
        }
    }
}

/// Packets to multicast groups and packets from link-local sources are left to the kernel. Packets to this host are
/// checked. Packets that are punted because only the kernel implements their route are also checked, although they have
/// the same verdict as packets to this host.
#[test]
fn packets_to_this_host_are_checked_and_packets_from_the_link_are_not() {
    let domain = Domain::new();
    let mut adjacencies = Adjacencies::new(&domain, 10, 1);
    let mut fib = Fib::new(&domain, 1 << 19, 10);
    fib.set4(Prefix::new(0x0a00_0101, 32), &Path::Local, &mut adjacencies).unwrap();
    adjacencies.bind(11, Some(0));
    let link = Path::NextHops(vec![NextHop { interface: 11, gateway: None, weight: 1 }]);
    fib.set4(Prefix::new(0x0a00_0100, 24), &link, &mut adjacencies).unwrap();
    let six = |text: &str| u128::from(text.parse::<Ipv6Addr>().unwrap());
    fib.set6(Prefix::new(six("2001:db8::1"), 128), &Path::Local, &mut adjacencies).unwrap();
    fib.set6(Prefix::new(six("2001:db8::"), 64), &link, &mut adjacencies).unwrap();
    let lookups = vec![Lookup::table_for(Selector::ALL, fib.view())];
    let router = Router {
        interfaces: vec![Some(Interface { port: PortId(0), mac: OWN, mtu: 1500, vrrp: false })],
        four: lookups.clone(),
        six: lookups,
        adjacencies: adjacencies.view(),
        kernel: None,
        mirrored: Mirrored::default(),
        reverse_paths: vec![ReversePath::Strict],
        own_addresses: Arc::default(),
        errors: Errors::default(),
        punt_policer: Arc::new(PuntPolicer::new(|_| 1, 1, 0)),
        seed: 1,
    };
    let reader = domain.register().unwrap();
    for (text, wanted) in [
        ("ip_src=192.0.2.1,ip_dst=10.0.1.1,udp", Decision::Drop(DropReason::ReversePath)),
        ("ip_src=192.0.2.1,ip_dst=10.0.1.1,udp,ttl=1", Decision::Drop(DropReason::ReversePath)),
        ("ip_src=10.0.1.9,ip_dst=10.0.1.1,udp", Decision::Punt(Punt::Own)),
        ("ip_src=0.0.0.0,ip_dst=10.0.1.1,udp,udp_dst=67", Decision::Drop(DropReason::MartianSource)),
        ("ip_src=2001:db8:9::9,ip_dst=2001:db8::1,udp", Decision::Drop(DropReason::ReversePath)),
        ("ip_src=2001:db8:9::9,ip_dst=fe80::1,udp", Decision::Drop(DropReason::ReversePath)),
        ("ip_src=2001:db8::9,ip_dst=2001:db8::1,udp", Decision::Punt(Punt::Own)),
        ("ip_src=2001:db8::9,ip_dst=fe80::1,udp", Decision::Punt(Punt::Scope)),
        // Neighbour discovery is valid with any address of the sender.
        ("ip_src=2001:db8:9::9,ip_dst=2001:db8::1,icmpv6,icmp_type=135,ttl=255", Decision::Punt(Punt::Own)),
        (
            "ip_src=2001:db8:9::9,ip_dst=2001:db8::1,icmpv6,icmp_type=135,ttl=254",
            Decision::Drop(DropReason::ReversePath),
        ),
        (
            "ip_src=2001:db8:9::9,ip_dst=2001:db8::1,icmpv6,icmp_type=128,ttl=255",
            Decision::Drop(DropReason::ReversePath),
        ),
        ("ip_src=192.0.2.1,ip_dst=10.0.1.2,udp", Decision::Drop(DropReason::ReversePath)),
        ("ip_src=192.0.2.1,ip_dst=10.0.1.2,udp,ttl=1", Decision::Drop(DropReason::ReversePath)),
        // DHCP (RFC 2131, 4.1).
        ("ip_src=0.0.0.0,ip_dst=255.255.255.255,udp,udp_dst=67", Decision::Punt(Punt::Group)),
        ("ip_src=192.0.2.1,ip_dst=224.0.0.5,udp", Decision::Punt(Punt::Group)),
        ("ip_src=0.0.0.0,ip_dst=10.0.1.2,udp", Decision::Drop(DropReason::MartianSource)),
        ("ip_src=fe80::9,ip_dst=2001:db8::1,udp", Decision::Punt(Punt::Scope)),
        ("ip_src=::,ip_dst=ff02::1,udp", Decision::Drop(DropReason::MartianSource)),
        ("ip_src=2001:db8:9::9,ip_dst=2001:db8:1::1,udp", Decision::Drop(DropReason::ReversePath)),
        ("arp", Decision::Punt(Punt::NotIp)),
        // The kernel receives unicast packets at group addresses of the link, too. It does not forward them.
        (
            "eth_dst=ff:ff:ff:ff:ff:ff,ip_src=192.0.2.1,ip_dst=10.0.1.1,udp",
            Decision::Drop(DropReason::ReversePath),
        ),
        (
            "eth_dst=ff:ff:ff:ff:ff:ff,ip_src=192.0.2.1,ip_dst=10.0.1.9,udp",
            Decision::Drop(DropReason::ReversePath),
        ),
        ("eth_dst=ff:ff:ff:ff:ff:ff,ip_src=10.0.1.9,ip_dst=10.0.1.1,udp", Decision::Punt(Punt::Group)),
        ("eth_dst=ff:ff:ff:ff:ff:ff,ip_src=10.0.1.9,ip_dst=10.0.1.255,udp", Decision::Punt(Punt::Group)),
        (
            "eth_dst=ff:ff:ff:ff:ff:ff,ip_src=192.0.2.1,ip_dst=255.255.255.255,udp",
            Decision::Punt(Punt::Group),
        ),
        ("eth_dst=01:00:5e:00:00:05,ip_src=192.0.2.1,ip_dst=224.0.0.5,udp", Decision::Punt(Punt::Group)),
        (
            "eth_dst=ff:ff:ff:ff:ff:ff,ip_src=0.0.0.0,ip_dst=10.0.1.1,udp,udp_dst=67",
            Decision::Punt(Punt::Group),
        ),
        (
            "eth_dst=33:33:00:00:00:01,ip_src=2001:db8:9::9,ip_dst=2001:db8::1,udp",
            Decision::Drop(DropReason::ReversePath),
        ),
        ("eth_dst=33:33:00:00:00:01,ip_src=2001:db8::9,ip_dst=2001:db8::1,udp", Decision::Punt(Punt::Group)),
        ("eth_dst=33:33:00:00:00:01,ip_src=fe80::9,ip_dst=2001:db8::1,udp", Decision::Punt(Punt::Group)),
        ("eth_dst=33:33:00:00:00:01,ip_src=2001:db8:9::9,ip_dst=ff02::1,udp", Decision::Punt(Punt::Group)),
        ("eth_dst=ff:ff:ff:ff:ff:ff,arp", Decision::Punt(Punt::Group)),
        ("eth_dst=01:80:c2:00:00:0e,eth_type=0x88cc", Decision::Punt(Punt::Group)),
    ] {
        let own = if text.starts_with("eth_dst=") { String::new() } else { format!("eth_dst={OWN},") };
        let frame = spec::parse(&format!("{own}{text}")).unwrap();
        let (mut key, mut out) = (FlowKey::default(), [Decision::default()]);
        let layers = FlowKey::extract(&frame, frame.len(), PortId(0), &mut key).unwrap();
        router.decide(0, &reader, &[key], &[layers], &mut Scratch::default(), &mut out);
        assert_eq!(out, [wanted], "{text}");
    }
    // Only the first bytes of these headers are in the first segment. The kernel would read the rest from the next
    // segments.
    for (text, head, reason) in [
        ("ip_src=192.0.2.1,ip_dst=10.0.1.1,udp", 33, DropReason::Ipv4Truncated),
        ("ip_src=2001:db8:9::9,ip_dst=2001:db8::1,udp", 53, DropReason::Ipv6Truncated),
    ] {
        let frame = spec::parse(&format!("eth_dst=33:33:00:00:00:01,{text}")).unwrap();
        let (mut key, mut out) = (FlowKey::default(), [Decision::default()]);
        let layers = FlowKey::extract(&frame[..head], frame.len(), PortId(0), &mut key).unwrap();
        router.decide(0, &reader, &[key], &[layers], &mut Scratch::default(), &mut out);
        assert_eq!(out, [Decision::Drop(reason)], "{text}");
    }
}
