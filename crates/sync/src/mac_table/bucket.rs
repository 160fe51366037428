//! One bucket of the MAC table: a cache line of four entries under a sequence lock.
//!
//! Invariants: `sequence` is odd while a writer is inside. A reader that loads an even sequence (acquire), then the
//! entries, then (after an acquire fence) the same sequence, saw no writer's half-done work. `displaced` counts the
//! entries whose first bucket this is and which live in their second.

use super::Entry;
use crate::primitives::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence, pause, yield_now};

/// Entries per bucket; fewer in the models, to keep them small.
pub const WAYS: usize = if cfg!(loom) { 2 } else { 4 };
/// Attempts of a reader while writers come and go: a few microseconds, then the lookup is a miss.
/// The models have all the time, so that in them a miss means a lost entry.
const READ_TRIES: usize = if cfg!(loom) { usize::MAX } else { 64 };
/// Attempts of a worker to get into a bucket.
const LOCK_TRIES: usize = if cfg!(loom) { 2 } else { 64 };

#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Bucket {
    sequence: AtomicU32,
    displaced: AtomicU32,
    keys: [AtomicU64; WAYS],
    values: [AtomicU32; WAYS],
    ages: [AtomicU16; WAYS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Bucket>() == 64);

/// What a reader saw.
pub(super) enum Found {
    Here(FoundEntry),
    /// Not here, but some entries of this bucket live in their second.
    Elsewhere,
    Nowhere,
    /// A writer was inside.
    Disturbed,
}

/// An entry that a reader found.
pub(super) struct FoundEntry {
    pub(super) value: u32,
    pub(super) age: u16,
    pub(super) way: u32,
}

impl Bucket {
    pub(super) fn new() -> Self {
        Self {
            sequence: AtomicU32::new(0),
            displaced: AtomicU32::new(0),
            keys: std::array::from_fn(|_| AtomicU64::new(0)),
            values: std::array::from_fn(|_| AtomicU32::new(0)),
            ages: std::array::from_fn(|_| AtomicU16::new(0)),
        }
    }

    /// Looks once.
    #[inline(always)]
    pub(super) fn find(&self, key: u64) -> Found {
        let sequence = self.sequence.load(Ordering::Acquire);
        // All four compared without branching: which way matches is random, and a misprediction costs more.
        let mut matches = 0u32;
        for (way, stored) in self.keys.iter().enumerate() {
            matches |= u32::from(stored.load(Ordering::Relaxed) == key) << way;
        }
        let way = matches.trailing_zeros();
        let at = way as usize % WAYS;
        let (value, age) = (self.values[at].load(Ordering::Relaxed), self.ages[at].load(Ordering::Relaxed));
        let displaced = self.displaced.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        if sequence & 1 == 1 || self.sequence.load(Ordering::Relaxed) != sequence {
            Found::Disturbed
        } else if matches != 0 {
            Found::Here(FoundEntry { value, age, way })
        } else if displaced != 0 {
            Found::Elsewhere
        } else {
            Found::Nowhere
        }
    }

