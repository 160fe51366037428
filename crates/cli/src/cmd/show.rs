//! `trivium show`: state of the daemon as tables or JSON.

mod flows;
mod output;
mod router;

use control::ConfigReport;
use hyper::Method;
use hyper::body::Bytes;
use model::{
    BridgeState, DropState, FdbEntry, FilterState, PortState, RouterState, StageState, SteeringState,
    WorkerState,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::args::{Fdb, Show, Shown};
use crate::client::Client;
use crate::cmd::apply::quoted;
use crate::failure::Failure;
use crate::table::{Table, by_number, folded, short};
use output::{print, ratio};

/// Prints the part of the daemon's state that the command line requests.
///
/// # Errors
/// The daemon does not answer, or the object does not exist.
pub async fn show(client: &Client, args: &Show) -> Result<(), Failure> {
    let json = args.json;
    match &args.what {
        Shown::Ports { port } => {
            named(client, "/v1/ports", port.as_deref(), json, |port: &PortState| port.name.as_str(), ports)
                .await
        }
        Shown::Bridges { bridge } => {
            named(
                client,
                "/v1/bridges",
                bridge.as_deref(),
                json,
                |bridge: &BridgeState| bridge.name.as_str(),
                bridges,
            )
            .await
        }
        Shown::Filters { filter } => {
            named(
                client,
                "/v1/filters",
                filter.as_deref(),
                json,
                |filter: &FilterState| filter.name.as_str(),
                filters,
            )
            .await
        }
        Shown::Steering { steering } => {
            named(
                client,
                "/v1/steering",
                steering.as_deref(),
                json,
                |steering: &SteeringState| steering.name.as_str(),
                self::steering,
            )
            .await
        }
        Shown::Fdb(args) => show_fdb(client, args, json).await,
        Shown::Workers => {
            print(json, &client.get::<Vec<WorkerState>>("/v1/workers").await?, workers);
            Ok(())
        }
        Shown::Flows(args) => flows::show_flows(client, args, json).await,
        Shown::Groups(args) => flows::show_groups(client, args, json).await,
        Shown::Meters(args) => flows::show_meters(client, args, json).await,
        Shown::Megaflows(args) => flows::show_megaflows(client, args, json).await,
        Shown::Caches => flows::show_caches(client, json).await,
        Shown::Drops { port } => {
            if let Some(port) = port {
                exists(client, "/v1/ports", port, |port: &PortState| port.name.as_str()).await?;
            }
            let mut all: Vec<DropState> = client.get("/v1/drops").await?;
            all.retain(|drop| port.as_ref().is_none_or(|port| *port == drop.port));
            print(json, &all, drops);
            Ok(())
        }
        Shown::Stages => {
            print(json, &client.get::<Vec<StageState>>("/v1/stages").await?, stages);
            Ok(())
        }
        Shown::Config => config(client, json).await,
        Shown::Routers { router } => {
            let (name, of) = (router.as_deref(), router::routers);
            named(client, "/v1/routers", name, json, |router: &RouterState| router.name.as_str(), of).await
        }
        Shown::Routes(args) => router::show_routes(client, args, json).await,
        Shown::Why(args) => router::show_why(client, args, json).await,
        Shown::Neighbours(args) => router::show_neighbours(client, args, json).await,
        Shown::Nexthops(args) => router::show_next_hops(client, args, json).await,
        Shown::Interfaces { router } => router::show_interfaces(client, router.as_deref(), json).await,
        Shown::Drift(args) => router::show_drift(client, args, json).await,
        Shown::Punts { router } => router::show_punts(client, router.as_deref(), json).await,
    }
}

/// Prints the MAC table entries that match the arguments, sorted by bridge, VLAN and address.
async fn show_fdb(client: &Client, args: &Fdb, json: bool) -> Result<(), Failure> {
    if let Some(bridge) = &args.bridge {
        exists(client, "/v1/bridges", bridge, |bridge: &BridgeState| bridge.name.as_str()).await?;
    }
    if let Some(port) = &args.port {
        exists(client, "/v1/ports", port, |port: &PortState| port.name.as_str()).await?;
    }
    let (vlan, mac) = (args.vlan.map(|vlan| vlan.to_string()), args.mac.as_ref().map(ToString::to_string));
    let query: Vec<String> = [("bridge", &args.bridge), ("port", &args.port), ("vlan", &vlan), ("mac", &mac)]
        .into_iter()
        .filter_map(|(field, value)| Some(format!("{field}={}", quoted(value.as_ref()?))))
        .collect();
    let mut entries: Vec<FdbEntry> = client.get(&format!("/v1/fdb?{}", query.join("&"))).await?;
    entries.sort_by(|one, other| {
        (&one.bridge, one.vlan, one.mac.as_u64()).cmp(&(&other.bridge, other.vlan, other.mac.as_u64()))
    });
    print(json, &entries, fdb);
    Ok(())
}

/// Returns an error if the API resource at `path` lists no object with this name.
async fn exists<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    name: &str,
    name_of: impl Fn(&T) -> &str,
) -> Result<(), Failure> {
    let all: Vec<T> = client.get(path).await?;
    if all.iter().any(|one| name_of(one) == name) { Ok(()) } else { Err(absent(name)) }
}

