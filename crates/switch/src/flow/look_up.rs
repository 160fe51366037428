//! Lookup of a packet's flow in a table, including conjunctive matches (ovs-fields(7)). If a packet matches a flow
//! entry of each clause of a conjunction, all with equal priority, the packet is looked up again with the conjunction's
//! number in the field `conj_id`.

use std::collections::BTreeMap;

use super::pipeline::{Pipeline, Table};
use super::rule::RuleRef;
use super::{Field, Flow};

/// Work of recording one conjunction to which a rule belongs. The unit is the work of visiting one rule.
const EACH: u32 = 2;

/// The result of a lookup in a table.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub rule: Option<RuleRef>,
    /// Mask of the flow's bits on which the result of the lookup depends.
    pub bits: Flow,
}

impl Table {
    /// Returns the cost of one lookup in the table, in the units of a packet's work limit, which counts one unit for
    /// each action. Each mask except the first costs one unit. The first mask is free, because a lookup with one mask
    /// takes no longer than the action that leads to the table.
    ///
    /// A mask takes 20 to 300 ns, and more than 1 us if it has many L4 ports and is not in the CPU's caches. An action
    /// that sets a field takes 50 ns, a move 500 ns and a selection by a hash 1.5 us.
    pub fn work_of_look_up(&self) -> u32 {
        u32::try_from(self.classifier.masks()).unwrap_or(u32::MAX).saturating_sub(1)
    }
}

impl Pipeline {
    /// Looks a flow up in a table, conjunctive matches included, and adds the bits on which the result depends to the
    /// mask `wild`. Returns the rule found, if any, and the work of the lookup. Returns no rule if the work exceeds
    /// `most`.
    pub(crate) fn look_up(
        &self,
        table: u8,
        flow: &mut Flow,
        wild: &mut Flow,
        most: u32,
    ) -> (Option<RuleRef>, u32) {
        let Some(table) = self.tables.get(usize::from(table)) else { return (None, 0) };
        let work = table.work_of_look_up();
        if work > most {
            return (None, work);
        }
        if table.conjunctive == 0 {
            return (table.classifier.lookup_tracked(&flow.0, &mut wild.0).map(|(rule, _)| *rule), work);
        }
        let (found, more) = look_up_conjunctive(self, table, flow, wild, most - work);
        (found, work.saturating_add(more))
    }
}

/// Looks a flow up in a table with conjunctive matches. Returns the rule found and the work. The work is the number of
/// visited rules that are parts of conjunctions, plus the work of recording the conjunctions in these rules, plus the
/// work of additional lookups. If the work exceeds `most`, the lookup stops early and returns no rule.
fn look_up_conjunctive(
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
        work = work.saturating_add(table.work_of_look_up()).saturating_add(1);
        if work > most {
            break;
        }
        flow.set(Field::ConjId, u128::from(id));
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
