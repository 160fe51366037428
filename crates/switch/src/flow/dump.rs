//! Dumps of flow entries, groups and meters in steps. Each step locks the flow tables for a short time, and upcalls
//! (packets for translation) and changes proceed between the steps. A step ends after a fixed number of rules, or
//! earlier if it has visited or copied many actions.
//!
//! An entry that exists throughout a dump is reported exactly once. An entry that is added, removed or replaced during
//! the dump may be missing from the dump.

use super::action::OCTETS_OF_WORK;
use super::message::{FlowFilter, FlowStats, Group, GroupStats, Meter, MeterStats};
use super::pipeline::{Pipeline, STEP_WORK, Tally, is_selected};
use super::work::reads_actions;

/// Maximum number of rule slots that one step of a dump visits.
const LOOKED_AT: usize = 2048;
/// Maximum number of rules that one step of a dump reports.
const TOLD: usize = 128;
/// Maximum number of groups or meters that one step of a dump reports.
const GROUPS: usize = 16;
/// Work limit of one step of a dump that counts the references to groups: the step ends when the
/// work of visiting groups, buckets and actions reaches this limit. Each 64 octets of a group are
/// as much work as one visited rule.
const GROUP_WORK: usize = 4096;

/// The sort key of a rule in a dump: table, descending priority, and slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Found(u64);

impl Found {
    /// Builds the sort key of a rule. Within a table, a rule of higher priority has a lower key.
    fn new(table: u8, priority: u16, place: usize) -> Found {
        Found(u64::from(table) << 48 | u64::from(!priority) << 32 | place as u64 & u64::from(u32::MAX))
    }

    fn place(self) -> usize {
        usize::try_from(self.0 & u64::from(u32::MAX)).unwrap_or(usize::MAX)
    }

    fn is_of(self, table: u8, priority: u16) -> bool {
        self.0 >> 32 == Found::new(table, priority, 0).0 >> 32
    }
}

/// A dump of rules, sorted by table and descending priority. A dump uses 8 octets of memory for each rule.
#[derive(Debug)]
pub struct FlowDump {
    filter: FlowFilter,
    /// Next rule slot at which the search for selected rules continues. The value is `None` if all slots have been
    /// visited.
    at: Option<usize>,
    found: Vec<Found>,
    is_sorted: bool,
    /// Number of rules that the dump has reported.
    told: usize,
}

impl FlowDump {
    /// Creates a dump of the rules that `filter` selects.
    #[must_use]
    pub fn new(filter: FlowFilter) -> FlowDump {
        FlowDump { filter, at: Some(0), found: Vec::new(), is_sorted: false, told: 0 }
    }

    /// Sorts the selected rules after all of them have been found. Call this function before each step, while the flow
    /// tables are not locked.
    pub fn prepare(&mut self) {
        if self.at.is_none() && !self.is_sorted {
            self.found.sort_unstable();
            self.is_sorted = true;
        }
    }

    /// Returns the next rules of the dump. The list may be empty before the end. Returns `None` at the end of
    /// the dump.
    pub fn step(&mut self, pipeline: &Pipeline, now_ns: u64) -> Option<Vec<FlowStats>> {
        if let Some(from) = self.at {
            let to = end_of_search(pipeline, from, &self.filter);
            for (place, (rule, _)) in (from..to).zip(pipeline.rules.places(from, to - from)) {
                if let Some(rule) = rule.filter(|rule| is_selected(&self.filter, rule)) {
                    self.found.push(Found::new(rule.table, rule.priority, place));
                }
            }
            self.at = (to < pipeline.rules.place_count()).then_some(to);
            return Some(Vec::new());
        }
        if self.told == self.found.len() {
            return None;
        }
        let mut work = 0;
        let is_in = |found: &&Found| {
            let is_in = work < STEP_WORK;
            work += pipeline.rules.work_in(found.place());
            is_in
        };
        let left = &self.found[self.told..];
        let next = &left[..left.iter().take(TOLD).take_while(is_in).count()];
        self.told += next.len();
        // A rule that exists during the whole dump keeps its slot, even if a flow-mod adds it again.
        let rule = |found: &Found| {
            let rule = pipeline.rules.places(found.place(), 1).next()?.0?;
            let is_meant = found.is_of(rule.table, rule.priority) && is_selected(&self.filter, rule);
            is_meant.then(|| rule.stats(now_ns))
        };
        Some(next.iter().filter_map(rule).collect())
    }
}

/// Sums of the packets and octets of selected rules, and the number of these rules, computed in steps.
#[derive(Debug)]
pub struct FlowSums {
    filter: FlowFilter,
    at: usize,
    sums: (u64, u64, u32),
}

