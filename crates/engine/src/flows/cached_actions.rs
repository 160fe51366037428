//! Cached actions of megaflows in the slow path. Megaflows with equal actions share one copy of the actions.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use packet::PortId;
use switch::flow::{LearnedFlow, Pipeline, RuleRef, Translated};

use super::compiled::Compiled;
use super::meter::MeterLive;

/// Cached actions that megaflows share, with the rules, tables and groups whose statistics count the packets of these
/// megaflows.
pub(crate) struct CachedActions {
    pub compiled: Arc<Compiled>,
    pub rules: Vec<RuleRef>,
    pub missed: Vec<u8>,
    pub groups: Vec<(u32, usize)>,
    pub tables: [u64; 4],
    pub first_again: bool,
    pub learns: Vec<LearnedFlow>,
    /// Approximate size of the actions in memory, in bytes.
    memory: usize,
    /// Sum of the sizes of all cached actions, in bytes. All [`CachedActions`] share this counter.
    total: Arc<AtomicUsize>,
    /// Sum of the sizes of all cached actions that were made for megaflows of the same port as these actions, in bytes.
    of_port: Arc<AtomicUsize>,
}

impl Drop for CachedActions {
    fn drop(&mut self) {
        self.total.fetch_sub(self.memory, Ordering::Relaxed);
        self.of_port.fetch_sub(self.memory, Ordering::Relaxed);
    }
}

impl CachedActions {
    fn new(
        actions: Translated,
        meters: Vec<(u32, Arc<MeterLive>)>,
        total: &Arc<AtomicUsize>,
        of_port: Arc<AtomicUsize>,
    ) -> Arc<CachedActions> {
        let memory = actions.memory();
        total.fetch_add(memory, Ordering::Relaxed);
        of_port.fetch_add(memory, Ordering::Relaxed);
        Arc::new(CachedActions {
            memory,
            total: Arc::clone(total),
            of_port,
            compiled: Arc::new(Compiled::new(actions.program, actions.dropped, meters)),
            rules: actions.rules,
            missed: actions.missed,
            groups: actions.groups,
            tables: actions.tables,
            first_again: actions.first_again,
            learns: actions.learns,
        })
    }

    fn is(&self, actions: &Translated) -> bool {
        self.compiled.program == actions.program
            && self.compiled.dropped == actions.dropped
            && self.compiled.meters.is_empty()
            && self.rules == actions.rules
            && self.missed == actions.missed
            && self.groups == actions.groups
            && self.tables == actions.tables
            && self.first_again == actions.first_again
            && self.learns.is_empty()
    }

    /// Adds packets to the statistics of the rules, tables and groups that belong to these actions.
    pub fn credit(&self, pipeline: &mut Pipeline, packets: u64, bytes: u64, used_ns: u64) {
        credit(pipeline, (&self.rules, &self.missed, &self.groups), packets, bytes, used_ns);
    }
}

