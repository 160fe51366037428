//! Shares: what the datagrams of each share key occupy.
//!
//! The table holds a share for each key with a datagram that is not complete. The caller chooses the keys. The hash of
//! the keys is secret, because a caller may use keys that a sender chooses, for example source addresses.

use std::cmp::Reverse;

use sync::hash::WordHash;

use super::list::List;
use crate::index::{Crowded, Index, Place};

/// A limited quantity of the reassembler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Resource {
    Datagrams,
    Fragments,
}

/// Datagrams of one share key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    key: u32,
    /// Number of datagrams. 0: the share is unused.
    pub(super) datagrams: u32,
    /// Number of fragments of the datagrams.
    pub(super) fragments: u32,
    /// Datagrams from the oldest to the newest.
    pub(super) list: List,
}

impl Share {
    const UNUSED: Share = Share { key: 0, datagrams: 0, fragments: 0, list: List::EMPTY };

    fn held(&self, resource: Resource) -> u32 {
        match resource {
            Resource::Datagrams => self.datagrams,
            Resource::Fragments => self.fragments,
        }
    }
}

#[derive(Debug)]
pub(super) struct Shares {
    hash: WordHash,
    index: Index,
    shares: Vec<Share>,
    /// Numbers of the unused shares. The vector never exceeds its first allocation.
    unused: Vec<u32>,
}

impl Shares {
    /// Returns a table for the keys of this number of datagrams.
    pub(super) fn new(datagrams: u32) -> Shares {
        Shares {
            hash: WordHash::new(),
            index: Index::new(datagrams),
            shares: vec![Share::UNUSED; datagrams as usize],
            unused: (0..datagrams).rev().collect(),
        }
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Share> {
        self.shares.get_mut(number as usize)
    }

    /// Returns the key of a share.
    pub(super) fn key(&self, number: u32) -> u32 {
        self.shares.get(number as usize).map_or(0, |share| share.key)
    }

    /// Returns the number of the share of a key.
    pub(super) fn find(&self, key: u32) -> Option<u32> {
        let is_key = |number: u32| self.shares.get(number as usize).is_some_and(|share| share.key == key);
        self.index.find(self.place(key), is_key)
    }

    /// Returns how much of a resource a key holds.
    pub(super) fn held(&self, key: u32, resource: Resource) -> u32 {
        let share = self.find(key).and_then(|number| self.shares.get(number as usize));
        share.map_or(0, |share| share.held(resource))
    }

    /// Returns the number of the share of a key, which the function adds if it is not in the table.
    ///
    /// # Errors
    /// Returns an error if the index has no slot.
    pub(super) fn add(&mut self, key: u32) -> Result<u32, Crowded> {
        if let Some(number) = self.find(key) {
            return Ok(number);
        }
        let number = *self.unused.last().ok_or(Crowded)?;
        self.index.insert(self.place(key), number)?;
        self.unused.pop();
        if let Some(share) = self.shares.get_mut(number as usize) {
            *share = Share { key, ..Share::UNUSED };
        }
        Ok(number)
    }

    /// Removes a share if it has no datagrams.
    pub(super) fn remove_empty(&mut self, number: u32) {
        let Some(share) = self.shares.get(number as usize).filter(|share| share.datagrams == 0) else {
            return;
        };
        self.index.remove(self.place(share.key), number);
        self.unused.push(number);
    }

    /// Returns the datagrams of the key that holds most of a resource. Among keys that hold equally much, `own` comes
    /// first, and then the key with the oldest datagram. `serial` returns the number of a datagram in the order of
    /// arrival. The function reads the whole table. Returns `None` if the table is empty.
    pub(super) fn largest(
        &self,
        resource: Resource,
        own: u32,
        serial: impl Fn(u32) -> Option<u64>,
    ) -> Option<List> {
        let used = self.shares.iter().filter(|share| share.datagrams > 0);
        let age = |share: &Share| Reverse(share.list.oldest().and_then(&serial));
        let largest = used.max_by(|a, b| {
            let rank = |share: &Share| (share.held(resource), share.key == own);
            rank(a).cmp(&rank(b)).then_with(|| age(a).cmp(&age(b)))
        });
        largest.map(|share| share.list)
    }

    fn place(&self, key: u32) -> Place {
        self.index.place(self.hash.of([u64::from(key)]))
    }
}
