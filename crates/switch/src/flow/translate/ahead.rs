//! Look-ups in the first table for a batch of packets before their translation. Batched look-ups overlap the memory
//! accesses of several packets.

use lookup::classifier::BURST;

use super::{Run, Translated, TranslationInput};
use crate::flow::action::port;
use crate::flow::look_up::Seen;
use crate::flow::pipeline::{Pipeline, Table};
use crate::flow::{FLOW_WORDS, Field, Flow, Fragments};

/// Minimum number of rules in the first table for batched look-ups. A smaller table is in the CPU's caches, and the
/// cost of preparing a batch exceeds the gain. With one rule, `trivium bench upcall` handled 5 % fewer upcalls with
/// batched look-ups than without.
const MANY: usize = 4096;

/// A packet that waits for its translation, with the result of its look-up in the first table.
#[derive(Clone, Debug)]
pub struct Ahead {
    flow: Flow,
    /// Result of the look-up, with the version of the tables at which it was made.
    seen: Option<(u64, Seen)>,
}

impl Ahead {
    /// Creates a waiting packet without a look-up result.
    #[must_use]
    pub fn new(flow: Flow) -> Ahead {
        Ahead { flow, seen: None }
    }

    /// Returns the packet's flow on arrival.
    #[must_use]
    pub fn flow(&self) -> &Flow {
        &self.flow
    }
}

/// Returns the flow with which a packet is looked up in the first table: the field `actset_output` holds OFPP_UNSET,
/// and the L4 ports of fragments are zero.
fn at_first(flow: &Flow) -> Flow {
    let mut own = *flow;
    own.set(Field::ActsetOutput, u128::from(port::UNSET));
    if own.get(Field::IpFrag) & 1 != 0 {
        [Field::TcpSrc, Field::TcpDst].into_iter().for_each(|field| own.set(field, 0));
    }
    own
}

impl Pipeline {
    /// Returns whether batched look-ups in the first table are faster than a look-up during each translation.
    #[must_use]
    pub fn gains_by_looking_ahead(&self) -> bool {
        self.fragments == Fragments::Normal
            && self
                .tables
                .first()
                .is_some_and(|first| first.conjunctive == 0 && first.classifier.len() >= MANY)
    }

    /// Looks packets up in the first table and stores the results in the packets. A table with conjunctive matches
    /// is not looked up here, but during the translations of the packets.
    pub fn look_ahead(&self, packets: &mut [Ahead]) {
        let simple = |table: &&Table| table.conjunctive == 0 && self.fragments == Fragments::Normal;
        let Some(first) = self.tables.first().filter(simple) else { return };
        for packets in packets.chunks_mut(BURST) {
            let mut asked = [Flow::ZERO; BURST];
            for (asked, packet) in asked.iter_mut().zip(&*packets) {
                *asked = at_first(&packet.flow);
            }
            let keys: [&[u64; FLOW_WORDS]; BURST] = std::array::from_fn(|at| &asked[at].0);
            let (mut wild, mut found) = ([[0; FLOW_WORDS]; BURST], [None; BURST]);
            first.classifier.lookup_burst_tracked(&keys[..packets.len()], &mut wild, &mut found);
            for (packet, (found, wild)) in packets.iter_mut().zip(found.into_iter().zip(wild)) {
                let seen = Seen { rule: found.map(|(rule, _)| *rule), bits: Flow(wild) };
                packet.seen = Some((self.version(), seen));
            }
        }
    }

    /// Translates a packet like [`Pipeline::translate`]. Uses the result of the look-up in the first table that
    /// [`Pipeline::look_ahead`] stored, if the tables have not changed since that look-up.
    #[must_use]
    pub fn translate_ahead(&self, packet: &Ahead, frame: Option<&[u8]>) -> Translated {
        let seen = packet.seen.as_ref();
        let ahead = seen.filter(|(version, _)| *version == self.version()).map(|(_, seen)| seen);
        self.run(TranslationInput { flow: &packet.flow, frame, trace: false }, |run| {
            Run { ahead, ..run }.arrived()
        })
    }
}
