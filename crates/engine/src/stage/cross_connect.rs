//! Forwarding by cross-connects. All packets of a port are transmitted through one other port without being parsed.

use packet::record::Recorder;
use packet::{PortId, VlanTags};

use super::path_context::Context;
use super::{output, tag};
use crate::burst::Burst;
use crate::counters::Stage;

/// Sends the packets of `burst` to port `out`. If `tags` is given, its VLAN tags are added to the packets.
pub(super) fn process<R: Recorder>(
    out: PortId,
    tags: Option<VlanTags>,
    context: &mut Context<'_, '_, R>,
    burst: &mut Burst,
) {
    let n = burst.len();
    context.count(Stage::Function, n);
    match tags {
        None => {
            if !context.worker.outbox.take_whole(out, &mut burst.packets) {
                for packet in burst.packets.drain(..) {
                    output::send(context, out, packet);
                }
            }
        }
        Some(tags) => {
            for mut packet in burst.packets.drain(..) {
                match tag::begin(&mut packet, context.worker.pool.memory(), tags) {
                    Ok(change) => output::send_tagged(context, packet, out, change),
                    Err(reason) => context.worker.drop(packet, context.port, reason),
                }
            }
        }
    }
    context.count(Stage::Execute, n);
}
