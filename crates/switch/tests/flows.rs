//! Translation held against itself: whatever a flow's mask leaves open may be changed, and the fate stays the same. And what programs make
//! of frames.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;

use packet::{FlowKey, MacAddr, PortId};
use proptest::prelude::*;
use switch::flow::{
    Action, Asked, Band, BandKind, Beyond, Bucket, Conjunction, Field, Flow, FlowCommand, FlowError,
    FlowFilter, FlowMod, FlowPort, FlowStats, Group, GroupKind, GroupMod, Instructions, Learn, LearnPart,
    LearnSource, Match, Meter, MeterMod, Mod, Op, Pipeline, PortDesc, Prerequisite, SelectMethod, SubField,
    port, rewrite,
};

fn flow_port(number: u32) -> FlowPort {
    let desc =
        PortDesc { number, name: format!("p{number}"), mac: MacAddr([2; 6]), config: 0, state: 4, speed: 0 };
    FlowPort {
        id: PortId(u16::try_from(number).unwrap()),
        desc,
        floods: true,
        forwards: true,
        receives: true,
        live: true,
    }
}

fn pipeline() -> Pipeline {
    let mut pipeline = Pipeline::new();
    for number in 1..=4 {
        pipeline.set_port(number, Some(flow_port(number)));
    }
    pipeline
}

fn add(pipeline: &mut Pipeline, table: u8, priority: u16, matching: Match, actions: Vec<Action>) {
    let change = FlowMod::add(table, priority, matching, Instructions::apply(actions));
    pipeline.modify(&[Mod::Flow(Box::new(change))], 0).unwrap();
}

fn from(port: u32) -> Match {
    Match::ANY.with(Field::InPort, u128::from(port))
}

fn out(port: u32) -> Action {
    Action::Output { port, max_len: 0 }
}

fn set(field: Field, value: u128) -> Action {
    Action::Set { field, value, mask: field.all_ones(), load: false }
}

/// A TCP packet over IPv4, tagged or not, with sound checksums.
fn tcp(vlan: Option<u16>, src: [u8; 4], dst: [u8; 4], ports: (u16, u16), ttl: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if let Some(vid) = vlan {
        frame.extend([0x81, 0x00]);
        frame.extend(vid.to_be_bytes());
    }
    frame.extend([0x08, 0x00]);
    let at = frame.len();
    frame.extend([0x45, 0, 0, 44, 0, 1, 0, 0, ttl, 6, 0, 0]);
    frame.extend(src);
    frame.extend(dst);
    let sum = packet::checksum::ipv4_header(&frame[at..at + 20]);
    frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ports.0.to_be_bytes());
    frame.extend(ports.1.to_be_bytes());
    frame.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0, b'a', b'b', b'c', b'd']);
    let pseudo = packet::checksum::l4_pseudo_v4(src.into(), dst.into(), 6, 24);
    packet::checksum::fill(&mut frame[at + 20..], 16, pseudo);
    frame
}

fn read(frame: &[u8], in_port: u32) -> Flow {
    let mut key = FlowKey::ZERO;
    let layers = FlowKey::extract(frame, frame.len(), PortId(0), &mut key).unwrap();
    Flow::new(&key, &Beyond::extract(frame, &key, &layers), in_port)
}

fn asked<'a>(flow: &'a Flow, frame: Option<&'a [u8]>) -> Asked<'a> {
    Asked { flow, frame, trace: false }
}

/// The frames that leave, with their ports.
fn run(pipeline: &Pipeline, frame: &[u8], in_port: u32) -> Vec<(PortId, Vec<u8>)> {
    let flow = read(frame, in_port);
    let fate = pipeline.translate(asked(&flow, Some(frame)));
    let mut left = Vec::new();
    execute(&fate.program.ops, frame.to_vec(), &mut left);
    left
}

fn execute(ops: &[Op], mut frame: Vec<u8>, left: &mut Vec<(PortId, Vec<u8>)>) {
    let mut at = 0;
    while at < ops.len() {
        match &ops[at] {
            Op::Output(port) => left.push((*port, frame.clone())),
            Op::Clone(n) => {
                execute(&ops[at + 1..at + 1 + usize::from(*n)], frame.clone(), left);
                at += usize::from(*n);
            }
            op => rewrite(&mut frame, op).unwrap(),
        }
        at += 1;
    }
}

