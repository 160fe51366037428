//! Transfer of megaflows from a terminating slow path to its successor. The successor installs the megaflows
//! in the workers' caches before the first upcall. Therefore packets of established flows match immediately,
//! even if many upcalls are queued.
//!
//! The transfer contains only the flow key bits that the mask contains, and no actions. The successor determines the
//! actions from its own tables.

use std::cmp::Reverse;

use packet::PortId;
use switch::flow::TranslationInput;

use super::SlowPath;
use super::record::{Bits, Record};
use super::revalidate::with_port;
use super::upcall::Place;
use crate::clock::monotonic;
use crate::flows::UpcallPorts;

/// Maximum number of megaflows to transfer. The most recently used megaflows are selected.
const MOST: usize = 4096;
/// Maximum age of megaflows to transfer: the time in nanoseconds since the megaflow's last packet.
const SILENCE_NS: u64 = 2_000_000_000;

/// A megaflow that is transferred to a successor of the slow path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownFlow {
    /// Index of the worker whose cache held the megaflow.
    pub worker: u16,
    /// Identifier of the megaflow's bridge.
    pub bridge: u16,
    /// Port on which the packets of the megaflow arrive.
    pub port: PortId,
    /// Bitmap of the flow key words in which the mask has any bit set.
    pub present: u64,
    /// Pairs of a mask word and a masked flow key word. There is one pair for each bit that is set in `present`.
    pub words: Vec<u64>,
}

impl SlowPath {
    /// Returns the installed megaflows that were used recently, most recently used first.
    pub(super) fn known(&self, now: u64) -> Vec<KnownFlow> {
        let met = |record: &Record| {
            let used = record.live.used_ns.get().max(record.created_ns).max(self.used_in_hook(record));
            let is_known = !record.leaving && record.recirculation.is_none();
            (is_known && now.saturating_sub(used) < SILENCE_NS).then_some(used)
        };
        let mut all: Vec<(u64, &Record)> =
            self.records.iter().flatten().filter_map(|record| Some((met(record)?, record))).collect();
        all.sort_unstable_by_key(|(used, _)| Reverse(*used));
        let known = |record: &Record| {
            let (present, words) = record.bits.parts();
            KnownFlow {
                worker: u16::try_from(record.worker).unwrap_or(u16::MAX),
                bridge: record.bridge.tables.number(),
                port: record.ports.port,
                present,
                words: words.to_vec(),
            }
        };
        all.into_iter().take(MOST).map(|(_, record)| known(record)).collect()
    }

    /// Installs in the workers' caches the megaflows that a predecessor has transferred. The function may be called
    /// before the workers have their ends of the rings.
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
            let mut actions =
                pipeline.translate(TranslationInput { flow: &asked, frame: None, trace: false });
            let ports = UpcallPorts { ingress: flow.port, port: flow.port };
            self.prepare_tracking(bridge, ports, &mut actions);
            let version = pipeline.version();
            let meters = self.meters_of(bridge, &actions.program.ops, &mut pipeline);
            drop(pipeline);
            // The actions are unknown if they depend on bits that the megaflow's mask does not contain.
            let wider = actions.mask.0.iter().zip(mask.0).any(|(needs, has)| needs & !has != 0);
            if wider
                || !actions.is_cacheable()
                || !self.budgets.has_room(worker, flow.port, self.flows, self.flow_limit())
                || !self.cached_actions.has_room(flow.port, &actions)
            {
                continue;
            }
            let mask = actions.mask;
            let actions = self.cached_actions.shared(flow.port, actions, meters, true);
            let place = Place { ports, arrival: flow.port, recirculation: None, in_port };
            self.keep(worker, bridge, place, (&asked, mask), actions, version, now);
        }
    }
}
