//! Tests what remains after a daemon was killed, and how it is removed: hooks that outlive the daemon, devices that do
//! not, hooks without a port, and ports without a device.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::collections::BTreeMap;

use rig::{PATIENCE, Rig, TRIVIUM};
use rustix::process::Signal;
use testbed::{Namespace, Process, StackWatch, UdpFlow, eventually, require};
use xdp::{Attached, Counter, PinPath};

/// Returns whether a device of the hub has an XDP program.
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
    // While no daemon ran, a port was removed from the configuration and a device was deleted.
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
    // `trivium release` does not remove hooks that are in use.
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

/// A second daemon whose ports use the devices of the first daemon is refused at its start and changes nothing. The
/// second daemon has another API socket, and ports with equal or different names. One of its configurations also
/// creates a veth pair, and another sets a different MTU.
#[test]
fn a_second_daemon_on_the_same_devices_is_refused_and_touches_nothing() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let tenant = rig.lab.namespace("tenant").unwrap();
    let pair = format!(
        "[port.t]\nkind = \"veth\"\ndevice = \"t\"\n\
         peer = {{ name = \"eth0\", namespace = \"{}\", address = [\"10.8.0.9/24\"] }}\n[bridge.br0.port.t]\naccess = 10\n",
        tenant.name(),
    );
    let first = rig.configuration("") + &pair;
    rig.start(&first);
    rig.until_reachable(1, 2);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 500).unwrap();
    flow.wait_for(50, PATIENCE).unwrap();
    let seen = || {
        ["h1", "h2", "t"].map(|device| {
            let shown = rig.lab.hub().run(["ip", "-j", "-d", "link", "show", device]).unwrap();
            let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
            (shown[0]["xdp"].to_string(), shown[0]["mtu"].clone(), shown[0]["flags"].clone())
        })
    };
    let (before, pins) = (seen(), rig.pins());
    let base = first.replace("api.sock", "second.sock").replace("/state", "/second");
    let renamed = base.replace("[port.h", "[port.x").replace("port.h", "port.x");
    let alone = |port: &str| {
        let head = base.split("[bridge.br0]").next().unwrap();
        format!("{head}[bridge.br0]\n{port}")
    };
    let resized = base.replace("device = \"h1\"", "device = \"h1\"\nmtu = 1400");
    for (at, second) in [base.clone(), renamed, resized, alone(&pair)].iter().enumerate() {
        let file = rig.write(&format!("second{at}.toml"), second);
        let other = rig.lab.hub().command([TRIVIUM, "run", "-c", file.to_str().unwrap()]);
        let (status, output) = Process::start(other).unwrap().finish(PATIENCE).unwrap();
        assert!(!status.success() && output.contains("another Trivium process serves"), "{at}: {output}");
        assert_eq!((seen(), rig.pins()), (before.clone(), pins.clone()), "{at}: {output}");
    }
    flow.wait_for(100, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
    assert!(rig.hosts[0].ping("10.8.0.9", 3).is_ok());
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
    // In a running daemon, a port without a device is an error.
    let missing = format!("{configuration}[port.x]\nkind = \"af_xdp\"\ndevice = \"nodev\"\n");
    let file = rig.write("missing.toml", &missing);
    assert_eq!(rig.trivium(&["apply", file.to_str().unwrap()]).status.code(), Some(1));
    drop(again);
}

/// Opens the hook of a port through its pins in the BPF file system, with or without a running daemon.
fn hook(rig: &Rig, port: &str) -> Attached {
    let pins = rig.pins();
    let name = pins.iter().find(|name| name.starts_with(&format!("{port}-"))).unwrap();
    let found = rig.lab.hub().inside(|| Ok(xdp::adopt(&PinPath::new(name).unwrap()).unwrap()));
    found.unwrap().unwrap()
}

/// Waits until the counter `counter` of a hook whose daemon has ended is at least `least`.
fn decided(hook: &Attached, counter: Counter, least: u64) {
    eventually(&format!("{least} {} at {}", counter.name(), hook.device()), PATIENCE, || {
        let packets = hook.counters().unwrap().get(counter);
        if packets >= least { Ok(()) } else { Err(packets.to_string()) }
    })
    .unwrap();
}

