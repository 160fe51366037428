//! Flow entries ([`Rule`]) and the array of slots that holds them (slab). The rules with equal table and cookie are
//! linked in a chain, so that they are counted and found without a scan.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use super::message::{ALL_TABLES, FlowFlags, FlowStats};
use super::{Action, Conjunction, Instructions, Match};

/// The identifier of a rule: the index of its slot in the slab, and the generation of the slot. The generation is
/// incremented when the slot's rule is removed, so that old identifiers do not refer to a later rule in the slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RuleRef {
    index: u32,
    generation: u32,
}

/// A flow entry of an OpenFlow table.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    /// Table of the flow entry.
    pub table: u8,
    /// Priority of the flow entry.
    pub priority: u16,
    /// Match of the flow entry.
    pub matching: Match,
    /// Cookie of the flow entry.
    pub cookie: u64,
    /// Idle time-out of the flow entry, in seconds. 0 means none.
    pub idle_timeout: u16,
    /// Hard time-out of the flow entry, in seconds. 0 means none.
    pub hard_timeout: u16,
    /// Importance of the flow entry. A full table evicts flow entries of lower importance first.
    pub importance: u16,
    /// Flags of the flow entry.
    pub flags: FlowFlags,
    /// Instructions of the flow entry.
    pub instructions: Instructions,
    /// Time at which the flow entry was added, in nanoseconds.
    pub created_ns: u64,
    /// Time at which the flow entry was added or last changed, in nanoseconds.
    pub modified_ns: u64,
    /// Time at which a packet last matched the flow entry, in nanoseconds.
    pub used_ns: u64,
    /// Number of packets that matched the flow entry.
    pub packets: u64,
    /// Number of octets of the packets that matched the flow entry.
    pub bytes: u64,
}

impl Rule {
    /// Returns the number of octets that the rule counts towards the memory limit of rules. The
    /// number is approximately the memory in use: the rule, its actions, its classifier entry, and
    /// a chain that holds only this rule. A reference count of learned flow entries counts as 4
    /// KiB, which is more than its true size.
    #[must_use]
    pub fn memory(&self) -> usize {
        let chain = size_of::<(ChainKey, u64)>() + size_of::<(u64, TableSet)>() + size_of::<(u64, Chain)>();
        let own = size_of::<Rule>() + size_of::<Place>() + chain + size_of::<super::Flow>();
        own + self.instructions.charged_memory()
    }

    /// Returns whether the rule is part of conjunctive matches, because its actions are `conjunction` actions.
    #[must_use]
    pub fn is_conjunctive(&self) -> bool {
        matches!(self.instructions.apply.first(), Some(Action::Conjunction(_)))
    }

    /// Returns the conjunctions that the rule is part of.
    pub fn conjunctions(&self) -> impl Iterator<Item = Conjunction> {
        self.instructions.apply.iter().filter_map(|action| match action {
            Action::Conjunction(part) => Some(*part),
            _ => None,
        })
    }

