//! Tests of the engine as a router over in-memory ports: the output packets, the packets punted to the kernel
//! with their reasons, and the conservation of packets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod icmp_errors;
mod vlans;

use std::net::IpAddr;
use std::sync::Arc;

use common::Rig;
use engine::{EngineConfig, Function};
use lookup::Prefix;
use packet::ipv4::Ipv4;
use packet::record::Step;
use packet::{DropReason, MacAddr, PortId, PuntClass, VlanId, VlanTags, spec};
use proptest::prelude::*;
use router::{
    Adjacencies, Errors, Fib, Interface, Kernel, Lookup, Mirrored, NextHop, Path, Punt, PuntPolicer, Router,
    Selector, Verdict,
};

/// Ports 0 and 1 are router interfaces. Port 2 is the punt TAP.
const PORTS: [PortId; 3] = [PortId(0), PortId(1), PortId(2)];
const INTO_KERNEL: MacAddr = MacAddr([2, 0, 0, 0, 9, 9]);

fn own(port: u16) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, port.to_le_bytes()[0]])
}

fn neighbour(last: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 2, last])
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn hop(device: u32, gateway: Option<&str>) -> NextHop {
    NextHop { interface: device, gateway: gateway.map(ip), weight: 1 }
}

/// Tables of a router. The devices with the interface indices 10 and 11 are ports 0 and 1 of the router. The device
/// with the index 12 does not belong to the router.
struct Tables {
    fib: Fib,
    adjacencies: Adjacencies,
    punt_policer: Arc<PuntPolicer>,
}

impl Tables {
    fn new(config: &EngineConfig) -> Tables {
        let domain = &config.domain;
        let mut tables = Tables {
            fib: Fib::new(domain, 1 << 19, 100),
            adjacencies: Adjacencies::new(domain, 100, 1),
            punt_policer: Arc::new(PuntPolicer::new(|_| 1_000_000, 1, 0)),
        };
        tables.adjacencies.bind(10, Some(0));
        tables.adjacencies.bind(11, Some(1));
        for (prefix, path) in [
            ("10.0.0.0/24", Path::NextHops(vec![hop(10, None)])),
            ("10.0.1.0/24", Path::NextHops(vec![hop(11, None)])),
            ("10.0.1.1/32", Path::Local),
            ("20.0.0.0/8", Path::NextHops(vec![hop(11, Some("10.0.1.2"))])),
            ("20.1.0.0/16", Path::NextHops(vec![hop(11, Some("2001:db8:1::2"))])),
            ("20.2.0.0/16", Path::Blackhole),
            ("20.3.0.0/16", Path::Unreachable),
            ("20.4.0.0/16", Path::Prohibit),
            ("20.5.0.0/16", Path::NextHops(vec![hop(12, Some("10.0.3.2"))])),
            ("20.6.0.0/16", Path::NextHops(vec![hop(11, Some("10.0.1.99"))])),
            ("20.7.0.0/16", Path::NextHops((2..6).map(|n| hop(11, Some(&format!("10.0.1.{n}")))).collect())),
            ("2001:db8:1::/64", Path::NextHops(vec![hop(11, None)])),
            ("2001:db8:ff::/48", Path::NextHops(vec![hop(11, Some("fe80::2"))])),
        ] {
            let (address, length) = prefix.split_once('/').unwrap();
            tables.set(ip(address), length.parse().unwrap(), &path);
        }
        for (device, address, last) in [
            (10, "10.0.0.2", 1),
            (11, "10.0.1.2", 2),
            (11, "10.0.1.3", 3),
            (11, "10.0.1.4", 4),
            (11, "10.0.1.5", 5),
            (11, "2001:db8:1::2", 6),
            (11, "fe80::2", 7),
            (12, "10.0.3.2", 8),
        ] {
            tables.adjacencies.resolve(device, ip(address), Some(neighbour(last)));
        }
        tables
    }

    fn set(&mut self, address: IpAddr, length: u8, path: &Path) {
        let Tables { fib, adjacencies, .. } = self;
        match address {
            IpAddr::V4(a) => fib.set4(Prefix::new(a.to_bits(), length), path, adjacencies).unwrap(),
            IpAddr::V6(a) => fib.set6(Prefix::new(a.to_bits(), length), path, adjacencies).unwrap(),
        }
    }

