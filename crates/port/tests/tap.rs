//! Tests of TAP ports with the real kernel: large TCP segments pass unsegmented in both directions, and are segmented
//! if required. The queue survives a hand-over, an interface that is down, and a deleted interface.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "test data; a failure is the test's"
)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Space, bytes_of, collect, depot, frame, number, privileged};
use port::tap::{Tap, TapConfig, TapError, TapQueue};
use port::{Batch, Depot, Exported, Flags, FramePool, Queue, QueueState, offload};

fn tap(space: &Space, name: &str, last: u8, mtu: u32, queues: u32) -> Tap {
    let config = TapConfig {
        netns: Some(space.netns()),
        addresses: vec![format!("10.9.0.{last}/24").parse().unwrap()],
        mac: Some(packet::MacAddr([2, 0, 0, 0, 0, last])),
        mtu,
        queues,
        ..TapConfig::new(name)
    };
    let tap = Tap::create(&config).unwrap();
    space.run(|| port::link::disable_ipv6(name).unwrap());
    assert_eq!((tap.link.mtu, tap.link.mac, tap.link.up), (mtu, config.mac, true));
    tap
}

/// A forwarder between two queues, which runs until it is stopped. The forwarder records the length of the largest
/// packet, and the number of packets whose checksum was left incomplete.
struct Wire<'a> {
    pool: FramePool,
    stop: &'a AtomicBool,
    largest: usize,
    unfinished: usize,
    /// Whether the forwarder completes all offloads in software, as for a port without offloads.
    software: bool,
}

impl Wire<'_> {
    fn run(&mut self, a: &mut TapQueue, b: &mut TapQueue) {
        while !self.stop.load(Ordering::Relaxed) {
            let moved = self.forward(a, b) + self.forward(b, a);
            if moved == 0 && !a.has_pending() && !b.has_pending() {
                common::wait(a.wait_fd().unwrap(), 1);
            }
        }
    }

    fn forward(&mut self, from: &mut TapQueue, to: &mut TapQueue) -> usize {
        let mut batch = Batch::new();
        let got = from.receive(&mut self.pool, &mut batch);
        let caps = if self.software {
            port::Capabilities { max_segments: 8, max_frame: 1514, ..Default::default() }
        } else {
            to.capabilities()
        };
        for packet in batch {
            self.largest = self.largest.max(packet.len());
            self.unfinished += usize::from(packet.flags().contains(Flags::PARTIAL_CHECKSUM));
            let mut send = |pool: &mut FramePool, packet: port::Packet| {
                assert!(!self.software || (packet.len() <= 1514 && packet.flags().is_empty()));
                let mut one: Batch = std::iter::once(packet).collect();
                while to.transmit(pool, &mut one) == 0 {
                    to.kick(pool);
                }
            };
            offload::complete_packet(packet, &caps, &mut self.pool, &mut send).unwrap();
        }
        to.kick(&mut self.pool);
        got
    }
}

/// Stops the forwarder ([`Wire`]) when dropped, also after a failed assertion, so that the test ends.
struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Transfers a megabyte in each direction over TCP, and a datagram over UDP, between two hosts on TAPs. Returns the
/// length of the largest packet and the number of packets with incomplete checksums, as [`Wire`] recorded them.
fn transfer(software: bool) -> (usize, usize) {
    let (left, right) = (Space::new(), Space::new());
    let mut a = tap(&left, "tap0", 1, 1500, 1).queues.remove(0);
    let mut b = tap(&right, "tap0", 2, 1500, 1).queues.remove(0);
    let depot = depot(4096);
    let stop = AtomicBool::new(false);
    let mut wire = Wire { pool: depot.pool(), stop: &stop, largest: 0, unfinished: 0, software };
    let listener = right.run(|| TcpListener::bind("10.9.0.2:7000").unwrap());
    let datagrams = right.run(|| UdpSocket::bind("10.9.0.2:7001").unwrap());
    let seen = std::thread::scope(|scope| {
        let stopper = Stopper(&stop);
        let thread = scope.spawn(move || {
            wire.run(&mut a, &mut b);
            Box::new(a).close(&mut wire.pool);
            Box::new(b).close(&mut wire.pool);
            (wire.largest, wire.unfinished)
        });
        let data: Vec<u8> = (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let echo = scope.spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let mut got = vec![0; 1 << 20];
            peer.read_exact(&mut got).unwrap();
            peer.write_all(&got).unwrap();
        });
        let address: SocketAddr = "10.9.0.2:7000".parse().unwrap();
        let mut client = left.run(|| TcpStream::connect(address).unwrap());
        client.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        client.write_all(&data).unwrap();
        let mut back = vec![0; 1 << 20];
        client.read_exact(&mut back).unwrap();
        assert!(back == data, "the stream came back whole");
        echo.join().unwrap();
        let sender = left.run(|| UdpSocket::bind("10.9.0.1:0").unwrap());
        sender.send_to(&data[..1400], "10.9.0.2:7001").unwrap();
        let mut got = [0; 2000];
        datagrams.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        assert_eq!(datagrams.recv(&mut got).unwrap(), 1400);
        assert_eq!(&got[..1400], &data[..1400]);
        drop(stopper);
        thread.join().unwrap()
    });
    assert_eq!(depot.available(), 4096, "every frame is back");
    seen
}

