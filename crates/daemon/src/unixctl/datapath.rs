//! The commands of `ovs-appctl` about what packets meet: rules, cached flows, counts and memory, printed as `ovs-vswitchd` prints them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use control::{Plane, PlaneError, Store};
use model::{CachesState, FlowQuery, MegaflowState};

use super::{Answer, Commands};

/// What the one data path is called.
const DATAPATH: &str = "netdev@trivium";
/// Cached flows that are printed at most.
const FLOWS: usize = 100_000;

/// Adds them.
pub fn add(commands: &mut Commands, store: &Arc<Store>) {
    let plane = || Arc::clone(store.plane());
    let asked = plane();
    commands.add("ofproto/trace", "bridge br_flow [-generate|packet]", 2..=4, move |arguments| {
        trace(&*asked, arguments)
    });
    let asked = plane();
    commands.add("dpctl/show", "[-s] [dp...]", 0..=4, move |_| Ok(show(&*asked)));
    let asked = plane();
    commands.add(
        "dpctl/dump-flows",
        "[-m] [--names | --no-names] [dp] [filter=...] [type=all | ovs] [pmd=N]",
        0..=7,
        move |arguments| dump_flows(&*asked, arguments),
    );
    let asked = plane();
    commands.add("upcall/show", "", 0..=0, move |_| Ok(upcalls(&asked.caches())));
    let asked = plane();
    commands.add("revalidator/wait", "", 0..=0, move |_| settle(&*asked, false));
    let asked = plane();
    commands.add("revalidator/purge", "", 0..=0, move |_| settle(&*asked, true));
    let asked = plane();
    commands.add("coverage/show", "", 0..=0, move |_| Ok(coverage(&*asked)));
    let asked = plane();
    commands.add("memory/show", "", 0..=0, move |_| Ok(memory(&*asked)));
}

/// What an operator of `ovs-appctl` is told: the cause, which names the object where it is not the argument.
fn refused(error: PlaneError) -> String {
    format!("{}; {}", error.cause, error.fix)
}

fn trace(plane: &dyn Plane, arguments: &[String]) -> Answer {
    // Connection tracking, of which there is none, has its own options.
    let words: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|word| *word != "--consistent").collect();
    let [bridge, flow, rest @ ..] = &words[..] else {
        return Err("\"ofproto/trace\" command requires at least 2 arguments".to_owned());
    };
    if !plane.bridges().iter().any(|state| state.name == *bridge) {
        return Err("Unknown bridge name".to_owned());
    }
    match rest {
        [] => plane.trace_rules(bridge, flow, None),
        [packet] => plane.trace_rules(bridge, flow, Some(packet)),
        [option, ..] => return Err(format!("{option}: this option is not known here")),
    }
    .map_err(refused)
}

fn show(plane: &dyn Plane) -> String {
    let caches = plane.caches();
    let sum = |field: fn(&model::CacheState) -> u64| caches.workers.iter().map(field).sum::<u64>();
    let (hits, misses) = (sum(|cache| cache.exact_hits + cache.masked_hits), sum(|cache| cache.misses));
    let lost: u64 =
        plane.drops().iter().filter(|drop| drop.reason == "upcall-limit").map(|drop| drop.packets).sum();
    let flows = caches.decider.map_or(0, |decider| decider.flows);
    let mut text =
        format!("{DATAPATH}:\n  lookups: hit:{hits} missed:{misses} lost:{lost}\n  flows: {flows}\n");
    let (masks, probes) = (sum(|cache| cache.masks), sum(|cache| cache.probes));
    #[allow(clippy::cast_precision_loss, reason = "a mean for people to read")]
    let each = if hits + misses == 0 { 0.0 } else { probes as f64 / (hits + misses) as f64 };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "  masks: hit:{probes} total:{masks} hit/pkt:{each:.2}");
    for port in plane.ports() {
        let kind = match port.kind.as_str() {
            "af_xdp" => "afxdp",
            other => other,
        };
        let _ = writeln!(text, "  port {}: {} ({kind})", port.id, port.name);
    }
    text
}

