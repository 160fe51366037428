//! Offload of hot megaflows to the driver hook: selection, statistics, and removal with a grace period.
//!
//! A megaflow is hot or cold by its packet rate since the last evaluation, in workers and hook together.
//! Running programs may still match a megaflow after its removal from the hook. When these programs have
//! ended, the slow path reads the final statistics and reuses the slot. Barriers wait for the same grace
//! period.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use packet::{DropReason, FlowKey, PortId};
use switch::flow::Program;

use super::record::{Counts, Fate};
use super::{Decider, ROUND_NS, Record};
use crate::flows::{FlowBridge, Kind};

/// Packets per second from which a megaflow is installed in the hook.
const HOT: u64 = 200;
/// Packets per second below which a megaflow is removed from the hook.
const COLD: u64 = 40;
/// Minimum time in nanoseconds between two evaluations of a megaflow.
const JUDGED_NS: u64 = ROUND_NS * 3 / 4;
/// Time that a terminating slow path waits for running programs.
const PATIENCE: Duration = Duration::from_secs(2);

/// Statistics of a megaflow in the hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HookCounts {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Time of the last packet, in nanoseconds of the workers' clock.
    pub used_ns: u64,
}

/// Interface of the driver hook to the slow path. No method blocks.
pub trait HookFlows: Send {
    /// Installs a megaflow that matches `key` under `mask`, including the port. Returns the slot of its
    /// statistics, or `None` if the hook does not support the program, has no space or is not ready.
    fn install(&mut self, key: &FlowKey, mask: &FlowKey, program: &Program) -> Option<u32>;

    /// Removes the megaflow in a slot. Running programs may still match the megaflow.
    fn remove(&mut self, slot: u32);

    /// Returns the statistics of the megaflow in a slot.
    fn counts(&self, slot: u32) -> HookCounts;

    /// Releases the slot of a removed megaflow for reuse.
    fn release(&mut self, slot: u32);

    /// Begins a grace period for the programs that run at this time, and returns its number. Grace periods
    /// end in order. The end of a grace period wakes the slow path.
    fn begin_grace(&mut self) -> u64;

    /// Returns whether the grace period with this number has ended.
    fn has_passed(&self, number: u64) -> bool;
}

/// The driver hook, with the megaflows that are being removed from it.
pub(super) struct Hook {
    flows: Box<dyn HookFlows>,
    leaving: VecDeque<Leaving>,
}

/// Hook state of a megaflow.
#[derive(Default)]
pub(super) struct Part {
    slot: Option<u32>,
    /// Statistics already read from the current slot.
    seen: HookCounts,
    /// Time of the last evaluation in nanoseconds. `judged` is the number of packets at that time.
    judged_ns: u64,
    judged: u64,
    /// Statistics of the megaflow in all its slots, without packets that matched after a removal.
    past: HookCounts,
}

impl Part {
    /// Returns the number of packets that matched in the hook, as last read.
    pub fn packets(&self) -> u64 {
        self.past.packets
    }

    /// Returns the number of bytes that matched in the hook, as last read.
    pub fn bytes(&self) -> u64 {
        self.past.bytes
    }

    /// Returns the time of the last packet in the hook in nanoseconds, as last read.
    pub fn used_ns(&self) -> u64 {
        self.past.used_ns
    }
}

/// A megaflow removed from the hook, with the rules to which its final statistics are added.
struct Leaving {
    slot: u32,
    /// Grace period after which no program matches the megaflow, or `None` if the grace period has not begun.
    number: Option<u64>,
    seen: HookCounts,
    bridge: Arc<FlowBridge>,
    port: PortId,
    fate: Arc<Fate>,
}

impl Decider {
    /// Sets the driver hook to which hot megaflows are offloaded.
    pub fn set_hook(&mut self, flows: Box<dyn HookFlows>) {
        self.hook = Some(Hook { flows, leaving: VecDeque::new() });
    }

    /// Returns the hook statistics of a megaflow since the last call.
    pub(super) fn hooked(&mut self, id: u32) -> HookCounts {
        let (Some(hook), Some(Some(record))) = (&self.hook, self.records.get_mut(id as usize)) else {
            return HookCounts::default();
        };
        let Some(slot) = record.hook.slot else { return HookCounts::default() };
        let now = hook.flows.counts(slot);
        let since = since(now, &mut record.hook.seen);
        record.hook.past.packets += since.packets;
        record.hook.past.bytes += since.bytes;
        record.hook.past.used_ns = record.hook.past.used_ns.max(since.used_ns);
        if let Some(reason) = drops(&record.fate) {
            self.counters.port(record.port).drop_n(reason, since.packets);
        }
        since
    }

    pub(super) fn used_in_hook(&self, record: &Record) -> u64 {
        // A megaflow that has just been removed from the hook keeps its time of last use.
        self.now_in_hook(record).map_or(0, |counts| counts.used_ns).max(record.hook.past.used_ns)
    }

    pub(super) fn is_fresh_in_hook(&self, record: &Record) -> bool {
        self.now_in_hook(record).is_some_and(|counts| counts.packets != record.hook.seen.packets)
    }

    fn now_in_hook(&self, record: &Record) -> Option<HookCounts> {
        Some(self.hook.as_ref()?.flows.counts(record.hook.slot?))
    }