    /// Returns the flow entry and its counters as reported to controllers.
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

/// Slot number that means no slot.
const NONE: u32 = u32::MAX;

/// A slot of the slab, which holds a rule or is free.
#[derive(Clone, Debug)]
struct Place {
    generation: u32,
    /// Slot of the preceding rule in the chain to which this slot's rule belongs. `after` is the slot of the following
    /// rule.
    before: u32,
    after: u32,
    /// Identifier of the chain of the slot's rule. For a free slot, the value is the identifier of
    /// the chain of the removed rule.
    chain: u64,
    /// Version of the tables at which the slot's rule was last added, changed or removed.
    changed: u64,
    rule: Option<Box<Rule>>,
    /// Work of visiting the actions of the slot's rule ([`Instructions::work`]). The unit is the work of visiting one
    /// rule. The value is 0 for a free slot.
    work: usize,
    /// Whether the slot is in the free list.
    is_listed: bool,
}

impl Default for Place {
    fn default() -> Place {
        Place {
            generation: 0,
            before: NONE,
            after: NONE,
            chain: 0,
            changed: 0,
            rule: None,
            work: 0,
            is_listed: false,
        }
    }
}

/// Number of recent changes of slots that the slab records. If more slots have changed, only a scan over all slots
/// finds them.
const MARKS: usize = 1 << 14;

/// Table and cookie of the rules in a chain.
type ChainKey = (u8, u64);

/// A linked list of the rules that have the same table and cookie.
#[derive(Clone, Copy, Debug)]
struct Chain {
    /// Slot of the rule that was added to the chain last.
    first: u32,
    count: u32,
    /// Total work of visiting the actions of all rules in the chain. The unit is the work of visiting one rule.
    work: usize,
    /// Table and cookie of the chain's rules. The value is `None` if the chain is doomed, that is,
    /// if its rules are about to be removed.
    key: Option<ChainKey>,
}

/// A set of table numbers, one bit for each table.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct TableSet([u64; 4]);

impl TableSet {
    fn insert(&mut self, table: u8) {
        self.0[usize::from(table) / 64] |= 1 << (table % 64);
    }

    fn remove(&mut self, table: u8) {
        self.0[usize::from(table) / 64] &= !(1 << (table % 64));
    }

    /// Returns the tables of the set in ascending order.
    fn iter(self) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(move |table| self.0[usize::from(*table) / 64] >> (table % 64) & 1 == 1)
    }
}

/// The slab that holds all rules of a bridge.
#[derive(Clone, Default, Debug)]
pub(crate) struct Rules {
    places: Vec<Place>,
    /// Numbers of free slots, each listed once. If a rule was restored to a listed slot, the slot is skipped.
    free: Vec<u32>,
    count: usize,
    /// Total work of visiting the actions of all rules. The unit is the work of visiting one rule. `table_work` holds
    /// the total for each table.
    work: usize,
    table_work: HashMap<u8, usize>,
    /// For each table and cookie, the identifier of the chain to which new rules are added.
    names: HashMap<ChainKey, u64>,
    /// For each cookie, the tables that have a chain with the cookie.
    cookie_tables: HashMap<u64, TableSet>,
    chains: HashMap<u64, Chain>,
    last_chain: u64,
    /// Identifiers of doomed chains (whose rules are about to be removed), in the order of removal.
    doomed: VecDeque<u64>,
    /// The last [`MARKS`] changes of slots: the version of the tables after the change, and the slot.
    marks: VecDeque<(u64, u32)>,
    /// Version of the last change that is no longer recorded in `marks`.
    forgotten: u64,
}

