//! Tests of reverse path checks, and of tagged frames in VLANs that are interfaces of a router. The results of the hook
//! (the port's XDP program) are compared with the worker's results.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;
#[path = "support/tables.rs"]
mod tables;

use std::cell::RefCell;
use std::collections::BTreeMap;

use packet::DropReason;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use router::{Decision, Scratch};
use support::router::{FAR, NEAR, ipv4, ipv6, seal};
use tables::{ANSWER, MAC, MTU, Rig, TAG, VLANS, frame, sent, tagged};
use xdp::route::{AnswerPort, Sources};
use xdp::{Counter, Verdict};

/// Returns the frame with the MAC address of the interface `number` as its destination. The frame gets no VLAN tag.
fn towards(number: usize, frame: &[u8]) -> Vec<u8> {
    [&MAC[number][..], &frame[6..]].concat()
}

impl Rig {
    /// Checks that a frame that arrives with the tag of the interface `by` is forwarded through the interface `out` on
    /// port `to`, to a neighbour.
    #[track_caller]
    fn carries(&self, frame: &[u8], by: usize, to: usize, out: usize) {
        let frame = towards(by, frame);
        let came = if TAG[by] == 0 { frame.clone() } else { tagged(&frame, 0x6000 | TAG[by]) };
        let (verdict, counter, after) = self.see(&came);
        assert_eq!((verdict, counter), (Verdict::Redirect, Counter::RouteForwarded), "{by} to {out}");
        assert_eq!(after, sent(&frame, FAR[to], MAC[out], TAG[out]), "{by} to {out}");
    }
}

#[test]
fn tags_come_and_go_with_interfaces() {
    need_root!();
    let rig = Rig::with_vlans(&ANSWER, &VLANS);
    let four = |to: [u8; 4]| ipv4(to.into(), 60, |_| ());
    let six = |to: &str| ipv6(to.parse().unwrap(), 60, |_| ());
    for by in [0, 3, 4] {
        rig.carries(&four([198, 51, 100, 7]), by, 1, 1);
        rig.carries(&six("2001:db8::7"), by, 1, 1);
        rig.carries(&four([198, 18, 0, 1]), by, 1, 5);
        rig.carries(&six("2001:db8:8::1"), by, 1, 5);
        // A destination on the link of a VLAN, with bytes after the packet.
        rig.carries(&[four([10, 2, 100, 2]), vec![9; 30]].concat(), by, 1, 5);
        // A packet of exactly the MTU of the output, without the tag.
        rig.carries(&ipv4([198, 18, 0, 1].into(), 900, |_| ()), by, 1, 5);
    }
    // The packet leaves through the port that received it, but through another interface.
    rig.carries(&four([198, 18, 1, 1]), 3, 0, 4);
    rig.carries(&four([198, 18, 1, 1]), 0, 0, 4);
    rig.carries(&four([192, 0, 2, 29]), 4, 0, 0);
    let counts = [1, 2].map(|port| rig.tables.answers.counts(port).unwrap());
    // All frames have 74 bytes without the tag, except three frames of 914 bytes. The byte counts of the ports include
    // the tags.
    let long = 3 * (914 - 74);
    assert_eq!((counts[0].rx_packets, counts[1].tx_packets, counts[0].tx_packets), (21, 18, 3));
    let bare = 21 * 74 + long;
    assert_eq!(counts[0].rx_bytes, bare + 14 * 4);
    assert_eq!(counts[1].tx_bytes + counts[0].tx_bytes, bare + 14 * 4);
    let by_neighbour: u64 = rig.tables.adjacencies.iter().map(|used| used.bytes).sum();
    assert_eq!(by_neighbour, bare);
}

