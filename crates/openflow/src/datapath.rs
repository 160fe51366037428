//! Interface between a bridge and its controllers: the trait [`Datapath`], which bridges implement, and the queue
//! of the bridge's events.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use packet::MacAddr;
use switch::flow::{
    Event, FlowError, FlowFilter, FlowStats, Group, GroupStats, Meter, MeterStats, Mod, OptionsError,
    OptionsMod, Origin, PacketOut, PortDesc, PortStats, TableState, TableStats, TunnelOptions,
};
pub use switch::flow::{Fragments, Miss};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// An iterator over batches of objects, for replies that list many objects. The bridge computes a
/// batch within some milliseconds when the session requests the batch, and holds no lock between
/// two batches. A batch may be empty.
pub type Batches<T> = Box<dyn Iterator<Item = Vec<T>> + Send>;

/// Result of applying a batch of changes of flow entries, groups and meters. The error contains the index of the first
/// refused change, and the reason for the refusal.
pub type Outcome = Result<(), (usize, FlowError)>;

/// Minimum number of changes that the default implementation of [`Datapath::modify_soon`] considers
/// too slow for the task of a session. A bridge can replace this estimate by a better estimate.
const MANY: usize = 32;

/// Future that completes when all changes before a barrier request have taken effect in the flow caches (see
/// `Datapath::barrier`).
pub type Settled = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Features of a bridge (OFPT_FEATURES_REPLY).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Features {
    /// Datapath ID of the bridge.
    pub datapath_id: u64,
    /// Number of flow tables, at most 255. Tables are numbered from 0.
    pub tables: u8,
    /// Maximum number of groups of each group type.
    pub max_groups: u32,
    /// Maximum number of meters. Meters are numbered from 1.
    pub max_meters: u32,
    /// Maximum number of bands that a meter may have.
    pub max_bands: u8,
    /// Whether ports have queues with counters (capability OFPC_QUEUE_STATS).
    pub queues: bool,
}

/// Textual description of a bridge (OFPMP_DESC). Each field has at most 255 octets, except for `serial`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Description {
    /// Name of the manufacturer of the bridge.
    pub manufacturer: String,
    /// Description of the hardware on which the bridge runs.
    pub hardware: String,
    /// Name and version of the bridge's software.
    pub software: String,
    /// Serial number of the bridge, at most 31 octets long.
    pub serial: String,
    /// Description of the datapath, which distinguishes the bridge from others.
    pub datapath: String,
}

/// Modification of a port (OFPT_PORT_MOD).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortMod {
    /// OpenFlow number of the port to modify.
    pub number: u32,
    /// Ethernet address of the port as known to the controller. A different address is refused with
    /// [`PortModError::Address`].
    pub mac: MacAddr,
    /// New values of the configuration bits in [`PortDesc::config`]: 1 port down, 4 no receive, 16 no flood,
    /// 32 no forward, 64 no packet-in.
    pub config: u32,
    /// Bits of `config` that the modification changes.
    pub mask: u32,
}

/// Reason why a port modification is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PortModError {
    /// OFPPMFC_BAD_PORT: the port does not exist.
    #[error("there is no such port")]
    NoPort,
    /// OFPPMFC_BAD_HW_ADDR: the port has another Ethernet address.
    #[error("the port has another address")]
    Address,
    /// OFPPMFC_BAD_CONFIG: the requested configuration is not supported.
    #[error("the port cannot be configured so")]
    Config,
    /// OFPPMFC_EPERM: the modification is not permitted.
    #[error("not allowed")]
    Permission,
}

/// Counters of a port's queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueStats {
    /// OpenFlow number of the port.
    pub port: u32,
    /// Queue ID, which is unique within the port.
    pub queue: u32,
    /// Number of packets transmitted by the queue.
    pub tx_packets: u64,
    /// Number of octets transmitted by the queue.
    pub tx_bytes: u64,
    /// Number of packets dropped by the queue.
    pub tx_errors: u64,
    /// Time in nanoseconds since the queue was added.
    pub age_ns: u64,
}

