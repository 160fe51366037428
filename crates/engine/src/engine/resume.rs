//! Start of an engine after a hand-over from a predecessor process, in two steps. The first step creates all
//! workers with their queues, the snapshot and the predecessor's counters. The second step starts the
//! workers. No packet is processed between the two steps, so the predecessor can still take back its queues.

use packet::{PortId, QueueId, WorkerId};
use port::{Depot, Queue};
use std::sync::Arc;

use super::{AbortOnPanic, Engine, EngineConfig, EngineError, owned};
use crate::counters::PortTotals;
use crate::state::Forwarding;
use crate::worker::Worker;

/// An engine whose workers have queues but whose threads have not been started.
pub struct Resumed {
    engine: Engine,
    workers: Vec<Worker>,
}

impl Engine {
    /// Creates an engine whose workers have their queues and the forwarding snapshot before their first round. After a
    /// hand-over, packets already wait in the queues. Each of these packets is processed with the complete snapshot.
    /// [`Resumed::run`] starts the workers.
    ///
    /// # Errors
    /// The errors of [`Self::start`], and [`EngineError::NoSuchWorker`] if a queue is assigned to a worker
    /// that does not exist.
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
    /// Increases the counters of a port by `before`, the values that the predecessor process has counted for the port.
    pub fn count(&self, port: PortId, before: &PortTotals) {
        // The slow path is the only writer of this block and does not run yet.
        self.engine.decided.port(port).add(before);
    }

    /// Starts the worker threads.
    ///
    /// # Errors
    /// [`EngineError::Os`] if a thread cannot be created.
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
                        // A failure to pin the thread reduces speed, not correctness. `trivium doctor`
                        // reports the failure.
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