fn is_sound(frame: &[u8]) -> bool {
    let mut key = FlowKey::ZERO;
    let layers = FlowKey::extract(frame, frame.len(), PortId(0), &mut key).unwrap();
    let (Some(l3), Some(l4)) = (layers.l3(), layers.l4()) else { return false };
    let len = u16::from_be_bytes([frame[l3 + 2], frame[l3 + 3]]);
    let end = l3 + usize::from(len);
    let pseudo = packet::checksum::l4_pseudo_v4(key.ipv4_src(), key.ipv4_dst(), 6, len - 20);
    let mut again = frame[l4..end].to_vec();
    packet::checksum::fill(&mut again, 16, pseudo);
    again == frame[l4..end] && packet::checksum::ipv4_header(&frame[l3..l3 + 20]) == 0
}

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
    let fate = pipeline.translate(asked(&flow, Some(&labelled[0].1)));
    assert!(
        fate.is_own && fate.megaflow(&flow).is_none(),
        "what was behind the label is no part of the mask"
    );
}

#[test]
fn a_first_label_takes_class_and_ttl_from_the_packet() {
    let mut pipeline = pipeline();
    add(&mut pipeline, 0, 1, Match::ANY, vec![Action::PushMpls(0x8847), out(2)]);
    for (ttl, wanted) in [(60, 60), (1, 1), (0, 64)] {
        let mut frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1000, 80), ttl);
        // Expedited forwarding, 46: its lowest three bits.
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
    // Its pseudo header has no form over IPv4 (RFC 8200, 8.1).
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
    // The two are told apart by the bit, and no port by fragments.
    let mask = |frame: &[u8]| pipeline.translate(asked(&read(frame, 1), Some(frame))).mask;
    assert_eq!(mask(&whole).get(Field::IpFrag) & 1, 1);
    assert_eq!((mask(&first).get(Field::IpFrag) & 1, mask(&first).get(Field::TcpSrc)), (1, 0));
}

/// A later fragment of ICMP is of type 0 to rules, as it is from port 0.
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
fn what_is_learnt_serves() {
    let mut pipeline = pipeline();
    let learn = Learn {
        idle_timeout: 10,
        hard_timeout: 0,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        priority: 5,
        cookie: 7,
        flags: 0,
        table: 1,
        limit: 0,
        result: None,
        parts: vec![
            LearnPart::Match(
                LearnSource::Field(SubField::whole(Field::EthSrc)),
                SubField::whole(Field::EthDst),
            ),
            LearnPart::Output(SubField::whole(Field::InPort)),
        ],
    };
    let again = Action::Resubmit { port: None, table: Some(1) };
    add(&mut pipeline, 0, 1, Match::ANY, vec![Action::Learn(Box::new(learn)), again]);
    add(&mut pipeline, 1, 0, Match::ANY, vec![out(port::FLOOD)]);
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    let flow = read(&frame, 1);
    let fate = pipeline.translate(asked(&flow, Some(&frame)));
    let outputs = fate.program.ops.iter().filter(|op| matches!(op, Op::Output(_))).count();
    assert_eq!(outputs, 3, "flooded, but not back");
    fate.learns.iter().for_each(|lesson| pipeline.teach(lesson, 0).unwrap());
    let mut back = frame.clone();
    back.rotate_left(0);
    back[..6].copy_from_slice(&frame[6..12]);
    back[6..12].copy_from_slice(&frame[..6]);
    let left = run(&pipeline, &back, 3);
    assert_eq!(left.iter().map(|(port, _)| port.0).collect::<Vec<_>>(), [1]);
    pipeline.expire(11_000_000_000);
    assert_eq!(pipeline.rule_count(), 2, "silent for eleven seconds");
}

