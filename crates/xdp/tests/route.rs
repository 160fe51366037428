//! Tests of the stage of a virtual router's port: every reason by test runs, random frames against a plain
//! implementation, own addresses that change, adoption by a successor, and a host that uses a router with a
//! socket on the queue.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use support::router::{NEAR, ethernet, ipv4, ipv6, seal};
use support::xsk::Xsk;
use support::{Namespace, PacketSocket, awaited, config, enter, eventually, sh, unbound_socket};
use xdp::bridge::{BridgeDevices, BridgePort, BridgeStage, StationTable};
use xdp::dump::{Dump, DumpConfig};
use xdp::fib::{FibPort, FibStage};
use xdp::filter::{Action, Compiled, Filter, FilterSizes, Match, Rule, RuleSet};
use xdp::route::{OWN_CAPACITY, Own, RoutePort, RouteStage};
use xdp::steer::{ExactFlow, FlowEntry, STEER_BUCKETS, SteerConfig, SteerTo, Steering};
use xdp::{
    AttachMode, Attached, Counter, Error, Loaded, Owner, PinPath, PortProgram, Verdict, WhenDown, adopt,
};

const OWN4: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
/// A broadcast address of the router's subnet.
const BROADCAST4: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 255);
const OWN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 1);
const BEHIND: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const BEHIND6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
/// The frames of the tests are sent to this port.
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

/// Returns the verdict on a frame and the one counter that changed. The frame must be unchanged.
fn see(loaded: &Loaded, frame: &[u8]) -> (Verdict, Counter) {
    let before = loaded.counters().unwrap();
    let run = loaded.test_run(frame).unwrap();
    let after = loaded.counters().unwrap();
    assert_eq!(run.frame, frame, "nobody writes");
    let moved: Vec<Counter> = Counter::ALL.into_iter().filter(|c| after.get(*c) != before.get(*c)).collect();
    assert_eq!((moved.len(), after.seen()), (1, before.seen() + 1), "{moved:?}");
    (run.verdict, moved[0])
}

/// A router's port with and without a socket, for each `when_down`.
struct Rig {
    up: Loaded,
    pass: Loaded,
    drop: Loaded,
    _socket: OwnedFd,
}

impl Rig {
    fn new(port: &RoutePort) -> Rig {
        let own = own();
        let (up, socket) = (load(port, &own, WhenDown::Drop), unbound_socket());
        up.set_socket(0, socket.as_fd()).unwrap();
        let (pass, drop) = (load(port, &own, WhenDown::Pass), load(port, &own, WhenDown::Drop));
        Rig { up, pass, drop, _socket: socket }
    }

    #[track_caller]
    fn goes_up(&self, frame: &[u8]) {
        assert_eq!(see(&self.up, frame), (Verdict::Redirect, Counter::Steered));
        assert_eq!(see(&self.pass, frame), (Verdict::Pass, Counter::DownPassed));
        assert_eq!(see(&self.drop, frame), (Verdict::Drop, Counter::DownDropped));
    }

    #[track_caller]
    fn stays(&self, frame: &[u8], why: Counter) {
        for loaded in [&self.up, &self.pass, &self.drop] {
            assert_eq!(see(loaded, frame), (Verdict::Pass, why));
        }
    }
}

/// Returns the frame with another destination Ethernet address.
fn to(mac: [u8; 6], frame: &[u8]) -> Vec<u8> {
    [&mac[..], &frame[6..]].concat()
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
    // The ends of ranges that are never routed, and addresses next to them.
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
        // An expired TTL as BGP may use, options, a fragment, and the unspecified source of DHCP.
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
    // Some 3,000 addresses of a family, so other addresses share the bits of their hashes.
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
        rig.stays(&ipv4(address.into(), 60, |_| ()), Counter::RouteAddress);
        rig.stays(&ipv4(BEHIND, 60, |ip| ip[12..16].copy_from_slice(&address)), Counter::RouteAddress);
    }
    // Only the router itself has these sources. The kernel does not check this for IPv6.
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

