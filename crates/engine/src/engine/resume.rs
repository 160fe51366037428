//! Starting behind a hand-over, in two steps: first every worker gets its queues, the snapshot and the counters of its predecessor
//! without running, then all workers start. Between the two steps no packet is touched, so that the predecessor can still take
//! everything back.

use packet::{PortId, QueueId, WorkerId};
use port::{Depot, Queue};
use std::sync::Arc;

use super::{AbortOnPanic, Engine, EngineConfig, EngineError, owned};
use crate::counters::PortTotals;
use crate::state::Forwarding;
use crate::worker::Worker;

/// An engine whose workers have their queues and do not run yet.
pub struct Resumed {
    engine: Engine,
    workers: Vec<Worker>,
}

impl Engine {
    /// Makes the workers with queues and a snapshot that are there from the first round on: after a hand-over, where packets wait
    /// in the queues already, none meets a worker that does not know its way yet. The workers start with [`Resumed::run`].
    ///
    /// # Errors
    /// As [`Self::start`], and [`EngineError::NoSuchWorker`].
    pub fn resume(
        config: &EngineConfig,
        depot: Arc<Depot>,
        forwarding: Forwarding,
        queues: Vec<(WorkerId, PortId, QueueId, Box<dyn Queue>)>,
    ) -> Result<Resumed, EngineError> {
        let (engine, mut workers) = Self::prepare_with(config, depot, forwarding)?;
        let count = workers.len();
        for (worker, port, id, queue) in queues {
            let own = workers.get_mut(worker.index()).ok_or(EngineError::NoSuchWorker(worker.0, count))?;
            own.add(owned(worker, port, id, queue));
        }
        Ok(Resumed { engine, workers })
    }
}

impl Resumed {
    /// Lets a port's counters go on from what the predecessor has counted.
    pub fn count(&self, port: PortId, before: &PortTotals) {
        // The decider writes this block, and does not run yet.
        self.engine.decided.port(port).add(before);
    }

    /// Starts the workers.
    ///
    /// # Errors
    /// [`EngineError::Os`] if a thread cannot be had.
    pub fn run(self) -> Result<Engine, EngineError> {
        let Resumed { mut engine, workers } = self;
        for (index, worker) in workers.into_iter().enumerate() {
            let core = engine.workers[index].core;
            let id = u16::try_from(index).unwrap_or(u16::MAX);
            let thread = std::thread::Builder::new()
                .name(format!("trivium-w{index}"))
                .spawn(move || {
                    let _guard = AbortOnPanic(id);
                    if let Some(core) = core {
                        // A core that is not ours to use costs speed, not correctness; doctor tells.
                        let _ = sync::cpu::pin_current_thread(core);
                    }
                    worker.run();
                })
                .map_err(|source| EngineError::Os { worker: id, what: "starting a thread", source })?;
            engine.workers[index].thread = Some(thread);
        }
        Ok(engine)
    }
}
