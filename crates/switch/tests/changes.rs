//! Changes of rules, groups and meters: what they reach, that they are whole, and what is counted and copied of them.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod rules;

use std::collections::BTreeMap;

use packet::PortId;
use rules::{add, from, out, pipeline, run, tcp};
use switch::flow::{
    Action, Band, BandKind, Bucket, Field, FlowCommand, FlowError, FlowFilter, FlowMod, FlowStats, Group,
    GroupKind, GroupMod, Instructions, Match, Meter, MeterMod, Mod, Pipeline, SelectMethod,
};

#[test]
fn a_batch_is_done_whole_or_not_at_all() {
    let mut pipeline = pipeline();
    add(&mut pipeline, 0, 1, Match::ANY, vec![out(2)]);
    add(&mut pipeline, 0, 2, Match::ANY.with(Field::InPort, 1), vec![out(3)]);
    pipeline.take_events();
    let before = pipeline.flows(&FlowFilter::default(), 0);
    let flow_mod = |change| Mod::Flow(Box::new(change));
    let batch = [
        flow_mod(FlowMod::add(0, 1, Match::ANY, Instructions::apply(vec![out(4)]))),
        flow_mod(FlowMod::delete(0, Match::ANY)),
        flow_mod(FlowMod::add(3, 9, Match::ANY, Instructions::apply(vec![out(4)]))),
        flow_mod(FlowMod::add(0, 1, Match::ANY, Instructions::apply(vec![Action::Group(9)]))),
    ];
    assert_eq!(pipeline.modify(&batch, 5), Err((3, FlowError::BadOutGroup)));
    assert_eq!(pipeline.flows(&FlowFilter::default(), 0), before);
    assert_eq!(pipeline.take_events(), []);
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    assert_eq!(run(&pipeline, &frame, 1)[0].0, PortId(3));
    assert_eq!(run(&pipeline, &frame, 2), [], "to itself");
    pipeline.modify(&batch[..3], 5).unwrap();
    assert_eq!(pipeline.rule_count(), 1);
}

#[test]
fn a_copy_in_parts_is_what_there_was_at_its_end() {
    let mut pipeline = pipeline();
    let rule = |n: u32| {
        let matching = Match::ANY.with(Field::Reg0, u128::from(n));
        FlowMod::add(0, 1, matching, Instructions::apply(vec![out(2)]))
    };
    let put = |pipeline: &mut Pipeline, change: FlowMod| {
        pipeline.modify(&[Mod::Flow(Box::new(change))], 0).unwrap();
    };
    (0..100).for_each(|n| put(&mut pipeline, rule(n)));
    let began = pipeline.version();
    let mut copy = BTreeMap::new();
    let mut from = 0;
    loop {
        let more = pipeline.rules_from(from, 7, 0, |place, stats| {
            copy.insert(place, stats);
        });
        if !more {
            break;
        }
        from += 7;
        // Behind and before where it stands: one goes, one comes, one does something else, and a batch comes to nothing.
        let n = u32::try_from(from).unwrap();
        put(&mut pipeline, FlowMod::delete(0, rule(n * 5 % 100).matching));
        put(&mut pipeline, rule(1000 + n));
        let mut other = rule(n * 3 % 100);
        other.command = FlowCommand::Modify { strict: true, or_add: false };
        other.instructions = Instructions::apply(vec![out(3)]);
        put(&mut pipeline, other);
        let wrong =
            FlowMod::add(0, 1, Match::ANY, Instructions { meter: Some(9), ..Instructions::default() });
        let batch = [FlowMod::delete(0, Match::ANY), wrong].map(|change| Mod::Flow(Box::new(change)));
        pipeline.modify(&batch, 0).unwrap_err();
    }
    pipeline.rules_since(began, 0, |place, stats| {
        copy.remove(&place);
        copy.extend(stats.map(|stats| (place, stats)));
    });
    let key = |stats: &FlowStats| stats.matching.exact(Field::Reg0);
    let mut copied: Vec<FlowStats> = copy.into_values().collect();
    let mut present = pipeline.flows(&FlowFilter::default(), 0);
    copied.sort_by_key(key);
    present.sort_by_key(key);
    assert_eq!(copied, present);
    assert!(copied.len() > 50);
}

