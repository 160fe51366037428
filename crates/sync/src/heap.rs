//! A heap allocator that counts allocations. Benchmarks and tests use it to verify that the data path does
//! not allocate.
//!
//! A binary enables the counting allocator with `#[global_allocator]`. All other binaries use the system allocator
//! directly.
#![allow(unsafe_code, reason = "GlobalAlloc is an unsafe trait; every method passes its contract on")]

use std::alloc::{GlobalAlloc, Layout, System};
// The allocator runs below all other code, including loom's atomics, so it uses std's.
use std::sync::atomic::{AtomicU64, Ordering};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// The system allocator with a count of allocations. Growing or shrinking an allocation counts as one allocation.
/// Freeing memory does not count.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingHeap;

/// Returns the number of allocations that the process has made. Returns 0 if [`CountingHeap`] is not the
/// global allocator.
pub fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

// SAFETY: Every call goes to the system allocator unchanged. The count touches no heap memory.
unsafe impl GlobalAlloc for CountingHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: The caller upholds the contract of `System.alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` came from `System` with this layout, because all methods of this type forward to
        // `System`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: The caller upholds the contract of `System.alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `memory` came from `System` with this layout. The caller upholds the rest of the contract.
        unsafe { System.realloc(memory, layout, size) }
    }
}
