//! Virtual routers that run: each mirrors the routing state of its namespace, and its ports' packets are decided by that.
//!
//! ```text
//!   kernel ══notifications══► Follower's thread: State { Feed: tables and neighbours for the workers, what else is seen }
//!                                 │ devices, addresses, rules: a nudge
//!                                 ▼
//!   [`DataPlane`](super::DataPlane)'s routing thread: hooks are told this host's addresses, workers get another snapshot
//! ```
//!
//! Routes and neighbours reach the workers through their tables alone. What a worker cannot do itself it gives to the kernel through
//! a TAP of the router's own, as if it had come in there.

mod hook;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use control::{FailureKind, PlaneError};
use engine::worker::monotonic;
use engine::{Engine, PortView, Room};
use model::{
    Config, DriftState, InterfaceState, Miss, Namespace, PortName, PuntState, RouterName, RouterState,
};
use netlink::{Change, Feed, Follower, Limits, Mirror, own_addresses};
use packet::{MacAddr, PortId, QueueId, WorkerId};
use port::netns::Netns;
use port::tap::{Tap, TapConfig, TapError};
use port::{FramePool, Queue, link};
use router::{Gate, Interface, Kernel, Lookup, Mirrored, Punt, Router};
use sync::qsbr::Domain;
use xdp::route::{Own, RouteCounts, RoutePort};

mod fpm;

use super::device::inside;
use super::ids::Names;
use super::locked;
use super::ports::{Ports, Returned};
use super::routes;
use hook::{Hook, Switch};

/// Different things that the routes of one table lead to.
const PATHS: u32 = 65_536;
/// What the TAPs are called, with a number behind it.
const TAP: &str = "trivium";
/// Numbers that are tried.
const TAPS: u32 = 256;
/// Bytes of the largest packet that the kernel is given, and a little: more than ports carry.
const TAP_MTU: u32 = 9_216;
/// Neighbours that the kernel is asked for in one go.
const PROMPTS: usize = 512;

/// How a router is, when it is asked for.
pub type StateOf = Box<dyn FnOnce() -> RouterState>;

/// All of them.
pub struct Routers {
    domain: Arc<Domain>,
    workers: usize,
    all: BTreeMap<RouterName, Running>,
    /// Says that something was seen that workers or hooks are to be told.
    wake: SyncSender<()>,
    woken: Option<Receiver<()>>,
    /// Captures and traces that want to see every packet at the workers.
    watchers: u32,
    /// What hooks of routers that are gone have routed for ports that are still there.
    past: BTreeMap<PortName, RouteCounts>,
}

/// One of them.
pub struct Running {
    wanted: model::Router,
    follower: Arc<Follower>,
    state: Arc<Mutex<State>>,
    gate: Arc<Gate>,
    seed: u32,
    door: Door,
    /// What hooks answer by, where they do.
    hook: Option<Hook>,
    /// This host's own addresses, as the hooks of its ports have them.
    own: Own,
    /// Packets sent to each neighbour when it was looked last.
    sent: BTreeMap<(u32, IpAddr), u64>,
}

/// The way into the kernel.
struct Door {
    name: String,
    mac: MacAddr,
    /// Its number, once workers know it.
    port: Option<PortId>,
    /// Its queue, until a worker has it.
    queue: Option<Box<dyn Queue>>,
}

/// What the follower's thread writes.
struct State {
    router: RouterName,
    feed: Feed,
    /// The numbers of the router's interfaces by the names of their devices.
    interfaces: BTreeMap<String, u16>,
    /// Those of them that are there.
    bound: BTreeMap<u32, u16>,
    seen: Seen,
    /// Neighbours that somebody has entered for good.
    permanent: BTreeSet<(u32, IpAddr)>,
    /// Says when hooks answer.
    switch: Option<Switch>,
    wake: SyncSender<()>,
    refused: Option<Instant>,
}

