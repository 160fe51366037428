//! Pages of `trivium top`: the columns of each page, and the conversion of the daemon's states into rows.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    BridgeState, CachesState, Counters, DropState, FilterState, FlowRuleState, PortState, RouterState,
    RuleState, WorkerState,
};

use super::feed::Resource;
use super::sheet::{Cell, Column, Kind, Order, Row, Sheet};
use crate::table::{counted, folded};

/// A page of `trivium top`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Page {
    /// Page with the traffic of the ports.
    #[default]
    Ports,
    /// Page with the load of the workers.
    Workers,
    /// Page with the traffic and the MAC tables of the bridges.
    Bridges,
    /// Page with the traffic of OpenFlow rules, and the flow caches.
    Flows,
    /// Page with the traffic and the tables of the routers.
    Routers,
    /// Page with the traffic of the rules of filters.
    Filters,
    /// Page with the drops by port and reason.
    Drops,
}

const PORTS: &[Column] = &[
    Column::new("PORT", Kind::Text, 16),
    Column::new("STATE", Kind::Text, 5),
    Column::new("RX p/s", Kind::Rate, 7),
    Column::new("RX bit/s", Kind::Bits, 9),
    Column::new("TX p/s", Kind::Rate, 7),
    Column::new("TX bit/s", Kind::Bits, 9),
    Column::new("DROPS/s", Kind::Rate, 8),
];

/// Column index of the received packets per second on the ports page.
pub const RX_PACKETS: usize = Column::index(PORTS, "RX p/s");
/// Column index of the received bits per second on the ports page.
pub const RX_BITS: usize = Column::index(PORTS, "RX bit/s");
/// Column index of the transmitted packets per second on the ports page.
pub const TX_PACKETS: usize = Column::index(PORTS, "TX p/s");
/// Column index of the transmitted bits per second on the ports page.
pub const TX_BITS: usize = Column::index(PORTS, "TX bit/s");
/// Column index of the dropped packets per second on the ports page.
pub const DROPS: usize = Column::index(PORTS, "DROPS/s");

const WORKERS: &[Column] = &[
    Column::new("WORKER", Kind::Number, 7),
    Column::new("CORE", Kind::Text, 4),
    Column::new("STATE", Kind::Text, 6),
    Column::new("BUSY", Kind::Percent, 7),
    Column::new("p/s", Kind::Rate, 7),
    Column::new("BURSTS/s", Kind::Rate, 9),
    Column::new("SLEEPS/s", Kind::Rate, 9),
    Column::new("PASSED/s", Kind::Rate, 9),
];

/// Column index of the load on the workers page.
pub const BUSY: usize = Column::index(WORKERS, "BUSY");

const BRIDGES: &[Column] = &[
    Column::new("BRIDGE", Kind::Text, 16),
    Column::new("PORTS", Kind::Number, 6),
    Column::new("MACS", Kind::Number, 6),
    Column::new("LEARNED/s", Kind::Rate, 10),
    Column::new("MOVED/s", Kind::Rate, 8),
    Column::new("RX p/s", Kind::Rate, 7),
    Column::new("RX bit/s", Kind::Bits, 9),
    Column::new("DROPS/s", Kind::Rate, 8),
];

/// Column index of the received packets per second on the bridges page.
const BRIDGE_RX_PACKETS: usize = Column::index(BRIDGES, "RX p/s");

const FLOWS: &[Column] = &[
    Column::new("BRIDGE", Kind::Text, 10),
    Column::new("TABLE", Kind::Number, 6),
    Column::new("PRIO", Kind::Number, 5),
    Column::new("p/s", Kind::Rate, 6),
    Column::new("bit/s", Kind::Bits, 6),
    Column::new("PACKETS", Kind::Number, 8),
    Column::new("RULE", Kind::Text, 0),
];

/// Column index of the packets per second on the flows page.
const FLOW_PACKETS: usize = Column::index(FLOWS, "p/s");

const ROUTERS: &[Column] = &[
    Column::new("ROUTER", Kind::Text, 16),
    Column::new("STATE", Kind::Text, 8),
    Column::new("ROUTES4", Kind::Number, 8),
    Column::new("ROUTES6", Kind::Number, 8),
    Column::new("NEIGH", Kind::Number, 6),
    Column::new("PUNTS/s", Kind::Rate, 8),
    Column::new("RX p/s", Kind::Rate, 7),
    Column::new("RX bit/s", Kind::Bits, 9),
];

/// Column index of the received packets per second on the routers page.
const ROUTER_RX_PACKETS: usize = Column::index(ROUTERS, "RX p/s");

