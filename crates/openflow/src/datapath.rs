//! What a bridge offers to its controllers.

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

/// Things of which there may be many, in batches, which may be empty. The bridge makes a batch when it is asked for, within some
/// milliseconds, and holds nothing between two batches that others wait for.
pub type Batches<T> = Box<dyn Iterator<Item = Vec<T>> + Send>;

/// What comes of a batch of changes: the first change that is refused, by its index, and why.
pub type Outcome = Result<(), (usize, FlowError)>;

/// Changes in one call that may take longer than others should wait, as far as nothing else is known of them.
const MANY: usize = 32;

/// A future that a barrier waits for.
pub type Settled = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a bridge is and can.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Features {
    /// Its number for controllers.
    pub datapath_id: u64,
    /// Its tables: 0 to `tables - 1`, at most 255.
    pub tables: u8,
    /// Groups it holds at most, of each kind.
    pub max_groups: u32,
    /// Meters it holds at most; their numbers are 1 to this.
    pub max_meters: u32,
    /// Bands of a meter at most.
    pub max_bands: u8,
    /// Ports have queues with counters.
    pub queues: bool,
}

/// Who made the bridge (OFPMP_DESC), for people.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Description {
    /// Manufacturer, at most 255 octets (as all but `serial`).
    pub manufacturer: String,
    /// Hardware.
    pub hardware: String,
    /// Software and its version.
    pub software: String,
    /// Serial number, at most 31 octets.
    pub serial: String,
    /// The bridge.
    pub datapath: String,
}

/// A change of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortMod {
    /// OpenFlow's number.
    pub number: u32,
    /// The address that the controller believes it to have; another one is refused by [`PortModError::Address`].
    pub mac: MacAddr,
    /// The bits of [`PortDesc::config`] as they are to be: 1 down, 4 receives nothing, 16 is left out of floods, 32 sends
    /// nothing, 64 gives controllers nothing.
    pub config: u32,
    /// Those of them that change.
    pub mask: u32,
}

/// Why a port is not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PortModError {
    /// OFPPMFC_BAD_PORT.
    #[error("there is no such port")]
    NoPort,
    /// OFPPMFC_BAD_HW_ADDR.
    #[error("the port has another address")]
    Address,
    /// OFPPMFC_BAD_CONFIG.
    #[error("the port cannot be configured so")]
    Config,
    /// OFPPMFC_EPERM.
    #[error("not allowed")]
    Permission,
}

/// A queue's counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueStats {
    /// Its port.
    pub port: u32,
    /// Its number.
    pub queue: u32,
    /// Packets out.
    pub tx_packets: u64,
    /// Octets out.
    pub tx_bytes: u64,
    /// Packets lost.
    pub tx_errors: u64,
    /// Nanoseconds since it was added.
    pub age_ns: u64,
}

/// A queue's rates, in tenths of a percent of the port's; `None`: not configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueConfig {
    /// Its port.
    pub port: u32,
    /// Its number.
    pub queue: u32,
    /// At least.
    pub min_rate: Option<u16>,
    /// At most.
    pub max_rate: Option<u16>,
}

/// How a table is configured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableConfig {
    /// Its number.
    pub table: u8,
    /// Its name, at most 31 octets; empty: none.
    pub name: String,
    /// Rules that it holds at most.
    pub max_entries: u32,
    /// For packets that no rule matches.
    pub miss: Miss,
    /// Rules make room for others when it is full.
    pub eviction: bool,
    /// Controllers are told when it is nearly full: below and above so many percent free.
    pub vacancy: Option<(u8, u8)>,
}

impl TableConfig {
    /// As a bridge has it.
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

/// A change of tables; what is `None` stays.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableMod {
    /// Its number, or [`switch::flow::ALL_TABLES`].
    pub table: u8,
    /// See [`TableConfig`].
    pub miss: Option<Miss>,
    /// See [`TableConfig`].
    pub eviction: Option<bool>,
    /// See [`TableConfig`]; the inner `None` ends it.
    pub vacancy: Option<Option<(u8, u8)>>,
    /// A new name.
    pub name: Option<String>,
}

