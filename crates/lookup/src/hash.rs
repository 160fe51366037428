//! The hash of masked words: secret multiplications, word by word, summed.
//!
//! Each word meets two secret numbers of its place: it is combined with one and multiplied by the other, and the halves of the
//! 128-bit product are combined. The sum over words can go on from any word, so that the hash of a key's first words is a step on
//! the way to the hash of all. The products do not wait for one another. Who does not know the secrets cannot choose keys that
//! collide, which with a CRC, whatever it starts from, anybody can.

use std::hash::{BuildHasher, RandomState};

/// The secret numbers of one place.
#[derive(Clone, Copy, Debug)]
pub struct Secret {
    pub add: u64,
    pub multiply: u64,
}

/// Secret numbers for any number of places, new ones for each table.
#[derive(Debug)]
pub struct Secrets(RandomState);

impl Secrets {
    pub fn new() -> Secrets {
        Secrets(RandomState::new())
    }

    /// Those of one place.
    pub fn of(&self, place: usize) -> Secret {
        Secret { add: self.0.hash_one((place, 0_u8)), multiply: self.0.hash_one((place, 1_u8)) | 1 }
    }
}

/// A secret hash of any number of words, for tables that hold no keys: who does not know it cannot choose words that collide.
#[derive(Debug)]
pub struct WordHash(Secret);

impl WordHash {
    /// A new one.
    #[must_use]
    pub fn new() -> WordHash {
        WordHash(Secrets::new().of(0))
    }

    /// The hash of these words in this order.
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

/// The 128-bit product's halves, combined.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "takes the two halves of a 128-bit product")]
pub fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// What tables keep of a sum of products. Multiplied once more (by 2^64 over the golden ratio, as Knuth's volume 3, 6.4 has it), of which the upper half is
/// kept: the lower bits of a product of small numbers follow one another, whatever the secrets are, and tables use the lowest bits.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "32 bits are what is left")]
pub fn short(sum: u64) -> u32 {
    (sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}
