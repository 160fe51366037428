//! The stages, in the order of the packet's path. Each is a plain function over a burst.

pub mod execute;
pub mod flows;
pub mod outbox;
pub mod own;
pub mod parse;
pub mod patch;
pub mod punt;
pub mod receive;
pub mod room;
pub mod route;
pub mod spread;
pub mod tag;
pub mod transmit;

use std::collections::VecDeque;
use std::sync::Arc;

use arrayvec::ArrayVec;
use packet::record::TagChange;
use packet::{DropReason, PortId, WorkerId};
use port::{FramePool, Packet};

use crate::capture::{CaptureTap, Direction};
use crate::counters::{MAX_PORTS, WorkerCounters};

pub use outbox::Outbox;
pub use punt::{Punt, PuntRing};

/// Most copies that floods of one burst may make; further outputs are dropped as `clone-budget`.
pub const CLONE_BUDGET: u32 = 4096;

/// Most segments into which the packets of one burst are divided in software; further packets that need it are dropped as `clone-budget`.
/// Sixty-four packets of 64 KiB at the segment size of Ethernet are some 3,000 segments.
pub const SEGMENT_BUDGET: u32 = 16_384;

/// One worker's private tools: what stages need besides the burst and the snapshot.
pub struct Tools {
    /// This worker.
    pub id: WorkerId,
    /// Free frames.
    pub pool: FramePool,
    /// Packets sorted by output port.
    pub outbox: Outbox,
    /// The bridge's working memory.
    pub scratch: switch::Scratch,
    /// The router's working memory.
    pub routing: router::Scratch,
    /// Counters.
    pub counters: Arc<WorkerCounters>,
    /// Where captured copies go.
    pub capture: Option<CaptureTap>,
    /// Where punted copies go.
    pub punt: Option<PuntRing>,
    /// Flows of the bridges that go by OpenFlow's rules; none while no decider is there.
    pub flows: Option<Box<flows::Flows>>,
    /// Which rules packets met in a dry run, and why: one for each bridge with rules.
    pub stories: Vec<switch::flow::Story>,
    /// The own queue that the burst in hand was received from; `None`: another worker's.
    pub queue: Option<usize>,
    /// Copies that this burst may still make.
    pub clones_left: u32,
    /// Segments that this burst may still be divided into.
    pub segments_left: u32,
    /// What the burst in hand has sent to patch ports, with the ports where it arrives.
    pub(crate) patched: VecDeque<(PortId, Packet)>,
    /// The burst in hand has arrived by a patch port.
    pub(crate) is_patched: bool,
    /// Outputs of the flood in hand.
    pub(crate) outputs: Box<ArrayVec<(PortId, TagChange), MAX_PORTS>>,
    /// Whether drops of any port are captured.
    pub(crate) capture_drops: bool,
}

impl Tools {
    /// Tools for one worker.
    #[must_use]
    pub fn new(id: WorkerId, pool: FramePool, counters: Arc<WorkerCounters>) -> Self {
        Self {
            id,
            pool,
            outbox: Outbox::default(),
            scratch: switch::Scratch::default(),
            routing: router::Scratch::default(),
            counters,
            capture: None,
            punt: None,
            flows: None,
            stories: Vec::new(),
            queue: None,
            clones_left: CLONE_BUDGET,
            segments_left: SEGMENT_BUDGET,
            patched: VecDeque::new(),
            is_patched: false,
            outputs: Box::default(),
            capture_drops: false,
        }
    }

    /// Gives the next burst its budgets of copies and segments.
    pub fn begin_burst(&mut self) {
        (self.clones_left, self.segments_left) = (CLONE_BUDGET, SEGMENT_BUDGET);
    }

    /// Ends a packet here: counted on `port`, by which it has arrived, shown to a capture of drops, its frame freed.
    #[cold]
    pub fn drop(&mut self, packet: Packet, port: PortId, reason: DropReason) {
        self.end(packet, port, Direction::Dropped { reason, output: None });
    }

    /// Ends a packet that was to leave by `out`: counted on the port by which it has arrived, shown to a capture of drops, its frame freed.
    #[cold]
    pub fn drop_at_output(&mut self, packet: Packet, out: PortId, reason: DropReason) {
        let port = packet.arrival().unwrap_or(out);
        self.end(packet, port, Direction::Dropped { reason, output: Some(out) });
    }

    fn end(&mut self, packet: Packet, port: PortId, direction: Direction) {
        if let Direction::Dropped { reason, .. } = direction {
            self.counters.port(port).drop_n(reason, 1);
        }
        if self.capture_drops
            && let Some(tap) = &mut self.capture
        {
            tap.offer(&mut self.pool, &packet, port, direction);
        }
        self.pool.free(packet);
    }
}
