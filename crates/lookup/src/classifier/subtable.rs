//! A subtable: all rules that have one mask, in a hash table by their values.
//!
//! A rule stores only the words in which the mask has bits. Rules of equal value form a list in descending order of
//! priority. Only the rule of the highest priority is in the hash table. A long list has an index by priority
//! ([`LongLists`]), which is read only when rules change.

use std::collections::BTreeMap;

use sync::cpu::prefetch_read;
use sync::hash::{Secret, Secrets, fold, short};

use super::layout::{Layout, MOST_PREFIXES, Octets, field};
use super::long_lists::{LongLists, SHORT};
use super::trie::{Trie, leading};
use crate::buckets::{Buckets, HashCounts, Slot as Place, make_room};
use crate::rule::Entry;

/// Slot index that denotes no rule.
pub(super) const NONE: u32 = u32::MAX;

/// Whether a rule is added to or removed from the counts that look-ups use (prefixes, stages, ports, partitions).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Comes,
    Goes,
}

/// A word of a key in which the mask of the subtable has bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    pub at: usize,
    pub mask: u64,
    secret: Secret,
    /// Index of the mask word in the table of shared mask words (module `terms`). `None` if the word is not in this
    /// table.
    pub term: Option<u8>,
}

impl Word {
    /// Returns this word of a key, with the mask applied.
    #[inline(always)]
    fn of<const W: usize>(&self, key: &[u64; W]) -> u64 {
        key[self.at] & self.mask
    }

