//! Tests of the traffic generator and of the programs that drop, pass or redirect its frames, on veth devices.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use support::{Namespace, PacketSocket, sh};
use xdp::AttachMode;
use xdp::live::{Generator, Order, Pass, Protocol, Redirect, Sink, Sunk, Traffic, Vary, scattered};

const ALL_VARY: Vary =
    Vary { ports: true, source_mac: true, destination_mac: true, destination: true, source: true };

/// Returns a generator whose program is attached to the transmitting device ([`Traffic::park`]). The attach may have to
/// be repeated, because a program that was detached may stay on the device for a short time: a process that another
/// test forks holds the link until the process calls exec.
fn parked(traffic: &Traffic) -> Generator {
    support::awaited("a parked generator", || {
        Some(Generator::new(traffic).unwrap()).filter(|generator| generator.parked())
    })
}

#[test]
fn sends_exactly_what_is_asked() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (a, b) = namespace.veth("va", "vb", "");
    let sink = Sink::attach(b, AttachMode::Native).unwrap();
    let mut expected = Sunk::default();
    for (length, packets) in [(60, 1), (60, 63), (64, 64), (1514, 65), (512, 10_000)] {
        let mut generator = parked(&Traffic { length, ..Traffic::to(a) });
        assert_eq!(generator.send(packets).unwrap().packets, packets);
        expected.packets += packets;
        expected.bytes += packets * u64::from(length);
        assert_eq!(sink.sunk().unwrap(), expected);
    }
}

#[test]
fn sends_from_a_device_that_is_taken() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (a, b) = namespace.veth("va", "vb", "");
    let sink = Sink::attach(b, AttachMode::Native).unwrap();
    let _taken = Pass::attach(a, AttachMode::Native).unwrap();
    let mut generator = Generator::new(&Traffic::to(a)).unwrap();
    assert!(!generator.parked());
    assert_eq!(generator.send(1000).unwrap().packets, 1000);
    assert_eq!(sink.sunk().unwrap().packets, 1000);
}

#[test]
fn keeps_to_its_rate() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (a, b) = namespace.veth("va", "vb", "");
    let sink = Sink::attach(b, AttachMode::Native).unwrap();
    let mut generator = Generator::new(&Traffic { rate: Some(20_000), ..Traffic::to(a) }).unwrap();
    let offered = generator.run_until(&AtomicBool::new(false), Duration::from_millis(500)).unwrap();
    // The upper bound is independent of the machine. The lower bound allows for a busy machine.
    let ceiling = 20_000.0 * (offered.elapsed.as_secs_f64() + 0.002);
    assert!(offered.packets as f64 <= ceiling, "{offered:?}");
    assert!(offered.packets >= 5_000, "{offered:?}");
    assert_eq!(sink.sunk().unwrap().packets, offered.packets);
}

#[test]
fn stops_when_told() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (a, b) = namespace.veth("va", "vb", "");
    let _sink = Sink::attach(b, AttachMode::Native).unwrap();
    let mut generator = Generator::new(&Traffic::to(a)).unwrap();
    let offered = generator.run_until(&AtomicBool::new(true), Duration::from_secs(60)).unwrap();
    assert_eq!(offered.packets, 0);
}

/// Sends `packets` frames on a veth device, and returns the frames that the peer device receives.
fn received(traffic: &Traffic, namespace: &Namespace, packets: u64) -> Vec<Vec<u8>> {
    let (a, b) = namespace.veth("va", "vb", "");
    let _pass = Pass::attach(b, AttachMode::Native).unwrap();
    let socket = PacketSocket::on(b);
    let mut generator = Generator::new(&Traffic { ifindex: a, ..traffic.clone() }).unwrap();
    generator.send(packets).unwrap();
    let frames = (0..packets).map(|_| socket.receive().unwrap()).collect();
    namespace.ip("link del va");
    frames
}