fn dump_flows(plane: &dyn Plane, arguments: &[String]) -> Answer {
    let mut query = FlowQuery { limit: FLOWS, ..FlowQuery::default() };
    for argument in arguments {
        match argument.as_str() {
            "-m" | "--more" | "--names" | "--no-names" | DATAPATH => {}
            other => match other.split_once('=') {
                Some(("filter", text)) => query.text = Some(text.to_owned()),
                // What workers have cached; the driver hook's flows are among these.
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
                _ => {
                    return Err(format!("ovs-vswitchd: opening datapath {other} failed (No such device)"));
                }
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
            let _ = writeln!(text, "flow-dump from worker {}:", flow.worker);
        }
        let used = match flow.used_ms {
            Some(ms) => format!("{}.{:03}s", ms / 1000, ms % 1000),
            None => "never".to_owned(),
        };
        let MegaflowState { flow, packets, bytes, actions, .. } = flow;
        let _ = writeln!(text, "{flow}, packets:{packets}, bytes:{bytes}, used:{used}, actions:{actions}");
    }
    Ok(text)
}

fn upcalls(caches: &CachesState) -> String {
    let Some(decider) = &caches.decider else { return format!("{DATAPATH}:\n  flows         : none\n") };
    let mut text = format!(
        "{DATAPATH}:\n  flows         : (current {}) (limit {})\n  dump duration : {}ms\n  upcalls       : {}\n  revalidated   : {} (wrong {})\n\n",
        decider.flows,
        decider.limit,
        decider.round_us / 1000,
        decider.upcalls,
        decider.revalidated,
        decider.wrong
    );
    for cache in &caches.workers {
        let _ = writeln!(text, "  {}: (keys {})", cache.worker, cache.flows);
    }
    text
}

fn settle(plane: &dyn Plane, purge: bool) -> Answer {
    plane.settle_flows(purge).map_err(refused)?;
    Ok(String::new())
}

/// Events since the start: packets by port direction, drops by reason, look-ups by tier.
fn coverage(plane: &dyn Plane) -> String {
    let mut events: BTreeMap<String, u64> = BTreeMap::new();
    let mut count = |name: String, count: u64| *events.entry(name).or_default() += count;
    for drop in plane.drops() {
        count(format!("drop_{}", drop.reason.replace('-', "_")), drop.packets);
    }
    for port in plane.ports() {
        count("port_rx".to_owned(), port.counters.rx_packets);
        count("port_rx_missed".to_owned(), port.counters.rx_missed);
        count("port_tx".to_owned(), port.counters.tx_packets);
    }
    let caches = plane.caches();
    for cache in &caches.workers {
        count("flow_cache_exact_hit".to_owned(), cache.exact_hits);
        count("flow_cache_masked_hit".to_owned(), cache.masked_hits);
        count("flow_cache_miss".to_owned(), cache.misses);
        count("flow_cache_probe".to_owned(), cache.probes);
    }
    if let Some(decider) = &caches.decider {
        count("upcall".to_owned(), decider.upcalls);
        count("flow_revalidated".to_owned(), decider.revalidated);
        count("flow_wrong".to_owned(), decider.wrong);
    }
    let mut text = "Event coverage, totals since the start:\n".to_owned();
    for (event, count) in events.into_iter().filter(|(_, count)| *count > 0) {
        let _ = writeln!(text, "{event:<32} total: {count}");
    }
    text
}

/// What takes memory, on one line as `ovs-vswitchd` has it.
fn memory(plane: &dyn Plane) -> String {
    let bridges = plane.bridges();
    let macs: u64 = bridges.iter().map(|bridge| u64::from(bridge.macs)).sum();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("").trim();
    let resident = resident.trim_end_matches(" kB");
    let mut text = format!(
        "bridges:{} macs:{macs} ports:{} resident-kB:{resident} workers:{}",
        bridges.len(),
        plane.ports().len(),
        plane.workers().len()
    );
    let caches = plane.caches();
    if let Some(decider) = &caches.decider {
        let _ = write!(text, " udpif-keys:{}", decider.flows);
    }
    for memory in &caches.memory {
        let _ = write!(text, " {}-kB:{}", memory.consumer.replace(' ', "-"), memory.bytes / 1024);
    }
    text + "\n"
}
