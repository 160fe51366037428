//! Compares the answers of the daemon and of a real `ovs-vswitchd` to `ovs-appctl`, in the parts that scripts parse.

use std::process::Command;

use testbed::{eventually, require};

use super::Switch;
use super::reference::Reference;
use super::rig::PATIENCE;

/// Commands whose answers, including errors, must be identical to the answers of Open vSwitch. The test runs the
/// commands in this order.
const SAME: [&str; 74] = [
    "vlog/set foo",
    "vlog/set ofproto_dpif:foo",
    "vlog/set ANY:file:loud",
    "vlog/set FACILITY:local9",
    "vlog/set PATTERN:x:y",
    "vlog/set PATTERN:",
    "vlog/set info:dbg",
    "vlog/set ANY:ANY:info",
    "vlog/set syslog:err console:off vconn:file:dbg",
    "vlog/list",
    "vlog/list-pattern",
    "vlog/reopen a",
    "vlog/disable-rate-limit foo",
    "vlog/disable-rate-limit",
    "vlog/enable-rate-limit vconn ANY",
    "coverage/read-counter nope",
    "bridge/dump-flows",
    "bridge/dump-flows x",
    "bridge/reconnect",
    "bridge/reconnect br0",
    "bridge/reconnect x",
    "ofproto/list",
    "ofproto/list-tunnels",
    "qos/show-types h1",
    "qos/show h1",
    "qos/show nope",
    "qos/show-types nope",
    "cfm/show",
    "cfm/show h1",
    "cfm/set-fault h1 true",
    "cfm/set-fault normal",
    "bfd/show",
    "bfd/show h1",
    "bfd/set-forwarding h1 true",
    "bfd/set-forwarding normal",
    "stp/show",
    "stp/show br0",
    "stp/tcn",
    "stp/tcn br0",
    "rstp/show",
    "rstp/show br0",
    "rstp/tcn",
    "rstp/tcn br0",
    "bond/list",
    "bond/show",
    "bond/show x",
    "bond/migrate b 1 p",
    "lacp/show",
    "lacp/show x",
    "lacp/show-stats",
    "autoattach/status",
    "autoattach/status br0",
    "tnl/ports/show",
    "tnl/neigh/show",
    "fdb/stats-show x",
    "fdb/stats-show",
    "fdb/flush",
    "fdb/stats-clear",
    "fdb/stats-clear br0",
    "fdb/stats-clear x",
    "fdb/add br0 nope 0 50:00:00:00:00:06",
    "fdb/add x h1 0 50:00:00:00:00:06",
    "fdb/add br0 h1 0 zz",
    "fdb/add br0 h1 5 50:00:00:00:00:05",
    "fdb/add br0 h2 0 50:00:00:00:00:06",
    "fdb/del br0 5 50:00:00:00:00:05",
    "fdb/del br0 5 50:00:00:00:00:05",
    "fdb/del x 5 50:00:00:00:00:05",
    "fdb/flush br0",
    "mdb/show br0",
    "mdb/show x",
    "mdb/flush",
    "upcall/disable-ufid",
    "revalidator/purge",
];

