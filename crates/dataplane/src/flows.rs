//! OpenFlow bridges: their flow tables, the slow-path thread (which translates packets that miss the workers' caches),
//! and the interface that controllers use.
//!
//! The flow tables of a bridge exist as long as the bridge has the setting `openflow`, even if other settings of the
//! bridge change. The configuration snapshot of the workers refers to the tables. OpenFlow sessions run outside the
//! data plane and access a bridge through its [`OfDatapath`].

mod clock;
mod flow_ports;
mod flow_store;
mod hook;
mod of_datapath;
mod records;
mod show;
mod stored_flows;
mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::idle::Waker;
use engine::slow_path::{FlowListener, KnownFlow, SlowPathConfig};
use engine::{Connections, Engine, FlowBridge, FlowTables, Function, SlowPathView};
use model::{BridgeName, Config, DoctorFinding, FailMode, Finding, FlowTuning, OpenFlow, PortName};
use packet::MacAddr;
use switch::flow::{
    Action, FlowFilter, FlowMod, FlowPort, Instructions, Match, Mod, Pipeline, PortDesc, port, text,
};
use xdp::flows::FlowTable;

use clock::now;
use flow_ports::FlowPorts;

use super::bridges::Bridges;
use super::fault;
use super::ports::{Ports, Running};

pub use flow_store::{Keeper, LOOK as KEEPING};
pub use of_datapath::OfDatapath;
use records::OfDatapathRecord;
pub use records::{MegaflowRecord, RulesRecord};
pub use show::Shown;

/// Capacity of a worker's megaflow cache, and maximum number of different megaflow masks of one port. The slow path
/// installs fewer megaflows than this, so that space is left for ports that are added later.
const CACHE: lookup::FlowLimits = lookup::FlowLimits { flows: 250_000, masks: 256 };

/// Time limit for the slow path to revalidate all megaflows of the workers' caches once.
const PATIENCE: Duration = Duration::from_secs(2);

/// Interval at which [`Flows::halt_by`], which stops the slow path, checks whether the slow-path thread has ended.
const HALT_LOOK: Duration = Duration::from_micros(200);

/// Renames a rule file that cannot be read, so that it is not overwritten. Returns a diagnostic about the file.
fn put_aside(bridge: &str, path: &Path, error: &stored_flows::KeptError) -> DoctorFinding {
    let fix = match control::put_aside(path) {
        Ok(aside) => {
            format!(
                "let controllers bring the rules again, or restore {} from a copy; then remove it",
                aside.display()
            )
        }
        Err(why) => format!("it could not be put aside ({why}); move it away"),
    };
    let finding = format!("its rules are not restored: {error}");
    DoctorFinding { object: format!("bridge.{bridge}"), severity: Finding::Error, finding, fix }
}

/// Returns a listener that logs added and removed megaflows in Open vSwitch's format. The listener logs only while
/// `vlog/set dpif_netdev:dbg` is in effect.
fn log_of_flows() -> FlowListener {
    FlowListener {
        listens: || tracing::enabled!(target: "dpif_netdev", tracing::Level::DEBUG),
        changed: Box::new(|change| {
            let flow =
                text::cached(change.recirculation, &change.port.0.to_string(), change.flow, change.mask);
            let what = if change.added { "flow_add" } else { "flow_del" };
            let actions = text::program(change.ops, &|port| port.0.to_string());
            tracing::debug!(target: "dpif_netdev", "{what}: {flow}, actions:{actions}");
        }),
    }
}

/// Running state of an OpenFlow bridge.
pub struct Flowing {
    /// OpenFlow flow tables of the bridge.
    pub tables: Arc<FlowTables>,
    /// The OpenFlow bridge that the workers' configuration snapshot contains.
    bridge: Arc<FlowBridge>,
    /// OpenFlow port numbers of the bridge's ports, indexed by port name.
    numbers: BTreeMap<PortName, u32>,
    /// Ports of the bridge, as they were last written to the flow tables.
    ports: FlowPorts,
    settings: OpenFlow,
    of_datapath: Arc<OfDatapath>,
}

