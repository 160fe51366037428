//! Compares the output of the stock `ovs-ofctl` and `ovs-appctl` for the daemon with the output for a real
//! `ovs-vswitchd`. A script of commands runs on equal bridges with two ports, and the output is compared line by line.
//! An entry of [`KNOWN`] must explain each line that only one of the two prints, and each entry must explain a line.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use testbed::{Process, eventually, require};

use By::{Ovs, Trivium};

use super::Switch;
use super::reference::Reference;
use super::rig::PATIENCE;

/// Program that printed a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Ovs,
    Trivium,
}

/// A line that only one of the two programs prints. The entry contains a part of the command, the program, a part of
/// the line, and the reason.
type Known = (&'static str, By, &'static str, &'static str);

const KNOWN: &[Known] = &[
    ("", Ovs, "speed: 0 Mbps now, 0 Mbps max", DEVICES),
    ("", Trivium, "current:    10GB-FD", DEVICES),
    ("", Trivium, "speed: 10000 Mbps now, ", DEVICES),
    ("dump-ports br0", Ovs, "CUSTOM Statistics", "the counters of a dummy device"),
    ("dump-ports br0", Ovs, "rx_custom_packets_1=", "the counters of a dummy device"),
    ("dump-ports br0", Ovs, "rx_q0_packets=", "the counters of a dummy device"),
    ("dump-desc", Ovs, "Manufacturer: Nicira, Inc.", PRODUCT),
    ("dump-desc", Ovs, "Hardware: Open vSwitch", PRODUCT),
    ("dump-desc", Ovs, "Software: 3.1.0", PRODUCT),
    ("dump-desc", Ovs, "DP Description: None", PRODUCT),
    ("dump-desc", Trivium, "Manufacturer: Trivium", PRODUCT),
    ("dump-desc", Trivium, "Hardware: Trivium", PRODUCT),
    ("dump-desc", Trivium, "Software: ", PRODUCT),
    ("dump-desc", Trivium, "DP Description: br0", PRODUCT),
    ("queue-stats", Ovs, "OFPST_QUEUE reply", QUEUES),
    ("queue-stats", Ovs, " queue 0: bytes=?, pkts=?, errors=?, duration=?", QUEUES),
    ("queue-stats", Trivium, ": 0 queues", QUEUES),
    ("queue-get-config", Ovs, "port=1", QUEUES),
    ("queue-get-config", Ovs, "queue 0:", QUEUES),
    ("queue-get-config", Trivium, "OFPT_QUEUE_GET_CONFIG_REPLY", QUEUES),
    ("queue-get-config", Trivium, "OFPST_QUEUE_DESC reply", QUEUES),
    ("dump-tlv-map", Ovs, "max option space=256 max fields=64", "eight fields hold options of tunnels"),
    ("dump-tlv-map", Trivium, "max option space=64 max fields=8", "eight fields hold options of tunnels"),
    ("dump-group-features", Ovs, "Capabilities:  0x7", "groups are checked for loops"),
    ("dump-group-features", Trivium, "Capabilities:  0xf", "groups are checked for loops"),
    ("dump-group-features", Ovs, "max_groups=0xffffff00", "groups have a bound"),
    ("dump-group-features", Trivium, "max_groups=0x10000", "groups have a bound"),
    ("bucket=group:8", Trivium, "OFPGMFC_LOOP", LOOPS),
    ("bucket=group:8", Trivium, "OFPT_GROUP_MOD", LOOPS),
    ("bucket=group:8", Trivium, "ADD group_id=8,type=all", LOOPS),
    ("bucket=group:8", Trivium, "status Some(1)", LOOPS),
    ("dump-group", Ovs, " group_id=8,", LOOPS),
    ("dump-group-stats", Ovs, "group_id=5,duration=*s,ref_count=0", REFERENCES),
    ("dump-group-stats", Trivium, "group_id=5,duration=*s,ref_count=1", REFERENCES),
    ("meter-features", Ovs, "max_meter:262144 max_bands:8 max_color:0", METERS),
    ("meter-features", Ovs, "band_types: drop", METERS),
    ("meter-features", Trivium, "max_meter:65536 max_bands:16 max_color:0", METERS),
    ("meter-features", Trivium, "band_types: drop dscp_remark", METERS),
    ("show br0", Ovs, "QUEUE_STATS BUNDLES", "flow monitors of OpenFlow 1.4 are there"),
    ("show br0", Trivium, "BUNDLES FLOW_MONITORING", "flow monitors of OpenFlow 1.4 are there"),
    ("dump-table-features", Ovs, "eviction: not supported", TABLES),
    ("dump-table-features", Ovs, "vacancy events: not supported", TABLES),
    ("dump-table-features", Trivium, "eviction: supported", TABLES),
    ("dump-table-features", Trivium, "vacancy events: supported", TABLES),
    ("dump-table-features", Ovs, "supported on Set-Field: ", TABLES),
    ("dump-table-features", Ovs, "arbitrary mask: ", TABLES),
    ("dump-table-features", Ovs, "exact match or wildcard: ", TABLES),
    ("dump-table-features", Trivium, "supported on Set-Field: ", TABLES),
    ("dump-table-features", Trivium, "arbitrary mask: ", TABLES),
    ("dump-table-features", Trivium, "exact match or wildcard: ", TABLES),
    ("monitor", Ovs, "OFPT_FLOW_REMOVED ", ORDER),
    ("monitor", Trivium, "OFPT_FLOW_REMOVED ", ORDER),
    ("bridge/dump-flows", Ovs, "table_id=254, ", "Trivium has no hidden rules"),
    ("dpif/show", Ovs, "dummy@ovs-dummy: hit:", DATA_PATH),
    ("dpif/show", Ovs, "(dummy", DATA_PATH),
    ("dpif/show", Trivium, "netdev@trivium: hit:", DATA_PATH),
    ("dpif/show", Trivium, "(internal)", DATA_PATH),
    ("dpif/show", Trivium, "(afxdp)", DATA_PATH),
    ("dpctl/dump-dps", Ovs, "dummy@ovs-dummy", DATA_PATH),
    ("dpctl/dump-dps", Trivium, "netdev@trivium", DATA_PATH),
    ("ofproto/trace", Ovs, "Megaflow: ", "the bits of a megaflow are each switch's own"),
    ("ofproto/trace", Trivium, "Megaflow: ", "the bits of a megaflow are each switch's own"),
    ("ovs-appctl version", Ovs, "(Open vSwitch) 3.1.0", PRODUCT),
    ("ovs-appctl version", Trivium, "(Trivium) ", PRODUCT),
];

const DEVICES: &str = "veth says its speed, a dummy device has none";
const PRODUCT: &str = "names of the product";
const QUEUES: &str = "ports have no queues, and Open vSwitch lists a default one";
const LOOPS: &str =
    "a group that leads to itself is refused as OpenFlow 1.3.5 demands (6.7), and kept by Open vSwitch";
const REFERENCES: &str =
    "the specification counts flows and groups that lead to a group, Open vSwitch flows alone";
const METERS: &str = "other bounds, and DSCP is remarked";
const ORDER: &str = "Open vSwitch sends a flow-removed behind the flow monitor's update, Trivium before it";
const TABLES: &str =
    "eviction and vacancy events are there; connections, NSH, MPLS masks and 56 options of tunnels are not";
const DATA_PATH: &str = "the data path's own names and numbers";

/// Commands that are run with each OpenFlow version in [`VERSIONS`]. In a command, `~` represents a space within a
/// word.
const ALL_VERSIONS: &[&str] = &[
    "show br0",
    "dump-desc br0",
    "dump-tables br0",
    "dump-ports br0",
    "dump-ports br0 1",
    "dump-ports br0 h2",
    "dump-ports br0 77",
    "dump-ports-desc br0",
    "dump-ports-desc br0 1",
    "get-frags br0",
    "set-frags br0 drop",
    "get-frags br0",
    "set-frags br0 normal",
    "del-flows br0",
    "dump-flows br0",
    "dump-aggregate br0",
    "add-flow br0 cookie=0x5,priority=7,in_port=1,ip,nw_dst=10.0.0.0/8,actions=output:2",
    "add-flow br0 priority=8,tcp,tp_dst=80,idle_timeout=60,hard_timeout=600,actions=drop",
    "add-flow br0 priority=9,in_port=2,dl_vlan=5,send_flow_rem,actions=strip_vlan,output:1",
    "add-flow br0 priority=10,arp,actions=NORMAL,CONTROLLER:128",
    "add-flow br0 priority=11,udp,actions=mod_nw_tos:32,mod_tp_dst:53,IN_PORT",
    "add-flow br0 table=1,priority=3,actions=load:5->NXM_NX_REG0[],resubmit(,2)",
    "dump-flows br0",
    "--names dump-flows br0",
    "--no-names dump-flows br0",
    "--no-stats dump-flows br0",
    "--names --no-stats dump-flows br0",
    "--no-stats --sort=priority dump-flows br0",
    "--no-stats --rsort=priority dump-flows br0",
    "--no-stats dump-flows br0 table=1",
    "--no-stats dump-flows br0 tcp",
    "--no-stats dump-flows br0 out_port=2",
    "--no-stats dump-flows br0 cookie=0x5/-1",
    "dump-aggregate br0",
    "dump-aggregate br0 table=1",
    "dump-tables br0",
    "mod-flows br0 tcp,tp_dst=80,actions=output:1",
    "--strict mod-flows br0 priority=3,table=1,actions=output:1",
    "--strict del-flows br0 priority=11,udp",
    "--no-stats dump-flows br0",
    "diff-flows br0 br0",
    "add-flow br0 check_overlap,priority=7,ip,actions=drop",
    "add-flow br0 priority=1,actions=group:77",
    "add-flow br0 priority=1,actions=output:70000",
    "add-flow br0 priority=1,in_port=1,actions=foo",
    "add-flow br0 priority=1,tp_dst=80,actions=drop",
    "add-flow br0 priority=1,actions=set_field:1->tcp_dst",
    "add-flow br0 priority=2,actions=resubmit(,0)",
    "add-flow br0 table=7,priority=1,actions=goto_table:3",
    "add-flow br0 priority=1,actions=note:1.2,push_vlan:0x9100",
    "add-flow br0 priority=1,tun_metadata0=5,actions=drop",
    "mod-port br0 h1 no-flood",
    "mod-port br0 1 no-forward",
    "show br0",
    "mod-port br0 h1 flood",
    "mod-port br0 h1 forward",
    "mod-port br0 77 down",
    "mod-port br0 h9 down",
    "mod-port br0 h1 foo",
    "packet-out br0 in_port=1~packet=ffffffffffff02000000000188b500000000~actions=output:2",
    "packet-out br0 in_port=1~packet=ffffffffffff02000000000188b500000000~actions=group:77",
    "packet-out br0 in_port=77~packet=ffffffffffff02000000000188b500000000~actions=output:2",
    "queue-stats br0",
    "queue-stats br0 1",
    "queue-stats br0 1 7",
    "queue-stats br0 77",
    "queue-get-config br0 1",
    "dump-tlv-map br0",
    "add-tlv-map br0 {class=0x102,type=0x80,len=4}->tun_metadata3",
    "dump-tlv-map br0",
    "add-tlv-map br0 {class=0x102,type=0x80,len=4}->tun_metadata4",
    "del-tlv-map br0",
    "dump-group-features br0",
    "dump-groups br0",
    "dump-group-stats br0",
    "probe br0",
    "del-flows br0 cookie=0x5/-1",
    "del-flows br0 out_port=1",
    "--no-stats dump-flows br0",
    "del-flows br0",
];

/// Commands that are run with OpenFlow 1.3 and later versions.
const SINCE_13: &[&str] = &[
    "dump-table-features br0",
    "add-group br0 group_id=5,type=select,bucket=weight:3,output:1,bucket=weight:1,output:2",
    "add-group br0 group_id=6,type=ff,bucket=watch_port:1,output:1,bucket=watch_port:2,output:2",
    "add-group br0 group_id=7,type=indirect,bucket=group:5",
    "add-group br0 group_id=5,type=all,bucket=output:1",
    "add-group br0 group_id=8,type=indirect,bucket=output:1,bucket=output:2",
    "add-group br0 group_id=8,type=foo,bucket=output:1",
    "add-group br0 group_id=8,type=all,bucket=group:8",
    "add-group br0 group_id=9,type=all,bucket=group:99",
    "mod-group br0 group_id=10,type=all,bucket=output:1",
    "mod-group br0 group_id=6,type=all,bucket=output:2",
    "dump-groups br0",
    "dump-groups br0 5",
    "dump-group-stats br0",
    "dump-group-stats br0 5",
    "dump-group-stats br0 99",
    "del-groups br0 group_id=6",
    "dump-groups br0",
    "add-flow br0 priority=5,in_port=1,actions=group:5",
    "--no-stats dump-flows br0 out_group=5",
    "add-meter br0 meter=3,kbps,stats,burst,band=type=drop,rate=100,burst_size=10",
    "add-meter br0 meter=4,pktps,bands=type=drop,rate=1000",
    "add-meter br0 meter=3,pktps,bands=type=drop,rate=1000",
    "add-meter br0 meter=0,pktps,bands=type=drop,rate=1000",
    "mod-meter br0 meter=9,pktps,bands=type=drop,rate=1000",
    "mod-meter br0 meter=4,pktps,bands=type=drop,rate=7",
    "dump-meters br0",
    "dump-meter br0 meter=4",
    "meter-stats br0",
    "meter-stats br0 meter=9",
    "meter-features br0",
    "add-flow br0 priority=6,in_port=2,actions=meter:3,output:1",
    "add-flow br0 priority=6,in_port=1,actions=meter:9,output:1",
    "add-flow br0 priority=4,actions=write_actions(output:2),goto_table:1",
    "add-flow br0 table=1,priority=4,actions=clear_actions,write_metadata:5/0xff",
    "add-flow br0 table=2,priority=4,vlan_tci=0x1000/0x1000,actions=set_field:4102->vlan_vid,push_vlan:0x88a8,output:2",
    "add-flow br0 table=2,priority=5,icmp6,icmp_type=135,icmp_code=0,nd_target=fe80::1,actions=set_field:fe80::2->nd_target",
    "add-flow br0 table=2,priority=6,actions=learn(table=3,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])",
    "add-flow br0 table=2,priority=7,mpls,actions=dec_mpls_ttl,clone(output:1),multipath(symmetric_l4,1024,modulo_n,2,0,NXM_NX_REG0[])",
    "dump-flows br0",
    "--names dump-flows br0",
    "--no-stats dump-flows br0",
    "del-meter br0 meter=3",
    "del-groups br0",
    "--no-stats dump-flows br0",
    "del-meters br0",
    "del-flows br0",
];

/// Commands that are run with OpenFlow 1.4 and later versions.
const SINCE_14: &[&str] = &[
    "dump-table-desc br0",
    "mod-table br0 3 evict",
    "mod-table br0 3 vacancy:20,80",
    "dump-table-desc br0 3",
    "mod-table br0 3 noevict",
    "mod-table br0 3 novacancy",
    "--bundle add-flow br0 priority=3,in_port=1,actions=output:2",
    "--bundle add-flow br0 priority=3,in_port=2,actions=group:77",
    "--bundle add-group br0 group_id=5,type=foo",
    "--bundle replace-flows br0 FILE",
    "--bundle add-flows br0 BAD",
    "--no-stats dump-flows br0",
    "del-flows br0",
];

const APPCTL: &[&str] = &[
    "ofproto/list",
    "fdb/show br0",
    "bridge/dump-flows br0",
    "dpif/show",
    "dpif/dump-flows br0",
    "dpctl/dump-dps",
    "ofproto/trace br0 in_port=1,tcp,nw_dst=10.1.2.3",
    "version",
];

const VERSIONS: [&str; 4] = ["OpenFlow10", "OpenFlow13", "OpenFlow14", "OpenFlow15"];

/// Commands whose output Open vSwitch prints in the order of a hash table. The lines are therefore compared in any
/// order.
const IN_ANY_ORDER: [&str; 7] = [
    "dump-flows",
    "dump-groups",
    "dump-group-stats",
    "dump-meters",
    "meter-stats",
    "dump-ports br0",
    "queue-stats",
];

/// Replaces values that always differ: transaction ids, times, addresses, identifiers, and port counters.
fn normal(text: &str, bridge: &str) -> Vec<String> {
    let text = text.replace(bridge, "br0");
    let keys = [
        ("xid=", "0x", true),
        ("duration=", "", false),
        ("duration:", "", false),
        (" duration", "", false),
        ("idle_age=", "", false),
        ("hard_age=", "", false),
        ("addr:", ":", true),
        ("dpid:", "", true),
    ];
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut line = line.trim_end().to_owned();
        for (key, more, is_hex) in keys {
            let is_value = |c: char| {
                c.is_ascii_digit() || c == '.' || more.contains(c) || is_hex && c.is_ascii_hexdigit()
            };
            line = blank(&line, key, is_value);
        }
        if line.contains("rx pkts=") || line.contains("tx pkts=") {
            for key in ["pkts=", "bytes=", "drop=", "errs=", "frame=", "over=", "crc=", "coll="] {
                line = blank(&line, key, |c| c.is_ascii_digit() || c == '?');
            }
        }
        lines.push(line);
    }
    lines
}

