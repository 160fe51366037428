//! Frame memory for packets, and the ports that receive packets into the frame memory and transmit packets from
//! it.
//!
//! ```text
//!   FrameMemory (one memfd, equal frames)        worker
//!        ^            ^                            |
//!        |            '--- FramePool (free list) --+-- Batch of Packet handles
//!        |                                         |
//!     kernel rings  <---- Queue (AF_XDP, TAP, ring, null, pcap): receive / transmit / kick
//! ```
//!
//! A [`Packet`] is an exclusive handle to one frame or to a chain of frames. A handle can be neither copied nor
//! cloned, so no frame belongs to two packets. A [`Queue`] is one queue of a port. Each queue belongs to
//! exactly one worker.
//!
//! ```
//! use port::{Batch, Depot, FrameMemory, HugePages, MemoryConfig, Queue};
//!
//! let config = MemoryConfig { frames: 64, huge_pages: HugePages::Off, ..MemoryConfig::default() };
//! let depot = Depot::new(FrameMemory::new(config)?.into());
//! let mut pool = depot.pool();
//! let (mut near, mut far) = port::ring::pair(8);
//!
//! let mut batch = Batch::new();
//! batch.push(pool.alloc_copy(b"a frame of sixty bytes or more").expect("a free frame"));
//! assert_eq!(near.transmit(&mut pool, &mut batch), 1);
//!
//! assert_eq!(far.receive(&mut pool, &mut batch), 1);
//! assert!(batch[0].head(pool.memory()).starts_with(b"a frame"));
//! batch.drain(..).for_each(|packet| pool.free(packet));
//! # Ok::<(), port::MemoryError>(())
//! ```
//!
//! | module | port |
//! |---|---|
//! | [`af_xdp`] | a queue of a device that stays under the kernel's control |
//! | [`veth`] | a veth pair for a namespace, whose near end is an `af_xdp` port |
//! | [`tap`] | a TAP device (port kinds `tap` and `internal`) |
//! | [`pcap`] | capture files |
//! | [`ring`], [`null`] | ports in memory, for tests and benchmarks |
//!
//! Other modules:
//!
//! - [`offload`] performs in software the offloads that an output port does not support.
//! - [`link`], [`ethtool`], [`netdev`], [`watch`] and [`netns`] query and change the state of devices and
//!   namespaces in the kernel.
//! - [`bound`] opens sockets that are bound to one device.
//! - [`tcp_sessions`] and [`tcp_users`] query TCP connections of this host.
//!
//! Only `memory` and the modules that call the kernel contain unsafe code. Every access to frame memory is
//! checked against its bounds, also in release builds.

pub mod af_xdp;
pub mod bound;
pub mod ethtool;
pub mod link;
mod link_error;
pub mod memory;
pub mod netdev;
pub mod netfilter;
pub mod netlink;
pub mod netns;
pub mod null;
pub mod offload;
pub mod packet;
pub mod pcap;
pub mod pool;
#[cfg(test)]
mod pool_tests;
pub mod quarantine;
pub mod queue;
pub mod ring;
mod sys;
pub mod tap;
pub mod tcp_sessions;
pub mod tcp_users;
pub mod veth;
mod vnet;
pub mod watch;
pub mod ways;

pub use memory::{Backing, FrameMemory, HugePages, MemoryConfig, MemoryError, pages_to_reserve};
pub use netlink::NetlinkError;
pub use packet::{Flags, Gso, HOPS, MAX_LENGTH, Offload, Packet};
pub use pool::{Depot, FramePool, LEAST_FILL};
pub use quarantine::{Place, Quarantine};
pub use queue::{
    BURST, Batch, Capabilities, Exported, Queue, QueueCounters, QueueState, QueueStatus, TransmitProgress,
};
