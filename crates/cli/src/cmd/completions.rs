//! `trivium completions`: shell completions that are generated from the command line's grammar.

use clap::CommandFactory;

use crate::args::{Cli, Completions};

/// Prints the completions of a shell to standard output.
pub fn run(args: Completions) {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "trivium", &mut text);
    print!("{}", String::from_utf8_lossy(&text));
}
