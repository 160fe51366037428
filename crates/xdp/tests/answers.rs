//! Tests of routing by the XDP program (hook) of a virtual router's port. Random frames are compared with the worker's
//! decision, and real frames are sent while the tables change.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;
#[path = "support/tables.rs"]
mod tables;

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use lookup::Prefix;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use router::{Decision, Scratch};
use support::router::{FAR, NEAR, ethernet, ipv4, ipv6};
use support::{Namespace, PacketSocket, config};
use tables::{ANSWER, MAC, MTU, OWN_SOURCES, PORT, Rig, TAG, Tables, VLANS, frame, hop, next_hops, sent};
use xdp::bridge::Mark;
use xdp::fib::Takes;
use xdp::live::{Pass, Sink, Traffic, Vary};
use xdp::route::{AnswerInterface, AnswerPort, Own, RouteCounts, RouteStage};
use xdp::{AttachMode, Attached, Counter, Owner, PortProgram, StageChange, Verdict, WhenDown};

#[test]
fn known_ways_are_taken_right_here() {
    need_root!();
    let rig = Rig::new(&ANSWER);
    let four = |to: [u8; 4]| ipv4(to.into(), 60, |_| ());
    let six = |to: &str| ipv6(to.parse().unwrap(), 60, |_| ());
    for (to, leads) in [
        ([198, 51, 100, 7], 1),
        ([198, 51, 100, 200], 2),
        ([203, 0, 113, 9], 2),
        ([8, 8, 8, 8], 2),
        // Destinations on the links themselves.
        ([10, 0, 2, 2], 1),
        ([10, 0, 3, 2], 2),
    ] {
        rig.goes(&four(to), leads);
    }
    for (to, leads) in [("2001:db8::7", 1), ("2001:db8:4::1", 2), ("fd00:2::2", 1), ("fd00:3::2", 2)] {
        rig.goes(&six(to), leads);
    }
    // Bytes after the packet are removed, a TTL of 2 becomes 1, and fragments are forwarded like other
    // packets.
    rig.goes(&[four([198, 51, 100, 7]), vec![9; 30]].concat(), 1);
    rig.goes(&ipv4([198, 51, 100, 7].into(), 60, |ip| ip[8] = 2), 1);
    rig.goes(&ipv4([198, 51, 100, 7].into(), 60, |ip| ip[6] = 0x20), 1);
    // Packets of exactly the MTU of the output.
    rig.goes(&ipv4([198, 51, 100, 7].into(), 1000, |_| ()), 1);
    rig.goes(&ipv6("2001:db8::7".parse().unwrap(), 1000, |_| ()), 1);
    // The counts of received and sent packets are exact.
    let (one, two, three) =
        (rig.tables.answers.counts(1).unwrap(), rig.tables.answers.counts(2), rig.tables.answers.counts(3));
    let (two, three) = (two.unwrap(), three.unwrap());
    assert_eq!(one.rx_packets, 15);
    assert_eq!((two.tx_packets, three.tx_packets), (9, 6));
    assert_eq!(one.rx_bytes, two.tx_bytes + three.tx_bytes);
    let by_neighbour: u64 = rig.tables.adjacencies.iter().map(|used| used.packets).sum();
    let bytes: u64 = rig.tables.adjacencies.iter().map(|used| used.bytes).sum();
    assert_eq!((by_neighbour, bytes), (15, one.rx_bytes));
}

