//! What a daemon leaves behind, on purpose or not, and who cleans up: hooks without a port, ports without a device.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use rig::{PATIENCE, Rig, TRIVIUM};
use rustix::process::Signal;
use testbed::{Process, require};

/// Whether a program stands on a device of the hub.
fn hooked(rig: &Rig, device: &str) -> bool {
    rig.lab.hub().run(["ip", "link", "show", device]).unwrap().contains("xdp")
}

#[test]
fn a_hook_that_no_port_stands_behind_is_taken_off() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(3);
    let all = rig.configuration("");
    rig.start(&all);
    rig.until_reachable(1, 2);
    rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
    assert_eq!(rig.pins().len(), 3);
    // While nobody looked, one port left the configuration, and one device was deleted.
    rig.lab.hub().run(["ip", "link", "del", "h3"]).unwrap();
    rig.start(&rig.configuration_with("", &[10, 0, 0]));
    let log = rig.daemon().output();
    assert!(log.contains("no port stands behind this hook"), "{log}");
    assert_eq!(rig.pins().len(), 1, "{:?}", rig.pins());
    assert!(hooked(&rig, "h1") && !hooked(&rig, "h2"));
    let flags = rig.lab.hub().run(["ip", "link", "show", "h2"]).unwrap();
    assert!(!flags.contains("NOARP") && !flags.contains("PROMISC"), "{flags}");
}

#[test]
fn hooks_of_another_daemon_are_left_alone() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(3);
    let first = rig.configuration_with("", &[10, 10, 0]);
    rig.start(&first);
    rig.until_reachable(1, 2);
    let second = rig
        .configuration_with("", &[0, 0, 10])
        .replace("api.sock", "second.sock")
        .replace("/state", "/second");
    let file = rig.write("second.toml", &second);
    let mut other =
        Process::start(rig.lab.hub().command([TRIVIUM, "run", "-c", file.to_str().unwrap()])).unwrap();
    other.wait_for_line("ready:", PATIENCE).unwrap();
    assert_eq!(rig.pins().len(), 3);
    rig.until_reachable(1, 2);
    // Nor does a person take off what is in use.
    let release = |what: &[&str]| {
        let line: Vec<&str> = [TRIVIUM, "release"].iter().chain(what).copied().collect();
        rig.lab.hub().command(line).output().unwrap()
    };
    let refused = release(&["h3"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("a daemon that runs uses its hook"));
    other.stop(Signal::TERM, PATIENCE).unwrap();
    assert!(hooked(&rig, "h3"), "it persists");
    let done = release(&["h3"]);
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success() && text.contains("released h3"), "{text}");
    assert!(!hooked(&rig, "h3") && hooked(&rig, "h1"));
    assert_eq!(release(&["h3"]).status.code(), Some(1), "nothing is left of it");
    rig.until_reachable(1, 2);
}

#[test]
fn ports_without_a_device_wait_for_it_at_the_start() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let hub = rig.lab.hub().clone();
    let tenant = rig.lab.namespace("late").unwrap();
    let late = tenant.name().to_owned();
    tenant.remove_name().unwrap();
    hub.run(["ip", "link", "set", "h2", "down"]).unwrap();
    hub.run(["ip", "link", "set", "h2", "name", "elsewhere"]).unwrap();
    let configuration = format!(
        "{}[port.t]\nkind = \"veth\"\ndevice = \"t\"\n\
         peer = {{ name = \"eth0\", namespace = \"{late}\", address = [\"10.8.0.9/24\"] }}\n[bridge.br0.port.t]\naccess = 10\n",
        rig.configuration("persist = false"),
    );
    rig.start(&configuration);
    let log = rig.daemon().output();
    assert!(log.contains("WARN") && log.contains("there is no device h2"), "{log}");
    let waits =
        |port: &serde_json::Value| port["trouble"].as_str().is_some_and(|why| why.contains("there is no"));
    assert!(waits(&rig.port("h2")) && waits(&rig.port("t")), "{}", rig.ok(&["show", "ports"]));
    assert!(!waits(&rig.port("h1")));
    hub.run(["ip", "link", "set", "elsewhere", "name", "h2"]).unwrap();
    let again = testbed::Namespace::create(&late).unwrap();
    for port in ["h2", "t"] {
        rig.port_until(port, "there", |port| port["link_up"] == true);
    }
    rig.until_reachable(1, 2);
    assert!(rig.hosts[0].ping("10.8.0.9", 5).is_ok());
    // While it runs, a port that cannot be is a mistake.
    let missing = format!("{configuration}[port.x]\nkind = \"af_xdp\"\ndevice = \"nodev\"\n");
    let file = rig.write("missing.toml", &missing);
    assert_eq!(rig.trivium(&["apply", file.to_str().unwrap()]).status.code(), Some(1));
    drop(again);
}
