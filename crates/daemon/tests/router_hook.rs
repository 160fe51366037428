//! Tests routing in the hook (XDP program) of a virtual router's ports, with the real binary between real hosts. The
//! hook forwards packets with known routes, and workers process the other packets. No packet is lost when a flow moves
//! between hook and worker.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::fmt::Write as _;

use rig::{PATIENCE, Rig, TRIVIUM};
use testbed::{UdpFlow, eventually, iperf_tcp, require};

/// Returns a configuration with a port for each host, all as interfaces of one router.
fn configuration(rig: &Rig, extra: &str, settings: &str) -> String {
    let mut text = rig
        .configuration(extra)
        .lines()
        .filter(|line| !line.contains("bridge") && !line.contains("access"))
        .fold(String::new(), |text, line| text + line + "\n");
    let _ = write!(text, "[router.edge]\n{settings}");
    for host in &rig.hosts {
        let _ = writeln!(text, "[router.edge.port.{}]", host.device());
    }
    text
}

/// Returns the number of frames from h1 that the hook forwards during `work`, and the number that the worker forwards.
fn who(rig: &Rig, work: impl FnOnce()) -> (u64, u64) {
    let count = || (rig.hook_counter("h1", "route_forwarded"), rig.hook_counter("h1", "steered"));
    let before = count();
    work();
    let after = count();
    (after.0 - before.0, after.1 - before.1)
}