/// Returns the reason why a frame belongs to the kernel, read field by field. `None` means that the frame is
/// to be routed.
fn why(frame: &[u8], own: &BTreeSet<IpAddr>, port: &RoutePort) -> Option<Counter> {
    let (Some(mac), Some(ethertype)) = (frame.get(..6), frame.get(12..14)) else {
        return Some(Counter::PassedMalformed);
    };
    let (packet, v4) = match ethertype {
        [0x81, 0] | [0x88, 0xa8] => return Some(Counter::RouteTagged),
        [8, 0] => (&frame[14..], true),
        [0x86, 0xdd] => (&frame[14..], false),
        _ => return Some(Counter::PassedControl),
    };
    let vrrp = [0, 0, 0x5e, 0, if v4 { 1 } else { 2 }];
    match mac {
        [first, ..] if first % 2 == 1 => return Some(Counter::PassedGroup),
        mac if mac == port.mac || (port.vrrp && mac[..5] == vrrp) => {}
        _ => return Some(Counter::RouteStation),
    }
    if packet.len() < if v4 { 20 } else { 40 } || packet[0] >> 4 != if v4 { 4 } else { 6 } {
        return Some(Counter::PassedMalformed);
    }
    let total = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    let (source, destination, hops, options, whole): (IpAddr, IpAddr, u8, bool, bool);
    if v4 {
        let address = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).unwrap();
        (source, destination) = (address(12).into(), address(16).into());
        let words = packet[0] & 15;
        (hops, options) = (packet[8], words > 5);
        let mut sealed = packet[..20].to_vec();
        seal(&mut sealed);
        // The sums 0 and 0xffff are equivalent.
        let sum = |header: &[u8]| match [header[10], header[11]] {
            [0xff, 0xff] => [0, 0],
            other => other,
        };
        let right = total(2) >= 20 && total(2) <= packet.len() && sum(&sealed) == sum(packet);
        whole = words > 5 || (words == 5 && right);
    } else {
        let address = |at: usize| <[u8; 16]>::try_from(&packet[at..at + 16]).unwrap();
        (source, destination) = (address(8).into(), address(24).into());
        (hops, options) = (packet[7], packet[6] == 0);
        whole = 40 + total(4) <= packet.len();
    }
    let confined = |address: IpAddr| match address {
        IpAddr::V4(v4) => {
            let [first, ..] = v4.octets();
            first == 0 || v4.is_loopback() || v4.is_link_local() || v4.is_multicast() || first >= 240
        }
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_multicast() || v6.octets()[..8] == [0; 8],
    };
    let (local, counter) = (own.contains(&destination), |four, six| Some(if v4 { four } else { six }));
    if !whole {
        Some(Counter::PassedMalformed)
    } else if destination.is_multicast() {
        Some(Counter::PassedGroup)
    } else if local {
        counter(Counter::PassedLocal4, Counter::PassedLocal6)
    } else if options {
        Some(Counter::RouteOptions)
    } else if confined(source) || confined(destination) || (v4 && own.contains(&source)) {
        Some(Counter::RouteAddress)
    } else if hops <= 1 {
        Some(Counter::RouteTtl)
    } else {
        None
    }
}

const REASONS: [Counter; 7] = [
    Counter::PassedMalformed,
    Counter::PassedLocal4,
    Counter::PassedLocal6,
    Counter::RouteStation,
    Counter::RouteAddress,
    Counter::RouteTtl,
    Counter::RouteOptions,
];

fn address4() -> impl Strategy<Value = [u8; 4]> {
    let known =
        [[10, 0, 1, 1], [10, 0, 1, 255], [10, 0, 1, 2], [169, 254, 1, 1], [224, 0, 0, 5], [255; 4], [0; 4]];
    prop_oneof![3 => Just([198, 51, 100, 7]), 2 => select(known.to_vec()), 2 => any::<[u8; 4]>()]
}

fn address6() -> impl Strategy<Value = [u8; 16]> {
    let known = ["fd00:1::1", "fd00:1::2", "fe80::1", "::1", "::", "::ffff:10.0.1.1", "ff02::1", "0:0:0:1::"];
    let known = known.map(|text| text.parse::<Ipv6Addr>().unwrap().octets()).to_vec();
    prop_oneof![3 => Just(BEHIND6.octets()), 2 => select(known), 2 => any::<[u8; 16]>()]
}

