//! One thread on one core: *receive, parse, ask the room that owns the port, execute, transmit*.
//!
//! Start with [`Worker::round`]; `forward` is a packet's path.

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
use crate::finish::{Finish, Finisher, Finishing};
use crate::handover::Links;
use crate::inspect::{self, QueueView};
use crate::rest::Rest;
use crate::stage::transmit::{Exits, NOT_MINE, OwnedQueue};
use crate::stage::{
    PuntRing, Tools, execute, flows, own, parse, patch, receive, room, route, spread, transmit,
};
use crate::state::{Forwarding, PortView, Room};
use crate::trace::{TraceFilter, TraceRecorder, Traced};

/// What is done to a queue between two of its bursts.
pub type Change = Arc<dyn Fn(&mut dyn Queue) + Send + Sync>;

/// What control asks of a worker, between two rounds.
pub enum Command {
    /// Own this queue from now on.
    Add(OwnedQueue),
    /// Give back the queues of a port, once what was transmitted has left.
    Remove(PortId, mpsc::Sender<Vec<OwnedQueue>>),
    /// Change the queues of a port where they are.
    Change(PortId, Change, mpsc::Sender<()>),
    /// Start or stop capturing.
    Capture(Option<CaptureTap>),
    /// Start or stop tracing.
    Trace(Option<Producer<Box<Traced>>>),
    /// Where copies for the snooper go.
    Punt(PuntRing),
    /// Bridges may go by OpenFlow's rules from now on.
    Flows(Box<flows::Flows>),
    /// They may no longer: give the flows back. What waits is counted as dropped.
    NoFlows(mpsc::Sender<Option<Box<flows::Flows>>>),
    /// Tell what is cached of flows.
    FlowsView(mpsc::Sender<flows::FlowsView>),
    /// One of so many packets leaves a hint in the exact-match cache of flows; `None`: that cache is off.
    ExactCache(Option<std::num::NonZeroU32>),
    /// Tell how the queues are doing, and count what the kernel refused of what was sent.
    Inspect(mpsc::Sender<Vec<QueueView>>),
    /// Answer with the free frames in the pool, and the frames in queues.
    Frames(mpsc::Sender<(usize, usize)>),
    /// Tell this one how far a queue has come, or nobody.
    Finish(PortId, QueueId, Option<Box<dyn Finisher>>),
    /// Give the queues of a port back as they are, in the middle of whatever they do: another worker goes on with them.
    Part(PortId, mpsc::Sender<Vec<OwnedQueue>>),
    /// Receive nothing more, finish what other workers hand over, and answer with this number when there is nothing left.
    Drain(u64),
    /// Receive again.
    Resume,
    /// End; the queues go back.
    Stop(mpsc::Sender<Vec<OwnedQueue>>),
}

/// What a worker shows of itself besides counters.
#[derive(Debug, Default)]
pub struct Status {
    /// It sleeps.
    pub asleep: AtomicBool,
    /// Of the last [`Command::Drain`] after which it was seen with nothing left to do.
    pub quiet: AtomicU64,
}

/// See the module documentation.
pub struct Worker {
    pub(crate) forwarding: Arc<Snapshot<Forwarding>>,
    pub(crate) reader: Reader,
    pub(crate) queues: Vec<OwnedQueue>,
    /// Packets that the kernel had refused of each of the queues at the last look.
    pub(crate) refused: Vec<u64>,
    pub(crate) local: Vec<u16>,
    pub(crate) burst: Burst,
    pub(crate) tools: Tools,
    pub(crate) links: Links,
    pub(crate) rest: Rest,
    pub(crate) commands: Consumer<Command>,
    pub(crate) status: Arc<Status>,
    pub(crate) trace: Option<Producer<Box<Traced>>>,
    pub(crate) version: u64,
    /// It receives nothing: the number of the last [`Command::Drain`].
    pub(crate) draining: Option<u64>,
    pub(crate) finishing: Finishing,
}

