//! One process takes over from another: frame memory, sockets, hooks, TAPs, the MAC tables and the listening sockets
//! change hands over a socket pair, which is the successor's standard input.
//!
//! ```text
//!   old                                     new (`trivium run --take-over`)
//!    |-- Offer: configuration, memory, API -->|  maps the memory, checks the configuration
//!    |<------------------------- Prepared ----|
//!    |  stops its workers                     |     packets wait in the kernel's rings
//!    |-- Estate: queues, hooks, tables ------>|  starts its workers over the same rings
//!    |<-------------------------- Running ----|
//!    |  ends, touching nothing                |  serves the API, tells systemd
//! ```
//!
//! Until Prepared nothing has happened to the old process, and after that it can still resume: what it gave away are
//! duplicates of descriptors that it holds itself.

pub mod estate;
#[cfg(test)]
mod fuzzed;
pub mod give;
mod letters;
mod link;
pub mod take;

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
