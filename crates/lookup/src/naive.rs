//! Reference implementation of [`Classifier`](crate::Classifier): a list of rules with a linear search.
//!
//! The list serves tests in this crate and other crates. It is too slow for other uses.

use crate::rule::{Rule, matches};

/// An unordered list of rules with the methods of the classifier.
#[derive(Clone, Debug)]
pub struct Linear<const W: usize, T> {
    rules: Vec<Rule<W, T>>,
}

impl<const W: usize, T> Default for Linear<W, T> {
    fn default() -> Self {
        Linear { rules: Vec::new() }
    }
}

/// Returns whether a rule has this mask, and has this value in the bits of the mask.
fn same<const W: usize, T>(rule: &Rule<W, T>, value: &[u64; W], mask: &[u64; W]) -> bool {
    rule.mask == *mask && matches(value, &rule.value, mask)
}

impl<const W: usize, T> Linear<W, T> {
    /// Returns an empty list.
    #[must_use]
    pub fn new() -> Linear<W, T> {
        Linear::default()
    }

    /// Inserts a rule. If a rule with equal value, mask and priority exists, replaces this rule and returns
    /// its payload.
    pub fn insert(&mut self, rule: Rule<W, T>) -> Option<T> {
        let old = self.remove(&rule.value, &rule.mask, rule.priority);
        self.rules.push(rule);
        old
    }

    /// Removes a rule and returns its payload. Returns `None` if the rule does not exist.
    pub fn remove(&mut self, value: &[u64; W], mask: &[u64; W], priority: u16) -> Option<T> {
        let at = self.rules.iter().position(|rule| rule.priority == priority && same(rule, value, mask))?;
        Some(self.rules.swap_remove(at).payload)
    }

    /// Returns the payload of a rule. Returns `None` if the rule does not exist.
    #[must_use]
    pub fn get(&self, value: &[u64; W], mask: &[u64; W], priority: u16) -> Option<&T> {
        let found = self.rules.iter().find(|rule| rule.priority == priority && same(rule, value, mask));
        found.map(|rule| &rule.payload)
    }

    /// Returns all rules in the list.
    #[must_use]
    pub fn rules(&self) -> &[Rule<W, T>] {
        &self.rules
    }

    /// Returns whether a key exists that matches both a rule with this value and mask and another rule of
    /// equal priority in the list.
    #[must_use]
    pub fn overlaps(&self, value: &[u64; W], mask: &[u64; W], priority: u16) -> bool {
        self.rules.iter().any(|rule| {
            let both = std::array::from_fn(|word| rule.mask[word] & mask[word]);
            rule.priority == priority && !same(rule, value, mask) && matches(value, &rule.value, &both)
        })
    }

    /// Returns a rule with the highest priority among the rules that match the key. Returns `None` if no rule
    /// matches.
    #[must_use]
    pub fn lookup(&self, key: &[u64; W]) -> Option<&Rule<W, T>> {
        self.lookup_where(key, |_, _| true)
    }

    /// Returns a rule with the highest priority among the rules that match the key and for which `wanted`
    /// returns `true`. Returns `None` if there is no such rule.
    pub fn lookup_where(
        &self,
        key: &[u64; W],
        mut wanted: impl FnMut(&T, u16) -> bool,
    ) -> Option<&Rule<W, T>> {
        let matching = self.rules.iter().filter(|rule| matches(key, &rule.value, &rule.mask));
        matching.filter(|rule| wanted(&rule.payload, rule.priority)).max_by_key(|rule| rule.priority)
    }
}
