//! The tables of one bridge: rules, groups, meters and ports, with one writer. Workers never see them; translation reads them at a
//! version.
//!
//! Every change is checked whole before anything is done, a batch of changes is done whole or not at all, and each leaves a note
//! of what it touched ([`Pipeline::touched_since`]), so that cached flows that did not meet it need no second look.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use lookup::{Classifier, Layout, Octets, Options};
use packet::PortId;

use super::bounds::Bounds;
use super::events::Events;
use super::lessons::Lessons;
use super::message::{
    ALL_TABLES, ANY_GROUP, Event, FlowFilter, FlowStats, Fragments, Group, GroupStats, Meter, MeterStats,
    PortDesc, TableStats,
};
use super::rule::{Rule, RuleRef, Rules};
use super::uses::Uses;
use super::{FLOW_WORDS, Field, Flow, Match, STAGES, TunnelOptions};

/// Tables that a bridge has: 0 to 254.
pub const TABLES: usize = 255;
/// Tables that can hold rules: 0 to 253. Controllers are told of these alone. Table 254, in which Open vSwitch keeps rules of its own, is empty.
pub const VISIBLE_TABLES: u8 = 254;
/// Masks of a table at most: a look-up goes through all of them, and may go through them for each table that a packet comes to.
pub const MAX_MASKS: usize = 16_384;
/// Masks whose look-up counts as one action of a packet.
const MASKS_OF_WORK: usize = 64;
/// Rules that a table holds unless told otherwise.
pub const MAX_RULES: u32 = 1_000_000;
/// Octets of memory that the rules and groups of a bridge take at most, unless told otherwise. A million usual rules take about 1 GiB.
pub const RULE_MEMORY: usize = 2 << 30;
/// Groups that a bridge holds.
pub const MAX_GROUPS: usize = 65_536;
/// Meters that a bridge holds.
pub const MAX_METERS: usize = 65_536;
/// Rules by which the memory of all is reckoned.
const SAMPLE: usize = 1024;
/// Notes of changes that are kept; who is further behind looks at everything.
const NOTES: usize = 4096;

/// Where a flow's fields stand, for the classifier.
pub const LAYOUT: Layout<FLOW_WORDS> = Layout::new(
    STAGES,
    &[Octets { from: Field::Ipv6Src.octet(), count: 16 }, Octets { from: Field::Ipv6Dst.octet(), count: 16 }],
    &[Field::TcpSrc.octet(), Field::TcpDst.octet()],
    (1, 2),
);

/// A table.
pub(crate) struct Table {
    pub classifier: Classifier<FLOW_WORDS, RuleRef>,
    pub bounds: Bounds,
    /// Parts of conjunctive matches.
    pub conjunctive: usize,
    pub lookups: u64,
    pub matched: u64,
}

/// A group and its counters.
#[derive(Clone, Debug)]
pub(crate) struct GroupState {
    pub group: Group,
    /// The groups that its buckets lead to or watch, each once.
    pub reached: Box<[u32]>,
    pub created_ns: u64,
    pub packets: u64,
    pub bytes: u64,
    pub buckets: Vec<(u64, u64)>,
}

/// A meter and its counters.
#[derive(Clone, Debug)]
pub(crate) struct MeterState {
    pub meter: Meter,
    pub created_ns: u64,
    pub packets: u64,
    pub bytes: u64,
    pub bands: Vec<(u64, u64)>,
}

impl GroupState {
    /// What controllers are told; `references`: rules and groups that name the group.
    pub fn stats(&self, references: u32, now_ns: u64) -> GroupStats {
        GroupStats {
            id: self.group.id,
            references,
            packets: self.packets,
            bytes: self.bytes,
            age_ns: now_ns.saturating_sub(self.created_ns),
            buckets: self.buckets.clone(),
        }
    }
}

impl MeterState {
    /// What controllers are told; `flows`: rules that name the meter.
    pub fn stats(&self, flows: u32, now_ns: u64) -> MeterStats {
        MeterStats {
            id: self.meter.id,
            flows,
            packets: self.packets,
            bytes: self.bytes,
            age_ns: now_ns.saturating_sub(self.created_ns),
            bands: self.bands.clone(),
        }
    }
}

