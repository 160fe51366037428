//! Tests failures of the real binary between real hosts: kills, full rings, refused starts, full disks.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::process::Command;
use std::time::{Duration, Instant};

use rig::{PATIENCE, Rig, TRIVIUM};
use rustix::process::Signal;
use testbed::{Process, UdpFlow, eventually, require};

#[test]
fn a_kill_leaves_what_persists_and_a_restart_adopts_it() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let configuration = rig.configuration("");
    rig.start(&configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 2_000).unwrap();
    flow.wait_for(200, PATIENCE).unwrap();
    rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
    assert_eq!(rig.pins().len(), 2, "bridged ports persist");
    // With `when_down = drop` the hub's kernel, which would forward between its devices, receives nothing.
    let device = |name| rig.lab.hub().run(["ip", "-s", "-j", "link", "show", name]).unwrap();
    let program = device("h1");
    assert!(program.contains("\"xdp\"") || program.contains("prog"), "the hook still stands: {program}");
    assert!(!rig.hosts[0].reaches(&rig.hosts[1]));

    let begin = Instant::now();
    rig.start(&configuration);
    let log = rig.daemon().output();
    let before = flow.received();
    flow.wait_for(1, Duration::from_secs(1)).unwrap();
    assert!(flow.received() > before);
    eprintln!("forwarding again {:?} after the start", begin.elapsed());
    assert!(!log.contains("ERROR"), "{log}");
    let report = flow.stop().unwrap();
    assert_eq!(report.overtaken, 0, "{report:?}");
    rig.daemon.take().unwrap().stop(Signal::TERM, PATIENCE).unwrap();
}

#[test]
fn a_kill_leaves_nothing_of_ports_that_do_not_persist() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let configuration = rig.configuration("persist = false");
    rig.start(&configuration);
    rig.until_reachable(1, 2);
    rig.daemon.take().unwrap().stop(Signal::KILL, PATIENCE).unwrap();
    assert!(rig.pins().is_empty());
    let shown = rig.lab.hub().run(["ip", "link", "show", "h1"]).unwrap();
    assert!(!shown.contains("xdp"), "{shown}");
    rig.start(&configuration);
    rig.until_reachable(1, 2);
}

#[test]
fn full_rings_are_survived_and_counted() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let configuration = rig.configuration("ring_size = 64");
    rig.start(&configuration);
    rig.pin_neighbours();
    rig.until_reachable(1, 2);
    // Lost packets are counted in the kernel's rings and in the daemon.
    let counted = |rig: &Rig| {
        let counters = &rig.port("h1")["counters"];
        counters["rx_missed"].as_u64().unwrap() + counters["drops"].as_u64().unwrap()
    };
    let before = counted(&rig);
    let flow = UdpFlow::start(&rig.hosts[0], &rig.hosts[1], 20_000).unwrap();
    flow.wait_for(100, PATIENCE).unwrap();
    rig.daemon().signal(Signal::STOP).unwrap();
    let seconds = if std::env::var_os("TRIVIUM_SOAK").is_some() { 120 } else { 2 };
    std::thread::sleep(Duration::from_secs(seconds));
    rig.daemon().signal(Signal::CONT).unwrap();
    flow.wait_for(1_000, PATIENCE).unwrap();
    let report = flow.stop().unwrap();
    assert!(report.lost() > 0, "64 entries cannot hold two seconds of traffic: {report:?}");
    assert_eq!(report.overtaken, 0, "{report:?}");
    // Every lost packet was counted.
    eventually("sent = received + counted", PATIENCE, || {
        let counted = counted(&rig) - before;
        if report.sent == report.received + counted {
            Ok(())
        } else {
            Err(format!("{counted} counted, {report:?}"))
        }
    })
    .unwrap();
    rig.until_reachable(1, 2);
}

