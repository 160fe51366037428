//! State about the order of frames that hook and workers share, per queue: `struct bridge_order`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::{self, MapKind, MapSpec, Mapped};
use crate::{Attached, Error};

pub(crate) const ORDERS: &str = "bridge_orders";
pub(crate) const BUCKETS: &str = "bridge_buckets";
/// Number of bucket lines per queue: `BRIDGE_BUCKET_LINES`.
pub(super) const BUCKET_LINES: u32 = 256;
/// Number of 64-bit words per queue.
const WORDS: usize = 16;
/// Index of each word in the state of a queue.
const SENT: usize = 0;
const DONE: usize = 8;
const NOW: usize = 9;
const HOLD: usize = 10;
const BYPASS: usize = 11;
/// `BRIDGE_MARK`: constant that validates a mark.
const MARK: u32 = 0x5472_6976;

/// Number of a frame in its queue, which the stage writes in front of a frame for the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(pub u32);

impl Mark {
    /// Number of bytes in front of the frame.
    pub const LEN: usize = 8;

    /// Decodes the number. `None` where the bytes are not a mark.
    #[must_use]
    pub fn read(bytes: [u8; Mark::LEN]) -> Option<Mark> {
        let word = u64::from_ne_bytes(bytes);
        let number = u32::try_from(word & u64::from(u32::MAX)).ok()?;
        (word >> 32 == u64::from(number ^ MARK)).then_some(Mark(number))
    }
}

/// Frame order of a port's queues.
#[derive(Debug)]
pub struct Orders {
    pub(super) map: OwnedFd,
    pub(super) buckets: OwnedFd,
    memory: Mapped,
}

impl Orders {
    pub(super) fn new(queues: u32) -> Result<Orders, Error> {
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
            // Frames that went up before the first numbered frame must leave first.
            orders.finish(queue, u32::MAX);
        }
        Ok(orders)
    }

    /// Restores the order of a program that is in the kernel already.
    pub(crate) fn over(map: OwnedFd, buckets: OwnedFd) -> Result<Orders, Error> {
        let memory = Mapped::new(map.as_fd()).map_err(|source| Error::Map {
            map: ORDERS,
            operation: "map",
            source,
        })?;
        Ok(Orders { map, buckets, memory })
    }

    pub(crate) fn maps(&self) -> [(&'static str, BorrowedFd<'_>); 2] {
        [(ORDERS, self.map.as_fd()), (BUCKETS, self.buckets.as_fd())]
    }

    /// Creates an order with the same number of queues, in which no frame is pending.
    pub(crate) fn scratch(&self) -> Result<Orders, Error> {
        let orders = Orders::new(self.queues())?;
        orders.set_bypass(self.is_bypassed());
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

    /// Returns the number of queues.
    #[must_use]
    pub fn queues(&self) -> u32 {
        u32::try_from(self.memory.words().len() / WORDS).unwrap_or(u32::MAX)
    }

    /// Reports that all frames of a queue up to this number have left the worker.
    #[inline]
    pub fn finish(&self, queue: u32, number: u32) {
        if let Some(word) = self.word(queue, DONE) {
            word.store(u64::from(number), Ordering::Release);
        }
    }

    /// Returns the numbers of the last frame that went to the worker and of the last frame that left it.
    #[must_use]
    pub fn numbers(&self, queue: u32) -> (u32, u32) {
        let read = |place| self.word(queue, place).map_or(0, |word| word.load(Ordering::Acquire));
        let half = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0);
        (half(read(SENT)), half(read(DONE)))
    }

    /// Returns the number of frames that went to the worker only because earlier frames of their flow were
    /// pending. The number wraps. Frames without space for their number are not included, because their
    /// departure is not reported.
    #[must_use]
    pub fn waiting(&self, queue: u32) -> u32 {
        let word = self.word(queue, SENT).map_or(0, |word| word.load(Ordering::Acquire));
        let shift = if cfg!(target_endian = "little") { 32 } else { 0 };
        u32::try_from(word >> shift & u64::from(u32::MAX)).unwrap_or(0)
    }

    /// Sets the time in seconds, which the hook writes to stations that it sees.
    pub fn set_now(&self, secs: u32) {
        self.words(NOW).for_each(|word| word.store(u64::from(secs), Ordering::Relaxed));
    }

    /// Sets whether frames of a queue that wait for their order are dropped. When the queue overflows, flows
    /// could otherwise never move to the hook. Intended for milliseconds.
    pub fn hold(&self, queue: u32, on: bool) {
        if let Some(word) = self.word(queue, HOLD) {
            word.store(u64::from(on), Ordering::Release);
        }
    }

    fn is_bypassed(&self) -> bool {
        self.words(BYPASS).any(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Sets whether all frames go to the worker, for observers that see only frames of the workers.
    pub fn set_bypass(&self, on: bool) {
        self.words(BYPASS).for_each(|word| word.store(u64::from(on), Ordering::Release));
    }
}

/// Returns the order state of a port's program, or a new one for the port's queues.
pub(crate) fn orders_of(port: &Attached) -> Result<Arc<Orders>, Error> {
    let queues = port.constants().queues;
    let known = port.bridge_maps().map(|maps| maps.orders()).or(port.flow_maps().map(|maps| maps.orders()));
    let known = known.or(port.route_orders());
    match known.filter(|orders| orders.queues() == queues) {
        Some(orders) => Ok(Arc::clone(orders)),
        None => Ok(Arc::new(Orders::new(queues)?)),
    }
}
