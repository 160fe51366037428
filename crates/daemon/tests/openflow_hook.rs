//! Tests OpenFlow flows that are offloaded to the hook (XDP program), with the real binary between real hosts. The
//! tests check the counters and the effects of rule changes, and that no packet is lost or reordered when a flow moves
//! between hook and worker.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::process::Command;
use std::time::Duration;

use rig::{PATIENCE, Rig, TRIVIUM};
use rustix::process::Signal;
use testbed::{UdpFlow, eventually, require};

/// Starts the daemon with a bridge without rules. The devices of the hosts accept redirected frames.
fn start(hosts: u8) -> Rig {
    let mut rig = Rig::new(hosts);
    for host in &rig.hosts {
        host.run(["ethtool", "-K", "eth0", "gro", "on"]).unwrap();
    }
    let configuration = configuration(&rig);
    rig.start(&configuration);
    rig.pin_neighbours();
    rig
}

fn configuration(rig: &Rig) -> String {
    rig.configuration("") + "[bridge.br0.openflow]\nfail_mode = \"secure\"\n"
}

/// Runs `ovs-ofctl COMMAND BRIDGE ARGUMENTS`, which must succeed.
fn ofctl(rig: &Rig, arguments: &[&str]) -> String {
    let bridge = format!("unix:{}", rig.path("br0.mgmt").display());
    let (command, rest) = arguments.split_first().unwrap();
    let output = Command::new("ovs-ofctl")
        .args(["-O", "OpenFlow13", command])
        .arg(bridge)
        .args(rest)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the number of packets that the rules that `what` selects have matched.
fn counted(rig: &Rig, what: &str) -> u64 {
    let flows = ofctl(rig, &["dump-flows", what]);
    flows.split("n_packets=").skip(1).filter_map(|part| part.split(',').next()?.parse::<u64>().ok()).sum()
}

/// Returns a counter of a port's hook.
fn hook(rig: &Rig, port: &str, counter: &str) -> u64 {
    let status = rig.ok(&["xdp", "status", port, "--seconds", "0", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status[0]["counters"][counter].as_u64().unwrap_or_else(|| panic!("{status}"))
}

/// Waits until a port's hook processes at least 90 % of the port's packets itself, instead of passing them to workers.
fn until_in_the_hook(rig: &Rig, port: &str, counter: &str) {
    let shown = || format!("{}{}", rig.ok(&["show", "bridges"]), rig.ok(&["show", "ports"]));
    eventually("the flow is in the hook", PATIENCE, || {
        let before = (hook(rig, port, counter), hook(rig, port, "steered"));
        std::thread::sleep(Duration::from_millis(300));
        let (done, up) = (hook(rig, port, counter) - before.0, hook(rig, port, "steered") - before.1);
        if done >= 100 && up * 10 < done { Ok(()) } else { Err(format!("{done} there, {up} by workers")) }
    })
    .unwrap_or_else(|error| panic!("{error}: {}", shown()));
}

fn bridge(rig: &Rig) -> serde_json::Value {
    let bridges: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "bridges", "--json"])).unwrap();
    bridges[0].clone()
}

#[track_caller]
fn nothing_lost(flow: UdpFlow) -> u64 {
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
    report.sent
}

