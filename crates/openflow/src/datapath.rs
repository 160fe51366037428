//! Interface between a bridge and its controllers.

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

/// A sequence of batches, for large sets of objects. Batches may be empty. The bridge computes a batch on
/// request within some milliseconds, and holds no lock between two batches.
pub type Batches<T> = Box<dyn Iterator<Item = Vec<T>> + Send>;

/// Result of a batch of changes. The error contains the index of the first refused change, and the reason.
pub type Outcome = Result<(), (usize, FlowError)>;

/// Number of changes from which a call may take too long for other sessions, if no better estimate is
/// available.
const MANY: usize = 32;

/// Future that completes when a barrier is reached.
pub type Settled = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Features of a bridge (OFPT_FEATURES_REPLY).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Features {
    /// Datapath ID of the bridge.
    pub datapath_id: u64,
    /// Number of flow tables, at most 255. Tables are numbered from 0.
    pub tables: u8,
    /// Maximum number of groups of each type.
    pub max_groups: u32,
    /// Maximum number of meters. Meters are numbered from 1.
    pub max_meters: u32,
    /// Maximum number of bands of a meter.
    pub max_bands: u8,
    /// Whether ports have queues with counters.
    pub queues: bool,
}

/// Textual description of the bridge (OFPMP_DESC).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Description {
    /// Manufacturer. The maximum length of this and the other fields is 255 octets, except for `serial`.
    pub manufacturer: String,
    /// Description of the hardware.
    pub hardware: String,
    /// Description of the software, with its version.
    pub software: String,
    /// Serial number, at most 31 octets.
    pub serial: String,
    /// Description of the bridge.
    pub datapath: String,
}

/// Modification of a port (OFPT_PORT_MOD).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortMod {
    /// OpenFlow port number.
    pub number: u32,
    /// Ethernet address of the port as known to the controller. A different address is refused with
    /// [`PortModError::Address`].
    pub mac: MacAddr,
    /// New values of the bits of [`PortDesc::config`]: 1 port down, 4 no receive, 16 no flood, 32 no forward,
    /// 64 no packet-in.
    pub config: u32,
    /// Bits of `config` that are changed.
    pub mask: u32,
}

/// Reason why a port modification is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PortModError {
    /// OFPPMFC_BAD_PORT: the port does not exist.
    #[error("there is no such port")]
    NoPort,
    /// OFPPMFC_BAD_HW_ADDR: the port has another address.
    #[error("the port has another address")]
    Address,
    /// OFPPMFC_BAD_CONFIG: the configuration is not supported.
    #[error("the port cannot be configured so")]
    Config,
    /// OFPPMFC_EPERM: the modification is not permitted.
    #[error("not allowed")]
    Permission,
}

/// Counters of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueStats {
    /// Number of the port.
    pub port: u32,
    /// Number of the queue.
    pub queue: u32,
    /// Number of transmitted packets.
    pub tx_packets: u64,
    /// Number of transmitted octets.
    pub tx_bytes: u64,
    /// Number of lost packets.
    pub tx_errors: u64,
    /// Nanoseconds since the queue was added.
    pub age_ns: u64,
}

/// Rates of a queue, in tenths of a percent of the rate of the port. `None`: not configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueConfig {
    /// Number of the port.
    pub port: u32,
    /// Number of the queue.
    pub queue: u32,
    /// Minimum rate.
    pub min_rate: Option<u16>,
    /// Maximum rate.
    pub max_rate: Option<u16>,
}

/// Configuration of a flow table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableConfig {
    /// Number of the table.
    pub table: u8,
    /// Name of the table, at most 31 octets. Empty: none.
    pub name: String,
    /// Maximum number of flow entries.
    pub max_entries: u32,
    /// Handling of packets that match no flow entry.
    pub miss: Miss,
    /// Whether the table evicts flow entries when it is full.
    pub eviction: bool,
    /// Vacancy event thresholds (down, up) in percent of free entries. `None`: no vacancy events.
    pub vacancy: Option<(u8, u8)>,
}

impl TableConfig {
    /// Returns the configuration in a table state.
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

/// Modification of flow tables. `None`: unchanged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableMod {
    /// Number of the table, or [`switch::flow::ALL_TABLES`].
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

/// Sums over flow entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Aggregate {
    /// Number of packets.
    pub packets: u64,
    /// Number of octets.
    pub bytes: u64,
    /// Number of flow entries.
    pub flows: u32,
}

