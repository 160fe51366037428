//! Bounded queue of small values in a ring, with any number of producers and consumers. Workers exchange free packet
//! frames through such a ring.
//!
//! Each slot of the ring has a sequence number that states which operation may use the slot next (D. Vyukov's bounded
//! queue). A slot with the sequence number `position` is free for the push at this position. A slot with the sequence
//! number `position + 1` holds the value for the pop at `position`. A thread claims several consecutive slots with one
//! compare-and-swap. The ring never blocks. If a thread is preempted between its claim and its completion, other
//! threads see a shorter ring and do not wait.
//!
//! Invariant: after a thread has claimed a position, only this thread accesses the value, until it stores the
//! new sequence number.
#![allow(unsafe_code, reason = "hands places of one buffer from one thread to another")]

use std::mem::MaybeUninit;

use crate::primitives::{AtomicU64, CachePadded, Ordering, UnsafeCell, place, size};

struct Place<T> {
    turn: AtomicU64,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// A ring of `Copy` values (for example frame addresses or indexes), shared by any number of threads.
pub struct Ring<T> {
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
    mask: u64,
    places: Box<[Place<T>]>,
}

// SAFETY: Values move between threads (`T: Send`). One thread at a time accesses a slot (module invariant).
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: As for `Send`.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T: Copy + Send> Ring<T> {
    /// Returns a ring for `capacity` values, rounded up to a power of two (at least 2).
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        // With one slot, "free for the next push" and "filled for this pop" would have equal numbers.
        let capacity = capacity.max(2).next_power_of_two() as u64;
        let place = |position| Place {
            turn: AtomicU64::new(position),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        };
        Self {
            head: CachePadded(AtomicU64::new(0)),
            tail: CachePadded(AtomicU64::new(0)),
            mask: capacity - 1,
            places: (0..capacity).map(place).collect(),
        }
    }

    /// Pushes one value to the ring.
    ///
    /// # Errors
    /// Returns the value if the ring is full.
    #[inline]
    pub fn push(&self, value: T) -> Result<(), T> {
        if self.push_slice(&[value]) == 1 { Ok(()) } else { Err(value) }
    }

    /// Pushes the first values of `values`, up to the free space of the ring. Returns the number of values
    /// pushed.
    #[inline]
    pub fn push_slice(&self, values: &[T]) -> usize {
        let (start, count) = self.claim(&self.tail, values.len(), 0);
        for (position, value) in (start..).zip(&values[..count]) {
            let place = self.place(position);
            // SAFETY: This thread claimed the position, and its turn was "free".
            place.value.with_mut(|cell| unsafe { (*cell).write(*value) });
            place.turn.store(position + 1, Ordering::Release);
        }
        count
    }

    /// Pops the oldest value from the ring. Returns `None` if the ring is empty.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        let (start, count) = self.claim(&self.head, 1, 1);
        (count == 1).then(|| self.take(start))
    }

    /// Pops values into `out`, starting at index 0. Returns the number of values popped.
    #[inline]
    pub fn pop_slice(&self, out: &mut [T]) -> usize {
        let (start, count) = self.claim(&self.head, out.len(), 1);
        for (position, value) in (start..).zip(&mut out[..count]) {
            *value = self.take(position);
        }
        count
    }

    /// Pops up to `max` values and calls `take` with each value. Returns the number of values popped.
    #[inline]
    pub fn pop_burst(&self, max: usize, mut take: impl FnMut(T)) -> usize {
        // Each value is popped completely before the call, because `take` may panic and a claimed slot must
        // be completed.
        let mut popped = 0;
        while popped < max {
            let Some(value) = self.pop() else { break };
            popped += 1;
            take(value);
        }
        popped
    }

    /// Returns the number of values in the ring. The number is approximate while other threads push and pop.
    #[must_use]
    pub fn len(&self) -> usize {
        let head = self.head.load(Ordering::Relaxed);
        let tail = self.tail.load(Ordering::Relaxed);
        size(tail.saturating_sub(head)).min(self.capacity())
    }

    /// Returns whether [`Ring::len`] is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the maximum number of values in the ring.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.places.len()
    }

    #[inline(always)]
    fn place(&self, position: u64) -> &Place<T> {
        &self.places[place(position, self.mask)]
    }

    /// Returns the value at `position` and marks its slot as free. The caller must have claimed the position
    /// for popping.
    #[inline(always)]
    fn take(&self, position: u64) -> T {
        let place = self.place(position);
        // SAFETY: The claim saw the turn of a filled slot (acquire), so the value is initialised and belongs
        // to this thread.
        let value = place.value.with_mut(|cell| unsafe { (*cell).assume_init_read() });
        place.turn.store(position + self.capacity() as u64, Ordering::Release);
        value
    }

    /// Claims up to `wanted` consecutive positions from the position in `cursor` on. A position can be claimed if the
    /// sequence number of its slot is `position + offset`. `offset` is 0 for pushing and 1 for popping. Returns the
    /// first claimed position and the number of claimed positions.
    #[inline]
    fn claim(&self, cursor: &AtomicU64, wanted: usize, offset: u64) -> (u64, usize) {
        let wanted = wanted.min(self.capacity());
        let mut start = cursor.load(Ordering::Relaxed);
        loop {
            let ready =
                |position: &u64| self.place(*position).turn.load(Ordering::Acquire) == *position + offset;
            let count = (start..).take(wanted).take_while(ready).count();
            if count == 0 {
                let now = cursor.load(Ordering::Relaxed);
                if now == start {
                    return (start, 0);
                }
                // Other threads advanced the cursor during the scan, so the ring may be neither full nor
                // empty.
                start = now;
                continue;
            }
            let end = start + count as u64;
            // A slot stays ready until its position is claimed, and positions are never reused, so the scan
            // remains valid.
            match cursor.compare_exchange_weak(start, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return (start, count),
                Err(now) => start = now,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn batches_wrap_and_stop_at_full_and_empty() {
        let ring = Ring::new(4);
        assert_eq!(ring.push_slice(&[1u32, 2, 3]), 3);
        assert_eq!(ring.pop(), Some(1));
        assert_eq!(ring.push_slice(&[4, 5, 6]), 2);
        assert_eq!((ring.push(7), ring.len()), (Err(7), 4));
        let mut out = [0; 8];
        assert_eq!(ring.pop_slice(&mut out), 4);
        assert_eq!(out[..4], [2, 3, 4, 5]);
        assert_eq!((ring.pop(), ring.pop_slice(&mut out), ring.is_empty()), (None, 0, true));
        assert_eq!(ring.push_slice(&[]), 0);
    }
}
