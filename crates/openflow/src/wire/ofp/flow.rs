//! Constants of flow entries, their statistics and their monitors (OpenFlow 1.5.1 sections 7.2.4, 7.3.4.2, 7.3.5.19
//! and 7.4.2).
//!
//! Section numbers are those of OpenFlow 1.5.1, unless another version is named.

/// Command of a flow-mod that adds a flow entry (section 7.3.4.2).
pub const OFPFC_ADD: u16 = 0;
/// Command of a flow-mod that modifies all matching flow entries (section 7.3.4.2).
pub const OFPFC_MODIFY: u16 = 1;
/// Command of a flow-mod that modifies the flow entry with an equal match and priority (section 7.3.4.2).
pub const OFPFC_MODIFY_STRICT: u16 = 2;
/// Command of a flow-mod that deletes all matching flow entries (section 7.3.4.2).
pub const OFPFC_DELETE: u16 = 3;
/// Command of a flow-mod that deletes the flow entry with an equal match and priority (section 7.3.4.2).
pub const OFPFC_DELETE_STRICT: u16 = 4;
/// Flag of a flow-mod: the switch sends a message when the flow entry is removed (section 7.3.4.2).
pub const OFPFF_SEND_FLOW_REM: u16 = 1;
/// Flag of a flow-mod: the flow entry is refused if it overlaps with an entry of equal priority (section 7.3.4.2).
pub const OFPFF_CHECK_OVERLAP: u16 = 1 << 1;
/// Flag of a flow-mod: the counters of the changed flow entries are reset, since OpenFlow 1.2 (section 7.3.4.2).
pub const OFPFF_RESET_COUNTS: u16 = 1 << 2;
/// Flag of a flow-mod: the packets of the flow entry are not counted, since OpenFlow 1.3 (section 7.3.4.2).
pub const OFPFF_NO_PKT_COUNTS: u16 = 1 << 3;
/// Flag of a flow-mod: the bytes of the flow entry are not counted, since OpenFlow 1.3 (section 7.3.4.2).
pub const OFPFF_NO_BYT_COUNTS: u16 = 1 << 4;
/// Reason for the removal of a flow entry: the idle timeout has expired (section 7.4.2).
pub const OFPRR_IDLE_TIMEOUT: u8 = 0;
/// Reason for the removal of a flow entry: the hard timeout has expired (section 7.4.2).
pub const OFPRR_HARD_TIMEOUT: u8 = 1;
/// Reason for the removal of a flow entry: a flow-mod has deleted the flow entry (section 7.4.2).
pub const OFPRR_DELETE: u8 = 2;
/// Reason for the removal of a flow entry: a group that it uses was deleted, since OpenFlow 1.1 (section 7.4.2).
pub const OFPRR_GROUP_DELETE: u8 = 3;
/// Reason for the removal of a flow entry: a meter that it uses was deleted, since OpenFlow 1.4 (section 7.4.2).
pub const OFPRR_METER_DELETE: u8 = 4;
/// Reason for the removal of a flow entry: the switch has evicted the flow entry, since OpenFlow
/// 1.4 (section 7.4.2).
pub const OFPRR_EVICTION: u8 = 5;
/// OXS class (class of statistics fields) that contains the basic statistics fields (section
/// 7.2.4.2).
pub const OFPXSC_OPENFLOW_BASIC: u16 = 0x8002;
/// Statistics field type: the age of a flow entry (section 7.2.4.3).
pub const OFPXST_OFB_DURATION: u8 = 0;
/// Statistics field type: the time since the last packet of a flow entry (section 7.2.4.3).
pub const OFPXST_OFB_IDLE_TIME: u8 = 1;
/// Statistics field type: the number of flow entries (section 7.2.4.3).
pub const OFPXST_OFB_FLOW_COUNT: u8 = 3;
/// Statistics field type: the number of packets (section 7.2.4.3).
pub const OFPXST_OFB_PACKET_COUNT: u8 = 4;
/// Statistics field type: the number of bytes (section 7.2.4.3).
pub const OFPXST_OFB_BYTE_COUNT: u8 = 5;
/// Command that adds a flow monitor (section 7.3.5.19).
pub const OFPFMC_ADD: u8 = 0;
/// Command that modifies a flow monitor (section 7.3.5.19).
pub const OFPFMC_MODIFY: u8 = 1;
/// Command that deletes a flow monitor (section 7.3.5.19).
pub const OFPFMC_DELETE: u8 = 2;
/// Flow monitor flag: requests an initial update for each existing flow entry (section 7.3.5.19).
pub const OFPFMF_INITIAL: u16 = 1;
/// Flow monitor flag: requests updates about added flow entries (section 7.3.5.19).
pub const OFPFMF_ADD: u16 = 1 << 1;
/// Flow monitor flag: requests updates about removed flow entries (section 7.3.5.19).
pub const OFPFMF_REMOVED: u16 = 1 << 2;
/// Flow monitor flag: requests updates about modified flow entries (section 7.3.5.19).
pub const OFPFMF_MODIFY: u16 = 1 << 3;
/// Flow monitor flag: requests updates with the instructions of flow entries (section 7.3.5.19).
pub const OFPFMF_INSTRUCTIONS: u16 = 1 << 4;
/// Flow monitor flag: requests unabbreviated updates. The name is NXFMF_OWN before OpenFlow 1.4
/// (section 7.3.5.19).
pub const OFPFMF_NO_ABBREV: u16 = 1 << 5;
/// Flow monitor flag: requests updates only about changes that the monitor's own controller has made, since OpenFlow
/// 1.4 (section 7.3.5.19).
pub const OFPFMF_ONLY_OWN: u16 = 1 << 6;
/// Event of a flow monitor update: the flow entry existed before the monitor (section 7.3.5.19).
pub const OFPFME_INITIAL: u16 = 0;
/// Event of a flow monitor update: the flow entry was added (section 7.3.5.19).
pub const OFPFME_ADDED: u16 = 1;
/// Event of a flow monitor update: the flow entry was removed (section 7.3.5.19).
pub const OFPFME_REMOVED: u16 = 2;
/// Event of a flow monitor update: the flow entry was modified (section 7.3.5.19).
pub const OFPFME_MODIFIED: u16 = 3;
/// Event of an abbreviated flow monitor update (section 7.3.5.19).
pub const OFPFME_ABBREV: u16 = 4;

/// Constants of flow entries that only OpenFlow 1.0 has.
pub mod ofp10 {
    /// Flag of a flow-mod: the flow entry is an emergency flow entry (OpenFlow 1.0 section 5.3.3).
    pub const OFPFF_EMERG: u16 = 1 << 2;
}
