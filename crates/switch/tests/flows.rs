//! Consistency of translation: bits outside a flow's mask may change without a change of the actions.
//! Execution of programs on frames.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod rules;

use std::collections::BTreeSet;

use packet::PortId;
use proptest::prelude::*;
use rules::{add, asked, flow_port, from, is_sound, out, pipeline, read, run, set, tcp};
use switch::flow::{
    Action, Ahead, Bucket, Conjunction, Field, Flow, FlowError, FlowMod, FlowPort, Group, GroupKind,
    GroupMod, Instructions, Match, Mod, Op, Pipeline, Prerequisite, SelectMethod, SubField, port,
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

#[test]
fn labels_go_on_and_come_off() {
    let mut pipeline = pipeline();
    let ip = Match::ANY.with(Field::EthType, 0x0800);
    add(&mut pipeline, 0, 1, ip, vec![Action::PushMpls(0x8847), set(Field::MplsLabel, 100), out(2)]);
    let mpls = Match::ANY.with(Field::EthType, 0x8847).with(Field::MplsLabel, 100);
    let back = vec![Action::PopMpls(0x0800), Action::Resubmit { port: None, table: Some(1) }];
    add(&mut pipeline, 0, 1, mpls, back);
    let to = Match::ANY.with(Field::EthType, 0x0800).with(Field::Ipv4Dst, 0x0a00_0002);
    add(&mut pipeline, 1, 1, to, vec![set(Field::Ipv4Dst, 0x0b00_0003), out(3)]);
    let frame = tcp(Some(9), [10, 0, 0, 1], [10, 0, 0, 2], (1000, 80), 60);
    let labelled = run(&pipeline, &frame, 1);
    let flow = read(&labelled[0].1, 1);
    assert_eq!(
        (flow.get(Field::MplsLabel), flow.get(Field::MplsTtl), flow.get(Field::MplsBos)),
        (100, 60, 1)
    );
    assert_eq!(flow.get(Field::VlanTci), 0x1000 | 9, "the label stands behind the tag");
    let bare = run(&pipeline, &labelled[0].1, 2);
    assert_eq!(bare.len(), 1, "the rule behind the label was met");
    assert_eq!(read(&bare[0].1, 1).get(Field::Ipv4Dst), 0x0b00_0003);
    assert!(is_sound(&bare[0].1));
    let translated = pipeline.translate(asked(&flow, Some(&labelled[0].1)));
    assert!(
        translated.is_own && translated.megaflow(&flow).is_none(),
        "what was behind the label is no part of the mask"
    );
}

/// Behind one label, or behind several of which all but the last are removed, the TTL is copied into an IPv4
/// header (with its checksum updated) or an IPv6 header, and into nothing else.
#[test]
fn a_ttl_is_copied_into_the_header_behind_the_last_label() {
    let mut pipeline = pipeline();
    let ttl = |value| set(Field::MplsTtl, value);
    add(&mut pipeline, 0, 1, from(1), vec![Action::PushMpls(0x8847), ttl(33), Action::CopyTtlIn, out(2)]);
    add(&mut pipeline, 0, 1, from(2), vec![Action::CopyTtlIn, out(3)]);
    add(&mut pipeline, 0, 1, from(3), vec![Action::CopyTtlIn, Action::PopMpls(0x0800), out(4)]);
    let frame = tcp(Some(9), [10, 0, 0, 1], [10, 0, 0, 2], (1000, 80), 60);
    let labelled = run(&pipeline, &frame, 1).remove(0).1;
    let bare = run(&pipeline, &labelled, 3).remove(0).1;
    assert_eq!(read(&bare, 1).get(Field::NwTtl), 33);
    assert!(is_sound(&bare));
    // The label in the key decides, so that the megaflow is cached.
    let flow = read(&labelled, 2);
    let translated = pipeline.translate(asked(&flow, Some(&labelled)));
    assert!(
        translated.is_cacheable()
            && translated.mask.get(Field::MplsTtl) == 0xff
            && translated.mask.get(Field::MplsBos) == 1
    );

    let behind = |labels: &[u8], ip: &[u8]| {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0x47];
        frame.extend(labels);
        frame.extend(ip);
        frame
    };
    let last = [0, 0, 0x11, 77];
    let mut v6 = vec![0x60, 0, 0, 0, 0, 4, 253, 9];
    v6.extend([1; 36]);
    let left = run(&pipeline, &behind(&last, &v6), 2).remove(0).1;
    v6[7] = 77;
    assert_eq!(left, behind(&last, &v6));
    // The TTL is copied into the next label if there is one.
    let two = run(&pipeline, &behind(&[0, 0, 0x10, 50, 0, 0, 0x11, 7], &v6), 2).remove(0).1;
    assert_eq!(two, behind(&[0, 0, 0x10, 50, 0, 0, 0x11, 50], &v6));
    for other in [&[0x55; 40][..], &[0x45; 19], &[0x60; 39], &[]] {
        let frame = behind(&last, other);
        assert_eq!(run(&pipeline, &frame, 2), [(PortId(3), frame)]);
    }
}

