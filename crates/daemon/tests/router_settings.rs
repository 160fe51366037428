//! Tests kernel settings other than routes that affect a Trivium router: forwarding, routes that depend on the carrier,
//! and rules and routes that only the kernel implements. Packets are forwarded as the kernel alone would forward them,
//! and `show why`, `explain` and `traceroute` report this.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::fmt::Write as _;

use rig::{PATIENCE, Rig};
use testbed::{eventually, require};

/// Starts a router with an interface for each host. The hooks of the interfaces forward packets.
fn start(hosts: u8) -> Rig {
    let mut rig = Rig::routed(hosts);
    let all = rig.configuration("");
    let lines = all.lines().filter(|line| !line.contains("bridge") && !line.contains("access"));
    let mut text = lines.fold(String::new(), |text, line| text + line + "\n") + "[router.edge]\n";
    for host in &rig.hosts {
        let _ = writeln!(text, "[router.edge.port.{}]", host.device());
    }
    rig.start(&text);
    rig.until_reachable(1, 2);
    rig
}

fn sysctl(rig: &Rig, line: &str) {
    rig.lab.hub().run(["sysctl", "-qw", line]).unwrap();
}

/// Waits until the host with the address `to` answers the first host (`wanted` is true) or no longer answers (`wanted`
/// is false).
fn until_answers(rig: &Rig, to: &str, wanted: bool) {
    eventually(&format!("{to} answers: {wanted}"), PATIENCE, || {
        let got = rig.hosts[0].ping(to, 2).map(|report| report.received).unwrap_or_default();
        if (got == 2) == wanted && (wanted || got == 0) { Ok(()) } else { Err(format!("{got} of 2")) }
    })
    .unwrap();
}

fn why(rig: &Rig, address: &str) -> String {
    rig.ok(&["show", "why", address])
}

#[test]
fn packets_are_routed_where_forwarding_is_on() {
    require!("ip", "ping", "ethtool", "sysctl");
    let rig = start(2);
    let six = "fd00:8:2::2";
    until_answers(&rig, six, true);
    sysctl(&rig, "net.ipv4.conf.h1.forwarding=0");
    until_answers(&rig, "10.8.2.2", false);
    until_answers(&rig, six, true);
    // The router itself still answers.
    until_answers(&rig, "10.8.2.1", true);
    let told = rig.ok(&["explain", "--in", "h1", "ip_src=10.8.1.2,ip_dst=10.8.2.2,udp"]);
    assert!(told.contains("net.ipv4.conf.DEVICE.forwarding"), "{told}");
    assert!(rig.ok(&["show", "drops"]).contains("forwarding-off"));
    sysctl(&rig, "net.ipv4.conf.h1.forwarding=1");
    until_answers(&rig, "10.8.2.2", true);
    sysctl(&rig, "net.ipv6.conf.all.forwarding=0");
    until_answers(&rig, six, false);
    until_answers(&rig, "10.8.2.2", true);
    sysctl(&rig, "net.ipv6.conf.all.forwarding=1");
    until_answers(&rig, six, true);
    sysctl(&rig, "net.ipv4.ip_forward=0");
    until_answers(&rig, "10.8.2.2", false);
    sysctl(&rig, "net.ipv4.ip_forward=1");
    until_answers(&rig, "10.8.2.2", true);
    // The hook forwards again.
    let explained = rig.ok(&["explain", "--in", "h1", "ip_src=10.8.1.2,ip_dst=10.8.2.2,udp"]);
    assert!(explained.contains("hook"), "{explained}");
    assert!(rig.ok(&["show", "drift"]).contains(" 0 differed"));
}

#[test]
fn a_route_without_a_carrier_is_passed_over_where_that_is_set() {
    require!("ip", "ping", "ethtool", "sysctl");
    let rig = start(3);
    let hub = rig.lab.hub();
    for host in &rig.hosts[1..] {
        host.run(["ip", "address", "add", "10.9.0.1/32", "dev", "lo"]).unwrap();
    }
    hub.run(["ip", "route", "add", "10.9.0.0/24", "via", "10.8.2.2"]).unwrap();
    hub.run(["ip", "route", "add", "10.9.0.0/24", "via", "10.8.3.2", "metric", "10"]).unwrap();
    until_answers(&rig, "10.9.0.1", true);
    assert!(why(&rig, "10.9.0.1").contains("via 10.8.2.2"), "{}", why(&rig, "10.9.0.1"));
    rig.hosts[1].run(["ip", "link", "set", "eth0", "down"]).unwrap();
    until_answers(&rig, "10.9.0.1", false);
    sysctl(&rig, "net.ipv4.conf.all.ignore_routes_with_linkdown=1");
    until_answers(&rig, "10.9.0.1", true);
    assert!(why(&rig, "10.9.0.1").contains("via 10.8.3.2"), "{}", why(&rig, "10.9.0.1"));
    assert!(rig.ok(&["show", "drift"]).contains(" 0 differed"));
    rig.hosts[1].run(["ip", "link", "set", "eth0", "up"]).unwrap();
    rig.hosts[1].run(["ip", "route", "replace", "default", "via", "10.8.2.1"]).unwrap();
    eventually("the first route counts again", PATIENCE, || {
        let why = why(&rig, "10.9.0.1");
        if why.contains("via 10.8.2.2") { Ok(()) } else { Err(why) }
    })
    .unwrap();
    until_answers(&rig, "10.9.0.1", true);
    assert!(rig.ok(&["show", "drift"]).contains(" 0 differed"));
}

