//! Hook offload: the slow path installs frequently used megaflows in the XDP hook, reads their statistics, and removes
//! them after the hook's running programs have ended.
//!
//! A megaflow is hot or cold according to its packet rate since the last evaluation. The rate includes the
//! packets in the workers and in the XDP hook. After a megaflow is removed from the hook, programs that
//! are already running may still match it. When these programs have ended, the slow path reads the final
//! statistics and reuses the statistics slot. Barriers wait for the same grace period.
//!
//! All ingress ports share the hook's flow table. If a port with fewer megaflows or masks needs the space that another
//! port's megaflow occupies in the table, this megaflow is displaced. A displaced megaflow is removed from the hook at
//! its next evaluation, like a cold megaflow.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use packet::{DropReason, PortId};

use super::SlowPath;
use super::hook_state::{Hook, HookCounts, HookFlows, Leaving};
use super::record::{Counts, Record};
use super::sweep::ROUND_NS;
use crate::flows::{CachedActions, Kind};

/// Packet rate in packets per second at or above which a megaflow is hot and is installed in the XDP hook.
const HOT: u64 = 200;
/// Packet rate in packets per second below which a megaflow is cold and is removed from the XDP hook.
const COLD: u64 = 40;
/// Minimum time in nanoseconds over which a megaflow's packet rate is measured.
const JUDGED_NS: u64 = ROUND_NS * 3 / 4;
/// Maximum time that a terminating slow path waits until running programs of the XDP hook have ended.
const PATIENCE: Duration = Duration::from_secs(2);

impl SlowPath {
    /// Sets the XDP hook into which the slow path installs hot megaflows.
    pub fn set_hook(&mut self, flows: Box<dyn HookFlows>) {
        self.hook = Some(Hook { flows, leaving: VecDeque::new() });
    }

    /// Returns the packets and bytes that a megaflow has matched in the XDP hook since the last call.
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
        if let Some(reason) = drops(&record.actions) {
            self.counters.port(record.ports.port).drop_n(reason, since.packets);
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

    /// Measures the packet rate of a megaflow whose actions are up to date. Installs a hot megaflow in the XDP hook,
    /// and removes a cold megaflow and a displaced megaflow from the XDP hook.
    pub(super) fn judge(&mut self, id: u32, now: u64) {
        let (Some(hook), Some(Some(record))) = (&mut self.hook, self.records.get_mut(id as usize)) else {
            return;
        };
        if record.hook.slot.is_some_and(|slot| hook.flows.is_displaced(slot)) {
            return self.unhook(id);
        }
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
        let is_recirculated = record.recirculation.is_some();
        if rate < HOT
            || is_recirculated
            || !record.actions.learns.is_empty()
            || record.at.is_none()
            || record.leaving
        {
            return;
        }
        let (flow, mask) = record.bits.both();
        if !mask.extended().is_zero() {
            return;
        }
        let (mut key, mut mask) = (flow.key(), mask.key());
        key.set_in_port(record.ports.port);
        mask.set_in_port(PortId(u16::MAX));
        if let Some(slot) = hook.flows.install(&key, &mask, &record.actions.compiled.program) {
            (record.hook.slot, record.hook.seen) = (Some(slot), HookCounts::default());
            record.bridge.tables.hooked.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes a megaflow from the XDP hook. If running programs still match packets with the
    /// megaflow afterwards, these packets are counted for the rules that the megaflow has at the
    /// time of the call.
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
            port: record.ports.port,
            actions: Arc::clone(&record.actions),
        });
    }

    /// Returns the number of the grace period after which the XDP hook no longer matches any megaflow that has been
    /// removed so far. Begins a grace period if necessary. Returns `None` if no removed megaflow can match any more.
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

    /// Reads the final statistics of megaflows that were removed from the XDP hook and whose grace periods have ended.
    /// Returns whether there were any such megaflows.
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
            if let Some(reason) = drops(&gone.actions) {
                self.counters.port(gone.port).drop_n(reason, last.packets);
            }
            let Leaving { bridge, actions, .. } = gone;
            let HookCounts { packets, bytes, used_ns } = last;
            self.credit(Counts { bridge, actions, packets, bytes, used_ns });
        }
        did
    }

    /// Removes all megaflows from the XDP hook, and waits until the final statistics of the megaflows have been read.
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

/// Returns the difference between the counts `now` and `seen`, and then sets `seen` to `now`.
fn since(now: HookCounts, seen: &mut HookCounts) -> HookCounts {
    let (packets, bytes) = (now.packets.wrapping_sub(seen.packets), now.bytes.wrapping_sub(seen.bytes));
    *seen = now;
    HookCounts { packets, bytes, used_ns: now.used_ns }
}

/// Returns the drop reason if the actions only drop packets, or `None` for other actions.
fn drops(actions: &CachedActions) -> Option<DropReason> {
    (actions.compiled.kind == Kind::Drop).then_some(actions.compiled.dropped)
}
