//! Records of the megaflows in the slow path. There may be hundreds of thousands of records, so a record is
//! compact. A record stores only those words of key and mask in which the mask has any bit set. Megaflows
//! with equal actions share one copy of the actions.

use std::sync::Arc;

use lookup::FlowRef;
use packet::PortId;
use switch::flow::{Flow, Pipeline, Recirculation};

use super::hook_state::Part;
use crate::flows::{CachedActions, FlowBridge, Live, UpcallPorts};

/// The slow path's record of an installed megaflow.
pub(super) struct Record {
    pub worker: usize,
    pub at: Option<FlowRef>,
    /// Position in the list of the bridge's megaflow records.
    pub place: usize,
    /// Hash of the fields that identify the megaflow: worker, bridge, port, flow key and mask.
    pub name: u64,
    /// Hash of the megaflow's mask.
    pub mask: u64,
    pub bridge: Arc<FlowBridge>,
    pub ports: UpcallPorts,
    /// Port of the bridge on which the packet arrived in the bridge, also after a recirculation.
    pub arrival: PortId,
    /// Recirculation behind which the megaflow's packets are looked up.
    pub recirculation: Option<Arc<Recirculation>>,
    pub in_port: u32,
    /// Compact form of the megaflow's flow key and mask, without the port.
    pub bits: Bits,
    pub actions: Arc<CachedActions>,
    pub live: Arc<Live>,
    pub seen: (u64, u64),
    pub version: u64,
    pub created_ns: u64,
    /// Whether the removal of the megaflow from the worker's cache has begun.
    pub leaving: bool,
    /// State of the megaflow in the XDP hook: statistics slot and counts.
    pub hook: Part,
}

impl Record {
    /// Returns whether both records describe the same megaflow (equal worker, bridge, port, flow key and mask).
    pub fn is_same(&self, other: &Record) -> bool {
        self.name == other.name
            && self.worker == other.worker
            && self.ports.port == other.ports.port
            && self.bridge.tables.number() == other.bridge.tables.number()
            && self.bits == other.bits
    }
}

/// Compact form of a flow key and its mask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Bits {
    /// Bitmap of the 64-bit words in which the mask has any bit set.
    present: u64,
    /// Pairs of a mask word and a masked flow key word, one pair for each bit that is set in `present`.
    words: Box<[u64]>,
}

impl Bits {
    pub fn new(flow: &Flow, mask: &Flow) -> Bits {
        let present = (0..).zip(mask.0).fold(0, |bits, (at, word)| bits | u64::from(word != 0) << at);
        let words = flow.0.iter().zip(mask.0).filter(|(_, mask)| *mask != 0);
        Bits { present, words: words.flat_map(|(flow, mask)| [mask, flow & mask]).collect() }
    }

    /// Returns the two parts of the compact form: the bitmap of the words in which the mask has any bit set,
    /// and the pairs of words.
    pub fn parts(&self) -> (u64, &[u64]) {
        (self.present, &self.words)
    }

    /// Creates a compact form from the two parts that [`Bits::parts`] returns. Returns `None` if the number of words
    /// does not match the bitmap.
    pub fn of_parts(present: u64, words: &[u64]) -> Option<Bits> {
        let fits = present >> Flow::ZERO.0.len() == 0 && words.len() == 2 * present.count_ones() as usize;
        fits.then(|| Bits { present, words: words.into() })
    }

    /// Returns the flow key and the mask in their complete form.
    pub fn both(&self) -> (Flow, Flow) {
        let (mut flow, mut mask, mut rest) = (Flow::ZERO, Flow::ZERO, self.present);
        for pair in self.words.as_chunks::<2>().0 {
            let at = rest.trailing_zeros() as usize;
            (mask.0[at], flow.0[at]) = (pair[0], pair[1]);
            rest &= rest - 1;
        }
        (flow, mask)
    }

    /// Returns all words of the compact form, from which the hash of a megaflow's identity is computed.
    pub fn words(&self) -> impl Iterator<Item = u64> {
        std::iter::once(self.present).chain(self.words.iter().copied())
    }
}

/// Packets and bytes that a megaflow has matched since its statistics were last read, with the time of the last packet.
pub(super) struct Counts {
    pub bridge: Arc<FlowBridge>,
    pub actions: Arc<CachedActions>,
    pub packets: u64,
    pub bytes: u64,
    pub used_ns: u64,
}

impl Counts {
    pub fn is_nothing(&self) -> bool {
        self.packets == 0 && self.bytes == 0
    }

    /// Adds the packets and bytes to the statistics of the megaflow's rules, tables and groups.
    pub fn credit(self, pipeline: &mut Pipeline) {
        if !self.is_nothing() {
            self.actions.credit(pipeline, self.packets, self.bytes, self.used_ns);
        }
    }
}
