//! Implementation of [`control::Plane`]: the data plane as seen by the control plane, over the engine, the
//! ports, the hooks and the switch.
//!
//! One lock guards the running configuration ([`running_state::RunningState`]). The engine is not behind this
//! lock, because readers of the engine never block. No code in this module runs in the packet path.

mod af_xdp;
mod bridges;
mod change;
mod custom_program;
mod data_plane;
mod device;
mod devices;
pub mod doctor;
mod dump;
mod fault;
pub mod filters;
mod flows;
mod foreign;
mod handover;
mod hook_offload;
mod hooks;
mod ids;
mod listener;
mod lock;
mod lowest_mtu;
mod moves;
mod observe;
mod open;
mod opened;
mod orphans;
mod pace;
mod parallel;
pub mod pins;
mod port_spec;
mod ports;
mod program_requests;
mod publish;
mod routers;
mod routes;
mod routing;
mod rules;
mod running_state;
mod samples;
mod snoop;
mod steering;
mod view;
mod watch;
mod watches;
mod words;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};

use control::{CaptureRequest, DumpRequest, FailureKind, Plane, PlaneError, SampleRequest};
use engine::state::RSS_BUCKETS;
use engine::{Engine, EngineConfig, PollMode};
use model::{
    BlockRequest, Blocked, BridgeState, CachesState, CapturedFrame, Config, Counters, DoctorFinding,
    DriftState, DropState, EngineMode, Explanation, FdbEntry, FdbFilter, FilterState, FlowQuery,
    FlowRuleState, FlowTuning, GroupState, HookState, Machine, MegaflowState, Merged, MeterState,
    MulticastMember, NeighbourEntry, NextHopEntry, PacketFilter, Plan, PortState, Prefix, ProgramChange,
    RouteEntry, RouteQuery, RouteWhy, RouterState, RssTable, StageState, SteeringDone, SteeringEntry,
    SteeringRequest, SteeringState, SteeringTable, TraceEvent, TraceRequest, WorkerState,
};
use netlink::Mirror;
use openflow::Sockets;
use packet::{PortId, VlanId, WorkerId};
use port::{Depot, FrameMemory, HugePages, MemoryConfig};
use sync::qsbr::Domain;
use tokio::sync::mpsc::Sender;

use data_plane::handed_over;
use devices::DeviceWatches;
use filters::BlocklistFiles;
use flows::Keeper;
use handover::send::Successor;
use handover::state::{self, HandoverBundle, Parts};
use lock::locked;
use open::Footprint;
use ports::no_such_port;
use routers::Routers;
use running_state::RunningState;
use watches::Watches;

pub use data_plane::DataPlane;
pub use flows::OfDatapath;
pub use handover::HandoverError;
pub use handover::receive::{GivenSockets, Prepared};
pub use handover::send::ListenerSet;

/// Interval between two polls of the devices by housekeeping.
const LOOK: Duration = Duration::from_millis(250);
/// Number of polls of the devices per second.
const LOOKS: u32 = 4;
/// Time limit for stopping the workers in a hand-over, and for resuming after a failed hand-over. The
/// watchdog is fed during this time although the data plane does not answer.
const RESUME: Duration = Duration::from_secs(60);
/// Time limit in an upgrade for long changes to unlock the flow tables of bridges, and for the slow path to
/// finish pending upcalls. An upgrade that exceeds the limit is abandoned.
const RULES: Duration = Duration::from_secs(10);
/// Minimum time between two polls of the devices. It bounds the CPU time that many notifications can use.
const PAUSE: Duration = Duration::from_millis(2);
/// Time limit for OpenFlow and `ovs-appctl` sessions to end before their sockets are handed over.
const SESSIONS_END: Duration = Duration::from_millis(100);

impl DataPlane {
    /// Creates frame memory and workers from `config`. The data plane has no ports yet.
    ///
    /// # Errors
    /// Returns an error if memory or threads cannot be allocated.
    pub fn start(config: &Config) -> Result<Arc<DataPlane>, PlaneError> {
        let memory = FrameMemory::new(MemoryConfig {
            frames: config.memory.frames,
            frame_size: config.memory.frame_size,
            huge_pages: match config.memory.huge_pages {
                model::HugePages::Try => HugePages::Try,
                model::HugePages::Require => HugePages::Require,
                model::HugePages::Off => HugePages::Off,
            },
        })
        .map_err(|error| PlaneError::failed("memory", &error, ""))?;
        if let Some(warning) = memory.warning() {
            tracing::warn!("{warning}");
        }
        let memory = Arc::new(memory);
        let domain = engine::engine::domain();
        let workers = engine_config(config, &domain);
        let engine = Engine::start(&workers, Depot::new(Arc::clone(&memory)))
            .map_err(|error| PlaneError::failed("engine", &error, ""))?;
        let running_state = RunningState::with(Routers::new(&domain, workers.cores.len()));
        Ok(Self::assemble(
            engine,
            workers,
            (memory, config.memory.clone()),
            running_state,
            Merged::default(),
            Duration::ZERO,
        ))
    }

