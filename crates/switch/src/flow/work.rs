//! Estimates of the work of changes. The work is the number of rules, groups and buckets that a change visits.
//! Estimates are made before a change, to recognise changes that take long and changes that exceed the work limit. A
//! visit of a rule's actions counts as one more rule for each 64 octets of the actions, and as 64 more rules for each
//! `learn` action with the flag NX_LEARN_F_DELETE_LEARNED ([`Instructions::work`](super::Instructions)).

use std::collections::HashSet;

use super::action::{Reference, any_reference, each_keeper};
use super::group_references::reached;
use super::learned::key;
use super::message::{
    ALL_GROUPS, ALL_TABLES, ANY_GROUP, Bucket, FlowCommand, FlowMod, Group, GroupMod, MeterMod, Mod,
};
use super::pipeline::{EXPIRED_AT_ONCE, EXPIRED_WORK, Pipeline, TABLES};
use super::rule::RuleRef;
use super::{Flow, Match};

/// Number of visited groups at which the work estimate for a group change stops.
const MANY_REACHED: usize = 1 << 14;
/// Estimated work of visiting a group that another group refers to. The unit is the work of visiting one rule. A group
/// is looked up in a tree, while rules are stored in consecutive memory.
pub(super) const WORK_OF_GROUP: usize = 16;
/// Work of validating, copying and encoding one bucket of a group that a change adds or changes. The unit is the work
/// of visiting one rule. The size of a group is checked in the encodings of all OpenFlow versions.
const WORK_OF_BUCKET: usize = 64;
/// Number of octets of a changed group's buckets and actions whose processing is as much work as visiting one rule.
const OCTETS_OF_GROUP: usize = 2;
/// Work of removing one bucket with its group. The unit is the work of visiting one rule.
const WORK_OF_OLD_BUCKET: usize = 4;
/// Work of adding, changing or removing a rule, a meter or a group without buckets. The unit is the work of visiting
/// one rule. The number covers the classifier, the reference counts and the records of changes. The actions are counted
/// separately.
pub(super) const WORK_OF_CHANGE: usize = 32;
/// Work of finding in one table the rules with a cookie, or the rule with a match and priority. The unit is the work of
/// visiting one rule. A change and its estimates look up these rules several times, each time in a hash table.
const WORK_OF_TABLE: usize = 64;
/// Estimated work of checking one mask of a table for overlapping rules. The unit is the work of visiting one rule.
const WORK_OF_MASK: usize = 8;
/// Estimated work of visiting a `learn` action to count the rules that the action has added. The unit is the work of
/// visiting one rule. The visit looks up the table and cookie of the learned rules in a hash table.
const WORK_OF_KEEPER: usize = 64;
/// Estimated work of a packet-out. The unit is the work of visiting one rule. The value is the maximum number of rules
/// that one packet can match.
const WORK_OF_PACKET: usize = 4096;

/// A number of rules, with the work of visiting their actions.
#[derive(Clone, Copy, Default)]
struct Amount {
    rules: usize,
    /// Work of visiting the actions of the rules once. The unit is the work of visiting one rule.
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

    /// Returns the work of changing or removing the rules. The unit is the work of visiting one rule.
    fn change_work(self) -> usize {
        self.rules.saturating_mul(WORK_OF_CHANGE).saturating_add(self.actions)
    }
}

/// Maximum number of learned rules, and maximum work of their actions, that are removed immediately with the rules
/// whose `learn` actions added them. The other learned rules are removed later.
const MOST_ORPHANS: Amount = Amount { rules: EXPIRED_AT_ONCE, actions: EXPIRED_WORK };

/// The kind of estimate for a change whose effect is not known without a visit to each rule.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Estimate {
    /// A lower bound: counts only rules that are certainly selected.
    Least,
    /// An upper bound: counts all rules that may be selected.
    Most,
}

