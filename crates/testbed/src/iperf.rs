//! Runs of `iperf3` with one TCP stream from one namespace to another.

use std::time::Duration;

use crate::namespace::run_command;
use crate::{LabError, Namespace, eventually};

/// Results of one run of `iperf3`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Iperf {
    /// Goodput at the receiver, in Gbit/s.
    pub gbps: f64,
    /// Number of segments that the sender retransmitted.
    pub retransmits: u64,
}

/// Runs an iperf3 server in the namespace `server`, and for `seconds` seconds a client in the namespace
/// `client`. The client connects to `address`.
///
/// # Errors
/// Returns an error if the server or the client fails. The error contains the output of the failed program.
pub fn iperf_tcp(
    client: &Namespace,
    server: &Namespace,
    address: &str,
    seconds: u32,
) -> Result<Iperf, LabError> {
    let listener = server.spawn(["iperf3", "-s", "-1"])?;
    eventually("iperf3 listening", Duration::from_secs(5), || {
        let sockets =
            server.run(["ss", "-Hltn", "sport", "=", ":5201"]).map_err(|error| error.to_string())?;
        if sockets.trim().is_empty() { Err(listener.output()) } else { Ok(()) }
    })?;
    let seconds = seconds.to_string();
    let mut command =
        client.command(["iperf3", "-c", address, "-t", &seconds, "-J", "--connect-timeout", "3000"]);
    let output = run_command(&mut command)?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).ok_or_else(|| LabError::Output { command: "iperf3 -J".into(), output: text.into_owned() })
}

fn parse(text: &str) -> Option<Iperf> {
    let report: serde_json::Value = serde_json::from_str(text).ok()?;
    let end = report.get("end")?;
    let gbps = end.pointer("/sum_received/bits_per_second")?.as_f64()? / 1e9;
    let retransmits = end.pointer("/sum_sent/retransmits").and_then(serde_json::Value::as_u64).unwrap_or(0);
    Some(Iperf { gbps, retransmits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_report_is_understood() {
        let text = r#"{"end":{"sum_sent":{"retransmits":7},"sum_received":{"bits_per_second":2.5e9}}}"#;
        assert_eq!(parse(text), Some(Iperf { gbps: 2.5, retransmits: 7 }));
        assert_eq!(parse(r#"{"error":"unable to connect"}"#), None);
    }
}