/// OpenFlow datapath of a bridge, as its controllers see it.
///
/// Sessions call these methods from their tasks, and each call may take some milliseconds. Calls that may
/// take longer (dumps, large batches of changes) are made where they do not delay other sessions. No method
/// may wait for a controller.
pub trait Datapath: Send + Sync + 'static {
    /// Returns the features of the bridge.
    fn features(&self) -> Features;

    /// Returns the textual description of the bridge.
    fn description(&self) -> Description;

    /// Returns the handling of IP fragments.
    fn fragments(&self) -> Fragments {
        Fragments::Normal
    }

    /// Sets the handling of IP fragments. Returns false if it is not supported.
    fn set_fragments(&self, to: Fragments) -> bool {
        to == Fragments::Normal
    }

    /// Returns all ports, including LOCAL, in ascending order of their numbers.
    fn ports(&self) -> Vec<PortDesc>;

    /// Returns the counters of one port or of all ports. Empty if the port does not exist.
    fn port_stats(&self, port: Option<u32>) -> Vec<PortStats>;

    /// Modifies a port.
    ///
    /// # Errors
    /// Returns [`PortModError`] if the modification is refused. Nothing is changed then.
    fn port_mod(&self, change: &PortMod) -> Result<(), PortModError>;

    /// Returns the counters of queues.
    fn queue_stats(&self, _port: Option<u32>, _queue: Option<u32>) -> Vec<QueueStats> {
        Vec::new()
    }

    /// Returns the queues of one port or of all ports.
    fn queues(&self, _port: Option<u32>) -> Vec<QueueConfig> {
        Vec::new()
    }

    /// Applies all changes, or none. Each packet meets the tables either before or after all changes. All
    /// subscribers are notified of each change.
    ///
    /// # Errors
    /// Returns the index of the first refused change, and the reason. Nothing is changed then.
    fn modify(&self, changes: Vec<Mod>) -> Result<(), (usize, FlowError)>;

    /// Like [`Datapath::modify`], for the request of a session, which is reported in the notifications
    /// ([`Event::Caused`]).
    ///
    /// # Errors
    /// Returns the errors of [`Datapath::modify`].
    fn modify_for(&self, changes: Vec<Mod>, _origin: Origin) -> Result<(), (usize, FlowError)> {
        self.modify(changes)
    }

    /// Like [`Datapath::modify_for`], if the changes take no longer than a request may take, and require no
    /// waiting for others.
    ///
    /// # Errors
    /// Otherwise returns the unapplied changes, which must be applied where they do not delay other sessions.
    fn modify_soon(&self, changes: Vec<Mod>, origin: Origin) -> Result<Outcome, Vec<Mod>> {
        if changes.len() < MANY { Ok(self.modify_for(changes, origin)) } else { Err(changes) }
    }

    /// Like [`Datapath::modify_for`], for changes that include packets ([`Mod::PacketOut`]). The bridge keeps
    /// `reservation` until all packets are sent.
    ///
    /// # Errors
    /// Returns the errors of [`Datapath::modify`]. No packet is sent then.
    fn modify_and_send(&self, changes: Vec<Mod>, origin: Origin, reservation: Reservation) -> Outcome;

    /// Returns flow entries with their counters, by table and descending priority. An entry that exists
    /// during the whole dump is returned exactly once.
    fn flows(&self, filter: &FlowFilter) -> Batches<FlowStats>;

    /// Returns the sums of the counters of flow entries.
    fn aggregate(&self, filter: &FlowFilter) -> Aggregate {
        let mut sums = Aggregate::default();
        for flow in self.flows(filter).flatten() {
            sums.packets = sums.packets.wrapping_add(flow.packets);
            sums.bytes = sums.bytes.wrapping_add(flow.bytes);
            sums.flows = sums.flows.saturating_add(1);
        }
        sums
    }

    /// Returns the statistics of all tables, by their numbers.
    fn tables(&self) -> Vec<TableStats>;

    /// Returns the configuration of a table. `None` if the table does not exist.
    fn table_config(&self, table: u8) -> Option<TableConfig>;

    /// Modifies the configuration of tables.
    ///
    /// # Errors
    /// Returns [`FlowError::BadTable`] if the table does not exist, and another error if the modification is
    /// refused.
    fn table_mod(&self, change: &TableMod) -> Result<(), FlowError>;

    /// Like [`Datapath::table_mod`], if the modification takes no longer than a request may take, and
    /// requires no waiting for others. Otherwise returns `None`. Nothing is changed then, and the
    /// modification must be made where it does not delay other sessions.
    fn table_mod_soon(&self, change: &TableMod) -> Option<Result<(), FlowError>> {
        Some(self.table_mod(change))
    }

    /// Returns the mapping of tunnel options to fields.
    fn tunnel_options(&self) -> TunnelOptions;

    /// Modifies the mapping of tunnel options.
    ///
    /// # Errors
    /// Returns [`OptionsError`] if the modification is refused. Nothing is changed then.
    fn change_tunnel_options(&self, change: &OptionsMod) -> Result<(), OptionsError>;

    /// Returns one group or all groups, by their numbers.
    fn groups(&self, group: Option<u32>) -> Batches<Group>;

    /// Returns the counters of one group or of all groups.
    fn group_stats(&self, group: Option<u32>) -> Batches<GroupStats>;

    /// Returns one meter or all meters, by their numbers.
    fn meters(&self, meter: Option<u32>) -> Batches<Meter>;

    /// Returns the counters of one meter or of all meters.
    fn meter_stats(&self, meter: Option<u32>) -> Batches<MeterStats>;

    /// Sends a packet. The bridge keeps `reservation` until the slow path has processed the packet, which
    /// limits the rate of the session.
    ///
    /// # Errors
    /// Returns [`FlowError`] if the packet is refused. Nothing is sent then.
    fn packet_out(&self, packet: PacketOut, reservation: Reservation) -> Result<(), FlowError>;

    /// Like [`Datapath::packet_out`], if no waiting is required.
    ///
    /// # Errors
    /// Otherwise returns the unsent packet and its reservation, which must be passed to the bridge where they
    /// do not delay other sessions.
    fn packet_out_soon(
        &self,
        packet: PacketOut,
        reservation: Reservation,
    ) -> Result<Result<(), FlowError>, Box<(PacketOut, Reservation)>> {
        Ok(self.packet_out(packet, reservation))
    }

    /// Drops the unprocessed packets of an ended session with their reservations, and returns their number.
    fn session_ended(&self, _session: u64) -> usize {
        0
    }

    /// Returns a future that completes when all packets that arrive from then on meet the changes made before
    /// the call, regardless of caches.
    fn barrier(&self) -> Settled;

    /// Subscribes to events of the bridge. See [`events`].
    fn subscribe(&self) -> Subscription;

    /// Notifies the bridge when the first controller is connected (true), and when the last one has
    /// disconnected (false). The fail mode depends on this state. Clients that connect to listeners, such as
    /// `ovs-ofctl`, do not count.
    fn controllers_connected(&self, connected: bool);

    /// Notifies the bridge when the first session that receives table misses exists (true), and when the last
    /// one has ended (false). A session receives table misses if it uses OpenFlow before 1.3 and receives
    /// packets.
    fn misses_heard(&self, _heard: bool) {}
}

