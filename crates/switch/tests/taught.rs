//! Tests of learned flows, and of paused packets, which wait for their controller.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod rules;

use packet::PortId;
use rules::{add, asked, execute, from, out, pipeline, read, run, set, tcp};
use switch::flow::{
    Action, Field, FlowCommand, FlowFilter, FlowMod, Instructions, Learn, LearnPart, LearnSource, Match, Mod,
    Op, Pipeline, SubField, port,
};

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
    let translated = pipeline.translate(asked(&flow, Some(&frame)));
    let outputs = translated.program.ops.iter().filter(|op| matches!(op, Op::Output(_))).count();
    assert_eq!(outputs, 3, "flooded, but not back");
    translated.learns.iter().for_each(|learned| pipeline.teach(learned, 0).unwrap());
    let mut back = frame.clone();
    back.rotate_left(0);
    back[..6].copy_from_slice(&frame[6..12]);
    back[6..12].copy_from_slice(&frame[..6]);
    let left = run(&pipeline, &back, 3);
    assert_eq!(left.iter().map(|(port, _)| port.0).collect::<Vec<_>>(), [1]);
    pipeline.expire(11_000_000_000);
    assert_eq!(pipeline.rule_count(), 2, "silent for eleven seconds");
}

/// Returns a `learn` action with these parts, for table 1.
fn learn_of(parts: Vec<LearnPart>) -> Action {
    let Action::Learn(mut learn) = teaches(7, 0, 0, None) else { unreachable!() };
    learn.parts = parts;
    Action::Learn(learn)
}

/// Returns the part of a `learn` action that matches a constant in a whole field.
fn constant(field: Field, value: u128) -> LearnPart {
    let to = SubField::whole(field);
    LearnPart::Match(LearnSource::Constant { value, bits: to.bits }, to)
}

/// Returns parts of a `learn` action that load this number of constants.
fn loads(count: usize) -> Vec<LearnPart> {
    let to = SubField { field: Field::Reg0, first: 0, bits: 1 };
    vec![LearnPart::Load(LearnSource::Constant { value: 1, bits: 1 }, to); count]
}

/// A `learn` action is refused if its learned match or load lacks a prerequisite, or if its match covers only a part of
/// a field that cannot be masked, as in a flow-mod. The action is also refused if the learned flow entry would not fit
/// into a message. Such learned flow entries would match other packets, or none, after a restart.
#[test]
fn learn_actions_whose_rules_openflow_cannot_express_are_refused() {
    use switch::flow::{FlowError, MatchError};
    let of_packet = |field| {
        let part = SubField::whole(field);
        LearnPart::Match(LearnSource::Field(part), part)
    };
    let load_of = |field| {
        let part = SubField::whole(field);
        LearnPart::Load(LearnSource::Constant { value: 1, bits: part.bits }, part)
    };
    let bits = |field, first, bits, value| {
        LearnPart::Match(LearnSource::Constant { value, bits }, SubField { field, first, bits })
    };
    let ipv4 = || constant(Field::EthType, 0x0800);
    let tcp = || constant(Field::IpProto, 6);
    let load = LearnPart::Load(
        LearnSource::Constant { value: 1, bits: 1 },
        SubField { field: Field::Reg0, first: 0, bits: 1 },
    );
    let (prerequisite, mask) =
        (Err(FlowError::MatchInconsistent), |field| Err(FlowError::Match(MatchError::Mask(field))));
    let cases = [
        ("no protocol", vec![of_packet(Field::TcpDst)], prerequisite),
        ("no EtherType", vec![tcp(), of_packet(Field::TcpDst)], prerequisite),
        ("TCP over IPv4", vec![ipv4(), tcp(), of_packet(Field::TcpDst)], Ok(())),
        ("another order", vec![ipv4(), of_packet(Field::TcpDst), tcp()], prerequisite),
        ("any protocol", vec![ipv4(), of_packet(Field::IpProto), of_packet(Field::TcpDst)], prerequisite),
        (
            "changed",
            vec![ipv4(), tcp(), constant(Field::TcpDst, 80), constant(Field::IpProto, 17)],
            prerequisite,
        ),
        (
            "changed to that of the packet",
            vec![ipv4(), tcp(), constant(Field::TcpDst, 80), of_packet(Field::IpProto)],
            prerequisite,
        ),
        ("a load without its protocol", vec![ipv4(), load_of(Field::TcpDst)], prerequisite),
        ("a load before its protocol", vec![ipv4(), load_of(Field::TcpDst), tcp()], prerequisite),
        ("a load into TCP over IPv4", vec![ipv4(), tcp(), load_of(Field::TcpDst)], Ok(())),
        ("a load into a tag", vec![load_of(Field::VlanTci)], Ok(())),
        ("half of a field", vec![bits(Field::EthType, 8, 8, 8)], mask(Field::EthType)),
        (
            "two halves",
            vec![bits(Field::EthType, 8, 8, 8), bits(Field::EthType, 0, 8, 0), of_packet(Field::Ipv4Src)],
            Ok(()),
        ),
        ("part of a port", vec![bits(Field::InPort, 0, 8, 1)], mask(Field::InPort)),
        ("a port of 16 bits", vec![bits(Field::InPort, 0, 16, 1)], Ok(())),
        ("as many actions as fit", vec![load.clone(); 1024], Ok(())),
        ("too many actions", vec![load; 1025], Err(FlowError::TooMany)),
    ];
    for (name, parts, expected) in cases {
        let mut pipeline = pipeline();
        let teacher = |actions| FlowMod::add(0, 1, Match::ANY, Instructions::apply(actions));
        for actions in [vec![learn_of(parts.clone())], vec![Action::Clone(vec![learn_of(parts)])]] {
            let done = pipeline.modify(&[Mod::Flow(Box::new(teacher(actions)))], 0);
            assert_eq!(done.map_err(|(_, why)| why), expected, "{name}");
        }
    }
}

