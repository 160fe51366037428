//! Conjunctive matches (ovs-fields(7)): a packet that meets one rule of each clause of a conjunction, all of the same priority, is
//! looked up again with the conjunction's number in `conj_id`.

use std::collections::BTreeMap;

use super::pipeline::{Pipeline, Table};
use super::rule::RuleRef;
use super::{Field, Flow};

/// The look-up in a table that has parts of conjunctive matches.
pub fn look_up(pipeline: &Pipeline, table: &Table, flow: &mut Flow, wild: &mut Flow) -> Option<RuleRef> {
    let is_part = |rule: &RuleRef| pipeline.rule(*rule).is_some_and(super::rule::Rule::is_conjunctive);
    // By falling priority, the clauses that are met of each conjunction.
    let mut met: BTreeMap<(std::cmp::Reverse<u16>, u32), (u64, u8)> = BTreeMap::new();
    let hard = table.classifier.lookup_where(&flow.0, &mut wild.0, |rule, priority| {
        if !is_part(rule) {
            return true;
        }
        for part in pipeline.rule(*rule).into_iter().flat_map(super::rule::Rule::conjunctions) {
            let (clauses, count) = met.entry((std::cmp::Reverse(priority), part.id)).or_default();
            *clauses |= 1 << part.clause;
            *count = part.clauses;
        }
        false
    });
    for ((priority, id), (clauses, count)) in met {
        if hard.is_some_and(|(_, hard)| priority.0 <= hard) {
            break;
        }
        if clauses.count_ones() < u32::from(count) {
            continue;
        }
        flow.set(Field::ConjId, u128::from(id));
        let found = table.classifier.lookup_where(&flow.0, &mut wild.0, |rule, _| !is_part(rule));
        flow.set(Field::ConjId, 0);
        if let Some((rule, _)) = found {
            return Some(*rule);
        }
    }
    hard.map(|(rule, _)| *rule)
}