#[test]
fn everything_else_with_a_tag_goes_up_as_it_came() {
    need_root!();
    let rig = Rig::with_vlans(&ANSWER, &VLANS);
    let plain = towards(3, &ipv4([198, 51, 100, 7].into(), 60, |_| ()));
    let up = |frame: &[u8], vlan: u16| rig.goes_up(&tagged(frame, vlan));
    // Frames in a VLAN without an interface in the hook, to the MAC address of another VLAN's interface, and to the
    // broadcast address.
    up(&plain, 300);
    up(&plain, 200);
    up(&[&[0xff; 6], &plain[6..]].concat(), 100);
    // Frames with a second tag, with ARP, and with a truncated header.
    up(&tagged(&plain, 200), 100);
    up(&[&plain[..12], &[8, 6], &[0; 46]].concat(), 100);
    up(&plain[..30], 100);
    // Frames that would belong to the kernel without the tag: to this host, with an expired TTL, with
    // options, or with link-local addresses.
    for kernels in [
        ipv4([10, 0, 1, 1].into(), 60, |_| ()),
        ipv4([198, 51, 100, 7].into(), 60, |ip| ip[8] = 1),
        ipv4([198, 51, 100, 7].into(), 60, |ip| ip[0] = 0x46),
        ipv4([169, 254, 0, 1].into(), 60, |_| ()),
    ] {
        up(&towards(3, &kernels), 100);
    }
    // Packets that would leave through the receiving interface, a packet that is one byte too long, and a packet
    // without a route.
    up(&towards(4, &ipv4([198, 18, 1, 1].into(), 60, |_| ())), 200);
    up(&towards(3, &ipv4([198, 18, 0, 1].into(), 901, |_| ())), 100);
    up(&towards(3, &ipv4([192, 0, 2, 5].into(), 60, |_| ())), 100);
    // The interface is removed, and added again.
    rig.carries(&plain, 3, 1, 1);
    rig.tables.answers.set_interface(3, None);
    up(&plain, 100);
    up(&[&[0; 6], &plain[6..]].concat(), 100);
    // A frame with the tag of no interface belongs to the kernel.
    let other = tagged(&plain, 77);
    assert_eq!(rig.see(&other), (Verdict::Pass, Counter::RouteTagged, other.clone()));
}

/// Generates source addresses with every kind of reverse path: through n1, through n2, by the default route, no route,
/// several next hops, or through VLANs.
fn source4() -> impl Strategy<Value = [u8; 4]> {
    select(vec![
        [10, 0, 1, 2],
        [10, 0, 1, 77],
        [10, 0, 2, 9],
        [8, 8, 8, 8],
        [192, 0, 2, 1],
        [192, 0, 2, 5],
        [192, 0, 2, 21],
        [192, 0, 2, 25],
        [100, 64, 1, 1],
        [100, 65, 1, 1],
        [10, 1, 100, 7],
        [10, 1, 200, 7],
        [10, 0, 1, 1],
        [10, 0, 2, 255],
    ])
}

fn source6() -> impl Strategy<Value = [u8; 16]> {
    let all = [
        "fd00:1::2",
        "fd00:1::9",
        "fd00:2::9",
        "3fff::1",
        "2001:db8:1::1",
        "2001:db8:2::1",
        "2001:db8:3::1",
        "fd00:1:100::7",
        "fd00:1:200::7",
    ];
    select(all.to_vec()).prop_map(|text| text.parse::<std::net::Ipv6Addr>().unwrap().octets())
}

/// Generates pairs of the number of the receiving interface and a frame. The sources of the frames have all kinds of
/// reverse paths.
fn arriving() -> impl Strategy<Value = (usize, Vec<u8>)> {
    (select(vec![0_usize, 3, 4]), frame(), source4(), source6()).prop_map(|(by, mut frame, four, six)| {
        if frame[12..15] == [8, 0, 0x45] {
            frame[26..30].copy_from_slice(&four);
            seal(&mut frame[14..34]);
        } else if frame[12..14] == [0x86, 0xdd] {
            frame[22..38].copy_from_slice(&six);
        }
        if frame[..6] == NEAR[0] {
            frame = towards(by, &frame);
        }
        (by, frame)
    })
}

#[test]
fn hook_and_worker_decide_alike_whatever_the_tag_and_the_source() {
    need_root!();
    for sources in [Sources::Any, Sources::Strict, Sources::Loose] {
        alike(sources);
    }
}

