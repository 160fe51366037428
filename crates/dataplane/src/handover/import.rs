//! Rebuilds the data plane from hand-over state and its file descriptors: in the successor, or in the predecessor
//! if the successor fails.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use control::PlaneError;
use engine::engine::Resumed;
use engine::worker::monotonic;
use engine::{Engine, EngineConfig};
use model::{Config, Namespace, PortName};
use packet::{MacAddr, PortId, QueueId, VlanId, WorkerId};
use port::af_xdp::{doubles, free_frames};
use port::quarantine::HOLD;
use port::tap::TapQueue;
use port::{Depot, FrameMemory, FramePool, Place};
use switch::FdbEntry;
use xdp::user::UserProgram;
use xdp::{Attached, HandOver, HookDescriptors, IngressGuard, PinPath};

use super::HandoverError;
use super::bundle::HandoverBundle;
use super::descriptors::{PortDescriptors, has_descriptors};
use super::queues;
use super::state::{
    HandoverState, PlaceRecord, PortRecord, QuarantineRecord, QueueKind, StationRecord, VlanRecord,
};
use crate::bridges;
use crate::device::{Device, inside, object};
use crate::fault;
use crate::filters::Filters;
use crate::guards::{guard_port, guards};
use crate::open::{self, Footprint, Opened, PortSpec};
use crate::pins::Claim;
use crate::ports::{self, Returned, Running};
use crate::publish::compose;
use crate::routers::Routers;
use crate::running_state::RunningState;

/// Parts of the data plane that were rebuilt from the hand-over state. Rebuilding these parts changes nothing
/// in the kernel or in the predecessor.
pub struct Parts {
    state: HandoverState,
    ports: Vec<Part>,
    mirrors: Vec<Mirror>,
    /// For each record of the quarantine (frames of closed zero-copy sockets), in order, the device queue that may
    /// still use the frames of the record. `None` for an unknown queue.
    pub(super) places: Vec<Option<Place>>,
    /// BPF links of the hooks of ports that must be opened again. The hooks stay attached until the links are closed.
    lost_links: Vec<OwnedFd>,
    _users: Vec<UserProgram>,
    _claims: BTreeMap<String, Claim>,
}

/// A port that is being rebuilt from the hand-over state.
struct Part {
    name: PortName,
    record: PortRecord,
    /// Rebuilt port. `None` if the port must be opened again.
    opened: Option<Opened>,
}

/// A mirror device that is being rebuilt from the hand-over state.
struct Mirror {
    /// Name under which the device's port number is allocated.
    name: String,
    port: PortId,
    /// Rebuilt queue of the device, or the reason why the device must be opened again.
    queue: Result<TapQueue, HandoverError>,
}

/// A rebuilt data plane whose workers have not started yet.
pub struct Rebuilt {
    resumed: Resumed,
    pub(super) running_state: RunningState,
}

impl Parts {
    /// Rebuilds ports and mirror devices from the descriptors in `held`. The function opens no device and
    /// accesses no queue.
    ///
    /// # Errors
    /// Returns an error if a port name is invalid in this release. Without the port, the frames that the
    /// kernel holds for it could not be distinguished from free frames.
    pub fn new(
        held: HandoverBundle,
        config: &Config,
        memory: &Arc<FrameMemory>,
    ) -> Result<Parts, HandoverError> {
        let HandoverBundle { mut state, mut descriptors, users, mut claims, .. } = held;
        let (mut parts, mut lost_links) = (Vec::new(), Vec::new());
        for (name, port) in std::mem::take(&mut state.ports) {
            let key = name.parse::<PortName>();
            let key = key.map_err(|_| HandoverError::Strange(format!("a port of the name {name:?}")))?;
            let own = descriptors.ports.remove(&name);
            let is_whole = port.queues.iter().all(|queue| queue.kind.has_descriptor());
            let link = own.as_ref().and_then(|own| own.hook.as_ref()?.link.try_clone().ok());
            let wanted = PortSpec::of(config, &key);
            let opened = match (own, wanted) {
                (Some(own), Some(wanted)) if is_whole => {
                    let opened = put_together(&key, &wanted, port.clone(), own, memory);
                    opened
                        .inspect_err(|error| tracing::warn!(port = %name, %error, "it cannot be resumed and is opened anew"))
                        .ok()
                }
                _ => None,
            };
            if opened.is_none() {
                // Otherwise the port would find its own claim when it is opened again.
                claims.remove(&name);
                lost_links.extend(link);
            }
            parts.push(Part { name: key, record: port, opened });
        }
        let mut mirrors = Vec::new();
        for (name, VlanRecord { id, queue }) in std::mem::take(&mut state.vlans) {
            let queue = queues::import_tap(queue.kind, descriptors.mirrors.remove(&name));
            mirrors.push(Mirror { name, port: PortId(id), queue });
        }
        let place = |(record, descriptor): (Option<PlaceRecord>, Option<OwnedFd>)| {
            let record = record?;
            let place = Place::within(descriptor?, record.ifindex, record.queue)?;
            (place.parts().1 == record.namespace).then_some(place)
        };
        let places = std::mem::take(&mut state.places).into_iter();
        let places = places.zip(descriptors.places).map(place).collect();
        Ok(Parts { state, ports: parts, mirrors, places, lost_links, _users: users, _claims: claims })
    }

