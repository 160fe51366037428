//! The slow path. One thread translates upcalls (packets that match no megaflow) with the OpenFlow tables, installs
//! megaflows in the workers' caches, and keeps the installed megaflows consistent with the tables.
//!
//! A round of the slow path first serves the upcalls of the ports in turn and then revalidates some of the
//! megaflows. Revalidation reads the counters of a megaflow and removes the megaflow if it is idle. If the
//! tables have changed, revalidation also translates the flow key again:
//!
//! - If the actions have changed, the megaflow gets the new actions.
//! - If the result depends on more key bits than the megaflow's mask contains, the megaflow is removed.
//!
//! A barrier completes when all megaflows of its bridge have been revalidated and every worker has processed the
//! resulting messages. The bridges take turns in revalidation, according to the time that they have used.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a control thread: it locks tables and reads clocks"
)]

mod budget;
mod dump;
mod hook;
mod hook_state;
mod listen;
mod packet_out;
mod recirculations;
mod record;
mod requests;
mod revalidate;
mod sweep;
mod teaching;
mod upcall;
mod warm_start;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::port::FramePool;
use budget::{Budgets, Limit};
use lookup::FlowRef;
use packet::PortId;
use recirculations::Recirculations;
use record::{Counts, Record};
use requests::{Asking, Barrier, Job};
use sweep::{ROUND_NS, Sweeps};
use switch::flow::{Ahead, packet_and_beyond_bits, packet_bits};
use sync::hash::WordHash;
use sync::wake::Waker;
use teaching::Teaching;

use crate::clock::monotonic;
use crate::counters::WorkerCounters;
use crate::flows::{
    Asked, CacheCommand, CacheCompletion, CachedActionsIndex, CachedFlow, FlowBridge, FlowTables, Install,
    MeterLive, Upcall, UpcallPorts, WorkerEnd,
};

pub use crate::flows::MegaflowView;
pub use hook_state::{HookCounts, HookFlows};
pub use listen::{FlowChange, FlowListener};
pub use warm_start::KnownFlow;

/// Maximum number of upcalls of one port that the slow path processes before it continues with the next port.
const TURN: usize = 32;
/// Time in nanoseconds after which the slow path ends a port's turn early. The limit is needed because one
/// packet may match thousands of rules.
const TURN_NS: u64 = 1_000_000;
/// Time in nanoseconds after which a round processes no more upcalls. The limit bounds the delay of
/// statistics, barriers and packet-outs.
const ROUND_PACKETS_NS: u64 = 5_000_000;
/// Maximum number of megaflows that the slow path revalidates in one round, before it serves upcalls again. For a
/// barrier, the maximum is four times as large.
const SLICE: usize = 64;
/// Maximum time in nanoseconds for which revalidation continues although upcalls are pending. Revalidation gets as much
/// time as earlier upcalls took, up to this maximum.
const PACKETS_NS: u64 = 200_000;
/// Maximum time that a terminating slow path waits for tables that control threads have locked. The
/// slow path needs the tables to add the last packet counts of the megaflows to the rules.
const LAST_CREDITS: Duration = Duration::from_millis(500);
/// Sampling interval of the check for megaflows with wrong actions. In each revalidation round, one
/// of `SAMPLE` megaflows is translated again (looked up in the flow tables) even if the tables have
/// not changed.
const SAMPLE: u64 = 64;
/// Idle timeout of megaflows in nanoseconds. A megaflow without packets for this time is removed.
const IDLE_NS: u64 = 10_000_000_000;
/// Idle timeout of megaflows in nanoseconds while the flow limit is reached. This timeout applies only to ports that
/// have more megaflows than their share of the limit.
const IDLE_FULL_NS: u64 = 100_000_000;
/// Initial flow limit, in megaflows. The slow path lowers its limit when the revalidation of all megaflows
/// takes more than a second.
const FLOWS: usize = 200_000;

/// Statistics of the slow path. Any thread can read the statistics.
#[derive(Debug, Default)]
pub struct SlowPathView {
    /// Number of megaflows that are installed in the caches of all workers.
    pub flows: AtomicU64,
    /// Moving average of the number of installed megaflows, updated after each revalidation round.
    pub mean_flows: AtomicU64,
    /// Maximum number of installed megaflows at the end of a revalidation round, since the start.
    pub most_flows: AtomicU64,
    /// Current limit of installed megaflows, for all workers together.
    pub limit: AtomicU64,
    /// Number of upcalls that the slow path has processed.
    pub upcalls: AtomicU64,
    /// Number of times that revalidation translated a megaflow's flow key again after a change of the tables.
    pub revalidated: AtomicU64,
    /// Duration of the last revalidation round without pauses, in microseconds.
    pub round_us: AtomicU64,
    /// Number of megaflows that were installed with an exact-match mask because their port had reached its
    /// limit of distinct masks.
    pub narrowed: AtomicU64,
    /// Number of megaflows whose cached actions differed from the tables' result although no rule had
    /// changed. A value other than 0 indicates a defect.
    pub wrong: AtomicU64,
    /// Number of learn actions that were skipped because of their work (see `teaching.rs`).
    pub skipped_learns: AtomicU64,
    /// Approximate memory of the slow path's megaflow records, in bytes.
    pub memory: AtomicU64,
}

