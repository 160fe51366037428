//! Tests the real binary as a systemd service: the notifications to the service manager, in particular during an
//! upgrade.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rig::{PATIENCE, Rig, TRIVIUM};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::Signal;
use testbed::{Process, require};

/// Watchdog interval that the test sets, as systemd does for a service.
const WATCHDOG: Duration = Duration::from_secs(1);

/// A notification as systemd receives it.
#[derive(Debug)]
struct Heard {
    from: u32,
    text: String,
    /// Whether the process that was first started as the service's main process was still running when the notification
    /// was read.
    first_runs: bool,
}

/// Reads notifications as the service manager does: one at a time, with the process ID of the sender. File descriptors
/// that a barrier message contains are closed, which signals that the message was read.
fn listen(socket: &UnixDatagram, first: &Receiver<u32>, to: &Sender<Heard>) {
    let mut main = None;
    let mut buffer = [0; 512];
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1), ScmCredentials(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut buffer)];
        let Ok(read) = recvmsg(socket, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) else { return };
        // All messages are drained, which closes their descriptors.
        let from = ancillary
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmCredentials(who) => {
                    u32::try_from(who.pid.as_raw_nonzero().get()).ok()
                }
                _ => None,
            })
            .last();
        let main = *main.get_or_insert_with(|| first.recv().unwrap());
        let text = String::from_utf8_lossy(&buffer[..read.bytes]).into_owned();
        if to.send(Heard { from: from.unwrap(), text, first_runs: runs(main) }).is_err() {
            return;
        }
    }
}

/// Returns whether a process exists and is no zombie.
fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z')))
}

/// Returns the next message that `wanted` accepts, and skips earlier ones.
fn until(heard: &Receiver<Heard>, what: &str, wanted: impl Fn(&Heard) -> bool) -> Heard {
    let (begin, mut passed) = (Instant::now(), Vec::new());
    while let Ok(message) = heard.recv_timeout(PATIENCE.saturating_sub(begin.elapsed())) {
        if wanted(&message) {
            return message;
        }
        passed.push(message);
    }
    panic!("{what} never came: {passed:?}");
}

