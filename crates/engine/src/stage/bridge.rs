//! Forwarding by learning bridges. The stage looks up the forwarding decision for each packet and executes the
//! decisions: it rewrites VLAN tags, copies flooded packets, and sorts packets by output port.

use packet::record::{Recorder, TagChange};
use packet::{DropReason, PortId};
use port::Packet;
use switch::{Bridge, Decision};

use super::path_context::Context;
use super::punt::Punt;
use super::{WorkerContext, output};
use crate::burst::Burst;
use crate::counters::Stage;

/// Forwards the packets of `burst` with the learning bridge. The flow keys are already filled. `burst` is empty
/// afterwards.
pub(super) fn process<R: Recorder>(bridge: &Bridge, context: &mut Context<'_, '_, R>, burst: &mut Burst) {
    let n = burst.len();
    decide(bridge, context, burst);
    context.count(Stage::Function, n);
    execute(bridge, context, burst);
    context.count(Stage::Execute, n);
}

/// Looks up the forwarding decisions for the packets of `burst`, whose flow keys are already filled.
pub(super) fn decide<R: Recorder>(bridge: &Bridge, context: &mut Context<'_, '_, R>, burst: &mut Burst) {
    let n = burst.len();
    bridge.forward(
        &burst.keys[..n],
        &burst.layers[..n],
        context.now,
        &mut context.worker.scratch,
        &mut burst.decisions[..n],
        context.recorder,
    );
}

/// Executes the forwarding decisions for the packets of `burst`.
pub(super) fn execute<R: Recorder>(bridge: &Bridge, context: &mut Context<'_, '_, R>, burst: &mut Burst) {
    let n = burst.packets.len();
    let decisions = &burst.decisions[..n];
    // Often all packets of a burst leave unchanged by one port. The burst then moves as a whole.
    if let Some(&Decision::Forward { port: out, tag: TagChange::Keep }) = decisions.first()
        && decisions.iter().all(|d| *d == decisions[0])
        && context.worker.outbox.take_whole(out, &mut burst.packets)
    {
        return;
    }
    for (packet, decision) in burst.packets.drain(..).zip(decisions) {
        execute_one(bridge, context, packet, decision);
    }
}

/// Executes the forwarding decision for one packet.
#[inline(always)]
pub(super) fn execute_one<R: Recorder>(
    bridge: &Bridge,
    context: &mut Context<'_, '_, R>,
    packet: Packet,
    decision: &Decision,
) {
    match *decision {
        Decision::Forward { port: out, tag: TagChange::Keep } => output::send(context, out, packet),
        Decision::Forward { port: out, tag } => output::send_tagged(context, packet, out, tag),
        Decision::Drop(reason) => context.worker.drop(packet, context.port, reason),
        Decision::Flood { vid, .. } | Decision::Group { vid, .. } => {
            if decision.punts() && !punt(context.port, vid, &packet, context.worker) {
                bridge.note_unsnooped(context.port, context.now);
            }
            flood(bridge, context, packet, decision);
        }
    }
}

/// Sends `packet` to all output ports of a flood. Every output port except the last gets a copy, and the last
/// gets the packet itself.
fn flood<R: Recorder>(
    bridge: &Bridge,
    context: &mut Context<'_, '_, R>,
    packet: Packet,
    decision: &Decision,
) {
    let port = context.port;
    let mut outputs = std::mem::take(&mut context.worker.outputs);
    outputs.clear();
    bridge.flood_recorded(port, decision, 0, context.recorder, |out, tag| {
        let _ = outputs.try_push((out, tag));
    });
    match outputs.split_last() {
        None => context.worker.drop(packet, port, DropReason::NoMember),
        Some((&(last, last_tag), others)) => {
            for &(out, tag) in others {
                context.worker.counters.port(port).copies.add(1);
                match output::copy(&packet, context.worker) {
                    Ok(copy) => output::send_tagged(context, copy, out, tag),
                    Err(reason) => context.worker.counters.port(port).drop_n(reason, 1),
                }
            }
            output::send_tagged(context, packet, last, last_tag);
        }
    }
    context.worker.outputs = outputs;
}

/// Sends a copy of an IGMP or MLD packet to the snooper's control thread. Returns false if the ring is full or
/// no frame is free.
#[cold]
fn punt(port: PortId, vid: u16, packet: &Packet, worker: &mut WorkerContext) -> bool {
    let Some(ring) = &mut worker.punt else { return false };
    if !ring.has_place(port) {
        return false;
    }
    let Ok(copy) = worker.pool.copy(packet) else { return false };
    if let Err(punt) = ring.push(Punt { port, vid, packet: copy }) {
        worker.pool.free(punt.packet);
        return false;
    }
    let counters = worker.counters.port(port);
    counters.copies.add(1);
    counters.punted.add(1);
    true
}
