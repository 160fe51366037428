//! Main loop of a worker, which is one thread on one core. A packet passes the following stages: *receive,
//! parse, the port's function, transmit*.
//!
//! Readers of the code should start with [`Worker::round`] and with `forward`, which takes a burst through
//! all stages ([`crate::stage::path`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use packet::record::{NoRecord, Recorder, Step};
use packet::{DropReason, FlowKey, PortId, QueueId};
use port::Queue;
use switch::Now;
use sync::cpu::tsc;
use sync::qsbr::Reader;
use sync::snapshot::Snapshot;
use sync::spsc::{Consumer, Producer};

use crate::burst::Burst;
use crate::capture::{CaptureTap, key_of};
use crate::counters::Stage;
use crate::handover::WorkerRings;
use crate::idle::Rest;
use crate::inspect::{self, QueueView};
use crate::ordering::{CompletionSink, Finish, Finishing};
use crate::stage::flow_cache::{Flows, FlowsView};
use crate::stage::path::{self, Source};
use crate::stage::path_context::{Context, count};
use crate::stage::transmit::{Egress, NOT_MINE, OwnedQueue};
use crate::stage::{
    CLONE_BUDGET, PuntRing, SEGMENT_BUDGET, WorkerContext, openflow, patch, receive, software_rss, transmit,
};
use crate::state::{Forwarding, Function};
use crate::trace::{TraceFilter, TraceRecorder, Traced};

pub use crate::clock::monotonic;

/// A function that changes settings of a queue. A worker calls the function between two bursts.
pub type Change = Arc<dyn Fn(&mut dyn Queue) + Send + Sync>;

/// A command from a control thread to a worker. The worker executes the command between two rounds.
pub enum Command {
    /// Adds a queue of a port to the queues that the worker polls.
    Add(OwnedQueue),
    /// Removes all queues of a port from the worker. The worker returns the queues through the channel as soon as the
    /// kernel has taken all packets from the queues' transmit rings.
    Remove(PortId, mpsc::Sender<Vec<OwnedQueue>>),
    /// Calls the function for each of the worker's queues of a port. The queues stay with the worker.
    Change(PortId, Change, mpsc::Sender<()>),
    /// Starts (`Some`) or stops (`None`) copying packets for a capture.
    Capture(Option<CaptureTap>),
    /// Starts (`Some`) or stops (`None`) sending trace reports to the ring.
    Trace(Option<Producer<Box<Traced>>>),
    /// Sets the ring for punted copies, which the IGMP/MLD snooper reads.
    Punt(PuntRing),
    /// Assigns a flow cache with rings to the slow path to the worker. OpenFlow bridges need both.
    Flows(Box<Flows>),
    /// Takes the flow cache with the rings to the slow path from the worker and sends the cache to the channel. Packets
    /// that wait for the slow path are counted as dropped.
    NoFlows(mpsc::Sender<Option<Box<Flows>>>),
    /// Returns the size and statistics of the worker's flow cache through the channel.
    FlowsView(mpsc::Sender<FlowsView>),
    /// Configures the exact-match cache. With `Some(n)`, one of `n` packets that miss the cache inserts an
    /// entry. `None` disables the exact-match cache.
    ExactCache(Option<std::num::NonZeroU32>),
    /// Returns the statistics of the worker's queues through the channel. The worker also counts as dropped the packets
    /// that the kernel has refused to transmit since the last inspection.
    Inspect(mpsc::Sender<Vec<QueueView>>),
    /// Returns two numbers through the channel: the number of free frames in the worker's pool, and the number of
    /// frames in the worker's queues.
    Frames(mpsc::Sender<(usize, usize)>),
    /// Sets the receiver of a queue's progress reports ([`crate::ordering`]). `None` stops the reports.
    Finish(PortId, QueueId, Option<Box<dyn CompletionSink>>),
    /// Removes all queues of a port from the worker and returns them through the channel, so that another worker can
    /// continue with them. Packets stay in the transmit rings.
    Part(PortId, mpsc::Sender<Vec<OwnedQueue>>),
    /// Stops reception. The worker then only processes packets that other workers hand over. When the worker has no
    /// work left, it stores the number of this command in [`Status::quiet`].
    Drain(u64),
    /// Resumes reception after a [`Command::Drain`].
    Resume,
    /// Ends the worker's loop and returns all queues of the worker through the channel.
    Stop(mpsc::Sender<Vec<OwnedQueue>>),
}

