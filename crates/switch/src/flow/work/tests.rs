#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;

use super::*;
use crate::flow::action::OCTETS_OF_WORK;
use crate::flow::batch::{BATCH_WORK, Batch};
use crate::flow::{
    Action, BucketPlace, Field, FlowError, GroupKind, Instructions, Learn, Meter, RuleRef, SelectMethod,
    TableBounds,
};

fn flow_mod(change: FlowMod) -> Mod {
    Mod::Flow(Box::new(change))
}

fn matching(number: u32) -> Match {
    Match::ANY.with(Field::Reg0, u128::from(number))
}

fn add(table: u8, number: u32, actions: Vec<Action>) -> FlowMod {
    FlowMod::add(table, 1, matching(number), Instructions::apply(actions))
}

fn group(id: u32) -> Mod {
    let (kind, method) = (GroupKind::All, SelectMethod::Default);
    Mod::Group(GroupMod::Add(Group { id, kind, method, buckets: Vec::new() }))
}

fn meter(id: u32) -> Mod {
    let meter = Meter { id, packets: true, bursts: false, stats: false, bands: Vec::new() };
    Mod::Meter(MeterMod::Add(meter))
}

/// Returns a pipeline with 40 rules of 4000 actions each. Half of the actions of each rule are in a clone.
fn heavy() -> Pipeline {
    let mut pipeline = Pipeline::new();
    let rule = |number: u32| {
        let inner = Action::Clone(vec![Action::PopVlan; 1999]);
        let actions = std::iter::repeat_n(Action::PopVlan, 2000).chain([inner]).collect();
        flow_mod(add(0, number, actions))
    };
    pipeline.modify(&(0..40).map(rule).collect::<Vec<_>>(), 0).unwrap();
    pipeline
}

/// A batch is refused if each of its changes visits all actions of all rules, although there are only few rules. Each
/// of these changes would take too long for the thread of a controller connection.
#[test]
fn changes_that_visit_actions_cost_as_much_as_the_actions() {
    let mut pipeline = heavy();
    let count = 40 * 4000 * size_of::<Action>() / OCTETS_OF_WORK;
    let by_port = |delete| FlowMod { out_port: Some(77), ..delete };
    let by_group = |delete| FlowMod { out_group: Some(77), ..delete };
    let of_meter = Instructions { meter: Some(1), ..Instructions::default() };
    let cases: [(&str, Vec<Mod>); 6] = [
        ("by port", vec![flow_mod(by_port(FlowMod::delete(0, Match::ANY)))]),
        ("by group", vec![flow_mod(by_group(FlowMod::delete(ALL_TABLES, Match::ANY)))]),
        (
            "by port and cookie",
            vec![flow_mod(FlowMod {
                cookie_mask: u64::MAX,
                ..by_port(FlowMod::delete(ALL_TABLES, Match::ANY))
            })],
        ),
        (
            "strict",
            (0..40)
                .map(|number| {
                    let command = FlowCommand::Delete { strict: true };
                    let delete = FlowMod::delete(ALL_TABLES, matching(number));
                    flow_mod(by_port(FlowMod { command, priority: 1, ..delete }))
                })
                .collect(),
        ),
        (
            "group",
            vec![group(1), flow_mod(add(1, 0, vec![Action::Group(1)])), Mod::Group(GroupMod::Delete(1))],
        ),
        (
            "meter",
            vec![
                meter(1),
                flow_mod(FlowMod::add(1, 1, Match::ANY, of_meter)),
                Mod::Meter(MeterMod::Delete(Some(1))),
            ],
        ),
    ];
    for (name, changes) in cases {
        // The number of the group or meter is not known to the estimate before the batch.
        if !matches!(name, "group" | "meter") {
            assert!(pipeline.work_of(&changes) >= count, "{name}: {}", pipeline.work_of(&changes));
        }
        pipeline.modify(&changes, 0).unwrap();
        let many: Vec<Mod> = changes.iter().cloned().cycle().take(changes.len() * 1500).collect();
        let before = pipeline.version();
        let refused = pipeline.modify(&many, 0).map_err(|(_, why)| why);
        assert_eq!(refused, Err(FlowError::TooMuchWork), "{name}");
        assert!(matches!(name, "group" | "meter") || pipeline.version() == before, "{name}");
        assert_eq!(pipeline.rule_count(), 40, "{name}");
    }
    // A removal that does not read the actions needs little work, and one request for each rule is permitted.
    let other = flow_mod(FlowMod { cookie_mask: 1, cookie_value: 1, ..FlowMod::delete(0, Match::ANY) });
    pipeline.modify(&vec![other; 1000], 0).unwrap();
}

