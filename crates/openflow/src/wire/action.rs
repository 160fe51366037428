//! Encoding and decoding of actions and instructions. The module supports the standard actions of each OpenFlow
//! version, Nicira's actions (NXAST_*, ovs-actions(7)), and the ONF's copy-field action.
//!
//! An action that does not exist in an OpenFlow version is encoded as an action of Nicira. An action that cannot be
//! encoded in either form is omitted.

mod conntrack;
mod field;
mod forms;
mod frame;
mod get;
mod nicira;
mod put;

pub use forms::put_actions;
pub use get::{get_actions, get_instructions, get_plain};
pub use put::{put_instructions, put_plain};

/// Maximum nesting depth of clone actions.
const DEPTH: usize = 64;
