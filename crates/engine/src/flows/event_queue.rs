//! Queue of a bridge's OpenFlow events, between the bridge's tables and the listener.
//!
//! Control threads and the slow path append the events of a change to the queue while they hold the lock of the
//! tables. Thus the queue contains the events in the order of the changes. The events are sent after the tables were
//! unlocked, by one thread at a time, the sender:
//!
//! - A control thread returns only after its own events were sent. Until then, it waits for the sender, or it is the
//!   sender itself. After its own events were sent, the sender also sends the following events of the slow path. The
//!   sender stops before the events of another control thread, which is the next sender.
//! - The slow path never waits. If a control thread is the sender, or if events of a control thread are queued, that
//!   control thread sends the slow path's events too. Otherwise, the slow path is the sender of all queued events.
//!
//! Each control thread has at most one entry in the queue. The slow path's entries are limited by their memory.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use switch::flow::Event;

/// Maximum memory in octets of the events of the slow path that wait in the queues of all bridges. The queue of one
/// bridge may use at most half of the memory that the other queues leave free.
const MEMORY: usize = 32 << 20;
/// Maximum memory in octets of the packet-in events among the events that [`MEMORY`] limits. The packet-in events of
/// one bridge may use at most half of the memory that the packet-in events of the other bridges leave free.
const PACKET_MEMORY: usize = MEMORY / 2;
/// Number of events from which an entry of the slow path accepts no more events, so that later events are put into a
/// new entry. The limit bounds the number of events that the slow path copies when the list of events of an entry must
/// grow.
const TOGETHER: usize = 256;

/// Memory in octets of the events of the slow path that wait in the queues of all bridges.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// Memory in octets of the packet-in events alone. Other events do not count towards the limit of packet-in events.
static PACKETS_HELD: AtomicUsize = AtomicUsize::new(0);

/// Memory in octets of events of the slow path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Octets {
    all: usize,
    /// Memory of the packet-in events alone.
    packets: usize,
}

/// Function that is called with the OpenFlow events of a bridge, such as removed rules and packets for controllers. The
/// function is called by one thread at a time, in the order of the changes that caused the events.
pub type Listener = Arc<dyn Fn(Vec<Event>) + Send + Sync>;

/// An entry of a bridge's event queue.
enum Entry {
    /// Events of a control thread. The thread waits until the events were sent to the listener.
    Control(Vec<Event>),
    /// Events of the slow path.
    SlowPath(Deferred),
    /// A function that must be called after all earlier entries were sent to the listener.
    Notify(Box<dyn FnOnce() + Send>),
}

/// Events of the slow path that wait for another thread to send them.
#[derive(Default)]
struct Deferred {
    events: Vec<Event>,
    /// Memory of the events, as counted in [`HELD`], in [`PACKETS_HELD`] and in [`State::octets`].
    octets: Octets,
    /// Number of dropped events, without packet-in events.
    lost: u64,
    /// Number of dropped packet-in events.
    lost_packets: u64,
}

impl Deferred {
    /// Adds the events that the memory limit permits, and drops and counts the other events. After an event other than
    /// a packet-in was dropped, later events other than packet-ins are dropped too, because flow monitors cannot use
    /// them. `own` is the memory of the events of the slow path in the queue, which the function updates.
    fn add(&mut self, events: Vec<Event>, own: &mut Octets) {
        for event in events {
            let octets = event.memory();
            let packets = if matches!(event, Event::PacketIn(_)) { octets } else { 0 };
            match &event {
                Event::PacketIn(_) if reserve_packet(octets, *own) => {}
                Event::PacketIn(_) => {
                    self.lost_packets += 1;
                    continue;
                }
                Event::Lost(count) => {
                    self.lost += count;
                    continue;
                }
                _ if self.lost == 0 && reserve(&HELD, octets, own.all, MEMORY) => {}
                Event::Caused(_, events) => {
                    self.lost += events.len() as u64;
                    continue;
                }
                _ => {
                    self.lost += 1;
                    continue;
                }
            }
            for sum in [&mut *own, &mut self.octets] {
                sum.all += octets;
                sum.packets += packets;
            }
            self.events.push(event);
        }
    }

