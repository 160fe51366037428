//! `trivium xdp`: commands for the driver hooks of ports, with one file for each command.

mod bench;
mod dump;
mod filter;
mod generate;
mod monitor;
mod program;
mod status;
mod steering;

use crate::cli::Xdp;
use crate::client::Client;
use crate::cmd::run::block_on;
use crate::failure::Failure;

/// Executes a subcommand of `trivium xdp`.
///
/// # Errors
/// The failure of the subcommand.
pub fn run(client: &Client, command: &Xdp) -> Result<(), Failure> {
    match command {
        Xdp::Status(args) => block_on(status::status(client, args)),
        Xdp::Monitor(args) => block_on(monitor::monitor(client, args)),
        Xdp::Dump(args) => block_on(dump::dump(client, args)),
        Xdp::Load(args) => block_on(program::load(client, args)),
        Xdp::Unload(args) => block_on(program::unload(client, args)),
        Xdp::Gen(args) => generate::run(args),
        Xdp::Bench(args) => bench::run(args),
        Xdp::Filter(args) => block_on(filter::filter(client, args)),
        Xdp::Steering(args) => block_on(steering::steering(client, args)),
    }
}
