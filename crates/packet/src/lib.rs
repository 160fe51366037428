//! Header parsers, packet building, checksums, the flow key and drop reasons.
//!
//! This crate is the lowest layer of the workspace. It works on bytes and has no access to port memory, tables or
//! threads. All other crates use the types that are defined here.
//! ```text
//!  frame bytes --FlowKey::extract--> FlowKey (64 B) + Layers (8 B)    the data path's form: look-up, hash, match
//!       |                                 or DropReason                (only when the L2 header is broken)
//!       +------- eth::Eth::parse, ipv4::Ipv4::parse, ... -> views     one protocol a file: punt, snooping, tests
//!       +<------ build::PacketBuilder, spec::parse                    lengths and checksums filled in
//! ```
//!
//! ```
//! use packet::{FlowKey, PortId, filter::Filter, spec};
//!
//! let frame = spec::parse("vlan=10,ip_src=10.0.0.1,ip_dst=10.0.0.2,udp,dst_port=53")?;
//! let mut key = FlowKey::ZERO;
//! let layers = FlowKey::extract(&frame, frame.len(), PortId(3), &mut key).expect("the L2 header is whole");
//! assert_eq!((layers.l3(), key.dst_port()), (Some(18), 53));
//! assert!(Filter::parse("in_port=3,udp,ip_dst=10.0.0.0/8")?.matches(&key));
//! # Ok::<(), spec::TextError>(())
//! ```
//!
//! Invariants: no function of this crate panics on any input. No function on the data path allocates, locks
//! or reads a clock.

mod drop_reason;
mod error;
mod ids;
mod ip_options;
mod mac;
mod numbers;
mod punt_class;
mod words;

pub mod arp;
pub mod build;
pub mod checksum;
pub mod eth;
pub mod filter;
pub mod flow_key;
pub mod icmp;
pub mod icmpv6;
pub mod igmp;
pub mod ipv4;
pub mod ipv6;
pub mod ipv6_ext;
pub mod mld;
pub mod net;
pub mod record;
pub mod sctp;
pub mod spec;
pub mod tcp;
pub mod udp;
pub mod vlan;
pub mod vxlan;

pub use drop_reason::DropReason;
pub use error::{BuildError, HeaderError};
pub use flow_key::{FlowKey, L3Kind, Layers};
pub use ids::{BridgeId, PortId, QueueId, VlanId, VlanTags, WorkerId};
pub use mac::{MacAddr, MacParseError};
pub use numbers::{ethertype, ip_proto};
pub use punt_class::PuntClass;
