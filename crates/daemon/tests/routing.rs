//! Tests ports whose hooks forward packets according to the kernel's routes, with the real binary between real hosts in
//! different networks. The hook forwards simple packets, and the kernel's network stack handles all other packets. No
//! packet is lost when a flow moves between hook and network stack.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::time::Duration;

use rig::{PATIENCE, Rig, TRIVIUM};
use testbed::{UdpFlow, eventually, iperf_tcp, require};

/// Returns the configuration of one port for each host, without a bridge.
fn configuration(rig: &Rig, extra: &str) -> String {
    let ports = rig.configuration(extra);
    ports
        .lines()
        .filter(|line| !line.contains("bridge") && !line.contains("access"))
        .fold(String::new(), |text, line| text + line + "\n")
}

const KERNEL: &str = "routing = \"kernel\"\n";

/// Returns a counter of a port's hook.
fn counted(rig: &Rig, port: &str, counter: &str) -> u64 {
    let hooks: serde_json::Value =
        serde_json::from_str(&rig.ok(&["xdp", "status", port, "--seconds", "0", "--json"])).unwrap();
    let counters = hooks[0]["counters"].clone();
    let found = counters.as_array().and_then(|list| list.iter().find(|pair| pair[0] == counter));
    found.map_or_else(|| counters[counter].as_u64(), |pair| pair[1].as_u64()).unwrap()
}

fn until_routed(rig: &Rig, port: &str) {
    rig.port_until(port, "its hook routes", |port| port["shortcut"] == "forwards by the kernel's routes");
}

fn start(hosts: u8) -> Rig {
    let mut rig = Rig::routed(hosts);
    let configuration = configuration(&rig, KERNEL);
    rig.start(&configuration);
    rig.hosts.iter().for_each(|host| until_routed(&rig, host.device()));
    rig.until_reachable(1, 2);
    rig
}

