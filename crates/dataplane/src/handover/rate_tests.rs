//! Measures how long a hand-over of many table entries takes, and compares the duration with the
//! time limit.

use std::time::{Duration, Instant};

use switch::flow::{Action, Field, FlowMod, Instructions, Match, Mod, Pipeline};

use super::channel::Link;
use super::state::{HandoverState, PER_RULE, StationRecord};
use crate::flows::RulesRecord;

/// Number of flow entries in the test, which is also the number of MAC table entries.
const ENTRIES: u32 = 1_000_000;

/// Returns flow tables with [`ENTRIES`] flow entries that match one IPv4 address each.
fn pipeline() -> Pipeline {
    let mut pipeline = Pipeline::new();
    for number in 0..ENTRIES {
        let matching = Match::ANY
            .with(Field::EthType, 0x0800)
            .with(Field::Ipv4Dst, u128::from(number))
            .with(Field::InPort, 1);
        let out = Instructions::apply(vec![Action::Output { port: 2, max_len: 0 }]);
        pipeline.modify(&[Mod::Flow(Box::new(FlowMod::add(0, 7, matching, out)))], 1).unwrap();
        if number % 1024 == 0 {
            pipeline.take_events();
        }
    }
    pipeline.take_events();
    pipeline
}

fn timed<T>(what: &str, run: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    let made = run();
    let took = begin.elapsed();
    println!("{what}: {took:?}");
    (made, took)
}

/// The hand-over of a million flow entries and a million MAC table entries takes at most half of the time limit.
/// The other half is a reserve for slower or busy machines.
#[test]
#[ignore = "takes a minute"]
fn a_million_rules_and_stations_fit_into_the_time_limit_of_a_hand_over() {
    let pipeline = pipeline();
    let (record, export) = timed("export", || RulesRecord::of(&pipeline, Default::default(), 2));
    drop(pipeline);
    let station = |number: u32| StationRecord { vid: 10, mac: number.into(), port: 1, age_secs: 3 };
    let state = HandoverState {
        rules: [("br0".to_owned(), record)].into(),
        stations: [("br0".to_owned(), (0..ENTRIES).map(station).collect())].into(),
        ..HandoverState::default()
    };
    let patience = state.patience();
    let (text, encode) = timed("encode", || serde_json::to_vec(&state).unwrap());
    println!("{} bytes", text.len());
    let (_, decode) = timed("decode", || serde_json::from_reader::<_, HandoverState>(&text[..]).unwrap());
    drop(text);
    let (received, transfer) = timed("transfer with both", || {
        let (mut ours, theirs) = Link::pair().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| ours.send(&state, &[]).unwrap());
            Link::over(theirs).receive::<HandoverState>("the hand-over state").unwrap().0
        })
    });
    drop(state);
    let mut pipeline = Pipeline::new();
    let (refused, import) = timed("import", || received.rules["br0"].give(&mut pipeline, 3));
    assert_eq!((refused, pipeline.rule_count()), (0, ENTRIES as usize));
    println!("limit: {patience:?}, used: {:?}, encode {encode:?}, decode {decode:?}", transfer + import);
    assert!(export < PER_RULE * ENTRIES, "the watchdog waits for the export");
    assert!(transfer + import < patience / 2);
}
