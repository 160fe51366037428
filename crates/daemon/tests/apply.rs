//! Tests configuration changes with the real binary. A change is applied completely or not at all, and each field takes
//! effect.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use rig::{PATIENCE, Rig};
use testbed::{UdpFlow, require};

/// Applies a configuration that must be refused, and returns the standard error output of the command.
fn refused(rig: &Rig, text: &str) -> String {
    let file = rig.write("refused.toml", text);
    let output = rig.trivium(&["apply", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Applies a configuration that must be accepted, and returns the standard output of the command.
fn applied(rig: &Rig, text: &str) -> String {
    let file = rig.write("applied.toml", text);
    rig.ok(&["apply", file.to_str().unwrap()])
}

/// Returns the flags and settings of a device in the hub. The value contains only flags and settings that a port may
/// change.
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
    // A veth pair that the daemon creates, an existing device, and an invalid port. The mistake is found
    // before anything is changed.
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
    // The refused configuration is accepted without its mistake, and its devices are restored afterwards.
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
    // h3 belongs to no bridge. The other two devices do.
    let alone = format!(
        "{}[port.h3]\nkind = \"af_xdp\"\ndevice = \"h3\"\npersist = false\n",
        rig.configuration_with("persist = false", &[10, 10, 0])
    );
    rig.start(&alone);
    rig.until_reachable(1, 2);
    assert!(rig.hosts[2].ping("10.8.0.100", 5).is_ok(), "{}", rig.ok(&["show", "drops"]));
    // An address that the host gets later, and an address of another device.
    hub.run(["ip", "address", "add", "10.8.0.101/24", "dev", "h3"]).unwrap();
    hub.run(["ip", "address", "add", "10.99.0.1/32", "dev", "lo"]).unwrap();
    assert!(rig.hosts[2].ping("10.8.0.101", 5).is_ok());
    rig.hosts[2].run(["ip", "route", "add", "10.99.0.0/16", "via", "10.8.0.100"]).unwrap();
    assert!(rig.hosts[2].ping("10.99.0.1", 5).is_ok());
    // In a bridge the kernel receives nothing from the device. When the device leaves the bridge, the kernel
    // receives frames again.
    let together = rig.configuration("persist = false");
    applied(&rig, &together);
    rig.until_reachable(1, 3);
    assert!(rig.hosts[2].ping("10.8.0.101", 2).is_err(), "it is the bridge's");
    applied(&rig, &alone);
    assert!(rig.hosts[2].ping("10.8.0.101", 5).is_ok(), "{}", device(&rig, "h3"));
    assert!(!rig.hosts[0].reaches(&rig.hosts[2]), "it is the kernel's");
}

/// Returns the addresses and the link state of a host's interface.
fn interface(host: &testbed::Namespace, name: &str) -> String {
    host.run(["ip", "-o", "address", "show", "dev", name]).unwrap()
        + &host.run(["ip", "-o", "link", "show", "dev", name]).unwrap()
}

/// A change of a field that the plan reports as changeable at run time takes effect without a restart. The change can
/// be reverted in the same way.
#[test]
fn fields_of_devices_of_our_making_change_while_they_run() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(1);
    let tenant = rig.lab.namespace("tenant").unwrap();
    let hub = rig.lab.hub().clone();
    let with = |port: &str, peer: &str, tap: &str| {
        format!(
            "{}[port.v]\nkind = \"veth\"\ndevice = \"v\"\n{port}\npeer = {{ name = \"eth0\", namespace = \"{}\"{peer} }}\n\
             [bridge.br0.port.v]\naccess = 10\n\
             [port.host]\nkind = \"internal\"\ndevice = \"host\"\n{tap}\n[bridge.br0.port.host]\naccess = 10\n",
            rig.configuration("persist = false"),
            tenant.name()
        )
    };
    let plain = with("", ", address = [\"10.8.0.9/24\"]", "address = [\"10.8.0.50/24\"]");
    let steps = [
        // The first address of a network is replaced. The kernel removes secondary addresses together with
        // the first one.
        (
            with("", ", address = [\"10.8.0.10/24\", \"10.8.0.11/24\"]", ""),
            "eth0 inet 10.8.0.10/24",
            "10.8.0.9/24",
        ),
        (with("", ", address = [\"10.8.0.11/24\"]", ""), "eth0 inet 10.8.0.11/24", "10.8.0.10/24"),
        (with("", ", mac = \"02:00:00:00:aa:01\"", ""), "link/ether 02:00:00:00:aa:01", "inet "),
        (with("", ", mac = \"02:00:00:00:aa:02\"", ""), "link/ether 02:00:00:00:aa:02", "aa:01"),
        (with("mtu = 1400", "", ""), "mtu 1400", "02:00:00:00:aa:02"),
        (with("mtu = 9000", ", mtu = 8000", ""), "mtu 8000", "mtu 1400"),
        (with("mtu = 9000", "", ""), "mtu 9000", "mtu 8000"),
        (plain.clone(), "mtu 1500", "mtu 9000"),
    ];
    let hosts = [
        (with("", "", "address = [\"10.8.0.51/24\", \"10.8.0.52/24\"]"), "inet 10.8.0.52/24", "10.8.0.50/24"),
        (with("", "", "address = [\"10.8.0.52/24\"]"), "inet 10.8.0.52/24", "10.8.0.51/24"),
        (with("", "", "mac = \"02:00:00:00:bb:01\""), "link/ether 02:00:00:00:bb:01", "inet "),
        (with("", "", "mtu = 1400"), "mtu 1400", "02:00:00:00:bb:01"),
        (plain.clone(), "mtu 1500", "mtu 1400"),
    ];
    rig.start(&plain);
    assert!(rig.hosts[0].ping("10.8.0.9", 5).is_ok());
    for (text, has, has_not) in &steps {
        let said = applied(&rig, text);
        let shown = interface(&tenant, "eth0").split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains(has) && !shown.contains(has_not), "{said}{has}, not {has_not}: {shown}");
        let near = interface(&hub, "v");
        let mtu = if text.contains("mtu = 9000") {
            9000
        } else if text.contains("mtu = 1400") {
            1400
        } else {
            1500
        };
        assert!(near.contains(&format!("mtu {mtu}")), "{near}");
        assert_eq!(rig.port("v")["mtu"], mtu, "{said}");
        assert!(applied(&rig, text).contains("nothing differs"));
    }
    for (text, has, has_not) in &hosts {
        let said = applied(&rig, text);
        let shown = interface(&hub, "host");
        assert!(shown.contains(has) && !shown.contains(has_not), "{said}{has}, not {has_not}: {shown}");
    }
    // The peer device was created again after the first ping, with another MAC address.
    rig.hosts[0].run(["ip", "neighbour", "flush", "all"]).unwrap();
    for address in ["10.8.0.9", "10.8.0.50"] {
        assert!(rig.hosts[0].ping(address, 5).is_ok(), "{address}: {}", rig.ok(&["show", "drops"]));
    }
}

