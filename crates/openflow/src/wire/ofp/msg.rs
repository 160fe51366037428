//! Message types (OFPT_*, OpenFlow 1.5.1 section 7.1.1) of OpenFlow 1.1 and later.
//!
//! The types up to 14 are equal in all versions. The numbers of OpenFlow 1.0 that differ are in [`ofp10`].
//! Section numbers are those of OpenFlow 1.5.1, unless another version is named.

/// Type of a hello message (section 7.5.1).
pub const OFPT_HELLO: u8 = 0;
/// Type of an error message (section 7.5.4).
pub const OFPT_ERROR: u8 = 1;
/// Type of an echo request (section 7.5.2).
pub const OFPT_ECHO_REQUEST: u8 = 2;
/// Type of an echo reply (section 7.5.3).
pub const OFPT_ECHO_REPLY: u8 = 3;
/// Type of an experimenter message. The name is OFPT_VENDOR in OpenFlow 1.0 (section 7.5.5).
pub const OFPT_EXPERIMENTER: u8 = 4;
/// Type of a features request (section 7.3.1).
pub const OFPT_FEATURES_REQUEST: u8 = 5;
/// Type of a features reply (section 7.3.1).
pub const OFPT_FEATURES_REPLY: u8 = 6;
/// Type of a request for the switch configuration (section 7.3.2).
pub const OFPT_GET_CONFIG_REQUEST: u8 = 7;
/// Type of a reply with the switch configuration (section 7.3.2).
pub const OFPT_GET_CONFIG_REPLY: u8 = 8;
/// Type of a message that sets the switch configuration (section 7.3.2).
pub const OFPT_SET_CONFIG: u8 = 9;
/// Type of a packet-in (section 7.4.1).
pub const OFPT_PACKET_IN: u8 = 10;
/// Type of a message that reports the removal of a flow entry (section 7.4.2).
pub const OFPT_FLOW_REMOVED: u8 = 11;
/// Type of a port status message (section 7.4.3).
pub const OFPT_PORT_STATUS: u8 = 12;
/// Type of a packet-out (section 7.3.6).
pub const OFPT_PACKET_OUT: u8 = 13;
/// Type of a flow-mod (section 7.3.4.2).
pub const OFPT_FLOW_MOD: u8 = 14;
/// Type of a group-mod (section 7.3.4.3).
pub const OFPT_GROUP_MOD: u8 = 15;
/// Type of a port-mod (section 7.3.4.4).
pub const OFPT_PORT_MOD: u8 = 16;
/// Type of a table-mod (section 7.3.4.1).
pub const OFPT_TABLE_MOD: u8 = 17;
/// Type of a multipart request (section 7.3.5).
pub const OFPT_MULTIPART_REQUEST: u8 = 18;
/// Type of a multipart reply (section 7.3.5).
pub const OFPT_MULTIPART_REPLY: u8 = 19;
/// Type of a barrier request (section 7.3.7).
pub const OFPT_BARRIER_REQUEST: u8 = 20;
/// Type of a barrier reply (section 7.3.7).
pub const OFPT_BARRIER_REPLY: u8 = 21;
/// Type of a request for the queues of a port (OpenFlow 1.3.5 section 7.3.6).
pub const OFPT_QUEUE_GET_CONFIG_REQUEST: u8 = 22;
/// Type of a reply with the queues of a port (OpenFlow 1.3.5 section 7.3.6).
pub const OFPT_QUEUE_GET_CONFIG_REPLY: u8 = 23;
/// Type of a role request (section 7.3.8).
pub const OFPT_ROLE_REQUEST: u8 = 24;
/// Type of a role reply (section 7.3.8).
pub const OFPT_ROLE_REPLY: u8 = 25;
/// Type of a request for the configuration of asynchronous messages (section 7.3.10).
pub const OFPT_GET_ASYNC_REQUEST: u8 = 26;
/// Type of a reply with the configuration of asynchronous messages (section 7.3.10).
pub const OFPT_GET_ASYNC_REPLY: u8 = 27;
/// Type of a message that sets the configuration of asynchronous messages (section 7.3.10).
pub const OFPT_SET_ASYNC: u8 = 28;
/// Type of a meter-mod (section 7.3.4.5).
pub const OFPT_METER_MOD: u8 = 29;
/// Type of a role status message (section 7.4.4).
pub const OFPT_ROLE_STATUS: u8 = 30;
/// Type of a table status message (section 7.4.5).
pub const OFPT_TABLE_STATUS: u8 = 31;
/// Type of the message that forwards a copy of another controller's request (section 7.4.6).
pub const OFPT_REQUESTFORWARD: u8 = 32;
/// Type of a bundle control message (section 7.3.9).
pub const OFPT_BUNDLE_CONTROL: u8 = 33;
/// Type of a message that adds a message to a bundle (section 7.3.9).
pub const OFPT_BUNDLE_ADD_MESSAGE: u8 = 34;

/// Message types of OpenFlow 1.0 that have other numbers in later versions.
pub mod ofp10 {
    /// Type of a port-mod (OpenFlow 1.0 section 5.3.3).
    pub const OFPT_PORT_MOD: u8 = 15;
    /// Type of a statistics request (OpenFlow 1.0 section 5.3.5).
    pub const OFPT_STATS_REQUEST: u8 = 16;
    /// Type of a statistics reply (OpenFlow 1.0 section 5.3.5).
    pub const OFPT_STATS_REPLY: u8 = 17;
    /// Type of a barrier request (OpenFlow 1.0 section 5.3.7).
    pub const OFPT_BARRIER_REQUEST: u8 = 18;
    /// Type of a barrier reply (OpenFlow 1.0 section 5.3.7).
    pub const OFPT_BARRIER_REPLY: u8 = 19;
    /// Type of a request for the queues of a port (OpenFlow 1.0 section 5.3.4).
    pub const OFPT_QUEUE_GET_CONFIG_REQUEST: u8 = 20;
    /// Type of a reply with the queues of a port (OpenFlow 1.0 section 5.3.4).
    pub const OFPT_QUEUE_GET_CONFIG_REPLY: u8 = 21;
}
