//! Bounded ring with one producer and one consumer, for bursts between workers and for upcalls to the slow
//! path.
//!
//! A position is the number of items that have been pushed or popped since the creation of the ring (u64, which does
//! not wrap in practice). The slot of an item in the ring is its position modulo the capacity, which is a power of two.
//! The producer caches the consumer's position, and the consumer caches the producer's position. They read the current
//! position only when the ring appears to be full or empty. In steady flow, a cache line therefore moves between cores
//! once per burst.
//!
//! Invariants:
//! - `head <= tail <= head + capacity`.
//! - Slots in `head..tail` are initialised and belong to the consumer. The other slots belong to the
//!   producer.
//! - Only the producer writes `tail` and only the consumer writes `head`, each with release ordering after
//!   the items.
#![allow(unsafe_code, reason = "hands places of one buffer from one thread to another")]

use std::mem::MaybeUninit;

use crate::primitives::{AtomicU64, CachePadded, ModelledArc as Arc, Ordering, UnsafeCell, place, size};

struct Ring<T> {
    /// Number of items popped since the creation of the ring.
    head: CachePadded<AtomicU64>,
    /// Number of items pushed since the creation of the ring.
    tail: CachePadded<AtomicU64>,
    mask: u64,
    places: Box<[Cell<T>]>,
}

// SAFETY: Each slot belongs to one end at a time (module invariants). Items move between threads, hence `T:
// Send`.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: As for `Send`. Two threads never share an item.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Ring<T> {
    /// Returns the `count` slots from position `start` on as two slices, because the slots may wrap around the end of
    /// the array. With slices, a burst can be copied without a bounds check for each item.
    #[inline(always)]
    fn runs(&self, start: u64, count: usize) -> [&[Cell<T>]; 2] {
        let (before, after) = self.places.split_at(place(start, self.mask));
        let in_after = count.min(after.len());
        [&after[..in_after], &before[..count - in_after]]
    }
}

/// One slot of the ring, which may hold an item.
struct Cell<T>(UnsafeCell<MaybeUninit<T>>);

impl<T> Cell<T> {
    /// Writes an item to the slot.
    ///
    /// # Safety
    /// The slot must belong to the producer and hold no item.
    #[inline(always)]
    unsafe fn write(&self, item: T) {
        // SAFETY: Only the producer accesses this slot.
        self.0.with_mut(|cell| unsafe { (*cell).write(item) });
    }

    /// Reads the item from the slot.
    ///
    /// # Safety
    /// The slot must belong to the consumer and hold an item. The caller must not read the item again.
    #[inline(always)]
    unsafe fn read(&self) -> T {
        // SAFETY: Only the consumer accesses this slot, and the slot is initialised.
        self.0.with_mut(|cell| unsafe { (*cell).assume_init_read() })
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let (head, tail) = (self.head.load(Ordering::Acquire), self.tail.load(Ordering::Acquire));
        for cell in self.runs(head, size(tail - head)).into_iter().flatten() {
            // SAFETY: Both ends are gone, so the slots between the positions are initialised and belong to
            // this thread.
            drop(unsafe { cell.read() });
        }
    }
}

/// Creates a ring for `capacity` items, rounded up to a power of two (at least 1). Returns its producer and
/// its consumer.
#[must_use]
pub fn channel<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let capacity = capacity.max(1).next_power_of_two();
    let ring = Arc::new(Ring {
        head: CachePadded(AtomicU64::new(0)),
        tail: CachePadded(AtomicU64::new(0)),
        mask: capacity as u64 - 1,
        places: (0..capacity).map(|_| Cell(UnsafeCell::new(MaybeUninit::uninit()))).collect(),
    });
    let producer = Producer { ring: Arc::clone(&ring), tail: 0, head_seen: 0 };
    (producer, Consumer { ring, head: 0, tail_seen: 0 })
}

/// The producer of a ring, which pushes items. A producer belongs to one thread at a time.
pub struct Producer<T> {
    ring: Arc<Ring<T>>,
    tail: u64,
    head_seen: u64,
}

