//! Bounds of flow tables: limits, eviction, prefix tracking and vacancy events.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;

use switch::flow::text::sub_field;
use switch::flow::{
    Action, Conjunction, Event, Field, Flow, FlowDump, FlowError, FlowFilter, FlowMod, FlowSums, Group,
    GroupKind, GroupMod, Instructions, Learn, Match, Mod, PacketOut, Pipeline, Removed, SelectMethod,
    TableBounds, TableWishes, TranslationInput,
};

fn bounds(limit: u32, evicts: bool) -> TableBounds {
    TableBounds { limit: Some(limit), evicts, ..TableBounds::default() }
}

/// Returns a change that adds a rule to table 0. Rules with different numbers have different matches.
fn rule(number: u32, importance: u16) -> Mod {
    let matching = Match::ANY.with(Field::Reg0, u128::from(number));
    let mut change = FlowMod::add(0, 1, matching, Instructions::apply(Vec::new()));
    change.importance = importance;
    Mod::Flow(Box::new(change))
}

/// Returns Nicira's change ADD_OR_MOD of a group without buckets.
fn add_or_modify(id: u32) -> Mod {
    let group = Group { id, kind: GroupKind::All, method: SelectMethod::Default, buckets: Vec::new() };
    Mod::Group(GroupMod::Modify { group, or_add: true })
}

/// Returns the importances of the remaining rules.
fn left(pipeline: &Pipeline) -> Vec<u16> {
    let mut left: Vec<u16> =
        pipeline.flows(&FlowFilter::default(), 0).iter().map(|flow| flow.importance).collect();
    left.sort_unstable();
    left
}

#[test]
fn a_full_table_says_so_and_evicts_when_told() {
    let mut pipeline = Pipeline::new();
    pipeline.set_table_bounds(0, bounds(2, false), 0);
    pipeline.modify(&[rule(1, 5), rule(2, 3)], 0).unwrap();
    assert_eq!(pipeline.modify(&[rule(3, 4)], 0), Err((0, FlowError::TableFull)));
    // Eviction is enabled by the configuration or by a controller.
    let wishes = TableWishes { evicts: true, ..TableWishes::default() };
    pipeline.set_table_wishes(0, wishes, 0);
    pipeline.modify(&[rule(3, 4)], 0).unwrap();
    assert_eq!(left(&pipeline), [4, 5]);
    pipeline.set_table_wishes(0, TableWishes::default(), 0);
    assert_eq!(pipeline.modify(&[rule(4, 9)], 0), Err((0, FlowError::TableFull)));
    pipeline.set_table_bounds(0, bounds(2, true), 0);
    pipeline.modify(&[rule(4, 9)], 0).unwrap();
    assert_eq!(left(&pipeline), [5, 9]);
    assert_eq!(pipeline.modify(&[rule(5, 4)], 0), Err((0, FlowError::TableFull)), "the least important one");
}

/// The limit of the number of groups applies to every change that adds a group.
#[test]
fn add_or_modify_adds_no_group_above_the_limit() {
    const GROUPS: u32 = 65_536;
    let mut pipeline = Pipeline::new();
    let all: Vec<Mod> = (0..GROUPS).map(add_or_modify).collect();
    pipeline.modify(&all, 0).unwrap();
    assert_eq!(pipeline.modify(&[add_or_modify(GROUPS)], 0), Err((0, FlowError::OutOfGroups)));
    pipeline.modify(&[add_or_modify(7)], 0).unwrap();
    let another = [Mod::Group(GroupMod::Delete(3)), add_or_modify(GROUPS)];
    pipeline.modify(&another, 0).unwrap();
    assert_eq!(pipeline.groups().count(), GROUPS as usize);
}

/// A group without buckets counts towards the memory limit with its counters and its entry in the table of groups.
#[test]
fn an_empty_group_counts_with_all_its_memory() {
    const MEMORY: usize = 1 << 20;
    let mut pipeline = Pipeline::new();
    pipeline.set_rule_memory(MEMORY);
    let added = (0..65_536).take_while(|id| pipeline.modify(&[add_or_modify(*id)], 0).is_ok()).count();
    // A group with its state needs at least 160 octets, and half as many again for free places in the table.
    assert!((1000..=MEMORY / 240).contains(&added), "{added} groups");
    pipeline.modify(&[Mod::Group(GroupMod::Delete(0))], 0).unwrap();
    pipeline.modify(&[add_or_modify(0)], 0).unwrap();
    assert!(pipeline.modify(&[add_or_modify(70_000)], 0).is_err());
}

#[test]
fn rules_that_are_too_many_go_when_a_limit_says_so() {
    let mut pipeline = Pipeline::new();
    for importance in 0..10 {
        pipeline.modify(&[rule(importance.into(), importance)], 0).unwrap();
    }
    pipeline.set_table_bounds(0, bounds(4, false), 0);
    assert_eq!(pipeline.rule_count(), 10);
    pipeline.take_events();
    pipeline.set_table_bounds(0, bounds(4, true), 0);
    // The rule without importance and time-outs stays.
    assert_eq!(left(&pipeline), [0, 7, 8, 9]);
    assert_eq!(pipeline.take_events().len(), 6);
}

