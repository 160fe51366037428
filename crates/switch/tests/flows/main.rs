//! Tests that a translation is consistent: packets that differ only in bits outside the mask get the same actions. Also
//! tests the execution of programs on frames.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod bounds_of_work;
mod fragments;
mod groups;
mod labels;
#[path = "../rules/mod.rs"]
mod rules;

use std::collections::BTreeSet;

use packet::PortId;
use proptest::prelude::*;
use rules::{add, asked, flow_port, from, is_sound, out, pipeline, read, run, set, tcp};
use switch::flow::{
    Action, Ahead, Bucket, Conjunction, Field, Flow, FlowError, FlowMod, FlowPort, Group, GroupKind,
    GroupMod, Instructions, Match, Mod, Op, Pipeline, Prerequisite, SelectMethod, SubField, Trace,
    TranslationInput, port,
};

#[test]
fn rewriting_keeps_checksums_sound() {
    let mut pipeline = pipeline();
    let ip = Match::ANY.with(Field::EthType, 0x0800).with(Field::IpProto, 6);
    let actions = vec![
        set(Field::EthDst, 0x0200_0000_0099),
        set(Field::Ipv4Src, 0x0a09_0807),
        set(Field::TcpDst, 8080),
        set(Field::IpDscp, 46),
        Action::DecTtl(vec![0]),
        Action::PushVlan(0x8100),
        set(Field::VlanVid, 0x1000 | 77),
        set(Field::VlanPcp, 5),
        out(2),
        Action::PopVlan,
        set(Field::Ipv4Dst, 0x0102_0304),
        out(3),
    ];
    add(&mut pipeline, 0, 1, ip, actions);
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1000, 80), 64);
    let left = run(&pipeline, &frame, 1);
    assert_eq!(left.len(), 2);
    for (_, frame) in &left {
        assert!(is_sound(frame), "{frame:02x?}");
    }
    let first = read(&left[0].1, 1);
    assert_eq!(first.get(Field::VlanTci), 0xb000 | 77);
    assert_eq!(first.get(Field::NwTtl), 63);
    assert_eq!(first.get(Field::TcpDst), 8080);
    assert_eq!(first.get(Field::Ipv4Src), 0x0a09_0807);
    assert_eq!(first.get(Field::Ipv4Dst), 0x0a00_0002);
    let second = read(&left[1].1, 1);
    assert_eq!((second.get(Field::VlanTci), second.get(Field::Ipv4Dst)), (0, 0x0102_0304));
    assert_eq!(left[1].0, PortId(3));
}

/// A queue is selected once, before the outputs that use it. A selection within a bucket or clone applies only there.
/// If there is no output, no queue is selected.
#[test]
fn outputs_go_by_the_queue_that_was_set() {
    let ops = |actions: Vec<Action>| {
        let mut pipeline = pipeline();
        add(&mut pipeline, 1, 1, Match::ANY, vec![Action::SetQueue(9)]);
        add(&mut pipeline, 0, 1, Match::ANY, actions);
        let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1000, 80), 60);
        let translated = pipeline.translate(asked(&read(&frame, 1), Some(&frame)));
        assert_eq!(run(&pipeline, &frame, 1).iter().filter(|(_, left)| *left != frame).count(), 0);
        translated.program.ops
    };
    let to = |port| Op::Output(PortId(port));
    let queue = |queue| Op::Queue(Some(queue));
    assert_eq!(ops(vec![Action::SetQueue(5)]), []);
    assert_eq!(ops(vec![Action::SetQueue(5), out(2), out(3)]), [queue(5), to(2), to(3)]);
    assert_eq!(
        ops(vec![Action::SetQueue(5), out(2), Action::PopQueue, out(3), Action::SetQueue(0), out(4)]),
        [queue(5), to(2), Op::Queue(None), to(3), queue(0), to(4)]
    );
    assert_eq!(
        ops(vec![Action::SetQueue(5), Action::Enqueue { port: 2, queue: 7 }, out(3)]),
        [queue(7), to(2), queue(5), to(3)]
    );
    // A separate table selects the queue for later actions.
    let resubmit = Action::Resubmit { port: None, table: Some(1) };
    assert_eq!(
        ops(vec![resubmit, Action::Output { port: port::NORMAL, max_len: 0 }]),
        [queue(9), Op::Normal]
    );
    // A selection in a copy stays in the copy.
    assert_eq!(
        ops(vec![Action::Clone(vec![Action::SetQueue(5), out(2)]), out(3)]),
        [Op::Clone(2), queue(5), to(2), to(3)]
    );
}

