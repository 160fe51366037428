//! Packet processing on worker threads, one thread per core. The path of a packet is *receive, parse, the
//! port's function, execute, transmit*.
//!
//! ```text
//!             worker.rs (one thread, one core)
//!   Queue --> stage/receive -> stage/parse -> stage/spread -> stage/own -> stage/room -> stage/execute -> stage/transmit --> Queue
//!                                                 |  ^                                                        |
//!                                                 v  |        handover.rs: SPSC rings between workers         v
//!                                               other workers                                           owner of the queue
//! ```
//!
//! The entry point for a reader is [`worker`].
//!
//! - A stage is a plain function over a [`burst::Burst`].
//! - The running configuration is one immutable [`state::Forwarding`] snapshot, which each worker reads once
//!   per round.
//! - The workers' output is in [`counters`].
//! - Control threads hold an [`engine::Engine`], which starts, changes and stops the workers.
//! - `explain` and `trace` run the same stages with a recorder.
//!
//! The per-packet code takes no locks, allocates no memory, formats no text, reads no clock and makes no
//! system calls.

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
