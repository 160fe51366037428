//! Transmit stage. The stage puts the packets of each output port into a transmit queue. If another worker owns
//! the queue, the packets are sent to that worker through a ring.

use packet::record::{Recorder, Step};
use packet::{DropReason, PortId, QueueId};
use port::offload;
use port::{Batch, Capabilities, Flags, HOPS};

use super::context::USUAL_SEGMENTS;
use crate::capture::Direction;
use crate::handover::Output;
use crate::stage::WorkerContext;
use crate::state::{Forwarding, PortView};

pub use super::egress::{Egress, NOT_MINE, OwnedQueue};

/// Number of bytes by which a frame with a VLAN tag may exceed the maximum frame length. Linux network devices also
/// allow these four bytes.
const TAG_ALLOWANCE: u32 = 4;

/// Transmits the packets of all ports in the outbox.
pub fn run<R: Recorder>(
    forwarding: &Forwarding,
    egress: &mut Egress<'_>,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    while let Some(out) = context.outbox.next_port() {
        port(forwarding, out, egress, context, recorder);
    }
}

/// Transmits the packets that the outbox contains for one port. The port's batch is empty afterwards.
pub fn port<R: Recorder>(
    forwarding: &Forwarding,
    out: PortId,
    egress: &mut Egress<'_>,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    let Some(batch) = context.outbox.batch(out) else { return };
    if batch.is_empty() {
        return;
    }
    let view = match forwarding.port(out) {
        Some(view) if view.transmits() => view,
        Some(_) => return drop_all(out, DropReason::PortDown, context, recorder),
        None => return drop_all(out, DropReason::PortRemoved, context, recorder),
    };
    if let Some(peer) = view.patch {
        return enter_patch(view, out, peer, context, recorder);
    }
    if egress.collected.is_some() {
        return collect(view, out, egress, context, recorder);
    }
    match egress.local.get(out.index()).copied().unwrap_or(NOT_MINE) {
        NOT_MINE => hand_over(view, out, egress, context, recorder),
        mine => send(view, out, usize::from(mine), egress, context, recorder),
    }
}

/// Moves the packets in the batch of patch port `out` to its peer port `peer`. After the current burst, the packets are
/// processed like packets that arrive on the peer port.
fn enter_patch<R: Recorder>(
    view: &PortView,
    out: PortId,
    peer: PortId,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    if view.capture {
        capture(out, context);
    }
    let Some(batch) = context.outbox.batch(out) else { return };
    if batch.iter().any(|packet| packet.hops() >= HOPS) {
        end_loops(out, context, recorder);
    }
    let WorkerContext { outbox, patched, counters, .. } = context;
    let Some(batch) = outbox.batch(out).filter(|batch| !batch.is_empty()) else { return };
    if R::ACTIVE {
        recorder.step(0, Step::Transmitted { port: out, queue: QueueId(0) });
    }
    let counters = counters.port(out);
    counters.tx_packets.add(batch.len() as u64);
    counters.tx_bytes.add(bytes_of(batch));
    patched.extend(batch.drain(..).map(|mut packet| {
        // Packets at the hop limit were removed before.
        let _ = packet.hop();
        (peer, packet)
    }));
}

/// Drops the packets in the batch of patch port `out` that have already passed the maximum number of patch ports.
#[cold]
fn end_loops<R: Recorder>(out: PortId, context: &mut WorkerContext, recorder: &mut R) {
    let Some(batch) = context.outbox.batch(out) else { return };
    for packet in std::mem::take(batch) {
        if packet.hops() >= HOPS {
            recorder.step(0, Step::Dropped(DropReason::HopLimit));
            context.drop_at_output(packet, out, DropReason::HopLimit);
        } else if let Some(batch) = context.outbox.batch(out) {
            batch.push(packet);
        }
    }
}

fn send<R: Recorder>(
    view: &PortView,
    out: PortId,
    mine: usize,
    egress: &mut Egress<'_>,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    let own = &mut egress.queues[mine];
    if ready(view, &own.capabilities, context.outbox.batch(out)) {
        return give(view, out, own, context, recorder);
    }
    let able = own.capabilities;
    complete(view, out, able, context, recorder, |context, recorder| give(view, out, own, context, recorder));
    give(view, out, own, context, recorder);
}

/// Puts the packets of a batch into the transmit queue. Packets for which the queue has no space are dropped.
fn give<R: Recorder>(
    view: &PortView,
    out: PortId,
    own: &mut OwnedQueue,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    if view.capture {
        capture(out, context);
    }
    let Some(batch) = context.outbox.batch(out) else { return };
    let mut bytes = bytes_of(batch);
    if R::ACTIVE {
        recorder.step(0, Step::Transmitted { port: out, queue: own.id });
    }
    let mut sent = own.queue.transmit(&mut context.pool, batch);
    own.touched = true;
    if !batch.is_empty() {
        // In copy mode, a kick transmits the contents of the ring, which frees space.
        own.queue.kick(&mut context.pool);
        sent += own.queue.transmit(&mut context.pool, batch);
        bytes -= bytes_of(batch);
    }
    let counters = context.counters.port(out);
    counters.tx_packets.add(sent as u64);
    counters.tx_bytes.add(bytes);
    if !batch.is_empty() {
        drop_all(out, DropReason::TxRingFull, context, recorder);
    }
}

fn bytes_of(batch: &Batch) -> u64 {
    batch.iter().map(|packet| packet.len() as u64).sum()
}

