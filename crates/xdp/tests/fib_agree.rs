//! Compares the kernel routing stage of the hook (a port's XDP program) with the forwarding of the kernel's stack. If
//! the hook forwards a frame, the stack must forward the frame with equal bytes through the same device. The hook must
//! not change a frame that it does not forward.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::cell::Cell;
use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use support::router::{FAR, NEAR, Router, ethernet, ipv4, seal};
use support::{PacketSocket, sh};
use xdp::Verdict;
use xdp::fib::FibPort;

/// IP protocol of marker frames. The arrival of a marker frame shows that all frames before it have arrived.
const BARRIER: u8 = 253;

/// Generates destination addresses, one for each kind of route. Each address has a different last octet.
fn address4() -> impl Strategy<Value = [u8; 4]> {
    let usual = select(vec![[10, 0, 2, 2], [198, 51, 100, 7], [203, 0, 113, 9], [8, 8, 8, 8], [10, 0, 3, 2]]);
    let special = select(vec![
        [192, 0, 2, 1],
        [192, 0, 2, 5],
        [192, 0, 2, 9],
        [192, 0, 2, 13],
        [192, 0, 2, 21],
        [192, 0, 2, 25],
        [192, 0, 2, 29],
        [10, 0, 1, 1],
        [10, 0, 1, 2],
        [10, 0, 2, 1],
        [10, 0, 2, 9],
        [10, 0, 2, 255],
        [127, 0, 0, 1],
        [0, 0, 0, 0],
        [0, 1, 2, 3],
        [169, 254, 1, 1],
        [224, 0, 0, 1],
        [240, 0, 0, 1],
        [255, 255, 255, 255],
    ]);
    prop_oneof![4 => usual, 1 => special, 1 => any::<[u8; 4]>()]
}

fn source4() -> impl Strategy<Value = [u8; 4]> {
    prop_oneof![3 => Just([10, 0, 1, 2]), 1 => address4()]
}

fn address6() -> impl Strategy<Value = [u8; 16]> {
    let usual = select(vec!["2001:db8::7", "2001:db8:1::1", "fd00:2::2", "fd00:3::2"]);
    let special = select(vec![
        "2001:db8:2::1",
        "2001:db8:3::1",
        "2001:db8:4::1",
        "2001:db8:6::1",
        "2001:db8:7::1",
        "fd00:2::1",
        "fd00:2::",
        "fd00:2::9",
        "fd00:1::1",
        "fe80::1",
        "fec0::1",
        "::",
        "::1",
        "::ffff:10.0.2.2",
        "64:ff9b::1",
        "ff02::1",
        "ff0e::1",
    ]);
    let octets = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
    prop_oneof![4 => usual.prop_map(octets), 1 => special.prop_map(octets)]
}

fn source6() -> impl Strategy<Value = [u8; 16]> {
    let usual = "fd00:1::2".parse::<Ipv6Addr>().unwrap().octets();
    prop_oneof![3 => Just(usual), 1 => address6()]
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    let length =
        prop_oneof![3 => 0..64_usize, 1 => 960..1010_usize, 1 => 1250..1300_usize, 1 => 1440..1480_usize];
    (length, vec(any::<u8>(), 8)).prop_map(|(length, start)| {
        let mut payload = start;
        payload.resize(length, 0x5a);
        payload
    })
}

fn packet4() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let fragment =
        prop_oneof![6 => select(vec![0_u16, 0x4000]), 1 => select(vec![0x2000, 1, 0x2001, 0x8000])];
    let words = prop_oneof![8 => Just(5_u8), 1 => select(vec![4, 6, 15])];
    let sealed = proptest::bool::weighted(0.95);
    let ttl = prop_oneof![4 => Just(64_u8), 1 => select(vec![0, 1, 2, 255])];
    (
        source4(),
        address4(),
        payload(),
        fragment,
        words,
        sealed,
        ttl,
        select(vec![1_u8, 6, 17, 50, 132]),
        any::<(u8, u16)>(),
    )
        .prop_map(|(from, to, payload, fragment, words, sealed, ttl, protocol, (tos, id))| {
            let mut packet = vec![0x40 | words, tos, 0, 0];
            packet.extend(id.to_be_bytes());
            packet.extend(fragment.to_be_bytes());
            packet.extend([ttl, protocol, 0, 0]);
            packet.extend([from, to].concat());
            packet.resize(usize::from(words.max(5)) * 4, 1);
            packet.extend(payload);
            let length = u16::try_from(packet.len()).unwrap();
            packet[2..4].copy_from_slice(&length.to_be_bytes());
            if sealed {
                seal(&mut packet[..usize::from(words.max(5)) * 4]);
            }
            (0x0800, packet)
        })
}

fn packet6() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let next =
        prop_oneof![6 => select(vec![6_u8, 17, 58, 50]), 1 => select(vec![0_u8, 43, 44, 60, 51, 59, 135])];
    let hops = prop_oneof![4 => Just(64_u8), 1 => select(vec![0, 1, 2, 255])];
    (source6(), address6(), payload(), next, hops, any::<[u8; 3]>()).prop_map(
        |(from, to, payload, next, hops, label)| {
            let mut packet = vec![0x60 | label[0] >> 4, label[0] << 4 | label[1] >> 4, label[1], label[2]];
            packet.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
            packet.extend([next, hops]);
            packet.extend([from, to].concat());
            packet.extend(payload);
            (0x86dd, packet)
        },
    )
}

