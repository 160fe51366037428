//! Compares `ofproto/trace` of the daemon with `ofproto/trace` of a real `ovs-vswitchd` with equal rules. The reports
//! are equal except for the megaflow, whose mask differs between the switches.

use std::process::Command;

use testbed::{eventually, require};

use super::Switch;
use super::reference::Reference;
use super::rig::PATIENCE;

const RULES: [&str; 11] = [
    "table=0,priority=10,cookie=0x5,ip,nw_dst=10.0.0.0/8,actions=resubmit(,1)",
    "table=0,priority=20,ip,nw_dst=10.1.2.3,actions=drop",
    "table=0,priority=5,in_port=1,arp,actions=FLOOD",
    "table=0,priority=6,in_port=2,icmp,actions=push_vlan:0x8100,set_field:4101->vlan_vid,output:1,pop_vlan,output:3,resubmit(,2)",
    "table=0,priority=7,in_port=2,tcp,actions=resubmit(,2),output:99,in_port,output:2",
    "table=0,priority=8,in_port=2,udp,udp_dst=1,actions=group:1",
    "table=0,priority=8,in_port=2,udp,udp_dst=4,actions=set_field:0x5->reg0,write_actions(output:3),goto_table:9",
    "table=0,in_port=3,actions=NORMAL",
    "table=0,priority=9,in_port=1,dl_type=0x88b5,actions=resubmit(,7)",
    "table=7,actions=resubmit(,7)",
    "table=1,priority=7,ip,actions=dec_ttl,output:2",
];

/// Flows whose complete trace reports must be equal.
const FLOWS: [&str; 14] = [
    "br0 in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.5.6.7,nw_ttl=64,udp_dst=53",
    "br0 in_port=1,tcp,nw_dst=10.1.2.3",
    "br0 in_port=1,arp",
    "br0 in_port=2,icmp",
    "br0 in_port=2,tcp",
    "br0 in_port=2,udp,udp_dst=1,nw_ttl=9",
    "br0 in_port=2,udp,udp_dst=4",
    "br0 in_port=2,tcp6,ipv6_src=2001:db8::1",
    "br0 in_port=2,dl_vlan=5,dl_type=0x0800,nw_proto=47",
    "br0 in_port=3,dl_src=50:00:00:00:00:01,dl_dst=50:00:00:00:00:02,dl_type=0x1234",
    "br0 in_port=3,dl_src=50:00:00:00:00:01,dl_dst=50:00:00:00:00:09,dl_type=0x1234",
    "br0 in_port=3,dl_src=50:00:00:00:00:01,dl_dst=50:00:00:00:00:0a,dl_type=0x1234",
    "br0 in_port=h1,tcp,nw_dst=10.1.2.3 --ct-next trk,est",
    "br0 in_port=1,tcp 505400000007505400000005080045000014000000004001f98cc0a80001c0a80002",
];

/// Packet-outs of a controller whose complete trace reports must be equal.
const PACKET_OUTS: [&str; 4] = [
    "br0 in_port=1,tcp output:2,resubmit(,0)",
    "br0 in_port=1,tcp,dl_src=50:00:00:00:00:01,dl_dst=50:00:00:00:00:09 -consistent normal",
    "br0 in_port=3,tcp,dl_src=50:00:00:00:00:01,dl_dst=50:00:00:00:00:09 normal",
    "br0 in_port=2,icmp set_field:10.9.9.9->ip_dst,output:3",
];

/// Arguments that both switches refuse with equal errors.
const REFUSED: [&str; 8] = [
    "nobridge in_port=1",
    "br0 in_port=1 zz zz",
    "br0 in_port=1,tcp --ct-next foo",
    "br0 in_port=1,tcp --foo",
    "br0 a b c d",
    "nodp in_port(1)",
    "in_port(77),eth()",
    "in_port(77)",
];

