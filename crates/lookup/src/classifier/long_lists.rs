//! Indexes that find a rule in a long list by its priority. All rules of a list have equal masks and equal values.
//!
//! A `Subtable` links the rules of equal value in a list, in descending order of priority. A look-up of a packet reads
//! the list from its first rule. A change of the list first finds the position of a priority in the list. With the
//! index, this takes logarithmic time. A short list has no index, because a walk through the list is cheaper.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

/// Maximum number of rules in a list that has no index.
pub(super) const SHORT: usize = 8;
/// Number of rules at which a removal also removes the index of the list. The number is lower than [`SHORT`]. Therefore
/// repeated insertion and removal of one rule does not rebuild the index each time.
const DROP_AT: usize = SHORT / 2;

/// Index of one list, which maps the priority of each rule to the slot of the rule.
pub(super) type List = BTreeMap<u16, u32>;

/// Indexes of the long lists of a subtable. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct LongLists {
    /// Index of each long list, by the slot of the first rule in the list.
    lists: BTreeMap<u32, List>,
}

impl LongLists {
    /// Returns the memory use of the indexes in bytes.
    pub fn memory(&self) -> usize {
        // A B-tree node holds up to 11 entries and is usually half full.
        let rules: usize = self.lists.values().map(List::len).sum();
        2 * (self.lists.len() * size_of::<(u32, List)>() + rules * size_of::<(u16, u32)>())
    }

    /// Returns the index by priority of the list that begins at slot `head`. Returns `None` if the list has no index,
    /// because the list is short.
    pub fn get(&self, head: u32) -> Option<&List> {
        self.lists.get(&head)
    }

    /// Returns the slot of the rule with the lowest priority above `priority` in the list. Returns `None` if no rule of
    /// the list has a higher priority.
    pub fn before(list: &List, priority: u16) -> Option<u32> {
        list.range((Excluded(priority), Unbounded)).next().map(|(_, slot)| *slot)
    }

    /// Builds the index of a list that has become long. `head` is the first slot of the list.
    pub fn build(&mut self, head: u32, list: List) {
        self.lists.insert(head, list);
    }

    /// Records a new rule in the index of its list. `old` and `head` are the first slots of the list before
    /// and after the change. Returns `false` if the list has no index.
    pub fn insert(&mut self, old: u32, head: u32, priority: u16, slot: u32) -> bool {
        self.change(old, head, |list| list.insert(priority, slot))
    }

    /// Removes a rule from the index of its list, if the list has an index. `old` and `head` are the first
    /// slots of the list before and after the change.
    pub fn remove(&mut self, old: u32, head: u32, priority: u16) {
        self.change(old, head, |list| list.remove(&priority));
    }

    /// Changes the index of the list that began at slot `old` and now begins at slot `head`. Returns `false`
    /// if the list has no index.
    fn change(&mut self, old: u32, head: u32, change: impl FnOnce(&mut List) -> Option<u32>) -> bool {
        let Some(list) = self.lists.get_mut(&old) else { return false };
        change(list);
        if list.len() <= DROP_AT {
            self.lists.remove(&old);
        } else if old != head
            && let Some(list) = self.lists.remove(&old)
        {
            self.lists.insert(head, list);
        }
        true
    }
}
