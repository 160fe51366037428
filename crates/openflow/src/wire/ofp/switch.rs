//! Constants of the handshake, the switch configuration, roles, asynchronous messages and bundles (OpenFlow 1.5.1
//! sections 7.3.1, 7.3.2, 7.3.8, 7.3.9, 7.3.10 and 7.4).
//!
//! Section numbers are those of OpenFlow 1.5.1, unless another version is named.

/// Type of the hello element with the bitmap of supported OpenFlow versions (section 7.5.1).
pub const OFPHET_VERSIONBITMAP: u16 = 1;
/// Switch capability: counters of flow entries (section 7.3.1).
pub const OFPC_FLOW_STATS: u32 = 1;
/// Switch capability: counters of tables (section 7.3.1).
pub const OFPC_TABLE_STATS: u32 = 1 << 1;
/// Switch capability: counters of ports (section 7.3.1).
pub const OFPC_PORT_STATS: u32 = 1 << 2;
/// Switch capability: counters of groups, since OpenFlow 1.1 (section 7.3.1).
pub const OFPC_GROUP_STATS: u32 = 1 << 3;
/// Switch capability: counters of queues (section 7.3.1).
pub const OFPC_QUEUE_STATS: u32 = 1 << 6;
/// Switch capability: matching of IP addresses in ARP packets, up to OpenFlow 1.1 (OpenFlow 1.0 section 5.3.1).
pub const OFPC_ARP_MATCH_IP: u32 = 1 << 7;
/// Switch capability: bundles, since OpenFlow 1.4 (section 7.3.1).
pub const OFPC_BUNDLES: u32 = 1 << 9;
/// Switch capability: flow monitors, since OpenFlow 1.4 (section 7.3.1).
pub const OFPC_FLOW_MONITORING: u32 = 1 << 10;
/// Configuration flag: IP fragments are matched as packets without transport ports (section 7.3.2).
pub const OFPC_FRAG_NORMAL: u16 = 0;
/// Configuration flag: IP fragments are dropped (section 7.3.2).
pub const OFPC_FRAG_DROP: u16 = 1;
/// Configuration flag: IP fragments are reassembled (section 7.3.2).
pub const OFPC_FRAG_REASM: u16 = 2;
/// Configuration flag: first IP fragments are matched with their transport ports (Open vSwitch's
/// `openflow-common.h`).
pub const OFPC_FRAG_NX_MATCH: u16 = 3;
/// Bit mask of the configuration flags for IP fragments (section 7.3.2).
pub const OFPC_FRAG_MASK: u16 = 3;
/// Configuration flag: packets with an invalid TTL go to the controller (OpenFlow 1.1 section A.3.2).
pub const OFPC_INVALID_TTL_TO_CONTROLLER: u16 = 1 << 2;
/// Role request that does not change the role (section 7.3.8).
pub const OFPCR_ROLE_NOCHANGE: u32 = 0;
/// Role with full access that several controllers may have (section 7.3.8).
pub const OFPCR_ROLE_EQUAL: u32 = 1;
/// Role with full access that at most one controller may have (section 7.3.8).
pub const OFPCR_ROLE_MASTER: u32 = 2;
/// Role of a controller with read-only access (section 7.3.8).
pub const OFPCR_ROLE_SLAVE: u32 = 3;
/// Reason of a role status: another controller has become master (section 7.4.4).
pub const OFPCRR_MASTER_REQUEST: u8 = 0;
/// Reason of a role status: an experimenter defines the reason (section 7.4.4).
pub const OFPCRR_EXPERIMENTER: u8 = 2;
/// Type of a bundle control message that opens a bundle (section 7.3.9).
pub const OFPBCT_OPEN_REQUEST: u16 = 0;
/// Type of a bundle control message that closes a bundle (section 7.3.9).
pub const OFPBCT_CLOSE_REQUEST: u16 = 2;
/// Type of a bundle control message that commits a bundle (section 7.3.9).
pub const OFPBCT_COMMIT_REQUEST: u16 = 4;
/// Type of a bundle control message that discards a bundle (section 7.3.9).
pub const OFPBCT_DISCARD_REQUEST: u16 = 6;
/// Flag of a bundle: all its changes are applied, or none (section 7.3.9).
pub const OFPBF_ATOMIC: u16 = 1;
/// Flag of a bundle: its changes are applied in the order in which they were added (section 7.3.9).
pub const OFPBF_ORDERED: u16 = 1 << 1;
/// Reason of a port status: the port was added (section 7.4.3).
pub const OFPPR_ADD: u8 = 0;
/// Reason of a port status: the port was removed (section 7.4.3).
pub const OFPPR_DELETE: u8 = 1;
/// Reason of a port status: the port was changed (section 7.4.3).
pub const OFPPR_MODIFY: u8 = 2;
/// Reason of a packet-in: no flow entry matched. The name is OFPR_TABLE_MISS since OpenFlow 1.4
/// (section 7.4.1).
pub const OFPR_NO_MATCH: u8 = 0;
/// Reason of a packet-in: an action sent the packet. The name is OFPR_APPLY_ACTION since OpenFlow
/// 1.4 (section 7.4.1).
pub const OFPR_ACTION: u8 = 1;
/// Reason of a packet-in: the TTL of the packet is invalid (section 7.4.1).
pub const OFPR_INVALID_TTL: u8 = 2;
/// Reason of a packet-in: an action of the action set sent the packet, since OpenFlow 1.4 (section 7.4.1).
pub const OFPR_ACTION_SET: u8 = 3;
/// Reason of a packet-in: an action of a group sent the packet, since OpenFlow 1.4 (section 7.4.1).
pub const OFPR_GROUP: u8 = 4;
/// Reason of a packet-in: an action of a packet-out sent the packet, since OpenFlow 1.4 (section 7.4.1).
pub const OFPR_PACKET_OUT: u8 = 5;
/// Reason of a forwarded request: a group-mod (section 7.4.6).
pub const OFPRFR_GROUP_MOD: u8 = 0;
/// Reason of a forwarded request: a meter-mod (section 7.4.6).
pub const OFPRFR_METER_MOD: u8 = 1;
/// Smallest type of an experimenter property of the asynchronous configuration (section 7.3.10).
pub const OFPACPT_EXPERIMENTER_SLAVE: u16 = 0xfffe;