/// A queue is selected once before its outputs. Within a bucket or copy the selection applies only there. No
/// queue is selected without an output.
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
fn a_first_label_takes_class_and_ttl_from_the_packet() {
    let mut pipeline = pipeline();
    add(&mut pipeline, 0, 1, Match::ANY, vec![Action::PushMpls(0x8847), out(2)]);
    for (ttl, wanted) in [(60, 60), (1, 1), (0, 64)] {
        let mut frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1000, 80), ttl);
        // Expedited forwarding is DSCP 46, of which the lowest three bits count.
        frame[15] = 46 << 2;
        let flow = read(&run(&pipeline, &frame, 1)[0].1, 1);
        assert_eq!((flow.get(Field::MplsTtl), flow.get(Field::MplsTc)), (wanted, 6), "{ttl}");
    }
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
fn to_rules_a_fragment_has_no_ports() {
    let mut pipeline = pipeline();
    let tcp_packet = Match::ANY.with(Field::EthType, 0x0800).with(Field::IpProto, 6);
    add(&mut pipeline, 0, 9, tcp_packet.with(Field::TcpDst, 80), vec![out(2)]);
    add(&mut pipeline, 0, 8, tcp_packet.with(Field::TcpDst, 0), vec![set(Field::TcpDst, 8080), out(3)]);
    let whole = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1000, 80), 60);
    let mut first = whole.clone();
    first[20] = 0x20;
    assert_eq!(run(&pipeline, &whole, 1)[0].0, PortId(2));
    let left = run(&pipeline, &first, 1);
    assert_eq!(left[0].0, PortId(3));
    assert_eq!(left[0].1[36..38], 8080_u16.to_be_bytes(), "actions see the port that is there");
    // The fragment bit distinguishes the two, and fragments have no ports.
    let mask = |frame: &[u8]| pipeline.translate(asked(&read(frame, 1), Some(frame))).mask;
    assert_eq!(mask(&whole).get(Field::IpFrag) & 1, 1);
    assert_eq!((mask(&first).get(Field::IpFrag) & 1, mask(&first).get(Field::TcpSrc)), (1, 0));
}

/// A later ICMP fragment matches type 0, as it matches source port 0.
#[test]
fn to_rules_a_fragment_has_no_type_of_icmp() {
    let mut pipeline = pipeline();
    let icmp = Match::ANY.with(Field::EthType, 0x0800).with(Field::IpProto, 1);
    let later = icmp.with(Field::IpFrag, 3).with(Field::Icmpv4Type, 0);
    assert!(later.meets(Prerequisite::Icmpv4), "clients may ask for it");
    add(&mut pipeline, 0, 9, later, vec![out(2)]);
    add(&mut pipeline, 0, 8, icmp, vec![out(3)]);
    let mut frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (0x0800, 80), 60);
    frame[23] = 1;
    assert_eq!(run(&pipeline, &frame, 1)[0].0, PortId(3));
    frame[21] = 7;
    assert_eq!(run(&pipeline, &frame, 1)[0].0, PortId(2));
}