/// State of a worker that control threads can read without a command, in addition to the counters.
#[derive(Debug, Default)]
pub struct Status {
    /// Whether the worker is asleep.
    pub asleep: AtomicBool,
    /// Number of the last [`Command::Drain`] for which the worker had no work left.
    pub quiet: AtomicU64,
}

/// A worker with the queues, the caches, the rings and the other state of its thread. See the module
/// documentation.
pub struct Worker {
    pub(crate) forwarding: Arc<Snapshot<Forwarding>>,
    pub(crate) reader: Reader,
    pub(crate) queues: Vec<OwnedQueue>,
    /// For each queue, the number of packets that the kernel had refused to transmit up to the last inspection.
    pub(crate) refused: Vec<u64>,
    pub(crate) local: Vec<u16>,
    pub(crate) burst: Burst,
    pub(crate) context: WorkerContext,
    pub(crate) links: WorkerRings,
    pub(crate) rest: Rest,
    pub(crate) commands: Consumer<Command>,
    pub(crate) status: Arc<Status>,
    pub(crate) trace: Option<Producer<Box<Traced>>>,
    pub(crate) version: u64,
    /// Number of the [`Command::Drain`] that is in effect. While this field is `Some`, the worker receives no packets
    /// from its queues.
    pub(crate) draining: Option<u64>,
    pub(crate) finishing: Finishing,
}

impl Worker {
    /// Runs the worker's loop until a [`Command::Stop`] arrives. The loop executes commands, runs rounds and
    /// sleeps.
    pub fn run(mut self) {
        let mut before = tsc();
        loop {
            // Commands are executed before the round, also after sleep. A control thread that sends a command
            // and then publishes a snapshot relies on this order.
            if !self.commands.is_empty() && self.obey() {
                return;
            }
            let packets = self.round();
            if self.draining.is_some() {
                self.tell_quiet();
            }
            let after = tsc();
            let spent = after.wrapping_sub(before);
            let counters = &self.context.counters;
            if packets > 0 {
                counters.busy_cycles.add(spent)
            } else {
                counters.idle_cycles.add(spent)
            }
            before = after;
            if self.rest.wants_sleep(packets, after) {
                self.sleep();
                before = tsc();
                self.context.counters.asleep_cycles.add(before.wrapping_sub(after));
            }
        }
    }

    /// Runs one round, which polls every queue and every ring once. Returns the number of packets found.
    pub fn round(&mut self) -> usize {
        let Self {
            forwarding, reader, queues, local, burst, context, links, trace, version, draining, ..
        } = self;
        links.begin_round();
        let forwarding = forwarding.read(reader);
        if *version != forwarding.version {
            *version = forwarding.version;
            context.outbox.fit(forwarding);
            context.capture_drops = forwarding.capture_drops;
        }
        let now = clock(context);
        let mut packets = 0;
        if context.flows.as_ref().is_some_and(|flows| flows.has_pending()) {
            let mut egress = Egress { queues, local, links, collected: None };
            packets += answers(forwarding, reader, burst, now, &mut egress, context);
        }
        let own = if draining.is_some() { 0 } else { queues.len() };
        for index in 0..own {
            let begin = tsc();
            let port = queues[index].port;
            // Packets that arrive before the snapshot contains the port wait in the queue.
            let Some(view) = forwarding.port(port) else { continue };
            // Packets of an OpenFlow bridge wait in the queue until the slow path exists.
            if waits_for_slow_path(forwarding, port, context) {
                continue;
            }
            let n = receive::run(&mut *queues[index].queue, port, view, burst, context);
            if n == 0 {
                continue;
            }
            packets += n;
            let OwnedQueue { finish, parked, .. } = &mut queues[index];
            parked.begin(finish.as_ref().map(Finish::last));
            if let Some(finish) = finish {
                let memory = context.pool.memory();
                finish.received(burst.packets.iter().rev().filter_map(|packet| packet.before(memory)));
            }
            count(context, Stage::Receive, n, begin);
            links.begin_own();
            context.begin_burst();
            if !view.accepts() {
                refuse(port, DropReason::PortDown, burst, context);
                continue;
            }
            let source = Source {
                forwarding,
                port,
                view,
                queue: Some(index),
                seen: false,
                origin: Some(index),
                reader,
            };
            let mut egress = Egress { queues, local, links, collected: None };
            match (&forwarding.trace, &mut *trace) {
                (Some(filter), Some(ring)) => traced(&source, filter, ring, burst, now, &mut egress, context),
                _ => forward(&source, burst, now, &mut egress, context, &mut NoRecord),
            }
        }
        for from in 0..links.workers() {
            packets += handed_over(
                forwarding,
                from,
                burst,
                now,
                reader,
                queues,
                local,
                links,
                context,
                trace.as_mut(),
            );
        }
        for own in queues.iter_mut() {
            if packets > 0 || std::mem::take(&mut own.touched) {
                own.queue.kick(&mut context.pool);
            }
        }
        if self.finishing.active {
            self.finishing.run(queues, links);
        }
        links.publish();
        if packets > 0 {
            context.counters.bursts.add(1);
            context.counters.packets.add(packets as u64);
        }
        reader.quiescent();
        packets
    }

