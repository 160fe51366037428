#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::mpsc::channel;

use super::*;

/// The data plane waits for the end of the slow-path thread at most until the deadline. If the thread ends in time, the
/// megaflows that the workers had cached are kept for the next slow path.
#[test]
fn the_slow_path_is_waited_for_until_a_deadline() {
    let deciding = |work: Box<dyn FnOnce() + Send>| {
        let knobs = SlowPathConfig {
            limit: AtomicU32::new(1),
            megaflows: AtomicBool::new(true),
            stop: AtomicBool::new(false),
        };
        let thread = std::thread::spawn(move || {
            work();
            let known =
                KnownFlow { worker: 1, bridge: 2, port: packet::PortId(3), present: 0, words: Vec::new() };
            vec![known]
        });
        Deciding { knobs: Arc::new(knobs), view: Arc::default(), thread }
    };
    let (end, ends) = channel::<()>();
    let stuck = deciding(Box::new(move || {
        let _ = ends.recv();
    }));
    let mut flows = Flows { deciding: Some(stuck), ..Flows::default() };
    let begin = Instant::now();
    assert!(!flows.halt_by(Some(begin + Duration::from_millis(100))));
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert!(flows.known.is_empty() && flows.halt_by(None), "nothing is left to be halted");
    drop(end);
    flows.deciding = Some(deciding(Box::new(|| {})));
    assert!(flows.halt_by(Some(Instant::now() + Duration::from_secs(60))));
    assert_eq!(flows.known.len(), 1);
}

/// A bridge whose megaflows take long to revalidate does not delay changes of other bridges. A change waits
/// only for the bridges that it affects. The slow path of this test never answers.
#[test]
fn a_slow_bridge_delays_no_change_of_another() {
    let mut flows = Flows::default();
    for name in ["slow", "other"] {
        let name: BridgeName = name.parse().unwrap();
        let config = switch::BridgeConfig { name: name.to_string(), ..switch::BridgeConfig::default() };
        let bridge = Arc::new(switch::Bridge::new(&config, 1));
        let flowing = flows.make(&name, &bridge, &OpenFlow::default()).unwrap();
        flows.bridges.insert(name, flowing);
    }
    let is_asked = |flows: &Flows, name: &str| {
        let name: BridgeName = name.parse().unwrap();
        flows.bridges[&name].tables.has_requests()
    };
    assert!(flows.are_forgotten(&Stale::default()), "nothing has gone");
    let mut barriers = flows.ask(|name| name.as_str() == "other");
    assert_eq!(barriers.asked, 1);
    assert!(is_asked(&flows, "other") && !is_asked(&flows, "slow"));
    assert!(!barriers.all_within(Duration::from_millis(10)));
    // One barrier is enough to remove the megaflows of a removed bridge.
    let (done, is_done) = channel();
    done.send(()).unwrap();
    let mut barriers = Barriers { asked: 2, completed: 0, is_done };
    assert!(barriers.any_within(Duration::from_secs(5)));
    assert!(!barriers.all_within(Duration::from_millis(10)));
}

/// A reader of metrics does not wait for flow tables that a controller keeps locked. The last known memory use of
/// these tables is shown.
#[test]
fn the_memory_of_locked_tables_is_the_last_known_value() {
    let mut flows = Flows::default();
    for name in ["br0", "br1"] {
        let name: BridgeName = name.parse().unwrap();
        let config = switch::BridgeConfig { name: name.to_string(), ..switch::BridgeConfig::default() };
        let bridge = Arc::new(switch::Bridge::new(&config, 1));
        let flowing = flows.make(&name, &bridge, &OpenFlow::default()).unwrap();
        flows.bridges.insert(name, flowing);
    }
    let tables = |name: &str| Arc::clone(&flows.bridges[&name.parse::<BridgeName>().unwrap()].tables);
    let shown = flows.shown(&crate::ids::Names::new());
    let octets = || shown.memory().into_iter().map(|own| own.bytes).collect::<Vec<_>>();
    let before = octets();
    let held = tables("br0");
    let mut held = held.lock();
    let rules = |first: u16| -> Vec<Mod> {
        let add = |priority| {
            Mod::Flow(Box::new(FlowMod::add(0, priority, Match::ANY, Instructions::apply(Vec::new()))))
        };
        (first..first + 100).map(add).collect()
    };
    held.modify(&rules(1), 0).unwrap();
    tables("br1").change(|pipeline| pipeline.modify(&rules(1), 0)).unwrap();
    let meanwhile = octets();
    assert_eq!(meanwhile[0], before[0]);
    assert!(meanwhile[1] > before[1]);
    drop(held);
    let after = octets();
    assert!(after[0] > before[0] && after[1] == meanwhile[1]);
}

