//! Tests of the rate limits for control traffic that the hook (XDP program) of a router's port passes to the kernel.
//! Hook and workers must assign packets to equal classes. Other tests send floods, and packets from known peers and
//! known neighbours.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;
#[path = "support/tables.rs"]
mod tables;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use packet::{FlowKey, PortId, PuntClass};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use support::config;
use support::router::{FAR, NEAR, ipv4, ipv6};
use tables::{ANSWER, Rig, hop, next_hops, tagged};
use xdp::route::{Own, PUNT_CLASSES, PuntLimits, PuntPeer, PuntRate, RoutePort, RouteStage};
use xdp::{Counter, Loaded, Owner, PortProgram, StageChange, Verdict, WhenDown};

/// Number of the router interface that receives the port's untagged frames.
const INTERFACE: u16 = 5;
const PORT: RoutePort = RoutePort { mac: NEAR[0], vrrp: false };

/// Frames to the router or to all hosts on its link. They include frames of every class of control packets, and frames
/// without a class.
const FRAMES: [&str; 33] = [
    "arp",
    "ip_dst=224.0.0.5,ip_proto=89",
    "ip_dst=10.0.1.1,ip_proto=89",
    "ip_src=fe80::1,ip_dst=ff02::5,ip_proto=89",
    "ip_dst=224.0.0.18,ip_proto=112",
    "ip_dst=224.0.0.9,udp,dst_port=520",
    "ip_src=fe80::1,ip_dst=ff02::9,udp,dst_port=521",
    "ip_dst=10.0.1.1,udp,dst_port=3784",
    "ip_dst=10.0.1.1,udp,dst_port=3785",
    "ip_dst=10.0.1.1,udp,dst_port=4784",
    "ip_dst=10.0.1.1,udp,dst_port=6784",
    "ip_dst=10.0.1.1,udp,src_port=3784,dst_port=9",
    "ip_dst=10.0.1.1,tcp,dst_port=179",
    "ip_dst=10.0.1.1,tcp,src_port=179",
    "ip_src=fd00:1::2,ip_dst=fd00:1::1,tcp,src_port=179",
    "ip_dst=10.0.1.1,tcp,dst_port=22",
    "ip_dst=255.255.255.255,udp,dst_port=67",
    "ip_dst=10.0.1.1,udp,dst_port=68",
    "ip_src=fe80::1,ip_dst=ff02::1:2,udp,dst_port=547",
    "ip_src=fe80::1,ip_dst=fd00:1::1,udp,dst_port=546",
    "ip_src=fe80::1,ip_dst=ff02::1,icmpv6,icmp_type=133",
    "ip_src=fe80::1,ip_dst=ff02::1,icmpv6,icmp_type=134",
    "ip_src=fe80::1,ip_dst=ff02::1,icmpv6,icmp_type=135",
    "ip_src=fe80::1,ip_dst=fd00:1::1,icmpv6,icmp_type=136",
    "ip_src=fe80::1,ip_dst=ff02::1,icmpv6,icmp_type=137",
    "ip_src=fe80::1,ip_dst=ff02::16,icmpv6,icmp_type=143",
    "ip_src=fe80::1,ip_dst=ff02::1,icmpv6,icmp_type=130",
    "ip_src=fe80::1,ip_dst=ff02::1,icmpv6,icmp_type=128",
    "ip_dst=224.0.0.22,ip_proto=2",
    "ip_src=fe80::1,ip_dst=ff02::16,ip_proto=2",
    "ip_dst=10.0.1.1,ip_proto=58",
    "ip_dst=10.0.1.1,icmp,icmp_type=8",
    "ip_dst=224.0.0.251,udp,dst_port=5353",
];

/// Counters of the frames to which the rate limits apply and that the hook passed to the kernel.
const LIMITED: [Counter; 4] =
    [Counter::PassedControl, Counter::PassedGroup, Counter::PassedLocal4, Counter::PassedLocal6];

/// Returns the frame that the description `text` specifies. A neighbour sends the frame to n1.
fn frame(text: &str) -> Vec<u8> {
    let mut frame = packet::spec::parse(text).unwrap();
    frame[..6].copy_from_slice(
        &if text.contains("ip_dst=ff") || text.contains("ip_dst=2") || text == "arp" {
            [0x33, 0x33, 0, 0, 0, 1]
        } else {
            NEAR[0]
        },
    );
    frame[6..12].copy_from_slice(&FAR[0]);
    frame
}

