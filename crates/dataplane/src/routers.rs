//! Running virtual routers. Each router keeps a copy (the mirror) of the kernel's routing state in its network
//! namespace: routes, neighbours, devices, addresses and rules. The workers forward the packets of the router's ports
//! according to this copy.
//!
//! ```text
//!   kernel ══netlink notifications══► Follower's thread: State { Feed: tables and neighbours for the workers }
//!                                         │ wake-up: devices, addresses or rules have changed
//!                                         ▼
//!   routing thread of `DataPlane`: updates the hooks, and publishes another snapshot to the workers
//! ```
//!
//! Routes and neighbours reach the workers only through the mirror's tables. A packet that a worker cannot route is
//! passed to the kernel (punted) through a TAP device of the router, as if the kernel had received it there.

mod announce;
mod announcer;
mod ask;
mod bgp_sessions;
mod fpm;
mod hook;
mod hook_limits;
mod messages;
mod mirror_device;
mod mirrors;
mod observed;
mod prompts;
mod punt_tap;
mod relay;
mod running;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use control::PlaneError;
use engine::worker::monotonic;
use engine::{Engine, Function, PortView};
use model::{Config, Namespace, PortName, RouteEntry, RouterName, RouterState};
use netlink::Follower;
use packet::{PortId, QueueId, WorkerId};
use port::tap::TapQueue;
use port::{FramePool, Queue};
use sync::qsbr::Domain;
use xdp::StageChange;
use xdp::route::RouteCounts;

use super::ids::Names;
use super::lock::locked;
use super::pace::Retry;
use super::ports::{Ports, Returned};
use super::routes;
use punt_tap::{PuntTap, TAP_MTU};
use relay::Relay;

pub use ask::{ask, drift};
pub use bgp_sessions::{AllSessions, read as read_bgp_sessions};
use messages::{object, place};
pub use mirror_device::is_port as is_mirror;
pub use running::Running;
pub use status::StateOf;

/// All virtual routers of the daemon.
pub struct Routers {
    domain: Arc<Domain>,
    workers: usize,
    all: BTreeMap<RouterName, Running>,
    /// Routers that cannot be opened now, for example because their namespace is missing. The value is the reason.
    waiting: BTreeMap<RouterName, String>,
    /// Pauses before the next attempts to open routers whose namespace exists and that could not be
    /// opened.
    retries: BTreeMap<RouterName, Retry>,
    /// Channel that wakes the routing thread when the workers' snapshot or the hooks must be updated.
    wake: SyncSender<()>,
    woken: Option<Receiver<()>>,
    /// Number of running captures and traces. While a capture or trace runs, hooks (XDP programs)
    /// route no packets, because every packet must pass the workers.
    watchers: u32,
    /// Counts of packets that the hooks of removed routers have routed, for each port that still exists.
    past: BTreeMap<PortName, RouteCounts>,
    /// Queues of mirror devices (TAP devices that represent router interfaces in the kernel) that a predecessor process
    /// has handed over.
    given: mirror_device::Given,
}

/// Returns whether the network namespace of a router exists.
fn is_there(wanted: &model::Router) -> bool {
    wanted.settings.namespace.as_ref().is_none_or(|namespace| namespace.path().exists())
}

impl Routers {
    /// Creates an empty set of routers. `workers` is the number of workers. `domain` is the domain
    /// of the quiescent-state-based memory reclamation (QSBR), which frees shared memory only when
    /// no worker reads it any more.
    pub fn new(domain: &Arc<Domain>, workers: usize) -> Routers {
        let (wake, woken) = sync_channel(1);
        Routers {
            domain: Arc::clone(domain),
            workers,
            all: BTreeMap::new(),
            waiting: BTreeMap::new(),
            retries: BTreeMap::new(),
            wake,
            woken: Some(woken),
            watchers: 0,
            past: BTreeMap::new(),
            given: mirror_device::Given::new(),
        }
    }

    /// Returns the receiver of the channel that wakes the routing thread. Returns `None` if it was already returned.
    pub fn woken(&mut self) -> Option<Receiver<()>> {
        self.woken.take()
    }

