//! Tests of the virtual router stage: every reason for passing a frame to the kernel (with `BPF_PROG_TEST_RUN`), random
//! frames compared with a simple implementation, changes of the router's own addresses, adoption by a successor, and a
//! host that uses a router with an AF_XDP socket.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod changes;
mod random_frames;
mod successor;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use packet::net::FiveTuple;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use support::router::{NEAR, ethernet, ipv4, ipv6, seal};
use support::xsk::Xsk;
use support::{Namespace, PacketSocket, awaited, config, enter, eventually, sh, unbound_socket};
use xdp::StageChange;
use xdp::bridge::{BridgeDevices, BridgePort, BridgeStage, StationTable};
use xdp::dump::{Dump, DumpConfig};
use xdp::fib::{FibPort, FibStage};
use xdp::filter::{Action, Compiled, Filter, FilterSizes, Match, Rule, RuleSet};
use xdp::route::{OWN_CAPACITY, Own, RoutePort, RouteStage};
use xdp::steer::{FlowEntry, STEER_BUCKETS, SteerConfig, SteerTo, Steering};
use xdp::{
    AttachMode, Attached, Counter, Error, Loaded, Owner, PinPath, PortProgram, Verdict, WhenDown, adopt,
};

const OWN4: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
/// A broadcast address of the router's subnet.
const BROADCAST4: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 255);
const OWN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 1);
const BEHIND: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const BEHIND6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
/// Configuration of the port that receives the frames of the tests.
const PORT: RoutePort = RoutePort { mac: NEAR[0], vrrp: false };
const VRRP: RoutePort = RoutePort { vrrp: true, ..PORT };

fn addresses() -> BTreeSet<IpAddr> {
    [OWN4.into(), BROADCAST4.into(), OWN6.into()].into()
}

fn own() -> Own {
    let mut own = Own::new("blue").unwrap();
    own.replace_all(&addresses()).unwrap();
    own
}

fn load(port: &RoutePort, own: &Own, when_down: WhenDown) -> Loaded {
    PortProgram::load_routed(&config(Owner::Routed, when_down), &RouteStage::new(port, own)).unwrap()
}

/// Runs the program on a frame. Returns the verdict and the only counter that changed. The program must not change the
/// frame.
fn see(loaded: &Loaded, frame: &[u8]) -> (Verdict, Counter) {
    let before = loaded.counters().unwrap();
    let run = loaded.test_run(frame).unwrap();
    let after = loaded.counters().unwrap();
    assert_eq!(run.frame, frame, "nobody writes");
    let moved: Vec<Counter> = Counter::ALL.into_iter().filter(|c| after.get(*c) != before.get(*c)).collect();
    assert_eq!((moved.len(), after.seen()), (1, before.seen() + 1), "{moved:?}");
    (run.verdict, moved[0])
}

/// Four programs of a router's port: one with a socket, two without a socket, for the two values of `when_down`, and
/// one of a closed port, with a socket.
struct Rig {
    up: Loaded,
    pass: Loaded,
    drop: Loaded,
    closed: Loaded,
    _socket: OwnedFd,
}

impl Rig {
    fn new(port: &RoutePort) -> Rig {
        let own = own();
        let (up, socket) = (load(port, &own, WhenDown::Drop), unbound_socket());
        up.set_socket(0, socket.as_fd()).unwrap();
        let (pass, drop) = (load(port, &own, WhenDown::Pass), load(port, &own, WhenDown::Drop));
        let stage = RouteStage::new(port, &own);
        let closed = PortProgram::load_routed(&config(Owner::Closed, WhenDown::Pass), &stage).unwrap();
        closed.set_socket(0, socket.as_fd()).unwrap();
        Rig { up, pass, drop, closed, _socket: socket }
    }

