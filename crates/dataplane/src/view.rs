//! Converts the running configuration and its counters into the values that the API returns.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use engine::Engine;
use engine::counters::PortTotals;
use engine::engine::WorkerView;
use engine::worker::monotonic;
use model::{
    BridgeState, Counters, DropState, FdbEntry, FdbFilter, LossReason, MemberState, Owner, PortCounters,
    PortName, PortState, StageState, WorkerState,
};
use packet::{DropReason, PortId, QueueId};
use port::af_xdp::statistics;
use switch::Bridge;
use sync::cpu::tsc_hz;
use xdp::Counter;

use super::ids::Names;
use super::ports::Running;
use super::routing;
use super::running_state::RunningState;
use super::watch::Load;

/// Returns the states of all ports, ordered by name.
pub fn ports(running_state: &RunningState, engine: &Engine) -> Vec<PortState> {
    running_state.ports.iter().map(|(name, running)| port(running_state, engine, name, running)).collect()
}

fn port(running_state: &RunningState, engine: &Engine, name: &PortName, running: &Running) -> PortState {
    let port = &running.wanted.port;
    let device = running.device.as_ref();
    let reasons = running.statuses.iter().flat_map(|status| status.reasons.iter());
    let fallbacks = running
        .hook
        .iter()
        .flat_map(|hook| hook.fallbacks())
        .map(|refused| format!("the driver refused {refused}"));
    let lacks = running_state.steering.lacks(running).map(str::to_owned);
    let mut reasons: Vec<String> = reasons.cloned().chain(fallbacks).chain(lacks).collect();
    reasons.dedup();
    PortState {
        name: name.as_str().to_owned(),
        id: running.id.0,
        kind: port.kind.name().to_owned(),
        owner: Owner::File,
        device: device.map(|device| device.name.clone()),
        namespace: device.and_then(|device| device.namespace.as_ref()).map(ToString::to_string),
        ifindex: device.map(|device| device.ifindex),
        driver: device.and_then(|device| device.driver.clone()),
        mode: running.hook.as_ref().map(|hook| hook.mode().to_string()),
        zero_copy: running
            .hook
            .as_ref()
            .map(|_| !running.statuses.is_empty() && running.statuses.iter().all(|status| status.zero_copy)),
        reasons,
        queues: u16::try_from(running.queues.len()).unwrap_or(u16::MAX),
        workers: running.queues.iter().map(|(_, worker)| worker.0).collect(),
        mac: device.and_then(|device| device.mac),
        mtu: u16::try_from(running.mtu).unwrap_or(u16::MAX),
        admin_up: port.admin,
        link_up: running.trouble.is_none() && device.is_none_or(|device| device.running),
        bridge: running_state.config.bridge_of(name.as_str()).map(|(bridge, _)| bridge.as_str().to_owned()),
        router: running_state.config.router_of(name.as_str()).map(|(router, _)| router.as_str().to_owned()),
        persist: running.wanted.policy.persist,
        filter: running.wanted.filter().map(ToString::to_string),
        counters: port_counters(running_state, name, running, &engine.port_totals(running.id)),
        trouble: running.trouble.clone(),
        shortcut: running_state
            .hook_offload
            .state(name)
            .map(|state| match state {
                (what, Ok(())) => what.to_owned(),
                (what, Err(why)) => format!("{what}; others do not send here: {why}"),
            })
            .or_else(|| routing::state(running))
            .or_else(|| {
                let stage = running.hook.as_ref()?.route()?;
                stage.is_answering().then(|| "answers known routes".to_owned())
            }),
    }
}

fn port_counters(
    running_state: &RunningState,
    name: &PortName,
    running: &Running,
    totals: &PortTotals,
) -> PortCounters {
    let (bridged, routed) =
        (running_state.hook_offload.counts(name), routing::counts(&running_state.ports, running));
    let answered = running_state.routers.counts(name);
    let hook = hook_counters(running);
    let dropped: u64 = HOOK_DROPS.iter().map(|(counter, _)| hook.get(*counter)).sum();
    PortCounters {
        rx_packets: totals.rx_packets + bridged.rx_packets + routed.received.packets + answered.rx_packets,
        rx_bytes: totals.rx_bytes + bridged.rx_bytes + routed.received.bytes + answered.rx_bytes,
        rx_missed: missed(running, &hook),
        tx_packets: totals.tx_packets + bridged.tx_packets + routed.sent.packets + answered.tx_packets,
        tx_bytes: totals.tx_bytes + bridged.tx_bytes + routed.sent.bytes + answered.tx_bytes,
        drops: totals.dropped() + dropped,
    }
}

