//! What a worker sees of a port: one queue with a receive and a transmit side.

use std::os::fd::BorrowedFd;

use arrayvec::ArrayVec;

use crate::packet::Packet;
use crate::pool::FramePool;

/// Most packets a stage sees at once.
pub const BURST: usize = 256;

/// Packets on their way through a worker.
pub type Batch = ArrayVec<Packet, BURST>;

/// Which offload state a queue accepts on transmit; what it does not accept is completed in software before
/// (`offload`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Takes packets whose L4 checksum is partial.
    pub partial_checksum: bool,
    /// Takes TCP packets that are still to be segmented.
    pub tcp_segmentation: bool,
    /// Takes UDP packets that are still to be segmented.
    pub udp_segmentation: bool,
    /// Most frames in one packet's chain.
    pub max_segments: u16,
    /// Most bytes in one frame on the wire, without the 4 bytes of a VLAN tag (MTU + 14).
    pub max_frame: u32,
}

/// What a queue counted that the worker cannot see: losses on the kernel's side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Frames lost because the receive ring was full.
    pub rx_ring_full: u64,
    /// Frames lost because no free frame stood in the fill ring.
    pub rx_fill_empty: u64,
    /// Frames refused for another reason (invalid descriptors, too long).
    pub rx_invalid: u64,
    /// Transmit descriptors that the kernel refused.
    pub tx_invalid: u64,
}

/// Whether a queue's device is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueState {
    /// It is, as far as is known.
    #[default]
    Up,
    /// It is set down: what was given to it waits in its ring until it is up again.
    Down,
    /// It was deleted: nothing comes or goes any more; close the queue.
    Gone,
}

/// How far a transmit ring is. Both numbers count from the ring's beginning, and wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmitProgress {
    /// Descriptors that were put into it.
    pub given: u32,
    /// Descriptors that the kernel has taken off it.
    pub taken: u32,
}

/// How a queue runs, for `show ports` and `doctor`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStatus {
    /// Kind of port, as in the configuration.
    pub kind: &'static str,
    /// Whether frames cross between device and frame memory without a copy.
    pub zero_copy: bool,
    /// Whether the kernel is asked before it is woken (XDP_USE_NEED_WAKEUP).
    pub need_wakeup: bool,
    /// Why a better mode was not had; empty when nothing is to be said.
    pub reasons: Vec<String>,
}

/// One (port, queue). It belongs to one worker, which alone calls it.
///
/// Implementations: AF_XDP, TAP, pcap, memory ring, null, and the bench's generators.
pub trait Queue: Send + std::any::Any {
    /// Appends packets that have arrived to `out`, at most until it is full; returns how many. Never blocks.
    fn receive(&mut self, pool: &mut FramePool, out: &mut Batch) -> usize;

    /// Takes packets off the front of `batch` in order, as many as fit; returns how many. What remains is the caller's to
    /// drop with a reason. Frames go back to `pool` when sending is complete. No system call: see [`Self::kick`].
    fn transmit(&mut self, pool: &mut FramePool, batch: &mut Batch) -> usize;

    /// Makes the kernel look at what was transmitted or at the fill ring, if it asks for it. Once per burst.
    fn kick(&mut self, pool: &mut FramePool);

    /// A descriptor that becomes readable when packets arrive, for a worker that wants to sleep; `None` when the queue must be
    /// polled (a memory ring notifies through [`Self::has_pending`] and its wake-up hook).
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether work is pending right now: packets received, or packets in a transmit ring that still need a kick. Asked after
    /// the worker has armed its sleep, so that no wake-up is lost.
    fn has_pending(&mut self) -> bool;

    /// Returns how far the transmit ring is; `None` of a queue that has none, or whose ring the kernel leaves alone because its device is down
    /// or gone.
    fn transmit_progress(&mut self) -> Option<TransmitProgress> {
        None
    }

    /// Offload state it accepts.
    fn capabilities(&self) -> Capabilities;

    /// Losses on the kernel's side so far (a system call: control only).
    fn counters(&self) -> QueueCounters {
        QueueCounters::default()
    }

    /// How it runs.
    fn status(&self) -> QueueStatus;

    /// Whether its device is there, as the last calls have shown.
    fn state(&self) -> QueueState {
        QueueState::Up
    }

    /// Packets given to [`Self::transmit`] that have not left yet (still in a ring or in the kernel).
    fn in_flight(&self) -> usize {
        0
    }

    /// Returns the number of frames of the shared memory that stand in its rings or that the kernel has of it.
    fn frames(&self) -> usize {
        0
    }

    /// Gives every frame it still owns back to the pool and closes. A queue whose frames the kernel may still touch closes its
    /// socket first.
    fn close(self: Box<Self>, pool: &mut FramePool);
}
