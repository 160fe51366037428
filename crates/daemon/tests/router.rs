//! Tests virtual routers with the real binary between real hosts in different networks. Workers forward packets
//! according to the kernel's routes, and the kernel handles everything else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::fmt::Write as _;

use packet::spec;
use rig::{PATIENCE, Rig, TRIVIUM};
use testbed::{RawReceiver, RawSender, UdpFlow, eventually, iperf_tcp, require};

/// Returns the configuration of one port for each host, without a bridge.
fn ports(rig: &Rig) -> String {
    rig.configuration("")
        .lines()
        .filter(|line| !line.contains("bridge") && !line.contains("access"))
        .fold(String::new(), |text, line| text + line + "\n")
}

/// Returns a configuration with all ports as interfaces of one router. Hooks are off, so workers forward (see
/// router_hook.rs for hooks).
fn configuration(rig: &Rig) -> String {
    let mut text = ports(rig) + "[router.edge]\nhook = false\n";
    for host in &rig.hosts {
        let _ = writeln!(text, "[router.edge.port.{}]", host.device());
    }
    text
}

fn start(hosts: u8) -> Rig {
    let mut rig = Rig::routed(hosts);
    let configuration = configuration(&rig);
    rig.start(&configuration);
    rig.until_reachable(1, 2);
    rig
}

/// Returns the number of packets that the kernel has forwarded.
fn by_kernel(rig: &Rig) -> u64 {
    let snmp = rig.lab.hub().run(["cat", "/proc/net/snmp"]).unwrap();
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let place = lines.next().unwrap().split(' ').position(|name| name == "ForwDatagrams").unwrap();
    lines.next().unwrap().split(' ').nth(place).unwrap().parse().unwrap()
}

fn sent(rig: &Rig, port: &str) -> u64 {
    rig.port(port)["counters"]["tx_packets"].as_u64().unwrap()
}

/// Returns the numbers of packets that the worker and the kernel forward to h2 during `work`.
fn forwarded(rig: &Rig, work: impl FnOnce()) -> (u64, u64) {
    let before = (sent(rig, "h2"), by_kernel(rig));
    work();
    (sent(rig, "h2") - before.0, by_kernel(rig) - before.1)
}

