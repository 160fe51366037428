//! Revalidation of the megaflows, which reads their statistics, removes idle megaflows, and compares the
//! cached actions with the tables. A barrier waits until all megaflows have been revalidated.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use switch::flow::{Asked as Question, Field, Flow, Translated};

use super::{Asking, Barrier, Decider, IDLE_FULL_NS, IDLE_NS, ROUND_NS, SAMPLE, SLICE};
use crate::flows::{Answer, FlowTables, MeterLive};
use crate::worker::monotonic;

/// Number of revalidated megaflows after which the slow path checks for pending upcalls, if no megaflow had
/// to be translated again.
const BREATH: usize = 16;
/// Minimum time in nanoseconds that the slow path revalidates megaflows with translations before it serves
/// pending upcalls. A shorter time would be spent mostly on switching between the two tasks.
const LEAST_NS: u64 = 10_000;
/// Number of unread answers in a worker's ring above which revalidation pauses, so that the answer to an
/// upcall does not wait behind more answers.
const QUEUED: usize = 256;

impl Decider {
    /// Revalidates a slice of the megaflows. While a barrier is pending, each round processes a slice until
    /// all megaflows are revalidated. Otherwise, the slices are distributed over the duration of a
    /// revalidation round. Returns whether there was any work.
    pub(super) fn look(&mut self, now: u64) -> bool {
        // A request for tables that a control thread holds for long waits, without delaying other requests.
        let may = |asking: &mut Asking| asking.tables.lock_for_packets().is_some();
        let asking =
            if self.barrier.is_none() { self.asking.extract_if(.., may).collect() } else { Vec::new() };
        if !asking.is_empty() {
            self.syncs += 1;
            self.barrier = Some(Barrier {
                asking,
                missed: Vec::new(),
                sweep: Some(0),
                number: self.syncs,
                left: vec![true; self.workers.len()],
                again: vec![false; self.workers.len()],
                hook: None,
            });
        }
        let begin = monotonic().ns;
        let mut did = false;
        if let Some(at) = self.barrier.as_ref().and_then(|barrier| barrier.sweep) {
            let end = (at + 4 * SLICE).min(self.records.len());
            let end = self.slice(at, end, now);
            did = true;
            let all = end >= self.records.len();
            if let Some(barrier) = &mut self.barrier {
                barrier.sweep = (!all).then_some(end);
                let number = barrier.number;
                if all {
                    let hook = self.fence();
                    if let Some(barrier) = &mut self.barrier {
                        barrier.hook = hook;
                    }
                    self.pay();
                    for worker in 0..self.workers.len() {
                        self.answer(worker, Answer::Sync(number));
                        self.workers[worker].waker.notify_if_sleeping();
                    }
                }
            }
        } else if self.cursor < self.records.len() {
            // The slices are distributed over the duration of a round, so that an idle core stays idle. More
            // megaflows lead to larger slices.
            let due =
                self.records.len() as u64 * now.saturating_sub(self.round_began).min(ROUND_NS) / ROUND_NS;
            let due = usize::try_from(due).unwrap_or(usize::MAX);
            if due > self.cursor {
                let end = due.min(self.cursor + SLICE).min(self.records.len());
                self.cursor = self.slice(self.cursor, end, now);
                did = true;
            }
        } else if now.saturating_sub(self.round_began) >= ROUND_NS {
            self.end_round(now);
        }
        self.round_work_ns += monotonic().ns - begin;
        did
    }

    fn end_round(&mut self, now: u64) {
        let took = self.round_work_ns;
        self.view.round_us.store(took / 1000, Ordering::Relaxed);
        let most = self.knobs.limit.load(Ordering::Relaxed) as usize;
        // A round should take less than a second, as in Open vSwitch's design.
        if took > 1_000_000_000 {
            self.limit = (self.limit * 3 / 4).max(1000);
        } else if took < 500_000_000 {
            self.limit = (self.limit + 1000).min(most);
        }
        self.limit = self.limit.min(most);
        (self.cursor, self.round_began, self.round_work_ns) = (0, now, 0);
        let flows = self.flows as u64;
        self.view.flows.store(flows, Ordering::Relaxed);
        // The average is computed as in Open vSwitch, with this round weighted by one half.
        let mean = self.view.mean_flows.load(Ordering::Relaxed);
        self.view.mean_flows.store(u64::midpoint(mean, flows), Ordering::Relaxed);
        self.view.most_flows.fetch_max(flows, Ordering::Relaxed);
        self.view.limit.store(self.limit as u64, Ordering::Relaxed);
    }

