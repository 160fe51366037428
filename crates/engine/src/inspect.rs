//! Queue statistics, collected from the workers about once a second: losses in the kernel, queue states and
//! driver status. With each answer, a worker counts the packets that the kernel refused after transmission as
//! dropped, so that every packet is accounted for. No code in this module runs per packet.

use std::sync::mpsc;
use std::time::Duration;

use packet::{DropReason, PortId, QueueId, WorkerId};
use port::{QueueCounters, QueueState, QueueStatus};

use crate::Engine;
use crate::stage::Tools;
use crate::stage::transmit::OwnedQueue;
use crate::worker::Command;

/// Statistics of one queue, as reported by its worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueView {
    /// Port of the queue.
    pub port: PortId,
    /// Number of the queue within its port.
    pub queue: QueueId,
    /// Losses in the kernel since the queue was opened.
    pub counters: QueueCounters,
    /// Operating mode of the queue.
    pub status: QueueStatus,
    /// Whether the queue's device is present.
    pub state: QueueState,
}

/// Locations of the frames of the shared memory. Workers report one after the other, so the numbers are exact
/// only while no packet is in transit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameCensus {
    /// Number of all frames.
    pub total: usize,
    /// Number of free frames.
    pub free: usize,
    /// Number of frames in queues, including frames that the kernel holds.
    pub queued: usize,
    /// Number of frames of closed zero-copy queues that the kernel may still use.
    pub quarantined: usize,
    /// Number of quarantined frames that have been held longer than the kernel should need.
    pub overdue: usize,
}

impl FrameCensus {
    /// Returns the number of frames that hold packets or that control threads use.
    #[must_use]
    pub fn others(&self) -> usize {
        self.total.saturating_sub(self.free + self.queued + self.quarantined)
    }
}

/// Time limit for a worker's answer.
const PATIENCE: Duration = Duration::from_secs(1);

impl Engine {
    /// Returns the statistics of all queues, without the queues of workers that do not answer.
    #[must_use]
    pub fn inspect(&self) -> Vec<QueueView> {
        let (sender, answers) = mpsc::channel();
        let mut asked = 0;
        for worker in (0_u16..).map(WorkerId).take(self.workers()) {
            if self.tell(worker, Command::Inspect(sender.clone())).is_ok() {
                asked += 1;
            }
        }
        let mut all = Vec::new();
        for _ in 0..asked {
            let Ok(views) = answers.recv_timeout(PATIENCE) else { break };
            all.extend(views);
        }
        all
    }
}

impl Engine {
    /// Returns the locations of all frames, or `None` when a worker does not answer.
    #[must_use]
    pub fn frames(&self) -> Option<FrameCensus> {
        let total = usize::try_from(self.depot().memory().frames()).unwrap_or(usize::MAX);
        let mut census = FrameCensus {
            total,
            free: self.depot().available(),
            queued: 0,
            quarantined: self.depot().quarantined(),
            overdue: self.depot().overdue(),
        };
        for worker in (0_u16..).map(WorkerId).take(self.workers()) {
            let (sender, answer) = mpsc::channel();
            self.tell(worker, Command::Frames(sender)).ok()?;
            let (free, queued) = answer.recv_timeout(PATIENCE).ok()?;
            census.free += free;
            census.queued += queued;
        }
        Some(census)
    }
}

/// Counts packets that the kernel has refused since the last inspection as dropped. `seen` is the number of
/// packets refused until then.
pub(crate) fn settle(own: &OwnedQueue, seen: &mut u64, tools: &Tools) -> QueueCounters {
    let counters = own.queue.counters();
    let refused = counters.tx_invalid.saturating_sub(*seen);
    if refused > 0 {
        let gone = own.queue.state() == QueueState::Gone;
        let reason = if gone { DropReason::DeviceGone } else { DropReason::TxFailed };
        tools.counters.port(own.port).refuse_n(reason, refused);
    }
    *seen = counters.tx_invalid;
    counters
}

/// Counts the packets that are still in a queue whose device is gone as dropped.
pub(crate) fn abandon(own: &OwnedQueue, tools: &Tools) {
    if own.queue.state() == QueueState::Gone {
        let left = u64::try_from(own.queue.in_flight()).unwrap_or(u64::MAX);
        tools.counters.port(own.port).refuse_n(DropReason::DeviceGone, left);
    }
}

/// Returns a worker's answer to [`Command::Inspect`].
pub(crate) fn views(queues: &[OwnedQueue], refused: &mut [u64], tools: &Tools) -> Vec<QueueView> {
    let view = |(own, seen): (&OwnedQueue, &mut u64)| QueueView {
        port: own.port,
        queue: own.id,
        counters: settle(own, seen, tools),
        status: own.queue.status(),
        state: own.queue.state(),
    };
    queues.iter().zip(refused).map(view).collect()
}
