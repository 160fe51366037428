//! A bridge's rules, groups, meters and numbers of ports as a successor process gets them, or the next one after a kill
//! ([`super::kept`]): the messages of OpenFlow 1.5 that would make them, each rule with what it has counted.

use std::collections::BTreeMap;

use engine::decider::KnownFlow;
use openflow::Version;
use openflow::wire::error::Error;
use openflow::wire::{Reader, flow, group, meter};
use packet::PortId;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use switch::flow::{
    ALL_TABLES, Action, FlowFilter, FlowFlags, FlowMod, FlowStats, Match, Miss, Mod, OptionsMod, Pipeline,
    TableWishes, TunnelOption,
};

/// Octets of a message's header.
const HEADER: usize = 8;
/// Rules that are added before what happened by it is forgotten.
const BATCH: usize = 1024;

/// See the [module](self).
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RulesLetter {
    /// Meters.
    pub(super) meters: Vec<Message>,
    /// Groups.
    pub(super) groups: Vec<Message>,
    /// Rules.
    pub(super) rules: Vec<RuleLetter>,
    /// OpenFlow's numbers of ports by name.
    pub numbers: BTreeMap<String, u32>,
    /// What controllers have said of tables.
    #[serde(default)]
    pub(super) tables: Vec<TableLetter>,
    /// What options of tunnels are mapped to.
    #[serde(default)]
    pub(super) options: Vec<OptionLetter>,
    /// What only the next process gets, not the one after a kill.
    #[serde(default)]
    pub(super) leader: Option<LeaderLetter>,
}

impl RulesLetter {
    /// Returns the number of rules, groups and meters.
    pub fn count(&self) -> usize {
        self.rules.len() + self.groups.len() + self.meters.len()
    }
}

/// How a bridge stands to its controllers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct LeaderLetter {
    /// What they have changed of ports, by number: OFPPC_* bits.
    pub configs: BTreeMap<u32, u32>,
    /// What becomes of fragments: OFPC_FRAG_* bits.
    #[serde(default)]
    pub fragments: u16,
    /// The rule of standing alone is there because of us.
    pub begun: bool,
    /// They have been away for so long that it stands alone.
    pub alone: bool,
}

/// A flow that a worker has cached: worker, bridge, port, and the bits that it depends on as the decider has them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KnownLetter(u16, u16, u16, u64, Vec<u64>);

impl KnownLetter {
    /// As a letter has it.
    pub fn of(flow: &KnownFlow) -> KnownLetter {
        KnownLetter(flow.worker, flow.bridge, flow.port.0, flow.present, flow.words.clone())
    }

    /// What it says.
    pub fn read(&self) -> KnownFlow {
        let KnownLetter(worker, bridge, port, present, words) = self.clone();
        KnownFlow { worker, bridge, port: PortId(port), present, words }
    }
}

/// What controllers have said of a table: its number and name, whether rules make room for others, when they are told how full it is, and
/// what becomes of packets that no rule matches (0 default, 1 controller, 2 continue, 3 drop).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct TableLetter(pub u8, pub String, pub bool, pub Option<(u8, u8)>, #[serde(default)] pub u8);

const MISSES: [Miss; 4] = [Miss::Default, Miss::Controller, Miss::Continue, Miss::Drop];

/// An option of tunnels: its class, type and octets, and the number of the field that it is mapped to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct OptionLetter(pub u16, pub u8, pub u8, pub u16);

/// A message's octets; in texts: hexadecimal.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Message(pub Vec<u8>);

/// A rule: its message, packets, octets, when it was added and used (CLOCK_MONOTONIC, nanoseconds), whether its meter is an
/// instruction, which OpenFlow 1.5 has as the first action, and when it was changed last (0, as predecessors have it: never).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct RuleLetter(
    pub Message,
    pub u64,
    pub u64,
    pub u64,
    pub u64,
    pub bool,
    #[serde(default)] pub u64,
);

impl Message {
    fn of(write: impl FnOnce(&mut Vec<u8>)) -> Message {
        let mut octets = Vec::new();
        write(&mut octets);
        Message(octets)
    }
}

impl RuleLetter {
    /// A rule as it was at `now`.
    pub(super) fn of(stats: FlowStats, now: u64) -> RuleLetter {
        let metered = stats.instructions.meter.is_some();
        let mut change = FlowMod::add(stats.table, stats.priority, stats.matching, stats.instructions);
        change.cookie = Some(stats.cookie);
        (change.idle_timeout, change.hard_timeout) = (stats.idle_timeout, stats.hard_timeout);
        (change.importance, change.flags) = (stats.importance, stats.flags);
        let message = RuleLetter::message(&change);
        let (created, used) = (now.saturating_sub(stats.age_ns), now.saturating_sub(stats.idle_ns));
        let changed = now.saturating_sub(stats.unchanged_ns);
        RuleLetter(message, stats.packets, stats.bytes, created, used, metered, changed)
    }

