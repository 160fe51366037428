//! ICMP errors for packets that have no route or whose route prohibits forwarding. The packet itself is
//! rewritten into the ICMP error (`router::IcmpError`), which is then routed like any other packet. If no ICMP
//! error can be built, the packet is punted to the kernel.

use packet::record::{Recorder, Step};
use packet::{DropReason, PuntClass, WorkerId};
use port::{Flags, FrameMemory, Packet, offload};
use router::{Decision, IcmpError, Origin, Punt, Refusal, Router, Scratch};
use switch::Now;
use sync::qsbr::Reader;

use crate::burst::Head;

/// Values from which the ICMP error for one packet is built.
pub struct Asked<'a> {
    pub router: &'a Router,
    /// Index of the router interface on which the packet arrived.
    pub arrival: u16,
    /// Index of the packet in its burst.
    pub place: usize,
    pub worker: WorkerId,
    pub now: Now,
    pub reader: &'a Reader,
    pub scratch: &'a mut Scratch,
}

/// Rewrites a packet that cannot be routed into an ICMP error, and returns the routing decision for the error. If no
/// ICMP error can be built, the packet is unchanged and the returned decision applies to the packet.
#[cold]
#[inline(never)]
pub fn run<R: Recorder>(
    asked: &mut Asked<'_>,
    why: Refusal,
    packet: &mut Packet,
    memory: &FrameMemory,
    recorder: &mut R,
) -> (Decision, Head) {
    match answer::<R>(asked, why, packet, memory) {
        Ok(error) => {
            recorder.step(asked.place, Step::Told { why: why.explain(), from: error.source });
            let head = if error.is_four() { Head::Plain4 } else { Head::Plain6 };
            (Decision::Forward { adjacency: error.adjacency, interface: error.interface }, head)
        }
        Err(instead) => (instead, Head::Read),
    }
}

fn answer<R: Recorder>(
    asked: &mut Asked<'_>,
    why: Refusal,
    packet: &mut Packet,
    memory: &FrameMemory,
) -> Result<IcmpError, Decision> {
    const KERNELS: Decision = Decision::Punt(Punt::NoRoute);
    let Asked { router, arrival, worker, now, reader, scratch, .. } = asked;
    // The quoted packet must contain a complete checksum.
    if packet.flags().contains(Flags::SEGMENT) || offload::complete_checksum(packet, memory).is_err() {
        return Err(KERNELS);
    }
    let origin = Origin::of(*arrival, packet.head(memory), packet.len());
    let id = if R::DRY { 0 } else { router.punt_policer.next_id() };
    let error = router.error(why, *arrival, packet.head(memory), packet.len(), id, reader, scratch)?;
    let more = u16::try_from(error.header().len() - ETHERNET).map_err(|_| KERNELS)?;
    let length = u16::try_from(error.len()).map_err(|_| KERNELS)?;
    if packet.segments() != 1 || !packet.prepend(more) {
        return Err(KERNELS);
    }
    let admits = || {
        let Router { punt_policer, adjacencies, .. } = router;
        punt_policer.admits_from(PuntClass::Errors, &origin, adjacencies, worker.index(), now.ns)
    };
    if !R::DRY && !admits() {
        let _restored = packet.trim_front(more);
        return Err(Decision::Drop(DropReason::NoRoute));
    }
    // The error quotes no more bytes than the packet has.
    let _fits = packet.set_len(memory, length);
    packet.clear_offload(Flags::CHECKSUM_VALID);
    if let Some(head) = packet.head_mut(memory).get_mut(..error.header().len()) {
        head.copy_from_slice(error.header());
    }
    Ok(error)
}

/// Length of the Ethernet header in bytes. The Ethernet header of the ICMP error starts where the header of the
/// original packet started.
const ETHERNET: usize = 14;
