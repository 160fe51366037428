//! Tests every verdict of the port's XDP program. The tests run the BPF object that is attached in production, with
//! `BPF_PROG_TEST_RUN`.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use support::{LOCAL4, LOCAL6, config, ethernet, frame4, frame6, ipv4, ipv6, locals, to_us, unbound_socket};
use xdp::{Counter, Loaded, LocalAddresses, Owner, PortProgram, ProgramConfig, Verdict, WhenDown};

const REMOTE4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const REMOTE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xf, 0, 0, 0, 0, 7);
const OWNERS: [Owner; 2] = [Owner::Bridged, Owner::Routed];

/// A loaded program and, if requested, an AF_XDP socket for its receive queue.
struct Port {
    loaded: Loaded,
    _socket: Option<std::os::fd::OwnedFd>,
}

impl Port {
    fn new(owner: Owner, when_down: WhenDown, socket: bool) -> Port {
        let loaded = PortProgram::load(&config(owner, when_down)).unwrap();
        let socket = socket.then(unbound_socket);
        if let Some(socket) = &socket {
            loaded.set_socket(0, socket.as_fd()).unwrap();
        }
        Port { loaded, _socket: socket }
    }

    /// Runs the program on a frame. Returns the verdict and the only counter that changed. The program must not change
    /// the frame.
    fn see(&self, frame: &[u8]) -> (Verdict, Counter) {
        let before = self.loaded.counters().unwrap();
        let run = self.loaded.test_run(frame).unwrap();
        let after = self.loaded.counters().unwrap();
        assert_eq!(run.frame, frame, "no stage of today writes");
        let moved: Vec<Counter> =
            Counter::ALL.into_iter().filter(|c| after.get(*c) != before.get(*c)).collect();
        assert_eq!(after.seen(), before.seen() + 1, "one count per frame");
        assert_eq!(moved.len(), 1, "one way out: {moved:?}");
        (run.verdict, moved[0])
    }
}

#[track_caller]
fn expect_kernel(frame: &[u8], reason: Counter) {
    for when_down in [WhenDown::Pass, WhenDown::Drop] {
        for socket in [false, true] {
            let port = Port::new(Owner::Routed, when_down, socket);
            assert_eq!(port.see(frame), (Verdict::Pass, reason));
        }
    }
}

#[track_caller]
fn expect_socket(owner: Owner, frame: &[u8]) {
    let up = Port::new(owner, WhenDown::Drop, true);
    assert_eq!(up.see(frame), (Verdict::Redirect, Counter::Steered));
    let pass = Port::new(owner, WhenDown::Pass, false);
    assert_eq!(pass.see(frame), (Verdict::Pass, Counter::DownPassed));
    let drop = Port::new(owner, WhenDown::Drop, false);
    assert_eq!(drop.see(frame), (Verdict::Drop, Counter::DownDropped));
}

fn arp() -> Vec<u8> {
    ethernet([0xff; 6], &[], 0x0806, &[0; 46])
}

#[test]
fn bridged_port_gives_the_kernel_nothing() {
    need_root!();
    let frames = [
        arp(),
        ethernet([1, 0x80, 0xc2, 0, 0, 0x0e], &[], 0x88cc, &[0; 46]),
        ethernet([1, 0x80, 0xc2, 0, 0, 2], &[], 0x8809, &[0; 110]),
        frame4(LOCAL4, |_| {}),
        frame4(REMOTE4, |_| {}),
        frame6(LOCAL6, 17, &[0; 8]),
        frame4(REMOTE4, |ip| ip[6] = 0x20),
        ethernet(to_us(), &[(0x8100, 5)], 0x0800, &ipv4(LOCAL4, |_| {})),
        ethernet(to_us(), &[], 0x0800, &[]),
    ];
    for frame in frames {
        expect_socket(Owner::Bridged, &frame);
    }
}

#[test]
fn routed_port_leaves_other_protocols_to_the_kernel() {
    need_root!();
    expect_kernel(&arp(), Counter::PassedControl);
    // ARP to one station, LLDP, LACP, an 802.3 length followed by STP, MPLS.
    for (to, ethertype) in [
        (to_us(), 0x0806),
        ([1, 0x80, 0xc2, 0, 0, 0x0e], 0x88cc),
        ([1, 0x80, 0xc2, 0, 0, 2], 0x8809),
        ([1, 0x80, 0xc2, 0, 0, 0], 0x0026),
        (to_us(), 0x8847),
    ] {
        expect_kernel(&ethernet(to, &[], ethertype, &[0; 46]), Counter::PassedControl);
    }
}

