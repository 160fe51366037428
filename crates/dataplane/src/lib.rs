//! The data plane of one daemon: the packet engine, the ports, their XDP programs (hooks) and the switch. The crate
//! applies configurations to them, answers the control plane, and hands all state over to a successor process.
//!
//! ```text
//!   control (API, diff, apply) ──> Plane, implemented by DataPlane (requests.rs)
//!                                    │ lock of the running configuration (running_state.rs)
//!                                    ├── change.rs, open.rs ──> ports, hooks (port, xdp)
//!                                    ├── publish.rs ──────────> snapshot of the workers (engine)
//!                                    └── flows/, routers/, filters/, steering.rs
//!   predecessor ──> handover/ (unix socket with descriptors) ──> successor
//! ```
//!
//! This file starts the data plane, runs its housekeeping threads, and shuts it down. The file `requests.rs` answers
//! the control plane, and `upgrade.rs` hands all state over to a successor process.
//!
//! One lock guards the running configuration (`running_state::RunningState`). This lock does not protect the engine,
//! because readers of the engine never block. No code in this crate runs in the packet path.
//!
//! ```
//! // A configuration is checked against the machine before a data plane is started with it.
//! let text = "[port.a]\nkind = \"tap\"\n";
//! let machine = dataplane::machine();
//! let loaded = model::load_on(text, "trivium.toml", model::Format::Toml, Some(&machine)).expect("no problems");
//! assert_eq!(loaded.config.ports.len(), 1);
//! ```

mod af_xdp;
mod bridges;
mod change;
mod custom_program;
mod data_plane;
mod device;
mod devices;
mod doctor;
mod dump;
mod fault;
mod file;
mod filters;
mod flows;
mod foreign;
mod guards;
mod handover;
mod hook_offload;
mod hook_test;
mod hooks;
mod ids;
mod listener;
mod lists;
mod lock;
mod lowest_mtu;
mod moves;
mod observe;
mod open;
mod opened;
mod orphans;
mod pace;
mod packet_filter;
mod parallel;
mod pins;
mod port_spec;
mod ports;
mod program_requests;
mod publish;
mod record_list;
mod requests;
mod routers;
mod routes;
mod routing;
mod rules;
mod running_state;
mod samples;
mod snoop;
mod steering;
mod upgrade;
mod users;
mod view;
mod watch;
mod watches;
mod words;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};

use control::PlaneError;
use engine::{Engine, EngineConfig, PollMode};
use model::{Config, EngineMode, Machine, Merged};
use netlink::Mirror;
use packet::PortId;
use port::{Depot, FrameMemory, HugePages, MemoryConfig};
use sync::qsbr::Domain;

use devices::DeviceWatches;
use filters::Remaining;
use flows::Keeper;
use lock::locked;
use open::Footprint;
use routers::Routers;
use running_state::RunningState;
use watches::Watches;

pub use data_plane::DataPlane;
pub use doctor::preflight;
pub use filters::refusals as filter_refusals;
pub use flows::OfDatapath;
pub use handover::HandoverError;
pub use handover::receive::{GivenSockets, Prepared};
pub use handover::send::ListenerSet;
pub use packet_filter::describe as describe_packet;
pub use pins::{Released, release as release_hooks};
pub use users::user_id;

/// Interval at which the housekeeping thread polls the ports' devices.
const LOOK: Duration = Duration::from_millis(250);
/// Number of polls of the ports' devices per second.
const LOOKS: u32 = 4;
/// Pause after the removal of expired rules of filters, as a multiple of the time that the removal took. If rules
/// expire one after another, their removal therefore takes at most about a tenth of the housekeeping thread's time.
const EXPIRY_PAUSE: u32 = 10;
/// Minimum time between two polls of the ports' devices. The minimum limits the CPU time that many
/// device notifications can use.
const PAUSE: Duration = Duration::from_millis(2);

impl DataPlane {
    /// Creates the frame memory and the workers that `config` describes. The data plane has no ports yet.
    ///
    /// # Errors
    /// Returns an error if the memory cannot be allocated or the threads cannot be created.
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

    /// Takes over the running configuration and the frame memory of a predecessor process. When this function returns,
    /// the workers forward traffic.
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
            snooped: Mutex::default(),
            snooping: Mutex::default(),
            watches: Watches::default(),
            workers,
            next_expiry: Mutex::new(Instant::now()),
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

    /// Sets the directory of the rule files, in which the OpenFlow rules of bridges are stored. The files are written
    /// after [`DataPlane::keep_house`] was called. If `restore` is true, bridges start with the rules in these files.
    pub fn keep_rules_in(&self, directory: PathBuf, restore: bool) {
        if restore {
            locked(&self.running_state).flows.restore(&directory);
        }
        *locked(&self.keeper) = Some(Keeper::new(directory));
    }

