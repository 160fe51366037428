//! Constants of meters (OpenFlow 1.5.1 section 7.3.4.5).
//!
//! Section numbers are those of OpenFlow 1.5.1, unless another version is named.

/// Command of a meter-mod that adds a meter (section 7.3.4.5).
pub const OFPMC_ADD: u16 = 0;
/// Command of a meter-mod that modifies a meter (section 7.3.4.5).
pub const OFPMC_MODIFY: u16 = 1;
/// Command of a meter-mod that deletes meters (section 7.3.4.5).
pub const OFPMC_DELETE: u16 = 2;
/// Meter ID that represents all meters in requests (section 7.3.4.5).
pub const OFPM_ALL: u32 = 0xffff_ffff;
/// Flag of a meter: its rates are in kilobits per second (section 7.3.4.5).
pub const OFPMF_KBPS: u16 = 1;
/// Flag of a meter: its rates are in packets per second (section 7.3.4.5).
pub const OFPMF_PKTPS: u16 = 1 << 1;
/// Flag of a meter: its bands have burst sizes (section 7.3.4.5).
pub const OFPMF_BURST: u16 = 1 << 2;
/// Flag of a meter: the switch counts its packets and bytes (section 7.3.4.5).
pub const OFPMF_STATS: u16 = 1 << 3;
/// Type of a meter band that drops the packets above its rate (section 7.3.4.5).
pub const OFPMBT_DROP: u16 = 1;
/// Type of a meter band that increases the drop precedence in the DSCP of packets above its rate (section 7.3.4.5).
pub const OFPMBT_DSCP_REMARK: u16 = 2;
