//! Hash table of fixed size with words of 64 bits that are not zero.
//!
//! The keys are hashes, so the upper bits of a key select its slot. Collisions are resolved by linear probing. A
//! removal moves the following words back, so that the table needs no marks of removed words.

use sync::memory::vec_on_huge_pages;

/// Word of the table. In an empty slot, `word` is zero.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    key: u64,
    word: u64,
}

/// Error: the table has as many words as its limit allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full;

#[derive(Debug)]
pub(crate) struct Words {
    slots: Vec<Slot>,
    /// Number of bits by which a key is shifted to the right to get its slot.
    shift: u32,
    count: usize,
    limit: usize,
}

impl Words {
    /// Returns an empty table for at most `limit` words. At most two thirds of the slots are in use.
    pub(crate) fn new(limit: u32) -> Words {
        let limit = limit.max(1) as usize;
        let count = (limit + limit / 2 + 1).next_power_of_two();
        let mut slots = vec_on_huge_pages(count);
        slots.resize(count, Slot::default());
        Words { slots, shift: 64 - count.trailing_zeros(), count: 0, limit }
    }

    /// Returns the memory of the table in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.slots.len() * size_of::<Slot>()
    }

    /// Returns the number of words that can still be added.
    pub(crate) fn remaining(&self) -> usize {
        self.limit - self.count
    }

    /// Returns the word of a key. A key without a word has the word zero.
    #[inline]
    pub(crate) fn get(&self, key: u64) -> u64 {
        self.slots[self.find(key)].word
    }

    /// Sets the word of a key. The word zero removes the key.
    ///
    /// # Errors
    /// Returns an error if the key has no word yet, and the table is full. Nothing is changed then.
    pub(crate) fn set(&mut self, key: u64, word: u64) -> Result<(), Full> {
        let at = self.find(key);
        if self.slots[at].word == 0 && word != 0 {
            self.count = if self.count < self.limit { self.count + 1 } else { return Err(Full) };
        }
        if self.slots[at].word != 0 && word == 0 {
            self.remove(at);
        } else {
            self.slots[at] = Slot { key, word };
        }
        Ok(())
    }

    /// Returns the slot of a key, or the empty slot in which the key would be inserted.
    #[inline]
    fn find(&self, key: u64) -> usize {
        let mut at = self.home(key);
        while self.slots[at].word != 0 && self.slots[at].key != key {
            at = self.next(at);
        }
        at
    }

    /// Removes the word of a slot, and moves back the words that a search would miss behind the empty slot.
    fn remove(&mut self, mut empty: usize) {
        let mut at = self.next(empty);
        while self.slots[at].word != 0 {
            let distance = |from: usize| at.wrapping_sub(from) & (self.slots.len() - 1);
            if distance(self.home(self.slots[at].key)) >= distance(empty) {
                self.slots[empty] = self.slots[at];
                empty = at;
            }
            at = self.next(at);
        }
        self.slots[empty] = Slot::default();
        self.count -= 1;
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the shifted key is less than the number of slots")]
    fn home(&self, key: u64) -> usize {
        (key >> self.shift) as usize
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// Returns one of 16 keys with four homes.
    fn key_of(number: u64) -> u64 {
        (number % 4) | ((number / 4) * 5) << 60
    }

    proptest! {
        /// The keys have few different homes, at both ends of the table.
        #[test]
        fn the_table_agrees_with_a_map(steps in prop::collection::vec((0..16_u64, 0..3_u64), 0..200)) {
            let mut words = Words::new(8);
            let mut map = HashMap::new();
            for (key, word) in steps {
                let key = key_of(key);
                let is_full = word != 0 && !map.contains_key(&key) && map.len() == 8;
                prop_assert_eq!(words.set(key, word), if is_full { Err(Full) } else { Ok(()) });
                match word {
                    _ if is_full => {}
                    0 => drop(map.remove(&key)),
                    _ => drop(map.insert(key, word)),
                }
                prop_assert_eq!(words.remaining(), 8 - map.len());
                for key in 0..16 {
                    let key = key_of(key);
                    prop_assert_eq!(words.get(key), map.get(&key).copied().unwrap_or(0));
                }
            }
        }
    }
}