#[test]
fn hot_flows_are_answered_and_counted_each_once() {
    require!("ip", "ping", "ethtool", "ovs-ofctl");
    let rig = start(2);
    ofctl(&rig, &["add-flow", "cookie=0x5,priority=5,in_port=1,udp,actions=output:2"]);
    assert_eq!(rig.port("h1")["shortcut"], "answers for hot flows");
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 3_000).unwrap();
    until_in_the_hook(&rig, "h1", "flow_forwarded");
    assert_eq!(bridge(&rig)["hook_flows"], 1);
    let (from, to) = (rig.hosts[0].mac().unwrap(), rig.hosts[1].mac().unwrap());
    let frame = format!("eth_src={from},eth_dst={to},ip_src=10.8.0.1,ip_dst=10.8.0.2,udp");
    let explained = rig.ok(&["explain", "--in", "h1", &frame]);
    assert!(explained.contains("a hot flow, answered here: straight to the device of h2"), "{explained}");
    assert!(explained.contains("table 0: the rule of priority 5"), "{explained}");
    // During a capture all packets pass the worker.
    let seen = rig.ok(&["capture", "h1", "-n", "200"]);
    assert!(seen.lines().count() >= 200, "{seen}");
    until_in_the_hook(&rig, "h1", "flow_forwarded");
    let sent = nothing_lost(flow);
    let ports = ["rx_packets", "tx_packets"];
    eventually("all are counted", PATIENCE, || {
        let [came, left] = [("h1", ports[0]), ("h2", ports[1])]
            .map(|(port, what)| rig.port(port)["counters"][what].as_u64().unwrap());
        let rules = counted(&rig, "cookie=0x5/-1");
        if (came >= sent, left >= sent, rules) == (true, true, sent) {
            Ok(())
        } else {
            Err(format!("{sent} sent: {came} in, {left} out, {rules} by rules"))
        }
    })
    .unwrap();
    // Without traffic, the flow is removed from the hook.
    eventually("it is cold", PATIENCE, || match bridge(&rig)["hook_flows"].as_u64() {
        Some(0) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .unwrap();
    assert_eq!(counted(&rig, "cookie=0x5/-1"), sent, "none twice");
    // The bridge's setting excludes flows from the hook.
    let text = configuration(&rig).replace("[bridge.br0]\n", "[bridge.br0]\nhook = false\n");
    rig.ok(&["apply", rig.write("off.toml", &text).to_str().unwrap()]);
    assert!(rig.port("h1")["shortcut"].is_null() && bridge(&rig)["hook_flows"].is_null());
}

#[test]
fn after_an_answer_no_packet_meets_the_old_rule_in_the_hook() {
    require!("ip", "ping", "ethtool", "ovs-ofctl");
    let rig = start(2);
    ofctl(&rig, &["add-flow", "priority=5,in_port=1,udp,actions=output:2"]);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    for _ in 0..4 {
        until_in_the_hook(&rig, "h1", "flow_forwarded");
        ofctl(&rig, &["mod-flows", "in_port=1,udp,actions=drop"]);
        // Packets sent from here on have this number or a higher one.
        let answered = flow.next_number();
        until_in_the_hook(&rig, "h1", "flow_dropped");
        let below = flow.received_below();
        assert!(
            below <= answered,
            "packet {} was sent after the answer, that is from {answered} on",
            below - 1
        );
        ofctl(&rig, &["mod-flows", "in_port=1,udp,actions=output:2"]);
        flow.wait_for(100, PATIENCE).unwrap();
    }
    let report = flow.stop().unwrap();
    assert_eq!((report.overtaken, report.doubled), (0, 0), "{report:?}");
    eventually("each is counted once, where it went", PATIENCE, || {
        let (dropped, rules) = (rig.dropped("h1", "rule-drop"), counted(&rig, "in_port=1"));
        let held = rig.dropped("h1", "hook-held");
        if (dropped + held, rules + held) == (report.lost(), report.sent) {
            Ok(())
        } else {
            Err(format!("{report:?}: {dropped} dropped, {held} held, {rules} by the rule"))
        }
    })
    .unwrap();
}

#[test]
fn no_packet_is_lost_or_overtaken_while_rules_change_its_way() {
    require!("ip", "ping", "ethtool", "ovs-ofctl");
    let rig = start(2);
    ofctl(&rig, &["add-flow", "priority=5,in_port=1,udp,actions=output:2"]);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    // Headers are rewritten in both directions, and the receiver's kernel checks the checksums. A tag is
    // added and removed.
    let to = rig.hosts[1].ip();
    let ways = [
        "mod_nw_tos:64,output:2".to_owned(),
        format!("mod_nw_dst:{to},mod_nw_ttl:9,output:2"),
        "mod_nw_src:10.8.0.99,output:2".to_owned(),
        "dec_ttl,output:2".to_owned(),
        "push_vlan:0x8100,set_field:4106->vlan_vid,pop_vlan,output:2".to_owned(),
        "output:2".to_owned(),
    ];
    for way in ways {
        ofctl(&rig, &["mod-flows", &format!("in_port=1,udp,actions={way}")]);
        let forwarded = hook(&rig, "h1", "flow_forwarded");
        flow.wait_for(2_000, PATIENCE).unwrap();
        eventually("it is in the hook", PATIENCE, || match hook(&rig, "h1", "flow_forwarded") - forwarded {
            0 => Err(format!("{way}: {}", rig.ok(&["show", "bridges"]))),
            _ => Ok(()),
        })
        .unwrap();
    }
    nothing_lost(flow);
}

#[test]
fn an_upgrade_and_ports_that_go_leave_nothing_in_the_hook() {
    require!("ip", "ping", "ethtool", "ovs-ofctl");
    let rig = start(3);
    ofctl(&rig, &["add-flow", "cookie=0x5,priority=5,in_port=1,udp,actions=output:2"]);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    until_in_the_hook(&rig, "h1", "flow_forwarded");
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    flow.wait_for(200, PATIENCE).unwrap();
    until_in_the_hook(&rig, "h1", "flow_forwarded");
    // Another port of the bridge is removed and added. Flows are installed again, and no packet is lost.
    let without =
        rig.configuration_with("", &[10, 10, 0]) + "[bridge.br0.openflow]\nfail_mode = \"secure\"\n";
    for text in [&without, &configuration(&rig)] {
        rig.ok(&["apply", rig.write("ports.toml", text).to_str().unwrap()]);
        flow.wait_for(200, PATIENCE).unwrap();
        until_in_the_hook(&rig, "h1", "flow_forwarded");
    }
    let sent = nothing_lost(flow);
    eventually("all are counted", PATIENCE, || match counted(&rig, "cookie=0x5/-1") {
        rules if rules == sent => Ok(()),
        rules => Err(format!("{sent} sent, {rules} by the rule")),
    })
    .unwrap();
    // The output port is removed while the flow is hot. After the answer no packet is sent on it.
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    until_in_the_hook(&rig, "h1", "flow_forwarded");
    let without =
        rig.configuration_with("", &[10, 0, 10]) + "[bridge.br0.openflow]\nfail_mode = \"secure\"\n";
    rig.ok(&["apply", rig.write("away.toml", &without).to_str().unwrap()]);
    let answered = flow.next_number();
    flow.wait_until_sent(3_000, PATIENCE).unwrap();
    assert!(flow.received_below() <= answered, "{} after {answered}", flow.received_below());
    let report = flow.stop().unwrap();
    assert_eq!((report.overtaken, report.doubled), (0, 0), "{report:?}");
    assert!(report.received <= answered, "{report:?}: answered at {answered}");
}

/// After the daemon is killed, flows in the hook are valid for ten more seconds.
#[test]
fn a_daemon_that_was_killed_leaves_flows_for_a_while() {
    require!("ip", "ping", "ethtool", "ovs-ofctl");
    let mut rig = start(2);
    ofctl(&rig, &["add-flow", "priority=5,in_port=1,udp,actions=output:2"]);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    until_in_the_hook(&rig, "h1", "flow_forwarded");
    rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
    flow.wait_for(4_000, PATIENCE).unwrap();
    let mut last = flow.received();
    eventually("its time is over", PATIENCE, || {
        std::thread::sleep(Duration::from_millis(500));
        let before = std::mem::replace(&mut last, flow.received());
        if last == before { Ok(()) } else { Err(format!("{} more", last - before)) }
    })
    .unwrap();
    // The next daemon starts without rules, and takes over the ports.
    let configuration = configuration(&rig);
    rig.start(&configuration);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(flow.received(), last);
    ofctl(&rig, &["add-flow", "priority=5,in_port=1,udp,actions=output:2"]);
    until_in_the_hook(&rig, "h1", "flow_forwarded");
}

/// In the hook, flows with the action `NORMAL` are forwarded according to the bridge's MAC table. Frames from new
/// addresses and frames to unknown addresses are processed by workers.
#[test]
fn known_stations_are_answered_for_flows_by_normal() {
    require!("ip", "ping", "ethtool", "ovs-ofctl");
    let rig = start(3);
    ofctl(&rig, &["add-flow", "cookie=0x7,priority=5,udp,actions=NORMAL"]);
    ofctl(&rig, &["add-flow", "priority=1,arp,actions=NORMAL"]);
    ofctl(&rig, &["add-flow", "priority=1,icmp,actions=NORMAL"]);
    let ping = || {
        for (from, to) in [(0, 1), (2, 0)] {
            rig.hosts[from].run(["ping", "-c", "2", "-i", "0.2", "-W", "2", rig.hosts[to].ip()]).unwrap();
        }
    };
    ping();
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 3_000).unwrap();
    until_in_the_hook(&rig, "h1", "flow_forwarded");
    let (from, to) = (rig.hosts[0].mac().unwrap(), rig.hosts[1].mac().unwrap());
    let frame = format!("eth_src={from},eth_dst={to},ip_src=10.8.0.1,ip_dst=10.8.0.2,udp");
    let explained = rig.ok(&["explain", "--in", "h1", &frame]);
    assert!(explained.contains("a hot flow, answered here: straight to the device of h2"), "{explained}");
    // The receiver's address is flushed. Workers flood until it is learned again.
    let stranger = || rig.port("h3")["counters"]["tx_packets"].as_u64().unwrap();
    for _ in 0..3 {
        let (steered, flooded) = (hook(&rig, "h1", "steered"), stranger());
        rig.ok(&["flush", "--mac", &to]);
        eventually("workers see it, and flood", PATIENCE, || {
            let (up, copies) = (hook(&rig, "h1", "steered") - steered, stranger() - flooded);
            if up > 50 && copies > 50 { Ok(()) } else { Err(format!("{up} went up, {copies} copies")) }
        })
        .unwrap();
        ping();
        until_in_the_hook(&rig, "h1", "flow_forwarded");
    }
    // Packets to a known address are not flooded, and the successor of an upgrade knows the address, too.
    let before = stranger();
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    flow.wait_for(300, PATIENCE).unwrap();
    until_in_the_hook(&rig, "h1", "flow_forwarded");
    assert!(stranger() < before + 50, "{} copies", stranger() - before);
    let sent = nothing_lost(flow);
    eventually("all are counted", PATIENCE, || match counted(&rig, "cookie=0x7/-1") {
        rules if rules == sent => Ok(()),
        rules => Err(format!("{sent} sent, {rules} by the rule")),
    })
    .unwrap();
}