    /// Discards restored OpenFlow rules that no bridge has used. A bridge that is created later then does not get the
    /// rules of an earlier bridge with its name.
    pub fn forget_given(&self) {
        locked(&self.running_state).flows.forget_given();
    }

    /// Writes the rule files of bridges whose OpenFlow rules have changed. `last` means that this process ends after
    /// the call, and all files are written.
    fn keep_rules(&self, last: bool) {
        if let Some(keeper) = locked(&self.keeper).as_mut() {
            let (bridges, waiting) = locked(&self.running_state).flows.kept();
            keeper.round(bridges, &waiting, last);
        }
    }

    /// Starts the housekeeping threads, which maintain devices, tables and samples as long as the data plane exists.
    /// The caller must have applied the first configuration.
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
                    // The time is measured without the wait for the lock.
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

    /// Reads and processes the device notifications that have arrived from the kernel.
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
        let due = second.then(|| locked(&self.running_state).routers_with_due_sessions()).flatten();
        let sessions = due.map(routers::read_bgp_sessions);
        let begin = Instant::now();
        let may_expire = begin >= *locked(&self.next_expiry);
        let remaining =
            if may_expire { locked(&self.running_state).filters.remaining() } else { Remaining::none() };
        let has_expired = !remaining.is_empty();
        // The rules are compiled without the lock, because the compilation can take seconds.
        let remaining = remaining.compiled();
        let mut reader = locked(&self.snooped);
        let messages = reader.read();
        let mut snooping = locked(&self.snooping);
        let former = self.with_engine(|engine| {
            let inspected = second.then(|| engine.inspect());
            let mut running_state = locked(&self.running_state);
            for (name, running) in &mut running_state.ports {
                running.inspected(name, inspected.as_deref().unwrap_or_default());
            }
            watch::look(&mut running_state, engine, &mut locked(&self.devices), second);
            lowest_mtu::follow(&mut running_state, engine);
            running_state.look_at_shortcuts(engine, second);
            if second {
                running_state.open_closed_hooks();
                running_state.look_at_kernel_routing();
                running_state.look_at_routers(engine, sessions);
            }
            running_state.expire(engine, remaining);
            let is_other = reader.attach(engine);
            snooping.look(&mut running_state, engine, &messages, is_other, second);
            if second {
                engine.depot().end_quarantine();
                watch::age(&mut running_state);
                watch::sample(&mut locked(&self.loads), &engine.worker_views());
            }
            running_state.filters.former()
        });
        if has_expired {
            *locked(&self.next_expiry) = Instant::now() + EXPIRY_PAUSE * begin.elapsed();
        }
        // Freeing takes long, so it is done after everything is unlocked.
        drop((reader, snooping));
        drop(former);
    }

    /// Sets the listening sockets and paths that are handed over to a successor process in addition to the data plane.
    pub fn surround(&self, around: ListenerSet) {
        *locked(&self.around) = Some(around);
    }

    /// Returns a `tokio` watch receiver for the process ID of the successor process that has taken over the
    /// data plane.
    pub fn successor(&self) -> tokio::sync::watch::Receiver<Option<u32>> {
        self.left.subscribe()
    }

    /// Returns a `tokio` watch receiver for the OpenFlow datapaths of all bridges. The receiver is notified
    /// when a bridge gains or loses its datapath.
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

    /// Prevents hand-overs, because this process is about to end. A hand-over in progress is aborted, and its
    /// successor is killed.
    pub fn cancel_upgrade(&self) {
        self.handing_over.cancel();
    }

    /// Returns the process ID of the successor that has taken over the data plane. Returns `None` if there is none.
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
                    // Devices that the daemon created are kept. For other devices, the former settings are restored.
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
        // The slow path stops after the workers, because workers wait for the slow path.
        running_state.flows.halt();
        drop(running_state);
        // If the start has failed, no rules have changed.
        if self.settled.load(Ordering::Acquire) {
            self.keep_rules(true);
        }
    }

    /// Calls `look` with a router's copy of the kernel's routing state, and waits for the result. The running
    /// configuration is not locked during the wait.
    fn ask_router<R: Send + 'static>(
        &self,
        name: &str,
        look: impl FnOnce(&Mirror) -> R + Send + 'static,
    ) -> Result<R, PlaneError> {
        let follower = locked(&self.running_state).routers.follower(name)?;
        routers::ask(name, &follower, look)
    }

    /// Returns a snapshot of the OpenFlow bridges, from which lists for the API are made. The running
    /// configuration is locked only during the call.
    fn shown_flows(&self) -> flows::Shown {
        let running_state = locked(&self.running_state);
        running_state.flows.shown(&running_state.names)
    }
}

/// Returns the properties of the machine, such as the number of CPU cores, against which a configuration is checked.
pub fn machine() -> Machine {
    Machine { cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get), frames: None }
}

/// Returns the engine's part of the configuration. If the configuration names no CPU cores, the engine has one worker,
/// on the last core that this process may use.
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
