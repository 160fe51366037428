//! Flow entries, groups, meters and port numbers of a bridge in the form in which they are sent to a successor process,
//! or written to a rule file ([`super::stored_flows`]). This form consists of OpenFlow 1.5 messages that would create
//! the objects, and of the counters of each flow entry.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use engine::slow_path::KnownFlow;
use openflow::Version;
use openflow::wire::error::Error;
use openflow::wire::ofp::msg;
use openflow::wire::{Put, Reader, begin, flow, group, meter};
use packet::PortId;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use switch::flow::{
    ALL_TABLES, Action, FlowFilter, FlowFlags, FlowMod, FlowStats, Group, Match, Meter, Miss, Mod,
    OptionsMod, Pipeline, TableWishes, TunnelOption,
};

use crate::record_list::serialize_as_list;

/// Size in octets of the header of an OpenFlow message.
const HEADER: usize = 8;
/// Hexadecimal digits, by value.
const DIGITS: [u8; 16] = *b"0123456789abcdef";
/// Number of flow entries that are added to a bridge in one batch. After each batch, the events about the added entries
/// are discarded.
const BATCH: usize = 1024;

/// State of one OpenFlow bridge for a hand-over or a rule file: flow entries, groups, meters, table settings and port
/// numbers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RulesRecord {
    /// OpenFlow messages that create the bridge's meters.
    pub(super) meters: Vec<Message>,
    /// OpenFlow messages that create the bridge's groups.
    pub(super) groups: Vec<Message>,
    /// Flow entries of the bridge, with their counters.
    pub(super) rules: Vec<RuleRecord>,
    /// OpenFlow port numbers of the bridge's ports, by port name.
    pub numbers: BTreeMap<String, u32>,
    /// Flow table settings that controllers have made.
    #[serde(default)]
    pub(super) tables: Vec<TableRecord>,
    /// Geneve tunnel options that controllers have mapped to match fields.
    #[serde(default)]
    pub(super) options: Vec<OptionRecord>,
    /// State of the OpenFlow datapath, only for a successor. Rule files do not contain it.
    #[serde(default)]
    #[serde(alias = "leader")]
    pub(super) of_datapath: Option<OfDatapathRecord>,
}

impl RulesRecord {
    /// Returns the total number of flow entries, groups and meters.
    pub fn count(&self) -> usize {
        self.rules.len() + self.groups.len() + self.meters.len()
    }
}

/// State of a bridge's OpenFlow datapath for a hand-over, apart from the flow tables.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct OfDatapathRecord {
    /// Port configuration that controllers have set: `OFPPC_*` bits by OpenFlow port number.
    pub configs: BTreeMap<u32, u32>,
    /// Treatment of IP fragments that a controller has set (switch configuration): `OFPC_FRAG_*` bits.
    #[serde(default)]
    pub fragments: u16,
    /// Whether the standalone flow entry (with the action `NORMAL`) was added by the daemon and not by a
    /// controller.
    pub begun: bool,
    /// Whether the bridge is in standalone mode, because all controllers have been disconnected for too long.
    pub alone: bool,
}

/// A megaflow that a worker has cached.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct MegaflowRecord {
    /// Number of the worker that has cached the megaflow.
    worker: u16,
    /// Number of the megaflow's bridge in the data path.
    bridge: u16,
    /// Number of the megaflow's port in the data path.
    port: u16,
    /// Bit mask that states which words of the slow path's flow key are in `words`.
    present: u64,
    /// Words of the slow path's flow key whose bits are set in `present`.
    words: Vec<u64>,
}

serialize_as_list!(MegaflowRecord { worker, bridge, port, present, words });

impl MegaflowRecord {
    /// Converts a cached megaflow into the form for a hand-over.
    pub fn of(flow: &KnownFlow) -> MegaflowRecord {
        let KnownFlow { worker, bridge, port, present, words } = flow.clone();
        MegaflowRecord { worker, bridge, port: port.0, present, words }
    }

    /// Converts a megaflow from a hand-over into a cached megaflow.
    pub fn read(&self) -> KnownFlow {
        let MegaflowRecord { worker, bridge, port, present, words } = self.clone();
        KnownFlow { worker, bridge, port: PortId(port), present, words }
    }
}

/// Settings that controllers have made for a flow table.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(super) struct TableRecord {
    /// Number of the flow table.
    pub table: u8,
    /// Name of the flow table.
    pub name: String,
    /// Whether entries of the flow table may be evicted when the table is full.
    pub evicts: bool,
    /// Thresholds of vacancy events in percent of free space (down, up). `None` if vacancy events are disabled.
    pub vacancy: Option<(u8, u8)>,
    /// Behaviour of the flow table for packets that match no entry (0 default, 1 controller, 2 continue, 3 drop).
    #[serde(default)]
    pub miss: u8,
}

serialize_as_list!(TableRecord { table, name, evicts, vacancy, miss });

const MISSES: [Miss; 4] = [Miss::Default, Miss::Controller, Miss::Continue, Miss::Drop];

