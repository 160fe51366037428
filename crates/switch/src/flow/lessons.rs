//! Rules that packets teach (`learn`): how many there may be, and when they go with who taught them.

use std::collections::{BTreeMap, BTreeSet};

use super::action::Learn;
use super::message::{FlowError, FlowMod, Mod, Removed};
use super::pipeline::Pipeline;
use super::rule::{Rule, RuleRef};
use super::{Action, Match};

/// NX_LEARN_F_DELETE_LEARNED: learnt rules go with the last rule that teaches them.
const DELETE_LEARNED: u16 = 2;

/// A rule that a packet teaches.
#[derive(Clone, PartialEq, Debug)]
pub struct Lesson {
    /// What adds it.
    pub rule: FlowMod,
    /// Most rules of its table with its cookie; 0: no limit.
    pub limit: u32,
}

/// Table and cookie of learnt rules.
type Key = (u8, u64);

/// What is known of rules that are taught.
#[derive(Clone, Default, Debug)]
pub(crate) struct Lessons {
    /// How many actions keep the rules that they teach from going.
    keepers: BTreeMap<Key, usize>,
    /// Whose last keeper has gone since it was looked at.
    orphans: BTreeSet<Key>,
}

impl Lessons {
    /// A rule has come.
    pub fn linked(&mut self, rule: &Rule) {
        each_keeper(&rule.instructions.apply, &mut |key| *self.keepers.entry(key).or_default() += 1);
    }

    /// A rule has gone, or is another one from now on.
    pub fn unlinked(&mut self, rule: &Rule) {
        each_keeper(&rule.instructions.apply, &mut |key| {
            if let Some(count) = self.keepers.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    self.keepers.remove(&key);
                    self.orphans.insert(key);
                }
            }
        });
    }

    /// Changes were taken back: nobody's rules go.
    pub fn forget_orphans(&mut self) {
        self.orphans.clear();
    }
}

fn each_keeper(actions: &[Action], see: &mut impl FnMut(Key)) {
    for action in actions {
        match action {
            Action::Learn(learn) if learn.flags & DELETE_LEARNED != 0 => see(key(learn)),
            Action::Clone(inner) => each_keeper(inner, see),
            _ => {}
        }
    }
}

fn key(learn: &Learn) -> Key {
    (learn.table, learn.cookie)
}

impl Pipeline {
    /// Does what a packet teaches: a rule that is there is as good as used now, another one is added.
    ///
    /// # Errors
    /// Why it is not learnt: there are as many as may be ([`FlowError::TableFull`]), or what else a change is refused for.
    pub fn teach(&mut self, lesson: &Lesson, now_ns: u64) -> Result<(), FlowError> {
        if self.refresh(&lesson.rule, now_ns) {
            return Ok(());
        }
        if !self.may_learn(lesson) {
            return Err(FlowError::TableFull);
        }
        self.modify(&[Mod::Flow(Box::new(lesson.rule.clone()))], now_ns).map_err(|(_, why)| why)
    }

    /// How many rules are looked at to teach it, about.
    #[must_use]
    pub fn work_to_teach(&self, lesson: &Lesson) -> usize {
        self.work_of_add(&lesson.rule)
    }

    /// Whether its limit leaves room for what a packet teaches.
    #[must_use]
    pub fn may_learn(&self, lesson: &Lesson) -> bool {
        let key = (lesson.rule.table, lesson.rule.cookie.unwrap_or(0));
        lesson.limit == 0
            || self.stands(&lesson.rule).is_some_and(|rule| rule.cookie == key.1)
            || self.rules.count_of(key.0, key.1) < usize::try_from(lesson.limit).unwrap_or(usize::MAX)
    }

    /// The rule in whose place this one would come.
    fn stands(&self, rule: &FlowMod) -> Option<&Rule> {
        let Match { value, mask } = rule.matching;
        let table = self.tables.get(usize::from(rule.table))?;
        self.rules.get(*table.classifier.get(&value.0, &mask.0, rule.priority)?)
    }

    /// Takes out what was learnt by rules that are no more, and asked for that (`delete_learned`).
    pub(crate) fn drop_orphans(&mut self, now_ns: u64) {
        // What goes may have taught rules itself.
        while !self.lessons.orphans.is_empty() {
            let mut orphans = std::mem::take(&mut self.lessons.orphans);
            // Another one teaches them by now.
            orphans.retain(|key| !self.lessons.keepers.contains_key(key));
            let of = |(table, cookie): &Key| self.rules.with_cookie(*table, *cookie).map(|(at, _)| at);
            let mut gone: Vec<RuleRef> = orphans.iter().flat_map(of).collect();
            gone.sort_unstable();
            for at in gone {
                self.remove_rule(at, Removed::Delete, now_ns);
            }
        }
    }

    /// The rule that `learnt` would add, where it is there.
    pub(super) fn taught(&self, learnt: &FlowMod) -> Option<RuleRef> {
        let Match { value, mask } = learnt.matching;
        let table = self.tables.get(usize::from(learnt.table))?;
        let at = *table.classifier.get(&value.0, &mask.0, learnt.priority)?;
        let rule = self.rules.get(at)?;
        let is_same = rule.instructions == learnt.instructions && Some(rule.cookie) == learnt.cookie;
        is_same.then_some(at)
    }

    /// Marks the rule that `learnt` would add as used now; false when there is none, or it does something else.
    pub(super) fn refresh(&mut self, learnt: &FlowMod, now_ns: u64) -> bool {
        if usize::from(learnt.table) >= self.tables.len() {
            return true;
        }
        let Some(rule) = self.taught(learnt).and_then(|at| self.rules.get_mut(at)) else { return false };
        (rule.used_ns, rule.modified_ns) = (now_ns, now_ns);
        true
    }
}