#[test]
fn a_clone_ends_with_the_action_set_and_leaves_it() {
    let mut pipeline = pipeline();
    let write = Instructions { write: vec![out(3)], goto: Some(1), ..Instructions::default() };
    pipeline.modify(&[Mod::Flow(Box::new(FlowMod::add(0, 1, Match::ANY, write)))], 0).unwrap();
    let clone = Action::Clone(vec![set(Field::EthSrc, 0x0200_0000_0077), out(2)]);
    add(&mut pipeline, 1, 1, Match::ANY, vec![clone, out(4)]);
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1000, 80), 60);
    let left: Vec<(PortId, u128)> = run(&pipeline, &frame, 1)
        .iter()
        .map(|(to, frame)| (*to, read(frame, 1).get(Field::EthSrc)))
        .collect();
    let (own, other) = (read(&frame, 1).get(Field::EthSrc), 0x0200_0000_0077);
    assert_eq!(left, [(PortId(2), other), (PortId(3), other), (PortId(4), own), (PortId(3), own)]);
}

#[test]
fn the_checksum_of_icmpv6_within_ipv4_is_left_alone() {
    let mut pipeline = pipeline();
    add(
        &mut pipeline,
        0,
        1,
        Match::ANY.with(Field::EthType, 0x0800),
        vec![set(Field::Ipv4Src, 0x0a09_0807), out(2)],
    );
    let mut frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1000, 80), 60);
    // The ICMPv6 pseudo-header does not exist over IPv4 (RFC 8200, 8.1).
    frame[23] = 58;
    let left = run(&pipeline, &frame, 1);
    assert_eq!(left[0].1[34..], frame[34..]);
    assert_eq!(left[0].1[26..30], [10, 9, 8, 7]);
}

#[test]
fn conjunctions_need_all_their_clauses() {
    let mut pipeline = pipeline();
    let ip = Match::ANY.with(Field::EthType, 0x0800).with(Field::IpProto, 6);
    let part = |clause| vec![Action::Conjunction(Conjunction { id: 42, clause, clauses: 2 })];
    for src in [0x0a00_0001, 0x0a00_0003] {
        add(&mut pipeline, 0, 10, ip.with(Field::Ipv4Src, src), part(0));
    }
    for dst in [80, 443] {
        add(&mut pipeline, 0, 10, ip.with(Field::TcpDst, dst), part(1));
    }
    add(&mut pipeline, 0, 10, Match::ANY.with(Field::ConjId, 42), vec![out(2)]);
    add(&mut pipeline, 0, 1, Match::ANY, vec![out(3)]);
    let to = |src: [u8; 4], port| run(&pipeline, &tcp(None, src, [10, 0, 0, 9], (5, port), 60), 1)[0].0.0;
    assert_eq!(to([10, 0, 0, 1], 80), 2);
    assert_eq!(to([10, 0, 0, 3], 443), 2);
    assert_eq!(to([10, 0, 0, 2], 443), 3, "the source is not one of them");
    assert_eq!(to([10, 0, 0, 1], 22), 3, "the port is not one of them");
}

#[test]
fn packets_that_no_rule_matches_go_where_the_table_says() {
    use switch::flow::{Miss, Reason, TableWishes};
    let mut pipeline = pipeline();
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    let flow = read(&frame, 1);
    let reasons = |pipeline: &switch::flow::Pipeline| {
        let translated = pipeline.translate(asked(&flow, Some(&frame)));
        translated.to_controller.iter().map(|told| (told.reason, told.table, told.cookie)).collect::<Vec<_>>()
    };
    assert_eq!(reasons(&pipeline), []);
    assert!(pipeline.translate(asked(&flow, None)).is_cacheable());
    pipeline.set_misses_heard(true);
    assert_eq!(reasons(&pipeline), [(Reason::Miss, 0, 0)]);
    assert_eq!(pipeline.translate(asked(&flow, None)).dropped, packet::DropReason::RuleMiss);
    // The miss handling applies after goto_table and not after a resubmit.
    add(&mut pipeline, 0, 1, Match::ANY, vec![Action::Resubmit { port: None, table: Some(5) }]);
    assert_eq!(reasons(&pipeline), []);
    let goto = Instructions { goto: Some(5), ..Instructions::default() };
    pipeline.modify(&[Mod::Flow(Box::new(FlowMod::add(0, 1, Match::ANY, goto)))], 0).unwrap();
    assert_eq!(reasons(&pipeline), [(Reason::Miss, 5, 0)]);
    let wish = |miss| TableWishes { miss, ..TableWishes::default() };
    pipeline.set_table_wishes(5, wish(Miss::Drop), 0);
    assert_eq!(reasons(&pipeline), []);
    pipeline.set_table_wishes(5, wish(Miss::Continue), 0);
    add(&mut pipeline, 6, 1, Match::ANY, vec![out(2)]);
    assert_eq!(run(&pipeline, &frame, 1).len(), 1, "the next table has a rule");
    // A table-miss rule, an ordinary rule, and a port with packet-ins for misses disabled.
    let told = vec![Action::Output { port: port::CONTROLLER, max_len: 100 }];
    add(&mut pipeline, 0, 0, Match::ANY, told.clone());
    pipeline.modify(&[Mod::Flow(Box::new(FlowMod::delete(0, Match::ANY)))], 0).unwrap();
    add(&mut pipeline, 0, 0, Match::ANY, told);
    assert_eq!(reasons(&pipeline), [(Reason::MissRule, 0, 0)]);
    pipeline.modify(&[Mod::Flow(Box::new(FlowMod::delete(0, Match::ANY)))], 0).unwrap();
    let mut quiet = pipeline.ports()[&1].clone();
    quiet.desc.config |= 64;
    pipeline.set_port(1, Some(quiet));
    assert_eq!(reasons(&pipeline), []);
}

