//! Look-up of several keys together (a burst), one subtable after the other.
//!
//! The results and the tracked bits equal those of [`Classifier::lookup`] and [`Classifier::lookup_tracked`].
//! In each subtable, a step of the search is done for all keys that have no result yet before the next step
//! begins. Therefore the memory reads for different keys overlap. Branches depend only on the number of keys,
//! not on the outcome for each key. The CPU therefore predicts the branches well.

use sync::hash::short;

use super::layout::{MOST_PREFIXES, field, or_field};
use super::partitions;
use super::search::missed;
use super::subtable::{NONE, Subtable, Word};
use super::terms::{MOST_TERMS, Terms};
use super::trie::{Reach, leading};
use super::{Classifier, Prefixes, Tracked};
use crate::buckets::{Buckets, HashCounts};
#[cfg(target_arch = "x86_64")]
use crate::simd::has_wide_words;

/// Maximum number of keys that are looked up together.
pub const BURST: usize = 32;

// Macros, because closures in iterators would become functions without the target features of
// `burst_in_wide_words`.

/// Runs a block of code for each key in a set of keys. The set is a bit mask in which bit `n` represents the key with
/// index `n`.
macro_rules! each {
    ($set:expr, |$at:ident| $what:expr) => {{
        let mut left: u32 = $set;
        while left != 0 {
            let $at = left.trailing_zeros() as usize % BURST;
            left &= left - 1;
            $what;
        }
    }};
}

/// Runs a block of code for each key in a bit mask of keys. If the mask contains more than half of the keys, runs the
/// block for all keys of the burst, which is faster.
macro_rules! most {
    ($set:expr, |$at:ident| $what:expr) => {{
        let set: u32 = $set;
        if set.count_ones() as usize * 2 > BURST {
            for $at in 0..BURST {
                $what;
            }
        } else {
            each!(set, |$at| $what);
        }
    }};
}

/// Returns the subset of the keys in a bit mask for which a condition holds, also as a bit mask. The condition may be
/// evaluated for other keys too.
macro_rules! only {
    ($set:expr, |$at:ident| $holds:expr) => {{
        let (set, mut some): (u32, u32) = ($set, 0);
        most!(set, |$at| some |= u32::from($holds) << $at);
        some & set
    }};
}

/// Cached results of prefix queries for the tracked prefix fields of the keys in a burst.
struct Fields {
    /// For each field, bit mask of the keys for which `values` and `bits` have been computed.
    known: [u32; MOST_PREFIXES],
    /// For each field and key: with octet granularity, the value of the field. With bit granularity, the lengths of the
    /// prefixes that match the field (bit `n - 1` represents length `n`).
    values: [[u128; BURST]; MOST_PREFIXES],
    /// For each field and key, number of leading bits of the field that the result of the prefix query depends on.
    bits: [[u32; BURST]; MOST_PREFIXES],
}

/// State of the look-up of a burst of keys.
struct Burst<'k, const W: usize> {
    keys: [&'k [u64; W]; BURST],
    sums: [u64; BURST],
    hashes: [u32; BURST],
    /// `products[n][k]` is the term that the shared mask word `n` ([`Terms`]) adds to the hash of key `k`. Row `n` is
    /// valid only if bit `n` of `known` is set.
    products: [[u64; BURST]; MOST_TERMS],
    known: u32,
}

/// Record of the key bits on which the results of a burst depend. The search adds bits to this
/// record.
struct Notes<'k, const W: usize> {
    /// For each key, the bits that the result depends on.
    wild: &'k mut [[u64; W]],
    fields: Fields,
}

/// Returns the subset of the keys in `set` whose hashes the multiset `counts` contains.
#[inline(always)]
fn counted(counts: &HashCounts, set: u32, hashes: &[u32; BURST]) -> u32 {
    let buckets = counts.buckets();
    let mut ways = [0; BURST];
    let maybe = maybe(buckets, set, hashes, &mut ways);
    if buckets.is_large() {
        each!(maybe, |at| buckets.prefetch_slot(buckets.slot(hashes[at], ways[at])));
    }
    let mut sure = 0;
    each!(maybe, |at| {
        sure |= u32::from(counts.is_at(buckets.slot(hashes[at], ways[at]), hashes[at])) << at;
    });
    // The hashes of these keys are in another way or in another group, or are absent.
    let mut others = 0;
    each!(maybe & !sure, |at| others |= u32::from(counts.contains(hashes[at])) << at);
    sure | others
}

