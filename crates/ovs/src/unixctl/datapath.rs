//! Commands `dpctl/*` and `dpif/*` of `ovs-appctl`: ports, cached flows and features of the datapath, in the output
//! format of `ovs-vswitchd`.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use control::{Plane, PlaneError, Store};
use model::{CacheState, FlowQuery, MegaflowState, PortState};
use tokio::sync::watch;

use super::{Answer, Commands, known_bridge};
use crate::database::Layout;

/// Name under which `ovs-appctl` shows Trivium's only datapath.
pub const DATAPATH: &str = "netdev@trivium";
/// Maximum number of cached flows that one command prints.
const FLOWS: usize = 100_000;

/// OpenFlow port number of a bridge's own interface (`OFPP_LOCAL` of OpenFlow 1.0).
const LOCAL: u16 = 65_534;

/// Names and values of the datapath's features. The names and their order are those of Open vSwitch's command
/// `dpif/show-dp-features`.
const FEATURES: [(&str, &str); 26] = [
    ("Masked set action", "Yes"),
    ("Tunnel push pop", "No"),
    ("Ufid", "Yes"),
    ("Truncate action", "No"),
    ("Clone action", "Yes"),
    ("Sample nesting", "0"),
    ("Conntrack eventmask", "No"),
    ("Conntrack clear", "Yes"),
    ("Max dp_hash algorithm", "0"),
    ("Check pkt length action", "Yes"),
    ("Conntrack timeout policy", "No"),
    ("Explicit Drop action", "No"),
    ("Optimized Balance TCP mode", "No"),
    ("Conntrack all-zero IP SNAT", "Yes"),
    ("MPLS Label add", "No"),
    ("Max VLAN headers", "2"),
    ("Max MPLS depth", "3"),
    ("Recirc", "Yes"),
    ("CT state", "Yes"),
    ("CT zone", "Yes"),
    ("CT mark", "Yes"),
    ("CT label", "Yes"),
    ("CT state NAT", "Yes"),
    ("CT orig tuple", "Yes"),
    ("CT orig tuple for IPv6", "Yes"),
    ("IPv6 ND Extension", "No"),
];

/// Names of the `dpctl/` commands with their usage, as `dpctl/list-commands` prints them.
const DPCTL: [(&str, &str); 7] = [
    ("dpctl/dump-dps", ""),
    ("dpctl/show", "[-s] [dp...]"),
    ("dpctl/dump-flows", "[-m] [--names] [dp] [filter=..] [type=..] [pmd=..]"),
    ("dpctl/get-flow", "[dp] ufid"),
    ("dpctl/del-flows", "[dp] [file]"),
    ("dpctl/dump-conntrack", "[-m] [-s] [dp] [zone=N]"),
    ("dpctl/list-commands", ""),
];

/// Adds the `dpctl/*` and `dpif/*` commands to the registry.
pub fn add(commands: &mut Commands, store: &Arc<Store>, layout: Option<watch::Receiver<Layout>>) {
    let plane = || Arc::clone(store.plane());
    // The module `conntrack` adds the commands for connections.
    for (name, usage) in DPCTL.into_iter().filter(|(name, _)| !name.ends_with("-conntrack")) {
        let asked = plane();
        commands.add(name, usage, 0..=8, move |arguments| match name {
            "dpctl/dump-dps" => Ok(format!("{DATAPATH}\n")),
            "dpctl/show" => show(&*asked, arguments),
            "dpctl/dump-flows" => dump_flows(&*asked, arguments),
            "dpctl/get-flow" => get_flow(&*asked, arguments),
            "dpctl/del-flows" => del_flows(&*asked, arguments),
            _ => Ok(list()),
        });
    }
    let asked = plane();
    commands.add("dpif/dump-dps", "", 0..=0, move |_| {
        Ok(asked.bridges().iter().fold(String::new(), |text, bridge| text + "netdev@" + &bridge.name + "\n"))
    });
    let asked = plane();
    commands.add("dpif/show", "", 0..=0, move |_| {
        let layout = layout.as_ref().map(|layout| layout.borrow().clone()).unwrap_or_default();
        Ok(show_bridges(&*asked, &layout))
    });
    let asked = plane();
    commands.add("dpif/dump-flows", "[-m] [--names | --no-names] bridge", 1..=4, move |arguments| {
        let (bridge, options) = arguments.split_last().ok_or("a bridge is missing")?;
        known_bridge(&*asked, bridge, "no such bridge")?;
        let names = wants_names(options);
        let query =
            FlowQuery { bridge: Some(bridge.clone()), limit: FLOWS, numbers: !names, ..FlowQuery::default() };
        // A learning bridge has no megaflows.
        let flows = asked.megaflows(&query).unwrap_or_default();
        let identified = options.iter().any(|option| is_more(option));
        Ok(flows.iter().fold(String::new(), |text, flow| text + &line(flow, identified) + "\n"))
    });
    let asked = plane();
    commands.add("dpif/show-dp-features", "bridge", 1..=1, move |arguments| {
        known_bridge(&*asked, arguments.first().map_or("", String::as_str), "no such bridge")?;
        Ok(FEATURES.iter().fold(String::new(), |text, (name, value)| text + name + ": " + value + "\n"))
    });
}

