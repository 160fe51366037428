//! Tests the daemon with a real `ovsdb-server`: changes made with `ovs-vsctl` and `ovs-appctl` take effect, and refused
//! parts are reported.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "ovsdb/commands.rs"]
mod commands;
#[path = "ovsdb/reference.rs"]
mod reference;
mod rig;
#[path = "ovsdb/texts.rs"]
mod texts;
#[path = "ovsdb/trace.rs"]
mod trace;
#[path = "ovsdb/wrapper.rs"]
mod wrapper;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rig::{PATIENCE, Rig, TRIVIUM};
use rustix::process::Signal;
use testbed::{OvsdbServer, RawReceiver, RawSender, UdpFlow, eventually, require};

/// A lab ([`Rig`]) whose daemon is configured by an OVSDB database.
struct Switch {
    rig: Rig,
    server: OvsdbServer,
}

impl Switch {
    fn new(hosts: u8) -> Switch {
        let rig = Rig::new(hosts);
        let server = OvsdbServer::start(&rig.path("ovs")).unwrap();
        Switch { rig, server }
    }

    fn start(hosts: u8) -> Switch {
        let mut switch = Switch::new(hosts);
        switch.run("");
        switch
    }

    fn configuration(&self, more: &str) -> String {
        let text =
            self.rig.configuration_with("", &vec![0; self.rig.hosts.len()]).replace("[bridge.br0]\n", "");
        text.replace("[memory]", &format!("unixctl = {:?}\n[memory]", self.rig.path("ctl")))
            + &format!("[ovsdb]\ndatabase = {:?}\n{more}", self.server.target())
    }

    fn run(&mut self, more: &str) {
        let configuration = self.configuration(more);
        self.rig.start(&configuration);
    }

    /// Runs `ovs-vsctl`, which waits until the daemon has applied the change.
    fn vsctl(&self, line: &str) -> String {
        self.server.vsctl(line.split(' ')).unwrap()
    }

    /// Returns a column of an interface, without quotes.
    fn interface(&self, name: &str, column: &str) -> String {
        self.vsctl(&format!("get interface {name} {column}")).replace('"', "")
    }

    fn until(&self, name: &str, column: &str, wanted: impl Fn(&str) -> bool) -> String {
        eventually(&format!("{column} of {name}"), PATIENCE, || {
            let value = self.interface(name, column);
            if wanted(&value) { Ok(value) } else { Err(value) }
        })
        .unwrap()
    }

    fn appctl(&self, arguments: &[&str]) -> Result<String, String> {
        appctl(&self.rig.path("ctl"), arguments)
    }

    /// Creates the bridge br0 in the database, with a port for each host.
    fn build(&self) {
        let ports = self.rig.hosts.iter().map(|host| format!(" -- add-port br0 {}", host.device()));
        let told = self.vsctl(&("add-br br0".to_owned() + &ports.collect::<String>()));
        assert_eq!(told, "", "no error is told");
    }
}