/// The estimated work covers the actions that a change visits. The removal of rules with many actions, and the writing
/// of many actions into many rules, count as more work than the number of rules.
#[test]
fn removed_and_written_actions_count_as_work() {
    let mut pipeline = heavy();
    let count = 40 * 4000 * size_of::<Action>() / OCTETS_OF_WORK;
    for delete in [FlowMod::delete(0, Match::ANY), FlowMod::delete(0, matching(0))] {
        assert!(pipeline.work_of(&[flow_mod(delete)]) >= count);
    }
    let light = Instructions::apply(vec![Action::PopVlan]);
    let command = FlowCommand::Modify { strict: false, or_add: false };
    let modify = |instructions| FlowMod { command, ..FlowMod::add(0, 1, Match::ANY, instructions) };
    assert!(pipeline.work_of(&[flow_mod(modify(light.clone()))]) >= count);
    pipeline.modify(&[flow_mod(modify(light))], 0).unwrap();
    assert!(pipeline.work_of(&[flow_mod(FlowMod::delete(0, Match::ANY))]) < 2000);
    let heavy = modify(Instructions::apply(vec![Action::PopVlan; 4000]));
    assert!(pipeline.work_of(&[flow_mod(heavy)]) >= count);
}

#[derive(Clone, Debug)]
enum Change {
    Add { table: u8, number: u32, cookie: u64, actions: Vec<Action> },
    Modify { table: u8, number: Option<u32>, cookie: Option<u64>, actions: Vec<Action> },
    Delete { table: u8, number: Option<u32>, cookie: Option<u64> },
}

impl Change {
    fn flow_mod(self) -> Mod {
        let of = |number: Option<u32>| number.map_or(Match::ANY, matching);
        flow_mod(match self {
            Change::Add { table, number, cookie, actions } => {
                FlowMod { cookie: Some(cookie), ..add(table, number, actions) }
            }
            Change::Modify { table, number, cookie, actions } => FlowMod {
                command: FlowCommand::Modify { strict: false, or_add: false },
                cookie,
                ..FlowMod::add(table, 1, of(number), Instructions::apply(actions))
            },
            Change::Delete { table, number, cookie } => FlowMod {
                cookie_value: cookie.unwrap_or(0),
                cookie_mask: cookie.map_or(0, |_| u64::MAX),
                ..FlowMod::delete(table, of(number))
            },
        })
    }
}

fn learn() -> Action {
    learn_to(1)
}

/// Returns a `learn` action with the flag NX_LEARN_F_DELETE_LEARNED for learned rules with this cookie.
fn learn_to(cookie: u64) -> Action {
    Action::Learn(Box::new(Learn {
        idle_timeout: 0,
        hard_timeout: 0,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        priority: 1,
        cookie,
        // NX_LEARN_F_DELETE_LEARNED.
        flags: 2,
        table: 1,
        limit: 0,
        result: None,
        parts: Vec::new(),
    }))
}

