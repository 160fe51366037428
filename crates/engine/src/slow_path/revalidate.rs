//! Revalidation of the megaflows, which reads their statistics, removes idle megaflows, and compares the
//! cached actions with the tables. A barrier waits until all megaflows of its bridge have been revalidated.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use switch::Now;
use switch::flow::{Field, Flow, Translated, TranslationInput};

use super::requests::{Asking, Barrier};
use super::sweep::ROUND_NS;
use super::teaching::Source;
use super::upcall::translate;
use super::{IDLE_FULL_NS, IDLE_NS, PACKETS_NS, SAMPLE, SLICE, SlowPath};
use crate::clock::monotonic;
use crate::connections::{Connections, milliseconds};
use crate::flows::{CacheCommand, FlowTables, MeterLive, UpcallPorts};

/// Number of revalidated megaflows after which the slow path checks for pending upcalls. The number applies only if
/// none of the megaflows had to be translated again.
const BREATH: usize = 16;
/// Minimum time in nanoseconds that the slow path revalidates megaflows before it processes pending upcalls, if
/// megaflows must be translated again. With a shorter time, the slow path would spend most time on switching between
/// the two tasks.
const LEAST_NS: u64 = 10_000;
/// Maximum number of meters whose statistics are added to the tables before the lock of the tables is released.
const METERS: usize = 1024;
/// Time in nanoseconds after which the revalidation of one bridge's megaflows is interrupted, so that another
/// bridge can be next.
const SLICE_NS: u64 = PACKETS_NS;
/// Number of unread messages in the ring to a worker above which revalidation pauses, so that the packet of an upcall
/// does not have to wait for more messages.
const QUEUED: usize = 256;

impl SlowPath {
    /// Revalidates some megaflows of one bridge. While a barrier of the bridge is in progress, the revalidation counts
    /// for the barrier. Otherwise, the work is spread over the duration of a revalidation round. Returns whether there
    /// was any work.
    pub(super) fn look(&mut self, now: u64) -> bool {
        self.begin_barriers();
        let barriers = &self.barriers;
        let next = self.sweeps.next(now, |bridge| barriers.iter().any(|own| own.left_of(bridge).is_some()));
        if let Some(bridge) = next {
            let begin = monotonic().ns;
            let barrier = self.barriers.iter().enumerate();
            let barrier = barrier.filter_map(|(at, own)| Some((at, own.left_of(bridge)?))).next();
            let is_locked = if let Some((at, left)) = barrier {
                let (left, is_locked) = self.slice(bridge, left, 4 * SLICE, now);
                self.barriers[at].set_left(bridge, left);
                is_locked
            } else {
                let (left, due) = self.sweeps.round(bridge, now);
                let (left, is_locked) = self.slice(bridge, left, due.min(SLICE), now);
                self.sweeps.set_left(bridge, left);
                is_locked
            };
            let (took, is_round) = (monotonic().ns - begin, barrier.is_none());
            if is_locked {
                self.sweeps.charge_locked(bridge, took, SLICE_NS, is_round);
            } else {
                self.sweeps.charge(bridge, took, is_round);
            }
        }
        let did = self.sync_barriers() || next.is_some();
        let work_ns = self.sweeps.work_ns();
        if now.saturating_sub(self.evaluated_ns) >= work_ns.max(ROUND_NS) {
            self.evaluate(now, work_ns);
        }
        did
    }

    /// Starts the barriers that control threads have requested. A request waits while another barrier of its bridge is
    /// in progress, or while a control thread has locked the tables of its bridge.
    fn begin_barriers(&mut self) {
        if self.asking.is_empty() {
            return;
        }
        let mut later = Vec::new();
        let mut begun: Vec<Barrier> = Vec::new();
        for asking in std::mem::take(&mut self.asking) {
            if let Some(barrier) = begun.iter_mut().find(|own| Arc::ptr_eq(&own.tables, &asking.tables)) {
                barrier.done.push(asking.done);
            } else if self.has_barrier(&asking.tables) || asking.tables.lock_for_packets().is_none() {
                later.push(asking);
            } else {
                begun.push(self.barrier_of(asking));
            }
        }
        self.asking = later;
        self.barriers.append(&mut begun);
    }

