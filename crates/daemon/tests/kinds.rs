//! Tests the properties of port kinds with the real binary: recordings on a full disk, TAPs, the host's own interface,
//! jumbo frames, and queues that are distributed over workers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::path::Path;

use rig::{PATIENCE, Rig};
use serde_json::json;
use testbed::{UdpFlow, eventually, require};

/// Writes a capture file with `count` frames of 1,000 bytes for an unknown destination.
fn frames(path: &Path, count: u32) {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend_from_slice(&word.to_ne_bytes());
    }
    let mut frame = vec![0_u8; 1_000];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    for number in 0..count {
        for word in [number, 0, 1_000, 1_000] {
            file.extend_from_slice(&word.to_ne_bytes());
        }
        file.extend_from_slice(&frame);
    }
    std::fs::write(path, file).unwrap();
}

/// A file system of 64 KiB, which is unmounted when this value is dropped.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(at: std::path::PathBuf) -> SmallDisk {
        std::fs::create_dir_all(&at).unwrap();
        let mut mount = std::process::Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&at).status().unwrap();
        assert!(mounted.success());
        SmallDisk(at)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_recording_on_a_full_disk_stops_and_says_so() {
    require!("ip");
    let mut rig = Rig::new(0);
    let file = rig.path("in.pcap");
    frames(&file, 2_000);
    let small = SmallDisk::mount(rig.path("small"));
    let full = small.0.join("out.pcapng");
    let configuration = format!(
        "{}[port.in]\nkind = \"pcap\"\nread = {file:?}\ntiming = \"flat-out\"\n\
         [port.out]\nkind = \"pcap\"\nwrite = {full:?}\n[bridge.br0.port.in]\n[bridge.br0.port.out]\n",
        rig.configuration("")
    );
    rig.start(&configuration);
    rig.port_until("out", "recording stopped", |port| {
        port["reasons"].to_string().contains("recording stopped")
    });
    assert!(rig.daemon().output().contains("recording stopped"), "the log says it as well");
    // Every packet is either recorded or counted as a drop.
    eventually("2,000 packets accounted for", PATIENCE, || {
        let (received, out) = (rig.port("in")["counters"]["rx_packets"].as_u64().unwrap(), rig.port("out"));
        let (sent, drops) = (out["counters"]["tx_packets"].as_u64(), out["counters"]["drops"].as_u64());
        let whole = received == 2_000 && sent.unwrap() + drops.unwrap() == 2_000 && drops.unwrap() > 1_000;
        if whole { Ok(()) } else { Err(format!("{received} in, {out}")) }
    })
    .unwrap();
    assert!(rig.ok(&["show", "drops", "out"]).contains("tx-failed"));
}

#[test]
fn taps_and_the_hosts_own_interface_are_members() {
    require!("ip", "ping", "ethtool", "iperf3");
    let mut rig = Rig::new(1);
    let guest = rig.lab.namespace("guest").unwrap();
    let configuration = format!(
        "{}[port.vm]\nkind = \"tap\"\ndevice = \"vm0\"\nnamespace = \"{}\"\naddress = [\"10.8.0.60/24\"]\nqueues = 2\n\
         [port.host]\nkind = \"internal\"\naddress = [\"10.8.0.61/24\"]\n\
         [bridge.br0.port.vm]\naccess = 10\n[bridge.br0.port.host]\naccess = 10\n",
        rig.configuration("persist = false"),
        guest.name(),
    );
    rig.start(&configuration);
    for address in ["10.8.0.60", "10.8.0.61"] {
        let reached = rig.hosts[0].ping(address, 20);
        assert!(reached.is_ok_and(|report| report.loss() < 0.3), "{}", rig.ok(&["show", "drops"]));
    }
    // Traffic out of both ports, with segments whose segmentation the kernel leaves to Trivium.
    guest.run(["ping", "-n", "-c", "3", "-i", "0.01", "10.8.0.61"]).unwrap();
    rig.lab.hub().run(["ping", "-n", "-c", "3", "-i", "0.01", "10.8.0.1"]).unwrap();
    let server = guest.spawn(["iperf3", "-s", "-1"]).unwrap();
    let reached = |what: &str| {
        eventually(what, PATIENCE, || {
            let line = ["iperf3", "-c", "10.8.0.60", "-n", "2M"];
            rig.lab.hub().run(line).map(drop).map_err(|error| error.to_string())
        })
    };
    reached("two megabytes over TCP").unwrap();
    drop(server);
}