    /// Returns the names of the ports that must be opened again although descriptors were sent for
    /// them.
    pub fn lost(&self) -> Vec<String> {
        self.lost_parts().map(|part| part.name.to_string()).collect()
    }

    fn lost_parts(&self) -> impl Iterator<Item = &Part> {
        self.ports.iter().filter(|part| part.opened.is_none() && has_descriptors(&part.record))
    }

    /// Attaches guards (programs that drop all frames that a device passes to the kernel) to the devices of the ports
    /// that [`Parts::lost`] returns and that have a filter in their hooks. Then closes the last descriptors of these
    /// hooks. The caller keeps the guards until the ports are open again.
    pub fn guard_lost(&mut self, config: &Config) -> Vec<IngressGuard> {
        let guards = guards(self.lost_parts().map(|part| (part.name.as_str(), part.record.ifindex)), config);
        self.lost_links.clear();
        guards
    }

    /// Opens the ports that could not be rebuilt from descriptors, and prepares everything that the workers
    /// need. A port that cannot be opened waits for its device. No packet is accessed before [`Rebuilt::run`].
    /// `released` is true if no other process has descriptors of the ports to be opened.
    ///
    /// # Errors
    /// Returns an error if the workers or their filters cannot be created.
    pub fn rebuild(
        self,
        config: &Config,
        workers: &EngineConfig,
        memory: &Arc<FrameMemory>,
        routers: Routers,
        filters: Filters,
        released: bool,
    ) -> Result<Rebuilt, HandoverError> {
        let Parts { state, ports, mirrors, places, lost_links, _users, _claims } = self;
        drop(lost_links);
        let lists = || {
            let queues =
                ports.iter().flat_map(|part| part.record.queues.iter().map(move |queue| (part, queue)));
            queues.filter_map(|(part, queue)| match &queue.kind {
                QueueKind::AfXdp { frames, zero_copy, ifindex, queue, .. } => {
                    let place = move || place_of(config, &part.name, *ifindex, *queue);
                    Some((place, part.opened.is_some(), *zero_copy || !released, frames.as_slice()))
                }
                _ => None,
            })
        };
        let doubles = doubles(memory.frames(), lists().map(|(.., frames)| frames));
        if doubles > 0 {
            return Err(HandoverError::Strange(format!("{doubles} frames stand in two queues")));
        }
        // The frames of closed queues are free, unless a driver or a predecessor may still use them for a
        // while.
        let taken = lists().filter(|(_, resumed, later, _)| *resumed || *later).map(|(.., frames)| frames);
        let quarantined = state.quarantine.iter().map(|held| held.frames.as_slice());
        let free: Vec<u32> = free_frames(memory.frames(), taken.chain(quarantined)).collect();
        let depot = Depot::with_free(Arc::clone(memory), free);
        for (place, _, _, frames) in lists().filter(|(_, resumed, later, _)| !*resumed && *later) {
            depot.quarantine(frames.to_vec(), place(), HOLD);
        }
        let places = places.into_iter().chain(std::iter::repeat_with(|| None));
        for (QuarantineRecord { frames, left_ms }, place) in state.quarantine.iter().zip(places) {
            depot.quarantine(frames.clone(), place, Duration::from_millis(*left_ms).min(HOLD));
        }
        let mut pool = depot.pool();
        let mut running_state = RunningState {
            config: config.clone(),
            filters,
            is_handed_over: true,
            ..RunningState::with(routers)
        };
        for (name, number) in &state.bridges {
            running_state.names.bridges.insert(*number, name);
        }
        let mut queues = Vec::new();
        let mut counted = Vec::new();
        // Ports that are opened again come last, because they share filter state in the hooks of the others.
        let (resumed, anew): (Vec<Part>, Vec<Part>) =
            ports.into_iter().partition(|part| part.opened.is_some());
        for Part { name, record, opened } in resumed.into_iter().chain(anew) {
            running_state.names.ports.insert(record.id, name.as_str());
            counted.push((PortId(record.id), record.counters.totals()));
            running_state.hook_offload.continue_from(&name, record.counters.bridged.into());
            running_state.routers.continue_from(&name, record.counters.routed.into());
            if let Some((running, own)) =
                resume(&name, record, opened, (config, workers.cores.len()), &mut running_state, &mut pool)
            {
                queues.extend(own);
                running_state.ports.insert(name, running);
            }
        }
        for Mirror { name, port, queue } in mirrors {
            running_state.names.ports.insert(port.0, &name);
            match queue {
                Ok(queue) => running_state.routers.give(name, port, queue),
                Err(error) => tracing::warn!(%name, %error, "a mirror is opened anew"),
            }
        }
        pool.flush();
        running_state.bridges = bridges::build(config, &running_state.bridges, &mut running_state.names);
        for (name, stations) in &state.stations {
            if let Some(bridge) = running_state.bridges.get(name.as_str()) {
                let entries: Vec<FdbEntry> = stations.iter().filter_map(station).collect();
                bridge.import(&entries, monotonic().secs);
            }
        }
        running_state.routers.settle(config, &running_state.ports);
        queues.extend(running_state.routers.plug_all(config, &running_state.ports, &mut running_state.names));
        ports::join(&mut running_state.ports);
        // Workers have their filters before they run.
        let own = |error: PlaneError| HandoverError::Own(error.to_string());
        let RunningState { filters, ports, .. } = &mut running_state;
        filters.ensure_workers(ports).map_err(own)?;
        running_state.flows.take_over(state.rules, &state.known);
        running_state.flows.follow(&running_state.config, &running_state.ports, &running_state.bridges);
        let RunningState { config, ports, bridges, routers, flows, .. } = &running_state;
        let forwarding = compose(config, ports, bridges, routers, flows, &[]);
        let resumed = Engine::resume(workers, depot, forwarding, queues)
            .map_err(|error| HandoverError::Own(error.to_string()))?;
        for (port, totals) in &counted {
            resumed.count(*port, totals);
        }
        Ok(Rebuilt { resumed, running_state })
    }
}