/// Assigns an IP address to the hub's device of a host's cable, and adds permanent neighbour entries on both ends of
/// the cable.
fn address_at(rig: &Rig, host: usize, address: &str) {
    let (hub, host) = (rig.lab.hub(), &rig.hosts[host - 1]);
    let (near, mac) = (host.device(), host.mac().unwrap());
    let words = hub.run(["ip", "-o", "link", "show", "dev", near]).unwrap();
    let own = words.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).unwrap();
    hub.run(["ip", "address", "add", address, "peer", &format!("{}/32", host.ip()), "dev", near]).unwrap();
    // The kernel's ARP is off on a bridged port, so both ends need permanent neighbours.
    let line = ["ip", "neighbour", "replace", host.ip(), "lladdr", &mac, "nud", "permanent", "dev", near];
    hub.run(line).unwrap();
    let line = ["ip", "neighbour", "replace", address, "lladdr", own, "nud", "permanent", "dev", "eth0"];
    host.run(line).unwrap();
}

/// Returns whether the hub's kernel answers a ping to this address from a host.
fn asked(rig: &Rig, host: usize, address: &str) -> bool {
    rig.hosts[host - 1].ping(address, 5).is_ok()
}

/// Tests the setting `when_down`: while no daemon runs, the hook on h1 passes frames and the hook on h2 drops them. If
/// `changed` is set, h1 is first configured to drop frames as well, and the setting is changed while the daemon runs.
fn when_down_decides(mode: &str, changed: bool) {
    let mut rig = Rig::new(2);
    let both = rig.configuration(&format!("mode = \"{mode}\""));
    let one = both.replacen("device = \"h1\"", "device = \"h1\"\nwhen_down = \"pass\"", 1);
    rig.start(if changed { &both } else { &one });
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    address_at(&rig, 1, "10.8.0.101");
    address_at(&rig, 2, "10.8.0.102");
    if changed {
        let file = rig.write("one.toml", &one);
        let said = rig.ok(&["apply", file.to_str().unwrap()]);
        assert!(said.contains("when_down") && !said.contains("made anew"), "{said}");
    }
    let (mut passing, mut dropping) =
        (StackWatch::open(rig.lab.hub(), "h1").unwrap(), StackWatch::open(rig.lab.hub(), "h2").unwrap());
    let there = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 1_000).unwrap();
    let back = UdpFlow::start(&rig.hosts[1], &rig.hosts[0], 1_000).unwrap();
    for flow in [&there, &back] {
        flow.wait_for(200, PATIENCE).unwrap();
    }
    assert!(!asked(&rig, 1, "10.8.0.101") && !asked(&rig, 2, "10.8.0.102"), "both are the bridge's");
    assert_eq!((passing.seen(), dropping.seen()), (0, 0), "while the daemon runs");
    let hooks = [hook(&rig, "h1"), hook(&rig, "h2")];
    assert!(hooks.iter().all(|hook| hook.mode().to_string() == mode));

    rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
    decided(&hooks[0], Counter::DownPassed, 300);
    decided(&hooks[1], Counter::DownDropped, 300);
    let seen = (passing.seen(), dropping.seen());
    assert!(seen.0 >= 100, "passed to the hub's kernel: {seen:?}");
    assert_eq!(seen.1, 0, "nothing leaks into the hub's kernel");
    let counted = |hook: &Attached, counter| hook.counters().unwrap().get(counter);
    assert_eq!(counted(&hooks[0], Counter::DownDropped) + counted(&hooks[1], Counter::DownPassed), 0);
    assert!(asked(&rig, 1, "10.8.0.101"), "h1 is the kernel's now");
    assert!(!asked(&rig, 2, "10.8.0.102"), "h2 is nobody's");
    assert_eq!(dropping.seen(), 0);

    // The next daemon takes over both hooks.
    rig.start(&one);
    for flow in [&there, &back] {
        flow.wait_for(100, PATIENCE).unwrap();
    }
    let before = passing.seen();
    for flow in [&there, &back] {
        flow.wait_for(200, PATIENCE).unwrap();
    }
    assert!(!asked(&rig, 1, "10.8.0.101") && !asked(&rig, 2, "10.8.0.102"));
    assert_eq!((passing.seen(), dropping.seen()), (before, 0));
    for flow in [there, back] {
        let report = flow.stop().unwrap();
        assert_eq!((report.overtaken, report.doubled), (0, 0), "{report:?}");
    }
}