/// Returns frames that are mostly for the port, sometimes truncated or changed in one byte.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let hops = select(vec![0_u8, 1, 2, 64, 255]);
    let four =
        (address4(), address4(), hops.clone(), select(vec![0x45_u8, 0x45, 0x45, 0x46, 0x4f, 0x44, 0x55]));
    let four = four.prop_map(|(from, to, hops, first)| {
        ipv4(to.into(), 80, |ip| {
            ip[12..16].copy_from_slice(&from);
            (ip[0], ip[8]) = (first, hops);
        })
    });
    let six = (address6(), address6(), hops, select(vec![17_u8, 6, 58, 0, 43, 44, 60, 59]));
    let six = six.prop_map(|(from, to, hops, next)| {
        ipv6(to.into(), 80, |ip| {
            ip[8..24].copy_from_slice(&from);
            (ip[6], ip[7]) = (next, hops);
        })
    });
    let macs = vec![NEAR[1], [0, 0, 0x5e, 0, 1, 9], [0, 0, 0x5e, 0, 2, 9], [0xff; 6], [1, 0, 0x5e, 0, 0, 1]];
    let mac = prop_oneof![4 => Just(NEAR[0]), 1 => select(macs)];
    let change = proptest::option::weighted(0.4, (any::<prop::sample::Index>(), any::<u8>()));
    let cut = proptest::option::weighted(0.1, any::<prop::sample::Index>());
    (prop_oneof![four, six], mac, change, cut).prop_map(|(frame, mac, change, cut)| {
        let mut frame = to(mac, &frame);
        if let Some((at, byte)) = change {
            let at = at.index(60);
            frame[at] = byte;
        }
        if let Some(cut) = cut {
            frame.truncate(14 + cut.index(frame.len() - 13));
        }
        frame
    })
}

#[test]
fn random_frames_are_read_as_they_are_plainly() {
    need_root!();
    for port in [PORT, VRRP] {
        let own = own();
        let loaded = load(&port, &own, WhenDown::Drop);
        let mut runner =
            TestRunner::new(Config { cases: 4000, failure_persistence: None, ..Config::default() });
        let seen = std::cell::RefCell::new(BTreeSet::new());
        let held = runner.run(&frame(), |frame| {
            let expected = match why(&frame, own.addresses(), &port) {
                None => (Verdict::Drop, Counter::DownDropped),
                Some(why) => (Verdict::Pass, why),
            };
            seen.borrow_mut().insert(expected.1);
            prop_assert_eq!(see(&loaded, &frame), expected);
            Ok(())
        });
        held.unwrap();
        // A tag occurs only by chance.
        let all =
            [&REASONS[..], &[Counter::DownDropped, Counter::PassedControl, Counter::PassedGroup]].concat();
        let missing: Vec<_> = all.iter().filter(|way| !seen.borrow().contains(way)).collect();
        assert_eq!(missing, [&Counter::RouteTagged; 0], "they have not come");
    }
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
    port.set_filter(Some(&filter)).unwrap();
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
    let flow = |destination: Ipv4Addr| ExactFlow {
        vlan: None,
        source: [10, 0, 1, 2].into(),
        destination: destination.into(),
        protocol: 17,
        ports: Some((1024, 9)),
    };
    port.set_steering(Some(&steering)).unwrap();
    let loaded = now(&port);
    assert_eq!(see(&loaded, &transit), (Verdict::Drop, Counter::DownDropped));
    steering.set_table(&[SteerTo::Kernel; STEER_BUCKETS], true).unwrap();
    assert_eq!(see(&loaded, &transit), (Verdict::Pass, Counter::SteerKernel));
    let expired = ipv4(BEHIND, 60, |ip| ip[8] = 1);
    assert_eq!(see(&loaded, &expired), (Verdict::Pass, Counter::RouteTtl));
    steering.set_table(&[SteerTo::Worker; STEER_BUCKETS], true).unwrap();
    let entry = |to| FlowEntry { to, mark: 0, expires: None, live: false };
    steering.insert(flow(OWN4), entry(SteerTo::Worker)).unwrap();
    steering.insert(flow(BEHIND), entry(SteerTo::Kernel)).unwrap();
    assert_eq!(see(&loaded, &local), (Verdict::Drop, Counter::DownDropped));
    assert_eq!(see(&loaded, &transit), (Verdict::Pass, Counter::SteerKernel));
    assert_eq!(see(&loaded, &bad(BEHIND)), (Verdict::Drop, Counter::FilterDropped));
}