/// A rule that is added to a full table without evictable rules is refused without a scan of the table.
#[test]
fn a_full_table_without_victims_costs_no_walk() {
    let mut pipeline = Pipeline::new();
    pipeline.set_table_bounds(0, bounds(100, true), 0);
    pipeline.modify(&(0..100).map(|number| rule(number, 0)).collect::<Vec<_>>(), 0).unwrap();
    let work = |pipeline: &Pipeline, importance| pipeline.work_of(&[rule(200, importance)]);
    let least = Pipeline::new().work_of(&[rule(200, 0)]);
    assert_eq!((work(&pipeline, 0), work(&pipeline, 9)), (least, least));
    assert_eq!(pipeline.modify(&[rule(200, 0)], 0), Err((0, FlowError::TableFull)));
    // A rule can be evicted after a packet has given it a time-out.
    let flow = Match::ANY.with(Field::Reg0, 7).value;
    let met = pipeline.translate(TranslationInput { flow: &flow, frame: None, trace: false }).rules[0];
    pipeline.shorten(met, 0, 0);
    assert_eq!(work(&pipeline, 0), least);
    pipeline.shorten(met, 5, 0);
    assert!(work(&pipeline, 0) >= 100);
    // A batch that is reverted does not change this.
    assert!(pipeline.modify(&[rule(200, 0), rule(201, 0)], 0).is_err());
    assert!(work(&pipeline, 0) >= 100);
    pipeline.modify(&[rule(200, 0)], 0).unwrap();
    assert_eq!(work(&pipeline, 9), least);
    // Only rules of equal or lower importance are evicted.
    pipeline.modify(&[Mod::Flow(Box::new(FlowMod::delete(0, Match::ANY)))], 0).unwrap();
    pipeline.modify(&(0..100).map(|number| rule(number, 5)).collect::<Vec<_>>(), 0).unwrap();
    assert_eq!(work(&pipeline, 4), least);
    assert!(work(&pipeline, 5) >= 100);
}

/// To choose the rule to evict, the table ranks all its rules, and reads the fields by which it groups rules. Both
/// count as work. The removal of learned rules together with the evicted rule also counts as work.
#[test]
fn the_choice_of_the_rule_to_evict_counts_as_work() {
    let mut pipeline = Pipeline::new();
    pipeline.modify(&(0..1000).map(|number| rule(number, 1)).collect::<Vec<_>>(), 0).unwrap();
    let work = |pipeline: &Pipeline| pipeline.work_of(&[rule(5000, 1)]);
    pipeline.set_table_bounds(0, bounds(1000, true), 0);
    assert_eq!(work(&pipeline), 1000 * 4 + 64);
    let groups = ["NXM_OF_IN_PORT[]", "reg0[0..7]"].map(|name| sub_field(name).unwrap()).to_vec();
    pipeline.set_table_bounds(0, TableBounds { groups, ..bounds(1000, true) }, 0);
    assert_eq!(work(&pipeline), 1000 * (4 + 2 * 16) + 64);
    // A batch is charged for each eviction. The rules of a batch evict one another.
    let many: Vec<Mod> = (10_000..14_000).map(|number| rule(number, 1)).collect();
    let refused = pipeline.modify(&many, 0);
    assert!(matches!(refused, Err((3000..4000, FlowError::TooMuchWork))), "{refused:?}");
    // The evicted rule may be the last one whose `learn` action adds rules with a cookie.
    let learn = Learn {
        idle_timeout: 0,
        hard_timeout: 0,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        priority: 1,
        cookie: 7,
        // NX_LEARN_F_DELETE_LEARNED.
        flags: 2,
        table: 0,
        limit: 0,
        result: None,
        parts: Vec::new(),
    };
    let teacher = FlowMod::add(1, 1, Match::ANY, Instructions::apply(vec![Action::Learn(Box::new(learn))]));
    pipeline.modify(&[Mod::Flow(Box::new(teacher))], 0).unwrap();
    let orphans = work(&pipeline) - 1000 * (4 + 2 * 16) - 64;
    assert!(orphans >= 1001 * 32, "{orphans}");
}

/// Returns a change that adds a rule for a port and an address, with an idle time-out in seconds.
fn of_port(port: u128, address: u128, idle: u16) -> Mod {
    let matching =
        Match::ANY.with(Field::InPort, port).with(Field::EthType, 0x0800).with(Field::Ipv4Dst, address);
    let mut change = FlowMod::add(0, 1, matching, Instructions::apply(Vec::new()));
    change.idle_timeout = idle;
    Mod::Flow(Box::new(change))
}