impl Worker {
    /// The thread's life: rounds, commands and sleep, until told to stop.
    pub fn run(mut self) {
        let mut before = tsc();
        loop {
            // Before the round, after sleep too: whoever told it something and then published a snapshot is obeyed in this order.
            if !self.commands.is_empty() && self.obey() {
                return;
            }
            let packets = self.round();
            if self.draining.is_some() {
                self.tell_quiet();
            }
            let after = tsc();
            let spent = after.wrapping_sub(before);
            let counters = &self.tools.counters;
            if packets > 0 {
                counters.busy_cycles.add(spent)
            } else {
                counters.idle_cycles.add(spent)
            }
            before = after;
            if self.rest.wants_sleep(packets, after) {
                self.sleep();
                before = tsc();
                self.tools.counters.asleep_cycles.add(before.wrapping_sub(after));
            }
        }
    }

    /// One look at every queue and every ring; returns the packets found.
    pub fn round(&mut self) -> usize {
        let Self { forwarding, reader, queues, local, burst, tools, links, trace, version, draining, .. } =
            self;
        links.begin_round();
        let forwarding = forwarding.read(reader);
        if *version != forwarding.version {
            *version = forwarding.version;
            tools.outbox.fit(forwarding);
            tools.capture_drops = forwarding.capture_drops;
        }
        let now = clock(tools);
        let mut packets = 0;
        if tools.flows.as_ref().is_some_and(|flows| flows.has_pending()) {
            let mut exits = Exits { queues, local, links, collected: None };
            tools.begin_burst();
            packets += flows::answers(forwarding, now, &mut exits, tools);
            transmit::run(forwarding, &mut exits, tools, &mut NoRecord);
            if !tools.patched.is_empty() {
                patch::through(forwarding, reader, None, burst, now, &mut exits, tools, &mut NoRecord);
            }
        }
        let own = if draining.is_some() { 0 } else { queues.len() };
        for index in 0..own {
            let begin = tsc();
            let port = queues[index].port;
            // What comes before a new port is in the snapshot waits in its queue.
            let Some(view) = forwarding.port(port) else { continue };
            // So does what comes before there is a decider.
            if waits_for_decider(forwarding, port, tools) {
                continue;
            }
            let n = receive::run(&mut *queues[index].queue, port, view, burst, tools);
            if n == 0 {
                continue;
            }
            packets += n;
            let OwnedQueue { finish, parked, .. } = &mut queues[index];
            parked.begin(finish.as_ref().map(Finish::last));
            if let Some(finish) = finish {
                let memory = tools.pool.memory();
                finish.received(burst.packets.iter().rev().filter_map(|packet| packet.before(memory)));
            }
            count(tools, Stage::Receive, n, begin);
            links.begin_own();
            tools.begin_burst();
            if !view.accepts() {
                refuse(port, DropReason::PortDown, burst, tools);
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
            let mut exits = Exits { queues, local, links, collected: None };
            match (&forwarding.trace, &mut *trace) {
                (Some(filter), Some(ring)) => traced(&source, filter, ring, burst, now, &mut exits, tools),
                _ => forward(&source, burst, now, &mut exits, tools, &mut NoRecord),
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
                tools,
                trace.as_mut(),
            );
        }
        for own in queues.iter_mut() {
            if packets > 0 || std::mem::take(&mut own.touched) {
                own.queue.kick(&mut tools.pool);
            }
        }
        // What has come by patch ports and waits for the decider belongs to no queue's burst any more.
        let waits = tools.flows.as_ref().is_some_and(|flows| flows.is_waited_for_beyond_queues());
        if self.finishing.active && !waits {
            self.finishing.run(queues, links);
        }
        links.publish();
        if packets > 0 {
            tools.counters.bursts.add(1);
            tools.counters.packets.add(packets as u64);
        }
        reader.quiescent();
        packets
    }

    /// A round, and the commands that have come; false when told to stop. For tests that turn a worker by hand.
    pub fn round_with_commands(&mut self) -> bool {
        self.round();
        !self.obey()
    }

    /// What is cached of flows, for tests and benches that turn a worker by hand.
    #[must_use]
    pub fn flows_view(&self) -> flows::FlowsView {
        self.tools.flows.as_ref().map(|flows| flows.view()).unwrap_or_default()
    }

    /// Runs `change` while this worker counts as asleep (a test's thread is both worker and control).
    pub fn while_offline<T>(&mut self, change: impl FnOnce() -> T) -> T {
        self.reader.while_offline(change)
    }

    fn sleep(&mut self) {
        let Self { rest, reader, queues, links, commands, status, tools, .. } = self;
        for own in queues.iter_mut() {
            own.queue.kick(&mut tools.pool);
        }
        let tools = &*tools;
        let pending = || {
            !commands.is_empty()
                || links.has_pending()
                || tools.flows.as_ref().is_some_and(|flows| flows.has_pending())
                || queues.iter_mut().any(|own| own.queue.has_pending())
        };
        tools.counters.sleeps.add(1);
        rest.sleep(pending, |doze| {
            status.asleep.store(true, Ordering::Relaxed);
            reader.offline();
            doze();
            reader.online();
            status.asleep.store(false, Ordering::Relaxed);
        });
    }

    /// Carries out what control asks; true when the worker is to end.
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
                    self.tools.capture = tap;
                }
                Command::Trace(ring) => self.trace = ring,
                Command::Punt(ring) => self.tools.punt = Some(ring),
                Command::Flows(flows) => {
                    // Of a decider whose end this worker has not been told.
                    let old = self.leave_flows();
                    self.tools.flows = Some(flows);
                    self.close_flows(old);
                }
                Command::NoFlows(reply) => {
                    let flows = self.leave_flows();
                    if let Err(mpsc::SendError(flows)) = reply.send(flows) {
                        self.close_flows(flows);
                    }
                }
                Command::FlowsView(reply) => {
                    let view = self.tools.flows.as_ref().map(|flows| flows.view()).unwrap_or_default();
                    let _ = reply.send(view);
                }
                Command::ExactCache(one_in) => {
                    if let Some(flows) = &mut self.tools.flows {
                        flows.set_exact(one_in);
                    }
                }
                Command::Inspect(reply) => {
                    let _ = reply.send(inspect::views(&self.queues, &mut self.refused, &self.tools));
                }
                Command::Frames(reply) => {
                    let queued = self.queues.iter().map(|own| own.queue.frames()).sum();
                    let _ = reply.send((self.tools.pool.len(), queued));
                }
                Command::Finish(port, id, to) => self.finish(port, id, to),
                Command::Part(port, reply) => {
                    let _ = reply.send(self.take(port, |own, refused, tools| {
                        inspect::settle(own, refused, tools);
                    }));
                }
                Command::Drain(look) => self.draining = Some(look),
                Command::Resume => self.draining = None,
                Command::Stop(reply) => {
                    let ports: Vec<PortId> = self.queues.iter().map(|own| own.port).collect();
                    let queues = ports.into_iter().flat_map(|port| self.remove(port)).collect();
                    let pool = &mut self.tools.pool;
                    if let Some(mut flows) = self.tools.flows.take() {
                        flows.abandon(&self.tools.counters);
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
        let settled = self.tools.flows.as_ref().is_none_or(|flows| flows.is_settled());
        if let Some(look) = self.draining.filter(|_| settled && !self.links.has_pending()) {
            self.status.quiet.store(look, Ordering::Release);
        }
    }

    pub(crate) fn add(&mut self, own: OwnedQueue) {
        if let Some(fd) = own.queue.wait_fd() {
            // Without a watch the worker still finds the packets at its next nap.
            let _ = self.rest.watch(fd);
        }
        self.refused.push(own.queue.counters().tx_invalid);
        self.queues.push(own);
        self.index();
    }

    /// Without flows from now on: what waited for a decision is counted as dropped.
    fn leave_flows(&mut self) -> Option<Box<flows::Flows>> {
        let mut flows = self.tools.flows.take();
        if let Some(flows) = &mut flows {
            flows.abandon(&self.tools.counters);
        }
        self.queues.iter_mut().for_each(|own| own.parked.clear());
        flows
    }

    /// Frees the frames of flows that nobody takes.
    fn close_flows(&mut self, gone: Option<Box<flows::Flows>>) {
        let pool = &mut self.tools.pool;
        gone.into_iter().for_each(|mut gone| gone.close(&mut |packet| pool.free(packet)));
    }

    fn finish(&mut self, port: PortId, id: QueueId, to: Option<Box<dyn Finisher>>) {
        if let Some(own) = self.queues.iter_mut().find(|own| own.port == port && own.id == id) {
            own.finish = to.map(Finish::new);
            own.parked.renumber();
        }
        self.finishing.active = self.queues.iter().any(|own| own.finish.is_some());
    }

    /// Takes a port's queues out once what was transmitted has left, and settles their accounts.
    fn remove(&mut self, port: PortId) -> Vec<OwnedQueue> {
        self.take(port, |own, refused, tools| {
            for _ in 0..1000 {
                if own.queue.in_flight() == 0 {
                    break;
                }
                own.queue.kick(&mut tools.pool);
            }
            inspect::settle(own, refused, tools);
            inspect::abandon(own, tools);
        })
    }

    fn take(
        &mut self,
        port: PortId,
        mut last: impl FnMut(&mut OwnedQueue, &mut u64, &mut Tools),
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
                last(&mut own, &mut refused, &mut self.tools);
                gone.push(own);
            } else {
                at += 1;
            }
        }
        self.index();
        gone
    }

    /// Which of its queues a port's packets leave by (the first of that port), and whether any tells its progress.
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