fn ofctl(bridge: &str, command: &str, argument: &str) {
    let line = ["-O", "OpenFlow13", command, bridge, argument];
    let output = Command::new("ovs-ofctl").args(line).output().unwrap();
    assert!(output.status.success(), "{argument}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns a trace report in comparable form: without the megaflow, and with the output ports of a flood in sorted
/// order.
fn told(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix("Datapath actions: ") {
        _ if line.starts_with("Megaflow: ") => "Megaflow".to_owned(),
        Some(actions) if !actions.contains('(') => {
            let mut ports: Vec<&str> = actions.split(',').collect();
            ports.sort_unstable();
            format!("Datapath actions: {}", ports.join(","))
        }
        // Open vSwitch prints a recirculation id for each packet to a controller.
        Some(actions) => actions
            .split("recirc_id=")
            .map(|part| part.trim_start_matches(|digit: char| digit.is_ascii_digit()))
            .collect(),
        _ => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_trace_is_what_open_vswitch_tells() {
    require!("ovs-vsctl", "ovsdb-server", "ovs-appctl", "ovs-ofctl", "ovs-vswitchd");
    let switch = Switch::start(3);
    switch.build();
    switch.vsctl("set-fail-mode br0 secure");
    let reference = Reference::start(&switch.rig, &["h1", "h2", "h3"]);
    let ours = format!("unix:{}", switch.rig.path("br0.mgmt").display());
    for bridge in [&ours, &reference.bridge()] {
        ofctl(bridge, "del-flows", "table=0");
        ofctl(bridge, "add-group", "group_id=1,type=all,bucket=output:1,bucket=dec_ttl,output:3");
        RULES.iter().for_each(|rule| ofctl(bridge, "add-flow", rule));
    }
    // Static addresses on both switches, on another port and on the packet's own port.
    for station in ["h1 0 50:00:00:00:00:09", "h3 0 50:00:00:00:00:0a"] {
        let line = format!("fdb/add br0 {station}");
        for answer in [switch.appctl(&words(&line)), reference.appctl(&words(&line))] {
            assert_eq!(answer, Ok(String::new()), "{line}");
        }
    }
    let mut differ = Vec::new();
    let traces = FLOWS.iter().map(|flow| format!("ofproto/trace --names {flow}"));
    for line in traces.chain(PACKET_OUTS.iter().map(|out| format!("ofproto/trace-packet-out --names {out}")))
    {
        let asked = |answer: Result<String, String>| told(&answer.unwrap_or_else(|error| error));
        let (theirs, own) = (asked(reference.appctl(&words(&line))), asked(switch.appctl(&words(&line))));
        if theirs != own {
            differ.push(format!("{line}:\n--- Open vSwitch\n{theirs}\n--- ours\n{own}\n"));
        }
    }
    for flow in REFUSED {
        let line = format!("ofproto/trace {flow}");
        let first = |answer: Result<String, String>| {
            answer.unwrap_err().lines().next().unwrap_or_default().to_owned()
        };
        let (theirs, own) = (first(reference.appctl(&words(&line))), first(switch.appctl(&words(&line))));
        if theirs != own {
            differ.push(format!("{line}:\n--- Open vSwitch\n{theirs}\n--- ours\n{own}\n"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.concat());
    // The recursion is too deep, so the packet is dropped.
    let failed = switch.appctl(&words("ofproto/trace br0 in_port=1,dl_type=0x88b5")).unwrap();
    let last: Vec<&str> = failed.lines().rev().take(2).collect();
    assert!(
        last[0].starts_with("Translation failed (") && last[0].ends_with("), packet is dropped."),
        "{failed}"
    );
    assert_eq!(last[1], "Datapath actions: drop");
    // Flows in datapath syntax, with the port as datapath number or as name. The port determines the bridge.
    let number = switch.rig.port("h1")["id"].to_string();
    let rest = "eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0806),arp(sip=10.0.0.1,tip=10.0.0.2,op=1)";
    for line in [format!("in_port({number}),{rest}"), format!("netdev@trivium in_port(h1),{rest}")] {
        let traced = switch.appctl(&words(&format!("ofproto/trace {line}"))).unwrap();
        assert!(
            traced.contains("\nbridge(\"br0\")\n")
                && traced.contains(" 0. arp,in_port=1, priority 5\n    FLOOD\n"),
            "{traced}"
        );
    }
    // The source address of a generated packet is learned, as in Open vSwitch.
    let line = "ofproto/trace br0 in_port=3,dl_src=50:00:00:00:00:0b,dl_dst=50:00:00:00:00:02,dl_type=0x88b5 -generate --names";
    let traced = switch.appctl(&words(line)).unwrap();
    assert!(
        traced.contains("\n     -> learned that 50:00:00:00:00:0b is on port h3 in VLAN 0\n"),
        "{traced}"
    );
    assert!(switch.appctl(&["fdb/show", "br0"]).unwrap().contains("    3     0  50:00:00:00:00:0b"));
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

#[test]
fn explain_says_that_a_bridge_stands_alone() {
    require!("ovs-vsctl", "ovsdb-server");
    let switch = Switch::start(2);
    switch.build();
    switch.vsctl(
        "set-controller br0 tcp:127.0.0.1:9 -- set controller br0 inactivity_probe=300 max_backoff=1000",
    );
    eventually("it stands alone", PATIENCE, || {
        let told = switch.rig.ok(&["explain", "--in", "h1", "ip_src=10.8.0.1,ip_dst=10.8.0.2,udp"]);
        if told.contains("the bridge stands alone (fail mode standalone)") { Ok(()) } else { Err(told) }
    })
    .unwrap();
    switch.vsctl("set-fail-mode br0 secure");
    let told = switch.rig.ok(&["explain", "--in", "h1", "ip_src=10.8.0.1,ip_dst=10.8.0.2,udp"]);
    assert!(!told.contains("stands alone"), "{told}");
}
