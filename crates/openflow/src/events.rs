//! Queue of a bridge's events for its connection manager, with limits of length and memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use switch::flow::{Event, Origin};
use tokio::sync::mpsc;

/// Maximum memory in octets of the queued events of all bridges in the process. An event is queued until every session
/// has processed the event. The events of one bridge may use at most half of the memory that the other bridges leave
/// free, so that slow sessions of one bridge do not prevent the events of other bridges.
const PROCESS_OCTETS: usize = 256 << 20;
/// Maximum memory in octets of the queued packet-in events of all bridges in the process, as part of
/// [`PROCESS_OCTETS`]. The packet-in events of one bridge may use at most half of the memory that the packet-in events
/// of the other bridges leave free.
const PACKET_OCTETS: usize = PROCESS_OCTETS / 2;
/// Maximum memory in octets of one queued part of a request's events. Events of a request that use
/// more memory are queued in several parts.
const PART: usize = 256 << 10;

/// Memory of the queued events of all bridges in the process. An event is queued until every session has processed the
/// event.
static HELD: Octets = Octets { all: AtomicUsize::new(0), packets: AtomicUsize::new(0) };

/// Memory in octets of queued events.
#[derive(Debug, Default)]
struct Octets {
    all: AtomicUsize,
    /// Memory of the packet-in events alone. Other events do not count towards the limit of packet-in events.
    packets: AtomicUsize,
}

impl Octets {
    /// Reserves memory in [`HELD`] and in the memory of a bridge for an event. Returns false and reserves nothing if
    /// the event exceeds a limit.
    fn reserve(of_bridge: &Octets, octets: usize, is_packet: bool) -> bool {
        if is_packet && !reserve(&HELD.packets, &of_bridge.packets, octets, PACKET_OCTETS) {
            return false;
        }
        let is_reserved = reserve(&HELD.all, &of_bridge.all, octets, PROCESS_OCTETS);
        if is_packet && !is_reserved {
            release(&HELD.packets, &of_bridge.packets, octets);
        }
        is_reserved
    }

    /// Releases memory that [`Octets::reserve`] has reserved.
    fn release(of_bridge: &Octets, octets: usize, is_packet: bool) {
        release(&HELD.all, &of_bridge.all, octets);
        if is_packet {
            release(&HELD.packets, &of_bridge.packets, octets);
        }
    }
}

/// Adds `octets` to both counters. Returns false and changes nothing if the bridge would then use more memory than all
/// bridges leave free of `most` octets.
fn reserve(held: &AtomicUsize, of_bridge: &AtomicUsize, octets: usize, most: usize) -> bool {
    let own = of_bridge.load(Ordering::Relaxed).saturating_add(octets);
    let fits = |held: usize| (own <= most.checked_sub(held)?).then_some(held + octets);
    let is_reserved = held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
    if is_reserved {
        of_bridge.fetch_add(octets, Ordering::Relaxed);
    }
    is_reserved
}

fn release(held: &AtomicUsize, of_bridge: &AtomicUsize, octets: usize) {
    held.fetch_sub(octets, Ordering::Relaxed);
    of_bridge.fetch_sub(octets, Ordering::Relaxed);
}

/// An event of a bridge. All sessions share one copy, which is freed when every session has processed the event.
#[derive(Debug)]
pub struct SharedEvent {
    /// Event that the sessions process.
    pub event: Event,
    /// Whether the previous event and this event belong together, because one request has caused both.
    pub continues: bool,
    /// Memory in octets that the event uses, as counted in [`HELD`] and in `of_bridge`.
    octets: usize,
    /// Memory of the queued events of the bridge.
    of_bridge: Arc<Octets>,
}

impl SharedEvent {
    /// Creates a shared event. `continues` states whether the event is a further part of the preceding event.
    /// `of_bridge` counts the memory of the bridge's queued events.
    ///
    /// # Errors
    /// Returns the unchanged event if the event would exceed the memory limit of the bridge or of the process.
    #[allow(clippy::result_large_err, reason = "an event that does not fit is handed back as it is")]
    fn new(event: Event, continues: bool, of_bridge: &Arc<Octets>) -> Result<SharedEvent, Event> {
        let octets = event.memory();
        if !Octets::reserve(of_bridge, octets, is_packet(&event)) {
            return Err(event);
        }
        Ok(SharedEvent { event, continues, octets, of_bridge: Arc::clone(of_bridge) })
    }

