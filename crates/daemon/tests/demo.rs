//! Tests a complete run of `trivium demo`. Traffic crosses the lab, the last line of output reports the traffic, and no
//! namespace or process remains, even if the command is killed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
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

/// Returns whether the demo can run its routed part, which needs FRR. If not, records that this part is skipped, which
/// is a failure in CI.
fn routed() -> bool {
    let installed = Path::new("/usr/lib/frr/zebra").exists();
    if !installed {
        testbed::skip("the routed half needs FRR ('make setup' installs it)");
    }
    installed
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
    assert_eq!((last["ok"].as_bool(), last["hosts"].as_u64()), (Some(true), Some(6)), "{output}");
    assert_eq!(last["ping_loss"].as_f64(), Some(0.0));
    assert!(last["tcp_gbps"].as_f64().unwrap() > 0.01);
    assert!(last["flood_dropped"].as_u64().unwrap() > 10_000, "{output}");
    assert!(output.contains("Look further"));
    if routed() {
        assert_eq!(last["routes"]["bgp"].as_u64(), Some(100), "{output}");
        assert!(last["routes"]["ospf"].as_u64().unwrap() >= 1, "{output}");
        let pings = &last["routed_pings"];
        assert_eq!((pings["sent"].as_u64(), pings["received"].as_u64()), (Some(50), Some(50)), "{output}");
        assert!(pings["by_kernel"].as_u64().unwrap() < 10, "{output}");
    }
    assert_eq!(namespaces(pid), Vec::<String>::new());
}

#[test]
fn it_is_driven_live_by_the_stock_client() {
    require!("ip", "ping", "iperf3", "nsenter", "ovs-ofctl");
    let mut command = Command::new(TRIVIUM);
    command.arg("demo");
    let mut process = Process::start(command).unwrap();
    let rules = format!("unix:/run/trivium-demo-{}/of0.mgmt", process.pid());
    let patience = Duration::from_secs(30);
    process.wait_for_line(&format!("ovs-ofctl dump-flows {rules}"), patience).unwrap();
    let ofctl = |arguments: &[&str]| {
        let (command, rest) = arguments.split_first().unwrap();
        let output = Command::new("ovs-ofctl").arg(command).arg(&rules).args(rest).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(ofctl(&["dump-flows"]).contains("actions=NORMAL"));
    // Only lines from now on are searched.
    let until = |what: &str| {
        let before = process.output().len();
        eventually(what, patience, || {
            let said = process.output().split_off(before);
            let line = said.lines().find(|line| line.contains("ping h6 > h5: ") && line.contains(what));
            if line.is_some() { Ok(()) } else { Err(said) }
        })
        .unwrap();
    };
    for _ in 0..2 {
        until(" answers; q");
        ofctl(&["add-flow", "priority=10,icmp,actions=drop"]);
        until("no answers");
        ofctl(&["del-flows", "icmp"]);
    }
    process.stop(Signal::INT, patience).unwrap();
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
        assert_eq!(namespaces(pid).len(), if routed() { 9 } else { 7 });
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

/// Creates a directory with links to all commands in `PATH`, for use as `PATH` of a test. The command `name` is
/// replaced by `instead`, or left out if `instead` is `None`.
fn commands_without(directory: &Path, name: &str, instead: Option<&str>) {
    std::fs::create_dir_all(directory).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for from in std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]) {
        for entry in std::fs::read_dir(from).into_iter().flatten().flatten() {
            // The first command of a name has precedence.
            let _ = std::os::unix::fs::symlink(entry.path(), directory.join(entry.file_name()));
        }
    }
    std::fs::remove_file(directory.join(name)).unwrap();
    if let Some(instead) = instead {
        std::os::unix::fs::symlink(instead, directory.join(name)).unwrap();
    }
}

#[test]
fn a_failure_ends_with_the_same_line_too() {
    require!("ip", "ping", "iperf3", "nsenter");
    let cases =
        [("missing", None, "the command iperf3 is missing"), ("broken", Some("/bin/false"), "iperf3")];
    for (case, instead, cause) in cases {
        let directory = std::env::temp_dir().join(format!("trivium-demo-{case}-{}", std::process::id()));
        commands_without(&directory, "iperf3", instead);
        let mut command = Command::new(TRIVIUM);
        command.args(["demo", "--seconds", "6"]).env("PATH", &directory);
        let process = Process::start(command).unwrap();
        let pid = process.pid();
        let (status, output) = process.finish(Duration::from_secs(60)).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(status.code(), Some(1), "{case}: {output}");
        let last = output.lines().rfind(|line| line.starts_with('{')).unwrap_or_default();
        let last: serde_json::Value = serde_json::from_str(last).unwrap();
        assert_eq!(last["ok"].as_bool(), Some(false), "{case}: {output}");
        assert!(last["error"].as_str().unwrap().contains(cause), "{case}: {last}");
        assert!(last["hosts"].is_u64() && last["ping_loss"].is_f64() && last["tcp_gbps"].is_f64(), "{last}");
        assert_eq!(namespaces(pid), Vec::<String>::new());
    }
}
