//! Implementation of the commands, one file for each command.

mod apply;
mod bench;
mod capture;
mod check;
mod completions;
mod demo;
mod doctor;
mod explain;
mod flush;
mod man;
mod release;
pub mod run;
mod show;
mod stop;
pub mod top;
mod trace;
mod upgrade;
mod xdp;

use std::time::Duration;

use crate::cli::{Cli, Command, SOCKET};
use crate::client::Client;
use crate::failure::Failure;

/// Executes the command that the command line names.
///
/// # Errors
/// The failure of the command.
pub fn execute(cli: Cli) -> Result<(), Failure> {
    let given = cli.socket;
    let socket = given.clone().unwrap_or_else(|| SOCKET.into());
    let client = Client::new(socket).patient(Duration::from_secs(cli.timeout));
    match cli.command {
        Command::Run(args) => run::run(&args, given.as_deref()),
        Command::Check(args) => check::run(&args),
        Command::Release(args) => release::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Completions(args) => {
            completions::run(args);
            Ok(())
        }
        Command::Man(args) => man::run(&args),
        Command::Apply(args) => run::block_on(apply::apply(&client, &args)),
        Command::Confirm(args) => run::block_on(apply::confirm(&client, args)),
        Command::Rollback(args) => run::block_on(apply::roll_back(&client, args)),
        Command::Show(args) => run::block_on(show::show(&client, &args)),
        Command::Top(args) => run::block_on(top::top(&client, &args)),
        Command::Capture(args) => run::block_on(capture::capture(&client, &args)),
        Command::Trace(args) => run::block_on(trace::trace(&client, &args)),
        Command::Explain(args) => run::block_on(explain::explain(&client, &args)),
        Command::Doctor(args) => run::block_on(doctor::doctor(&client, &args)),
        Command::Xdp(args) => xdp::run(&client, &args),
        Command::Flush(args) => run::block_on(flush::flush(&client, &args)),
        Command::Stop(args) => run::block_on(stop::stop(&client, args)),
        Command::Upgrade(args) => run::block_on(upgrade::upgrade(&client, &args)),
    }
}
