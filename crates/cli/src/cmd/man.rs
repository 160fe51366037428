//! `trivium man`: manual pages, one for each command, generated from the command line's grammar.

use clap::CommandFactory;

use crate::args::{Cli, Man};
use crate::failure::Failure;

/// Writes `trivium.1`, `trivium-show.1` and so on into a directory.
///
/// # Errors
/// Returns an error if the directory is missing, or a page cannot be written.
pub fn run(args: &Man) -> Result<(), Failure> {
    let directory = &args.directory;
    clap_mangen::generate_to(Cli::command(), directory).map_err(|error| {
        let cause = format!("cannot write manual pages: {error}");
        Failure::new(
            directory.display().to_string(),
            cause,
            "name a directory that exists and that you may write to",
        )
    })
}
