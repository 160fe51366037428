//! `trivium bench`: measures the engine over in-memory ports, without privileges. The last line of output is
//! one JSON object.

use std::io::Read;
use std::path::Path;

use engine::bench::{Churn, Decision, Figures, Load, Options, Popularity, Report, Route, Scenario};
use flate2::read::MultiGzDecoder;
use serde_json::{Map, Value, json};

use cli::args::Bench;
use cli::failure::Failure;
use sync::heap;

/// Runs a scenario and prints the result.
///
/// # Errors
/// The scenario does not exist, or no packet passed through the engine.
pub fn run(args: &Bench) -> Result<(), Failure> {
    let of_tables = Decision::ALL.into_iter().map(Decision::name);
    let names: Vec<&str> =
        Scenario::ALL.into_iter().map(Scenario::name).chain(of_tables).chain([LOAD, CHURN]).collect();
    if args.scenario == "list" {
        println!("{}", names.join("\n"));
        return Ok(());
    }
    let fix = format!("use one of {}", names.join(", "));
    let (scenario, decision) = (Scenario::named(&args.scenario), Decision::named(&args.scenario));
    if !names.contains(&args.scenario.as_str()) {
        return Err(Failure::new(format!("scenario {}", args.scenario), "it does not exist", fix));
    }
    let first_core = sync::cpu::allowed_cores().ok().and_then(|cores| cores.last().copied()).unwrap_or(0);
    let options = Options {
        seconds: args.seconds,
        workers: args.workers.max(1),
        first_core: first_core.saturating_sub(args.workers.max(1) - 1),
        allocations: heap::allocations,
        routes: match scenario {
            Some(scenario) if scenario.table().is_none() => Vec::new(),
            None if decision.is_some() => Vec::new(),
            Some(_) | None => table(&args.table)?,
        },
        popularity: if args.zipf { Popularity::Zipf } else { Popularity::Even },
    };
    let failed = |error| Failure::new(format!("scenario {}", args.scenario), error, "");
    let (text, value) = match (scenario, decision) {
        (Some(scenario), _) => {
            let report = engine::bench::run(scenario, &options).map_err(failed)?;
            (text(&report), value(&report))
        }
        (_, Some(decision)) => figures(&engine::bench::decide(decision, &options).map_err(failed)?),
        _ if args.scenario == LOAD => load(&engine::bench::load(&options).map_err(failed)?),
        _ => churn(&engine::bench::churn(&options).map_err(failed)?),
    };
    if !args.json {
        print!("{text}");
    }
    println!("{value}");
    Ok(())
}

/// Name of the scenario that measures the load time of a routing table instead of packets per second.
const LOAD: &str = "fib-load";
/// Name of the scenario that measures route changes instead of packets per second.
const CHURN: &str = "route-churn";

fn load(load: &Load) -> (String, Value) {
    let megabytes = |bytes: f64| bytes / 1e6;
    let ([four, six], [seconds4, seconds6]) = (load.routes, load.seconds);
    let (seconds, resident) = (seconds4 + seconds6, megabytes(load.resident as f64));
    let tries = load.tries.map(|bytes| megabytes(bytes as f64));
    let text = format!(
        "{LOAD}: {four} IPv4 and {six} IPv6 routes\n  {seconds:.3} s: {seconds4:.3} s and {seconds6:.3} s\n  \
         {resident:.1} MB resident; tries of {:.1} MB and {:.1} MB in it\n",
        tries[0], tries[1]
    );
    let value = json!({
        "scenario": LOAD,
        "seconds": seconds,
        "megabytes": resident,
        "routes4": four,
        "routes6": six,
        "seconds4": seconds4,
        "seconds6": seconds6,
        "trie_megabytes4": tries[0],
        "trie_megabytes6": tries[1],
    });
    (text, value)
}