impl FlowSums {
    /// Creates empty sums over the rules that `filter` selects.
    #[must_use]
    pub fn new(filter: FlowFilter) -> FlowSums {
        FlowSums { filter, at: 0, sums: (0, 0, 0) }
    }

    /// Adds the next rules to the sums. Returns the sums of packets, octets and rules when all rules have been visited,
    /// and `None` before that.
    pub fn step(&mut self, pipeline: &Pipeline) -> Option<(u64, u64, u32)> {
        let (from, to) = (self.at, end_of_search(pipeline, self.at, &self.filter));
        for (rule, _) in pipeline.rules.places(from, to - from) {
            if let Some(rule) = rule.filter(|rule| is_selected(&self.filter, rule)) {
                let (packets, bytes, flows) = self.sums;
                self.sums = (
                    packets.wrapping_add(rule.packets),
                    bytes.wrapping_add(rule.bytes),
                    flows.saturating_add(1),
                );
            }
        }
        self.at = to;
        (to >= pipeline.rules.place_count()).then_some(self.sums)
    }
}

/// Returns the index after the last slot that one step of a dump visits. The step begins at the slot `from`, and
/// searches its slots for rules that `filter` selects.
fn end_of_search(pipeline: &Pipeline, from: usize, filter: &FlowFilter) -> usize {
    let most = if reads_actions(filter.out_port, filter.out_group) { STEP_WORK } else { usize::MAX };
    pipeline.rules.end_of_step(from, LOOKED_AT, most)
}

/// A function that appends to a list the numbers of the groups or meters that a rule's instructions use.
type Names = fn(&super::Instructions, &mut Vec<u32>);

/// A function that returns whether the group or meter with this number exists.
type Exists = fn(&Pipeline, u32) -> bool;

/// A dump of groups or meters in ascending order of number.
#[derive(Debug)]
pub struct NumberedDump {
    /// Group or meter number from which the dump continues. The value is `None` at the end of the dump.
    from: Option<u32>,
    /// Last group or meter number of the dump.
    to: u32,
    /// Rule slot at which the count of the rules that use each group or meter continues. The value is `None` if all
    /// rules have been counted.
    at: Option<usize>,
    /// Number of the group at which the count of references between groups continues. The value is `None` if all groups
    /// have been counted.
    groups_at: Option<u32>,
    uses: Tally,
}

impl NumberedDump {
    /// Creates a dump of the group or meter `number`, or of all groups or meters if `number` is `None`.
    #[must_use]
    pub fn new(number: Option<u32>) -> NumberedDump {
        let (from, to) = (number.unwrap_or(0), number.unwrap_or(u32::MAX));
        NumberedDump { from: Some(from), to, at: Some(0), groups_at: Some(0), uses: Tally::default() }
    }

    /// Visits the rules in the next slots. Counts, for each group or meter of the dump, the rules that use this group
    /// or meter. Returns whether rules remain to be counted.
    fn count(&mut self, pipeline: &Pipeline, names: Names, exists: Exists) -> bool {
        let Some(from) = self.at else { return false };
        let to = pipeline.rules.end_of_step(from, LOOKED_AT, STEP_WORK);
        let (first, last) = (self.from.unwrap_or(0), self.to);
        let is_counted = |id| (first..=last).contains(&id) && exists(pipeline, id);
        for rule in pipeline.rules.places(from, to - from).filter_map(|(rule, _)| rule) {
            self.uses.add(|named| names(&rule.instructions, named), is_counted);
        }
        self.at = (to < pipeline.rules.place_count()).then_some(to);
        self.at.is_some()
    }

    /// Moves the position of the dump past the entries `told`, which have been reported. Returns
    /// these entries without their group or meter numbers.
    fn behind<T>(&mut self, told: Vec<(u32, T)>) -> Vec<T> {
        let last = told.last().filter(|_| told.len() == GROUPS).map(|(number, _)| *number);
        self.from = last.and_then(|last| last.checked_add(1)).filter(|from| *from <= self.to);
        told.into_iter().map(|(_, one)| one).collect()
    }

    /// Returns the next groups of the dump. Returns `None` at the end of the dump.
    pub fn groups(&mut self, pipeline: &Pipeline) -> Option<Vec<Group>> {
        let next = pipeline.groups.range(self.from?..=self.to).take(GROUPS);
        let told = next.map(|(id, state)| (*id, Group::clone(&state.group))).collect();
        Some(self.behind(told))
    }