/// What is seen of a namespace besides routes and neighbours.
#[derive(Default)]
struct Seen {
    devices: BTreeMap<String, Seat>,
    own: (BTreeSet<Ipv4Addr>, BTreeSet<Ipv6Addr>),
    four: Vec<Lookup>,
    six: Vec<Lookup>,
    tables: Vec<u32>,
}

/// A device of an interface.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seat {
    mac: MacAddr,
    mtu: u32,
}

impl State {
    /// What has changed in the mirror; gives the prefixes of routes that found no room.
    fn apply(&mut self, mirror: &Mirror, changes: &[Change]) -> Vec<String> {
        let errors = self.feed.apply(mirror, changes);
        if let Some(error) = errors.first() {
            // A table that is full says so with every route: once a minute is enough.
            if self.refused.is_none_or(|last| last.elapsed().as_secs() >= 60) {
                let count = errors.len();
                tracing::error!(router = %self.router, count, "{error}; what there is goes on forwarding");
                self.refused = Some(Instant::now());
            }
        }
        for change in changes {
            let Change::Neighbour(key) = change else { continue };
            if mirror.neighbours.get(key).is_some_and(|known| known.permanent) {
                self.permanent.insert((key.link, key.address));
            } else {
                self.permanent.remove(&(key.link, key.address));
            }
        }
        let elsewhere = |change: &Change| match change {
            Change::Link(_) | Change::Address(_) | Change::Rules => true,
            Change::Route4(key) => key.table == 255,
            Change::Route6(key) => key.table == 255,
            Change::Neighbour(_) | Change::NextHop(_) => false,
        };
        if changes.iter().any(elsewhere) || !self.feed.tables().eq(self.seen.tables.iter().copied()) {
            self.look(mirror);
            // One that waits to be taken is enough.
            let _ = self.wake.try_send(());
        }
        errors.iter().map(|error| error.prefix().to_owned()).collect()
    }

    /// Looks at everything but routes and neighbours.
    fn look(&mut self, mirror: &Mirror) {
        let mut devices = BTreeMap::new();
        let mut bound = BTreeMap::new();
        for link in mirror.links.values() {
            let (Some(number), Ok(mac)) =
                (self.interfaces.get(&link.name), link.address.as_slice().try_into())
            else {
                continue;
            };
            bound.insert(link.index, *number);
            devices.insert(link.name.clone(), Seat { mac: MacAddr(mac), mtu: link.mtu });
        }
        for device in self.bound.keys().chain(bound.keys()).copied().collect::<BTreeSet<u32>>() {
            if self.bound.get(&device) != bound.get(&device) {
                self.feed.bind(device, bound.get(&device).copied());
            }
        }
        self.bound = bound;
        let number = |name: &str| self.interfaces.get(name).copied();
        self.seen = Seen {
            devices,
            own: own_addresses(mirror),
            four: self.feed.lookups(mirror, false, number),
            six: self.feed.lookups(mirror, true, number),
            tables: self.feed.tables().collect(),
        };
        if let Some(switch) = &self.switch {
            let known = |lookups: &[Lookup]| self.feed.serves_programs(lookups);
            switch.know(known(&self.seen.four), known(&self.seen.six));
        }
    }
}

/// Two words of the trie for a route, as full tables need, with room for change; never fewer than its root takes.
fn words(routes: u32) -> usize {
    usize::try_from(routes).unwrap_or(usize::MAX).saturating_mul(2).max(1 << 21)
}

fn object(name: &RouterName) -> String {
    format!("router.{name}")
}

