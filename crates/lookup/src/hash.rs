//! Hash of masked words: a sum of secret multiplications, one per word.
//!
//! Each word has two secret numbers. The word is xored with one and multiplied by the other, and the halves
//! of the 128-bit product are xored. The sum over words can continue from any word, so that the hash of a
//! key's first words is an intermediate result of the hash of the whole key. The products do not depend on
//! each other. A sender that does not know the secrets cannot choose keys that collide, which is possible
//! with a CRC.

use std::hash::{BuildHasher, RandomState};

/// Secret numbers of one word position.
#[derive(Clone, Copy, Debug)]
pub struct Secret {
    pub add: u64,
    pub multiply: u64,
}

/// Secret numbers for any number of word positions. Each table has its own.
#[derive(Debug)]
pub struct Secrets(RandomState);

impl Secrets {
    pub fn new() -> Secrets {
        Secrets(RandomState::new())
    }

    /// Returns the secret numbers of one position.
    pub fn of(&self, place: usize) -> Secret {
        Secret { add: self.0.hash_one((place, 0_u8)), multiply: self.0.hash_one((place, 1_u8)) | 1 }
    }
}

/// A secret hash of any number of words, for tables that hold no keys. A sender that does not know the secret
/// cannot choose words that collide.
#[derive(Debug)]
pub struct WordHash(Secret);

impl WordHash {
    /// Returns a hash with new secret numbers.
    #[must_use]
    pub fn new() -> WordHash {
        WordHash(Secrets::new().of(0))
    }

    /// Returns the hash of these words in this order.
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

/// Returns the xor of both halves of the 128-bit product.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "takes the two halves of a 128-bit product")]
pub fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Reduces a sum of products to the 32 bits that tables store.
///
/// The sum is multiplied by 2^64 over the golden ratio (Knuth, volume 3, section 6.4), and the upper half is
/// kept. Without this step the lower bits of products of small numbers are consecutive, whatever the secrets
/// are, and tables use the lowest bits.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "32 bits are what is left")]
pub fn short(sum: u64) -> u32 {
    (sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}
