//! Traffic of the demo: pings between all pairs of hosts, a UDP flood, and TCP traffic from the first host to the
//! second.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use model::FilterState;
use xdp::live::{Generator, Traffic, Vary};

use crate::lab::{FLOOD_PORT, FLOODED, FLOODER, HOSTS, Lab, RULED};
use cli::client::Client;
use cli::failure::Failure;

/// Number of echo requests that each host sends to each other host of its VLAN.
const PINGS: u64 = 5;
/// Rate of the flood in frames per second. The flood lasts 1.5 seconds.
const FLOOD_RATE: u64 = 100_000;
/// Number of echo requests that the flooding host sends during the flood.
const FLOOD_PINGS: u64 = 10;

/// Result of the pings between all pairs of hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pings {
    /// Number of echo requests between hosts of one VLAN.
    pub sent: u64,
    /// Number of echo requests between hosts of one VLAN that were answered.
    pub received: u64,
    /// Number of answered echo requests between hosts of different VLANs. The number must be 0.
    pub leaked: u64,
}

impl Pings {
    /// Returns the share of the echo requests within VLANs that were not answered, from 0 to 1.
    #[allow(clippy::cast_precision_loss, reason = "a handful of packets")]
    pub fn loss(&self) -> f64 {
        if self.sent == 0 { 1.0 } else { 1.0 - self.received as f64 / self.sent as f64 }
    }
}

/// Pings from each host to each other host. All pings run at the same time.
///
/// # Errors
/// The program ping cannot be started.
pub async fn ping_all(lab: &Lab) -> Result<Pings, Failure> {
    let mut tasks = Vec::new();
    for (from, to) in
        (1..=HOSTS).flat_map(|from| (1..=HOSTS).map(move |to| (from, to))).filter(|(a, b)| a != b)
    {
        let near = Lab::vlan(from) == Lab::vlan(to);
        let count = if near { PINGS } else { 2 };
        let mut command = Lab::command(&lab.namespace(from), "ping");
        command.args(["-n", "-q", "-i", "0.05", "-W", "1", "-c", &count.to_string(), &Lab::address(to)]);
        tasks.push((near, count, tokio::task::spawn_blocking(move || command.output())));
    }
    let mut pings = Pings::default();
    for (near, count, task) in tasks {
        let missing = |error: &dyn std::fmt::Display| Failure::new("ping", error, "run `make setup`");
        let output = task.await.map_err(|error| missing(&error))?.map_err(|error| missing(&error))?;
        let received = answered(&String::from_utf8_lossy(&output.stdout));
        if near {
            pings.sent += count;
            pings.received += received;
        } else {
            pings.leaked += received;
        }
    }
    Ok(pings)
}

