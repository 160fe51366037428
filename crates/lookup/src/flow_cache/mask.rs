//! One mask of the flow cache, and the hash table of the flows that have this mask.

use sync::hash::{Secret, Secrets, fold, short};

use crate::buckets::Buckets;

/// Number of 64-bit words in the key of a packet.
pub const KEY_WORDS: usize = 8;

/// Two words of a key that are hashed together. If the mask has bits in an odd number of words, the last pair contains
/// the last word twice, the second time with an empty mask.
#[derive(Clone, Copy, Debug)]
struct Pair {
    at: [usize; 2],
    mask: [u64; 2],
    add: [u64; 2],
}

/// A mask and the hash table of the flows that have this mask. See the [module](self).
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Mask<const X: usize> {
    key: [u64; KEY_WORDS],
    pairs: [Pair; KEY_WORDS / 2],
    /// Number of word pairs in which the mask has bits, at least 1. If the mask is empty, there is one pair
    /// with empty masks.
    used: usize,
    has_beyond: bool,
    pub index: Buckets,
    pub flows: u32,
    extended: [u64; X],
    beyond_secrets: [Secret; X],
}

impl<const X: usize> Mask<X> {
    pub fn new(secrets: &Secrets, key: &[u64; KEY_WORDS], extended: &[u64; X]) -> Self {
        let words: Vec<usize> = (0..KEY_WORDS).filter(|at| key[*at] != 0).collect();
        let mut pairs = [Pair { at: [0; 2], mask: [0; 2], add: [secrets.of(0).add; 2] }; KEY_WORDS / 2];
        for (pair, words) in pairs.iter_mut().zip(words.chunks(2)) {
            let (first, second) = (words[0], *words.last().unwrap_or(&words[0]));
            pair.at = [first, second];
            pair.mask = [key[first], if first == second { 0 } else { key[second] }];
            pair.add = [secrets.of(first).add, secrets.of(second).multiply];
        }
        Mask {
            key: *key,
            pairs,
            used: words.len().div_ceil(2).max(1),
            has_beyond: extended.iter().any(|word| *word != 0),
            index: Buckets::new(),
            flows: 0,
            extended: *extended,
            beyond_secrets: std::array::from_fn(|at| secrets.of(KEY_WORDS + at)),
        }
    }

    /// Returns the hash of a mask. The flow cache uses this hash to find the index of the mask.
    pub fn number_hash(secrets: &Secrets, key: &[u64; KEY_WORDS], extended: &[u64; X]) -> u32 {
        let Secret { add, multiply } = secrets.of(KEY_WORDS + X);
        short(key.iter().chain(extended).fold(0, |hash, word| fold(hash ^ word ^ add, multiply)))
    }

    pub fn is(&self, key: &[u64; KEY_WORDS], extended: &[u64; X]) -> bool {
        self.key == *key && self.extended == *extended
    }

    pub fn words(&self) -> ([u64; KEY_WORDS], [u64; X]) {
        (self.key, self.extended)
    }

    /// Returns the memory use of the mask and its hash table in bytes.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.index.memory()
    }

    /// Returns whether the mask has bits in the extended key (the key words that few flows match).
    #[inline(always)]
    pub fn has_beyond(&self) -> bool {
        X != 0 && self.has_beyond
    }

    pub fn key_of(&self, key: &[u64; KEY_WORDS]) -> [u64; KEY_WORDS] {
        std::array::from_fn(|at| key[at] & self.key[at])
    }

    #[inline(always)]
    pub fn beyond_of(&self, extended: &[u64; X]) -> [u64; X] {
        std::array::from_fn(|at| extended[at] & self.extended[at])
    }

    /// Returns whether a key equals `masked` after the mask is applied to the key.
    #[inline(always)]
    pub fn matches(&self, key: &[u64; KEY_WORDS], masked: &[u64; KEY_WORDS]) -> bool {
        // No early exit, because a mispredicted branch costs more.
        (0..KEY_WORDS).fold(0, |other, at| other | (key[at] & self.key[at] ^ masked[at])) == 0
    }

    /// Returns the number of pairs of key words that the hash covers, 1 to 4.
    pub fn pairs(&self) -> usize {
        self.used
    }

    /// Returns the hash of a packet's key words and extended key words under the mask.
    pub fn hash(&self, key: &[u64; KEY_WORDS], extended: impl FnOnce() -> [u64; X]) -> u32 {
        match self.used {
            1 => self.hash_pairs::<1>(key, extended),
            2 => self.hash_pairs::<2>(key, extended),
            3 => self.hash_pairs::<3>(key, extended),
            _ => self.hash_pairs::<4>(key, extended),
        }
    }

    /// Returns the hash like [`Mask::hash`], for a mask that has `PAIRS` pairs. A caller that selects `PAIRS` once for
    /// many packets avoids a loop over the pairs for each packet.
    #[inline(always)]
    pub fn hash_pairs<const PAIRS: usize>(
        &self,
        key: &[u64; KEY_WORDS],
        extended: impl FnOnce() -> [u64; X],
    ) -> u32 {
        let mut sum: u64 = 0;
        for pair in self.pairs.iter().take(PAIRS) {
            let word = |which: usize| key[pair.at[which] % KEY_WORDS] & pair.mask[which] ^ pair.add[which];
            sum = sum.wrapping_add(fold(word(0), word(1)));
        }
        if self.has_beyond() {
            for ((word, mask), secret) in extended().iter().zip(&self.extended).zip(&self.beyond_secrets) {
                sum = sum.wrapping_add(fold(word & mask ^ secret.add, secret.multiply));
            }
        }
        short(sum)
    }
}
