//! Addition of learned flow entries (action `learn`) within their limits, and their removal when the flow entries with
//! the `learn` actions are removed.

use super::Match;
use super::learned::LearnedFlow;
use super::message::{FlowError, FlowMod, Mod, Removed};
use super::pipeline::{EXPIRED_AT_ONCE, EXPIRED_WORK, Pipeline};
use super::rule::{Rule, RuleRef};

impl Pipeline {
    /// Adds a learned flow entry. If the table already holds an equal flow entry, only its modification time is
    /// refreshed, as in Open vSwitch: the hard time-out begins again, and the idle time-out still counts from the last
    /// packet that matched.
    ///
    /// # Errors
    /// Returns [`FlowError::TableFull`] if the limit on learned flow entries is reached. Any other
    /// error is the reason why the flow entry is refused.
    pub fn teach(&mut self, learned: &LearnedFlow, now_ns: u64) -> Result<(), FlowError> {
        if self.refresh(&learned.rule, now_ns) {
            return Ok(());
        }
        if !self.may_learn(learned) {
            return Err(FlowError::TableFull);
        }
        self.modify(&[Mod::Flow(Box::new(learned.rule.clone()))], now_ns).map_err(|(_, why)| why)
    }

    /// Returns the estimated work of adding a learned flow entry. The unit is the work of visiting one rule.
    #[must_use]
    pub fn work_to_teach(&self, learned: &LearnedFlow) -> usize {
        self.work_of_add(&learned.rule)
    }

    /// Returns whether the limit of the `learn` action allows one more learned flow entry.
    #[must_use]
    pub fn may_learn(&self, learned: &LearnedFlow) -> bool {
        let key = (learned.rule.table, learned.rule.cookie.unwrap_or(0));
        learned.limit == 0
            || self.stands(&learned.rule).is_some_and(|rule| rule.cookie == key.1)
            || self.rules.count_of(key.0, key.1) < usize::try_from(learned.limit).unwrap_or(usize::MAX)
    }

    /// Returns the rule that the flow-mod would replace. Returns `None` if there is no such rule, or if the rule is
    /// about to be removed.
    fn stands(&self, rule: &FlowMod) -> Option<&Rule> {
        let Match { value, mask } = rule.matching;
        let table = self.tables.get(usize::from(rule.table))?;
        let at = *table.classifier.get(&value.0, &mask.0, rule.priority)?;
        if self.rules.is_doomed(at) { None } else { self.rules.get(at) }
    }

    /// Removes learned flow entries for which no `learn` action with the flag NX_LEARN_F_DELETE_LEARNED is left. If
    /// previous removals are not complete, the flow entries are only marked (doomed), and later calls of
    /// `Pipeline::expire` remove them.
    pub(crate) fn drop_orphans(&mut self, now_ns: u64) {
        let most = if self.rules.has_doomed() { 0 } else { EXPIRED_AT_ONCE };
        self.drop_doomed(most, now_ns);
    }

    /// Removes at most `most` learned rules for which no `learn` action with the flag NX_LEARN_F_DELETE_LEARNED is
    /// left. Rules with many actions end the removal earlier, after at least one rule. Returns whether more rules are
    /// to be removed.
    pub(super) fn drop_doomed(&mut self, most: usize, now_ns: u64) -> bool {
        let (mut left, mut work) = (most, EXPIRED_WORK);
        // Repeated, because the removed rules may themselves have `learn` actions whose learned rules must be removed.
        loop {
            for (table, cookie) in std::mem::take(&mut self.learned.orphans) {
                // A rule added in the meantime may have a `learn` action for this table and cookie.
                if !self.learned.keepers.contains_key(&(table, cookie)) {
                    self.rules.doom(table, cookie);
                }
            }
            let mut gone = self.rules.next_doomed(left, work);
            if gone.is_empty() {
                return self.rules.has_doomed();
            }
            left -= gone.len();
            work = gone.iter().fold(work, |work, at| work.saturating_sub(self.rules.work_at(*at)));
            gone.sort_unstable();
            for at in gone {
                self.remove_rule(at, Removed::Delete, now_ns);
            }
        }
    }

    /// Returns the existing rule that is equal to the rule that the flow-mod `learnt` would add.
    /// Returns `None` if the tables have no such rule.
    pub(super) fn taught(&self, learnt: &FlowMod) -> Option<RuleRef> {
        let Match { value, mask } = learnt.matching;
        let table = self.tables.get(usize::from(learnt.table))?;
        let at = *table.classifier.get(&value.0, &mask.0, learnt.priority)?;
        if self.rules.is_doomed(at) {
            return None;
        }
        let rule = self.rules.get(at)?;
        // A rule whose time-outs a TCP FIN or RST has reduced is replaced.
        let is_same = rule.instructions == learnt.instructions
            && Some(rule.cookie) == learnt.cookie
            && (rule.idle_timeout, rule.hard_timeout) == (learnt.idle_timeout, learnt.hard_timeout)
            && rule.importance == learnt.importance
            && rule.flags.send_removed == learnt.flags.send_removed;
        is_same.then_some(at)
    }

    /// Sets the modification time of an existing rule to `now_ns`. The rule is equal to the rule
    /// that the flow-mod `learnt` would add. Returns false if there is no such rule. Returns true
    /// and changes nothing if the table does not exist.
    pub(super) fn refresh(&mut self, learnt: &FlowMod, now_ns: u64) -> bool {
        if usize::from(learnt.table) >= self.tables.len() {
            return true;
        }
        let Some(rule) = self.taught(learnt).and_then(|at| self.rules.get_mut(at)) else { return false };
        rule.modified_ns = now_ns;
        true
    }
}
