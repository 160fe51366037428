//! The flow tables of one bridge: flow entries, groups, meters and ports. One thread at a time
//! changes the flow tables, and workers do not access the tables. The translation of a packet reads
//! all tables in one state (version).
//!
//! Every change is validated before it is made, and a batch of changes is made as a whole or not at all. Each change is
//! recorded with the rules or settings that it affects ([`Pipeline::touched_since`]). Cached megaflows that no later
//! change affects need no revalidation.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use lookup::{Classifier, Layout, Octets, Options};
use packet::PortId;

use super::events::Events;
use super::group_references::followers;
use super::learned::LearnedFlows;
use super::message::{
    ALL_TABLES, ANY_GROUP, Event, FlowFilter, FlowStats, Fragments, Group, GroupStats, Meter, MeterStats,
    PortDesc, TableStats,
};
use super::option_fields::OptionFields;
use super::rule::{Rule, RuleRef, Rules};
use super::table_bounds::{Bounds, Evictable};
use super::uses::Uses;
use super::{FLOW_WORDS, Field, Match, STAGES, TunnelOptions};

/// Number of tables of a bridge. The table numbers are 0 to 254.
pub const TABLES: usize = 255;
/// Number of tables that can hold flow entries. Their numbers are 0 to 253. Only these tables are reported to
/// controllers. Table 254, in which Open vSwitch keeps internal flow entries, is empty.
pub const VISIBLE_TABLES: u8 = 254;
/// Maximum number of different masks in a table. A lookup in a table tries all masks of the table, and a packet may be
/// looked up in every table that it reaches.
pub const MAX_MASKS: usize = 16_384;
/// Default limit of the number of flow entries of a table.
pub const MAX_RULES: u32 = 1_000_000;
/// Default limit of the memory of a bridge's rules and groups, in octets. One million ordinary rules use
/// about 1 GiB.
pub const RULE_MEMORY: usize = 2 << 30;
/// Maximum number of groups of a bridge.
pub const MAX_GROUPS: usize = 65_536;
/// Maximum number of meters of a bridge.
pub const MAX_METERS: usize = 65_536;
/// Maximum number of expired rules that one call of `Pipeline::expire` removes.
pub const EXPIRED_AT_ONCE: usize = 20_000;
/// Work limit of one call of `Pipeline::expire`. The unit is the work of visiting one rule. The call ends when the work
/// of visiting the actions of the removed rules ([`Instructions::work`](super::Instructions)) reaches this limit.
pub(super) const EXPIRED_WORK: usize = 1 << 19;
/// Work limit of one step of a dump or copy of rules. The unit is the work of visiting one rule. The step ends when the
/// work of visiting or copying actions reaches this limit.
pub(super) const STEP_WORK: usize = 1 << 14;
/// Number of rules whose memory is measured to estimate the memory of all rules.
const SAMPLE: usize = 1024;
/// Maximum number of changes that are recorded. A reader that has missed more changes must revalidate all megaflows.
const NOTES: usize = 4096;

/// Positions of IPv6 addresses, L4 ports and other fields in a `Flow`, for the classifiers of the tables.
pub const LAYOUT: Layout<FLOW_WORDS> = Layout::new(
    STAGES,
    &[Octets { from: Field::Ipv6Src.octet(), count: 16 }, Octets { from: Field::Ipv6Dst.octet(), count: 16 }],
    &[Field::TcpSrc.octet(), Field::TcpDst.octet()],
    (1, 2),
);

/// A flow table: its classifier, limits and counters.
pub(crate) struct Table {
    pub classifier: Classifier<FLOW_WORDS, RuleRef>,
    pub bounds: Bounds,
    /// Number of rules in the table that are parts of conjunctive matches.
    pub conjunctive: usize,
    pub evictable: Evictable,
    pub lookups: u64,
    pub matched: u64,
}

