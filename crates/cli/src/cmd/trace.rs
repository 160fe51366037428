//! `trivium trace`: traces the next packets that match a filter through all pipeline stages.

use std::time::Duration;

use model::TraceEvent;
use packet::filter::Filter;

use crate::args::Trace;
use crate::client::{Client, quoted};
use crate::failure::Failure;

/// Advice for errors of a filter expression, with an example.
pub const FILTER_EXAMPLE: &str = "for example: ip_src=10.0.0.0/8,tcp,dst_port=443";

/// Prints the trace of each matching packet until the requested number is reached or no packet matches for
/// the given time.
///
/// # Errors
/// Returns an error if the filter expression is invalid, or no packet matched in time.
pub async fn trace(client: &Client, args: &Trace) -> Result<(), Failure> {
    let query = query(&args.filter.join(","), args.port.as_deref())?;
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

/// Returns the packet filter and the port as query parameters of a URL. The filter expression is also parsed
/// here, so that an invalid expression is reported without a daemon.
fn query(filter: &str, port: Option<&str>) -> Result<String, Failure> {
    Filter::parse(filter).map_err(|error| Failure::new("filter", error, FILTER_EXAMPLE))?;
    let port = port.map(|port| format!("&port={}", quoted(port)));
    let filter = (!filter.is_empty()).then(|| format!("&filter={}", quoted(filter)));
    Ok([port, filter].into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::query;

    #[test]
    fn filters_become_queries() {
        let text = query("ip_src=10.0.0.0/8,icmp", Some("web1")).unwrap();
        assert_eq!(text, "&port=web1&filter=ip_src%3D10.0.0.0/8%2Cicmp");
        assert_eq!(query("", None).unwrap(), "");
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let error = query("colour=red", None).unwrap_err().to_string();
        assert!(error.contains("`colour`") && error.contains("ip_src"), "{error}");
    }
}
