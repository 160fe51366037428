//! Rules as tables hold them, and the slab that they stand in. Rules of the same table and cookie are chained, so that they are counted and
//! found without a look at all others.

use std::collections::HashMap;

use super::message::{FlowFlags, FlowStats};
use super::{Action, Conjunction, Instructions, Match};

/// A rule's place; the generation tells whether the rule that stands there is still the one that was meant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RuleRef {
    index: u32,
    generation: u32,
}

/// A rule.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    /// Its table.
    pub table: u8,
    /// Its priority.
    pub priority: u16,
    /// What it matches.
    pub matching: Match,
    /// Its cookie.
    pub cookie: u64,
    /// Seconds of silence after which it goes.
    pub idle_timeout: u16,
    /// Seconds of life.
    pub hard_timeout: u16,
    /// Its importance.
    pub importance: u16,
    /// Its flags.
    pub flags: FlowFlags,
    /// What it does.
    pub instructions: Instructions,
    /// When it was added, in nanoseconds.
    pub created_ns: u64,
    /// When it was added or changed.
    pub modified_ns: u64,
    /// When a packet last met it.
    pub used_ns: u64,
    /// Packets.
    pub packets: u64,
    /// Octets.
    pub bytes: u64,
}

impl Rule {
    /// Octets of memory that the rule takes with its actions, its place in the classifier and a chain of its own, about.
    #[must_use]
    pub fn memory(&self) -> usize {
        let chain = size_of::<(ChainKey, Chain)>();
        size_of::<Rule>() + size_of::<Place>() + chain + size_of::<super::Flow>() + self.instructions.memory()
    }

    /// Whether it is only parts of conjunctive matches.
    #[must_use]
    pub fn is_conjunctive(&self) -> bool {
        matches!(self.instructions.apply.first(), Some(Action::Conjunction(_)))
    }

    /// The conjunctions that it is part of.
    pub fn conjunctions(&self) -> impl Iterator<Item = Conjunction> {
        self.instructions.apply.iter().filter_map(|action| match action {
            Action::Conjunction(part) => Some(*part),
            _ => None,
        })
    }

    /// What controllers are told.
    #[must_use]
    pub fn stats(&self, now_ns: u64) -> FlowStats {
        FlowStats {
            table: self.table,
            matching: self.matching,
            priority: self.priority,
            cookie: self.cookie,
            age_ns: now_ns.saturating_sub(self.created_ns),
            unchanged_ns: now_ns.saturating_sub(self.modified_ns),
            idle_ns: now_ns.saturating_sub(self.used_ns),
            idle_timeout: self.idle_timeout,
            hard_timeout: self.hard_timeout,
            importance: self.importance,
            flags: self.flags,
            packets: self.packets,
            bytes: self.bytes,
            instructions: self.instructions.clone(),
        }
    }
}

/// No place.
const NONE: u32 = u32::MAX;

/// Where a rule stands, or may stand.
#[derive(Clone, Debug)]
struct Place {
    generation: u32,
    /// The neighbours in the chain of the rule's table and cookie.
    before: u32,
    after: u32,
    /// The version of the tables at which its rule last came, changed or went.
    changed: u64,
    rule: Option<Box<Rule>>,
    /// Whether it stands among the free places.
    is_listed: bool,
}

impl Default for Place {
    fn default() -> Place {
        Place { generation: 0, before: NONE, after: NONE, changed: 0, rule: None, is_listed: false }
    }
}

/// Table and cookie.
type ChainKey = (u8, u64);

/// The rules of a table and cookie.
#[derive(Clone, Copy, Debug)]
struct Chain {
    /// The place of the rule that came last.
    first: u32,
    count: u32,
}

/// Rules by place.
#[derive(Clone, Default, Debug)]
pub(crate) struct Rules {
    places: Vec<Place>,
    /// Free places, each once. One to which a rule was put back stands here still, and is passed over.
    free: Vec<u32>,
    count: usize,
    chains: HashMap<ChainKey, Chain>,
}

