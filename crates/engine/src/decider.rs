//! The decider: one thread that looks packets of unknown flows up in the tables, gives workers flows to keep, and keeps those
//! in step with the tables.
//!
//! A round serves the ports' packets in turn, then looks at some of the flows it has given out: it takes their counts, ends those
//! that are idle, and, where the tables have changed, follows the flow through them again. A flow that meets another fate gets it; one
//! that would depend on more bits than its mask has goes. A barrier waits for a look at all of them, and then for every worker to have
//! done what it was told.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a control thread: it locks tables and reads clocks"
)]

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ::port::FramePool;
use lookup::FlowRef;
use packet::{FlowKey, PortId};
use switch::flow::{
    Asked as Question, Beyond, Event, Field, Flow, FlowMod, Mod, Op, PacketIn, PacketOut, Pipeline, RuleRef,
    Translated, port,
};
use sync::wake::Waker;

use crate::flows::{
    Answer, Asked, CachedFlow, Compiled, FlowBridge, Install, Live, MeterLive, Told, Upcall, WorkerEnd,
};
use crate::worker::monotonic;

/// Packets of one port that are decided before the next port's.
const TURN: usize = 32;
/// Flows that are looked at between two turns of packets.
const SLICE: usize = 64;
/// Nanoseconds in which every flow is looked at once.
const ROUND_NS: u64 = 500_000_000;
/// One of so many flows is followed through the tables in each look, whether they have changed or not.
const SAMPLE: u64 = 64;
/// Silence after which a flow goes.
const IDLE_NS: u64 = 10_000_000_000;
/// The same when there are too many flows.
const IDLE_FULL_NS: u64 = 100_000_000;
/// Flows in all, unless a look at all of them takes over a second.
const FLOWS: usize = 200_000;

/// What the decider does and has done, for whoever looks.
#[derive(Debug, Default)]
pub struct DeciderView {
    /// Flows that it has given out.
    pub flows: AtomicU64,
    /// Flows that it gives out at most, at the moment.
    pub limit: AtomicU64,
    /// Packets that it has looked up.
    pub upcalls: AtomicU64,
    /// Flows that it has followed through the tables again.
    pub revalidated: AtomicU64,
    /// Microseconds that the last look at all flows took.
    pub round_us: AtomicU64,
    /// Flows whose cached fate was not the tables' though no rule had changed: stays 0.
    pub wrong: AtomicU64,
}

/// A flow that a worker has.
struct Record {
    worker: usize,
    at: Option<FlowRef>,
    bridge: Arc<FlowBridge>,
    port: PortId,
    in_port: u32,
    /// Masked, the port set.
    flow: Flow,
    mask: Flow,
    compiled: Arc<Compiled>,
    live: Arc<Live>,
    seen: (u64, u64),
    rules: Vec<RuleRef>,
    missed: Vec<u8>,
    groups: Vec<(u32, usize)>,
    tables: [u64; 4],
    first_again: bool,
    learns: Vec<FlowMod>,
    version: u64,
    created_ns: u64,
    /// It was told to go.
    leaving: bool,
}

/// What flows are told apart by.
type Name = (usize, u16, PortId, Box<(Flow, Flow)>);

/// Somebody waits until caches agree with tables.
struct Barrier {
    done: Vec<Box<dyn FnOnce() + Send>>,
    /// Flows are looked at up to this number of the slab before the workers are asked.
    sweep: Option<usize>,
    number: u64,
    /// Workers that have not come so far yet.
    left: Vec<bool>,
    /// Workers that were told to put something out since they were asked: they are asked again.
    again: Vec<bool>,
}