/// Configured rates of a queue, in tenths of a percent of the port's rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueConfig {
    /// OpenFlow number of the port.
    pub port: u32,
    /// Queue ID, which is unique within the port.
    pub queue: u32,
    /// Minimum rate of the queue in tenths of a percent of the port's rate. `None` if not configured.
    pub min_rate: Option<u16>,
    /// Maximum rate of the queue in tenths of a percent of the port's rate. `None` if not configured.
    pub max_rate: Option<u16>,
}

/// Configuration of a flow table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableConfig {
    /// Number of the flow table.
    pub table: u8,
    /// Name of the table, at most 31 octets. Empty if the table has no name.
    pub name: String,
    /// Maximum number of flow entries in the table.
    pub max_entries: u32,
    /// Handling of packets that match no flow entry of the table.
    pub miss: Miss,
    /// Whether the table evicts flow entries when a flow entry is added to the full table.
    pub eviction: bool,
    /// Thresholds of vacancy events (down, up): free entries in percent of `max_entries`. `None` disables
    /// vacancy events.
    pub vacancy: Option<(u8, u8)>,
}

impl TableConfig {
    /// Returns the configuration that is part of the state of a flow table.
    #[must_use]
    pub fn of(state: &TableState) -> TableConfig {
        TableConfig {
            table: state.table,
            name: state.name.clone(),
            max_entries: state.limit,
            miss: state.miss,
            eviction: state.evicts,
            vacancy: state.vacancy,
        }
    }
}

/// Modification of the configuration of flow tables. A field that is `None` is not changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableMod {
    /// Number of the table. [`switch::flow::ALL_TABLES`] stands for all tables.
    pub table: u8,
    /// New value of [`TableConfig::miss`].
    pub miss: Option<Miss>,
    /// New value of [`TableConfig::eviction`].
    pub eviction: Option<bool>,
    /// New value of [`TableConfig::vacancy`]. An inner `None` disables vacancy events.
    pub vacancy: Option<Option<(u8, u8)>>,
    /// New name of the table.
    pub name: Option<String>,
}

/// Sums of counters over several flow entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Aggregate {
    /// Number of packets that the flow entries have matched.
    pub packets: u64,
    /// Number of octets of the packets that the flow entries have matched.
    pub bytes: u64,
    /// Number of flow entries whose counters are summed.
    pub flows: u32,
}