fn alike(sources: Sources) {
    let rig = Rig::with_vlans(&AnswerPort { sources, ..ANSWER }, &VLANS);
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(4000);
    let scratch = RefCell::new(Scratch::default());
    let seen = RefCell::new(BTreeMap::<(usize, Counter), u32>::new());
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let done = runner.run(&arriving(), |(by, frame)| {
        let number = u16::try_from(by).unwrap();
        let decision = rig.worker_says_at(number, &frame, &mut scratch.borrow_mut());
        let came = if by == 0 { frame.clone() } else { tagged(&frame, TAG[by]) };
        let wanted = match decision {
            Decision::Forward { adjacency, interface } => {
                let at = usize::from(interface);
                let to = rig.worker.adjacencies.read(adjacency).mac().unwrap();
                let length = match frame[12] {
                    8 => u32::from(u16::from_be_bytes([frame[16], frame[17]])),
                    _ => 40 + u32::from(u16::from_be_bytes([frame[18], frame[19]])),
                };
                let after = sent(&frame, to.0, MAC[at], TAG[at]);
                (at != by && length <= MTU[at]).then_some((Counter::RouteForwarded, Verdict::Redirect, after))
            }
            Decision::Drop(DropReason::RouteBlackhole) => {
                Some((Counter::RouteBlackhole, Verdict::Drop, came.clone()))
            }
            Decision::Drop(DropReason::ReversePath) => {
                Some((Counter::RouteReversePath, Verdict::Drop, came.clone()))
            }
            _ => None,
        };
        let (verdict, counter, after) = rig.see(&came);
        *seen.borrow_mut().entry((by, counter)).or_default() += 1;
        let answered = |counter| {
            matches!(counter, Counter::RouteForwarded | Counter::RouteBlackhole | Counter::RouteReversePath)
        };
        // Own and broadcast addresses as sources have no reverse path, and the worker drops them before its check.
        if counter == Counter::RouteReversePath && decision == Decision::Drop(DropReason::MartianSource) {
            return Ok(());
        }
        if answered(counter) {
            prop_assert_eq!(Some((counter, verdict, after)), wanted, "{:?}", decision);
            return Ok(());
        }
        prop_assert!(verdict == Verdict::Pass && after == came, "{counter}");
        if counter != Counter::DownPassed {
            prop_assert_eq!(by, 0, "what has a VLAN's tag is none of the kernel's by itself");
            return Ok(());
        }
        // The frame went to the worker. Either the worker has to process it, or only the worker knows all of
        // several reverse paths, or the frame would belong to the kernel without its tag.
        let several = sources == Sources::Strict
            && match frame[12..14] {
                [8, 0] => frame[26] == 100,
                _ => frame[22..28] == [0x20, 1, 0xd, 0xb8, 0, 1],
            };
        let refused = matches!(wanted, Some((Counter::RouteReversePath, ..)));
        let kernels = || {
            let (_, without, _) = rig.see(&towards(0, &frame));
            by != 0 && !answered(without) && without != Counter::DownPassed
        };
        // The kernel would forward packets of these destinations without a check of their source.
        let is_unchecked = sources != Sources::Any
            && frame[12..14] == [8, 0]
            && (frame[30] >= 240 || frame[30..32] == [169, 254]);
        prop_assert!(wanted.is_none() || refused || several || is_unchecked || kernels(), "{decision:?}");
        Ok(())
    });
    done.unwrap();
    let seen = seen.into_inner();
    let mut expected = vec![Counter::RouteForwarded, Counter::RouteBlackhole, Counter::DownPassed];
    expected.extend((sources != Sources::Any).then_some(Counter::RouteReversePath));
    for counter in expected {
        for by in [0, 3, 4] {
            let count = seen.get(&(by, counter)).copied().unwrap_or(0);
            assert!(count > cases / 400, "{sources:?}: {counter} by {by} in {seen:?}");
        }
    }
}

/// Frames with any number of priority tags (VLAN 0) are processed like untagged frames, as in Linux. The kernel
/// therefore receives packets to the router on the port's own device.
#[test]
fn any_number_of_priority_tags_is_no_tag() {
    need_root!();
    let rig = Rig::with_vlans(&ANSWER, &VLANS);
    let own = ipv4([10, 0, 1, 1].into(), 60, |_| ());
    let arp = [&[0xff; 6], &FAR[0][..], &[8, 6], &[0; 46]].concat();
    let transit = ipv4([198, 51, 100, 7].into(), 60, |_| ());
    let by_vlan = towards(3, &transit);
    for count in [1, 2, 3, 9, 300] {
        let priority = |frame: &[u8]| {
            let tags = [[0x81, 0, 0xe0, 0], [0x88, 0xa8, 0, 0]];
            let tags: Vec<u8> = tags.into_iter().cycle().skip(count % 2).take(count).flatten().collect();
            [&frame[..12], &tags, &frame[12..]].concat()
        };
        // The hook removes all priority tags except the last one.
        let one = |frame: &[u8]| [&frame[..12], &[0x88, 0xa8, 0, 0], &frame[12..]].concat();
        let passed = |frame: &[u8], counter| {
            assert_eq!(rig.see(&priority(frame)), (Verdict::Pass, counter, one(frame)), "{count} tags");
        };
        passed(&own, Counter::PassedLocal4);
        passed(&arp, Counter::PassedControl);
        passed(&transit, Counter::DownPassed);
        // A frame in a VLAN is routed as it would be without the priority tags.
        let vlan = tagged(&by_vlan, TAG[3]);
        assert_eq!(rig.see(&priority(&vlan)), rig.see(&vlan), "{count} tags");
        assert_eq!(rig.see(&vlan).1, Counter::RouteForwarded);
    }
}

