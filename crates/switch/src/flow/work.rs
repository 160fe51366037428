//! How many rules, groups and buckets changes look at: what tells before they are made whether they take long, or too long.

use std::collections::HashSet;

use super::Match;
use super::message::{ALL_GROUPS, ALL_TABLES, FlowCommand, FlowMod, GroupMod, MeterMod, Mod};
use super::modify::reached;
use super::pipeline::{Pipeline, TABLES};

/// Groups that a group leads to, itself or by others, which are not counted any further.
const MANY_REACHED: usize = 1 << 14;
/// What a group that is met on the way from another counts in the estimate: it is found by its number, and noted, while rules stand in a row.
pub(super) const WORK_OF_GROUP: usize = 16;
/// What a packet-out counts in the estimate of what a batch looks at: as many rules as one packet may meet.
const WORK_OF_PACKET: usize = 4096;

impl Pipeline {
    /// How many rules, groups and buckets a batch looks at, about: what is more than some ten thousand takes milliseconds.
    #[must_use]
    pub fn work_of(&self, mods: &[Mod]) -> usize {
        let mut come = 0;
        mods.iter().map(|change| self.work_in(change, &mut come)).fold(0, usize::saturating_add)
    }

    /// The place of the change with which a batch looks at more than so many rules, groups and buckets.
    pub(super) fn place_beyond(&self, mods: &[Mod], most: usize) -> Option<usize> {
        let (mut come, mut work) = (0, 0_usize);
        mods.iter().position(|change| {
            work = work.saturating_add(self.work_in(change, &mut come));
            work > most
        })
    }

    /// The work of a change of a batch before which so many rules have come.
    fn work_in(&self, change: &Mod, come: &mut usize) -> usize {
        let all = self.rules.place_count() + *come;
        let group = |id: &u32| self.groups.get(id);
        let buckets = |id: &u32| group(id).map_or(0, |state| state.group.buckets.len());
        let work = match change {
            Mod::Flow(change) => match change.command {
                FlowCommand::Add => {
                    *come += 1;
                    self.work_of_add(change)
                }
                FlowCommand::Modify { strict, .. } | FlowCommand::Delete { strict } => {
                    self.places_of(change, strict) + if strict { 0 } else { *come }
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
        work.max(1)
    }

    pub(super) fn work_of_add(&self, change: &FlowMod) -> usize {
        let Some(table) = self.tables.get(usize::from(change.table)) else { return 1 };
        let Match { value, mask } = change.matching;
        if table.classifier.get(&value.0, &mask.0, change.priority).is_some() {
            // The rule is replaced: it overlaps with none anew, and none has to make room.
            return 1;
        }
        let overlaps = if change.flags.check_overlap {
            table.classifier.overlap_work(&mask.0, change.priority)
        } else {
            0
        };
        let evicts = table.classifier.len() >= table.limit() as usize && table.evicts();
        overlaps + if evicts { self.places_of_table(change.table) } else { 1 }
    }

    /// How many places are looked at to find the rules that a change or removal is about.
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

    /// What it takes to look at all groups that some lead to, if these are not many.
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

/// The numbers of the tables that a change or removal is about.
pub(super) fn numbers_of(table: u8) -> std::ops::Range<u8> {
    match table {
        ALL_TABLES => 0..ALL_TABLES,
        table => table..table + 1,
    }
}