/// Returns the number of frames that the hook or the kernel dropped before a worker received them.
/// Examples of causes are a queue without an AF_XDP socket, a full receive ring, and a lack of free
/// frame buffers.
fn missed(running: &Running, hook: &xdp::Counters) -> u64 {
    let unsteered = hook.get(Counter::DownDropped) + hook.get(Counter::Aborted);
    let lost = |(_, socket): &(QueueId, OwnedFd)| {
        let counted = statistics(socket.as_fd());
        counted.rx_ring_full + counted.rx_fill_empty + counted.rx_invalid
    };
    unsteered + running.missed + running.sockets.iter().map(lost).sum::<u64>()
}

/// Returns the counters of a port's hook. If the port has no hook, all counters are zero.
fn hook_counters(running: &Running) -> xdp::Counters {
    running.hook.as_ref().and_then(|hook| hook.counters().ok()).unwrap_or_default()
}

/// Reasons for which the hook drops packets. Each entry has the hook's counter and the reason.
const HOOK_DROPS: [(Counter, LossReason); 7] = [
    (Counter::FilterDropped, LossReason::of(DropReason::FilterDropped)),
    (Counter::FilterLimited, LossReason::of(DropReason::FilterLimited)),
    (Counter::BridgeLost, LossReason::DEVICE_GONE),
    (Counter::BridgeHeld, LossReason::HELD),
    (Counter::RouteBlackhole, LossReason::ROUTE_BLACKHOLE),
    (Counter::RouteReversePath, LossReason::of(DropReason::ReversePath)),
    (Counter::RouteLimited, LossReason::of(DropReason::PuntLimit)),
];

/// Adds up the dropped packets by reason. `drops` are the workers' counters in the order of
/// [`DropReason::ALL`], `hook` returns the value of a hook's counter, and `missed` is the number of frames that
/// no worker received. The result contains all reasons.
fn reasons(drops: &[u64], hook: impl Fn(Counter) -> u64, missed: u64) -> Vec<(LossReason, u64)> {
    let mut all: Vec<_> = DropReason::ALL
        .iter()
        .zip(drops)
        .map(|(reason, packets)| (LossReason::of(*reason), *packets))
        .collect();
    for (counter, reason) in HOOK_DROPS {
        // Workers also use some of these reasons.
        match all.iter_mut().find(|(known, _)| known.name == reason.name) {
            Some((_, packets)) => *packets += hook(counter),
            None => all.push((reason, hook(counter))),
        }
    }
    // `PortCounters::rx_missed` counts these frames.
    all.push((LossReason::MISSED, missed));
    all
}

/// Returns the dropped packets of a port by reason. Reasons without packets are left out. The sum of the
/// numbers is [`PortCounters::drops`] plus [`PortCounters::rx_missed`].
fn lost(running: &Running, totals: &PortTotals) -> Vec<(LossReason, u64)> {
    let hook = hook_counters(running);
    let mut all = reasons(&totals.drops, |counter| hook.get(counter), missed(running, &hook));
    all.retain(|(_, packets)| *packets > 0);
    all
}

/// Returns the states of all bridges, ordered by name.
pub fn bridges(running_state: &RunningState) -> Vec<BridgeState> {
    running_state
        .bridges
        .iter()
        .filter_map(|(name, bridge)| {
            let config = running_state.config.bridges.get(name)?;
            let members = config.ports.iter().map(|(port, member)| MemberState {
                port: port.as_str().to_owned(),
                owner: Owner::File,
                vlans: vlans(&member.vlans),
                protected: member.protected,
                macs: running_state
                    .ports
                    .get(port)
                    .map_or(0, |running| bridge.tables().learned_on(running.id)),
                moves: running_state
                    .ports
                    .get(port)
                    .map_or(0, |running| bridge.tables().moves_to(running.id)),
            });
            Some(BridgeState {
                name: name.as_str().to_owned(),
                id: bridge.id().0,
                owner: Owner::File,
                macs: bridge.tables().len(),
                mac_limit: config.settings.mac_limit,
                ageing: config.settings.ageing,
                snooping: config.settings.snooping,
                groups: u32::try_from(bridge.groups().len()).unwrap_or(u32::MAX),
                counts: counts(bridge.tables().counts()),
                hook: running_state
                    .hook_offload
                    .stations(name)
                    .map(|count| u32::try_from(count).unwrap_or(u32::MAX)),
                hook_flows: running_state.flows.hooked(name).filter(|_| config.settings.hook),
                members: members.collect(),
            })
        })
        .collect()
}

