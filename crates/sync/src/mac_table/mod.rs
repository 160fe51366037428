//! MAC table of a bridge. The table maps a key (VLAN and MAC address in one word) to a value (the port) and an age. The
//! table has a fixed size, is shared by all workers, and consists only of atomics.
//!
//! The bridge code hashes the keys of a few frames and prefetches their buckets ([`Glancer`]) while it processes the
//! preceding frames. For each key, the bridge code first tries a single read ([`Glancer::glance`]). If this read does
//! not find the key, the bridge code does a full lookup ([`MacTable::lookup_at`]). The bridge code then refreshes the
//! entries of known source addresses, and inserts new source addresses.
//!
//! An entry is stored in one of two buckets of four entries. Each bucket is exactly one cache line. An
//! insertion uses the first bucket of the key if this bucket has space, and otherwise the second bucket. The
//! first bucket counts the entries that are stored in their second bucket. Therefore a lookup reads the
//! second bucket only if necessary.
//!
//! When both buckets are full, the insertion moves another entry from its first to its second bucket. If this
//! is not possible, the result is [`Inserted::Full`]. An insertion never evicts an entry.
//!
//! Invariants:
//! - A writer of key `k` locks the first bucket of `k` and every bucket that the writer changes. Therefore
//!   writers of one key are serialised, and a key is in the table at most once.
//! - An entry moves only from its first bucket to its second, while both are locked. A reader that saw a
//!   consistent first bucket without the key finds a moved entry in the second bucket.
//! - Readers never wait, and retry a bounded number of times. A lookup in a bucket whose writer was preempted is a
//!   miss. Writers on workers try for a bounded time and return [`Inserted::Busy`]. Writers on control threads wait.
//!
//! An age is the time of an entry's last refresh in seconds, modulo 2^16. Therefore a sweep must remove old entries
//! at least every few hours.

mod bucket;
mod entry;
mod hash;

use std::ops::Range;

use crate::cpu;
use crate::memory::vec_on_huge_pages;
use crate::primitives::{AtomicUsize, CachePadded, Ordering, yield_now};
pub use bucket::WAYS;
use bucket::{Bucket, Found, FoundEntry, Locked};
pub use entry::Entry;
use hash::Hasher;

/// Bit that is set in every stored key. Therefore no stored key equals 0, which marks an empty slot.
const OCCUPIED: u64 = 1 << 63;

/// Hash of a key, which determines the two buckets in which the entry of the key may be stored. The value is valid only
/// for the table that returned it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BucketIndex(u64);

/// Position of an entry in the table: the index of its bucket, and its index in the bucket. See [`MacTable::refresh`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    bucket: u32,
    way: u32,
}

impl Slot {
    /// Returns the index of the bucket that contains the entry: one of the two buckets that [`MacTable::buckets_of`]
    /// returns for the key.
    #[must_use]
    pub fn bucket(self) -> usize {
        self.bucket as usize
    }
}

/// Result of a successful lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// Value that the caller stored with the key.
    pub value: u32,
    /// Time of the last refresh, in seconds modulo 2^16.
    pub age: u16,
    /// Position of the entry, for [`MacTable::refresh`].
    pub slot: Slot,
}

impl Hit {
    #[inline(always)]
    fn new(entry: FoundEntry, bucket: u32) -> Self {
        Self { value: entry.value, age: entry.age, slot: Slot { bucket, way: entry.way } }
    }
}

/// Result of inserting a key into the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Inserted {
    /// The key was not in the table and was inserted.
    New,
    /// The key was already in the table, and its entry was updated. The field is the previous value.
    Updated(u32),
    /// The key is not in the table, and the table has no space for it. The table has not changed.
    Full,
    /// Another writer had the bucket locked during all attempts. The table has not changed. The caller can retry with
    /// the next packet.
    Busy,
}

/// A MAC table, which all workers share. See the module documentation.
#[derive(Debug)]
pub struct MacTable {
    buckets: Box<[Bucket]>,
    mask: u32,
    hasher: Hasher,
    len: CachePadded<AtomicUsize>,
}

/// Read access to a MAC table for tight loops over many keys. The value is small enough to stay in registers.
#[derive(Debug, Clone, Copy)]
pub struct Glancer<'a> {
    buckets: &'a [Bucket],
    mask: u32,
    hasher: Hasher,
}