    /// Runs one round and executes the commands that have arrived. Returns false if the worker must end
    /// ([`Command::Stop`]). Tests that run a worker without a thread use this function.
    pub fn round_with_commands(&mut self) -> bool {
        self.round();
        !self.obey()
    }

    /// Returns the size and statistics of the worker's flow cache. Tests and benchmarks that run a worker
    /// without a thread use this function.
    #[must_use]
    pub fn flows_view(&self) -> FlowsView {
        self.context.flows.as_ref().map(|flows| flows.view()).unwrap_or_default()
    }

    /// Calls `change` while the worker counts as sleeping (its QSBR reader is offline), so that `change` need not wait
    /// for the worker. Tests in which one thread acts as worker and as control thread use this function.
    pub fn while_offline<T>(&mut self, change: impl FnOnce() -> T) -> T {
        self.reader.while_offline(change)
    }

    fn sleep(&mut self) {
        let Self { rest, reader, queues, links, commands, status, context, .. } = self;
        for own in queues.iter_mut() {
            own.queue.kick(&mut context.pool);
        }
        let context = &*context;
        let pending = || {
            !commands.is_empty()
                || links.has_pending()
                || context.flows.as_ref().is_some_and(|flows| flows.has_pending())
                || queues.iter_mut().any(|own| own.queue.has_pending())
        };
        context.counters.sleeps.add(1);
        rest.sleep(pending, |doze| {
            status.asleep.store(true, Ordering::Relaxed);
            reader.offline();
            doze();
            reader.online();
            status.asleep.store(false, Ordering::Relaxed);
        });
    }

    /// Executes the commands that have arrived. Returns true if the worker must end.
    #[cold]
    fn obey(&mut self) -> bool {
        while let Some(command) = self.commands.pop() {
            match command {
                Command::Add(own) => self.add(own),
                Command::Remove(port, reply) => {
                    let _ = reply.send(self.remove(port));
                }
                Command::Change(port, change, reply) => {
                    for own in self.queues.iter_mut().filter(|own| own.port == port) {
                        change(own.queue.as_mut());
                        own.capabilities = own.queue.capabilities();
                    }
                    let _ = reply.send(());
                }
                Command::Capture(tap) => {
                    self.context.capture = tap;
                }
                Command::Trace(ring) => self.trace = ring,
                Command::Punt(ring) => self.context.punt = Some(ring),
                Command::Flows(flows) => {
                    // The old caches belong to a slow path for which this worker received no
                    // [`Command::NoFlows`].
                    let old = self.leave_flows();
                    self.context.flows = Some(flows);
                    self.close_flows(old);
                }
                Command::NoFlows(reply) => {
                    let flows = self.leave_flows();
                    if let Err(mpsc::SendError(flows)) = reply.send(flows) {
                        self.close_flows(flows);
                    }
                }
                Command::FlowsView(reply) => {
                    let view = self.context.flows.as_ref().map(|flows| flows.view()).unwrap_or_default();
                    let _ = reply.send(view);
                }
                Command::ExactCache(one_in) => {
                    if let Some(flows) = &mut self.context.flows {
                        flows.set_exact(one_in);
                    }
                }
                Command::Inspect(reply) => {
                    let _ = reply.send(inspect::views(&self.queues, &mut self.refused, &self.context));
                }
                Command::Frames(reply) => {
                    let queued = self.queues.iter().map(|own| own.queue.frames()).sum();
                    let _ = reply.send((self.context.pool.len(), queued));
                }
                Command::Finish(port, id, to) => self.finish(port, id, to),
                Command::Part(port, reply) => {
                    let _ = reply.send(self.take(port, |own, refused, context| {
                        inspect::settle(own, refused, context);
                    }));
                }
                Command::Drain(look) => self.draining = Some(look),
                Command::Resume => self.draining = None,
                Command::Stop(reply) => {
                    let ports: Vec<PortId> = self.queues.iter().map(|own| own.port).collect();
                    let queues = ports.into_iter().flat_map(|port| self.remove(port)).collect();
                    let pool = &mut self.context.pool;
                    if let Some(mut flows) = self.context.flows.take() {
                        flows.abandon(&self.context.counters);
                        flows.close(&mut |packet| pool.free(packet));
                    }
                    self.links.drain(|packet| pool.free(packet));
                    pool.flush();
                    let _ = reply.send(queues);
                    return true;
                }
            }
        }
        false
    }

