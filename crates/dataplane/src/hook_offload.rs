//! Forwarding of bridged frames in the ports' XDP programs (hooks), without the workers. Each port's program gets a
//! bridge stage, which forwards frames to MAC addresses that the bridge has learned, or according to frequently used
//! OpenFlow flows. This module installs the stage, updates the BPF maps that the stage reads, and disables the stage
//! while it must not forward.
//!
//! If the stage cannot be installed, the failure is logged and workers forward the frames, which is slower. A change of
//! the running configuration first removes all MAC table entries from the hooks ([`HookOffload::forget`]), and leaves
//! all flows to the workers until the change ends. The next poll adds the entries again. The slow path selects the
//! offloaded flows ([`super::flows`]).

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Engine;
use engine::ordering::CompletionSink;
use engine::worker::monotonic;
use model::{BridgeName, Config, PortKind, PortName};
use offload::{BridgeOffload, HookPort, port_stage};
use packet::{PortId, QueueId};
use port::af_xdp::statistics;
use switch::Bridge;
use xdp::bridge::{BridgeCounts, BridgeDevices, BridgePort, BridgeStage, Mark, Orders};
use xdp::flows::{FlowPort, FlowStage, FlowTable};
use xdp::{Attached, Features, StageChange};

use super::bridges::{self, Bridges};
use super::device::{self, inside, object, place};
use super::parallel;
use super::ports::{Ports, Running};

/// Interval in seconds at which all MAC table entries in the hooks are compared with the bridges' tables. Between two
/// comparisons, a hook removes an entry itself if the entry's address appears on another port.
const DOUBT: u32 = 5;
/// Maximum rate, in frames per second, of frames that a hook sends to the worker only to keep them in order, although
/// their flow is offloaded. Above this rate, the hook drops such frames for a short time, so that the hook can take
/// over the flows.
const MANY: u32 = 50_000;
/// Time in nanoseconds after which the permission of hooks to forward packets according to offloaded flows expires. The
/// daemon renews the permission before it expires. Idle megaflows stay cached for the same time.
const LEASE_NS: u64 = 10_000_000_000;
/// Maximum time for which a hook drops the frames that it would otherwise send to the worker only to keep them in
/// order. In this time, the worker can finish the earlier frames.
const HOLD: Duration = Duration::from_millis(20);

/// State of the offload of bridged frames to the hooks of all ports.
#[derive(Default)]
pub struct HookOffload {
    /// BPF maps with the devices to which hooks can redirect frames. The maps are created when the first port
    /// needs them.
    devices: Option<BridgeDevices>,
    bridges: BTreeMap<BridgeName, BridgeOffload>,
    ports: BTreeMap<PortName, OffloadedPort>,
    /// Ports that are router interfaces and whose hooks and workers together keep frames in order (reordering guard).
    /// [`super::routers`] installs the stages of these ports.
    routed: BTreeMap<PortName, RoutedOrder>,
    /// Packet counts of removed bridge stages whose ports still exist. These counts are added to the counts of later
    /// stages, so that a port's counts never decrease.
    past: BTreeMap<PortName, BridgeCounts>,
    /// Number of running captures and traces. While a capture or trace runs, hooks forward no
    /// packets, because every packet must pass the workers.
    watchers: u32,
    seconds: u32,
}

/// Reason for an update of the bridge stages of all ports' hooks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Occasion {
    /// The daemon starts, and no worker forwards traffic yet.
    Start,
    /// The configuration has changed. Ports may have other workers than before the change.
    Change,
    /// The periodic update of the hook offload, a few times a second.
    Poll,
}

/// Kind of a port's bridge stage, with the stage's constants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A stage that forwards to learned MAC addresses.
    Stations(BridgePort),
    /// A stage that forwards packets according to frequently used OpenFlow flows. The stage also forwards to the
    /// learned MAC addresses that flows with the action `NORMAL` use.
    Flows(FlowPort, Option<BridgePort>),
}

/// Bridge stage that is installed in a port's hook.
enum Stage {
    Stations(BridgeStage),
    Flows(FlowStage, FlowTable),
}

impl Stage {
    fn orders(&self) -> &Arc<Orders> {
        match self {
            Stage::Stations(stage) => stage.orders(),
            Stage::Flows(stage, _) => stage.orders(),
        }
    }

    fn is_on(&self, hook: &Attached) -> bool {
        match self {
            Stage::Stations(stage) => stage.is_on(hook),
            Stage::Flows(stage, _) => stage.is_on(hook),
        }
    }