/// Each part of a `learn` action counts as an action in the work limit of a packet, and the memory of the learned flow
/// entries of one packet is limited. A usual number of `learn` actions stays far below both limits.
#[test]
fn parts_of_learn_actions_count_as_work_and_memory() {
    const ACTIONS: usize = 256;
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    let learned = |parts: Vec<LearnPart>| {
        let mut pipeline = pipeline();
        add(&mut pipeline, 0, 1, Match::ANY, vec![learn_of(parts); ACTIONS]);
        let translated = pipeline.translate(asked(&read(&frame, 1), Some(&frame)));
        let octets: usize = translated.learns.iter().map(switch::flow::LearnedFlow::memory).sum();
        (translated.learns.len(), octets)
    };
    let matches = |count| vec![constant(Field::Reg0, 1); count];
    assert_eq!(learned(matches(20)).0, ACTIONS);
    // 65,536 parts and actions are executed.
    assert_eq!(learned(matches(7000)).0, 65_536 / 7001);
    let (count, octets) = learned(loads(1000));
    assert!((5..40).contains(&count) && octets <= 1 << 20, "{count} rules of {octets} octets");
}

/// If the packet-outs of a batch learn flow entries that already exist, the flow entries are still built, and compared
/// with the existing ones. Building and comparing count as work of the batch, and a batch with too much work is
/// refused.
#[test]
fn rules_that_a_batch_teaches_again_count_as_work() {
    use switch::flow::{FlowError, PacketOut};
    let mut pipeline = pipeline();
    add(&mut pipeline, 0, 1, Match::ANY, vec![learn_of(loads(1000)); 20]);
    let packet = PacketOut {
        in_port: 1,
        actions: vec![out(port::TABLE)],
        frame: tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60),
        metadata: Match::ANY,
        resumes: None,
    };
    let mods = |count| vec![Mod::PacketOut(Box::new(packet.clone())); count];
    pipeline.modify(&mods(10), 0).unwrap();
    let refused = pipeline.modify(&mods(2000), 0);
    assert!(matches!(refused, Err((_, FlowError::TooMuchWork))), "{refused:?}");
}

/// The port number of OpenFlow 1.0 has 16 bits. A rule that is learned with a match on these 16 bits matches the whole
/// port number of 32 bits, because OpenFlow has no masks for port numbers.
#[test]
fn a_learned_port_of_16_bits_is_matched_whole() {
    let part = SubField { field: Field::InPort, first: 0, bits: 16 };
    let of_packet = LearnPart::Match(LearnSource::Field(part), part);
    let local = LearnPart::Match(LearnSource::Constant { value: 0xfffe, bits: 16 }, part);
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    for (learned, expected) in [(of_packet, 3), (local, u128::from(port::LOCAL))] {
        let mut pipeline = pipeline();
        add(&mut pipeline, 0, 1, Match::ANY, vec![learn_of(vec![learned])]);
        let translated = pipeline.translate(asked(&read(&frame, 3), Some(&frame)));
        let rule = &translated.learns[0].rule;
        assert_eq!(rule.matching, Match::ANY.with(Field::InPort, expected));
    }
}

