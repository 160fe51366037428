//! `trivium xdp`: commands for the XDP programs of ports (hooks), with one file for each command.

mod dump;
mod filter;
mod generate;
mod monitor;
mod program;
mod status;
mod steering;

use crate::args::{Xdp, XdpBench};
use crate::client::Client;
use crate::event_loop::block_on;
use crate::failure::Failure;

/// Executes a subcommand of `trivium xdp`. The function `bench` executes `trivium xdp bench`, which another crate
/// implements.
///
/// # Errors
/// Returns the failure of the subcommand.
pub fn run(
    client: &Client,
    command: &Xdp,
    bench: fn(&XdpBench) -> Result<(), Failure>,
) -> Result<(), Failure> {
    match command {
        Xdp::Status(args) => block_on(status::status(client, args)),
        Xdp::Monitor(args) => block_on(monitor::monitor(client, args)),
        Xdp::Dump(args) => block_on(dump::dump(client, args)),
        Xdp::Load(args) => block_on(program::load(client, args)),
        Xdp::Unload(args) => block_on(program::unload(client, args)),
        Xdp::Gen(args) => generate::run(args),
        Xdp::Bench(args) => bench(args),
        Xdp::Filter(args) => block_on(filter::filter(client, args)),
        Xdp::Steering(args) => block_on(steering::steering(client, args)),
    }
}