/// Formats an error of the data plane for a user of `ovs-appctl`: the cause, and what the user can do. The cause names
/// the object if the command's argument does not name it.
pub fn refused(error: PlaneError) -> String {
    format!("{}; {}", error.cause, error.fix)
}

fn list() -> String {
    DPCTL.iter().fold("The available commands are:\n".to_owned(), |text, (name, usage)| {
        text + format!("  {name:<28}  {usage}").trim_end() + "\n"
    })
}

/// Returns an error if `name` is not the name of the datapath, with or without its type.
pub fn known_datapath(name: &str) -> Result<(), String> {
    let own = DATAPATH.split_once('@').map_or(DATAPATH, |(_, own)| own);
    if name == DATAPATH || name == own {
        return Ok(());
    }
    Err(format!("ovs-vswitchd: opening datapath {name} failed (No such device)"))
}

/// Returns the number of packets that matched entries of the workers' flow caches, and the number
/// of packets that matched no entry.
fn lookups(caches: &[CacheState]) -> (u64, u64) {
    let sum = |field: fn(&CacheState) -> u64| caches.iter().map(field).sum::<u64>();
    (sum(|cache| cache.exact_hits + cache.masked_hits), sum(|cache| cache.misses))
}

fn kind(port: &PortState) -> &str {
    match port.kind.as_str() {
        "af_xdp" => "afxdp",
        other => other,
    }
}

fn show(plane: &dyn Plane, arguments: &[String]) -> Answer {
    let statistics = arguments.iter().any(|word| word == "-s" || word == "--statistics");
    for name in arguments.iter().filter(|word| !word.starts_with('-')) {
        known_datapath(name)?;
    }
    let caches = plane.caches();
    let (hits, misses) = lookups(&caches.workers);
    let drops = plane.drops();
    let lost: u64 = drops.iter().filter(|drop| drop.reason == "upcall-limit").map(|drop| drop.packets).sum();
    let flows = caches.slow_path.map_or(0, |slow_path| slow_path.flows);
    let mut text =
        format!("{DATAPATH}:\n  lookups: hit:{hits} missed:{misses} lost:{lost}\n  flows: {flows}\n");
    let sum = |field: fn(&CacheState) -> u64| caches.workers.iter().map(field).sum::<u64>();
    let (masks, probes) = (sum(|cache| cache.masks), sum(|cache| cache.probes));
    #[allow(clippy::cast_precision_loss, reason = "a mean for people to read")]
    let each = if hits + misses == 0 { 0.0 } else { probes as f64 / (hits + misses) as f64 };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "  masks: hit:{probes} total:{masks} hit/pkt:{each:.2}");
    let mut ports = plane.ports();
    ports.sort_by_key(|port| port.id);
    for port in &ports {
        let _ = writeln!(text, "  port {}: {} ({})", port.id, port.name, kind(port));
        if statistics {
            let counters = port.counters;
            let _ = writeln!(
                text,
                "    RX packets:{} errors:? dropped:{} overruns:{} frame:?\n    TX packets:{} errors:? dropped:? aborted:? carrier:?\n    \
                 collisions:?\n    RX bytes:{}  TX bytes:{}",
                counters.rx_packets,
                counters.drops,
                counters.rx_missed,
                counters.tx_packets,
                counters.rx_bytes,
                counters.tx_bytes
            );
        }
    }
    Ok(text)
}

/// Lists the bridges with their ports as text: name, OpenFlow port number, datapath port number and kind of each port.
fn show_bridges(plane: &dyn Plane, layout: &Layout) -> String {
    let (hits, misses) = lookups(&plane.caches().workers);
    let ports = plane.ports();
    let mut text = format!("{DATAPATH}: hit:{hits} missed:{misses}\n");
    for bridge in plane.bridges() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {}:", bridge.name);
        let ours = layout.desired.bridges.contains_key(&bridge.name);
        for member in &bridge.members {
            let Some(port) = ports.iter().find(|port| port.name == member.port) else { continue };
            let local = ours && member.port == bridge.name;
            let number = layout.number(&bridge.name, &member.port);
            let number = if local { Some(LOCAL) } else { number };
            let number = number.map_or_else(|| "-".to_owned(), |number| number.to_string());
            let kind = if local { "internal" } else { kind(port) };
            let _ = writeln!(text, "    {} {number}/{}: ({kind})", port.name, port.id);
        }
    }
    text
}