#[test]
fn routed_port_leaves_groups_to_the_kernel() {
    need_root!();
    let broadcast = ethernet([0xff; 6], &[], 0x0800, &ipv4(REMOTE4, |_| {}));
    expect_kernel(&broadcast, Counter::PassedGroup);
    let ospf = ethernet([1, 0, 0x5e, 0, 0, 5], &[], 0x0800, &ipv4(Ipv4Addr::new(224, 0, 0, 5), |_| {}));
    expect_kernel(&ospf, Counter::PassedGroup);
    // Multicast addresses in a unicast frame, the limited broadcast address, and the first and last addresses of
    // 224.0.0.0/3.
    for to in [[224, 0, 0, 0], [239, 255, 255, 255], [240, 0, 0, 1], [255, 255, 255, 255]] {
        expect_kernel(&frame4(Ipv4Addr::from(to), |_| {}), Counter::PassedGroup);
    }
    expect_socket(Owner::Routed, &frame4(Ipv4Addr::new(223, 255, 255, 255), |_| {}));
    let mld =
        ethernet([0x33, 0x33, 0, 0, 0, 0x16], &[], 0x86dd, &ipv6("ff02::16".parse().unwrap(), 0, &[0; 8]));
    expect_kernel(&mld, Counter::PassedGroup);
    expect_kernel(&frame6("ff0e::1".parse().unwrap(), 17, &[0; 8]), Counter::PassedGroup);
}

#[test]
fn routed_port_leaves_local_addresses_to_the_kernel() {
    need_root!();
    expect_kernel(&frame4(LOCAL4, |_| {}), Counter::PassedLocal4);
    expect_kernel(&frame6(LOCAL6, 17, &[0; 8]), Counter::PassedLocal6);
    // Fragments, expired packets and options to local addresses belong to the kernel as well.
    expect_kernel(&frame4(LOCAL4, |ip| ip[6] = 0x20), Counter::PassedLocal4);
    expect_kernel(&frame4(LOCAL4, |ip| ip[8] = 0), Counter::PassedLocal4);
    expect_kernel(&frame4(LOCAL4, |ip| ip[0] = 0x46), Counter::PassedLocal4);
    expect_kernel(&frame6("fe80::1".parse().unwrap(), 58, &[0; 8]), Counter::PassedLocal6);
    expect_kernel(&frame6("febf::1".parse().unwrap(), 58, &[0; 8]), Counter::PassedLocal6);
    expect_socket(Owner::Routed, &frame6("fec0::1".parse().unwrap(), 58, &[0; 8]));
}

#[test]
fn routed_port_gives_transit_to_the_socket() {
    need_root!();
    expect_socket(Owner::Routed, &frame4(REMOTE4, |_| {}));
    expect_socket(Owner::Routed, &frame6(REMOTE6, 17, &[0; 8]));
    // The router answers expired packets and reads options. "Don't fragment" does not make a fragment.
    for ttl in [0, 1, 255] {
        expect_socket(Owner::Routed, &frame4(REMOTE4, |ip| ip[8] = ttl));
    }
    expect_socket(Owner::Routed, &frame4(REMOTE4, |ip| ip[0] = 0x4a));
    expect_socket(Owner::Routed, &frame4(REMOTE4, |ip| ip[6] = 0x40));
    // Addresses that differ from the local addresses in one bit.
    expect_socket(Owner::Routed, &frame4(Ipv4Addr::from_bits(LOCAL4.to_bits() ^ 1), |_| {}));
    expect_socket(Owner::Routed, &frame6(Ipv6Addr::from_bits(LOCAL6.to_bits() ^ (1 << 64)), 17, &[]));
    // Padding after the packet.
    let mut padded = frame4(REMOTE4, |_| {});
    padded.extend([0; 20]);
    expect_socket(Owner::Routed, &padded);
}

