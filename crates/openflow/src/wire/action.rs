//! Encoding and decoding of actions and instructions. The module supports the actions of each OpenFlow
//! version, Nicira's actions (NXAST_*, ovs-actions(7)), and the ONF's copy-field action.
//!
//! An action that an OpenFlow version lacks is encoded as an action of Nicira. An action that cannot be
//! encoded in either form is omitted.

mod field;
mod get;
mod nicira;
mod put;

pub use get::{get_actions, get_instructions, get_plain};
pub use put::{put_actions, put_instructions, put_plain};

/// Maximum nesting depth of clone actions.
const DEPTH: usize = 64;

/// Subtype numbers of Nicira's actions (NXAST_*).
mod nx {
    pub const RESUBMIT: u16 = 1;
    pub const SET_TUNNEL: u16 = 2;
    pub const SET_QUEUE: u16 = 4;
    pub const POP_QUEUE: u16 = 5;
    pub const REG_MOVE: u16 = 6;
    pub const REG_LOAD: u16 = 7;
    pub const NOTE: u16 = 8;
    pub const SET_TUNNEL64: u16 = 9;
    pub const MULTIPATH: u16 = 10;
    pub const BUNDLE: u16 = 12;
    pub const BUNDLE_LOAD: u16 = 13;
    pub const RESUBMIT_TABLE: u16 = 14;
    pub const OUTPUT_REG: u16 = 15;
    pub const LEARN: u16 = 16;
    pub const EXIT: u16 = 17;
    pub const DEC_TTL: u16 = 18;
    pub const FIN_TIMEOUT: u16 = 19;
    pub const CONTROLLER: u16 = 20;
    pub const DEC_TTL_CNT_IDS: u16 = 21;
    pub const WRITE_METADATA: u16 = 22;
    pub const PUSH_MPLS: u16 = 23;
    pub const POP_MPLS: u16 = 24;
    pub const SET_MPLS_TTL: u16 = 25;
    pub const DEC_MPLS_TTL: u16 = 26;
    pub const STACK_PUSH: u16 = 27;
    pub const STACK_POP: u16 = 28;
    pub const SET_MPLS_LABEL: u16 = 30;
    pub const SET_MPLS_TC: u16 = 31;
    pub const OUTPUT_REG2: u16 = 32;
    pub const REG_LOAD2: u16 = 33;
    pub const CONJUNCTION: u16 = 34;
    pub const CONTROLLER2: u16 = 37;
    pub const GROUP: u16 = 40;
    pub const CLONE: u16 = 42;
    pub const LEARN2: u16 = 45;
    pub const CHECK_PKT_LARGER: u16 = 49;
    /// Subtype number of the ONF's copy-field action, for OpenFlow 1.3 and 1.4.
    pub const ONF_COPY_FIELD: u16 = 3200;
}