/// Returns the output of `ping`, whatever its exit status.
fn ping(rig: &Rig, arguments: &[&str]) -> String {
    let line = ["ping", "-c", "3", "-i", "0.05", "-W", "1"].iter().chain(arguments);
    let output = rig.hosts[0].command(line).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the increase of a counter of h1's hook during `work`.
fn more(rig: &Rig, counter: &str, work: impl FnOnce()) -> u64 {
    let before = counted(rig, "h1", counter);
    work();
    counted(rig, "h1", counter) - before
}

#[test]
fn hosts_talk_through_the_hook() {
    require!("ip", "ping", "ethtool", "iperf3");
    let rig = start(2);
    let (one, two) = (&rig.hosts[0], &rig.hosts[1]);
    let echoes = more(&rig, "fib_forwarded", || assert_eq!(one.ping(two.ip(), 20).unwrap().received, 20));
    assert!(echoes >= 20, "{echoes} of 20 requests in the hook");
    let ping6 =
        || one.ping("fd00:8:2::2", 20).map(|report| report.received).map_err(|error| error.to_string());
    eventually("IPv6 goes through", PATIENCE, ping6).unwrap();
    let echoes = more(&rig, "fib_forwarded", || assert_eq!(ping6().unwrap(), 20));
    assert!(echoes >= 20, "{echoes} of 20 requests by IPv6 in the hook");

    let received = |port: &str| rig.port(port)["counters"]["rx_packets"].as_u64().unwrap();
    let sent = |port: &str| rig.port(port)["counters"]["tx_packets"].as_u64().unwrap();
    let (before, before_sent) = (received("h1"), sent("h2"));
    let flow = UdpFlow::start(one, two, 2_000).unwrap();
    flow.wait_for(1_000, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
    let (came, left) = (received("h1") - before, sent("h2") - before_sent);
    assert!(came >= 1_000 && left >= 1_000, "what the hook forwards counts: {came}, {left}");

    let tcp = more(&rig, "fib_forwarded", || {
        iperf_tcp(one, two, two.ip(), 1).unwrap();
    });
    // At 1500 bytes per frame, this needs only a few Mbit/s.
    assert!(tcp > 1_000, "{tcp} frames of TCP in the hook");
}

#[test]
fn the_stack_does_what_is_its_own() {
    require!("ip", "ping", "ethtool");
    let rig = start(2);
    let hub = rig.lab.hub();
    rig.hosts[1].run(["ip", "address", "add", "10.9.0.1/32", "dev", "lo"]).unwrap();
    hub.run(["ip", "route", "add", "10.9.0.0/24", "via", "10.8.2.2"]).unwrap();
    let through = more(&rig, "fib_forwarded", || assert!(ping(&rig, &["10.9.0.1"]).contains("3 received")));
    assert_eq!(through, 3);
    // The route is withdrawn and added again.
    hub.run(["ip", "route", "del", "10.9.0.0/24"]).unwrap();
    let refused = more(&rig, "fib_no_route", || {
        let said = ping(&rig, &["10.9.0.1"]);
        assert!(said.contains("Destination Net Unreachable"), "{said}");
    });
    assert_eq!(refused, 3);
    hub.run(["ip", "route", "add", "10.9.0.0/24", "via", "10.8.2.2", "mtu", "lock", "1300"]).unwrap();
    let through = more(&rig, "fib_forwarded", || assert!(ping(&rig, &["10.9.0.1"]).contains("3 received")));
    assert_eq!(through, 3);
    // The stack sends the error for a packet that is too long or has expired.
    let refused = more(&rig, "fib_too_long", || {
        let said = ping(&rig, &["-M", "do", "-s", "1400", "10.9.0.1"]);
        assert!(said.contains("mtu = 1300") || said.contains("mtu=1300"), "{said}");
    });
    assert!(refused >= 1);
    let expired = more(&rig, "fib_ttl", || {
        let said = ping(&rig, &["-t", "1", "10.8.2.2"]);
        assert!(said.contains("Time to live exceeded"), "{said}");
    });
    assert_eq!(expired, 3);
    // The stack resolves an unknown neighbour, which the hook knows from then on.
    hub.run(["ip", "neighbor", "flush", "dev", "h2"]).unwrap();
    let asked = more(&rig, "fib_neighbor", || assert!(ping(&rig, &["10.8.2.2"]).contains("3 received")));
    assert!((1..3).contains(&asked), "{asked}");
    let through = more(&rig, "fib_forwarded", || assert!(ping(&rig, &["10.8.2.2"]).contains("3 received")));
    assert_eq!(through, 3);
    // The router's own address.
    let own = more(&rig, "fib_no_route", || assert!(ping(&rig, &["10.8.1.1"]).contains("3 received")));
    assert_eq!(own, 3);
}

#[test]
fn changes_and_an_upgrade_lose_nothing() {
    require!("ip", "ping", "ethtool");
    let rig = start(2);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    let (with, without) = (configuration(&rig, KERNEL), configuration(&rig, ""));
    for _ in 0..3 {
        let file = rig.write("without.toml", &without);
        let said = rig.ok(&["apply", file.to_str().unwrap()]);
        assert!(said.contains("routing") && !said.contains("made anew"), "{said}");
        assert!(rig.port("h1")["shortcut"].is_null());
        let by_stack = more(&rig, "fib_forwarded", || flow.wait_for(200, PATIENCE).unwrap());
        assert_eq!(by_stack, 0);
        let file = rig.write("with.toml", &with);
        rig.ok(&["apply", file.to_str().unwrap()]);
        let in_hook = more(&rig, "fib_forwarded", || flow.wait_for(200, PATIENCE).unwrap());
        assert!(in_hook > 100, "{in_hook}");
    }
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    until_routed(&rig, "h1");
    let in_hook = more(&rig, "fib_forwarded", || flow.wait_for(400, PATIENCE).unwrap());
    assert!(in_hook > 100, "{in_hook}");
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.doubled), (0, 0), "{report:?}");
    // In a bridge the port does not route. The port routes again afterwards.
    let file = rig.write("bridged.toml", &rig.configuration(""));
    rig.ok(&["apply", file.to_str().unwrap()]);
    assert_ne!(rig.port("h1")["shortcut"], "forwards by the kernel's routes");
    rig.ok(&["apply", rig.path("with.toml").to_str().unwrap()]);
    until_routed(&rig, "h1");
    rig.until_reachable(1, 2);
}

