//! Sessions with correct, slow, disconnected, hostile and several controllers. A controller is a socket in
//! these tests.

#![allow(clippy::unwrap_used, reason = "a test")]

mod memory;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use memory::Memory;
use openflow::wire::{self, Put, Version};
use openflow::{Address, Controllers, Target};
use switch::flow::{Action, FlowMod, Instructions, Match, Reason};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A peer after version negotiation.
struct Peer {
    stream: TcpStream,
    version: u8,
}

/// A message: type, transaction ID, body.
type Message = (u8, u32, Vec<u8>);

impl Peer {
    async fn greet(mut stream: TcpStream, version: u8) -> Peer {
        stream.write_all(&[version, 0, 0, 8, 0, 0, 0, 1]).await.unwrap();
        let mut peer = Peer { stream, version };
        assert_eq!(peer.next().await.0, 0, "a greeting");
        peer
    }

    async fn connect(to: SocketAddr, version: u8) -> Peer {
        Peer::greet(TcpStream::connect(to).await.unwrap(), version).await
    }

    fn message(&self, kind: u8, xid: u32, body: &[u8]) -> Vec<u8> {
        let mut out = vec![self.version, kind];
        out.u16(u16::try_from(8 + body.len()).unwrap());
        out.u32(xid);
        out.extend_from_slice(body);
        out
    }

    async fn send(&mut self, kind: u8, xid: u32, body: &[u8]) {
        let message = self.message(kind, xid, body);
        self.stream.write_all(&message).await.unwrap();
    }

    async fn try_next(&mut self) -> std::io::Result<Message> {
        let mut head = [0; 8];
        let reading = async {
            self.stream.read_exact(&mut head).await?;
            let length = u16::from_be_bytes([head[2], head[3]]);
            let mut body = vec![0; usize::from(length) - 8];
            self.stream.read_exact(&mut body).await?;
            Ok((head[1], u32::from_be_bytes([head[4], head[5], head[6], head[7]]), body))
        };
        tokio::time::timeout(Duration::from_secs(20), reading).await.expect("something in 20 s")
    }

    async fn next(&mut self) -> Message {
        self.try_next().await.unwrap()
    }

    /// Returns the next message of a type. Earlier messages are discarded.
    async fn wait_for(&mut self, kind: u8) -> Message {
        loop {
            let message = self.next().await;
            if message.0 == kind {
                return message;
            }
        }
    }

    /// Sends a barrier request, and returns all messages before the reply.
    async fn until_barrier(&mut self) -> Vec<Message> {
        self.send(20, 0xbbbb, &[]).await;
        let mut all = Vec::new();
        loop {
            let message = self.next().await;
            if message.0 == 21 && message.1 == 0xbbbb {
                return all;
            }
            all.push(message);
        }
    }

    /// Requests a role, and returns the reply.
    async fn role(&mut self, role: u32, generation: u64) -> Message {
        let mut body = Vec::new();
        body.u32(role);
        body.u32(0);
        body.u64(generation);
        self.send(24, 7, &body).await;
        loop {
            let message = self.next().await;
            if message.1 == 7 {
                return message;
            }
        }
    }
}

fn error(message: &Message) -> (u16, u16) {
    assert_eq!(message.0, 1, "an error: {message:?}");
    (u16::from_be_bytes([message.2[0], message.2[1]]), u16::from_be_bytes([message.2[2], message.2[3]]))
}

fn flow_mod(version: Version, priority: u16) -> Vec<u8> {
    let actions = Instructions::apply(vec![Action::Output { port: 2, max_len: 0 }]);
    let mut out = Vec::new();
    wire::flow::put_mod(&mut out, version, 5, &FlowMod::add(0, priority, Match::ANY, actions));
    out
}

/// Starts a listening bridge.
async fn listening() -> (Arc<Memory>, Controllers, SocketAddr) {
    listening_with(|_| {}).await
}

/// Starts a listening bridge with changed settings.
async fn listening_with(change: impl FnOnce(&mut Target)) -> (Arc<Memory>, Controllers, SocketAddr) {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let bridge = Memory::new();
    let mut controllers = Controllers::new(bridge.clone());
    let mut target = Target::new(Address::ListenTcp(free));
    change(&mut target);
    controllers.set(vec![target]).await;
    while TcpStream::connect(free).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (bridge, controllers, free)
}

async fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not in 20 s: {what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_are_negotiated() {
    let (_bridge, controllers, at) = listening().await;
    for (theirs, bits, agreed) in [
        (1, None, Some(1)),
        (4, None, Some(4)),
        (6, None, Some(6)),
        (9, None, Some(6)),
        (2, None, Some(2)),
        (3, None, Some(3)),
        (3, Some(0b1110), Some(3)),
        (4, Some(0b1_0110), Some(4)),
        (6, Some(0b111_0000), Some(6)),
        (5, Some(0b11_1100), Some(5)),
        (3, Some(0b1100), Some(3)),
        // Version 7 is not supported, and neither is a bitmap without a common version.
        (7, Some(0b1000_0001), None),
    ] {
        let mut stream = TcpStream::connect(at).await.unwrap();
        let mut hello = vec![theirs, 0, 0, if bits.is_some() { 16 } else { 8 }, 0, 0, 0, 3];
        if let Some(bits) = bits {
            hello.extend([0, 1, 0, 8]);
            hello.u32(bits);
        }
        stream.write_all(&hello).await.unwrap();
        let mut peer = Peer { stream, version: agreed.unwrap_or(theirs) };
        let greeting = peer.next().await;
        assert_eq!(greeting.2, [0, 1, 0, 8, 0, 0, 0, 0b111_1110], "1.0 to 1.5");
        match agreed {
            Some(_) => {
                peer.send(2, 9, b"ping").await;
                assert_eq!(peer.next().await, (3, 9, b"ping".to_vec()));
            }
            None => {
                assert_eq!(error(&peer.next().await), (0, 0));
                assert!(peer.try_next().await.is_err(), "and the session is over");
            }
        }
    }
    controllers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_messages_are_refused_by_type_and_code_and_the_session_goes_on() {
    let (bridge, controllers, at) = listening().await;
    let mut peer = Peer::connect(at, 4).await;
    let long = [7_u8; 100];
    for (kind, body, wanted) in [
        (200_u8, &long[..], (1, 1)),
        (5, &long[..4], (1, 6)),
        (9, &long[..2], (1, 6)),
        (14, &long[..20], (1, 6)),
        (18, &[0, 99, 0, 0, 0, 0, 0, 0][..], (1, 2)),
        (18, &[0, 0, 0, 1, 0, 0, 0, 0], (1, 13)),
        (4, &[0, 0, 1, 2, 0, 0, 0, 0], (1, 3)),
        (4, &[0, 0, 0x23, 0x20, 0, 0, 9, 9], (1, 4)),
        (24, &[0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], (11, 2)),
        (13, &[0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], (1, 8)),
        (13, &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0], (1, 6)),
    ] {
        peer.send(kind, 77, body).await;
        let answer = peer.next().await;
        assert_eq!((answer.1, error(&answer)), (77, wanted), "{kind} {body:?}");
        let request = peer.message(kind, 77, body);
        assert_eq!(answer.2[4..], request, "it carries the whole request");
    }
    // A message of another version.
    peer.stream.write_all(&[1, 5, 0, 8, 0, 0, 0, 3]).await.unwrap();
    assert_eq!(error(&peer.next().await), (1, 0));
    // A message in two parts.
    let whole = flow_mod(Version::V13, 3);
    peer.stream.write_all(&whole[..30]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    peer.stream.write_all(&whole[30..]).await.unwrap();
    assert!(peer.until_barrier().await.is_empty());
    assert_eq!(bridge.lock().flows.len(), 1);
    controllers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_ends_a_session_and_no_other() {
    let (bridge, controllers, at) = listening().await;
    let mut good = Peer::connect(at, 4).await;
    for garbage in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 4096],
        vec![4, 0, 0, 3, 0, 0, 0, 0],
        vec![4, 5, 0, 8, 0, 0, 0, 0],
    ] {
        let mut bad = TcpStream::connect(at).await.unwrap();
        bad.write_all(&garbage).await.unwrap();
        let mut rest = Vec::new();
        // The bridge sends a hello message and closes the connection, with a reset if data is unread.
        let _ =
            tokio::time::timeout(Duration::from_secs(10), bad.read_to_end(&mut rest)).await.expect("an end");
    }
    // A message that is shorter than its header, after the negotiation.
    let mut bad = Peer::connect(at, 4).await;
    bad.stream.write_all(&[4, 2, 0, 4, 0, 0, 0, 0]).await.unwrap();
    assert!(bad.try_next().await.is_err());
    // A peer that disconnects within a message.
    let mut bad = Peer::connect(at, 4).await;
    bad.stream.write_all(&[4, 14, 0, 80, 0, 0]).await.unwrap();
    drop(bad);
    good.stream.write_all(&flow_mod(Version::V13, 3)).await.unwrap();
    assert!(good.until_barrier().await.is_empty());
    assert_eq!(bridge.lock().flows.len(), 1);
    eventually("the others have gone", || controllers.status()[0].sessions == 1).await;
    controllers.shutdown().await;
}

/// Starts a bridge with two controllers, and returns the listeners of the controllers.
async fn controlled(change: impl Fn(&mut Target)) -> (Arc<Memory>, Controllers, Vec<TcpListener>) {
    let bridge = Memory::new();
    let mut controllers = Controllers::new(bridge.clone());
    let mut listeners = Vec::new();
    let mut targets = Vec::new();
    for _ in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut target = Target::new(Address::Tcp(listener.local_addr().unwrap()));
        change(&mut target);
        targets.push(target);
        listeners.push(listener);
    }
    controllers.set(targets).await;
    (bridge, controllers, listeners)
}

