//! Interface between a worker and a port. A queue of a port has a receive side and a transmit side.

use std::os::fd::BorrowedFd;

use arrayvec::ArrayVec;

use crate::af_xdp::AfXdpHandOver;
use crate::packet::Packet;
use crate::pool::FramePool;
use crate::tap::TapHandOver;

/// Maximum number of packets that a stage of the packet path processes together.
pub const BURST: usize = 256;

/// A list of at most [`BURST`] packets.
pub type Batch = ArrayVec<Packet, BURST>;

/// Offloads and packet sizes that a queue supports for transmission. The transmit stage first performs all
/// other offloads in software (module `offload`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether the queue accepts packets with a partial TCP or UDP checksum.
    pub partial_checksum: bool,
    /// Whether the queue accepts TCP packets that must be segmented.
    pub tcp_segmentation: bool,
    /// Whether the queue accepts UDP packets that must be segmented.
    pub udp_segmentation: bool,
    /// Maximum number of frames of which one packet may consist.
    pub max_segments: u16,
    /// Maximum frame length on the wire in bytes (MTU + 14). A frame may be 4 bytes longer if it has a VLAN
    /// tag.
    pub max_frame: u32,
}

/// Counters of packets that the kernel has lost or refused. Only the kernel counts these packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Number of received frames lost because the receive ring was full.
    pub rx_ring_full: u64,
    /// Number of received frames lost because the fill ring contained no free frame.
    pub rx_fill_empty: u64,
    /// Number of received frames lost for another reason (invalid descriptors, excessive length).
    pub rx_invalid: u64,
    /// Number of transmit descriptors that the kernel has refused.
    pub tx_invalid: u64,
}

/// State of the device to which a queue belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueState {
    /// The device is present and up, or its state is not known.
    #[default]
    Up,
    /// The device is down. Packets to transmit wait in the ring until the device is up again.
    Down,
    /// The device was deleted. The queue receives and transmits no packets any more and should be closed.
    Gone,
}

/// Progress of a transmit ring. Both counters are 0 when the ring is created, and wrap around at 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmitProgress {
    /// Number of descriptors that were put into the ring.
    pub given: u32,
    /// Number of descriptors that the kernel has taken from the ring.
    pub taken: u32,
}

/// Operating mode of a queue, which `show ports` and `doctor` report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStatus {
    /// Name of the port's kind in the configuration, for example `tap`.
    pub kind: &'static str,
    /// Whether frames are moved between the device and the frame memory without a copy.
    pub zero_copy: bool,
    /// Whether system calls are made only when the kernel requests a wake-up (XDP_USE_NEED_WAKEUP).
    pub need_wakeup: bool,
    /// Reasons why the queue is not in a mode with better performance. The list is empty if the best mode is in use.
    pub reasons: Vec<String>,
}

/// Result of [`Queue::export`]: state of a queue for a successor process, with the file descriptors of the queue.
#[derive(Debug)]
pub enum Exported {
    /// An AF_XDP socket. The successor resumes the socket with [`crate::af_xdp::AfXdpQueue::import`].
    AfXdp(AfXdpHandOver),
    /// A TAP. The successor resumes the TAP with [`crate::tap::TapQueue::import`].
    Tap(TapHandOver),
    /// A queue that cannot be handed over, because it has no state outside of its process. The queue is closed,
    /// and the successor opens a queue in its place.
    Closed,
}

/// One queue of a port. Each queue belongs to one worker, and only this worker calls the functions
/// of the queue.
///
/// Implementations: AF_XDP, TAP, pcap, memory ring, null, and the generators of the benchmarks.
pub trait Queue: Send {
    /// Appends received packets to `out` until `out` is full or no packet is available. Returns the number of
    /// packets appended. The function never blocks.
    fn receive(&mut self, pool: &mut FramePool, out: &mut Batch) -> usize;

    /// Moves packets from the front of `batch` into the transmit ring until the ring is full.
    /// Returns the number of packets moved. The caller drops the packets that remain in `batch`.
    /// Frames are returned to `pool` when their transmission is complete. The function makes no
    /// system call. The caller must then call [`Self::kick`].
    fn transmit(&mut self, pool: &mut FramePool, batch: &mut Batch) -> usize;

    /// Makes the kernel process the transmit and fill rings, if the kernel has requested this. The worker
    /// calls this function once per burst.
    fn kick(&mut self, pool: &mut FramePool);

    /// Returns a file descriptor that becomes readable when packets arrive, for a worker that wants to sleep.
    /// Returns `None` if the worker must poll the queue. A memory ring has no file descriptor and reports
    /// packets through [`Self::has_pending`] and its wake-up hook.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns whether the queue has work for the worker: received packets, or packets in the transmit ring
    /// that still need a kick. The worker calls this function after it has prepared to sleep, so that no
    /// wake-up is lost.
    fn has_pending(&mut self) -> bool;

    /// Returns the progress of the transmit ring. Returns `None` if the queue has no transmit ring, or if the
    /// kernel does not process the ring because the device is down or deleted.
    fn transmit_progress(&mut self) -> Option<TransmitProgress> {
        None
    }

    /// Sets the MTU in bytes. The caller must call this function after the MTU of the port's device has changed. A
    /// queue without a device has no MTU, and ignores the call.
    fn set_mtu(&mut self, _mtu: u32) {}

    /// Returns the offloads and packet sizes that the queue supports for transmission.
    fn capabilities(&self) -> Capabilities;

    /// Returns the numbers of packets that the kernel has lost or refused so far. The function makes a system call, so
    /// it must not be called for each packet.
    fn counters(&self) -> QueueCounters {
        QueueCounters::default()
    }

    /// Returns the current operating mode of the queue.
    fn status(&self) -> QueueStatus;

    /// Returns the state of the queue's device, as found by the last system calls.
    fn state(&self) -> QueueState {
        QueueState::Up
    }

    /// Returns the number of packets that were put into the queue for transmission and have not been
    /// transmitted yet. The packets are in a ring or in the kernel.
    fn in_flight(&self) -> usize {
        0
    }

    /// Returns the number of frames of the frame memory that are in the queue's rings or that the kernel
    /// holds for the queue.
    fn frames(&self) -> usize {
        0
    }

    /// Closes the queue and returns all frames that the queue still owns to the pool. If the kernel may still access
    /// the frames, the socket is closed first.
    fn close(self: Box<Self>, pool: &mut FramePool);

    /// Converts the queue into state for a successor process. No worker may be running. Frames that the kernel holds
    /// stay with the kernel, and all other frames of the queue are returned to `pool`.
    ///
    /// If the kind of queue does not support a hand-over, the function closes the queue and returns
    /// [`Exported::Closed`].
    fn export(self: Box<Self>, pool: &mut FramePool) -> Exported;
}