/// OpenFlow datapath of a bridge: the interface through which controllers use the bridge.
///
/// Sessions call these methods from their tasks, and each call may take some milliseconds. Calls that may
/// take longer (dumps, large batches of changes) are made on threads where they do not delay other sessions.
/// No method may wait for a controller.
pub trait Datapath: Send + Sync + 'static {
    /// Returns the features of the bridge.
    fn features(&self) -> Features;

    /// Returns the textual description of the bridge.
    fn description(&self) -> Description;

    /// Returns the current setting for the handling of IP fragments.
    fn fragments(&self) -> Fragments {
        Fragments::Normal
    }

    /// Changes the handling of IP fragments. Returns false if the bridge does not support the setting.
    fn set_fragments(&self, to: Fragments) -> bool {
        to == Fragments::Normal
    }

    /// Returns all ports, including LOCAL, in ascending order of their numbers.
    fn ports(&self) -> Vec<PortDesc>;

    /// Returns whether the bridge has the port with the OpenFlow number `port`. Returns true if
    /// `port` is `None`, which stands for all ports.
    fn has_ports(&self, port: Option<u32>) -> bool {
        port.is_none_or(|number| self.ports().iter().any(|own| own.number == number))
    }

    /// Returns the counters of one port, or of all ports if `port` is `None`. The list is empty if the port
    /// does not exist.
    fn port_stats(&self, port: Option<u32>) -> Vec<PortStats>;

    /// Modifies the configuration of a port (OFPT_PORT_MOD).
    ///
    /// # Errors
    /// Returns [`PortModError`] if the modification is refused. Nothing is changed then.
    fn port_mod(&self, change: &PortMod) -> Result<(), PortModError>;

    /// Returns the counters of the queue with this port number and queue ID. `None` as port number
    /// selects all ports, and `None` as queue ID selects all queues.
    fn queue_stats(&self, _port: Option<u32>, _queue: Option<u32>) -> Vec<QueueStats> {
        Vec::new()
    }

    /// Returns the configured rates of the queues of one port, or of all ports if the argument is `None`.
    fn queues(&self, _port: Option<u32>) -> Vec<QueueConfig> {
        Vec::new()
    }

    /// Applies all changes of flow entries, groups and meters, or none of them. Each packet is
    /// processed either by the tables before the changes or by the tables after the changes. All
    /// subscribers are notified of each change.
    ///
    /// # Errors
    /// Returns the index of the first refused change, and the reason. Nothing is changed then.
    fn modify(&self, changes: Vec<Mod>) -> Result<(), (usize, FlowError)>;

    /// Applies changes like [`Datapath::modify`], on behalf of a session. The notifications
    /// ([`Event::Caused`]) name the session and its request.
    ///
    /// # Errors
    /// Returns the errors of [`Datapath::modify`].
    fn modify_for(&self, changes: Vec<Mod>, _origin: Origin) -> Result<(), (usize, FlowError)> {
        self.modify(changes)
    }

    /// Applies changes like [`Datapath::modify_for`], but only if the changes are fast enough for
    /// the task of a session and need not wait for other changes.
    ///
    /// # Errors
    /// Returns the changes unapplied if they may be slow. The caller must then apply them on a thread where
    /// they do not delay other sessions.
    fn modify_soon(&self, changes: Vec<Mod>, origin: Origin) -> Result<Outcome, Vec<Mod>> {
        if changes.len() < MANY { Ok(self.modify_for(changes, origin)) } else { Err(changes) }
    }

    /// Applies changes like [`Datapath::modify_for`], including packet-outs ([`Mod::PacketOut`]).
    /// The bridge releases `reservation`, the reserved memory of the packet-outs, when all packets
    /// have been sent.
    ///
    /// # Errors
    /// Returns the errors of [`Datapath::modify`]. No packet is sent then.
    fn modify_and_send(&self, changes: Vec<Mod>, origin: Origin, reservation: Reservation) -> Outcome;

    /// Returns the flow entries that match the filter, with their counters. The entries are ordered by table and
    /// descending priority. An entry that exists during the whole dump is returned exactly once.
    fn flows(&self, filter: &FlowFilter) -> Batches<FlowStats>;

    /// Returns the sums of the counters of all flow entries that match the filter.
    fn aggregate(&self, filter: &FlowFilter) -> Aggregate {
        let mut sums = Aggregate::default();
        for flow in self.flows(filter).flatten() {
            sums.packets = sums.packets.wrapping_add(flow.packets);
            sums.bytes = sums.bytes.wrapping_add(flow.bytes);
            sums.flows = sums.flows.saturating_add(1);
        }
        sums
    }

    /// Returns the statistics of all flow tables, ordered by table number.
    fn tables(&self) -> Vec<TableStats>;

    /// Returns the configuration of a flow table. Returns `None` if the table does not exist.
    fn table_config(&self, table: u8) -> Option<TableConfig>;

    /// Modifies the configuration of flow tables (OFPT_TABLE_MOD).
    ///
    /// # Errors
    /// Returns [`FlowError::BadTable`] if the table does not exist, and another error if the modification is
    /// refused.
    fn table_mod(&self, change: &TableMod) -> Result<(), FlowError>;

    /// Modifies flow tables like [`Datapath::table_mod`], but only if the modification is fast
    /// enough for the task of a session and need not wait for other changes. Otherwise, the
    /// function changes nothing and returns `None`. The caller must then make the modification on a
    /// thread where the modification does not delay other sessions.
    fn table_mod_soon(&self, change: &TableMod) -> Option<Result<(), FlowError>> {
        Some(self.table_mod(change))
    }

    /// Returns the mapping of tunnel options (TLVs of Geneve headers) to match fields.
    fn tunnel_options(&self) -> TunnelOptions;

    /// Modifies the mapping of tunnel options to match fields.
    ///
    /// # Errors
    /// Returns [`OptionsError`] if the modification is refused. Nothing is changed then.
    fn change_tunnel_options(&self, change: &OptionsMod) -> Result<(), OptionsError>;

    /// Returns one group, or all groups if `group` is `None`. The groups are ordered by group ID.
    fn groups(&self, group: Option<u32>) -> Batches<Group>;

    /// Returns the counters of one group, or of all groups if `group` is `None`.
    fn group_stats(&self, group: Option<u32>) -> Batches<GroupStats>;

    /// Returns one meter, or all meters if `meter` is `None`. The meters are ordered by meter ID.
    fn meters(&self, meter: Option<u32>) -> Batches<Meter>;

    /// Returns the counters of one meter, or of all meters if `meter` is `None`.
    fn meter_stats(&self, meter: Option<u32>) -> Batches<MeterStats>;

    /// Queues a packet-out at the slow path. The bridge releases `reservation`, the reserved memory of the
    /// packet-out, when the slow path has processed the packet. This limits the rate at which the session can send
    /// packet-outs.
    ///
    /// # Errors
    /// Returns [`FlowError`] if the packet-out is refused. No packet is sent then.
    fn packet_out(&self, packet: PacketOut, reservation: Reservation) -> Result<(), FlowError>;

    /// Queues a packet-out like [`Datapath::packet_out`], but only if the call need not wait.
    ///
    /// # Errors
    /// Returns the unsent packet and its reservation if the call would have to wait. The caller must then
    /// pass both to the bridge on a thread where they do not delay other sessions.
    fn packet_out_soon(
        &self,
        packet: PacketOut,
        reservation: Reservation,
    ) -> Result<Result<(), FlowError>, Box<(PacketOut, Reservation)>> {
        Ok(self.packet_out(packet, reservation))
    }

    /// Drops the packet-outs of an ended session that the slow path has not processed, and releases their reserved
    /// memory. Returns the number of dropped packet-outs.
    fn session_ended(&self, _session: u64) -> usize {
        0
    }

    /// Returns a future that completes when all flow caches reflect the changes made before the call (barrier
    /// request). Packets that arrive later are processed according to these changes.
    fn barrier(&self) -> Settled;

    /// Subscribes to events of the bridge. See [`events`].
    fn subscribe(&self) -> Subscription;

    /// Notifies the bridge whether controllers are connected. The argument is true when the first
    /// controller has connected, and false when the last controller has disconnected. The argument
    /// determines whether the bridge's fail mode applies. Clients that connect to listeners, such
    /// as `ovs-ofctl`, do not count as controllers.
    fn controllers_connected(&self, connected: bool);

    /// Notifies the bridge whether any session receives table misses (packets that match no flow entry). The argument
    /// is true when the first such session exists, and false when the last such session has ended. A session receives
    /// table misses if it uses an OpenFlow version before 1.3 and its configuration of asynchronous messages includes
    /// table misses.
    fn misses_heard(&self, _heard: bool) {}
}

