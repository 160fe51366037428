//! Tests of changes of the tables and the program of a router's port while the program processes frames.

use super::*;
use xdp::StageChange;

/// Runs the program on frames, 10,000 at a time, until `done` is set. Checks that each frame increments the counter
/// `way`.
fn stream(loaded: &Loaded, frame: &[u8], way: Counter, done: &AtomicBool) {
    let mut frames = 0;
    while !done.load(Ordering::Relaxed) || frames == 0 {
        loaded.test_run_from(frame, None, 10_000).unwrap();
        frames += 10_000;
    }
    let counters = loaded.counters().unwrap();
    assert_eq!((counters.get(way), counters.seen()), (frames, frames), "each of them leaves so");
}

/// The router's own addresses change while the program processes millions of frames. Each frame to an address that is
/// not removed goes to the kernel.
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
    // The table of the other address family has separate space, and a removed address frees space.
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

/// A replacement of the own addresses that fails in the middle is rolled back. In this test the replacement fails
/// because the kernel's table has less space than expected.
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
    port.set_stage(StageChange::Route(Some(&RouteStage::new(&moved, &own)))).unwrap();
    assert_eq!(port.route().unwrap().port(), moved);
    assert!(!port.route().unwrap().is_for(&PORT, &own).unwrap());
    moves(&port, &frame, Counter::RouteStation);
    moves(&port, &to(moved.mac, &frame), Counter::DownDropped);
    // Replacements of the program keep the stage and its addresses.
    port.swap(port.prepare(&config(Owner::Routed, WhenDown::Pass)).unwrap()).unwrap();
    moves(&port, &to(moved.mac, &frame), Counter::DownPassed);
    moves(&port, &to(moved.mac, &ipv4(OWN4, 60, |_| ())), Counter::PassedLocal4);
}
