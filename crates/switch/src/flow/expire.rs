//! Removal of expired rules. The work of one turn is bounded, because upcalls wait for the lock of the tables
//! during a turn.

use super::message::Removed;
use super::pipeline::{EXPIRED_AT_ONCE, Pipeline};
use super::rule::RuleRef;

/// Maximum number of rule slots that one turn visits.
const PLACES_AT_ONCE: usize = 1 << 17;

impl Pipeline {
    /// Removes expired rules in one turn. A turn removes at most 20,000 expired rules and 20,000 doomed
    /// learned rules, and visits a bounded number of rule slots. These bounds limit the delay of packets.
    /// Each turn continues at the slot where the previous turn ended.
    ///
    /// Returns whether another turn is due immediately.
    pub fn expire(&mut self, now_ns: u64) -> bool {
        self.expire_places(PLACES_AT_ONCE, now_ns)
    }

    /// Returns whether the last turn left rule slots unvisited or doomed rules in place. If so, another turn
    /// is due immediately.
    #[must_use]
    pub fn is_expiring(&self) -> bool {
        self.expire_from > 0 || self.rules.has_doomed()
    }

    fn expire_places(&mut self, most: usize, now_ns: u64) -> bool {
        let mut over: Vec<(RuleRef, Removed)> = Vec::new();
        let mut next = self.expire_from;
        for place in self.rules.walk(next, most) {
            next += 1;
            over.extend(place.and_then(|(at, rule)| Some((at, rule.is_over(now_ns)?))));
            if over.len() == EXPIRED_AT_ONCE {
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
    use crate::flow::{Field, FlowMod, Instructions, Match, Mod};

    fn add(pipeline: &mut Pipeline, numbers: std::ops::Range<u32>, hard_timeout: u16) {
        let rule = |number: u32| {
            let matching = Match::ANY.with(Field::Reg0, u128::from(number));
            let rule = FlowMod::add(0, 1, matching, Instructions::default());
            Mod::Flow(Box::new(FlowMod { hard_timeout, ..rule }))
        };
        pipeline.modify(&numbers.map(rule).collect::<Vec<_>>(), 0).unwrap();
    }

    /// Checks that a turn visits a bounded number of rule slots, and that the next turn continues after them.
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

    /// Checks that a turn that immediately follows another one does not visit the first slots again.
    #[test]
    fn a_turn_goes_on_where_the_last_one_has_ended() {
        let mut pipeline = Pipeline::new();
        add(&mut pipeline, 0..50_000, 1);
        let now = 2_000_000_000;
        assert!(pipeline.expire(now));
        // Comes to one of the first places.
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
