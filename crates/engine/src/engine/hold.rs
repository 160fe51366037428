//! Bringing the workers to a halt between packets: to end them, or to give a queue to another worker. Meanwhile packets wait in the
//! kernel's rings.

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use packet::{PortId, QueueId, WorkerId};

use super::{Engine, EngineError, Handle, PATIENCE, Returned};
use crate::stage::spread::Applied;
use crate::stage::transmit::OwnedQueue;
use crate::worker::Command;

/// How long the workers have to finish what they hold before a move is given up; rings fill up meanwhile.
const HALT: Duration = Duration::from_millis(500);

impl Engine {
    fn ids(&self) -> impl Iterator<Item = WorkerId> + use<> {
        (0_u16..).map(WorkerId).take(self.workers.len())
    }

    /// Lets the workers receive nothing more and finish what they hold. The number of one that has not within `patience`, if any.
    ///
    /// Two looks, one after the other: once each worker has been seen with nothing to do, none receives any more; what the last to
    /// receive has handed to others is done when each has been seen so again. (A worker whose output others have not taken counts as
    /// busy.)
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

    /// Gives the queues of a port to the workers named in `homes`, and has its packets leave by the first of them; the others stay
    /// where they are. No packet is lost or overtaken: the workers halt for it, for about a millisecond.
    ///
    /// # Errors
    /// [`EngineError::NoSuchWorker`], or [`EngineError::Silent`] when a worker does not answer or does not finish: everything stays
    /// where it was then, as far as workers answer.
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
            // One that does not answer is not receiving in any case.
            let _ = self.tell(worker, Command::Resume);
        }
        moved
    }

    /// The move itself, of workers at a halt.
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
                own.spread = Applied::new(worker);
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

    /// Stops the workers: they receive nothing more, finish what they hold, and give their queues back. What the kernel holds
    /// in the queues' rings stays there, for a successor.
    ///
    /// # Errors
    /// [`EngineError::Silent`] when a worker does not answer within five seconds.
    pub fn stop(mut self) -> Result<Vec<Returned>, EngineError> {
        // One that does not finish is stopped all the same: what it holds goes back to the pool.
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