/// See the [module](self).
pub struct Decider {
    workers: Vec<WorkerEnd>,
    waker: Arc<Waker>,
    pool: FramePool,
    bridges: Arc<Mutex<BTreeMap<u16, Arc<FlowBridge>>>>,
    queues: BTreeMap<PortId, VecDeque<(usize, Upcall)>>,
    records: Vec<Option<Record>>,
    free: Vec<u32>,
    names: HashMap<Name, u32>,
    meters: HashMap<(u16, u32), Arc<MeterLive>>,
    flows: usize,
    limit: usize,
    cursor: usize,
    round_began: u64,
    round_work_ns: u64,
    second: u64,
    barrier: Option<Barrier>,
    asking: Vec<Box<dyn FnOnce() + Send>>,
    /// By worker: flows that were to go before it was known where they stand.
    owed: Vec<Vec<FlowRef>>,
    /// By worker: it has come to a barrier, and owed something then.
    resync: Vec<bool>,
    syncs: u64,
    view: Arc<DeciderView>,
    /// Switches and limits that others set.
    knobs: Arc<Knobs>,
}

/// What can be changed while it runs.
#[derive(Debug)]
pub struct Knobs {
    /// Flows at most.
    pub limit: AtomicU32,
    /// It is to end.
    pub stop: AtomicBool,
}

/// The bridges that a decider serves, by their numbers: shared with whoever makes them.
pub type Bridges = Arc<Mutex<BTreeMap<u16, Arc<FlowBridge>>>>;

impl Decider {
    pub(crate) fn new(
        workers: Vec<WorkerEnd>,
        waker: Arc<Waker>,
        pool: FramePool,
        bridges: Bridges,
    ) -> Decider {
        let knobs = Knobs {
            limit: AtomicU32::new(u32::try_from(FLOWS).unwrap_or(u32::MAX)),
            stop: AtomicBool::new(false),
        };
        let count = workers.len();
        Decider {
            workers,
            owed: vec![Vec::new(); count],
            resync: vec![false; count],
            waker,
            pool,
            bridges,
            queues: BTreeMap::new(),
            records: Vec::new(),
            free: Vec::new(),
            names: HashMap::new(),
            meters: HashMap::new(),
            flows: 0,
            limit: FLOWS,
            cursor: 0,
            round_began: 0,
            round_work_ns: 0,
            second: 0,
            barrier: None,
            asking: Vec::new(),
            syncs: 0,
            view: Arc::default(),
            knobs: Arc::new(knobs),
        }
    }

    /// What it does, for whoever looks.
    #[must_use]
    pub fn view(&self) -> Arc<DeciderView> {
        Arc::clone(&self.view)
    }

    /// What can be changed while it runs.
    #[must_use]
    pub fn knobs(&self) -> Arc<Knobs> {
        Arc::clone(&self.knobs)
    }

