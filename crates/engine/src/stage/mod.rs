//! Stages of the packet path, in the order in which packets pass them. A stage is a plain function over a
//! burst.

mod context;
mod egress;
pub mod execute;
mod flow_cache;
pub mod flows;
pub mod function;
pub mod ingress;
pub(crate) mod ingress_stage;
pub mod outbox;
pub mod parse;
pub mod patch;
pub mod path;
pub mod punt;
pub mod receive;
pub mod route;
pub mod software_rss;
pub mod tag;
pub mod transmit;

pub use context::{CLONE_BUDGET, SEGMENT_BUDGET, WorkerContext};
pub use outbox::Outbox;
pub use punt::{Punt, PuntRing};
