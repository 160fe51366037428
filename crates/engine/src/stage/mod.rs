//! Stages of the packet path. A stage is a plain function over a burst. `path` calls the stages in their order. Each
//! kind of port function (`bridge`, `openflow`, `router`, `cross_connect`) has one entry point `process`, which looks
//! up and executes the forwarding decisions for a burst, and sends packets through `output`.

mod bridge;
mod context;
mod cross_connect;
mod egress;
pub mod flow_cache;
pub mod ingress;
pub(crate) mod ingress_stage;
pub(crate) mod openflow;
pub mod outbox;
mod output;
pub mod parse;
pub mod patch;
pub mod path;
pub(crate) mod path_context;
pub mod punt;
pub mod receive;
mod router;
pub mod software_rss;
pub mod tag;
pub mod transmit;

pub use context::{CLONE_BUDGET, SEGMENT_BUDGET, WorkerContext};
pub use flow_cache::FlowsView;
pub use outbox::Outbox;
pub use punt::{Punt, PuntRing};
