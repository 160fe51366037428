//! Left-right structure: two copies of a table, for tables that change often and are too large to copy at each change.
//!
//! Readers use the active copy. The writer applies its operations to the inactive copy, and then makes this
//! copy the active one. At the next publication, when no reader can use the other copy any more, the writer
//! applies the operations to that copy too. A read costs one load with acquire ordering and never waits. Only
//! the writer may wait, for a grace period of the [`Domain`].
//!
//! Invariants: the writer changes a copy only when the copy is inactive and a grace period has passed since
//! the copy was active. After each publication, the operations in `applied_once` are exactly those that the
//! inactive copy lacks.
#![allow(
    unsafe_code,
    reason = "shares one of two cells while the other is written; protected by grace periods"
)]

use crate::primitives::{Arc, AtomicUsize, Ordering, UnsafeCell};
use crate::qsbr::{Domain, Grace, Reader};

/// The part of a left-right table that readers use: both copies and the index of the active copy.
#[derive(Debug)]
pub struct LeftRight<T> {
    copies: [UnsafeCell<T>; 2],
    /// Index of the active copy, which readers use.
    active: AtomicUsize,
    domain: Arc<Domain>,
}

// SAFETY: The type owns the copies, which move with it.
unsafe impl<T: Send> Send for LeftRight<T> {}
// SAFETY: Readers share the active copy (`T: Sync`). The writer, on another thread, mutates the inactive copy
// (`T: Send`), and grace periods keep the two apart.
unsafe impl<T: Send + Sync> Sync for LeftRight<T> {}

impl<T: Send + Sync + 'static> LeftRight<T> {
    /// Returns the published table. The reference is valid until the reader passes a quiescent point. Workers
    /// call this method once per burst.
    ///
    /// # Panics
    /// Panics if `reader` is offline or belongs to another domain (programming errors).
    #[inline]
    pub fn read<'a>(&'a self, reader: &'a Reader) -> &'a T {
        reader.check(&self.domain);
        let active = self.active.load(Ordering::Acquire);
        // SAFETY: This copy was active when it was loaded. The writer mutates it only after a grace period
        // that began after it was deactivated. The reader is online in that domain and borrowed for 'a, so it
        // passes no quiescent point while the reference lives.
        self.copies[active & 1].with(|copy| unsafe { &*copy })
    }
}

/// Write access to a [`LeftRight`] table. There is only one writer.
#[derive(Debug)]
pub struct Writer<T, O> {
    shared: Arc<LeftRight<T>>,
    apply: fn(&mut T, &O),
    /// Operations that are published in the active copy, but not yet applied to the inactive copy.
    applied_once: Vec<O>,
    /// Operations that are not yet published, and are applied to neither copy.
    pending: Vec<O>,
    /// Grace period after which no reader can use the inactive copy.
    grace: Grace,
    /// Whether `apply` panicked. The inactive copy is then in an unknown state, and the next publication replaces
    /// it by a clone of the active copy.
    torn: bool,
}

/// Creates a left-right table (two copies, one of which is active for readers) with the initial value `initial`.
/// `apply` applies an operation to a copy. `apply` runs once on each copy for each operation and must have an equal
/// effect on both copies. Therefore the effect of `apply` may depend only on the two arguments.
pub fn left_right<T, O>(
    domain: &Arc<Domain>,
    initial: T,
    apply: fn(&mut T, &O),
) -> (Writer<T, O>, Arc<LeftRight<T>>)
where
    T: Clone + Send + Sync + 'static,
{
    let shared = Arc::new(LeftRight {
        copies: [UnsafeCell::new(initial.clone()), UnsafeCell::new(initial)],
        active: AtomicUsize::new(0),
        domain: Arc::clone(domain),
    });
    let writer = Writer {
        shared: Arc::clone(&shared),
        apply,
        applied_once: Vec::new(),
        pending: Vec::new(),
        grace: domain.begin_grace(),
        torn: false,
    };
    (writer, shared)
}

impl<T: Clone + Send + Sync + 'static, O> Writer<T, O> {
    /// Adds an operation to the list of operations that the next publication applies.
    pub fn push(&mut self, operation: O) {
        self.pending.push(operation);
    }

    /// Returns the published copy of the table, for the writer itself.
    #[must_use]
    pub fn read(&self) -> &T {
        let active = self.shared.active.load(Ordering::Relaxed);
        // SAFETY: Only this writer mutates copies or changes the active index, both through `&mut self`, and
        // the reference borrows it.
        self.shared.copies[active & 1].with(|copy| unsafe { &*copy })
    }

    /// Publishes all pushed operations together. Waits for a grace period if none has passed since the last
    /// publication. Only control threads may call this method, and the [`Reader`] of the calling thread must be
    /// offline.
    pub fn publish(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        self.shared.domain.wait(self.grace);
        let active = self.shared.active.load(Ordering::Relaxed) & 1;
        // If `apply` panics this stays set, and the next publication starts from a clone.
        let torn = std::mem::replace(&mut self.torn, true);
        // SAFETY: This thread is the only writer and is not re-entered (`&mut self`). The copy is inactive,
        // and the grace period since it was deactivated is over (waited for above), so no reader is in it.
        self.shared.copies[1 - active].with_mut(|copy| unsafe { self.bring_up(&mut *copy, torn) });
        self.torn = false;
        self.applied_once.clear();
        std::mem::swap(&mut self.applied_once, &mut self.pending);
        self.shared.active.store(1 - active, Ordering::Release);
        self.grace = self.shared.domain.begin_grace();
    }

    /// Publishes all pushed operations. Then waits until no reader uses the previous state of the table.
    pub fn publish_and_wait(&mut self) {
        self.publish();
        self.shared.domain.wait(self.grace);
    }

    fn bring_up(&self, copy: &mut T, torn: bool) {
        if torn {
            copy.clone_from(self.read());
        } else {
            self.applied_once.iter().for_each(|operation| (self.apply)(copy, operation));
        }
        self.pending.iter().for_each(|operation| (self.apply)(copy, operation));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn apply(table: &mut Vec<u32>, operation: &u32) {
        assert!(*operation != 13, "unlucky");
        table.push(*operation);
    }

    #[test]
    fn readers_see_whole_publications() {
        let domain = Domain::new();
        let mut reader = domain.register().unwrap();
        let (mut writer, shared) = left_right(&domain, vec![], apply);
        reader.quiescent();
        writer.push(1);
        writer.push(2);
        assert!(shared.read(&reader).is_empty());
        writer.publish();
        let held = shared.read(&reader);
        assert_eq!(held, &[1, 2]);
        writer.push(3);
        assert_eq!(held, &[1, 2]);
        reader.quiescent();
        writer.publish();
        assert_eq!(shared.read(&reader), &[1, 2, 3]);
        reader.offline();
        writer.push(4);
        writer.publish_and_wait();
        reader.online();
        assert_eq!((shared.read(&reader), writer.read()), (&vec![1, 2, 3, 4], &vec![1, 2, 3, 4]));
    }

    #[test]
    fn a_panic_in_apply_does_not_tear_the_table() {
        let domain = Domain::new();
        let (mut writer, _shared) = left_right(&domain, vec![], apply);
        for operation in [1, 2] {
            writer.push(operation);
            writer.publish();
        }
        writer.push(3);
        writer.push(13);
        assert!(catch_unwind(AssertUnwindSafe(|| writer.publish())).is_err());
        assert_eq!(writer.read(), &[1, 2]);
        writer.pending.clear();
        for operation in [4, 5] {
            writer.push(operation);
            writer.publish();
        }
        assert_eq!(writer.read(), &[1, 2, 4, 5]);
    }
}