#[test]
fn fields_of_ports_change_while_they_run() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let with = |extra: &str| {
        rig.configuration("persist = false").replacen(
            "persist = false",
            &format!("persist = false\n{extra}"),
            1,
        )
    };
    let plain = with("");
    let steps = [
        ("mtu = 1400", "mtu"),
        ("", "mtu"),
        ("admin = \"down\"", "admin"),
        ("", "admin"),
        ("complete_checksums = \"off\"", "complete_checksums"),
        ("workers = [0]", "workers"),
        ("software_rss = true", "software_rss"),
        // The socket must be opened again for this field.
        ("busy_poll = 20", "busy_poll"),
        ("ring_size = 512", "ring_size"),
    ];
    let texts: Vec<(String, &str, &str)> =
        steps.iter().map(|(extra, field)| (with(extra), *extra, *field)).collect();
    rig.start(&plain);
    rig.until_reachable(1, 2);
    for (text, extra, field) in &texts {
        let said = applied(&rig, text);
        assert!(said.contains(field), "{said}");
        let anew = said.contains("made anew");
        assert_eq!(anew, ["busy_poll", "ring_size"].contains(field), "{said}");
        if extra.starts_with("admin") {
            let before = rig.port("h1")["counters"]["rx_packets"].as_u64().unwrap();
            assert!(!rig.hosts[0].reaches(&rig.hosts[1]), "out of a port that is down");
            assert!(!rig.hosts[1].reaches(&rig.hosts[0]), "into a port that is down");
            assert!(rig.port("h1")["counters"]["rx_packets"].as_u64().unwrap() > before);
            assert!(rig.ok(&["show", "drops", "h1"]).contains("port-down"));
        } else {
            rig.until_reachable(1, 2);
        }
        let link = rig.lab.hub().run(["ip", "-o", "link", "show", "dev", "h1"]).unwrap();
        let mtu = if extra.starts_with("mtu") { 1400 } else { 1500 };
        assert!(link.contains(&format!("mtu {mtu} ")), "{extra}: {link}");
        assert_eq!(rig.port("h1")["mtu"], mtu, "{extra}");
    }
}

