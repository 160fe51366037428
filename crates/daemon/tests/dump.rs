//! Tests `trivium xdp dump` with the real binary: frames before and after the hook, with their verdicts.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::fs::File;
use std::path::Path;
use std::process::Command;

use port::pcap::{Reader, Record};
use rig::{PATIENCE, Rig, TRIVIUM};
use testbed::{Process, UdpFlow, eventually, require};

/// Reads the packets of a capture file.
fn read(path: &Path) -> Vec<Record> {
    let mut reader = Reader::new(File::open(path).unwrap()).unwrap();
    let mut all = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        assert_eq!(reader.interface_name(record.interface), Some("h1"));
        all.push(record);
    }
    all
}

/// Returns the name and the tag of the XDP program on h1.
fn program(rig: &Rig) -> (String, String) {
    let text = rig.ok(&["xdp", "status", "h1", "--seconds", "0", "--json"]);
    let hooks: serde_json::Value = serde_json::from_str(&text).unwrap();
    let word = |what: &str| hooks[0]["program"][what].as_str().unwrap().to_owned();
    (word("name"), word("tag"))
}

fn program_until(rig: &Rig, name: &str) -> String {
    let wanted = eventually(&format!("{name} on h1"), PATIENCE, || match program(rig) {
        (now, tag) if now == name => Ok(tag),
        (now, _) => Err(now),
    });
    wanted.unwrap()
}

/// Starts `trivium xdp dump` for h1 in the background.
fn dumping(rig: &Rig, arguments: &[&str]) -> Process {
    let mut command = Command::new(TRIVIUM);
    command.env("TRIVIUM_SOCKET", rig.socket()).args(["xdp", "dump", "h1"]).args(arguments);
    Process::start(command).unwrap()
}

/// Starts a daemon whose hook on h1 drops UDP packets to port 7 and passes all other frames to the worker.
fn started() -> Rig {
    let mut rig = Rig::new(2);
    let ports = rig.configuration("").replace("device = \"h1\"", "device = \"h1\"\nfilter = \"edge\"");
    let rule = "[filter.edge]\n[[filter.edge.rule]]\nname = \"udp\"\naction = \"drop\"\nprotocol = \"udp\"\n\
                destination_port = 7\n";
    rig.start(&format!("{ports}{rule}"));
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    rig
}

#[test]
fn frames_are_shown_before_and_after_the_hook_with_verdicts() {
    require!("ip", "ping", "ethtool");
    let rig = started();
    let (name, tag) = program(&rig);
    assert_eq!(name, "trivium_port");
    let _dropped = UdpFlow::start_on(&rig.hosts[0], &rig.hosts[1], 1_000, 7).unwrap();
    let _pinging = rig.hosts[0].spawn(["ping", "-n", "-i", "0.02", rig.hosts[1].ip()]).unwrap();
    let file = rig.path("both.pcapng");
    rig.ok(&["xdp", "dump", "h1", "icmp", "-n", "6", "-w", file.to_str().unwrap()]);
    let seen = read(&file);
    for pair in seen.chunks_exact(2) {
        assert_eq!((pair[0].received, pair[1].received), (Some(true), Some(false)));
        assert_eq!(pair[0].data, pair[1].data, "a bridged port's hook changes nothing");
        let told = pair[0].comment.as_deref().unwrap();
        assert!(["verdict: redirect, bridged", "verdict: redirect, steered"].contains(&told), "{told}");
        assert_eq!(pair[1].comment.as_deref(), Some(told));
        // The frames are ICMP echo requests over IPv4.
        assert_eq!((&pair[0].data[12..14], pair[0].data[23], pair[0].data[34]), (&[8, 0][..], 1, 8));
    }
    assert_eq!(seen.len(), 6);
    let text = rig.ok(&["xdp", "dump", "h1", "--verdict", "drop", "--at", "entry", "-n", "3"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    let told = |line: &&str| {
        let why = "[verdict: drop, filter_dropped, rule: udp]";
        line.contains(" h1 in  ") && line.contains(":7, ") && line.ends_with(why)
    };
    assert!(lines.iter().all(told), "{text}");
    // Truncated frames, captured only after the hook.
    let file = rig.path("cut.pcapng");
    let path = file.to_str().unwrap();
    rig.ok(&[
        "xdp",
        "dump",
        "h1",
        "--verdict",
        "redirect",
        "--at",
        "exit",
        "--snap",
        "40",
        "-n",
        "3",
        "-w",
        path,
    ]);
    for record in read(&file) {
        assert_eq!((record.received, record.data.len()), (Some(false), 40));
        assert!(record.original_len > 40);
    }
    // After the dump the hook runs its original program.
    assert_eq!(program_until(&rig, "trivium_port"), tag);
}

/// A capture can start and end under traffic without packet loss or reordering. A second capture is refused while the
/// first one runs.
#[test]
fn a_dump_costs_no_packet() {
    require!("ip", "ping", "ethtool");
    let rig = started();
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    for _ in 0..5 {
        rig.ok(&["xdp", "dump", "h1", "--verdict", "redirect", "-n", "20"]);
        program_until(&rig, "trivium_port");
    }
    // The next capture does not have to wait until the daemon notices the end of the preceding one.
    for _ in 0..3 {
        rig.ok(&["xdp", "dump", "h1", "--verdict", "redirect", "-n", "1"]);
    }
    program_until(&rig, "trivium_port");
    let first = dumping(&rig, &["--verdict", "aborted"]);
    program_until(&rig, "trivium_portdmp");
    let second = rig.trivium(&["xdp", "dump", "h1", "-n", "1"]);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains("another client captures at this hook"), "{said}");
    drop(first);
    program_until(&rig, "trivium_port");
    flow.wait_for(200, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken), (0, 0), "{report:?}");
    for (arguments, word) in [
        (&["xdp", "dump", "nobody"][..], "port.nobody"),
        (&["xdp", "dump", "h1", "colour=red"], "`colour`"),
        (&["xdp", "dump", "h1", "--verdict", "maybe"], "maybe"),
    ] {
        let output = rig.trivium(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(word), "{arguments:?}: {said}");
    }
}

/// A successor process (after an upgrade, or after a kill and a restart) ends a running capture. It replaces the hook's
/// program, which contains capture code, by a program without capture code. Filter rules are in force the whole time.
#[test]
fn a_successor_takes_the_capture_away() {
    require!("ip", "ping", "ethtool");
    let mut rig = started();
    let tag = program(&rig).1;
    let dropped = UdpFlow::start_on(&rig.hosts[0], &rig.hosts[1], 1_000, 7).unwrap();
    let first = dumping(&rig, &["--verdict", "drop"]);
    program_until(&rig, "trivium_portdmp");
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    assert_eq!(program_until(&rig, "trivium_port"), tag);
    drop(first);
    rig.until_reachable(1, 2);
    let second = dumping(&rig, &["--verdict", "drop"]);
    program_until(&rig, "trivium_portdmp");
    rig.ok(&["stop"]);
    rig.daemon = None;
    drop(second);
    let configuration = std::fs::read_to_string(rig.path("trivium.toml")).unwrap();
    rig.start(&configuration);
    assert_eq!(program_until(&rig, "trivium_port"), tag);
    rig.until_reachable(1, 2);
    assert_eq!(dropped.received(), 0);
}