/// A group and its counters.
#[derive(Clone, Debug)]
pub(crate) struct GroupState {
    /// Group definition. Copies of the tables' contents share this value.
    pub group: Arc<Group>,
    /// Numbers of the groups to which the buckets of this group refer, through an action or as watch group, each listed
    /// once.
    pub reached: Box<[u32]>,
    /// Numbers of the meters that the buckets of this group use, each listed once.
    pub meters: Box<[u32]>,
    /// Fields for tunnel options that the buckets of this group use.
    pub options: OptionFields,
    pub created_ns: u64,
    pub packets: u64,
    pub bytes: u64,
    pub buckets: Vec<(u64, u64)>,
}

/// A meter and its counters.
#[derive(Clone, Debug)]
pub(crate) struct MeterState {
    /// Meter definition. Copies of the tables' contents share this value.
    pub meter: Arc<Meter>,
    pub created_ns: u64,
    pub packets: u64,
    pub bytes: u64,
    pub bands: Vec<(u64, u64)>,
}

impl GroupState {
    /// Returns the number of octets that a group counts towards the memory limit of rules: the group with its buckets,
    /// its state and counters, and its entry in the B-tree of groups. The entry counts twice, because the nodes of the
    /// B-tree may be half empty.
    pub fn memory_of(group: &Group) -> usize {
        let entry = 2 * size_of::<(u32, GroupState)>();
        let counters = group.buckets.len() * (size_of::<(u64, u64)>() + size_of::<u32>());
        entry + counters + group.memory()
    }

    /// Returns the number of octets of [`GroupState::memory_of`] for this group.
    pub fn memory(&self) -> usize {
        GroupState::memory_of(&self.group)
    }

    /// Returns the counters of the group as reported to controllers. `references` is the number of rules and
    /// groups that use the group.
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
    /// Returns the counters of the meter as reported to controllers. `flows` is the number of rules that use
    /// the meter.
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
    /// Number of the port in the packet engine.
    pub id: PortId,
    /// Description of the port as reported to controllers.
    pub desc: PortDesc,
    /// Whether flooded packets are output to the port.
    pub floods: bool,
    /// Whether packets are output to the port.
    pub forwards: bool,
    /// Whether packets that arrive on the port are processed.
    pub receives: bool,
    /// Whether the port is up and has a link.
    pub live: bool,
}

/// A recorded change of the tables: the rules or settings that it affects.
#[derive(Clone, Debug)]
pub enum Touched {
    /// A rule of this table with this match was added, changed or removed.
    Rule(u8, Box<Match>),
    /// Groups, meters or ports changed. Any megaflow may be affected.
    All,
    /// Only settings that do not affect packets have changed, for example names and limits of tables.
    Settings,
}

/// The flow tables of one bridge. See the module documentation.
pub struct Pipeline {
    pub(crate) tables: Vec<Table>,
    pub(crate) rules: Rules,
    pub(crate) groups: BTreeMap<u32, GroupState>,
    pub(crate) meters: BTreeMap<u32, MeterState>,
    pub(crate) ports: BTreeMap<u32, FlowPort>,
    /// OpenFlow port number of each port of the packet engine.
    numbers: BTreeMap<PortId, u32>,
    pub(crate) options: TunnelOptions,
    pub(super) events: Events,
    pub(crate) learned: LearnedFlows,
    pub(super) uses: Uses,
    /// Approximate memory that rules and groups use, in octets.
    pub(super) held: usize,
    /// Maximum memory that rules and groups may use, in octets.
    pub(super) held_most: usize,
    /// Number of buckets of all groups.
    pub(super) buckets: usize,
    /// Number of tables with vacancy events enabled.
    pub(super) watched: usize,
    /// Whether the bridge is in standalone mode, in which the learning bridge forwards all packets and flow entries
    /// are not used.
    pub(super) alone: bool,
    /// Whether any connected controller receives packets that no flow entry matches. See
    /// [`Miss::Default`](super::Miss).
    pub(super) misses_heard: bool,
    /// Treatment of IP fragments.
    pub(super) fragments: Fragments,
    /// Whether flow entries match only the outer VLAN tag of a packet instead of two tags.
    pub(super) one_tag: bool,
    /// Function that returns whether a group fits into one message to a controller in all OpenFlow versions. A group
    /// that does not fit is refused.
    pub(super) group_fits: fn(&Group) -> bool,
    /// Rule slot at which the next call of `Pipeline::expire` begins.
    pub(super) expire_from: usize,
    version: u64,
    notes: VecDeque<Touched>,
}