    #[track_caller]
    fn goes_up(&self, frame: &[u8]) {
        assert_eq!(see(&self.up, frame), (Verdict::Redirect, Counter::Steered));
        assert_eq!(see(&self.pass, frame), (Verdict::Pass, Counter::DownPassed));
        assert_eq!(see(&self.drop, frame), (Verdict::Drop, Counter::DownDropped));
        assert_eq!(see(&self.closed, frame), (Verdict::Drop, Counter::DownDropped));
    }

    #[track_caller]
    fn stays(&self, frame: &[u8], why: Counter) {
        for loaded in [&self.up, &self.pass, &self.drop] {
            assert_eq!(see(loaded, frame), (Verdict::Pass, why));
        }
        assert_eq!(see(&self.closed, frame), (Verdict::Drop, Counter::DownDropped));
    }
}

/// Returns the frame with another destination Ethernet address.
fn to(mac: [u8; 6], frame: &[u8]) -> Vec<u8> {
    [&mac[..], &frame[6..]].concat()
}

fn attached(ifindex: u32, port: &RoutePort, own: &Own) -> Attached {
    load(port, own, WhenDown::Drop).attach(ifindex, AttachMode::Native, None).unwrap()
}

fn veth() -> (Namespace, u32, u32) {
    let namespace = Namespace::enter_new();
    let (far, near) = namespace.veth("va", "vb", "");
    (namespace, far, near)
}

#[test]
fn what_is_to_be_routed_goes_up() {
    need_root!();
    let rig = Rig::new(&PORT);
    let up = |frame: &[u8]| rig.goes_up(frame);
    up(&ipv4(BEHIND, 60, |_| ()));
    up(&ipv6(BEHIND6, 60, |_| ()));
    for protocol in [1, 6, 17, 50, 132] {
        up(&ipv4(BEHIND, 28, |ip| ip[9] = protocol));
    }
    // Fragments are routed like other packets, because only the first header is read.
    for fragment in [0x2000_u16, 1, 0x2001] {
        up(&ipv4(BEHIND, 60, |ip| ip[6..8].copy_from_slice(&fragment.to_be_bytes())));
    }
    // No next header, routing, fragment, AH, destination options.
    for next in [59, 43, 44, 51, 60] {
        up(&ipv6(BEHIND6, 60, |ip| ip[6] = next));
    }
    up(&ipv4(BEHIND, 60, |ip| ip[8] = 2));
    up(&ipv6(BEHIND6, 60, |ip| ip[7] = 2));
    // 10.0.1.2 + 198.51.100.7 + 17 + 40: a partial checksum.
    let bare: u32 = 0x0a00 + 0x0102 + 0xc633 + 0x6407 + 17 + 40;
    let bare = u16::try_from((bare & 0xffff) + (bare >> 16)).unwrap();
    up(&ipv4(BEHIND, 60, |ip| ip[26..28].copy_from_slice(&bare.to_be_bytes())));
    // Padding after a packet, and a frame in several buffers.
    up(&[ipv4(BEHIND, 28, |_| ()), vec![9; 18]].concat());
    up(&ipv4(BEHIND, 8000, |_| ()));
    // The first and last addresses of ranges that are never routed, and the addresses before and after these ranges.
    for address in
        [[1, 0, 0, 0], [126, 255, 255, 255], [128, 0, 0, 0], [223, 255, 255, 255], [169, 253, 255, 255]]
    {
        up(&ipv4(address.into(), 60, |_| ()));
        up(&ipv4(BEHIND, 60, |ip| ip[12..16].copy_from_slice(&address)));
    }
    for address in ["fec0::1", "fe7f::1", "64:ff9b::1", "0:0:1::", "fd00:1::2"] {
        let address: Ipv6Addr = address.parse().unwrap();
        up(&ipv6(address, 60, |_| ()));
        up(&ipv6(BEHIND6, 60, |ip| ip[8..24].copy_from_slice(&address.octets())));
    }
    // The addresses of neighbours are not the router's own.
    up(&ipv4(Ipv4Addr::new(10, 0, 1, 2), 60, |_| ()));
}

