//! Tests router interfaces that are VLANs of a port, with the real binary. Another Trivium router is at the other end
//! of the cable. It provides the VLAN interfaces there, because the kernel may not support VLAN devices. The network
//! stacks on both ends generate the traffic.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use rig::{PATIENCE, Rig, TRIVIUM};
use rustix::process::Signal;
use testbed::{Process, UdpFlow, eventually, require};

/// A lab with the VLANs 100 and 200 on port h1. The host that is connected to h1 uses the same VLANs. Port h2 has no
/// VLANs.
struct Vlans {
    rig: Rig,
    _far: Process,
}

fn configuration(rig: &Rig, vlans: &str) -> String {
    let ports = rig.configuration("");
    let ports = ports.lines().filter(|line| !line.contains("bridge") && !line.contains("access"));
    let ports: String = ports.flat_map(|line| [line, "\n"]).collect();
    format!("{ports}[router.edge.port.h1]\n{vlans}\n[router.edge.port.h2]\n")
}

impl Vlans {
    fn start() -> Vlans {
        let mut rig = Rig::routed(2);
        let near = configuration(&rig, "vlans = [100, 200]");
        rig.start(&near);
        let far = format!(
            "[daemon]\napi = {:?}\nstate_dir = {:?}\n[memory]\nframes = 16384\nhuge_pages = \"off\"\n\
             [port.eth0]\nkind = \"af_xdp\"\ndevice = \"eth0\"\n[router.far.port.eth0]\nvlans = [\"100-100\", 200]\n",
            rig.path("far.sock"),
            rig.path("far-state"),
        );
        let file = rig.write("far.toml", &far);
        let command = rig.hosts[0].command([TRIVIUM, "run", "-c", file.to_str().unwrap()]);
        let mut process = Process::start(command).unwrap();
        process.wait_for_line("ready:", PATIENCE).unwrap();
        let all = Vlans { rig, _far: process };
        all.address();
        all
    }

    fn address(&self) {
        let (hub, host) = (self.rig.lab.hub(), &self.rig.hosts[0]);
        for vlan in [100, 200] {
            for (namespace, device, last) in [(hub, "h1", 1), (&**host, "eth0", 2)] {
                let device = format!("{device}.{vlan}");
                let four = format!("10.20.{vlan}.{last}/24");
                namespace.run(["ip", "address", "replace", &four, "dev", &device]).unwrap();
                namespace
                    .run([
                        "sysctl",
                        "-qw",
                        &format!("net.ipv6.conf.{}.disable_ipv6=0", device.replace('.', "/")),
                    ])
                    .unwrap();
                let six = format!("fd00:20:{vlan}::{last}/64");
                namespace.run(["ip", "address", "replace", &six, "dev", &device, "nodad"]).unwrap();
            }
        }
        host.run(["ip", "route", "replace", "10.8.2.0/24", "via", "10.20.100.1"]).unwrap();
        host.run(["ip", "-6", "route", "replace", "fd00:8:2::/64", "via", "fd00:20:100::1"]).unwrap();
    }

    fn reaches(&self, to: &str) {
        eventually(&format!("the host reaching {to}"), PATIENCE, || self.ping(&[to])).unwrap();
    }

    fn ping(&self, arguments: &[&str]) -> Result<String, String> {
        let line = ["ping", "-n", "-c", "3", "-i", "0.05", "-W", "1"].iter().chain(arguments);
        self.rig.hosts[0].run(line).map_err(|error| error.to_string())
    }

    /// Returns the number of packets that the port has sent.
    fn sent(&self, port: &str) -> u64 {
        self.rig.port(port)["counters"]["tx_packets"].as_u64().unwrap()
    }

    /// Returns the kernel's state of a device of the hub.
    fn link(&self, device: &str) -> serde_json::Value {
        let line = ["ip", "-j", "-s", "-s", "link", "show", "dev", device];
        let all: serde_json::Value = serde_json::from_str(&self.rig.lab.hub().run(line).unwrap()).unwrap();
        all[0].clone()
    }

    fn has_carrier(&self) -> bool {
        !self.link("h1.100")["flags"].as_array().unwrap().contains(&"NO-CARRIER".into())
    }

