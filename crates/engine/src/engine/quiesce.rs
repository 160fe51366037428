//! Quiescing of the workers, which is needed to stop workers or to move a queue to another worker.
//! Quiesced workers receive no packets and have finished all packets that they received earlier.
//! Arriving packets wait in the kernel's rings during this time.

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use packet::{PortId, QueueId, WorkerId};

use super::{Engine, EngineError, Handle, PATIENCE, Returned};
use crate::stage::software_rss::Applied;
use crate::stage::transmit::OwnedQueue;
use crate::worker::Command;

/// Maximum time that the workers may take to process their remaining packets before queues are moved. After
/// this time, the move is abandoned. The time is limited because the kernel's rings fill up meanwhile.
const HALT: Duration = Duration::from_millis(500);

impl Engine {
    fn ids(&self) -> impl Iterator<Item = WorkerId> + use<> {
        (0_u16..).map(WorkerId).take(self.workers.len())
    }

    /// Stops reception on all workers and waits until the workers have finished their packets.
    /// Returns `None` if all workers have become idle. If a worker is still busy after `patience`,
    /// returns the index of this worker.
    ///
    /// Each worker is checked twice. After the first check, no worker receives packets any more, but workers may have
    /// handed packets to other workers in the meantime. The second check waits until each worker is idle again, so
    /// these packets are finished as well. A worker counts as busy until other workers have taken its packets from the
    /// output rings.
    fn quieten(&self, patience: Duration) -> Result<Option<u16>, EngineError> {
        let begin = Instant::now();
        for _ in 0..2 {
            let look = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
            for worker in self.ids() {
                self.tell(worker, Command::Drain(look))?;
            }
            let busy = |handle: &Handle| handle.status.quiet.load(Ordering::Acquire) < look;
            while let Some((worker, _)) = self.ids().zip(&self.workers).find(|(_, handle)| busy(handle)) {
                if begin.elapsed() > patience {
                    return Ok(Some(worker.0));
                }
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        Ok(None)
    }

    /// Moves queues of a port to the workers that `homes` specifies. The first of these workers transmits on behalf of
    /// all workers that have no queue of the port. Queues that `homes` does not contain stay with their workers. All
    /// workers quiesce for about a millisecond, so no packet is lost or reordered.
    ///
    /// # Errors
    /// [`EngineError::NoSuchWorker`] if a worker does not exist, or [`EngineError::Silent`] if a worker does not answer
    /// or does not become idle. After an error, workers that answer keep their queues.
    pub fn move_queues(&self, port: PortId, homes: &[(QueueId, WorkerId)]) -> Result<(), EngineError> {
        if let Some((_, worker)) = homes.iter().find(|(_, worker)| worker.index() >= self.workers.len()) {
            return Err(EngineError::NoSuchWorker(worker.0, self.workers.len()));
        }
        let moved = match self.quieten(HALT) {
            Ok(None) => self.settle_queues(port, homes),
            Ok(Some(restless)) => Err(EngineError::Silent(restless)),
            Err(error) => Err(error),
        };
        for worker in self.ids() {
            // A worker that does not answer receives no packets in any case.
            let _ = self.tell(worker, Command::Resume);
        }
        moved
    }

    /// Moves a port's queues between workers that have been quiesced.
    fn settle_queues(&self, port: PortId, homes: &[(QueueId, WorkerId)]) -> Result<(), EngineError> {
        let mut queues: Vec<(WorkerId, OwnedQueue)> = Vec::new();
        let mut failed = None;
        for worker in self.ids() {
            match self.part(worker, port) {
                Ok(own) => queues.extend(own.into_iter().map(|own| (worker, own))),
                Err(error) => failed = Some(error),
            }
        }
        queues.sort_by_key(|(_, own)| own.id);
        for (former, mut own) in queues {
            let home = homes.iter().find(|(id, _)| *id == own.id).map_or(former, |(_, worker)| *worker);
            let worker = if failed.is_none() { home } else { former };
            if worker != former {
                own.rss = Applied::new(worker);
            }
            self.tell(worker, Command::Add(own))?;
        }
        if let Some(error) = failed {
            return Err(error);
        }
        self.update(|forwarding| {
            let view = forwarding.ports.get_mut(port.index()).and_then(Option::as_mut);
            if let (Some(view), Some((_, worker))) = (view, homes.first()) {
                view.tx_owner = *worker;
            }
        });
        Ok(())
    }

    fn part(&self, worker: WorkerId, port: PortId) -> Result<Vec<OwnedQueue>, EngineError> {
        let (sender, answer) = mpsc::channel();
        self.tell(worker, Command::Part(port, sender))?;
        answer.recv_timeout(PATIENCE).map_err(|_| EngineError::Silent(worker.0))
    }

    /// Stops the worker threads and returns their queues. The workers first stop reception and finish their
    /// packets. Packets in the kernel rings of the queues stay there for a successor process.
    ///
    /// # Errors
    /// [`EngineError::Silent`] when a worker does not answer within five seconds.
    pub fn stop(mut self) -> Result<Vec<Returned>, EngineError> {
        // A worker that does not become idle is stopped nevertheless. The frames of its packets return to the
        // pool.
        let _ = self.quieten(PATIENCE)?;
        let mut queues = Vec::new();
        for worker in self.ids() {
            let (sender, answer) = mpsc::channel();
            self.tell(worker, Command::Stop(sender))?;
            let own = answer.recv_timeout(PATIENCE).map_err(|_| EngineError::Silent(worker.0))?;
            queues.extend(own.into_iter().map(|own| (worker, own.port, own.id, own.queue)));
        }
        for handle in &mut self.workers {
            if let Some(thread) = handle.thread.take() {
                let _ = thread.join();
            }
        }
        Ok(queues)
    }
}
