//! Worker context: the private state of a worker that the stages share.

use std::collections::VecDeque;
use std::sync::Arc;

use arrayvec::ArrayVec;
use packet::record::TagChange;
use packet::{DropReason, PortId, WorkerId};
use port::{FramePool, Packet};

use super::flow_cache::{Flows, Recirculated, Ticket};
use super::outbox::Outbox;
use super::punt::PuntRing;
use crate::capture::{CaptureTap, Direction};
use crate::counters::{MAX_PORTS, WorkerCounters};

/// Maximum number of copies that the packets of one burst may cause. A copy of a packet that spans several frames
/// counts once for every four frames. Flooded packets that would exceed this number are dropped with the reason
/// `clone-budget`.
pub const CLONE_BUDGET: u32 = 4096;

/// Maximum number of segments into which software segmentation divides the packets of one burst. Additional packets
/// that need segmentation are dropped with the reason `clone-budget`. For comparison, 64 packets of 64 KiB result in
/// some 3,000 segments of Ethernet size.
pub const SEGMENT_BUDGET: u32 = 16_384;
/// Maximum number of segments of a packet that may use the whole budget. A packet of 64 KiB has at most as many if its
/// segments have 1,000 octets or more.
pub(super) const USUAL_SEGMENTS: usize = 66;

/// Worker context: the private state of one worker that the stages need in addition to the burst and the forwarding
/// snapshot.
pub struct WorkerContext {
    /// Identifier of the worker.
    pub id: WorkerId,
    /// Pool of free packet frames that belongs to the worker.
    pub pool: FramePool,
    /// Packets to transmit, sorted by output port.
    pub outbox: Outbox,
    /// Memory for intermediate results of bridge lookups, which is reused for every burst.
    pub scratch: switch::Scratch,
    /// Memory for intermediate results of router lookups, which is reused for every burst.
    pub routing: router::Scratch,
    /// Counters of ports and stages that the worker writes.
    pub counters: Arc<WorkerCounters>,
    /// Ring for copies of captured packets. `None` while no capture runs.
    pub capture: Option<CaptureTap>,
    /// Ring to the IGMP/MLD snooper for copies of packets, or `None` while no snooper runs.
    pub punt: Option<PuntRing>,
    /// Flow cache for OpenFlow bridges. `None` while the engine has no slow path.
    pub flows: Option<Box<Flows>>,
    /// OpenFlow trace reports of a dry run. There is one report for each OpenFlow bridge that the packet has
    /// passed.
    pub trace_reports: Vec<switch::flow::TraceReport>,
    /// Index of the worker's queue from which the packets of the current burst were originally received.
    /// `None` if another worker or the slow path has sent the packets to this worker.
    pub queue: Option<usize>,
    /// Number of copies that the packets of the current burst may still cause.
    pub clones_left: u32,
    /// Number of segments into which the packets of the current burst may still be divided.
    pub segments_left: u32,
    /// Number of the remaining segments that packets of very many segments may not use.
    pub segments_reserved: u32,
    /// Packets of the current burst that were sent to patch ports, each with the peer port on which the packet arrives
    /// next.
    pub(crate) patched: VecDeque<(PortId, Packet)>,
    /// Packets that the connection tracker has seen, and that are looked up in the flow cache again. Empty between two
    /// calls of the stage `openflow`.
    pub(crate) recirculated: VecDeque<Recirculated>,
    /// Memory for a packet of several segments while the connection tracker reads it.
    pub(crate) whole: Vec<u8>,
    /// Receive queue and burst of the packets that the slow path has released and that the worker currently processes.
    /// If these packets pass a patch port and match no cached megaflow of the next bridge, they wait for the slow path
    /// again and still count for this receive queue and burst.
    pub(crate) released: Option<Ticket>,
    /// Memory for the output ports of one flood, which is reused for every flood.
    pub(crate) outputs: Box<ArrayVec<(PortId, TagChange), MAX_PORTS>>,
    /// Whether a capture copies dropped packets of all ports.
    pub(crate) capture_drops: bool,
}

impl WorkerContext {
    /// Creates the context of the worker `id`.
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
            trace_reports: Vec::new(),
            queue: None,
            clones_left: CLONE_BUDGET,
            segments_left: SEGMENT_BUDGET,
            segments_reserved: 0,
            patched: VecDeque::new(),
            recirculated: VecDeque::new(),
            whole: Vec::new(),
            released: None,
            outputs: Box::default(),
            capture_drops: false,
        }
    }

    /// Resets the numbers of copies and segments that the packets of a burst may still cause, at the beginning of a
    /// burst.
    pub fn begin_burst(&mut self) {
        (self.clones_left, self.segments_left) = (CLONE_BUDGET, SEGMENT_BUDGET);
        self.segments_reserved = 0;
    }

    /// Resets the same numbers at the beginning of a burst of packets that another worker has handed over for
    /// transmission, or that the slow path has released. The packets may come from several ports. Half of the segments
    /// is therefore reserved for packets of a usual number of segments, so that packets that are divided into very many
    /// segments do not prevent others.
    pub fn begin_mixed_burst(&mut self) {
        self.begin_burst();
        self.segments_reserved = SEGMENT_BUDGET / 2;
    }

    /// Drops a packet that arrived on `port`. Counts the drop on this port, offers the packet to a running capture, and
    /// frees its frame.
    #[cold]
    pub fn drop(&mut self, packet: Packet, port: PortId, reason: DropReason) {
        self.end(packet, port, Direction::Dropped { reason, output: None });
    }

    /// Drops a packet that was to be transmitted through `out`. Counts the drop on the port on which the packet
    /// arrived, offers the packet to a running capture, and frees its frame.
    #[cold]
    pub fn drop_at_output(&mut self, packet: Packet, out: PortId, reason: DropReason) {
        let port = packet.arrival_or(out);
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
