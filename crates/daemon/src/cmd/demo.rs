//! `trivium demo`, and the process that cleans up if the demo is killed.

use crate::demo::{self, lab};
use cli::args::Demo;
use cli::failure::Failure;

/// Runs the demo, or the clean-up process if `--reap` is given.
///
/// # Errors
/// A requirement is missing, or traffic did not cross the lab.
pub fn run(args: &Demo) -> Result<(), Failure> {
    match &args.reap {
        Some(prefix) => {
            lab::reap(prefix);
            Ok(())
        }
        None => demo::run(args),
    }
}
