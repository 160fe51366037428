//! The handle through which control threads use an engine. The handle starts workers, assigns queues to workers,
//! publishes snapshots, reads counters, and stops the workers for a hand-over to a successor process.
//!
//! `engine/watch.rs` starts and ends captures and traces, `engine/quiesce.rs` stops workers and moves queues, and
//! `engine/resume.rs` starts the workers after a hand-over. No code in this module runs per packet.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "control threads wait and lock; workers never do"
)]

mod inspect;
mod quiesce;
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
use crate::explain::{self, Explained};
use crate::handover::mesh;
use crate::idle::{PollMode, Rest, Waker};
use crate::ordering::CompletionSink;
use crate::slow_path::{KnownFlow, SlowPath};
use crate::stage::flow_cache::{Flows, FlowsView};
use crate::stage::software_rss::Applied;
use crate::stage::transmit::OwnedQueue;
use crate::stage::{Punt, PuntRing, WorkerContext};
use crate::state::Forwarding;
use crate::worker::{Change, Command, Status, Worker};

/// Configuration of the workers of an engine (set of worker threads).
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// CPU cores of the workers, with one entry per worker. `Some(core)` pins the worker to this core. `None`
    /// lets the scheduler select the core.
    pub cores: Vec<Option<usize>>,
    /// Idle policy of the workers: whether idle workers sleep or always poll.
    pub mode: PollMode,
    /// Time that a worker with the adaptive idle policy polls without finding work before it sleeps.
    pub spin: Duration,
    /// QSBR domain of the workers. QSBR (quiescent-state-based reclamation) is a form of RCU: a table frees replaced
    /// memory only when no worker can still read it. All tables that workers read must use this domain.
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

/// Error of an operation on the engine or its workers.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The kernel did not create a file descriptor or the thread of a worker.
    #[error("worker {worker}: {what} failed ({source}); raise the limit of open files (LimitNOFILE)")]
    Os {
        /// Index of the worker for which the operation was needed.
        worker: u16,
        /// Name of the operation that the kernel refused, such as `epoll`.
        what: &'static str,
        /// Error that the kernel returned.
        source: io::Error,
    },
    /// The configuration contains no worker.
    #[error("engine.workers is empty; name at least one core, for example workers = [1]")]
    NoWorkers,
    /// The configuration contains more than 64 workers. The field is the number of workers.
    #[error("engine.workers names {0} workers; at most 64 are possible")]
    TooManyWorkers(usize),
    /// No worker has the given index. The first field is the index, and the second field is the number of
    /// workers.
    #[error("worker {0} does not exist; engine.workers has {1} entries")]
    NoSuchWorker(u16, usize),
    /// The worker with this index did not answer a command within the time limit.
    #[error("worker {0} does not answer; see `trivium show workers` and the log for a stuck queue")]
    Silent(u16),
    /// Another capture or trace is already running. The field is the name of the operation that was refused.
    #[error("a {0} is running already; end it first (Ctrl-C in its terminal), or wait for it")]
    Occupied(&'static str),
}

/// A queue that was removed from its worker. The tuple contains the worker, the identifier of the
/// queue within its port, and the queue itself.
pub type Removed = (WorkerId, QueueId, Box<dyn Queue>);
/// A queue that a stopped worker returned. The tuple contains the worker, the port, the identifier
/// of the queue within its port, and the queue itself.
pub type Returned = (WorkerId, PortId, QueueId, Box<dyn Queue>);

struct Handle {
    commands: Mutex<Producer<Command>>,
    waker: Arc<Waker>,
    status: Arc<Status>,
    core: Option<usize>,
    thread: Option<JoinHandle<()>>,
}

/// An engine: a set of workers, and the state that the workers share with control threads. See the module
/// documentation.
pub struct Engine {
    workers: Vec<Handle>,
    counters: Vec<Arc<WorkerCounters>>,
    /// Port counters that no worker writes: the numbers of packets that the XDP hook dropped (the slow path reads these
    /// numbers from the hook), and the counters that a predecessor process has handed over.
    decided: Arc<WorkerCounters>,
    forwarding: Arc<Snapshot<Forwarding>>,
    depot: Arc<Depot>,
    domain: Arc<Domain>,
    capturing: Mutex<bool>,
    /// Number of the last drain request (a request to stop reception and to finish all packets), counted from 1
    /// (`engine/quiesce.rs`). Each request carries its number.
    looks: AtomicU64,
}

