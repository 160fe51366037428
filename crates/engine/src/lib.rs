//! Packet processing on worker threads, with one thread per core. A packet passes the following stages:
//! *receive, parse, the port's function, transmit*.
//!
//! ```text
//!                                worker.rs (one thread, one core)
//!   Queue --> receive -> parse -> ingress -> software_rss -> bridge           -> transmit --> Queue
//!                                               |  ^         openflow             |
//!                                               |  |         router               |
//!                                               v  |         cross_connect        v
//!                                          other workers                  owner of the queue
//!                                        (handover.rs: SPSC rings between workers)
//! ```
//!
//! Readers of the code should start with [`worker`].
//!
//! - A stage of the packet path is a plain function over a [`burst::Burst`].
//! - The running configuration is one immutable [`state::Forwarding`] snapshot. Each worker reads the current
//!   snapshot once per round.
//! - The workers count packets and time in [`counters`].
//! - Control threads start, change and stop the workers through an [`engine::Engine`].
//! - The modules `explain` and `trace` run the same stages with a recorder.
//!
//! The per-packet code takes no locks, allocates no memory, formats no text, reads no clock and makes no
//! system calls.

#[allow(clippy::disallowed_methods, reason = "a bench measures around the data path, not in it")]
pub mod bench;
pub mod burst;
pub mod capture;
mod clock;
mod connections;
pub mod counters;
pub mod engine;
pub mod explain;
pub mod flows;
pub mod handover;
pub mod idle;
pub mod inspect;
pub mod ordering;
mod packet_outs;
pub mod slow_path;
pub mod stage;
pub mod state;
pub mod trace;
pub mod worker;

pub use connections::{ConnectionView, Connections, IcmpView};
pub use engine::{Engine, EngineConfig, EngineError};
pub use explain::Explained;
pub use flows::{FlowBridge, FlowTables};
pub use idle::PollMode;
pub use slow_path::{HookCounts, HookFlows, MegaflowView, SlowPath, SlowPathView};
pub use stage::ingress::{Arrivals, IngressStage, Verdicts};
pub use state::{Forwarding, Function, PortView};
