//! Forwarding by OpenFlow bridges. The stage looks up packets in the flow cache, executes the cached actions,
//! and sends packets that match no megaflow to the slow path.
//!
//! While the slow path processes the first packet of a flow, later packets of the flow wait in the worker without a
//! lookup. Therefore packets of a flow do not overtake each other. The number of waiting packets is limited for each
//! flow, and the number of their frames is limited for each port and in total. A packet of a TAP port before
//! segmentation may consist of 37 frames, so the limits of ports count frames.

mod normal;
mod steps;

use std::collections::VecDeque;
use std::sync::Arc;

use lookup::MISS;
use normal::{normal, normal_burst};
use packet::record::{NoRecord, Recorder, Step, TagChange};
use packet::{DropReason, FlowKey, PortId};
use port::Packet;
use steps::Steps;
use switch::Now;
use switch::flow::{ExtendedKey, Flow, TranslationInput, one_tag};

use super::flow_cache::{Pending, Ticket, Waiting};
use super::path_context::Context;
use super::transmit::{Egress, OwnedQueue};
use super::{CLONE_BUDGET, WorkerContext, output};
use crate::burst::Burst;
use crate::counters::Stage;
use crate::flows::{CacheCommand, CacheCompletion, CachedFlow, Compiled, FlowBridge, Kind, Upcall};

use super::flow_cache::Flows;

/// Maximum number of packets of one flow that wait while the slow path processes the flow's first packet.
const WAITING_EACH: usize = 512;
/// Maximum number of frames of the packets of all flows that wait for the slow path. The waiting frames of one port may
/// not exceed the number of frames that are still free of this limit. Therefore one port alone can use at most half of
/// the limit, two ports can use a third each, and another port always finds a free part.
const WAITING: usize = 4096;
/// Maximum number of frames of the packets of one port that are at the slow path or on the way to it. The limit leaves
/// space for other ports when one port causes many upcalls.
const UPCALLS_EACH: u16 = 512;
/// Maximum number of messages from the slow path that a worker processes in one round.
const ANSWERS: usize = 256;
/// Number of calls of [`answers`] after which the flow cache's masks are sorted by their number of hits.
const RERANK: u32 = 16_384;

impl Ticket {
    /// Records that a packet of the current burst waits for the slow path. Returns the receive queue and the burst in
    /// which the packet arrived. A packet that the slow path has released before, and that has then passed a patch
    /// port, gets the queue and the burst of its earlier wait. Returns `None` if another worker or a controller has
    /// sent the packet to this worker.
    fn take(egress: &mut Egress<'_>, context: &WorkerContext) -> Option<Ticket> {
        if let Some(ticket) = context.released {
            let own = ticket.queue_of(egress)?;
            return own.parked.park_again(ticket.burst).then_some(ticket);
        }
        let own = egress.queues.get_mut(context.queue?)?;
        Some(Ticket { port: own.port, queue: own.id, burst: own.parked.park() })
    }

    /// Records that a packet no longer waits for the slow path. `ticket` is the value that [`Ticket::take`] returned
    /// for this packet.
    fn give_back(ticket: Option<Ticket>, egress: &mut Egress<'_>) {
        if let Some(ticket) = ticket
            && let Some(own) = ticket.queue_of(egress)
        {
            own.parked.release(ticket.burst);
        }
    }

    /// Makes `ticket` the ticket of the packets that the worker currently processes after their release by the slow
    /// path. Gives back the ticket of the packets that were released before. None of the packets released before may
    /// be on its way to a patch port, except packets of the same burst.
    fn hold(ticket: Option<Ticket>, egress: &mut Egress<'_>, worker: &mut WorkerContext) {
        let before = std::mem::replace(&mut worker.released, ticket);
        Ticket::give_back(before, egress);
    }

    fn queue_of<'e>(&self, egress: &'e mut Egress<'_>) -> Option<&'e mut OwnedQueue> {
        egress.queues.iter_mut().find(|own| own.port == self.port && own.id == self.queue)
    }
}

/// Returns the fields of the flow key that identify a flow whose packets must stay in order: port, VLANs, addresses,
/// protocol, L4 ports and fragment flags.
#[inline]
fn identity(key: &FlowKey) -> FlowKey {
    let mut own = *key;
    own.set_tcp_flags(0);
    own.set_tos(0);
    own.set_ttl(0);
    own
}

