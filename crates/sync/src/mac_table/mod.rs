//! The bridge's MAC table: fixed size, shared by all workers, only atomics.
//!
//! On the packet's path: the bridge stage hashes the keys of a few frames at a time and fetches their buckets
//! ([`Glancer`]) while it decides the frames before, by a single look where that suffices ([`Glancer::glance`]), else by
//! looking each up ([`MacTable::lookup_at`]); it refreshes the sources and learns what is new.
//!
//! An entry lives in one of two buckets of four, each exactly one cache line: in its first if that had room, else in
//! its second; the first counts such displaced entries, so that a lookup reads the second only when it must. When both
//! are full, one entry is moved from its first bucket to its second to make room; if that does not help either the
//! table is [`Inserted::Full`] for this key: a known entry never makes way for a new one, unless a caller removes it first.
//!
//! Invariants:
//! - A writer of key `k` holds `k`'s first bucket, and every bucket that it changes: so writers of one key are serial,
//!   and a key is in the table once.
//! - An entry moves only from its first bucket to its second, with both held: a reader that saw a consistent first
//!   bucket without the key finds a moved entry in the second.
//! - Readers never wait: they retry a bounded number of times (a writer that was preempted inside a bucket makes a
//!   lookup in it a miss). Workers' writers try a bounded time and say [`Inserted::Busy`]; control's wait.
//!
//! Ages are seconds in 16 bits, compared wrapping: sweep at least every few hours.

mod bucket;
mod hash;

use std::ops::Range;

use crate::cpu;
use crate::memory::vec_on_huge_pages;
use crate::primitives::{AtomicUsize, CachePadded, Ordering, yield_now};
pub use bucket::WAYS;
use bucket::{Bucket, Found, FoundEntry, Locked};
use hash::Hasher;

/// Set in every stored key, so that no key of a caller is the empty slot's 0.
const OCCUPIED: u64 = 1 << 63;

/// Where a key belongs: its two buckets. Valid for the table that made it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BucketIndex(u64);

/// Where an entry was found, for [`MacTable::refresh`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    bucket: u32,
    way: u32,
}

impl Slot {
    /// Number of the bucket: one of [`MacTable::buckets_of`] the key.
    #[must_use]
    pub fn bucket(self) -> usize {
        self.bucket as usize
    }
}

/// A known key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// What the caller stored with the key.
    pub value: u32,
    /// Second (16 bits, wrapping) of the last refresh.
    pub age: u16,
    /// For [`MacTable::refresh`].
    pub slot: Slot,
}

impl Hit {
    #[inline(always)]
    fn new(entry: FoundEntry, bucket: u32) -> Self {
        Self { value: entry.value, age: entry.age, slot: Slot { bucket, way: entry.way } }
    }
}

/// An entry, as seen by sweeps and listings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The caller's key.
    pub key: u64,
    /// What the caller stored with it.
    pub value: u32,
    /// Second (16 bits, wrapping) of the last refresh.
    pub age: u16,
}

/// What became of an insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Inserted {
    /// The key was not known.
    New,
    /// The key was known, with this value.
    Updated(u32),
    /// No room for this key, which was not known. Nothing changed.
    Full,
    /// Another writer was in the bucket all the time. Nothing changed; the next packet will do.
    Busy,
}

/// See the module.
#[derive(Debug)]
pub struct MacTable {
    buckets: Box<[Bucket]>,
    mask: u32,
    hasher: Hasher,
    len: CachePadded<AtomicUsize>,
}

/// What tight loops over many keys need of a table, small enough to be held in registers.
#[derive(Debug, Clone, Copy)]
pub struct Glancer<'a> {
    buckets: &'a [Bucket],
    mask: u32,
    hasher: Hasher,
}

impl Glancer<'_> {
    /// [`MacTable::hash`].
    #[must_use]
    #[inline(always)]
    pub fn hash(&self, key: u64) -> BucketIndex {
        BucketIndex(self.hasher.hash(key | OCCUPIED))
    }

    /// Fetches the line of a key's first bucket.
    #[inline(always)]
    pub fn fetch(&self, at: BucketIndex) {
        cpu::prefetch_read(self.bucket(at));
    }

    /// Value and age of a key that a single look at its first bucket finds. `None` says nothing: it takes
    /// [`MacTable::lookup_at`] to know whether the key is in the table.
    #[must_use]
    #[inline(always)]
    pub fn glance(&self, at: BucketIndex, key: u64) -> Option<(u32, u16)> {
        self.bucket(at).glance(key | OCCUPIED)
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "the mask keeps 32 bits")]
    fn bucket(&self, at: BucketIndex) -> &Bucket {
        &self.buckets[(at.0 as u32 & self.mask) as usize]
    }
}

