//! Tests `trivium xdp monitor`, `gen` and `bench` with the real binary.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use packet::{FlowKey, L3Kind, PortId, checksum};
use port::pcap::Writer;
use rig::{PATIENCE, Rig, TRIVIUM};
use serde_json::Value;
use testbed::{Lab, Namespace, Process, RawReceiver, require};

/// Runs `trivium` without a daemon. The command must succeed, and its output is returned.
fn ok(arguments: &[&str]) -> String {
    let output = Command::new(TRIVIUM).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&ok(arguments)).unwrap()
}

/// Returns a counter of a device.
fn counter(namespace: &Namespace, device: &str, name: &str) -> u64 {
    let text = namespace.run(["ip", "-s", "-s", "-j", "link", "show", "dev", device]).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    let (way, name) = name.split_once('.').unwrap();
    value[0]["stats64"][way][name].as_u64().unwrap()
}

/// Returns three sums over all intervals that a monitor has printed for a port: received frames, steered frames, and
/// frames that were lost because a socket's ring was full.
fn sums(output: &str, port: &str) -> [u64; 3] {
    let mut sums = [0; 3];
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let interval: Value = serde_json::from_str(line).unwrap();
        let flow = &interval["ports"][port];
        sums[0] += flow["seen"].as_u64().unwrap();
        sums[1] += flow["ways"]["steered"].as_u64().unwrap_or(0);
        for lost in flow["lost"].as_array().unwrap() {
            assert_eq!(lost["tracepoint"], "xdp_redirect_err", "{line}");
            assert!(lost["reason"].as_str().unwrap().starts_with("the socket"), "{line}");
            sums[2] += lost["frames"].as_u64().unwrap();
        }
    }
    sums
}

/// `trivium xdp monitor` counts every frame of a flood once as received, and also as lost if no socket accepted the
/// frame.
#[test]
fn a_monitor_tells_what_came_and_what_the_kernel_lost() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    // A burst at full rate does not fit into this ring.
    let configuration = rig.configuration("ring_size = 64");
    rig.start(&configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let mut command = Command::new(TRIVIUM);
    command.env("TRIVIUM_SOCKET", rig.socket()).args(["xdp", "monitor", "--seconds", "4", "--json"]);
    let mut monitor = Process::start(command).unwrap();
    monitor.wait_for_line("\"h1\"", PATIENCE).unwrap();
    let missed = rig.port("h1")["counters"]["rx_missed"].as_u64().unwrap();
    let before = rig.port("h1")["counters"]["rx_packets"].as_u64().unwrap();
    let host = rig.lab.namespace_name("h1");
    let sent = json(&["xdp", "gen", "eth0", "--namespace", &host, "--packets", "200000", "--json"]);
    assert_eq!(sent["offered"], 200_000);
    let arrived = 200_000 - sent["lost"].as_u64().unwrap();
    let (status, output) = monitor.finish(PATIENCE).unwrap();
    assert!(status.success(), "{output}");
    let [met, steered, lost] = sums(&output, "h1");
    assert_eq!((met, steered), (arrived, arrived), "{output}");
    assert!(lost > 0, "{output}");
    // The worker received the rest, and the socket counted the losses.
    let port = rig.port("h1");
    let figure = |name: &str| port["counters"][name].as_u64().unwrap();
    assert_eq!(figure("rx_packets") - before + lost, arrived, "{port} {output}");
    assert_eq!(figure("rx_missed") - missed, lost, "{port}");
    // The other port is reported and has no losses.
    assert_eq!(sums(&output, "h2")[2], 0);

    let text = rig.ok(&["xdp", "monitor", "h1", "--seconds", "1"]);
    assert!(text.starts_with("PORT  FRAMES") && text.contains("h1    met the hook"), "{text}");
    assert!(!text.contains("h2"), "{text}");

    // Losses are reported individually as far as they fit into the ring.
    let mut command = Command::new(TRIVIUM);
    command.env("TRIVIUM_SOCKET", rig.socket());
    command.args(["xdp", "monitor", "--each", "--seconds", "4", "--json"]);
    let mut each = Process::start(command).unwrap();
    for _ in 0..3 {
        json(&["xdp", "gen", "eth0", "--namespace", &host, "--packets", "200000", "--json"]);
    }
    each.wait_for_line("xdp_redirect_err", PATIENCE).unwrap();
    let (status, output) = each.finish(PATIENCE).unwrap();
    assert!(status.success(), "{output}");
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let each: Value = serde_json::from_str(line).unwrap();
        assert_eq!((each["ports"][0].as_str(), each["frames"].as_u64()), (Some("h1"), Some(1)), "{line}");
        assert!(each["reason"].as_str().unwrap().starts_with("the socket"), "{line}");
    }
    assert_eq!(rig.trivium(&["xdp", "monitor", "nobody", "--seconds", "1"]).status.code(), Some(1));
}