#[test]
fn a_worker_that_panics_ends_the_process() {
    require!("ip");
    if !cfg!(any(debug_assertions, feature = "fault")) {
        return testbed::skip("an optimised daemon has faults with `--features daemon/fault` only");
    }
    let mut rig = Rig::new(1);
    let configuration = format!("{}[port.faulty]\nkind = \"null\"\n", rig.configuration("persist = false"));
    let file = rig.write("trivium.toml", &configuration);
    let mut command = rig.lab.hub().command([TRIVIUM, "run", "-c", file.to_str().unwrap()]);
    command.env("TRIVIUM_FAULT", "worker-panic");
    let process = Process::start(command).unwrap();
    let (status, output) = process.finish(PATIENCE).unwrap();
    assert!(!status.success(), "{output}");
    assert!(output.contains("a fault that was asked for"), "{output}");
    // systemd would restart the daemon.
    rig.start(&configuration);
}

/// Runs a command that must fail, and returns its exit code and its standard error output.
fn fails(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    assert!(!output.status.success());
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_device_that_another_holds_is_named() {
    require!("ip", "ethtool");
    let mut rig = Rig::new(2);
    let configuration = rig.configuration("persist = false");
    rig.start(&configuration);
    // Another daemon with other files uses the first one's devices.
    let second = configuration
        .replace("api.sock", "second.sock")
        .replace("[port.h", "[port.x")
        .replace("port.h", "port.x");
    let file = rig.write("second.toml", &second);
    let (code, text) = fails(&mut rig.lab.hub().command([TRIVIUM, "run", "-c", file.to_str().unwrap()]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("port.x1") && text.contains("h1"), "{text}");
    // Another daemon uses the first one's socket.
    let file = rig.path("trivium.toml");
    let (code, text) = fails(&mut rig.lab.hub().command([TRIVIUM, "run", "-c", file.to_str().unwrap()]));
    assert_eq!(code, Some(1));
    assert!(text.contains("another daemon listens on"), "{text}");
    rig.until_reachable(1, 2);
}

#[test]
fn a_missing_privilege_is_named() {
    require!("ip", "setpriv");
    let rig = Rig::new(1);
    let file = rig.write("trivium.toml", &rig.configuration(""));
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&rig.directory, open).unwrap();
    // Root without capabilities, as in an unprivileged container.
    let line =
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all", TRIVIUM, "run", "-c", file.to_str().unwrap()];
    let (code, text) = fails(&mut rig.lab.hub().command(line));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("port.h1"), "{text}");
    assert!(text.contains("root") || text.contains("CAP_"), "it says what to do: {text}");
}

#[test]
fn a_full_disk_is_named() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let configuration = rig.configuration("persist = false");
    rig.start(&configuration);
    rig.until_reachable(1, 2);
    let _pinging = rig.hosts[0].spawn(["ping", "-n", "-i", "0.01", rig.hosts[1].ip()]).unwrap();
    let output = rig.trivium(&["capture", "h1", "-n", "2000", "-w", "/dev/full"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("/dev/full") && text.contains("make room"), "{text}");
    assert!(rig.daemon().is_running());
}

#[test]
fn mistakes_are_all_named_and_nothing_is_applied() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let configuration = rig.configuration("persist = false");
    rig.start(&configuration);
    rig.until_reachable(1, 2);
    let wrong = rig.write(
        "wrong.toml",
        "[port.h1]\nkind = \"af_xdpp\"\n[port.h2]\nkind = \"af_xdp\"\ndevice = \"a name that is far too long\"\n\
         mtu = 7\n[bridge.br0]\nageing = -1\n[bridge.br0.port.nobody]\naccess = 5000\n",
    );
    let wrong = wrong.to_str().unwrap();
    for output in [rig.trivium(&["check", wrong]), rig.trivium(&["apply", wrong])] {
        assert_eq!(output.status.code(), Some(3));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        for part in ["wrong.toml:2:", "wrong.toml:5:", "wrong.toml:6:", "wrong.toml:8:", "wrong.toml:10:"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
    rig.until_reachable(1, 2);
    assert_eq!(rig.trivium(&["show", "nothing"]).status.code(), Some(2), "wrong arguments");
    let nobody = Command::new(TRIVIUM).args(["--socket", "/no/such.sock", "show", "ports"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(4), "no daemon");
}
