//! List of the embryonic entries of a table, from the oldest to the newest.
//!
//! A connection is embryonic until its handshake is complete, or until the other end has replied. The list is doubly
//! linked, and its nodes are in an array of fixed size. An embryonic entry stores the number of its node in the place
//! of its expiry, and the node stores the expiry. Entries that are not embryonic therefore need no memory for the list.

/// End of a list.
const NONE: u32 = u32::MAX;

/// Node of an embryonic entry, 16 bytes.
#[derive(Clone, Copy, Debug)]
struct Node {
    entry: u32,
    /// Time in milliseconds at which the entry expires.
    expires: u32,
    /// Node of the next older entry.
    older: u32,
    /// Node of the next newer entry, or the next unused node.
    newer: u32,
}

#[derive(Debug)]
pub(crate) struct Embryonic {
    nodes: Vec<Node>,
    unused: u32,
    oldest: u32,
    newest: u32,
    count: u32,
    limit: u32,
}

impl Embryonic {
    /// Returns an empty list for at most `limit` entries.
    pub(crate) fn new(limit: u32) -> Embryonic {
        let nodes = Vec::with_capacity(limit as usize);
        Embryonic { nodes, unused: NONE, oldest: NONE, newest: NONE, count: 0, limit }
    }

    /// Returns the number of entries of the list.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the largest number of entries of the list.
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the memory of a full list in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
    }

    /// Returns the entry that has been in the list for the longest time.
    pub(crate) fn oldest(&self) -> Option<u32> {
        self.nodes.get(self.oldest as usize).map(|node| node.entry)
    }

    /// Appends an entry, and returns its node. Returns `None` if the list is full.
    pub(crate) fn push(&mut self, entry: u32, expires: u32) -> Option<u32> {
        if self.count >= self.limit {
            return None;
        }
        let node = Node { entry, expires, older: self.newest, newer: NONE };
        let number = match self.nodes.get_mut(self.unused as usize) {
            Some(unused) => {
                let number = std::mem::replace(&mut self.unused, unused.newer);
                *unused = node;
                number
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len() - 1).ok()?
            }
        };
        match self.nodes.get_mut(self.newest as usize) {
            Some(newest) => newest.newer = number,
            None => self.oldest = number,
        }
        self.newest = number;
        self.count += 1;
        Some(number)
    }

    /// Removes a node.
    pub(crate) fn remove(&mut self, number: u32) {
        let Some(node) = self.nodes.get_mut(number as usize) else { return };
        let Node { older, newer, .. } = *node;
        node.newer = self.unused;
        self.unused = number;
        match self.nodes.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
        match self.nodes.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        self.count = self.count.saturating_sub(1);
    }

    /// Returns the time in milliseconds at which the entry of a node expires.
    pub(crate) fn expires(&self, number: u32) -> u32 {
        self.nodes.get(number as usize).map_or(0, |node| node.expires)
    }

    /// Sets the time in milliseconds at which the entry of a node expires.
    pub(crate) fn set_expires(&mut self, number: u32, expires: u32) {
        if let Some(node) = self.nodes.get_mut(number as usize) {
            node.expires = expires;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_list_agrees_with_a_queue(steps in prop::collection::vec((any::<bool>(), 0..8_usize), 0..200)) {
            let mut list = Embryonic::new(5);
            // Pairs of entry and node, the oldest first.
            let mut queue = VecDeque::new();
            for (entry, (push, at)) in (0..).zip(steps) {
                if push {
                    let node = list.push(entry, entry + 1);
                    prop_assert_eq!(node.is_some(), queue.len() < 5);
                    queue.extend(node.map(|node| (entry, node)));
                } else if let Some((_, node)) = queue.remove(at) {
                    list.remove(node);
                }
                prop_assert_eq!(list.oldest(), queue.front().map(|(entry, _)| *entry));
                prop_assert_eq!(list.count() as usize, queue.len());
                for (entry, node) in &queue {
                    prop_assert_eq!(list.expires(*node), entry + 1);
                }
            }
        }
    }
}
