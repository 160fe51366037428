//! Tests of the rings between two workers, which the test runs without threads: the packets of one port leave places
//! for the packets of another port, and the frames in a ring are limited.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::Arc;

use common::{depot, frame};
use engine::state::RSS_BUCKETS;
use engine::worker::Worker;
use engine::{Engine, EngineConfig, Forwarding, Function, PollMode, PortView};
use packet::{DropReason, PortId, QueueId, WorkerId};
use port::packet::{Flags, Gso, Offload};
use port::ring::{self, RingQueue};
use port::{Batch, FramePool, Queue};

const ATTACKER: PortId = PortId(0);
const VICTIM: PortId = PortId(1);
const OUT: PortId = PortId(2);
const FRAMES: usize = 32_768;

/// Two workers. The first receives from two ports, and the second transmits the packets of both ports through a third.
struct Pair {
    engine: Engine,
    first: Worker,
    second: Worker,
    far: Vec<RingQueue>,
    pool: FramePool,
}

impl Pair {
    fn new() -> Pair {
        let depot = depot(u32::try_from(FRAMES).unwrap());
        let config = EngineConfig { cores: vec![None; 2], mode: PollMode::Busy, ..EngineConfig::default() };
        let (engine, mut workers) = Engine::prepare(&config, depot.clone()).unwrap();
        let (second, first) = (workers.pop().unwrap(), workers.pop().unwrap());
        let mut pair = Pair { engine, first, second, far: Vec::new(), pool: depot.pool() };
        for port in [ATTACKER, VICTIM, OUT] {
            let owner = WorkerId(u16::from(port == OUT));
            let (near, far) = ring::pair(2048);
            pair.engine.add_queue(owner, port, QueueId(0), Box::new(near)).unwrap();
            pair.far.push(far);
            pair.first.round_with_commands();
            pair.second.round_with_commands();
            let view = PortView::new(Function::CrossConnect(OUT), owner);
            pair.publish(move |forwarding| forwarding.set_port(port, Some(view)));
        }
        pair
    }

    fn publish(&mut self, change: impl FnOnce(&mut Forwarding)) {
        let Pair { engine, first, second, .. } = self;
        first.while_offline(|| second.while_offline(|| engine.update(change)));
    }

    /// Enables software RSS, which hands all packets over to the second worker.
    fn spread(&mut self) {
        self.publish(|forwarding| {
            for port in [ATTACKER, VICTIM] {
                let view = forwarding.port(port).unwrap().clone();
                let rss_table = Some(Arc::new([WorkerId(1); RSS_BUCKETS]));
                forwarding.set_port(port, Some(PortView { rss_table, ..view }));
            }
        });
    }

    /// Sends packets to a port of the first worker, which processes them. The second worker does nothing.
    fn send(&mut self, port: PortId, packets: usize, bytes: &[u8]) {
        for _ in 0..packets {
            let mut one: Batch = std::iter::once(self.pool.alloc_copy(bytes).unwrap()).collect();
            assert_eq!(self.far[port.index()].transmit(&mut self.pool, &mut one), 1);
            self.first.round();
        }
    }

    /// Sends UDP packets that are each divided into `segments` segments.
    fn send_large(&mut self, port: PortId, packets: usize, segments: u16) {
        let mut bytes = frame(1, 2, 0);
        bytes.resize(42 + 4 * usize::from(segments), 7);
        let payload = 4 * segments;
        bytes[16..18].copy_from_slice(&(payload + 28).to_be_bytes());
        bytes[38..40].copy_from_slice(&(payload + 8).to_be_bytes());
        let mut flags = Flags::default();
        flags.insert(Flags::PARTIAL_CHECKSUM);
        flags.insert(Flags::SEGMENT);
        let offload = Offload { flags, gso: Gso::Udp, gso_size: 4, csum_start: 34, csum_offset: 6 };
        for _ in 0..packets {
            let mut packet = self.pool.alloc_copy(&bytes).unwrap();
            packet.set_offload(self.pool.memory(), offload);
            let mut one: Batch = std::iter::once(packet).collect();
            assert_eq!(self.far[port.index()].transmit(&mut self.pool, &mut one), 1);
            self.first.round();
        }
    }

