//! What a worker counts: per port, per reason, per stage. Each worker writes its own block with plain stores; readers add the
//! blocks up. Ids are stable: a port's counters outlive its tables.
//!
//! Packets are conserved: over all ports, received + copies = transmitted + punted + dropped + in flight.

use std::sync::Arc;

use packet::{DropReason, PortId};
use sync::counter::Counter;

/// Most ports of one process.
pub const MAX_PORTS: usize = 1024;

/// One worker's counters of one port.
#[derive(Debug)]
#[repr(align(64))]
pub struct PortCounters {
    /// Packets received.
    pub rx_packets: Counter,
    /// Bytes received.
    pub rx_bytes: Counter,
    /// Packets given to the port.
    pub tx_packets: Counter,
    /// Bytes given to the port.
    pub tx_bytes: Counter,
    /// Packets among those given to the port that did not leave after all; each is among the drops.
    pub tx_refused: Counter,
    /// Further packets made of one that this port received: flood copies, and segments.
    pub copies: Counter,
    /// Copies that went to a control thread (IGMP, MLD).
    pub punted: Counter,
    /// Packets dropped that have arrived by this port, by reason. Those that a queue or the kernel refused after they were given to this
    /// port ([`Self::refuse_n`]) count here, too.
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
    /// Counts `n` drops.
    #[inline]
    pub fn drop_n(&self, reason: DropReason, n: u64) {
        self.drops[reason as usize].add(n);
    }

    /// Adds what another engine has counted of the port. Only the writer of these counters may call this.
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

    /// Counts `n` packets that were given to the port and did not leave after all.
    pub fn refuse_n(&self, reason: DropReason, n: u64) {
        self.tx_refused.add(n);
        self.drop_n(reason, n);
    }
}

/// The stages whose time is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Stage {
    /// Taking packets off a queue.
    Receive,
    /// Reading headers.
    Parse,
    /// Software RSS: handing packets to other workers.
    Spread,
    /// A port's own stage.
    Own,
    /// The room's decision.
    Room,
    /// Rewriting, copying, sorting by output.
    Execute,
    /// Giving packets to queues, and kicks.
    Transmit,
}

impl Stage {
    /// Number of stages.
    pub const COUNT: usize = 7;
    /// All of them, in the order of the packet's path.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Receive, Self::Parse, Self::Spread, Self::Own, Self::Room, Self::Execute, Self::Transmit];

    /// Its name as shown.
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

/// Time and packets of one stage.
#[derive(Debug, Default)]
pub struct StageCounters {
    /// Packets that went through.
    pub packets: Counter,
    /// TSC cycles spent.
    pub cycles: Counter,
}

/// One worker's counters.
#[derive(Debug)]
pub struct WorkerCounters {
    ports: Box<[PortCounters]>,
    /// By stage.
    pub stages: [StageCounters; Stage::COUNT],
    /// Bursts with at least one packet.
    pub bursts: Counter,
    /// Packets in them.
    pub packets: Counter,
    /// TSC cycles spent in rounds that found work.
    pub busy_cycles: Counter,
    /// TSC cycles spent polling in vain.
    pub idle_cycles: Counter,
    /// TSC cycles asleep.
    pub asleep_cycles: Counter,
    /// Times it went to sleep.
    pub sleeps: Counter,
    /// Packets that other workers have handed to it.
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
    /// The counters of a port.
    #[inline]
    #[must_use]
    pub fn port(&self, port: PortId) -> &PortCounters {
        &self.ports[port.index() % MAX_PORTS]
    }
}

/// A port's counters, summed over the workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortTotals {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Copies and segments made.
    pub copies: u64,
    /// Copies given to control.
    pub punted: u64,
    /// Drops by reason, in the order of [`DropReason::ALL`].
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
            // The refused first: a count that is read late is too small for a moment, never below zero.
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

    /// Drops of all reasons.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.drops.iter().sum()
    }
}
