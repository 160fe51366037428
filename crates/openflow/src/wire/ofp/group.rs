//! Constants of groups (OpenFlow 1.5.1 sections 7.3.4.3, 7.3.5.10 and 7.3.5.11).
//!
//! Section numbers are those of OpenFlow 1.5.1, unless another version is named.

/// Command of a group-mod that adds a group (section 7.3.4.3).
pub const OFPGC_ADD: u16 = 0;
/// Command of a group-mod that modifies a group (section 7.3.4.3).
pub const OFPGC_MODIFY: u16 = 1;
/// Command of a group-mod that deletes groups (section 7.3.4.3).
pub const OFPGC_DELETE: u16 = 2;
/// Command of a group-mod that inserts buckets, since OpenFlow 1.5 (section 7.3.4.3).
pub const OFPGC_INSERT_BUCKET: u16 = 3;
/// Command of a group-mod that removes buckets, since OpenFlow 1.5 (section 7.3.4.3).
pub const OFPGC_REMOVE_BUCKET: u16 = 5;
/// Command of a group-mod that adds or modifies a group (Open vSwitch's `openflow-1.5.h`).
pub const OFPGC_ADD_OR_MOD: u16 = 0x8000;
/// Type of a group that executes all its buckets (section 7.3.4.3).
pub const OFPGT_ALL: u8 = 0;
/// Type of a group that executes one of its buckets, which the switch selects for each packet (section 7.3.4.3).
pub const OFPGT_SELECT: u8 = 1;
/// Type of a group that has one bucket (section 7.3.4.3).
pub const OFPGT_INDIRECT: u8 = 2;
/// Type of a group that executes its first live bucket, for fast failover (section 7.3.4.3).
pub const OFPGT_FF: u8 = 3;
/// Largest ID of a group (section 7.3.4.3).
pub const OFPG_MAX: u32 = 0xffff_ff00;
/// Group ID that represents any group in requests (section 7.3.4.3).
pub const OFPG_ANY: u32 = 0xffff_ffff;
/// Largest ID of a bucket (section 7.3.4.3).
pub const OFPG_BUCKET_MAX: u32 = 0xffff_ff00;
/// Bucket ID that represents the first bucket (section 7.3.4.3).
pub const OFPG_BUCKET_FIRST: u32 = 0xffff_fffd;
/// Bucket ID that represents the last bucket (section 7.3.4.3).
pub const OFPG_BUCKET_LAST: u32 = 0xffff_fffe;
/// Bucket ID that represents all buckets (section 7.3.4.3).
pub const OFPG_BUCKET_ALL: u32 = 0xffff_ffff;
/// Bucket property type: the weight of the bucket in a select group (section 7.3.4.3).
pub const OFPGBPT_WEIGHT: u16 = 0;
/// Bucket property type: the port whose liveness determines the liveness of the bucket (section
/// 7.3.4.3).
pub const OFPGBPT_WATCH_PORT: u16 = 1;
/// Bucket property type: the group whose liveness determines the liveness of the bucket (section
/// 7.3.4.3).
pub const OFPGBPT_WATCH_GROUP: u16 = 2;
/// Type of an experimenter property of a bucket (section 7.3.4.3).
pub const OFPGBPT_EXPERIMENTER: u16 = 0xffff;
/// Type of an experimenter property of a group (section 7.3.4.3).
pub const OFPGPT_EXPERIMENTER: u16 = 0xffff;
/// Group capability: the buckets of select groups have weights (section 7.3.5.11).
pub const OFPGFC_SELECT_WEIGHT: u32 = 1;
/// Group capability: select groups select only live buckets (section 7.3.5.11).
pub const OFPGFC_SELECT_LIVENESS: u32 = 1 << 1;
/// Group capability: groups may refer to other groups (section 7.3.5.11).
pub const OFPGFC_CHAINING: u32 = 1 << 2;
/// Group capability: groups that refer to each other in a loop are refused (section 7.3.5.11).
pub const OFPGFC_CHAINING_CHECKS: u32 = 1 << 3;
/// Subtype of Netronome's property for the selection method (Open vSwitch's `netronome-ext.h`).
pub const NTRT_SELECTION_METHOD: u32 = 1;