/// Estimated effects of the preceding changes of a batch, which alter the work of the next change.
#[derive(Default)]
struct Coming {
    /// Rules that the preceding changes add.
    added: Amount,
    /// Rules that the preceding changes remove.
    removed: Amount,
    /// Learned rules that are removed with the rules whose `learn` actions added them.
    orphans: Amount,
    /// Work of validating, copying and encoding the buckets of groups in the preceding changes. The unit is the work of
    /// visiting one rule.
    buckets: usize,
    /// Whether any rule that the preceding changes add or change uses groups.
    uses_groups: bool,
    /// Whether any rule or group that the preceding changes add or change uses meters.
    uses_meters: bool,
    /// Work that the estimates themselves have spent on following references between groups. The unit is the work of
    /// visiting one rule.
    walked: usize,
}

impl Pipeline {
    /// Returns the estimated work of a batch: the number of rules, groups and buckets that the batch visits. Each 64
    /// octets of actions that the batch may visit count as one more rule. A batch with work above about 10,000 takes
    /// milliseconds.
    #[must_use]
    pub fn work_of(&self, mods: &[Mod]) -> usize {
        let mut coming = Coming::default();
        mods.iter()
            .map(|change| self.work_in(change, &mut coming, Estimate::Most))
            .fold(0, usize::saturating_add)
    }

    /// Returns whether the estimated work of a batch is at most `most`, in the units of [`Pipeline::work_of`]. The
    /// estimate stops at the first change that exceeds this work.
    #[must_use]
    pub fn is_within_work(&self, mods: &[Mod], most: usize) -> bool {
        self.first_beyond(mods, most, &mut Coming::default(), Estimate::Most).is_none()
    }

    /// Returns the index of the first change at which a lower bound of the batch's work, or the work of this estimate
    /// itself, exceeds `most`. The unit is the work of visiting one rule. Returns `None` if there is no such change.
    pub(super) fn place_beyond(&self, mods: &[Mod], most: usize) -> Option<usize> {
        self.first_beyond(mods, most, &mut Coming::default(), Estimate::Least)
    }

    /// Returns the index of the first change at which the estimated work of a batch, or the work of the estimate
    /// itself, exceeds `most`. Returns `None` if there is no such change.
    fn first_beyond(
        &self,
        mods: &[Mod],
        most: usize,
        coming: &mut Coming,
        estimate: Estimate,
    ) -> Option<usize> {
        let mut work = 0_usize;
        mods.iter().position(|change| {
            work = work.saturating_add(self.work_in(change, coming, estimate));
            work.max(coming.walked) > most
        })
    }

    /// Returns the estimated work of a change. The unit is the work of visiting one rule. `coming` holds the estimated
    /// effects of the preceding changes of the batch. The effects of this change are added to `coming`.
    fn work_in(&self, change: &Mod, coming: &mut Coming, estimate: Estimate) -> usize {
        let all = self.rules.place_count() + self.rules.work() + coming.added.rules + coming.added.actions;
        if let Mod::Flow(change) = change {
            coming.uses_groups |= change.instructions.has_group();
            coming.uses_meters |= change.instructions.has_meter();
        }
        let work = match change {
            Mod::Flow(change) => match change.command {
                FlowCommand::Add => {
                    let before = if estimate == Estimate::Most { coming.added.rules } else { 0 };
                    coming.added = coming.added.and(Amount { rules: 1, actions: change.instructions.work() });
                    self.work_of_add_after(change, before)
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
                    // A rule is removed only once, even if the batch selects it several times.
                    let left = self.stored().and(coming.added).without(coming.removed);
                    let searched = self.searched(change, strict);
                    let removed = self.selected_by(change, strict, searched, estimate).min(left);
                    coming.removed = coming.removed.and(removed);
                    self.work_to_find(change, strict, coming) + removed.change_work()
                }
            },
            Mod::Group(change) => self.work_of_groups(change, all, coming, estimate),
            Mod::Meter(change) => self.work_of_meters(change, all, coming, estimate),
            Mod::PacketOut(_) => WORK_OF_PACKET,
        };
        let (orphans, visited) = self.orphans_in(change);
        let orphans = orphans.min(MOST_ORPHANS.without(coming.orphans));
        coming.orphans = coming.orphans.and(orphans);
        work.max(1).saturating_add(orphans.change_work()).saturating_add(visited)
    }

