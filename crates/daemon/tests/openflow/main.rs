//! Tests OpenFlow bridges with the real binary. The stock `ovs-ofctl` adds, changes and removes rules under traffic,
//! and packets are forwarded according to the current rules.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod groups_and_bundles;
mod hostile_sessions;
#[path = "../rig/mod.rs"]
mod rig;

use std::process::{Command, Output};

use rig::{PATIENCE, Rig};
use testbed::{Process, UdpFlow, eventually, require};

/// Starts three hosts on a bridge with OpenFlow rules and without VLANs. Untagged packets stay untagged.
fn start(settings: &str) -> Rig {
    start_with("", settings)
}

/// Like [`start`], with additional settings of each port in `ports`.
fn start_with(ports: &str, settings: &str) -> Rig {
    let mut rig = Rig::new(3);
    let text = rig.configuration(ports) + "[bridge.br0.openflow]\n" + settings;
    rig.start(&text);
    rig.pin_neighbours();
    rig
}

fn ofctl_with(rig: &Rig, options: &[&str], arguments: &[&str]) -> Output {
    let bridge = format!("unix:{}", rig.path("br0.mgmt").display());
    let (command, rest) = arguments.split_first().unwrap();
    Command::new("ovs-ofctl").args(options).arg(command).arg(bridge).args(rest).output().unwrap()
}

