//! Quiescent-state based reclamation (QSBR), which determines when unlinked memory may be freed.
//!
//! Each worker owns a [`Reader`] and calls [`Reader::quiescent`] once per burst. The call declares that the worker
//! holds no reference to published data. A control thread unlinks an object and starts a [`Grace`] period. The control
//! thread frees the object when every reader has passed a later quiescent point or is offline (asleep).
//!
//! Invariants:
//! - A reference to published data borrows the [`Reader`] (`&'r Reader -> &'r T`), and every method that
//!   passes a quiescent point takes `&mut Reader`. Therefore the borrow checker rejects code that passes a
//!   quiescent point while it holds a reference.
//! - A reader that loads epoch `e` (acquire) sees every unlinking that happened before the epoch became `e`.
//!   Therefore its later loads cannot find the unlinked object. The reader then stores `e` (release).
//!   Therefore its earlier accesses happen before the freeing.
//! - [`Reader::online`] stores the reader's state and then reads published data. A writer unlinks an object and then
//!   reads the states of all readers. Both sides have a SeqCst fence between the store and the load.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use crate::primitives::{
    Arc, AtomicBool, AtomicU64, CachePadded, ControlLock, Ordering, fence, pause, yield_now,
};

/// Default maximum number of readers of a domain. The number is sufficient for workers, the slow path and some
/// control threads.
pub const DEFAULT_READERS: usize = 64;
/// Number of retired objects at which `retire` calls [`Domain::reclaim`]. Only objects for which no grace period has
/// begun yet are counted.
const COLLECT_AT: usize = 64;
/// Value stored as the epoch of an offline reader, and of a reader slot of the domain that is not in use. The value is
/// greater than every epoch. Therefore no grace period waits for such a slot.
const OFFLINE: u64 = u64::MAX;

/// Error of [`Domain::register`]: the domain already has the maximum number of readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("all {max} reader places of the reclamation domain are taken; create it with more places")]
pub struct TooManyReaders {
    /// Maximum number of readers with which the domain was created.
    pub max: usize,
}

/// A grace period that has begun. The period ends when every reader has passed a quiescent point after the beginning of
/// the period, or is offline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "a grace period protects nothing unless somebody waits for it"]
pub struct Grace(u64);

/// The domain's epoch (the number of the newest grace period) at the time when a reader read it. See
/// [`Reader::moment`].
#[derive(Debug, Clone, Copy)]
pub struct Moment(u64);

#[derive(Debug)]
struct Place {
    /// Last epoch that the reader has observed at a quiescent point, or [`OFFLINE`].
    seen: AtomicU64,
    taken: AtomicBool,
}

type Garbage = Box<dyn Send>;

#[derive(Default)]
struct Limbo {
    /// Unlinked objects (removed from published data) for which no grace period has begun yet.
    fresh: Vec<Garbage>,
    /// Batches of unlinked objects, oldest first. The objects of a batch are dropped when its grace period is
    /// over.
    waiting: VecDeque<(Grace, Vec<Garbage>)>,
    /// Number of objects in `fresh` at which `retire` next calls [`Domain::reclaim`]. The number grows while a reader
    /// delays reclamation.
    collect_at: usize,
}

impl Limbo {
    fn len(&self) -> usize {
        self.fresh.len() + self.waiting.iter().map(|(_, batch)| batch.len()).sum::<usize>()
    }
}

/// A set of readers that share published data, and the unlinked objects that some of these readers may still use.
pub struct Domain {
    epoch: CachePadded<AtomicU64>,
    places: Box<[CachePadded<Place>]>,
    limbo: ControlLock<Limbo>,
}

impl Domain {
    /// Returns a QSBR domain for at most [`DEFAULT_READERS`] readers.
    #[must_use]
    #[allow(clippy::new_ret_no_self, reason = "readers share the domain, so it only exists behind an Arc")]
    pub fn new() -> Arc<Self> {
        Self::with_max_readers(DEFAULT_READERS)
    }

    /// Returns a QSBR domain for at most `max` concurrent readers.
    #[must_use]
    pub fn with_max_readers(max: usize) -> Arc<Self> {
        let place = || CachePadded(Place { seen: AtomicU64::new(OFFLINE), taken: AtomicBool::new(false) });
        Arc::new(Self {
            epoch: CachePadded(AtomicU64::new(1)),
            places: (0..max).map(|_| place()).collect(),
            limbo: ControlLock::new(Limbo { collect_at: COLLECT_AT, ..Limbo::default() }),
        })
    }