impl Default for Pipeline {
    fn default() -> Self {
        Self::new()
    }
}

impl Pipeline {
    /// Creates a pipeline that has neither flow entries nor ports. The pipeline drops every packet.
    #[must_use]
    pub fn new() -> Pipeline {
        let table = || Table {
            classifier: Classifier::new(LAYOUT, Options::default()),
            bounds: Bounds::default(),
            conjunctive: 0,
            evictable: Evictable::default(),
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
            learned: LearnedFlows::default(),
            uses: Uses::default(),
            held: 0,
            held_most: RULE_MEMORY,
            buckets: 0,
            watched: 0,
            alone: false,
            misses_heard: false,
            fragments: Fragments::Normal,
            one_tag: false,
            group_fits: |_| true,
            expire_from: 0,
            version: 0,
            notes: VecDeque::new(),
        }
    }

    /// Returns the version of the tables, a number that increases with every change.
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

    /// Returns the changes made after a version of the tables. Returns `None` if the recorded changes do not reach back
    /// to this version.
    pub fn touched_since(&self, version: u64) -> Option<impl Iterator<Item = &Touched>> {
        let behind =
            usize::try_from(self.version - version).ok().filter(|behind| *behind <= self.notes.len())?;
        Some(self.notes.iter().skip(self.notes.len() - behind))
    }

    /// Returns whether the actions of a megaflow may have changed since a version of the tables. `tables` is a bit mask
    /// of the tables in which the translation of the megaflow looked up a packet. `arrived` is the match of the
    /// megaflow on arriving packets: changes of rules in the first table that cannot match these packets are ignored.
    /// `arrived` is `None` if the translation looked up the first table again.
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

    /// Sets the maximum memory that rules and groups may use, in octets. Existing rules and groups are kept.
    pub fn set_rule_memory(&mut self, most: usize) {
        self.held_most = most;
    }

    /// Returns the approximate memory that rules and groups use, in octets. The limit applies to this value.
    #[must_use]
    pub fn rule_memory(&self) -> usize {
        self.held
    }

    /// Enters or leaves standalone mode (OpenFlow 1.3.5, 6.3.2). In this mode the learning bridge forwards
    /// all packets, because no controller is connected. Flow entries are kept, and their time-outs continue.
    pub fn set_alone(&mut self, alone: bool) {
        if self.alone != alone {
            self.alone = alone;
            self.touch(Touched::All);
        }
    }

