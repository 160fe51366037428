//! Tests the commands that observe and control a running daemon, with the real binary: captures with directions and
//! drop reasons, flush, stop, and upgrade to the same binary.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::collections::BTreeSet;
use std::fs::File;

use packet::{FlowKey, PortId};
use port::pcap::{Reader, Record};
use rig::{PATIENCE, Rig};
use rustix::process::Signal;
use testbed::require;

/// Reads the packets of a capture file, each with the name of its interface.
fn read(path: &std::path::Path) -> Vec<(String, Record)> {
    let mut reader = Reader::new(File::open(path).unwrap()).unwrap();
    let mut all = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        all.push((reader.interface_name(record.interface).unwrap().to_owned(), record));
    }
    all
}

fn key(record: &Record) -> FlowKey {
    let mut key = FlowKey::default();
    FlowKey::extract(&record.data, record.data.len(), PortId(0), &mut key).unwrap();
    key
}

#[test]
fn a_capture_keeps_ports_directions_and_reasons() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(3);
    let configuration = rig.configuration_with("", &[10, 10, 20]);
    rig.start(&configuration);
    rig.until_reachable(1, 2);
    let file = rig.path("all.pcapng");
    let path = file.to_str().unwrap();
    let pinging = rig.hosts[0].spawn(["ping", "-n", "-i", "0.05", rig.hosts[1].ip()]).unwrap();
    rig.ok(&["capture", "all", "-n", "12", "icmp", "-w", path]);
    let seen = read(&file);
    assert_eq!(seen.len(), 12);
    let mut ways = BTreeSet::new();
    for (port, record) in &seen {
        let key = key(record);
        assert_eq!((key.proto(), &record.comment), (1, &None));
        ways.insert((port.as_str(), record.received.unwrap(), key.src_port()));
    }
    // Echo requests (8) enter at h1 and leave at h2, and replies (0) take the opposite path. h3 has none.
    let expected = [("h1", true, 8), ("h2", false, 8), ("h2", true, 0), ("h1", false, 0)];
    assert_eq!(ways, BTreeSet::from(expected));
    let lines = rig.ok(&["capture", "all", "icmp", "-n", "8"]);
    assert!(lines.contains(" h1 in ") && lines.contains(" h2 out "), "{lines}");
    drop(pinging);

    // Packets of a host alone in its VLAN are dropped, and the file contains the reason.
    let asking = rig.hosts[2].spawn(["ping", "-n", "-i", "0.05", rig.hosts[0].ip()]).unwrap();
    let file = rig.path("drops.pcapng");
    rig.ok(&["capture", "all", "--drops", "-n", "3", "arp", "-w", file.to_str().unwrap()]);
    drop(asking);
    for (port, record) in read(&file) {
        assert_eq!((port.as_str(), record.received), ("h3", Some(true)));
        assert_eq!(record.comment.as_deref(), Some("dropped: no-member"));
    }
}

/// Packets that are dropped at an output port are counted and captured at the port that received them. Regression test
/// for the review of 2026-11-23: they were counted as if the output port had received them.
#[test]
fn drops_at_an_output_are_told_where_the_packets_came_in() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let configuration = rig.configuration("");
    rig.start(&configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    rig.lab.hub().run(["ip", "link", "set", "dev", "h2", "mtu", "1400"]).unwrap();
    rig.port_until("h2", "resized", |port| port["mtu"] == 1400);
    let ping = ["ping", "-n", "-i", "0.05", "-s", "1450", "-M", "do"];
    // The command fails, because no answer arrives.
    let _ = rig.hosts[0].run(ping.iter().chain(&["-c", "3", "-W", "1", rig.hosts[1].ip()]));
    assert_eq!((rig.dropped("h1", "mtu-exceeded"), rig.dropped("h2", "mtu-exceeded")), (3, 0));
    let pinging = rig.hosts[0].spawn(ping.iter().chain(&[rig.hosts[1].ip()])).unwrap();
    // A capture on the output port contains the drops, too.
    for port in ["h1", "h2", "all"] {
        let file = rig.path("drops.pcapng");
        rig.ok(&["capture", port, "--drops", "-n", "2", "icmp", "-w", file.to_str().unwrap()]);
        for (interface, record) in read(&file) {
            assert_eq!((interface.as_str(), record.received), ("h1", Some(true)));
            assert_eq!(record.comment.as_deref(), Some("dropped: mtu-exceeded, output: h2"));
        }
    }
    rig.lab.hub().run(["ip", "link", "set", "dev", "h2", "down"]).unwrap();
    rig.port_until("h2", "down", |port| port["link_up"] == false);
    let lines = rig.ok(&["capture", "h1", "--drops", "-n", "1", "icmp"]);
    assert!(
        lines.contains(" h1 in ") && (lines.contains("port-down") || lines.contains("no-member")),
        "{lines}"
    );
    drop(pinging);
    let shown = |what: &str| -> Vec<serde_json::Value> {
        serde_json::from_str(&rig.ok(&["show", what, "--json"])).unwrap()
    };
    testbed::eventually("what a port has lost is the sum of the reasons", PATIENCE, || {
        let (ports, drops) = (shown("ports"), shown("drops"));
        for port in &ports {
            let sum = drops.iter().filter(|drop| drop["port"] == port["name"]);
            let sum: u64 = sum.map(|drop| drop["packets"].as_u64().unwrap()).sum();
            let counted = |name: &str| port["counters"][name].as_u64().unwrap();
            if sum != counted("drops") + counted("rx_missed") {
                return Err(format!("{sum}: {port} {drops:?}"));
            }
        }
        Ok(())
    })
    .unwrap();
}