    /// Revalidates the megaflow records `from..to`. Returns the index of the first record that was not
    /// processed. If upcalls are pending, the function stops early: at the latest after 16 records without a
    /// translation, or after a translation when 10 us have passed. To compensate for the time spent on
    /// earlier upcalls, it continues with translations for as long as those upcalls took.
    fn slice(&mut self, from: usize, to: usize, now: u64) -> usize {
        let begin = monotonic().ns;
        let mut came = to;
        for at in from..to {
            let Ok(id) = u32::try_from(at) else { break };
            let followed = self.look_at(id, now);
            let is_time = if followed {
                monotonic().ns - begin >= self.packets_ns.max(LEAST_NS)
            } else {
                (at - from) % BREATH == BREATH - 1
            };
            if is_time && (self.somebody_waits() || self.knobs.stop.load(Ordering::Acquire)) {
                came = at + 1;
                break;
            }
        }
        self.packets_ns = self.packets_ns.saturating_sub(monotonic().ns - begin);
        came
    }

    /// Returns whether upcalls are pending, or whether a worker has more than `QUEUED` unread answers, which
    /// would delay the answer to the next upcall.
    fn somebody_waits(&self) -> bool {
        self.workers.iter().any(|end| !end.upcalls.is_empty() || end.answers.len() > QUEUED)
    }

    /// Revalidates one megaflow: reads its statistics, applies the idle timeout, and checks its actions.
    /// Returns whether the megaflow was translated again or learn actions were executed, which takes longer.
    fn look_at(&mut self, id: u32, now: u64) -> bool {
        let Some(Some(record)) = self.records.get(id as usize) else { return false };
        if record.leaving {
            return false;
        }
        let (worker, port, mask) = (record.worker, record.port, record.mask);
        let too_many = self.flows >= self.limit
            && self.budgets.is_over_share(worker, port, self.flows, self.flow_limit());
        let idle = if too_many { IDLE_FULL_NS } else { IDLE_NS };
        let is_outdone = self.budgets.is_outdone(worker, port, mask);
        let bridge = Arc::clone(&record.bridge);
        let used = record.live.used_ns.get().max(record.created_ns).max(self.used_in_hook(record));
        let fresh = record.live.packets.get() != record.seen.0 || self.is_fresh_in_hook(record);
        let (version, is_current) = (record.version, self.is_served(&bridge));
        let Some(mut pipeline) = bridge.tables.lock_for_packets() else {
            self.miss_for_barrier(&bridge.tables);
            return false;
        };
        let counts = if fresh { self.take_counts(id) } else { None };
        if let Some(counts) = counts {
            counts.credit(&mut pipeline);
        }
        let Some(Some(record)) = self.records.get(id as usize) else { return false };
        // Learn actions may take as long as a translation.
        let taught = fresh && !record.fate.learns.is_empty();
        if taught {
            self.teaching.teach(&mut pipeline, &record.fate.learns, now);
        }
        if !is_current || is_outdone || now.saturating_sub(used) > idle {
            drop(pipeline);
            self.dismiss(id);
            return taught;
        }
        let changed = pipeline.version() != version && {
            let (flow, mask) = record.bits.both();
            let arrived =
                switch::flow::Match { value: with_port(&flow, record.in_port), mask: with_all_ports(&mask) };
            let fate = &record.fate;
            pipeline.may_differ(version, &fate.tables, (!fate.first_again).then_some(&arrived))
        };
        // A sample of the megaflows is translated again without a change of the tables. A difference
        // indicates a defect of the slow path.
        let sampled = (u64::from(id) + self.second).is_multiple_of(SAMPLE);
        if !changed && !sampled {
            let version = pipeline.version();
            drop(pipeline);
            if let Some(Some(record)) = self.records.get_mut(id as usize) {
                record.version = version;
            }
            self.judge(id, now);
            return taught;
        }
        self.view.revalidated.fetch_add(u64::from(changed), Ordering::Relaxed);
        // The number of a port that has left the bridge may be reused. No old megaflow may match packets of
        // the new port.
        let Some(in_port) = pipeline.number_of(record.port) else {
            drop(pipeline);
            self.dismiss(id);
            return taught;
        };
        let asked = with_port(&record.bits.both().0, in_port);
        let fate = pipeline.translate(Question { flow: &asked, frame: None, trace: false });
        let (version, same) = (pipeline.version(), fate.program == record.fate.compiled.program);
        let meters = self.meters_of(&bridge, &fate.program.ops, &mut pipeline);
        drop(pipeline);
        if !changed {
            // Other bits may lead to the same result. Bits outside the mask are 0 in this translation, which
            // the rules may match in a different way than the original packet's bits.
            if same {
                if let Some(Some(record)) = self.records.get_mut(id as usize) {
                    record.version = version;
                }
                self.judge(id, now);
                return true;
            }
            self.view.wrong.fetch_add(1, Ordering::Relaxed);
        }
        self.refate(id, fate, meters, in_port, version);
        true
    }