impl<T: Send> Producer<T> {
    /// Pushes one item.
    ///
    /// # Errors
    /// Returns the item if the ring is full.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.room(1) == 0 {
            return Err(item);
        }
        let cell = &self.ring.places[place(self.tail, self.ring.mask)];
        // SAFETY: The slot at `tail` is free, and only the producer writes it.
        unsafe { cell.write(item) };
        self.publish(1);
        Ok(())
    }

    /// Pushes items from `items` until the ring is full or the iterator ends. All pushed items become visible to the
    /// consumer together. Items that do not fit stay in the iterator. Returns the number of items pushed.
    #[inline]
    pub fn push_from(&mut self, items: &mut impl Iterator<Item = T>) -> usize {
        let room = self.room(items.size_hint().1.unwrap_or(usize::MAX));
        let mut pushed = 0;
        'burst: for run in self.ring.runs(self.tail, room) {
            for cell in run {
                let Some(item) = items.next() else { break 'burst };
                // SAFETY: The slot is within the free space. If `items` panics, the written items are never
                // published and leak.
                unsafe { cell.write(item) };
                pushed += 1;
            }
        }
        self.publish(pushed);
        pushed
    }

    /// Pushes the first items of `items`, up to the free space of the ring. All pushed items become visible
    /// to the consumer together. Returns the number of items pushed.
    #[inline]
    pub fn push_slice(&mut self, items: &[T]) -> usize
    where
        T: Copy,
    {
        let count = self.room(items.len());
        let runs = self.ring.runs(self.tail, count);
        let (items_1, items_2) = items[..count].split_at(runs[0].len());
        for (run, items) in runs.into_iter().zip([items_1, items_2]) {
            for (cell, item) in run.iter().zip(items) {
                // SAFETY: The slot is within the free space.
                unsafe { cell.write(*item) };
            }
        }
        self.publish(count);
        count
    }

    /// Returns the number of items pushed since the creation of the ring.
    #[must_use]
    #[inline]
    pub fn position(&self) -> u64 {
        self.tail
    }

    /// Returns the number of items popped since the creation of the ring, as last published by the consumer. The number
    /// never decreases. The consumer has finished popping every item whose position is less than this number.
    #[must_use]
    #[inline]
    pub fn consumed(&self) -> u64 {
        self.ring.head.load(Ordering::Acquire)
    }

    /// Returns the number of free slots in the ring. The consumer may free more slots at any time.
    #[must_use]
    #[inline]
    pub fn free(&self) -> usize {
        self.capacity() - self.len()
    }

    /// Returns the number of items in the ring. The consumer may pop items at any time.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        size(self.tail - self.consumed())
    }

    /// Returns whether the ring contains no items, because the consumer has popped all of them.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the maximum number of items in the ring.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.places.len()
    }

    /// Returns a [`Watch`], with which another thread can read the ring's positions.
    #[must_use]
    pub fn watch(&self) -> Watch<T> {
        Watch { ring: Arc::clone(&self.ring) }
    }

    /// Returns the number of free slots, or `wanted` if more are free. Reads the consumer's cache line only if the
    /// cached position does not show enough free slots.
    #[inline(always)]
    fn room(&mut self, wanted: usize) -> usize {
        let capacity = self.ring.places.len();
        let wanted = wanted.min(capacity);
        let mut room = capacity - size(self.tail - self.head_seen);
        if room < wanted {
            self.head_seen = self.ring.head.load(Ordering::Acquire);
            room = capacity - size(self.tail - self.head_seen);
        }
        room.min(wanted)
    }

    #[inline(always)]
    fn publish(&mut self, count: usize) {
        if count != 0 {
            self.tail += count as u64;
            self.ring.tail.store(self.tail, Ordering::Release);
        }
    }
}

/// The consumer of a ring, which pops items. A consumer belongs to one thread at a time. Dropping the
/// consumer drops the items in the ring.
pub struct Consumer<T> {
    ring: Arc<Ring<T>>,
    head: u64,
    tail_seen: u64,
}

