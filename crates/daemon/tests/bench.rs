//! `trivium bench`: every scenario that it lists runs and ends with the line that others read.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trivium")).arg("bench").args(arguments).output().unwrap()
}

/// The real one, seen from wherever the test runs.
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/data/rib-prefixes.txt.gz");

#[test]
fn every_scenario_reports_and_neither_allocates_nor_loses() {
    let listed = String::from_utf8(bench(&["list"]).stdout).unwrap();
    let scenarios: Vec<&str> = listed.lines().collect();
    for wanted in ["port-to-port", "parse", "bridge", "bridge-100k"] {
        assert!(scenarios.contains(&wanted), "{listed}");
    }
    for scenario in scenarios {
        // The rate has the source in it, so a packet takes longer than its cost and no longer than both and a little: if nothing
        // else has run meanwhile.
        let mut tried = Vec::new();
        let agrees = (0..5).any(|_| {
            let (whole, both) = reported(scenario);
            tried.push((whole, both));
            (whole / both - 1.0).abs() < 0.5
        });
        assert!(agrees, "{scenario}: ns in all, ns in parts: {tried:?}");
    }
}

/// Nanoseconds of a packet by the rate, and the sum of those of its parts. What must always hold is held.
fn reported(scenario: &str) -> (f64, f64) {
    let output = bench(&[scenario, "--seconds", "0.3", "--table", TABLE]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{scenario}: {text}{}", String::from_utf8_lossy(&output.stderr));
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["scenario"], scenario);
    let figure = |name: &str| last[name].as_f64().filter(|value| *value > 0.0);
    for name in
        ["mpps", "ns_per_packet", "best_ns_per_packet", "source_ns_per_packet", "tsc_cycles_per_packet"]
    {
        assert!(figure(name).is_some(), "{scenario}: {name} in {last}");
    }
    // People read the same figures, the source's own cost beside what it is not part of.
    let (cost, source) = (figure("ns_per_packet").unwrap(), figure("source_ns_per_packet").unwrap());
    let line = format!("  {cost:.2} ns a packet (the source's own {source:.2} ns aside)");
    assert!(text.lines().any(|other| other == line), "{scenario}: no '{line}' in {text}");
    let rate = figure("mpps").unwrap();
    assert!(text.contains(&format!("  {rate:.2} Mpps, source included")), "{text}");
    assert!(1_000.0 / rate > cost, "{scenario}: {last}");
    assert!(last["packets"].as_u64().is_some_and(|packets| packets > 10_000), "{last}");
    assert_eq!((last["allocations"].as_u64(), last["loss"].as_u64()), (Some(0), Some(0)), "{last}");
    (1_000.0 / rate, cost + source)
}

#[test]
fn json_is_one_line_and_nonsense_is_refused() {
    let output = bench(&["bridge", "--json", "--seconds", "0.1", "--workers", "2"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["workers"], 2);
    let output = bench(&["bridge", "--seconds=-1"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && !said.contains("panicked"), "{said}");
    let output = bench(&["no-such-scenario"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("port-to-port"));
}
