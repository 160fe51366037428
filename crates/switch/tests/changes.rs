//! Tests of changes of rules, groups and meters: scope, atomicity, counters and copies.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "test code, which may read clocks")]

mod rules;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use packet::PortId;
use rules::{add, from, out, pipeline, run, set, tcp};
use switch::flow::{
    Action, Band, BandKind, Bucket, BucketPlace, DecidedPacket, Event, Field, FlowCommand, FlowError,
    FlowFilter, FlowMod, FlowStats, ForwardedRequest, Group, GroupKind, GroupMod, Instructions, Learn,
    LearnPart, LearnSource, Match, Meter, MeterMod, Mod, NumberedDump, PacketOut, Pipeline, SelectMethod,
    SubField, port,
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
        let next = pipeline.rules_from(from, 7, 0, |place, stats| {
            copy.insert(place, stats);
        });
        let Some(next) = next else { break };
        from = next;
        // Rules before and after the current slot are removed, added and changed, and one batch is reverted.
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
    let places = pipeline.few_places_since(began).unwrap();
    let (mut scanned, mut from) = (Vec::new(), Some(0));
    while let Some(next) = from {
        from = pipeline.places_since(began, next, 7, &mut scanned);
    }
    assert_eq!(places, scanned);
    for place in places {
        copy.remove(&place);
        copy.extend(pipeline.rule_in(place, 0).map(|stats| (place, stats)));
    }
    let key = |stats: &FlowStats| stats.matching.exact(Field::Reg0);
    let mut copied: Vec<FlowStats> = copy.into_values().collect();
    let mut present = pipeline.flows(&FlowFilter::default(), 0);
    copied.sort_by_key(key);
    present.sort_by_key(key);
    assert_eq!(copied, present);
    assert!(copied.len() > 50);
    // Very many changes are found by a scan only.
    (0..20_000).for_each(|n| put(&mut pipeline, rule(2000 + n % 100)));
    assert_eq!(pipeline.few_places_since(began), None);
    let version = pipeline.version();
    assert_eq!(pipeline.few_places_since(version), Some(Vec::new()));
    put(&mut pipeline, rule(2000));
    assert_eq!(pipeline.few_places_since(version).map(|places| places.len()), Some(1));
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

/// A rule that names a group or meter several times counts as one reference. References from other groups and from
/// actions inside a clone also count.
#[test]
fn statistics_count_who_goes_by_groups_and_meters() {
    let mut pipeline = pipeline();
    let group = |id, actions| {
        let bucket = Bucket { id: 0, weight: 1, watch_port: None, watch_group: None, actions };
        let kind = GroupKind::Indirect;
        Mod::Group(GroupMod::Add(Group { id, kind, method: SelectMethod::Default, buckets: vec![bucket] }))
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
    // Removing a meter that a clone uses removes the rule, too.
    add(&mut pipeline, 0, 1, from(4), vec![Action::Clone(vec![Action::Meter(8), out(1)])]);
    pipeline.modify(&[Mod::Meter(MeterMod::Delete(Some(8)))], 0).unwrap();
    assert_eq!(pipeline.flows(&FlowFilter::default(), 0).len(), 3);
    pipeline.modify(&[Mod::Meter(MeterMod::Delete(None))], 0).unwrap();
    assert_eq!(pipeline.flows(&FlowFilter::default(), 0).len(), 1);
}

/// If a bucket of a group uses a meter, the removal of the meter also removes the group and the rules that use the
/// group. A refused batch restores all of them.
#[test]
fn a_removed_meter_removes_the_groups_that_use_it() {
    let mut pipeline = Pipeline::new();
    let metered = |id| vec![Action::Clone(vec![Action::Meter(id), out(1)])];
    let mods: Vec<Mod> = [7, 8]
        .map(meter)
        .into_iter()
        .chain([
            Mod::Group(GroupMod::Add(group(1, metered(7)))),
            Mod::Group(GroupMod::Add(group(2, metered(8)))),
            Mod::Group(GroupMod::Add(group(3, vec![out(1)]))),
        ])
        .collect();
    pipeline.modify(&mods, 0).unwrap();
    for id in 1..=3 {
        add(&mut pipeline, 0, 1, from(id), vec![Action::Group(id)]);
    }
    let counts = |pipeline: &Pipeline| {
        (
            pipeline.meters().count(),
            pipeline.group_stats(0).len(),
            pipeline.flows(&FlowFilter::default(), 0).len(),
        )
    };
    let gone = |id| Mod::Meter(MeterMod::Delete(id));
    let refused =
        [gone(Some(7)), Mod::Group(GroupMod::Modify { group: group(9, Vec::new()), or_add: false })];
    assert_eq!(pipeline.modify(&refused, 0), Err((1, FlowError::UnknownGroup)));
    assert_eq!(counts(&pipeline), (2, 3, 3));
    pipeline.modify(&[gone(Some(7))], 0).unwrap();
    assert_eq!(counts(&pipeline), (1, 2, 2));
    // A group that no longer uses the meter stays.
    let change = Mod::Group(GroupMod::Modify { group: group(2, vec![out(2)]), or_add: false });
    pipeline.modify(&[change, gone(Some(8))], 0).unwrap();
    assert_eq!(counts(&pipeline), (0, 2, 2));
    let back = Mod::Group(GroupMod::Modify { group: group(2, metered(8)), or_add: false });
    pipeline.modify(&[meter(8), back, gone(None)], 0).unwrap();
    assert_eq!(counts(&pipeline), (0, 1, 1));
}

fn meter(id: u32) -> Mod {
    let bands = vec![Band { kind: BandKind::Drop, rate: 1, burst: 1 }];
    Mod::Meter(MeterMod::Add(Meter { id, packets: true, bursts: true, stats: true, bands }))
}

fn group(id: u32, actions: Vec<Action>) -> Group {
    let bucket = Bucket { id: 0, weight: 0, watch_port: None, watch_group: None, actions };
    Group { id, kind: GroupKind::All, method: SelectMethod::Default, buckets: vec![bucket] }
}

fn packet_out(actions: Vec<Action>) -> Mod {
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    Mod::PacketOut(Box::new(PacketOut { in_port: 1, metadata: Match::ANY, actions, frame, resumes: None }))
}

fn rule(table: u8, matching: Match, actions: Vec<Action>) -> Mod {
    Mod::Flow(Box::new(FlowMod::add(table, 1, matching, Instructions::apply(actions))))
}

/// A dump of groups visits a bounded number of buckets in each step, and ends with the counters of all groups.
#[test]
fn a_dump_of_many_groups_goes_in_steps() {
    let mut pipeline = pipeline();
    let bucket = |id, to| Bucket { id, weight: 1, watch_port: None, watch_group: None, actions: vec![to] };
    let made = |id: u32| {
        let to = if id == 0 { out(1) } else { Action::Group(id / 2) };
        let buckets = (0..50).map(|number| bucket(number, to.clone())).collect();
        Mod::Group(GroupMod::Add(Group { id, kind: GroupKind::All, method: SelectMethod::Default, buckets }))
    };
    pipeline.modify(&(0..1_000).map(made).collect::<Vec<_>>(), 0).unwrap();
    add(&mut pipeline, 0, 1, Match::ANY, vec![Action::Group(999)]);
    for wanted in [None, Some(7)] {
        let mut dump = NumberedDump::new(wanted);
        let (mut all, mut empty) = (Vec::new(), 0);
        while let Some(some) = dump.group_stats(&pipeline, 0) {
            empty += usize::from(some.is_empty());
            all.extend(some);
        }
        // 51,000 groups and buckets take 13 steps of at most 4,096.
        assert!(empty >= 13, "{empty}");
        let expected: Vec<_> = pipeline
            .group_stats(0)
            .into_iter()
            .filter(|stats| wanted.is_none_or(|id| id == stats.id))
            .collect();
        assert_eq!(format!("{all:?}"), format!("{expected:?}"));
    }
}

/// The tables process a packet-out of a batch in their state after the preceding changes of the batch and before the
/// following changes.
#[test]
fn a_packet_of_a_batch_meets_the_tables_as_they_are_at_its_place() {
    let mut pipeline = pipeline();
    let to_tables = || packet_out(vec![out(port::TABLE)]);
    let batch = [
        to_tables(),
        Mod::Group(GroupMod::Add(group(1, vec![out(2)]))),
        rule(0, from(1), vec![Action::Group(1)]),
        to_tables(),
        Mod::Group(GroupMod::Delete(1)),
        to_tables(),
        rule(0, from(1), vec![out(3)]),
        to_tables(),
    ];
    let decided = pipeline.modify_and_decide(&batch, 0).unwrap();
    let left = |decided: &DecidedPacket| {
        let mut left = Vec::new();
        rules::execute(&decided.translated.program.ops, decided.packet.frame.clone(), &mut left);
        left.into_iter().map(|(port, _)| port.0).collect::<Vec<u16>>()
    };
    assert_eq!(decided.iter().map(left).collect::<Vec<_>>(), [vec![], vec![2], vec![], vec![3]]);
    assert_eq!(pipeline.rule_count(), 1);
    // A refused batch sends nothing, whether a packet-out or a later change is refused.
    let no_group = packet_out(vec![Action::Group(9)]);
    assert_eq!(
        pipeline.modify_and_decide(&[to_tables(), no_group], 0).map(|_| ()),
        Err((1, FlowError::BadOutGroup))
    );
}

/// A flow that a packet-out learns is a change of the batch. Later packet-outs of the batch match the flow, and a
/// refused batch removes the flow.
#[test]
fn packets_of_a_batch_learn_in_their_order() {
    let mut pipeline = pipeline();
    let source = LearnSource::Field(SubField::whole(Field::EthSrc));
    let parts = vec![
        LearnPart::Match(source, SubField::whole(Field::EthDst)),
        LearnPart::Output(SubField::whole(Field::InPort)),
    ];
    let learn = Action::Learn(Box::new(Learn {
        idle_timeout: 0,
        hard_timeout: 0,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        priority: 5,
        cookie: 7,
        flags: 0,
        table: 1,
        limit: 0,
        result: None,
        parts,
    }));
    let meets = || {
        packet_out(vec![
            set(Field::EthDst, 0x0200_0000_0001),
            Action::Resubmit { port: None, table: Some(1) },
        ])
    };
    let batch = [rule(0, from(1), vec![learn]), meets(), packet_out(vec![out(port::TABLE)]), meets()];
    let mut refused = batch.to_vec();
    refused.push(rule(0, from(2), vec![Action::Group(9)]));
    pipeline.modify_and_decide(&refused, 0).map(|_| ()).unwrap_err();
    assert_eq!(pipeline.rule_count(), 0);
    let decided = pipeline.modify_and_decide(&batch, 0).unwrap();
    let missed: Vec<bool> = decided.iter().map(|decided| decided.translated.missed.contains(&1)).collect();
    assert_eq!(missed, [true, false, false]);
    assert!(decided.iter().all(|decided| decided.translated.learns.is_empty()));
    assert_eq!(pipeline.rule_count(), 2);
}

/// Look-ups and memory of all packet-outs of a batch are bounded together.
#[test]
fn packets_of_a_batch_are_bounded() {
    let mut pipeline = pipeline();
    let again = vec![Action::Resubmit { port: None, table: Some(1) }; 4000];
    let lookups = |count| vec![packet_out(again.clone()); count];
    assert_eq!(pipeline.modify_and_decide(&lookups(16), 0).unwrap().len(), 16);
    assert_eq!(
        pipeline.modify_and_decide(&lookups(17), 0).map(|_| ()),
        Err((16, FlowError::TooMany)),
        "65,536 look-ups"
    );
    let mut large = packet_out(vec![out(port::CONTROLLER); 200]);
    if let Mod::PacketOut(packet) = &mut large {
        packet.frame.resize(30_000, 0);
    }
    assert_eq!(pipeline.modify_and_decide(&[large], 0).map(|_| ()), Err((0, FlowError::TooMany)), "6 MB");
}

/// Requests that change groups and meters are reported while there are listeners. Requests of a refused batch are not
/// reported.
#[test]
fn requests_are_told_while_they_are_wanted() {
    let mut pipeline = pipeline();
    let wanted = Arc::new(AtomicUsize::new(0));
    pipeline.set_requests(Arc::clone(&wanted));
    pipeline.take_events();
    let add = Mod::Group(GroupMod::Modify { group: group(1, vec![out(2)]), or_add: true });
    pipeline.modify(std::slice::from_ref(&add), 0).unwrap();
    assert!(pipeline.take_events().is_empty());
    wanted.store(1, Ordering::Relaxed);
    let refused = rule(0, from(2), vec![Action::Group(9)]);
    pipeline.modify(&[add.clone(), refused], 0).unwrap_err();
    assert!(pipeline.take_events().is_empty());
    let bucket = Bucket { id: 4, ..group(1, Vec::new()).buckets.remove(0) };
    let insert = Mod::Group(GroupMod::InsertBuckets(1, BucketPlace::Last, vec![bucket]));
    pipeline.modify(&[add, insert, Mod::Meter(MeterMod::Delete(None))], 0).unwrap();
    let told = pipeline.take_events();
    let [Event::Request(modified), Event::Request(inserted), Event::Request(meters)] = &told[..] else {
        panic!("{told:?}")
    };
    assert!(matches!(&**modified, ForwardedRequest::Group { existed: true, after: None, .. }));
    let ForwardedRequest::Group { existed: true, after: Some(after), .. } = &**inserted else {
        panic!("{inserted:?}")
    };
    assert_eq!(after.buckets.len(), 2);
    assert_eq!(**meters, ForwardedRequest::Meter(MeterMod::Delete(None)));
}

/// A group that is too large for an OpenFlow message is refused, even if its buckets are added one by one.
#[test]
fn a_group_that_does_not_fit_is_refused() {
    let mut pipeline = pipeline();
    pipeline.set_group_fits(|group| group.buckets.len() <= 2);
    let bucket = |id| Bucket { id, ..group(1, Vec::new()).buckets.remove(0) };
    let mut large = group(1, Vec::new());
    large.buckets = (0..3).map(bucket).collect();
    let add = Mod::Group(GroupMod::Add(large.clone()));
    assert_eq!(pipeline.modify(&[add], 0), Err((0, FlowError::OutOfBuckets)));
    large.buckets.pop();
    let add = Mod::Group(GroupMod::Add(large));
    let more = Mod::Group(GroupMod::InsertBuckets(1, BucketPlace::Last, vec![bucket(9)]));
    assert_eq!(pipeline.modify(&[add.clone(), more], 0), Err((1, FlowError::OutOfBuckets)));
    pipeline.modify(&[add], 0).unwrap();
}

/// Rules that differ only in their priorities are deleted and expire about as fast as rules with different matches. In
/// this test, the oldest rules have the lowest priorities.
#[test]
fn rules_of_one_match_go_as_fast_as_rules_of_different_matches() {
    const RULES: u16 = 65_000;
    let times = |destination: fn(u16) -> u16| {
        let mut pipeline = pipeline();
        let rule = |priority| {
            let matching = Match::ANY.with(Field::EthDst, u128::from(destination(priority)));
            let rule = FlowMod::add(0, priority, matching, Instructions::default());
            FlowMod { hard_timeout: 1, ..rule }
        };
        let delete = |priority| {
            let command = FlowCommand::Delete { strict: true };
            Mod::Flow(Box::new(FlowMod { command, ..rule(priority) }))
        };
        let all: Vec<Mod> = (0..RULES).map(|priority| Mod::Flow(Box::new(rule(priority)))).collect();
        pipeline.modify(&all, 0).unwrap();
        let deletes: Vec<Mod> = (0..5000).map(delete).collect();
        let began = Instant::now();
        pipeline.modify(&deletes, 0).unwrap();
        let deleted = began.elapsed();
        assert_eq!(pipeline.rule_count(), usize::from(RULES) - 5000);
        let began = Instant::now();
        pipeline.expire(2_000_000_000);
        let expired = began.elapsed();
        assert_eq!(pipeline.rule_count(), usize::from(RULES) - 25_000);
        [deleted, expired]
    };
    let (equal, other) = (times(|_| 7), times(|priority| priority));
    println!("5,000 deletes and 20,000 expiries: {equal:?} of one match, {other:?} of different matches");
    for (equal, other) in equal.into_iter().zip(other) {
        assert!(equal < 8 * other + Duration::from_secs(1), "{equal:?} and {other:?}");
    }
}
