//! A bridge's rules, groups, meters and numbers of ports as a successor gets them: the messages of OpenFlow 1.5 that would make them,
//! in hexadecimal, each rule with what it has counted.

use std::collections::BTreeMap;

use openflow::Version;
use openflow::wire::error::Error;
use openflow::wire::{Reader, flow, group, meter};
use serde::{Deserialize, Serialize};
use switch::flow::{ALL_TABLES, Action, FlowFilter, FlowMod, Match, Mod, Pipeline};

/// Octets of a message's header.
const HEADER: usize = 8;

/// See the [module](self).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RulesLetter {
    /// Meters.
    meters: Vec<String>,
    /// Groups.
    groups: Vec<String>,
    /// Rules.
    rules: Vec<RuleLetter>,
    /// OpenFlow's numbers of ports by name.
    pub numbers: BTreeMap<String, u32>,
}

/// A rule: its message, packets, octets, when it was added and used (CLOCK_MONOTONIC, nanoseconds), and whether its meter is an
/// instruction, which OpenFlow 1.5 has as the first action.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct RuleLetter(String, u64, u64, u64, u64, bool);

impl RulesLetter {
    /// What a bridge has.
    pub fn of(pipeline: &Pipeline, numbers: BTreeMap<String, u32>, now: u64) -> RulesLetter {
        let body = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut octets = Vec::new();
            write(&mut octets);
            hex(&octets)
        };
        let rules = pipeline.flows(&FlowFilter::default(), now).into_iter().map(|stats| {
            let metered = stats.instructions.meter.is_some();
            let mut change = FlowMod::add(stats.table, stats.priority, stats.matching, stats.instructions);
            change.cookie = Some(stats.cookie);
            (change.idle_timeout, change.hard_timeout) = (stats.idle_timeout, stats.hard_timeout);
            (change.importance, change.flags) = (stats.importance, stats.flags);
            let text = body(&|octets| flow::put_mod(octets, Version::V15, 0, &change));
            let (created, used) = (now.saturating_sub(stats.age_ns), now.saturating_sub(stats.idle_ns));
            RuleLetter(text, stats.packets, stats.bytes, created, used, metered)
        });
        RulesLetter {
            meters: pipeline.meters().map(|own| body(&|octets| meter::put_mod(octets, own))).collect(),
            groups: pipeline
                .groups()
                .map(|own| body(&|octets| group::put_mod(octets, Version::V15, own)))
                .collect(),
            rules: rules.collect(),
            numbers,
        }
    }

    /// Gives all to a new bridge; returns how much of it was refused.
    pub fn give(&self, pipeline: &mut Pipeline, now: u64) -> usize {
        let mut refused = 0;
        let mut put = |change: Option<Mod>, pipeline: &mut Pipeline| {
            let done = change.is_some_and(|change| pipeline.modify(&[change], now).is_ok());
            refused += usize::from(!done);
            done
        };
        let all = Mod::Flow(Box::new(FlowMod::delete(ALL_TABLES, Match::ANY)));
        put(Some(all), pipeline);
        for text in &self.meters {
            let read =
                unhex(text).and_then(|octets| meter::get_mod(Reader::new(&octets, Error::BadLength)).ok());
            put(read.map(Mod::Meter), pipeline);
        }
        for text in &self.groups {
            let read = unhex(text)
                .and_then(|octets| group::get_mod(Reader::new(&octets, Error::BadLength), Version::V15).ok());
            put(read.map(Mod::Group), pipeline);
        }
        for RuleLetter(text, packets, bytes, created, used, metered) in &self.rules {
            let mut read = unhex(text).and_then(|octets| {
                let body = octets.get(HEADER..)?;
                flow::get_mod(Reader::new(body, Error::BadLength), Version::V15, false).ok()
            });
            if let Some(instructions) =
                read.as_mut().filter(|_| *metered).map(|change| &mut change.instructions)
                && let Some(Action::Meter(id)) = instructions.apply.first()
            {
                instructions.meter = Some(*id);
                instructions.apply.remove(0);
            }
            let place = read.as_ref().map(|change| (change.table, change.matching, change.priority));
            if put(read.map(|change| Mod::Flow(Box::new(change))), pipeline)
                && let Some((table, matching, priority)) = place
            {
                pipeline.resume_counts(table, &matching, priority, (*packets, *bytes), (*created, *used));
            }
        }
        pipeline.take_events();
        refused
    }
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(octet).collect())?
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
        let band = Band { kind: BandKind::Drop, rate: 100, burst: 10 };
        let meter = Meter { id: 3, packets: true, bursts: true, stats: true, bands: vec![band] };
        let actions = vec![Action::Output { port: 2, max_len: 0 }];
        let bucket =
            Bucket { id: 1, weight: 5, watch_port: None, watch_group: None, actions: actions.clone() };
        let group =
            Group { id: 9, kind: GroupKind::Select, method: SelectMethod::Default, buckets: vec![bucket] };
        let matching = Match::ANY.with(Field::EthType, 0x0800).with(Field::Ipv4Dst, 0x0a00_0001);
        let instructions = Instructions {
            meter: Some(3),
            goto: Some(7),
            ..Instructions::apply(vec![Action::PushVlan(0x8100), Action::Group(9)])
        };
        let mut rule = FlowMod::add(1, 77, matching, instructions);
        (rule.cookie, rule.idle_timeout, rule.importance) = (Some(0xfeed), 300, 4);
        let mods =
            [Mod::Meter(MeterMod::Add(meter)), Mod::Group(GroupMod::Add(group)), Mod::Flow(Box::new(rule))];
        pipeline.modify(&mods, 1_000).unwrap();
        pipeline.resume_counts(1, &matching, 77, (5, 500), (1_000, 2_000));
        let letter = RulesLetter::of(&pipeline, BTreeMap::new(), 3_000);
        let mut other = Pipeline::new();
        assert_eq!(letter.give(&mut other, 4_000), 0);
        let all = FlowFilter::default();
        assert_eq!(other.flows(&all, 5_000), pipeline.flows(&all, 5_000));
        assert!(other.groups().eq(pipeline.groups()) && other.meters().eq(pipeline.meters()));
    }
}