#[test]
fn the_kernel_keeps_what_is_its_own() {
    need_root!();
    let rig = Rig::new(&PORT);
    let stays = |frame: &[u8], why| rig.stays(frame, why);
    for ethertype in [0x0806, 0x88cc, 0x8847, 0x0026] {
        stays(&ethernet(NEAR[0], ethertype, &[0; 46]), Counter::PassedControl);
    }
    stays(&ethernet(NEAR[0], 0x0806, &[]), Counter::PassedControl);
    let (four, six) = (ipv4(BEHIND, 60, |_| ()), ipv6(BEHIND6, 60, |_| ()));
    for frame in [&four, &six] {
        for protocol in [0x8100_u16, 0x88a8] {
            let tagged = [&frame[..12], &protocol.to_be_bytes(), &[0, 5], &frame[12..]].concat();
            stays(&tagged, Counter::RouteTagged);
        }
        for group in [[0xff; 6], [1, 0, 0x5e, 0, 0, 5], [0x33, 0x33, 0, 0, 0, 1]] {
            stays(&to(group, frame), Counter::PassedGroup);
        }
        let other_port = [&NEAR[0][..5], &[NEAR[0][5] ^ 1]].concat().try_into().unwrap();
        for station in [NEAR[1], other_port, [0, 0, 0x5e, 0, 1, 7], [0, 0, 0x5e, 0, 2, 7]] {
            stays(&to(station, frame), Counter::RouteStation);
        }
    }
    for address in [[224, 0, 0, 5], [239, 255, 255, 255]] {
        stays(&ipv4(address.into(), 60, |_| ()), Counter::PassedGroup);
    }
    stays(&ipv6("ff02::5".parse().unwrap(), 60, |_| ()), Counter::PassedGroup);
    stays(&ipv6("ff0e::1".parse().unwrap(), 60, |_| ()), Counter::PassedGroup);
    for ttl in [0, 1] {
        stays(&ipv4(BEHIND, 60, |ip| ip[8] = ttl), Counter::RouteTtl);
        stays(&ipv6(BEHIND6, 60, |ip| ip[7] = ttl), Counter::RouteTtl);
    }
    for length in [6, 15] {
        stays(&ipv4(BEHIND, 80, |ip| ip[0] = 0x40 | length), Counter::RouteOptions);
    }
    stays(&ipv6(BEHIND6, 60, |ip| ip[6] = 0), Counter::RouteOptions);
}

#[test]
fn packets_for_its_own_addresses_are_the_kernels_whatever_they_are() {
    need_root!();
    let rig = Rig::new(&PORT);
    let edits: [fn(&mut [u8]); 5] = [
        |_| (),
        // Packets with an expired TTL (which BGP may use), with options, a fragment, and a packet with the unspecified
        // source address of DHCP.
        |ip| ip[8] = 1,
        |ip| ip[0] = 0x46,
        |ip| ip[6] = 0x20,
        |ip| ip[12..16].fill(0),
    ];
    for edit in edits {
        rig.stays(&ipv4(OWN4, 60, edit), Counter::PassedLocal4);
        rig.stays(&ipv4(BROADCAST4, 60, edit), Counter::PassedLocal4);
    }
    let edits: [fn(&mut [u8]); 4] = [
        |_| (),
        |ip| ip[7] = 1,
        |ip| ip[6] = 0,
        |ip| ip[8..24].copy_from_slice(&"fe80::9".parse::<Ipv6Addr>().unwrap().octets()),
    ];
    for edit in edits {
        rig.stays(&ipv6(OWN6, 60, edit), Counter::PassedLocal6);
    }
    // Local addresses of other ports have no meaning here.
    rig.goes_up(&ipv4(support::LOCAL4, 60, |_| ()));
    rig.goes_up(&ipv6(support::LOCAL6, 60, |_| ()));
    rig.goes_up(&ipv6(Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 9), 60, |_| ()));
}

