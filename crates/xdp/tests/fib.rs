//! Tests of the kernel routing stage: every verdict and every return code of the kernel's helper with
//! `BPF_PROG_TEST_RUN`, devices that are added and removed, and adoption by a successor.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::net::{Ipv4Addr, Ipv6Addr};

use support::router::{FAR, NEAR, Router, ethernet, ipv4, ipv6, seal};
use support::{config, sh};
use xdp::fib::{FibCount, FibPort, FibStage, Takes};
use xdp::live::{Generator, Pass, Sink, Traffic};
use xdp::{AttachMode, Counter, Loaded, Owner, PinPath, PortProgram, StageChange, Verdict, WhenDown};

const BEHIND: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const BEHIND6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);

/// Returns the frame that the next hop must receive through the device with the index `by`: the MAC addresses are
/// replaced, and the TTL or hop limit is decremented.
fn forwarded(frame: &[u8], by: usize) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[..6].copy_from_slice(&FAR[by]);
    frame[6..12].copy_from_slice(&NEAR[by]);
    if frame[12] == 8 {
        frame[22] -= 1;
        seal(&mut frame[14..34]);
    } else {
        frame[21] -= 1;
    }
    frame
}

#[track_caller]
fn goes(router: &Router, loaded: &Loaded, frame: &[u8], by: usize) {
    let (verdict, counter, after) = router.see(loaded, frame);
    assert_eq!((verdict, counter), (Verdict::Redirect, Counter::FibForwarded));
    assert_eq!(after, forwarded(frame, by));
}

#[track_caller]
fn stays(router: &Router, loaded: &Loaded, frame: &[u8], why: Counter) {
    let (verdict, counter, after) = router.see(loaded, frame);
    assert_eq!((verdict, counter), (Verdict::Pass, why));
    assert_eq!(after, frame, "the stack gets it as it came");
}

#[test]
fn a_packet_for_elsewhere_goes_to_its_next_hop() {
    need_root!();
    let router = Router::new();
    let (stage, loaded) = router.stage(&Router::port());
    for (to, by) in [
        (Ipv4Addr::new(10, 0, 2, 2), 1),
        (BEHIND, 1),
        (Ipv4Addr::new(8, 8, 8, 8), 2),
        (Ipv4Addr::new(203, 0, 113, 9), 2),
    ] {
        goes(&router, &loaded, &ipv4(to, 60, |_| ()), by);
    }
    goes(&router, &loaded, &ipv6(BEHIND6, 60, |_| ()), 1);
    goes(&router, &loaded, &ipv6(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1), 60, |_| ()), 2);
    // Every identification value, so that every carry of the checksum occurs.
    for id in 0..=u16::MAX {
        let frame = ipv4(BEHIND, 28, |ip| ip[4..6].copy_from_slice(&id.to_be_bytes()));
        let run = loaded.test_run_from(&frame, Some((router.near[0], 0)), 1).unwrap();
        assert_eq!(run.frame, forwarded(&frame, 1));
    }
    let sent = stage.counts().unwrap();
    assert_eq!(sent[&router.near[2]], FibCount { packets: 3, bytes: 3 * 74 });
    // Packets of these protocols are forwarded: ICMP, TCP, ESP (which only the destination processes) and SCTP. The
    // stage reads ports only if the protocol has ports.
    for protocol in [1, 6, 50, 132] {
        goes(&router, &loaded, &ipv4(BEHIND, 60, |ip| ip[9] = protocol), 1);
        goes(&router, &loaded, &ipv6(BEHIND6, 60, |ip| ip[6] = protocol), 1);
    }
    goes(&router, &loaded, &ipv4(BEHIND, 28, |ip| ip[9] = 6), 1);
}

#[test]
fn what_is_behind_a_packet_is_left_out() {
    need_root!();
    let router = Router::new();
    let (_, loaded) = router.stage(&Router::port());
    let mut padded = ipv4(BEHIND, 28, |_| ());
    padded.resize(60, 9);
    goes(&router, &loaded, &padded, 1);
    let mut longer = padded.clone();
    longer.resize(200, 9);
    let (_, _, after) = router.see(&loaded, &longer);
    assert_eq!(after, forwarded(&padded, 1), "no longer than Ethernet wants");
    let mut six = ipv6(BEHIND6, 100, |_| ());
    let exact = six.clone();
    six.extend([9; 4]);
    assert_eq!(router.see(&loaded, &six).2, forwarded(&exact, 1));
}