#[test]
fn a_rule_that_is_added_again_is_added_and_one_that_stays_is_not_told_of() {
    use switch::flow::{Event, FlowCommand};
    let mut pipeline = pipeline();
    pipeline.take_events();
    let mut change = |command, cookie, actions: Vec<Action>| {
        let mut change = FlowMod::add(0, 5, from(1), Instructions::apply(actions));
        (change.command, change.cookie) = (command, cookie);
        pipeline.modify(&[Mod::Flow(Box::new(change))], 0).unwrap();
        let told = |event| match event {
            Event::Added(_, before) => ("added", before.is_some()),
            Event::Modified(_, before) => ("modified", before.is_some()),
            _ => ("other", false),
        };
        pipeline.take_events().into_iter().map(told).collect::<Vec<_>>()
    };
    let modify = FlowCommand::Modify { strict: false, or_add: false };
    assert_eq!(change(FlowCommand::Add, Some(0), vec![out(2)]), [("added", false)]);
    assert_eq!(change(FlowCommand::Add, Some(0), vec![out(2)]), [("added", false)]);
    assert_eq!(change(FlowCommand::Add, Some(0), vec![out(3)]), [("added", true)]);
    assert_eq!(change(modify, None, vec![out(3)]), []);
    assert_eq!(change(modify, Some(9), vec![out(3)]), [("modified", false)]);
    assert_eq!(change(modify, None, vec![out(2)]), [("modified", true)]);
}

/// Generates matches with few different values, so that packets often match rules.
fn any_match() -> impl Strategy<Value = Match> {
    let part = prop_oneof![
        (1_u128..4).prop_map(|port| vec![(Field::InPort, port, None)]),
        (0_u128..3).prop_map(|mac| vec![(Field::EthDst, 0x0200_0000_0000 + mac, None)]),
        Just(vec![(Field::EthSrc, 0, Some(0x0100_0000_0000))]),
        (0_u128..2).prop_map(|vid| vec![(Field::VlanVid, 0x1000 + vid + 1, None)]),
        Just(vec![(Field::VlanVid, 0, None)]),
        (8_u32..=32, 0_u128..4).prop_map(|(len, last)| {
            let mask = u128::from(u32::MAX << (32 - len));
            vec![(Field::EthType, 0x0800, None), (Field::Ipv4Dst, (0x0a00_0000 + last) & mask, Some(mask))]
        }),
        (0_u128..3).prop_map(|port| {
            vec![(Field::EthType, 0x0800, None), (Field::IpProto, 6, None), (Field::TcpDst, 80 + port, None)]
        }),
        (0_u128..3).prop_map(|value| vec![(Field::Reg0, value, None)]),
        (0_u128..2).prop_map(|value| vec![(Field::EthType, 0x0800, None), (Field::NwTtl, 1 + value, None)]),
    ];
    proptest::collection::vec(part, 0..3).prop_map(|parts| {
        let mut matching = Match::ANY;
        for (field, value, mask) in parts.into_iter().flatten() {
            // Fields that do not fit the previous ones are left out.
            let _ = matching.add(field, value, mask);
        }
        matching
    })
}