    fn interface(&self, device: &str) -> Option<serde_json::Value> {
        let all: serde_json::Value =
            serde_json::from_str(&self.rig.ok(&["show", "interfaces", "--json"])).unwrap();
        let mut found = None;
        for_each(&all, &mut |value| {
            if value["device"] == device {
                found = Some(value.clone());
            }
        });
        found
    }
}

/// Calls `see` with every object of a JSON value.
fn for_each(value: &serde_json::Value, see: &mut impl FnMut(&serde_json::Value)) {
    match value {
        serde_json::Value::Object(fields) => {
            see(value);
            fields.values().for_each(|field| for_each(field, see));
        }
        serde_json::Value::Array(all) => all.iter().for_each(|one| for_each(one, see)),
        _ => {}
    }
}

/// The hook of a router forwards packets that arrive with a VLAN tag, and adds a tag to packets that leave through a
/// VLAN interface. Workers process packets that cause an ICMP error.
#[test]
fn hooks_answer_by_vlans() {
    require!("ip", "ping", "ethtool");
    let all = Vlans::start();
    let rig = &all.rig;
    let count = || {
        let of = |port, counter| rig.hook_counter(port, counter);
        [("h1", "route_forwarded"), ("h2", "route_forwarded"), ("h1", "steered"), ("h2", "steered")]
            .map(|(port, counter)| of(port, counter))
    };
    for to in ["10.8.2.2", "fd00:8:2::2"] {
        all.reaches(to);
        eventually("hooks answer both ways", PATIENCE, || {
            let (before, carried) = (count(), (all.sent("h1"), all.sent("h2")));
            let said = all.ping(&[to])?;
            let (after, now) = (count(), (all.sent("h1"), all.sent("h2")));
            let more: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
            let counted = now.0 >= carried.0 + 3 && now.1 >= carried.1 + 3;
            match *more {
                [3, 3, 0, 0] if counted && said.contains("3 received") => Ok(()),
                _ => Err(format!("{more:?}, ports {carried:?} {now:?}: {said}")),
            }
        })
        .unwrap();
    }
    let neighbours = rig.ok(&["show", "neighbours"]);
    assert!(neighbours.contains("10.20.100.2"), "{neighbours}");
    let mac = all.link("h2")["address"].as_str().unwrap().to_owned();
    let said =
        rig.ok(&["explain", "--in", "h2", &format!("eth_dst={mac},ip_src=10.8.2.2,ip_dst=10.20.100.2,udp")]);
    assert!(said.contains("straight to its device with the tag of VLAN 100"), "{said}");
    assert!(said.ends_with("routed in the driver hook; it leaves by h1\n"), "{said}");
    // Packets too long for the VLAN. The worker punts them, and the kernel sends the error.
    rig.lab.hub().run(["ip", "link", "set", "dev", "h1.100", "mtu", "1300"]).unwrap();
    eventually("the smaller MTU counts", PATIENCE, || {
        let line = ["ping", "-n", "-c", "1", "-W", "1", "-M", "do", "-s", "1350", "10.20.100.2"];
        let said = rig.hosts[1].command(line).output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        if said.contains("mtu = 1300") || said.contains("mtu=1300") { Ok(()) } else { Err(said) }
    })
    .unwrap();
    // Packets of a VLAN device that is down are dropped.
    rig.lab.hub().run(["ip", "link", "set", "dev", "h1.100", "down"]).unwrap();
    eventually("it is down", PATIENCE, || match all.ping(&["10.8.2.2"]) {
        Err(_) => Ok(()),
        Ok(said) => Err(said),
    })
    .unwrap();
}

