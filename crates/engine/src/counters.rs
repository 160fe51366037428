//! Counters of the workers, per port, per drop reason and per stage. Each worker writes its own block with
//! plain stores, and readers add the blocks. Port numbers are stable, so a port's counters survive changes of
//! the port's configuration.
//!
//! Packets are conserved. Over all ports, received + copies = transmitted + punted + dropped + in flight.

use std::sync::Arc;

use packet::{DropReason, PortId};
use sync::counter::Counter;

/// Maximum number of ports of one process.
pub const MAX_PORTS: usize = 1024;

/// Counters of one port, written by one worker.
#[derive(Debug)]
#[repr(align(64))]
pub struct PortCounters {
    /// Number of packets received.
    pub rx_packets: Counter,
    /// Number of bytes received.
    pub rx_bytes: Counter,
    /// Number of packets given to the port's queue.
    pub tx_packets: Counter,
    /// Number of bytes given to the port's queue.
    pub tx_bytes: Counter,
    /// Number of packets that were given to the port's queue but did not leave. Each of these packets is also
    /// counted as dropped.
    pub tx_refused: Counter,
    /// Number of additional packets made from packets that this port received: flood copies and segments.
    pub copies: Counter,
    /// Number of copies sent to a control thread (IGMP, MLD).
    pub punted: Counter,
    /// Number of dropped packets that arrived on this port, by reason. Packets that a queue or the kernel
    /// refused after they were given to this port ([`Self::refuse_n`]) are included.
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
    /// Counts `n` dropped packets.
    #[inline]
    pub fn drop_n(&self, reason: DropReason, n: u64) {
        self.drops[reason as usize].add(n);
    }

    /// Adds another engine's counters of the port. Only the writer of these counters may call this function.
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

    /// Counts `n` packets that were given to the port's queue but did not leave.
    pub fn refuse_n(&self, reason: DropReason, n: u64) {
        self.tx_refused.add(n);
        self.drop_n(reason, n);
    }
}

/// A stage of the packet path whose time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Stage {
    /// Receives packets from a queue.
    Receive,
    /// Parses headers.
    Parse,
    /// Software RSS: hands packets to other workers.
    Spread,
    /// Runs the port's ingress stage.
    Own,
    /// Runs the port's function, for example the bridge lookup.
    Room,
    /// Rewrites and copies packets, and sorts packets by output port.
    Execute,
    /// Gives packets to queues and kicks the queues.
    Transmit,
}

impl Stage {
    /// Number of stages.
    pub const COUNT: usize = 7;
    /// All stages, in the order of the packet path.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Receive, Self::Parse, Self::Spread, Self::Own, Self::Room, Self::Execute, Self::Transmit];

    /// Returns the stage's name for display.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Parse => "parse",
            Self::Spread => "spread",
            Self::Own => "own",
            Self::Room => "room",
            Self::Execute => "execute",
            Self::Transmit => "transmit",
        }
    }
}

/// Packets and time of one stage.
#[derive(Debug, Default)]
pub struct StageCounters {
    /// Number of packets that passed the stage.
    pub packets: Counter,
    /// TSC cycles that the stage has spent.
    pub cycles: Counter,
}

/// Counters of one worker.
#[derive(Debug)]
pub struct WorkerCounters {
    ports: Box<[PortCounters]>,
    /// Counters of each stage.
    pub stages: [StageCounters; Stage::COUNT],
    /// Number of bursts with at least one packet.
    pub bursts: Counter,
    /// Number of packets in these bursts.
    pub packets: Counter,
    /// TSC cycles spent in rounds with work.
    pub busy_cycles: Counter,
    /// TSC cycles spent in rounds without work.
    pub idle_cycles: Counter,
    /// TSC cycles spent asleep.
    pub asleep_cycles: Counter,
    /// Number of times that the worker went to sleep.
    pub sleeps: Counter,
    /// Number of packets that other workers handed over to the worker.
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
    /// Returns the counters of a port.
    #[inline]
    #[must_use]
    pub fn port(&self, port: PortId) -> &PortCounters {
        &self.ports[port.index() % MAX_PORTS]
    }
}

/// Counters of one port, summed over the workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortTotals {
    /// Number of packets received.
    pub rx_packets: u64,
    /// Number of bytes received.
    pub rx_bytes: u64,
    /// Number of packets transmitted, without packets that the kernel refused.
    pub tx_packets: u64,
    /// Number of bytes given to the port's queue.
    pub tx_bytes: u64,
    /// Number of flood copies and segments made.
    pub copies: u64,
    /// Number of copies sent to a control thread.
    pub punted: u64,
    /// Number of dropped packets by reason, in the order of [`DropReason::ALL`].
    pub drops: Vec<u64>,
}

impl PortTotals {
    /// Sums a port's counters over `workers`.
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

    /// Returns the number of dropped packets of all reasons.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.drops.iter().sum()
    }
}
