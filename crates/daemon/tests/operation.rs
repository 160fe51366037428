//! Tests normal operation of the real binary between real hosts: forwarding, output of commands, changes and hand-over.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::time::Duration;

use rig::{PATIENCE, Rig};
use rustix::process::Signal;
use testbed::{UdpFlow, iperf_tcp, require};

#[test]
fn a_bridge_carries_its_vlans_and_nothing_else() {
    require!("ip", "ping", "ethtool", "iperf3");
    let mut rig = Rig::new(3);
    let configuration = rig.configuration_with("", &[10, 10, 20]);
    rig.start(&configuration);
    rig.until_reachable(1, 2);
    assert!(!rig.hosts[0].reaches(&rig.hosts[2]), "another VLAN");
    let tcp = iperf_tcp(&rig.hosts[0], &rig.hosts[1], rig.hosts[1].ip(), 2).unwrap();
    assert!(tcp.gbps > 0.01, "{tcp:?}");

    let fdb: serde_json::Value = serde_json::from_str(&rig.ok(&["show", "fdb", "--json"])).unwrap();
    let mac = rig.hosts[0].mac().unwrap();
    let entry = fdb.as_array().unwrap().iter().find(|entry| entry["mac"] == mac.as_str()).unwrap();
    assert_eq!((entry["port"].as_str(), entry["vlan"].as_u64()), (Some("h1"), Some(10)));
    for what in ["ports", "bridges", "workers", "drops", "stages", "config"] {
        assert!(!rig.ok(&["show", what]).is_empty(), "{what}");
    }
    // A reader that closes the pipe ends the command without a panic.
    let line = format!("{} top --seconds 4 | head -n 1", rig::TRIVIUM);
    let piped = std::process::Command::new("sh")
        .args(["-c", &line])
        .env("TRIVIUM_SOCKET", rig.socket())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&piped.stderr).into_owned();
    assert!(
        String::from_utf8_lossy(&piped.stdout).starts_with("PORT") && !errors.contains("panicked"),
        "{errors}"
    );
    let explained = rig.ok(&[
        "explain",
        "--in",
        "h1",
        &format!("eth_dst={},ip_dst=10.8.0.2,udp", rig.hosts[1].mac().unwrap()),
    ]);
    assert!(explained.contains("out of h2") && explained.contains("VLAN 10"), "{explained}");
    let (status, output) = rig.daemon.take().unwrap().stop(Signal::TERM, PATIENCE).unwrap();
    assert!(status.success(), "{output}");
    assert!(!rig.socket().exists(), "a name that nobody listens behind");
}

#[test]
fn a_capture_and_a_trace_see_real_packets() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(3);
    let configuration = rig.configuration_with("", &[10, 10, 20]);
    rig.start(&configuration);
    rig.until_reachable(1, 2);
    let pinging = rig.hosts[0].spawn(["ping", "-n", "-i", "0.05", rig.hosts[1].ip()]).unwrap();
    let trace = rig.ok(&["trace", "-n", "2", "--in", "h1", "icmp", "--seconds", "10"]);
    assert!(trace.contains("ICMP 10.8.0.1 > 10.8.0.2") && trace.contains("it leaves by h2"), "{trace}");
    let lines = rig.ok(&["capture", "h1", "-n", "4", "icmp"]);
    assert_eq!(lines.lines().filter(|line| line.contains("ICMP 10.8.0.")).count(), 4, "{lines}");
    let file = rig.path("packets.pcapng");
    rig.ok(&["capture", "h2", "-n", "3", "-w", file.to_str().unwrap()]);
    drop(pinging);
    let explained = rig.ok(&["explain", "--in", "h1", &format!("@{}", file.display())]);
    assert!(explained.contains("function"), "{explained}");

    // A host alone in its VLAN: each of its packets is dropped, and the capture contains the reason.
    let asking = rig.hosts[2].spawn(["ping", "-n", "-i", "0.05", rig.hosts[0].ip()]).unwrap();
    let drops = rig.ok(&["capture", "h3", "--drops", "-n", "1"]);
    assert!(drops.contains("[dropped: no-member]"), "{drops}");
    drop(asking);
}