async fn accept(listener: &TcpListener, version: u8) -> Peer {
    let accepted = tokio::time::timeout(Duration::from_secs(20), listener.accept()).await;
    Peer::greet(accepted.expect("it connects").unwrap().0, version).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_flaps_is_found_again_and_the_bridge_hears_when_none_is_left() {
    let (bridge, mut controllers, listeners) = controlled(|_| {}).await;
    let one = accept(&listeners[0], 4).await;
    let two = accept(&listeners[1], 6).await;
    eventually("both", || controllers.status().iter().all(|status| status.connected)).await;
    assert_eq!(*bridge.connected.lock().unwrap(), [true]);
    drop(one);
    eventually("one has gone", || controllers.status().iter().any(|status| !status.connected)).await;
    assert_eq!(*bridge.connected.lock().unwrap(), [true], "the other is still there");
    drop(two);
    eventually("none", || *bridge.connected.lock().unwrap() == [true, false]).await;
    // The reason is recorded after the bridge is notified.
    eventually("the reasons", || controllers.status().iter().all(|status| status.last_error.is_some())).await;
    let again = accept(&listeners[0], 1).await;
    eventually("one again", || *bridge.connected.lock().unwrap() == [true, false, true]).await;
    eventually("its version", || {
        controllers.status().iter().any(|status| status.version == Some(Version::V10))
    })
    .await;
    // A removed target does not affect the remaining one.
    let kept = Target::new(Address::Tcp(listeners[0].local_addr().unwrap()));
    controllers.set(vec![kept]).await;
    assert_eq!(controllers.status().len(), 1);
    assert!(controllers.status()[0].connected);
    let mut again = again;
    again.send(2, 4, &[]).await;
    assert_eq!(again.next().await, (3, 4, vec![]));
    controllers.set(Vec::new()).await;
    assert!(again.try_next().await.is_err(), "its session has ended");
    eventually("none again", || *bridge.connected.lock().unwrap() == [true, false, true, false]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_is_asked_about_and_then_ends_the_session() {
    let probe = |target: &mut Target| target.inactivity_probe = Some(Duration::from_millis(150));
    let (_bridge, controllers, listeners) = controlled(probe).await;
    let mut answers = accept(&listeners[0], 4).await;
    let mut silent = accept(&listeners[1], 4).await;
    assert_eq!(silent.next().await.0, 2, "an echo request");
    for _ in 0..4 {
        let (kind, xid, body) = answers.next().await;
        assert_eq!(kind, 2);
        answers.send(3, xid, &body).await;
    }
    assert!(silent.try_next().await.is_err(), "given up");
    answers.send(2, 1, &[]).await;
    answers.wait_for(3).await;
    controllers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_one_master_and_slaves_look_only() {
    let (bridge, controllers, listeners) = controlled(|_| {}).await;
    let mut one = accept(&listeners[0], 5).await;
    let mut two = accept(&listeners[1], 5).await;
    assert_eq!(one.role(2, 10).await.2[..4], [0, 0, 0, 2]);
    assert_eq!(two.role(2, 11).await.2[..4], [0, 0, 0, 2]);
    // OpenFlow 1.4 reports the demotion.
    assert_eq!(one.wait_for(30).await.2[..5], [0, 0, 0, 3, 0]);
    assert_eq!(error(&one.role(2, 10).await), (11, 0), "stale");
    one.stream.write_all(&flow_mod(Version::V14, 1)).await.unwrap();
    assert_eq!(error(&one.wait_for(1).await), (1, 10), "a slave changes nothing");
    two.stream.write_all(&flow_mod(Version::V14, 1)).await.unwrap();
    assert!(two.until_barrier().await.is_empty());
    assert_eq!(bridge.lock().flows.len(), 1);
    // Packets are sent to the master only, and port status messages to both.
    bridge.packet(1, &[0; 60], Reason::Action, 0xffff);
    let desc = bridge.lock().ports[0].clone();
    bridge.tell(&switch::flow::Event::Port(2, desc));
    assert_eq!(two.wait_for(10).await.0, 10);
    let told = loop {
        let message = one.next().await;
        assert_ne!(message.0, 10, "a slave gets no packets");
        if message.0 == 12 {
            break message;
        }
    };
    assert_eq!(told.2[0], 2);
    assert_eq!(one.role(0, 0).await.2[..4], [0, 0, 0, 3], "asking changes nothing");
    controllers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_are_cut_limited_and_lost_without_harm_to_others() {
    let (bridge, controllers, listeners) = controlled(|target| target.rate_limit = Some((1, 5))).await;
    let mut slow = accept(&listeners[0], 4).await;
    let mut other = accept(&listeners[1], 4).await;
    eventually("both", || controllers.status().iter().all(|status| status.connected)).await;
    for _ in 0..50 {
        bridge.packet(1, &[9; 1000], Reason::Action, 100);
    }
    // A burst of five packets, and further packets after whole seconds.
    let packets: Vec<Message> = other.until_barrier().await.into_iter().filter(|it| it.0 == 10).collect();
    eventually("the rest is counted", || controllers.status().iter().all(|status| status.lost >= 43)).await;
    assert!(packets.len() <= 7, "{}", packets.len());
    let first = slow.wait_for(10).await;
    assert_eq!(u16::from_be_bytes([first.2[4], first.2[5]]), 1000, "whole length");
    assert!(first.2.ends_with(&[9; 100]) && !first.2.ends_with(&[9; 101]));
    controllers.shutdown().await;

    // A controller that does not read.
    let (bridge, controllers, listeners) = controlled(|_| {}).await;
    let _deaf = accept(&listeners[0], 4).await;
    let mut other = accept(&listeners[1], 4).await;
    eventually("both", || controllers.status().iter().all(|status| status.connected)).await;
    let frame = vec![1; 60_000];
    for _ in 0..400 {
        bridge.packet(1, &frame, Reason::Action, 0xffff);
        assert_eq!(other.wait_for(10).await.2.len() - 60_000, other_parts());
    }
    controllers.shutdown().await;
}

/// While a change locks the tables of the bridge, sessions start, end and change their interest. The event
/// loop does not wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn sessions_go_on_while_a_change_holds_the_rules() {
    let (bridge, mut controllers, listeners) = controlled(|_| {}).await;
    let old = accept(&listeners[0], 1).await;
    let mut one = accept(&listeners[1], 4).await;
    eventually("both", || controllers.status().iter().all(|status| status.connected)).await;
    eventually("the bridge knows", || bridge.misses_heard.load(Ordering::Relaxed)).await;
    let (held, is_held) = std::sync::mpsc::channel();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let rules = bridge.clone();
    let change = std::thread::spawn(move || {
        let rules = rules.rules.lock().unwrap();
        held.send(()).unwrap();
        let in_time = is_done.recv_timeout(Duration::from_secs(10)).is_ok();
        drop(rules);
        in_time
    });
    is_held.recv().unwrap();
    // The only session that receives table misses ends.
    drop(old);
    eventually("it has gone", || controllers.status().iter().any(|status| !status.connected)).await;
    one.send(2, 5, b"still there").await;
    assert_eq!(one.wait_for(3).await.2[..], *b"still there");
    done.send(()).unwrap();
    assert!(change.join().unwrap(), "the event loop has waited for the change");
    eventually("nobody hears of misses", || !bridge.misses_heard.load(Ordering::Relaxed)).await;
    controllers.set(Vec::new()).await;
    eventually("none is left", || *bridge.connected.lock().unwrap() == [true, false]).await;
}

/// OpenFlow 1.0 has no table-miss flow entry. Packets that match no flow entry are sent to its controllers
/// completely, but not to controllers of later versions. For OpenFlow 1.0, a table-miss flow entry is an
/// ordinary flow entry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn misses_are_told_to_controllers_of_openflow_1_0() {
    let (bridge, controllers, listeners) = controlled(|_| {}).await;
    let mut later = accept(&listeners[1], 4).await;
    eventually("the later", || controllers.status().iter().any(|status| status.connected)).await;
    assert!(!bridge.misses_heard.load(Ordering::Relaxed));
    let mut old = accept(&listeners[0], 1).await;
    eventually("somebody hears of misses", || bridge.misses_heard.load(Ordering::Relaxed)).await;
    for (reason, octets) in [(Reason::Miss, 1000), (Reason::MissRule, 999), (Reason::NoMatch, 998)] {
        bridge.packet(1, &vec![0; octets], reason, 0xffff);
    }
    // Offsets after buffer ID, length and port.
    let reason_10 = |message: &Message| (message.2.len() - 10, message.2[8]);
    for wanted in [(1000, 0), (999, 1), (998, 0)] {
        assert_eq!(reason_10(&old.wait_for(10).await), wanted);
    }
    // The packets of the flow entry and of the action, but not the first packet.
    for octets in [999, 998] {
        let told = later.wait_for(10).await;
        assert_eq!((u16::from_be_bytes([told.2[4], told.2[5]]), told.2[6]), (octets, 0));
    }
    // A controller that disables such packets.
    let body: Vec<u8> =
        [0x2320_u32, 19, 0, 0, 7, 7, 7, 7].iter().flat_map(|word| word.to_be_bytes()).collect();
    old.send(4, 9, &body).await;
    eventually("nobody does", || !bridge.misses_heard.load(Ordering::Relaxed)).await;
    drop(old);
    let _old = accept(&listeners[0], 1).await;
    eventually("another does", || bridge.misses_heard.load(Ordering::Relaxed)).await;
    drop(_old);
    eventually("it has gone", || !bridge.misses_heard.load(Ordering::Relaxed)).await;
    controllers.shutdown().await;
}

/// A session's own changes are abbreviated to the transaction ID. A change is also reported for the port to
/// which the flow entry sent packets before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_changes_are_abbreviated_for_monitors() {
    let (_bridge, controllers, to) = listening().await;
    let mut own = Peer::connect(to, 4).await;
    let mut other = Peer::connect(to, 4).await;
    // The ONF monitor of OpenFlow 1.3: flow entries that output to port 7, with added, removed, modified and
    // actions.
    let monitor = |id: u32, flags: u16| {
        let mut body = Vec::new();
        body.u16(0xffff);
        body.zeros(6);
        body.u32(0x4f4e_4600);
        body.u32(1870);
        body.u32(id);
        body.u16(flags);
        body.zeros(2);
        body.u32(7);
        body.extend([0xff, 0, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0]);
        body
    };
    own.send(18, 1, &monitor(1, 0x1e)).await;
    other.send(18, 1, &monitor(1, 0x1e)).await;
    assert_eq!((own.wait_for(19).await.1, other.wait_for(19).await.1), (1, 1));
    let rule = |port| {
        let output = Instructions::apply(vec![Action::Output { port, max_len: 0 }]);
        let mut change = FlowMod::add(0, 5, Match::ANY, output);
        let mut add = Vec::new();
        wire::flow::put_mod(&mut add, Version::V13, 77, &change);
        change.command = switch::flow::FlowCommand::Modify { strict: false, or_add: false };
        change.cookie = None;
        let mut modify = Vec::new();
        wire::flow::put_mod(&mut modify, Version::V13, 78, &change);
        (add, modify)
    };
    // After the multipart and experimenter headers: length, event and further fields.
    let update = |message: &Message| message.2[16..].to_vec();
    own.stream.write_all(&rule(7).0).await.unwrap();
    assert_eq!(update(&own.wait_for(19).await), [0, 8, 0, 3, 0, 0, 0, 77]);
    assert_eq!(update(&other.wait_for(19).await)[2..4], [0, 0], "in full: added");
    // A change to another port.
    own.stream.write_all(&rule(8).1).await.unwrap();
    assert_eq!(update(&own.wait_for(19).await), [0, 8, 0, 3, 0, 0, 0, 78]);
    assert_eq!(update(&other.wait_for(19).await)[2..4], [0, 2], "in full: modified");
    // A monitor that requests full updates for the session's own changes.
    own.send(18, 2, &monitor(2, 0x3e)).await;
    assert_eq!(own.wait_for(19).await.1, 2);
    own.stream.write_all(&rule(7).1).await.unwrap();
    assert_eq!(update(&own.wait_for(19).await)[2..4], [0, 2]);
    controllers.shutdown().await;
}

/// Returns an OpenFlow 1.4 request for monitors of all flow entries with instructions: ID, event mask and
/// command each.
fn monitors(wanted: impl IntoIterator<Item = (u32, u16, u8)>) -> Vec<u8> {
    let mut body = vec![0, 16, 0, 0, 0, 0, 0, 0];
    for (id, events, command) in wanted {
        body.u32(id);
        body.extend([0xff; 8]);
        body.u16(0x10 | events);
        body.extend([0xff, command, 0, 1, 0, 4, 0, 0, 0, 0]);
    }
    body
}

/// A flow entry that is too long for a message of another version is refused. An `enqueue` action of OpenFlow
/// 1.0 is three actions in later versions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_does_not_fit_into_messages_of_other_versions_is_refused() {
    let (bridge, controllers, at) = listening().await;
    let mut old = Peer::connect(at, 1).await;
    let rule = |count| {
        let enqueue = Action::Enqueue { port: 2, queue: 7 };
        let change = FlowMod::add(0, 5, Match::ANY, Instructions::apply(vec![enqueue; count]));
        let mut out = Vec::new();
        wire::flow::put_mod(&mut out, Version::V10, 9, &change);
        out
    };
    old.stream.write_all(&rule(3000)).await.unwrap();
    assert_eq!(error(&old.next().await), (2, 7), "OFPBAC_TOO_MANY");
    old.stream.write_all(&rule(1500)).await.unwrap();
    eventually("it is there", || bridge.lock().flows.len() == 1).await;
    // A flow entry from an earlier release is reported without its instructions, and later messages can be
    // read.
    let mut monitor = Peer::connect(at, 5).await;
    monitor.send(18, 1, &monitors([(1, 2, 0)])).await;
    assert_eq!(monitor.wait_for(19).await.1, 1);
    let mut flow = bridge.lock().flows[0].clone();
    flow.instructions = Instructions::apply(vec![Action::Enqueue { port: 2, queue: 7 }; 3000]);
    bridge.tell(&switch::flow::Event::Added(flow, None));
    let told = monitor.next().await;
    assert_eq!((told.0, told.2.len()), (19, 40), "the head, and an update with an empty match");
    assert!(monitor.until_barrier().await.is_empty());
    controllers.shutdown().await;
}

/// If a request names a monitor several times, the existing flow entries are reported once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_monitor_that_is_named_again_and_again_is_told_once() {
    let (_bridge, controllers, at) = listening().await;
    let mut peer = Peer::connect(at, 5).await;
    peer.stream.write_all(&flow_mod(Version::V14, 3)).await.unwrap();
    let again = std::iter::repeat_n((1, 3, 1), 2000);
    peer.send(18, 4, &monitors([(1, 3, 0), (2, 3, 0)].into_iter().chain(again).chain([(2, 3, 2)]))).await;
    let told = peer.wait_for(19).await;
    assert_eq!((told.1, told.2[3]), (4, 0));
    let length = usize::from(u16::from_be_bytes([told.2[8], told.2[9]]));
    assert_eq!(told.2.len(), 8 + length, "one update");
    assert!(peer.until_barrier().await.is_empty());
    controllers.shutdown().await;
}