#[test]
fn a_service_stays_alive_through_an_upgrade() {
    require!("ip", "ping", "ethtool");
    let mut rig = Rig::new(2);
    let notify = rig.path("notify.sock");
    let socket = UnixDatagram::bind(&notify).unwrap();
    rustix::net::sockopt::set_socket_passcred(&socket, true).unwrap();
    let ((tell, told), (to, heard)) = (channel(), channel());
    std::thread::spawn(move || listen(&socket, &told, &to));

    let file = rig.write("trivium.toml", &rig.configuration(""));
    // The daemon is started as by systemd. WATCHDOG_PID is the process id of the service's main process.
    let script = "export WATCHDOG_PID=$$; exec \"$0\" \"$@\"";
    let mut command =
        rig.lab.hub().command(["sh", "-c", script, TRIVIUM, "run", "-c", file.to_str().unwrap()]);
    command.env("NOTIFY_SOCKET", &notify).env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
    let daemon = Process::start(command).unwrap();
    let first = daemon.pid();
    rig.daemon = Some(daemon);
    tell.send(first).unwrap();
    until(&heard, "READY of the first", |it| {
        it.from == first && it.text.starts_with("READY=1\nSTATUS=2 ports")
    });
    until(&heard, "food for the watchdog", |it| it.from == first && it.text == "WATCHDOG=1");

    rig.ok(&["upgrade", "--binary", TRIVIUM]);
    let main =
        until(&heard, "MAINPID of the first", |it| it.from == first && it.text.starts_with("MAINPID="));
    assert!(main.first_runs, "systemd must know the successor before the first ends");
    let successor: u32 = main.text.trim_start_matches("MAINPID=").parse().unwrap();
    assert!(successor != first && runs(successor));
    let (status, output) = rig.daemon.take().unwrap().finish(PATIENCE).unwrap();
    assert!(status.success(), "{output}");
    until(&heard, "READY of the successor", |it| it.from == successor && it.text.starts_with("READY=1"));
    for feed in 0..4 {
        let begin = Instant::now();
        until(&heard, "more food for the watchdog", |it| it.from == successor && it.text == "WATCHDOG=1");
        assert!(begin.elapsed() < WATCHDOG, "feed {feed} is late");
    }
    rig.until_reachable(1, 2);

    let pid = rustix::process::Pid::from_raw(i32::try_from(successor).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    until(&heard, "STOPPING", |it| it.from == successor && it.text == "STOPPING=1");
    testbed::eventually("the end", PATIENCE, || {
        if runs(successor) { Err("it runs".to_owned()) } else { Ok(()) }
    })
    .unwrap();
}

#[test]
fn the_watchdog_is_fed_and_signals_are_heard_during_a_hand_over() {
    require!("ip", "ping", "ethtool");
    if !cfg!(any(debug_assertions, feature = "fault")) {
        return testbed::skip("an optimised daemon has faults with `--features daemon/fault` only");
    }
    let mut rig = Rig::new(2);
    let notify = rig.path("notify.sock");
    let socket = UnixDatagram::bind(&notify).unwrap();
    rustix::net::sockopt::set_socket_passcred(&socket, true).unwrap();
    let ((tell, told), (to, heard)) = (channel(), channel());
    std::thread::spawn(move || listen(&socket, &told, &to));
    let fault = rig.path("fault");
    let (text, watchdog) = (rig.configuration(""), WATCHDOG.as_micros().to_string());
    let variables = [
        ("NOTIFY_SOCKET", notify.to_str().unwrap()),
        ("WATCHDOG_USEC", &watchdog),
        ("TRIVIUM_FAULT", "hand-over"),
        ("TRIVIUM_FAULT_FILE", fault.to_str().unwrap()),
    ];
    rig.start_with(&text, &variables);
    let first = rig.daemon().pid();
    tell.send(first).unwrap();
    std::fs::write(&fault, "rebuilt hang\n").unwrap();
    let mut upgrade = std::process::Command::new(TRIVIUM)
        .env("TRIVIUM_SOCKET", rig.socket())
        .args(["upgrade", "--binary", TRIVIUM])
        .spawn()
        .unwrap();
    let reached = fault.with_extension("rebuilt");
    testbed::wait_until("the successor to hang", PATIENCE, || reached.exists()).unwrap();
    // A request to reload the file waits, and must not block anything else.
    let pid = rustix::process::Pid::from_raw(i32::try_from(first).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::HUP).unwrap();
    while heard.try_recv().is_ok() {}
    for _ in 0..3 {
        until(&heard, "food for the watchdog", |it| it.from == first && it.text == "WATCHDOG=1");
    }
    assert!(upgrade.try_wait().unwrap().is_none(), "it was fed during the hand-over");
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    until(&heard, "STOPPING", |it| it.from == first && it.text == "STOPPING=1");
    let (status, output) = rig.daemon.take().unwrap().finish(PATIENCE).unwrap();
    assert!(status.success() && !output.contains("handed over"), "{output}");
    let _ = upgrade.wait();
}

/// A successor becomes the service's main process as soon as it has taken over. If a signal arrives before the
/// successor serves clients, the successor cleans up completely and ends.
#[test]
fn a_signal_right_after_a_hand_over_ends_the_successor_in_order() {
    require!("ip", "ping", "ethtool");
    if !cfg!(any(debug_assertions, feature = "fault")) {
        return testbed::skip("an optimised daemon has faults with `--features daemon/fault` only");
    }
    let mut rig = Rig::new(2);
    let notify = rig.path("notify.sock");
    let socket = UnixDatagram::bind(&notify).unwrap();
    rustix::net::sockopt::set_socket_passcred(&socket, true).unwrap();
    let ((tell, told), (to, heard)) = (channel(), channel());
    std::thread::spawn(move || listen(&socket, &told, &to));
    let fault = rig.path("fault");
    let variables = [
        ("NOTIFY_SOCKET", notify.to_str().unwrap()),
        ("TRIVIUM_FAULT", "hand-over"),
        ("TRIVIUM_FAULT_FILE", fault.to_str().unwrap()),
    ];
    rig.start_with(&rig.configuration(""), &variables);
    tell.send(rig.daemon().pid()).unwrap();
    std::fs::write(&fault, "apply hang\n").unwrap();
    let mut upgrade = std::process::Command::new(TRIVIUM)
        .env("TRIVIUM_SOCKET", rig.socket())
        .args(["upgrade", "--binary", TRIVIUM])
        .spawn()
        .unwrap();
    let reached = fault.with_extension("apply");
    testbed::wait_until("the successor to have taken over", PATIENCE, || reached.exists()).unwrap();
    let main = until(&heard, "the successor's PID", |it| it.text.starts_with("MAINPID="));
    let successor: u32 = main.text["MAINPID=".len()..].parse().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(successor).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    std::fs::remove_file(&fault).unwrap();
    until(&heard, "STOPPING", |it| it.from == successor && it.text == "STOPPING=1");
    testbed::eventually("the end", PATIENCE, || {
        if runs(successor) { Err("it runs".to_owned()) } else { Ok(()) }
    })
    .unwrap();
    let _ = upgrade.wait();
}

#[test]
fn the_unit_lets_a_successor_speak() {
    let unit = include_str!("../../../contrib/trivium.service");
    for line in ["Type=notify", "NotifyAccess=all", "KillMode=mixed"] {
        assert!(unit.lines().any(|it| it == line), "{line}");
    }
}

#[test]
fn the_unit_restarts_the_daemon_however_often_it_fails() {
    let unit = include_str!("../../../contrib/trivium.service");
    let (section, rest) = unit.split_once("[Service]").unwrap();
    assert!(rest.lines().any(|it| it == "Restart=on-failure"));
    // By default, systemd gives up after five starts within 10 s.
    assert!(section.lines().any(|it| it == "StartLimitIntervalSec=0"), "{section}");
}