    fn put_on(&self, hook: &mut Attached) -> Result<(), xdp::Error> {
        match self {
            Stage::Stations(stage) => hook.set_stage(StageChange::Bridge(Some(stage))),
            Stage::Flows(stage, _) => hook.set_stage(StageChange::Flows(Some(stage))),
        }
    }
}

/// State of a port with a bridge stage in its hook.
struct OffloadedPort {
    bridge: BridgeName,
    id: PortId,
    config: Kind,
    stage: Stage,
    /// Whether frames could be redirected to the port's device (XDP_REDIRECT) when the XDP features of the device were
    /// last read.
    transmits: bool,
    reached: Option<u32>,
    /// Counters of each queue of the port at the last poll.
    seen: Vec<Seen>,
}

/// A bridge stage that is being installed in a port's hook.
struct Entering<'s> {
    name: &'s PortName,
    running: &'s mut Running,
    bridge: &'s BridgeName,
    kind: Kind,
    stage: Stage,
}

impl OffloadedPort {
    /// Returns whether the port still has the hook in which the stage was installed. A port that was opened again has
    /// another hook, and maybe another device. The kernel has then removed the port's entry in the map of output
    /// devices.
    fn is_on(&self, running: &Running) -> bool {
        running.hook.as_ref().is_some_and(|hook| self.stage.is_on(hook))
    }
}

/// A port that is a router interface and whose hook and workers together keep frames in order (reordering guard).
struct RoutedOrder {
    orders: Arc<Orders>,
    /// Counters of each queue of the port at the last poll.
    seen: Vec<Seen>,
}

/// Counters of a port's queue at the time of a poll, from which the next poll computes the differences.
struct Seen {
    /// Number of frames that the kernel has dropped at the queue.
    lost: u64,
    /// Number of frames that the hook has sent to the worker only to keep them in order: the flow is offloaded, but the
    /// worker had not finished earlier frames of the flow.
    waiting: u32,
    /// Sequence number of the last frame that the worker has finished and reported to the hook.
    done: u32,
}

/// Receiver of a worker's progress reports about one queue. A report contains the sequence number of the last frame
/// that the worker has finished. The number is written to the queue's frame order state in the hook.
struct Progress {
    orders: Arc<Orders>,
    queue: u32,
}

impl CompletionSink for Progress {
    fn number(&self, before: [u8; 8]) -> Option<u32> {
        Mark::read(before).map(|mark| mark.0)
    }

    fn finish(&self, number: u32) {
        self.orders.finish(self.queue, number);
    }
}

impl HookOffload {
    /// Disables the offload of bridged frames until the next poll, starting with the next frame. Workers forward all
    /// frames in the meantime.
    pub fn forget(&mut self) {
        self.bridges.values_mut().for_each(BridgeOffload::clear);
        for port in self.ports.values().filter(|port| matches!(port.stage, Stage::Flows(..))) {
            port.stage.orders().set_bypass(true);
        }
    }

    /// Installs in every port's hook the bridge stage that the port's bridge needs. Removes stages that no
    /// bridge needs.
    pub fn ensure(
        &mut self,
        engine: &Engine,
        config: &Config,
        ports: &mut Ports,
        bridges: &Bridges,
        table: Option<&FlowTable>,
        occasion: Occasion,
    ) {
        let anew = occasion != Occasion::Poll;
        self.bridges.retain(|name, _| bridges.contains_key(name));
        self.past.retain(|name, _| ports.contains_key(name));
        let lost = |name: &&PortName| ports.get(*name).is_none_or(|running| running.hook.is_none());
        for name in self.ports.keys().filter(lost).cloned().collect::<Vec<_>>() {
            self.leave(&name, ports.contains_key(&name));
        }
        self.follow_routers(engine, ports, anew);
        let warn = |name: &PortName, error: &xdp::Error| {
            tracing::warn!(port = %name, %error, "its bridge does not answer in the driver hook");
        };
        let mut features = NamespaceFeatures::new(ports);
        let mut entering = Vec::new();
        for (name, running) in &mut *ports {
            match self.ensure_port(engine, config, name, running, bridges, table) {
                Ok(Some((bridge, kind, stage))) => {
                    entering.push(Entering { name, running, bridge, kind, stage });
                }
                Ok(None) => {}
                Err(error) => warn(name, &error),
            }
        }
        // Most of the following time is spent in the kernel's verifier.
        let entered = parallel::each(occasion == Occasion::Start, entering, |entering| {
            let put = entering.running.hook.as_mut().map_or(Ok(()), |hook| entering.stage.put_on(hook));
            (entering, put)
        });
        for (entering, put) in entered {
            match put {
                Ok(()) => self.enter(engine, entering, &mut features),
                Err(error) => warn(entering.name, &error),
            }
        }
        for (name, running) in ports {
            if let Some(offload_invalidator) = self.ports.get(name).filter(|_| anew) {
                tell(engine, running, Some(offload_invalidator.stage.orders()));
                offload_invalidator.stage.orders().set_bypass(self.watchers > 0);
            }
        }
    }

