//! AF_XDP ports, which move frames directly between the queues of a device and the shared frame memory.
//!
//! Each queue of a device has one AF_XDP socket. Each socket registers the whole [`FrameMemory`] as its umem.
//! Therefore a frame that was received on one port can be transmitted on any other port without a copy in
//! user space. An XDP program (crate `xdp`) redirects received frames to the socket. See [`AfXdpQueue::fd`].
//!
//! ```text
//!   pool --address--> fill ring --> kernel --> receive ring --> Packet
//!   Packet --descriptor--> transmit ring --> kernel --> completion ring --> pool
//! ```
//!
//! The kernel's documentation is `Documentation/networking/af_xdp.rst`.

mod abi;
mod call;
mod hand_over;
mod owned;
mod queue;
mod ring;
mod rings;
#[cfg(test)]
mod rings_tests;
mod socket;
mod umem;

use std::io;
use std::time::Duration;

pub use hand_over::{AfXdpHandOver, doubles, free_frames};
pub use queue::{AfXdpCounters, AfXdpQueue, statistics};
pub(crate) use umem::is_free;

use crate::memory::FrameMemory;
use crate::pool::LEAST_FILL;

/// Maximum number of packets that one `sendto` call transmits in copy mode, if the kernel supports the socket option
/// `XDP_MAX_TX_SKB_BUDGET`.
const TX_BUDGET: u32 = 1024;

/// Zero-copy policy of a queue, which determines whether the kernel may copy frames between the device and
/// the frame memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ZeroCopy {
    /// Uses zero-copy mode if the driver supports it. Otherwise uses copy mode, and
    /// [`crate::QueueStatus::reasons`] contains the reason.
    #[default]
    Auto,
    /// Uses zero-copy mode. Opening the queue fails if the driver does not support it.
    Require,
    /// Uses copy mode.
    Off,
}

/// Settings for busy polling (`SO_PREFER_BUSY_POLL`). The device's NAPI then runs in the worker's system
/// calls instead of in softirqs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// Maximum duration of one busy poll in microseconds (`SO_BUSY_POLL`).
    pub microseconds: u32,
    /// Maximum number of packets that one busy poll processes (`SO_BUSY_POLL_BUDGET`).
    pub budget: u32,
}

/// Configuration of one AF_XDP queue. The queue must be opened in the network namespace of its device (see
/// [`crate::netns::within`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfXdpConfig {
    /// Name of the device.
    pub ifname: String,
    /// Index of the device's receive queue, starting from 0.
    pub queue: u32,
    /// Number of entries in each of the socket's four rings. The number must be a power of two between 64 and
    /// 65536.
    pub ring_size: u32,
    /// Number of free frames that the fill ring should contain, at most `ring_size`. With more frames, the worker may
    /// pause for longer before received packets are lost. With fewer frames, a larger part of the frames stays in the
    /// CPU caches.
    pub fill_level: u32,
    /// Zero-copy policy of the queue.
    pub zero_copy: ZeroCopy,
    /// Busy polling settings, or `None` to disable busy polling.
    pub busy_poll: Option<BusyPoll>,
    /// Whether packets may span several frames (`XDP_USE_SG`). This is required if a packet of the device's
    /// MTU does not fit into one frame. The XDP program must declare that it supports fragments.
    pub multi_buffer: bool,
    /// Whether the engine completes the TCP and UDP checksums of packets that this port receives, if a checksum
    /// contains only the pseudo-header sum. See [`crate::offload::mark_bare_checksum`].
    pub complete_checksums: bool,
    /// Maximum time to wait for the kernel to release the previous socket of the queue. The kernel releases a
    /// socket when the last packet that the socket transmitted has been consumed by its receiver.
    pub busy_wait: Duration,
}

/// Default of [`AfXdpConfig::busy_wait`]. A receiver without defects consumes its packets in less time.
pub const BUSY_WAIT: Duration = Duration::from_secs(3);

impl AfXdpConfig {
    /// Returns the default configuration for queue `queue` of the device `ifname`. The rings have 2048
    /// entries, the zero-copy policy is `ZeroCopy::Auto`, and packets may span several frames.
    #[must_use]
    pub fn new(ifname: impl Into<String>, queue: u32) -> Self {
        Self {
            ifname: ifname.into(),
            queue,
            ring_size: 2048,
            fill_level: 2048,
            zero_copy: ZeroCopy::Auto,
            busy_poll: None,
            multi_buffer: true,
            complete_checksums: false,
            busy_wait: BUSY_WAIT,
        }
    }

