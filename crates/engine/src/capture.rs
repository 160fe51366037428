//! Copies of packets for whoever captures: as received, as sent, or as dropped with the reason.
//!
//! A tap never holds the data path up: when its ring is full or frames run out, the copy is left out and counted as missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packet::filter::Filter;
use packet::{DropReason, FlowKey, PortId};
use port::{FrameMemory, FramePool, Packet};
use sync::spsc::{Consumer, Producer, channel};

/// Where on its way a packet was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Off a port's queue.
    Received,
    /// On its way to a port's queue.
    Sent,
    /// At its end.
    Dropped {
        /// Why.
        reason: DropReason,
        /// The port that the packet was to leave by, where its output was chosen.
        output: Option<PortId>,
    },
}

/// A captured copy.
#[derive(Debug)]
pub struct Captured {
    /// The copy; its frame goes back through a pool of the same depot.
    pub packet: Packet,
    /// The port it was seen at; of a dropped packet the port by which it has arrived.
    pub port: PortId,
    /// How.
    pub direction: Direction,
    /// Time of its burst, nanoseconds of the engine's monotonic clock.
    pub ns: u64,
}

/// What a capture wants. The default is everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Of this port only: received and sent there, or dropped on the way from or to it.
    pub port: Option<PortId>,
    /// Drops only.
    pub only_drops: bool,
    /// Only packets whose key matches, as they are where they are seen. It is asked before a packet takes a place in the ring:
    /// other traffic cannot crowd out what is wanted. Frames whose L2 header cannot be read are shown if there is no filter.
    pub filter: Filter,
}

/// The worker's end.
pub struct CaptureTap {
    ring: Producer<Captured>,
    wanted: Arc<Wanted>,
    missed: Arc<AtomicU64>,
    /// Time of the burst in hand.
    pub now_ns: u64,
}

/// The reader's end.
pub struct CaptureReader {
    /// One ring per worker.
    pub rings: Vec<Consumer<Captured>>,
    /// Copies left out so far.
    pub missed: Arc<AtomicU64>,
    /// The generation of the depot that the copies' frames are from ([`port::Depot::generation`]).
    pub generation: u64,
}

/// Copies that one worker's ring holds.
const RING: usize = 512;

/// Taps for `workers` workers.
#[must_use]
pub fn taps(workers: usize, generation: u64, wanted: &Wanted) -> (Vec<CaptureTap>, CaptureReader) {
    let (missed, wanted) = (Arc::new(AtomicU64::new(0)), Arc::new(*wanted));
    let (taps, rings) = (0..workers)
        .map(|_| {
            let (ring, reader) = channel(RING);
            (CaptureTap { ring, wanted: Arc::clone(&wanted), missed: missed.clone(), now_ns: 0 }, reader)
        })
        .unzip();
    (taps, CaptureReader { rings, missed, generation })
}

impl CaptureTap {
    /// Copies `packet` if this capture wants it.
    pub fn offer(&mut self, pool: &mut FramePool, packet: &Packet, port: PortId, direction: Direction) {
        if !self.wants(pool, packet, port, direction) {
            return;
        }
        if self.ring.free() > 0
            && let Ok(copy) = pool.copy(packet)
        {
            let captured = Captured { packet: copy, port, direction, ns: self.now_ns };
            match self.ring.push(captured) {
                Ok(()) => return,
                Err(back) => pool.free(back.packet),
            }
        }
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    fn wants(&self, pool: &FramePool, packet: &Packet, port: PortId, direction: Direction) -> bool {
        let Wanted { port: wanted, only_drops, filter } = &*self.wanted;
        let output = if let Direction::Dropped { output, .. } = direction { output } else { None };
        if wanted.is_some_and(|wanted| wanted != port && Some(wanted) != output)
            || (*only_drops && !matches!(direction, Direction::Dropped { .. }))
        {
            return false;
        }
        *filter == Filter::default()
            || key_of(packet, pool.memory(), port).is_some_and(|key| filter.matches(&key))
    }
}

/// A packet's whole key, as it lies in memory now; `None` when its L2 header cannot be read.
pub(crate) fn key_of(packet: &Packet, memory: &FrameMemory, port: PortId) -> Option<FlowKey> {
    let mut key = FlowKey::ZERO;
    FlowKey::extract(packet.head(memory), packet.len(), port, &mut key).ok().map(|_| key)
}

#[cfg(test)]
mod tests {
    use port::{Depot, HugePages, MemoryConfig};

    use super::*;

    #[test]
    fn other_traffic_does_not_crowd_out_what_is_wanted() {
        let memory = MemoryConfig { frames: 2048, frame_size: 2048, huge_pages: HugePages::Off };
        let mut pool = Depot::new(Arc::new(FrameMemory::new(memory).unwrap())).pool();
        let filter = Filter::parse("udp,dst_port=53").unwrap();
        let (mut taps, mut reader) = taps(1, 0, &Wanted { filter, ..Wanted::default() });
        let mut offer = |text: &str, direction| {
            let packet = pool.alloc_copy(&packet::spec::parse(text).unwrap()).unwrap();
            taps[0].offer(&mut pool, &packet, PortId(1), direction);
            pool.free(packet);
        };
        for _ in 0..3 * RING {
            offer("tcp,dst_port=80", Direction::Received);
        }
        let dropped = Direction::Dropped { reason: DropReason::NoMember, output: None };
        offer("udp,dst_port=53", dropped);
        for _ in 0..RING {
            offer("vlan=10,udp,dst_port=53", Direction::Sent);
        }
        let seen: Vec<Direction> =
            std::iter::from_fn(|| reader.rings[0].pop()).map(|it| it.direction).collect();
        assert_eq!((seen.len(), seen[0]), (RING, dropped));
        assert_eq!(reader.missed.load(Ordering::Relaxed), 1, "the ring was full for one that was wanted");
    }
}
