//! Tests a router interface that is identified by two VLAN tags on a port, with the real binary. The other end of the
//! cable is another Trivium router. The test compares frames on the cable octet by octet.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::time::Duration;

use rig::{PATIENCE, Rig, TRIVIUM};
use testbed::{Process, RawReceiver, RawSender, UdpFlow, eventually, require};

/// Name of the device for VLAN 20 inside VLAN 100 at the router's end of the cable.
const NEAR: &str = "h1.100.20";
const FAR: &str = "eth0.100.20";

fn configuration(rig: &Rig, interface: &str) -> String {
    let ports = rig.configuration("");
    let ports = ports.lines().filter(|line| !line.contains("bridge") && !line.contains("access"));
    let ports: String = ports.flat_map(|line| [line, "\n"]).collect();
    format!("{ports}[router.edge.port.h1]\n{interface}\n[router.edge.port.h2]\n")
}

/// Starts the Trivium router at the other end of the cable, in the namespace of the first host.
fn far(rig: &Rig, interface: &str) -> Process {
    let text = format!(
        "[daemon]\napi = {:?}\nstate_dir = {:?}\n[memory]\nframes = 16384\nhuge_pages = \"off\"\n\
         [port.eth0]\nkind = \"af_xdp\"\ndevice = \"eth0\"\n[router.far.port.eth0]\n{interface}\n",
        rig.path("far.sock"),
        rig.path("far-state"),
    );
    let file = rig.write("far.toml", &text);
    let command = rig.hosts[0].command([TRIVIUM, "run", "-c", file.to_str().unwrap()]);
    let mut process = Process::start(command).unwrap();
    process.wait_for_line("ready:", PATIENCE).unwrap();
    process
}

fn address(rig: &Rig) {
    for (namespace, device, last) in [(rig.lab.hub(), NEAR, 1), (&*rig.hosts[0], FAR, 2)] {
        namespace.run(["ip", "address", "replace", &format!("10.30.0.{last}/24"), "dev", device]).unwrap();
        let six = format!("net.ipv6.conf.{}.disable_ipv6=0", device.replace('.', "/"));
        namespace.run(["sysctl", "-qw", &six]).unwrap();
        let six = format!("fd00:30::{last}/64");
        namespace.run(["ip", "address", "replace", &six, "dev", device, "nodad"]).unwrap();
    }
    rig.hosts[0].run(["ip", "route", "replace", "10.8.2.0/24", "via", "10.30.0.1"]).unwrap();
    rig.hosts[0].run(["ip", "-6", "route", "replace", "fd00:8:2::/64", "via", "fd00:30::1"]).unwrap();
}

/// Returns the state of the router's device as the kernel reports it.
fn link(rig: &Rig) -> serde_json::Value {
    let line = ["ip", "-j", "-s", "-s", "link", "show", "dev", NEAR];
    let all: serde_json::Value = serde_json::from_str(&rig.lab.hub().run(line).unwrap()).unwrap();
    all[0].clone()
}

fn reaches(rig: &Rig, arguments: &[&str]) {
    eventually(&format!("the host reaching {arguments:?}"), PATIENCE, || {
        let line = ["ping", "-n", "-c", "2", "-i", "0.05", "-W", "1"].iter().chain(arguments);
        rig.hosts[0].run(line).map_err(|error| error.to_string())
    })
    .unwrap();
}

/// Returns a broadcast ARP request for 10.30.0.1 with two VLAN tags. `outer` is the EtherType of the outer tag.
fn question(outer: [u8; 2]) -> Vec<u8> {
    let arp = "eth_src=02:00:00:00:30:02,arp,arp_spa=10.30.0.2,arp_tpa=10.30.0.1,arp_sha=02:00:00:00:30:02";
    let arp = packet::spec::parse(arp).unwrap();
    [&arp[..12], &outer, &[0, 100, 0x81, 0, 0, 20], &arp[12..]].concat()
}

