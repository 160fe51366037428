//! The `learn` action, which adds a flow entry to a table.

use super::subfield::SubField;

/// Source of a value in a `learn` action.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LearnSource {
    /// A field of the packet that executes the action.
    Field(SubField),
    /// A constant value.
    Constant {
        /// Value of the constant, right-aligned.
        value: u128,
        /// Width of the constant in bits.
        bits: u16,
    },
}

/// One specification of a `learn` action: a match or an action of the learned flow entry.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LearnPart {
    /// The learned flow entry matches the value of the source in this field.
    Match(LearnSource, SubField),
    /// The learned flow entry loads the value of the source into this field.
    Load(LearnSource, SubField),
    /// The learned flow entry outputs packets to a port. The number of this port is the value that the field has in the
    /// packet that executes the `learn` action.
    Output(SubField),
}

/// The `learn` action (NXAST_LEARN, NXAST_LEARN2).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Learn {
    /// Idle time-out of the learned flow entry, in seconds. 0 means none.
    pub idle_timeout: u16,
    /// Hard time-out of the learned flow entry, in seconds. 0 means none.
    pub hard_timeout: u16,
    /// Idle time-out of the learned flow entry, in seconds, after a TCP FIN or RST.
    pub fin_idle_timeout: u16,
    /// Hard time-out of the learned flow entry, in seconds, after a TCP FIN or RST.
    pub fin_hard_timeout: u16,
    /// Priority of the learned flow entry.
    pub priority: u16,
    /// Cookie of the learned flow entry.
    pub cookie: u64,
    /// NX_LEARN_F_* flags (1: send flow removed, 2: delete learned, 4: write result).
    pub flags: u16,
    /// Number of the table that the learned flow entry is added to.
    pub table: u8,
    /// Maximum number of flow entries with the cookie `cookie` in the table `table`. When the number is reached, the
    /// action adds no more flow entries. 0 means no limit.
    pub limit: u32,
    /// Bit that is set to 1 if the limit allows the flow entry to be added, and to 0 otherwise. `None` unless the flag
    /// 4 (write result) is set.
    pub result: Option<SubField>,
    /// Matches and actions of the learned flow entry.
    pub parts: Vec<LearnPart>,
}