/// Runs `ovs-ofctl COMMAND BRIDGE ARGUMENTS`, which must succeed.
fn ofctl(rig: &Rig, arguments: &[&str]) -> String {
    let output = ofctl_with(rig, &["-O", "OpenFlow13"], arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn reaches(rig: &Rig, from: usize, to: usize) -> bool {
    rig.hosts[from - 1].reaches(&rig.hosts[to - 1])
}

#[test]
fn packets_go_by_rules_and_rules_change_under_them() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let rig = start("");
    // Without a controller, the bridge learns by a rule with NORMAL.
    rig.until_reachable(1, 2);
    let flows = ofctl(&rig, &["dump-flows"]);
    assert!(flows.contains("priority=0 actions=NORMAL"), "{flows}");
    let shown = ofctl(&rig, &["show"]);
    for port in ["1(h1)", "2(h2)", "3(h3)"] {
        assert!(shown.contains(port), "{shown}");
    }
    // The kernel's properties of veth, as Open vSwitch shows them.
    assert!(shown.contains("n_tables:254") && shown.contains("QUEUE_STATS"), "{shown}");
    let ports = ofctl(&rig, &["dump-ports-desc"]);
    assert!(ports.contains("current:    10GB-FD") && ports.contains("speed: 10000 Mbps now"), "{ports}");
    // Rules for one path only.
    ofctl(&rig, &["del-flows"]);
    eventually("no rule, no way", PATIENCE, || if reaches(&rig, 1, 2) { Err(String::new()) } else { Ok(()) })
        .unwrap();
    for (from, to) in [(1, 2), (2, 1)] {
        ofctl(&rig, &["add-flow", &format!("priority=10,in_port={from},actions=output:{to}")]);
    }
    assert!(reaches(&rig, 1, 2), "the answer to a change means that packets meet it");
    assert!(!reaches(&rig, 1, 3) && !reaches(&rig, 3, 2));
    // Every packet is counted once.
    let count = |what: &str| -> u64 {
        let flows = ofctl(&rig, &["dump-flows", what]);
        let counts =
            flows.split("n_packets=").skip(1).filter_map(|part| part.split(',').next()?.parse::<u64>().ok());
        counts.sum()
    };
    let before = count("in_port=1");
    let report = rig.hosts[0].ping(rig.hosts[1].ip(), 5).unwrap();
    assert_eq!(report.loss(), 0.0);
    eventually("five more counted", PATIENCE, || match count("in_port=1") - before {
        5 => Ok(()),
        other => Err(other.to_string()),
    })
    .unwrap();
    // A rule of higher priority drops ICMP until the rule is removed.
    ofctl(&rig, &["add-flow", "priority=20,icmp,in_port=1,actions=drop"]);
    assert!(!reaches(&rig, 1, 2));
    ofctl(&rig, &["del-flows", "icmp"]);
    assert!(reaches(&rig, 1, 2));
    // An invalid message is refused with its error name, and is not partially applied.
    let refused = ofctl_with(&rig, &["-O", "OpenFlow13"], &["add-flow", "priority=1,actions=group:77"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("OFPBAC_BAD_OUT_GROUP"));
    let explained =
        rig.ok(&["explain", "--in", "h1", "eth_dst=ff:ff:ff:ff:ff:ff,ip_src=10.8.0.1,ip_dst=10.8.0.2,udp"]);
    assert!(explained.contains("table 0: the rule of priority 10"), "{explained}");
}

/// Any local user can connect to a listener on a loopback address. Only root and the users named in the configuration
/// may change rules through it. `doctor` reports a listener that is open to all users.
#[test]
fn a_passive_listener_is_for_root_and_named_users() {
    require!("ip", "ping", "ethtool", "sysctl", "bash", "setpriv");
    let mut rig =
        start("controllers = [\"ptcp:6653\", { target = \"ptcp:6654\", passive_users = [\"*\"] }]\n");
    let greeted = |user: u32, port: u16| {
        let text = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && head -c 8 <&3 | wc -c");
        let user = format!("--reuid={user}");
        let mut shell = rig.lab.hub().command(["setpriv", &user, "--clear-groups", "bash", "-c", &text]);
        let output = shell.output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim() == "8"
    };
    eventually("it listens", PATIENCE, || if greeted(0, 6653) { Ok(()) } else { Err(String::new()) })
        .unwrap();
    assert!(!greeted(65534, 6653), "another user");
    assert!(greeted(65534, 6654) && greeted(0, 6654));
    let findings = String::from_utf8_lossy(&rig.trivium(&["doctor"]).stdout).into_owned();
    let named = |port: &str| {
        findings.contains(&format!("ptcp:{port}:127.0.0.1: every user of this machine may change the rules"))
    };
    assert!(named("6654") && !named("6653"), "{findings}");
    rig.daemon().wait_for_line("a process of user 65534", PATIENCE).unwrap();
}

#[test]
fn no_packet_of_a_known_flow_is_lost_while_rules_change() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let rig = start("fail_mode = \"secure\"\n");
    ofctl(&rig, &["add-flow", "priority=1,in_port=1,actions=resubmit(,1)"]);
    ofctl(&rig, &["add-flow", "table=1,priority=1,actions=output:2"]);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 5_000).unwrap();
    flow.wait_for(500, PATIENCE).unwrap();
    for round in 0..20 {
        // The flow's packets get equal actions from another table, and other packets get new rules.
        let table = 2 + round;
        ofctl(&rig, &["add-flow", &format!("table={table},priority=1,actions=output:2")]);
        ofctl(&rig, &["mod-flows", &format!("in_port=1,actions=resubmit(,{table})")]);
        ofctl(&rig, &["add-flow", &format!("priority=9,ip,nw_dst=10.9.{round}.0/24,actions=drop")]);
    }
    flow.wait_for(500, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!(report.lost(), 0, "{report:?}");
}

#[test]
fn an_upgrade_keeps_rules_counts_and_packets() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let rig = start_with("ring_size = 8192", "fail_mode = \"secure\"\n");
    ofctl(&rig, &["add-group", "group_id=5,type=all,bucket=output:2"]);
    ofctl(&rig, &["add-flow", "cookie=0x77,priority=7,in_port=1,udp,actions=group:5"]);
    ofctl(&rig, &["add-flow", "table=9,priority=1,ip,nw_dst=10.9.9.0/24,actions=output:3"]);
    // Settings of a port persist, too.
    ofctl(&rig, &["mod-port", "3", "no-forward"]);
    // 100,000 packets per second need an optimised build on a machine without other load (`make soak`).
    let rate = if std::env::var_os("TRIVIUM_SOAK").is_some() { 100_000 } else { 10_000 };
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], rate).unwrap();
    flow.wait_for(rate / 10, PATIENCE).unwrap();
    let pid = |rig: &Rig| rig.ok(&["show", "config", "--json"]).len();
    let before = pid(&rig);
    for _ in 0..2 {
        rig.ok(&["upgrade", "--binary", rig::TRIVIUM]);
        flow.wait_for(rate / 4, PATIENCE).unwrap();
    }
    assert_eq!(pid(&rig), before);
    let report = flow.stop().unwrap();
    assert_eq!(report.lost(), 0, "{report:?}\n{}", rig.ok(&["show", "ports", "--json"]));
    let sent = report.received;
    // The successor has the socket and the tables of the predecessor, including counters.
    eventually("all counted", PATIENCE, || {
        let flows = ofctl(&rig, &["dump-flows"]);
        let line = flows.lines().find(|line| line.contains("cookie=0x77")).unwrap_or_default();
        let counted =
            line.split("n_packets=").nth(1).and_then(|rest| rest.split(',').next()?.parse::<u64>().ok());
        let is_whole = line.contains("group:5") && flows.contains("nw_dst=10.9.9.0/24");
        if is_whole && counted == Some(sent) { Ok(()) } else { Err(format!("{sent} sent: {flows}")) }
    })
    .unwrap();
    assert!(ofctl(&rig, &["dump-ports-desc"]).contains("NO_FWD"));
}