    /// The message that adds a rule.
    pub(super) fn message(change: &FlowMod) -> Message {
        Message::of(|octets| flow::put_mod(octets, Version::V15, 0, change))
    }

    /// What adds it.
    pub(super) fn read(&self) -> Option<FlowMod> {
        let RuleLetter(message, .., metered, _) = self;
        let body = message.0.get(HEADER..)?;
        let mut change = flow::get_mod(Reader::new(body, Error::BadLength), Version::V15, false).ok()?;
        let instructions = &mut change.instructions;
        if *metered && let Some(Action::Meter(id)) = instructions.apply.first() {
            instructions.meter = Some(*id);
            instructions.apply.remove(0);
        }
        Some(change)
    }
}

impl TableLetter {
    pub(super) fn all(pipeline: &Pipeline) -> Vec<TableLetter> {
        let letter = |(table, own): (u8, &TableWishes)| {
            let miss = (0..).zip(MISSES).find(|(_, miss)| *miss == own.miss).map_or(0, |(at, _)| at);
            TableLetter(table, own.name.clone(), own.evicts, own.vacancy, miss)
        };
        pipeline.wished_tables().map(letter).collect()
    }
}

impl OptionLetter {
    pub(super) fn all(pipeline: &Pipeline) -> Vec<OptionLetter> {
        let letter = |own: &TunnelOption| OptionLetter(own.class, own.kind, own.octets, own.place);
        pipeline.tunnel_options().iter().map(letter).collect()
    }

    fn read(self) -> TunnelOption {
        let OptionLetter(class, kind, octets, place) = self;
        TunnelOption { class, kind, octets, place }
    }
}

/// The messages that make a bridge's meters and groups.
pub(super) fn meters_and_groups(pipeline: &Pipeline) -> (Vec<Message>, Vec<Message>) {
    let meter = |own| Message::of(|octets| meter::put_mod(octets, own));
    let group = |own| Message::of(|octets| group::put_mod(octets, Version::V15, own));
    (pipeline.meters().map(meter).collect(), pipeline.groups().map(group).collect())
}

impl RulesLetter {
    /// What a bridge has.
    pub fn of(pipeline: &Pipeline, numbers: BTreeMap<String, u32>, now: u64) -> RulesLetter {
        let (meters, groups) = meters_and_groups(pipeline);
        let rules = pipeline.flows(&FlowFilter::default(), now).into_iter();
        RulesLetter {
            meters,
            groups,
            rules: rules.map(|stats| RuleLetter::of(stats, now)).collect(),
            numbers,
            tables: TableLetter::all(pipeline),
            options: OptionLetter::all(pipeline),
            leader: None,
        }
    }

    /// Gives all to a new bridge; returns how much of it was refused.
    pub fn give(&self, pipeline: &mut Pipeline, now: u64) -> usize {
        let mut refused = 0;
        let all = Mod::Flow(Box::new(FlowMod::delete(ALL_TABLES, Match::ANY)));
        refused += usize::from(pipeline.modify(&[all], now).is_err());
        for TableLetter(table, name, evicts, vacancy, miss) in &self.tables {
            let miss = MISSES.get(usize::from(*miss)).copied().unwrap_or_default();
            let wishes = TableWishes { name: name.clone(), miss, evicts: *evicts, vacancy: *vacancy };
            pipeline.set_table_wishes(*table, wishes, now);
        }
        // Before whatever speaks of the fields.
        let options = self.options.iter().map(|letter| letter.read()).collect();
        let mapped = pipeline
            .change_tunnel_options(&OptionsMod::Clear)
            .and_then(|()| pipeline.change_tunnel_options(&OptionsMod::Add(options)));
        refused += usize::from(mapped.is_err());
        let mut put = |change: Option<Mod>, pipeline: &mut Pipeline| {
            let done = change.is_some_and(|change| pipeline.modify(&[change], now).is_ok());
            refused += usize::from(!done);
            done
        };
        for message in &self.meters {
            let read = meter::get_mod(Reader::new(&message.0, Error::BadLength)).ok();
            put(read.map(Mod::Meter), pipeline);
        }
        for message in &self.groups {
            let read = group::get_mod(Reader::new(&message.0, Error::BadLength), Version::V15).ok();
            put(read.map(Mod::Group), pipeline);
        }
        for batch in self.rules.chunks(BATCH) {
            for rule in batch {
                let mut read = rule.read();
                let place = read
                    .as_ref()
                    .map(|change| (change.table, change.matching, change.priority, change.flags));
                if let Some(change) = &mut read {
                    // It was checked when it was added, against rules that were there then: others have come since, and stand before it here.
                    change.flags = FlowFlags { check_overlap: false, reset_counts: false, ..change.flags };
                }
                let RuleLetter(_, packets, bytes, created, used, _, changed) = rule;
                let times = (*created, *created.max(changed), *used);
                if put(read.map(|change| Mod::Flow(Box::new(change))), pipeline)
                    && let Some((table, matching, priority, flags)) = place
                {
                    pipeline.resume_flags(table, &matching, priority, flags);
                    pipeline.resume_counts(table, &matching, priority, (*packets, *bytes), times);
                }
            }
            pipeline.take_events();
        }
        pipeline.take_events();
        refused
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let digits = |octet: &u8| [octet >> 4, octet & 15];
        let digit = |digit: u8| char::from_digit(digit.into(), 16).unwrap_or_default();
        to.serialize_str(&self.0.iter().flat_map(digits).map(digit).collect::<String>())
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let octets: Option<Vec<u8>> = text.as_bytes().chunks(2).map(octet).collect();
        let whole = octets.filter(|_| text.len().is_multiple_of(2));
        whole.map(Message).ok_or_else(|| de::Error::custom("a message that is not in hexadecimal"))
    }
}