impl MacTable {
    /// A table that takes at least `entries` entries (in all likelihood: up to a load of 1/2 of its slots), hashed
    /// under `seed`, which must be secret: who knows it can fill buckets at will. Uses 32 to 64 bytes per entry.
    #[must_use]
    pub fn with_capacity(entries: usize, seed: u64) -> Self {
        let buckets = (entries.div_ceil(WAYS) * 2).clamp(2, 1 << 31).next_power_of_two();
        let mut room = vec_on_huge_pages(buckets);
        room.extend((0..buckets).map(|_| Bucket::new()));
        Self {
            buckets: room.into(),
            mask: u32::try_from(buckets - 1).unwrap_or(u32::MAX),
            hasher: Hasher::new(seed),
            len: CachePadded(AtomicUsize::new(0)),
        }
    }

    /// Where `key` belongs. Costs about a nanosecond; touches no bucket.
    #[must_use]
    #[inline(always)]
    pub fn hash(&self, key: u64) -> BucketIndex {
        BucketIndex(self.hasher.hash(key | OCCUPIED))
    }

    /// Hashes `key` and fetches its first bucket's line: for a whole burst, before the lookups.
    #[must_use]
    #[inline(always)]
    pub fn prefetch(&self, key: u64) -> BucketIndex {
        let at = self.hash(key);
        cpu::prefetch_read(self.bucket(self.first(at)));
        at
    }

