//! Hot flows in the driver hook: which are there, what they count, and when those that were taken out are gone for good.
//!
//! A flow is hot by what it has had since it was last judged, in workers and hook together. One that is taken out may still be met by a
//! program that runs; its last counts are taken, and its slot goes to others, when those have ended. A barrier waits for the same.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use packet::{DropReason, FlowKey, PortId};
use switch::flow::Program;

use super::record::{Counts, Fate};
use super::{Decider, ROUND_NS, Record};
use crate::flows::{FlowBridge, Kind};

/// Packets a second from which a flow goes to the hook.
const HOT: u64 = 200;
/// Packets a second below which it leaves the hook again.
const COLD: u64 = 40;
/// Nanoseconds of which a flow is judged, at least.
const JUDGED_NS: u64 = ROUND_NS * 3 / 4;
/// How long programs are waited for at the end.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a flow has done in the hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HookCounts {
    /// Packets.
    pub packets: u64,
    /// Octets.
    pub bytes: u64,
    /// When the last came, in nanoseconds of the workers' clock.
    pub used_ns: u64,
}

/// The driver hook, as the decider sees it. Calls are cheap: none waits.
pub trait HookFlows: Send {
    /// Lets the hook answer for packets that equal `key` in the bits of `mask`, the port included. The slot in which it counts, from
    /// 0 on; `None`: it cannot do this, has no room, or not yet.
    fn install(&mut self, key: &FlowKey, mask: &FlowKey, program: &Program) -> Option<u32>;

    /// Takes a flow out. Programs that run may still meet it.
    fn remove(&mut self, slot: u32);

    /// What the flow of a slot has done.
    fn counts(&self, slot: u32) -> HookCounts;

    /// The slot of a flow that was taken out can go to others.
    fn release(&mut self, slot: u32);

    /// Begins to wait for the programs that run now; the number of the wait. Waits pass in their order, and the decider is woken.
    fn begin_grace(&mut self) -> u64;

    /// Whether the wait of this number is over.
    fn has_passed(&self, number: u64) -> bool;
}

/// The hook, and what is on its way out.
pub(super) struct Hook {
    flows: Box<dyn HookFlows>,
    leaving: VecDeque<Leaving>,
}

/// The hook's part in a flow.
#[derive(Default)]
pub(super) struct Part {
    slot: Option<u32>,
    /// What was taken of its counts.
    seen: HookCounts,
    /// When it was last judged, and the packets that it had had until then.
    judged_ns: u64,
    judged: u64,
    /// What it has had in the hook, in all slots, but for what came while it was on its way out.
    past: HookCounts,
}

impl Part {
    /// Packets that it has had in the hook, as they were last taken.
    pub fn packets(&self) -> u64 {
        self.past.packets
    }

    /// The same in octets.
    pub fn bytes(&self) -> u64 {
        self.past.bytes
    }

    /// When the last came there.
    pub fn used_ns(&self) -> u64 {
        self.past.used_ns
    }
}

/// A flow that was taken out, with what its last counts are credited to.
struct Leaving {
    slot: u32,
    /// The wait after which it is gone.
    number: Option<u64>,
    seen: HookCounts,
    bridge: Arc<FlowBridge>,
    port: PortId,
    fate: Arc<Fate>,
}

impl Decider {
    /// Gives it a driver hook for hot flows.
    pub fn set_hook(&mut self, flows: Box<dyn HookFlows>) {
        self.hook = Some(Hook { flows, leaving: VecDeque::new() });
    }

    /// Takes what a flow has counted in the hook since the last time.
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
        // One that has just left it was used as late as ever.
        self.now_in_hook(record).map_or(0, |counts| counts.used_ns).max(record.hook.past.used_ns)
    }

    pub(super) fn is_fresh_in_hook(&self, record: &Record) -> bool {
        self.now_in_hook(record).is_some_and(|counts| counts.packets != record.hook.seen.packets)
    }

    fn now_in_hook(&self, record: &Record) -> Option<HookCounts> {
        Some(self.hook.as_ref()?.flows.counts(record.hook.slot?))
    }

    /// Puts a flow whose fate is the tables' into the hook when it is hot, and takes it out when it is not.
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
        // What workers alone see is theirs, and one whose place in the cache is not known may have to go at once.
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

    /// Takes a flow out of the hook. What it counts until the last program has met it goes to its rules as they are now.
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

    /// The wait after which the hook has nothing of what was taken out until now.
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

    /// Takes the last counts of flows that no program meets any more.
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
            // The hook adds packets, then octets: the last of these may come alone.
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

    /// Takes all flows out of the hook, and waits for their last counts.
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

/// What was counted since `seen`, which is what was counted now.
fn since(now: HookCounts, seen: &mut HookCounts) -> HookCounts {
    let (packets, bytes) = (now.packets.wrapping_sub(seen.packets), now.bytes.wrapping_sub(seen.bytes));
    *seen = now;
    HookCounts { packets, bytes, used_ns: now.used_ns }
}

/// Why a flow's packets are dropped, if all that is done to them is that.
fn drops(fate: &Fate) -> Option<DropReason> {
    (fate.compiled.kind == Kind::Drop).then_some(fate.compiled.dropped)
}