#[test]
fn modify_and_delete_reach_what_they_name() {
    let mut pipeline = pipeline();
    let ip = Match::ANY.with(Field::EthType, 0x0800);
    add(&mut pipeline, 0, 5, ip, vec![out(2)]);
    add(&mut pipeline, 0, 6, ip.with(Field::Ipv4Dst, 0x0a00_0002), vec![out(3)]);
    add(&mut pipeline, 0, 5, Match::ANY.with(Field::EthType, 0x0806), vec![out(2)]);
    let mut change = FlowMod::add(0, 5, ip, Instructions::apply(vec![out(4)]));
    change.command = FlowCommand::Modify { strict: false, or_add: false };
    change.cookie = None;
    pipeline.modify(&[Mod::Flow(Box::new(change.clone()))], 0).unwrap();
    let to = |filter: &FlowFilter, pipeline: &Pipeline| pipeline.flows(filter, 0).len();
    let by_port = |port| FlowFilter { out_port: Some(port), ..FlowFilter::default() };
    assert_eq!((to(&by_port(4), &pipeline), to(&by_port(2), &pipeline)), (2, 1));
    change.command = FlowCommand::Delete { strict: true };
    change.table = switch::flow::ALL_TABLES;
    pipeline.modify(&[Mod::Flow(Box::new(change))], 0).unwrap();
    assert_eq!(pipeline.rule_count(), 2);
    let mut all = FlowMod::delete(switch::flow::ALL_TABLES, Match::ANY);
    all.out_port = Some(4);
    pipeline.modify(&[Mod::Flow(Box::new(all))], 0).unwrap();
    assert_eq!(pipeline.rule_count(), 1);
}

/// Who names a group or a meter several times counts once; a group's followers count, and so does what is inside a clone.
#[test]
fn statistics_count_who_goes_by_groups_and_meters() {
    let mut pipeline = pipeline();
    let group = |id, actions| {
        let bucket = Bucket { id: 0, weight: 1, watch_port: None, watch_group: None, actions };
        let kind = GroupKind::Indirect;
        Mod::Group(GroupMod::Add(Group { id, kind, method: SelectMethod::Default, buckets: vec![bucket] }))
    };
    let bands = vec![Band { kind: BandKind::Drop, rate: 1, burst: 1 }];
    let meter = |id| {
        Mod::Meter(MeterMod::Add(Meter {
            id,
            packets: true,
            bursts: true,
            stats: true,
            bands: bands.clone(),
        }))
    };
    let made =
        [group(1, vec![out(1)]), group(2, vec![Action::Group(1)]), group(3, vec![]), meter(7), meter(8)];
    pipeline.modify(&made, 0).unwrap();
    let twice = vec![Action::Group(1), Action::Clone(vec![Action::Group(1), Action::Group(2)])];
    add(&mut pipeline, 0, 1, from(1), twice);
    let metered = Action::Clone(vec![Action::Meter(7), out(1)]);
    add(&mut pipeline, 0, 1, from(2), vec![metered, Action::Meter(7), Action::Group(2)]);
    let mut whole = FlowMod::add(1, 1, from(3), Instructions::apply(vec![Action::Meter(7)]));
    whole.instructions.meter = Some(7);
    pipeline.modify(&[Mod::Flow(Box::new(whole))], 0).unwrap();
    let groups: BTreeMap<u32, u32> =
        pipeline.group_stats(0).iter().map(|stats| (stats.id, stats.references)).collect();
    assert_eq!(groups, [(1, 2), (2, 2), (3, 0)].into());
    let meters: BTreeMap<u32, u32> =
        pipeline.meter_stats(0).iter().map(|stats| (stats.id, stats.flows)).collect();
    assert_eq!(meters, [(7, 2), (8, 0)].into());
    // A copy's meter, too, takes its rule along when it goes.
    add(&mut pipeline, 0, 1, from(4), vec![Action::Clone(vec![Action::Meter(8), out(1)])]);
    pipeline.modify(&[Mod::Meter(MeterMod::Delete(Some(8)))], 0).unwrap();
    assert_eq!(pipeline.flows(&FlowFilter::default(), 0).len(), 3);
    pipeline.modify(&[Mod::Meter(MeterMod::Delete(None))], 0).unwrap();
    assert_eq!(pipeline.flows(&FlowFilter::default(), 0).len(), 1);
}
