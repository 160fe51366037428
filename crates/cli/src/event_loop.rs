//! Event loop (tokio runtime) in which a command of the client runs.

use std::future::Future;

use crate::failure::Failure;

/// Runs a client command on a new event loop until it completes.
///
/// # Errors
/// Returns the failure of the command.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new("trivium", error, "raise the limit of open files"))?
        .block_on(work)
}
