//! Changes of the configuration on the real binary: whole or not at all, and each field does what it says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use rig::{PATIENCE, Rig};
use testbed::{UdpFlow, require};

/// Applies a text that must be refused, and gives what was said.
fn refused(rig: &Rig, text: &str) -> String {
    let file = rig.write("refused.toml", text);
    let output = rig.trivium(&["apply", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Applies a text that must be taken, and gives what was said.
fn applied(rig: &Rig, text: &str) -> String {
    let file = rig.write("applied.toml", text);
    rig.ok(&["apply", file.to_str().unwrap()])
}

/// The flags and settings of a device in the hub that a port may change.
fn device(rig: &Rig, name: &str) -> String {
    let link = rig.lab.hub().run(["ip", "-o", "link", "show", "dev", name]).unwrap();
    let path = format!("net.ipv6.conf.{name}.disable_ipv6");
    let ipv6 = rig.lab.hub().run(["sysctl", "-n", &path]).unwrap();
    let program = ["<BROADCAST", "mtu"].iter().all(|part| link.contains(part));
    assert!(program, "{link}");
    let words = link.split_whitespace().filter(|word| !word.starts_with("prog") && *word != "xdp");
    format!("{} ipv6 off: {}", words.collect::<Vec<_>>().join(" "), ipv6.trim())
}

#[test]
fn a_change_that_fails_leaves_nothing_behind() {
    require!("ip", "ping", "ethtool", "sysctl");
    let mut rig = Rig::new(3);
    let tenant = rig.lab.namespace("tenant").unwrap();
    rig.lab.hub().run(["sysctl", "-qw", "net.ipv6.conf.h3.disable_ipv6=0"]).unwrap();
    let before = rig.configuration_with("", &[10, 10, 0]);
    rig.start(&before);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let shown = rig.ok(&["show", "config", "--json"]);
    let ports = rig.ok(&["show", "ports"]).lines().count();
    let (free, pins) = (device(&rig, "h3"), rig.pins());
    // A pair of our making, a foreign device, and a port that cannot be: found before anything is taken out, and after.
    let good = format!(
        "[port.a]\nkind = \"veth\"\ndevice = \"made\"\npeer = {{ name = \"eth0\", namespace = \"{}\" }}\n\
         [port.b]\nkind = \"af_xdp\"\ndevice = \"h3\"\nmtu = 1400\n[bridge.br0.port.a]\n[bridge.br0.port.b]\n",
        tenant.name()
    );
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    let early = format!("{before}{good}[port.z]\nkind = \"af_xdp\"\ndevice = \"nodev\"\n");
    let said = refused(&rig, &early);
    assert!(said.contains("port.z") && said.contains("nodev"), "{said}");
    flow.wait_for(200, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken), (0, 0), "{report:?}");

    let late = format!("{before}{good}").replace("device = \"h2\"", "device = \"h2\"\nqueues = [5]");
    let said = refused(&rig, &late);
    assert!(said.contains("port.h2") && said.contains("queue 5"), "{said}");
    rig.until_reachable(1, 2);

    let links = rig.lab.hub().run(["ip", "-o", "link"]).unwrap();
    assert!(!links.contains("made"), "{links}");
    assert!(tenant.run(["ip", "link", "show", "eth0"]).is_err(), "its far end");
    assert_eq!(device(&rig, "h3"), free);
    assert_eq!(rig.pins(), pins);
    assert_eq!(rig.ok(&["show", "config", "--json"]), shown);
    assert_eq!(rig.ok(&["show", "ports"]).lines().count(), ports);
    // And what was refused can be had without what was wrong with it, and given back.
    applied(&rig, &format!("{before}{good}"));
    assert_ne!(device(&rig, "h3"), free);
    applied(&rig, &before);
    assert_eq!(device(&rig, "h3"), free);
    assert!(rig.lab.hub().run(["ip", "link", "show", "made"]).is_err());
}

#[test]
fn a_port_without_a_room_leaves_the_kernel_everything() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(3);
    let hub = rig.lab.hub().clone();
    hub.run(["ip", "address", "add", "10.8.0.100/24", "dev", "h3"]).unwrap();
    // h3 belongs to no bridge; the other two do.
    let alone = format!(
        "{}[port.h3]\nkind = \"af_xdp\"\ndevice = \"h3\"\npersist = false\n",
        rig.configuration_with("persist = false", &[10, 10, 0])
    );
    rig.start(&alone);
    rig.until_reachable(1, 2);
    assert!(rig.hosts[2].ping("10.8.0.100", 5).is_ok(), "{}", rig.ok(&["show", "drops"]));
    // An address that the host gets later, and one that is another device's.
    hub.run(["ip", "address", "add", "10.8.0.101/24", "dev", "h3"]).unwrap();
    hub.run(["ip", "address", "add", "10.99.0.1/32", "dev", "lo"]).unwrap();
    assert!(rig.hosts[2].ping("10.8.0.101", 5).is_ok());
    rig.hosts[2].run(["ip", "route", "add", "10.99.0.0/16", "via", "10.8.0.100"]).unwrap();
    assert!(rig.hosts[2].ping("10.99.0.1", 5).is_ok());
    // In a bridge the kernel gets nothing of it, and has it back when it leaves.
    let together = rig.configuration("persist = false");
    applied(&rig, &together);
    rig.until_reachable(1, 3);
    assert!(rig.hosts[2].ping("10.8.0.101", 2).is_err(), "it is the bridge's");
    applied(&rig, &alone);
    assert!(rig.hosts[2].ping("10.8.0.101", 5).is_ok(), "{}", device(&rig, "h3"));
    assert!(!rig.hosts[0].reaches(&rig.hosts[2]), "it is the kernel's");
}
