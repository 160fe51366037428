//! The filter of the hook, and that of workers, against the list of rules that both stand for.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use support::oracle::{Oracle, Outcome};
use support::{config, packets};
use xdp::filter::{
    Action, Base, Blocklist, Compiled, Filter, FilterError, FilterSizes, Frame, Judged, Look, Match, Moment,
    Pattern, Prefix, Rule, RuleCounters, RuleSet, Tally, WorkerFilter,
};
use xdp::{Counter, Loaded, Owner, PortProgram, Verdict, WhenDown};

/// Rules in tables; `None`: the random rules know nothing of contradictions and of the number of places.
fn compile(set: &RuleSet) -> Option<Compiled> {
    match Compiled::new(set) {
        Ok(compiled) => Some(compiled),
        Err(FilterError::NeverMatches { .. } | FilterError::TooManyPlaces { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// A bridged port without a socket: what the filter lets through is passed.
fn load(set: &RuleSet) -> Option<(Filter, Loaded)> {
    let compiled = compile(set)?;
    let filter =
        Filter::new(&compiled, FilterSizes { samples: 1 << 22, ..FilterSizes::default() }, None).unwrap();
    let loaded = PortProgram::load_filtered(&config(Owner::Bridged, WhenDown::Pass), &filter).unwrap();
    Some((filter, loaded))
}

/// What the hook makes of a frame.
fn see(loaded: &Loaded, frame: &[u8]) -> Outcome {
    let before = loaded.counters().unwrap();
    let run = loaded.test_run(frame).unwrap();
    let after = loaded.counters().unwrap();
    assert_eq!(after.seen(), before.seen() + 1, "one count per frame");
    let moved = Counter::ALL.into_iter().find(|c| after.get(*c) != before.get(*c)).unwrap();
    match (run.verdict, moved) {
        (Verdict::Pass, Counter::DownPassed) => Outcome::Continue,
        (Verdict::Drop, Counter::FilterDropped) => Outcome::Drop,
        (Verdict::Drop, Counter::FilterLimited) => Outcome::Limit,
        other => panic!("{other:?}"),
    }
}

fn compare(set: &RuleSet, frames: &[Vec<u8>]) -> Result<(), TestCaseError> {
    let Some((filter, loaded)) = load(set) else { return Err(TestCaseError::reject("not possible")) };
    let mut oracle = Oracle::new(set);
    for frame in frames {
        prop_assert_eq!(see(&loaded, frame), oracle.see(frame), "frame {:02x?}", frame);
    }
    for rule in filter.counters().unwrap() {
        let counted = (rule.packets, rule.bytes, rule.acted);
        prop_assert_eq!(counted, oracle.counts[&rule.name], "counters of {}", rule.name);
    }
    Ok(())
}

/// What a worker makes of a frame, whose first piece has so many bytes.
fn judge(filter: &WorkerFilter, frame: &[u8], head: usize, look: Look) -> Outcome {
    let rest = |offset: usize, piece: &mut [u8]| {
        let found = frame.get(offset..offset + piece.len());
        found.is_some_and(|bytes| {
            piece.copy_from_slice(bytes);
            true
        })
    };
    let head = frame.get(..head).unwrap_or(frame);
    match filter.judge(&Frame { head, length: frame.len(), is_uncut: false, rest: &rest }, look) {
        Judged::On => Outcome::Continue,
        Judged::Drop(_) => Outcome::Drop,
        Judged::Limit(_) => Outcome::Limit,
    }
}

/// Workers against the list.
fn compare_worker(mut set: RuleSet, frames: &[Vec<u8>]) -> Result<(), TestCaseError> {
    for rule in &mut set.rules {
        if matches!(rule.action, Action::Sample { .. }) {
            rule.action = Action::Count;
        }
    }
    let Some(compiled) = compile(&set) else { return Err(TestCaseError::reject("not possible")) };
    let mut tally = Tally::default();
    let filter = WorkerFilter::new(&Arc::new(compiled), &mut tally, None).unwrap();
    let mut oracle = Oracle::new(&set);
    let now = Moment::now();
    for (frame, worker) in frames.iter().zip((0..5).cycle()) {
        let look = Look { now, worker, dry: false };
        let dry = judge(&filter, frame, frame.len(), Look { dry: true, ..look });
        let wet = judge(&filter, frame, frame.len(), look);
        prop_assert_eq!(wet, oracle.see(frame), "frame {:02x?}", frame);
        prop_assert_eq!(dry, wet, "asked before, it said something else of frame {:02x?}", frame);
    }
    for rule in tally.counters() {
        let counted = (rule.packets, rule.bytes, rule.acted);
        prop_assert_eq!(counted, oracle.counts[&rule.name], "counters of {}", rule.name);
    }
    Ok(())
}

#[test]
fn workers_agree_with_the_list() {
    let mut runner = TestRunner::new(Config { cases: 512, failure_persistence: None, ..Config::default() });
    let cases = (packets::rule_set(0..=12), prop::collection::vec(packets::frame(), 48));
    runner.run(&cases, |(set, frames)| compare_worker(set, &frames)).unwrap();
}

#[test]
fn workers_agree_with_a_long_list() {
    let mut runner = TestRunner::new(Config {
        cases: 24,
        max_shrink_iters: 16,
        failure_persistence: None,
        ..Config::default()
    });
    let cases = (packets::rule_set(65..=300), prop::collection::vec(packets::frame(), 200));
    let possible = |mut set: RuleSet| {
        set.rules.iter_mut().for_each(|rule| rule.matches.patterns.clear());
        set.rules.retain(|rule| Compiled::new(&RuleSet { rules: vec![rule.clone()] }).is_ok());
        set
    };
    runner.run(&cases, |(set, frames)| compare_worker(possible(set), &frames)).unwrap();
}

/// A rule by this name, for everything.
fn rule(name: &str, action: Action) -> Rule {
    let matches = Match::default();
    Rule { name: name.to_owned(), priority: 0, matches, action, dry_run: false, expires: None }
}

/// What patterns ask for may lie behind a packet's first frame, or over its end.
#[test]
fn workers_look_behind_the_first_piece() {
    let pattern = Pattern { base: Base::Frame, offset: 60, bytes: vec![7; 12], mask: Vec::new() };
    let mut drop = rule("sevens", Action::Drop);
    drop.matches.patterns = vec![pattern];
    let compiled = Arc::new(Compiled::new(&RuleSet { rules: vec![drop] }).unwrap());
    let filter = WorkerFilter::new(&compiled, &mut Tally::default(), None).unwrap();
    let look = Look { now: Moment(1), worker: 0, dry: false };
    let mut frame = vec![0_u8; 60];
    frame.resize(72, 7);
    for head in [14, 59, 60, 64, 71, 72] {
        assert_eq!(judge(&filter, &frame, head, look), Outcome::Drop, "{head}");
        assert_eq!(judge(&filter, &frame[..71], head, look), Outcome::Continue, "{head}");
    }
    frame[71] = 8;
    assert_eq!(judge(&filter, &frame, 64, look), Outcome::Continue);
}

#[test]
fn workers_refuse_what_needs_a_hook_by_name() {
    let set = RuleSet { rules: vec![rule("a", Action::Drop), rule("some", Action::Sample { one_in: 1 })] };
    let compiled = Arc::new(Compiled::new(&set).unwrap());
    let error = WorkerFilter::new(&compiled, &mut Tally::default(), None).unwrap_err().to_string();
    assert!(
        error.contains("\"some\"") && error.contains("\"sample\"") && error.contains("another filter"),
        "{error}"
    );
}

#[test]
fn counters_of_workers_belong_to_the_rules_name() {
    let set = |rules: Vec<Rule>| Arc::new(Compiled::new(&RuleSet { rules }).unwrap());
    let mut tally = Tally::default();
    let look = Look { now: Moment(1), worker: 0, dry: false };
    let frame = [0_u8; 60];
    let first = WorkerFilter::new(&set(vec![rule("kept", Action::Drop)]), &mut tally, None).unwrap();
    assert_eq!(first.judge(&Frame::whole(&frame), look), Judged::Drop(0));
    let rules = vec![rule("new", Action::Count), rule("kept", Action::Drop)];
    let second = WorkerFilter::new(&set(rules), &mut tally, None).unwrap();
    assert_eq!(second.judge(&Frame::whole(&frame), look), Judged::Drop(1));
    // A worker that has not seen the change yet.
    assert_eq!(first.judge(&Frame::whole(&frame), look), Judged::Drop(0));
    let counters: Vec<RuleCounters> = tally.counters();
    let packets: Vec<(&str, u64)> = counters.iter().map(|rule| (rule.name.as_str(), rule.packets)).collect();
    assert_eq!(packets, [("kept", 3), ("new", 1)]);
    // A rule expires by itself.
    let mut ends = rule("ends", Action::Drop);
    ends.expires = Some(Moment(10));
    let third = WorkerFilter::new(&set(vec![ends]), &mut tally, None).unwrap();
    let at = |now| third.judge(&Frame::whole(&frame), Look { now: Moment(now), ..look });
    assert_eq!((at(9), at(10)), (Judged::Drop(0), Judged::On));
}

#[test]
fn workers_look_into_the_list_that_the_hook_has() {
    need_root!();
    let mut runner = TestRunner::new(Config { cases: 32, failure_persistence: None, ..Config::default() });
    let prefixes = || prop::collection::vec(packets::prefix(), 0..40);
    let cases = (prefixes(), prefixes(), prop::collection::vec(packets::address(), 100));
    let see = |(first, more, addresses): (Vec<Prefix>, Vec<Prefix>, Vec<std::net::IpAddr>)| {
        let mut list = Blocklist::new(first.iter().copied()).unwrap();
        let mut known = first;
        for prefix in more {
            if known.contains(&prefix) {
                list.remove(prefix).unwrap();
                known.retain(|other| *other != prefix);
            } else {
                list.insert(prefix, None).unwrap();
                known.push(prefix);
            }
            let view = list.view();
            prop_assert!(view.is_of(&list));
            for address in &addresses {
                let wanted = known.iter().any(|prefix| prefix.contains(*address));
                prop_assert_eq!(view.has(*address), wanted, "{} in {:?}", address, known);
            }
        }
        Ok(())
    };
    runner.run(&cases, see).unwrap();
}

#[test]
fn random_rules_agree_with_the_list() {
    need_root!();
    let mut runner = TestRunner::new(Config {
        cases: 48,
        max_shrink_iters: 64,
        failure_persistence: None,
        ..Config::default()
    });
    let cases = (packets::rule_set(0..=12), prop::collection::vec(packets::frame(), 48));
    runner.run(&cases, |(set, frames)| compare(&set, &frames)).unwrap();
}

#[test]
fn many_random_rules_agree_with_the_list() {
    need_root!();
    let mut runner = TestRunner::new(Config {
        cases: 6,
        max_shrink_iters: 16,
        failure_persistence: None,
        ..Config::default()
    });
    let cases = (packets::rule_set(65..=300), prop::collection::vec(packets::frame(), 200));
    let without_patterns = |mut set: RuleSet| {
        set.rules.iter_mut().for_each(|rule| rule.matches.patterns.clear());
        set.rules.retain(|rule| Compiled::new(&RuleSet { rules: vec![rule.clone()] }).is_ok());
        set
    };
    runner.run(&cases, |(set, frames)| compare(&without_patterns(set), &frames)).unwrap();
}