    /// For tight loops over many keys.
    #[must_use]
    #[inline(always)]
    pub fn glancer(&self) -> Glancer<'_> {
        Glancer { buckets: &self.buckets, mask: self.mask, hasher: self.hasher }
    }

    /// Looks `key` up.
    #[must_use]
    #[inline(always)]
    pub fn lookup(&self, key: u64) -> Option<Hit> {
        self.lookup_at(self.hash(key), key)
    }

    /// Looks `key` up; `at` is its [`MacTable::hash`] or [`MacTable::prefetch`].
    #[must_use]
    #[inline(always)]
    pub fn lookup_at(&self, at: BucketIndex, key: u64) -> Option<Hit> {
        let index = self.first(at);
        match self.bucket(index).find(key | OCCUPIED) {
            Found::Here(entry) => Some(Hit::new(entry, index)),
            Found::Nowhere => None,
            Found::Elsewhere => self.lookup_second(at, key),
            Found::Disturbed => self.lookup_disturbed(at, key),
        }
    }

    #[cold]
    #[inline(never)]
    fn lookup_second(&self, at: BucketIndex, key: u64) -> Option<Hit> {
        let index = self.second(at);
        match self.bucket(index).find_patiently(key | OCCUPIED) {
            Found::Here(entry) => Some(Hit::new(entry, index)),
            _ => None,
        }
    }

    #[cold]
    #[inline(never)]
    fn lookup_disturbed(&self, at: BucketIndex, key: u64) -> Option<Hit> {
        let index = self.first(at);
        match self.bucket(index).find_patiently(key | OCCUPIED) {
            Found::Here(entry) => Some(Hit::new(entry, index)),
            Found::Elsewhere => self.lookup_second(at, key),
            Found::Nowhere | Found::Disturbed => None,
        }
    }

    /// Notes that `key`, which a lookup found at `slot`, was seen at `now` seconds. Writes at most once a second.
    #[inline]
    pub fn refresh(&self, slot: Slot, key: u64, now: u16) {
        self.bucket(slot.bucket).refresh(slot.way, key | OCCUPIED, now);
    }

    /// Learns `key`, or changes what is known of it. For workers: does not wait.
    pub fn insert(&self, key: u64, value: u32, now: u16) -> Inserted {
        self.insert_at(self.hash(key), key, value, now)
    }

    /// [`MacTable::insert`] with the key's [`MacTable::hash`].
    pub fn insert_at(&self, at: BucketIndex, key: u64, value: u32, now: u16) -> Inserted {
        let entry = Entry { key: key | OCCUPIED, value, age: now };
        let Some(first) = self.bucket(self.first(at)).lock() else { return Inserted::Busy };
        if let Some(way) = first.way_of(entry.key) {
            return Inserted::Updated(first.replace(way, value, now));
        }
        if first.displaced() == 0
            && let Some(way) = first.vacant()
        {
            first.put(way, entry);
            self.len.fetch_add(1, Ordering::Relaxed);
            return Inserted::New;
        }
        drop(first);
        match self.lock_both(at) {
            Some(pair) => self.insert_in_pair(at, &pair, entry),
            None => Inserted::Busy,
        }
    }

    /// Changes the value of a known key, and only that. Returns the old value. For control: may wait for workers.
    pub fn update_value(&self, key: u64, value: u32) -> Option<u32> {
        self.with_entry::<true, _>(key, |bucket, way, _| {
            let age = bucket.entry(way).age;
            bucket.replace(way, value, age)
        })
    }

    /// Forgets `key`. Returns its value. For control: may wait for workers.
    pub fn remove(&self, key: u64) -> Option<u32> {
        self.remove_if(key, |_| true)
    }

    /// Forgets `key` if `unwanted` says so of its entry. Returns its value if it went. For control: may wait for
    /// workers.
    pub fn remove_if(&self, key: u64, unwanted: impl Fn(Entry) -> bool) -> Option<u32> {
        self.remove_entry::<true>(key, unwanted)
    }

    /// [`MacTable::remove_if`] for workers: does not wait. `None` also where another writer holds a bucket of the key.
    pub fn try_remove_if(&self, key: u64, unwanted: impl Fn(Entry) -> bool) -> Option<u32> {
        self.remove_entry::<false>(key, unwanted)
    }

    fn remove_entry<const WAITS: bool>(&self, key: u64, unwanted: impl Fn(Entry) -> bool) -> Option<u32> {
        let removed = self.with_entry::<WAITS, _>(key, |bucket, way, first| {
            let entry = bucket.entry(way);
            if !unwanted(strip(entry)) {
                return None;
            }
            bucket.clear(way);
            if let Some(first) = first {
                first.count_displaced(false);
            }
            self.len.fetch_sub(1, Ordering::Relaxed);
            Some(entry.value)
        });
        removed.flatten()
    }

    /// Forgets every entry of these buckets that `keep` does not want: ageing and flushes, in steps that the caller
    /// bounds. `keep` may be asked twice about an entry. Returns how many went. For control: may wait for workers.
    pub fn sweep_range(&self, buckets: Range<usize>, keep: impl Fn(Entry) -> bool) -> usize {
        let end = buckets.end.min(self.buckets.len());
        let mut removed = 0;
        for bucket in self.buckets.get(buckets.start..end).unwrap_or(&[]) {
            for entry in bucket.entries().into_iter().flatten().map(strip) {
                // Asked again under the lock: it may have been refreshed meanwhile.
                if !keep(entry) && self.remove_if(entry.key, |entry| !keep(entry)).is_some() {
                    removed += 1;
                }
            }
        }
        removed
    }

    /// [`MacTable::sweep_range`] over the whole table.
    pub fn sweep(&self, keep: impl Fn(Entry) -> bool) -> usize {
        self.sweep_range(0..self.buckets.len(), keep)
    }

    /// Entries in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of buckets: the steps of [`MacTable::sweep_range`].
    #[must_use]
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// The first and the second bucket of `key`: for tests and for explaining a full bucket.
    #[must_use]
    pub fn buckets_of(&self, key: u64) -> [usize; 2] {
        let at = self.hash(key);
        [self.first(at) as usize, self.second(at) as usize]
    }

    /// Returns the entries of one bucket at one instant, for a worker: none where a writer holds the bucket. `bucket` is
    /// taken modulo [`MacTable::buckets`].
    #[must_use]
    pub fn glimpse(&self, bucket: usize) -> [Option<Entry>; WAYS] {
        let found = self.buckets[bucket & (self.buckets.len() - 1)].try_entries();
        found.unwrap_or([None; WAYS]).map(|entry| entry.map(strip))
    }

    /// The entries, bucket by bucket: each entry whole, the listing as a whole not at one instant.
    pub fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.buckets.iter().flat_map(|bucket| bucket.entries().into_iter().flatten()).map(strip)
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "the mask keeps 32 bits")]
    fn first(&self, at: BucketIndex) -> u32 {
        at.0 as u32 & self.mask
    }

    /// Never the first: the distance is odd.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "takes the other half")]
    fn second(&self, at: BucketIndex) -> u32 {
        self.first(at) ^ ((at.0 >> 32) as u32 & self.mask | 1)
    }

    #[inline(always)]
    fn bucket(&self, index: u32) -> &Bucket {
        // Masked again so that an index of another table, or a forged slot, stays inside.
        &self.buckets[(index & self.mask) as usize]
    }

    /// Holds both buckets of a key, taken in the order of their index so that two writers cannot block each other.
    fn lock_both(&self, at: BucketIndex) -> Option<Pair<'_>> {
        let (first, second) = (self.first(at), self.second(at));
        let low = self.bucket(first.min(second)).lock()?;
        let high = self.bucket(first.max(second)).lock()?;
        let (first, second) = if first < second { (low, high) } else { (high, low) };
        Some(Pair { first, second })
    }

    fn insert_in_pair(&self, at: BucketIndex, pair: &Pair<'_>, entry: Entry) -> Inserted {
        for bucket in [&pair.first, &pair.second] {
            if let Some(way) = bucket.way_of(entry.key) {
                return Inserted::Updated(bucket.replace(way, entry.value, entry.age));
            }
        }
        match self.place_for(at, pair) {
            Some((bucket, way)) => {
                bucket.put(way, entry);
                if std::ptr::eq(bucket, &pair.second) {
                    pair.first.count_displaced(true);
                }
                self.len.fetch_add(1, Ordering::Relaxed);
                Inserted::New
            }
            None => Inserted::Full,
        }
    }

    /// A free way in one of the two buckets, if need be by moving another entry out.
    fn place_for<'a>(&self, at: BucketIndex, pair: &'a Pair<'a>) -> Option<(&'a Locked<'a>, usize)> {
        let held = [self.first(at), self.second(at)];
        let candidates = [&pair.first, &pair.second];
        let vacant = candidates.into_iter().find_map(|bucket| Some((bucket, bucket.vacant()?)));
        vacant.or_else(|| {
            candidates
                .into_iter()
                .zip(held)
                .find_map(|(bucket, index)| Some((bucket, self.make_room(bucket, index, held)?)))
        })
    }

    /// Moves one entry of a full bucket, whose first bucket this is, to its second bucket. Returns the way that became
    /// free. `held` are the buckets that the caller holds.
    fn make_room(&self, bucket: &Locked<'_>, index: u32, held: [u32; 2]) -> Option<usize> {
        (0..WAYS).find(|&way| {
            let entry = bucket.entry(way);
            let at = self.hash(entry.key);
            let second = self.second(at);
            if self.first(at) != index || held.contains(&second) {
                return false;
            }
            // A single try: we hold other buckets, out of order.
            let Some(target) = self.bucket(second).try_lock() else { return false };
            let Some(free) = target.vacant() else { return false };
            target.put(free, entry);
            bucket.count_displaced(true);
            bucket.clear(way);
            true
        })
    }

    /// Runs `f` on the held bucket and way of `key`, and on its first bucket when it lives in its second. With `WAITS`
    /// it waits for other writers; without, it returns `None` where one holds a bucket of the key.
    fn with_entry<const WAITS: bool, R>(
        &self,
        key: u64,
        f: impl FnOnce(&Locked<'_>, usize, Option<&Locked<'_>>) -> R,
    ) -> Option<R> {
        let (at, key) = (self.hash(key), key | OCCUPIED);
        let first = self.bucket(self.first(at));
        let first = if WAITS { first.lock_patiently() } else { first.lock()? };
        if let Some(way) = first.way_of(key) {
            return Some(f(&first, way, None));
        }
        if first.displaced() == 0 {
            return None;
        }
        drop(first);
        let pair = loop {
            if let Some(pair) = self.lock_both(at) {
                break pair;
            }
            if !WAITS {
                return None;
            }
            yield_now();
        };
        if let Some(way) = pair.first.way_of(key) {
            return Some(f(&pair.first, way, None));
        }
        let way = pair.second.way_of(key)?;
        Some(f(&pair.second, way, Some(&pair.first)))
    }
}

struct Pair<'a> {
    first: Locked<'a>,
    second: Locked<'a>,
}

/// The entry under the caller's key.
fn strip(entry: Entry) -> Entry {
    Entry { key: entry.key & !OCCUPIED, ..entry }
}