    /// Returns the counters of the next groups. The list may be empty before the end. Returns `None` at the
    /// end of the dump.
    pub fn group_stats(&mut self, pipeline: &Pipeline, now_ns: u64) -> Option<Vec<GroupStats>> {
        let from = self.from?;
        if self.at.is_some() {
            let exists: Exists = |pipeline, id| pipeline.groups.contains_key(&id);
            self.count(pipeline, |instructions, named| instructions.groups(named), exists);
            return Some(Vec::new());
        }
        if let Some(first) = self.groups_at {
            let mut work = 0;
            let mut groups = pipeline.groups.range(first..);
            let is_counted = |id| (from..=self.to).contains(&id) && pipeline.groups.contains_key(&id);
            self.groups_at = groups.find_map(|(id, state)| {
                if work >= GROUP_WORK {
                    return Some(*id);
                }
                work += 1 + state.group.memory() / OCTETS_OF_WORK;
                let named = |named: &mut Vec<u32>| {
                    named.extend(super::group_references::followers(&state.group));
                };
                self.uses.add(named, is_counted);
                None
            });
            return Some(Vec::new());
        }
        let next = pipeline.groups.range(from..=self.to).take(GROUPS);
        let told = next.map(|(id, state)| (*id, state.stats(self.uses.of(*id), now_ns))).collect();
        Some(self.behind(told))
    }

    /// Returns the next meters of the dump. Returns `None` at the end of the dump.
    pub fn meters(&mut self, pipeline: &Pipeline) -> Option<Vec<Meter>> {
        let next = pipeline.meters.range(self.from?..=self.to).take(GROUPS);
        let told = next.map(|(id, state)| (*id, Meter::clone(&state.meter))).collect();
        Some(self.behind(told))
    }

