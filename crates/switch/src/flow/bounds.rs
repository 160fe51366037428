//! Enforcement of the limits of flow tables ([`TableBounds`], [`TableWishes`]): eviction from a full table, and
//! vacancy events for controllers.

use std::collections::{BinaryHeap, HashMap};

use super::message::{Event, Miss, Removed, TableState};
use super::pipeline::{MAX_RULES, Pipeline, Table, Touched};
use super::rule::{Rule, RuleRef};
use super::table_bounds::{Bounds, TableBounds, TableWishes, is_evictable};
use super::{Flow, Match, SubField, packet_meets};

impl Table {
    /// Returns the maximum number of flow entries of the table.
    pub fn limit(&self) -> u32 {
        self.bounds.configured.limit.unwrap_or(MAX_RULES)
    }

    /// Returns whether the table evicts flow entries when it is full.
    pub fn evicts(&self) -> bool {
        self.bounds.configured.evicts || self.bounds.wished.evicts
    }

    /// Returns the free space of the table, in percent of its limit (OpenFlow 1.5.1, 7.3.4.1).
    fn vacancy(&self) -> u8 {
        let limit = u64::from(self.limit());
        let free = limit.saturating_sub(self.classifier.len() as u64);
        u8::try_from(free * 100 / limit.max(1)).unwrap_or(100)
    }
}

/// Sort key for eviction: the importance, then the expiry time in nanoseconds (OpenFlow 1.5.1, 6.5). The rule
/// with the lowest key is evicted first.
type Rank = (u16, u64);

/// Values of the fields by which flow entries are grouped for eviction. `None` means a field that packets of the flow
/// entry cannot have.
type GroupKey = Vec<Option<u128>>;

/// Work of computing the sort key of one rule during the selection of the rule to evict. The unit is the work of
/// visiting one rule.
const WORK_OF_RANK: usize = 4;
/// Work of reading one field by which rules are grouped for eviction. The unit is the work of visiting one rule.
const WORK_OF_FIELD: usize = 16;

/// The rules of one eviction group that may be evicted.
#[derive(Default)]
struct EvictionGroup {
    /// Number of rules in the group that may be evicted.
    size: usize,
    /// Rule that is evicted first. The value is `None` if all rules are too important to be evicted.
    first: Option<(Rank, RuleRef)>,
}

impl EvictionGroup {
    fn add(&mut self, rank: Rank, at: RuleRef, importance: u16) {
        self.size += 1;
        let (own, _) = rank;
        if own <= importance && self.first.is_none_or(|first| (rank, at) < first) {
            self.first = Some((rank, at));
        }
    }
}

fn rank_of(rule: &Rule) -> Rank {
    (rule.importance, rule.ends_ns().unwrap_or(u64::MAX))
}

/// Reads the values of the fields by which a rule is grouped for eviction, and stores them in `key`.
fn read_group(fields: &[SubField], matching: &Match, key: &mut GroupKey) {
    key.clear();
    key.extend(fields.iter().map(|part| {
        let mut asked = Flow::ZERO;
        let has = packet_meets(&matching.value, part.field.prerequisite(), &mut asked);
        has.then(|| matching.value.get(part.field) >> part.first & u128::MAX >> (128 - part.bits))
    }));
}

impl Pipeline {
    /// Applies the settings of a table from the configuration. If eviction is enabled, flow entries above the new
    /// limit are evicted immediately.
    pub fn set_table_bounds(&mut self, table: u8, bounds: TableBounds, now_ns: u64) {
        let Some(own) = self.tables.get_mut(usize::from(table)) else { return };
        if own.bounds.configured == bounds {
            return;
        }
        let fields = (0_u8..).zip(bounds.prefixes).fold(0, |bits, (at, on)| bits | u8::from(on) << at);
        own.bounds.configured = bounds;
        let options = own.classifier.options();
        if options.prefix_fields != fields {
            own.classifier.set_options(lookup::Options { prefix_fields: fields, ..options });
        }
        self.make_room(table, now_ns);
    }