impl Rebuilt {
    /// Starts the workers, which then forward traffic.
    ///
    /// # Errors
    /// Returns an error if threads cannot be created.
    pub fn run(self) -> Result<(Engine, RunningState), HandoverError> {
        let Rebuilt { resumed, mut running_state } = self;
        let engine = resumed.run().map_err(|error| HandoverError::Own(error.to_string()))?;
        running_state.flows.ensure(&engine);
        // The hooks are updated only after the workers run. While programs and tables are exchanged, a packet
        // may bypass the offload and go to a worker. If the workers did not run, it would wait in a queue,
        // and the hook would forward later packets of its flow ahead of it.
        let RunningState { routers, config, ports, hook_offload, .. } = &mut running_state;
        routers.tell_hooks(config, ports);
        hook_offload.follow_routers(&engine, ports, true);
        Ok((engine, running_state))
    }
}

/// Returns the namespace, device and queue index that identify a queue of a port's device.
pub(super) fn place_of(config: &Config, name: &PortName, ifindex: u32, queue: u32) -> Option<Place> {
    let (_, namespace) = config.ports.get(name)?.kind.device()?;
    let path = namespace.map_or_else(|| PathBuf::from("/proc/self/ns/net"), Namespace::path);
    Place::within(File::open(path).ok()?.into(), ifindex, queue)
}

fn station(record: &StationRecord) -> Option<FdbEntry> {
    let StationRecord { vid, mac, port, age_secs } = *record;
    let vid = if vid == 0 { VlanId::NONE } else { VlanId::new(vid)? };
    Some(FdbEntry { vid, mac: MacAddr::from_u64(mac), port: Some(PortId(port)), age_secs, is_static: false })
}

