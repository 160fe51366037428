//! Tests of buckets that watch groups, and of the work limits for a choice among many links and buckets.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod rules;

use packet::{DropReason, PortId};
use rules::{add, asked, flow_port, from, out, pipeline, read, run, tcp};
use switch::flow::{
    Action, Bucket, BundleMode, Continuation, Field, FlowError, FlowMod, FlowPort, Group, GroupKind,
    GroupMod, HashFields, Instructions, Match, Mod, PacketOut, Pipeline, Rest, SelectMethod, SubField,
};

fn watching(watch_group: Option<u32>, watch_port: Option<u32>, to: u32) -> Bucket {
    Bucket { id: 0, weight: 1, watch_port, watch_group, actions: vec![out(to)] }
}

fn group(id: u32, kind: GroupKind, buckets: Vec<Bucket>) -> Mod {
    Mod::Group(GroupMod::Add(Group { id, kind, method: SelectMethod::Default, buckets }))
}

fn link(pipeline: &mut Pipeline, number: u32, live: bool) {
    pipeline.set_port(number, Some(FlowPort { live, ..flow_port(number) }));
}

fn frame() -> Vec<u8> {
    tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60)
}

/// A chain of watched groups can have any length if each group is added before the group that it watches. The chain is
/// followed to its end, once for each packet, without recursion.
#[test]
fn a_long_chain_of_watched_groups_is_followed() {
    const CHAIN: u32 = 60_000;
    let mut pipeline = pipeline();
    let chain = (1..CHAIN)
        .map(|id| group(id, GroupKind::FastFailover, vec![watching(Some(id + 1), None, 2)]))
        .chain([group(CHAIN, GroupKind::FastFailover, vec![watching(None, Some(3), 2)])]);
    pipeline.modify(&chain.collect::<Vec<_>>(), 0).unwrap();
    add(&mut pipeline, 0, 1, from(1), vec![Action::Group(1); 100]);
    assert_eq!(run(&pipeline, &frame(), 1).len(), 100);
    link(&mut pipeline, 3, false);
    assert_eq!(run(&pipeline, &frame(), 1).len(), 0);
    // A second bucket at the end is live.
    let more = Bucket { id: 1, ..watching(None, Some(2), 2) };
    let more = GroupMod::InsertBuckets(CHAIN, switch::flow::BucketPlace::Last, vec![more]);
    pipeline.modify(&[Mod::Group(more)], 0).unwrap();
    assert_eq!(run(&pipeline, &frame(), 1).len(), 100);
}

/// A bucket is live if any chain of watched groups leads to a live port. A chain also counts if it leads through a
/// group that was already examined.
#[test]
fn a_bucket_lives_by_any_of_the_groups_behind_it() {
    let mut pipeline = pipeline();
    let failover = |id, buckets| group(id, GroupKind::FastFailover, buckets);
    let bucket = |id, watch_group, watch_port, to| Bucket { id, ..watching(watch_group, watch_port, to) };
    let groups = [
        failover(5, vec![bucket(0, None, Some(3), 3)]),
        failover(4, vec![bucket(0, Some(5), None, 4), bucket(1, None, Some(9), 4)]),
        failover(3, vec![bucket(0, Some(4), Some(9), 2), bucket(1, Some(5), None, 4)]),
        group(2, GroupKind::Select, vec![bucket(0, Some(3), None, 3), bucket(1, Some(5), None, 4)]),
        failover(1, vec![bucket(0, Some(3), None, 2), bucket(1, Some(4), Some(4), 3)]),
    ];
    pipeline.modify(&groups, 0).unwrap();
    add(&mut pipeline, 0, 1, from(1), vec![Action::Group(1), Action::Group(2)]);
    let ports = |pipeline: &Pipeline| -> Vec<PortId> {
        run(pipeline, &frame(), 1).into_iter().map(|(port, _)| port).collect()
    };
    assert_eq!(ports(&pipeline)[0], PortId(2));
    assert_eq!(ports(&pipeline).len(), 2);
    link(&mut pipeline, 3, false);
    assert_eq!(ports(&pipeline), [], "the second bucket's port has no link");
    add(&mut pipeline, 0, 2, from(1), vec![Action::Group(1)]);
    // The port of the bucket is live, although its group is not.
    let alive = Bucket { actions: vec![out(2)], ..bucket(1, Some(4), Some(4), 3) };
    let change =
        Group { id: 1, kind: GroupKind::FastFailover, method: SelectMethod::Default, buckets: vec![alive] };
    pipeline.modify(&[Mod::Group(GroupMod::Modify { group: change, or_add: false })], 0).unwrap();
    assert_eq!(ports(&pipeline), [PortId(2)]);
}

