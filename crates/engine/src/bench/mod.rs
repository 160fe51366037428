//! `trivium bench`: the real engine over in-memory ports, unprivileged.
//!
//! At least 8,192 distinct frames are in rotation and their headers are written anew for every packet, so that no scenario lives in
//! the first-level cache. What the source costs is measured alone, in turns with the scenario in the same run, and is not part of
//! `ns_per_packet`.

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

/// Why a bench could not run.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Frame memory could not be had.
    #[error(transparent)]
    Memory(#[from] port::MemoryError),
    /// The engine could not be started.
    #[error(transparent)]
    Engine(#[from] crate::EngineError),
    /// A descriptor or a thread could not be had.
    #[error("the bench's decider cannot be started ({0}); raise the limits of open files and of threads")]
    Os(#[from] std::io::Error),
    /// The table has no room for the routes.
    #[error(transparent)]
    Full(#[from] router::FibError),
    /// The scenario routes by a table, and there is none.
    #[error("scenario {0} needs a table of that family; name a file of prefixes with --table")]
    NoTable(&'static str),
    /// Nothing came through.
    #[error(
        "scenario {0}: no packet came through in the measured time; this is a defect of the engine, please report it"
    )]
    Nothing(&'static str),
    /// More workers than the scenario knows how to use.
    #[error("scenario {0} runs with one worker only; leave --workers away")]
    OneWorker(&'static str),
}