    /// Makes the workers of ports that are router interfaces report to the ports' hooks which frames they have
    /// finished. If `anew` is true, sets up the reports of all ports again, because the ports may have other workers.
    /// The hook of a port routes no packet before the reports are set up.
    pub fn follow_routers(&mut self, engine: &Engine, ports: &Ports, anew: bool) {
        self.routed.retain(|name, _| ports.contains_key(name));
        for (name, running) in ports {
            let orders = running.hook.as_ref().and_then(|hook| hook.route_orders());
            let known = self.routed.get(name).map(|routed| &routed.orders);
            let is_known = match (known, orders) {
                (None, None) => true,
                (Some(known), Some(orders)) => Arc::ptr_eq(known, orders) && !anew,
                _ => false,
            };
            if is_known {
                continue;
            }
            tell(engine, running, orders);
            match orders {
                Some(orders) => {
                    let routed = RoutedOrder { orders: Arc::clone(orders), seen: Vec::new() };
                    self.routed.insert(name.clone(), routed);
                }
                None => drop(self.routed.remove(name)),
            }
        }
    }

    /// Updates the bridge stage of a port's hook. Removes a stage that the port no longer needs. If the port needs a
    /// new stage, installs it in the hook and returns it.
    fn ensure_port<'s>(
        &mut self,
        engine: &Engine,
        config: &'s Config,
        name: &PortName,
        running: &mut Running,
        bridges: &'s Bridges,
        table: Option<&FlowTable>,
    ) -> Result<Option<(&'s BridgeName, Kind, Stage)>, xdp::Error> {
        let wanted = wanted(config, name, running, bridges, table);
        let Some(hook) = &mut running.hook else { return Ok(None) };
        let Some((bridge_name, bridge, kind)) = wanted else {
            if hook.has_bridge() {
                hook.set_stage(StageChange::Bridge(None))?;
            }
            if hook.has_flows() {
                hook.set_stage(StageChange::Flows(None))?;
            }
            // The hook of a port that now belongs to a router is connected by `follow_routers` and must stay
            // connected.
            let is_routed = hook.route_orders().is_some();
            if self.ports.contains_key(name) {
                if !is_routed {
                    tell(engine, running, None);
                }
                self.leave(name, true);
            }
            return Ok(None);
        };
        let known = self.ports.get(name);
        if known.is_some_and(|known| {
            known.config == kind && known.bridge == *bridge_name && known.stage.is_on(hook)
        }) {
            return Ok(None);
        }
        self.leave(name, true);
        if self.devices.is_none() {
            self.devices = Some(BridgeDevices::new()?);
        }
        let stations = config.bridges.get(bridge_name).map_or(0, |bridge| bridge.settings.mac_limit);
        let asks = matches!(kind, Kind::Stations(_) | Kind::Flows(_, Some(_)));
        if asks && !self.bridges.contains_key(bridge_name) {
            let offload = BridgeOffload::new(stations, bridges::seed())?;
            bridge.tables().set_offload_invalidator(offload.offload_invalidator());
            self.bridges.insert(bridge_name.clone(), offload);
        }
        let (Some(devices), offload) = (&self.devices, self.bridges.get(bridge_name)) else {
            return Ok(None);
        };
        devices.clear(running.id.0)?;
        let stage = match (&kind, offload, table) {
            (Kind::Stations(port), Some(offload), _) => {
                Stage::Stations(BridgeStage::new(port, hook, offload.table(), devices)?)
            }
            (Kind::Flows(port, known), offload, Some(table)) => {
                let stations = known.as_ref().zip(offload.map(BridgeOffload::table));
                Stage::Flows(FlowStage::new(port, hook, table, devices, stations)?, table.clone())
            }
            _ => return Ok(None),
        };
        stage.orders().set_now(seconds());
        stage.orders().set_bypass(self.watchers > 0);
        Ok(Some((bridge_name, kind, stage)))
    }

    /// Records a bridge stage that was installed in a port's hook, and allows other hooks to redirect frames to
    /// the port's device.
    fn enter(&mut self, engine: &Engine, entering: Entering<'_>, features: &mut NamespaceFeatures) {
        let Entering { name, running, bridge, kind, stage } = entering;
        let Some(devices) = &self.devices else { return };
        let namespace = running.device.as_ref().and_then(|device| device.namespace.clone());
        let index = running.device.as_ref().map_or(0, |device| device.ifindex);
        let set = inside(&object(name), namespace.as_ref(), || Ok(devices.set(running.id.0, index)));
        let reachable = set.is_ok_and(|set| set.is_ok());
        if !reachable {
            tracing::warn!(port = %name, "frames cannot be redirected to its device");
        }
        let orders = Arc::clone(stage.orders());
        if let Stage::Flows(_, table) = &stage {
            let asks = matches!(kind, Kind::Flows(_, Some(_)));
            table.set_served(running.id.0, true, asks);
        }
        let offload_invalidator = OffloadedPort {
            bridge: bridge.clone(),
            id: running.id,
            config: kind,
            stage,
            transmits: reachable && features.transmits(name, running),
            reached: None,
            seen: Vec::new(),
        };
        self.ports.insert(name.clone(), offload_invalidator);
        self.bridges.get_mut(bridge).into_iter().for_each(BridgeOffload::doubt);
        tell(engine, running, Some(&orders));
    }

    /// Removes a port's bridge stage from the records. If `stays` is true, the port continues to exist, and its counts
    /// so far are kept.
    fn leave(&mut self, name: &PortName, stays: bool) {
        let counts = self.counts(name);
        let (Some(gone), Some(devices)) = (self.ports.remove(name), &self.devices) else { return };
        if stays {
            self.past.insert(name.clone(), counts);
        }
        // The bridge's MAC table entries are removed from the hooks before the port's device entry, so that no hook
        // sends frames to an empty entry.
        if let Some(offload) = self.bridges.get_mut(&gone.bridge).filter(|_| gone.reached.is_some()) {
            offload.clear();
        }
        if let Stage::Flows(_, table) = &gone.stage {
            table.set_served(gone.id.0, false, false);
            table.set_reached(gone.id.0, None);
        }
        if let Err(error) = devices.clear(gone.id.0) {
            tracing::warn!(port = %name, %error, "what its hook has carried could not be cleared");
        }
    }

    /// Updates the current time and the MAC table entries that the hooks read. Also resets the ages of MAC table
    /// entries that hooks have used. This function is called a few times a second.
    pub fn look(
        &mut self,
        engine: &Engine,
        config: &Config,
        ports: &mut Ports,
        bridges: &Bridges,
        table: Option<&FlowTable>,
        second: bool,
    ) {
        if second {
            self.seconds = self.seconds.wrapping_add(1);
        }
        let is_stale = |(name, offload_invalidator): (&PortName, &OffloadedPort)| {
            ports.get(name).is_some_and(|running| !offload_invalidator.is_on(running))
        };
        if second || self.ports.iter().any(is_stale) {
            self.ensure(engine, config, ports, bridges, table, Occasion::Poll);
        }
        if let Some(table) = table {
            table.renew(monotonic().ns.saturating_add(LEASE_NS));
        }
        let now = seconds();
        let doubted = second && self.seconds.is_multiple_of(DOUBT);
        let mut features = second.then(|| NamespaceFeatures::new(ports));
        for (name, offload_invalidator) in &mut self.ports {
            let Some(running) = ports.get(name) else { continue };
            offload_invalidator.stage.orders().set_now(now);
            if let Some(features) = &mut features {
                offload_invalidator.transmits = features.transmits(name, running);
            }
            let reaches =
                offload_invalidator.transmits && offload_invalidator.is_on(running) && running.is_up();
            let reached = reaches.then(|| running.mtu.saturating_add(14));
            if offload_invalidator.reached != reached || doubted {
                offload_invalidator.reached = reached;
                if let Stage::Flows(_, table) = &offload_invalidator.stage {
                    table.set_reached(offload_invalidator.id.0, reached);
                }
                if let Some(offload) = self.bridges.get_mut(&offload_invalidator.bridge) {
                    offload.doubt();
                }
            }
        }
        let reached: BTreeMap<PortId, HookPort> =
            self.ports.values().map(|port| (port.id, HookPort { reached: port.reached })).collect();
        for (name, offload) in &mut self.bridges {
            let Some(bridge) = bridges.get(name) else { continue };
            if second {
                offload.feed_back(bridge);
            }
            offload.sync(bridge, |port| reached.get(&port).copied(), now);
        }
        if second {
            self.relieve(ports);
        }
    }

    /// Makes the hooks of busy queues drop some frames for a few milliseconds, so that busy flows can move to the hook.
    /// Otherwise a busy flow would stay with the worker: the worker always has a frame of the flow, which the next
    /// frames must not overtake. A queue is busy if, in the last second, the queue has overflowed, or its hook has sent
    /// many frames to the worker only to keep them in order.
    fn relieve(&mut self, ports: &Ports) {
        let mut held = Vec::new();
        let bridged = self.ports.iter_mut().map(|(name, port)| (name, port.stage.orders(), &mut port.seen));
        let routed = self.routed.iter_mut().map(|(name, port)| (name, &port.orders, &mut port.seen));
        for (name, orders, last) in bridged.chain(routed) {
            let Some(running) = ports.get(name) else { continue };
            let look = |(queue, socket): &(QueueId, OwnedFd)| {
                let counted = statistics(socket.as_fd());
                let lost = counted.rx_ring_full + counted.rx_fill_empty;
                let queue = u32::from(queue.0);
                Seen { lost, waiting: orders.waiting(queue), done: orders.numbers(queue).1 }
            };
            let seen: Vec<Seen> = running.sockets.iter().map(look).collect();
            for ((queue, _), (now, then)) in running.sockets.iter().zip(seen.iter().zip(&*last)) {
                let waited = now.waiting.wrapping_sub(then.waiting);
                // A queue without progress for a second will not finish within milliseconds.
                let is_moving = now.done != then.done;
                if is_moving && (waited >= MANY || (now.lost > then.lost && waited > 0)) {
                    held.push((Arc::clone(orders), u32::from(queue.0)));
                }
            }
            *last = seen;
        }
        hold(&held);
    }

    /// Records that a capture or trace starts (`begins` is true) or ends. While one runs, hooks forward no packets,
    /// because every packet must pass the workers.
    pub fn watch(&mut self, begins: bool) {
        self.watchers = if begins { self.watchers + 1 } else { self.watchers.saturating_sub(1) };
        for port in self.ports.values() {
            port.stage.orders().set_bypass(self.watchers > 0);
        }
    }

    /// Sets the initial packet counts of a port to the counts that the port's hook had in the predecessor process.
    pub fn continue_from(&mut self, name: &PortName, before: BridgeCounts) {
        self.past.insert(name.clone(), before);
    }

    /// Returns the counts of bridged packets that hooks have forwarded from and to a port.
    pub fn counts(&self, name: &PortName) -> BridgeCounts {
        let port = self.ports.get(name).zip(self.devices.as_ref());
        let now = port.and_then(|(port, devices)| devices.counts(port.id.0).ok()).unwrap_or_default();
        now + self.past.get(name).copied().unwrap_or_default()
    }

    /// Returns a text about the kind of frames that a port's hook forwards for the port's bridge. The second value is
    /// an error text if other hooks cannot redirect frames to the port. Returns `None` if the port's hook has no bridge
    /// stage.
    pub fn state(&self, name: &PortName) -> Option<(&'static str, Result<(), &'static str>)> {
        let port = self.ports.get(name)?;
        let what = match port.stage {
            Stage::Stations(_) => "answers for known stations",
            Stage::Flows(..) => "answers for hot flows",
        };
        let reached = match (port.transmits, port.reached) {
            (true, Some(_)) => Ok(()),
            (true, None) => Err("it is down"),
            (false, _) => Err("its device takes no redirected frames"),
        };
        Some((what, reached))
    }

    /// Returns the number of a bridge's MAC table entries that are offloaded to the hooks. Returns `None` if
    /// the bridge is not offloaded.
    pub fn stations(&self, bridge: &BridgeName) -> Option<usize> {
        self.bridges.get(bridge).map(BridgeOffload::stations)
    }
}

