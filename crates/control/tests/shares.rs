//! Tests that the resources that one client occupies do not block other clients or root.

#![allow(clippy::unwrap_used, reason = "a test says with a panic what it did not expect")]

mod memory;

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::StatusCode;
use memory::{Daemon, OBJECTS};

/// ID of a user other than root.
const OTHER: u32 = 4711;
/// Time limit for events in these tests. The limit is long, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a daemon whose socket is open to all users. Returns `None` if this process cannot change its user.
fn serving(name: &str) -> Option<Daemon> {
    if !rustix::process::geteuid().is_root() {
        testbed::skip("only root speaks as another user");
        return None;
    }
    let daemon = Daemon::serving(name);
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(daemon.place.path(), 0o755);
    open(&daemon.place.settings().daemon.api, 0o666);
    Some(daemon)
}

/// Connects as the local user `user` and sends the request `text`. The caller reads the response.
fn sent(daemon: &Daemon, user: u32, text: &str) -> UnixStream {
    let (socket, text) = (daemon.place.settings().daemon.api, text.to_owned());
    let sending = std::thread::spawn(move || {
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(user)).unwrap();
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    });
    sending.join().unwrap()
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: trivium\r\n\r\n")
}

/// Returns the first line (status line) of an HTTP response.
fn status(stream: &mut UnixStream) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    while line.last() != Some(&b'\r') && stream.read(&mut byte).unwrap() == 1 {
        line.extend(byte);
    }
    String::from_utf8(line).unwrap()
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let wait = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{what}: it did not come"));
}

/// Requests of disconnected clients count against the quota of these clients until their work is done. Root has
/// separate threads.
#[test]
fn work_of_clients_that_have_gone_leaves_threads_to_root() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(control::BLOCKING_WORK)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let Some(daemon) = serving("work") else { return };
        let asking = || daemon.plane.asking_workers.load(Ordering::Relaxed);
        let hold = |held| daemon.plane.hold_workers.store(held, Ordering::Relaxed);
        hold(true);
        let streams: Vec<_> = (0..20).map(|_| sent(&daemon, OTHER, &get("/v1/workers"))).collect();
        until("work of the client", || asking() > 0).await;
        drop(streams);
        let answer = tokio::time::timeout(PATIENCE, daemon.ask("GET", "/v1/bridges", "")).await;
        assert_eq!(answer.expect("root waits for others").0, StatusCode::OK);
        assert!(asking() < 20);
        hold(false);
        until("the end of the work", || asking() == 0).await;
    });
}

/// One measurement runs at a time, blocks no thread, and ends when its client disconnects.
#[tokio::test(flavor = "multi_thread")]
async fn a_measurement_ends_with_its_client_and_root_measures_beside_it() {
    let Some(daemon) = serving("measure") else { return };
    let counting = || daemon.plane.counting.load(Ordering::Relaxed);
    let long = sent(&daemon, OTHER, &get("/v1/hooks?measure_ms=60000"));
    until("the measurement", || counting() == 1).await;
    let mut second = sent(&daemon, OTHER, &get("/v1/hooks?measure_ms=1"));
    assert_eq!(status(&mut second), "HTTP/1.1 503 Service Unavailable\r");
    daemon.json::<Vec<model::HookState>>("GET", "/v1/hooks?measure_ms=1", "").await;
    assert_eq!(counting(), 1);
    drop(long);
    until("the measurement's end", || counting() == 0).await;
}

/// Changes of a router wait for a comparison with the kernel. One comparison runs at a time, and requires
/// more than the scope `read`.
#[tokio::test(flavor = "multi_thread")]
async fn one_comparison_with_the_kernel_is_made_at_a_time() {
    let Some(daemon) = serving("drift") else { return };
    let (done, text) = daemon.ask("PUT", "/v1/config", &daemon.file("[router.r]\n")).await;
    assert_eq!(done, StatusCode::OK, "{text}");
    let drifting = || daemon.plane.drifting.load(Ordering::Relaxed);
    let hold = |held| daemon.plane.hold_drift.store(held, Ordering::Relaxed);
    hold(true);
    let mut first = sent(&daemon, 0, &get("/v1/routers/r/drift"));
    until("the comparison", || drifting() == 1).await;
    assert_eq!(daemon.ask("GET", "/v1/routers/r/drift", "").await.0, StatusCode::SERVICE_UNAVAILABLE);
    hold(false);
    assert_eq!(status(&mut first), "HTTP/1.1 200 OK\r");
    assert_eq!(daemon.ask("GET", "/v1/routers/r/drift", "").await.0, StatusCode::OK);
    let (_, description) = daemon.ask("GET", "/openapi.json", "").await;
    let description: serde_json::Value = serde_json::from_str(&description).unwrap();
    let security = &description["paths"]["/v1/routers/{router}/drift"]["get"]["security"][1]["token"];
    assert_eq!(security, &serde_json::json!(["configure"]));
}