/// Returns the output of `ping`, whatever its exit status.
fn ping(rig: &Rig, arguments: &[&str]) -> String {
    let line = ["ping", "-c", "3", "-i", "0.05", "-W", "1"].iter().chain(arguments);
    let output = rig.hosts[0].command(line).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until packets from h1 to the address `to` are all forwarded by the hook (if `in_hook` is true) or by the
/// worker (if `in_hook` is false).
fn until(rig: &Rig, to: &str, in_hook: bool) {
    eventually("who answers", PATIENCE, || {
        let mut said = String::new();
        let (hook, worker) = who(rig, || said = ping(rig, &[to]));
        let right = if in_hook { hook >= 3 && worker == 0 } else { hook == 0 && worker >= 3 };
        if right && said.contains("3 received") {
            Ok(())
        } else {
            Err(format!("{hook} by the hook, {worker} by the worker: {said}"))
        }
    })
    .unwrap();
}

fn start(hosts: u8, extra: &str) -> Rig {
    let mut rig = Rig::routed(hosts);
    let configuration = configuration(&rig, extra, "");
    rig.start(&configuration);
    rig.until_reachable(1, 2);
    until(&rig, "10.8.2.2", true);
    rig
}

#[test]
fn hosts_talk_through_the_hook() {
    require!("ip", "ping", "ethtool", "iperf3");
    let rig = start(2, "");
    let (one, two) = (&rig.hosts[0], &rig.hosts[1]);
    assert_eq!(rig.port("h1")["shortcut"], "answers known routes");
    let (hook, worker) = who(&rig, || assert_eq!(one.ping(two.ip(), 20).unwrap().received, 20));
    assert!(hook == 20 && worker == 0, "{hook} by the hook, {worker} by the worker");
    eventually("IPv6 goes through", PATIENCE, || match one.ping("fd00:8:2::2", 1) {
        Ok(report) if report.received == 1 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .unwrap();
    until(&rig, "fd00:8:2::2", true);
    let count = |port: &str, what: &str| rig.port(port)["counters"][what].as_u64().unwrap();
    let sent = || -> u64 {
        let neighbours: serde_json::Value =
            serde_json::from_str(&rig.ok(&["show", "neighbours", "--json"])).unwrap();
        let list = neighbours.as_array().unwrap();
        list.iter().find(|one| one["address"] == "10.8.2.2").unwrap()["packets"].as_u64().unwrap()
    };
    let before = (count("h1", "rx_packets"), count("h2", "tx_packets"), sent());
    let (hook, worker) = who(&rig, || {
        let flow = UdpFlow::start(one, two, 2_000).unwrap();
        flow.wait_for(1_000, PATIENCE).unwrap();
        let report = flow.stop().unwrap();
        assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
    });
    assert!(hook >= 1_000 && worker == 0, "{hook} by the hook, {worker} by the worker");
    let after = (count("h1", "rx_packets"), count("h2", "tx_packets"), sent());
    assert!(after.0 >= before.0 + hook && after.1 >= before.1 + hook, "ports: {before:?}, {after:?}");
    assert!(after.2 >= before.2 + hook, "the neighbour: {before:?}, {after:?}");
    let (hook, worker) = who(&rig, || {
        iperf_tcp(one, two, two.ip(), 1).unwrap();
    });
    // Answers arrive on h2. After a frame that only the worker can handle, the next frames of the flow wait
    // to keep their order.
    assert!(hook > 1_000 && worker < hook / 20, "TCP: {hook} by the hook, {worker} by the worker");
}

#[test]
fn what_changes_counts_from_the_next_packet_on() {
    require!("ip", "ping", "ethtool");
    let rig = start(2, "");
    let hub = rig.lab.hub();
    let ip = |line: &str| hub.run(["ip"].into_iter().chain(line.split(' '))).map(drop).unwrap();
    rig.hosts[1].run(["ip", "address", "add", "10.9.0.1/32", "dev", "lo"]).unwrap();
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    for _ in 0..50 {
        ip("route add default via 10.8.2.2");
        ip("route add 10.8.2.0/25 dev h2");
        ip("route del 10.8.2.0/25");
        ip("route del default");
    }
    // A new route, several next hops, a blackhole, and no route.
    ip("route add 10.9.0.0/24 via 10.8.2.2");
    until(&rig, "10.9.0.1", true);
    ip("route replace 10.9.0.0/24 nexthop via 10.8.2.2 weight 1 nexthop via 10.8.2.2 dev h2 weight 3");
    until(&rig, "10.9.0.1", true);
    ip("nexthop add id 7 via 10.8.2.2 dev h2");
    ip("route replace 10.9.0.0/24 nhid 7");
    until(&rig, "10.9.0.1", true);
    let hops = rig.ok(&["show", "nexthops"]);
    assert!(hops.contains("via 10.8.2.2") && hops.contains("PACKETS"), "{hops}");
    ip("route replace blackhole 10.9.0.0/24");
    eventually("it is dropped in the hook", PATIENCE, || {
        let before = rig.hook_counter("h1", "route_blackhole");
        let said = ping(&rig, &["10.9.0.1"]);
        match rig.hook_counter("h1", "route_blackhole") - before {
            3 => Ok(()),
            other => Err(format!("{other}: {said}")),
        }
    })
    .unwrap();
    assert!(rig.dropped("h1", "hook-route-blackhole") >= 3);
    ip("route del 10.9.0.0/24");
    eventually("the sender is told", PATIENCE, || {
        let said = ping(&rig, &["10.9.0.1"]);
        if said.contains("Unreachable") { Ok(()) } else { Err(said) }
    })
    .unwrap();
    // With additional policy rules the worker decides. The other family is not affected.
    ip("rule add from 10.99.0.0/16 table 77 priority 50");
    ip("route add 10.99.0.0/16 via 10.8.2.2 table 77");
    until(&rig, "10.8.2.2", false);
    ip("rule del priority 50");
    until(&rig, "10.8.2.2", true);
    // During a trace all packets pass the worker.
    let trace = || rig.trivium(&["trace", "-n", "3", "--in", "h1"]);
    let (hook, worker) = who(&rig, || assert!(trace().status.success()));
    assert!(worker >= 3, "{hook} by the hook, {worker} by the worker");
    until(&rig, "10.8.2.2", true);
    // The hook is disabled and enabled again.
    let file = rig.write("without.toml", &configuration(&rig, "", "hook = false\n"));
    let said = rig.ok(&["apply", file.to_str().unwrap()]);
    assert!(said.contains("hook true -> false"), "{said}");
    until(&rig, "10.8.2.2", false);
    let file = rig.write("with.toml", &configuration(&rig, "", ""));
    rig.ok(&["apply", file.to_str().unwrap()]);
    until(&rig, "10.8.2.2", true);
    // The neighbour has another MAC address, which the hook uses, too.
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.doubled), (0, 0), "{report:?}");
    rig.hosts[1].run(["ip", "link", "set", "dev", "eth0", "address", "02:00:00:00:77:77"]).unwrap();
    rig.hosts[1].run(["ip", "route", "replace", "default", "via", "10.8.2.1"]).unwrap();
    ip("neighbor flush dev h2");
    until(&rig, "10.8.2.2", true);
}

#[test]
fn what_needs_more_is_still_done() {
    require!("ip", "ping", "ethtool");
    let rig = start(2, "");
    let hub = rig.lab.hub();
    let said = ping(&rig, &["-t", "1", "10.8.2.2"]);
    assert!(said.contains("From 10.8.1.1") && said.contains("Time to live exceeded"), "{said}");
    let said = ping(&rig, &["-W", "4", "10.8.2.77"]);
    assert!(said.contains("Destination Host Unreachable"), "{said}");
    let (hook, worker) =
        who(&rig, || assert!(ping(&rig, &["-s", "4000", "10.8.2.2"]).contains("3 received")));
    assert!(hook == 9 && worker == 0, "fragments: {hook} by the hook, {worker} by the worker");
    hub.run(["ip", "link", "set", "dev", "h2", "mtu", "1300"]).unwrap();
    eventually("the smaller MTU counts", PATIENCE, || {
        let said = ping(&rig, &["-M", "do", "-s", "1400", "10.8.2.2"]);
        if said.contains("mtu = 1300") || said.contains("mtu=1300") { Ok(()) } else { Err(said) }
    })
    .unwrap();
    let router = rig.port("h1")["mac"].as_str().unwrap().to_owned();
    let packet = format!(
        "eth_src={},eth_dst={router},ip_src=10.8.1.2,ip_dst=10.8.2.2,udp",
        rig.hosts[0].mac().unwrap()
    );
    let said = rig.ok(&["explain", "--in", "h1", &packet]);
    let leads = format!("a route leads to {} behind h2: straight to its device", rig.hosts[1].mac().unwrap());
    assert!(said.contains("10.8.2.0/24 in table main") && said.contains(&leads), "{said}");
    assert!(said.ends_with("routed in the driver hook; it leaves by h2\n"), "{said}");
    // The device of the neighbour no longer accepts redirected frames, so the worker sends.
    rig.hosts[1].run(["ethtool", "-K", "eth0", "gro", "off"]).unwrap();
    until(&rig, "10.8.2.2", false);
}

/// The kernel's neighbour entries stay in the state REACHABLE while only the hook uses them.
#[test]
fn neighbours_stay_fresh() {
    require!("ip", "ping", "ethtool");
    let rig = start(2, "");
    let hub = rig.lab.hub();
    for name in ["base_reachable_time_ms=1000", "gc_stale_time=1", "delay_first_probe_time=1"] {
        hub.run(["sysctl", "-qw", &format!("net.ipv4.neigh.h2.{name}")]).unwrap();
    }
    let used = || {
        let said = hub.run(["ip", "-s", "neighbor", "show", "10.8.2.2", "dev", "h2"]).unwrap();
        let words: Vec<&str> = said.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "used").unwrap();
        words[at + 1].split('/').next().unwrap().parse::<u64>().unwrap()
    };
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 500).unwrap();
    for _ in 0..4 {
        // Each iteration takes more than a second, without any packet through the kernel.
        flow.wait_for(700, PATIENCE).unwrap();
        assert!(used() <= 5, "the kernel takes it for unused");
    }
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.doubled), (0, 0), "{report:?}");
}