#[test]
fn a_port_that_changes_its_bridge_goes_by_the_new_rules() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let rig = start("");
    rig.until_reachable(1, 2);
    let home = rig.configuration("") + "[bridge.br0.openflow]\n";
    let away = home.replace("[bridge.br0.port.h2]", "[bridge.br1.openflow]\n[bridge.br1.port.h2]");
    // Traffic continues, so that packets reach the slow path as soon as it serves the new bridge.
    let flow = UdpFlow::start(&rig.hosts[1], &rig.hosts[0], 2_000).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    for _ in 0..2 {
        let file = rig.write("away.toml", &away);
        rig.ok(&["apply", file.to_str().unwrap()]);
        assert!(!reaches(&rig, 1, 2) && !reaches(&rig, 2, 1), "nothing of the old bridge serves it");
        let file = rig.write("home.toml", &home);
        rig.ok(&["apply", file.to_str().unwrap()]);
        rig.until_reachable(1, 2);
    }
    drop(flow.stop());
    // The rule of standalone mode is removed with that mode, and is restored with it.
    let secure = rig.write("secure.toml", &(home.clone() + "fail_mode = \"secure\"\n"));
    rig.ok(&["apply", secure.to_str().unwrap()]);
    assert!(!reaches(&rig, 1, 2));
    let file = rig.write("home.toml", &home);
    rig.ok(&["apply", file.to_str().unwrap()]);
    rig.until_reachable(1, 2);
}

#[test]
fn a_port_that_goes_while_rules_send_there_leaves_the_others_theirs() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let rig = start("fail_mode = \"secure\"\n");
    for rule in
        ["in_port=1,actions=output:2,output:3", "in_port=2,actions=output:1", "in_port=3,actions=output:1"]
    {
        ofctl(&rig, &["add-flow", rule]);
    }
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[2], 2_000).unwrap();
    flow.wait_for(500, PATIENCE).unwrap();
    assert!(reaches(&rig, 1, 2));
    let home = rig.configuration("") + "[bridge.br0.openflow]\nfail_mode = \"secure\"\n";
    let away = home.replace("[bridge.br0.port.h2]\naccess = 10\n", "");
    assert_ne!(home, away);
    let file = rig.write("away.toml", &away);
    rig.ok(&["apply", file.to_str().unwrap()]);
    flow.wait_for(500, PATIENCE).unwrap();
    assert!(reaches(&rig, 1, 3) && !reaches(&rig, 1, 2));
    assert!(
        ofctl(&rig, &["dump-flows"]).contains("actions=output:2,output:3"),
        "the rule waits for the port"
    );
    let file = rig.write("home.toml", &home);
    rig.ok(&["apply", file.to_str().unwrap()]);
    rig.until_reachable(1, 2);
    flow.wait_for(500, PATIENCE).unwrap();
    drop(flow.stop());
}

