//! Configuration from an OVSDB server. The database is one of the sources (owners) of configuration objects, like the
//! configuration file and the API. The daemon reads the tables of the database, applies each state of the tables as a
//! whole, and writes the resulting status to the database.
//!
//! ```text
//!   ovsdb-server ──> ovsdb::Client ──Desired──> DesiredConfig (ports, bridges, refused interfaces)
//!        ^                                             └──> Store::apply as Owner::Ovsdb ──> ports
//!        └── SwitchStatus: numbers, errors, states, statistics, cur_cfg <── states of ports ──┘
//! ```
//!
//! Interfaces that cannot be configured are left out. The column `error` of such an interface contains the reason. The
//! rest is applied. If the data plane refuses the configuration because of a port, this port is left out of the next
//! attempt. The column `cur_cfg` is updated after a state of the tables has been applied. While the daemon is not
//! connected to the server, it keeps the last configuration from the tables.

mod desired;
mod numbers;
mod openflow;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use control::{ApplyOptions, ChangeError, FailureKind, Lists, Store};
use dataplane::DataPlane;
use model::{Config, ObjectKey, Owner, PortState, Severity, StaticKey};
use ovsdb::{Client, ControllerStatus, Desired, Options, SwitchStatus, Uuid};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, timeout};

use desired::{DesiredConfig, LeftOut};
use numbers::Numbers;

pub use self::openflow::allows_remote;

/// Interval at which the daemon checks link states for changes, and checks whether missing network devices exist now.
const TICK: Duration = Duration::from_secs(1);
/// Default and minimum interval at which interface statistics are written to the database.
/// `other_config:stats-update-interval` can set a longer interval.
const STATISTICS: Duration = Duration::from_secs(5);
/// Time after which the daemon applies the OVSDB tables again if the data plane refused parts of them.
const RETRY: Duration = Duration::from_secs(10);
/// Maximum time for which the start of the daemon waits for the tables of the database.
const FIRST: Duration = Duration::from_secs(3);

/// Last applied state of the OVSDB tables, as the OpenFlow sessions and the `ovs-appctl` commands use it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Layout {
    /// Configuration that the OVSDB tables request, including controllers, fail modes and flow tables.
    pub desired: Arc<Desired>,
    /// OpenFlow port numbers of the running ports. The outer key is the bridge name, the inner key is the port name.
    pub numbers: BTreeMap<String, BTreeMap<String, u16>>,
}

impl Layout {
    /// Returns the OpenFlow port number of a port of a bridge, or `None` if no such port runs.
    pub fn number(&self, bridge: &str, port: &str) -> Option<u16> {
        self.numbers.get(bridge)?.get(port).copied()
    }
}

/// Static MAC table entries that `ovs-appctl fdb/add` has added, and that are not in the database. The outer key is the
/// bridge name, the inner key is VLAN and MAC address, and the value is the port name.
pub type Stations = BTreeMap<String, BTreeMap<StaticKey, String>>;

/// Channels between the task that applies the OVSDB tables and the rest of the daemon.
#[derive(Clone, Debug)]
pub struct Database {
    /// Last applied state of the OVSDB tables. The value changes when a new state has been applied.
    pub layout: watch::Receiver<Layout>,
    /// Status of each OpenFlow controller, by the UUID of its database row. The OpenFlow sessions write the status.
    pub controllers: Arc<watch::Sender<BTreeMap<Uuid, ControllerStatus>>>,
    /// Static MAC table entries that last until the process ends. `ovs-appctl fdb/add` sets them.
    pub stations: Arc<watch::Sender<Stations>>,
    first: watch::Receiver<bool>,
}

