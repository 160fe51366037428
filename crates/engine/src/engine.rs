//! The handle that control threads hold: starts the workers, gives them queues, publishes snapshots, reads counters, and stops
//! them for a hand-over. Captures and traces are in `engine/watch.rs`, stops and moves of
//! queues in `engine/hold.rs`, starts behind a hand-over in `engine/resume.rs`. Nothing here is on a packet's path.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "control threads wait and lock; workers never do"
)]

mod hold;
mod resume;
mod watch;

pub use resume::Resumed;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use packet::{PortId, QueueId, WorkerId};
use port::{Depot, FramePool, Queue};
use sync::qsbr::Domain;
use sync::snapshot::Snapshot;
use sync::spsc::{Consumer, Producer, channel};

use crate::burst::Burst;
use crate::counters::{PortTotals, Stage, WorkerCounters};
use crate::decider::{Decider, KnownFlow};
use crate::explain::{self, Explained};
use crate::finish::Finisher;
use crate::handover::mesh;
use crate::rest::{PollMode, Rest, Waker};
use crate::stage::flows::{Flows, FlowsView};
use crate::stage::spread::Applied;
use crate::stage::transmit::OwnedQueue;
use crate::stage::{Punt, PuntRing, Tools};
use crate::state::Forwarding;
use crate::worker::{Change, Command, Status, Worker};

/// How the workers are to run.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// One worker per entry, pinned to that core; `None` leaves it to the scheduler.
    pub cores: Vec<Option<usize>>,
    /// Sleep when idle, or never.
    pub mode: PollMode,
    /// How long an adaptive worker polls in vain before it sleeps.
    pub spin: Duration,
    /// Whose readers the workers are: tables that they ask belong to it.
    pub domain: Arc<Domain>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            cores: vec![None],
            mode: PollMode::Adaptive,
            spin: Duration::from_micros(50),
            domain: domain(),
        }
    }
}

