//! One process takes over from another: frame memory, sockets, hooks, TAPs, the MAC tables and the listening sockets
//! change hands over a socket pair, which is the successor's standard input.
//!
//! ```text
//!   old                                     new (`trivium run --take-over`)
//!    |-- Offer: configuration, memory, API -->|  maps the memory, checks the configuration
//!    |<------------------------- Prepared ----|
//!    |  stops its workers                     |     packets wait in the kernel's rings
//!    |-- Estate: queues, hooks, tables ------>|  puts queues and hooks together over the same rings
//!    |<-------------- Release: some ports ----|  (only if some ports cannot be resumed)
//!    |-- Released --------------------------->|  opens these ports anew
//!    |<-------------------------- Resumed ----|  everything is ready, no worker runs
//!    |-- Commit ----------------------------->|
//!    |<------------------------ Committed ----|  starts its workers
//!    |<-------------------------- Running ----|
//!    |  ends, touching nothing                |  serves the API, tells systemd
//! ```
//!
//! - Until Prepared nothing has happened to the old process.
//! - Until Committed the new process touches no packet and no ring. The old process resumes with what it holds: what it gave away are
//!   duplicates of its own descriptors.
//! - Between Committed and Running the new process may have used the rings. If it ends there, the old process opens its AF_XDP sockets
//!   anew and goes on.
//! - The old process ends the new one (SIGKILL) before it resumes anything, and reads afterwards whether Committed was sent.
//! - Captures and traces end before the workers do. Snooping keeps its groups, and listens to the next workers.
//! - The hand-over has one deadline, however many messages there are; meanwhile the watchdog is fed. A process that is told to end during it
//!   ends the successor, takes everything back, and ends.
//! - What a successor can find out before Prepared it refuses there: certificate, key and tokens of the API, block lists, the configuration.
//!   Behind Running there is no predecessor to go back to: what fails then is logged and told by `doctor`, and traffic goes on.
//! - A process whose workers cannot be stopped, or which can resume nothing, aborts, so that a supervisor restarts it.
//!
//! A predecessor that sends no Commit (`Offer::commit` is false), and a successor that answers the estate with Running at once, are served as
//! before.

mod counters;
pub mod estate;
#[cfg(test)]
mod estate_tests;
#[cfg(test)]
mod fuzzed;
pub mod give;
mod letters;
mod link;
pub mod progress;
pub mod take;

pub use link::LIMIT;
use link::Link;

/// Version of what is sent; a successor that does not know it refuses.
pub const VERSION: u32 = 1;

/// Why nothing was handed over.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The other side is gone or says nothing.
    #[error("the other process does not answer while {0} is awaited ({1})")]
    Silent(&'static str, std::io::Error),
    /// What came is not understood.
    #[error(
        "what the other process sent is not understood ({0}); restart the daemon instead of upgrading it"
    )]
    Strange(String),
    /// The other process refuses.
    #[error("the successor refuses: {0}")]
    Refused(String),
    /// Something of ours failed.
    #[error("{0}")]
    Own(String),
}
