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
    for scenario in scenarios.into_iter().filter(|scenario| !["fib-load", "route-churn"].contains(scenario)) {
        // The rate has the source in it, so a packet takes longer than its cost and no longer than both and a little: if nothing
        // else has run meanwhile.
        let mut tried = Vec::new();
        let agrees = (0..5).any(|_| {
            let (whole, cost, source) = reported(scenario);
            tried.push((whole, cost, source));
            whole > cost && (whole / (cost + source) - 1.0).abs() < 0.5
        });
        assert!(agrees, "{scenario}: ns in all, ns in parts: {tried:?}");
    }
}

/// Nanoseconds of a packet by the rate, and those of its parts. What must always hold is held.
fn reported(scenario: &str) -> (f64, f64, f64) {
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
    assert!(last["packets"].as_u64().is_some_and(|packets| packets > 10_000), "{last}");
    assert_eq!((last["allocations"].as_u64(), last["loss"].as_u64()), (Some(0), Some(0)), "{last}");
    (1_000.0 / rate, cost, source)
}

fn last(arguments: &[&str]) -> Value {
    let output = bench(arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn a_whole_table_is_loaded_and_weighed() {
    let load = last(&["fib-load", "--table", TABLE]);
    assert_eq!(
        (load["routes4"].as_u64(), load["routes6"].as_u64()),
        (Some(901_899), Some(160_147)),
        "{load}"
    );
    let figure = |name: &str| load[name].as_f64().unwrap();
    let tries = figure("trie_megabytes4") + figure("trie_megabytes6");
    // The tries alone are some 10 MB; prefixes are kept besides.
    assert!((5.0..25.0).contains(&tries) && figure("megabytes") > tries, "{load}");
    assert!(figure("megabytes") < 200.0 && figure("seconds") > 0.0, "{load}");
}

#[test]
fn no_packet_is_lost_while_routes_change() {
    let churn = last(&["route-churn", "--seconds", "1", "--table", TABLE]);
    assert_eq!((churn["loss"].as_u64(), churn["refused"].as_u64()), (Some(0), Some(0)), "{churn}");
    let figure = |name: &str| churn[name].as_f64().unwrap();
    // How long a round takes at worst depends on who else is on the machine: here it only has to be told.
    assert!(figure("quiet_p99_us") >= figure("quiet_p50_us") && figure("quiet_p50_us") > 0.0, "{churn}");
    assert!(figure("changes") > 1_000.0 && figure("p99_ratio") > 0.0, "{churn}");
    let output = bench(&["route-churn", "--workers", "2", "--table", TABLE]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("one worker only"));
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
