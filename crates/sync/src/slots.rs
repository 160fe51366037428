//! An array of atomic slots, each pointing to an immutable chunk: the nodes of tries, next-hop tables.
//!
//! One write replaces one slot; readers see the old chunk or the new one, whole. Costs a reader one acquire load.
//! Replaced chunks are dropped after a grace period of the [`Domain`]. Invariant: a slot holds null or a pointer from
//! `Box::into_raw`, owned by the slot.
#![allow(unsafe_code, reason = "turns slot pointers into references; protected by the reader's borrow")]

use std::marker::PhantomData;

use crate::primitives::{Arc, AtomicPtr, Ordering};
use crate::qsbr::{Domain, Reader};

/// A fixed number of replaceable chunks of type `T`.
#[derive(Debug)]
pub struct Slots<T> {
    slots: Box<[AtomicPtr<T>]>,
    domain: Arc<Domain>,
}

impl<T: Send + Sync + 'static> Slots<T> {
    /// `len` empty slots; readers come from `domain`.
    #[must_use]
    pub fn new(domain: &Arc<Domain>, len: usize) -> Self {
        let slots = (0..len).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
        Self { slots, domain: Arc::clone(domain) }
    }

    /// The chunk in slot `index`: `None` if empty or out of range. Valid until the reader passes a quiescent point.
    ///
    /// # Panics
    /// When `reader` is offline or belongs to another domain (errors of the program).
    #[inline]
    pub fn read<'a>(&'a self, index: usize, reader: &'a Reader) -> Option<&'a T> {
        reader.check(&self.domain);
        let chunk = self.slots.get(index)?.load(Ordering::Acquire);
        // SAFETY: null, or from `Box::into_raw` and freed only after a grace period that began after it was unlinked
        // (or with the slots, which are borrowed). The reader is online in that very domain (checked above) and stays
        // borrowed for 'a, so it passes no quiescent point while the reference lives.
        unsafe { chunk.as_ref() }
    }

    /// The slots as a reader sees them until its next quiescent point: for many looks with one check.
    ///
    /// # Panics
    /// As [`Slots::read`].
    #[inline]
    #[must_use]
    pub fn seen_by<'a>(&'a self, reader: &'a Reader) -> Seen<'a, T> {
        reader.check(&self.domain);
        Seen { slots: &self.slots, reader: PhantomData }
    }

    /// Puts `chunk` into slot `index` and retires what was there. Control threads only: allocates, may lock.
    ///
    /// # Panics
    /// When `index` is out of range.
    pub fn replace(&self, index: usize, chunk: Option<Box<T>>) {
        let new = chunk.map_or(std::ptr::null_mut(), Box::into_raw);
        let old = self.slots[index].swap(new, Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: from `Box::into_raw`, and the swap made us its only owner (readers aside, hence `retire`).
            self.domain.retire(unsafe { Box::from_raw(old) });
        }
    }

    /// Number of slots.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are no slots at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

/// Slots as a reader sees them. See [`Slots::seen_by`].
#[derive(Debug)]
pub struct Seen<'a, T> {
    slots: &'a [AtomicPtr<T>],
    reader: PhantomData<&'a Reader>,
}

impl<'a, T> Seen<'a, T> {
    /// The chunk in slot `index`: `None` if empty or out of range.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&'a T> {
        let chunk = self.slots.get(index)?.load(Ordering::Acquire);
        // SAFETY: as in `Slots::read`: the reader was checked when this was made, and stays borrowed for 'a.
        unsafe { chunk.as_ref() }
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        for slot in &self.slots {
            let chunk = slot.load(Ordering::Acquire);
            if !chunk.is_null() {
                // SAFETY: from `Box::into_raw`, owned by the slot; every reference from `read` borrows the slots, so
                // none is left.
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