impl Running {
    /// Reads the state of its namespace and begins to follow it.
    fn start(
        name: &RouterName,
        wanted: &model::Router,
        domain: &Arc<Domain>,
        workers: usize,
        wake: &SyncSender<()>,
        fpm: Option<netlink::Fpm>,
    ) -> Result<Running, PlaneError> {
        let failed = |error: &dyn std::error::Error| {
            PlaneError::failed(object(name), error, "see that its namespace is there, and the privileges")
        };
        let limits = Limits {
            words: words(wanted.settings.routes),
            paths: PATHS,
            neighbours: wanted.settings.neighbours,
        };
        let (hook, feed) = match hook::wanted(name, &wanted.settings, domain) {
            Some((hook, programs)) => (Some(hook), Feed::mirrored(domain, limits, workers, programs)),
            None => (None, Feed::new(domain, limits, workers)),
        };
        let state = Arc::new(Mutex::new(State {
            router: name.clone(),
            feed,
            interfaces: BTreeMap::new(),
            bound: BTreeMap::new(),
            seen: Seen::default(),
            permanent: BTreeSet::new(),
            switch: hook.as_ref().map(|hook| hook.switch().clone()),
            wake: wake.clone(),
            refused: None,
        }));
        let netns = wanted.settings.namespace.as_ref().map(|namespace| Netns::Path(namespace.path()));
        let writer = Arc::clone(&state);
        let told = move |mirror: &Mirror, changes: &[Change]| locked(&writer).apply(mirror, changes);
        let follower = match fpm {
            Some(fpm) => Follower::start_with_fpm(netns.as_ref(), Follower::BUFFER, fpm, told),
            None => Follower::start(netns.as_ref(), Follower::BUFFER, move |mirror: &Mirror, changes| {
                drop(told(mirror, changes));
            }),
        };
        let follower = follower.map_err(|error| failed(&error))?;
        let door = Door::make(name, wanted.settings.namespace.as_ref())?;
        Ok(Running {
            wanted: wanted.clone(),
            follower: Arc::new(follower),
            state,
            gate: Arc::new(Gate::new(wanted.settings.punts, workers, monotonic().ns)),
            seed: fastrand(),
            door,
            hook,
            own: Own::new(name.as_str()).map_err(|error| failed(&error))?,
            sent: BTreeMap::new(),
        })
    }

    /// Numbers its interfaces: those that it had keep theirs.
    fn number(&self, config: &Config, name: &RouterName) -> Result<(), PlaneError> {
        let device =
            |port: &PortName| config.ports.get(port)?.kind.device().map(|(device, _)| device.to_string());
        let wanted: BTreeSet<String> = self.wanted.ports.keys().filter_map(device).collect();
        let mut state = locked(&self.state);
        let before = state.interfaces.clone();
        state.interfaces.retain(|device, _| wanted.contains(device));
        for device in wanted {
            let taken: BTreeSet<u16> = state.interfaces.values().copied().collect();
            let free = (0..router::FOREIGN).find(|number| !taken.contains(number));
            if let (false, Some(number)) = (state.interfaces.contains_key(&device), free) {
                state.interfaces.insert(device, number);
            }
        }
        if state.interfaces == before {
            return Ok(());
        }
        drop(state);
        let writer = Arc::clone(&self.state);
        let looked = self.follower.look(move |mirror| locked(&writer).look(mirror));
        looked.map_err(|error| PlaneError::failed(object(name), &error, "restart the daemon"))
    }

    /// The router as workers have it, and the number of each of its ports.
    fn compose(&self, config: &Config, ports: &Ports) -> (Router, BTreeMap<PortName, u16>) {
        let state = locked(&self.state);
        let mut numbers = BTreeMap::new();
        let most = state.interfaces.values().max().map_or(0, |number| usize::from(*number) + 1);
        let mut interfaces = vec![None; most];
        for name in self.wanted.ports.keys() {
            let device = config.ports.get(name).and_then(|port| port.kind.device());
            let Some((device, _)) = device else { continue };
            let Some(number) = state.interfaces.get(device.as_str()) else { continue };
            numbers.insert(name.clone(), *number);
            let (Some(running), Some(seat)) = (ports.get(name), state.seen.devices.get(device.as_str()))
            else {
                continue;
            };
            interfaces[usize::from(*number)] =
                Some(Interface { port: running.id, mac: seat.mac, mtu: seat.mtu });
        }
        let router = Router {
            interfaces,
            four: state.seen.four.clone(),
            six: state.seen.six.clone(),
            adjacencies: state.feed.adjacencies().view(),
            kernel: self.door.port.map(|port| Kernel { port, mac: self.door.mac }),
            mirrored: Mirrored::default(),
            gate: Arc::clone(&self.gate),
            seed: self.seed,
        };
        (router, numbers)
    }

