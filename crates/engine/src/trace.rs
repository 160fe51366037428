//! Traces, which report how the next packets that match a filter are processed. During a trace, workers
//! process the packets of a burst one by one and run the usual stages with a recorder.

use std::sync::atomic::{AtomicU32, Ordering};

use arrayvec::ArrayVec;
use packet::filter::Filter;
use packet::record::{Recorder, Step};
use packet::{FlowKey, PortId, WorkerId};

/// Maximum number of steps that are recorded for one packet. Additional steps are not recorded, for example those of a
/// flood to many ports.
pub const STEPS: usize = 48;

/// Criteria that select the packets to trace, with the number of packets that are still to be traced.
#[derive(Debug)]
pub struct TraceFilter {
    filters: Vec<Filter>,
    also: Filter,
    left: AtomicU32,
}

impl TraceFilter {
    /// Creates criteria that select the next `n` packets that match at least one of `filters`.
    #[must_use]
    pub fn new(filters: impl IntoIterator<Item = Filter>, n: u32) -> Self {
        Self { filters: filters.into_iter().collect(), also: Filter::default(), left: AtomicU32::new(n) }
    }

    /// Restricts the criteria to packets that also match `filter`.
    #[must_use]
    pub fn and(self, filter: Filter) -> Self {
        Self { also: filter, ..self }
    }

    /// Returns whether a packet with flow key `key` is to be traced. If so, the packet counts as traced.
    pub fn claims(&self, key: &FlowKey) -> bool {
        self.also.matches(key)
            && self.filters.iter().any(|filter| filter.matches(key))
            && self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
    }

    /// Returns the number of packets that are still to be traced.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.left.load(Ordering::Relaxed)
    }
}

/// Report of a trace about the processing of one packet.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Worker that processed the traced packet.
    pub worker: WorkerId,
    /// Port on which the traced packet arrived.
    pub port: PortId,
    /// Length of the traced packet in bytes.
    pub len: u32,
    /// Flow key of the packet on arrival, or `None` if the L2 header could not be parsed.
    pub key: Option<FlowKey>,
    /// Steps of the processing, in order. At most `STEPS` steps are recorded.
    pub steps: ArrayVec<Step, STEPS>,
}

/// A recorder that stores the processing steps of one packet.
#[derive(Debug, Default)]
pub struct TraceRecorder {
    /// Processing steps that have been recorded so far.
    pub steps: ArrayVec<Step, STEPS>,
}

impl TraceRecorder {
    /// Returns whether the last recorded step handed the packet to another worker by software RSS.
    #[must_use]
    pub fn handed_over(&self) -> bool {
        matches!(self.steps.last(), Some(Step::SoftwareRss { .. }))
    }
}

impl Recorder for TraceRecorder {
    const ACTIVE: bool = true;
    const DRY: bool = false;
    fn step(&mut self, _index: usize, step: Step) {
        let _ = self.steps.try_push(step);
    }
}
