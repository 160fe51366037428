//! How tables are kept in bounds: their limits, who makes room in a full one, and telling controllers that one is nearly full.
//!
//! The configuration and controllers both have a say. What controllers said ([`TableWishes`]) outlives the daemon with the rules, what is
//! configured ([`TableBounds`]) comes from its owner again.

use std::collections::{BinaryHeap, HashMap};

use super::message::{Event, Miss, Removed, TableState};
use super::pipeline::{MAX_RULES, Pipeline, Table, Touched};
use super::rule::{Rule, RuleRef};
use super::{Flow, Match, SubField, packet_meets};

/// What the configuration says of a table.
#[derive(Clone, PartialEq, Debug)]
pub struct TableBounds {
    /// What it is called, whatever controllers call it.
    pub name: Option<String>,
    /// Rules that it holds at most; `None`: [`MAX_RULES`].
    pub limit: Option<u32>,
    /// Rules make room for new ones when it is full.
    pub evicts: bool,
    /// Rules with the same values in these fields are a group; the largest group makes room first.
    pub groups: Vec<SubField>,
    /// Whether prefixes of sources and of destinations are tracked (IPv4, IPv6 and ARP).
    pub prefixes: [bool; 2],
}

impl Default for TableBounds {
    fn default() -> Self {
        TableBounds { name: None, limit: None, evicts: false, groups: Vec::new(), prefixes: [true; 2] }
    }
}

/// What controllers have said of a table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableWishes {
    /// What it is called; empty: nothing.
    pub name: String,
    /// What becomes of packets that no rule of it matches (OFPTC_TABLE_MISS_*).
    pub miss: Miss,
    /// Rules make room for new ones when it is full (OFPTC_EVICTION).
    pub evicts: bool,
    /// Controllers are told when fewer and when more of it than so many percent are free (OFPTC_VACANCY_EVENTS).
    pub vacancy: Option<(u8, u8)>,
}

/// What a table has of both.
#[derive(Default)]
pub(crate) struct Bounds {
    configured: TableBounds,
    wished: TableWishes,
    /// Controllers are told next that there is room again; else that there is none.
    roomy_next: bool,
}

impl Table {
    /// Rules that it holds at most.
    pub fn limit(&self) -> u32 {
        self.bounds.configured.limit.unwrap_or(MAX_RULES)
    }

    /// Whether rules make room for new ones.
    pub fn evicts(&self) -> bool {
        self.bounds.configured.evicts || self.bounds.wished.evicts
    }

    /// How much of it is free, in percent (OpenFlow 1.5.1, 7.3.4.1).
    fn vacancy(&self) -> u8 {
        let limit = u64::from(self.limit());
        let free = limit.saturating_sub(self.classifier.len() as u64);
        u8::try_from(free * 100 / limit.max(1)).unwrap_or(100)
    }
}

/// By what rules are chosen that make room, the first ones first: importance, then when they end (OpenFlow 1.5.1, 6.5).
type Rank = (u16, u64);

/// The values of a group's fields; `None` where a rule's packets do not have the field.
type GroupKey = Vec<Option<u128>>;

fn group_of(fields: &[SubField], matching: &Match) -> GroupKey {
    let value = |part: &SubField| {
        let mut asked = Flow::ZERO;
        let has = packet_meets(&matching.value, part.field.prerequisite(), &mut asked);
        has.then(|| matching.value.get(part.field) >> part.first & u128::MAX >> (128 - part.bits))
    };
    fields.iter().map(value).collect()
}

impl Pipeline {
    /// Sets what the configuration says of a table. Where rules are too many now, they go at once, as far as they may.
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

    /// Sets what a controller says of a table.
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

    /// How many rules are looked at when a controller says this of a table, about, as [`Pipeline::work_of`].
    #[must_use]
    pub fn work_of_wishes(&self, table: u8, wishes: &TableWishes) -> usize {
        let Some(own) = self.tables.get(usize::from(table)) else { return 1 };
        let Bounds { configured, wished, .. } = &own.bounds;
        let has_surplus = own.classifier.len() > own.limit() as usize;
        let evicts = configured.evicts || wishes.evicts;
        if wished != wishes && has_surplus && evicts { self.rules.place_count() } else { 1 }
    }

