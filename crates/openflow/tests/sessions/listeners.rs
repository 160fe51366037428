//! Tests of listeners: treatment of idle clients, and restriction of the clients that may connect.

use super::*;

/// Idle clients of a listener are probed like controllers to which the bridge connects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_client_of_a_listener_is_asked_and_then_cut() {
    let probe = |target: &mut Target| target.inactivity_probe = Some(Duration::from_millis(100));
    let (_bridge, controllers, at) = listening_with(probe).await;
    let mut silent = Peer::connect(at, 4).await;
    assert_eq!(silent.next().await.0, 2, "an echo request");
    assert!(silent.try_next().await.is_err(), "given up");
    controllers.shutdown().await;
}

/// Checks that idle clients that fill a listener do not prevent other clients from connecting. The session that was
/// idle for the longest time is ended, and an active session is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_idle_session_of_a_full_listener_gives_way() {
    let (_bridge, controllers, at) = listening().await;
    let mut busy = Peer::connect(at, 4).await;
    let mut idle = Vec::new();
    for _ in 0..63 {
        idle.push(Peer::connect(at, 4).await);
    }
    eventually("it is full", || controllers.status()[0].sessions == 64).await;
    for round in 0..3 {
        // Idle times have a resolution of milliseconds.
        tokio::time::sleep(Duration::from_millis(2)).await;
        busy.send(2, round, &[]).await;
        assert_eq!(busy.wait_for(3).await.1, round);
        let mut newcomer = Peer::connect(at, 4).await;
        newcomer.send(2, 99, &[]).await;
        assert_eq!(newcomer.wait_for(3).await.1, 99);
        assert!(idle.remove(0).try_next().await.is_err(), "the longest idle one");
        idle.push(newcomer);
    }
    busy.send(2, 9, &[]).await;
    assert_eq!(busy.wait_for(3).await.1, 9);
    eventually("as many as may be", || controllers.status()[0].sessions == 64).await;
    controllers.shutdown().await;
}

/// Checks that connections whose peers send nothing end no session, and prevent no other client from connecting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_a_handshake_end_no_session() {
    let (_bridge, controllers, at) = listening().await;
    let mut idle = Vec::new();
    for _ in 0..8 {
        idle.push(Peer::connect(at, 4).await);
    }
    eventually("all are sessions", || controllers.status()[0].sessions == 8).await;
    let mut silent = Vec::new();
    for _ in 0..150 {
        silent.push(TcpStream::connect(at).await.unwrap());
    }
    // The oldest connections in the handshake end. Each connection receives a greeting first.
    let mut greeting = Vec::new();
    let ended = silent[0].read_to_end(&mut greeting);
    assert!(tokio::time::timeout(Duration::from_secs(10), ended).await.is_ok(), "the oldest one ends");
    idle.push(Peer::connect(at, 4).await);
    for peer in &mut idle {
        peer.send(2, 9, &[]).await;
        assert_eq!(peer.wait_for(3).await.1, 9);
    }
    assert_eq!(controllers.status()[0].sessions, 9);
    controllers.shutdown().await;
}

/// Checks that a listener without TLS does not use an address that other machines can reach, unless `allow_remote` is
/// set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_for_other_machines_has_to_be_allowed() {
    for allow_remote in [false, true] {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let address = Address::ListenTcp(SocketAddr::new([0, 0, 0, 0].into(), free.port()));
        let mut controllers = Controllers::new(Memory::new());
        controllers.set(vec![Target { allow_remote, ..Target::new(address) }]).await;
        if allow_remote {
            eventually("it listens", || std::net::TcpStream::connect(free).is_ok()).await;
        } else {
            eventually("it says why", || controllers.status()[0].last_error.is_some()).await;
            let why = controllers.status()[0].last_error.clone().unwrap();
            assert!(why.contains("allow_remote = true"), "{why}");
            assert!(TcpStream::connect(free).await.is_err());
        }
        controllers.shutdown().await;
    }
}

/// Checks that a listener on a loopback address refuses all local users except root, the daemon's own user and the
/// users in `users`. The refusal is reported.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_users_have_to_be_named() {
    use std::os::unix::process::CommandExt;
    const OTHER: u32 = 65534;
    for (users, is_let_in) in [(Some(vec![]), false), (Some(vec![OTHER]), true), (None, true)] {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let address = Address::ListenTcp(free);
        let mut controllers = Controllers::new(Memory::new());
        controllers.set(vec![Target { users: users.clone(), ..Target::new(address) }]).await;
        eventually("it listens", || std::net::TcpStream::connect(free).is_ok()).await;
        // Counts the octets of the received hello message, if any.
        let text = format!("exec 3<>/dev/tcp/127.0.0.1/{}; head -c 8 <&3 | wc -c", free.port());
        let mut shell = std::process::Command::new("bash");
        shell.args(["-c", &text]).uid(OTHER).gid(OTHER);
        let Ok(output) = tokio::task::spawn_blocking(move || shell.output()).await.unwrap() else {
            testbed::skip("only root connects as another user");
            return;
        };
        let read = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert_eq!(read, if is_let_in { "8" } else { "0" }, "{users:?}");
        if !is_let_in {
            let why = controllers.status()[0].last_error.clone().unwrap();
            assert!(why.contains("user 65534") && why.contains("passive_users"), "{why}");
            // The daemon's own user is still admitted.
            let mut peer = Peer::connect(free, 4).await;
            peer.send(2, 9, &[]).await;
            assert_eq!(peer.wait_for(3).await.1, 9);
        }
        controllers.shutdown().await;
    }
}
