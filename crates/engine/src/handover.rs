//! Rings between workers, and the rule that keeps packets in order when a hash bucket of software RSS moves to another
//! worker. For each ordered pair of workers there are two SPSC (single producer, single consumer) rings. The work ring
//! carries packets that software RSS assigns to another worker. The output ring carries processed packets whose output
//! queue belongs to another worker.
//!
//! Order: when the control plane moves a bucket from an old worker to a new worker, packets that worker `r` has
//! received may still wait in the work ring from `r` to the old worker. Worker `r` therefore first puts a
//! [`Work::Wait`] entry into its work ring to the new worker. The new worker does not read beyond this entry
//! until the old worker has processed all earlier packets and the workers that own the output queues have taken
//! them. Each worker also has a work ring to itself, in which the packets that it both receives and processes
//! wait in the same way.
//!
//! The packets of each arrival port have a share of each ring (`shared_ring`).
//!
//! Freedom from deadlock: wait entries exist only in work rings and refer only to earlier positions. A wait
//! depends only on output rings, which contain no wait entries and are always served.

mod shared_ring;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packet::{PortId, WorkerId};
use port::Packet;
use sync::spsc::Consumer;

use crate::idle::Waker;

pub use shared_ring::{SharedRing, shared_ring};

/// Capacity of one ring between two workers, in places. The packets of one port occupy at most half of the places.
pub const RING: usize = 2048;

/// An entry of a work ring, which carries packets that software RSS assigns to another worker.
#[derive(Debug)]
pub enum Work {
    /// A packet that the receiving worker parses and processes.
    Process {
        /// Packet that the receiving worker processes.
        packet: Packet,
        /// Port on which the packet arrived.
        port: PortId,
        /// Whether the ingress stage of the port has already processed the packet.
        seen: bool,
    },
    /// A barrier in the ring. The receiving worker does not process the entries after the barrier until another worker
    /// has reached the position in [`Wait`].
    Wait(Wait),
}

/// An entry of an output ring: a processed packet that the receiving worker transmits.
#[derive(Debug)]
pub struct Output {
    /// Processed packet that the receiving worker transmits.
    pub packet: Packet,
    /// Port that transmits the packet.
    pub out: PortId,
}

/// A position that a worker must reach before the entries after a [`Work::Wait`] are processed. The position consists
/// of a count of ring entries (`ring`) and a count of bursts (`own`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Worker that must reach the position before the entries after the wait entry are processed.
    pub worker: WorkerId,
    /// Sender of the work ring whose entries the field `ring` counts. The receiver of this work
    /// ring is `worker`.
    pub from: WorkerId,
    /// Number of entries that `worker` must have processed from the work ring of the sender `from`.
    pub ring: u64,
    /// Number of bursts from its own queues that `worker` must have processed.
    pub own: u64,
}

/// Progress of all workers: for each work ring the number of processed entries, and for each worker the number
/// of processed bursts from the worker's own queues.
pub struct Progress {
    workers: usize,
    rings: Box<[AtomicU64]>,
    own: Box<[AtomicU64]>,
    /// For each worker, the number of rounds begun plus the number of rounds ended. The sum is odd while the
    /// worker runs a round.
    rounds: Box<[AtomicU64]>,
}