    /// Creates the barrier for a barrier request. The barrier includes the megaflows of removed bridges, for which no
    /// barrier can be requested.
    fn barrier_of(&mut self, asking: Asking) -> Barrier {
        self.syncs += 1;
        let served = self.bridges();
        let own = asking.tables.number();
        let swept = self.sweeps.bridges().filter(|bridge| *bridge == own || !served.contains_key(bridge));
        Barrier {
            done: vec![asking.done],
            sweep: Some(swept.map(|bridge| (bridge, self.sweeps.len(bridge))).collect()),
            number: self.syncs,
            left: vec![true; self.workers.len()],
            again: vec![false; self.workers.len()],
            resync: vec![false; self.workers.len()],
            hook: None,
            tables: asking.tables,
        }
    }

    /// Returns whether a barrier is in progress for the bridge with these tables.
    pub(super) fn has_barrier(&self, tables: &Arc<FlowTables>) -> bool {
        self.barriers.iter().any(|barrier| Arc::ptr_eq(&barrier.tables, tables))
    }

    /// Sends the synchronization messages of the barriers whose megaflows have been revalidated. Returns whether there
    /// were any such barriers.
    fn sync_barriers(&mut self) -> bool {
        let mut did = false;
        for at in 0..self.barriers.len() {
            let sweeps = &self.sweeps;
            let sweep = &mut self.barriers[at].sweep;
            // All megaflows of a bridge may have been removed meanwhile.
            if let Some(left) = sweep {
                left.retain(|(bridge, left)| *left > 0 && sweeps.len(*bridge) > 0);
            }
            if sweep.take_if(|left| left.is_empty()).is_none() {
                continue;
            }
            did = true;
            self.barriers[at].hook = self.fence();
            self.pay();
            for worker in 0..self.workers.len() {
                self.answer(worker, CacheCommand::Sync(self.barriers[at].number));
                self.workers[worker].waker.notify_if_sleeping();
            }
        }
        did
    }

    /// Records that a worker has confirmed the synchronization message of the barrier with number `number`.
    pub(super) fn synced(&mut self, worker: usize, number: u64) {
        let is_owed = !self.owed[worker].is_empty();
        let Some(barrier) = self.barriers.iter_mut().find(|barrier| barrier.number == number) else { return };
        if std::mem::take(&mut barrier.again[worker]) || is_owed {
            barrier.resync[worker] = true;
        } else {
            barrier.left[worker] = false;
        }
    }

    /// Sends the due removals of megaflows to the workers. Sends a new synchronization message of a barrier to
    /// each worker that confirmed the last message while removals were still due.
    pub(super) fn pay(&mut self) {
        for worker in 0..self.workers.len() {
            while let Some(at) = self.owed[worker].pop() {
                self.answer(worker, CacheCommand::Remove(at));
            }
            for at in 0..self.barriers.len() {
                if std::mem::take(&mut self.barriers[at].resync[worker]) {
                    self.answer(worker, CacheCommand::Sync(self.barriers[at].number));
                }
            }
        }
    }

    /// Adapts the flow limit to the time that one revalidation of all megaflows takes, and updates the
    /// statistics. The slow path calls this function once per revalidation round, or less often if the
    /// revalidation takes longer than a round.
    fn evaluate(&mut self, now: u64, took: u64) {
        self.evaluated_ns = now;
        self.view.round_us.store(took / 1000, Ordering::Relaxed);
        let most = self.knobs.limit.load(Ordering::Relaxed) as usize;
        // A round should take less than a second, as in Open vSwitch's design.
        if took > 1_000_000_000 {
            self.limit = (self.limit * 3 / 4).max(1000);
        } else if took < 500_000_000 {
            self.limit = (self.limit + 1000).min(most);
        }
        self.limit = self.limit.min(most);
        let flows = self.flows as u64;
        self.view.flows.store(flows, Ordering::Relaxed);
        // The average is computed as in Open vSwitch, with this round weighted by one half.
        let mean = self.view.mean_flows.load(Ordering::Relaxed);
        self.view.mean_flows.store(u64::midpoint(mean, flows), Ordering::Relaxed);
        self.view.most_flows.fetch_max(flows, Ordering::Relaxed);
        self.view.limit.store(self.limit as u64, Ordering::Relaxed);
    }