/// Generates frames that are sometimes longer than their packet, truncated, or changed in one byte.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let packet = prop_oneof![packet4(), packet6()];
    let to = prop_oneof![
        12 => Just(NEAR[0]),
        1 => select(vec![NEAR[1], FAR[1], [0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 1]])
    ];
    let behind = prop_oneof![3 => Just(0_usize), 1 => 1..80_usize];
    let cut = weighted(0.08, any::<prop::sample::Index>());
    let change = weighted(0.15, (any::<prop::sample::Index>(), any::<u8>()));
    (packet, to, behind, cut, change).prop_map(|((ethertype, packet), to, behind, cut, change)| {
        let mut frame = ethernet(to, ethertype, &packet);
        frame.resize((frame.len() + behind).min(1514), 0xa5);
        if let Some((at, byte)) = change {
            let at = at.index(frame.len().min(60));
            frame[at] = byte;
        }
        if let Some(cut) = cut {
            frame.truncate(14 + cut.index(frame.len() - 13));
        }
        frame
    })
}

/// Sockets to observe which frames f2 and f3 receive when only the kernel's stack processes a frame.
struct Stack {
    into: PacketSocket,
    out: [PacketSocket; 2],
    barriers: [Vec<u8>; 2],
}

impl Stack {
    fn new(router: &Router) -> Stack {
        let barrier = |to: [u8; 4]| ipv4(Ipv4Addr::from(to), 60, |ip| ip[9] = BARRIER);
        Stack {
            into: PacketSocket::on(router.far[0]),
            out: [1, 2].map(|at| PacketSocket::on(router.far[at])),
            barriers: [barrier([10, 0, 2, 2]), barrier([10, 0, 3, 2])],
        }
    }

    fn forwards(&self, sent: &[u8]) -> Vec<Vec<u8>> {
        self.into.send(sent);
        self.barriers.iter().for_each(|barrier| self.into.send(barrier));
        let mut came = Vec::new();
        for socket in &self.out {
            loop {
                let frame = socket.receive().expect("a barrier was lost");
                if frame.get(12..14) == Some(&[8, 0]) && frame[23] == BARRIER {
                    break;
                }
                // Packets that the kernel itself sends (neighbour resolution, ICMP errors, resets) are skipped, because
                // they are not forwarded packets.
                let is_for_neighbour = frame.get(..6) == Some(&FAR[1]) || frame.get(..6) == Some(&FAR[2]);
                if is_for_neighbour && (!is_routers_own(&frame) || is_routers_own(sent)) {
                    came.push(frame);
                }
            }
        }
        came
    }
}

/// Returns whether the source of a frame is an address of the router.
fn is_routers_own(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([0x08, 0x00]) => matches!(frame.get(26..30), Some([10, 0, 1..=3, 1])),
        Some([0x86, 0xdd]) => frame.get(22..38).is_some_and(|source| {
            let own = |net| Ipv6Addr::new(0xfd00, net, 0, 0, 0, 0, 0, 1).octets();
            source.starts_with(&[0xfe, 0x80]) || (1..=3).any(|net| source == own(net))
        }),
        _ => false,
    }
}

fn agree(port: FibPort, rp_filter: u8, cases: u32) {
    let router = Router::new();
    router.check_sources(rp_filter);
    // The answers to the sender are not examined, and rate limiting would slow the test down.
    sh("echo 0 > /proc/sys/net/ipv4/icmp_ratelimit");
    let (_, loaded) = router.stage(&port);
    let stack = Stack::new(&router);
    let (hook, both) = (Cell::new(0_u32), Cell::new(0_u32));
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&frame(), |frame| {
        let (verdict, counter, after) = router.see(&loaded, &frame);
        let came = stack.forwards(&frame);
        both.set(both.get() + u32::from(!came.is_empty()));
        if verdict == Verdict::Pass {
            prop_assert_eq!(&after, &frame, "{}", counter);
            return Ok(());
        }
        hook.set(hook.get() + 1);
        prop_assert_eq!(came.len(), 1, "the hook forwards ({}), the stack does not: {:02x?}", counter, came);
        let (same, padding) = after.split_at_checked(came[0].len()).unwrap_or((&after, &[]));
        prop_assert_eq!(same, &came[0][..]);
        prop_assert!(padding.is_empty() || after.len() <= 60);
        Ok(())
    });
    outcome.unwrap();
    let (hook, both) = (hook.get(), both.get());
    assert!(hook * 3 > cases, "only {hook} of {cases} in the hook");
    assert!(hook * 4 > both * 3, "{hook} of {both} that are forwarded are in the hook");
}

#[test]
fn the_hook_forwards_as_the_stack_does() {
    need_root!();
    agree(Router::port(), 0, 6000);
}

#[test]
fn the_hook_forwards_as_the_stack_does_that_checks_sources() {
    need_root!();
    agree(FibPort { check_sources: true, ..Router::port() }, 1, 2000);
}
