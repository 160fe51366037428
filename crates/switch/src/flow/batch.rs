//! The undo log of a batch of changes of the flow tables. If one change is refused, the log is used
//! to revert the whole batch.
//!
//! The log holds the state that each changed rule, group or meter had before the batch. The log stores this state
//! once, however often the batch changes the object. One memory limit applies to the log together with the existing
//! rules and groups.

use std::collections::HashSet;

use super::action::OCTETS_OF_WORK;
use super::message::{FlowError, PacketOut};
use super::pipeline::{GroupState, MeterState};
use super::rule::{Rule, RuleRef};
use super::translate::Translated;

/// Number of octets by which rules, groups and the undo log together may exceed the configured
/// memory limit of rules and groups while a batch is made.
const BATCH_MEMORY: usize = 512 << 20;

/// Work limit of a batch: the number of rules, groups and buckets that its changes visit. Each 64 octets of visited
/// actions count as one more rule. A batch with this much work takes about a second, during which the tables are
/// locked.
pub const BATCH_WORK: usize = 1 << 27;

/// A packet-out of a batch, translated into datapath actions.
#[derive(Clone, Debug)]
pub struct DecidedPacket {
    /// Packet-out message of the controller.
    pub packet: PacketOut,
    /// Datapath actions for the packet. The flow entries that its `learn` actions add are already in the tables.
    pub translated: Translated,
}

/// A step of the undo log: the previous state of one rule, group or meter.
pub(super) enum Undo {
    Added(RuleRef),
    /// A removed rule. The last value is the identifier of the rule's chain if the rule was in a
    /// chain of rules that are about to be removed (doomed).
    Removed(RuleRef, Box<Rule>, Option<u64>),
    Changed(RuleRef, Box<Rule>),
    /// The modification time of a rule before the batch, in nanoseconds. Only the modification time of the rule has
    /// changed.
    Times(RuleRef, u64),
    Group(u32, Option<Box<GroupState>>),
    Meter(u32, Option<Box<MeterState>>),
}

/// A batch of changes in progress. See the [module](self).
pub(super) struct Batch {
    /// Time at which the batch is made, in nanoseconds.
    pub now_ns: u64,
    steps: Vec<Undo>,
    /// Rules that the batch has added.
    added: HashSet<RuleRef>,
    /// Rules whose state before the batch is in the undo log.
    changed: HashSet<RuleRef>,
    /// Rules of which the batch has changed only the modification time. The undo log holds only their previous
    /// modification time.
    retimed: HashSet<RuleRef>,
    groups: HashSet<u32>,
    meters: HashSet<u32>,
    /// Packet-outs that the batch has translated, in order.
    pub decided: Vec<DecidedPacket>,
    /// Sums over the packet-outs translated so far: the number of table lookups, and the memory, in octets, of the
    /// packet-outs and their translations.
    pub decided_costs: (usize, usize),
    /// Approximate memory of the undo log, in octets.
    kept: usize,
    /// Maximum memory, in octets, that rules, groups and the undo log may use together.
    most: usize,
    /// Number of rules, groups and buckets that the batch has visited.
    work: usize,
}

impl Batch {
    /// Creates a batch. `held` is the memory, in octets, that the rules and groups of the tables use, and
    /// `held_most` is the configured limit of this memory.
    pub fn new(now_ns: u64, held: usize, held_most: usize) -> Batch {
        Batch {
            now_ns,
            steps: Vec::new(),
            added: HashSet::new(),
            changed: HashSet::new(),
            retimed: HashSet::new(),
            groups: HashSet::new(),
            meters: HashSet::new(),
            decided: Vec::new(),
            decided_costs: (0, 0),
            kept: 0,
            most: held.max(held_most).saturating_add(BATCH_MEMORY),
            work: 0,
        }
    }

    /// Returns whether the undo log may grow by `more` octets within the memory limit of the batch. `held` is the
    /// memory that rules and groups use at present, in octets.
    pub fn has_room(&self, held: usize, more: usize) -> bool {
        self.kept.saturating_add(held).saturating_add(more) <= self.most
    }

    /// Adds `places` to the number of rules, groups and buckets that the batch has visited.
    ///
    /// # Errors
    /// Returns [`FlowError::TooMuchWork`] if the number exceeds [`BATCH_WORK`].
    pub fn work(&mut self, places: usize) -> Result<(), FlowError> {
        self.work = self.work.saturating_add(places);
        if self.work > BATCH_WORK { Err(FlowError::TooMuchWork) } else { Ok(()) }
    }

    /// Adds the work of writing or comparing an action list of `octets` octets to the work of the batch. The list
    /// counts as one visited rule, plus one for each 64 octets. Returns an error like [`Batch::work`].
    pub fn work_on(&mut self, octets: usize) -> Result<(), FlowError> {
        self.work(1 + octets / OCTETS_OF_WORK)
    }