impl Database {
    /// Starts the task that applies the tables of the OVSDB server. Returns `None` if the settings contain no server.
    pub fn follow(store: &Arc<Store>, plane: &Arc<DataPlane>, settings: &model::Ovsdb) -> Option<Database> {
        let target = settings.database.clone()?;
        let (client, work) = ovsdb::client::run(Options::new(target));
        tokio::spawn(work);
        let (layout, laid_out) = watch::channel(Layout::default());
        let (controllers, told_controllers) = watch::channel(BTreeMap::new());
        let (stations, added) = watch::channel(Stations::new());
        let (first, first_done) = watch::channel(false);
        let follower = Follower {
            store: Arc::clone(store),
            plane: Arc::clone(plane),
            ring_size: settings.ring_size,
            client,
            layout,
            controllers: told_controllers,
            stations: added,
            first,
            numbers: Numbers::default(),
            wanted: DesiredConfig::default(),
            applied: None,
            told: SwitchStatus::default(),
            told_statistics: None,
            tried: None,
            retry_at: None,
            refused: LeftOut::default(),
        };
        tokio::spawn(follower.run());
        let (controllers, stations) = (Arc::new(controllers), Arc::new(stations));
        Some(Database { layout: laid_out, controllers, stations, first: first_done })
    }

    /// Waits until the daemon has read the OVSDB tables and tried to apply them once, but not longer than `FIRST`.
    /// Returns `false` if this time was too short. The wait is limited because the server may be unavailable for days.
    pub async fn settled(&mut self) -> bool {
        let settled = timeout(FIRST, self.first.wait_for(|first| *first)).await.is_ok();
        if !settled {
            tracing::warn!("ovsdb: the database has not been read yet; its ports come when it has");
        }
        settled
    }

    /// Waits until the daemon has read the OVSDB tables and tried to apply them once, without a time limit.
    pub async fn read(&mut self) {
        // An error means that the follower has ended.
        let _ = self.first.wait_for(|first| *first).await;
    }
}

struct Follower {
    store: Arc<Store>,
    plane: Arc<DataPlane>,
    ring_size: u32,
    client: Client,
    layout: watch::Sender<Layout>,
    controllers: watch::Receiver<BTreeMap<Uuid, ControllerStatus>>,
    stations: watch::Receiver<Stations>,
    first: watch::Sender<bool>,
    numbers: Numbers,
    /// Configuration derived from the last applied state of the OVSDB tables.
    wanted: DesiredConfig,
    /// Last applied state of the OVSDB tables. `None` until a state has been applied.
    applied: Option<Arc<Desired>>,
    told: SwitchStatus,
    told_statistics: Option<Instant>,
    /// State of the OVSDB tables that the daemon tried to apply last. `None` forces another attempt.
    tried: Option<Arc<Desired>>,
    /// Time at which the state in [`Self::tried`] is applied again, because the data plane refused parts of it.
    retry_at: Option<Instant>,
    /// Interfaces and bridges that the data plane refused in the last attempt. Until the next attempt is due, a change
    /// that only adds rows is applied without these interfaces and bridges. Otherwise each transaction would need
    /// another attempt for each refused object.
    refused: LeftOut,
}

