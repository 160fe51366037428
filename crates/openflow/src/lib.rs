//! OpenFlow: what controllers and `ovs-ofctl` say to a bridge, and what it says to them.
//!
//! A bridge is whatever implements [`Datapath`]; messages of all versions become the one form of [`switch::flow`] before it
//! sees them.

pub mod datapath;

pub use datapath::{Datapath, Subscription, events};