#[test]
fn two_tags_are_an_interface_on_the_wire() {
    require!("ip", "ping", "ethtool");
    for (outer, kind) in [([0x88, 0xa8], "802.1ad"), ([0x81, 0], "802.1q")] {
        let interface = format!("qinq = [\"100.20\"]\nqinq_outer = \"{kind}\"");
        let mut rig = Rig::routed(2);
        let text = configuration(&rig, &interface);
        rig.start(&text);
        rig.lab.hub().run(["ip", "address", "replace", "10.30.0.1/24", "dev", NEAR]).unwrap();
        // Only this test uses the other end.
        let listens = RawReceiver::open(&rig.hosts[0], "eth0").unwrap();
        let sender = RawSender::open(&rig.hosts[0], "eth0").unwrap();
        let mac: packet::MacAddr = link(&rig)["address"].as_str().unwrap().parse().unwrap();
        // The kernel removes the outer tag from captured frames (engine/tests/route.rs checks both tags).
        let answers = [&[2, 0, 0, 0, 0x30, 2][..], &mac.0, &[0x81, 0, 0, 20, 8, 6]].concat();
        let answered = |patience: u64| {
            while let Some(frame) = listens.arrived(Duration::from_millis(patience)).unwrap() {
                // Operation 2, and the sender's address.
                if frame.starts_with(&answers) && frame[24..26] == [0, 2] && frame[32..36] == [10, 30, 0, 1] {
                    return true;
                }
            }
            false
        };
        eventually("an answer with both tags", PATIENCE, || {
            sender.send(&question(outer)).unwrap();
            if answered(200) { Ok(()) } else { Err("none".to_owned()) }
        })
        .unwrap();
        while answered(200) {}
        // A frame with the other outer tag type does not belong to the interface.
        sender.send(&question(if outer == [0x81, 0] { [0x88, 0xa8] } else { [0x81, 0] })).unwrap();
        assert!(!answered(500));
    }
}

#[test]
fn two_tags_are_routed_like_one() {
    require!("ip", "ping", "ethtool", "iperf3");
    for kind in ["802.1ad", "802.1q"] {
        let mut rig = Rig::routed(2);
        let outer = format!("qinq_outer = \"{kind}\"");
        let text = configuration(&rig, &format!("vlans = [100]\nqinq = [\"100.20\", \"7.4094\"]\n{outer}"));
        rig.start(&text);
        let _far = far(&rig, &format!("qinq = [\"100.20\"]\n{outer}"));
        address(&rig);
        // The kernels at both ends answer ARP, ND and echo requests on the VLAN devices. Forwarded packets arrive with
        // two tags and leave without tags, and replies the other way round.
        for to in ["10.30.0.1", "fd00:30::1", "10.8.2.2", "fd00:8:2::2"] {
            reaches(&rig, &[to]);
        }
        assert_eq!(link(&rig)["mtu"], 1496, "room for the second tag");
        // Packets of the maximum length, and segments whose segmentation the host's kernel leaves to its
        // router.
        reaches(&rig, &["-M", "do", "-s", "1468", "10.8.2.2"]);
        let server = rig.hosts[1].spawn(["iperf3", "-s", "-1"]).unwrap();
        eventually("two megabytes from the host", PATIENCE, || {
            let line = ["iperf3", "-c", "10.8.2.2", "-n", "2M"];
            rig.hosts[0].run(line).map(drop).map_err(|error| error.to_string())
        })
        .unwrap();
        drop(server);
        let shown: serde_json::Value =
            serde_json::from_str(&rig.ok(&["show", "interfaces", "--json"])).unwrap();
        let own = shown.as_array().unwrap().iter().find(|one| one["device"] == NEAR).unwrap();
        assert_eq!((&own["vlan"], &own["inner_vlan"], &own["port"]), (&100.into(), &20.into(), &"h1".into()));
        // The hook of the untagged port passes the packet to the worker, which adds both tags.
        let mac = rig.port("h2")["mac"].as_str().unwrap().to_owned();
        let packet = format!("eth_dst={mac},ip_src=10.8.2.2,ip_dst=10.30.0.2,udp");
        let said = rig.ok(&["explain", "--in", "h2", &packet]);
        assert!(said.contains("out of h1: vlan 100, vlan 20, ") && said.contains("10.30.0.0/24"), "{said}");
        // An upgrade is invisible to the kernel. Then a change removes the double-tagged interface and
        // nothing else.
        let known =
            || (link(&rig)["ifindex"].clone(), link(&rig)["stats64"]["tx"]["carrier_changes"].clone());
        let before = known();
        assert!(before.1.is_u64(), "{before:?}");
        let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 1_000).unwrap();
        flow.wait_for(200, PATIENCE).unwrap();
        rig.ok(&["upgrade", "--binary", TRIVIUM]);
        flow.wait_for(1_000, PATIENCE).unwrap();
        let report = flow.stop().unwrap();
        assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
        assert_eq!(known(), before, "the kernel has not noticed");
        let less = configuration(&rig, &format!("vlans = [100]\nqinq = [\"7.4094\"]\n{outer}"));
        rig.ok(&["apply", rig.write("less.toml", &less).to_str().unwrap()]);
        let links = rig.lab.hub().run(["ip", "-br", "link"]).unwrap();
        assert!(!links.contains(NEAR) && links.contains("h1.100 ") && links.contains("h1.7.4094"), "{links}");
    }
}