    /// Revalidates at most `most` of the first `left` megaflow records of a bridge, beginning with
    /// the last one. Returns the number of records that are left, and whether the function stopped
    /// because a control thread had locked the tables. The function also stops when its time slice is
    /// used up. If upcalls are pending, the function stops earlier: after 16 records without a
    /// translation, or after a translation when 10 us have passed. However, the function may continue
    /// for as long as earlier upcalls have taken.
    fn slice(&mut self, bridge: u16, left: usize, most: usize, now: u64) -> (usize, bool) {
        let begin = monotonic().ns;
        let (mut left, mut is_locked) = (left.min(self.sweeps.len(bridge)), false);
        for done in 1..=most.min(left) {
            left -= 1;
            let Some(id) = self.sweeps.get(bridge, left) else { break };
            let Some(followed) = self.look_at(id, now) else {
                // The next slice begins with the same record.
                (left, is_locked) = (left + 1, true);
                break;
            };
            if !followed && !done.is_multiple_of(BREATH) {
                continue;
            }
            let took = monotonic().ns - begin;
            let is_time = !followed || took >= self.packets_ns.max(LEAST_NS);
            let is_interrupted =
                is_time && (self.somebody_waits() || self.knobs.stop.load(Ordering::Acquire));
            if is_interrupted || took >= SLICE_NS {
                break;
            }
        }
        self.packets_ns = self.packets_ns.saturating_sub(monotonic().ns - begin);
        (left, is_locked)
    }

    /// Returns whether upcalls are pending, or whether a worker has more than `QUEUED` unread messages, which
    /// would delay the packet of the next upcall.
    fn somebody_waits(&self) -> bool {
        self.workers.iter().any(|end| !end.upcalls.is_empty() || end.answers.len() > QUEUED)
    }

    /// Revalidates one megaflow: reads its statistics, applies the idle timeout, and checks its actions.
    /// Returns whether the megaflow was translated again or learn actions were executed, which takes longer. Returns
    /// `None` without revalidating the megaflow if a control thread has locked the tables.
    fn look_at(&mut self, id: u32, now: u64) -> Option<bool> {
        let Some(Some(record)) = self.records.get(id as usize) else { return Some(false) };
        if record.leaving {
            return Some(false);
        }
        let (worker, port, ingress, mask) =
            (record.worker, record.ports.port, record.ports.ingress, record.mask);
        let too_many = self.flows >= self.limit
            && self.budgets.is_over_share(worker, ingress, self.flows, self.flow_limit());
        let idle = if too_many { IDLE_FULL_NS } else { IDLE_NS };
        let is_outdone = self.budgets.is_outdone(worker, port, mask);
        let bridge = Arc::clone(&record.bridge);
        let used = record.live.used_ns.get().max(record.created_ns).max(self.used_in_hook(record));
        let fresh = record.live.packets.get() != record.seen.0 || self.is_fresh_in_hook(record);
        let (version, is_current) = (record.version, self.is_served(&bridge));
        let mut pipeline = bridge.tables.lock_for_packets()?;
        let counts = if fresh { self.take_counts(id) } else { None };
        if let Some(counts) = counts {
            counts.credit(&mut pipeline);
        }
        let Some(Some(record)) = self.records.get(id as usize) else { return Some(false) };
        // Learn actions may take as long as a translation.
        let taught = fresh && !record.actions.learns.is_empty();
        if taught {
            let source = (bridge.tables.number(), Source::Port(ingress));
            let skipped = self.teaching.teach(&mut pipeline, source, &record.actions.learns, now);
            self.view.skipped_learns.fetch_add(skipped, Ordering::Relaxed);
        }
        if !is_current || is_outdone || now.saturating_sub(used) > idle {
            bridge.tables.unlock_for_packets(pipeline);
            self.dismiss(id);
            return Some(taught);
        }
        let changed = pipeline.version() != version && {
            let (flow, mask) = record.bits.both();
            let arrived =
                switch::flow::Match { value: with_port(&flow, record.in_port), mask: with_all_ports(&mask) };
            let actions = &record.actions;
            // A packet that was recirculated may be looked up in the first table with other registers.
            let is_first = !actions.first_again && record.recirculation.is_none();
            pipeline.may_differ(version, &actions.tables, is_first.then_some(&arrived))
        };
        // A sample of the megaflows is translated again without a change of the tables. A difference
        // indicates a defect of the slow path.
        let sampled = (u64::from(id) + self.second).is_multiple_of(SAMPLE);
        if !changed && !sampled {
            let version = pipeline.version();
            bridge.tables.unlock_for_packets(pipeline);
            if let Some(Some(record)) = self.records.get_mut(id as usize) {
                record.version = version;
            }
            self.judge(id, now);
            return Some(taught);
        }
        self.view.revalidated.fetch_add(u64::from(changed), Ordering::Relaxed);
        // The number of a port that has left the bridge may be reused. No old megaflow may match packets of
        // the new port.
        let Some(in_port) = pipeline.number_of(record.arrival) else {
            bridge.tables.unlock_for_packets(pipeline);
            self.dismiss(id);
            return Some(taught);
        };
        let asked = with_port(&record.bits.both().0, in_port);
        let asked = TranslationInput { flow: &asked, frame: None, trace: false };
        let mut actions = translate(&pipeline, asked, record.recirculation.as_deref());
        let ports = UpcallPorts { ingress, port: record.arrival };
        let before = Arc::clone(&record.actions.compiled);
        self.prepare_tracking(&bridge, ports, &mut actions);
        let (version, same) = (pipeline.version(), actions.program == before.program);
        let meters = self.meters_of(&bridge, &actions.program.ops, &mut pipeline);
        bridge.tables.unlock_for_packets(pipeline);
        if !changed {
            // Other bits may lead to the same result. Bits outside the mask are 0 in this translation, which
            // the rules may match in a different way than the original packet's bits.
            if same {
                if let Some(Some(record)) = self.records.get_mut(id as usize) {
                    record.version = version;
                }
                self.judge(id, now);
                return Some(true);
            }
            self.view.wrong.fetch_add(1, Ordering::Relaxed);
        }
        self.update_actions(id, actions, meters, in_port, version);
        Some(true)
    }

