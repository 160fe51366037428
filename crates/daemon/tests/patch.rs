//! Tests bridges that are connected by patch ports, with the real binary. The bridges are created by `ovs-vsctl` and by
//! configuration files, have rules that the stock `ovs-ofctl` adds, and are disconnected under traffic.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::process::Command;
use std::time::{Duration, Instant};

use rig::{PATIENCE, Rig, TRIVIUM};
use rustix::process::Signal;
use testbed::{OvsdbServer, Process, RawSender, UdpFlow, eventually, require};

/// A lab with two hosts on different bridges, which an OVSDB database defines.
struct Pair {
    rig: Rig,
    server: OvsdbServer,
}

impl Pair {
    fn start() -> Pair {
        let mut rig = Rig::new(2);
        let server = OvsdbServer::start(&rig.path("ovs")).unwrap();
        let text = rig.configuration_with("", &[0, 0]).replace("[bridge.br0]\n", "");
        rig.start(&(text + &format!("[ovsdb]\ndatabase = {:?}\n", server.target())));
        let pair = Pair { rig, server };
        let made = "add-br br0 -- set-fail-mode br0 secure -- add-port br0 h1 \
             -- add-br br1 -- set-fail-mode br1 secure -- add-port br1 h2";
        assert_eq!(pair.vsctl(made), "");
        pair.rig.pin_neighbours();
        pair
    }

    /// Runs `ovs-vsctl`, which waits until the daemon has applied the change.
    fn vsctl(&self, line: &str) -> String {
        self.server.vsctl(line.split(' ').filter(|word| !word.is_empty())).unwrap()
    }

    /// Waits until a column of an interface contains `wanted`.
    fn until(&self, name: &str, column: &str, wanted: &str) {
        eventually(&format!("{column} of {name}"), PATIENCE, || {
            let value = self.vsctl(&format!("get interface {name} {column}"));
            if value.contains(wanted) { Ok(()) } else { Err(value) }
        })
        .unwrap();
    }

    fn reach(&self) -> bool {
        self.rig.hosts[0].reaches(&self.rig.hosts[1])
    }
}