/// Flow tables of all OpenFlow bridges, for the wait at the beginning of a hand-over. The hand-over starts only when
/// none of the tables is locked, because a large change by a controller may keep the tables of a bridge locked for
/// long.
pub struct Held(Vec<(BridgeName, Arc<FlowTables>)>);

impl Held {
    /// Waits until no flow table of the bridges is locked.
    ///
    /// # Errors
    /// Returns the name of the first bridge whose flow tables were still locked at the deadline.
    pub fn wait(&self, deadline: Instant) -> Result<(), &BridgeName> {
        let held = self.0.iter().find(|(_, tables)| !tables.is_free_by(deadline));
        held.map_or(Ok(()), |(name, _)| Err(name))
    }

    /// Returns the number of flow entries of all bridges.
    pub fn rule_count(&self) -> u32 {
        let rules: usize = self.0.iter().map(|(_, tables)| tables.lock().rule_count()).sum();
        u32::try_from(rules).unwrap_or(u32::MAX)
    }

    /// Checks that the flow entries of all bridges fit into a hand-over message of `most` bytes. The estimate
    /// is 300 bytes for each flow entry plus twice the size of its actions, which are sent as hexadecimal
    /// digits.
    ///
    /// # Errors
    /// Returns the name of the bridge that needs the most bytes, and the number of bytes that all bridges
    /// need.
    pub fn fit(&self, most: usize) -> Result<(), (&BridgeName, usize)> {
        let estimate = |tables: &FlowTables| {
            let pipeline = tables.lock();
            let (rules, memory) = (pipeline.rule_count(), pipeline.rule_memory());
            300 * rules + 2 * memory.saturating_sub(RULE_OCTETS * rules)
        };
        let estimates: Vec<_> = self.0.iter().map(|(name, tables)| (estimate(tables), name)).collect();
        let all: usize = estimates.iter().map(|(octets, _)| octets).sum();
        match estimates.into_iter().max() {
            Some((_, name)) if all > most => Err((name, all)),
            _ => Ok(()),
        }
    }
}

/// Memory in bytes of a flow entry with one output action. The size estimate for a hand-over message counts 300 bytes
/// for each flow entry, including one output action. To obtain the size of the other actions, the estimate subtracts
/// this memory from the memory of the flow entry.
const RULE_OCTETS: usize = 1_500;

/// State of the running slow path: its thread, which translates packets that miss the workers' caches (upcalls), its
/// adjustable settings, and read access to its data.
struct Deciding {
    knobs: Arc<SlowPathConfig>,
    view: Arc<SlowPathView>,
    thread: JoinHandle<Vec<KnownFlow>>,
}

/// Initial state of a bridge that has not been created yet: its flow tables, and its OpenFlow port numbers by port
/// name. The state comes from a predecessor process or from a rule file.
struct Given {
    rules: Pipeline,
    numbers: BTreeMap<String, u32>,
    of_datapath: Option<OfDatapathRecord>,
}

/// Barriers that were requested from bridges. A bridge's barrier completes when the workers' caches agree with the
/// bridge's flow tables.
struct Barriers {
    asked: usize,
    completed: usize,
    /// Channel that receives one value for each completed barrier.
    is_done: std::sync::mpsc::Receiver<()>,
}

impl Barriers {
    /// Waits until all barriers have completed. Returns false if this takes longer than `patience`.
    fn all_within(&mut self, patience: Duration) -> bool {
        self.complete(self.asked, patience)
    }

    /// Waits until one of the barriers has completed. Returns false if no barrier was requested, or
    /// if this takes longer than `patience`.
    fn any_within(&mut self, patience: Duration) -> bool {
        self.asked > 0 && self.complete(1, patience)
    }

    fn complete(&mut self, count: usize, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while self.completed < count {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.is_done.recv_timeout(left).is_err() {
                return false;
            }
            self.completed += 1;
        }
        true
    }
}