/// Memory of an OpenFlow session's budget that is reserved for queued packet-outs. Dropping this value releases the
/// memory. A session that waits for memory then continues to read from its socket.
#[derive(Debug)]
pub struct Reservation {
    session: u64,
    /// Permits of the semaphores that count free memory: one permit of the session's semaphore, and
    /// one of the bridge's semaphore.
    _permits: [OwnedSemaphorePermit; 2],
}

impl Reservation {
    pub(crate) fn new(session: u64, permits: [OwnedSemaphorePermit; 2]) -> Reservation {
        Reservation { session, _permits: permits }
    }

    /// Returns the number of the session, which is unique in the bridge.
    #[must_use]
    pub fn session(&self) -> u64 {
        self.session
    }
}

/// Maximum memory in octets of the queued events of all bridges in the process. An event is queued
/// until every session has processed the event. The events of one bridge use at most as much memory
/// as they leave free for others, so that slow sessions of one bridge do not silence the others.
const PROCESS_OCTETS: usize = 256 << 20;
/// Maximum memory in octets of one queued part of a request's events. Events of a request that use
/// more memory are queued in several parts.
const PART: usize = 256 << 10;

/// Memory in octets of the queued events of all bridges in the process. An event is queued until
/// every session has processed the event.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// An event of a bridge. All sessions share one copy, which is freed when each session has processed it.
#[derive(Debug)]
pub struct SharedEvent {
    /// Event that the sessions process.
    pub event: Event,
    /// Whether this event continues the previous event, because one request has caused both events.
    pub continues: bool,
    /// Memory in octets that the event uses, as counted in [`HELD`] and in `of_bridge`.
    octets: usize,
    /// Memory in octets of the queued events of the bridge.
    of_bridge: Arc<AtomicUsize>,
}