    fn router(&self) -> Router {
        let interface =
            |port: u16, mtu| Some(Interface { port: PortId(port), mac: own(port), mtu, vrrp: false });
        Router {
            interfaces: vec![interface(0, 1500), interface(1, 1400)],
            four: vec![Lookup::table_for(Selector::ALL, self.fib.view())],
            six: vec![Lookup::table_for(Selector::ALL, self.fib.view())],
            adjacencies: self.adjacencies.view(),
            kernel: Some(Kernel { port: PORTS[2], mac: INTO_KERNEL }),
            mirrored: Mirrored::default(),
            reverse_paths: Vec::new(),
            own_addresses: Arc::default(),
            errors: Errors::default(),
            punt_policer: Arc::clone(&self.punt_policer),
            seed: 7,
        }
    }
}

fn rig(config: &EngineConfig, router: Router) -> Rig {
    let router = Arc::new(router);
    Rig::with(config, &PORTS, |port| match port {
        PortId(2) => Function::None,
        PortId(interface) => Function::Router(Arc::clone(&router), interface),
    })
}

fn frame(text: &str) -> Vec<u8> {
    spec::parse(&format!("eth_dst={},{text}", own(0))).unwrap()
}

/// Sends one packet to port 0 and returns all output frames.
fn through(rig: &mut Rig, frame: &[u8]) -> Vec<(PortId, Vec<u8>)> {
    rig.send(0, frame);
    rig.round();
    rig.outputs()
}

/// Sends a frame to a port and returns the output frames. Checks that these are the frames that `explain` predicts.
fn told_and_done(rig: &mut Rig, port: u16, bytes: &[u8]) -> Vec<(PortId, Vec<u8>)> {
    rig.send(port, bytes);
    rig.round();
    let out = rig.outputs();
    let explained = rig.worker.while_offline(|| rig.engine.explain(PortId(port), bytes));
    assert_eq!(explained.outputs, out, "{bytes:02x?}");
    out
}

fn length_of(frame: &[u8]) -> usize {
    let be16 = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    if frame[12..14] == [0x08, 0] { be16(16) } else { 40 + be16(18) }
}

/// Returns the packet that the router must send to the MAC address `to` after the packet in `frame` has arrived (RFC
/// 1812, 5.3.1, and RFC 8200, 3), without padding.
fn routed(frame: &[u8], to: MacAddr) -> Vec<u8> {
    let mut wanted = frame[..14 + length_of(frame)].to_vec();
    wanted[..6].copy_from_slice(&to.0);
    wanted[6..12].copy_from_slice(&own(1).0);
    if wanted[12..14] == [0x08, 0] {
        wanted[22] -= 1;
        wanted[24..26].fill(0);
        let sum = packet::checksum::ipv4_header(&wanted[14..34]);
        wanted[24..26].copy_from_slice(&sum.to_be_bytes());
    } else {
        wanted[21] -= 1;
    }
    wanted
}

#[test]
fn routes_lead_to_neighbours() {
    let config = EngineConfig::default();
    let tables = Tables::new(&config);
    let mut rig = rig(&config, tables.router());
    for (text, to) in [
        ("ip_dst=10.0.1.2,udp", 2),
        ("ip_dst=10.0.1.3,tcp,ttl=2", 3),
        ("ip_dst=20.9.9.9,udp,len=1000", 2),
        // The next hop is an IPv6 neighbor (RFC 8950).
        ("ip_dst=20.1.0.1,icmp", 6),
        // A fragment, and an unknown protocol.
        ("ip_dst=20.9.9.9,udp,frag=later", 2),
        ("ip_dst=20.9.9.9,proto=99", 2),
        ("ip_src=2001:db8::9,ip_dst=2001:db8:1::2,udp", 6),
        ("ip_src=2001:db8::9,ip_dst=2001:db8:ff:1::1,tcp,ttl=2", 7),
        // Linux treats class E addresses like any other addresses.
        ("ip_src=240.0.0.1,ip_dst=20.9.9.9,udp", 2),
    ] {
        let frame = frame(text);
        assert_eq!(through(&mut rig, &frame), [(PORTS[1], routed(&frame, neighbour(to)))], "{text}");
        let explained = rig.worker.while_offline(|| rig.engine.explain(PORTS[0], &frame));
        assert_eq!(explained.outputs, [(PORTS[1], routed(&frame, neighbour(to)))], "{text}");
        assert!(explained.steps.contains(&Step::Routed { port: PORTS[1], to: neighbour(to) }), "{text}");
    }
    rig.assert_accounted();
    let packets: u64 = tables.adjacencies.iter().map(|adjacency| adjacency.packets).sum();
    assert_eq!((packets, rig.totals()[1].tx_packets), (9, 9), "explain counts nothing");
    let bytes: u64 = tables.adjacencies.iter().map(|adjacency| adjacency.bytes).sum();
    assert_eq!(bytes, rig.totals()[1].tx_bytes);
}