/// Returns whether the queue accepts all packets of the batch without segmentation, checksums or other changes.
#[inline]
fn ready(view: &PortView, capabilities: &Capabilities, batch: Option<&mut Batch>) -> bool {
    let Some(batch) = batch else { return true };
    // The loop has no branch per packet.
    let (mut longest, mut segments, mut flags) = (0, 0, Flags::default());
    for packet in batch.iter() {
        longest = longest.max(packet.len());
        segments = segments.max(packet.segments());
        flags.insert(packet.flags());
    }
    longest <= (view.max_frame + TAG_ALLOWANCE) as usize
        && segments <= capabilities.max_segments
        && !flags.contains(Flags::PARTIAL_CHECKSUM)
        && !flags.contains(Flags::SEGMENT)
}

/// Prepares packets for a queue. Performs the offloads in software that the queue does not support. Drops frames that
/// are too long. Calls `flush` when the batch has no space for the segments of the next packet.
#[cold]
fn complete<R: Recorder>(
    view: &PortView,
    out: PortId,
    able: Capabilities,
    context: &mut WorkerContext,
    recorder: &mut R,
    mut flush: impl FnMut(&mut WorkerContext, &mut R),
) {
    let Some(batch) = context.outbox.batch(out) else { return };
    let longest = (view.max_frame + TAG_ALLOWANCE) as usize;
    for packet in std::mem::take(batch) {
        let WorkerContext { pool, outbox, .. } = context;
        let Some(batch) = outbox.batch(out) else { return };
        if offload::wire_len(&packet, pool.memory()) > longest {
            recorder.step(0, Step::Dropped(DropReason::MtuExceeded));
            context.drop_at_output(packet, out, DropReason::MtuExceeded);
            continue;
        }
        let segments = offload::segment_count(&packet, pool.memory());
        let needs_flush = batch.remaining_capacity() < segments && !batch.is_empty();
        if segments > 1 {
            let reserved = if segments > USUAL_SEGMENTS { context.segments_reserved } else { 0 };
            let left = context.segments_left.checked_sub(u32::try_from(segments).unwrap_or(u32::MAX));
            let Some(left) = left.filter(|left| *left >= reserved) else {
                recorder.step(0, Step::Dropped(DropReason::CloneBudget));
                context.drop_at_output(packet, out, DropReason::CloneBudget);
                continue;
            };
            context.segments_left = left;
        }
        if needs_flush {
            flush(context, recorder);
        }
        let WorkerContext { pool, outbox, .. } = context;
        let Some(batch) = outbox.batch(out) else { return };
        let arrival = packet.arrival_or(out);
        let partial = packet.flags().contains(Flags::PARTIAL_CHECKSUM);
        let (mut made, mut lost) = (0_u64, 0_u64);
        let result = offload::complete_packet(packet, &able, pool, &mut |pool, ready| {
            made += 1;
            if let Err(full) = batch.try_push(ready) {
                lost += 1;
                pool.free(full.element());
            }
        });
        let counters = context.counters.port(arrival);
        counters.copies.add(made.saturating_sub(1));
        counters.drop_n(DropReason::TxRingFull, lost);
        if R::ACTIVE && made > 1 {
            recorder.step(0, Step::Segmented { segments: u16::try_from(made).unwrap_or(u16::MAX) });
        } else if R::ACTIVE && partial && !able.partial_checksum {
            recorder.step(0, Step::ChecksumCompleted);
        }
        if let Err(reason) = result {
            // The packet's frames are back in the pool. Segments made before the error count as copies.
            recorder.step(0, Step::Dropped(reason));
            counters.copies.add(u64::from(made > 0));
            counters.drop_n(reason, 1);
        }
    }
}

fn hand_over<R: Recorder>(
    view: &PortView,
    out: PortId,
    egress: &mut Egress<'_>,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    let Some(batch) = context.outbox.batch(out) else { return };
    let Some(ring) = egress.links.output_to(view.tx_owner) else {
        return drop_all(out, DropReason::PortRemoved, context, recorder);
    };
    // The arrival ports share the ring, so the ring may accept a packet although it has refused an earlier packet of
    // another port.
    let mut refused = Batch::new_const();
    for packet in batch.drain(..) {
        let (arrival, frames) = (packet.arrival_or(out), packet.segments());
        if let Err(back) = ring.push(arrival, frames, Output { packet, out }) {
            refused.push(back.packet);
        }
    }
    batch.extend(refused);
    egress.links.notify(view.tx_owner);
    drop_all(out, DropReason::WorkerRingFull, context, recorder);
}

fn collect<R: Recorder>(
    view: &PortView,
    out: PortId,
    egress: &mut Egress<'_>,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    let able = Capabilities { max_segments: u16::MAX, ..Capabilities::default() };
    if !ready(view, &able, context.outbox.batch(out)) {
        complete(view, out, able, context, recorder, |_, _| {});
    }
    let (Some(collected), Some(batch)) = (&mut egress.collected, context.outbox.batch(out)) else { return };
    for packet in batch.drain(..) {
        recorder.step(0, Step::Transmitted { port: out, queue: QueueId(0) });
        let mut bytes = vec![0; packet.len()];
        packet.copy_to(context.pool.memory(), &mut bytes);
        collected.push((out, bytes));
        context.pool.free(packet);
    }
}

#[cold]
fn capture(out: PortId, context: &mut WorkerContext) {
    let (Some(tap), Some(batch)) = (&mut context.capture, context.outbox.batch(out)) else { return };
    for packet in &*batch {
        tap.offer(&mut context.pool, packet, out, Direction::Sent);
    }
}

/// Drops all packets in the batch of port `out`.
fn drop_all<R: Recorder>(out: PortId, reason: DropReason, context: &mut WorkerContext, recorder: &mut R) {
    let Some(batch) = context.outbox.batch(out) else { return };
    if batch.is_empty() {
        return;
    }
    recorder.step(0, Step::Dropped(reason));
    for packet in std::mem::take(batch) {
        context.drop_at_output(packet, out, reason);
    }
}
