//! Instruction types (OFPIT_*, OpenFlow 1.5.1 section 7.2.5).
//!
//! Section numbers are those of OpenFlow 1.5.1, unless another version is named.

/// Type of the instruction that continues the look-up in a later table (section 7.2.5).
pub const OFPIT_GOTO_TABLE: u16 = 1;
/// Type of the instruction that sets bits of the metadata (section 7.2.5).
pub const OFPIT_WRITE_METADATA: u16 = 2;
/// Type of the instruction that adds actions to the action set (section 7.2.5).
pub const OFPIT_WRITE_ACTIONS: u16 = 3;
/// Type of the instruction that executes a list of actions immediately (section 7.2.5).
pub const OFPIT_APPLY_ACTIONS: u16 = 4;
/// Type of the instruction that clears the action set (section 7.2.5).
pub const OFPIT_CLEAR_ACTIONS: u16 = 5;
/// Type of the instruction that applies a meter (OpenFlow 1.3.5 section 7.2.4).
pub const OFPIT_METER: u16 = 6;
/// Type of an experimenter instruction (section 7.2.5).
pub const OFPIT_EXPERIMENTER: u16 = 0xffff;