/// State of the slow path. See the [module](self) documentation.
pub struct SlowPath {
    workers: Vec<WorkerEnd>,
    waker: Arc<Waker>,
    pool: FramePool,
    bridges: Arc<Mutex<BTreeMap<u16, Arc<FlowBridge>>>>,
    queues: BTreeMap<UpcallPorts, VecDeque<(usize, Upcall)>>,
    /// Queue whose upcalls the next round processes first.
    next_queue: UpcallPorts,
    records: Vec<Option<Record>>,
    free: Vec<u32>,
    /// Map of the installed megaflows. The key is the hash of a megaflow's identity (bridge, worker, flow key
    /// and mask), and the value is the index of the megaflow's record.
    names: HashMap<u64, u32>,
    name_hash: WordHash,
    cached_actions: CachedActionsIndex,
    budgets: Budgets,
    recirculations: Recirculations,
    /// Hashes of the two exact-match masks: the mask without and the mask with the extended key (match fields that the
    /// flow key does not contain).
    every_bit: [u64; 2],
    teaching: Teaching,
    /// Boxes of install messages that workers have emptied and returned. The slow path reuses the boxes.
    #[allow(clippy::vec_box, reason = "it is the boxes that are kept")]
    spare: Vec<Box<Install>>,
    /// Copy of the frame whose upcall is being processed.
    frame: Vec<u8>,
    /// Results of the batched lookup in the first flow table for the upcalls of the current port's turn.
    ahead: Vec<Ahead>,
    /// Runtime state of the meters. The key consists of bridge identifier and meter identifier. The tables
    /// are stored to detect that another bridge has reused the bridge identifier.
    meters: HashMap<(u16, u32), (Arc<FlowTables>, Arc<MeterLive>)>,
    flows: usize,
    limit: usize,
    sweeps: Sweeps,
    /// Time of the last evaluation of the flow limit, in nanoseconds.
    evaluated_ns: u64,
    /// Time in nanoseconds for which revalidation may run although upcalls are pending. The value
    /// is the time that upcalls took minus the time that revalidation has taken since then, limited
    /// to the range from 0 to `PACKETS_NS`.
    packets_ns: u64,
    second: u64,
    /// Whether the last removal of expired rules stopped before all expired rules were removed.
    expiring: bool,
    /// Barriers in progress, at most one for each bridge.
    barriers: Vec<Barrier>,
    asking: Vec<Asking>,
    /// Megaflow statistics that could not be added to the rules yet, because a control thread had locked the
    /// tables.
    uncredited: Vec<Counts>,
    /// For each worker, the cache locations of megaflows whose removal must still be sent to the worker. The slow path
    /// removed the records of these megaflows before the worker had reported the cache locations.
    owed: Vec<Vec<FlowRef>>,
    syncs: u64,
    /// Dumps and purges of megaflows in progress. A dump or purge takes several rounds.
    jobs: Vec<Job>,
    /// For each worker, the messages that did not fit into the ring to the worker, oldest first.
    backlog: Vec<VecDeque<CacheCommand>>,
    /// Number of rounds in which packet-outs were pending. The number selects the bridge whose packet-outs are
    /// processed first.
    packet_out_rounds: usize,
    view: Arc<SlowPathView>,
    /// Settings that other threads may change at run time.
    knobs: Arc<SlowPathConfig>,
    hook: Option<hook_state::Hook>,
    /// Listener that is called when a megaflow is installed or removed.
    listener: Option<FlowListener>,
    counters: Arc<WorkerCounters>,
}

/// Settings of the slow path that other threads may change at run time.
#[derive(Debug)]
pub struct SlowPathConfig {
    /// Upper bound of the flow limit, in megaflows.
    pub limit: AtomicU32,
    /// Whether megaflows may wildcard fields. If false, every megaflow matches all fields exactly.
    pub megaflows: AtomicBool,
    /// Whether the slow path's thread must end.
    pub stop: AtomicBool,
}

/// Bridges that the slow path serves, by bridge identifier. The map is shared with the threads that create
/// bridges.
pub type Bridges = Arc<Mutex<BTreeMap<u16, Arc<FlowBridge>>>>;

