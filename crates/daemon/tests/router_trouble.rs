//! Tests a virtual router under scans, loops, floods, flapping routes and removed devices. A flow that is not affected
//! loses no packet, and at the end the router's tables match the kernel's tables.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use packet::spec;
use rig::{PATIENCE, Rig};
use rustix::process::Signal;
use testbed::{LabError, RawReceiver, RawSender, UdpFlow, eventually, require};

/// Maximum number of packets of each class that the router punts to the kernel per second.
const PUNTS: u64 = 500;

/// Starts a router with `hosts` ports, to each of which a host is connected.
fn start(hosts: u8) -> Rig {
    start_with(hosts, "")
}

/// Like [`start`], with additional settings.
fn start_with(hosts: u8, settings: &str) -> Rig {
    start_limited(hosts, &format!("errors = {PUNTS}"), settings)
}

/// Like [`start`], with rate limits for some classes of punted packets, and with additional settings.
fn start_limited(hosts: u8, limits: &str, settings: &str) -> Rig {
    let mut rig = Rig::routed(hosts);
    let ports: String = rig
        .configuration("")
        .lines()
        .filter(|line| !line.contains("bridge") && !line.contains("access"))
        .fold(String::new(), |text, line| text + line + "\n");
    let mut text = format!("{ports}[router.edge]\npunts = {PUNTS}\npunt_limits = {{ {limits} }}\n{settings}");
    for host in &rig.hosts {
        let _ = writeln!(text, "[router.edge.port.{}]", host.device());
    }
    rig.start(&text);
    rig.until_reachable(1, 2);
    rig
}

fn router(rig: &Rig) -> serde_json::Value {
    let all: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "routers", "--json"])).unwrap();
    all[0].clone()
}

/// Returns the number of packets of a class that were punted to the kernel, and the number of packets of the class that
/// were dropped because they exceeded the rate limit.
fn punted(rig: &Rig, class: &str) -> (u64, u64) {
    let router = router(rig);
    let punt = router["punts"].as_array().unwrap().iter().find(|punt| punt["class"] == class).unwrap();
    (punt["packets"].as_u64().unwrap(), punt["refused"].as_u64().unwrap())
}

/// Checks that the router's tables match the kernel's tables, and that no difference had to be repaired.
fn assert_in_step(rig: &Rig) {
    eventually("in step", PATIENCE, || {
        let router = router(rig);
        if router["in_step"] == true { Ok(()) } else { Err(router.to_string()) }
    })
    .unwrap();
    let drift: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "drift", "--json"])).unwrap();
    assert_eq!((&drift["drifted"], &router(rig)["drifted"]), (&0.into(), &0.into()), "{drift}");
}

/// Returns the resident memory of the daemon in KiB.
fn resident(rig: &mut Rig) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", rig.daemon().pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Sends packets from h1 to the addresses in turn, about 20,000 per second, during `work`.
fn flood<T>(rig: &Rig, addresses: impl Iterator<Item = String>, work: impl FnOnce() -> T) -> T {
    let router = rig.port("h1")["mac"].as_str().unwrap().to_owned();
    let frame =
        |to: String| spec::parse(&format!("eth_dst={router},ip_src=10.8.1.2,ip_dst={to},udp")).unwrap();
    let frames: Vec<Vec<u8>> = addresses.map(frame).collect();
    let sender = RawSender::open(&rig.hosts[0], "eth0").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for frames in frames.chunks(20).cycle() {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                // Errors for a full queue are expected in a flood.
                frames.iter().for_each(|frame| drop(sender.send(frame)));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        // The flood ends after a panic, too.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(&done);
        work()
    })
}

#[test]
fn a_scan_of_a_whole_network_is_bounded() {
    require!("ip", "ping", "ethtool");
    let mut rig = start(2);
    rig.lab.hub().run(["ip", "address", "add", "44.0.0.1/8", "dev", "h2"]).unwrap();
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    let before = resident(&mut rig);
    let asked = RawReceiver::open(&rig.hosts[1], "eth0").unwrap();
    let begin = Instant::now();
    let addresses = (0..20_000_u32).map(|n| format!("44.{}.{}.{}", n % 251, n / 251 % 251, 2 + n % 253));
    flood(&rig, addresses, || flow.wait_for(6_000, PATIENCE).unwrap());
    let seconds = begin.elapsed().as_secs() + 1;
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.doubled), (0, 0), "{report:?}");
    let (given, refused) = punted(&rig, "unresolved");
    assert!(given > 100 && refused > given, "{given} given, {refused} refused");
    assert!(given <= PUNTS * seconds + 100, "{given} in {seconds} s");
    let mut requests = 0;
    while let Some(frame) = asked.arrived(Duration::from_millis(50)).unwrap() {
        requests += u64::from(frame[12..14] == [8, 6] && frame[38] == 44);
        if requests > 10 * given {
            break;
        }
    }
    // The kernel sends at most three requests for each punted packet.
    assert!((1..=3 * given).contains(&requests), "{requests} requests for {given} packets");
    let grown = resident(&mut rig).saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB more");
    assert_in_step(&rig);
}

