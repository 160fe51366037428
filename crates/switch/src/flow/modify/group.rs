//! Changes of groups. A change is validated before it is made.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::flow::Action;
use crate::flow::action::{Reference, any_reference};
use crate::flow::batch::Batch;
use crate::flow::group_references::{meters_of, reached};
use crate::flow::message::{
    ALL_GROUPS, Bucket, BucketPlace, Event, FlowError, ForwardedRequest, Group, GroupKind, GroupMod, Removed,
};
use crate::flow::option_fields::OptionFields;
use crate::flow::pipeline::{GroupState, MAX_GROUPS, Pipeline, Touched};
use crate::flow::rule::RuleRef;
use crate::flow::work::{WORK_OF_GROUP, work_of_group};

/// Maximum number of buckets of a group.
const MAX_BUCKETS: usize = 4096;
/// Maximum length of a chain of groups in which each group refers to the next one, through an action or as watch group.
const MAX_CHAIN: usize = 32;
/// Maximum number of groups, and of references between them, that the validation of one group visits.
const MAX_REACHED: usize = 1 << 20;

/// The state of the loop check for a group, which follows all references to other groups, direct and indirect.
struct Walk {
    first: u32,
    heights: HashMap<u32, usize>,
    /// Number of groups and references that the check may still visit.
    left: usize,
}

impl Pipeline {
    /// Returns whether the group that a change refers to exists in the tables.
    pub(super) fn is_about_group(&self, change: &GroupMod) -> bool {
        match change {
            GroupMod::Add(group) | GroupMod::Modify { group, .. } => self.groups.contains_key(&group.id),
            GroupMod::Delete(ALL_GROUPS) => !self.groups.is_empty(),
            GroupMod::Delete(id) | GroupMod::InsertBuckets(id, ..) | GroupMod::RemoveBuckets(id, _) => {
                self.groups.contains_key(id)
            }
        }
    }

    /// Queues the event that reports a completed change of groups to controllers.
    pub(super) fn forward_group_mod(&mut self, change: &GroupMod, existed: bool) {
        let after = match change {
            GroupMod::InsertBuckets(id, ..) | GroupMod::RemoveBuckets(id, _) => {
                self.groups.get(id).map(|state| Group::clone(&state.group))
            }
            GroupMod::Add(_) | GroupMod::Modify { .. } | GroupMod::Delete(_) => None,
        };
        let request = ForwardedRequest::Group { change: change.clone(), existed, after };
        self.events.queue(Event::Request(Box::new(request)));
    }

    pub(super) fn group_mod(&mut self, change: &GroupMod, batch: &mut Batch) -> Result<(), FlowError> {
        match change {
            GroupMod::Add(group) => {
                if self.groups.contains_key(&group.id) {
                    return Err(FlowError::GroupExists);
                }
                self.put_group(group.clone(), batch)
            }
            GroupMod::Modify { group, or_add } => {
                if !or_add && !self.groups.contains_key(&group.id) {
                    return Err(FlowError::UnknownGroup);
                }
                self.put_group(group.clone(), batch)
            }
            GroupMod::Delete(id) => {
                let gone: Vec<u32> = match *id {
                    ALL_GROUPS => self.groups.keys().copied().collect(),
                    id => self.groups.contains_key(&id).then_some(id).into_iter().collect(),
                };
                self.delete_groups(&gone, batch)
            }
            GroupMod::InsertBuckets(id, place, buckets) => {
                let mut group = Group::clone(&self.groups.get(id).ok_or(FlowError::UnknownGroup)?.group);
                let known: HashSet<u32> = group.buckets.iter().map(|old| old.id).collect();
                if buckets.iter().any(|new| known.contains(&new.id)) {
                    return Err(FlowError::BucketExists);
                }
                let at = match place {
                    BucketPlace::First => 0,
                    BucketPlace::Last | BucketPlace::All => group.buckets.len(),
                    BucketPlace::Id(id) => 1 + place_of(&group.buckets, *id)?,
                };
                group.buckets.splice(at..at, buckets.iter().cloned());
                self.put_group(group, batch)
            }
            GroupMod::RemoveBuckets(id, place) => {
                let mut group = Group::clone(&self.groups.get(id).ok_or(FlowError::UnknownGroup)?.group);
                match place {
                    BucketPlace::All => group.buckets.clear(),
                    BucketPlace::First if !group.buckets.is_empty() => drop(group.buckets.remove(0)),
                    BucketPlace::First | BucketPlace::Last => drop(group.buckets.pop()),
                    BucketPlace::Id(id) => drop(group.buckets.remove(place_of(&group.buckets, *id)?)),
                }
                self.put_group(group, batch)
            }
        }
    }

