//! The slow path: one thread that translates upcalls by the OpenFlow tables, installs megaflows in the
//! workers' caches, and keeps the megaflows consistent with the tables.
//!
//! A round first serves the upcalls of the ports in turn, and then revalidates some of the megaflows.
//! Revalidation reads the counters of a megaflow, removes an idle megaflow, and translates the megaflow again
//! if the tables have changed.
//!
//! - A megaflow whose actions have changed gets the new actions.
//! - A megaflow that now depends on more bits than its mask contains is removed.
//!
//! A barrier waits until all megaflows have been revalidated and every worker has processed the resulting
//! messages.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a control thread: it locks tables and reads clocks"
)]

mod budget;
mod dump;
mod hook;
mod known;
mod listen;
mod look;
mod packet_out;
mod record;
mod teaching;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::port::FramePool;
use budget::{Budgets, Limit, every_bit};
use lookup::{FlowRef, WordHash};
use packet::PortId;
use record::{Bits, Counts, Fate, Fates, Record};
use switch::flow::{
    Ahead, Asked as Question, Event, Flow, Op, PacketIn, Pipeline, Translated, packet_and_beyond_bits,
    packet_bits, port,
};
use sync::wake::Waker;
use teaching::Teaching;

use crate::counters::WorkerCounters;
use crate::flows::{
    Answer, Asked, CachedFlow, FlowBridge, FlowTables, Install, MeterLive, Told, Upcall, WorkerEnd,
};
use crate::worker::monotonic;

pub use dump::MegaflowView;
pub use hook::{HookCounts, HookFlows};
pub use known::KnownFlow;
pub use listen::{FlowChange, FlowListener};

/// Maximum number of upcalls of one port that the slow path processes before the next port's upcalls.
const TURN: usize = 32;
/// Time in nanoseconds after which a port's turn ends early. One packet may match thousands of rules.
const TURN_NS: u64 = 1_000_000;
/// Time in nanoseconds after which a round processes no more upcalls. The limit bounds the delay of
/// statistics, barriers and packet-outs.
const ROUND_PACKETS_NS: u64 = 5_000_000;
/// Flows that are looked at between two turns of packets.
const SLICE: usize = 64;
/// Maximum time in nanoseconds by which revalidation makes up for time spent on upcalls.
const PACKETS_NS: u64 = 200_000;
/// Time that a terminating slow path waits for tables that control threads hold.
const LAST_CREDITS: Duration = Duration::from_millis(500);
/// Time in nanoseconds in which every megaflow is revalidated once.
const ROUND_NS: u64 = 500_000_000;
/// Sampling interval: each revalidation round translates one of this number of megaflows even without a
/// change of the tables.
const SAMPLE: u64 = 64;
/// Idle timeout of a megaflow in nanoseconds.
const IDLE_NS: u64 = 10_000_000_000;
/// Idle timeout in nanoseconds when the flow limit is reached, for megaflows of ports that exceed their
/// share.
const IDLE_FULL_NS: u64 = 100_000_000;
/// Initial flow limit, which is reduced when the revalidation of all megaflows takes more than a second.
const FLOWS: usize = 200_000;

/// Statistics of the slow path, which any thread can read.
#[derive(Debug, Default)]
pub struct DeciderView {
    /// Number of installed megaflows.
    pub flows: AtomicU64,
    /// Moving average of the number of megaflows, updated after each revalidation round.
    pub mean_flows: AtomicU64,
    /// Maximum number of megaflows after any revalidation round.
    pub most_flows: AtomicU64,
    /// Current flow limit.
    pub limit: AtomicU64,
    /// Number of upcalls processed.
    pub upcalls: AtomicU64,
    /// Number of megaflows translated again after a change of the tables.
    pub revalidated: AtomicU64,
    /// Duration of the last revalidation round, in microseconds of work.
    pub round_us: AtomicU64,
    /// Number of megaflows installed with an exact-match mask because their port had reached its limit of
    /// masks.
    pub narrowed: AtomicU64,
    /// Number of megaflows whose cached actions differed from the tables' result although no rule had
    /// changed. A value other than 0 indicates a defect.
    pub wrong: AtomicU64,
    /// Approximate memory that the megaflow records use, in bytes.
    pub memory: AtomicU64,
}