#[test]
fn vlans_are_interfaces_with_devices_in_the_kernel() {
    require!("ip", "ping", "ethtool");
    let all = Vlans::start();
    let (rig, hub) = (&all.rig, all.rig.lab.hub());
    // The kernels at both ends answer ARP, ND and echo requests on the VLAN devices.
    for to in ["10.20.100.1", "10.20.200.1", "fd00:20:100::1", "fd00:20:200::1"] {
        all.reaches(to);
    }
    // Forwarded packets arrive in the VLAN and leave without a tag, and replies the other way round.
    for to in ["10.8.2.2", "fd00:8:2::2"] {
        all.reaches(to);
        let before = (all.sent("h1"), all.sent("h2"));
        assert!(all.ping(&[to]).unwrap().contains("3 received"));
        let after = (all.sent("h1"), all.sent("h2"));
        assert!(after.0 >= before.0 + 3 && after.1 >= before.1 + 3, "{before:?} {after:?}");
    }
    let shown = all.interface("h1.100").unwrap();
    assert_eq!((&shown["port"], &shown["vlan"], &shown["up"]), (&"h1".into(), &100.into(), &true.into()));
    assert!(shown["addresses"].to_string().contains("10.20.100.1/24"), "{shown}");
    assert_eq!(all.interface("h1").unwrap().get("vlan"), None);
    // Forwarding between two VLANs of one port.
    rig.hosts[0].run(["ip", "route", "add", "192.0.2.0/24", "via", "10.20.100.1"]).unwrap();
    rig.hosts[0].run(["ip", "address", "add", "192.0.2.1/32", "dev", "eth0.200"]).unwrap();
    hub.run(["ip", "route", "add", "192.0.2.0/24", "via", "10.20.200.2"]).unwrap();
    let mac = all.link("h2")["address"].as_str().unwrap().to_owned();
    let eth = format!("eth_dst={mac},ip_dst=192.0.2.1,udp");
    all.reaches("10.20.200.1");
    let told = || {
        let said = rig.ok(&["explain", "--in", "h2", &eth]);
        if said.contains("192.0.2.0/24") && said.contains("h1") && said.contains("200") {
            Ok(())
        } else {
            Err(said)
        }
    };
    eventually("explain names the route and the port", PATIENCE, told).unwrap();
    // Settings of the device apply, here the MTU.
    hub.run(["ip", "link", "set", "dev", "h1.100", "mtu", "1300"]).unwrap();
    eventually("the smaller MTU counts", PATIENCE, || {
        let line = ["ping", "-n", "-c", "1", "-W", "1", "-M", "do", "-s", "1350", "10.20.100.2"];
        let said = rig.hosts[1].command(line).output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        if said.contains("mtu = 1300") || said.contains("mtu=1300") { Ok(()) } else { Err(said) }
    })
    .unwrap();
    hub.run(["ip", "link", "set", "dev", "h1.100", "mtu", "1500"]).unwrap();
    // The MAC address of the device applies.
    let other = "02:00:00:00:20:01";
    assert_eq!(all.link("h1.100")["address"], all.link("h1")["address"]);
    hub.run(["ip", "link", "set", "dev", "h1.100", "address", other]).unwrap();
    rig.hosts[0].run(["ip", "neighbor", "flush", "dev", "eth0.100"]).unwrap();
    all.reaches("10.8.2.2");
    let known = rig.hosts[0].run(["ip", "neighbor", "show", "10.20.100.1"]).unwrap();
    assert!(known.contains(other), "{known}");
    // A device that is set down disables its own interface only.
    hub.run(["ip", "link", "set", "dev", "h1.100", "down"]).unwrap();
    eventually("it is down", PATIENCE, || match all.ping(&["10.20.100.1"]) {
        Err(_) => Ok(()),
        Ok(said) => Err(said),
    })
    .unwrap();
    all.reaches("10.20.200.1");
    hub.run(["ip", "link", "set", "dev", "h1.100", "up"]).unwrap();
    all.address();
    all.reaches("fd00:8:2::2");
    // The carrier of the VLAN devices follows the port.
    assert!(all.has_carrier());
    rig.hosts[0].run(["ip", "link", "set", "dev", "eth0", "down"]).unwrap();
    let carrier = |wanted: bool| {
        let found = || if all.has_carrier() == wanted { Ok(()) } else { Err(String::new()) };
        eventually("the carrier follows the port's", PATIENCE, found).unwrap();
    };
    carrier(false);
    rig.hosts[0].run(["ip", "link", "set", "dev", "eth0", "up"]).unwrap();
    carrier(true);
    all.address();
    all.reaches("10.8.2.2");
}