/// Teaches table 1 to send to the source of what came in.
fn teaches(cookie: u64, flags: u16, limit: u32, result: Option<SubField>) -> Action {
    Action::Learn(Box::new(Learn {
        idle_timeout: 0,
        hard_timeout: 0,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        priority: 5,
        cookie,
        flags,
        table: 1,
        limit,
        result,
        parts: vec![
            LearnPart::Match(
                LearnSource::Field(SubField::whole(Field::EthSrc)),
                SubField::whole(Field::EthDst),
            ),
            LearnPart::Output(SubField::whole(Field::InPort)),
        ],
    }))
}

/// A packet of one source, and whether all that it teaches is learnt.
fn taught(pipeline: &mut Pipeline, source: u8) -> (switch::flow::Translated, bool) {
    let mut frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    frame[11] = source;
    let fate = pipeline.translate(asked(&read(&frame, 1), Some(&frame)));
    let all = fate.learns.iter().all(|lesson| pipeline.teach(lesson, 0).is_ok());
    (fate, all)
}

#[test]
fn no_more_is_learnt_than_a_limit_allows() {
    let mut pipeline = pipeline();
    let told = SubField { field: Field::Reg0, first: 3, bits: 1 };
    add(
        &mut pipeline,
        0,
        1,
        Match::ANY,
        vec![teaches(7, 4, 2, Some(told)), Action::Resubmit { port: None, table: Some(2) }],
    );
    add(&mut pipeline, 2, 1, Match::ANY.with(Field::Reg0, 8), vec![out(2)]);
    add(&mut pipeline, 2, 0, Match::ANY, vec![out(3)]);
    // Others' rules do not count: another cookie, another table.
    add(&mut pipeline, 1, 1, Match::ANY, vec![out(4)]);
    let left = |fate: &switch::flow::Translated| {
        assert!(fate.is_own, "the next packet may find no room");
        fate.program.ops.iter().filter(|op| matches!(op, Op::Output(PortId(2)))).count() == 1
    };
    for source in [1, 2, 1] {
        let (fate, all) = taught(&mut pipeline, source);
        assert!(all && left(&fate), "{source}");
    }
    let (fate, all) = taught(&mut pipeline, 3);
    assert!(!all && !left(&fate));
    // The same place is no new rule.
    assert!(taught(&mut pipeline, 2).1);
    assert_eq!(pipeline.rule_count(), 6);
    // One goes, so one more may come.
    let mut gone =
        FlowMod::add(1, 5, Match::ANY.with(Field::EthDst, 0x0200_0000_0001), Instructions::default());
    gone.command = FlowCommand::Delete { strict: true };
    pipeline.modify(&[Mod::Flow(Box::new(gone))], 0).unwrap();
    let (fate, all) = taught(&mut pipeline, 3);
    assert!(all && left(&fate));
    assert!(!taught(&mut pipeline, 1).1);
}