#[test]
fn what_needs_more_goes_up_as_it_came() {
    need_root!();
    let mut rig = Rig::new(&ANSWER);
    let four = |to: [u8; 4]| ipv4(to.into(), 60, |_| ());
    let six = |to: &str| ipv6(to.parse().unwrap(), 60, |_| ());
    // Packets with these routes go to the worker: unreachable, prohibit and throw routes, routes without a next hop,
    // routes with an unresolved next hop, routes through a device that is not in the tables or back to the input
    // device, and on-link routes to an unknown address.
    for last in [5, 9, 13, 17, 21, 25, 29] {
        rig.goes_up(&four([192, 0, 2, last]));
    }
    rig.goes_up(&four([10, 0, 2, 77]));
    for to in ["2001:db8:3::1", "2001:db8:6::1", "2001:db8:4::2", "fd00:2::9", "3fff::1"] {
        rig.goes_up(&six(to));
    }
    // Packets that are one byte too long.
    rig.goes_up(&ipv4([198, 51, 100, 7].into(), 1001, |_| ()));
    rig.goes_up(&ipv6("2001:db8::7".parse().unwrap(), 1001, |_| ()));
    for gone in [four([192, 0, 2, 1]), six("2001:db8:2::1")] {
        assert_eq!(rig.see(&gone), (Verdict::Drop, Counter::RouteBlackhole, gone.clone()));
    }
    // Forwarding is enabled for one address family, then for none, then for both.
    let (way4, way6) = (four([198, 51, 100, 7]), six("2001:db8::7"));
    rig.tables.answers.answer(true, false);
    rig.goes(&way4, 1);
    rig.goes_up(&way6);
    rig.tables.answers.answer(false, false);
    assert_eq!(rig.tables.answers.answers(), (false, false));
    rig.goes_up(&way4);
    rig.tables.answers.answer(true, true);
    rig.goes(&way6, 1);
    // A device that accepts no redirected frames, an interface that is removed, a neighbour that is removed,
    // and a device that is gone.
    let n2 = AnswerInterface {
        port: 2,
        device: rig.router.near[1],
        mac: NEAR[1],
        mtu: 1000,
        takes: Takes::Nothing,
        vlan: 0,
    };
    rig.tables.answers.set_interface(1, Some(&n2));
    rig.goes_up(&way4);
    rig.tables.answers.set_interface(1, Some(&AnswerInterface { takes: Takes::Frames, ..n2 }));
    rig.goes(&way4, 1);
    rig.tables.answers.set_interface(1, None);
    rig.goes_up(&way4);
    // The number now belongs to another device.
    rig.tables.answers.set_interface(1, Some(&AnswerInterface { device: 9999, takes: Takes::Frames, ..n2 }));
    rig.goes_up(&way4);
    rig.tables.answers.set_interface(1, Some(&AnswerInterface { takes: Takes::Frames, ..n2 }));
    rig.goes(&way4, 1);
    rig.tables.adjacencies.resolve(rig.router.near[1], [10, 0, 2, 2].into(), None);
    rig.goes_up(&way4);
    rig.tables.resolve(rig.router.near[1], "10.0.2.2", FAR[2]);
    assert_eq!(rig.see(&way4).2, sent(&way4, FAR[2], NEAR[1], 0));
    rig.router.namespace.ip("link del n2");
    rig.goes_up(&way4);
}

/// Packets with a partial checksum go to the worker if the port's configuration states that received frames may carry
/// partial checksums.
#[test]
fn open_checksums_go_up_where_senders_leave_them() {
    need_root!();
    let bare: u32 = 0x0a00 + 0x0102 + 0xc633 + 0x6407 + 17 + 40;
    let bare = u16::try_from((bare & 0xffff) + (bare >> 16)).unwrap();
    let open = ipv4([198, 51, 100, 7].into(), 60, |ip| ip[26..28].copy_from_slice(&bare.to_be_bytes()));
    Rig::new(&ANSWER).goes(&open, 1);
    let completing = Rig::new(&AnswerPort { partial_checksums: true, ..ANSWER });
    completing.goes_up(&open);
    // A complete checksum that equals the sum of the pseudo-header is verified.
    let complete = ipv4([198, 51, 100, 7].into(), 60, |ip| {
        ip[26..28].copy_from_slice(&bare.to_be_bytes());
        ip[58..60].fill(0);
        let words = ip[20..60].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum = u32::from(bare) + words.sum::<u32>();
        let folded = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        ip[58..60].copy_from_slice(&(!folded).to_be_bytes());
    });
    Rig::new(&AnswerPort { partial_checksums: true, ..ANSWER }).goes(&complete, 1);
}