#[test]
fn a_change_does_not_touch_other_ports() {
    require!("ip", "ethtool");
    let mut rig = Rig::new(4);
    let before = rig.configuration_with("", &[10, 10, 20, 0]);
    rig.start(&before);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    let after = rig.write("after.toml", &rig.configuration_with("", &[10, 10, 0, 20]));
    let after = after.to_str().unwrap();
    let shown = rig.ok(&["apply", after, "--dry-run"]);
    assert!(
        shown.contains("- port.h3") && shown.contains("+ port.h4") && shown.contains("dry run"),
        "{shown}"
    );
    assert!(rig.port("h3")["link_up"].as_bool().unwrap(), "a dry run does nothing");
    for _ in 0..3 {
        rig.ok(&["apply", after]);
        let back = rig.path("trivium.toml");
        rig.ok(&["apply", back.to_str().unwrap()]);
    }
    rig.ok(&["apply", after]);
    flow.wait_for(200, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken), (0, 0), "{report:?}");
    assert!(rig.trivium(&["show", "ports", "h3"]).status.code() == Some(1), "it is gone");
}

#[test]
fn an_unconfirmed_change_goes_back_by_itself() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let together = rig.configuration("");
    rig.start(&together);
    rig.until_reachable(1, 2);
    let apart = rig.write("apart.toml", &rig.configuration_with("", &[10, 20]));
    let shown = rig.ok(&["apply", apart.to_str().unwrap(), "--confirm", "2s"]);
    assert!(shown.contains("rolled back in 2 s"), "{shown}");
    assert!(!rig.hosts[0].reaches(&rig.hosts[1]));
    rig.until_reachable(1, 2);
    // A confirmed change stays.
    rig.ok(&["apply", apart.to_str().unwrap(), "--confirm", "2"]);
    let confirmed: serde_json::Value = serde_json::from_str(&rig.ok(&["confirm", "--json"])).unwrap();
    assert_eq!((&confirmed["pending"], &confirmed["last"]), (&false.into(), &"confirmed".into()));
    std::thread::sleep(Duration::from_millis(2_500));
    assert!(!rig.hosts[0].reaches(&rig.hosts[1]));
    // Without a pending change, both output forms fail equally.
    for words in [["confirm", "--json"], ["rollback", "--json"]] {
        let code = rig.trivium(&words).status.code();
        assert_ne!(code, Some(0), "{words:?}");
        assert_eq!(code, rig.trivium(&words[..1]).status.code(), "{words:?}");
    }
}

#[test]
fn the_file_is_applied_again_on_a_hang_up() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let together = rig.configuration("");
    rig.start(&together);
    rig.until_reachable(1, 2);
    rig.write("trivium.toml", "[port.h1]\nkind = \"no such kind\"\n");
    rig.daemon().signal(Signal::HUP).unwrap();
    rig.daemon().wait_for_line("refused: see above; everything is as before", PATIENCE).unwrap();
    rig.until_reachable(1, 2);
    let apart = rig.configuration_with("", &[10, 20]);
    rig.write("trivium.toml", &apart);
    rig.daemon().signal(Signal::HUP).unwrap();
    rig.daemon().wait_for_line("applied, ", PATIENCE).unwrap();
    assert!(!rig.hosts[0].reaches(&rig.hosts[1]));
}

#[test]
fn an_upgrade_loses_nothing() {
    require!("ip", "ethtool");
    for persist in [true, false] {
        upgrade_under_traffic(persist);
    }
}

fn upgrade_under_traffic(persist: bool) {
    let mut rig = Rig::new(2);
    let configuration = rig.configuration(&format!("ring_size = 8192\npersist = {persist}"));
    rig.start(&configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    // 100,000 packets per second need an optimised build on a machine without other load (`make soak`).
    let rate = if std::env::var_os("TRIVIUM_SOAK").is_some() { 100_000 } else { 10_000 };
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], rate).unwrap();
    flow.wait_for(rate / 10, PATIENCE).unwrap();
    let first = rig.daemon().pid();
    let stations = rig.stations();
    rig.ok(&["upgrade", "--binary", rig::TRIVIUM]);
    flow.wait_for(rate / 2, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");
    // The old process has ended. The successor answers at its socket and has its MAC table.
    let (status, output) = rig.daemon.take().unwrap().finish(PATIENCE).unwrap();
    assert!(status.success(), "{output}");
    assert!(output.contains("handed over") && !output.contains("WARN"), "{output}");
    assert_eq!(rig.stations(), stations);
    rig.until_reachable(2, 1);
    let successors = rig.lab.hub().run(["pgrep", "-f", "take-over.*"]).unwrap_or_default();
    assert!(!successors.contains(&first.to_string()));
}

#[test]
fn an_upgrade_that_fails_leaves_the_old_one_running() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let configuration = rig.configuration("");
    rig.start(&configuration);
    rig.until_reachable(1, 2);
    for wrong in ["/bin/false", "/bin/true", "/no/such/binary"] {
        let output = rig.trivium(&["upgrade", "--binary", wrong]);
        assert_eq!(output.status.code(), Some(1), "{wrong}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(wrong), "{text}");
    }
    assert!(rig.daemon().is_running());
    rig.until_reachable(2, 1);
}
