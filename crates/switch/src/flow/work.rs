//! Estimates of the work of changes: the number of rules, groups and buckets that a change visits. The estimates are
//! made before the changes, to detect changes that take long or too long. A visit of the actions of a rule counts as
//! one more rule for each 64 octets of the actions, and as 64 more rules for each `learn` action with the flag
//! NX_LEARN_F_DELETE_LEARNED ([`Instructions::work`](super::Instructions)).

use std::collections::HashSet;

use super::action::each_keeper;
use super::group_references::reached;
use super::learned::key;
use super::message::{
    ALL_GROUPS, ALL_TABLES, ANY_GROUP, Bucket, FlowCommand, FlowMod, Group, GroupMod, MeterMod, Mod,
};
use super::pipeline::{EXPIRED_AT_ONCE, EXPIRED_WORK, Pipeline, TABLES};
use super::rule::RuleRef;
use super::{Flow, Match};

/// Number of visited groups at which the estimate of the work of a change of a group stops.
const MANY_REACHED: usize = 1 << 14;
/// Estimated work of visiting a group that another group refers to, in units of one rule visit. A group is looked up
/// in a tree, while rules are stored in consecutive memory.
pub(super) const WORK_OF_GROUP: usize = 16;
/// Work of validating, copying and encoding a bucket of a group that a change adds or changes, in visited rules. The
/// size of a group is checked in the encodings of all OpenFlow versions.
const WORK_OF_BUCKET: usize = 64;
/// Octets of a changed group's buckets and actions that are as much work as one visited rule.
const OCTETS_OF_GROUP: usize = 2;
/// Work of removing a bucket with its group, in visited rules.
const WORK_OF_OLD_BUCKET: usize = 4;
/// Work of adding, changing or removing a rule, a meter or a group without buckets, in visited rules. The work covers
/// the classifier, the reference counts and the change records. The actions are counted separately.
pub(super) const WORK_OF_CHANGE: usize = 32;
/// Work of looking up in one table the rules with a cookie, or the rule with a match and priority, in visited rules.
/// A change and its estimates make several such look-ups, each of them in a hash table.
const WORK_OF_TABLE: usize = 64;
/// Estimated work of checking one mask of a table for overlapping rules, in visited rules.
const WORK_OF_MASK: usize = 8;
/// Estimated work of visiting a `learn` action to count the rules that the action has added, in units of one rule
/// visit. The visit looks up the table and cookie of the learned rules in a hash table.
const WORK_OF_KEEPER: usize = 64;
/// Estimated work of a packet-out, in units of one rule visit: the maximum number of rules that one packet can match.
const WORK_OF_PACKET: usize = 4096;

/// A number of rules, and the work of visiting their actions.
#[derive(Clone, Copy, Default)]
struct Amount {
    rules: usize,
    /// Work of visiting the actions of the rules once, in units of one rule visit.
    actions: usize,
}

impl Amount {
    fn and(self, more: Amount) -> Amount {
        Amount { rules: self.rules + more.rules, actions: self.actions.saturating_add(more.actions) }
    }

    fn without(self, less: Amount) -> Amount {
        Amount {
            rules: self.rules.saturating_sub(less.rules),
            actions: self.actions.saturating_sub(less.actions),
        }
    }

    fn min(self, other: Amount) -> Amount {
        Amount { rules: self.rules.min(other.rules), actions: self.actions.min(other.actions) }
    }

    /// Returns the work of changing or removing the rules, in units of one rule visit.
    fn change_work(self) -> usize {
        self.rules.saturating_mul(WORK_OF_CHANGE).saturating_add(self.actions)
    }
}

/// Maximum number of learned rules, and maximum work of their actions, that are removed at once with the rules whose
/// `learn` actions added them.
const MOST_ORPHANS: Amount = Amount { rules: EXPIRED_AT_ONCE, actions: EXPIRED_WORK };

/// The kind of estimate, if the effect of a change is not known without a visit to each rule.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Estimate {
    /// A lower bound: counts only rules that are certainly selected.
    Least,
    /// An upper bound: counts all rules that may be selected.
    Most,
}

/// Estimated effects of the preceding changes of a batch on the work of the next change.
#[derive(Default)]
struct Coming {
    /// Rules that the preceding changes add.
    added: Amount,
    /// Rules that the preceding changes remove.
    removed: Amount,
    /// Learned rules that are removed with the rules whose `learn` actions added them.
    orphans: Amount,
    /// Work of validating, copying and encoding the buckets that the preceding changes bring, in visited rules.
    buckets: usize,
}

impl Pipeline {
    /// Returns the estimated work of a batch: the number of rules, groups and buckets that it visits. Each 64 octets
    /// of actions that the batch may visit count as one more rule. Work of more than about ten thousand takes
    /// milliseconds.
    #[must_use]
    pub fn work_of(&self, mods: &[Mod]) -> usize {
        let mut coming = Coming::default();
        mods.iter()
            .map(|change| self.work_in(change, &mut coming, Estimate::Most))
            .fold(0, usize::saturating_add)
    }

