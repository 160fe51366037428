//! Reordering guard. The guard reports to a parallel forwarding path (the driver hook) which frames of a
//! queue have left the engine. The driver hook takes over a flow only after the flow's earlier packets have
//! left, so packets of a flow do not overtake each other.
//!
//! The bytes in front of each frame contain the frame's number. All packets that a worker has received from a
//! queue up to a certain time have left the engine when the following conditions hold:
//!
//! - The kernel has taken all packets that were in the transmit rings of the worker's queues at this time
//!   ([`Unsent`]).
//! - Every other worker has ended the round in which it took the packets that were handed over to it.
//! - No packet of the queue waits for the slow path ([`Parked`]).

use std::collections::VecDeque;

use port::Queue;

use crate::handover::{Settling, WorkerRings};
use crate::stage::transmit::OwnedQueue;
use crate::worker::monotonic;

/// Receiver of the progress reports of one queue. A report contains the number of the last frame that has
/// left.
pub trait CompletionSink: Send {
    /// Returns the frame number in the eight bytes in front of a frame, or `None` if they contain no number.
    fn number(&self, before: [u8; 8]) -> Option<u32>;

    /// Reports that all frames of the queue with numbers up to `number` have left the engine.
    fn finish(&self, number: u32);
}

/// State of the progress reports of one queue.
pub struct Finish {
    to: Box<dyn CompletionSink>,
    /// Number of the last frame received from the queue.
    received: u32,
    /// Number to report when the packets that were handed over by then have left. `None` if no report is
    /// pending.
    waiting: Option<u32>,
    /// Number in the last report, or `None` if there was no report yet.
    told: Option<u32>,
}

impl Finish {
    /// Creates the state for a queue that has not reported any progress.
    #[must_use]
    pub fn new(to: Box<dyn CompletionSink>) -> Self {
        Self { to, received: 0, waiting: None, told: None }
    }

    /// Updates the number of the last received frame after a burst. `before` yields the bytes in front of the
    /// burst's frames, starting with the last frame.
    pub(crate) fn received(&mut self, mut before: impl Iterator<Item = [u8; 8]>) {
        if let Some(number) = before.find_map(|bytes| self.to.number(bytes)) {
            self.received = number;
        }
    }

    /// Returns the number of the last frame such that no frame up to it waits in the worker or at the slow
    /// path. This number may be reported when all packets that were handed over or given to transmit queues
    /// have left.
    fn due(&self, parked: &Parked) -> u32 {
        let told = self.told.unwrap_or(0);
        match parked.floor() {
            None => self.received,
            Some(None) => told,
            // Frame numbers wrap around.
            Some(Some(floor)) if self.received.wrapping_sub(floor) > u32::MAX / 2 => self.received,
            Some(Some(floor)) => floor,
        }
    }

    fn is_behind(&self, parked: &Parked) -> bool {
        self.told.unwrap_or(0) != self.due(parked)
    }

    /// Returns the number of the last frame received from the queue.
    pub(crate) fn last(&self) -> u32 {
        self.received
    }

    fn tell(&mut self, number: u32) {
        self.told = Some(number);
        self.to.finish(number);
    }
}

/// Frames of one queue that wait in the worker or at the slow path. The frames are grouped by the burst in
/// which they arrived.
#[derive(Default)]
pub struct Parked {
    /// Bursts with waiting frames, oldest first. A burst that is not the first may have no waiting frames
    /// left.
    bursts: VecDeque<Waits>,
    /// Sequence number of the first burst in `bursts`.
    first: u64,
    /// Whether the last element of `bursts` is the burst that is being processed.
    is_open: bool,
    /// Number of the last frame received before the burst that is being processed. `None` if the frames have
    /// no numbers.
    before: Option<u32>,
}

/// A burst some of whose frames wait.
struct Waits {
    /// Number of the last frame received before the burst, or `None` if the frames have no numbers.
    floor: Option<u32>,
    left: u32,
}

impl Parked {
    /// Starts a new burst. `before` is the number of the last frame received before the burst.
    pub(crate) fn begin(&mut self, before: Option<u32>) {
        (self.before, self.is_open) = (before, false);
    }