#[test]
fn an_upgrade_under_traffic_loses_nothing() {
    require!("ip", "ping", "ethtool");
    let rig = start(2, "");
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    for _ in 0..3 {
        rig.ok(&["upgrade", "--binary", TRIVIUM]);
        flow.wait_for(500, PATIENCE).unwrap();
    }
    until(&rig, "10.8.2.2", true);
    // The successor uses its own tables, and not its predecessor's.
    rig.lab.hub().run(["ip", "route", "add", "10.9.0.0/24", "via", "10.8.2.2"]).unwrap();
    rig.hosts[1].run(["ip", "address", "add", "10.9.0.1/32", "dev", "lo"]).unwrap();
    until(&rig, "10.9.0.1", true);
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
}

/// Processes that keep every CPU busy, so that workers process their frames late.
struct Busy(Vec<std::process::Child>);

impl Busy {
    fn start() -> Busy {
        let cpus = std::thread::available_parallelism().unwrap().get();
        let spin = |_| std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        Busy((0..2 * cpus).map(spin).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Checks that no packet overtakes an earlier packet of its flow when the flow moves between worker and hook. Flows
/// move when a capture (which sends all packets through the worker) begins or ends, and at each upgrade.
#[test]
fn no_packet_overtakes_another_when_a_flow_changes_to_the_hook() {
    require!("ip", "ping", "ethtool");
    let rig = start(2, "");
    let busy = Busy::start();
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 5_000).unwrap();
    let rounds = if std::env::var_os("TRIVIUM_SOAK").is_some() { 1_000 } else { 30 };
    for round in 0..rounds {
        let captured = rig.ok(&["capture", "h1", "-n", "20"]);
        assert!(!captured.is_empty());
        if round % 10 == 9 {
            rig.ok(&["upgrade", "--binary", TRIVIUM]);
        }
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
    drop(busy);
    until(&rig, "10.8.2.2", true);
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
}

/// If one configuration change moves a port from a bridge to a router, the port's hook routes packets afterwards like
/// the hook of any other port of the router.
#[test]
fn ports_that_a_bridge_had_are_answered_in_the_hook() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::routed(2);
    let bridged = rig.configuration("");
    rig.start(&bridged);
    eventually("the bridge's stage", PATIENCE, || {
        let shortcut = rig.port("h1")["shortcut"].clone();
        if shortcut == "answers for known stations" { Ok(()) } else { Err(shortcut.to_string()) }
    })
    .unwrap();
    let routed = rig.write("routed.toml", &configuration(&rig, "", ""));
    rig.ok(&["apply", routed.to_str().unwrap()]);
    rig.until_reachable(1, 2);
    until(&rig, "10.8.2.2", true);
}

#[test]
fn a_pinned_hook_routes_on_without_its_daemon() {
    require!("ip", "ping", "ethtool");
    let mut rig = start(2, "persist = true\n");
    let text = configuration(&rig, "persist = true\n", "");
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    rig.daemon.take().unwrap().stop(rustix::process::Signal::KILL, PATIENCE).unwrap();
    flow.wait_for(1_000, PATIENCE).unwrap();
    rig.start(&text);
    flow.wait_for(1_000, PATIENCE).unwrap();
    until(&rig, "10.8.2.2", true);
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.doubled), (0, 0), "{report:?}");
}

