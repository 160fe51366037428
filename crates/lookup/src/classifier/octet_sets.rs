//! The set of the prefixes that rules have in one field, with octet granularity. The module uses sets of hashes instead
//! of a trie. A query of a large table then reads a few independent memory locations.
//!
//! One set holds the hashes of the prefixes. For each number of octets, another set holds the hashes of the first
//! octets of all longer prefixes. A query looks up the first octet of the key, then the first two octets, and so on.
//! The first set without the key's octets proves that no longer prefix matches the key. The number of octets looked up
//! is the number of octets on which this result depends. If two hashes collide, an absent prefix seems present. The
//! result then depends on more bits than necessary, never on fewer.

use sync::hash::{Secret, Secrets, fold, short};

use super::trie::leading;
use crate::buckets::HashCounts;

/// Prefix set with octet granularity. See the [module](self).
#[derive(Debug)]
pub struct OctetSets {
    secret: Secret,
    prefixes: HashCounts,
    /// Sets of hashes of leading octets. The first set contains the first octet of all prefixes of more than one octet,
    /// the second set contains the first two octets of all prefixes of more than two octets, and so on.
    longer: Vec<HashCounts>,
}

impl OctetSets {
    pub fn new(secrets: &Secrets) -> OctetSets {
        OctetSets { secret: secrets.of(usize::MAX / 2), prefixes: HashCounts::new(), longer: Vec::new() }
    }

    /// Returns the memory use of the sets in bytes.
    pub fn memory(&self) -> usize {
        let sets = self.longer.capacity() * size_of::<HashCounts>();
        sets + self.prefixes.memory() + self.longer.iter().map(HashCounts::memory).sum::<usize>()
    }

    #[inline(always)]
    fn hash(&self, value: u128, length: u32) -> u32 {
        self.hash_of(length)(value)
    }

    /// Returns a function that hashes the first `length` bits of a left-aligned value. The function ignores the later
    /// bits.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "takes the two halves of a prefix")]
    pub fn hash_of(&self, length: u32) -> impl Fn(u128) -> u32 {
        let (Secret { add, multiply }, leading) = (self.secret, leading(length));
        let own = u64::from(length).wrapping_mul(add | 1);
        move |value| {
            let bits = value & leading;
            short(fold((bits >> 64) as u64 ^ add, bits as u64 ^ multiply).wrapping_add(own))
        }
    }

    /// Returns the multiset of the hashes of all prefixes.
    pub fn prefixes(&self) -> &HashCounts {
        &self.prefixes
    }

    /// Returns the sets of hashes of leading octets. The first set contains the first octet of all prefixes of more
    /// than one octet, the second set contains the first two octets of all prefixes of more than two octets, and so on.
    pub fn longer(&self) -> &[HashCounts] {
        &self.longer
    }

    /// Returns the number of whole octets before the octet that contains the last bit of a prefix of this length.
    fn octets_before(length: u32) -> u32 {
        length.saturating_sub(1) / 8
    }

    /// Adds a prefix of `length` bits, whose bits are left-aligned.
    pub fn insert(&mut self, bits: u128, length: u32) {
        self.prefixes.add(self.hash(bits, length));
        for (at, octets) in (1..=Self::octets_before(length)).enumerate() {
            let hash = self.hash(bits, octets * 8);
            if at == self.longer.len() {
                self.longer.push(HashCounts::new());
            }
            self.longer[at].add(hash);
        }
    }

    /// Removes one occurrence of a prefix that [`OctetSets::insert`] added.
    pub fn remove(&mut self, bits: u128, length: u32) {
        self.prefixes.remove(self.hash(bits, length));
        for (at, octets) in (1..=Self::octets_before(length)).enumerate() {
            let hash = self.hash(bits, octets * 8);
            if let Some(set) = self.longer.get_mut(at) {
                set.remove(hash);
            }
        }
    }

    /// Prefetches memory of the large sets (the sets for two and three octets), which [`OctetSets::bits`] would
    /// otherwise probably read from main memory.
    #[inline(always)]
    pub fn prefetch(&self, value: u128) {
        for (set, bits) in self.longer.iter().skip(1).zip([16, 24]) {
            set.prefetch(self.hash(value, bits));
        }
    }

    /// Returns whether the first `length` bits of a left-aligned value are a prefix in the set.
    #[inline(always)]
    pub fn has(&self, value: u128, length: u32) -> bool {
        self.prefixes.contains(self.hash(value, length))
    }

    /// Returns the number of leading bits of a value (a multiple of eight) that suffice to prove that no prefix in the
    /// set with more than this number of bits matches the value.
    pub fn bits(&self, value: u128) -> u32 {
        let mut bits = 8;
        for set in &self.longer {
            if !set.contains(self.hash(value, bits)) {
                break;
            }
            bits += 8;
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_told_is_what_a_search_finds(
            prefixes in prop::collection::vec((0_u8..3, 0_u8..3, 0_u8..3, 1_u32..=24), 0..30),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
            asked in prop::collection::vec((0_u8..3, 0_u8..3, 0_u8..3), 1..20),
        ) {
            let bits = |a: u8, b: u8, c: u8| u128::from_be_bytes(std::array::from_fn(|at| [a, b, c].get(at).copied().unwrap_or(0)));
            let mut all: Vec<(u128, u32)> =
                prefixes.iter().map(|(a, b, c, length)| (bits(*a, *b, *c) & leading(*length), *length)).collect();
            let mut sets = OctetSets::new(&Secrets::new());
            for (bits, length) in &all {
                sets.insert(*bits, *length);
            }
            for index in removed {
                if !all.is_empty() {
                    let (bits, length) = all.swap_remove(index.index(all.len()));
                    sets.remove(bits, length);
                }
            }
            for (a, b, c) in asked {
                let value = bits(a, b, c);
                for length in 1..=24 {
                    let there = all.contains(&(value & leading(length), length));
                    prop_assert_eq!(sets.has(value, length), there);
                }
                let shown = sets.bits(value);
                let longer = |bits: u32| all.iter().any(|(own, length)| *length > bits && (own ^ value) & leading(bits) == 0);
                prop_assert!(shown.is_multiple_of(8) && !longer(shown));
                prop_assert!((8..shown).step_by(8).all(longer) || shown > 24);
            }
            for (bits, length) in all {
                sets.remove(bits, length);
            }
            prop_assert!((1..=24).all(|length| !sets.has(bits(1, 1, 1), length)) && sets.bits(0) == 8);
        }
    }
}