/// Part of a session's budget for packet-outs that is reserved for one packet. Dropping this value releases
/// the part, and the session continues to read if it waits for budget.
#[derive(Debug)]
pub struct Reservation {
    session: u64,
    /// Permits of the session's budget, and of the shared budget of the bridge.
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

/// Maximum memory of the events of all bridges of the process until every session has processed them, in
/// octets.
const PROCESS_OCTETS: usize = 256 << 20;
/// Maximum memory of one part of the events of a request, in octets.
const PART: usize = 256 << 10;

/// Current memory of events that sessions have not processed yet, in octets.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// An event that sessions share until all of them have processed it.
#[derive(Debug)]
pub struct Told {
    /// The event.
    pub event: Event,
    /// Whether the event is the next part of the events of one request, and the previous event was a part as
    /// well.
    pub continues: bool,
    /// Memory of the event in octets, which is counted in [`HELD`].
    octets: usize,
}

impl Told {
    /// Creates a shared event if the process has memory for it. Packets leave half of the memory to other
    /// events.
    #[allow(clippy::result_large_err, reason = "an event that does not fit is handed back as it is")]
    fn new(event: Event, continues: bool) -> Result<Told, Event> {
        let octets = event.memory();
        let most = if matches!(event, Event::PacketIn(_)) { PROCESS_OCTETS / 2 } else { PROCESS_OCTETS };
        let fits = |held: usize| held.checked_add(octets).filter(|held| *held <= most);
        match HELD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(Told { event, continues, octets }),
            Err(_) => Err(event),
        }
    }

    /// Creates an event that reports the loss of `count` events. The memory of this event is not counted.
    fn lost(count: u64) -> Told {
        Told { event: Event::Lost(count), continues: false, octets: 0 }
    }

    /// Returns the approximate memory of the event in octets.
    pub(crate) fn octets(&self) -> usize {
        self.octets
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        HELD.fetch_sub(self.octets, Ordering::Relaxed);
    }
}