/// A port of the bridge.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowPort {
    /// The engine's port.
    pub id: PortId,
    /// What controllers are told.
    pub desc: PortDesc,
    /// Takes floods.
    pub floods: bool,
    /// Takes packets.
    pub forwards: bool,
    /// Its packets are received.
    pub receives: bool,
    /// Up, with a link.
    pub live: bool,
}

/// What a change touched.
#[derive(Clone, Debug)]
pub enum Touched {
    /// A rule of this table with this match.
    Rule(u8, Box<Match>),
    /// Anything: groups, meters, ports.
    All,
    /// What tables are called and hold, which is nothing to packets.
    Settings,
}

/// The tables of one bridge. See the module documentation.
pub struct Pipeline {
    pub(crate) tables: Vec<Table>,
    pub(crate) rules: Rules,
    pub(crate) groups: BTreeMap<u32, GroupState>,
    pub(crate) meters: BTreeMap<u32, MeterState>,
    pub(crate) ports: BTreeMap<u32, FlowPort>,
    /// OpenFlow's numbers by the engine's.
    numbers: BTreeMap<PortId, u32>,
    pub(crate) options: TunnelOptions,
    pub(super) events: Events,
    pub(crate) lessons: Lessons,
    pub(super) uses: Uses,
    /// Octets of memory that rules and groups take, about.
    pub(super) held: usize,
    /// Octets of memory that rules and groups may take.
    pub(super) held_most: usize,
    /// Tables whose vacancy controllers want to be told.
    pub(super) watched: usize,
    /// Whether packets are forwarded without regard to rules.
    pub(super) alone: bool,
    /// Whether any controller hears of packets that no rule matches.
    pub(super) misses_heard: bool,
    /// What becomes of fragments.
    pub(super) fragments: Fragments,
    /// Whether rules see one VLAN tag of a packet instead of two.
    pub(super) one_tag: bool,
    /// Says of a group whether controllers of all versions can be told of it; a group of which they cannot is refused.
    pub(super) group_fits: fn(&Group) -> bool,
    version: u64,
    notes: VecDeque<Touched>,
}

impl Default for Pipeline {
    fn default() -> Self {
        Self::new()
    }
}

impl Pipeline {
    /// No rules, no ports: every packet is dropped.
    #[must_use]
    pub fn new() -> Pipeline {
        let table = || Table {
            classifier: Classifier::new(LAYOUT, Options::default()),
            bounds: Bounds::default(),
            conjunctive: 0,
            lookups: 0,
            matched: 0,
        };
        Pipeline {
            tables: std::iter::repeat_with(table).take(TABLES).collect(),
            rules: Rules::default(),
            groups: BTreeMap::new(),
            meters: BTreeMap::new(),
            ports: BTreeMap::new(),
            numbers: BTreeMap::new(),
            options: TunnelOptions::default(),
            events: Events::default(),
            lessons: Lessons::default(),
            uses: Uses::default(),
            held: 0,
            held_most: RULE_MEMORY,
            watched: 0,
            alone: false,
            misses_heard: false,
            fragments: Fragments::Normal,
            one_tag: false,
            group_fits: |_| true,
            version: 0,
            notes: VecDeque::new(),
        }
    }