    /// Takes the events out. If events were dropped, the last events report the numbers of dropped events.
    fn take(&mut self) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.events);
        events.extend((self.lost > 0).then_some(Event::Lost(self.lost)));
        events.extend((self.lost_packets > 0).then_some(Event::LostPackets(self.lost_packets)));
        events
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        HELD.fetch_sub(self.octets.all, Ordering::Relaxed);
        PACKETS_HELD.fetch_sub(self.octets.packets, Ordering::Relaxed);
    }
}

/// Reserves `octets` octets of memory for an event of the slow path, and counts them in `held`. `own` is the memory
/// in octets that the queue of the bridge has already reserved. The queues of all bridges together may use `most`
/// octets. Returns false and reserves nothing if the queue, including the event, would use more memory than is free
/// before the reservation.
fn reserve(held: &AtomicUsize, octets: usize, own: usize, most: usize) -> bool {
    let fits = |held: usize| (own + octets <= most.checked_sub(held)?).then_some(held + octets);
    held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
}

/// Reserves memory for a packet-in event within the limit of packet-in events and the limit of all events. Returns
/// false and reserves nothing if the event exceeds one of the limits.
fn reserve_packet(octets: usize, own: Octets) -> bool {
    if !reserve(&PACKETS_HELD, octets, own.packets, PACKET_MEMORY) {
        return false;
    }
    let is_reserved = reserve(&HELD, octets, own.all, MEMORY);
    if !is_reserved {
        PACKETS_HELD.fetch_sub(octets, Ordering::Relaxed);
    }
    is_reserved
}

#[derive(Default)]
struct State {
    /// Queued entries, oldest first.
    entries: VecDeque<Entry>,
    /// Number of entries that were ever queued.
    queued: u64,
    /// Number of entries that were processed.
    processed: u64,
    /// Number of entries of control threads that are queued or being processed.
    control: usize,
    /// Whether a thread processes an entry that it has removed from the queue.
    is_sending: bool,
    /// Memory of the events of the slow path in the queue.
    octets: Octets,
    listener: Option<Listener>,
}

impl State {
    /// Returns whether a thread sends the entries of the queue, or whether a control thread will do so before it
    /// returns.
    fn has_sender(&self) -> bool {
        self.is_sending || self.control > 0
    }
}

/// Queue of one bridge's OpenFlow events that wait for the listener. See the [module](self) documentation.
#[derive(Default)]
pub(super) struct EventQueue {
    state: Mutex<State>,
    /// Notified when an entry was processed.
    processed: Condvar,
}

impl EventQueue {
    pub fn listen(&self, listener: Option<Listener>) {
        self.state().listener = listener;
    }

    /// Appends the events of a control thread, which holds the lock of the tables. Returns the number of the entry.
    /// The thread must call [`EventQueue::send`] with this number when it has unlocked the tables.
    #[must_use]
    pub fn append(&self, events: Vec<Event>) -> u64 {
        let mut state = self.state();
        state.entries.push_back(Entry::Control(events));
        state.queued += 1;
        state.control += 1;
        state.queued
    }

    /// Returns whether events of a control thread are queued or being sent. While the caller holds the lock of the
    /// tables, no other thread can append events to the queue.
    #[must_use]
    pub fn has_control(&self) -> bool {
        self.state().control > 0
    }