    fn lost(&self, port: PortId) -> u64 {
        self.engine.port_totals(port).drops[DropReason::WorkerRingFull.index()]
    }

    /// Runs the second worker. Returns the number of packets that it transmits.
    fn left(&mut self) -> usize {
        let mut left = 0;
        for _ in 0..32 {
            self.second.round();
            let mut batch = Batch::new();
            left += self.far[OUT.index()].receive(&mut self.pool, &mut batch);
            batch.drain(..).for_each(|packet| self.pool.free(packet));
        }
        left
    }
}

#[test]
fn a_flood_of_one_port_leaves_places_in_the_output_ring_for_another_port() {
    let mut pair = Pair::new();
    for _ in 0..2 {
        let before = pair.lost(ATTACKER);
        pair.send(ATTACKER, 3000, &frame(1, 2, 0));
        pair.send(VICTIM, 300, &frame(3, 2, 0));
        assert_eq!((pair.lost(ATTACKER) - before, pair.lost(VICTIM)), (3000 - 1024, 0));
        assert_eq!(pair.left(), 1024 + 300);
    }
}

#[test]
fn a_flood_of_one_port_leaves_places_in_the_work_ring_for_another_port() {
    let mut pair = Pair::new();
    pair.spread();
    pair.send(ATTACKER, 3000, &frame(1, 2, 0));
    pair.send(VICTIM, 300, &frame(3, 2, 0));
    assert_eq!((pair.lost(ATTACKER), pair.lost(VICTIM)), (3000 - 1024, 0));
    assert_eq!(pair.left(), 1024 + 300);
}

/// Checks that packets of two ports that alternate in a ring are processed as fast as packets of one port. A worker
/// whose rounds are long would otherwise process one packet of the ring in a round.
#[test]
fn alternating_ports_do_not_slow_down_a_ring() {
    let mut pair = Pair::new();
    pair.spread();
    for _ in 0..64 {
        pair.send(ATTACKER, 1, &frame(1, 2, 0));
        pair.send(VICTIM, 1, &frame(3, 2, 0));
    }
    pair.second.round();
    let mut batch = Batch::new();
    assert_eq!(pair.far[OUT.index()].receive(&mut pair.pool, &mut batch), 128);
    batch.drain(..).for_each(|packet| pair.pool.free(packet));
}

/// Checks that packets that another worker transmits have a budget of segments in each burst, although the worker
/// receives nothing itself.
#[test]
fn packets_for_another_worker_have_a_budget_of_segments_each_round() {
    let mut pair = Pair::new();
    let mut left = 0;
    for _ in 0..60 {
        pair.send_large(ATTACKER, 3, 100);
        left += pair.left();
    }
    assert_eq!(left, 60 * 3 * 100, "more than one budget of {}", engine::stage::SEGMENT_BUDGET);
}

/// Checks that packets that one port divides into very many segments leave segments for the packets of another port,
/// if another worker transmits both.
#[test]
fn segments_of_one_port_leave_segments_for_another_port() {
    let mut pair = Pair::new();
    pair.send_large(ATTACKER, 40, 1000);
    pair.send_large(VICTIM, 100, 50);
    pair.second.round();
    let dropped = |port| pair.engine.port_totals(port).drops[DropReason::CloneBudget.index()];
    assert_eq!((dropped(ATTACKER), dropped(VICTIM)), (40 - 8, 0));
}

/// Checks that packets that span many frames, such as packets from TAP ports, occupy a limited part of the frame memory
/// while they wait for another worker.
#[test]
fn the_frames_in_a_ring_are_limited() {
    let mut pair = Pair::new();
    let mut large = frame(1, 2, 0);
    large.resize(65_000, 0);
    let segments = {
        let packet = pair.pool.alloc_copy(&large).unwrap();
        let segments = usize::from(packet.segments());
        pair.pool.free(packet);
        segments
    };
    assert!(segments > 30);
    pair.send(ATTACKER, 800, &large);
    let kept = 800 - usize::try_from(pair.lost(ATTACKER)).unwrap();
    assert!(kept >= 64, "{kept} packets: a burst of a TAP port does not fit");
    assert!(kept * segments <= 4096, "{kept} packets of {segments} frames");
    pair.send(VICTIM, 300, &frame(3, 2, 0));
    assert_eq!(pair.lost(VICTIM), 0);
}