#[test]
fn what_needs_more_is_the_kernels_as_it_came() {
    let config = EngineConfig::default();
    let tables = Tables::new(&config);
    let mut rig = rig(&config, tables.router());
    let with_options = {
        let mut bytes = frame("ip_dst=20.9.9.9,udp,len=80");
        bytes[14] = 0x46;
        bytes.splice(34..34, [1, 1, 1, 0]);
        let total = u16::from_be_bytes([bytes[16], bytes[17]]) + 4;
        bytes[16..18].copy_from_slice(&total.to_be_bytes());
        bytes
    };
    let hop_by_hop = {
        let mut bytes = frame("ip_src=2001:db8::9,ip_dst=2001:db8:1::2,udp,len=100");
        let next = std::mem::replace(&mut bytes[20], 0);
        bytes.splice(54..54, [next, 0, 5, 2, 0, 0, 1, 0]);
        let length = u16::from_be_bytes([bytes[18], bytes[19]]) + 8;
        bytes[18..20].copy_from_slice(&length.to_be_bytes());
        bytes
    };
    let cases = [
        (frame("arp,arp_tpa=10.0.0.1"), Punt::NotIp),
        (frame("vlan=7,ip_dst=20.9.9.9,udp"), Punt::NotIp),
        (frame("eth_type=0x88cc"), Punt::NotIp),
        (frame("ip_dst=224.0.0.5,udp"), Punt::Group),
        (frame("ip_dst=255.255.255.255,udp"), Punt::Group),
        (frame("ip_src=2001:db8::9,ip_dst=ff02::5,udp"), Punt::Group),
        (spec::parse("arp,arp_tpa=10.0.0.1").unwrap(), Punt::Group),
        (frame("ip_dst=10.0.1.1,tcp"), Punt::Own),
        (frame("ip_dst=20.9.9.9,udp,ttl=1"), Punt::Expired),
        (frame("ip_dst=20.9.9.9,udp,ttl=0"), Punt::Expired),
        (frame("ip_src=2001:db8::9,ip_dst=2001:db8:1::2,udp,ttl=1"), Punt::Expired),
        (frame("ip_dst=30.0.0.1,udp"), Punt::NoRoute),
        (frame("ip_dst=20.3.0.1,udp"), Punt::NoRoute),
        (frame("ip_dst=20.4.0.1,udp"), Punt::NoRoute),
        (frame("ip_src=2001:db8::9,ip_dst=2001:db8:2::2,udp"), Punt::NoRoute),
        (frame("ip_dst=10.0.1.77,udp"), Punt::Unresolved),
        (frame("ip_dst=20.6.0.1,udp"), Punt::Unresolved),
        (frame("ip_dst=20.9.9.9,udp,len=1415"), Punt::TooLong),
        (frame("ip_src=2001:db8::9,ip_dst=2001:db8:1::2,udp,len=1415"), Punt::TooLong),
        (with_options, Punt::Options),
        (hop_by_hop, Punt::Options),
        (frame("ip_src=fe80::9,ip_dst=2001:db8:1::2,udp"), Punt::Scope),
        (frame("ip_src=2001:db8::9,ip_dst=fe80::2,udp"), Punt::Scope),
        (frame("ip_dst=20.5.0.1,udp"), Punt::Elsewhere),
    ];
    for (frame, why) in &cases {
        let class = router::class(*why, frame, frame.len());
        let before = tables.punt_policer.counted(class);
        let mut wanted = frame.clone();
        if wanted[0] & 1 == 0 {
            wanted[..6].copy_from_slice(&INTO_KERNEL.0);
        }
        assert_eq!(through(&mut rig, frame), [(PORTS[2], wanted)], "{why:?} {frame:02x?}");
        assert_eq!(tables.punt_policer.counted(class), (before.0 + 1, before.1), "{why:?}");
        let explained = rig.worker.while_offline(|| rig.engine.explain(PORTS[0], frame));
        assert!(
            explained.steps.contains(&Step::ToKernel { why: why.explain() }),
            "{why:?}: {:?}",
            explained.steps
        );
        assert_eq!(tables.punt_policer.counted(class), (before.0 + 1, before.1), "{why:?}: explained only");
    }
    // `NotRouted` has a separate test.
    let has_case = |why: &Punt| *why == Punt::NotRouted || cases.iter().any(|(_, case)| case == why);
    assert!(Punt::ALL.iter().all(has_case), "each reason has a case");
    rig.assert_accounted();
    // The packets have the maximum length.
    for text in ["ip_dst=20.9.9.9,udp,len=1414", "ip_src=2001:db8::9,ip_dst=2001:db8:1::2,udp,len=1414"] {
        assert_eq!(through(&mut rig, &frame(text))[0].0, PORTS[1], "{text}");
    }
}