#[test]
fn buckets_and_clones_leave_the_packet_as_it_was() {
    let mut pipeline = pipeline();
    let bucket = |id, dst, to| Bucket {
        id,
        weight: 1,
        watch_port: None,
        watch_group: None,
        actions: vec![set(Field::EthDst, dst), out(to)],
    };
    let group = Group {
        id: 1,
        kind: GroupKind::All,
        method: SelectMethod::Default,
        buckets: vec![bucket(0, 0x0200_0000_0011, 2), bucket(1, 0x0200_0000_0022, 3)],
    };
    pipeline.modify(&[Mod::Group(GroupMod::Add(group))], 0).unwrap();
    let clone = Action::Clone(vec![Action::PushVlan(0x8100), set(Field::VlanVid, 0x1000 | 5), out(2)]);
    add(&mut pipeline, 0, 1, Match::ANY, vec![Action::Group(1), clone, out(4)]);
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1000, 80), 60);
    let left = run(&pipeline, &frame, 1);
    let ports: Vec<u16> = left.iter().map(|(port, _)| port.0).collect();
    assert_eq!(ports, [2, 3, 2, 4]);
    assert_eq!(read(&left[0].1, 0).get(Field::EthDst), 0x0200_0000_0011);
    assert_eq!(read(&left[2].1, 0).get(Field::VlanTci), 0x1005);
    assert_eq!(left[3].1, frame);
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

/// Rules of one match that name very many conjunctions are work of a packet that matches them. A packet with
/// too much work is dropped, as with too many actions. Ordinary numbers are far below the limit.
#[test]
fn conjunctions_count_as_work() {
    let ip = Match::ANY.with(Field::EthType, 0x0800);
    let parts = |from: u32, count: u32| -> Vec<Action> {
        let part = |id, clause| Action::Conjunction(Conjunction { id, clause, clauses: 2 });
        (from..from + count).flat_map(|id| [part(id, 0), part(id, 1)]).collect()
    };
    let translated = |rules: u16, each: u32| {
        let mut pipeline = pipeline();
        for rule in 0..rules {
            add(&mut pipeline, 0, 100 + rule, ip, parts(u32::from(rule) * each, each));
        }
        // The last conjunction that is examined.
        add(&mut pipeline, 0, 100, ip.with(Field::ConjId, u128::from(each - 1)), vec![out(2)]);
        let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
        pipeline.translate(asked(&read(&frame, 1), None))
    };
    let usual = translated(20, 50);
    assert_eq!(usual.program.ops, [Op::Output(PortId(2))]);
    for (rules, each) in [(20, 2000), (300, 100)] {
        let translated = translated(rules, each);
        assert!(
            translated.program.is_drop(),
            "{rules} rules of {each} conjunctions: {:?}",
            translated.program
        );
        assert_eq!(translated.dropped, packet::DropReason::RuleLoop);
        assert!(translated.is_cacheable(), "all packets of the flow are as much work");
    }
}

#[test]
fn loops_end() {
    let mut pipeline = pipeline();
    add(&mut pipeline, 0, 1, Match::ANY, vec![Action::Resubmit { port: None, table: Some(0) }; 3]);
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    let flow = read(&frame, 1);
    let translated = pipeline.translate(asked(&flow, None));
    assert_eq!(translated.dropped, packet::DropReason::RuleLoop);
    let chain = |id, to| Group {
        id,
        kind: GroupKind::Indirect,
        method: SelectMethod::Default,
        buckets: vec![Bucket {
            id: 0,
            weight: 0,
            watch_port: None,
            watch_group: None,
            actions: vec![Action::Group(to)],
        }],
    };
    let add_group = |group| Mod::Group(GroupMod::Add(group));
    pipeline.modify(&[add_group(chain(1, 2))], 0).unwrap();
    let refused = pipeline.modify(&[add_group(chain(2, 1))], 0);
    assert_eq!(refused, Err((0, FlowError::GroupLoop)));
}