#[test]
fn jumbo_frames_pass_whole() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    for host in &rig.hosts {
        rig.lab.hub().run(["ip", "link", "set", host.device(), "mtu", "9000"]).unwrap();
        host.run(["ip", "link", "set", "eth0", "mtu", "9000"]).unwrap();
    }
    let tenant = rig.lab.namespace("tenant").unwrap();
    let configuration = format!(
        "{}[port.v]\nkind = \"veth\"\nmtu = 9000\n\
         peer = {{ name = \"eth0\", namespace = \"{}\", address = [\"10.8.0.9/24\"] }}\n[bridge.br0.port.v]\naccess = 10\n",
        rig.configuration("persist = false\nmtu = 9000"),
        tenant.name(),
    );
    rig.start(&configuration);
    rig.until_reachable(1, 2);
    let large = |to: &str| {
        let line = ["ping", "-n", "-c", "5", "-i", "0.05", "-W", "2", "-M", "do", "-s", "8900", to];
        rig.hosts[0].run(line).map_err(|error| format!("{error}\n{}", rig.ok(&["show", "drops"])))
    };
    large(rig.hosts[1].ip()).unwrap();
    large("10.8.0.9").unwrap();
}

#[test]
fn one_queue_is_spread_over_workers_in_order() {
    require!("ip", "ethtool");
    let mut rig = Rig::new(2);
    let configuration =
        format!("{}[engine]\nworkers = [0, 1]\n", rig.configuration("persist = false\nsoftware_rss = true"));
    rig.start(&configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 5_000).unwrap();
    flow.wait_for(500, PATIENCE).unwrap();
    // All buckets are assigned to one worker, then to the other, and back, under traffic.
    for round in 0..20 {
        let answer = rig.put("/v1/rss/h1", &format!("{{\"buckets\":[{}]}}", round % 2));
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
        flow.wait_for(50, PATIENCE).unwrap();
    }
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
    let workers: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "workers", "--json"])).unwrap();
    let taken: u64 =
        workers.as_array().unwrap().iter().map(|worker| worker["handed_over"].as_u64().unwrap()).sum();
    assert!(taken > 0, "{workers}");
}

/// Checks that the queues of a port are distributed over the workers when the port's device appears after the start of
/// the daemon.
#[test]
fn a_port_that_has_waited_for_its_device_is_spread() {
    require!("ip", "ethtool");
    let mut rig = Rig::new(2);
    let hub = rig.lab.hub().clone();
    hub.run(["ip", "link", "set", "dev", "h1", "down"]).unwrap();
    hub.run(["ip", "link", "set", "dev", "h1", "name", "later"]).unwrap();
    let configuration =
        format!("{}[engine]\nworkers = [0, 1]\n", rig.configuration("persist = false\nsoftware_rss = true"));
    rig.start(&configuration);
    rig.port_until("h1", "waiting", |port| port["trouble"].is_string());
    hub.run(["ip", "link", "set", "dev", "later", "name", "h1"]).unwrap();
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let answer = rig.put("/v1/rss/h1", "{\"buckets\":[1]}");
    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
}