/// Handle for reading the counters of all threads of one engine.
#[derive(Debug)]
pub struct Counts(Vec<Arc<WorkerCounters>>);

impl Counts {
    /// Returns the counters of a port, summed over all threads.
    #[must_use]
    pub fn port_totals(&self, port: PortId) -> PortTotals {
        PortTotals::sum(&self.0, port)
    }
}

/// Statistics of one worker at the time of the query.
#[derive(Clone, Debug)]
pub struct WorkerView {
    /// Identifier of the worker.
    pub id: WorkerId,
    /// CPU core to which the worker is pinned, or `None` if the worker is not pinned.
    pub core: Option<usize>,
    /// Whether the worker is asleep.
    pub asleep: bool,
    /// Number of bursts that the worker has processed.
    pub bursts: u64,
    /// Number of packets that the worker has processed.
    pub packets: u64,
    /// Numbers of TSC cycles that the worker has spent processing packets, polling without finding
    /// work, and sleeping, in this order.
    pub cycles: [u64; 3],
    /// Number of times that the worker went to sleep.
    pub sleeps: u64,
    /// Number of packets that other workers have received or processed and then handed to this worker.
    pub taken_over: u64,
}

/// Statistics of one stage of the packet path, summed over all workers.
#[derive(Clone, Copy, Debug)]
pub struct StageView {
    /// Stage of the packet path that the statistics describe.
    pub stage: Stage,
    /// Number of packets that the stage has processed.
    pub packets: u64,
    /// Time that the stage has spent, in TSC cycles.
    pub cycles: u64,
}

/// Returns a new QSBR domain (quiescent-state-based reclamation) for engines. The domain supports three times
/// as many readers as an engine can have workers. During a hand-over that fails, the workers of two engines and
/// concurrent calls of `explain` are readers at the same time.
#[must_use]
pub fn domain() -> Arc<Domain> {
    Domain::with_max_readers(3 * MOST_WORKERS)
}