#[test]
fn what_only_the_kernel_follows_goes_by_its_word() {
    require!("ip", "ping", "ethtool");
    let rig = start(3);
    let hub = rig.lab.hub();
    for host in &rig.hosts[1..] {
        host.run(["ip", "address", "add", "10.9.0.1/32", "dev", "lo"]).unwrap();
    }
    let ip = |line: &str| drop(hub.run(["ip"].into_iter().chain(line.split(' '))).unwrap());
    // Returns the number of requests with a type of service that each host has received.
    let reached = |arguments: &[&str]| {
        let asked = |host: &testbed::Host| -> u64 {
            let snmp = host.run(["cat", "/proc/net/snmp"]).unwrap();
            let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Icmp: "));
            let place = lines.next().unwrap().split(' ').position(|name| name == "InEchos").unwrap();
            lines.next().unwrap().split(' ').nth(place).unwrap().parse().unwrap()
        };
        let before = [1, 2].map(|host| asked(&rig.hosts[host]));
        let line = ["ping", "-c", "3", "-i", "0.05", "-W", "1"].iter().chain(arguments).chain(&["10.9.0.1"]);
        drop(rig.hosts[0].command(line).output().unwrap());
        [0, 1].map(|at| asked(&rig.hosts[at + 1]) - before[at])
    };
    // Routes take effect at once, and rules a short time later.
    let until = |arguments: &[&str], wanted: [u64; 2]| {
        eventually(&format!("{wanted:?} with {arguments:?}"), PATIENCE, || match reached(arguments) {
            now if now == wanted => Ok(()),
            now => Err(format!("{now:?}")),
        })
        .unwrap();
    };
    ip("route add 10.9.0.0/24 via 10.8.2.2");
    until(&[], [3, 0]);
    ip("route add 10.9.0.0/24 tos 0x10 via 10.8.3.2");
    until(&["-Q", "0x10"], [0, 3]);
    until(&[], [3, 0]);
    assert!(why(&rig, "10.9.0.1").contains("for some packets only"), "{}", why(&rig, "10.9.0.1"));
    ip("route del 10.9.0.0/24 tos 0x10");
    until(&["-Q", "0x10"], [3, 0]);
    // One rule selects all routes of the main table except for the default route, and another rule selects another
    // table.
    ip("route del 10.9.0.0/24");
    ip("route add default via 10.8.2.2");
    ip("route add default via 10.8.3.2 table 55");
    ip("rule add priority 100 lookup main suppress_prefixlength 0");
    ip("rule add priority 101 lookup 55");
    until(&[], [0, 3]);
    let told = why(&rig, "10.9.0.1");
    assert!(told.contains("suppress_prefixlength 0\" asks for what only the kernel follows"), "{told}");
    ip("rule del priority 100");
    until(&[], [0, 3]);
    assert!(why(&rig, "10.9.0.1").contains("via 10.8.3.2"), "{}", why(&rig, "10.9.0.1"));
    ip("rule del priority 101");
    until(&[], [3, 0]);
    // A rule for a protocol, which `show why` names.
    ip("rule add priority 100 ipproto icmp lookup 55");
    until(&[], [0, 3]);
    assert!(why(&rig, "10.9.0.1").contains("ipproto 1"), "{}", why(&rig, "10.9.0.1"));
    assert!(rig.ok(&["show", "drift"]).contains(" 0 differed"));
}