fn link(kind: [u8; 2], rest: [u8; 3]) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0, 0, 0x0e]);
    frame[6..12].copy_from_slice(&FAR[0]);
    frame[12..14].copy_from_slice(&kind);
    frame[14..17].copy_from_slice(&rest);
    frame
}

/// Returns link-layer frames of these protocols: LLDP, the slow protocols, IS-IS, another LLC protocol and an unknown
/// EtherType.
fn links() -> [Vec<u8>; 5] {
    [
        link([0x88, 0xcc], [0; 3]),
        link([0x88, 0x09], [1, 1, 0]),
        link([0, 46], [0xfe, 0xfe, 3]),
        link([0, 46], [0x42, 0x42, 3]),
        link([0x88, 0xb5], [0; 3]),
    ]
}

/// A program with rate limits, in a namespace without devices.
struct Port {
    limits: PuntLimits,
    loaded: Loaded,
    _own: Own,
}

impl Port {
    /// Loads a program that passes at most `packets` packets per second of each class.
    fn new(packets: u32) -> Port {
        let limits = limits(packets);
        let mut own = Own::new("blue").unwrap();
        own.replace_all(&["10.0.1.1", "fd00:1::1"].map(|address| address.parse().unwrap()).into()).unwrap();
        let stage = RouteStage::new(&PORT, &own).limited(&limits, INTERFACE);
        let loaded = PortProgram::load_routed(&config(Owner::Routed, WhenDown::Drop), &stage).unwrap();
        Port { limits, loaded, _own: own }
    }

    /// Returns the counter that the program increments for a frame, and the frame's class of control packets.
    fn see(&self, frame: &[u8]) -> (Counter, Option<PuntClass>) {
        seen(&self.limits, || {
            let before = self.loaded.counters().unwrap();
            let run = self.loaded.test_run(frame).unwrap();
            let after = self.loaded.counters().unwrap();
            let counter = Counter::ALL.into_iter().find(|c| after.get(*c) != before.get(*c)).unwrap();
            assert_eq!(
                run.verdict == Verdict::Drop,
                counter == Counter::RouteLimited || counter == Counter::DownDropped
            );
            counter
        })
    }

    fn passes(&self, frame: &[u8]) -> bool {
        self.loaded.test_run(frame).unwrap().verdict != Verdict::Drop
    }
}

fn limits(packets: u32) -> PuntLimits {
    let limits = PuntLimits::new().unwrap();
    let (burst, reserve) = router::punt_burst(packets);
    (0..PUNT_CLASSES).for_each(|class| limits.set_rate(class, PuntRate { packets, burst, reserve }));
    limits
}

/// Returns the counter that `see` returns, and the class of control packets whose count `see` changes.
fn seen(limits: &PuntLimits, see: impl FnOnce() -> Counter) -> (Counter, Option<PuntClass>) {
    let counts = || -> Vec<(u64, u64)> { (0..PUNT_CLASSES).map(|at| limits.counted(at).unwrap()).collect() };
    let before = counts();
    let counter = see();
    let after = counts();
    let mut moved = PuntClass::ALL.into_iter().zip(before.iter().zip(&after)).filter(|(_, (a, b))| a != b);
    let class = moved.next();
    assert!(moved.next().is_none(), "a frame counts once");
    if let Some((_, (before, after))) = class {
        let dropped = u64::from(counter == Counter::RouteLimited);
        assert_eq!((after.0 - before.0, after.1 - before.1), (1 - dropped, dropped));
    }
    (counter, class.map(|(class, _)| class))
}

