//! The atomics, cells and waits that the rest of the crate is written with: std's, or loom's under `--cfg loom`.
//!
//! Invariant: no other module names `std::sync::atomic` or `UnsafeCell`, else its models would not see the access.

use std::ops::{Deref, DerefMut};

/// std's also under loom, where a method cannot take `&loom::sync::Arc<Self>`: for what callers share.
pub(crate) use std::sync::Arc;

/// For what the last of two ends frees: the models need to see how the ends synchronise.
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

/// std's cell behind loom's interface, so that one source serves both.
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

/// Keeps a value alone on its cache lines: two lines, because x86 fetches them in pairs.
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

/// A lock between control threads. Workers never touch one: the only lock in this crate, under a name that says so.
#[derive(Debug)]
#[allow(clippy::disallowed_types, reason = "for control threads only")]
pub(crate) struct ControlLock<T>(Mutex<T>);

#[allow(clippy::disallowed_types, reason = "for control threads only")]
impl<T> ControlLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Takes the lock. A holder that panicked left plain data behind, never a half-made invariant.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// One turn of a short spin.
#[inline(always)]
pub(crate) fn pause() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}

/// Lets another thread run: for control-side waits on somebody who may have been preempted.
pub(crate) fn yield_now() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}

/// Place of a monotonic position in a power-of-two ring.
#[inline(always)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "masked below the length of an allocation, which is a usize"
)]
pub(crate) fn place(position: u64, mask: u64) -> usize {
    (position & mask) as usize
}

/// A count of things in memory, as a size.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "at most the length of an allocation, which is a usize")]
pub(crate) fn size(count: u64) -> usize {
    count as usize
}
