//! Stages of one's own: code that a program which embeds the engine runs in the worker's path, between reading headers and the room's
//! decision. `examples/stage` is one.

use packet::record::{Recorder, Step};
use packet::{DropReason, FlowKey, Layers, PortId, WorkerId};
use port::{BURST, FrameMemory, Packet};
use switch::Now;

use crate::burst::Burst;
use crate::stage::Tools;

/// What a stage says of each packet of a burst: `None` lets it go on.
pub type Verdicts = [Option<DropReason>; BURST];

/// A stage of one's own. A port that has one ([`crate::PortView::own`]) hands it every burst that arrives there.
///
/// It runs in the workers' threads, in several at once: no locks, no allocation, no system calls. A panic ends the worker.
pub trait OwnStage: Send + Sync {
    /// Looks at a burst, and may change its packets. Rooms decide by `keys` and `layers`: who changes a header that they tell of changes
    /// them, too ([`FlowKey::extract`]), and whoever changes what a checksum covers mends it.
    fn run(&self, arrivals: &mut Arrivals<'_>, verdicts: &mut Verdicts);
}

/// Packets that have just been read, one place each in all of these.
pub struct Arrivals<'a> {
    /// The port they came in by.
    pub port: PortId,
    /// The packets; their bytes are [`Packet::head_mut`]'s.
    pub packets: &'a mut [Packet],
    /// Their flow keys.
    pub keys: &'a mut [FlowKey],
    /// Where their headers stand.
    pub layers: &'a mut [Layers],
    /// The memory that their frames are in.
    pub memory: &'a FrameMemory,
    /// The worker in whose thread the stage runs.
    pub worker: WorkerId,
    /// When its round began: nanoseconds of CLOCK_MONOTONIC.
    pub now_ns: u64,
    /// Somebody asks what would happen: nothing is to be counted or remembered.
    pub dry_run: bool,
}

/// Lets a port's own stage look at `burst`; drops what it says.
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
