//! Tests the reported state of a bridge with OpenFlow rules. The output of `trivium show`, `trivium explain`,
//! `/metrics` and the stock `ovs-appctl` must agree with the output of the stock `ovs-ofctl`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::process::Command;

use rig::{PATIENCE, Rig};
use serde_json::Value;
use testbed::{eventually, require};

fn start() -> Rig {
    let mut rig = Rig::new(3);
    let unixctl = format!("unixctl = {:?}\n[memory]", rig.path("ctl"));
    let text = rig.configuration("").replace("[memory]", &unixctl)
        + "[bridge.br0.openflow]\nfail_mode = \"secure\"\n[bridge.plain]\n";
    rig.start(&text);
    rig.pin_neighbours();
    rig
}

fn ofctl(rig: &Rig, arguments: &[&str]) -> String {
    let bridge = format!("unix:{}", rig.path("br0.mgmt").display());
    let (command, rest) = arguments.split_first().unwrap();
    let mut stock = Command::new("ovs-ofctl");
    let output = stock.args(["-O", "OpenFlow15", command, &bridge]).args(rest).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn appctl(rig: &Rig, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("ovs-appctl")
        .args(["-T", "20", "-t"])
        .arg(rig.path("ctl"))
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn json(rig: &Rig, arguments: &[&str]) -> Value {
    serde_json::from_str(&rig.ok(arguments)).unwrap()
}

/// Rules in the syntax of `ovs-ofctl`, as the stock client prints them.
const RULES: [&str; 34] = [
    "priority=1,actions=NORMAL",
    "actions=drop",
    "priority=2,in_port=LOCAL,actions=IN_PORT,FLOOD,ALL,LOCAL,output:3",
    "priority=3,icmp,in_port=1,icmp_type=8,icmp_code=0,actions=CONTROLLER:128",
    "priority=4,tcp,nw_src=10.0.0.0/8,nw_dst=10.1.0.0/255.255.0.255,tp_src=0x1000/0xf000,tp_dst=80,tcp_flags=+syn-ack,actions=output:2",
    "priority=5,udp,dl_vlan=10,dl_vlan_pcp=3,tp_dst=53,actions=pop_vlan,output:2",
    "priority=6,ip,vlan_tci=0x1000/0x1000,nw_tos=40,nw_ecn=2,nw_ttl=64,actions=output:2",
    "priority=7,arp,arp_spa=10.0.0.1,arp_tpa=10.0.0.0/24,arp_op=1,arp_sha=02:00:00:00:00:01,actions=output:2",
    "priority=8,icmp6,ipv6_src=2001:db8::/32,icmp_type=135,nd_target=2001:db8::1,nd_sll=02:00:00:00:00:01,actions=output:2",
    "priority=9,tcp6,ipv6_dst=fe80::1,ipv6_label=0x12345,tp_src=1,actions=output:2",
    "priority=10,mpls,mpls_label=100,mpls_tc=1,mpls_bos=1,actions=pop_mpls:0x0800,output:2",
    "priority=11,dl_src=02:00:00:00:00:01,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,actions=output:2",
    "priority=12,dl_type=0x88b5,actions=output:2",
    "priority=13,ip,nw_proto=47,actions=output:2",
    "priority=14,ip,nw_frag=later,actions=output:2",
    "priority=15,ip,nw_frag=not_later,actions=output:2",
    "priority=16,reg0=0x5,reg1=0x10/0xf0,metadata=0x1234,tun_id=0x7,pkt_mark=0x1,actions=output:2",
    "priority=17,sctp,tp_dst=99,actions=output:2",
    "priority=18,in_port=1,actions=load:0x1->NXM_NX_REG0[],load:0x3->NXM_NX_REG1[4..7],move:NXM_OF_ETH_SRC[0..15]->NXM_NX_REG2[0..15],output:NXM_NX_REG0[]",
    "priority=19,ip,actions=set_field:02:00:00:00:00:09->eth_dst,set_field:10.9.9.9->ip_dst,set_field:0x1/0xff->reg3,dec_ttl,output:2",
    "priority=20,ip,in_port=2,actions=dec_ttl(1,2),mod_nw_ttl:9,output:1",
    "priority=21,in_port=2,actions=push_vlan:0x8100,set_field:4106->vlan_vid,output:1",
    "priority=22,in_port=2,actions=push_mpls:0x8847,set_field:7->mpls_label,output:1",
    "priority=23,in_port=2,actions=resubmit(,3),resubmit(1,),resubmit(1,3)",
    "priority=24,in_port=2,actions=group:5",
    "priority=25,in_port=2,actions=meter:3,output:1",
    "priority=26,in_port=2,actions=learn(table=4,idle_timeout=10,hard_timeout=20,priority=7,cookie=0x9,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],NXM_OF_VLAN_TCI[0..11],load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15],output:NXM_OF_IN_PORT[])",
    "priority=27,in_port=2,actions=conjunction(8,1/2)",
    "priority=28,in_port=2,actions=note:00.01.02.03.00.00,clone(set_field:0x1->reg5,output:3),output:1",
    "priority=29,in_port=2,actions=multipath(symmetric_l4,50,hrw,4,0,NXM_NX_REG0[0..1]),bundle(eth_src,0,active_backup,ofport,members:1,3)",
    "priority=30,in_port=2,actions=check_pkt_larger(100)->NXM_NX_REG0[0],set_queue:2,output:1,pop_queue",
    "priority=31,tcp,actions=fin_timeout(idle_timeout=3,hard_timeout=4),controller(reason=no_match,max_len=64,id=3,userdata=01.02,pause),exit",
    "priority=32,in_port=3,actions=push:NXM_NX_REG0[],pop:NXM_NX_REG1[],clear_actions,write_actions(output:1),write_metadata:0x5/0xff,goto_table:7",
    "table=9,priority=33,cookie=0x77,conj_id=8,ip,actions=output:1",
];

#[test]
fn rules_are_shown_as_the_stock_client_shows_them() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl", "ovs-appctl");
    let rig = start();
    ofctl(&rig, &["add-group", "group_id=5,type=select,bucket=weight:2,output:2,bucket=weight:1,output:3"]);
    ofctl(&rig, &["add-group", "group_id=6,type=ff,bucket=watch_port:2,actions=output:2"]);
    ofctl(&rig, &["add-meter", "meter=3,pktps,burst,stats,band=type=drop,rate=100,burst_size=10"]);
    let file = rig.write("rules.txt", &RULES.join("\n"));
    ofctl(&rig, &["add-flows", file.to_str().unwrap()]);
    // Without statistics, each line is a rule.
    let stock = ofctl(&rig, &["dump-flows", "--no-stats"]);
    let mut wanted: Vec<String> = stock.lines().map(|line| line.trim().to_owned()).collect();
    let shown = json(&rig, &["show", "flows", "br0", "--json"]);
    let ours = shown.as_array().unwrap().iter().map(|rule| {
        let mut parts = Vec::new();
        for (name, hexadecimal) in [("cookie", true), ("table", false)] {
            let number = rule[name].as_u64().unwrap();
            match (number, hexadecimal) {
                (0, _) => {}
                (number, true) => parts.push(format!("{name}={number:#x},")),
                (number, false) => parts.push(format!("{name}={number},")),
            }
        }
        let mut head = parts.join(" ");
        if !head.is_empty() {
            head.push(' ');
        }
        let priority = rule["priority"].as_u64().unwrap();
        let matches = rule["match"].as_str().unwrap();
        let mut rest = if priority == 0x8000 { Vec::new() } else { vec![format!("priority={priority}")] };
        rest.extend((!matches.is_empty()).then(|| matches.to_owned()));
        format!("{head}{} actions={}", rest.join(","), rule["actions"].as_str().unwrap()).trim().to_owned()
    });
    let mut ours: Vec<String> = ours.collect();
    assert_eq!(ours.len(), RULES.len());
    wanted.sort_unstable();
    ours.sort_unstable();
    for (ours, wanted) in ours.iter().zip(&wanted) {
        assert_eq!(ours, wanted);
    }
    // The printed rules are parsed again and give equal rules.
    let again = rig.write("again.txt", &ours.join("\n"));
    ofctl(&rig, &["replace-flows", again.to_str().unwrap()]);
    let mut replaced: Vec<String> =
        ofctl(&rig, &["dump-flows", "--no-stats"]).lines().map(|line| line.trim().to_owned()).collect();
    replaced.sort_unstable();
    assert_eq!(replaced, wanted);
    assert_eq!(json(&rig, &["show", "flows", "br0", "--table", "9", "--json"]).as_array().unwrap().len(), 1);
    assert_eq!(json(&rig, &["show", "flows", "--limit", "3", "--json"]).as_array().unwrap().len(), 3);
    let groups = ofctl(&rig, &["dump-groups"]);
    for group in json(&rig, &["show", "groups", "--json"]).as_array().unwrap() {
        assert!(groups.contains(group["text"].as_str().unwrap()), "{group}: {groups}");
    }
    let meters = ofctl(&rig, &["dump-meters"]);
    // The client prints a line break after `bands=`.
    let words =
        |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").replace("bands= ", "bands=");
    for meter in json(&rig, &["show", "meters", "--json"]).as_array().unwrap() {
        assert!(words(&meters).contains(meter["text"].as_str().unwrap()), "{meter}: {meters}");
    }
    for what in ["flows", "groups", "meters", "megaflows"] {
        assert!(!rig.ok(&["show", what]).is_empty());
        let refused = rig.trivium(&["show", what, "plain"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && said.contains("no such bridge goes by OpenFlow's rules"),
            "{said}"
        );
    }
}

#[test]
fn cached_flows_and_counts_are_told_to_the_stock_tools() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl", "ovs-appctl");
    let rig = start();
    ofctl(&rig, &["add-flow", "priority=30,icmp,nw_dst=10.8.0.3,actions=drop"]);
    for (from, to) in [(1, 2), (2, 1)] {
        ofctl(&rig, &["add-flow", &format!("priority=10,ip,in_port={from},actions=resubmit(,1)")]);
        ofctl(
            &rig,
            &["add-flow", &format!("table=1,priority=5,cookie=0x{from},in_port={from},actions=output:{to}")],
        );
    }
    let report = rig.hosts[0].ping(rig.hosts[1].ip(), 5).unwrap();
    assert_eq!(report.loss(), 0.0);
    // There is a flow for each direction, and each names its rules.
    let flows = eventually("two cached flows of five packets", PATIENCE, || {
        let flows = json(&rig, &["show", "megaflows", "br0", "--json"]);
        let icmp = |flow: &&Value| flow["rules"].to_string().contains("in_port=");
        let found: Vec<Value> = flows.as_array().unwrap().iter().filter(icmp).cloned().collect();
        // The first packet was handled by the slow path.
        let counted = |port: &str| {
            let own = found
                .iter()
                .filter(|flow| flow["flow"].as_str().unwrap().contains(&format!("in_port({port})")));
            own.filter_map(|flow| flow["packets"].as_u64()).sum::<u64>() >= 4
        };
        if counted("h1") && counted("h2") { Ok(found) } else { Err(flows.to_string()) }
    })
    .unwrap();
    let one = flows.iter().find(|flow| flow["flow"].as_str().unwrap().contains("in_port(h1)")).unwrap();
    assert_eq!(one["actions"], "h2");
    assert!(one["flow"].as_str().unwrap().contains("eth_type(0x0800)"), "{one}");
    assert_eq!(
        one["rules"],
        serde_json::json!(["table=0,priority=10,ip,in_port=1", "table=1,priority=5,in_port=1"])
    );
    let dumped = appctl(&rig, &["dpctl/dump-flows", "--names"]).unwrap();
    assert!(dumped.contains("in_port(h1)") && dumped.contains("actions:h2"), "{dumped}");
    assert!(dumped.contains("packets:") && dumped.starts_with("flow-dump from worker"), "{dumped}");
    assert_eq!(appctl(&rig, &["dpctl/dump-flows", "filter=in_port(h9)"]).unwrap(), "");
    assert_eq!(appctl(&rig, &["dpctl/dump-flows", "pmd=9"]).unwrap(), "", "another worker's");
    let of_one = ["dpctl/dump-flows", "--names", "type=ovs", "pmd=0", "filter=in_port(h1)"];
    assert!(appctl(&rig, &of_one).unwrap().contains("in_port(h1)"));
    for (option, part) in
        [("type=tc", "use type=ovs"), ("pmd=x", "not a worker's number"), ("dp9", "opening datapath")]
    {
        let refused = appctl(&rig, &["dpctl/dump-flows", option]).unwrap_err();
        assert!(refused.contains(part), "{refused}");
    }
    let shown = appctl(&rig, &["dpctl/show"]).unwrap();
    assert!(shown.contains("lookups: hit:") && shown.contains(": h1 (afxdp)"), "{shown}");
    assert!(appctl(&rig, &["upcall/show"]).unwrap().contains("(limit 200000)"));
    // The command waits for a barrier. The caches still contain the flows.
    assert_eq!(appctl(&rig, &["revalidator/wait"]).unwrap(), "");
    let before = json(&rig, &["show", "caches", "--json"]);
    assert!(before["workers"][0]["flows"].as_u64().unwrap() >= 2, "{before}");
    assert_eq!(before["slow_path"]["wrong"], 0);
    let hits = |caches: &Value| {
        let of = |name: &str| caches["workers"][0][name].as_u64().unwrap();
        of("exact_hits") + of("masked_hits")
    };
    assert!(hits(&before) >= 8 && before["workers"][0]["misses"].as_u64().unwrap() >= 2, "{before}");
    appctl(&rig, &["revalidator/purge"]).unwrap();
    eventually("an empty cache", PATIENCE, || {
        let flows = json(&rig, &["show", "megaflows", "--json"]);
        // Hosts send packets by themselves from time to time.
        let left = flows.as_array().unwrap().iter().filter(|flow| flow["packets"].as_u64() > Some(2)).count();
        if left == 0 { Ok(()) } else { Err(flows.to_string()) }
    })
    .unwrap();
    // The counters of the removed flows were added to the rules.
    let rule = &json(&rig, &["show", "flows", "br0", "--table", "1", "--json"])[0];
    assert!(rule["packets"].as_u64().unwrap() >= 5, "{rule}");
    assert_eq!(rig.hosts[0].ping(rig.hosts[1].ip(), 2).unwrap().loss(), 0.0);
    let coverage = appctl(&rig, &["coverage/show"]).unwrap();
    assert!(coverage.contains("upcall ") && coverage.contains("flow_cache_miss"), "{coverage}");
    let memory = appctl(&rig, &["memory/show"]).unwrap();
    assert!(memory.contains("tables-of-br0-kB:") && memory.contains("flow-caches-kB:"), "{memory}");
    assert!(rig.ok(&["show", "caches"]).contains("flow records"));
    let table = rig.ok(&["show", "megaflows"]);
    assert!(table.contains("in_port(h1)"), "{table}");
}

#[test]
fn a_packets_way_and_the_reasons_of_its_megaflow_are_told() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl", "ovs-appctl");
    let rig = start();
    for rule in [
        "priority=10,cookie=0x5,ip,nw_dst=10.0.0.0/8,actions=resubmit(,1)",
        "priority=20,ip,nw_dst=10.1.2.3,actions=drop",
        "table=1,priority=7,ip,actions=dec_ttl,output:2",
        "table=2,priority=7,actions=CONTROLLER",
    ] {
        ofctl(&rig, &["add-flow", rule]);
    }
    let told = rig.ok(&["explain", "--in", "h1", "ip_src=10.0.0.1,ip_dst=10.5.6.7,udp,dst_port=53"]);
    for part in [
        "table 0: the rule of priority 10 (cookie 0x5) matches: ip,nw_dst=10.0.0.0/8 actions=resubmit(,1)",
        "  table 1: the rule of priority 7 (cookie 0x0) matches: ip actions=dec_ttl,output:2",
        "nw_dst=10.0.0.0/8: table 0: matched by the rule of priority 10",
        "not the rule of priority 20 (ip,nw_dst=10.1.2.3)",
        "nw_ttl=64: table 1: action dec_ttl",
        "nw_dst=10.5.0.0/16",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("tp_dst"), "{told}");
    // `ovs-appctl` gives an equal result, with the port as number or name, and with or without a packet.
    let flow = "in_port=h1,udp,nw_src=10.0.0.1,nw_dst=10.5.6.7,nw_ttl=64,tp_dst=53";
    let traced = appctl(&rig, &["ofproto/trace", "br0", flow, "--names"]).unwrap();
    for part in [
        "Flow: udp,in_port=h1,",
        "\nbridge(\"br0\")\n-------------\n 0. ip,nw_dst=10.0.0.0/8, priority 10, cookie 0x5\n    resubmit(,1)\n 1. ip, priority 7\n    dec_ttl\n    output:h2\n",
        "\nFinal flow: udp,in_port=h1,",
        "\nMegaflow: recirc_id=0,eth,ip,in_port=h1,",
        "\nDatapath actions: set(ipv4(ttl=63)),h2\n",
    ] {
        assert!(traced.contains(part), "{part}: {traced}");
    }
    let again = ["ofproto/trace", "--names", "br0", &flow.replace("h1", "1")];
    assert_eq!(traced, appctl(&rig, &again).unwrap());
    // The last line but one is the megaflow. Reasons for its bits are printed on request.
    let last: Vec<&str> = traced.lines().rev().take(2).collect();
    assert!(last[0].starts_with("Datapath actions: ") && last[1].starts_with("Megaflow: "), "{traced}");
    assert!(!traced.contains(" because of "));
    let why = appctl(&rig, &["ofproto/trace", "br0", flow, "--why"]).unwrap();
    assert!(why.contains("nw_ttl=64 because of table 1: action dec_ttl\n"), "{why}");
    let generated = appctl(&rig, &["ofproto/trace", "br0", flow, "-generate"]).unwrap();
    let number = rig.port("h2")["id"].to_string();
    assert!(generated.contains(&format!("Datapath actions: set(ipv4(ttl=63)),{number}\n")), "{generated}");
    let missed = appctl(&rig, &["ofproto/trace", "br0", "in_port=1,arp"]).unwrap();
    assert!(missed.contains(" 0. No match.\n    drop\n"), "{missed}");
    assert!(
        missed.contains("Final flow: unchanged") && missed.contains("Datapath actions: drop"),
        "{missed}"
    );
    for (arguments, part) in [
        (["nobridge", "in_port=1"], "nobridge: unknown bridge"),
        (["plain", "in_port=1"], "no such bridge goes by OpenFlow's rules"),
        (["br0", "in_port=1,bogus"], "Bad openflow flow syntax"),
        (["br0", "in_port=nowhere"], "unknown port"),
    ] {
        let refused = appctl(&rig, &["ofproto/trace", arguments[0], arguments[1]]).unwrap_err();
        assert!(refused.contains(part), "{refused}");
    }
    assert!(appctl(&rig, &["ofproto/trace", "br0", "in_port=1", "zz"]).unwrap_err().contains("packet data"));
    // Traces are not counted.
    assert!(ofctl(&rig, &["dump-flows", "table=1"]).contains("n_packets=0"));
}
