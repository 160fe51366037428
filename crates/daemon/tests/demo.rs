//! `trivium demo` to its end: traffic crosses, the last line says so, and nothing is left, after a kill neither.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use testbed::{Process, eventually, require};

const TRIVIUM: &str = env!("CARGO_BIN_EXE_trivium");

fn namespaces(pid: u32) -> Vec<String> {
    let prefix = format!("trivium-demo-{pid}-");
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&prefix))
        .collect()
}

#[test]
fn it_ends_with_ok() {
    require!("ip", "ping", "iperf3", "nsenter");
    let mut command = Command::new(TRIVIUM);
    command.args(["demo", "--seconds", "8"]);
    let process = Process::start(command).unwrap();
    let pid = process.pid();
    let (status, output) = process.finish(Duration::from_secs(60)).unwrap();
    assert!(status.success(), "{output}");
    let last: serde_json::Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    assert_eq!((last["ok"].as_bool(), last["hosts"].as_u64()), (Some(true), Some(4)), "{output}");
    assert_eq!(last["ping_loss"].as_f64(), Some(0.0));
    assert!(last["tcp_gbps"].as_f64().unwrap() > 0.01);
    assert!(output.contains("Look further"));
    assert_eq!(namespaces(pid), Vec::<String>::new());
}

#[test]
fn an_interrupt_and_a_kill_leave_nothing() {
    require!("ip", "ping", "iperf3", "nsenter");
    for signal in [Signal::INT, Signal::KILL] {
        let mut command = Command::new(TRIVIUM);
        command.arg("demo");
        let mut process = Process::start(command).unwrap();
        let pid = process.pid();
        process.wait_for_line("Look further", Duration::from_secs(30)).unwrap();
        assert_eq!(namespaces(pid).len(), 5);
        process.stop(signal, Duration::from_secs(30)).unwrap();
        let directory = format!("/run/trivium-demo-{pid}");
        eventually("the clean-up", Duration::from_secs(20), || {
            let left = namespaces(pid);
            let gone = left.is_empty() && !std::path::Path::new(&directory).exists();
            if gone { Ok(()) } else { Err(left.join(" ")) }
        })
        .unwrap();
    }
}