/// Processes the packets of `burst`, whose flow keys are already filled. Moves the packets to transmit into the outbox.
/// `burst` is empty afterwards.
pub(super) fn process<R: Recorder>(
    bridge: &Arc<FlowBridge>,
    context: &mut Context<'_, '_, R>,
    burst: &mut Burst,
) {
    let n = burst.packets.len();
    if bridge.tables.sees_one_tag() {
        burst.keys[..n].iter_mut().for_each(|key| *key = one_tag(key).unwrap_or(*key));
    }
    if R::DRY {
        return dry(bridge, context, burst);
    }
    let Some(mut flows) = context.worker.flows.take() else {
        for packet in burst.packets.drain(..) {
            context.worker.drop(packet, context.port, DropReason::NoFunction);
        }
        return;
    };
    look_up(context.port, burst, &mut flows, context.worker);
    context.count(Stage::Function, n);
    let whole = if flows.pending.is_empty() && !R::ACTIVE {
        one_way(&mut flows, burst, n, context.now)
    } else {
        None
    };
    match whole {
        Some(Kind::Output(out)) if context.worker.outbox.take_whole(out, &mut burst.packets) => {}
        Some(Kind::Normal) => normal_burst(bridge, context, burst),
        counted => one_by_one(bridge, context, burst, counted.is_some(), &mut flows),
    }
    context.worker.flows = Some(flows);
    context.count(Stage::Execute, n);
}

/// Finds the megaflow of each packet in the flow cache.
#[inline]
fn look_up(port: PortId, burst: &Burst, flows: &mut Flows, worker: &WorkerContext) {
    let memory = worker.pool.memory();
    let Burst { packets, keys, layers, .. } = burst;
    let extended = |i: usize| ExtendedKey::extract(packets[i].head(memory), &keys[i], &layers[i]).0;
    let n = packets.len();
    flows.cache.find_burst(port.0, |i| keys[i].words(), extended, &mut flows.found[..n]);
}

/// Handles a burst whose packets all match megaflows with equal actions, which must be a single output or
/// `NORMAL`. Counts the packets for their megaflows and returns the class of the actions. Returns `None`
/// without counting for any other burst.
#[inline]
fn one_way(flows: &mut Flows, burst: &Burst, n: usize, now: Now) -> Option<Kind> {
    let found = flows.found.get(..n)?;
    let mut row = (*found.first()?, 0, 0);
    let first = flows.cache.get_at(row.0)?.compiled.kind;
    if !matches!(first, Kind::Output(_) | Kind::Normal) {
        return None;
    }
    let same = |at: u32| flows.cache.get_at(at).is_some_and(|flow| flow.compiled.kind == first);
    let changes = |(before, own): (&u32, &u32)| before != own && !same(*own);
    if found.iter().zip(&found[1..]).any(changes) {
        return None;
    }
    // Packets of one flow often arrive in sequence, so their counts are summed before the update.
    let count_row = |(at, packets, bytes): (u32, u64, u64)| {
        if let Some(flow) = flows.cache.get_at(at) {
            count(flow, packets, bytes, now);
        }
    };
    for (at, packet) in found.iter().zip(&*burst.packets) {
        if *at != row.0 {
            count_row(row);
            row = (*at, 0, 0);
        }
        (row.1, row.2) = (row.1 + 1, row.2 + packet.len() as u64);
    }
    count_row(row);
    Some(first)
}

#[inline(always)]
fn count(flow: &CachedFlow, packets: u64, bytes: u64, now: Now) {
    flow.live.packets.add(packets);
    flow.live.bytes.add(bytes);
    flow.live.used_ns.set(now.ns);
}

fn one_by_one<R: Recorder>(
    bridge: &Arc<FlowBridge>,
    context: &mut Context<'_, '_, R>,
    burst: &mut Burst,
    counted: bool,
    flows: &mut Flows,
) {
    let Burst { packets, keys, layers, .. } = burst;
    for (i, packet) in packets.drain(..).enumerate() {
        let key = &keys[i];
        let waits = !flows.pending.is_empty() && flows.pending.contains_key(&identity(key));
        let found = flows.cache.get_at(flows.found[i]).filter(|_| !waits);
        match found {
            Some(flow) => {
                if !counted {
                    count(flow, 1, packet.len() as u64, context.now);
                }
                context.recorder.step(i, Step::FlowHit);
                act(bridge, context, packet, &flow.compiled);
            }
            None => {
                let extended =
                    ExtendedKey::extract(packet.head(context.worker.pool.memory()), key, &layers[i]);
                context.recorder.step(i, Step::Upcall);
                let ticket = Ticket::take(context.egress, context.worker);
                let (bridge, port) = (Arc::clone(bridge), context.port);
                let asks = Waiting { bridge, port, packet, key: *key, extended, ticket };
                miss(asks, flows, context.egress, context.worker);
            }
        }
    }
    bell(flows);
}