    #[cold]
    fn tell_quiet(&self) {
        let settled = self.context.flows.as_ref().is_none_or(|flows| flows.is_settled());
        if let Some(look) = self.draining.filter(|_| settled && !self.links.has_pending()) {
            self.status.quiet.store(look, Ordering::Release);
        }
    }

    pub(crate) fn add(&mut self, own: OwnedQueue) {
        if let Some(fd) = own.queue.wait_fd() {
            // Without a watch on the descriptor, the worker finds the packets when its sleep times out.
            let _ = self.rest.watch(fd);
        }
        self.refused.push(own.queue.counters().tx_invalid);
        self.queues.push(own);
        self.index();
    }

    /// Takes the flow cache from the worker. Counts as dropped the packets that wait for the slow path.
    fn leave_flows(&mut self) -> Option<Box<Flows>> {
        let mut flows = self.context.flows.take();
        if let Some(flows) = &mut flows {
            flows.abandon(&self.context.counters);
        }
        self.queues.iter_mut().for_each(|own| own.parked.clear());
        flows
    }

    /// Frees the packet frames that the worker's former flow cache still holds.
    fn close_flows(&mut self, gone: Option<Box<Flows>>) {
        let pool = &mut self.context.pool;
        gone.into_iter().for_each(|mut gone| gone.close(&mut |packet| pool.free(packet)));
    }

    fn finish(&mut self, port: PortId, id: QueueId, to: Option<Box<dyn CompletionSink>>) {
        if let Some(own) = self.queues.iter_mut().find(|own| own.port == port && own.id == id) {
            own.finish = to.map(Finish::new);
            own.parked.renumber();
        }
        self.finishing.active = self.queues.iter().any(|own| own.finish.is_some());
    }

    /// Removes all queues of a port when the kernel has taken the packets to transmit, and updates the port's
    /// drop counters. Returns the queues.
    fn remove(&mut self, port: PortId) -> Vec<OwnedQueue> {
        self.take(port, |own, refused, context| {
            for _ in 0..1000 {
                if own.queue.in_flight() == 0 {
                    break;
                }
                own.queue.kick(&mut context.pool);
            }
            inspect::settle(own, refused, context);
            inspect::abandon(own, context);
        })
    }

    fn take(
        &mut self,
        port: PortId,
        mut last: impl FnMut(&mut OwnedQueue, &mut u64, &mut WorkerContext),
    ) -> Vec<OwnedQueue> {
        let mut gone = Vec::new();
        let mut at = 0;
        while at < self.queues.len() {
            if self.queues[at].port == port {
                let mut own = self.queues.remove(at);
                let mut refused = self.refused.remove(at);
                if let Some(fd) = own.queue.wait_fd() {
                    self.rest.forget(fd);
                }
                last(&mut own, &mut refused, &mut self.context);
                gone.push(own);
            } else {
                at += 1;
            }
        }
        self.index();
        gone
    }

    /// Rebuilds the table of transmit queues, which contains the first queue of each port. Also
    /// updates the flag that states whether any queue reports progress.
    fn index(&mut self) {
        self.finishing.active = self.queues.iter().any(|own| own.finish.is_some());
        self.local.clear();
        for (at, own) in (0_u16..).zip(&self.queues) {
            if self.local.len() <= own.port.index() {
                self.local.resize(own.port.index() + 1, NOT_MINE);
            }
            let place = &mut self.local[own.port.index()];
            *place = (*place).min(at);
        }
    }
}

