//! Tests forwarding of frames to known unicast addresses in the hook (XDP program), with the real binary between real
//! hosts. Whatever makes a flow move between hook and worker, no packet is lost or reordered.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::time::Duration;

use rig::{PATIENCE, Rig, TRIVIUM};
use rustix::process::Signal;
use testbed::{UdpFlow, eventually, require};

/// Creates hosts whose devices accept redirected frames.
fn rig(hosts: u8) -> Rig {
    let rig = Rig::new(hosts);
    for host in &rig.hosts {
        host.run(["ethtool", "-K", "eth0", "gro", "on"]).unwrap();
    }
    rig
}

/// Returns the number of packets that workers have processed.
fn by_workers(rig: &Rig) -> u64 {
    let workers: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "workers", "--json"])).unwrap();
    workers.as_array().unwrap().iter().map(|worker| worker["packets"].as_u64().unwrap()).sum()
}

fn received(rig: &Rig, port: &str) -> u64 {
    rig.port(port)["counters"]["rx_packets"].as_u64().unwrap()
}

/// Checks for 300 ms that the hook processes at least 90 % of the packets that a port receives. Returns an error if
/// workers process more of them.
fn in_the_hook(rig: &Rig, port: &str) -> Result<(), String> {
    let before = (received(rig, port), by_workers(rig));
    std::thread::sleep(Duration::from_millis(300));
    let (came, worked) = (received(rig, port) - before.0, by_workers(rig) - before.1);
    if came >= 100 && worked * 10 < came { Ok(()) } else { Err(format!("{worked} of {came} by workers")) }
}

/// Returns the number of frames of a port that the port's hook has sent to another port's device.
fn bridged(rig: &Rig, port: &str) -> u64 {
    let status = rig.ok(&["xdp", "status", port, "--seconds", "0", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status[0]["counters"]["bridged"].as_u64().unwrap_or_else(|| panic!("{status}"))
}

fn until_in_the_hook(rig: &Rig, port: &str) {
    let shown = || format!("{}{}", rig.ok(&["show", "bridges"]), rig.ok(&["show", "ports"]));
    eventually("the flow is in the hook", PATIENCE, || in_the_hook(rig, port))
        .unwrap_or_else(|error| panic!("{error}: {}", shown()));
}

/// Returns the number of entries of br0's MAC table that are stored in hooks.
fn stations(rig: &Rig) -> u64 {
    let bridges: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "bridges", "--json"])).unwrap();
    bridges[0]["hook"].as_u64().unwrap()
}

