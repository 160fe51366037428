//! The oracle of [`Classifier`](crate::Classifier): a list of rules that is gone through from one end to the other.
//!
//! For tests, here and elsewhere: too slow for anything else, and too simple to be wrong.

use crate::classifier::Rule;

/// Rules in no order. The same calls as the classifier's.
#[derive(Clone, Debug)]
pub struct Linear<const W: usize, T> {
    rules: Vec<Rule<W, T>>,
}

impl<const W: usize, T> Default for Linear<W, T> {
    fn default() -> Self {
        Linear { rules: Vec::new() }
    }
}

/// Whether a key has a rule's value in the bits of its mask.
#[must_use]
pub fn matches<const W: usize>(key: &[u64; W], value: &[u64; W], mask: &[u64; W]) -> bool {
    (0..W).all(|word| (key[word] ^ value[word]) & mask[word] == 0)
}

/// Whether a rule has this value and mask.
fn same<const W: usize, T>(rule: &Rule<W, T>, value: &[u64; W], mask: &[u64; W]) -> bool {
    rule.mask == *mask && matches(value, &rule.value, mask)
}

impl<const W: usize, T> Linear<W, T> {
    /// No rules.
    #[must_use]
    pub fn new() -> Linear<W, T> {
        Linear::default()
    }

    /// Adds a rule. One with the same value, mask and priority is replaced; its payload comes back.
    pub fn insert(&mut self, rule: Rule<W, T>) -> Option<T> {
        let old = self.remove(&rule.value, &rule.mask, rule.priority);
        self.rules.push(rule);
        old
    }

    /// Takes a rule out.
    pub fn remove(&mut self, value: &[u64; W], mask: &[u64; W], priority: u16) -> Option<T> {
        let at = self.rules.iter().position(|rule| rule.priority == priority && same(rule, value, mask))?;
        Some(self.rules.swap_remove(at).payload)
    }

    /// The payload of one rule.
    #[must_use]
    pub fn get(&self, value: &[u64; W], mask: &[u64; W], priority: u16) -> Option<&T> {
        let found = self.rules.iter().find(|rule| rule.priority == priority && same(rule, value, mask));
        found.map(|rule| &rule.payload)
    }

    /// All rules.
    #[must_use]
    pub fn rules(&self) -> &[Rule<W, T>] {
        &self.rules
    }

    /// Whether one key can match this and another rule of the same priority.
    #[must_use]
    pub fn overlaps(&self, value: &[u64; W], mask: &[u64; W], priority: u16) -> bool {
        self.rules.iter().any(|rule| {
            let both = std::array::from_fn(|word| rule.mask[word] & mask[word]);
            rule.priority == priority && !same(rule, value, mask) && matches(value, &rule.value, &both)
        })
    }

    /// Of the rules that match, one of the highest priority.
    #[must_use]
    pub fn lookup(&self, key: &[u64; W]) -> Option<&Rule<W, T>> {
        self.lookup_where(key, |_, _| true)
    }

    /// Of the rules that match and are wanted, one of the highest priority.
    pub fn lookup_where(
        &self,
        key: &[u64; W],
        mut wanted: impl FnMut(&T, u16) -> bool,
    ) -> Option<&Rule<W, T>> {
        let matching = self.rules.iter().filter(|rule| matches(key, &rule.value, &rule.mask));
        matching.filter(|rule| wanted(&rule.payload, rule.priority)).max_by_key(|rule| rule.priority)
    }
}
