//! Transmit stage. The stage gives the packets of each output port to a transmit queue. If another worker
//! owns the queue, the packets are sent to this worker through a ring.

use packet::record::{Recorder, Step};
use packet::{DropReason, PortId, QueueId};
use port::offload;
use port::{Batch, Capabilities, Flags, Queue};

use crate::capture::Direction;
use crate::handover::{Output, WorkerRings};
use crate::stage::{WorkerContext, patch};
use crate::state::{Forwarding, PortView};

/// Value of `Egress::local` for a port of which this worker has no queue.
pub const NOT_MINE: u16 = u16::MAX;
/// Number of bytes by which a frame with a VLAN tag may exceed the maximum frame length, as with the kernel's
/// devices.
const TAG_ALLOWANCE: u32 = 4;

/// A queue that a worker owns, with the state that the worker keeps for it.
pub struct OwnedQueue {
    /// Port of the queue.
    pub port: PortId,
    /// Identifier of the queue within its port.
    pub id: QueueId,
    /// Queue through which packets are received and transmitted.
    pub queue: Box<dyn Queue>,
    /// Offloads and frame lengths that the queue supports.
    pub capabilities: Capabilities,
    /// Whether packets were given to the queue since it was last kicked.
    pub touched: bool,
    /// Software RSS state for packets that are received from the queue.
    pub spread: crate::stage::software_rss::Applied,
    /// State of the queue's progress reports, or `None` if the queue has no receiver of reports.
    pub finish: Option<crate::ordering::Finish>,
    /// Packets that were received from the queue and that wait in the worker or at the slow path.
    pub parked: crate::ordering::Parked,
    /// State of the transmit ring, for which progress reports wait.
    pub unsent: crate::ordering::Unsent,
}

/// Destinations to which a worker sends packets.
pub struct Egress<'w> {
    /// Queues that the worker owns.
    pub queues: &'w mut [OwnedQueue],
    /// For each port, the index in `queues` of the queue that transmits its packets, or [`NOT_MINE`] if this
    /// worker has no queue of the port.
    pub local: &'w [u16],
    /// Rings to and from the other workers.
    pub links: &'w mut WorkerRings,
    /// List to which a dry run appends its output frames. With `None`, packets are transmitted.
    pub collected: Option<&'w mut Vec<(PortId, Vec<u8>)>>,
}

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
        return patch::enter(view, out, peer, context, recorder);
    }
    if egress.collected.is_some() {
        return collect(view, out, egress, context, recorder);
    }
    match egress.local.get(out.index()).copied().unwrap_or(NOT_MINE) {
        NOT_MINE => hand_over(view, out, egress, context, recorder),
        mine => send(view, out, usize::from(mine), egress, context, recorder),
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

/// Gives the packets of a batch to the transmit queue. Packets for which the queue has no space are dropped.
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

pub(crate) fn bytes_of(batch: &Batch) -> u64 {
    batch.iter().map(|packet| packet.len() as u64).sum()
}

/// Returns whether all packets of the batch can be given to the queue as they are.
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

/// Prepares packets for a queue. Performs those offloads in software that the queue does not support, and
/// drops frames that are too long. Calls `flush` when the batch has no space for the segments of the next
/// packet.
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
            let Some(left) = context.segments_left.checked_sub(u32::try_from(segments).unwrap_or(u32::MAX))
            else {
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
        let arrival = packet.arrival().unwrap_or(out);
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
    let function = ring.free().min(batch.len());
    for packet in batch.drain(..function) {
        if let Err(back) = ring.push(Output { packet, out }) {
            context.pool.free(back.packet);
        }
    }
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
pub(crate) fn capture(out: PortId, context: &mut WorkerContext) {
    let (Some(tap), Some(batch)) = (&mut context.capture, context.outbox.batch(out)) else { return };
    for packet in &*batch {
        tap.offer(&mut context.pool, packet, out, Direction::Sent);
    }
}

/// Drops all packets in the outbox that are to be transmitted by port `out`.
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
