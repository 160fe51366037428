//! Frame sequence numbers with which XDP programs and workers keep the frames of a flow in order. The numbers of each
//! receive queue are in a `struct bridge_order`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;
use crate::sys::{self, MapKind, MapSpec, Mapped};

pub(crate) const ORDERS: &str = "bridge_orders";
pub(crate) const BUCKETS: &str = "bridge_buckets";
/// Number of cache lines for the hash buckets of each receive queue (`BRIDGE_BUCKET_LINES`). Flows are assigned to
/// buckets by a hash. A bucket holds the sequence number of the last frame of these flows that went to the worker.
pub(super) const BUCKET_LINES: u32 = 256;
/// Size of `struct bridge_order`, the state of one receive queue, in 64-bit words.
const WORDS: usize = 16;
/// Index of the word with the sequence number of the last frame sent to the worker. The following constants are
/// the indices of the other words of `struct bridge_order`.
const SENT: usize = 0;
const DONE: usize = 8;
const NOW: usize = 9;
const HOLD: usize = 10;
const BYPASS: usize = 11;
/// Value of the word `BYPASS`. With this value, the XDP program sends all frames of a queue to the worker if the queue
/// has a worker. With the value `BYPASSED_TEST`, the program sends the frames of all queues to the worker. Only test
/// runs use `BYPASSED_TEST`, because they have no worker.
const BYPASSED: u64 = 1;
const BYPASSED_TEST: u64 = 2;
/// Constant (`BRIDGE_MARK`) that is combined with the sequence number in an encoded `Mark`. The constant distinguishes
/// a sequence number from other bytes in front of a frame.
const MARK: u32 = 0x5472_6976;

/// Sequence number of a frame among the frames that one receive queue sends to the worker. The XDP program
/// writes the number in front of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(pub u32);

impl Mark {
    /// Size of the encoded sequence number in front of the frame, in bytes.
    pub const LEN: usize = 8;

    /// Decodes a sequence number from the bytes in front of a frame. Returns `None` if the bytes are not an encoded
    /// sequence number.
    #[must_use]
    pub fn read(bytes: [u8; Mark::LEN]) -> Option<Mark> {
        let word = u64::from_ne_bytes(bytes);
        let number = u32::try_from(word & u64::from(u32::MAX)).ok()?;
        (word >> 32 == u64::from(number ^ MARK)).then_some(Mark(number))
    }
}

/// Frame sequence numbers and hash buckets of all receive queues of a port. With these numbers, the XDP program
/// forwards a frame only after earlier frames of the frame's flow have left the worker.
#[derive(Debug)]
pub struct Orders {
    pub(super) map: OwnedFd,
    pub(super) buckets: OwnedFd,
    memory: Mapped,
}

impl Orders {
    pub(crate) fn new(queues: u32) -> Result<Orders, Error> {
        let create = |name, kind, value, entries| {
            let spec = MapSpec { name, kind, key: 4, value, entries };
            sys::map_create(spec, None).map_err(|source| Error::Map {
                map: name,
                operation: "create",
                source,
            })
        };
        let map = create(ORDERS, MapKind::Mappable, 128, queues)?;
        let buckets = create(BUCKETS, MapKind::Array, 64, queues.saturating_mul(BUCKET_LINES))?;
        let orders = Orders::over(map, buckets)?;
        for queue in 0..queues {
            // Frames without a sequence number may still be in a worker. With this value, flows stay with the worker
            // until the worker reports that the first numbered frame has left.
            orders.finish(queue, u32::MAX);
        }
        Ok(orders)
    }

    /// Restores the sequence numbers from the maps of a program that is already in the kernel.
    pub(crate) fn over(map: OwnedFd, buckets: OwnedFd) -> Result<Orders, Error> {
        let memory = Mapped::new(map.as_fd()).map_err(|source| Error::Map {
            map: ORDERS,
            operation: "map",
            source,
        })?;
        let orders = Orders { map, buckets, memory };
        // A daemon that was killed may have left a queue in the state that drops frames.
        orders.words(HOLD).for_each(|word| word.store(0, Ordering::Release));
        Ok(orders)
    }

