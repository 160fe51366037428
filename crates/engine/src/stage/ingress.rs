//! Execution of ingress stages. The worker runs the ingress stage of a port between parsing and the port's
//! function.

use packet::PortId;
use packet::record::{Recorder, Step};
use port::BURST;
use switch::Now;

use crate::burst::Burst;
use crate::stage::WorkerContext;

pub use super::ingress_stage::{Arrivals, IngressStage, Verdicts};

/// Runs the port's ingress stage on `burst`, and drops the packets that the stage rejects.
pub fn run<R: Recorder>(
    port: PortId,
    own: &dyn IngressStage,
    burst: &mut Burst,
    now: Now,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    let n = burst.len();
    let mut verdicts = [None; BURST];
    let Burst { packets, keys, layers, .. } = burst;
    let memory = context.pool.memory();
    own.run(
        &mut Arrivals {
            port,
            packets: packets.as_mut_slice(),
            keys: &mut keys[..n],
            layers: &mut layers[..n],
            memory,
            worker: context.id,
            now_ns: now.ns,
            dry_run: R::DRY,
        },
        &mut verdicts,
    );
    if verdicts[..n].iter().all(Option::is_none) {
        return;
    }
    let mut kept = 0;
    for (at, verdict) in verdicts[..n].iter().enumerate() {
        match verdict {
            None => {
                burst.swap(kept, at);
                kept += 1;
            }
            Some(reason) => {
                recorder.step(at, Step::Dropped(*reason));
                burst.decisions[at] = switch::Decision::Drop(*reason);
            }
        }
    }
    burst.sorted_out(kept, |packet, decision| {
        if let switch::Decision::Drop(reason) = decision {
            context.drop(packet, port, reason);
        }
    });
}
