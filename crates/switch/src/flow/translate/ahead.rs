//! The first look-ups of packets that wait to be translated, done for all of them together: what they read in memory is then on its way
//! for several packets at once.

use lookup::classifier::BURST;

use super::{Asked, Run, Translated};
use crate::flow::action::port;
use crate::flow::pipeline::{Pipeline, Table};
use crate::flow::rule::RuleRef;
use crate::flow::{FLOW_WORDS, Field, Flow, Fragments};

/// Rules of the first table from which on it is worth while. Fewer are in the CPU's caches, and what it takes to lay the packets out is not won
/// back: `trivium bench upcall`, of one rule, had 5 % less of them.
const MANY: usize = 4096;

/// What a look-up in the first table found.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub rule: Option<RuleRef>,
    /// Bits that it depends on.
    pub bits: Flow,
}

/// A packet that waits, and what its first look-up found.
#[derive(Clone, Debug)]
pub struct Ahead {
    flow: Flow,
    /// With the version of the tables that it is of.
    seen: Option<(u64, Seen)>,
}

impl Ahead {
    /// A packet that nothing was looked up for.
    #[must_use]
    pub fn new(flow: Flow) -> Ahead {
        Ahead { flow, seen: None }
    }

    /// The packet's flow as it came in.
    #[must_use]
    pub fn flow(&self) -> &Flow {
        &self.flow
    }
}

/// The flow that the first table is asked about.
fn at_first(flow: &Flow) -> Flow {
    let mut own = *flow;
    own.set(Field::ActsetOutput, u128::from(port::UNSET));
    if own.get(Field::IpFrag) & 1 != 0 {
        [Field::TcpSrc, Field::TcpDst].into_iter().for_each(|field| own.set(field, 0));
    }
    own
}

impl Pipeline {
    /// Whether it is quicker to look several packets up ahead than each when it is translated.
    #[must_use]
    pub fn gains_by_looking_ahead(&self) -> bool {
        self.fragments == Fragments::Normal
            && self
                .tables
                .first()
                .is_some_and(|first| first.conjunctive == 0 && first.classifier.len() >= MANY)
    }

    /// Looks packets up in the first table. Where that has parts of conjunctive matches it is left to the translations.
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

    /// As [`Pipeline::translate`] of a packet with its frame. What was found ahead counts unless the tables have changed since.
    #[must_use]
    pub fn translate_ahead(&self, packet: &Ahead, frame: Option<&[u8]>) -> Translated {
        let seen = packet.seen.as_ref();
        let ahead = seen.filter(|(version, _)| *version == self.version()).map(|(_, seen)| seen);
        self.run(Asked { flow: &packet.flow, frame, trace: false }, |run| Run { ahead, ..run }.arrived())
    }
}