/// Returns a `learn` action that adds a rule to table 1. The rule outputs packets to the port on which the source
/// address of the current packet was seen.
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

/// Translates a packet whose source MAC address ends with the octet `source`, and adds the learned flows. Returns the
/// result of the translation, and whether all learned flows were added.
fn taught(pipeline: &mut Pipeline, source: u8) -> (switch::flow::Translated, bool) {
    let mut frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    frame[11] = source;
    let translated = pipeline.translate(asked(&read(&frame, 1), Some(&frame)));
    let all = translated.learns.iter().all(|learned| pipeline.teach(learned, 0).is_ok());
    (translated, all)
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
    // Rules with another cookie or in another table do not count.
    add(&mut pipeline, 1, 1, Match::ANY, vec![out(4)]);
    let left = |translated: &switch::flow::Translated| {
        assert!(translated.is_own, "the next packet may find no room");
        translated.program.ops.iter().filter(|op| matches!(op, Op::Output(PortId(2)))).count() == 1
    };
    for source in [1, 2, 1] {
        let (translated, all) = taught(&mut pipeline, source);
        assert!(all && left(&translated), "{source}");
    }
    let (translated, all) = taught(&mut pipeline, 3);
    assert!(!all && !left(&translated));
    // A rule that replaces an equal one does not count as new.
    assert!(taught(&mut pipeline, 2).1);
    assert_eq!(pipeline.rule_count(), 6);
    // One rule is removed, so that one more may be added.
    let mut gone =
        FlowMod::add(1, 5, Match::ANY.with(Field::EthDst, 0x0200_0000_0001), Instructions::default());
    gone.command = FlowCommand::Delete { strict: true };
    pipeline.modify(&[Mod::Flow(Box::new(gone))], 0).unwrap();
    let (translated, all) = taught(&mut pipeline, 3);
    assert!(all && left(&translated));
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
    // Two rules have a `learn` action for the same flows, one of them inside a clone. A third rule has a `learn` action
    // without the delete flag.
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
    // The rule that is added again learns flows as before.
    pipeline.modify(&[teacher(3, FlowCommand::Add, vec![teaches(7, 2, 0, None)])], 0).unwrap();
    pipeline.modify(&[teacher(3, strict(), Vec::new())], 0).unwrap();
    assert_eq!(count(&pipeline), 2, "the other one teaches them, too");
    // A refused batch removes no learned flows.
    let loops = teacher(9, FlowCommand::Add, vec![Action::Group(77)]);
    assert!(pipeline.modify(&[teacher(2, strict(), Vec::new()), loops], 0).is_err());
    assert_eq!(count(&pipeline), 2);
    // A batch at whose end a rule with the `learn` action exists keeps the learned flows.
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
    // When the rule with the `learn` action expires, the learned flows are removed.
    let mut change = FlowMod::add(0, 9, Match::ANY, Instructions::apply(vec![teaches(9, 2, 0, None)]));
    change.hard_timeout = 5;
    pipeline.modify(&[Mod::Flow(Box::new(change))], 0).unwrap();
    assert!(taught(&mut pipeline, 1).1);
    assert_eq!(count(&pipeline), 1);
    pipeline.expire(6_000_000_000);
    assert_eq!(count(&pipeline), 0);
}