/// Returns the idle time-outs of the rules of each port.
fn by_port(pipeline: &Pipeline) -> BTreeMap<u128, Vec<u16>> {
    let mut ports: BTreeMap<u128, Vec<u16>> = BTreeMap::new();
    for flow in pipeline.flows(&FlowFilter::default(), 0) {
        ports.entry(flow.matching.value.get(Field::InPort)).or_default().push(flow.idle_timeout);
    }
    ports.values_mut().for_each(|idle| idle.sort_unstable());
    ports
}

#[test]
fn the_largest_group_makes_room_first() {
    let mut pipeline = Pipeline::new();
    let fair =
        |limit| TableBounds { groups: vec![sub_field("NXM_OF_IN_PORT[]").unwrap()], ..bounds(limit, true) };
    pipeline.set_table_bounds(0, fair(6), 0);
    for (address, idle) in (0..4).zip([50, 40, 30, 60]) {
        pipeline.modify(&[of_port(1, address, idle)], 0).unwrap();
    }
    // Two rules that would be evicted first if there were no groups, because they expire first.
    pipeline.modify(&[of_port(2, 0, 5), of_port(2, 1, 6)], 0).unwrap();
    pipeline.modify(&[of_port(3, 0, 9)], 0).unwrap();
    assert_eq!(by_port(&pipeline), [(1, vec![40, 50, 60]), (2, vec![5, 6]), (3, vec![9])].into());
    pipeline.modify(&[of_port(3, 1, 9)], 0).unwrap();
    assert_eq!(by_port(&pipeline), [(1, vec![50, 60]), (2, vec![5, 6]), (3, vec![9, 9])].into());
    // Many evictions at once are distributed over the groups too.
    pipeline.set_table_bounds(0, fair(3), 0);
    assert_eq!(by_port(&pipeline), [(1, vec![60]), (2, vec![6]), (3, vec![9])].into());
    // Rules without the field form a group. A part of a field can define the groups, too.
    let half = TableBounds { groups: vec![sub_field("NXM_OF_IP_DST[0..3]").unwrap()], ..bounds(5, true) };
    pipeline.set_table_bounds(0, half, 0);
    pipeline
        .modify(
            &[FlowFilter::default()].map(|all| Mod::Flow(Box::new(FlowMod::delete(255, all.matching)))),
            0,
        )
        .unwrap();
    let mut other = FlowMod::add(0, 1, Match::ANY, Instructions::apply(Vec::new()));
    other.idle_timeout = 1;
    pipeline.modify(&[Mod::Flow(Box::new(other))], 0).unwrap();
    for (n, address) in [0x13, 0x23, 0x33, 0x14].into_iter().enumerate() {
        pipeline.modify(&[of_port(n as u128, address, 9)], 0).unwrap();
    }
    pipeline.modify(&[of_port(7, 0x15, 9)], 0).unwrap();
    let last: Vec<u128> = pipeline
        .flows(&FlowFilter::default(), 0)
        .iter()
        .map(|flow| flow.matching.value.get(Field::Ipv4Dst) & 15)
        .collect();
    let of = |digit: u128| last.iter().filter(|own| **own == digit).count();
    assert_eq!((of(0), of(3), of(4), of(5)), (1, 2, 1, 1));
}

#[test]
fn controllers_are_told_once_how_full_a_table_is() {
    let mut pipeline = Pipeline::new();
    pipeline.set_table_bounds(0, bounds(10, false), 0);
    let wishes = TableWishes { vacancy: Some((30, 60)), ..TableWishes::default() };
    pipeline.set_table_wishes(0, wishes.clone(), 0);
    let told = |pipeline: &mut Pipeline| -> Vec<(bool, u32)> {
        let news = pipeline.take_events().into_iter();
        news.filter_map(|event| match event {
            Event::Vacancy(roomy, state) => Some((roomy, state.active)),
            _ => None,
        })
        .collect()
    };
    (0..7).for_each(|n| pipeline.modify(&[rule(n, 0)], 0).unwrap());
    assert_eq!(told(&mut pipeline), [], "30 percent are free");
    pipeline.modify(&[rule(7, 0), rule(8, 0)], 0).unwrap();
    assert_eq!(told(&mut pipeline), [(false, 9)], "of a batch once");
    pipeline.modify(&[rule(9, 0)], 0).unwrap();
    assert_eq!(told(&mut pipeline), []);
    let gone = |n: u128| {
        let matching = Match::ANY.with(Field::Reg0, n);
        Mod::Flow(Box::new(FlowMod::delete(0, matching)))
    };
    (0..6).for_each(|n| pipeline.modify(&[gone(n)], 0).unwrap());
    assert_eq!(told(&mut pipeline), [], "60 percent are free");
    pipeline.modify(&[gone(6)], 0).unwrap();
    assert_eq!(told(&mut pipeline), [(true, 3)]);
    // Expired rules and a new limit also cause vacancy events.
    let mut short = FlowMod::add(0, 1, Match::ANY, Instructions::apply(Vec::new()));
    short.hard_timeout = 1;
    pipeline.modify(&[Mod::Flow(Box::new(short))], 0).unwrap();
    pipeline.set_table_bounds(0, bounds(5, false), 0);
    assert_eq!(told(&mut pipeline), [(false, 4)]);
    pipeline.set_table_wishes(0, TableWishes { vacancy: Some((20, 30)), ..wishes }, 0);
    pipeline.expire(2_000_000_000);
    assert_eq!(told(&mut pipeline), [(true, 3)]);
    pipeline.set_table_wishes(0, TableWishes::default(), 0);
    (0..9).for_each(|n| _ = pipeline.modify(&[rule(n, 0)], 0));
    assert_eq!(told(&mut pipeline), [], "nobody asks");
    let silent =
        pipeline.take_events().iter().all(|event| !matches!(event, Event::Removed(_, Removed::Eviction)));
    assert!(silent);
}