    /// Takes over the running configuration and the frame memory of a predecessor. When this function
    /// returns, the workers forward traffic.
    ///
    /// # Errors
    /// Returns an error if the state cannot be taken over. The predecessor then continues.
    pub fn take_over(prepared: &mut Prepared) -> Result<Arc<DataPlane>, HandoverError> {
        let (engine, running_state, counting) = prepared.take()?;
        let memory = (Arc::clone(&prepared.memory), prepared.made_by.clone());
        let workers = prepared.workers.clone();
        Ok(Self::assemble(engine, workers, memory, running_state, prepared.merged.clone(), counting))
    }

    fn assemble(
        engine: Engine,
        workers: EngineConfig,
        (memory, made_by): (Arc<FrameMemory>, model::Memory),
        running_state: RunningState,
        merged: Merged,
        counting: Duration,
    ) -> Arc<DataPlane> {
        let now = Instant::now();
        Arc::new_cyclic(|me| DataPlane {
            engine: RwLock::new(Some(engine)),
            domain: Arc::clone(&workers.domain),
            memory,
            made_by,
            running_state: Mutex::new(running_state),
            devices: Mutex::new(DeviceWatches::new()),
            snooping: Mutex::default(),
            watches: Watches::default(),
            workers,
            loads: Mutex::new(Vec::new()),
            beats: Mutex::new(Vec::new()),
            merged: Mutex::new(merged),
            around: Mutex::new(None),
            left: tokio::sync::watch::Sender::new(None),
            handing_over: Arc::default(),
            keeper: Mutex::new(None),
            started: now.checked_sub(counting).unwrap_or(now),
            settled: AtomicBool::new(false),
            me: me.clone(),
        })
    }

    /// Sets the directory in which the OpenFlow rules of bridges are kept. The files are written from
    /// [`DataPlane::keep_house`] on. If `restore` is true, bridges start with the rules in these files.
    pub fn keep_rules_in(&self, directory: PathBuf, restore: bool) {
        if restore {
            locked(&self.running_state).flows.restore(&directory);
        }
        *locked(&self.keeper) = Some(Keeper::new(directory));
    }

    /// Discards restored OpenFlow rules that no bridge has used. Bridges that are created later then do not
    /// start with the rules that are kept under their names.
    pub fn forget_given(&self) {
        locked(&self.running_state).flows.forget_given();
    }

    /// Updates the rule files of the bridges. `last` means that this process ends after the call.
    fn keep_rules(&self, last: bool) {
        if let Some(keeper) = locked(&self.keeper).as_mut() {
            let (bridges, waiting) = locked(&self.running_state).flows.kept();
            keeper.round(bridges, &waiting, last);
        }
    }

    /// Starts the threads that maintain devices, tables and samples as long as the data plane exists. The
    /// caller must have applied the first configuration.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be created.
    pub fn keep_house(self: &Arc<Self>) -> std::io::Result<()> {
        self.settled.store(true, Ordering::Release);
        fault::takes_over(false);
        orphans::sweep(&locked(&self.running_state));
        dump::clear(&mut locked(&self.running_state));
        let woken = locked(&self.running_state).routers.woken();
        let weak = Arc::downgrade(self);
        let router = move || {
            // The loop ends when the routers, and with them all senders of wake-ups, are gone.
            let round = || {
                let plane = weak.upgrade()?;
                let took = plane.with_engine(|engine| {
                    let mut running_state = locked(&plane.running_state);
                    // Without the time that others have held the lock.
                    let begun = Instant::now();
                    running_state.routing_has_changed(engine);
                    begun.elapsed()
                });
                Some(took.unwrap_or_default())
            };
            pace::rounds(woken.into_iter().flatten(), round, std::thread::sleep);
        };
        std::thread::Builder::new().name("routing".to_owned()).spawn(router)?;
        let weak = Arc::downgrade(self);
        let readiness = locked(&self.devices).readiness();
        let housekeeper = move || {
            let mut looks = 0_u32;
            let mut due = Instant::now();
            while let Some(plane) = weak.upgrade() {
                if Instant::now() >= due {
                    plane.look(looks.is_multiple_of(LOOKS));
                    looks = looks.wrapping_add(1);
                    due = Instant::now() + LOOK;
                } else {
                    plane.look_at_devices();
                    std::thread::sleep(PAUSE);
                }
                drop(plane);
                devices::wait(readiness.as_deref(), due);
            }
        };
        std::thread::Builder::new().name("housekeeping".to_owned()).spawn(housekeeper)?;
        let weak = Arc::downgrade(self);
        let keeper = move || {
            while let Some(plane) = weak.upgrade() {
                plane.keep_rules(false);
                drop(plane);
                std::thread::sleep(flows::KEEPING);
            }
        };
        std::thread::Builder::new().name("keeper".to_owned()).spawn(keeper).map(drop)
    }