    /// Raised with every change.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn touch(&mut self, what: Touched) {
        self.version += 1;
        self.notes.push_back(what);
        if self.notes.len() > NOTES {
            self.notes.pop_front();
        }
    }

    pub(crate) fn touch_rule(&mut self, at: RuleRef, table: u8, matching: Match) {
        self.touch(Touched::Rule(table, Box::new(matching)));
        self.rules.mark(at, self.version);
    }

    /// What has been touched since a version; `None`: too much to tell.
    pub fn touched_since(&self, version: u64) -> Option<impl Iterator<Item = &Touched>> {
        let behind =
            usize::try_from(self.version - version).ok().filter(|behind| *behind <= self.notes.len())?;
        Some(self.notes.iter().skip(self.notes.len() - behind))
    }

    /// Whether a flow that visited these tables (a bit for each) can have changed since a version. `arrived` is the flow as it came: rules
    /// of the first table that it cannot meet are left out, unless it was looked up there again.
    #[must_use]
    pub fn may_differ(&self, version: u64, tables: &[u64; 4], arrived: Option<&Match>) -> bool {
        let Some(mut touched) = self.touched_since(version) else { return true };
        touched.any(|touched| match touched {
            Touched::All => true,
            Touched::Settings => false,
            Touched::Rule(table, matching) => {
                tables[usize::from(*table) / 64] >> (table % 64) & 1 == 1
                    && (*table != 0 || arrived.is_none_or(|arrived| matching.overlaps(arrived)))
            }
        })
    }

    /// Limits the octets of memory that rules and groups may take. Those that are there stay.
    pub fn set_rule_memory(&mut self, most: usize) {
        self.held_most = most;
    }

    /// Octets of memory that rules and groups take, about: what is counted against the limit.
    #[must_use]
    pub fn rule_memory(&self) -> usize {
        self.held
    }

    /// Stands alone, or goes by rules (OpenFlow 1.3.5, 6.3.2): a learning bridge for all that arrives, while nobody is there whose rules are to be
    /// believed. They stay as they are, time-outs included.
    pub fn set_alone(&mut self, alone: bool) {
        if self.alone != alone {
            self.alone = alone;
            self.touch(Touched::All);
        }
    }

    /// Whether it stands alone.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.alone
    }

    /// Says whether any controller hears of packets that no rule of a table matches ([`Miss::Default`](super::Miss)).
    pub fn set_misses_heard(&mut self, heard: bool) {
        if self.misses_heard != heard {
            self.misses_heard = heard;
            self.touch(Touched::All);
        }
    }

    /// What becomes of IP fragments.
    #[must_use]
    pub fn fragments(&self) -> Fragments {
        self.fragments
    }

    /// Changes what becomes of IP fragments. Returns false, and changes nothing, where they would be put together.
    pub fn set_fragments(&mut self, to: Fragments) -> bool {
        if to == Fragments::Reassemble {
            return false;
        }
        if self.fragments != to {
            self.fragments = to;
            self.touch(Touched::All);
        }
        true
    }

    /// Switches what look-ups do to be quick; results are the same.
    pub fn set_options(&mut self, options: Options) {
        for table in &mut self.tables {
            table.classifier.set_options(options);
        }
    }

    /// What has happened since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.events.take()
    }

    /// Tells of every change of rules only while the count is not zero, and else only of the end of rules that ask for it. Until this is
    /// called every change is told of.
    pub fn set_monitors(&mut self, monitors: Arc<AtomicUsize>) {
        self.events.set_monitors(monitors);
    }

    /// Tells of requests that change groups and meters ([`Event::Request`]) while the count is not zero. Until this is called none is told.
    pub fn set_requests(&mut self, requests: Arc<AtomicUsize>) {
        self.events.set_requests(requests);
    }

    /// Refuses groups that do not fit, from now on. Those that are there stay.
    pub fn set_group_fits(&mut self, fits: fn(&Group) -> bool) {
        self.group_fits = fits;
    }

    /// A rule.
    #[must_use]
    pub fn rule(&self, at: RuleRef) -> Option<&Rule> {
        self.rules.get(at)
    }

    /// Number of rules in all tables.
    #[must_use]
    pub fn rule_count(&self) -> usize {
        self.rules.len()
    }

    /// The rules that a request is about.
    pub(crate) fn selected<'p>(
        &'p self,
        filter: &'p FlowFilter,
    ) -> impl Iterator<Item = (RuleRef, &'p Rule)> {
        self.rules.iter().filter(move |(_, rule)| is_selected(filter, rule))
    }

    /// Rules and their counters, by table and falling priority.
    #[must_use]
    pub fn flows(&self, filter: &FlowFilter, now_ns: u64) -> Vec<FlowStats> {
        let mut found: Vec<_> = self.selected(filter).map(|(_, rule)| rule).collect();
        found.sort_by_key(|rule| (rule.table, std::cmp::Reverse(rule.priority), rule.created_ns));
        found.into_iter().map(|rule| rule.stats(now_ns)).collect()
    }

    /// Shows the rules of so many places from one on with their places, in no order; whether there are places behind. Who copies all rules
    /// does it so, in parts, and lets changes go on between them: [`Pipeline::rules_since`] shows what they were.
    pub fn rules_from(
        &self,
        from: usize,
        count: usize,
        now_ns: u64,
        mut see: impl FnMut(usize, FlowStats),
    ) -> bool {
        let mut places = from;
        for (rule, _) in self.rules.places(from, count) {
            if let Some(rule) = rule {
                see(places, rule.stats(now_ns));
            }
            places += 1;
        }
        places - from == count
    }

    /// Shows every place whose rule has come, changed or gone since a version, with the rule that stands there now.
    pub fn rules_since(&self, version: u64, now_ns: u64, mut see: impl FnMut(usize, Option<FlowStats>)) {
        if version == self.version {
            return;
        }
        for (place, (rule, changed)) in self.rules.places(0, usize::MAX).enumerate() {
            if changed > version {
                see(place, rule.map(|rule| rule.stats(now_ns)));
            }
        }
    }

    /// Packets, octets and number of rules.
    #[must_use]
    pub fn aggregate(&self, filter: &FlowFilter) -> (u64, u64, u32) {
        self.selected(filter).fold((0, 0, 0), |(packets, bytes, flows), (_, rule)| {
            (packets + rule.packets, bytes + rule.bytes, flows + 1)
        })
    }

    /// Counters of every table.
    #[must_use]
    pub fn table_stats(&self) -> Vec<TableStats> {
        (0..VISIBLE_TABLES)
            .zip(&self.tables)
            .map(|(number, table)| TableStats {
                table: number,
                active: u32::try_from(table.classifier.len()).unwrap_or(u32::MAX),
                max_entries: table.limit(),
                lookups: table.lookups,
                matched: table.matched,
            })
            .collect()
    }

    /// Groups.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values().map(|state| &state.group)
    }

    /// Groups' counters.
    #[must_use]
    pub fn group_stats(&self, now_ns: u64) -> Vec<GroupStats> {
        let mut references = Tally::default();
        for (_, rule) in self.rules.iter() {
            references.add(|named| rule.instructions.groups(named));
        }
        for state in self.groups.values() {
            references.add(|named| named.extend(super::modify::followers(&state.group)));
        }
        self.groups.values().map(|state| state.stats(references.of(state.group.id), now_ns)).collect()
    }

    /// Meters.
    pub fn meters(&self) -> impl Iterator<Item = &Meter> {
        self.meters.values().map(|state| &state.meter)
    }

    /// The meter of a number.
    #[must_use]
    pub fn meter(&self, id: u32) -> Option<&Meter> {
        self.meters.get(&id).map(|state| &state.meter)
    }

    /// Meters' counters.
    #[must_use]
    pub fn meter_stats(&self, now_ns: u64) -> Vec<MeterStats> {
        let mut uses = Tally::default();
        for (_, rule) in self.rules.iter() {
            uses.add(|named| rule.instructions.meters(named));
        }
        self.meters.values().map(|state| state.stats(uses.of(state.meter.id), now_ns)).collect()
    }

    /// Adds what a meter has counted.
    pub fn credit_meter(&mut self, id: u32, packets: u64, bytes: u64, bands: &[(u64, u64)]) {
        let Some(state) = self.meters.get_mut(&id) else { return };
        (state.packets, state.bytes) = (state.packets + packets, state.bytes + bytes);
        for (own, more) in state.bands.iter_mut().zip(bands) {
            *own = (own.0 + more.0, own.1 + more.1);
        }
    }

    /// The bridge's ports by OpenFlow's numbers.
    #[must_use]
    pub fn ports(&self) -> &BTreeMap<u32, FlowPort> {
        &self.ports
    }

    /// OpenFlow's number of a port of the engine.
    #[must_use]
    pub fn number_of(&self, id: PortId) -> Option<u32> {
        self.numbers.get(&id).copied()
    }

    /// Adds, changes or (`None`) removes a port. Rules that name it stay.
    pub fn set_port(&mut self, number: u32, port: Option<FlowPort>) {
        let old = self.ports.get(&number);
        if old == port.as_ref() {
            return;
        }
        let event = match (old, &port) {
            (None, Some(new)) => Some((0, new.desc.clone())),
            (Some(old), None) => Some((1, old.desc.clone())),
            (Some(old), Some(new)) if old.desc != new.desc => Some((2, new.desc.clone())),
            _ => None,
        };
        if let Some((what, desc)) = event {
            self.events.tell(Event::Port(what, desc));
        }
        let old = match port {
            Some(port) => self.ports.insert(number, port),
            None => self.ports.remove(&number),
        };
        // As of two ports of the same engine's number only one can be meant: the lower one.
        for id in old.iter().map(|old| old.id).chain(self.ports.get(&number).map(|new| new.id)) {
            match self.ports.iter().find(|(_, port)| port.id == id) {
                Some((number, _)) => self.numbers.insert(id, *number),
                None => self.numbers.remove(&id),
            };
        }
        self.touch(Touched::All);
    }

    /// Bytes that the tables take, about.
    #[must_use]
    pub fn memory(&self) -> usize {
        let classifiers: usize = self.tables.iter().map(|table| table.classifier.memory()).sum();
        // Actions of some rules stand for those of all: tables are asked while packets wait.
        let sample = self.rules.iter().take(SAMPLE);
        let actions = sample.map(|(_, rule)| rule.instructions.apply.capacity() * size_of::<super::Action>());
        let sampled: usize = actions.sum();
        let rules = self.rules.len();
        classifiers + rules * size_of::<Rule>() + sampled / SAMPLE.min(rules).max(1) * rules
    }

    /// Looks a flow up in a table, adding to `wild` what that depends on; conjunctive matches included. With what is found comes the work
    /// besides the look-up itself; where it is more than `most`, nothing is found.
    pub(crate) fn look_up(
        &self,
        table: u8,
        flow: &mut Flow,
        wild: &mut Flow,
        most: u32,
    ) -> (Option<RuleRef>, u32) {
        let Some(table) = self.tables.get(usize::from(table)) else { return (None, 0) };
        // What a look-up costs grows with the masks.
        let work = u32::try_from(table.classifier.masks() / MASKS_OF_WORK).unwrap_or(u32::MAX);
        if work > most {
            return (None, work);
        }
        if table.conjunctive == 0 {
            return (table.classifier.lookup_tracked(&flow.0, &mut wild.0).map(|(rule, _)| *rule), work);
        }
        let (found, more) = super::conjunction::look_up(self, table, flow, wild, most - work);
        (found, work.saturating_add(more))
    }
}

/// Whether a request is about a rule.
pub(super) fn is_selected(filter: &FlowFilter, rule: &Rule) -> bool {
    (filter.table == ALL_TABLES || filter.table == rule.table)
        && (rule.cookie ^ filter.cookie) & filter.cookie_mask == 0
        && rule.matching.is_within(&filter.matching)
        && filter.out_port.is_none_or(|port| rule.instructions.outputs_to(port))
        && filter.out_group.is_none_or(|group| group == ANY_GROUP || rule.instructions.uses_group(group))
}

/// How many name each group or meter: in one walk over all rules, for packets of unknown flows wait meanwhile.
#[derive(Default, Debug)]
pub(super) struct Tally {
    by_id: HashMap<u32, u32>,
    named: Vec<u32>,
}

impl Tally {
    /// One more, which names these.
    pub(super) fn add(&mut self, name: impl FnOnce(&mut Vec<u32>)) {
        name(&mut self.named);
        self.named.sort_unstable();
        self.named.dedup();
        for id in self.named.drain(..) {
            *self.by_id.entry(id).or_default() += 1;
        }
    }

    pub(super) fn of(&self, id: u32) -> u32 {
        self.by_id.get(&id).copied().unwrap_or(0)
    }
}