#[test]
fn many_addresses_are_its_own_and_no_others() {
    need_root!();
    let mut own = Own::new("blue").unwrap();
    let loaded = load(&PORT, &own, WhenDown::Pass);
    // The router has 3,000 addresses of each family, so that the hashes of some other addresses also select bits that
    // are set.
    let at = |family: u32, number: u32| -> IpAddr {
        let low = number.wrapping_mul(0x9e37_79b1);
        match family {
            4 => Ipv4Addr::from_bits(11 << 24 | low >> 8).into(),
            _ => Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(low) << (number % 90)).into(),
        }
    };
    let judged = |address: IpAddr| match address {
        IpAddr::V4(v4) => see(&loaded, &ipv4(v4, 60, |_| ())).1,
        IpAddr::V6(v6) => see(&loaded, &ipv6(v6, 60, |_| ())).1,
    };
    for (family, local) in [(4, Counter::PassedLocal4), (6, Counter::PassedLocal6)] {
        let all: BTreeSet<IpAddr> = (0..6_000).map(|number| at(family, number)).collect();
        let half: BTreeSet<IpAddr> = all.iter().step_by(2).copied().collect();
        own.replace_all(&all).unwrap();
        own.replace_all(&half).unwrap();
        for address in &all {
            let wanted = if half.contains(address) { local } else { Counter::DownPassed };
            assert_eq!(judged(*address), wanted, "{address}");
        }
    }
}

#[test]
fn addresses_that_leave_no_network_are_the_kernels() {
    need_root!();
    let rig = Rig::new(&PORT);
    for address in [
        [0, 0, 0, 0],
        [0, 255, 255, 255],
        [127, 0, 0, 1],
        [169, 254, 0, 0],
        [169, 254, 255, 255],
        [240, 0, 0, 1],
        [255; 4],
    ] {
        // The kernel receives the two broadcast addresses.
        let is_broadcast = matches!(address, [0, 0, 0, 0] | [255, 255, 255, 255]);
        let counter = if is_broadcast { Counter::PassedGroup } else { Counter::RouteAddress };
        rig.stays(&ipv4(address.into(), 60, |_| ()), counter);
        rig.stays(&ipv4(BEHIND, 60, |ip| ip[12..16].copy_from_slice(&address)), Counter::RouteAddress);
    }
    // These source addresses belong to the router itself. The kernel does not check this for IPv6.
    for own in [OWN4, BROADCAST4] {
        rig.stays(&ipv4(BEHIND, 60, |ip| ip[12..16].copy_from_slice(&own.octets())), Counter::RouteAddress);
    }
    // A multicast address is not a valid source.
    rig.stays(&ipv4(BEHIND, 60, |ip| ip[12..16].copy_from_slice(&[224, 0, 0, 1])), Counter::RouteAddress);
    for address in ["::", "::1", "fe80::9", "febf::1", "::ffff:10.0.2.2", "::10.0.2.2", "ff02::1"] {
        let address: Ipv6Addr = address.parse().unwrap();
        if !address.is_multicast() {
            rig.stays(&ipv6(address, 60, |_| ()), Counter::RouteAddress);
        }
        rig.stays(
            &ipv6(BEHIND6, 60, |ip| ip[8..24].copy_from_slice(&address.octets())),
            Counter::RouteAddress,
        );
    }
}

