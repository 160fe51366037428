//! Patch ports, which connect two bridges or routers. A packet that is transmitted through a patch port arrives at the
//! peer port, on the same worker and without a copy.
//!
//! At the end of each burst, the function `through` forwards the packets that were sent to patch
//! ports, until no packet is left. No packet remains here between two bursts. Therefore the code
//! for packet order, for sleeping workers and for draining need not consider patch ports.
//!
//! Three limits end forwarding loops through patch ports:
//!
//! - The number of patch ports that a packet may pass is limited ([`port::HOPS`]).
//! - Copies count toward the copy budget of the received burst from which they derive
//!   ([`super::CLONE_BUDGET`]).
//! - The packets of one received burst may arrive at patch ports at most `PASSES` times in total. Additional packets
//!   are dropped.

use packet::record::{Recorder, Step};
use packet::{DropReason, PortId, QueueId};
use port::HOPS;
use switch::Now;
use sync::qsbr::Reader;

use crate::burst::Burst;
use crate::stage::path::{self, Source};
use crate::stage::transmit::Egress;
use crate::stage::{WorkerContext, receive};
use crate::state::Forwarding;

/// Maximum number of packet arrivals at patch ports that one received burst may cause. The number is sufficient
/// for a full burst to pass a chain of [`HOPS`] patch ports twice.
const PASSES: usize = 2 * port::BURST * HOPS as usize;
/// Maximum number of packet arrivals at patch ports in a dry run (explain). The number is smaller than `PASSES` to keep
/// the report readable.
const PASSES_TOLD: usize = 256;

/// Forwards the packets that were sent to patch ports. The function continues until no packet waits
/// at a patch port. `burst` is empty before and after the call. `queue` is the index of the
/// worker's queue from which the packets were originally received.
#[allow(clippy::too_many_arguments, reason = "the worker's parts, borrowed apart")]
#[cold]
pub(crate) fn through<R: Recorder>(
    forwarding: &Forwarding,
    reader: &Reader,
    queue: Option<usize>,
    burst: &mut Burst,
    now: Now,
    egress: &mut Egress<'_>,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    let mut left = if R::DRY { PASSES_TOLD } else { PASSES };
    while let Some(&(port, _)) = context.patched.front() {
        // A report covers one packet at a time.
        let most = if R::ACTIVE { 1 } else { port::BURST };
        while burst.packets.len() < most
            && let Some((_, packet)) = context.patched.pop_front_if(|(own, _)| *own == port)
        {
            burst.packets.push(packet);
        }
        let n = burst.len();
        let Some(view) = forwarding.port(port) else {
            end(port, DropReason::PortRemoved, burst, context, recorder);
            continue;
        };
        receive::arrived(port, view, burst, context);
        for packet in burst.packets.iter().filter(|_| R::ACTIVE) {
            let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
            recorder.step(0, Step::Received { port, queue: QueueId(0), len });
        }
        if !view.up {
            end(port, DropReason::PortDown, burst, context, recorder);
        } else if n > left {
            end(port, DropReason::HopLimit, burst, context, recorder);
        } else {
            left -= n;
            let source = Source { forwarding, port, view, queue: None, seen: false, origin: queue, reader };
            path::run(&source, burst, now, egress, context, recorder);
        }
    }
}

/// Drops all packets of a burst that cannot be processed at `port`.
fn end<R: Recorder>(
    port: PortId,
    reason: DropReason,
    burst: &mut Burst,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    for packet in burst.packets.drain(..) {
        recorder.step(0, Step::Dropped(reason));
        context.drop(packet, port, reason);
    }
}
