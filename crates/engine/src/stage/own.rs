//! Ingress stages: code of a program that embeds the engine, which workers run between parsing and the port's
//! function. `examples/stage` is an example.

use packet::record::{Recorder, Step};
use packet::{DropReason, FlowKey, Layers, PortId, WorkerId};
use port::{BURST, FrameMemory, Packet};
use switch::Now;

use crate::burst::Burst;
use crate::stage::Tools;

/// Verdicts of an ingress stage, one for each packet of a burst. `None` accepts the packet, and `Some` drops
/// the packet with a reason.
pub type Verdicts = [Option<DropReason>; BURST];

/// An ingress stage. A port with an ingress stage ([`crate::PortView::own`]) passes every received burst to
/// it.
///
/// The stage runs on the worker threads, possibly on several at once. The stage must not lock, allocate
/// memory or make system calls. A panic aborts the process.
pub trait OwnStage: Send + Sync {
    /// Inspects a burst and may change its packets. The port's function uses `keys` and `layers`, so a stage
    /// that changes a header must update them as well ([`FlowKey::extract`]). A stage that changes data
    /// covered by a checksum must update the checksum.
    fn run(&self, arrivals: &mut Arrivals<'_>, verdicts: &mut Verdicts);
}

/// A burst of parsed packets. The slices have one element per packet.
pub struct Arrivals<'a> {
    /// Port on which the packets arrived.
    pub port: PortId,
    /// The packets. [`Packet::head_mut`] gives access to their bytes.
    pub packets: &'a mut [Packet],
    /// Flow key of each packet.
    pub keys: &'a mut [FlowKey],
    /// Header offsets of each packet.
    pub layers: &'a mut [Layers],
    /// Memory of the packets' frames.
    pub memory: &'a FrameMemory,
    /// Number of the worker that runs the stage.
    pub worker: WorkerId,
    /// Start of the worker's round, in nanoseconds of CLOCK_MONOTONIC.
    pub now_ns: u64,
    /// Whether this is a dry run, in which the stage must not count or store anything.
    pub dry_run: bool,
}

/// Runs the port's ingress stage on `burst`, and drops the packets that the stage rejects.
pub fn run<R: Recorder>(
    port: PortId,
    own: &dyn OwnStage,
    burst: &mut Burst,
    now: Now,
    tools: &mut Tools,
    recorder: &mut R,
) {
    let n = burst.len();
    let mut verdicts = [None; BURST];
    let Burst { packets, keys, layers, .. } = burst;
    let memory = tools.pool.memory();
    own.run(
        &mut Arrivals {
            port,
            packets: packets.as_mut_slice(),
            keys: &mut keys[..n],
            layers: &mut layers[..n],
            memory,
            worker: tools.id,
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
            tools.drop(packet, port, reason);
        }
    });
}