#[test]
fn the_kernel_judges_what_is_malformed() {
    need_root!();
    let rig = Rig::new(&PORT);
    let stays = |frame: &[u8]| rig.stays(frame, Counter::PassedMalformed);
    let (four, six) = (ipv4(BEHIND, 60, |_| ()), ipv6(BEHIND6, 60, |_| ()));
    for length in [14, 33, 73] {
        stays(&four[..length]);
    }
    for length in [14, 53, 73] {
        stays(&six[..length]);
    }
    stays(&ipv4(BEHIND, 60, |ip| ip[0] = 0x65));
    stays(&ipv4(BEHIND, 60, |ip| ip[0] = 0x44));
    stays(&ipv4(BEHIND, 60, |ip| ip[3] = 19));
    stays(&ipv4(BEHIND, 60, |ip| ip[3] = 61));
    stays(&ipv6(BEHIND6, 60, |ip| ip[0] = 0x40));
    stays(&ipv6(BEHIND6, 60, |ip| ip[5] += 1));
    // A packet to the router's own address with a wrong length also belongs to the kernel, because the stack
    // counts it.
    stays(&ipv4(OWN4, 60, |ip| ip[3] = 61));
    // Each bit of the checksum, and one bit of each other word.
    for bit in 0..16 {
        let mut frame = four.clone();
        frame[24 + bit / 8] ^= 1 << (bit % 8);
        stays(&frame);
    }
    for byte in [15, 19, 21, 22, 28, 29, 32, 33] {
        let mut frame = four.clone();
        frame[byte] ^= 0x10;
        stays(&frame);
    }
}

#[test]
fn vrrps_addresses_are_the_ports_when_it_says_so() {
    need_root!();
    let rig = Rig::new(&VRRP);
    let (four, six) = (ipv4(BEHIND, 60, |_| ()), ipv6(BEHIND6, 60, |_| ()));
    for id in [0, 1, 255] {
        let (mac4, mac6) = ([0, 0, 0x5e, 0, 1, id], [0, 0, 0x5e, 0, 2, id]);
        rig.goes_up(&to(mac4, &four));
        rig.goes_up(&to(mac6, &six));
        rig.stays(&to(mac6, &four), Counter::RouteStation);
        rig.stays(&to(mac4, &six), Counter::RouteStation);
        rig.stays(&to(mac4, &ipv4(OWN4, 60, |_| ())), Counter::PassedLocal4);
        rig.stays(&to(mac6, &ipv6(OWN6, 60, |_| ())), Counter::PassedLocal6);
    }
    rig.goes_up(&four);
    for other in
        [[0, 0, 0x5e, 0, 0, 1], [0, 0, 0x5e, 0, 3, 1], [2, 0, 0x5e, 0, 1, 1], [0, 0, 0x5e, 1, 1, 1], NEAR[1]]
    {
        rig.stays(&to(other, &four), Counter::RouteStation);
        rig.stays(&to(other, &six), Counter::RouteStation);
    }
}