/// Checks that a forwarding loop ends. A packet circulates between the router and h1 until its TTL expires. The sender
/// then receives an ICMP error.
#[test]
fn a_loop_ends_with_the_hops() {
    require!("ip", "ping", "ethtool");
    let rig = start(2);
    rig.lab.hub().run(["ip", "route", "add", "10.66.0.0/16", "via", "10.8.1.2"]).unwrap();
    rig.lab.hub().run(["sysctl", "-qw", "net.ipv4.icmp_ratemask=0"]).unwrap();
    let loops = [
        "net.ipv4.ip_forward=1",
        "net.ipv4.conf.all.send_redirects=0",
        "net.ipv4.conf.eth0.send_redirects=0",
    ];
    rig.hosts[0].run(["sysctl", "-qw"].into_iter().chain(loops)).unwrap();
    let sent = || rig.port("h1")["counters"]["tx_packets"].as_u64().unwrap();
    let before = sent();
    let line = ["ping", "-c", "5", "-i", "0.1", "-W", "1", "-t", "40", "10.66.0.1"];
    let output = rig.hosts[1].command(line).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("Time to live exceeded"), "{said}");
    let rounds = sent() - before;
    // A packet has 40 hops, and the router forwards at every other one.
    assert!((5 * 15..=5 * 25).contains(&rounds), "{rounds} packets back to h1");
    std::thread::sleep(Duration::from_millis(300));
    assert!(sent() - before <= rounds + 5, "it goes on");
    rig.until_reachable(1, 2);
}

/// Thousands of changes of the default route per second do not affect a flow that uses another prefix.
#[test]
fn a_default_route_that_flaps_harms_nobody() {
    require!("ip", "ping", "ethtool");
    let rig = start(3);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    // A batch file of `ip` has routes of one family.
    let lines = |gateway: &str| -> String {
        (0..5_000_u32)
            .map(|n| {
                format!(
                    "route add default via {}\nroute del default\n",
                    gateway.replace('N', &(2 + n % 2).to_string())
                )
            })
            .collect()
    };
    let four = rig.write("four", &(lines("10.8.N.2") + "route add default via 10.8.3.2\n"));
    let six = rig.write("six", &lines("fd00:8:N::2"));
    let begin = Instant::now();
    let both = format!("ip -6 -batch {} & ip -batch {} && wait $!", six.display(), four.display());
    rig.lab.hub().run(["sh", "-c", &both]).unwrap();
    let rate = 20_000.0 / begin.elapsed().as_secs_f64();
    flow.wait_for(500, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.doubled), (0, 0), "{report:?} at {rate:.0} changes a second");
    assert!(rate > 1_000.0, "only {rate:.0} changes a second: no flapping");
    assert_in_step(&rig);
    assert!(rig.ok(&["show", "why", "192.0.2.1"]).contains("10.8.3.2"));
}

