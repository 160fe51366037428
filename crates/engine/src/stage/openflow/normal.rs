//! Forwarding by the learning bridge, for the `NORMAL` action.

use std::sync::Arc;

use packet::FlowKey;
use packet::record::{Recorder, Step};
use port::Packet;
use switch::Decision;

use crate::burst::Burst;
use crate::flows::FlowBridge;
use crate::stage::bridge;
use crate::stage::path_context::Context;

/// Forwards a whole burst with the learning bridge (`NORMAL` action).
pub(super) fn normal_burst<R: Recorder>(
    own: &Arc<FlowBridge>,
    context: &mut Context<'_, '_, R>,
    burst: &mut Burst,
) {
    bridge::decide(&own.bridge, context, burst);
    bridge::execute(&own.bridge, context, burst);
}

/// Forwards one packet with the learning bridge (`NORMAL` action). The flow key is extracted from the current contents
/// of the packet, which earlier actions may have changed.
pub(super) fn normal<R: Recorder>(own: &Arc<FlowBridge>, context: &mut Context<'_, '_, R>, packet: Packet) {
    let mut key = FlowKey::ZERO;
    let head = packet.head(context.worker.pool.memory());
    let layers = match FlowKey::extract(head, packet.len(), context.port, &mut key) {
        Ok(layers) => layers,
        Err(reason) => {
            context.recorder.step(0, Step::Dropped(reason));
            return context.worker.drop(packet, context.port, reason);
        }
    };
    let mut decision = [Decision::default()];
    let scratch = &mut context.worker.scratch;
    own.bridge.forward(&[key], &[layers], context.now, scratch, &mut decision, context.recorder);
    bridge::execute_one(&own.bridge, context, packet, &decision[0]);
}