impl SharedEvent {
    /// Creates a shared event. `of_bridge` is the memory of the bridge's queued events. Returns the event
    /// unchanged as an error if the memory limit of the bridge or of the process would be exceeded. Packet-in
    /// events may use only half of the memory, so that the rest is left to other events.
    #[allow(clippy::result_large_err, reason = "an event that does not fit is handed back as it is")]
    fn new(event: Event, continues: bool, of_bridge: &Arc<AtomicUsize>) -> Result<SharedEvent, Event> {
        let octets = event.memory();
        let most = if matches!(event, Event::PacketIn(_)) { PROCESS_OCTETS / 2 } else { PROCESS_OCTETS };
        let own = of_bridge.load(Ordering::Relaxed).saturating_add(octets);
        let fits = |held: usize| {
            let left = most.checked_sub(held)?;
            (own <= left && octets <= left).then_some(held + octets)
        };
        if HELD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            return Err(event);
        }
        of_bridge.fetch_add(octets, Ordering::Relaxed);
        Ok(SharedEvent { event, continues, octets, of_bridge: Arc::clone(of_bridge) })
    }

    /// Creates an event which reports to the sessions that `count` events were dropped. The memory of this event is
    /// not counted in [`HELD`].
    fn lost(count: u64) -> SharedEvent {
        SharedEvent { event: Event::Lost(count), continues: false, octets: 0, of_bridge: Arc::default() }
    }

    /// Returns the approximate memory in octets that the event uses.
    pub(crate) fn octets(&self) -> usize {
        self.octets
    }
}

impl Drop for SharedEvent {
    fn drop(&mut self) {
        HELD.fetch_sub(self.octets, Ordering::Relaxed);
        self.of_bridge.fetch_sub(self.octets, Ordering::Relaxed);
    }
}

/// Sender of a bridge's events. Clones share one queue.
#[derive(Clone, Debug)]
pub struct EventSender {
    to: mpsc::Sender<SharedEvent>,
    /// Memory in octets of the queued events of the bridge.
    of_bridge: Arc<AtomicUsize>,
    lost: Arc<AtomicU64>,
    /// Number of dropped events about flow entries of which the receiver has not been informed yet.
    missed: Arc<AtomicU64>,
    monitored: Arc<AtomicUsize>,
}

/// Receiver of a bridge's events, for the connection manager.
#[derive(Debug)]
pub struct Subscription {
    /// Queue of events, in the order in which the events occurred.
    pub events: mpsc::Receiver<SharedEvent>,
    /// Number of events that were dropped because the queue was full, or because events used too much memory.
    pub lost: Arc<AtomicU64>,
    /// Number of events about flow entries that were dropped since the receiver last reset this counter. If the
    /// number is not 0, these events are missing before the next event in the queue.
    pub missed: Arc<AtomicU64>,
    /// Number of sessions that need each kind of event.
    pub interest: Interest,
}