/// Adds packets to the statistics of rules, to the statistics of tables in which no rule matched, and to the statistics
/// of group buckets.
pub(crate) fn credit(
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

/// Maximum number of entries of [`CachedActionsIndex`]. A full index is cleared, but megaflows keep the actions that
/// they already have.
const CACHED_ACTIONS: usize = 4096;

/// Maximum total size of the actions in [`CachedActionsIndex`], in bytes.
const INDEX_MEMORY: usize = 16 << 20;

/// Maximum total size of the actions of all megaflows, in bytes. Above this size, packets with new actions are
/// forwarded without a megaflow.
pub(crate) const ACTIONS_MEMORY: usize = 512 << 20;

/// Reserved part of [`ACTIONS_MEMORY`], in bytes. Only ports that have less than their share of the
/// reserve may use the reserve. The actions of one port's megaflows therefore cannot prevent
/// megaflows of other ports.
const RESERVE: usize = ACTIONS_MEMORY / 4;

/// Index of recently cached actions. A new megaflow whose actions equal actions of this index
/// shares the actions of the index.
#[derive(Default)]
pub(crate) struct CachedActionsIndex {
    by_hash: HashMap<u64, Arc<CachedActions>>,
    /// Total size of the actions in the index, in bytes.
    held: usize,
    /// Total size of all cached actions of all megaflows, in bytes, including actions that are not in the index.
    total: Arc<AtomicUsize>,
    /// Total size of the cached actions that were made for megaflows of each port, in bytes.
    of_ports: HashMap<PortId, Arc<AtomicUsize>>,
    hasher: RandomState,
}

impl CachedActionsIndex {
    /// Returns translated actions in cached form. Megaflows with equal actions get the same copy, unless the actions
    /// contain meters or learn actions. If `is_kept` is false, no megaflow keeps the actions, and they are not added to
    /// the index. The memory of new actions is charged to `port`.
    pub fn shared(
        &mut self,
        port: PortId,
        actions: Translated,
        meters: Vec<(u32, Arc<MeterLive>)>,
        is_kept: bool,
    ) -> Arc<CachedActions> {
        if !meters.is_empty() || !actions.learns.is_empty() {
            let of_port = Arc::clone(self.of_ports.entry(port).or_default());
            return CachedActions::new(actions, meters, &self.total, of_port);
        }
        let hash = self.hasher.hash_one((&actions.program, &actions.rules, &actions.missed, &actions.groups));
        if let Some(known) = self.by_hash.get(&hash).filter(|known| known.is(&actions)) {
            return Arc::clone(known);
        }
        let of_port = Arc::clone(self.of_ports.entry(port).or_default());
        let new = CachedActions::new(actions, meters, &self.total, of_port);
        if !is_kept || new.memory > INDEX_MEMORY / 16 {
            return new;
        }
        if self.by_hash.len() >= CACHED_ACTIONS || self.held + new.memory > INDEX_MEMORY {
            self.by_hash.clear();
            self.held = 0;
        }
        self.held += new.memory;
        if let Some(old) = self.by_hash.insert(hash, Arc::clone(&new)) {
            self.held -= old.memory;
        }
        new
    }

    /// Returns whether a megaflow of `port` with these actions may be kept without exceeding [`ACTIONS_MEMORY`]. If
    /// less than [`RESERVE`] is left, the port must also have less than its share of the reserve.
    pub fn has_room(&self, port: PortId, actions: &Translated) -> bool {
        let more = actions.memory();
        let all = self.memory() + more;
        all <= ACTIONS_MEMORY - RESERVE || all <= ACTIONS_MEMORY && self.of_port(port) + more <= self.share()
    }

    /// Returns the share of one port in [`RESERVE`], in bytes. The reserve is divided equally among the ports with
    /// cached actions and one additional port.
    fn share(&self) -> usize {
        let ports = self.of_ports.values().filter(|own| own.load(Ordering::Relaxed) > 0).count();
        RESERVE / (ports + 1)
    }

    /// Returns the total size of the cached actions that were made for megaflows of a port, in bytes.
    fn of_port(&self, port: PortId) -> usize {
        self.of_ports.get(&port).map_or(0, |own| own.load(Ordering::Relaxed))
    }

    /// Returns the total size of all cached actions in bytes.
    pub fn memory(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use packet::DropReason;
    use switch::flow::{Flow, Op, Program};

    use super::*;

    const PORT: PortId = PortId(4);

    /// Returns a translation with `steps` operations, each of which selects a different queue.
    fn translated(from: usize, steps: usize) -> Translated {
        let flow = Flow::ZERO;
        let pipeline = Pipeline::new();
        let asked = switch::flow::TranslationInput { flow: &flow, frame: None, trace: false };
        let mut translated = pipeline.packet_out(asked, &[]);
        let steps = (from..from + steps).map(|queue| Op::Queue(u32::try_from(queue).ok()));
        translated.program = Program { ops: steps.collect() };
        translated.dropped = DropReason::RuleDrop;
        translated
    }

    #[test]
    fn the_index_is_bounded_in_octets() {
        let mut index = CachedActionsIndex::default();
        // Each translation is slightly smaller than the largest one that the index stores.
        let steps = INDEX_MEMORY / 16 / size_of::<Op>() * 9 / 10;
        let kept: Vec<_> =
            (0..40).map(|at| index.shared(PORT, translated(at, steps), Vec::new(), true)).collect();
        assert!(index.held <= INDEX_MEMORY && index.by_hash.len() < 20, "{}", index.by_hash.len());
        assert!(index.memory() > 40 * steps * size_of::<Op>());
        // The last translation is still in the index, so its actions are shared.
        let last = index.shared(PORT, translated(39, steps), Vec::new(), true);
        assert!(Arc::ptr_eq(&last, &kept[39]));
        drop((kept, last));
        assert_eq!(index.memory(), index.held, "only the index has actions");
        // Very long actions, and actions that no megaflow keeps, are not added to the index.
        let before = index.by_hash.len();
        drop(index.shared(PORT, translated(100, 10), Vec::new(), false));
        drop(index.shared(PORT, translated(100, 2 * steps), Vec::new(), true));
        assert_eq!((index.by_hash.len(), index.memory()), (before, index.held));
        index.total.store(ACTIONS_MEMORY, Ordering::Relaxed);
        assert!(!index.has_room(PORT, &translated(0, 1)), "megaflows have actions of a bounded size");
    }

    /// Checks that megaflows of one port with many different actions, such as learn actions, do not prevent megaflows
    /// of other ports.
    #[test]
    fn the_actions_of_one_port_leave_memory_to_other_ports() {
        let mut index = CachedActionsIndex::default();
        let mut kept = Vec::new();
        // The actions of the test are short. Their sizes are set to `octets`, to simulate longer actions.
        let mut keep = |index: &mut CachedActionsIndex, port: PortId, octets: usize| {
            let actions = translated(kept.len(), 1);
            if !index.has_room(port, &actions) {
                return false;
            }
            let mut new = index.shared(port, actions, Vec::new(), false);
            let more = octets - new.memory;
            let own = Arc::get_mut(&mut new).unwrap();
            own.memory = octets;
            own.total.fetch_add(more, Ordering::Relaxed);
            own.of_port.fetch_add(more, Ordering::Relaxed);
            kept.push(new);
            true
        };
        let of_one = (0..1000).take_while(|_| keep(&mut index, PORT, 1 << 20)).count();
        assert_eq!(of_one << 20, ACTIONS_MEMORY - RESERVE);
        let other = PortId(5);
        let of_other = (0..1000).take_while(|_| keep(&mut index, other, 1 << 20)).count();
        assert!(of_other << 20 >= RESERVE / 4, "{of_other}");
        assert!(keep(&mut index, PortId(6), 1 << 20) && !keep(&mut index, PORT, 1 << 20));
        assert!(index.memory() <= ACTIONS_MEMORY);
        drop(kept);
        assert_eq!((index.memory(), index.of_port(PORT), index.share()), (0, 0, RESERVE));
    }
}