const FILTERS: &[Column] = &[
    Column::new("FILTER", Kind::Text, 12),
    Column::new("RULE", Kind::Text, 14),
    Column::new("ACTION", Kind::Text, 12),
    Column::new("p/s", Kind::Rate, 7),
    Column::new("bit/s", Kind::Bits, 7),
    Column::new("ACTED/s", Kind::Rate, 8),
    Column::new("PACKETS", Kind::Number, 8),
];

/// Column index of the packets per second on the filters page.
const FILTER_PACKETS: usize = Column::index(FILTERS, "p/s");

const DROP_REASONS: &[Column] = &[
    Column::new("PORT", Kind::Text, 16),
    Column::new("REASON", Kind::Text, 24),
    Column::new("DROPS/s", Kind::Rate, 8),
    Column::new("DROPS", Kind::Number, 7),
];

/// Column index of the drops per second on the drops page.
pub const DROP_RATE: usize = Column::index(DROP_REASONS, "DROPS/s");
/// Column index of the drop reason on the drops page.
pub const DROP_REASON: usize = Column::index(DROP_REASONS, "REASON");
/// Column index of the total number of drops on the drops page.
pub const DROP_COUNT: usize = Column::index(DROP_REASONS, "DROPS");

/// Columns of the flow caches: packets per second by tier, and numbers of megaflows.
pub const CACHES: &[Column] = &[
    Column::new("exact-match", Kind::Rate, 12),
    Column::new("megaflow", Kind::Rate, 9),
    Column::new("upcalls", Kind::Rate, 8),
    Column::new("megaflows", Kind::Number, 10),
    Column::new("flow limit", Kind::Number, 7),
];

impl Page {
    /// All pages, in the order of their keys `1`, `2` and so on.
    pub const ALL: [Page; 7] =
        [Page::Ports, Page::Workers, Page::Bridges, Page::Flows, Page::Routers, Page::Filters, Page::Drops];

    /// Returns the index of the page in [`Page::ALL`], which determines its key.
    pub fn index(self) -> usize {
        Page::ALL.iter().position(|page| *page == self).unwrap_or(0)
    }

    /// Returns the name of the page, as shown on the screen.
    pub fn name(self) -> &'static str {
        match self {
            Page::Ports => "ports",
            Page::Workers => "workers",
            Page::Bridges => "bridges",
            Page::Flows => "flows",
            Page::Routers => "routers",
            Page::Filters => "filters",
            Page::Drops => "drops",
        }
    }

    /// Returns the noun for one row of the page, such as `port`.
    pub fn noun(self) -> &'static str {
        match self {
            Page::Ports => "port",
            Page::Workers => "worker",
            Page::Bridges => "bridge",
            Page::Flows | Page::Filters => "rule",
            Page::Routers => "router",
            Page::Drops => "reason",
        }
    }

    /// Returns the columns of the page.
    pub fn columns(self) -> &'static [Column] {
        match self {
            Page::Ports => PORTS,
            Page::Workers => WORKERS,
            Page::Bridges => BRIDGES,
            Page::Flows => FLOWS,
            Page::Routers => ROUTERS,
            Page::Filters => FILTERS,
            Page::Drops => DROP_REASONS,
        }
    }

    /// Returns the indices of the columns whose sum each row's sparkline shows, and the heading of the sparklines.
    pub fn traced(self) -> (&'static [usize], &'static str) {
        match self {
            Page::Ports => (&[RX_PACKETS, TX_PACKETS], "RX+TX p/s"),
            Page::Workers => (&[BUSY], "BUSY"),
            Page::Bridges => (&[BRIDGE_RX_PACKETS], "RX p/s"),
            Page::Flows => (&[FLOW_PACKETS], "p/s"),
            Page::Filters => (&[FILTER_PACKETS], "p/s"),
            Page::Routers => (&[ROUTER_RX_PACKETS], "RX p/s"),
            Page::Drops => (&[DROP_RATE], "DROPS/s"),
        }
    }

    /// Returns the order in which the rows are sorted until the user selects another order.
    pub fn order(self) -> Order {
        match self {
            Page::Flows => Order { column: FLOW_PACKETS, descending: true },
            Page::Drops => Order { column: DROP_RATE, descending: true },
            // The first column names the object.
            _ => Order { column: 0, descending: false },
        }
    }

    /// Returns the states that the page needs besides the counters.
    pub fn resources(self) -> &'static [Resource] {
        match self {
            Page::Ports => &[Resource::Ports],
            Page::Workers => &[],
            Page::Bridges => &[Resource::Bridges],
            Page::Flows => &[Resource::Flows, Resource::Caches],
            Page::Routers => &[Resource::Routers],
            Page::Filters => &[Resource::Filters],
            Page::Drops => &[Resource::Drops],
        }
    }
}

