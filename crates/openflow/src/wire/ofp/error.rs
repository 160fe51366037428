//! Error types (OFPET_*, OpenFlow 1.5.1 section 7.5.4) of OpenFlow 1.1 and later.
//!
//! The types of OpenFlow 1.0 that differ are in [`ofp10`]. The codes of a type are in the table of
//! [`Error`](crate::wire::error::Error).
//! Section numbers are those of OpenFlow 1.5.1, unless another version is named.

/// Type of errors in the version negotiation (section 7.5.4).
pub const OFPET_HELLO_FAILED: u16 = 0;
/// Type of errors in requests (section 7.5.4).
pub const OFPET_BAD_REQUEST: u16 = 1;
/// Type of errors in actions (section 7.5.4).
pub const OFPET_BAD_ACTION: u16 = 2;
/// Type of errors in instructions (section 7.5.4).
pub const OFPET_BAD_INSTRUCTION: u16 = 3;
/// Type of errors in matches (section 7.5.4).
pub const OFPET_BAD_MATCH: u16 = 4;
/// Type of errors of flow-mods (section 7.5.4).
pub const OFPET_FLOW_MOD_FAILED: u16 = 5;
/// Type of errors of group-mods (section 7.5.4).
pub const OFPET_GROUP_MOD_FAILED: u16 = 6;
/// Type of errors of port-mods (section 7.5.4).
pub const OFPET_PORT_MOD_FAILED: u16 = 7;
/// Type of errors of table-mods (section 7.5.4).
pub const OFPET_TABLE_MOD_FAILED: u16 = 8;
/// Type of errors of requests about queues (section 7.5.4).
pub const OFPET_QUEUE_OP_FAILED: u16 = 9;
/// Type of errors of changes of the switch configuration (section 7.5.4).
pub const OFPET_SWITCH_CONFIG_FAILED: u16 = 10;
/// Type of errors of role requests (section 7.5.4).
pub const OFPET_ROLE_REQUEST_FAILED: u16 = 11;
/// Type of errors of meter-mods (section 7.5.4).
pub const OFPET_METER_MOD_FAILED: u16 = 12;
/// Type of errors of table features requests (section 7.5.4).
pub const OFPET_TABLE_FEATURES_FAILED: u16 = 13;
/// Type of errors in properties (section 7.5.4).
pub const OFPET_BAD_PROPERTY: u16 = 14;
/// Type of errors of the configuration of asynchronous messages (section 7.5.4).
pub const OFPET_ASYNC_CONFIG_FAILED: u16 = 15;
/// Type of errors of flow monitor requests (section 7.5.4).
pub const OFPET_FLOW_MONITOR_FAILED: u16 = 16;
/// Type of errors of bundles (section 7.5.4).
pub const OFPET_BUNDLE_FAILED: u16 = 17;
/// Type of errors that an experimenter defines (section 7.5.4).
pub const OFPET_EXPERIMENTER: u16 = 0xffff;

/// Error types of OpenFlow 1.0 that have other numbers in later versions.
pub mod ofp10 {
    /// Type of errors of flow-mods (OpenFlow 1.0 section 5.4.4).
    pub const OFPET_FLOW_MOD_FAILED: u16 = 3;
    /// Type of errors of port-mods (OpenFlow 1.0 section 5.4.4).
    pub const OFPET_PORT_MOD_FAILED: u16 = 4;
    /// Type of errors of requests about queues (OpenFlow 1.0 section 5.4.4).
    pub const OFPET_QUEUE_OP_FAILED: u16 = 5;
}
