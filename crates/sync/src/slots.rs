//! An array of atomic pointers (slots) to immutable objects (chunks), for trie nodes and next-hop tables.
//!
//! A write replaces the chunk of one slot. Readers see either the old or the new chunk, at the cost of one
//! load with acquire ordering. A replaced chunk is dropped after a grace period of the [`Domain`]. Invariant:
//! a slot holds null or a pointer from `Box::into_raw` that the slot owns.
#![allow(unsafe_code, reason = "turns slot pointers into references; protected by the reader's borrow")]

use std::marker::PhantomData;

use crate::primitives::{Arc, AtomicPtr, Ordering};
use crate::qsbr::{Domain, Reader};

/// A fixed number of slots. Each slot is empty or points to a chunk (an object of type `T`) that can be replaced.
#[derive(Debug)]
pub struct Slots<T> {
    slots: Box<[AtomicPtr<T>]>,
    domain: Arc<Domain>,
}

impl<T: Send + Sync + 'static> Slots<T> {
    /// Returns an array of `len` empty slots. Readers of the array register with `domain`.
    #[must_use]
    pub fn new(domain: &Arc<Domain>, len: usize) -> Self {
        let slots = (0..len).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
        Self { slots, domain: Arc::clone(domain) }
    }

    /// Returns the chunk in slot `index`. Returns `None` if the slot is empty or `index` is out of range. The
    /// reference is valid until the reader passes a quiescent point.
    ///
    /// # Panics
    /// Panics if `reader` is offline or belongs to another domain (programming errors).
    #[inline]
    pub fn read<'a>(&'a self, index: usize, reader: &'a Reader) -> Option<&'a T> {
        reader.check(&self.domain);
        let chunk = self.slots.get(index)?.load(Ordering::Acquire);
        // SAFETY: The pointer is null, or from `Box::into_raw` and freed only after a grace period that began
        // after the chunk was unlinked (or with the slots, which are borrowed). The reader is online in this
        // domain (checked above) and stays borrowed for 'a, so it passes no quiescent point while the
        // reference lives.
        unsafe { chunk.as_ref() }
    }

    /// Returns a view through which many slots can be read with one check of the reader. The view is valid until the
    /// reader passes a quiescent point.
    ///
    /// # Panics
    /// Panics under the conditions of [`Slots::read`].
    #[inline]
    #[must_use]
    pub fn seen_by<'a>(&'a self, reader: &'a Reader) -> Seen<'a, T> {
        reader.check(&self.domain);
        Seen { slots: &self.slots, reader: PhantomData }
    }

    /// Stores `chunk` in slot `index` and drops the previous chunk after a grace period. Only control threads
    /// may call this method, because it allocates and may take a lock.
    ///
    /// # Panics
    /// Panics if `index` is out of range.
    pub fn replace(&self, index: usize, chunk: Option<Box<T>>) {
        let new = chunk.map_or(std::ptr::null_mut(), Box::into_raw);
        let old = self.slots[index].swap(new, Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: The pointer is from `Box::into_raw`, and the swap made this thread its only owner.
            // Readers may still hold it, hence `retire`.
            self.domain.retire(unsafe { Box::from_raw(old) });
        }
    }

    /// Returns the number of slots in the array.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether the array has no slots.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

/// Read access to the slots until the reader's next quiescent point. See [`Slots::seen_by`].
#[derive(Debug)]
pub struct Seen<'a, T> {
    slots: &'a [AtomicPtr<T>],
    reader: PhantomData<&'a Reader>,
}

impl<'a, T> Seen<'a, T> {
    /// Returns the chunk in slot `index`. Returns `None` if the slot is empty or `index` is out of range.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&'a T> {
        let chunk = self.slots.get(index)?.load(Ordering::Acquire);
        // SAFETY: As in `Slots::read`. The reader was checked when `Seen` was made and stays borrowed for 'a.
        unsafe { chunk.as_ref() }
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        for slot in &self.slots {
            let chunk = slot.load(Ordering::Acquire);
            if !chunk.is_null() {
                // SAFETY: The pointer is from `Box::into_raw` and owned by the slot. Every reference from
                // `read` borrows the slots, so no reference is left.
                drop(unsafe { Box::from_raw(chunk) });
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_replaced_alone_and_freed_after_grace() {
        let domain = Domain::new();
        let mut reader = domain.register().unwrap();
        let tracked = Arc::new(());
        let slots = Slots::new(&domain, 4);
        slots.replace(1, Some(Box::new((1, Arc::clone(&tracked)))));
        slots.replace(2, Some(Box::new((2, Arc::clone(&tracked)))));
        assert!(slots.read(0, &reader).is_none() && slots.read(9, &reader).is_none());
        assert!(slots.seen_by(&reader).get(1).is_some() && slots.seen_by(&reader).get(9).is_none());
        let held = slots.read(1, &reader).unwrap();
        slots.replace(1, None);
        domain.reclaim();
        assert_eq!((held.0, Arc::strong_count(&tracked)), (1, 3));
        assert!(slots.read(1, &reader).is_none());
        reader.quiescent();
        domain.reclaim();
        assert_eq!(Arc::strong_count(&tracked), 2);
        drop(slots);
        assert_eq!(Arc::strong_count(&tracked), 1);
    }
}