    /// What controllers have said of a table; `None`: there is no such table.
    #[must_use]
    pub fn table_wishes(&self, table: u8) -> Option<&TableWishes> {
        self.tables.get(usize::from(table)).map(|own| &own.bounds.wished)
    }

    /// What becomes of packets that no rule of a table matches.
    pub(super) fn miss_of(&self, table: u8) -> Miss {
        self.tables.get(usize::from(table)).map_or(Miss::Drop, |own| own.bounds.wished.miss)
    }

    /// Tables of which controllers have said anything, and what.
    pub fn wished_tables(&self) -> impl Iterator<Item = (u8, &TableWishes)> {
        let nothing = TableWishes::default();
        let all = self.tables.iter().zip(0..).map(|(own, number)| (number, &own.bounds.wished));
        all.filter(move |(_, wishes)| **wishes != nothing)
    }

    /// How a table is configured, and how full it is.
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

    /// The rule that makes room in a full table: of the largest group, the least important, of those the one that ends first. Rules
    /// without any time-out and importance stay (OpenFlow 1.5.1, 6.5).
    pub(super) fn victim(&self, table: u8, importance: u16) -> Option<RuleRef> {
        let groups = self.victims(table).into_values();
        let first = |group: Vec<(Rank, RuleRef)>| {
            let size = group.len();
            let may = group.into_iter().filter(|((own, _), _)| *own <= importance);
            may.min().map(|(rank, at)| ((size, std::cmp::Reverse(rank)), at))
        };
        groups.filter_map(first).max_by_key(|(rank, _)| *rank).map(|(_, at)| at)
    }

    /// The rules of a table, in no order, at the cost of [`Pipeline::places_of_table`].
    pub(super) fn rules_of_table(&self, table: u8) -> impl Iterator<Item = (RuleRef, &Rule)> {
        let own = self.tables.get(usize::from(table)).filter(|_| self.is_small(table));
        let few = own.into_iter().flat_map(|own| own.classifier.iter().map(|entry| *entry.payload));
        let few = few.filter_map(|at| Some((at, self.rules.get(at)?)));
        let all = own.is_none().then(|| self.rules.iter().filter(move |(_, rule)| rule.table == table));
        few.chain(all.into_iter().flatten())
    }

    /// How many places are looked at to find the rules of a table.
    pub(super) fn places_of_table(&self, table: u8) -> usize {
        let len = self.tables.get(usize::from(table)).map_or(0, |own| own.classifier.len());
        if self.is_small(table) { len } else { self.rules.place_count() }
    }

    /// Whether a table has so few of the rules that they are found sooner by its classifier than by a look at all.
    fn is_small(&self, table: u8) -> bool {
        let len = self.tables.get(usize::from(table)).map_or(0, |own| own.classifier.len());
        len <= self.rules.place_count() / 4
    }

    /// Rules of a table that may make room, by their groups.
    fn victims(&self, table: u8) -> HashMap<GroupKey, Vec<(Rank, RuleRef)>> {
        let mut groups: HashMap<GroupKey, Vec<(Rank, RuleRef)>> = HashMap::new();
        let Some(own) = self.tables.get(usize::from(table)) else { return groups };
        let fields = &own.bounds.configured.groups;
        let may = |rule: &Rule| rule.idle_timeout != 0 || rule.hard_timeout != 0 || rule.importance != 0;
        for (at, rule) in self.rules_of_table(table).filter(|(_, rule)| may(rule)) {
            let rank = (rule.importance, rule.ends_ns().unwrap_or(u64::MAX));
            groups.entry(group_of(fields, &rule.matching)).or_default().push((rank, at));
        }
        groups
    }

    /// Takes out the rules that a table has too many of, as far as they may go.
    fn make_room(&mut self, table: u8, now_ns: u64) {
        let Some(own) = self.tables.get(usize::from(table)) else { return };
        let surplus = own.classifier.len().saturating_sub(own.limit() as usize);
        if surplus > 0 && own.evicts() {
            // In each group the first to go stands last.
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
        self.tell_vacancies();
    }

    /// Tells controllers of tables that have become nearly full, or are not so any more (OpenFlow 1.5.1, 6.5 and 7.4.5).
    pub(super) fn tell_vacancies(&mut self) {
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
                    self.events.tell(Event::Vacancy(roomy, state));
                }
            }
        }
    }
}