    /// Puts the hooks of its ports into its room, and tells them what is this host's own and what its interfaces are.
    fn tell_hooks(&mut self, router: &RouterName, config: &Config, ports: &mut Ports) {
        let (own, devices, numbers) = {
            let state = locked(&self.state);
            (state.seen.own.clone(), state.seen.devices.clone(), state.interfaces.clone())
        };
        let own = own.0.into_iter().map(IpAddr::V4).chain(own.1.into_iter().map(IpAddr::V6)).collect();
        if let Err(error) = self.own.replace_all(&own) {
            tracing::error!(%error, "hooks do not know all of this host's addresses; workers give those packets to the kernel");
        }
        let names = self.wanted.ports.keys().filter_map(|name| {
            let (device, _) = config.ports.get(name)?.kind.device()?;
            Some((name, *numbers.get(device.as_str())?, *devices.get(device.as_str())?))
        });
        let mut names: Vec<(&PortName, u16, Seat)> = names.collect();
        names.retain(|(name, ..)| ports.get(*name).is_some_and(|port| port.hook.is_some()));
        if let Some(hook) = &mut self.hook {
            // Without being wanted, it is left by all of them.
            let wanted = names.iter().filter(|_| self.wanted.settings.hook);
            let seen: Vec<_> = wanted
                .filter_map(|(name, number, seat)| {
                    Some(hook::Seen { number: *number, name, port: ports.get(*name)?, seat: *seat })
                })
                .collect();
            hook.tell(router, self.wanted.settings.namespace.as_ref(), &seen);
        }
        for (name, _, seat) in names {
            let Some(port) = ports.get_mut(name) else { continue };
            let of = RoutePort { mac: seat.mac.0, vrrp: false };
            let mut none = None;
            let hook = if self.wanted.settings.hook { &mut self.hook } else { &mut none };
            if let Err(error) = hook::put(hook, name, port, &of, &self.own, self.seed) {
                tracing::error!(port = %name, %error, "its hook does not route");
            }
        }
    }

    /// Keeps the neighbours that packets are sent to fresh in the kernel, and has it ask for gateways that it does not know.
    fn prompt(&mut self, name: &RouterName) {
        let (used, permanent) = {
            let state = locked(&self.state);
            let used: Vec<router::AdjacencyUse> = state.feed.adjacencies().iter().collect();
            (used, state.permanent.clone())
        };
        let mut wanted = Vec::new();
        let mut sent = BTreeMap::new();
        for one in used {
            let Some(address) = one.address else { continue };
            let key = (one.device, address);
            // To say that one is used takes its permanence away (Linux `__neigh_update`), and nobody need say it.
            if permanent.contains(&key) {
                continue;
            }
            let is_used = self.sent.get(&key).is_some_and(|before| *before != one.packets);
            if is_used || one.mac.is_none() && one.ways > 0 {
                wanted.push(key);
            }
            sent.insert(key, one.packets);
        }
        self.sent = sent;
        wanted.truncate(PROMPTS);
        if wanted.is_empty() {
            return;
        }
        let told = inside(&object(name), self.wanted.settings.namespace.as_ref(), || {
            link::use_neighbours(wanted).map_err(|error| PlaneError::failed(object(name), &error, ""))
        });
        if let Err(error) = told {
            tracing::warn!(router = %name, %error, "the kernel cannot be told which neighbours are used");
        }
    }
}

/// A number by chance.
fn fastrand() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    u32::try_from(RandomState::new().hash_one(0) >> 32).unwrap_or(1)
}