/// Returns a change that adds a rule to table 1. Rules with different numbers have different masks.
fn masked(number: usize) -> Mod {
    let mask = u128::from(u32::try_from(number + 1).unwrap());
    let mut matching = Match::ANY;
    matching.put(Field::Reg1, mask, mask);
    Mod::Flow(Box::new(FlowMod::add(1, 1, matching, Instructions::apply(Vec::new()))))
}

/// A look-up visits all masks of a table. The number of masks is bounded, and the look-ups of a packet count against
/// the packet's work limit.
#[test]
fn masks_of_a_table_are_bounded_and_charged() {
    use switch::flow::MAX_MASKS;
    let mut pipeline = Pipeline::new();
    let rules: Vec<Mod> = (0..MAX_MASKS).map(masked).collect();
    pipeline.modify(&rules, 0).unwrap();
    assert_eq!(pipeline.modify(&[masked(MAX_MASKS)], 0), Err((0, FlowError::TableFull)));
    // Other rules may use an existing mask, and the removal of a mask allows a new one.
    let Mod::Flow(again) = masked(0) else { unreachable!() };
    let more = FlowMod { priority: 2, ..*again };
    pipeline.modify(&[Mod::Flow(Box::new(more))], 0).unwrap();
    let Mod::Flow(last) = masked(MAX_MASKS - 1) else { unreachable!() };
    pipeline.modify(&[Mod::Flow(Box::new(FlowMod::delete(1, last.matching)))], 0).unwrap();
    pipeline.modify(&[masked(MAX_MASKS)], 0).unwrap();
    // Packets may be looked up in the table, but less often than in a small table.
    let translated = |pipeline: &mut Pipeline, times: usize| {
        let actions = vec![Action::Resubmit { port: None, table: Some(1) }; times];
        let first = FlowMod::add(0, 1, Match::ANY, Instructions::apply(actions));
        pipeline.modify(&[Mod::Flow(Box::new(first))], 0).unwrap();
        let translated =
            pipeline.translate(TranslationInput { flow: &Flow::default(), frame: None, trace: true });
        format!("{:?}", translated.trace).contains("too much is to be done")
    };
    assert_eq!([3, 5].map(|times| translated(&mut pipeline, times)), [false, true]);
}

/// The translations of packet-outs count as work of their batch.
#[test]
fn packet_outs_of_a_batch_are_charged_for_their_work() {
    let mut pipeline = Pipeline::new();
    pipeline.modify(&(0..4000).map(masked).collect::<Vec<_>>(), 0).unwrap();
    let actions = vec![Action::Resubmit { port: None, table: Some(1) }; 10];
    let frame = vec![2; 64];
    let packet = PacketOut { in_port: 1, metadata: Match::ANY, actions, frame, resumes: None };
    let batch = |count: usize| vec![Mod::PacketOut(Box::new(packet.clone())); count];
    pipeline.modify(&batch(100), 0).unwrap();
    let refused = pipeline.modify(&batch(300), 0).unwrap_err();
    assert!(matches!(refused, (150..300, FlowError::TooMuchWork)), "{refused:?}");
}

/// Each conjunction whose clauses all match causes one more look-up with all masks of the table. These look-ups count
/// as work of the packet.
#[test]
fn further_look_ups_of_conjunctions_are_charged_for_masks() {
    let mut pipeline = Pipeline::new();
    let rules: Vec<Mod> = (0..4000).map(masked).collect();
    pipeline.modify(&rules, 0).unwrap();
    let translated = |pipeline: &mut Pipeline, conjunctions: u32| {
        let part = |id, clause| Action::Conjunction(Conjunction { id, clause, clauses: 2 });
        let parts = (0..conjunctions).flat_map(|id| [part(id, 0), part(id, 1)]).collect();
        let resubmit = vec![Action::Resubmit { port: None, table: Some(1) }];
        let rules = [(0, 1, resubmit), (1, 9, parts)].map(|(table, priority, actions)| {
            let instructions = Instructions::apply(actions);
            Mod::Flow(Box::new(FlowMod::add(table, priority, Match::ANY, instructions)))
        });
        pipeline.modify(&rules, 0).unwrap();
        let translated =
            pipeline.translate(TranslationInput { flow: &Flow::default(), frame: None, trace: true });
        format!("{:?}", translated.trace).contains("too much is to be done")
    };
    assert_eq!([10, 30].map(|count| translated(&mut pipeline, count)), [false, true]);
}