/// Effect of a configuration change on the ports of one OpenFlow bridge.
struct Followed {
    /// Whether the configuration change has removed ports from the bridge.
    has_lost: bool,
    /// Whether the change has added, removed or changed ports in the bridge's flow tables.
    is_changed: bool,
}

/// Removed ports and bridges whose megaflows may still be in the workers' caches.
#[derive(Debug, Default)]
struct Stale {
    /// Bridges from which ports were removed since the workers' caches were last cleaned.
    bridges: BTreeSet<BridgeName>,
    /// Whether bridges were removed. A barrier of any bridge also removes the megaflows of the removed bridges.
    has_bridges: bool,
}

/// OpenFlow bridges of the daemon and their slow path.
pub struct Flows {
    waker: Option<Arc<Waker>>,
    served: engine::slow_path::Bridges,
    bridges: BTreeMap<BridgeName, Flowing>,
    deciding: Option<Deciding>,
    /// Connections that the action `ct` tracks. All bridges share them, so that zones are those of the data path.
    connections: Arc<Connections>,
    /// Table of the flows that are offloaded to the hooks (XDP programs). The table is created when
    /// the slow path first starts.
    table: Option<FlowTable>,
    /// Removed ports and bridges whose megaflows may still be in the workers' caches.
    stale: Stale,
    /// Bridges whose ports have changed since the last [`Flows::settle`].
    changed: BTreeSet<BridgeName>,
    /// Initial states of bridges that are not created yet, indexed by bridge name.
    given: BTreeMap<String, Given>,
    /// Megaflows that the workers had cached when the last slow path ended, in this process or in a predecessor. The
    /// next slow path installs them again.
    known: Vec<KnownFlow>,
    /// Diagnostics of rule files that could not be read and were moved aside.
    damaged: Vec<DoctorFinding>,
    /// OpenFlow datapaths and settings of the bridges, by bridge name. The channel sends them to the task that holds
    /// the sessions with controllers.
    leaders: tokio::sync::watch::Sender<BTreeMap<BridgeName, (OpenFlow, Arc<OfDatapath>)>>,
}

impl Default for Flows {
    fn default() -> Self {
        Flows {
            waker: None,
            served: Arc::new(Mutex::new(BTreeMap::new())),
            bridges: BTreeMap::new(),
            deciding: None,
            connections: Arc::default(),
            table: None,
            stale: Stale::default(),
            changed: BTreeSet::new(),
            given: BTreeMap::new(),
            known: Vec::new(),
            damaged: Vec::new(),
            leaders: tokio::sync::watch::Sender::new(BTreeMap::new()),
        }
    }
}

impl Flows {
    /// Creates, changes and removes flow tables according to `config`. Also assigns OpenFlow numbers to the
    /// bridges' ports and describes the ports to the controllers.
    pub fn follow(&mut self, config: &Config, ports: &Ports, bridges: &Bridges) {
        let wants =
            |name: &BridgeName| config.bridges.get(name).is_some_and(|own| own.settings.openflow.is_some());
        let stays = |name: &BridgeName| wants(name) && bridges.contains_key(name);
        let gone: BTreeSet<u16> =
            self.bridges.extract_if(.., |name, _| !stays(name)).map(|(_, own)| own.tables.number()).collect();
        let mut changed = !gone.is_empty();
        // When a port moves to another bridge, the megaflows of the former bridge must not match its packets.
        self.stale.has_bridges |= changed;
        for (name, bridge) in bridges {
            let Some(own) = config.bridges.get(name) else { continue };
            let Some(settings) = &own.settings.openflow else { continue };
            if !self.bridges.contains_key(name) {
                let Some(flowing) = self.make(name, bridge, settings) else { continue };
                // The slow path identifies bridges by their numbers. It finds the megaflows of a removed bridge if a
                // new bridge has its number.
                if gone.contains(&flowing.tables.number()) {
                    self.stale.bridges.insert(name.clone());
                }
                self.bridges.insert(name.clone(), flowing);
                changed = true;
            }
            let Some(flowing) = self.bridges.get_mut(name) else { continue };
            let has_followed = flowing.follow(name, bridge, settings);
            changed |= has_followed;
            let followed = flowing.follow_ports(name, &own.ports, ports);
            if followed.has_lost {
                self.stale.bridges.insert(name.clone());
            }
            if followed.is_changed || has_followed {
                self.changed.insert(name.clone());
            }
        }
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        *served = self
            .bridges
            .values()
            .map(|flowing| (flowing.tables.number(), Arc::clone(&flowing.bridge)))
            .collect();
        drop(served);
        if changed {
            let leaders = self
                .bridges
                .iter()
                .map(|(name, own)| (name.clone(), (own.settings.clone(), Arc::clone(&own.of_datapath))));
            self.leaders.send_replace(leaders.collect());
        }
    }