#[test]
fn the_filter_comes_before_and_steering_around() {
    need_root!();
    let (_namespace, _, near) = veth();
    let own = own();
    let mut port = attached(near, &PORT, &own);
    let rule = Rule {
        name: "not-these".to_owned(),
        priority: 0,
        matches: Match { sources: vec!["203.0.113.0/24".parse().unwrap()], ..Match::default() },
        action: Action::Drop,
        dry_run: false,
        expires: None,
    };
    let filter = Compiled::new(&RuleSet { rules: vec![rule], ..RuleSet::default() }).unwrap();
    let filter = Filter::new(&filter, FilterSizes::default(), None).unwrap();
    port.set_stage(StageChange::Filter(Some(&filter))).unwrap();
    let now = |port: &Attached| port.prepare(&config(Owner::Routed, WhenDown::Drop)).unwrap();
    let bad = |to| ipv4(to, 60, |ip| ip[12..16].copy_from_slice(&[203, 0, 113, 9]));
    let (transit, local) = (ipv4(BEHIND, 60, |_| ()), ipv4(OWN4, 60, |_| ()));
    let loaded = now(&port);
    assert_eq!(see(&loaded, &bad(BEHIND)), (Verdict::Drop, Counter::FilterDropped));
    assert_eq!(see(&loaded, &bad(OWN4)), (Verdict::Drop, Counter::FilterDropped));
    assert_eq!(see(&loaded, &transit), (Verdict::Drop, Counter::DownDropped));
    assert_eq!(see(&loaded, &local), (Verdict::Pass, Counter::PassedLocal4));

    // An exact flow precedes the stage of the port's function, and the table follows it.
    let steering = SteerConfig { capacity: 8, table: true, metadata: false, cpu_queue: 64 };
    let mut steering = Steering::new(&steering).unwrap();
    let flow = |destination: Ipv4Addr| FiveTuple {
        vlan: None,
        source: [10, 0, 1, 2].into(),
        destination: destination.into(),
        protocol: 17,
        ports: Some((1024, 9)),
    };
    port.set_stage(StageChange::Steering(Some(&steering))).unwrap();
    let loaded = now(&port);
    assert_eq!(see(&loaded, &transit), (Verdict::Drop, Counter::DownDropped));
    steering.set_table(&[SteerTo::Kernel; STEER_BUCKETS], true).unwrap();
    assert_eq!(see(&loaded, &transit), (Verdict::Pass, Counter::SteeringKernel));
    let expired = ipv4(BEHIND, 60, |ip| ip[8] = 1);
    assert_eq!(see(&loaded, &expired), (Verdict::Pass, Counter::RouteTtl));
    steering.set_table(&[SteerTo::Worker; STEER_BUCKETS], true).unwrap();
    let entry = |to| FlowEntry { to, mark: 0, expires: None, live: false };
    steering.insert(flow(OWN4), entry(SteerTo::Worker)).unwrap();
    steering.insert(flow(BEHIND), entry(SteerTo::Kernel)).unwrap();
    assert_eq!(see(&loaded, &local), (Verdict::Drop, Counter::DownDropped));
    assert_eq!(see(&loaded, &transit), (Verdict::Pass, Counter::SteeringKernel));
    assert_eq!(see(&loaded, &bad(BEHIND)), (Verdict::Drop, Counter::FilterDropped));
}

#[test]
fn a_port_stands_in_one_room() {
    need_root!();
    let (_namespace, _, near) = veth();
    let own = own();
    let stage = RouteStage::new(&PORT, &own);
    let loaded = PortProgram::load(&config(Owner::Bridged, WhenDown::Drop)).unwrap();
    let mut port = loaded.attach(near, AttachMode::Native, None).unwrap();
    let table = (StationTable::new(64, 1).unwrap(), BridgeDevices::new().unwrap());
    let member = BridgePort {
        port: 1,
        untagged: Some(1),
        tagged: false,
        untagged_only: false,
        protected: false,
        learning: true,
        partial_checksums: false,
    };
    let bridge = BridgeStage::new(&member, &port, &table.0, &table.1).unwrap();
    let kernel = FibPort { mac: PORT.mac, check_sources: false, partial_checksums: false };
    let fib = FibStage::new(&kernel, &port).unwrap();
    let rooms = |port: &Attached| (port.has_bridge(), port.fib().is_some(), port.route().is_some());
    port.set_stage(StageChange::Bridge(Some(&bridge))).unwrap();
    assert_eq!((rooms(&port), port.constants().owner), ((true, false, false), Owner::Bridged));
    port.set_stage(StageChange::Route(Some(&stage))).unwrap();
    assert_eq!((rooms(&port), port.constants().owner), ((false, false, true), Owner::Routed));
    port.set_stage(StageChange::Fib(Some(&fib))).unwrap();
    assert_eq!(rooms(&port), (false, true, false));
    port.set_stage(StageChange::Route(Some(&stage))).unwrap();
    assert_eq!(rooms(&port), (false, false, true));
    port.set_stage(StageChange::Bridge(Some(&bridge))).unwrap();
    assert_eq!(rooms(&port), (true, false, false));
    port.set_stage(StageChange::Route(Some(&stage))).unwrap();
    // Removing stages that are not present keeps the stage.
    port.set_stage(StageChange::Fib(None)).unwrap();
    port.set_stage(StageChange::Bridge(None)).unwrap();
    assert_eq!(rooms(&port), (false, false, true));
    port.set_stage(StageChange::Route(None)).unwrap();
    assert_eq!((rooms(&port), port.constants().owner), ((false, false, false), Owner::Routed));
}