#[test]
fn devices_and_addresses_are_followed() {
    require!("ip", "ping", "ethtool");
    let rig = start(2);
    // A device that is no port, and is added later.
    let third = rig.lab.host("h3", "10.8.3.2/24").unwrap();
    rig.join(&third, 3);
    let all_in_hook = |to: &str| {
        let mut through = 0;
        let answered = || ping(&rig, &[to]).contains("3 received");
        through += more(&rig, "fib_forwarded", || assert!(answered() || answered()));
        if through == 3 { Ok(()) } else { Err(format!("{through} in the hook")) }
    };
    eventually("the hook sends to the new device", PATIENCE, || all_in_hook("10.8.3.2")).unwrap();
    // The device no longer accepts redirected frames, so the stack sends.
    third.run(["ethtool", "-K", "eth0", "gro", "off"]).unwrap();
    eventually("the stack sends", PATIENCE, || {
        let mut said = String::new();
        let stayed = more(&rig, "fib_no_device", || said = ping(&rig, &["10.8.3.2"]));
        let answered = said.contains("3 received");
        if stayed == 3 && answered { Ok(()) } else { Err(format!("{stayed} to the stack: {said}")) }
    })
    .unwrap();
    // The MAC address of the port changes.
    let hub = rig.lab.hub();
    hub.run(["ip", "link", "set", "dev", "h1", "address", "02:00:00:00:88:88"]).unwrap();
    rig.hosts[0].run(["ip", "neighbor", "flush", "dev", "eth0"]).unwrap();
    eventually("the hook knows its new address", PATIENCE, || all_in_hook("10.8.2.2")).unwrap();
    // A packet with a source address of the router.
    hub.run(["ip", "address", "add", "10.8.7.7/32", "dev", "lo"]).unwrap();
    rig.hosts[0].run(["ip", "address", "add", "10.8.7.7/32", "dev", "eth0"]).unwrap();
    eventually("the hook knows the address", PATIENCE, || {
        let stayed = more(&rig, "fib_address", || drop(ping(&rig, &["-I", "10.8.7.7", "10.8.2.2"])));
        if stayed == 3 { Ok(()) } else { Err(format!("{stayed} to the stack")) }
    })
    .unwrap();
}

#[test]
fn the_doctor_tells_what_is_bypassed_and_what_is_missing() {
    require!("ip", "ping", "ethtool", "nft");
    let rig = start(2);
    let doctor = || String::from_utf8_lossy(&rig.trivium(&["doctor"]).stdout).into_owned();
    let said = doctor();
    assert!(!said.contains("netfilter") && !said.contains("forwarding is off"), "{said}");
    let hub = rig.lab.hub();
    let nft = |line: &str| hub.run(["nft", line]).unwrap();
    nft("add table inet guard");
    nft("add chain inet guard mine { type filter hook forward priority 0; policy accept; }");
    nft("add chain inet guard local { type filter hook input priority 0; policy drop; }");
    let said = doctor();
    assert!(!said.contains("netfilter"), "an empty chain decides nothing: {said}");
    nft("add rule inet guard mine ip saddr 192.0.2.1 drop");
    let said = doctor();
    assert!(said.contains("table inet guard, chain mine") && !said.contains("chain local"), "{said}");
    nft("flush chain inet guard mine");
    nft("add chain inet guard mine { policy drop; }");
    assert!(doctor().contains("table inet guard, chain mine"));
    nft("delete table inet guard");
    hub.run(["sysctl", "-qw", "net.ipv4.ip_forward=0"]).unwrap();
    rig.hosts[1].run(["ethtool", "-K", "eth0", "gro", "off"]).unwrap();
    let said = doctor();
    assert!(!said.contains("netfilter"), "{said}");
    assert!(said.contains("IPv4 forwarding is off") && said.contains("net.ipv4.ip_forward=1"), "{said}");
    assert!(said.contains("h2 takes no redirected frames"), "{said}");
}

/// Returns the description of a packet from h1's host to its router, for `trivium explain`. `more` contains additional
/// fields.
fn from_host(rig: &Rig, more: &str) -> String {
    let router = rig.port("h1")["mac"].as_str().unwrap().to_owned();
    format!("eth_src={},eth_dst={router},{more}", rig.hosts[0].mac().unwrap())
}