/// Sender of a bridge's events. Clones share one queue.
#[derive(Clone, Debug)]
pub struct EventSender {
    to: mpsc::Sender<Told>,
    lost: Arc<AtomicU64>,
    /// Number of lost events about flow entries that have not been reported yet.
    missed: Arc<AtomicU64>,
    monitored: Arc<AtomicUsize>,
}

/// Receiver of a bridge's events.
#[derive(Debug)]
pub struct Subscription {
    /// Queue of the events, in the order of their occurrence.
    pub events: mpsc::Receiver<Told>,
    /// Number of events that were lost because the queue was full, or because events used too much memory.
    pub lost: Arc<AtomicU64>,
    /// Number of lost events about flow entries since the last reset. If nonzero, the next event follows a
    /// gap.
    pub missed: Arc<AtomicU64>,
    /// Interest of the sessions in events.
    pub interest: Interest,
}

/// Numbers of sessions that are interested in kinds of events. The bridge sends only events that a session is
/// interested in. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Interest {
    /// Number of sessions that monitor flow entries. If 0, changes of flow entries that no session requested
    /// are not sent.
    pub rules: Arc<AtomicUsize>,
    /// Number of sessions that receive group and meter requests of other sessions.
    pub requests: Arc<AtomicUsize>,
}

/// Creates a queue for `capacity` events (at least 4). Packets leave the last quarter of the queue to other
/// events.
#[must_use]
pub fn events(capacity: usize) -> (EventSender, Subscription) {
    events_for(capacity, Interest::default())
}

/// Like [`events`], with an interest that is shared with other queues.
#[must_use]
pub fn events_for(capacity: usize, interest: Interest) -> (EventSender, Subscription) {
    let (to, events) = mpsc::channel(capacity.max(4));
    let (lost, missed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let sender = EventSender {
        to,
        lost: Arc::clone(&lost),
        missed: Arc::clone(&missed),
        monitored: Arc::clone(&interest.rules),
    };
    (sender, Subscription { events, lost, missed, interest })
}

impl EventSender {
    /// Returns whether a session is interested in flow entries that are added or changed, or removed without
    /// `send_removed`.
    #[must_use]
    pub fn is_monitored(&self) -> bool {
        self.monitored.load(Ordering::Relaxed) > 0
    }

    /// Returns whether the receiver was dropped.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.to.is_closed()
    }

    /// Sends an event without waiting. An event that does not fit into the queue is dropped and counted.
    /// Changes of flow entries are omitted while no session [monitors](EventSender::is_monitored) them. The
    /// events of one request are sent in parts. Returns false if the receiver was dropped.
    pub fn send(&self, event: Event) -> bool {
        let event = if self.is_monitored() { Some(event) } else { wanted_unmonitored(event) };
        match event {
            None => {}
            Some(Event::Caused(origin, events)) => self.put_parts(origin, events),
            Some(event) => self.put(event, false),
        }
        !self.is_closed()
    }

    /// Sends events like [`EventSender::send`]. Events about flow entries without a request are combined.
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
        match Told::new(event, continues) {
            Ok(told) => {
                if let Err(mpsc::error::TrySendError::Full(told)) = self.to.try_send(told) {
                    self.lose(&told.event);
                }
            }
            Err(event) => {
                self.lose(&event);
                // Monitoring sessions are notified of the gap, at the latest with the next event.
                if !is_packet {
                    let _ = self.to.try_send(Told::lost(0));
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

    /// Returns the number of lost events.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Returns whether an event is about flow entries, or reports a gap in such events.
pub(crate) fn is_about_rules(event: &Event) -> bool {
    match event {
        Event::Added(..) | Event::Modified(..) | Event::Removed(..) | Event::Caused(..) | Event::Lost(_) => {
            true
        }
        Event::PacketIn(_) | Event::Port(..) | Event::Request(_) | Event::Vacancy(..) => false,
    }
}

/// Returns whether an event is also for sessions without monitors.
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

/// Returns the part of an event that is sent while no session monitors flow entries: notifications of removed
/// entries, and events that are not about flow entries.
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
        while let Ok(Told { event: Event::PacketIn(_), .. }) = from.events.try_recv() {
            packets += 1;
        }
        assert_eq!(packets, 6);
        drop(from);
        assert!(!to.send(packet()), "nobody listens");
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

    /// The events of one request arrive in parts, completely and in order. Spontaneous events do as well, and
    /// many of them use one slot of the queue.
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

    /// After an overflow of the queue, the receiver knows that an event about flow entries is missing.
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