#[test]
fn a_port_or_bridge_that_goes_leaves_flows_of_other_bridges_alone() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let mut rig = Rig::new(4);
    let secure = "fail_mode = \"secure\"\n";
    let home = rig.configuration("").replace("[bridge.br0.port.h3]", "[bridge.br1.port.h3]");
    let home = home.replace("[bridge.br0.port.h4]", "[bridge.br1.port.h4]")
        + &format!(
            "[bridge.br1]\nhook = false\n[bridge.br0.openflow]\n{secure}[bridge.br1.openflow]\n{secure}"
        );
    rig.start(&home);
    rig.pin_neighbours();
    let other = format!("unix:{}", rig.path("br1.mgmt").display());
    let rule = ["-O", "OpenFlow13", "add-flow", &other, "in_port=h3,actions=output:h4"];
    assert!(Command::new("ovs-ofctl").args(rule).status().unwrap().success());
    ofctl(&rig, &["add-flow", "actions=NORMAL"]);
    let flow = UdpFlow::start(&rig.hosts[2], &rig.hosts[3], 2_000).unwrap();
    flow.wait_for(500, PATIENCE).unwrap();
    // Packets of the flow's own megaflow. A megaflow that was replaced would count from 0.
    let counted = || -> u64 {
        let all = rig.ok(&["show", "megaflows", "br1", "--json"]);
        let all: Vec<serde_json::Value> = serde_json::from_str(&all).unwrap();
        let there = all.iter().filter(|flow| flow["actions"] == "h4");
        there.map(|flow| flow["packets"].as_u64().unwrap()).sum()
    };
    let whole = home.replace("[bridge.br0.port.h2]\naccess = 10\n", "");
    assert_ne!(home, whole);
    let gone = rig.configuration_with("", &[0, 0, 10, 10]).replace("[bridge.br0]\n", "");
    let gone = gone.replace("bridge.br0", "bridge.br1")
        + "[bridge.br1]\nhook = false\n[bridge.br1.openflow]\n"
        + secure;
    for text in [&whole, &home, &gone, &home] {
        let before = counted();
        let file = rig.write("other.toml", text);
        rig.ok(&["apply", file.to_str().unwrap()]);
        let after = counted();
        assert!(before >= 400 && after >= before, "{before}, {after}");
        flow.wait_for(200, PATIENCE).unwrap();
    }
    let report = flow.stop().unwrap();
    assert_eq!(report.lost(), 0, "{report:?}");
}

/// A port that is configured with `flood = false` receives no flooded packets, whatever settings a controller changes
/// on the port.
#[test]
fn a_port_that_is_configured_to_take_no_floods_takes_none_whatever_else_is_changed() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let mut rig = Rig::new(3);
    let member = format!("[bridge.br0.port.{}]\n", rig.hosts[2].device());
    let text = rig.configuration("").replace(&member, &format!("{member}flood = false\n"));
    rig.start(&(text + "[bridge.br0.openflow]\nfail_mode = \"secure\"\n"));
    rig.pin_neighbours();
    ofctl(&rig, &["add-flow", "actions=FLOOD"]);
    rig.until_reachable(1, 2);
    assert!(!reaches(&rig, 1, 3));
    for change in ["no-packet-in", "packet-in", "no-flood", "flood"] {
        ofctl(&rig, &["mod-port", "3", change]);
        assert!(!reaches(&rig, 1, 3), "{change}");
    }
    assert!(reaches(&rig, 1, 2));
}

/// A rule that was added with `check_overlap` survives an upgrade, even if an overlapping rule was added
/// later.
#[test]
fn rules_that_were_checked_for_overlaps_stay_through_an_upgrade() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let rig = start("fail_mode = \"secure\"\n");
    let checked = "check_overlap,priority=5,ip,nw_dst=10.1.0.0/16,actions=output:";
    ofctl(&rig, &["add-flow", &format!("{checked}1")]);
    ofctl(&rig, &["add-flow", "priority=5,ip,nw_src=10.2.0.0/16,actions=output:2"]);
    // A replacement is not checked for overlaps. The rule is now newer than the other one.
    ofctl(&rig, &["add-flow", &format!("{checked}3")]);
    let rules = || -> Vec<String> {
        let flows = ofctl(&rig, &["dump-flows", "--no-stats"]);
        let mut rules: Vec<String> = flows.lines().map(|line| line.trim().to_owned()).collect();
        rules.sort_unstable();
        rules
    };
    let before = rules();
    assert!(before.len() >= 2 && before.iter().any(|rule| rule.contains("check_overlap")), "{before:?}");
    rig.ok(&["upgrade", "--binary", rig::TRIVIUM]);
    assert_eq!(rules(), before);
    let other = "check_overlap,priority=5,ip,nw_dst=10.1.1.0/24,actions=output:1";
    let refused = ofctl_with(&rig, &["-O", "OpenFlow13"], &["add-flow", other]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("OFPFMFC_OVERLAP"), "{refused:?}");
}