/// Each `learn` action whose learned rules are removed with its rule has a reference count. A change of the
/// count is more work than a visit of the action, whether the rule is added, changed, removed or expires, and
/// the count is bounded by the memory limit of rules.
#[test]
fn reference_counts_of_learned_rules_count_as_work_and_memory() {
    const LEARNS: usize = 500;
    let learns = || (0..LEARNS as u64).map(learn_to).collect::<Vec<_>>();
    let mut pipeline = Pipeline::new();
    let rule = |number| FlowMod { hard_timeout: 1, ..add(0, number, learns()) };
    let work = pipeline.work_of(&[flow_mod(rule(0))]);
    assert!(work >= 64 * LEARNS, "to add: {work}");
    pipeline.modify(&(0..40).map(|number| flow_mod(rule(number))).collect::<Vec<_>>(), 0).unwrap();
    let mut modify = add(0, 0, learns());
    (modify.matching, modify.command) = (Match::ANY, FlowCommand::Modify { strict: false, or_add: false });
    for (name, change) in [("modify", modify.clone()), ("delete", FlowMod::delete(0, Match::ANY))] {
        let work = pipeline.work_of(&[flow_mod(change)]);
        assert!(work >= 40 * 64 * LEARNS, "{name}: {work}");
    }
    // The batch is charged for the reference counts that it changes, regardless of the estimate.
    modify.instructions.apply.pop();
    let mut batch = Batch::new(9, pipeline.held, pipeline.held_most);
    batch.work(BATCH_WORK - 40 * 64 * LEARNS).unwrap();
    assert_eq!(pipeline.change_in(&flow_mod(modify), &mut batch), Err(FlowError::TooMuchWork));
    // One step of the removal of expired rules ends after a few rules.
    assert!(pipeline.expire(2_000_000_000));
    let left = 40 - EXPIRED_WORK.div_ceil(pipeline.rules.work() / pipeline.rule_count());
    assert!(left > 20);
    assert_eq!(pipeline.rule_count(), left);
    while pipeline.expire(2_000_000_000) {}
    assert_eq!((pipeline.rule_count(), pipeline.rule_memory(), pipeline.rules.work()), (0, 0, 0));
    // All rules within the memory limit can be removed by one change.
    pipeline.set_rule_memory(10 * LEARNS * 64 * OCTETS_OF_WORK);
    let fit = (0..).take_while(|number| pipeline.modify(&[flow_mod(rule(*number))], 0).is_ok()).count();
    assert_eq!(fit, 9);
    assert!(pipeline.rules.work() <= pipeline.rule_memory() / OCTETS_OF_WORK);
}

/// Each change of a group's buckets copies, validates and encodes all buckets of the group. A message that inserts or
/// removes one bucket of a large group therefore counts as work on all of them, and a batch of many such messages is
/// refused.
#[test]
fn a_change_of_one_bucket_is_charged_for_the_whole_group() {
    const BUCKETS: u32 = 1000;
    let bucket = |id| {
        let actions = vec![Action::Output { port: 1, max_len: 0 }];
        Bucket { id, weight: 1, watch_port: None, watch_group: None, actions }
    };
    let large = |id| {
        let (kind, method) = (GroupKind::All, SelectMethod::Default);
        Mod::Group(GroupMod::Add(Group { id, kind, method, buckets: (0..BUCKETS).map(bucket).collect() }))
    };
    let insert = |id| Mod::Group(GroupMod::InsertBuckets(1, BucketPlace::Last, vec![bucket(BUCKETS + id)]));
    let least = BUCKETS as usize * WORK_OF_BUCKET;
    let mut pipeline = Pipeline::new();
    // The group may be added by the batch itself.
    let both = pipeline.work_of(&[large(1), insert(0)]);
    assert!(both > 2 * least, "{both}");
    pipeline.modify(&[large(1), large(2)], 0).unwrap();
    let remove = Mod::Group(GroupMod::RemoveBuckets(1, BucketPlace::First));
    for change in [large(1), insert(0), remove.clone()] {
        let work = pipeline.work_of(std::slice::from_ref(&change));
        assert!(work > least, "{work} for {change:?}");
    }
    let pairs: Vec<Mod> = (0..5000).flat_map(|id| [insert(id), remove.clone()]).collect();
    let refused = pipeline.modify(&pairs, 0);
    let most = BATCH_WORK / least;
    assert!(matches!(refused, Err((at, FlowError::TooMuchWork)) if at < most), "{refused:?}");
    assert_eq!((pipeline.groups().next().unwrap().buckets.len(), pipeline.buckets), (1000, 2000));
    pipeline.modify(&pairs[..200], 0).unwrap();
    // Buckets that a batch has removed are not charged again.
    let empty = Mod::Group(GroupMod::RemoveBuckets(1, BucketPlace::All));
    let inserts: Vec<Mod> = std::iter::once(empty).chain((0..1200).map(insert)).collect();
    pipeline.modify(&inserts, 0).unwrap();
    assert_eq!(pipeline.buckets, 2200);
    let delete = Mod::Group(GroupMod::Delete(ALL_GROUPS));
    assert_eq!(pipeline.work_of(std::slice::from_ref(&delete)), 2 * 32 + 2200 * 4);
    pipeline.modify(&[delete], 0).unwrap();
    assert_eq!((pipeline.buckets, pipeline.rule_memory()), (0, 0));
}

