//! Ingress stages of programs that embed the engine. Workers run the code of an ingress stage between parsing
//! and the port's function. `examples/stage` is an example.

use packet::{DropReason, FlowKey, Layers, PortId, WorkerId};
use port::{BURST, FrameMemory, Packet};

/// Verdicts of an ingress stage, with one element for each packet of a burst. `None` accepts the packet.
/// `Some` drops the packet with the given reason.
pub type Verdicts = [Option<DropReason>; BURST];

/// An ingress stage of a program that embeds the engine. If a port has an ingress stage
/// ([`crate::PortView::own`]), each burst that the port receives is passed to the stage.
///
/// The stage runs on the worker threads, possibly on several threads at the same time. The stage must not
/// take locks, allocate memory or make system calls. A panic in the stage aborts the process.
pub trait IngressStage: Send + Sync {
    /// Inspects the packets of a burst and sets the verdicts. The stage may also change the packets. The
    /// port's function uses `keys` and `layers`, so a stage that changes a header must update both
    /// ([`FlowKey::extract`]). A stage that changes data covered by a checksum must update the checksum.
    fn run(&self, arrivals: &mut Arrivals<'_>, verdicts: &mut Verdicts);
}

/// A burst of parsed packets that a worker passes to an ingress stage. Each slice has one element
/// per packet.
pub struct Arrivals<'a> {
    /// Port on which the packets arrived.
    pub port: PortId,
    /// Packets of the burst. [`Packet::head_mut`] gives access to the bytes of a packet.
    pub packets: &'a mut [Packet],
    /// Flow key of each packet.
    pub keys: &'a mut [FlowKey],
    /// Offsets of the headers in each packet.
    pub layers: &'a mut [Layers],
    /// Memory that contains the packets' frames.
    pub memory: &'a FrameMemory,
    /// Identifier of the worker that runs the stage.
    pub worker: WorkerId,
    /// Time at which the worker's round began, in nanoseconds of CLOCK_MONOTONIC.
    pub now_ns: u64,
    /// Whether the burst is part of a dry run. In a dry run, the stage must not count packets or store state.
    pub dry_run: bool,
}
