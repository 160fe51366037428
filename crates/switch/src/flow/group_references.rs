//! References of a group to other groups.

use super::Action;
use super::message::{ANY_GROUP, Group};

/// Returns the numbers of the groups that a group's buckets use in actions or watch. Each number is listed once.
pub(super) fn reached(group: &Group) -> Box<[u32]> {
    let watched = group.buckets.iter().filter_map(|bucket| bucket.watch_group);
    let mut all: Vec<u32> = followers(group).chain(watched.filter(|id| *id != ANY_GROUP)).collect();
    all.sort_unstable();
    all.dedup();
    all.into_boxed_slice()
}

/// Returns the numbers of the groups that the actions of a group's buckets use. A number may occur more than once.
pub(crate) fn followers(group: &Group) -> impl Iterator<Item = u32> {
    fn within(actions: &[Action], found: &mut Vec<u32>) {
        for action in actions {
            match action {
                Action::Group(id) => found.push(*id),
                Action::Clone(actions) => within(actions, found),
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    group.buckets.iter().for_each(|bucket| within(&bucket.actions, &mut found));
    found.into_iter()
}
