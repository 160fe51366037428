//! The worker's interface to a port: one queue with a receive and a transmit side.

use std::os::fd::BorrowedFd;

use arrayvec::ArrayVec;

use crate::packet::Packet;
use crate::pool::FramePool;

/// Maximum number of packets that a stage processes at once.
pub const BURST: usize = 256;

/// A batch of packets in a worker.
pub type Batch = ArrayVec<Packet, BURST>;

/// Offloads and packet sizes that a queue accepts for transmission. Other offloads are completed in software
/// before (`offload`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether the queue accepts packets with a partial L4 checksum.
    pub partial_checksum: bool,
    /// Whether the queue accepts TCP packets that must be segmented.
    pub tcp_segmentation: bool,
    /// Whether the queue accepts UDP packets that must be segmented.
    pub udp_segmentation: bool,
    /// Maximum number of frames in one packet's chain.
    pub max_segments: u16,
    /// Maximum frame length on the wire in bytes, without the 4 bytes of a VLAN tag (MTU + 14).
    pub max_frame: u32,
}

/// Counters of packets that the kernel lost or refused, which the worker cannot observe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Number of frames lost because the receive ring was full.
    pub rx_ring_full: u64,
    /// Number of frames lost because the fill ring had no free frame.
    pub rx_fill_empty: u64,
    /// Number of frames refused for another reason (invalid descriptors, excessive length).
    pub rx_invalid: u64,
    /// Number of transmit descriptors that the kernel refused.
    pub tx_invalid: u64,
}

/// State of a queue's device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueState {
    /// The device is present and up, as far as known.
    #[default]
    Up,
    /// The device is down. Transmitted packets wait in the ring until the device is up again.
    Down,
    /// The device was deleted. No packets are received or transmitted any more, and the queue should be
    /// closed.
    Gone,
}

/// Progress of a transmit ring. Both numbers count from the creation of the ring, and wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmitProgress {
    /// Number of descriptors put into the ring.
    pub given: u32,
    /// Number of descriptors that the kernel has taken from the ring.
    pub taken: u32,
}

/// Operating mode of a queue, for `show ports` and `doctor`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStatus {
    /// Kind of the port, as in the configuration.
    pub kind: &'static str,
    /// Whether frames move between device and frame memory without a copy.
    pub zero_copy: bool,
    /// Whether the kernel is woken only when it requests a wake-up (XDP_USE_NEED_WAKEUP).
    pub need_wakeup: bool,
    /// Reasons why a better mode is not in use, or empty.
    pub reasons: Vec<String>,
}

/// One queue of a port. A queue belongs to one worker, which alone calls it.
///
/// Implementations: AF_XDP, TAP, pcap, memory ring, null, and the bench's generators.
pub trait Queue: Send + std::any::Any {
    /// Appends received packets to `out` until `out` is full. Returns their number. Never blocks.
    fn receive(&mut self, pool: &mut FramePool, out: &mut Batch) -> usize;

    /// Takes packets off the front of `batch` in order, as many as fit. Returns their number. The caller
    /// drops the remaining packets with a reason. Frames return to `pool` when transmission is complete. The
    /// function makes no system call. See [`Self::kick`].
    fn transmit(&mut self, pool: &mut FramePool, batch: &mut Batch) -> usize;

    /// Wakes the kernel for the transmit and fill rings if the kernel requests it. Called once per burst.
    fn kick(&mut self, pool: &mut FramePool);

    /// Returns a descriptor that becomes readable when packets arrive, for a worker that wants to sleep.
    /// Returns `None` if the queue must be polled. A memory ring reports packets through
    /// [`Self::has_pending`] and its wake-up hook.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns whether work is pending: received packets, or packets in a transmit ring that still need a
    /// kick. The worker calls this function after arming its sleep, so that no wake-up is lost.
    fn has_pending(&mut self) -> bool;

    /// Returns the progress of the transmit ring. Returns `None` if the queue has no ring, or if the kernel
    /// does not serve the ring because the device is down or deleted.
    fn transmit_progress(&mut self) -> Option<TransmitProgress> {
        None
    }

    /// Returns the offloads and packet sizes that the queue accepts.
    fn capabilities(&self) -> Capabilities;

    /// Returns the kernel's losses so far. The function makes a system call and is for control threads only.
    fn counters(&self) -> QueueCounters {
        QueueCounters::default()
    }

    /// Returns the operating mode of the queue.
    fn status(&self) -> QueueStatus;

    /// Returns the state of the queue's device according to the last calls.
    fn state(&self) -> QueueState {
        QueueState::Up
    }

    /// Returns the number of transmitted packets that have not left yet (still in a ring or in the kernel).
    fn in_flight(&self) -> usize {
        0
    }

    /// Returns the number of frames of the shared memory that the queue's rings or the kernel hold.
    fn frames(&self) -> usize {
        0
    }

    /// Returns all frames that the queue still owns to the pool, and closes the queue. A queue whose frames
    /// the kernel may still access closes its socket first.
    fn close(self: Box<Self>, pool: &mut FramePool);
}