    /// Applies the settings of a table that a controller has requested. If eviction is enabled, flow entries above
    /// the limit are evicted immediately.
    pub fn set_table_wishes(&mut self, table: u8, wishes: TableWishes, now_ns: u64) {
        let Some(own) = self.tables.get_mut(usize::from(table)) else { return };
        if own.bounds.wished == wishes {
            return;
        }
        if let (None, Some((_, up))) = (own.bounds.wished.vacancy, wishes.vacancy) {
            own.bounds.roomy_next = own.vacancy() < up;
        }
        let count = |vacancy: Option<(u8, u8)>| usize::from(vacancy.is_some());
        self.watched = self.watched + count(wishes.vacancy) - count(own.bounds.wished.vacancy);
        let same_miss = own.bounds.wished.miss == wishes.miss;
        own.bounds.wished = wishes;
        self.touch(if same_miss { Touched::Settings } else { Touched::All });
        self.make_room(table, now_ns);
    }

    /// Returns the estimated work of [`Pipeline::set_table_wishes`] with these settings. The unit is the work of
    /// visiting one rule ([`Pipeline::work_of`]).
    #[must_use]
    pub fn work_of_wishes(&self, table: u8, wishes: &TableWishes) -> usize {
        let Some(own) = self.tables.get(usize::from(table)) else { return 1 };
        let Bounds { configured, wished, .. } = &own.bounds;
        let surplus = own.classifier.len().saturating_sub(own.limit() as usize);
        let evicts = configured.evicts || wishes.evicts;
        if surplus == 0 || !evicts || wished == wishes {
            return 1;
        }
        self.work_to_rank(table) + self.work_to_remove(surplus, self.rules.work_of_table(table))
    }

    /// Returns the settings that controllers set for a table. Returns `None` if there is no such table.
    #[must_use]
    pub fn table_wishes(&self, table: u8) -> Option<&TableWishes> {
        self.tables.get(usize::from(table)).map(|own| &own.bounds.wished)
    }

    /// Returns the treatment of packets that no flow entry of a table matches.
    pub(super) fn miss_of(&self, table: u8) -> Miss {
        self.tables.get(usize::from(table)).map_or(Miss::Drop, |own| own.bounds.wished.miss)
    }

    /// Returns each table for which controllers have changed a setting, with the table's settings.
    pub fn wished_tables(&self) -> impl Iterator<Item = (u8, &TableWishes)> {
        let nothing = TableWishes::default();
        let all = self.tables.iter().zip(0..).map(|(own, number)| (number, &own.bounds.wished));
        all.filter(move |(_, wishes)| **wishes != nothing)
    }

    /// Returns the settings and fill level of a table. Returns `None` if there is no such table.
    #[must_use]
    pub fn table_state(&self, table: u8) -> Option<TableState> {
        let own = self.tables.get(usize::from(table))?;
        let Bounds { configured, wished, .. } = &own.bounds;
        Some(TableState {
            table,
            name: configured.name.clone().unwrap_or_else(|| wished.name.clone()),
            limit: own.limit(),
            active: u32::try_from(own.classifier.len()).unwrap_or(u32::MAX),
            miss: wished.miss,
            evicts: wished.evicts,
            vacancy: wished.vacancy,
        })
    }

    /// Returns the flow entry to evict from a full table in favour of a new flow entry of this importance. The entry
    /// belongs to the largest eviction group, is the least important in this group, and expires first among entries
    /// of equal importance. Flow entries without time-outs and importance are never evicted (OpenFlow 1.5.1, 6.5).
    /// Returns `None` if no flow entry may be evicted.
    pub(super) fn victim(&self, table: u8, importance: u16) -> Option<RuleRef> {
        let own = self.tables.get(usize::from(table))?;
        if !own.evictable.has_victim(importance) {
            return None;
        }
        let fields = &own.bounds.configured.groups;
        let mut only = EvictionGroup::default();
        let mut groups: HashMap<GroupKey, EvictionGroup> = HashMap::new();
        let mut key = GroupKey::new();
        for (at, rule) in self.rules_of_table(table).filter(|(_, rule)| is_evictable(rule)) {
            if fields.is_empty() {
                only.add(rank_of(rule), at, importance);
                continue;
            }
            read_group(fields, &rule.matching, &mut key);
            let group = match groups.get_mut(&key) {
                Some(group) => group,
                None => groups.entry(key.clone()).or_default(),
            };
            group.add(rank_of(rule), at, importance);
        }
        let first =
            |EvictionGroup { size, first }| first.map(|(rank, at)| ((size, std::cmp::Reverse(rank)), at));
        let groups = groups.into_values().chain([only]);
        groups.filter_map(first).max_by_key(|(rank, _)| *rank).map(|(_, at)| at)
    }