/// Makes the hooks of the queues in `held` drop the frames that they would otherwise send to the worker only to keep
/// them in order. This lasts until the worker has finished all earlier frames, but at most for `HOLD`.
fn hold(held: &[(Arc<Orders>, u32)]) {
    let begin = Instant::now();
    let mut behind: Vec<(&Orders, u32, u32)> = Vec::new();
    for (orders, queue) in held {
        orders.hold(*queue, true);
        behind.push((orders, *queue, orders.numbers(*queue).0));
    }
    while !behind.is_empty() && begin.elapsed() < HOLD {
        std::thread::sleep(Duration::from_micros(200));
        behind.retain(|(orders, queue, sent)| {
            let (_, done) = orders.numbers(*queue);
            done.wrapping_sub(*sent) >= u32::MAX / 2
        });
    }
    held.iter().for_each(|(orders, queue)| orders.hold(*queue, false));
}

/// Returns the bridge stage that a port's hook needs. Returns `None` if the hook needs no bridge stage.
fn wanted<'s>(
    config: &'s Config,
    name: &PortName,
    running: &Running,
    bridges: &'s Bridges,
    table: Option<&FlowTable>,
) -> Option<(&'s BridgeName, &'s Arc<Bridge>, Kind)> {
    let (bridge_name, _) = config.bridge_of(name.as_str())?;
    let bridge = bridges.get(bridge_name)?;
    let settings = &config.bridges.get(bridge_name)?.settings;
    // Frame order is tracked for each queue. This works only in native mode, in which one CPU at a time receives the
    // frames of a queue. It also requires that the port does not use software RSS, because packets that one worker
    // passes to another are not tracked.
    let native = running.hook.as_ref().is_some_and(|hook| hook.mode() == xdp::Mode::Native);
    let possible =
        native && running.wanted.bridged && running.wanted.port.admin && running.rss_table.is_none();
    let stations = port_stage(bridge, running.id, running.complete_checksums);
    let kind = if settings.openflow.is_none() {
        Kind::Stations(stations?)
    } else {
        table?;
        let port = FlowPort { port: running.id.0, partial_checksums: running.complete_checksums };
        Kind::Flows(port, stations)
    };
    (settings.hook && possible).then_some((bridge_name, bridge, kind))
}

