//! Bounded multi-producer multi-consumer ring of small values: the depot through which workers balance free frames.
//!
//! Each place carries a sequence number that says whose turn it is (after D. Vyukov's bounded queue): `position` when
//! free for the push at that position, `position + 1` when filled for the pop at it. A batch claims a run of places
//! with one compare-and-swap. Never blocks: a thread that was preempted between claim and completion makes the others
//! see the ring as shorter, not wait.
//!
//! Invariant: only the thread that claimed a position touches its value, between its claim and its sequence store.
#![allow(unsafe_code, reason = "hands places of one buffer from one thread to another")]

use std::mem::MaybeUninit;

use crate::primitives::{AtomicU64, CachePadded, Ordering, UnsafeCell, place, size};

struct Place<T> {
    turn: AtomicU64,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// A ring of `Copy` values (frame addresses, indices) shared by any number of threads.
pub struct Ring<T> {
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
    mask: u64,
    places: Box<[Place<T>]>,
}

// SAFETY: values move between threads (`T: Send`); a place is touched by one thread at a time (module invariant).
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T: Copy + Send> Ring<T> {
    /// A ring for `capacity` values, rounded up to a power of two (at least 2).
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        // With one place, "free for the next push" and "filled for this pop" would be the same number.
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

    /// Pushes one value.
    ///
    /// # Errors
    /// The value itself when the ring is full.
    #[inline]
    pub fn push(&self, value: T) -> Result<(), T> {
        if self.push_slice(&[value]) == 1 { Ok(()) } else { Err(value) }
    }

    /// Pushes the first of `values` as far as there is room. Returns how many.
    #[inline]
    pub fn push_slice(&self, values: &[T]) -> usize {
        let (start, count) = self.claim(&self.tail, values.len(), 0);
        for (position, value) in (start..).zip(&values[..count]) {
            let place = self.place(position);
            // SAFETY: we claimed the position, and its turn said free.
            place.value.with_mut(|cell| unsafe { (*cell).write(*value) });
            place.turn.store(position + 1, Ordering::Release);
        }
        count
    }

    /// Pops one value.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        let (start, count) = self.claim(&self.head, 1, 1);
        (count == 1).then(|| self.take(start))
    }

    /// Pops into the front of `out`. Returns how many.
    #[inline]
    pub fn pop_slice(&self, out: &mut [T]) -> usize {
        let (start, count) = self.claim(&self.head, out.len(), 1);
        for (position, value) in (start..).zip(&mut out[..count]) {
            *value = self.take(position);
        }
        count
    }

    /// Pops up to `max` values into `take`. Returns how many.
    #[inline]
    pub fn pop_burst(&self, max: usize, mut take: impl FnMut(T)) -> usize {
        // A run at a time, copied out first: `take` may panic, and a claimed place must be completed.
        let mut popped = 0;
        while popped < max {
            let Some(value) = self.pop() else { break };
            popped += 1;
            take(value);
        }
        popped
    }

    /// Values in the ring, roughly when others push and pop meanwhile.
    #[must_use]
    pub fn len(&self) -> usize {
        let head = self.head.load(Ordering::Relaxed);
        let tail = self.tail.load(Ordering::Relaxed);
        size(tail.saturating_sub(head)).min(self.capacity())
    }

    /// Whether nothing is in the ring, as [`Ring::len`] sees it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Most values that the ring holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.places.len()
    }

    #[inline(always)]
    fn place(&self, position: u64) -> &Place<T> {
        &self.places[place(position, self.mask)]
    }

    /// The caller claimed `position` for popping.
    #[inline(always)]
    fn take(&self, position: u64) -> T {
        let place = self.place(position);
        // SAFETY: the claim saw the turn of a filled place (acquire), so the value is initialised and ours.
        let value = place.value.with_mut(|cell| unsafe { (*cell).assume_init_read() });
        place.turn.store(position + self.capacity() as u64, Ordering::Release);
        value
    }

    /// Claims up to `wanted` positions from `cursor` whose turn is `position + offset`: 0 for pushing, 1 for popping.
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
                // Others moved on while we looked: the ring need not be full or empty.
                start = now;
                continue;
            }
            let end = start + count as u64;
            // A place stays ready until its position is claimed, and positions are never reused: what we saw holds.
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