/// A Geneve tunnel option that controllers have mapped to a match field.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub(super) struct OptionRecord {
    /// Class of the Geneve option.
    pub class: u16,
    /// Type of the Geneve option.
    pub kind: u8,
    /// Length of the Geneve option's data in octets.
    pub octets: u8,
    /// Number of the match field to which the Geneve option is mapped.
    pub place: u16,
}

serialize_as_list!(OptionRecord { class, kind, octets, place });

/// The octets of an OpenFlow message, serialised as hexadecimal text.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Message(pub Vec<u8>);

/// A flow entry. All times are in nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub(super) struct RuleRecord {
    /// OpenFlow message that adds the flow entry.
    pub message: Message,
    /// Number of packets that matched the flow entry.
    pub packets: u64,
    /// Number of octets of the packets that matched the flow entry.
    pub octets: u64,
    /// Time when the flow entry was added, in nanoseconds of CLOCK_MONOTONIC.
    pub created: u64,
    /// Time when the flow entry was last used, in nanoseconds of CLOCK_MONOTONIC.
    pub used: u64,
    /// Whether the first action in `message` stands for a meter instruction. The message format, OpenFlow 1.5, has no
    /// meter instruction, but only a meter action.
    pub metered: bool,
    /// Time of the last change of the flow entry, in nanoseconds of CLOCK_MONOTONIC. 0 if the entry was never changed,
    /// or if the predecessor does not send the field.
    #[serde(default)]
    pub changed: u64,
}

serialize_as_list!(RuleRecord { message, packets, octets, created, used, metered, changed });

impl Message {
    fn of(write: impl FnOnce(&mut Vec<u8>)) -> Message {
        let mut octets = Vec::new();
        write(&mut octets);
        Message(octets)
    }
}

impl RuleRecord {
    /// Converts a flow entry with its statistics into the form for a hand-over or a rule file. `now` is the time at
    /// which the statistics were read.
    pub(super) fn of(stats: FlowStats, now: u64) -> RuleRecord {
        let metered = stats.instructions.meter.is_some();
        let mut change = FlowMod::add(stats.table, stats.priority, stats.matching, stats.instructions);
        change.cookie = Some(stats.cookie);
        (change.idle_timeout, change.hard_timeout) = (stats.idle_timeout, stats.hard_timeout);
        (change.importance, change.flags) = (stats.importance, stats.flags);
        let message = RuleRecord::message(&change);
        let (created, used) = (now.saturating_sub(stats.age_ns), now.saturating_sub(stats.idle_ns));
        let changed = now.saturating_sub(stats.unchanged_ns);
        let (packets, octets) = (stats.packets, stats.bytes);
        RuleRecord { message, packets, octets, created, used, metered, changed }
    }

    /// Returns the OpenFlow message that adds a flow entry.
    pub(super) fn message(change: &FlowMod) -> Message {
        // A flow entry of an earlier release may not fit into an OpenFlow message. Therefore, the length
        // field, which `read` does not use, is then 65,535.
        Message::of(|octets| {
            let start = begin(octets, Version::V15, msg::OFPT_FLOW_MOD, 0);
            flow::put_mod_body(octets, Version::V15, change);
            octets.set_length(start, 2);
        })
    }

    /// Decodes the OpenFlow message that adds the flow entry. Returns `None` if the message is invalid.
    pub(super) fn read(&self) -> Option<FlowMod> {
        let body = self.message.0.get(HEADER..)?;
        let mut change = flow::get_mod(Reader::new(body, Error::BadLength), Version::V15, false).ok()?;
        let instructions = &mut change.instructions;
        if self.metered
            && let Some(Action::Meter(id)) = instructions.apply.first()
        {
            instructions.meter = Some(*id);
            instructions.apply.remove(0);
        }
        Some(change)
    }
}

impl TableRecord {
    pub(super) fn all(pipeline: &Pipeline) -> Vec<TableRecord> {
        let record = |(table, own): (u8, &TableWishes)| {
            let miss = (0..).zip(MISSES).find(|(_, miss)| *miss == own.miss).map_or(0, |(at, _)| at);
            TableRecord { table, name: own.name.clone(), evicts: own.evicts, vacancy: own.vacancy, miss }
        };
        pipeline.wished_tables().map(record).collect()
    }
}

impl OptionRecord {
    pub(super) fn all(pipeline: &Pipeline) -> Vec<OptionRecord> {
        let record = |own: &TunnelOption| {
            let TunnelOption { class, kind, octets, place } = *own;
            OptionRecord { class, kind, octets, place }
        };
        pipeline.tunnel_options().iter().map(record).collect()
    }

    fn read(self) -> TunnelOption {
        let OptionRecord { class, kind, octets, place } = self;
        TunnelOption { class, kind, octets, place }
    }
}

/// Meters and groups of a bridge, shared with the bridge's flow tables.
pub(super) type MetersAndGroups = (Vec<Arc<Meter>>, Vec<Arc<Group>>);

