//! `trivium show caches`: flow caches of the workers, the slow path, and memory by use.

use std::fmt::Write as _;

use model::CachesState;
use model::table::{Table, ratio, short};

use super::output::print;
use crate::client::Client;
use crate::failure::Failure;

/// Prints the state of the flow caches.
pub async fn show(client: &Client, json: bool) -> Result<(), Failure> {
    let state: CachesState = client.get("/v1/caches").await?;
    print(json, &state, text);
    Ok(())
}

fn percent(part: u64, of: u64) -> String {
    format!("{:.1} %", 100.0 * ratio(part, of))
}

/// Formats the state of the flow caches.
fn text(state: &CachesState) -> String {
    let mut text = String::new();
    if state.workers.is_empty() {
        text.push_str("no bridge goes by rules: nothing is cached of them\n");
    } else {
        let mut table = Table::new(&[
            ">WORKER",
            ">FLOWS",
            ">MASKS",
            ">EXACT",
            ">MASKED",
            ">MISSED",
            ">HIT RATE",
            ">PROBES EACH",
            ">MEMORY",
        ]);
        for cache in &state.workers {
            let hits = cache.exact_hits + cache.masked_hits;
            let all = hits + cache.misses;
            table.row([
                cache.worker.to_string(),
                short(cache.flows),
                cache.masks.to_string(),
                format!("{} ({})", short(cache.exact_hits), percent(cache.exact_hits, all)),
                format!("{} ({})", short(cache.masked_hits), percent(cache.masked_hits, all)),
                short(cache.misses),
                percent(hits, all),
                format!("{:.2}", ratio(cache.probes, all)),
                octets(cache.memory),
            ]);
        }
        text.push_str(&table.render());
    }
    if let Some(slow_path) = &state.slow_path {
        let _ = writeln!(
            text,
            "slow path: {} of {} flows, {} packets looked up, {} flows followed again, {} narrowed, last look {:.1} ms, {} wrong",
            slow_path.flows,
            slow_path.limit,
            short(slow_path.upcalls),
            short(slow_path.revalidated),
            short(slow_path.narrowed),
            ratio(slow_path.round_us, 1000),
            slow_path.wrong
        );
    }
    let mut table = Table::new(&["MEMORY OF", ">BYTES"]);
    for memory in &state.memory {
        table.row([memory.consumer.clone(), octets(memory.bytes)]);
    }
    text + &table.render()
}

/// Formats a number of bytes with a binary unit prefix.
fn octets(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} B"),
        _ if bytes < 10 << 20 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}