    /// Returns the index of the first change with which a batch certainly visits more than `most` rules, groups and
    /// buckets. Returns `None` if there is no such change.
    pub(super) fn place_beyond(&self, mods: &[Mod], most: usize) -> Option<usize> {
        let (mut coming, mut work) = (Coming::default(), 0_usize);
        mods.iter().position(|change| {
            work = work.saturating_add(self.work_in(change, &mut coming, Estimate::Least));
            work > most
        })
    }

    /// Returns the estimated work of a change, in units of one rule visit. `coming` holds the estimated effects of
    /// the preceding changes of the batch. The effects of this change are added to `coming`.
    fn work_in(&self, change: &Mod, coming: &mut Coming, estimate: Estimate) -> usize {
        let all = self.rules.place_count() + self.rules.work() + coming.added.rules + coming.added.actions;
        let work = match change {
            Mod::Flow(change) => match change.command {
                FlowCommand::Add => {
                    coming.added = coming.added.and(Amount { rules: 1, actions: change.instructions.work() });
                    self.work_of_add(change)
                }
                FlowCommand::Modify { strict, .. } => {
                    let searched = self.searched(change, strict);
                    let changed = self.selected_by(change, strict, searched, estimate);
                    let written = if estimate == Estimate::Most { searched.rules } else { changed.rules };
                    let written = written.saturating_mul(change.instructions.work());
                    let found = self.work_to_find(change, strict, coming);
                    found.saturating_add(changed.change_work()).saturating_add(written)
                }
                FlowCommand::Delete { strict } => {
                    // A rule goes once, however often a batch names it.
                    let left = self.stored().and(coming.added).without(coming.removed);
                    let searched = self.searched(change, strict);
                    let removed = self.selected_by(change, strict, searched, estimate).min(left);
                    coming.removed = coming.removed.and(removed);
                    self.work_to_find(change, strict, coming) + removed.change_work()
                }
            },
            Mod::Group(change) => self.work_of_groups(change, all, coming, estimate),
            Mod::Meter(MeterMod::Delete(None)) => match estimate {
                Estimate::Least => all,
                Estimate::Most => all.saturating_add(self.meters.len() * WORK_OF_CHANGE),
            },
            Mod::Meter(MeterMod::Delete(Some(id))) if self.uses.has_meter(*id) => all,
            Mod::Meter(MeterMod::Delete(_)) => 1,
            Mod::Meter(MeterMod::Add(_) | MeterMod::Modify(_)) => WORK_OF_CHANGE,
            Mod::PacketOut(_) => WORK_OF_PACKET,
        };
        let (orphans, visited) = self.orphans_in(change);
        let orphans = orphans.min(MOST_ORPHANS.without(coming.orphans));
        coming.orphans = coming.orphans.and(orphans);
        work.max(1).saturating_add(orphans.change_work()).saturating_add(visited)
    }

    /// Returns the estimated work of a change of groups, in visited rules. `all` is the work of visiting all rules
    /// with their actions. The effects of the change are added to `coming`.
    fn work_of_groups(
        &self,
        change: &GroupMod,
        all: usize,
        coming: &mut Coming,
        estimate: Estimate,
    ) -> usize {
        match change {
            GroupMod::Add(group) | GroupMod::Modify { group, .. } => {
                let work = work_of_group(group);
                coming.buckets = coming.buckets.saturating_add(work);
                work.saturating_add(self.reach(&reached(group)))
            }
            GroupMod::InsertBuckets(id, ..) | GroupMod::RemoveBuckets(id, _) => {
                let state = self.groups.get(id);
                let own = state.map_or(0, |state| work_of_group(&state.group) + self.reach(&state.reached));
                if let GroupMod::InsertBuckets(_, _, buckets) = change {
                    coming.buckets = coming.buckets.saturating_add(work_of_buckets(buckets));
                }
                match (change, estimate) {
                    // The preceding changes of the batch may have removed buckets, or brought some.
                    (GroupMod::InsertBuckets(_, _, buckets), Estimate::Least) => work_of_buckets(buckets),
                    (_, Estimate::Least) => 1,
                    (_, Estimate::Most) => own.saturating_add(coming.buckets),
                }
            }
            GroupMod::Delete(ALL_GROUPS) if estimate == Estimate::Most => {
                let groups = self.groups.len() * WORK_OF_CHANGE + self.buckets * WORK_OF_OLD_BUCKET;
                all.saturating_add(groups)
            }
            GroupMod::Delete(id) if *id == ALL_GROUPS || self.uses.has_group(*id) => all,
            GroupMod::Delete(_) => 1,
        }
    }

    /// Returns the work of removing these groups with their buckets, in visited rules.
    pub(super) fn work_to_delete(&self, groups: &[u32]) -> usize {
        let of = |id| {
            let buckets = self.groups.get(id).map_or(0, |state| state.group.buckets.len());
            WORK_OF_CHANGE + buckets * WORK_OF_OLD_BUCKET
        };
        groups.iter().map(of).sum()
    }

    fn work_to_find(&self, change: &FlowMod, strict: bool, coming: &Coming) -> usize {
        let added = if strict { Amount::default() } else { coming.added };
        let actions = if reads_actions(change.out_port, change.out_group) { added.actions } else { 0 };
        self.work_to_search(change, strict) + added.rules + actions
    }

