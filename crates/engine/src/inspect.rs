//! Statistics of the queues, which a control thread collects from the workers about once a second. The statistics
//! consist of packets lost in the kernel, the state of the device, and the operating mode of the queue. When a worker
//! answers, it also counts as dropped the packets that the kernel refused to transmit, so that every packet is counted.
//! No code in this module runs per packet.

use packet::{DropReason, PortId, QueueId};
use port::{QueueCounters, QueueState, QueueStatus};

use crate::stage::WorkerContext;
use crate::stage::transmit::OwnedQueue;

/// Statistics of one queue, which the queue's worker reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueView {
    /// Port to which the queue belongs.
    pub port: PortId,
    /// Identifier of the queue within its port.
    pub queue: QueueId,
    /// Numbers of packets that the kernel has lost or refused since the queue was opened.
    pub counters: QueueCounters,
    /// Operating mode of the queue (for example zero-copy or copy mode).
    pub status: QueueStatus,
    /// State of the queue's device: up, down or deleted.
    pub state: QueueState,
}

/// Number of frames of the shared frame memory at each location. Workers report their numbers one after the other, so
/// the sum is exact only while no packet moves between workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameCensus {
    /// Number of all frames in the shared frame memory.
    pub total: usize,
    /// Number of free frames in the depot and in the workers' pools.
    pub free: usize,
    /// Number of frames in the workers' queues, including frames that the kernel holds.
    pub queued: usize,
    /// Number of frames of closed zero-copy queues that are not reused yet because the kernel may still access them.
    pub quarantined: usize,
    /// Number of quarantined frames that the kernel has not returned within the expected time.
    pub overdue: usize,
}

impl FrameCensus {
    /// Returns the number of frames that no field counts. These frames hold packets in rings between queues, or belong
    /// to control threads.
    #[must_use]
    pub fn others(&self) -> usize {
        self.total.saturating_sub(self.free + self.queued + self.quarantined)
    }
}

/// Counts as dropped the packets that the kernel has refused since the last inspection of the queue, and returns the
/// queue's counters. `seen` is the total number of refused packets at the last inspection, and is updated.
pub(crate) fn settle(own: &OwnedQueue, seen: &mut u64, context: &WorkerContext) -> QueueCounters {
    let counters = own.queue.counters();
    let refused = counters.tx_invalid.saturating_sub(*seen);
    if refused > 0 {
        let gone = own.queue.state() == QueueState::Gone;
        let reason = if gone { DropReason::DeviceGone } else { DropReason::TxFailed };
        context.counters.port(own.port).refuse_n(reason, refused);
    }
    *seen = counters.tx_invalid;
    counters
}

/// Counts as dropped the packets that are still in a queue's transmit ring, if the queue's device was deleted.
pub(crate) fn abandon(own: &OwnedQueue, context: &WorkerContext) {
    if own.queue.state() == QueueState::Gone {
        let left = u64::try_from(own.queue.in_flight()).unwrap_or(u64::MAX);
        context.counters.port(own.port).refuse_n(DropReason::DeviceGone, left);
    }
}

/// Builds a worker's answer to `Command::Inspect`, with one entry for each of the worker's queues.
pub(crate) fn views(queues: &[OwnedQueue], refused: &mut [u64], context: &WorkerContext) -> Vec<QueueView> {
    let view = |(own, seen): (&OwnedQueue, &mut u64)| QueueView {
        port: own.port,
        queue: own.id,
        counters: settle(own, seen, context),
        status: own.queue.status(),
        state: own.queue.state(),
    };
    queues.iter().zip(refused).map(view).collect()
}