/// A refused change is reported with the name that the OpenFlow version defines for the error, and does not affect
/// packets.
#[test]
fn what_the_tables_refuse_is_named_and_changes_nothing() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let rig = start("fail_mode = \"secure\"\n[bridge.br0.openflow.table.7]\nlimit = 2\n");
    ofctl(&rig, &["add-flow", "priority=5,in_port=1,actions=output:2"]);
    ofctl(&rig, &["add-flow", "priority=5,in_port=2,actions=output:1"]);
    ofctl(&rig, &["add-group", "group_id=5,type=indirect,bucket=output:2"]);
    ofctl(&rig, &["add-meter", "meter=3,pktps,band=type=drop,rate=1000"]);
    for port in [1, 2] {
        ofctl(&rig, &["add-flow", &format!("table=7,in_port={port},actions=drop")]);
    }
    let before = ofctl(&rig, &["dump-flows"]).lines().count();
    let refusals: [(&[&str], &str); 10] = [
        (&["add-flow", "check_overlap,priority=5,ip,actions=drop"], "OFPFMFC_OVERLAP"),
        (&["add-flow", "table=7,in_port=3,actions=drop"], "OFPFMFC_TABLE_FULL"),
        (&["add-flow", "actions=group:77"], "OFPBAC_BAD_OUT_GROUP"),
        (&["add-flow", "actions=meter:9,output:1"], "OFPMMFC_INVALID_METER"),
        (&["add-group", "group_id=5,type=all,bucket=output:1"], "OFPGMFC_GROUP_EXISTS"),
        (&["mod-group", "group_id=6,type=all,bucket=output:1"], "OFPGMFC_UNKNOWN_GROUP"),
        (&["add-group", "group_id=6,type=all,bucket=group:6"], "OFPGMFC_LOOP"),
        (&["add-meter", "meter=3,pktps,band=type=drop,rate=1"], "OFPMMFC_METER_EXISTS"),
        (&["mod-meter", "meter=4,pktps,band=type=drop,rate=1"], "OFPMMFC_UNKNOWN_METER"),
        (&["mod-port", "77", "down"], ""),
    ];
    for version in ["OpenFlow13", "OpenFlow14", "OpenFlow15"] {
        for (arguments, name) in &refusals {
            let output = ofctl_with(&rig, &["-O", version], arguments);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success(), "{version} {arguments:?} is taken");
            assert!(said.contains(name), "{version} {arguments:?}: {said}");
        }
    }
    assert_eq!(ofctl(&rig, &["dump-flows"]).lines().count(), before);
    assert!(ofctl(&rig, &["dump-groups"]).contains("group_id=5,type=indirect,bucket="));
    assert!(reaches(&rig, 1, 2));
}

