//! A hash table from 32-bit hashes to 32-bit numbers, for owners who keep the keys elsewhere.
//!
//! A bucket is a cache line of seven hashes and the numbers beside them. What finds its bucket full goes to the next one that has
//! room, and each bucket that it passed counts it: a search ends at a bucket that nobody passed, nothing is left behind by what is
//! removed, and growing needs no key.

/// What [`Buckets::first`] gives where it finds nothing; it is not to be stored.
pub const NO_NUMBER: u32 = u32::MAX;
const WAYS: usize = 7;
/// Entries per bucket on average when the table grows. Then one in eight buckets is full.
const MOST_PER_BUCKET: usize = 5;

#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Bucket {
    hashes: [u32; WAYS],
    /// Entries that would belong here, or to a bucket before, and are in one behind.
    passed: u32,
    numbers: [u32; WAYS],
    /// A bit for each way that holds an entry.
    used: u32,
}

const _: () = assert!(size_of::<Bucket>() == 64);
const ALL_WAYS: u32 = (1 << WAYS) - 1;

impl Bucket {
    const EMPTY: Bucket = Bucket { hashes: [0; WAYS], passed: 0, numbers: [0; WAYS], used: 0 };

    /// A bit for each way that holds an entry of this hash.
    #[inline(always)]
    fn matches(&self, hash: u32) -> u32 {
        let mut matches = 0;
        for (way, stored) in self.hashes.iter().enumerate() {
            matches |= u32::from(*stored == hash) << way;
        }
        matches & self.used
    }
}

/// A place in the table: bucket and way.
type Place = (usize, usize);

/// See the [module](self). Several entries may have the same hash.
#[derive(Clone, Debug)]
pub struct Buckets {
    /// A power of two of them.
    buckets: Vec<Bucket>,
    len: usize,
}

#[inline(always)]
fn way_of(bits: u32) -> usize {
    bits.trailing_zeros() as usize % WAYS
}

impl Buckets {
    pub fn new() -> Buckets {
        Buckets { buckets: vec![Bucket::EMPTY], len: 0 }
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.buckets.capacity() * size_of::<Bucket>()
    }

    #[inline(always)]
    fn next(&self, at: usize) -> usize {
        at.wrapping_add(1) & (self.buckets.len() - 1)
    }

    #[inline(always)]
    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    /// The number stored under this hash that is the one.
    #[inline(always)]
    pub fn find(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let bucket = &self.buckets[self.home(hash)];
        let mut matches = bucket.matches(hash);
        while matches != 0 {
            let number = bucket.numbers[way_of(matches)];
            if is(number) {
                return Some(number);
            }
            matches &= matches - 1;
        }
        if bucket.passed == 0 { None } else { self.find_behind(hash, is) }
    }

    /// Fetches what a search for this hash reads first.
    #[inline(always)]
    pub fn prefetch(&self, hash: u32) {
        sync::cpu::prefetch_read(&self.buckets[self.home(hash)]);
    }

    /// A number that is stored under this hash in the first bucket that it can be in; [`NO_NUMBER`] if there is none.
    #[inline(always)]
    pub fn first(&self, hash: u32) -> u32 {
        let bucket = &self.buckets[self.home(hash)];
        let matches = bucket.matches(hash);
        // Chosen without a branch: which way it is nobody can foresee.
        let number = bucket.numbers[way_of(matches)];
        if matches == 0 { NO_NUMBER } else { number }
    }

    /// Whether what [`Buckets::first`] gave is all that is stored under this hash.
    #[inline(always)]
    pub fn is_all(&self, hash: u32, first: u32) -> bool {
        first == NO_NUMBER && self.buckets[self.home(hash)].passed == 0
    }

    /// The search in the buckets behind the first.
    #[cold]
    fn find_behind(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        while self.buckets[at].passed != 0 {
            at = self.next(at);
            let bucket = &self.buckets[at];
            let mut matches = bucket.matches(hash);
            while matches != 0 {
                let number = bucket.numbers[way_of(matches)];
                if is(number) {
                    return Some(number);
                }
                matches &= matches - 1;
            }
        }
        None
    }