/// Checks that the router's tables match the kernel's tables after netlink notifications were lost. The daemon is
/// stopped by a signal while routes are added and removed. The notifications do not all fit into the socket's buffer.
#[test]
fn notifications_that_were_lost_leave_no_trace() {
    require!("ip", "ping", "ethtool");
    const ROUTES: u32 = 400_000;
    let mut rig = start(2);
    let prefix = |n: u32| format!("{}.{}.{}.0/24", 20 + (n >> 16), n >> 8 & 0xff, n & 0xff);
    let mut text: String = (0..ROUTES).map(|n| format!("route add {} via 10.8.2.2\n", prefix(n))).collect();
    for n in (0..ROUTES).step_by(3) {
        let _ = writeln!(text, "route del {}", prefix(n));
    }
    for n in (1..ROUTES).step_by(300) {
        let _ = writeln!(text, "route replace {} via 10.8.1.2", prefix(n));
    }
    let batch = rig.write("churn", &text);
    let before = router(&rig);
    rig.daemon().signal(Signal::STOP).unwrap();
    let churned = rig.lab.hub().run(["ip", "-batch", batch.to_str().unwrap()]);
    rig.daemon().signal(Signal::CONT).unwrap();
    churned.unwrap();
    let kernel =
        rig.lab.hub().run(["ip", "-4", "route", "show", "table", "all"]).unwrap().lines().count() as u64;
    let known = |router: &serde_json::Value, what: &str| router[what].as_u64().unwrap();
    eventually("all routes again", PATIENCE, || {
        let router = router(&rig);
        let overrun = known(&router, "overruns") > known(&before, "overruns");
        let read = known(&router, "resyncs") > known(&before, "resyncs");
        let whole = known(&router, "routes4") + 1_000 > kernel && router["in_step"] == true;
        if overrun && read && whole { Ok(()) } else { Err(format!("{kernel} in the kernel: {router}")) }
    })
    .unwrap();
    assert_in_step(&rig);
    for (n, to) in [(0, None), (1, Some("10.8.1.2")), (2, Some("10.8.2.2")), (ROUTES - 2, Some("10.8.2.2"))] {
        let said = rig.ok(&["show", "why", &prefix(n).replace(".0/24", ".7")]);
        match to {
            Some(to) => assert!(said.contains(&prefix(n)) && said.contains(to), "{n}: {said}"),
            None => assert!(!said.contains(&prefix(n)), "{n}: {said}"),
        }
    }
    rig.until_reachable(1, 2);
}

/// Checks that the router reports the kernel's routes beyond its configured route limit, and forwards packets according
/// to the other routes.
#[test]
fn routes_beyond_the_limit_are_named_and_the_others_forward() {
    require!("ip", "ping", "ethtool");
    let mut rig = start_with(2, "routes = 1000\n");
    let lines = |verb: &str, to: u32| -> String {
        let address = |n: u32| Ipv4Addr::from_bits(0x4000_0000 | n << 8);
        (0..to).map(|n| format!("route {verb} {}/24 via 10.8.2.2\n", address(n))).collect()
    };
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 100).unwrap();
    flow.wait_for(10, PATIENCE).unwrap();
    let (add, del) = (rig.write("add", &lines("add", 1_500)), rig.write("del", &lines("del", 600)));
    rig.lab.hub().run(["ip", "-batch", add.to_str().unwrap()]).unwrap();
    let said = rig.daemon().wait_for_line("what there is goes on forwarding", PATIENCE).unwrap();
    assert!(said.contains("the 1000 routes that it may have") && said.contains("raise `routes`"), "{said}");
    assert_in_step(&rig);
    // 1,500 test routes, and at least those of both hosts' links.
    let refused = router(&rig)["refused"].as_u64().unwrap();
    assert!((502..600).contains(&refused), "{refused}");
    let explained =
        |to: &str| rig.ok(&["explain", "--in", "h1", &format!("ip_src=10.8.1.2,ip_dst={to},udp")]);
    let (first, last) = (explained("64.0.0.1"), explained("64.5.219.1"));
    assert!(first.contains("out of h2") && !last.contains("out of h2"), "{first}\n{last}");
    let why = rig.ok(&["show", "why", "64.5.219.1"]);
    assert!(why.contains("found no room") && last.contains("found no room"), "{why}\n{last}");
    assert!(!first.contains("found no room"), "{first}");
    // A new local address is accepted above the limit.
    rig.lab.hub().run(["ip", "address", "add", "10.8.1.77/32", "dev", "lo"]).unwrap();
    assert_in_step(&rig);
    let why = rig.ok(&["show", "why", "10.8.1.77"]);
    assert!(why.contains("local"), "{why}");
    // Space is available again for refused and for new routes.
    rig.lab.hub().run(["ip", "-batch", del.to_str().unwrap()]).unwrap();
    assert_in_step(&rig);
    let last = explained("64.5.219.1");
    assert!(last.contains("out of h2"), "{last}");
    rig.lab.hub().run(["ip", "route", "add", "203.0.113.0/24", "via", "10.8.2.2"]).unwrap();
    assert_in_step(&rig);
    let new = explained("203.0.113.1");
    assert!(new.contains("h2") && router(&rig)["refused"] == refused, "{new}");
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.doubled), (0, 0), "{report:?}");
}