impl Glancer<'_> {
    /// Returns the hash of a key, which determines its two buckets. The result equals that of [`MacTable::hash`].
    #[must_use]
    #[inline(always)]
    pub fn hash(&self, key: u64) -> BucketIndex {
        BucketIndex(self.hasher.hash(key | OCCUPIED))
    }

    /// Prefetches the cache line of the first bucket of a key.
    #[inline(always)]
    pub fn fetch(&self, at: BucketIndex) {
        cpu::prefetch_read(self.bucket(at));
    }

    /// Returns the value and the age of `key` if a single read of its first bucket finds the key. `None` does not mean
    /// that the key is absent. The caller must then call [`MacTable::lookup_at`].
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
    /// Returns a table for at least `entries` entries, hashed with `seed`. The table has at least twice as
    /// many slots. Therefore an insertion practically always succeeds while the table has no more than
    /// `entries` entries. The seed must be secret, because a sender that knows the seed can fill buckets of
    /// its choice. The table uses 32 to 64 bytes for each entry.
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

    /// Returns the hash of `key`, which determines the two buckets that may hold the entry. The method takes about a
    /// nanosecond and accesses no bucket.
    #[must_use]
    #[inline(always)]
    pub fn hash(&self, key: u64) -> BucketIndex {
        BucketIndex(self.hasher.hash(key | OCCUPIED))
    }

    /// Returns the hash of `key` like [`MacTable::hash`], and prefetches the cache line of the key's first bucket.
    /// Callers do this for all keys of a burst before the lookups.
    #[must_use]
    #[inline(always)]
    pub fn prefetch(&self, key: u64) -> BucketIndex {
        let at = self.hash(key);
        cpu::prefetch_read(self.bucket(self.first(at)));
        at
    }

    /// Returns read access to the table for tight loops over many keys.
    #[must_use]
    #[inline(always)]
    pub fn glancer(&self) -> Glancer<'_> {
        Glancer { buckets: &self.buckets, mask: self.mask, hasher: self.hasher }
    }

    /// Looks up `key`. Returns `None` if the key is not in the table.
    #[must_use]
    #[inline(always)]
    pub fn lookup(&self, key: u64) -> Option<Hit> {
        self.lookup_at(self.hash(key), key)
    }

    /// Looks up `key` with its hash `at`, the result of [`MacTable::hash`] or [`MacTable::prefetch`] for the key.
    /// Returns `None` if the key is not in the table.
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

    /// Stores `now` as the age of `key`, which a lookup found at `slot`. `now` is the current time in seconds modulo
    /// 2^16. The method writes to an entry at most once per second, when `now` differs from the stored age.
    #[inline]
    pub fn refresh(&self, slot: Slot, key: u64, now: u16) {
        self.bucket(slot.bucket).refresh(slot.way, key | OCCUPIED, now);
    }

    /// Inserts `key`, or updates the value and the age of its entry. Workers may call this method, because it
    /// does not wait.
    pub fn insert(&self, key: u64, value: u32, now: u16) -> Inserted {
        self.insert_at(self.hash(key), key, value, now)
    }

    /// Inserts `key` like [`MacTable::insert`]. `at` is the hash of the key, the result of [`MacTable::hash`].
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

    /// Changes the value of a key without changing its age. Returns the old value, or `None` if the key is
    /// not in the table. Only control threads may call this method, because it may wait for workers.
    pub fn update_value(&self, key: u64, value: u32) -> Option<u32> {
        self.with_entry::<true, _>(key, |bucket, way, _| {
            let age = bucket.entry(way).age;
            bucket.replace(way, value, age)
        })
    }

    /// Removes `key` and returns its value. Returns `None` if the key is not in the table. Only control
    /// threads may call this method, because it may wait for workers.
    pub fn remove(&self, key: u64) -> Option<u32> {
        self.remove_if(key, |_| true)
    }

    /// Removes `key` if `unwanted` returns `true` for its entry. Returns the value of the removed entry, or
    /// `None` if no entry was removed. Only control threads may call this method, because it may wait for
    /// workers.
    pub fn remove_if(&self, key: u64, unwanted: impl Fn(Entry) -> bool) -> Option<u32> {
        self.remove_entry::<true>(key, unwanted)
    }

    /// Removes `key` like [`MacTable::remove_if`], but does not wait. Therefore workers may call this method. Also
    /// returns `None` if another writer has locked a bucket of the key.
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

    /// Removes every entry in a range of buckets for which `keep` returns `false`. Ageing and flushes call this
    /// method with one range after the other, and thus process the table in bounded steps. `keep` may be called
    /// twice for an entry. Returns the number of entries removed. Only control threads may call this method,
    /// because it may wait for workers.
    pub fn sweep_range(&self, buckets: Range<usize>, keep: impl Fn(Entry) -> bool) -> usize {
        let end = buckets.end.min(self.buckets.len());
        let mut removed = 0;
        for bucket in self.buckets.get(buckets.start..end).unwrap_or(&[]) {
            for entry in bucket.entries().into_iter().flatten().map(strip) {
                // `keep` is called again under the lock, because the entry may have been refreshed meanwhile.
                if !keep(entry) && self.remove_if(entry.key, |entry| !keep(entry)).is_some() {
                    removed += 1;
                }
            }
        }
        removed
    }

    /// Removes every entry of the table for which `keep` returns `false`. See [`MacTable::sweep_range`].
    pub fn sweep(&self, keep: impl Fn(Entry) -> bool) -> usize {
        self.sweep_range(0..self.buckets.len(), keep)
    }

    /// Returns the number of entries in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Returns whether the table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of buckets in the table. [`MacTable::sweep_range`] accepts ranges up to this number.
    #[must_use]
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Returns the indexes of the first and the second bucket of `key`, for tests and for diagnosing a full
    /// bucket.
    #[must_use]
    pub fn buckets_of(&self, key: u64) -> [usize; 2] {
        let at = self.hash(key);
        [self.first(at) as usize, self.second(at) as usize]
    }

    /// Returns a consistent copy of the entries in one bucket. The method does not wait, so workers may call it. All
    /// entries are `None` if a writer has locked the bucket. The index `bucket` is taken modulo [`MacTable::buckets`].
    #[must_use]
    pub fn glimpse(&self, bucket: usize) -> [Option<Entry>; WAYS] {
        let found = self.buckets[bucket & (self.buckets.len() - 1)].try_entries();
        found.unwrap_or([None; WAYS]).map(|entry| entry.map(strip))
    }

    /// Returns an iterator over all entries, bucket by bucket. Each entry is consistent, but the entries are
    /// not read at one instant.
    pub fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.buckets.iter().flat_map(|bucket| bucket.entries().into_iter().flatten()).map(strip)
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "the mask keeps 32 bits")]
    fn first(&self, at: BucketIndex) -> u32 {
        at.0 as u32 & self.mask
    }

    /// Returns the index of the key's second bucket. This index differs from the index of the first bucket, at least in
    /// the lowest bit.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "takes the other half")]
    fn second(&self, at: BucketIndex) -> u32 {
        self.first(at) ^ ((at.0 >> 32) as u32 & self.mask | 1)
    }

    #[inline(always)]
    fn bucket(&self, index: u32) -> &Bucket {
        // The index is masked again, so that an index of another table, or a forged slot, stays in range.
        &self.buckets[(index & self.mask) as usize]
    }

    /// Locks both buckets of a key in the order of their indexes. Therefore two writers cannot deadlock. Returns
    /// `None` if another writer has locked one of the buckets.
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

    /// Returns one of the two buckets of a key, and a free slot in this bucket. If both buckets are full, moves an
    /// entry from one of them to that entry's second bucket. Returns `None` if no entry can be moved.
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

    /// Moves one entry of the full bucket `bucket` (its index is `index`) to the entry's second bucket. Only entries
    /// whose first bucket is this bucket can be moved. Returns the index of the slot that became free, or `None` if no
    /// entry can be moved. `held` contains the indexes of the buckets that the caller has locked.
    fn make_room(&self, bucket: &Locked<'_>, index: u32, held: [u32; 2]) -> Option<usize> {
        (0..WAYS).find(|&way| {
            let entry = bucket.entry(way);
            let at = self.hash(entry.key);
            let second = self.second(at);
            if self.first(at) != index || held.contains(&second) {
                return false;
            }
            // A single attempt, because this thread holds other buckets out of order.
            let Some(target) = self.bucket(second).try_lock() else { return false };
            let Some(free) = target.vacant() else { return false };
            target.put(free, entry);
            bucket.count_displaced(true);
            bucket.clear(way);
            true
        })
    }

    /// Calls `f` with the locked bucket that contains `key`, and the index of the slot in this bucket. If the entry is
    /// in the second bucket of `key`, `f` also gets the locked first bucket. If `WAITS` is `true`, the method waits for
    /// other writers. If `WAITS` is `false`, the method returns `None` if another writer has locked a bucket of the
    /// key.
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

/// Returns the entry with its key as the caller inserted it, without the [`OCCUPIED`] bit.
fn strip(entry: Entry) -> Entry {
    Entry { key: entry.key & !OCCUPIED, ..entry }
}
