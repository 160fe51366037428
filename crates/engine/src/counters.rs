//! Counters of the workers for each port, drop reason and processing stage. Each worker writes its own
//! counters with plain stores, and readers sum the counters of all workers. The index of a port never
//! changes, so its counters survive changes of the port's configuration.
//!
//! No packet is lost from the counters. The sums over all ports satisfy: received + copies = transmitted + punted +
//! dropped + in flight.

use std::sync::Arc;

use packet::{DropReason, PortId};
use sync::counter::Counter;

/// Maximum number of ports in one process.
pub const MAX_PORTS: usize = 1024;

/// Counters of one port that one worker writes.
#[derive(Debug)]
#[repr(align(64))]
pub struct PortCounters {
    /// Number of packets received on the port.
    pub rx_packets: Counter,
    /// Number of bytes received on the port.
    pub rx_bytes: Counter,
    /// Number of packets put into the port's transmit queue.
    pub tx_packets: Counter,
    /// Number of bytes of the packets that were put into the port's transmit queue.
    pub tx_bytes: Counter,
    /// Number of packets that were put into the port's transmit queue but that the queue or the kernel did not
    /// transmit. Each of these packets is also counted as dropped.
    pub tx_refused: Counter,
    /// Number of additional packets made from packets that arrived on this port (flood copies and TSO segments).
    pub copies: Counter,
    /// Number of copies of packets of this port (IGMP, MLD, PIM) that were sent to the snooper's control thread.
    pub punted: Counter,
    /// Number of dropped packets for each drop reason. The counters of a port count packets that arrived on the
    /// port, and packets that were put into the port's transmit queue but not transmitted ([`Self::refuse_n`]).
    pub drops: [Counter; DropReason::COUNT],
}

impl Default for PortCounters {
    fn default() -> Self {
        let zero = Counter::default;
        Self {
            rx_packets: zero(),
            rx_bytes: zero(),
            tx_packets: zero(),
            tx_bytes: zero(),
            tx_refused: zero(),
            copies: zero(),
            punted: zero(),
            drops: std::array::from_fn(|_| zero()),
        }
    }
}

impl PortCounters {
    /// Counts `n` packets of this port as dropped for `reason`.
    #[inline]
    pub fn drop_n(&self, reason: DropReason, n: u64) {
        self.drops[reason as usize].add(n);
    }

    /// Increases these counters by `before`, the totals that a predecessor process has counted for this port. Only the
    /// thread that writes these counters may call this function.
    pub(crate) fn add(&self, before: &PortTotals) {
        self.rx_packets.add(before.rx_packets);
        self.rx_bytes.add(before.rx_bytes);
        self.tx_packets.add(before.tx_packets);
        self.tx_bytes.add(before.tx_bytes);
        self.copies.add(before.copies);
        self.punted.add(before.punted);
        for (counter, before) in self.drops.iter().zip(&before.drops) {
            counter.add(*before);
        }
    }

    /// Counts `n` packets as refused by the port's transmit queue or by the kernel, and also as dropped for `reason`.
    pub fn refuse_n(&self, reason: DropReason, n: u64) {
        self.tx_refused.add(n);
        self.drop_n(reason, n);
    }
}

/// A stage of the packet path. Each stage has counters of its packets and of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Stage {
    /// Reception: the stage takes packets from a queue.
    Receive,
    /// Extraction of the flow keys from the packet headers.
    Parse,
    /// Software RSS, which hands packets to other workers.
    SoftwareRss,
    /// Ingress stage of the port: its packet filter, or code of a program that embeds the engine.
    Own,
    /// Forwarding decision by the port's function, for example the lookup of a bridge.
    Function,
    /// Execution of the forwarding decisions: the stage rewrites and copies packets, and sorts packets by output port.
    Execute,
    /// Transmission: the stage puts packets into transmit queues and makes the kernel process the queues.
    Transmit,
}