/// A request to be called when the flow caches agree with the tables of one bridge.
struct Asking {
    tables: Arc<FlowTables>,
    done: Box<dyn FnOnce() + Send>,
}

/// A barrier in progress, which serves one or more requests.
struct Barrier {
    asking: Vec<Asking>,
    /// Tables of bridges whose megaflows could not all be revalidated because a control thread held the lock.
    /// Requests for these bridges wait for another barrier.
    missed: Vec<Arc<FlowTables>>,
    /// Index of the next megaflow record to revalidate, or `None` when the workers have been sent the
    /// synchronization message.
    sweep: Option<usize>,
    number: u64,
    /// Whether each worker has yet to reach the barrier.
    left: Vec<bool>,
    /// Whether each worker must be synchronized again, because a removal was due after the synchronization
    /// message.
    again: Vec<bool>,
    /// Grace period after which the driver hook has also reached the barrier.
    hook: Option<u64>,
}

/// The slow path. See the [module](self) documentation.
pub struct Decider {
    workers: Vec<WorkerEnd>,
    waker: Arc<Waker>,
    pool: FramePool,
    bridges: Arc<Mutex<BTreeMap<u16, Arc<FlowBridge>>>>,
    queues: BTreeMap<PortId, VecDeque<(usize, Upcall)>>,
    /// Port whose upcalls the next round serves first.
    next_port: PortId,
    records: Vec<Option<Record>>,
    free: Vec<u32>,
    /// Index from the hash of a megaflow's identity to the megaflow's number.
    names: HashMap<u64, u32>,
    name_hash: WordHash,
    fates: Fates,
    budgets: Budgets,
    /// Hashes of the two exact-match masks.
    every_bit: [u64; 2],
    teaching: Teaching,
    /// Empty install boxes that workers returned, kept for reuse.
    #[allow(clippy::vec_box, reason = "it is the boxes that are kept")]
    spare: Vec<Box<Install>>,
    /// Buffer for the frame that is processed at the moment.
    frame: Vec<u8>,
    /// Results of the batched lookup for the upcalls of the current turn.
    ahead: Vec<Ahead>,
    /// Runtime state of meters, by bridge number and meter number. The tables are kept to detect that a
    /// bridge number has been reused.
    meters: HashMap<(u16, u32), (Arc<FlowTables>, Arc<MeterLive>)>,
    flows: usize,
    limit: usize,
    cursor: usize,
    round_began: u64,
    round_work_ns: u64,
    /// Time in nanoseconds spent on upcalls that revalidation has not made up for.
    packets_ns: u64,
    second: u64,
    /// Whether expired rules remain to be removed.
    expiring: bool,
    barrier: Option<Barrier>,
    asking: Vec<Asking>,
    /// Statistics that could not be added to the rules because a control thread held the tables.
    uncredited: Vec<Counts>,
    /// For each worker, megaflows to remove that were dismissed before the worker reported their location.
    owed: Vec<Vec<FlowRef>>,
    /// For each worker, whether the worker reached a barrier while removals were still due.
    resync: Vec<bool>,
    syncs: u64,
    /// Dumps and purges in progress, which take more than one round.
    jobs: Vec<dump::Job>,
    /// For each worker, answers that did not fit into the worker's ring, in order.
    backlog: Vec<VecDeque<Answer>>,
    /// Number of rounds with packet-outs, which determines the bridge to serve first.
    packet_out_rounds: usize,
    view: Arc<DeciderView>,
    /// Switches and limits that other threads set.
    knobs: Arc<Knobs>,
    hook: Option<hook::Hook>,
    /// Listener for installed and removed megaflows.
    listener: Option<FlowListener>,
    counters: Arc<WorkerCounters>,
}

/// Settings of the slow path that can be changed at run time.
#[derive(Debug)]
pub struct Knobs {
    /// Maximum value of the flow limit.
    pub limit: AtomicU32,
    /// Whether megaflows use wildcard masks. If false, every megaflow matches all fields exactly.
    pub megaflows: AtomicBool,
    /// Whether the slow path must terminate.
    pub stop: AtomicBool,
}

