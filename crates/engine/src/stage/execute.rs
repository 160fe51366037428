//! Execute stage. The stage executes the decisions of the port's function. For this, the stage rewrites VLAN
//! tags, copies flooded packets, and sorts packets by output port.

use packet::record::{Recorder, Step, TagChange};
use packet::{DropReason, PortId};
use port::Packet;
use switch::{Bridge, Decision, Now};

use crate::burst::Burst;
use crate::stage::outbox::Refused;
use crate::stage::punt::Punt;
use crate::stage::transmit::{self, Egress};
use crate::stage::{WorkerContext, tag};
use crate::state::Forwarding;

/// Executes the decisions for a burst of a bridge or a cross-connect. `bridge` is the bridge that made the
/// decisions. `bridge` may be `None` if every decision names a single output port.
#[allow(clippy::too_many_arguments, reason = "the stage's whole context")]
pub(crate) fn decided<R: Recorder>(
    forwarding: &Forwarding,
    port: PortId,
    bridge: Option<&Bridge>,
    burst: &mut Burst,
    now: Now,
    egress: &mut Egress<'_>,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    let n = burst.packets.len();
    let decisions = &burst.decisions[..n];
    // Often all packets of a burst leave unchanged by one port. The burst then moves as a whole.
    if let Some(&Decision::Forward { port: out, tag: TagChange::Keep }) = decisions.first()
        && decisions.iter().all(|d| *d == decisions[0])
        && context.outbox.take_whole(out, &mut burst.packets)
    {
        return;
    }
    for (packet, decision) in burst.packets.drain(..).zip(decisions) {
        decide(forwarding, port, bridge, packet, decision, now, egress, context, recorder);
    }
}

/// Executes the bridge's decision for one packet.
#[allow(clippy::too_many_arguments, reason = "the stage's whole context")]
#[inline(always)]
pub(crate) fn decide<R: Recorder>(
    forwarding: &Forwarding,
    port: PortId,
    bridge: Option<&Bridge>,
    packet: Packet,
    decision: &Decision,
    now: Now,
    egress: &mut Egress<'_>,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    match *decision {
        Decision::Forward { port: out, tag: TagChange::Keep } => {
            send(forwarding, port, out, packet, egress, context, recorder);
        }
        Decision::Forward { port: out, tag } => {
            output(forwarding, port, packet, out, tag, egress, context, recorder);
        }
        Decision::Drop(reason) => context.drop(packet, port, reason),
        Decision::Flood { vid, .. } | Decision::Group { vid, .. } => {
            if decision.punts()
                && !punt(port, vid, &packet, context)
                && let Some(bridge) = bridge
            {
                bridge.note_unsnooped(port, now);
            }
            flood(forwarding, port, bridge, packet, decision, egress, context, recorder);
        }
    }
}

/// Sends `packet` to all output ports of a flood. Every output port except the last gets a copy, and the last
/// gets the packet itself.
#[allow(clippy::too_many_arguments, reason = "the stage's whole context")]
fn flood<R: Recorder>(
    forwarding: &Forwarding,
    port: PortId,
    bridge: Option<&Bridge>,
    packet: Packet,
    decision: &Decision,
    egress: &mut Egress<'_>,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    let mut outputs = std::mem::take(&mut context.outputs);
    outputs.clear();
    if let Some(bridge) = bridge {
        bridge.flood_recorded(port, decision, 0, recorder, |out, tag| {
            let _ = outputs.try_push((out, tag));
        });
    }
    match outputs.split_last() {
        None => context.drop(packet, port, DropReason::NoMember),
        Some((&(last, last_tag), others)) => {
            for &(out, tag) in others {
                context.counters.port(port).copies.add(1);
                match copy(&packet, context) {
                    Ok(copy) => output(forwarding, port, copy, out, tag, egress, context, recorder),
                    Err(reason) => context.counters.port(port).drop_n(reason, 1),
                }
            }
            output(forwarding, port, packet, last, last_tag, egress, context, recorder);
        }
    }
    context.outputs = outputs;
}

/// Copies a packet. Returns a drop reason if the copy budget of the burst is exhausted or no frame is free.
pub(crate) fn copy(packet: &Packet, context: &mut WorkerContext) -> Result<Packet, DropReason> {
    // A copy of a packet of many frames counts as one copy for each four frames.
    let cost = u32::from(packet.segments().div_ceil(4).max(1));
    context.clones_left = context.clones_left.checked_sub(cost).ok_or(DropReason::CloneBudget)?;
    context.pool.copy(packet)
}

#[allow(clippy::too_many_arguments, reason = "the stage's whole context")]
pub(crate) fn output<R: Recorder>(
    forwarding: &Forwarding,
    port: PortId,
    mut packet: Packet,
    out: PortId,
    change: TagChange,
    egress: &mut Egress<'_>,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    if let Err(reason) = tag::apply(&mut packet, context.pool.memory(), change) {
        recorder.step(0, Step::Dropped(reason));
        return context.drop(packet, port, reason);
    }
    send(forwarding, port, out, packet, egress, context, recorder);
}

/// Appends a packet that arrived on `port` to the outgoing batch of port `out`.
#[inline(always)]
pub(crate) fn send<R: Recorder>(
    forwarding: &Forwarding,
    port: PortId,
    out: PortId,
    packet: Packet,
    egress: &mut Egress<'_>,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    if let Err(refused) = context.outbox.push(out, packet) {
        make_room(forwarding, port, out, refused, egress, context, recorder);
    }
}

/// Transmits the full outgoing batch of port `out` and then appends the packet. Drops the packet if port
/// `out` does not exist.
#[cold]
fn make_room<R: Recorder>(
    forwarding: &Forwarding,
    port: PortId,
    out: PortId,
    refused: Refused,
    egress: &mut Egress<'_>,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    let refused = match refused {
        Refused::Full(packet) => {
            transmit::port(forwarding, out, egress, context, recorder);
            context.outbox.push(out, packet).err()
        }
        gone @ Refused::NoPort(_) => Some(gone),
    };
    if let Some(Refused::Full(mut packet) | Refused::NoPort(mut packet)) = refused {
        recorder.step(0, Step::Dropped(DropReason::PortRemoved));
        packet.set_arrival(port);
        context.drop_at_output(packet, out, DropReason::PortRemoved);
    }
}

/// Punts a copy of an IGMP or MLD packet to the control thread. Returns false if the ring has no space or no
/// frame is free.
#[cold]
fn punt(port: PortId, vid: u16, packet: &Packet, context: &mut WorkerContext) -> bool {
    let Some(ring) = &mut context.punt else { return false };
    if !ring.has_place(port) {
        return false;
    }
    let Ok(copy) = context.pool.copy(packet) else { return false };
    if let Err(punt) = ring.push(Punt { port, vid, packet: copy }) {
        context.pool.free(punt.packet);
        return false;
    }
    let counters = context.counters.port(port);
    counters.copies.add(1);
    counters.punted.add(1);
    true
}
