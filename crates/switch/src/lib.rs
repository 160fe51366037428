//! The switch function: a VLAN-aware learning bridge (IEEE 802.1Q) with IGMP and MLD snooping (RFC 4541).
//!
//! The engine calls the bridge with the flow keys of a burst. The bridge returns one decision for each frame.
//! The bridge accesses no frame and no device. The engine rewrites tags, copies frames and transmits them.
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
//! # Behaviour by clause of the standard
//!
//! - **Ingress** (6.9, 8.6.2): ports are access, trunk or transparent, see [`VlanMode`]. Only 802.1Q tags name
//!   VLANs. A frame with an outer 802.1ad service tag is treated as untagged. Transparent ports pass such a frame
//!   unchanged.
//! - **Reserved addresses** (8.6.3): frames to 01:80:c2:00:00:00 to 0f (spanning tree, pause, LACP, 802.1X,
//!   LLDP) are dropped, all sixteen, before source learning. Drop reasons are checked in the order source
//!   address, reserved address, VLAN.
//! - **Learning** (8.7): an address is learned from its first frame, with the ingress port and the VLAN. A move to
//!   another port is counted and takes effect immediately. A frame whose source is a group address or zero is
//!   dropped ([`SourceMulticast`](packet::DropReason)). At the bridge's limit of addresses, a new address displaces
//!   the oldest learned address of the port with the most addresses, unless the port of the new address then has
//!   more. At the limit of a port, its new addresses are not learned, but its frames are still forwarded. An address
//!   that is known on another port keeps its entry until the entry expires.
//! - **Static entries** (8.8.1): static entries never age or move. A frame from a static address on another
//!   port is dropped. Frames to and from an address that is configured to discard are dropped.
//! - **Forwarding** (8.6.4): a frame is never sent back to its ingress port, from one protected port to
//!   another, or to a port outside the VLAN.
//! - **Multicast** (RFC 4541): reports are forwarded to router ports only. Queries and unknown groups are
//!   flooded. Known groups are forwarded to their listeners and the routers. The bridge itself sends
//!   no queries. Without a querier in the VLAN all groups are flooded (see [`Snooper`]).
//! - Not implemented: spanning tree, 802.1X, GVRP/MVRP, shared learning, 802.1ad provider bridging.
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
mod key_words;
mod mac_cache;
mod member;
mod multicast;
mod snooper;
mod tables;

pub use bridge::Bridge;
pub use config::{
    BridgeConfig, BridgePortConfig, MAX_AGEING_SECS, Now, StaticMac, StormLimits, VlanMode, VlanSet,
};
pub use decision::{Decision, TagForm};
pub use forward::Scratch;
pub use groups::{Family, GroupPorts, Groups, RouterPorts};
pub use member::MemberFacts;
pub use snooper::{SnoopedMessage, Snooper, SnooperConfig, SnooperCounts};
pub use tables::{BridgeTables, FdbEntry, OffloadInvalidator, TableCounts};
