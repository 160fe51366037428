//! How queues are doing, asked of the workers about once a second: losses on the kernel's side, states, and what a queue says
//! of itself. With each answer a worker counts what was given to a queue and refused by the kernel afterwards, so that
//! every packet is accounted for. Not on a packet's path.

use std::sync::mpsc;
use std::time::Duration;

use packet::{DropReason, PortId, QueueId, WorkerId};
use port::{QueueCounters, QueueState, QueueStatus};

use crate::Engine;
use crate::stage::Tools;
use crate::stage::transmit::OwnedQueue;
use crate::worker::Command;

/// One queue as its worker sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueView {
    /// Its port.
    pub port: PortId,
    /// Which of the port's queues.
    pub queue: QueueId,
    /// Losses on the kernel's side since the queue was opened.
    pub counters: QueueCounters,
    /// How it runs.
    pub status: QueueStatus,
    /// Whether its device is there.
    pub state: QueueState,
}

/// Where the frames of the shared memory are. Workers answer one after the other, so that the numbers are exact only where no packet
/// is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameCensus {
    /// All frames.
    pub total: usize,
    /// Free frames.
    pub free: usize,
    /// Frames in queues: in their rings, and with the kernel.
    pub queued: usize,
    /// Frames of closed zero-copy queues that the kernel may still have.
    pub quarantined: usize,
    /// Of these, frames that are held longer than the kernel should need.
    pub overdue: usize,
}

impl FrameCensus {
    /// Returns the number of frames that hold packets, or are in the hands of control threads.
    #[must_use]
    pub fn others(&self) -> usize {
        self.total.saturating_sub(self.free + self.queued + self.quarantined)
    }
}

/// How long workers have for an answer.
const PATIENCE: Duration = Duration::from_secs(1);

impl Engine {
    /// All queues; those of a worker that does not answer are left out.
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
    /// Counts the frames; `None` when a worker does not answer.
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

/// Counts what the kernel refused since the last look; `seen` is what had been refused by then.
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

/// Counts what still waits in a queue whose device is gone: it never leaves.
pub(crate) fn abandon(own: &OwnedQueue, tools: &Tools) {
    if own.queue.state() == QueueState::Gone {
        let left = u64::try_from(own.queue.in_flight()).unwrap_or(u64::MAX);
        tools.counters.port(own.port).refuse_n(DropReason::DeviceGone, left);
    }
}

/// A worker's answer.
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
