//! Runs of `ping`, and parsing of the results.

use crate::namespace::run_command;
use crate::{LabError, Namespace};

/// Results of one run of `ping`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PingReport {
    /// Number of echo requests sent.
    pub sent: u32,
    /// Number of replies received.
    pub received: u32,
    /// Mean round-trip time in milliseconds. 0 if no reply was received.
    pub average_ms: f64,
}

impl PingReport {
    /// Returns the fraction of requests that got no reply, from 0 to 1.
    pub fn loss(&self) -> f64 {
        1.0 - f64::from(self.received) / f64::from(self.sent.max(1))
    }
}

pub(crate) fn ping(from: &Namespace, to: &str, count: u32) -> Result<PingReport, LabError> {
    let count = count.to_string();
    let mut command = from.command(["ping", "-n", "-q", "-c", &count, "-i", "0.01", "-W", "1", to]);
    let output = run_command(&mut command)?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).ok_or_else(|| LabError::Output { command: format!("ping {to}"), output: text.into_owned() })
}

fn parse(text: &str) -> Option<PingReport> {
    let counts = text.lines().find(|line| line.contains("packets transmitted"))?;
    let mut words = counts.split_whitespace();
    let sent = words.next()?.parse().ok()?;
    let received = words.nth(2)?.parse().ok()?;
    // rtt min/avg/max/mdev = 0.031/0.034/0.038/0.003 ms
    let average_ms = text
        .lines()
        .find_map(|line| line.strip_prefix("rtt "))
        .and_then(|line| line.split('=').nth(1)?.split('/').nth(1)?.trim().parse().ok())
        .unwrap_or(0.0);
    Some(PingReport { sent, received, average_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_summary_is_understood() {
        let text = "PING 10.0.0.2 (10.0.0.2) 56(84) bytes of data.\n\n--- 10.0.0.2 ping statistics ---\n\
                    4 packets transmitted, 3 received, 25% packet loss, time 30ms\nrtt min/avg/max/mdev = 0.031/0.034/0.038/0.003 ms\n";
        let report = parse(text).unwrap();
        assert_eq!(report, PingReport { sent: 4, received: 3, average_ms: 0.034 });
        assert!((report.loss() - 0.25).abs() < 1e-9);
        assert_eq!(parse("ping: connect: Network is unreachable"), None);
    }
}