/// The program variant without multi-buffer support decides on every frame like the variant with multi-buffer support.
#[test]
fn the_build_for_linear_frames_says_the_same() {
    need_root!();
    let (_namespace, _, near) = veth();
    let own = own();
    let loaded = PortProgram::load_linear(&config(Owner::Routed, WhenDown::Drop)).unwrap();
    let port = loaded.attach(near, AttachMode::Native, None).unwrap();
    assert!(!port.multi_buffer());
    let loaded = port.prepare_stage(StageChange::Route(Some(&RouteStage::new(&PORT, &own)))).unwrap();
    assert!(!loaded.multi_buffer());
    for (frame, says) in [
        (ipv4(BEHIND, 60, |_| ()), (Verdict::Drop, Counter::DownDropped)),
        (ipv6(BEHIND6, 60, |_| ()), (Verdict::Drop, Counter::DownDropped)),
        (ipv4(OWN4, 60, |_| ()), (Verdict::Pass, Counter::PassedLocal4)),
        (ipv6(OWN6, 60, |_| ()), (Verdict::Pass, Counter::PassedLocal6)),
        (ipv4(BEHIND, 60, |ip| ip[8] = 1), (Verdict::Pass, Counter::RouteTtl)),
    ] {
        assert_eq!(see(&loaded, &frame), says);
    }
}

#[test]
fn captures_and_explanations_tell_the_reason() {
    need_root!();
    let (_namespace, far, near) = veth();
    let own = own();
    let mut port = attached(near, &PORT, &own);
    let dump = Dump::new(&DumpConfig::default()).unwrap();
    let reader = dump.reader().unwrap();
    port.set_stage(StageChange::Dump(Some(&dump))).unwrap();
    let fine = ipv4(BEHIND, 60, |_| ());
    let told = [
        (fine.clone(), Verdict::Drop, Counter::DownDropped),
        (ipv4(OWN4, 60, |_| ()), Verdict::Pass, Counter::PassedLocal4),
        (ipv6(OWN6, 60, |_| ()), Verdict::Pass, Counter::PassedLocal6),
        (to(NEAR[1], &fine), Verdict::Pass, Counter::RouteStation),
        ([&fine[..12], &[0x81, 0, 0, 5], &fine[12..]].concat(), Verdict::Pass, Counter::RouteTagged),
        (ipv4([127, 0, 0, 1].into(), 60, |_| ()), Verdict::Pass, Counter::RouteAddress),
        (ipv6(BEHIND6, 60, |ip| ip[7] = 1), Verdict::Pass, Counter::RouteTtl),
        (ipv4(BEHIND, 60, |ip| ip[0] = 0x46), Verdict::Pass, Counter::RouteOptions),
    ];
    let wire = PacketSocket::on(far);
    told.iter().for_each(|(frame, ..)| wire.send(frame));
    let mut all = Vec::new();
    awaited("captured frames", || {
        all.extend(reader.poll(Duration::from_millis(10)).unwrap());
        (all.len() >= told.len()).then_some(())
    });
    let said: Vec<_> = all.iter().map(|dumped| (dumped.verdict, dumped.counter)).collect();
    assert_eq!(said, told.iter().map(|(_, verdict, way)| (*verdict, Some(*way))).collect::<Vec<_>>());
    // Explaining the frames gives the same results and counts nothing.
    let before = port.counters().unwrap();
    for (frame, verdict, way) in &told {
        let says = port.explainer().unwrap().explain(frame).unwrap();
        assert_eq!((says.verdict, says.counter, &says.frame), (*verdict, *way, frame));
    }
    assert_eq!(port.counters().unwrap(), before);
}