/// A look-up in a later table is not a recursion (as in Open vSwitch). Only the number of look-ups bounds a
/// chain of tables, and the stack of a thread suffices for the deepest nesting that the bounds allow.
#[test]
fn resubmits_to_later_tables_do_not_deepen() {
    let resubmit = |table| Action::Resubmit { port: None, table: Some(table) };
    let chain = |last: Vec<Action>| {
        let mut pipeline = pipeline();
        for table in 0..253 {
            add(&mut pipeline, table, 1, Match::ANY, vec![resubmit(table + 1), Action::Note(vec![1])]);
        }
        add(&mut pipeline, 253, 1, Match::ANY, last);
        pipeline
    };
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    let flow = read(&frame, 1);
    assert_eq!(run(&chain(vec![out(2)]), &frame, 1).len(), 1);
    // Sixteen passes through all tables, each look-up nested in the previous one, until there are too many.
    let translated = chain(vec![resubmit(0), out(2)]).translate(asked(&flow, None));
    assert_eq!((translated.failed, translated.rules.len()), (Some(switch::flow::Failed::Lookups), 4096));
    // Repeated look-ups of one table are too deep long before.
    let mut same = pipeline();
    add(&mut same, 7, 1, Match::ANY, vec![resubmit(7)]);
    add(&mut same, 0, 1, Match::ANY, vec![resubmit(7)]);
    let translated = same.translate(asked(&flow, None));
    assert_eq!((translated.failed, translated.rules.len()), (Some(switch::flow::Failed::Depth), 66));
}

/// Clones inside each other need far more of the stack than look-ups, and groups with clones in their buckets, too. A
/// translation that needs more than there is ends, and the process lives.
#[test]
fn no_nesting_of_clones_exceeds_the_stack() {
    let resubmit = |table| Action::Resubmit { port: None, table: Some(table) };
    let nested = |mut inner: Action| {
        for _ in 0..62 {
            inner = Action::Clone(vec![inner]);
        }
        inner
    };
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    let flow = read(&frame, 1);
    // One rule whose clones look the packet up in the rule's own table.
    let mut same = pipeline();
    add(&mut same, 0, 1, Match::ANY, vec![nested(resubmit(0))]);
    let translated = same.translate(asked(&flow, None));
    assert_eq!(translated.failed, Some(switch::flow::Failed::Depth));
    // A chain through all tables, again and again.
    let mut chain = pipeline();
    for table in 0..253 {
        add(&mut chain, table, 1, Match::ANY, vec![nested(resubmit(table + 1))]);
    }
    add(&mut chain, 253, 1, Match::ANY, vec![nested(resubmit(0)), out(2)]);
    let translated = chain.translate(asked(&flow, None));
    assert!(translated.failed.is_some(), "{} look-ups", translated.rules.len());
    // Within the bounds, clones do what they say.
    let mut few = pipeline();
    add(&mut few, 0, 1, Match::ANY, vec![nested(resubmit(1)), out(3)]);
    add(&mut few, 1, 1, Match::ANY, vec![nested(out(2))]);
    assert_eq!(few.translate(asked(&flow, None)).failed, None);
    assert_eq!(run(&few, &frame, 1).len(), 2);
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
    // The miss handling applies behind goto_table and not behind a resubmit.
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

#[test]
fn fragments_have_ports_or_go_nowhere_as_configured() {
    use switch::flow::Fragments;
    let mut pipeline = pipeline();
    let tcp80 = Match::ANY.with(Field::EthType, 0x0800).with(Field::IpProto, 6).with(Field::TcpDst, 80);
    add(&mut pipeline, 0, 2, tcp80, vec![out(2)]);
    add(&mut pipeline, 0, 1, Match::ANY, vec![out(3)]);
    let whole = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 80), 60);
    let mut first = whole.clone();
    first[20] = 0x20;
    let mut later = whole.clone();
    later[21] = 9;
    let to = |pipeline: &switch::flow::Pipeline| {
        [&whole, &first, &later].map(|frame| run(pipeline, frame, 1).first().map(|left| left.0.0))
    };
    assert_eq!(to(&pipeline), [Some(2), Some(3), Some(3)]);
    assert!(pipeline.set_fragments(Fragments::NxMatch));
    assert_eq!(to(&pipeline), [Some(2), Some(2), Some(3)]);
    assert!(pipeline.set_fragments(Fragments::Drop));
    assert_eq!(to(&pipeline), [Some(2), None, None]);
    let flow = read(&whole, 1);
    assert_eq!(
        pipeline.translate(asked(&flow, None)).mask.get(Field::IpFrag) & 1,
        1,
        "others are no fragments"
    );
    assert!(!pipeline.set_fragments(Fragments::Reassemble));
    assert_eq!(pipeline.fragments(), Fragments::Drop);
}