/// After a MAC address has moved, neither hook nor worker sends packets to its old port.
#[test]
fn a_station_that_moves_is_followed_from_the_hook() {
    require!("ip", "ping", "ethtool", "ovs-ofctl");
    let rig = start(3);
    ofctl(&rig, &["add-flow", "actions=NORMAL"]);
    rig.hosts[0].run(["ping", "-c", "2", "-i", "0.2", "-W", "2", rig.hosts[1].ip()]).unwrap();
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    until_in_the_hook(&rig, "h1", "flow_forwarded");
    // The third host takes the address of the second one. All packets after its first one are sent to it.
    let to = rig.hosts[1].mac().unwrap();
    rig.hosts[1].run(["ip", "link", "set", "eth0", "down"]).unwrap();
    rig.hosts[2].run(["ip", "link", "set", "eth0", "down"]).unwrap();
    rig.hosts[2].run(["ip", "link", "set", "eth0", "address", &to]).unwrap();
    rig.hosts[2].run(["ip", "link", "set", "eth0", "up"]).unwrap();
    let arrived = || rig.port("h3")["counters"]["tx_packets"].as_u64().unwrap();
    let other = || rig.port("h2")["counters"]["tx_packets"].as_u64().unwrap();
    eventually("the third hears them", PATIENCE, || {
        let _ = rig.hosts[2].run(["ping", "-c", "1", "-W", "1", rig.hosts[0].ip()]);
        let (before, gone) = (arrived(), other());
        std::thread::sleep(Duration::from_millis(300));
        let (more, still) = (arrived() - before, other() - gone);
        if more > 300 && still == 0 { Ok(()) } else { Err(format!("{more} there, {still} where it was")) }
    })
    .unwrap();
    until_in_the_hook(&rig, "h1", "flow_forwarded");
    flow.stop().unwrap();
}