/// Checks that bytes after the IP packet are removed, as Linux does (`ip_rcv`, `ip6_rcv_core`). With these
/// bytes, the frame could exceed the MTU of the output.
#[test]
fn what_stands_behind_a_packet_does_not_leave_with_it() {
    let config = EngineConfig::default();
    let tables = Tables::new(&config);
    let mut rig = rig(&config, tables.router());
    for (text, to) in
        [("ip_dst=20.9.9.9,udp,len=90", 2), ("ip_src=2001:db8::9,ip_dst=2001:db8:1::2,udp,len=90", 6)]
    {
        let frame = frame(text);
        for behind in [1, 6, 1400] {
            let padded = [frame.clone(), vec![0xee; behind]].concat();
            let wanted = [(PORTS[1], routed(&frame, neighbour(to)))];
            assert_eq!(through(&mut rig, &padded), wanted, "{text} and {behind} octets");
        }
    }
    rig.assert_accounted();
}

#[test]
fn drops_have_their_reasons() {
    let config = EngineConfig::default();
    let tables = Tables::new(&config);
    let mut rig = rig(&config, tables.router());
    let mut broken = frame("ip_dst=20.9.9.9,udp");
    broken[25] ^= 1;
    let mut short = frame("ip_dst=20.9.9.9,udp");
    short[16..18].copy_from_slice(&1500_u16.to_be_bytes());
    for (frame, reason) in [
        (spec::parse("eth_dst=02:00:00:00:00:77,ip_dst=20.9.9.9,udp").unwrap(), DropReason::NotForUs),
        (frame("ip_src=127.0.0.1,ip_dst=20.9.9.9,udp"), DropReason::MartianSource),
        (frame("ip_src=0.0.0.0,ip_dst=20.9.9.9,udp"), DropReason::MartianSource),
        (frame("ip_src=224.0.0.1,ip_dst=20.9.9.9,udp"), DropReason::MartianSource),
        (frame("ip_src=::,ip_dst=2001:db8:1::2,udp"), DropReason::MartianSource),
        (frame("ip_src=::1,ip_dst=2001:db8:1::2,udp"), DropReason::MartianSource),
        (frame("ip_src=ff02::1,ip_dst=2001:db8:1::2,udp"), DropReason::MartianSource),
        (frame("ip_src=::ffff:10.0.0.1,ip_dst=2001:db8:1::2,udp"), DropReason::MartianSource),
        (frame("ip_dst=127.0.0.1,udp"), DropReason::MartianDestination),
        (frame("ip_dst=0.1.2.3,udp"), DropReason::MartianDestination),
        (frame("ip_src=2001:db8::9,ip_dst=::1,udp"), DropReason::MartianDestination),
        (frame("ip_dst=20.2.0.1,udp"), DropReason::RouteBlackhole),
        (broken, DropReason::Ipv4BadChecksum),
        (short, DropReason::Ipv4BadLength),
    ] {
        let before = rig.dropped()[reason.index()];
        assert_eq!(through(&mut rig, &frame), [], "{reason}");
        assert_eq!(rig.dropped()[reason.index()], before + 1, "{reason}");
        let explained = rig.worker.while_offline(|| rig.engine.explain(PORTS[0], &frame));
        assert!(explained.steps.contains(&Step::Dropped(reason)), "{reason}: {:?}", explained.steps);
    }
    rig.assert_accounted();
}