fn any_action() -> impl Strategy<Value = Action> {
    let part = |field, first, bits| SubField { field, first, bits };
    prop_oneof![
        4 => (1_u32..5).prop_map(out),
        1 => Just(out(port::FLOOD)),
        1 => Just(out(port::IN_PORT)),
        1 => Just(out(port::NORMAL)),
        2 => (0_u128..3).prop_map(|value| set(Field::Reg0, value)),
        2 => (0_u128..3).prop_map(|mac| set(Field::EthDst, 0x0200_0000_0000 + mac)),
        2 => (0_u128..4).prop_map(|last| set(Field::Ipv4Dst, 0x0a00_0000 + last)),
        1 => (0_u128..3).prop_map(|port| set(Field::TcpDst, 80 + port)),
        2 => (0_u128..2).prop_map(|vid| set(Field::VlanVid, 0x1001 + vid)),
        2 => Just(Action::PushVlan(0x8100)),
        2 => Just(Action::PopVlan),
        1 => Just(Action::PushMpls(0x8847)),
        1 => Just(Action::DecTtl(vec![])),
        2 => Just(Action::Move { from: part(Field::EthSrc, 0, 2), to: part(Field::Reg0, 0, 2) }),
        1 => Just(Action::Move { from: part(Field::Ipv4Src, 0, 8), to: part(Field::Ipv4Dst, 0, 8) }),
        1 => Just(Action::Push(part(Field::TcpSrc, 0, 4))),
        1 => Just(Action::Pop(part(Field::Reg0, 0, 4))),
        1 => Just(Action::Group(1)),
        1 => Just(Action::Clone(vec![Action::PopVlan, set(Field::EthSrc, 0x0200_0000_0077), out(3)])),
        2 => (0_u8..3).prop_map(|table| Action::Resubmit { port: None, table: Some(table) }),
        1 => Just(Action::Exit),
    ]
}

fn any_frame() -> impl Strategy<Value = (Vec<u8>, u32)> {
    let one = (
        proptest::option::of(1_u16..4),
        proptest::option::of(1_u16..3),
        0_u8..3,
        0_u8..4,
        0_u8..4,
        79_u16..84,
        prop_oneof![Just(0x0800_u16), Just(0x0806), Just(0x86dd)],
        1_u8..4,
        1_u32..5,
    );
    one.prop_map(|(outer, inner, mac, src, dst, dst_port, eth_type, ttl, in_port)| {
        let mut frame = tcp(outer, [10, 0, 0, src], [10, 0, 0, dst], (u16::from(src) + 5, dst_port), ttl);
        frame[5] = mac;
        frame[11] = src;
        if let Some(inner) = inner.filter(|_| outer.is_some()) {
            frame.splice(16..16, [0x81, 0x00, 0, u8::try_from(inner).unwrap()]);
        }
        if eth_type != 0x0800 {
            let at =
                12 + 4 * (usize::from(outer.is_some()) + usize::from(outer.is_some() && inner.is_some()));
            frame[at..at + 2].copy_from_slice(&eth_type.to_be_bytes());
        }
        (frame, in_port)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The invariant of the caches: packets with equal bits under the mask get the same actions.
    #[test]
    fn masks_hold_all_that_the_fate_depends_on(
        rules in proptest::collection::vec((0_u8..3, 0_u16..4, any_match(), proptest::collection::vec(any_action(), 0..5)), 1..14),
        frames in proptest::collection::vec(any_frame(), 24),
    ) {
        let mut pipeline = pipeline();
        let bucket = |id: u32| Bucket { id, weight: 1, watch_port: None, watch_group: None, actions: vec![set(Field::EthSrc, u128::from(id)), out(id + 1)] };
        let group = Group { id: 1, kind: GroupKind::Select, method: SelectMethod::Default, buckets: (0..3).map(bucket).collect() };
        pipeline.modify(&[Mod::Group(GroupMod::Add(group))], 0).unwrap();
        for (table, priority, matching, actions) in rules {
            add(&mut pipeline, table, priority, matching, actions);
        }
        let mut cached = Vec::new();
        for (frame, in_port) in &frames {
            let flow = read(frame, *in_port);
            let translated = pipeline.translate(asked(&flow, Some(frame)));
            if let Some(megaflow) = translated.megaflow(&flow) {
                cached.push((megaflow, *in_port));
            }
        }
        let mut before = vec![Ahead::new(read(&frames[0].0, frames[0].1)); 40];
        pipeline.look_ahead(&mut before);
        for (frame, in_port) in &frames {
            let flow = read(frame, *in_port);
            let fresh = pipeline.translate(asked(&flow, Some(frame)));
            for (megaflow, of) in &cached {
                if of == in_port && flow.masked(&megaflow.mask) == megaflow.flow {
                    prop_assert_eq!(&fresh.program, &megaflow.program, "{:?}", flow);
                }
            }
            // Batched look-ups give equal results, for first fragments too.
            let mut parts = flow;
            parts.set(Field::IpFrag, 1);
            let mut ahead = vec![Ahead::new(parts), Ahead::new(flow), Ahead::new(Flow::ZERO)];
            pipeline.look_ahead(&mut ahead);
            prop_assert_eq!(&pipeline.translate_ahead(&ahead[1], Some(frame)), &fresh);
            prop_assert_eq!(pipeline.translate_ahead(&ahead[0], None), pipeline.translate(asked(&parts, None)));
            // Bits outside the mask may have any value. (Fields that must agree with others are not changed.)
            for field in [Field::EthSrc, Field::EthDst, Field::Ipv4Src, Field::Ipv4Dst, Field::TcpSrc, Field::TcpDst, Field::NwTtl, Field::VlanPcp] {
                let mut other = flow;
                let free = !fresh.mask.get(field) & field.all_ones();
                other.set(field, flow.get(field) ^ free);
                let is_own = fresh.is_own || (field == Field::VlanPcp && flow.get(Field::VlanTci) == 0);
                if !is_own {
                    let again = pipeline.translate(asked(&other, None));
                    prop_assert_eq!(&again.program, &fresh.program, "{} may be anything", field.name());
                }
            }
        }
        // Results of look-ups from before a change are not used.
        add(&mut pipeline, 0, 9, Match::ANY, vec![out(2)]);
        let flow = *before[39].flow();
        prop_assert_eq!(pipeline.translate_ahead(&before[39], None), pipeline.translate(asked(&flow, None)));
    }
}

#[test]
fn a_controller_gets_the_frame_as_it_was_then() {
    let mut pipeline = pipeline();
    let tells =
        |dst| vec![set(Field::EthDst, dst), Action::Output { port: port::CONTROLLER, max_len: 0xffff }];
    let mut actions = vec![Action::Clone(tells(0x0200_0000_0011))];
    actions.extend([Action::Output { port: port::CONTROLLER, max_len: 0xffff }]);
    actions.extend(tells(0x0200_0000_0022));
    add(&mut pipeline, 0, 1, Match::ANY, actions);
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1000, 80), 60);
    let flow = read(&frame, 1);
    let translated = pipeline.translate(asked(&flow, Some(&frame)));
    let told = translated.to_controller.iter().map(|to| to.frame.as_ref().unwrap()[5]);
    assert_eq!(told.collect::<Vec<_>>(), [0x11, frame[5], 0x22]);
}