/// Wakes the slow path if messages were sent to the slow path since its thread was last woken.
fn bell(flows: &mut Flows) {
    if std::mem::take(&mut flows.rings_bell) {
        flows.rings.waker.notify_if_sleeping();
    }
}

/// Sends a packet to the slow path. If an earlier packet of the flow is already at the slow path, the packet waits in
/// the worker until the slow path returns the earlier packet. If a limit is exceeded, the packet is dropped.
#[cold]
fn miss(asks: Waiting, flows: &mut Flows, egress: &mut Egress<'_>, context: &mut WorkerContext) {
    let (port, ticket) = (asks.ingress(), asks.ticket);
    if let Err(packet) = wait(asks, flows) {
        Ticket::give_back(ticket, egress);
        context.drop(packet, port, DropReason::UpcallLimit);
    }
}

/// Sends a packet to the slow path like [`miss`], but returns the packet as an error if a limit is exceeded.
fn wait(asks: Waiting, flows: &mut Flows) -> Result<(), Packet> {
    let (identity, ingress) = (identity(&asks.key), asks.ingress());
    if let Some(pending) = flows.pending.get_mut(&identity) {
        if flows.waiting_by_port.len() <= ingress.index() {
            flows.waiting_by_port.resize(ingress.index() + 1, 0);
        }
        let own = &mut flows.waiting_by_port[ingress.index()];
        let frames = usize::from(asks.packet.segments());
        let most = (WAITING - flows.waiting) / if asks.is_patched() { 2 } else { 1 };
        if pending.behind.len() >= WAITING_EACH || *own + frames > most {
            return Err(asks.packet);
        }
        *own += frames;
        flows.waiting += frames;
        pending.behind.push_back(asks);
        return Ok(());
    }
    if flows.asked.len() <= ingress.index() {
        flows.asked.resize(ingress.index() + 1, 0);
    }
    let asked = &mut flows.asked[ingress.index()];
    let frames = asks.packet.segments();
    let most = UPCALLS_EACH / if asks.is_patched() { 2 } else { 1 };
    if *asked + frames > most {
        return Err(asks.packet);
    }
    let Waiting { bridge, port, packet, key, extended, ticket } = asks;
    flows.rings.upcalls.push(Upcall { bridge, port, packet, key, extended }).map_err(|back| back.packet)?;
    *asked += frames;
    let asked = Some((ingress, frames));
    flows.pending.insert(identity, Pending { ticket, asked, behind: VecDeque::new() });
    flows.rings_bell = true;
    Ok(())
}

/// Subtracts the frames of a packet from the numbers of frames that wait for the slow path.
fn waits_no_more(waiting: &Waiting, flows: &mut Flows) {
    let frames = usize::from(waiting.packet.segments());
    flows.waiting -= frames;
    if let Some(own) = flows.waiting_by_port.get_mut(waiting.ingress().index()) {
        *own -= frames;
    }
}

/// Records that the slow path has returned the first packet of a flow. Returns the ticket of this packet.
fn returned(identity: &FlowKey, flows: &mut Flows) -> Option<Ticket> {
    let pending = flows.pending.get_mut(identity)?;
    if let Some((port, frames)) = pending.asked.take()
        && let Some(asked) = flows.asked.get_mut(port.index())
    {
        *asked = asked.saturating_sub(frames);
    }
    pending.ticket.take()
}

/// Counts of what [`answers`] has processed in the current round of the worker. The counts limit the work of a round.
#[derive(Default)]
pub struct AnswerBudget {
    /// Number of messages processed.
    messages: usize,
    /// Number of copies that the released packets have caused.
    copies: u32,
    /// Number of packets processed.
    pub packets: usize,
}