    /// Returns the work of choosing the rules to evict from a table. The unit is the work of visiting one rule.
    pub(super) fn work_to_rank(&self, table: u8) -> usize {
        let fields = self.tables.get(usize::from(table)).map_or(0, |own| own.bounds.configured.groups.len());
        self.places_of_table(table).saturating_mul(WORK_OF_RANK + fields * WORK_OF_FIELD)
    }

    /// Returns the rules of a table in no particular order. [`Pipeline::places_of_table`] returns the number of rule
    /// slots that the iteration visits.
    pub(super) fn rules_of_table(&self, table: u8) -> impl Iterator<Item = (RuleRef, &Rule)> {
        let own = self.tables.get(usize::from(table)).filter(|_| self.is_small(table));
        let few = own.into_iter().flat_map(|own| own.classifier.iter().map(|entry| *entry.payload));
        let few = few.filter_map(|at| Some((at, self.rules.get(at)?)));
        let all = own.is_none().then(|| self.rules.iter().filter(move |(_, rule)| rule.table == table));
        few.chain(all.into_iter().flatten())
    }

    /// Returns the number of rule slots that `Pipeline::rules_of_table` visits to find the rules of a table.
    pub(super) fn places_of_table(&self, table: u8) -> usize {
        let len = self.tables.get(usize::from(table)).map_or(0, |own| own.classifier.len());
        if self.is_small(table) { len } else { self.rules.place_count() }
    }

    /// Returns whether the rules of a table are found faster through the table's classifier than by a scan over the
    /// rules of all tables.
    fn is_small(&self, table: u8) -> bool {
        let len = self.tables.get(usize::from(table)).map_or(0, |own| own.classifier.len());
        len <= self.rules.place_count() / 4
    }

    /// Returns the rules of a table that may be evicted, grouped by eviction group, each with its sort key for
    /// eviction.
    fn victims(&self, table: u8) -> HashMap<GroupKey, Vec<(Rank, RuleRef)>> {
        let mut groups: HashMap<GroupKey, Vec<(Rank, RuleRef)>> = HashMap::new();
        let Some(own) = self.tables.get(usize::from(table)) else { return groups };
        let fields = &own.bounds.configured.groups;
        for (at, rule) in self.rules_of_table(table).filter(|(_, rule)| is_evictable(rule)) {
            let mut key = GroupKey::new();
            read_group(fields, &rule.matching, &mut key);
            groups.entry(key).or_default().push((rank_of(rule), at));
        }
        groups
    }

    /// Evicts rules until the table holds no more than its limit, if eviction is enabled.
    fn make_room(&mut self, table: u8, now_ns: u64) {
        let Some(own) = self.tables.get(usize::from(table)) else { return };
        let surplus = own.classifier.len().saturating_sub(own.limit() as usize);
        if surplus > 0 && own.evicts() {
            // The first rule to evict is last in its group.
            let sorted = |mut group: Vec<(Rank, RuleRef)>| {
                group.sort_unstable_by_key(|(rank, _)| std::cmp::Reverse(*rank));
                group.into_iter().map(|(_, at)| at).collect::<Vec<_>>()
            };
            let mut groups: Vec<Vec<RuleRef>> = self.victims(table).into_values().map(sorted).collect();
            let mut largest: BinaryHeap<(usize, usize)> =
                groups.iter().enumerate().map(|(at, group)| (group.len(), at)).collect();
            for _ in 0..surplus {
                let Some((size, at)) = largest.pop() else { break };
                let Some(victim) = groups.get_mut(at).and_then(Vec::pop) else { break };
                self.remove_rule(victim, Removed::Eviction, now_ns);
                largest.extend((size > 1).then_some((size - 1, at)));
            }
            self.drop_orphans(now_ns);
        }
        self.queue_vacancy_events();
    }

    /// Queues a vacancy event for each table whose free space crossed a threshold (OpenFlow 1.5.1, 6.5 and
    /// 7.4.5).
    pub(super) fn queue_vacancy_events(&mut self) {
        if self.watched == 0 {
            return;
        }
        for number in 0..self.tables.len() {
            let own = &mut self.tables[number];
            let Some((down, up)) = own.bounds.wished.vacancy else { continue };
            let vacancy = own.vacancy();
            let is_next = if own.bounds.roomy_next { vacancy > up } else { vacancy < down };
            if is_next {
                let roomy = own.bounds.roomy_next;
                own.bounds.roomy_next = !roomy;
                let state = u8::try_from(number).ok().and_then(|number| self.table_state(number));
                if let Some(state) = state {
                    self.events.queue(Event::Vacancy(roomy, state));
                }
            }
        }
    }
}
