//! Constants of matches (OpenFlow 1.5.1 section 7.2.3).
//!
//! Section numbers are those of OpenFlow 1.5.1, unless another version is named.

/// Type of the fixed match of OpenFlow 1.1 (OpenFlow 1.1 section A.2.3).
pub const OFPMT_STANDARD: u16 = 0;
/// Type of a match that is a list of fields (section 7.2.3.1).
pub const OFPMT_OXM: u16 = 1;
/// OXM class of the fields of Nicira that the match of OpenFlow 1.0 also contains (section 7.2.3.3).
pub const OFPXMC_NXM_0: u16 = 0;
/// OXM class of the fields of Nicira that the match of OpenFlow 1.0 does not contain (section 7.2.3.3).
pub const OFPXMC_NXM_1: u16 = 1;
/// OXM class of the basic match fields (section 7.2.3.3).
pub const OFPXMC_OPENFLOW_BASIC: u16 = 0x8000;
/// OXM class of the extended registers (the 64-bit registers `xreg0` and so on) (section 7.2.3.3).
pub const OFPXMC_PACKET_REGS: u16 = 0x8001;
/// OXM class of experimenters' match fields (section 7.2.3.3).
pub const OFPXMC_EXPERIMENTER: u16 = 0xffff;
/// Bit of the VLAN ID field which means that a VLAN tag is present (section 7.2.3.8).
pub const OFPVID_PRESENT: u16 = 0x1000;