#[test]
fn sctp_padding_is_no_part_of_its_checksum() {
    let mut pipeline = pipeline();
    let sctp = Match::ANY.with(Field::EthType, 0x0800).with(Field::IpProto, 132);
    add(&mut pipeline, 0, 1, sctp, vec![set(Field::SctpDst, 9000), out(2)]);
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, 36, 0, 1, 0, 0, 64, 132, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = packet::checksum::ipv4_header(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    let mut message = vec![0x10, 0, 0x20, 0, 0, 0, 0, 9, 0, 0, 0, 0, 11, 0, 0, 4];
    let crc = packet::checksum::crc32c(&message);
    message[8..12].copy_from_slice(&crc.to_le_bytes());
    frame.extend(&message);
    frame.resize(60, 0xee);
    let left = run(&pipeline, &frame, 1);
    let mut got = left[0].1[34..50].to_vec();
    let crc = u32::from_le_bytes(got[8..12].try_into().unwrap());
    got[8..12].fill(0);
    assert_eq!(crc, packet::checksum::crc32c(&got));
    assert_eq!(u16::from_be_bytes([got[2], got[3]]), 9000);
}

#[test]
fn a_resubmit_looks_up_elsewhere_and_acts_where_it_came_in() {
    let mut pipeline = pipeline();
    add(&mut pipeline, 0, 1, from(1), vec![Action::Resubmit { port: Some(4), table: Some(1) }, out(3)]);
    add(&mut pipeline, 1, 1, from(4), vec![Action::DecTtl(vec![]), out(port::FLOOD)]);
    let ports = |ttl| {
        let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), ttl);
        run(&pipeline, &frame, 1).into_iter().map(|(port, _)| port.0).collect::<Vec<_>>()
    };
    assert_eq!(ports(60), [2, 3, 4, 3], "not back to 1");
    assert_eq!(ports(1), [3], "a spent TTL ends the inner list alone");
}