/// Maximum number of workers of one engine.
const MOST_WORKERS: usize = 64;
/// Capacity of a worker's command mailbox, in commands.
const MAILBOX: usize = 64;
/// Capacity of the ring from one worker to the IGMP/MLD snooper, in packet copies.
const PUNTS: usize = 256;
/// Maximum time that a control thread waits for a worker's answer to a command.
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(5) };

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// Starts the worker threads. The workers are idle until queues are added.
    ///
    /// # Errors
    /// [`EngineError`] if the configuration contains no worker or too many workers, or if the kernel refuses
    /// file descriptors or threads.
    pub fn start(config: &EngineConfig, depot: Arc<Depot>) -> Result<Self, EngineError> {
        Self::resume(config, depot, Forwarding::default(), Vec::new())?.run()
    }

    /// Creates an engine whose workers have no threads. Benchmarks and tests run the returned workers by
    /// calling [`Worker::round`].
    ///
    /// # Errors
    /// The errors of [`Self::start`].
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
                context: WorkerContext::new(WorkerId(id), depot.pool(), block.clone()),
                links,
                rest: Rest::new(config.mode, spin, waker.clone()).map_err(os(id, "epoll"))?,
                commands,
                status: status.clone(),
                trace: None,
                version: u64::MAX,
                draining: None,
                finishing: crate::ordering::Finishing::default(),
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

    /// Returns the number of workers of the engine.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Returns the depot (store of free packet frames) from which the frame pools of workers and control threads are
    /// filled.
    #[must_use]
    pub fn depot(&self) -> &Arc<Depot> {
        &self.depot
    }

    /// Returns the generation number of the engine's frame depot. Frames of an earlier engine of this process carry
    /// another generation number.
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

    /// Returns the forwarding snapshot that was published last.
    #[must_use]
    pub fn forwarding(&self) -> Arc<Forwarding> {
        self.forwarding.load_arc()
    }

    /// Publishes a changed forwarding snapshot, and waits until no worker uses the previous snapshot. Packets that
    /// arrive later are processed with the new snapshot. Commands that were sent to a worker before the publication are
    /// executed before the worker reads the new snapshot.
    pub fn update(&self, change: impl FnOnce(&mut Forwarding)) {
        // Workers execute commands between rounds. After this call, each worker executes the commands sent so
        // far before the next round.
        self.domain.synchronize();
        self.forwarding.update(|old| {
            let mut new = old.clone();
            change(&mut new);
            new.version = old.version.wrapping_add(1);
            new
        });
        self.domain.synchronize();
    }

    /// Assigns a queue of a port to a worker. The worker adopts the queue between two rounds, possibly after the call
    /// has returned.
    ///
    /// # Errors
    /// [`EngineError::NoSuchWorker`] if the worker does not exist, or [`EngineError::Silent`] if the worker's
    /// mailbox stays full.
    pub fn add_queue(
        &self,
        worker: WorkerId,
        port: PortId,
        id: QueueId,
        queue: Box<dyn Queue>,
    ) -> Result<(), EngineError> {
        self.tell(worker, Command::Add(owned(worker, port, id, queue)))
    }

    /// Removes a port's queues from all workers, waits for the workers, and returns the queues. Each worker first makes
    /// the kernel transmit the packets that are in a queue's transmit ring, with at most 1000 attempts.
    ///
    /// # Errors
    /// [`EngineError::Silent`] when a worker does not answer. That worker keeps its queues.
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

    /// Applies `change` to each queue of a port, between two bursts of the queue's worker, and
    /// waits until all workers have applied `change`. The queues stay with their workers, so no
    /// packet is lost.
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

    /// Sets the receiver of a queue's progress reports ([`crate::ordering`]). A report contains a
    /// frame number and states that all frames of the queue up to this number have left the engine.
    /// `None` stops the reports.
    ///
    /// # Errors
    /// The errors of [`Engine::add_queue`].
    pub fn tell_progress(
        &self,
        worker: WorkerId,
        port: PortId,
        id: QueueId,
        to: Option<Box<dyn CompletionSink>>,
    ) -> Result<(), EngineError> {
        self.tell(worker, Command::Finish(port, id, to))
    }

    /// Returns a new frame pool for a control thread. The pool provides and takes back the frames of captured, punted
    /// and injected packets.
    #[must_use]
    pub fn pool(&self) -> FramePool {
        self.depot.pool()
    }

    /// Returns a handle for the counters of all threads of this engine. The handle stays usable after the
    /// engine has stopped.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts(self.counters.iter().chain([&self.decided]).cloned().collect())
    }

    /// Returns the counters of a port, summed over all threads.
    #[must_use]
    pub fn port_totals(&self, port: PortId) -> PortTotals {
        PortTotals::sum(self.counters.iter().chain([&self.decided]), port)
    }

    /// Returns the counters of all workers, in the order of the workers.
    #[must_use]
    pub fn counters(&self) -> &[Arc<WorkerCounters>] {
        &self.counters
    }

    /// Returns the current statistics of each worker.
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

    /// Returns the current statistics of each stage of the packet path.
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

    /// Explains how `frame` would be processed if it arrived on `port` now. No packet is sent, no address is
    /// learned and no counter changes.
    #[must_use]
    pub fn explain(&self, port: PortId, frame: &[u8]) -> Explained {
        match self.domain.register() {
            Ok(reader) => explain::explain(&self.forwarding(), &reader, port, frame),
            // The domain has no free reader: too many `explain` calls run at the moment.
            Err(_) => Explained::refused(packet::DropReason::NoFrame),
        }
    }

    /// Creates the slow path of all OpenFlow bridges and connects it to every worker. The caller runs the returned slow
    /// path on a thread ([`SlowPath::run`]). `bridges` is the map of the bridges to serve. Workers and control threads
    /// wake the slow path through `waker`. The function may be called again only after `Engine::detach_flows`.
    ///
    /// # Errors
    /// [`EngineError`] when a worker does not answer.
    pub fn slow_path(
        &self,
        limits: lookup::FlowLimits,
        waker: Arc<Waker>,
        bridges: crate::slow_path::Bridges,
    ) -> Result<SlowPath, EngineError> {
        self.slow_path_with(limits, waker, bridges, &[])
    }

    /// Creates the slow path like [`Engine::slow_path`], with initial megaflows. The megaflows in `known` are installed
    /// in the workers' caches before the first upcall.
    ///
    /// # Errors
    /// [`EngineError`] when a worker does not answer.
    pub fn slow_path_with(
        &self,
        limits: lookup::FlowLimits,
        waker: Arc<Waker>,
        bridges: crate::slow_path::Bridges,
        known: &[KnownFlow],
    ) -> Result<SlowPath, EngineError> {
        let rings = self.workers.iter().map(|handle| crate::flows::rings(&waker, &handle.waker));
        let (theirs, ends): (Vec<_>, Vec<_>) = rings.unzip();
        let decided = Arc::clone(&self.decided);
        let mut slow_path = SlowPath::new(ends, waker, self.depot.pool(), bridges, decided);
        slow_path.begin_with(known);
        for (id, mine) in (0_u16..).map(WorkerId).zip(theirs) {
            self.tell(id, Command::Flows(Box::new(Flows::new(mine, limits))))?;
        }
        Ok(slow_path)
    }

    /// Removes the flow caches and the rings to the slow path from all workers, waits for the workers, and returns the
    /// caches with the rings. When this function returns, no worker sends messages to the slow path. Packets that
    /// arrive at OpenFlow bridges wait in the receive queues until the next call of [`Engine::slow_path`]. The caller
    /// must stop the slow path and then call [`Flows::close`] on each result.
    ///
    /// # Errors
    /// [`EngineError::Silent`] if a worker does not answer. This worker closes its own flow cache when it
    /// runs again. The flow caches of all other workers are closed.
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

    /// Returns the size and the statistics of each worker's flow cache. The call waits for an answer of each worker.
    ///
    /// # Errors
    /// [`EngineError`] when a worker does not answer.
    pub fn flow_caches(&self) -> Result<Vec<FlowsView>, EngineError> {
        let mut views = Vec::with_capacity(self.workers.len());
        for worker in (0_u16..).map(WorkerId).take(self.workers.len()) {
            let (tx, rx) = mpsc::channel();
            self.tell(worker, Command::FlowsView(tx))?;
            views.push(rx.recv_timeout(PATIENCE).map_err(|_| EngineError::Silent(worker.0))?);
        }
        Ok(views)
    }

    /// Configures the exact-match caches of all workers, which apply the setting between two rounds. With `Some(n)`,
    /// one of `n` packets that miss the cache inserts an entry. `None` disables the exact-match caches.
    ///
    /// # Errors
    /// [`EngineError`] when a worker does not answer.
    pub fn set_exact_cache(&self, one_in: Option<std::num::NonZeroU32>) -> Result<(), EngineError> {
        (0_u16..)
            .map(WorkerId)
            .take(self.workers.len())
            .try_for_each(|id| self.tell(id, Command::ExactCache(one_in)))
    }

    /// Creates the rings on which workers send copies of IGMP and MLD packets to the snooper, and returns the receiving
    /// ends of the rings. The function must be called only once. The snooper frees the copies' frames through a pool of
    /// the same depot.
    ///
    /// # Errors
    /// [`EngineError`] when a worker does not answer.
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
    /// Stops the worker threads and closes the queues if the engine was not stopped explicitly.
    fn drop(&mut self) {
        for id in (0_u16..).take(self.workers.len()) {
            let index = usize::from(id);
            if self.workers[index].thread.is_none() {
                continue;
            }
            let (tx, rx) = mpsc::channel();
            if self.tell(WorkerId(id), Command::Stop(tx)).is_ok() {
                // The thread of a worker that does not answer is not joined, because the thread does not end.
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

/// Creates the state that a worker keeps for a queue that was just assigned to the worker.
pub(crate) fn owned(worker: WorkerId, port: PortId, id: QueueId, queue: Box<dyn Queue>) -> OwnedQueue {
    let capabilities = queue.capabilities();
    OwnedQueue {
        port,
        id,
        queue,
        capabilities,
        touched: false,
        rss: Applied::new(worker),
        finish: None,
        parked: crate::ordering::Parked::default(),
        unsent: crate::ordering::Unsent::default(),
    }
}

/// A guard that aborts the process if a worker thread panics. A restart of the process is safer than a data
/// plane that continues with only some of its workers.
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
