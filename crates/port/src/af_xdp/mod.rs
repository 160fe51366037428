//! AF_XDP: frames straight between a device's queue and the shared frame memory.
//!
//! Each (device, queue) has one socket; each socket registers the whole [`FrameMemory`] as its own umem, so a frame that was
//! received on one port is transmitted on any other without a copy in user space. An XDP program (crate `xdp`) steers
//! frames to the socket; see [`AfXdpQueue::fd`].
//!
//! ```text
//!   pool --address--> fill ring --> kernel --> receive ring --> Packet
//!   Packet --descriptor--> transmit ring --> kernel --> completion ring --> pool
//! ```
//!
//! See `Documentation/networking/af_xdp.rst` of the Linux kernel.

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

/// Packets that one `sendto` may take in copy mode, where the kernel lets us choose.
const TX_BUDGET: u32 = 1024;

/// Whether frames may be copied between the device and the frame memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ZeroCopy {
    /// Zero copy if the driver has it, else copy mode, with the reason in [`crate::QueueStatus::reasons`].
    #[default]
    Auto,
    /// Zero copy or an error.
    Require,
    /// Copy mode.
    Off,
}

/// Let the worker's system calls run the device's NAPI (`SO_PREFER_BUSY_POLL`) rather than softirqs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// Longest poll of one call, in microseconds.
    pub microseconds: u32,
    /// Most packets of one call.
    pub budget: u32,
}

/// How to open one queue of a device. Open it in the network namespace of the device (see [`crate::netns::within`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfXdpConfig {
    /// The device's name.
    pub ifname: String,
    /// Its queue.
    pub queue: u32,
    /// Entries of each ring: a power of two between 64 and 65536.
    pub ring_size: u32,
    /// Frames to keep in the fill ring; at most `ring_size`. More ride out longer pauses of the worker, fewer stay in
    /// the caches.
    pub fill_level: u32,
    /// Zero copy.
    pub zero_copy: ZeroCopy,
    /// Busy polling.
    pub busy_poll: Option<BusyPoll>,
    /// Packets over several frames (`XDP_USE_SG`); needed when the MTU is larger than a frame's room, and the XDP program must
    /// declare that it knows fragments.
    pub multi_buffer: bool,
    /// The engine is to look for bare pseudo-header checksums on this port; see [`crate::offload::mark_bare_checksum`].
    pub complete_checksums: bool,
    /// How long to wait for a queue whose former socket the kernel has not let go of: that takes until the last packet that it sent has been
    /// consumed.
    pub busy_wait: Duration,
}

/// What [`AfXdpConfig::busy_wait`] is by default: longer than a receiver that works needs.
pub const BUSY_WAIT: Duration = Duration::from_secs(3);

impl AfXdpConfig {
    /// Defaults for a queue of the device `ifname`: rings of 2048, the best mode, several buffers a packet.
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

/// Why a queue could not be opened: which, the cause, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("af_xdp port on {device}, queue {queue}: {cause}")]
pub struct AfXdpError {
    /// The device's name.
    pub device: String,
    /// Its queue.
    pub queue: u32,
    /// What went wrong.
    #[source]
    pub cause: AfXdpCause,
}

/// See [`AfXdpError`].
#[derive(Debug, thiserror::Error)]
pub enum AfXdpCause {
    /// Address family unknown.
    #[error(
        "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS); use a kernel that has it, or a port of kind tap"
    )]
    NoAfXdp,
    /// Not allowed.
    #[error("not permitted; run as root or with CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF")]
    Privilege,
    /// Locked memory limit.
    #[error(
        "{bytes} bytes of frame memory cannot be registered ({source}); raise the limit of locked memory (LimitMEMLOCK=infinity in the unit, `ulimit -l unlimited` in a shell) or lower memory.frames"
    )]
    MemoryLock {
        /// Size of the frame memory.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// No such device.
    #[error(
        "there is no such device in this network namespace; check the name with `ip link`, or set the port's `namespace`"
    )]
    NoDevice,
    /// The device is down.
    #[error("the device is down; set it up with `ip link set dev NAME up`")]
    DeviceDown,
    /// Queue out of range.
    #[error(
        "the device has {queues} receive queues, numbered from 0; lower the port's queues or raise the device's with `ethtool -L`"
    )]
    NoQueue {
        /// Queues that there are.
        queues: u32,
    },
    /// Another socket has the queue.
    #[error(
        "another socket is bound to this queue; stop the program that uses it (`ss --xdp -ap` shows it) or choose another queue"
    )]
    QueueBusy,
    /// Ring size.
    #[error("ring_size {0} is not possible; choose a power of two between 64 and 65536")]
    RingSize(u32),
    /// The memory is too small for a fill ring.
    #[error("{frames} frames of memory are too few for a fill ring; raise memory.frames")]
    Frames {
        /// Frames that there are.
        frames: u32,
    },
    /// The driver refuses a mode.
    #[error(
        "the driver refuses {mode} ({source}); set zero_copy = \"auto\" so that another mode is tried, or lower the MTU so that a packet fits into a frame"
    )]
    Mode {
        /// The mode.
        mode: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// No mode left to try.
    #[error(
        "no mode is left to try: the MTU is larger than a frame and the hook's program takes one buffer a packet; set mode = \"auto\" or lower the MTU"
    )]
    NoMode,
    /// What was handed over does not fit.
    #[error(
        "what the predecessor handed over does not fit this frame memory ({0}); restart without hand-over"
    )]
    HandOver(&'static str),
    /// Another failure.
    #[error("{call} failed ({source}); see the kernel's log for more")]
    Os {
        /// System call.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl AfXdpCause {
    fn os(call: &'static str, source: io::Error) -> Self {
        Self::Os { call, source }
    }
}
