//! `trivium trace`: the next packets that match, stage by stage.

use std::time::Duration;

use model::TraceEvent;

use crate::cli::Trace;
use crate::client::Client;
use crate::cmd::apply::quoted;
use crate::failure::Failure;

/// What a filter may name, as the API has it.
const FIELDS: [&str; 7] = ["port", "mac", "vlan", "ether_type", "ip", "protocol", "l4_port"];

/// Prints packets until there were enough, or none came for too long.
///
/// # Errors
/// If the filter is not understood, or nothing matched in time.
pub async fn trace(client: &Client, args: &Trace) -> Result<(), Failure> {
    let query = query(&args.filter)?;
    let mut stream = client.stream(&format!("/v1/trace?count={}{query}", args.number)).await?;
    let patience = Duration::from_secs(args.seconds);
    let mut seen = 0;
    while seen < args.number {
        let Ok(line) = tokio::time::timeout(patience, stream.line()).await else {
            let cause =
                format!("{seen} of {} packets matched, and then none for {} s", args.number, args.seconds);
            return Err(Failure::new("trace", cause, "widen the filter, or wait longer with --seconds"));
        };
        let Some(line) = line else { break };
        seen += 1;
        if args.json {
            println!("{line}");
            continue;
        }
        let event: TraceEvent = serde_json::from_str(&line)
            .map_err(|error| Failure::new("trace", error, "use a trivium of the daemon's version"))?;
        print(&event);
    }
    Ok(())
}

fn print(event: &TraceEvent) {
    println!("#{} {} on {}, worker {}", event.number, event.packet, event.in_port, event.worker);
    for step in &event.steps {
        println!("  {:<9} {}", step.stage, step.what);
    }
    println!("  => {}", event.verdict);
}

/// `port=web1,ip=10.0.0.1,tcp` as parts of a query.
fn query(filter: &str) -> Result<String, Failure> {
    let mut query = String::new();
    for item in filter.split([',', ' ']).filter(|item| !item.is_empty()) {
        let (field, value) = match item.split_once('=') {
            Some(("proto" | "protocol", name)) => ("protocol", protocol(name).unwrap_or(name)),
            Some(("in" | "in_port" | "port", name)) => ("port", name),
            Some(field) => field,
            None => match protocol(item) {
                Some(number) => ("protocol", number),
                None if item == "arp" => ("ether_type", "2054"),
                None => (item, ""),
            },
        };
        if !FIELDS.contains(&field) || value.is_empty() {
            let fix =
                format!("use tcp, udp, icmp, icmpv6, arp, or FIELD=VALUE with one of {}", FIELDS.join(", "));
            return Err(Failure::new("filter", format!("`{item}` is not understood"), fix));
        }
        query.push_str(&format!("&{field}={}", quoted(value)));
    }
    Ok(query)
}

fn protocol(name: &str) -> Option<&'static str> {
    Some(match name {
        "icmp" => "1",
        "igmp" => "2",
        "tcp" => "6",
        "udp" => "17",
        "icmpv6" => "58",
        "sctp" => "132",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::query;

    #[test]
    fn filters_become_queries() {
        let text = query("port=web1, ip=10.0.0.1,icmp").unwrap();
        assert_eq!(text, "&port=web1&ip=10.0.0.1&protocol=1");
        assert_eq!(query("proto=tcp l4_port=80").unwrap(), "&protocol=6&l4_port=80");
        assert_eq!(query("").unwrap(), "");
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let error = query("colour=red").unwrap_err().to_string();
        assert!(error.contains("`colour=red`") && error.contains("l4_port"), "{error}");
    }
}