/// Rules that expire at the same time are removed by several calls, each of which removes a bounded number.
#[test]
fn rules_expire_in_turns() {
    let mut pipeline = Pipeline::new();
    let short = |number: u32| {
        let Mod::Flow(mut change) = rule(number, 0) else { unreachable!() };
        change.hard_timeout = 1;
        Mod::Flow(change)
    };
    pipeline.modify(&(0..50_000).map(short).collect::<Vec<_>>(), 0).unwrap();
    let turns = (0..9).take_while(|_| pipeline.expire(2_000_000_000)).count();
    assert_eq!((turns, pipeline.rule_count()), (2, 0));
}

/// A batch reuses the slots of removed rules and frees the slots in another order. If the batch is refused, it is
/// reverted quickly, without a search of the free list.
#[test]
fn a_batch_that_has_used_places_anew_is_undone() {
    const RULES: u32 = 60_000;
    let mut pipeline = Pipeline::new();
    pipeline.modify(&(0..RULES).map(|number| rule(number, 1)).collect::<Vec<_>>(), 0).unwrap();
    let before = left(&pipeline);
    let delete = |table| Mod::Flow(Box::new(FlowMod::delete(table, Match::ANY)));
    let other = |number: u32| {
        let Mod::Flow(mut change) = rule(number, 2) else { unreachable!() };
        change.table = 1 + u8::try_from(number / 1000).unwrap();
        Mod::Flow(change)
    };
    let mut batch = vec![delete(0)];
    batch.extend((0..RULES).map(other));
    batch.extend((1..=60).map(delete));
    // The batch is refused because of a backward goto.
    let back = Instructions { goto: Some(0), ..Instructions::default() };
    batch.push(Mod::Flow(Box::new(FlowMod::add(1, 1, Match::ANY, back))));
    let refused = pipeline.modify(&batch, 0).unwrap_err();
    assert_eq!((refused.0, pipeline.rule_count()), (batch.len() - 1, RULES as usize), "{refused:?}");
    assert_eq!(left(&pipeline), before);
    // Slots are reused, each once.
    pipeline.modify(&[delete(0)], 0).unwrap();
    pipeline.modify(&(0..RULES).map(|number| rule(number, 3)).collect::<Vec<_>>(), 0).unwrap();
    assert_eq!((pipeline.rule_count(), left(&pipeline)), (RULES as usize, vec![3; RULES as usize]));
}

/// A change of settings does not affect packets. Megaflows therefore stay cached, but the version of the tables
/// changes, which shows that there is a change to save.
#[test]
fn settings_change_the_version_and_no_flow() {
    let mut pipeline = Pipeline::new();
    let version = pipeline.version();
    let wishes = TableWishes { name: "acl".to_owned(), ..TableWishes::default() };
    pipeline.set_table_wishes(3, wishes.clone(), 0);
    assert!(pipeline.version() > version);
    assert!(!pipeline.may_differ(version, &[u64::MAX; 4], None));
    assert!(pipeline.wished_tables().eq([(3, &wishes)]));
    assert_eq!(pipeline.table_state(3).unwrap().name, "acl");
    pipeline.set_table_bounds(3, TableBounds { name: Some("own".to_owned()), ..TableBounds::default() }, 0);
    assert_eq!(pipeline.table_state(3).unwrap().name, "own", "the configuration's counts");
    pipeline.set_table_bounds(3, TableBounds::default(), 0);
    assert_eq!(pipeline.table_state(3).unwrap().name, "acl");
    assert!(pipeline.table_state(255).is_none() && pipeline.table_wishes(255).is_none());
}

/// The table has rules for 10.0.0.0/8 and 10.1.2.3. The megaflow of 10.5.6.7 matches a /16 prefix with prefix tracking,
/// and the complete address without prefix tracking.
#[test]
fn prefixes_are_tracked_where_the_table_says_so() {
    let mut pipeline = Pipeline::new();
    let to = |address: u128, length: u32| {
        let mask = u128::from(u32::MAX << (32 - length));
        let mut matching = Match::ANY.with(Field::EthType, 0x0800);
        matching.put(Field::Ipv4Dst, address & mask, mask);
        matching
    };
    for (priority, matching) in [(1, to(0x0a00_0000, 8)), (2, to(0x0a01_0203, 32))] {
        let change = FlowMod::add(0, priority, matching, Instructions::apply(Vec::new()));
        pipeline.modify(&[Mod::Flow(Box::new(change))], 0).unwrap();
    }
    let depends = |pipeline: &Pipeline| {
        let mut flow = Flow::ZERO;
        flow.set(Field::EthType, 0x0800);
        flow.set(Field::Ipv4Dst, 0x0a05_0607);
        let translated = pipeline.translate(TranslationInput { flow: &flow, frame: None, trace: false });
        u32::try_from(translated.mask.get(Field::Ipv4Dst)).unwrap()
    };
    for (prefixes, mask) in [
        ([true, true], 0xffff_0000),
        ([true, false], u32::MAX),
        ([false, true], 0xffff_0000),
        ([false, false], u32::MAX),
    ] {
        pipeline.set_table_bounds(0, TableBounds { prefixes, ..TableBounds::default() }, 0);
        assert_eq!(depends(&pipeline), mask, "{prefixes:?}");
    }
}

