//! A ring that is shared with the kernel, with a producer's view and a consumer's view. Both views cache the
//! indices, so that the shared cache lines are accessed only once per burst.
//!
//! Invariants:
//!
//! - Indices are 32-bit counters that wrap around, and are masked when an entry is accessed. An access is
//!   therefore always inside the ring, even if the kernel writes a wrong index.
//! - The number of entries that the other side has produced or freed is limited to the size of the ring.
//! - The producer writes entries before it publishes them (release). The consumer reads entries only after it
//!   has seen their publication (acquire).
//!
//! The kernel's documentation is `Documentation/networking/af_xdp.rst`.
#![allow(unsafe_code, reason = "memory shared with the kernel; see the SAFETY comments")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::abi;
use crate::queue::TransmitProgress;

/// The memory of a ring, which is released when the ring is dropped.
enum Backing {
    Mapping {
        base: NonNull<u8>,
        len: usize,
    },
    #[cfg(test)]
    Heap(#[allow(dead_code, reason = "held for its lifetime")] std::sync::Arc<HeapRing>),
}

impl Drop for Backing {
    fn drop(&mut self) {
        match self {
            // SAFETY: a mapping owned by this value, of exactly this length; the views into it end with this
            // value.
            Self::Mapping { base, len } => unsafe {
                let _ = rustix::mm::munmap(base.as_ptr().cast(), *len);
            },
            #[cfg(test)]
            Self::Heap(_) => {}
        }
    }
}

/// Pointers to the indices, the flags and the entries of a ring in shared memory.
pub(crate) struct Shared<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    mask: u32,
    _backing: Backing,
}

// SAFETY: the pointers refer to memory that lives as long as the value. The memory is only accessed through
// atomics, or through entries that the ring's protocol assigns to one side. `T` is plain data.
unsafe impl<T: Copy + Send> Send for Shared<T> {}

impl<T: Copy> Shared<T> {
    /// Creates the pointers for a mapping of `len` bytes at `base`, with the layout `offsets` that the kernel
    /// reports. Takes ownership of the mapping. Returns `None` if the layout exceeds the mapping or `size` is
    /// not a power of two.
    ///
    /// # Safety
    /// `base` must be a mapping of `len` bytes that the process shares with the kernel as a ring of `T`. No
    /// other code may unmap it.
    pub(crate) unsafe fn from_mapping(
        base: NonNull<u8>,
        len: usize,
        offsets: &libc::xdp_ring_offset,
        size: u32,
    ) -> Option<Self> {
        let backing = Backing::Mapping { base, len };
        let at = |offset: u64, bytes: usize| -> Option<NonNull<u8>> {
            let offset = usize::try_from(offset).ok()?;
            // SAFETY: the sum is checked to stay within the mapping.
            (offset.checked_add(bytes)? <= len && offset % 4 == 0).then(|| unsafe { base.add(offset) })
        };
        if !size.is_power_of_two() {
            return None;
        }
        Some(Self {
            producer: at(offsets.producer, 4)?.cast(),
            consumer: at(offsets.consumer, 4)?.cast(),
            flags: at(offsets.flags, 4)?.cast(),
            entries: at(offsets.desc, size as usize * size_of::<T>())?.cast(),
            mask: size - 1,
            _backing: backing,
        })
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: valid for the lifetime of `self`, and only accessed atomically.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: like `producer`.
        unsafe { self.consumer.as_ref() }
    }

    #[inline]
    fn needs_wakeup(&self) -> bool {
        // SAFETY: like `producer`.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & abi::XDP_RING_NEED_WAKEUP != 0
    }

    #[inline]
    fn read(&self, index: u32) -> T {
        // SAFETY: the masked index is inside the ring; any bytes are a valid `T`, which is plain data.
        unsafe { self.entries.as_ptr().add((index & self.mask) as usize).read() }
    }

    #[inline]
    fn write(&self, index: u32, entry: T) {
        // SAFETY: the masked index is inside the ring, and the entry belongs to the producer.
        unsafe { self.entries.as_ptr().add((index & self.mask) as usize).write(entry) }
    }

    fn size(&self) -> u32 {
        self.mask + 1
    }