fn appctl(socket: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("ovs-appctl")
        .arg("-T")
        .arg("20")
        .arg("-t")
        .arg(socket)
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn a_bridge_is_built_and_taken_apart_by_ovs_vsctl() {
    require!("ovs-vsctl", "ovsdb-server");
    let switch = Switch::start(2);
    switch.build();
    switch.rig.until_reachable(1, 2);

    assert_eq!(switch.interface("br0", "ofport"), "65534");
    let mut numbers = [switch.interface("h1", "ofport"), switch.interface("h2", "ofport")];
    numbers.sort_unstable();
    assert_eq!(numbers, ["1", "2"]);
    switch.until("h1", "link_state", |state| state == "up");
    assert_eq!(switch.interface("h1", "mtu"), "1500");
    switch.until("h1", "statistics:rx_packets", |count| count != "0");
    let mac = switch.interface("br0", "mac_in_use").replace(':', "");
    assert_eq!(switch.vsctl("get bridge br0 datapath_id"), format!("\"0000{mac}\""));
    assert!(switch.vsctl("get open_vswitch . iface_types").contains("internal"));
    let port = switch.rig.port("h1");
    assert_eq!((port["owner"].as_str(), port["bridge"].as_str()), (Some("ovsdb"), Some("br0")));

    // LOCAL is an interface of the host.
    let hub = switch.rig.lab.hub();
    hub.run(["ip", "address", "add", "10.8.0.100/24", "dev", "br0"]).unwrap();
    hub.run(["ip", "link", "set", "br0", "up"]).unwrap();
    let local = || switch.rig.hosts[0].ping("10.8.0.100", 2).is_ok_and(|report| report.received > 0);
    eventually("LOCAL", PATIENCE, || if local() { Ok(()) } else { Err(String::new()) }).unwrap();

    // A link that goes down is reported.
    switch.rig.hosts[1].run(["ip", "link", "set", "eth0", "down"]).unwrap();
    switch.until("h2", "link_state", |state| state == "down");
    switch.rig.hosts[1].run(["ip", "link", "set", "eth0", "up"]).unwrap();
    switch.rig.until_reachable(1, 2);

    // Settings of a running port.
    switch.vsctl("set interface h1 mtu_request=1400 ofport_request=77");
    switch.until("h1", "ofport", |number| number == "77");
    switch.until("h1", "mtu", |mtu| mtu == "1400");

    switch.vsctl("del-port br0 h2");
    assert!(!switch.rig.hosts[0].reaches(&switch.rig.hosts[1]));
    assert!(!switch.rig.ok(&["show", "ports"]).contains("h2"));
    assert!(hub.run(["ip", "link", "show", "h2"]).is_ok(), "the device is the kernel's again");
    switch.vsctl("del-br br0");
    assert_eq!(switch.rig.ok(&["show", "bridges", "--json"]).trim(), "[]");
    assert!(hub.run(["ip", "link", "show", "br0"]).is_err(), "the bridge's interface went with it");
}

/// The interface LOCAL and other internal interfaces without an explicit MTU get the lowest MTU of the bridge's other
/// ports.
#[test]
fn internal_interfaces_follow_the_lowest_mtu() {
    require!("ip", "ovs-vsctl", "ovsdb-server");
    let switch = Switch::start(2);
    switch.build();
    switch.vsctl("add-port br0 in0 -- set interface in0 type=internal");
    let are = |local: &str, other: &str| {
        switch.until("br0", "mtu", |mtu| mtu == local);
        switch.until("in0", "mtu", |mtu| mtu == other);
    };
    are("1500", "1500");
    switch.vsctl("set interface h1 mtu_request=1400");
    are("1400", "1400");
    let hub = switch.rig.lab.hub();
    assert!(hub.run(["ip", "link", "show", "br0"]).unwrap().contains("mtu 1400"));
    // The interfaces also follow changes by other programs, to higher and lower values.
    for mtu in ["3000", "1350"] {
        hub.run(["ip", "link", "set", "h2", "mtu", mtu]).unwrap();
        let lowest = if mtu == "3000" { "1400" } else { mtu };
        are(lowest, lowest);
    }
    switch.vsctl("set interface h1 mtu_request=2000 -- set interface h2 mtu_request=2500");
    are("2000", "2000");
    // An internal interface with an explicit MTU counts like other ports.
    switch.vsctl("set interface in0 mtu_request=1300");
    are("1300", "1300");
    switch.vsctl("clear interface in0 mtu_request");
    are("2000", "2000");
    switch.vsctl("set interface br0 mtu_request=1450");
    are("1450", "1450");
    // A higher MTU that another program sets is reduced again.
    switch.vsctl("clear interface br0 mtu_request");
    are("2000", "2000");
    hub.run(["ip", "link", "set", "br0", "mtu", "9000"]).unwrap();
    are("2000", "2000");
    switch.vsctl("del-port h1 -- del-port h2");
    are("1500", "1500");
}

/// Returns a broadcast frame of an experimental protocol (IEEE 802 clause 9.2.4). The VLAN ID is in the VLAN tag and in
/// the payload.
fn tagged(vlan: u16) -> Vec<u8> {
    let [high, low] = vlan.to_be_bytes();
    let head = [[0xff; 6], [2, 0, 0, 0, 0x33, low]].concat();
    [head, vec![0x81, 0x00, high, low, 0x88, 0xb5, low], vec![0; 45]].concat()
}

/// Returns the VLAN IDs in the payloads of the frames that arrive at `wire`.
fn vlans_seen(wire: &RawReceiver) -> Vec<u8> {
    let mut seen = Vec::new();
    while let Some(frame) = wire.arrived(Duration::from_millis(500)).unwrap() {
        if frame[12..14] == [0x88, 0xb5] {
            seen.push(frame[14]);
        }
    }
    seen
}

#[test]
fn vlans_separate_and_join() {
    require!("ovs-vsctl", "ovsdb-server");
    let switch = Switch::start(3);
    switch.build();
    switch.rig.until_reachable(1, 2);
    let (one, two, three) = (&switch.rig.hosts[0], &switch.rig.hosts[1], &switch.rig.hosts[2]);
    switch.vsctl("set port h1 tag=10");
    assert!(!one.reaches(two), "untagged and VLAN 10");
    switch.vsctl("set port h2 tag=10");
    switch.rig.until_reachable(1, 2);
    assert!(!one.reaches(three));
    // Each tagged frame of a trunk reaches the ports of its VLAN.
    switch.vsctl("set port h2 tag=20 -- set port h3 trunks=10,20");
    let wires = [RawReceiver::open(one, "eth0").unwrap(), RawReceiver::open(two, "eth0").unwrap()];
    let sender = RawSender::open(three, "eth0").unwrap();
    for vlan in [10, 20, 30] {
        sender.send(&tagged(vlan)).unwrap();
    }
    assert_eq!(wires.each_ref().map(vlans_seen), [[10], [20]]);
    // A trunk with a native VLAN assigns untagged frames to the native VLAN.
    switch.vsctl("set port h3 vlan_mode=native-untagged tag=10 -- set port h2 tag=10");
    switch.rig.until_reachable(1, 3);
    switch.rig.until_reachable(1, 2);
    switch.vsctl("clear port h1 tag -- clear port h2 tag");
    switch.rig.until_reachable(1, 2);
    assert!(!one.reaches(three));
    // Both ports are trunks of all VLANs. A frame tagged with the VLAN that stands for untagged frames does
    // not leave untagged.
    let sender = RawSender::open(one, "eth0").unwrap();
    sender.send(&tagged(4094)).unwrap();
    sender.send(&tagged(0)).unwrap();
    assert_eq!(vlans_seen(&wires[1]), [0], "a tag of no VLAN is as none");
    let told = switch.vsctl("set port h1 tag=4094");
    assert!(switch.interface("h1", "error").contains("4094"), "{told}");
    assert_eq!(switch.interface("h1", "ofport"), "-1");
}

/// Rules can match one VLAN tag of a frame, unless the database sets a higher limit. With a higher limit, rules can
/// also match the fields after a second tag.
#[test]
fn rules_see_as_many_tags_as_the_database_says() {
    require!("ovs-vsctl", "ovs-ofctl", "ovsdb-server");
    let switch = Switch::start(2);
    switch.build();
    let management = format!("unix:{}", switch.rig.path("br0.mgmt").display());
    let ofctl = |command: &str, arguments: &[&str]| {
        let output = Command::new("ovs-ofctl").args([command, &management]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    ofctl("del-flows", &[]);
    for rule in ["priority=9,ip,actions=output:h2", "priority=8,dl_vlan=5,dl_type=0x8100,actions=output:h2"] {
        ofctl("add-flow", &[rule]);
    }
    let counts = || {
        let flows = ofctl("dump-flows", &[]);
        ["priority=9", "priority=8"].map(|rule| {
            let line = flows.lines().find(|line| line.contains(rule)).unwrap_or_default();
            let count = line.split("n_packets=").nth(1).and_then(|rest| rest.split(',').next()?.parse().ok());
            count.unwrap_or(0_u64)
        })
    };
    let sender = RawSender::open(&switch.rig.hosts[0], "eth0").unwrap();
    let mut frame = tagged(5)[..16].to_vec();
    frame.extend([0x81, 0x00, 0, 6, 0x08, 0x00, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0x66, 0xcf]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 9, 0, 8, 0, 0]);
    frame.resize(80, 0);
    let meets = |rule: usize| {
        eventually(&format!("packets meet rule {rule}"), PATIENCE, || {
            let before = counts();
            (0..5).for_each(|_| sender.send(&frame).unwrap());
            let mut wanted = before;
            wanted[rule] += 5;
            std::thread::sleep(Duration::from_millis(700));
            let after = counts();
            if after == wanted { Ok(()) } else { Err(format!("{before:?} became {after:?}")) }
        })
        .unwrap();
    };
    meets(1);
    switch.vsctl("set open_vswitch . other_config:vlan-limit=2");
    meets(0);
    switch.vsctl("set open_vswitch . other_config:vlan-limit=1");
    meets(1);
    let traced = |line: &[&str]| switch.appctl(line).unwrap();
    let digits: String = frame.iter().map(|octet| format!("{octet:02x}")).collect();
    assert!(traced(&["ofproto/trace", "br0", "in_port=1", &digits]).contains("priority 8"));
    switch.vsctl("set open_vswitch . other_config:vlan-limit=0");
    meets(0);
    assert!(traced(&["ofproto/trace", "br0", "in_port=1", &digits]).contains("priority 9"));
}

#[test]
fn what_cannot_be_had_is_told_and_the_rest_runs() {
    require!("ovs-vsctl", "ovsdb-server");
    let mut switch = Switch::new(3);
    // A port of the configuration file that the database also wants.
    switch.run("[port.h3]\nkind = \"af_xdp\"\ndevice = \"h3\"\n");
    let told = switch.vsctl(
        "add-br br0 -- add-port br0 h1 -- add-port br0 h2 -- add-port br0 later -- add-port br0 h3 -- add-port br0 vx \
         -- set interface vx type=vxlan options:remote_ip=10.0.0.1 -- add-bond br0 bond0 b1 b2",
    );
    assert!(told.contains("later") && told.contains("no device"), "ovs-vsctl prints it: {told}");
    switch.rig.until_reachable(1, 2);
    for (name, why) in
        [("later", "no device later"), ("h3", "belongs to file"), ("vx", "vxlan"), ("b1", "bonds")]
    {
        assert_eq!(switch.interface(name, "ofport"), "-1", "{name}");
        assert!(switch.interface(name, "error").contains(why), "{name}: {}", switch.interface(name, "error"));
    }
    assert_eq!(switch.interface("h1", "error"), "[]");
    // The interface is added as soon as its device exists, and its error is cleared.
    let hub = switch.rig.lab.hub();
    hub.run(["ip", "link", "add", "later", "type", "veth", "peer", "name", "peer"]).unwrap();
    switch.until("later", "ofport", |number| number != "-1");
    assert_eq!(switch.interface("later", "error"), "[]");
    // A removed device is reported, and does not delay other changes.
    hub.run(["ip", "link", "del", "later"]).unwrap();
    switch.until("later", "error", |error| error != "[]");
    switch.vsctl("set port h1 tag=5 -- set port h2 tag=5");
    switch.rig.until_reachable(1, 2);
}

/// If the configuration file and the database both define a bridge, the definition in the database is ignored. Other
/// bridges are created, and `ovs-vsctl` does not block.
#[test]
fn a_bridge_that_belongs_to_the_file_is_left_out_alone() {
    require!("ovs-vsctl", "ovsdb-server");
    let mut switch = Switch::new(3);
    switch.run("[bridge.br9]\n");
    let told =
        switch.vsctl("add-br br9 -- add-port br9 h3 -- add-br br0 -- add-port br0 h1 -- add-port br0 h2");
    assert!(told.contains("belongs to file"), "ovs-vsctl prints it: {told}");
    switch.rig.until_reachable(1, 2);
    for name in ["br9", "h3"] {
        assert!(switch.interface(name, "error").contains("belongs to file"), "{name}");
    }
    assert_eq!(switch.interface("h1", "error"), "[]");
    // Later changes of other bridges are applied, and the ports of the refused bridge can move to another
    // one.
    switch.vsctl("del-br br9 -- add-port br0 h3");
    switch.rig.until_reachable(1, 3);
}

#[test]
fn ports_beyond_the_memory_are_refused_one_by_one() {
    require!("ovs-vsctl", "ovsdb-server");
    let mut switch = Switch::new(3);
    let small = switch.configuration("").replace("frames = 32768", "frames = 512");
    switch.rig.start(&small);
    let told = switch.vsctl("add-br br0 -- add-port br0 h1 -- add-port br0 h2 -- add-port br0 h3");
    assert!(told.contains("frames"), "{told}");
    let without = ["h1", "h2", "h3"].iter().filter(|name| switch.interface(name, "ofport") == "-1").count();
    assert_eq!(without, 1);
    // Frame memory that becomes free is used for the refused ports.
    let gone = ["h1", "h2"].into_iter().find(|name| switch.interface(name, "ofport") != "-1").unwrap();
    switch.vsctl(&format!("del-port br0 {gone}"));
    for name in ["h1", "h2", "h3"].iter().filter(|name| **name != gone) {
        assert_ne!(switch.interface(name, "ofport"), "-1", "{name}");
    }
}

#[test]
fn policing_limits_what_an_interface_sends() {
    require!("ovs-vsctl", "ovsdb-server");
    let switch = Switch::start(2);
    switch.build();
    switch.rig.until_reachable(1, 2);
    switch.vsctl("set interface h1 ingress_policing_kpkts_rate=1 ingress_policing_kpkts_burst=1");
    assert_eq!(switch.interface("h1", "error"), "[]");
    let flow = UdpFlow::start(&switch.rig.hosts[0], &switch.rig.hosts[1], 5_000).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let report = flow.stop().unwrap();
    // A burst of a thousand and a thousand per second: about three thousand of ten pass.
    assert!(report.received > report.sent / 10 && report.received < report.sent * 6 / 10, "{report:?}");
    switch.vsctl("set interface h1 ingress_policing_kpkts_rate=0");
    let flow = UdpFlow::start(&switch.rig.hosts[0], &switch.rig.hosts[1], 1_000).unwrap();
    flow.wait_for(1_000, PATIENCE).unwrap();
    assert_eq!(flow.stop().unwrap().lost(), 0);
}

#[test]
fn policing_of_a_tap_is_its_workers() {
    require!("ovs-vsctl", "ovsdb-server");
    let switch = Switch::start(1);
    switch.build();
    switch.vsctl("add-port br0 vm0 -- set interface vm0 type=tap ingress_policing_kpkts_rate=1");
    assert_eq!(switch.interface("vm0", "error"), "[]");
    assert_eq!(switch.rig.port("vm0")["filter"], "policing.vm0");
    let shown = switch.rig.ok(&["show", "filters"]);
    assert!(shown.contains("policing.vm0: on vm0"), "{shown}");
}

#[test]
fn a_server_that_restarts_under_traffic_costs_no_packet() {
    require!("ovs-vsctl", "ovsdb-server");
    let mut switch = Switch::start(3);
    switch.build();
    switch.rig.until_reachable(1, 2);
    switch.rig.pin_neighbours();
    let numbers = [switch.interface("h1", "ofport"), switch.interface("h2", "ofport")];
    let flow = UdpFlow::start(&switch.rig.hosts[0], &switch.rig.hosts[1], 2_000).unwrap();
    flow.wait_for(1_000, PATIENCE).unwrap();
    switch.server.halt().unwrap();
    flow.wait_for(2_000, PATIENCE).unwrap();
    switch.server.resume().unwrap();
    // The change is detected, whether it happened before or after the daemon reconnected.
    switch.vsctl("--no-wait del-port br0 h3");
    eventually("the change", PATIENCE, || {
        let ports = switch.rig.ok(&["show", "ports"]);
        if ports.contains("h3") { Err(ports) } else { Ok(()) }
    })
    .unwrap();
    switch.vsctl("set open_vswitch . external-ids:seen=yes");
    flow.wait_for(2_000, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
    assert_eq!(numbers, [switch.interface("h1", "ofport"), switch.interface("h2", "ofport")]);
}

#[test]
fn a_daemon_that_was_killed_finds_everything_again() {
    require!("ovs-vsctl", "ovsdb-server");
    let mut switch = Switch::start(2);
    switch.build();
    switch.vsctl("set interface h2 ofport_request=9");
    switch.vsctl("clear interface h2 ofport_request");
    switch.rig.until_reachable(1, 2);
    assert_eq!(switch.interface("h2", "ofport"), "9");
    let daemon = switch.rig.daemon.take().unwrap();
    daemon.stop(Signal::KILL, PATIENCE).unwrap();
    // The database changes while no daemon runs. `ovs-vsctl` would otherwise wait.
    switch.vsctl("--no-wait add-port br0 t1 -- set interface t1 type=internal");
    switch.run("");
    // The ports exist when the daemon reports that it is ready.
    assert_eq!(switch.rig.port("h1")["bridge"], "br0");
    switch.rig.until_reachable(1, 2);
    assert_eq!(switch.interface("h2", "ofport"), "9", "numbers stay");
    switch.until("t1", "ofport", |number| number != "[]" && number != "-1");
    switch.vsctl("set port h1 tag=3 -- set port h2 tag=3");
    switch.rig.until_reachable(1, 2);
    switch.vsctl("del-br br0");
    let hub = switch.rig.lab.hub();
    for device in ["br0", "t1"] {
        assert!(hub.run(["ip", "link", "show", device]).is_err(), "{device} is left");
    }
    assert_eq!(switch.rig.pins(), Vec::<String>::new());
}

#[test]
fn a_successor_keeps_the_ports_and_follows_on() {
    require!("ovs-vsctl", "ovsdb-server");
    let switch = Switch::start(2);
    switch.build();
    switch.rig.until_reachable(1, 2);
    switch.rig.pin_neighbours();
    let flow = UdpFlow::start(&switch.rig.hosts[0], &switch.rig.hosts[1], 2_000).unwrap();
    flow.wait_for(1_000, PATIENCE).unwrap();
    switch.rig.ok(&["upgrade", "--binary", TRIVIUM]);
    switch.vsctl("add-port br0 t1 -- set interface t1 type=internal");
    assert_eq!(switch.interface("t1", "ofport"), "3");
    flow.wait_for(1_000, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken), (0, 0), "{report:?}");
    assert!(switch.appctl(&["version"]).unwrap().contains("Trivium"));
    switch.appctl(&["exit"]).unwrap();
}

#[test]
fn without_a_server_the_daemon_starts_and_waits_for_it() {
    require!("ovs-vsctl", "ovsdb-server");
    let mut switch = Switch::start(2);
    switch.build();
    switch.rig.daemon = None;
    switch.server.halt().unwrap();
    switch.run("");
    assert_eq!(switch.rig.ok(&["show", "bridges", "--json"]).trim(), "[]");
    switch.server.resume().unwrap();
    switch.rig.until_reachable(1, 2);
}

#[test]
fn ovs_appctl_is_answered() {
    require!("ovs-vsctl", "ovsdb-server", "ovs-appctl");
    let mut switch = Switch::start(2);
    switch.build();
    switch.rig.until_reachable(1, 2);
    assert!(switch.appctl(&["version"]).unwrap().contains("Trivium"));
    assert!(switch.appctl(&["list-commands"]).unwrap().contains("fdb/show"));
    let text = switch.appctl(&["fdb/show", "br0"]).unwrap();
    let (mac, number) = (switch.rig.hosts[0].mac().unwrap(), switch.interface("h1", "ofport"));
    let line = text.lines().find(|line| line.contains(&mac)).unwrap_or_else(|| panic!("{mac}: {text}"));
    assert_eq!(line.split_whitespace().take(3).collect::<Vec<_>>(), [number.as_str(), "0", mac.as_str()]);
    assert!(switch.appctl(&["fdb/show", "br1"]).unwrap_err().contains("no such bridge"));
    assert!(switch.appctl(&["coverage/show"]).unwrap().contains("port_rx"));
    assert!(switch.appctl(&["memory/show"]).unwrap().contains("ports:3"));
    switch.appctl(&["vlog/set", "ANY:file:dbg"]).unwrap();
    assert!(switch.appctl(&["vlog/set", "loud"]).unwrap_err().contains("no destination, level, or module"));
    assert!(switch.appctl(&["ofproto/paint"]).unwrap_err().contains("not a valid command"));
    switch.appctl(&["exit"]).unwrap();
    let (status, output) = switch.rig.daemon.take().unwrap().finish(PATIENCE).unwrap();
    assert!(status.success(), "{output}");
    assert!(!switch.rig.path("ctl").exists());
}

#[test]
fn scripts_that_start_ovs_vswitchd_start_trivium() {
    require!("ovs-vsctl", "ovsdb-server", "ovs-appctl", "bash");
    let switch = Switch::new(2);
    let wrapper = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/ovs-vswitchd");
    let (run, pidfile) = (switch.rig.path("run"), switch.rig.path("run/ovs-vswitchd.pid"));
    let target = switch.server.target();
    let line = [
        wrapper,
        &target,
        "--pidfile",
        "--log-file",
        "--detach",
        "-vconsole:off",
        "--mlockall",
        "-vfile:info",
    ];
    let mut command = switch.rig.lab.hub().command(line);
    for (name, path) in [("RUNDIR", "run"), ("LOGDIR", "log"), ("DBDIR", "db"), ("SYSCONFDIR", "etc")] {
        command.env(format!("OVS_{name}"), switch.rig.path(path));
    }
    let output = command.env("TRIVIUM", TRIVIUM).output().unwrap();
    let log = || std::fs::read_to_string(switch.rig.path("log/ovs-vswitchd.log")).unwrap_or_default();
    assert!(output.status.success(), "{output:?}\n{}", log());
    switch.build();
    switch.rig.until_reachable(1, 2);
    let pid = std::fs::read_to_string(&pidfile).unwrap();
    let socket = run.join(format!("ovs-vswitchd.{}.ctl", pid.trim()));
    assert!(appctl(&socket, &["version"]).unwrap().contains("Trivium"));
    assert!(log().contains("following the database"), "{}", log());
    assert!(!log().contains('\x1b'), "no colours in a file");
    // A second daemon is refused.
    let second = command.output().unwrap();
    assert!(String::from_utf8_lossy(&second.stderr).contains("already running"), "{second:?}");
    // `ovs-appctl` finds the daemon by its PID file, which names the successor after an upgrade.
    let found = |line: &str| {
        let output =
            Command::new("ovs-appctl").args(["-T", "20", line]).env("OVS_RUNDIR", &run).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    };
    assert!(found("version").unwrap().contains("Trivium"));
    let called =
        |pid: &str| std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("comm")).unwrap();
    assert_eq!(called(&pid), "ovs-vswitchd\n", "as `ovs-ctl` looks for it");
    let refused = found("ofproto/paint").unwrap_err();
    assert!(refused.contains("valid commands)\novs-appctl:"), "on lines of their own: {refused}");
    let mut upgrade = Command::new(TRIVIUM);
    upgrade.env("TRIVIUM_SOCKET", run.join("trivium.sock")).args(["upgrade", "--binary", TRIVIUM]);
    assert!(upgrade.output().unwrap().status.success(), "{}", log());
    let pid = eventually("the successor's number", PATIENCE, || {
        let now = std::fs::read_to_string(&pidfile).unwrap_or_default();
        if now != pid && found("version").is_ok() { Ok(now) } else { Err(now) }
    })
    .unwrap();
    assert_eq!(called(&pid), "ovs-vswitchd\n");
    found("exit").unwrap();
    let gone = || if Path::new("/proc").join(pid.trim()).exists() { Err(log()) } else { Ok(()) };
    eventually("its end", PATIENCE, gone).unwrap();
    let left = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("ovs-vswitchd.");
    let left: Vec<_> = std::fs::read_dir(&run)
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .filter(|name| left(name))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    // Stale files of a killed process do not prevent a start, even if its process id was reused.
    std::fs::write(&pidfile, format!("{}\n", std::process::id())).unwrap();
    let again = command.output().unwrap();
    assert!(again.status.success(), "{again:?}\n{}", log());
    found("exit").unwrap();
    eventually("its end", PATIENCE, || if pidfile.exists() { Err(log()) } else { Ok(()) }).unwrap();
}

#[test]
fn a_bridge_is_led_by_ovs_ofctl_and_by_a_controller() {
    require!("ovs-vsctl", "ovsdb-server", "ovs-ofctl", "ovs-testcontroller");
    let switch = Switch::start(2);
    switch.build();
    switch.rig.until_reachable(1, 2);
    let hosts = &switch.rig.hosts;
    // A bridge without settings for controllers or for the fail mode.
    let bridge = format!("unix:{}", switch.rig.path("br0.mgmt").display());
    let ofctl = |command: &str, rest: &[&str]| {
        let output = Command::new("ovs-ofctl").args([command, &bridge]).args(rest).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    };
    assert!(ofctl("dump-flows", &[]).unwrap().contains("priority=0 actions=NORMAL"));
    ofctl("add-flow", &["priority=9,icmp,actions=drop"]).unwrap();
    assert!(!hosts[0].reaches(&hosts[1]));
    ofctl("del-flows", &["icmp"]).unwrap();
    switch.rig.until_reachable(1, 2);
    // The bridge runs without OpenFlow.
    switch.vsctl("set bridge br0 other_config:openflow=false");
    eventually("nobody listens", PATIENCE, || ofctl("show", &[]).map_or(Ok(()), Err)).unwrap();
    switch.rig.until_reachable(1, 2);
    switch.vsctl("remove bridge br0 other_config openflow");
    eventually("it listens", PATIENCE, || ofctl("show", &[]).map(drop)).unwrap();
    switch.vsctl("set-fail-mode br0 secure");
    eventually("no rule, no way", PATIENCE, || {
        if hosts[0].reaches(&hosts[1]) { Err(String::new()) } else { Ok(()) }
    })
    .unwrap();
    // Port numbers are those of the database.
    let (one, two) = (switch.interface("h1", "ofport"), switch.interface("h2", "ofport"));
    for (from, to) in [(&one, &two), (&two, &one)] {
        let rule = format!("in_port={from},actions=output:{to}");
        ofctl("add-flow", &[&rule]).unwrap();
    }
    switch.rig.until_reachable(1, 2);
    // A learning controller replaces these rules.
    let mut command = switch.rig.lab.hub().command(["ovs-testcontroller", "ptcp:6699:127.0.0.1"]);
    command.env("OVS_RUNDIR", &switch.rig.directory);
    let controller = testbed::Process::start(command).unwrap();
    ofctl("del-flows", &[]).unwrap();
    switch.vsctl("set-controller br0 tcp:127.0.0.1:6699");
    eventually("the controller is there", PATIENCE, || {
        let told = switch.vsctl("get controller br0 is_connected");
        if told.trim() == "true" { Ok(()) } else { Err(told) }
    })
    .unwrap();
    switch.rig.until_reachable(1, 2);
    controller.stop(Signal::TERM, PATIENCE).unwrap();
    eventually("it is gone", PATIENCE, || {
        let told = switch.vsctl("get controller br0 is_connected");
        if told.trim() == "false" { Ok(()) } else { Err(told) }
    })
    .unwrap();
}