/// Sends frames by the ten thousand until `done` is set, and checks that each has this outcome.
fn stream(loaded: &Loaded, frame: &[u8], way: Counter, done: &AtomicBool) {
    let mut frames = 0;
    while !done.load(Ordering::Relaxed) || frames == 0 {
        loaded.test_run_from(frame, None, 10_000).unwrap();
        frames += 10_000;
    }
    let counters = loaded.counters().unwrap();
    assert_eq!((counters.get(way), counters.seen()), (frames, frames), "each of them leaves so");
}

/// Own addresses change while millions of frames pass. Each frame to an address that stays goes to the
/// kernel.
#[test]
fn own_addresses_come_and_go_while_frames_pass() {
    need_root!();
    let mut own = own();
    let (four, six) = (load(&PORT, &own, WhenDown::Drop), load(&PORT, &own, WhenDown::Drop));
    let looked = load(&PORT, &own, WhenDown::Drop);
    let many = |third: u8| {
        let v4 = (0..200).map(move |last| IpAddr::from([10, 9, third, last]));
        let v6 = (0..200).map(move |last| IpAddr::from([0x2001, 0xdb8, 9, third.into(), 0, 0, 0, last]));
        addresses().into_iter().chain(v4).chain(v6).collect::<BTreeSet<IpAddr>>()
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let streams = [
            scope.spawn(|| stream(&four, &ipv4(OWN4, 60, |_| ()), Counter::PassedLocal4, &done)),
            scope.spawn(|| stream(&six, &ipv6(OWN6, 60, |_| ()), Counter::PassedLocal6, &done)),
        ];
        let work = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let is = |to: IpAddr| match to {
                IpAddr::V4(to) => see(&looked, &ipv4(to, 60, |_| ())).1,
                IpAddr::V6(to) => see(&looked, &ipv6(to, 60, |_| ())).1,
            };
            for round in 0..20 {
                own.replace_all(&many(round % 2)).unwrap();
                for (third, there) in [(round % 2, true), (1 - round % 2, false)] {
                    let four = [10, 9, third, 199].into();
                    let six = [0x2001, 0xdb8, 9, u16::from(third), 0, 0, 0, 199].into();
                    let up = Counter::DownDropped;
                    assert_eq!(is(four), if there { Counter::PassedLocal4 } else { up });
                    assert_eq!(is(six), if there { Counter::PassedLocal6 } else { up });
                }
                let mine: IpAddr = [10, 9, 9, 9].into();
                assert!(own.insert(mine).unwrap() && !own.insert(mine).unwrap());
                assert_eq!(is(mine), Counter::PassedLocal4);
                assert!(own.remove(mine).unwrap() && !own.remove(mine).unwrap());
                assert_eq!(is(mine), Counter::DownDropped);
            }
        }));
        done.store(true, Ordering::Relaxed);
        streams.into_iter().for_each(|stream| stream.join().unwrap());
        work.unwrap();
    });
    assert_eq!(own.addresses(), &many(1));
}