#[test]
fn the_stack_gets_what_is_its_own() {
    need_root!();
    let router = Router::new();
    let (_, loaded) = router.stage(&Router::port());
    let stays = |frame: &[u8], why| stays(&router, &loaded, frame, why);
    let arp = ethernet(NEAR[0], 0x0806, &[0; 46]);
    stays(&arp, Counter::PassedControl);
    stays(&arp[..14], Counter::PassedControl);
    let fine = ipv4(BEHIND, 60, |_| ());
    let to = |mac: [u8; 6]| [&mac[..], &fine[6..]].concat();
    stays(&to([0xff; 6]), Counter::PassedGroup);
    stays(&to([1, 0, 0x5e, 0, 0, 5]), Counter::PassedGroup);
    stays(&to(NEAR[1]), Counter::FibStation);
    for protocol in [0x8100_u16, 0x88a8] {
        let tagged = [&fine[..12], &protocol.to_be_bytes(), &[0, 5], &fine[12..]].concat();
        stays(&tagged, Counter::FibTagged);
    }
    for address in [
        [224, 0, 0, 5],
        [239, 1, 1, 1],
        [10, 0, 2, 1],
        [10, 0, 2, 255],
        [0, 0, 0, 9],
        [127, 0, 0, 1],
        [169, 254, 1, 1],
        [240, 0, 0, 1],
        [255; 4],
    ] {
        let why = match address[0] {
            224..=239 => Counter::PassedGroup,
            10 => Counter::FibNoRoute,
            _ => Counter::FibAddress,
        };
        stays(&ipv4(address.into(), 60, |_| ()), why);
        // The kernel accepts the broadcast address of a subnet as a source address.
        if address != [10, 0, 2, 255] {
            stays(&ipv4(BEHIND, 60, |ip| ip[12..16].copy_from_slice(&address)), Counter::FibAddress);
        }
    }
    for (address, why) in [
        ("ff02::5", Counter::PassedGroup),
        ("fe80::9", Counter::FibAddress),
        ("::1", Counter::FibAddress),
        ("::", Counter::FibAddress),
        ("::ffff:10.0.2.2", Counter::FibAddress),
        ("fd00:2::1", Counter::FibNoRoute),
        ("fd00:2::", Counter::FibNoRoute),
    ] {
        let address: Ipv6Addr = address.parse().unwrap();
        stays(&ipv6(address, 60, |_| ()), why);
        if why != Counter::FibNoRoute {
            stays(&ipv6(BEHIND6, 60, |ip| ip[8..24].copy_from_slice(&address.octets())), Counter::FibAddress);
        }
    }
    for ttl in [0, 1] {
        stays(&ipv4(BEHIND, 60, |ip| ip[8] = ttl), Counter::FibTtl);
        stays(&ipv6(BEHIND6, 60, |ip| ip[7] = ttl), Counter::FibTtl);
    }
    goes(&router, &loaded, &ipv4(BEHIND, 60, |ip| ip[8] = 2), 1);
    goes(&router, &loaded, &ipv6(BEHIND6, 60, |ip| ip[7] = 2), 1);
    stays(&ipv4(BEHIND, 60, |ip| ip[0] = 0x46), Counter::FibOptions);
    for extension in [0, 43, 60, 51, 135, 139, 140] {
        stays(&ipv6(BEHIND6, 60, |ip| ip[6] = extension), Counter::FibOptions);
    }
    for fragment in [0x2000_u16, 1, 0x2001] {
        let bytes = fragment.to_be_bytes();
        stays(&ipv4(BEHIND, 60, |ip| ip[6..8].copy_from_slice(&bytes)), Counter::PassedFragment);
    }
    stays(&ipv6(BEHIND6, 60, |ip| ip[6] = 44), Counter::PassedFragment);
}

#[test]
fn the_stack_judges_what_is_malformed() {
    need_root!();
    let router = Router::new();
    let (_, loaded) = router.stage(&Router::port());
    let (four, six) = (ipv4(BEHIND, 60, |_| ()), ipv6(BEHIND6, 60, |_| ()));
    let stays = |frame: &[u8]| stays(&router, &loaded, frame, Counter::PassedMalformed);
    stays(&four[..33]);
    stays(&four[..73]);
    stays(&six[..53]);
    stays(&six[..73]);
    stays(&ipv4(BEHIND, 60, |ip| ip[0] = 0x65));
    stays(&ipv4(BEHIND, 60, |ip| ip[0] = 0x44));
    stays(&ipv4(BEHIND, 60, |ip| ip[3] = 19));
    stays(&ipv6(BEHIND6, 60, |ip| ip[0] = 0x40));
    for byte in 14..34 {
        let mut frame = four.clone();
        frame[byte] ^= 0x10;
        let (verdict, ..) = router.see(&loaded, &frame);
        assert_eq!(verdict, Verdict::Pass, "byte {byte} of the header");
    }
}

