//! Threads between the kernel and a mirror of its routing state. One thread reads notifications from the
//! kernel, and another applies them to the mirror.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use port::netlink::{Netlink, Request};
use port::netns::{Netns, within_optional};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::decode::{Event, Object, decode};
use crate::error::NetlinkError;
use crate::fpm::{self, Answer, Fpm, FpmListener, FpmStatus, Server, Table, locked};
use crate::mirror::{Change, Mirror};
use crate::rtnetlink::family::{AF_INET, AF_INET6, AF_UNSPEC};
use crate::rtnetlink::message::{
    RTM_GETADDR, RTM_GETLINK, RTM_GETNEIGH, RTM_GETNETCONF, RTM_GETNEXTHOP, RTM_GETROUTE, RTM_GETRULE,
};
use crate::rtnetlink::{group, length};
use crate::state::FibOutcome;

/// Maximum number of notification datagrams that the reader passes to the applier before they are applied.
/// The number is smaller if the socket's receive buffer is small.
const QUEUE: usize = 1 << 16;
/// Number of datagrams after which the applier calls the follower's callback.
const BATCH: usize = 2048;
/// Interval at which a thread that waits for input checks whether it must end.
const PATIENCE: Duration = Duration::from_millis(500);
/// Number of pauses before each comparison of the mirror with the kernel. A difference counts as drift if
/// every comparison finds it. Several comparisons are required because a busy kernel may show an IPv6 address
/// in a dump hundreds of milliseconds before its notification, which a work queue sends.
const WAITS: [usize; 4] = [0, 1, 3, 6];
const MOMENT: Duration = Duration::from_millis(100);
/// Maximum number of attempts to make a dump that changes interrupt.
const ATTEMPTS: u32 = 8;
/// Time for which interrupted dumps are repeated while a follower is started. The caller waits for the start
/// and may hold locks.
const BEGIN_LIMIT: Duration = Duration::from_secs(2);
/// Netlink multicast groups of the notifications: links, neighbours, addresses, routes, rules and settings of
/// both families, and next-hop objects.
const GROUPS: [u32; 11] = [
    group::RTNLGRP_LINK,
    group::RTNLGRP_NEIGH,
    group::RTNLGRP_IPV4_IFADDR,
    group::RTNLGRP_IPV4_ROUTE,
    group::RTNLGRP_IPV4_RULE,
    group::RTNLGRP_IPV6_IFADDR,
    group::RTNLGRP_IPV6_ROUTE,
    group::RTNLGRP_IPV6_RULE,
    group::RTNLGRP_IPV4_NETCONF,
    group::RTNLGRP_IPV6_NETCONF,
    group::RTNLGRP_NEXTHOP,
];

/// Parts of a complete dump. Each part has a message type, an address family and a name.
const PARTS: [(u16, u8, &str); 12] = [
    (RTM_GETLINK, AF_UNSPEC, "links"),
    (RTM_GETADDR, AF_INET, "IPv4 addresses"),
    (RTM_GETADDR, AF_INET6, "IPv6 addresses"),
    (RTM_GETNEIGH, AF_INET, "IPv4 neighbours"),
    (RTM_GETNEIGH, AF_INET6, "IPv6 neighbours"),
    (RTM_GETNEXTHOP, AF_UNSPEC, "next-hop objects"),
    (RTM_GETROUTE, AF_INET, "IPv4 routes"),
    (RTM_GETROUTE, AF_INET6, "IPv6 routes"),
    (RTM_GETRULE, AF_INET, "IPv4 rules"),
    (RTM_GETRULE, AF_INET6, "IPv6 rules"),
    (RTM_GETNETCONF, AF_INET, "IPv4 settings"),
    (RTM_GETNETCONF, AF_INET6, "IPv6 settings"),
];

/// Items in the queue from the reader to the applier.
enum Item {
    Datagram(Vec<u8>),
    /// Notifications were lost. Items before this item in the queue are out of date, and items behind it are
    /// not.
    Overrun,
    /// The notification socket can no longer be read, for this reason.
    Failed(String),
    /// A fence. All notifications that the kernel had sent when the fence was requested are before this item
    /// in the queue.
    Fence(u64),
    Ask(Ask),
    /// Input of an FPM session that provides FRR's routes.
    Fpm(fpm::Said),
}

/// Request of a user of the follower to the applier.
enum Ask {
    /// Report when the applier reaches the fence of this request.
    Settle(Sender<()>),
    /// Call a function with the mirror.
    Look(Box<dyn FnOnce(&Mirror) + Send>),
    /// Compare the mirror with the kernel and repair the differences.
    Check(Sender<Result<Drift, NetlinkError>>),
    End,
}