/// Checks that an interface with VRRP accepts packets of an address family only to the virtual MAC addresses of this
/// family, and that an interface without VRRP accepts no packets to such addresses (RFC 9568, 7.3).
#[test]
fn vrrp_addresses_of_the_other_family_are_not_ours() {
    let config = EngineConfig::default();
    let tables = Tables::new(&config);
    let mut with_vrrp = tables.router();
    with_vrrp.interfaces[0].as_mut().unwrap().vrrp = true;
    let packets = [("ip_dst=20.9.9.9,udp", 2), ("ip_src=2001:db8::9,ip_dst=2001:db8:1::2,udp", 6)];
    let stations = ["00:00:5e:00:01:07", "00:00:5e:00:02:07", "00:00:5e:00:03:07"];
    for (router, has_vrrp) in [(with_vrrp, true), (tables.router(), false)] {
        let mut rig = rig(&config, router);
        for (family, (text, to)) in packets.into_iter().enumerate() {
            for (at, station) in stations.into_iter().enumerate() {
                let frame = spec::parse(&format!("eth_dst={station},{text}")).unwrap();
                let before = rig.dropped()[DropReason::NotForUs.index()];
                let is_ours = has_vrrp && at == family;
                let expected =
                    if is_ours { vec![(PORTS[1], routed(&frame, neighbour(to)))] } else { Vec::new() };
                assert_eq!(through(&mut rig, &frame), expected, "{station},{text}");
                let dropped = rig.dropped()[DropReason::NotForUs.index()] - before;
                assert_eq!(dropped, u64::from(!is_ours), "{station},{text}");
            }
        }
        rig.assert_accounted();
    }
}

/// Checks that a packet to another host is not forwarded if its source is an address of this host or a broadcast
/// address of a link.
#[test]
fn nothing_comes_from_addresses_of_this_host() {
    let config = EngineConfig::default();
    let tables = Tables::new(&config);
    let own = ["10.0.0.1", "10.0.1.1", "10.0.1.255"];
    let own_addresses = Arc::new(own_addresses(&own));
    let mut rig = rig(&config, Router { own_addresses: Arc::clone(&own_addresses), ..tables.router() });
    for source in own {
        for more in ["udp", "udp,ttl=1", "tcp,frag=first", "icmp,icmp_type=8"] {
            let frame = frame(&format!("ip_src={source},ip_dst=20.9.9.9,{more}"));
            let before = rig.dropped()[DropReason::MartianSource.index()];
            assert_eq!(through(&mut rig, &frame), [], "{source}, {more}");
            assert_eq!(rig.dropped()[DropReason::MartianSource.index()], before + 1, "{source}, {more}");
            let explained = rig.worker.while_offline(|| rig.engine.explain(PORTS[0], &frame));
            assert!(explained.steps.contains(&Step::Dropped(DropReason::MartianSource)), "{explained:?}");
        }
    }
    // The filter rejects nearly all other addresses without a list lookup. These addresses pass the filter
    // and are looked up in the list.
    let others = (0..=u16::MAX).map(|low| {
        let [high, low] = low.to_be_bytes();
        std::net::Ipv4Addr::new(10, 7, high, low)
    });
    let others: Vec<_> = others.filter(|source| own_addresses.may_hold(source.to_bits())).take(4).collect();
    assert_eq!(others.len(), 4);
    for source in others {
        let frame = frame(&format!("ip_src={source},ip_dst=20.9.9.9,udp"));
        assert_eq!(through(&mut rig, &frame), [(PORTS[1], routed(&frame, neighbour(2)))], "{source}");
    }
    rig.assert_accounted();
}

fn own_addresses(own: &[&str]) -> router::OwnAddresses {
    own.iter().map(|address| address.parse::<std::net::Ipv4Addr>().unwrap()).collect()
}