/// Checks that a successor restores the original settings of an existing device when its port is removed. The settings
/// are part of the hand-over state. A daemon that is restarted and adopts the device's hook does not know the original
/// settings, and uses the kernel's default settings instead.
#[test]
fn a_successor_gives_a_device_back_as_it_was() {
    require!("ip", "ping", "ethtool", "sysctl");
    let mut rig = Rig::new(3);
    rig.lab.hub().run(["sysctl", "-qw", "net.ipv6.conf.h3.disable_ipv6=0"]).unwrap();
    rig.lab.hub().run(["ip", "link", "set", "h3", "mtu", "1450"]).unwrap();
    let (without, free) = (rig.configuration_with("", &[10, 10, 0]), device(&rig, "h3"));
    let with = rig.configuration("").replace("device = \"h3\"", "device = \"h3\"\nmtu = 1400");
    rig.start(&with);
    assert_ne!(device(&rig, "h3"), free);
    rig.ok(&["upgrade", "--binary", rig::TRIVIUM]);
    rig.until_reachable(1, 3);
    applied(&rig, &without);
    assert_eq!(device(&rig, "h3"), free);
}

#[test]
fn ports_share_the_memory_that_runs_and_not_more() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let tenant = rig.lab.namespace("tenant").unwrap();
    let pairs = |frames: u32, count: u32| {
        let mut text = rig.configuration("").replace("frames = 32768", &format!("frames = {frames}"));
        for number in 1..=count {
            text += &format!(
                "[port.v{number}]\nkind = \"veth\"\npeer = {{ name = \"e{number}\", namespace = \"{}\", \
                 address = [\"10.8.0.{}/24\"] }}\n[bridge.br0.port.v{number}]\naccess = 10\n",
                tenant.name(),
                100 + number,
            );
        }
        text
    };
    // With full rings of 2,048 frames, two ports would take all frames.
    let (first, fits, beyond, waits) = (pairs(4096, 0), pairs(4096, 20), pairs(4096, 40), pairs(262_144, 40));
    rig.start(&first);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    // With 20 more ports, a fill ring holds about 90 frames. At 500 frames per second, a worker that the kernel does
    // not run for 45 ms (seen on a slow machine) still loses none.
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 500).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    let wrong = |text: &str| {
        let file = rig.write("wrong.toml", text);
        let output = rig.trivium(&["apply", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = wrong(&beyond);
    assert!(said.contains("4096 frames are too few for 42 AF_XDP queues"), "{said}");
    // Settings that wait for a restart are not active yet.
    let said = wrong(&waits);
    assert!(said.contains("the daemon runs with 4096") && said.contains("restart the daemon"), "{said}");
    applied(&rig, &fits);
    for number in [1, 10, 20] {
        let address = format!("10.8.0.{}", 100 + number);
        assert!(rig.hosts[0].ping(&address, 5).is_ok(), "{address}: {}", rig.ok(&["show", "drops"]));
    }
    flow.wait_for(200, PATIENCE).unwrap();
    assert_eq!(rig.dropped("h1", "no-frame"), 0, "{}", rig.ok(&["show", "drops"]));
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken), (0, 0), "{report:?}");
}
