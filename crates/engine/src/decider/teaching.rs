//! Rules that packets teach, within bounds of work.
//!
//! A lesson for a full table with eviction looks for a victim among all rules of the table. A flow repeats
//! its lessons with each look, so lessons beyond the bound of one packet are rationed over time.

use switch::flow::{Lesson, Pipeline};

/// Work of the lessons of one packet, at most.
const TEACHING: usize = 1 << 18;

/// See the [module](self).
pub(super) struct Teaching {
    /// Work of the lessons of one packet, at most.
    most: usize,
    /// Whether one lesson may take more before the next turn.
    may_exceed: bool,
}

impl Default for Teaching {
    fn default() -> Teaching {
        Teaching { most: TEACHING, may_exceed: true }
    }
}

impl Teaching {
    /// Allows one long lesson more. Called twice a second.
    pub fn turn(&mut self) {
        self.may_exceed = true;
    }

    /// Teaches what one packet teaches. Lessons that are refused (a full table, a limit) or take too much
    /// work are not learnt.
    pub fn teach(&mut self, pipeline: &mut Pipeline, learns: &[Lesson], now: u64) {
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

    /// The first lesson of a packet for a large full table is bounded like the others.
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
            teaching.teach(&mut pipeline, &[Lesson { rule: rule(number), limit: 0 }], 1);
            pipeline.version() != version
        };
        assert_eq!([2000, 2001, 2002].map(|number| is_taught(&mut teaching, number)), [true, false, false]);
        teaching.turn();
        assert_eq!([2003, 2004].map(|number| is_taught(&mut teaching, number)), [true, false]);
        // Lessons within the bound need no turn.
        teaching.most = 5000;
        assert_eq!([2005, 2006].map(|number| is_taught(&mut teaching, number)), [true, true]);
    }
}