/// Transmits the packets that the slow path has returned with their actions. Returns the number of these packets.
fn answers(
    forwarding: &Forwarding,
    reader: &Reader,
    burst: &mut Burst,
    now: Now,
    egress: &mut Egress<'_>,
    worker: &mut WorkerContext,
) -> usize {
    worker.begin_mixed_burst();
    let mut budget = openflow::AnswerBudget::default();
    loop {
        let mut context = Context {
            forwarding,
            port: PortId(0),
            reader,
            now,
            egress: &mut *egress,
            worker: &mut *worker,
            recorder: &mut NoRecord,
            begin: 0,
        };
        let is_interrupted = openflow::answers(&mut context, &mut budget);
        transmit::run(forwarding, egress, worker, &mut NoRecord);
        if !worker.patched.is_empty() {
            patch::through(forwarding, reader, None, burst, now, egress, worker, &mut NoRecord);
        }
        openflow::end_release(egress, worker);
        if !is_interrupted {
            return budget.packets;
        }
    }
}

/// Processes a burst in all stages, including the bursts that result from patch ports.
pub(crate) fn forward<R: Recorder>(
    source: &Source<'_>,
    burst: &mut Burst,
    now: Now,
    egress: &mut Egress<'_>,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    path::run(source, burst, now, egress, context, recorder);
    if !context.patched.is_empty() {
        let Source { forwarding, origin, reader, .. } = *source;
        patch::through(forwarding, reader, origin, burst, now, egress, context, recorder);
    }
}

/// Processes the packets of a burst one by one with a recorder. Sends a trace report for each packet that
/// matches the trace filter.
#[cold]
fn traced(
    source: &Source<'_>,
    filter: &TraceFilter,
    ring: &mut Producer<Box<Traced>>,
    burst: &mut Burst,
    now: Now,
    egress: &mut Egress<'_>,
    context: &mut WorkerContext,
) {
    for packet in std::mem::take(&mut *burst.packets) {
        let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        // The burst's keys cannot be used. A cross-connect does not parse packets, and a frame that cannot be
        // parsed leaves the key of an earlier packet in place.
        let key = key_of(&packet, context.pool.memory(), source.port);
        let mut recorder = TraceRecorder::default();
        recorder.step(0, Step::Received { port: source.port, queue: queue_id(source, egress), len });
        if let (None, Some(key), Some(_)) = (source.queue, &key, &source.view.rss_table) {
            // The worker that owns the queue handed the packet to this worker by software RSS.
            recorder.step(0, software_rss::step(key, context.id));
        }
        burst.packets.push(packet);
        forward(source, burst, now, egress, context, &mut recorder);
        if recorder.handed_over() {
            // The worker that the packet was handed to reports the trace.
            continue;
        }
        let mut asked = key.unwrap_or(FlowKey::ZERO);
        asked.set_in_port(source.port);
        if ring.free() > 0 && filter.claims(&asked) {
            let traced = Traced { worker: context.id, port: source.port, len, key, steps: recorder.steps };
            let _ = ring.push(Box::new(traced));
        }
    }
}

fn queue_id(source: &Source<'_>, egress: &Egress<'_>) -> QueueId {
    source.queue.map_or(QueueId(0), |index| egress.queues[index].id)
}

