//! Grammar of `trivium show`.

use clap::{Args, Subcommand};
use packet::MacAddr;

/// Largest accepted value of the option `--limit`, which bounds the number of routes, neighbours, next-hop
/// objects, rules or cached flows in one answer.
const MOST: u64 = 100_000;

/// Arguments of `trivium show`.
#[derive(Clone, Debug, Args)]
pub struct Show {
    /// Kind of state to show
    #[command(subcommand)]
    pub what: Shown,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// Kinds of state that `trivium show` shows.
#[derive(Clone, Debug, Subcommand)]
pub enum Shown {
    /// Ports: kind, device, mode, state and traffic
    Ports {
        /// Show only this port
        port: Option<String>,
    },
    /// Bridges and their members
    Bridges {
        /// Show only this bridge
        bridge: Option<String>,
    },
    /// MAC tables of bridges
    Fdb(Fdb),
    /// Workers: cores, load, sleep
    Workers,
    /// Filters: packets of each rule
    Filters {
        /// Show only this filter
        filter: Option<String>,
    },
    /// Steering policies: packets by target
    #[command(alias = "steers")]
    Steering {
        /// Show only this steering
        steering: Option<String>,
    },
    /// OpenFlow rules of bridges, with their counters
    Flows(Flows),
    /// OpenFlow groups, with the counters of each bucket
    Groups(OfBridge),
    /// OpenFlow meters, with the packets above the rate of each band
    Meters(OfBridge),
    /// Megaflows that workers have cached, with the rules of each
    Megaflows(OfBridge),
    /// Caches of the workers: hits by tier, work of the slow path, and memory by use
    Caches,
    /// Drops: packets by port and reason
    Drops {
        /// Show only packets that were received on this port (for `tx-failed` and `device-gone`: packets to
        /// be sent on it)
        port: Option<String>,
    },
    /// Stages: time and packets of each
    Stages,
    /// Running configuration, with the owner of each object
    Config,
    /// Virtual routers: size of their tables, and how far they follow the kernel
    Routers {
        /// Show only this router
        router: Option<String>,
    },
    /// Routes of a router
    Routes(Routes),
    /// Path of packets to an address or a prefix through a router, with the reason
    Why(Why),
    /// Neighbours of a router
    Neighbours(Several),
    /// Next-hop objects of a router
    Nexthops(Several),
    /// Interfaces of routers
    Interfaces {
        /// Show only interfaces of this router
        #[arg(long)]
        router: Option<String>,
    },
    /// Differences between a router and the kernel's state. The daemon repairs them
    Drift(OfRouter),
    /// Packets that workers have punted to the kernel for routers, by class
    Punts {
        /// Show only packets of this router
        #[arg(long)]
        router: Option<String>,
    },
}

/// Arguments of `trivium show fdb`.
#[derive(Clone, Debug, Args)]
pub struct Fdb {
    /// Show only addresses of this bridge
    pub bridge: Option<String>,
    /// Show only addresses on this port
    #[arg(long)]
    pub port: Option<String>,
    /// Show only addresses in this VLAN
    #[arg(long, value_name = "VLAN")]
    pub vlan: Option<u16>,
    /// Show only this address
    #[arg(long, value_name = "ADDRESS")]
    pub mac: Option<MacAddr>,
}

/// Arguments of `trivium show groups`, `meters` and `megaflows`.
#[derive(Clone, Debug, Args)]
pub struct OfBridge {
    /// Show only this bridge
    pub bridge: Option<String>,
    /// Maximum number of entries
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST))]
    pub limit: u64,
}

/// Arguments of `trivium show flows`.
#[derive(Clone, Debug, Args)]
pub struct Flows {
    /// Bridge and maximum number of entries
    #[command(flatten)]
    pub of: OfBridge,
    /// Show only rules of this table
    #[arg(long)]
    pub table: Option<u8>,
}

/// Option that names a router.
#[derive(Clone, Debug, Args)]
pub struct OfRouter {
    /// Name of the router. Optional if there is only one
    #[arg(long)]
    pub router: Option<String>,
}

/// Arguments of `trivium show neighbours` and `trivium show nexthops`.
#[derive(Clone, Debug, Args)]
pub struct Several {
    /// Router to show
    #[command(flatten)]
    pub of: OfRouter,
    /// Maximum number of entries
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST))]
    pub limit: u64,
}

/// Arguments of `trivium show routes`.
#[derive(Clone, Debug, Args)]
pub struct Routes {
    /// Show only routes to this prefix and to prefixes within it (`trivium show why` shows the route of an
    /// address)
    pub prefix: Option<model::Prefix>,
    /// Router and maximum number of entries
    #[command(flatten)]
    pub several: Several,
    /// Show only routes of this table: a number, `main`, `local` or `default`
    #[arg(long)]
    pub table: Option<model::TableId>,
}

/// Arguments of `trivium show why`.
#[derive(Clone, Debug, Args)]
pub struct Why {
    /// Address or prefix
    #[arg(value_name = "PREFIX-OR-ADDRESS")]
    pub what: model::Prefix,
    /// Router to show
    #[command(flatten)]
    pub of: OfRouter,
}