    pub(crate) fn maps(&self) -> [(&'static str, BorrowedFd<'_>); 2] {
        [(ORDERS, self.map.as_fd()), (BUCKETS, self.buckets.as_fd())]
    }

    /// Creates sequence numbers for a test run, with as many receive queues as `self` has. The test run assumes that no
    /// frame is in a worker.
    pub(crate) fn scratch(&self) -> Result<Orders, Error> {
        let orders = Orders::new(self.queues())?;
        if self.is_bypassed() {
            orders.words(BYPASS).for_each(|word| word.store(BYPASSED_TEST, Ordering::Release));
        }
        for queue in 0..orders.queues() {
            orders.finish(queue, 0);
        }
        Ok(orders)
    }

    fn word(&self, queue: u32, place: usize) -> Option<&AtomicU64> {
        self.memory.words().get(usize::try_from(queue).ok()? * WORDS + place)
    }

    fn words(&self, place: usize) -> impl Iterator<Item = &AtomicU64> {
        self.memory.words().iter().skip(place).step_by(WORDS)
    }

    /// Returns the number of receive queues of the port.
    #[must_use]
    pub fn queues(&self) -> u32 {
        u32::try_from(self.memory.words().len() / WORDS).unwrap_or(u32::MAX)
    }

    /// Records that all frames of a receive queue up to sequence number `number` have left the worker.
    #[inline]
    pub fn finish(&self, queue: u32, number: u32) {
        if let Some(word) = self.word(queue, DONE) {
            word.store(u64::from(number), Ordering::Release);
        }
    }

    /// Returns two sequence numbers of a receive queue. The first number belongs to the last frame
    /// that went to the worker. All frames up to the second number have left the worker.
    #[must_use]
    pub fn numbers(&self, queue: u32) -> (u32, u32) {
        let read = |place| self.word(queue, place).map_or(0, |word| word.load(Ordering::Acquire));
        let half = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0);
        (half(read(SENT)), half(read(DONE)))
    }

    /// Returns the number of frames of a receive queue that went to the worker only because the worker still held
    /// earlier frames of their flow. The number wraps at 2^32. A frame with too little headroom for a sequence number
    /// is not included, because the worker cannot report when the frame leaves.
    #[must_use]
    pub fn waiting(&self, queue: u32) -> u32 {
        let word = self.word(queue, SENT).map_or(0, |word| word.load(Ordering::Acquire));
        let shift = if cfg!(target_endian = "little") { 32 } else { 0 };
        u32::try_from(word >> shift & u64::from(u32::MAX)).unwrap_or(0)
    }

    /// Sets the current time in seconds. The XDP program writes this time to a MAC table entry when it receives a frame
    /// from that MAC address.
    pub fn set_now(&self, secs: u32) {
        self.words(NOW).for_each(|word| word.store(u64::from(secs), Ordering::Relaxed));
    }

    /// Sets whether the XDP program drops the frames of a receive queue that would go to the worker only to keep the
    /// order of their flow. Without these drops, flows on an overflowing queue could stay with the worker for ever. The
    /// caller sets this state for milliseconds only.
    pub fn hold(&self, queue: u32, on: bool) {
        if let Some(word) = self.word(queue, HOLD) {
            word.store(u64::from(on), Ordering::Release);
        }
    }

    fn is_bypassed(&self) -> bool {
        self.words(BYPASS).any(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Sets whether the XDP program sends all frames to the worker. The setting is needed while packets are captured or
    /// traced in the workers. A queue without a worker is not affected.
    pub fn set_bypass(&self, on: bool) {
        let value = if on { BYPASSED } else { 0 };
        self.words(BYPASS).for_each(|word| word.store(value, Ordering::Release));
    }
}