/// Returns the subset of the keys in `set` whose hashes may be in the table `buckets`. For each of these keys, writes
/// to `ways` a bit mask of the places in the hash table that may hold the entry of the key.
#[inline(always)]
fn maybe(buckets: &Buckets, set: u32, hashes: &[u32; BURST], ways: &mut [u32; BURST]) -> u32 {
    if buckets.is_large() {
        most!(set, |at| buckets.prefetch(hashes[at]));
    }
    only!(set, |at| {
        let (own, is_maybe) = buckets.ways(hashes[at]);
        ways[at] = own;
        is_maybe
    })
}

impl<const W: usize> Burst<'_, W> {
    /// Continues the hash of each key in `set` over the given words of the key, which are masked first.
    #[inline(always)]
    fn add_hash(&mut self, set: u32, words: &[Word], terms: &Terms) {
        for word in words {
            if let Some(term) = terms.shared(word.term) {
                let products = &mut self.products[term];
                // The product is computed for all keys of the burst, because other subtables will need it for the other
                // keys.
                if self.known >> term & 1 == 0 {
                    self.known |= 1 << term;
                    (0..BURST).for_each(|at| products[at] = word.product(self.keys[at]));
                }
                (0..BURST).for_each(|at| self.sums[at] = self.sums[at].wrapping_add(products[at]));
            } else {
                most!(set, |at| self.sums[at] = self.sums[at].wrapping_add(word.product(self.keys[at])));
            }
        }
        (0..BURST).for_each(|at| self.hashes[at] = short(self.sums[at]));
    }
}

impl<const W: usize> Notes<'_, W> {
    #[inline(always)]
    fn depend(&mut self, set: u32, words: &[Word]) {
        for word in words {
            each!(set, |at| self.wild[at][word.at] |= word.mask);
        }
    }

    /// Removes from `set` each key for which a tracked field in this stage of the layout (metadata, L2, L3 or L4)
    /// proves that the subtable has no match. Returns the remaining keys. Records the field bits that prove this for
    /// each removed key.
    #[inline(always)]
    fn not_ruled_out<T>(
        &mut self,
        burst: &mut Burst<'_, W>,
        classifier: &Classifier<W, T>,
        subtable: &Subtable<W, T>,
        stage: usize,
        set: u32,
    ) -> u32 {
        let mut set = set;
        for (place, tracked) in classifier.tries.iter().enumerate() {
            let length = u32::from(subtable.lengths[place]);
            if length == 0 || tracked.stage != stage || !classifier.options.tracks(place) {
                continue;
            }
            self.fields.learn(burst, place, tracked, set);
            let (values, bits) = (&self.fields.values[place], &self.fields.bits[place]);
            let longer = only!(set, |at| length <= bits[at]);
            let left = match &tracked.prefixes {
                Prefixes::Bits(_) => {
                    only!(longer, |at| Reach { lengths: values[at], bits: bits[at] }.has(length))
                }
                Prefixes::Octets(sets) => {
                    let hash = sets.hash_of(length);
                    most!(longer, |at| burst.hashes[at] = hash(values[at]));
                    counted(sets.prefixes(), longer, &burst.hashes)
                }
            };
            each!(set & !left, |at| {
                or_field(&mut self.wild[at], tracked.octets, leading(bits[at].min(length)));
            });
            set = left;
        }
        set
    }

    /// Returns the keys of `set` that may match a rule in the subtable, according to the prefixes and to all stages
    /// (metadata, L2, L3 and L4) except the last. For each other key, records the bits that prove that no rule matches.
    #[inline(always)]
    fn stages<T>(
        &mut self,
        burst: &mut Burst<'_, W>,
        classifier: &Classifier<W, T>,
        subtable: &Subtable<W, T>,
        set: u32,
    ) -> u32 {
        let (mut set, mut done) = (set, 0);
        for (stage, cut) in subtable.cuts.into_iter().enumerate() {
            if cut == done {
                continue;
            }
            if classifier.options.prefixes {
                set = self.not_ruled_out(burst, classifier, subtable, stage, set);
            }
            burst.add_hash(set, &subtable.words[done..cut], &classifier.terms);
            done = cut;
            if classifier.options.staged && stage < subtable.last_stage {
                let left = counted(&subtable.stages[stage], set, &burst.hashes);
                self.depend(set & !left, &subtable.words[..cut]);
                set = left;
            }
            if set == 0 {
                break;
            }
        }
        set
    }
}

impl Fields {
    #[inline(always)]
    fn new() -> Fields {
        Fields {
            known: [0; MOST_PREFIXES],
            values: [[0; BURST]; MOST_PREFIXES],
            bits: [[0; BURST]; MOST_PREFIXES],
        }
    }