    /// Evaluates a megaflow with valid actions: installs a hot megaflow in the hook, and removes a cold one
    /// from it.
    pub(super) fn judge(&mut self, id: u32, now: u64) {
        let (Some(hook), Some(Some(record))) = (&mut self.hook, self.records.get_mut(id as usize)) else {
            return;
        };
        let took = now.saturating_sub(record.hook.judged_ns);
        if took < JUDGED_NS {
            return;
        }
        let packets = record.live.packets.get() + record.hook.past.packets;
        let came = packets.wrapping_sub(record.hook.judged);
        let is_first = record.hook.judged_ns == 0;
        (record.hook.judged_ns, record.hook.judged) = (now, packets);
        let since_ns = if is_first { now.saturating_sub(record.created_ns).max(JUDGED_NS) } else { took };
        let rate = came.saturating_mul(1_000_000_000) / since_ns;
        if record.hook.slot.is_some() {
            if rate < COLD {
                self.unhook(id);
            }
            return;
        }
        // Learn actions work only in workers. A megaflow whose location in the cache is not known yet may
        // have to be removed at once.
        if rate < HOT || !record.fate.learns.is_empty() || record.at.is_none() || record.leaving {
            return;
        }
        let (flow, mask) = record.bits.both();
        if !mask.beyond().is_zero() {
            return;
        }
        let (mut key, mut mask) = (flow.key(), mask.key());
        key.set_in_port(record.port);
        mask.set_in_port(PortId(u16::MAX));
        if let Some(slot) = hook.flows.install(&key, &mask, &record.fate.compiled.program) {
            (record.hook.slot, record.hook.seen) = (Some(slot), HookCounts::default());
            record.bridge.tables.hooked.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes a megaflow from the hook. Packets that running programs still match are added to the current
    /// rules of the megaflow.
    pub(super) fn unhook(&mut self, id: u32) {
        let (Some(hook), Some(Some(record))) = (&mut self.hook, self.records.get_mut(id as usize)) else {
            return;
        };
        let Some(slot) = record.hook.slot.take() else { return };
        hook.flows.remove(slot);
        record.bridge.tables.hooked.fetch_sub(1, Ordering::Relaxed);
        hook.leaving.push_back(Leaving {
            slot,
            number: None,
            seen: record.hook.seen,
            bridge: Arc::clone(&record.bridge),
            port: record.port,
            fate: Arc::clone(&record.fate),
        });
    }

    /// Returns the grace period after which the hook no longer matches the megaflows removed so far. Begins a
    /// grace period if necessary.
    pub(super) fn fence(&mut self) -> Option<u64> {
        let hook = self.hook.as_mut()?;
        if hook.leaving.back().is_some_and(|last| last.number.is_none()) {
            let number = hook.flows.begin_grace();
            hook.leaving.iter_mut().for_each(|leaving| leaving.number = leaving.number.or(Some(number)));
        }
        hook.leaving.back().and_then(|last| last.number)
    }

    pub(super) fn has_passed(&self, number: Option<u64>) -> bool {
        let Some(number) = number else { return true };
        self.hook.as_ref().is_none_or(|hook| hook.flows.has_passed(number))
    }

    /// Reads the final statistics of removed megaflows after their grace periods. Returns whether there were
    /// any.
    pub(super) fn reap(&mut self) -> bool {
        self.fence();
        let mut did = false;
        while let Some(hook) = &mut self.hook
            && let Some(first) = hook.leaving.front()
            && first.number.is_some_and(|number| hook.flows.has_passed(number))
            && let Some(mut gone) = hook.leaving.pop_front()
        {
            did = true;
            let counts = hook.flows.counts(gone.slot);
            let last = since(counts, &mut gone.seen);
            hook.flows.release(gone.slot);
            // The hook adds packets before bytes, so the last bytes may arrive alone.
            if last.packets == 0 && last.bytes == 0 {
                continue;
            }
            if let Some(reason) = drops(&gone.fate) {
                self.counters.port(gone.port).drop_n(reason, last.packets);
            }
            let Leaving { bridge, fate, .. } = gone;
            let HookCounts { packets, bytes, used_ns } = last;
            self.credit(Counts { bridge, fate, packets, bytes, used_ns });
        }
        did
    }

    /// Removes all megaflows from the hook, and waits for their final statistics.
    pub(super) fn leave_hook(&mut self) {
        for id in (0_u32..).take(self.records.len()) {
            self.unhook(id);
        }
        let begin = Instant::now();
        while self.hook.as_ref().is_some_and(|hook| !hook.leaving.is_empty()) && begin.elapsed() < PATIENCE {
            if !self.reap() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// Returns the difference of `now` and `seen`, and sets `seen` to `now`.
fn since(now: HookCounts, seen: &mut HookCounts) -> HookCounts {
    let (packets, bytes) = (now.packets.wrapping_sub(seen.packets), now.bytes.wrapping_sub(seen.bytes));
    *seen = now;
    HookCounts { packets, bytes, used_ns: now.used_ns }
}

/// Returns the drop reason of actions that only drop packets, or `None` for other actions.
fn drops(fate: &Fate) -> Option<DropReason> {
    (fate.compiled.kind == Kind::Drop).then_some(fate.compiled.dropped)
}