impl Progress {
    fn new(workers: usize) -> Self {
        Self {
            workers,
            rings: (0..workers * workers).map(|_| AtomicU64::new(0)).collect(),
            own: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            rounds: (0..workers).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn ring(&self, from: usize, to: usize) -> &AtomicU64 {
        &self.rings[from * self.workers + to]
    }

    fn reached(&self, wait: &Wait) -> bool {
        self.ring(wait.from.index(), wait.worker.index()).load(Ordering::Acquire) >= wait.ring
            && self.own[wait.worker.index()].load(Ordering::Acquire) >= wait.own
    }
}

/// Receiving end of one work ring, with an entry that was taken from the ring but not processed yet.
struct Inlet {
    ring: Consumer<Work>,
    blocked: Option<Wait>,
    /// Packet that was taken from the ring but did not fit into the burst, because the burst contains packets
    /// of another arrival port.
    carry: Option<Work>,
}

/// One worker's ends of all rings between workers.
pub struct WorkerRings {
    me: WorkerId,
    work: Vec<SharedRing<Work>>,
    inlets: Vec<Inlet>,
    outputs: Vec<SharedRing<Output>>,
    output_inlets: Vec<Consumer<Output>>,
    wakers: Vec<Arc<Waker>>,
    progress: Arc<Progress>,
    /// Number of bursts that the worker has begun to process from its own queues.
    own: u64,
    /// Progress that this worker publishes as soon as the other workers have taken the entries of
    /// the output rings up to the positions in `pending.outputs`.
    pending: Mark,
    is_pending: bool,
    scratch: Mark,
}

/// Progress of a worker, with the positions in the output rings that must be consumed before this progress
/// may be published.
#[derive(Clone, Default)]
struct Mark {
    inlets: Vec<u64>,
    outputs: Vec<u64>,
    own: u64,
}

impl Mark {
    fn new(workers: usize) -> Self {
        Self { inlets: vec![0; workers], outputs: vec![0; workers], own: 0 }
    }
}

/// State with which a worker waits until other workers have transmitted the packets that the worker has put into output
/// rings. The vectors are reused, so that rounds allocate no memory.
#[derive(Default)]
pub(crate) struct Settling {
    /// For each output ring, the position up to which the receiving worker must have consumed the ring.
    outputs: Vec<u64>,
    /// For each worker, the value of `Progress::rounds` when all output rings had been consumed up to the positions in
    /// `outputs`.
    rounds: Vec<u64>,
    taken: bool,
}

/// Creates rings between all pairs of `n` workers, including a ring from each worker to itself. Returns the
/// producers grouped by sending worker, and the consumers grouped by receiving worker.
#[allow(clippy::type_complexity, reason = "the two halves of a mesh")]
fn rings<T: Send>(n: usize) -> (Vec<Vec<SharedRing<T>>>, Vec<Vec<Consumer<T>>>) {
    let mut from: Vec<Vec<SharedRing<T>>> = (0..n).map(|_| Vec::with_capacity(n)).collect();
    let mut to: Vec<Vec<Consumer<T>>> = (0..n).map(|_| Vec::with_capacity(n)).collect();
    for producers in &mut from {
        for consumers in &mut to {
            let (tx, rx) = shared_ring(RING);
            producers.push(tx);
            consumers.push(rx);
        }
    }
    (from, to)
}

/// Creates the rings between all pairs of `wakers.len()` workers, and returns the ends of each worker. Each
/// worker also has a work ring to itself.
#[must_use]
pub fn mesh(wakers: &[Arc<Waker>]) -> Vec<WorkerRings> {
    let n = wakers.len();
    let progress = Arc::new(Progress::new(n));
    let (work, inlets) = rings(n);
    let (outputs, output_inlets) = rings(n);
    let ends = work.into_iter().zip(inlets).zip(outputs.into_iter().zip(output_inlets));
    (0_u16..)
        .zip(ends)
        .map(|(me, ((work, inlets), (outputs, output_inlets)))| WorkerRings {
            me: WorkerId(me),
            work,
            inlets: inlets.into_iter().map(|ring| Inlet { ring, blocked: None, carry: None }).collect(),
            outputs,
            output_inlets,
            wakers: wakers.to_vec(),
            progress: progress.clone(),
            own: 0,
            pending: Mark::new(n),
            is_pending: false,
            scratch: Mark::new(n),
        })
        .collect()
}

impl WorkerRings {
    /// Returns the identifier of the worker that holds these ring ends.
    #[must_use]
    pub fn me(&self) -> WorkerId {
        self.me
    }

    /// Returns the number of workers that the rings connect.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.work.len()
    }

    /// Returns the work ring to `worker`, or `None` if this worker does not exist.
    #[inline]
    pub fn work_to(&mut self, worker: WorkerId) -> Option<&mut SharedRing<Work>> {
        self.work.get_mut(worker.index())
    }

    /// Returns the output ring to `worker`, or `None` if this worker does not exist.
    #[inline]
    pub fn output_to(&mut self, worker: WorkerId) -> Option<&mut SharedRing<Output>> {
        self.outputs.get_mut(worker.index())
    }

    /// Wakes `worker` if it sleeps. The caller has handed packets to this worker before.
    #[inline]
    pub fn notify(&self, worker: WorkerId) {
        if worker != self.me
            && let Some(waker) = self.wakers.get(worker.index())
        {
            waker.notify_if_sleeping();
        }
    }

    /// Records that this worker begins a round. [`WorkerRings::publish`] records the end of the round.
    #[inline]
    pub fn begin_round(&self) {
        self.round();
    }

    fn round(&self) {
        if self.workers() > 1 {
            let rounds = &self.progress.rounds[self.me.index()];
            rounds.store(rounds.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
    }

    /// Starts a wait that ends when the other workers have processed all packets that this worker
    /// has handed to them so far. The function records the current positions in the output rings.
    pub(crate) fn settle(&self, settling: &mut Settling) {
        settling.taken = false;
        settling.outputs.clear();
        if self.workers() > 1 {
            settling.outputs.extend(self.outputs.iter().map(SharedRing::position));
        }
    }

    /// Returns whether the wait that [`WorkerRings::settle`] began is over. The wait is over when the other workers
    /// have taken the packets from the output rings and have ended the rounds in which they took the packets.
    pub(crate) fn has_settled(&self, settling: &mut Settling) -> bool {
        if self.workers() == 1 {
            return true;
        }
        if !settling.taken {
            let mut rings = self.outputs.iter().zip(&settling.outputs);
            if !rings.all(|(ring, upto)| ring.consumed() >= *upto) {
                return false;
            }
            settling.taken = true;
            settling.rounds.clear();
            settling.rounds.extend(self.progress.rounds.iter().map(|round| round.load(Ordering::Acquire)));
        }
        let me = self.me.index();
        self.progress
            .rounds
            .iter()
            .zip(&settling.rounds)
            .enumerate()
            .all(|(at, (round, then))| at == me || then % 2 == 0 || round.load(Ordering::Acquire) != *then)
    }

    /// Records that this worker begins to process a burst from its own queues.
    #[inline]
    pub fn begin_own(&mut self) {
        self.own += 1;
    }

    /// Returns whether this worker may immediately process the packets of a received burst that
    /// software RSS assigns to this worker itself. The worker must not process these packets
    /// immediately while its ring to itself contains earlier packets.
    #[inline]
    #[must_use]
    pub fn self_is_quiet(&self) -> bool {
        let inlet = &self.inlets[self.me.index()];
        inlet.blocked.is_none() && inlet.carry.is_none() && inlet.ring.is_empty()
    }

    /// Puts a wait entry into the work ring to worker `new`. Worker `new` then waits until worker `old` has processed
    /// the packets that this worker has sent to `old`. Returns false if the ring is full. The caller then tries again
    /// with the next burst.
    #[must_use]
    pub fn move_bucket(&mut self, old: WorkerId, new: WorkerId) -> bool {
        let wait = Wait {
            worker: old,
            from: self.me,
            ring: self.work[old.index()].position(),
            // The current burst is not distributed yet, so only earlier bursts count.
            own: if old == self.me { self.own.saturating_sub(1) } else { 0 },
        };
        let pushed = self.work[new.index()].push_without_packet(Work::Wait(wait)).is_ok();
        self.notify(new);
        pushed
    }

    /// Takes the next packet from the work ring of worker `from`. Returns the packet, its arrival port, and
    /// whether the port's ingress stage has processed the packet. Returns `None` if the ring is empty or a
    /// wait entry is not satisfied.
    #[inline]
    pub fn take(&mut self, from: usize) -> Option<(Packet, PortId, bool)> {
        let inlet = &mut self.inlets[from];
        loop {
            if let Some(wait) = inlet.blocked {
                if !self.progress.reached(&wait) {
                    return None;
                }
                inlet.blocked = None;
            }
            match inlet.carry.take().or_else(|| inlet.ring.pop())? {
                Work::Wait(wait) => inlet.blocked = Some(wait),
                Work::Process { packet, port, seen } => return Some((packet, port, seen)),
            }
        }
    }

    /// Puts back a packet from `WorkerRings::take` that does not fit into the current burst.
    #[inline]
    pub fn put_back(&mut self, from: usize, packet: Packet, port: PortId, seen: bool) {
        self.inlets[from].carry = Some(Work::Process { packet, port, seen });
    }

    /// Takes the next packet from the output ring of worker `from`, or returns `None` if the ring is empty.
    #[inline]
    pub fn take_output(&mut self, from: usize) -> Option<Output> {
        self.output_inlets[from].pop()
    }

    /// Returns whether entries wait in the rings to this worker, or this worker has progress that
    /// is not published yet.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.is_pending
            || self.output_inlets.iter().any(|ring| !ring.is_empty())
            || self
                .inlets
                .iter()
                .any(|inlet| inlet.carry.is_some() || inlet.blocked.is_some() || !inlet.ring.is_empty())
    }

    /// Ends a round and publishes the progress of this worker. The worker calls this function once per round,
    /// after transmission. The function does not publish progress until the workers that own the output queues
    /// have taken the packets from the output rings.
    pub fn publish(&mut self) {
        self.round();
        if self.is_pending {
            if !self.is_taken(&self.pending) {
                return;
            }
            self.announce(&self.pending);
            self.is_pending = false;
        }
        let mark = &mut self.scratch;
        for (place, inlet) in mark.inlets.iter_mut().zip(&self.inlets) {
            *place = inlet.ring.position() - u64::from(inlet.carry.is_some());
        }
        for (place, ring) in mark.outputs.iter_mut().zip(&self.outputs) {
            *place = ring.position();
        }
        mark.own = self.own;
        if self.is_taken(&self.scratch) {
            self.announce(&self.scratch);
        } else {
            std::mem::swap(&mut self.pending, &mut self.scratch);
            self.is_pending = true;
        }
    }

    fn is_taken(&self, mark: &Mark) -> bool {
        self.outputs.iter().zip(&mark.outputs).all(|(ring, upto)| ring.consumed() >= *upto)
    }

    fn announce(&self, mark: &Mark) {
        let me = self.me.index();
        for (from, upto) in mark.inlets.iter().enumerate() {
            self.progress.ring(from, me).store(*upto, Ordering::Release);
        }
        self.progress.own[me].store(mark.own, Ordering::Release);
    }

    /// Removes all entries from the rings to this worker, and calls `each` with each packet. The worker calls
    /// this function before it ends.
    pub fn drain(&mut self, mut each: impl FnMut(Packet)) {
        for inlet in &mut self.inlets {
            let carry = inlet.carry.take();
            let rest = std::iter::from_fn(|| inlet.ring.pop());
            for item in carry.into_iter().chain(rest) {
                if let Work::Process { packet, .. } = item {
                    each(packet);
                }
            }
        }
        for ring in &mut self.output_inlets {
            while let Some(output) = ring.pop() {
                each(output.packet);
            }
        }
    }
}