/// Sums over rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Aggregate {
    /// Packets.
    pub packets: u64,
    /// Octets.
    pub bytes: u64,
    /// Rules.
    pub flows: u32,
}

/// A bridge as its controllers see it.
///
/// Sessions call these methods from tasks of their own; each may take some milliseconds. What can take longer (dumps, batches of
/// many changes) is called where it does not hold others up. Nothing here may wait for a controller.
pub trait Datapath: Send + Sync + 'static {
    /// What it is and can.
    fn features(&self) -> Features;

    /// Who made it.
    fn description(&self) -> Description;

    /// What becomes of fragments.
    fn fragments(&self) -> Fragments {
        Fragments::Normal
    }

    /// Changes what becomes of fragments; false: it cannot.
    fn set_fragments(&self, to: Fragments) -> bool {
        to == Fragments::Normal
    }

    /// Its ports, LOCAL too, by ascending numbers.
    fn ports(&self) -> Vec<PortDesc>;

    /// The counters of one port or of all; none where it is not there.
    fn port_stats(&self, port: Option<u32>) -> Vec<PortStats>;

    /// Changes a port.
    ///
    /// # Errors
    /// [`PortModError`], and nothing is changed.
    fn port_mod(&self, change: &PortMod) -> Result<(), PortModError>;

    /// The counters of queues.
    fn queue_stats(&self, _port: Option<u32>, _queue: Option<u32>) -> Vec<QueueStats> {
        Vec::new()
    }

    /// The queues of one port or of all.
    fn queues(&self, _port: Option<u32>) -> Vec<QueueConfig> {
        Vec::new()
    }

    /// Makes all changes, or none: a packet meets the tables of before or of behind. Whoever is subscribed is told of each.
    ///
    /// # Errors
    /// The first change that is refused, by its index, and why; nothing is changed then.
    fn modify(&self, changes: Vec<Mod>) -> Result<(), (usize, FlowError)>;

    /// As [`Datapath::modify`], for a session's request, which listeners are told of ([`Event::Caused`]).
    ///
    /// # Errors
    /// As [`Datapath::modify`].
    fn modify_for(&self, changes: Vec<Mod>, _origin: Origin) -> Result<(), (usize, FlowError)> {
        self.modify(changes)
    }

    /// As [`Datapath::modify_for`], where that takes no longer than a request may and others do not have to be waited for; else nothing is
    /// done.
    ///
    /// # Errors
    /// The changes, which are to be made where they hold nobody up.
    fn modify_soon(&self, changes: Vec<Mod>, origin: Origin) -> Result<Outcome, Vec<Mod>> {
        if changes.len() < MANY { Ok(self.modify_for(changes, origin)) } else { Err(changes) }
    }

    /// As [`Datapath::modify_for`], where packets are among the changes ([`Mod::PacketOut`]). The bridge keeps `reservation` until all of
    /// them are sent.
    ///
    /// # Errors
    /// As [`Datapath::modify`], and no packet is sent.
    fn modify_and_send(&self, changes: Vec<Mod>, origin: Origin, reservation: Reservation) -> Outcome;

    /// Rules and their counters, by table, then by falling priority. A rule that is there throughout comes exactly once.
    fn flows(&self, filter: &FlowFilter) -> Batches<FlowStats>;

    /// Their sums.
    fn aggregate(&self, filter: &FlowFilter) -> Aggregate {
        let mut sums = Aggregate::default();
        for flow in self.flows(filter).flatten() {
            sums.packets = sums.packets.wrapping_add(flow.packets);
            sums.bytes = sums.bytes.wrapping_add(flow.bytes);
            sums.flows = sums.flows.saturating_add(1);
        }
        sums
    }

    /// All its tables, by their numbers.
    fn tables(&self) -> Vec<TableStats>;

    /// How one table is configured; `None`: it is not there.
    fn table_config(&self, table: u8) -> Option<TableConfig>;

    /// Changes how tables are configured.
    ///
    /// # Errors
    /// [`FlowError::BadTable`] where it is not there, anything else where it cannot be.
    fn table_mod(&self, change: &TableMod) -> Result<(), FlowError>;

    /// As [`Datapath::table_mod`], where that takes no longer than a request may and others do not have to be waited for; `None`: nothing is
    /// done, and the change is to be made where it holds nobody up.
    fn table_mod_soon(&self, change: &TableMod) -> Option<Result<(), FlowError>> {
        Some(self.table_mod(change))
    }

    /// What options of tunnels are mapped to.
    fn tunnel_options(&self) -> TunnelOptions;

    /// Changes that.
    ///
    /// # Errors
    /// [`OptionsError`], and nothing is changed.
    fn change_tunnel_options(&self, change: &OptionsMod) -> Result<(), OptionsError>;

    /// The group of this number, or all groups, by their numbers.
    fn groups(&self, group: Option<u32>) -> Batches<Group>;

    /// The counters of one group or of all.
    fn group_stats(&self, group: Option<u32>) -> Batches<GroupStats>;

    /// The meter of this number, or all meters, by their numbers.
    fn meters(&self, meter: Option<u32>) -> Batches<Meter>;

    /// The counters of one meter or of all.
    fn meter_stats(&self, meter: Option<u32>) -> Batches<MeterStats>;

    /// Sends a packet. The bridge keeps `reservation` until the packet is decided: that is how the bridge slows a session down.
    ///
    /// # Errors
    /// [`FlowError`], and nothing is sent.
    fn packet_out(&self, packet: PacketOut, reservation: Reservation) -> Result<(), FlowError>;

    /// As [`Datapath::packet_out`], where nobody has to be waited for; else nothing is sent.
    ///
    /// # Errors
    /// The packet and its reservation, which are to be given where they hold nobody up.
    fn packet_out_soon(
        &self,
        packet: PacketOut,
        reservation: Reservation,
    ) -> Result<Result<(), FlowError>, Box<(PacketOut, Reservation)>> {
        Ok(self.packet_out(packet, reservation))
    }

    /// Drops the packets of a session that are not decided yet, with their reservations, and returns how many these were: the session has
    /// ended.
    fn session_ended(&self, _session: u64) -> usize {
        0
    }

    /// Resolves when packets that arrive from then on meet all changes made before the call, whatever cache they meet them in.
    fn barrier(&self) -> Settled;

    /// What happens from now on; see [`events`].
    fn subscribe(&self) -> Subscription;

    /// Told when the first controller is there (true) and when the last one has gone (false): the fail mode's time to act.
    /// Those who only come to us (`ovs-ofctl`) do not count.
    fn controllers_connected(&self, connected: bool);

    /// Told when the first session is there that hears of table misses (true), and when the last one has gone (false): one that speaks
    /// OpenFlow before 1.3, and takes packets.
    fn misses_heard(&self, _heard: bool) {}
}