/// Slow changes of any number of sessions do not block the threads of other sessions. The changes are made in
/// sequence, and other requests to the bridge are answered after them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_take_long_hold_up_no_other_session() {
    let (bridge, controllers, at) = listening().await;
    bridge.stalls.store(true, Ordering::Relaxed);
    let mut slow = Vec::new();
    for priority in 1..=6 {
        let mut peer = Peer::connect(at, 4).await;
        peer.stream.write_all(&flow_mod(Version::V13, priority)).await.unwrap();
        slow.push(peer);
    }
    eventually("one is under way", || bridge.stalled.load(Ordering::Relaxed) == 1).await;
    let mut asks = Peer::connect(at, 4).await;
    asks.send(5, 8, &[]).await;
    let mut other = Peer::connect(at, 4).await;
    for xid in 0..50 {
        other.send(2, xid, &[]).await;
        assert_eq!(other.wait_for(3).await.1, xid);
        assert_eq!(bridge.stalled.load(Ordering::Relaxed), 1);
    }
    bridge.stalls.store(false, Ordering::Relaxed);
    assert_eq!(asks.wait_for(6).await.1, 8);
    for peer in &mut slow {
        assert!(peer.until_barrier().await.is_empty());
    }
    assert_eq!(bridge.lock().flows.len(), 6);
    controllers.shutdown().await;
}

/// A monitor that is too far behind does not miss changes silently: its session ends. Changes of flow entries
/// are not sent to sessions without monitors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_monitor_that_is_too_far_behind_ends() {
    const CHANGES: usize = 1000;
    let (bridge, controllers, at) = listening().await;
    let mut slow = Peer::connect(at, 5).await;
    let mut other = Peer::connect(at, 5).await;
    // A client receives port status messages after setting `miss_send_len`.
    other.send(9, 1, &[0, 0, 0, 100]).await;
    assert!(other.until_barrier().await.is_empty());
    slow.send(18, 1, &monitors([(1, 2, 0)])).await;
    assert_eq!(slow.wait_for(19).await.1, 1);
    let note = Instructions::apply(vec![Action::Note(vec![0; 60_000])]);
    let changes = (0..CHANGES).map(|number| {
        let matching = Match::ANY.with(switch::flow::Field::Reg0, number as u128);
        switch::flow::Mod::Flow(Box::new(FlowMod::add(0, 1, matching, note.clone())))
    });
    bridge.fresh.store(true, Ordering::Relaxed);
    let origin = switch::flow::Origin { session: 99, xid: 1 };
    openflow::Datapath::modify_for(&*bridge, changes.collect(), origin).unwrap();
    let desc = bridge.lock().ports[0].clone();
    bridge.tell(&switch::flow::Event::Port(2, desc));
    let told = other.next().await;
    assert_eq!(told.0, 12, "what comes behind all of them");
    let mut updates = 0;
    while slow.try_next().await.is_ok() {
        updates += 1;
    }
    assert!((1..CHANGES).contains(&updates), "{updates}");
    eventually("it says why", || {
        controllers.status()[0].last_error.as_ref().is_some_and(|why| why.contains("monitor anew"))
    })
    .await;
    controllers.shutdown().await;
}

