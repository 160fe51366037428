//! The command line's grammar. What each command does stands in `cmd/`, one file each.

mod rule;
mod show;
mod xdp;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

pub use rule::{RuleAdd, RuleRemove};
pub use show::{Fdb, Flows, OfBridge, OfRouter, Routes, Several, Show, Shown, Why};
pub use xdp::{
    DumpAt, FilterCommand, FilterSamples, FlowArgs, FrameOrder, FrameProtocol, Lengths, SteerCommand, Varied,
    Xdp, XdpBench, XdpDump, XdpGen, XdpLoad, XdpMonitor, XdpScenario, XdpStatus, XdpUnload,
};

/// Where the daemon listens unless the configuration says otherwise.
pub const SOCKET: &str = "/run/trivium/trivium.sock";

/// Trivium: switching, routing and load balancing in one data plane for Linux.
#[derive(Clone, Debug, Parser)]
#[command(name = "trivium", version = env!("TRIVIUM_VERSION"), max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    /// The daemon's socket; `run` listens there instead of at `daemon.api` [default: /run/trivium/trivium.sock]
    #[arg(long, global = true, env = "TRIVIUM_SOCKET", value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Give up when the daemon has given no sign of life for so many seconds
    #[arg(long, global = true, env = "TRIVIUM_TIMEOUT", default_value_t = 20, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: u64,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// Commands for which a socket means nothing: they ask no daemon.
const WITHOUT_SOCKET: &[&[&str]] =
    &[&["check"], &["release"], &["bench"], &["demo"], &["completions"], &["man"], &["xdp", "gen"], &["xdp", "bench"]];

impl Cli {
    /// Reads the command line. A mistake ends the process, as does `--help`.
    pub fn read() -> Cli {
        match Cli::read_from(std::env::args_os()) {
            Ok(cli) => cli,
            Err(error) => error.exit(),
        }
    }

    /// Reads a command line. An option that the command would ignore is a mistake; the environment may have it.
    pub fn read_from<T: Into<OsString> + Clone>(
        words: impl IntoIterator<Item = T>,
    ) -> Result<Cli, clap::Error> {
        let mut command = Cli::command();
        let matches = command.try_get_matches_from_mut(words)?;
        for names in WITHOUT_SOCKET {
            let mut inner = Some(&matches);
            for name in *names {
                inner = inner.and_then(|matches| matches.subcommand_matches(name));
            }
            let Some(inner) = inner else { continue };
            if inner.value_source("socket") == Some(ValueSource::CommandLine) {
                let name = names.join(" ");
                let text = format!("`trivium {name}` asks no daemon: --socket means nothing there");
                return Err(command.error(ErrorKind::ArgumentConflict, text));
            }
        }
        Cli::from_arg_matches(&matches)
    }
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 failed; 2 wrong arguments; 3 the configuration is refused; 4 the daemon does not answer.";

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the daemon
    Run(Run),
    /// Check a configuration file: every mistake at once, nothing is touched
    Check(Check),
    /// Make the running daemon do what a file says: whole or not at all
    Apply(Apply),
    /// Keep what `apply --confirm` has put on trial
    Confirm(Json),
    /// Undo what `apply --confirm` has put on trial, without waiting for its time to run out
    Rollback(Json),
    /// Show how things are
    Show(Show),
    /// Live view of ports, workers and drops
    Top(Top),
    /// Packets of a port as they pass, or as they are dropped, with the reason
    Capture(Capture),
    /// The next packets that match a filter, stage by stage
    Trace(Trace),
    /// What would happen to a packet, and why; nothing is sent
    Explain(Explain),
    /// What stands in the way of speed and correctness, each with its fix
    Doctor(Json),
    /// The driver hook: what stands there, what it does, its filters and steerings
    #[command(subcommand)]
    Xdp(Xdp),
    /// Forget what bridges have learned
    Flush(Flush),
    /// Replace the running daemon by a new binary without losing a packet
    Upgrade(Upgrade),
    /// End the running daemon, whichever process it is now
    Stop(Json),
    /// Take hooks off devices that an ended daemon has left there (see `persist`)
    Release(Release),
    /// Measure the engine over in-memory ports; needs no privilege
    Bench(Bench),
    /// Build a lab of network namespaces and drive real traffic through a bridge
    Demo(Demo),
    /// Print the completions of a shell: bash, elvish, fish, powershell or zsh
    Completions(Completions),
    /// Write the manual pages of all commands into a directory
    Man(Man),
}

/// `trivium completions`
#[derive(Clone, Copy, Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// `trivium man`
#[derive(Clone, Debug, Args)]
pub struct Man {
    /// The directory, which must exist
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
}

/// `trivium run`
#[derive(Clone, Debug, Args)]
pub struct Run {
    /// The configuration
    #[arg(short, long, value_name = "FILE", default_value = "/etc/trivium/trivium.toml")]
    pub config: PathBuf,
    /// Begin with the OpenFlow rules, groups and meters that the last daemon had, also after a kill (as `daemon.restore` does)
    #[arg(long)]
    pub restore: bool,
    /// Take over from the running daemon whose socket is standard input (used by `trivium upgrade`)
    #[arg(long, hide = true)]
    pub take_over: bool,
    /// What is logged on standard error: off, error, warn, info, debug or trace, or by target, such as `info,audit=warn`; the
    /// environment's RUST_LOG does the same [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
}

/// `trivium check`
#[derive(Clone, Debug, Args)]
pub struct Check {
    /// The configuration
    pub file: PathBuf,
    /// Print problems as JSON
    #[arg(long)]
    pub json: bool,
}