#[test]
fn large_segments_cross_whole() {
    if !privileged("large_segments_cross_whole") {
        return;
    }
    let (largest, unfinished) = transfer(false);
    assert!(largest > 20_000, "segmentation was left to us: {largest}");
    assert!(unfinished > 10, "checksums were left to us: {unfinished}");
}

#[test]
fn a_receiver_without_offloads_gets_finished_packets() {
    if !privileged("a_receiver_without_offloads_gets_finished_packets") {
        return;
    }
    let (largest, _) = transfer(true);
    assert!(largest > 20_000, "there was something to segment: {largest}");
}

fn send_one(queue: &mut TapQueue, pool: &mut FramePool, bytes: &[u8]) {
    let mut batch: Batch = std::iter::once(pool.alloc_copy(bytes).unwrap()).collect();
    assert_eq!(queue.transmit(pool, &mut batch), 1);
    queue.kick(pool);
}

/// Returns the next received packet that the function [`frame`] has built, and skips packets that the kernel sends by
/// itself.
fn next(queue: &mut TapQueue, pool: &mut FramePool) -> Option<Vec<u8>> {
    loop {
        let mut batch = Batch::new();
        while batch.is_empty() && queue.receive(pool, &mut batch) == 0 {
            if !queue.has_pending() && !common::wait(queue.wait_fd()?, 1000) {
                return None;
            }
        }
        let found = batch.iter().map(|p| bytes_of(p, pool.memory())).find(|bytes| number(bytes).is_some());
        batch.drain(..).for_each(|packet| pool.free(packet));
        if found.is_some() {
            return found;
        }
    }
}

#[test]
fn frames_up_to_jumbo_cross_over_a_hand_over() {
    if !privileged("frames_up_to_jumbo_cross_over_a_hand_over") {
        return;
    }
    let space = Space::new();
    let mut queue = tap(&space, "jumbo0", 1, 9000, 1).queues.remove(0);
    let depot = depot(1024);
    let mut pool = depot.pool();
    let wire = space.run(|| common::Wire::open("jumbo0"));
    for (n, size) in (0..).zip([60, 64, 1500, 1792, 1793, 4000, 9014]) {
        wire.send(&frame(n, size));
        assert_eq!(next(&mut queue, &mut pool), Some(frame(n, size)));
        send_one(&mut queue, &mut pool, &frame(n, size));
        let back = std::iter::from_fn(|| wire.receive(1000)).find(|bytes| number(bytes).is_some());
        assert_eq!(back, Some(frame(n, size)));
        let Exported::Tap(handed) = Box::new(queue).export(&mut pool) else { panic!("no TAP") };
        pool.flush();
        assert_eq!(depot.available(), 1024, "a hand-over leaves no frame behind");
        queue = TapQueue::import(handed);
    }
    Box::new(queue).close(&mut pool);
}

