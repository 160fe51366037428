//! Removal of expired rules in steps (turns). The work of each turn is limited, because packets that wait for
//! translation (upcalls) need the lock of the tables.

use super::message::Removed;
use super::pipeline::{EXPIRED_AT_ONCE, EXPIRED_WORK, Pipeline};
use super::rule::RuleRef;

/// Maximum number of rule slots that one turn (one call of `Pipeline::expire`) visits in search of expired rules.
const PLACES_AT_ONCE: usize = 1 << 17;

impl Pipeline {
    /// Executes one turn (step) of the removal of expired rules. A turn visits a limited number of rule slots. The turn
    /// removes at most 20,000 expired rules and 20,000 learned rules whose `learn` actions were removed, or fewer if
    /// the rules have many actions. These limits bound the delay of packets. Each turn continues at the slot where the
    /// previous turn ended.
    ///
    /// Returns whether another turn is due immediately.
    pub fn expire(&mut self, now_ns: u64) -> bool {
        self.expire_places(PLACES_AT_ONCE, now_ns)
    }

    /// Returns whether the last call of `Pipeline::expire` left rule slots unvisited, or left doomed rules (learned
    /// rules whose `learn` actions were removed). In both cases, the next call is due immediately.
    #[must_use]
    pub fn is_expiring(&self) -> bool {
        self.expire_from > 0 || self.rules.has_doomed()
    }