#[test]
fn classes_are_those_of_the_workers() {
    need_root!();
    let port = Port::new(1_000_000);
    let all: Vec<Vec<u8>> = FRAMES.iter().map(|text| frame(text)).chain(links()).collect();
    let mut classes = BTreeSet::new();
    for (at, frame) in all.iter().enumerate() {
        let expected = PuntClass::of_protocol(frame, frame.len());
        let (counter, class) = port.see(frame);
        assert!(LIMITED.contains(&counter), "{counter}: {:?}", FRAMES.get(at));
        assert_eq!(class, expected, "{:?}", FRAMES.get(at));
        classes.extend(class);
        // Priority tags (VLAN 0) have no effect on the class.
        let priority = (0..5).fold(frame.clone(), |frame, _| tagged(&frame, 0));
        assert_eq!(port.see(&priority), (counter, class), "{:?}", FRAMES.get(at));
        // A VLAN that only the kernel knows is no interface of the router, and has no limit.
        assert_eq!(port.see(&tagged(frame, 77)), (Counter::RouteTagged, None), "{:?}", FRAMES.get(at));
    }
    // The frames cover all classes except the four classes of known senders and the three classes that do not represent
    // a protocol.
    assert_eq!(classes.len(), PUNT_CLASSES - 4 - 3);
    let limited = Cell::new(0);
    let changes = proptest::collection::vec((12_usize..64, any::<u8>()), 0..4);
    let mut runner = TestRunner::new(Config {
        cases: std::env::var("PUNT_CASES").map_or(3_000, |n| n.parse().unwrap()),
        failure_persistence: None,
        ..Config::default()
    });
    runner
        .run(&(select(all), changes, any::<bool>()), |(frame, changes, is_tagged)| {
            let mut frame = if is_tagged { tagged(&frame, 77) } else { frame };
            for (at, octet) in changes {
                if let Some(place) = frame.get_mut(at) {
                    *place = octet;
                }
            }
            let (counter, class) = port.see(&frame);
            let is_malformed =
                FlowKey::extract(&frame, frame.len(), PortId(0), &mut FlowKey::ZERO.clone()).is_err();
            let expected = PuntClass::of_protocol(&frame, frame.len()).filter(|_| LIMITED.contains(&counter));
            limited.set(limited.get() + u32::from(expected.is_some()));
            // The kernel drops malformed frames, of whatever class. The class `Own` is for packets whose
            // protocol the hook cannot read.
            let class = class.filter(|class| *class != PuntClass::Own);
            prop_assert!(is_malformed || class == expected, "{counter}: {class:?}, not {expected:?}");
            Ok(())
        })
        .unwrap();
    assert!(limited.get() > 500, "{}: the comparison is of something", limited.get());
}

/// Packets to 255.255.255.255 and 0.0.0.0 are assigned to the class of their protocol even if the frame's destination
/// is the port's own MAC address, because the kernel accepts them.
#[test]
fn broadcasts_to_the_station_address_of_the_port_are_limited() {
    need_root!();
    let port = Port::new(1_000_000);
    for destination in [[255; 4], [0; 4]] {
        for words in [5, 6] {
            let to = |port: [u8; 2], proto: u8| {
                ipv4(destination.into(), 60, |ip| {
                    (ip[0], ip[9]) = (0x40 | words, proto);
                    let ports = usize::from(words) * 4;
                    ip[ports..ports + 6].copy_from_slice(&[4, 0, port[0], port[1], 0, 8]);
                    ip[ports + 12] = 0x50;
                })
            };
            let class = |class| (Counter::PassedGroup, Some(class));
            assert_eq!(port.see(&to([0, 67], 17)), class(PuntClass::Dhcp), "{destination:?}, {words}");
            assert_eq!(port.see(&to([0, 179], 6)), class(PuntClass::Bgp), "{destination:?}, {words}");
            assert_eq!(port.see(&to([0, 179], 89)), class(PuntClass::Ospf), "{destination:?}, {words}");
        }
    }
}

/// Returns a TCP segment to the BGP port of fd00:1::1, after `headers` destination options headers.
fn behind_options(headers: u8) -> Vec<u8> {
    let length = 40 + u16::from(headers) * 8 + 20;
    ipv6("fd00:1::1".parse().unwrap(), length, |ip| {
        ip[6] = if headers == 0 { 6 } else { 60 };
        for at in 1..=headers {
            let place = 32 + usize::from(at) * 8;
            let next = if at == headers { 6 } else { 60 };
            ip[place..place + 8].copy_from_slice(&[next, 0, 1, 4, 0, 0, 0, 0]);
        }
        let tcp = 40 + usize::from(headers) * 8;
        ip[tcp..tcp + 4].copy_from_slice(&[200, 0, 0, 179]);
        ip[tcp + 12] = 0x50;
    })
}