    /// Iterates over the entries that the ring contains at the time of the call, from the consumer index to the
    /// producer index.
    fn standing(&self) -> impl Iterator<Item = T> + '_ {
        let from = self.consumer().load(Ordering::Acquire);
        let n = self.producer().load(Ordering::Acquire).wrapping_sub(from).min(self.size());
        (0..n).map(move |i| self.read(from.wrapping_add(i)))
    }
}

/// Producer view of a ring, used for the fill ring and the transmit ring.
pub(crate) struct Producer<T> {
    shared: Shared<T>,
    head: u32,
    consumed: u32,
}

impl<T: Copy> Producer<T> {
    #[cfg(test)]
    pub(crate) fn into_shared(self) -> Shared<T> {
        self.shared
    }

    /// Creates a producer view of a ring. The view starts at the producer index in the shared memory.
    pub(crate) fn new(shared: Shared<T>) -> Self {
        let head = shared.producer().load(Ordering::Acquire);
        let consumed = shared.consumer().load(Ordering::Acquire);
        Self { shared, head, consumed }
    }

    /// Returns the number of entries that the kernel has not consumed yet. The shared cache line is read only
    /// if there may be such entries.
    #[inline]
    pub(crate) fn pending(&mut self) -> u32 {
        if self.head == self.consumed {
            return 0;
        }
        self.consumed = self.shared.consumer().load(Ordering::Acquire);
        self.head.wrapping_sub(self.consumed).min(self.size())
    }

    /// Returns the index at which the next entry will be written.
    #[inline]
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    /// Returns the number of entries that were put into the ring so far, and the number that the kernel has
    /// taken.
    pub(crate) fn progress(&mut self) -> TransmitProgress {
        let pending = self.pending();
        TransmitProgress { given: self.head, taken: self.head.wrapping_sub(pending) }
    }

    /// Returns the number of free entries. If the number that is known from the cached index is at least
    /// `enough`, this number is returned without reading the shared index.
    #[inline]
    pub(crate) fn free(&mut self, enough: u32) -> u32 {
        let known = self.size() - self.head.wrapping_sub(self.consumed).min(self.size());
        if known >= enough { known } else { self.size() - self.pending() }
    }

    /// Writes `entry` to the ring, `i` entries after the producer index ([`Self::head`]). The caller must have checked
    /// that this position is free.
    #[inline]
    pub(crate) fn write(&mut self, i: u32, entry: T) {
        self.shared.write(self.head.wrapping_add(i), entry);
    }

    /// Publishes the next `n` entries, which must have been written, so that the kernel can read the entries.
    #[inline]
    pub(crate) fn publish(&mut self, n: u32) {
        self.head = self.head.wrapping_add(n);
        self.shared.producer().store(self.head, Ordering::Release);
    }

    /// Returns whether the kernel requests a wake-up for this ring.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.shared.needs_wakeup()
    }

    #[inline]
    pub(crate) fn size(&self) -> u32 {
        self.shared.size()
    }

    pub(crate) fn standing(&self) -> impl Iterator<Item = T> + '_ {
        self.shared.standing()
    }
}

/// Consumer view of a ring, used for the receive ring and the completion ring.
pub(crate) struct Consumer<T> {
    shared: Shared<T>,
    tail: u32,
}

impl<T: Copy> Consumer<T> {
    #[cfg(test)]
    pub(crate) fn into_shared(self) -> Shared<T> {
        self.shared
    }

    /// Creates a consumer view of a ring. The view starts at the consumer index in the shared memory.
    pub(crate) fn new(shared: Shared<T>) -> Self {
        let tail = shared.consumer().load(Ordering::Acquire);
        Self { shared, tail }
    }

    /// Returns the number of entries that can be read. The function reads the kernel's index once (acquire).
    #[inline]
    pub(crate) fn available(&self) -> u32 {
        self.shared.producer().load(Ordering::Acquire).wrapping_sub(self.tail).min(self.size())
    }

    /// Returns the index of the next entry to read.
    #[inline]
    pub(crate) fn tail(&self) -> u32 {
        self.tail
    }