#[test]
fn a_device_with_another_name_is_the_same_interface() {
    require!("ip", "ping", "ethtool");
    let rig = start(2);
    let hub = rig.lab.hub();
    hub.run(["ip", "link", "set", "dev", "h2", "name", "uplink"]).unwrap();
    rig.port_until("h2", "renamed", |port| port["device"] == "uplink");
    rig.until_reachable(1, 2);
    rig.until_reachable(2, 1);
    // Rules use the device's current name.
    hub.run(["ip", "rule", "add", "priority", "100", "iif", "uplink", "prohibit"]).unwrap();
    eventually("the rule counts", PATIENCE, || {
        let told = rig.ok(&["explain", "--in", "h2", "ip_src=10.8.2.2,ip_dst=10.8.1.2,udp"]);
        if told.contains("forbidden") { Ok(()) } else { Err(told) }
    })
    .unwrap();
    let is_called = |rig: &Rig| {
        let shown = rig.ok(&["show", "interfaces", "--json"]);
        let all: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let own = all.as_array().unwrap().iter().find(|own| own["port"] == "h2").unwrap();
        assert_eq!((own["device"].as_str(), own["up"].as_bool()), (Some("uplink"), Some(true)), "{shown}");
        assert!(shown.contains("10.8.2.1/24"), "{shown}");
        let doctor = String::from_utf8_lossy(&rig.trivium(&["doctor"]).stdout).into_owned();
        let warned = doctor
            .lines()
            .any(|line| line.starts_with("warning  port.h2") && line.contains("is called uplink"));
        assert!(warned && doctor.contains("ip link set dev uplink name h2"), "{doctor}");
    };
    is_called(&rig);
    assert!(rig.ok(&["show", "drift"]).contains(" 0 differed"));
    // A successor finds the device by its index.
    hub.run(["ip", "rule", "del", "priority", "100"]).unwrap();
    rig.ok(&["upgrade", "--binary", rig::TRIVIUM]);
    is_called(&rig);
    rig.until_reachable(1, 2);
    rig.until_reachable(2, 1);
    let told = rig.ok(&["explain", "--in", "h1", "ip_src=10.8.1.2,ip_dst=10.8.2.2,udp"]);
    assert!(told.contains("it leaves by h2"), "{told}");
}

#[test]
fn traceroute_looks_right() {
    require!("ip", "ping", "ethtool", "busybox");
    let rig = start(2);
    sysctl(&rig, "net.ipv4.icmp_ratelimit=0");
    sysctl(&rig, "net.ipv6.icmp.ratelimit=0");
    until_answers(&rig, "fd00:8:2::2", true);
    for (arguments, to, hops) in [
        (&["traceroute", "-n"][..], "10.8.2.2", ["10.8.1.1", "10.8.2.2"]),
        (&["traceroute", "-n", "-I"], "10.8.2.2", ["10.8.1.1", "10.8.2.2"]),
        (&["traceroute6", "-n"], "fd00:8:2::2", ["fd00:8:1::1", "fd00:8:2::2"]),
    ] {
        let end = ["-w", "20", "-m", "5", to];
        let line = ["busybox"].iter().chain(arguments).chain(&end);
        let said = rig.hosts[0].run(line).unwrap();
        let lines: Vec<&str> = said.lines().skip(1).map(str::trim).collect();
        assert_eq!(lines.len(), 2, "{said}");
        for (number, (line, hop)) in lines.iter().zip(hops).enumerate() {
            assert!(line.starts_with(&format!("{}  {hop} ", number + 1)), "{said}");
            // Three probes have three answers without error marks.
            assert!(line.matches(" ms").count() == 3 && !line.contains(['*', '!']), "{said}");
        }
    }
}

/// `mtr` probes every hop repeatedly with ICMP and UDP. It reports the expected hops, and no lost probe.
#[test]
fn mtr_looks_right() {
    require!("ip", "ping", "ethtool", "mtr");
    let rig = start(2);
    sysctl(&rig, "net.ipv4.icmp_ratelimit=0");
    sysctl(&rig, "net.ipv6.icmp.ratelimit=0");
    until_answers(&rig, "fd00:8:2::2", true);
    for (arguments, to, hops) in [
        (&[][..], "10.8.2.2", ["10.8.1.1", "10.8.2.2"]),
        (&["--udp"], "10.8.2.2", ["10.8.1.1", "10.8.2.2"]),
        (&["-6"], "fd00:8:2::2", ["fd00:8:1::1", "fd00:8:2::2"]),
    ] {
        let line = ["mtr", "--json", "-n", "-c", "5", "-i", "0.2", "-Z", "20"];
        let said = rig.hosts[0].run(line.iter().chain(arguments).chain(&[to])).unwrap();
        let report: serde_json::Value = serde_json::from_str(&said).unwrap();
        let hubs = report["report"]["hubs"].as_array().unwrap();
        assert_eq!(hubs.len(), 2, "{said}");
        for (hub, hop) in hubs.iter().zip(hops) {
            assert_eq!((&hub["host"], hub["Loss%"].as_f64()), (&hop.into(), Some(0.0)), "{said}");
        }
    }
}

/// The router announces a changed MAC address. Without an announcement, neighbours would use the old address until
/// their entries expire.
#[test]
fn another_ethernet_address_is_announced() {
    require!("ip", "ping", "ethtool");
    let mut rig = start(2);
    let (four, six, mac) = ("10.8.1.1", "fd00:8:1::1", "02:00:00:00:77:01");
    until_answers(&rig, "fd00:8:2::2", true);
    rig.lab.hub().run(["ip", "link", "set", "dev", "h1", "address", mac]).unwrap();
    rig.daemon().wait_for_line("have another Ethernet address, and are announced", PATIENCE).unwrap();
    eventually("the neighbour knows it", PATIENCE, || {
        let known = rig.hosts[0].run(["ip", "neigh", "show", "dev", "eth0"]).unwrap();
        let knows = |address: &str| known.contains(&format!("{address} lladdr {mac}"));
        if knows(four) && knows(six) { Ok(()) } else { Err(known) }
    })
    .unwrap();
}