    /// Updates a megaflow to the result of a new translation (lookup in the flow tables). If the actions have changed,
    /// the new actions are sent to the worker. If the result depends on more key bits than the mask contains, the
    /// megaflow is removed.
    fn update_actions(
        &mut self,
        id: u32,
        actions: Translated,
        meters: Vec<(u32, Arc<MeterLive>)>,
        in_port: u32,
        version: u64,
    ) {
        let Some(Some(record)) = self.records.get(id as usize) else { return };
        let (ingress, mask) = (record.ports.ingress, record.bits.both().1);
        let wider = actions.mask.0.iter().zip(mask.0).any(|(needs, has)| needs & !has != 0);
        if wider || !actions.is_cacheable() || !self.cached_actions.has_room(ingress, &actions) {
            return self.dismiss(id);
        }
        let same = record.actions.compiled.is_same(&actions.program, actions.dropped, &meters);
        if !same || !actions.learns.is_empty() {
            // Packets counted until the removal belong to the old rules.
            self.unhook(id);
        }
        let actions = self.cached_actions.shared(ingress, actions, meters, true);
        let Some(Some(record)) = self.records.get_mut(id as usize) else { return };
        (record.version, record.in_port) = (version, in_port);
        record.actions = Arc::clone(&actions);
        if same {
            return self.judge(id, monotonic().ns);
        }
        match (record.at, record.worker) {
            (Some(at), worker) => {
                self.answer(worker, CacheCommand::Replace(at, Arc::clone(&actions.compiled)))
            }
            // The location of the megaflow is not known yet. The megaflow is removed as soon as the location
            // is known.
            (None, _) => self.dismiss(id),
        }
    }

    /// Sends the removal of a megaflow to its worker's cache, and removes the megaflow from the map of installed
    /// megaflows and from the XDP hook.
    pub(super) fn dismiss(&mut self, id: u32) {
        self.unhook(id);
        let Some(Some(record)) = self.records.get_mut(id as usize) else { return };
        record.leaving = true;
        let (at, worker, name) = (record.at, record.worker, record.name);
        if let Some(Some(record)) = self.records.get(id as usize) {
            self.tell(record, false);
        }
        self.unname(name, id);
        if let Some(at) = at {
            self.answer(worker, CacheCommand::Remove(at));
        }
    }