#[test]
fn after_a_kill_a_port_passes_or_drops_as_it_was_told() {
    require!("ip", "ping", "ethtool");
    when_down_decides("native", false);
}

#[test]
fn what_becomes_of_a_port_after_a_kill_changes_while_it_runs() {
    require!("ip", "ping", "ethtool");
    when_down_decides("generic", true);
}

/// Returns the devices of a namespace with their interface indexes.
fn devices(place: &Namespace) -> BTreeMap<String, u64> {
    let all: serde_json::Value = serde_json::from_str(&place.run(["ip", "-j", "link"]).unwrap()).unwrap();
    let entry =
        |link: &serde_json::Value| Some((link["ifname"].as_str()?.to_owned(), link["ifindex"].as_u64()?));
    all.as_array().unwrap().iter().map(|link| entry(link).unwrap()).collect()
}

#[test]
fn a_kill_leaves_pairs_of_its_making_and_takes_taps_along() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(1);
    let (tenant, guest) = (rig.lab.namespace("tenant").unwrap(), rig.lab.namespace("guest").unwrap());
    let hub = rig.lab.hub().clone();
    let configuration = format!(
        "{}[port.v]\nkind = \"veth\"\ndevice = \"v\"\n\
         peer = {{ name = \"eth0\", namespace = \"{}\", address = [\"10.8.0.9/24\"] }}\n\
         [port.vm]\nkind = \"tap\"\ndevice = \"vm0\"\nnamespace = \"{}\"\naddress = [\"10.8.0.60/24\"]\n\
         [port.host]\nkind = \"internal\"\ndevice = \"host\"\naddress = [\"10.8.0.61/24\"]\n\
         [bridge.br0.port.v]\naccess = 10\n[bridge.br0.port.vm]\naccess = 10\n[bridge.br0.port.host]\naccess = 10\n",
        rig.configuration(""),
        tenant.name(),
        guest.name(),
    );
    let all = ["10.8.0.9", "10.8.0.60", "10.8.0.61"];
    rig.start(&configuration);
    for address in all {
        assert!(rig.hosts[0].ping(address, 20).is_ok(), "{address}: {}", rig.ok(&["show", "drops"]));
    }
    let names = |place: &Namespace| devices(place).into_keys().collect::<Vec<_>>();
    assert_eq!((names(&hub), names(&guest)), (strings(&["h1", "host", "lo", "v"]), strings(&["lo", "vm0"])));
    let (near, far) = (devices(&hub)["v"], devices(&tenant)["eth0"]);
    let links = [hook(&rig, "h1").link_id(), hook(&rig, "v").link_id()];
    let pinging: Vec<Process> =
        all.iter().map(|to| rig.hosts[0].spawn(["ping", "-n", "-i", "0.01", to]).unwrap()).collect();

    rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
    // The kernel removes the TAPs of an ended process a short time later.
    eventually("the TAPs are gone", PATIENCE, || {
        let left = (names(&hub), names(&guest));
        if left == (strings(&["h1", "lo", "v"]), strings(&["lo"])) {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .unwrap();
    assert_eq!((devices(&hub)["v"], devices(&tenant)["eth0"]), (near, far));
    assert_eq!(rig.pins().len(), 2, "{:?}", rig.pins());
    assert!(rig.hosts[0].ping(all[0], 3).is_err(), "nobody forwards");

    rig.start(&configuration);
    drop(pinging);
    assert_eq!((devices(&hub)["v"], devices(&tenant)["eth0"]), (near, far), "the same pair");
    assert_eq!([hook(&rig, "h1").link_id(), hook(&rig, "v").link_id()], links, "the same hooks");
    assert_eq!(names(&guest), strings(&["lo", "vm0"]));
    for (port, kind) in [("v", "veth"), ("vm", "tap"), ("host", "internal")] {
        let shown = rig.port(port);
        assert!(shown["kind"] == kind && shown["link_up"] == true && shown["trouble"].is_null(), "{shown}");
    }
    assert_eq!(rig.port("v")["ifindex"], near);
    // The new TAPs have other MAC addresses.
    rig.hosts[0].run(["ip", "neighbour", "flush", "all"]).unwrap();
    for address in all {
        assert!(rig.hosts[0].ping(address, 20).is_ok(), "{address}: {}", rig.ok(&["show", "drops"]));
    }
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