/// Replaces the value after each occurrence of `key` by `*`. A value consists of the characters that `is_value`
/// accepts.
fn blank(line: &str, key: &str, is_value: impl Fn(char) -> bool) -> String {
    let mut parts = line.split(key);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(&is_value);
        text += key;
        text += if rest.len() < part.len() { "*" } else { "" };
        text += rest;
    }
    text
}

/// Compares two texts line by line (longest common subsequence). Returns the lines that only one of the texts contains,
/// in order, each with the program that printed it.
fn differences(theirs: &[String], ours: &[String]) -> Vec<(By, String)> {
    let mut longest = vec![vec![0_usize; ours.len() + 1]; theirs.len() + 1];
    for i in (0..theirs.len()).rev() {
        for j in (0..ours.len()).rev() {
            longest[i][j] = if theirs[i] == ours[j] {
                longest[i + 1][j + 1] + 1
            } else {
                longest[i + 1][j].max(longest[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut found) = (0, 0, Vec::new());
    while i < theirs.len() || j < ours.len() {
        if i < theirs.len() && j < ours.len() && theirs[i] == ours[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == ours.len() || i < theirs.len() && longest[i + 1][j] >= longest[i][j + 1] {
            found.push((Ovs, theirs[i].clone()));
            i += 1;
        } else {
            found.push((Trivium, ours[j].clone()));
            j += 1;
        }
    }
    found
}

/// Collects the differences that no entry of [`KNOWN`] explains, and the entries that explain a difference.
#[derive(Default)]
struct Judge {
    wrong: Vec<String>,
    used: BTreeSet<usize>,
    commands: usize,
    lines: usize,
}

impl Judge {
    fn compare(&mut self, command: &str, mut theirs: Vec<String>, mut ours: Vec<String>) {
        if IN_ANY_ORDER.iter().any(|part| command.contains(part)) && !command.contains("sort=") {
            theirs.sort();
            ours.sort();
        }
        self.commands += 1;
        self.lines += theirs.len();
        let mut unexplained = String::new();
        for (by, line) in differences(&theirs, &ours) {
            let explains =
                |known: &Known| command.contains(known.0) && by == known.1 && line.contains(known.2);
            match KNOWN.iter().position(explains) {
                Some(place) => {
                    self.used.insert(place);
                }
                None => unexplained += &format!("\n    {by:?}: {line}"),
            }
        }
        if !unexplained.is_empty() {
            self.wrong.push(format!("  {command}{unexplained}"));
        }
    }
}

/// Runs one command of the script, and returns the lines of its output and its exit status.
fn ofctl(bridge: &str, version: &str, words: &[String]) -> Vec<String> {
    let mut client = Command::new("ovs-ofctl");
    client.args(["-O", version, "-vconsole:off", "--timeout=20"]);
    let output = client.args(words.iter().map(|word| word.replace("br0", bridge))).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let mut lines = normal(&String::from_utf8_lossy(&text), bridge);
    if !output.status.success() {
        lines.push(format!("status {:?}", output.status.code()));
    }
    lines
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(|word| word.replace('~', " ")).collect()
}

#[test]
fn texts_of_ovs_ofctl_are_open_vswitchs_line_by_line() {
    require!("ovs-vsctl", "ovsdb-server", "ovs-appctl", "ovs-vswitchd", "ovs-ofctl", "ovs-testcontroller");
    let switch = Switch::start(2);
    switch.build();
    let reference = Reference::start(&switch.rig, &["h1", "h2"]);
    let bridges = [reference.bridge(), format!("unix:{}", switch.rig.path("br0.mgmt").display())];
    let good = switch
        .rig
        .write("good.txt", "priority=4,in_port=1,actions=output:2\npriority=4,in_port=2,actions=drop\n");
    let bad = switch
        .rig
        .write("bad.txt", "priority=5,in_port=1,actions=output:2\npriority=5,in_port=2,actions=group:77\n");
    let mut judge = Judge::default();
    for (place, version) in VERSIONS.iter().enumerate() {
        let scripts = [ALL_VERSIONS, SINCE_13, SINCE_14];
        for line in scripts.iter().take(1 + place.min(2)).copied().flatten() {
            let line = line.replace("FILE", good.to_str().unwrap()).replace("BAD", bad.to_str().unwrap());
            let [theirs, ours] = [0, 1].map(|side| ofctl(&bridges[side], version, &words(&line)));
            judge.compare(&format!("{version} {line}"), theirs, ours);
        }
    }
    for line in APPCTL {
        let arguments: Vec<&str> = line.split(' ').collect();
        let answers = [reference.appctl(&arguments), switch.appctl(&arguments)];
        let [theirs, ours] = answers.map(|answer| normal(&answer.unwrap_or_else(|error| error), "\0"));
        judge.compare(&format!("ovs-appctl {line}"), theirs, ours);
    }
    for version in VERSIONS {
        let [theirs, ours] = monitored(&bridges, version);
        judge.compare(&format!("{version} monitor"), theirs, ours);
    }
    let [theirs, ours] = snooped(&switch, &reference, &bridges);
    judge.compare("snoop", theirs, ours);
    println!("{} commands, {} lines of Open vSwitch", judge.commands, judge.lines);
    let idle = (0..KNOWN.len()).filter(|place| !judge.used.contains(place)).map(|place| KNOWN[place]);
    let idle: Vec<Known> = idle.collect();
    assert!(judge.wrong.is_empty(), "{} commands differ:\n{}", judge.wrong.len(), judge.wrong.join("\n"));
    assert!(idle.is_empty(), "these differences are no more: {idle:#?}");
}

/// Returns the arguments of a packet-out command that sends a packet to the controllers.
fn out(port: u8) -> String {
    format!("packet-out br0 in_port={port}~packet=ffffffffffff02000000000188b500000000~actions=controller")
}

/// Makes changes and sends packets while `ovs-ofctl monitor` runs, and returns the output of this command for both
/// switches.
fn monitored(bridges: &[String; 2], version: &str) -> [Vec<String>; 2] {
    [0, 1].map(|side| {
        let bridge = &bridges[side];
        let mut command = Command::new("ovs-ofctl");
        // The directory of the client's control socket.
        command.env("OVS_RUNDIR", std::env::temp_dir());
        command.args(["-O", version, "-vconsole:off", "monitor", bridge, "65534", "watch:"]);
        let mut monitor = Process::start(command).unwrap();
        // The session is established when the monitor prints a packet.
        monitor.wait_for_line("FLOW_MONITOR", PATIENCE).unwrap();
        for line in [
            "add-flow br0 cookie=0x7,priority=7,in_port=1,send_flow_rem,actions=output:2".to_owned(),
            "mod-flows br0 in_port=1,actions=drop".to_owned(),
            "mod-port br0 h1 no-flood".to_owned(),
            "mod-port br0 h1 flood".to_owned(),
            "del-flows br0".to_owned(),
            out(2),
        ] {
            ofctl(bridge, version, &words(&line));
        }
        let _ = monitor.wait_for_line("dl_type=0x88b5", PATIENCE);
        normal(&monitor.output(), bridge)
    })
}

/// Returns the output of `ovs-ofctl snoop` for both switches. The snooped bridge is controlled by a learning controller
/// (`ovs-testcontroller`).
fn snooped(switch: &Switch, reference: &Reference, bridges: &[String; 2]) -> [Vec<String>; 2] {
    let servers = [&reference.server, &switch.server];
    [0, 1].map(|side| {
        let bridge = &bridges[side];
        // Open vSwitch connects only to sockets in its own directory.
        let target = bridge.replace("br0.mgmt", "controller");
        let path = Path::new(target.trim_start_matches("unix:"));
        let mut command = Command::new("ovs-testcontroller");
        command.args(["--no-chdir", "--unixctl=none", "-vconsole:off", &format!("p{target}")]);
        let _controller = Process::start(command).unwrap();
        eventually("the controller listens", PATIENCE, || {
            if path.exists() { Ok(()) } else { Err(String::new()) }
        })
        .unwrap();
        servers[side].vsctl(["set-controller", "br0", &target]).unwrap();
        eventually("the controller leads", PATIENCE, || {
            let shown = servers[side].vsctl(["get", "controller", "br0", "is_connected"]).unwrap();
            if shown.contains("true") { Ok(()) } else { Err(shown) }
        })
        .unwrap();
        let mut command = Command::new("ovs-ofctl");
        command.env("OVS_RUNDIR", std::env::temp_dir());
        command.args(["-vconsole:off", "snoop", &bridge.replace(".mgmt", ".snoop")]);
        let snoop = Process::start(command).unwrap();
        // The listener is connected when it prints a message. Packets are sent until then.
        let packet = words(&out(2));
        eventually("a message is seen", PATIENCE, || {
            ofctl(bridge, "OpenFlow10", &packet);
            if snoop.output().contains("dl_type=0x88b5") { Ok(()) } else { Err(snoop.output()) }
        })
        .unwrap();
        let text = normal(&snoop.output(), bridge);
        servers[side].vsctl(["del-controller", "br0"]).unwrap();
        // The first packet-in with its packet.
        let begin = text.iter().position(|line| line.contains("PACKET_IN")).unwrap_or_default();
        text.into_iter().skip(begin).take(2).collect()
    })
}
