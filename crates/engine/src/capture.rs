//! Packet capture: copies of packets as received, as transmitted, or as dropped with the reason.
//!
//! A capture never delays the data path. When a capture ring is full or no frame is free, the copy is omitted
//! and counted as missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packet::filter::Filter;
use packet::{DropReason, FlowKey, PortId};
use port::{FrameMemory, FramePool, Packet};
use sync::spsc::{Consumer, Producer, channel};

/// Point of a packet's path at which a copy was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The packet was received from a port's queue.
    Received,
    /// The packet is about to be transmitted by a port's queue.
    Sent,
    /// The packet was dropped.
    Dropped {
        /// Reason for the drop.
        reason: DropReason,
        /// Output port of the packet, or `None` if no output had been selected.
        output: Option<PortId>,
    },
}

/// A captured copy of a packet.
#[derive(Debug)]
pub struct Captured {
    /// The copy. The reader returns its frame through a pool of the same depot.
    pub packet: Packet,
    /// Port at which the packet was received or transmitted. For a dropped packet, the port on which the
    /// packet arrived.
    pub port: PortId,
    /// Point of the packet's path at which the copy was made.
    pub direction: Direction,
    /// Time of the packet's burst, in nanoseconds of the engine's monotonic clock.
    pub ns: u64,
}

/// Selection of the packets to capture. The default is all packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Restricts the capture to packets received or transmitted by this port, or dropped on the way from or
    /// to this port. `None` captures packets of all ports.
    pub port: Option<PortId>,
    /// Whether the capture is restricted to dropped packets.
    pub only_drops: bool,
    /// Filter for the flow key of the packet at the capture point. Workers apply the filter before a packet
    /// takes space in the ring, so other traffic does not crowd out selected packets. Frames whose L2 header
    /// cannot be parsed are captured only without a filter.
    pub filter: Filter,
}

/// Worker's end of a capture.
pub struct CaptureTap {
    ring: Producer<Captured>,
    wanted: Arc<Wanted>,
    missed: Arc<AtomicU64>,
    /// Time of the current burst, in nanoseconds of the engine's monotonic clock.
    pub now_ns: u64,
}

/// Reader's end of a capture.
pub struct CaptureReader {
    /// Capture rings, one per worker.
    pub rings: Vec<Consumer<Captured>>,
    /// Number of copies that were omitted so far.
    pub missed: Arc<AtomicU64>,
    /// Generation of the depot that owns the copies' frames ([`port::Depot::generation`]).
    pub generation: u64,
}

/// Number of copies that one worker's ring holds.
const RING: usize = 512;

/// Creates a capture for `workers` workers.
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
    /// Copies `packet` into the ring if the capture selects the packet.
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

/// Parses the complete flow key of a packet from its current contents. Returns `None` when the L2 header
/// cannot be parsed.
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
