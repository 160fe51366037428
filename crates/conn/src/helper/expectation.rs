//! Table of expected connections, which the helpers of other connections have announced.
//!
//! An [`Expectation`] names all fields of a tuple but the source port. The table has a fixed capacity and allocates
//! nothing after its creation. A full table refuses further expectations. A connection has at most
//! [`Limits::per_parent`] expectations, and its oldest expectation gives way to a new one. All expectations have one
//! time-out, so their order of creation is the order of their expiry. The table removes the oldest expired expectations
//! before it adds one. Times are in milliseconds and wrap after 2^32.
//!
//! The packets of an expected connection may belong to another worker than the packets of its parent. The caller adds
//! the expectation to the tables of all workers ([`Expectations::expect`]), and removes the expectations of a parent
//! from all tables ([`Expectations::remove_of`]).

use crate::entry::EntryId;
use crate::extension::Extension;
use crate::helper::chains::{Chains, NONE};
use crate::nat::spec::Nat;
use crate::timeout::LONGEST_TIMEOUT;
use crate::tuple::{Address, End, Side, Tuple, TupleHash};

/// Largest number of expired expectations that are removed before one is added.
const SWEPT: u32 = 16;

/// Connection that has announced another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Parent {
    /// Number of the worker that tracks the connection.
    pub worker: u32,
    /// Connection in the table of the worker.
    pub id: EntryId,
}

impl Parent {
    fn hash(self) -> u64 {
        u64::from(self.id.0).wrapping_add(u64::from(self.worker).wrapping_mul(0x9e37_79b9))
    }
}

/// Connection that is expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expectation<A> {
    /// Connection that has announced the expected one.
    pub parent: Parent,
    /// Zone of the connection.
    pub zone: u16,
    /// IP protocol number of the connection, TCP or UDP.
    pub protocol: u8,
    /// Source address of the first packet. The source port may have any value.
    pub source: A,
    /// Destination of the first packet.
    pub destination: End<A>,
    /// Mark and label that the connection inherits.
    pub extension: Extension,
    /// Translation that the connection inherits. `None`: the parent has no translation.
    pub nat: Option<Nat<A>>,
    /// Whether the first connection with the tuple ends the expectation. Otherwise, the expectation ends with its
    /// time-out.
    pub is_single_use: bool,
}

impl<A: Address> Expectation<A> {
    /// Returns the tuple with a source port of 0, and the side of the source.
    fn key(&self) -> (Tuple<A>, Side) {
        let source = End { address: self.source, port: 0 };
        Tuple::of_ends(self.zone, self.protocol, source, self.destination)
    }
}

/// Reason for which a connection is not expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum NotExpected {
    /// The table is full.
    Full,
    /// Another connection has announced a connection with the same tuple.
    Exists(Parent),
    /// Other connections use or expect all ports that were tried on the other side of NAT.
    NoPort,
}

impl std::fmt::Display for NotExpected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            NotExpected::Full => "the table of expected connections is full",
            NotExpected::Exists(_) => "another connection has announced a connection with the same tuple",
            NotExpected::NoPort => "no translated port is free for the expected connection",
        })
    }
}

impl std::error::Error for NotExpected {}

/// Limits of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest number of expectations, at least 1.
    pub expectations: u32,
    /// Largest number of expectations of a parent, at least 1.
    pub per_parent: u32,
    /// Time-out in milliseconds, from 1 to [`LONGEST_TIMEOUT`].
    pub timeout: u32,
}