    /// Registers a reader, which is online from the start.
    ///
    /// # Errors
    /// Returns [`TooManyReaders`] if the domain already has the maximum number of readers.
    pub fn register(self: &Arc<Self>) -> Result<Reader, TooManyReaders> {
        let free = self.places.iter().position(|place| {
            place.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
        let place = free.ok_or(TooManyReaders { max: self.places.len() })?;
        let mut reader = Reader { domain: Arc::clone(self), place, seen: OFFLINE };
        reader.online();
        Ok(reader)
    }

    /// Begins a grace period for all objects that the caller has unlinked before this call.
    pub fn begin_grace(&self) -> Grace {
        // A read-modify-write, because only an epoch that this call created is known to follow the unlinking.
        Grace(self.epoch.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// Returns whether every reader has passed a quiescent point, or has been offline, since `grace` began. The method
    /// never blocks.
    #[must_use]
    pub fn has_passed(&self, grace: Grace) -> bool {
        self.oldest() >= grace
    }

    /// Blocks until `grace` is over. Only control threads may call this method. The method deadlocks if the caller's
    /// own reader is online.
    pub fn wait(&self, grace: Grace) {
        let mut backoff = Backoff::new();
        while !self.has_passed(grace) {
            backoff.snooze();
        }
    }

    /// Blocks until every reader has passed a quiescent point later than this call, and then drops unlinked
    /// objects.
    ///
    /// Only control threads may call this method. The method deadlocks if the caller's own reader is online.
    pub fn synchronize(&self) {
        let grace = self.seal(&mut self.limbo.lock());
        self.wait(grace);
        self.free(grace);
    }

    /// Waits and drops like [`Domain::synchronize`], but for at most `limit`. Returns whether the grace period is over.
    /// If it is not, drops nothing.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "for control threads, which may read clocks")]
    pub fn synchronize_for(&self, limit: Duration) -> bool {
        let start = Instant::now();
        let grace = self.seal(&mut self.limbo.lock());
        let mut backoff = Backoff::new();
        while !self.has_passed(grace) {
            if start.elapsed() >= limit {
                return false;
            }
            backoff.snooze();
        }
        self.free(grace);
        true
    }

    /// Drops `garbage` after a grace period. The caller must have unlinked `garbage` from the published data already.
    ///
    /// If many objects have been retired, the method drops the objects that no reader can use any more. A caller that
    /// rarely retires objects should call [`Domain::reclaim`] later.
    pub fn retire(&self, garbage: Box<dyn Send>) {
        let collect = {
            let mut limbo = self.limbo.lock();
            limbo.fresh.push(garbage);
            limbo.fresh.len() >= limbo.collect_at
        };
        if collect {
            self.reclaim();
        }
    }

    /// Drops all unlinked objects that no reader can use any more, without waiting. Begins a grace period for the
    /// objects for which none has begun yet. Returns the number of objects dropped.
    pub fn reclaim(&self) -> usize {
        {
            let mut limbo = self.limbo.lock();
            if !limbo.fresh.is_empty() {
                let _later = self.seal(&mut limbo);
            }
        }
        self.free(self.oldest())
    }

    /// Returns the number of retired objects that have not been dropped yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.limbo.lock().len()
    }

    /// Returns the number of registered readers, online or offline.
    #[must_use]
    pub fn readers(&self) -> usize {
        self.places.iter().filter(|place| place.taken.load(Ordering::Relaxed)).count()
    }

    /// Begins a grace period for the objects that were retired since the previous grace period began. The caller must
    /// hold the lock of `limbo`. Therefore the grace period begins after the unlinking of every object in the batch.
    fn seal(&self, limbo: &mut Limbo) -> Grace {
        let grace = self.begin_grace();
        if !limbo.fresh.is_empty() {
            limbo.waiting.push_back((grace, std::mem::take(&mut limbo.fresh)));
        }
        grace
    }

    /// Drops the objects whose grace periods began no later than `over`.
    ///
    /// `over` must be a completed grace period. The caller must not pass the result of a new scan of the readers,
    /// because a reader that has just come online may publish an epoch that is already out of date.
    fn free(&self, over: Grace) -> usize {
        let mut free = Vec::new();
        {
            let mut limbo = self.limbo.lock();
            while limbo.waiting.front().is_some_and(|(grace, _)| *grace <= over) {
                free.extend(limbo.waiting.pop_front().map(|(_, batch)| batch));
            }
            limbo.collect_at = COLLECT_AT.max(limbo.len());
        }
        // Outside the lock, because a drop may itself retire.
        free.iter().map(Vec::len).sum()
    }

    /// Returns the newest grace period that is over for every reader.
    fn oldest(&self) -> Grace {
        // Pairs with the fence in `Reader::online`: either this scan sees the reader online, or the reader
        // sees the unlinking.
        fence(Ordering::SeqCst);
        let seen = self.places.iter().map(|place| place.seen.load(Ordering::Acquire));
        Grace(seen.min().unwrap_or(OFFLINE))
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain").field("readers", &self.readers()).finish_non_exhaustive()
    }
}

/// A thread's registration with a [`Domain`]. A reader belongs to one thread at a time. Dropping the reader
/// unregisters it.
#[derive(Debug)]
pub struct Reader {
    domain: Arc<Domain>,
    place: usize,
    /// Copy of the epoch that the reader published last. While the epoch has not changed, no store is
    /// necessary.
    seen: u64,
}

impl Reader {
    /// Passes a quiescent point. Workers call this method once per burst, while they hold no published data.
    /// The method costs one load, and one store if the epoch has advanced.
    #[inline]
    pub fn quiescent(&mut self) {
        let epoch = self.domain.epoch.load(Ordering::Acquire);
        if epoch != self.seen && self.seen != OFFLINE {
            self.seen = epoch;
            self.domain.places[self.place].seen.store(epoch, Ordering::Release);
        }
    }

    /// Returns the current epoch, to be passed to [`Reader::was_quiescent`] later.
    #[must_use]
    pub fn moment(&self) -> Moment {
        Moment(self.domain.epoch.load(Ordering::Acquire))
    }

    /// Declares that the reader passed a quiescent point at the time when [`Reader::moment`] returned `then`. The
    /// caller must hold no data that was unlinked before `then`. The caller may hold data that was unlinked later.
    pub fn was_quiescent(&mut self, then: Moment) {
        if self.is_online() && then.0 > self.seen {
            self.seen = then.0;
            self.domain.places[self.place].seen.store(then.0, Ordering::Release);
        }
    }

    /// Makes the reader offline until [`Reader::online`] is called. Grace periods do not wait for an offline
    /// reader. Threads call this method before they sleep. Reading published data through an offline reader
    /// panics.
    pub fn offline(&mut self) {
        self.seen = OFFLINE;
        self.domain.places[self.place].seen.store(OFFLINE, Ordering::Release);
    }

    /// Makes the reader online after [`Reader::offline`]. The method costs a full fence.
    pub fn online(&mut self) {
        self.seen = self.domain.epoch.load(Ordering::Acquire);
        self.domain.places[self.place].seen.store(self.seen, Ordering::Relaxed);
        // No published data may be read before this slot shows the reader online. Pairs with
        // `Domain::oldest`.
        fence(Ordering::SeqCst);
    }

    /// Returns whether the reader is online. Published data can be read only through an online reader.
    #[must_use]
    pub fn is_online(&self) -> bool {
        self.seen != OFFLINE
    }

    /// Calls `f` while the reader is offline. `f` may sleep, for example.
    pub fn while_offline<R>(&mut self, f: impl FnOnce() -> R) -> R {
        self.offline();
        let result = f();
        self.online();
        result
    }

    /// Returns the domain with which this reader is registered.
    #[must_use]
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Checks that published data of `domain` may be read through this reader now. Memory safety depends on
    /// this check.
    ///
    /// # Panics
    /// Panics if the reader is offline or belongs to another domain (programming errors).
    #[inline(always)]
    pub fn check(&self, domain: &Arc<Domain>) {
        if !Arc::ptr_eq(&self.domain, domain) || self.seen == OFFLINE {
            self.refuse();
        }
    }

    #[cold]
    #[inline(never)]
    fn refuse(&self) -> ! {
        assert!(self.seen != OFFLINE, "published data read through a reader that is offline");
        panic!("published data read through a reader of another domain");
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.offline();
        self.domain.places[self.place].taken.store(false, Ordering::Release);
    }
}

/// Waiting strategy of a control thread that waits for readers. The thread first spins, then yields the CPU, and then
/// sleeps for increasing times. A worker takes microseconds for a burst, but milliseconds if it is preempted.
struct Backoff {
    turn: u32,
}

impl Backoff {
    const SPINS: u32 = 64;
    const YIELDS: u32 = 64;

    fn new() -> Self {
        Self { turn: 0 }
    }

    fn snooze(&mut self) {
        if cfg!(loom) || (Self::SPINS..Self::SPINS + Self::YIELDS).contains(&self.turn) {
            yield_now();
        } else if self.turn < Self::SPINS {
            pause();
        } else {
            let doublings = (self.turn - Self::SPINS - Self::YIELDS).min(5);
            std::thread::sleep(Duration::from_micros(50 << doublings));
        }
        self.turn = self.turn.saturating_add(1);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    struct Probe(Arc<AtomicUsize>);
    impl Drop for Probe {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn garbage_waits_for_every_online_reader() {
        let domain = Domain::new();
        let (mut a, mut b) = (domain.register().unwrap(), domain.register().unwrap());
        let drops = Arc::new(AtomicUsize::new(0));
        domain.retire(Box::new(Probe(Arc::clone(&drops))));
        assert_eq!(domain.reclaim(), 0);
        a.quiescent();
        assert_eq!(domain.reclaim(), 0);
        assert_eq!((domain.pending(), drops.load(Ordering::SeqCst)), (1, 0));
        b.quiescent();
        assert_eq!(domain.reclaim(), 1);
        assert_eq!((domain.pending(), drops.load(Ordering::SeqCst)), (0, 1));
    }

    #[test]
    fn sleeping_and_departed_readers_hold_nothing_up() {
        let domain = Domain::new();
        let mut sleeper = domain.register().unwrap();
        let leaver = domain.register().unwrap();
        assert!(!domain.synchronize_for(Duration::from_millis(1)));
        sleeper.offline();
        assert!(!domain.synchronize_for(Duration::from_millis(1)));
        drop(leaver);
        assert!(domain.synchronize_for(Duration::from_millis(1)));
        sleeper.online();
        assert!(!domain.synchronize_for(Duration::from_millis(1)));
    }

    #[test]
    fn synchronize_frees_what_was_retired_before() {
        let domain = Domain::new();
        domain.retire(Box::new(0u8));
        domain.synchronize();
        assert_eq!(domain.pending(), 0);
        domain.retire(Box::new(0u8));
        assert!(domain.synchronize_for(Duration::ZERO));
        assert_eq!(domain.pending(), 0);
    }

    #[test]
    fn a_quiescent_point_offline_does_not_bring_the_reader_back() {
        let domain = Domain::new();
        let mut reader = domain.register().unwrap();
        reader.offline();
        domain.synchronize();
        reader.quiescent();
        assert!(!reader.is_online());
        domain.synchronize();
    }

    #[test]
    fn a_quiescent_point_that_is_told_late_covers_what_was_unlinked_before_it_alone() {
        let domain = Domain::new();
        let mut reader = domain.register().unwrap();
        let before = domain.begin_grace();
        let then = reader.moment();
        let after = domain.begin_grace();
        reader.was_quiescent(then);
        assert!(domain.has_passed(before) && !domain.has_passed(after));
        reader.quiescent();
        // A moment older than the last confirmed one changes nothing.
        reader.was_quiescent(then);
        assert!(domain.has_passed(after));
        reader.offline();
        reader.was_quiescent(then);
        assert!(!reader.is_online());
    }

    #[test]
    fn retiring_a_lot_collects_by_itself() {
        let domain = Domain::new();
        let mut reader = domain.register().unwrap();
        for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
            domain.retire(Box::new(0u8));
            reader.quiescent();
        }
        assert!(domain.pending() <= 2 * COLLECT_AT, "{} pending", domain.pending());
    }

    #[test]
    fn places_run_out_and_come_back() {
        let domain = Domain::with_max_readers(2);
        let first = domain.register().unwrap();
        let _second = domain.register().unwrap();
        assert_eq!(domain.register().err(), Some(TooManyReaders { max: 2 }));
        drop(first);
        assert!(domain.register().is_ok());
    }
}
