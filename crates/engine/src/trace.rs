//! The next packets that match a filter, stage by stage: while a trace is armed, workers take their bursts one packet at a time
//! and run the same stages with a recorder.

use std::sync::atomic::{AtomicU32, Ordering};

use arrayvec::ArrayVec;
use packet::filter::Filter;
use packet::record::{Recorder, Step};
use packet::{FlowKey, PortId, WorkerId};

/// Most steps kept of one packet; a flood to more ports than that is cut short.
pub const STEPS: usize = 48;

/// What is looked for.
#[derive(Debug)]
pub struct TraceFilter {
    filters: Vec<Filter>,
    also: Filter,
    left: AtomicU32,
}

impl TraceFilter {
    /// The next `n` packets that match one of `filters`.
    #[must_use]
    pub fn new(filters: impl IntoIterator<Item = Filter>, n: u32) -> Self {
        Self { filters: filters.into_iter().collect(), also: Filter::default(), left: AtomicU32::new(n) }
    }

    /// Of those, only the ones that match `filter` too.
    #[must_use]
    pub fn and(self, filter: Filter) -> Self {
        Self { also: filter, ..self }
    }

    /// Whether this packet is one of them; takes one off the count if so.
    pub fn claims(&self, key: &FlowKey) -> bool {
        self.also.matches(key)
            && self.filters.iter().any(|filter| filter.matches(key))
            && self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
    }

    /// Packets still looked for.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.left.load(Ordering::Relaxed)
    }
}

/// One packet's way.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Worker that had it.
    pub worker: WorkerId,
    /// Port it arrived on.
    pub port: PortId,
    /// Length in bytes.
    pub len: u32,
    /// Its flow key as it arrived; `None` when its L2 header could not be read.
    pub key: Option<FlowKey>,
    /// What happened to it.
    pub steps: ArrayVec<Step, STEPS>,
}

/// Notes the steps of the one packet in hand.
#[derive(Debug, Default)]
pub struct TraceRecorder {
    /// The steps so far.
    pub steps: ArrayVec<Step, STEPS>,
}

impl TraceRecorder {
    /// Whether the last that this worker did with the packet was to hand it to the worker of its flow bucket.
    #[must_use]
    pub fn handed_over(&self) -> bool {
        matches!(self.steps.last(), Some(Step::Spread { .. }))
    }
}

impl Recorder for TraceRecorder {
    const ACTIVE: bool = true;
    const DRY: bool = false;
    fn step(&mut self, _index: usize, step: Step) {
        let _ = self.steps.try_push(step);
    }
}
