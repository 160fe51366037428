//! AF_XDP ports: frames move directly between a device's queue and the shared frame memory.
//!
//! Each (device, queue) pair has one socket. Each socket registers the whole [`FrameMemory`] as its own umem,
//! so a frame received on one port is transmitted on any other port without a copy in user space. An XDP
//! program (crate `xdp`) redirects frames to the socket. See [`AfXdpQueue::fd`].
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

use std::io;
use std::time::Duration;

pub use hand_over::{AfXdpHandOver, doubles, free_frames};
pub use queue::{AfXdpCounters, AfXdpQueue, statistics};
pub(crate) use socket::is_free;

use crate::memory::FrameMemory;
use crate::pool::LEAST_FILL;

/// Maximum number of packets that one `sendto` transmits in copy mode, if the kernel allows the setting.
const TX_BUDGET: u32 = 1024;

/// Zero-copy policy: whether frames may be copied between the device and the frame memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ZeroCopy {
    /// Zero-copy mode if the driver supports it, else copy mode with the reason in
    /// [`crate::QueueStatus::reasons`].
    #[default]
    Auto,
    /// Zero-copy mode, or an error.
    Require,
    /// Copy mode.
    Off,
}

/// Busy polling: the worker's system calls run the device's NAPI (`SO_PREFER_BUSY_POLL`) instead of softirqs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// Maximum duration of one poll in microseconds.
    pub microseconds: u32,
    /// Maximum number of packets of one poll.
    pub budget: u32,
}

/// Configuration of one queue of a device. The queue must be opened in the network namespace of the device
/// (see [`crate::netns::within`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfXdpConfig {
    /// Name of the device.
    pub ifname: String,
    /// Number of the device's queue.
    pub queue: u32,
    /// Number of entries of each ring, a power of two between 64 and 65536.
    pub ring_size: u32,
    /// Number of frames to keep in the fill ring, at most `ring_size`. More frames cover longer pauses of the
    /// worker, and fewer frames stay in the CPU caches.
    pub fill_level: u32,
    /// Zero-copy policy.
    pub zero_copy: ZeroCopy,
    /// Busy polling settings, or `None` for no busy polling.
    pub busy_poll: Option<BusyPoll>,
    /// Whether packets may span several frames (`XDP_USE_SG`). Required if the MTU exceeds a frame's data
    /// space. The XDP program must declare support for fragments.
    pub multi_buffer: bool,
    /// Whether the engine completes bare pseudo-header checksums on this port. See
    /// [`crate::offload::mark_bare_checksum`].
    pub complete_checksums: bool,
    /// Maximum time to wait for a queue whose previous socket the kernel has not released. The release takes
    /// until the last transmitted packet of that socket has been consumed.
    pub busy_wait: Duration,
}

/// Default of [`AfXdpConfig::busy_wait`], which is longer than a working receiver needs.
pub const BUSY_WAIT: Duration = Duration::from_secs(3);

impl AfXdpConfig {
    /// Returns the default configuration for a queue of the device `ifname`: rings of 2048 entries, the best
    /// mode, and multi-buffer packets.
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

/// An error of opening a queue: the queue, the cause, and advice.
#[derive(Debug, thiserror::Error)]
#[error("af_xdp port on {device}, queue {queue}: {cause}")]
pub struct AfXdpError {
    /// Name of the device.
    pub device: String,
    /// Number of the device's queue.
    pub queue: u32,
    /// Cause of the error.
    #[source]
    pub cause: AfXdpCause,
}

/// Cause of an [`AfXdpError`].
#[derive(Debug, thiserror::Error)]
pub enum AfXdpCause {
    /// The kernel does not know the address family.
    #[error(
        "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS); use a kernel that has it, or a port of kind tap"
    )]
    NoAfXdp,
    /// The process lacks privileges.
    #[error("not permitted; run as root or with CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF")]
    Privilege,
    /// The limit of locked memory is too low.
    #[error(
        "{bytes} bytes of frame memory cannot be registered ({source}); raise the limit of locked memory (LimitMEMLOCK=infinity in the unit, `ulimit -l unlimited` in a shell) or lower memory.frames"
    )]
    MemoryLock {
        /// Size of the frame memory in bytes.
        bytes: u64,
        /// Error that the kernel returned.
        source: io::Error,
    },
    /// The device does not exist.
    #[error(
        "there is no such device in this network namespace; check the name with `ip link`, or set the port's `namespace`"
    )]
    NoDevice,
    /// The device is down.
    #[error("the device is down; set it up with `ip link set dev NAME up`")]
    DeviceDown,
    /// The queue number is out of range.
    #[error(
        "the device has {queues} receive queues, numbered from 0; lower the port's queues or raise the device's with `ethtool -L`"
    )]
    NoQueue {
        /// Number of receive queues of the device.
        queues: u32,
    },
    /// Another socket is bound to the queue.
    #[error(
        "another socket is bound to this queue; stop the program that uses it (`ss --xdp -ap` shows it) or choose another queue"
    )]
    QueueBusy,
    /// The ring size is not supported.
    #[error("ring_size {0} is not possible; choose a power of two between 64 and 65536")]
    RingSize(u32),
    /// The memory has too few frames for a fill ring.
    #[error("{frames} frames of memory are too few for a fill ring; raise memory.frames")]
    Frames {
        /// Number of frames in the memory.
        frames: u32,
    },
    /// The driver refuses a mode.
    #[error(
        "the driver refuses {mode} ({source}); set zero_copy = \"auto\" so that another mode is tried, or lower the MTU so that a packet fits into a frame"
    )]
    Mode {
        /// Name of the mode.
        mode: &'static str,
        /// Error that the kernel returned.
        source: io::Error,
    },
    /// No mode is left to try.
    #[error(
        "no mode is left to try: the MTU is larger than a frame and the hook's program takes one buffer a packet; set mode = \"auto\" or lower the MTU"
    )]
    NoMode,
    /// The hand-over state does not fit the frame memory.
    #[error(
        "what the predecessor handed over does not fit this frame memory ({0}); restart without hand-over"
    )]
    HandOver(&'static str),
    /// A system call failed for another reason.
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