#[test]
fn what_is_learnt_goes_with_the_last_who_taught_it() {
    let mut pipeline = pipeline();
    let count =
        |pipeline: &Pipeline| pipeline.flows(&FlowFilter { table: 1, ..FlowFilter::default() }, 0).len();
    let teacher = |priority: u16, command: FlowCommand, actions: Vec<Action>| {
        let mut change = FlowMod::add(0, priority, Match::ANY, Instructions::apply(actions));
        change.command = command;
        Mod::Flow(Box::new(change))
    };
    let strict = || FlowCommand::Delete { strict: true };
    // Two teach the same, one of them inside a clone; a third one keeps nothing.
    let inside = vec![Action::Clone(vec![teaches(7, 2, 0, None)])];
    let start = |pipeline: &mut Pipeline| {
        let mods = [
            teacher(3, FlowCommand::Add, vec![teaches(7, 2, 0, None)]),
            teacher(2, FlowCommand::Add, inside.clone()),
            teacher(1, FlowCommand::Add, vec![teaches(8, 0, 0, None)]),
        ];
        pipeline.modify(&mods, 0).unwrap();
        assert!(taught(pipeline, 1).1 && taught(pipeline, 2).1);
        assert_eq!(count(pipeline), 2);
    };
    start(&mut pipeline);
    // The same rule put there again teaches as before.
    pipeline.modify(&[teacher(3, FlowCommand::Add, vec![teaches(7, 2, 0, None)])], 0).unwrap();
    pipeline.modify(&[teacher(3, strict(), Vec::new())], 0).unwrap();
    assert_eq!(count(&pipeline), 2, "the other one teaches them, too");
    // A batch that is refused takes nothing with it.
    let loops = teacher(9, FlowCommand::Add, vec![Action::Group(77)]);
    assert!(pipeline.modify(&[teacher(2, strict(), Vec::new()), loops], 0).is_err());
    assert_eq!(count(&pipeline), 2);
    // In a batch that ends with a teacher they stay.
    pipeline
        .modify(&[teacher(2, strict(), Vec::new()), teacher(4, FlowCommand::Add, inside.clone())], 0)
        .unwrap();
    assert_eq!(count(&pipeline), 2);
    pipeline.take_events();
    let modify = FlowCommand::Modify { strict: true, or_add: false };
    pipeline.modify(&[teacher(4, modify, vec![out(1)])], 0).unwrap();
    assert_eq!(count(&pipeline), 0);
    let told = pipeline.take_events();
    let removed = |event: &&switch::flow::Event| {
        matches!(event, switch::flow::Event::Removed(_, switch::flow::Removed::Delete))
    };
    assert_eq!(told.iter().filter(removed).count(), 2);
    // By its time.
    let mut change = FlowMod::add(0, 9, Match::ANY, Instructions::apply(vec![teaches(9, 2, 0, None)]));
    change.hard_timeout = 5;
    pipeline.modify(&[Mod::Flow(Box::new(change))], 0).unwrap();
    assert!(taught(&mut pipeline, 1).1);
    assert_eq!(count(&pipeline), 1);
    pipeline.expire(6_000_000_000);
    assert_eq!(count(&pipeline), 0);
}

/// Has the controller give back whatever waits for it, until nothing does.
fn resumed(pipeline: &Pipeline, frame: &[u8], in_port: u32) -> (Vec<(PortId, Vec<u8>)>, usize) {
    let flow = read(frame, in_port);
    let mut fates = vec![(pipeline.translate(asked(&flow, Some(frame))), frame.to_vec())];
    let (mut left, mut waited) = (Vec::new(), 0);
    while let Some((fate, frame)) = fates.pop() {
        execute(&fate.program.ops, frame, &mut left);
        for told in fate.to_controller {
            let Some(rest) = told.continuation else { continue };
            waited += 1;
            let frame = told.frame.unwrap();
            let mut flow = read(&frame, in_port);
            // What the packet does not carry itself comes back with it.
            flow.0[..14].copy_from_slice(&told.flow.0[..14]);
            fates.push((pipeline.resume(asked(&flow, Some(&frame)), &rest), frame));
        }
    }
    (left, waited)
}

