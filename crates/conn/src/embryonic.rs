//! Lists of the embryonic entries of a table, from the oldest to the newest: one of all, and one of each zone.
//!
//! A connection is embryonic until its handshake is complete, or until the other end has replied. The lists are doubly
//! linked, and share their nodes, which are in an array of fixed size. An embryonic entry stores the number of its node
//! in the place of its expiry, and the node stores the expiry. Entries that are not embryonic therefore need no memory
//! for the lists. The numbers of nodes begin with 1.

use zerocopy::{FromBytes, IntoBytes, transmute_mut};

use crate::zone::ZONES;

/// Number of no node: the end of a list.
const NONE: u32 = 0;

/// The lists of which each node is an element.
#[derive(Clone, Copy)]
enum List {
    All,
    Zone(u16),
}

/// Neighbours of a node in a list, or the ends of a list.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes)]
#[repr(C)]
struct Links {
    older: u32,
    newer: u32,
}

/// Node of an embryonic entry, 24 bytes.
#[derive(Clone, Copy, Debug)]
struct Node {
    entry: u32,
    /// Time in milliseconds at which the entry expires.
    expires: u32,
    /// Previous and next nodes in the list of all entries. In an unused node: `newer` is the next unused node.
    all: Links,
    /// Previous and next nodes in the list of the zone.
    zone: Links,
}

#[derive(Debug)]
pub(crate) struct Embryonic {
    nodes: Vec<Node>,
    unused: u32,
    /// Sentinel of the circular list of all entries. Its link `older` leads to the newest node, and its link `newer` to
    /// the oldest node.
    all: Links,
    /// Ends of the list of each zone, as the two numbers of [`Links`]. The allocator takes zeros of integers from the
    /// kernel, which provides a page when a zone of the page is used.
    zones: Vec<[u32; 2]>,
    /// Number of entries of each zone.
    zone_counts: Vec<u32>,
    count: u32,
    limit: u32,
}

impl Embryonic {
    /// Returns empty lists for at most `limit` entries.
    pub(crate) fn new(limit: u32) -> Embryonic {
        let nodes = Vec::with_capacity(limit as usize);
        let (zones, zone_counts) = (vec![[NONE; 2]; ZONES], vec![0; ZONES]);
        Embryonic { nodes, unused: NONE, all: Links::default(), zones, zone_counts, count: 0, limit }
    }

    /// Returns the number of entries of the list.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the number of entries of a zone.
    pub(crate) fn zone_count(&self, zone: u16) -> u32 {
        self.zone_counts.get(usize::from(zone)).copied().unwrap_or_default()
    }

    /// Returns the largest number of entries of the list.
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the memory of the nodes of full lists in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
    }

    /// Returns the entry that has been in the list of all entries for the longest time.
    pub(crate) fn oldest(&self) -> Option<u32> {
        self.node(self.all.newer).map(|node| node.entry)
    }

    /// Returns the entry that has been in the list of a zone for the longest time.
    pub(crate) fn oldest_of_zone(&self, zone: u16) -> Option<u32> {
        self.node(self.zones.get(usize::from(zone))?[1]).map(|node| node.entry)
    }

    /// Appends an entry of a zone, and returns its node. Returns `None` if the list is full.
    pub(crate) fn push(&mut self, entry: u32, zone: u16, expires: u32) -> Option<u32> {
        if self.count >= self.limit {
            return None;
        }
        let node = Node { entry, expires, all: Links::default(), zone: Links::default() };
        let unused = self.unused;
        let number = match self.node_mut(unused) {
            Some(place) => {
                let next = place.all.newer;
                *place = node;
                self.unused = next;
                unused
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len()).ok()?
            }
        };
        self.append(List::All, number);
        self.append(List::Zone(zone), number);
        self.count += 1;
        self.zone_counts[usize::from(zone)] += 1;
        Some(number)
    }

    /// Removes a node. `zone` is the zone of its entry.
    pub(crate) fn remove(&mut self, number: u32, zone: u16) {
        if self.node(number).is_none() {
            return;
        }
        self.unlink(List::All, number);
        self.unlink(List::Zone(zone), number);
        let unused = self.unused;
        if let Some(node) = self.node_mut(number) {
            node.all.newer = unused;
        }
        self.unused = number;
        self.count = self.count.saturating_sub(1);
        let own = &mut self.zone_counts[usize::from(zone)];
        *own = own.saturating_sub(1);
    }

    /// Returns the time in milliseconds at which the entry of a node expires.
    #[inline]
    pub(crate) fn expires(&self, number: u32) -> u32 {
        self.node(number).map_or(0, |node| node.expires)
    }

    /// Sets the time in milliseconds at which the entry of a node expires.
    pub(crate) fn set_expires(&mut self, number: u32, expires: u32) {
        if let Some(node) = self.node_mut(number) {
            node.expires = expires;
        }
    }

    #[inline]
    fn node(&self, number: u32) -> Option<&Node> {
        self.nodes.get((number as usize).checked_sub(1)?)
    }

    fn node_mut(&mut self, number: u32) -> Option<&mut Node> {
        self.nodes.get_mut((number as usize).checked_sub(1)?)
    }

    /// Returns the neighbours of a node in a list. For [`NONE`], returns the ends of the list.
    fn links_mut(&mut self, list: List, number: u32) -> &mut Links {
        match (list, (number as usize).checked_sub(1)) {
            (List::All, None) => &mut self.all,
            (List::Zone(zone), None) => transmute_mut!(&mut self.zones[usize::from(zone)]),
            (List::All, Some(at)) => &mut self.nodes[at].all,
            (List::Zone(_), Some(at)) => &mut self.nodes[at].zone,
        }
    }

    /// Appends a node at the newest end of a list.
    fn append(&mut self, list: List, number: u32) {
        let newest = std::mem::replace(&mut self.links_mut(list, NONE).older, number);
        *self.links_mut(list, number) = Links { older: newest, newer: NONE };
        self.links_mut(list, newest).newer = number;
    }

    /// Removes a node from a list.
    fn unlink(&mut self, list: List, number: u32) {
        let Links { older, newer } = *self.links_mut(list, number);
        self.links_mut(list, older).newer = newer;
        self.links_mut(list, newer).older = older;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_lists_agree_with_a_queue(
            steps in prop::collection::vec((prop::option::of(0..3_u16), 0..8_usize), 0..200),
        ) {
            let mut list = Embryonic::new(5);
            // Entry, zone and node, the oldest first.
            let mut queue = VecDeque::new();
            for (entry, (push, at)) in (0..).zip(steps) {
                if let Some(zone) = push {
                    let node = list.push(entry, zone, entry + 1);
                    prop_assert_eq!(node.is_some(), queue.len() < 5);
                    queue.extend(node.map(|node| (entry, zone, node)));
                } else if let Some((_, zone, node)) = queue.remove(at) {
                    list.remove(node, zone);
                }
                prop_assert_eq!(list.oldest(), queue.front().map(|(entry, ..)| *entry));
                for zone in 0..3 {
                    let oldest = queue.iter().find(|(_, other, _)| *other == zone);
                    prop_assert_eq!(list.oldest_of_zone(zone), oldest.map(|(entry, ..)| *entry));
                }
                prop_assert_eq!(list.count() as usize, queue.len());
                for (entry, _, node) in &queue {
                    prop_assert_eq!(list.expires(*node), entry + 1);
                }
            }
        }
    }
}
