//! Tests the costs of the real binary: the time until traffic flows after a restart, and the CPU time and memory of an
//! idle daemon.
//!
//! Load on the machine makes each figure worse and never better. A test of restarts uses the median of three restarts,
//! so that one slow restart is accepted. A test of an idle daemon measures for a longer time and uses the best of three
//! measurements. The number of wake-ups of an idle daemon does not depend on the machine, but their cost does. On a
//! virtual machine with a busy host, a thread that sleeps most of the time takes ten times as much CPU time. The daemon
//! is therefore compared with a thread that does equal work.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rig::{PATIENCE, Rig};
use rustix::process::Signal;
use testbed::{UdpFlow, eventually, require};

const TRIES: usize = 3;
/// Maximum number of wake-ups per second of all threads of an idle daemon.
const WAKE_UPS: f64 = 40.0;
/// Maximum share of a core that an idle daemon takes.
const IDLE: f64 = 0.01;
/// Maximum CPU time of an idle daemon, as a multiple of the CPU time of the reference thread ([`yardstick`]). The
/// reference thread takes a thousandth of a core on a quiet machine.
const YARDSTICKS: f64 = 5.0;

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

/// Stops the daemon with the signal `end` and starts it again. Returns the time from the start of the new process until
/// the first packet of the flow arrives at the receiver.
fn restart(rig: &mut Rig, configuration: &str, flow: &UdpFlow, end: Signal) -> Duration {
    rig.daemon.take().unwrap().stop(end, PATIENCE).unwrap();
    // Packets in flight arrive before the flow stops.
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

/// Returns the CPU time in nanoseconds and the number of voluntary context switches of each thread of a process.
fn done(pid: u32) -> BTreeMap<String, (u64, u64)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let of_one = |task: std::fs::DirEntry| {
        // A thread may end after the directory was read.
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        let spent = text.split_whitespace().next()?.parse().ok()?;
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some((task.file_name().into_string().ok()?, (spent, sleeps.trim().parse().ok()?)))
    };
    tasks.filter_map(of_one).collect()
}

/// Resource usage of a process within a period.
#[derive(Debug)]
struct Share {
    /// Share of a core that the process takes.
    core: f64,
    /// Wake-ups per second of all threads of the process.
    wake_ups: f64,
    /// Share of a core that the reference thread takes in the period.
    yardstick: f64,
}

impl Share {
    /// Measures the resource usage of a process for ten seconds. The usage is sampled frequently, so that threads that
    /// end during the measurement are counted as well.
    fn of(pid: u32) -> Share {
        let time = Duration::from_secs(10);
        let yardstick = std::thread::spawn(move || yardstick(time));
        let (begin, mut before, mut spent, mut slept) = (Instant::now(), done(pid), 0, 0);
        while begin.elapsed() < time {
            std::thread::sleep(Duration::from_millis(500));
            let now = done(pid);
            for (task, now) in &now {
                let then = before.get(task).copied().unwrap_or_default();
                spent += now.0 - then.0;
                slept += now.1 - then.1;
            }
            before = now;
        }
        let seconds = begin.elapsed().as_secs_f64();
        Share {
            core: Duration::from_nanos(spent).as_secs_f64() / seconds,
            wake_ups: f64::from(u32::try_from(slept).unwrap()) / seconds,
            yardstick: yardstick.join().unwrap(),
        }
    }

    fn is_quiet(&self) -> bool {
        self.wake_ups < WAKE_UPS && self.core < IDLE.max(YARDSTICKS * self.yardstick)
    }
}

/// Runs the reference thread for a time, and returns the share of a CPU core that the thread has used. The thread makes
/// about as many wake-ups and system calls as an idle daemon.
fn yardstick(time: Duration) -> f64 {
    let spent = || -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        text.split_whitespace().next().unwrap().parse().unwrap()
    };
    let (begin, before) = (Instant::now(), spent());
    while begin.elapsed() < time {
        std::thread::sleep(Duration::from_millis(100));
        for _ in 0..4 {
            std::fs::read_to_string("/proc/self/stat").unwrap();
        }
    }
    Duration::from_nanos(spent() - before).as_secs_f64() / begin.elapsed().as_secs_f64()
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
    while shares.len() < TRIES && !shares.iter().any(Share::is_quiet) {
        std::thread::sleep(Duration::from_secs(1));
        shares.push(Share::of(pid));
    }
    eprintln!("while idle: {shares:.4?}");
    assert!(shares.iter().any(Share::is_quiet), "{shares:?} while nothing happens");

    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let kilobytes = |key: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    // Frame memory is shared memory, and all other memory is private.
    let own = kilobytes("VmRSS:") - kilobytes("RssShmem:");
    assert!(own < 64 << 10, "{own} KiB resident besides frame memory");
}
