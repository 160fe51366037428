//! Copies of packets for whoever captures: as received, as sent, or as dropped with the reason.
//!
//! A tap never holds the data path up: when its ring is full or frames run out, the copy is left out and counted as missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packet::{DropReason, PortId};
use port::{FramePool, Packet};
use sync::spsc::{Consumer, Producer, channel};

/// Where on its way a packet was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Off a port's queue.
    Received,
    /// On its way to a port's queue.
    Sent,
    /// At its end.
    Dropped(DropReason),
}

/// A captured copy.
#[derive(Debug)]
pub struct Captured {
    /// The copy; its frame goes back through a pool of the same depot.
    pub packet: Packet,
    /// The port it was seen at.
    pub port: PortId,
    /// How.
    pub direction: Direction,
    /// Time of its burst, nanoseconds of the engine's monotonic clock.
    pub ns: u64,
}

/// The worker's end.
pub struct CaptureTap {
    ring: Producer<Captured>,
    port: Option<PortId>,
    only_drops: bool,
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
}

/// Copies that one worker's ring holds.
const RING: usize = 512;

/// Taps for `workers` workers, for the packets of `port` (or of all) or only their drops.
#[must_use]
pub fn taps(workers: usize, port: Option<PortId>, only_drops: bool) -> (Vec<CaptureTap>, CaptureReader) {
    let missed = Arc::new(AtomicU64::new(0));
    let (taps, rings) = (0..workers)
        .map(|_| {
            let (ring, reader) = channel(RING);
            (CaptureTap { ring, port, only_drops, missed: missed.clone(), now_ns: 0 }, reader)
        })
        .unzip();
    (taps, CaptureReader { rings, missed })
}

impl CaptureTap {
    /// Copies `packet` if this capture wants it.
    pub fn offer(&mut self, pool: &mut FramePool, packet: &Packet, port: PortId, direction: Direction) {
        let wanted = self.port.is_none_or(|p| p == port)
            && (!self.only_drops || matches!(direction, Direction::Dropped(_)));
        if !wanted {
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
}