    /// Returns an estimate of the number of rules that a change or removal selects, and of the work of visiting their
    /// actions. If the change selects rules by their contents, their number is not known without a visit to each
    /// rule. `searched` are the rules from which the change selects.
    fn selected_by(&self, change: &FlowMod, strict: bool, searched: Amount, estimate: Estimate) -> Amount {
        let is_filtered = reads_actions(change.out_port, change.out_group)
            || change.cookie_mask != 0 && (strict || change.cookie_mask != u64::MAX)
            || !strict && change.matching.mask != Flow::ZERO;
        if is_filtered && estimate == Estimate::Least {
            return Amount::default();
        }
        let rules = if strict {
            self.named(change).count()
        } else if change.cookie_mask == u64::MAX {
            searched.rules
        } else {
            let tables = numbers_of(change.table).filter_map(|table| self.tables.get(usize::from(table)));
            tables.map(|table| table.classifier.len()).sum()
        };
        Amount { rules, actions: searched.actions }
    }

    /// Returns the number of slots that are visited to find the rules that a change or removal selects, and the work
    /// of visiting the actions of the rules in these slots.
    fn searched(&self, change: &FlowMod, strict: bool) -> Amount {
        let tables = || self.rules.tables_with(change.table, change.cookie_value);
        let actions = if strict {
            self.named(change).map(|at| self.rules.work_at(*at)).sum()
        } else if change.cookie_mask == u64::MAX {
            tables().map(|table| self.rules.work_of_cookie(table, change.cookie_value)).sum()
        } else if change.table == ALL_TABLES {
            self.rules.work()
        } else {
            self.rules.work_of_table(change.table)
        };
        let rules = if !strict && change.cookie_mask == u64::MAX {
            tables().map(|table| self.rules.count_of(table, change.cookie_value)).sum()
        } else {
            self.places_of(change, strict)
        };
        Amount { rules, actions }
    }

    /// Returns the work of finding the rules that a change or removal selects, in units of one rule visit. The
    /// actions of rules count only if the selection depends on the actions.
    pub(super) fn work_to_search(&self, change: &FlowMod, strict: bool) -> usize {
        let reads = reads_actions(change.out_port, change.out_group);
        let actions = if reads { self.searched(change, strict).actions } else { 0 };
        self.places_of(change, strict) + actions
    }

    /// Returns the work of changing or removing these rules, in units of one rule visit.
    pub(super) fn work_to_change(&self, rules: &[RuleRef]) -> usize {
        let actions = rules.iter().map(|at| self.rules.work_at(*at)).sum();
        Amount { rules: rules.len(), actions }.change_work()
    }

    /// Returns an upper bound of the learned rules that are removed at once because a change removes the rules whose
    /// `learn` actions added them. The second value is the work of this estimate, in units of one rule visit.
    fn orphans_in(&self, change: &Mod) -> (Amount, usize) {
        let has_keepers = self.learned.has_keepers();
        let none = (Amount::default(), 0);
        let all = if has_keepers { (self.stored(), 0) } else { none };
        match change {
            Mod::Flow(change) => {
                let is_strict = match change.command {
                    FlowCommand::Add => true,
                    FlowCommand::Modify { strict, .. } | FlowCommand::Delete { strict } => strict,
                };
                let is_eviction = || {
                    change.command == FlowCommand::Add
                        && self.named(change).next().is_none()
                        && self.evicts_for(change)
                };
                if has_keepers && is_strict && !is_eviction() {
                    self.named(change)
                        .map(|at| self.orphans_of(*at))
                        .fold(none, |(sum, work), (more, visited)| {
                            (sum.and(more), work.saturating_add(visited))
                        })
                } else {
                    all
                }
            }
            Mod::Group(GroupMod::Delete(_)) | Mod::Meter(MeterMod::Delete(_)) => all,
            Mod::Group(_) | Mod::Meter(_) | Mod::PacketOut(_) => none,
        }
    }

    /// Returns approximately the learned rules that are removed at once if this rule is removed. The second value is
    /// the work of this estimate, in units of one rule visit. The estimate visits all actions of the rule.
    fn orphans_of(&self, at: RuleRef) -> (Amount, usize) {
        let (mut orphans, mut work) = (Amount::default(), self.rules.work_at(at));
        let Some(rule) = self.rules.get(at) else { return (orphans, work) };
        each_keeper(&rule.instructions.apply, &mut |learn| {
            let (table, cookie) = key(learn);
            let rules = self.rules.count_of(table, cookie);
            orphans = orphans.and(Amount { rules, actions: self.rules.work_of_cookie(table, cookie) });
            work += WORK_OF_KEEPER;
        });
        (orphans.min(MOST_ORPHANS), work)
    }

    /// Returns the number of all rules in the tables, and the work of visiting their actions.
    fn stored(&self) -> Amount {
        Amount { rules: self.rules.len(), actions: self.rules.work() }
    }

    /// Returns the rules with exactly the match and priority of a flow-mod, in the tables that the flow-mod names.
    pub(super) fn named(&self, change: &FlowMod) -> impl Iterator<Item = &RuleRef> {
        let Match { value, mask } = change.matching;
        let tables = numbers_of(change.table).filter_map(|table| self.tables.get(usize::from(table)));
        let tables = tables.filter(|table| !table.classifier.is_empty());
        tables.filter_map(move |table| table.classifier.get(&value.0, &mask.0, change.priority))
    }

