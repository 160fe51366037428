//! One bucket of the MAC table: a cache line with four entries under a sequence lock.
//!
//! Invariants: `sequence` is odd while a writer has locked the bucket. A reader loads `sequence` (acquire), then
//! the entries, and then (after an acquire fence) `sequence` again. If both loads yield one even number, the reader
//! has seen no partial write. `displaced` counts the entries whose first bucket is this bucket, but which are stored in
//! their second bucket because this bucket was full.

use super::entry::Entry;
use crate::primitives::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence, pause, yield_now};

/// Number of entries in a bucket. The loom models have fewer, in order to keep the models small.
pub const WAYS: usize = if cfg!(loom) { 2 } else { 4 };
/// Maximum number of attempts of a reader to read a bucket while writers change the bucket. If all attempts fail, which
/// takes a few microseconds, the lookup is a miss. In the loom models the number is unlimited. A miss in a model
/// therefore means that the table has lost an entry.
const READ_TRIES: usize = if cfg!(loom) { usize::MAX } else { 64 };
/// Maximum number of attempts of a worker to lock a bucket. If all attempts fail, the operation of the worker returns
/// without a change.
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

/// Result of a search for a key in one bucket.
pub(super) enum Found {
    Here(FoundEntry),
    /// The bucket does not contain the key. Some entries whose first bucket is this bucket are stored in their second
    /// bucket, so the key may be in its second bucket.
    Elsewhere,
    Nowhere,
    /// A writer changed the bucket during the search. The result is unknown.
    Disturbed,
}

/// An entry that a reader found in a bucket.
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

    /// Searches the bucket for a key in one attempt.
    #[inline(always)]
    pub(super) fn find(&self, key: u64) -> Found {
        let sequence = self.sequence.load(Ordering::Acquire);
        // All keys are compared without branching. The matching way is random, and a misprediction costs
        // more.
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

    /// Returns the value and the age of a key in this bucket, with as few instructions as possible. Returns `None` if
    /// the key is absent, if the key is in its second bucket, or if a writer changed the bucket. The caller must then
    /// call [`Bucket::find`].
    #[inline(always)]
    pub(super) fn glance(&self, key: u64) -> Option<(u32, u16)> {
        let sequence = self.sequence.load(Ordering::Acquire);
        let mut way = WAYS;
        for (at, stored) in self.keys.iter().enumerate() {
            // The loop has no early exit. The matching way is random, and a misprediction costs more.
            way = if stored.load(Ordering::Relaxed) == key { at } else { way };
        }
        if sequence & 1 == 1 || way == WAYS {
            return None;
        }
        let (value, age) = (self.values[way].load(Ordering::Relaxed), self.ages[way].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        (self.sequence.load(Ordering::Relaxed) == sequence).then_some((value, age))
    }

    /// Searches the bucket for a key, and repeats the search while writers change the bucket. Gives up after a few
    /// microseconds.
    pub(super) fn find_patiently(&self, key: u64) -> Found {
        for _ in 0..READ_TRIES {
            match self.find(key) {
                Found::Disturbed => pause(),
                found => return found,
            }
        }
        Found::Disturbed
    }

    /// Stores the time `now` in the age field of the entry in slot `way` of the bucket, if the slot still contains
    /// `key` and the age differs. If a writer reuses the slot at this moment, the age of the new entry may be
    /// overwritten, which is harmless.
    #[inline]
    pub(super) fn refresh(&self, way: u32, key: u64, now: u16) {
        let at = way as usize % WAYS;
        if self.ages[at].load(Ordering::Relaxed) != now && self.keys[at].load(Ordering::Relaxed) == key {
            self.ages[at].store(now, Ordering::Relaxed);
        }
    }

    /// Returns a consistent copy of the entries in the bucket. Only control threads may call this method, because the
    /// method waits for a writer.
    pub(super) fn entries(&self) -> [Option<Entry>; WAYS] {
        loop {
            if let Some(entries) = self.try_entries() {
                return entries;
            }
            yield_now();
        }
    }

    /// Returns a consistent copy of the entries in the bucket. Returns `None` if a writer has locked the bucket.
    pub(super) fn try_entries(&self) -> Option<[Option<Entry>; WAYS]> {
        let sequence = self.sequence.load(Ordering::Acquire);
        let entries = std::array::from_fn(|way| {
            let entry = self.entry(way);
            (entry.key != 0).then_some(entry)
        });
        fence(Ordering::Acquire);
        (sequence & 1 == 0 && self.sequence.load(Ordering::Relaxed) == sequence).then_some(entries)
    }

    /// Tries once to lock the bucket. Returns `None` if another writer has locked the bucket.
    pub(super) fn try_lock(&self) -> Option<Locked<'_>> {
        let sequence = self.sequence.load(Ordering::Relaxed);
        if sequence & 1 == 1 {
            return None;
        }
        let odd = sequence.wrapping_add(1);
        self.sequence.compare_exchange(sequence, odd, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // A reader that sees a later write of this thread must also see the odd sequence. Pairs with the
        // readers' fence.
        fence(Ordering::Release);
        Some(Locked { bucket: self, odd })
    }

    /// Locks the bucket for a worker, which must not wait for long. Returns `None` if another writer still has the
    /// bucket locked after about a microsecond.
    pub(super) fn lock(&self) -> Option<Locked<'_>> {
        for _ in 0..LOCK_TRIES {
            if let Some(locked) = self.try_lock() {
                return Some(locked);
            }
            pause();
        }
        None
    }

    /// Locks the bucket for a control thread, which may wait. The method also waits for a worker that was preempted
    /// while it had the bucket locked.
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

/// A bucket that the current thread has locked and may write. Dropping this value unlocks the bucket.
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

    /// Replaces the value and the age of the entry in slot `way` of the bucket. Returns the old value.
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

    /// Updates the number of entries that are stored in their second bucket instead of this bucket: adds 1 if
    /// `more` is `true` (an entry was moved to its second bucket), and otherwise subtracts 1.
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