    /// Reads and processes the device notifications that the kernel has sent.
    fn look_at_devices(&self) {
        self.with_engine(|engine| {
            let mut running_state = locked(&self.running_state);
            let seen = watch::look(&mut running_state, engine, &mut locked(&self.devices), false);
            if lowest_mtu::follow(&mut running_state, engine) || seen {
                running_state.look_at_shortcuts(engine, false);
            }
        });
    }

    fn look(&self, second: bool) {
        let mut snooping = locked(&self.snooping);
        self.with_engine(|engine| {
            let inspected = second.then(|| engine.inspect());
            let mut running_state = locked(&self.running_state);
            for (name, running) in &mut running_state.ports {
                running.inspected(name, inspected.as_deref().unwrap_or_default());
            }
            watch::look(&mut running_state, engine, &mut locked(&self.devices), second);
            lowest_mtu::follow(&mut running_state, engine);
            running_state.look_at_shortcuts(engine, second);
            if second {
                routing::ensure(&mut running_state.ports);
                running_state.look_at_routers(engine);
            }
            running_state.expire(engine);
            snooping.look(&mut running_state, engine, second);
            if second {
                engine.depot().end_quarantine();
                watch::age(&mut running_state);
                watch::sample(&mut locked(&self.loads), &engine.worker_views());
            }
        });
    }

    /// Sets the resources besides the data plane that a successor needs.
    pub fn surround(&self, around: ListenerSet) {
        *locked(&self.around) = Some(around);
    }

    /// Returns a watch receiver. Its value is the process ID of the successor when one has taken over.
    pub fn successor(&self) -> tokio::sync::watch::Receiver<Option<u32>> {
        self.left.subscribe()
    }

    /// Stops the workers and hands all state to `successor`. If the successor does not take over, takes the
    /// state back and returns an error.
    fn hand_over(&self, binary: &Path, successor: Successor, sockets: &Sockets) -> Result<(), PlaneError> {
        // Before anything stops, wait for changes that hold rule tables. The upgrade is refused if the wait
        // takes too long.
        let held = locked(&self.running_state).flows.held();
        held.wait(Instant::now() + RULES).map_err(|bridge| busy_rules(bridge.as_str()))?;
        held.fit(handover::LIMIT).map_err(|(bridge, octets)| many_rules(bridge.as_str(), octets))?;
        // A file that this process wrote after this point would overwrite one of the successor.
        let keeper = locked(&self.keeper).take();
        self.handing_over.within(RESUME);
        let given = self.give(binary, successor, sockets);
        self.handing_over.over();
        if given.is_err() {
            *locked(&self.keeper) = keeper;
        }
        given
    }