/// OpenFlow 1.3 reports a new master by the ONF message, if the controller requested it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openflow_1_3_tells_of_another_master_when_asked() {
    let (_bridge, controllers, listeners) = controlled(|_| {}).await;
    let mut one = accept(&listeners[0], 4).await;
    let mut two = accept(&listeners[1], 4).await;
    // NXT_SET_ASYNC_CONFIG2: all role changes, as slave.
    let body: Vec<u8> = [0x2320_u32, 27, 0x0006_0008, 7].iter().flat_map(|word| word.to_be_bytes()).collect();
    one.send(4, 9, &body).await;
    assert_eq!(one.role(2, 10).await.2[..4], [0, 0, 0, 2]);
    assert_eq!(two.role(2, 11).await.2[..4], [0, 0, 0, 2]);
    let told = one.wait_for(4).await.2;
    assert_eq!(told[..8], [0x4f, 0x4e, 0x46, 0, 0, 0, 7, 0x77]);
    assert_eq!(told[8..], [0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11]);
    controllers.shutdown().await;
}

/// A listener that does not read misses complete messages, and the controller receives all answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_is_slow_delays_no_controller() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut controllers = Controllers::new(Memory::new());
    let listens = Target { snoops: true, ..Target::new(Address::ListenTcp(free)) };
    controllers.set(vec![Target::new(Address::Tcp(listener.local_addr().unwrap())), listens]).await;
    let mut controller = accept(&listener, 4).await;
    let mut heard = loop {
        match TcpStream::connect(free).await {
            Ok(stream) => break Peer::greet(stream, 4).await,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    eventually("it listens", || controllers.status().iter().filter(|own| own.sessions == 1).count() == 2)
        .await;
    // Requests of the listener are ignored.
    heard.send(20, 9, &[]).await;
    let body = vec![7; 60_000];
    for xid in 0..600 {
        controller.send(2, xid, &body).await;
        assert_eq!(controller.wait_for(3).await, (3, xid, body.clone()));
    }
    controller.send(2, 600, &[]).await;
    assert_eq!(controller.wait_for(3).await.1, 600);
    let (mut last, mut seen) = (None, 0);
    loop {
        let (kind, xid, octets) = heard.next().await;
        assert!(matches!(kind, 2 | 3) && xid <= 600, "{kind} {xid}");
        assert_eq!(octets.len(), if xid == 600 { 0 } else { body.len() });
        // Each request precedes its answer, in order.
        assert!(last < Some((xid, kind)), "{last:?}, then {kind} {xid}");
        (last, seen) = (Some((xid, kind)), seen + 1);
        if (kind, xid) == (3, 600) {
            break;
        }
    }
    assert!(seen < 1_200, "{seen}");
    controllers.shutdown().await;
}

/// Returns the length of an OpenFlow 1.3 packet-in without header and frame: the fixed part, a match with
/// port and register, and padding.
fn other_parts() -> usize {
    16 + 24 + 2
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asynchronous_messages_are_as_configured() {
    let (bridge, controllers, listeners) = controlled(|_| {}).await;
    let mut peer = accept(&listeners[0], 4).await;
    peer.send(26, 1, &[]).await;
    let mut standard = Vec::new();
    for mask in [0b1011_u32, 0, 7, 7, 15, 0] {
        standard.u32(mask);
    }
    assert_eq!(peer.wait_for(27).await.2, standard);
    let mut none = vec![0; 24];
    peer.send(28, 2, &none).await;
    assert!(peer.until_barrier().await.is_empty());
    bridge.packet(1, &[0; 60], Reason::Action, 0xffff);
    assert!(peer.until_barrier().await.iter().all(|message| message.0 != 10));
    none[3] = 2;
    peer.send(28, 2, &none).await;
    assert!(peer.until_barrier().await.is_empty());
    bridge.packet(1, &[0; 60], Reason::InvalidTtl, 0xffff);
    bridge.packet(1, &[0; 60], Reason::Action, 0xffff);
    assert_eq!(peer.wait_for(10).await.2[6], 1, "by an action");
    controllers.shutdown().await;
}

/// Returns an OpenFlow 1.3 packet-out to port 2 with a frame of this length.
fn packet_out(frame: usize) -> Vec<u8> {
    let mut body = vec![0xff; 4];
    body.u32(1);
    body.u16(16);
    body.extend([0; 6]);
    body.extend([0, 0, 0, 16, 0, 0, 0, 2, 0xff, 0xff, 0, 0, 0, 0, 0, 0]);
    body.resize(body.len() + frame, 7);
    body
}

/// While the slow path processes no packet-outs, a flooding session is not read further, and other sessions
/// continue. The limits apply to messages and octets. All packets arrive in order at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_floods_packet_outs_is_not_read_further() {
    for (frame, most) in [(60, 256), (60_000, 8)] {
        let (bridge, controllers, at) = listening().await;
        bridge.holds.store(true, Ordering::Relaxed);
        let mut flooder = Peer::connect(at, 4).await;
        let mut other = Peer::connect(at, 4).await;
        let body = packet_out(frame);
        let total = 4 * most;
        let sent = tokio::spawn(async move {
            for xid in 0..total {
                flooder.send(13, xid, &body).await;
            }
            flooder.send(20, 0xbbbb, &[]).await;
            flooder.wait_for(21).await
        });
        let queued = || u32::try_from(bridge.held.lock().unwrap().len()).unwrap();
        eventually("the budget is used up", || queued() == most).await;
        for xid in 0..20 {
            other.send(2, xid, &[]).await;
            assert_eq!(other.wait_for(3).await.1, xid);
            assert_eq!(queued(), most, "nothing more of the flood is read");
        }
        assert!(!sent.is_finished());
        // The slow path processes the packets one by one.
        for _ in 0..total {
            eventually("one more is read", || queued() > 0).await;
            assert!(queued() <= most);
            let one = bridge.held.lock().unwrap().pop();
            drop(one);
        }
        assert_eq!(sent.await.unwrap().1, 0xbbbb, "the barrier comes behind them");
        assert_eq!(bridge.sent.lock().unwrap().len(), usize::try_from(total).unwrap());
        controllers.shutdown().await;
    }
}

/// Packet-outs of an ended session wait for a short time only. They are then dropped and counted, and do not
/// accumulate when a client reconnects repeatedly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packet_outs_of_a_session_that_ended_are_dropped() {
    let (bridge, controllers, at) = listening().await;
    bridge.holds.store(true, Ordering::Relaxed);
    for round in 1..=2 {
        let mut flooder = Peer::connect(at, 4).await;
        for xid in 0..100 {
            flooder.send(13, xid, &packet_out(60)).await;
        }
        eventually("they wait", || bridge.held.lock().unwrap().len() == 100).await;
        drop(flooder);
        eventually("they are dropped", || bridge.held.lock().unwrap().is_empty()).await;
        eventually("and counted", || controllers.status()[0].lost == 100 * round).await;
    }
    // A packet that the slow path accepts immediately is sent after its client has disconnected.
    bridge.holds.store(false, Ordering::Relaxed);
    let mut short = Peer::connect(at, 4).await;
    let before = bridge.sent.lock().unwrap().len();
    short.send(13, 7, &packet_out(60)).await;
    drop(short);
    eventually("it is sent", || bridge.sent.lock().unwrap().len() == before + 1).await;
    controllers.shutdown().await;
}

