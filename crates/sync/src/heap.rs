//! A heap that counts: benches and tests show with it that the data path allocates nothing.
//!
//! Not on any packet's path; that is the point. A binary opts in with `#[global_allocator]`, everything else keeps the
//! system's heap, of which this is a thin shell.
#![allow(unsafe_code, reason = "GlobalAlloc is an unsafe trait; every method passes its contract on")]

use std::alloc::{GlobalAlloc, Layout, System};
// The allocator runs below everything else, loom's atomics included.
use std::sync::atomic::{AtomicU64, Ordering};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// The system's heap with a count of allocations (growing an allocation is one, freeing is none).
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingHeap;

/// Allocations of the process so far; 0 for ever where [`CountingHeap`] is not the global allocator.
pub fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

// SAFETY: every call goes to the system's allocator unchanged; the count touches no memory of the heap.
unsafe impl GlobalAlloc for CountingHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` came from `System` with this layout, because all of the methods here pass on to it.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `memory` came from `System` with this layout; the rest is the caller's contract.
        unsafe { System.realloc(memory, layout, size) }
    }
}