/// Generates matches of few values, so that rules and packets match.
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

    /// The invariant of the caches: packets that agree in the bits of the mask get equal actions.
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
fn what_was_set_before_a_label_came_off_is_kept() {
    let mut pipeline = pipeline();
    let mpls = Match::ANY.with(Field::EthType, 0x8847);
    let actions =
        vec![Action::PopMpls(0x0800), set(Field::EthDst, 0x0200_0000_0042), Action::DecTtl(vec![]), out(3)];
    add(&mut pipeline, 0, 1, mpls, actions);
    let mut frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1000, 80), 60);
    frame.splice(12..14, [0x88, 0x47, 0, 0x06, 0x41, 60]);
    let left = run(&pipeline, &frame, 1);
    let flow = read(&left[0].1, 1);
    assert_eq!((flow.get(Field::EthDst), flow.get(Field::NwTtl)), (0x0200_0000_0042, 59));
    assert!(is_sound(&left[0].1));
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

/// Fast failover and select groups skip the bucket of a member port without link, and use the bucket again
/// when the link is back.
#[test]
fn a_bucket_that_watches_a_port_without_link_is_left_out() {
    let mut pipeline = pipeline();
    let watching =
        |id, to| Bucket { id, weight: 1, watch_port: Some(to), watch_group: None, actions: vec![out(to)] };
    let group = |id, kind| {
        let buckets = vec![watching(0, 2), watching(1, 3)];
        Mod::Group(GroupMod::Add(Group { id, kind, method: SelectMethod::Default, buckets }))
    };
    pipeline.modify(&[group(1, GroupKind::FastFailover), group(2, GroupKind::Select)], 0).unwrap();
    add(&mut pipeline, 0, 1, from(1), vec![Action::Group(1)]);
    add(&mut pipeline, 0, 1, from(4), vec![Action::Group(2)]);
    // The select group distributes these packets by their source.
    let ways = |pipeline: &Pipeline, in_port| -> BTreeSet<u16> {
        let frame = |last| tcp(None, [10, 0, 0, last], [10, 0, 0, 2], (1000 + u16::from(last), 80), 64);
        (0..64).flat_map(|last| run(pipeline, &frame(last), in_port)).map(|(port, _)| port.0).collect()
    };
    let link = |pipeline: &mut Pipeline, number, live| {
        pipeline.set_port(number, Some(FlowPort { live, ..flow_port(number) }));
    };
    let check = |pipeline: &Pipeline, failover: &[u16], select: &[u16]| {
        assert_eq!(ways(pipeline, 1), failover.iter().copied().collect());
        assert_eq!(ways(pipeline, 4), select.iter().copied().collect());
    };
    check(&pipeline, &[2], &[2, 3]);
    link(&mut pipeline, 2, false);
    check(&pipeline, &[3], &[3]);
    link(&mut pipeline, 3, false);
    check(&pipeline, &[], &[]);
    link(&mut pipeline, 2, true);
    check(&pipeline, &[2], &[2]);
}

