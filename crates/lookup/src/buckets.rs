//! A hash table that maps 32-bit hashes to 32-bit numbers. The table does not store keys. The code that uses the table
//! stores them elsewhere, for example in an array in which the numbers are indexes.
//!
//! Entries are stored in groups of fifteen ways (places for an entry). A group has an 8-bit tag for each way, which is
//! taken from the hash of the entry. One comparison of sixteen octets therefore decides whether the group may hold a
//! hash. A search for an absent hash, the common case in a search under many masks, reads only tags. Even the tags of a
//! large table fit in a small CPU cache.
//!
//! An entry whose group is full is stored in the next group with space. Each group between the entry's own group and
//! the group that stores the entry (the own group included) counts the entry as passed. A search ends at a group that
//! no entry passed. Removals leave no tombstones, and growing the table needs no keys.

use sync::cpu::prefetch_read;
use sync::memory::advise_huge_pages;

use crate::simd;

/// Number that [`Buckets::number_at`] returns for [`Slot::NONE`]. Callers must not insert an entry with this
/// number.
pub const NO_NUMBER: u32 = u32::MAX;
const WAYS: usize = 15;
/// Minimum number of groups of a large table. The tags of a large table (16 bytes for each group) do not stay in the L1
/// cache. Therefore searches prefetch the tags.
const LARGE: usize = 256;
/// Average number of entries per group at which the table doubles its number of groups. At this load, one in twenty
/// groups is full.
const MOST_PER_GROUP: usize = 10;

/// Tags of one group: one octet for each of the fifteen ways (places for an entry). The tag 0 marks a free way. The
/// sixteenth (highest) octet holds the number of entries that passed the group: entries that belong to this group or an
/// earlier one, but are stored in a later one. The number saturates at 255.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
struct Tags([u64; 2]);

/// Returns a vector of `len` clones of `with`, on huge pages if the vector is large.
fn filled<T: Clone>(len: usize, with: T) -> Vec<T> {
    let mut all = Vec::with_capacity(len);
    advise_huge_pages(all.spare_capacity_mut());
    all.resize(len, with);
    all
}

/// Reserves space in a vector for `more` additional elements. A large vector is placed on huge pages, in order to avoid
/// a TLB miss for each random read.
pub fn make_room<T>(all: &mut Vec<T>, more: usize) {
    if all.capacity() - all.len() < more {
        let mut larger = Vec::with_capacity((2 * all.capacity()).max(all.len() + more));
        advise_huge_pages(larger.spare_capacity_mut());
        larger.append(all);
        *all = larger;
    }
}

const PASSED: u32 = 56;
const ALL_WAYS: u32 = (1 << WAYS) - 1;

impl Tags {
    /// Returns a bit mask of the ways (places for an entry) of the group that have this tag. Bit `n` represents way
    /// `n`.
    #[inline(always)]
    fn ways(self, tag: u8) -> u32 {
        simd::octets_that_are(self.0, tag) & ALL_WAYS
    }

    #[inline(always)]
    fn passed(self) -> u8 {
        self.0[1].to_le_bytes()[7]
    }

    fn set_passed(&mut self, passed: u8) {
        self.0[1] = self.0[1] & !(0xff << PASSED) | u64::from(passed) << PASSED;
    }

    fn set(&mut self, way: usize, tag: u8) {
        let shift = way % 8 * 8;
        let word = &mut self.0[way / 8];
        *word = *word & !(0xff << shift) | u64::from(tag) << shift;
    }
}

/// Returns the index of the first way (place for an entry in a group) in a bit mask that [`Tags::ways`] returned.
#[inline(always)]
fn first_way(ways: u32) -> usize {
    ways.trailing_zeros() as usize
}

/// Returns the 8-bit tag of a hash: its highest eight bits. The lowest bits select the group.
#[inline(always)]
fn tag(hash: u32) -> u8 {
    // A tag must not be 0, because 0 marks a free way.
    hash.to_le_bytes()[3].max(1)
}

/// Position of an entry in a [`Buckets`] table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u32);

impl Slot {
    /// Value that denotes no position.
    pub const NONE: Slot = Slot(u32::MAX);
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    hash: u32,
    number: u32,
}

/// Hash table that maps hashes to numbers. See the [module](self). Several entries may have equal hashes.
#[derive(Clone, Debug)]
pub struct Buckets {
    /// Tags of each group. The number of groups is a power of two.
    tags: Vec<Tags>,
    entries: Vec<Entry>,
    len: usize,
}

impl Buckets {
    pub fn new() -> Buckets {
        Buckets::with_groups(1)
    }

