//! The queue of events of a bridge's flow tables, with a limit on its memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::message::Event;

/// Maximum memory of the events in the queue, in octets.
const MEMORY: usize = 128 << 20;

/// The queue of events of a bridge's flow tables, oldest event first. See the [module](self).
#[derive(Default)]
pub(super) struct Events {
    list: Vec<Event>,
    /// Approximate memory of the queued events in octets.
    octets: usize,
    /// Number of events that were dropped because of the memory limit since the queue was last read.
    lost: u64,
    /// Whether an event about a rule was dropped since the queue was last read.
    has_lost_change: bool,
    /// Shared count of the listeners for changes of rules. If the value is `None`, all changes are queued.
    monitors: Option<Arc<AtomicUsize>>,
    /// Shared count of the listeners for requests that change groups and meters. If the value is `None`, no requests
    /// are queued.
    requests: Option<Arc<AtomicUsize>>,
}

/// A position in the event queue, for the removal of the events queued after this position.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    count: usize,
    octets: usize,
    lost: u64,
    has_lost_change: bool,
}

impl Events {
    /// Returns whether all changes of rules are queued. If not, only the removals of rules that have the flag for a
    /// removal message are queued.
    pub fn is_monitored(&self) -> bool {
        self.monitors.as_ref().is_none_or(|monitors| monitors.load(Ordering::Relaxed) > 0)
    }

    pub fn set_monitors(&mut self, monitors: Arc<AtomicUsize>) {
        self.monitors = Some(monitors);
    }

    /// Returns whether requests that change groups and meters are queued.
    pub fn forwards_requests(&self) -> bool {
        self.requests.as_ref().is_some_and(|requests| requests.load(Ordering::Relaxed) > 0)
    }

    pub fn set_requests(&mut self, requests: Arc<AtomicUsize>) {
        self.requests = Some(requests);
    }

    /// Queues an event for the flow monitors. The closure `event` creates the event. After an event for the monitors
    /// was dropped for lack of memory, the monitors must read all rules again. Until the queue is read, additional
    /// events are therefore counted and not created.
    pub fn queue_change(&mut self, event: impl FnOnce() -> Event) {
        if self.has_lost_change {
            self.lost += 1;
            return;
        }
        let lost = self.lost;
        self.queue(event());
        self.has_lost_change = self.lost > lost;
    }

    /// Queues an event. If the memory limit is reached, drops and counts the event.
    pub fn queue(&mut self, event: Event) {
        let octets = event.memory();
        if self.octets.saturating_add(octets) > MEMORY {
            self.lost += 1;
            return;
        }
        self.octets += octets;
        self.list.push(event);
    }

    /// Queues an event that contains events taken from this queue. The memory limit is not applied, because it was
    /// applied when the contained events were first queued.
    pub fn queue_taken(&mut self, event: Event) {
        self.octets = self.octets.saturating_add(event.memory());
        self.list.push(event);
    }

    /// Returns the queued events and empties the queue. If events were dropped, the last event is
    /// [`Event::Lost`] with the number of dropped events.
    pub fn take(&mut self) -> Vec<Event> {
        let mut list = std::mem::take(&mut self.list);
        let (_, lost) = (std::mem::take(&mut self.octets), std::mem::take(&mut self.lost));
        self.has_lost_change = false;
        list.extend((lost > 0).then_some(Event::Lost(lost)));
        list
    }

    /// Returns the current position in the event queue.
    pub fn mark(&self) -> Mark {
        let Events { octets, lost, has_lost_change, .. } = *self;
        Mark { count: self.list.len(), octets, lost, has_lost_change }
    }

    /// Removes the events that were queued since `mark`.
    pub fn back_to(&mut self, mark: Mark) {
        self.list.truncate(mark.count);
        (self.octets, self.lost) = (mark.octets, mark.lost);
        self.has_lost_change = mark.has_lost_change;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an event that uses a quarter of the memory of the queue.
    fn large() -> Event {
        let packet = crate::flow::PacketIn { frame: vec![0; MEMORY / 4], ..packet() };
        Event::PacketIn(packet)
    }

    fn packet() -> crate::flow::PacketIn {
        crate::flow::PacketIn {
            reason: crate::flow::Reason::Miss,
            table: 0,
            cookie: 0,
            flow: crate::flow::Flow::ZERO,
            frame: Vec::new(),
            max_len: 0,
            controller: 0,
            userdata: Vec::new(),
            continuation: None,
        }
    }

    /// A change of very many rules creates no more events than the queue holds. Additional events are only counted.
    #[test]
    fn events_beyond_the_memory_of_the_queue_are_not_created() {
        let mut events = Events::default();
        let mut created = 0;
        for _ in 0..65_535 {
            events.queue_change(|| {
                created += 1;
                large()
            });
        }
        assert_eq!(created, 4, "the last one does not fit");
        let told = events.take();
        assert_eq!((told.len(), told.last()), (4, Some(&Event::Lost(65_532))));
        events.queue_change(large);
        assert_eq!(events.take().len(), 1, "after the queue was read, there is space");
        // Events that are queued again as parts of another event are not dropped.
        (0..5).for_each(|_| events.queue(large()));
        let caused = events.take();
        assert_eq!((caused.len(), caused.last()), (4, Some(&Event::Lost(2))));
        events.queue_taken(Event::Caused(crate::flow::Origin { session: 1, xid: 2 }, caused));
        assert!(matches!(&events.take()[..], [Event::Caused(_, caused)] if caused.len() == 4));
        // A packet-in that does not fit into the queue does not count as a lost change of a rule.
        (0..4).for_each(|_| events.queue(large()));
        events.queue_change(|| Event::PacketIn(packet()));
        assert_eq!((events.take().len(), events.lost), (5, 0));
    }
}
