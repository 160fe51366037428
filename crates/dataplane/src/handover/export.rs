//! Converts the running data plane into hand-over state with file descriptors.

use engine::engine::Counts;
use engine::worker::monotonic;
use model::FilterName;
use port::FramePool;
use port::quarantine::HeldFrames;
use xdp::filter::RuleCounters;
use xdp::user::UserProgram;
use xdp::{HandOver, IngressGuard};

use super::bundle::HandoverBundle;
use super::counters::CountersState;
use super::descriptors::PortDescriptors;
use super::queues;
use super::state::{
    EndsRecord, HookRecord, PlaceRecord, PortRecord, QuarantineRecord, RuleRecord, StationRecord, VlanRecord,
};
use crate::filters::Expiring;
use crate::ports::{Returned, Running};
use crate::routers::{Routers, is_mirror};
use crate::running_state::RunningState;

/// Converts the running data plane into hand-over state. All ports are removed from `running_state`.
pub fn export(
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
            let (vid, mac) = (entry.vid.get(), entry.mac.as_u64());
            Some(StationRecord { vid, mac, port: entry.port?.0, age_secs: entry.age_secs })
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
        let guard = running.guard.take();
        let guarded = guard.as_ref().and_then(IngressGuard::ifindex);
        held.guards.extend(guard);
        let (record, descriptors) = export_port(running, own, &mut held.users, pool);
        held.state.ports.insert(name.as_str().to_owned(), PortRecord { counters, guarded, ..record });
        held.descriptors.ports.insert(name.as_str().to_owned(), descriptors);
    }
    for (worker, port, id, queue) in queues {
        let name = running_state.names.port(port);
        if !is_mirror(&name) {
            // Punt TAPs are not handed over. The successor creates its own.
            queue.close(pool);
            continue;
        }
        let (queue, descriptor) = queues::export((worker, port, id, queue), pool);
        held.descriptors.mirrors.extend(descriptor.map(|descriptor| (name.clone(), descriptor)));
        held.state.vlans.insert(name, VlanRecord { id: port.0, queue });
    }
    // The quarantine is read after the queues, because some queues have been closed.
    export_quarantine(&mut held, pool);
    held
}

pub(super) fn export_quarantine(held: &mut HandoverBundle, pool: &FramePool) {
    for HeldFrames { frames, place, left } in pool.depot().quarantined_frames() {
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        held.state.quarantine.push(QuarantineRecord { frames, left_ms });
        let place = place.as_ref().and_then(|place| {
            let (descriptor, namespace, ifindex, queue) = place.parts();
            let descriptor = descriptor.try_clone_to_owned().ok()?;
            Some((PlaceRecord { namespace, ifindex, queue }, descriptor))
        });
        let (place, descriptor) = place.unzip();
        held.state.places.push(place);
        held.descriptors.places.push(descriptor);
    }
}

fn export_port(
    running: Running,
    queues: Vec<Returned>,
    users: &mut Vec<UserProgram>,
    pool: &mut FramePool,
) -> (PortRecord, PortDescriptors) {
    let ends = running.ends();
    if let Some(user) = running.user {
        let program = user.name();
        tracing::warn!(program, "it waits for a port's device to come back, and is not handed over");
    }
    let hook = running.hook.map(|hook| {
        let HandOver { descriptors, pin, user } = hook.export();
        users.extend(user);
        let name = pin.as_ref().and_then(|pin| pin.directory().file_name());
        (HookRecord { pin: name.map(|name| name.to_string_lossy().into_owned()) }, descriptors)
    });
    let (hook, hook_descriptors) = hook.unzip();
    let (queues, descriptors) = queues.into_iter().map(|queue| queues::export(queue, pool)).unzip();
    let record = PortRecord {
        id: running.id.0,
        ifindex: running.device.map(|device| device.ifindex),
        hook,
        guarded: None,
        queues,
        complete_checksums: running.complete_checksums,
        mtu: running.mtu,
        former: running.footprint.former,
        ends: EndsRecord::from(ends),
        rss_table: running.rss_table.map(|table| table.iter().map(|worker| worker.0).collect()),
        counters: CountersState::default(),
    };
    (record, PortDescriptors { hook: hook_descriptors, queues: descriptors })
}