#[test]
fn a_full_table_refuses_names_and_keeps_what_it_has() {
    need_root!();
    let mut own = Own::new("blue").unwrap();
    let loaded = load(&PORT, &own, WhenDown::Drop);
    let is = |to: [u8; 4]| see(&loaded, &ipv4(to.into(), 60, |_| ())).1;
    let all = |second: u8| -> BTreeSet<IpAddr> {
        (0..=u16::MAX).map(|low| [10, second, low.to_be_bytes()[0], low.to_be_bytes()[1]].into()).collect()
    };
    assert_eq!(all(1).len(), OWN_CAPACITY);
    own.replace_all(&all(1)).unwrap();
    let refused = |result: Result<(), Error>, address: &str, family: &str| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::OwnFull { capacity: OWN_CAPACITY, .. }), "{error}");
        let text = error.to_string();
        for part in ["router blue", address, "65536", family] {
            assert!(text.contains(part), "{text}");
        }
    };
    refused(own.insert([10, 2, 0, 0].into()).map(drop), "10.2.0.0", "IPv4");
    let mut more = all(2);
    more.insert([10, 3, 0, 0].into());
    // A refused replacement changes nothing, not even temporarily.
    let (done, first) = (AtomicBool::new(false), load(&PORT, &own, WhenDown::Drop));
    let frame = ipv4(Ipv4Addr::new(10, 1, 0, 0), 60, |_| ());
    std::thread::scope(|scope| {
        let stream = scope.spawn(|| stream(&first, &frame, Counter::PassedLocal4, &done));
        let results = [(); 5].map(|()| own.replace_all(&more));
        done.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| refused(result, "10.3.0.0", "IPv4"));
        stream.join().unwrap();
    });
    assert_eq!((own.addresses(), is([10, 2, 0, 0])), (&all(1), Counter::DownDropped));
    assert_eq!((is([10, 1, 0, 0]), is([10, 1, 255, 255])), (Counter::PassedLocal4, Counter::PassedLocal4));
    // The other family has space of its own, and a removed address frees space.
    own.insert(OWN6.into()).unwrap();
    assert!(own.remove([10, 1, 7, 7].into()).unwrap());
    own.insert([10, 2, 0, 0].into()).unwrap();
    assert_eq!((is([10, 1, 7, 7]), is([10, 2, 0, 0])), (Counter::DownDropped, Counter::PassedLocal4));
    refused(own.insert([10, 1, 7, 7].into()).map(drop), "10.1.7.7", "IPv4");
    // All other addresses replace the present ones, while there is no space for both.
    own.replace_all(&all(3)).unwrap();
    assert_eq!((is([10, 1, 0, 0]), is([10, 3, 9, 9])), (Counter::DownDropped, Counter::PassedLocal4));
    let six: BTreeSet<IpAddr> =
        (0..=u16::MAX).map(|low| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 1, low])).collect();
    own.replace_all(&six).unwrap();
    refused(own.insert(OWN6.into()).map(drop), "fd00:1::1", "IPv6");
    assert_eq!(is([10, 3, 9, 9]), Counter::DownDropped);
}

/// The kernel's table has less space than expected, so a replacement is rolled back from the middle.
#[test]
fn a_replacement_that_fails_halfway_is_undone() {
    need_root!();
    let mut own = Own::new("blue").unwrap();
    let loaded = load(&PORT, &own, WhenDown::Drop);
    let is = |last: u8| see(&loaded, &ipv4(Ipv4Addr::new(192, 0, 2, last), 60, |_| ())).1;
    let mut all: BTreeSet<IpAddr> =
        (3..=u16::MAX).map(|low| Ipv4Addr::from_bits(0x0a01_0000 | u32::from(low)).into()).collect();
    own.replace_all(&all).unwrap();
    let id = own.id().unwrap();
    for last in 0..2 {
        sh(&format!("bpftool map update id {id} key 10 9 9 {last} value 1 0 0 0"));
    }
    let before = all.clone();
    all.pop_first();
    all.extend([1_u8, 2].map(|last| IpAddr::from([192, 0, 2, last])));
    let error = own.replace_all(&all).unwrap_err();
    assert!(
        matches!(&error, Error::OwnFull { address, .. } if *address == IpAddr::from([192, 0, 2, 2])),
        "{error}"
    );
    assert_eq!((is(1), is(2), own.addresses()), (Counter::DownDropped, Counter::DownDropped, &before));
    own.insert([192, 0, 2, 1].into()).unwrap();
    assert_eq!(is(1), Counter::PassedLocal4, "there is room for one");
}

#[test]
fn ports_of_a_router_share_its_addresses_and_other_routers_do_not() {
    need_root!();
    let (mut blue, red) = (own(), Own::new("red").unwrap());
    let (one, two) = (load(&PORT, &blue, WhenDown::Drop), load(&VRRP, &blue, WhenDown::Drop));
    let other = load(&PORT, &red, WhenDown::Drop);
    let address: IpAddr = [10, 7, 7, 7].into();
    let frame = ipv4(Ipv4Addr::new(10, 7, 7, 7), 60, |_| ());
    blue.insert(address).unwrap();
    assert_eq!(
        [&one, &two, &other].map(|loaded| see(loaded, &frame).1),
        [Counter::PassedLocal4, Counter::PassedLocal4, Counter::DownDropped]
    );
    assert_ne!(blue.id().unwrap(), red.id().unwrap());
}