impl Follower {
    async fn run(mut self) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                changed = self.client.desired.changed() => if changed.is_err() { return },
                Ok(()) = self.controllers.changed() => {}
                Ok(()) = self.stations.changed() => self.tried = None,
                _ = tick.tick() => {}
            }
            // While another daemon holds the lock, this daemon neither applies the tables nor writes to them.
            let Some(desired) = self.client.desired.borrow_and_update().clone() else { continue };
            if self.is_due(&desired).await {
                self.apply(&desired).await;
            }
            self.tell(&desired).await;
            self.first.send_if_modified(|first| !std::mem::replace(first, true));
        }
    }

    /// Returns whether the OVSDB tables must be applied. This is the case if the tables changed, a retry is
    /// due, or a missing device exists now.
    async fn is_due(&mut self, desired: &Arc<Desired>) -> bool {
        if self.tried.as_ref().is_none_or(|tried| !Arc::ptr_eq(tried, desired) && !same(tried, desired)) {
            return true;
        }
        if self.retry_at.is_some_and(|at| at <= Instant::now()) {
            return true;
        }
        let missing = self.wanted.missing.clone();
        if missing.is_empty() {
            return false;
        }
        blocking(move || missing.iter().any(|device| port::link::find(device).is_ok())).await.unwrap_or(false)
    }

    /// Applies the OVSDB tables as configuration. Leaves out the interfaces and bridges that the data plane refuses.
    async fn apply(&mut self, desired: &Arc<Desired>) {
        let before = self.tried.replace(Arc::clone(desired));
        let only_grows = before.is_some_and(|before| {
            !self.refused.is_empty() && !same(&before, desired) && only_grows(&before, desired)
        });
        let is_early = self.retry_at.is_some_and(|at| Instant::now() < at);
        if !(only_grows && is_early) {
            self.refused = LeftOut::default();
        }
        let mut left_out = self.refused.clone();
        let retry_at = self.retry_at.filter(|_| !left_out.is_empty());
        // Changes that follow one another do not defer the next attempt.
        self.retry_at = retry_at.or_else(|| Some(Instant::now() + RETRY));
        // Each iteration leaves out at least one more interface.
        loop {
            let (of, out, ring_size) = (Arc::clone(desired), left_out.clone(), self.ring_size);
            let Some(mut wanted) = blocking(move || desired::read(&of, ring_size, &out)).await else {
                return;
            };
            wanted.restrict_sockets(self.store.running(), &self.store.merged().config);
            let mut numbers = self.numbers.clone();
            numbers.assign(desired, &wanted.refused);
            wanted.number(&numbers);
            add_stations(&mut wanted.config, &self.stations.borrow_and_update());
            let error =
                match self.store.apply(Owner::Ovsdb, wanted.config.clone(), ApplyOptions::default()).await {
                    Ok(outcome) => {
                        if outcome.applied && !outcome.plan.lines.is_empty() {
                            tracing::info!("ovsdb: applied, {} changes", outcome.plan.lines.len());
                        }
                        self.done(desired, wanted, &left_out);
                        return;
                    }
                    Err(error) => error,
                };
            if is_passing(&error) {
                tracing::info!("ovsdb: {error}; trying again");
                self.retry_at = Some(Instant::now() + TICK);
                return;
            }
            let blamed = wanted.blame(&named(&error));
            let blamed = if blamed.is_empty() { self.newest(&wanted, &error) } else { blamed };
            if blamed.is_empty() {
                tracing::error!("ovsdb: {error}; everything is as before");
                return;
            }
            if matches!(error, ChangeError::Plane(_)) {
                self.refused.extend(blamed.clone());
            }
            left_out.extend(blamed);
        }
    }

    /// Returns the interface to leave out after an error that names no object (for example too few frames). This is the
    /// last interface, in the order of port names, that does not run yet. If there are too many bridges, returns the
    /// last bridge that does not run yet.
    fn newest(&self, wanted: &DesiredConfig, error: &ChangeError) -> LeftOut {
        if named(error).iter().any(|(object, _)| object == "bridge")
            && let Some(row) = wanted.newest_bridge(&self.store.merged().config)
        {
            return LeftOut { bridges: [(row, error.to_string())].into(), ..LeftOut::default() };
        }
        let running = &self.store.merged().config.ports;
        let newest = wanted.rows.iter().rev().find(|(port, _)| !running.contains_key(*port));
        let interfaces = newest.map(|(_, row)| (*row, error.to_string())).into_iter().collect();
        LeftOut { interfaces, ..LeftOut::default() }
    }

    fn done(&mut self, desired: &Arc<Desired>, wanted: DesiredConfig, left_out: &LeftOut) {
        for (name, why) in wanted.problems() {
            if !self.wanted.problems().any(|known| known == (name, why)) {
                tracing::warn!("ovsdb: {name}: {why}");
            }
        }
        self.retry_at = self.retry_at.filter(|_| !left_out.is_empty());
        self.wanted = wanted;
        self.numbers.assign(desired, &self.wanted.refused);
        self.applied = Some(Arc::clone(desired));
        let mut numbers: BTreeMap<String, BTreeMap<String, u16>> = BTreeMap::new();
        for (bridge, _, name, interface) in desired.interfaces() {
            if let Some(number) = self.numbers.of(interface.uuid) {
                numbers.entry(bridge.to_owned()).or_default().insert(name.to_owned(), number);
            }
        }
        let layout = Layout { desired: Arc::clone(desired), numbers };
        log_changes(&self.layout.borrow(), &layout, &self.wanted);
        self.layout.send_if_modified(|before| {
            let changed = *before != layout;
            *before = layout;
            changed
        });
    }

    /// Writes the status of all bridges, interfaces and controllers into the database. Interface statistics
    /// are updated only if their interval has passed.
    async fn tell(&mut self, desired: &Arc<Desired>) {
        let plane = Arc::clone(&self.plane);
        let Some(states) = blocking(move || plane.ports()).await else { return };
        let states: BTreeMap<String, PortState> =
            states.into_iter().map(|state| (state.name.clone(), state)).collect();
        let interval = desired.other_config.get("stats-update-interval").and_then(|text| text.parse().ok());
        let interval = interval.map_or(STATISTICS, |ms| Duration::from_millis(ms).max(STATISTICS));
        let now = Instant::now();
        let counting = self.told_statistics.is_none_or(|last| now.duration_since(last) >= interval);
        if counting {
            self.told_statistics = Some(now);
        }
        let before = (!counting).then_some(&self.told);
        let mut told = status::told(desired, &self.wanted, &self.numbers, &states, before);
        // Rows are reported as applied, and only the running state is acknowledged.
        told.cur_cfg = self.applied.as_ref().map(|applied| applied.next_cfg);
        told.controllers = self.controllers.borrow().clone();
        if told != self.told {
            self.told = told;
            self.client.told.send_replace(Arc::new(self.told.clone()));
        }
    }
}

