//! Error types (OFPET_*, OpenFlow 1.5.1 section 7.5.4) of OpenFlow 1.1 and later.
//!
//! The types of OpenFlow 1.0 that differ are in [`ofp10`]. The codes of a type are in the table of
//! [`Error`](crate::wire::error::Error).
//! Section numbers are those of OpenFlow 1.5.1, unless another version is named.

/// Error type for failures of the version negotiation (section 7.5.4).
pub const OFPET_HELLO_FAILED: u16 = 0;
/// Error type for invalid requests (section 7.5.4).
pub const OFPET_BAD_REQUEST: u16 = 1;
/// Error type for invalid actions (section 7.5.4).
pub const OFPET_BAD_ACTION: u16 = 2;
/// Error type for invalid instructions (section 7.5.4).
pub const OFPET_BAD_INSTRUCTION: u16 = 3;
/// Error type for invalid matches (section 7.5.4).
pub const OFPET_BAD_MATCH: u16 = 4;
/// Error type for failed flow-mods (section 7.5.4).
pub const OFPET_FLOW_MOD_FAILED: u16 = 5;
/// Error type for failed group-mods (section 7.5.4).
pub const OFPET_GROUP_MOD_FAILED: u16 = 6;
/// Error type for failed port-mods (section 7.5.4).
pub const OFPET_PORT_MOD_FAILED: u16 = 7;
/// Error type for failed table-mods (section 7.5.4).
pub const OFPET_TABLE_MOD_FAILED: u16 = 8;
/// Error type for failed requests about queues (section 7.5.4).
pub const OFPET_QUEUE_OP_FAILED: u16 = 9;
/// Error type for failed changes of the switch configuration (section 7.5.4).
pub const OFPET_SWITCH_CONFIG_FAILED: u16 = 10;
/// Error type for failed role requests (section 7.5.4).
pub const OFPET_ROLE_REQUEST_FAILED: u16 = 11;
/// Error type for failed meter-mods (section 7.5.4).
pub const OFPET_METER_MOD_FAILED: u16 = 12;
/// Error type for failed table features requests (section 7.5.4).
pub const OFPET_TABLE_FEATURES_FAILED: u16 = 13;
/// Error type for invalid properties (section 7.5.4).
pub const OFPET_BAD_PROPERTY: u16 = 14;
/// Error type for failed configurations of asynchronous messages (section 7.5.4).
pub const OFPET_ASYNC_CONFIG_FAILED: u16 = 15;
/// Error type for failed flow monitor requests (section 7.5.4).
pub const OFPET_FLOW_MONITOR_FAILED: u16 = 16;
/// Error type for failed bundle requests (section 7.5.4).
pub const OFPET_BUNDLE_FAILED: u16 = 17;
/// Error type for errors that an experimenter defines (section 7.5.4).
pub const OFPET_EXPERIMENTER: u16 = 0xffff;

/// Error types of OpenFlow 1.0 that have other numbers in later versions.
pub mod ofp10 {
    /// Error type for failed flow-mods (OpenFlow 1.0 section 5.4.4).
    pub const OFPET_FLOW_MOD_FAILED: u16 = 3;
    /// Error type for failed port-mods (OpenFlow 1.0 section 5.4.4).
    pub const OFPET_PORT_MOD_FAILED: u16 = 4;
    /// Error type for failed requests about queues (OpenFlow 1.0 section 5.4.4).
    pub const OFPET_QUEUE_OP_FAILED: u16 = 5;
}