/// Returns the messages that create a bridge's meters and groups. The messages are encoded while the flow
/// tables are not locked, because groups may have many buckets.
pub(super) fn meters_and_groups((meters, groups): &MetersAndGroups) -> (Vec<Message>, Vec<Message>) {
    let meter = |own: &Arc<Meter>| Message::of(|octets| meter::put_mod(octets, own));
    let group = |own: &Arc<Group>| Message::of(|octets| group::put_mod(octets, Version::V15, own));
    (meters.iter().map(meter).collect(), groups.iter().map(group).collect())
}

impl RulesRecord {
    /// Converts a bridge's flow tables into the form for a hand-over or a rule file. `now` is the current time in
    /// nanoseconds.
    pub fn of(pipeline: &Pipeline, numbers: BTreeMap<String, u32>, now: u64) -> RulesRecord {
        let (meters, groups) = meters_and_groups(&pipeline.shared_meters_and_groups());
        let rules = pipeline.flows(&FlowFilter::default(), now).into_iter();
        RulesRecord {
            meters,
            groups,
            rules: rules.map(|stats| RuleRecord::of(stats, now)).collect(),
            numbers,
            tables: TableRecord::all(pipeline),
            options: OptionRecord::all(pipeline),
            of_datapath: None,
        }
    }

    /// Adds all flow entries, groups, meters and settings to a new bridge. Returns the number of objects that the
    /// bridge refused.
    pub fn give(&self, pipeline: &mut Pipeline, now: u64) -> usize {
        let mut refused = 0;
        let all = Mod::Flow(Box::new(FlowMod::delete(ALL_TABLES, Match::ANY)));
        refused += usize::from(pipeline.modify(&[all], now).is_err());
        for TableRecord { table, name, evicts, vacancy, miss } in &self.tables {
            let miss = MISSES.get(usize::from(*miss)).copied().unwrap_or_default();
            let wishes = TableWishes { name: name.clone(), miss, evicts: *evicts, vacancy: *vacancy };
            pipeline.set_table_wishes(*table, wishes, now);
        }
        // The options are mapped before any flow entry refers to the fields.
        let options = self.options.iter().map(|record| record.read()).collect();
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
                    // The overlap check was made when the entry was first added. Here, entries that were added later
                    // may come first.
                    change.flags = FlowFlags { check_overlap: false, reset_counts: false, ..change.flags };
                }
                let times = (rule.created, rule.created.max(rule.changed), rule.used);
                if put(read.map(|change| Mod::Flow(Box::new(change))), pipeline)
                    && let Some((table, matching, priority, flags)) = place
                {
                    pipeline.resume_flags(table, &matching, priority, flags);
                    pipeline.resume_counts(table, &matching, priority, (rule.packets, rule.octets), times);
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
        let mut text = String::with_capacity(2 * self.0.len());
        for octet in &self.0 {
            for digit in [octet >> 4, octet & 15] {
                text.push(char::from(DIGITS[usize::from(digit)]));
            }
        }
        to.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(Hexadecimal)
    }
}

/// Visitor that decodes the octets of a message from hexadecimal text, without a copy of the text.
struct Hexadecimal;

impl de::Visitor<'_> for Hexadecimal {
    type Value = Message;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a message in hexadecimal")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Message, E> {
        let (pairs, rest) = text.as_bytes().as_chunks();
        let octet = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
        let octets: Option<Vec<u8>> = pairs.iter().map(octet).collect();
        let whole = octets.filter(|_| rest.is_empty());
        whole.map(Message).ok_or_else(|| E::custom("a message that is not in hexadecimal"))
    }
}

/// Returns the value of a hexadecimal digit.
fn digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
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
    fn messages_are_hexadecimal_text() {
        let message = Message((0..=u8::MAX).collect());
        let text = serde_json::to_string(&message).unwrap();
        assert!(text.starts_with("\"000102") && text.ends_with("fdfeff\""), "{text}");
        assert_eq!(serde_json::from_str::<Message>(&text).unwrap(), message);
        assert_eq!(serde_json::from_str::<Message>("\"aAfF\"").unwrap(), Message(vec![0xaa, 0xff]));
        for wrong in ["\"0\"", "\"0g\"", "\"+1\"", "\"é\"", "7"] {
            assert!(serde_json::from_str::<Message>(wrong).is_err(), "{wrong}");
        }
    }

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
        let record = RulesRecord::of(&pipeline, BTreeMap::new(), 3_000);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<RulesRecord>(&text).unwrap(), record);
        let mut other = Pipeline::new();
        assert_eq!(record.give(&mut other, 4_000), 0);
        let all = FlowFilter::default();
        assert_eq!(other.flows(&all, 5_000), pipeline.flows(&all, 5_000));
        assert_eq!(other.tunnel_options(), pipeline.tunnel_options());
        assert!(other.wished_tables().eq([(254, &wishes)]));
        // Encoded state of an earlier release, which has no table settings.
        let mut older: serde_json::Value = serde_json::from_str(&text).unwrap();
        older.as_object_mut().unwrap().remove("tables").unwrap();
        assert_eq!(serde_json::from_value::<RulesRecord>(older).unwrap().rules, record.rules);
        assert!(other.groups().eq(pipeline.groups()) && other.meters().eq(pipeline.meters()));
    }
}