    /// Returns the entry that is `i` entries after the first readable entry. The entry is not released.
    #[inline]
    pub(crate) fn peek(&self, i: u32) -> T {
        self.shared.read(self.tail.wrapping_add(i))
    }

    /// Releases the first `n` entries that can be read, so that the kernel can use these entries
    /// again.
    #[inline]
    pub(crate) fn release(&mut self, n: u32) {
        if n > 0 {
            self.tail = self.tail.wrapping_add(n);
            self.shared.consumer().store(self.tail, Ordering::Release);
        }
    }

    #[inline]
    pub(crate) fn size(&self) -> u32 {
        self.shared.size()
    }

    pub(crate) fn standing(&self) -> impl Iterator<Item = T> + '_ {
        self.shared.standing()
    }
}

#[cfg(test)]
use simulated::HeapRing;
#[cfg(test)]
pub(crate) use simulated::views;

#[cfg(test)]
mod simulated {
    //! A ring in plain memory, with which tests simulate the kernel.
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    /// Memory of the indices and entries of a test ring.
    pub(crate) struct HeapRing {
        words: Box<[AtomicU64]>,
    }

    /// Creates a ring of `size` entries whose indices start at `start`. Returns the view of the process and the
    /// view of the simulated kernel.
    pub(crate) fn views<T: Copy>(size: u32, start: u32) -> (Shared<T>, Shared<T>) {
        let words = 2 + (size as usize * size_of::<T>()).div_ceil(8);
        let ring = Arc::new(HeapRing { words: (0..words).map(|_| AtomicU64::new(0)).collect() });
        let base: NonNull<u8> = NonNull::from(&*ring.words).cast();
        let view = |ring: Arc<HeapRing>| {
            // SAFETY: the offsets are inside the words, which the backing keeps alive and no other code
            // accesses.
            let shared = unsafe {
                Shared {
                    producer: base.cast::<AtomicU32>(),
                    consumer: base.add(4).cast(),
                    flags: base.add(8).cast(),
                    entries: base.add(16).cast(),
                    mask: size - 1,
                    _backing: Backing::Heap(ring),
                }
            };
            shared.producer().store(start, Ordering::Relaxed);
            shared.consumer().store(start, Ordering::Relaxed);
            shared
        };
        (view(ring.clone()), view(ring))
    }

    #[test]
    fn indices_wrap_and_lies_are_cut_to_the_ring() {
        let (ours, kernels) = views::<u64>(8, u32::MAX - 3);
        let (mut producer, mut consumer) = (Producer::new(ours), Consumer::new(kernels));
        for round in 0..40_u64 {
            assert_eq!(producer.free(8), 8);
            for i in 0..5 {
                producer.write(i, round * 10 + u64::from(i));
            }
            producer.publish(5);
            assert_eq!(producer.pending(), 5);
            assert_eq!(consumer.available(), 5);
            for i in 0..5 {
                assert_eq!(consumer.peek(i), round * 10 + u64::from(i));
            }
            consumer.release(5);
        }
        consumer.shared.producer().store(1_000_000, Ordering::Relaxed);
        assert_eq!(consumer.available(), 8);
        producer.publish(1);
        producer.shared.consumer().store(7_777, Ordering::Relaxed);
        assert!(producer.pending() <= 8 && producer.free(8) <= 8);
    }

    #[test]
    fn a_layout_outside_the_mapping_is_refused() {
        let bytes = 4096;
        let offsets =
            |desc: usize| libc::xdp_ring_offset { producer: 0, consumer: 64, desc: desc as u64, flags: 128 };
        for (desc, size, fits) in
            [(256, 8, true), (bytes - 32, 8, false), (256, 6, false), (usize::MAX, 8, false)]
        {
            // SAFETY: a new private mapping that the ring takes over.
            let ring = unsafe {
                let flags = rustix::mm::MapFlags::PRIVATE;
                let prot = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
                let base = rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, prot, flags).unwrap();
                Shared::<u64>::from_mapping(NonNull::new(base.cast()).unwrap(), bytes, &offsets(desc), size)
            };
            assert_eq!(ring.is_some(), fits, "desc {desc} size {size}");
        }
    }
}