/// The kernel has more routes than fit into the memory of the router's table. The router reports this, and continues to
/// forward packets according to the routes in the table.
#[test]
fn a_table_that_is_full_is_named_and_forwards_what_it_has() {
    require!("ip", "ping", "ethtool");
    const ROUTES: u32 = 150_000;
    let mut rig = start_with(2, "routes = 1000000\n");
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 100).unwrap();
    flow.wait_for(10, PATIENCE).unwrap();
    // Single addresses far from each other need the most memory. Multiplication by an odd number gives no
    // duplicates.
    let address = |n: u32| Ipv4Addr::from_bits(0x4000_0000 | n.wrapping_mul(0x9e37_79b1) & 0x3fff_ffff);
    let lines = |verb: &str| -> String {
        (0..ROUTES).map(|n| format!("route {verb} {} via 10.8.2.2\n", address(n))).collect()
    };
    let (add, del) = (rig.write("add", &lines("add")), rig.write("del", &lines("del")));
    rig.lab.hub().run(["ip", "-batch", add.to_str().unwrap()]).unwrap();
    let said = rig.daemon().wait_for_line("what there is goes on forwarding", PATIENCE).unwrap();
    assert!(said.contains("is full") && said.contains("edge"), "{said}");
    let told = router(&rig);
    assert!(told["refused"].as_u64().unwrap() > 0, "{told}");
    let first = format!("ip_src=10.8.1.2,ip_dst={},udp", address(0));
    let explained = rig.ok(&["explain", "--in", "h1", &first]);
    assert!(explained.contains("h2"), "{explained}");
    assert_in_step(&rig);
    // Space is available again, for new routes, too.
    rig.lab.hub().run(["ip", "-batch", del.to_str().unwrap()]).unwrap();
    assert_in_step(&rig);
    let refused = router(&rig)["refused"].clone();
    rig.lab.hub().run(["ip", "route", "add", "203.0.113.0/24", "via", "10.8.2.2"]).unwrap();
    assert_in_step(&rig);
    let explained = rig.ok(&["explain", "--in", "h1", "ip_src=10.8.1.2,ip_dst=203.0.113.1,udp"]);
    assert!(explained.contains("h2") && router(&rig)["refused"] == refused, "{explained}");
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.doubled), (0, 0), "{report:?}");
}

/// A TCP connection to the router, on which a little data is exchanged continuously (like a BGP session), survives
/// while other hosts flood the kernel.
#[test]
fn a_session_with_the_router_outlives_a_flood() {
    require!("ip", "ping", "ethtool");
    let rig = start(2);
    let failed = |what: &'static str| {
        move |error: std::io::Error| LabError::System { what: what.to_owned(), source: error }
    };
    let listen = || TcpListener::bind("10.8.1.1:179").map_err(failed("listening"));
    let listener = rig.lab.hub().inside(listen).unwrap();
    let connect = || TcpStream::connect("10.8.1.1:179").map_err(failed("connecting"));
    let mut peer = rig.hosts[0].inside(connect).unwrap();
    let (mut session, _) = listener.accept().unwrap();
    for stream in [&session, &peer] {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    }
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 1_000).unwrap();
    flow.wait_for(100, PATIENCE).unwrap();
    // Half of the packets have no route, and the worker sends errors. The other half has an unresolvable
    // neighbour.
    let nowhere = (0..2_000).map(|n| format!("203.0.{}.{}", n / 250, n % 250));
    let nobody = (0..2_000).map(|n| format!("10.8.2.{}", 10 + n % 200));
    let worst = flood(&rig, nowhere.zip(nobody).flat_map(|(one, two)| [one, two]), || {
        let (begin, mut worst) = (Instant::now(), Duration::ZERO);
        while begin.elapsed() < Duration::from_secs(3) {
            let (said, mut heard) = (Instant::now(), [0; 19]);
            peer.write_all(&[0xff; 19]).unwrap();
            session.read_exact(&mut heard).unwrap();
            session.write_all(&heard).unwrap();
            peer.read_exact(&mut heard).unwrap();
            worst = worst.max(said.elapsed());
            std::thread::sleep(Duration::from_millis(10));
        }
        worst
    });
    // The hold time of BGP is several seconds at least.
    assert!(worst < Duration::from_secs(3), "{worst:?}");
    for class in ["errors", "unresolved"] {
        let (given, refused) = punted(&rig, class);
        assert!(given > 0 && refused > 1_000, "{class}: {given} given, {refused} refused");
    }
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.doubled), (0, 0), "{report:?}");
}