/// The kernel verifies a program for each explanation of a packet. Only one explanation for root and one for all other
/// clients run at a time, and additional explanations wait.
#[tokio::test(flavor = "multi_thread")]
async fn one_packet_is_explained_at_a_time_for_root_and_one_for_others() {
    let Some(daemon) = serving("explain") else { return };
    let (done, text) = daemon.ask("PUT", "/v1/config", &daemon.file(OBJECTS)).await;
    assert_eq!(done, StatusCode::OK, "{text}");
    let explaining = || daemon.plane.explaining.load(Ordering::Relaxed);
    let hold = |held| daemon.plane.hold_explain.store(held, Ordering::Relaxed);
    let body = r#"{"in_port":"a","frame":"00"}"#;
    let head = "POST /v1/explain HTTP/1.1\r\nhost: trivium";
    let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    hold(true);
    let mut streams: Vec<_> =
        [OTHER, OTHER, OTHER + 1, OTHER + 2].map(|user| sent(&daemon, user, &request)).into();
    until("the explanation", || explaining() == 1).await;
    streams.extend([0, 0].map(|user| sent(&daemon, user, &request)));
    until("root's explanation", || explaining() == 2).await;
    // The threads for other work of root are free.
    for _ in 0..20 {
        assert_eq!(daemon.ask("GET", "/v1/bridges", "").await.0, StatusCode::OK);
    }
    hold(false);
    for stream in &mut streams {
        assert_eq!(status(stream), "HTTP/1.1 200 OK\r");
    }
    assert_eq!(daemon.plane.most_explaining.load(Ordering::Relaxed), 2);
}

/// Incomplete request bodies and open streams count only towards the quotas of the client that occupies them.
#[tokio::test(flavor = "multi_thread")]
async fn slow_bodies_and_streams_of_others_leave_root_its_own() {
    let Some(daemon) = serving("slow") else { return };
    let check = "POST /v1/config/check HTTP/1.1\r\nhost: trivium\r\ncontent-length: 100\r\n\r\n";
    let slow: Vec<UnixStream> = (0..4).map(|_| sent(&daemon, OTHER, check)).collect();
    for method in ["POST /v1/config/check", "PUT /v1/config?dry_run=true"] {
        let (method, path) = method.split_once(' ').unwrap();
        let (status, text) = daemon.ask(method, path, &daemon.file("")).await;
        assert_eq!(status, StatusCode::OK, "{text}");
    }
    for mut stream in slow {
        stream.set_nonblocking(true).unwrap();
        let answer = stream.read(&mut [0]);
        assert!(answer.is_err(), "root was answered only once their time was over");
    }
    let mut streams = Vec::new();
    loop {
        let mut stream = sent(&daemon, OTHER, &get("/v1/events"));
        if status(&mut stream).contains("503") {
            break;
        }
        streams.push(stream);
    }
    assert!(!streams.is_empty());
    assert_eq!(daemon.open("GET", "/v1/events", "").await.status(), StatusCode::OK);
}

/// A user at its limit of connections who continues to connect does not delay other users.
#[tokio::test(flavor = "multi_thread")]
async fn connections_of_one_user_keep_no_other_waiting() {
    let Some(daemon) = serving("places") else { return };
    // There are far more connections than waiting slots. Each would take a second if they were processed in
    // sequence.
    let idle: Vec<UnixStream> = (0..60).map(|_| sent(&daemon, OTHER, "")).collect();
    let more: Vec<UnixStream> = (0..60).map(|_| sent(&daemon, OTHER, "")).collect();
    for user in [OTHER + 1, 0] {
        let mut stream = sent(&daemon, user, &get("/healthz"));
        assert_eq!(status(&mut stream), "HTTP/1.1 200 OK\r", "{user}");
    }
    drop((idle, more));
}

/// Unread responses count against the memory limit of their client, and are aborted after some time. Meanwhile,
/// requests of other clients are answered.
#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_not_read_take_a_share_of_memory_and_end() {
    let Some(daemon) = serving("unread") else { return };
    let long = get("/v1/routers/r/neighbours?limit=100000");
    let router = daemon.file("[router.r]\n");
    let (done, text) = daemon.ask("PUT", "/v1/config", &router).await;
    assert_eq!(done, StatusCode::OK, "{text}");
    let mut unread: Vec<UnixStream> = (0..20).map(|_| sent(&daemon, OTHER, &long)).collect();
    for user in [OTHER + 1, 0] {
        let mut stream = sent(&daemon, user, &long);
        assert_eq!(status(&mut stream), "HTTP/1.1 200 OK\r", "{user}");
    }
    // Each answer has about 10 MB, and each client has 128 MiB.
    let statuses: Vec<String> = unread.iter_mut().map(status).collect();
    let answered = statuses.iter().filter(|line| line.contains("200")).count();
    let refused = statuses.iter().filter(|line| line.contains("503")).count();
    assert!((2..=12).contains(&answered) && answered + refused == 20, "{statuses:?}");
    // The slot and the memory of a client that stops reading are released.
    for (stream, line) in unread.iter_mut().zip(&statuses) {
        if line.contains("503") {
            continue;
        }
        stream.set_nonblocking(true).unwrap();
        until("the end of the answer", || {
            let mut poll = [rustix::event::PollFd::new(&*stream, rustix::event::PollFlags::empty())];
            let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::event::poll(&mut poll, Some(&now)).unwrap();
            poll[0].revents().contains(rustix::event::PollFlags::HUP)
        })
        .await;
    }
    assert_eq!(status(&mut sent(&daemon, OTHER, &long)), "HTTP/1.1 200 OK\r");
}
