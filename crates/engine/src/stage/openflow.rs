//! Forwarding by OpenFlow bridges. The stage looks up packets in the flow cache, executes the cached actions,
//! and sends packets that match no megaflow to the slow path.
//!
//! While the slow path processes the first packet of a flow, later packets of the flow wait in the worker without a
//! lookup. Therefore packets of a flow do not overtake each other. The number of waiting packets is limited for each
//! flow, and the number of their frames is limited for each port and in total. A packet of a TAP port before
//! segmentation may consist of 37 frames, so the limits of ports count frames.

mod dry_run;
mod execute;
mod normal;
mod recirculate;
mod steps;
mod waiting;

use std::sync::Arc;

use execute::{act, count};
use lookup::MISS;
use normal::normal_burst;
use packet::record::{NoRecord, Recorder, Step};
use packet::{DropReason, FlowKey, PortId};
use switch::Now;
use switch::flow::{ConnectionFields, ExtendedKey, one_tag};
use waiting::{identity, miss, returned, waits_no_more};

use super::flow_cache::{Flows, Pending, Ticket, Waiting};
use super::path_context::Context;
use super::transmit::Egress;
use super::{CLONE_BUDGET, WorkerContext};
use crate::burst::Burst;
use crate::counters::Stage;
use crate::flows::{CacheCommand, CacheCompletion, FlowBridge, Kind};

/// Maximum number of messages from the slow path that a worker processes in one round.
const ANSWERS: usize = 256;
/// Number of calls of [`answers`] after which the flow cache's masks are sorted by their number of hits.
const RERANK: u32 = 16_384;

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
        return dry_run::run(bridge, context, burst);
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
        counted => {
            one_by_one(bridge, context, burst, counted.is_some(), &mut flows);
            recirculate::run(&mut flows, context);
            bell(&mut flows);
        }
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
                act(bridge, context, packet, &flow.compiled, ConnectionFields::default());
            }
            None => {
                let extended =
                    ExtendedKey::extract(packet.head(context.worker.pool.memory()), key, &layers[i]);
                context.recorder.step(i, Step::Upcall);
                let ticket = Ticket::take(context.egress, context.worker);
                let (bridge, port) = (Arc::clone(bridge), context.port);
                let asks = Waiting { bridge, port, packet, key: *key, extended, ticket, recirculation: None };
                miss(asks, flows, context.egress, context.worker);
            }
        }
    }
}

/// Wakes the slow path if messages were sent to the slow path since its thread was last woken.
fn bell(flows: &mut Flows) {
    if std::mem::take(&mut flows.rings_bell) {
        flows.rings.waker.notify_if_sleeping();
    }
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
            CacheCommand::Release { bridge, port, packet, key, compiled, connection } => {
                budget.packets += 1;
                if key.is_none() {
                    // A controller's packet was received from no port.
                    context.worker.counters.port(port).copies.add(1);
                }
                let identity = key.map(|key| identity(&key));
                let ticket = identity.and_then(|identity| returned(&identity, flows));
                Ticket::hold(ticket, context.egress, context.worker);
                context.port = port;
                act(&bridge, context, packet, &compiled, connection.map(|own| *own).unwrap_or_default());
                recirculate::run(flows, context);
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
        flows.cache.find_burst(next.key.in_port().0, |_| next.key.words(), |_| next.extended.0, &mut at);
        let Some(flow) = flows.cache.get_at(at[0]) else {
            miss(next, flows, context.egress, context.worker);
            break;
        };
        count(flow, 1, next.packet.len() as u64, context.now);
        let compiled = Arc::clone(&flow.compiled);
        Ticket::hold(next.ticket, context.egress, context.worker);
        gone += 1;
        context.port = next.port;
        act(&next.bridge, context, next.packet, &compiled, next.extended.connection());
        recirculate::run(flows, context);
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