/// When the rule with the `learn` action is removed, the learned rules are removed in several steps, like expired
/// rules. The first step counts as work of the change. Rules with the same cookie that are added between the steps
/// stay.
#[test]
fn many_learnt_rules_go_in_turns() {
    let mut pipeline = Pipeline::new();
    let teacher = FlowMod::add(0, 9, Match::ANY, Instructions::apply(vec![teaches(7, 2, 0, None)]));
    let gone = FlowMod { command: FlowCommand::Delete { strict: true }, ..teacher.clone() };
    let [teacher, gone] = [teacher, gone].map(|change| Mod::Flow(Box::new(change)));
    let learnt = |number: u32| {
        let matching = Match::ANY.with(Field::Reg0, u128::from(number));
        let actions = Instructions::apply(vec![out(1)]);
        FlowMod { cookie: Some(7), ..FlowMod::add(1, 5, matching, actions) }
    };
    let add = |numbers: std::ops::Range<u32>| -> Vec<Mod> {
        numbers.map(|number| Mod::Flow(Box::new(learnt(number)))).collect()
    };
    pipeline.modify(std::slice::from_ref(&teacher), 0).unwrap();
    pipeline.modify(&add(0..50_000), 0).unwrap();
    pipeline.take_events();
    assert!(pipeline.work_of(std::slice::from_ref(&gone)) > 20_000);
    pipeline.modify(std::slice::from_ref(&gone), 0).unwrap();
    assert_eq!(pipeline.rule_count(), 30_000);
    // Neither a new change nor the reversal of a batch restores a rule.
    let first = Match::ANY.with(Field::Reg0, 0);
    let delete = Mod::Flow(Box::new(FlowMod::delete(1, first)));
    let refused =
        Mod::Flow(Box::new(FlowMod::add(0, 1, Match::ANY, Instructions::apply(vec![Action::Group(9)]))));
    assert!(pipeline.modify(&[delete, refused], 0).is_err());
    pipeline.modify(&add(60_000..60_001), 0).unwrap();
    assert_eq!(pipeline.rule_count(), 30_001);
    // A rule that is learned again is a new rule. Rules that are about to be removed do not count towards the limit.
    pipeline.modify(&[teacher], 0).unwrap();
    let again = switch::flow::LearnedFlow { rule: learnt(1), limit: 2 };
    pipeline.teach(&again, 0).unwrap();
    let more = switch::flow::LearnedFlow { rule: learnt(70_000), limit: 2 };
    assert!(pipeline.teach(&more, 0).is_err());
    assert!(pipeline.expire(0) && !pipeline.expire(0));
    let filter = FlowFilter { table: 1, ..FlowFilter::default() };
    let mut left: Vec<u128> =
        pipeline.flows(&filter, 0).iter().map(|flow| flow.matching.value.get(Field::Reg0)).collect();
    left.sort_unstable();
    assert_eq!(left, [1, 60_000]);
    // The remaining rules are removed when the rule with their `learn` action is removed again.
    pipeline.modify(&[gone], 0).unwrap();
    assert_eq!(pipeline.rule_count(), 0);
}