/// Returns the output of `ping`, whatever its exit status.
fn ping(rig: &Rig, arguments: &[&str]) -> String {
    let line = ["ping", "-c", "3", "-i", "0.05", "-W", "1"].iter().chain(arguments);
    let output = rig.hosts[0].command(line).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn hosts_talk_through_the_worker() {
    require!("ip", "ping", "ethtool", "iperf3");
    let rig = start(2);
    let (one, two) = (&rig.hosts[0], &rig.hosts[1]);
    let (worker, kernel) = forwarded(&rig, || assert_eq!(one.ping(two.ip(), 20).unwrap().received, 20));
    assert!(worker >= 20 && kernel == 0, "{worker} by the worker, {kernel} by the kernel");
    let ping6 =
        || one.ping("fd00:8:2::2", 20).map(|report| report.received).map_err(|error| error.to_string());
    eventually("IPv6 goes through", PATIENCE, ping6).unwrap();
    let (worker, _) = forwarded(&rig, || assert_eq!(ping6().unwrap(), 20));
    assert!(worker >= 20, "{worker} by IPv6");
    let (worker, kernel) = forwarded(&rig, || {
        let flow = UdpFlow::start(one, two, 2_000).unwrap();
        flow.wait_for(1_000, PATIENCE).unwrap();
        let report = flow.stop().unwrap();
        assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
    });
    assert!(worker >= 1_000 && kernel == 0, "{worker} by the worker, {kernel} by the kernel");
    let (worker, kernel) = forwarded(&rig, || {
        iperf_tcp(one, two, two.ip(), 1).unwrap();
    });
    assert!(worker > 1_000 && kernel == 0, "{worker} by the worker, {kernel} by the kernel");
}

/// Packets that a router forwards bypass netfilter. The daemon reports this in the log and in `doctor` if netfilter has
/// rules for forwarded packets.
#[test]
fn rules_of_netfilter_that_are_bypassed_are_told() {
    require!("ip", "ping", "ethtool", "nft");
    let mut rig = Rig::routed(2);
    let hub = rig.lab.hub().clone();
    hub.run(["nft", "add table ip f; add chain ip f fch { type filter hook forward priority 0; }; add rule ip f fch counter"]).unwrap();
    rig.start(&configuration(&rig));
    rig.until_reachable(1, 2);
    let log = rig.daemon().output();
    assert!(log.contains("table ip f, chain fch") && log.contains("bypass"), "{log}");
    let told = |rig: &Rig| {
        let doctor = rig.trivium(&["doctor"]);
        String::from_utf8_lossy(&doctor.stdout).into_owned()
    };
    let doctor = told(&rig);
    assert!(doctor.contains("router.edge") && doctor.contains("table ip f, chain fch"), "{doctor}");
    // `doctor` does not report that forwarding is off in the kernel.
    assert!(!doctor.contains("net.ipv4.ip_forward is 0"), "{doctor}");
    // The hooks limit the control traffic for the host.
    assert!(!doctor.contains("without the limits"), "{doctor}");
    hub.run(["nft", "delete table ip f"]).unwrap();
    hub.run(["sysctl", "-qw", "net.ipv4.ip_forward=0"]).unwrap();
    let doctor = told(&rig);
    assert!(doctor.contains("net.ipv4.ip_forward is 0") && !doctor.contains("chain fch"), "{doctor}");
    // The router's own device has no address, not even a link-local one.
    let addresses = hub.run(["ip", "address", "show", "dev", "trivium0"]).unwrap();
    assert!(!addresses.contains("inet"), "{addresses}");
}

#[test]
fn the_kernel_does_what_is_its_own() {
    require!("ip", "ping", "ethtool");
    let rig = start(2);
    let hub = rig.lab.hub();
    // The kernel must send every ICMP error.
    hub.run(["sysctl", "-qw", "net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0"]).unwrap();
    // The router's own addresses.
    assert!(ping(&rig, &["10.8.1.1"]).contains("3 received"));
    assert!(ping(&rig, &["10.8.2.1"]).contains("3 received"));
    rig.hosts[1].run(["ip", "address", "add", "10.9.0.1/32", "dev", "lo"]).unwrap();
    let refused = ping(&rig, &["10.9.0.1"]);
    assert!(refused.contains("Destination Net Unreachable"), "{refused}");
    // A new route applies to the next packet.
    hub.run(["ip", "route", "add", "10.9.0.0/24", "via", "10.8.2.2"]).unwrap();
    let (worker, kernel) = forwarded(&rig, || assert!(ping(&rig, &["10.9.0.1"]).contains("3 received")));
    assert!(worker >= 3 && kernel == 0, "{worker} by the worker, {kernel} by the kernel");
    for (kind, says) in [
        ("unreachable", "Destination Host Unreachable"),
        ("prohibit", "Packet filtered"),
        ("blackhole", "100% packet loss"),
    ] {
        hub.run(["ip", "route", "replace", kind, "10.9.0.0/24"]).unwrap();
        let said = ping(&rig, &["10.9.0.1"]);
        assert!(said.contains(says), "{kind}: {said}");
    }
    hub.run(["ip", "route", "replace", "10.9.0.0/24", "via", "10.8.2.2"]).unwrap();
    let expired = ping(&rig, &["-t", "1", "10.8.2.2"]);
    assert!(expired.contains("From 10.8.1.1") && expired.contains("Time to live exceeded"), "{expired}");
    let expired = ping(&rig, &["-6", "-t", "1", "fd00:8:2::2"]);
    assert!(expired.contains("From fd00:8:1::1") && expired.contains("Hop limit"), "{expired}");
    // Packets that are too long for the output.
    hub.run(["ip", "link", "set", "dev", "h2", "mtu", "1300"]).unwrap();
    rig.hosts[1].run(["ip", "link", "set", "dev", "eth0", "mtu", "1300"]).unwrap();
    eventually("the smaller MTU counts", PATIENCE, || {
        let said = ping(&rig, &["-M", "do", "-s", "1400", "10.8.2.2"]);
        if said.contains("mtu = 1300") || said.contains("mtu=1300") { Ok(()) } else { Err(said) }
    })
    .unwrap();
    rig.hosts[0].run(["ip", "route", "flush", "cache"]).unwrap();
    let cut = ping(&rig, &["-M", "dont", "-s", "1400", "10.8.2.2"]);
    assert!(cut.contains("3 received"), "fragments: {cut}");
    hub.run(["ip", "link", "set", "dev", "h2", "mtu", "1500"]).unwrap();
    rig.hosts[1].run(["ip", "link", "set", "dev", "eth0", "mtu", "1500"]).unwrap();
    // The kernel resolves a flushed neighbour, which the worker knows from then on.
    hub.run(["ip", "neighbor", "flush", "dev", "h2"]).unwrap();
    assert!(ping(&rig, &["10.8.2.2"]).contains("3 received"));
    let (worker, kernel) = forwarded(&rig, || assert!(ping(&rig, &["10.8.2.2"]).contains("3 received")));
    assert!(worker >= 3 && kernel == 0, "{worker} by the worker, {kernel} by the kernel");
    // An address that no host has.
    let nobody = ping(&rig, &["-W", "4", "10.8.2.77"]);
    assert!(nobody.contains("Destination Host Unreachable"), "{nobody}");
}

/// Returns the number of packets of a class that were punted to the kernel or answered with an ICMP error.
fn counted(rig: &Rig, class: &str) -> u64 {
    let all: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "punts", "--json"])).unwrap();
    all.as_array().unwrap().iter().find(|punt| punt["class"] == class).unwrap()["packets"].as_u64().unwrap()
}