    /// Value and age of a key that is here, in as few instructions as can be; `None` says only that it takes
    /// [`Bucket::find`] to know.
    #[inline(always)]
    pub(super) fn glance(&self, key: u64) -> Option<(u32, u16)> {
        let sequence = self.sequence.load(Ordering::Acquire);
        let mut way = WAYS;
        for (at, stored) in self.keys.iter().enumerate() {
            // Not a search that ends where it finds: which way matches is random, and a misprediction costs more.
            way = if stored.load(Ordering::Relaxed) == key { at } else { way };
        }
        if sequence & 1 == 1 || way == WAYS {
            return None;
        }
        let (value, age) = (self.values[way].load(Ordering::Relaxed), self.ages[way].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        (self.sequence.load(Ordering::Relaxed) == sequence).then_some((value, age))
    }

    /// Looks until no writer disturbs, for a few microseconds at most.
    pub(super) fn find_patiently(&self, key: u64) -> Found {
        for _ in 0..READ_TRIES {
            match self.find(key) {
                Found::Disturbed => pause(),
                found => return found,
            }
        }
        Found::Disturbed
    }

    /// Stores the age if the way still holds `key` and the age differs. A writer that reuses the way at this very
    /// moment may find its new entry refreshed: harmless.
    #[inline]
    pub(super) fn refresh(&self, way: u32, key: u64, now: u16) {
        let at = way as usize % WAYS;
        if self.ages[at].load(Ordering::Relaxed) != now && self.keys[at].load(Ordering::Relaxed) == key {
            self.ages[at].store(now, Ordering::Relaxed);
        }
    }

    /// The entries at one instant. For control: waits for a writer.
    pub(super) fn entries(&self) -> [Option<Entry>; WAYS] {
        loop {
            if let Some(entries) = self.try_entries() {
                return entries;
            }
            yield_now();
        }
    }

    /// The entries at one instant; `None` where a writer is inside.
    pub(super) fn try_entries(&self) -> Option<[Option<Entry>; WAYS]> {
        let sequence = self.sequence.load(Ordering::Acquire);
        let entries = std::array::from_fn(|way| {
            let entry = self.entry(way);
            (entry.key != 0).then_some(entry)
        });
        fence(Ordering::Acquire);
        (sequence & 1 == 0 && self.sequence.load(Ordering::Relaxed) == sequence).then_some(entries)
    }

    /// One try to get in.
    pub(super) fn try_lock(&self) -> Option<Locked<'_>> {
        let sequence = self.sequence.load(Ordering::Relaxed);
        if sequence & 1 == 1 {
            return None;
        }
        let odd = sequence.wrapping_add(1);
        self.sequence.compare_exchange(sequence, odd, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // Who sees anything that we write from here on must also see the odd sequence; pairs with the readers' fence.
        fence(Ordering::Release);
        Some(Locked { bucket: self, odd })
    }

    /// For workers: tries for about a microsecond.
    pub(super) fn lock(&self) -> Option<Locked<'_>> {
        for _ in 0..LOCK_TRIES {
            if let Some(locked) = self.try_lock() {
                return Some(locked);
            }
            pause();
        }
        None
    }

    /// For control: waits, also for a worker that was preempted inside.
    pub(super) fn lock_patiently(&self) -> Locked<'_> {
        loop {
            if let Some(locked) = self.lock() {
                return locked;
            }
            yield_now();
        }
    }

    fn entry(&self, way: usize) -> Entry {
        Entry {
            key: self.keys[way].load(Ordering::Relaxed),
            value: self.values[way].load(Ordering::Relaxed),
            age: self.ages[way].load(Ordering::Relaxed),
        }
    }
}

/// A bucket that this thread may write; released when dropped.
pub(super) struct Locked<'a> {
    bucket: &'a Bucket,
    odd: u32,
}

impl Locked<'_> {
    pub(super) fn way_of(&self, key: u64) -> Option<usize> {
        self.bucket.keys.iter().position(|stored| stored.load(Ordering::Relaxed) == key)
    }

    pub(super) fn vacant(&self) -> Option<usize> {
        self.way_of(0)
    }

    pub(super) fn entry(&self, way: usize) -> Entry {
        self.bucket.entry(way)
    }

    pub(super) fn put(&self, way: usize, entry: Entry) {
        self.bucket.values[way].store(entry.value, Ordering::Relaxed);
        self.bucket.ages[way].store(entry.age, Ordering::Relaxed);
        self.bucket.keys[way].store(entry.key, Ordering::Relaxed);
    }

    /// Returns the old value.
    pub(super) fn replace(&self, way: usize, value: u32, age: u16) -> u32 {
        let old = self.bucket.values[way].load(Ordering::Relaxed);
        self.bucket.values[way].store(value, Ordering::Relaxed);
        self.bucket.ages[way].store(age, Ordering::Relaxed);
        old
    }

    pub(super) fn clear(&self, way: usize) {
        self.bucket.keys[way].store(0, Ordering::Relaxed);
    }

    pub(super) fn displaced(&self) -> u32 {
        self.bucket.displaced.load(Ordering::Relaxed)
    }

    /// An entry of this bucket went to live in its second, or ceased to.
    pub(super) fn count_displaced(&self, more: bool) {
        let displaced = self.displaced();
        let displaced = if more { displaced.wrapping_add(1) } else { displaced.wrapping_sub(1) };
        self.bucket.displaced.store(displaced, Ordering::Relaxed);
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.bucket.sequence.store(self.odd.wrapping_add(1), Ordering::Release);
    }
}
