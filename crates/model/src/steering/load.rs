//! Reads `[steering.NAME]` with its exact-match flow entries.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::filter::load::protocol;
use crate::load::fields::{Fields, Findings, table_of};
use crate::load::tree::Value;
use crate::steering::contradiction;
use crate::{Cause, FiveTuple, SteeringFlow, SteeringPolicy, SteeringTarget};

pub(crate) fn read_steering(mut fields: Fields<'_>, findings: &mut Findings) -> SteeringPolicy {
    let default = SteeringPolicy::default();
    let capacity = fields.number("capacity", (0, SteeringPolicy::CAPACITY_MAX.into()), " flows", findings);
    let queue = fields.number("cpu_queue", (1, SteeringPolicy::QUEUE_MAX.into()), " packets", findings);
    let metadata = fields.flag("metadata", findings);
    let table = read_table(&mut fields, findings);
    let capacity = capacity.unwrap_or(default.capacity);
    let flows = read_flows(&mut fields, capacity, findings);
    // A mark without metadata would have no effect.
    let marked = flows.iter().position(|flow| flow.mark != 0);
    if let Some(at) = marked.filter(|_| metadata == Some(false)) {
        let object = fields.path(&format!("flow[{at}].mark"));
        let place = fields.place_of("flow");
        findings.add(place, object, Cause::NeedsOther { key: "mark", needs: "metadata = true" });
    }
    fields.finish(findings);
    SteeringPolicy {
        capacity,
        cpu_queue: queue.unwrap_or(default.cpu_queue),
        metadata: metadata.unwrap_or(marked.is_some()),
        table,
        flows,
    }
}

/// Reads the indirection table of a steering policy. The value is a target such as `worker`, or a list of targets,
/// whose number is a power of two.
fn read_table(fields: &mut Fields<'_>, findings: &mut Findings) -> Vec<SteeringTarget> {
    let Some(items) = fields.items("table", findings) else { return Vec::new() };
    let (count, mut table) = (items.len(), Vec::new());
    for (object, item) in items.into_iter().take(SteeringPolicy::BUCKETS) {
        match target(&item.value) {
            Ok(to) => table.push(to),
            Err(cause) => findings.add(item.place, object, cause),
        }
    }
    let (place, object) = (fields.place_of("table"), fields.path("table"));
    if count == 0 {
        findings.add(place, object, Cause::Missing { key: "a target", example: "table = [\"kernel\"]" });
    } else if count > SteeringPolicy::BUCKETS {
        let cause = Cause::TooMany { what: "buckets", count, limit: SteeringPolicy::BUCKETS };
        findings.add(place, object, cause);
    } else if !count.is_power_of_two() {
        let near = u32::try_from(count.next_power_of_two()).unwrap_or(0);
        let value = i64::try_from(count).unwrap_or(0);
        findings.add(place, object, Cause::NotPowerOfTwo { value, near });
    }
    table
}

fn target(item: &Value) -> Result<SteeringTarget, Cause> {
    let (what, example) = ("a target", "\"worker\", \"kernel\" or \"cpu 1\"");
    match item {
        Value::Text(text) => text.parse().map_err(|_| Cause::BadText { text: text.clone(), what, example }),
        other => Err(Cause::WrongType { expected: "a target in quotes", found: other.found() }),
    }
}

fn read_flows(fields: &mut Fields<'_>, capacity: u32, findings: &mut Findings) -> Vec<SteeringFlow> {
    let items = fields.items("flow", findings).unwrap_or_default();
    let limit = usize::try_from(capacity).unwrap_or(usize::MAX);
    fields.limit("flow", "flows", items.len(), limit, findings);
    let (mut keys, mut flows) = (BTreeSet::new(), Vec::new());
    for (object, item) in items.into_iter().take(limit) {
        let Some(flow) = table_of(&object, item, findings) else { continue };
        let place = flow.place;
        let Some(flow) = read_flow(flow, findings) else { continue };
        if keys.insert(flow.key) {
            flows.push(flow);
        } else {
            findings.add(place, object, Cause::Repeated { what: "flow", value: flow.key.to_string() });
        }
    }
    flows
}

fn read_flow(mut flow: Fields<'_>, findings: &mut Findings) -> Option<SteeringFlow> {
    let needed = [
        ("source", "source = \"192.0.2.1\""),
        ("destination", "destination = \"192.0.2.2\""),
        ("protocol", "protocol = \"udp\""),
        ("to", "to = \"kernel\""),
    ];
    for (key, example) in needed {
        if !flow.has(key) {
            flow.missing(key, example, findings);
        }
    }
    let bad =
        |text, _| Cause::BadText { text, what: "an address", example: "\"192.0.2.1\" or \"2001:db8::1\"" };
    let source: Option<IpAddr> = flow.parsed("source", bad, findings);
    let destination: Option<IpAddr> = flow.parsed("destination", bad, findings);
    let vlan = flow.vlan("vlan", findings);
    let source_port: Option<u16> = flow.number("source_port", (0, u16::MAX.into()), "", findings);
    let destination_port: Option<u16> = flow.number("destination_port", (0, u16::MAX.into()), "", findings);
    let mark = flow.number("mark", (0, u32::MAX.into()), "", findings).unwrap_or(0);
    let mut read =
        |key: &'static str| flow.get(key, findings).map(|entry| (entry.node.place, &entry.node.value));
    let (protocol_at, to_at) = (read("protocol"), read("to"));
    let protocol = protocol_at.and_then(|(place, value)| {
        protocol(value).map_err(|cause| findings.add(place, flow.path("protocol"), cause)).ok()
    });
    let to = to_at.and_then(|(place, value)| {
        target(value).map_err(|cause| findings.add(place, flow.path("to"), cause)).ok()
    });
    for (key, other) in [("source_port", "destination_port"), ("destination_port", "source_port")] {
        if flow.has(key) && !flow.has(other) {
            findings.add(flow.place_of(key), flow.path(key), Cause::NeedsOther { key, needs: other });
        }
    }
    let (place, object) = (flow.place, flow.object.clone());
    let half = flow.has("source_port") != flow.has("destination_port");
    let whole = flow.has("source_port") == source_port.is_some()
        && flow.has("destination_port") == destination_port.is_some();
    let misread = flow.has("vlan") && vlan.is_none();
    flow.finish(findings);
    let ports = source_port.zip(destination_port);
    let key = FiveTuple { vlan, source: source?, destination: destination?, protocol: protocol?.0, ports };
    if half || misread || !whole {
        return None;
    }
    if let Some((cause, fix)) = contradiction(&key) {
        let cause = Cause::NotInHook { cause: cause.to_owned(), fix: fix.to_owned() };
        findings.add(place, object, cause);
        return None;
    }
    Some(SteeringFlow { key, to: to?, mark })
}