/// Where a burst comes from.
pub(crate) struct Source<'w> {
    pub(crate) forwarding: &'w Forwarding,
    pub(crate) port: PortId,
    pub(crate) view: &'w PortView,
    /// Index of the own queue that it was received from; `None` when another worker handed it over, or a patch port.
    pub(crate) queue: Option<usize>,
    /// Whether the worker that handed it over has run the port's own stage.
    pub(crate) seen: bool,
    /// The own queue whose burst is in hand: by patch ports, others' packets come of it.
    pub(crate) origin: Option<usize>,
    /// The worker's, with which tables are asked.
    pub(crate) reader: &'w Reader,
}

/// A packet's whole path, through patch ports as well.
pub(crate) fn forward<R: Recorder>(
    source: &Source<'_>,
    burst: &mut Burst,
    now: Now,
    exits: &mut Exits<'_>,
    tools: &mut Tools,
    recorder: &mut R,
) {
    path(source, burst, now, exits, tools, recorder);
    if !tools.patched.is_empty() {
        let Source { forwarding, origin, reader, .. } = *source;
        patch::through(forwarding, reader, origin, burst, now, exits, tools, recorder);
    }
}

/// A packet's path through one room, from its arrival in memory to the queue it leaves by.
pub(crate) fn path<R: Recorder>(
    source: &Source<'_>,
    burst: &mut Burst,
    now: Now,
    exits: &mut Exits<'_>,
    tools: &mut Tools,
    recorder: &mut R,
) {
    let Source { forwarding, port, view, queue, seen, origin, reader } = *source;
    let n = burst.len();
    let mut begin = tsc();
    tools.queue = origin;
    let spreads = queue.filter(|at| view.spread.is_some() || exits.queues[*at].spread.is_away());
    if let Room::Route(router, interface) = &view.room
        && !R::ACTIVE
        && spreads.is_none()
        && !view.complete_checksums
        && view.own.is_none()
    {
        // Nobody asks for their keys.
        if router.mirrored.has_vlans() {
            route::untag(port, router, *interface, burst, false, tools);
        }
        route::read(port, router, *interface, burst, tools);
        begin = count(tools, Stage::Parse, n, begin);
        route::look_up(port, router, *interface, reader, burst, tools);
        begin = count(tools, Stage::Room, n, begin);
        route::run::<R, true>(
            forwarding, port, router, *interface, burst, now, reader, exits, tools, recorder,
        );
        begin = count(tools, Stage::Execute, n, begin);
        transmit::run(forwarding, exits, tools, recorder);
        count(tools, Stage::Transmit, n, begin);
        return;
    }
    if !matches!(view.room, Room::Wire(_) | Room::Tagged(..)) || view.own.is_some() {
        parse::run(port, view, spreads.is_some(), burst, tools, recorder);
        begin = count(tools, Stage::Parse, n, begin);
        // What it refuses takes no room in the rings between workers.
        if let Some(stage) = view.own.as_ref().filter(|_| !seen) {
            let n = burst.len();
            own::run(port, stage.as_ref(), burst, now, tools, recorder);
            begin = count(tools, Stage::Own, n, begin);
        }
        if let Some(index) = spreads {
            let applied = &mut exits.queues[index].spread;
            let (seen, table) = (view.own.is_some(), view.spread.as_ref());
            spread::run(port, seen, table, applied, burst, exits.links, tools, recorder);
            begin = count(tools, Stage::Spread, n, begin);
        }
    }
    room::run(port, &view.room, burst, now, reader, tools, recorder);
    begin = count(tools, Stage::Room, burst.len(), begin);
    let n = burst.len();
    execute::run(forwarding, port, &view.room, burst, now, reader, exits, tools, recorder);
    begin = count(tools, Stage::Execute, n, begin);
    transmit::run(forwarding, exits, tools, recorder);
    count(tools, Stage::Transmit, n, begin);
}