    /// Creates an event that informs the sessions that `count` events were dropped. The memory of this event is not
    /// counted in [`HELD`].
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
        // The memory of events that report lost events is not counted.
        if self.octets > 0 {
            Octets::release(&self.of_bridge, self.octets, is_packet(&self.event));
        }
    }
}

/// Sender of a bridge's events. Clones share one queue.
#[derive(Clone, Debug)]
pub struct EventSender {
    to: mpsc::Sender<SharedEvent>,
    /// Memory of the queued events of the bridge.
    of_bridge: Arc<Octets>,
    lost: Arc<AtomicU64>,
    /// Number of events about flow entries that were dropped, and whose loss has not been reported to the receiver yet.
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
    /// Number of events about flow entries that were dropped since the receiver last reset this counter. If the number
    /// is not 0, the dropped events belong before the next event in the queue.
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

    /// Queues several events like [`EventSender::send`]. Consecutive events that report changes of flow entries,
    /// without a request that caused them, are combined into one event.
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
        let is_packet = is_packet(&event);
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
            Event::Lost(count) | Event::LostPackets(count) => *count,
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

fn is_packet(event: &Event) -> bool {
    matches!(event, Event::PacketIn(_))
}

/// Returns whether an event is about flow entries: the event either reports changes of flow entries, or reports that
/// events about flow entries were dropped.
pub(crate) fn is_about_rules(event: &Event) -> bool {
    match event {
        Event::Added(..) | Event::Modified(..) | Event::Removed(..) | Event::Caused(..) | Event::Lost(_) => {
            true
        }
        Event::PacketIn(_)
        | Event::LostPackets(_)
        | Event::Port(..)
        | Event::Request(_)
        | Event::Vacancy(..) => false,
    }
}

/// Returns whether an event must also be sent to sessions without flow monitors.
pub(crate) fn is_for_all(event: &Event) -> bool {
    match event {
        Event::Added(..) | Event::Modified(..) => false,
        Event::Removed(flow, _) => flow.flags.send_removed,
        Event::Caused(_, events) => events.iter().any(is_for_all),
        Event::PacketIn(_)
        | Event::LostPackets(_)
        | Event::Port(..)
        | Event::Request(_)
        | Event::Vacancy(..)
        | Event::Lost(_) => true,
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

    use packet::MacAddr;
    use switch::flow::{
        Action, Flow, FlowFlags, FlowStats, Instructions, Match, PacketIn, PortDesc, Reason, Removed,
    };

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

    /// Checks that events of one bridge leave memory for the events of other bridges, even if the sessions of that
    /// bridge do not process their events.
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
        let held = &slow.of_bridge;
        assert_eq!((held.all.load(Ordering::Relaxed), held.packets.load(Ordering::Relaxed)), (0, 0));
    }

    /// Checks that events other than packet-ins leave the memory for packet-ins of other bridges, even if these events
    /// use all memory that one bridge may use.
    #[test]
    fn other_events_of_one_bridge_leave_memory_for_packets_of_others() {
        let ((slow, _waiting), (other, _from)) = (events(1024), events(8));
        let note = Instructions::apply(vec![Action::Note(vec![0; 1 << 20])]);
        for _ in 0..200 {
            slow.send(Event::Removed(
                FlowStats { instructions: note.clone(), ..flow(true) },
                Removed::Delete,
            ));
        }
        assert!((64..200).contains(&slow.lost()), "the memory of the bridge is used up: {}", slow.lost());
        assert!(other.send(packet()));
        assert_eq!(other.lost(), 0);
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

    /// Checks that the events of one request arrive in several parts, completely and in order. Also checks that events
    /// without a request arrive completely and in order, and that many such events use only one slot of the queue.
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

    /// Checks that the receiver can detect, by the counter `missed`, that events about flow entries were dropped
    /// because the queue was full.
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
