//! Tests groups, meters and bundles with the stock `ovs-ofctl`.

use super::*;

#[test]
fn bundles_groups_and_meters_work_from_the_stock_client() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let rig = start("fail_mode = \"secure\"\n");
    ofctl(&rig, &["add-group", "group_id=5,type=all,bucket=output:2,bucket=output:3"]);
    ofctl(&rig, &["add-meter", "meter=3,pktps,band=type=drop,rate=100000"]);
    let file = rig.write("flows.txt", "priority=5,in_port=1 actions=group:5\npriority=5,in_port=2 actions=output:1\npriority=5,in_port=3 actions=meter:3,output:1\n");
    let added = ofctl_with(&rig, &["-O", "OpenFlow14", "--bundle"], &["add-flows", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&added.stderr).into_owned();
    assert!(added.status.success(), "{said}");
    assert!(reaches(&rig, 1, 2), "by the group");
    assert!(reaches(&rig, 1, 3) && reaches(&rig, 3, 1), "by the meter back");
    let groups = ofctl(&rig, &["dump-group-stats"]);
    assert!(groups.contains("group_id=5"), "{groups}");
    // One invalid line, and no part of the bundle is applied.
    let bad =
        rig.write("bad.txt", "priority=9,in_port=1 actions=drop\npriority=9,in_port=2 actions=group:99\n");
    let refused = ofctl_with(&rig, &["-O", "OpenFlow14", "--bundle"], &["add-flows", bad.to_str().unwrap()]);
    assert!(!refused.status.success());
    assert!(!ofctl(&rig, &["dump-flows"]).contains("priority=9"));
    assert!(reaches(&rig, 1, 2));
    // A packet-out to a missing group is refused, like a rule with this group. Packet-outs to an existing group and to
    // the flow tables are accepted.
    let out = |actions: &str| {
        let packet =
            format!("in_port=controller packet={} actions={actions}", "ffffffffffff02000000000188b5");
        let output = ofctl_with(&rig, &["-O", "OpenFlow13"], &["packet-out", &packet]);
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(out("group:99").contains("OFPBAC_BAD_OUT_GROUP"), "{}", out("group:99"));
    assert_eq!((out("group:5"), out("table")), (String::new(), String::new()));
}

/// A packet-out in a bundle is processed with the changes that precede it in the bundle, and is sent when the bundle is
/// committed, as in Open vSwitch. A group that does not fit into an OpenFlow message is refused.
#[test]
fn packets_in_bundles_and_groups_that_are_too_large() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let rig = start("fail_mode = \"secure\"\n");
    let bridge = format!("unix:{}", rig.path("br0.mgmt").display());
    let mut monitor = Command::new("ovs-ofctl");
    monitor.env("OVS_RUNDIR", rig.path("")).args(["-O", "OpenFlow14", "monitor", &bridge, "65534"]);
    monitor.stdin(std::process::Stdio::null());
    let watch = Process::start(monitor).unwrap();
    let packet = |last: u8| {
        format!("packet-out in_port=2, packet=0001020304050010203040501234{last:02x} actions=table\n")
    };
    let (one, two, three) = (packet(1), packet(2), packet(3));
    let bundle = |name: &str, text: String| {
        let file = rig.write(name, &text);
        ofctl_with(&rig, &["-O", "OpenFlow14"], &["bundle", file.to_str().unwrap()])
    };
    let group = "group group_id=1,type=all,bucket=output:controller\nflow in_port=2 actions=group:1\n";
    eventually("the monitor listens", PATIENCE, || {
        let done = bundle("first", format!("{group}{one}group delete\n"));
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let seen = watch.output();
        if seen.contains("PACKET_IN") { Ok(()) } else { Err(seen) }
    })
    .unwrap();
    assert!(!ofctl(&rig, &["dump-flows"]).contains("group:1"), "the bundle has taken it away again");
    let refused = bundle("second", format!("{group}{two}flow in_port=3 actions=group:2\n"));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("OFPBAC_BAD_OUT_GROUP") && said.contains("OFPBFC_MSG_FAILED"), "{said}");
    let before = watch.output().matches("PACKET_IN").count();
    assert!(bundle("third", format!("{group}{three}{three}group delete\n")).status.success());
    eventually("both of the third", PATIENCE, || {
        match watch.output().matches("PACKET_IN").count() - before {
            2 => Ok(()),
            other => Err(other.to_string()),
        }
    })
    .unwrap();
    assert!(!watch.output().contains("123402"), "none of the second");
    let buckets = |count: usize| format!("group_id=9,type=select{}", ",bucket=output:2".repeat(count));
    let file = rig.write("group", &(buckets(2600) + "\n"));
    // The buckets fit into a message of OpenFlow 1.0.
    let large = ofctl_with(&rig, &["-O", "OpenFlow10"], &["add-groups", file.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&large.stderr).contains("OFPGMFC_OUT_OF_BUCKETS"), "{large:?}");
    let file = rig.write("group", &(buckets(1500) + "\n"));
    ofctl(&rig, &["add-groups", file.to_str().unwrap()]);
    for version in ["OpenFlow10", "OpenFlow13", "OpenFlow15"] {
        let groups = ofctl_with(&rig, &["-O", version], &["dump-groups"]);
        let groups = String::from_utf8_lossy(&groups.stdout).into_owned();
        assert_eq!(groups.matches("actions=output").count(), 1500, "{version}");
    }
}

