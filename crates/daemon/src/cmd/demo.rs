//! `trivium demo`, and the process that cleans up after it should it be killed.

use crate::cli::Demo;
use crate::demo::{self, reaper};
use crate::failure::Failure;

/// Runs the demo.
///
/// # Errors
/// If something is missing, or traffic did not cross.
pub fn run(args: &Demo) -> Result<(), Failure> {
    match &args.reap {
        Some(prefix) => {
            reaper::run(prefix);
            Ok(())
        }
        None => demo::run(args),
    }
}