/// Bridges of the slow path by number, shared with the threads that create bridges.
pub type Bridges = Arc<Mutex<BTreeMap<u16, Arc<FlowBridge>>>>;

impl Decider {
    pub(crate) fn new(
        workers: Vec<WorkerEnd>,
        waker: Arc<Waker>,
        pool: FramePool,
        bridges: Bridges,
        counters: Arc<WorkerCounters>,
    ) -> Decider {
        let knobs = Knobs {
            limit: AtomicU32::new(u32::try_from(FLOWS).unwrap_or(u32::MAX)),
            megaflows: AtomicBool::new(true),
            stop: AtomicBool::new(false),
        };
        let count = workers.len();
        let name_hash = WordHash::new();
        let every_bit = [packet_bits(), packet_and_beyond_bits()].map(|bits| name_hash.of(bits.0));
        Decider {
            workers,
            owed: vec![Vec::new(); count],
            resync: vec![false; count],
            waker,
            pool,
            bridges,
            queues: BTreeMap::new(),
            next_port: PortId(0),
            records: Vec::new(),
            free: Vec::new(),
            names: HashMap::new(),
            name_hash,
            fates: Fates::default(),
            budgets: Budgets::default(),
            every_bit,
            teaching: Teaching::default(),
            spare: Vec::new(),
            frame: Vec::new(),
            ahead: Vec::new(),
            meters: HashMap::new(),
            flows: 0,
            limit: FLOWS,
            cursor: 0,
            round_began: 0,
            round_work_ns: 0,
            packets_ns: 0,
            second: 0,
            expiring: false,
            barrier: None,
            asking: Vec::new(),
            uncredited: Vec::new(),
            syncs: 0,
            jobs: Vec::new(),
            backlog: std::iter::repeat_with(VecDeque::new).take(count).collect(),
            packet_out_rounds: 0,
            view: Arc::default(),
            knobs: Arc::new(knobs),
            hook: None,
            listener: None,
            counters,
        }
    }

    /// Sets the flow limit and its maximum, regardless of the time that revalidation takes.
    pub(crate) fn allow(&mut self, flows: u32) {
        self.knobs.limit.store(flows, Ordering::Relaxed);
        self.limit = flows as usize;
    }

    /// Returns the statistics of the slow path.
    #[must_use]
    pub fn view(&self) -> Arc<DeciderView> {
        Arc::clone(&self.view)
    }

    /// Returns the settings that can be changed at run time.
    #[must_use]
    pub fn knobs(&self) -> Arc<Knobs> {
        Arc::clone(&self.knobs)
    }