/// Processes messages of the slow path. A message changes the flow cache or returns a packet with actions to
/// execute. Returns true if the call was interrupted because released packets go to patch ports. The caller then
/// processes the packets behind the patch ports, calls [`end_release`], and calls this function again. Therefore
/// packets of different tickets do not mix behind patch ports.
pub fn answers(context: &mut Context<'_, '_, NoRecord>, budget: &mut AnswerBudget) -> bool {
    let Some(mut flows) = context.worker.flows.take() else { return false };
    let is_interrupted = answers_until_patched(&mut flows, context, budget);
    bell(&mut flows);
    context.worker.flows = Some(flows);
    is_interrupted
}

/// Ends the processing of the packets that the last call of [`answers`] has released.
pub fn end_release(egress: &mut Egress<'_>, worker: &mut WorkerContext) {
    Ticket::hold(None, egress, worker);
}

/// Returns whether any packet is on its way to a patch port.
fn has_patched(context: &Context<'_, '_, NoRecord>) -> bool {
    !context.worker.patched.is_empty() || context.worker.outbox.has_patched(context.forwarding)
}

/// Does the work of [`answers`] with the flow cache of the worker.
fn answers_until_patched(
    flows: &mut Flows,
    context: &mut Context<'_, '_, NoRecord>,
    budget: &mut AnswerBudget,
) -> bool {
    if budget.messages == 0 {
        flows.rounds += 1;
        if flows.rounds >= RERANK {
            flows.rounds = 0;
            flows.cache.rerank();
        }
    }
    if let Some(identity) = flows.following.take() {
        budget.packets += follow(&identity, flows, context);
        if has_patched(context) {
            return true;
        }
    }
    loop {
        // Packets that the slow path releases share one burst's budget of copies, but for the last of them.
        let left = std::mem::replace(&mut context.worker.clones_left, CLONE_BUDGET);
        budget.copies += CLONE_BUDGET - left;
        if budget.messages >= ANSWERS || flows.rings.told.free() < 2 || budget.copies >= CLONE_BUDGET {
            return false;
        }
        let Some(answer) = flows.rings.answers.pop() else { return false };
        budget.messages += 1;
        match answer {
            CacheCommand::Release { bridge, port, packet, key, compiled } => {
                budget.packets += 1;
                if key.is_none() {
                    // A controller's packet was received from no port.
                    context.worker.counters.port(port).copies.add(1);
                }
                let identity = key.map(|key| identity(&key));
                let ticket = identity.and_then(|identity| returned(&identity, flows));
                Ticket::hold(ticket, context.egress, context.worker);
                context.port = port;
                act(&bridge, context, packet, &compiled);
                if let Some(identity) = identity {
                    budget.packets += follow(&identity, flows, context);
                }
                if has_patched(context) {
                    return true;
                }
            }
            CacheCommand::Install(mut install) => {
                let (key, mask) = (install.key.words(), install.mask.words());
                let (extended, extended_mask) = (&install.extended.0, &install.extended_mask.0);
                let flow = install.flow.take();
                // The cache may refuse the megaflow because it is full or has an equal megaflow. The slow
                // path accepts the refusal.
                let put = flow.and_then(|flow| {
                    let port = install.key.in_port().0;
                    flows.cache.insert(port, key, extended, mask, extended_mask, flow).ok()
                });
                tell(flows, CacheCompletion::Installed(install.id, put, install));
            }
            CacheCommand::Replace(at, compiled) => {
                if let Some(flow) = flows.cache.get_mut(at) {
                    let old = std::mem::replace(&mut flow.compiled, compiled);
                    tell(flows, CacheCompletion::Replaced(old));
                }
            }
            CacheCommand::Remove(at) => {
                if let Some(flow) = flows.cache.remove(at) {
                    tell(flows, CacheCompletion::Removed(flow));
                }
            }
            CacheCommand::Sync(number) => tell(flows, CacheCompletion::Synced(number)),
        }
    }
}

fn tell(flows: &mut Flows, what: CacheCompletion) {
    // The space was checked before the answer was taken.
    let _ = flows.rings.told.push(what);
    flows.rings_bell = true;
}

