//! UDP flows with sequence numbers. The receiver detects every packet that was lost, duplicated or reordered,
//! and measures the longest gap. Each flow has its own pair of sockets. Therefore a reordered packet means
//! that the order within a flow was violated.

use std::io::{self, IoSlice};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg, sockopt};

use crate::{Host, LabError, Namespace};

/// Length of a packet's payload in bytes. The payload consists of sequence number, send time ([`clock`]) and padding.
const PAYLOAD: usize = 18;
/// Maximum number of packets in one system call. The number is so small that the packets do not form a burst at 100,000
/// packets per second.
const BATCH: usize = 32;
const PORT: u16 = 7007;

/// Statistics of a UDP flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowReport {
    /// Number of packets that the sender passed to the kernel.
    pub sent: u64,
    /// Number of distinct packets that were received.
    pub received: u64,
    /// Number of packets that were received after a packet that was sent later.
    pub overtaken: u64,
    /// Number of duplicate packets that were received.
    pub doubled: u64,
    /// Longest time between two consecutive packets at the receiver.
    pub longest_gap: Duration,
    /// 99th percentile of the time from sending to reception of a packet. The error is at most 1/8 of the value.
    pub delay_p99: Duration,
}

impl FlowReport {
    /// Returns the number of packets that were sent but not received.
    pub fn lost(&self) -> u64 {
        self.sent - self.received
    }
}

/// A UDP flow between two sockets, which runs until it is stopped.
#[derive(Debug)]
pub struct UdpFlow {
    stop: Arc<AtomicBool>,
    begun: Arc<AtomicU64>,
    sender: JoinHandle<io::Result<u64>>,
    receiver: UdpReceiver,
}

impl UdpFlow {
    /// Starts a flow from the host `from` to the host `to` with `rate` packets per second. The flow runs
    /// until [`UdpFlow::stop`] is called.
    ///
    /// # Errors
    /// Returns an error if a socket cannot be opened.
    pub fn start(from: &Host, to: &Host, rate: u64) -> Result<Self, LabError> {
        Self::start_on(from, to, rate, PORT)
    }

    /// Like [`UdpFlow::start`], but with a given destination port. With different ports, several flows between two
    /// hosts can run at the same time.
    ///
    /// # Errors
    /// Returns an error if a socket cannot be opened.
    pub fn start_on(from: &Host, to: &Host, rate: u64, port: u16) -> Result<Self, LabError> {
        Self::between((from, from.ip()), (to, to.ip()), rate, port)
    }