/// The estimate that refuses a batch while the tables are locked visits no groups for messages that insert or remove
/// buckets, even if the changed group refers to many groups. The estimate that decides whether a batch takes long
/// visits these groups, and ends at its limit.
#[test]
fn the_estimate_for_removed_buckets_walks_over_no_groups() {
    const NAMED: u32 = 4_000;
    let actions = (2..2 + NAMED).map(Action::Group).collect();
    let bucket = Bucket { id: 1, weight: 1, watch_port: None, watch_group: None, actions };
    let (kind, method) = (GroupKind::All, SelectMethod::Default);
    let mut pipeline = Pipeline::new();
    let group = Group { id: 1, kind, method, buckets: vec![bucket.clone()] };
    pipeline.modify(&[Mod::Group(GroupMod::Add(group.clone()))], 0).unwrap();
    let remove = Mod::Group(GroupMod::RemoveBuckets(1, BucketPlace::First));
    let empty = Bucket { id: 2, actions: Vec::new(), ..bucket };
    let insert = Mod::Group(GroupMod::InsertBuckets(1, BucketPlace::First, vec![empty]));
    for change in [remove.clone(), insert] {
        let many = vec![change; 1000];
        let walked = |most, estimate| {
            let mut coming = Coming::default();
            let at = pipeline.first_beyond(&many, most, &mut coming, estimate);
            (at, coming.walked)
        };
        assert_eq!(walked(BATCH_WORK, Estimate::Least), (None, 0));
        let own = NAMED as usize * 2 * WORK_OF_GROUP;
        let (at, most) = walked(3 * own, Estimate::Most);
        assert!(at.is_some_and(|at| at < 4) && most <= 4 * own, "{at:?}, {most}");
        assert!(!pipeline.is_within_work(&many, own));
    }
    assert!(pipeline.is_within_work(&[remove], BATCH_WORK));
    // The number of groups that the estimate visits for added groups is limited too.
    let adds = vec![Mod::Group(GroupMod::Modify { group, or_add: true }); 1000];
    let at = pipeline.place_beyond(&adds, 3 * NAMED as usize * WORK_OF_GROUP);
    assert!(at.is_some_and(|at| at < 3), "{at:?}");
}

/// The removal of all meters counts as work for each meter, although no rule uses the meters.
#[test]
fn the_removal_of_all_meters_is_charged_for_each_meter() {
    let mut pipeline = Pipeline::new();
    let meters: Vec<Mod> = (1..=1000).map(meter).collect();
    assert_eq!(pipeline.work_of(&meters), 1000 * WORK_OF_CHANGE);
    pipeline.modify(&meters, 0).unwrap();
    let delete = Mod::Meter(MeterMod::Delete(None));
    assert_eq!(pipeline.work_of(std::slice::from_ref(&delete)), 1000 * WORK_OF_CHANGE);
    let mut batch = Batch::new(9, pipeline.held, pipeline.held_most);
    batch.work(BATCH_WORK - 999 * WORK_OF_CHANGE).unwrap();
    assert_eq!(pipeline.change_in(&delete, &mut batch), Err(FlowError::TooMuchWork));
    assert_eq!(pipeline.meters().count(), 1000);
}

/// A batch is charged for references and rules that the batch itself has added. Later removals of groups and meters in
/// the batch visit these references, and later evictions visit these rules.
#[test]
fn later_changes_of_a_batch_are_charged_for_what_earlier_ones_write() {
    let mut pipeline = heavy();
    let all = 40 * 4000 * size_of::<Action>() / OCTETS_OF_WORK;
    let by_meter = Instructions { meter: Some(1), ..Instructions::default() };
    let with = |instructions| flow_mod(FlowMod::add(1, 1, Match::ANY, instructions));
    let metered = |actions| {
        let bucket = Bucket { id: 0, weight: 0, watch_port: None, watch_group: None, actions };
        let (kind, method) = (GroupKind::All, SelectMethod::Default);
        Mod::Group(GroupMod::Add(Group { id: 9, kind, method, buckets: vec![bucket] }))
    };
    let gone = |id| Mod::Meter(MeterMod::Delete(Some(id)));
    for (uses, removal) in [
        (with(Instructions::apply(vec![Action::Group(1)])), Mod::Group(GroupMod::Delete(1))),
        (with(by_meter), gone(1)),
        (with(Instructions::apply(vec![Action::Clone(vec![Action::Meter(1)])])), gone(1)),
        (metered(vec![Action::Meter(1)]), gone(1)),
    ] {
        let mods = [group(1), meter(1), uses, removal];
        assert!(pipeline.work_of(&mods[..3]) < all && pipeline.work_of(&mods) >= all, "{mods:?}");
        pipeline.modify(&mods, 0).unwrap();
        pipeline.modify(&[Mod::Group(GroupMod::Delete(ALL_GROUPS)), gone(1)], 0).unwrap();
    }
    pipeline.set_table_bounds(0, TableBounds { limit: Some(41), evicts: true, ..TableBounds::default() }, 0);
    let add = |number| flow_mod(add(0, number, Vec::new()));
    let adds = [add(100), add(101)];
    assert_eq!(pipeline.work_of(&adds[..1]), WORK_OF_CHANGE);
    assert!(pipeline.work_of(&adds) > pipeline.work_to_rank(0));
}