#[test]
fn explain_tells_where_the_hook_sends_and_why_it_does_not() {
    require!("ip", "ping", "ethtool");
    let rig = start(2);
    let (hub, two) = (rig.lab.hub(), &rig.hosts[1]);
    let explain = |more: &str| rig.ok(&["explain", "--in", "h1", &from_host(&rig, more)]);
    let udp = |to: &str| format!("ip_src=10.8.1.2,ip_dst={to},udp,dst_port=9");
    let leaves = |said: &str, by: &str, to: &str, hops: u8| {
        let link = hub.run(["ip", "-o", "link", "show", "dev", by]).unwrap();
        let near = link.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).unwrap();
        let what = format!("straight to {by}, from {near} to {to}, hop limit {hops}\n");
        assert!(said.contains(&what), "{what}{said}");
        let end = format!("forwarded to {by} in the driver hook, by the kernel's routes\n");
        assert!(said.ends_with(&end), "{said}");
    };
    let mac = two.mac().unwrap();
    let counted = more(&rig, "fib_forwarded", || {
        leaves(&explain(&udp("10.8.2.2")), "h2", &mac, 63);
        leaves(&explain(&format!("{},ttl=2", udp("10.8.2.2"))), "h2", &mac, 1);
    });
    assert_eq!(counted, 0, "explaining sends nothing");
    eventually("IPv6 goes through", PATIENCE, || match rig.hosts[0].ping("fd00:8:2::2", 1) {
        Ok(report) if report.received == 1 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .unwrap();
    leaves(&explain("ip_src=fd00:8:1::2,ip_dst=fd00:8:2::2,udp"), "h2", &mac, 63);
    let told: serde_json::Value = serde_json::from_str(&rig.ok(&[
        "explain",
        "--json",
        "--in",
        "h1",
        &from_host(&rig, &udp("10.8.2.2")),
    ]))
    .unwrap();
    assert_eq!((&told["tier"], &told["to_kernel"]), (&"hook".into(), &false.into()), "{told}");
    assert_eq!(told["outputs"][0]["port"], "h2");
    let frame = told["outputs"][0]["frame"].as_str().unwrap();
    assert!(frame.starts_with(&mac.replace(':', "")), "{told}");
    // A device that is no port.
    let third = rig.lab.host("h3", "10.8.3.2/24").unwrap();
    rig.join(&third, 3);
    hub.run(["ping", "-c", "1", "10.8.3.2"]).unwrap();
    eventually("the hook knows the device", PATIENCE, || {
        let said = explain(&udp("10.8.3.2"));
        if said.contains("straight to h3") { Ok(()) } else { Err(said) }
    })
    .unwrap();
    leaves(&explain(&udp("10.8.3.2")), "h3", &third.mac().unwrap(), 63);

    for route in ["blackhole 10.9.1.0/24", "unreachable 10.9.2.0/24", "prohibit 10.9.3.0/24"] {
        hub.run(["ip", "route", "add"].into_iter().chain(route.split(' '))).unwrap();
    }
    hub.run(["ip", "route", "add", "10.9.4.0/24", "via", "10.8.2.2", "mtu", "lock", "1300"]).unwrap();
    hub.run(["ip", "route", "add", "10.9.5.0/24", "via", "10.8.1.2"]).unwrap();
    let stays = |more: &str, counter: &str, why: &str| {
        let said = explain(more);
        assert!(
            said.contains(&format!("left to the kernel as {counter}: ")) && said.contains(why),
            "{more}: {said}"
        );
        assert!(said.ends_with("given to the kernel by the driver hook\n"), "{more}: {said}");
    };
    stays(&format!("{},ttl=1", udp("10.8.2.2")), "fib_ttl", "its hop limit is used up");
    stays(&format!("vlan=5,{}", udp("10.8.2.2")), "fib_tagged", "VLAN tag");
    stays(&udp("10.8.1.1"), "fib_no_route", "it is for this machine");
    stays(&udp("10.99.0.1"), "fib_no_route", "there is no route");
    stays(&udp("127.0.0.1"), "fib_address", "is not forwarded");
    stays(&udp("10.8.2.77"), "fib_neighbor", "the next hop's Ethernet address is not known");
    stays(&udp("10.9.1.1"), "fib_blackhole", "blackhole");
    stays(&udp("10.9.2.1"), "fib_unreachable", "unreachable");
    stays(&udp("10.9.3.1"), "fib_prohibit", "prohibit");
    stays(
        &format!("{},len=1400", udp("10.9.4.1")),
        "fib_too_long",
        "longer than its route or device carries",
    );
    leaves(&explain(&udp("10.9.4.1")), "h2", &mac, 63);
    stays(&udp("10.9.5.1"), "fib_same_device", "by the device that it came by");
    stays("arp", "passed_control", "neither IPv4 nor IPv6");
    let stranger = format!("eth_dst=02:00:00:00:99:99,{}", udp("10.8.2.2"));
    let said = rig.ok(&["explain", "--in", "h1", &stranger]);
    assert!(said.contains("fib_station: it is for another Ethernet address"), "{said}");
    two.run(["ethtool", "-K", "eth0", "gro", "off"]).unwrap();
    eventually("its device is no longer taken", PATIENCE, || {
        let said = explain(&udp("10.8.2.2"));
        let found =
            said.contains("fib_no_device: the device that it would leave by takes no redirected frames");
        if found { Ok(()) } else { Err(said) }
    })
    .unwrap();
    hub.run(["sysctl", "-qw", "net.ipv4.conf.h1.forwarding=0"]).unwrap();
    stays(&udp("10.8.2.2"), "fib_disabled", "forwarding is off");
}

#[test]
fn explain_names_the_rule_in_front_of_the_routes() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::routed(2);
    let filter = "[filter.edge]\n\
                  [[filter.edge.rule]]\nname = \"seen\"\naction = \"count\"\nprotocol = \"udp\"\n\
                  [[filter.edge.rule]]\nname = \"shut\"\naction = \"drop\"\nprotocol = \"udp\"\ndestination_port = 53\n";
    let ports = configuration(&rig, &format!("{KERNEL}filter = \"edge\"\n"));
    // The steering selects CPU 0.
    let steering = "[steering.spread]\ntable = [\"cpu 0\"]\n";
    let steered = ports.replacen("device = \"h1\"\n", "device = \"h1\"\nsteering = \"spread\"\n", 1);
    rig.start(&format!("{steered}{filter}{steering}"));
    until_routed(&rig, "h1");
    rig.until_reachable(1, 2);
    let explain = |port: &str| {
        let packet = from_host(&rig, &format!("ip_src=10.8.1.2,ip_dst=10.8.2.2,udp,dst_port={port}"));
        rig.ok(&["explain", "--in", "h1", &packet])
    };
    let said = explain("9");
    assert!(said.contains("rule seen of the port's filter matched and did nothing"), "{said}");
    assert!(!said.contains("rule shut") && said.contains("straight to h2"), "{said}");
    assert!(said.ends_with("forwarded to h2 in the driver hook, by the kernel's routes\n"), "{said}");
    let said = explain("53");
    assert!(said.contains("rule shut of the port's filter matched and acted"), "{said}");
    assert!(!said.contains("straight to"), "{said}");
    assert!(said.ends_with("dropped in the hook: filter-dropped\n"), "{said}");
    // A packet that the stack receives on another CPU also counts as passed to the kernel.
    let packet = from_host(&rig, "ip_src=10.8.1.2,ip_dst=10.8.2.2,udp,ttl=1");
    let told: serde_json::Value =
        serde_json::from_str(&rig.ok(&["explain", "--json", "--in", "h1", &packet])).unwrap();
    let steps = told["steps"].to_string();
    assert!(steps.contains("says cpu 0") && steps.contains("fib_ttl"), "{told}");
    assert_eq!((&told["to_kernel"], &told["outputs"]), (&true.into(), &serde_json::json!([])), "{told}");
}