/// If the hook forwards a random frame, the worker's decision must be to forward the frame too, to the same next hop
/// and with equal content. The hook leaves a frame to the worker or the kernel only if the hook cannot forward the
/// frame as the worker would.
#[test]
fn the_hook_and_the_worker_decide_alike() {
    need_root!();
    let rig = Rig::new(&ANSWER);
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(8000);
    let scratch = RefCell::new(Scratch::default());
    let seen = RefCell::new(std::collections::BTreeMap::<Counter, u32>::new());
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let done = runner.run(&frame(), |frame| {
        let decision = rig.worker_says(&frame, &mut scratch.borrow_mut());
        let wanted = match decision {
            Decision::Forward { adjacency, interface } => {
                let at = usize::from(interface);
                let to = rig.worker.adjacencies.read(adjacency).mac().unwrap();
                let after = sent(&frame, to.0, MAC[at], TAG[at]);
                let length = match frame[12] {
                    8 => u32::from(u16::from_be_bytes([frame[16], frame[17]])),
                    _ => 40 + u32::from(u16::from_be_bytes([frame[18], frame[19]])),
                };
                (at != 0 && length <= MTU[at]).then_some((Counter::RouteForwarded, Verdict::Redirect, after))
            }
            Decision::Drop(packet::DropReason::RouteBlackhole) => {
                Some((Counter::RouteBlackhole, Verdict::Drop, frame.clone()))
            }
            _ => None,
        };
        let (verdict, counter, after) = rig.see(&frame);
        *seen.borrow_mut().entry(counter).or_default() += 1;
        match counter {
            Counter::RouteForwarded | Counter::RouteBlackhole => {
                prop_assert_eq!(Some((counter, verdict, after)), wanted, "{:?}", decision);
            }
            // The frame went to the worker.
            Counter::DownPassed => prop_assert!(wanted.is_none() && after == frame, "{wanted:?}"),
            // The source is this host itself or a broadcast address of a link. A worker does not forward
            // these frames either.
            Counter::RouteAddress
                if frame[12] == 8 && OWN_SOURCES.contains(&frame[26..30].try_into().unwrap()) =>
            {
                let is_forwarded = matches!(decision, Decision::Forward { .. });
                prop_assert!(verdict == Verdict::Pass && after == frame && !is_forwarded, "{decision:?}");
            }
            // The frame belongs to the kernel, so a worker would not get it.
            _ => prop_assert!(verdict == Verdict::Pass && after == frame),
        }
        Ok(())
    });
    done.unwrap();
    let seen = seen.into_inner();
    for counter in [Counter::RouteForwarded, Counter::RouteBlackhole, Counter::DownPassed, Counter::RouteTtl]
    {
        assert!(seen.get(&counter).copied().unwrap_or(0) > cases / 100, "{counter} in {seen:?}");
    }
}

/// Three veth pairs of a router. The hook on the first device forwards frames according to the tables. The peers of the
/// other two devices count the frames that arrive, or pass them to the kernel.
struct Line {
    namespace: Namespace,
    port: Attached,
    tables: Tables,
    far: [u32; 3],
    near: [u32; 3],
    _own: Own,
}

impl Line {
    fn new() -> Line {
        let namespace = Namespace::enter_new();
        let (mut far, mut near) = ([0; 3], [0; 3]);
        for at in 0..3 {
            (far[at], near[at]) = namespace.veth(&format!("f{at}"), &format!("n{at}"), "");
        }
        let mut tables = Tables::new();
        for at in 0..3 {
            tables.interface([1, 2, 3][at], near[at], NEAR[at], 1500);
        }
        let own = Own::new("blue").unwrap();
        let stage = RouteStage::answering(&PORT, &own, &tables.answers, &ANSWER);
        let loaded = PortProgram::load(&config(Owner::Routed, WhenDown::Drop)).unwrap();
        let mut port = loaded.attach(near[0], AttachMode::Native, None).unwrap();
        port.set_stage(StageChange::Route(Some(&stage))).unwrap();
        Line { namespace, port, tables, far, near, _own: own }
    }

    /// Returns traffic to 16 consecutive destination addresses, starting with 198.51.100.0.
    fn traffic(&self) -> Traffic {
        Traffic {
            destination_mac: NEAR[0],
            destination: Ipv4Addr::new(198, 51, 100, 0),
            vary: Vary { destination: true, ports: true, ..Vary::default() },
            flows: 16,
            ..Traffic::to(self.far[0])
        }
    }
}

