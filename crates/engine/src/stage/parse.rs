//! Parse stage, which extracts flow keys from packet headers. The stage drops frames with an invalid Ethernet
//! or VLAN header. Frames with an invalid L3 or L4 header are not dropped here, because a bridge forwards
//! them.

use packet::record::{Recorder, Step};
use packet::{DropReason, FlowKey, Layers, PortId};
use port::offload;
use switch::Decision;

use crate::burst::Burst;
use crate::stage::WorkerContext;
use crate::state::{Function, PortView};

/// Number of packets by which the prefetch of packet headers runs ahead of parsing. Frames have equal sizes and start
/// offsets, so the first cache lines of all frames share two sets of a 32 KiB first-level cache. With a longer prefetch
/// distance, cache lines are evicted before they are used: a distance of 8 costs 2 ns per packet.
const AHEAD: usize = 4;

/// Fills the flow keys and header offsets of `burst`, whose packets arrived on `port`.
///
/// Unicast frames on a port of a learning bridge are parsed only up to the EtherType if nothing else on the port needs
/// the other fields. The other fields of the flow keys are then not valid. `uses_rss` is true if software RSS needs
/// complete flow keys.
pub fn run<R: Recorder>(
    port: PortId,
    view: &PortView,
    uses_rss: bool,
    burst: &mut Burst,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    let broken = if !R::ACTIVE && !uses_rss && l2_suffices(view) {
        read::<true, R>(port, burst, context, recorder)
    } else {
        read::<false, R>(port, burst, context, recorder)
    };
    if broken > 0 {
        sort_out(port, burst, context);
    }
    if view.complete_checksums {
        mark_bare_checksums(burst, context);
    }
}

/// Returns whether the port's function needs only the L2 headers of unicast frames.
fn l2_suffices(view: &PortView) -> bool {
    matches!(view.function, Function::Bridge(_))
        && view.rss_table.is_none()
        && !view.complete_checksums
        && view.own.is_none()
}

/// Parses every packet of the burst. Returns the number of packets with an invalid L2 header. The decision
/// for each of these packets is set to a drop.
#[inline(never)]
fn read<const L2: bool, R: Recorder>(
    port: PortId,
    burst: &mut Burst,
    context: &WorkerContext,
    recorder: &mut R,
) -> usize {
    let memory = context.pool.memory();
    let packets = burst.packets.as_slice();
    for packet in packets.iter().take(AHEAD) {
        packet.prefetch(memory);
    }
    let mut broken = 0;
    let mut ahead = packets.iter().skip(AHEAD);
    let places = burst.keys.iter_mut().zip(&mut *burst.layers);
    for (i, (packet, (key, layers))) in packets.iter().zip(places).enumerate() {
        if let Some(ahead) = ahead.next() {
            ahead.prefetch(memory);
        }
        let head = packet.head(memory);
        let found = if L2 {
            extract_l2(head, packet.len(), port, key)
        } else {
            FlowKey::extract(head, packet.len(), port, key)
        };
        match found {
            Ok(found) => {
                *layers = found;
                if R::ACTIVE {
                    record(recorder, i, &found);
                }
            }
            Err(reason) => {
                // Empty layers mark the packet for `sort_out` below. The layers of a valid frame are never
                // empty.
                *layers = Layers::default();
                burst.decisions[i] = Decision::Drop(reason);
                broken += 1;
                recorder.step(i, Step::Dropped(reason));
            }
        }
    }
    broken
}

/// Extracts only the L2 part of the flow key of a frame. For frames to group addresses, the complete key is
/// extracted, because IGMP/MLD snooping needs it.
#[inline(always)]
fn extract_l2(head: &[u8], len: usize, port: PortId, key: &mut FlowKey) -> Result<Layers, DropReason> {
    let found = FlowKey::extract_l2(head, port, key)?;
    // The test uses the key, so that the frame is read in whole words.
    if u64::from_le(key.words()[1]) & 1 == 0 { Ok(found) } else { extract_group(head, len, port, key) }
}

#[inline(never)]
fn extract_group(head: &[u8], len: usize, port: PortId, key: &mut FlowKey) -> Result<Layers, DropReason> {
    FlowKey::extract(head, len, port, key)
}

fn record<R: Recorder>(recorder: &mut R, index: usize, layers: &Layers) {
    let offset = |at: Option<usize>| u16::try_from(at.unwrap_or(0)).unwrap_or(u16::MAX);
    let (l3, l4) = (offset(layers.l3()), offset(layers.l4()));
    recorder.step(index, Step::Parsed { l3, l4, malformed: layers.malformed() });
}

/// Drops the frames with an invalid L2 header, and keeps the order of the other frames.
#[cold]
fn sort_out(port: PortId, burst: &mut Burst, context: &mut WorkerContext) {
    let mut kept = 0;
    for i in 0..burst.len() {
        if burst.layers[i].l2_len() != 0 {
            burst.swap(kept, i);
            kept += 1;
        }
    }
    burst.sorted_out(kept, |packet, decision| {
        if let Decision::Drop(reason) = decision {
            context.drop(packet, port, reason);
        }
    });
}

/// Marks packets whose TCP or UDP checksum field contains only the pseudo-header sum, so that the checksum is completed
/// later. AF_XDP does not report whether a received checksum is complete. A sender on the peer of a veth device may
/// have left the checksum to hardware offload, which a veth device does not perform.
fn mark_bare_checksums(burst: &mut Burst, context: &WorkerContext) {
    for ((packet, key), layers) in burst.packets.iter_mut().zip(&*burst.keys).zip(&*burst.layers) {
        offload::mark_bare_checksum(packet, context.pool.memory(), layers, key);
    }
}
