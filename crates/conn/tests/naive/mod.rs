//! Naive connection table: a map of tuples, and a queue of the embryonic ones.

use std::collections::{HashMap, VecDeque};

use conn::table::Sizes;
use conn::tuple::{Address, Side, Tuple};

/// One connection of the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    pub originator: Side,
    /// Time in milliseconds, which does not wrap.
    pub expires: u64,
    pub is_embryonic: bool,
}

/// Reason for which the model refuses a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    Exists,
    ZoneFull,
    TableFull,
}

pub struct Model<A> {
    pub sizes: Sizes,
    pub connections: HashMap<Tuple<A>, Known>,
    /// Embryonic connections, the oldest first.
    pub embryonic: VecDeque<Tuple<A>>,
    pub limits: HashMap<u16, u32>,
}

impl<A: Address> Model<A> {
    pub fn new(sizes: Sizes) -> Model<A> {
        Model { sizes, connections: HashMap::new(), embryonic: VecDeque::new(), limits: HashMap::new() }
    }

    pub fn find(&self, tuple: &Tuple<A>, now: u64) -> Option<Known> {
        self.connections.get(tuple).copied().filter(|known| known.expires > now)
    }

    pub fn count(&self, zone: u16) -> usize {
        self.connections.keys().filter(|tuple| tuple.zone == zone).count()
    }

    pub fn insert(
        &mut self,
        tuple: Tuple<A>,
        originator: Side,
        now: u64,
        expires: u64,
    ) -> Result<(), Refused> {
        if self.find(&tuple, now).is_some() {
            return Err(Refused::Exists);
        }
        self.remove(&tuple);
        let (limit, count) = (self.limits.get(&tuple.zone), self.count(tuple.zone));
        let limit = limit.map_or(usize::MAX, |limit| *limit as usize);
        let is_full = self.connections.len() >= self.sizes.entries as usize;
        let displaced = if count > limit {
            return Err(Refused::ZoneFull);
        } else if count == limit {
            let mut oldest = self.embryonic.iter();
            Some(*oldest.find(|other| other.zone == tuple.zone).ok_or(Refused::ZoneFull)?)
        } else if is_full || self.embryonic.len() >= self.sizes.embryonic as usize {
            Some(*self.embryonic.front().ok_or(Refused::TableFull)?)
        } else {
            None
        };
        if let Some(displaced) = displaced {
            self.remove(&displaced);
        }
        self.connections.insert(tuple, Known { originator, expires, is_embryonic: true });
        self.embryonic.push_back(tuple);
        Ok(())
    }

    pub fn establish(&mut self, tuple: &Tuple<A>) {
        if let Some(known) = self.connections.get_mut(tuple) {
            known.is_embryonic = false;
            self.embryonic.retain(|other| other != tuple);
        }
    }

    pub fn remove(&mut self, tuple: &Tuple<A>) {
        self.connections.remove(tuple);
        self.embryonic.retain(|other| other != tuple);
    }

    /// Removes the connections for which `keep` returns false, and returns their number.
    pub fn retain(&mut self, keep: impl Fn(&Tuple<A>, &Known) -> bool) -> usize {
        let before = self.connections.len();
        self.connections.retain(|tuple, known| keep(tuple, known));
        self.embryonic.retain(|tuple| self.connections.contains_key(tuple));
        before - self.connections.len()
    }
}
