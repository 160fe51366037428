//! Gives sorted packets to their queues: own ones directly, others' through the ring to the worker that owns them.

use crate::offload_shim as offload;
use packet::record::{Recorder, Step};
use packet::{DropReason, PortId, QueueId};
use port::{Batch, Capabilities, Flags, Queue};

use crate::capture::Direction;
use crate::handover::{Links, Output};
use crate::stage::Tools;
use crate::state::{Forwarding, PortView};

/// No queue of that port here.
pub const NOT_MINE: u16 = u16::MAX;
/// A VLAN tag may exceed the MTU (as with the kernel's devices).
const TAG_ALLOWANCE: u32 = 4;

/// A queue that this worker owns.
pub struct OwnedQueue {
    /// Its port.
    pub port: PortId,
    /// Which of the port's queues.
    pub id: QueueId,
    /// The queue.
    pub queue: Box<dyn Queue>,
    /// What it accepts.
    pub capabilities: Capabilities,
    /// Packets were given to it since the last kick.
    pub touched: bool,
    /// Software RSS as this queue's receive side applies it.
    pub spread: crate::stage::spread::Applied,
}

/// The ways out of a worker.
pub struct Exits<'w> {
    /// Queues that it owns.
    pub queues: &'w mut [OwnedQueue],
    /// By port: index into `queues`, or [`NOT_MINE`].
    pub local: &'w [u16],
    /// Rings to the other workers.
    pub links: &'w mut Links,
    /// Dry run: outputs are put here instead of being sent.
    pub collected: Option<&'w mut Vec<(PortId, Vec<u8>)>>,
}

/// Transmits everything that waits in the outbox.
pub fn run<R: Recorder>(forwarding: &Forwarding, exits: &mut Exits<'_>, tools: &mut Tools, recorder: &mut R) {
    while let Some(out) = tools.outbox.next_port() {
        port(forwarding, out, exits, tools, recorder);
    }
}

/// Transmits what waits for one port; its batch is empty afterwards.
pub fn port<R: Recorder>(
    forwarding: &Forwarding,
    out: PortId,
    exits: &mut Exits<'_>,
    tools: &mut Tools,
    recorder: &mut R,
) {
    let Some(batch) = tools.outbox.batch(out) else { return };
    if batch.is_empty() {
        return;
    }
    let view = match forwarding.port(out) {
        Some(view) if view.up => view,
        Some(_) => return drop_all(out, DropReason::PortDown, tools, recorder),
        None => return drop_all(out, DropReason::PortRemoved, tools, recorder),
    };
    if exits.collected.is_some() {
        return collect(view, out, exits, tools, recorder);
    }
    match exits.local.get(out.index()).copied().unwrap_or(NOT_MINE) {
        NOT_MINE => hand_over(view, out, exits, tools, recorder),
        mine => send(view, out, usize::from(mine), exits, tools, recorder),
    }
}

fn send<R: Recorder>(
    view: &PortView,
    out: PortId,
    mine: usize,
    exits: &mut Exits<'_>,
    tools: &mut Tools,
    recorder: &mut R,
) {
    let own = &mut exits.queues[mine];
    if !ready(view, &own.capabilities, tools.outbox.batch(out)) {
        complete(view, out, own.capabilities, tools, recorder);
    }
    if view.capture {
        capture(out, tools);
    }
    let Some(batch) = tools.outbox.batch(out) else { return };
    let mut bytes = 0;
    let mut lens = [0_u32; port::BURST];
    for (len, packet) in lens.iter_mut().zip(&*batch) {
        *len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        bytes += u64::from(*len);
    }
    if R::ACTIVE {
        recorder.step(0, Step::Transmitted { port: out, queue: own.id });
    }
    let mut sent = own.queue.transmit(&mut tools.pool, batch);
    own.touched = true;
    if !batch.is_empty() {
        // In copy mode a kick sends what stands in the ring, so there is room again.
        own.queue.kick(&mut tools.pool);
        sent += own.queue.transmit(&mut tools.pool, batch);
        bytes -= lens[sent..sent + batch.len()].iter().map(|len| u64::from(*len)).sum::<u64>();
    }
    let counters = tools.counters.port(out);
    counters.tx_packets.add(sent as u64);
    counters.tx_bytes.add(bytes);
    if !batch.is_empty() {
        drop_all(out, DropReason::TxRingFull, tools, recorder);
    }
}

