//! The stage of a port whose bridge goes by OpenFlow's rules: hot cached flows between kernel devices are answered in the hook.
//!
//! ```text
//!  frame --> [filter] --> key as the worker's --> flow known here, by one of a few masks? --yes--> headers, tag, device
//!                            |                       [`FlowTable`], one for all ports
//!                            no: numbered ([`Orders`]) --> [steer] --> worker
//! ```
//!
//! Whoever has the [`FlowWriter`] says which flows there are. What it takes out may still be known to a program that runs; after
//! [`crate::wait_for_programs`] its counts are final and its slot can be given to another. A program finds no flow once
//! nobody has [renewed](FlowTable::renew) the table for a while. Order: see [`crate::bridge`].

mod action;
mod stage;
mod table;
mod writer;

pub use action::{Bits, FlowAction};
pub use stage::{FlowPort, FlowStage};
pub use table::{FlowCounts, FlowTable};
pub use writer::{FlowWriter, Refused};

pub(crate) use stage::{FLOWS_WORDS, FlowMaps};
#[cfg(test)]
pub(crate) use {
    action::{DROPS, ENTRY_BYTES, NORMAL, POPS, PUSHES, SETS_IP},
    table::{COUNT_BYTES, FRAME_BYTES, HINTS, MASKS, PLACES},
};
