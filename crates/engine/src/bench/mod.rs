//! Benchmarks for the command `trivium bench`. The benchmarks run the engine over in-memory ports and need no
//! privileges.
//!
//! At least 8,192 distinct frames circulate, and the headers are written for every packet, so that the data of no
//! scenario fits into the first-level CPU cache. The time to generate the packets is measured separately, in slices
//! that alternate with slices of the scenario. The figure `ns_per_packet` does not include this time.

mod attack;
mod changes;
mod churn;
mod circuit;
mod classify;
mod decisions;
mod figures;
mod flows;
mod generator;
mod paper;
mod routes;
pub(crate) mod rules;
mod scenario;
mod tenants;
mod upcalls;

pub use churn::{Churn, Load, churn, load};
pub use decisions::{Decision, decide};
pub use figures::{Figures, Row};
pub use generator::{Destinations, Flows, GeneratorQueue, Writer, pair};
pub use routes::{Popularity, Route, parse};
pub use scenario::{Options, Report, Scenario, run};

/// An error of a benchmark run.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Frame memory could not be allocated.
    #[error(transparent)]
    Memory(#[from] port::MemoryError),
    /// The engine could not be started.
    #[error(transparent)]
    Engine(#[from] crate::EngineError),
    /// The kernel did not create a file descriptor or a thread.
    #[error("the bench's slow path cannot be started ({0}); raise the limits of open files and of threads")]
    Os(#[from] std::io::Error),
    /// The routing table has no space for the routes of the scenario.
    #[error(transparent)]
    Full(#[from] router::FibError),
    /// The scenario needs a routing table, but the options contain no routes. The field names the scenario.
    #[error("scenario {0} needs a table of that family; name a file of prefixes with --table")]
    NoTable(&'static str),
    /// No packet was forwarded in the measured time. The field names the scenario.
    #[error(
        "scenario {0}: no packet came through in the measured time; this is a defect of the engine, please report it"
    )]
    Nothing(&'static str),
    /// The scenario supports only one worker, but more workers were requested. The field names the scenario.
    #[error("scenario {0} runs with one worker only; leave --workers away")]
    OneWorker(&'static str),
}