/// Checks packets that arrive on an interface for which forwarding is disabled. If the interface has no mirror device
/// in the kernel, the worker drops the packet. If the interface has a mirror device, the worker punts the packet to the
/// kernel, because a local process may need the packet.
#[test]
fn where_nothing_is_routed_the_kernel_has_what_comes_in_by_a_tap() {
    let config = EngineConfig::default();
    let tables = Tables::new(&config);
    let off = |mirrored| {
        let mut router = Router { mirrored, ..tables.router() };
        let nothing = Lookup::say(Selector::ALL.interface(0), router::Verdict::NotForwarding);
        router.four.insert(0, nothing);
        rig(&config, router)
    };
    let frame = frame("ip_dst=10.0.1.2,udp");
    let mut hooked = off(Mirrored::default());
    assert_eq!(told_and_done(&mut hooked, 0, &frame), []);
    assert_eq!(hooked.dropped()[DropReason::ForwardingOff.index()], 1);
    hooked.assert_accounted();
    drop(hooked);
    let mut mirrored = Mirrored::default();
    mirrored.add_kernel(0, Kernel { port: PORTS[2], mac: INTO_KERNEL });
    let mut tap = off(mirrored);
    let [(to, given)] = &told_and_done(&mut tap, 0, &frame)[..] else { panic!("one packet") };
    assert_eq!((*to, &given[6..]), (PORTS[2], &frame[6..]));
    assert_eq!(tables.punt_policer.counted(PuntClass::NotRouted), (1, 0));
    let explained = tap.worker.while_offline(|| tap.engine.explain(PORTS[0], &frame));
    assert!(explained.steps.contains(&Step::ToKernel { why: Punt::NotRouted.explain() }), "{explained:?}");
    tap.assert_accounted();
}

#[test]
fn one_kind_of_punts_does_not_starve_another() {
    let config = EngineConfig::default();
    let mut tables = Tables::new(&config);
    tables.punt_policer = Arc::new(PuntPolicer::new(|_| 100, 1, engine::worker::monotonic().ns));
    let mut rig = rig(&config, tables.router());
    let mut out = 0;
    for _ in 0..500 {
        out += through(&mut rig, &frame("ip_dst=30.0.0.1,udp")).len();
    }
    assert!((64..200).contains(&out), "{out}");
    assert_eq!(tables.punt_policer.counted(PuntClass::NoRoute).1, 500 - out as u64);
    assert_eq!(rig.dropped()[DropReason::PuntLimit.index()], 500 - out as u64);
    assert_eq!(through(&mut rig, &frame("ip_dst=10.0.1.1,tcp")).len(), 1, "for this host");
    // Each link-local protocol has its own limit as well.
    let hello = frame("ip_dst=224.0.0.5,ip_proto=89");
    let hellos: usize = (0..500).map(|_| through(&mut rig, &hello).len()).sum();
    assert!((64..200).contains(&hellos), "{hellos}");
    for other in ["ip_dst=224.0.0.9,udp,dst_port=520", "ip_dst=10.0.1.1,udp,dst_port=3784", "arp"] {
        assert_eq!(through(&mut rig, &frame(other)).len(), 1, "{other}");
    }
    assert_eq!(tables.punt_policer.counted(PuntClass::Ospf), (hellos as u64, 500 - hellos as u64));
    assert_eq!(tables.punt_policer.counted(PuntClass::Rip), (1, 0));
    rig.assert_accounted();
    // Without a punt TAP, the drops have another reason than drops at a limit.
    drop(rig);
    let alone = Router { kernel: None, ..tables.router() };
    let mut rig = self::rig(&config, alone);
    assert_eq!(through(&mut rig, &frame("ip_dst=10.0.1.1,tcp")), []);
    assert_eq!(rig.dropped()[DropReason::NoKernel.index()], 1);
}