    pub(super) fn work_of_add(&self, change: &FlowMod) -> usize {
        let Some(table) = self.tables.get(usize::from(change.table)) else { return 1 };
        let Match { value, mask } = change.matching;
        let own = WORK_OF_CHANGE + change.instructions.work();
        if let Some(old) = table.classifier.get(&value.0, &mask.0, change.priority) {
            // The rule is replaced, so that no overlap check and no eviction takes place.
            return own + self.rules.work_at(*old);
        }
        let overlaps = if change.flags.check_overlap {
            let masks = table.classifier.masks() * (WORK_OF_MASK - 1);
            masks + table.classifier.overlap_work(&mask.0, change.priority)
        } else {
            0
        };
        let room = if self.evicts_for(change) { self.work_to_rank(change.table) + WORK_OF_CHANGE } else { 0 };
        overlaps + room + own
    }

    /// Returns whether the addition of a rule evicts another one, if the addition does not replace a rule. Without a
    /// rule to evict, the addition is refused and visits no rule.
    fn evicts_for(&self, change: &FlowMod) -> bool {
        self.tables.get(usize::from(change.table)).is_some_and(|table| {
            table.classifier.len() >= table.limit() as usize
                && table.evicts()
                && table.evictable.has_victim(change.importance)
        })
    }

    /// Returns an upper bound of the work of removing a number of rules whose actions are this much work, together
    /// with the learned rules that are removed at once because of them, in visited rules.
    pub(super) fn work_to_remove(&self, rules: usize, actions: usize) -> usize {
        let orphans =
            if self.learned.has_keepers() { self.stored().min(MOST_ORPHANS) } else { Amount::default() };
        Amount { rules, actions }.and(orphans).change_work()
    }

    /// Returns the number of slots that are visited to find the rules that a change or removal selects.
    pub(super) fn places_of(&self, change: &FlowMod, strict: bool) -> usize {
        if strict && change.table == ALL_TABLES {
            let used = self.tables.iter().filter(|table| !table.classifier.is_empty()).count();
            TABLES + used * WORK_OF_TABLE
        } else if strict {
            1
        } else if change.cookie_mask == u64::MAX {
            let tables = self.rules.tables_with(change.table, change.cookie_value);
            let of = |table| WORK_OF_TABLE + self.rules.count_of(table, change.cookie_value);
            1 + tables.map(of).sum::<usize>()
        } else if change.table == ALL_TABLES {
            self.rules.place_count()
        } else {
            self.places_of_table(change.table)
        }
    }

    /// Returns the estimated work of visiting all groups that the groups `from` refer to, directly or through other
    /// groups, in units of one rule visit. The estimate stops at [`MANY_REACHED`] groups.
    fn reach(&self, from: &[u32]) -> usize {
        let (mut seen, mut next) = (HashSet::new(), from.to_vec());
        let mut met = from.len();
        while let Some(id) = next.pop() {
            if seen.insert(id)
                && let Some(state) = self.groups.get(&id)
            {
                met += 1 + state.reached.len();
                if met > MANY_REACHED {
                    break;
                }
                next.extend_from_slice(&state.reached);
            }
        }
        met * WORK_OF_GROUP
    }
}

/// Returns the work of validating, copying and encoding a group that a change adds or changes, in visited rules.
pub(super) fn work_of_group(group: &Group) -> usize {
    1 + group.buckets.len() * WORK_OF_BUCKET + group.memory() / OCTETS_OF_GROUP
}

/// Returns the work that buckets add to the work of the group into which they are inserted, in visited rules.
fn work_of_buckets(buckets: &[Bucket]) -> usize {
    let octets: usize = buckets.iter().map(Bucket::memory).sum();
    buckets.len() * WORK_OF_BUCKET + octets / OCTETS_OF_GROUP
}

/// Returns whether rules can be selected by an output port and a group only after a visit to their actions.
pub(super) fn reads_actions(out_port: Option<u32>, out_group: Option<u32>) -> bool {
    out_port.is_some() || out_group.is_some_and(|group| group != ANY_GROUP)
}

