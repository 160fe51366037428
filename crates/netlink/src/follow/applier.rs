//! Thread (applier) that applies the kernel's notifications to the mirror of the kernel's routing state and answers
//! requests.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use port::netlink::Netlink;

use super::dump::{ATTEMPTS, PARTS, gives_up, repeat_interrupted, request};
use super::item::{Ask, Drift, Item};
use super::sessions::Sessions;
use super::shared::{PATIENCE, Shared};
use crate::decode::{Event, Object, decode};
use crate::error::NetlinkError;
use crate::fpm;
use crate::mirror::{Change, Mirror};
use crate::state::FibOutcome;

/// Number of notification datagrams in one batch. After each batch, the applier calls the follower's callback with the
/// changes.
const BATCH: usize = 2048;
/// Pauses before the comparisons of the mirror with the kernel, as multiples of `MOMENT`. A difference counts as drift
/// (a difference that no notification explains) only if every comparison finds it. Several comparisons are required
/// because a work queue of the kernel sends the notifications of IPv6 addresses: on a busy machine, an address may be
/// in a dump hundreds of milliseconds before its notification.
const WAITS: [usize; 4] = [0, 1, 3, 6];
const MOMENT: Duration = Duration::from_millis(100);

/// Thread that applies the kernel's notifications to the mirror (the copy of the kernel's routing state) and answers
/// requests.
pub(super) struct Applier<F> {
    pub(super) mirror: Mirror,
    pub(super) asking: Netlink,
    pub(super) from: Receiver<Item>,
    pub(super) shared: Arc<Shared>,
    pub(super) told: F,
    /// Requests that wait for a fence (a mark in the queue, [`Item::Fence`]), each with the number of its fence. A
    /// request is answered when the applier reaches its fence.
    pub(super) waiting: Vec<(u64, Sender<()>)>,
    pub(super) sessions: Option<Sessions>,
    /// IDs of next-hop objects that the kernel has removed and that the mirror (the copy of the kernel's routing state)
    /// still contains. Consecutive removals are applied together.
    pub(super) leaving: HashSet<u32>,
}