/// Why the engine could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A worker's descriptors could not be had.
    #[error("worker {worker}: {what} failed ({source}); raise the limit of open files (LimitNOFILE)")]
    Os {
        /// Worker.
        worker: u16,
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The configuration names no worker.
    #[error("engine.workers is empty; name at least one core, for example workers = [1]")]
    NoWorkers,
    /// More workers than one engine holds.
    #[error("engine.workers names {0} workers; at most 64 are possible")]
    TooManyWorkers(usize),
    /// No such worker.
    #[error("worker {0} does not exist; engine.workers has {1} entries")]
    NoSuchWorker(u16, usize),
    /// A worker did not answer.
    #[error("worker {0} does not answer; see `trivium show workers` and the log for a stuck queue")]
    Silent(u16),
    /// Somebody else captures or traces.
    #[error("a {0} is running already; end it first (Ctrl-C in its terminal), or wait for it")]
    Occupied(&'static str),
}

/// A queue taken from its worker.
pub type Removed = (WorkerId, QueueId, Box<dyn Queue>);
/// A queue that a stopped worker gave back, with its port.
pub type Returned = (WorkerId, PortId, QueueId, Box<dyn Queue>);

struct Handle {
    commands: Mutex<Producer<Command>>,
    waker: Arc<Waker>,
    status: Arc<Status>,
    core: Option<usize>,
    thread: Option<JoinHandle<()>>,
}

/// See the module documentation.
pub struct Engine {
    workers: Vec<Handle>,
    counters: Vec<Arc<WorkerCounters>>,
    /// What the decider counts of ports: drops of flows that are elsewhere than in the workers' caches.
    decided: Arc<WorkerCounters>,
    forwarding: Arc<Snapshot<Forwarding>>,
    depot: Arc<Depot>,
    domain: Arc<Domain>,
    capturing: Mutex<bool>,
    /// Halts asked for so far (`engine/hold.rs`).
    looks: AtomicU64,
}

/// What the threads of an engine count.
#[derive(Debug)]
pub struct Counts(Vec<Arc<WorkerCounters>>);

impl Counts {
    /// Returns a port's counters.
    #[must_use]
    pub fn port_totals(&self, port: PortId) -> PortTotals {
        PortTotals::sum(&self.0, port)
    }
}

/// A worker as shown.
#[derive(Clone, Debug)]
pub struct WorkerView {
    /// Which.
    pub id: WorkerId,
    /// Core it is pinned to.
    pub core: Option<usize>,
    /// It sleeps right now.
    pub asleep: bool,
    /// Bursts so far.
    pub bursts: u64,
    /// Packets so far.
    pub packets: u64,
    /// TSC cycles with work, polling in vain, asleep.
    pub cycles: [u64; 3],
    /// Times it went to sleep.
    pub sleeps: u64,
    /// Packets that other workers have handed to it.
    pub taken_over: u64,
}

/// A stage as shown, summed over the workers.
#[derive(Clone, Copy, Debug)]
pub struct StageView {
    /// Which.
    pub stage: Stage,
    /// Packets so far.
    pub packets: u64,
    /// TSC cycles so far.
    pub cycles: u64,
}

/// A domain for the workers of an engine and those who explain at the same time, before and after a hand-over that fails.
#[must_use]
pub fn domain() -> Arc<Domain> {
    Domain::with_max_readers(3 * MOST_WORKERS)
}

/// Most workers of one engine.
const MOST_WORKERS: usize = 64;
/// Messages that a worker's mailbox holds.
const MAILBOX: usize = 64;
/// Copies for the snooper that one worker's ring holds.
const PUNTS: usize = 256;
/// How long a worker may take to answer.
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(5) };

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// Starts the workers; they idle until they own queues.
    ///
    /// # Errors
    /// [`EngineError`] when there are no workers or the kernel refuses descriptors or threads.
    pub fn start(config: &EngineConfig, depot: Arc<Depot>) -> Result<Self, EngineError> {
        Self::resume(config, depot, Forwarding::default(), Vec::new())?.run()
    }

    /// The engine with its workers not started: benches and tests call [`Worker::round`] themselves.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn prepare(config: &EngineConfig, depot: Arc<Depot>) -> Result<(Self, Vec<Worker>), EngineError> {
        Self::prepare_with(config, depot, Forwarding::default())
    }

    fn prepare_with(
        config: &EngineConfig,
        depot: Arc<Depot>,
        forwarding: Forwarding,
    ) -> Result<(Self, Vec<Worker>), EngineError> {
        let n = config.cores.len();
        if n == 0 {
            return Err(EngineError::NoWorkers);
        }
        if n > MOST_WORKERS {
            return Err(EngineError::TooManyWorkers(n));
        }
        let os = |worker, what| move |source| EngineError::Os { worker, what, source };
        let domain = Arc::clone(&config.domain);
        let forwarding = Arc::new(Snapshot::new(&domain, forwarding));
        let mut wakers = Vec::with_capacity(n);
        for id in (0_u16..).take(n) {
            wakers.push(Arc::new(Waker::new().map_err(os(id, "eventfd"))?));
        }
        let spin = u64::try_from(config.spin.as_nanos()).unwrap_or(u64::MAX);
        let spin = u64::try_from(u128::from(spin) * u128::from(sync::cpu::tsc_hz()) / 1_000_000_000)
            .unwrap_or(u64::MAX);
        let (mut handles, mut workers, mut counters) = (Vec::new(), Vec::new(), Vec::new());
        for (id, links) in (0_u16..).zip(mesh(&wakers)) {
            let waker = wakers[usize::from(id)].clone();
            let block = Arc::new(WorkerCounters::default());
            let (mailbox, commands) = channel(MAILBOX);
            let status = Arc::new(Status::default());
            let reader = domain.register().map_err(|_| EngineError::TooManyWorkers(n))?;
            workers.push(Worker {
                forwarding: forwarding.clone(),
                reader,
                queues: Vec::new(),
                refused: Vec::new(),
                local: Vec::new(),
                burst: Burst::default(),
                tools: Tools::new(WorkerId(id), depot.pool(), block.clone()),
                links,
                rest: Rest::new(config.mode, spin, waker.clone()).map_err(os(id, "epoll"))?,
                commands,
                status: status.clone(),
                trace: None,
                version: u64::MAX,
                draining: None,
                finishing: crate::finish::Finishing::default(),
            });
            handles.push(Handle {
                commands: Mutex::new(mailbox),
                waker,
                status,
                core: config.cores[usize::from(id)],
                thread: None,
            });
            counters.push(block);
        }
        let engine = Self {
            workers: handles,
            counters,
            decided: Arc::default(),
            forwarding,
            depot,
            domain,
            capturing: Mutex::new(false),
            looks: AtomicU64::new(0),
        };
        Ok((engine, workers))
    }

    /// Number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// The stock of frames.
    #[must_use]
    pub fn depot(&self) -> &Arc<Depot> {
        &self.depot
    }

    /// Returns the number that tells this engine from others of this process: that of its depot.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.depot.generation()
    }

    pub(crate) fn tell(&self, worker: WorkerId, command: Command) -> Result<(), EngineError> {
        let handle = self
            .workers
            .get(worker.index())
            .ok_or(EngineError::NoSuchWorker(worker.0, self.workers.len()))?;
        let begin = Instant::now();
        let mut command = command;
        loop {
            match lock(&handle.commands).push(command) {
                Ok(()) => break,
                Err(back) if begin.elapsed() < PATIENCE => command = back,
                Err(_) => return Err(EngineError::Silent(worker.0)),
            }
            handle.waker.notify();
            std::thread::sleep(Duration::from_millis(1));
        }
        handle.waker.notify();
        Ok(())
    }

    /// The snapshot that workers act on.
    #[must_use]
    pub fn forwarding(&self) -> Arc<Forwarding> {
        self.forwarding.load_arc()
    }

    /// Publishes a changed snapshot. When this returns, no worker acts on the old one any more: a packet that arrives afterwards
    /// meets the new decision. A worker that sees the new one has obeyed all that it was told before.
    pub fn update(&self, change: impl FnOnce(&mut Forwarding)) {
        // Workers obey between rounds: after this, each does so before it begins a round.
        self.domain.synchronize();
        self.forwarding.update(|old| {
            let mut new = old.clone();
            change(&mut new);
            new.version = old.version.wrapping_add(1);
            new
        });
        self.domain.synchronize();
    }

    /// Gives a queue to a worker.
    ///
    /// # Errors
    /// [`EngineError::NoSuchWorker`], or [`EngineError::Silent`] when the worker's mailbox stays full.
    pub fn add_queue(
        &self,
        worker: WorkerId,
        port: PortId,
        id: QueueId,
        queue: Box<dyn Queue>,
    ) -> Result<(), EngineError> {
        self.tell(worker, Command::Add(owned(worker, port, id, queue)))
    }

    /// Takes a port's queues from all workers; what was transmitted has left before, or had a second to.
    ///
    /// # Errors
    /// [`EngineError::Silent`] when a worker does not answer; its queues stay.
    pub fn remove_queues(&self, port: PortId) -> Result<Vec<Removed>, EngineError> {
        let mut all = Vec::new();
        for worker in (0_u16..).map(WorkerId).take(self.workers.len()) {
            let (tx, rx) = mpsc::channel();
            self.tell(worker, Command::Remove(port, tx))?;
            let gone = rx.recv_timeout(PATIENCE).map_err(|_| EngineError::Silent(worker.0))?;
            all.extend(gone.into_iter().map(|own| (worker, own.id, own.queue)));
        }
        Ok(all)
    }

    /// Changes a port's queues between two of their bursts, without taking them from their workers: no packet is lost.
    ///
    /// # Errors
    /// [`EngineError::Silent`] when a worker does not answer.
    pub fn change_queues(
        &self,
        port: PortId,
        change: impl Fn(&mut dyn Queue) + Send + Sync + 'static,
    ) -> Result<(), EngineError> {
        let change: Change = Arc::new(change);
        for worker in (0_u16..).map(WorkerId).take(self.workers.len()) {
            let (tx, rx) = mpsc::channel();
            self.tell(worker, Command::Change(port, Arc::clone(&change), tx))?;
            rx.recv_timeout(PATIENCE).map_err(|_| EngineError::Silent(worker.0))?;
        }
        Ok(())
    }

    /// Lets a queue's worker tell how far it has come, or no longer.
    ///
    /// # Errors
    /// As of [`Engine::add_queue`].
    pub fn tell_progress(
        &self,
        worker: WorkerId,
        port: PortId,
        id: QueueId,
        to: Option<Box<dyn Finisher>>,
    ) -> Result<(), EngineError> {
        self.tell(worker, Command::Finish(port, id, to))
    }

    /// A pool for a control thread (captures, punts, injected packets).
    #[must_use]
    pub fn pool(&self) -> FramePool {
        self.depot.pool()
    }

    /// What all threads of this engine count, still there when the engine has stopped.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts(self.counters.iter().chain([&self.decided]).cloned().collect())
    }

    /// A port's counters.
    #[must_use]
    pub fn port_totals(&self, port: PortId) -> PortTotals {
        PortTotals::sum(self.counters.iter().chain([&self.decided]), port)
    }

    /// The workers' own counters.
    #[must_use]
    pub fn counters(&self) -> &[Arc<WorkerCounters>] {
        &self.counters
    }

    /// The workers as shown.
    #[must_use]
    pub fn worker_views(&self) -> Vec<WorkerView> {
        (0_u16..)
            .zip(self.workers.iter().zip(&self.counters))
            .map(|(id, (handle, c))| WorkerView {
                id: WorkerId(id),
                core: handle.core,
                asleep: handle.status.asleep.load(Ordering::Relaxed),
                bursts: c.bursts.get(),
                packets: c.packets.get(),
                cycles: [c.busy_cycles.get(), c.idle_cycles.get(), c.asleep_cycles.get()],
                sleeps: c.sleeps.get(),
                taken_over: c.taken_over.get(),
            })
            .collect()
    }

    /// The stages as shown.
    #[must_use]
    pub fn stage_views(&self) -> Vec<StageView> {
        let sum = |stage: Stage| {
            let blocks = self.counters.iter().map(|c| &c.stages[stage as usize]);
            let (packets, cycles) =
                blocks.fold((0, 0), |(p, c), s| (p + s.packets.get(), c + s.cycles.get()));
            StageView { stage, packets, cycles }
        };
        Stage::ALL.into_iter().map(sum).collect()
    }

    /// What would happen to this frame if it arrived on `port` now; nothing is sent, learned or counted.
    #[must_use]
    pub fn explain(&self, port: PortId, frame: &[u8]) -> Explained {
        match self.domain.register() {
            Ok(reader) => explain::explain(&self.forwarding(), &reader, port, frame),
            // As many are asking already as there may be.
            Err(_) => Explained::refused(packet::DropReason::NoFrame),
        }
    }

    /// The decider of all bridges that go by OpenFlow's rules, connected with every worker; call once, and give it a thread
    /// ([`Decider::run`]). `bridges` are those it serves, by their numbers; `waker` wakes it.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn decider(
        &self,
        limits: lookup::FlowLimits,
        waker: Arc<Waker>,
        bridges: crate::decider::Bridges,
    ) -> Result<Decider, EngineError> {
        self.decider_with(limits, waker, bridges, &[])
    }

    /// As [`Engine::decider`]; workers have flows that others had before they meet a packet.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn decider_with(
        &self,
        limits: lookup::FlowLimits,
        waker: Arc<Waker>,
        bridges: crate::decider::Bridges,
        known: &[KnownFlow],
    ) -> Result<Decider, EngineError> {
        let rings = self.workers.iter().map(|handle| crate::flows::rings(&waker, &handle.waker));
        let (theirs, ends): (Vec<_>, Vec<_>) = rings.unzip();
        let decided = Arc::clone(&self.decided);
        let mut decider = Decider::new(ends, waker, self.depot.pool(), bridges, decided);
        decider.begin_with(known);
        for (id, mine) in (0_u16..).map(WorkerId).zip(theirs) {
            self.tell(id, Command::Flows(Box::new(Flows::new(mine, limits))))?;
        }
        Ok(decider)
    }

    /// Takes flows and rings from all workers: none gives the decider anything any more when this returns, and what arrives at bridges with
    /// rules waits in its queue until there is a [`Engine::decider`] again. End the decider, then [`Flows::close`] them.
    ///
    /// # Errors
    /// When a worker does not answer: it closes its own when it does, and those of all others are closed.
    pub fn detach_flows(&self) -> Result<Vec<Box<Flows>>, EngineError> {
        let (mut all, mut silent) = (Vec::new(), None);
        for id in (0_u16..).map(WorkerId).take(self.workers.len()) {
            let (tx, rx) = mpsc::channel();
            let told = self.tell(id, Command::NoFlows(tx));
            let taken = told.and_then(|()| rx.recv_timeout(PATIENCE).map_err(|_| EngineError::Silent(id.0)));
            match taken {
                Ok(flows) => all.extend(flows),
                Err(error) => silent = silent.or(Some(error)),
            }
        }
        let Some(error) = silent else { return Ok(all) };
        let mut pool = self.pool();
        all.into_iter().for_each(|mut flows| flows.close(&mut |packet| pool.free(packet)));
        Err(error)
    }

    /// What each worker's caches of flows hold and have done.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn flow_caches(&self) -> Result<Vec<FlowsView>, EngineError> {
        let mut views = Vec::with_capacity(self.workers.len());
        for worker in (0_u16..).map(WorkerId).take(self.workers.len()) {
            let (tx, rx) = mpsc::channel();
            self.tell(worker, Command::FlowsView(tx))?;
            views.push(rx.recv_timeout(PATIENCE).map_err(|_| EngineError::Silent(worker.0))?);
        }
        Ok(views)
    }

    /// Lets one of so many packets leave a hint in the exact-match caches; `None` switches those off.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn set_exact_cache(&self, one_in: Option<std::num::NonZeroU32>) -> Result<(), EngineError> {
        (0_u16..)
            .map(WorkerId)
            .take(self.workers.len())
            .try_for_each(|id| self.tell(id, Command::ExactCache(one_in)))
    }

    /// The rings on which workers leave copies for the snooper. Call once; frames go back through a pool.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn punts(&self) -> Result<Vec<Consumer<Punt>>, EngineError> {
        let mut rings = Vec::with_capacity(self.workers.len());
        for worker in (0_u16..).map(WorkerId).take(self.workers.len()) {
            let (ring, reader) = channel(PUNTS);
            self.tell(worker, Command::Punt(PuntRing::new(ring)))?;
            rings.push(reader);
        }
        Ok(rings)
    }
}