impl Door {
    fn make(router: &RouterName, namespace: Option<&Namespace>) -> Result<Door, PlaneError> {
        let failed = |error: &TapError| PlaneError::failed(object(router), error, "");
        let made = (0..TAPS).map(|number| {
            let config = TapConfig {
                kind: "tap",
                netns: namespace.map(|namespace| Netns::Path(namespace.path())),
                mtu: TAP_MTU,
                ..TapConfig::new(format!("{TAP}{number}"))
            };
            Tap::create(&config)
        });
        let made = made.into_iter().find(|made| !matches!(made, Err(TapError::Exists { .. })));
        let tap = match made {
            Some(made) => made.map_err(|error| failed(&error))?,
            None => return Err(full(router)),
        };
        let name = tap.link.name.clone();
        inside(&object(router), namespace, || {
            settings(&name);
            Ok(())
        })?;
        let mac = tap.link.mac.unwrap_or(MacAddr([0; 6]));
        let queue = tap.queues.into_iter().next().map(|queue| Box::new(queue) as Box<dyn Queue>);
        Ok(Door { name, mac, port: None, queue })
    }

    /// The name under which its port is numbered.
    fn port_name(router: &RouterName) -> String {
        format!("kernel of {router}")
    }
}

fn full(router: &RouterName) -> PlaneError {
    PlaneError {
        kind: FailureKind::Failed,
        object: object(router),
        cause: format!("devices {TAP}0 to {TAP}{} are taken in its namespace", TAPS - 1),
        fix: "remove those that nobody uses (`ip link del`)".to_owned(),
    }
}

/// What comes in by a TAP of ours has come in elsewhere: the way back to its sender leads there. And it is no link: the kernel has
/// nothing to say on it by itself.
fn settings(tap: &str) {
    let path =
        |version: &str, device: &str, name: &str| format!("/proc/sys/net/{version}/conf/{device}/{name}");
    let strict =
        std::fs::read_to_string(path("ipv4", "all", "rp_filter")).is_ok_and(|text| text.trim() == "1");
    let loose = if strict { "2" } else { "0" };
    let all = [
        (path("ipv4", tap, "rp_filter"), loose),
        // Before IPv6 comes up, which it has to even where devices have none by default.
        (path("ipv6", tap, "addr_gen_mode"), "1"),
        (path("ipv6", tap, "disable_ipv6"), "0"),
    ];
    for (name, value) in all {
        if let Err(error) = std::fs::write(&name, value) {
            tracing::warn!(%name, %error, "could not be set");
        }
    }
}

impl Routers {
    /// None yet, for so many workers, whose readers are of `domain`.
    pub fn new(domain: &Arc<Domain>, workers: usize) -> Routers {
        let (wake, woken) = sync_channel(1);
        Routers {
            domain: Arc::clone(domain),
            workers,
            all: BTreeMap::new(),
            wake,
            woken: Some(woken),
            watchers: 0,
            past: BTreeMap::new(),
        }
    }

    /// Where it is said that something was seen; once.
    pub fn woken(&mut self) -> Option<Receiver<()>> {
        self.woken.take()
    }

