//! Command-line grammar. The implementation of each command is in `cmd/`, one file for each command. The grammar of
//! `trivium show` is in `cmd/show.rs`, beside its implementation.

#[cfg(test)]
mod reference;
mod rule;
mod xdp;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

pub use crate::cmd::show::Show;
pub use rule::{RuleAdd, RuleRemove};
pub use xdp::{
    DumpAt, FilterCommand, FilterSamples, FlowArgs, FrameOrder, FrameProtocol, Lengths, SteeringCommand,
    Varied, Xdp, XdpBench, XdpDump, XdpGen, XdpLoad, XdpMonitor, XdpScenario, XdpStatus, XdpUnload,
};

/// Default path of the daemon's API socket.
pub const SOCKET: &str = "/run/trivium/trivium.sock";

/// Trivium: switching, routing and load balancing in one data plane for Linux.
#[derive(Clone, Debug, Parser)]
#[command(name = "trivium", version = env!("TRIVIUM_VERSION"), max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    /// Path of the daemon's socket. `run` listens there and not at `daemon.api` [default:
    /// /run/trivium/trivium.sock]
    #[arg(long, global = true, env = "TRIVIUM_SOCKET", value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Seconds without a sign of life from the daemon after which the command fails
    #[arg(long, global = true, env = "TRIVIUM_TIMEOUT", default_value_t = 20, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: u64,
    /// Command to execute
    #[command(subcommand)]
    pub command: Command,
}

/// Commands that do not contact the daemon and therefore reject `--socket`.
const WITHOUT_SOCKET: &[&[&str]] = &[
    &["check"],
    &["release"],
    &["bench"],
    &["demo"],
    &["completions"],
    &["man"],
    &["xdp", "gen"],
    &["xdp", "bench"],
];

impl Cli {
    /// Reads the command line of the process. Exits the process on a wrong argument and on `--help`.
    pub fn read() -> Cli {
        match Cli::read_from(std::env::args_os()) {
            Ok(cli) => cli,
            Err(error) => error.exit(),
        }
    }

    /// Parses a command line. The option `--socket` on the command line is an error for a command that does
    /// not contact the daemon. A socket path from the environment is ignored by such commands.
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

/// Commands of `trivium`.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the daemon
    Run(Run),
    /// Check a configuration file and report all mistakes. Changes nothing
    Check(Check),
    /// Apply a configuration file to the running daemon, completely or not at all
    Apply(Apply),
    /// Keep the configuration that `apply --confirm` has applied on trial
    Confirm(Json),
    /// Undo the configuration that `apply --confirm` has applied on trial, before its time runs out
    Rollback(Json),
    /// Show the state of the daemon
    Show(Show),
    /// Show ports, workers, bridges, flows, routers, filters and drops live
    Top(Top),
    /// Capture packets of a port, or dropped packets with the reason of the drop
    Capture(Capture),
    /// Trace the next packets that match a filter through all stages
    Trace(Trace),
    /// Explain what the data plane would do with a packet, and why. Sends nothing
    Explain(Explain),
    /// Report problems of speed and correctness, each with its fix
    Doctor(Json),
    /// Show and change the driver hook: programs, counters, filters and flow steering
    #[command(subcommand)]
    Xdp(Xdp),
    /// Remove learned addresses from bridges
    Flush(Flush),
    /// Replace the running daemon by a new binary without packet loss
    Upgrade(Upgrade),
    /// Stop the running daemon, also after an upgrade
    Stop(Json),
    /// Remove hooks that a daemon left on devices when it ended (see `persist`)
    Release(Release),
    /// Measure the engine over in-memory ports. Needs no privilege
    Bench(Bench),
    /// Build a lab of network namespaces and send real traffic through a bridge
    Demo(Demo),
    /// Print the completions of a shell: bash, elvish, fish, powershell or zsh
    Completions(Completions),
    /// Write the manual pages of all commands into a directory
    Man(Man),
}

/// Arguments of `trivium completions`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Arguments of `trivium man`.
#[derive(Clone, Debug, Args)]
pub struct Man {
    /// The directory, which must exist
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
}

/// Arguments of `trivium run`.
#[derive(Clone, Debug, Args)]
pub struct Run {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "/etc/trivium/trivium.toml")]
    pub config: PathBuf,
    /// Restore the OpenFlow rules, groups and meters of the last daemon, even if it was killed (as `daemon.restore`
    /// does)
    #[arg(long)]
    pub restore: bool,
    /// Take over from the running daemon, whose socket is standard input (used by `trivium upgrade`)
    #[arg(long, hide = true)]
    pub take_over: bool,
    /// Level of the log on standard error: off, error, warn, info, debug or trace, or levels by target, such
    /// as `info,audit=warn`. The environment variable RUST_LOG has the same effect [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
}

