//! What the decider knows of the flows that it has given out: little of each, for there are hundreds of thousands. Of a flow and its mask
//! only the words stand there that the mask has bits in; and flows of the same fate share it.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use lookup::FlowRef;
use packet::PortId;
use switch::flow::{Flow, Lesson, Pipeline, RuleRef, Translated};

use super::hook::Part;
use crate::flows::{Compiled, FlowBridge, Live, MeterLive};

/// A flow that a worker has.
pub(super) struct Record {
    pub worker: usize,
    pub at: Option<FlowRef>,
    /// The hash of what it is told apart by: worker, bridge, port, flow and mask.
    pub name: u64,
    /// The hash of its mask.
    pub mask: u64,
    pub bridge: Arc<FlowBridge>,
    pub port: PortId,
    pub in_port: u32,
    /// Without the port.
    pub bits: Bits,
    pub fate: Arc<Fate>,
    pub live: Arc<Live>,
    pub seen: (u64, u64),
    pub version: u64,
    pub created_ns: u64,
    /// It was told to go.
    pub leaving: bool,
    /// The driver hook's part in it.
    pub hook: Part,
}

impl Record {
    /// Whether it is the same flow of the same worker.
    pub fn is_same(&self, other: &Record) -> bool {
        self.name == other.name
            && self.worker == other.worker
            && self.port == other.port
            && self.bridge.tables.number() == other.bridge.tables.number()
            && self.bits == other.bits
    }
}

/// A flow under its mask, and the mask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Bits {
    /// A bit for each word that the mask has bits in.
    present: u64,
    /// Of each of them the mask, then the flow.
    words: Box<[u64]>,
}

impl Bits {
    pub fn new(flow: &Flow, mask: &Flow) -> Bits {
        let present = (0..).zip(mask.0).fold(0, |bits, (at, word)| bits | u64::from(word != 0) << at);
        let words = flow.0.iter().zip(mask.0).filter(|(_, mask)| *mask != 0);
        Bits { present, words: words.flat_map(|(flow, mask)| [mask, flow & mask]).collect() }
    }

    /// Its words as they stand here, and which ones they are.
    pub fn parts(&self) -> (u64, &[u64]) {
        (self.present, &self.words)
    }

    /// From what [`Bits::parts`] gave; `None`: nobody gave that.
    pub fn of_parts(present: u64, words: &[u64]) -> Option<Bits> {
        let fits = present >> Flow::ZERO.0.len() == 0 && words.len() == 2 * present.count_ones() as usize;
        fits.then(|| Bits { present, words: words.into() })
    }

    /// The flow and the mask, whole.
    pub fn both(&self) -> (Flow, Flow) {
        let (mut flow, mut mask, mut rest) = (Flow::ZERO, Flow::ZERO, self.present);
        for pair in self.words.as_chunks::<2>().0 {
            let at = rest.trailing_zeros() as usize;
            (mask.0[at], flow.0[at]) = (pair[0], pair[1]);
            rest &= rest - 1;
        }
        (flow, mask)
    }

    /// What there is to be hashed.
    pub fn words(&self) -> impl Iterator<Item = u64> {
        std::iter::once(self.present).chain(self.words.iter().copied())
    }
}

/// What becomes of a flow's packets, and what counts them.
pub(super) struct Fate {
    pub compiled: Arc<Compiled>,
    pub rules: Vec<RuleRef>,
    pub missed: Vec<u8>,
    pub groups: Vec<(u32, usize)>,
    pub tables: [u64; 4],
    pub first_again: bool,
    pub learns: Vec<Lesson>,
}

impl Fate {
    fn new(fate: Translated, meters: Vec<(u32, Arc<MeterLive>)>) -> Arc<Fate> {
        Arc::new(Fate {
            compiled: Arc::new(Compiled::new(fate.program, fate.dropped, meters)),
            rules: fate.rules,
            missed: fate.missed,
            groups: fate.groups,
            tables: fate.tables,
            first_again: fate.first_again,
            learns: fate.learns,
        })
    }

    fn is(&self, fate: &Translated) -> bool {
        self.compiled.program == fate.program
            && self.compiled.dropped == fate.dropped
            && self.compiled.meters.is_empty()
            && self.rules == fate.rules
            && self.missed == fate.missed
            && self.groups == fate.groups
            && self.tables == fate.tables
            && self.first_again == fate.first_again
            && self.learns.is_empty()
    }

    /// Adds packets to what they met.
    pub fn credit(&self, pipeline: &mut Pipeline, packets: u64, bytes: u64, used_ns: u64) {
        credit(pipeline, (&self.rules, &self.missed, &self.groups), packets, bytes, used_ns);
    }
}

/// What a flow has counted.
pub(super) struct Counts {
    pub bridge: Arc<FlowBridge>,
    pub fate: Arc<Fate>,
    pub packets: u64,
    pub bytes: u64,
    pub used_ns: u64,
}

impl Counts {
    pub fn is_nothing(&self) -> bool {
        self.packets == 0 && self.bytes == 0
    }

    /// Adds the counts to what the flow's packets met.
    pub fn credit(self, pipeline: &mut Pipeline) {
        if !self.is_nothing() {
            self.fate.credit(pipeline, self.packets, self.bytes, self.used_ns);
        }
    }
}

/// Adds packets to the rules, tables and groups that they met.
pub(super) fn credit(
    pipeline: &mut Pipeline,
    (rules, missed, groups): (&[RuleRef], &[u8], &[(u32, usize)]),
    packets: u64,
    bytes: u64,
    used_ns: u64,
) {
    for rule in rules {
        pipeline.credit(*rule, packets, bytes, used_ns);
    }
    for table in missed {
        pipeline.credit_miss(*table, packets);
    }
    for (group, bucket) in groups {
        pipeline.credit_group(*group, *bucket, packets, bytes);
    }
}

/// Fates that are remembered; when there are more, all are forgotten, and flows that have them keep them.
const FATES: usize = 4096;

/// Fates that flows have lately got.
#[derive(Default)]
pub(super) struct Fates {
    by_hash: HashMap<u64, Arc<Fate>>,
    hasher: RandomState,
}

impl Fates {
    /// A fate, shared with flows that have the same. One with meters, or that teaches, is a flow's own.
    pub fn shared(&mut self, fate: Translated, meters: Vec<(u32, Arc<MeterLive>)>) -> Arc<Fate> {
        if !meters.is_empty() || !fate.learns.is_empty() {
            return Fate::new(fate, meters);
        }
        let hash = self.hasher.hash_one((&fate.program, &fate.rules, &fate.missed, &fate.groups));
        if let Some(known) = self.by_hash.get(&hash).filter(|known| known.is(&fate)) {
            return Arc::clone(known);
        }
        let new = Fate::new(fate, meters);
        if self.by_hash.len() >= FATES {
            self.by_hash.clear();
        }
        self.by_hash.insert(hash, Arc::clone(&new));
        new
    }
}
