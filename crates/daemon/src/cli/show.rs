//! The grammar of `trivium show`.

use clap::{Args, Subcommand};
use packet::MacAddr;

/// Most routes, neighbours, next-hop objects, rules or cached flows that the daemon gives at once.
const MOST: u64 = 100_000;

/// `trivium show`
#[derive(Clone, Debug, Args)]
pub struct Show {
    /// What to show
    #[command(subcommand)]
    pub what: Shown,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// What `trivium show` shows.
#[derive(Clone, Debug, Subcommand)]
pub enum Shown {
    /// Ports: kind, device, mode, state and traffic
    Ports {
        /// Only this port
        port: Option<String>,
    },
    /// Bridges and their members
    Bridges {
        /// Only this bridge
        bridge: Option<String>,
    },
    /// Addresses that bridges have learned
    Fdb(Fdb),
    /// Workers: cores, load, sleep
    Workers,
    /// Filters: packets of each rule
    Filters {
        /// Only this filter
        filter: Option<String>,
    },
    /// Steerings: what each has sent where
    Steers {
        /// Only this steering
        steer: Option<String>,
    },
    /// Rules of bridges that go by OpenFlow, with what they have counted
    Flows(Flows),
    /// OpenFlow's groups, with what went by each bucket
    Groups(OfBridge),
    /// OpenFlow's meters, with what was over the rate of each band
    Meters(OfBridge),
    /// Flows that workers have cached, and the rules that each stands for
    Megaflows(OfBridge),
    /// Hits by tier of the workers' caches, the decider's work, and memory by what takes it
    Caches,
    /// Dropped packets by port and reason
    Drops {
        /// Only those that came in by this port (of `tx-failed` and `device-gone`: that it was to send)
        port: Option<String>,
    },
    /// Time and packets per stage
    Stages,
    /// The running configuration with the owner of each object
    Config,
    /// Virtual routers: what their tables hold, and how they follow the kernel
    Routers {
        /// Only this router
        router: Option<String>,
    },
    /// Routes of a router
    Routes(Routes),
    /// Which way packets to an address or a prefix take through a router, and why
    Why(Why),
    /// Neighbours of a router
    Neighbours(Several),
    /// Next-hop objects of a router
    Nexthops(Several),
    /// Interfaces of routers
    Interfaces {
        /// Only this router's
        #[arg(long)]
        router: Option<String>,
    },
    /// What of a router differs from the kernel's state; it is repaired
    Drift(OfRouter),
    /// Packets that workers have given to the kernel for routers, by class
    Punts {
        /// Only this router's
        #[arg(long)]
        router: Option<String>,
    },
}

/// `trivium show fdb`
#[derive(Clone, Debug, Args)]
pub struct Fdb {
    /// Only addresses of this bridge
    pub bridge: Option<String>,
    /// Only addresses at this port
    #[arg(long)]
    pub port: Option<String>,
    /// Only addresses in this VLAN
    #[arg(long, value_name = "VLAN")]
    pub vlan: Option<u16>,
    /// Only this address
    #[arg(long, value_name = "ADDRESS")]
    pub mac: Option<MacAddr>,
}

/// `trivium show groups`, `meters` and `megaflows`
#[derive(Clone, Debug, Args)]
pub struct OfBridge {
    /// Only those of this bridge
    pub bridge: Option<String>,
    /// So many at most
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST))]
    pub limit: u64,
}

/// `trivium show flows`
#[derive(Clone, Debug, Args)]
pub struct Flows {
    /// Of which bridge, and how many
    #[command(flatten)]
    pub of: OfBridge,
    /// Only those of this table
    #[arg(long)]
    pub table: Option<u8>,
}

/// Of which router
#[derive(Clone, Debug, Args)]
pub struct OfRouter {
    /// The router; may be left out where there is only one
    #[arg(long)]
    pub router: Option<String>,
}

/// `trivium show neighbours` and `trivium show nexthops`
#[derive(Clone, Debug, Args)]
pub struct Several {
    /// Of which router
    #[command(flatten)]
    pub of: OfRouter,
    /// So many at most
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST))]
    pub limit: u64,
}

/// `trivium show routes`
#[derive(Clone, Debug, Args)]
pub struct Routes {
    /// Only routes to this prefix, and to those within it (`trivium show why` tells which route an address takes)
    pub prefix: Option<model::Prefix>,
    /// Of which router, and how many
    #[command(flatten)]
    pub several: Several,
    /// Only those of this table: a number, `main`, `local` or `default`
    #[arg(long)]
    pub table: Option<model::TableId>,
}

/// `trivium show why`
#[derive(Clone, Debug, Args)]
pub struct Why {
    /// An address, or a prefix
    #[arg(value_name = "PREFIX-OR-ADDRESS")]
    pub what: model::Prefix,
    /// Of which router
    #[command(flatten)]
    pub of: OfRouter,
}