/// A change that names a cookie visits only the tables that have rules with the cookie, and a strict change in all
/// tables visits only tables with rules. Each of these tables counts as several lookups.
#[test]
fn changes_in_all_tables_are_charged_for_each_table_with_rules() {
    let mut pipeline = Pipeline::new();
    let rule = |table: u8| FlowMod { cookie: Some(u64::from(table % 2)), ..add(table, 0, Vec::new()) };
    pipeline.modify(&(0..200).map(|table| flow_mod(rule(table))).collect::<Vec<_>>(), 0).unwrap();
    let of_cookie = |cookie_value| {
        let all = FlowMod::delete(ALL_TABLES, Match::ANY);
        flow_mod(FlowMod { cookie_value, cookie_mask: u64::MAX, ..all })
    };
    let command = FlowCommand::Delete { strict: true };
    let strict = FlowMod { command, priority: 1, ..FlowMod::delete(ALL_TABLES, matching(9)) };
    let strict = flow_mod(strict);
    let work = |pipeline: &Pipeline, change: &Mod| pipeline.work_of(std::slice::from_ref(change));
    assert_eq!(work(&pipeline, &of_cookie(2)), 1, "no rule has the cookie");
    assert_eq!(work(&pipeline, &of_cookie(1)), 1 + 100 * (WORK_OF_TABLE + 1 + WORK_OF_CHANGE));
    assert_eq!(work(&pipeline, &strict), TABLES + 200 * WORK_OF_TABLE);
    let refused = pipeline.modify(&vec![strict.clone(); 20_000], 0);
    assert!(matches!(refused, Err((..20_000, FlowError::TooMuchWork))), "{refused:?}");
    pipeline.modify(&[of_cookie(1)], 0).unwrap();
    assert!(pipeline.rules.iter().all(|(_, rule)| rule.cookie == 0) && pipeline.rule_count() == 100);
    assert_eq!(work(&pipeline, &of_cookie(1)), 1);
    assert_eq!(work(&pipeline, &strict), TABLES + 100 * WORK_OF_TABLE);
}

/// A change that selects rules by a match may change all rules that it visits. The estimate that decides whether
/// the change takes long counts these rules as changed.
#[test]
fn rules_that_a_match_may_select_are_estimated_as_changed() {
    let mut pipeline = Pipeline::new();
    let rule = |number| flow_mod(FlowMod { cookie: Some(7), ..add(0, number, Vec::new()) });
    pipeline.modify(&(0..1000).map(rule).collect::<Vec<_>>(), 0).unwrap();
    let mut half = Match::ANY;
    half.put(Field::Reg0, 0, 1);
    let of_cookie = |change| FlowMod { cookie_value: 7, cookie_mask: u64::MAX, ..change };
    let command = FlowCommand::Modify { strict: false, or_add: false };
    let modify = |table| FlowMod {
        command,
        table,
        cookie: None,
        ..FlowMod::add(0, 1, half, Instructions::apply(vec![]))
    };
    for table in [0, ALL_TABLES] {
        for change in [FlowMod::delete(table, half), modify(table)] {
            for change in [of_cookie(change.clone()), change] {
                let work = pipeline.work_of(&[flow_mod(change.clone())]);
                assert!(work >= 1000 * WORK_OF_CHANGE, "{work} for {change:?}");
            }
        }
    }
    pipeline.modify(&[flow_mod(of_cookie(FlowMod::delete(ALL_TABLES, half)))], 0).unwrap();
    assert_eq!(pipeline.rule_count(), 500);
}