    fn give(&self, binary: &Path, successor: Successor, sockets: &Sockets) -> Result<(), PlaneError> {
        // Lock order: as in `look`.
        let mut snooping = locked(&self.snooping);
        let mut slot = self.engine.write().unwrap_or_else(PoisonError::into_inner);
        let engine = slot.take().ok_or_else(handed_over)?;
        let mut running_state = locked(&self.running_state);
        // No capture or trace can start from here on, because the engine is gone. The frames of running ones
        // belong to a depot that ends with the engine.
        self.watches.end();
        let (mut pool, counts) = (engine.pool(), engine.counts());
        let queues = match engine.stop() {
            Ok(queues) => queues,
            Err(error) => {
                // The queues cannot be recovered, and without workers this process forwards nothing. A
                // restart by the supervisor restores service.
                drop(successor);
                tracing::error!(%error, "the workers cannot be stopped for the upgrade; the process ends so that it can be restarted");
                std::process::abort();
            }
        };
        snooping.detach();
        // After the workers have stopped, so that their last counts reach the rules.
        let halted = running_state.flows.halt_by(Some(Instant::now() + RULES));
        let fresh = Routers::new(&self.domain, self.workers.cores.len());
        let routers = std::mem::replace(&mut running_state.routers, fresh);
        let mut held = state::gather(&mut running_state, &routers, queues, &counts, &mut pool);
        drop(pool);
        held.state.counting_secs = self.started.elapsed().as_secs();
        self.handing_over.within(held.state.patience() + RESUME);
        let taken = if halted {
            successor.take(&mut held)
        } else {
            drop(successor);
            Err(HandoverError::Own(format!(
                "unknown flows are still being decided {RULES:?} after the workers have stopped"
            )))
        };
        match taken {
            Ok(pid) => {
                // The sockets of this process are duplicates, so closing them does not affect the successor.
                sockets.leave();
                self.left.send_replace(Some(pid));
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "the successor has not taken over; this process goes on");
                match self.take_back(held, &mut running_state, routers) {
                    Ok(engine) => {
                        // A host sends two reports for a group within one second. A snooper that starts
                        // polling later may miss both.
                        snooping.look(&mut running_state, &engine, false);
                        *slot = Some(engine);
                    }
                    Err(fatal) => {
                        tracing::error!(%fatal, "this process cannot resume either; it ends so that it can be restarted");
                        std::process::abort();
                    }
                }
                Err(handover::send::refused(binary, &error))
            }
        }
    }

    /// Rebuilds the data plane of this process from the state of a failed hand-over.
    fn take_back(
        &self,
        held: HandoverBundle,
        running_state: &mut RunningState,
        mut routers: Routers,
    ) -> Result<Engine, HandoverError> {
        routers.unplugged();
        let config = running_state.config.clone();
        // The kernel state of the filters has not changed, so the workers apply the filters from the start.
        let filters = std::mem::take(&mut running_state.filters);
        let parts = Parts::new(held, &config, &self.memory)?;
        let rebuilt = parts.rebuild(&config, &self.workers, &self.memory, routers, filters, true)?;
        let (engine, mut rebuilt) = rebuilt.run()?;
        let steering = std::mem::take(&mut running_state.steering);
        // The rules stay. Only the datapaths that serve the rules are new.
        let flows = std::mem::take(&mut running_state.flows);
        rebuilt.flows.halt();
        *running_state = RunningState { steering, flows, ..rebuilt };
        running_state.publish(&engine);
        let RunningState { filters, steering, ports, .. } = running_state;
        // A port whose filter cannot be set keeps the rules of its hook. The other ports get their filters.
        for error in filters.ensure_each(ports) {
            tracing::error!(%error, "the filter could not be given back to it; its hook goes on with the rules that it has");
        }
        if let Err(error) = steering.ensure(ports) {
            tracing::error!(%error, "steering could not be given back to it");
        }
        Ok(engine)
    }

    /// Returns a watch receiver for the OpenFlow datapaths of all bridges. The receiver is notified when a
    /// bridge gains or loses its datapath.
    pub fn leaders(
        &self,
    ) -> tokio::sync::watch::Receiver<
        std::collections::BTreeMap<model::BridgeName, (model::OpenFlow, Arc<OfDatapath>)>,
    > {
        locked(&self.running_state).flows.leaders()
    }

    /// Returns the counters of a bridge port in the form that OpenFlow controllers read.
    pub fn flow_port_stats(&self, number: u32, id: PortId) -> switch::flow::PortStats {
        let totals = self.with_engine(|engine| engine.port_totals(id)).unwrap_or_default();
        switch::flow::PortStats {
            number,
            rx_packets: totals.rx_packets,
            tx_packets: totals.tx_packets,
            rx_bytes: totals.rx_bytes,
            tx_bytes: totals.tx_bytes,
            rx_dropped: totals.dropped(),
            age_ns: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            ..switch::flow::PortStats::default()
        }
    }

    /// Returns whether all workers make progress. A worker makes progress if it sleeps or has counted cycles
    /// since the last call. During a hand-over, when there are no workers, returns whether the hand-over is
    /// within its time limit. This function does not block.
    pub fn is_alive(&self) -> bool {
        let engine = match self.engine.try_read() {
            Ok(engine) => engine,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return self.handing_over.is_in_time(),
        };
        let Some(engine) = engine.as_ref() else { return false };
        let views = engine.worker_views();
        let beats: Vec<u64> = views.iter().map(|view| view.cycles.iter().sum()).collect();
        let mut last = locked(&self.beats);
        let alive = views
            .iter()
            .zip(&beats)
            .enumerate()
            .all(|(at, (view, beat))| view.asleep || last.get(at).is_none_or(|before| before != beat));
        *last = beats;
        alive
    }

    /// Cancels upgrades, because this process is about to end. No hand-over can start any more. A hand-over
    /// in progress is taken back.
    pub fn cancel_upgrade(&self) {
        self.handing_over.cancel();
    }

    /// Returns the process ID of the successor that has taken over. Returns `None` if none has.
    pub fn left_to(&self) -> Option<u32> {
        *self.left.borrow()
    }

    /// Returns the number of ports in the running configuration.
    pub fn port_count(&self) -> usize {
        locked(&self.running_state).ports.len()
    }

    /// Removes everything that must not outlive the daemon: hooks that are not persistent, sockets, and
    /// workers.
    pub fn shut_down(&self) {
        let Some(engine) = self.engine.write().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let mut running_state = locked(&self.running_state);
        for (name, running) in std::mem::take(&mut running_state.ports) {
            match running.hook {
                // The pins keep a persistent hook attached. The drop closes only the descriptors of this
                // process.
                Some(hook) if running.wanted.policy.persist => drop(hook),
                Some(hook) => {
                    if let Err(error) = hook.detach() {
                        tracing::warn!(%error, "a hook could not be taken off");
                    }
                    // Devices created by the daemon stay. Other devices are given back to the kernel.
                    open::unmake(&name, &running.wanted, &Footprint { made: false, ..running.footprint });
                }
                None => {}
            }
        }
        let mut pool = engine.pool();
        running_state.routers.clear(&mut pool);
        match engine.stop() {
            Ok(queues) => queues.into_iter().for_each(|(_, _, _, queue)| queue.close(&mut pool)),
            Err(error) => tracing::warn!(%error, "a worker did not stop"),
        }
        // After the workers have stopped, because workers wait for the slow path.
        running_state.flows.halt();
        drop(running_state);
        // A start that failed has changed no rules.
        if self.settled.load(Ordering::Acquire) {
            self.keep_rules(true);
        }
    }

    /// Calls `look` with a router's mirror, without holding the lock of the running configuration.
    fn ask_router<R: Send + 'static>(
        &self,
        name: &str,
        look: impl FnOnce(&Mirror) -> R + Send + 'static,
    ) -> Result<R, PlaneError> {
        let follower = locked(&self.running_state).routers.follower(name)?;
        routers::ask(name, &follower, look)
    }

    /// Returns a snapshot of the OpenFlow bridges. The running configuration is locked only during the call.
    fn shown_flows(&self) -> flows::Shown {
        let running_state = locked(&self.running_state);
        running_state.flows.shown(&running_state.names)
    }
}

