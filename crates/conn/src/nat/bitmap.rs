//! Sets of used numbers as trees of 64-bit words. A free number is found in constant time at any use.
//!
//! A word of level 0 has a bit for each of 64 numbers: 1 means that the number is used. A word of level 1 is the
//! summary of 64 words, a block of 4,096 numbers: 1 means that all numbers of the word are used. A word of each
//! further level is the summary of 64 words of the level below. For the 65,536 ports of an address, a search reads
//! words of three levels.
//!
//! Many sets share one hash table of words (see [`crate::nat::sparse`]). A set has a hash as its key. A word that is
//! zero takes no memory, so a set with one number takes one word of 16 bytes.
//!
//! Two sets or two words may have equal keys by chance. Words of different levels always have different keys. Each bit
//! of level 0 belongs to the number that has set the bit. Such a chance therefore makes free numbers look used. It
//! never makes a used number look free.

use sync::hash::WordHash;

use crate::nat::sparse::{Full, Words};

/// Number of levels. The numbers of a set are less than 64 to this power, 2^48.
const LEVELS: u32 = 8;
/// Largest number of words that one search reads. The search needs at most `2 * LEVELS` in consistent trees.
const READS: u32 = 4 * LEVELS;

/// Sets of used numbers.
#[derive(Debug)]
pub(crate) struct Bitmaps {
    words: Words,
    hash: WordHash,
    /// Number of words that searches for free numbers have read.
    reads: u64,
}

impl Bitmaps {
    /// Returns empty sets for at most `numbers` used numbers in all sets together.
    pub(crate) fn new(numbers: u32) -> Bitmaps {
        // Each number adds a word of level 0 at most. A word of level 1 takes the place of 64 numbers of one word.
        let limit = numbers.saturating_add(numbers / 32).saturating_add(LEVELS);
        Bitmaps { words: Words::new(limit), hash: WordHash::new(), reads: 0 }
    }

    /// Returns the memory of the sets in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.words.memory()
    }

    /// Returns the number of words that searches for free numbers have read since the creation.
    pub(crate) fn reads(&self) -> u64 {
        self.reads
    }

    /// Returns the smallest number of a set that is not used, at least `from` and less than `end`.
    pub(crate) fn find_free(&mut self, set: u64, from: u64, end: u64) -> Option<u64> {
        // `at` counts subtrees of this level. The search goes up from full words, and down to the first free number.
        let (mut level, mut at) = (0, from);
        for _ in 0..READS {
            if level >= LEVELS || at << (6 * level) >= end {
                return None;
            }
            self.reads += 1;
            let free = !self.words.get(self.key(set, level, at >> 6)) & u64::MAX << (at & 63);
            if free == 0 {
                (level, at) = (level + 1, (at >> 6) + 1);
                continue;
            }
            at = at & !63 | u64::from(free.trailing_zeros());
            if level == 0 {
                return Some(at).filter(|at| *at < end);
            }
            (level, at) = (level - 1, at << 6);
        }
        None
    }

    /// Returns whether a number of a set is used.
    pub(crate) fn is_used(&self, set: u64, number: u64) -> bool {
        self.words.get(self.key(set, 0, number >> 6)) >> (number & 63) & 1 != 0
    }

    /// Marks a number of a set as used.
    ///
    /// # Errors
    /// Returns an error if there is no memory for another number. Nothing is changed then.
    pub(crate) fn insert(&mut self, set: u64, number: u64) -> Result<(), Full> {
        if self.words.remaining() < LEVELS as usize {
            return Err(Full);
        }
        let mut at = number;
        for level in 0..LEVELS {
            let key = self.key(set, level, at >> 6);
            let word = self.words.get(key) | 1 << (at & 63);
            self.words.set(key, word)?;
            if word != u64::MAX {
                break;
            }
            at >>= 6;
        }
        Ok(())
    }

    /// Marks a number of a set as free. Does nothing if the number is free.
    pub(crate) fn remove(&mut self, set: u64, number: u64) {
        let mut at = number;
        for level in 0..LEVELS {
            let key = self.key(set, level, at >> 6);
            let word = self.words.get(key);
            // A word with another bit never needs a new slot.
            let _ = self.words.set(key, word & !(1 << (at & 63)));
            if word != u64::MAX {
                break;
            }
            at >>= 6;
        }
    }

    /// Returns the key of a word. The lowest three bits are the level.
    #[inline]
    fn key(&self, set: u64, level: u32, index: u64) -> u64 {
        let level = u64::from(level);
        self.hash.of([set, index << 3 | level]) & !7 | level
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Runs of numbers of different lengths are used and freed, so that words of several levels are full.
        #[test]
        fn the_sets_agree_with_naive_sets(
            steps in prop::collection::vec((0..2_u64, 0..20_000_u64, 0..9_000_u64, any::<bool>()), 1..12),
            searches in prop::collection::vec((0..20_000_u64, 0..30_000_u64), 8),
        ) {
            let mut bitmaps = Bitmaps::new(60_000);
            let mut sets = [BTreeSet::new(), BTreeSet::new()];
            for (set, from, len, is_insert) in steps {
                for number in from..from + len {
                    let naive = &mut sets[usize::try_from(set).unwrap()];
                    if is_insert {
                        prop_assert_eq!(bitmaps.insert(set, number), Ok(()));
                        naive.insert(number);
                    } else {
                        bitmaps.remove(set, number);
                        naive.remove(&number);
                    }
                }
                for (set, naive) in (0..).zip(&sets) {
                    for (from, end) in &searches {
                        let expected = (*from..*end).find(|number| !naive.contains(number));
                        prop_assert_eq!(bitmaps.find_free(set, *from, *end), expected);
                        prop_assert_eq!(bitmaps.is_used(set, *from), naive.contains(from));
                    }
                }
            }
            // Free sets take no memory.
            for (set, naive) in (0..).zip(&sets) {
                naive.iter().for_each(|number| bitmaps.remove(set, *number));
            }
            prop_assert_eq!(bitmaps.words.remaining(), 60_000 + 60_000 / 32 + 8);
        }
    }

    #[test]
    fn full_memory_refuses_a_number() {
        let mut bitmaps = Bitmaps::new(100);
        let inserted = (0..1000).take_while(|number| bitmaps.insert(*number, number << 20).is_ok()).count();
        assert!((100..=120).contains(&inserted), "{inserted}");
        bitmaps.remove(5, 5 << 20);
        assert_eq!(bitmaps.insert(7777, 1), Ok(()));
    }
}
