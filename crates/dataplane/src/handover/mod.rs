//! Hand-over from one process to another. Frame memory, sockets, hooks, TAPs, MAC tables and listening
//! sockets are transferred over a socket pair, which is the successor's standard input.
//!
//! ```text
//!   old                                     new (`trivium run --take-over`)
//!    |-- Offer: configuration, memory, API -->|  maps the memory, checks the configuration
//!    |<------------------------- Prepared ----|
//!    |  stops its workers                     |     packets wait in the kernel's rings
//!    |-- HandoverState: queues, hooks ------->|  rebuilds queues and hooks over the existing rings
//!    |<-------------- Release: some ports ----|  (only if some ports cannot be resumed)
//!    |-- Released --------------------------->|  opens these ports again
//!    |<-------------------------- Resumed ----|  everything is ready, no worker runs
//!    |-- Commit ----------------------------->|
//!    |<------------------------ Committed ----|  starts its workers
//!    |<-------------------------- Running ----|
//!    |  ends without clean-up                 |  serves the API, notifies systemd
//! ```
//!
//! - Until the message Prepared, the old process is unchanged.
//! - Until the message Committed, the new process accesses no packet and no ring. The old process can resume with its
//!   own descriptors, because it sent duplicates.
//! - Between Committed and Running, the new process may have used the rings. If the new process ends
//!   in this phase, the old process opens its AF_XDP sockets again and continues.
//! - A successor that ends may have passed free frames to zero-copy queues. The old process uses the frame memory again
//!   only after the kernel has released these queues (`successor_queues.rs`).
//! - The old process kills the new one (SIGKILL) before it resumes anything, and then checks whether the socket
//!   contains the message Committed.
//! - Captures and traces end before the workers stop. IGMP and MLD snooping keeps its groups, and
//!   continues with the workers that start next.
//! - One deadline covers all messages of the hand-over. The watchdog is fed until this deadline. A process
//!   that receives a termination signal during the hand-over kills the successor, resumes the data plane, and
//!   ends.
//! - The successor checks the certificate, key and tokens of the API, the block lists and the configuration
//!   before Prepared, and refuses the hand-over if a check fails. After Running, the predecessor cannot
//!   resume. The successor then logs a failure, `doctor` reports the failure, and traffic continues.
//! - A process whose workers or slow path cannot be stopped, or that cannot resume the data plane, aborts, so
//!   that a supervisor restarts it.
//!
//! Peers without the commit step are supported: a predecessor that sends no Commit (`Offer::commit` is false), and a
//! successor that immediately answers the hand-over state with Running.

pub mod bundle;
mod channel;
mod counters;
mod descriptors;
mod error;
pub mod export;
#[cfg(test)]
mod fuzzed;
pub mod import;
#[cfg(test)]
mod import_tests;
mod messages;
pub mod progress;
mod queues;
#[cfg(test)]
mod rate_tests;
pub mod receive;
pub mod send;
mod state;
pub mod successor_queues;

pub use channel::LIMIT;
use channel::Link;
pub use error::HandoverError;
pub use state::PER_RULE;

/// Version of the format of the hand-over messages. A successor that does not support the predecessor's version
/// refuses the hand-over.
pub const VERSION: u32 = 1;