/// Returns the properties of the machine on which the validity of a configuration depends.
pub fn machine() -> Machine {
    Machine { cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get), frames: None }
}

/// Returns the configuration of the engine. If the configuration names no cores, the engine has one worker,
/// on the last allowed core.
fn engine_config(config: &Config, domain: &Arc<Domain>) -> EngineConfig {
    let cores = if config.engine.workers.is_empty() {
        let allowed = sync::cpu::allowed_cores().unwrap_or_default();
        vec![allowed.last().copied()]
    } else {
        config.engine.workers.iter().map(|core| Some(usize::from(*core))).collect()
    };
    EngineConfig {
        cores,
        mode: match config.engine.mode {
            EngineMode::Adaptive => PollMode::Adaptive,
            EngineMode::Busy => PollMode::Busy,
        },
        spin: Duration::from_micros(u64::from(config.engine.spin_us)),
        domain: Arc::clone(domain),
    }
}

fn busy_rules(bridge: &str) -> PlaneError {
    PlaneError {
        kind: FailureKind::Busy,
        object: format!("bridge.{bridge}"),
        cause: format!("its rules are held by a change for longer than {RULES:?}"),
        fix: "the running daemon goes on; try again when the change is made".to_owned(),
    }
}

fn many_rules(bridge: &str, octets: usize) -> PlaneError {
    PlaneError {
        kind: FailureKind::Failed,
        object: format!("bridge.{bridge}"),
        cause: format!(
            "the rules of all bridges, most of them of this one, take about {} MiB in a hand-over, which carries {} MiB",
            octets >> 20,
            handover::LIMIT >> 20
        ),
        fix: "the running daemon goes on; limit the rules (`flow_limit` of the bridge's tables), or restart with `--restore`".to_owned(),
    }
}

impl Plane for DataPlane {
    fn machine(&self) -> Machine {
        Machine { frames: Some(self.memory.frames()), ..machine() }
    }

    fn apply(&self, _plan: &Plan, new: &Merged) -> Result<Vec<DoctorFinding>, PlaneError> {
        let starting = !self.settled.load(Ordering::Acquire);
        if starting {
            fault::step("apply")
                .map_err(|cause| PlaneError::failed("config", &HandoverError::Own(cause), ""))?;
        }
        let before = locked(&self.running_state).config.clone();
        let blocklists = BlocklistFiles::read(&new.config, &before)?;
        let notes = self.engine(|engine| {
            let mut running_state = locked(&self.running_state);
            let mut notes = running_state.apply(engine, &new.config, &blocklists, starting)?;
            notes.extend(doctor::services(&running_state));
            if !starting {
                orphans::sweep(&running_state);
            }
            Ok(notes)
        })?;
        *locked(&self.merged) = new.clone();
        Ok(notes)
    }

    fn ports(&self) -> Vec<PortState> {
        self.with_engine(|engine| view::ports(&locked(&self.running_state), engine)).unwrap_or_default()
    }