#[test]
fn flows_share_ways_and_stay_on_them() {
    let config = EngineConfig::default();
    let mut tables = Tables::new(&config);
    let mut rig = rig(&config, tables.router());
    let towards = |rig: &mut Rig| -> Vec<MacAddr> {
        let flow = |port: u32| frame(&format!("ip_dst=20.7.0.1,udp,src_port={}", 1000 + port));
        let outputs = (0..400).flat_map(|port| through(rig, &flow(port)));
        outputs.map(|(_, bytes)| MacAddr(bytes[..6].try_into().unwrap())).collect()
    };
    let before = towards(&mut rig);
    for last in 2..6 {
        let share = before.iter().filter(|to| **to == neighbour(last)).count();
        assert!((60..140).contains(&share), "a quarter of 400: {share}");
    }
    assert_eq!(towards(&mut rig), before);
    // After the removal of one next hop, only its flows move, plus at most one in a hundred of the others.
    let fewer = Path::NextHops([2, 3, 5].map(|n| hop(11, Some(&format!("10.0.1.{n}")))).into());
    rig.worker.while_offline(|| tables.set(ip("20.7.0.0"), 16, &fewer));
    let after = towards(&mut rig);
    let moved = before.iter().zip(&after).filter(|(one, other)| one != other).count();
    let lost = before.iter().filter(|to| **to == neighbour(4)).count();
    assert!(lost <= moved && moved <= lost + 4, "{moved} of {lost}");
    // A neighbor's new address is one write for all routes that use the neighbor.
    rig.worker.while_offline(|| tables.adjacencies.resolve(11, ip("10.0.1.2"), Some(neighbour(99))));
    let renamed: Vec<MacAddr> =
        after.iter().map(|to| if *to == neighbour(2) { neighbour(99) } else { *to }).collect();
    assert_eq!(towards(&mut rig), renamed);
    // All fragments of a packet use one next hop, regardless of their ports.
    let fragment = |which| frame(&format!("ip_dst=20.7.0.1,udp,src_port=5,frag={which}"));
    let next_hops = ["first", "later"].map(|which| through(&mut rig, &fragment(which))[0].1[..6].to_vec());
    assert_eq!(next_hops[0], next_hops[1]);
}

/// Checks that the packets of a burst that contains packets of all kinds are processed as if each of them arrived
/// alone, and that each port transmits its packets in order.
#[test]
fn a_mixed_burst_keeps_its_order() {
    let config = EngineConfig::default();
    let tables = Tables::new(&config);
    let mut rig = rig(&config, tables.router());
    let kinds = [
        "ip_dst=20.9.9.9,udp",
        "ip_src=2001:db8::9,ip_dst=2001:db8:1::2,udp",
        "ip_dst=20.9.9.9,udp,ttl=1",
        "arp,arp_tpa=10.0.0.1",
        "ip_dst=20.7.0.1,udp",
        "ip_src=fd00::9,ip_dst=2001:db8:ff:1::1,tcp",
        "ip_dst=20.2.0.1,udp",
        "ip_src=2001:db8::9,ip_dst=2001:db8:1::2,udp,ttl=1",
        "ip_src=240.0.0.1,ip_dst=20.9.9.9,udp",
    ];
    let frames: Vec<Vec<u8>> = (0..120)
        .map(|nth: usize| {
            let mut frame = frame(&format!("{},len=100", kinds[nth * nth % 7 + nth % 3]));
            frame[99] = nth.to_le_bytes()[0];
            frame
        })
        .collect();
    let alone: Vec<_> = frames.iter().flat_map(|frame| through(&mut rig, frame)).collect();
    frames.iter().for_each(|frame| rig.send(0, frame));
    rig.round();
    let together = rig.outputs();
    for port in PORTS {
        let of = |all: &[(PortId, Vec<u8>)]| -> Vec<Vec<u8>> {
            all.iter().filter(|(out, _)| *out == port).map(|(_, bytes)| bytes.clone()).collect()
        };
        assert_eq!(of(&together), of(&alone), "port {port}");
    }
    assert!(together.iter().filter(|(out, _)| *out == PORTS[1]).count() > 40);
    rig.assert_accounted();
}