    /// Reads the state of namespaces whose routers are new in `config`, or made anew. Nothing has changed yet.
    ///
    /// # Errors
    /// The first router that cannot be had; one whose namespace is not there is left out while the daemon is `starting`.
    pub fn prepare(&self, config: &Config, starting: bool) -> Result<Vec<(RouterName, Running)>, PlaneError> {
        let mut prepared = Vec::new();
        for (name, wanted) in &config.routers {
            let before = self.all.get(name);
            if before.is_some_and(|running| running.fits(wanted)) {
                continue;
            }
            let begun = fpm::source(name, wanted, before, starting)
                .and_then(|fpm| Running::start(name, wanted, &self.domain, self.workers, &self.wake, fpm));
            match begun {
                Ok(running) => prepared.push((name.clone(), running)),
                Err(error) if starting => {
                    tracing::warn!(router = %name, %error, "it waits for its namespace");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(prepared)
    }

    /// Reads the state of all routers' namespaces, before there are workers.
    ///
    /// # Errors
    /// As [`Routers::prepare`].
    pub fn load(&mut self, config: &Config) -> Result<(), PlaneError> {
        // One whose namespace has gone meanwhile is no reason to refuse everything else.
        let prepared = self.prepare(config, true)?;
        self.all.extend(prepared);
        Ok(())
    }

    /// Puts prepared routers in place, and everything else of `config`; takes out those that it does not have.
    pub fn commit(
        &mut self,
        engine: &Engine,
        config: &Config,
        prepared: Vec<(RouterName, Running)>,
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
            if let Some(running) = self.all.remove(&name) {
                self.remember(&running);
                running.close(engine);
            }
        }
        self.all.extend(prepared);
        self.tell_watched();
        self.settle(config);
        for (port, queue) in self.plug(names) {
            if let Err(error) = engine.add_queue(WorkerId(0), port, QueueId(0), queue) {
                tracing::error!(%error, "a router has no way into the kernel");
            }
        }
    }

    /// What is wanted of routers that stay.
    pub fn settle(&mut self, config: &Config) {
        for (name, running) in &mut self.all {
            let Some(wanted) = config.routers.get(name) else { continue };
            running.gate.set_rate(wanted.settings.punts, monotonic().ns);
            running.wanted = wanted.clone();
            if let Err(error) = running.number(config, name) {
                tracing::error!(router = %name, %error, "it does not know its interfaces");
            }
        }
    }

    /// Ways into the kernel that no worker has yet, with their numbers.
    pub fn plug(&mut self, names: &mut Names) -> Vec<(PortId, Box<dyn Queue>)> {
        let mut queues = Vec::new();
        for (name, running) in &mut self.all {
            let Some(queue) = running.door.queue.take() else { continue };
            let key = Door::port_name(name);
            let Some(number) = names.ports.find(&key).or_else(|| names.ports.take(&key)) else {
                tracing::error!(router = %name, "there is no number left for its way into the kernel");
                continue;
            };
            running.door.port = Some(PortId(number));
            queues.push((PortId(number), queue));
        }
        queues
    }

    /// The same for workers that have not started.
    pub fn plug_all(&mut self, names: &mut Names) -> Vec<Returned> {
        self.plug(names).into_iter().map(|(port, queue)| (WorkerId(0), port, QueueId(0), queue)).collect()
    }

    /// New ways into the kernel, after workers have gone with the old ones.
    pub fn unplugged(&mut self) {
        for (name, running) in &mut self.all {
            match Door::make(name, running.wanted.settings.namespace.as_ref()) {
                Ok(door) => running.door = door,
                Err(error) => tracing::error!(%error, "it has no way into the kernel any more"),
            }
        }
    }

    /// Whether a port of this name is one of their ways into the kernel.
    pub fn has_port(&self, name: &str) -> bool {
        self.all.keys().any(|router| Door::port_name(router) == name)
    }

    /// The rooms of all ports that are interfaces.
    pub fn rooms(&self, config: &Config, ports: &Ports) -> BTreeMap<PortName, Room> {
        let mut rooms = BTreeMap::new();
        for running in self.all.values() {
            let (router, numbers) = running.compose(config, ports);
            let router = Arc::new(router);
            let room = |(name, number)| (name, Room::Route(Arc::clone(&router), number));
            rooms.extend(numbers.into_iter().map(room));
        }
        rooms
    }

    /// The ways into the kernel, as ports.
    pub fn doors(&self) -> impl Iterator<Item = (PortId, PortView)> + '_ {
        self.all.values().filter_map(|running| running.door.port).map(|port| {
            // What the kernel sends there is for nobody.
            (port, PortView { max_frame: TAP_MTU + 14, ..PortView::new(Room::None, WorkerId(0)) })
        })
    }

    /// Puts the hooks of all interfaces into their routers' rooms, and takes others out.
    pub fn tell_hooks(&mut self, config: &Config, ports: &mut Ports) {
        for (name, running) in &mut self.all {
            running.tell_hooks(name, config, ports);
        }
        for (name, running) in ports {
            let Some(hook) = running.hook.as_mut().filter(|hook| hook.route().is_some()) else { continue };
            if config.router_of(name.as_str()).is_none()
                && let Err(error) = hook.set_route(None)
            {
                tracing::error!(port = %name, %error, "its hook still routes");
            }
        }
    }

    /// Once a second: neighbours stay fresh, and so do hooks.
    pub fn look(&mut self, config: &Config, ports: &mut Ports, second: u64) {
        self.tell_hooks(config, ports);
        self.past.retain(|name, _| ports.contains_key(name));
        for (name, running) in &mut self.all {
            if second.is_multiple_of(2) {
                running.prompt(name);
            }
        }
    }

    /// Somebody wants to see every packet at the workers, or no longer.
    pub fn watch(&mut self, begins: bool) {
        self.watchers = if begins { self.watchers + 1 } else { self.watchers.saturating_sub(1) };
        self.tell_watched();
    }

    fn tell_watched(&self) {
        let switches = self.all.values().filter_map(|running| running.hook.as_ref());
        switches.for_each(|hook| hook.switch().watch(self.watchers > 0));
    }

    /// What hooks have routed, as received or sent by a port.
    pub fn counts(&self, name: &PortName) -> RouteCounts {
        let mut sum = self.past.get(name).copied().unwrap_or_default();
        let hooks = self.all.values().filter_map(|running| running.hook.as_ref());
        hooks.for_each(|hook| hook::add(&mut sum, hook.counts(name)));
        sum
    }

    /// Keeps what a router's hooks have counted.
    fn remember(&mut self, running: &Running) {
        let Some(hook) = &running.hook else { return };
        for name in hook.counted() {
            let counts = hook.counts(&name);
            hook::add(self.past.entry(name).or_default(), counts);
        }
    }

    /// What was sent to each neighbour of a router.
    ///
    /// # Errors
    /// If there is no such router, or its namespace is not followed.
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

    /// How they all are, each to be asked without holding up everything else.
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
                None => Box::new(move || RouterState {
                    trouble: Some("its namespace is not there".to_owned()),
                    ..state
                }),
            }
        };
        config.routers.iter().map(state).collect()
    }

    /// Who follows a router's namespace: to be asked without holding up everything else.
    ///
    /// # Errors
    /// If there is no such router, or its namespace is not followed.
    pub fn follower(&self, name: &str) -> Result<Arc<Follower>, PlaneError> {
        let running = self.all.get(name).map(|running| Arc::clone(&running.follower));
        running.ok_or_else(|| PlaneError::no_router(name))
    }

    /// Routers whose namespace was not there.
    pub fn missing(&self, config: &Config) -> bool {
        config.routers.keys().any(|name| !self.all.contains_key(name))
    }

    /// Lets go of everything; workers have gone.
    pub fn clear(&mut self, pool: &mut FramePool) {
        for (_, mut running) in std::mem::take(&mut self.all) {
            if let Some(queue) = running.door.queue.take() {
                queue.close(pool);
            }
        }
    }
}