    fn make(
        &mut self,
        name: &BridgeName,
        bridge: &Arc<switch::Bridge>,
        settings: &OpenFlow,
    ) -> Option<Flowing> {
        if self.waker.is_none() {
            match Waker::new() {
                Ok(waker) => self.waker = Some(Arc::new(waker)),
                Err(error) => {
                    tracing::error!(bridge = %name, %error, "its rules cannot be decided: no descriptor is left");
                    return None;
                }
            }
        }
        let waker = Arc::clone(self.waker.as_ref()?);
        let given = self.given.remove(name.as_str());
        let (rules, given) =
            given.map_or_else(Default::default, |own| (own.rules, Some((own.numbers, own.of_datapath))));
        let tables = Arc::new(FlowTables::new(bridge.id().0, rules, waker));
        let of_datapath = OfDatapath::new(
            name,
            datapath_id(name, settings),
            settings.fail_mode,
            Arc::clone(&tables),
            Arc::clone(&self.connections),
        );
        let mut numbers = BTreeMap::new();
        match given {
            Some((given, record)) => {
                of_datapath.take_over(record);
                let port = |(port, number): (String, u32)| Some((port.parse().ok()?, number));
                numbers.extend(given.into_iter().filter_map(port));
                of_datapath.resume();
            }
            None => of_datapath.begin(),
        }
        of_datapath.set_tables(&settings.tables);
        tables.set_one_tag(settings.vlan_limit == Some(1));
        let bridge = Arc::new(FlowBridge {
            tables: Arc::clone(&tables),
            bridge: Arc::clone(bridge),
            connections: Arc::clone(&self.connections),
        });
        Some(Flowing {
            tables,
            bridge,
            numbers,
            ports: FlowPorts::default(),
            settings: settings.clone(),
            of_datapath: Arc::new(of_datapath),
        })
    }

    /// Removes cached megaflows of removed ports or bridges. This must happen before the next snapshot is published,
    /// because a port's packets may then belong to another bridge. Other megaflows stay. If no bridge is left or the
    /// slow path does not answer, stops the slow path and removes all megaflows. Upcalls then wait until
    /// [`Flows::ensure`] starts the slow path again.
    pub fn forget(&mut self, engine: &Engine) {
        let stale = std::mem::take(&mut self.stale);
        // The slow path no longer knows such ports and bridges, and removes their megaflows when it
        // revalidates.
        if self.deciding.is_none() || self.are_forgotten(&stale) {
            return;
        }
        let detached = engine.detach_flows();
        self.halt();
        match detached {
            Ok(flows) => {
                let mut pool = engine.pool();
                flows.into_iter().for_each(|mut own| own.close(&mut |packet| pool.free(packet)));
            }
            Err(error) => tracing::error!(%error, "a worker keeps flows of ports or bridges that have gone"),
        }
    }

