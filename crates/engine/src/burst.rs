//! The packets that a worker has in hand, and what the stages found out about them: parallel arrays, one place a packet.
//!
//! Invariant: after a stage, `keys`, `layers` and `decisions` (or `routes`) are valid for `0..packets.len()` as far as the stages
//! before have filled them; a stage that takes packets out keeps the others' order (packets of a flow never overtake each other).

use packet::{FlowKey, Layers};
use port::{BURST, Batch, Packet};
use router::Decision as Route;
use switch::Decision;

/// See the module documentation.
pub struct Burst {
    /// The packets. Boxed, so that a burst that leaves whole by one port changes hands by its pointer.
    pub packets: Box<Batch>,
    /// Their flow keys.
    pub keys: Box<[FlowKey; BURST]>,
    /// Where their headers stand.
    pub layers: Box<[Layers; BURST]>,
    /// What the switch decided.
    pub decisions: Box<[Decision; BURST]>,
    /// What the router decided.
    pub routes: Box<[Route; BURST]>,
    /// What the router's quick reading made of their headers.
    pub heads: Box<[Head; BURST]>,
    /// The numbers of the router's interfaces that they came in by. Only where a router has VLANs; else all came in by the port's.
    pub arrivals: Box<[u16; BURST]>,
}

/// What is known of a packet that is to be routed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Head {
    /// Plain IPv4 (`router::plain`): its key has not been made.
    Plain4,
    /// Plain IPv6.
    Plain6,
    /// Its key has been made.
    #[default]
    Read,
}

impl Default for Burst {
    fn default() -> Self {
        Self {
            packets: Box::default(),
            keys: Box::new([FlowKey::default(); BURST]),
            layers: Box::new([Layers::default(); BURST]),
            decisions: Box::new([Decision::default(); BURST]),
            routes: Box::new([Route::default(); BURST]),
            heads: Box::new([Head::default(); BURST]),
            arrivals: Box::new([0; BURST]),
        }
    }
}

impl Burst {
    /// Number of packets.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether there is none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Moves the packet at `from`, with its key, to `to < from`; what stood at `to` goes to `from`. Stages that sort packets out use it:
    /// those kept move to the front in order, the others collect behind them.
    #[inline]
    pub fn swap(&mut self, to: usize, from: usize) {
        if to != from {
            self.packets.swap(to, from);
            self.keys.swap(to, from);
            self.layers.swap(to, from);
            self.decisions.swap(to, from);
        }
    }

    /// Takes out the packets from `kept` on, each with its decision.
    pub fn sorted_out(&mut self, kept: usize, mut each: impl FnMut(Packet, Decision)) {
        for (packet, decision) in self.packets.drain(kept..).zip(&self.decisions[kept..]) {
            each(packet, *decision);
        }
    }
}