    /// Returns the counters of the next meters. The list may be empty before the end. Returns `None` at the
    /// end of the dump.
    pub fn meter_stats(&mut self, pipeline: &Pipeline, now_ns: u64) -> Option<Vec<MeterStats>> {
        let from = self.from?;
        if self.at.is_some() {
            let exists: Exists = |pipeline, id| pipeline.meters.contains_key(&id);
            self.count(pipeline, |instructions, named| instructions.meters(named), exists);
            return Some(Vec::new());
        }
        let next = pipeline.meters.range(from..=self.to).take(GROUPS);
        let told = next.map(|(id, state)| (*id, state.stats(self.uses.of(*id), now_ns))).collect();
        Some(self.behind(told))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::flow::{
        Action, Bucket, Field, FlowMod, Group, GroupKind, GroupMod, Instructions, Match, Mod, SelectMethod,
    };

    /// Returns a pipeline with 60 rules, each with `actions` actions.
    fn pipeline(actions: usize) -> Pipeline {
        let mut pipeline = Pipeline::new();
        let rule = |number: u32| {
            let matching = Match::ANY.with(Field::Reg0, u128::from(number));
            let instructions = Instructions::apply(vec![Action::PopVlan; actions]);
            Mod::Flow(Box::new(FlowMod::add(0, 1, matching, instructions)))
        };
        pipeline.modify(&(0..60).map(rule).collect::<Vec<_>>(), 0).unwrap();
        pipeline
    }

    /// Returns, for each step of a dump, the number of rules that the step reports.
    fn steps(pipeline: &Pipeline, filter: &FlowFilter) -> Vec<usize> {
        let mut dump = FlowDump::new(filter.clone());
        let step = || {
            dump.prepare();
            dump.step(pipeline, 0).map(|rules| rules.len())
        };
        std::iter::from_fn(step).collect()
    }

    /// Dumps, aggregate statistics, counts of references, and copies are made in steps. Each step processes at least
    /// one rule, and ends early when the step has visited or copied many actions.
    #[test]
    fn rules_with_many_actions_end_a_step() {
        let (light, heavy) = (pipeline(3), pipeline(4000));
        let each = heavy.rules.work() / 60;
        let most = STEP_WORK.div_ceil(each);
        let (all, by_port) =
            (FlowFilter::default(), FlowFilter { out_port: Some(7), ..FlowFilter::default() });
        assert_eq!(steps(&light, &all), [0, 60]);
        let told = steps(&heavy, &all);
        assert_eq!((told[0], told[1], told.iter().sum::<usize>()), (0, most, 60));
        assert!(told.iter().all(|told| *told <= most), "{told:?}");
        // No rule outputs to this port, so that each step only searches and reports no rule.
        let searches = 60_usize.div_ceil(most);
        assert_eq!((steps(&light, &by_port).len(), steps(&heavy, &by_port).len()), (1, searches));
        let sums = |pipeline: &Pipeline, filter: &FlowFilter| {
            let mut sums = FlowSums::new(filter.clone());
            let first = 1 + std::iter::from_fn(|| sums.step(pipeline).is_none().then_some(())).count();
            (first, sums.sums.2)
        };
        assert_eq!((sums(&light, &by_port), sums(&heavy, &by_port)), ((1, 0), (searches, 0)));
        assert_eq!(sums(&heavy, &all), (1, 60), "the sums without a port read no actions");
        let counts = |pipeline: &Pipeline| {
            let mut dump = NumberedDump::new(None);
            1 + std::iter::from_fn(|| dump.count(pipeline, |_, _| (), |_, _| false).then_some(())).count()
        };
        assert_eq!((counts(&light), counts(&heavy)), (1, searches));
        let copies = |pipeline: &Pipeline| {
            let (mut from, mut copied) = (Some(0), Vec::new());
            while let Some(at) = from {
                let mut count = 0;
                from = pipeline.rules_from(at, 256, 0, |_, _| count += 1);
                copied.push(count);
            }
            copied
        };
        assert_eq!(copies(&light), [60]);
        let copied = copies(&heavy);
        assert_eq!((copied[0], copied.iter().sum::<usize>()), (most, 60));
        let places: Vec<usize> = (10..60).collect();
        assert_eq!((light.step_of(&places, 40), heavy.step_of(&places, 40)), (40, most));
    }

    /// A rule with more actions than the work limit of one step allows is the only rule of its step.
    #[test]
    fn a_step_has_at_least_one_rule() {
        let mut pipeline = Pipeline::new();
        let heavy = || Instructions::apply(vec![Action::Note(vec![0; 64 * STEP_WORK])]);
        let rule = |priority| Mod::Flow(Box::new(FlowMod::add(0, priority, Match::ANY, heavy())));
        pipeline.modify(&[rule(1), rule(2), rule(3)], 0).unwrap();
        assert_eq!(steps(&pipeline, &FlowFilter::default()), [0, 1, 1, 1]);
        assert_eq!(pipeline.rules_from(0, 9, 0, |_, _| ()), Some(1));
    }

    /// A step that counts the references to groups ends after a few groups if the groups have many actions. Only
    /// references to groups that exist and belong to the dump are counted.
    #[test]
    fn groups_with_many_actions_end_a_step_and_missing_groups_are_not_counted() {
        const GROUPS: u32 = 60;
        const NAMED: u32 = 4_000;
        let mut pipeline = Pipeline::new();
        let group = |id: u32| {
            // Each group refers to group 1 and to many groups that do not exist.
            let missing = (0..NAMED).map(|number| 1_000_000 + id * NAMED + number);
            let first = (id > 1).then_some(1);
            let actions = first.into_iter().chain(missing).map(Action::Group).collect();
            let buckets = vec![Bucket { id: 1, weight: 1, watch_port: None, watch_group: None, actions }];
            let (kind, method) = (GroupKind::All, SelectMethod::Default);
            Mod::Group(GroupMod::Add(Group { id, kind, method, buckets }))
        };
        pipeline.modify(&(1..=GROUPS).map(group).collect::<Vec<_>>(), 0).unwrap();
        let uses = Instructions::apply(vec![Action::Group(1), Action::Group(2)]);
        pipeline.modify(&[Mod::Flow(Box::new(FlowMod::add(0, 1, Match::ANY, uses)))], 0).unwrap();
        let of_group = NAMED as usize * size_of::<Action>() / OCTETS_OF_WORK;
        let most = GROUP_WORK.div_ceil(of_group);
        for (number, counted) in [(None, 2), (Some(2), 1), (Some(9), 0)] {
            let mut dump = NumberedDump::new(number);
            let (mut steps, mut stats) = (0, Vec::new());
            while let Some(told) = dump.group_stats(&pipeline, 0) {
                steps += usize::from(dump.at.is_none() && told.is_empty());
                stats.extend(told);
            }
            assert!(steps >= GROUPS as usize / most, "{steps} steps of at most {most} groups");
            assert_eq!(dump.uses.len(), counted, "{number:?}");
            let references: Vec<u32> = stats.iter().map(|stats| stats.references).collect();
            match number {
                None => {
                    assert_eq!((references.len(), &references[..3]), (60, &[60, 1, 0][..]));
                    let at_once: Vec<u32> =
                        pipeline.group_stats(0).iter().map(|stats| stats.references).collect();
                    assert_eq!(references, at_once);
                }
                Some(2) => assert_eq!(references, [1]),
                Some(_) => assert_eq!(references, [0]),
            }
        }
    }
}