/// Resumes a port or opens it again, and assigns its queues to the workers that owned them before the
/// hand-over. If the hook is created again, the port's filter is installed before a packet passes the hook. A
/// port whose filter cannot be installed is down.
fn resume(
    name: &PortName,
    record: PortRecord,
    opened: Option<Opened>,
    (config, workers): (&Config, usize),
    running_state: &mut RunningState,
    pool: &mut FramePool,
) -> Option<(Running, Vec<Returned>)> {
    let wanted = PortSpec::of(config, name)?;
    let id = PortId(record.id);
    // There may be fewer workers than in the predecessor.
    let count = u16::try_from(workers.max(1)).unwrap_or(u16::MAX);
    let rss_table = record.rss_table.as_ref().map(|table| {
        let worker = |at: usize| table.get(at % table.len().max(1)).copied().unwrap_or(0);
        Arc::new(std::array::from_fn(|at| WorkerId(worker(at) % count)))
    });
    let mut workers: Vec<WorkerId> =
        record.queues.iter().map(|queue| WorkerId(queue.worker % count)).collect();
    if workers.is_empty() {
        workers.push(WorkerId(0));
    }
    let footprint = footprint(&record);
    let had_hook_or_guard = record.hook.is_some() || record.guarded.is_some();
    // A port without a hook waits, and keeps the guard that it had in the predecessor.
    let device = record.guarded.or(record.ifindex);
    let guard = |has_hook: bool| {
        (had_hook_or_guard && !has_hook).then(|| guard_port(name, &wanted, device)).flatten()
    };
    if opened.is_none() && wanted.port.kind.xdp().is_some() && !has_descriptors(&record) {
        // The port waits, as in the predecessor, until the workers run. If this process ends before, the predecessor
        // need not know which queues this process has opened.
        let (guard, cause) = (guard(false), "it waits for its device since before the hand-over".to_owned());
        let waiting = Running { rss_table, footprint, guard, ..Running::waiting(id, wanted, cause) };
        return Some((waiting, Vec::new()));
    }
    let opened = opened.map_or_else(
        || {
            // Traffic is stopped at this time, so the open does not wait for busy queues.
            let mut opened = open::open(name, &wanted, &footprint, Duration::ZERO, None, pool)?;
            match running_state.filters.equip_anew(name, &wanted, &mut opened, &running_state.ports) {
                Ok(()) => Ok(opened),
                Err(error) => {
                    open::abandon(name, &wanted, opened, pool);
                    Err(error)
                }
            }
        },
        Ok,
    );
    Some(match opened {
        Ok(opened) => {
            let guard = guard(opened.hook.is_some());
            let (mut running, queues) = Running::assemble(id, wanted, opened, &workers);
            (running.rss_table, running.guard) = (rss_table, guard);
            (running, queues)
        }
        Err(error) => {
            tracing::warn!(port = %name, %error, "it waits for its device");
            let guard = guard(false);
            (Running { rss_table, footprint, guard, ..Running::waiting(id, wanted, error.cause) }, Vec::new())
        }
    })
}

/// Returns the settings that a port's device had before it became a port, as the predecessor recorded them.
fn footprint(record: &PortRecord) -> Footprint {
    Footprint { made: false, former: record.former, ends: record.ends.into() }
}

fn put_together(
    name: &PortName,
    wanted: &PortSpec,
    record: PortRecord,
    descriptors: PortDescriptors,
    memory: &Arc<FrameMemory>,
) -> Result<Opened, PlaneError> {
    let failed = |error: &dyn std::error::Error| PlaneError::failed(object(name), error, "");
    fault::step(&format!("port:{name}")).map_err(|error| failed(&HandoverError::Own(error)))?;
    let namespace = wanted.port.kind.device().and_then(|(_, namespace)| namespace).cloned();
    let footprint = footprint(&record);
    let pin = record.hook.and_then(|hook| hook.pin);
    let (device, hook) = inside(&object(name), namespace.as_ref(), || {
        let device = match record.ifindex {
            None => None,
            Some(ifindex) => {
                let info = port::link::by_index(ifindex).map_err(|error| failed(&error))?;
                Some(Device::new(&info, namespace.as_ref()))
            }
        };
        Ok((device, descriptors.hook.map(|own| hook(name, own, pin.as_deref())).transpose()?))
    })?;
    let mut queues = Vec::with_capacity(record.queues.len());
    let mut sockets = Vec::new();
    for (queue, descriptor) in record.queues.into_iter().zip(descriptors.queues) {
        if matches!(queue.kind, QueueKind::AfXdp { .. }) {
            let socket = descriptor.as_ref().and_then(|socket| socket.try_clone().ok());
            sockets.extend(socket.map(|socket| (QueueId(queue.id), socket)));
        }
        let resumed = queues::import(queue.kind, descriptor, memory).map_err(|error| failed(&error))?;
        queues.push((QueueId(queue.id), resumed));
    }
    Ok(Opened {
        device,
        hook,
        statuses: queues.iter().map(|(_, queue)| queue.status()).collect(),
        sockets,
        queues,
        complete_checksums: record.complete_checksums,
        own: None,
        max_mtu: record.mtu,
        footprint,
        adopted: true,
        former_constants: None,
        claim: None,
        notes: Vec::new(),
    })
}

fn hook(name: &PortName, descriptors: HookDescriptors, pin: Option<&str>) -> Result<Attached, PlaneError> {
    let failed = |error: &dyn std::error::Error| PlaneError::failed(object(name), error, "");
    let pin = pin.map(PinPath::new).transpose().map_err(|error| failed(&error))?;
    Attached::import(HandOver { descriptors, pin, user: None }).map_err(|error| failed(&error))
}
