//! A value that control threads replace as a whole and workers read, for configuration and small tables.
//!
//! Workers read the value once per burst with one acquire load. A control thread publishes a new immutable value, and
//! the old value is dropped after a grace period of the [`Domain`]. Invariant: the pointer always comes from
//! `Arc::into_raw` and holds one reference count.
//!
//! ```
//! # use sync::{qsbr::Domain, snapshot::Snapshot};
//! let domain = Domain::new();
//! let snapshot = Snapshot::new(&domain, vec![1, 2]);
//! let mut reader = domain.register()?; // in the worker
//! for _burst in 0..2 {
//!     let table = snapshot.read(&reader);
//!     assert_eq!(table.len(), 2);
//!     reader.quiescent();
//! }
//! # Ok::<(), sync::qsbr::TooManyReaders>(())
//! ```
//!
//! A value that was read cannot be kept across a quiescent point:
//!
//! ```compile_fail,E0502
//! # use sync::{qsbr::Domain, snapshot::Snapshot};
//! # let domain = Domain::new();
//! # let snapshot = Snapshot::new(&domain, vec![1, 2]);
//! # let mut reader = domain.register()?;
//! let table = snapshot.read(&reader);
//! reader.quiescent();
//! assert_eq!(table.len(), 2);
//! # Ok::<(), sync::qsbr::TooManyReaders>(())
//! ```
#![allow(
    unsafe_code,
    reason = "turns the published pointer into a reference; protected by the reader's borrow"
)]

use crate::primitives::{Arc, AtomicPtr, ControlLock, Ordering};
use crate::qsbr::{Domain, Reader};

/// A value of type `T` that [`Snapshot::publish`] replaces, and that workers read through a [`Reader`].
#[derive(Debug)]
pub struct Snapshot<T> {
    current: AtomicPtr<T>,
    domain: Arc<Domain>,
    /// Lock that serialises control threads. A pointer that was loaded under this lock cannot be retired
    /// while the lock is held.
    writer: ControlLock<()>,
}

impl<T: Send + Sync + 'static> Snapshot<T> {
    /// Returns a snapshot with the initial value `value`. Readers of the snapshot register with `domain`.
    #[must_use]
    pub fn new(domain: &Arc<Domain>, value: T) -> Self {
        let current = AtomicPtr::new(Arc::into_raw(Arc::new(value)).cast_mut());
        Self { current, domain: Arc::clone(domain), writer: ControlLock::new(()) }
    }

    /// Returns the current value. The reference is valid until the reader passes a quiescent point. Two calls
    /// may return different values. Therefore workers read the snapshot once per burst.
    ///
    /// # Panics
    /// Panics if `reader` is offline or belongs to another domain (programming errors).
    #[inline]
    pub fn read<'a>(&'a self, reader: &'a Reader) -> &'a T {
        reader.check(&self.domain);
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: The pointer came from `Arc::into_raw`, and its count is dropped only after a grace period
        // that began after it was unlinked (or with the snapshot, which is borrowed). The reader is online in
        // this domain (checked above) and stays borrowed for 'a, so it passes no quiescent point while the
        // reference lives.
        unsafe { &*current }
    }

    /// Replaces the value. Workers see the new value at their next [`Snapshot::read`]. After
    /// [`Domain::synchronize`], no worker uses the old value any more. Only control threads may call this
    /// method, because it takes a lock and allocates.
    pub fn publish(&self, value: T) {
        self.publish_arc(Arc::new(value));
    }

    /// Replaces the value with `value`, to which the caller may hold other references. See [`Snapshot::publish`].
    pub fn publish_arc(&self, value: Arc<T>) {
        let guard = self.writer.lock();
        let old = self.replace(value);
        drop(guard);
        self.domain.retire(Box::new(old));
    }

    /// Replaces the value with the value that `make` creates from the current value. No other thread can publish a
    /// value between the read and the replacement.
    pub fn update(&self, make: impl FnOnce(&T) -> T) {
        let guard = self.writer.lock();
        let value = Arc::new(make(&self.load_locked()));
        let old = self.replace(value);
        drop(guard);
        self.domain.retire(Box::new(old));
    }

    /// Returns a counted reference to the current value. The method needs no [`Reader`], but takes a lock. Therefore
    /// only control threads call it.
    #[must_use]
    pub fn load_arc(&self) -> Arc<T> {
        let _guard = self.writer.lock();
        self.load_locked()
    }

    /// Returns the domain whose readers may read the snapshot.
    #[must_use]
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Returns the current value. The caller must hold the writer lock.
    fn load_locked(&self) -> Arc<T> {
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: The pointer came from `Arc::into_raw`. Its count is alive, because only a publisher that
        // holds the writer lock unlinks it, and this thread holds the lock.
        unsafe {
            Arc::increment_strong_count(current);
            Arc::from_raw(current)
        }
    }

    /// Replaces the value and returns the old one. The caller must hold the writer lock. The caller must
    /// retire the old value instead of dropping it, because readers may still use it.
    fn replace(&self, value: Arc<T>) -> Arc<T> {
        let old = self.current.swap(Arc::into_raw(value).cast_mut(), Ordering::AcqRel);
        // SAFETY: The pointer came from `Arc::into_raw`, and the swap made this thread the only owner of its
        // count.
        unsafe { Arc::from_raw(old) }
    }
}

impl<T> Drop for Snapshot<T> {
    fn drop(&mut self) {
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: The pointer came from `Arc::into_raw` with one count that this snapshot owns. Every
        // reference from `read` borrows the snapshot, so no reference is left.
        drop(unsafe { Arc::from_raw(current) });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn readers_see_the_newest_and_old_values_go() {
        let domain = Domain::new();
        let mut reader = domain.register().unwrap();
        let first = Arc::new(1);
        let snapshot = Snapshot::new(&domain, 0);
        snapshot.publish_arc(Arc::clone(&first));
        assert_eq!(*snapshot.read(&reader), 1);
        snapshot.update(|old| old + 1);
        assert_eq!((*snapshot.read(&reader), *snapshot.load_arc()), (2, 2));
        domain.reclaim();
        assert_eq!(Arc::strong_count(&first), 2, "a reader may still hold it");
        reader.quiescent();
        domain.reclaim();
        assert_eq!(Arc::strong_count(&first), 1);
    }

    #[test]
    #[should_panic(expected = "offline")]
    fn an_offline_reader_is_refused() {
        let domain = Domain::new();
        let mut reader = domain.register().unwrap();
        let snapshot = Snapshot::new(&domain, 0);
        reader.offline();
        snapshot.read(&reader);
    }

    #[test]
    #[should_panic(expected = "another domain")]
    fn a_reader_of_another_domain_is_refused() {
        let snapshot = Snapshot::new(&Domain::new(), 0);
        snapshot.read(&Domain::new().register().unwrap());
    }
}