#[test]
fn another_ethernet_address_takes_effect() {
    need_root!();
    let (_namespace, far, near) = veth();
    let own = own();
    let mut port = attached(near, &PORT, &own);
    let wire = PacketSocket::on(far);
    let frame = ipv4(BEHIND, 60, |_| ());
    let moves = |port: &Attached, frame: &[u8], way| {
        let before = port.counters().unwrap().get(way);
        wire.send(frame);
        eventually(way.name(), || port.counters().unwrap().get(way) == before + 1);
    };
    moves(&port, &frame, Counter::DownDropped);
    let moved = RoutePort { mac: [2, 0, 0, 0, 7, 7], ..PORT };
    assert!(port.route().unwrap().is_for(&PORT, &own).unwrap());
    port.set_route(Some(&RouteStage::new(&moved, &own))).unwrap();
    assert_eq!(port.route().unwrap().port(), moved);
    assert!(!port.route().unwrap().is_for(&PORT, &own).unwrap());
    moves(&port, &frame, Counter::RouteStation);
    moves(&port, &to(moved.mac, &frame), Counter::DownDropped);
    // Replacements of the program keep the stage and its addresses.
    port.swap(port.prepare(&config(Owner::Routed, WhenDown::Pass)).unwrap()).unwrap();
    moves(&port, &to(moved.mac, &frame), Counter::DownPassed);
    moves(&port, &to(moved.mac, &ipv4(OWN4, 60, |_| ())), Counter::PassedLocal4);
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
    port.set_bridge(Some(&bridge)).unwrap();
    assert_eq!((rooms(&port), port.constants().owner), ((true, false, false), Owner::Bridged));
    port.set_route(Some(&stage)).unwrap();
    assert_eq!((rooms(&port), port.constants().owner), ((false, false, true), Owner::Routed));
    port.set_fib(Some(&fib)).unwrap();
    assert_eq!(rooms(&port), (false, true, false));
    port.set_route(Some(&stage)).unwrap();
    assert_eq!(rooms(&port), (false, false, true));
    port.set_bridge(Some(&bridge)).unwrap();
    assert_eq!(rooms(&port), (true, false, false));
    port.set_route(Some(&stage)).unwrap();
    // Removing stages that are not present keeps the stage.
    port.set_fib(None).unwrap();
    port.set_bridge(None).unwrap();
    assert_eq!(rooms(&port), (false, false, true));
    port.set_route(None).unwrap();
    assert_eq!((rooms(&port), port.constants().owner), ((false, false, false), Owner::Routed));
}

/// The build for drivers without multi-buffer support gives the same results.
#[test]
fn the_build_for_linear_frames_says_the_same() {
    need_root!();
    let (_namespace, _, near) = veth();
    let own = own();
    let loaded = PortProgram::load_linear(&config(Owner::Routed, WhenDown::Drop)).unwrap();
    let port = loaded.attach(near, AttachMode::Native, None).unwrap();
    assert!(!port.multi_buffer());
    let loaded = port.prepare_route(Some(&RouteStage::new(&PORT, &own))).unwrap();
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
    port.set_dump(Some(&dump)).unwrap();
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
    let said: Vec<_> = all.iter().map(|dumped| (dumped.verdict, dumped.way)).collect();
    assert_eq!(said, told.iter().map(|(_, verdict, way)| (*verdict, Some(*way))).collect::<Vec<_>>());
    // Explaining the frames gives the same results and counts nothing.
    let before = port.counters().unwrap();
    for (frame, verdict, way) in &told {
        let says = port.explain(frame).unwrap();
        assert_eq!((says.verdict, says.way, &says.frame), (*verdict, *way, frame));
    }
    assert_eq!(port.counters().unwrap(), before);
}

const HOLDER: &str = "XDP_TEST_ROUTE_HOLDER";