/// If VRRP is configured on an interface, hooks and workers accept packets to the MAC address of a VRRP virtual router
/// (RFC 9568, 7.3).
#[test]
fn vrrps_addresses_are_an_interfaces_own_where_that_is_wanted() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::routed(2);
    let text = |settings: &str, vrrp: bool| {
        let text = configuration(&rig, "", settings);
        text.replace("[router.edge.port.h1]\n", &format!("[router.edge.port.h1]\nvrrp = {vrrp}\n"))
    };
    let both = [("hook = true\n", true), ("hook = false\n", false)];
    let texts = both.map(|(settings, in_hook)| (text(settings, true), text(settings, false), in_hook));
    rig.start(&texts[0].1);
    rig.until_reachable(1, 2);
    let gateway = |four: &str, six: &str| {
        for (address, mac) in [("10.8.1.1", four), ("fd00:8:1::1", six)] {
            let line =
                ["ip", "neighbor", "replace", address, "lladdr", mac, "dev", "eth0", "nud", "permanent"];
            rig.hosts[0].run(line).unwrap();
        }
    };
    for (with, without, in_hook) in &texts {
        gateway("00:00:5e:00:01:07", "00:00:5e:00:02:07");
        let file = rig.write("without.toml", without);
        rig.ok(&["apply", file.to_str().unwrap()]);
        assert!(!ping(&rig, &["10.8.2.2"]).contains("3 received"));
        let file = rig.write("with.toml", with);
        rig.ok(&["apply", file.to_str().unwrap()]);
        until(&rig, "10.8.2.2", *in_hook);
        until(&rig, "fd00:8:2::2", *in_hook);
        // Each family has a separate MAC address.
        gateway("00:00:5e:00:02:07", "00:00:5e:00:01:07");
        for to in ["10.8.2.2", "fd00:8:2::2"] {
            let said = ping(&rig, &[to]);
            assert!(said.contains(" 0 received"), "{said}");
        }
    }
}
