//! A port without a link, which receives no packets and discards transmitted packets. The port is used in tests
//! and benchmarks, and to discard traffic. A patch port also has a null queue, because its packets are passed
//! to the peer port before they reach a queue.

use crate::pool::FramePool;
use crate::queue::{Batch, Capabilities, Exported, Queue, QueueStatus};

/// A queue that receives no packets and discards transmitted packets. See the module documentation.
#[derive(Debug)]
pub struct NullQueue {
    kind: &'static str,
    swallowed: u64,
}

impl Default for NullQueue {
    fn default() -> Self {
        Self::of_kind("null")
    }
}

impl NullQueue {
    /// Creates a null queue whose status reports the port kind `kind`.
    #[must_use]
    pub fn of_kind(kind: &'static str) -> Self {
        Self { kind, swallowed: 0 }
    }

    /// Returns the number of packets that the queue has discarded so far.
    #[must_use]
    pub fn swallowed(&self) -> u64 {
        self.swallowed
    }
}

impl Queue for NullQueue {
    fn receive(&mut self, _pool: &mut FramePool, _out: &mut Batch) -> usize {
        0
    }

    fn transmit(&mut self, pool: &mut FramePool, batch: &mut Batch) -> usize {
        let n = batch.len();
        for packet in batch.drain(..) {
            pool.free(packet);
        }
        self.swallowed += n as u64;
        n
    }

    fn kick(&mut self, _pool: &mut FramePool) {}

    fn has_pending(&mut self) -> bool {
        false
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            partial_checksum: true,
            tcp_segmentation: true,
            udp_segmentation: true,
            max_segments: u16::MAX,
            max_frame: u32::MAX,
        }
    }

    fn status(&self) -> QueueStatus {
        QueueStatus { kind: self.kind, ..QueueStatus::default() }
    }

    fn close(self: Box<Self>, _pool: &mut FramePool) {}

    fn export(self: Box<Self>, pool: &mut FramePool) -> Exported {
        self.close(pool);
        Exported::Closed
    }
}
