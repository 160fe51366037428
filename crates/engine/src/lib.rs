//! The per-core worker: *receive, parse, ask the room that owns the port, execute, transmit*.
//!
//! ```text
//!             worker.rs (one thread, one core)
//!   Queue --> stage/receive -> stage/parse -> stage/spread -> stage/own -> stage/room -> stage/execute -> stage/transmit --> Queue
//!                                                 |  ^                                                        |
//!                                                 v  |        handover.rs: SPSC rings between workers         v
//!                                               other workers                                           owner of the queue
//! ```
//!
//! Start reading in [`worker`]. A stage is a plain function over a [`burst::Burst`]; what the workers are told stands in one
//! immutable [`state::Forwarding`] snapshot, read once per burst; what they tell stands in [`counters`]. [`engine::Engine`] is the
//! handle that control threads hold. `explain` and `trace` run the same stages with a recorder.
//!
//! Nothing here locks, allocates, formats, reads a clock or enters the kernel per packet.

#[allow(clippy::disallowed_methods, reason = "a bench measures around the data path, not in it")]
pub mod bench;
pub mod burst;
pub mod capture;
pub mod counters;
pub mod decider;
pub mod engine;
pub mod explain;
pub mod finish;
pub mod flows;
pub mod handover;
pub mod inspect;
mod packet_outs;
pub mod rest;
pub mod stage;
pub mod state;
pub mod trace;
pub mod worker;

pub use decider::{Decider, DeciderView, HookCounts, HookFlows, MegaflowView};
pub use engine::{Engine, EngineConfig, EngineError};
pub use explain::Explained;
pub use flows::{FlowBridge, FlowTables};
pub use rest::PollMode;
pub use stage::own::{Arrivals, OwnStage, Verdicts};
pub use state::{Forwarding, PortView, Room};
