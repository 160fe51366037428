//! Estimates of the number of rules, groups and buckets that changes visit. The estimates are made before the
//! changes, to find changes that take long or too long.

use std::collections::HashSet;

use super::group_references::reached;
use super::message::{ALL_GROUPS, ALL_TABLES, ANY_GROUP, FlowCommand, FlowMod, GroupMod, MeterMod, Mod};
use super::pipeline::{EXPIRED_AT_ONCE, Pipeline, TABLES};
use super::rule::RuleRef;
use super::{Flow, Match};

/// Number of visited groups at which the estimate of the work for a group stops.
const MANY_REACHED: usize = 1 << 14;
/// Estimated work of visiting a group that another group refers to, in visited rules. A group is found by
/// hashing, while rules are stored in a row.
pub(super) const WORK_OF_GROUP: usize = 16;
/// Work of adding, changing or removing a rule, in visited rules. The work covers the actions, the
/// classifier, the reference counts and the change records.
pub(super) const WORK_OF_CHANGE: usize = 32;
/// Estimated work of checking one mask of a table for overlapping rules, in visited rules.
const WORK_OF_MASK: usize = 8;
/// Estimated work of a packet-out, in visited rules: the maximum number of rules that one packet may match.
const WORK_OF_PACKET: usize = 4096;

/// Estimated results of the changes of a batch that precede another change.
#[derive(Default)]
struct Coming {
    /// Number of rules that the preceding changes add.
    rules: usize,
    /// Number of rules that the preceding changes remove.
    removed: usize,
    /// Number of learned rules that are removed with the rules that taught them.
    orphans: usize,
}

impl Pipeline {
    /// Returns the approximate number of rules, groups and buckets that a batch visits. More than about ten
    /// thousand take milliseconds.
    #[must_use]
    pub fn work_of(&self, mods: &[Mod]) -> usize {
        let mut coming = Coming::default();
        mods.iter().map(|change| self.work_in(change, &mut coming)).fold(0, usize::saturating_add)
    }

    /// Returns the index of the first change with which a batch visits more than `most` rules, groups and
    /// buckets. Returns `None` if there is no such change.
    pub(super) fn place_beyond(&self, mods: &[Mod], most: usize) -> Option<usize> {
        let (mut coming, mut work) = (Coming::default(), 0_usize);
        mods.iter().position(|change| {
            work = work.saturating_add(self.work_in(change, &mut coming));
            work > most
        })
    }

    /// Returns the estimated work of a change in visited rules. `coming` holds the estimated results of the
    /// preceding changes of the batch, to which the results of this change are added.
    fn work_in(&self, change: &Mod, coming: &mut Coming) -> usize {
        let all = self.rules.place_count() + coming.rules;
        let group = |id: &u32| self.groups.get(id);
        let buckets = |id: &u32| group(id).map_or(0, |state| state.group.buckets.len());
        let work = match change {
            Mod::Flow(change) => match change.command {
                FlowCommand::Add => {
                    coming.rules += 1;
                    self.work_of_add(change)
                }
                FlowCommand::Modify { strict, .. } => {
                    let changed = self.targets_at_least(change, strict);
                    self.work_to_find(change, strict, coming) + changed * WORK_OF_CHANGE
                }
                FlowCommand::Delete { strict } => {
                    // A rule goes once, however often a batch names it.
                    let left = (self.rules.len() + coming.rules).saturating_sub(coming.removed);
                    let removed = self.targets_at_least(change, strict).min(left);
                    coming.removed += removed;
                    self.work_to_find(change, strict, coming) + removed * WORK_OF_CHANGE
                }
            },
            Mod::Group(GroupMod::Delete(id)) if *id == ALL_GROUPS || self.uses.has_group(*id) => all,
            Mod::Meter(MeterMod::Delete(None)) => all,
            Mod::Meter(MeterMod::Delete(Some(id))) if self.uses.has_meter(*id) => all,
            Mod::Group(GroupMod::Add(group) | GroupMod::Modify { group, .. }) => {
                group.buckets.len() + self.reach(&reached(group))
            }
            Mod::Group(GroupMod::InsertBuckets(id, ..) | GroupMod::RemoveBuckets(id, _)) => {
                buckets(id) + group(id).map_or(0, |state| self.reach(&state.reached))
            }
            Mod::Group(GroupMod::Delete(_)) | Mod::Meter(_) => 1,
            Mod::PacketOut(_) => WORK_OF_PACKET,
        };
        let orphans = self.orphans_in(change).min(EXPIRED_AT_ONCE - coming.orphans);
        coming.orphans += orphans;
        work.max(1) + orphans * WORK_OF_CHANGE
    }