    /// Returns the estimated work of a change of groups. The unit is the work of visiting one rule. `all` is the work
    /// of visiting all rules with their actions. The effects of the change are added to `coming`.
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
                coming.uses_meters |= has_meter(&group.buckets);
                work.saturating_add(self.reach(&reached(group), coming))
            }
            GroupMod::InsertBuckets(id, ..) | GroupMod::RemoveBuckets(id, _) => {
                let new = match change {
                    GroupMod::InsertBuckets(_, _, buckets) => {
                        coming.uses_meters |= has_meter(buckets);
                        work_of_buckets(buckets)
                    }
                    _ => 0,
                };
                coming.buckets = coming.buckets.saturating_add(new);
                match estimate {
                    // The preceding changes of the batch may have removed buckets from the group, or added buckets to
                    // it.
                    Estimate::Least => new.max(1),
                    Estimate::Most => {
                        let own = self.groups.get(id).map_or(0, |state| {
                            work_of_group(&state.group) + self.reach(&state.reached, coming)
                        });
                        own.saturating_add(coming.buckets)
                    }
                }
            }
            GroupMod::Delete(ALL_GROUPS) if estimate == Estimate::Most => {
                all.saturating_add(self.work_to_delete_all_groups())
            }
            GroupMod::Delete(_) if estimate == Estimate::Most && coming.uses_groups => {
                all.saturating_add(coming.buckets)
            }
            GroupMod::Delete(id) if *id == ALL_GROUPS || self.uses.has_group(*id) => all,
            GroupMod::Delete(_) => 1,
        }
    }

    /// Returns the estimated work of a change of meters. The unit is the work of visiting one rule. `all` is the work
    /// of visiting all rules with their actions.
    fn work_of_meters(&self, change: &MeterMod, all: usize, coming: &Coming, estimate: Estimate) -> usize {
        let id = match change {
            MeterMod::Add(_) | MeterMod::Modify(_) => return WORK_OF_CHANGE,
            MeterMod::Delete(id) => *id,
        };
        let rules = if id.is_none_or(|id| self.uses.has_meter(id)) { all } else { 1 };
        if estimate == Estimate::Least {
            return rules;
        }
        let rules = if coming.uses_meters { all } else { rules };
        let meters = if id.is_none() { self.meters.len() * WORK_OF_CHANGE } else { 0 };
        let groups = if self.uses.has_metered_group(id) || coming.uses_meters {
            let groups = self.groups.len() + self.work_to_delete_all_groups();
            all.saturating_add(groups).saturating_add(coming.buckets)
        } else {
            0
        };
        rules.saturating_add(meters).saturating_add(groups)
    }

    fn work_to_delete_all_groups(&self) -> usize {
        self.groups.len() * WORK_OF_CHANGE + self.buckets * WORK_OF_OLD_BUCKET
    }

    /// Returns the work of removing these groups with their buckets. The unit is the work of visiting one rule.
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
    /// actions. If the selection depends on the contents of rules, the number is not known without a visit to each
    /// rule. `searched` is the number of rules from which the change selects, with the work of visiting their actions.
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

    /// Returns the work of finding the rules that a change or removal selects. The unit is the work of visiting one
    /// rule. The actions of rules count only if the selection depends on the actions.
    pub(super) fn work_to_search(&self, change: &FlowMod, strict: bool) -> usize {
        let reads = reads_actions(change.out_port, change.out_group);
        let actions = if reads { self.searched(change, strict).actions } else { 0 };
        self.places_of(change, strict) + actions
    }

    /// Returns the work of changing or removing these rules. The unit is the work of visiting one rule.
    pub(super) fn work_to_change(&self, rules: &[RuleRef]) -> usize {
        let actions = rules.iter().map(|at| self.rules.work_at(*at)).sum();
        Amount { rules: rules.len(), actions }.change_work()
    }

    /// Returns an upper bound of the amount of learned rules that a change removes immediately, together with the rules
    /// whose `learn` actions added them. The second value is the work of this estimate. The unit is the work of
    /// visiting one rule.
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

    /// Returns the approximate amount of learned rules that are removed immediately if this rule is removed. The second
    /// value is the work of this estimate. The unit is the work of visiting one rule. The estimate visits all actions
    /// of the rule.
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

    /// Returns the estimated work of adding a rule. The unit is the work of visiting one rule.
    pub(super) fn work_of_add(&self, change: &FlowMod) -> usize {
        self.work_of_add_after(change, 0)
    }

    /// Returns the estimated work of adding a rule after a batch has added up to `before` others. The unit is the work
    /// of visiting one rule.
    fn work_of_add_after(&self, change: &FlowMod, before: usize) -> usize {
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
        let evicts = self.evicts_for(change)
            || before > 0 && table.evicts() && table.classifier.len() + before >= table.limit() as usize;
        let room = if evicts { self.work_to_rank(change.table) + WORK_OF_CHANGE } else { 0 };
        overlaps + room + own
    }

    /// Returns whether the addition of a new rule (a rule that replaces no other rule) evicts a rule. If the table is
    /// full and no rule can be evicted, the addition is refused without a visit to any rule.
    fn evicts_for(&self, change: &FlowMod) -> bool {
        self.tables.get(usize::from(change.table)).is_some_and(|table| {
            table.classifier.len() >= table.limit() as usize
                && table.evicts()
                && table.evictable.has_victim(change.importance)
        })
    }

    /// Returns an upper bound of the work of removing `rules` rules and the learned rules that are removed with these
    /// rules. The unit is the work of visiting one rule. `actions` is the work of visiting the actions of the `rules`
    /// rules.
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

    /// Returns the estimated work of visiting all groups to which the groups `from` refer, directly or through other
    /// groups. The unit is the work of visiting one rule. The estimate stops at [`MANY_REACHED`] groups. The work of
    /// the estimate itself is also added to `coming`.
    fn reach(&self, from: &[u32], coming: &mut Coming) -> usize {
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
        coming.walked = coming.walked.saturating_add(met * WORK_OF_GROUP);
        met * WORK_OF_GROUP
    }
}