impl Rules {
    pub fn insert(&mut self, rule: Rule) -> RuleRef {
        let index = self.take_free().unwrap_or_else(|| {
            self.places.push(Place::default());
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        let key = (rule.table, rule.cookie);
        let place = &mut self.places[index as usize];
        place.rule = Some(Box::new(rule));
        let generation = place.generation;
        self.count += 1;
        self.chain(key, index);
        RuleRef { index, generation }
    }

    fn take_free(&mut self) -> Option<u32> {
        while let Some(index) = self.free.pop() {
            let place = &mut self.places[index as usize];
            place.is_listed = false;
            if place.rule.is_none() {
                return Some(index);
            }
        }
        None
    }

    pub fn remove(&mut self, at: RuleRef) -> Option<Rule> {
        let place = self.places.get_mut(at.index as usize)?;
        if place.generation != at.generation {
            return None;
        }
        let rule = place.rule.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.count -= 1;
        if !std::mem::replace(&mut place.is_listed, true) {
            self.free.push(at.index);
        }
        self.unchain((rule.table, rule.cookie), at.index);
        Some(*rule)
    }

    /// Puts a rule back where it stood, with the name that it had: nothing else has come there since.
    pub fn restore(&mut self, at: RuleRef, rule: Rule) {
        if let Some(place) = self.places.get_mut(at.index as usize) {
            let key = (rule.table, rule.cookie);
            self.count += usize::from(place.rule.is_none());
            (place.generation, place.rule) = (at.generation, Some(Box::new(rule)));
            self.chain(key, at.index);
        }
    }

    /// Gives a rule another cookie.
    pub fn set_cookie(&mut self, at: RuleRef, cookie: u64) {
        let Some(rule) = self.get_mut(at) else { return };
        let (table, old) = (rule.table, std::mem::replace(&mut rule.cookie, cookie));
        if old != cookie {
            self.unchain((table, old), at.index);
            self.chain((table, cookie), at.index);
        }
    }

    fn chain(&mut self, key: ChainKey, index: u32) {
        let chain = self.chains.entry(key).or_insert(Chain { first: NONE, count: 0 });
        let after = std::mem::replace(&mut chain.first, index);
        chain.count += 1;
        if let Some(next) = self.places.get_mut(after as usize) {
            next.before = index;
        }
        let place = &mut self.places[index as usize];
        (place.before, place.after) = (NONE, after);
    }

    fn unchain(&mut self, key: ChainKey, index: u32) {
        let Place { before, after, .. } = self.places[index as usize];
        if let Some(next) = self.places.get_mut(after as usize) {
            next.before = before;
        }
        if let Some(previous) = self.places.get_mut(before as usize) {
            previous.after = after;
        }
        let Some(chain) = self.chains.get_mut(&key) else { return };
        chain.count -= 1;
        if before == NONE {
            chain.first = after;
        }
        if chain.count == 0 {
            self.chains.remove(&key);
        }
    }

    /// How many rules of a table have a cookie.
    pub fn count_of(&self, table: u8, cookie: u64) -> usize {
        self.chains.get(&(table, cookie)).map_or(0, |chain| chain.count as usize)
    }

    /// The rules of a table that have a cookie, in no order.
    pub fn with_cookie(&self, table: u8, cookie: u64) -> impl Iterator<Item = (RuleRef, &Rule)> {
        let mut next = self.chains.get(&(table, cookie)).map_or(NONE, |chain| chain.first);
        std::iter::from_fn(move || {
            let (index, place) = (next, self.places.get(next as usize)?);
            next = place.after;
            Some((RuleRef { index, generation: place.generation }, place.rule.as_deref()?))
        })
    }

    pub fn get(&self, at: RuleRef) -> Option<&Rule> {
        let place = self.places.get(at.index as usize)?;
        place.rule.as_deref().filter(|_| place.generation == at.generation)
    }

    pub fn get_mut(&mut self, at: RuleRef) -> Option<&mut Rule> {
        let place = self.places.get_mut(at.index as usize)?;
        place.rule.as_deref_mut().filter(|_| place.generation == at.generation)
    }

    /// Notes that the rule of this place, which may be gone, is another since this version.
    pub fn mark(&mut self, at: RuleRef, version: u64) {
        if let Some(place) = self.places.get_mut(at.index as usize) {
            place.changed = version;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (RuleRef, &Rule)> {
        (0..).zip(&self.places).filter_map(|(index, place)| {
            Some((RuleRef { index, generation: place.generation }, place.rule.as_deref()?))
        })
    }

    /// So many places from one on: the rule that stands there, and the version at which it came to.
    pub fn places(&self, from: usize, count: usize) -> impl Iterator<Item = (Option<&Rule>, u64)> {
        self.places.iter().skip(from).take(count).map(|place| (place.rule.as_deref(), place.changed))
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// Number of places, which a walk over all rules looks at.
    pub fn place_count(&self) -> usize {
        self.places.len()
    }
}