/// XDP features of the ports' devices, by namespace. Each namespace is entered only once, and only the ports' devices
/// are queried, because a tenant's namespace may have many other devices.
struct NamespaceFeatures {
    /// Interface indices of the ports' devices, by the path of their namespace's file.
    devices: BTreeMap<PathBuf, BTreeSet<u32>>,
    known: BTreeMap<PathBuf, BTreeMap<u32, Features>>,
}

impl NamespaceFeatures {
    /// Creates a cache of XDP features for the devices of `ports`. No device is queried yet.
    fn new(ports: &Ports) -> NamespaceFeatures {
        let mut devices: BTreeMap<PathBuf, BTreeSet<u32>> = BTreeMap::new();
        for device in ports.values().filter_map(|running| running.device.as_ref()) {
            devices.entry(place(device.namespace.as_ref())).or_default().insert(device.ifindex);
        }
        NamespaceFeatures { devices, known: BTreeMap::new() }
    }

    /// Returns whether hooks can redirect frames to a port's device.
    fn transmits(&mut self, name: &PortName, running: &Running) -> bool {
        let Some(device) = &running.device else { return false };
        let kernel = matches!(running.wanted.port.kind, PortKind::AfXdp(_) | PortKind::Veth(_));
        let namespace = device.namespace.as_ref();
        let place = place(namespace);
        let devices = self.devices.get(&place);
        let ask = || {
            let devices = devices?;
            inside(&object(name), namespace, || Ok(device::xdp_features_among(devices))).ok()
        };
        let mut features = || {
            let known = self.known.entry(place.clone()).or_insert_with(|| ask().unwrap_or_default());
            known.get(&device.ifindex).copied()
        };
        kernel && features().is_some_and(|features| features.transmit)
    }
}

/// Makes the workers of a port's queues report in `orders` which frames they have finished. With `None`, the workers do
/// not report.
fn tell(engine: &Engine, running: &Running, orders: Option<&Arc<Orders>>) {
    for (queue, worker) in &running.queues {
        let to = orders.map(|orders| {
            let progress = Progress { orders: Arc::clone(orders), queue: u32::from(queue.0) };
            Box::new(progress) as Box<dyn CompletionSink>
        });
        // If a worker does not answer, it reports nothing, and the hook passes all frames to the worker.
        let _ = engine.tell_progress(*worker, running.id, *queue, to);
    }
}

/// Returns the hooks' clock (CLOCK_MONOTONIC) in seconds. Bridges use the lower 16 bits as their clock.
fn seconds() -> u32 {
    u32::try_from(monotonic().ns / 1_000_000_000).unwrap_or(u32::MAX)
}