    /// Like [`UdpFlow::start_on`], but between two namespaces, with one address in each. The devices that
    /// have the addresses may be of any kind.
    ///
    /// # Errors
    /// Returns an error if a socket cannot be opened.
    pub fn between(
        (from, source): (&Namespace, &str),
        (to, destination): (&Namespace, &str),
        rate: u64,
        port: u16,
    ) -> Result<Self, LabError> {
        let receiver = UdpReceiver::start(to, destination, port)?;
        let what = || format!("UDP socket from {source} to {destination}");
        let socket = from.inside(|| {
            let socket = UdpSocket::bind((source, 0)).map_err(|error| LabError::system(what(), error))?;
            socket.connect((destination, port)).map_err(|error| LabError::system(what(), error))?;
            sockopt::set_socket_send_buffer_size(socket.as_fd(), 1 << 20)
                .map_err(|error| LabError::system(what(), error))?;
            Ok(socket)
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let begun = Arc::new(AtomicU64::new(0));
        let numbers = Arc::clone(&begun);
        let sender = std::thread::spawn(move || send(&socket, rate, &numbers, &stopping));
        Ok(UdpFlow { stop, begun, sender, receiver })
    }

    /// Returns the number of distinct packets received so far.
    pub fn received(&self) -> u64 {
        self.receiver.received()
    }

    /// Returns a sequence number such that the packet with this number and all packets with higher numbers are sent
    /// after this call. Therefore the configuration at the time of the call applies to these packets.
    pub fn next_number(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Returns the highest sequence number received so far, plus one.
    pub fn received_below(&self) -> u64 {
        self.receiver.below.load(Ordering::Relaxed)
    }

    /// Waits until the sender has sent `more` additional packets, whether or not they arrive.
    ///
    /// # Errors
    /// Returns an error if `timeout` has elapsed.
    pub fn wait_until_sent(&self, more: u64, timeout: Duration) -> Result<(), LabError> {
        let target = self.next_number() + more;
        crate::eventually(&format!("{more} more packets are sent"), timeout, || {
            let left = target.saturating_sub(self.next_number());
            if left == 0 { Ok(()) } else { Err(format!("{left} are not yet")) }
        })
    }

    /// Waits until `more` additional packets have arrived.
    ///
    /// # Errors
    /// Returns an error if `timeout` has elapsed.
    pub fn wait_for(&self, more: u64, timeout: Duration) -> Result<(), LabError> {
        let target = self.received() + more;
        crate::eventually(&format!("{more} more packets"), timeout, || {
            let received = self.received();
            if received >= target {
                Ok(())
            } else {
                Err(format!("{} came", more - (target - received).min(more)))
            }
        })
    }

    /// Stops the sender, waits for packets in flight and returns the statistics of the flow.
    ///
    /// # Errors
    /// Returns an error if the sender failed.
    pub fn stop(self) -> Result<FlowReport, LabError> {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self
            .sender
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .map_err(|error| LabError::system("the UDP sender", error))?;
        Ok(FlowReport { sent, ..self.receiver.stop() })
    }
}

/// The receiver of a UDP flow.
#[derive(Debug)]
pub struct UdpReceiver {
    received: Arc<AtomicU64>,
    below: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<FlowReport>,
}

impl UdpReceiver {
    /// Starts a receiver on an address and a port in a namespace.
    ///
    /// # Errors
    /// Returns an error if the port is in use.
    pub fn start(namespace: &Namespace, address: &str, port: u16) -> Result<Self, LabError> {
        let what = || format!("UDP receiver on {address}:{port}");
        let socket = namespace.inside(|| {
            let socket = UdpSocket::bind((address, port)).map_err(|error| LabError::system(what(), error))?;
            socket
                .set_read_timeout(Some(Duration::from_millis(20)))
                .map_err(|error| LabError::system(what(), error))?;
            // A full receive buffer would look like loss on the path.
            sockopt::set_socket_recv_buffer_size_force(socket.as_fd(), 64 << 20)
                .map_err(|error| LabError::system(what(), error))?;
            Ok(socket)
        })?;
        let received = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let below = Arc::new(AtomicU64::new(0));
        let (count, highest, stopping) = (Arc::clone(&received), Arc::clone(&below), Arc::clone(&stop));
        let thread = std::thread::spawn(move || receive(&socket, &count, &highest, &stopping));
        Ok(UdpReceiver { received, below, stop, thread })
    }

    /// Returns the number of distinct packets received so far.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Stops the receiver when no packet has arrived for one read time-out (20 ms). Returns the statistics of the flow.
    /// Their value `sent` is 0, because only the sender knows the number of sent packets.
    pub fn stop(self) -> FlowReport {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Returns the number of nanoseconds since the first call of this function in the process.
fn clock() -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    u64::try_from(BEGIN.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Sends packets until `stop` is set. `begun` is set to the sequence number of the first packet that has not
/// yet been passed to a system call.
fn send(socket: &UdpSocket, rate: u64, begun: &AtomicU64, stop: &AtomicBool) -> io::Result<u64> {
    let started = Instant::now();
    let mut sent = 0_u64;
    let mut payloads = [[0_u8; PAYLOAD]; BATCH];
    while !stop.load(Ordering::Relaxed) {
        let due = u64::try_from(started.elapsed().as_nanos() * u128::from(rate) / 1_000_000_000)
            .unwrap_or(u64::MAX);
        let batch = usize::try_from(due.saturating_sub(sent)).map_or(BATCH, |due| due.min(BATCH));
        if batch == 0 {
            std::thread::sleep(Duration::from_micros(100));
            continue;
        }
        let now = clock().to_be_bytes();
        for (number, payload) in (sent..).zip(&mut payloads[..batch]) {
            payload[..8].copy_from_slice(&number.to_be_bytes());
            payload[8..16].copy_from_slice(&now);
        }
        // Packets that the kernel refused are sent again with their number, which is lower than `begun`.
        begun.fetch_max(sent + u64::try_from(batch).unwrap_or(0), Ordering::SeqCst);
        sent += send_batch(socket, &payloads[..batch])?;
    }
    Ok(sent)
}

/// Sends a batch of packets and returns the number of packets that the kernel accepted. The caller sends the other
/// packets again with the same sequence numbers.
fn send_batch(socket: &UdpSocket, payloads: &[[u8; PAYLOAD]]) -> io::Result<u64> {
    let slices: Vec<[IoSlice<'_>; 1]> = payloads.iter().map(|payload| [IoSlice::new(payload)]).collect();
    let mut controls: Vec<_> = payloads.iter().map(|_| SendAncillaryBuffer::default()).collect();
    let mut messages: Vec<_> =
        slices.iter().zip(&mut controls).map(|(slice, control)| MMsgHdr::new(slice, control)).collect();
    match sendmmsg(socket.as_fd(), &mut messages, SendFlags::empty()) {
        Ok(count) => Ok(u64::try_from(count).unwrap_or(0)),
        // The device is gone or down for a while. The flow continues when the device is back.
        Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::NETUNREACH | rustix::io::Errno::NETDOWN) => {
            std::thread::sleep(Duration::from_millis(1));
            Ok(0)
        }
        // The address was removed with its device.
        Err(rustix::io::Errno::INVAL) => {
            std::thread::sleep(Duration::from_millis(1));
            Ok(0)
        }
        // A pending ICMP error is reported. No packet was sent, and the next call works.
        Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::HOSTUNREACH) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

fn receive(socket: &UdpSocket, count: &AtomicU64, below: &AtomicU64, stop: &AtomicBool) -> FlowReport {
    let mut seen = Seen::default();
    let mut delays = Delays::default();
    let mut report = FlowReport::default();
    let mut last: Option<Instant> = None;
    let mut buffer = [0_u8; 64];
    loop {
        match socket.recv(&mut buffer) {
            Ok(length) if length >= 8 => {
                let now = Instant::now();
                if let Some(last) = last {
                    report.longest_gap = report.longest_gap.max(now - last);
                }
                last = Some(now);
                let number = |at: usize| {
                    let mut number = [0_u8; 8];
                    number.copy_from_slice(&buffer[at..at + 8]);
                    u64::from_be_bytes(number)
                };
                seen.note(number(0), &mut report);
                if length >= 16 {
                    delays.note(clock().saturating_sub(number(8)));
                }
                below.store(seen.highest.map_or(0, |highest| highest + 1), Ordering::Relaxed);
                count.store(report.received, Ordering::Relaxed);
            }
            Ok(_) => {}
            // No packet arrived for one read time-out after the stop, so no packet is in flight.
            Err(_) if stop.load(Ordering::Relaxed) => {
                return FlowReport { delay_p99: delays.below(99), ..report };
            }
            Err(_) => {}
        }
    }
}

/// Histogram of packet delays in nanoseconds, with eight classes for each power of two.
struct Delays([u64; 512]);

impl Default for Delays {
    fn default() -> Self {
        Delays([0; 512])
    }
}

impl Delays {
    fn note(&mut self, nanoseconds: u64) {
        let power = nanoseconds.max(8).ilog2();
        let eighth = nanoseconds.max(8) >> (power - 3) & 7;
        let class = usize::try_from(u64::from(power) * 8 + eighth).unwrap_or(0);
        self.0[class.min(511)] += 1;
    }

    /// Returns the upper bound of the histogram class that contains the given percentile.
    fn below(&self, percent: u64) -> Duration {
        let all: u64 = self.0.iter().sum();
        let mut count = 0;
        for (class, number) in (0_u64..).zip(&self.0) {
            count += number;
            if count * 100 >= all * percent {
                let (power, eighth) = (class / 8, class % 8);
                return Duration::from_nanos((9 + eighth) << power.saturating_sub(3).min(59));
            }
        }
        Duration::ZERO
    }
}

/// Set of received sequence numbers, stored as one bit each.
#[derive(Default)]
struct Seen {
    bits: Vec<u64>,
    highest: Option<u64>,
}

impl Seen {
    fn note(&mut self, number: u64, report: &mut FlowReport) {
        let Ok(word) = usize::try_from(number / 64) else { return };
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        let bit = 1 << (number % 64);
        if self.bits[word] & bit != 0 {
            report.doubled += 1;
            return;
        }
        self.bits[word] |= bit;
        report.received += 1;
        if self.highest.is_some_and(|highest| number < highest) {
            report.overtaken += 1;
        }
        self.highest = self.highest.max(Some(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_told_to_an_eighth() {
        let mut delays = Delays::default();
        (1..=1000).for_each(|n| delays.note(n * 1000));
        let p99 = delays.below(99).as_nanos();
        assert!((990_000..=990_000 * 9 / 8).contains(&p99), "{p99}");
        assert_eq!(Delays::default().below(99), Duration::from_nanos(9));
    }

    #[test]
    fn loss_doubles_and_overtaking_are_told_apart() {
        let (mut seen, mut report) = (Seen::default(), FlowReport { sent: 6, ..FlowReport::default() });
        for number in [0, 1, 3, 2, 3, 5] {
            seen.note(number, &mut report);
        }
        assert_eq!((report.received, report.overtaken, report.doubled, report.lost()), (5, 1, 1, 1));
    }
}