fn churn(churn: &Churn) -> (String, Value) {
    let us = |ns: f64| ns / 1e3;
    let ([quiet50, quiet99], [churning50, churning99]) = (churn.quiet.map(us), churn.churning.map(us));
    let ratio = churning99 / quiet99;
    let text = format!(
        "{CHURN}: {:.0} changes a second, {} in all, {} refused\n  {} packets, {} lost\n  a round: {quiet50:.1} us \
         (99th percentile {quiet99:.1}) quiet, {churning50:.1} us ({churning99:.1}) changing: {ratio:.2} times as long\n",
        churn.changes_per_second, churn.changes, churn.refused, churn.packets, churn.loss
    );
    let value = json!({
        "scenario": CHURN,
        "changes": churn.changes,
        "changes_per_second": churn.changes_per_second,
        "refused": churn.refused,
        "packets": churn.packets,
        "loss": churn.loss,
        "quiet_p50_us": quiet50,
        "quiet_p99_us": quiet99,
        "churning_p50_us": churning50,
        "churning_p99_us": churning99,
        "p99_ratio": ratio,
    });
    (text, value)
}

/// Formats the results of a scenario as text and as JSON. In the JSON object, the field `rows` is the list of result
/// rows. If there is only one row and it has no name, the JSON object is this row.
fn figures(figures: &Figures) -> (String, Value) {
    let mut text = format!("{}:\n", figures.scenario);
    let mut rows = Vec::new();
    for row in &figures.rows {
        if !row.name.is_empty() {
            text.push_str(&format!("  {}\n", row.name));
        }
        let mut object = Map::from_iter([("scenario".to_owned(), json!(figures.scenario))]);
        if !row.name.is_empty() {
            object = Map::from_iter([("row".to_owned(), json!(row.name))]);
        }
        for (name, value) in &row.figures {
            let digits = if value.abs() < 1_000.0 && value.fract() != 0.0 { 3 } else { 0 };
            text.push_str(&format!("    {name:<28}{value:>16.digits$}\n"));
            object.insert((*name).to_owned(), json!(value));
        }
        rows.push(Value::Object(object));
    }
    let value = match &rows[..] {
        [only] if only.get("row").is_none() => only.clone(),
        _ => json!({ "scenario": figures.scenario, "rows": rows }),
    };
    (text, value)
}

/// Reads routes from a file with one prefix per line. The file is plain text or compressed with gzip.
fn table(file: &Path) -> Result<Vec<Route>, Failure> {
    let object = || format!("table {}", file.display());
    let unreadable = |error: std::io::Error| {
        Failure::new(
            object(),
            error,
            "name a file of prefixes with --table, one a line, packed by gzip or not",
        )
    };
    let bytes = std::fs::read(file).map_err(unreadable)?;
    let mut text = String::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        MultiGzDecoder::new(bytes.as_slice()).read_to_string(&mut text).map_err(unreadable)?;
    } else {
        text = String::from_utf8(bytes).map_err(|error| unreadable(std::io::Error::other(error)))?;
    }
    engine::bench::parse(&text).map_err(|(line, found)| {
        let fix = "write prefixes as 192.0.2.0/24 or 2001:db8::/32";
        Failure::new(format!("{}:{line}", object()), format!("{found:?} is no prefix"), fix)
    })
}

fn text(report: &Report) -> String {
    let pages = if report.huge_pages { "huge" } else { "normal" };
    format!(
        "{}: {} workers, frames in {pages} pages\n  {:.2} ns a packet (the source's own {:.2} ns aside)\n  \
         {:.2} ns in the quickest {} ms, when nobody else was on the core\n  {:.2} Mpps, source included\n  \
         {} packets, {} lost, {} allocations\n",
        report.scenario,
        report.workers,
        report.ns_per_packet,
        report.source_ns,
        report.best_ns,
        Report::SLICE_MS,
        report.mpps,
        report.packets,
        report.loss,
        report.allocations
    )
}

fn value(report: &Report) -> Value {
    json!({
        "scenario": report.scenario,
        "mpps": report.mpps,
        "ns_per_packet": report.ns_per_packet,
        "best_ns_per_packet": report.best_ns,
        "tsc_cycles_per_packet": report.tsc_cycles_per_packet,
        "source_ns_per_packet": report.source_ns,
        "allocations": report.allocations,
        "loss": report.loss,
        "packets": report.packets,
        "workers": report.workers,
    })
}
