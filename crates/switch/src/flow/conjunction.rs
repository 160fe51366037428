//! Conjunctive matches (ovs-fields(7)). A packet that matches one flow entry of each clause of a conjunction,
//! all with equal priority, is looked up again with the conjunction's number in `conj_id`.

use std::collections::BTreeMap;

use super::pipeline::{Pipeline, Table};
use super::rule::RuleRef;
use super::{Field, Flow};

/// Work of recording one conjunction that a rule names. One unit is the work of visiting a rule.
const EACH: u32 = 2;

/// Looks a flow up in a table with conjunctive matches. Returns the rule found and the work done. The work
/// counts rules that are parts of conjunctions, the conjunctions that these rules name, and further look-ups.
/// If the work exceeds `most`, the look-up stops early and returns no rule.
pub fn look_up(
    pipeline: &Pipeline,
    table: &Table,
    flow: &mut Flow,
    wild: &mut Flow,
    most: u32,
) -> (Option<RuleRef>, u32) {
    let parts = |rule: &RuleRef| pipeline.rule(*rule).filter(|rule| rule.is_conjunctive());
    let mut work = 0_u32;
    // Clauses matched of each conjunction, by descending priority.
    let mut met: BTreeMap<(std::cmp::Reverse<u16>, u32), (u64, u8)> = BTreeMap::new();
    let hard = table.classifier.lookup_where(&flow.0, &mut wild.0, |rule, priority| {
        let Some(rule) = parts(rule) else { return true };
        // The order of the rules is equal for all packets that agree in the bits of `wild`, so that all these
        // packets reach the limit.
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
