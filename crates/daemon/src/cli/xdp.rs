//! The grammar of `trivium xdp`.

use clap::{Args, Subcommand};

use super::seconds;

/// `trivium xdp`
#[derive(Clone, Debug, Subcommand)]
pub enum Xdp {
    /// What stands on each port's device: program, mode, stages, maps, run time
    Status(XdpStatus),
    /// Filters of ports' hooks (see `[filter.NAME]` in the configuration)
    #[command(subcommand)]
    Filter(FilterCommand),
}

/// `trivium xdp status`
#[derive(Clone, Debug, Args)]
pub struct XdpStatus {
    /// Only this port
    pub port: Option<String>,
    /// How long runs are counted; 0: not at all. Meanwhile every BPF program of the machine is a little slower
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = counted)]
    pub seconds: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `trivium xdp filter`
#[derive(Clone, Debug, Subcommand)]
pub enum FilterCommand {
    /// Packets of each rule, as `trivium show filters`
    Show {
        /// Only this filter
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Put source prefixes into a block list until the daemon ends; the list's file stays as it is
    Block(Block),
    /// Take source prefixes out of a block list
    Unblock(Unblock),
    /// Read a block list's file anew
    Reload {
        /// The filter; may be left out where only one has a block list
        filter: Option<String>,
    },
}

/// `trivium xdp filter block` and `unblock`
#[derive(Clone, Debug, Args)]
pub struct Block {
    /// Addresses or prefixes, such as `192.0.2.0/24`
    #[arg(required = true, value_name = "PREFIX", value_parser = prefix)]
    pub prefixes: Vec<model::Prefix>,
    /// The filter; may be left out where only one has a block list
    #[arg(long)]
    pub filter: Option<String>,
    /// Take them out again after so many seconds ("60" or "60s")
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub expires: Option<u64>,
}

/// `trivium xdp filter unblock`
#[derive(Clone, Debug, Args)]
pub struct Unblock {
    /// Addresses or prefixes, such as `192.0.2.0/24`
    #[arg(required = true, value_name = "PREFIX", value_parser = prefix)]
    pub prefixes: Vec<model::Prefix>,
    /// The filter; may be left out where only one has a block list
    #[arg(long)]
    pub filter: Option<String>,
}

fn prefix(text: &str) -> Result<model::Prefix, String> {
    text.parse().map_err(|error| format!("{error}"))
}

/// A length of time for which runs are counted.
fn counted(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("'{text}' is no number of seconds from 0 to 60; write 1 or 0.5")),
    }
}