    /// Starts the slow-path thread if there is an OpenFlow bridge and no slow path is running.
    pub fn ensure(&mut self, engine: &Engine) {
        let Some(waker) = self.waker.as_ref().filter(|_| !self.bridges.is_empty() && self.deciding.is_none())
        else {
            return;
        };
        let (known, served) = (std::mem::take(&mut self.known), Arc::clone(&self.served));
        let mut slow_path = match engine.slow_path_with(CACHE, Arc::clone(waker), served, &known) {
            Ok(slow_path) => slow_path,
            Err(error) => {
                tracing::error!(%error, "packets of unknown flows cannot be decided");
                return;
            }
        };
        match hook::of(&mut self.table, waker) {
            Ok(hook) => slow_path.set_hook(Box::new(hook)),
            Err(error) => tracing::warn!(%error, "hot flows are not answered in the driver hook"),
        }
        slow_path.set_listener(log_of_flows());
        let (knobs, view) = (slow_path.knobs(), slow_path.view());
        let run = move || {
            let known = slow_path.run();
            fault::slow_path_end();
            known
        };
        match std::thread::Builder::new().name("slow-path".to_owned()).spawn(run) {
            Ok(thread) => self.deciding = Some(Deciding { knobs, view, thread }),
            Err(error) => {
                tracing::error!(%error, "packets of unknown flows cannot be decided: no thread is left")
            }
        }
    }

    /// Stops the slow-path thread, because the engine stops. The megaflows that the workers had cached are kept
    /// for the next slow path.
    pub fn halt(&mut self) {
        self.halt_by(None);
    }

    /// Stops the slow-path thread like [`Flows::halt`], but waits for its end at most until `deadline`. Returns whether
    /// the thread has ended.
    pub fn halt_by(&mut self, deadline: Option<Instant>) -> bool {
        let Some(deciding) = self.deciding.take() else { return true };
        deciding.knobs.stop.store(true, Ordering::Release);
        if let Some(waker) = &self.waker {
            waker.notify();
        }
        while let Some(deadline) = deadline
            && !deciding.thread.is_finished()
        {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(HALT_LOOK);
        }
        self.known = deciding.thread.join().unwrap_or_default();
        true
    }

    /// Returns the flow tables of all bridges. A hand-over can begin when none of them is locked.
    pub fn held(&self) -> Held {
        Held(self.bridges.iter().map(|(name, own)| (name.clone(), Arc::clone(&own.tables))).collect())
    }

    /// Changes the settings of the megaflow cache. Returns false if no slow path is running.
    pub fn tune(&self, tuning: FlowTuning) -> bool {
        let Some(deciding) = &self.deciding else { return false };
        match tuning {
            FlowTuning::Limit(limit) => deciding.knobs.limit.store(limit, Ordering::Relaxed),
            FlowTuning::Megaflows(on) => deciding.knobs.megaflows.store(on, Ordering::Relaxed),
        }
        true
    }

    /// Waits until the workers' megaflow caches agree with the flow tables of bridges whose ports have changed. A
    /// configuration change is acknowledged only after that.
    pub fn settle(&mut self) {
        let changed = std::mem::take(&mut self.changed);
        if self.deciding.is_some() && !self.ask(|name| changed.contains(name)).all_within(PATIENCE) {
            tracing::warn!("cached flows have not been looked at within {PATIENCE:?}");
        }
    }

    /// Waits until the workers' caches contain no megaflows of removed ports and bridges. The function waits for the
    /// bridges that lost ports. If this takes too long, it requests the removal of all megaflows of these bridges.
    /// Returns false if no bridge is left, or if the removal takes too long as well.
    fn are_forgotten(&self, stale: &Stale) -> bool {
        let concerns = |name: &BridgeName| stale.bridges.contains(name);
        let mut own = self.ask(concerns);
        if own.asked == 0 && stale.has_bridges {
            // The first bridge that answers is enough, so a slow bridge delays nothing.
            return self.ask(|_| true).any_within(PATIENCE);
        }
        own.all_within(PATIENCE / 2) || {
            // The slow path removes megaflows faster than it revalidates them.
            let slow = self.bridges.iter().filter(|(name, _)| concerns(name));
            slow.for_each(|(_, flowing)| flowing.tables.purge(|| {}));
            own.all_within(PATIENCE / 2)
        }
    }