impl Rules {
    pub fn insert(&mut self, rule: Rule) -> RuleRef {
        let index = self.take_free().unwrap_or_else(|| {
            self.places.push(Place::default());
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        let key = (rule.table, rule.cookie);
        let work = rule.instructions.work();
        let place = &mut self.places[index as usize];
        (place.rule, place.work) = (Some(Box::new(rule)), work);
        let generation = place.generation;
        self.count += 1;
        self.add_work(key.0, work);
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
        self.unchain(at.index);
        let work = std::mem::take(&mut self.places[at.index as usize].work);
        self.subtract_work(rule.table, work);
        Some(*rule)
    }

    /// Returns the identifier of the chain of a rule that was just removed, if the chain is doomed, that is, if its
    /// rules are about to be removed. Returns `None` otherwise. No other rule may have been added since the removal.
    pub fn doomed_chain(&self, at: RuleRef) -> Option<u64> {
        let number = self.places.get(at.index as usize)?.chain;
        self.chains.get(&number).is_some_and(|chain| chain.key.is_none()).then_some(number)
    }

    /// Restores a removed rule to its slot with its previous generation. The slot must be free.
    /// `doomed` is the value that [`Rules::doomed_chain`] returned after the removal. If `doomed`
    /// names a chain, the rule is doomed again.
    pub fn restore(&mut self, at: RuleRef, rule: Rule, doomed: Option<u64>) {
        if let Some(place) = self.places.get_mut(at.index as usize) {
            let key = (rule.table, rule.cookie);
            self.count += usize::from(place.rule.is_none());
            let work = rule.instructions.work();
            (place.generation, place.rule, place.work) = (at.generation, Some(Box::new(rule)), work);
            self.add_work(key.0, work);
            match doomed {
                Some(number) => self.chain_to(number, at.index),
                None => self.chain(key, at.index),
            }
        }
    }

    /// Changes the cookie of a rule and moves the rule to the chain of the new cookie. A rule that is about to be
    /// removed (doomed) stays in its chain, because its cookie no longer matters.
    pub fn set_cookie(&mut self, at: RuleRef, cookie: u64) {
        let is_doomed = self.is_doomed(at);
        let Some(rule) = self.get_mut(at) else { return };
        let (table, old) = (rule.table, std::mem::replace(&mut rule.cookie, cookie));
        if old != cookie && !is_doomed {
            self.unchain(at.index);
            self.chain((table, cookie), at.index);
        }
    }

    /// Updates the stored work of visiting a rule's actions after a change of the rule's instructions.
    pub fn update_work(&mut self, at: RuleRef) {
        let Some(rule) = self.get(at) else { return };
        let (table, work) = (rule.table, rule.instructions.work());
        let place = &mut self.places[at.index as usize];
        let before = std::mem::replace(&mut place.work, work);
        if let Some(chain) = self.chains.get_mut(&place.chain) {
            chain.work = chain.work + work - before;
        }
        self.subtract_work(table, before);
        self.add_work(table, work);
    }

    fn add_work(&mut self, table: u8, work: usize) {
        self.work += work;
        *self.table_work.entry(table).or_default() += work;
    }

    fn subtract_work(&mut self, table: u8, work: usize) {
        self.work -= work;
        if let Some(sum) = self.table_work.get_mut(&table) {
            *sum -= work;
        }
    }

    fn chain(&mut self, key: ChainKey, index: u32) {
        let number = *self.names.entry(key).or_insert_with(|| {
            self.last_chain += 1;
            self.chains.insert(self.last_chain, Chain { first: NONE, count: 0, work: 0, key: Some(key) });
            self.cookie_tables.entry(key.1).or_default().insert(key.0);
            self.last_chain
        });
        self.chain_to(number, index);
    }

    fn chain_to(&mut self, number: u64, index: u32) {
        let Some(chain) = self.chains.get_mut(&number) else { return };
        let after = std::mem::replace(&mut chain.first, index);
        chain.count += 1;
        chain.work += self.places[index as usize].work;
        if let Some(next) = self.places.get_mut(after as usize) {
            next.before = index;
        }
        let place = &mut self.places[index as usize];
        (place.before, place.after, place.chain) = (NONE, after, number);
    }

    fn unchain(&mut self, index: u32) {
        let Place { before, after, chain: number, work, .. } = self.places[index as usize];
        if let Some(next) = self.places.get_mut(after as usize) {
            next.before = before;
        }
        if let Some(previous) = self.places.get_mut(before as usize) {
            previous.after = after;
        }
        let Some(chain) = self.chains.get_mut(&number) else { return };
        chain.count -= 1;
        chain.work -= work;
        if before == NONE {
            chain.first = after;
        }
        // A doomed chain is kept until it is removed in its order, because the reversal of a batch may restore rules to
        // the chain.
        if chain.count == 0
            && let Some(key) = chain.key
        {
            self.remove_name(key);
            self.chains.remove(&number);
        }
    }

    /// Removes the entry that maps a table and cookie to the chain of their rules. Returns the chain's identifier, or
    /// `None` if there is no such chain.
    fn remove_name(&mut self, key: ChainKey) -> Option<u64> {
        let number = self.names.remove(&key)?;
        if let Entry::Occupied(mut tables) = self.cookie_tables.entry(key.1) {
            tables.get_mut().remove(key.0);
            if *tables.get() == TableSet::default() {
                tables.remove();
            }
        }
        Some(number)
    }

    /// Marks the rules of a table with a cookie as doomed, that is, about to be removed. Lookups by
    /// cookie no longer find these rules.
    pub fn doom(&mut self, table: u8, cookie: u64) {
        let Some(number) = self.remove_name((table, cookie)) else { return };
        if let Some(chain) = self.chains.get_mut(&number) {
            chain.key = None;
            self.doomed.push_back(number);
        }
    }

    /// Returns the next doomed rules in the order of removal. The list ends after `most` rules, or
    /// when the work of visiting the actions of its rules has reached `work`. The call also removes
    /// doomed chains without rules from the front of the list.
    pub fn next_doomed(&mut self, most: usize, work: usize) -> Vec<RuleRef> {
        while let Some(number) = self.doomed.front() {
            if self.chains.get(number).is_some_and(|chain| chain.count > 0) {
                break;
            }
            self.chains.remove(number);
            self.doomed.pop_front();
        }
        let chains = self.doomed.iter().filter_map(|number| self.chains.get(number));
        let mut done = 0;
        let is_in = |at: &RuleRef| {
            let is_in = done < work;
            done += self.work_at(*at);
            is_in
        };
        let rules = chains.flat_map(|chain| self.rules_from(chain.first)).map(|(at, _)| at);
        rules.take(most).take_while(is_in).collect()
    }

    /// Returns whether there are doomed chains, that is, chains whose rules are about to be removed.
    pub fn has_doomed(&self) -> bool {
        !self.doomed.is_empty()
    }

    /// Returns whether a rule is doomed, that is, about to be removed.
    pub fn is_doomed(&self, at: RuleRef) -> bool {
        let number = self.places.get(at.index as usize).map(|place| place.chain);
        number.and_then(|number| self.chains.get(&number)).is_some_and(|chain| chain.key.is_none())
    }

    /// Returns the number of rules in a table with this cookie. Doomed rules are not counted.
    pub fn count_of(&self, table: u8, cookie: u64) -> usize {
        self.chain_of(table, cookie).map_or(0, |chain| chain.count as usize)
    }

    /// Returns the work of visiting the actions of all rules once. The unit is the work of visiting one rule.
    pub fn work(&self) -> usize {
        self.work
    }

    /// Returns the work of visiting the actions of all rules of a table once. The unit is the work of visiting one
    /// rule.
    pub fn work_of_table(&self, table: u8) -> usize {
        self.table_work.get(&table).copied().unwrap_or(0)
    }

    /// Returns the work of visiting the actions of the rules with this table and cookie once. The unit is the work of
    /// visiting one rule. Doomed rules are not counted.
    pub fn work_of_cookie(&self, table: u8, cookie: u64) -> usize {
        self.chain_of(table, cookie).map_or(0, |chain| chain.work)
    }

    /// Returns the work of visiting the actions of a rule once. The unit is the work of visiting one rule. The work is
    /// 0 if the rule was removed.
    pub fn work_at(&self, at: RuleRef) -> usize {
        let place = self.places.get(at.index as usize).filter(|place| place.generation == at.generation);
        place.map_or(0, |place| place.work)
    }

    /// Returns the work of visiting the actions of the rule in a slot once. The unit is the work of visiting one rule.
    /// The work is 0 for a free slot.
    pub fn work_in(&self, place: usize) -> usize {
        self.places.get(place).map_or(0, |place| place.work)
    }

    /// Returns the index after the last slot of one step of a scan. The step begins at the slot `from`, and has at most
    /// `count` slots. The step ends with the slot at which the work of visiting the rules' actions reaches `most`. The
    /// unit is the work of visiting one rule.
    pub fn end_of_step(&self, from: usize, count: usize, most: usize) -> usize {
        let mut work = 0;
        let is_in = |place: &&Place| {
            let is_in = work < most;
            work += place.work;
            is_in
        };
        from + self.places.iter().skip(from).take(count).take_while(is_in).count()
    }

    /// Returns the tables that have rules with this cookie, among the tables that `table` selects (one table, or all
    /// tables). Doomed rules are not considered.
    pub fn tables_with(&self, table: u8, cookie: u64) -> impl Iterator<Item = u8> {
        let tables = self.cookie_tables.get(&cookie).copied().unwrap_or_default();
        let all = (table == ALL_TABLES).then(|| tables.iter()).into_iter().flatten();
        let single = (table != ALL_TABLES && self.names.contains_key(&(table, cookie))).then_some(table);
        all.chain(single)
    }

    fn chain_of(&self, table: u8, cookie: u64) -> Option<&Chain> {
        self.chains.get(self.names.get(&(table, cookie))?)
    }

    /// Returns the rules with this table and cookie in no particular order, without doomed rules.
    pub fn with_cookie(&self, table: u8, cookie: u64) -> impl Iterator<Item = (RuleRef, &Rule)> {
        self.rules_from(self.chain_of(table, cookie).map_or(NONE, |chain| chain.first))
    }

    /// Returns the rules of a chain, beginning with the rule in the slot `first`.
    fn rules_from(&self, first: u32) -> impl Iterator<Item = (RuleRef, &Rule)> {
        let mut next = first;
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

    /// Records that the rule in a slot was added, changed or removed, with the version of the tables after the change.
    pub fn mark(&mut self, at: RuleRef, version: u64) {
        if let Some(place) = self.places.get_mut(at.index as usize) {
            place.changed = version;
            if self.marks.len() == MARKS {
                self.forgotten = self.marks.pop_front().map_or(self.forgotten, |(version, _)| version);
            }
            self.marks.push_back((version, at.index));
        }
    }

    /// Returns, in ascending order, the numbers of the slots that changed since a version of the tables. Returns `None`
    /// if too many slots have changed, so that only a scan can find them.
    pub fn changed_since(&self, version: u64) -> Option<Vec<usize>> {
        if self.forgotten > version {
            return None;
        }
        let changes = self.marks.iter().rev().take_while(|(changed, _)| *changed > version);
        let mut places: Vec<usize> = changes.map(|(_, index)| *index as usize).collect();
        places.sort_unstable();
        places.dedup();
        Some(places)
    }

    pub fn iter(&self) -> impl Iterator<Item = (RuleRef, &Rule)> {
        (0..).zip(&self.places).filter_map(|(index, place)| {
            Some((RuleRef { index, generation: place.generation }, place.rule.as_deref()?))
        })
    }

    /// Returns the rules of `count` slots, beginning with the slot `from`. An item is `None` if its slot is empty.
    pub fn walk(&self, from: usize, count: usize) -> impl Iterator<Item = Option<(RuleRef, &Rule)>> {
        let places = self.places.iter().skip(from).take(count);
        (u32::try_from(from).unwrap_or(u32::MAX)..).zip(places).map(|(index, place)| {
            Some((RuleRef { index, generation: place.generation }, place.rule.as_deref()?))
        })
    }

    /// Returns the rules of `count` slots, beginning with the slot `from`, each with the version of the slot's last
    /// change. A rule is `None` if its slot is empty.
    pub fn places(&self, from: usize, count: usize) -> impl Iterator<Item = (Option<&Rule>, u64)> {
        self.places.iter().skip(from).take(count).map(|place| (place.rule.as_deref(), place.changed))
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns the number of slots of the slab, occupied or free. A scan over all rules visits all these slots.
    pub fn place_count(&self) -> usize {
        self.places.len()
    }
}
