//! The queue of events of a bridge's tables, bounded in octets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::message::Event;

/// Maximum octets of memory of the events in the queue.
const MEMORY: usize = 128 << 20;

/// The queued events, in order. See the [module](self).
#[derive(Default)]
pub(super) struct Events {
    list: Vec<Event>,
    /// Approximate octets of memory of the queued events.
    octets: usize,
    /// Number of events dropped for lack of memory.
    lost: u64,
    /// Number of listeners for all changes of rules. `None` if the consumer of the queue listens.
    monitors: Option<Arc<AtomicUsize>>,
    /// Number of listeners for requests that change groups and meters. `None` for no listeners.
    requests: Option<Arc<AtomicUsize>>,
}

/// A position in the queue, to which it can be rolled back.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    count: usize,
    octets: usize,
    lost: u64,
}

impl Events {
    /// Returns whether all changes of rules are queued. Otherwise only removals are queued, of rules that
    /// request a removal message.
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

    /// Queues an event if the memory limit allows it.
    pub fn tell(&mut self, event: Event) {
        let octets = event.memory();
        if self.octets.saturating_add(octets) > MEMORY {
            self.lost += 1;
            return;
        }
        self.octets += octets;
        self.list.push(event);
    }

    /// Takes the queued events. A last event [`Event::Lost`] holds the number of dropped events, if any.
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

    /// Removes the events queued since `mark`.
    pub fn back_to(&mut self, mark: Mark) {
        self.list.truncate(mark.count);
        (self.octets, self.lost) = (mark.octets, mark.lost);
    }
}