fn absent(name: &str) -> Failure {
    Failure::new(name, "there is no such object", "leave the name out to see all")
}

/// Prints all objects that the API resource at `path` lists, or only the object with this name.
async fn named<T: DeserializeOwned + Serialize>(
    client: &Client,
    path: &str,
    name: Option<&str>,
    json: bool,
    name_of: impl Fn(&T) -> &str,
    table: impl Fn(&[T]) -> String,
) -> Result<(), Failure> {
    let mut all: Vec<T> = client.get(path).await?;
    all.sort_by(|one, other| by_number(name_of(one), name_of(other)));
    if let Some(name) = name {
        all.retain(|one| name_of(one) == name);
        if all.is_empty() {
            return Err(absent(name));
        }
    }
    print(json, &all, table);
    Ok(())
}

/// Returns the first words of the reason why a port does not use a faster mode, without the kernel's error
/// text.
fn beginning(reason: &str) -> &str {
    /// Maximum length of the result in characters.
    const LENGTH: usize = 40;
    let reason = reason.split([':', '(', ',', ';']).next().unwrap_or_default().trim_end();
    reason.char_indices().nth(LENGTH).map_or(reason, |(end, _)| reason[..end].trim_end())
}

/// Returns the current fault of a port, and the reasons why the port's sockets or hook do not use a faster
/// mode. The reasons are shortened unless `whole` is set, as it is when only one port is shown.
fn note(port: &PortState, whole: bool) -> String {
    let mut notes: Vec<String> = port.trouble.iter().cloned().collect();
    for reason in &port.reasons {
        let zero_copy = reason.starts_with("the driver ") && reason.contains("zero copy");
        let short = match (whole, zero_copy) {
            (true, _) => reason.as_str(),
            (false, true) => "no zero copy",
            (false, false) => beginning(reason),
        };
        if !notes.iter().any(|note| note == short) {
            notes.push(short.to_owned());
        }
    }
    notes.join("; ")
}

fn ports(ports: &[PortState]) -> String {
    let mut table = Table::new(&[
        "PORT", "KIND", "DEVICE", "STATE", "BRIDGE", "ROUTER", "MODE", ">MTU", ">QUEUES", ">RX", ">TX",
        ">DROPS", "NOTE",
    ]);
    let whole = ports.len() == 1;
    for port in ports {
        let state = match (port.admin_up, port.link_up) {
            (false, _) => "off",
            (true, false) => "down",
            (true, true) => "up",
        };
        let device = match (&port.device, &port.namespace) {
            (Some(device), Some(namespace)) => format!("{device}@{namespace}"),
            (Some(device), None) => device.clone(),
            (None, _) => "-".to_owned(),
        };
        let copies = match port.zero_copy {
            Some(true) => ", zero copy",
            Some(false) => ", copy",
            None => "",
        };
        let mode = port.mode.as_ref().map_or_else(|| "-".to_owned(), |mode| format!("{mode}{copies}"));
        table.row([
            port.name.clone(),
            port.kind.clone(),
            device,
            state.to_owned(),
            port.bridge.clone().unwrap_or_else(|| "-".to_owned()),
            port.router.clone().unwrap_or_else(|| "-".to_owned()),
            mode,
            port.mtu.to_string(),
            port.queues.to_string(),
            short(port.counters.rx_packets),
            short(port.counters.tx_packets),
            short(port.counters.drops + port.counters.rx_missed),
            note(port, whole),
        ]);
    }
    table.render()
}