impl SlowPath {
    pub(crate) fn new(
        workers: Vec<WorkerEnd>,
        waker: Arc<Waker>,
        pool: FramePool,
        bridges: Bridges,
        counters: Arc<WorkerCounters>,
    ) -> SlowPath {
        let knobs = SlowPathConfig {
            limit: AtomicU32::new(u32::try_from(FLOWS).unwrap_or(u32::MAX)),
            megaflows: AtomicBool::new(true),
            stop: AtomicBool::new(false),
        };
        let count = workers.len();
        let name_hash = WordHash::new();
        let every_bit = [packet_bits(), packet_and_beyond_bits()].map(|bits| name_hash.of(bits.0));
        SlowPath {
            workers,
            owed: vec![Vec::new(); count],
            waker,
            pool,
            bridges,
            queues: BTreeMap::new(),
            next_queue: UpcallPorts::default(),
            records: Vec::new(),
            free: Vec::new(),
            names: HashMap::new(),
            name_hash,
            cached_actions: CachedActionsIndex::default(),
            budgets: Budgets::default(),
            recirculations: Recirculations::default(),
            every_bit,
            teaching: Teaching::default(),
            spare: Vec::new(),
            frame: Vec::new(),
            ahead: Vec::new(),
            meters: HashMap::new(),
            flows: 0,
            limit: FLOWS,
            sweeps: Sweeps::default(),
            evaluated_ns: 0,
            packets_ns: 0,
            second: 0,
            expiring: false,
            barriers: Vec::new(),
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

    /// Sets both the configured and the current flow limit to `flows` megaflows, regardless of how long revalidation
    /// takes.
    pub(crate) fn allow(&mut self, flows: u32) {
        self.knobs.limit.store(flows, Ordering::Relaxed);
        self.limit = flows as usize;
    }

    /// Returns the statistics of the slow path, which are updated while it runs.
    #[must_use]
    pub fn view(&self) -> Arc<SlowPathView> {
        Arc::clone(&self.view)
    }

    /// Returns the settings that other threads may change while the slow path runs.
    #[must_use]
    pub fn knobs(&self) -> Arc<SlowPathConfig> {
        Arc::clone(&self.knobs)
    }

    /// Runs the slow path until `SlowPathConfig::stop` is set. Returns the recently used megaflows for a successor.
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
                || self.asking.iter().any(|asking| !self.has_barrier(&asking.tables))
                || self.backlog.iter().any(|backlog| !backlog.is_empty())
                || bridges.values().any(|bridge| bridge.tables.has_packet_outs());
            if !pending {
                // Megaflows are revalidated regularly. Without megaflows there is no work.
                let ms = if waits_for_room {
                    1
                } else if self.flows > 0 || !self.barriers.is_empty() {
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
            if let CacheCommand::Release { packet, .. } = answer {
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

    /// Returns whether the slow path serves `bridge`. Returns false if the slow path serves another
    /// bridge with the identifier of `bridge`.
    fn is_served(&self, bridge: &FlowBridge) -> bool {
        let served = self.bridges.lock().unwrap_or_else(PoisonError::into_inner);
        served.get(&bridge.tables.number()).is_some_and(|here| Arc::ptr_eq(&here.tables, &bridge.tables))
    }

    fn flow_limit(&self) -> Limit {
        Limit { now: self.limit, most: self.knobs.limit.load(Ordering::Relaxed) as usize }
    }

    /// Runs one round of the slow path. Returns whether there was any work.
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

    /// Processes the messages that workers have sent. Returns whether there were any messages.
    fn hear(&mut self) -> bool {
        let mut did = false;
        for worker in 0..self.workers.len() {
            while let Some(told) = self.workers[worker].told.pop() {
                did = true;
                match told {
                    CacheCompletion::Installed(id, at, install) => {
                        self.installed(id, at);
                        if self.spare.len() < crate::flows::ANSWERS {
                            self.spare.push(install);
                        }
                    }
                    CacheCompletion::Removed(flow) => self.removed(&flow),
                    CacheCompletion::Replaced(old) => drop(old),
                    CacheCompletion::Synced(number) => self.synced(worker, number),
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
                    self.barriers.iter_mut().for_each(|barrier| barrier.again[worker] = true);
                }
            }
            // The cache had no space, so the megaflow was never installed.
            None => self.forget(id),
        }
    }

    fn removed(&mut self, flow: &CachedFlow) {
        if let Some(counts) = self.take_counts(flow.id) {
            self.credit(counts);
        }
        self.forget(flow.id);
    }

    /// Adds megaflow statistics to the statistics of the rules. If a control thread has locked the tables, the
    /// megaflow statistics are kept for later.
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

    /// Adds the megaflow statistics that were kept for later to the statistics of the rules. Waits
    /// for locked tables at most `patience` in total.
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
            self.budgets.remove(record.worker, record.ports, record.mask);
            if let Some(moved) = self.sweeps.remove(record.bridge.tables.number(), record.place)
                && let Some(Some(moved)) = self.records.get_mut(moved as usize)
            {
                moved.place = record.place;
            }
            self.flows -= 1;
            self.free.push(id);
        }
    }

    /// Removes the entry with hash `name` from the map `names` of installed megaflows if the entry refers to record
    /// `id`. The entry may already refer to a newer megaflow.
    fn unname(&mut self, name: u64, id: u32) {
        if self.names.get(&name) == Some(&id) {
            self.names.remove(&name);
        }
    }

    /// Returns the packets and bytes that a megaflow has matched since the last call, in the worker and in
    /// the XDP hook. Returns `None` if the megaflow does not exist.
    fn take_counts(&mut self, id: u32) -> Option<Counts> {
        let hooked = self.hooked(id);
        let record = self.records.get_mut(id as usize)?.as_mut()?;
        let now = (record.live.packets.get(), record.live.bytes.get());
        let (packets, bytes) = (now.0.wrapping_sub(record.seen.0), now.1.wrapping_sub(record.seen.1));
        let (packets, bytes) = (packets + hooked.packets, bytes + hooked.bytes);
        record.seen = now;
        if packets > 0 {
            self.budgets.earn(record.worker, record.ports.port, record.mask, packets);
        }
        let used_ns = record.live.used_ns.get().max(hooked.used_ns);
        let (bridge, actions) = (Arc::clone(&record.bridge), Arc::clone(&record.actions));
        Some(Counts { bridge, actions, packets, bytes, used_ns })
    }

    /// Starts the barriers, dumps and purges that control threads have requested. Returns whether there were any such
    /// requests.
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
                        self.jobs.push(Job::Dump { bridge: bridge.tables.number(), at: 0, to });
                    }
                    Asked::Purge(done) => {
                        let (bridge, done) = (bridge.tables.number(), Some(done));
                        self.jobs.push(Job::Purge { bridge, at: 0, done });
                    }
                }
            }
        }
        did
    }

    /// Moves upcalls from the workers' rings to the queues of the ports on which the packets were received
    /// ([`Upcall::queue`]). Returns whether there were any upcalls.
    fn collect(&mut self) -> bool {
        let mut did = false;
        for worker in 0..self.workers.len() {
            for _ in 0..crate::flows::UPCALLS {
                let Some(upcall) = self.workers[worker].upcalls.pop() else { break };
                did = true;
                self.queues.entry(upcall.queue()).or_default().push_back((worker, upcall));
            }
        }
        did
    }

    /// Sends a message to a worker. If the ring to the worker is full, the message is appended to the worker's
    /// backlog, and the slow path continues without waiting.
    fn answer(&mut self, worker: usize, answer: CacheCommand) {
        let backlog = &mut self.backlog[worker];
        if !backlog.is_empty() {
            return backlog.push_back(answer);
        }
        if let Err(back) = self.workers[worker].answers.push(answer) {
            backlog.push_back(back);
            self.workers[worker].waker.notify_if_sleeping();
        }
    }

    /// Moves messages from the backlogs to the rings until the rings are full. Returns whether any message was
    /// moved.
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

    /// Returns whether any worker's backlog contains as many messages as its ring can hold. While a
    /// backlog is this long, the slow path postpones work that creates more messages.
    fn is_behind(&self) -> bool {
        (0..self.backlog.len()).any(|worker| self.is_worker_behind(worker))
    }

    fn is_worker_behind(&self, worker: usize) -> bool {
        self.backlog[worker].len() >= crate::flows::ANSWERS
    }

    fn install(&mut self, mut record: Record) {
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
        install.key.set_in_port(record.ports.port);
        install.mask.set_in_port(PortId(u16::MAX));
        (install.extended, install.extended_mask) = (flow.extended(), mask.extended());
        let (compiled, live) = (Arc::clone(&record.actions.compiled), Arc::clone(&record.live));
        install.flow = Some(CachedFlow { id, compiled, live });
        let worker = record.worker;
        self.tell(&record, true);
        self.names.insert(record.name, id);
        self.budgets.add(worker, record.ports, record.mask);
        record.place = self.sweeps.add(record.bridge.tables.number(), id);
        self.records[id as usize] = Some(record);
        self.flows += 1;
        self.answer(worker, CacheCommand::Install(install));
    }
}