    /// Returns the number that this word of a key adds to the hash sum of the key.
    #[inline(always)]
    pub fn product<const W: usize>(&self, key: &[u64; W]) -> u64 {
        fold(self.of(key) ^ self.secret.add, self.secret.multiply)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Slot<T> {
    /// Payload of the rule in this slot. `None` in a free slot.
    pub payload: Option<T>,
    pub priority: u16,
    /// Index of the next rule with equal value in descending order of priority. In a free slot, index of the
    /// next free slot.
    pub next: u32,
}

/// Subtable of a classifier. See the [module](self).
#[derive(Debug)]
pub(super) struct Subtable<const W: usize, T> {
    pub mask: [u64; W],
    pub words: Box<[Word]>,
    /// For each stage (metadata, L2, L3 and L4), number of mask words up to the end of the stage.
    pub cuts: [usize; 4],
    /// Index of the last stage (metadata, L2, L3 or L4) in which the mask has bits.
    pub last_stage: usize,
    /// For each stage (metadata, L2, L3 and L4) except the last, the hashes of the rules' masked key words from the
    /// first word to the end of the stage, with the number of rules for each hash.
    pub stages: [HashCounts; 3],
    /// Prefix length of the mask in each tracked field. 0 if the mask has no bits in the field, or its bits
    /// are not a prefix.
    pub lengths: [u8; MOST_PREFIXES],
    /// Mask bits of the concatenated port numbers. The first bit of the first port is the highest bit.
    pub ports_mask: u128,
    /// Set of the concatenated port numbers of all rules. The first bit of the first port is the highest bit.
    pub ports: Trie,
    /// Whether the mask contains all bits of the words that select the partition of a key (see [`Layout::new`]).
    pub partitioned: bool,
    pub index: Buckets,
    /// Masked words of the rules, in the order of the rules' slots.
    values: Vec<u64>,
    pub(super) slots: Vec<Slot<T>>,
    free: u32,
    long_lists: LongLists,
    /// For each priority, number of rules with this priority.
    priorities: BTreeMap<u16, u32>,
}

/// Returns the concatenated port numbers of a key. The first bit of the first port is the highest bit of the result.
#[inline(always)]
pub(super) fn ports_of<const W: usize>(layout: &Layout<W>, key: &[u64; W]) -> u128 {
    layout
        .ports
        .iter()
        .rev()
        .fold(0, |behind, from| field(key, Octets { from: *from, count: 2 }) | behind >> 16)
}

impl<const W: usize, T> Subtable<W, T> {
    pub fn new(layout: &Layout<W>, secrets: &Secrets, mask: [u64; W]) -> Self {
        let words: Box<[Word]> = (0..W)
            .filter(|at| mask[*at] != 0)
            .map(|at| Word { at, mask: mask[at], secret: secrets.of(at), term: None })
            .collect();
        let cuts = layout.stages.map(|end| words.iter().filter(|word| word.at < end).count());
        let last_stage = cuts.iter().position(|cut| *cut == words.len()).unwrap_or(3);
        let mut lengths = [0; MOST_PREFIXES];
        for (length, octets) in lengths.iter_mut().zip(layout.prefixes) {
            let bits = field(&mask, *octets);
            if bits == leading(bits.leading_ones()) {
                *length = u8::try_from(bits.leading_ones()).unwrap_or(0);
            }
        }
        let partition = layout.partition();
        Subtable {
            cuts,
            last_stage,
            stages: std::array::from_fn(|_| HashCounts::new()),
            lengths,
            ports_mask: ports_of(layout, &mask),
            ports: Trie::new(),
            partitioned: !partition.is_empty() && mask[partition].iter().all(|word| *word == u64::MAX),
            index: Buckets::new(),
            values: Vec::new(),
            slots: Vec::new(),
            free: NONE,
            long_lists: LongLists::default(),
            priorities: BTreeMap::new(),
            words,
            mask,
        }
    }

    /// Returns the memory use of the subtable in bytes, not including the size of the struct itself.
    pub fn memory(&self) -> usize {
        // A B-tree node holds up to 11 entries and is usually half full.
        let priorities = self.priorities.len() * 2 * size_of::<(u16, u32)>();
        self.words.len() * size_of::<Word>()
            + self.stages.iter().map(HashCounts::memory).sum::<usize>()
            + self.ports.memory()
            + self.index.memory()
            + self.values.capacity() * size_of::<u64>()
            + self.slots.capacity() * size_of::<Slot<T>>()
            + self.long_lists.memory()
            + priorities
    }

    /// Returns the highest priority of any rule. Returns `None` if the subtable has no rules.
    pub fn highest(&self) -> Option<u16> {
        self.priorities.last_key_value().map(|(priority, _)| *priority)
    }

    pub fn has_priority(&self, priority: u16) -> bool {
        self.priorities.contains_key(&priority)
    }

    /// Adds the words `words` of a key to the hash sum `sum`, and returns the new sum.
    #[inline(always)]
    pub fn add_hash(sum: u64, words: &[Word], key: &[u64; W]) -> u64 {
        words.iter().map(|word| word.product(key)).fold(sum, u64::wrapping_add)
    }

    #[inline(always)]
    fn is(&self, slot: u32, key: &[u64; W]) -> bool {
        let stored = &self.values[slot as usize * self.words.len()..][..self.words.len()];
        // No early exit, because the words are few.
        stored.iter().zip(&self.words).fold(0, |other, (stored, word)| other | (stored ^ word.of(key))) == 0
    }

    /// Returns the slot of the highest-priority rule whose value matches the key. `sum` is the hash sum of the key
    /// over all words of the mask. Returns `None` if no rule matches.
    #[inline(always)]
    pub fn find_hashed(&self, sum: u64, key: &[u64; W]) -> Option<u32> {
        self.index.find(short(sum), |slot| self.is(slot, key))
    }

    /// Returns the slot of the matching rule like [`Subtable::find_hashed`], and computes the hash sum of the key
    /// itself.
    #[inline(always)]
    pub fn find(&self, key: &[u64; W]) -> Option<u32> {
        self.find_hashed(Self::add_hash(0, &self.words, key), key)
    }

    /// Returns the hash sum of a key, and prefetches the memory that a search for the key reads first.
    #[inline(always)]
    pub fn prefetch(&self, key: &[u64; W]) -> u64 {
        let sum = Self::add_hash(0, &self.words, key);
        self.index.prefetch(short(sum));
        sum
    }

    /// Prefetches the rule of the hash table entry at `place`, and the value of the rule.
    #[inline(always)]
    pub fn prefetch_rule(&self, place: Place) {
        let number = self.index.number_at(place) as usize;
        if let Some(slot) = self.slots.get(number) {
            prefetch_read(slot);
        }
        // There is no value if the mask is empty.
        if let Some(value) = self.values.get(number.wrapping_mul(self.words.len())) {
            prefetch_read(value);
        }
    }

    /// Searches the list of rules that begins at slot `first` for the first rule that `wanted` accepts. Stores the rule
    /// in `best` if its priority is higher than that of the rule in `best`.
    #[inline(always)]
    pub fn better<'a>(
        &'a self,
        first: u32,
        best: &mut Option<(&'a T, u16)>,
        wanted: &mut impl FnMut(&T, u16) -> bool,
    ) {
        let mut at = first;
        while at != NONE {
            let slot = &self.slots[at as usize];
            if best.is_some_and(|(_, priority)| slot.priority <= priority) {
                return;
            }
            if let Some(payload) = slot.payload.as_ref().filter(|payload| wanted(payload, slot.priority)) {
                *best = Some((payload, slot.priority));
                return;
            }
            at = slot.next;
        }
    }

    /// Returns the slot of the rule with this value and priority. Returns `None` if there is no such rule.
    pub fn find_rule(&self, value: &[u64; W], priority: u16) -> Option<u32> {
        let (_, at) = self.position(self.find(value)?, priority);
        self.slots.get(at as usize).is_some_and(|slot| slot.priority == priority).then_some(at)
    }

    /// Returns the position of a priority in the list of rules that begins at slot `head`. The first slot is that of
    /// the last rule with a higher priority. The second slot is that of the first rule with this or a lower priority. A
    /// slot is [`NONE`] if there is no such rule.
    fn position(&self, head: u32, priority: u16) -> (u32, u32) {
        if let Some(list) = self.long_lists.get(head) {
            let before = LongLists::before(list, priority);
            return before.map_or((NONE, head), |before| (before, self.slots[before as usize].next));
        }
        let (mut before, mut at) = (NONE, head);
        while at != NONE && self.slots[at as usize].priority > priority {
            (before, at) = (at, self.slots[at as usize].next);
        }
        (before, at)
    }

    /// Returns an iterator over the priorities and slots of the list of rules that begins at slot `head`.
    fn list(&self, head: u32) -> impl Iterator<Item = (u16, u32)> {
        let slot = |at: u32| self.slots.get(at as usize).map(|slot| (slot, at));
        std::iter::successors(slot(head), move |(before, _)| slot(before.next))
            .map(|(slot, at)| (slot.priority, at))
    }

    /// Inserts a rule. If a rule with this value and priority exists, replaces its payload and returns the
    /// old payload.
    pub fn insert(&mut self, value: &[u64; W], priority: u16, payload: T) -> Option<T> {
        let sum = Self::add_hash(0, &self.words, value);
        let head = self.find_hashed(sum, value);
        let (before, at) = head.map_or((NONE, NONE), |head| self.position(head, priority));
        if at != NONE && self.slots[at as usize].priority == priority {
            return self.slots[at as usize].payload.replace(payload);
        }
        let new = self.fill(Slot { payload: Some(payload), priority, next: at }, value);
        match head {
            None => self.index.insert(short(sum), new),
            Some(head) if before == NONE => self.index.replace(short(sum), head, new),
            Some(_) => self.slots[before as usize].next = new,
        }
        if let Some(old) = head {
            let head = if before == NONE { new } else { old };
            if !self.long_lists.insert(old, head, priority, new) && self.list(head).nth(SHORT).is_some() {
                let list = self.list(head).collect();
                self.long_lists.build(head, list);
            }
        }
        *self.priorities.entry(priority).or_default() += 1;
        None
    }

    /// Stores a rule in a free slot, and returns the index of the slot.
    fn fill(&mut self, slot: Slot<T>, value: &[u64; W]) -> u32 {
        let stride = self.words.len();
        let words = self.words.iter().map(|word| word.of(value));
        if self.free == NONE {
            make_room(&mut self.slots, 1);
            self.slots.push(slot);
            make_room(&mut self.values, stride);
            self.values.extend(words);
            return u32::try_from(self.slots.len() - 1).unwrap_or(NONE);
        }
        let at = self.free;
        self.free = std::mem::replace(&mut self.slots[at as usize], slot).next;
        for (stored, word) in self.values[at as usize * stride..].iter_mut().zip(words) {
            *stored = word;
        }
        at
    }

    /// Removes a rule and returns its payload. Returns `None` if the rule does not exist.
    pub fn remove(&mut self, value: &[u64; W], priority: u16) -> Option<T> {
        let sum = Self::add_hash(0, &self.words, value);
        let head = self.find_hashed(sum, value)?;
        let (before, at) = self.position(head, priority);
        let slot = self.slots.get_mut(at as usize).filter(|slot| slot.priority == priority)?;
        let next = std::mem::replace(&mut slot.next, self.free);
        let payload = slot.payload.take();
        self.free = at;
        match (before, next) {
            (NONE, NONE) => {
                self.index.remove(short(sum), at);
            }
            (NONE, next) => self.index.replace(short(sum), at, next),
            (before, next) => self.slots[before as usize].next = next,
        }
        self.long_lists.remove(head, if before == NONE { next } else { head }, priority);
        if let Some(rules) = self.priorities.get_mut(&priority) {
            *rules -= 1;
            if *rules == 0 {
                self.priorities.remove(&priority);
            }
        }
        payload
    }

    /// Returns the payload of a rule. Returns `None` if the rule does not exist.
    pub fn payload(&mut self, value: &[u64; W], priority: u16) -> Option<&mut T> {
        let slot = self.find_rule(value, priority)?;
        self.slots[slot as usize].payload.as_mut()
    }

    /// Returns an iterator over all rules of the subtable.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_, W, T>> {
        self.slots.iter().enumerate().filter_map(|(at, slot)| {
            let payload = slot.payload.as_ref()?;
            Some(Entry { value: self.value(at), mask: &self.mask, priority: slot.priority, payload })
        })
    }

    /// Adds a rule to the hash multisets of all stages (metadata, L2, L3 and L4) except the last, or removes the rule
    /// from these multisets.
    pub fn count_stages(&mut self, value: &[u64; W], change: Change) {
        let (mut sum, mut done) = (0, 0);
        for stage in 0..self.last_stage {
            let cut = self.cuts[stage];
            if cut == done {
                continue;
            }
            sum = Self::add_hash(sum, &self.words[done..cut], value);
            done = cut;
            match change {
                Change::Comes => self.stages[stage].add(short(sum)),
                Change::Goes => self.stages[stage].remove(short(sum)),
            }
        }
    }

    /// Clears the hash multisets of the stages and the set of the rules' port numbers.
    pub fn forget(&mut self) {
        self.stages = std::array::from_fn(|_| HashCounts::new());
        self.ports = Trie::new();
    }

    /// Returns the value of the rule in a slot as a complete key. Words without mask bits are zero.
    pub fn value(&self, slot: usize) -> [u64; W] {
        let mut value = [0; W];
        for (word, stored) in self.words.iter().zip(&self.values[slot * self.words.len()..]) {
            value[word.at] = *stored;
        }
        value
    }

    /// Returns an upper limit for the work of [`Subtable::overlaps`] with these arguments, as the number of rules to
    /// examine plus one.
    pub fn overlap_work(&self, mask: &[u64; W], priority: u16) -> usize {
        let is_found = || self.words.iter().all(|word| mask[word.at] & word.mask == word.mask);
        if self.mask == *mask || !self.has_priority(priority) || is_found() {
            1
        } else {
            1 + self.slots.len()
        }
    }

    /// Returns whether some key matches both the given rule and another rule of this priority in the subtable. A rule
    /// with exactly this value and mask does not count.
    pub fn overlaps(&self, value: &[u64; W], mask: &[u64; W], priority: u16) -> bool {
        if self.mask == *mask || !self.has_priority(priority) {
            return false;
        }
        if self.words.iter().all(|word| mask[word.at] & word.mask == word.mask) {
            return self.find_rule(value, priority).is_some();
        }
        let stride = self.words.len();
        self.slots.iter().enumerate().any(|(at, slot)| {
            let stored = &self.values[at * stride..][..stride];
            slot.payload.is_some()
                && slot.priority == priority
                && self
                    .words
                    .iter()
                    .zip(stored)
                    .all(|(word, stored)| (stored ^ value[word.at]) & word.mask & mask[word.at] == 0)
        })
    }
}