/// The same path for one packet after the other, telling the trace about those that match.
#[cold]
fn traced(
    source: &Source<'_>,
    filter: &TraceFilter,
    ring: &mut Producer<Box<Traced>>,
    burst: &mut Burst,
    now: Now,
    exits: &mut Exits<'_>,
    tools: &mut Tools,
) {
    for packet in std::mem::take(&mut *burst.packets) {
        let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        // Not the burst's: a wire reads no keys, and of a frame that cannot be read the one before would be left there.
        let key = key_of(&packet, tools.pool.memory(), source.port);
        let mut recorder = TraceRecorder::default();
        recorder.step(0, Step::Received { port: source.port, queue: queue_id(source, exits), len });
        if let (None, Some(key), Some(_)) = (source.queue, &key, &source.view.spread) {
            // The worker of its queue has given it to this one.
            recorder.step(0, spread::step(key, tools.id));
        }
        burst.packets.push(packet);
        forward(source, burst, now, exits, tools, &mut recorder);
        if recorder.handed_over() {
            // The worker that goes on with it tells its story.
            continue;
        }
        let mut asked = key.unwrap_or(FlowKey::ZERO);
        asked.set_in_port(source.port);
        if ring.free() > 0 && filter.claims(&asked) {
            let traced = Traced { worker: tools.id, port: source.port, len, key, steps: recorder.steps };
            let _ = ring.push(Box::new(traced));
        }
    }
}