impl<T: Send> Consumer<T> {
    /// Pops the oldest item. Returns `None` if the ring is empty.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.available(1) == 0 {
            return None;
        }
        let cell = &self.ring.places[place(self.head, self.ring.mask)];
        // SAFETY: An item is at `head`. The release store below gives the slot back.
        let item = unsafe { cell.read() };
        self.advance(1);
        Some(item)
    }

    /// Pops up to `max` items, oldest first, and calls `take` with each item. All popped slots become free
    /// together, after the last item. Returns the number of items popped.
    #[inline]
    pub fn pop_burst(&mut self, max: usize, mut take: impl FnMut(T)) -> usize {
        let count = self.available(max);
        // The guard gives the slots back even if `take` panics, because the ring must not drop an item again
        // that was read.
        let mut popping = Popping { ring: &self.ring, head: &mut self.head, popped: 0 };
        for cell in self.ring.runs(*popping.head, count).into_iter().flatten() {
            popping.popped += 1;
            // SAFETY: The item belongs to the consumer and is given up by the line above.
            take(unsafe { cell.read() });
        }
        count
    }

    /// Pops items into `out`, starting at index 0, and thereby initialises these elements. Returns the number
    /// of items popped. For items that are not `Copy`, this method is the cheapest, because it costs only one
    /// load and one store for each item.
    #[inline]
    pub fn pop_uninit(&mut self, out: &mut [MaybeUninit<T>]) -> usize {
        let count = self.available(out.len());
        let runs = self.ring.runs(self.head, count);
        let (out_1, out_2) = out[..count].split_at_mut(runs[0].len());
        for (run, out) in runs.into_iter().zip([out_1, out_2]) {
            for (cell, item) in run.iter().zip(out) {
                // SAFETY: The slot belongs to the consumer. Nothing panics before the release store below
                // gives all slots back.
                item.write(unsafe { cell.read() });
            }
        }
        self.advance(count);
        count
    }

    /// Pops items into `out`, starting at index 0. Returns the number of items popped.
    #[inline]
    pub fn pop_slice(&mut self, out: &mut [T]) -> usize
    where
        T: Copy,
    {
        let count = self.available(out.len());
        let runs = self.ring.runs(self.head, count);
        let (out_1, out_2) = out[..count].split_at_mut(runs[0].len());
        for (run, out) in runs.into_iter().zip([out_1, out_2]) {
            for (cell, item) in run.iter().zip(out) {
                // SAFETY: The slot belongs to the consumer. The release store below gives all slots back.
                *item = unsafe { cell.read() };
            }
        }
        self.advance(count);
        count
    }

    /// Returns the number of items popped since the creation of the ring.
    #[must_use]
    #[inline]
    pub fn position(&self) -> u64 {
        self.head
    }

    /// Returns the number of items in the ring. The producer may push items at any time.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        size(self.ring.tail.load(Ordering::Acquire) - self.head)
    }

    /// Returns whether the ring contains no items.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the maximum number of items in the ring.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.places.len()
    }

    /// Returns the number of items in the ring, or `wanted` if there are more. Reads the producer's cache line only if
    /// the cached position does not show enough items.
    #[inline(always)]
    fn available(&mut self, wanted: usize) -> usize {
        if size(self.tail_seen - self.head) < wanted {
            self.tail_seen = self.ring.tail.load(Ordering::Acquire);
        }
        size(self.tail_seen - self.head).min(wanted)
    }

    #[inline(always)]
    fn advance(&mut self, count: usize) {
        Popping { ring: &self.ring, head: &mut self.head, popped: count };
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        // The guard gives the slots back even if the drop of an item panics.
        let mut popping = Popping { ring: &self.ring, head: &mut self.head, popped: 0 };
        let tail = self.ring.tail.load(Ordering::Acquire);
        for cell in self.ring.runs(*popping.head, size(tail - *popping.head)).into_iter().flatten() {
            popping.popped += 1;
            // SAFETY: The item belongs to the consumer and is given up by the line above.
            drop(unsafe { cell.read() });
        }
    }
}

/// Guard that frees the popped slots when it is dropped, at the end of a burst or after a panic of the callback.
struct Popping<'a, T> {
    ring: &'a Ring<T>,
    head: &'a mut u64,
    popped: usize,
}