#[test]
fn rules_choose_tables() {
    let config = EngineConfig::default();
    let tables = Tables::new(&config);
    let mut other = Tables::new(&config);
    other.set(ip("20.0.0.0"), 8, &Path::NextHops(vec![hop(11, Some("10.0.1.3"))]));
    other.set(ip("20.10.0.0"), 16, &Path::Throw);
    // The tables of one router share one list of neighbors. This table was created like the first one.
    let selector = Selector::ALL.from(ip("10.9.0.0"), 16);
    let lookups = vec![
        Lookup::say(Selector::ALL.tos(0x20), Verdict::Blackhole),
        Lookup::say(Selector::ALL.interface(1), Verdict::Blackhole),
        Lookup::table_for(selector, other.fib.view()),
        Lookup::table_for(Selector::ALL.to(ip("20.0.0.0"), 8), tables.fib.view()),
    ];
    let mut rig =
        rig(&config, Router { four: lookups, adjacencies: other.adjacencies.view(), ..tables.router() });
    let to = |rig: &mut Rig, text: &str| -> Option<MacAddr> {
        let out = through(rig, &frame(text));
        let (port, bytes) = out.first()?;
        (*port == PORTS[1]).then(|| MacAddr(bytes[..6].try_into().unwrap()))
    };
    assert_eq!(to(&mut rig, "ip_src=10.9.1.1,ip_dst=20.9.0.1,udp"), Some(neighbour(3)));
    assert_eq!(to(&mut rig, "ip_src=10.8.1.1,ip_dst=20.9.0.1,udp"), Some(neighbour(2)));
    assert_eq!(to(&mut rig, "ip_src=10.9.1.1,ip_dst=20.10.0.1,udp"), Some(neighbour(2)), "the next table");
    assert_eq!(to(&mut rig, "ip_src=10.9.1.1,ip_dst=20.9.0.1,udp,tos=0x20"), None, "by its service");
    assert_eq!(to(&mut rig, "ip_src=10.8.1.1,ip_dst=10.0.1.2,udp"), None, "no rule is for it");
    // One burst contains all of these packets, in order.
    let sources = ["10.9.1.1", "10.8.1.1", "10.9.1.1", "10.8.1.1", "10.9.1.2"];
    for source in sources {
        rig.send(0, &frame(&format!("ip_src={source},ip_dst=20.9.0.1,udp")));
    }
    rig.round();
    let seen: Vec<MacAddr> =
        rig.outputs().into_iter().map(|(_, bytes)| MacAddr(bytes[..6].try_into().unwrap())).collect();
    assert_eq!(seen, [3, 2, 3, 2, 3].map(neighbour));
    rig.assert_accounted();
}

proptest! {
    /// Sends arbitrary frames. Checks that each frame is either transmitted or counted as dropped, and that a forwarded
    /// packet has a decremented hop limit and a valid checksum.
    #[test]
    fn no_frame_is_lost_without_a_reason(
        base in prop_oneof![
            Just("ip_dst=20.9.9.9,udp,len=90"),
            Just("ip_dst=10.0.1.2,tcp,len=90"),
            Just("ip_src=2001:db8::9,ip_dst=2001:db8:1::2,udp,len=110"),
        ],
        changes in proptest::collection::vec((12_usize..80, any::<u8>()), 0..4),
        cut in 0_usize..30,
    ) {
        let mut bytes = frame(base);
        for (at, value) in changes {
            bytes[at] = value;
        }
        bytes.truncate(bytes.len() - cut);
        let config = EngineConfig::default();
        let tables = Tables::new(&config);
        let mut rig = rig(&config, tables.router());
        let out = through(&mut rig, &bytes);
        rig.assert_accounted();
        prop_assert_eq!(out.len() + usize::try_from(rig.dropped().iter().sum::<u64>()).unwrap(), 1);
        // An explanation always extracts the flow key. The worker extracts it only for packets that are not
        // plain.
        let explained = rig.worker.while_offline(|| rig.engine.explain(PORTS[0], &bytes));
        prop_assert_eq!(&explained.outputs, &out);
        for (reason, dropped) in DropReason::ALL.iter().zip(rig.dropped()) {
            prop_assert_eq!(explained.steps.contains(&Step::Dropped(*reason)), dropped > 0, "{}", reason);
        }
        match out.first() {
            Some((PortId(1), sent)) => {
                prop_assert_eq!(sent.len(), 14 + length_of(&bytes));
                if sent[12..14] == [8, 0] {
                    let header = Ipv4::parse(&sent[14..]).unwrap();
                    prop_assert_eq!(sent[22], bytes[22] - 1);
                    prop_assert!(header.checksum_ok() && Ipv4::parse(&bytes[14..]).unwrap().checksum_ok());
                } else {
                    prop_assert_eq!(sent[21], bytes[21] - 1);
                }
            }
            Some((port, sent)) => prop_assert!(*port == PORTS[2] && sent[6..] == bytes[6..]),
            None => {}
        }
    }
}