/// Returns the number of replies in ping's summary: "5 packets transmitted, 5 received, ...".
pub fn answered(text: &str) -> u64 {
    let line = text.lines().find(|line| line.contains("packets transmitted"));
    line.and_then(|line| line.split(", ").nth(1)?.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Result of a flood that the hook's filter drops, and of pings from the flooding host to its neighbour during the
/// flood.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flood {
    /// Number of UDP frames that the flood sent.
    pub sent: u64,
    /// Number of flood frames that the filter dropped.
    pub dropped: u64,
    /// Number of echo requests sent during the flood.
    pub pings: u64,
    /// Number of echo requests during the flood that were answered.
    pub answered: u64,
}

impl Flood {
    /// Returns whether the filter dropped the flood and all pings were answered.
    pub fn ok(&self) -> bool {
        self.dropped > 0 && self.pings > 0 && self.answered == self.pings
    }
}

/// Floods the fourth host with UDP packets from the third host. During the flood, the third host also pings
/// the fourth host.
///
/// # Errors
/// The kernel generates no frames, or the daemon does not report its filter.
pub async fn flood(lab: &Lab, client: &Client) -> Result<Flood, Failure> {
    let before = dropped(client).await?;
    let (namespace, from, to) = (lab.namespace(FLOODER), Lab::address(FLOODER), Lab::address(FLOODED));
    let mut ping = Lab::command(&namespace, "ping");
    ping.args(["-n", "-q", "-i", "0.1", "-W", "1", "-c", &FLOOD_PINGS.to_string(), &to]);
    let failed = |error: &dyn std::fmt::Display| Failure::new("flood", error, "");
    let pinging = tokio::task::spawn_blocking(move || ping.output());
    let flooding = tokio::task::spawn_blocking(move || {
        let path = format!("/run/netns/{namespace}");
        port::netns::within(&path, || send(&from, &to)).map_err(|error| error.to_string())?
    });
    let sent = flooding.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
    let output = pinging.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
    let answered = answered(&String::from_utf8_lossy(&output.stdout));
    Ok(Flood { sent, dropped: dropped(client).await? - before, pings: FLOOD_PINGS, answered })
}

/// Sends kernel-generated UDP frames from the device of one host to another host, and returns the number of
/// frames.
fn send(from: &str, to: &str) -> Result<u64, String> {
    let device = port::link::find("eth0").map_err(|error| error.to_string())?;
    let address = |text: &str| text.parse().map_err(|error| format!("{text}: {error}"));
    let traffic = Traffic {
        source: address(from)?,
        destination: address(to)?,
        destination_port: FLOOD_PORT,
        rate: Some(FLOOD_RATE),
        flows: 256,
        vary: Vary { ports: true, ..Vary::default() },
        ..Traffic::to(device.ifindex)
    };
    let mut generator = Generator::new(&traffic).map_err(|error| error.to_string())?;
    generator.send(FLOOD_RATE * 3 / 2).map(|offered| offered.packets).map_err(|error| error.to_string())
}

/// Returns the total number of frames that the filters of the demo have dropped.
async fn dropped(client: &Client) -> Result<u64, Failure> {
    let filters: Vec<FilterState> = client.get("/v1/filters").await?;
    Ok(filters.iter().flat_map(|filter| &filter.rules).map(|rule| rule.acted_packets).sum())
}

/// A continuous ping across the OpenFlow bridge, which shows the effect of rule changes during the demo.
#[derive(Debug)]
pub struct Echoes {
    child: Child,
    answers: Arc<AtomicU64>,
    /// Number of echo replies at the last output. Each output shows only the replies since the
    /// previous output.
    told: AtomicU64,
}

impl Echoes {
    /// Starts the ping, which runs until this value is dropped.
    ///
    /// # Errors
    /// The program ping cannot be started.
    pub fn start(lab: &Lab) -> Result<Echoes, Failure> {
        let mut command = Lab::command(&lab.namespace(HOSTS), "ping");
        command.args(["-n", "-i", "0.2", &Lab::address(RULED)]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| Failure::new("ping", error, "run `make setup`"))?;
        let answers = Arc::new(AtomicU64::new(0));
        let (seen, output) = (Arc::clone(&answers), child.stdout.take());
        std::thread::spawn(move || {
            let Some(output) = output else { return };
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if line.contains(" bytes from ") {
                    seen.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Ok(Echoes { child, answers, told: AtomicU64::new(0) })
    }
}

impl std::fmt::Display for Echoes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let answers = self.answers.load(Ordering::Relaxed);
        match answers - self.told.swap(answers, Ordering::Relaxed) {
            0 => f.write_str("no answers"),
            more => write!(f, "{more} answers"),
        }
    }
}

impl Drop for Echoes {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// TCP traffic (iperf3) that runs as long as the demo.
#[derive(Debug, Default)]
pub struct Tcp {
    stop: AtomicBool,
    over: AtomicBool,
    /// Rate of the TCP traffic in kbit/s. During a run of iperf3, this is the rate of the last interval. After the run,
    /// this is the rate of the whole run.
    rate: AtomicU64,
    client: Mutex<Option<Child>>,
}

impl Tcp {
    /// Runs iperf3 until `deadline`. Without a deadline, runs of `slice` seconds are repeated until [`Tcp::stop`] is
    /// called.
    ///
    /// # Errors
    /// The program iperf3 cannot be started, or no data was received.
    pub fn run(
        &self,
        ends: &(String, String, String),
        deadline: Option<Instant>,
        slice: u64,
    ) -> Result<(), Failure> {
        let done = self.repeat(ends, deadline, slice);
        self.over.store(true, Ordering::Relaxed);
        done
    }

    fn repeat(
        &self,
        ends: &(String, String, String),
        deadline: Option<Instant>,
        slice: u64,
    ) -> Result<(), Failure> {
        while !self.stop.load(Ordering::Relaxed) {
            let seconds = match deadline {
                // The last second is left for the report and the clean-up.
                Some(deadline) => {
                    deadline.saturating_duration_since(Instant::now()).as_secs().saturating_sub(1).max(1)
                }
                None => slice,
            };
            self.once(ends, seconds)?;
            if deadline.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn once(
        &self,
        (client, server, address): &(String, String, String),
        seconds: u64,
    ) -> Result<(), Failure> {
        let missing = |error: std::io::Error| Failure::new("iperf3", error, "run `make setup`");
        let mut listener =
            quiet(Lab::command(server, "iperf3").args(["-s", "-1"])).spawn().map_err(missing)?;
        let listening = wait_listening(server);
        let mut command = Lab::command(client, "iperf3");
        command.args(["-c", address, "-t", &seconds.to_string(), "-i", "1", "-f", "k", "--forceflush"]);
        command.args(["--connect-timeout", "3000"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let result = if listening { command.spawn().map_err(missing) } else { Err(not_listening()) };
        let finished = result.and_then(|child| self.follow(child));
        let _ = listener.kill();
        let _ = listener.wait();
        finished
    }

    /// Reads the rates from the output of the iperf3 client while it runs.
    fn follow(&self, mut child: Child) -> Result<(), Failure> {
        let output = child.stdout.take();
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        if let Some(output) = output {
            for line in std::io::BufRead::lines(std::io::BufReader::new(output)).map_while(Result::ok) {
                if let Some(rate) = rate(&line) {
                    self.rate.store(rate, Ordering::Relaxed);
                }
            }
        }
        let child = self.client.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(child) = child else { return Ok(()) };
        let ended = child.wait_with_output().map_err(|error| Failure::new("iperf3", error, ""))?;
        if ended.status.success() || self.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
        Err(Failure::new("iperf3", said, "look at `trivium show drops` and the daemon's log"))
    }

    /// Returns the last measured rate of the TCP traffic in Gbit/s.
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn gbps(&self) -> f64 {
        self.rate.load(Ordering::Relaxed) as f64 / 1e6
    }

    /// Returns whether the TCP traffic has ended.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Stops the TCP traffic before its deadline.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(child) = self.client.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            // nsenter has replaced itself, so this process is iperf3.
            let _ = child.kill();
        }
    }
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdout(Stdio::null()).stderr(Stdio::null())
}

fn not_listening() -> Failure {
    Failure::new("iperf3", "its server does not listen", "run `make setup`")
}

/// Waits until the iperf3 server listens on port 5201. Returns `false` if the server does not listen in time. The
/// function searches /proc/net/tcp of the server's namespace for a socket in state 0A (TCP_LISTEN).
fn wait_listening(namespace: &str) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        let tables = Lab::command(namespace, "cat").args(["/proc/net/tcp", "/proc/net/tcp6"]).output();
        let text =
            tables.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let listens = |line: &str| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|local| local.ends_with(":1451")) && words.nth(1) == Some("0A")
        };
        if text.lines().any(listens) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Returns the rate in kbit/s from a line of iperf3, such as `[  5]   0.00-1.00   sec   300 MBytes  2516582
/// Kbits/sec    0   1.2 MBytes`. Returns `None` for the sender's summary, because only received data counts,
/// and for lines without a rate.
fn rate(line: &str) -> Option<u64> {
    if line.contains("sender") {
        return None;
    }
    let mut before = "";
    for word in line.split_whitespace() {
        if word == "Kbits/sec" {
            return before.split('.').next()?.parse().ok();
        }
        before = word;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iperf3_and_ping_are_understood() {
        assert_eq!(
            rate("[  5]   0.00-1.00   sec   300 MBytes  2516582 Kbits/sec    0   1.2 MBytes"),
            Some(2_516_582)
        );
        assert_eq!(
            rate("[  5]   0.00-5.00   sec  1.5 GBytes  2516582 Kbits/sec    0             sender"),
            None
        );
        assert_eq!(
            rate("[  5]   0.00-5.00   sec  1.5 GBytes  2500000 Kbits/sec                  receiver"),
            Some(2_500_000)
        );
        assert_eq!(rate("Connecting to host 10.99.0.2, port 5201"), None);
        assert_eq!(answered("5 packets transmitted, 4 received, 20% packet loss, time 204ms"), 4);
        assert_eq!(answered("ping: sendmsg: Network is unreachable"), 0);
    }

    #[test]
    fn loss_without_packets_is_total() {
        assert!((Pings::default().loss() - 1.0).abs() < 1e-9);
        assert!(Pings { sent: 8, received: 8, leaked: 0 }.loss().abs() < 1e-9);
    }
}
