//! Tests of access rights, limits and the socket of the API.

use super::*;

#[tokio::test]
async fn the_socket_is_for_owner_and_group() {
    let daemon = Daemon::serving("mode");
    let mode = std::fs::metadata(daemon.place.settings().daemon.api).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let left: Vec<_> =
        std::fs::read_dir(daemon.place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["api.sock"], "something was left beside the socket");
    let error = control::Listeners::bind(&daemon.place.settings().daemon).unwrap_err();
    assert!(error.to_string().contains("another daemon listens"), "{error}");
    assert_eq!(daemon.ask("GET", "/healthz", "").await, (StatusCode::OK, "ok\n".to_owned()));
}

#[tokio::test]
async fn a_stale_socket_is_replaced_and_a_file_is_not() {
    let place = memory::Place::new("stale");
    let settings = place.settings().daemon;
    drop(std::os::unix::net::UnixListener::bind(&settings.api).unwrap());
    drop(control::Listeners::bind(&settings).unwrap());
    std::fs::remove_file(&settings.api).unwrap();
    std::fs::write(&settings.api, "precious").unwrap();
    let error = control::Listeners::bind(&settings).unwrap_err();
    assert!(error.to_string().contains("is not a socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&settings.api).unwrap(), "precious");
}

#[tokio::test]
async fn wrong_requests_say_what_is_wrong() {
    let daemon = Daemon::serving("wrong");
    for (method, path, body, status) in [
        ("GET", "/v1/nothing", "", 404),
        ("DELETE", "/v1/workers", "", 405),
        ("GET", "/v1/ports/nobody", "", 404),
        ("GET", "/v1/bridges/nobody", "", 404),
        ("GET", "/v1/flows?bridge=nobody", "", 404),
        ("GET", "/v1/megaflows?bridge=nobody", "", 404),
        ("GET", "/v1/flows?table=256", "", 400),
        ("GET", "/v1/fdb?vlan=5000", "", 400),
        ("GET", "/v1/fdb?vlan=x", "", 400),
        ("GET", "/v1/fdb?mac=zz", "", 400),
        ("GET", "/v1/fdb?colour=blue", "", 400),
        ("GET", "/v1/config?format=xml", "", 400),
        ("PUT", "/v1/config?confirm=0", "", 400),
        ("PUT", "/v1/config?confirm=99999999", "", 400),
        ("PUT", "/v1/ports/a%20b", "{}", 400),
        ("PUT", "/v1/ports/a", "{", 422),
        ("PUT", "/v1/ports/a", "[]", 422),
        ("PUT", "/v1/ports/a", "{}", 422),
        ("PUT", "/v1/ports/a", r#"{"kind": "ring", "size": 3}"#, 422),
        ("PUT", "/v1/bridges/no/ports/a", "{}", 404),
        ("PUT", "/v1/routers/no/ports/a", "{}", 404),
        ("PUT", "/v1/routers/a%20b", "{}", 400),
        ("PUT", "/v1/routers/a", r#"{"routes": 0}"#, 422),
        ("PUT", "/v1/routers/a", r#"{"namespace": "a/b"}"#, 422),
        ("PUT", "/v1/bridges/no/static/0/02:00:00:00:00:01", "{}", 400),
        ("PUT", "/v1/bridges/no/static/1/01:00:5e:00:00:01", "{}", 400),
        ("POST", "/v1/explain", r#"{"in_port": "a", "frame": "0"}"#, 400),
        ("POST", "/v1/explain", r#"{"in_port": "a", "frame": "00"}"#, 404),
        ("POST", "/v1/explain", "x", 400),
        ("PUT", "/v1/rss/a", r#"{"buckets": [0, 1, 0]}"#, 422),
        ("GET", "/v1/rss/a", "", 404),
        ("POST", "/v1/upgrade", r#"{"binary": "trivium"}"#, 422),
        ("POST", "/v1/upgrade", r#"{"binary": "/bin/false"}"#, 422),
        ("GET", "/v1/trace?port=nobody", "", 404),
        ("GET", "/v1/trace?ip=1.2.3", "", 400),
        ("GET", "/v1/trace?filter=colour%3Dred", "", 400),
        ("GET", "/v1/capture/a?filter=colour%3Dred", "", 400),
        ("GET", "/v1/capture/nobody", "", 404),
        ("POST", "/v1/config/confirm", "", 409),
        ("DELETE", "/v1/config/pending", "", 409),
    ] {
        daemon.refused(method, path, body, status).await;
    }
    assert_eq!(daemon.plane.running(), Config::default());
}

#[tokio::test]
async fn long_bodies_and_heads_are_refused() {
    let daemon = Daemon::serving("long");
    daemon.refused("PUT", "/v1/ports/a", &" ".repeat(300 << 10), 413).await;
    daemon.refused("PUT", "/v1/config", &"#".repeat(LIMIT_BYTES + 1), 413).await;
    let mut stream = UnixStream::connect(daemon.place.settings().daemon.api).await.unwrap();
    let head = format!("GET /v1/ports HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(64 << 10));
    let _ = stream.write_all(head.as_bytes()).await;
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert_eq!(daemon.ask("GET", "/healthz", "").await.0, StatusCode::OK);
}

/// Clients that send no request or an incomplete request are disconnected after some time. Clients that send nothing
/// after a response are disconnected as well.
#[tokio::test(start_paused = true)]
async fn silent_clients_are_cut_off() {
    let daemon = Daemon::serving("silent");
    let mut silent = UnixStream::connect(daemon.place.settings().daemon.api).await.unwrap();
    let mut slow = UnixStream::connect(daemon.place.settings().daemon.api).await.unwrap();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nho").await.unwrap();
    let mut text = Vec::new();
    tokio::time::timeout(Duration::from_secs(30), silent.read_to_end(&mut text)).await.unwrap().unwrap();
    tokio::time::timeout(Duration::from_secs(30), slow.read_to_end(&mut text)).await.unwrap().unwrap();
    let mut idle = UnixStream::connect(daemon.place.settings().daemon.api).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(Duration::from_secs(30), idle.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"));
}

/// Sends a request to the socket as another local user. Returns `None` if this process cannot change its
/// user.
fn as_user(user: u32, daemon: &Daemon, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
    use std::io::{Read, Write};
    let socket = daemon.place.settings().daemon.api;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: trivium\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let asked = std::thread::spawn(move || {
        let uid = rustix::process::Uid::from_raw(user);
        rustix::thread::set_thread_uid(uid).ok()?;
        let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1)?.parse().unwrap();
        Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
    });
    asked.join().unwrap()
}

/// A local user in the socket's group can change objects. In these changes, the user cannot refer to files. The user
/// also cannot start programs or load XDP programs.
#[tokio::test(flavor = "multi_thread")]
async fn the_group_configures_and_only_root_names_files_and_programs() {
    if !rustix::process::geteuid().is_root() {
        testbed::skip("only root speaks as another user");
        return;
    }
    let daemon = Daemon::serving("group");
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(daemon.place.path(), 0o755);
    // The mode has the effect of a membership in the group.
    open(&daemon.place.settings().daemon.api, 0o666);
    let ask = |method: &str, path: &str, body: &str| {
        tokio::task::block_in_place(|| as_user(4711, &daemon, method, path, body)).unwrap()
    };
    assert_eq!(ask("PUT", "/v1/ports/a", r#"{"kind":"null"}"#).0, 200);
    assert_eq!(ask("GET", "/v1/ports", "").0, 200);
    for (method, path, body, what) in [
        ("POST", "/v1/upgrade", r#"{"binary":"/bin/true"}"#, "not the daemon's own program"),
        ("PUT", "/v1/hooks/a/program", "x", "uid 4711"),
        ("DELETE", "/v1/hooks/a/program", "", "uid 4711"),
        ("PUT", "/v1/ports/p", r#"{"kind":"pcap","write":"/etc/cron.d/x"}"#, "/etc/cron.d/x"),
        ("PUT", "/v1/ports/p", r#"{"kind":"pcap","read":"/var/lib/trivium/x"}"#, "/var/lib/trivium/x"),
        ("PUT", "/v1/filters/f", r#"{"blocklist":"/etc/shadow"}"#, "/etc/shadow"),
        ("PUT", "/v1/config", "[filter.f]\nblocklist='/etc/shadow'\n", "[daemon]"),
    ] {
        let (status, text) = ask(method, path, body);
        let error: control::ErrorBody = serde_json::from_str(&text).unwrap();
        assert_eq!(status, 403, "{method} {path}: {error:?}");
        assert!(error.cause.contains("`root`"), "{error:?}");
        // The settings of the file differ from the running ones, and are reported first.
        assert!(what == "[daemon]" || error.cause.contains(what), "{what}: {error:?}");
        assert!(error.fix.contains("root"), "{error:?}");
    }
    // The daemon's own user has the scope `root`. Single objects may refer to files in the configured directories, and
    // a complete configuration file may refer to any file.
    let pcap = |path: &str| format!(r#"{{"kind":"pcap","write":"{path}"}}"#);
    let error = daemon.refused("PUT", "/v1/ports/p", &pcap("/etc/cron.d/x"), 422).await;
    assert!(error.fix.contains("/var/lib/trivium") && error.fix.contains("daemon.files"), "{error:?}");
    daemon.refused("PUT", "/v1/ports/p", &pcap("/var/lib/trivium/../x"), 422).await;
    daemon.json::<Outcome>("PUT", "/v1/ports/p", &pcap("/var/lib/trivium/x")).await;
    let file = daemon.file("[port.q]\nkind='pcap'\nwrite='/srv/x'\n");
    daemon.json::<Outcome>("PUT", "/v1/config", &file).await;
    // Files that root has named are kept when another client applies the file again or removes an object.
    assert_eq!(ask("PUT", "/v1/config", &file).0, 200);
    assert_eq!(ask("DELETE", "/v1/ports/p", "").0, 200);
    // A missing program is an error of the client, for root as well.
    let error = daemon.refused("POST", "/v1/upgrade", r#"{"binary":"/nothing"}"#, 422).await;
    assert!(error.object == "upgrade" && error.cause.contains("No such file"), "{error:?}");
}