impl Ask {
    fn look<R: Send + 'static>(to: Sender<R>, look: impl FnOnce(&Mirror) -> R + Send + 'static) -> Ask {
        Ask::Look(Box::new(move |mirror| {
            let _ = to.send(look(mirror));
        }))
    }
}

/// Result of a comparison of the mirror with the kernel: differences for which the kernel sent no
/// notification. The differences have been repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// Objects of the mirror that differed from the kernel.
    pub changes: Vec<Change>,
    /// Number of objects that differed and for which a notification arrived during the comparison. They are
    /// examined by the next comparison.
    pub busy: usize,
}

/// Counters of a follower since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Number of notifications that were decoded.
    pub events: u64,
    /// Number of times that the receive buffer was full, after which notifications were lost.
    pub overruns: u64,
    /// Number of complete dumps. A dump is made at the start, and after notifications were lost.
    pub resyncs: u64,
    /// Duration of the last complete dump in nanoseconds.
    pub resync_ns: u64,
    /// Number of objects that differed from the kernel and were repaired.
    pub drifted: u64,
    /// Number of notification datagrams of the kernel that were read and not yet applied.
    pub behind: u64,
}

#[derive(Default)]
struct Counts {
    events: AtomicU64,
    overruns: AtomicU64,
    resyncs: AtomicU64,
    resync_ns: AtomicU64,
    drifted: AtomicU64,
    read: AtomicU64,
    applied: AtomicU64,
}

/// State that the reader shares with the applier and with users of the follower.
struct Shared {
    end: AtomicBool,
    /// Number of the fence that was requested last.
    fence: AtomicU64,
    wake: OwnedFd,
    counts: Counts,
    /// Reason why the applier has ended. `None` while it runs, and if it has ended on request.
    failed: Mutex<Option<String>>,
}

