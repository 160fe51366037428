//! Packet capture, which copies packets when they are received, transmitted or dropped. A copy of a dropped
//! packet includes the drop reason.
//!
//! A capture never delays the data path. If a capture ring is full or no frame is free, the packet is not
//! copied and is counted as missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packet::filter::Filter;
use packet::{DropReason, FlowKey, PortId};
use port::{FrameMemory, FramePool, Packet};
use sync::spsc::{Consumer, Producer, channel};

/// Point in the packet path at which a packet was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The packet was received from a queue of the port.
    Received,
    /// The packet was about to be put into a transmit queue of the port.
    Sent,
    /// The packet was dropped.
    Dropped {
        /// Reason for the drop.
        reason: DropReason,
        /// Port that was to transmit the packet, or `None` if no output port had been selected.
        output: Option<PortId>,
    },
}

/// Copy of one packet, made by a capture.
#[derive(Debug)]
pub struct Captured {
    /// Copy of the packet. The reader of the capture frees the copy's frame through a pool of the same depot.
    pub packet: Packet,
    /// Port at which the packet was received or transmitted. For a dropped packet, the port on which the
    /// packet arrived.
    pub port: PortId,
    /// Point in the packet path at which the packet was copied.
    pub direction: Direction,
    /// Time at which the worker processed the packet's burst, in nanoseconds of the engine's monotonic clock.
    pub ns: u64,
}

/// Criteria that select the packets to capture. The default selects all packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Port to which the capture is restricted, or `None` for all ports. A restricted capture selects packets
    /// that this port receives or transmits, and packets that are dropped on the way from or to this port.
    pub port: Option<PortId>,
    /// Whether only dropped packets are captured.
    pub only_drops: bool,
    /// Filter that the flow key of a packet must match when the packet is copied. Workers apply the filter before a
    /// packet takes space in the ring, so unselected packets do not displace selected ones. Frames whose L2 header
    /// cannot be parsed have no flow key and are captured only without a filter.
    pub filter: Filter,
}

/// Worker's side of a capture, with the sending end of the worker's capture ring.
pub struct CaptureTap {
    ring: Producer<Captured>,
    wanted: Arc<Wanted>,
    missed: Arc<AtomicU64>,
    /// Time of the burst that the worker processes, in nanoseconds of the engine's monotonic clock.
    pub now_ns: u64,
}

/// Reader's side of a capture, with the receiving ends of the capture rings of all workers.
pub struct CaptureReader {
    /// Capture rings, one per worker.
    pub rings: Vec<Consumer<Captured>>,
    /// Total number of packets that were selected but could not be copied.
    pub missed: Arc<AtomicU64>,
    /// Generation number of the depot (the store of free frames) from which the frames of the copies were taken
    /// ([`port::Depot::generation`]).
    pub generation: u64,
}

/// Capacity of one worker's capture ring, in packet copies.
const RING: usize = 512;

/// Creates a capture for `workers` workers. Returns one [`CaptureTap`] per worker and the [`CaptureReader`].
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
    /// Copies `packet` into the capture ring if the capture selects the packet.
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

/// Extracts the complete flow key from the current contents of a packet. Returns `None` if the L2 header
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