/// Every frame must leave through n2 and none may be lost while the route table changes. Each destination has a route
/// through n2 at all times. The gateways and next hop groups of these routes change, and so do routes of neighbouring
/// prefixes, which lead through n3.
#[test]
fn no_frame_is_lost_or_goes_astray_while_the_table_changes() {
    need_root!();
    let mut line = Line::new();
    let (two, three) = (line.near[1], line.near[2]);
    let sinks = [1, 2].map(|at| Sink::attach(line.far[at], AttachMode::Native).unwrap());
    for (device, gateway) in [(two, "10.0.2.2"), (two, "10.0.2.3"), (three, "10.0.3.2")] {
        line.tables.resolve(device, gateway, FAR[1]);
    }
    let (a, b) = (next_hops(&[hop(two, "10.0.2.2")]), next_hops(&[hop(two, "10.0.2.3")]));
    let both = next_hops(&[hop(two, "10.0.2.2"), hop(two, "10.0.2.3")]);
    let astray = next_hops(&[hop(three, "10.0.3.2")]);
    line.tables.set("198.51.100.0/24", &a);
    let traffic = line.traffic();
    let Line { namespace, port, tables, .. } = &mut line;
    let rounds = if std::env::var_os("TRIVIUM_SOAK").is_some() { 20_000 } else { 400 };
    let mut changes = 0_u32;
    let sent = namespace.under_load(&traffic, || {
        for round in 0..rounds {
            let path = [&a, &b, &both][round % 3];
            for last in 0..16 {
                let single = Prefix::new(u32::from_be_bytes([198, 51, 100, last]), 32);
                match round % 4 {
                    3 => tables.fib.remove4(single, &mut tables.adjacencies).unwrap(),
                    _ => tables.fib.set4(single, path, &mut tables.adjacencies).unwrap(),
                }
                // These routes are for addresses next to the destinations, in the same trie nodes.
                let beside = Prefix::new(u32::from_be_bytes([198, 51, 100, 16 + last]), 32);
                tables.fib.set4(beside, &astray, &mut tables.adjacencies).unwrap();
                let wider = Prefix::new(u32::from_be_bytes([198, 51, 96 + last % 4, 0]), 22 + last % 2);
                match round % 2 {
                    0 => tables.fib.set4(wider, &astray, &mut tables.adjacencies).unwrap(),
                    _ => tables.fib.remove4(wider, &mut tables.adjacencies).unwrap(),
                }
                changes += 3;
            }
            tables.reader.quiescent();
        }
    });
    assert!(sent > 1000 && changes > 10_000, "{sent} frames, {changes} changes");
    let sunk = sinks.map(|sink| sink.sunk().unwrap().packets);
    let counters = port.counters().unwrap();
    assert_eq!((sunk, counters.get(Counter::RouteForwarded)), ([sent, 0], sent), "{counters:?}");
    let by_neighbour: u64 = tables.adjacencies.iter().map(|used| used.packets).sum();
    let expected = RouteCounts { rx_packets: sent, rx_bytes: sent * 60, ..RouteCounts::default() };
    assert_eq!((by_neighbour, tables.answers.counts(1).unwrap()), (sent, expected));
}

/// The MAC address of a neighbour changes all the time. Each forwarded frame must have either the old or the new
/// address as its destination, and never a mixture.
#[test]
fn no_frame_has_half_of_an_address() {
    need_root!();
    let mut line = Line::new();
    let device = line.near[1];
    let addresses = [[2, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa], [2, 0x55, 0x55, 0x55, 0x55, 0x55]];
    line.tables.resolve(device, "10.0.2.2", addresses[0]);
    line.tables.set("198.51.100.0/24", &next_hops(&[hop(device, "10.0.2.2")]));
    let _pass = Pass::attach(line.far[1], AttachMode::Native).unwrap();
    let socket = PacketSocket::on(line.far[1]);
    let traffic = Traffic { rate: Some(50_000), ..line.traffic() };
    let Line { namespace, tables, .. } = &mut line;
    let mut seen = [0_u32; 2];
    namespace.under_load(&traffic, || {
        while seen.iter().any(|count| *count < 500) {
            for mac in addresses {
                for _ in 0..50 {
                    tables.resolve(device, "10.0.2.2", addresses[0]);
                    tables.resolve(device, "10.0.2.2", addresses[1]);
                }
                tables.resolve(device, "10.0.2.2", mac);
                let frame = socket.receive().unwrap();
                let at = addresses.iter().position(|mac| frame[..6] == *mac);
                seen[at.unwrap_or_else(|| panic!("{frame:02x?}"))] += 1;
                assert_eq!(frame[6..12], NEAR[1]);
            }
        }
    });
}