/// The packet-outs of all sessions of a bridge have a common limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packet_outs_of_many_sessions_are_bounded_together() {
    let (bridge, controllers, at) = listening().await;
    bridge.holds.store(true, Ordering::Relaxed);
    let body = packet_out(60_000);
    let mut flooders = Vec::new();
    for _ in 0..40 {
        let mut flooder = Peer::connect(at, 4).await;
        let body = body.clone();
        flooders.push(tokio::spawn(async move {
            for xid in 0..20 {
                flooder.send(13, xid, &body).await;
            }
            flooder
        }));
    }
    // Eight packets for each session would be 320, and 16 MiB hold fewer.
    let held = || bridge.held.lock().unwrap().len();
    eventually("the budget is used up", || held() >= 270).await;
    let mut other = Peer::connect(at, 4).await;
    for xid in 0..50 {
        other.send(2, xid, &[]).await;
        assert_eq!(other.wait_for(3).await.1, xid);
        assert!(held() < 280, "{}", held());
    }
    drop(flooders);
    bridge.holds.store(false, Ordering::Relaxed);
    bridge.held.lock().unwrap().clear();
    controllers.shutdown().await;
}

/// Peers of listeners are probed like controllers that the bridge connects to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_client_of_a_listener_is_asked_and_then_cut() {
    let probe = |target: &mut Target| target.inactivity_probe = Some(Duration::from_millis(100));
    let (_bridge, controllers, at) = listening_with(probe).await;
    let mut silent = Peer::connect(at, 4).await;
    assert_eq!(silent.next().await.0, 2, "an echo request");
    assert!(silent.try_next().await.is_err(), "given up");
    controllers.shutdown().await;
}

/// Idle clients that fill a listener do not keep others out. The session that was idle for the longest time
/// is ended, and an active session is kept.
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

/// A listener without TLS on an address that other machines can reach requires permission.
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

/// Users other than root and the daemon's own are refused on a loopback address unless they are named, and
/// the refusal is reported.
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

/// Returns a bundle control message (OpenFlow 1.4) with ID and type.
fn bundle_control(id: u32, what: u16) -> Vec<u8> {
    let mut body = Vec::new();
    body.u32(id);
    body.u16(what);
    body.u16(0);
    body
}

/// Returns a change of 60,000 octets for a bundle.
fn bundle_add(id: u32) -> Vec<u8> {
    let mut body = Vec::new();
    body.u32(id);
    body.u32(0);
    let note = Instructions::apply(vec![Action::Note(vec![0; 60_000])]);
    wire::flow::put_mod(&mut body, Version::V14, 5, &FlowMod::add(0, 1, Match::ANY, note));
    body
}

/// Lock for tests that check the process-wide memory of bundles.
static LARGE_BUNDLES: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Sends changes for bundles of a session until the limit is reached, and returns their number.
async fn fill_bundles(peer: &mut Peer) -> u32 {
    let mut sent = 0;
    let full = loop {
        // A bundle that exceeds the limit fails and releases its memory.
        for _ in 0..50 {
            peer.send(34, 5, &bundle_add(sent % 16)).await;
            sent += 1;
        }
        peer.send(20, 0xbbbb, &[]).await;
        let first = peer.next().await;
        if first.0 == 1 {
            peer.wait_for(21).await;
            break error(&first);
        }
        assert_eq!(first.0, 21);
    };
    assert_eq!(full, (17, 12), "OFPBFC_MSG_TOO_MANY");
    // The limit of a session is 64 MiB.
    assert!(sent < 1_300, "{sent} messages of 60,000 octets");
    sent
}

/// Bundles are limited in number and in octets, for a session, for a bridge and for all sessions. A bridge at
/// its limit leaves half of the process-wide memory to other bridges.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bundles_are_bounded_in_octets() {
    let _alone = LARGE_BUNDLES.lock().await;
    // Bundles do not time out while others are filled.
    let patient = |target: &mut Target| target.bundle_timeout = Duration::from_secs(300);
    let (_bridge, controllers, at) = listening_with(patient).await;
    let mut peer = Peer::connect(at, 5).await;
    for id in 0..16 {
        peer.send(33, 1, &bundle_control(id, 0)).await;
        assert_eq!(peer.next().await.2, bundle_control(id, 1));
    }
    peer.send(33, 1, &bundle_control(16, 0)).await;
    assert_eq!(error(&peer.next().await), (17, 5), "OFPBFC_OUT_OF_BUNDLES");
    // The process-wide limit is 256 MiB, of which the first bridge can use half.
    let mut held = Vec::new();
    let mut messages = 0;
    loop {
        let own = fill_bundles(&mut peer).await;
        messages += own;
        held.push(peer);
        if own < 100 {
            break;
        }
        peer = Peer::connect(at, 5).await;
    }
    assert!((2_100..2_700).contains(&messages), "{messages} messages of 60,000 octets");
    // A session of another bridge can use the full limit of a session.
    let (_other, others, at_other) = listening_with(patient).await;
    let mut other = Peer::connect(at_other, 5).await;
    let own = fill_bundles(&mut other).await;
    assert!(own > 1_000, "{own} messages of 60,000 octets");
    // A discarded bundle releases memory for others.
    let mut last = held.pop().unwrap();
    drop(held);
    let more = async {
        loop {
            last.send(33, 1, &bundle_control(7, 0)).await;
            let opened = last.next().await;
            last.send(34, 5, &bundle_add(7)).await;
            last.send(33, 1, &bundle_control(7, 6)).await;
            if opened.0 != 1 && last.next().await.0 != 1 {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), more).await.expect("room");
    // Ended sessions release memory for new sessions.
    drop(last);
    let again = async { while fill_bundles(&mut Peer::connect(at, 5).await).await < 1_000 {} };
    tokio::time::timeout(Duration::from_secs(60), again).await.expect("room");
    controllers.shutdown().await;
    others.shutdown().await;
}