/// The total length of the texts in a list of flow entries does not exceed the maximum that the API client's query
/// specifies.
#[test]
fn a_list_has_no_more_octets_of_texts_than_its_query_permits() {
    let mut flows = Flows::default();
    let name: BridgeName = "br0".parse().unwrap();
    let config = switch::BridgeConfig { name: name.to_string(), ..switch::BridgeConfig::default() };
    let flowing =
        flows.make(&name, &Arc::new(switch::Bridge::new(&config, 1)), &OpenFlow::default()).unwrap();
    let note = Instructions::apply(vec![Action::Note(vec![0; 1000])]);
    let add = |priority| Mod::Flow(Box::new(FlowMod::add(0, priority, Match::ANY, note.clone())));
    let rules: Vec<Mod> = (1..11).map(add).collect();
    flowing.tables.change(|pipeline| pipeline.modify(&rules, 0)).unwrap();
    flows.bridges.insert(name, flowing);
    let shown = flows.shown(&crate::ids::Names::new());
    let query = |limit, text_octets| model::FlowQuery { limit, text_octets, ..model::FlowQuery::default() };
    assert!(shown.rules(&query(100, None)).unwrap().len() >= 10);
    assert!(shown.rules(&query(100, Some(20_000))).is_err());
    assert_eq!(shown.rules(&query(2, Some(20_000))).unwrap().len(), 2);
}

/// A hand-over waits until no flow table is locked, at most until a deadline. The wait fails with the name of a bridge
/// whose flow tables are still locked at the deadline.
#[test]
fn rules_that_are_held_are_waited_for_until_a_deadline() {
    let tables = || Arc::new(FlowTables::new(1, Pipeline::new(), Arc::new(Waker::new().unwrap())));
    let named = |name: &str| (name.parse::<BridgeName>().unwrap(), tables());
    let held = Held(vec![named("br0"), named("br1")]);
    let soon = || Instant::now() + Duration::from_millis(50);
    assert!(held.wait(soon()).is_ok());
    let rules = held.0[1].1.lock();
    assert_eq!(held.wait(soon()).map_err(BridgeName::as_str), Err("br1"));
    drop(rules);
    assert!(held.wait(soon()).is_ok());
}

/// A hand-over is refused before the workers stop if the flow entries of a bridge do not fit into the messages of the
/// hand-over. The error contains the name of the bridge and the size of its flow entries in octets.
#[test]
fn rules_are_compared_with_what_a_hand_over_carries() {
    use switch::flow::{Action, FlowMod, Instructions, Match, Mod};
    let tables = || Arc::new(FlowTables::new(1, Pipeline::new(), Arc::new(Waker::new().unwrap())));
    let named = |name: &str| (name.parse::<BridgeName>().unwrap(), tables());
    let held = Held(vec![named("br0"), named("br1")]);
    let rule = |number: u16, note: usize| {
        let actions = vec![Action::Note(vec![0; note])];
        Mod::Flow(Box::new(FlowMod::add(0, number, Match::ANY, Instructions::apply(actions))))
    };
    let add = |at: usize, mods: &[Mod]| {
        held.0[at].1.change(|pipeline| pipeline.modify(mods, 0)).unwrap();
    };
    add(0, &(0..100).map(|number| rule(number, 8)).collect::<Vec<_>>());
    assert_eq!(held.fit(100_000), Ok(()), "small rules take 300 octets each");
    add(1, &[rule(1, 60_000)]);
    let (bridge, octets) = held.fit(100_000).unwrap_err();
    assert_eq!(bridge.as_str(), "br1");
    assert!((120_000..200_000).contains(&octets), "{octets}");
}
