//! Context of a burst: the parts of a worker that the functions of ports share while a burst passes the stages
//! of one port.

use packet::PortId;
use switch::Now;
use sync::cpu::tsc;
use sync::qsbr::Reader;

use super::context::WorkerContext;
use super::egress::Egress;
use crate::counters::Stage;
use crate::state::Forwarding;

/// Context of a burst that arrived on one port. `R` is the type of the recorder of the packets' processing steps.
pub struct Context<'a, 'w, R> {
    /// Snapshot of all ports and their functions.
    pub forwarding: &'a Forwarding,
    /// Port on which the packets arrived.
    pub port: PortId,
    /// The worker's QSBR reader (quiescent-state-based reclamation), which is needed for table lookups.
    pub reader: &'a Reader,
    /// Time at which the worker's round began.
    pub now: Now,
    /// Destinations to which the worker sends packets: its own queues, other workers, or the output list of a dry run.
    pub egress: &'a mut Egress<'w>,
    /// State of the worker that no other thread uses.
    pub worker: &'a mut WorkerContext,
    /// Recorder of the packets' processing steps, for explanations and traces.
    pub recorder: &'a mut R,
    /// Time in TSC cycles at which the current stage began.
    pub begin: u64,
}

impl<R> Context<'_, '_, R> {
    /// Adds the number of packets and the time since the current stage began to the counters of `stage`, and begins the
    /// next stage.
    #[inline]
    pub fn count(&mut self, stage: Stage, packets: usize) {
        self.begin = count(self.worker, stage, packets, self.begin);
    }
}

/// Adds the number of packets and the time since `begin` to the counters of a stage. Returns the current time in TSC
/// cycles, at which the next stage begins.
#[inline]
pub(crate) fn count(worker: &WorkerContext, stage: Stage, packets: usize, begin: u64) -> u64 {
    let now = tsc();
    let counters = &worker.counters.stages[stage as usize];
    counters.packets.add(packets as u64);
    counters.cycles.add(now.wrapping_sub(begin));
    now
}