/// Logs the bridges and interfaces that were added and removed. The messages have the wording of Open vSwitch's log,
/// for which scripts search.
fn log_changes(before: &Layout, after: &Layout, wanted: &DesiredConfig) {
    for (name, bridge) in &after.desired.bridges {
        let is_new = !before.desired.bridges.contains_key(name);
        if let Some(id) = wanted.ids.get(&bridge.uuid).filter(|_| is_new) {
            tracing::info!(target: "bridge", "bridge {name}: using datapath ID {id}");
        }
    }
    let differ = |from: &Layout, to: &Layout, what: &str| {
        for (bridge, ports) in &from.numbers {
            for (port, number) in
                ports.iter().filter(|(port, number)| to.number(bridge, port) != Some(**number))
            {
                tracing::info!(target: "bridge", "bridge {bridge}: {what} interface {port} on port {number}");
            }
        }
    };
    differ(before, after, "deleted");
    differ(after, before, "added");
}

/// Adds the static MAC table entries of `stations` to the bridges of the configuration. Entries whose bridge or port
/// does not exist are skipped.
fn add_stations(config: &mut Config, stations: &Stations) {
    for (name, bridge) in &mut config.bridges {
        for (key, port) in stations.get(name.as_str()).into_iter().flatten() {
            if let Some((port, _)) = bridge.ports.get_key_value(port.as_str()) {
                bridge.statics.insert(*key, port.clone());
            }
        }
    }
}

/// Returns whether two states of the OVSDB tables are equal apart from OpenFlow port numbers, which the
/// daemon itself writes to the database.
fn same(one: &Desired, other: &Desired) -> bool {
    let numberless = |desired: &Desired| {
        let mut desired = desired.clone();
        let ports = desired.bridges.values_mut().flat_map(|bridge| bridge.ports.values_mut());
        ports.flat_map(|port| port.interfaces.values_mut()).for_each(|interface| interface.ofport = None);
        desired
    };
    numberless(one) == numberless(other)
}

