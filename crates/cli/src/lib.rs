//! The command line of the `trivium` binary: its grammar, the commands that send requests to a daemon, and commands
//! that need no daemon.
//!
//! ```text
//!   words ──> args (grammar) ──> cmd/* ──> client ──HTTP over the unix socket──> control
//!                                  └─────> table, live (output), failure (exit code)
//! ```
//!
//! Commands that need more than requests to a daemon (`run`, `bench`, `demo`) are in crates that
//! depend on this crate. The binary passes them to [`execute`] as [`OtherCommands`].
//!
//! ```
//! // The grammar accepts a command line without a daemon.
//! let line = cli::args::Cli::read_from(["trivium", "show", "ports", "--json"]).expect("a command line");
//! assert!(matches!(line.command, cli::args::Command::Show(show) if show.json));
//! assert!(cli::args::Cli::read_from(["trivium", "show", "harbours"]).is_err());
//! ```

pub mod args;
pub mod client;
mod cmd;
pub mod event_loop;
pub mod failure;
pub mod live;
mod pcap;

pub use model::table;

pub use cmd::check::{print_problems, read_configuration};
pub use cmd::{OtherCommands, execute};