    /// The thread's life, until told to stop.
    pub fn run(mut self) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        while !self.knobs.stop.load(Ordering::Acquire) {
            let did = self.round();
            if did {
                continue;
            }
            self.waker.prepare_sleep();
            let pending = self.workers.iter().any(|end| !end.upcalls.is_empty() || !end.told.is_empty())
                || self.bridges().values().any(|bridge| {
                    !bridge.tables.asked.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
                });
            if !pending {
                // Flows are looked at now and then in any case; without any there is nothing to look at.
                let ms = if self.flows > 0 || self.barrier.is_some() { 20 } else { 500 };
                let nap = Timespec { tv_sec: 0, tv_nsec: ms * 1_000_000 };
                let _ = poll(&mut [PollFd::new(&*self.waker, PollFlags::IN)], Some(&nap));
            }
            self.waker.awake();
        }
        // What flows and meters have counted since the last look.
        self.hear();
        self.tick(monotonic().ns);
        for id in (0_u32..).take(self.records.len()) {
            if let Some((bridge, credit)) = self.take_counts(id) {
                credit(&mut bridge.tables.lock());
            }
        }
        for (_, upcall) in std::mem::take(&mut self.queues).into_values().flatten() {
            self.pool.free(upcall.packet);
        }
        for end in &mut self.workers {
            while let Some(upcall) = end.upcalls.pop() {
                self.pool.free(upcall.packet);
            }
        }
        self.pool.flush();
    }

    fn bridges(&self) -> BTreeMap<u16, Arc<FlowBridge>> {
        self.bridges.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One turn of everything; whether there was anything to do.
    pub fn round(&mut self) -> bool {
        let now = monotonic().ns;
        let mut did = self.hear();
        self.pay();
        did |= self.requests(now);
        did |= self.collect();
        did |= self.decide(now);
        did |= self.look(now);
        did |= self.settle();
        if now / ROUND_NS != self.second {
            self.second = now / ROUND_NS;
            self.tick(now);
        }
        for end in &self.workers {
            if !end.answers.is_empty() {
                end.waker.notify_if_sleeping();
            }
        }
        did
    }

    /// What workers have said.
    fn hear(&mut self) -> bool {
        let mut did = false;
        for worker in 0..self.workers.len() {
            while let Some(told) = self.workers[worker].told.pop() {
                did = true;
                match told {
                    Told::Installed(id, at) => self.installed(id, at),
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
                    // Not from here: the ring may be full.
                    let worker = record.worker;
                    self.owed[worker].push(at);
                    if let Some(barrier) = &mut self.barrier {
                        barrier.again[worker] = true;
                    }
                }
            }
            // The cache had no room: there never was such a flow.
            None => self.forget(id),
        }
    }

    /// Has workers put out what was to go before it was known where it stands, and come to the barrier once more.
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
        let counts = self.take_counts(flow.id);
        if let Some((bridge, credit)) = counts {
            credit(&mut bridge.tables.lock());
        }
        self.forget(flow.id);
    }

    fn forget(&mut self, id: u32) {
        if let Some(record) = self.records.get_mut(id as usize).and_then(Option::take) {
            let name = name(&record);
            // Another one may have it by now.
            if self.names.get(&name) == Some(&id) {
                self.names.remove(&name);
            }
            self.flows -= 1;
            self.free.push(id);
        }
    }

    /// What a flow has counted since the last look, to be credited to its rules.
    fn take_counts(&mut self, id: u32) -> Option<(Arc<FlowBridge>, impl FnOnce(&mut Pipeline) + use<>)> {
        let record = self.records.get_mut(id as usize)?.as_mut()?;
        let now = (record.live.packets.get(), record.live.bytes.get());
        let (packets, bytes) = (now.0.wrapping_sub(record.seen.0), now.1.wrapping_sub(record.seen.1));
        record.seen = now;
        let used = record.live.used_ns.get();
        let (rules, missed, groups) = (record.rules.clone(), record.missed.clone(), record.groups.clone());
        Some((Arc::clone(&record.bridge), move |pipeline: &mut Pipeline| {
            if packets > 0 {
                credit(pipeline, &rules, &missed, &groups, packets, bytes, used);
            }
        }))
    }

    /// Barriers and packets of controllers.
    fn requests(&mut self, now: u64) -> bool {
        let mut did = false;
        for bridge in self.bridges().into_values() {
            let asked =
                std::mem::take(&mut *bridge.tables.asked.lock().unwrap_or_else(PoisonError::into_inner));
            for asked in asked {
                did = true;
                match asked {
                    Asked::Barrier(done) => self.asking.push(done),
                    Asked::PacketOut(out) => self.packet_out(&bridge, *out, now),
                }
            }
        }
        did
    }

    fn packet_out(&mut self, bridge: &Arc<FlowBridge>, out: PacketOut, now: u64) {
        let mut key = FlowKey::ZERO;
        let Ok(layers) = FlowKey::extract(&out.frame, out.frame.len(), PortId(0), &mut key) else { return };
        let beyond = Beyond::extract(&out.frame, &key, &layers);
        let mut flow = Flow::new(&key, &beyond, out.in_port);
        for word in 0..flow.0.len() {
            flow.0[word] = flow.0[word] & !out.metadata.mask.0[word] | out.metadata.value.0[word];
        }
        let (fate, from, events) = {
            let mut pipeline = bridge.tables.lock();
            let asked = Question { flow: &flow, frame: Some(&out.frame), trace: false };
            let fate = pipeline.packet_out(asked, &out.actions);
            let from = pipeline.ports().get(&out.in_port).map(|port| port.id);
            self.effects(&mut pipeline, &fate, &flow, &out.frame, now);
            (fate, from, pipeline.take_events())
        };
        bridge.tables.publish(&events);
        let compiled = self.compile(bridge, &fate);
        // Counted at a port of the bridge, where none is named.
        let any = || bridge.tables.lock().ports().values().next().map(|port| port.id);
        let Some(from) = from.or_else(any) else { return };
        if compiled.program.is_drop() {
            return;
        }
        let Ok(packet) = self.pool.alloc_copy(&out.frame) else { return };
        let answer = Answer::Release {
            bridge: Arc::clone(bridge),
            port: from,
            packet,
            key: None,
            compiled: Arc::new(compiled),
        };
        self.answer(0, answer);
    }

    /// Sorts packets of unknown flows by port.
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

    /// Each port's turn.
    fn decide(&mut self, now: u64) -> bool {
        let ports: Vec<PortId> = self.queues.keys().copied().collect();
        let did = !ports.is_empty();
        for port in ports {
            for _ in 0..TURN {
                let Some((worker, upcall)) = self.queues.get_mut(&port).and_then(VecDeque::pop_front) else {
                    break;
                };
                self.upcall(worker, upcall, now);
            }
            if self.queues.get(&port).is_some_and(VecDeque::is_empty) {
                self.queues.remove(&port);
            }
        }
        did
    }

    fn upcall(&mut self, worker: usize, upcall: Upcall, now: u64) {
        let Upcall { bridge, port, packet, key, beyond } = upcall;
        self.view.upcalls.fetch_add(1, Ordering::Relaxed);
        bridge.tables.upcalls.fetch_add(1, Ordering::Relaxed);
        let mut frame = vec![0; packet.len()];
        packet.copy_to(self.pool.memory(), &mut frame);
        let (fate, flow, in_port, version, events) = {
            let mut pipeline = bridge.tables.lock();
            let in_port = pipeline.number_of(port).unwrap_or(port::ANY);
            let flow = Flow::new(&key, &beyond, in_port);
            let fate = pipeline.translate(Question { flow: &flow, frame: Some(&frame), trace: false });
            // What it teaches may concern itself.
            let version = pipeline.version();
            // What it is taught counts before the packet is released.
            self.effects(&mut pipeline, &fate, &flow, &frame, now);
            (fate, flow, in_port, version, pipeline.take_events())
        };
        bridge.tables.publish(&events);
        let compiled = Arc::new(self.compile(&bridge, &fate));
        // A port that has left the bridge meanwhile is nobody's to remember.
        let megaflow = fate.megaflow(&flow).filter(|_| in_port != port::ANY);
        if let Some(megaflow) = megaflow.filter(|_| self.flows < self.limit + self.limit / 4) {
            let record = Record {
                worker,
                at: None,
                bridge: Arc::clone(&bridge),
                port,
                in_port,
                flow: megaflow.flow,
                mask: megaflow.mask,
                compiled: Arc::clone(&compiled),
                live: Arc::default(),
                seen: (0, 0),
                rules: fate.rules,
                missed: fate.missed,
                groups: fate.groups,
                tables: fate.tables,
                first_again: fate.first_again,
                learns: fate.learns,
                version,
                created_ns: now,
                leaving: false,
            };
            self.install(record);
        }
        let answer = Answer::Release { bridge, port, packet, key: Some(key), compiled };
        self.answer(worker, answer);
    }

    /// Pushes an answer; waits for room, which a worker makes in its next round.
    fn answer(&mut self, worker: usize, answer: Answer) {
        let mut answer = answer;
        let mut turns = 0_u32;
        // Until the worker has made room; whoever ends the workers tells us to stop.
        while !self.knobs.stop.load(Ordering::Acquire) {
            match self.workers[worker].answers.push(answer) {
                Ok(()) => return,
                Err(back) => {
                    answer = back;
                    self.workers[worker].waker.notify_if_sleeping();
                    self.hear();
                    turns += 1;
                    if turns < 1000 {
                        std::thread::yield_now();
                    } else {
                        std::thread::sleep(std::time::Duration::from_micros(50));
                    }
                }
            }
        }
        if let Answer::Release { packet, .. } = answer {
            self.pool.free(packet);
        }
    }

    fn install(&mut self, record: Record) {
        let name = name(&record);
        if self.names.contains_key(&name) {
            return;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.records.push(None);
            u32::try_from(self.records.len() - 1).unwrap_or(u32::MAX)
        });
        let (mut key, mut mask) = (record.flow.key(), record.mask.key());
        key.set_in_port(record.port);
        mask.set_in_port(PortId(u16::MAX));
        let install = Install {
            id,
            key,
            mask,
            beyond: record.flow.beyond(),
            beyond_mask: record.mask.beyond(),
            flow: CachedFlow { id, compiled: Arc::clone(&record.compiled), live: Arc::clone(&record.live) },
        };
        let worker = record.worker;
        self.names.insert(name, id);
        self.records[id as usize] = Some(record);
        self.flows += 1;
        self.answer(worker, Answer::Install(Box::new(install)));
    }

    /// Counts the packet in hand, teaches rules, and tells controllers.
    fn effects(&mut self, pipeline: &mut Pipeline, fate: &Translated, flow: &Flow, frame: &[u8], now: u64) {
        let _ = flow;
        credit(pipeline, &fate.rules, &fate.missed, &fate.groups, 1, frame.len() as u64, now);
        if !fate.learns.is_empty() {
            teach(pipeline, &fate.learns, now);
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
            };
            pipeline.push_event(Event::PacketIn(packet_in));
        }
    }

    fn compile(&mut self, bridge: &Arc<FlowBridge>, fate: &Translated) -> Compiled {
        let meters = self.meters_of(bridge, &fate.program.ops);
        Compiled::new(fate.program.clone(), fate.dropped, meters)
    }

    fn meters_of(&mut self, bridge: &Arc<FlowBridge>, ops: &[Op]) -> Vec<(u32, Arc<MeterLive>)> {
        let ids = ops.iter().filter_map(|op| if let Op::Meter(id) = op { Some(*id) } else { None });
        let ids: Vec<u32> = ids.collect();
        if ids.is_empty() {
            return Vec::new();
        }
        let number = bridge.tables.number();
        let mut pipeline = bridge.tables.lock();
        let now = monotonic().ns;
        let mut found = Vec::new();
        for id in ids {
            let Some(meter) = pipeline.meters().find(|meter| meter.id == id).cloned() else { continue };
            let live = match self.meters.get(&(number, id)) {
                Some(live) if live.meter == meter => Arc::clone(live),
                old => {
                    if let Some((packets, bytes, bands)) = old.map(|old| old.take()) {
                        pipeline.credit_meter(id, packets, bytes, &bands);
                    }
                    let live = Arc::new(MeterLive::new(&meter, now));
                    self.meters.insert((number, id), Arc::clone(&live));
                    live
                }
            };
            found.push((id, live));
        }
        found
    }

    /// Looks at a slice of the flows, or at all of them while somebody waits for a barrier.
    fn look(&mut self, now: u64) -> bool {
        if self.barrier.is_none() && !self.asking.is_empty() {
            self.syncs += 1;
            self.barrier = Some(Barrier {
                done: std::mem::take(&mut self.asking),
                sweep: Some(0),
                number: self.syncs,
                left: vec![true; self.workers.len()],
                again: vec![false; self.workers.len()],
            });
        }
        let begin = monotonic().ns;
        let mut did = false;
        if let Some(at) = self.barrier.as_ref().and_then(|barrier| barrier.sweep) {
            let end = (at + 4 * SLICE).min(self.records.len());
            self.slice(at, end, now);
            did = true;
            let all = end >= self.records.len();
            if let Some(barrier) = &mut self.barrier {
                barrier.sweep = (!all).then_some(end);
                let number = barrier.number;
                if all {
                    self.pay();
                    for worker in 0..self.workers.len() {
                        self.answer(worker, Answer::Sync(number));
                        self.workers[worker].waker.notify_if_sleeping();
                    }
                }
            }
        } else if self.cursor < self.records.len() {
            // A round takes its time, so that idle cores idle; more flows take bigger slices.
            let due =
                self.records.len() as u64 * now.saturating_sub(self.round_began).min(ROUND_NS) / ROUND_NS;
            let due = usize::try_from(due).unwrap_or(usize::MAX);
            if due > self.cursor {
                let end = due.min(self.cursor + SLICE).min(self.records.len());
                self.slice(self.cursor, end, now);
                self.cursor = end;
                did = true;
            }
        } else if now.saturating_sub(self.round_began) >= ROUND_NS {
            self.end_round(now);
        }
        self.round_work_ns += monotonic().ns - begin;
        did
    }

    fn end_round(&mut self, now: u64) {
        let took = self.round_work_ns;
        self.view.round_us.store(took / 1000, Ordering::Relaxed);
        let most = self.knobs.limit.load(Ordering::Relaxed) as usize;
        // A round is to stay under a second (as the paper has it).
        if took > 1_000_000_000 {
            self.limit = (self.limit * 3 / 4).max(1000);
        } else if took < 500_000_000 {
            self.limit = (self.limit + 1000).min(most);
        }
        self.limit = self.limit.min(most);
        (self.cursor, self.round_began, self.round_work_ns) = (0, now, 0);
        self.view.flows.store(self.flows as u64, Ordering::Relaxed);
        self.view.limit.store(self.limit as u64, Ordering::Relaxed);
    }

    fn slice(&mut self, from: usize, to: usize, now: u64) {
        let idle = if self.flows > self.limit { IDLE_FULL_NS } else { IDLE_NS };
        for id in from..to {
            let Ok(id) = u32::try_from(id) else { break };
            self.look_at(id, now, idle);
        }
    }

    /// One flow: its counts, its time, its fate.
    fn look_at(&mut self, id: u32, now: u64, idle: u64) {
        let Some(Some(record)) = self.records.get(id as usize) else { return };
        if record.leaving {
            return;
        }
        let bridge = Arc::clone(&record.bridge);
        let used = record.live.used_ns.get().max(record.created_ns);
        let fresh = record.live.packets.get() != record.seen.0;
        let (version, is_current) = {
            let current = self.bridges.lock().unwrap_or_else(PoisonError::into_inner);
            let here = current.get(&bridge.tables.number());
            (record.version, here.is_some_and(|here| Arc::ptr_eq(&here.tables, &bridge.tables)))
        };
        let counts = if fresh { self.take_counts(id) } else { None };
        let mut pipeline = bridge.tables.lock();
        if let Some((_, credit)) = counts {
            credit(&mut pipeline);
        }
        let Some(Some(record)) = self.records.get(id as usize) else { return };
        if fresh && !record.learns.is_empty() {
            teach(&mut pipeline, &record.learns, now);
        }
        if !is_current || now.saturating_sub(used) > idle {
            drop(pipeline);
            return self.dismiss(id);
        }
        let changed = pipeline.version() != version && {
            let arrived = switch::flow::Match {
                value: with_port(&record.flow, record.in_port),
                mask: with_all_ports(&record.mask),
            };
            pipeline.may_differ(version, &record.tables, (!record.first_again).then_some(&arrived))
        };
        // Now and then a flow is followed again though nothing has changed: what it would show is a defect of ours.
        let sampled = (u64::from(id) + self.second).is_multiple_of(SAMPLE);
        if !changed && !sampled {
            let version = pipeline.version();
            drop(pipeline);
            if let Some(Some(record)) = self.records.get_mut(id as usize) {
                record.version = version;
            }
            return;
        }
        self.view.revalidated.fetch_add(u64::from(changed), Ordering::Relaxed);
        let in_port = pipeline.number_of(record.port).unwrap_or(port::ANY);
        let asked = with_port(&record.flow, in_port);
        let fate = pipeline.translate(Question { flow: &asked, frame: None, trace: false });
        let version = pipeline.version();
        drop(pipeline);
        if !changed && fate.program != record.compiled.program {
            self.view.wrong.fetch_add(1, Ordering::Relaxed);
        }
        self.refate(id, fate, in_port, version);
    }

    /// Gives a flow the fate that the tables have for it now.
    fn refate(&mut self, id: u32, fate: Translated, in_port: u32, version: u64) {
        let Some(Some(record)) = self.records.get(id as usize) else { return };
        let wider = (0..fate.mask.0.len()).any(|word| fate.mask.0[word] & !record.mask.0[word] != 0);
        if wider || fate.is_own || !fate.to_controller.is_empty() {
            return self.dismiss(id);
        }
        let bridge = Arc::clone(&record.bridge);
        let meters = self.meters_of(&bridge, &fate.program.ops);
        let Some(Some(record)) = self.records.get_mut(id as usize) else { return };
        let same = record.compiled.is_same(&fate.program, fate.dropped, &meters);
        (record.rules, record.missed, record.groups) = (fate.rules, fate.missed, fate.groups);
        (record.tables, record.first_again, record.learns) = (fate.tables, fate.first_again, fate.learns);
        (record.version, record.in_port) = (version, in_port);
        if same {
            return;
        }
        let compiled = Arc::new(Compiled::new(fate.program, fate.dropped, meters));
        record.compiled = Arc::clone(&compiled);
        match (record.at, record.worker) {
            (Some(at), worker) => self.answer(worker, Answer::Replace(at, compiled)),
            // Where it stands is not known yet: it goes as soon as it is.
            (None, _) => self.dismiss(id),
        }
    }

    /// Has a worker put a flow out of its cache.
    fn dismiss(&mut self, id: u32) {
        let Some(Some(record)) = self.records.get_mut(id as usize) else { return };
        record.leaving = true;
        let name = name(record);
        let (at, worker) = (record.at, record.worker);
        self.names.remove(&name);
        if let Some(at) = at {
            self.answer(worker, Answer::Remove(at));
        }
    }

    /// Ends a barrier that every worker has come to.
    fn settle(&mut self) -> bool {
        let is_done = self
            .barrier
            .as_ref()
            .is_some_and(|barrier| barrier.sweep.is_none() && !barrier.left.contains(&true));
        if is_done && let Some(barrier) = self.barrier.take() {
            barrier.done.into_iter().for_each(|done| done());
        }
        is_done
    }

    /// Twice a second: rules whose time is over, and what meters have counted.
    fn tick(&mut self, now: u64) {
        for bridge in self.bridges().into_values() {
            let events = {
                let mut pipeline = bridge.tables.lock();
                for ((number, id), live) in &self.meters {
                    if *number == bridge.tables.number() {
                        let (packets, bytes, bands) = live.take();
                        pipeline.credit_meter(*id, packets, bytes, &bands);
                    }
                }
                let number = bridge.tables.number();
                let known: BTreeSet<u32> = pipeline.meters().map(|meter| meter.id).collect();
                self.meters.retain(|(own, id), _| *own != number || known.contains(id));
                pipeline.expire(now);
                pipeline.take_events()
            };
            bridge.tables.publish(&events);
        }
        self.view.flows.store(self.flows as u64, Ordering::Relaxed);
        self.view.limit.store(self.limit as u64, Ordering::Relaxed);
    }
}