fn is_more(option: &str) -> bool {
    matches!(option, "-m" | "--more")
}

/// Returns whether ports are printed by name instead of by number. The options `--names` and
/// `--no-names` select the form. Without these options, ports are printed by name only if `--more`
/// is given.
fn wants_names(options: &[String]) -> bool {
    let asked = options.iter().rev().find_map(|option| match option.as_str() {
        "--names" => Some(true),
        "--no-names" => Some(false),
        _ => None,
    });
    asked.unwrap_or_else(|| options.iter().any(|option| is_more(option)))
}

/// Returns the unique flow identifier (UFID) of a cached flow. It is a hash of the bridge, the worker and the flow.
/// Therefore it does not change while the flow exists.
fn ufid(flow: &MegaflowState) -> String {
    let word = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        (salt, &flow.bridge, flow.worker, &flow.flow).hash(&mut hasher);
        hasher.finish()
    };
    let text = format!("{:016x}{:016x}", word(1), word(2));
    let part = |range: std::ops::Range<usize>| text.get(range).unwrap_or_default().to_owned();
    format!("ufid:{}-{}-{}-{}-{}", part(0..8), part(8..12), part(12..16), part(16..20), part(20..32))
}

fn line(flow: &MegaflowState, identified: bool) -> String {
    let used = match flow.used_ms {
        Some(ms) => format!("{}.{:03}s", ms / 1000, ms % 1000),
        None => "never".to_owned(),
    };
    let id = if identified { ufid(flow) + ", " } else { String::new() };
    let MegaflowState { flow, packets, bytes, actions, .. } = flow;
    format!("{id}{flow}, packets:{packets}, bytes:{bytes}, used:{used}, actions:{actions}")
}

fn dump_flows(plane: &dyn Plane, arguments: &[String]) -> Answer {
    let mut query = FlowQuery { limit: FLOWS, numbers: !wants_names(arguments), ..FlowQuery::default() };
    let mut identified = false;
    for argument in arguments {
        match argument.as_str() {
            "--names" | "--no-names" => {}
            option if is_more(option) => identified = true,
            other => match other.split_once('=') {
                Some(("filter", text)) => query.text = Some(text.to_owned()),
                // Both types mean the workers' cached flows, which include the flows of the driver hook.
                Some(("type", "all" | "ovs")) => {}
                Some(("type", kind)) => {
                    return Err(format!(
                        "type={kind}: flows are of one type here; use type=ovs, or leave it away"
                    ));
                }
                Some(("pmd", worker)) => {
                    let number = worker.parse().map_err(|_| {
                        format!("pmd={worker}: not a worker's number; use one that `upcall/show` lists")
                    })?;
                    query.worker = Some(number);
                }
                _ => known_datapath(other)?,
            },
        }
    }
    let flows = plane.megaflows(&query).map_err(refused)?;
    let mut text = String::new();
    let mut worker = None;
    let mut wanted: Vec<&MegaflowState> = flows.iter().collect();
    wanted.sort_by_key(|flow| flow.worker);
    for flow in wanted {
        if worker != Some(flow.worker) {
            worker = Some(flow.worker);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "flow-dump from worker {}:", flow.worker);
        }
        text += &line(flow, identified);
        text.push('\n');
    }
    Ok(text)
}

/// Returns the text of the cached flow whose UFID is the last argument. The UFID depends on whether ports are printed
/// by name. Therefore the function compares both forms.
fn get_flow(plane: &dyn Plane, arguments: &[String]) -> Answer {
    let words: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let (id, datapath) =
        words.split_last().ok_or("\"dpctl/get-flow\" command requires at least 1 arguments")?;
    for name in datapath {
        known_datapath(name)?;
    }
    if !id.starts_with("ufid:") {
        return Err("ovs-vswitchd: parsing flow ufid".to_owned());
    }
    for numbers in [false, true] {
        let query = FlowQuery { limit: FLOWS, numbers, ..FlowQuery::default() };
        let flows = plane.megaflows(&query).map_err(refused)?;
        if let Some(flow) = flows.iter().find(|flow| ufid(flow) == **id) {
            return Ok(line(flow, false) + "\n");
        }
    }
    Err("ovs-vswitchd: getting flow (No such file or directory)".to_owned())
}

/// Removes all cached flows. A file with flows as an argument is not supported.
fn del_flows(plane: &dyn Plane, arguments: &[String]) -> Answer {
    for name in arguments {
        known_datapath(name)?;
    }
    plane.settle_flows(true).map_err(refused)?;
    Ok(String::new())
}