fn queue_id(source: &Source<'_>, exits: &Exits<'_>) -> QueueId {
    source.queue.map_or(QueueId(0), |index| exits.queues[index].id)
}

/// Takes what one worker has handed over: first what is to be sent, then a burst of one port's packets to be processed.
#[allow(clippy::too_many_arguments, reason = "the worker's parts, borrowed apart")]
fn handed_over(
    forwarding: &Forwarding,
    from: usize,
    burst: &mut Burst,
    now: Now,
    reader: &Reader,
    queues: &mut [OwnedQueue],
    local: &[u16],
    links: &mut Links,
    tools: &mut Tools,
    trace: Option<&mut Producer<Box<Traced>>>,
) -> usize {
    let mut exits = Exits { queues, local, links, collected: None };
    let mut relayed = 0;
    while relayed < port::BURST {
        let Some(output) = exits.links.take_output(from) else { break };
        relayed += 1;
        relay(forwarding, output.packet, output.out, &mut exits, tools);
    }
    transmit::run(forwarding, &mut exits, tools, &mut NoRecord);
    if !tools.patched.is_empty() {
        patch::through(forwarding, reader, None, burst, now, &mut exits, tools, &mut NoRecord);
    }
    let mut arrived = None;
    while !burst.packets.is_full() {
        match exits.links.take(from) {
            // Before there is a decider it waits.
            Some((packet, port, seen)) if waits_for_decider(forwarding, port, tools) => {
                exits.links.put_back(from, packet, port, seen);
                break;
            }
            Some((packet, port, seen)) if arrived.is_none_or(|first| first == (port, seen)) => {
                arrived = Some((port, seen));
                burst.packets.push(packet);
            }
            Some((packet, port, seen)) => {
                exits.links.put_back(from, packet, port, seen);
                break;
            }
            None => break,
        }
    }
    let n = burst.len();
    if let Some((port, seen)) = arrived {
        tools.begin_burst();
        match forwarding.port(port) {
            Some(view) if view.accepts() => {
                let source = Source { forwarding, port, view, queue: None, seen, origin: None, reader };
                match (&forwarding.trace, trace) {
                    (Some(filter), Some(ring)) => {
                        traced(&source, filter, ring, burst, now, &mut exits, tools)
                    }
                    _ => forward(&source, burst, now, &mut exits, tools, &mut NoRecord),
                }
            }
            Some(_) => refuse(port, DropReason::PortDown, burst, tools),
            None => refuse(port, DropReason::PortRemoved, burst, tools),
        }
    }
    tools.counters.taken_over.add((relayed + n) as u64);
    relayed + n
}

