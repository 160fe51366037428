//! Stage of cached OpenFlow flows in a port's XDP program. The stage forwards frames of frequently used cached
//! flows (megaflows) between kernel devices.
//!
//! ```text
//!  frame --> [filter] --> flow key --> flow in the table, under one of its masks? --yes--> write headers, tag, redirect
//!                            |             [`FlowTable`], one for all ports
//!                            no: gets a sequence number ([`Orders`]) --> [steer] --> worker
//! ```
//!
//! The owner of the [`FlowWriter`] adds and removes flows. A program run that is in progress may still use a removed
//! flow. After [`crate::wait_for_programs`] the counts of the flow are final and its slot can be reused. The stage uses
//! no flows after the deadline that [`FlowTable::renew`] sets. [`crate::bridge`] describes how the frame order is kept.

mod action;
mod masks;
mod slot_shares;
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