    fn with_groups(groups: usize) -> Buckets {
        Buckets {
            tags: filled(groups, Tags([0; 2])),
            entries: filled(groups * WAYS, Entry::default()),
            len: 0,
        }
    }

    /// Returns the memory use of the table in bytes.
    pub fn memory(&self) -> usize {
        self.tags.capacity() * size_of::<Tags>() + self.entries.capacity() * size_of::<Entry>()
    }

    #[inline(always)]
    fn next(&self, group: usize) -> usize {
        group.wrapping_add(1) & (self.tags.len() - 1)
    }

    #[inline(always)]
    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.tags.len() - 1)
    }

    /// Prefetches the memory that a search for `hash` reads first.
    #[inline(always)]
    pub fn prefetch(&self, hash: u32) {
        prefetch_read(&self.tags[self.home(hash)]);
    }

    /// Returns the most probable position of an entry with this hash, and whether the table may contain such an entry.
    /// The method compares only tags. Therefore the entry at the position may have another hash.
    #[inline(always)]
    pub fn glance(&self, hash: u32) -> (Slot, bool) {
        let (ways, is_maybe) = self.ways(hash);
        (self.slot(hash, ways), is_maybe)
    }

    /// Returns a bit mask of the ways (places for an entry) in the group of `hash` whose tags match `hash`, and whether
    /// the table may contain an entry with this hash. Bit `n` represents way `n`.
    #[inline(always)]
    pub fn ways(&self, hash: u32) -> (u32, bool) {
        let tags = self.tags[self.home(hash)];
        let ways = tags.ways(tag(hash));
        (ways, (ways != 0) | (tags.passed() != 0))
    }

    /// Returns the position of the first way (place for an entry) in the bit mask `ways`. The ways belong to the group
    /// of `hash`.
    #[inline(always)]
    pub fn slot(&self, hash: u32, ways: u32) -> Slot {
        // The conversion does not fail, because a table has fewer than 2^32 ways.
        let slot = u32::try_from(self.home(hash) * WAYS + first_way(ways)).unwrap_or(u32::MAX);
        if ways == 0 { Slot::NONE } else { Slot(slot) }
    }

    /// Returns whether the table is so large that prefetching reduces the time of a search.
    #[inline(always)]
    pub fn is_large(&self) -> bool {
        self.tags.len() >= LARGE
    }

    /// Prefetches the entry at a position.
    #[inline(always)]
    pub fn prefetch_slot(&self, slot: Slot) {
        if let Some(entry) = self.entries.get(slot.0 as usize) {
            prefetch_read(entry);
        }
    }

    /// Returns the number of the entry at a position. Returns [`NO_NUMBER`] for [`Slot::NONE`].
    #[inline(always)]
    pub fn number_at(&self, slot: Slot) -> u32 {
        self.entries.get(slot.0 as usize).map_or(NO_NUMBER, |entry| entry.number)
    }

    /// Returns the number of the entry that has this hash and whose number the function `is` accepts. Returns `None` if
    /// there is no such entry.
    #[inline(always)]
    pub fn find(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let group = self.home(hash);
        let tags = self.tags[group];
        if let Some(way) = self.way(group, tags, hash, &mut is) {
            return Some(self.entries[group * WAYS + way].number);
        }
        if tags.passed() == 0 {
            return None;
        }
        self.place_behind(hash, is).map(|at| self.entries[at].number)
    }

    /// Searches one group for the entry that has the hash and whose number `is` accepts. Returns the index of the
    /// entry's way (place in the group), or `None` if the group has no such entry.
    #[inline(always)]
    fn way(&self, group: usize, tags: Tags, hash: u32, is: &mut impl FnMut(u32) -> bool) -> Option<usize> {
        let mut ways = tags.ways(tag(hash));
        while ways != 0 {
            let way = first_way(ways);
            let entry = self.entries[group * WAYS + way];
            if entry.hash == hash && is(entry.number) {
                return Some(way);
            }
            ways &= ways - 1;
        }
        None
    }

    /// Searches the groups after the first group of a hash. Returns the index in `entries` of the entry that has the
    /// hash and whose number `is` accepts. Returns `None` if there is no such entry.
    #[cold]
    fn place_behind(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Option<usize> {
        let mut group = self.home(hash);
        while self.tags[group].passed() != 0 {
            group = self.next(group);
            if let Some(way) = self.way(group, self.tags[group], hash, &mut is) {
                return Some(group * WAYS + way);
            }
            if group == self.home(hash) {
                break;
            }
        }
        None
    }

    /// Returns the index in `entries` of the entry that has this hash and whose number `is` accepts. Returns `None` if
    /// there is no such entry.
    fn place(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Option<usize> {
        let group = self.home(hash);
        match self.way(group, self.tags[group], hash, &mut is) {
            Some(way) => Some(group * WAYS + way),
            None => self.place_behind(hash, is),
        }
    }

    /// Adds an entry that maps `hash` to `number`.
    pub fn insert(&mut self, hash: u32, number: u32) {
        if self.len >= self.tags.len() * MOST_PER_GROUP {
            let old = std::mem::replace(self, Buckets::with_groups(self.tags.len() * 2));
            for (group, tags) in old.tags.iter().enumerate() {
                let free = tags.ways(0);
                for way in (0..WAYS).filter(|way| free >> way & 1 == 0) {
                    self.put(old.entries[group * WAYS + way]);
                }
            }
        }
        self.put(Entry { hash, number });
    }

    fn put(&mut self, entry: Entry) {
        let mut group = self.home(entry.hash);
        // The loop ends, because there are more ways than entries.
        let way = loop {
            let tags = &mut self.tags[group];
            let free = tags.ways(0);
            if free != 0 {
                break first_way(free);
            }
            tags.set_passed(tags.passed().saturating_add(1));
            group = self.next(group);
        };
        self.tags[group].set(way, tag(entry.hash));
        self.entries[group * WAYS + way] = entry;
        self.len += 1;
    }

    /// In the entry with this hash and the number `old`, replaces the number with `new`.
    pub fn replace(&mut self, hash: u32, old: u32, new: u32) {
        if let Some(at) = self.place(hash, |number| number == old) {
            self.entries[at].number = new;
        }
    }

    /// Removes the entry that maps `hash` to `number`. Returns whether the entry existed.
    pub fn remove(&mut self, hash: u32, number: u32) -> bool {
        let Some(at) = self.place(hash, |stored| stored == number) else { return false };
        self.clear(at);
        true
    }

    fn clear(&mut self, at: usize) {
        self.tags[at / WAYS].set(at % WAYS, 0);
        let mut group = self.home(self.entries[at].hash);
        while group != at / WAYS {
            let passed = self.tags[group].passed();
            self.tags[group].set_passed(if passed == u8::MAX { passed } else { passed - 1 });
            group = self.next(group);
        }
        self.len -= 1;
    }
}

/// A multiset of hashes: it counts how often each hash was inserted.
#[derive(Clone, Debug)]
pub struct HashCounts(Buckets);

impl HashCounts {
    pub fn new() -> HashCounts {
        HashCounts(Buckets::new())
    }

    /// Returns the memory use of the multiset in bytes.
    pub fn memory(&self) -> usize {
        self.0.memory()
    }

    /// Prefetches the memory that a query about `hash` reads first.
    #[inline(always)]
    pub fn prefetch(&self, hash: u32) {
        self.0.prefetch(hash);
    }

    /// Returns the table that holds the hashes.
    #[inline(always)]
    pub fn buckets(&self) -> &Buckets {
        &self.0
    }

    /// Returns whether the entry at this position of [`HashCounts::buckets`] has this hash.
    #[inline(always)]
    pub fn is_at(&self, slot: Slot, hash: u32) -> bool {
        self.0.entries.get(slot.0 as usize).is_some_and(|entry| entry.hash == hash)
    }

    #[inline(always)]
    pub fn contains(&self, hash: u32) -> bool {
        self.0.find(hash, |_| true).is_some()
    }

    pub fn add(&mut self, hash: u32) {
        match self.0.place(hash, |_| true) {
            Some(at) => self.0.entries[at].number += 1,
            None => self.0.insert(hash, 1),
        }
    }

    pub fn remove(&mut self, hash: u32) {
        let Some(at) = self.0.place(hash, |_| true) else { return };
        match self.0.entries[at].number {
            1 => self.0.clear(at),
            count => self.0.entries[at].number = count - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Checks that entries are found from their insertion until their removal. The hashes come from a small set, so
        /// that groups become full and entries are stored in later groups.
        #[test]
        fn entries_are_found_until_they_are_removed(
            ops in prop::collection::vec((any::<bool>(), 0_u32..6, 0_u32..60), 1..500),
        ) {
            let mut buckets = Buckets::new();
            let mut oracle = BTreeSet::new();
            for (insert, hash, number) in ops {
                let hash = (hash << 24) | (hash % 3);
                if insert {
                    if oracle.insert((hash, number)) {
                        buckets.insert(hash, number);
                    }
                } else {
                    prop_assert_eq!(buckets.remove(hash, number), oracle.remove(&(hash, number)));
                }
                prop_assert_eq!(buckets.len, oracle.len());
                for hash in (0..6).map(|hash| (hash << 24) | (hash % 3)) {
                    for number in 0..60 {
                        let found = buckets.find(hash, |stored| stored == number).is_some();
                        prop_assert_eq!(found, oracle.contains(&(hash, number)));
                        let (slot, any) = buckets.glance(hash);
                        prop_assert!(any || !found);
                        prop_assert!(slot == Slot::NONE || buckets.number_at(slot) < 60);
                    }
                }
            }
            for (hash, number) in oracle {
                prop_assert!(buckets.remove(hash, number));
            }
            prop_assert!(buckets.len == 0);
            prop_assert!(buckets.tags.iter().all(|Tags(words)| *words == [0; 2]));
        }

        #[test]
        fn counts_end_where_they_began(hashes in prop::collection::vec(0_u32..50, 0..300)) {
            let mut counts = HashCounts::new();
            for hash in &hashes {
                counts.add(*hash);
            }
            for (at, hash) in hashes.iter().enumerate() {
                prop_assert!(counts.contains(*hash));
                counts.remove(*hash);
                prop_assert_eq!(counts.contains(*hash), hashes[at + 1..].contains(hash));
            }
            prop_assert!(counts.0.len == 0);
        }
    }

    /// Returns the maximum number of groups that a search for a hash reads.
    fn walk(buckets: &Buckets, hash: u32) -> usize {
        let (mut group, mut groups) = (buckets.home(hash), 1);
        while buckets.tags[group].passed() != 0 && groups < buckets.tags.len() {
            (group, groups) = (buckets.next(group), groups + 1);
        }
        groups
    }

    /// Checks that no set of keys that an attacker could choose leads to long searches. The attacker knows the hash
    /// function but not its secrets. The keys of a set differ in a few bits, at either end of any word.
    #[test]
    fn no_choice_of_keys_makes_long_searches() {
        use sync::hash::{Secrets, fold, short};
        const KEYS: u64 = 1 << 14;
        let families: [fn(u64) -> [u64; 2]; 8] = [
            |n| [n, 0],
            |n| [0, n],
            |n| [n << 50, 0],
            |n| [0, n << 50],
            |n| [n, n],
            |n| [n, !n],
            |n| [n.reverse_bits(), n],
            |n| [1 << (n % 64), n / 64],
        ];
        for _ in 0..8 {
            let secrets = Secrets::new();
            let [first, second] = [secrets.of(0), secrets.of(1)];
            for (family, key) in families.iter().enumerate() {
                let hash = |n: u64| {
                    let [one, other] = key(n);
                    short(fold(one ^ first.add, other ^ second.multiply))
                };
                let mut buckets = Buckets::new();
                (0..KEYS).for_each(|n| buckets.insert(hash(n), u32::try_from(n).unwrap()));
                let longest = (0..KEYS).map(|n| walk(&buckets, hash(n))).max().unwrap();
                assert!(longest <= 16, "family {family}: {longest} groups");
            }
        }
    }

    /// Checks that keys that collide with the secrets of one table do not collide with the secrets of another table.
    /// Therefore an attacker cannot find such keys by a search in a separate process.
    #[test]
    fn keys_that_collide_here_do_not_elsewhere() {
        use sync::hash::{Secret, Secrets, fold, short};
        let mut met = 0;
        for _ in 0..4 {
            let [ours, theirs] = [Secrets::new().of(0), Secrets::new().of(0)];
            let hash = |own: Secret, n: u64| short(fold(n ^ own.add, own.multiply)) & 0xfff;
            // A thousand keys that belong to one of 4,096 groups.
            let colliding: Vec<u64> = (0..).filter(|n| hash(ours, *n) == 7).take(1000).collect();
            let groups: BTreeSet<u32> = colliding.iter().map(|n| hash(theirs, *n)).collect();
            met += groups.len();
        }
        assert!(met > 4 * 700, "{met} groups of 4,096 for 4,000 keys");
    }

    #[test]
    fn what_hundreds_have_passed_stays_passed() {
        let mut buckets = Buckets::new();
        for number in 0..1000 {
            buckets.insert(7, number);
        }
        assert!((0..1000).all(|number| buckets.remove(7, number)));
        assert_eq!(buckets.find(7, |_| true), None);
        buckets.insert(7, 5);
        assert_eq!(buckets.find(7, |number| number == 5), Some(5));
    }
}