/// Whether a port's packets cannot be decided yet.
fn waits_for_decider(forwarding: &Forwarding, port: PortId, tools: &Tools) -> bool {
    tools.flows.is_none() && forwarding.port(port).is_some_and(|view| matches!(view.room, Room::Flows(_)))
}

/// Puts a packet that another worker decided into the outbox.
fn relay(
    forwarding: &Forwarding,
    packet: port::Packet,
    out: PortId,
    exits: &mut Exits<'_>,
    tools: &mut Tools,
) {
    use crate::stage::outbox::Refused;
    // A queue that has moved on to yet another worker must not send packets in a circle.
    if exits.local.get(out.index()).is_none_or(|at| *at == NOT_MINE) {
        return tools.drop_at_output(packet, out, DropReason::PortRemoved);
    }
    let packet = match tools.outbox.push(out, packet) {
        Ok(()) => return,
        Err(Refused::Full(packet)) => packet,
        Err(Refused::NoPort(packet)) => return tools.drop_at_output(packet, out, DropReason::PortRemoved),
    };
    transmit::port(forwarding, out, exits, tools, &mut NoRecord);
    if let Err(Refused::Full(packet) | Refused::NoPort(packet)) = tools.outbox.push(out, packet) {
        tools.drop_at_output(packet, out, DropReason::PortRemoved);
    }
}

/// Packets that came in by a port that is down, or is no port any more.
#[cold]
fn refuse(port: PortId, reason: DropReason, burst: &mut Burst, tools: &mut Tools) {
    for packet in std::mem::take(&mut *burst.packets) {
        tools.drop(packet, port, reason);
    }
}

/// Adds a stage's packets and time; returns the time for the next stage to begin with.
#[inline]
fn count(tools: &Tools, stage: Stage, packets: usize, begin: u64) -> u64 {
    let now = tsc();
    let counters = &tools.counters.stages[stage as usize];
    counters.packets.add(packets as u64);
    counters.cycles.add(now.wrapping_sub(begin));
    now
}

/// The time of this round.
#[inline]
fn clock(tools: &mut Tools) -> Now {
    let now = monotonic();
    if let Some(tap) = &mut tools.capture {
        tap.now_ns = now.ns;
    }
    now
}

/// Nanoseconds of CLOCK_MONOTONIC, and its seconds modulo 65,536.
#[must_use]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "coarse seconds wrap by design; the clock is not negative"
)]
pub fn monotonic() -> Now {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Now { ns: time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64, secs: time.tv_sec as u16 }
}