#[test]
fn what_scripts_parse_is_open_vswitchs() {
    require!("ovs-vsctl", "ovsdb-server", "ovs-appctl", "ovs-vswitchd", "ovs-ofctl");
    let switch = Switch::start(2);
    switch.build();
    let reference = Reference::start(&switch.rig, &["h1", "h2"]);
    // Only the first line is compared, because `ovs-appctl` appends the name of the socket.
    let said = |answer: Result<String, String>| {
        answer.map_err(|error| error.lines().next().unwrap_or_default().to_owned())
    };
    let mut differ = Vec::new();
    for line in SAME {
        let arguments: Vec<&str> = line.split(' ').collect();
        let (theirs, ours) = (said(reference.appctl(&arguments)), said(switch.appctl(&arguments)));
        if theirs != ours {
            differ.push(format!("{line}:\n  Open vSwitch: {theirs:?}\n  ours: {ours:?}\n"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.concat());
    // Static entries and counters are compared. Learned addresses differ.
    let fixed = |text: String| {
        text.lines()
            .filter(|line| line.contains("static") && !line.contains("Current"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let show = ["fdb/show", "br0"];
    assert_eq!(fixed(reference.appctl(&show).unwrap()), fixed(switch.appctl(&show).unwrap()));
    let statistics = ["fdb/stats-show", "br0"];
    let names = |text: String| {
        text.lines().map(|line| line.split(':').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (theirs, ours) = (reference.appctl(&statistics).unwrap(), switch.appctl(&statistics).unwrap());
    assert!(ours.contains("table : 1\n"), "{ours}");
    assert_eq!(names(theirs), names(ours));
    // The static entry is used and does not move.
    let known = switch.appctl(&show).unwrap();
    assert!(known.contains("    2     0  50:00:00:00:00:06  static"), "{known}");
}

#[test]
fn counts_and_caches_are_told_in_open_vswitchs_form() {
    require!("ovs-vsctl", "ovsdb-server", "ovs-appctl", "ovs-ofctl");
    let switch = Switch::start(2);
    switch.build();
    switch.rig.until_reachable(1, 2);
    let ask = |line: &str| switch.appctl(&line.split(' ').collect::<Vec<_>>()).unwrap();
    // Rules with their counters, as also printed by `ovs-ofctl`.
    let bridge = format!("unix:{}", switch.rig.path("br0.mgmt").display());
    let rule = "table=1,priority=7,icmp,actions=drop";
    assert!(Command::new("ovs-ofctl").args(["add-flow", &bridge, rule]).status().unwrap().success());
    let flows = ask("bridge/dump-flows br0");
    assert!(flows.contains("priority=0,actions=NORMAL\n"), "{flows}");
    assert!(
        flows.contains("table_id=1, duration=")
            && flows.contains("s, n_packets=0, n_bytes=0, priority=7,icmp,actions=drop\n"),
        "{flows}"
    );
    let offloaded = ask("bridge/dump-flows --offload-stats br0");
    assert!(offloaded.contains("n_offload_packets=0, n_offload_bytes=0, "), "{offloaded}");
    assert_eq!(ask("dpctl/dump-dps"), "netdev@trivium\n");
    assert_eq!(ask("dpif/dump-dps"), "netdev@br0\n");
    let shown = ask("dpif/show");
    assert!(shown.contains("\n  br0:\n    br0 65534/") && shown.contains("    h1 1/"), "{shown}");
    assert!(ask("dpctl/show -s").contains("    RX packets:"));
    assert!(
        switch
            .appctl(&["dpctl/show", "dp9"])
            .unwrap_err()
            .contains("opening datapath dp9 failed (No such device)")
    );
    assert!(ask("dpif/show-dp-features br0").contains("\nRecirc: Yes\n"));
    // Cached flows, with ports by number or by name, and with an identifier.
    let dump = eventually("a cached flow", PATIENCE, || {
        let _ = switch.rig.hosts[0].reaches(&switch.rig.hosts[1]);
        let dump = ask("dpctl/dump-flows -m");
        if dump.contains("in_port(h1)") { Ok(dump) } else { Err(dump) }
    })
    .unwrap();
    let line = dump.lines().find(|line| line.contains("in_port(h1)")).unwrap();
    let (id, flow) = line.split_once(", ").unwrap();
    let fields = flow.split_once(", packets:").unwrap().0;
    let found = ask(&format!("dpctl/get-flow {id}"));
    assert!(found.starts_with(fields), "{found}: {line}");
    assert!(!ask("dpctl/dump-flows").contains("in_port(h1)"));
    assert!(ask("dpif/dump-flows --names br0").contains("in_port(h1)"));
    // Without megaflows, each cached flow matches every bit of its packet.
    assert_eq!(ask("upcall/disable-megaflows"), "megaflows disabled\n");
    assert!(switch.rig.hosts[0].reaches(&switch.rig.hosts[1]));
    let whole = ask("dpctl/dump-flows filter=proto=1");
    assert!(whole.contains("ttl=64"), "{whole}");
    assert_eq!(ask("upcall/enable-megaflows"), "megaflows enabled\n");
    assert_eq!(ask("upcall/set-flow-limit 1000"), "set flow_limit to 1000\n");
    eventually("the limit", PATIENCE, || {
        let shown = ask("upcall/show");
        if shown.contains("(limit 1000)\n  dump duration : ") { Ok(()) } else { Err(shown) }
    })
    .unwrap();
    let coverage = ask("coverage/show");
    assert!(
        coverage.starts_with("Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash="),
        "{coverage}"
    );
    assert!(coverage.contains("/sec   total: ") && coverage.ends_with(" events never hit\n"), "{coverage}");
    assert_ne!(ask("coverage/read-counter port_rx"), "0\n");
    let memory = ask("memory/show");
    assert!(memory.contains("handlers:1 ") && memory.contains(" revalidators:1 "), "{memory}");
    // Joined multicast groups.
    switch.vsctl("set bridge br0 mcast_snooping_enable=true");
    assert_eq!(ask("mdb/show br0"), " port  VLAN  GROUP                Age\n");
    assert_eq!(ask("mdb/flush br0"), "table successfully flushed\n");
}

#[test]
fn the_log_is_a_file_in_open_vswitchs_format_that_is_rotated() {
    require!("ovs-vsctl", "ovsdb-server", "ovs-appctl");
    let mut switch = Switch::new(1);
    let log = switch.rig.path("x.log");
    let configuration = switch.configuration("");
    let with_log = configuration.replace("unixctl =", &format!("log_file = {log:?}\nunixctl ="));
    // A symbolic link in place of the log file is not followed.
    std::os::unix::fs::symlink(switch.rig.path("elsewhere"), &log).unwrap();
    let file = switch.rig.write("linked.toml", &with_log);
    let refused = Command::new(super::rig::TRIVIUM).args(["run", "-c"]).arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("daemon.log_file"), "{said}");
    assert!(!switch.rig.path("elsewhere").exists());
    std::fs::remove_file(&log).unwrap();
    switch.rig.start(&with_log);
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    let first = text().lines().next().unwrap_or_default().to_owned();
    let fields: Vec<&str> = first.split('|').collect();
    let opened = format!("opened log file {}", log.display());
    assert!(fields[0].ends_with('Z') && fields[0].len() == "2026-01-01T00:00:00.000Z".len(), "{first}");
    assert_eq!(fields[2..], ["vlog", "INFO", &opened], "{first}");
    assert!(text().contains("|ovsdb_idl|INFO|"), "{}", text());
    // The log file is rotated as logrotate does.
    let moved = switch.rig.path("x.log.1");
    std::fs::rename(&log, &moved).unwrap();
    switch.appctl(&["vlog/reopen"]).unwrap();
    assert!(text().contains(&opened), "{}", text());
    assert!(std::fs::read_to_string(&moved).unwrap().ends_with("|vlog|INFO|closing log file\n"));
    // Log messages that the tests of Open vSwitch search for.
    switch.appctl(&["vlog/set", "dpif_netdev:file:dbg"]).unwrap();
    switch.vsctl("add-br br9 -- add-port br9 h1");
    eventually("a cached flow in the log", PATIENCE, || {
        let _ = switch.rig.hosts[0].ping("10.8.0.9", 1);
        let words = [
            "|dpif_netdev(slow-path)|DBG|flow_add: recirc_id(0),in_port(",
            "|bridge|INFO|bridge br9: added interface h1 on port 1",
        ];
        if words.iter().all(|words| text().contains(words)) { Ok(()) } else { Err(text()) }
    })
    .unwrap();
    switch.vsctl("del-br br9");
    assert!(text().contains("|bridge|INFO|bridge br9: deleted interface h1 on port 1"), "{}", text());
    switch.appctl(&["vlog/set", "PATTERN:file:%c says %m"]).unwrap();
    switch.vsctl("add-br br0");
    eventually("a line of the new pattern", PATIENCE, || {
        if text().contains("\nbridge says ovsdb: applied") { Ok(()) } else { Err(text()) }
    })
    .unwrap();
    switch.appctl(&["vlog/set", "bridge:file:off"]).unwrap();
    switch.vsctl("add-br br1");
    assert_eq!(text().matches("bridge says ovsdb: applied").count(), 1, "{}", text());
    switch.appctl(&["vlog/close"]).unwrap();
    std::fs::remove_file(&log).unwrap();
    switch.appctl(&["vlog/set", "ANY:file:dbg"]).unwrap();
    assert!(!log.exists());
}