    /// Records that a frame of the current burst waits. Returns the sequence number of the burst, which the
    /// caller later passes to [`Parked::release`].
    pub(crate) fn park(&mut self) -> u64 {
        if !self.is_open {
            self.bursts.push_back(Waits { floor: self.before, left: 0 });
            self.is_open = true;
        }
        if let Some(burst) = self.bursts.back_mut() {
            burst.left += 1;
        }
        self.first + self.bursts.len() as u64 - 1
    }

    /// Records that a frame of the burst with this sequence number no longer waits.
    pub(crate) fn release(&mut self, burst: u64) {
        let at = burst.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(burst) = at.and_then(|at| self.bursts.get_mut(at)) {
            burst.left = burst.left.saturating_sub(1);
        }
        while self.bursts.front().is_some_and(|burst| burst.left == 0) {
            self.bursts.pop_front();
            self.first += 1;
            self.is_open &= !self.bursts.is_empty();
        }
    }

    /// Removes all waiting frames from the records. The caller has dropped these frames.
    pub(crate) fn clear(&mut self) {
        self.first += self.bursts.len() as u64;
        self.bursts.clear();
        self.is_open = false;
    }

    /// Removes the frame numbers from the records. A new receiver of progress reports uses a different
    /// numbering.
    pub(crate) fn renumber(&mut self) {
        self.before = None;
        self.bursts.iter_mut().for_each(|burst| burst.floor = None);
    }

    /// Returns the number of the last frame received before the oldest burst with waiting frames. Returns
    /// `Some(None)` if this number is not known, and `None` if no frame waits.
    fn floor(&self) -> Option<Option<u32>> {
        self.bursts.front().map(|burst| burst.floor)
    }
}

/// Maximum time in nanoseconds that progress reports wait for a transmit ring from which the kernel takes no
/// descriptor. After this time, reports do not wait for the ring any more, and packets in the ring may be
/// overtaken. Packets for other devices do not have to wait for the stalled device.
const STUCK_NS: u64 = 100_000_000;
/// Maximum time in nanoseconds that a progress report waits for the packets in one transmit ring, even if the
/// kernel takes descriptors. The limit prevents a slow receiver from delaying the reports of other queues.
const SLOW_NS: u64 = 500_000_000;

/// State of one queue's transmit ring, for which progress reports wait.
#[derive(Debug, Default)]
pub struct Unsent {
    /// Descriptor index that the kernel must reach before the report is sent. `None` if the report does not
    /// wait for this ring.
    until: Option<u32>,
    /// Time in nanoseconds at which the wait for this ring began.
    begin_ns: Option<u64>,
    /// Index up to which the kernel had taken descriptors at the last check. `since_ns` is the time in
    /// nanoseconds at which the index reached this value.
    taken: u32,
    since_ns: Option<u64>,
    /// Whether the kernel took no descriptor for `STUCK_NS`. Reports do not wait for the ring until the
    /// kernel takes another descriptor.
    is_stuck: bool,
    /// End of the ring's contents when the wait exceeded `SLOW_NS`, as a descriptor index. Reports do not
    /// wait for the ring until the kernel has taken the descriptors up to this index. `None` if the wait was
    /// not exceeded.
    slow_until: Option<u32>,
}

/// Returns whether the wrapping counter `number` has reached or passed `to`.
fn has_come(to: u32, number: u32) -> bool {
    number.wrapping_sub(to) <= u32::MAX / 2
}

impl Unsent {
    /// Starts to wait for the descriptors that are in the transmit ring at the time of the call.
    fn begin(&mut self, queue: &mut dyn Queue) {
        let progress = queue.transmit_progress().filter(|ring| ring.given != ring.taken);
        self.is_stuck &= progress.is_some_and(|ring| ring.taken == self.taken);
        let slow = self.slow_until.zip(progress);
        self.slow_until = slow.and_then(|(until, ring)| (!has_come(until, ring.taken)).then_some(until));
        let is_waited_for = !self.is_stuck && self.slow_until.is_none();
        self.until = progress.map(|ring| ring.given).filter(|_| is_waited_for);
        (self.begin_ns, self.since_ns) = (None, None);
    }

