//! Patch ports: what a worker sends to one arrives at its peer, on the same worker and without a copy.
//!
//! Where a burst ends, what it has sent to patch ports is forwarded in turn until nothing of it is left (`through`). So nothing waits
//! here between two bursts, and order, sleep and draining need not know of it. Loops end: a packet bears its hops ([`port::HOPS`]), copies
//! are the first burst's ([`super::CLONE_BUDGET`]), and what is left after `PASSES` packets is dropped.

use packet::record::{Recorder, Step};
use packet::{DropReason, PortId, QueueId};
use port::HOPS;
use switch::Now;
use sync::qsbr::Reader;

use crate::burst::Burst;
use crate::stage::transmit::{self, Exits};
use crate::stage::{Tools, receive};
use crate::state::{Forwarding, PortView};
use crate::worker::{Source, path};

/// Packets that one burst may make arrive at patch ports: a burst that goes through all [`HOPS`] of a chain, twice.
const PASSES: usize = 2 * port::BURST * HOPS as usize;
/// The same for a story that somebody is to read.
const PASSES_TOLD: usize = 256;

/// Lets what waits for the patch port `out` arrive at `peer`, once the burst in hand has ended.
pub(crate) fn enter<R: Recorder>(
    view: &PortView,
    out: PortId,
    peer: PortId,
    tools: &mut Tools,
    recorder: &mut R,
) {
    if view.capture {
        transmit::capture(out, tools);
    }
    let Some(batch) = tools.outbox.batch(out) else { return };
    if batch.iter().any(|packet| packet.hops() >= HOPS) {
        end_loops(out, tools, recorder);
    }
    let Tools { outbox, patched, counters, .. } = tools;
    let Some(batch) = outbox.batch(out).filter(|batch| !batch.is_empty()) else { return };
    if R::ACTIVE {
        recorder.step(0, Step::Transmitted { port: out, queue: QueueId(0) });
    }
    let counters = counters.port(out);
    counters.tx_packets.add(batch.len() as u64);
    counters.tx_bytes.add(transmit::bytes_of(batch));
    patched.extend(batch.drain(..).map(|mut packet| {
        // Those that may not were taken out.
        let _ = packet.hop();
        (peer, packet)
    }));
}

/// Drops packets that have been through as many patch ports as they may.
#[cold]
fn end_loops<R: Recorder>(out: PortId, tools: &mut Tools, recorder: &mut R) {
    let Some(batch) = tools.outbox.batch(out) else { return };
    for packet in std::mem::take(batch) {
        if packet.hops() >= HOPS {
            recorder.step(0, Step::Dropped(DropReason::HopLimit));
            tools.drop_at_output(packet, out, DropReason::HopLimit);
        } else if let Some(batch) = tools.outbox.batch(out) {
            batch.push(packet);
        }
    }
}

/// Forwards what has been sent to patch ports, and what that sends to others. `burst` is empty, before and after. `queue` is the own queue
/// that the first burst came from.
#[allow(clippy::too_many_arguments, reason = "the worker's parts, borrowed apart")]
#[cold]
pub(crate) fn through<R: Recorder>(
    forwarding: &Forwarding,
    reader: &Reader,
    queue: Option<usize>,
    burst: &mut Burst,
    now: Now,
    exits: &mut Exits<'_>,
    tools: &mut Tools,
    recorder: &mut R,
) {
    tools.is_patched = true;
    let mut left = if R::DRY { PASSES_TOLD } else { PASSES };
    while let Some(&(port, _)) = tools.patched.front() {
        // A story is told of one packet after the other.
        let most = if R::ACTIVE { 1 } else { port::BURST };
        while burst.packets.len() < most
            && let Some((_, packet)) = tools.patched.pop_front_if(|(own, _)| *own == port)
        {
            burst.packets.push(packet);
        }
        let n = burst.len();
        let Some(view) = forwarding.port(port) else {
            end(port, DropReason::PortRemoved, burst, tools, recorder);
            continue;
        };
        receive::arrived(port, view, burst, tools);
        for packet in burst.packets.iter().filter(|_| R::ACTIVE) {
            let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
            recorder.step(0, Step::Received { port, queue: QueueId(0), len });
        }
        if !view.up {
            end(port, DropReason::PortDown, burst, tools, recorder);
        } else if n > left {
            end(port, DropReason::HopLimit, burst, tools, recorder);
        } else {
            left -= n;
            let source = Source { forwarding, port, view, queue: None, seen: false, origin: queue, reader };
            path(&source, burst, now, exits, tools, recorder);
        }
    }
    tools.is_patched = false;
}

/// Drops what has arrived.
fn end<R: Recorder>(
    port: PortId,
    reason: DropReason,
    burst: &mut Burst,
    tools: &mut Tools,
    recorder: &mut R,
) {
    for packet in burst.packets.drain(..) {
        recorder.step(0, Step::Dropped(reason));
        tools.drop(packet, port, reason);
    }
}