    /// Returns whether the undo log needs no other entry for a rule, because the batch added the rule or the log
    /// already holds the rule's previous state.
    pub fn knows(&self, at: RuleRef) -> bool {
        self.added.contains(&at) || self.changed.contains(&at)
    }

    /// Records in the undo log that a rule was added.
    pub fn added(&mut self, at: RuleRef) {
        self.added.insert(at);
        self.steps.push(Undo::Added(at));
    }

    /// Records that a rule was removed. A rule that the batch itself added needs no record. If the rule was doomed
    /// (about to be removed), `doomed` is the identifier of its chain.
    pub fn removed(&mut self, at: RuleRef, rule: Rule, doomed: Option<u64>) {
        if !self.added.contains(&at) {
            self.kept += rule.memory();
            self.steps.push(Undo::Removed(at, Box::new(rule), doomed));
        }
    }

    /// Records the state of a rule in the undo log before the rule changes.
    pub fn changed(&mut self, at: RuleRef, rule: &Rule) {
        if !self.added.contains(&at) && self.changed.insert(at) {
            self.kept += rule.memory();
            self.steps.push(Undo::Changed(at, Box::new(rule.clone())));
        }
    }

    /// Records the modification time of a rule in the undo log before only this time changes.
    pub fn retimed(&mut self, at: RuleRef, modified_ns: u64) {
        if !self.knows(at) && self.retimed.insert(at) {
            self.steps.push(Undo::Times(at, modified_ns));
        }
    }

    /// Records in the undo log the state of a group before the group was added (`None`), changed or removed.
    pub fn group(&mut self, id: u32, before: Option<GroupState>) {
        if self.groups.insert(id) {
            self.kept += before.as_ref().map_or(0, GroupState::memory);
            self.steps.push(Undo::Group(id, before.map(Box::new)));
        }
    }

    /// Records in the undo log the state of a meter before the meter was added (`None`), changed or removed.
    pub fn meter(&mut self, id: u32, before: Option<MeterState>) {
        if self.meters.insert(id) {
            self.steps.push(Undo::Meter(id, before.map(Box::new)));
        }
    }

