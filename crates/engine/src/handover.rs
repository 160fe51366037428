//! Bursts between workers: per ordered pair one SPSC ring for software RSS and one for packets whose output queue another worker
//! owns; and the order that must hold when a bucket of flows changes its worker.
//!
//! Order. A packet that worker `r` received may still wait in the ring to its bucket's old worker when control names a new one. So `r`
//! puts a [`Work::Wait`] into the new worker's ring first; the new worker leaves that ring alone until the old one has finished
//! everything that stood before: processed *and* taken by the owners of the output queues. A worker's own share waits in the same way
//! in its ring to itself.
//!
//! No circle. Waits stand only in the rings of work, name only earlier positions, and what they wait for depends on the rings of output
//! alone, which hold no waits and are always served.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packet::{PortId, WorkerId};
use port::Packet;
use sync::spsc::{Consumer, Producer, channel};

use crate::rest::Waker;

/// Packets that one ring between workers holds.
pub const RING: usize = 1024;

/// What one worker gives another to do (software RSS).
#[derive(Debug)]
pub enum Work {
    /// A packet that arrived on `port`, to be parsed and decided here.
    Process {
        /// The packet.
        packet: Packet,
        /// The port it arrived on.
        port: PortId,
        /// Whether the port's own stage has seen it.
        seen: bool,
    },
    /// What follows waits for another worker.
    Wait(Wait),
}

/// A packet that is decided; it leaves by a queue of the worker that it is handed to.
#[derive(Debug)]
pub struct Output {
    /// The packet.
    pub packet: Packet,
    /// The port it leaves by.
    pub out: PortId,
}

/// A position that a worker must have finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The worker whose progress is awaited.
    pub worker: WorkerId,
    /// The ring into it, named by its producer, and the position in it.
    pub from: WorkerId,
    /// Items of that ring that must be finished.
    pub ring: u64,
    /// Bursts of its own queues that must be finished.
    pub own: u64,
}