/// The part of its budget for packet-outs that a session has reserved for one packet. Dropping the value gives the part back, and lets the
/// session read on where it waits for room.
#[derive(Debug)]
pub struct Reservation {
    session: u64,
    /// Of the session's budget, and of that of all sessions of the bridge.
    _permits: [OwnedSemaphorePermit; 2],
}

impl Reservation {
    pub(crate) fn new(session: u64, permits: [OwnedSemaphorePermit; 2]) -> Reservation {
        Reservation { session, _permits: permits }
    }

    /// The number of the session, which no other session of the bridge has.
    #[must_use]
    pub fn session(&self) -> u64 {
        self.session
    }
}

/// Octets of memory of the events of all bridges of the process at most, until every session has taken them.
const PROCESS_OCTETS: usize = 256 << 20;
/// Octets of memory of one part of what a request has led to.
const PART: usize = 256 << 10;

/// Octets of memory that events on their way to sessions take now.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// An event on its way to sessions, which share it.
#[derive(Debug)]
pub struct Told {
    /// What happened.
    pub event: Event,
    /// It is the next part of what one request has led to, of which the event before was a part.
    pub continues: bool,
    /// Octets of memory, which are counted in [`HELD`].
    octets: usize,
}

impl Told {
    /// An event, if the process has memory for it. Packets leave half of the memory to everything else.
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