/// The hook drops packets to the router's own addresses whose source address fails the reverse path check, as Linux
/// does (`fib_validate_source`). Exceptions are, for example, packets without a source address (DHCP) and neighbour
/// discovery.
#[test]
fn sources_of_packets_to_the_router_itself_are_checked() {
    need_root!();
    let from4 = |source: [u8; 4], to: [u8; 4]| ipv4(to.into(), 60, |ip| ip[12..16].copy_from_slice(&source));
    let from6 = |source: &str, kind: u8, hops: u8| {
        ipv6("fd00:1::1".parse().unwrap(), 64, |ip| {
            (ip[6], ip[7], ip[40]) = (58, hops, kind);
            ip[8..24].copy_from_slice(&source.parse::<std::net::Ipv6Addr>().unwrap().octets());
        })
    };
    let own = [10, 0, 1, 1];
    for (sources, elsewhere) in [(Sources::Strict, true), (Sources::Loose, false)] {
        let rig = Rig::with_vlans(&AnswerPort { sources, ..ANSWER }, &VLANS);
        let see = |frame: &[u8]| {
            let (verdict, counter, _) = rig.see(frame);
            let plain = (verdict, counter);
            // A priority tag is no tag.
            let (verdict, counter, _) = rig.see(&tagged(frame, 0));
            assert_eq!((verdict, counter), plain);
            plain
        };
        let refused = (Verdict::Drop, Counter::RouteReversePath);
        let (local4, local6) =
            ((Verdict::Pass, Counter::PassedLocal4), (Verdict::Pass, Counter::PassedLocal6));
        let by_way = |local| if elsewhere { refused } else { local };
        assert_eq!(see(&from4([10, 0, 1, 77], own)), local4, "{sources:?}: from the link");
        assert_eq!(see(&from4([10, 0, 2, 9], own)), by_way(local4), "{sources:?}: by another link");
        assert_eq!(see(&from4([8, 8, 8, 8], own)), by_way(local4), "{sources:?}: by the default route");
        assert_eq!(see(&from4([192, 0, 2, 1], own)), refused, "{sources:?}: a blackhole route");
        assert_eq!(see(&from4([100, 65, 1, 1], own)), local4, "{sources:?}: by several next hops");
        // Packets whose source has an unreachable or prohibit route, or is an own address of the router, go to the
        // worker.
        assert_eq!(see(&from4([192, 0, 2, 5], own)).1, Counter::DownPassed, "{sources:?}: unreachable");
        // A DHCP packet from a client without an address passes the check.
        assert_eq!(see(&from4([0; 4], own)), local4, "{sources:?}: no address");
        assert_eq!(see(&from4([0; 4], [255; 4])).1, Counter::PassedGroup, "{sources:?}: no address");
        assert_eq!(see(&from6("fd00:1::9", 128, 64)), local6, "{sources:?}: from the link");
        assert_eq!(see(&from6("fd00:2::9", 128, 64)), by_way(local6), "{sources:?}: by another link");
        assert_eq!(see(&from6("3fff::1", 128, 255)), refused, "{sources:?}: no route");
        assert_eq!(see(&from6("3fff::1", 135, 255)), local6, "{sources:?}: neighbour discovery");
        assert_eq!(see(&from6("3fff::1", 135, 64)), refused, "{sources:?}: forwarded by a router");
        assert_eq!(see(&from6("fe80::9", 128, 64)), local6, "{sources:?}: link-local");
        // The kernel would forward these packets, and the worker checks them.
        for to in [[240, 0, 0, 1], [169, 254, 0, 1]] {
            assert_eq!(see(&from4([10, 0, 2, 9], to)).1, Counter::DownPassed, "{sources:?}: to {to:?}");
        }
        rig.tables.answers.answer(false, false);
        assert_eq!(see(&from4([10, 0, 2, 9], own)), local4, "{sources:?}: without tables");
    }
}