/// Whether every packet can go as it is.
#[inline]
fn ready(view: &PortView, capabilities: &Capabilities, batch: Option<&mut Batch>) -> bool {
    let longest = (view.max_frame + TAG_ALLOWANCE) as usize;
    batch.is_none_or(|batch| {
        batch.iter().all(|p| {
            p.len() <= longest
                && p.segments() <= capabilities.max_segments
                && !p.flags.contains(Flags::PARTIAL_CHECKSUM)
                && !p.flags.contains(Flags::SEGMENT)
        })
    })
}

/// Does in software what the port cannot, and drops what is too long.
#[cold]
fn complete<R: Recorder>(
    view: &PortView,
    out: PortId,
    able: Capabilities,
    tools: &mut Tools,
    recorder: &mut R,
) {
    let Some(batch) = tools.outbox.batch(out) else { return };
    let waiting = std::mem::take(batch);
    for packet in waiting {
        let able = Capabilities { max_frame: view.max_frame + TAG_ALLOWANCE, ..able };
        let (pool, outbox) = (&mut tools.pool, &mut tools.outbox);
        let (mut made, mut lost) = (0_u64, 0_u64);
        let result = offload::complete(packet, &able, pool, |ready, pool| {
            made += 1;
            match outbox.batch(out).map(|batch| batch.try_push(ready)) {
                Some(Ok(())) => {}
                Some(Err(full)) => {
                    lost += 1;
                    pool.free(full.element());
                }
                None => lost += 1,
            }
        });
        let counters = tools.counters.port(out);
        counters.copies.add(made.saturating_sub(1));
        counters.drop_n(DropReason::TxRingFull, lost);
        if R::ACTIVE && made > 1 {
            recorder.step(0, Step::Segmented { segments: u16::try_from(made).unwrap_or(u16::MAX) });
        }
        if let Err((packet, reason)) = result {
            recorder.step(0, Step::Dropped(reason));
            tools.drop(packet, out, reason);
        }
    }
}

fn hand_over<R: Recorder>(
    view: &PortView,
    out: PortId,
    exits: &mut Exits<'_>,
    tools: &mut Tools,
    recorder: &mut R,
) {
    let Some(batch) = tools.outbox.batch(out) else { return };
    let Some(ring) = exits.links.output_to(view.tx_owner) else {
        return drop_all(out, DropReason::PortRemoved, tools, recorder);
    };
    let room = ring.free().min(batch.len());
    for packet in batch.drain(..room) {
        if let Err(back) = ring.push(Output { packet, out }) {
            tools.pool.free(back.packet);
        }
    }
    exits.links.notify(view.tx_owner);
    drop_all(out, DropReason::WorkerRingFull, tools, recorder);
}

fn collect<R: Recorder>(
    view: &PortView,
    out: PortId,
    exits: &mut Exits<'_>,
    tools: &mut Tools,
    recorder: &mut R,
) {
    let able = Capabilities { max_segments: u16::MAX, ..Capabilities::default() };
    if !ready(view, &able, tools.outbox.batch(out)) {
        complete(view, out, able, tools, recorder);
    }
    let (Some(collected), Some(batch)) = (&mut exits.collected, tools.outbox.batch(out)) else { return };
    for packet in batch.drain(..) {
        recorder.step(0, Step::Transmitted { port: out, queue: QueueId(0) });
        let mut bytes = vec![0; packet.len()];
        packet.copy_to(tools.pool.memory(), &mut bytes);
        collected.push((out, bytes));
        tools.pool.free(packet);
    }
}

#[cold]
fn capture(out: PortId, tools: &mut Tools) {
    let (Some(tap), Some(batch)) = (&mut tools.capture, tools.outbox.batch(out)) else { return };
    for packet in &*batch {
        tap.offer(&mut tools.pool, packet, out, Direction::Sent);
    }
}

/// Drops what waits for a port.
fn drop_all<R: Recorder>(out: PortId, reason: DropReason, tools: &mut Tools, recorder: &mut R) {
    let Some(batch) = tools.outbox.batch(out) else { return };
    if batch.is_empty() {
        return;
    }
    recorder.step(0, Step::Dropped(reason));
    for packet in std::mem::take(batch) {
        tools.drop(packet, out, reason);
    }
}