/// Takes packets that worker `from` has handed over: first the packets to transmit, and then the packets to process, in
/// runs of packets that arrived on one port.
#[allow(clippy::too_many_arguments, reason = "the worker's parts, borrowed apart")]
fn handed_over(
    forwarding: &Forwarding,
    from: usize,
    burst: &mut Burst,
    now: Now,
    reader: &Reader,
    queues: &mut [OwnedQueue],
    local: &[u16],
    links: &mut WorkerRings,
    context: &mut WorkerContext,
    mut trace: Option<&mut Producer<Box<Traced>>>,
) -> usize {
    let mut egress = Egress { queues, local, links, collected: None };
    let mut relayed = 0;
    context.begin_mixed_burst();
    while relayed < port::BURST {
        let Some(output) = egress.links.take_output(from) else { break };
        relayed += 1;
        relay(forwarding, output.packet, output.out, &mut egress, context);
    }
    transmit::run(forwarding, &mut egress, context, &mut NoRecord);
    if !context.patched.is_empty() {
        patch::through(forwarding, reader, None, burst, now, &mut egress, context, &mut NoRecord);
    }
    let (mut taken, mut clones, mut segments) = (0, 0, 0);
    // A run of one port may be short, if packets of several ports alternate.
    while taken < port::BURST && clones < CLONE_BUDGET && segments < SEGMENT_BUDGET {
        let most = port::BURST - taken;
        let Some((port, seen)) = take_run(forwarding, from, most, burst, &mut egress, context) else { break };
        taken += burst.len();
        context.begin_burst();
        match forwarding.port(port) {
            Some(view) if view.accepts() => {
                let source = Source { forwarding, port, view, queue: None, seen, origin: None, reader };
                match (&forwarding.trace, trace.as_deref_mut()) {
                    (Some(filter), Some(ring)) => {
                        traced(&source, filter, ring, burst, now, &mut egress, context)
                    }
                    _ => forward(&source, burst, now, &mut egress, context, &mut NoRecord),
                }
            }
            Some(_) => refuse(port, DropReason::PortDown, burst, context),
            None => refuse(port, DropReason::PortRemoved, burst, context),
        }
        clones += CLONE_BUDGET - context.clones_left;
        segments += SEGMENT_BUDGET - context.segments_left;
    }
    context.counters.taken_over.add((relayed + taken) as u64);
    relayed + taken
}

/// Takes at most `most` packets that worker `from` has handed over and that arrived on one port, as a burst. Returns
/// the port, and whether the port's ingress stage has processed the packets. Returns `None` if no packet can be taken
/// now.
fn take_run(
    forwarding: &Forwarding,
    from: usize,
    most: usize,
    burst: &mut Burst,
    egress: &mut Egress<'_>,
    context: &WorkerContext,
) -> Option<(PortId, bool)> {
    let mut run = None;
    while burst.packets.len() < most
        && let Some((packet, port, seen)) = egress.links.take(from)
    {
        // Packets of an OpenFlow bridge wait until the slow path exists.
        if waits_for_slow_path(forwarding, port, context) || run.is_some_and(|run| run != (port, seen)) {
            egress.links.put_back(from, packet, port, seen);
            break;
        }
        run = Some((port, seen));
        burst.packets.push(packet);
    }
    run
}

/// Returns whether packets of `port` must wait in the port's receive queues. This is the case if
/// the port belongs to an OpenFlow bridge and the worker has no flow cache because no slow path
/// runs.
fn waits_for_slow_path(forwarding: &Forwarding, port: PortId, context: &WorkerContext) -> bool {
    context.flows.is_none()
        && forwarding.port(port).is_some_and(|view| matches!(view.function, Function::OpenFlow(_)))
}

/// Puts a packet that another worker has processed into this worker's outbox for transmission.
fn relay(
    forwarding: &Forwarding,
    packet: port::Packet,
    out: PortId,
    egress: &mut Egress<'_>,
    context: &mut WorkerContext,
) {
    use crate::stage::outbox::Refused;
    // The queue may have moved to a third worker. Forwarding the packet again could send packets in a loop.
    if egress.local.get(out.index()).is_none_or(|at| *at == NOT_MINE) {
        return context.drop_at_output(packet, out, DropReason::PortRemoved);
    }
    let packet = match context.outbox.push(out, packet) {
        Ok(()) => return,
        Err(Refused::Full(packet)) => packet,
        Err(Refused::NoPort(packet)) => return context.drop_at_output(packet, out, DropReason::PortRemoved),
    };
    transmit::port(forwarding, out, egress, context, &mut NoRecord);
    if let Err(Refused::Full(packet) | Refused::NoPort(packet)) = context.outbox.push(out, packet) {
        context.drop_at_output(packet, out, DropReason::PortRemoved);
    }
}

/// Drops all packets of a burst that arrived on `port`, because the port is down or has been removed.
#[cold]
fn refuse(port: PortId, reason: DropReason, burst: &mut Burst, context: &mut WorkerContext) {
    for packet in std::mem::take(&mut *burst.packets) {
        context.drop(packet, port, reason);
    }
}

/// Returns the current time, which applies to all packets of this round. Also sets the time of a running capture.
#[inline]
fn clock(context: &mut WorkerContext) -> Now {
    let now = monotonic();
    if let Some(tap) = &mut context.capture {
        tap.now_ns = now.ns;
    }
    now
}
