//! What has happened to a bridge's tables and is not taken yet, bounded in octets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::message::Event;

/// Octets of memory that events take at most until they are taken.
const MEMORY: usize = 128 << 20;

/// Events in their order. See the [module](self).
#[derive(Default)]
pub(super) struct Events {
    list: Vec<Event>,
    /// Octets of memory that they take, about.
    octets: usize,
    /// Events for which there was no memory.
    lost: u64,
    /// How many listeners hear of every change of rules; `None`: whoever takes the events does.
    monitors: Option<Arc<AtomicUsize>>,
    /// How many listeners hear of the requests that change groups and meters; `None`: no listener does.
    requests: Option<Arc<AtomicUsize>>,
}

/// How far events had come.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    count: usize,
    octets: usize,
    lost: u64,
}

impl Events {
    /// Whether every change of rules is told, not only the end of those that ask for it.
    pub fn is_monitored(&self) -> bool {
        self.monitors.as_ref().is_none_or(|monitors| monitors.load(Ordering::Relaxed) > 0)
    }

    pub fn set_monitors(&mut self, monitors: Arc<AtomicUsize>) {
        self.monitors = Some(monitors);
    }

    /// Whether requests that change groups and meters are told.
    pub fn forwards_requests(&self) -> bool {
        self.requests.as_ref().is_some_and(|requests| requests.load(Ordering::Relaxed) > 0)
    }

    pub fn set_requests(&mut self, requests: Arc<AtomicUsize>) {
        self.requests = Some(requests);
    }

    /// Adds an event, if there is memory for it.
    pub fn tell(&mut self, event: Event) {
        let octets = event.memory();
        if self.octets.saturating_add(octets) > MEMORY {
            self.lost += 1;
            return;
        }
        self.octets += octets;
        self.list.push(event);
    }

    /// Takes them, in the end how many were lost.
    pub fn take(&mut self) -> Vec<Event> {
        let mut list = std::mem::take(&mut self.list);
        let (_, lost) = (std::mem::take(&mut self.octets), std::mem::take(&mut self.lost));
        list.extend((lost > 0).then_some(Event::Lost(lost)));
        list
    }

    /// Where they have come.
    pub fn mark(&self) -> Mark {
        Mark { count: self.list.len(), octets: self.octets, lost: self.lost }
    }

    /// Forgets what was told since.
    pub fn back_to(&mut self, mark: Mark) {
        self.list.truncate(mark.count);
        (self.octets, self.lost) = (mark.octets, mark.lost);
    }
}
