//! What the real binary may cost: time until it carries again after a restart, processor and memory while it is idle.
//!
//! A machine that does other work makes each figure worse, never better. Of the restarts the median of three counts, so that two slow ones in
//! three fail; of the idle times, which are long, the best of three.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rig::{PATIENCE, Rig};
use rustix::process::Signal;
use testbed::{UdpFlow, eventually, require};

const TRIES: usize = 3;

#[test]
fn it_carries_within_a_second_of_a_restart() {
    require!("ip", "ping", "ethtool");
    for end in [Signal::KILL, Signal::TERM] {
        let mut rig = Rig::new(2);
        let configuration = rig.configuration("");
        rig.start(&configuration);
        rig.pin_neighbours();
        rig.until_reachable(1, 2);
        let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
        flow.wait_for(200, PATIENCE).unwrap();
        let times: Vec<Duration> =
            (0..TRIES).map(|_| restart(&mut rig, &configuration, &flow, end)).collect();
        eprintln!("from the start to the first packet after {end:?}: {times:?}");
        let mut sorted = times.clone();
        sorted.sort_unstable();
        assert!(sorted[TRIES / 2] < Duration::from_secs(1), "{end:?}: {times:?}");
        let report = flow.stop().unwrap();
        assert_eq!((report.overtaken, report.doubled), (0, 0), "{report:?}");
    }
}

/// The time from the process's start to the first packet of the flow that comes through it.
fn restart(rig: &mut Rig, configuration: &str, flow: &UdpFlow, end: Signal) -> Duration {
    rig.daemon.take().unwrap().stop(end, PATIENCE).unwrap();
    // What was under way arrives; then nothing does.
    let mut before = flow.received();
    eventually("silence", PATIENCE, || {
        std::thread::sleep(Duration::from_millis(100));
        let now = flow.received();
        if std::mem::replace(&mut before, now) == now { Ok(()) } else { Err(now.to_string()) }
    })
    .unwrap();
    let begin = Instant::now();
    rig.launch(configuration, &[]);
    while flow.received() == before {
        assert!(begin.elapsed() < PATIENCE, "nothing came: {}", rig.daemon().output());
        std::thread::sleep(Duration::from_millis(1));
    }
    let taken = begin.elapsed();
    rig.daemon().wait_for_line("ready:", PATIENCE).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    taken
}

/// Nanoseconds that each of a process's threads has spent on a processor.
fn spent(pid: u32) -> BTreeMap<String, u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let of_one = |task: std::fs::DirEntry| {
        // A thread may end between the list and the look.
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        let spent = text.split_whitespace().next()?.parse().ok()?;
        Some((task.file_name().into_string().ok()?, spent))
    };
    tasks.filter_map(of_one).collect()
}

/// The part of a core that a process takes in this time. Looks are close enough to lose nothing of threads that end.
fn share(pid: u32, time: Duration) -> f64 {
    let (begin, mut before, mut all) = (Instant::now(), spent(pid), 0);
    while begin.elapsed() < time {
        std::thread::sleep(Duration::from_millis(500));
        let now = spent(pid);
        all += now.iter().map(|(task, spent)| spent - before.get(task).unwrap_or(&0)).sum::<u64>();
        before = now;
    }
    Duration::from_nanos(all).as_secs_f64() / begin.elapsed().as_secs_f64()
}

#[test]
fn an_idle_daemon_is_small_and_quiet() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(4);
    let configuration = format!("{}[engine]\nmode = \"adaptive\"\n", rig.configuration(""));
    rig.start(&configuration);
    for to in 2..=4 {
        rig.until_reachable(1, to);
    }
    let pid = rig.daemon().pid();
    let mut shares = Vec::new();
    while shares.len() < TRIES && !shares.iter().any(|share| *share < 0.01) {
        std::thread::sleep(Duration::from_secs(1));
        shares.push(share(pid, Duration::from_secs(10)));
    }
    eprintln!("part of a core while idle: {shares:.4?}");
    assert!(shares.iter().any(|share| *share < 0.01), "{shares:?} of a core while nothing happens");

    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let kilobytes = |key: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    // Frame memory is shared memory; everything else is not.
    let own = kilobytes("VmRSS:") - kilobytes("RssShmem:");
    assert!(own < 64 << 10, "{own} KiB resident besides frame memory");
}
