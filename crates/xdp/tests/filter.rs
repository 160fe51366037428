//! The filter of the hook against the list of rules that it stands for.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use support::oracle::{Oracle, Outcome};
use support::{config, packets};
use xdp::filter::{Compiled, Filter, FilterError, FilterSizes, RuleSet};
use xdp::{Counter, Loaded, Owner, PortProgram, Verdict, WhenDown};

/// A bridged port without a socket: what the filter lets through is passed.
fn load(set: &RuleSet) -> Option<(Filter, Loaded)> {
    let compiled = match Compiled::new(set) {
        Ok(compiled) => compiled,
        // The random rules know nothing of contradictions and of the number of places.
        Err(FilterError::NeverMatches { .. } | FilterError::TooManyPlaces { .. }) => return None,
        Err(error) => panic!("{error}"),
    };
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
