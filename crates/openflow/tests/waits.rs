//! Tests that other sessions and echo requests are served while sessions wait for the bridge.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod memory;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use memory::Memory;
use openflow::{Address, Controllers, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Message type of an OpenFlow 1.3 echo request. The constants below are other message types of OpenFlow 1.3.
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
const GET_CONFIG_REQUEST: u8 = 7;
const SET_CONFIG: u8 = 9;
const PACKET_OUT: u8 = 13;
const PORT_MOD: u8 = 16;
const MULTIPART_REQUEST: u8 = 18;
const MULTIPART_REPLY: u8 = 19;
const BARRIER_REQUEST: u8 = 20;
const BARRIER_REPLY: u8 = 21;
const QUEUE_CONFIG_REQUEST: u8 = 22;

/// An OpenFlow 1.3 peer after version negotiation.
struct Peer(TcpStream);

impl Peer {
    async fn connect(to: SocketAddr) -> Peer {
        let mut peer = Peer(TcpStream::connect(to).await.unwrap());
        peer.send(0, 1, &[]).await;
        assert_eq!(peer.next().await.0, 0);
        peer
    }

    async fn send(&mut self, kind: u8, xid: u8, body: &[u8]) {
        let length = u16::try_from(8 + body.len()).unwrap().to_be_bytes();
        let head = [4, kind, length[0], length[1], 0, 0, 0, xid];
        self.0.write_all(&[&head[..], body].concat()).await.unwrap();
    }

    /// Requests all flow entries.
    async fn dump(&mut self, xid: u8) {
        let mut all = vec![0, 1, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0];
        all.extend([0xff; 8]);
        all.extend([0; 20]);
        all.extend([0, 1, 0, 4, 0, 0, 0, 0]);
        self.send(MULTIPART_REQUEST, xid, &all).await;
    }

    /// Returns type, transaction ID and body of the next message.
    async fn next(&mut self) -> (u8, u8, Vec<u8>) {
        let reading = async {
            let mut head = [0; 8];
            self.0.read_exact(&mut head).await.unwrap();
            let mut body = vec![0; usize::from(u16::from_be_bytes([head[2], head[3]])) - 8];
            self.0.read_exact(&mut body).await.unwrap();
            (head[1], head[7], body)
        };
        tokio::time::timeout(Duration::from_secs(20), reading).await.expect("something in 20 s")
    }
}

/// Starts a bridge with a listener. Barriers and dumps of the bridge do not complete while `waits` is true.
async fn listening() -> (Arc<Memory>, Controllers, SocketAddr) {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let bridge = Memory::new();
    let mut controllers = Controllers::new(bridge.clone());
    controllers.set(vec![Target::new(Address::ListenTcp(free))]).await;
    while TcpStream::connect(free).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (bridge, controllers, free)
}

/// Lock of a bridge's tables, which a separate thread holds until [`LockedTables::release`] is called.
struct LockedTables {
    release: Sender<()>,
    thread: JoinHandle<()>,
}

impl LockedTables {
    /// Locks the tables. The thread unlocks them after 10 seconds at the latest, so that a failed test ends.
    async fn new(bridge: &Arc<Memory>) -> LockedTables {
        let bridge = Arc::clone(bridge);
        let (release, released) = std::sync::mpsc::channel();
        let (lock, locked) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let _tables = bridge.lock();
            lock.send(()).unwrap();
            let _ = released.recv_timeout(Duration::from_secs(10));
        });
        locked.await.unwrap();
        LockedTables { release, thread }
    }

    /// Unlocks the tables.
    fn release(self) {
        self.release.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

/// Checks that a session answers echo requests while it waits for a barrier, because a peer that receives no echo reply
/// in time ends the session. The replies to other requests keep their order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn echo_requests_are_answered_while_a_barrier_waits() {
    let (bridge, controllers, at) = listening().await;
    let mut peer = Peer::connect(at).await;
    bridge.waits.store(true, Ordering::Relaxed);
    peer.send(BARRIER_REQUEST, 2, &[]).await;
    peer.send(BARRIER_REQUEST, 3, &[]).await;
    for xid in 4..7 {
        let begin = Instant::now();
        peer.send(ECHO_REQUEST, xid, b"alive").await;
        assert_eq!(peer.next().await, (ECHO_REPLY, xid, b"alive".to_vec()));
        assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    }
    bridge.waits.store(false, Ordering::Relaxed);
    for xid in [2, 3] {
        assert_eq!(peer.next().await, (BARRIER_REPLY, xid, Vec::new()));
    }
    peer.send(ECHO_REQUEST, 7, &[]).await;
    assert_eq!(peer.next().await, (ECHO_REPLY, 7, Vec::new()));
    controllers.shutdown().await;
}