/// Processes the packets of a flow that waited while an earlier packet was at the slow path. The
/// slow path has returned the earlier packet before this call. Stops at the first packet that
/// matches no megaflow, which is sent to the slow path. Also stops, and sets `Flows::following`, before a packet of
/// another ticket if packets are on their way to a patch port. Returns the number of packets processed.
#[cold]
fn follow(identity: &FlowKey, flows: &mut Flows, context: &mut Context<'_, '_, NoRecord>) -> usize {
    let Some(Pending { behind: mut waiting, .. }) = flows.pending.remove(identity) else { return 0 };
    let mut gone = 0;
    while let Some(next) = waiting.front() {
        if next.ticket != context.worker.released && has_patched(context) {
            // Packets of the flow that arrive behind patch ports meanwhile wait behind these packets.
            flows.pending.insert(*identity, Pending { ticket: None, asked: None, behind: waiting });
            flows.following = Some(*identity);
            return gone;
        }
        let Some(next) = waiting.pop_front() else { break };
        waits_no_more(&next, flows);
        let mut at = [MISS];
        flows.cache.find_burst(next.port.0, |_| next.key.words(), |_| next.extended.0, &mut at);
        let Some(flow) = flows.cache.get_at(at[0]) else {
            miss(next, flows, context.egress, context.worker);
            break;
        };
        count(flow, 1, next.packet.len() as u64, context.now);
        let compiled = Arc::clone(&flow.compiled);
        Ticket::hold(next.ticket, context.egress, context.worker);
        gone += 1;
        context.port = next.port;
        act(&next.bridge, context, next.packet, &compiled);
    }
    if let Some(pending) = flows.pending.get_mut(identity) {
        pending.behind.extend(waiting);
    } else {
        // The next packet exceeded a limit, so the packets behind it are dropped as well.
        for next in waiting {
            waits_no_more(&next, flows);
            Ticket::give_back(next.ticket, context.egress);
            let ingress = next.ingress();
            context.worker.drop(next.packet, ingress, DropReason::UpcallLimit);
        }
    }
    gone
}

/// Executes the actions of a megaflow on one packet.
#[inline]
fn act<R: Recorder>(
    bridge: &Arc<FlowBridge>,
    context: &mut Context<'_, '_, R>,
    packet: Packet,
    compiled: &Compiled,
) {
    match compiled.kind {
        Kind::Output(out) => {
            context.recorder.step(0, Step::Output { port: out, tag: TagChange::Keep });
            output::send(context, out, packet);
        }
        Kind::Drop => {
            context.recorder.step(0, Step::Dropped(compiled.dropped));
            context.worker.drop(packet, context.port, compiled.dropped);
        }
        Kind::Normal => normal(bridge, context, packet),
        Kind::Steps => {
            let steps = Steps { bridge, compiled };
            if let Some(packet) = steps.run(packet, context) {
                context.recorder.step(0, Step::Dropped(compiled.dropped));
                context.worker.drop(packet, context.port, compiled.dropped);
            }
        }
    }
}

/// Processes packets in a dry run: translates the packets with the flow tables and executes the resulting actions,
/// without caching and counting.
#[cold]
fn dry<R: Recorder>(bridge: &Arc<FlowBridge>, context: &mut Context<'_, '_, R>, burst: &mut Burst) {
    let Burst { packets, keys, layers, .. } = burst;
    for (i, packet) in packets.drain(..).enumerate() {
        let mut frame = vec![0; packet.len()];
        packet.copy_to(context.worker.pool.memory(), &mut frame);
        let compiled = {
            let pipeline = bridge.tables.lock();
            let in_port = pipeline.number_of(context.port).unwrap_or(switch::flow::port::ANY);
            let extended = ExtendedKey::extract(&frame, &keys[i], &layers[i]);
            let flow = Flow::new(&keys[i], &extended, in_port);
            let fate = pipeline.translate(TranslationInput { flow: &flow, frame: Some(&frame), trace: true });
            // A bridge without rules has an empty report.
            let trace_report = pipeline.trace_report(&flow, &fate);
            if !trace_report.lines.is_empty() {
                context.worker.trace_reports.push(trace_report);
            }
            for rule in fate.rules.iter().filter_map(|rule| pipeline.rule(*rule)) {
                let (table, priority, cookie) = (rule.table, rule.priority, rule.cookie);
                context.recorder.step(i, Step::Rule { table, priority, cookie });
            }
            for table in &fate.missed {
                context.recorder.step(i, Step::NoRule { table: *table });
            }
            if !fate.to_controller.is_empty() {
                context.recorder.step(i, Step::ToController);
            }
            Compiled::new(fate.program, fate.dropped, Vec::new())
        };
        act(bridge, context, packet, &compiled);
    }
}
