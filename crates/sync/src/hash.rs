//! Keyed hash function for masked words: a sum of products with secret numbers, one product for each word.
//!
//! Each word position has two secret numbers. The word is xored with one of them and multiplied by the other, and the
//! halves of the 128-bit product are xored. A sum over the first words can be continued with more words. The hash of a
//! key's first words is therefore an intermediate result of the hash of the whole key. The products do not depend on
//! each other. A sender that does not know the secret numbers cannot choose keys that collide. A CRC would allow such a
//! choice.

use std::hash::{BuildHasher, RandomState};

/// The two secret numbers by which the word at one position of a key is hashed.
#[derive(Clone, Copy, Debug)]
pub struct Secret {
    /// Number with which the word is xored.
    pub add: u64,
    /// Odd number by which the result is multiplied.
    pub multiply: u64,
}

/// Generator of the secret numbers for any number of word positions. Each table has its own generator.
#[derive(Debug)]
pub struct Secrets(RandomState);

impl Secrets {
    /// Returns a generator with new secret numbers from the random source of the operating system.
    #[must_use]
    pub fn new() -> Secrets {
        Secrets(RandomState::new())
    }

    /// Returns the secret numbers for the word at position `place`.
    #[must_use]
    pub fn of(&self, place: usize) -> Secret {
        Secret { add: self.0.hash_one((place, 0_u8)), multiply: self.0.hash_one((place, 1_u8)) | 1 }
    }
}

impl Default for Secrets {
    fn default() -> Self {
        Self::new()
    }
}

/// A keyed hash function for any number of words, for hash tables that do not store keys. A sender that does not know
/// the secret numbers cannot choose words that collide.
#[derive(Debug)]
pub struct WordHash(Secret);

impl WordHash {
    /// Returns a hash function with new secret numbers.
    #[must_use]
    pub fn new() -> WordHash {
        WordHash(Secrets::new().of(0))
    }

    /// Returns a hash function with these numbers, for hashes that are equal in all processes.
    #[must_use]
    pub const fn with(numbers: Secret) -> WordHash {
        WordHash(numbers)
    }

    /// Returns the hash of the given words. The hash depends on the order of the words.
    #[inline]
    pub fn of(&self, words: impl IntoIterator<Item = u64>) -> u64 {
        let Secret { add, multiply } = self.0;
        words.into_iter().fold(add, |hash, word| fold(hash ^ word ^ add, multiply).wrapping_add(word))
    }
}

impl Default for WordHash {
    fn default() -> Self {
        Self::new()
    }
}

/// Mixes two words for a hash: returns the xor of the two halves of the 128-bit product of `a` and `b`.
#[inline(always)]
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "takes the two halves of a 128-bit product")]
pub fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Reduces a hash sum of 64 bits to the 32 bits that tables store.
///
/// The sum is multiplied by 2^64 over the golden ratio (Knuth, volume 3, section 6.4), and the upper half is kept.
/// Tables use the lowest bits of the result. Without this step, these bits would be consecutive numbers for products of
/// small numbers, whatever the secrets are.
#[inline(always)]
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "32 bits are what is left")]
pub fn short(sum: u64) -> u32 {
    (sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}