/// Packets with more extension headers than the hook reads are limited in the class `Own`. The kernel reads any number
/// of extension headers, so such packets could belong to any class.
#[test]
fn packets_with_more_extension_headers_than_the_hook_reads_are_limited() {
    need_root!();
    let port = Port::new(1_000_000);
    for headers in [0, 1, 8] {
        let seen = port.see(&behind_options(headers));
        assert_eq!(seen, (Counter::PassedLocal6, Some(PuntClass::Bgp)), "{headers} headers");
    }
    for headers in [9, 12] {
        let seen = port.see(&behind_options(headers));
        assert_eq!(seen, (Counter::PassedLocal6, Some(PuntClass::Own)), "{headers} headers");
    }
    let port = Port::new(100);
    let passed = flood(|frame| port.passes(frame), |_| behind_options(9), 500);
    assert!(passed < 200, "{passed} of more than 500 packets");
    assert_eq!(port.see(&behind_options(9)), (Counter::RouteLimited, Some(PuntClass::Own)));
    let port = Port::new(1_000_000);
    // The kernel informs the sender of an unknown AH header, and of a truncated fragment header.
    let [mut unknown, mut truncated] = [behind_options(1), behind_options(1)];
    (unknown[20], unknown[55]) = (51, 0x7a);
    (truncated[19], truncated[54]) = (12, 44);
    for frame in [unknown, truncated] {
        assert_eq!(port.see(&frame), (Counter::PassedLocal6, None));
    }
}

/// The kernel reads headers in any buffer of a frame. The hook reads only the first buffer, so it passes a frame whose
/// header is in a later buffer to the worker. In this test, priority tags fill the first buffer.
#[test]
fn headers_behind_the_first_buffer_are_left_to_the_worker() {
    need_root!();
    let port = Port::new(1_000_000);
    let bgp = ipv4([10, 0, 1, 1].into(), 40, |ip| {
        ip[9] = 6;
        ip[20..24].copy_from_slice(&[200, 0, 0, 179]);
        ip[32] = 0x50;
    });
    let mut ospf = ipv4([224, 0, 0, 5].into(), 60, |ip| ip[9] = 89);
    ospf[..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 5]);
    let mut behind = 0;
    // A hop-by-hop header, in place of the destination options header.
    let mut hop_by_hop = behind_options(1);
    hop_by_hop[20] = 0;
    for frame in [bgp, ospf, behind_options(1), hop_by_hop] {
        for tags in (860..900).chain([0, 1, 2]) {
            let tagged = [&frame[..12], &[0x81, 0, 0, 0].repeat(tags), &frame[12..]].concat();
            let (counter, class) = port.see(&tagged);
            let is_limited = class.is_some();
            assert!(is_limited || counter == Counter::DownDropped, "{counter:?} with {tags} tags");
            behind += u32::from(counter == Counter::DownDropped && !is_limited);
        }
    }
    assert!(behind >= 3, "{behind} frames went to the worker");
}

/// The hook sends two kinds of packets to the worker: packets with a total length of 0, which the kernel accepts if
/// they are to be segmented, and packets whose options are beyond the frame's first buffer, which only the kernel
/// reads.
#[test]
fn ipv4_packets_that_only_the_kernel_reads_are_left_to_the_worker() {
    need_root!();
    let port = Port::new(1_000_000);
    let mut segmented = ipv4([10, 0, 1, 1].into(), 40, |ip| {
        ip[9] = 6;
        ip[20..24].copy_from_slice(&[200, 0, 0, 179]);
        ip[32] = 0x50;
    });
    segmented[16..18].fill(0);
    assert_eq!(port.see(&segmented).0, Counter::DownDropped);
    let mut optional = ipv4([10, 0, 1, 1].into(), 80, |ip| {
        (ip[0], ip[9]) = (0x4f, 6);
        ip[60..64].copy_from_slice(&[200, 0, 0, 179]);
        ip[72] = 0x50;
    });
    optional.truncate(14 + 80);
    let mut to_the_worker = 0;
    for tags in 840..900 {
        let tagged = [&optional[..12], &[0x81, 0, 0, 0].repeat(tags), &optional[12..]].concat();
        let (counter, class) = port.see(&tagged);
        assert!(class.is_some() || counter == Counter::DownDropped, "{counter:?} with {tags} tags");
        to_the_worker += u32::from(counter == Counter::DownDropped);
    }
    assert!(to_the_worker > 3, "{to_the_worker} frames");
}