/// A strict change estimates the learned rules that are removed with the rule whose `learn` actions added them. The
/// estimate visits all actions of the rule. A batch that names one rule very often is therefore refused before these
/// visits take long.
#[test]
fn estimates_of_learned_rules_count_as_work() {
    let learns = vec![learn(); 1900];
    let nested = vec![learn(), Action::Clone(vec![Action::PopVlan; 3999])];
    for (name, actions, few) in [("learn", learns, 500), ("clone", nested, 2000)] {
        let mut pipeline = Pipeline::new();
        pipeline.modify(&[flow_mod(add(0, 1, actions))], 0).unwrap();
        let command = FlowCommand::Delete { strict: true };
        let delete = FlowMod { command, priority: 1, ..FlowMod::delete(0, matching(1)) };
        let refused = pipeline.modify(&vec![flow_mod(delete.clone()); 60_000], 0);
        assert!(matches!(refused, Err((_, FlowError::TooMuchWork))), "{name}: {refused:?}");
        assert_eq!(pipeline.rule_count(), 1, "{name}");
        pipeline.modify(&vec![flow_mod(delete); few], 0).unwrap();
        assert_eq!(pipeline.rule_count(), 0, "{name}");
    }
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        Just(Action::PopVlan),
        (0_usize..300).prop_map(|octets| Action::Note(vec![0; octets])),
        (0_usize..9).prop_map(|count| Action::Clone(vec![Action::PopVlan; count])),
        Just(learn()),
    ];
    proptest::collection::vec(action, 0..6)
}

fn change() -> impl Strategy<Value = Change> {
    let number = || proptest::option::of(0_u32..6);
    let cookie = || proptest::option::of(0_u64..3);
    prop_oneof![
        4 => (0_u8..3, 0_u32..6, 0_u64..3, actions())
            .prop_map(|(table, number, cookie, actions)| Change::Add { table, number, cookie, actions }),
        2 => (0_u8..3, number(), cookie(), actions())
            .prop_map(|(table, number, cookie, actions)| Change::Modify { table, number, cookie, actions }),
        1 => (prop_oneof![3 => 0_u8..3, 1 => Just(ALL_TABLES)], number(), cookie())
            .prop_map(|(table, number, cookie)| Change::Delete { table, number, cookie }),
    ]
}

proptest! {
    /// The stored work of all rules, of each table and of each cookie equals the sum over the rules, even after batches
    /// were reverted.
    #[test]
    fn the_stored_work_equals_a_recount(
        batches in proptest::collection::vec((proptest::collection::vec(change(), 1..6), any::<bool>()), 1..20),
    ) {
        let mut pipeline = Pipeline::new();
        for (changes, is_reverted) in batches {
            let mut mods: Vec<Mod> = changes.into_iter().map(Change::flow_mod).collect();
            if is_reverted {
                let backwards = Instructions { goto: Some(0), ..Instructions::default() };
                mods.push(flow_mod(FlowMod::add(0, 1, Match::ANY, backwards)));
            }
            prop_assert_eq!(pipeline.modify(&mods, 0).is_err(), is_reverted);
            let rules: Vec<(RuleRef, u8, u64, usize)> = pipeline
                .rules
                .iter()
                .map(|(at, rule)| (at, rule.table, rule.cookie, rule.instructions.work()))
                .collect();
            prop_assert_eq!(pipeline.rules.work(), rules.iter().map(|(.., work)| work).sum::<usize>());
            for (at, _, _, work) in &rules {
                prop_assert_eq!(pipeline.rules.work_at(*at), *work);
            }
            for table in 0..3 {
                let own = || rules.iter().filter(move |(_, of, ..)| *of == table);
                let sum = own().map(|(.., work)| work).sum::<usize>();
                prop_assert_eq!(pipeline.rules.work_of_table(table), sum);
                for cookie in 0..3 {
                    let own = own().filter(|(at, _, of, _)| *of == cookie && !pipeline.rules.is_doomed(*at));
                    let sum = own.map(|(.., work)| work).sum::<usize>();
                    prop_assert_eq!(pipeline.rules.work_of_cookie(table, cookie), sum);
                }
            }
        }
    }
}