/// A learning switch application of os-ken (an OpenFlow controller from PyPI) controls the bridge. Hosts reach each
/// other through the rules that the application adds.
#[test]
fn a_learning_switch_on_os_ken_leads_real_packets() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let python = std::env::var("OSKEN_PYTHON").unwrap_or_else(|_| "python3".into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../openflow/tests/learning.py");
    let there = Command::new(&python).args(["-c", "import os_ken"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        return testbed::skip(&format!("{python} has no os_ken ('make setup' installs it)"));
    }
    for version in ["1.3", "1.5"] {
        let rig = start(
            "fail_mode = \"secure\"\ncontrollers = [{ target = \"tcp:127.0.0.1:6653\", max_backoff_ms = 1000 }]\n",
        );
        rig.lab.hub().run(["ip", "link", "set", "lo", "up"]).unwrap();
        assert!(!reaches(&rig, 1, 2), "a secure bridge without rules forwards nothing");
        let controller = Process::start(rig.lab.hub().command([&python, script, version, "6653"])).unwrap();
        eventually("the controller's rules forward", PATIENCE, || {
            if reaches(&rig, 1, 2) && reaches(&rig, 3, 1) { Ok(()) } else { Err(controller.output()) }
        })
        .unwrap();
        let newest = format!("OpenFlow{}", version.replace('.', ""));
        let shown = || {
            let output = ofctl_with(&rig, &["-O", &newest], &["dump-flows"]);
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let flows = shown();
        for (from, to) in [(1, 2), (2, 1), (3, 1), (1, 3)] {
            let mac = rig.hosts[to - 1].mac().unwrap();
            let rule = flows.lines().find(|line| {
                line.contains(&format!("in_port={from},dl_dst={mac}"))
                    || line.contains(&format!("in_port=h{from},dl_dst={mac}"))
            });
            assert!(rule.is_some_and(|line| line.contains("output:")), "{from} to {to}: {flows}");
        }
        // Known addresses are forwarded by rules alone. No packet is lost, and none is sent to the
        // controller.
        let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
        flow.wait_for(1_000, PATIENCE).unwrap();
        let report = flow.stop().unwrap();
        assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
        let said = controller.output();
        assert!(said.contains("desc Trivium") && !said.contains("error"), "{said}");
    }
}

#[test]
fn tags_and_headers_are_written() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let rig = start("fail_mode = \"secure\"\n");
    // A host is reached by another address, which is rewritten in both directions with valid checksums.
    let mac = rig.hosts[1].mac().unwrap();
    let there = format!(
        "priority=5,in_port=1,ip,nw_dst=10.8.0.77,actions=mod_dl_dst:{mac},mod_nw_dst:{},output:2",
        rig.hosts[1].ip()
    );
    ofctl(&rig, &["add-flow", &there]);
    ofctl(&rig, &["add-flow", "priority=5,in_port=2,ip,actions=mod_nw_src:10.8.0.77,output:1"]);
    rig.hosts[0]
        .run(["ip", "neighbour", "replace", "10.8.0.77", "lladdr", "02:00:00:00:00:77", "dev", "eth0"])
        .unwrap();
    eventually("the other address answers", PATIENCE, || {
        let report = rig.hosts[0].ping("10.8.0.77", 1).unwrap();
        if report.loss() == 0.0 { Ok(()) } else { Err(String::new()) }
    })
    .unwrap();
}

#[test]
fn there_are_no_queues_but_the_default_ones() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let rig = start("fail_mode = \"secure\"\n");
    for version in ["OpenFlow10", "OpenFlow13", "OpenFlow14", "OpenFlow15"] {
        let ask = |arguments: &[&str]| ofctl_with(&rig, &["-O", version], arguments);
        for list in [&["queue-stats"][..], &["queue-stats", "1"], &["queue-get-config", "1"]] {
            let output = ask(list);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{version} {list:?}: {error}");
            assert!(!said.contains("queue 0") && !said.contains("bytes="), "{version} {list:?}: {said}");
        }
        for unknown in [&["queue-stats", "1", "7"], &["queue-stats", "ALL", "7"]] {
            let output = ask(unknown);
            let said = format!("{output:?}");
            assert!(said.contains("OFPQOFC_BAD_QUEUE"), "{version} {unknown:?}: {said}");
        }
        let output = ask(&["queue-stats", "9"]);
        assert!(format!("{output:?}").contains("OFPQOFC_BAD_PORT"), "{version}: {output:?}");
    }
    // A queue that a port does not have is accepted, as in Open vSwitch, and means the port's only queue.
    ofctl(&rig, &["add-flow", "in_port=1,actions=set_queue:5,output:2"]);
    ofctl(&rig, &["add-flow", "in_port=2,actions=enqueue:1:9"]);
    rig.until_reachable(1, 2);
}
