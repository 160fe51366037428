//! Flows that workers had when a decider ended: what the caches of a successor begin with, so that packets of known flows find them
//! there, however many have come meanwhile.
//!
//! Only the bits that a flow depended on travel. The successor follows them through its own tables: what became of them before does not count.

use std::cmp::Reverse;

use packet::PortId;
use switch::flow::Asked as Question;

use super::Decider;
use super::look::with_port;
use super::record::{Bits, Record};
use crate::worker::monotonic;

/// Flows that are told at most: the last ones to be met.
const MOST: usize = 4096;
/// Nanoseconds of silence after which a flow is not worth it.
const SILENCE_NS: u64 = 2_000_000_000;

/// A flow that a worker had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownFlow {
    /// The worker.
    pub worker: u16,
    /// The bridge's number.
    pub bridge: u16,
    /// The port that its packets come in by.
    pub port: PortId,
    /// A bit for each word of a flow that it depends on.
    pub present: u64,
    /// Of each of these the mask, then the flow.
    pub words: Vec<u64>,
}

impl Decider {
    /// The flows that workers have, those met last in front.
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

    /// Has workers, which may not have their ends of the rings yet, begin with these flows.
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
            // Of bits that it does not know it cannot say whose they are.
            let wider = fate.mask.0.iter().zip(mask.0).any(|(needs, has)| needs & !has != 0);
            if wider
                || !fate.is_cacheable()
                || !self.budgets.has_room(worker, flow.port, self.flows, self.limit)
            {
                continue;
            }
            let mask = fate.mask;
            let fate = self.fates.shared(fate, meters);
            self.keep(worker, bridge, (flow.port, in_port), (&asked, mask), fate, version, now);
        }
    }
}