fn ofctl(rig: &Rig, bridge: &str, arguments: &[&str]) -> String {
    let socket = format!("unix:{}", rig.path(&format!("{bridge}.mgmt")).display());
    let (command, rest) = arguments.split_first().unwrap();
    let mut client = Command::new("ovs-ofctl");
    let output = client.args(["-O", "OpenFlow14", command, &socket]).args(rest).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the numbers of packets received and sent on a port, as the stock `ovs-ofctl` reports them.
fn counted(rig: &Rig, bridge: &str, port: &str) -> (u64, u64) {
    let text = ofctl(rig, bridge, &["dump-ports", port]);
    let mut counts =
        text.split("pkts=").skip(1).filter_map(|part| part.split(',').next()?.trim().parse().ok());
    (counts.next().unwrap(), counts.next().unwrap())
}

#[test]
fn two_bridges_with_rules_are_joined_by_ovs_vsctl() {
    require!("ip", "ping", "ethtool", "ovs-vsctl", "ovsdb-server", "ovs-ofctl");
    let pair = Pair::start();
    // The first end waits for the other one.
    pair.vsctl("add-port br0 p0 -- set interface p0 type=patch options:peer=p1 ofport_request=9");
    pair.until("p0", "error", "its peer p1 is not there");
    pair.until("p0", "link_state", "down");
    assert_eq!(pair.vsctl("get interface p0 ofport").trim(), "9");
    assert!(ofctl(&pair.rig, "br0", &["show"]).contains("LINK_DOWN"));
    for rule in ["in_port=h1,actions=output:p0", "in_port=p0,actions=output:h1"] {
        ofctl(&pair.rig, "br0", &["add-flow", rule]);
    }
    assert!(!pair.reach());
    pair.vsctl("add-port br1 p1 -- set interface p1 type=patch options:peer=p0");
    for rule in ["in_port=h2,actions=output:p1", "in_port=p1,actions=output:h2"] {
        ofctl(&pair.rig, "br1", &["add-flow", rule]);
    }
    for port in ["p0", "p1"] {
        pair.until(port, "link_state", "up");
        pair.until(port, "error", "[]");
    }
    assert!(!ofctl(&pair.rig, "br0", &["dump-ports-desc", "p0"]).contains("LINK_DOWN"));
    pair.rig.until_reachable(1, 2);
    assert_eq!(pair.rig.hosts[0].ping(pair.rig.hosts[1].ip(), 20).unwrap().loss(), 0.0);
    let flow = UdpFlow::start(&pair.rig.hosts[0], &pair.rig.hosts[1], 2_000).unwrap();
    flow.wait_for(1_000, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!(report.lost(), 0, "{report:?}");
    // Packets sent on one end are received on the other end.
    eventually("both ends count the same", PATIENCE, || {
        let ((rx0, tx0), (rx1, tx1)) = (counted(&pair.rig, "br0", "p0"), counted(&pair.rig, "br1", "p1"));
        let alike = tx0 >= 1_000 && (rx0, tx0) == (tx1, rx1);
        if alike { Ok(()) } else { Err(format!("{rx0} {tx0} {rx1} {tx1}")) }
    })
    .unwrap();
    // Patch ports have no device and are excluded from the hook (XDP program).
    let bridges: serde_json::Value =
        serde_json::from_str(&pair.rig.ok(&["show", "bridges", "--json"])).unwrap();
    for bridge in bridges.as_array().unwrap() {
        assert_eq!(bridge["hook_flows"].as_u64().unwrap_or(0), 0, "{bridge}");
    }
    let told = pair.rig.ok(&[
        "explain",
        "--in",
        "h1",
        "eth_dst=02:00:00:00:00:09,ip_src=10.8.0.1,ip_dst=10.8.0.2,udp",
    ]);
    assert!(told.contains("p0") && told.contains("p1") && told.contains("h2"), "{told}");
    // An upgrade keeps the connection without packet loss.
    let flow = UdpFlow::start(&pair.rig.hosts[0], &pair.rig.hosts[1], 2_000).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    pair.rig.ok(&["upgrade", "--binary", TRIVIUM]);
    flow.wait_for(500, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!(report.lost(), 0, "{report:?}");
}

#[test]
fn a_peer_goes_and_comes_back_under_traffic() {
    require!("ip", "ping", "ethtool", "ovs-vsctl", "ovsdb-server", "ovs-ofctl");
    let pair = Pair::start();
    pair.vsctl(
        "add-port br0 p0 -- set interface p0 type=patch options:peer=p1 \
         -- add-port br1 p1 -- set interface p1 type=patch options:peer=p0 ofport_request=5",
    );
    for bridge in ["br0", "br1"] {
        ofctl(&pair.rig, bridge, &["add-flow", "actions=NORMAL"]);
    }
    let flow = UdpFlow::start(&pair.rig.hosts[0], &pair.rig.hosts[1], 2_000).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    for _ in 0..3 {
        pair.vsctl("del-port br1 p1");
        pair.until("p0", "link_state", "down");
        assert!(!pair.reach());
        pair.vsctl("add-port br1 p1 -- set interface p1 type=patch options:peer=p0 ofport_request=5");
        pair.until("p0", "link_state", "up");
        flow.wait_for(200, PATIENCE).unwrap();
    }
    drop(flow.stop());
    // Invalid peers are refused with a reason.
    let refused = |name: &str, peer: &str, why: &str| {
        pair.vsctl(&format!("add-port br0 {name} -- set interface {name} type=patch options:peer={peer}"));
        pair.until(name, "error", why);
        assert_eq!(pair.vsctl(&format!("get interface {name} ofport")).trim(), "-1");
        pair.vsctl(&format!("del-port br0 {name}"));
    };
    refused("own", "own", "its own peer");
    refused("third", "p1", "has another peer");
    refused("dev", "h2", "is of kind af_xdp");
    pair.vsctl("add-port br0 none -- set interface none type=patch");
    pair.until("none", "error", "options:peer");
    assert!(pair.reach(), "nobody else has noticed");
}

/// Returns a configuration with two hosts on separate bridges. The bridges are connected by `pairs` pairs of patch
/// ports.
fn joined(rig: &Rig, pairs: usize) -> String {
    let mut text = rig.configuration_with("", &[10, 0]).replace("access = 10\n", "")
        + "[port.h2]\nkind = \"af_xdp\"\n[bridge.br1.port.h2]\n";
    for n in 0..pairs {
        for (bridge, own, peer) in [("br0", "a", "b"), ("br1", "b", "a")] {
            let one = format!(
                "[port.{own}{n}]\nkind = \"patch\"\npeer = \"{peer}{n}\"\n[bridge.{bridge}.port.{own}{n}]\n"
            );
            text += &one;
        }
    }
    text
}

#[test]
fn a_learning_bridge_is_joined_to_one_with_rules() {
    require!("ip", "ping", "ethtool", "ovs-ofctl");
    let mut rig = Rig::new(2);
    let text = joined(&rig, 1) + "[bridge.br1.openflow]\nfail_mode = \"secure\"\n";
    rig.start(&text);
    rig.pin_neighbours();
    assert!(!rig.hosts[0].reaches(&rig.hosts[1]));
    ofctl(&rig, "br1", &["add-flow", "in_port=h2,actions=output:b0"]);
    ofctl(&rig, "br1", &["add-flow", "in_port=b0,actions=output:h2"]);
    rig.until_reachable(1, 2);
    let stations = rig.stations();
    let behind = |port: &str| stations.iter().any(|(_, _, on)| on == port);
    assert!(behind("h1") && behind("a0"), "{stations:?}");
}

#[test]
fn a_loop_of_patch_ports_ends() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let text = joined(&rig, 2);
    rig.start(&text);
    let sender = RawSender::open(&rig.hosts[0], "eth0").unwrap();
    let broadcast = [[0xff; 6].as_slice(), &[2, 0, 0, 0, 0, 9, 0x88, 0xb5], &[0; 50]].concat();
    for _ in 0..20 {
        sender.send(&broadcast).unwrap();
    }
    eventually("loops are cut", PATIENCE, || {
        // A packet that cannot be sent to a patch port counts for the port on which it was received.
        let cut: u64 = ["h1", "a0", "a1", "b0", "b1"].iter().map(|port| rig.dropped(port, "hop-limit")).sum();
        if cut >= 40 { Ok(()) } else { Err(cut.to_string()) }
    })
    .unwrap();
    // The worker sleeps again.
    eventually("an idle worker sleeps", PATIENCE, || {
        let received = || rig.port("a0")["counters"]["rx_packets"].as_u64().unwrap();
        let before = received();
        std::thread::sleep(Duration::from_millis(300));
        let workers: serde_json::Value =
            serde_json::from_str(&rig.ok(&["show", "workers", "--json"])).unwrap();
        let busy = workers[0]["busy"].as_f64().unwrap();
        if received() == before && busy < 0.05 { Ok(()) } else { Err(workers.to_string()) }
    })
    .unwrap();
}

#[test]
fn a_router_is_behind_a_patch_port() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(1);
    let text = rig.configuration("")
        + "[port.a0]\nkind = \"patch\"\npeer = \"r0\"\n[bridge.br0.port.a0]\naccess = 10\n\
           [port.r0]\nkind = \"patch\"\npeer = \"a0\"\n[router.edge.port.r0]\n";
    rig.start(&text);
    // The kernel answers through the interface's mirror, and its packets go back through the patch pair.
    rig.lab.hub().run(["ip", "address", "replace", "10.8.0.254/24", "dev", "r0"]).unwrap();
    eventually("the router answers", PATIENCE, || match rig.hosts[0].ping("10.8.0.254", 2) {
        Ok(report) if report.loss() == 0.0 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .unwrap();
    let sent = |port: &str| rig.port(port)["counters"]["tx_packets"].as_u64().unwrap();
    assert!(sent("a0") >= 3 && sent("r0") >= 3, "ARP and echo, both ways");
}

#[test]
fn both_bridges_rules_are_back_after_a_kill_under_traffic() {
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let mut rig = Rig::new(2);
    let text = joined(&rig, 1)
        + "[bridge.br0.openflow]\nfail_mode = \"secure\"\n[bridge.br1.openflow]\nfail_mode = \"secure\"\n";
    rig.start(&text);
    rig.pin_neighbours();
    for (bridge, host, patch, last) in [("br0", "h1", "a0", 0xa0), ("br1", "h2", "b0", 0xb0)] {
        for line in [
            &["add-meter", &format!("meter={last},pktps,band=type=drop,rate=1000000")][..],
            &["add-group", &format!("group_id=1,type=select,bucket=weight:{last},output:{host}")],
            &["add-flow", &format!("in_port={host},actions=meter:{last},output:{patch}")],
            &["add-flow", &format!("in_port={patch},actions=resubmit(,1)")],
            &["add-flow", &format!("cookie={:#x},table=1,actions=group:1", 0x1a57_c00c_1e00_0000_u64 + last)],
        ] {
            ofctl(&rig, bridge, line);
        }
    }
    for (bridge, last) in [("br0", 0xa0), ("br1", 0xb0)] {
        let wanted = (0x1a57_c00c_1e00_0000_u64 + last).to_be_bytes();
        eventually("the rules are in the file", PATIENCE, || {
            let file = rig.path("state").join("rules").join(format!("{bridge}.rules"));
            let octets = std::fs::read(file).unwrap_or_default();
            if octets.windows(8).any(|octets| octets == wanted) { Ok(()) } else { Err(bridge.into()) }
        })
        .unwrap();
    }
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 5_000).unwrap();
    flow.wait_for(500, PATIENCE).unwrap();
    let before_all: Vec<String> = ["br0", "br1"].map(|bridge| told(&rig, bridge)).to_vec();
    rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
    let before = flow.received();
    let start = Instant::now();
    let file = rig.path("trivium.toml");
    let command = rig.lab.hub().command([TRIVIUM, "run", "--restore", "-c", file.to_str().unwrap()]);
    rig.daemon = Some(Process::start(command).unwrap());
    while flow.received() == before && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_micros(500));
    }
    let forwarding = start.elapsed();
    println!("packets go through both bridges {forwarding:?} after the start of the process");
    assert!(forwarding < PATIENCE / 2, "{forwarding:?}");
    rig.daemon().wait_for_line("ready:", PATIENCE).unwrap();
    let back: Vec<String> = ["br0", "br1"].map(|bridge| told(&rig, bridge)).to_vec();
    assert_eq!(back, before_all);
    flow.wait_for(500, PATIENCE).unwrap();
    drop(flow.stop());
    assert!(rig.hosts[1].reaches(&rig.hosts[0]), "and the other way");
}

/// Returns the rules, groups, meters and port numbers of a bridge as text, without counters.
fn told(rig: &Rig, bridge: &str) -> String {
    let lists = [&["--no-stats", "dump-flows"][..], &["dump-groups"], &["dump-meters"], &["show"]];
    let mut text = String::new();
    for list in lists {
        let (options, command) = list.split_at(list.len() - 1);
        let socket = format!("unix:{}", rig.path(&format!("{bridge}.mgmt")).display());
        let mut client = Command::new("ovs-ofctl");
        let output =
            client.args(["-O", "OpenFlow14"]).args(options).args(command).arg(&socket).output().unwrap();
        assert!(output.status.success(), "{list:?}: {}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        // Transaction ids differ.
        lines.lines().filter(|line| !line.contains("xid=")).for_each(|line| text += &format!("{line}\n"));
    }
    text
}