fn bridges(bridges: &[BridgeState]) -> String {
    let mut text = String::new();
    for bridge in bridges {
        let snooping = if bridge.snooping { format!("{} groups", bridge.groups) } else { "off".to_owned() };
        let hook = bridge.hook.map_or_else(String::new, |stations| format!(", {stations} in the hook"));
        let flows = bridge.hook_flows.map(|flows| format!(", {flows} flows in the hook")).unwrap_or_default();
        text.push_str(&format!(
            "{}: {} of {} addresses{hook}{flows}, ageing {} s, snooping {snooping}, owner {}\n",
            bridge.name, bridge.macs, bridge.mac_limit, bridge.ageing, bridge.owner
        ));
        let mut table = Table::new(&["  PORT", "VLANS", ">ADDRESSES", ">MOVES", "PROTECTED", "OWNER"]);
        for member in &bridge.members {
            let protected = if member.protected { "yes" } else { "-" };
            table.row([
                format!("  {}", member.port),
                member.vlans.clone(),
                member.macs.to_string(),
                short(member.moves),
                protected.to_owned(),
                member.owner.to_string(),
            ]);
        }
        text.push_str(&table.render());
    }
    text
}

fn filters(filters: &[FilterState]) -> String {
    if filters.is_empty() {
        return "there is no filter\n".to_owned();
    }
    let mut text = String::new();
    for filter in filters {
        let ports = if filter.ports.is_empty() { "no port".to_owned() } else { filter.ports.join(" ") };
        let listed = filter.listed.map_or_else(String::new, |listed| format!(", {listed} prefixes blocked"));
        text.push_str(&format!("{}: on {ports}{listed}, owner {}\n", filter.name, filter.owner));
        let mut table =
            Table::new(&["  RULE", ">PRIORITY", "ACTION", ">PACKETS", ">BYTES", ">ACTED", ">BYTES", "NOTE"]);
        for rule in &filter.rules {
            let dry = if rule.dry_run { "dry run" } else { "" };
            let expiry = match (&rule.expires, rule.expired) {
                (Some(time), true) => format!("expired {time}"),
                (Some(time), false) => format!("until {time}"),
                (None, _) => String::new(),
            };
            let note: Vec<&str> = [dry, &expiry].into_iter().filter(|note| !note.is_empty()).collect();
            table.row([
                format!("  {}", rule.name),
                rule.priority.to_string(),
                rule.action.clone(),
                short(rule.packets),
                short(rule.bytes),
                short(rule.acted_packets),
                short(rule.acted_bytes),
                note.join(", "),
            ]);
        }
        text.push_str(&table.render());
        text.push_str(&services(filter));
    }
    text
}

/// Formats the SYN cookie counters of all rules of a filter.
fn services(filter: &FilterState) -> String {
    let mut table =
        Table::new(&["  SYN COOKIES", ">ANSWERED", ">VALID", ">INVALID", ">REFUSED", ">THROUGH", "NOW"]);
    let rules = filter.rules.iter().filter_map(|rule| Some((rule, rule.cookies?)));
    let mut any = false;
    for (rule, cookies) in rules {
        any = true;
        table.row([
            format!("  {}", rule.name),
            short(cookies.answered),
            short(cookies.valid),
            short(cookies.invalid),
            short(cookies.refused),
            short(cookies.through),
            if cookies.answering { "answering" } else { "calm" }.to_owned(),
        ]);
    }
    if any { table.render() } else { String::new() }
}

fn steering(policies: &[SteeringState]) -> String {
    if policies.is_empty() {
        return "there is no steering\n".to_owned();
    }
    let mut text = String::new();
    for steering in policies {
        let ports = if steering.ports.is_empty() { "no port".to_owned() } else { steering.ports.join(" ") };
        let live =
            if steering.live_flows > 0 { format!(" ({} live)", steering.live_flows) } else { String::new() };
        let metadata = match (steering.metadata, steering.unmarked) {
            (false, _) => String::new(),
            (true, 0) => ", metadata".to_owned(),
            (true, without) => format!(", metadata ({without} packets without)"),
        };
        text.push_str(&format!(
            "{}: on {ports}, {} of {} flows{live}{metadata}, owner {}\n",
            steering.name, steering.flows, steering.capacity, steering.owner
        ));
        let mut table = Table::new(&["  TO", ">BUCKETS", ">PACKETS", ">BYTES"]);
        let shares = steering.buckets.iter().map(|share| share.to);
        let mut targets: Vec<model::SteeringTarget> = steering.sent.iter().map(|sent| sent.to).collect();
        targets.extend(shares.filter(|to| steering.sent.iter().all(|sent| sent.to != *to)));
        for to in targets {
            let share = steering.buckets.iter().find(|share| share.to == to).map_or(0, |share| share.buckets);
            let share = match (steering.buckets.is_empty(), steering.live_table) {
                (true, _) => "-".to_owned(),
                (false, false) => share.to_string(),
                (false, true) => format!("{share} (live)"),
            };
            let sent = steering.sent.iter().find(|sent| sent.to == to);
            let (packets, bytes) = sent.map_or((0, 0), |sent| (sent.packets, sent.bytes));
            table.row([format!("  {to}"), share, short(packets), short(bytes)]);
        }
        text.push_str(&table.render());
    }
    text
}