fn with_port(flow: &Flow, in_port: u32) -> Flow {
    let mut own = *flow;
    own.set(Field::InPort, u128::from(in_port));
    own
}

fn with_all_ports(mask: &Flow) -> Flow {
    let mut own = *mask;
    own.want(Field::InPort);
    own
}

fn name(record: &Record) -> Name {
    (record.worker, record.bridge.tables.number(), record.port, Box::new((record.flow, record.mask)))
}

#[allow(clippy::too_many_arguments, reason = "what a packet met, and what it counts")]
fn credit(
    pipeline: &mut Pipeline,
    rules: &[RuleRef],
    missed: &[u8],
    groups: &[(u32, usize)],
    packets: u64,
    bytes: u64,
    used_ns: u64,
) {
    for rule in rules {
        pipeline.credit(*rule, packets, bytes, used_ns);
    }
    for table in missed {
        pipeline.credit_miss(*table, packets);
    }
    for (group, bucket) in groups {
        pipeline.credit_group(*group, *bucket, packets, bytes);
    }
}

/// Rules that a packet teaches: a known one is as good as used now, another one is added.
fn teach(pipeline: &mut Pipeline, learns: &[FlowMod], now: u64) {
    for learnt in learns {
        if !pipeline.refresh(learnt, now) {
            // What is refused (a full table) is not learnt.
            let _ = pipeline.modify(&[Mod::Flow(Box::new(learnt.clone()))], now);
        }
    }
}