/// A failed bundle uses no memory, so that others can use it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_bundle_gives_its_memory_back() {
    let _alone = LARGE_BUNDLES.lock().await;
    let (_bridge, controllers, at) = listening().await;
    let mut peer = Peer::connect(at, 5).await;
    peer.send(33, 1, &bundle_control(1, 0)).await;
    assert_eq!(peer.next().await.2, bundle_control(1, 1));
    // Three times the limit of a session in total. Each bundle fails by a message with other flags.
    for id in 1..=4 {
        for _ in 0..800 {
            peer.send(34, 5, &bundle_add(id)).await;
        }
        let mut other = bundle_add(id);
        other[7] = 1;
        peer.send(34, 5, &other).await;
        assert_eq!(error(&peer.next().await), (17, 7), "OFPBFC_BAD_FLAGS of bundle {id}");
        // Further changes for a failed bundle have no effect.
        peer.send(34, 5, &bundle_add(id)).await;
    }
    peer.send(33, 9, &bundle_control(1, 4)).await;
    assert_eq!(error(&peer.next().await), (17, 13), "OFPBFC_MSG_FAILED");
    controllers.shutdown().await;
}

/// A bundle without messages times out, regardless of other requests of its session. Added changes extend the
/// time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bundle_that_is_left_alone_times_out() {
    let short = |target: &mut Target| target.bundle_timeout = Duration::from_millis(500);
    let (_bridge, controllers, at) = listening_with(short).await;
    let mut peer = Peer::connect(at, 5).await;
    for id in [1, 2] {
        peer.send(33, 70 + id, &bundle_control(id, 0)).await;
        peer.wait_for(33).await;
    }
    let timed_out = loop {
        peer.send(34, 5, &bundle_add(2)).await;
        peer.send(20, 6, &[]).await;
        let next = peer.next().await;
        if next.0 == 1 {
            break next;
        }
    };
    assert_eq!((timed_out.1, error(&timed_out)), (71, (17, 14)), "OFPBFC_TIMEOUT");
    peer.wait_for(21).await;
    peer.send(33, 8, &bundle_control(1, 4)).await;
    assert_eq!(error(&peer.wait_for(1).await), (17, 2), "it is gone");
    peer.send(33, 9, &bundle_control(2, 4)).await;
    assert_eq!(peer.wait_for(33).await.2, bundle_control(2, 5));
    controllers.shutdown().await;
}