    /// Requests a barrier from each bridge for which `concerns` returns true.
    fn ask(&self, concerns: impl Fn(&BridgeName) -> bool) -> Barriers {
        let (done, is_done) = std::sync::mpsc::channel();
        let mut asked = 0;
        for (_, flowing) in self.bridges.iter().filter(|(name, _)| concerns(name)) {
            let done = done.clone();
            flowing.tables.barrier(move || {
                let _ = done.send(());
            });
            asked += 1;
        }
        Barriers { asked, completed: 0, is_done }
    }

    /// Returns the flow tables of all OpenFlow bridges as hand-over records, by bridge name.
    pub fn records(&self) -> BTreeMap<String, RulesRecord> {
        let record = |(name, own): (&BridgeName, &Flowing)| {
            let record = RulesRecord::of(&own.tables.lock(), own.named_numbers(), now());
            (name.as_str().to_owned(), RulesRecord { of_datapath: Some(own.of_datapath.record()), ..record })
        };
        self.bridges.iter().map(record).collect()
    }

    /// Returns hand-over records of the megaflows that workers had cached when the slow path was stopped.
    pub fn known(&self) -> Vec<MegaflowRecord> {
        self.known.iter().map(MegaflowRecord::of).collect()
    }

    /// Stores initial states for bridges that will be created (`records`), and megaflows that the next slow path
    /// installs in the workers' caches (`known`).
    pub fn take_over(&mut self, records: BTreeMap<String, RulesRecord>, known: &[MegaflowRecord]) {
        self.known = known.iter().map(MegaflowRecord::read).collect();
        self.given =
            records.into_iter().map(|(name, record)| (name.clone(), given(&name, &record))).collect();
    }

    /// Reads the rule files in `directory` as initial states of bridges that will be created. A file that cannot be
    /// read is renamed and reported, and its bridge starts like a new bridge.
    pub fn restore(&mut self, directory: &Path) {
        for name in stored_flows::bridges(directory) {
            match stored_flows::read(directory, &name) {
                Ok(record) => {
                    let own = given(&name, &record);
                    tracing::info!(bridge = %name, rules = own.rules.rule_count(), "its rules are restored");
                    self.given.insert(name, own);
                }
                Err(error) => {
                    tracing::error!(bridge = %name, "its rules are not restored: {error}");
                    self.damaged.push(put_aside(&name, &stored_flows::path_of(directory, &name), &error));
                }
            }
        }
    }

    /// Returns the diagnostics of rule files that could not be read. Each diagnostic names the path to which
    /// the file was moved.
    pub fn damaged(&self) -> &[DoctorFinding] {
        &self.damaged
    }

    /// Discards the restored initial states (flow tables and port numbers) that no bridge has used. Bridges that are
    /// created later start empty.
    pub fn forget_given(&mut self) {
        for name in std::mem::take(&mut self.given).into_keys() {
            tracing::warn!(bridge = %name, "there is no such bridge any more: the rules that were kept of it are forgotten");
        }
    }

    /// Returns the flow entries to write to the rule files, from which the daemon restores them after it was killed.
    /// The second value contains the names of bridges that have a restored initial state and have not been created yet.
    pub fn kept(&self) -> (BTreeMap<String, flow_store::Kept>, BTreeSet<String>) {
        let kept = |(name, own): (&BridgeName, &Flowing)| {
            (
                name.as_str().to_owned(),
                flow_store::Kept { tables: Arc::clone(&own.tables), numbers: own.named_numbers() },
            )
        };
        (self.bridges.iter().map(kept).collect(), self.given.keys().cloned().collect())
    }

    /// Returns the table of the flows that are offloaded to hooks. Returns `None` while no slow path
    /// maintains the table.
    pub fn table(&self) -> Option<&FlowTable> {
        self.table.as_ref().filter(|_| self.deciding.is_some())
    }

    /// Returns the number of a bridge's flows that are offloaded to hooks. Returns `None` if there is no such
    /// bridge or no slow path runs.
    pub fn hooked(&self, name: &BridgeName) -> Option<u32> {
        let hooked = self.bridges.get(name)?.tables.hooked();
        self.table().map(|_| u32::try_from(hooked).unwrap_or(u32::MAX))
    }