/// Number of sessions that need each kind of event of the bridge. The bridge sends only events that some session needs.
/// Clones share the numbers.
#[derive(Clone, Debug, Default)]
pub struct Interest {
    /// Number of sessions that monitor flow entries. If the number is 0, the bridge does not report changes of flow
    /// entries, except for the removal of entries that have the flag `send_removed`.
    pub rules: Arc<AtomicUsize>,
    /// Number of sessions that receive copies of other sessions' group and meter requests.
    pub requests: Arc<AtomicUsize>,
}

/// Creates a queue for `capacity` events of a bridge (at least 4). Packet-in events may not use the last quarter of the
/// queue, which is left to other events.
#[must_use]
pub fn events(capacity: usize) -> (EventSender, Subscription) {
    events_for(capacity, Interest::default())
}

/// Creates a queue like [`events`], but counts the interested sessions in `interest`, which several
/// queues can share.
#[must_use]
pub fn events_for(capacity: usize, interest: Interest) -> (EventSender, Subscription) {
    let (to, events) = mpsc::channel(capacity.max(4));
    let (lost, missed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let sender = EventSender {
        to,
        of_bridge: Arc::default(),
        lost: Arc::clone(&lost),
        missed: Arc::clone(&missed),
        monitored: Arc::clone(&interest.rules),
    };
    (sender, Subscription { events, lost, missed, interest })
}

impl EventSender {
    /// Returns whether a session monitors flow entries. Such a session is also notified of flow entries that are added
    /// or changed, or that are removed without the flag `send_removed`.
    #[must_use]
    pub fn is_monitored(&self) -> bool {
        self.monitored.load(Ordering::Relaxed) > 0
    }

    /// Returns whether the receiver of the events (the connection manager) was dropped.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.to.is_closed()
    }

    /// Queues an event of the bridge without waiting. An event that does not fit into the queue is dropped and counted.
    /// Changes of flow entries are omitted while no session [monitors](EventSender::is_monitored) them. The events of
    /// one request are queued in parts. Returns false if the receiver was dropped.
    pub fn send(&self, event: Event) -> bool {
        let event = if self.is_monitored() { Some(event) } else { wanted_unmonitored(event) };
        match event {
            None => {}
            Some(Event::Caused(origin, events)) => self.put_parts(origin, events),
            Some(event) => self.put(event, false),
        }
        !self.is_closed()
    }

    /// Queues several events like [`EventSender::send`]. Events about flow entries that were not
    /// caused by a request are combined into one event.
    pub fn send_all(&self, events: Vec<Event>) -> bool {
        let mut together = Vec::new();
        for event in events {
            if matches!(event, Event::Added(..) | Event::Modified(..) | Event::Removed(..)) {
                together.push(event);
                continue;
            }
            self.send_together(std::mem::take(&mut together));
            self.send(event);
        }
        self.send_together(together);
        !self.is_closed()
    }

    fn send_together(&self, mut events: Vec<Event>) {
        let event = match events.len() {
            0 | 1 => events.pop(),
            _ => Some(Event::Caused(Origin::NONE, events)),
        };
        if let Some(event) = event {
            self.send(event);
        }
    }

    fn put_parts(&self, origin: Origin, events: Vec<Event>) {
        let (mut part, mut octets, mut continues) = (Vec::new(), 0, false);
        for event in events {
            let more = event.memory();
            if octets + more > PART && !part.is_empty() {
                self.put(Event::Caused(origin, std::mem::take(&mut part)), continues);
                (octets, continues) = (0, true);
            }
            octets += more;
            part.push(event);
        }
        if !part.is_empty() {
            self.put(Event::Caused(origin, part), continues);
        }
    }

    fn put(&self, event: Event, continues: bool) {
        if self.to.is_closed() {
            return;
        }
        let is_packet = matches!(event, Event::PacketIn(_));
        if is_packet && self.to.capacity() <= self.to.max_capacity() / 4 {
            return self.lose(&event);
        }
        match SharedEvent::new(event, continues, &self.of_bridge) {
            Ok(told) => {
                if let Err(mpsc::error::TrySendError::Full(told)) = self.to.try_send(told) {
                    self.lose(&told.event);
                }
            }
            Err(event) => {
                self.lose(&event);
                // Monitoring sessions are notified of the gap, at the latest with the next event.
                if !is_packet {
                    let _ = self.to.try_send(SharedEvent::lost(0));
                }
            }
        }
    }

    fn lose(&self, event: &Event) {
        let count = match event {
            Event::Caused(_, events) => events.len() as u64,
            Event::Lost(count) => *count,
            _ => 1,
        };
        self.lost.fetch_add(count, Ordering::Relaxed);
        if is_about_rules(event) {
            self.missed.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Returns the number of events that were dropped because they did not fit into the queue or the memory limit.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Returns whether an event is about flow entries: the event reports either changes of flow
/// entries, or that such reports were dropped.
pub(crate) fn is_about_rules(event: &Event) -> bool {
    match event {
        Event::Added(..) | Event::Modified(..) | Event::Removed(..) | Event::Caused(..) | Event::Lost(_) => {
            true
        }
        Event::PacketIn(_) | Event::Port(..) | Event::Request(_) | Event::Vacancy(..) => false,
    }
}

/// Returns whether an event must also be sent to sessions without flow monitors.
pub(crate) fn is_for_all(event: &Event) -> bool {
    match event {
        Event::Added(..) | Event::Modified(..) => false,
        Event::Removed(flow, _) => flow.flags.send_removed,
        Event::Caused(_, events) => events.iter().any(is_for_all),
        Event::PacketIn(_) | Event::Port(..) | Event::Request(_) | Event::Vacancy(..) | Event::Lost(_) => {
            true
        }
    }
}

/// Returns the event without the changes of flow entries that only flow monitors need. Removals of flow entries with
/// the flag `send_removed` and other events remain. Returns `None` if nothing remains.
fn wanted_unmonitored(event: Event) -> Option<Event> {
    match event {
        Event::Caused(origin, events) => {
            let left: Vec<Event> = events.into_iter().filter_map(wanted_unmonitored).collect();
            (!left.is_empty()).then_some(Event::Caused(origin, left))
        }
        event => is_for_all(&event).then_some(event),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use switch::flow::{Flow, FlowFlags, Instructions, Match, PacketIn, Reason, Removed};

    use super::*;

    fn packet() -> Event {
        Event::PacketIn(PacketIn {
            reason: Reason::NoMatch,
            table: 0,
            cookie: 0,
            flow: Flow::ZERO,
            frame: Vec::new(),
            max_len: 128,
            controller: 0,
            userdata: Vec::new(),
            continuation: None,
        })
    }

    fn flow(send_removed: bool) -> FlowStats {
        FlowStats {
            table: 0,
            matching: Match::ANY,
            priority: 1,
            cookie: 0,
            age_ns: 0,
            unchanged_ns: 0,
            idle_ns: 0,
            idle_timeout: 0,
            hard_timeout: 0,
            importance: 0,
            flags: FlowFlags { send_removed, ..FlowFlags::default() },
            packets: 0,
            bytes: 0,
            instructions: Instructions::default(),
        }
    }

    #[test]
    fn packets_leave_room_for_the_rest_and_losses_are_counted() {
        let (to, mut from) = events(8);
        let port =
            PortDesc { number: 1, name: "p1".into(), mac: MacAddr([2; 6]), config: 0, state: 0, speed: 0 };
        for _ in 0..20 {
            assert!(to.send(packet()));
        }
        assert_eq!(to.lost(), 14);
        assert!(to.send(Event::Port(0, port.clone())));
        assert!(to.send(Event::Port(2, port.clone())));
        assert!(to.send(Event::Port(1, port)));
        assert_eq!(from.lost.load(Ordering::Relaxed), 15);
        let mut packets = 0;
        while let Ok(SharedEvent { event: Event::PacketIn(_), .. }) = from.events.try_recv() {
            packets += 1;
        }
        assert_eq!(packets, 6);
        drop(from);
        assert!(!to.send(packet()), "nobody listens");
    }

    /// The events of a bridge whose sessions do not process them leave memory for the events of other bridges.
    #[test]
    fn events_of_one_bridge_leave_memory_for_others() {
        const MANY: u64 = 200;
        let large = || match packet() {
            Event::PacketIn(packet) => Event::PacketIn(PacketIn { frame: vec![0; 1 << 20], ..packet }),
            other => other,
        };
        let ((slow, waiting), (other, _from)) = (events(1024), events(8));
        for _ in 0..MANY {
            slow.send(large());
        }
        let kept = MANY - slow.lost();
        assert!((48..=64).contains(&kept), "{kept} MiB are queued, half of the half for packets");
        for _ in 0..4 {
            other.send(large());
        }
        assert_eq!(other.lost(), 0);
        let lost = slow.lost();
        slow.send(Event::Removed(flow(true), Removed::Delete));
        assert_eq!(slow.lost(), lost, "packets leave memory for other events");
        drop(waiting);
        assert_eq!(slow.of_bridge.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn changes_of_rules_are_left_out_while_nobody_monitors_them() {
        let (to, mut from) = events(8);
        let tell = || {
            assert!(to.send(Event::Added(flow(false), None)));
            assert!(to.send(Event::Modified(flow(false), None)));
            assert!(to.send(Event::Removed(flow(false), Removed::Delete)));
            assert!(to.send(Event::Removed(flow(true), Removed::Delete)));
        };
        tell();
        let told = from.events.try_recv().unwrap();
        assert!(matches!(&told.event, Event::Removed(flow, _) if flow.flags.send_removed));
        assert!(from.events.try_recv().is_err());
        from.interest.rules.fetch_add(1, Ordering::Relaxed);
        assert!(to.is_monitored());
        tell();
        assert_eq!(std::iter::from_fn(|| from.events.try_recv().ok()).count(), 4);
    }

    /// Checks that the events of one request arrive in parts, completely and in order. Events without a request
    /// also arrive completely and in order, and many of them use one slot of the queue.
    #[test]
    fn many_changes_go_in_parts() {
        const MANY: usize = 2000;
        let (to, mut from) = events(64);
        from.interest.rules.fetch_add(1, Ordering::Relaxed);
        let gone = || {
            (0..MANY).map(|n| {
                let priority = u16::try_from(n).unwrap();
                Event::Removed(FlowStats { priority, ..flow(false) }, Removed::HardTimeout)
            })
        };
        let origin = Origin { session: 3, xid: 9 };
        assert!(to.send(Event::Caused(origin, gone().collect())));
        assert!(to.send_all(gone().chain([packet()]).collect()));
        assert_eq!(to.lost(), 0);
        let mut told = Vec::new();
        while let Ok(one) = from.events.try_recv() {
            let Event::Caused(of, events) = &one.event else { break };
            assert!(one.event.memory() < PART + 4096);
            assert_eq!(one.continues, told.len() % MANY != 0);
            assert_eq!(*of, if told.len() < MANY { origin } else { Origin::NONE });
            told.extend(events.iter().map(|event| match event {
                Event::Removed(flow, _) => usize::from(flow.priority),
                _ => usize::MAX,
            }));
        }
        let all: Vec<usize> = (0..MANY).chain(0..MANY).collect();
        assert_eq!(told, all);
    }

    /// Checks that the receiver can detect, after an overflow of the queue, that events about flow entries are
    /// missing.
    #[test]
    fn a_gap_is_known() {
        let (to, mut from) = events(4);
        from.interest.rules.fetch_add(1, Ordering::Relaxed);
        let tell = || assert!((0..6).all(|_| to.send(Event::Added(flow(false), None))));
        assert!((0..6).all(|_| to.send(packet())));
        assert_eq!(from.missed.load(Ordering::Relaxed), 0, "packets are no rules");
        tell();
        assert_eq!(from.missed.swap(0, Ordering::Relaxed), 5);
        while from.events.try_recv().is_ok() {}
        tell();
        assert_eq!((from.missed.load(Ordering::Relaxed), to.lost()), (2, 10));
    }
}