/// Returns the numbers of the tables that a change or removal with the table number `table` applies to.
pub(super) fn numbers_of(table: u8) -> std::ops::Range<u8> {
    match table {
        ALL_TABLES => 0..ALL_TABLES,
        table => table..table + 1,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use proptest::prelude::*;

    use super::*;
    use crate::flow::action::OCTETS_OF_WORK;
    use crate::flow::batch::{BATCH_WORK, Batch};
    use crate::flow::{
        Action, BucketPlace, Field, FlowError, GroupKind, Instructions, Learn, Meter, RuleRef, SelectMethod,
    };

    fn flow_mod(change: FlowMod) -> Mod {
        Mod::Flow(Box::new(change))
    }

    fn matching(number: u32) -> Match {
        Match::ANY.with(Field::Reg0, u128::from(number))
    }

    fn add(table: u8, number: u32, actions: Vec<Action>) -> FlowMod {
        FlowMod::add(table, 1, matching(number), Instructions::apply(actions))
    }

    fn group(id: u32) -> Mod {
        let (kind, method) = (GroupKind::All, SelectMethod::Default);
        Mod::Group(GroupMod::Add(Group { id, kind, method, buckets: Vec::new() }))
    }

    fn meter(id: u32) -> Mod {
        let meter = Meter { id, packets: true, bursts: false, stats: false, bands: Vec::new() };
        Mod::Meter(MeterMod::Add(meter))
    }

    /// Returns a pipeline with 40 rules of 4000 actions each, one half in clones.
    fn heavy() -> Pipeline {
        let mut pipeline = Pipeline::new();
        let rule = |number: u32| {
            let inner = Action::Clone(vec![Action::PopVlan; 1999]);
            let actions = std::iter::repeat_n(Action::PopVlan, 2000).chain([inner]).collect();
            flow_mod(add(0, number, actions))
        };
        pipeline.modify(&(0..40).map(rule).collect::<Vec<_>>(), 0).unwrap();
        pipeline
    }

    /// A batch of changes that visit all actions of all rules is refused, although the rules are few. Each of these
    /// changes takes too long for the thread of a controller connection.
    #[test]
    fn changes_that_visit_actions_cost_as_much_as_the_actions() {
        let mut pipeline = heavy();
        let count = 40 * 4000 * size_of::<Action>() / OCTETS_OF_WORK;
        let by_port = |delete| FlowMod { out_port: Some(77), ..delete };
        let by_group = |delete| FlowMod { out_group: Some(77), ..delete };
        let of_meter = Instructions { meter: Some(1), ..Instructions::default() };
        let cases: [(&str, Vec<Mod>); 6] = [
            ("by port", vec![flow_mod(by_port(FlowMod::delete(0, Match::ANY)))]),
            ("by group", vec![flow_mod(by_group(FlowMod::delete(ALL_TABLES, Match::ANY)))]),
            (
                "by port and cookie",
                vec![flow_mod(FlowMod {
                    cookie_mask: u64::MAX,
                    ..by_port(FlowMod::delete(ALL_TABLES, Match::ANY))
                })],
            ),
            (
                "strict",
                (0..40)
                    .map(|number| {
                        let command = FlowCommand::Delete { strict: true };
                        let delete = FlowMod::delete(ALL_TABLES, matching(number));
                        flow_mod(by_port(FlowMod { command, priority: 1, ..delete }))
                    })
                    .collect(),
            ),
            (
                "group",
                vec![group(1), flow_mod(add(1, 0, vec![Action::Group(1)])), Mod::Group(GroupMod::Delete(1))],
            ),
            (
                "meter",
                vec![
                    meter(1),
                    flow_mod(FlowMod::add(1, 1, Match::ANY, of_meter)),
                    Mod::Meter(MeterMod::Delete(Some(1))),
                ],
            ),
        ];
        for (name, changes) in cases {
            // The number of the group or meter is not known to the estimate before the batch.
            if !matches!(name, "group" | "meter") {
                assert!(pipeline.work_of(&changes) >= count, "{name}: {}", pipeline.work_of(&changes));
            }
            pipeline.modify(&changes, 0).unwrap();
            let many: Vec<Mod> = changes.iter().cloned().cycle().take(changes.len() * 1500).collect();
            let before = pipeline.version();
            let refused = pipeline.modify(&many, 0).map_err(|(_, why)| why);
            assert_eq!(refused, Err(FlowError::TooMuchWork), "{name}");
            assert!(matches!(name, "group" | "meter") || pipeline.version() == before, "{name}");
            assert_eq!(pipeline.rule_count(), 40, "{name}");
        }
        // A removal that does not read the actions is cheap, and a request for each single rule is permitted.
        let other = flow_mod(FlowMod { cookie_mask: 1, cookie_value: 1, ..FlowMod::delete(0, Match::ANY) });
        pipeline.modify(&vec![other; 1000], 0).unwrap();
    }

    /// The removal of heavy rules, and the writing of heavy actions into many rules, take longer than the number
    /// of rules indicates.
    #[test]
    fn removed_and_written_actions_count_as_work() {
        let mut pipeline = heavy();
        let count = 40 * 4000 * size_of::<Action>() / OCTETS_OF_WORK;
        for delete in [FlowMod::delete(0, Match::ANY), FlowMod::delete(0, matching(0))] {
            assert!(pipeline.work_of(&[flow_mod(delete)]) >= count);
        }
        let light = Instructions::apply(vec![Action::PopVlan]);
        let command = FlowCommand::Modify { strict: false, or_add: false };
        let modify = |instructions| FlowMod { command, ..FlowMod::add(0, 1, Match::ANY, instructions) };
        assert!(pipeline.work_of(&[flow_mod(modify(light.clone()))]) >= count);
        pipeline.modify(&[flow_mod(modify(light))], 0).unwrap();
        assert!(pipeline.work_of(&[flow_mod(FlowMod::delete(0, Match::ANY))]) < 2000);
        let heavy = modify(Instructions::apply(vec![Action::PopVlan; 4000]));
        assert!(pipeline.work_of(&[flow_mod(heavy)]) >= count);
    }

    #[derive(Clone, Debug)]
    enum Change {
        Add { table: u8, number: u32, cookie: u64, actions: Vec<Action> },
        Modify { table: u8, number: Option<u32>, cookie: Option<u64>, actions: Vec<Action> },
        Delete { table: u8, number: Option<u32>, cookie: Option<u64> },
    }

    impl Change {
        fn flow_mod(self) -> Mod {
            let of = |number: Option<u32>| number.map_or(Match::ANY, matching);
            flow_mod(match self {
                Change::Add { table, number, cookie, actions } => {
                    FlowMod { cookie: Some(cookie), ..add(table, number, actions) }
                }
                Change::Modify { table, number, cookie, actions } => FlowMod {
                    command: FlowCommand::Modify { strict: false, or_add: false },
                    cookie,
                    ..FlowMod::add(table, 1, of(number), Instructions::apply(actions))
                },
                Change::Delete { table, number, cookie } => FlowMod {
                    cookie_value: cookie.unwrap_or(0),
                    cookie_mask: cookie.map_or(0, |_| u64::MAX),
                    ..FlowMod::delete(table, of(number))
                },
            })
        }
    }

    fn learn() -> Action {
        learn_to(1)
    }

    /// Returns a `learn` action with the flag NX_LEARN_F_DELETE_LEARNED for learned rules with this cookie.
    fn learn_to(cookie: u64) -> Action {
        Action::Learn(Box::new(Learn {
            idle_timeout: 0,
            hard_timeout: 0,
            fin_idle_timeout: 0,
            fin_hard_timeout: 0,
            priority: 1,
            cookie,
            // NX_LEARN_F_DELETE_LEARNED.
            flags: 2,
            table: 1,
            limit: 0,
            result: None,
            parts: Vec::new(),
        }))
    }

    /// Each `learn` action whose learned rules are removed with its rule has a reference count. A change of the
    /// count is more work than a visit of the action, whether the rule is added, changed, removed or expires, and
    /// the count is bounded by the memory limit of rules.
    #[test]
    fn reference_counts_of_learned_rules_count_as_work_and_memory() {
        const LEARNS: usize = 500;
        let learns = || (0..LEARNS as u64).map(learn_to).collect::<Vec<_>>();
        let mut pipeline = Pipeline::new();
        let rule = |number| FlowMod { hard_timeout: 1, ..add(0, number, learns()) };
        let work = pipeline.work_of(&[flow_mod(rule(0))]);
        assert!(work >= 64 * LEARNS, "to add: {work}");
        pipeline.modify(&(0..40).map(|number| flow_mod(rule(number))).collect::<Vec<_>>(), 0).unwrap();
        let mut modify = add(0, 0, learns());
        (modify.matching, modify.command) =
            (Match::ANY, FlowCommand::Modify { strict: false, or_add: false });
        for (name, change) in [("modify", modify.clone()), ("delete", FlowMod::delete(0, Match::ANY))] {
            let work = pipeline.work_of(&[flow_mod(change)]);
            assert!(work >= 40 * 64 * LEARNS, "{name}: {work}");
        }
        // The batch charges the counts that it changes, whatever the estimate was.
        modify.instructions.apply.pop();
        let mut batch = Batch::new(9, pipeline.held, pipeline.held_most);
        batch.work(BATCH_WORK - 40 * 64 * LEARNS).unwrap();
        assert_eq!(pipeline.change_in(&flow_mod(modify), &mut batch), Err(FlowError::TooMuchWork));
        // A turn of the removal of expired rules ends after few rules.
        assert!(pipeline.expire(2_000_000_000));
        let left = 40 - EXPIRED_WORK.div_ceil(pipeline.rules.work() / pipeline.rule_count());
        assert!(left > 20);
        assert_eq!(pipeline.rule_count(), left);
        while pipeline.expire(2_000_000_000) {}
        assert_eq!((pipeline.rule_count(), pipeline.rule_memory(), pipeline.rules.work()), (0, 0, 0));
        // All rules within the memory limit can be removed by one change.
        pipeline.set_rule_memory(10 * LEARNS * 64 * OCTETS_OF_WORK);
        let fit = (0..).take_while(|number| pipeline.modify(&[flow_mod(rule(*number))], 0).is_ok()).count();
        assert_eq!(fit, 9);
        assert!(pipeline.rules.work() <= pipeline.rule_memory() / OCTETS_OF_WORK);
    }

    /// Each change of a group's buckets copies, validates and encodes all buckets of the group. A message that
    /// inserts or removes one bucket of a large group is charged for all of them, and a batch of many such messages
    /// is refused as a whole.
    #[test]
    fn a_change_of_one_bucket_is_charged_for_the_whole_group() {
        const BUCKETS: u32 = 1000;
        let bucket = |id| {
            let actions = vec![Action::Output { port: 1, max_len: 0 }];
            Bucket { id, weight: 1, watch_port: None, watch_group: None, actions }
        };
        let large = |id| {
            let (kind, method) = (GroupKind::All, SelectMethod::Default);
            Mod::Group(GroupMod::Add(Group { id, kind, method, buckets: (0..BUCKETS).map(bucket).collect() }))
        };
        let insert =
            |id| Mod::Group(GroupMod::InsertBuckets(1, BucketPlace::Last, vec![bucket(BUCKETS + id)]));
        let least = BUCKETS as usize * WORK_OF_BUCKET;
        let mut pipeline = Pipeline::new();
        // The group may come with the batch.
        let both = pipeline.work_of(&[large(1), insert(0)]);
        assert!(both > 2 * least, "{both}");
        pipeline.modify(&[large(1), large(2)], 0).unwrap();
        let remove = Mod::Group(GroupMod::RemoveBuckets(1, BucketPlace::First));
        for change in [large(1), insert(0), remove.clone()] {
            let work = pipeline.work_of(std::slice::from_ref(&change));
            assert!(work > least, "{work} for {change:?}");
        }
        let pairs: Vec<Mod> = (0..5000).flat_map(|id| [insert(id), remove.clone()]).collect();
        let refused = pipeline.modify(&pairs, 0);
        let most = BATCH_WORK / least;
        assert!(matches!(refused, Err((at, FlowError::TooMuchWork)) if at < most), "{refused:?}");
        assert_eq!((pipeline.groups().next().unwrap().buckets.len(), pipeline.buckets), (1000, 2000));
        pipeline.modify(&pairs[..200], 0).unwrap();
        // Buckets that a batch has removed are not charged again.
        let empty = Mod::Group(GroupMod::RemoveBuckets(1, BucketPlace::All));
        let inserts: Vec<Mod> = std::iter::once(empty).chain((0..1200).map(insert)).collect();
        pipeline.modify(&inserts, 0).unwrap();
        assert_eq!(pipeline.buckets, 2200);
        let delete = Mod::Group(GroupMod::Delete(ALL_GROUPS));
        assert_eq!(pipeline.work_of(std::slice::from_ref(&delete)), 2 * 32 + 2200 * 4);
        pipeline.modify(&[delete], 0).unwrap();
        assert_eq!((pipeline.buckets, pipeline.rule_memory()), (0, 0));
    }

    /// The removal of all meters is charged for each meter, although no rule uses the meters.
    #[test]
    fn the_removal_of_all_meters_is_charged_for_each_meter() {
        let mut pipeline = Pipeline::new();
        let meters: Vec<Mod> = (1..=1000).map(meter).collect();
        assert_eq!(pipeline.work_of(&meters), 1000 * WORK_OF_CHANGE);
        pipeline.modify(&meters, 0).unwrap();
        let delete = Mod::Meter(MeterMod::Delete(None));
        assert_eq!(pipeline.work_of(std::slice::from_ref(&delete)), 1000 * WORK_OF_CHANGE);
        let mut batch = Batch::new(9, pipeline.held, pipeline.held_most);
        batch.work(BATCH_WORK - 999 * WORK_OF_CHANGE).unwrap();
        assert_eq!(pipeline.change_in(&delete, &mut batch), Err(FlowError::TooMuchWork));
        assert_eq!(pipeline.meters().count(), 1000);
    }

    /// A change that names a cookie looks only in the tables that have rules with the cookie, and a strict change in
    /// all tables looks only in tables with rules. Each of these tables is charged for several look-ups.
    #[test]
    fn changes_in_all_tables_are_charged_for_each_table_with_rules() {
        let mut pipeline = Pipeline::new();
        let rule = |table: u8| FlowMod { cookie: Some(u64::from(table % 2)), ..add(table, 0, Vec::new()) };
        pipeline.modify(&(0..200).map(|table| flow_mod(rule(table))).collect::<Vec<_>>(), 0).unwrap();
        let of_cookie = |cookie_value| {
            let all = FlowMod::delete(ALL_TABLES, Match::ANY);
            flow_mod(FlowMod { cookie_value, cookie_mask: u64::MAX, ..all })
        };
        let command = FlowCommand::Delete { strict: true };
        let strict = FlowMod { command, priority: 1, ..FlowMod::delete(ALL_TABLES, matching(9)) };
        let strict = flow_mod(strict);
        let work = |pipeline: &Pipeline, change: &Mod| pipeline.work_of(std::slice::from_ref(change));
        assert_eq!(work(&pipeline, &of_cookie(2)), 1, "no rule has the cookie");
        assert_eq!(work(&pipeline, &of_cookie(1)), 1 + 100 * (WORK_OF_TABLE + 1 + WORK_OF_CHANGE));
        assert_eq!(work(&pipeline, &strict), TABLES + 200 * WORK_OF_TABLE);
        let refused = pipeline.modify(&vec![strict.clone(); 20_000], 0);
        assert!(matches!(refused, Err((..20_000, FlowError::TooMuchWork))), "{refused:?}");
        pipeline.modify(&[of_cookie(1)], 0).unwrap();
        assert!(pipeline.rules.iter().all(|(_, rule)| rule.cookie == 0) && pipeline.rule_count() == 100);
        assert_eq!(work(&pipeline, &of_cookie(1)), 1);
        assert_eq!(work(&pipeline, &strict), TABLES + 100 * WORK_OF_TABLE);
    }

    /// A change that selects rules by a match may change all rules that it visits. The estimate that decides whether
    /// the change takes long counts these rules as changed.
    #[test]
    fn rules_that_a_match_may_select_are_estimated_as_changed() {
        let mut pipeline = Pipeline::new();
        let rule = |number| flow_mod(FlowMod { cookie: Some(7), ..add(0, number, Vec::new()) });
        pipeline.modify(&(0..1000).map(rule).collect::<Vec<_>>(), 0).unwrap();
        let mut half = Match::ANY;
        half.put(Field::Reg0, 0, 1);
        let of_cookie = |change| FlowMod { cookie_value: 7, cookie_mask: u64::MAX, ..change };
        let command = FlowCommand::Modify { strict: false, or_add: false };
        let modify = |table| FlowMod {
            command,
            table,
            cookie: None,
            ..FlowMod::add(0, 1, half, Instructions::apply(vec![]))
        };
        for table in [0, ALL_TABLES] {
            for change in [FlowMod::delete(table, half), modify(table)] {
                for change in [of_cookie(change.clone()), change] {
                    let work = pipeline.work_of(&[flow_mod(change.clone())]);
                    assert!(work >= 1000 * WORK_OF_CHANGE, "{work} for {change:?}");
                }
            }
        }
        pipeline.modify(&[flow_mod(of_cookie(FlowMod::delete(ALL_TABLES, half)))], 0).unwrap();
        assert_eq!(pipeline.rule_count(), 500);
    }

    /// A strict change estimates the learned rules that are removed with the rule that taught them. The estimate
    /// visits all actions of the rule, so that a batch that names a rule very often is refused before the visits
    /// take long.
    #[test]
    fn estimates_of_learned_rules_count_as_work() {
        let learns = vec![learn(); 1900];
        let nested = vec![learn(), Action::Clone(vec![Action::PopVlan; 3999])];
        for (name, actions, few) in [("learn", learns, 500), ("clone", nested, 2000)] {
            let mut pipeline = Pipeline::new();
            pipeline.modify(&[flow_mod(add(0, 1, actions))], 0).unwrap();
            let command = FlowCommand::Delete { strict: true };
            let delete = FlowMod { command, priority: 1, ..FlowMod::delete(0, matching(1)) };
            let refused = pipeline.modify(&vec![flow_mod(delete.clone()); 60_000], 0);
            assert!(matches!(refused, Err((_, FlowError::TooMuchWork))), "{name}: {refused:?}");
            assert_eq!(pipeline.rule_count(), 1, "{name}");
            pipeline.modify(&vec![flow_mod(delete); few], 0).unwrap();
            assert_eq!(pipeline.rule_count(), 0, "{name}");
        }
    }

    fn actions() -> impl Strategy<Value = Vec<Action>> {
        let action = prop_oneof![
            Just(Action::PopVlan),
            (0_usize..300).prop_map(|octets| Action::Note(vec![0; octets])),
            (0_usize..9).prop_map(|count| Action::Clone(vec![Action::PopVlan; count])),
            Just(learn()),
        ];
        proptest::collection::vec(action, 0..6)
    }

    fn change() -> impl Strategy<Value = Change> {
        let number = || proptest::option::of(0_u32..6);
        let cookie = || proptest::option::of(0_u64..3);
        prop_oneof![
            4 => (0_u8..3, 0_u32..6, 0_u64..3, actions())
                .prop_map(|(table, number, cookie, actions)| Change::Add { table, number, cookie, actions }),
            2 => (0_u8..3, number(), cookie(), actions())
                .prop_map(|(table, number, cookie, actions)| Change::Modify { table, number, cookie, actions }),
            1 => (prop_oneof![3 => 0_u8..3, 1 => Just(ALL_TABLES)], number(), cookie())
                .prop_map(|(table, number, cookie)| Change::Delete { table, number, cookie }),
        ]
    }

    proptest! {
        /// The stored work of all rules, of each table and of each cookie is the sum over the rules, also after
        /// batches that were reverted.
        #[test]
        fn the_stored_work_equals_a_recount(
            batches in proptest::collection::vec((proptest::collection::vec(change(), 1..6), any::<bool>()), 1..20),
        ) {
            let mut pipeline = Pipeline::new();
            for (changes, is_reverted) in batches {
                let mut mods: Vec<Mod> = changes.into_iter().map(Change::flow_mod).collect();
                if is_reverted {
                    let backwards = Instructions { goto: Some(0), ..Instructions::default() };
                    mods.push(flow_mod(FlowMod::add(0, 1, Match::ANY, backwards)));
                }
                prop_assert_eq!(pipeline.modify(&mods, 0).is_err(), is_reverted);
                let rules: Vec<(RuleRef, u8, u64, usize)> = pipeline
                    .rules
                    .iter()
                    .map(|(at, rule)| (at, rule.table, rule.cookie, rule.instructions.work()))
                    .collect();
                prop_assert_eq!(pipeline.rules.work(), rules.iter().map(|(.., work)| work).sum::<usize>());
                for (at, _, _, work) in &rules {
                    prop_assert_eq!(pipeline.rules.work_at(*at), *work);
                }
                for table in 0..3 {
                    let own = || rules.iter().filter(move |(_, of, ..)| *of == table);
                    let sum = own().map(|(.., work)| work).sum::<usize>();
                    prop_assert_eq!(pipeline.rules.work_of_table(table), sum);
                    for cookie in 0..3 {
                        let own = own().filter(|(at, _, of, _)| *of == cookie && !pipeline.rules.is_doomed(*at));
                        let sum = own.map(|(.., work)| work).sum::<usize>();
                        prop_assert_eq!(pipeline.rules.work_of_cookie(table, cookie), sum);
                    }
                }
            }
        }
    }
}