#[test]
fn senders_are_told_by_the_worker_or_by_the_kernel() {
    require!("ip", "ping", "ethtool");
    let rig = start(2);
    let hub = rig.lab.hub();
    hub.run(["sysctl", "-qw", "net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0"]).unwrap();
    hub.run(["ip", "route", "add", "unreachable", "10.9.1.0/24"]).unwrap();
    hub.run(["ip", "route", "add", "prohibit", "10.9.2.0/24"]).unwrap();
    hub.run(["ip", "-6", "route", "add", "prohibit", "2001:db8:9::/48"]).unwrap();
    let known = |address: &str| {
        let found = || {
            let why = rig.ok(&["show", "why", address]);
            if why.contains("prohibit") { Ok(()) } else { Err(why) }
        };
        eventually("the route is known", PATIENCE, found).unwrap();
    };
    known("10.9.2.1");
    known("2001:db8:9::1");
    // The reverse path. The sender has resolved the router's address, so the router knows the sender.
    assert!(ping(&rig, &["-6", "fd00:8:1::1"]).contains("3 received"));
    eventually("its sender is known", PATIENCE, || {
        let known = rig.ok(&["show", "neighbours"]);
        if known.contains("fd00:8:1::2") { Ok(()) } else { Err(known) }
    })
    .unwrap();
    let ways = [
        (&["10.99.0.1"][..], "From 10.8.1.1", "Destination Net Unreachable"),
        (&["10.9.1.1"], "From 10.8.1.1", "Destination Host Unreachable"),
        (&["10.9.2.1"], "From 10.8.1.1", "Packet filtered"),
        // The error quotes as much of the packet as permitted.
        (&["-s", "1400", "10.99.0.1"], "From 10.8.1.1", "Destination Net Unreachable"),
        (&["-6", "2001:db8:99::1"], "From fd00:8:1::1", "No route"),
        (&["-6", "2001:db8:9::1"], "From fd00:8:1::1", "Administratively prohibited"),
    ];
    let counts = || ["errors", "no-route"].map(|class| counted(&rig, class));
    for (arguments, from, says) in ways {
        let before = counts();
        let said = ping(&rig, arguments);
        assert!(said.contains(from) && said.contains(says), "{arguments:?}: {said}");
        assert_eq!(counts(), [before[0] + 3, before[1]], "{arguments:?}");
    }
    let mac = rig.port("h1")["mac"].as_str().unwrap().to_owned();
    let said =
        rig.ok(&["explain", "--in", "h1", &format!("eth_dst={mac},ip_src=10.8.1.2,ip_dst=10.99.0.1,udp")]);
    assert!(said.contains("its sender is told by an ICMP error from 10.8.1.1"), "{said}");
    assert!(said.ends_with("it goes no further; the error leaves by h1\n"), "{said}");
    // With `miss = "punt"`, the kernel sends equal errors.
    let punts =
        configuration(&rig).replace("[router.edge.port.h1]", "[router.edge.port.h1]\nmiss = \"punt\"");
    rig.ok(&["apply", rig.write("punts.toml", &punts).to_str().unwrap()]);
    // The kernel's own limit for one sender (`ip_error`) is a burst of five, and one per second.
    let before = counts();
    let said = ping(&rig, &["10.99.0.1"]);
    assert!(said.contains("From 10.8.1.1") && said.contains("Destination Net Unreachable"), "{said}");
    assert_eq!(counts(), [before[0], before[1] + 3]);
}

#[test]
fn tables_change_and_no_packet_is_lost() {
    require!("ip", "ping", "ethtool");
    let rig = start(2);
    let hub = rig.lab.hub();
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    // A default route is added and removed, and another route is added and removed meanwhile.
    for _ in 0..100 {
        hub.run(["ip", "route", "add", "default", "via", "10.8.2.2"]).unwrap();
        hub.run(["ip", "route", "add", "10.8.2.0/25", "dev", "h2"]).unwrap();
        hub.run(["ip", "route", "del", "10.8.2.0/25"]).unwrap();
        hub.run(["ip", "route", "del", "default"]).unwrap();
    }
    // Rules select another table for packets from this source.
    hub.run(["ip", "route", "add", "10.8.2.0/24", "dev", "h2", "table", "77"]).unwrap();
    hub.run(["ip", "rule", "add", "from", "10.8.1.0/24", "table", "77", "priority", "50"]).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    hub.run(["ip", "rule", "del", "priority", "50"]).unwrap();
    hub.run(["ip", "rule", "add", "iif", "h1", "to", "10.8.2.77", "blackhole", "priority", "60"]).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    // The limit of punts changes.
    let file =
        rig.write("other.toml", &configuration(&rig).replace("[router.edge]", "[router.edge]\npunts = 500"));
    let said = rig.ok(&["apply", file.to_str().unwrap()]);
    assert!(said.contains("punts"), "{said}");
    flow.wait_for(200, PATIENCE).unwrap();
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    let (worker, kernel) = forwarded(&rig, || flow.wait_for(1_000, PATIENCE).unwrap());
    assert!(worker >= 900 && kernel == 0, "{worker} by the worker, {kernel} by the kernel");
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.doubled), (0, 0), "{report:?}");
    let blackhole = ping(&rig, &["10.8.2.77"]);
    assert!(blackhole.contains("100% packet loss") && !blackhole.contains("Unreachable"), "{blackhole}");
}

