//! Reads headers into flow keys. Frames whose Ethernet or VLAN header is broken end here; those broken further up go on, since
//! a bridge forwards them.

use packet::record::{Recorder, Step};
use packet::{FlowKey, PortId};
use port::offload;
use switch::Decision;

use crate::burst::Burst;
use crate::stage::Tools;
use crate::state::PortView;

/// How many packets ahead their first line is asked for.
const AHEAD: usize = 8;

/// Fills keys, layers and lengths of `burst`, whose packets all arrived on `port`.
pub fn run<R: Recorder>(
    port: PortId,
    view: &PortView,
    burst: &mut Burst,
    tools: &mut Tools,
    recorder: &mut R,
) {
    let n = burst.packets.len();
    let mut kept = 0;
    for packet in burst.packets.iter().take(AHEAD) {
        packet.prefetch(tools.pool.memory());
    }
    for i in 0..n {
        if let Some(ahead) = burst.packets.get(i + AHEAD) {
            ahead.prefetch(tools.pool.memory());
        }
        let packet = &burst.packets[i];
        let total = packet.len();
        let key = &mut burst.keys[i];
        match FlowKey::extract(packet.head(tools.pool.memory()), total, port, key) {
            Ok(layers) => {
                if R::ACTIVE {
                    let offset = |at: Option<usize>| u16::try_from(at.unwrap_or(0)).unwrap_or(u16::MAX);
                    let (l3, l4) = (offset(layers.l3()), offset(layers.l4()));
                    recorder.step(i, Step::Parsed { l3, l4, malformed: layers.malformed() });
                }
                burst.layers[i] = layers;
                burst.lens[i] = u32::try_from(total).unwrap_or(u32::MAX);
                burst.swap(kept, i);
                kept += 1;
            }
            Err(reason) => {
                if R::ACTIVE {
                    recorder.step(i, Step::Dropped(reason));
                }
                burst.decisions[i] = Decision::Drop(reason);
            }
        }
    }
    if kept < n {
        sort_out(port, kept, burst, tools);
    }
    if view.complete_checksums {
        mark_bare_checksums(burst, tools);
    }
}

#[cold]
fn sort_out(port: PortId, kept: usize, burst: &mut Burst, tools: &mut Tools) {
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