/// `trivium apply`
#[derive(Clone, Debug, Args)]
pub struct Apply {
    /// The configuration
    pub file: PathBuf,
    /// Only show the difference
    #[arg(long)]
    pub dry_run: bool,
    /// Apply it also where it removes most of what the file before had
    #[arg(long)]
    pub force: bool,
    /// Roll back after so many seconds unless `trivium confirm` is given ("60" or "60s")
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub confirm: Option<u64>,
    /// Print the difference as JSON
    #[arg(long)]
    pub json: bool,
}

/// `--json` alone
#[derive(Clone, Copy, Debug, Args)]
pub struct Json {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `trivium top`
#[derive(Clone, Copy, Debug, Args)]
pub struct Top {
    /// Stop after so many seconds
    #[arg(long)]
    pub seconds: Option<u64>,
}

/// `trivium capture`
#[derive(Clone, Debug, Args)]
pub struct Capture {
    /// The port, or `all`
    pub port: String,
    /// Only packets that were dropped; the reason stands in the packet's comment
    #[arg(long)]
    pub drops: bool,
    /// Write pcapng to this file ("-": standard output)
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Stop after so many packets
    #[arg(short, long, value_name = "N")]
    pub number: Option<u64>,
    /// Stop after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Option<u64>,
    /// Only packets that match all of it, such as `ip_src=10.0.0.0/8,tcp,dst_port=80,vlan=10`
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
}

/// `trivium trace`
#[derive(Clone, Debug, Args)]
pub struct Trace {
    /// How many packets
    #[arg(short, long, default_value_t = 1, value_name = "N")]
    pub number: u32,
    /// Only packets that come in by this port
    #[arg(long = "in", value_name = "PORT")]
    pub port: Option<String>,
    /// Only packets that match all of it, such as `ip_src=10.0.0.1,icmp`
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
    /// Give up after so many seconds without a match
    #[arg(long, default_value_t = 30)]
    pub seconds: u64,
    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,
}

/// `trivium explain`
#[derive(Clone, Debug, Args)]
pub struct Explain {
    /// The port that the packet would come in by
    #[arg(long = "in", value_name = "PORT")]
    pub port: String,
    /// The packet: words such as `eth_src=02:00:00:00:00:01,arp,arp_tpa=10.0.0.2`, bytes such as
    /// `hex:0200000000020200000000010800`, or the first packet of a file such as `@FILE.pcap`
    #[arg(required = true)]
    pub packet: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `trivium flush`
#[derive(Clone, Debug, Args)]
pub struct Flush {
    /// The bridge; all bridges if absent
    pub bridge: Option<String>,
    /// Only addresses at this port
    #[arg(long)]
    pub port: Option<String>,
    /// Only addresses in this VLAN
    #[arg(long, value_name = "VLAN")]
    pub vlan: Option<u16>,
    /// Only this address
    #[arg(long, value_name = "ADDRESS")]
    pub mac: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `trivium upgrade`
#[derive(Clone, Debug, Args)]
pub struct Upgrade {
    /// The new binary; if absent, what stands now where the daemon's own binary was started from
    #[arg(long, value_name = "PATH")]
    pub binary: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `trivium release`
#[derive(Clone, Debug, Args)]
pub struct Release {
    /// The device or the port; all if absent
    pub device: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `trivium bench`
#[derive(Clone, Debug, Args)]
pub struct Bench {
    /// The scenario; `list` names them
    pub scenario: String,
    /// Print one JSON object only
    #[arg(long)]
    pub json: bool,
    /// Length of the measurement, up to an hour
    #[arg(long, default_value_t = 5.0, value_parser = measured)]
    pub seconds: f64,
    /// Number of workers, up to 64
    #[arg(long, default_value_t = 1, value_parser = workers)]
    pub workers: usize,
    /// Prefixes that route-full4, route-full6, route-churn and fib-load use, one a line, packed by gzip or not
    #[arg(long, value_name = "FILE", default_value = "bench/data/rib-prefixes.txt.gz")]
    pub table: PathBuf,
    /// Some prefixes are more popular than others (Zipf), not all alike
    #[arg(long)]
    pub zipf: bool,
}

/// `trivium demo`
#[derive(Clone, Debug, Args)]
pub struct Demo {
    /// Stop by itself after so many seconds, or a few seconds after the routing daemons know each other
    #[arg(long)]
    pub seconds: Option<u64>,
    /// Plain lines even on a terminal
    #[arg(long)]
    pub plain: bool,
    /// Wait for the end of standard input, then remove the lab with this prefix (used by the demo itself)
    #[arg(long, hide = true, value_name = "PREFIX")]
    pub reap: Option<String>,
}

/// "60" or "60s", at least 1.
fn seconds(text: &str) -> Result<u64, String> {
    match text.strip_suffix('s').unwrap_or(text).parse() {
        Ok(seconds) if seconds > 0 => Ok(seconds),
        _ => Err(format!("'{text}' is no number of seconds; write 60 or 60s")),
    }
}

/// A length of time that a measurement can have.
fn measured(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(seconds),
        _ => Err(format!("'{text}' is no number of seconds above 0 and up to 3600; write 5 or 0.5")),
    }
}

/// So many workers as an engine can have.
fn workers(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(workers @ 1..=64) => Ok(workers),
        _ => Err(format!("'{text}' is no number of workers from 1 to 64")),
    }
}

#[cfg(test)]
mod tests;
