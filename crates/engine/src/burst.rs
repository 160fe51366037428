//! A burst of packets and the results of the processing stages for each packet. The results are kept in
//! parallel arrays with one element per packet.
//!
//! Invariant: after each stage, the elements `0..packets.len()` of the arrays that this stage or an earlier
//! stage fills are valid. A stage that removes packets keeps the order of the remaining packets, so that
//! packets of a flow never overtake each other.

use packet::{FlowKey, Layers};
use port::{BURST, Batch, Packet};
use router::Decision as Route;
use switch::Decision;

/// Packets that a worker processes together, with the results of the processing stages for each
/// packet.
pub struct Burst {
    /// Packets of the burst. The batch is in a `Box`, so that all packets can move to an output port through an
    /// exchange of pointers.
    pub packets: Box<Batch>,
    /// Flow key of each packet, filled by the parse stage.
    pub keys: Box<[FlowKey; BURST]>,
    /// Offsets of the headers in each packet, filled by the parse stage.
    pub layers: Box<[Layers; BURST]>,
    /// Forwarding decision of the learning bridge for each packet (output port, flood or drop).
    pub decisions: Box<[Decision; BURST]>,
    /// Routing decision of the router for each packet.
    pub routes: Box<[Route; BURST]>,
    /// Result of the router's first header check for each packet. The result states whether the
    /// packet takes the router's fast path.
    pub heads: Box<[Head; BURST]>,
    /// Index of the router interface on which each packet arrived. The elements are valid only if the router has VLAN
    /// interfaces. Without VLAN interfaces, all packets arrived on the interface of the port.
    pub arrivals: Box<[u16; BURST]>,
}

/// Result of the router's first header check for a packet on a routed port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Head {
    /// The packet is an IPv4 packet for the router's fast path (`router::fast_path`), so its flow key was not
    /// extracted.
    Plain4,
    /// The packet is an IPv6 packet for the router's fast path (`router::fast_path`), so its flow key was not
    /// extracted.
    Plain6,
    /// The packet cannot take the fast path, so its flow key was extracted.
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
    /// Returns the number of packets in the burst.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns whether the burst contains no packets.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Exchanges the packets at indices `from` and `to` together with their keys, layers and decisions. Stages that
    /// remove packets use this function to move the remaining packets to the front in order, and the packets to remove
    /// to the end.
    #[inline]
    pub fn swap(&mut self, to: usize, from: usize) {
        if to != from {
            self.packets.swap(to, from);
            self.keys.swap(to, from);
            self.layers.swap(to, from);
            self.decisions.swap(to, from);
        }
    }

    /// Removes all packets with an index of `kept` or higher, and calls `each` with each removed
    /// packet and the packet's element of `decisions`.
    pub fn sorted_out(&mut self, kept: usize, mut each: impl FnMut(Packet, Decision)) {
        for (packet, decision) in self.packets.drain(kept..).zip(&self.decisions[kept..]) {
            each(packet, *decision);
        }
    }
}
