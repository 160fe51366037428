//! Learned flow entries (action `learn`), and counts of the `learn` actions. When the last `learn`
//! action for a learned flow entry is removed, the learned flow entry is removed too if the action
//! has a flag that requests this.

use std::collections::{BTreeMap, BTreeSet};

use super::Instructions;
use super::action::{Learn, each_keeper, memory_of};
use super::message::FlowMod;
use super::rule::Rule;

/// A learned flow entry that a packet adds through a `learn` action.
#[derive(Clone, PartialEq, Debug)]
pub struct LearnedFlow {
    /// Flow-mod that adds the learned flow entry.
    pub rule: FlowMod,
    /// Maximum number of flow entries that the table of `rule` may hold with the cookie of `rule`. 0 means no limit.
    pub limit: u32,
}

impl LearnedFlow {
    /// Returns the approximate size of the learned flow entry in memory, in octets.
    #[must_use]
    pub fn memory(&self) -> usize {
        let Instructions { apply, write, .. } = &self.rule.instructions;
        size_of::<LearnedFlow>() + memory_of(apply) + memory_of(write)
    }
}

/// Table and cookie that a `learn` action assigns to its learned flow entries.
pub(super) type Key = (u8, u64);

/// Counts of `learn` actions. Learned flow entries are removed when the last `learn` action with their table and cookie
/// is removed.
#[derive(Clone, Default, Debug)]
pub(crate) struct LearnedFlows {
    /// Number of `learn` actions with the flag NX_LEARN_F_DELETE_LEARNED, by table and cookie of the learned
    /// flow entries.
    pub keepers: BTreeMap<Key, usize>,
    /// Tables and cookies for which the last `learn` action was removed and whose learned flow entries have not been
    /// removed yet.
    pub orphans: BTreeSet<Key>,
}

impl LearnedFlows {
    /// Counts the `learn` actions of a new rule that have the flag NX_LEARN_F_DELETE_LEARNED.
    pub fn linked(&mut self, rule: &Rule) {
        each_keeper(&rule.instructions.apply, &mut |learn| {
            *self.keepers.entry(key(learn)).or_default() += 1;
        });
    }

    /// Removes the `learn` actions of a rule from the counts. The rule was removed or is about to change. A table
    /// and cookie whose count drops to zero is added to `orphans`.
    pub fn unlinked(&mut self, rule: &Rule) {
        each_keeper(&rule.instructions.apply, &mut |learn| {
            let key = key(learn);
            if let Some(count) = self.keepers.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    self.keepers.remove(&key);
                    self.orphans.insert(key);
                }
            }
        });
    }

    /// Returns whether any rule has a `learn` action with the flag NX_LEARN_F_DELETE_LEARNED.
    pub fn has_keepers(&self) -> bool {
        !self.keepers.is_empty()
    }

    /// Clears the list of tables and cookies whose learned flow entries are to be removed. Call
    /// this function after a batch was reverted.
    pub fn forget_orphans(&mut self) {
        self.orphans.clear();
    }
}

/// Returns the table and cookie of the learned flow entries that a `learn` action adds.
pub(super) fn key(learn: &Learn) -> Key {
    (learn.table, learn.cookie)
}