    fn filters(&self) -> Vec<FilterState> {
        let running_state = locked(&self.running_state);
        running_state.filters.states(&running_state.ports)
    }

    fn block(&self, filter: &str, request: &BlockRequest) -> Result<Blocked, PlaneError> {
        self.engine(|engine| {
            let mut running_state = locked(&self.running_state);
            let done = running_state.filters.block(filter, request);
            running_state.filters_have_changed(engine);
            done
        })
    }

    fn reload_blocklist(&self, filter: &str) -> Result<Blocked, PlaneError> {
        let mut wanted = locked(&self.running_state).filters.blocklist_path(filter)?;
        loop {
            // Without the lock, because reading a long list takes seconds.
            let prefixes = filters::read_blocklist(&wanted.0, &wanted.1)?;
            let done = self.engine(|engine| {
                let mut running_state = locked(&self.running_state);
                let now = running_state.filters.blocklist_path(filter)?;
                if now != wanted {
                    wanted = now;
                    return Ok(None);
                }
                let done = running_state.filters.reload(filter, prefixes);
                running_state.filters_have_changed(engine);
                done.map(Some)
            })?;
            if let Some(done) = done {
                return Ok(done);
            }
        }
    }

    fn steering(&self) -> Vec<SteeringState> {
        let running_state = locked(&self.running_state);
        running_state.steering.states(&running_state.ports)
    }

    fn steering_flows(&self, steering: &str, limit: usize) -> Result<Vec<SteeringEntry>, PlaneError> {
        locked(&self.running_state).steering.flows(steering, limit)
    }

    fn change_steering_flows(
        &self,
        steering: &str,
        request: &SteeringRequest,
    ) -> Result<SteeringDone, PlaneError> {
        self.engine(|_| locked(&self.running_state).steering.change_flows(steering, request))
    }

    fn steering_table(&self, steering: &str) -> Result<SteeringTable, PlaneError> {
        locked(&self.running_state).steering.table(steering)
    }

    fn set_steering_table(&self, steering: &str, table: &SteeringTable) -> Result<(), PlaneError> {
        self.engine(|_| locked(&self.running_state).steering.set_table(steering, table))
    }

    fn hooks(&self) -> Result<Vec<HookState>, PlaneError> {
        hooks::read(&self.running_state)
    }

    fn count_runs(&self) -> Result<Box<dyn Send>, PlaneError> {
        Ok(Box::new(hooks::count_runs()?))
    }

    fn load_program(
        &self,
        port: &str,
        object: &[u8],
        program: Option<&str>,
    ) -> Result<ProgramChange, PlaneError> {
        // The verifier may take seconds, so the program is loaded outside the lock.
        let user = program_requests::load(&self.running_state, port, object, program)?;
        self.engine(|_| program_requests::put(&self.running_state, port, user))
    }

    fn unload_program(&self, port: &str) -> Result<ProgramChange, PlaneError> {
        self.engine(|_| program_requests::take(&self.running_state, port))
    }

    fn bridges(&self) -> Vec<BridgeState> {
        view::bridges(&locked(&self.running_state))
    }

    fn fdb(&self, filter: &FdbFilter) -> Vec<FdbEntry> {
        view::fdb(&locked(&self.running_state), filter)
    }

    fn flush_fdb(&self, filter: &FdbFilter) -> Result<u64, PlaneError> {
        let running_state = locked(&self.running_state);
        if let Some(port) =
            filter.port.as_ref().filter(|port| !running_state.ports.contains_key(port.as_str()))
        {
            return Err(no_such_port(port));
        }
        if let Some(bridge) =
            filter.bridge.as_ref().filter(|bridge| !running_state.bridges.contains_key(bridge.as_str()))
        {
            let fix = "see the names with `trivium show bridges`";
            return Err(PlaneError::not_found(format!("bridge.{bridge}"), "there is no such bridge", fix));
        }
        let mut flushed = 0;
        for (name, bridge) in &running_state.bridges {
            if filter.bridge.as_ref().is_some_and(|wanted| wanted != name.as_str()) {
                continue;
            }
            let port = filter
                .port
                .as_ref()
                .and_then(|port| running_state.ports.get(port.as_str()))
                .map(|port| port.id);
            flushed += bridge.tables().flush(|entry| {
                !entry.is_static
                    && port.is_none_or(|port| entry.port == Some(port))
                    && filter.vlan.is_none_or(|vlan| entry.vid == vlan)
                    && filter.mac.is_none_or(|mac| entry.mac == mac)
            });
        }
        Ok(u64::try_from(flushed).unwrap_or(u64::MAX))
    }