#[test]
fn queues_share_an_interface() {
    if !privileged("queues_share_an_interface") {
        return;
    }
    let space = Space::new();
    let tap = tap(&space, "multi0", 1, 1500, 4);
    let depot: std::sync::Arc<Depot> = depot(1024);
    let mut pool = depot.pool();
    let wire = space.run(|| common::Wire::open("multi0"));
    for (n, mut queue) in (0..).zip(tap.queues) {
        send_one(&mut queue, &mut pool, &frame(n, 100));
        let back = std::iter::from_fn(|| wire.receive(1000)).find(|bytes| number(bytes).is_some());
        assert_eq!(back, Some(frame(n, 100)));
        Box::new(queue).close(&mut pool);
    }
    assert_eq!(
        space.run(|| port::link::find("multi0").unwrap_err().errno()),
        libc::ENODEV,
        "gone with its last queue"
    );
}

#[test]
fn an_interface_that_is_down_or_gone_is_a_state() {
    if !privileged("an_interface_that_is_down_or_gone_is_a_state") {
        return;
    }
    let space = Space::new();
    let mut tap = tap(&space, "state0", 1, 1500, 1);
    let mut queue = tap.queues.remove(0);
    let depot = depot(1024);
    let mut pool = depot.pool();
    let set = |up| {
        let change = port::link::LinkChange { up: Some(up), ..Default::default() };
        space.run(|| port::link::set(tap.link.ifindex, &change).unwrap());
    };
    set(false);
    send_one(&mut queue, &mut pool, &frame(1, 100));
    assert_eq!((queue.state(), queue.counters().tx_invalid, queue.in_flight()), (QueueState::Down, 1, 0));
    set(true);
    send_one(&mut queue, &mut pool, &frame(1, 100));
    assert_eq!(queue.state(), QueueState::Up);
    let config = TapConfig { netns: Some(space.netns()), ..TapConfig::new("state0") };
    let taken = Tap::create(&config).err().unwrap();
    assert!(matches!(taken, TapError::Exists { .. }), "{taken}");
    space.run(|| port::link::delete("state0").unwrap());
    collect(&mut queue, &mut pool, 1).drain(..).for_each(|packet| pool.free(packet));
    assert_eq!(queue.state(), QueueState::Gone);
    assert!(queue.wait_fd().is_none() && !queue.has_pending());
    Box::new(queue).close(&mut pool);
    pool.flush();
    assert_eq!(depot.available(), 1024);
}

#[test]
fn a_persistent_tap_outlives_its_queues_with_what_was_set_on_it() {
    if !privileged("a_persistent_tap_outlives_its_queues_with_what_was_set_on_it") {
        return;
    }
    let space = Space::new();
    let config = TapConfig { netns: Some(space.netns()), persistent: true, ..TapConfig::new("lasting") };
    let tap = Tap::create(&config).unwrap();
    let index = tap.link.ifindex;
    let find = || space.run(|| port::link::find("lasting"));
    let control = tap.queues[0].control().unwrap();
    assert!(find().unwrap().running);
    control.set_carrier(false).unwrap();
    assert!(!find().unwrap().running);
    control.set_carrier(true).unwrap();
    assert!(find().unwrap().running);
    let mac = packet::MacAddr([2, 0, 0, 0, 9, 9]);
    let change = port::link::LinkChange { mtu: Some(1400), mac: Some(mac), ..Default::default() };
    space.run(|| port::link::set(index, &change)).unwrap();
    drop((tap, control));
    // No process uses the interface, so it has no carrier. All other settings are unchanged.
    let left = find().unwrap();
    assert_eq!((left.ifindex, left.mtu, left.mac, left.running), (index, 1400, Some(mac), false));
    // Only a persistent configuration adopts the interface, with its settings.
    assert!(matches!(
        Tap::create(&TapConfig { persistent: false, ..config.clone() }),
        Err(TapError::Exists { .. })
    ));
    let again = Tap::create(&config).unwrap();
    assert_eq!((again.link.ifindex, again.link.mtu, again.link.mac), (index, 1400, Some(mac)));
    assert!(find().unwrap().running);
    // A device that does not belong to Trivium is not adopted.
    space
        .run(|| port::link::set(index, &port::link::LinkChange { alias: Some("mine"), ..Default::default() }))
        .unwrap();
    drop(again);
    assert!(matches!(Tap::create(&config), Err(TapError::Exists { .. })));
    space.run(|| port::link::delete("lasting")).unwrap();
    assert!(find().is_err());
}