/// Not a test of its own, but the process that is killed. It holds two ports of one router until then.
#[test]
fn holder() {
    let Ok(order) = std::env::var(HOLDER) else { return };
    let words: Vec<&str> = order.split(' ').collect();
    enter(words[0]);
    let own = own();
    let stage = RouteStage::new(&PORT, &own);
    let ports = ["vb", "vd"].into_iter().zip(&words[1..]).map(|(device, pin)| {
        let index = sh(&format!("ip -o link show dev {device}")).split(':').next().unwrap().parse().unwrap();
        let loaded = PortProgram::load_routed(&config(Owner::Routed, WhenDown::Drop), &stage).unwrap();
        loaded.attach(index, AttachMode::Native, Some(PinPath::new(pin).unwrap())).unwrap()
    });
    let _ports: Vec<Attached> = ports.collect();
    println!("HOLDING");
    loop {
        std::thread::park();
    }
}

fn start_holder(order: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holder", "--nocapture"])
        .env(HOLDER, order)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("HOLDING")), "the holder failed");
    child
}

/// A pin that is removed on drop.
struct Pin(PinPath);

impl Drop for Pin {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.directory());
    }
}

#[test]
fn a_killed_routers_ports_go_on_and_a_successor_finds_its_addresses() {
    need_root!();
    let (namespace, va, _) = veth();
    let (vc, _) = namespace.veth("vc", "vd", "");
    let pins = ["one", "two"]
        .map(|which| Pin(PinPath::new(&format!("xdp-route-{}-{which}", std::process::id())).unwrap()));
    let [one, two] = [pins[0].0.name(), pins[1].0.name()];
    let mut holder = start_holder(&format!("{} {one} {two}", namespace.name));
    holder.kill().unwrap();
    holder.wait().unwrap();
    // No process serves the ports, and the kernel keeps its own packets.
    let wires = [PacketSocket::on(va), PacketSocket::on(vc)];
    let (local, transit) = (ipv4(OWN4, 60, |_| ()), ipv4(BEHIND, 60, |_| ()));
    for wire in &wires {
        [&local, &transit].into_iter().for_each(|frame| wire.send(frame));
    }
    let mut ports = [&pins[0], &pins[1]].map(|pin| adopt(&pin.0).unwrap().unwrap());
    let reads = |port: &Attached, way| port.counters().unwrap().get(way);
    for port in &ports {
        eventually("passed and dropped", || {
            (reads(port, Counter::PassedLocal4), reads(port, Counter::DownDropped)) == (1, 1)
        });
        assert_eq!(port.constants().owner, Owner::Routed);
    }
    let mut own = Own::of(&ports[0], "blue").unwrap().unwrap();
    assert_eq!((own.addresses(), own.router()), (&addresses(), "blue"));
    for port in &ports {
        assert!(port.route().unwrap().is_for(&PORT, &own).unwrap(), "both read the same");
        assert!(!port.route().unwrap().is_for(&VRRP, &own).unwrap());
        assert!(!port.route().unwrap().is_for(&PORT, &Own::new("blue").unwrap()).unwrap());
    }
    // Changes by the successor apply to both ports, before and after it replaces the programs.
    own.replace_all(&[BEHIND.into(), OWN6.into()].into()).unwrap();
    for swap in [false, true] {
        for (port, wire) in ports.iter_mut().zip(&wires) {
            if swap {
                port.swap(port.prepare(&config(Owner::Routed, WhenDown::Drop)).unwrap()).unwrap();
            }
            let before = (reads(port, Counter::PassedLocal4), reads(port, Counter::DownDropped));
            [&local, &transit].into_iter().for_each(|frame| wire.send(frame));
            eventually("the other way round", || {
                (reads(port, Counter::PassedLocal4), reads(port, Counter::DownDropped))
                    == (before.0 + 1, before.1 + 1)
            });
        }
    }
    let none = PortProgram::load(&config(Owner::Routed, WhenDown::Drop)).unwrap();
    let (_, other) = namespace.veth("ve", "vf", "");
    let plain = none.attach(other, AttachMode::Native, None).unwrap();
    assert!(Own::of(&plain, "blue").unwrap().is_none());
    for port in ports {
        port.detach().unwrap();
    }
}

/// The kernel answers for the router's own addresses to a host behind a router, and a socket receives the
/// host's other packets.
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
