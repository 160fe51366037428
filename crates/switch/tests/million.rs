//! Tests a table at its limit of one million rules. A batch that exceeds the limit is refused as a whole with the error
//! `TableFull`, and other batches are applied.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and says what it took"
)]

use std::time::Instant;

use switch::flow::{
    Action, Field, Flow, FlowCommand, FlowError, FlowMod, Instructions, MAX_RULES, Match, Mod, Pipeline,
    TranslationInput, port, text,
};

/// Number of changes in one bundle.
const BUNDLE: usize = 1000;

fn host(table: u8, number: usize) -> Mod {
    let matching = Match::ANY.with(Field::EthDst, 0x0200_0000_0000 + number as u128);
    let actions = vec![Action::Output { port: port::IN_PORT, max_len: 0xffff }];
    Mod::Flow(Box::new(FlowMod::add(table, 5, matching, Instructions::apply(actions))))
}

/// Returns whether a packet to host `number` matches the host's rule.
fn is_met(pipeline: &Pipeline, number: usize) -> bool {
    let octets = (0x0200_0000_0000 + number as u64).to_be_bytes();
    let address = octets[2..].iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":");
    let flow: Flow = text::parse(&format!("in_port=1,dl_dst={address}"), |_| None).unwrap();
    !pipeline.translate(TranslationInput { flow: &flow, frame: None, trace: false }).rules.is_empty()
}

#[test]
fn a_table_that_is_full_refuses_a_bundle_whole() {
    let limit = MAX_RULES as usize;
    let mut pipeline = Pipeline::new();
    let begin = Instant::now();
    for from in (0..limit).step_by(BUNDLE) {
        let bundle: Vec<Mod> = (from..from + BUNDLE).map(|number| host(0, number)).collect();
        pipeline.modify(&bundle, 0).unwrap();
    }
    let seconds = begin.elapsed().as_secs_f64();
    eprintln!("{limit} rules in {seconds:.2} s, {} octets each", pipeline.memory() / limit);
    assert_eq!(pipeline.rule_count(), limit);
    pipeline.take_events();

    // A bundle that removes rules, adds as many and one more, and changes another table in between.
    let mut bundle = vec![host(1, 7)];
    let delete = |number: usize| {
        let matching = Match::ANY.with(Field::EthDst, 0x0200_0000_0000 + number as u128);
        let mut change = FlowMod::delete(0, matching);
        (change.priority, change.command) = (5, FlowCommand::Delete { strict: true });
        Mod::Flow(Box::new(change))
    };
    bundle.extend((0..BUNDLE).map(delete));
    bundle.extend((0..=BUNDLE).map(|number| host(0, limit + number)));
    let refused = pipeline.modify(&bundle, 1);
    assert_eq!(refused, Err((2 * BUNDLE + 1, FlowError::TableFull)), "the change that was too much");
    assert_eq!(pipeline.rule_count(), limit);
    assert!(is_met(&pipeline, 0) && is_met(&pipeline, BUNDLE - 1) && is_met(&pipeline, limit - 1));
    assert!(!is_met(&pipeline, limit) && !is_met(&pipeline, limit + BUNDLE));
    assert!(pipeline.take_events().is_empty(), "nobody hears of what was not done");

    // Other changes proceed, and the bundle without the excess rule is accepted.
    pipeline.modify(&[host(1, 7)], 2).unwrap();
    bundle.pop();
    pipeline.modify(&bundle, 3).unwrap();
    assert_eq!(pipeline.rule_count(), limit + 1);
    assert!(!is_met(&pipeline, 0) && is_met(&pipeline, limit) && is_met(&pipeline, limit - 1));
}