/// First fragments that end inside the TCP header are limited in the class `Own`. The kernel reassembles such fragments
/// (RFC 1858, RFC 3128), so the packets could belong to any class.
#[test]
fn first_fragments_that_end_inside_the_tcp_header_are_limited() {
    need_root!();
    let port = Port::new(1_000_000);
    // Returns a first fragment with `bytes` bytes of a TCP segment to the BGP port. `words` is the header length in the
    // TCP header.
    let four = |bytes: u16, words: u8| {
        ipv4([10, 0, 1, 1].into(), 20 + bytes, |ip| {
            (ip[6], ip[9]) = (0x20, 6);
            ip[20..24].copy_from_slice(&[200, 0, 0, 179]);
            ip.get_mut(32).into_iter().for_each(|octet| *octet = words << 4);
        })
    };
    let six = |bytes: u16, words: u8| {
        ipv6("fd00:1::1".parse().unwrap(), 48 + bytes, |ip| {
            ip[6] = 44;
            ip[40..52].copy_from_slice(&[6, 0, 0, 1, 0, 0, 0, 7, 200, 0, 0, 179]);
            ip.get_mut(60).into_iter().for_each(|octet| *octet = words << 4);
        })
    };
    let whole = Some(PuntClass::Bgp);
    assert_eq!(port.see(&four(24, 5)), (Counter::PassedLocal4, whole));
    assert_eq!(port.see(&six(24, 5)), (Counter::PassedLocal6, whole));
    for (bytes, words) in [(8, 5), (16, 5), (24, 8), (24, 15)] {
        let own = Some(PuntClass::Own);
        assert_eq!(port.see(&four(bytes, words)), (Counter::PassedLocal4, own), "{bytes}, {words}");
        assert_eq!(port.see(&six(bytes, words)), (Counter::PassedLocal6, own), "{bytes}, {words}");
    }
}

/// Sends frames until the rate limit of their class has dropped `drops` frames. Returns the number of frames that
/// passed.
fn flood(passes: impl Fn(&[u8]) -> bool, mut next: impl FnMut(u32) -> Vec<u8>, drops: u32) -> u32 {
    let (mut passed, mut dropped, mut at) = (0, 0, 0);
    while dropped < drops {
        if passes(&next(at)) {
            passed += 1
        } else {
            dropped += 1
        }
        at += 1;
        assert!(at < 100_000, "{passed} passed, {dropped} did not");
    }
    passed
}

fn from(text: &str, source: u32) -> Vec<u8> {
    frame(&format!("ip_src={},{text}", Ipv4Addr::from(0x0a00_0200 + source)))
}

#[test]
fn a_flood_leaves_other_classes_other_sources_and_known_peers_alone() {
    need_root!();
    let mut port = Port::new(3_200);
    let far = SocketAddr::from(([10, 0, 9, 9], 40_000));
    let here = SocketAddr::from(([10, 0, 1, 1], 179));
    let neighbour = IpAddr::from([10, 0, 9, 9]);
    let peers =
        [PuntPeer::Session(here, far), PuntPeer::Neighbour(INTERFACE, neighbour), PuntPeer::Far(neighbour)]
            .into();
    port.limits.set_peers(&peers).unwrap();
    let syn = "ip_dst=10.0.1.1,tcp,src_port=179";
    // A flood from one source does not use the reserve, so that packets from a second source still pass.
    let one = flood(|frame| port.passes(frame), |_| from(syn, 1), 20);
    assert!((320..420).contains(&one), "{one}: the burst of a class, less its reserve");
    assert!(port.passes(&from(syn, 2)), "another source has its share");
    // A flood from forged sources uses up only the share of the interface.
    let many = flood(|frame| port.passes(frame), |at| from(syn, 3 + at), 500);
    assert!(many < 200, "{many}");
    // Packets of the known session, OSPF and BFD packets of the known neighbour, and packets of other protocols.
    let session = frame("ip_src=10.0.9.9,ip_dst=10.0.1.1,tcp,src_port=40000,dst_port=179");
    assert_eq!(port.see(&session), (Counter::PassedLocal4, Some(PuntClass::Session)));
    let other = frame("ip_src=10.0.9.9,ip_dst=10.0.1.1,tcp,src_port=40001,dst_port=179");
    assert_eq!(port.see(&other).1, Some(PuntClass::Bgp), "another port is another session");
    let hello = frame("ip_src=10.0.9.9,ip_dst=224.0.0.5,ip_proto=89,ttl=1");
    assert_eq!(port.see(&hello), (Counter::PassedGroup, Some(PuntClass::Peer)));
    let bfd =
        |ttl: u8, to: u16| frame(&format!("ip_src=10.0.9.9,ip_dst=10.0.1.1,ttl={ttl},udp,dst_port={to}"));
    assert_eq!(port.see(&bfd(255, 3784)), (Counter::PassedLocal4, Some(PuntClass::Peer)));
    assert_eq!(port.see(&bfd(254, 3784)).1, Some(PuntClass::Bfd), "a router has forwarded it");
    assert_eq!(port.see(&bfd(64, 4784)), (Counter::PassedLocal4, Some(PuntClass::PeerMultihop)));
    let dhcp = |from: u16| frame(&format!("ip_src=10.0.9.9,ip_dst=10.0.1.1,udp,src_port={from},dst_port=67"));
    assert_eq!(port.see(&dhcp(67)), (Counter::PassedLocal4, Some(PuntClass::PeerMultihop)));
    assert_eq!(port.see(&dhcp(68)).1, Some(PuntClass::Dhcp), "a client");
    assert!(port.passes(&frame("arp")));
    assert!(port.passes(&frame("ip_dst=10.0.1.1,tcp,dst_port=22")));
    // The host's own services have no limit.
    let ssh = frame("ip_dst=10.0.1.1,tcp,dst_port=22");
    assert!((0..1_000).all(|_| port.passes(&ssh)));
    // The packets of a peer that is no longer known have the class of their protocol.
    port.limits.set_peers(&BTreeSet::new()).unwrap();
    assert_eq!(port.see(&hello).1, Some(PuntClass::Ospf));
    // A higher rate applies from the next frame on, and a rate of 0 passes none.
    let (burst, reserve) = router::punt_burst(1_000_000);
    port.limits.set_rate(PuntClass::Bgp as usize, PuntRate { packets: 1_000_000, burst, reserve });
    assert!((0..1_000).all(|at| port.passes(&from(syn, at))));
    port.limits.set_rate(PuntClass::Bgp as usize, PuntRate { packets: 0, burst, reserve });
    assert!(!port.passes(&session));
}