/// A BGP session between kernel sockets survives floods of control packets: TCP segments with forged source addresses,
/// and ARP packets with forged MAC addresses. The rate limits in the hook drop most packets of each flood, and no
/// segment of the session.
#[test]
fn a_session_by_the_hook_lives_in_a_flood_of_forged_segments() {
    require!("ip", "ping", "ethtool");
    let rig = start_limited(2, "session = 20000, neighbour = 20000", "");
    let listener = rig.lab.hub().inside(|| Ok(TcpListener::bind("10.8.1.1:179").unwrap())).unwrap();
    let mut far = rig.hosts[0].inside(|| Ok(TcpStream::connect("10.8.1.1:179").unwrap())).unwrap();
    far.set_nodelay(true).unwrap();
    let (mut near, _) = listener.accept().unwrap();
    near.set_read_timeout(Some(PATIENCE)).unwrap();
    eventually("the session is known", PATIENCE, || {
        far.write_all(&[0xff; 19]).unwrap();
        near.read_exact(&mut [0; 19]).unwrap();
        let session = punted(&rig, "session");
        if session.0 > 0 { Ok(()) } else { Err(format!("{session:?}, {:?}", punted(&rig, "bgp"))) }
    })
    .unwrap();
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 500).unwrap();
    flow.wait_for(100, PATIENCE).unwrap();
    let mac = mac_of_hub(&rig, "h1");
    let sender = RawSender::open(&rig.hosts[0], "eth0").unwrap();
    let mut number = 0_u32;
    for round in 0..200 {
        for _ in 0..50 {
            number += 1;
            let source = Ipv4Addr::from(0x0b00_0000 + number);
            let forged =
                format!("eth_dst={mac},ip_src={source},ip_dst=10.8.1.1,tcp,src_port=179,dst_port=5000");
            sender.send(&spec::parse(&forged).unwrap()).unwrap();
            let [.., a, b] = number.to_be_bytes();
            let mut arp = spec::parse("arp").unwrap();
            arp[..12].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 9, 9, 9, a, b]);
            arp[22..28].copy_from_slice(&[2, 9, 9, 9, a, b]);
            arp[28..32].copy_from_slice(&[10, 8, 1, 2]);
            sender.send(&arp).unwrap();
        }
        far.write_all(&[0xff; 19]).unwrap();
        near.read_exact(&mut [0; 19]).unwrap_or_else(|error| panic!("keepalive {round}: {error}"));
    }
    let [bgp, arp, session] = ["bgp", "arp", "session"].map(|class| punted(&rig, class));
    assert!(bgp.1 > 5_000 && arp.1 > 5_000, "most of the floods is dropped: {bgp:?} {arp:?}");
    assert!(session.0 >= 200 && session.1 == 0, "of the session nothing is: {session:?}");
    assert!(rig.dropped("h1", "punt-limit") >= bgp.1 + arp.1, "{}", rig.ok(&["show", "drops"]));
    // The kernel still resolves neighbours.
    rig.lab.hub().run(["ip", "neigh", "flush", "dev", "h1"]).unwrap();
    assert!(rig.hosts[0].ping("10.8.1.1", 5).is_ok());
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.doubled), (0, 0), "{report:?}");
}

/// Returns the MAC address of a device of the router.
fn mac_of_hub(rig: &Rig, device: &str) -> String {
    let shown = rig.lab.hub().run(["ip", "-o", "link", "show", "dev", device]).unwrap();
    shown.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).unwrap().to_owned()
}

