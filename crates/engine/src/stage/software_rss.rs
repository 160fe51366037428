//! Software RSS, which distributes the packets of one queue over the workers. The symmetric hash of a
//! packet's flow selects a bucket, and a table that the control plane may change maps the bucket to a worker.
//! When a bucket moves to another worker, the order of packets within a flow is kept (see
//! [`crate::handover`]).

use std::sync::Arc;

use packet::record::{Recorder, Step};
use packet::{DropReason, FlowKey, PortId, WorkerId};

use crate::burst::Burst;
use crate::handover::{Work, WorkerRings};
use crate::stage::WorkerContext;
use crate::state::RSS_BUCKETS;

/// The software RSS table that is in effect for one queue. When the table of the forwarding snapshot changes, this
/// table adopts the change one bucket after the other.
pub struct Applied {
    table: Box<[WorkerId; RSS_BUCKETS]>,
    /// Table of the forwarding snapshot, if the table in effect is equal to this table. `None` while the two tables
    /// differ.
    reached: Option<Arc<[WorkerId; RSS_BUCKETS]>>,
    /// Whether other workers may still hold packets of the queue, or packets of the queue may wait for other
    /// workers.
    away: bool,
}

impl Applied {
    /// Creates a table that assigns all buckets to the worker that owns the queue.
    #[must_use]
    pub fn new(owner: WorkerId) -> Self {
        Self { table: Box::new([owner; RSS_BUCKETS]), reached: None, away: false }
    }

    /// Moves the buckets whose workers differ between this table and the snapshot's table `wanted`. One wait entry for
    /// each pair of old and new worker is sufficient for all buckets that move between them.
    fn follow(&mut self, wanted: &Arc<[WorkerId; RSS_BUCKETS]>, links: &mut WorkerRings) {
        if self.reached.as_ref().is_some_and(|reached| Arc::ptr_eq(reached, wanted)) {
            return;
        }
        self.away = true;
        if self.follow_each(|bucket| wanted[bucket], links) {
            self.reached = Some(wanted.clone());
        }
    }

    /// Moves all buckets back to the worker that owns the queue, because the port no longer uses software RSS.
    fn return_home(&mut self, links: &mut WorkerRings) {
        let me = links.me();
        self.reached = None;
        self.away = !self.follow_each(|_| me, links) || !links.self_is_quiet();
    }

    /// Assigns every bucket to the worker that `wanted` returns for it. Returns false if a ring had no space for a wait
    /// entry. In this case, the remaining buckets are moved with a later burst.
    fn follow_each(&mut self, wanted: impl Fn(usize) -> WorkerId, links: &mut WorkerRings) -> bool {
        let workers = links.workers();
        for bucket in 0..RSS_BUCKETS {
            let (old, new) = (self.table[bucket], wanted(bucket));
            if old == new || new.index() >= workers {
                continue;
            }
            if !links.move_bucket(old, new) {
                return false;
            }
            for later in bucket..RSS_BUCKETS {
                if self.table[later] == old && wanted(later) == new {
                    self.table[later] = new;
                }
            }
        }
        true
    }

    /// Returns whether other workers may still hold packets of the queue, or packets of the queue may wait for other
    /// workers. If so, packets must be distributed according to the table even if the port no longer uses software RSS.
    #[inline]
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.away
    }
}

/// Returns the processing step that is recorded for a packet with flow key `key`, whose bucket belongs to `worker`.
pub(crate) fn step(key: &FlowKey, worker: WorkerId) -> Step {
    let bucket = key.hash_symmetric() as usize % RSS_BUCKETS;
    Step::SoftwareRss { bucket: u16::try_from(bucket).unwrap_or(0), worker }
}

/// Hands each packet whose bucket belongs to another worker to that worker. The other packets stay in `burst`, in
/// order. If the port does not use software RSS, all buckets are moved back to the worker that owns the queue. This
/// move also keeps the packet order. `seen` states whether an ingress stage of the port has already run on the packets.
#[allow(clippy::too_many_arguments, reason = "the worker's parts, borrowed apart")]
pub fn run<R: Recorder>(
    port: PortId,
    seen: bool,
    wanted: Option<&Arc<[WorkerId; RSS_BUCKETS]>>,
    applied: &mut Applied,
    burst: &mut Burst,
    links: &mut WorkerRings,
    context: &mut WorkerContext,
    recorder: &mut R,
) {
    match wanted {
        Some(wanted) => applied.follow(wanted, links),
        None => applied.return_home(links),
    }
    let me = links.me();
    let mut touched = [false; 64];
    for (i, packet) in std::mem::take(&mut *burst.packets).into_iter().enumerate() {
        let bucket = burst.keys[i].hash_symmetric() as usize % RSS_BUCKETS;
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
            Some(ring) => match ring.push(port, packet.segments(), Work::Process { packet, port, seen }) {
                Err(Work::Process { packet, .. }) => Some(packet),
                Ok(()) | Err(Work::Wait(_)) => None,
            },
            None => Some(packet),
        };
        if let Some(packet) = refused {
            recorder.step(i, Step::Dropped(DropReason::WorkerRingFull));
            context.drop(packet, port, DropReason::WorkerRingFull);
        } else if let Some(flag) = touched.get_mut(worker.index()) {
            *flag = true;
        }
    }
    for (worker, _) in (0_u16..).zip(touched).filter(|(_, touched)| *touched) {
        links.notify(WorkerId(worker));
    }
}