    /// Returns whether the bridge is in standalone mode.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.alone
    }

    /// Sets whether any connected controller receives the packets that no flow entry of a table matches
    /// ([`Miss::Default`](super::Miss)).
    pub fn set_misses_heard(&mut self, heard: bool) {
        if self.misses_heard != heard {
            self.misses_heard = heard;
            self.touch(Touched::All);
        }
    }

    /// Returns the treatment of IP fragments.
    #[must_use]
    pub fn fragments(&self) -> Fragments {
        self.fragments
    }

    /// Sets the treatment of IP fragments. Returns false and changes nothing for
    /// [`Fragments::Reassemble`], which is not supported.
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

    /// Sets the lookup optimizations of the classifiers of all tables. The optimizations do not
    /// change the results of lookups.
    pub fn set_options(&mut self, options: Options) {
        for table in &mut self.tables {
            table.classifier.set_options(options);
        }
    }

    /// Returns the events since the last call and empties the event queue.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.events.take()
    }

    /// Sets the shared count of listeners for changes of rules. While the count is not zero, events
    /// report all changes of rules. While the count is zero, events report only the removals of
    /// rules that have the flag for a removal message. Before the first call of this function, all
    /// changes are reported.
    pub fn set_monitors(&mut self, monitors: Arc<AtomicUsize>) {
        self.events.set_monitors(monitors);
    }

    /// Sets the shared count of listeners for requests that change groups and meters. While the
    /// count is not zero, events report these requests ([`Event::Request`]). Before the first call
    /// of this function, no requests are reported.
    pub fn set_requests(&mut self, requests: Arc<AtomicUsize>) {
        self.events.set_requests(requests);
    }

    /// Sets the function that returns whether a group fits into the messages to controllers. Groups for which the
    /// function returns false are refused. Existing groups are kept.
    pub fn set_group_fits(&mut self, fits: fn(&Group) -> bool) {
        self.group_fits = fits;
    }

    /// Returns a rule. Returns `None` if the rule was removed.
    #[must_use]
    pub fn rule(&self, at: RuleRef) -> Option<&Rule> {
        self.rules.get(at)
    }

    /// Returns the number of rules in all tables.
    #[must_use]
    pub fn rule_count(&self) -> usize {
        self.rules.len()
    }

    /// Returns the rules that `filter` selects.
    pub(crate) fn selected<'p>(
        &'p self,
        filter: &'p FlowFilter,
    ) -> impl Iterator<Item = (RuleRef, &'p Rule)> {
        self.rules.iter().filter(move |(_, rule)| is_selected(filter, rule))
    }

    /// Returns the flow entries that `filter` selects, with their counters, sorted by table and descending priority.
    #[must_use]
    pub fn flows(&self, filter: &FlowFilter, now_ns: u64) -> Vec<FlowStats> {
        let mut found: Vec<_> = self.selected(filter).map(|(_, rule)| rule).collect();
        found.sort_by_key(|rule| (rule.table, std::cmp::Reverse(rule.priority), rule.created_ns));
        found.into_iter().map(|rule| rule.stats(now_ns)).collect()
    }

    /// Calls `see` with the slot number and the rule of each occupied slot among at most `count` slots, beginning with
    /// the slot `from`. Rules with many actions end the step earlier, after at least one slot. Returns the slot at
    /// which the next step begins, or `None` if no slot follows. A caller that copies all rules calls this function
    /// repeatedly. Rules may change between the calls. [`Pipeline::few_places_since`] and [`Pipeline::places_since`]
    /// then return the changed slots.
    pub fn rules_from(
        &self,
        from: usize,
        count: usize,
        now_ns: u64,
        mut see: impl FnMut(usize, FlowStats),
    ) -> Option<usize> {
        let to = self.rules.end_of_step(from, count, STEP_WORK);
        for (place, (rule, _)) in (from..to).zip(self.rules.places(from, to - from)) {
            if let Some(rule) = rule {
                see(place, rule.stats(now_ns));
            }
        }
        (to < self.rules.place_count()).then_some(to)
    }

    /// Returns, in ascending order, the numbers of the slots whose rules were added, changed or
    /// removed since a version of the tables, without a scan over the slots. Returns `None` if
    /// there are too many changes. In this case, [`Pipeline::places_since`] finds the slots.
    #[must_use]
    pub fn few_places_since(&self, version: u64) -> Option<Vec<usize>> {
        self.rules.changed_since(version)
    }

    /// Appends to `found` the numbers of the slots whose rules were added, changed or removed since a version of the
    /// tables. Visits at most `count` slots, beginning with the slot `from`. Returns the slot at which the next step
    /// begins, or `None` if no slot follows.
    pub fn places_since(
        &self,
        version: u64,
        from: usize,
        count: usize,
        found: &mut Vec<usize>,
    ) -> Option<usize> {
        let slots = (from..).zip(self.rules.places(from, count));
        found.extend(slots.filter(|(_, (_, changed))| *changed > version).map(|(place, _)| place));
        let to = from.saturating_add(count);
        (to < self.rules.place_count()).then_some(to)
    }

    /// Returns the number of slots that a caller should copy in one step: the first slots of `places`, at most `most`.
    /// If the rules in the slots have many actions, the step is shorter, but has at least one slot.
    #[must_use]
    pub fn step_of(&self, places: &[usize], most: usize) -> usize {
        let mut work = 0;
        let is_in = |place: &&usize| {
            let is_in = work < STEP_WORK;
            work += self.rules.work_in(**place);
            is_in
        };
        places.iter().take(most).take_while(is_in).count()
    }

    /// Returns the work of copying the actions of the rules in these slots. The unit is the work of visiting one rule
    /// ([`Pipeline::work_of`]).
    #[must_use]
    pub fn work_to_copy(&self, places: &[usize]) -> usize {
        places.iter().map(|place| self.rules.work_in(*place)).sum()
    }

    /// Returns the rule in a slot. Returns `None` if the slot is empty.
    #[must_use]
    pub fn rule_in(&self, place: usize, now_ns: u64) -> Option<FlowStats> {
        self.rules.places(place, 1).next().and_then(|(rule, _)| rule.map(|rule| rule.stats(now_ns)))
    }

    /// Returns three sums over the rules that `filter` selects: the number of packets, the number
    /// of octets, and the number of rules.
    #[must_use]
    pub fn aggregate(&self, filter: &FlowFilter) -> (u64, u64, u32) {
        self.selected(filter).fold((0, 0, 0), |(packets, bytes, flows), (_, rule)| {
            (packets + rule.packets, bytes + rule.bytes, flows + 1)
        })
    }

    /// Returns the counters of every table that is reported to controllers.
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

    /// Returns the groups in ascending order of number.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values().map(|state| &*state.group)
    }

    /// Returns the counters of all groups.
    #[must_use]
    pub fn group_stats(&self, now_ns: u64) -> Vec<GroupStats> {
        let mut references = Tally::default();
        for (_, rule) in self.rules.iter() {
            references.add(|named| rule.instructions.groups(named), |id| self.groups.contains_key(&id));
        }
        for state in self.groups.values() {
            let named = |named: &mut Vec<u32>| named.extend(followers(&state.group));
            references.add(named, |id| self.groups.contains_key(&id));
        }
        self.groups.values().map(|state| state.stats(references.of(state.group.id), now_ns)).collect()
    }

    /// Returns the meters in ascending order of number.
    pub fn meters(&self) -> impl Iterator<Item = &Meter> {
        self.meters.values().map(|state| &*state.meter)
    }

    /// Returns shared references to all meters and all groups, in ascending order of their numbers. No meter
    /// and no group is copied.
    #[must_use]
    pub fn shared_meters_and_groups(&self) -> (Vec<Arc<Meter>>, Vec<Arc<Group>>) {
        let meters = self.meters.values().map(|state| Arc::clone(&state.meter));
        let groups = self.groups.values().map(|state| Arc::clone(&state.group));
        (meters.collect(), groups.collect())
    }

    /// Returns the meter with the number `id`. Returns `None` if the meter does not exist.
    #[must_use]
    pub fn meter(&self, id: u32) -> Option<&Meter> {
        self.meters.get(&id).map(|state| &*state.meter)
    }

    /// Returns the counters of all meters.
    #[must_use]
    pub fn meter_stats(&self, now_ns: u64) -> Vec<MeterStats> {
        let mut uses = Tally::default();
        for (_, rule) in self.rules.iter() {
            uses.add(|named| rule.instructions.meters(named), |id| self.meters.contains_key(&id));
        }
        self.meters.values().map(|state| state.stats(uses.of(state.meter.id), now_ns)).collect()
    }

    /// Adds packets and octets to the counters of a meter, and adds for each band the packets and
    /// octets above the band's rate.
    pub fn credit_meter(&mut self, id: u32, packets: u64, bytes: u64, bands: &[(u64, u64)]) {
        let Some(state) = self.meters.get_mut(&id) else { return };
        (state.packets, state.bytes) = (state.packets + packets, state.bytes + bytes);
        for (own, more) in state.bands.iter_mut().zip(bands) {
            *own = (own.0 + more.0, own.1 + more.1);
        }
    }

    /// Returns the ports of the bridge by OpenFlow port number.
    #[must_use]
    pub fn ports(&self) -> &BTreeMap<u32, FlowPort> {
        &self.ports
    }

    /// Returns the OpenFlow port number of a port of the packet engine. Returns `None` if the port does not belong to
    /// the bridge.
    #[must_use]
    pub fn number_of(&self, id: PortId) -> Option<u32> {
        self.numbers.get(&id).copied()
    }

    /// Adds or changes the port with an OpenFlow port number. Removes the port if `port` is `None`. Flow entries
    /// that refer to the port are kept.
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
            self.events.queue(Event::Port(what, desc));
        }
        let old = match port {
            Some(port) => self.ports.insert(number, port),
            None => self.ports.remove(&number),
        };
        // The lowest of several OpenFlow port numbers for one engine port is used.
        for id in old.iter().map(|old| old.id).chain(self.ports.get(&number).map(|new| new.id)) {
            match self.ports.iter().find(|(_, port)| port.id == id) {
                Some((number, _)) => self.numbers.insert(id, *number),
                None => self.numbers.remove(&id),
            };
        }
        self.touch(Touched::All);
    }

    /// Returns the approximate memory of the tables in octets.
    #[must_use]
    pub fn memory(&self) -> usize {
        let classifiers: usize = self.tables.iter().map(|table| table.classifier.memory()).sum();
        // The actions of all rules are estimated from a sample, because upcalls wait during this call.
        let sample = self.rules.iter().take(SAMPLE);
        let actions = sample.map(|(_, rule)| rule.instructions.apply.capacity() * size_of::<super::Action>());
        let sampled: usize = actions.sum();
        let rules = self.rules.len();
        classifiers + rules * size_of::<Rule>() + sampled / SAMPLE.min(rules).max(1) * rules
    }
}

