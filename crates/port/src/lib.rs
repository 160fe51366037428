//! Frame memory and the ports that move frames in and out of it.
//!
//! ```text
//!   FrameMemory (one memfd, equal frames)        worker
//!        ^            ^                            |
//!        |            '--- FramePool (free list) --+-- Batch of Packet handles
//!        |                                         |
//!     kernel rings  <---- Queue (AF_XDP, TAP, ring, null, pcap): receive / transmit / kick
//! ```
//!
//! A [`Packet`] is the right to touch one frame (or a chain of them): it can be neither copied nor cloned, so a frame has
//! one owner at any moment. A [`Queue`] is one (port, queue) pair and belongs to exactly one worker.
//!
//! Unsafe code lives in `memory` and in the kernel-facing modules; every access goes through bounds that are checked also
//! in release builds.

pub mod af_xdp;
pub mod ethtool;
pub mod link;
pub mod memory;
mod netlink;
pub mod netns;
pub mod null;
pub mod offload;
pub mod packet;
pub mod pcap;
pub mod pool;
#[cfg(test)]
mod pool_tests;
pub mod queue;
pub mod ring;
mod sys;
pub mod tap;
pub mod veth;
mod vnet;
pub mod watch;

pub use memory::{FrameMemory, HugePages, MemoryConfig, MemoryError};
pub use netlink::NetlinkError;
pub use packet::{Flags, Gso, Packet};
pub use pool::{Depot, FramePool};
pub use queue::{BURST, Batch, Capabilities, Queue, QueueCounters, QueueState, QueueStatus};
