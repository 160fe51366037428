//! Tests the listening addresses of the API, and the errors if the API cannot listen.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::time::Instant;

use rig::{PATIENCE, Rig, TRIVIUM};
use rustix::process::Signal;
use testbed::{Process, eventually, require};

#[test]
fn a_tcp_port_in_use_is_named() {
    require!("ip", "openssl");
    let rig = Rig::new(0);
    // Another socket in the hub has the address.
    let taken = rig.lab.hub().inside(|| {
        std::net::TcpListener::bind("127.0.0.1:0")
            .map_err(|source| testbed::LabError::System { what: "listening".to_owned(), source })
    });
    let taken = taken.unwrap();
    let text = format!("{}{}", rig.configuration(""), rig.tcp_api(&taken.local_addr().unwrap().to_string()));
    let file = rig.write("trivium.toml", &text);
    let output = rig.lab.hub().command([TRIVIUM, "run", "-c", file.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let address = taken.local_addr().unwrap().to_string();
    assert!(said.contains(&address) && said.contains("stop what listens there"), "{said}");
    assert!(!rig.socket().exists(), "nothing is left of a daemon that did not start");
}

/// The daemon uses the socket path on its command line even if a configuration file that is applied later contains
/// another path. After an upgrade, the new process uses this path as well. Commands that need no socket refuse the
/// option `--socket`.
#[test]
fn the_socket_of_the_command_line_is_listened_on() {
    require!("ip");
    let mut rig = Rig::new(0);
    let socket = rig.path("other.sock");
    let file = rig.write("trivium.toml", &rig.configuration(""));
    let (file, other) = (file.to_str().unwrap(), socket.to_str().unwrap());
    let command = rig.lab.hub().command([TRIVIUM, "run", "--socket", other, "-c", file]);
    rig.daemon = Some(Process::start(command).unwrap());
    rig.daemon().wait_for_line("ready:", PATIENCE).unwrap();
    let first = rig.daemon().output();
    let pid = format!("pid {}", rig.daemon().pid());
    let said = ["trivium ", " starts: ", &pid, file, other];
    assert!(said.iter().all(|word| first.lines().next().unwrap().contains(word)), "{first}");
    assert!(socket.exists() && !rig.socket().exists());
    let shown = rig.ok(&["--socket", other, "apply", file]);
    assert!(shown.contains("nothing differs"), "{shown}");
    rig.ok(&["--socket", other, "upgrade"]);
    let shown = rig.ok(&["--socket", other, "apply", file]);
    assert!(shown.contains("nothing differs"), "{shown}");
    for ignored in [&["check", file][..], &["bench", "list"], &["release"], &["xdp", "gen", "lo"]] {
        let output = rig.trivium(&[ignored, &["--socket", other]].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{ignored:?}: {text}");
        assert!(text.contains("asks no daemon"), "{text}");
    }
    rig.ok(&["--socket", other, "stop"]);
}

/// Client commands do not wait forever for a daemon that is stopped by SIGSTOP. They report the socket and suggest a
/// next step.
#[test]
fn a_daemon_that_does_not_answer_is_named() {
    require!("ip");
    let mut rig = Rig::new(0);
    rig.start(&rig.configuration(""));
    rig.daemon().signal(Signal::STOP).unwrap();
    let begin = Instant::now();
    let output = rig.trivium(&["show", "ports", "--timeout", "2"]);
    rig.daemon().signal(Signal::CONT).unwrap();
    assert_eq!(output.status.code(), Some(4), "after {:?}", begin.elapsed());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("api.sock") && text.contains("no sign of life for 2 s") && text.contains("--timeout"),
        "{text}"
    );
    rig.ok(&["show", "ports"]);
}

/// Each change and each refused change is logged with the client, the object and the result.
#[test]
fn changes_are_logged_with_their_author() {
    require!("ip");
    let mut rig = Rig::new(0);
    let before = rig.configuration("");
    rig.start(&before);
    let ports: String = (0..8).map(|number| format!("[port.n{number}]\nkind = \"null\"\n")).collect();
    let more = rig.write("more.toml", &format!("{before}{ports}"));
    rig.ok(&["apply", more.to_str().unwrap()]);
    let put = rig.put("/v1/ports/web", r#"{"kind": "null"}"#);
    assert!(put.starts_with("HTTP/1.1 200"), "{put}");
    let put = rig.put("/v1/ports/n0", r#"{"kind": "null"}"#);
    assert!(put.starts_with("HTTP/1.1 409"), "{put}");
    let less = rig.write("less.toml", &before);
    let less = less.to_str().unwrap();
    let refused = rig.trivium(&["apply", less]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && text.contains("--force"), "{text}");
    rig.ok(&["apply", less, "--force", "--confirm", "60"]);
    let undone = rig.ok(&["rollback"]);
    assert!(undone.contains("rolled back: 8 changes"), "{undone}");
    let failed = rig.trivium(&["upgrade", "--binary", "/bin/false"]);
    assert_eq!(failed.status.code(), Some(1));
    let refused = rig.trivium(&["upgrade", "--binary", rig.write("own", "").to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("not a program"));
    for (place, what) in [
        ("PUT /v1/config: 8 changes (+port.n0, +port.n1, ", "uid 0 pid "),
        ("PUT /v1/ports/web: 1 change (+port.web)", "uid 0 pid "),
        ("PUT /v1/ports/n0: refused (409): port.n0: ", "uid 0 pid "),
        ("PUT /v1/config: refused (409): config: it removes 8 of the 9", "uid 0 pid "),
        ("PUT /v1/config: 8 changes (-port.n", "rolled back in 60 s unless confirmed"),
        ("DELETE /v1/config/pending: 8 changes (+port.n0, ", "uid 0 pid "),
        ("POST /v1/upgrade: refused (500): upgrade to ", "/bin/false"),
        ("POST /v1/upgrade: refused (422): upgrade: ", "own is not a program"),
    ] {
        // An answer may arrive before the log line.
        eventually(&format!("{place} {what}"), PATIENCE, || {
            let log = rig.daemon().output();
            let found = log.lines().any(|line| line.contains(place) && line.contains(what));
            if found { Ok(()) } else { Err(log) }
        })
        .unwrap();
    }
    // A file that is too long is refused before it is sent.
    let long = rig.write("long.toml", &format!("{before}{}", "# x\n".repeat(300_000)));
    let refused = rig.trivium(&["apply", long.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(3) && text.contains("at most 1048576"), "{text}");
}