#[test]
fn parts_of_fields_are_read_by_all_their_names() {
    for (text, field, first, bits) in [
        ("NXM_OF_IN_PORT[]", Field::InPort, 0, 32),
        ("in_port", Field::InPort, 0, 32),
        ("NXM_OF_VLAN_TCI[0..11]", Field::VlanTci, 0, 12),
        ("reg3[31]", Field::Reg3, 31, 1),
        ("NXM_NX_REG3[4..7]", Field::Reg3, 4, 4),
        ("eth_src[]", Field::EthSrc, 0, 48),
        ("xxreg1[]", Field::Xxreg1, 0, 128),
    ] {
        let part = sub_field(text).unwrap();
        assert_eq!((part.field, part.first, part.bits), (field, first, bits), "{text}");
    }
    for text in
        ["", "[]", "reg0[", "reg0[32]", "reg0[5..4]", "reg0[0..32]", "reg0[a]", "nothing[]", "reg0[0..65535]"]
    {
        assert_eq!(sub_field(text), None, "{text}");
    }
}

/// The memory of rules is limited. A rule that exceeds the limit is refused like a rule for a full table. A batch that
/// exceeds the limit is refused as a whole. Removed rules free memory.
#[test]
fn rules_are_bounded_in_octets() {
    let mut pipeline = Pipeline::new();
    pipeline.set_rule_memory(256 << 10);
    let large = |number: u32| {
        let mut change =
            FlowMod::add(0, 1, Match::ANY.with(Field::Reg0, u128::from(number)), Instructions::default());
        change.instructions = Instructions::apply(vec![Action::Note(vec![0; 60_000])]);
        Mod::Flow(Box::new(change))
    };
    let fit = (0..).take_while(|number| pipeline.modify(&[large(*number)], 0).is_ok()).count();
    assert_eq!(fit, 4);
    let held = pipeline.rule_memory();
    assert_eq!(pipeline.modify(&[large(90)], 0), Err((0, FlowError::TableFull)));
    assert_eq!(pipeline.modify(&[rule(91, 0), large(92)], 0), Err((1, FlowError::TableFull)));
    assert_eq!(
        (pipeline.rule_memory(), pipeline.rule_count()),
        (held, 4),
        "nothing of a refused batch stays"
    );
    // A rule that replaces another uses no more memory unless it is larger.
    pipeline.modify(&[large(0)], 0).unwrap();
    assert_eq!(pipeline.rule_memory(), held);
    pipeline.modify(&[rule(5, 0)], 0).unwrap();
    let mut change = FlowMod::add(0, 1, Match::ANY.with(Field::Reg0, 5), Instructions::default());
    change.command = switch::flow::FlowCommand::Modify { strict: true, or_add: false };
    change.instructions = Instructions::apply(vec![Action::Note(vec![0; 60_000])]);
    assert_eq!(pipeline.modify(&[Mod::Flow(Box::new(change))], 0), Err((0, FlowError::TableFull)));
    let all = FlowMod::delete(0, Match::ANY);
    pipeline.modify(&[Mod::Flow(Box::new(all))], 0).unwrap();
    assert_eq!(pipeline.rule_memory(), 0);
    pipeline.modify(&[large(7)], 0).unwrap();
}

