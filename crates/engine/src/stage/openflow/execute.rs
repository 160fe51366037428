//! Execution of cached actions on one packet.

use std::sync::Arc;

use packet::record::{Recorder, Step, TagChange};
use port::Packet;
use switch::Now;
use switch::flow::ConnectionFields;

use super::normal::normal;
use super::steps::Steps;
use crate::flows::{CachedFlow, Compiled, FlowBridge, Kind};
use crate::stage::output;
use crate::stage::path_context::Context;

/// Counts packets for their megaflow.
#[inline(always)]
pub fn count(flow: &CachedFlow, packets: u64, bytes: u64, now: Now) {
    flow.live.packets.add(packets);
    flow.live.bytes.add(bytes);
    flow.live.used_ns.set(now.ns);
}

/// Executes the actions of a megaflow on one packet.
#[inline]
pub fn act<R: Recorder>(
    bridge: &Arc<FlowBridge>,
    context: &mut Context<'_, '_, R>,
    packet: Packet,
    compiled: &Compiled,
    connection: ConnectionFields,
) {
    match compiled.kind {
        Kind::Output(out) => {
            context.recorder.step(0, Step::Output { port: out, tag: TagChange::Keep });
            output::send(context, out, packet);
        }
        Kind::Drop => {
            context.recorder.step(0, Step::Dropped(compiled.dropped));
            context.worker.drop(packet, context.port, compiled.dropped);
        }
        Kind::Normal => normal(bridge, context, packet),
        Kind::Steps => {
            let steps = Steps { bridge, compiled };
            let Some(packet) = steps.run(packet, connection, context) else { return };
            if !compiled.program.is_drop() {
                // The connection tracker was the last to need the packet, which has left before.
                context.worker.pool.free(packet);
            } else {
                context.recorder.step(0, Step::Dropped(compiled.dropped));
                context.worker.drop(packet, context.port, compiled.dropped);
            }
        }
    }
}
