//! Tests of sessions with correct, slow, disconnected and hostile controllers, and with several controllers. In these
//! tests, a controller is a socket.

#![allow(clippy::unwrap_used, reason = "a test")]

mod bundles;
mod changes;
mod lengths;
mod listeners;
#[path = "../memory/mod.rs"]
mod memory;
mod monitoring;
mod negotiation;
mod packet_outs;
mod roles;

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

/// A message: message type, transaction ID and body.
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

    /// Requests a controller role, and returns the reply.
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
    wire::flow::put_mod(&mut out, version, 5, &FlowMod::add(0, priority, Match::ANY, actions)).unwrap();
    out
}

/// Starts a bridge that listens for OpenFlow clients on a TCP port.
async fn listening() -> (Arc<Memory>, Controllers, SocketAddr) {
    listening_with(|_| {}).await
}

/// Starts a bridge that listens for OpenFlow clients on a TCP port. `change` modifies the settings of the listener.
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

/// Starts a bridge that connects to two controllers. Returns the TCP listeners of the controllers. `change` modifies
/// the settings of both connections.
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

/// Returns an OpenFlow 1.4 multipart request that adds, modifies or deletes flow monitors. Each monitor is given as ID,
/// event mask and command. The monitors match all flow entries and report instructions.
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

/// Returns the length of an OpenFlow 1.3 packet-in without the message header and the packet: the fixed part, a match
/// with the input port and one register, and padding.
fn other_parts() -> usize {
    16 + 24 + 2
}

/// Returns the body of an OpenFlow 1.3 packet-out that sends a frame of this length to port 2.
fn packet_out(frame: usize) -> Vec<u8> {
    let mut body = vec![0xff; 4];
    body.u32(1);
    body.u16(16);
    body.extend([0; 6]);
    body.extend([0, 0, 0, 16, 0, 0, 0, 2, 0xff, 0xff, 0, 0, 0, 0, 0, 0]);
    body.resize(body.len() + frame, 7);
    body
}

/// Returns the body of an OpenFlow 1.4 bundle control message for the bundle `id`. `what` is the message type.
fn bundle_control(id: u32, what: u16) -> Vec<u8> {
    let mut body = Vec::new();
    body.u32(id);
    body.u16(what);
    body.u16(0);
    body
}

/// Returns the body of a message that adds a change of 60,000 octets to the bundle `id`.
fn bundle_add(id: u32) -> Vec<u8> {
    let mut body = Vec::new();
    body.u32(id);
    body.u32(0);
    let note = Instructions::apply(vec![Action::Note(vec![0; 60_000])]);
    wire::flow::put_mod(&mut body, Version::V14, 5, &FlowMod::add(0, 1, Match::ANY, note)).unwrap();
    body
}