impl Default for Limits {
    /// Returns limits of 4,096 expectations, 1 expectation of a parent, and 5 minutes. The helpers of Linux for FTP and
    /// TFTP have the same limit for a parent, and the same time-out. Open vSwitch has no such limits.
    fn default() -> Limits {
        Limits { expectations: 4096, per_parent: 1, timeout: 300_000 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot<A> {
    expectation: Expectation<A>,
    expires: u32,
    /// Next newer slot in the order of creation. For an unused slot: next unused slot.
    newer: u32,
    older: u32,
}

/// Table of expected connections.
#[derive(Debug)]
pub struct Expectations<A> {
    hash: TupleHash,
    limits: Limits,
    /// Slots that have been in use so far. The vector never exceeds its first allocation.
    slots: Vec<Slot<A>>,
    unused: u32,
    by_tuple: Chains,
    by_parent: Chains,
    oldest: u32,
    newest: u32,
    count: u32,
}

impl<A: Address> Expectations<A> {
    /// Returns an empty table.
    #[must_use]
    pub fn new(limits: Limits, hash: TupleHash) -> Expectations<A> {
        let Limits { expectations, per_parent, timeout } = limits;
        let expectations = expectations.clamp(1, NONE >> 1);
        let (per_parent, timeout) = (per_parent.max(1), timeout.clamp(1, LONGEST_TIMEOUT));
        Expectations {
            hash,
            limits: Limits { expectations, per_parent, timeout },
            slots: Vec::with_capacity(expectations as usize),
            unused: NONE,
            by_tuple: Chains::new(expectations),
            by_parent: Chains::new(expectations),
            oldest: NONE,
            newest: NONE,
            count: 0,
        }
    }

    /// Returns the limits of the table.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the number of expectations, including expired ones that the table has not removed yet.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Adds an expectation. A new expectation replaces an expectation of the same parent with the same tuple. `now` is
    /// the time in milliseconds.
    ///
    /// # Errors
    /// Returns the reason for which the connection is not expected. The table is unchanged then, apart from expired
    /// expectations.
    pub fn expect(&mut self, expectation: &Expectation<A>, now: u32) -> Result<(), NotExpected> {
        self.sweep(now, SWEPT);
        let parent = expectation.parent;
        let known = self.search(&expectation.key());
        if let Some(slot) = known {
            if let Some(other) = self.live(slot, now).filter(|other| other.parent != parent) {
                return Err(NotExpected::Exists(other.parent));
            }
            self.remove_slot(slot);
        }
        let (mut siblings, mut oldest) = (0, None);
        for slot in self.by_parent.slots(parent.hash()) {
            let is_sibling = self.live(slot, now).is_some_and(|other| other.parent == parent);
            siblings += u32::from(is_sibling);
            // A list begins with its newest slot.
            oldest = if is_sibling { Some(slot) } else { oldest };
        }
        if let Some(oldest) = oldest.filter(|_| siblings >= self.limits.per_parent) {
            self.remove_slot(oldest);
        } else if self.count >= self.limits.expectations {
            return Err(NotExpected::Full);
        }
        self.insert(expectation, now.wrapping_add(self.limits.timeout));
        Ok(())
    }

    /// Returns the expectation of the connection that a packet opens. `source` is the side of the packet's source in
    /// its tuple. `now` is the time in milliseconds.
    #[must_use]
    pub fn find(&self, tuple: &Tuple<A>, source: Side, now: u32) -> Option<&Expectation<A>> {
        if self.count == 0 {
            return None;
        }
        let from = End { port: 0, ..tuple.end(source) };
        let key = Tuple::of_ends(tuple.zone, tuple.protocol, from, tuple.end(source.opposite()));
        self.live(self.search(&key)?, now)
    }

    /// Returns the expectations that have not expired, the oldest first. `now` is the time in milliseconds.
    pub fn iter(&self, now: u32) -> impl Iterator<Item = &Expectation<A>> {
        let slots = std::iter::successors(self.get(self.oldest), |slot| self.get(slot.newer));
        slots.filter(move |slot| slot.is_live(now)).map(|slot| &slot.expectation)
    }

    /// Removes an expectation. Returns whether the table had this expectation.
    pub fn remove(&mut self, expectation: &Expectation<A>) -> bool {
        let slot = self.search(&expectation.key());
        let slot = slot.filter(|slot| self.get(*slot).is_some_and(|slot| slot.expectation == *expectation));
        if let Some(slot) = slot {
            self.remove_slot(slot);
        }
        slot.is_some()
    }

    /// Removes the expectations of a parent, and returns their number.
    pub fn remove_of(&mut self, parent: Parent) -> u32 {
        let mut removed = 0;
        loop {
            let is_child = |slot: &u32| self.get(*slot).is_some_and(|slot| slot.expectation.parent == parent);
            let Some(slot) = self.by_parent.slots(parent.hash()).find(is_child) else { return removed };
            self.remove_slot(slot);
            removed += 1;
        }
    }

    /// Removes the oldest expectations that have expired, at most this number, and returns the number of removed
    /// expectations. `now` is the time in milliseconds.
    pub fn sweep(&mut self, now: u32, most: u32) -> u32 {
        let mut removed = 0;
        while removed < most && self.get(self.oldest).is_some_and(|slot| !slot.is_live(now)) {
            self.remove_slot(self.oldest);
            removed += 1;
        }
        removed
    }

    fn get(&self, slot: u32) -> Option<&Slot<A>> {
        self.slots.get(slot as usize)
    }

    /// Returns the expectation of a slot if it has not expired.
    fn live(&self, slot: u32, now: u32) -> Option<&Expectation<A>> {
        self.get(slot).filter(|slot| slot.is_live(now)).map(|slot| &slot.expectation)
    }

    /// Returns the slot with a tuple whose source port is 0, and with the side of the source.
    fn search(&self, key: &(Tuple<A>, Side)) -> Option<u32> {
        let has_key = |slot: &u32| self.get(*slot).is_some_and(|slot| slot.expectation.key() == *key);
        self.by_tuple.slots(self.hash_of(&key.0)).find(has_key)
    }

    /// Returns the hash of a tuple. The lower bits of the hash of [`TupleHash`] select the worker.
    fn hash_of(&self, tuple: &Tuple<A>) -> u64 {
        self.hash.of(tuple) >> 32
    }

    fn insert(&mut self, expectation: &Expectation<A>, expires: u32) {
        let slot = Slot { expectation: *expectation, expires, newer: NONE, older: self.newest };
        let number = match self.slots.get_mut(self.unused as usize) {
            Some(place) => {
                let next = place.newer;
                *place = slot;
                std::mem::replace(&mut self.unused, next)
            }
            None => {
                self.slots.push(slot);
                u32::try_from(self.slots.len() - 1).unwrap_or(NONE)
            }
        };
        match self.slots.get_mut(self.newest as usize) {
            Some(newest) => newest.newer = number,
            None => self.oldest = number,
        }
        self.newest = number;
        self.by_tuple.insert(self.hash_of(&expectation.key().0), number);
        self.by_parent.insert(expectation.parent.hash(), number);
        self.count += 1;
    }

    fn remove_slot(&mut self, number: u32) {
        let Some(&Slot { expectation, newer, older, .. }) = self.get(number) else { return };
        self.by_tuple.remove(self.hash_of(&expectation.key().0), number);
        self.by_parent.remove(expectation.parent.hash(), number);
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
        if let Some(slot) = self.slots.get_mut(number as usize) {
            slot.newer = std::mem::replace(&mut self.unused, number);
        }
        self.count -= 1;
    }
}

impl<A> Slot<A> {
    /// Returns whether the expectation has not expired. An expectation expires exactly at its time of expiry.
    fn is_live(&self, now: u32) -> bool {
        // The difference is negative as a signed number.
        now.wrapping_sub(self.expires) >> 31 != 0
    }
}