/// Returns a description of a port in one line: kind, device, function and mode.
pub fn described(port: &PortState) -> String {
    let mut parts = vec![port.kind.clone()];
    match (&port.device, &port.namespace) {
        (Some(device), Some(namespace)) => parts.push(format!("device {device}@{namespace}")),
        (Some(device), None) => parts.push(format!("device {device}")),
        (None, _) => {}
    }
    parts.extend(port.bridge.iter().map(|bridge| format!("bridge {bridge}")));
    parts.extend(port.router.iter().map(|router| format!("router {router}")));
    parts.extend(port.filter.iter().map(|filter| format!("filter {filter}")));
    parts.extend(port.mode.iter().map(|mode| format!("hook {mode}")));
    parts.extend(port.zero_copy.map(|zero| if zero { "zero copy" } else { "copy" }.to_owned()));
    parts.push(format!("MTU {}", port.mtu));
    parts.join(", ")
}

/// Returns the table rows of the ports. Some ports may be missing in `states`.
pub fn ports(counters: &Counters, states: &BTreeMap<String, PortState>) -> Vec<Row> {
    let row = |(name, port): (&String, &model::PortCounters)| {
        let state = states.get(name);
        let cells = vec![
            Cell::text(name),
            Cell::text(state.map_or("-", PortState::link)),
            Cell::Count(port.rx_packets),
            Cell::Count(port.rx_bytes),
            Cell::Count(port.tx_packets),
            Cell::Count(port.tx_bytes),
            Cell::Count(port.drops + port.rx_missed),
        ];
        let note = state.map_or_else(String::new, |state| match &state.trouble {
            Some(trouble) => format!("{name}: {trouble}"),
            None => format!("{name}: {}", described(state)),
        });
        let trouble = state.is_some_and(|state| state.trouble.is_some() || state.link() == "down");
        Row { note, trouble, ..Row::new(name, cells) }
    };
    counters.ports.iter().map(row).collect()
}

/// Returns the table rows of the workers.
pub fn workers(workers: &[WorkerState]) -> Vec<Row> {
    let row = |worker: &WorkerState| {
        let cells = vec![
            Cell::number(u64::from(worker.id)),
            Cell::text(worker.core_text()),
            Cell::text(if worker.sleeping { "asleep" } else { "awake" }),
            Cell::Value(Some(worker.busy)),
            Cell::Count(worker.packets),
            Cell::Count(worker.bursts),
            Cell::Count(worker.sleeps),
            Cell::Count(worker.handed_over),
        ];
        let note = format!("worker {}: {}", worker.id, folded(&worker.queues));
        Row { note, ..Row::new(worker.id.to_string(), cells) }
    };
    workers.iter().map(row).collect()
}

/// Returns the sum of one column of the ports page over the given ports. The sum is unknown (`None`) while no rate is
/// known.
fn sum<'a>(rates: &Sheet, column: usize, ports: impl IntoIterator<Item = &'a str>) -> Cell {
    let of_port = |port| rates.line(port)?.values.get(column)?.number();
    Cell::Value(ports.into_iter().filter_map(of_port).reduce(|sum, rate| sum + rate))
}

/// Returns the table rows of the bridges. `rates` is the table of the ports page, which contains the ports' rates.
pub fn bridges(bridges: &[BridgeState], rates: &Sheet) -> Vec<Row> {
    let row = |bridge: &BridgeState| {
        let members = || bridge.members.iter().map(|member| member.port.as_str());
        let cells = vec![
            Cell::text(&bridge.name),
            Cell::number(bridge.members.len() as u64),
            Cell::number(u64::from(bridge.macs)),
            Cell::Count(bridge.counts.learned),
            Cell::Count(bridge.counts.moved),
            sum(rates, RX_PACKETS, members()),
            sum(rates, RX_BITS, members()),
            sum(rates, DROPS, members()),
        ];
        let hook = bridge.hook.map(|macs| format!(", {macs} MACs in the hook")).unwrap_or_default();
        let flows = bridge.hook_flows.map(|flows| format!(", {flows} flows in the hook")).unwrap_or_default();
        let ports: Vec<String> = members().map(str::to_owned).collect();
        let ports = if ports.len() > 8 { String::new() } else { format!(": {}", ports.join(" ")) };
        let note = format!("{}{ports}; at most {} MACs{hook}{flows}", bridge.name, bridge.mac_limit);
        Row { note, ..Row::new(&bridge.name, cells) }
    };
    bridges.iter().map(row).collect()
}