fn counts(counts: switch::TableCounts) -> model::BridgeCounts {
    let switch::TableCounts { learned, expired, evicted, moved } = counts;
    model::BridgeCounts { learned, expired, evicted, moved }
}

fn vlans(mode: &model::VlanMode) -> String {
    match mode {
        model::VlanMode::Access(vlan) => format!("access {vlan}"),
        model::VlanMode::Trunk { allowed, native, native_tagged } => {
            let native =
                native.map(|vlan| format!(", native {vlan}{}", if *native_tagged { " tagged" } else { "" }));
            format!("trunk {allowed}{}", native.unwrap_or_default())
        }
    }
}

/// Returns the bridges whose MAC tables may contain entries that match the filter.
pub fn fdb_bridges(running_state: &RunningState, filter: &FdbFilter) -> Vec<Arc<Bridge>> {
    let bridges = running_state.bridges.iter();
    let asked =
        bridges.filter(|(name, _)| filter.bridge.as_deref().is_none_or(|asked| asked == name.as_str()));
    asked.map(|(_, bridge)| Arc::clone(bridge)).collect()
}

/// Returns the MAC table entries in `bridges` that match the filter. A MAC table may have a million entries. Therefore
/// the caller must not hold the lock of the running configuration, and names are copied only for entries that match.
pub fn fdb(bridges: &[Arc<Bridge>], names: &Names, filter: &FdbFilter) -> Vec<FdbEntry> {
    let now_secs = monotonic().secs;
    // A name to which no number is assigned, such as the text for an entry without a port, is compared as text below.
    let port = filter.port.as_deref().and_then(|port| names.ports.find(port)).map(PortId);
    let may_match = |entry: &switch::FdbEntry| {
        filter.vlan.is_none_or(|vlan| vlan == entry.vid)
            && filter.mac.is_none_or(|mac| mac == entry.mac)
            && port.is_none_or(|port| entry.port == Some(port))
    };
    let named = |(bridge, entry): (&Arc<Bridge>, switch::FdbEntry)| FdbEntry {
        bridge: bridge.name().to_owned(),
        vlan: entry.vid,
        mac: entry.mac,
        port: entry.port.map_or_else(|| "(discard)".to_owned(), |port| names.port(port)),
        age_s: u32::from(entry.age_secs),
        is_static: entry.is_static,
    };
    let all =
        bridges.iter().flat_map(|bridge| bridge.tables().fdb(now_secs).map(move |entry| (bridge, entry)));
    let found = all.filter(|(_, entry)| may_match(entry)).map(named).filter(|entry| filter.matches(entry));
    found.take(filter.limit.unwrap_or(usize::MAX)).collect()
}

/// Returns the states of all workers, ordered by worker number.
pub fn workers(running_state: &RunningState, engine: &Engine, loads: &[Load]) -> Vec<WorkerState> {
    let views = engine.worker_views();
    views.iter().map(|view| worker(running_state, view, loads.get(view.id.index()))).collect()
}

fn worker(running_state: &RunningState, view: &WorkerView, load: Option<&Load>) -> WorkerState {
    let queues = running_state.ports.iter().flat_map(|(name, running)| {
        let own = running.queues.iter().filter(|(_, worker)| *worker == view.id);
        own.map(move |(queue, _)| format!("{name}/{queue}"))
    });
    WorkerState {
        id: view.id.0,
        core: view.core.and_then(|core| u16::try_from(core).ok()).unwrap_or(u16::MAX),
        busy: load.map_or(0.0, |load| load.busy),
        sleeping: view.asleep,
        bursts: view.bursts,
        packets: view.packets,
        sleeps: view.sleeps,
        handed_over: view.taken_over,
        queues: queues.collect(),
    }
}

/// Returns the counters of all pipeline stages of the workers, in the order in which a packet passes them.
pub fn stages(engine: &Engine) -> Vec<StageState> {
    let views = engine.stage_views();
    views
        .iter()
        .map(|view| StageState {
            name: view.stage.name().to_owned(),
            packets: view.packets,
            ns: nanoseconds(view.cycles),
        })
        .collect()
}

