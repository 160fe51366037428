//! Reordering guard. The XDP hook forwards packets in parallel with the workers. The guard reports to the hook which
//! frames of a queue have left the engine. The hook takes over a flow only after the flow's earlier packets have left,
//! so packets of a flow do not overtake each other.
//!
//! The bytes in front of each frame contain the frame's number. All packets that a worker has received from a queue up
//! to a certain time have left the engine when the following conditions hold:
//!
//! - The kernel has taken all packets that were in the transmit rings of the worker's queues at this time ([`Unsent`]).
//! - Every other worker has ended the round in which it took the packets that were handed over to it.
//! - No packet of the queue waits for the slow path ([`Parked`]). A packet that the slow path has released may pass a
//!   patch port and then match no cached megaflow of the next bridge. The packet waits for the slow path again in this
//!   case, and still counts for its queue.

mod finishing;

use std::collections::VecDeque;

use port::Queue;

pub(crate) use finishing::Finishing;

/// Receiver of the progress reports of one queue. A report contains a frame number and states that
/// all frames of the queue up to this number have left the engine. The worker that owns the queue
/// calls the functions.
pub trait CompletionSink: Send {
    /// Returns the frame number in the eight bytes in front of a frame, or `None` if the bytes contain no number.
    fn number(&self, before: [u8; 8]) -> Option<u32>;

    /// Receives a progress report, which states that all frames of the queue with numbers up to
    /// `number` have left the engine.
    fn finish(&self, number: u32);
}

/// State for reporting which frames of one queue have left the engine ([`CompletionSink`]).
pub struct Finish {
    to: Box<dyn CompletionSink>,
    /// Number of the last frame received from the queue.
    received: u32,
    /// Frame number of the pending report, or `None` if no report is pending. The report is sent
    /// when all packets that were handed to other workers or to transmit queues before the report
    /// began have left the engine.
    waiting: Option<u32>,
    /// Frame number in the last report, or `None` if there was no report yet.
    told: Option<u32>,
}

impl Finish {
    /// Creates the report state of a queue whose progress reports go to `to`. No report has been sent yet.
    #[must_use]
    pub fn new(to: Box<dyn CompletionSink>) -> Self {
        Self { to, received: 0, waiting: None, told: None }
    }

    /// Updates the number of the last frame that was received from the queue. The function is called after each burst.
    /// `before` yields the eight bytes in front of each frame of the burst, starting with the last frame.
    pub(crate) fn received(&mut self, mut before: impl Iterator<Item = [u8; 8]>) {
        if let Some(number) = before.find_map(|bytes| self.to.number(bytes)) {
            self.received = number;
        }
    }

    /// Returns the highest frame number up to which no frame waits in the worker or at the slow path. The number may be
    /// reported when all packets that were handed to other workers or to transmit queues have left the engine.
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

/// Frames of one queue that are not forwarded yet, because they wait in the worker or at the slow path. The frames are
/// grouped by the burst in which they arrived.
#[derive(Default)]
pub struct Parked {
    /// Bursts with waiting frames, oldest first. Bursts after the first may have no waiting frames
    /// left.
    bursts: VecDeque<Waits>,
    /// Sequence number of the first burst in `bursts`.
    first: u64,
    /// Whether the last element of `bursts` is the burst that is being processed.
    is_open: bool,
    /// Number of the last frame received before the burst that is being processed, or `None` if the frames carry no
    /// numbers.
    before: Option<u32>,
}

/// A burst with frames that wait in the worker or at the slow path.
struct Waits {
    /// Number of the last frame received before the burst, or `None` if the frames carry no numbers.
    floor: Option<u32>,
    left: u32,
}

impl Parked {
    /// Starts the record of a new burst. `before` is the number of the last frame received before the burst.
    pub(crate) fn begin(&mut self, before: Option<u32>) {
        (self.before, self.is_open) = (before, false);
    }

    /// Records that a frame of the current burst waits in the worker or at the slow path. Returns the sequence number
    /// of the burst, which the caller later passes to [`Parked::release`].
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

