//! `trivium show flows | groups | meters | megaflows | caches`: state of OpenFlow bridges.

use std::fmt::Write as _;

use model::{CachesState, FlowCount, FlowRuleState, GroupState, MegaflowState, MeterState};

use super::output::{print, ratio};
use crate::args::{Flows, OfBridge};
use crate::client::Client;
use crate::cmd::apply::quoted;
use crate::failure::Failure;
use crate::table::{Table, short};

fn path(what: &str, bridge: Option<&String>, table: Option<u8>, limit: u64) -> String {
    let mut path = format!("/v1/{what}?limit={limit}");
    // Writing to a string cannot fail.
    let _ = bridge.map(|bridge| write!(path, "&bridge={}", quoted(bridge)));
    let _ = table.map(|table| write!(path, "&table={table}"));
    path
}

pub async fn show_flows(client: &Client, args: &Flows, json: bool) -> Result<(), Failure> {
    let path = path("flows", args.of.bridge.as_ref(), args.table, args.of.limit);
    print(json, &client.get::<Vec<FlowRuleState>>(&path).await?, flows);
    Ok(())
}

pub async fn show_groups(client: &Client, args: &OfBridge, json: bool) -> Result<(), Failure> {
    let path = path("groups", args.bridge.as_ref(), None, args.limit);
    print(json, &client.get::<Vec<GroupState>>(&path).await?, groups);
    Ok(())
}

pub async fn show_meters(client: &Client, args: &OfBridge, json: bool) -> Result<(), Failure> {
    let path = path("meters", args.bridge.as_ref(), None, args.limit);
    print(json, &client.get::<Vec<MeterState>>(&path).await?, meters);
    Ok(())
}

pub async fn show_megaflows(client: &Client, args: &OfBridge, json: bool) -> Result<(), Failure> {
    let path = path("megaflows", args.bridge.as_ref(), None, args.limit);
    print(json, &client.get::<Vec<MegaflowState>>(&path).await?, megaflows);
    Ok(())
}

pub async fn show_caches(client: &Client, json: bool) -> Result<(), Failure> {
    let state: CachesState = client.get("/v1/caches").await?;
    if json {
        println!("{}", serde_json::to_string_pretty(&state).unwrap_or_default());
    } else {
        print!("{}", caches(&state));
    }
    Ok(())
}

/// Formats a duration in milliseconds as seconds, minutes or hours.
fn time(ms: u64) -> String {
    match ms / 1000 {
        0..=9 => format!("{}.{} s", ms / 1000, ms / 100 % 10),
        seconds @ 10..=599 => format!("{seconds} s"),
        seconds @ 600..=35_999 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

fn flows(rules: &[FlowRuleState]) -> String {
    if rules.is_empty() {
        return "there is no rule\n".to_owned();
    }
    let mut table =
        Table::new(&["BRIDGE", ">TABLE", ">PRIORITY", ">PACKETS", ">BYTES", ">AGE", ">IDLE", "RULE"]);
    for rule in rules {
        let cookie = if rule.cookie == 0 { String::new() } else { format!("cookie={:#x} ", rule.cookie) };
        let times = [("idle_timeout", rule.idle_timeout), ("hard_timeout", rule.hard_timeout)];
        let times: String = times
            .iter()
            .filter(|(_, time)| *time != 0)
            .map(|(name, time)| format!("{name}={time} "))
            .collect();
        let space = if rule.matches.is_empty() { "" } else { " " };
        table.row([
            rule.bridge.clone(),
            rule.table.to_string(),
            rule.priority.to_string(),
            short(rule.packets),
            short(rule.bytes),
            time(rule.age_ms),
            time(rule.idle_ms),
            format!("{cookie}{times}{}{space}actions={}", rule.matches, rule.actions),
        ]);
    }
    table.render()
}

fn each(counts: &[FlowCount]) -> String {
    counts.iter().map(|count| short(count.packets)).collect::<Vec<_>>().join(" ")
}

fn groups(groups: &[GroupState]) -> String {
    if groups.is_empty() {
        return "there is no group\n".to_owned();
    }
    let mut table = Table::new(&["BRIDGE", ">PACKETS", ">BYTES", ">AGE", "BY BUCKET", "GROUP"]);
    for group in groups {
        table.row([
            group.bridge.clone(),
            short(group.packets),
            short(group.bytes),
            time(group.age_ms),
            each(&group.buckets),
            group.text.clone(),
        ]);
    }
    table.render()
}

fn meters(meters: &[MeterState]) -> String {
    if meters.is_empty() {
        return "there is no meter\n".to_owned();
    }
    let mut table = Table::new(&["BRIDGE", ">PACKETS", ">BYTES", ">AGE", "OVER BY BAND", "METER"]);
    for meter in meters {
        table.row([
            meter.bridge.clone(),
            short(meter.packets),
            short(meter.bytes),
            time(meter.age_ms),
            each(&meter.bands),
            meter.text.clone(),
        ]);
    }
    table.render()
}

fn megaflows(flows: &[MegaflowState]) -> String {
    if flows.is_empty() {
        return "no flow is cached\n".to_owned();
    }
    let mut table = Table::new(&["BRIDGE", ">WORKER", ">PACKETS", ">BYTES", ">USED", "FLOW"]);
    for flow in flows {
        table.row([
            flow.bridge.clone(),
            flow.worker.to_string(),
            short(flow.packets),
            short(flow.bytes),
            flow.used_ms.map_or_else(|| "never".to_owned(), time),
            format!("{} actions:{} rules: {}", flow.flow, flow.actions, flow.rules.join("; ")),
        ]);
    }
    table.render()
}

fn percent(part: u64, of: u64) -> String {
    format!("{:.1} %", 100.0 * ratio(part, of))
}

fn caches(state: &CachesState) -> String {
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
