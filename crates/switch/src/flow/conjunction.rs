//! Conjunctive matches (ovs-fields(7)): a packet that meets one rule of each clause of a conjunction, all of the same priority, is
//! looked up again with the conjunction's number in `conj_id`.

use std::collections::BTreeMap;

use super::pipeline::{Pipeline, Table};
use super::rule::RuleRef;
use super::{Field, Flow};

/// Work of noting a conjunction that a rule is part of, beside one of looking at a rule.
const EACH: u32 = 2;

/// The look-up in a table that has parts of conjunctive matches, and its work: rules of parts, the conjunctions that these name, and further
/// look-ups. Where the work is more than `most`, the look-up ends early and has found nothing.
pub fn look_up(
    pipeline: &Pipeline,
    table: &Table,
    flow: &mut Flow,
    wild: &mut Flow,
    most: u32,
) -> (Option<RuleRef>, u32) {
    let parts = |rule: &RuleRef| pipeline.rule(*rule).filter(|rule| rule.is_conjunctive());
    let mut work = 0_u32;
    // By falling priority, the clauses that are met of each conjunction.
    let mut met: BTreeMap<(std::cmp::Reverse<u16>, u32), (u64, u8)> = BTreeMap::new();
    let hard = table.classifier.lookup_where(&flow.0, &mut wild.0, |rule, priority| {
        let Some(rule) = parts(rule) else { return true };
        // Each rule is shown in the same order to all packets that agree in the bits of `wild`: these packets meet the limit together.
        if work > most {
            return true;
        }
        work = work.saturating_add(1);
        for part in rule.conjunctions() {
            work = work.saturating_add(EACH);
            let (clauses, count) = met.entry((std::cmp::Reverse(priority), part.id)).or_default();
            *clauses |= 1 << part.clause;
            *count = part.clauses;
        }
        false
    });
    for ((priority, id), (clauses, count)) in met {
        if work > most || hard.is_some_and(|(_, hard)| priority.0 <= hard) {
            break;
        }
        if clauses.count_ones() < u32::from(count) {
            continue;
        }
        flow.set(Field::ConjId, u128::from(id));
        work = work.saturating_add(1);
        let found = table.classifier.lookup_where(&flow.0, &mut wild.0, |rule, _| {
            let is_part = parts(rule).is_some();
            work = work.saturating_add(u32::from(is_part));
            !is_part || work > most
        });
        flow.set(Field::ConjId, 0);
        if let Some((rule, _)) = found {
            return (Some(*rule).filter(|_| work <= most), work);
        }
    }
    (hard.map(|(rule, _)| *rule).filter(|_| work <= most), work)
}
