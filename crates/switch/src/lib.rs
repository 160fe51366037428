//! The switch: a VLAN-aware learning bridge (IEEE 802.1Q) with IGMP and MLD snooping (RFC 4541).
//!
//! A room of the engine: it is handed the flow keys of a burst and answers with a decision for each frame. It touches
//! no frame and no device; rewriting tags, copying and transmitting are the engine's.
//!
//! ```text
//!            keys of a burst                                 control threads
//!                  |                                                |
//!   forward:  VLAN admitted? -> source known? -> destination?       +- Bridge::new / reconfigured / with_groups
//!                  |             learn, move         |              +- Bridge::age once a second, fdb, flush
//!                  v                                 v              +- Snooper::handle, tick  -> Groups
//!            Decision: Forward | Flood | Group | Drop(reason), punt?
//!                                   |
//!                        Bridge::flood names the outputs and the change of the outer tag for each
//! ```
//!
//! # What it does and does not do, by the standard
//!
//! - **Ingress** (6.9, 8.6.2): access, trunk and transparent ports, see [`VlanMode`]. Only 802.1Q tags name VLANs; a
//!   frame with an 802.1ad service tag counts as untagged, and passes transparent ports unchanged.
//! - **Reserved addresses** (8.6.3): frames for 01:80:c2:00:00:00 to 0f (spanning tree, pause, LACP, 802.1X, LLDP, ...)
//!   are dropped, all sixteen, before anything is learned from them. Drop reasons are looked for in the order source
//!   address, reserved address, VLAN.
//! - **Learning** (8.7): at once, from the first frame, on the port and VLAN of arrival; a move counts and takes effect
//!   at once. A source that is a group address or zero is dropped ([`SourceMulticast`](packet::DropReason)). Beyond the
//!   limits of bridge or port nothing is learned, frames are still forwarded, and no known station makes way. A
//!   station that turns up on a port at its limit stays where it was known until it ages.
//! - **Static entries** (8.8.1): never age or move. A frame from such an address on another port is dropped; frames to
//!   and from an address that is configured to discard are dropped.
//! - **Forwarding** (8.6.4): never back, never between two protected ports, never to a port outside the VLAN.
//! - **Multicast** (RFC 4541): reports go to router ports only, queries and unknown groups everywhere, known groups to
//!   their listeners and the routers. There is no querier of our own yet: without one in the VLAN all groups flood (see
//!   [`Snooper`]).
//! - Not here: spanning tree, 802.1X, GVRP/MVRP, shared learning, 802.1ad provider bridging.
//!
//! ```
//! use packet::{BridgeId, FlowKey, Layers, MacAddr, PortId, VlanId, record::NoRecord};
//! use switch::{Bridge, BridgeConfig, BridgePortConfig, Decision, Now, Scratch, VlanMode};
//!
//! let vlan = VlanId::new(10).unwrap();
//! let port = |number| BridgePortConfig::new(PortId(number), VlanMode::Access(vlan));
//! let config = BridgeConfig { ports: vec![port(1), port(2), port(3)], ..BridgeConfig::default() };
//! let bridge = Bridge::new(&config, 0x5eed);
//!
//! let frame = |from: u8, to: u8, port| {
//!     let mut key = FlowKey::ZERO;
//!     key.set_in_port(PortId(port));
//!     key.set_eth_src(MacAddr([2, 0, 0, 0, 0, from]));
//!     key.set_eth_dst(MacAddr([2, 0, 0, 0, 0, to]));
//!     key
//! };
//! let keys = [frame(1, 2, 1), frame(2, 1, 2)];
//! let mut out = [Decision::default(); 2];
//! let (layers, mut scratch) = ([Layers::default(); 2], Scratch::new());
//! bridge.forward(&keys, &layers, Now::from_secs(1), &mut scratch, &mut out, &mut NoRecord);
//!
//! let mut outputs = Vec::new();
//! bridge.flood(PortId(1), &out[0], |port, _tag| outputs.push(port));
//! assert_eq!(outputs, [PortId(2), PortId(3)]);
//! assert!(matches!(out[1], Decision::Forward { port: PortId(1), .. }));
//! ```

mod bridge;
mod config;
mod decision;
pub mod flow;
mod forward;
mod groups;
mod member;
mod multicast;
mod recall;
mod snooper;
mod tables;

pub use bridge::{Bridge, MemberFacts};
pub use config::{
    BridgeConfig, BridgePortConfig, MAX_AGEING_SECS, Now, StaticMac, StormLimits, VlanMode, VlanSet,
};
pub use decision::{Decision, TagForm};
pub use forward::Scratch;
pub use groups::{Family, GroupPorts, Groups, RouterPorts};
pub use snooper::{Snooper, SnooperConfig, SnooperCounts};
pub use tables::{BridgeTables, FdbEntry, Shortcut, TableCounts};