    /// Runs the slow path until it is stopped. Returns the megaflows installed at the end, for a successor.
    pub fn run(mut self) -> Vec<KnownFlow> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        while !self.knobs.stop.load(Ordering::Acquire) {
            let did = self.round();
            if did {
                continue;
            }
            self.waker.prepare_sleep();
            let bridges = self.bridges();
            let pending = self.workers.iter().any(|end| !end.upcalls.is_empty() || !end.told.is_empty())
                || bridges.values().any(|bridge| bridge.tables.has_requests());
            // Workers that free space in their rings and control threads that release tables do not wake the
            // slow path, so it must poll.
            let waits_for_room = !self.queues.is_empty()
                || !self.uncredited.is_empty()
                || self.barrier.is_none() && !self.asking.is_empty()
                || self.backlog.iter().any(|backlog| !backlog.is_empty())
                || bridges.values().any(|bridge| bridge.tables.has_packet_outs());
            if !pending {
                // Megaflows are revalidated regularly. Without megaflows there is no work.
                let ms = if waits_for_room {
                    1
                } else if self.flows > 0 || self.barrier.is_some() {
                    20
                } else {
                    500
                };
                let nap = Timespec { tv_sec: 0, tv_nsec: ms * 1_000_000 };
                let _ = poll(&mut [PollFd::new(&*self.waker, PollFlags::IN)], Some(&nap));
            }
            self.waker.awake();
        }
        let known = self.known(monotonic().ns);
        // The final statistics of megaflows and meters are collected. The wait for tables that a control
        // thread holds is bounded.
        self.hear();
        self.tick(monotonic().ns);
        self.leave_hook();
        for id in (0_u32..).take(self.records.len()) {
            let counts = self.take_counts(id);
            self.uncredited.extend(counts);
        }
        self.credit_within(LAST_CREDITS);
        self.bridges().values().for_each(|bridge| bridge.tables.forget_claim());
        for (_, upcall) in std::mem::take(&mut self.queues).into_values().flatten() {
            self.pool.free(upcall.packet);
        }
        for answer in std::mem::take(&mut self.backlog).into_iter().flatten() {
            if let Answer::Release { packet, .. } = answer {
                self.pool.free(packet);
            }
        }
        for end in &mut self.workers {
            while let Some(upcall) = end.upcalls.pop() {
                self.pool.free(upcall.packet);
            }
        }
        self.pool.flush();
        known
    }

    fn bridges(&self) -> BTreeMap<u16, Arc<FlowBridge>> {
        self.bridges.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether the slow path still serves this bridge, and not another bridge with the same number.
    fn is_served(&self, bridge: &FlowBridge) -> bool {
        let served = self.bridges.lock().unwrap_or_else(PoisonError::into_inner);
        served.get(&bridge.tables.number()).is_some_and(|here| Arc::ptr_eq(&here.tables, &bridge.tables))
    }

    fn flow_limit(&self) -> Limit {
        Limit { now: self.limit, most: self.knobs.limit.load(Ordering::Relaxed) as usize }
    }

    /// Runs one round. Returns whether there was any work.
    pub fn round(&mut self) -> bool {
        let now = monotonic().ns;
        let mut did = self.hear();
        did |= self.send_backlog();
        self.credit_within(Duration::ZERO);
        self.pay();
        did |= self.requests();
        did |= self.packet_outs(now);
        did |= self.collect();
        did |= self.decide(now);
        if !self.is_behind() {
            did |= self.look(now);
        }
        did |= self.reap();
        did |= self.settle();
        if !self.is_behind() {
            did |= self.jobs();
        }
        if now / ROUND_NS != self.second {
            self.second = now / ROUND_NS;
            self.tick(now);
        } else if self.expiring {
            self.expire(now);
            did = true;
        }
        for end in &self.workers {
            if !end.answers.is_empty() {
                end.waker.notify_if_sleeping();
            }
        }
        did
    }

    /// Processes the messages of the workers. Returns whether there were any.
    fn hear(&mut self) -> bool {
        let mut did = false;
        for worker in 0..self.workers.len() {
            while let Some(told) = self.workers[worker].told.pop() {
                did = true;
                match told {
                    Told::Installed(id, at, install) => {
                        self.installed(id, at);
                        if self.spare.len() < crate::flows::ANSWERS {
                            self.spare.push(install);
                        }
                    }
                    Told::Removed(flow) => self.removed(&flow),
                    Told::Replaced(old) => drop(old),
                    Told::Synced(number) => {
                        if let Some(barrier) =
                            self.barrier.as_mut().filter(|barrier| barrier.number == number)
                        {
                            let again = std::mem::take(&mut barrier.again[worker]);
                            if again || !self.owed[worker].is_empty() {
                                self.resync[worker] = true;
                            } else {
                                barrier.left[worker] = false;
                            }
                        }
                    }
                }
            }
        }
        did
    }

    fn installed(&mut self, id: u32, at: Option<FlowRef>) {
        let Some(Some(record)) = self.records.get_mut(id as usize) else { return };
        match at {
            Some(at) => {
                record.at = Some(at);
                if record.leaving {
                    // The removal is sent later, because the ring may be full at this point.
                    let worker = record.worker;
                    self.owed[worker].push(at);
                    if let Some(barrier) = &mut self.barrier {
                        barrier.again[worker] = true;
                    }
                }
            }
            // The cache had no space, so the megaflow was never installed.
            None => self.forget(id),
        }
    }

    /// Sends the due removals to the workers, and synchronizes the workers again that reached a barrier
    /// before.
    fn pay(&mut self) {
        for worker in 0..self.workers.len() {
            while let Some(at) = self.owed[worker].pop() {
                self.answer(worker, Answer::Remove(at));
            }
            if std::mem::take(&mut self.resync[worker])
                && let Some(number) = self.barrier.as_ref().map(|barrier| barrier.number)
            {
                self.answer(worker, Answer::Sync(number));
            }
        }
    }

    fn removed(&mut self, flow: &CachedFlow) {
        if let Some(counts) = self.take_counts(flow.id) {
            self.credit(counts);
        }
        self.forget(flow.id);
    }

    /// Adds statistics to the rules, or keeps them for later if a control thread holds the tables.
    fn credit(&mut self, counts: Counts) {
        if counts.is_nothing() {
            return;
        }
        let bridge = Arc::clone(&counts.bridge);
        match bridge.tables.lock_for_packets() {
            Some(mut pipeline) => counts.credit(&mut pipeline),
            None => self.uncredited.push(counts),
        }
    }

    /// Adds the statistics kept for later to the rules. Waits at most `patience` for tables, for all bridges
    /// together.
    fn credit_within(&mut self, patience: Duration) {
        if self.uncredited.is_empty() {
            return;
        }
        let deadline = Instant::now() + patience;
        let mut busy: Option<Arc<FlowBridge>> = None;
        for counts in std::mem::take(&mut self.uncredited) {
            if busy.as_ref().is_some_and(|busy| Arc::ptr_eq(busy, &counts.bridge)) {
                self.uncredited.push(counts);
                continue;
            }
            let bridge = Arc::clone(&counts.bridge);
            let left = deadline.saturating_duration_since(Instant::now());
            match bridge.tables.lock_for_packets_within(left) {
                Some(mut pipeline) => counts.credit(&mut pipeline),
                None => {
                    self.uncredited.push(counts);
                    busy = Some(Arc::clone(&bridge));
                }
            }
        }
    }

    fn forget(&mut self, id: u32) {
        self.unhook(id);
        if let Some(record) = self.records.get_mut(id as usize).and_then(Option::take) {
            self.unname(record.name, id);
            self.budgets.remove(record.worker, record.port, record.mask);
            self.flows -= 1;
            self.free.push(id);
        }
    }

    /// Removes a megaflow from the index by identity, unless another megaflow has replaced it there.
    fn unname(&mut self, name: u64, id: u32) {
        if self.names.get(&name) == Some(&id) {
            self.names.remove(&name);
        }
    }

    /// Returns the statistics of a megaflow since the last call.
    fn take_counts(&mut self, id: u32) -> Option<Counts> {
        let hooked = self.hooked(id);
        let record = self.records.get_mut(id as usize)?.as_mut()?;
        let now = (record.live.packets.get(), record.live.bytes.get());
        let (packets, bytes) = (now.0.wrapping_sub(record.seen.0), now.1.wrapping_sub(record.seen.1));
        let (packets, bytes) = (packets + hooked.packets, bytes + hooked.bytes);
        record.seen = now;
        if packets > 0 {
            self.budgets.earn(record.worker, record.port, record.mask, packets);
        }
        let used_ns = record.live.used_ns.get().max(hooked.used_ns);
        let (bridge, fate) = (Arc::clone(&record.bridge), Arc::clone(&record.fate));
        Some(Counts { bridge, fate, packets, bytes, used_ns })
    }

    /// Starts the requested barriers, dumps and purges. Returns whether there were any.
    fn requests(&mut self) -> bool {
        let mut did = false;
        for bridge in self.bridges().into_values() {
            let asked =
                std::mem::take(&mut *bridge.tables.asked.lock().unwrap_or_else(PoisonError::into_inner));
            for asked in asked {
                did = true;
                match asked {
                    Asked::Barrier(done) => {
                        self.asking.push(Asking { tables: Arc::clone(&bridge.tables), done });
                    }
                    Asked::Dump(to) => {
                        self.jobs.push(dump::Job::Dump { bridge: bridge.tables.number(), at: 0, to });
                    }
                    Asked::Purge(done) => {
                        let (bridge, done) = (bridge.tables.number(), Some(done));
                        self.jobs.push(dump::Job::Purge { bridge, at: 0, done });
                    }
                }
            }
        }
        did
    }

    /// Moves upcalls from the rings to the queues of their ports. Returns whether there were any.
    fn collect(&mut self) -> bool {
        let mut did = false;
        for worker in 0..self.workers.len() {
            for _ in 0..crate::flows::UPCALLS {
                let Some(upcall) = self.workers[worker].upcalls.pop() else { break };
                did = true;
                self.queues.entry(upcall.port).or_default().push_back((worker, upcall));
            }
        }
        did
    }

    /// Processes upcalls. Ports take turns, and each turn is limited in packets and in time. When a round
    /// takes too long, the next round continues with the port whose turn it is. Returns whether any upcall
    /// was processed.
    fn decide(&mut self, now: u64) -> bool {
        let mut ports: Vec<PortId> = self.queues.keys().copied().collect();
        let first = ports.partition_point(|port| *port < self.next_port);
        ports.rotate_left(first);
        let begin = monotonic().ns;
        let mut did = false;
        for port in ports {
            // Stopping the engine waits for one upcall at most.
            let is_late = did && monotonic().ns - begin >= ROUND_PACKETS_NS;
            if is_late || self.knobs.stop.load(Ordering::Acquire) {
                self.next_port = port;
                break;
            }
            did |= self.decide_of(port, now);
        }
        if did {
            self.packets_ns = (self.packets_ns + (monotonic().ns - begin)).min(PACKETS_NS);
        }
        did
    }

    /// Processes the turn of a port. Returns whether any upcall was processed.
    fn decide_of(&mut self, port: PortId, now: u64) -> bool {
        let begin = monotonic().ns;
        let ahead = self.look_ahead(port);
        let mut did = false;
        for at in 0..TURN {
            let Some((worker, _)) = self.queues.get(&port).and_then(VecDeque::front) else { break };
            let is_late = did && monotonic().ns - begin >= TURN_NS;
            if is_late || self.is_worker_behind(*worker) || self.knobs.stop.load(Ordering::Acquire) {
                break;
            }
            let next = self.queues.get_mut(&port).and_then(VecDeque::pop_front);
            let Some((worker, upcall)) = next else { break };
            if let Err(upcall) = self.upcall(worker, upcall, ahead.get(at), now) {
                self.queues.entry(port).or_default().push_front((worker, upcall));
                break;
            }
            did = true;
        }
        self.ahead = ahead;
        if self.queues.get(&port).is_some_and(VecDeque::is_empty) {
            self.queues.remove(&port);
        }
        did
    }

    /// Looks up the upcalls of a port's turn in the first table as a batch. The batch consists of the upcalls
    /// from the first on that belong to one bridge. The result is empty if there is only one upcall or if the
    /// table has too few rules for a batch to pay off.
    fn look_ahead(&mut self, port: PortId) -> Vec<Ahead> {
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.clear();
        let Some(queue) = self.queues.get(&port).filter(|queue| queue.len() > 1) else { return ahead };
        let Some((_, Upcall { bridge, .. })) = queue.front() else { return ahead };
        let Some(pipeline) = bridge.tables.lock_for_packets() else { return ahead };
        if !pipeline.gains_by_looking_ahead() {
            return ahead;
        }
        let in_port = pipeline.number_of(port).unwrap_or(port::ANY);
        let packets = queue.iter().map(|(_, upcall)| upcall).take(TURN);
        let of_bridge = packets.take_while(|upcall| Arc::ptr_eq(&upcall.bridge, bridge));
        ahead.extend(of_bridge.map(|upcall| Ahead::new(Flow::new(&upcall.key, &upcall.beyond, in_port))));
        pipeline.look_ahead(&mut ahead);
        ahead
    }

    /// Processes an upcall. Returns the upcall if a control thread holds the tables of its bridge for long.
    #[allow(
        clippy::result_large_err,
        reason = "what comes back is what was given, and goes into its queue again"
    )]
    fn upcall(
        &mut self,
        worker: usize,
        upcall: Upcall,
        ahead: Option<&Ahead>,
        now: u64,
    ) -> Result<(), Upcall> {
        let Upcall { bridge, port, packet, key, beyond } = upcall;
        let Some(mut pipeline) = bridge.tables.lock_for_packets() else {
            return Err(Upcall { bridge, port, packet, key, beyond });
        };
        self.view.upcalls.fetch_add(1, Ordering::Relaxed);
        bridge.tables.upcalls.fetch_add(1, Ordering::Relaxed);
        let mut frame = std::mem::take(&mut self.frame);
        frame.resize(packet.len(), 0);
        packet.copy_to(self.pool.memory(), &mut frame);
        let in_port = pipeline.number_of(port).unwrap_or(port::ANY);
        let flow = Flow::new(&key, &beyond, in_port);
        let mut fate = match ahead.filter(|ahead| *ahead.flow() == flow) {
            Some(ahead) => pipeline.translate_ahead(ahead, Some(&frame)),
            None => pipeline.translate(Question { flow: &flow, frame: Some(&frame), trace: false }),
        };
        if !self.knobs.megaflows.load(Ordering::Relaxed) {
            fate.mask = packet_bits();
        }
        // The learn actions of the packet may change the rules that the packet matches, so the version is
        // read before.
        let version = pipeline.version();
        let meters = self.meters_of(&bridge, &fate.program.ops, &mut pipeline);
        // Learn actions take effect before the packet is released.
        self.effects(&mut pipeline, &fate, &frame, now);
        let events = pipeline.take_events();
        drop(pipeline);
        self.frame = frame;
        bridge.tables.publish(events);
        // No megaflow is kept for a port that has left the bridge meanwhile, or for a bridge that has been
        // removed.
        let is_kept = fate.is_cacheable()
            && in_port != port::ANY
            && self.is_served(&bridge)
            && self.budgets.has_room(worker, port, self.flows, self.flow_limit());
        let mask = fate.mask;
        let fate = self.fates.shared(fate, meters);
        let compiled = Arc::clone(&fate.compiled);
        if is_kept {
            self.keep(worker, &bridge, (port, in_port), (&flow, mask), fate, version, now);
        }
        let answer = Answer::Release { bridge, port, packet, key: Some(key), compiled };
        self.answer(worker, answer);
        Ok(())
    }

    /// Creates a megaflow and installs the megaflow in a worker's cache.
    #[allow(clippy::too_many_arguments, reason = "what a record consists of")]
    fn keep(
        &mut self,
        worker: usize,
        bridge: &Arc<FlowBridge>,
        (port, in_port): (PortId, u32),
        (flow, mask): (&Flow, Flow),
        fate: Arc<Fate>,
        version: u64,
        now: u64,
    ) {
        let mut mask = mask;
        let mut mask_hash = self.name_hash.of(mask.0);
        if !self.budgets.admits(worker, port, mask_hash) {
            mask = every_bit(&mask);
            mask_hash = self.name_hash.of(mask.0);
            self.view.narrowed.fetch_add(1, Ordering::Relaxed);
        }
        let bits = Bits::new(flow, &mask);
        let number = u64::from(bridge.tables.number());
        let name = [worker as u64 | u64::from(port.0) << 16 | number << 32];
        self.install(Record {
            worker,
            at: None,
            name: self.name_hash.of(name.into_iter().chain(bits.words())),
            mask: mask_hash,
            bridge: Arc::clone(bridge),
            port,
            in_port,
            bits,
            fate,
            live: Arc::default(),
            seen: (0, 0),
            version,
            created_ns: now,
            leaving: false,
            hook: hook::Part::default(),
        });
    }

    /// Sends an answer to a worker. If the worker's ring is full, the answer waits in the worker's backlog,
    /// and the slow path continues with other work.
    fn answer(&mut self, worker: usize, answer: Answer) {
        let backlog = &mut self.backlog[worker];
        if !backlog.is_empty() {
            return backlog.push_back(answer);
        }
        if let Err(back) = self.workers[worker].answers.push(answer) {
            backlog.push_back(back);
            self.workers[worker].waker.notify_if_sleeping();
        }
    }

    /// Moves answers from the backlogs to the workers' rings, as far as there is space. Returns whether any
    /// answer was moved.
    fn send_backlog(&mut self) -> bool {
        let mut did = false;
        for (backlog, end) in self.backlog.iter_mut().zip(&mut self.workers) {
            while let Some(answer) = backlog.pop_front() {
                if let Err(back) = end.answers.push(answer) {
                    backlog.push_front(back);
                    end.waker.notify_if_sleeping();
                    break;
                }
                did = true;
            }
        }
        did
    }

    /// Returns whether the backlog of any worker is as long as a ring. In this case, work that creates more
    /// answers waits, which bounds the backlog.
    fn is_behind(&self) -> bool {
        (0..self.backlog.len()).any(|worker| self.is_worker_behind(worker))
    }

    fn is_worker_behind(&self, worker: usize) -> bool {
        self.backlog[worker].len() >= crate::flows::ANSWERS
    }

    fn install(&mut self, record: Record) {
        let is_there = |id: &u32| {
            let there = self.records.get(*id as usize).and_then(Option::as_ref);
            there.is_some_and(|there| there.is_same(&record))
        };
        if self.names.get(&record.name).is_some_and(is_there) {
            return;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.records.push(None);
            u32::try_from(self.records.len() - 1).unwrap_or(u32::MAX)
        });
        let (flow, mask) = record.bits.both();
        let mut install = self.spare.pop().unwrap_or_default();
        (install.id, install.key, install.mask) = (id, flow.key(), mask.key());
        install.key.set_in_port(record.port);
        install.mask.set_in_port(PortId(u16::MAX));
        (install.beyond, install.beyond_mask) = (flow.beyond(), mask.beyond());
        let (compiled, live) = (Arc::clone(&record.fate.compiled), Arc::clone(&record.live));
        install.flow = Some(CachedFlow { id, compiled, live });
        let worker = record.worker;
        self.tell(&record, true);
        self.names.insert(record.name, id);
        self.budgets.add(worker, record.port, record.mask);
        self.records[id as usize] = Some(record);
        self.flows += 1;
        self.answer(worker, Answer::Install(install));
    }

    /// Counts a packet, executes its learn actions, and sends it to controllers.
    fn effects(&mut self, pipeline: &mut Pipeline, fate: &Translated, frame: &[u8], now: u64) {
        record::credit(pipeline, (&fate.rules, &fate.missed, &fate.groups), 1, frame.len() as u64, now);
        if !fate.learns.is_empty() {
            self.teaching.teach(pipeline, &fate.learns, now);
        }
        for (rule, idle, hard) in &fate.fin {
            pipeline.shorten(*rule, *idle, *hard);
        }
        for to in &fate.to_controller {
            let packet_in = PacketIn {
                reason: to.reason,
                table: to.table,
                cookie: to.cookie,
                flow: to.flow,
                frame: to.frame.clone().unwrap_or_default(),
                max_len: to.max_len,
                controller: to.controller,
                userdata: to.userdata.clone(),
                continuation: to.continuation.clone(),
            };
            pipeline.push_event(Event::PacketIn(packet_in));
        }
    }

    /// Returns the runtime state of the meters that a program uses.
    fn meters_of(
        &mut self,
        bridge: &Arc<FlowBridge>,
        ops: &[Op],
        pipeline: &mut Pipeline,
    ) -> Vec<(u32, Arc<MeterLive>)> {
        let ids = ops.iter().filter_map(|op| if let Op::Meter(id) = op { Some(*id) } else { None });
        // Each meter appears once, even if the program uses the meter several times. The meters are sorted by
        // number, as the workers' binary search requires.
        let ids: BTreeSet<u32> = ids.collect();
        if ids.is_empty() {
            return Vec::new();
        }
        let number = bridge.tables.number();
        let now = monotonic().ns;
        let mut found = Vec::new();
        for id in ids {
            let Some(meter) = pipeline.meter(id).cloned() else { continue };
            let live = match self.meters.get(&(number, id)) {
                Some((of, live)) if live.meter == meter && Arc::ptr_eq(of, &bridge.tables) => {
                    Arc::clone(live)
                }
                old => {
                    let own = old.filter(|(of, _)| Arc::ptr_eq(of, &bridge.tables));
                    if let Some((packets, bytes, bands)) = own.map(|(_, old)| old.take()) {
                        pipeline.credit_meter(id, packets, bytes, &bands);
                    }
                    let live = Arc::new(MeterLive::new(&meter, now));
                    self.meters.insert((number, id), (Arc::clone(&bridge.tables), Arc::clone(&live)));
                    live
                }
            };
            found.push((id, live));
        }
        found
    }
}
