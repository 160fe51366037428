//! Atomics, cells and waiting primitives that this crate is built on. The types come from std, or from loom with `--cfg
//! loom`.
//!
//! Invariant: no other module uses `std::sync::atomic` or `UnsafeCell` directly. Otherwise the loom models
//! would not see the access.

use std::ops::{Deref, DerefMut};

/// Reference-counted pointer to data that callers share. The type is std's `Arc` even in the loom models, because a
/// method cannot take `&loom::sync::Arc<Self>`.
pub(crate) use std::sync::Arc;

/// Reference-counted pointer to the memory of a ring. The producer or the consumer, whichever is dropped last, frees
/// the memory. In the loom models the type is loom's `Arc`, because the models must see how the producer and the
/// consumer synchronise.
#[cfg(loom)]
pub(crate) use loom::sync::Arc as ModelledArc;
#[cfg(not(loom))]
pub(crate) use std::sync::Arc as ModelledArc;

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(not(loom))]
#[allow(clippy::disallowed_types, reason = "for control threads only")]
use std::sync::{Mutex, MutexGuard};

/// std's cell with the interface of loom's cell, so that the code of this crate can use either cell.
#[cfg(not(loom))]
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// A value that shares its cache lines with no other value. The alignment is two cache lines, because x86
/// fetches lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CachePadded<T>(pub T);

impl<T> Deref for CachePadded<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CachePadded<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// A lock between control threads. Workers never take such a lock. This type is the only lock type in this crate.
#[derive(Debug)]
#[allow(clippy::disallowed_types, reason = "for control threads only")]
pub(crate) struct ControlLock<T>(Mutex<T>);

#[allow(clippy::disallowed_types, reason = "for control threads only")]
impl<T> ControlLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Takes the lock. Poisoning is ignored, because a panicking holder of the lock leaves only plain data, and never a
    /// broken invariant.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Executes one iteration of a short spin loop.
#[inline(always)]
pub(crate) fn pause() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}

/// Yields the CPU to another thread. Control threads call this function while they wait for a thread that may
/// be preempted.
pub(crate) fn yield_now() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}

/// Returns the array index that belongs to a position in a ring. A position is a count of items, which never decreases.
/// `mask` is the length of the ring, a power of two, minus one.
#[inline(always)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "masked below the length of an allocation, which is a usize"
)]
pub(crate) fn place(position: u64, mask: u64) -> usize {
    (position & mask) as usize
}

/// Converts a number of objects in memory from `u64` to `usize`.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "at most the length of an allocation, which is a usize")]
pub(crate) fn size(count: u64) -> usize {
    count as usize
}
