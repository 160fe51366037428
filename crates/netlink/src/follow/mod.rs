//! Threads that keep a mirror (a copy of the kernel's routing state) up to date. The reader thread reads notifications
//! from the kernel, and the applier thread applies them to the mirror.

mod applier;
mod dump;
mod item;
mod reader;
mod sessions;
mod shared;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use port::netlink::Netlink;
use port::netns::{Netns, within_optional};
use rustix::event::{EventfdFlags, eventfd};

use self::applier::Applier;
use self::item::{Ask, Item};
use self::reader::{GROUPS, Reader};
use self::sessions::Sessions;
use self::shared::{Counts, Shared};
use crate::error::NetlinkError;
use crate::fpm::{self, Fpm, FpmListener, FpmStatus, Server};
use crate::mirror::{Change, Mirror};
use crate::state::FibOutcome;

pub use self::item::Drift;
pub use self::shared::Status;

/// Maximum number of notification datagrams in the queue from the reader thread to the applier thread. The number is
/// smaller if the socket's receive buffer is small.
const QUEUE: usize = 1 << 16;
/// Time limit for repeating interrupted dumps of the kernel's state while a follower starts. The limit is short,
/// because the caller waits for the start and may hold locks.
const BEGIN_LIMIT: Duration = Duration::from_secs(2);
/// A mirror of the kernel's routing state that two threads keep synchronized with the kernel. The threads end
/// when this value is dropped.
pub struct Follower {
    to: SyncSender<Item>,
    shared: Arc<Shared>,
    fpm: Option<Arc<fpm::Shared>>,
    threads: Vec<JoinHandle<()>>,
}

impl Follower {
    /// Recommended size of the netlink receive buffer in bytes. This size is sufficient for a burst of 100,000
    /// notifications.
    pub const BUFFER: usize = 128 << 20;

    /// Starts the threads for the routing state of a network namespace (the caller's if `netns` is `None`). `told` is
    /// called with the mirror and the changes since the previous call. The first call contains all objects and is made
    /// before this function returns. Later calls are made on a separate thread.
    ///
    /// While `told` runs, no notification is applied. Notifications then wait in the socket's receive buffer, whose
    /// size is `buffer` bytes. A route notification occupies about 1,000 bytes of this buffer ([`Follower::BUFFER`]).
    ///
    /// # Errors
    /// Returns [`NetlinkError`] if the namespace or its state cannot be read.
    pub fn start(
        netns: Option<&Netns>,
        buffer: usize,
        mut told: impl FnMut(&Mirror, &[Change]) + Send + 'static,
    ) -> Result<Follower, NetlinkError> {
        let told = move |mirror: &Mirror, changes: &[Change]| {
            told(mirror, changes);
            FibOutcome::default()
        };
        Follower::begin(netns, buffer, None, told)
    }

    /// Starts the threads for a namespace like [`Follower::start`], but takes FRR's routes and next-hop objects from
    /// FPM sessions instead of the kernel. `told` returns the routes that were refused, and the routes that were
    /// installed after a refusal.
    ///
    /// # Errors
    /// Returns the same errors as [`Follower::start`].
    pub fn start_with_fpm(
        netns: Option<&Netns>,
        buffer: usize,
        fpm: Fpm,
        told: impl FnMut(&Mirror, &[Change]) -> FibOutcome + Send + 'static,
    ) -> Result<Follower, NetlinkError> {
        Follower::begin(netns, buffer, Some(fpm), told)
    }