/// Groups that watch each other are refused, like groups that use each other. Chains that are too long are refused as
/// well.
#[test]
fn watched_groups_count_in_chains_and_make_loops() {
    let failover = |id, watched| group(id, GroupKind::FastFailover, vec![watching(Some(watched), None, 2)]);
    let leads = |id, to| {
        let actions = vec![Action::Group(to)];
        group(id, GroupKind::All, vec![Bucket { actions, ..watching(None, None, 2) }])
    };
    let mut pipeline = pipeline();
    let refused = Err((0, FlowError::GroupLoop));
    assert_eq!(pipeline.modify(&[failover(1, 1)], 0), refused, "itself");
    pipeline.modify(&[failover(1, 2), leads(2, 3)], 0).unwrap();
    assert_eq!(pipeline.modify(&[failover(3, 1)], 0), refused, "by a group that it leads to");
    // The groups are added from last to first, and each group refers to the group added before it.
    let last = group(100, GroupKind::FastFailover, vec![watching(None, Some(2), 2)]);
    pipeline.modify(&[last], 0).unwrap();
    let added = (0..60_u32).take_while(|n| pipeline.modify(&[failover(101 + n, 100 + n)], 0).is_ok()).count();
    assert_eq!(added, 32);
    assert_eq!(pipeline.modify(&[leads(300, 132)], 0), refused, "one more");
    pipeline.modify(&[leads(300, 131)], 0).unwrap();
}

fn multipath(mode: BundleMode, max_link: u16) -> Action {
    let (fields, to) = (HashFields::EthSrc, SubField::whole(Field::Reg0));
    Action::Multipath { fields, basis: 0, mode, max_link, argument: 0, to }
}

/// Each link or bucket that is considered in a choice counts as work of the packet.
#[test]
fn choices_among_many_count_as_work() {
    let mut pipeline = pipeline();
    let ended = |pipeline: &Pipeline, in_port| {
        let (frame, flow) = (frame(), read(&frame(), in_port));
        let translated = pipeline.translate(asked(&flow, Some(&frame)));
        translated.dropped == DropReason::RuleLoop && translated.program.ops.is_empty()
    };
    let many = |mode, links, count| [vec![multipath(mode, links); count], vec![out(2)]].concat();
    add(&mut pipeline, 0, 1, from(1), many(BundleMode::Weight, u16::MAX, 3));
    add(&mut pipeline, 0, 1, from(2), many(BundleMode::Weight, u16::MAX, 5));
    add(&mut pipeline, 0, 1, from(3), many(BundleMode::Modulo, u16::MAX, 4000));
    add(&mut pipeline, 0, 1, from(4), [many(BundleMode::Weight, 63, 3000), vec![out(3)]].concat());
    assert_eq!([1, 2, 3, 4].map(|in_port| ended(&pipeline, in_port)), [false, true, false, false]);
    let bucket = |id| Bucket { id, ..watching(None, None, 2) };
    pipeline.modify(&[group(1, GroupKind::Select, (0..4096).map(bucket).collect())], 0).unwrap();
    add(&mut pipeline, 1, 1, Match::ANY, vec![Action::Group(1); 15]);
    add(
        &mut pipeline,
        2,
        1,
        Match::ANY,
        [vec![multipath(BundleMode::Modulo, 1)], vec![Action::Group(1); 17]].concat(),
    );
    add(&mut pipeline, 0, 2, from(1), vec![Action::Resubmit { port: None, table: Some(1) }]);
    add(&mut pipeline, 0, 2, from(2), vec![Action::Resubmit { port: None, table: Some(2) }]);
    let groups = |in_port| {
        let (frame, flow) = (frame(), read(&frame(), in_port));
        pipeline.translate(asked(&flow, Some(&frame))).groups.len()
    };
    assert_eq!((groups(1), groups(2)), (15, 15));
    let ports = vec![2; 2000];
    let bundle =
        Action::Bundle { fields: HashFields::EthSrc, basis: 0, mode: BundleMode::Weight, ports, to: None };
    add(&mut pipeline, 0, 3, from(1), vec![bundle; 40]);
    let (frame, flow) = (frame(), read(&frame(), 1));
    assert_eq!(pipeline.translate(asked(&flow, Some(&frame))).program.ops.len(), 32);
}