    fn work_to_find(&self, change: &FlowMod, strict: bool, coming: &Coming) -> usize {
        self.places_of(change, strict) + if strict { 0 } else { coming.rules }
    }

    /// Returns the minimum number of rules that a change or removal selects, as far as the number is known
    /// without visiting each rule.
    fn targets_at_least(&self, change: &FlowMod, strict: bool) -> usize {
        if change.out_port.is_some() || change.out_group.is_some_and(|group| group != ANY_GROUP) {
            0
        } else if strict {
            if change.cookie_mask != 0 { 0 } else { self.named(change).count() }
        } else if change.matching.mask != Flow::ZERO {
            0
        } else if change.cookie_mask == u64::MAX {
            let of = |table| self.rules.count_of(table, change.cookie_value);
            numbers_of(change.table).map(of).sum()
        } else if change.cookie_mask != 0 {
            0
        } else {
            let tables = numbers_of(change.table).filter_map(|table| self.tables.get(usize::from(table)));
            tables.map(|table| table.classifier.len()).sum()
        }
    }

    /// Returns the maximum number of learned rules that are removed immediately because a change removes the
    /// rules that taught them.
    fn orphans_in(&self, change: &Mod) -> usize {
        let all = if self.learned.has_keepers() { self.rules.len() } else { 0 };
        match change {
            Mod::Flow(change) => {
                let is_strict = match change.command {
                    FlowCommand::Add => true,
                    FlowCommand::Modify { strict, .. } | FlowCommand::Delete { strict } => strict,
                };
                let of = |rule: &RuleRef| self.rules.get(*rule).map_or(0, |rule| self.orphans_of(rule));
                if is_strict && all > 0 { self.named(change).map(of).sum() } else { all }
            }
            Mod::Group(GroupMod::Delete(_)) | Mod::Meter(MeterMod::Delete(_)) => all,
            Mod::Group(_) | Mod::Meter(_) | Mod::PacketOut(_) => 0,
        }
    }

    /// Returns the rules whose match and priority equal those of a change.
    pub(super) fn named(&self, change: &FlowMod) -> impl Iterator<Item = &RuleRef> {
        let Match { value, mask } = change.matching;
        let tables = numbers_of(change.table).filter_map(|table| self.tables.get(usize::from(table)));
        tables.filter_map(move |table| table.classifier.get(&value.0, &mask.0, change.priority))
    }

    pub(super) fn work_of_add(&self, change: &FlowMod) -> usize {
        let Some(table) = self.tables.get(usize::from(change.table)) else { return 1 };
        let Match { value, mask } = change.matching;
        if table.classifier.get(&value.0, &mask.0, change.priority).is_some() {
            // The rule is replaced, so that no overlap check and no eviction takes place.
            return WORK_OF_CHANGE;
        }
        let overlaps = if change.flags.check_overlap {
            let masks = table.classifier.masks() * (WORK_OF_MASK - 1);
            masks + table.classifier.overlap_work(&mask.0, change.priority)
        } else {
            0
        };
        // Without a victim the change is refused, and looks at no rule.
        let evicts = table.classifier.len() >= table.limit() as usize
            && table.evicts()
            && table.evictable.has_victim(change.importance);
        let room = if evicts { self.places_of_table(change.table) + WORK_OF_CHANGE } else { 0 };
        overlaps + room + WORK_OF_CHANGE
    }

    /// Returns the number of slots that are visited to find the rules that a change or removal selects.
    pub(super) fn places_of(&self, change: &FlowMod, strict: bool) -> usize {
        let tables = if change.table == ALL_TABLES { TABLES } else { 1 };
        if strict {
            tables
        } else if change.cookie_mask == u64::MAX {
            tables
                + numbers_of(change.table)
                    .map(|table| self.rules.count_of(table, change.cookie_value))
                    .sum::<usize>()
        } else if change.table == ALL_TABLES {
            self.rules.place_count()
        } else {
            self.places_of_table(change.table)
        }
    }

    /// Returns the estimated work of visiting all groups that the groups `from` refer to, directly or by
    /// other groups. The estimate stops at a bound.
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

/// Returns the numbers of the tables that a change or removal with this table number selects.
pub(super) fn numbers_of(table: u8) -> std::ops::Range<u8> {
    match table {
        ALL_TABLES => 0..ALL_TABLES,
        table => table..table + 1,
    }
}