    /// Returns the function that the workers execute for packets on the ports of an OpenFlow bridge. Returns `None` if
    /// there is no such bridge.
    pub fn function(&self, name: &BridgeName) -> Option<Function> {
        self.bridges.get(name).map(|flowing| Function::OpenFlow(Arc::clone(&flowing.bridge)))
    }

    /// Returns a `tokio` watch receiver for the OpenFlow datapaths of all bridges. The receiver is notified
    /// when a datapath is added, changed or removed.
    pub fn leaders(&self) -> tokio::sync::watch::Receiver<BTreeMap<BridgeName, (OpenFlow, Arc<OfDatapath>)>> {
        self.leaders.subscribe()
    }
}

/// Converts a bridge's record from a hand-over or a rule file into the initial state of the bridge in this process.
fn given(name: &str, record: &RulesRecord) -> Given {
    let mut rules = Pipeline::new();
    let refused = record.give(&mut rules, now());
    if refused > 0 {
        tracing::error!(bridge = %name, refused, "rules of the predecessor could not be taken over");
    }
    Given { rules, numbers: record.numbers.clone(), of_datapath: record.of_datapath.clone() }
}

impl Flowing {
    /// Returns the OpenFlow port numbers, indexed by port name.
    fn named_numbers(&self) -> BTreeMap<String, u32> {
        self.numbers.iter().map(|(port, number)| (port.as_str().to_owned(), *number)).collect()
    }

    /// Applies changed OpenFlow settings, or a changed MAC-learning bridge (which executes the action `NORMAL`), to an
    /// OpenFlow bridge. Returns whether the OpenFlow sessions must be updated.
    fn follow(&mut self, name: &BridgeName, bridge: &Arc<switch::Bridge>, settings: &OpenFlow) -> bool {
        if !Arc::ptr_eq(&self.bridge.bridge, bridge) {
            let (tables, connections) = (Arc::clone(&self.tables), Arc::clone(&self.bridge.connections));
            self.bridge = Arc::new(FlowBridge { tables, bridge: Arc::clone(bridge), connections });
        }
        let changed = self.settings != *settings;
        if changed {
            self.settings = settings.clone();
            self.of_datapath.set_datapath_id(datapath_id(name, settings));
            self.of_datapath.set_fail_mode(settings.fail_mode);
            self.of_datapath.set_tables(&settings.tables);
            self.tables.set_one_tag(settings.vlan_limit == Some(1));
        }
        changed
    }

    /// Updates the ports of an OpenFlow bridge: their numbers, their descriptions and their link states.
    fn follow_ports(
        &mut self,
        bridge: &BridgeName,
        members: &BTreeMap<PortName, model::Member>,
        ports: &Ports,
    ) -> Followed {
        let here = |name: &PortName| members.contains_key(name) && ports.contains_key(name);
        let wanted = |name: &PortName| {
            let number = || members.get(name)?.number.map(u32::from);
            if name.as_str() == bridge.as_str() { Some(port::LOCAL) } else { number() }
        };
        let before = self.numbers.clone();
        let has_lost = before.keys().any(|name| !here(name));
        // Ports whose number changes release it before other ports are numbered.
        self.numbers.retain(|name, known| here(name) && wanted(name).is_none_or(|wanted| wanted == *known));
        let mut taken: BTreeSet<u32> = self.numbers.values().copied().collect();
        for name in members.keys().filter(|name| here(name)) {
            if self.numbers.contains_key(name) {
                continue;
            }
            let wanted = wanted(name);
            let free = || (1..).find(|number| !taken.contains(number) && !is_asked_for(members, *number));
            if let Some(number) = wanted.filter(|number| !taken.contains(number)).or_else(free) {
                taken.insert(number);
                self.numbers.insert(name.clone(), number);
            }
        }
        let numbers = &self.numbers;
        let of_datapath = &self.of_datapath;
        for (_, number) in before.iter().filter(|(name, number)| numbers.get(*name) != Some(*number)) {
            of_datapath.undress(*number);
        }
        let describe = |(name, number): (&PortName, &u32)| {
            Some((*number, describe(name, *number, ports.get(name)?, members.get(name)?)))
        };
        let described = numbers.iter().filter_map(describe).collect();
        let dressed = Arc::clone(of_datapath);
        let dress = move |port| dressed.dress(port);
        let is_changed = self.ports.describe(&self.tables, described, dress);
        Followed { has_lost, is_changed }
    }
}

