//! Index that maps each value of the partition words to the subtables that have rules with this value. The partition
//! words are the words of a key that the argument `partition` of [`Layout::new`](super::Layout::new) selects.
//!
//! The index maps each value to 64 bits. Bit `n` represents all subtables whose index modulo 64 is `n`. A subtable
//! whose bit is clear has no rule with this value.

use std::collections::BTreeMap;
use std::ops::Range;

use sync::hash::{Secret, Secrets, fold, short};

use crate::buckets::Buckets;

#[derive(Clone, Debug)]
struct Value {
    bits: u64,
    /// Number of rules with this value of the partition words, for each subtable that has such rules. The key is the
    /// subtable's [`order`].
    subtables: BTreeMap<u32, u32>,
}

impl Value {
    fn memory(&self) -> usize {
        // A B-tree node holds up to 11 entries and is usually half full.
        self.subtables.len().div_ceil(6) * 11 * size_of::<(u32, u32)>()
    }
}

/// Number of low bits of [`order`] in which subtables that share a [`bit`] can differ. All other bits of their orders
/// are equal.
const ORDER_BITS: u32 = u32::BITS - 64_u32.ilog2();

/// Returns the index of a subtable with its lowest six bits moved to the top. Subtables that share a [`bit`] are
/// adjacent in this order.
fn order(subtable: u32) -> u32 {
    subtable.rotate_left(ORDER_BITS)
}

/// Partition index. See the [module](self).
#[derive(Debug)]
pub struct Partitions {
    words: Range<usize>,
    secrets: Box<[Secret]>,
    index: Buckets,
    /// Words of the known partition values, one value after the other.
    keys: Vec<u64>,
    values: Vec<Value>,
    free: Vec<u32>,
}

/// Returns the bit that represents a subtable in the bit masks of the partition index.
#[inline(always)]
pub fn bit(subtable: u32) -> u64 {
    1 << (subtable % 64)
}

