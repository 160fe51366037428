//! Types and flags of multipart messages (OFPMP_*, OpenFlow 1.5.1 section 7.3.5). In OpenFlow 1.0
//! to 1.2, these types are the types of statistics messages (OFPST_*).
//!
//! Section numbers are those of OpenFlow 1.5.1, unless another version is named.

/// Multipart type: a description of the switch (section 7.3.5.1).
pub const OFPMP_DESC: u16 = 0;
/// Multipart type: flow entries with their counters (section 7.3.5.2).
pub const OFPMP_FLOW_DESC: u16 = 1;
/// Multipart type: the sums of the counters of flow entries (section 7.3.5.4).
pub const OFPMP_AGGREGATE_STATS: u16 = 2;
/// Multipart type: counters of tables (section 7.3.5.16).
pub const OFPMP_TABLE_STATS: u16 = 3;
/// Multipart type: counters of ports (section 7.3.5.5).
pub const OFPMP_PORT_STATS: u16 = 4;
/// Multipart type: counters of queues (section 7.3.5.7).
pub const OFPMP_QUEUE_STATS: u16 = 5;
/// Multipart type: counters of groups (section 7.3.5.9).
pub const OFPMP_GROUP_STATS: u16 = 6;
/// Multipart type: descriptions of groups (section 7.3.5.10).
pub const OFPMP_GROUP_DESC: u16 = 7;
/// Multipart type: features of groups (section 7.3.5.11).
pub const OFPMP_GROUP_FEATURES: u16 = 8;
/// Multipart type: counters of meters (section 7.3.5.12).
pub const OFPMP_METER_STATS: u16 = 9;
/// Multipart type: configurations of meters (section 7.3.5.13).
pub const OFPMP_METER_DESC: u16 = 10;
/// Multipart type: features of meters (section 7.3.5.14).
pub const OFPMP_METER_FEATURES: u16 = 11;
/// Multipart type: features of tables (section 7.3.5.18).
pub const OFPMP_TABLE_FEATURES: u16 = 12;
/// Multipart type: descriptions of ports (section 7.3.5.6).
pub const OFPMP_PORT_DESC: u16 = 13;
/// Multipart type: configurations of tables (section 7.3.5.17).
pub const OFPMP_TABLE_DESC: u16 = 14;
/// Multipart type: descriptions of queues (section 7.3.5.8).
pub const OFPMP_QUEUE_DESC: u16 = 15;
/// Multipart type: flow monitors and their updates (section 7.3.5.19).
pub const OFPMP_FLOW_MONITOR: u16 = 16;
/// Multipart type: flow entries without their instructions, since OpenFlow 1.5 (section 7.3.5.3).
pub const OFPMP_FLOW_STATS: u16 = 17;
/// Multipart type: an experimenter multipart message (section 7.3.5.21).
pub const OFPMP_EXPERIMENTER: u16 = 0xffff;
/// Flag of a request that is continued in another message (section 7.3.5).
pub const OFPMPF_REQ_MORE: u16 = 1;
/// Flag of a reply that is continued in another message (section 7.3.5).
pub const OFPMPF_REPLY_MORE: u16 = 1;