/// For each written action, the translation searches the action set. For each clone, the translation copies the action
/// set. Both count as work.
#[test]
fn a_long_action_set_is_work() {
    // Each bit range of the registers is a field of its own.
    let ranges = (0..16_u8).flat_map(|register| {
        (1..=32).flat_map(move |length| (0..=32 - length).map(move |first| (register, first, length)))
    });
    let write: Vec<Action> = ranges
        .take(2600)
        .map(|(register, first, length)| Action::Set {
            field: Field::reg(register).unwrap(),
            value: 0,
            mask: ((1_u128 << length) - 1) << first,
            load: true,
        })
        .collect();
    let rule = |apply, write| {
        Mod::Flow(Box::new(FlowMod::add(
            1,
            1,
            Match::ANY,
            Instructions { apply, write, ..Instructions::default() },
        )))
    };
    let translated = |pipeline: &Pipeline| {
        let (frame, flow) = (frame(), read(&frame(), 1));
        pipeline.translate(asked(&flow, Some(&frame)))
    };
    let mut pipeline = pipeline();
    add(&mut pipeline, 0, 1, Match::ANY, vec![Action::Resubmit { port: None, table: Some(1) }; 4000]);
    pipeline.modify(&[rule(Vec::new(), write[..60].to_vec())], 0).unwrap();
    let usual = translated(&pipeline).rules.len();
    assert!(usual > 200, "a set of a usual length is written {usual} times");
    pipeline.modify(&[rule(Vec::new(), write)], 0).unwrap();
    let long = translated(&pipeline).rules.len();
    assert!(long < 5, "a long one is not: {long}");
}

/// The number of remaining instructions that are recorded for a paused packet is bounded.
#[test]
fn what_is_left_of_a_paused_packet_is_bounded() {
    let pause =
        Action::Controller { max_len: 128, id: 0, reason: 1, userdata: Vec::new(), meter: None, pause: true };
    let resubmit = |table| Action::Resubmit { port: None, table: Some(table) };
    let mut pipeline = pipeline();
    let rest = |first, count| [vec![first], vec![Action::SetQueue(1); count]].concat();
    for table in 1..200 {
        add(&mut pipeline, table, 1, Match::ANY, rest(resubmit(table + 1), 3_800));
    }
    add(&mut pipeline, 200, 1, Match::ANY, vec![pause.clone()]);
    add(&mut pipeline, 0, 1, Match::ANY, vec![Action::Clone(vec![resubmit(1)]); 16]);
    let (frame, flow) = (frame(), read(&frame(), 1));
    let translated = pipeline.translate(asked(&flow, Some(&frame)));
    let left: Vec<&Continuation> =
        translated.to_controller.iter().filter_map(|told| told.continuation.as_deref()).collect();
    assert_eq!(left.len(), 16);
    assert!(left.iter().all(|left| left.is_too_long && left.rest.is_empty()));
    assert!(translated.memory() < 4 << 20, "{}", translated.memory());
    // A continuation of usual length is complete.
    add(&mut pipeline, 0, 1, Match::ANY, rest(pause, 100));
    let translated = pipeline.translate(asked(&flow, Some(&frame)));
    let left = translated.to_controller[0].continuation.as_deref().unwrap();
    assert!(!left.is_too_long && left.rest[0].instructions.apply.len() == 100);
}

/// A continuation that a controller returns is validated like the actions of a rule.
#[test]
fn what_is_resumed_is_checked() {
    let pipeline = pipeline();
    let resumed = |instructions: Instructions, action_set: Vec<Action>| {
        let rest = vec![Rest { table: 3, cookie: 0, matching: Match::ANY, instructions }];
        let left = Continuation { rest, action_set, ..Continuation::default() };
        let (metadata, frame) = (Match::ANY, frame());
        let packet =
            PacketOut { in_port: 1, metadata, actions: vec![], frame, resumes: Some(Box::new(left)) };
        pipeline.check_packet_out(&packet)
    };
    let apply = |action| resumed(Instructions::apply(vec![action]), Vec::new());
    let write = |action| resumed(Instructions { write: vec![action], ..Instructions::default() }, Vec::new());
    let unsound = Action::Push(SubField { field: Field::Reg0, first: 30, bits: 0 });
    for check in
        [&apply as &dyn Fn(Action) -> _, &write, &|action| resumed(Instructions::default(), vec![action])]
    {
        assert_eq!(check(out(2)), Ok(()));
        assert_eq!(check(out(switch::flow::port::TABLE)), Ok(()));
        assert_eq!(check(unsound.clone()), Err(FlowError::BadArgument));
        assert_eq!(check(Action::Group(7)), Err(FlowError::BadOutGroup));
    }
    let many = Instructions::apply(vec![out(2); 5000]);
    assert_eq!(resumed(many, Vec::new()), Err(FlowError::TooMany));
    let goto = |table| resumed(Instructions { goto: Some(table), ..Instructions::default() }, Vec::new());
    assert_eq!((goto(3), goto(4)), (Err(FlowError::BadGoto), Ok(())));
    let metered = Instructions { meter: Some(1), ..Instructions::default() };
    assert_eq!(resumed(metered, Vec::new()), Err(FlowError::InvalidMeter));
}