impl Partitions {
    pub fn new(words: Range<usize>, secrets: &Secrets) -> Partitions {
        let secrets = words.clone().map(|word| secrets.of(word)).collect();
        Partitions {
            words,
            secrets,
            index: Buckets::new(),
            keys: Vec::new(),
            values: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Returns the memory use of the index in bytes.
    pub fn memory(&self) -> usize {
        let counts: usize = self.values.iter().map(Value::memory).sum();
        self.index.memory()
            + self.keys.capacity() * size_of::<u64>()
            + self.values.capacity() * size_of::<Value>()
            + self.free.capacity() * size_of::<u32>()
            + counts
    }

    pub fn clear(&mut self) {
        self.index = Buckets::new();
        self.keys = Vec::new();
        self.values = Vec::new();
        self.free = Vec::new();
    }

    #[inline(always)]
    fn hash(&self, key: &[u64]) -> u32 {
        let words = key.iter().zip(&self.secrets);
        short(
            words.fold(0, |sum: u64, (word, secret)| {
                sum.wrapping_add(fold(word ^ secret.add, secret.multiply))
            }),
        )
    }

    #[inline(always)]
    fn find(&self, key: &[u64]) -> Option<u32> {
        self.find_hashed(self.hash(key), key)
    }

    #[inline(always)]
    fn find_hashed(&self, hash: u32, key: &[u64]) -> Option<u32> {
        let stored = |at: u32| &self.keys[at as usize * key.len()..][..key.len()];
        // No early exit, because the words are few.
        let is =
            |at| stored(at).iter().zip(key).fold(0, |other, (stored, word)| other | (stored ^ word)) == 0;
        self.index.find(hash, is)
    }

    /// Returns the bit mask of the subtables that may have rules with the key's partition value (its value in the
    /// partition words). See [`bit`].
    #[inline(always)]
    pub fn bits<const W: usize>(&self, key: &[u64; W]) -> u64 {
        self.bits_hashed(self.hash_of(key), key)
    }

    /// Returns the hash of a key's partition value (its value in the partition words).
    #[inline(always)]
    pub fn hash_of<const W: usize>(&self, key: &[u64; W]) -> u32 {
        self.hash(&key[self.words.clone()])
    }

    /// Returns the bit mask like [`Partitions::bits`]. `hash` is the hash of the key's partition value (its value in
    /// the partition words), which the caller has already computed.
    #[inline(always)]
    pub fn bits_hashed<const W: usize>(&self, hash: u32, key: &[u64; W]) -> u64 {
        self.find_hashed(hash, &key[self.words.clone()]).map_or(0, |at| self.values[at as usize].bits)
    }

    /// Returns the hash table of the partition values, which are the values that the rules have in the partition words
    /// of the key. The table maps the hash of a value to the index of the value. No rule has a value that is not in the
    /// table.
    pub fn index(&self) -> &Buckets {
        &self.index
    }

    /// Increments the number of rules that a subtable has with a partition value (a value of the partition words of a
    /// key). `value` is the complete value of the added rule.
    pub fn add<const W: usize>(&mut self, value: &[u64; W], subtable: u32) {
        let key = &value[self.words.clone()];
        let at = self.find(key).unwrap_or_else(|| {
            let at = self.free.pop().unwrap_or_else(|| {
                self.keys.extend_from_slice(key);
                self.values.push(Value { bits: 0, subtables: BTreeMap::new() });
                u32::try_from(self.values.len() - 1).unwrap_or(u32::MAX)
            });
            self.keys[at as usize * key.len()..][..key.len()].copy_from_slice(key);
            self.index.insert(self.hash(key), at);
            at
        });
        let value = &mut self.values[at as usize];
        value.bits |= bit(subtable);
        *value.subtables.entry(order(subtable)).or_default() += 1;
    }

    /// Decrements the number of rules that a subtable has with a partition value (a value of the partition words of a
    /// key). `value` is the complete value of the removed rule.
    pub fn remove<const W: usize>(&mut self, value: &[u64; W], subtable: u32) {
        let key = &value[self.words.clone()];
        let Some(at) = self.find(key) else { return };
        let value = &mut self.values[at as usize];
        let Some(rules) = value.subtables.get_mut(&order(subtable)) else { return };
        *rules -= 1;
        if *rules != 0 {
            return;
        }
        value.subtables.remove(&order(subtable));
        let first = order(subtable % 64);
        let last = first + ((1 << ORDER_BITS) - 1);
        if value.subtables.range(first..=last).next().is_none() {
            value.bits &= !bit(subtable);
        }
        if value.subtables.is_empty() {
            self.index.remove(self.hash(key), at);
            self.free.push(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bits_equal_the_bits_of_the_subtables_that_have_rules(
            // Several subtables share a bit.
            ops in prop::collection::vec((any::<bool>(), 0_u64..2, 0_u32..4, 0_u32..4), 1..300),
        ) {
            let mut partitions = Partitions::new(0..1, &Secrets::new());
            let mut rules: Vec<(u64, u32)> = Vec::new();
            for (adds, value, low, high) in ops {
                let rule = (value, high * 64 + low * 21);
                let known = rules.iter().position(|other| *other == rule);
                match known {
                    Some(known) if !adds => {
                        rules.swap_remove(known);
                        partitions.remove(&[value], rule.1);
                    }
                    _ => {
                        rules.push(rule);
                        partitions.add(&[value], rule.1);
                    }
                }
                for value in 0..2 {
                    let of_value = rules.iter().filter(|(own, _)| *own == value);
                    let expected = of_value.fold(0, |bits, (_, subtable)| bits | bit(*subtable));
                    prop_assert_eq!(partitions.bits(&[value]), expected);
                }
            }
            for (value, subtable) in rules {
                partitions.remove(&[value], subtable);
            }
            prop_assert!((0..2).all(|value| partitions.find(&[value]).is_none()));
        }
    }
}