    /// Completes the barriers that every worker has confirmed and for which the grace period of the XDP hook has ended.
    /// Returns whether any barrier was completed.
    pub(super) fn settle(&mut self) -> bool {
        let mut did = false;
        for at in (0..self.barriers.len()).rev() {
            let barrier = &self.barriers[at];
            if barrier.sweep.is_some() || barrier.left.contains(&true) || !self.has_passed(barrier.hook) {
                continue;
            }
            did = true;
            let Barrier { tables, done, .. } = self.barriers.remove(at);
            // The events of earlier packet-outs come before the answer to the barrier request.
            done.into_iter().for_each(|done| tables.notify_after_events(done));
        }
        did
    }

    /// Continues the removal of expired rules on bridges that had more expired rules than one call can remove.
    pub(super) fn expire(&mut self, now: u64) {
        self.expiring = false;
        for bridge in self.bridges().into_values() {
            let Some(mut pipeline) = bridge.tables.lock_for_packets() else { continue };
            if !pipeline.is_expiring() {
                continue;
            }
            self.expiring |= pipeline.expire(now);
            bridge.tables.unlock_for_packets(pipeline);
        }
    }

    /// Performs periodic work on the tables: removes expired rules, and adds the meters' statistics to the
    /// tables. The slow path calls this function twice a second.
    pub(super) fn tick(&mut self, now: u64) {
        let bridges = self.bridges();
        self.meters.retain(|(number, _), (of, _)| {
            bridges.get(number).is_some_and(|here| Arc::ptr_eq(&here.tables, of))
        });
        let mut meters: HashMap<u16, Vec<u32>> = HashMap::new();
        for (number, id) in self.meters.keys() {
            meters.entry(*number).or_default().push(*id);
        }
        for bridge in bridges.into_values() {
            let own = meters.remove(&bridge.tables.number()).unwrap_or_default();
            own.chunks(METERS).for_each(|ids| self.credit_meters(&bridge.tables, ids));
            // Tables that a control thread holds for long are processed by the next call.
            let Some(mut pipeline) = bridge.tables.lock_for_packets() else { continue };
            self.expiring |= pipeline.expire(now);
            bridge.tables.unlock_for_packets(pipeline);
        }
        self.budgets.turn(self.every_bit);
        self.teaching.turn();
        self.recirculations.forget_unused();
        self.sweep_connections(now);
        self.view.memory.store(self.memory() as u64, Ordering::Relaxed);
        self.view.flows.store(self.flows as u64, Ordering::Relaxed);
        self.view.limit.store(self.limit as u64, Ordering::Relaxed);
    }

    /// Removes expired connections. The bridges of a data path share their connections.
    fn sweep_connections(&self, now: u64) {
        let mut swept: Vec<Arc<Connections>> = Vec::new();
        for bridge in self.bridges().into_values() {
            if !swept.iter().any(|own| Arc::ptr_eq(own, &bridge.connections)) {
                bridge.connections.sweep(milliseconds(Now::from_ns(now)));
                swept.push(Arc::clone(&bridge.connections));
            }
        }
    }

    /// Adds the statistics of the meters `ids` to the tables under one lock of the tables. Removes the state of meters
    /// that no longer exist.
    fn credit_meters(&mut self, tables: &FlowTables, ids: &[u32]) {
        let Some(mut pipeline) = tables.lock_for_packets() else { return };
        for id in ids {
            let Entry::Occupied(own) = self.meters.entry((tables.number(), *id)) else { continue };
            if pipeline.meter(*id).is_none() {
                own.remove();
                continue;
            }
            let (_, live) = own.get();
            if live.has_counts() {
                let (packets, bytes, bands) = live.take();
                pipeline.credit_meter(*id, packets, bytes, &bands);
            }
        }
    }
}

pub(super) fn with_port(flow: &Flow, in_port: u32) -> Flow {
    let mut own = *flow;
    own.set(Field::InPort, u128::from(in_port));
    own
}

fn with_all_ports(mask: &Flow) -> Flow {
    let mut own = *mask;
    own.want(Field::InPort);
    own
}