#[test]
fn routed_port_leaves_fragments_to_the_kernel() {
    need_root!();
    for (flags, offset) in [(0x20, 0), (0x20, 8), (0, 1), (0x1f, 0xff), (0x60, 0)] {
        let frame = frame4(REMOTE4, |ip| {
            ip[6] = flags;
            ip[7] = offset;
        });
        expect_kernel(&frame, Counter::PassedFragment);
    }
    let fragment = [17, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    expect_kernel(&frame6(REMOTE6, 44, &fragment), Counter::PassedFragment);
    // A fragment header after hop-by-hop (16 bytes), routing and authentication (24 bytes) headers.
    let mut chain = vec![43, 1];
    chain.extend([0; 14]);
    chain.extend([51, 0, 0, 0, 0, 0, 0, 0]);
    chain.extend([44, 4]);
    chain.extend([0; 22]);
    chain.extend(fragment);
    expect_kernel(&frame6(REMOTE6, 0, &chain), Counter::PassedFragment);
}

#[test]
fn routed_port_walks_ipv6_extensions() {
    need_root!();
    let options = |count: usize, last: u8| -> Vec<u8> {
        let headers = (0..count).map(|i| if i + 1 == count { last } else { 60 });
        headers.flat_map(|next| [next, 0, 1, 4, 0, 0, 0, 0]).collect()
    };
    for count in 1..=5 {
        let mut payload = options(count, 17);
        payload.extend([0; 8]);
        expect_socket(Owner::Routed, &frame6(REMOTE6, 60, &payload));
    }
    // More extension headers than the hook examines, and a header that is longer than the frame.
    expect_kernel(&frame6(REMOTE6, 60, &options(6, 17)), Counter::PassedMalformed);
    expect_kernel(&frame6(REMOTE6, 60, &[60, 200, 0, 0, 0, 0, 0, 0]), Counter::PassedMalformed);
    // Packets to local addresses belong to the kernel whatever headers follow.
    expect_kernel(&frame6(LOCAL6, 60, &options(6, 17)), Counter::PassedLocal6);
}

#[test]
fn routed_port_leaves_malformed_headers_to_the_kernel() {
    need_root!();
    let bad: [fn(&mut [u8]); 6] = [
        |ip| ip[0] = 0x55,
        |ip| ip[0] = 0x44,
        |ip| ip[0] = 0x4f,
        |ip| ip[3] = 19,
        |ip| ip[3] = 41,
        |ip| ip[2] = 0xff,
    ];
    for edit in bad {
        // Also with a local destination, because malformed packets are not looked up.
        for to in [REMOTE4, LOCAL4] {
            expect_kernel(&frame4(to, edit), Counter::PassedMalformed);
        }
    }
    let mut packet = ipv6(REMOTE6, 17, &[0; 8]);
    packet[5] = 9;
    expect_kernel(&ethernet(to_us(), &[], 0x86dd, &packet), Counter::PassedMalformed);
    packet[5] = 8;
    packet[0] = 0x40;
    expect_kernel(&ethernet(to_us(), &[], 0x86dd, &packet), Counter::PassedMalformed);
    // A jumbogram has a length field of 0 (RFC 2675).
    let mut jumbo = ipv6(REMOTE6, 0, &[17, 0, 0xc2, 4, 0, 1, 0, 0]);
    jumbo[5] = 0;
    expect_kernel(&ethernet(to_us(), &[], 0x86dd, &jumbo), Counter::PassedMalformed);
}

#[test]
fn vlan_tags_are_looked_through() {
    need_root!();
    let stacks: [&[(u16, u16)]; 5] = [
        &[(0x8100, 1)],
        &[(0x88a8, 100)],
        &[(0x8100, 0xe000)],
        &[(0x88a8, 100), (0x8100, 7)],
        &[(0x8100, 100), (0x8100, 7)],
    ];
    for tags in stacks {
        expect_kernel(&ethernet(to_us(), tags, 0x0800, &ipv4(LOCAL4, |_| {})), Counter::PassedLocal4);
        expect_kernel(&ethernet(to_us(), tags, 0x86dd, &ipv6(LOCAL6, 17, &[0; 8])), Counter::PassedLocal6);
        expect_kernel(&ethernet([0xff; 6], tags, 0x0806, &[0; 46]), Counter::PassedControl);
        expect_socket(Owner::Routed, &ethernet(to_us(), tags, 0x0800, &ipv4(REMOTE4, |_| {})));
        expect_socket(Owner::Routed, &ethernet(to_us(), tags, 0x86dd, &ipv6(REMOTE6, 17, &[0; 8])));
    }
    let three = [(0x88a8, 1), (0x8100, 2), (0x8100, 3)];
    expect_kernel(&ethernet(to_us(), &three, 0x0800, &ipv4(REMOTE4, |_| {})), Counter::PassedControl);
}

#[test]
fn frames_truncated_at_every_byte_are_never_aborted() {
    need_root!();
    let mut chain = vec![60, 0, 1, 4, 0, 0, 0, 0];
    chain.extend([17, 0, 1, 4, 0, 0, 0, 0]);
    chain.extend([0; 8]);
    let whole = [
        arp(),
        frame4(REMOTE4, |_| {}),
        frame4(REMOTE4, |ip| ip[0] = 0x4a),
        frame6(REMOTE6, 0, &chain),
        ethernet(to_us(), &[(0x88a8, 1), (0x8100, 2)], 0x0800, &ipv4(REMOTE4, |_| {})),
        ethernet(to_us(), &[(0x88a8, 1), (0x8100, 2)], 0x86dd, &ipv6(REMOTE6, 17, &[0; 8])),
    ];
    for owner in OWNERS {
        let port = Port::new(owner, WhenDown::Drop, true);
        for frame in &whole {
            // The kernel never passes less than an Ethernet header to a program.
            for length in 14..frame.len() {
                let (verdict, counter) = port.see(&frame[..length]);
                if owner == Owner::Bridged || (verdict, counter) == (Verdict::Redirect, Counter::Steered) {
                    assert_eq!((verdict, counter), (Verdict::Redirect, Counter::Steered));
                    assert_eq!(owner, Owner::Bridged, "{length} bytes of {frame:02x?}");
                } else {
                    assert_eq!(verdict, Verdict::Pass, "{length} bytes of {frame:02x?}");
                }
            }
        }
        assert_eq!(port.loaded.counters().unwrap().get(Counter::Aborted), 0);
    }
}

/// Changes the header bytes that the program examines, in a pseudo-random but repeatable way. For every frame, the
/// program returns a valid verdict and increments one counter.
#[test]
fn mutated_frames_leave_one_known_way() {
    need_root!();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let port = Port::new(Owner::Routed, WhenDown::Drop, true);
    let seeds = [
        frame4(REMOTE4, |_| {}),
        frame6(REMOTE6, 0, &[17, 0, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ethernet(to_us(), &[(0x8100, 5)], 0x0800, &ipv4(LOCAL4, |_| {})),
    ];
    for round in 0..3000_u64 {
        let mut frame = seeds[usize::try_from(round % 3).unwrap()].clone();
        for _ in 0..1 + random() % 4 {
            let at = usize::try_from(random()).unwrap() % frame.len();
            frame[at] = random().to_le_bytes()[0];
        }
        frame.truncate(14 + usize::try_from(random()).unwrap() % (frame.len() - 13));
        let (verdict, counter) = port.see(&frame);
        match verdict {
            Verdict::Redirect => assert_eq!(counter, Counter::Steered),
            Verdict::Pass => assert!(!matches!(counter, Counter::Steered | Counter::Aborted)),
            other => panic!("{other:?} for {frame:02x?}"),
        }
    }
}

#[test]
fn multi_buffer_frames_are_taken() {
    need_root!();
    let jumbo = |to: Ipv4Addr, total: u16| {
        let mut frame = frame4(to, |ip| ip[2..4].copy_from_slice(&total.to_be_bytes()));
        frame.resize(14 + 8986, 0xa5);
        frame
    };
    for owner in OWNERS {
        expect_socket(owner, &jumbo(REMOTE4, 8986));
    }
    expect_kernel(&jumbo(LOCAL4, 8986), Counter::PassedLocal4);
    expect_kernel(&jumbo(REMOTE4, 8987), Counter::PassedMalformed);
}

#[test]
fn queues_beyond_the_map_follow_when_down() {
    need_root!();
    let namespace = support::Namespace::enter_new();
    let (ifindex, _) = namespace.veth("a", "b", "numrxqueues 2 numtxqueues 2");
    let one = PortProgram::load(&config(Owner::Bridged, WhenDown::Drop)).unwrap();
    let socket = unbound_socket();
    one.set_socket(0, socket.as_fd()).unwrap();
    let frame = frame4(REMOTE4, |_| {});
    let on = |queue| one.test_run_from(&frame, Some((ifindex, queue)), 1).unwrap().verdict;
    assert_eq!((on(0), on(1)), (Verdict::Redirect, Verdict::Drop));
    assert!(matches!(
        one.set_socket(1, socket.as_fd()),
        Err(xdp::Error::QueueOutOfRange { queue: 1, queues: 1, .. })
    ));
}

#[test]
fn closing_a_socket_empties_its_slot() {
    need_root!();
    let loaded = PortProgram::load(&config(Owner::Bridged, WhenDown::Drop)).unwrap();
    let socket = unbound_socket();
    loaded.set_socket(0, socket.as_fd()).unwrap();
    let frame = frame4(REMOTE4, |_| {});
    assert_eq!(loaded.test_run(&frame).unwrap().verdict, Verdict::Redirect);
    drop(socket);
    assert_eq!(loaded.test_run(&frame).unwrap().verdict, Verdict::Drop);
}

#[test]
fn other_descriptors_are_refused_as_sockets() {
    need_root!();
    let loaded = PortProgram::load(&config(Owner::Bridged, WhenDown::Drop)).unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let error = loaded.set_socket(0, file.as_fd()).unwrap_err();
    assert!(matches!(error, xdp::Error::Socket { queue: 0, .. }), "{error}");
}

#[test]
fn local_addresses_are_replaced_whole() {
    need_root!();
    let mut loaded = PortProgram::load(&config(Owner::Routed, WhenDown::Drop)).unwrap();
    let verdict = |loaded: &Loaded, to| loaded.test_run(&frame4(to, |_| {})).unwrap().verdict;
    assert_eq!((verdict(&loaded, LOCAL4), verdict(&loaded, REMOTE4)), (Verdict::Pass, Verdict::Drop));
    let mut other = LocalAddresses::default();
    other.v4.insert(REMOTE4);
    loaded.update_locals(&other).unwrap();
    assert_eq!((verdict(&loaded, LOCAL4), verdict(&loaded, REMOTE4)), (Verdict::Drop, Verdict::Pass));
    let run6 = loaded.test_run(&frame6(LOCAL6, 17, &[])).unwrap();
    assert_eq!(run6.verdict, Verdict::Drop, "the IPv6 addresses were not in the new set");
}

#[test]
fn local_addresses_fill_the_map_and_no_more() {
    need_root!();
    let range = |from: u32, count: usize| -> LocalAddresses {
        let count = u32::try_from(count).unwrap();
        LocalAddresses { v4: (from..from + count).map(Ipv4Addr::from_bits).collect(), ..locals() }
    };
    let capacity = xdp::LOCAL_CAPACITY;
    let full =
        ProgramConfig { locals: range(0x0a00_0000, capacity), ..config(Owner::Routed, WhenDown::Drop) };
    let mut loaded = PortProgram::load(&full).unwrap();
    // The new addresses are all different from the old ones, and the map has no space for both sets.
    loaded.update_locals(&range(0x0b00_0000, capacity)).unwrap();
    let verdict = |to| loaded.test_run(&frame4(Ipv4Addr::from_bits(to), |_| {})).unwrap().verdict;
    assert_eq!(verdict(0x0a00_0000), Verdict::Drop);
    assert_eq!(verdict(0x0b00_0000), Verdict::Pass);
    assert_eq!(verdict(0x0b00_0fff), Verdict::Pass);
    let too_many = loaded.update_locals(&range(0x0c00_0000, capacity + 1));
    assert!(matches!(too_many, Err(xdp::Error::LocalsFull { family: "IPv4", count: 4097, .. })));
}

#[test]
fn impossible_queue_counts_are_refused() {
    need_root!();
    for queues in [0, 65_537] {
        let config = ProgramConfig { queues, ..config(Owner::Bridged, WhenDown::Drop) };
        assert!(matches!(PortProgram::load(&config), Err(xdp::Error::Queues { .. })));
    }
}
