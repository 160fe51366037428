//! What happens to the devices of a running daemon, while traffic flows: deleted, renamed, set down and up, resized, gone
//! with their namespace.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use rig::{PATIENCE, Rig};
use testbed::{UdpFlow, require};

#[test]
fn devices_are_deleted_renamed_and_set_down_under_traffic() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(3);
    let configuration = rig.configuration("persist = false");
    rig.start(&configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    let hub = rig.lab.hub().clone();

    hub.run(["ip", "link", "set", "dev", "h3", "name", "other"]).unwrap();
    rig.port_until("h3", "renamed", |port| port["device"] == "other" && port["link_up"] == true);
    rig.until_reachable(1, 3);

    hub.run(["ip", "link", "set", "dev", "other", "down"]).unwrap();
    rig.port_until("h3", "down", |port| port["link_up"] == false);
    hub.run(["ip", "link", "set", "dev", "other", "up"]).unwrap();
    rig.port_until("h3", "up", |port| port["link_up"] == true);
    rig.until_reachable(1, 3);

    hub.run(["ip", "link", "set", "dev", "other", "mtu", "1400"]).unwrap();
    rig.port_until("h3", "resized", |port| port["mtu"] == 1400);
    rig.until_reachable(1, 3);

    hub.run(["ip", "link", "del", "dev", "other"]).unwrap();
    rig.port_until("h3", "in trouble", |port| {
        port["trouble"].as_str().is_some_and(|why| why.contains("deleted"))
    });
    let doctor = rig.trivium(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("error    port.h3"));
    // Back again under its name: the port is opened by itself.
    let host = rig.hosts[2].name().to_owned();
    hub.run(["ip", "link", "add", "name", "h3", "type", "veth", "peer", "name", "eth0", "netns", &host])
        .unwrap();
    rig.hosts[2].offloads("off").unwrap();
    rig.hosts[2].run(["ip", "address", "add", "10.8.0.3/24", "dev", "eth0"]).unwrap();
    rig.hosts[2].run(["ip", "link", "set", "dev", "eth0", "up"]).unwrap();
    rig.hosts[0].run(["ip", "neighbour", "flush", "all"]).unwrap();
    rig.hosts[0].run(["ip", "neighbour", "del", "10.8.0.3", "dev", "eth0"]).ok();
    rig.pin_neighbours();
    rig.until_reachable(1, 3);

    flow.wait_for(200, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken), (0, 0), "the others never noticed: {report:?}");
    assert!(rig.daemon().is_running());
}

#[test]
fn a_namespace_vanishes_under_its_port() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let far = rig.lab.namespace("far").unwrap();
    let tenant = rig.lab.namespace("tenant").unwrap();
    let configuration = format!(
        "{}[port.t]\nkind = \"veth\"\ndevice = \"t\"\nnamespace = \"{}\"\npersist = false\n\
         peer = {{ name = \"eth0\", namespace = \"{}\", address = [\"10.8.0.9/24\"] }}\n[bridge.br0.port.t]\naccess = 10\n",
        rig.configuration("persist = false"),
        far.name(),
        tenant.name(),
    );
    rig.start(&configuration);
    rig.until_reachable(1, 2);
    assert!(rig.hosts[0].ping("10.8.0.9", 5).is_ok(), "{}", rig.ok(&["show", "ports"]));
    far.remove_name().unwrap();
    rig.port_until("t", "in trouble", |port| port["trouble"].is_string());
    assert!(rig.hosts[0].ping("10.8.0.9", 2).is_err());
    rig.until_reachable(1, 2);
}
