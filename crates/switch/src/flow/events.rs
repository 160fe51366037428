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
    /// Shared counter of the listeners for changes of rules. If the value is `None`, all changes are queued.
    monitors: Option<Arc<AtomicUsize>>,
    /// Shared counter of the listeners for requests that change groups and meters. If the value is `None`, no
    /// requests are queued.
    requests: Option<Arc<AtomicUsize>>,
}

/// A position in the event queue, for the removal of the events queued after this position.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    count: usize,
    octets: usize,
    lost: u64,
}

impl Events {
    /// Returns whether all changes of rules are queued. If not, only the removals of rules that request a
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

    /// Queues an event. Drops and counts the event if the memory limit does not allow it.
    pub fn queue(&mut self, event: Event) {
        let octets = event.memory();
        if self.octets.saturating_add(octets) > MEMORY {
            self.lost += 1;
            return;
        }
        self.octets += octets;
        self.list.push(event);
    }

    /// Returns the queued events and empties the queue. If events were dropped, the last event is
    /// [`Event::Lost`] with their number.
    pub fn take(&mut self) -> Vec<Event> {
        let mut list = std::mem::take(&mut self.list);
        let (_, lost) = (std::mem::take(&mut self.octets), std::mem::take(&mut self.lost));
        list.extend((lost > 0).then_some(Event::Lost(lost)));
        list
    }

    /// Returns the current position in the event queue.
    pub fn mark(&self) -> Mark {
        Mark { count: self.list.len(), octets: self.octets, lost: self.lost }
    }

    /// Removes the events that were queued since `mark`.
    pub fn back_to(&mut self, mark: Mark) {
        self.list.truncate(mark.count);
        (self.octets, self.lost) = (mark.octets, mark.lost);
    }
}