    /// Consumes the batch and returns the steps of its undo log, from the last change to the first.
    pub fn into_steps(self) -> impl Iterator<Item = Undo> {
        self.steps.into_iter().rev()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::flow::{
        Action, Bucket, BucketPlace, Field, FlowCommand, FlowError, FlowMod, Group, GroupKind, GroupMod,
        Instructions, Match, Mod, Pipeline, SelectMethod,
    };

    fn flow_mod(change: FlowMod) -> Mod {
        Mod::Flow(Box::new(change))
    }

    /// Returns a pipeline with `rules` distinct rules and one group.
    fn pipeline(rules: u32) -> Pipeline {
        let mut pipeline = Pipeline::new();
        let rule = |n: u32| {
            let matching = Match::ANY.with(Field::Reg0, u128::from(n));
            let mut rule = FlowMod::add(0, 1, matching, Instructions::default());
            rule.cookie = Some(u64::from(n));
            flow_mod(rule)
        };
        let buckets = vec![bucket(0)];
        let group = Group { id: 1, kind: GroupKind::Select, method: SelectMethod::Default, buckets };
        let mut mods: Vec<Mod> = (0..rules).map(rule).collect();
        mods.push(Mod::Group(GroupMod::Add(group)));
        pipeline.modify(&mods, 5).unwrap();
        pipeline.take_events();
        pipeline
    }

    fn bucket(id: u32) -> Bucket {
        let actions = vec![Action::Note(vec![0; 100])];
        Bucket { id, weight: 1, watch_port: None, watch_group: None, actions }
    }

    /// Returns a flow-mod that replaces the instructions of all rules with a `note` action of `octets` octets.
    fn modify_all(octets: usize) -> FlowMod {
        let note = Instructions::apply(vec![Action::Note(vec![7; octets])]);
        FlowMod {
            command: FlowCommand::Modify { strict: false, or_add: false },
            cookie: None,
            ..FlowMod::add(0, 1, Match::ANY, note)
        }
    }

    /// Applies `mods` as one batch and returns the number of steps and octets in its undo log.
    fn batch(pipeline: &mut Pipeline, mods: &[Mod]) -> (usize, usize) {
        let mut batch = Batch::new(9, pipeline.held, pipeline.held_most);
        for change in mods {
            pipeline.change_in(change, &mut batch).unwrap();
        }
        (batch.steps.len(), batch.kept)
    }

    #[test]
    fn each_rule_and_group_is_kept_once_however_often_it_is_changed() {
        let mut pipeline = pipeline(50);
        let before: usize = pipeline.rule_memory();
        let mods: Vec<Mod> = (0..200).map(|n| flow_mod(modify_all(n % 7))).collect();
        let (steps, kept) = batch(&mut pipeline, &mods);
        assert_eq!(steps, 50);
        assert!(kept <= before, "{kept} octets of {before}");
        let grow = |id| Mod::Group(GroupMod::InsertBuckets(1, BucketPlace::Last, vec![bucket(id)]));
        let (steps, kept) = batch(&mut pipeline, &(1..300).map(grow).collect::<Vec<_>>());
        assert_eq!(steps, 1);
        assert!(kept < 1000, "{kept} octets");
        // The undo log does not hold rules that the batch itself has added.
        let add = flow_mod(FlowMod::add(3, 1, Match::ANY, modify_all(60_000).instructions));
        let gone = flow_mod(FlowMod::delete(3, Match::ANY));
        let again: Vec<Mod> = (0..100).flat_map(|_| [add.clone(), gone.clone()]).collect();
        assert_eq!(batch(&mut pipeline, &again), (100, 0));
    }

    #[test]
    fn a_change_that_changes_nothing_keeps_and_tells_nothing() {
        let mut pipeline = pipeline(50);
        pipeline.modify(&[flow_mod(modify_all(3))], 6).unwrap();
        assert_eq!(pipeline.take_events().len(), 50);
        let mods: Vec<Mod> = (0..200).map(|_| flow_mod(modify_all(3))).collect();
        let (steps, kept) = batch(&mut pipeline, &mods);
        assert_eq!((steps, kept), (50, 0), "when they were changed last");
        assert!(pipeline.take_events().is_empty());
        let all = crate::flow::FlowFilter::default();
        assert!(pipeline.flows(&all, 10).iter().all(|flow| flow.unchanged_ns == 1));
        // Modification times are restored too.
        let refused =
            FlowMod::add(0, 1, Match::ANY, Instructions { goto: Some(0), ..Instructions::default() });
        let before = pipeline.flows(&all, 20);
        let mods = [flow_mod(modify_all(3)), flow_mod(modify_all(4)), flow_mod(refused)];
        assert_eq!(pipeline.modify(&mods, 15), Err((2, FlowError::BadGoto)));
        assert_eq!(pipeline.flows(&all, 20), before);
    }

    /// The undo log and the rules have a common memory limit, and a batch that exceeds the limit is refused
    /// as a whole.
    #[test]
    fn what_a_batch_keeps_is_bounded() {
        let mut pipeline = pipeline(3);
        let mut small = Batch::new(9, pipeline.held, pipeline.held_most);
        small.most = pipeline.held + pipeline.held / 2;
        let change = flow_mod(modify_all(1));
        assert_eq!(pipeline.change_in(&change, &mut small), Err(FlowError::TableFull));
        // A batch that removes rules needs no additional memory.
        let mut small = Batch::new(9, pipeline.held, pipeline.held_most);
        small.most = pipeline.held;
        pipeline.change_in(&flow_mod(FlowMod::delete(0, Match::ANY)), &mut small).unwrap();
        let add = flow_mod(FlowMod::add(0, 1, Match::ANY, Instructions::default()));
        assert_eq!(pipeline.change_in(&add, &mut small), Err(FlowError::TableFull));
    }

    /// A rule that a change modifies counts as more work than a rule that the change only visits, even if the estimate
    /// before the change did not include the rule.
    #[test]
    fn changed_rules_weigh_more_than_rules_that_are_looked_at() {
        let mut pipeline = pipeline(1000);
        let most_of_them = FlowMod { cookie_mask: 1 << 63, ..modify_all(1) };
        let gone = FlowMod { cookie_mask: 1 << 63, ..FlowMod::delete(0, Match::ANY) };
        for change in [most_of_them, gone] {
            let change = flow_mod(change);
            let mut try_with = |left: usize| {
                let mut batch = Batch::new(9, pipeline.held, pipeline.held_most);
                batch.work = BATCH_WORK - left;
                let before = pipeline.version();
                let done = pipeline.change_in(&change, &mut batch);
                (done, pipeline.version() != before)
            };
            assert_eq!(try_with(20_000), (Err(FlowError::TooMuchWork), false));
            assert_eq!(try_with(40_000), (Ok(()), true));
        }
    }

    /// A batch that adds a million rules fits into the work limit. A batch of 66 changes that each modify 100,000 rules
    /// does not.
    #[test]
    fn a_million_rules_are_added_in_one_batch_and_not_changed_often_in_one() {
        let mut rules = pipeline(100_000);
        let add =
            |n: u32| FlowMod::add(0, 1, Match::ANY.with(Field::Reg1, u128::from(n)), Instructions::default());
        let adds: Vec<Mod> = (0..100_000).map(|n| flow_mod(add(n))).collect();
        assert!(rules.work_of(&adds) * 10 < BATCH_WORK / 2);
        let changes = vec![flow_mod(modify_all(1)); 66];
        let fits = BATCH_WORK / (33 * 100_000);
        assert_eq!(rules.modify(&changes, 9), Err((fits, FlowError::TooMuchWork)));
        // Each rule is removed only once, although every change of the batch selects it.
        let gone = vec![flow_mod(FlowMod::delete(0, Match::ANY)); 66];
        rules.modify(&gone, 9).unwrap();
    }
}