/// A capture file is complete after SIGTERM, and `capture` fails if the daemon ends. Regression test for the review of
/// 2026-11-23: the file had only 40 octets after SIGTERM, and the exit status was 0 after the daemon had stopped.
#[test]
fn a_capture_is_whole_when_it_is_ended_from_outside() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let configuration = rig.configuration("");
    rig.start(&configuration);
    rig.until_reachable(1, 2);
    let capture = |arguments: &[&str]| {
        let socket = rig.socket();
        let mut whole = vec![rig::TRIVIUM, "--socket", socket.to_str().unwrap(), "capture", "all", "icmp"];
        whole.extend(arguments);
        let mut process = testbed::Process::start(rig.lab.hub().command(whole)).unwrap();
        process.wait_for_line("capturing to ", PATIENCE).unwrap();
        process
    };
    let file = rig.path("terminated.pcapng");
    let terminated = capture(&["-w", file.to_str().unwrap()]);
    assert_eq!(rig.hosts[0].ping(rig.hosts[1].ip(), 5).unwrap().loss(), 0.0);
    let (status, said) = terminated.stop(Signal::TERM, PATIENCE).unwrap();
    assert!(status.success(), "{said}");
    // 5 requests and replies, each received on one port and sent on another, without packets in flight to the
    // client.
    assert!((8..=20).contains(&read(&file).len()), "{} packets", read(&file).len());

    let orphaned = capture(&["-w", file.to_str().unwrap()]);
    rig.ok(&["stop"]);
    let (status, said) = orphaned.finish(PATIENCE).unwrap();
    assert!(status.code() == Some(1) && said.contains("the daemon has ended the stream"), "{said}");
}

#[test]
fn a_wrong_filter_is_named_by_captures_and_traces() {
    let rig = Rig::new(0);
    for command in [["capture", "h1", "colour=red"], ["trace", "tcp", "colour=red"]] {
        let output = rig.trivium(&command);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && text.contains("`colour`"), "{command:?}: {text}");
    }
}

#[test]
fn flushed_addresses_are_learned_again() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let configuration = rig.configuration("");
    rig.start(&configuration);
    rig.until_reachable(1, 2);
    let (one, two) = (rig.hosts[0].mac().unwrap(), rig.hosts[1].mac().unwrap());
    assert!(
        rig.ok(&["flush", "br0", "--port", "h1", "--vlan", "10", "--mac", &one])
            .contains("1 address forgotten")
    );
    let left = rig.ok(&["show", "fdb"]);
    assert!(!left.contains(&one) && left.contains(&two), "{left}");
    assert!(rig.ok(&["flush"]).contains(" forgotten"));
    rig.until_reachable(1, 2);
    assert!(rig.ok(&["show", "fdb"]).contains(&one));
    assert!(rig.ok(&["show", "fdb", "br0", "--port", "h1", "--vlan", "10"]).contains(&one));
    assert!(!rig.ok(&["show", "fdb", "--mac", &two]).contains(&one));
    for unknown in [&["fdb", "nobody"][..], &["fdb", "--port", "nobody"], &["drops", "nobody"]] {
        let refused = rig.trivium(&[&["show"], unknown].concat());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            refused.status.code() == Some(1) && said.contains("nobody: there is no such object"),
            "{said}"
        );
    }
    assert_eq!(rig.trivium(&["flush", "nobody"]).status.code(), Some(1));
    assert_eq!(rig.trivium(&["flush", "br0", "--vlan", "5000"]).status.code(), Some(1));
}

/// If `trivium upgrade` is called without a path, the daemon's own binary is started. `trivium stop` then ends the
/// process that was started by the upgrade.
#[test]
fn an_upgrade_to_the_own_binary_and_a_stop() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let configuration = rig.configuration("");
    // The daemon's binary differs from the client's.
    let copy = rig.path("trivium-of-the-daemon");
    std::fs::copy(rig::TRIVIUM, &copy).unwrap();
    let file = rig.write("trivium.toml", &configuration);
    let command = rig.lab.hub().command([copy.to_str().unwrap(), "run", "-c", file.to_str().unwrap()]);
    let mut process = testbed::Process::start(command).unwrap();
    process.wait_for_line("ready:", PATIENCE).unwrap();
    let first = process.pid();
    rig.daemon = Some(process);
    rig.until_reachable(1, 2);
    // The binary is replaced as a package upgrade does, by removal and creation.
    std::fs::remove_file(&copy).unwrap();
    std::fs::copy(rig::TRIVIUM, &copy).unwrap();
    let said = rig.ok(&["upgrade"]);
    assert!(said.contains(&format!("{} has taken over", copy.display())), "{said}");
    let (status, output) = rig.daemon.take().unwrap().finish(PATIENCE).unwrap();
    assert!(status.success(), "{output}");
    rig.until_reachable(2, 1);
    let running = || {
        let pids = rig.lab.hub().run(["ip", "netns", "pids", rig.lab.hub().name()]).unwrap_or_default();
        pids.lines().any(|pid| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            pid != first.to_string() && line.contains("--take-over")
        })
    };
    assert!(running());
    assert_eq!(rig.ok(&["stop", "--json"]), "{\"stopped\":true}\n");
    assert!(!rig.socket().exists());
    testbed::eventually("the end", PATIENCE, || if running() { Err(String::new()) } else { Ok(()) }).unwrap();
    let again = rig.trivium(&["stop"]);
    assert_eq!(again.status.code(), Some(4), "nobody answers");
}
