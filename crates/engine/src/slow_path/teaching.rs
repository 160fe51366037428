//! Execution of learn actions, with a limit on the work that the learn actions of one packet cause.
//!
//! A learn action that adds a rule to a full table with eviction searches all rules of the table for one to evict. Each
//! revalidation of a megaflow executes the megaflow's learn actions again. Therefore learn actions that exceed the
//! limit are executed only at intervals.

use switch::flow::{LearnedFlow, Pipeline};

/// Maximum number of rules that the flow tables may visit to execute the learn actions of one packet.
const TEACHING: usize = 1 << 18;

/// Limiter for the work of learn actions. See the [module](self) documentation.
pub(super) struct Teaching {
    /// Maximum number of rules that the flow tables may visit to execute the learn actions of one packet.
    most: usize,
    /// Whether one learn action may exceed the limit before the next call of `turn`.
    may_exceed: bool,
}

impl Default for Teaching {
    fn default() -> Teaching {
        Teaching { most: TEACHING, may_exceed: true }
    }
}

impl Teaching {
    /// Permits one more learn action that exceeds the limit of work. The slow path calls this function twice a second.
    pub fn turn(&mut self) {
        self.may_exceed = true;
    }

    /// Executes the learn actions of one packet. A learn action has no effect if the tables refuse the rule
    /// (for example because a table is full) or if the action exceeds the limit of work.
    pub fn teach(&mut self, pipeline: &mut Pipeline, learns: &[LearnedFlow], now: u64) {
        let mut left = self.most;
        for lesson in learns {
            let work = pipeline.work_to_teach(lesson);
            if work > left && !std::mem::take(&mut self.may_exceed) {
                continue;
            }
            left = left.saturating_sub(work);
            let _ = pipeline.teach(lesson, now);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use switch::flow::{Field, FlowMod, Instructions, Match, Mod, TableBounds};

    use super::*;

    fn rule(number: u32) -> FlowMod {
        let matching = Match::ANY.with(Field::Reg0, u128::from(number));
        FlowMod { idle_timeout: 9, ..FlowMod::add(0, 1, matching, Instructions::default()) }
    }

    /// Checks that the limit also applies to the first learn action of a packet, for a large table that is
    /// full.
    #[test]
    fn a_first_lesson_that_walks_over_all_rules_is_taught_once_a_turn() {
        let mut pipeline = Pipeline::new();
        let rules: Vec<Mod> = (0..1000).map(|number| Mod::Flow(Box::new(rule(number)))).collect();
        pipeline.modify(&rules, 0).unwrap();
        let bounds = TableBounds { limit: Some(1000), evicts: true, ..TableBounds::default() };
        pipeline.set_table_bounds(0, bounds, 0);
        let mut teaching = Teaching { most: 500, ..Teaching::default() };
        let mut is_taught = |teaching: &mut Teaching, number| {
            let version = pipeline.version();
            teaching.teach(&mut pipeline, &[LearnedFlow { rule: rule(number), limit: 0 }], 1);
            pipeline.version() != version
        };
        assert_eq!([2000, 2001, 2002].map(|number| is_taught(&mut teaching, number)), [true, false, false]);
        teaching.turn();
        assert_eq!([2003, 2004].map(|number| is_taught(&mut teaching, number)), [true, false]);
        // Learn actions within the limit do not depend on `turn`.
        teaching.most = 5000;
        assert_eq!([2005, 2006].map(|number| is_taught(&mut teaching, number)), [true, true]);
    }
}