/// A complete answer has a deadline. A peer that reads too slowly is disconnected, and a peer that reads is
/// not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_of_a_dump_is_cut_at_the_deadline() {
    let short = |target: &mut Target| target.patience = Duration::from_millis(500);
    let (bridge, controllers, at) = listening_with(short).await;
    bridge.fresh.store(true, Ordering::Relaxed);
    let changes = (0..15_000_u32).map(|number| {
        let matching = Match::ANY.with(switch::flow::Field::Reg0, u128::from(number));
        let note = Instructions::apply(vec![Action::Note(vec![0; 2_000])]);
        switch::flow::Mod::Flow(Box::new(FlowMod::add(0, 1, matching, note)))
    });
    openflow::Datapath::modify(&*bridge, changes.collect()).unwrap();
    // OFPMP_FLOW: all tables, any port, any group, no cookie, every match.
    let mut all = vec![0, 1, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0];
    all.extend([0xff; 8]);
    all.extend([0; 20]);
    all.extend([0, 1, 0, 4, 0, 0, 0, 0]);
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let mut slow = Peer::greet(socket.connect(at).await.unwrap(), 4).await;
    slow.send(18, 1, &all).await;
    let begin = std::time::Instant::now();
    let trickle = tokio::spawn(async move {
        // Reads 10 kB/s until the end of the connection.
        let mut some = [0; 500];
        while slow.stream.write_all(&[4, 3, 0, 8, 0, 0, 0, 0]).await.is_ok() {
            if slow.stream.read_exact(&mut some).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let mut fast = Peer::connect(at, 4).await;
    fast.send(18, 2, &all).await;
    let mut octets = 0;
    loop {
        let part = fast.wait_for(19).await;
        octets += part.2.len();
        if part.2[3] & 1 == 0 {
            break;
        }
    }
    assert!(octets > 15_000 * 2_000, "{octets}");
    eventually("the slow one is cut", || {
        controllers.status()[0].last_error.as_ref().is_some_and(|why| why.contains("too slowly"))
    })
    .await;
    eprintln!("the slow reader was cut after {:?}", begin.elapsed());
    trickle.abort();
    controllers.shutdown().await;
}

/// Subscribes to requests that change groups (bit 0) and meters (bit 1), as master or equal.
async fn ask_for_requests(peer: &mut Peer, mask: u32) {
    // A client of a listener receives asynchronous messages after setting `miss_send_len`.
    peer.send(9, 1, &[0, 0, 0, 64]).await;
    let mut property = Vec::new();
    property.u16(11);
    property.u16(8);
    property.u32(mask);
    if peer.version >= 5 {
        peer.send(28, 2, &property).await;
    } else {
        // NXT_SET_ASYNC_CONFIG2.
        let mut body = vec![0, 0, 0x23, 0x20, 0, 0, 0, 27];
        body.extend(property);
        peer.send(4, 2, &body).await;
    }
}

/// Decodes the request in a forwarding message: type, transaction ID and body. In OpenFlow 1.0, the body
/// follows the experimenter header.
fn forwarded(version: u8, message: &Message) -> Message {
    let (kind, experimenter): (u8, &[u8]) = match version {
        1..=3 => (4, &[0, 0, 0x23, 0x20, 0, 0, 0, 132]),
        4 => (4, &[0x4f, 0x4e, 0x46, 0, 0, 0, 0x09, 0x2e]),
        _ => (32, &[]),
    };
    assert_eq!((message.0, message.1), (kind, 0), "{message:?}");
    let inner = message.2.strip_prefix(experimenter).unwrap();
    assert_eq!(inner[0], version);
    assert_eq!(usize::from(u16::from_be_bytes([inner[2], inner[3]])), inner.len());
    let xid = u32::from_be_bytes([inner[4], inner[5], inner[6], inner[7]]);
    if (version, inner[1]) == (1, 4) {
        assert_eq!(inner[8..16], [0, 0, 0x23, 0x20, 0, 0, 0, 31], "NXT_GROUP_MOD");
        return (15, xid, inner[16..].to_vec());
    }
    (inner[1], xid, inner[8..].to_vec())
}

/// Group and meter requests are forwarded in each version to sessions that subscribed to them, except to the
/// session that made them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_change_groups_and_meters_are_forwarded() {
    use switch::flow::{Bucket, Group, GroupKind, SelectMethod};
    for version in 1..=6_u8 {
        let (_bridge, controllers, at) = listening().await;
        let number = Version::from_wire(version).unwrap();
        let mut hears = Peer::connect(at, version).await;
        ask_for_requests(&mut hears, 3).await;
        hears.send(2, 9, &[]).await;
        assert_eq!(hears.wait_for(3).await.1, 9);
        // A session that receives packets, and did not subscribe to requests.
        let mut other = Peer::connect(at, 4).await;
        other.send(9, 1, &[0, 0, 0, 64]).await;
        let mut asks = Peer::connect(at, 6).await;
        ask_for_requests(&mut asks, 3).await;
        let bucket = |id| {
            let actions = vec![Action::Output { port: 2, max_len: 0 }];
            Bucket { id, weight: 0, watch_port: None, watch_group: None, actions }
        };
        let group = |buckets: u32| {
            let buckets = (0..buckets).map(bucket).collect();
            Group { id: 7, kind: GroupKind::All, method: SelectMethod::Default, buckets }
        };
        let body = |command: u16, version: Version, buckets: u32| {
            let mut out = Vec::new();
            wire::group::put_mod(&mut out, version, &group(buckets));
            out[..2].copy_from_slice(&command.to_be_bytes());
            out
        };
        // Nicira's ADD_OR_MOD is forwarded as the command with its actual effect.
        asks.send(15, 71, &body(0x8000, Version::V15, 1)).await;
        assert_eq!(forwarded(version, &hears.next().await), (15, 71, body(0, number, 1)), "{number}");
        asks.send(15, 72, &body(0x8000, Version::V15, 2)).await;
        assert_eq!(forwarded(version, &hears.next().await), (15, 72, body(1, number, 2)), "{number}");
        // An inserted bucket, or the complete group for versions without bucket commands.
        let mut insert = body(3, Version::V15, 0);
        let last = vec![0, 3, 0, 0, 0, 0, 0, 7, 0, 8, 0, 0, 0xff, 0xff, 0xff, 0xfe, 0, 8, 0, 0, 0, 0, 0, 9];
        insert.clear();
        insert.extend(&last);
        asks.send(15, 73, &insert).await;
        let (kind, xid, inserted) = forwarded(version, &hears.next().await);
        assert_eq!((kind, xid), (15, 73));
        if matches!(version, 1 | 6) {
            assert_eq!(inserted, last);
        } else {
            assert_eq!(inserted[..8], body(1, number, 2)[..8]);
            assert_eq!(inserted.len(), body(1, number, 2).len() + 16, "three buckets");
        }
        // Refused requests are not forwarded.
        asks.send(15, 74, &body(0, Version::V15, 1)).await;
        assert_eq!(
            error(&asks.next().await),
            (6, 0),
            "OFPGMFC_GROUP_EXISTS, and nothing of its own requests"
        );
        let meter = [0, 0, 0, 1, 0, 0, 0, 5, 0, 1, 0, 16, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0];
        asks.send(29, 75, &meter).await;
        if version >= 4 {
            assert_eq!(forwarded(version, &hears.next().await), (29, 75, meter.to_vec()));
        }
        let mut delete = body(2, Version::V15, 0);
        asks.send(15, 76, &delete).await;
        delete = body(2, number, 0);
        assert_eq!(forwarded(version, &hears.next().await), (15, 76, delete));
        assert!(asks.until_barrier().await.is_empty() && other.until_barrier().await.is_empty());
        // From here on, only meter requests, which versions before 1.3 do not have.
        ask_for_requests(&mut hears, 2).await;
        hears.send(2, 10, &[]).await;
        assert_eq!(hears.next().await.1, 10);
        asks.send(15, 77, &body(0, Version::V15, 1)).await;
        assert!(asks.until_barrier().await.is_empty());
        hears.send(2, 11, &[]).await;
        assert_eq!(hears.next().await.1, 11);
        controllers.shutdown().await;
    }
}

/// The number of packets in a bundle is limited to the number that a session may have queued, and committing
/// waits for queued packets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_of_a_bundle_are_bounded_as_others_are() {
    let (bridge, controllers, at) = listening().await;
    let mut peer = Peer::connect(at, 5).await;
    let packet = |id: u32, buffer: u32| {
        let mut body = Vec::new();
        body.u32(id);
        body.u32(0);
        let start = wire::begin(&mut body, Version::V14, 13, 5);
        body.u32(buffer);
        body.u32(1);
        body.u16(16);
        body.zeros(6);
        body.extend([0, 0, 0, 16, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
        body.zeros(60);
        wire::finish(&mut body, start);
        body
    };
    for _ in 0..256 {
        peer.send(34, 5, &packet(1, u32::MAX)).await;
    }
    assert!(peer.until_barrier().await.is_empty());
    peer.send(34, 5, &packet(1, u32::MAX)).await;
    assert_eq!(error(&peer.next().await), (17, 12), "OFPBFC_MSG_TOO_MANY");
    peer.send(33, 6, &bundle_control(1, 4)).await;
    assert_eq!(error(&peer.next().await), (17, 13), "a bundle with such a message does not come about");
    peer.send(34, 5, &packet(2, 9)).await;
    assert_eq!(error(&peer.next().await), (1, 8), "OFPBRC_BUFFER_UNKNOWN");
    assert!(bridge.sent.lock().unwrap().is_empty());
    // The bridge keeps the reservation of the first bundle, so that the second one waits.
    bridge.holds.store(true, Ordering::Relaxed);
    for id in [3, 4] {
        peer.send(34, 5, &packet(id, u32::MAX)).await;
        peer.send(33, 7, &bundle_control(id, 4)).await;
    }
    assert_eq!(peer.wait_for(33).await.2, bundle_control(3, 5));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(bridge.sent.lock().unwrap().len(), 1);
    bridge.holds.store(false, Ordering::Relaxed);
    bridge.held.lock().unwrap().clear();
    assert_eq!(peer.wait_for(33).await.2, bundle_control(4, 5));
    assert_eq!(bridge.sent.lock().unwrap().len(), 2);
    controllers.shutdown().await;
}

/// A request for table features with a bad table number changes no table, also if it begins with good ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn table_features_are_set_as_a_whole_or_not_at_all() {
    let (bridge, controllers, at) = listening().await;
    let mut peer = Peer::connect(at, 4).await;
    let features = |tables: &[(u8, &str)]| {
        let mut body = vec![0, 12, 0, 0, 0, 0, 0, 0];
        for (table, name) in tables {
            body.u16(64);
            body.extend_from_slice(&[*table, 0, 0, 0, 0, 0]);
            let mut padded = [0; 32];
            padded[..name.len()].copy_from_slice(name.as_bytes());
            body.extend_from_slice(&padded);
            body.extend_from_slice(&[0; 24]);
        }
        body
    };
    peer.send(18, 1, &features(&[(3, "three"), (254, "none")])).await;
    // OFPET_TABLE_FEATURES_FAILED, OFPTFFC_BAD_TABLE
    assert_eq!(error(&peer.wait_for(1).await), (13, 0));
    assert!(bridge.lock().names.is_empty());
    peer.send(18, 2, &features(&[(3, "three"), (253, "last")])).await;
    peer.wait_for(19).await;
    assert_eq!(bridge.lock().names.len(), 2);
    controllers.shutdown().await;
}
