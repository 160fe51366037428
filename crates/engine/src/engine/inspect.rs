//! Collects the statistics of queues and frames for control threads. The workers produce the statistics with
//! [`crate::inspect`].

use std::sync::mpsc;
use std::time::Duration;

use packet::WorkerId;

use super::Engine;
use crate::inspect::{FrameCensus, QueueView};
use crate::worker::Command;

/// Maximum time that a control thread waits for a worker's answer.
const PATIENCE: Duration = Duration::from_secs(1);

impl Engine {
    /// Returns the statistics of all queues. The call waits at most a second for each answer of a worker. If a
    /// worker does not answer, the statistics of its queues are missing.
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

    /// Returns the numbers of packet frames that are free, in queues, or quarantined (not reused yet because the kernel
    /// may still access them). Returns `None` if a worker does not answer.
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