#[test]
fn every_answer_of_the_kernel_has_its_counter() {
    need_root!();
    let router = Router::new();
    let (stage, loaded) = router.stage(&Router::port());
    let four = |last: u8, length: u16, why| {
        stays(&router, &loaded, &ipv4(Ipv4Addr::new(192, 0, 2, last), length, |_| ()), why);
    };
    let six = |third: u16, length: u16, why| {
        let to = Ipv6Addr::new(0x2001, 0xdb8, third, 0, 0, 0, 0, 1);
        stays(&router, &loaded, &ipv6(to, length, |_| ()), why);
    };
    four(1, 60, Counter::FibBlackhole);
    four(5, 60, Counter::FibUnreachable);
    four(9, 60, Counter::FibProhibit);
    four(13, 60, Counter::FibNoRoute);
    four(17, 60, Counter::FibTunnel);
    four(29, 60, Counter::FibSameDevice);
    // The MTU of the route is 9000 bytes, and the MTU of its device is 1500 bytes.
    four(25, 1501, Counter::FibTooLong);
    four(21, 1001, Counter::FibTooLong);
    goes(&router, &loaded, &ipv4(Ipv4Addr::new(192, 0, 2, 21), 1000, |_| ()), 1);
    goes(&router, &loaded, &ipv4(Ipv4Addr::new(192, 0, 2, 25), 1500, |_| ()), 1);
    stays(&router, &loaded, &ipv4(BEHIND, 1501, |_| ()), Counter::FibTooLong);
    goes(&router, &loaded, &ipv4(BEHIND, 1500, |_| ()), 1);
    six(2, 60, Counter::FibBlackhole);
    six(3, 60, Counter::FibUnreachable);
    six(4, 60, Counter::FibProhibit);
    six(5, 60, Counter::FibTunnel);
    six(6, 60, Counter::FibSameDevice);
    six(7, 1301, Counter::FibTooLong);
    six(9, 60, Counter::FibNoRoute);
    let stranger = |at: u8| ipv4(Ipv4Addr::new(10, 0, 2, at), 60, |_| ());
    stays(&router, &loaded, &stranger(9), Counter::FibNeighbor);
    let stranger6 = ipv6(Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 9), 60, |_| ());
    stays(&router, &loaded, &stranger6, Counter::FibNeighbor);
    router.namespace.ip("neighbor add 10.0.2.9 lladdr 02:00:00:00:02:02 dev n2 nud stale");
    router.namespace.ip("neighbor add 10.0.2.10 lladdr 02:00:00:00:02:02 dev n2 nud failed");
    goes(&router, &loaded, &stranger(9), 1);
    stays(&router, &loaded, &stranger(10), Counter::FibNeighbor);
    stage.set_devices(&router.takes(Takes::Nothing, Takes::Frames)).unwrap();
    stays(&router, &loaded, &ipv4(BEHIND, 60, |_| ()), Counter::FibNoDevice);
    stage.set_devices(&router.takes(Takes::Frames, Takes::Frames)).unwrap();
    goes(&router, &loaded, &ipv4(BEHIND, 60, |_| ()), 1);
    router.namespace.ip("route del default");
    stays(&router, &loaded, &ipv4(Ipv4Addr::new(8, 8, 8, 8), 60, |_| ()), Counter::FibNoRoute);
    sh("echo 0 > /proc/sys/net/ipv4/conf/n1/forwarding; echo 0 > /proc/sys/net/ipv6/conf/n1/forwarding");
    stays(&router, &loaded, &ipv4(BEHIND, 60, |_| ()), Counter::FibDisabled);
    stays(&router, &loaded, &ipv6(BEHIND6, 60, |_| ()), Counter::FibDisabled);
}