/// When a device is removed, the routes through this device are removed immediately. Other routes are not affected.
/// When the device exists again, its routes are restored.
#[test]
fn a_next_hops_device_goes_and_comes() {
    require!("ip", "ping", "ethtool");
    let rig = start(3);
    let hub = rig.lab.hub();
    let route = || {
        hub.run(["ip", "route", "replace", "10.77.0.0/16", "via", "10.8.3.2"]).unwrap();
        hub.run(["ip", "-6", "address", "replace", "fd00:8:3::1/64", "dev", "h3", "nodad"]).unwrap();
        hub.run(["ip", "-6", "route", "replace", "2001:db8:77::/48", "via", "fd00:8:3::2"]).unwrap();
    };
    let why = |address: &str| -> serde_json::Value {
        serde_json::from_str(&rig.ok(&["show", "why", address, "--json"])).unwrap()
    };
    let until = |there: bool| {
        for address in ["10.77.0.1", "2001:db8:77::1"] {
            eventually(&format!("a route to {address}: {there}"), PATIENCE, || {
                let why = why(address);
                if why["route"].is_null() == there { Err(why.to_string()) } else { Ok(()) }
            })
            .unwrap();
        }
    };
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    for _ in 0..3 {
        route();
        until(true);
        assert_in_step(&rig);
        hub.run(["ip", "link", "set", "dev", "h3", "down"]).unwrap();
        until(false);
        assert_in_step(&rig);
        hub.run(["ip", "link", "set", "dev", "h3", "up"]).unwrap();
        eventually("h3 is up", PATIENCE, || {
            hub.run(["ip", "route", "replace", "10.77.0.0/16", "via", "10.8.3.2"])
                .map(drop)
                .map_err(|e| e.to_string())
        })
        .unwrap();
    }
    rig.until_reachable(1, 3);
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.doubled), (0, 0), "{report:?}");
}

/// Checks that a router follows its namespace when the namespace is deleted and created again under the same name. The
/// router closes its sockets in the old namespace (open sockets would keep the namespace and all its devices in
/// existence), and opens sockets and ports in the new namespace.
#[test]
fn a_router_follows_its_namespace() {
    require!("ip", "ping", "ethtool", "sysctl");
    let mut rig = Rig::new(0);
    let handle = rig.lab.namespace("edge").unwrap();
    let edge = handle.name().to_owned();
    let ip = |line: &str| {
        let output = std::process::Command::new("ip").args(line.split(' ')).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(format!("{line}: {said}")) }
    };
    let tenants: Vec<_> = ["red", "blue"].map(|name| rig.lab.namespace(name).unwrap()).into();
    let mut text = rig.configuration("").replace("[bridge.br0]\n", "");
    for (nth, tenant) in (1..).zip(&tenants) {
        text.push_str(&format!(
            "[port.t{nth}]\nkind = \"veth\"\nnamespace = \"{edge}\"\npeer = {{ name = \"eth0\", namespace = \"{}\", address = \
             [\"10.7.{nth}.2/24\"] }}\n",
            tenant.name()
        ));
    }
    text.push_str(&format!(
        "[router.edge]\nnamespace = \"{edge}\"\n[router.edge.port.t1]\n[router.edge.port.t2]\n"
    ));
    rig.start(&text);
    let carries = |rig: &Rig, what: &str| {
        for (nth, tenant) in (1..).zip(&tenants) {
            let port = format!("t{nth}");
            // The device is in the new namespace of this name.
            eventually(&format!("{what}: {port} is there"), PATIENCE, || {
                ip(&format!("-n {edge} address replace 10.7.{nth}.1/24 dev {port}"))
            })
            .unwrap();
            rig.port_until(&port, what, |port| port["trouble"].is_null() && port["link_up"] == true);
            tenant.run(["ip", "route", "replace", "default", "via", &format!("10.7.{nth}.1")]).unwrap();
        }
        ip(&format!("netns exec {edge} sysctl -qw net.ipv4.ip_forward=1")).unwrap();
        eventually(&format!("{what}: one tenant reaches the other"), PATIENCE, || {
            let line = ["ping", "-c", "3", "-i", "0.05", "-W", "1", "10.7.2.2"];
            tenants[0].run(line).map(drop).map_err(|error| error.to_string())
        })
        .unwrap();
        eventually(&format!("{what}: in step"), PATIENCE, || {
            let shown = rig.ok(&["show", "routers"]);
            if shown.contains("in step with the kernel") { Ok(()) } else { Err(shown) }
        })
        .unwrap();
    };
    carries(&rig, "at the start");
    ip(&format!("netns del {edge}")).unwrap();
    eventually("it says so", PATIENCE, || {
        let shown = rig.ok(&["show", "routers"]);
        if shown.contains(&format!("namespace {edge} is gone")) { Ok(()) } else { Err(shown) }
    })
    .unwrap();
    let doctor = String::from_utf8_lossy(&rig.trivium(&["doctor"]).stdout).into_owned();
    assert!(doctor.lines().any(|line| line.starts_with("error    router.edge: namespace")), "{doctor}");
    ip(&format!("netns add {edge}")).unwrap();
    carries(&rig, "made again");
    ip(&format!("netns del {edge}")).unwrap();
    ip(&format!("netns add {edge}")).unwrap();
    carries(&rig, "made again at once");
}