/// Creates a veth pair, with both ends in one namespace. An end of the pair accepts redirected frames only while an XDP
/// program is attached to it.
fn pair() -> (Lab, Namespace) {
    let lab = Lab::new().unwrap();
    let place = lab.namespace("gen").unwrap();
    place.run(["ip", "link", "add", "one", "type", "veth", "peer", "name", "two"]).unwrap();
    for device in ["one", "two"] {
        place.run(["ip", "link", "set", device, "up"]).unwrap();
    }
    (lab, place)
}

#[test]
fn generated_frames_arrive_and_what_does_not_is_told() {
    require!("ip", "ethtool");
    let (_lab, place) = pair();
    let name = place.name();
    // A veth without a program at the far end accepts no frames.
    let sent = json(&["xdp", "gen", "one", "--namespace", name, "--packets", "500", "--json"]);
    assert_eq!((&sent["offered"], &sent["lost"]), (&500.into(), &500.into()));
    // A veth with GRO accepts frames.
    place.run(["ethtool", "-K", "two", "gro", "on"]).unwrap();
    let before = (counter(&place, "two", "rx.packets"), counter(&place, "two", "rx.bytes"));
    let sent = json(&[
        "xdp",
        "gen",
        "one",
        "--namespace",
        name,
        "--packets",
        "500",
        "--length",
        "100",
        "--flows",
        "16",
        "--json",
    ]);
    assert_eq!((&sent["offered"], &sent["lost"]), (&500.into(), &0.into()));
    let now = (counter(&place, "two", "rx.packets"), counter(&place, "two", "rx.bytes"));
    assert_eq!((now.0 - before.0, now.1 - before.1), (500, 50_000));
    let text = ok(&["xdp", "gen", "one", "--namespace", name, "--rate", "2000", "--seconds", "0.5"]);
    let offered: u64 = text.split(' ').next().unwrap().parse().unwrap();
    // The number never exceeds the rate, and is lower on a busy machine.
    assert!((100..=1_100).contains(&offered) && text.contains("took all of them"), "{text}");
}

/// Runs `trivium xdp gen` with `arguments`, and returns the generated frames (UDP or TCP to port 9) that the peer
/// receives.
fn arrived(place: &Namespace, packets: usize, arguments: &str) -> Vec<(Vec<u8>, FlowKey)> {
    let receiver = RawReceiver::open(place, "two").unwrap();
    let count = packets.to_string();
    let line = ["xdp", "gen", "one", "--namespace", place.name(), "--json", "--packets", &count];
    let sent = json(&line.into_iter().chain(arguments.split(' ')).collect::<Vec<_>>());
    assert_eq!((&sent["offered"], &sent["lost"]), (&packets.into(), &0.into()), "{sent}");
    let frames = RefCell::new(Vec::new());
    let last = |frame: &[u8]| {
        let mut key = FlowKey::default();
        // The devices send frames of their own, too.
        let ours = FlowKey::extract(frame, frame.len(), PortId(0), &mut key).is_ok() && key.dst_port() == 9;
        if ours {
            frames.borrow_mut().push((frame.to_vec(), key));
        }
        frames.borrow().len() == packets
    };
    receiver.count_until(|_| false, last, PATIENCE).unwrap();
    frames.into_inner()
}

/// Returns whether the checksums of a UDP or TCP packet without options are valid.
fn sums_are_right(frame: &[u8], key: &FlowKey) -> bool {
    let packet = &frame[14..];
    let (header, pseudo) = match key.l3_kind() {
        L3Kind::Ipv4 => {
            let length = u16::try_from(packet.len() - 20).unwrap();
            (20, checksum::l4_pseudo_v4(key.ipv4_src(), key.ipv4_dst(), key.proto(), length))
        }
        _ => {
            let length = u32::try_from(packet.len() - 40).unwrap();
            (40, checksum::l4_pseudo_v6(key.ipv6_src(), key.ipv6_dst(), key.proto(), length))
        }
    };
    let network = header == 40 || checksum::ipv4_header(&packet[..20]) == 0;
    // A zero checksum in UDP means no checksum.
    let there = key.proto() == 6 || packet[header + 6..header + 8] != [0, 0];
    network && there && checksum::finish(pseudo + checksum::sum(&packet[header..])) == 0
}