#[test]
fn hostile_groups_and_lists_come_to_an_end() {
    let mut pipeline = pipeline();
    let group = |id, kind, buckets| {
        Mod::Group(GroupMod::Add(Group { id, kind, method: SelectMethod::Default, buckets }))
    };
    // No bucket that watches a missing group is live, which is found at once.
    let watching =
        |id| Bucket { id, weight: 1, watch_port: None, watch_group: Some(99), actions: vec![out(2)] };
    let watches = group(1, GroupKind::FastFailover, (0..8).map(watching).collect());
    // Thirty-one groups of two buckets, each of which leads to the next group.
    let leads = |id, to| Bucket {
        id,
        weight: 1,
        watch_port: None,
        watch_group: None,
        actions: vec![Action::Group(to)],
    };
    let chain = (2..32).map(|id| group(id, GroupKind::All, vec![leads(0, id + 1), leads(1, id + 1)]));
    let mods: Vec<Mod> = std::iter::once(watches).chain(chain).collect();
    pipeline.modify(&mods, 0).unwrap();
    add(&mut pipeline, 0, 1, from(1), vec![Action::Group(1)]);
    add(&mut pipeline, 0, 1, from(2), vec![Action::Group(2)]);
    let tell = Action::Output { port: port::CONTROLLER, max_len: 0 };
    let mut list = vec![tell; 4000];
    list.push(Action::Resubmit { port: None, table: Some(0) });
    add(&mut pipeline, 0, 1, from(3), list);
    let multipath = Action::Multipath {
        fields: switch::flow::HashFields::EthSrc,
        basis: 0,
        mode: switch::flow::BundleMode::Iterative,
        max_link: 0,
        argument: u32::MAX,
        to: SubField::whole(Field::Reg0),
    };
    add(&mut pipeline, 0, 1, from(4), vec![multipath, out(1)]);
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    for in_port in 1..=4 {
        let flow = read(&frame, in_port);
        let translated = pipeline.translate(asked(&flow, Some(&frame)));
        assert!(translated.to_controller.len() <= 256 && translated.groups.len() <= 65_536);
        assert_eq!(translated.program.ops.is_empty(), in_port != 4, "{in_port}");
    }
    // A loop inside a clone is found.
    let hidden = Bucket { actions: vec![Action::Clone(vec![Action::Group(50)])], ..leads(0, 0) };
    pipeline.modify(&[group(51, GroupKind::All, vec![hidden])], 0).unwrap();
    let back = pipeline.modify(&[group(50, GroupKind::All, vec![leads(0, 51)])], 0);
    assert_eq!(back, Err((0, FlowError::GroupLoop)));
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

/// Requests for different hosts spread over a group's buckets, and a reply gets the bucket of its request.
#[test]
fn a_select_group_spreads_arp_by_its_addresses() {
    for method in [SelectMethod::Default, SelectMethod::DpHash { parameter: 7 }] {
        let mut pipeline = pipeline();
        let bucket = |id: u32| Bucket {
            id,
            weight: 1,
            watch_port: None,
            watch_group: None,
            actions: vec![out(id + 2)],
        };
        let buckets = (0..3).map(bucket).collect();
        let group = Group { id: 1, kind: GroupKind::Select, method: method.clone(), buckets };
        pipeline.modify(&[Mod::Group(GroupMod::Add(group))], 0).unwrap();
        add(&mut pipeline, 0, 1, Match::ANY, vec![Action::Group(1)]);
        let arp = |op: u8, from: u8, to: u8| {
            let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, op];
            frame.extend([2, 0, 0, 0, 0, 1, 10, 0, 0, from]);
            frame.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, to]);
            frame
        };
        let mut used = std::collections::BTreeSet::new();
        for host in 2..66 {
            let request = run(&pipeline, &arp(1, 1, host), 1);
            let reply = run(&pipeline, &arp(2, host, 1), 1);
            assert_eq!(request[0].0, reply[0].0, "host {host}");
            used.insert(request[0].0);
        }
        assert_eq!(used.len(), 3, "{method:?}: {used:?}");
    }
}

#[test]
fn the_bottom_of_stack_bit_can_be_set() {
    let mut pipeline = pipeline();
    let mpls = Match::ANY.with(Field::EthType, 0x8847);
    add(&mut pipeline, 0, 1, mpls, vec![set(Field::MplsBos, 1), out(2), set(Field::MplsBos, 0), out(3)]);
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0x47, 0, 6, 0x46, 64, 0, 0, 0x11, 64];
    frame.extend([0; 20]);
    let left = run(&pipeline, &frame, 1);
    assert_eq!((&left[0].1[14..18], &left[1].1[14..18]), (&[0, 6, 0x47, 64][..], &[0, 6, 0x46, 64][..]));
    assert_eq!(left[0].1[18..], frame[18..]);
}

