//! Converts the running data plane into hand-over state with file descriptors.

use std::os::fd::OwnedFd;

use engine::engine::Counts;
use engine::worker::monotonic;
use model::FilterName;
use packet::MacAddr;
use port::af_xdp::AfXdpHandOver;
use port::quarantine::HeldFrames;
use port::tap::TapHandOver;
use port::veth::EndAddresses;
use port::{Exported, FramePool, Queue};
use xdp::HandOver;
use xdp::filter::RuleCounters;

use super::bundle::HandoverBundle;
use super::counters::CountersState;
use super::state::{
    HookRecord, PlaceRecord, PortRecord, QueueKind, QueueRecord, RuleRecord, StationRecord, VlanRecord,
};
use crate::filters::Expiring;
use crate::ports::{Returned, Running};
use crate::routers::{Routers, is_mirror};
use crate::running_state::RunningState;

/// Converts the running configuration into hand-over state. All ports are removed from `running_state`.
pub fn gather(
    running_state: &mut RunningState,
    routers: &Routers,
    mut queues: Vec<Returned>,
    counts: &Counts,
    pool: &mut FramePool,
) -> HandoverBundle {
    let mut held = HandoverBundle::default();
    let blocks =
        running_state.filters.blocks().map(|(name, blocks)| (name.to_string(), Expiring::all(blocks)));
    held.state.blocks = blocks.collect();
    let counted = running_state.filters.counted();
    let record = |(name, rules): (&FilterName, Vec<RuleCounters>)| {
        (name.to_string(), rules.into_iter().map(RuleRecord::from).collect())
    };
    held.state.filters = counted.map(record).collect();
    held.state.rules = running_state.flows.records();
    held.state.known = running_state.flows.known();
    for (name, bridge) in &running_state.bridges {
        held.state.bridges.insert(name.as_str().to_owned(), bridge.id().0);
        let stations = bridge.export(monotonic().secs).into_iter().filter_map(|entry| {
            Some(StationRecord(entry.vid.get(), entry.mac.as_u64(), entry.port?.0, entry.age_secs))
        });
        held.state.stations.insert(name.as_str().to_owned(), stations.collect());
    }
    for (name, running) in std::mem::take(&mut running_state.ports) {
        let own: Vec<Returned> = queues.extract_if(.., |(_, port, _, _)| *port == running.id).collect();
        let totals = counts.port_totals(running.id);
        let counters =
            CountersState::new(&totals, running_state.hook_offload.counts(&name), routers.counts(&name));
        let mut running = running;
        held.claims.extend(running.claim.take().map(|claim| (name.as_str().to_owned(), claim)));
        let record = PortRecord { counters, ..gather_port(running, own, &mut held, pool) };
        held.state.ports.insert(name.as_str().to_owned(), record);
    }
    for (worker, port, id, queue) in queues {
        let name = running_state.names.port(port);
        if !is_mirror(&name) {
            // Punt TAPs are not handed over. The successor has its own.
            queue.close(pool);
            continue;
        }
        let (kind, descriptor) = gather_queue(queue, pool);
        held.descriptors.extend(descriptor.map(Some));
        let queue = QueueRecord { id: id.0, worker: worker.0, kind };
        held.state.vlans.insert(name, VlanRecord { id: port.0, queue });
    }
    // The quarantine is read after the queues, because some queues have been closed.
    gather_quarantine(&mut held, pool);
    held
}

pub(super) fn gather_quarantine(held: &mut HandoverBundle, pool: &FramePool) {
    for HeldFrames { frames, place, left } in pool.depot().quarantined_frames() {
        let milliseconds = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        held.state.quarantine.push((frames, milliseconds));
        let place = place.as_ref().and_then(|place| {
            let (descriptor, namespace, ifindex, queue) = place.parts();
            held.descriptors.push(Some(descriptor.try_clone_to_owned().ok()?));
            Some(PlaceRecord { namespace, ifindex, queue })
        });
        held.state.places.push(place);
    }
}

fn gather_port(
    running: Running,
    queues: Vec<Returned>,
    held: &mut HandoverBundle,
    pool: &mut FramePool,
) -> PortRecord {
    let HandoverBundle { descriptors, users, .. } = held;
    let ends = running.ends();
    if let Some(user) = running.user {
        let program = user.name();
        tracing::warn!(program, "it waits for a port's device to come back, and is not handed over");
    }
    let hook = running.hook.map(|hook| {
        let HandOver { descriptors: own, pin, user } = hook.export();
        descriptors.extend(own.into_array().map(Some));
        users.extend(user);
        let name = pin.as_ref().and_then(|pin| pin.directory().file_name());
        HookRecord { pin: name.map(|name| name.to_string_lossy().into_owned()) }
    });
    let mut records = Vec::with_capacity(queues.len());
    let EndAddresses { near, far } = ends;
    for (worker, _, id, queue) in queues {
        let (kind, descriptor) = gather_queue(queue, pool);
        descriptors.extend(descriptor.map(Some));
        records.push(QueueRecord { id: id.0, worker: worker.0, kind });
    }
    PortRecord {
        id: running.id.0,
        ifindex: running.device.map(|device| device.ifindex),
        hook,
        queues: records,
        complete_checksums: running.complete_checksums,
        mtu: running.mtu,
        former: running.footprint.former,
        ends: (near.map(MacAddr::as_u64), far.map(MacAddr::as_u64)),
        rss_table: running.rss_table.map(|table| table.iter().map(|worker| worker.0).collect()),
        counters: CountersState::default(),
    }
}

fn gather_queue(queue: Box<dyn Queue>, pool: &mut FramePool) -> (QueueKind, Option<OwnedFd>) {
    match queue.export(pool) {
        Exported::AfXdp(state) => af_xdp_record(state),
        Exported::Tap(TapHandOver { fd, kind, mtu, uso }) => {
            (QueueKind::Tap { internal: kind == "internal", mtu, uso }, Some(fd))
        }
        Exported::Closed => (QueueKind::Anew, None),
    }
}

fn af_xdp_record(given: AfXdpHandOver) -> (QueueKind, Option<OwnedFd>) {
    let AfXdpHandOver { fd, config, ifindex, zero_copy, multi_buffer, mtu, reasons, frames } = given;
    let kind = QueueKind::AfXdp {
        ifname: config.ifname,
        ifindex,
        queue: config.queue,
        ring_size: config.ring_size,
        fill_level: config.fill_level,
        busy_poll: config.busy_poll.map(|busy| (busy.microseconds, busy.budget)),
        complete_checksums: config.complete_checksums,
        zero_copy,
        multi_buffer,
        mtu,
        reasons,
        frames,
    };
    (kind, Some(fd))
}