/// Returns the one's complement sum over the IP header, which is 0xffff if the header checksum is correct.
fn header_sum(frame: &[u8]) -> u16 {
    let mut sum: u32 =
        frame[14..34].chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

#[test]
fn flows_differ_where_they_should_and_headers_are_valid() {
    need_root!();
    let namespace = Namespace::enter_new();
    let base = Traffic { length: 100, flows: 16, destination_shift: 8, ..Traffic::to(0) };
    for protocol in [Protocol::Udp, Protocol::Tcp] {
        for vlan in [None, Some(5)] {
            let traffic = Traffic { vary: ALL_VARY, protocol, vlan, ..base.clone() };
            let frames = received(&traffic, &namespace, 48);
            // The kernel removes the tag from the frame.
            assert!(frames.iter().all(|f| f.len() == if vlan.is_some() { 96 } else { 100 }));
            assert!(frames.iter().all(|f| header_sum(f) == 0xffff), "{frames:02x?}");
            let distinct = |part: std::ops::Range<usize>| -> BTreeSet<Vec<u8>> {
                frames.iter().map(|f| f[part.clone()].to_vec()).collect()
            };
            assert_eq!(distinct(0..6).len(), 16);
            assert_eq!(distinct(6..12).len(), 16);
            assert_eq!(distinct(34..38).len(), 16);
            let destinations: BTreeSet<Vec<u8>> =
                (2..18).map(|third| Ipv4Addr::new(10, 0, third, 2).octets().to_vec()).collect();
            assert_eq!(distinct(30..34), destinations);
            let sources: BTreeSet<Vec<u8>> = (0..16).map(|flow| scattered(flow).octets().to_vec()).collect();
            assert_eq!(distinct(26..30), sources);
        }
    }
    let alike = received(&base, &namespace, 48);
    assert_eq!(alike.iter().collect::<BTreeSet<_>>().len(), 1);
}

#[test]
fn random_order_is_repeatable_and_reaches_all_flows() {
    need_root!();
    let namespace = Namespace::enter_new();
    let vary = Vary { source_mac: true, ..Vary::default() };
    let with = |order| Traffic { flows: 8, vary, order, ..Traffic::to(0) };
    let in_turn = received(&with(Order::InTurn), &namespace, 64);
    let random = received(&with(Order::Random(7)), &namespace, 64);
    assert_eq!(random, received(&with(Order::Random(7)), &namespace, 64));
    assert_ne!(random, received(&with(Order::Random(8)), &namespace, 64));
    assert_ne!(random, in_turn);
    let set = |frames: &[Vec<u8>]| frames.iter().cloned().collect::<BTreeSet<_>>();
    assert_eq!(set(&random), set(&in_turn));
}

/// The generator reuses the memory of sent frames, which the receiver may have changed. The generator must write all
/// headers again. In this test the receiver is the kernel, which routes the frames and thereby rewrites both MAC
/// addresses and the TTL.
#[test]
fn headers_are_written_anew() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (a, b) = namespace.veth("va", "vb", "");
    let (_c, d) = namespace.veth("vc", "vd", "");
    let frames = {
        namespace.ip("link set dev vb address 02:00:00:00:00:02");
        sh("sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0");
        namespace.ip("addr add 10.0.1.1/24 dev vb");
        namespace.ip("addr add 10.0.2.1/24 dev vc");
        namespace.ip("neigh add 10.0.2.2 lladdr 02:00:00:00:00:09 dev vc nud permanent");
        let _pass = Pass::attach(b, AttachMode::Native).unwrap();
        let socket = PacketSocket::on(d);
        let mut generator = Generator::new(&Traffic { rate: Some(20_000), ..Traffic::to(a) }).unwrap();
        generator.send(1000).unwrap();
        (0..1000).map(|_| socket.receive().unwrap()).collect::<Vec<_>>()
    };
    for frame in frames {
        assert_eq!(&frame[..6], &[2, 0, 0, 0, 0, 9]);
        assert_eq!(frame[22], 63, "the TTL was lowered once");
        assert_eq!(header_sum(&frame), 0xffff);
    }
}

#[test]
fn redirect_forwards_everything() {
    need_root!();
    let namespace = Namespace::enter_new();
    let (a, b) = namespace.veth("va", "vb", "");
    let (c, d) = namespace.veth("vc", "vd", "");
    let sink = Sink::attach(d, AttachMode::Native).unwrap();
    let redirect = Redirect::attach(b, c, AttachMode::Native).unwrap();
    assert!(redirect.info().unwrap().instructions > 0);
    let mut generator = Generator::new(&Traffic::to(a)).unwrap();
    generator.send(100_000).unwrap();
    assert_eq!(sink.sunk().unwrap(), Sunk { packets: 100_000, bytes: 6_000_000 });
}