    /// Queries the prefixes of a field for each key in `set` that has no cached result yet, and caches the results.
    #[inline(always)]
    fn learn<const W: usize>(&mut self, burst: &mut Burst<'_, W>, place: usize, tracked: &Tracked, set: u32) {
        let new = set & !self.known[place];
        if new == 0 {
            return;
        }
        self.known[place] |= new;
        let (values, bits) = (&mut self.values[place], &mut self.bits[place]);
        each!(new, |at| values[at] = field(burst.keys[at], tracked.octets));
        match &tracked.prefixes {
            Prefixes::Bits(trie) => {
                each!(new, |at| Reach { lengths: values[at], bits: bits[at] } = trie.walk(values[at]));
            }
            Prefixes::Octets(sets) => {
                let (mut left, mut octets) = (new, 8);
                each!(new, |at| bits[at] = octets);
                for longer in sets.longer() {
                    let hash = sets.hash_of(octets);
                    most!(left, |at| burst.hashes[at] = hash(values[at]));
                    left = counted(longer, left, &burst.hashes);
                    octets += 8;
                    each!(left, |at| bits[at] = octets);
                    if left == 0 {
                        break;
                    }
                }
            }
        }
    }
}

impl<const W: usize, T> Classifier<W, T> {
    /// Looks up each key as [`Classifier::lookup`] does. Writes the result for each key to `found`.
    ///
    /// # Panics
    /// Panics if `found` has fewer entries than `keys`.
    pub fn lookup_burst<'a>(&'a self, keys: &[&[u64; W]], found: &mut [Option<(&'a T, u16)>]) {
        for (keys, found) in keys.chunks(BURST).zip(found[..keys.len()].chunks_mut(BURST)) {
            best_burst::<false, W, T>(self, keys, &mut [], found);
        }
    }

    /// Looks up each key as [`Classifier::lookup_tracked`] does. Sets in the key's entry of `wild` the bits on which
    /// the result for the key depends.
    ///
    /// # Panics
    /// Panics if `found` or `wild` has fewer entries than `keys`.
    pub fn lookup_burst_tracked<'a>(
        &'a self,
        keys: &[&[u64; W]],
        wild: &mut [[u64; W]],
        found: &mut [Option<(&'a T, u16)>],
    ) {
        let places = found[..keys.len()].chunks_mut(BURST).zip(wild[..keys.len()].chunks_mut(BURST));
        for (keys, (found, wild)) in keys.chunks(BURST).zip(places) {
            best_burst::<true, W, T>(self, keys, wild, found);
        }
    }

    /// Looks up at most [`BURST`] keys. If `TRACKED` is `false`, `wild` is not used.
    #[inline(always)]
    fn burst<'a, const TRACKED: bool>(
        &'a self,
        keys: &[&[u64; W]],
        wild: &mut [[u64; W]],
        found: &mut [Option<(&'a T, u16)>],
    ) {
        found.fill(None);
        let Some(first) = keys.first() else { return };
        let mut burst = Burst {
            keys: [first; BURST],
            sums: [0; BURST],
            hashes: [0; BURST],
            products: [[0; BURST]; MOST_TERMS],
            known: 0,
        };
        burst.keys[..keys.len()].copy_from_slice(keys);
        let mut notes = TRACKED.then(|| Notes { wild, fields: Fields::new() });
        let mut live = u32::MAX >> (BURST - keys.len());
        let mut here = [u64::MAX; BURST];
        if self.options.partitions {
            most!(live, |at| burst.hashes[at] = self.partitions.hash_of(burst.keys[at]));
            let some = maybe(self.partitions.index(), live, &burst.hashes, &mut [0; BURST]);
            here = [0; BURST];
            each!(some, |at| here[at] = self.partitions.bits_hashed(burst.hashes[at], burst.keys[at]));
        }
        // Priority of the best rule per key. -1 if there is none.
        let mut best = [-1_i32; BURST];
        for ranked in &self.order {
            if self.options.sorted {
                let highest = i32::from(ranked.highest);
                live = only!(live, |at| best[at] < highest);
                if live == 0 {
                    break;
                }
            }
            let Some(subtable) = &self.subtables[ranked.subtable as usize] else { continue };
            let mut set = live;
            if subtable.partitioned {
                let bit = partitions::bit(ranked.subtable);
                set = only!(live, |at| here[at] & bit != 0);
                if let Some(notes) = &mut notes {
                    let words = self.layout.partition();
                    each!(live & !set, |at| notes.wild[at][words.clone()].fill(u64::MAX));
                }
            }
            // The hash of zero words is the complete hash if the mask of the subtable is empty.
            (burst.sums, burst.hashes) = ([0; BURST], [0; BURST]);
            match &mut notes {
                Some(notes) => set = notes.stages(&mut burst, self, subtable, set),
                None => burst.add_hash(set, &subtable.words, &self.terms),
            }
            let mut ways = [0; BURST];
            let some = maybe(&subtable.index, set, &burst.hashes, &mut ways);
            let place = |at: usize| subtable.index.slot(burst.hashes[at], ways[at]);
            each!(some, |at| subtable.index.prefetch_slot(place(at)));
            each!(some, |at| subtable.prefetch_rule(place(at)));
            let mut hits = 0;
            each!(some, |at| {
                let first = subtable.find_hashed(burst.sums[at], burst.keys[at]).unwrap_or(NONE);
                hits |= u32::from(first != NONE) << at;
                subtable.better(first, &mut found[at], &mut |_, _| true);
                best[at] = found[at].map_or(-1, |(_, priority)| i32::from(priority));
            });
            if let Some(notes) = &mut notes {
                notes.depend(hits, &subtable.words);
                each!(set & !hits, |at| missed(self, subtable, burst.keys[at], &mut notes.wild[at]));
            }
        }
    }
}

/// Looks up keys like [`Classifier::burst`], but uses 256-bit words if the CPU has the instructions for such words
/// (AVX2).
#[allow(unsafe_code, reason = "calls what was compiled for a feature that the CPU has")]
#[inline]
fn best_burst<'a, const TRACKED: bool, const W: usize, T>(
    classifier: &'a Classifier<W, T>,
    keys: &[&[u64; W]],
    wild: &mut [[u64; W]],
    found: &mut [Option<(&'a T, u16)>],
) {
    #[cfg(target_arch = "x86_64")]
    if has_wide_words() {
        // SAFETY: The CPU has the features, which were checked above.
        return unsafe { burst_in_wide_words::<TRACKED, W, T>(classifier, keys, wild, found) };
    }
    classifier.burst::<TRACKED>(keys, wild, found);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn burst_in_wide_words<'a, const TRACKED: bool, const W: usize, T>(
    classifier: &'a Classifier<W, T>,
    keys: &[&[u64; W]],
    wild: &mut [[u64; W]],
    found: &mut [Option<(&'a T, u16)>],
) {
    classifier.burst::<TRACKED>(keys, wild, found);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layout, Octets, Options, Rule};

    #[test]
    fn both_twins_classify_the_same() {
        const WORDS: usize = 4;
        const LAYOUT: Layout<WORDS> =
            Layout::new([1, 2, 3, 4], &[Octets { from: 16, count: 4 }], &[24, 26], (0, 1));
        let mut rules = Classifier::new(LAYOUT, Options::default());
        let scattered = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let key = |number: u64| [number % 3, number % 50, scattered(number % 40), scattered(number % 99)];
        for number in 0..2000_u64 {
            let mask = std::array::from_fn(|word| match number >> (2 * word) & 3 {
                0 | 1 => 0,
                2 => u64::from(u32::MAX),
                _ => u64::MAX,
            });
            let priority = u16::try_from(number % 7).unwrap();
            rules.insert(Rule { value: key(number), mask, priority, payload: number }).unwrap();
        }
        let mut hits = 0;
        for from in 0..300 {
            let keys: Vec<[u64; WORDS]> = (0..from % 33).map(|at| key(from * 31 + at)).collect();
            let keys: Vec<&[u64; WORDS]> = keys.iter().collect();
            let mut found = [vec![None; keys.len()], vec![None; keys.len()]];
            let mut wild = [vec![[0; WORDS]; keys.len()], vec![[0; WORDS]; keys.len()]];
            best_burst::<true, WORDS, u64>(&rules, &keys, &mut wild[0], &mut found[0]);
            rules.burst::<true>(&keys, &mut wild[1], &mut found[1]);
            assert!(found[0] == found[1] && wild[0] == wild[1]);
            rules.burst::<false>(&keys, &mut [], &mut found[1]);
            assert_eq!(found[0], found[1]);
            best_burst::<false, WORDS, u64>(&rules, &keys, &mut [], &mut found[0]);
            assert_eq!(found[0], found[1]);
            hits += found[0].iter().flatten().count();
        }
        assert!(hits > 1000);
    }
}