/// Checks that requests that read or change the bridge wait on separate threads while the bridge's tables are locked.
/// The event loop, which has two threads, continues to serve other sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_served_while_requests_of_others_wait_for_the_tables() {
    let (bridge, controllers, at) = listening().await;
    let port_mod = [&[0, 0, 0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0][..], &[0; 16]].concat();
    let multipart = |kind: u8, rest: &[u8]| [&[0, kind, 0, 0, 0, 0, 0, 0][..], rest].concat();
    let requests = [
        (SET_CONFIG, vec![0, 0, 0, 0], None),
        (GET_CONFIG_REQUEST, vec![], Some(GET_CONFIG_REQUEST + 1)),
        (PORT_MOD, port_mod, None),
        (MULTIPART_REQUEST, multipart(4, &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]), Some(MULTIPART_REPLY)),
        (MULTIPART_REQUEST, multipart(5, &[0xff; 8]), Some(MULTIPART_REPLY)),
        (MULTIPART_REQUEST, multipart(13, &[]), Some(MULTIPART_REPLY)),
        (QUEUE_CONFIG_REQUEST, vec![0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0], Some(QUEUE_CONFIG_REQUEST + 1)),
    ];
    for (kind, body, reply) in requests {
        let mut peers = Vec::new();
        for _ in 0..3 {
            peers.push(Peer::connect(at).await);
        }
        let mut other = Peer::connect(at).await;
        let locked = LockedTables::new(&bridge).await;
        for peer in &mut peers {
            peer.send(kind, 2, &body).await;
        }
        let begin = Instant::now();
        for xid in 3..6 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            other.send(ECHO_REQUEST, xid, &[]).await;
            assert_eq!(other.next().await, (ECHO_REPLY, xid, Vec::new()));
        }
        assert!(begin.elapsed() < Duration::from_secs(2), "request {kind}: {:?}", begin.elapsed());
        locked.release();
        for mut peer in peers {
            if let Some(reply) = reply {
                assert_eq!(peer.next().await.0, reply);
            }
            peer.send(ECHO_REQUEST, 6, &[]).await;
            assert_eq!(peer.next().await.0, ECHO_REPLY, "request {kind} is accepted");
        }
    }
    controllers.shutdown().await;
}

/// Checks that packet-outs that wait for the lock of the tables occupy only one blocking thread, regardless of the
/// number of sessions. All bridges and the rest of the process share the blocking threads.
#[test]
fn waiting_packet_outs_of_many_sessions_occupy_one_thread() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).max_blocking_threads(3).enable_all().build().unwrap();
    runtime.block_on(async {
        let (bridge, controllers, at) = listening().await;
        let mut peers = Vec::new();
        for _ in 0..8 {
            peers.push(Peer::connect(at).await);
        }
        let locked = LockedTables::new(&bridge).await;
        let output = [0, 0, 0, 16, 0, 0, 0, 2, 0xff, 0xff, 0, 0, 0, 0, 0, 0];
        let body =
            [&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 16, 0, 0, 0, 0, 0, 0][..], &output, &[7; 60]].concat();
        for peer in &mut peers {
            peer.send(PACKET_OUT, 2, &body).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let other = tokio::time::timeout(Duration::from_secs(5), tokio::task::spawn_blocking(|| ()));
        other.await.expect("a thread is free").unwrap();
        locked.release();
        for mut peer in peers {
            peer.send(ECHO_REQUEST, 3, &[]).await;
            assert_eq!(peer.next().await, (ECHO_REPLY, 3, Vec::new()));
        }
        assert_eq!(bridge.sent.lock().unwrap().len(), 8);
        controllers.shutdown().await;
    });
}

/// Checks that dumps that wait for the tables occupy a limited number of blocking threads, even if their sessions end
/// and new sessions request dumps. All bridges and the rest of the process share the blocking threads.
#[test]
fn dumps_of_ended_sessions_occupy_few_threads() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).max_blocking_threads(9).enable_all().build().unwrap();
    runtime.block_on(async {
        let (bridge, controllers, at) = listening().await;
        bridge.waits.store(true, Ordering::Relaxed);
        let mut peers = Vec::new();
        // From the 65th peer on, the session that is idle for the longest time ends.
        for _ in 0..90 {
            let mut peer = Peer::connect(at).await;
            peer.dump(2).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
            peers.push(peer);
        }
        let other = tokio::time::timeout(Duration::from_secs(5), tokio::task::spawn_blocking(|| ()));
        let is_free = other.await.is_ok();
        bridge.waits.store(false, Ordering::Relaxed);
        assert!(is_free);
        assert_eq!(peers[89].next().await.0, MULTIPART_REPLY);
        controllers.shutdown().await;
    });
}

/// Checks that a bridge with slow dumps does not use up the dumps that are guaranteed to other bridges, even if the
/// bridge has many listeners.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dumps_of_one_bridge_leave_others_theirs() {
    let mut slow = Vec::new();
    let mut peers = Vec::new();
    // The bridges take all dumps of the process that are not reserved.
    for _ in 0..5 {
        let (bridge, controllers, at) = listening().await;
        bridge.waits.store(true, Ordering::Relaxed);
        for _ in 0..6 {
            let mut peer = Peer::connect(at).await;
            peer.dump(2).await;
            peers.push(peer);
        }
        slow.push((bridge, controllers));
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (_bridge, controllers, at) = listening().await;
    let mut peer = Peer::connect(at).await;
    let begin = Instant::now();
    peer.dump(3).await;
    assert_eq!(peer.next().await.0, MULTIPART_REPLY);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    controllers.shutdown().await;
    for (bridge, controllers) in slow {
        bridge.waits.store(false, Ordering::Relaxed);
        controllers.shutdown().await;
    }
}
