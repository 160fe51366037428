//! References of a group to other groups and to meters.

use super::action::{Reference, each_reference};
use super::message::{ANY_GROUP, Group};

/// Returns the numbers of the groups to which a group's buckets refer, through an action or as watch group. Each number
/// is listed once.
pub(super) fn reached(group: &Group) -> Box<[u32]> {
    let watched = group.buckets.iter().filter_map(|bucket| bucket.watch_group);
    let mut all: Vec<u32> = followers(group).chain(watched.filter(|id| *id != ANY_GROUP)).collect();
    all.sort_unstable();
    all.dedup();
    all.into_boxed_slice()
}

/// Returns the numbers of the meters that the actions of a group's buckets use. Each number is listed once.
pub(super) fn meters_of(group: &Group) -> Box<[u32]> {
    let mut all = Vec::new();
    for bucket in &group.buckets {
        each_reference(&bucket.actions, &mut |named| {
            if let Reference::Meter(id) = named {
                all.push(id);
            }
        });
    }
    all.sort_unstable();
    all.dedup();
    all.into_boxed_slice()
}

/// Returns the numbers of the groups that the actions of a group's buckets use. A number may occur more than once.
pub(crate) fn followers(group: &Group) -> impl Iterator<Item = u32> {
    let mut found = Vec::new();
    for bucket in &group.buckets {
        each_reference(&bucket.actions, &mut |named| {
            if let Reference::Group(id) = named {
                found.push(id);
            }
        });
    }
    found.into_iter()
}