    fn expire_places(&mut self, most: usize, now_ns: u64) -> bool {
        let mut over: Vec<(RuleRef, Removed)> = Vec::new();
        let (mut next, mut work) = (self.expire_from, 0);
        for place in self.rules.walk(next, most) {
            next += 1;
            let Some((at, why)) = place.and_then(|(at, rule)| Some((at, rule.is_over(now_ns)?))) else {
                continue;
            };
            over.push((at, why));
            work += self.rules.work_at(at);
            if over.len() == EXPIRED_AT_ONCE || work >= EXPIRED_WORK {
                break;
            }
        }
        self.expire_from = if next < self.rules.place_count() { next } else { 0 };
        for (at, why) in over {
            self.remove_rule(at, why, now_ns);
        }
        self.drop_doomed(EXPIRED_AT_ONCE, now_ns);
        self.queue_vacancy_events();
        self.is_expiring()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::flow::{Action, Field, FlowCommand, FlowMod, Instructions, Learn, Match, Mod};

    fn add(pipeline: &mut Pipeline, numbers: std::ops::Range<u32>, hard_timeout: u16) {
        let rule = |number: u32| {
            let matching = Match::ANY.with(Field::Reg0, u128::from(number));
            let rule = FlowMod::add(0, 1, matching, Instructions::default());
            Mod::Flow(Box::new(FlowMod { hard_timeout, ..rule }))
        };
        pipeline.modify(&numbers.map(rule).collect::<Vec<_>>(), 0).unwrap();
    }

    /// Checks that one call of `Pipeline::expire` visits a bounded number of rule slots, and that the next call
    /// continues after these slots.
    #[test]
    fn a_turn_looks_at_a_bounded_number_of_places() {
        let mut pipeline = Pipeline::new();
        add(&mut pipeline, 0..100, 0);
        add(&mut pipeline, 100..130, 1);
        let now = 2_000_000_000;
        let mut turn = || (pipeline.expire_places(50, now), pipeline.rule_count());
        assert_eq!([turn(), turn(), turn()], [(true, 130), (true, 130), (false, 100)]);
        assert_eq!([turn(), turn(), turn()], [(true, 100), (true, 100), (false, 100)], "the places stay");
    }

    /// Returns a rule with 4000 actions and the cookie 7 in table 1.
    fn heavy(number: u32) -> FlowMod {
        let matching = Match::ANY.with(Field::Reg0, u128::from(number));
        let instructions = Instructions::apply(vec![Action::PopVlan; 4000]);
        FlowMod { cookie: Some(7), ..FlowMod::add(1, 1, matching, instructions) }
    }

    /// Checks that one call of `Pipeline::expire` removes fewer rules if the rules have many actions, and that later
    /// calls remove the other rules.
    #[test]
    fn a_turn_removes_few_rules_with_many_actions() {
        let mut pipeline = Pipeline::new();
        let rule = |number| Mod::Flow(Box::new(FlowMod { hard_timeout: 1, ..heavy(number) }));
        pipeline.modify(&(0..400).map(rule).collect::<Vec<_>>(), 0).unwrap();
        let most = EXPIRED_WORK.div_ceil(pipeline.rules.work() / 400);
        assert!(most < 200);
        let mut turn = || (pipeline.expire(2_000_000_000), pipeline.rule_count());
        assert_eq!([turn(), turn()], [(true, 400 - most), (true, 400 - 2 * most)]);
        assert_eq!(turn(), (false, 0));
    }

    /// The removal of a rule with a `learn` action also removes the learned rules. If the learned rules have many
    /// actions, the removal and each later call of `Pipeline::expire` remove only some of them.
    #[test]
    fn few_learned_rules_with_many_actions_are_removed_with_their_teacher() {
        let mut pipeline = Pipeline::new();
        let learn = Learn {
            idle_timeout: 0,
            hard_timeout: 0,
            fin_idle_timeout: 0,
            fin_hard_timeout: 0,
            priority: 1,
            cookie: 7,
            // NX_LEARN_F_DELETE_LEARNED.
            flags: 2,
            table: 1,
            limit: 0,
            result: None,
            parts: Vec::new(),
        };
        let teacher =
            FlowMod::add(0, 1, Match::ANY, Instructions::apply(vec![Action::Learn(Box::new(learn))]));
        pipeline.modify(&[Mod::Flow(Box::new(teacher.clone()))], 0).unwrap();
        let rule = |number| Mod::Flow(Box::new(heavy(number)));
        pipeline.modify(&(0..400).map(rule).collect::<Vec<_>>(), 0).unwrap();
        let most = EXPIRED_WORK.div_ceil(pipeline.rules.work() / 400);
        let delete =
            Mod::Flow(Box::new(FlowMod { command: FlowCommand::Delete { strict: true }, ..teacher }));
        // The estimate includes the removed learned rules.
        let work = pipeline.work_of(std::slice::from_ref(&delete));
        assert!((EXPIRED_WORK..2 * EXPIRED_WORK).contains(&work), "{work}");
        pipeline.modify(&[delete], 0).unwrap();
        assert_eq!((pipeline.is_expiring(), pipeline.rule_count()), (true, 400 - most));
        assert!(pipeline.expire(1));
        assert_eq!(pipeline.rule_count(), 400 - 2 * most);
        while pipeline.expire(1) {}
        assert_eq!(pipeline.rule_count(), 0);
    }

    /// Checks that a call of `Pipeline::expire` that immediately follows another call does not visit the first slots
    /// again.
    #[test]
    fn a_turn_goes_on_where_the_last_one_has_ended() {
        let mut pipeline = Pipeline::new();
        add(&mut pipeline, 0..50_000, 1);
        let now = 2_000_000_000;
        assert!(pipeline.expire(now));
        // This rule is stored in one of the first slots, which are free again.
        add(&mut pipeline, 50_000..50_001, 1);
        assert!(pipeline.expire(now));
        let has_last = |pipeline: &Pipeline| {
            pipeline
                .named(&FlowMod::add(0, 1, Match::ANY.with(Field::Reg0, 50_000), Instructions::default()))
                .next()
                .is_some()
        };
        assert_eq!((pipeline.rule_count(), has_last(&pipeline)), (10_001, true));
        assert!(!pipeline.expire(now));
        assert_eq!((pipeline.rule_count(), has_last(&pipeline)), (1, true));
        assert!(!pipeline.expire(now));
        assert_eq!(pipeline.rule_count(), 0);
    }
}