    /// Returns whether the wait is over. The wait is over when the kernel has taken the descriptors, or when
    /// a time limit has passed.
    fn has_passed(&mut self, queue: &mut dyn Queue, now_ns: impl Fn() -> u64) -> bool {
        let Some(until) = self.until else { return true };
        let Some(ring) = queue.transmit_progress() else {
            self.until = None;
            return true;
        };
        if has_come(until, ring.taken) {
            self.until = None;
            return true;
        }
        let now = now_ns();
        let begin = *self.begin_ns.get_or_insert(now);
        let since = self.since_ns.filter(|_| ring.taken == self.taken).unwrap_or(now);
        (self.taken, self.since_ns) = (ring.taken, Some(since));
        self.is_stuck = now.saturating_sub(since) >= STUCK_NS;
        if now.saturating_sub(begin) >= SLOW_NS {
            self.slow_until = Some(ring.given);
        }
        let is_given_up = self.is_stuck || self.slow_until.is_some();
        if is_given_up {
            self.until = None;
        }
        is_given_up
    }
}

/// State of the progress reports of all queues of one worker.
#[derive(Default)]
pub(crate) struct Finishing {
    /// Whether any of the worker's queues has a receiver of progress reports.
    pub(crate) active: bool,
    settling: Settling,
    is_settling: bool,
}

impl Finishing {
    /// Begins and completes progress reports. The worker calls this function at the end of each round, after
    /// kicking the queues.
    pub(crate) fn run(&mut self, queues: &mut [OwnedQueue], links: &WorkerRings) {
        if self.is_settling {
            self.end(queues, links);
        }
        let is_behind = |own: &OwnedQueue| own.finish.as_ref().is_some_and(|it| it.is_behind(&own.parked));
        if self.is_settling || !queues.iter().any(is_behind) {
            return;
        }
        for own in queues.iter_mut() {
            own.unsent.begin(own.queue.as_mut());
            if let Some(finish) = own.finish.as_mut().filter(|finish| finish.is_behind(&own.parked)) {
                finish.waiting = Some(finish.due(&own.parked));
            }
        }
        links.settle(&mut self.settling);
        self.is_settling = true;
        self.end(queues, links);
    }