fn nanoseconds(cycles: u64) -> u64 {
    let ns = u128::from(cycles) * 1_000_000_000 / u128::from(tsc_hz().max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// Returns the numbers of dropped packets by port and drop reason.
pub fn drops(running_state: &RunningState, engine: &Engine) -> Vec<DropState> {
    let mut all = Vec::new();
    for (name, running) in &running_state.ports {
        let lost = lost(running, &engine.port_totals(running.id)).into_iter();
        all.extend(lost.map(|(reason, packets)| DropState {
            port: name.as_str().to_owned(),
            reason: reason.name.to_owned(),
            explanation: reason.explain.to_owned(),
            packets,
        }));
    }
    all
}

/// Returns the counters for live views such as `trivium top`. `at_ns` is the time in nanoseconds at which the
/// counters are read.
pub fn counters(running_state: &RunningState, engine: &Engine, loads: &[Load], at_ns: u64) -> Counters {
    let mut drops: BTreeMap<String, u64> = BTreeMap::new();
    let mut ports = BTreeMap::new();
    for (name, running) in &running_state.ports {
        let totals = engine.port_totals(running.id);
        for (reason, packets) in lost(running, &totals) {
            *drops.entry(reason.name.to_owned()).or_default() += packets;
        }
        ports.insert(name.as_str().to_owned(), port_counters(running_state, name, running, &totals));
    }
    Counters { at_ns, ports, workers: workers(running_state, engine, loads), drops }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A query of MAC tables returns exactly the entries that [`FdbFilter::matches`] accepts, although it compares some
    /// criteria before it converts port numbers to names.
    #[test]
    fn a_query_of_mac_tables_lists_exactly_the_matching_entries() {
        let mut names = Names::new();
        names.ports.insert(1, "a");
        names.ports.insert(2, "b");
        let statics = [(10, 1, Some(1)), (10, 2, Some(2)), (20, 1, Some(2)), (20, 3, None), (20, 4, Some(7))];
        let entry = |(vlan, mac, port): (u16, u8, Option<u16>)| switch::StaticMac {
            vid: packet::VlanId::new(vlan).unwrap(),
            mac: packet::MacAddr([2, 0, 0, 0, 0, mac]),
            port: port.map(PortId),
        };
        let config = switch::BridgeConfig {
            name: "br0".to_owned(),
            statics: statics.map(entry).to_vec(),
            ..switch::BridgeConfig::default()
        };
        let bridges = [Arc::new(Bridge::new(&config, 1))];
        let all = fdb(&bridges, &names, &FdbFilter::default());
        assert_eq!(all.len(), statics.len());
        for port in [None, Some("a"), Some("b"), Some("(discard)"), Some("#7"), Some("c")] {
            for vlan in [None, packet::VlanId::new(20)] {
                for mac in [None, Some(packet::MacAddr([2, 0, 0, 0, 0, 1]))] {
                    let port = port.map(str::to_owned);
                    let filter = FdbFilter { port, vlan, mac, ..FdbFilter::default() };
                    let mut expected: Vec<_> = all.iter().filter(|entry| filter.matches(entry)).collect();
                    let found = fdb(&bridges, &names, &filter);
                    let mut found: Vec<_> = found.iter().collect();
                    expected.sort_by_key(|entry| (entry.vlan, entry.mac));
                    found.sort_by_key(|entry| (entry.vlan, entry.mac));
                    assert_eq!(found, expected, "{filter:?}");
                    let limited = FdbFilter { limit: Some(1), ..filter };
                    assert_eq!(fdb(&bridges, &names, &limited).len(), expected.len().min(1));
                }
            }
        }
    }

    /// The reference page has a row with the name and the meaning of each reason that `trivium show drops` can
    /// print, and no other rows.
    #[test]
    fn the_page_of_drop_reasons_has_every_reason_that_can_be_shown() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/drop-reasons.md");
        let page = std::fs::read_to_string(page).unwrap();
        let shown = reasons(&[0; DropReason::ALL.len()], |_| 0, 0);
        for (reason, _) in &shown {
            let row = format!("| `{}` | {} |", reason.name, reason.explain);
            assert!(page.contains(&row), "the page lacks {row}");
        }
        assert_eq!(page.matches("| `").count(), shown.len());
    }
}
