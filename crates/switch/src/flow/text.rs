//! Flow entries and megaflows as text: `ovs-ofctl`'s syntax for flow entries (ovs-fields(7), ovs-actions(7)),
//! and `ovs-dpctl`'s syntax for megaflows.
//!
//! One printer is used for `explain`, `show` and `ofproto/trace`, and `ovs-ofctl` can parse their output. Fields and
//! actions that Open vSwitch does not have (802.1ah, IPv6 extension headers) are printed by their names in the
//! OpenFlow specification.

mod action;
mod datapath;
pub(super) mod field;
mod from_datapath;
mod matching;
mod parse;
mod parse_action;
pub(super) mod value;

pub use action::{action, actions, group, instructions, meter};
pub use datapath::{cached, program};
pub use field::port;
pub use from_datapath::{DatapathFlow, from_datapath};
pub use matching::{matching, part, whole};
pub use parse::{FlowTextError, parse};
pub use parse_action::read_actions;
pub use value::sub_field;
