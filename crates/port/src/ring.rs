//! A port in memory, which consists of two rings, each with a single producer and a single consumer. A test, a
//! benchmark or another component of the process uses the port to exchange packets with a worker. Both ends
//! share one frame memory, and only packet handles are moved.
#![allow(unsafe_code, reason = "moves handles into the unused part of a batch")]

use std::mem::MaybeUninit;

use sync::spsc::{Consumer, Producer, channel};

use crate::packet::Packet;
use crate::pool::FramePool;
use crate::queue::{Batch, Capabilities, Exported, Queue, QueueStatus};

/// One end of a pair of connected in-memory queues. Each end implements [`Queue`].
pub struct RingQueue {
    rx: Consumer<Packet>,
    tx: Producer<Packet>,
    max_frame: u32,
}

/// Creates a pair of connected queues. Each direction has space for `capacity` packets, rounded up to a power
/// of two.
#[must_use]
pub fn pair(capacity: usize) -> (RingQueue, RingQueue) {
    let (a_tx, b_rx) = channel(capacity);
    let (b_tx, a_rx) = channel(capacity);
    let max_frame = 9000 + 14;
    (RingQueue { rx: a_rx, tx: a_tx, max_frame }, RingQueue { rx: b_rx, tx: b_tx, max_frame })
}

/// Moves packets from a ring to the end of `out`, until `out` is full or the ring is empty. Returns the
/// number of packets moved.
#[inline]
pub fn pop_batch(ring: &mut Consumer<Packet>, out: &mut Batch) -> usize {
    let (len, room) = (out.len(), out.remaining_capacity());
    // SAFETY: the batch's elements from `len` on belong to the batch and are uninitialized, which
    // `MaybeUninit` allows.
    let spare = unsafe {
        std::slice::from_raw_parts_mut(out.as_mut_ptr().add(len).cast::<MaybeUninit<Packet>>(), room)
    };
    let n = ring.pop_uninit(spare);
    // SAFETY: the first `n` of the spare elements were just initialized, and `n <= room`.
    unsafe { out.set_len(len + n) };
    n
}

impl Queue for RingQueue {
    fn receive(&mut self, _pool: &mut FramePool, out: &mut Batch) -> usize {
        pop_batch(&mut self.rx, out)
    }

    fn transmit(&mut self, _pool: &mut FramePool, batch: &mut Batch) -> usize {
        let n = batch.len().min(self.tx.free());
        self.tx.push_from(&mut batch.drain(..n))
    }

    fn kick(&mut self, _pool: &mut FramePool) {}

    fn has_pending(&mut self) -> bool {
        !self.rx.is_empty()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { max_segments: u16::MAX, max_frame: self.max_frame, ..Capabilities::default() }
    }

    fn status(&self) -> QueueStatus {
        QueueStatus { kind: "ring", ..QueueStatus::default() }
    }

    fn close(mut self: Box<Self>, pool: &mut FramePool) {
        while let Some(packet) = self.rx.pop() {
            pool.free(packet);
        }
    }

    fn export(self: Box<Self>, pool: &mut FramePool) -> Exported {
        self.close(pool);
        Exported::Closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{FrameMemory, HugePages, MemoryConfig};
    use crate::pool::Depot;

    #[test]
    fn a_ring_is_closed_by_an_export_and_its_frames_return_to_the_pool() {
        let config = MemoryConfig { frames: 64, frame_size: 2048, huge_pages: HugePages::Off };
        let depot = Depot::new(FrameMemory::new(config).unwrap().into());
        let mut pool = depot.pool();
        let (mut near, far) = pair(8);
        let mut batch = Batch::new();
        batch.extend([b"a", b"b"].map(|octets| pool.alloc_copy(octets).unwrap()));
        assert_eq!(near.transmit(&mut pool, &mut batch), 2);
        let far: Box<dyn Queue> = Box::new(far);
        assert!(matches!(far.export(&mut pool), Exported::Closed));
        pool.flush();
        assert_eq!(depot.available(), 64);
    }
}