/// Arguments of `trivium check`.
#[derive(Clone, Debug, Args)]
pub struct Check {
    /// Configuration file
    pub file: PathBuf,
    /// Print problems as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `trivium apply`.
#[derive(Clone, Debug, Args)]
pub struct Apply {
    /// Configuration file
    pub file: PathBuf,
    /// Show the difference and apply nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Apply the file even if it removes most objects of the running configuration
    #[arg(long)]
    pub force: bool,
    /// Roll back after this time unless `trivium confirm` is given ("60" or "60s")
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub confirm: Option<u64>,
    /// Print the difference as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of commands that have the option `--json` only.
#[derive(Clone, Copy, Debug, Args)]
pub struct Json {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `trivium top`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Top {
    /// Number of seconds after which to stop
    #[arg(long)]
    pub seconds: Option<u64>,
}

/// Arguments of `trivium capture`.
#[derive(Clone, Debug, Args)]
pub struct Capture {
    /// Name of the port, or `all`
    pub port: String,
    /// Capture only dropped packets. The packet's comment holds the reason
    #[arg(long)]
    pub drops: bool,
    /// Write pcapng to this file ("-" for standard output)
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Number of packets after which to stop
    #[arg(short, long, value_name = "N")]
    pub number: Option<u64>,
    /// Number of seconds after which to stop
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Option<u64>,
    /// Capture only packets that match all of these fields, such as
    /// `ip_src=10.0.0.0/8,tcp,dst_port=80,vlan=10`
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
}

/// Arguments of `trivium trace`.
#[derive(Clone, Debug, Args)]
pub struct Trace {
    /// Number of packets to trace
    #[arg(short, long, default_value_t = 1, value_name = "N")]
    pub number: u32,
    /// Trace only packets that are received on this port
    #[arg(long = "in", value_name = "PORT")]
    pub port: Option<String>,
    /// Trace only packets that match all of these fields, such as `ip_src=10.0.0.1,icmp`
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
    /// Number of seconds without a match after which to stop
    #[arg(long, default_value_t = 30)]
    pub seconds: u64,
    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `trivium explain`.
#[derive(Clone, Debug, Args)]
pub struct Explain {
    /// Port that receives the packet
    #[arg(long = "in", value_name = "PORT")]
    pub port: String,
    /// Packet: fields such as `eth_src=02:00:00:00:00:01,arp,arp_tpa=10.0.0.2`, bytes such as
    /// `hex:0200000000020200000000010800`, or the first packet of a file such as `@FILE.pcap`
    #[arg(required = true)]
    pub packet: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `trivium flush`.
#[derive(Clone, Debug, Args)]
pub struct Flush {
    /// Name of the bridge. All bridges if absent
    pub bridge: Option<String>,
    /// Remove only addresses learned on this port
    #[arg(long)]
    pub port: Option<String>,
    /// Remove only addresses in this VLAN
    #[arg(long, value_name = "VLAN")]
    pub vlan: Option<u16>,
    /// Remove only this address
    #[arg(long, value_name = "ADDRESS")]
    pub mac: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `trivium upgrade`.
#[derive(Clone, Debug, Args)]
pub struct Upgrade {
    /// Path of the new binary. If absent, the file now at the path from which the daemon was started
    #[arg(long, value_name = "PATH")]
    pub binary: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `trivium release`.
#[derive(Clone, Debug, Args)]
pub struct Release {
    /// Name of a device or a port. All devices if absent
    pub device: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `trivium bench`.
#[derive(Clone, Debug, Args)]
pub struct Bench {
    /// Name of the scenario. `list` prints all names
    pub scenario: String,
    /// Print one JSON object and nothing else
    #[arg(long)]
    pub json: bool,
    /// Duration of the measurement in seconds, up to 3600
    #[arg(long, default_value_t = 5.0, value_parser = measured)]
    pub seconds: f64,
    /// Number of workers, up to 64
    #[arg(long, default_value_t = 1, value_parser = workers)]
    pub workers: usize,
    /// File of the prefixes for route-full4, route-full6, route-churn and fib-load, one prefix a line, plain
    /// or gzip
    #[arg(long, value_name = "FILE", default_value = "bench/data/rib-prefixes.txt.gz")]
    pub table: PathBuf,
    /// Choose destinations by a Zipf distribution and not uniformly
    #[arg(long)]
    pub zipf: bool,
}

/// Arguments of `trivium demo`.
#[derive(Clone, Debug, Args)]
pub struct Demo {
    /// Number of seconds after which to stop, extended if the routing daemons need longer to converge. Runs
    /// until interrupted if absent
    #[arg(long)]
    pub seconds: Option<u64>,
    /// Print plain lines even on a terminal
    #[arg(long)]
    pub plain: bool,
    /// Wait for the end of standard input, then remove the lab with this prefix (used by the demo itself)
    #[arg(long, hide = true, value_name = "PREFIX")]
    pub reap: Option<String>,
}

/// Parses a number of seconds that is written as `60` or `60s`. The smallest accepted number is 1.
fn seconds(text: &str) -> Result<u64, String> {
    match text.strip_suffix('s').unwrap_or(text).parse() {
        Ok(seconds) if seconds > 0 => Ok(seconds),
        _ => Err(format!("'{text}' is no number of seconds; write 60 or 60s")),
    }
}

/// Parses the duration of a measurement in seconds, above 0 and up to 3600.
fn measured(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(seconds),
        _ => Err(format!("'{text}' is no number of seconds above 0 and up to 3600; write 5 or 0.5")),
    }
}

/// Parses a number of workers, from 1 to the engine's limit of 64.
fn workers(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(workers @ 1..=64) => Ok(workers),
        _ => Err(format!("'{text}' is no number of workers from 1 to 64")),
    }
}

#[cfg(test)]
mod tests;