    fn error(&self, cause: AfXdpCause) -> AfXdpError {
        AfXdpError { device: self.ifname.clone(), queue: self.queue, cause }
    }

    fn check(&self, memory: &FrameMemory) -> Result<(), AfXdpError> {
        if !self.ring_size.is_power_of_two() || !(64..=65536).contains(&self.ring_size) {
            return Err(self.error(AfXdpCause::RingSize(self.ring_size)));
        }
        if memory.frames() < 2 * LEAST_FILL {
            return Err(self.error(AfXdpCause::Frames { frames: memory.frames() }));
        }
        Ok(())
    }
}

/// An error of opening an AF_XDP queue. The message names the queue, the cause and advice for the operator.
#[derive(Debug, thiserror::Error)]
#[error("af_xdp port on {device}, queue {queue}: {cause}")]
pub struct AfXdpError {
    /// Name of the device.
    pub device: String,
    /// Index of the device's receive queue.
    pub queue: u32,
    /// Cause of the error.
    #[source]
    pub cause: AfXdpCause,
}

/// Cause of the error in an [`AfXdpError`].
#[derive(Debug, thiserror::Error)]
pub enum AfXdpCause {
    /// The kernel does not support AF_XDP sockets.
    #[error(
        "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS); use a kernel that has it, or a port of kind tap"
    )]
    NoAfXdp,
    /// The process lacks the required privileges.
    #[error("not permitted; run as root or with CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF")]
    Privilege,
    /// The limit of locked memory of the process is too low for the frame memory.
    #[error(
        "{bytes} bytes of frame memory cannot be registered ({source}); raise the limit of locked memory (LimitMEMLOCK=infinity in the unit, `ulimit -l unlimited` in a shell) or lower memory.frames"
    )]
    MemoryLock {
        /// Size of the frame memory in bytes.
        bytes: u64,
        /// Error that the kernel returned.
        source: io::Error,
    },
    /// The network namespace has no device with this name.
    #[error(
        "there is no such device in this network namespace; check the name with `ip link`, or set the port's `namespace`"
    )]
    NoDevice,
    /// The device is administratively down.
    #[error("the device is down; set it up with `ip link set dev NAME up`")]
    DeviceDown,
    /// The queue index is not less than the number of receive queues of the device.
    #[error(
        "the device has {queues} receive queues, numbered from 0; lower the port's queues or raise the device's with `ethtool -L`"
    )]
    NoQueue {
        /// Number of receive queues of the device.
        queues: u32,
    },
    /// Another socket is already bound to the queue.
    #[error(
        "another socket is bound to this queue; stop the program that uses it (`ss --xdp -ap` shows it) or choose another queue"
    )]
    QueueBusy,
    /// The requested ring size is not supported. The field is the requested number of entries.
    #[error("ring_size {0} is not possible; choose a power of two between 64 and 65536")]
    RingSize(u32),
    /// The frame memory has too few free frames to fill the fill ring.
    #[error("{frames} frames of memory are too few for a fill ring; raise memory.frames")]
    Frames {
        /// Number of frames in the frame memory.
        frames: u32,
    },
    /// The driver refuses a socket mode that the configuration requires.
    #[error(
        "the driver refuses {mode} ({source}); set zero_copy = \"auto\" so that another mode is tried, or lower the MTU so that a packet fits into a frame"
    )]
    Mode {
        /// Name of the refused mode.
        mode: &'static str,
        /// Error that the kernel returned.
        source: io::Error,
    },
    /// No mode of the socket is permitted by both the driver and the configuration.
    #[error(
        "no mode is left to try: the MTU is larger than a frame and the hook's program takes one buffer a packet; set mode = \"auto\" or lower the MTU"
    )]
    NoMode,
    /// The hand-over state does not fit the frame memory. The field describes the contradiction.
    #[error(
        "what the predecessor handed over does not fit this frame memory ({0}); restart without hand-over"
    )]
    HandOver(&'static str),
    /// A system call failed for a reason that no other variant describes.
    #[error("{call} failed ({source}); see the kernel's log for more")]
    Os {
        /// Name of the system call.
        call: &'static str,
        /// Error that the kernel returned.
        source: io::Error,
    },
}

impl AfXdpCause {
    fn os(call: &'static str, source: io::Error) -> Self {
        Self::Os { call, source }
    }
}