    /// Records that another frame waits in the worker or at the slow path. This frame derives from a waiting frame of
    /// the burst with sequence number `burst` and counts for this burst. Returns false if no frame of the burst waits.
    pub(crate) fn park_again(&mut self, burst: u64) -> bool {
        let at = burst.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let waits = at.and_then(|at| self.bursts.get_mut(at)).filter(|burst| burst.left > 0);
        let is_waiting = waits.is_some();
        waits.into_iter().for_each(|burst| burst.left += 1);
        is_waiting
    }

    /// Records that a frame of the burst with this sequence number no longer waits in the worker or at the slow path.
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

    /// Removes the records of all waiting frames, after the caller has dropped these frames.
    pub(crate) fn clear(&mut self) {
        self.first += self.bursts.len() as u64;
        self.bursts.clear();
        self.is_open = false;
    }

    /// Removes the frame numbers from the records of waiting frames, because a new receiver of progress reports uses a
    /// different numbering.
    pub(crate) fn renumber(&mut self) {
        self.before = None;
        self.bursts.iter_mut().for_each(|burst| burst.floor = None);
    }

    /// Returns the number of the last frame received before the oldest burst with waiting frames. Returns `Some(None)`
    /// if frames wait but the number is not known, and `None` if no frame waits.
    fn floor(&self) -> Option<Option<u32>> {
        self.bursts.front().map(|burst| burst.floor)
    }
}

/// Maximum time in nanoseconds that progress reports wait for a transmit ring from which the kernel takes no
/// descriptor. After this time, reports no longer wait for this ring, so packets in the ring may be overtaken.
/// The limit keeps a stalled device from delaying the reports for packets to other devices.
const STUCK_NS: u64 = 100_000_000;
/// Maximum time in nanoseconds that a progress report waits for the packets in one transmit ring, even if the
/// kernel takes descriptors. The limit prevents a slow receiver from delaying the reports of other queues.
const SLOW_NS: u64 = 500_000_000;

/// State of a wait until the kernel has taken the packets in one queue's transmit ring. A progress report is sent only
/// after this wait.
#[derive(Debug, Default)]
pub struct Unsent {
    /// Descriptor index up to which the kernel must have taken the descriptors before the report is sent. `None` if the
    /// report does not wait for this ring.
    until: Option<u32>,
    /// Time in nanoseconds at which the wait for this ring began.
    begin_ns: Option<u64>,
    /// Index up to which the kernel had taken descriptors at the last check. `since_ns` is the time in
    /// nanoseconds at which the index reached this value.
    taken: u32,
    since_ns: Option<u64>,
    /// Whether the kernel has taken no descriptor for `STUCK_NS`. Reports do not wait for the ring until the
    /// kernel takes another descriptor.
    is_stuck: bool,
    /// Index up to which the ring contained descriptors at the time when the wait exceeded `SLOW_NS`. Reports do not
    /// wait for the ring until the kernel has taken the descriptors up to this index. `None` if no wait has exceeded
    /// `SLOW_NS`.
    slow_until: Option<u32>,
}

/// Returns whether the 32-bit counter `number`, which wraps around, has reached or passed `to`.
fn has_come(to: u32, number: u32) -> bool {
    number.wrapping_sub(to) <= u32::MAX / 2
}

impl Unsent {
    /// Starts a wait until the kernel has taken all descriptors that the transmit ring contains at the time of the
    /// call.
    fn begin(&mut self, queue: &mut dyn Queue) {
        let progress = queue.transmit_progress().filter(|ring| ring.given != ring.taken);
        self.is_stuck &= progress.is_some_and(|ring| ring.taken == self.taken);
        let slow = self.slow_until.zip(progress);
        self.slow_until = slow.and_then(|(until, ring)| (!has_come(until, ring.taken)).then_some(until));
        let is_waited_for = !self.is_stuck && self.slow_until.is_none();
        self.until = progress.map(|ring| ring.given).filter(|_| is_waited_for);
        (self.begin_ns, self.since_ns) = (None, None);
    }

    /// Returns whether the wait for the transmit ring is over. The wait is over when the kernel has taken the
    /// descriptors, or when a time limit has passed.
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
