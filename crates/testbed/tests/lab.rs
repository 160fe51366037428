//! Tests of the lab itself, with the kernel's bridge in the hub.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::Duration;

use testbed::{Lab, RawSender, UdpFlow, iperf_tcp, require};

/// Returns a lab with two hosts connected by a Linux bridge.
fn bridged() -> (Lab, testbed::Host, testbed::Host) {
    let lab = Lab::new().unwrap();
    let (a, b) = (lab.host("a", "10.9.0.1/24").unwrap(), lab.host("b", "10.9.0.2/24").unwrap());
    lab.hub().run(["ip", "link", "add", "br0", "type", "bridge"]).unwrap();
    lab.hub().run(["ip", "link", "set", "br0", "up"]).unwrap();
    for device in [a.device(), b.device()] {
        lab.hub().run(["ip", "link", "set", "dev", device, "master", "br0"]).unwrap();
    }
    (lab, a, b)
}

#[test]
fn hosts_reach_each_other_only_through_the_hub() {
    require!("ip", "ping", "ethtool");
    let (lab, a, b) = bridged();
    assert!(a.reaches(&b));
    lab.hub().run(["ip", "link", "set", "dev", b.device(), "nomaster"]).unwrap();
    assert!(!a.reaches(&b));
}

#[test]
fn a_flow_counts_every_packet() {
    require!("ip", "ethtool");
    let (lab, a, b) = bridged();
    let flow = UdpFlow::start(&a, &b, 5_000).unwrap();
    flow.wait_for(1_000, Duration::from_secs(10)).unwrap();
    let report = flow.stop().unwrap();
    assert_eq!((report.lost(), report.overtaken, report.doubled), (0, 0, 0), "{report:?}");

    // The flow must detect loss, here half a second without a path.
    let flow = UdpFlow::start(&a, &b, 5_000).unwrap();
    flow.wait_for(100, Duration::from_secs(10)).unwrap();
    lab.hub().run(["ip", "link", "set", "dev", b.device(), "nomaster"]).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    lab.hub().run(["ip", "link", "set", "dev", b.device(), "master", "br0"]).unwrap();
    flow.wait_for(100, Duration::from_secs(10)).unwrap();
    let report = flow.stop().unwrap();
    assert!(report.lost() > 1_000 && report.longest_gap > Duration::from_millis(400), "{report:?}");
}

#[test]
fn tcp_is_measured() {
    require!("ip", "iperf3", "ss");
    let (_lab, a, b) = bridged();
    let report = iperf_tcp(&a, &b, b.ip(), 1).unwrap();
    assert!(report.gbps > 0.05, "{report:?}");
}

#[test]
fn raw_frames_leave_as_they_are() {
    require!("ip", "tcpdump");
    let (_lab, a, b) = bridged();
    let mut capture =
        b.spawn(["tcpdump", "-n", "-l", "-e", "-i", "eth0", "-c", "1", "ether", "proto", "0x88b5"]).unwrap();
    capture.wait_for_line("listening on", Duration::from_secs(5)).unwrap();
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 0x2a, 0x88, 0xb5]);
    frame.extend([0; 50]);
    RawSender::open(&a, "eth0").unwrap().send(&frame).unwrap();
    capture.wait_for_line("02:00:00:00:00:2a > ff:ff:ff:ff:ff:ff", Duration::from_secs(5)).unwrap();
}

#[test]
fn nothing_is_left_after_a_panic() {
    require!("ip");
    let (name, process) = std::thread::spawn(|| {
        let lab = Lab::new().unwrap();
        let host = lab.host("a", "10.9.0.1/24").unwrap();
        let sleeper = host.spawn(["sleep", "600"]).unwrap();
        let told = (host.name().to_owned(), sleeper.pid());
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _all = (lab, host, sleeper);
            panic!("a test fails");
        }));
        assert!(caught.is_err());
        told
    })
    .join()
    .unwrap();
    assert!(!Path::new("/run/netns").join(name).exists());
    assert!(!Path::new("/proc").join(process.to_string()).exists());
}

#[test]
fn remnants_of_a_killed_process_are_swept() {
    require!("ip");
    // No process has this id, because the kernel's maximum is 4194304.
    let remnant = "tv-4194999-0-hub";
    let made = std::process::Command::new("ip").args(["netns", "add", remnant]).status().unwrap();
    assert!(made.success());
    // Only the first lab of a process sweeps, and other tests may have created it, so the test starts its own
    // process.
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "makes_a_lab"])
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    assert!(!Path::new("/run/netns").join(remnant).exists());
}

#[test]
#[ignore = "helper of remnants_of_a_killed_process_are_swept"]
fn makes_a_lab() {
    require!("ip");
    drop(Lab::new().unwrap());
}