impl<F: FnMut(&Mirror, &[Change]) -> FibOutcome> Applier<F> {
    pub(super) fn run(mut self) {
        let ended = loop {
            let mut changes = Vec::new();
            match self.batch(&mut changes) {
                Ok(true) => {}
                Ok(false) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        *self.shared.failed.lock().unwrap_or_else(PoisonError::into_inner) = ended;
        // Later requests fail with this reason.
    }

    /// Processes the items that are in the queue, at most one batch, and calls the callback with the changes. Returns
    /// `false` if the applier must end.
    pub(super) fn batch(&mut self, changes: &mut Vec<Change>) -> Result<bool, NetlinkError> {
        let Ok(first) = self.from.recv() else { return Ok(false) };
        let mut next = Some(first);
        let mut done = 0;
        while let Some(item) = next {
            if self.shared.end.load(Ordering::Acquire) {
                return Ok(false);
            }
            if !matches!(item, Item::Datagram(_)) {
                self.let_next_hops_go(changes);
            }
            match item {
                Item::Datagram(bytes) => self.apply(&bytes, changes),
                Item::Fpm(said) => done += self.announced(said, changes),
                Item::Overrun => {
                    self.tell(changes);
                    self.resync_patiently(None)?;
                }
                Item::Fence(fence) => {
                    self.tell(changes);
                    self.reached(fence);
                }
                Item::Failed(cause) => return Err(NetlinkError::Ended(cause)),
                Item::Ask(Ask::Settle(to)) => {
                    let fence = self.fence();
                    self.waiting.push((fence, to));
                }
                Item::Ask(Ask::Look(look)) => look(&self.mirror),
                Item::Ask(Ask::Check(to)) => {
                    self.tell(changes);
                    let drift = self.check();
                    let _ = to.send(drift);
                }
                Item::Ask(Ask::End) => return Ok(false),
            }
            done += 1;
            next = if done < BATCH { self.from.try_recv().ok() } else { None };
        }
        self.tell(changes);
        Ok(true)
    }

    fn apply(&mut self, bytes: &[u8], changes: &mut Vec<Change>) {
        self.shared.counts.applied.fetch_add(1, Ordering::Relaxed);
        for message in port::netlink::messages(bytes) {
            if let Some(event) = decode(message.kind, message.flags, message.payload) {
                self.shared.counts.events.fetch_add(1, Ordering::Relaxed);
                if self.is_told_apart(&event) {
                    continue;
                }
                if let (true, Object::NextHop(id, _)) = (event.gone, &event.object) {
                    self.leaving.insert(*id);
                } else {
                    self.let_next_hops_go(changes);
                    self.mirror.apply(event, changes);
                }
            }
        }
    }

    /// Removes the next-hop objects in `leaving` from the mirror of the kernel's routing state. All of them are removed
    /// in one pass over all routes, because each pass is expensive.
    fn let_next_hops_go(&mut self, changes: &mut Vec<Change>) {
        if !self.leaving.is_empty() {
            self.mirror.next_hops_gone(std::mem::take(&mut self.leaving), changes);
        }
    }

    /// Returns whether an FPM session, and not the kernel, is the source of the object that a kernel event describes.
    /// The event is then ignored.
    fn is_told_apart(&self, event: &Event) -> bool {
        self.sessions.as_ref().is_some_and(|sessions| sessions.table.speaks_for(event))
    }

    pub(super) fn announced(&mut self, said: fpm::Said, changes: &mut Vec<Change>) -> usize {
        let Some(sessions) = &mut self.sessions else { return 0 };
        sessions.apply(said, &mut self.mirror, changes)
    }

    pub(super) fn tell(&mut self, changes: &mut Vec<Change>) {
        self.let_next_hops_go(changes);
        let mut room = FibOutcome::default();
        if !changes.is_empty() {
            room = (self.told)(&self.mirror, changes);
            changes.clear();
        }
        self.answer(&room);
    }

    /// Queues answers to zebra about the routes that zebra has announced. `room` lists the routes that the callback has
    /// refused, or installed after a refusal.
    fn answer(&mut self, room: &FibOutcome) {
        if let Some(sessions) = &mut self.sessions {
            sessions.answer(room);
        }
    }

    /// Requests a fence (a mark in the queue) from the reader thread and returns the number of the fence. The reader
    /// puts the fence into the queue after the notifications that the kernel has sent until now.
    fn fence(&self) -> u64 {
        let fence = self.shared.fence.fetch_add(1, Ordering::AcqRel) + 1;
        self.shared.wake();
        fence
    }

    /// Answers the requests that wait for this fence (a mark in the queue) or an earlier one.
    fn reached(&mut self, fence: u64) {
        self.waiting.retain(|(wanted, to)| {
            let waits = *wanted > fence;
            if !waits {
                let _ = to.send(());
            }
            waits
        });
    }

    /// Dumps the kernel's current routing state, and returns a new mirror of it. If changes of the state interrupt the
    /// dump, the dump is repeated until `deadline`.
    fn dump(&mut self, deadline: Option<Instant>) -> Result<Mirror, NetlinkError> {
        let mut mirror = Mirror::default();
        for (kind, family, what) in PARTS {
            let mut attempts = 0;
            loop {
                let mut objects = Vec::new();
                let consistent = self.asking.dump(request(kind, family), |message| {
                    objects.extend(decode(message.kind, message.flags, message.payload));
                });
                if consistent
                    .map_err(|source| NetlinkError::Kernel { what: "reading the routing state", source })?
                {
                    objects
                        .into_iter()
                        .filter(|event| !event.gone && !self.is_told_apart(event))
                        .for_each(|event| mirror.dumped(event.object));
                    break;
                }
                attempts += 1;
                if attempts == ATTEMPTS || gives_up(deadline, &self.shared.end) {
                    return Err(NetlinkError::Interrupted { what, times: attempts });
                }
            }
        }
        if let Some(sessions) = &self.sessions {
            sessions.table.carry(&self.mirror, &mut mirror);
        }
        Ok(mirror)
    }

    /// Replaces the mirror of the kernel's routing state with a complete dump of the kernel's state. Differences from
    /// the previous state of the mirror are reported as changes.
    fn resync(&mut self, deadline: Option<Instant>) -> Result<(), NetlinkError> {
        let begun = Instant::now();
        let there = self.dump(deadline)?;
        let changes = self.mirror.differences(&there);
        self.mirror = there;
        let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.shared.counts.resync_ns.store(took, Ordering::Relaxed);
        self.shared.counts.resyncs.fetch_add(1, Ordering::Relaxed);
        let room = (self.told)(&self.mirror, &changes);
        // Routes that no longer exist in the kernel may have freed space for refused routes of FPM sessions.
        self.answer(&room);
        Ok(())
    }

    /// Makes a complete dump like `resync`. If changes of the kernel's state interrupt the dump, the dump is repeated
    /// until `deadline`.
    pub(super) fn resync_patiently(&mut self, deadline: Option<Instant>) -> Result<(), NetlinkError> {
        let shared = Arc::clone(&self.shared);
        repeat_interrupted(deadline, &shared.end, || self.resync(deadline))
    }

    /// Compares the mirror with the kernel several times, and repairs the differences that every comparison
    /// finds. Short-lived differences are ignored, because some notifications are delayed. Returns the
    /// repaired differences.
    fn check(&mut self) -> Result<Drift, NetlinkError> {
        let mut drift = Drift::default();
        for (round, moments) in WAITS.into_iter().enumerate() {
            for _ in 0..moments {
                std::thread::sleep(MOMENT);
                // Notifications continue to be applied.
                if !self.catch_up(&mut HashSet::new())? {
                    return Ok(Drift::default());
                }
            }
            let Some((there, differing, busy)) = self.compare()? else { return Ok(Drift::default()) };
            drift.busy = busy;
            match round {
                0 => drift.changes = differing,
                _ => drift.changes.retain(|change| differing.contains(change)),
            }
            if drift.changes.is_empty() {
                break;
            }
            if round + 1 == WAITS.len() {
                drift.changes.iter().for_each(|change| self.mirror.take(change, &there));
                let drifted = u64::try_from(drift.changes.len()).unwrap_or(u64::MAX);
                self.shared.counts.drifted.fetch_add(drifted, Ordering::Relaxed);
                let room = (self.told)(&self.mirror, &drift.changes);
                self.answer(&room);
            }
        }
        Ok(drift)
    }

    /// Dumps the kernel's routing state and compares the mirror with it. Returns the dump, the differences for which no
    /// notification arrived before the end of the dump, and the number of the other differences. Returns `None` if the
    /// mirror was replaced by a complete dump in the meantime, or if the applier must end.
    fn compare(&mut self) -> Result<Option<(Mirror, Vec<Change>, usize)>, NetlinkError> {
        if !self.catch_up(&mut HashSet::new())? {
            return Ok(None);
        }
        let resyncs = self.shared.counts.resyncs.load(Ordering::Relaxed);
        let there = self.dump(None)?;
        let mut touched = HashSet::new();
        if !self.catch_up(&mut touched)? || self.shared.counts.resyncs.load(Ordering::Relaxed) != resyncs {
            return Ok(None);
        }
        let (busy, differing): (Vec<_>, Vec<_>) =
            self.mirror.differences(&there).into_iter().partition(|change| touched.contains(change));
        Ok(Some((there, differing, busy.len())))
    }

    /// Applies all notifications that the kernel has sent so far, and adds the changed objects to `touched`. Returns
    /// `false` if the applier must end.
    pub(super) fn catch_up(&mut self, touched: &mut HashSet<Change>) -> Result<bool, NetlinkError> {
        let fence = self.fence();
        let mut changes = Vec::new();
        loop {
            if self.shared.end.load(Ordering::Acquire) {
                return Ok(false);
            }
            let item = match self.from.recv_timeout(PATIENCE) {
                Ok(item) => item,
                Err(RecvTimeoutError::Timeout) if !self.shared.end.load(Ordering::Acquire) => continue,
                Err(_) => return Ok(false),
            };
            if !matches!(item, Item::Datagram(_)) {
                self.let_next_hops_go(&mut changes);
            }
            match item {
                Item::Datagram(bytes) => self.apply(&bytes, &mut changes),
                Item::Fpm(said) => drop(self.announced(said, &mut changes)),
                Item::Overrun => self.resync_patiently(None)?,
                Item::Fence(reached) => {
                    touched.extend(changes.iter().cloned());
                    self.tell(&mut changes);
                    self.reached(reached);
                    if reached >= fence {
                        return Ok(true);
                    }
                }
                Item::Ask(Ask::Settle(to)) => {
                    let fence = self.fence();
                    self.waiting.push((fence, to));
                }
                Item::Failed(cause) => return Err(NetlinkError::Ended(cause)),
                Item::Ask(Ask::Look(look)) => look(&self.mirror),
                // A comparison is already in progress.
                Item::Ask(Ask::Check(to)) => drop(to.send(Ok(Drift::default()))),
                Item::Ask(Ask::End) => return Ok(false),
            }
        }
    }
}