    /// Where an entry is.
    fn place(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Option<Place> {
        let mut at = self.home(hash);
        loop {
            let bucket = &self.buckets[at];
            let mut matches = bucket.matches(hash);
            while matches != 0 {
                let way = way_of(matches);
                if is(bucket.numbers[way]) {
                    return Some((at, way));
                }
                matches &= matches - 1;
            }
            if bucket.passed == 0 {
                return None;
            }
            at = self.next(at);
        }
    }

    /// Adds an entry.
    pub fn insert(&mut self, hash: u32, number: u32) {
        if self.len >= self.buckets.len() * MOST_PER_BUCKET {
            self.grow();
        }
        self.put(hash, number);
        self.len += 1;
    }

    fn put(&mut self, hash: u32, number: u32) {
        let mut at = self.home(hash);
        // There are more ways than entries.
        while self.buckets[at].used == ALL_WAYS {
            self.buckets[at].passed += 1;
            at = self.next(at);
        }
        let bucket = &mut self.buckets[at];
        let way = way_of(!bucket.used);
        bucket.used |= 1 << way;
        bucket.hashes[way] = hash;
        bucket.numbers[way] = number;
    }

    fn grow(&mut self) {
        let larger = vec![Bucket::EMPTY; self.buckets.len() * 2];
        for bucket in std::mem::replace(&mut self.buckets, larger) {
            let mut used = bucket.used;
            while used != 0 {
                let way = way_of(used);
                self.put(bucket.hashes[way], bucket.numbers[way]);
                used &= used - 1;
            }
        }
    }

    /// Puts another number in the place of one.
    pub fn replace(&mut self, hash: u32, old: u32, new: u32) {
        if let Some((at, way)) = self.place(hash, |number| number == old) {
            self.buckets[at].numbers[way] = new;
        }
    }

    /// Removes an entry; whether it was there.
    pub fn remove(&mut self, hash: u32, number: u32) -> bool {
        let Some((end, way)) = self.place(hash, |stored| stored == number) else { return false };
        self.buckets[end].used &= !(1 << way);
        let mut at = self.home(hash);
        while at != end {
            self.buckets[at].passed -= 1;
            at = self.next(at);
        }
        self.len -= 1;
        true
    }
}

/// How often each of many hashes is there.
#[derive(Clone, Debug)]
pub struct HashCounts(Buckets);

impl HashCounts {
    pub fn new() -> HashCounts {
        HashCounts(Buckets::new())
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.0.memory()
    }

    #[inline(always)]
    pub fn contains(&self, hash: u32) -> bool {
        self.0.find(hash, |_| true).is_some()
    }

    pub fn add(&mut self, hash: u32) {
        match self.0.place(hash, |_| true) {
            Some((at, way)) => self.0.buckets[at].numbers[way] += 1,
            None => self.0.insert(hash, 1),
        }
    }

    pub fn remove(&mut self, hash: u32) {
        let Some((at, way)) = self.0.place(hash, |_| true) else { return };
        match self.0.buckets[at].numbers[way] {
            1 => {
                self.0.remove(hash, 1);
            }
            count => self.0.buckets[at].numbers[way] = count - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Hashes are drawn from few, so that buckets run over into others.
        #[test]
        fn entries_are_found_until_they_are_removed(
            ops in prop::collection::vec((any::<bool>(), 0_u32..6, 0_u32..40), 1..400),
        ) {
            let mut buckets = Buckets::new();
            let mut oracle = BTreeSet::new();
            for (insert, hash, number) in ops {
                if insert {
                    if oracle.insert((hash, number)) {
                        buckets.insert(hash, number);
                    }
                } else {
                    prop_assert_eq!(buckets.remove(hash, number), oracle.remove(&(hash, number)));
                }
                for hash in 0..6 {
                    for number in 0..40 {
                        let found = buckets.find(hash, |stored| stored == number).is_some();
                        prop_assert_eq!(found, oracle.contains(&(hash, number)));
                    }
                }
            }
            for (hash, number) in oracle {
                prop_assert!(buckets.remove(hash, number));
            }
            prop_assert!(buckets.len == 0);
            prop_assert!(buckets.buckets.iter().all(|bucket| bucket.used == 0 && bucket.passed == 0));
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
}
