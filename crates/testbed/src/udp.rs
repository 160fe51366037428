//! UDP with sequence numbers: the receiver knows every packet that was lost, doubled or overtaken, and the longest
//! silence. One flow per socket pair, so that "overtaken" means a broken promise (no reordering within a flow).

use std::io::{self, IoSlice};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg, sockopt};

use crate::{Host, LabError, Namespace};

/// Bytes of a packet's payload: a sequence number, then filling.
const PAYLOAD: usize = 18;
/// Packets per system call; small enough not to be a burst of its own at 100,000 packets/s.
const BATCH: usize = 32;
const PORT: u16 = 7007;

/// What became of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowReport {
    /// Packets that the sender's kernel accepted.
    pub sent: u64,
    /// Distinct packets received.
    pub received: u64,
    /// Packets received after one that was sent later.
    pub overtaken: u64,
    /// Packets received more than once.
    pub doubled: u64,
    /// The longest time between two packets received one after the other.
    pub longest_gap: Duration,
}

impl FlowReport {
    /// Packets that never came.
    pub fn lost(&self) -> u64 {
        self.sent - self.received
    }
}

/// A flow that runs until it is stopped.
#[derive(Debug)]
pub struct UdpFlow {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<io::Result<u64>>,
    receiver: UdpReceiver,
}

impl UdpFlow {
    /// Sends from `from` to `to` at `rate` packets a second until [`UdpFlow::stop`].
    ///
    /// # Errors
    /// If a socket cannot be opened.
    pub fn start(from: &Host, to: &Host, rate: u64) -> Result<Self, LabError> {
        Self::start_on(from, to, rate, PORT)
    }

    /// As [`UdpFlow::start`], to a port of the caller's choice: several flows between two hosts.
    ///
    /// # Errors
    /// If a socket cannot be opened.
    pub fn start_on(from: &Host, to: &Host, rate: u64, port: u16) -> Result<Self, LabError> {
        Self::between((from, from.ip()), (to, to.ip()), rate, port)
    }

    /// As [`UdpFlow::start_on`], between two namespaces and an address of each: their devices may be of any kind.
    ///
    /// # Errors
    /// If a socket cannot be opened.
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
        let sender = std::thread::spawn(move || send(&socket, rate, &stopping));
        Ok(UdpFlow { stop, sender, receiver })
    }

    /// Distinct packets received so far.
    pub fn received(&self) -> u64 {
        self.receiver.received()
    }

    /// Waits until `more` further packets have arrived: traffic flows.
    ///
    /// # Errors
    /// After `timeout`.
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

    /// Stops the sender, lets what is under way arrive, and tells what became of the flow.
    ///
    /// # Errors
    /// If the sender failed.
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

/// The receiving half of a flow.
#[derive(Debug)]
pub struct UdpReceiver {
    received: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<FlowReport>,
}

impl UdpReceiver {
    /// Listens on an address of a namespace.
    ///
    /// # Errors
    /// If the port is taken.
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
        let (count, stopping) = (Arc::clone(&received), Arc::clone(&stop));
        let thread = std::thread::spawn(move || receive(&socket, &count, &stopping));
        Ok(UdpReceiver { received, stop, thread })
    }

    /// Distinct packets received so far.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Waits for silence and gives the receiver's half of the report.
    pub fn stop(self) -> FlowReport {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn send(socket: &UdpSocket, rate: u64, stop: &AtomicBool) -> io::Result<u64> {
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
        for (number, payload) in (sent..).zip(&mut payloads[..batch]) {
            payload[..8].copy_from_slice(&number.to_be_bytes());
        }
        sent += send_batch(socket, &payloads[..batch])?;
    }
    Ok(sent)
}

/// Sends a batch; what the kernel did not take is not counted and gets its number again.
fn send_batch(socket: &UdpSocket, payloads: &[[u8; PAYLOAD]]) -> io::Result<u64> {
    let slices: Vec<[IoSlice<'_>; 1]> = payloads.iter().map(|payload| [IoSlice::new(payload)]).collect();
    let mut controls: Vec<_> = payloads.iter().map(|_| SendAncillaryBuffer::default()).collect();
    let mut messages: Vec<_> =
        slices.iter().zip(&mut controls).map(|(slice, control)| MMsgHdr::new(slice, control)).collect();
    match sendmmsg(socket.as_fd(), &mut messages, SendFlags::empty()) {
        Ok(count) => Ok(u64::try_from(count).unwrap_or(0)),
        // The device is gone or down for a while: the flow goes on when it is back.
        Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::NETUNREACH | rustix::io::Errno::NETDOWN) => {
            std::thread::sleep(Duration::from_millis(1));
            Ok(0)
        }
        // The address went with its device.
        Err(rustix::io::Errno::INVAL) => {
            std::thread::sleep(Duration::from_millis(1));
            Ok(0)
        }
        // An echo of an ICMP error; nothing was sent, and the next call works.
        Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::HOSTUNREACH) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

fn receive(socket: &UdpSocket, count: &AtomicU64, stop: &AtomicBool) -> FlowReport {
    let mut seen = Seen::default();
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
                let mut number = [0_u8; 8];
                number.copy_from_slice(&buffer[..8]);
                seen.note(u64::from_be_bytes(number), &mut report);
                count.store(report.received, Ordering::Relaxed);
            }
            Ok(_) => {}
            // Silence for one read time-out after the stop: nothing is under way any more.
            Err(_) if stop.load(Ordering::Relaxed) => return report,
            Err(_) => {}
        }
    }
}

/// Which sequence numbers have come: one bit each.
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
    fn loss_doubles_and_overtaking_are_told_apart() {
        let (mut seen, mut report) = (Seen::default(), FlowReport { sent: 6, ..FlowReport::default() });
        for number in [0, 1, 3, 2, 3, 5] {
            seen.note(number, &mut report);
        }
        assert_eq!((report.received, report.overtaken, report.doubled, report.lost()), (5, 1, 1, 1));
    }
}