impl Drop for Engine {
    /// Ends the threads of an engine that was not stopped; its queues close.
    fn drop(&mut self) {
        for id in (0_u16..).take(self.workers.len()) {
            let index = usize::from(id);
            if self.workers[index].thread.is_none() {
                continue;
            }
            let (tx, rx) = mpsc::channel();
            if self.tell(WorkerId(id), Command::Stop(tx)).is_ok() {
                // The thread of a worker that does not answer does not end either.
                let Ok(queues) = rx.recv_timeout(PATIENCE) else { continue };
                let mut pool = self.depot.pool();
                queues.into_iter().for_each(|own| own.queue.close(&mut pool));
                if let Some(thread) = self.workers[index].thread.take() {
                    let _ = thread.join();
                }
            }
        }
    }
}

/// A queue with what its worker keeps beside it.
pub(crate) fn owned(worker: WorkerId, port: PortId, id: QueueId, queue: Box<dyn Queue>) -> OwnedQueue {
    let capabilities = queue.capabilities();
    OwnedQueue {
        port,
        id,
        queue,
        capabilities,
        touched: false,
        spread: Applied::new(worker),
        finish: None,
        parked: crate::finish::Parked::default(),
        unsent: crate::finish::Unsent::default(),
    }
}

/// A worker that panics takes the process along: half a data plane is worse than a restart.
struct AbortOnPanic(u16);

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "trivium: worker {} panicked; the process ends so that it can be restarted (see the message above)",
                self.0
            );
            std::process::abort();
        }
    }
}
