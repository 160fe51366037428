//! The stages of the packet path, in order. A stage is a plain function over a burst.

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

/// Maximum number of copies that one burst may make. Further flood outputs are dropped as `clone-budget`.
pub const CLONE_BUDGET: u32 = 4096;

/// Maximum number of segments into which software divides the packets of one burst. Further packets that need
/// segmentation are dropped as `clone-budget`. Sixty-four packets of 64 KiB at the segment size of Ethernet are
/// some 3,000 segments.
pub const SEGMENT_BUDGET: u32 = 16_384;

/// Worker context: private state that the stages of one worker need besides the burst and the snapshot.
pub struct Tools {
    /// Number of the worker.
    pub id: WorkerId,
    /// Pool of free frames.
    pub pool: FramePool,
    /// Packets sorted by output port.
    pub outbox: Outbox,
    /// Scratch memory of bridge lookups.
    pub scratch: switch::Scratch,
    /// Scratch memory of router lookups.
    pub routing: router::Scratch,
    /// Counters of the worker.
    pub counters: Arc<WorkerCounters>,
    /// Ring for captured copies, while a capture runs.
    pub capture: Option<CaptureTap>,
    /// Ring for punted copies.
    pub punt: Option<PuntRing>,
    /// Flow cache for OpenFlow bridges, or `None` while there is no slow path.
    pub flows: Option<Box<flows::Flows>>,
    /// OpenFlow trace reports of a dry run, one for each OpenFlow bridge that the packet passed.
    pub stories: Vec<switch::flow::Story>,
    /// Index of the worker's queue that received the current burst, or `None` for a burst from another
    /// worker.
    pub queue: Option<usize>,
    /// Number of copies that the current burst may still make.
    pub clones_left: u32,
    /// Number of segments that the current burst may still be divided into.
    pub segments_left: u32,
    /// Packets that the current burst sent to patch ports, each with the port on which the packet arrives
    /// next.
    pub(crate) patched: VecDeque<(PortId, Packet)>,
    /// Whether the current burst arrived by a patch port.
    pub(crate) is_patched: bool,
    /// Output ports of the current flood.
    pub(crate) outputs: Box<ArrayVec<(PortId, TagChange), MAX_PORTS>>,
    /// Whether drops of all ports are captured.
    pub(crate) capture_drops: bool,
}

impl Tools {
    /// Creates the context of one worker.
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

    /// Resets the budgets of copies and segments for the next burst.
    pub fn begin_burst(&mut self) {
        (self.clones_left, self.segments_left) = (CLONE_BUDGET, SEGMENT_BUDGET);
    }

    /// Drops a packet: counts the drop at `port`, on which the packet arrived, offers the packet to a
    /// capture, and frees its frame.
    #[cold]
    pub fn drop(&mut self, packet: Packet, port: PortId, reason: DropReason) {
        self.end(packet, port, Direction::Dropped { reason, output: None });
    }

    /// Drops a packet that was to be transmitted by `out`: counts the drop at the port on which the packet
    /// arrived, offers the packet to a capture, and frees its frame.
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