#[test]
fn frames_of_several_lengths_and_of_ipv6_arrive_as_they_were_asked_for() {
    require!("ip", "ethtool");
    let (_lab, place) = pair();
    place.run(["ethtool", "-K", "two", "gro", "on"]).unwrap();
    let (six, listed) = ("--source 2001:db8:1::2 --destination 2001:db8:2::2", "--length 100x7,594x4,1514");
    let cases = [
        ("--length imix".to_owned(), L3Kind::Ipv4, 17, [60, 590, 1514]),
        (format!("{listed} --protocol tcp"), L3Kind::Ipv4, 6, [100, 594, 1514]),
        (format!("{six} --length imix"), L3Kind::Ipv6, 17, [62, 590, 1514]),
        (format!("{listed} --source 2001:db8:1::2 --protocol tcp"), L3Kind::Ipv6, 6, [100, 594, 1514]),
        (format!("{listed} {six} --order random"), L3Kind::Ipv6, 17, [100, 594, 1514]),
    ];
    for (arguments, family, protocol, [short, middle, long]) in cases {
        let frames = arrived(&place, 384, &format!("{arguments} --flows 16 --vary source,ports"));
        let (mut lengths, mut flows) = (BTreeMap::new(), BTreeSet::new());
        for (frame, key) in &frames {
            assert_eq!((key.l3_kind(), key.proto()), (family, protocol), "{arguments}");
            assert!(sums_are_right(frame, key), "{arguments}: {frame:02x?}");
            *lengths.entry(frame.len()).or_insert(0) += 1;
            let source = match family {
                L3Kind::Ipv4 => key.ipv4_src().to_string(),
                _ => key.ipv6_src().to_string(),
            };
            flows.insert((source, key.src_port()));
        }
        if arguments.contains("random") {
            assert!(lengths.keys().eq([&short, &middle, &long]), "{lengths:?}");
            assert!(lengths[&short] > lengths[&long], "{lengths:?}");
        } else {
            assert_eq!(lengths, BTreeMap::from([(short, 224), (middle, 128), (long, 32)]), "{arguments}");
            assert_eq!(flows.len(), 16, "{arguments}");
        }
    }
    // One length over IPv6, the shortest possible.
    let frames = arrived(&place, 10, six);
    assert!(
        frames.iter().all(|(frame, key)| frame.len() == 62 && sums_are_right(frame, key)),
        "{frames:02x?}"
    );

    for (arguments, why) in [
        ("--source 10.0.0.1 --destination 2001:db8::2", "source 10.0.0.1 and destination 2001:db8::2"),
        ("--length 60 --source 2001:db8::2", "length is 60; over IPv6 give at least 62"),
        ("--length imix --flows 8192", "is 98304"),
        ("--length imix --flows 3", "flows is 3"),
    ] {
        let line = ["xdp", "gen", "one", "--namespace", place.name()];
        let output = Command::new(TRIVIUM).args(line).args(arguments.split(' ')).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(why), "{arguments}: {said}");
    }
}

#[test]
fn frames_of_a_file_are_sent_again() {
    require!("ip", "ethtool");
    let (lab, place) = pair();
    place.run(["ethtool", "-K", "two", "gro", "on"]).unwrap();
    let file = std::env::temp_dir().join(lab.namespace_name("frames.pcap"));
    let mut writer = Writer::pcapng(std::fs::File::create(&file).unwrap()).unwrap();
    let interface = writer.interface("any").unwrap();
    let frame = |length: usize| {
        [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5][..], &vec![7; length - 14]].concat()
    };
    for length in [60, 200, 1514, 9000] {
        let frame = frame(length);
        writer.packet(interface, 0, u32::try_from(length).unwrap(), [frame.as_slice()], None).unwrap();
    }
    // A frame that was truncated at capture.
    writer.packet(interface, 0, 400, [frame(100).as_slice()], None).unwrap();
    writer.flush().unwrap();
    let before = counter(&place, "two", "rx.bytes");
    let path = file.to_str().unwrap();
    let line = ["xdp", "gen", "one", "--namespace", place.name(), "--pcap", path, "--packets", "6"];
    let text = ok(&line);
    assert!(text.starts_with("3 frames of the file, 2 left out"), "{text}");
    assert_eq!(counter(&place, "two", "rx.bytes") - before, 2 * (60 + 200 + 1514));
    let refused = Command::new(TRIVIUM).args([&line[..], &["--vlan", "5"]].concat()).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "a file has its own tags");
    std::fs::write(&file, "no capture").unwrap();
    let refused = Command::new(TRIVIUM).args(line).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && said.contains(path), "{said}");
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_bench_measures_ours_beside_the_barest() {
    require!("ip", "unshare", "ethtool");
    for (scenario, planes) in [("drop", 4), ("block", 3), ("tx", 2), ("redirect", 2), ("route", 3)] {
        let measured = json(&["xdp", "bench", scenario, "--seconds", "0.2", "--rounds", "3", "--json"]);
        let list = measured["planes"].as_array().unwrap();
        assert_eq!(list.len(), planes, "{measured}");
        for plane in list {
            // The bound is far below any expected rate, and shows that frames were counted in the right
            // place.
            assert!(plane["most_pps"].as_f64().unwrap() > 1_000.0, "{measured}");
        }
        assert_eq!(list[0]["bare"], true);
    }
    let text = ok(&["xdp", "bench", "drop", "--seconds", "0.1", "--rounds", "2"]);
    assert!(text.contains("filter with one rule") && text.contains("median of 2 rounds"), "{text}");
    let left = Command::new("ip").args(["-o", "link"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&left.stdout).contains("xgen"), "its devices have gone with it");
}