    fn multicast(&self, bridge: &str) -> Result<Vec<MulticastMember>, PlaneError> {
        let listed = locked(&self.snooping).listed(bridge);
        let listed = listed.ok_or_else(|| PlaneError::no_snooping(bridge))?;
        let names = self.names();
        let member = |(vid, group, port, age_s): (u16, _, PortId, u32)| {
            Some(MulticastMember { vlan: VlanId::new(vid)?, group, port: names.port(port), age_s })
        };
        Ok(listed.into_iter().filter_map(member).collect())
    }

    fn flush_multicast(&self, bridge: &str) -> Result<(), PlaneError> {
        let flushed = locked(&self.snooping).flush(bridge);
        if flushed { Ok(()) } else { Err(PlaneError::no_snooping(bridge)) }
    }

    fn routers(&self) -> Vec<RouterState> {
        let running_state = locked(&self.running_state);
        let states = running_state.routers.states(&running_state.config, &running_state.ports);
        drop(running_state);
        states.into_iter().map(|state| state()).collect()
    }

    fn routes(&self, router: &str, query: &RouteQuery) -> Result<Vec<RouteEntry>, PlaneError> {
        let follower = locked(&self.running_state).routers.follower(router)?;
        let (query, mut all, mut from) = (*query, Vec::new(), Some(routes::Place::START));
        while let Some(start) = from.filter(|_| all.len() < query.limit) {
            let look = move |mirror: &Mirror| routes::routes(mirror, query, start);
            let (found, next) = routers::ask(router, &follower, look)?;
            all.extend(found);
            from = next;
        }
        all.truncate(query.limit);
        Ok(all)
    }

    fn route_why(&self, router: &str, of: Prefix) -> Result<RouteWhy, PlaneError> {
        let mut why = self.ask_router(router, move |mirror| routes::why(mirror, of))?;
        if why
            .route
            .as_ref()
            .is_some_and(|route| locked(&self.running_state).routers.lacks_room(router, route))
        {
            why.chosen.push(routes::NO_ROOM.to_owned());
        }
        Ok(why)
    }

    fn neighbours(&self, router: &str, limit: usize) -> Result<Vec<NeighbourEntry>, PlaneError> {
        let sent = locked(&self.running_state).routers.sent(router)?;
        self.ask_router(router, move |mirror| routes::neighbours(mirror, limit, &sent))
    }

    fn next_hops(&self, router: &str, limit: usize) -> Result<Vec<NextHopEntry>, PlaneError> {
        let sent = locked(&self.running_state).routers.sent(router)?;
        self.ask_router(router, move |mirror| routes::next_hops(mirror, limit, &sent))
    }

    fn drift(&self, router: &str) -> Result<DriftState, PlaneError> {
        let follower = locked(&self.running_state).routers.follower(router)?;
        routers::drift(router, &follower)
    }

    fn flow_rules(&self, query: &FlowQuery) -> Result<Vec<FlowRuleState>, PlaneError> {
        self.shown_flows().rules(query)
    }

    fn groups(&self, query: &FlowQuery) -> Result<Vec<GroupState>, PlaneError> {
        self.shown_flows().groups(query)
    }

    fn meters(&self, query: &FlowQuery) -> Result<Vec<MeterState>, PlaneError> {
        self.shown_flows().meters(query)
    }

    fn megaflows(&self, query: &FlowQuery) -> Result<Vec<MegaflowState>, PlaneError> {
        self.shown_flows().megaflows(query)
    }

    fn caches(&self) -> CachesState {
        let shown = self.shown_flows();
        self.with_engine(|engine| shown.caches(engine, &self.memory)).unwrap_or_default()
    }

    fn trace_rules(&self, request: &TraceRequest) -> Result<String, PlaneError> {
        self.shown_flows().trace(request)
    }

    fn settle_flows(&self, purge: bool) -> Result<(), PlaneError> {
        self.shown_flows().settle(purge)
    }

    fn tune_flows(&self, tuning: FlowTuning) -> Result<(), PlaneError> {
        if locked(&self.running_state).flows.tune(tuning) {
            return Ok(());
        }
        let fix = "give one a table `openflow`";
        Err(PlaneError::not_found("flows", "no bridge goes by OpenFlow's rules", fix))
    }

    fn workers(&self) -> Vec<WorkerState> {
        let loads = locked(&self.loads).clone();
        self.with_engine(|engine| view::workers(&locked(&self.running_state), engine, &loads))
            .unwrap_or_default()
    }

    fn stages(&self) -> Vec<StageState> {
        self.with_engine(view::stages).unwrap_or_default()
    }

    fn drops(&self) -> Vec<DropState> {
        self.with_engine(|engine| view::drops(&locked(&self.running_state), engine)).unwrap_or_default()
    }

    fn counters(&self) -> Counters {
        let at_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let loads = locked(&self.loads).clone();
        self.with_engine(|engine| view::counters(&locked(&self.running_state), engine, &loads, at_ns))
            .unwrap_or_default()
    }