/// How far every worker has come: finished items per ring, and finished bursts of own queues.
pub struct Progress {
    workers: usize,
    rings: Box<[AtomicU64]>,
    own: Box<[AtomicU64]>,
    /// Rounds begun and ended, together: odd while one is under way.
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

/// One ring of work that leads here, with what is held back of it.
struct Inlet {
    ring: Consumer<Work>,
    blocked: Option<Wait>,
    /// Taken from the ring, but of another port than the burst that was being filled.
    carry: Option<Work>,
}

/// One worker's rings.
pub struct Links {
    me: WorkerId,
    work: Vec<Producer<Work>>,
    inlets: Vec<Inlet>,
    outputs: Vec<Producer<Output>>,
    output_inlets: Vec<Consumer<Output>>,
    wakers: Vec<Arc<Waker>>,
    progress: Arc<Progress>,
    /// Bursts of own queues begun.
    own: u64,
    /// What will have been finished once the rings of output have been consumed up to `outputs`.
    pending: Mark,
    is_pending: bool,
    scratch: Mark,
}

/// How far a worker has come, and what of its output must have been taken before that counts.
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

/// What one worker waits for so that all that it handed over has left. Kept and filled again: rounds allocate nothing.
#[derive(Default)]
pub(crate) struct Settling {
    /// Positions in the rings of output.
    outputs: Vec<u64>,
    /// Rounds of the others when all of it had been taken.
    rounds: Vec<u64>,
    taken: bool,
}

/// `n` by `n` rings: the producers by their worker, the consumers by theirs.
#[allow(clippy::type_complexity, reason = "the two halves of a mesh")]
fn rings<T: Send>(n: usize) -> (Vec<Vec<Producer<T>>>, Vec<Vec<Consumer<T>>>) {
    let mut from: Vec<Vec<Producer<T>>> = (0..n).map(|_| Vec::with_capacity(n)).collect();
    let mut to: Vec<Vec<Consumer<T>>> = (0..n).map(|_| Vec::with_capacity(n)).collect();
    for producers in &mut from {
        for consumers in &mut to {
            let (tx, rx) = channel(RING);
            producers.push(tx);
            consumers.push(rx);
        }
    }
    (from, to)
}

/// The rings of `wakers.len()` workers, all to all (each has a ring of work to itself).
#[must_use]
pub fn mesh(wakers: &[Arc<Waker>]) -> Vec<Links> {
    let n = wakers.len();
    let progress = Arc::new(Progress::new(n));
    let (work, inlets) = rings(n);
    let (outputs, output_inlets) = rings(n);
    let ends = work.into_iter().zip(inlets).zip(outputs.into_iter().zip(output_inlets));
    (0_u16..)
        .zip(ends)
        .map(|(me, ((work, inlets), (outputs, output_inlets)))| Links {
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

impl Links {
    /// This worker.
    #[must_use]
    pub fn me(&self) -> WorkerId {
        self.me
    }

    /// Number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.work.len()
    }

    /// The ring of work to a worker.
    #[inline]
    pub fn work_to(&mut self, worker: WorkerId) -> Option<&mut Producer<Work>> {
        self.work.get_mut(worker.index())
    }

    /// The ring of output to a worker.
    #[inline]
    pub fn output_to(&mut self, worker: WorkerId) -> Option<&mut Producer<Output>> {
        self.outputs.get_mut(worker.index())
    }

    /// Wakes a worker to which packets were handed, if it sleeps.
    #[inline]
    pub fn notify(&self, worker: WorkerId) {
        if worker != self.me
            && let Some(waker) = self.wakers.get(worker.index())
        {
            waker.notify_if_sleeping();
        }
    }

    /// A round begins; [`Links::publish`] ends it.
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

    /// Takes down what was handed over up to now.
    pub(crate) fn settle(&self, settling: &mut Settling) {
        settling.taken = false;
        settling.outputs.clear();
        if self.workers() > 1 {
            settling.outputs.extend(self.outputs.iter().map(Producer::position));
        }
    }

    /// Whether it has all left: taken by the others, who have ended the round in which they took it.
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

    /// A burst of this worker's own queues begins.
    #[inline]
    pub fn begin_own(&mut self) {
        self.own += 1;
    }

    /// Whether what this worker keeps for itself may be processed at once: nothing of it waits in its ring to itself.
    #[inline]
    #[must_use]
    pub fn self_is_quiet(&self) -> bool {
        let inlet = &self.inlets[self.me.index()];
        inlet.blocked.is_none() && inlet.carry.is_none() && inlet.ring.is_empty()
    }

    /// Tells `new` to wait for what `old` still has from this worker. False when the ring is full: try again next burst.
    #[must_use]
    pub fn move_bucket(&mut self, old: WorkerId, new: WorkerId) -> bool {
        let wait = Wait {
            worker: old,
            from: self.me,
            ring: self.work[old.index()].position(),
            // The burst in hand is not distributed yet; those before it count.
            own: if old == self.me { self.own.saturating_sub(1) } else { 0 },
        };
        let pushed = self.work[new.index()].push(Work::Wait(wait)).is_ok();
        self.notify(new);
        pushed
    }

    /// Takes the next packet handed over by worker `from` to be processed, unless it must wait: with the port it arrived on, and whether that
    /// one's own stage has seen it.
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

    /// Puts a packet back that does not fit the burst in hand.
    #[inline]
    pub fn put_back(&mut self, from: usize, packet: Packet, port: PortId, seen: bool) {
        self.inlets[from].carry = Some(Work::Process { packet, port, seen });
    }

    /// Takes the next packet that worker `from` decided.
    #[inline]
    pub fn take_output(&mut self, from: usize) -> Option<Output> {
        self.output_inlets[from].pop()
    }

    /// Whether anything has been handed to this worker, or its progress waits to be published.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.is_pending
            || self.output_inlets.iter().any(|ring| !ring.is_empty())
            || self
                .inlets
                .iter()
                .any(|inlet| inlet.carry.is_some() || inlet.blocked.is_some() || !inlet.ring.is_empty())
    }

    /// Publishes how far this worker has come; call once per round, after transmitting. Nothing is published before the owners of
    /// the output queues have taken what was handed to them.
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

    /// Takes out everything that still stands in the rings to this worker (it is about to end).
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