#[test]
fn vlans_come_and_go_with_the_configuration_and_others_devices_are_left_alone() {
    require!("ip", "ping", "ethtool");
    let all = Vlans::start();
    let (rig, hub) = (&all.rig, all.rig.lab.hub());
    all.reaches("10.8.2.2");
    // A foreign device has the name, so nothing changes.
    hub.run(["ip", "link", "add", "h1.300", "type", "veth", "peer", "name", "h1.300-far"]).unwrap();
    let file = rig.write("more.toml", &configuration(rig, "vlans = [100, 200, 300]"));
    let refused = rig.trivium(&["apply", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("h1.300") && said.contains("ip link del"), "{said}");
    assert!(all.interface("h1.300").is_none());
    hub.run(["ip", "link", "del", "h1.300"]).unwrap();
    // One VLAN is added and one removed. The third one is not affected.
    let index = all.link("h1.100")["ifindex"].clone();
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 1_000).unwrap();
    flow.wait_for(100, PATIENCE).unwrap();
    let file = rig.write("more.toml", &configuration(rig, "vlans = [100, 300]"));
    rig.ok(&["apply", file.to_str().unwrap()]);
    let links = hub.run(["ip", "-br", "link"]).unwrap();
    assert!(links.contains("h1.300") && !links.contains("h1.200"), "{links}");
    // A router that is replaced keeps the devices.
    let anew = configuration(rig, "vlans = [100, 300]") + "[router.edge]\nroutes = 1000\n";
    let file = rig.write("anew.toml", &anew);
    rig.ok(&["apply", file.to_str().unwrap()]);
    assert_eq!(all.link("h1.100")["ifindex"], index);
    // A device that another program removes is created again.
    hub.run(["ip", "link", "del", "h1.300"]).unwrap();
    eventually("it comes again", PATIENCE, || match all.interface("h1.300") {
        Some(found) if found["index"].as_u64() > Some(0) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .unwrap();
    flow.wait_for(500, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
    let file = rig.write("none.toml", &configuration(rig, ""));
    rig.ok(&["apply", file.to_str().unwrap()]);
    assert!(!hub.run(["ip", "-br", "link"]).unwrap().contains("h1.100"));
}

#[test]
fn the_kernel_does_not_notice_an_upgrade_and_nothing_is_lost() {
    require!("ip", "ping", "ethtool");
    let all = Vlans::start();
    all.reaches("10.8.2.2");
    let known = || {
        let link = all.link("h1.100");
        let changes = &link["stats64"]["tx"]["carrier_changes"];
        assert!(changes.is_u64(), "{link}");
        (link["ifindex"].clone(), changes.clone())
    };
    let before = known();
    let flow = UdpFlow::start(&all.rig.hosts[0], &all.rig.hosts[1], 2_000).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    for _ in 0..2 {
        all.rig.ok(&["upgrade", "--binary", TRIVIUM]);
        flow.wait_for(1_000, PATIENCE).unwrap();
    }
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
    assert_eq!(known(), before, "the kernel has not noticed");
    all.reaches("10.20.100.1");
}

/// Each VLAN interface keeps its device through an upgrade. The test uses VLANs for which the alphabetical order of the
/// device names (`h1.100`, `h1.20`, `h1.200`) differs from the order of the engine's queues.
#[test]
fn each_vlan_keeps_its_own_device_in_an_upgrade() {
    require!("ip", "ping", "ethtool");
    let all = Vlans::start();
    let file = all.rig.write("more.toml", &configuration(&all.rig, "vlans = [100, 200, 20]"));
    all.rig.ok(&["apply", file.to_str().unwrap()]);
    for _ in 0..2 {
        all.rig.ok(&["upgrade", "--binary", TRIVIUM]);
        // The kernel answers by the device of the VLAN that the request came from.
        for vlan in [100, 200] {
            all.rig.hosts[0].run(["ip", "neighbor", "flush", "dev", &format!("eth0.{vlan}")]).unwrap();
            all.reaches(&format!("10.20.{vlan}.1"));
        }
    }
}

#[test]
fn a_kill_keeps_what_was_set_and_the_next_one_takes_it_as_it_is() {
    require!("ip", "ping", "ethtool");
    let mut all = Vlans::start();
    all.reaches("10.8.2.2");
    let index = all.link("h1.100")["ifindex"].clone();
    all.rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
    eventually("nobody serves it", PATIENCE, || if all.has_carrier() { Err(String::new()) } else { Ok(()) })
        .unwrap();
    let addresses = all.rig.lab.hub().run(["ip", "-br", "address", "show", "h1.100"]).unwrap();
    assert!(addresses.contains("10.20.100.1/24"), "{addresses}");
    let near = configuration(&all.rig, "vlans = [100, 200]");
    all.rig.start(&near);
    assert_eq!(all.link("h1.100")["ifindex"], index);
    all.reaches("10.20.100.1");
    all.reaches("10.8.2.2");
}