/// Returns the table rows of OpenFlow rules.
pub fn flows(rules: &[FlowRuleState]) -> Vec<Row> {
    let row = |rule: &FlowRuleState| {
        let space = if rule.matches.is_empty() { "" } else { " " };
        let text = format!("{}{space}actions={}", rule.matches, rule.actions);
        let cells = vec![
            Cell::text(&rule.bridge),
            Cell::number(u64::from(rule.table)),
            Cell::number(u64::from(rule.priority)),
            Cell::Count(rule.packets),
            Cell::Count(rule.bytes),
            Cell::number(rule.packets),
            Cell::text(&text),
        ];
        // Bridge, table, priority and match identify a flow entry (OpenFlow 1.5, section 6.4).
        let key = format!("{} {} {} {}", rule.bridge, rule.table, rule.priority, rule.matches);
        Row { note: text, ..Row::new(key, cells) }
    };
    rules.iter().map(row).collect()
}

/// Returns the table row of the flow caches of all workers together.
pub fn caches(state: &CachesState) -> Row {
    let total = |count: fn(&model::CacheState) -> u64| Cell::Count(state.workers.iter().map(count).sum());
    let megaflows = state.workers.iter().map(|cache| cache.flows).sum();
    let slow_path = state.slow_path.unwrap_or_default();
    let cells = vec![
        total(|cache| cache.exact_hits),
        total(|cache| cache.masked_hits),
        Cell::Count(slow_path.upcalls),
        Cell::number(megaflows),
        Cell::number(slow_path.limit),
    ];
    Row::new("caches", cells)
}

/// Returns the table rows of the routers. `rates` is the table of the ports page, which contains the ports' rates.
pub fn routers(routers: &[RouterState], rates: &Sheet) -> Vec<Row> {
    let row = |router: &RouterState| {
        // Several interfaces (VLANs) may share one port.
        let ports: BTreeSet<&str> =
            router.interfaces.iter().map(|interface| interface.port.as_str()).collect();
        let punts = router.punts.iter().map(|punt| punt.packets).sum();
        let state = match (&router.trouble, router.in_step) {
            (Some(_), _) => "trouble",
            (None, false) => "behind",
            (None, true) => "in step",
        };
        let cells = vec![
            Cell::text(&router.name),
            Cell::text(state),
            Cell::number(router.routes4),
            Cell::number(router.routes6),
            Cell::number(router.neighbours),
            Cell::Count(punts),
            sum(rates, RX_PACKETS, ports.iter().copied()),
            sum(rates, RX_BITS, ports.iter().copied()),
        ];
        let fpm = router.fpm.as_ref().map(|fpm| format!(", FPM {}", fpm.state)).unwrap_or_default();
        let note = match &router.trouble {
            Some(trouble) => format!("{}: {trouble}", router.name),
            None => format!(
                "{}: {}, {}{fpm}",
                router.name,
                counted(router.interfaces.len(), "interface"),
                counted(router.tables as usize, "table")
            ),
        };
        Row { note, trouble: router.trouble.is_some(), ..Row::new(&router.name, cells) }
    };
    routers.iter().map(row).collect()
}

/// Returns the table rows of the rules of all filters.
pub fn filters(filters: &[FilterState]) -> Vec<Row> {
    let row = |filter: &FilterState, rule: &RuleState| {
        let action = match (rule.expired, rule.dry_run) {
            (true, _) => "expired".to_owned(),
            (false, true) => format!("{} (dry)", rule.action),
            (false, false) => rule.action.clone(),
        };
        let cells = vec![
            Cell::text(&filter.name),
            Cell::text(&rule.name),
            Cell::text(action),
            Cell::Count(rule.packets),
            Cell::Count(rule.bytes),
            Cell::Count(rule.acted_packets),
            Cell::number(rule.packets),
        ];
        let ports = if filter.ports.is_empty() { "no port".to_owned() } else { filter.ports.join(" ") };
        let note = format!("filter {} on {ports}; priority {}", filter.name, rule.priority);
        Row { note, ..Row::new(format!("{} {}", filter.name, rule.name), cells) }
    };
    filters.iter().flat_map(|filter| filter.rules.iter().map(move |rule| row(filter, rule))).collect()
}

/// Returns the key of the table row for the drops on a port for a reason.
fn drop_key(port: &str, reason: &str) -> String {
    format!("{port} {reason}")
}

/// Returns the name of the port in the key of a row of the drops page.
pub fn dropped_at(key: &str) -> &str {
    key.rsplit_once(' ').map_or(key, |(port, _)| port)
}

/// Returns the table rows of drops by port and reason. Reasons without drops are left out.
pub fn drops(drops: &[DropState]) -> Vec<Row> {
    let row = |drop: &DropState| {
        let cells = vec![
            Cell::text(&drop.port),
            Cell::text(&drop.reason),
            Cell::Count(drop.packets),
            Cell::number(drop.packets),
        ];
        Row { note: drop.explanation.clone(), ..Row::new(drop_key(&drop.port, &drop.reason), cells) }
    };
    drops.iter().filter(|drop| drop.packets > 0).map(row).collect()
}