fn is_asked_for(members: &BTreeMap<PortName, model::Member>, number: u32) -> bool {
    members.values().any(|member| member.number.map(u32::from) == Some(number))
}

/// Port configuration bit `OFPPC_PORT_DOWN`: the port is administratively down.
const DOWN: u32 = 1;
/// Port state bit `OFPPS_LINK_DOWN`: the link has no carrier.
const LINK_DOWN: u32 = 1;
/// Port state bit `OFPPS_LIVE`: the port can transmit (used by fast-failover groups).
const LIVE: u32 = 4;

fn describe(name: &PortName, number: u32, running: &Running, member: &model::Member) -> FlowPort {
    let live = running.is_up();
    let admin = running.wanted.port.admin;
    let mac = running.device.as_ref().and_then(|device| device.mac).unwrap_or_else(|| made_up(name));
    let desc = PortDesc {
        number,
        name: name.as_str().to_owned(),
        mac,
        config: if admin { 0 } else { DOWN },
        state: if live { LIVE } else { LINK_DOWN },
        // The speed is in kbit/s.
        speed: running.device.as_ref().and_then(|device| device.speed).unwrap_or(0).saturating_mul(1000),
    };
    FlowPort { id: running.id, desc, floods: member.flood, forwards: true, receives: true, live }
}

/// Returns a locally administered Ethernet address that is computed from the port's name. Controllers see this address
/// for a port whose device has no Ethernet address.
fn made_up(name: &PortName) -> MacAddr {
    let mut hasher = DefaultHasher::new();
    name.as_str().hash(&mut hasher);
    let [a, b, c, d, e, ..] = hasher.finish().to_be_bytes();
    MacAddr([2, a, b, c, d, e])
}

/// Returns the configured datapath ID. If none is configured, derives it from the machine ID and the bridge's name, so
/// that it does not change when the daemon restarts.
fn datapath_id(name: &BridgeName, settings: &OpenFlow) -> u64 {
    settings.datapath_id.unwrap_or_else(|| {
        let mut hasher = DefaultHasher::new();
        std::fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().hash(&mut hasher);
        name.as_str().hash(&mut hasher);
        // The lower 48 bits form a locally administered unicast address.
        0x0200_0000_0000 | hasher.finish() & 0xff_ffff_ffff
    })
}

/// Returns the flow entry with the action `NORMAL`. With this entry, an OpenFlow bridge works as a
/// learning bridge.
fn normal() -> Mod {
    let actions = vec![Action::Output { port: port::NORMAL, max_len: 0 }];
    Mod::Flow(Box::new(FlowMod::add(0, 0, Match::ANY, Instructions::apply(actions))))
}

/// Returns whether a bridge's flow tables are empty.
fn is_bare(pipeline: &Pipeline) -> bool {
    pipeline.rule_count() == 0
}

/// Returns whether the flow tables contain only the standalone flow entry (with the action `NORMAL`).
fn stands_by_itself(pipeline: &Pipeline) -> bool {
    if pipeline.rule_count() != 1 {
        return false;
    }
    let flows = pipeline.flows(&FlowFilter::default(), 0);
    let Mod::Flow(normal) = normal() else { return false };
    matches!(&flows[..], [only] if (only.table, only.priority) == (0, 0)
        && only.matching == Match::ANY
        && only.instructions == normal.instructions)
}

/// Returns whether a bridge with this fail mode works as a learning bridge while it has no controller.
fn stands_alone(mode: FailMode) -> bool {
    mode == FailMode::Standalone
}

#[cfg(test)]
mod tests;
