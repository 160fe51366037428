//! Megaflows of a terminated slow path, which the workers' caches of its successor start with. Packets of
//! established flows then match at once, even with a long queue of packets.
//!
//! Only the key bits of a megaflow are transferred. The successor translates the key by its own tables and
//! does not use the earlier actions.

use std::cmp::Reverse;

use packet::PortId;
use switch::flow::Asked as Question;

use super::Decider;
use super::look::with_port;
use super::record::{Bits, Record};
use crate::worker::monotonic;

/// Maximum number of megaflows to transfer. The most recently used ones are selected.
const MOST: usize = 4096;
/// Idle time in nanoseconds after which a megaflow is not transferred.
const SILENCE_NS: u64 = 2_000_000_000;

/// A megaflow to transfer to a successor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownFlow {
    /// Number of the worker whose cache held the megaflow.
    pub worker: u16,
    /// Number of the bridge.
    pub bridge: u16,
    /// Port on which the packets of the megaflow arrive.
    pub port: PortId,
    /// Bitmap of the words of the flow key that the mask contains.
    pub present: u64,
    /// Pairs of mask word and flow key word, one pair for each bit of `present`.
    pub words: Vec<u64>,
}

impl Decider {
    /// Returns the installed megaflows, most recently used first.
    pub(super) fn known(&self, now: u64) -> Vec<KnownFlow> {
        let met = |record: &Record| {
            let used = record.live.used_ns.get().max(record.created_ns).max(self.used_in_hook(record));
            (!record.leaving && now.saturating_sub(used) < SILENCE_NS).then_some(used)
        };
        let mut all: Vec<(u64, &Record)> =
            self.records.iter().flatten().filter_map(|record| Some((met(record)?, record))).collect();
        all.sort_unstable_by_key(|(used, _)| Reverse(*used));
        let known = |record: &Record| {
            let (present, words) = record.bits.parts();
            KnownFlow {
                worker: u16::try_from(record.worker).unwrap_or(u16::MAX),
                bridge: record.bridge.tables.number(),
                port: record.port,
                present,
                words: words.to_vec(),
            }
        };
        all.into_iter().take(MOST).map(|(_, record)| known(record)).collect()
    }

    /// Installs these megaflows in the workers' caches. The workers may not have their ends of the rings yet.
    pub(crate) fn begin_with(&mut self, known: &[KnownFlow]) {
        let (now, bridges) = (monotonic().ns, self.bridges());
        for flow in known {
            let worker = usize::from(flow.worker);
            let room = self.workers.get(worker).is_some_and(|end| end.answers.free() > 0);
            let bits = Bits::of_parts(flow.present, &flow.words);
            let (true, Some(bits), Some(bridge)) = (room, bits, bridges.get(&flow.bridge)) else { continue };
            let (known, mask) = bits.both();
            let Some(mut pipeline) = bridge.tables.lock_for_packets() else { continue };
            let Some(in_port) = pipeline.number_of(flow.port) else { continue };
            let asked = with_port(&known, in_port);
            let fate = pipeline.translate(Question { flow: &asked, frame: None, trace: false });
            let version = pipeline.version();
            let meters = self.meters_of(bridge, &fate.program.ops, &mut pipeline);
            drop(pipeline);
            // The actions are unknown if they depend on bits that the megaflow's mask does not contain.
            let wider = fate.mask.0.iter().zip(mask.0).any(|(needs, has)| needs & !has != 0);
            if wider
                || !fate.is_cacheable()
                || !self.budgets.has_room(worker, flow.port, self.flows, self.flow_limit())
            {
                continue;
            }
            let mask = fate.mask;
            let fate = self.fates.shared(fate, meters);
            self.keep(worker, bridge, (flow.port, in_port), (&asked, mask), fate, version, now);
        }
    }
}