#[test]
fn ports_come_and_go() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::routed(3);
    let whole = configuration(&rig);
    let part = whole.replace("[router.edge.port.h3]\n", "");
    rig.start(&part);
    rig.until_reachable(1, 2);
    // The kernel sends to a device that is no port of the router.
    let reached = || {
        let said = ping(&rig, &["10.8.3.2"]);
        if said.contains("3 received") { Ok(()) } else { Err(said) }
    };
    eventually("the kernel sends to h3", PATIENCE, reached).unwrap();
    let before = by_kernel(&rig);
    reached().unwrap();
    assert!(by_kernel(&rig) >= before + 3);
    let file = rig.write("whole.toml", &whole);
    rig.ok(&["apply", file.to_str().unwrap()]);
    eventually("the worker sends to h3", PATIENCE, || {
        let before = sent(&rig, "h3");
        reached()?;
        if sent(&rig, "h3") >= before + 3 { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .unwrap();
    // The port moves into a bridge and back.
    let hook = |stage: &str| {
        let hooks = rig.ok(&["xdp", "status", "h3", "--seconds", "0", "--json"]);
        let hooks: serde_json::Value = serde_json::from_str(&hooks).unwrap();
        hooks[0]["stages"].as_array().unwrap().iter().any(|name| name == stage)
    };
    assert!(hook("route"));
    let bridged = format!("{part}[bridge.br0.port.h3]\n");
    let file = rig.write("bridged.toml", &bridged);
    rig.ok(&["apply", file.to_str().unwrap()]);
    assert!(!hook("route"));
    rig.ok(&["apply", rig.path("whole.toml").to_str().unwrap()]);
    eventually("h3 is routed again", PATIENCE, reached).unwrap();
    assert!(hook("route"));
    // Without a router, workers route nothing. With a router again, they route everything.
    let file = rig.write("ports.toml", &ports(&rig));
    rig.ok(&["apply", file.to_str().unwrap()]);
    let taps = || rig.lab.hub().run(["ip", "-o", "link", "show", "type", "tun"]).unwrap();
    assert_eq!(taps(), "");
    rig.ok(&["apply", rig.path("whole.toml").to_str().unwrap()]);
    rig.until_reachable(1, 2);
    assert!(taps().contains("trivium0"), "{}", taps());
}

/// Packets to the router's own addresses are passed to the kernel on the device that received them. Fragments in
/// transit are forwarded by workers, like other packets.
#[test]
fn the_hook_leaves_the_kernel_what_is_its_own() {
    require!("ip", "ping", "ethtool");
    let rig = start(2);
    let counted = |counter: &str| -> u64 {
        let hooks = rig.ok(&["xdp", "status", "h1", "--seconds", "0", "--json"]);
        let hooks: serde_json::Value = serde_json::from_str(&hooks).unwrap();
        let counters = &hooks[0]["counters"];
        let pairs = counters.as_array().and_then(|list| list.iter().find(|pair| pair[0] == counter));
        pairs.map_or_else(|| counters[counter].as_u64(), |pair| pair[1].as_u64()).unwrap()
    };
    let more = |counter: &str, arguments: &[&str]| {
        let before = counted(counter);
        let said = ping(&rig, arguments);
        (counted(counter) - before, said)
    };
    let (own, said) = more("passed_local4", &["10.8.2.1"]);
    assert!(own >= 3 && said.contains("3 received"), "{own}: {said}");
    let (broadcast, _) = more("passed_local4", &["-b", "10.8.2.255"]);
    assert!(broadcast >= 3, "{broadcast}");
    let (expired, said) = more("route_ttl", &["-t", "1", "10.8.2.2"]);
    assert!(expired == 3 && said.contains("From 10.8.1.1"), "{expired}: {said}");
    // A new address of the host is known at once, and a removed one is forgotten.
    rig.lab.hub().run(["ip", "address", "add", "10.8.7.7/32", "dev", "lo"]).unwrap();
    eventually("the hook knows the address", PATIENCE, || match more("passed_local4", &["10.8.7.7"]) {
        (3.., said) if said.contains("3 received") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .unwrap();
    rig.lab.hub().run(["ip", "address", "del", "10.8.7.7/32", "dev", "lo"]).unwrap();
    eventually("the hook has forgotten it", PATIENCE, || match more("passed_local4", &["10.8.7.7"]) {
        (0, _) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .unwrap();
    let (worker, kernel) =
        forwarded(&rig, || assert!(ping(&rig, &["-s", "4000", "10.8.2.2"]).contains("3 received")));
    assert!(worker >= 9 && kernel == 0, "fragments: {worker} by the worker, {kernel} by the kernel");
    // The device has another MAC address. Packets to the new address are routed.
    rig.lab.hub().run(["ip", "link", "set", "dev", "h1", "address", "02:00:00:00:88:88"]).unwrap();
    rig.hosts[0].run(["ip", "neighbor", "flush", "dev", "eth0"]).unwrap();
    eventually("the worker routes what is for the new address", PATIENCE, || {
        let mut said = String::new();
        let (worker, _) = forwarded(&rig, || said = ping(&rig, &["10.8.2.2"]));
        if worker >= 3 && said.contains("3 received") { Ok(()) } else { Err(format!("{worker}: {said}")) }
    })
    .unwrap();
}

/// A permanent neighbour entry stays permanent while packets use it. Only neighbours that the kernel has resolved are
/// refreshed while packets use them.
#[test]
fn a_permanent_neighbour_that_is_used_stays_one() {
    require!("ip", "ping", "ethtool");
    let rig = start(2);
    let (hub, host) = (rig.lab.hub(), &rig.hosts[1]);
    host.run(["ip", "address", "add", "10.8.2.9/24", "dev", "eth0"]).unwrap();
    let mac = host.mac().unwrap();
    for address in ["10.8.2.2", "fd00:8:2::2"] {
        let line = ["ip", "neighbor", "replace", address, "lladdr", &mac, "nud", "permanent", "dev", "h2"];
        hub.run(line).unwrap();
    }
    // By then, another neighbour, which is in use and would expire in the kernel, has been refreshed twice.
    hub.run(["sysctl", "-qw", "net.ipv4.neigh.h2.base_reachable_time_ms=500"]).unwrap();
    let mut watch = hub.spawn(["ip", "-o", "monitor", "neigh"]).unwrap();
    for _ in 0..6 {
        for address in ["10.8.2.2", "fd00:8:2::2", "10.8.2.9"] {
            assert!(ping(&rig, &["-i", "0.3", address]).contains("3 received"), "{address}");
        }
    }
    watch.wait_for_line("10.8.2.9", PATIENCE).unwrap();
    let known = hub.run(["ip", "neighbor", "show", "dev", "h2", "nud", "permanent"]).unwrap();
    assert!(known.contains("10.8.2.2 ") && known.contains("fd00:8:2::2 "), "{known}");
}

#[test]
fn explain_follows_a_packet_through_the_router() {
    require!("ip", "ping", "ethtool");
    let rig = start(2);
    let router = rig.port("h1")["mac"].as_str().unwrap().to_owned();
    let explain = |more: &str| {
        let packet = format!("eth_src={},eth_dst={router},{more}", rig.hosts[0].mac().unwrap());
        rig.ok(&["explain", "--in", "h1", &packet])
    };
    let said = explain("ip_src=10.8.1.2,ip_dst=10.8.2.2,udp");
    let to = rig.hosts[1].mac().unwrap();
    assert!(said.contains("10.8.2.0/24 in table main, made by kernel: dev h2\n"), "{said}");
    assert!(said.contains(&format!("a route leads to {to} behind h2")), "{said}");
    assert!(said.ends_with("it leaves by h2\n"), "{said}");
    let said = explain("ip_src=10.8.1.2,ip_dst=10.8.2.2,udp,ttl=1");
    assert!(
        said.contains("route_ttl") && said.ends_with("given to the kernel by the driver hook\n"),
        "{said}"
    );
    let said = explain("ip_src=10.8.1.2,ip_dst=10.99.2.2,udp");
    assert!(said.contains("There is no route to its destination"), "{said}");
    assert!(said.ends_with("it goes no further; the error leaves by h1\n"), "{said}");
    rig.lab.hub().run(["ip", "route", "add", "blackhole", "10.9.0.0/16"]).unwrap();
    eventually("the blackhole is known", PATIENCE, || {
        let said = explain("ip_src=10.8.1.2,ip_dst=10.9.2.2,udp");
        if said.contains("dropped as route-blackhole") { Ok(()) } else { Err(said) }
    })
    .unwrap();
}

/// Returns the frame with a priority tag (IEEE 802.1Q, VLAN ID 0). A frame with such a tag counts as untagged.
fn priority(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0xa0, 0], &frame[12..]].concat()
}

/// Returns the packet with an IPv4 option, or with an IPv6 hop-by-hop header. Workers pass such packets to the kernel.
fn with_options(frame: &[u8]) -> Vec<u8> {
    let mut packet = frame[14..].to_vec();
    if packet[0] >> 4 == 6 {
        let length = u16::from_be_bytes([packet[4], packet[5]]) + 8;
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        let next = std::mem::replace(&mut packet[6], 0);
        // PadN over the whole header (RFC 8200, section 4.2).
        packet.splice(40..40, [next, 0, 1, 4, 0, 0, 0, 0]);
    } else {
        let length = u16::from_be_bytes([packet[2], packet[3]]) + 4;
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        packet[0] = 0x46;
        packet.splice(20..20, [1, 1, 1, 0]);
        packet[10..12].fill(0);
        let sum: u32 =
            packet[..24].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let checksum = !u16::try_from(sum).unwrap();
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    [&frame[..14], &packet].concat()
}

/// The hook checks source addresses by reverse path filtering in the same way as a worker, and drops packets that fail
/// the check.
#[test]
fn sources_that_are_elsewhere_are_refused() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::routed(2);
    let asking = |rig: &Rig, rpf: &str| {
        let asks = format!("[router.edge.port.h1]\nrpf = \"{rpf}\"\n");
        configuration(rig).replace("hook = false\n", "").replace("[router.edge.port.h1]\n", &asks)
    };
    let strict = asking(&rig, "strict");
    rig.start(&strict);
    rig.until_reachable(1, 2);
    let router = rig.port("h1")["mac"].as_str().unwrap().to_owned();
    let packet = |source: &str, to: &str| format!("eth_dst={router},ip_src={source},ip_dst={to},udp,len=90");
    let sender = RawSender::open(&rig.hosts[0], "eth0").unwrap();
    let dropped = || rig.dropped("h1", "reverse-path");
    let frame = |source: &str, to: &str| spec::parse(&packet(source, to)).unwrap();
    let refused = |source: &str, to: &str| {
        let before = dropped();
        for shape in [
            <[u8]>::to_vec,
            priority,
            |frame: &[u8]| priority(&priority(frame)),
            with_options,
            |frame: &[u8]| priority(&with_options(frame)),
        ] {
            sender.send(&shape(&frame(source, to))).unwrap();
        }
        eventually(&format!("{source} is refused"), PATIENCE, || {
            if dropped() == before + 5 { Ok(()) } else { Err(dropped().to_string()) }
        })
        .unwrap();
    };
    let passes = |source: &str, to: &str| {
        let (before, sent_before) = (dropped(), sent(&rig, "h2"));
        let plain = frame(source, to);
        for frame in [&plain, &plain, &plain, &priority(&plain), &priority(&priority(&plain))] {
            sender.send(frame).unwrap();
        }
        eventually(&format!("{source} passes"), PATIENCE, || {
            let now = sent(&rig, "h2");
            if now >= sent_before + 5 { Ok(()) } else { Err(now.to_string()) }
        })
        .unwrap();
        assert_eq!(dropped(), before, "{source}");
    };
    // The kernel forwards by itself until it knows the neighbour.
    eventually("IPv6 neighbours are known", PATIENCE, || {
        let said = ping(&rig, &["fd00:8:2::2"]);
        if said.contains("3 received") { Ok(()) } else { Err(said) }
    })
    .unwrap();
    passes("10.8.1.77", "10.8.2.2");
    passes("fd00:8:1::77", "fd00:8:2::2");
    refused("10.8.2.77", "10.8.2.2");
    refused("fd00:8:2::77", "fd00:8:2::2");
    refused("203.0.113.9", "10.8.2.2");
    // The check applies to packets to this host, too, also if they arrive at a group address of the link.
    refused("10.8.2.77", "10.8.1.1");
    let group = |source: &str, to: &str, passes: bool| {
        let before = dropped();
        let frame = spec::parse(&format!("eth_dst=ff:ff:ff:ff:ff:ff,ip_src={source},ip_dst={to},udp,len=90"));
        let frame = frame.unwrap();
        for frame in [&frame, &priority(&frame), &with_options(&frame)] {
            sender.send(frame).unwrap();
        }
        let wanted = if passes { before } else { before + 3 };
        eventually(&format!("{source} to {to} at a group address"), PATIENCE, || {
            if dropped() == wanted { Ok(()) } else { Err(dropped().to_string()) }
        })
        .unwrap();
    };
    let groups = || {
        group("10.8.1.77", "10.8.1.1", true);
        group("10.8.1.77", "10.8.1.255", true);
        group("10.8.2.77", "10.8.1.1", false);
        group("10.8.2.77", "10.8.1.255", false);
        group("203.0.113.9", "10.8.2.2", false);
    };
    groups();
    let explain = |source: &str| rig.ok(&["explain", "--in", "h1", &packet(source, "10.8.2.2")]);
    let said = explain("10.8.2.77");
    assert!(
        said.contains("its source 10.8.2.77 came in at h1, and the route there leads out of h2"),
        "{said}"
    );
    assert!(rig.hook_counter("h1", "route_reverse_path") >= 3);
    let said = explain("203.0.113.9");
    assert!(said.contains("its source 203.0.113.9 came in at h1, and no route leads there"), "{said}");
    // The kernel still receives its own packets: its addresses, and the broadcast of a DHCP client.
    let before = dropped();
    rig.until_reachable(1, 2);
    assert!(ping(&rig, &["10.8.2.1"]).contains("3 received"));
    let listens = RawReceiver::open(rig.lab.hub(), "h1").unwrap();
    let discover = "eth_dst=ff:ff:ff:ff:ff:ff,ip_src=0.0.0.0,ip_dst=255.255.255.255,udp,udp_dst=67";
    let discover = spec::parse(discover).unwrap();
    sender.send(&discover).unwrap();
    let heard = || listens.arrived(PATIENCE).unwrap().expect("the kernel has it");
    while heard()[..34] != discover[..34] {}
    assert_eq!(dropped(), before);
    // Workers refuse the same packets.
    let workers = strict.replace("[router.edge]\n", "[router.edge]\nhook = false\n");
    assert_ne!(workers, strict);
    rig.ok(&["apply", rig.write("workers.toml", &workers).to_str().unwrap()]);
    passes("10.8.1.77", "10.8.2.2");
    passes("fd00:8:1::77", "fd00:8:2::2");
    refused("10.8.2.77", "10.8.2.2");
    refused("fd00:8:2::77", "fd00:8:2::2");
    groups();
    // The setting changes while the router runs.
    let file = rig.write("loose.toml", &asking(&rig, "loose"));
    rig.ok(&["apply", file.to_str().unwrap()]);
    passes("10.8.2.77", "10.8.2.2");
    refused("203.0.113.9", "10.8.2.2");
    let file = rig.write("off.toml", &asking(&rig, "off"));
    rig.ok(&["apply", file.to_str().unwrap()]);
    passes("203.0.113.9", "10.8.2.2");
}

#[test]
fn tables_are_shown_as_the_kernel_has_them() {
    require!("ip", "ping", "ethtool");
    let rig = start(2);
    let hub = rig.lab.hub();
    let json = |line: &[&str]| -> serde_json::Value {
        let line: Vec<&str> = ["show"].iter().chain(line).chain(&["--json"]).copied().collect();
        serde_json::from_str(&rig.ok(&line)).unwrap()
    };
    for line in [
        "nexthop add id 7 via 10.8.2.2 dev h2",
        "route add 10.9.0.0/16 nhid 7 proto 186 metric 20",
        "route add 10.9.9.0/24 via 10.8.1.2 dev h1",
        "route add blackhole 10.9.9.128/25 table 77",
        "rule add to 10.9.9.128/25 table 77 priority 90",
    ] {
        hub.run(["ip"].into_iter().chain(line.split(' '))).unwrap();
    }
    eventually("the rule is known", PATIENCE, || {
        let why = rig.ok(&["show", "why", "10.9.9.200"]);
        if why.contains("blackhole") { Ok(()) } else { Err(why) }
    })
    .unwrap();
    let routers = json(&["routers"]);
    let edge = &routers[0];
    assert_eq!(
        (&edge["name"], &edge["in_step"], &edge["drifted"]),
        (&"edge".into(), &true.into(), &0.into())
    );
    assert_eq!(edge["interfaces"].as_array().map(Vec::len), Some(2), "{edge}");
    assert!(edge["interfaces"][0]["addresses"].to_string().contains("10.8.1.1/24"), "{edge}");
    let routes = json(&["routes", "10.9.0.0/16"]).to_string();
    assert!(
        routes.contains("10.9.0.0/16") && routes.contains("10.9.9.0/24") && routes.contains("\"bgp\""),
        "{routes}"
    );
    // More routes than one read returns, of two tables and both families.
    let batch = rig.path("batch");
    let line = |table, number: u32| {
        format!("route add blackhole 10.128.{}.{}/32 table {table}\n", number / 256, number % 256)
    };
    let lines: String = (0..700).map(|number| line(88, number) + &line(89, number)).collect();
    std::fs::write(&batch, lines + "route add blackhole 2001:db8:1::/48 table 88\n").unwrap();
    hub.run(["ip", "-batch", batch.to_str().unwrap()]).unwrap();
    let prefixes = |line: &[&str]| -> Vec<(u64, String)> {
        let all = json(line);
        let route = |route: &serde_json::Value| {
            (route["table"].as_u64().unwrap(), route["prefix"].as_str().unwrap().to_owned())
        };
        all.as_array().unwrap().iter().map(route).collect()
    };
    let wanted = |table: u64| {
        (0..700).map(move |number| (table, format!("10.128.{}.{}/32", number / 256, number % 256)))
    };
    eventually("all routes are known", PATIENCE, || {
        let found = prefixes(&["routes", "10.128.0.0/9", "--limit", "5000"]);
        if found.iter().cloned().eq(wanted(88).chain(wanted(89))) {
            Ok(())
        } else {
            Err(found.len().to_string())
        }
    })
    .unwrap();
    assert!(prefixes(&["routes", "10.128.0.0/9", "--limit", "600"]).into_iter().eq(wanted(88).take(600)));
    assert!(prefixes(&["routes", "10.128.2.0/24", "--table", "89"]).into_iter().eq(wanted(89).skip(512)));
    assert_eq!(prefixes(&["routes", "2001:db8::/32"]), [(88, "2001:db8:1::/48".to_owned())]);
    assert_eq!(prefixes(&["routes", "--table", "88", "--limit", "5000"]).len(), 701);
    assert_eq!(prefixes(&["routes", "10.64.0.0/10"]), []);
    let why = |of: &str| json(&["why", of]);
    assert_eq!(why("10.9.1.1")["route"]["next_hop"], 7);
    assert_eq!(why("10.9.1.1")["route"]["next_hops"][0]["device"], "h2");
    assert_eq!(why("10.9.9.9")["route"]["prefix"], "10.9.9.0/24");
    assert_eq!(why("10.9.9.200")["route"]["kind"], "blackhole");
    assert!(why("192.0.2.1")["route"].is_null());
    assert!(rig.ok(&["show", "neighbours"]).contains(rig.hosts[1].mac().unwrap().as_str()));
    assert!(rig.ok(&["show", "nexthops"]).contains("10.8.2.2"));
    assert_eq!(json(&["drift"])["drifted"], 0);
    // Packets that are punted or answered with an error are counted by class.
    let before = counted(&rig, "errors");
    ping(&rig, &["10.99.0.1"]);
    assert_eq!(counted(&rig, "errors"), before + 3);
    assert!(rig.ok(&["show", "punts"]).contains("errors"));
    let refused = rig.trivium(&["show", "routes", "--router", "none"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("none"));
}

/// The near ends of veth pairs that the daemon created can be router interfaces, as in examples/router.toml. While
/// these devices belong to a router, the kernel uses the addresses on them. While the devices belong to a bridge, the
/// kernel does not use the addresses.
#[test]
fn pairs_of_our_making_are_interfaces() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::routed(1);
    let mut text = ports(&rig);
    let tenants: Vec<_> = ["red", "blue"].map(|name| rig.lab.namespace(name).unwrap()).into();
    for (nth, tenant) in (1..).zip(&tenants) {
        let _ = write!(
            text,
            "[port.t{nth}]\nkind = \"veth\"\npeer = {{ name = \"eth0\", namespace = \"{}\", address = [\"10.7.{nth}.2/24\"] }}\n",
            tenant.name()
        );
    }
    let routed = format!("{text}[router.edge]\n[router.edge.port.t1]\n[router.edge.port.t2]\n");
    let bridged = format!("{text}[bridge.br0.port.t1]\n[bridge.br0.port.t2]\n");
    rig.start(&routed);
    let hub = rig.lab.hub();
    let device = |nth: u8| format!("t{nth}");
    let attached = |nth: u8| hub.run(["ip", "-o", "link", "show", "dev", &device(nth)]).unwrap();
    for (nth, tenant) in (1..).zip(&tenants) {
        hub.run(["ip", "address", "add", &format!("10.7.{nth}.1/24"), "dev", &device(nth)]).unwrap();
        tenant.run(["ip", "route", "add", "default", "via", &format!("10.7.{nth}.1")]).unwrap();
    }
    let reached = || tenants[0].run(["ping", "-c", "3", "-i", "0.05", "-W", "1", "10.7.2.2"]).map(drop);
    let reaches = || reached().map_err(|error| error.to_string());
    eventually("one tenant reaches the other", PATIENCE, reaches).unwrap();
    let before = (sent(&rig, "t2"), by_kernel(&rig));
    reached().unwrap();
    assert!(sent(&rig, "t2") >= before.0 + 3 && by_kernel(&rig) == before.1, "{before:?}");
    assert!(!attached(1).contains("NOARP"), "{}", attached(1));
    let file = rig.write("bridged.toml", &bridged);
    rig.ok(&["apply", file.to_str().unwrap()]);
    assert!(attached(1).contains("NOARP"), "{}", attached(1));
    let file = rig.write("routed.toml", &routed);
    rig.ok(&["apply", file.to_str().unwrap()]);
    assert!(!attached(1).contains("NOARP"), "{}", attached(1));
    eventually("it is routed again", PATIENCE, reaches).unwrap();
}