    /// That so many events were lost, which takes no memory that is counted.
    fn lost(count: u64) -> Told {
        Told { event: Event::Lost(count), continues: false, octets: 0 }
    }

    /// Octets of memory that the event takes, about.
    pub(crate) fn octets(&self) -> usize {
        self.octets
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        HELD.fetch_sub(self.octets, Ordering::Relaxed);
    }
}

/// Where a bridge puts what happens. A clone puts into the same queue.
#[derive(Clone, Debug)]
pub struct EventSender {
    to: mpsc::Sender<Told>,
    lost: Arc<AtomicU64>,
    /// Events about rules that were lost, and that nobody has been told of yet.
    missed: Arc<AtomicU64>,
    monitored: Arc<AtomicUsize>,
}

/// Where it arrives.
#[derive(Debug)]
pub struct Subscription {
    /// In the order in which it happened.
    pub events: mpsc::Receiver<Told>,
    /// How many were lost because the queue was full, or because events took too much memory.
    pub lost: Arc<AtomicU64>,
    /// Those of them about rules since they were asked for last: what comes next comes behind a gap.
    pub missed: Arc<AtomicU64>,
    /// What sessions want to hear of.
    pub interest: Interest,
}

/// What the sessions of a bridge want to hear of, counted by session. The bridge tells of nothing that no session wants. Clones share
/// their counts.
#[derive(Clone, Debug, Default)]
pub struct Interest {
    /// Sessions that monitor rules; while there is none, changes of rules that nobody waits for are not put in.
    pub rules: Arc<AtomicUsize>,
    /// Sessions that want to hear of the requests of others that change groups and meters.
    pub requests: Arc<AtomicUsize>,
}

/// A queue for so many events (at least 4). Packets leave the last quarter of it to everything else.
#[must_use]
pub fn events(capacity: usize) -> (EventSender, Subscription) {
    events_for(capacity, Interest::default())
}

/// As [`events`], where the sessions' interest is counted together with others.
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
    /// Whether anybody wants to hear of rules that are added or changed, or go without `send_removed`.
    #[must_use]
    pub fn is_monitored(&self) -> bool {
        self.monitored.load(Ordering::Relaxed) > 0
    }

    /// Whether nobody listens any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.to.is_closed()
    }

    /// Puts it in without waiting; what does not fit is lost, and counted. Changes of rules are left out while nobody
    /// [monitors](EventSender::is_monitored) them. What one request has led to goes in parts. False: nobody listens any more.
    pub fn send(&self, event: Event) -> bool {
        let event = if self.is_monitored() { Some(event) } else { wanted_unmonitored(event) };
        match event {
            None => {}
            Some(Event::Caused(origin, events)) => self.put_parts(origin, events),
            Some(event) => self.put(event, false),
        }
        !self.is_closed()
    }

    /// As [`EventSender::send`] of each; those about rules that no request has led to go together.
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
                // Who follows the rules hears of the gap, at the latest with the next event.
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

    /// Events lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Whether an event tells monitors of rules, or that there is something that they are not told.
pub(crate) fn is_about_rules(event: &Event) -> bool {
    match event {
        Event::Added(..) | Event::Modified(..) | Event::Removed(..) | Event::Caused(..) | Event::Lost(_) => {
            true
        }
        Event::PacketIn(_) | Event::Port(..) | Event::Request(_) | Event::Vacancy(..) => false,
    }
}

/// Whether sessions without monitors are told of it, too.
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

/// What is left of an event where no session monitors rules: a rule's end of which controllers are told, and all that is not about rules.
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

    /// What one request has led to arrives in parts, whole and in its order; so does what happens by itself, which takes one place of the
    /// queue for many events.
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

    /// Where there is no place in the queue, it is known behind it that something about rules is missing.
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