    fn explain(&self, in_port: &str, frame: &[u8]) -> Result<Explanation, PlaneError> {
        let port = self.port_id(in_port)?;
        let names = self.names();
        let mut story = self.engine(|engine| {
            let running_state = locked(&self.running_state);
            let (hook, rule) =
                (running_state.hook_says(in_port, frame), running_state.worker_drops(in_port, frame));
            drop(running_state);
            Ok(observe::explain(engine, &names, (port, in_port), frame, hook, rule))
        })?;
        let router = locked(&self.running_state).config.router_of(in_port).map(|(name, _)| name.to_string());
        if let (Some(router), Some(to)) = (router, routes::destination(frame)) {
            // The routes are read a moment after the trace. The trace report is complete without them.
            if let Ok(why) = self.route_why(&router, to) {
                routes::tell(&mut story, &why);
            }
        }
        Ok(story)
    }

    fn trace(&self, count: u64, filter: &PacketFilter, to: Sender<TraceEvent>) -> Result<(), PlaneError> {
        let port = filter.port.as_deref().map(|name| self.port_id(name)).transpose()?;
        let me = self.me()?;
        self.engine(|engine| observe::trace(&me, engine, count, filter, port, to))
    }

    fn capture(&self, request: &CaptureRequest, to: Sender<CapturedFrame>) -> Result<(), PlaneError> {
        // A port named `all` takes precedence over all ports.
        let port = match self.port_id(&request.port) {
            Err(_) if request.port == "all" => None,
            port => Some(port?),
        };
        let me = self.me()?;
        self.engine(|engine| observe::capture(&me, engine, request, port, to))
    }

    fn dump(&self, request: DumpRequest, to: Sender<CapturedFrame>) -> Result<(), PlaneError> {
        dump::start(&self.me()?, request, to)
    }

    fn samples(&self, request: SampleRequest, to: Sender<CapturedFrame>) -> Result<(), PlaneError> {
        samples::start(&self.me()?, request, to)
    }

    fn doctor(&self) -> Vec<DoctorFinding> {
        let (workers, census) =
            self.with_engine(|engine| (engine.workers(), engine.frames())).unwrap_or_default();
        let loads = locked(&self.loads).clone();
        doctor::examine(&self.running_state, &self.memory, census, (workers, &loads))
    }

    fn rss_table(&self, port: &str) -> Result<RssTable, PlaneError> {
        let running_state = locked(&self.running_state);
        let running = running_state.ports.get(port).ok_or_else(|| no_such_port(port))?;
        let rss_table = running.rss_table.as_ref().ok_or_else(|| no_software_rss(port))?;
        Ok(RssTable { buckets: rss_table.iter().map(|worker| worker.0).collect() })
    }

    fn set_rss_table(&self, port: &str, table: &RssTable) -> Result<(), PlaneError> {
        self.engine(|engine| {
            let mut running_state = locked(&self.running_state);
            let running = running_state.ports.get_mut(port).ok_or_else(|| no_such_port(port))?;
            if running.rss_table.is_none() {
                return Err(no_software_rss(port));
            }
            let invalid = |cause: String, fix: &str| PlaneError {
                kind: FailureKind::Invalid,
                object: format!("port.{port}.rss"),
                cause,
                fix: fix.to_owned(),
            };
            let length = table.buckets.len();
            if !length.is_power_of_two() || length > RSS_BUCKETS {
                let cause = format!("{length} buckets are not possible");
                return Err(invalid(cause, "use a power of two up to 256"));
            }
            if let Some(worker) =
                table.buckets.iter().find(|worker| usize::from(**worker) >= engine.workers())
            {
                let cause = format!("there is no worker {worker}");
                return Err(invalid(cause, "see `trivium show workers`"));
            }
            running.rss_table =
                Some(Arc::new(std::array::from_fn(|at| WorkerId(table.buckets[at % length]))));
            running_state.publish(engine);
            Ok(())
        })
    }

    fn upgrade(&self, binary: &Path) -> Result<(), PlaneError> {
        let around = locked(&self.around);
        let around = around.as_ref().ok_or_else(handed_over)?;
        let merged = locked(&self.merged).clone();
        let progress = &self.handing_over;
        let successor = Successor::start(binary, around, &merged, &self.memory, &self.made_by, progress)?;
        around.sockets.hold(SESSIONS_END);
        let given = self.hand_over(binary, successor, &around.sockets);
        if given.is_err() {
            around.sockets.release();
        }
        given
    }
}

fn no_software_rss(port: &str) -> PlaneError {
    PlaneError {
        kind: FailureKind::Invalid,
        object: format!("port.{port}"),
        cause: "it does not use software RSS".to_owned(),
        fix: "set `software_rss = true` on it".to_owned(),
    }
}