#[cfg(test)]
mod tests {
    use switch::flow::{
        Band, BandKind, Bucket, Field, Group, GroupKind, GroupMod, Instructions, Meter, MeterMod,
        SelectMethod,
    };

    use super::*;

    #[test]
    fn a_successor_has_what_there_was() {
        let mut pipeline = Pipeline::new();
        let option = TunnelOption { class: 0x0102, kind: 0x80, octets: 4, place: 3 };
        pipeline.change_tunnel_options(&OptionsMod::Add(vec![option])).unwrap();
        let band = Band { kind: BandKind::Drop, rate: 100, burst: 10 };
        let meter = Meter { id: 3, packets: true, bursts: true, stats: true, bands: vec![band] };
        let actions = vec![Action::Output { port: 2, max_len: 0 }];
        let bucket =
            Bucket { id: 1, weight: 5, watch_port: None, watch_group: None, actions: actions.clone() };
        let group =
            Group { id: 9, kind: GroupKind::Select, method: SelectMethod::Default, buckets: vec![bucket] };
        let matching = Match::ANY.with(Field::EthType, 0x0800).with(Field::Ipv4Dst, 0x0a00_0001);
        let set = Action::Set { field: Field::TunMetadata3, value: 9, mask: u64::MAX.into(), load: false };
        let instructions = Instructions {
            meter: Some(3),
            goto: Some(7),
            ..Instructions::apply(vec![Action::PushVlan(0x8100), set, Action::Group(9)])
        };
        let mut rule = FlowMod::add(1, 77, matching, instructions);
        (rule.cookie, rule.idle_timeout, rule.importance) = (Some(0xfeed), 300, 4);
        let mods =
            [Mod::Meter(MeterMod::Add(meter)), Mod::Group(GroupMod::Add(group)), Mod::Flow(Box::new(rule))];
        pipeline.modify(&mods, 1_000).unwrap();
        pipeline.resume_counts(1, &matching, 77, (5, 500), (1_000, 1_500, 2_000));
        let wishes = TableWishes {
            name: "acl".to_owned(),
            miss: Miss::Continue,
            evicts: true,
            vacancy: Some((20, 80)),
        };
        pipeline.set_table_wishes(254, wishes.clone(), 1_000);
        let letter = RulesLetter::of(&pipeline, BTreeMap::new(), 3_000);
        let text = serde_json::to_string(&letter).unwrap();
        assert_eq!(serde_json::from_str::<RulesLetter>(&text).unwrap(), letter);
        let mut other = Pipeline::new();
        assert_eq!(letter.give(&mut other, 4_000), 0);
        let all = FlowFilter::default();
        assert_eq!(other.flows(&all, 5_000), pipeline.flows(&all, 5_000));
        assert_eq!(other.tunnel_options(), pipeline.tunnel_options());
        assert!(other.wished_tables().eq([(254, &wishes)]));
        // One that was written before tables had anything to be kept.
        let mut older: serde_json::Value = serde_json::from_str(&text).unwrap();
        older.as_object_mut().unwrap().remove("tables").unwrap();
        assert_eq!(serde_json::from_value::<RulesLetter>(older).unwrap().rules, letter.rules);
        assert!(other.groups().eq(pipeline.groups()) && other.meters().eq(pipeline.meters()));
    }
}