fn start(rig: &mut Rig, configuration: &str) -> UdpFlow {
    rig.start(configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    until_in_the_hook(rig, "h1");
    flow
}

#[track_caller]
fn nothing_lost(flow: UdpFlow) {
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
}

#[test]
fn flows_change_between_hook_and_worker_in_order() {
    require!("ip", "ping", "ethtool");
    let mut rig = rig(3);
    let configuration = rig.configuration("");
    let flow = start(&mut rig, &configuration);
    assert_eq!(rig.port("h1")["shortcut"], "answers for known stations");
    assert!(stations(&rig) >= 2);
    let sent = |rig: &Rig| rig.port("h2")["counters"]["tx_packets"].as_u64().unwrap();
    let before = sent(&rig);
    flow.wait_for(500, PATIENCE).unwrap();
    assert!(sent(&rig) >= before + 400, "what the hook sends counts: {before}, {}", sent(&rig));

    // The hook also handles a frame of the maximum length.
    let worked = by_workers(&rig);
    rig.hosts[0].run(["ping", "-c", "3", "-i", "0.2", "-M", "do", "-s", "1472", rig.hosts[1].ip()]).unwrap();
    assert!(by_workers(&rig) - worked < 3, "{} by workers", by_workers(&rig) - worked);

    let frame =
        format!("eth_src={},eth_dst={},udp", rig.hosts[0].mac().unwrap(), rig.hosts[1].mac().unwrap());
    let explained = rig.ok(&["explain", "--in", "h1", &frame]);
    assert!(explained.contains("straight to the device of h2"), "{explained}");
    assert!(explained.ends_with("forwarded to h2 in the driver hook\n"), "{explained}");
    let counted = rig.port("h3")["counters"].clone();
    let unknown = frame.replace(&rig.hosts[1].mac().unwrap(), "02:00:00:00:99:99");
    let explained = rig.ok(&["explain", "--in", "h1", &unknown]);
    assert!(explained.contains("up, to the worker") && explained.contains("out of h3"), "{explained}");
    assert_eq!(rig.port("h3")["counters"], counted, "nothing was sent");

    // During a capture all packets pass the workers and are captured.
    let seen = rig.ok(&["capture", "h1", "-n", "200"]);
    assert!(seen.lines().count() >= 200, "{seen}");
    until_in_the_hook(&rig, "h1");
    // The MAC table is flushed repeatedly.
    for _ in 0..10 {
        rig.ok(&["flush"]);
        flow.wait_for(100, PATIENCE).unwrap();
    }
    // A change of the configuration.
    let file = rig
        .write("off.toml", &rig.configuration("").replace("[bridge.br0]\n", "[bridge.br0]\nhook = false\n"));
    let came = received(&rig, "h1");
    rig.ok(&["apply", file.to_str().unwrap()]);
    assert!(in_the_hook(&rig, "h1").is_err());
    assert!(received(&rig, "h1") >= came, "counters do not run backwards: {came}");
    assert!(rig.port("h1")["shortcut"].is_null());
    let file = rig.write("on.toml", &configuration);
    rig.ok(&["apply", file.to_str().unwrap()]);
    // The receiver's address may have been removed. Workers flood its packets until it sends.
    rig.until_reachable(2, 1);
    until_in_the_hook(&rig, "h1");
    nothing_lost(flow);
}

#[test]
fn a_kill_right_behind_a_change_leaves_known_traffic_in_the_hook() {
    require!("ip", "ping", "ethtool");
    let mut rig = rig(2);
    let configured = |ageing: u32| {
        rig.configuration("").replace("[bridge.br0]\n", &format!("[bridge.br0]\nageing = {ageing}\n"))
    };
    let (configuration, changed) = (configured(300), configured(200));
    for _ in 0..4 {
        let flow = start(&mut rig, &configuration);
        let file = rig.write("changed.toml", &changed);
        rig.ok(&["apply", file.to_str().unwrap()]);
        rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
        flow.wait_for(1_000, PATIENCE).unwrap();
        flow.stop().unwrap();
    }
}

#[test]
fn known_traffic_flows_on_through_an_upgrade() {
    require!("ip", "ping", "ethtool");
    let mut rig = rig(2);
    let configuration = rig.configuration("");
    let flow = start(&mut rig, &configuration);
    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    rig.until_reachable(2, 1);
    until_in_the_hook(&rig, "h1");
    nothing_lost(flow);

    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    until_in_the_hook(&rig, "h1");
    rig.ok(&["stop"]);
    flow.wait_for(1_000, PATIENCE).unwrap();
    nothing_lost(flow);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    flow.wait_for(100, PATIENCE).unwrap();
    rig.daemon = None;
    rig.start(&configuration);
    flow.wait_for(500, PATIENCE).unwrap();
    nothing_lost(flow);
}

#[test]
fn known_traffic_flows_on_while_nobody_is_there() {
    require!("ip", "ping", "ethtool");
    let mut rig = rig(2);
    let configuration = rig.configuration("");
    // Stop and start of the daemon.
    let flow = start(&mut rig, &configuration);
    rig.daemon.take().unwrap().stop(Signal::TERM, PATIENCE).unwrap();
    flow.wait_for(1_000, PATIENCE).unwrap();
    nothing_lost(flow);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    flow.wait_for(500, PATIENCE).unwrap();
    rig.start(&configuration);
    flow.wait_for(500, PATIENCE).unwrap();
    nothing_lost(flow);

    // Kill and start of the daemon.
    rig.until_reachable(2, 1);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    until_in_the_hook(&rig, "h1");
    rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
    flow.wait_for(1_000, PATIENCE).unwrap();
    rig.start(&configuration);
    flow.wait_for(500, PATIENCE).unwrap();
    rig.until_reachable(2, 1);
    until_in_the_hook(&rig, "h1");
    nothing_lost(flow);
}

#[test]
fn no_frame_meets_an_old_decision() {
    require!("ip", "ping", "ethtool");
    let mut rig = rig(3);
    let configuration = rig.configuration("");
    let flow = start(&mut rig, &configuration);
    // The receiver's VLAN changes. After the answer no packet arrives.
    let file = rig.write("apart.toml", &rig.configuration_with("", &[10, 20, 10]));
    rig.ok(&["apply", file.to_str().unwrap()]);
    let answered = flow.next_number();
    flow.wait_until_sent(1_000, PATIENCE).unwrap();
    assert!(flow.received_below() <= answered, "{} after {answered}", flow.received_below());
    let file = rig.write("together.toml", &configuration);
    rig.ok(&["apply", file.to_str().unwrap()]);
    flow.wait_for(200, PATIENCE).unwrap();
    rig.until_reachable(2, 1);
    until_in_the_hook(&rig, "h1");

    // The receiver's address moves to another port. Later frames go there.
    let mac = rig.hosts[1].mac().unwrap();
    let (here, there) = (&rig.hosts[1], &rig.hosts[2]);
    here.run(["ip", "link", "set", "dev", "eth0", "address", "02:00:00:00:77:77"]).unwrap();
    there.run(["ip", "link", "set", "dev", "eth0", "address", &mac]).unwrap();
    let _ = there.run(["ping", "-c", "1", "-W", "1", rig.hosts[0].ip()]);
    eventually("the station is known at its new port", PATIENCE, || {
        let stations = rig.ok(&["show", "fdb"]);
        if stations.lines().any(|line| line.contains(&mac) && line.contains("h3")) {
            Ok(())
        } else {
            Err(stations)
        }
    })
    .unwrap();
    let moved = flow.next_number();
    flow.wait_until_sent(1_000, PATIENCE).unwrap();
    let below = flow.received_below();
    assert!(below <= moved, "packet {} was sent after the station moved, that is from {moved} on", below - 1);
}

#[test]
fn stations_that_only_the_hook_sees_do_not_age() {
    require!("ip", "ping", "ethtool");
    let mut rig = rig(2);
    let configuration = rig.configuration("").replace("[bridge.br0]\n", "[bridge.br0]\nageing = 10\n");
    let flow = start(&mut rig, &configuration);
    let back = UdpFlow::start(&rig.hosts[1], &rig.hosts[0], 1_000).unwrap();
    until_in_the_hook(&rig, "h2");
    std::thread::sleep(Duration::from_secs(16));
    in_the_hook(&rig, "h1").unwrap();
    in_the_hook(&rig, "h2").unwrap();
    nothing_lost(flow);
    nothing_lost(back);
}

/// If a device does not accept redirected frames, workers send the frames that are destined to the device. The doctor
/// reports the reason and a fix.
#[test]
fn the_worker_sends_where_hooks_cannot_and_the_doctor_says_why() {
    require!("ip", "ping", "ethtool");
    let mut rig = rig(2);
    let configuration = rig.configuration("");
    let flow = start(&mut rig, &configuration);
    let found = |rig: &Rig| {
        let output = rig.trivium(&["doctor", "--json"]).stdout;
        let findings: Vec<serde_json::Value> = serde_json::from_slice(&output).unwrap();
        findings
            .into_iter()
            .find(|finding| finding["finding"].as_str().unwrap().contains("takes no redirected frames"))
    };
    assert_eq!(found(&rig), None);
    rig.hosts[1].run(["ethtool", "-K", "eth0", "gro", "off"]).unwrap();
    rig.port_until("h2", "it says so", |port| {
        port["shortcut"].as_str().is_some_and(|said| said.contains("its device takes no redirected frames"))
    });
    let told = found(&rig).unwrap();
    assert_eq!((&told["object"], &told["severity"]), (&"port.h2".into(), &"advice".into()), "{told}");
    let what = "h2 takes no redirected frames: what is for its stations passes a worker";
    assert!(told["finding"].as_str().unwrap().starts_with(what), "{told}");
    assert_eq!(told["fix"], "at the peer: `ethtool -K PEER gro on`; if it is on, off first");
    // No packet is lost once the state is detected, and the worker has processed all of them.
    eventually("the worker sends", PATIENCE, || {
        let (before, worked) = (flow.received(), by_workers(&rig));
        flow.wait_for(500, PATIENCE).unwrap();
        let (came, worked) = (flow.received() - before, by_workers(&rig) - worked);
        // The two counters are read one after the other.
        if worked * 10 >= came * 9 { Ok(()) } else { Err(format!("{worked} of {came} by workers")) }
    })
    .unwrap();
    // The opposite direction is not affected.
    let back = UdpFlow::start(&rig.hosts[1], &rig.hosts[0], 1_000).unwrap();
    let (came, sent) = (bridged(&rig, "h2"), bridged(&rig, "h1"));
    eventually("the way back is in the hook", PATIENCE, || {
        let more = bridged(&rig, "h2") - came;
        if more >= 1_000 { Ok(()) } else { Err(more.to_string()) }
    })
    .unwrap();
    assert_eq!(bridged(&rig, "h1"), sent, "nothing of the other");
    nothing_lost(back);
    // The suggested fix works.
    rig.hosts[1].run(["ethtool", "-K", "eth0", "gro", "on"]).unwrap();
    until_in_the_hook(&rig, "h1");
    assert_eq!(found(&rig), None);
}

/// After a host's device was deleted and created again, all frames to the host arrive, including the first one. When
/// the device is deleted, the kernel clears its entry in the hooks' device maps. Hooks must not redirect frames through
/// such an entry.
#[test]
fn hooks_lose_nothing_of_a_port_whose_device_has_come_back() {
    require!("ip", "ping", "ethtool");
    let mut rig = rig(3);
    let configuration = rig.configuration("persist = false");
    let flow = start(&mut rig, &configuration);
    let (hub, mac) = (rig.lab.hub().clone(), rig.hosts[2].mac().unwrap());
    let ip = rig.hosts[2].ip().to_owned();
    let _sends = rig.hosts[0].spawn(["ping", "-n", "-q", "-i", "0.002", &ip]).unwrap();
    for round in 0..6 {
        rig.until_reachable(3, 1);
        let index = rig.port("h3")["ifindex"].clone();
        // The change happens between two polls of the daemon, whatever the load of the machine is.
        rig.daemon().signal(Signal::STOP).unwrap();
        hub.run(["ip", "link", "del", "dev", "h3"]).unwrap();
        rig.hosts[2].plug_again(&hub, &mac, &[&rig.hosts[0]]).unwrap();
        rig.daemon().signal(Signal::CONT).unwrap();
        rig.port_until("h3", "open again", |port| {
            port["ifindex"].is_number() && port["ifindex"] != index && port["link_up"] == true
        });
        let lost = rig.hook_counter("h1", "bridge_lost");
        rig.until_reachable(3, 1);
        std::thread::sleep(Duration::from_millis(1_200));
        assert_eq!(rig.hook_counter("h1", "bridge_lost"), lost, "round {round}");
    }
    // The flow between the other hosts waited in the queues of hook and workers while the daemon was stopped.
    flow.wait_for(100, PATIENCE).unwrap();
}
