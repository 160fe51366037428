//! Constants of flow tables (OpenFlow 1.5.1 sections 7.3.3, 7.3.4.1, 7.3.5.18 and 7.4.5).
//!
//! Section numbers are those of OpenFlow 1.5.1, unless another version is named.

/// Table configuration bit: the table evicts flow entries (section 7.3.3).
pub const OFPTC_EVICTION: u32 = 1 << 2;
/// Table configuration bit: the table reports its vacancy (share of free entries) to controllers (section 7.3.3).
pub const OFPTC_VACANCY_EVENTS: u32 = 1 << 3;
/// Type of the eviction property in a table description or table-mod (section 7.3.4.1).
pub const OFPTMPT_EVICTION: u16 = 2;
/// Type of the vacancy property in a table description or table-mod (section 7.3.4.1).
pub const OFPTMPT_VACANCY: u16 = 3;
/// Type of an experimenter property in a table-mod (section 7.3.4.1).
pub const OFPTMPT_EXPERIMENTER: u16 = 0xffff;
/// Eviction flag: the table evicts flow entries by criteria other than importance and lifetime (section 7.3.4.1).
pub const OFPTMPEF_OTHER: u32 = 1;
/// Eviction flag: the table evicts flow entries of low importance first (section 7.3.4.1).
pub const OFPTMPEF_IMPORTANCE: u32 = 1 << 1;
/// Eviction flag: the table evicts flow entries with a short remaining lifetime first (section 7.3.4.1).
pub const OFPTMPEF_LIFETIME: u32 = 1 << 2;
/// Reason of a table status: the vacancy (share of free entries) is below the lower threshold (section 7.4.5).
pub const OFPTR_VACANCY_DOWN: u8 = 3;
/// Reason of a table status: the vacancy (share of free entries) is above the upper threshold (section 7.4.5).
pub const OFPTR_VACANCY_UP: u8 = 4;
/// Table feature property type: the supported instructions (section 7.3.5.18).
pub const OFPTFPT_INSTRUCTIONS: u16 = 0;
/// Table feature property type: the tables that goto-table may name (section 7.3.5.18).
pub const OFPTFPT_NEXT_TABLES: u16 = 2;
/// Table feature property type: the actions that write-actions supports (section 7.3.5.18).
pub const OFPTFPT_WRITE_ACTIONS: u16 = 4;
/// Table feature property type: the actions that apply-actions supports (section 7.3.5.18).
pub const OFPTFPT_APPLY_ACTIONS: u16 = 6;
/// Table feature property type: the fields that matches can contain (section 7.3.5.18).
pub const OFPTFPT_MATCH: u16 = 8;
/// Table feature property type: the fields that matches can wildcard (section 7.3.5.18).
pub const OFPTFPT_WILDCARDS: u16 = 10;
/// Table feature property type: the fields that write-actions can set (section 7.3.5.18).
pub const OFPTFPT_WRITE_SETFIELD: u16 = 12;
/// Table feature property type: the fields that apply-actions can set (section 7.3.5.18).
pub const OFPTFPT_APPLY_SETFIELD: u16 = 14;

/// Configuration of tables in OpenFlow 1.1 and 1.2. OpenFlow 1.3 ignores these bits.
pub mod ofp11 {
    /// Table configuration value: packets that match no flow entry go to the controller (OpenFlow 1.1 section A.3.3).
    pub const OFPTC_TABLE_MISS_CONTROLLER: u32 = 0;
    /// Table configuration value: packets that match no flow entry continue in the next table (OpenFlow 1.1 section
    /// A.3.3).
    pub const OFPTC_TABLE_MISS_CONTINUE: u32 = 1;
    /// Table configuration value: packets that match no flow entry are dropped (OpenFlow 1.1 section A.3.3).
    pub const OFPTC_TABLE_MISS_DROP: u32 = 2;
    /// Bit mask of the configuration for packets that match no flow entry (OpenFlow 1.1 section A.3.3).
    pub const OFPTC_TABLE_MISS_MASK: u32 = 3;
}
