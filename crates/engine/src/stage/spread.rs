//! Software RSS: spreads one queue's packets over the workers by the symmetric hash of their flow and a table that control may
//! change. A bucket that moves takes its flows' order along (see [`crate::handover`]).

use std::sync::Arc;

use packet::record::{Recorder, Step};
use packet::{DropReason, FlowKey, PortId, WorkerId};

use crate::burst::Burst;
use crate::handover::{Links, Work};
use crate::stage::Tools;
use crate::state::SPREAD_BUCKETS;

/// The table as a queue applies it: it follows the published one, bucket by bucket.
pub struct Applied {
    table: Box<[WorkerId; SPREAD_BUCKETS]>,
    /// The published table that has been reached.
    reached: Option<Arc<[WorkerId; SPREAD_BUCKETS]>>,
    /// Some of its packets may be with other workers, or wait for them.
    away: bool,
}

impl Applied {
    /// All buckets stay with the queue's owner.
    #[must_use]
    pub fn new(owner: WorkerId) -> Self {
        Self { table: Box::new([owner; SPREAD_BUCKETS]), reached: None, away: false }
    }

    /// Moves the buckets whose worker has changed. One wait per pair of old and new worker covers all buckets between them.
    fn follow(&mut self, wanted: &Arc<[WorkerId; SPREAD_BUCKETS]>, links: &mut Links) {
        if self.reached.as_ref().is_some_and(|reached| Arc::ptr_eq(reached, wanted)) {
            return;
        }
        self.away = true;
        if self.follow_each(|bucket| wanted[bucket], links) {
            self.reached = Some(wanted.clone());
        }
    }

    /// Takes all buckets back: the port is not spread any more.
    fn return_home(&mut self, links: &mut Links) {
        let me = links.me();
        self.reached = None;
        self.away = !self.follow_each(|_| me, links) || !links.self_is_quiet();
    }

    /// Whether all has been moved; if not, there is no room for a wait, and the rest moves with a later burst.
    fn follow_each(&mut self, wanted: impl Fn(usize) -> WorkerId, links: &mut Links) -> bool {
        let workers = links.workers();
        for bucket in 0..SPREAD_BUCKETS {
            let (old, new) = (self.table[bucket], wanted(bucket));
            if old == new || new.index() >= workers {
                continue;
            }
            if !links.move_bucket(old, new) {
                return false;
            }
            for later in bucket..SPREAD_BUCKETS {
                if self.table[later] == old && wanted(later) == new {
                    self.table[later] = new;
                }
            }
        }
        true
    }

    /// Whether packets must pass by the table although the port is not spread (any more).
    #[inline]
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.away
    }
}

/// That the bucket of this key belongs to `worker`.
pub(crate) fn step(key: &FlowKey, worker: WorkerId) -> Step {
    let bucket = key.hash_symmetric() as usize % SPREAD_BUCKETS;
    Step::Spread { bucket: u16::try_from(bucket).unwrap_or(0), worker }
}

/// Hands each packet whose bucket belongs to another worker to it; the others stay in `burst`, in order. Without a table that is wanted
/// the buckets return to the queue's owner, in order as well. `seen`: whether the port has an own stage, which has run.
#[allow(clippy::too_many_arguments, reason = "the worker's parts, borrowed apart")]
pub fn run<R: Recorder>(
    port: PortId,
    seen: bool,
    wanted: Option<&Arc<[WorkerId; SPREAD_BUCKETS]>>,
    applied: &mut Applied,
    burst: &mut Burst,
    links: &mut Links,
    tools: &mut Tools,
    recorder: &mut R,
) {
    match wanted {
        Some(wanted) => applied.follow(wanted, links),
        None => applied.return_home(links),
    }
    let me = links.me();
    let mut touched = [false; 64];
    for (i, packet) in std::mem::take(&mut *burst.packets).into_iter().enumerate() {
        let bucket = burst.keys[i].hash_symmetric() as usize % SPREAD_BUCKETS;
        let worker = applied.table[bucket];
        if R::ACTIVE {
            recorder.step(i, step(&burst.keys[i], worker));
        }
        if worker == me && links.self_is_quiet() {
            let kept = burst.packets.len();
            burst.keys[kept] = burst.keys[i];
            burst.layers[kept] = burst.layers[i];
            burst.packets.push(packet);
            continue;
        }
        let refused = match links.work_to(worker) {
            Some(ring) => match ring.push(Work::Process { packet, port, seen }) {
                Err(Work::Process { packet, .. }) => Some(packet),
                Ok(()) | Err(Work::Wait(_)) => None,
            },
            None => Some(packet),
        };
        if let Some(packet) = refused {
            recorder.step(i, Step::Dropped(DropReason::WorkerRingFull));
            tools.drop(packet, port, DropReason::WorkerRingFull);
        } else if let Some(flag) = touched.get_mut(worker.index()) {
            *flag = true;
        }
    }
    for (worker, _) in (0_u16..).zip(touched).filter(|(_, touched)| *touched) {
        links.notify(WorkerId(worker));
    }
}