/// Returns the work of validating, copying and encoding a group that a change adds or changes. The unit is the work of
/// visiting one rule.
pub(super) fn work_of_group(group: &Group) -> usize {
    1 + group.buckets.len() * WORK_OF_BUCKET + group.memory() / OCTETS_OF_GROUP
}

/// Returns the part of a group's work that is due to buckets inserted into the group. The unit is the work of visiting
/// one rule.
fn work_of_buckets(buckets: &[Bucket]) -> usize {
    let octets: usize = buckets.iter().map(Bucket::memory).sum();
    buckets.len() * WORK_OF_BUCKET + octets / OCTETS_OF_GROUP
}

/// Returns whether any bucket uses a meter.
fn has_meter(buckets: &[Bucket]) -> bool {
    let is_meter = |named: Reference<'_>| matches!(named, Reference::Meter(_));
    buckets.iter().any(|bucket| any_reference(&bucket.actions, &mut { is_meter }))
}

/// Returns whether a selection of rules by output port and group must visit the rules' actions.
pub(super) fn reads_actions(out_port: Option<u32>, out_group: Option<u32>) -> bool {
    out_port.is_some() || out_group.is_some_and(|group| group != ANY_GROUP)
}

/// Returns the numbers of the tables that the table number `table` of a change or removal represents.
pub(super) fn numbers_of(table: u8) -> std::ops::Range<u8> {
    match table {
        ALL_TABLES => 0..ALL_TABLES,
        table => table..table + 1,
    }
}

#[cfg(test)]
mod tests;