fn fdb(entries: &[FdbEntry]) -> String {
    let mut table = Table::new(&["BRIDGE", ">VLAN", "ADDRESS", "PORT", ">AGE"]);
    for entry in entries {
        let age = if entry.is_static { "static".to_owned() } else { format!("{} s", entry.age_s) };
        let row =
            [entry.bridge.clone(), entry.vlan.to_string(), entry.mac.to_string(), entry.port.clone(), age];
        table.row(row);
    }
    table.render()
}

fn workers(workers: &[WorkerState]) -> String {
    let mut table =
        Table::new(&[">WORKER", ">CORE", ">BUSY", "STATE", ">PACKETS", ">PER BURST", ">SLEEPS", "QUEUES"]);
    for worker in workers {
        let core = if worker.core == u16::MAX { "any".to_owned() } else { worker.core.to_string() };
        table.row([
            worker.id.to_string(),
            core,
            format!("{:.1} %", worker.busy * 100.0),
            if worker.sleeping { "asleep" } else { "awake" }.to_owned(),
            short(worker.packets),
            format!("{:.1}", ratio(worker.packets, worker.bursts)),
            short(worker.sleeps),
            folded(&worker.queues),
        ]);
    }
    table.render()
}

fn drops(drops: &[DropState]) -> String {
    if drops.is_empty() {
        return "nothing was dropped\n".to_owned();
    }
    let mut table = Table::new(&["PORT", "REASON", ">PACKETS", "WHAT IT MEANS"]);
    for drop in drops {
        table.row([
            drop.port.clone(),
            drop.reason.clone(),
            drop.packets.to_string(),
            drop.explanation.clone(),
        ]);
    }
    table.render()
}

fn stages(stages: &[StageState]) -> String {
    let mut table = Table::new(&["STAGE", ">PACKETS", ">NS PER PACKET"]);
    for stage in stages {
        table.row([stage.name.clone(), short(stage.packets), format!("{:.1}", stage.ns_per_packet())]);
    }
    table.render()
}

async fn config(client: &Client, json: bool) -> Result<(), Failure> {
    if json {
        let report: ConfigReport = client.get("/v1/config").await?;
        println!("{}", serde_json::to_string_pretty(&report).unwrap_or_default());
        return Ok(());
    }
    let answer = client.request(Method::GET, "/v1/config?format=toml", "", Bytes::new()).await?.success()?;
    print!("{}", String::from_utf8_lossy(&answer.body));
    let report: ConfigReport = client.get("/v1/config").await?;
    let foreign = report.owners.iter().filter(|(_, owner)| **owner != model::Owner::File);
    for (object, owner) in foreign {
        println!("# {object}: owner {owner}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_short_where_there_are_many_ports() {
        let lines = [
            "the driver has no zero copy",
            "the driver refuses zero copy with several buffers a packet (Operation not supported (os error 95))",
            "the driver refused native: Operation not supported (os error 95): too large",
        ];
        let port = serde_json::json!({
            "name": "v1", "id": 1, "kind": "veth", "owner": "file", "reasons": lines, "queues": 1, "mtu": 1500,
            "admin_up": true, "link_up": true, "trouble": "its device has gone",
            "counters": {"rx_packets": 0, "rx_bytes": 0, "rx_missed": 0, "tx_packets": 0, "tx_bytes": 0, "drops": 0},
        });
        let port: PortState = serde_json::from_value(port).unwrap();
        assert_eq!(note(&port, false), "its device has gone; no zero copy; the driver refused native");
        assert_eq!(note(&port, true), format!("its device has gone; {}", lines.join("; ")));
        assert!(ports(&[port.clone(), port]).starts_with("PORT  KIND  DEVICE  STATE  BRIDGE  ROUTER  MODE"));
    }
}