#[test]
fn frames_in_several_buffers_go_where_they_are_taken() {
    need_root!();
    let router = Router::new();
    router.namespace.ip("link set dev n2 mtu 9000");
    router.namespace.ip("link set dev n3 mtu 9000");
    let (stage, loaded) = router.stage(&Router::port());
    let long = |to| ipv4(to, 8000, |_| ());
    stays(&router, &loaded, &long(BEHIND), Counter::FibNoDevice);
    goes(&router, &loaded, &long(Ipv4Addr::new(8, 8, 8, 8)), 2);
    assert_eq!(stage.count(router.near[2]).unwrap(), FibCount { packets: 1, bytes: 8014 });
    stage.set_devices(&router.takes(Takes::MultiBuffer, Takes::Frames)).unwrap();
    goes(&router, &loaded, &long(BEHIND), 1);
    stays(&router, &loaded, &long(Ipv4Addr::new(8, 8, 8, 8)), Counter::FibNoDevice);
}

#[test]
fn open_checksums_and_doubtful_sources_are_the_stacks() {
    need_root!();
    let router = Router::new();
    // 10.0.1.2 + 198.51.100.7 + 17 + 40, in network byte order.
    let bare: u32 = 0x0a00 + 0x0102 + 0xc633 + 0x6407 + 17 + 40;
    let bare = u16::try_from((bare & 0xffff) + (bare >> 16)).unwrap();
    let open = ipv4(BEHIND, 60, |ip| ip[26..28].copy_from_slice(&bare.to_be_bytes()));
    let (_, loaded) = router.stage(&Router::port());
    goes(&router, &loaded, &open, 1);
    let (_, completing) = router.stage(&FibPort { partial_checksums: true, ..Router::port() });
    stays(&router, &completing, &open, Counter::FibPartial);
    goes(&router, &completing, &ipv4(BEHIND, 60, |_| ()), 1);

    let from = |address: [u8; 4]| ipv4(BEHIND, 60, |ip| ip[12..16].copy_from_slice(&address));
    let (_, checking) = router.stage(&FibPort { check_sources: true, ..Router::port() });
    goes(&router, &loaded, &from([203, 0, 113, 1]), 1);
    stays(&router, &checking, &from([203, 0, 113, 1]), Counter::FibAddress);
    stays(&router, &checking, &from([192, 0, 2, 1]), Counter::FibAddress);
    goes(&router, &checking, &from([10, 0, 1, 77]), 1);
    goes(&router, &checking, &from([192, 0, 2, 29]), 1);
}

#[test]
fn devices_that_go_keep_their_sum() {
    need_root!();
    let router = Router::new();
    let (stage, loaded) = router.stage(&Router::port());
    let frame = ipv4(BEHIND, 60, |_| ());
    goes(&router, &loaded, &frame, 1);
    // The default route would otherwise replace the deleted route.
    router.namespace.ip("route del default");
    router.namespace.ip("link del dev n2");
    support::eventually("the kernel forgets the device", || router.see(&loaded, &frame).0 == Verdict::Pass);
    stage.set_devices(&[(router.near[2], Takes::Frames), (router.near[1], Takes::Frames)].into()).unwrap();
    stage.set_devices(&[(router.near[2], Takes::Frames)].into()).unwrap();
    let sum = FibCount { packets: 1, bytes: 74 };
    assert_eq!(stage.counts().unwrap()[&0], sum);
    assert!(!stage.counts().unwrap().contains_key(&router.near[1]));
    router.namespace.ip("route add 8.8.8.8 via 10.0.3.2");
    goes(&router, &loaded, &ipv4(Ipv4Addr::new(8, 8, 8, 8), 60, |_| ()), 2);
    stage.set_devices(&[].into()).unwrap();
    assert_eq!(stage.counts().unwrap()[&0], FibCount { packets: 2, bytes: 148 });
}