    /// Records for the barrier in progress that a megaflow of the bridge with these tables could not be
    /// revalidated.
    fn miss_for_barrier(&mut self, tables: &Arc<FlowTables>) {
        if let Some(barrier) = self.barrier.as_mut().filter(|barrier| barrier.sweep.is_some())
            && !barrier.missed.iter().any(|missed| Arc::ptr_eq(missed, tables))
        {
            barrier.missed.push(Arc::clone(tables));
        }
    }

    /// Updates a megaflow to the result of a new translation. If the new actions differ, the worker gets the
    /// new actions. If the result depends on more key bits than the mask contains, the megaflow is removed.
    fn refate(
        &mut self,
        id: u32,
        fate: Translated,
        meters: Vec<(u32, Arc<MeterLive>)>,
        in_port: u32,
        version: u64,
    ) {
        let Some(Some(record)) = self.records.get(id as usize) else { return };
        let mask = record.bits.both().1;
        let wider = fate.mask.0.iter().zip(mask.0).any(|(needs, has)| needs & !has != 0);
        if wider || !fate.is_cacheable() {
            return self.dismiss(id);
        }
        let same = record.fate.compiled.is_same(&fate.program, fate.dropped, &meters);
        if !same || !fate.learns.is_empty() {
            // Packets counted until the removal belong to the old rules.
            self.unhook(id);
        }
        let fate = self.fates.shared(fate, meters);
        let Some(Some(record)) = self.records.get_mut(id as usize) else { return };
        (record.version, record.in_port) = (version, in_port);
        record.fate = Arc::clone(&fate);
        if same {
            return self.judge(id, monotonic().ns);
        }
        match (record.at, record.worker) {
            (Some(at), worker) => self.answer(worker, Answer::Replace(at, Arc::clone(&fate.compiled))),
            // The location of the megaflow is not known yet. The megaflow is removed as soon as the location
            // is known.
            (None, _) => self.dismiss(id),
        }
    }

    /// Sends the removal of a megaflow to its worker's cache, and removes the megaflow from the index and
    /// from the driver hook.
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
            self.answer(worker, Answer::Remove(at));
        }
    }

    /// Completes the barrier in progress if every worker and the driver hook have reached it. Returns whether
    /// the barrier was completed.
    pub(super) fn settle(&mut self) -> bool {
        let is_done = self
            .barrier
            .as_ref()
            .is_some_and(|barrier| barrier.sweep.is_none() && !barrier.left.contains(&true))
            && self.has_passed(self.barrier.as_ref().and_then(|barrier| barrier.hook));
        if is_done && let Some(barrier) = self.barrier.take() {
            for asking in barrier.asking {
                if barrier.missed.iter().any(|missed| Arc::ptr_eq(missed, &asking.tables)) {
                    self.asking.push(asking);
                } else {
                    (asking.done)();
                }
            }
        }
        is_done
    }

    /// Continues the removal of expired rules on bridges that had more expired rules than one call removes.
    pub(super) fn expire(&mut self, now: u64) {
        self.expiring = false;
        for bridge in self.bridges().into_values() {
            let events = {
                let Some(mut pipeline) = bridge.tables.lock_for_packets() else { continue };
                if !pipeline.is_expiring() {
                    continue;
                }
                self.expiring |= pipeline.expire(now);
                pipeline.take_events()
            };
            bridge.tables.publish(events);
        }
    }

    /// Performs periodic work on the tables: removes expired rules, and adds the meters' statistics to the
    /// tables. The slow path calls this function twice a second.
    pub(super) fn tick(&mut self, now: u64) {
        let bridges = self.bridges();
        self.meters.retain(|(number, _), (of, _)| {
            bridges.get(number).is_some_and(|here| Arc::ptr_eq(&here.tables, of))
        });
        for bridge in bridges.into_values() {
            let events = {
                // Tables that a control thread holds for long are processed by the next call.
                let Some(mut pipeline) = bridge.tables.lock_for_packets() else { continue };
                for ((_, id), (of, live)) in &self.meters {
                    if Arc::ptr_eq(of, &bridge.tables) {
                        let (packets, bytes, bands) = live.take();
                        pipeline.credit_meter(*id, packets, bytes, &bands);
                    }
                }
                let number = bridge.tables.number();
                self.meters.retain(|(own, id), _| *own != number || pipeline.meter(*id).is_some());
                self.expiring |= pipeline.expire(now);
                pipeline.take_events()
            };
            bridge.tables.publish(events);
        }
        self.budgets.turn(self.every_bit);
        self.teaching.turn();
        self.view.memory.store(self.memory() as u64, Ordering::Relaxed);
        self.view.flows.store(self.flows as u64, Ordering::Relaxed);
        self.view.limit.store(self.limit as u64, Ordering::Relaxed);
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