#[test]
fn no_frame_overtakes_one_that_went_up() {
    need_root!();
    let rig = Rig::new(&ANSWER);
    let socket = support::unbound_socket();
    let attached = &rig.router.attached;
    attached.set_socket(0, socket.as_fd()).unwrap();
    let own = Own::new("blue").unwrap();
    let stage = RouteStage::answering(&PORT, &own, &rig.tables.answers, &ANSWER).with_vlans(VLANS);
    let stage = stage.in_order(attached).unwrap();
    let loaded = attached.prepare_stage(StageChange::Route(Some(&stage))).unwrap();
    let way = |frame: &[u8]| {
        let (verdict, counter, after) = rig.router.see(&loaded, frame);
        if counter == Counter::Steered {
            let (mark, rest) = after.split_first_chunk().unwrap();
            assert_eq!((verdict, rest), (Verdict::Redirect, frame), "a frame goes up as it came");
            assert!(Mark::read(*mark).is_some());
        }
        counter
    };
    let orders = stage.orders().unwrap();
    let known = ipv4([198, 51, 100, 7].into(), 60, |_| ());
    let other = ipv4([203, 0, 113, 9].into(), 60, |_| ());
    let six = ipv6("2001:db8::7".parse().unwrap(), 60, |_| ());
    let tagged = tables::tagged(&known, 200);
    let unknown = ipv4([192, 0, 2, 21].into(), 60, |_| ());
    // It was not reported yet that the frames from before the stage have left the worker.
    assert_eq!(way(&known), Counter::Steered);
    assert_eq!(orders.numbers(0), (1, u32::MAX));
    orders.finish(0, 1);
    for frame in [&known, &six, &tagged] {
        assert_eq!(way(frame), Counter::RouteForwarded);
        // Forwarding by the hook is disabled for a while, so the flow goes to the worker.
        rig.tables.answers.answer(false, false);
        assert_eq!(way(frame), Counter::Steered);
        rig.tables.answers.answer(true, true);
        let waited = orders.waiting(0);
        assert_eq!(way(frame), Counter::Steered, "the one before is under way");
        assert_eq!(orders.waiting(0), waited + 1);
        assert_eq!(way(&other), Counter::RouteForwarded, "another flow does not wait");
        let sent = orders.numbers(0).0;
        orders.finish(0, sent - 1);
        assert_eq!(way(frame), Counter::Steered, "the last is under way");
        orders.finish(0, sent + 1);
        assert_eq!(way(frame), Counter::RouteForwarded);
        // While the queue overflows, frames of the flow are dropped until the flow can move. A frame that
        // only the worker can route goes to the worker.
        rig.tables.answers.answer(false, false);
        assert_eq!(way(frame), Counter::Steered);
        rig.tables.answers.answer(true, true);
        orders.hold(0, true);
        assert_eq!(rig.router.see(&loaded, frame).0, Verdict::Drop);
        assert_eq!(way(frame), Counter::BridgeHeld);
        assert_eq!(way(&unknown), Counter::Steered);
        assert_eq!(way(&unknown), Counter::Steered);
        orders.finish(0, orders.numbers(0).0);
        assert_eq!(way(frame), Counter::RouteForwarded);
        orders.hold(0, false);
    }
    // While the worker is observed (capture or trace), every frame goes to the worker.
    rig.tables.answers.watch(true);
    assert_eq!(rig.tables.answers.answers(), (false, false));
    assert_eq!(way(&other), Counter::Steered);
    rig.tables.answers.watch(false);
    orders.finish(0, orders.numbers(0).0);
    assert_eq!(way(&other), Counter::RouteForwarded);
    // Without a socket, no frame can be pending in a worker, and the observation that a killed daemon has left enabled
    // has no effect.
    rig.tables.answers.watch(true);
    assert_eq!(way(&known), Counter::Steered);
    attached.clear_socket(0).unwrap();
    assert_eq!(way(&known), Counter::RouteForwarded);
}

/// A sender must not be able to choose source addresses that share a bucket of the sequence numbers by which frames
/// keep their order. If the bucket were computed with a factor whose low 16 bits are public, 15 of the 30 sources in
/// this test would share a bucket with the source in the middle, whatever the secret is. With a secret factor, four or
/// more share it for about one secret in a thousand, so the test tries several secrets.
#[test]
fn senders_cannot_choose_sources_that_share_a_bucket() {
    need_root!();
    assert!(
        (0..3).any(|_| sources_that_share_a_bucket() <= 3),
        "the sources share buckets with every secret"
    );
}