/// Checks that no packet of a flow is lost while the flow's input port and output port move to other workers, with and
/// without software RSS.
#[test]
fn ports_change_their_workers_without_loss() {
    require!("ip", "ethtool");
    let mut rig = Rig::new(2);
    let text = |workers: [u8; 2], software_rss: bool| {
        let mut text = format!("{}[engine]\nworkers = [0, 1]\n", rig.configuration("persist = false"));
        for (name, worker) in ["h1", "h2"].into_iter().zip(workers) {
            let device = format!("device = \"{name}\"\n");
            text = text
                .replace(&device, &format!("{device}workers = [{worker}]\nsoftware_rss = {software_rss}\n"));
        }
        text
    };
    let texts: Vec<(String, [u8; 2])> = [[0, 0], [1, 1], [0, 1], [1, 0]]
        .into_iter()
        .flat_map(|homes| [false, true].map(|software_rss| (text(homes, software_rss), homes)))
        .collect();
    rig.start(&texts[0].0);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 5_000).unwrap();
    flow.wait_for(500, PATIENCE).unwrap();
    for (text, homes) in texts.iter().cycle().skip(1).take(24) {
        let file = rig.write("moved.toml", text);
        rig.ok(&["apply", file.to_str().unwrap()]);
        for (name, worker) in ["h1", "h2"].into_iter().zip(homes) {
            assert_eq!(rig.port(name)["workers"], json!([worker]));
        }
        flow.wait_for(50, PATIENCE).unwrap();
    }
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
    let drops: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "drops", "--json"])).unwrap();
    assert_eq!(drops, json!([]));
}

#[test]
fn two_queues_of_a_port_belong_to_two_workers() {
    require!("ip", "ethtool");
    let mut rig = Rig::with_queues(2, 2);
    let configuration =
        format!("{}[engine]\nworkers = [0, 1]\n", rig.configuration("persist = false\nring_size = 8192"));
    rig.start(&configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    for name in ["h1", "h2"] {
        let port = rig.port(name);
        assert_eq!((&port["queues"], &port["workers"]), (&json!(2), &json!([0, 1])), "{port}");
    }
    // Returns the packets that each worker has taken from its queues. The workers hand over no packets if both have a
    // queue of the output port.
    let taken = || {
        let all: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "workers", "--json"])).unwrap();
        [0, 1].map(|id| {
            let worker = &all[id];
            assert_eq!(worker["queues"], json!([format!("h1/{id}"), format!("h2/{id}")]), "{all}");
            assert_eq!(worker["handed_over"], json!(0), "{all}");
            worker["packets"].as_u64().unwrap()
        })
    };
    let before = taken();
    // The sender's kernel assigns sockets to queues at random. Flows are added until both queues have some.
    let mut flows = Vec::new();
    eventually("flows in both queues", PATIENCE, || {
        assert!(flows.len() < 40, "40 flows in one queue");
        for number in flows.len()..flows.len() + 4 {
            let port = 7100 + u16::try_from(number).unwrap();
            flows.push(UdpFlow::start_on(&rig.hosts[0], &rig.hosts[1], 500, port).unwrap());
        }
        flows.iter().for_each(|flow| flow.wait_for(100, PATIENCE).unwrap());
        let now = taken();
        if [0, 1].iter().all(|id| now[*id] >= before[*id] + 100) {
            Ok(())
        } else {
            Err(format!("{before:?} {now:?}"))
        }
    })
    .unwrap();
    for flow in &flows {
        flow.wait_for(300, PATIENCE).unwrap();
    }
    let reports: Vec<_> = flows.into_iter().map(|flow| flow.stop().unwrap()).collect();
    for report in &reports {
        assert_eq!((report.overtaken, report.doubled), (0, 0), "{reports:?}");
    }
    // On a loaded machine the kernel may lose packets before the sockets. No packet is lost after them.
    let received: u64 = reports.iter().map(|report| report.received).sum();
    let after = taken();
    assert_eq!(after[0] + after[1] - before[0] - before[1], received, "{before:?} {after:?} {reports:?}");
    let drops: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "drops", "--json"])).unwrap();
    assert_eq!(drops, json!([]));
}
