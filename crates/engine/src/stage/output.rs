//! Functions with which bridges, routers and cross-connects append packets to the batch of an output port.

use packet::record::{Recorder, Step, TagChange};
use packet::{DropReason, PortId};
use port::Packet;

use super::outbox::Refused;
use super::path_context::Context;
use super::{WorkerContext, tag, transmit};

/// Appends a packet to the outgoing batch of port `out`. A full batch is transmitted first.
#[inline(always)]
pub(super) fn send<R: Recorder>(context: &mut Context<'_, '_, R>, out: PortId, packet: Packet) {
    if let Err(refused) = context.worker.outbox.push(out, packet) {
        make_room(context, out, refused);
    }
}

/// Changes the VLAN tags of a packet and appends the packet to the outgoing batch of port `out`.
pub(super) fn send_tagged<R: Recorder>(
    context: &mut Context<'_, '_, R>,
    mut packet: Packet,
    out: PortId,
    change: TagChange,
) {
    if let Err(reason) = tag::apply(&mut packet, context.worker.pool.memory(), change) {
        context.recorder.step(0, Step::Dropped(reason));
        return context.worker.drop(packet, context.port, reason);
    }
    send(context, out, packet);
}

/// Copies a packet. Returns a drop reason as the error if the burst has reached its maximum number of copies or no
/// frame is free.
pub(super) fn copy(packet: &Packet, worker: &mut WorkerContext) -> Result<Packet, DropReason> {
    // A copy of a packet of many frames counts as one copy for each four frames.
    let cost = u32::from(packet.segments().div_ceil(4).max(1));
    worker.clones_left = worker.clones_left.checked_sub(cost).ok_or(DropReason::CloneBudget)?;
    worker.pool.copy(packet)
}

/// Transmits the full outgoing batch of port `out` and then appends the packet. Drops the packet if port
/// `out` does not exist.
#[cold]
fn make_room<R: Recorder>(context: &mut Context<'_, '_, R>, out: PortId, refused: Refused) {
    let refused = match refused {
        Refused::Full(packet) => {
            transmit::port(context.forwarding, out, context.egress, context.worker, context.recorder);
            context.worker.outbox.push(out, packet).err()
        }
        gone @ Refused::NoPort(_) => Some(gone),
    };
    if let Some(Refused::Full(mut packet) | Refused::NoPort(mut packet)) = refused {
        context.recorder.step(0, Step::Dropped(DropReason::PortRemoved));
        if packet.arrival().is_none() {
            packet.set_arrival(context.port);
        }
        context.worker.drop_at_output(packet, out, DropReason::PortRemoved);
    }
}
