//! Runs one bench scenario: `cargo run --release -p engine --example scenario -- bridge 2 [workers]`. The same as `trivium bench`
//! without the count of allocations.

use engine::bench::{Options, Scenario, run};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let name = args.get(1).map_or("bridge", String::as_str);
    let number = |at: usize, default: f64| args.get(at).and_then(|a| a.parse().ok()).unwrap_or(default);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a handful of workers")]
    let workers = number(3, 1.0) as usize;
    let options =
        Options { seconds: number(2, 2.0), workers, first_core: number(4, 0.0) as usize, allocations: || 0 };
    for scenario in Scenario::ALL.into_iter().filter(|s| name == "all" || s.name() == name) {
        match run(scenario, &options) {
            Ok(r) => println!(
                "{:<13} {:6.2} ns  best {:6.2} ns  {:6.1} tsc  source {:5.2} ns  {:6.2} Mpps  loss {}  packets {}  huge {}",
                r.scenario,
                r.ns_per_packet,
                r.best_ns,
                r.tsc_cycles_per_packet,
                r.source_ns,
                r.mpps,
                r.loss,
                r.packets,
                r.huge_pages
            ),
            Err(e) => println!("{}: {e}", scenario.name()),
        }
    }
}
