//! Software RSS: distributes one queue's packets over the workers by the symmetric hash of their flow and a
//! table that control may change. The order of packets within a flow is kept when a bucket moves (see
//! [`crate::handover`]).

use std::sync::Arc;

use packet::record::{Recorder, Step};
use packet::{DropReason, FlowKey, PortId, WorkerId};

use crate::burst::Burst;
use crate::handover::{Links, Work};
use crate::stage::Tools;
use crate::state::SPREAD_BUCKETS;

/// Software RSS table as one queue applies it. The table follows the published table, bucket by bucket.
pub struct Applied {
    table: Box<[WorkerId; SPREAD_BUCKETS]>,
    /// Published table that this table equals.
    reached: Option<Arc<[WorkerId; SPREAD_BUCKETS]>>,
    /// Whether packets of the queue may be at other workers, or wait for them.
    away: bool,
}

impl Applied {
    /// Assigns all buckets to the queue's owner.
    #[must_use]
    pub fn new(owner: WorkerId) -> Self {
        Self { table: Box::new([owner; SPREAD_BUCKETS]), reached: None, away: false }
    }

    /// Moves the buckets whose worker has changed. One wait entry per pair of old and new worker covers all
    /// buckets between them.
    fn follow(&mut self, wanted: &Arc<[WorkerId; SPREAD_BUCKETS]>, links: &mut Links) {
        if self.reached.as_ref().is_some_and(|reached| Arc::ptr_eq(reached, wanted)) {
            return;
        }
        self.away = true;
        if self.follow_each(|bucket| wanted[bucket], links) {
            self.reached = Some(wanted.clone());
        }
    }

    /// Moves all buckets back to the queue's owner, because the port no longer uses software RSS.
    fn return_home(&mut self, links: &mut Links) {
        let me = links.me();
        self.reached = None;
        self.away = !self.follow_each(|_| me, links) || !links.self_is_quiet();
    }

    /// Moves buckets as `wanted` requires. Returns false if a ring had no space for a wait entry. The
    /// remaining buckets then move with a later burst.
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

    /// Returns whether packets must use the table even if the port does not use software RSS, or no longer
    /// does.
    #[inline]
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.away
    }
}

/// Returns the recorder step for the bucket of this key and its worker.
pub(crate) fn step(key: &FlowKey, worker: WorkerId) -> Step {
    let bucket = key.hash_symmetric() as usize % SPREAD_BUCKETS;
    Step::Spread { bucket: u16::try_from(bucket).unwrap_or(0), worker }
}

/// Hands each packet whose bucket belongs to another worker to that worker. The other packets stay in
/// `burst`, in order. Without a wanted table, the buckets return to the queue's owner, also in order. `seen`
/// is true if the port has an ingress stage, which has run.
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