/// Each removed label requires that the packet be parsed again. The time is linear in the number of labels,
/// not quadratic.
#[test]
fn labels_are_taken_off_one_by_one_in_time() {
    const LABELS: usize = 4000;
    let mut pipeline = pipeline();
    let mpls = Match::ANY.with(Field::EthType, 0x8847);
    add(&mut pipeline, 0, 1, mpls, [vec![Action::PopMpls(0x8847); LABELS], vec![out(2)]].concat());
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0x47];
    for label in 0..=LABELS {
        let bottom = u32::from(label == LABELS);
        let entry = u32::try_from(label).unwrap() << 12 | bottom << 8 | 64;
        frame.extend(entry.to_be_bytes());
    }
    #[allow(clippy::disallowed_methods, reason = "bounds by far what would take minutes")]
    let begin = std::time::Instant::now();
    let left = run(&pipeline, &frame, 1);
    assert!(begin.elapsed() < std::time::Duration::from_secs(5), "{:?}", begin.elapsed());
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].1.len(), 14 + 4, "the last label is left");
    assert_eq!(left[0].1[14..], frame[frame.len() - 4..]);
    // Actions on a copy do not change the packet.
    let mut pipeline = rules::pipeline();
    let pop = || Action::PopMpls(0x8847);
    let ttl = |value| Action::SetMplsTtl(value);
    let copy = Action::Clone(vec![pop(), ttl(7), out(3), pop(), ttl(8), out(3)]);
    add(&mut pipeline, 0, 1, mpls, vec![pop(), ttl(5), copy.clone(), out(2), pop(), ttl(6), copy, out(2)]);
    let labels = |frame: &[u8]| (frame[14 + 1] as usize) << 4 | usize::from(frame[14 + 2] >> 4);
    let left: Vec<_> = run(&pipeline, &frame[..14 + 4 * 20], 1)
        .iter()
        .map(|(port, frame)| (port.0, labels(frame), frame[17]))
        .collect();
    assert_eq!(left, [(3, 2, 7), (3, 3, 8), (2, 1, 5), (3, 3, 7), (3, 4, 8), (2, 2, 6)]);
}

/// Steps that take long for each packet weigh more than others, and a copy that goes nowhere adds none.
#[test]
fn what_a_packet_takes_in_the_worker_is_bounded() {
    let mut pipeline = pipeline();
    let sctp = Match::ANY.with(Field::EthType, 0x0800).with(Field::IpProto, 132);
    let ports = |copy: Vec<Action>| -> Vec<Action> {
        let port = |number: u128| [set(Field::SctpSrc, number), Action::Clone(copy.clone())];
        (1..=1300).flat_map(port).chain([out(2)]).collect()
    };
    let ops = |pipeline: &Pipeline| pipeline.translate(asked(&sctp.value, None)).program.ops;
    let sets = |ops: &[Op]| ops.iter().filter(|op| matches!(op, Op::Set(_))).count();
    // Neither an empty copy nor one that is only changed.
    for nowhere in [vec![], vec![Action::Clone(vec![])], vec![set(Field::SctpDst, 9)]] {
        add(&mut pipeline, 0, 9, sctp, ports(nowhere));
        let ops = ops(&pipeline);
        assert!(matches!(ops[..], [Op::Set(_), Op::Output(_)]), "{ops:?}");
        let Op::Set(bits) = &ops[0] else { unreachable!() };
        assert_eq!((bits.value.get(Field::SctpSrc), bits.mask.get(Field::SctpDst)), (1300, 0));
    }
    add(&mut pipeline, 0, 9, sctp, ports(vec![out(3)]));
    let steps = ops(&pipeline);
    assert!((200..=256).contains(&sets(&steps)), "{}", sets(&steps));
    // Other steps are as many as ever.
    let ttl = |ttl: u128| [set(Field::NwTtl, ttl % 250), out(2)];
    add(&mut pipeline, 0, 9, sctp, (0..2000).flat_map(ttl).collect());
    assert_eq!(ops(&pipeline).len(), 4000);
}
