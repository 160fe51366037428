//! `trivium bench`: the real engine over in-memory ports, without privileges. The last line is one JSON object.

use std::io::Read;
use std::path::Path;

use engine::bench::{Options, Popularity, Report, Route, Scenario};
use flate2::read::MultiGzDecoder;
use serde_json::{Value, json};

use crate::cli::Bench;
use crate::failure::Failure;
use sync::heap;

/// Runs a scenario.
///
/// # Errors
/// If there is no such scenario, or nothing came through.
pub fn run(args: &Bench) -> Result<(), Failure> {
    let names: Vec<&str> = Scenario::ALL.into_iter().map(Scenario::name).collect();
    if args.scenario == "list" {
        println!("{}", names.join("\n"));
        return Ok(());
    }
    let fix = format!("use one of {}", names.join(", "));
    let scenario = Scenario::named(&args.scenario)
        .ok_or_else(|| Failure::new(format!("scenario {}", args.scenario), "it does not exist", fix))?;
    let first_core = sync::cpu::allowed_cores().ok().and_then(|cores| cores.last().copied()).unwrap_or(0);
    let options = Options {
        seconds: args.seconds,
        workers: args.workers.max(1),
        first_core: first_core.saturating_sub(args.workers.max(1) - 1),
        allocations: heap::allocations,
        routes: scenario.table().map_or_else(|| Ok(Vec::new()), |_| table(&args.table))?,
        popularity: if args.zipf { Popularity::Zipf } else { Popularity::Even },
    };
    let report = engine::bench::run(scenario, &options)
        .map_err(|error| Failure::new(format!("scenario {}", args.scenario), error, ""))?;
    if !args.json {
        print(&report);
    }
    println!("{}", value(&report));
    Ok(())
}

/// The prefixes of a file, one a line, packed by gzip or not.
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

fn print(report: &Report) {
    let pages = if report.huge_pages { "huge" } else { "normal" };
    println!("{}: {} workers, frames in {pages} pages", report.scenario, report.workers);
    println!("  {:.2} ns a packet (the source's own {:.2} ns aside)", report.ns_per_packet, report.source_ns);
    println!(
        "  {:.2} ns in the quickest {} ms, when nobody else was on the core",
        report.best_ns,
        Report::SLICE_MS
    );
    println!("  {:.2} Mpps, source included", report.mpps);
    println!("  {} packets, {} lost, {} allocations", report.packets, report.loss, report.allocations);
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