/// When the daemon ends, the hook is removed and the kernel forwards packets, unless the hook is persistent. A
/// persistent hook continues to forward packets.
#[test]
fn without_the_daemon_the_stack_forwards_or_the_hook_goes_on() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::routed(2);
    for (extra, stays) in
        [("routing = \"kernel\"\n", false), ("routing = \"kernel\"\npersist = true\n", true)]
    {
        let configuration = configuration(&rig, extra);
        rig.start(&configuration);
        until_routed(&rig, "h1");
        rig.until_reachable(1, 2);
        let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
        flow.wait_for(200, PATIENCE).unwrap();
        let before = counted(&rig, "h1", "fib_forwarded");
        rig.daemon.take().unwrap().stop(rustix::process::Signal::TERM, PATIENCE).unwrap();
        flow.wait_for(500, PATIENCE).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let link = rig.lab.hub().run(["ip", "link", "show", "dev", "h1"]).unwrap();
        assert_eq!(link.contains("prog/xdp"), stays, "{link}");
        rig.start(&configuration);
        until_routed(&rig, "h1");
        let counted = counted(&rig, "h1", "fib_forwarded");
        assert!(!stays || counted > before + 400, "{before}, then {counted}");
        let report = flow.stop().unwrap();
        if stays {
            assert_eq!((report.lost(), report.doubled), (0, 0), "{report:?}");
        }
        rig.daemon.take().unwrap().stop(rustix::process::Signal::TERM, PATIENCE).unwrap();
    }
}
