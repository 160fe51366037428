//! Tests that the work and the stack usage of hostile rules are bounded.

use super::*;

/// Rules with equal matches can belong to very many conjunctions. The conjunctions count as work of a packet that
/// matches these rules. A packet with too much work is dropped, like a packet with too many actions. Usual numbers of
/// conjunctions are far below the limit.
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
        // The last conjunction that is examined before the work limit is reached.
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

/// A look-up in a later table does not count as recursion (as in Open vSwitch), so a chain of tables is limited only by
/// the number of look-ups. The stack of a thread suffices for the deepest nesting that the limits allow.
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
    // The packet passes sixteen times through all tables, with each look-up nested in the previous one, until the limit
    // of look-ups is reached.
    let translated = chain(vec![resubmit(0), out(2)]).translate(asked(&flow, None));
    assert_eq!((translated.failed, translated.rules.len()), (Some(switch::flow::Failed::Lookups), 4096));
    // Repeated look-ups of one table exceed the nesting limit much earlier.
    let mut same = pipeline();
    add(&mut same, 7, 1, Match::ANY, vec![resubmit(7)]);
    add(&mut same, 0, 1, Match::ANY, vec![resubmit(7)]);
    let translated = same.translate(asked(&flow, None));
    assert_eq!((translated.failed, translated.rules.len()), (Some(switch::flow::Failed::Depth), 66));
}

/// Clones, and buckets of groups, can be nested to a limit that applies across look-ups. A packet above the limit is
/// dropped, and a trace reports the limit.
#[test]
fn the_nesting_of_clones_is_limited_across_look_ups() {
    let resubmit = |table| Action::Resubmit { port: None, table: Some(table) };
    let nested = |depth: usize, inner| (0..depth).fold(inner, |inner, _| Action::Clone(vec![inner]));
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    let flow = read(&frame, 1);
    let is_too_deep = |pipeline: &Pipeline| {
        let input = TranslationInput { flow: &flow, frame: Some(&frame), trace: true };
        let translated = pipeline.translate(input);
        let is_told =
            |what: &Trace| matches!(what, Trace::Note(_, words) if words.starts_with("too many clones"));
        let is_too_deep = translated.failed == Some(switch::flow::Failed::Depth);
        assert_eq!(translated.trace.iter().any(is_told), is_too_deep);
        assert_eq!(translated.program.is_drop(), is_too_deep);
        assert_eq!(translated.dropped == packet::DropReason::RuleLoop, is_too_deep);
        is_too_deep
    };
    // One rule whose clones look the packet up in the rule's own table.
    let mut same = pipeline();
    add(&mut same, 0, 1, Match::ANY, vec![nested(62, resubmit(0))]);
    assert!(is_too_deep(&same));
    // A chain of tables that ends with a change and an output.
    let mut chain = pipeline();
    for table in 0..179 {
        add(&mut chain, table, 1, Match::ANY, vec![nested(62, resubmit(table + 1))]);
    }
    add(&mut chain, 179, 1, Match::ANY, vec![set(Field::NwTtl, 9), out(2)]);
    assert!(is_too_deep(&chain));
    // Within the limit, clones are executed. Consecutive clones are not nested.
    let mut few = pipeline();
    add(&mut few, 0, 1, Match::ANY, vec![nested(62, resubmit(1)), nested(62, resubmit(1)), out(3)]);
    add(&mut few, 1, 1, Match::ANY, vec![nested(2, resubmit(2))]);
    add(&mut few, 2, 1, Match::ANY, vec![set(Field::NwTtl, 9), out(2)]);
    assert!(!is_too_deep(&few));
    assert_eq!(run(&few, &frame, 1).len(), 3);
    add(&mut few, 1, 1, Match::ANY, vec![nested(3, resubmit(2))]);
    assert!(is_too_deep(&few));
}