#[test]
fn a_packet_that_waits_for_its_controller_goes_on_where_it_was() {
    let reg = SubField::whole(Field::Reg0);
    let tables = |pause: bool| {
        let wait = |id: u16| Action::Controller {
            max_len: 20,
            id: 0,
            reason: 1,
            userdata: vec![id.to_le_bytes()[0]],
            pause,
            meter: None,
        };
        let mut pipeline = pipeline();
        let mut rule = FlowMod::add(
            0,
            9,
            from(1),
            Instructions::apply(vec![
                set(Field::Reg0, 7),
                Action::Push(reg),
                set(Field::Reg0, 8),
                Action::Resubmit { port: None, table: Some(1) },
                out(2),
                Action::Pop(reg),
                Action::Clone(vec![set(Field::EthDst, 0x55), wait(1), out(3)]),
                Action::OutputReg { source: SubField { field: Field::Reg1, first: 0, bits: 16 }, max_len: 0 },
            ]),
        );
        rule.instructions.write = vec![out(4)];
        rule.instructions.metadata = Some((0x1234, 0xffff));
        rule.instructions.goto = Some(2);
        pipeline.modify(&[Mod::Flow(Box::new(rule))], 0).unwrap();
        let actions =
            vec![set(Field::EthDst, 0x77), wait(2), wait(3), set(Field::Reg1, 3), set(Field::EthSrc, 0x99)];
        add(&mut pipeline, 1, 1, Match::ANY, actions);
        let known = Match::ANY.with(Field::Metadata, 0x1234).with(Field::Reg0, 7);
        add(&mut pipeline, 2, 5, known, vec![set(Field::EthSrc, 0xaa), wait(4), out(3)]);
        pipeline
    };
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    let (went, waited) = resumed(&tables(false), &frame, 1);
    assert_eq!((went.len(), waited), (5, 0));
    let (mut late, waited) = resumed(&tables(true), &frame, 1);
    assert_eq!(waited, 4, "twice in the second table, once a copy, once in the third");
    let mut all = went;
    // The copy that waits is behind the others.
    for left in [&mut all, &mut late] {
        left.sort();
    }
    assert_eq!(all, late);
    let fate = tables(true).translate(asked(&read(&frame, 1), Some(&frame)));
    assert!(fate.program.is_drop() && fate.to_controller.len() == 1 && !fate.is_cacheable());
    assert_eq!(fate.to_controller[0].max_len, u16::MAX, "all of it, whatever the action says");
    // The controller may change what it likes.
    let told = &fate.to_controller[0];
    let mut changed = told.frame.clone().unwrap();
    changed[0..6].copy_from_slice(&[0, 0, 0, 0, 0, 0x11]);
    let mut flow = read(&changed, 2);
    flow.set(Field::Reg0, 1);
    let fate = tables(true).resume(asked(&flow, Some(&changed)), told.continuation.as_ref().unwrap());
    assert_eq!(fate.to_controller[0].userdata, [3]);
    assert_eq!(
        (fate.to_controller[0].flow.get(Field::Reg0), fate.to_controller[0].flow.get(Field::InPort)),
        (1, 2)
    );
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
fn loops_end() {
    let mut pipeline = pipeline();
    add(&mut pipeline, 0, 1, Match::ANY, vec![Action::Resubmit { port: None, table: Some(0) }; 3]);
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    let flow = read(&frame, 1);
    let fate = pipeline.translate(asked(&flow, None));
    assert_eq!(fate.dropped, packet::DropReason::RuleLoop);
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

/// A match from few values, so that rules and packets meet.
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
            // What does not fit to what is there is left out.
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

    /// The law of the caches: a packet that equals another in the bits of its mask meets the same fate.
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
            let fate = pipeline.translate(asked(&flow, Some(frame)));
            if let Some(megaflow) = fate.megaflow(&flow) {
                cached.push((megaflow, *in_port));
            }
        }
        for (frame, in_port) in &frames {
            let flow = read(frame, *in_port);
            let fresh = pipeline.translate(asked(&flow, Some(frame)));
            for (megaflow, of) in &cached {
                if of == in_port && flow.masked(&megaflow.mask) == megaflow.flow {
                    prop_assert_eq!(&fresh.program, &megaflow.program, "{:?}", flow);
                }
            }
            // Bits that are not in the mask may be anything. (Fields that must agree with others stay.)
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
    let fate = pipeline.translate(asked(&flow, Some(&frame)));
    let told = fate.to_controller.iter().map(|to| to.frame.as_ref().unwrap()[5]);
    assert_eq!(told.collect::<Vec<_>>(), [0x11, frame[5], 0x22]);
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

#[test]
fn hostile_groups_and_lists_come_to_an_end() {
    let mut pipeline = pipeline();
    let group = |id, kind, buckets| {
        Mod::Group(GroupMod::Add(Group { id, kind, method: SelectMethod::Default, buckets }))
    };
    // Two buckets each that watch the group itself: nobody is alive, and that is found out at once.
    let watching =
        |id| Bucket { id, weight: 1, watch_port: None, watch_group: Some(1), actions: vec![out(2)] };
    let watches = group(1, GroupKind::FastFailover, (0..8).map(watching).collect());
    // Thirty-one times two buckets, each of which leads to the next.
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
        let fate = pipeline.translate(asked(&flow, Some(&frame)));
        assert!(fate.to_controller.len() <= 256 && fate.groups.len() <= 65_536);
        assert_eq!(fate.program.ops.is_empty(), in_port != 4, "{in_port}");
    }
    // Clones hide no loop.
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