/// Learned rules whose `learn` action was removed are themselves removed in several steps. If a batch removes, replaces
/// or changes rules that wait for a later step, and the batch is refused, these rules are still removed afterwards.
/// This is so even if another rule of the batch used one of their slots.
#[test]
fn a_refused_batch_keeps_no_learned_rule_whose_teacher_is_gone() {
    const RULES: u32 = 20_200;
    let teacher = FlowMod::add(0, 9, Match::ANY, Instructions::apply(vec![teaches(7, 2, 0, None)]));
    let gone = FlowMod { command: FlowCommand::Delete { strict: true }, ..teacher.clone() };
    let learnt = |number: u32| {
        let matching = Match::ANY.with(Field::Reg0, u128::from(number));
        FlowMod { cookie: Some(7), ..FlowMod::add(1, 5, matching, Instructions::apply(vec![out(1)])) }
    };
    let numbers = 0..RULES;
    let strict = |number| FlowMod { command: FlowCommand::Delete { strict: true }, ..learnt(number) };
    let command = FlowCommand::Modify { strict: false, or_add: false };
    let other_cookie = FlowMod {
        command,
        cookie: Some(8),
        ..FlowMod::add(1, 5, Match::ANY, Instructions::apply(vec![out(1)]))
    };
    let other = FlowMod::add(2, 5, Match::ANY, Instructions::default());
    let other_gone = FlowMod { command: FlowCommand::Delete { strict: true }, ..other.clone() };
    let replaced = FlowMod { cookie: Some(9), ..learnt(0) };
    let changes: [(&str, Vec<FlowMod>); 4] = [
        ("removed", numbers.clone().map(strict).collect()),
        (
            "removed, and the slot used",
            numbers.clone().flat_map(|number| [strict(number), other.clone(), other_gone.clone()]).collect(),
        ),
        ("replaced", numbers.clone().map(|number| FlowMod { ..learnt(number) }).chain([replaced]).collect()),
        ("changed", vec![other_cookie.clone()]),
    ];
    for (name, changes) in changes {
        let mut pipeline = pipeline();
        let flow_mod = |change: FlowMod| Mod::Flow(Box::new(change));
        pipeline.modify(&[flow_mod(teacher.clone())], 0).unwrap();
        pipeline
            .modify(&numbers.clone().map(|number| flow_mod(learnt(number))).collect::<Vec<_>>(), 0)
            .unwrap();
        pipeline.modify(&[flow_mod(gone.clone())], 0).unwrap();
        assert_eq!(pipeline.rule_count(), 200, "{name}: some rules wait for the next turn");
        let refused = FlowMod::add(0, 1, Match::ANY, Instructions::apply(vec![Action::Group(9)]));
        let batch: Vec<Mod> = changes.into_iter().chain([refused]).map(flow_mod).collect();
        assert!(pipeline.modify(&batch, 0).is_err());
        assert_eq!(pipeline.rule_count(), 200, "{name}");
        while pipeline.expire(0) {}
        assert_eq!(pipeline.rule_count(), 0, "{name}");
    }
    // A change of the cookie does not keep the rules either.
    let mut pipeline = pipeline();
    let flow_mod = |change: FlowMod| Mod::Flow(Box::new(change));
    pipeline.modify(&[flow_mod(teacher)], 0).unwrap();
    pipeline.modify(&numbers.map(|number| flow_mod(learnt(number))).collect::<Vec<_>>(), 0).unwrap();
    pipeline.modify(&[flow_mod(gone)], 0).unwrap();
    pipeline.modify(&[flow_mod(other_cookie)], 0).unwrap();
    while pipeline.expire(0) {}
    assert_eq!(pipeline.rule_count(), 0);
}

/// A `learn` action whose rule already exists restarts the hard time-out of the rule. The idle time-out does not
/// change, and counts from the last packet that matched the rule (as in Open vSwitch). A refused batch changes neither
/// time-out.
#[test]
fn learning_again_refreshes_the_hard_time_out_only() {
    const SECOND: u64 = 1_000_000_000;
    let learnt = |idle_timeout, hard_timeout| {
        let rule = FlowMod::add(1, 5, Match::ANY, Instructions::apply(vec![out(1)]));
        let rule = FlowMod { cookie: Some(7), idle_timeout, hard_timeout, ..rule };
        switch::flow::LearnedFlow { rule, limit: 0 }
    };
    let ends = |idle, hard| {
        let mut pipeline = pipeline();
        let learnt = learnt(idle, hard);
        for second in [0, 4, 8] {
            pipeline.teach(&learnt, second * SECOND).unwrap();
        }
        let flow = pipeline.flows(&FlowFilter::default(), 9 * SECOND).remove(0);
        assert_eq!((flow.age_ns, flow.unchanged_ns, flow.idle_ns), (9 * SECOND, SECOND, 9 * SECOND));
        (0..100).find(|second| {
            pipeline.expire(second * SECOND);
            pipeline.rule_count() == 0
        })
    };
    assert_eq!([ends(10, 0), ends(0, 10), ends(10, 10)], [Some(10), Some(18), Some(10)]);

    // A rule with time-outs that the end of a TCP connection has reduced gets the time-outs of the action.
    let mut pipeline = pipeline();
    pipeline.teach(&learnt(10, 20), 0).unwrap();
    let met = Match::ANY.value;
    let rule = |pipeline: &Pipeline| pipeline.flows(&FlowFilter::default(), 9 * SECOND).remove(0);
    add(&mut pipeline, 0, 1, Match::ANY, vec![Action::Resubmit { port: None, table: Some(1) }]);
    let at = *pipeline.translate(asked(&met, None)).rules.last().unwrap();
    pipeline.shorten(at, 1, 2);
    let flow = pipeline.flows(&FlowFilter { table: 1, ..FlowFilter::default() }, 0).remove(0);
    assert_eq!((flow.idle_timeout, flow.hard_timeout), (1, 2));
    pipeline.teach(&learnt(10, 20), SECOND).unwrap();
    let flow = pipeline.flows(&FlowFilter { table: 1, ..FlowFilter::default() }, 0).remove(0);
    assert_eq!((flow.idle_timeout, flow.hard_timeout), (10, 20));

    // A packet-out of a refused batch learns the rule again.
    let mut pipeline = self::pipeline();
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    let actions = vec![teaches(7, 0, 0, None)];
    let packet = switch::flow::PacketOut { in_port: 1, metadata: Match::ANY, actions, frame, resumes: None };
    let packet = Mod::PacketOut(Box::new(packet));
    pipeline.modify(std::slice::from_ref(&packet), SECOND).unwrap();
    let before = rule(&pipeline);
    let refused =
        Mod::Flow(Box::new(FlowMod::add(0, 1, Match::ANY, Instructions::apply(vec![Action::Group(9)]))));
    assert!(pipeline.modify(&[packet.clone(), refused], 5 * SECOND).is_err());
    assert_eq!(rule(&pipeline), before);
    pipeline.modify(&[packet], 5 * SECOND).unwrap();
    assert_eq!((rule(&pipeline).unchanged_ns, rule(&pipeline).idle_ns), (4 * SECOND, 8 * SECOND));
}

