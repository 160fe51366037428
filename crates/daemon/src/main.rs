//! The `trivium` binary, which contains the daemon and the command line. Only this crate combines the data plane,
//! the control plane and the command line.
//!
//! ```text
//!   trivium run ──> run ──> dataplane (engine, port, xdp, switch)  <── control (API, diff, apply)
//!                   └──> ovs (database, ovs-appctl, controllers)
//!   trivium show|top|capture|... ──> cli ──HTTP over the unix socket──> control
//! ```
//!
//! Exit codes:
//! - 0: success.
//! - 1: failure.
//! - 2: wrong arguments.
//! - 3: the configuration is refused.
//! - 4: the daemon does not answer.

mod log;
mod notify;
mod pid_file;
mod run;
mod vlog;

use std::process::ExitCode;

use cli::OtherCommands;
use cli::args::Cli;

/// Memory allocator that counts allocations. `trivium bench` uses the counts to show that the data path
/// allocates no memory.
#[global_allocator]
static HEAP: sync::heap::CountingHeap = sync::heap::CountingHeap;

fn main() -> ExitCode {
    quiet_at_closed_pipes();
    let others = OtherCommands {
        run: run::run,
        bench: bench::memory::run,
        demo: demo::run,
        xdp_bench: bench::hook::run,
    };
    match cli::execute(Cli::read(), &others) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            failure.exit_code()
        }
    }
}

/// Installs a panic hook that ends the process without a message when a write to standard output
/// fails because the pipe is closed, for example in `trivium show fdb | head`.
fn quiet_at_closed_pipes() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload().downcast_ref::<String>();
        if text.is_some_and(|text| text.starts_with("failed printing to stdout")) {
            // Exit status that a shell reports for SIGPIPE.
            std::process::exit(141);
        }
        usual(info);
    }));
}