/// Packets use the second bucket while the link of the first bucket's port is down, and the first bucket again when the
/// link is up.
#[test]
fn fast_failover_goes_by_the_links_of_ports() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let rig = start("fail_mode = \"secure\"\n");
    let buckets = "bucket=watch_port:2,output:2,bucket=watch_port:3,output:3";
    ofctl(&rig, &["add-group", &format!("group_id=5,type=ff,{buckets}")]);
    ofctl(&rig, &["add-flow", "priority=5,in_port=1,udp,actions=group:5"]);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 1_000).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    let sent = |port: &str| rig.port(port)["counters"]["tx_packets"].as_u64().unwrap();
    for _ in 0..2 {
        rig.lab.hub().run(["ip", "link", "set", "dev", "h2", "down"]).unwrap();
        rig.port_until("h2", "without a link", |port| port["link_up"] == false);
        eventually("packets take the other way", PATIENCE, || {
            let before = sent("h3");
            flow.wait_until_sent(200, PATIENCE).map_err(|error| error.to_string())?;
            let more = sent("h3") - before;
            if more >= 100 { Ok(()) } else { Err(format!("{more} by h3")) }
        })
        .unwrap();
        let shown = ofctl(&rig, &["dump-ports-desc"]);
        let port = shown.split(" 2(h2)").nth(1).unwrap_or_else(|| panic!("{shown}"));
        assert!(port.split(" 3(h3)").next().unwrap().contains("LINK_DOWN"), "{shown}");
        rig.lab.hub().run(["ip", "link", "set", "dev", "h2", "up"]).unwrap();
        rig.pin_neighbours();
        flow.wait_for(200, PATIENCE).unwrap();
        eventually("packets take the first way alone", PATIENCE, || {
            let before = sent("h3");
            flow.wait_for(200, PATIENCE).map_err(|error| error.to_string())?;
            let more = sent("h3") - before;
            if more == 0 { Ok(()) } else { Err(format!("{more} by h3")) }
        })
        .unwrap();
    }
    let report = flow.stop().unwrap();
    assert_eq!((report.overtaken, report.doubled), (0, 0), "{report:?}");
}

/// A bundle of thousands of rules is applied atomically while traffic matches the rules that the bundle replaces.
#[test]
fn a_large_bundle_is_done_whole_or_not_at_all_under_traffic() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let rig = start("fail_mode = \"secure\"\n");
    let rules = |table: u8, way: &str, last: &str| -> String {
        let many = (0..5_000_u32).map(|number| {
            let [_, _, high, low] = number.to_be_bytes();
            format!("table=9,priority={table},ip,nw_dst=10.9.{high}.{low},actions=output:3\n")
        });
        let first = format!("priority=5,in_port=1,actions=resubmit(,{table})\ntable={table},actions={way}\n");
        first + &many.collect::<String>() + last
    };
    let count = || {
        let flows = ofctl(&rig, &["dump-flows"]);
        flows.lines().filter(|line| line.contains("cookie=")).count()
    };
    let bundle = |command: &str, text: &str| {
        let file = rig.write("bundle.txt", text);
        ofctl_with(&rig, &["-O", "OpenFlow14", "--bundle"], &[command, file.to_str().unwrap()])
    };
    assert!(bundle("add-flows", &rules(1, "output:2", "")).status.success());
    assert_eq!(count(), 5_002);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    // The bundle would stop the flow, but its last rule is invalid.
    let refused = bundle("add-flows", &rules(2, "drop", "priority=1,actions=group:77\n"));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("OFPBAC_BAD_OUT_GROUP"), "{said}");
    assert_eq!(count(), 5_002);
    flow.wait_for(500, PATIENCE).unwrap();
    // All rules are replaced by others to an unchanged port. Each packet meets either the old or the new
    // rules.
    for table in [3, 4] {
        let replaced = bundle("replace-flows", &rules(table, "output:2", ""));
        let said = String::from_utf8_lossy(&replaced.stderr).into_owned();
        assert!(replaced.status.success(), "{said}");
        assert_eq!(count(), 5_002);
        assert!(ofctl(&rig, &["dump-flows", "in_port=1"]).contains(&format!("resubmit(,{table})")));
    }
    flow.wait_for(500, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
}

/// A bundle whose changes examine too many rules in total is refused before any change. A bundle that names
/// the cookies of its rules is applied, however many rules there are.
#[test]
fn a_bundle_that_is_too_much_work_is_refused_soon() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let rig = start("fail_mode = \"secure\"\n");
    let bundle = |text: &str| {
        let file = rig.write("bundle.txt", text);
        ofctl_with(&rig, &["-O", "OpenFlow14", "--bundle"], &["add-flows", file.to_str().unwrap()])
    };
    let rules: String = (0..20_000_u32)
        .map(|number| {
            let [_, _, high, low] = number.to_be_bytes();
            format!("cookie={},table=9,ip,nw_dst=10.9.{high}.{low},actions=output:3\n", 2 * number)
        })
        .collect();
    assert!(bundle(&rules).status.success());
    let rules = || ofctl(&rig, &["dump-aggregate", "table=9"]);
    assert!(rules().contains("flow_count=20000"), "{}", rules());
    // No rule has this cookie. The changes would examine 400 million rules.
    let refused = bundle(&"delete cookie=0x1/0x1,table=9\n".repeat(20_000));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{said}");
    assert!(said.contains("OFPBFC_MSG_TOO_MANY") && said.contains("OFPBFC_MSG_FAILED"), "{said}");
    assert!(rules().contains("flow_count=20000"), "{}", rules());
    let gone: String = (0..20_000).map(|number| format!("delete cookie={number}/-1,table=9\n")).collect();
    let made = bundle(&gone);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(rules().contains("flow_count=10000"), "{}", rules());
}
