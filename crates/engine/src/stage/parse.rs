//! Reads headers into flow keys. Frames whose Ethernet or VLAN header is broken end here; those broken further up go on, since
//! a bridge forwards them.

use packet::record::{Recorder, Step};
use packet::{DropReason, FlowKey, Layers, PortId};
use port::offload;
use switch::Decision;

use crate::burst::Burst;
use crate::stage::Tools;
use crate::state::{PortView, Room};

/// How many packets ahead their first line is asked for. Frames are equal in size and begin at the same offset, so their first lines
/// share two sets of a first-level cache of 32 KiB: with more on their way they push each other out (8 cost 2 ns a packet more).
const AHEAD: usize = 4;

/// Fills keys and layers of `burst`, whose packets all arrived on `port`.
///
/// On a bridge's port whose frames nobody else looks into, frames to one station are read up to their EtherType only: the rest of
/// their keys means nothing then. `spreads`: the whole key chooses a worker.
pub fn run<R: Recorder>(
    port: PortId,
    view: &PortView,
    spreads: bool,
    burst: &mut Burst,
    tools: &mut Tools,
    recorder: &mut R,
) {
    let broken = if !R::ACTIVE && !spreads && l2_suffices(view) {
        read::<true, R>(port, burst, tools, recorder)
    } else {
        read::<false, R>(port, burst, tools, recorder)
    };
    if broken > 0 {
        sort_out(port, burst, tools);
    }
    if view.complete_checksums {
        mark_bare_checksums(burst, tools);
    }
}

/// Whether all that is asked about unicast frames of this port is in their L2 header.
fn l2_suffices(view: &PortView) -> bool {
    matches!(view.room, Room::Switch(_))
        && view.spread.is_none()
        && !view.complete_checksums
        && view.own.is_none()
}

/// Reads every packet; returns how many have a broken L2 header, their decisions being made.
#[inline(never)]
fn read<const L2: bool, R: Recorder>(
    port: PortId,
    burst: &mut Burst,
    tools: &Tools,
    recorder: &mut R,
) -> usize {
    let memory = tools.pool.memory();
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
                // Marked in the layers, which a readable frame never leaves empty, and sorted out below.
                *layers = Layers::default();
                burst.decisions[i] = Decision::Drop(reason);
                broken += 1;
                recorder.step(i, Step::Dropped(reason));
            }
        }
    }
    broken
}

/// The L2 part of the key alone, except for group addresses, about which the snooper asks more.
#[inline(always)]
fn extract_l2(head: &[u8], len: usize, port: PortId, key: &mut FlowKey) -> Result<Layers, DropReason> {
    let found = FlowKey::extract_l2(head, port, key)?;
    // Looked at in the key, so that the frame is read in whole words.
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

/// Ends the frames whose L2 header could not be read; the others close up in order.
#[cold]
fn sort_out(port: PortId, burst: &mut Burst, tools: &mut Tools) {
    let mut kept = 0;
    for i in 0..burst.len() {
        if burst.layers[i].l2_len() != 0 {
            burst.swap(kept, i);
            kept += 1;
        }
    }
    burst.sorted_out(kept, |packet, decision| {
        if let Decision::Drop(reason) = decision {
            tools.drop(packet, port, reason);
        }
    });
}

/// AF_XDP receive carries no checksum state: on foreign veth devices a sender may have left the checksum to hardware that is not
/// there.
fn mark_bare_checksums(burst: &mut Burst, tools: &Tools) {
    for ((packet, key), layers) in burst.packets.iter_mut().zip(&*burst.keys).zip(&*burst.layers) {
        offload::mark_bare_checksum(packet, tools.pool.memory(), layers, key);
    }
}