/// The estimated work of changes must be correct for additions, replacements, removals and evictions, and must include
/// the rules that the batch itself adds.
#[test]
fn the_work_of_changes_is_estimated() {
    let mut pipeline = Pipeline::new();
    let rules: Vec<Mod> = (0..1000).map(|number| rule(number, 1)).collect();
    pipeline.modify(&rules, 0).unwrap();
    let of = |pipeline: &Pipeline, change: FlowMod| pipeline.work_of(&[Mod::Flow(Box::new(change))]);
    let add = FlowMod::add(0, 1, Match::ANY, Instructions::default());
    let delete = FlowMod::delete(0, Match::ANY);
    assert_eq!((of(&pipeline, add.clone()), of(&pipeline, delete.clone())), (32, 1000 * 33));
    assert_eq!(of(&pipeline, FlowMod::delete(5, Match::ANY)), 1, "the table has no rules");
    let cookie = FlowMod { cookie_value: 7, cookie_mask: u64::MAX, ..delete.clone() };
    assert_eq!(of(&pipeline, cookie), 1, "the cookie has no rules");
    assert_eq!(pipeline.work_of(&rules), 1000 * 32);
    // The estimate includes rules that the batch itself adds.
    let mods: Vec<Mod> =
        (0..10).map(|number| rule(5000 + number, 1)).chain([Mod::Flow(Box::new(delete.clone()))]).collect();
    assert_eq!(pipeline.work_of(&mods), 10 * 32 + 1010 + 1000 * 32);
    let strict = FlowMod { command: switch::flow::FlowCommand::Delete { strict: true }, ..delete };
    assert_eq!(of(&pipeline, strict), 1);
    let flags = switch::flow::FlowFlags { check_overlap: true, ..add.flags };
    assert!(of(&pipeline, FlowMod { flags, ..add.clone() }) > 1000);
    let alike = Match::ANY.with(Field::Reg0, 70_000);
    let alike = FlowMod { flags, ..FlowMod::add(0, 1, alike, Instructions::default()) };
    assert!(of(&pipeline, alike) <= 32 + 8, "rules of the same mask do not overlap");
    pipeline.set_table_bounds(0, bounds(1000, true), 0);
    assert_eq!(of(&pipeline, add.clone()), 32, "none makes room for it");
    assert_eq!(of(&pipeline, FlowMod { importance: 1, ..add }), 4064, "one has to make room");
    let again = Match::ANY.with(Field::Reg0, 7);
    let again = FlowMod { flags, ..FlowMod::add(0, 1, again, Instructions::default()) };
    assert_eq!(of(&pipeline, again), 32, "the rule is replaced");
    let gone =
        [Mod::Group(switch::flow::GroupMod::Delete(1)), Mod::Meter(switch::flow::MeterMod::Delete(None))];
    assert_eq!(pipeline.work_of(&gone), 1 + 1000, "no rule goes by the group");
}

/// A batch whose changes visit too many rules is refused quickly and as a whole. Existing rules and rules that the
/// batch adds count alike. Changes that name a cookie or a table visit no other rules.
#[test]
fn the_work_of_a_batch_is_bounded() {
    use std::time::{Duration, Instant};
    let mut pipeline = Pipeline::new();
    let rules: Vec<Mod> = (0..20_000).map(|number| rule(number, 1)).collect();
    pipeline.modify(&rules, 0).unwrap();
    let all = FlowFilter::default();
    let before = pipeline.flows(&all, 0);
    // No rule has the cookie.
    let delete = |cookie_mask| {
        let delete = FlowMod { cookie_value: 7, cookie_mask, ..FlowMod::delete(0, Match::ANY) };
        Mod::Flow(Box::new(delete))
    };
    let many = vec![delete(15); 100_000];
    #[allow(clippy::disallowed_methods, reason = "bounds by far what would take minutes")]
    let begin = Instant::now();
    let refused = pipeline.modify(&many, 0);
    assert_eq!(refused, Err((switch::flow::BATCH_WORK / 20_000, FlowError::TooMuchWork)));
    let took = begin.elapsed();
    // These changes would visit two billion rules.
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(pipeline.take_events().len() == 20_000 && pipeline.flows(&all, 0) == before);
    // An equal number of changes that name the whole cookie is made.
    pipeline.modify(&vec![delete(u64::MAX); 100_000], 0).unwrap();
    // The rules are added by the batch itself.
    let mut empty = Pipeline::new();
    let brought: Vec<Mod> = rules.iter().cloned().chain(many).collect();
    assert!(matches!(empty.modify(&brought, 0), Err((20_000.., FlowError::TooMuchWork))));
    assert_eq!(empty.rule_count(), 0);
    // Each repetition adds a group and a rule that uses the group, and removes the group.
    let group = |add: bool| {
        let (kind, method) = (switch::flow::GroupKind::All, switch::flow::SelectMethod::Default);
        let group = switch::flow::Group { id: 1, kind, method, buckets: Vec::new() };
        Mod::Group(if add { switch::flow::GroupMod::Add(group) } else { switch::flow::GroupMod::Delete(1) })
    };
    let user = FlowMod::add(9, 1, Match::ANY, Instructions::apply(vec![switch::flow::Action::Group(1)]));
    let user = Mod::Flow(Box::new(user));
    let once = [group(true), user.clone(), group(false)];
    pipeline.modify(&once, 0).unwrap();
    assert_eq!(pipeline.flows(&all, 0), before, "the rule has gone with the group");
    let often: Vec<Mod> = std::iter::repeat_n(once, 20_000).flatten().collect();
    assert!(matches!(pipeline.modify(&often, 0), Err((_, FlowError::TooMuchWork))));
    assert_eq!(pipeline.flows(&all, 0), before);
}

