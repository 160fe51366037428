//! Tests the daemon with OpenFlow sessions that flood it with messages and use as much memory as possible.

use super::*;

/// Returns a message of OpenFlow 1.4.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + body.len()).unwrap().to_be_bytes();
    [&[5, kind, length[0], length[1], 0, 0, 0, 1], body].concat()
}

/// Opens a session with a bridge's own socket and sends a hello. Returns `None` while the socket does not
/// accept connections.
fn session(path: &std::path::Path) -> Option<std::os::unix::net::UnixStream> {
    use std::io::Write;
    let mut stream = std::os::unix::net::UnixStream::connect(path).ok()?;
    stream.write_all(&message(0, &[])).ok()?;
    Some(stream)
}

/// Writes packet-outs as fast as the daemon accepts them until `stop` is set. Opens a new session whenever a session
/// ends. Returns the number of packet-outs.
fn flood(path: &std::path::Path, stop: &std::sync::atomic::AtomicBool) -> u64 {
    use std::io::Write;
    let mut body = vec![0xff; 4];
    body.extend([0xff, 0xff, 0xff, 0xfd, 0, 16, 0, 0, 0, 0, 0, 0]);
    body.extend([0, 0, 0, 16, 0, 0, 0, 3, 0xff, 0xff, 0, 0, 0, 0, 0, 0]);
    body.extend([2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 9, 0x88, 0xb5]);
    body.resize(body.len() + 1_000, 7);
    let packet = message(13, &body);
    let mut sent = 0;
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        let Some(mut stream) = session(path) else { continue };
        let patience = std::time::Duration::from_millis(200);
        stream.set_write_timeout(Some(patience)).unwrap();
        // After a time-out half a packet may be written, so another session is opened.
        while !stop.load(std::sync::atomic::Ordering::Relaxed) && stream.write_all(&packet).is_ok() {
            sent += 1;
        }
    }
    sent
}

/// Opens 16 bundles of 1 MiB each, requests all rules, and reads the reply at 10 kB/s until `stop` is set.
fn hoard(path: &std::path::Path, stop: &std::sync::atomic::AtomicBool) {
    use std::io::{Read, Write};
    let Some(mut stream) = session(path) else { return };
    let mut note = vec![0xff, 0xff, 0xea, 0x68, 0, 0, 0x23, 0x20, 0, 8];
    note.resize(0xea68, 0);
    let mut change = vec![0; 40];
    change[17] = 0;
    change[24..36].fill(0xff);
    change.extend([0, 1, 0, 4, 0, 0, 0, 0, 0, 4, 0xea, 0x70, 0, 0, 0, 0]);
    change.extend(&note);
    for id in 0..16_u32 {
        for _ in 0..17 {
            let body = [&id.to_be_bytes()[..], &[0; 4], &message(14, &change)].concat();
            if stream.write_all(&message(34, &body)).is_err() {
                return;
            }
        }
    }
    let mut all = vec![0, 1, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0];
    all.extend([0xff; 8]);
    all.extend([0; 20]);
    all.extend([0, 1, 0, 4, 0, 0, 0, 0]);
    let mut some = [0; 1_000];
    let asked = stream.write_all(&message(18, &all)).is_ok();
    while asked && !stop.load(std::sync::atomic::Ordering::Relaxed) && stream.read_exact(&mut some).is_ok() {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// Returns the resident memory of a process in KiB without frame memory.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let of = |key: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    of("VmRSS:") - of("RssShmem:")
}

/// Four sessions flood packet-outs, and four sessions hold 16 bundles each and read dumps slowly. Packets of other
/// ports in the slow path are neither lost nor late, and memory stays bounded. Neither an upgrade nor the end of the
/// daemon waits for the queued packet-outs.
#[test]
fn sessions_that_flood_and_hoard_harm_nobody() {
    use std::sync::atomic::{AtomicBool, Ordering};
    require!("ip", "ping", "ethtool", "sysctl", "ovs-ofctl");
    let soak = std::env::var_os("TRIVIUM_SOAK").is_some();
    let mut rig = start("fail_mode = \"secure\"\n");
    // Packets that also go to a controller are not cached, so each echo request takes the slow path.
    ofctl(&rig, &["add-flow", "priority=9,icmp,in_port=1,actions=output:2,controller:64"]);
    ofctl(&rig, &["add-flow", "priority=1,in_port=2,actions=output:1"]);
    let rules: String = (0..if soak { 500_000 } else { 20_000 })
        .map(|number| format!("table=7,priority=1,reg0={number},actions=drop\n"))
        .collect();
    let file = rig.write("rules", &rules);
    ofctl(&rig, &["add-flows", file.to_str().unwrap()]);
    let (address, path) = (rig.hosts[1].ip().to_owned(), rig.path("br0.mgmt"));
    let quiet = rig.hosts[0].ping(&address, 20).unwrap();
    let before = resident(rig.daemon().pid());
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let spawn = |work: fn(&std::path::Path, &AtomicBool) -> u64| {
        let (path, stop) = (path.clone(), std::sync::Arc::clone(&stop));
        std::thread::spawn(move || work(&path, &stop))
    };
    let floods: Vec<_> = (0..4).map(|_| spawn(flood)).collect();
    let hoards: Vec<_> = (0..4)
        .map(|_| {
            spawn(|path, stop| {
                hoard(path, stop);
                0
            })
        })
        .collect();
    let (mut most, mut worst, mut lost) = (0, 0.0_f64, 0);
    for _ in 0..if soak { 100 } else { 3 } {
        let report = rig.hosts[0].ping(&address, 20).unwrap();
        most = most.max(resident(rig.daemon().pid()));
        worst = worst.max(report.average_ms);
        lost += report.sent - report.received;
    }
    eprintln!(
        "upcalls: {:.2} ms before, at worst {worst:.2} ms under the flood, {lost} lost; memory: {before} KiB, then at most {most} KiB",
        quiet.average_ms
    );
    assert_eq!(lost, 0, "packets of other ports wait for their turn only");
    // Bundles hold 4 x 16 MiB and packet-outs 4 x 512 KiB. The rest is buffers and memory that the allocator
    // keeps.
    assert!(most < before + (192 << 10), "{before} KiB, then {most} KiB");
    let begin = std::time::Instant::now();
    rig.ok(&["upgrade", "--binary", rig::TRIVIUM]);
    eprintln!("an upgrade under the flood: {:?}", begin.elapsed());
    assert!(begin.elapsed() < PATIENCE / 2, "{:?}", begin.elapsed());
    assert_eq!(rig.hosts[0].ping(&address, 5).unwrap().loss(), 0.0);
    let begin = std::time::Instant::now();
    rig.daemon.take().unwrap().stop(rustix::process::Signal::TERM, PATIENCE).unwrap();
    eprintln!("the end under the flood: {:?}", begin.elapsed());
    stop.store(true, Ordering::Relaxed);
    let sent: u64 = floods.into_iter().map(|flood| flood.join().unwrap()).sum();
    hoards.into_iter().for_each(|hoard| assert_eq!(hoard.join().unwrap(), 0));
    eprintln!("packet-outs taken: {sent}");
    assert!(sent > 1_000, "{sent}");
}