/// Clones are steps of the program. They count towards the limit of the number of steps and towards the limit of the
/// steps' total weight.
#[test]
fn clones_count_as_steps() {
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    let flow = read(&frame, 1);
    let resubmit = Action::Resubmit { port: None, table: Some(1) };
    // The rule of the first table looks the packet up in the second table, `count` times inside `depth` clones.
    let ops = |depth: usize, count: usize, actions: &[Action]| {
        let mut pipeline = pipeline();
        let look_ups = vec![resubmit.clone(); count];
        let nested = (0..depth).fold(look_ups, |inner, _| vec![Action::Clone(inner)]);
        add(&mut pipeline, 0, 1, Match::ANY, nested);
        add(&mut pipeline, 1, 1, Match::ANY, actions.to_vec());
        pipeline.translate(asked(&flow, None)).program.ops
    };
    // The steps are the clone, a change and an output.
    let copies = vec![Action::Clone(vec![set(Field::NwTtl, 9), out(2)]); 1000];
    assert_eq!(ops(0, 1, &copies).len(), 3000);
    // The last clone has no space for its output.
    assert_eq!(ops(0, 2, &copies).len(), 4095);
    // The innermost clone is as long as possible with the clones around it.
    let long: Vec<Action> = (0..2000_u128).flat_map(|ttl| [set(Field::NwTtl, ttl % 250), out(2)]).collect();
    for depth in [0, 1, 40] {
        let ops = ops(depth, 2, &long);
        assert_eq!(ops.len(), 4096);
        assert!(ops[..depth].iter().all(|op| matches!(op, Op::Clone(_))));
        assert!(ops[depth..].iter().all(|op| !matches!(op, Op::Clone(_))));
    }
}

/// A translation searches the steps of a copy for outputs. The search counts as work of the packet, also for copies
/// inside copies.
#[test]
fn long_copies_in_copies_count_as_work() {
    let frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    let resubmit = |table| Action::Resubmit { port: None, table: Some(table) };
    let is_last_sent = |depth| {
        let mut pipeline = pipeline();
        let copies = (0..depth).fold(resubmit(2), |inner, _| Action::Clone(vec![inner]));
        let others = vec![resubmit(1); 12];
        let actions = [copies].into_iter().chain(others).chain([out(3)]).collect();
        add(&mut pipeline, 0, 1, Match::ANY, actions);
        add(&mut pipeline, 1, 1, Match::ANY, vec![Action::Note(Vec::new()); 4000]);
        add(&mut pipeline, 2, 1, Match::ANY, vec![out(2); 4000]);
        let ops = pipeline.translate(asked(&read(&frame, 1), None)).program.ops;
        ops.last() == Some(&Op::Output(PortId(3)))
    };
    assert_eq!([0, 10, 60].map(is_last_sent), [true, true, false]);
}

/// A step that takes a worker a long time counts as several steps towards the limit of a program. A clone without an
/// output adds no step.
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
    // Neither an empty copy, nor a copy that is changed but not output, adds a step.
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
    // The limit for other steps is unchanged.
    let ttl = |ttl: u128| [set(Field::NwTtl, ttl % 250), out(2)];
    add(&mut pipeline, 0, 9, sctp, (0..2000).flat_map(ttl).collect());
    assert_eq!(ops(&pipeline).len(), 4000);
}

/// The choice of a bucket hashes all hash fields of the group. The choice counts as work even for a group without
/// buckets.
#[test]
fn hashes_of_select_groups_count_as_work_and_memory() {
    let mut pipeline = pipeline();
    let fields = vec![(Field::EthType, 0xffff_u128); 1000];
    let method = SelectMethod::Hash { fields, parameter: 0 };
    let group = Group { id: 1, kind: GroupKind::Select, method, buckets: Vec::new() };
    assert!(group.memory() >= 1000 * size_of::<(Field, u128)>());
    pipeline.modify(&[Mod::Group(GroupMod::Add(group))], 0).unwrap();
    let flow = read(&tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60), 1);
    let outputs = |pipeline: &Pipeline| {
        let ops = pipeline.translate(asked(&flow, None)).program.ops;
        ops.iter().filter(|op| matches!(op, Op::Output(_))).count()
    };
    add(&mut pipeline, 0, 9, from(1), vec![Action::Group(1), out(2)]);
    assert_eq!(outputs(&pipeline), 1);
    let many = std::iter::repeat_n(Action::Group(1), 200);
    add(&mut pipeline, 0, 9, from(1), many.chain([out(2)]).collect());
    assert_eq!(outputs(&pipeline), 0, "200,000 hashed fields exceed the limit of work");
}