/// Resumes paused packets as the controller would, until no packet is paused. Returns the transmitted frames with their
/// ports, and the number of pauses.
fn resumed(pipeline: &Pipeline, frame: &[u8], in_port: u32) -> (Vec<(PortId, Vec<u8>)>, usize) {
    let flow = read(frame, in_port);
    let mut fates = vec![(pipeline.translate(asked(&flow, Some(frame))), frame.to_vec())];
    let (mut left, mut waited) = (Vec::new(), 0);
    while let Some((translated, frame)) = fates.pop() {
        execute(&translated.program.ops, frame, &mut left);
        for told in translated.to_controller {
            let Some(rest) = told.continuation else { continue };
            waited += 1;
            let frame = told.frame.unwrap();
            let mut flow = read(&frame, in_port);
            // Metadata that the packet does not carry is returned with the packet.
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
    // The copy that was paused is output after the others.
    for left in [&mut all, &mut late] {
        left.sort();
    }
    assert_eq!(all, late);
    let translated = tables(true).translate(asked(&read(&frame, 1), Some(&frame)));
    assert!(
        translated.program.is_drop() && translated.to_controller.len() == 1 && !translated.is_cacheable()
    );
    assert_eq!(translated.to_controller[0].max_len, u16::MAX, "all of it, whatever the action says");
    // The controller may change any part of the continuation.
    let told = &translated.to_controller[0];
    let mut changed = told.frame.clone().unwrap();
    changed[0..6].copy_from_slice(&[0, 0, 0, 0, 0, 0x11]);
    let mut flow = read(&changed, 2);
    flow.set(Field::Reg0, 1);
    let translated = tables(true).resume(asked(&flow, Some(&changed)), told.continuation.as_ref().unwrap());
    assert_eq!(translated.to_controller[0].userdata, [3]);
    assert_eq!(
        (
            translated.to_controller[0].flow.get(Field::Reg0),
            translated.to_controller[0].flow.get(Field::InPort)
        ),
        (1, 2)
    );
}

#[test]
fn a_packet_that_waits_keeps_its_queue() {
    let wait =
        Action::Controller { max_len: 20, id: 0, reason: 1, userdata: vec![1], pause: true, meter: None };
    let mut pipeline = pipeline();
    let mut rule = FlowMod::add(
        0,
        9,
        from(1),
        Instructions::apply(vec![
            Action::SetQueue(5),
            Action::Clone(vec![Action::SetQueue(7), wait.clone(), out(3)]),
            wait.clone(),
            out(2),
            Action::PopQueue,
            wait,
            out(3),
        ]),
    );
    rule.instructions.write = vec![Action::SetQueue(6), out(4)];
    pipeline.modify(&[Mod::Flow(Box::new(rule))], 0).unwrap();
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    let flow = read(&frame, 1);
    let goes_on = |translated: &switch::flow::Translated, place: usize| {
        let left = translated.to_controller[place].continuation.as_ref().unwrap();
        pipeline.resume(asked(&flow, Some(&frame)), left)
    };
    let translated = pipeline.translate(asked(&flow, Some(&frame)));
    assert!(translated.program.is_drop() && translated.to_controller.len() == 2);
    let copy = goes_on(&translated, 0);
    assert_eq!(copy.program.ops, [Op::Queue(Some(7)), Op::Output(PortId(3))]);
    let first = goes_on(&translated, 1);
    assert_eq!(first.program.ops, [Op::Queue(Some(5)), Op::Output(PortId(2))]);
    let second = goes_on(&first, 0);
    assert_eq!(
        second.program.ops,
        [Op::Output(PortId(3)), Op::Queue(Some(6)), Op::Output(PortId(4))],
        "the queue was taken back before it waited again"
    );
}

/// The number of rules of a cookie, which limits learned flows, is known without a scan of all rules, for any number of
/// cookies. The number stays correct when rules are added or removed, get another cookie, or are restored because a
/// batch was refused.
#[test]
fn rules_of_a_cookie_are_counted_as_they_come_and_go() {
    let mut pipeline = pipeline();
    let rule = |place: u32, cookie| {
        let matching = Match::ANY.with(Field::Reg3, u128::from(place));
        let mut rule = FlowMod::add(1, 1, matching, Instructions::default());
        rule.cookie = Some(cookie);
        Mod::Flow(Box::new(rule))
    };
    let mods: Vec<Mod> = (0..100_000).map(|place| rule(place, u64::from(place / 2))).collect();
    pipeline.modify(&mods, 0).unwrap();
    let actions = (0..256).map(|cookie| teaches(cookie, 0, 3, None)).collect();
    add(&mut pipeline, 0, 1, Match::ANY, actions);
    // A scan over all rules for each packet would take two seconds.
    #[allow(clippy::disallowed_methods, reason = "bounds by far what would take minutes")]
    let begin = std::time::Instant::now();
    for source in 0..20 {
        let (translated, all) = taught(&mut pipeline, source);
        assert_eq!((translated.learns.len(), all), (256, source == 0), "{source}");
    }
    let took = begin.elapsed();
    assert!(took < std::time::Duration::from_millis(700), "{took:?}");
    // All flows of one packet have one match, so that the last cookie below its limit gets the flow.
    let count = |pipeline: &Pipeline, cookie| {
        let filter = FlowFilter { table: 1, cookie, cookie_mask: u64::MAX, ..FlowFilter::default() };
        let may = |limit| {
            let Mod::Flow(rule) = rule(200_000, cookie) else { unreachable!() };
            pipeline.may_learn(&switch::flow::LearnedFlow { rule: *rule, limit })
        };
        let counted = (1..10).find(|limit| may(*limit)).unwrap() - 1;
        assert_eq!(usize::try_from(counted).unwrap(), pipeline.flows(&filter, 0).len(), "{cookie}");
        counted
    };
    assert_eq!([235, 236, 255, 30_000, 70_000].map(|cookie| count(&pipeline, cookie)), [2, 3, 3, 2, 0]);
    // Two rules with one cookie are changed to another cookie.
    let change = |cookie_value, cookie| {
        let mut change = FlowMod::add(1, 1, Match::ANY, Instructions::default());
        change.command = FlowCommand::Modify { strict: false, or_add: false };
        (change.cookie_value, change.cookie_mask, change.cookie) = (cookie_value, u64::MAX, cookie);
        Mod::Flow(Box::new(change))
    };
    pipeline.modify(&[change(30_000, Some(30_001))], 0).unwrap();
    assert_eq!([30_000, 30_001].map(|cookie| count(&pipeline, cookie)), [0, 4]);
    let refused = FlowMod::add(1, 1, Match::ANY, Instructions { goto: Some(0), ..Instructions::default() });
    let mut gone = change(30_001, None);
    if let Mod::Flow(gone) = &mut gone {
        gone.command = FlowCommand::Delete { strict: false };
    }
    let mods = [change(30_002, Some(30_001)), gone, rule(60_004, 30_000), Mod::Flow(Box::new(refused))];
    pipeline.modify(&mods, 0).unwrap_err();
    assert_eq!([30_000, 30_001, 30_002].map(|cookie| count(&pipeline, cookie)), [0, 4, 2]);
    pipeline.modify(&mods[..3], 0).unwrap();
    assert_eq!([30_000, 30_001, 30_002].map(|cookie| count(&pipeline, cookie)), [1, 0, 0]);
}