fn arp(mac: [u8; 6], ip: [u8; 4]) -> Vec<u8> {
    let mut frame = frame("arp");
    frame[6..12].copy_from_slice(&mac);
    frame[22..28].copy_from_slice(&mac);
    frame[28..32].copy_from_slice(&ip);
    frame
}

#[test]
fn known_neighbours_are_told_from_forged_ones() {
    need_root!();
    let rig = Rig::new(&ANSWER);
    let mut limits = limits(100);
    let neighbour = IpAddr::from([10, 0, 1, 2]);
    let peers = [PuntPeer::Neighbour(INTERFACE, neighbour), PuntPeer::Far(neighbour)].into();
    limits.set_peers(&peers).unwrap();
    let mut own = Own::new("blue").unwrap();
    own.insert(IpAddr::from([10, 0, 1, 1])).unwrap();
    let stage = RouteStage::answering(&PORT, &own, &rig.tables.answers, &ANSWER).limited(&limits, INTERFACE);
    let loaded = rig.router.attached.prepare_stage(StageChange::Route(Some(&stage))).unwrap();
    let see = |frame: &[u8]| seen(&limits, || rig.router.see(&loaded, frame).1);
    let known = arp(FAR[0], [10, 0, 1, 2]);
    assert_eq!(see(&known), (Counter::PassedControl, Some(PuntClass::Neighbour)));
    assert_eq!(see(&arp([2, 0, 0, 9, 9, 9], [10, 0, 1, 2])).1, Some(PuntClass::Arp), "of another station");
    assert_eq!(see(&arp(FAR[0], [10, 0, 1, 3])).1, Some(PuntClass::Arp), "of another address");
    // The frame claims the address of a neighbour that is on the link of another device.
    assert_eq!(see(&arp(FAR[1], [10, 0, 2, 2])).1, Some(PuntClass::Arp));
    // A router may have forwarded a packet to one address with hop count 1.
    let mut ospf = frame("ip_src=10.0.1.2,ip_dst=10.0.1.1,ip_proto=89,ttl=1");
    ospf[6..12].copy_from_slice(&FAR[0]);
    assert_eq!(see(&ospf).1, Some(PuntClass::Peer));
    ospf[6..12].copy_from_slice(&[2, 0, 0, 9, 9, 9]);
    assert_eq!(see(&ospf).1, Some(PuntClass::Ospf), "of another station");
    // A DHCP server on the link is a known neighbour, and another one is believed by its address.
    let mut dhcp = frame("ip_src=10.0.1.2,ip_dst=10.0.1.1,udp,src_port=67,dst_port=67");
    dhcp[6..12].copy_from_slice(&FAR[0]);
    assert_eq!(see(&dhcp).1, Some(PuntClass::Neighbour));
    dhcp[6..12].copy_from_slice(&[2, 0, 0, 9, 9, 9]);
    assert_eq!(see(&dhcp).1, Some(PuntClass::PeerMultihop));
    let nd = frame("ip_src=fd00:1::2,ip_dst=ff02::1,icmpv6,icmp_type=135");
    assert_eq!(see(&nd), (Counter::PassedGroup, Some(PuntClass::Neighbour)));
    // A flood by forged stations, with forged and with known addresses.
    let forged = |at: u32| {
        let [a, b, c, d] = at.to_be_bytes();
        arp([2, 9, a, b, c, d], if at.is_multiple_of(2) { [10, 0, 1, 2] } else { [10, 0, c, d] })
    };
    let passed = flood(|frame| see(frame).0 != Counter::RouteLimited, forged, 500);
    assert!(passed < 200, "{passed}");
    assert_eq!(see(&known), (Counter::PassedControl, Some(PuntClass::Neighbour)));
    assert_eq!(see(&nd), (Counter::PassedGroup, Some(PuntClass::Neighbour)));
    let dhcp = frame("ip_src=10.0.1.2,ip_dst=10.0.1.1,udp,dst_port=67");
    assert_eq!(see(&dhcp).1, Some(PuntClass::Neighbour));
}