    /// Sends the pending progress reports if all packets that they wait for have left the engine.
    fn end(&mut self, queues: &mut [OwnedQueue], links: &WorkerRings) {
        let mut sent = true;
        for own in queues.iter_mut() {
            sent &= own.unsent.has_passed(own.queue.as_mut(), || monotonic().ns);
        }
        if !sent || !links.has_settled(&mut self.settling) {
            return;
        }
        self.is_settling = false;
        for finish in queues.iter_mut().filter_map(|own| own.finish.as_mut()) {
            // A queue that was added meanwhile has no pending report.
            finish.waiting.take().into_iter().for_each(|number| finish.tell(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use packet::{PortId, QueueId, WorkerId};
    use port::{FrameMemory, HugePages, MemoryConfig};
    use sync::wake::Waker;

    use super::*;
    use crate::engine::owned;
    use crate::handover::{Output, mesh};

    struct Told(Arc<AtomicU32>);

    impl CompletionSink for Told {
        fn number(&self, before: [u8; 8]) -> Option<u32> {
            let number = u64::from_ne_bytes(before);
            u32::try_from(number).ok().filter(|number| *number != 0)
        }

        fn finish(&self, number: u32) {
            self.0.store(number, Ordering::Release);
        }
    }

    #[test]
    fn what_was_handed_over_is_waited_for() {
        let memory = Arc::new(
            FrameMemory::new(MemoryConfig { frames: 64, frame_size: 2048, huge_pages: HugePages::Off })
                .unwrap(),
        );
        let depot = port::Depot::new(memory);
        let mut pool = depot.pool();
        let wakers: Vec<Arc<Waker>> = (0..2).map(|_| Arc::new(Waker::new().unwrap())).collect();
        let mut links = mesh(&wakers);
        let (mut other, mut mine) = (links.pop().unwrap(), links.pop().unwrap());
        let (queue, _peer) = port::ring::pair(8);
        let told = Arc::new(AtomicU32::new(0));
        let mut own = owned(WorkerId(0), PortId(0), QueueId(0), Box::new(queue));
        own.finish = Some(Finish::new(Box::new(Told(Arc::clone(&told)))));
        let mut queues = [own];
        let mut finishing = Finishing { active: true, ..Finishing::default() };
        let receive = |queues: &mut [OwnedQueue], number: u64| {
            queues[0].finish.as_mut().unwrap().received([[0; 8], number.to_ne_bytes()].into_iter());
        };
        let now = || told.load(Ordering::Acquire);

        // Without handed-over packets, the report is immediate.
        mine.begin_round();
        receive(&mut queues, 7);
        finishing.run(&mut queues, &mine);
        assert_eq!(now(), 7);
        mine.publish();

        // One packet is handed over to the other worker's queue.
        mine.begin_round();
        receive(&mut queues, 9);
        let packet = pool.alloc().unwrap();
        assert!(mine.output_to(WorkerId(1)).unwrap().push(Output { packet, out: PortId(1) }).is_ok());
        finishing.run(&mut queues, &mine);
        mine.publish();
        assert_eq!(now(), 7, "it stands in the ring");
        other.begin_round();
        let taken = other.take_output(0).unwrap();
        finishing.run(&mut queues, &mine);
        assert_eq!(now(), 7, "the other worker has it, and is not done");
        receive(&mut queues, 12);
        pool.free(taken.packet);
        other.publish();
        finishing.run(&mut queues, &mine);
        assert_eq!(now(), 12, "both are told, one after the other");
    }

    /// A queue that supports only what the test needs: the progress of its transmit ring.
    struct Sending(Arc<[AtomicU32; 2]>);

    impl Queue for Sending {
        fn receive(&mut self, _pool: &mut port::FramePool, _out: &mut port::Batch) -> usize {
            0
        }
        fn transmit(&mut self, _pool: &mut port::FramePool, _batch: &mut port::Batch) -> usize {
            0
        }
        fn kick(&mut self, _pool: &mut port::FramePool) {}
        fn has_pending(&mut self) -> bool {
            false
        }
        fn transmit_progress(&mut self) -> Option<port::TransmitProgress> {
            let [given, taken] = &*self.0;
            let read = |number: &AtomicU32| number.load(Ordering::Acquire);
            Some(port::TransmitProgress { given: read(given), taken: read(taken) })
        }
        fn capabilities(&self) -> port::Capabilities {
            port::Capabilities::default()
        }
        fn status(&self) -> port::QueueStatus {
            port::QueueStatus::default()
        }
        fn close(self: Box<Self>, _pool: &mut port::FramePool) {}
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the time that is tested")]
    fn a_ring_that_never_empties_does_not_keep_progress_back() {
        let wakers = [Arc::new(Waker::new().unwrap())];
        let mut mine = mesh(&wakers).pop().unwrap();
        let ring = Arc::new([u32::MAX - 1, u32::MAX - 2].map(AtomicU32::new));
        let told = Arc::new(AtomicU32::new(0));
        let mut own = owned(WorkerId(0), PortId(0), QueueId(0), Box::new(Sending(Arc::clone(&ring))));
        own.finish = Some(Finish::new(Box::new(Told(Arc::clone(&told)))));
        let mut queues = [own];
        let mut finishing = Finishing { active: true, ..Finishing::default() };
        let set = |given: u32, taken: u32| {
            ring[0].store(given, Ordering::Release);
            ring[1].store(taken, Ordering::Release);
        };
        let mut receive = |queues: &mut [OwnedQueue], number: u64| {
            mine.begin_round();
            queues[0].finish.as_mut().unwrap().received([number.to_ne_bytes()].into_iter());
            finishing.run(queues, &mine);
            mine.publish();
            told.load(Ordering::Acquire)
        };
        assert_eq!(receive(&mut queues, 7), 0, "a descriptor stands in the ring");
        // The first descriptor leaves while others are queued behind it, as on a device that is always busy.
        set(3, u32::MAX - 1);
        assert_eq!(receive(&mut queues, 9), 7);
        set(6, 2);
        assert_eq!(receive(&mut queues, 10), 7, "what came before 9 is not all gone");
        set(9, 3);
        assert_eq!(receive(&mut queues, 10), 9);
        // The kernel takes no more descriptors.
        let begin = std::time::Instant::now();
        while receive(&mut queues, 11) < 11 {
            assert!(begin.elapsed().as_secs() < 30);
        }
        assert!(begin.elapsed().as_nanos() >= u128::from(STUCK_NS));
        assert_eq!(receive(&mut queues, 12), 12, "nobody waits for it again");
        // The kernel makes progress, and reports wait for the ring again.
        set(12, 10);
        assert_eq!(receive(&mut queues, 13), 12);
        set(12, 12);
        assert_eq!(receive(&mut queues, 13), 13);
        // The kernel takes a descriptor every 20 ms, which is too slow. Reports do not wait for the ring
        // until the descriptors present at the time have left.
        set(1000, 12);
        let (begin, mut taken) = (std::time::Instant::now(), 12);
        while receive(&mut queues, 14) < 14 {
            assert!(begin.elapsed().as_secs() < 30);
            taken = 12 + u32::try_from(begin.elapsed().as_millis() / 20).unwrap();
            set(1000, taken);
        }
        assert!(begin.elapsed().as_nanos() >= u128::from(SLOW_NS) && taken < 1000);
        set(1500, taken + 1);
        assert_eq!(receive(&mut queues, 15), 15, "nobody waits for it again");
        set(1500, 1000);
        assert_eq!(receive(&mut queues, 16), 15, "it is as others are");
        set(1500, 1500);
        assert_eq!(receive(&mut queues, 16), 16);
    }

    #[test]
    fn nothing_is_told_beyond_what_waits_for_the_decider() {
        let wakers = [Arc::new(Waker::new().unwrap())];
        let mut links = mesh(&wakers);
        let mut mine = links.pop().unwrap();
        let (queue, _peer) = port::ring::pair(8);
        let told = Arc::new(AtomicU32::new(u32::MAX));
        let mut own = owned(WorkerId(0), PortId(0), QueueId(0), Box::new(queue));
        // The frame arrived before a receiver was set.
        let unnumbered = own.parked.park();
        own.finish = Some(Finish::new(Box::new(Told(Arc::clone(&told)))));
        own.parked.renumber();
        let mut queues = [own];
        let mut finishing = Finishing { active: true, ..Finishing::default() };
        let mut receive = |queues: &mut [OwnedQueue], number: u64, parks: usize| -> Vec<u64> {
            mine.begin_round();
            let OwnedQueue { finish, parked, .. } = &mut queues[0];
            let finish = finish.as_mut().unwrap();
            parked.begin(Some(finish.last()));
            finish.received([number.to_ne_bytes()].into_iter());
            let tickets = (0..parks).map(|_| parked.park()).collect();
            finishing.run(queues, &mine);
            mine.publish();
            tickets
        };
        let now = || told.load(Ordering::Acquire);
        receive(&mut queues, 3, 0);
        assert_eq!(now(), u32::MAX, "what has no number comes before all that have one");
        queues[0].parked.release(unnumbered);
        receive(&mut queues, 7, 0);
        assert_eq!(now(), 7);
        let first = receive(&mut queues, 10, 2);
        let second = receive(&mut queues, 20, 1);
        receive(&mut queues, 30, 0);
        assert_eq!(now(), 7, "8 to 10 are not gone");
        queues[0].parked.release(second[0]);
        queues[0].parked.release(first[0]);
        receive(&mut queues, 31, 0);
        assert_eq!(now(), 7, "one of the first burst still waits");
        let third = receive(&mut queues, 40, 1);
        queues[0].parked.release(first[1]);
        receive(&mut queues, 41, 0);
        assert_eq!(now(), 31, "up to the burst of the one that waits now");
        queues[0].parked.clear();
        queues[0].parked.release(third[0]);
        receive(&mut queues, 42, 0);
        assert_eq!(now(), 42, "it was dropped");
        // Frame numbers wrap around.
        receive(&mut queues, u64::from(u32::MAX) - 1, 0);
        let last = receive(&mut queues, 5, 1);
        receive(&mut queues, 9, 0);
        assert_eq!(now(), u32::MAX - 1);
        queues[0].parked.release(last[0]);
        receive(&mut queues, 10, 0);
        assert_eq!(now(), 10);
    }
}
