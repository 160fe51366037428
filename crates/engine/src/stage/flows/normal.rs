//! Forwarding by the learning bridge, for the `NORMAL` action.

use std::sync::Arc;

use packet::record::{Recorder, Step};
use packet::{FlowKey, PortId};
use port::Packet;
use switch::{Decision, Now};

use crate::burst::Burst;
use crate::flows::FlowBridge;
use crate::stage::transmit::Egress;
use crate::stage::{WorkerContext, execute};
use crate::state::Forwarding;

/// Forwards a whole burst by the learning bridge (`NORMAL` action).
#[allow(clippy::too_many_arguments, reason = "the stage's whole context")]
pub(super) fn normal_burst<R: Recorder>(
    forwarding: &Forwarding,
    port: PortId,
    bridge: &Arc<FlowBridge>,
    burst: &mut Burst,
    now: Now,
    egress: &mut Egress<'_>,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    let n = burst.len();
    bridge.bridge.forward(
        &burst.keys[..n],
        &burst.layers[..n],
        now,
        &mut context.scratch,
        &mut burst.decisions[..n],
        recorder,
    );
    execute::decided(forwarding, port, Some(&bridge.bridge), burst, now, egress, context, recorder);
}

/// Forwards one packet by the learning bridge (`NORMAL` action). The flow key is extracted from the current
/// contents of the packet, which earlier actions may have changed.
#[allow(clippy::too_many_arguments, reason = "the stage's whole context")]
pub(super) fn normal<R: Recorder>(
    forwarding: &Forwarding,
    port: PortId,
    bridge: &Arc<FlowBridge>,
    packet: Packet,
    now: Now,
    egress: &mut Egress<'_>,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    let mut key = FlowKey::ZERO;
    let head = packet.head(context.pool.memory());
    let layers = match FlowKey::extract(head, packet.len(), port, &mut key) {
        Ok(layers) => layers,
        Err(reason) => {
            recorder.step(0, Step::Dropped(reason));
            return context.drop(packet, port, reason);
        }
    };
    let mut decision = [Decision::default()];
    bridge.bridge.forward(&[key], &[layers], now, &mut context.scratch, &mut decision, recorder);
    execute::decide(
        forwarding,
        port,
        Some(&bridge.bridge),
        packet,
        &decision[0],
        now,
        egress,
        context,
        recorder,
    );
}
