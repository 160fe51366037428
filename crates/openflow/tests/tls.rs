//! Tests of TLS with the stock client, and with clients that have a wrong key or no key, or that send only half of a
//! handshake.

#![allow(clippy::unwrap_used, reason = "a test")]

mod keys;
mod memory;

use std::net::SocketAddr;
use std::process::Output;
use std::time::Duration;

use keys::{Authority, options};
use memory::Memory;
use openflow::{Address, Controllers, Target, Tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::time::Instant;

async fn eventually(what: &str, controllers: &Controllers, wanted: &str) {
    let mut last = None;
    for _ in 0..2000 {
        last = controllers.status()[0].last_error.clone();
        if last.as_ref().is_some_and(|error| error.contains(wanted)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not in 20 s: {what}: {last:?}");
}

/// Starts a bridge that listens with TLS.
async fn listening(tls: Option<Tls>) -> (Controllers, SocketAddr) {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut controllers = Controllers::new(Memory::new());
    controllers.set(vec![Target { tls, ..Target::new(Address::ListenTls(free)) }]).await;
    while TcpStream::connect(free).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (controllers, free)
}

async fn show(to: SocketAddr, tls: &Tls) -> Output {
    let mut client = Command::new("ovs-ofctl");
    client.args(options(tls)).args(["-O", "OpenFlow13", "--timeout=20", "show", &format!("ssl:{to}")]);
    client.output().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stock_client_comes_in_with_a_key_of_the_ca_alone() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (controllers, at) = listening(Some(authority.issue("bridge", 2))).await;
    let good = authority.issue("client", 2);
    let shown = show(at, &good).await;
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.status.success() && text.contains("1(p1)"), "{shown:?}");
    let strange = Tls { ca: good.ca.clone(), ..other.issue("stranger", 2) };
    assert!(!show(at, &strange).await.status.success());
    eventually("a certificate of another CA", &controllers, "UnknownIssuer").await;
    assert!(!show(at, &authority.issue("late", -1)).await.status.success());
    eventually("a certificate that has expired", &controllers, "Expired").await;
    // A client that requires a server certificate of another CA.
    let wary = Tls { ca: other.issue("x", 2).ca, ..good.clone() };
    assert!(!show(at, &wary).await.status.success());
    assert!(show(at, &good).await.status.success(), "others go on");
    // Replaced files apply to the next connection.
    let (own, next) = (authority.issue("bridge", 2), other.issue("bridge", 2));
    for (to, from) in [(own.key, next.key), (own.certificate, next.certificate), (own.ca, next.ca)] {
        std::fs::copy(from, to).unwrap();
    }
    assert!(show(at, &other.issue("friend", 2)).await.status.success());
    assert!(!show(at, &strange_to(&good, &other)).await.status.success(), "its CA is none any more");
    controllers.shutdown().await;
}

/// Returns the TLS files of a client that keeps its own certificate, but trusts another CA.
fn strange_to(own: &Tls, other: &Authority) -> Tls {
    Tls { ca: other.issue("y", 2).ca, ..own.clone() }
}

/// Checks that connections that end before authentication occupy only one blocking thread, even if the TLS files are on
/// a slow disk.
#[test]
fn connections_that_only_come_take_no_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(4)
        .enable_all()
        .build()
        .unwrap();
    let authority = Authority::new();
    let own = authority.issue("bridge", 2);
    // Opening a FIFO blocks until it has a writer, which simulates a slow file.
    let key = own.key.with_file_name("slow");
    assert!(std::process::Command::new("mkfifo").arg(&key).status().unwrap().success());
    let in_time = runtime.block_on(async {
        let (_controllers, at) = listening(Some(Tls { key, ..own })).await;
        for _ in 0..50 {
            drop(TcpStream::connect(at).await.unwrap());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let work = tokio::task::spawn_blocking(|| ());
        tokio::time::timeout(Duration::from_secs(10), work).await.is_ok()
    });
    runtime.shutdown_background();
    assert!(in_time, "no thread is left for other work");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_and_half_a_greeting_end_in_time_and_hold_nobody_up() {
    let authority = Authority::new();
    let (controllers, at) = listening(Some(authority.issue("bridge", 2))).await;
    let good = authority.issue("client", 2);
    // OpenFlow without TLS.
    let mut plain = TcpStream::connect(at).await.unwrap();
    plain.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]).await.unwrap();
    let mut answer = Vec::new();
    // The connection may be reset instead of closed.
    let _ = plain.read_to_end(&mut answer).await;
    eventually("no TLS", &controllers, "corrupt message").await;
    // A ClientHello of 256 octets that is received partially.
    let start = Instant::now();
    let mut halves = Vec::new();
    for _ in 0..20 {
        let mut half = TcpStream::connect(at).await.unwrap();
        half.write_all(&[22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3]).await.unwrap();
        halves.push(half);
    }
    let shown = show(at, &good).await;
    assert!(shown.status.success(), "others are served meanwhile: {shown:?}");
    for mut half in halves {
        let ended = tokio::time::timeout(Duration::from_secs(20), half.read(&mut [0; 64])).await;
        assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{ended:?}");
    }
    assert!(start.elapsed() > Duration::from_secs(2));
    eventually("half a greeting", &controllers, "has not finished its greeting").await;
    controllers.shutdown().await;
}

/// Checks that connections without a certificate end no session of a peer with a certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_without_a_certificate_end_no_session() {
    let authority = Authority::new();
    let (controllers, at) = listening(Some(authority.issue("bridge", 2))).await;
    let mut monitor = Command::new("ovs-ofctl");
    monitor.env("OVS_RUNDIR", std::env::temp_dir()).args(options(&authority.issue("client", 2))).args([
        "-O",
        "OpenFlow13",
        "monitor",
    ]);
    monitor.arg(format!("ssl:{at}")).stdout(std::process::Stdio::null()).kill_on_drop(true);
    let mut monitor = monitor.spawn().unwrap();
    let begin = Instant::now();
    while controllers.status()[0].sessions == 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", controllers.status());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut silent = Vec::new();
    for _ in 0..150 {
        silent.push(TcpStream::connect(at).await.unwrap());
    }
    // The session would have ended before these connections ended.
    for silent in &mut silent[..80] {
        let ended = tokio::time::timeout(Duration::from_secs(10), silent.read(&mut [0; 64])).await;
        assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{ended:?}");
    }
    assert_eq!(controllers.status()[0].sessions, 1);
    assert!(monitor.try_wait().unwrap().is_none(), "the monitor is still connected");
    controllers.shutdown().await;
    monitor.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_our_own_keys_is_told_by_the_file() {
    let (authority, other) = (Authority::new(), Authority::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::Tls(listener.local_addr().unwrap());
    let good = authority.issue("bridge", 2);
    let empty = good.ca.with_file_name("empty");
    std::fs::write(&empty, "nothing\n").unwrap();
    for (tls, wanted) in [
        (None, "there is no key for TLS"),
        (Some(Tls { key: "/nowhere/key.pem".into(), ..good.clone() }), "/nowhere/key.pem"),
        (Some(Tls { ca: empty.clone(), ..good.clone() }), "no certificate in it"),
        (Some(Tls { key: other.issue("b", 2).key, ..good.clone() }), "make sure that the key belongs"),
    ] {
        let mut controllers = Controllers::new(Memory::new());
        controllers.set(vec![Target { tls, ..Target::new(address.clone()) }]).await;
        eventually(wanted, &controllers, wanted).await;
        controllers.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_of_another_ca_or_whose_time_is_over_is_not_followed() {
    let (authority, other) = (Authority::new(), Authority::new());
    let own = authority.issue("bridge", 2);
    for (theirs, wanted) in [(other.issue("c", 2), "UnknownIssuer"), (authority.issue("c", -1), "Expired")] {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut process = Command::new("ovs-testcontroller");
        process.env("OVS_RUNDIR", std::env::temp_dir()).arg("-vconsole:off").args(options(&theirs));
        process.arg(format!("pssl:{}:127.0.0.1", free.port())).kill_on_drop(true);
        let mut process = process.spawn().unwrap();
        let mut controllers = Controllers::new(Memory::new());
        let tls = Some(own.clone());
        let max_backoff = Duration::from_secs(1);
        controllers.set(vec![Target { tls, max_backoff, ..Target::new(Address::Tls(free)) }]).await;
        eventually(wanted, &controllers, wanted).await;
        assert!(!controllers.status()[0].connected);
        controllers.shutdown().await;
        process.kill().await.unwrap();
    }
}