/// Returns how many of 30 sources share a bucket with the source in the middle, with a new secret.
fn sources_that_share_a_bucket() -> usize {
    let rig = Rig::new(&ANSWER);
    let socket = support::unbound_socket();
    let attached = &rig.router.attached;
    attached.set_socket(0, socket.as_fd()).unwrap();
    let own = Own::new("blue").unwrap();
    let stage = RouteStage::answering(&PORT, &own, &rig.tables.answers, &ANSWER).in_order(attached).unwrap();
    let loaded = attached.prepare_stage(StageChange::Route(Some(&stage))).unwrap();
    // The inverse of the low 16 bits of ROUTE_MIX (bpf/include/route_layout.h).
    let inverse = (1..=u16::MAX).find(|number| number.wrapping_mul(0x7c15) == 1).unwrap();
    let from = |step: i16| {
        let last = step.cast_unsigned().wrapping_mul(inverse).wrapping_add(0x0101).to_le_bytes();
        let source = [10, 77, last[0], last[1]];
        let frame = ipv4([198, 51, 100, 7].into(), 60, |ip| ip[12..16].copy_from_slice(&source));
        rig.router.see(&loaded, &frame).1
    };
    let orders = stage.orders().unwrap();
    assert_eq!(from(0), Counter::Steered);
    orders.finish(0, 1);
    assert_eq!(from(0), Counter::RouteForwarded);
    rig.tables.answers.answer(false, false);
    assert_eq!(from(0), Counter::Steered);
    rig.tables.answers.answer(true, true);
    let waiting = (-15..=15).filter(|step| *step != 0 && from(*step) == Counter::Steered).count();
    assert_eq!(from(0), Counter::Steered, "the first frame of this source is under way");
    waiting
}

#[test]
fn a_successor_goes_on_with_the_order() {
    need_root!();
    let mut line = Line::new();
    let own = Own::new("blue").unwrap();
    let stage = |port: &Attached| {
        RouteStage::answering(&PORT, &own, &line.tables.answers, &ANSWER).in_order(port).unwrap()
    };
    let first = stage(&line.port);
    line.port.set_stage(StageChange::Route(Some(&first))).unwrap();
    line.port.route_orders().unwrap().finish(0, 41);
    // The frame order is kept when the constants change, and when another process adopts the program.
    let second = stage(&line.port).with_vlans(VLANS);
    line.port.set_stage(StageChange::Route(Some(&second))).unwrap();
    assert!(!first.is_same(&second).unwrap());
    assert_eq!(line.port.route_orders().unwrap().numbers(0).1, 41);
    let adopted = Attached::import(line.port.export()).unwrap();
    assert_eq!(adopted.route_orders().unwrap().numbers(0).1, 41);
    assert!(adopted.explainer().unwrap().explain(&ipv4([198, 51, 100, 7].into(), 60, |_| ())).is_ok());
}

/// A successor process finds the tables that its predecessor's program reads. Explaining a frame with a test run
/// changes no counter.
#[test]
fn explaining_counts_nothing_and_a_successor_finds_the_tables() {
    need_root!();
    let mut line = Line::new();
    line.tables.resolve(line.near[1], "10.0.2.2", FAR[1]);
    line.tables.set("198.51.100.0/24", &next_hops(&[hop(line.near[1], "10.0.2.2")]));
    let frame = ipv4([198, 51, 100, 7].into(), 60, |_| ());
    let says = line.port.explainer().unwrap().explain(&frame).unwrap();
    assert_eq!((says.counter, says.verdict, says.to), (Counter::RouteForwarded, Verdict::Redirect, Some(2)));
    let leads = line.tables.adjacencies.leads(says.neighbour.unwrap());
    assert_eq!(leads, Some((line.near[1], Some([10, 0, 2, 2].into()))));
    assert_eq!(says.frame, sent(&frame, FAR[1], NEAR[1], 0));
    assert_eq!(line.tables.answers.counts(1).unwrap(), RouteCounts::default());
    assert!(line.tables.adjacencies.iter().all(|used| used.packets == 0));
    let stage = line.port.route().unwrap();
    let adopted = Attached::import(line.port.export()).unwrap();
    let found = adopted.route().unwrap();
    assert!(found.is_same(&stage).unwrap() && found.is_answering());
    let says = adopted.explainer().unwrap().explain(&frame).unwrap();
    assert_eq!((says.counter, says.to), (Counter::RouteForwarded, Some(2)));
    // The tables of another router are different tables.
    let (other, own) = (Tables::new(), Own::new("red").unwrap());
    assert!(!found.is_same(&RouteStage::answering(&PORT, &own, &other.answers, &ANSWER)).unwrap());
    assert!(!found.is_same(&RouteStage::new(&PORT, &own)).unwrap());
}

#[test]
fn frames_of_others_are_not_answered() {
    need_root!();
    let rig = Rig::new(&ANSWER);
    let frame = ethernet(FAR[1], 0x0800, &ipv4([198, 51, 100, 7].into(), 60, |_| ())[14..]);
    assert_eq!(rig.see(&frame), (Verdict::Pass, Counter::RouteStation, frame.clone()));
}