/// A `dec_ttl` action with many controllers stops at the first copy that is refused. The action does not visit the
/// other controllers each time that a packet with an expired TTL reaches the action.
#[test]
fn dec_ttl_stops_at_the_first_refused_copy() {
    let mut pipeline = pipeline();
    add(&mut pipeline, 1, 9, Match::ANY, vec![Action::DecTtl((0..30_700).collect())]);
    add(&mut pipeline, 0, 9, Match::ANY, vec![Action::Resubmit { port: None, table: Some(1) }; 20]);
    let mut frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
    frame[22] = 1;
    let flow = read(&frame, 1);
    let input = TranslationInput { flow: &flow, frame: Some(&frame), trace: true };
    let translated = pipeline.translate(input);
    assert_eq!((translated.to_controller.len(), translated.failed), (256, None));
    let events = translated.trace.len() + translated.unrecorded;
    assert!(events < 200, "{events} events of 20 actions");
}

/// Buckets and action sets are copied with all nested lists, so that the nested lists count as work even if they are
/// not executed.
#[test]
fn copies_of_nested_lists_count_as_work() {
    let flow = read(&tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60), 1);
    // The nested list is not executed.
    let nested = |count| vec![Action::Exit, Action::Clone(vec![Action::PopVlan; count])];
    let group = |id, actions| {
        let bucket = Bucket { id: 0, weight: 0, watch_port: None, watch_group: None, actions };
        let (kind, method) = (GroupKind::Indirect, SelectMethod::Default);
        Mod::Group(GroupMod::Add(Group { id, kind, method, buckets: vec![bucket] }))
    };
    let write = |actions| Instructions { write: actions, goto: Some(2), ..Instructions::default() };
    let is_sent = |pipeline: &Pipeline| {
        let ops = pipeline.translate(asked(&flow, None)).program.ops;
        ops == [Op::Output(PortId(2))]
    };
    for (count, fits) in [(10, true), (1000, false)] {
        let many = |action| std::iter::repeat_n(action, 4000).chain([out(2)]).collect::<Vec<_>>();
        let mut bucket = pipeline();
        bucket.modify(&[group(1, nested(count))], 0).unwrap();
        add(&mut bucket, 0, 9, Match::ANY, many(Action::Group(1)));
        assert_eq!(is_sent(&bucket), fits, "a bucket with a list of {count} actions");

        let mut saved = pipeline();
        saved.modify(&[group(1, Vec::new())], 0).unwrap();
        let writes = FlowMod::add(0, 9, Match::ANY, write(nested(count)));
        saved.modify(&[Mod::Flow(Box::new(writes))], 0).unwrap();
        add(&mut saved, 2, 9, Match::ANY, many(Action::Group(1)));
        assert_eq!(is_sent(&saved), fits, "an action set with a list of {count} actions");

        let mut written = pipeline();
        let writes = FlowMod::add(1, 9, Match::ANY, Instructions { goto: None, ..write(nested(count)) });
        written.modify(&[Mod::Flow(Box::new(writes))], 0).unwrap();
        add(&mut written, 0, 9, Match::ANY, many(Action::Resubmit { port: None, table: Some(1) }));
        assert_eq!(is_sent(&written), fits, "a written list of {count} actions");
    }
}

/// The addition or removal of a header moves all octets of the frame. In a long frame, these moves count as work. This
/// includes frames that become long because headers are added.
#[test]
fn headers_of_long_frames_count_as_work() {
    let mut pipeline = pipeline();
    let to_controller = |header: &Action, count| {
        let to = Action::Output { port: port::CONTROLLER, max_len: u16::MAX };
        std::iter::repeat_n(header.clone(), count).chain([to]).collect()
    };
    let mut is_told = |octets, header: &Action, count| {
        let mut frame = tcp(None, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 60);
        let flow = read(&frame, 1);
        frame.resize(octets, 0);
        add(&mut pipeline, 0, 9, Match::ANY, to_controller(header, count));
        let translated = pipeline.translate(asked(&flow, Some(&frame)));
        let is_told = !translated.to_controller.is_empty();
        assert!(translated.to_controller.iter().all(|told| told.frame.is_some()));
        assert_eq!(translated.dropped == packet::DropReason::RuleLoop, !is_told);
        is_told
    };
    let label = Action::PushMpls(0x8847);
    assert!(is_told(60, &label, 2600));
    assert!(is_told(1500, &label, 2600));
    assert!(!is_told(60_000, &label, 2600));
    let service = Action::PushPbb(0x88e7);
    assert!(is_told(60, &service, 2000));
    assert!(!is_told(60, &service, 4000));
}