    /// Adds a group, or replaces the group with this number. Returns the reason if the group is refused.
    fn put_group(&mut self, group: Group, batch: &mut Batch) -> Result<(), FlowError> {
        let id = group.id;
        if self.groups.len() >= MAX_GROUPS && !self.groups.contains_key(&id) {
            return Err(FlowError::OutOfGroups);
        }
        batch.work(work_of_group(&group))?;
        let reached = self.check_group(&group, batch)?;
        let memory = GroupState::memory_of(&group);
        let less = self.groups.get(&id).map_or(0, GroupState::memory);
        let held = (self.held + memory).saturating_sub(less);
        if held > self.held_most || !batch.has_room(self.held, memory) {
            return Err(FlowError::OutOfBuckets);
        }
        self.held = held;
        let old = self.groups.remove(&id);
        let buckets = old.as_ref().map_or(0, |old| old.group.buckets.len());
        self.buckets = self.buckets + group.buckets.len() - buckets;
        let mut state = GroupState {
            created_ns: old.as_ref().map_or(batch.now_ns, |old| old.created_ns),
            packets: 0,
            bytes: 0,
            buckets: vec![(0, 0); group.buckets.len()],
            options: OptionFields::of_buckets(&group.buckets),
            meters: meters_of(&group),
            group: Arc::new(group),
            reached,
        };
        self.uses.group_linked(&state.meters);
        if let Some(old) = &old {
            self.uses.group_unlinked(&old.meters);
            (state.packets, state.bytes) = (old.packets, old.bytes);
            // If several old buckets have one identifier, the counters of the first of them are used.
            let before = old.group.buckets.iter().zip(&old.buckets).rev();
            let before: HashMap<u32, (u64, u64)> = before.map(|(bucket, own)| (bucket.id, *own)).collect();
            for (bucket, counts) in state.group.buckets.iter().zip(&mut state.buckets) {
                *counts = before.get(&bucket.id).copied().unwrap_or_default();
            }
        }
        batch.group(id, old);
        self.groups.insert(id, state);
        self.touch(Touched::All);
        Ok(())
    }

    /// Validates a group. Returns the groups to which its buckets refer, or the reason if the group is refused.
    fn check_group(&self, group: &Group, batch: &mut Batch) -> Result<Box<[u32]>, FlowError> {
        if group.id > 0xffff_ff00 {
            return Err(FlowError::InvalidGroup);
        }
        if group.buckets.len() > MAX_BUCKETS {
            return Err(FlowError::OutOfBuckets);
        }
        if group.kind == GroupKind::Indirect && group.buckets.len() != 1 {
            return Err(FlowError::InvalidGroup);
        }
        let watches = |bucket: &Bucket| bucket.watch_port.is_some() || bucket.watch_group.is_some();
        if group.kind == GroupKind::FastFailover && !group.buckets.iter().all(watches) {
            return Err(FlowError::InvalidGroup);
        }
        // A group that does not fit into a message could not be reported in a dump.
        if !(self.group_fits)(group) {
            return Err(FlowError::OutOfBuckets);
        }
        let mut count = 0;
        for bucket in &group.buckets {
            for action in &bucket.actions {
                self.check_action(action, false, &mut count)?;
                let own = &mut |named: Reference<'_>| matches!(named, Reference::Group(id) if id == group.id);
                if any_reference(std::slice::from_ref(action), own) {
                    return Err(FlowError::GroupLoop);
                }
            }
        }
        // A group may name a group that does not exist yet. Packets are not forwarded there until it exists.
        let next = reached(group);
        let mut walk = Walk { first: group.id, heights: HashMap::new(), left: MAX_REACHED };
        let checked = next.iter().try_for_each(|next| self.height(*next, 1, &mut walk).map(drop));
        batch.work((MAX_REACHED - walk.left) * WORK_OF_GROUP)?;
        checked?;
        Ok(next)
    }

    /// Returns the length of the longest chain of groups that begins with the group `id`, this group included. In a
    /// chain, each group refers to the next one. `depth` is the number of groups before `id`. The lengths found are
    /// cached in `heights` of `walk`.
    ///
    /// # Errors
    /// Returns [`FlowError::GroupLoop`] if the chain returns to the first group or is too long.
    fn height(&self, id: u32, depth: usize, walk: &mut Walk) -> Result<usize, FlowError> {
        if id == walk.first || depth > MAX_CHAIN {
            return Err(FlowError::GroupLoop);
        }
        if let Some(height) = walk.heights.get(&id) {
            return if depth + height > MAX_CHAIN + 1 { Err(FlowError::GroupLoop) } else { Ok(*height) };
        }
        let next = self.groups.get(&id).map_or(&[][..], |state| &state.reached);
        walk.left = walk.left.checked_sub(1 + next.len()).ok_or(FlowError::GroupLoop)?;
        let mut height = 1;
        for next in next {
            height = height.max(1 + self.height(*next, depth + 1, walk)?);
        }
        walk.heights.insert(id, height);
        Ok(height)
    }

    /// Removes groups, together with the rules that use them.
    pub(super) fn delete_groups(&mut self, gone: &[u32], batch: &mut Batch) -> Result<(), FlowError> {
        batch.work(self.work_to_delete(gone))?;
        for id in gone {
            if let Some(state) = self.groups.remove(id) {
                self.held = self.held.saturating_sub(state.memory());
                self.buckets -= state.group.buckets.len();
                self.uses.group_unlinked(&state.meters);
                batch.group(*id, Some(state));
            }
        }
        if gone.is_empty() {
            return Ok(());
        }
        self.touch(Touched::All);
        if !gone.iter().any(|id| self.uses.has_group(*id)) {
            return Ok(());
        }
        batch.work(self.rules.place_count() + self.rules.work())?;
        // One scan over the rules finds all rules that use a removed group, regardless of the number of removed groups.
        let is_missing =
            |named: Reference<'_>| matches!(named, Reference::Group(id) if !self.groups.contains_key(&id));
        let uses = |actions: &[Action]| any_reference(actions, &mut { is_missing });
        let users: Vec<RuleRef> = self
            .rules
            .iter()
            .filter(|(_, rule)| uses(&rule.instructions.apply) || uses(&rule.instructions.write))
            .map(|(at, _)| at)
            .collect();
        batch.work(self.work_to_change(&users))?;
        for at in users {
            self.remove_in(at, Removed::GroupDelete, batch);
        }
        Ok(())
    }
}

fn place_of(buckets: &[Bucket], id: u32) -> Result<usize, FlowError> {
    buckets.iter().position(|bucket| bucket.id == id).ok_or(FlowError::UnknownBucket)
}