/// A group with a short message can refer to many other groups. The traversal of these groups counts as work, and a
/// group that refers to too many groups is refused.
#[test]
fn the_walk_from_a_group_to_those_that_it_leads_to_is_bounded() {
    use switch::flow::{Bucket, Group, GroupKind, GroupMod, SelectMethod};
    let group = |id, followers: std::ops::Range<u32>| {
        let bucket = |follower| Bucket {
            id: follower,
            weight: 1,
            watch_port: None,
            watch_group: None,
            actions: vec![Action::Group(follower)],
        };
        let (kind, method) = (GroupKind::All, SelectMethod::Default);
        Mod::Group(GroupMod::Add(Group { id, kind, method, buckets: followers.map(bucket).collect() }))
    };
    // 1,100 groups of 1,000 buckets. Each bucket refers to a group that does not exist yet.
    let mut pipeline = Pipeline::new();
    for id in 1..=1_100 {
        pipeline.modify(&[group(id, 10_000..11_000)], 0).unwrap();
    }
    let few = group(5_000, 1..11);
    let work = pipeline.work_of(std::slice::from_ref(&few));
    assert!((160_000..176_000).contains(&work), "each group that is met counts as 16 rules: {work}");
    pipeline.modify(&[few], 0).unwrap();
    // A group that refers to these groups indirectly, through another group.
    let above = pipeline.work_of(&[group(5_001, 5_000..5_001)]);
    assert!(above > 160_000, "{above}");
    let remove = Mod::Group(GroupMod::RemoveBuckets(5_000, switch::flow::BucketPlace::First));
    assert!(pipeline.work_of(&[remove]) >= 160_000);
    // More than a million references.
    let refused = pipeline.modify(&[group(5_002, 1..1_101)], 0);
    assert_eq!(refused, Err((0, FlowError::GroupLoop)));
    pipeline.modify(&[group(5_002, 1..1_001)], 0).unwrap();
}

/// The estimated work of a settings change covers all rules of the table if the change causes evictions.
#[test]
fn what_a_controller_says_of_a_table_is_estimated() {
    let mut pipeline = Pipeline::new();
    let rules: Vec<Mod> = (0..1000).map(|number| rule(number, 1)).collect();
    pipeline.modify(&rules, 0).unwrap();
    let evict = TableWishes { evicts: true, ..TableWishes::default() };
    let name = TableWishes { name: "t".to_owned(), ..TableWishes::default() };
    assert_eq!(pipeline.work_of_wishes(0, &evict), 1, "there is room");
    pipeline.set_table_bounds(0, bounds(500, false), 0);
    assert_eq!(pipeline.work_of_wishes(0, &evict), 1000 * 4 + 500 * 32);
    assert_eq!((pipeline.work_of_wishes(0, &name), pipeline.work_of_wishes(1, &evict)), (1, 1));
    pipeline.set_table_wishes(0, evict.clone(), 0);
    assert_eq!((pipeline.rule_count(), pipeline.work_of_wishes(0, &evict)), (500, 1));
}

/// Rules are added, removed and replaced between the steps of a dump. Rules that exist throughout are
/// reported once and in order.
#[test]
fn dumps_in_steps_tell_each_rule_once_while_others_change() {
    let mut pipeline = Pipeline::new();
    let with = |number: u32, priority| {
        let matching = Match::ANY.with(Field::Reg0, u128::from(number));
        Mod::Flow(Box::new(FlowMod::add(0, priority, matching, Instructions::default())))
    };
    let delete = |number: u32| {
        let matching = Match::ANY.with(Field::Reg0, u128::from(number));
        Mod::Flow(Box::new(FlowMod::delete(0, matching)))
    };
    let priority = |number: u32| u16::try_from(number % 7).unwrap();
    for number in 0..10_000 {
        pipeline.modify(&[with(number, priority(number))], 0).unwrap();
    }
    let (mut dump, mut sums) = (FlowDump::new(FlowFilter::default()), FlowSums::new(FlowFilter::default()));
    let (mut told, mut longest, mut other, mut counted) = (Vec::new(), 0, 0, None);
    loop {
        dump.prepare();
        let Some(batch) = dump.step(&pipeline, 0) else { break };
        longest = longest.max(batch.len());
        told.extend(batch.iter().map(|flow| (flow.priority, flow.matching.value.get(Field::Reg0))));
        counted = counted.or_else(|| sums.step(&pipeline));
        // Odd rules are removed and added in other slots, and even rules are added again.
        let odd = 2 * (other * 37 % 5_000) + 1;
        pipeline
            .modify(&[delete(odd), with(20_000 + other, 3), with(odd - 1, priority(odd - 1))], 0)
            .unwrap();
        pipeline.modify(&[with(odd, 5)], 0).unwrap();
        other += 1;
    }
    assert!(longest <= 128 && told.len() < 11_000);
    assert!(told.is_sorted_by_key(|(priority, _)| std::cmp::Reverse(*priority)));
    let mut even: Vec<u128> =
        told.iter().map(|(_, number)| *number).filter(|number| number % 2 == 0 && *number < 20_000).collect();
    even.sort_unstable();
    assert!(even.into_iter().eq((0..10_000).step_by(2)), "each once");
    let (_, _, flows) = counted.unwrap();
    assert!((5_000..11_000).contains(&flows), "{flows}");
}