impl Stage {
    /// Number of stages of the packet path.
    pub const COUNT: usize = 7;
    /// All stages in the order in which packets pass them.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Receive,
        Self::Parse,
        Self::SoftwareRss,
        Self::Own,
        Self::Function,
        Self::Execute,
        Self::Transmit,
    ];

    /// Returns the name under which statistics show the stage.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Parse => "parse",
            Self::SoftwareRss => "software-rss",
            Self::Own => "ingress",
            Self::Function => "function",
            Self::Execute => "execute",
            Self::Transmit => "transmit",
        }
    }
}

/// Packet count and processing time of one stage of the packet path.
#[derive(Debug, Default)]
pub struct StageCounters {
    /// Number of packets that the stage has processed.
    pub packets: Counter,
    /// Time that the stage has spent, in TSC cycles.
    pub cycles: Counter,
}

/// Counters that one worker writes.
#[derive(Debug)]
pub struct WorkerCounters {
    ports: Box<[PortCounters]>,
    /// Counters of each stage of the packet path, indexed by `Stage`.
    pub stages: [StageCounters; Stage::COUNT],
    /// Number of bursts with at least one packet that the worker has processed.
    pub bursts: Counter,
    /// Number of packets in the bursts that the worker has processed.
    pub packets: Counter,
    /// Time that the worker has spent in rounds with work, in TSC cycles.
    pub busy_cycles: Counter,
    /// Time that the worker has spent in rounds without work, in TSC cycles.
    pub idle_cycles: Counter,
    /// Time that the worker has slept, in TSC cycles.
    pub asleep_cycles: Counter,
    /// Number of times that the worker went to sleep.
    pub sleeps: Counter,
    /// Number of packets that this worker has taken from rings of other workers, to process or to transmit them.
    pub taken_over: Counter,
}

impl Default for WorkerCounters {
    fn default() -> Self {
        Self {
            ports: (0..MAX_PORTS).map(|_| PortCounters::default()).collect(),
            stages: Default::default(),
            bursts: Counter::default(),
            packets: Counter::default(),
            busy_cycles: Counter::default(),
            idle_cycles: Counter::default(),
            asleep_cycles: Counter::default(),
            sleeps: Counter::default(),
            taken_over: Counter::default(),
        }
    }
}

impl WorkerCounters {
    /// Returns the counters that this worker writes for a port.
    #[inline]
    #[must_use]
    pub fn port(&self, port: PortId) -> &PortCounters {
        &self.ports[port.index() % MAX_PORTS]
    }
}

/// Counters of one port, summed over all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortTotals {
    /// Number of packets received on the port.
    pub rx_packets: u64,
    /// Number of bytes received on the port.
    pub rx_bytes: u64,
    /// Number of packets transmitted through the port, without packets that the queue or the kernel refused.
    pub tx_packets: u64,
    /// Number of bytes of the packets that were put into the port's transmit queue, including refused packets.
    pub tx_bytes: u64,
    /// Number of flood copies and TSO segments made from packets that arrived on the port.
    pub copies: u64,
    /// Number of copies of the port's packets that were sent to the snooper's control thread.
    pub punted: u64,
    /// Number of the port's dropped packets for each drop reason, in the order of [`DropReason::ALL`].
    pub drops: Vec<u64>,
}

impl PortTotals {
    /// Sums the counters of a port over `workers`.
    #[must_use]
    pub fn sum<'a>(workers: impl IntoIterator<Item = &'a Arc<WorkerCounters>>, port: PortId) -> Self {
        let mut t = Self { drops: vec![0; DropReason::COUNT], ..Self::default() };
        for c in workers.into_iter().map(|w| w.port(port)) {
            t.rx_packets += c.rx_packets.get();
            t.rx_bytes += c.rx_bytes.get();
            // The refused packets are read first, so that the difference is too small for a moment but never
            // negative.
            let refused = c.tx_refused.get();
            t.tx_packets += c.tx_packets.get().saturating_sub(refused);
            t.tx_bytes += c.tx_bytes.get();
            t.copies += c.copies.get();
            t.punted += c.punted.get();
            for (sum, one) in t.drops.iter_mut().zip(&c.drops) {
                *sum += one.get();
            }
        }
        t
    }

    /// Returns the port's total number of dropped packets, summed over all drop reasons.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.drops.iter().sum()
    }
}
