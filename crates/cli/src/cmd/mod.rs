//! Implementation of the commands, one file for each command.

mod apply;
mod capture;
pub mod check;
mod completions;
mod doctor;
mod explain;
mod flush;
mod man;
mod release;
pub mod show;
mod stop;
mod top;
mod trace;
mod upgrade;
mod xdp;

use std::path::Path;
use std::time::Duration;

use crate::args::{Bench, Cli, Command, Demo, Run, SOCKET, XdpBench};
use crate::client::Client;
use crate::event_loop::block_on;
use crate::failure::Failure;

/// Commands whose implementation is in crates that depend on this crate.
#[derive(Clone, Copy, Debug)]
pub struct OtherCommands {
    /// Implementation of `trivium run`. The second argument is the path of the API socket, if the command line contains
    /// a path.
    pub run: fn(&Run, Option<&Path>) -> Result<(), Failure>,
    /// Implementation of `trivium bench`.
    pub bench: fn(&Bench) -> Result<(), Failure>,
    /// Implementation of `trivium demo`.
    pub demo: fn(&Demo) -> Result<(), Failure>,
    /// Implementation of `trivium xdp bench`.
    pub xdp_bench: fn(&XdpBench) -> Result<(), Failure>,
}

/// Executes the command that the command line names.
///
/// # Errors
/// Returns the failure of the command.
pub fn execute(cli: Cli, others: &OtherCommands) -> Result<(), Failure> {
    let given = cli.socket;
    let socket = given.clone().unwrap_or_else(|| SOCKET.into());
    let client = Client::new(socket).patient(Duration::from_secs(cli.timeout));
    match cli.command {
        Command::Run(args) => (others.run)(&args, given.as_deref()),
        Command::Check(args) => check::run(&args),
        Command::Release(args) => release::run(&args),
        Command::Bench(args) => (others.bench)(&args),
        Command::Demo(args) => (others.demo)(&args),
        Command::Completions(args) => {
            completions::run(args);
            Ok(())
        }
        Command::Man(args) => man::run(&args),
        Command::Apply(args) => block_on(apply::apply(&client, &args)),
        Command::Confirm(args) => block_on(apply::confirm(&client, args)),
        Command::Rollback(args) => block_on(apply::roll_back(&client, args)),
        Command::Show(args) => block_on(show::show(&client, &args)),
        Command::Top(args) => block_on(top::top(&client, &args)),
        Command::Capture(args) => block_on(capture::capture(&client, &args)),
        Command::Trace(args) => block_on(trace::trace(&client, &args)),
        Command::Explain(args) => block_on(explain::explain(&client, &args)),
        Command::Doctor(args) => block_on(doctor::doctor(&client, &args)),
        Command::Xdp(args) => xdp::run(&client, &args, others.xdp_bench),
        Command::Flush(args) => block_on(flush::flush(&client, &args)),
        Command::Stop(args) => block_on(stop::stop(&client, args)),
        Command::Upgrade(args) => block_on(upgrade::upgrade(&client, &args)),
    }
}