/// The kernel answers a host's packets to the router's own addresses, and an AF_XDP socket receives the host's other
/// packets.
#[test]
fn a_host_sees_a_router_where_a_socket_stands() {
    need_root!();
    let host = Namespace::enter_new();
    let router = Namespace::enter_new();
    let (_, near) = router.veth("va", "vb", "");
    router.ip(&format!("link set dev va netns {}", host.name));
    host.ip("link set dev va up");
    host.ip("address add 10.0.1.2/24 dev va");
    host.ip("address add fd00:1::2/64 dev va nodad");
    let mac = NEAR[0].map(|byte| format!("{byte:02x}")).join(":");
    router.ip(&format!("link set dev vb address {mac}"));
    router.ip("address add 10.0.1.1/24 dev vb");
    router.ip("address add fd00:1::1/64 dev vb nodad");
    host.ip("route add default via 10.0.1.1");
    host.ip("-6 route add default via fd00:1::1");
    // A route for the kernel, so that it reports expired packets to their senders.
    router.veth("wa", "wb", "");
    router.ip("route add 198.51.100.0/24 dev wb");
    router.ip("-6 route add 2001:db8::/64 dev wb");
    sh("echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding");

    let mut own = own();
    let port = attached(near, &PORT, &own);
    let socket = Xsk::bound(near, 0);
    port.set_socket(0, socket.fd()).unwrap();
    let ways = || port.counters().unwrap();
    enter(&host.name);
    sh("ping -n -c 3 -i 0.2 -W 2 10.0.1.1; ping -n -c 3 -i 0.2 -W 2 fd00:1::1");
    assert!(ways().get(Counter::PassedControl) >= 1, "the kernel answers ARP");
    assert!(ways().get(Counter::PassedGroup) >= 1, "and solicitations");
    assert!(ways().get(Counter::PassedLocal4) >= 3 && ways().get(Counter::PassedLocal6) >= 3);
    assert_eq!((socket.receive(), ways().get(Counter::Steered)), (None, 0));

    let (four, six) =
        (UdpSocket::bind("10.0.1.2:1024").unwrap(), UdpSocket::bind("[fd00:1::2]:1024").unwrap());
    four.send_to(b"to four", "198.51.100.7:9").unwrap();
    six.send_to(b"to six", "[2001:db8::7]:9").unwrap();
    let mut routed = [(); 2].map(|()| awaited("what is to be routed", || socket.receive()));
    routed.sort_by_key(Vec::len);
    assert_eq!(
        (&routed[0][..6], &routed[0][30..34], &routed[0][42..]),
        (&NEAR[0][..], &BEHIND.octets()[..], &b"to four"[..])
    );
    assert_eq!(
        (&routed[1][..6], &routed[1][38..54], &routed[1][62..]),
        (&NEAR[0][..], &BEHIND6.octets()[..], &b"to six"[..])
    );

    // The kernel reports packets that expire on the path, as traceroute sees them.
    for expired in ["ping -n -t 1 -c 1 -W 2 198.51.100.7", "ping -n -t 1 -c 1 -W 2 2001:db8::7"] {
        let said = sh(&format!("{expired} || true"));
        assert!(said.contains("exceeded"), "{said}");
    }
    assert_eq!((ways().get(Counter::RouteTtl), ways().get(Counter::Steered)), (2, 2));

    // A new address of the router belongs to the kernel at once, and packets to a removed address are routed.
    router.ip("address add 10.0.9.1/32 dev lo");
    own.insert([10, 0, 9, 1].into()).unwrap();
    sh("ping -n -c 1 -W 2 10.0.9.1");
    own.remove([10, 0, 9, 1].into()).unwrap();
    four.send_to(b"gone", "10.0.9.1:9").unwrap();
    assert_eq!(&awaited("what is to be routed", || socket.receive())[42..46], b"gone");
}