#[test]
fn explain_tells_the_device_and_counts_nothing() {
    need_root!();
    let mut router = Router::new();
    // The index is too large for the array of counts.
    router.namespace.ip("link add name n4 index 5000 type veth peer name f4");
    router.namespace.ip("link set dev n4 up address 02:00:00:00:04:01");
    router.namespace.ip("link set dev f4 up");
    router.namespace.ip("address add 10.0.4.1/24 dev n4");
    router.namespace.ip("neighbor add 10.0.4.2 lladdr 02:00:00:00:04:02 dev n4");
    let _pass = Pass::attach(router.namespace.index("f4"), AttachMode::Native).unwrap();
    let stage = FibStage::new(&Router::port(), &router.attached).unwrap();
    let mut devices = router.takes(Takes::Frames, Takes::Frames);
    devices.insert(5000, Takes::Frames);
    stage.set_devices(&devices).unwrap();
    router.attached.set_stage(StageChange::Fib(Some(&stage))).unwrap();
    let (before, counts) = (router.attached.counters().unwrap(), stage.counts().unwrap());

    let frame = ipv4(BEHIND, 60, |_| ());
    let says = router.attached.explainer().unwrap().explain(&frame).unwrap();
    assert_eq!((says.counter, says.device), (Counter::FibForwarded, Some(router.near[1])));
    assert_eq!(says.frame, forwarded(&frame, 1));
    let says =
        router.attached.explainer().unwrap().explain(&ipv4(Ipv4Addr::new(10, 0, 4, 2), 60, |_| ())).unwrap();
    assert_eq!((says.counter, says.device), (Counter::FibForwarded, Some(5000)));
    let says = router.attached.explainer().unwrap().explain(&ipv4(BEHIND, 60, |ip| ip[8] = 1)).unwrap();
    assert_eq!((says.counter, says.device), (Counter::FibTtl, None));
    assert_eq!(stage.counts().unwrap(), counts);
    assert_eq!(
        router.attached.counters().unwrap().get(Counter::FibForwarded),
        before.get(Counter::FibForwarded)
    );
}

/// The hook forwards real frames while the process that owns the hook ends and a successor process adopts the hook.
#[test]
fn frames_cross_and_pins_keep_them_crossing() {
    need_root!();
    let mut router = Router::new();
    let near = router.near[0];
    let pin = PinPath::new(&format!("fib-{}", std::process::id())).unwrap();
    let stage = FibStage::new(&Router::port(), &router.attached).unwrap();
    let old = std::mem::replace(&mut router.attached, {
        // The test's own hook is replaced by a pinned one.
        let loaded = PortProgram::load(&config(Owner::Routed, WhenDown::Pass)).unwrap();
        let namespace = &router.namespace;
        let (_, other) = namespace.veth("o1", "o2", "");
        loaded.attach(other, AttachMode::Native, None).unwrap()
    });
    old.detach().unwrap();
    let loaded = PortProgram::load(&config(Owner::Routed, WhenDown::Pass)).unwrap();
    let mut attached = loaded.attach(near, AttachMode::Native, Some(pin.clone())).unwrap();
    stage.set_devices(&router.takes(Takes::Frames, Takes::Frames)).unwrap();
    attached.set_stage(StageChange::Fib(Some(&stage))).unwrap();
    router.pass.remove(1);
    // A process that lists links may hold the old link for a moment.
    let sink =
        support::awaited("the far end is free", || Sink::attach(router.far[1], AttachMode::Native).ok());
    let traffic = Traffic {
        source_mac: FAR[0],
        destination_mac: NEAR[0],
        destination: BEHIND,
        park: false,
        ..Traffic::to(router.far[0])
    };
    let mut generator = Generator::new(&traffic).unwrap();
    let mut all_arrive = || {
        let before = sink.sunk().unwrap().packets;
        generator.send(10_000).unwrap();
        support::eventually("all frames have crossed", || sink.sunk().unwrap().packets - before >= 10_000);
    };
    all_arrive();
    assert_eq!(attached.counters().unwrap().get(Counter::FibForwarded), 10_000);
    // Dropping these values simulates the end of the process that created the port.
    drop((attached, stage));
    all_arrive();
    let mut adopted = xdp::adopt(&pin).unwrap().unwrap();
    let stage = adopted.fib().unwrap();
    assert!(stage.is_for(&Router::port()));
    assert!(!stage.is_for(&FibPort { mac: FAR[0], ..Router::port() }));
    let again = adopted.prepare(&config(Owner::Routed, WhenDown::Pass)).unwrap();
    adopted.swap(again).unwrap();
    all_arrive();
    assert_eq!(adopted.counters().unwrap().get(Counter::FibForwarded), 30_000);
    assert_eq!(stage.count(router.near[1]).unwrap().packets, 30_000);
    // A stage with other constants keeps the counts. Without the stage, the kernel stack forwards the frames.
    let next = FibStage::new(&FibPort { check_sources: true, ..Router::port() }, &adopted).unwrap();
    assert_eq!(next.count(router.near[1]).unwrap().packets, 30_000);
    adopted.set_stage(StageChange::Fib(None)).unwrap();
    all_arrive();
    assert!(adopted.fib().is_none());
    assert_eq!(adopted.counters().unwrap().get(Counter::FibForwarded), 30_000);
    adopted.detach().unwrap();
}