    /// Sends the events of the queue for a control thread. Returns when the entry with this number was processed, and
    /// another thread processes the rest of the queue or will do so.
    pub fn send(&self, number: u64) {
        let mut state = self.state();
        loop {
            let is_done = state.processed >= number;
            if state.is_sending && !is_done {
                state = self.processed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let turn = if is_done { self.next_without_owner(&mut state) } else { self.next(&mut state) };
            let Some(turn) = turn else { return };
            drop(state);
            turn.process();
            state = self.state();
        }
    }

    /// Appends the events of the slow path, which holds the lock of the tables. Returns `None` if another thread will
    /// send the events. Otherwise, the slow path must pass the returned turn to [`EventQueue::send_deferrable`] when it
    /// has unlocked the tables.
    #[must_use]
    pub fn append_deferrable(&self, events: Vec<Event>) -> Option<Turn<'_>> {
        let mut state = self.state();
        if !state.has_sender() {
            // The queue is empty, unless a panic of the listener has ended an earlier sender.
            state.queued += 1;
            state.entries.push_back(Entry::SlowPath(Deferred { events, ..Deferred::default() }));
            return self.next(&mut state);
        }
        let State { entries, queued, octets, .. } = &mut *state;
        match entries.back_mut() {
            Some(Entry::SlowPath(last)) if last.events.len() < TOGETHER => last.add(events, octets),
            _ => {
                let mut deferred = Deferred::default();
                deferred.add(events, octets);
                entries.push_back(Entry::SlowPath(deferred));
                *queued += 1;
            }
        }
        None
    }

    /// Processes the turn of the slow path. Returns without waiting when the next entry belongs to a control thread,
    /// which then processes the rest of the queue.
    pub fn send_deferrable(&self, turn: Turn<'_>) {
        let mut next = Some(turn);
        while let Some(turn) = next {
            turn.process();
            next = self.next_without_owner(&mut self.state());
        }
    }

    /// Calls `done` when the events that are in the queue now were sent. The function does not wait.
    pub fn notify(&self, done: Box<dyn FnOnce() + Send>) {
        let mut state = self.state();
        if !state.is_sending && state.entries.is_empty() {
            drop(state);
            return done();
        }
        state.entries.push_back(Entry::Notify(done));
        state.queued += 1;
        if let Some(turn) = self.next_without_owner(&mut state) {
            drop(state);
            self.send_deferrable(turn);
        }
    }

    /// Removes the first entry from the queue like [`EventQueue::next`], if no thread waits for this entry. Returns
    /// `None` if another thread is processing an entry, or if the first entry belongs to a control thread, which
    /// processes the entry itself.
    fn next_without_owner(&self, state: &mut State) -> Option<Turn<'_>> {
        let is_left = state.is_sending || matches!(state.entries.front(), Some(Entry::Control(_)));
        if is_left { None } else { self.next(state) }
    }

    /// Removes the first entry from the queue, which the calling thread then processes. Returns `None` if the queue is
    /// empty. No other thread may be processing an entry.
    fn next(&self, state: &mut State) -> Option<Turn<'_>> {
        let entry = state.entries.pop_front()?;
        state.is_sending = true;
        let octets = if let Entry::SlowPath(deferred) = &entry { deferred.octets } else { Octets::default() };
        let is_control = matches!(entry, Entry::Control(_));
        Some(Turn { queue: self, entry: Some(entry), listener: state.listener.clone(), is_control, octets })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A turn of a thread: the entry that the thread must process. No other thread processes an entry of the queue until
/// the turn has ended.
#[must_use]
pub(super) struct Turn<'a> {
    queue: &'a EventQueue,
    entry: Option<Entry>,
    listener: Option<Listener>,
    /// Whether the entry belongs to a control thread.
    is_control: bool,
    /// Memory of the entry, as counted in [`State::octets`].
    octets: Octets,
}

impl Turn<'_> {
    /// Passes the events of the entry to the listener, or calls the function of the entry.
    fn process(mut self) {
        let send = |events| {
            if let Some(listener) = &self.listener {
                listener(events);
            }
        };
        match self.entry.take() {
            Some(Entry::Control(events)) => send(events),
            Some(Entry::SlowPath(mut deferred)) => send(deferred.take()),
            Some(Entry::Notify(done)) => done(),
            None => {}
        }
    }
}

impl Drop for Turn<'_> {
    /// Ends the turn, even if the listener has panicked.
    fn drop(&mut self) {
        let mut state = self.queue.state();
        state.is_sending = false;
        state.processed += 1;
        state.control -= usize::from(self.is_control);
        state.octets.all -= self.octets.all;
        state.octets.packets -= self.octets.packets;
        drop(state);
        self.queue.processed.notify_all();
    }
}