    fn begin(
        netns: Option<&Netns>,
        buffer: usize,
        fpm: Option<Fpm>,
        told: impl FnMut(&Mirror, &[Change]) -> FibOutcome + Send + 'static,
    ) -> Result<Follower, NetlinkError> {
        let (listening, asking) = within_optional(netns, || {
            let failed = |what| move |source| NetlinkError::Kernel { what, source };
            let groups = GROUPS.iter().fold(0, |mask, group| mask | 1 << (group - 1));
            let listening = Netlink::listen(groups).map_err(failed("subscribing to the routing state"))?;
            listening.set_receive_buffer(buffer).map_err(failed("enlarging the receive buffer"))?;
            let asking = Netlink::open().map_err(failed("opening a socket"))?;
            Ok::<_, NetlinkError>((listening, asking))
        })??;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let shared = Arc::new(Shared {
            end: AtomicBool::new(false),
            fence: AtomicU64::new(0),
            wake: wake.map_err(|errno| NetlinkError::Thread(errno.into()))?,
            counts: Counts::default(),
            failed: Mutex::new(None),
        });
        let (to, from) = sync_channel((buffer / 256).clamp(16, QUEUE));
        let (permits, taken) = sync_channel(fpm::BATCHES);
        let sessions = fpm.as_ref().map(|fpm| Sessions::new(fpm, taken)).transpose()?;
        let of_fpm = sessions.as_ref().map(|sessions| Arc::clone(&sessions.shared));
        let mut applier = Applier {
            mirror: Mirror::default(),
            asking,
            from,
            shared: Arc::clone(&shared),
            told,
            waiting: vec![],
            sessions,
            leaving: HashSet::new(),
        };
        // Notifications during the dump wait in the socket.
        applier.resync_patiently(Some(Instant::now() + BEGIN_LIMIT))?;
        let mut follower = Follower {
            to: to.clone(),
            shared: Arc::clone(&shared),
            fpm: of_fpm.clone(),
            threads: Vec::new(),
        };
        if let (Some(fpm), Some(shared)) = (fpm, of_fpm) {
            let to = to.clone();
            let say = move |said| to.send(Item::Fpm(said)).is_ok();
            let server = Server::new(fpm, say, permits, shared);
            follower.spawn("fpm", move || server.run())?;
        }
        let reader = Reader { listening, to, shared };
        follower.spawn("netlink-read", move || reader.run())?;
        follower.spawn("netlink-apply", move || applier.run())?;
        Ok(follower)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), NetlinkError> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        self.threads.push(thread.map_err(NetlinkError::Thread)?);
        Ok(())
    }

    fn ask<T>(&self, ask: impl FnOnce(Sender<T>) -> Ask) -> Result<T, NetlinkError> {
        let (to, answer) = channel();
        self.to.send(Item::Ask(ask(to))).map_err(|_| self.ended())?;
        answer.recv().map_err(|_| self.ended())
    }

    /// Sends a request to the applier thread and returns the applier's answer. Returns [`NetlinkError::Busy`] if there
    /// is no answer within `limit`.
    fn ask_within<T>(&self, limit: Duration, ask: impl FnOnce(Sender<T>) -> Ask) -> Result<T, NetlinkError> {
        /// Pause between two attempts to put a request into the queue while the queue is full.
        const PAUSE: Duration = Duration::from_millis(5);
        let deadline = Instant::now() + limit;
        let (to, answer) = channel();
        let mut item = Item::Ask(ask(to));
        while let Err(refused) = self.to.try_send(item) {
            item = match refused {
                TrySendError::Full(item) if Instant::now() < deadline => item,
                TrySendError::Full(_) => return Err(NetlinkError::Busy(limit)),
                TrySendError::Disconnected(_) => return Err(self.ended()),
            };
            std::thread::sleep(PAUSE);
        }
        match answer.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => Err(NetlinkError::Busy(limit)),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
        }
    }

    fn ended(&self) -> NetlinkError {
        let failed = self.shared.failed.lock().unwrap_or_else(PoisonError::into_inner);
        NetlinkError::Ended(failed.clone().unwrap_or_else(|| "its thread has panicked".to_owned()))
    }

    /// Waits until the mirror of the kernel's routing state contains all changes that the kernel made before this call,
    /// and the callback has been called for these changes.
    ///
    /// # Errors
    /// Returns [`NetlinkError::Ended`] if the follower has ended.
    pub fn settle(&self) -> Result<(), NetlinkError> {
        self.ask(Ask::Settle)
    }

    /// Calls `look` on the applier's thread with the mirror of the kernel's routing state, and returns the result of
    /// `look`. The mirror has the state at the time of this call or a later state. No notification is applied while
    /// `look` runs.
    ///
    /// # Errors
    /// Returns [`NetlinkError::Ended`] if the follower has ended.
    pub fn look<R: Send + 'static>(
        &self,
        look: impl FnOnce(&Mirror) -> R + Send + 'static,
    ) -> Result<R, NetlinkError> {
        self.ask(|to| Ask::look(to, look))
    }

    /// Calls `look` like [`Follower::look`], but returns an error if there is no result within the time `limit`. `look`
    /// may still be called after this function has returned the error.
    ///
    /// # Errors
    /// Returns [`NetlinkError::Ended`] if the follower has ended, and [`NetlinkError::Busy`] if there is no
    /// result within `limit`.
    pub fn look_within<R: Send + 'static>(
        &self,
        limit: Duration,
        look: impl FnOnce(&Mirror) -> R + Send + 'static,
    ) -> Result<R, NetlinkError> {
        self.ask_within(limit, |to| Ask::look(to, look))
    }

    /// Compares the mirror of the kernel's routing state with the kernel and repairs differences. Returns the
    /// differences that were repaired. A mirror that is up to date has no differences.
    ///
    /// # Errors
    /// Returns [`NetlinkError`] if the kernel's state cannot be dumped, or if the follower has ended.
    pub fn check(&self) -> Result<Drift, NetlinkError> {
        self.ask(Ask::Check)?
    }

    /// Compares the mirror with the kernel's state like [`Follower::check`], but returns an error if there is no result
    /// within the time `limit`. The comparison and the repair continue after this function has returned the error.
    ///
    /// # Errors
    /// Returns the errors of [`Follower::check`], and [`NetlinkError::Busy`] if there is no result within
    /// `limit`.
    pub fn check_within(&self, limit: Duration) -> Result<Drift, NetlinkError> {
        self.ask_within(limit, Ask::Check)?
    }

    /// Returns the status of the FPM sessions. Returns `None` if the follower does not use FPM.
    #[must_use]
    pub fn fpm(&self) -> Option<FpmStatus> {
        self.fpm.as_ref().map(|shared| shared.status())
    }

    /// Returns a duplicate of the socket that listens for FPM sessions. A follower that replaces this one can listen on
    /// the duplicate. Returns `None` without FPM, or if the socket does not exist yet.
    #[must_use]
    pub fn listener(&self) -> Option<FpmListener> {
        self.fpm.as_ref().and_then(|shared| shared.listener())
    }

    /// Returns the counters of the follower (the threads that follow the kernel's routing state) since its start.
    #[must_use]
    pub fn status(&self) -> Status {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { events, overruns, resyncs, resync_ns, drifted, read, applied } = &self.shared.counts;
        // `applied` is read before `read`, so that the difference is never negative.
        let applied = get(applied);
        Status {
            events: get(events),
            overruns: get(overruns),
            resyncs: get(resyncs),
            resync_ns: get(resync_ns),
            drifted: get(drifted),
            behind: get(read).saturating_sub(applied),
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Release);
        self.shared.wake();
        if let Some(fpm) = &self.fpm {
            fpm.end.store(true, Ordering::Release);
            fpm.wake();
        }
        let _ = self.to.send(Item::Ask(Ask::End));
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::dump::{ATTEMPTS, repeat_interrupted};
    use super::*;

    fn shared() -> Arc<Shared> {
        Arc::new(Shared {
            end: AtomicBool::new(false),
            fence: AtomicU64::new(0),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap(),
            counts: Counts::default(),
            failed: Mutex::new(None),
        })
    }

    #[test]
    fn interrupted_dumps_are_given_up_at_the_deadline() {
        let end = AtomicBool::new(false);
        let deadline = Instant::now() + Duration::from_millis(20);
        let mut attempts = 0;
        let ended = repeat_interrupted(Some(deadline), &end, || {
            attempts += 1;
            std::thread::sleep(Duration::from_millis(1));
            Err(NetlinkError::Interrupted { what: "links", times: ATTEMPTS })
        });
        assert!(matches!(ended, Err(NetlinkError::Interrupted { .. })), "{ended:?}");
        assert!(attempts > 0 && Instant::now() >= deadline);
        // Without a deadline, the dump is repeated until one attempt succeeds.
        let mut left = 100;
        let done = repeat_interrupted(None, &end, || {
            left -= 1;
            if left == 0 { Ok(()) } else { Err(NetlinkError::Interrupted { what: "links", times: ATTEMPTS }) }
        });
        assert!(done.is_ok() && left == 0);
    }

    /// Checks that a request to a follower (the threads that follow the kernel's routing state) returns an error after
    /// its time limit, if the queue is full or the thread does not answer.
    #[test]
    fn a_question_to_a_busy_follower_ends_at_its_limit() {
        let (to, from) = sync_channel(2);
        let follower = Follower { to, shared: shared(), fpm: None, threads: Vec::new() };
        let limit = Duration::from_millis(20);
        for _ in 0..3 {
            let said = follower.look_within(limit, |mirror| mirror.links.len());
            assert!(matches!(said, Err(NetlinkError::Busy(_))), "{said:?}");
        }
        assert_eq!(from.try_iter().count(), 2);
        let said = follower.check_within(limit);
        assert!(matches!(said, Err(NetlinkError::Busy(_))), "{said:?}");
        drop(from);
        let said = follower.look_within(limit, |mirror| mirror.links.len());
        assert!(matches!(said, Err(NetlinkError::Ended(_))), "{said:?}");
    }

    /// Checks that a refused route is installed when a resync (a complete dump of the kernel's state) has freed space
    /// for it, and that zebra then gets a new answer about the route.
    #[test]
    fn a_route_that_gets_room_by_a_resync_is_answered() {
        use crate::fpm::speak::{self, Target, announce, frame};
        use crate::fpm::{Decoder, Fpm, FpmListener, Said};
        use crate::state::Prefix;

        let prefix = Prefix { address: "198.51.100.0".parse().unwrap(), length: 24 };
        let listener = FpmListener::bind(None, "127.0.0.1:0".parse().unwrap()).unwrap();
        let (name, settle) = ("router".to_owned(), Duration::from_secs(1));
        let fpm = Fpm { name, listener, settle, routes: 1 << 20, users: Vec::new(), remote: false };
        let (_permits, taken) = sync_channel(1);
        let sessions = Sessions::new(&fpm, taken).unwrap();
        let of_fpm = Arc::clone(&sessions.shared);
        let (_to, from) = sync_channel(1);
        let mut outcomes = vec![
            FibOutcome { found: vec![(254, prefix)], ..FibOutcome::default() },
            FibOutcome { refused: vec![(254, prefix)], ..FibOutcome::default() },
        ];
        let mut applier = Applier {
            mirror: Mirror::default(),
            asking: Netlink::open().unwrap(),
            from,
            shared: shared(),
            told: |_: &Mirror, _: &[Change]| outcomes.pop().unwrap_or_default(),
            waiting: vec![],
            sessions: Some(sessions),
            leaving: HashSet::new(),
        };
        fpm::locked(&of_fpm.answers).begin(1, 10);
        let mut events = Vec::new();
        let route = frame([announce(prefix, 186, &Target::Via("192.0.2.1".parse().unwrap(), 1))]);
        Decoder::new().feed(&route, &mut events).unwrap();
        let mut changes = Vec::new();
        applier.announced(Said::Begin(1), &mut changes);
        applier.announced(Said::Events(events), &mut changes);
        let answered = || {
            let (mut bytes, mut answers) = (Vec::new(), Vec::new());
            fpm::locked(&of_fpm.answers).write(&mut bytes, 1 << 16);
            speak::answers(&bytes, &mut answers).unwrap();
            answers.into_iter().map(|answer| answer.offloaded).collect::<Vec<_>>()
        };
        applier.tell(&mut changes);
        assert_eq!(answered(), [false]);
        applier.resync_patiently(None).unwrap();
        assert_eq!(answered(), [true]);
    }

    #[test]
    fn the_end_waits_for_nothing_that_is_queued() {
        let (to, from) = sync_channel(16);
        let shared = shared();
        let mut applier = Applier {
            mirror: Mirror::default(),
            asking: Netlink::open().unwrap(),
            from,
            shared: Arc::clone(&shared),
            told: |_: &Mirror, _: &[Change]| FibOutcome::default(),
            waiting: vec![],
            sessions: None,
            leaving: HashSet::new(),
        };
        let (said, answers) = channel();
        for _ in 0..8 {
            let (said, shared) = (said.clone(), Arc::clone(&shared));
            let look = move |_: &Mirror| {
                said.send(()).unwrap();
                shared.end.store(true, Ordering::Release);
            };
            to.send(Item::Ask(Ask::Look(Box::new(look)))).unwrap();
        }
        assert!(!applier.batch(&mut Vec::new()).unwrap());
        assert_eq!(answers.try_iter().count(), 1);
        assert!(!applier.catch_up(&mut HashSet::new()).unwrap());
        assert_eq!(answers.try_iter().count(), 0);
    }
}