impl<T> Drop for Popping<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.popped != 0 {
            *self.head += self.popped as u64;
            self.ring.head.store(*self.head, Ordering::Release);
        }
    }
}

/// Read access to the positions of a ring, for a thread other than the producer and the consumer.
pub struct Watch<T> {
    ring: Arc<Ring<T>>,
}

impl<T> Watch<T> {
    /// Returns the number of items pushed since the creation of the ring. The number never decreases.
    #[must_use]
    pub fn pushed(&self) -> u64 {
        self.ring.tail.load(Ordering::Acquire)
    }

    /// Returns the number of items popped since the creation of the ring. The number never decreases.
    #[must_use]
    pub fn consumed(&self) -> u64 {
        self.ring.head.load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn positions_and_room_follow_the_items() {
        let (mut producer, mut consumer) = channel(3);
        assert_eq!((producer.capacity(), producer.free()), (4, 4));
        assert_eq!(producer.push_slice(&[1, 2, 3, 4, 5]), 4);
        assert_eq!(producer.push(6), Err(6));
        assert_eq!((producer.position(), producer.consumed(), consumer.len()), (4, 0, 4));
        assert_eq!(consumer.pop(), Some(1));
        assert_eq!((producer.consumed(), producer.free(), consumer.position()), (1, 1, 1));
        let mut more = [6, 7].into_iter();
        assert_eq!((producer.push_from(&mut more), more.next()), (1, Some(7)));
        let mut out = [0; 9];
        assert_eq!(consumer.pop_slice(&mut out), 4);
        assert_eq!(out[..4], [2, 3, 4, 6]);
        let watch = producer.watch();
        assert_eq!((watch.pushed(), watch.consumed(), consumer.is_empty()), (5, 5, true));
    }

    #[test]
    fn every_item_is_dropped_once() {
        let item = std::sync::Arc::new(());
        let count = |item: &std::sync::Arc<()>| std::sync::Arc::strong_count(item) - 1;
        let (mut producer, mut consumer) = channel(8);
        let mut burst = std::iter::repeat_n(std::sync::Arc::clone(&item), 8);
        assert_eq!(producer.push_from(&mut burst), 8);
        drop(burst);
        let mut taken = 0;
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            consumer.pop_burst(4, |_| {
                taken += 1;
                assert!(taken < 2);
            })
        }));
        assert!(unwound.is_err());
        assert_eq!((count(&item), consumer.len()), (6, 6));
        drop(consumer);
        assert_eq!(count(&item), 0);
        assert!(producer.push(std::sync::Arc::clone(&item)).is_ok());
        drop(producer);
        assert_eq!(count(&item), 0);
    }

    #[test]
    fn uninitialised_places_take_items_over() {
        let (mut producer, mut consumer) = channel(8);
        let (tracked, mut next, mut expected) = (Arc::new(()), 0, 0);
        for burst in [5, 8, 3, 0, 7, 8, 1] {
            while producer.push((next, Arc::clone(&tracked))).is_ok() {
                next += 1;
            }
            let mut out: [MaybeUninit<(u32, Arc<()>)>; 8] = std::array::from_fn(|_| MaybeUninit::uninit());
            let popped = consumer.pop_uninit(&mut out[..burst]);
            assert_eq!(popped, burst);
            for place in &mut out[..popped] {
                // SAFETY: The pop initialised the item, and it is read only here.
                let (number, _) = unsafe { place.assume_init_read() };
                assert_eq!(number, expected);
                expected += 1;
            }
            assert_eq!(Arc::strong_count(&tracked), 1 + usize::try_from(next - expected).unwrap());
        }
        drop((producer, consumer));
        assert_eq!(Arc::strong_count(&tracked), 1);
    }

    #[test]
    fn a_panicking_source_publishes_nothing() {
        let (mut producer, consumer) = channel(8);
        let mut source = (0..4).map(|n| if n < 2 { n } else { panic!("source") });
        assert!(catch_unwind(AssertUnwindSafe(|| producer.push_from(&mut source))).is_err());
        assert_eq!((consumer.len(), producer.push(9)), (0, Ok(())));
    }
}