/// Stations on one interface flood ARP frames that claim to have an address that the kernel is resolving. ARP replies
/// and neighbour advertisements on other interfaces, and packets from known neighbours, must still pass.
#[test]
fn a_flood_of_claims_leaves_the_answers_of_other_interfaces() {
    need_root!();
    let mut rig = Rig::new(&ANSWER);
    let near = rig.router.near[0];
    for gateway in ["10.0.1.99", "fd00:1::99"] {
        let hops = next_hops(&[hop(near, gateway)]);
        rig.tables.set(if gateway.contains(':') { "2001:db8:99::/64" } else { "198.18.99.0/24" }, &hops);
    }
    let limits = limits(100);
    let mut own = Own::new("blue").unwrap();
    own.insert(IpAddr::from([10, 0, 1, 1])).unwrap();
    let stage = RouteStage::answering(&PORT, &own, &rig.tables.answers, &ANSWER);
    let [flooded, other] = [INTERFACE, INTERFACE + 1].map(|interface| {
        let stage = stage.clone().limited(&limits, interface);
        rig.router.attached.prepare_stage(StageChange::Route(Some(&stage))).unwrap()
    });
    let asked = [10, 0, 1, 99];
    let answer = arp([2, 0, 0, 9, 9, 9], asked);
    assert_eq!(
        seen(&limits, || rig.router.see(&other, &answer).1),
        (Counter::PassedControl, Some(PuntClass::Neighbour))
    );
    // DHCP does not resolve addresses.
    let dhcp = frame("ip_src=10.0.1.99,ip_dst=10.0.1.1,udp,dst_port=67");
    assert_eq!(seen(&limits, || rig.router.see(&other, &dhcp).1).1, Some(PuntClass::Dhcp));
    let claim = |at: u32| {
        let [a, b, c, d] = at.to_be_bytes();
        arp([2, 9, a, b, c, d], asked)
    };
    let claims =
        |drops| flood(|frame| rig.router.see(&flooded, frame).1 != Counter::RouteLimited, claim, drops);
    let passed = claims(500);
    assert!(passed < 300, "{passed}");
    assert_eq!(
        limits.counted(PuntClass::Neighbour as usize).unwrap().1,
        0,
        "claims count under their protocol"
    );
    for _ in 0..3 {
        assert_eq!(rig.router.see(&other, &answer).1, Counter::PassedControl);
        claims(50);
    }
    let advertisement = frame("ip_src=fd00:1::99,ip_dst=ff02::1,icmpv6,icmp_type=136");
    assert_eq!(rig.router.see(&other, &advertisement).1, Counter::PassedGroup);
    let known = arp(FAR[0], [10, 0, 1, 2]);
    assert_eq!(
        seen(&limits, || rig.router.see(&flooded, &known).1),
        (Counter::PassedControl, Some(PuntClass::Neighbour))
    );
}
