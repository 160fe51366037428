//! Engines with in-memory ports for tests. The test holds the other end of each port's link.
#![allow(dead_code, clippy::unwrap_used, missing_docs, reason = "test code; each test file uses its part")]

pub mod rules;

use std::sync::Arc;

use engine::counters::PortTotals;
use engine::worker::Worker;
use engine::{Engine, EngineConfig, Function, PollMode, PortView};
use packet::{PortId, QueueId, WorkerId};
use port::ring::{self, RingQueue};
use port::{Batch, Depot, Flags, FrameMemory, FramePool, Gso, HugePages, MemoryConfig, Offload, Queue};
use switch::{Bridge, BridgeConfig, BridgePortConfig, VlanMode};

/// An engine with one worker that the test runs without a thread, and the test's ends of the ports' links.
pub struct Rig {
    pub engine: Engine,
    pub worker: Worker,
    pub far: Vec<RingQueue>,
    pub pool: FramePool,
}

pub fn depot(frames: u32) -> Arc<Depot> {
    let config = MemoryConfig { frames, frame_size: 2048, huge_pages: HugePages::Off };
    Depot::new(Arc::new(FrameMemory::new(config).unwrap()))
}

pub fn transparent(ports: u16) -> BridgeConfig {
    BridgeConfig {
        name: "br0".into(),
        ports: (0..ports).map(|p| BridgePortConfig::new(PortId(p), VlanMode::Transparent)).collect(),
        ..BridgeConfig::default()
    }
}

impl Rig {
    pub fn new(bridge: &BridgeConfig) -> Self {
        let function = Arc::new(Bridge::new(bridge, 7));
        let ports: Vec<PortId> = bridge.ports.iter().map(|member| member.port).collect();
        Self::with(&EngineConfig::default(), &ports, |_| Function::Bridge(function.clone()))
    }

    /// Creates an engine with the given ports. `function` returns the function (such as a bridge) of each port.
    pub fn with(config: &EngineConfig, ports: &[PortId], function: impl Fn(PortId) -> Function) -> Self {
        let depot = depot(8192);
        let config = EngineConfig { mode: PollMode::Busy, ..config.clone() };
        let (engine, mut workers) = Engine::prepare(&config, depot.clone()).unwrap();
        let worker = workers.pop().unwrap();
        let mut rig = Self { engine, worker, far: Vec::new(), pool: depot.pool() };
        for port in ports.iter().copied() {
            let (near, far) = ring::pair(1024);
            rig.engine.add_queue(WorkerId(0), port, QueueId(0), Box::new(near)).unwrap();
            rig.far.push(far);
            rig.worker.round_with_commands();
            let function = function(port);
            rig.publish(move |f| f.set_port(port, Some(PortView::new(function, WorkerId(0)))));
        }
        rig
    }

    pub fn publish(&mut self, change: impl FnOnce(&mut engine::Forwarding)) {
        let engine = &self.engine;
        self.worker.while_offline(|| engine.update(change));
    }

    /// Sends a frame to `port`.
    pub fn send(&mut self, port: u16, frame: &[u8]) {
        let mut batch = Batch::new();
        batch.push(self.pool.alloc_copy(frame).unwrap());
        assert_eq!(self.far[usize::from(port)].transmit(&mut self.pool, &mut batch), 1);
    }

    /// Sends a UDP packet to `port` that is divided into `segments` segments of 4 octets. `from` is the source port.
    pub fn send_large(&mut self, port: u16, from: u16, segments: u16) {
        let mut bytes = frame(1, 2, 0);
        bytes.resize(42 + 4 * usize::from(segments), 7);
        let payload = 4 * segments;
        bytes[16..18].copy_from_slice(&(payload + 28).to_be_bytes());
        bytes[34..36].copy_from_slice(&from.to_be_bytes());
        bytes[38..40].copy_from_slice(&(payload + 8).to_be_bytes());
        let mut flags = Flags::default();
        flags.insert(Flags::PARTIAL_CHECKSUM);
        flags.insert(Flags::SEGMENT);
        let offload = Offload { flags, gso: Gso::Udp, gso_size: 4, csum_start: 34, csum_offset: 6 };
        let mut packet = self.pool.alloc_copy(&bytes).unwrap();
        packet.set_offload(self.pool.memory(), offload);
        let mut batch: Batch = std::iter::once(packet).collect();
        assert_eq!(self.far[usize::from(port)].transmit(&mut self.pool, &mut batch), 1);
    }

    pub fn round(&mut self) -> usize {
        self.worker.round()
    }

    /// Returns the output frames of each port since the last call.
    pub fn outputs(&mut self) -> Vec<(PortId, Vec<u8>)> {
        let mut all = Vec::new();
        for (port, far) in (0_u16..).zip(&mut self.far) {
            let mut batch = Batch::new();
            while far.receive(&mut self.pool, &mut batch) > 0 {
                for packet in batch.drain(..) {
                    let mut bytes = vec![0; packet.len()];
                    packet.copy_to(self.pool.memory(), &mut bytes);
                    all.push((PortId(port), bytes));
                    self.pool.free(packet);
                }
            }
        }
        all
    }

    pub fn totals(&self) -> Vec<PortTotals> {
        (0..self.far.len()).map(|p| self.engine.port_totals(PortId(u16::try_from(p).unwrap()))).collect()
    }

    pub fn dropped(&self) -> Vec<u64> {
        let mut sum = vec![0; packet::DropReason::COUNT];
        for totals in self.totals() {
            sum.iter_mut().zip(&totals.drops).for_each(|(s, n)| *s += n);
        }
        sum
    }

    /// Checks that every packet is counted: received packets plus copies equal transmitted, punted and dropped packets.
    pub fn assert_accounted(&self) {
        let t = self.totals();
        let sum = |f: fn(&PortTotals) -> u64| t.iter().map(f).sum::<u64>();
        assert_eq!(
            sum(|t| t.rx_packets) + sum(|t| t.copies),
            sum(|t| t.tx_packets) + sum(|t| t.punted) + sum(PortTotals::dropped),
            "{t:?}"
        );
    }
}

/// Returns a UDP over IPv4 frame from host `src` to host `dst`.
pub fn frame(src: u8, dst: u8, sequence: u32) -> Vec<u8> {
    let mut f = vec![0; 64];
    f[..6].copy_from_slice(&[2, 0, 0, 0, 0, dst]);
    f[6..12].copy_from_slice(&[2, 0, 0, 0, 0, src]);
    f[12..14].copy_from_slice(&[8, 0]);
    f[14..34].copy_from_slice(&[0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, src, 10, 0, 0, dst]);
    f[34..42].copy_from_slice(&[4, 0, 0, 9, 0, 30, 0, 0]);
    f[42..46].copy_from_slice(&sequence.to_be_bytes());
    f
}