/// Returns whether the state `after` of the tables contains everything that the earlier state `before` contains,
/// unchanged. `after` may contain more bridges, ports and interfaces.
fn only_grows(before: &Desired, after: &Desired) -> bool {
    let mut common = after.clone();
    common.next_cfg = before.next_cfg;
    common.bridges.retain(|name, _| before.bridges.contains_key(name));
    for (name, bridge) in &mut common.bridges {
        let ports = &before.bridges[name].ports;
        bridge.ports.retain(|port, _| ports.contains_key(port));
        for (port, own) in &mut bridge.ports {
            own.interfaces.retain(|interface, _| ports[port].interfaces.contains_key(interface));
        }
    }
    same(before, &common)
}

/// Returns whether the error of a configuration change is temporary. The change is then tried again soon.
fn is_passing(error: &ChangeError) -> bool {
    match error {
        ChangeError::Pending { .. } | ChangeError::Interrupted => true,
        ChangeError::Plane(error) => error.kind == FailureKind::Busy,
        _ => false,
    }
}

/// Returns each configuration object that an error names, as the path of the object (such as `port.NAME`) and the text
/// of the error.
fn named(error: &ChangeError) -> Vec<(String, String)> {
    match error {
        ChangeError::Problems(problems) => problems
            .iter()
            .filter(|problem| problem.severity == Severity::Error)
            .map(|problem| (problem.object.clone(), problem.to_string()))
            .collect(),
        ChangeError::Refused(refusals) => {
            let object = |object: &ObjectKey| match object {
                ObjectKey::Member(_, port) => format!("port.{port}"),
                other => other.to_string(),
            };
            refusals.iter().map(|refusal| (object(refusal.object()), refusal.to_string())).collect()
        }
        ChangeError::Plane(error) => vec![(error.object.clone(), error.to_string())],
        _ => Vec::new(),
    }
}

/// Runs blocking work on a separate thread and returns its result. Returns `None` if the work panicked or was
/// cancelled.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ovsdb::{Bridge, Interface, Port};

    fn tables(next_cfg: i64, interfaces: &[(&str, &str)]) -> Desired {
        let mut bridge = Bridge::default();
        for (name, kind) in interfaces {
            let interface = Interface { kind: (*kind).to_owned(), ..Interface::default() };
            let interfaces = [((*name).to_owned(), interface)].into();
            bridge.ports.insert((*name).to_owned(), Port { interfaces, ..Port::default() });
        }
        Desired { next_cfg, bridges: [("br0".to_owned(), bridge)].into(), ..Desired::default() }
    }

    /// Checks which changes of the tables only add rows. After any other change, a refused interface is tried again,
    /// because a row that was changed or removed may have caused the refusal. An added row cannot be the cause.
    #[test]
    fn tables_only_grow_if_nothing_changes_or_goes() {
        let before = tables(1, &[("a", ""), ("b", "tap")]);
        assert!(only_grows(&before, &before));
        assert!(only_grows(&before, &tables(2, &[("a", ""), ("b", "tap"), ("c", "")])));
        assert!(!only_grows(&before, &tables(2, &[("a", ""), ("c", "")])), "one has gone");
        assert!(!only_grows(&before, &tables(2, &[("a", ""), ("b", "patch"), ("c", "")])), "one has changed");
        let mut more = tables(2, &[("a", ""), ("b", "tap")]);
        more.bridges.insert("br1".to_owned(), Bridge::default());
        assert!(only_grows(&before, &more) && !only_grows(&more, &before));
        more.other_config.insert("flow-limit".to_owned(), "7".to_owned());
        assert!(!only_grows(&before, &more), "a setting of all bridges");
    }
}