impl Shared {
    fn wake(&self) {
        // A write to a full counter fails, but a full counter wakes the reader as well.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// A mirror of the kernel's routing state that two threads keep synchronized with the kernel. The threads end
/// when this value is dropped.
pub struct Follower {
    to: SyncSender<Item>,
    shared: Arc<Shared>,
    fpm: Option<Arc<fpm::Shared>>,
    threads: Vec<JoinHandle<()>>,
}

/// State of the applier for FPM sessions.
struct Sessions {
    table: Table,
    /// Answers to announcements. They are sent after all announcements of the batch have been applied.
    answers: Vec<Answer>,
    /// Number that identifies the present session.
    number: u64,
    permits: Receiver<()>,
    shared: Arc<fpm::Shared>,
    /// Name of the router for the log.
    name: String,
    /// Time of the last log message about refused routes, and the number of refused routes at that time.
    /// `None` before the first message.
    complained: Option<(Instant, u64)>,
    /// Number of replays that were completed since the counters were last published.
    settled: u64,
}

/// Minimum interval between two log messages about refused routes.
const COMPLAINTS: Duration = Duration::from_secs(60);

impl Follower {
    /// Recommended size of the receive buffer in bytes. The buffer holds bursts of 100,000 notifications.
    pub const BUFFER: usize = 128 << 20;

    /// Starts to follow the routing state of a network namespace (the caller's if `netns` is `None`). `told`
    /// is called with the mirror and the changes since the previous call. The first call contains all objects
    /// and is made before this function returns. Later calls are made on a separate thread.
    ///
    /// While `told` runs, no notification is applied. Notifications then wait in a receive buffer of `buffer`
    /// bytes. A route notification occupies about 1,000 bytes ([`Follower::BUFFER`]).
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

    /// Starts to follow a namespace like [`Follower::start`], with FRR's routes and next-hop objects from FPM
    /// sessions instead of the kernel. `told` returns the routes that were refused, and the routes that were
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

    /// Sends a request to the applier and returns its answer. Returns [`NetlinkError::Busy`] if there is no
    /// answer within `limit`.
    fn ask_within<T>(&self, limit: Duration, ask: impl FnOnce(Sender<T>) -> Ask) -> Result<T, NetlinkError> {
        /// Pause between two attempts to put a request into a full queue.
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

    /// Waits until the mirror contains all changes that the kernel made before this call, and the callback
    /// has been called for them.
    ///
    /// # Errors
    /// Returns [`NetlinkError::Ended`] if the follower has ended.
    pub fn settle(&self) -> Result<(), NetlinkError> {
        self.ask(Ask::Settle)
    }

    /// Calls `look` with the mirror on the applier's thread, and returns the result of `look`. The mirror has
    /// the state at the time of this call or a later state. No notification is applied while `look` runs.
    ///
    /// # Errors
    /// Returns [`NetlinkError::Ended`] if the follower has ended.
    pub fn look<R: Send + 'static>(
        &self,
        look: impl FnOnce(&Mirror) -> R + Send + 'static,
    ) -> Result<R, NetlinkError> {
        self.ask(|to| Ask::look(to, look))
    }

    /// Calls `look` with the mirror like [`Follower::look`], and stops waiting after the time `limit`. `look`
    /// may still be called after this function has returned an error.
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

    /// Compares the mirror with the kernel and repairs differences. Returns the differences that were
    /// repaired. A mirror that is synchronized has no differences.
    ///
    /// # Errors
    /// Returns [`NetlinkError`] if the kernel's state cannot be dumped, or if the follower has ended.
    pub fn check(&self) -> Result<Drift, NetlinkError> {
        self.ask(Ask::Check)?
    }

    /// Compares the mirror with the kernel like [`Follower::check`], and stops waiting after the time
    /// `limit`. The comparison and the repair continue after this function has returned an error.
    ///
    /// # Errors
    /// Returns the errors of [`Follower::check`], and [`NetlinkError::Busy`] if there is no result within
    /// `limit`.
    pub fn check_within(&self, limit: Duration) -> Result<Drift, NetlinkError> {
        self.ask_within(limit, Ask::Check)?
    }

    /// Returns the status of FPM sessions. Returns `None` if the follower does not use FPM.
    #[must_use]
    pub fn fpm(&self) -> Option<FpmStatus> {
        self.fpm.as_ref().map(|shared| shared.status())
    }

    /// Returns another handle of the listening socket for FPM sessions. A follower that replaces this one can
    /// use it. Returns `None` without FPM, or if the socket does not exist yet.
    #[must_use]
    pub fn listener(&self) -> Option<FpmListener> {
        self.fpm.as_ref().and_then(|shared| shared.listener())
    }

    /// Returns the counters of the follower since its start.
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

/// Thread that reads notifications from the socket and passes them to the applier.
struct Reader {
    listening: Netlink,
    to: SyncSender<Item>,
    shared: Arc<Shared>,
}

impl Reader {
    fn run(mut self) {
        let mut fenced = 0;
        while !self.shared.end.load(Ordering::Acquire) {
            // The fence is read before the socket, because later notifications may follow this fence.
            let fence = self.shared.fence.load(Ordering::Acquire);
            match self.listening.try_receive() {
                Ok(Some(datagram)) => {
                    let datagram = Item::Datagram(datagram.to_vec());
                    self.shared.counts.read.fetch_add(1, Ordering::Relaxed);
                    if self.to.send(datagram).is_err() {
                        return;
                    }
                    continue;
                }
                Ok(None) => {}
                Err(error) if error.errno() != rustix::io::Errno::NOBUFS.raw_os_error() => {
                    let _ = self.to.send(Item::Failed(error.to_string()));
                    return;
                }
                Err(_) => {
                    self.shared.counts.overruns.fetch_add(1, Ordering::Relaxed);
                    // Buffered notifications are older than the lost ones. Notifications after the buffer is
                    // empty are newer.
                    while !matches!(self.listening.try_receive(), Ok(None)) {
                        if self.shared.end.load(Ordering::Acquire) {
                            return;
                        }
                    }
                    if self.to.send(Item::Overrun).is_err() {
                        return;
                    }
                }
            }
            if fence != fenced {
                fenced = fence;
                if self.to.send(Item::Fence(fence)).is_err() {
                    return;
                }
            }
            self.wait();
        }
    }

    fn wait(&self) {
        let socket = self.listening.fd();
        let mut fds = [
            PollFd::new(&socket, PollFlags::IN | PollFlags::ERR),
            PollFd::new(&self.shared.wake, PollFlags::IN),
        ];
        let patience = Timespec::try_from(PATIENCE).unwrap_or_default();
        let _ = poll(&mut fds, Some(&patience));
        let mut count = [0; 8];
        let _ = rustix::io::read(self.shared.wake.as_fd(), &mut count);
    }
}

/// Thread that applies notifications to the mirror and answers requests.
struct Applier<F> {
    mirror: Mirror,
    asking: Netlink,
    from: Receiver<Item>,
    shared: Arc<Shared>,
    told: F,
    /// Requests that are answered when a fence is reached, each with the number of its fence.
    waiting: Vec<(u64, Sender<()>)>,
    sessions: Option<Sessions>,
    /// IDs of next-hop objects whose removal was notified and is not yet applied to the mirror. Consecutive
    /// removals are applied together.
    leaving: HashSet<u32>,
}

impl Sessions {
    fn new(fpm: &Fpm, permits: Receiver<()>) -> Result<Sessions, NetlinkError> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = wake.map_err(|errno| NetlinkError::Thread(errno.into()))?;
        Ok(Sessions {
            table: Table::new(fpm.routes),
            answers: Vec::new(),
            number: 0,
            permits,
            shared: Arc::new(fpm::Shared::new(wake)),
            name: fpm.name.clone(),
            complained: None,
            settled: 0,
        })
    }

    /// Logs refused routes if some were refused since the last message and `COMPLAINTS` have passed.
    fn complain(&mut self) {
        let refused = self.table.refused;
        let due = match self.complained {
            None => refused > 0,
            Some((when, before)) => refused > before && when.elapsed() >= COMPLAINTS,
        };
        if due {
            let first = self.answers.iter().find(|(_, said)| said.is_some_and(|said| !said.offloaded));
            let route = first.map(|(key, _)| key.prefix().to_string()).unwrap_or_default();
            let why = "announced routes find no room, or lead to next hops that nobody has announced";
            let next = "raise `routes`; what there is goes on forwarding";
            tracing::error!(router = %self.name, refused, route, "{why}; {next}");
            self.complained = Some((Instant::now(), refused));
        }
    }

    /// Applies the input of an FPM session to the mirror. Returns the number of messages in the input.
    fn apply(&mut self, said: fpm::Said, mirror: &mut Mirror, changes: &mut Vec<Change>) -> usize {
        match said {
            fpm::Said::Begin(number) => {
                self.number = number;
                self.answers.clear();
                self.table.begin();
            }
            fpm::Said::Lost => self.table.lost(),
            fpm::Said::Settled => {
                self.table.settled(mirror, changes);
                self.settled += 1;
            }
            fpm::Said::Events(events) => {
                let count = events.len();
                self.table.apply_all(mirror, events, changes, &mut self.answers);
                let _ = self.permits.try_recv();
                return count;
            }
        }
        0
    }

    /// Queues the answers to announcements. `room` contains the routes that were refused, and the routes that
    /// were installed after a refusal.
    fn answer(&mut self, room: &FibOutcome) {
        self.table.no_room(&room.refused, &mut self.answers);
        self.table.found_room(&room.found, &mut self.answers);
        self.complain();
        let counts = [
            (&self.shared.left, self.table.left),
            (&self.shared.refused, self.table.refused),
            (&self.shared.swept, self.table.swept),
            (&self.shared.named, self.table.named().unwrap_or(u64::MAX)),
        ];
        counts.into_iter().for_each(|(count, now)| count.store(now, Ordering::Relaxed));
        self.shared.settling.fetch_sub(std::mem::take(&mut self.settled), Ordering::Release);
        if !self.answers.is_empty() {
            locked(&self.shared.answers).say(self.number, self.answers.drain(..));
            self.shared.wake();
        }
    }
}

impl<F: FnMut(&Mirror, &[Change]) -> FibOutcome> Applier<F> {
    fn run(mut self) {
        let ended = loop {
            let mut changes = Vec::new();
            match self.batch(&mut changes) {
                Ok(true) => {}
                Ok(false) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        *self.shared.failed.lock().unwrap_or_else(PoisonError::into_inner) = ended;
        // Requests from now on receive this reason.
    }

    /// Applies the items that are in the queue, at most one batch, and calls the callback with the changes.
    /// Returns `false` if the applier must end.
    fn batch(&mut self, changes: &mut Vec<Change>) -> Result<bool, NetlinkError> {
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

    /// Removes the next-hop objects in `leaving` from the mirror, in one pass.
    fn let_next_hops_go(&mut self, changes: &mut Vec<Change>) {
        if !self.leaving.is_empty() {
            self.mirror.next_hops_gone(std::mem::take(&mut self.leaving), changes);
        }
    }

    /// Returns whether an FPM session determines the object of an event of the kernel. The event is then
    /// ignored.
    fn is_told_apart(&self, event: &Event) -> bool {
        self.sessions.as_ref().is_some_and(|sessions| sessions.table.speaks_for(event))
    }

    fn announced(&mut self, said: fpm::Said, changes: &mut Vec<Change>) -> usize {
        let Some(sessions) = &mut self.sessions else { return 0 };
        sessions.apply(said, &mut self.mirror, changes)
    }

    fn tell(&mut self, changes: &mut Vec<Change>) {
        self.let_next_hops_go(changes);
        let mut room = FibOutcome::default();
        if !changes.is_empty() {
            room = (self.told)(&self.mirror, changes);
            changes.clear();
        }
        if let Some(sessions) = &mut self.sessions {
            sessions.answer(&room);
        }
    }

    /// Requests a fence from the reader and returns its number. The reader passes the fence on after the
    /// notifications that are available now.
    fn fence(&self) -> u64 {
        let fence = self.shared.fence.fetch_add(1, Ordering::AcqRel) + 1;
        self.shared.wake();
        fence
    }

    /// Answers the requests that wait for this fence or an earlier one.
    fn reached(&mut self, fence: u64) {
        self.waiting.retain(|(wanted, to)| {
            let waits = *wanted > fence;
            if !waits {
                let _ = to.send(());
            }
            waits
        });
    }

    /// Returns a new mirror from a dump of the kernel's present state. A dump that changes interrupt is
    /// repeated until `deadline`.
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

    /// Replaces the mirror by a complete dump of the kernel's state. Differences from the previous state of
    /// the mirror are reported as changes.
    fn resync(&mut self, deadline: Option<Instant>) -> Result<(), NetlinkError> {
        let begun = Instant::now();
        let there = self.dump(deadline)?;
        let changes = self.mirror.differences(&there);
        self.mirror = there;
        let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.shared.counts.resync_ns.store(took, Ordering::Relaxed);
        self.shared.counts.resyncs.fetch_add(1, Ordering::Relaxed);
        (self.told)(&self.mirror, &changes);
        Ok(())
    }

    /// Makes a complete dump like `resync`, and repeats it while changes interrupt it, until `deadline`.
    fn resync_patiently(&mut self, deadline: Option<Instant>) -> Result<(), NetlinkError> {
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
                (self.told)(&self.mirror, &drift.changes);
            }
        }
        Ok(drift)
    }

    /// Dumps the kernel's state and compares it with the mirror. Returns the dump, the differences for which
    /// no notification arrived before the end of the dump, and the number of differences for which one
    /// arrived. Returns `None` if a complete dump was made for the mirror meanwhile, or if the applier must
    /// end.
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

    /// Applies all notifications that the kernel has sent so far, and adds the changes to `touched`. Returns
    /// `false` if the applier must end.
    fn catch_up(&mut self, touched: &mut HashSet<Change>) -> Result<bool, NetlinkError> {
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

/// Returns whether an interrupted dump is not repeated any more, because the deadline has passed or the
/// follower must end.
fn gives_up(deadline: Option<Instant>, end: &AtomicBool) -> bool {
    end.load(Ordering::Acquire) || deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// Calls `attempt` again while changes interrupt it, until the deadline has passed or the follower must end.
/// Returns the result of the last attempt.
fn repeat_interrupted(
    deadline: Option<Instant>,
    end: &AtomicBool,
    mut attempt: impl FnMut() -> Result<(), NetlinkError>,
) -> Result<(), NetlinkError> {
    loop {
        match attempt() {
            Err(NetlinkError::Interrupted { .. }) if !gives_up(deadline, end) => {}
            done => return done,
        }
    }
}

/// Returns a netlink request for a dump of all objects of a message type and address family.
fn request(kind: u16, family: u8) -> Request {
    // All request headers begin with the family.
    let header = match kind {
        RTM_GETLINK => length::IFINFOMSG,
        RTM_GETADDR => length::IFADDRMSG,
        RTM_GETNEIGH => length::NDMSG,
        RTM_GETNEXTHOP => length::NHMSG,
        RTM_GETRULE => length::FIB_RULE_HDR,
        RTM_GETNETCONF => length::NETCONFMSG,
        _ => length::RTMSG,
    };
    let mut body = vec![0; header];
    body[0] = family;
    Request::new(kind, port::netlink::NLM_F_DUMP, &body)
}

#[cfg(test)]
mod tests {
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
        // Without a deadline they are repeated until one is whole.
        let mut left = 100;
        let done = repeat_interrupted(None, &end, || {
            left -= 1;
            if left == 0 { Ok(()) } else { Err(NetlinkError::Interrupted { what: "links", times: ATTEMPTS }) }
        });
        assert!(done.is_ok() && left == 0);
    }

    /// Checks that a request to a follower returns an error after its time limit, if the queue is full or the
    /// thread does not answer.
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
