//! A burst of packets with the results of the stages, in parallel arrays with one element per packet.
//!
//! Invariant: after a stage, `keys`, `layers` and `decisions` (or `routes`) are valid for `0..packets.len()`,
//! as far as the stages so far fill them. A stage that removes packets keeps the order of the remaining
//! packets, so that packets of a flow never overtake each other.

use packet::{FlowKey, Layers};
use port::{BURST, Batch, Packet};
use router::Decision as Route;
use switch::Decision;

/// The packets that a worker processes together. See the module documentation.
pub struct Burst {
    /// The packets. The batch is boxed, so that a complete burst moves to an output port by its pointer.
    pub packets: Box<Batch>,
    /// Flow key of each packet.
    pub keys: Box<[FlowKey; BURST]>,
    /// Header offsets of each packet.
    pub layers: Box<[Layers; BURST]>,
    /// Bridge decision for each packet.
    pub decisions: Box<[Decision; BURST]>,
    /// Router decision for each packet.
    pub routes: Box<[Route; BURST]>,
    /// Result of the router's fast header check for each packet.
    pub heads: Box<[Head; BURST]>,
    /// Number of the router interface on which each packet arrived. Valid only if the router has VLAN
    /// interfaces. Otherwise all packets arrived on the port's interface.
    pub arrivals: Box<[u16; BURST]>,
}

/// Parse state of a packet to be routed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Head {
    /// Plain IPv4 packet (`router::plain`) without a flow key.
    Plain4,
    /// Plain IPv6 packet without a flow key.
    Plain6,
    /// Packet with a flow key.
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
    /// Returns the number of packets.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns whether the burst has no packets.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Exchanges the packets at `from` and `to`, with their keys, layers and decisions. Stages that sort
    /// packets out use this function: packets to keep move to the front in order, and the others collect
    /// behind them.
    #[inline]
    pub fn swap(&mut self, to: usize, from: usize) {
        if to != from {
            self.packets.swap(to, from);
            self.keys.swap(to, from);
            self.layers.swap(to, from);
            self.decisions.swap(to, from);
        }
    }

    /// Removes the packets from index `kept` on and passes each packet with its decision to `each`.
    pub fn sorted_out(&mut self, kept: usize, mut each: impl FnMut(Packet, Decision)) {
        for (packet, decision) in self.packets.drain(kept..).zip(&self.decisions[kept..]) {
            each(packet, *decision);
        }
    }
}