    /// Creates the routers that are new or changed in `config`, and reads the state of their namespaces. Routers that
    /// are running are not changed.
    ///
    /// # Errors
    /// Returns the error of the first router that cannot be created. A router whose namespace does not exist
    /// causes no error while the daemon is `starting`, or if the router already waits for its namespace.
    pub fn prepare(
        &mut self,
        config: &Config,
        starting: bool,
    ) -> Result<Vec<(RouterName, Running)>, PlaneError> {
        self.prepare_some(config, starting, |_| true)
    }

    /// Tries again to create routers that could not be opened. A router is tried if its namespace
    /// exists and the pause after the last failed attempt is over.
    pub fn retry(&mut self, config: &Config, now: Instant) -> Vec<(RouterName, Running)> {
        let due = self.missing(config, now);
        if due.is_empty() {
            return Vec::new();
        }
        // An error is ignored. A router that cannot be created continues to wait.
        self.prepare_some(config, true, |name| due.contains(name)).unwrap_or_default()
    }

    fn prepare_some(
        &mut self,
        config: &Config,
        starting: bool,
        is_meant: impl Fn(&RouterName) -> bool,
    ) -> Result<Vec<(RouterName, Running)>, PlaneError> {
        let mut prepared = Vec::new();
        for (name, wanted) in config.routers.iter().filter(|(name, _)| is_meant(name)) {
            let before = self.all.get(name);
            let starting = starting || self.waiting.contains_key(name);
            match mirrors::check(name, wanted, config, before) {
                Err(error) if starting => tracing::warn!(%error, "an interface has no device"),
                checked => checked?,
            }
            if before.is_some_and(|running| running.fits(wanted)) {
                continue;
            }
            let begun = fpm::source(name, wanted, before, starting)
                .and_then(|fpm| Running::start(name, wanted, &self.domain, self.workers, &self.wake, fpm));
            match begun {
                Ok(running) => prepared.push((name.clone(), running)),
                Err(error) if starting => {
                    tracing::warn!(router = %name, %error, "it waits for its namespace");
                    self.wait_for(name, wanted, error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(prepared)
    }

    /// Records that a router could not be opened because of `error`. Also records the time of the
    /// next attempt.
    fn wait_for(&mut self, name: &RouterName, wanted: &model::Router, error: PlaneError) {
        let mut why = format!("{} is not there", place(wanted));
        if is_there(wanted) {
            why = error.cause;
            let before = self.retries.get(name).copied();
            self.retries.insert(name.clone(), Retry::failed(before, Instant::now()));
        }
        self.waiting.insert(name.clone(), why);
    }

    /// Creates all routers in `config` and reads the routing state of their namespaces. This function is called before
    /// workers exist.
    ///
    /// # Errors
    /// Returns the errors of [`Routers::prepare`].
    pub fn load(&mut self, config: &Config) -> Result<(), PlaneError> {
        // A router whose namespace has disappeared does not prevent the start.
        let prepared = self.prepare(config, true)?;
        self.all.extend(prepared);
        Ok(())
    }

    /// Puts the prepared routers into operation, removes routers that `config` does not contain, and applies the other
    /// settings in `config`.
    pub fn commit(
        &mut self,
        engine: &Engine,
        config: &Config,
        ports: &Ports,
        mut prepared: Vec<(RouterName, Running)>,
        names: &mut Names,
    ) {
        let gone: Vec<RouterName> = self
            .all
            .keys()
            .filter(|name| {
                !config.routers.contains_key(*name) || prepared.iter().any(|(new, _)| new == *name)
            })
            .cloned()
            .collect();
        for name in gone {
            if let Some(mut running) = self.all.remove(&name) {
                self.remember(&running);
                if let Some((_, anew)) = prepared.iter_mut().find(|(new, _)| *new == name) {
                    anew.inherit_mirrors(&mut running);
                }
                running.close(&name, engine);
            }
        }
        self.all.extend(prepared);
        self.waiting.retain(|name, _| config.routers.contains_key(name) && !self.all.contains_key(name));
        self.retries.retain(|name, _| self.waiting.contains_key(name));
        self.tell_watched();
        self.settle(config, ports);
        for (port, queue) in self.plug(names) {
            if let Err(error) = engine.add_queue(WorkerId(0), port, QueueId(0), queue) {
                tracing::error!(%error, "a router has no way into the kernel");
            }
        }
        self.follow_mirrors(engine, config, ports, names);
    }

    /// Closes routers whose namespace was removed, or was replaced by another namespace of the same
    /// name. A closed router is opened again when a namespace with the name exists. A router that
    /// stays open would keep the old namespace and all its devices in existence. Returns whether
    /// any router was closed.
    pub fn close_gone(&mut self, engine: &Engine) -> bool {
        let gone: Vec<(RouterName, Running)> =
            self.all.extract_if(.., |_, running| running.is_gone()).collect();
        let any = !gone.is_empty();
        for (name, mut running) in gone {
            self.remember(&running);
            let why = format!("{} is gone", place(&running.wanted));
            tracing::warn!(router = %name, why, "the router is closed; it is opened again when its namespace is there");
            running.close_mirrors(engine);
            running.close(&name, engine);
            self.waiting.insert(name, why);
        }
        any
    }

    /// Creates and removes mirror devices of router interfaces according to `config`.
    fn follow_mirrors(&mut self, engine: &Engine, config: &Config, ports: &Ports, names: &mut Names) {
        let Routers { all, given, .. } = self;
        for (name, running) in all {
            for (worker, port, id, queue) in
                running.follow_mirrors(name, Some(engine), config, ports, names, given)
            {
                if let Err(error) = engine.add_queue(worker, port, id, queue) {
                    tracing::error!(%error, "an interface has no way into the kernel");
                }
            }
            running.tell_carriers(ports);
        }
    }

    /// Stores the queue of a mirror device that a predecessor process has handed over. `name` is the name to which the
    /// device's port number `port` is assigned.
    pub fn give(&mut self, name: String, port: PortId, queue: TapQueue) {
        self.given.insert(name, (port, queue));
    }

    /// Returns the routers whose hooks (XDP programs) do not limit the rate of control packets to the kernel.
    pub fn without_hook_limits(&self) -> impl Iterator<Item = &RouterName> {
        self.all.iter().filter(|(_, running)| !running.hook_limits.is_active()).map(|(name, _)| name)
    }

    /// Applies the settings in `config` (such as rate limits) to running routers.
    pub fn settle(&mut self, config: &Config, ports: &Ports) {
        for (name, running) in &mut self.all {
            let Some(wanted) = config.routers.get(name) else { continue };
            running.punt_policer.set_rates(|class| wanted.settings.punts_of(class), monotonic().ns);
            running.hook_limits.set_rates(&wanted.settings);
            running.wanted = wanted.clone();
            if let Err(error) = running.number(config, ports, name) {
                tracing::error!(router = %name, %error, "it does not know its interfaces");
            }
            let Running { relay, follower, state, punt_tap, .. } = running;
            Relay::settle(relay, name, wanted, config, (follower, state), &punt_tap.name);
        }
    }

    /// Assigns port numbers to the punt TAPs (through which workers pass packets to the kernel) whose queues no worker
    /// owns yet. Returns these queues, each with the port number of its TAP.
    pub fn plug(&mut self, names: &mut Names) -> Vec<(PortId, Box<dyn Queue>)> {
        let mut queues = Vec::new();
        for (name, running) in &mut self.all {
            let Some(queue) = running.punt_tap.queue.take() else { continue };
            let key = PuntTap::port_name(name);
            let Some(number) = names.ports.find(&key).or_else(|| names.ports.take(&key)) else {
                tracing::error!(router = %name, "there is no number left for its way into the kernel");
                continue;
            };
            running.punt_tap.port = Some(PortId(number));
            queues.push((PortId(number), queue));
        }
        queues
    }

    /// Assigns port numbers to the punt TAPs and mirror devices, and returns their queues, each with a worker. The
    /// caller adds the queues to an engine whose workers have not started.
    pub fn plug_all(&mut self, config: &Config, ports: &Ports, names: &mut Names) -> Vec<Returned> {
        let queue = |(port, queue)| (WorkerId(0), port, QueueId(0), queue);
        let mut queues: Vec<Returned> = self.plug(names).into_iter().map(queue).collect();
        let Routers { all, given, .. } = self;
        for (name, running) in all {
            queues.extend(running.follow_mirrors(name, None, config, ports, names, given));
        }
        queues
    }

    /// Creates new punt TAPs, because the old ones were closed when the workers stopped. Also sets the number of
    /// captures and traces to zero.
    pub fn unplugged(&mut self) {
        self.watchers = 0;
        self.tell_watched();
        for (name, running) in &mut self.all {
            // The queues of the mirrors come back with the other queues.
            running.mirrors.clear();
            match PuntTap::make(name, running.wanted.settings.namespace.as_ref()) {
                Ok(punt_tap) => running.punt_tap = punt_tap,
                Err(error) => tracing::error!(%error, "it has no way into the kernel any more"),
            }
        }
    }

    /// Returns whether `name` is the name to which the port number of a punt TAP or mirror device is assigned.
    pub fn has_port(&self, name: &str) -> bool {
        self.all
            .iter()
            .any(|(router, running)| PuntTap::port_name(router) == name || running.has_mirror(router, name))
    }

    /// Returns, for each port that is a router interface, the function that the workers execute for the port's packets.
    pub fn functions(&self, config: &Config, ports: &Ports) -> BTreeMap<PortName, Function> {
        let mut functions = BTreeMap::new();
        for running in self.all.values() {
            let (router, numbers) = running.compose(config, ports);
            let router = Arc::new(router);
            let function = |(name, number)| (name, Function::Router(Arc::clone(&router), number));
            functions.extend(numbers.into_iter().map(function));
        }
        functions
    }

    /// Returns the port entries of all punt TAPs and mirror devices for the workers' configuration
    /// snapshot.
    pub fn punt_taps<'r>(&'r self, ports: &'r Ports) -> impl Iterator<Item = (PortId, PortView)> + 'r {
        let punt_taps = self.all.values().filter_map(|running| running.punt_tap.port).map(|port| {
            // Packets that the kernel sends on a punt TAP are dropped.
            (port, PortView { max_frame: TAP_MTU + 14, ..PortView::new(Function::None, WorkerId(0)) })
        });
        punt_taps.chain(self.all.values().flat_map(|running| running.mirror_ports(ports)))
    }

    /// Sets the carrier of each mirror device to the link state of the port whose interface it represents.
    pub fn tell_carriers(&mut self, ports: &Ports) {
        self.all.values_mut().for_each(|running| running.tell_carriers(ports));
    }

    /// Installs the virtual router stage in the hooks of all router interfaces, and removes it from the hooks of other
    /// ports.
    pub fn tell_hooks(&mut self, config: &Config, ports: &mut Ports) {
        for (name, running) in &mut self.all {
            running.tell_hooks(name, config, ports);
        }
        for (name, running) in ports {
            let Some(hook) = running.hook.as_mut().filter(|hook| hook.route().is_some()) else { continue };
            let home = config.router_of(name.as_str());
            if home.is_none_or(|(router, _)| !self.all.contains_key(router))
                && let Err(error) = hook.set_stage(StageChange::Route(None))
            {
                tracing::error!(port = %name, %error, "its hook still routes");
            }
        }
    }

    /// Returns all routers, each with its namespace. `None` is the daemon's own namespace.
    pub fn namespaces(&self) -> Vec<(RouterName, Option<Namespace>)> {
        let namespace = |running: &Running| running.wanted.settings.namespace.clone();
        self.all.iter().map(|(name, running)| (name.clone(), namespace(running))).collect()
    }

    /// Updates the neighbours, hooks and mirror devices of all routers from the state that was read
    /// from the kernel. This is called once a second. `sessions` contains the BGP sessions if they
    /// are due in this call.
    pub fn look(
        &mut self,
        engine: &Engine,
        config: &Config,
        ports: &mut Ports,
        names: &mut Names,
        sessions: Option<AllSessions>,
    ) {
        for (name, running) in &mut self.all {
            running.watch_mirrors(name, engine, ports);
        }
        self.follow_mirrors(engine, config, ports, names);
        self.all.iter_mut().for_each(|(name, running)| running.announce(name, config, ports));
        self.tell_hooks(config, ports);
        self.past.retain(|name, _| ports.contains_key(name));
        let Some(mut sessions) = sessions else { return };
        for (name, running) in &mut self.all {
            running.prompt(name);
            // For a router that was opened in the meantime, the sessions are read for the next call.
            if let Some(sessions) = sessions.remove(name) {
                running.learn_peers(name, sessions);
            }
        }
    }

    /// Records that a capture or trace starts (`begins` is true) or ends. While one runs, hooks route no packets,
    /// because every packet must pass the workers.
    pub fn watch(&mut self, begins: bool) {
        self.watchers = if begins { self.watchers + 1 } else { self.watchers.saturating_sub(1) };
        self.tell_watched();
    }

    fn tell_watched(&self) {
        let hooks = self.all.values().filter_map(|running| running.hook.as_ref());
        hooks.for_each(|hook| hook.answers().watch(self.watchers > 0));
    }

    /// Sets the initial counts of a port's routed packets to the counts that the port's hook had in the predecessor
    /// process. Does nothing if this process has already counted routed packets of the port.
    pub fn continue_from(&mut self, name: &PortName, before: RouteCounts) {
        if self.counts(name) == RouteCounts::default() {
            self.past.insert(name.clone(), before);
        }
    }

    /// Returns the counts of packets that hooks have routed from a port and to a port.
    pub fn counts(&self, name: &PortName) -> RouteCounts {
        let mut sum = self.past.get(name).copied().unwrap_or_default();
        let hooks = self.all.values().filter_map(|running| running.hook.as_ref());
        hooks.for_each(|hook| hook::add(&mut sum, hook.counts(name)));
        sum
    }

    /// Keeps the counts of packets that the hooks of a removed router have routed, so that the ports' counts never
    /// decrease.
    fn remember(&mut self, running: &Running) {
        let Some(hook) = &running.hook else { return };
        for name in hook.counted() {
            let counts = hook.counts(&name);
            hook::add(self.past.entry(name).or_default(), counts);
        }
    }

    /// Returns the numbers of packets and bytes that were sent to each neighbour of a router.
    ///
    /// # Errors
    /// Returns an error if there is no such router, or if no thread follows the routing state of its namespace.
    pub fn sent(&self, name: &str) -> Result<routes::Sent, PlaneError> {
        let running = self.all.get(name).ok_or_else(|| PlaneError::no_router(name))?;
        let state = locked(&running.state);
        let sent = state
            .feed
            .adjacencies()
            .iter()
            .filter_map(|used| Some(((used.device, used.address?), (used.packets, used.bytes))));
        Ok(sent.collect())
    }

    /// Returns whether a kernel route is missing in a router's tables, because the tables are full.
    pub fn lacks_room(&self, name: &str, route: &RouteEntry) -> bool {
        let Some(running) = self.all.get(name) else { return false };
        locked(&running.state).feed.waits(route.table.0, route.prefix.address(), route.prefix.length())
    }

    /// Returns the routers that cannot be opened now, each with the reason.
    pub fn waiting(&self) -> impl Iterator<Item = (&RouterName, &str)> {
        self.waiting.iter().map(|(name, why)| (name, why.as_str()))
    }

    /// Returns the routers that have more policy routing rules than the workers support. Each entry has the
    /// address family of the rules and a text for messages.
    pub fn excess_rules(&self) -> Vec<(&RouterName, &'static str, String)> {
        let mut found = Vec::new();
        for (name, running) in &self.all {
            let counts = locked(&running.state).seen.excess_rules;
            for (family, count) in ["IPv4", "IPv6"].into_iter().zip(counts) {
                found.extend(count.map(|count| (name, family, observed::excess(count))));
            }
        }
        found
    }

    /// Returns one closure for each router. A closure computes the state of its router, and does not need the lock of
    /// the running configuration.
    pub fn states(&self, config: &Config, ports: &Ports) -> Vec<StateOf> {
        let state = |(name, wanted): (&RouterName, &model::Router)| -> StateOf {
            let state = RouterState {
                name: name.to_string(),
                namespace: wanted.settings.namespace.as_ref().map(ToString::to_string),
                routes_limit: wanted.settings.routes,
                neighbours_limit: wanted.settings.neighbours,
                ..RouterState::default()
            };
            match self.all.get(name) {
                Some(running) => running.state(wanted, config, ports, state),
                None => {
                    let waits = self.waiting.get(name).cloned();
                    let trouble = waits.unwrap_or_else(|| format!("{} is not there", place(wanted)));
                    Box::new(move || RouterState { trouble: Some(trouble), ..state })
                }
            }
        };
        config.routers.iter().map(state).collect()
    }

    /// Returns the thread that tracks the routing state of a router's namespace. The thread can be
    /// queried while the running configuration is not locked.
    ///
    /// # Errors
    /// Returns an error if there is no such router, or if no thread follows the routing state of its namespace.
    pub fn follower(&self, name: &str) -> Result<Arc<Follower>, PlaneError> {
        let running = self.all.get(name).map(|running| Arc::clone(&running.follower));
        running.ok_or_else(|| PlaneError::no_router(name))
    }

    /// Returns the routers that do not run and can be opened now. A router can be opened if its
    /// namespace exists and the pause after the last failed attempt is over.
    fn missing(&mut self, config: &Config, now: Instant) -> BTreeSet<RouterName> {
        let missing = config.routers.iter().filter(|(name, _)| !self.all.contains_key(*name));
        let (there, gone): (Vec<_>, Vec<_>) = missing.partition(|(_, wanted)| is_there(wanted));
        // A namespace that was created again is tried at once.
        self.retries.retain(|name, _| gone.iter().all(|(other, _)| *other != name));
        let is_due = |name: &RouterName| self.retries.get(name).is_none_or(|retry| retry.is_due(now));
        there.into_iter().map(|(name, _)| name).filter(|name| is_due(name)).cloned().collect()
    }

    /// Closes all routers. The workers must have stopped.
    pub fn clear(&mut self, pool: &mut FramePool) {
        for (_, mut running) in std::mem::take(&mut self.all) {
            if let Some(queue) = running.punt_tap.queue.take() {
                queue.close(pool);
            }
        }
        for (_, queue) in std::mem::take(&mut self.given).into_values() {
            Box::new(queue).close(pool);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// After a failed attempt to open a router, the next attempt is made after a pause. If the router's namespace was
    /// recreated, the next attempt is made without a pause.
    #[test]
    fn attempts_to_open_a_router_have_pauses() {
        let mut routers = Routers::new(&Domain::new(), 1);
        let config = |namespace: &str| {
            let settings = model::RouterSettings {
                namespace: Some(namespace.parse().unwrap()),
                ..model::RouterSettings::default()
            };
            let router = model::Router { settings, ports: BTreeMap::new() };
            Config { routers: BTreeMap::from([("edge".parse().unwrap(), router)]), ..Config::default() }
        };
        // A file that exists, but is not a namespace.
        let broken = config("/dev/null");
        let now = Instant::now();
        assert_eq!(routers.missing(&broken, now).len(), 1);
        assert!(routers.retry(&broken, now).is_empty());
        assert_eq!(routers.waiting().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["edge"]);
        assert!(routers.missing(&broken, now).is_empty());
        assert_eq!(routers.missing(&broken, now + Duration::from_secs(3600)).len(), 1);
        assert!(routers.missing(&config("/nowhere/at/all"), now).is_empty());
        assert_eq!(routers.missing(&broken, now).len(), 1);
    }
}
