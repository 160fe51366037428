//! Constants of Nicira's extensions (Open vSwitch's `nicira-ext.h` and `ofp-msgs.h`). The subtypes of actions (NXAST_*)
//! are constants of the module for actions.

/// Nicira subtype of a role request, for OpenFlow 1.0 and 1.1.
pub const NXT_ROLE_REQUEST: u32 = 10;
/// Nicira subtype of a role reply, for OpenFlow 1.0 and 1.1.
pub const NXT_ROLE_REPLY: u32 = 11;
/// Nicira subtype of the message that selects the format of matches in OpenFlow 1.0.
pub const NXT_SET_FLOW_FORMAT: u32 = 12;
/// Nicira subtype of a flow-mod with an NXM match.
pub const NXT_FLOW_MOD: u32 = 13;
/// Nicira subtype of a message that reports the removal of a flow entry with an NXM match.
pub const NXT_FLOW_REMOVED: u32 = 14;
/// Nicira subtype of the message that enables table numbers in the command field of flow-mods.
pub const NXT_FLOW_MOD_TABLE_ID: u32 = 15;
/// Nicira subtype of the message that selects the format of packet-ins.
pub const NXT_SET_PACKET_IN_FORMAT: u32 = 16;
/// Nicira subtype of a packet-in with an NXM match.
pub const NXT_PACKET_IN: u32 = 17;
/// Nicira subtype of the message that requests the ages of flow entries.
pub const NXT_FLOW_AGE: u32 = 18;
/// Nicira subtype of the message that sets the configuration of asynchronous messages.
pub const NXT_SET_ASYNC_CONFIG: u32 = 19;
/// Nicira subtype of the message that sets the ID by which controller actions select the controller.
pub const NXT_SET_CONTROLLER_ID: u32 = 20;
/// Nicira subtype of the message that deletes a flow monitor.
pub const NXT_FLOW_MONITOR_CANCEL: u32 = 21;
/// Nicira subtype of the message that changes the mapping of tunnel options to match fields.
pub const NXT_TLV_TABLE_MOD: u32 = 24;
/// Nicira subtype of a request for the mapping of tunnel options to match fields.
pub const NXT_TLV_TABLE_REQUEST: u32 = 25;
/// Nicira subtype of a reply with the mapping of tunnel options to match fields.
pub const NXT_TLV_TABLE_REPLY: u32 = 26;
/// Nicira subtype of the message that sets the configuration of asynchronous messages as a list of properties.
pub const NXT_SET_ASYNC_CONFIG2: u32 = 27;
/// Nicira subtype of the message that resumes the processing of a paused packet.
pub const NXT_RESUME: u32 = 28;
/// Nicira subtype of the message that removes the tracked connections of a conntrack zone.
pub const NXT_CT_FLUSH_ZONE: u32 = 29;
/// Nicira subtype of a packet-in that consists of properties.
pub const NXT_PACKET_IN2: u32 = 30;
/// Nicira subtype of a group-mod, for OpenFlow 1.0.
pub const NXT_GROUP_MOD: u32 = 31;
/// Nicira subtype of the message that removes selected tracked connections.
pub const NXT_CT_FLUSH: u32 = 32;
/// Nicira subtype of the message that forwards a copy of another controller's request, for OpenFlow 1.0 to 1.2.
pub const NXT_REQUESTFORWARD: u32 = 132;
/// Experimenter statistics subtype: flow entries, for OpenFlow 1.0.
pub const NXST_FLOW: u32 = 0;
/// Experimenter statistics subtype: sums of the counters of flow entries, for OpenFlow 1.0.
pub const NXST_AGGREGATE: u32 = 1;
/// Experimenter statistics subtype: flow monitors, for OpenFlow 1.0 to 1.2.
pub const NXST_FLOW_MONITOR: u32 = 2;
/// Experimenter statistics subtype: counters of groups, for OpenFlow 1.0.
pub const NXST_GROUP: u32 = 7;
/// Experimenter statistics subtype: descriptions of groups, for OpenFlow 1.0.
pub const NXST_GROUP_DESC: u32 = 8;
/// Experimenter statistics subtype: features of groups, for OpenFlow 1.0 and 1.1.
pub const NXST_GROUP_FEATURES: u32 = 9;
/// Number of the role with full access that several controllers may have at a time.
pub const NX_ROLE_OTHER: u32 = 0;
/// Number of the role with full access that at most one controller may have at a time.
pub const NX_ROLE_MASTER: u32 = 1;
/// Number of the role with read-only access.
pub const NX_ROLE_SLAVE: u32 = 2;
/// Format of matches: the fixed match of OpenFlow 1.0.
pub const NXFF_OPENFLOW10: u32 = 0;
/// Format of matches: lists of NXM fields.
pub const NXFF_NXM: u32 = 2;
/// Format of packet-ins: OFPT_PACKET_IN.
pub const NXPIF_STANDARD: u32 = 0;
/// Format of packet-ins: NXT_PACKET_IN.
pub const NXPIF_NXT_PACKET_IN: u32 = 1;
/// Format of packet-ins: NXT_PACKET_IN2.
pub const NXPIF_NXT_PACKET_IN2: u32 = 2;
/// NXT_PACKET_IN2 property type: the packet.
pub const NXPINT_PACKET: u16 = 0;
/// NXT_PACKET_IN2 property type: the length of the complete packet.
pub const NXPINT_FULL_LEN: u16 = 1;
/// NXT_PACKET_IN2 property type: the number of the flow table.
pub const NXPINT_TABLE_ID: u16 = 3;
/// NXT_PACKET_IN2 property type: the cookie of the flow entry.
pub const NXPINT_COOKIE: u16 = 4;
/// NXT_PACKET_IN2 property type: the reason for the packet-in.
pub const NXPINT_REASON: u16 = 5;
/// NXT_PACKET_IN2 property type: the metadata fields of the packet.
pub const NXPINT_METADATA: u16 = 6;
/// NXT_PACKET_IN2 property type: the userdata of the controller action.
pub const NXPINT_USERDATA: u16 = 7;
/// NXT_PACKET_IN2 property type: the continuation (the state of a paused packet).
pub const NXPINT_CONTINUATION: u16 = 8;
/// NXAST_CONTROLLER2 property type: the maximum number of octets of the packet to send.
pub const NXAC2PT_MAX_LEN: u16 = 0;
/// NXAST_CONTROLLER2 property type: the controller's ID.
pub const NXAC2PT_CONTROLLER_ID: u16 = 1;
/// NXAST_CONTROLLER2 property type: the reason for the packet-in.
pub const NXAC2PT_REASON: u16 = 2;
/// NXAST_CONTROLLER2 property type: userdata that the packet-in returns to the controller.
pub const NXAC2PT_USERDATA: u16 = 3;
/// NXAST_CONTROLLER2 property type: pauses the processing of the packet.
pub const NXAC2PT_PAUSE: u16 = 4;
/// NXAST_CONTROLLER2 property type: the meter that limits the packet-ins.
pub const NXAC2PT_METER_ID: u16 = 5;
/// Event of an update to a flow monitor: the flow entry was added, or existed before the monitor was created.
pub const NXFME_ADDED: u16 = 0;
/// Event of an update to a flow monitor: the flow entry was removed.
pub const NXFME_DELETED: u16 = 1;
/// Event of an update to a flow monitor: the flow entry was modified.
pub const NXFME_MODIFIED: u16 = 2;
/// Event of an abbreviated update to a flow monitor.
pub const NXFME_ABBREV: u16 = 3;
/// Command of NXT_TLV_TABLE_MOD that maps tunnel options to match fields.
pub const NXTTMC_ADD: u16 = 0;
/// Command of NXT_TLV_TABLE_MOD that removes mappings of tunnel options.
pub const NXTTMC_DELETE: u16 = 1;
/// Command of NXT_TLV_TABLE_MOD that removes all mappings of tunnel options.
pub const NXTTMC_CLEAR: u16 = 2;
/// Field number of the cookie field in the class NXM_1.
pub const NXM_NX_COOKIE: u8 = 30;
/// NXM header of the input port field.
pub const NXM_OF_IN_PORT: u32 = 0x0000_0002;
/// Flag of a learn action: learned flow entries get the flag OFPFF_SEND_FLOW_REM.
pub const NX_LEARN_F_SEND_FLOW_REM: u16 = 1;
/// Flag of a learn action: the learned flow entries are deleted when the flow entry with the learn action is
/// deleted.
pub const NX_LEARN_F_DELETE_LEARNED: u16 = 1 << 1;
/// Flag of a learn action: the result (whether the flow entry could be added) is written to a field.
pub const NX_LEARN_F_WRITE_RESULT: u16 = 1 << 2;
/// OpenFlow error type of a message that contains an error of Nicira. The body of the message
/// contains the type and code of Nicira's error.
pub const NXET_VENDOR: u16 = 0xb0c2;
/// OpenFlow error code of a message that contains an error of Nicira. The body of the message
/// contains the type and code of Nicira's error.
pub const NXVC_VENDOR_ERROR: u16 = 0;
/// Property type of NXT_CT_FLUSH: the tuple of packets in the direction of the first packet.
pub const NXT_CT_ORIG_TUPLE: u16 = 0;
/// Property type of NXT_CT_FLUSH: the tuple of packets in the opposite direction.
pub const NXT_CT_REPLY_TUPLE: u16 = 1;
/// Property type of NXT_CT_FLUSH: the zone.
pub const NXT_CT_ZONE_ID: u16 = 2;
/// Property type of a tuple: the source address.
pub const NXT_CT_TUPLE_SRC: u16 = 0;
/// Property type of a tuple: the destination address.
pub const NXT_CT_TUPLE_DST: u16 = 1;
/// Property type of a tuple: the source port.
pub const NXT_CT_TUPLE_SRC_PORT: u16 = 2;
/// Property type of a tuple: the destination port.
pub const NXT_CT_TUPLE_DST_PORT: u16 = 3;
/// Property type of a tuple: the identifier of an ICMP query.
pub const NXT_CT_TUPLE_ICMP_ID: u16 = 4;
/// Property type of a tuple: the type of an ICMP message.
pub const NXT_CT_TUPLE_ICMP_TYPE: u16 = 5;
/// Property type of a tuple: the code of an ICMP message.
pub const NXT_CT_TUPLE_ICMP_CODE: u16 = 6;