/// Returns whether a filter of a request selects a rule.
pub(super) fn is_selected(filter: &FlowFilter, rule: &Rule) -> bool {
    (filter.table == ALL_TABLES || filter.table == rule.table)
        && (rule.cookie ^ filter.cookie) & filter.cookie_mask == 0
        && rule.matching.is_within(&filter.matching)
        && filter.out_port.is_none_or(|port| rule.instructions.outputs_to(port))
        && filter.out_group.is_none_or(|group| group == ANY_GROUP || rule.instructions.uses_group(group))
}

/// For each group or meter, the number of rules or groups that refer to the group or meter. One scan over the rules
/// counts the references to all groups or meters, because each scan delays the packets that wait for translation
/// (upcalls).
#[derive(Default, Debug)]
pub(super) struct Tally {
    by_id: HashMap<u32, u32>,
    named: Vec<u32>,
}

impl Tally {
    /// Counts one rule or group that refers to groups or meters. `name` appends the numbers of these groups or meters
    /// to a list. Only numbers for which `is_counted` returns true are counted. `is_counted` must exclude groups and
    /// meters that do not exist, because each counted number uses memory.
    pub(super) fn add(&mut self, name: impl FnOnce(&mut Vec<u32>), is_counted: impl Fn(u32) -> bool) {
        name(&mut self.named);
        self.named.sort_unstable();
        self.named.dedup();
        for id in self.named.drain(..).filter(|id| is_counted(*id)) {
            *self.by_id.entry(id).or_default() += 1;
        }
    }

    pub(super) fn of(&self, id: u32) -> u32 {
        self.by_id.get(&id).copied().unwrap_or(0)
    }

    /// Returns the number of groups or meters to which a rule or group refers.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }
}