/// What `look` makes of the mirror of a router.
///
/// # Errors
/// If its namespace is not followed any more.
pub fn ask<R: Send + 'static>(
    name: &str,
    follower: &Follower,
    look: impl FnOnce(&Mirror) -> R + Send + 'static,
) -> Result<R, PlaneError> {
    follower.look(look).map_err(|error| ended(name, &error))
}

/// Compares the tables of a router with the kernel's and repairs what differs.
///
/// # Errors
/// As [`ask`], and if the kernel's cannot be read.
pub fn drift(name: &str, follower: &Follower) -> Result<DriftState, PlaneError> {
    let found = follower.check().map_err(|error| ended(name, &error))?;
    Ok(routes::drift(&found, ask(name, follower, routes::objects)?))
}

fn ended(name: &str, error: &netlink::NetlinkError) -> PlaneError {
    PlaneError::failed(format!("router.{name}"), error, "restart the daemon if it lasts")
}

impl Running {
    fn state(&self, wanted: &model::Router, config: &Config, ports: &Ports, empty: RouterState) -> StateOf {
        let status = self.follower.status();
        let punt = |punt: Punt| {
            let (packets, refused) = self.gate.counted(punt);
            PuntState { class: punt.name().to_owned(), packets, refused }
        };
        let state = RouterState {
            in_step: status.behind == 0,
            events: status.events,
            overruns: status.overruns,
            resyncs: status.resyncs,
            resync_ms: status.resync_ns / 1_000_000,
            drifted: status.drifted,
            punts: Punt::ALL.map(punt).into(),
            ..empty
        };
        let devices: Vec<(PortName, String, Miss)> = wanted
            .ports
            .iter()
            .filter_map(|(name, port)| {
                let (device, _) = config.ports.get(name)?.kind.device()?;
                Some((name.clone(), device.to_string(), port.miss))
            })
            .collect();
        let up: BTreeMap<PortName, bool> =
            ports.iter().map(|(name, running)| (name.clone(), running.is_up())).collect();
        let fpm = fpm::state(&self.follower, wanted);
        let look = move |mirror: &Mirror| {
            let by_name: BTreeMap<&str, &netlink::Link> =
                mirror.links.values().map(|link| (link.name.as_str(), link)).collect();
            let interfaces = devices.into_iter().map(|(port, device, miss)| {
                let link = by_name.get(device.as_str());
                InterfaceState {
                    index: link.map_or(0, |link| link.index),
                    mac: link.and_then(|link| link.address.as_slice().try_into().ok()).map(MacAddr),
                    mtu: link.map_or(0, |link| link.mtu),
                    up: up.get(&port).copied().unwrap_or(false)
                        && link.is_some_and(|link| link.up && link.carrier),
                    addresses: link.map(|link| routes::addresses(mirror, link.index)).unwrap_or_default(),
                    port: port.to_string(),
                    device,
                    miss,
                    ..InterfaceState::default()
                }
            });
            let interfaces: Vec<InterfaceState> = interfaces.collect();
            RouterState {
                interfaces,
                routes4: mirror.routes4.len() as u64,
                routes6: mirror.routes6.len() as u64,
                neighbours: mirror.neighbours.len() as u64,
                rules: u32::try_from(mirror.rules.len()).unwrap_or(u32::MAX),
                fpm: fpm.map(|fpm| fpm.told(mirror)),
                ..RouterState::default()
            }
        };
        let (follower, own) = (Arc::clone(&self.follower), Arc::clone(&self.state));
        Box::new(move || {
            let looked = follower.look(look);
            let (refused, tables) = {
                let own = locked(&own);
                (own.feed.refused(), u32::try_from(own.feed.tables().count()).unwrap_or(u32::MAX))
            };
            match looked {
                Ok(looked) => RouterState {
                    interfaces: looked.interfaces,
                    routes4: looked.routes4,
                    routes6: looked.routes6,
                    neighbours: looked.neighbours,
                    rules: looked.rules,
                    fpm: looked.fpm,
                    tables,
                    refused,
                    ..state
                },
                Err(error) => {
                    RouterState { in_step: false, tables, refused, trouble: Some(error.to_string()), ..state }
                }
            }
        })
    }

    /// Whether it can become what is wanted where it stands.
    fn fits(&self, wanted: &model::Router) -> bool {
        // Tables that hooks read are made with the router.
        if wanted.settings.hook && !self.wanted.settings.hook && self.hook.is_none() {
            return false;
        }
        let built = |router: &model::Router| {
            let settings = &router.settings;
            let limits = (settings.routes, settings.neighbours);
            (settings.namespace.clone(), limits, settings.fpm, settings.fpm_settle)
        };
        built(&self.wanted) == built(wanted)
    }

    fn close(mut self, engine: &Engine) {
        let mut pool = engine.pool();
        if let Some(port) = self.door.port {
            let queues = engine.remove_queues(port).unwrap_or_default();
            queues.into_iter().for_each(|(_, _, queue)| queue.close(&mut pool));
        }
        if let Some(queue) = self.door.queue.take() {
            queue.close(&mut pool);
        }
        tracing::debug!(tap = self.door.name, "a router's way into the kernel is closed");
    }
}
