//! The threads between the kernel and a mirror: one reads, one applies.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use port::netlink::{Netlink, Request};
use port::netns::{Netns, within_optional};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::decode::{self, Event, Object, decode};
use crate::error::NetlinkError;
use crate::fpm::{self, Answer, Fpm, FpmListener, FpmStatus, Server, Table, locked};
use crate::mirror::{Change, Mirror};
use crate::state::FibOutcome;

/// Most datagrams between reader and applier; fewer where the socket's buffer is small.
const QUEUE: usize = 1 << 16;
/// Datagrams that are applied before whoever follows is told.
const BATCH: usize = 2048;
/// How long the reader waits before it looks whether it is to end.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often the mirror must differ from the kernel in the same way to have drifted, and how many moments are between: a busy kernel may show an
/// IPv6 address hundreds of milliseconds before it tells of it (its work queue does that).
const WAITS: [usize; 4] = [0, 1, 3, 6];
const MOMENT: Duration = Duration::from_millis(100);
/// How often a dump is begun anew when changes interrupt it.
const ATTEMPTS: u32 = 8;
/// Groups of notifications: links, neighbours, addresses, routes, rules and settings of both families, next-hop objects.
const GROUPS: [u32; 11] = [1, 3, 5, 7, 8, 9, 11, 19, 24, 25, 32];

/// What there is to dump: a message, its family, and what it is called.
const PARTS: [(u16, u8, &str); 12] = [
    (decode::NEWLINK + 2, 0, "links"),
    (decode::NEWADDR + 2, 2, "IPv4 addresses"),
    (decode::NEWADDR + 2, 10, "IPv6 addresses"),
    (decode::NEWNEIGH + 2, 2, "IPv4 neighbours"),
    (decode::NEWNEIGH + 2, 10, "IPv6 neighbours"),
    (decode::NEWNEXTHOP + 2, 0, "next-hop objects"),
    (decode::NEWROUTE + 2, 2, "IPv4 routes"),
    (decode::NEWROUTE + 2, 10, "IPv6 routes"),
    (decode::NEWRULE + 2, 2, "IPv4 rules"),
    (decode::NEWRULE + 2, 10, "IPv6 rules"),
    (decode::NEWNETCONF + 2, 2, "IPv4 settings"),
    (decode::NEWNETCONF + 2, 10, "IPv6 settings"),
];

/// What the reader hands on, in its order.
enum Item {
    Datagram(Vec<u8>),
    /// Notifications were lost; those before it are stale, those behind it are not.
    Overrun,
    /// The socket cannot be read any more.
    Failed(String),
    /// All that the kernel had told when it was asked for has been handed on.
    Fence(u64),
    Ask(Ask),
    /// What came by FPM.
    Fpm(fpm::Said),
}

/// What is asked of the applier.
enum Ask {
    /// Tell when it gets there.
    Settle(Sender<()>),
    /// Look at the mirror.
    Look(Box<dyn FnOnce(&Mirror) + Send>),
    /// Look for drift, and repair it.
    Check(Sender<Result<Drift, NetlinkError>>),
    End,
}

/// What differed from the kernel though no notification had said so. It has been repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// What differed.
    pub changes: Vec<Change>,
    /// Objects that changed while they were compared, and were left to the next time.
    pub busy: usize,
}

/// Counts since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Messages that were applied.
    pub events: u64,
    /// Times that the kernel had more to tell than there was room for.
    pub overruns: u64,
    /// Times that everything was dumped: at first, and after overruns.
    pub resyncs: u64,
    /// Nanoseconds that the last of these took.
    pub resync_ns: u64,
    /// Objects that had drifted, and were repaired.
    pub drifted: u64,
    /// Datagrams of the kernel's that were read and wait to be applied.
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

/// Between the reader and those who want something of it.
struct Shared {
    end: AtomicBool,
    /// The last fence that was asked for.
    fence: AtomicU64,
    wake: OwnedFd,
    counts: Counts,
    /// Why the applier has ended, if it has.
    failed: Mutex<Option<String>>,
}

impl Shared {
    fn wake(&self) {
        // A counter that is full wakes as well.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// A mirror that is kept in step; ends when it is dropped.
pub struct Follower {
    to: SyncSender<Item>,
    shared: Arc<Shared>,
    fpm: Option<Arc<fpm::Shared>>,
    threads: Vec<JoinHandle<()>>,
}

/// What the applier knows of sessions.
struct Sessions {
    table: Table,
    /// What there is to answer once all that was said is told.
    answers: Vec<Answer>,
    /// Of which session.
    number: u64,
    permits: Receiver<()>,
    shared: Arc<fpm::Shared>,
    /// The router's name.
    name: String,
    /// When it was last said that there is no room, and how often there was none by then.
    complained: Option<(Instant, u64)>,
    /// Replays that became whole since the counts were last published.
    settled: u64,
}

/// How often that is said.
const COMPLAINTS: Duration = Duration::from_secs(60);

impl Follower {
    /// Bytes of the socket's receive buffer that hold bursts of 100,000 notifications.
    pub const BUFFER: usize = 128 << 20;

    /// Begins to follow a namespace (the caller's if none is named). `told` is called with the mirror and what has changed in it since
    /// the last time: with everything before this returns, and then on a thread of its own. While it runs nothing is applied; what comes
    /// then waits in a receive buffer of so many bytes, of which a notification of a route takes about 1,000 ([`Follower::BUFFER`]).
    ///
    /// # Errors
    /// [`NetlinkError`] when the namespace or its state cannot be read.
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

    /// The same, but for FRR's routes and next-hop objects: those are what sessions of FPM say. `told` gives which routes found room, and which
    /// did not.
    ///
    /// # Errors
    /// As [`Follower::start`].
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
        // What comes meanwhile waits in the socket.
        applier.resync_patiently()?;
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
        let ended = || {
            let failed = self.shared.failed.lock().unwrap_or_else(PoisonError::into_inner);
            NetlinkError::Ended(failed.clone().unwrap_or_else(|| "its thread has panicked".to_owned()))
        };
        self.to.send(Item::Ask(ask(to))).map_err(|_| ended())?;
        answer.recv().map_err(|_| ended())
    }

    /// Waits until all that the kernel has done before is in the mirror, and told.
    ///
    /// # Errors
    /// [`NetlinkError::Ended`].
    pub fn settle(&self) -> Result<(), NetlinkError> {
        self.ask(Ask::Settle)
    }

    /// What `look` makes of the mirror as it is at some moment from now on; meanwhile nothing is applied.
    ///
    /// # Errors
    /// [`NetlinkError::Ended`].
    pub fn look<R: Send + 'static>(
        &self,
        look: impl FnOnce(&Mirror) -> R + Send + 'static,
    ) -> Result<R, NetlinkError> {
        self.ask(|to| {
            Ask::Look(Box::new(move |mirror| {
                let _ = to.send(look(mirror));
            }))
        })
    }

    /// Compares the mirror with the kernel and repairs what differs. On a mirror in step nothing does.
    ///
    /// # Errors
    /// [`NetlinkError`] when the state cannot be dumped.
    pub fn check(&self) -> Result<Drift, NetlinkError> {
        self.ask(Ask::Check)?
    }

    /// How sessions of FPM are doing, where there are any.
    #[must_use]
    pub fn fpm(&self) -> Option<FpmStatus> {
        self.fpm.as_ref().map(|shared| shared.status())
    }

    /// The socket that sessions come to, for a follower that takes this one's place.
    #[must_use]
    pub fn listener(&self) -> Option<FpmListener> {
        self.fpm.as_ref().and_then(|shared| shared.listener())
    }

    /// What has happened so far.
    #[must_use]
    pub fn status(&self) -> Status {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { events, overruns, resyncs, resync_ns, drifted, read, applied } = &self.shared.counts;
        // In this order, so that it is never less than nothing.
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

/// Reads the socket, and nothing else.
struct Reader {
    listening: Netlink,
    to: SyncSender<Item>,
    shared: Arc<Shared>,
}

impl Reader {
    fn run(mut self) {
        let mut fenced = 0;
        while !self.shared.end.load(Ordering::Acquire) {
            // Looked at before the socket: what the kernel tells from now on may come behind this fence.
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
                    // What lies in the buffer is older than what was lost. What comes once it is empty is newer.
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

/// Keeps the mirror.
struct Applier<F> {
    mirror: Mirror,
    asking: Netlink,
    from: Receiver<Item>,
    shared: Arc<Shared>,
    told: F,
    /// Who waits for which fence.
    waiting: Vec<(u64, Sender<()>)>,
    sessions: Option<Sessions>,
    /// Next-hop objects that have gone one after the other, and are still in the mirror.
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

    /// Says that there is no room, now and then.
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

    /// Does what was said; gives how many messages those were.
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

    /// Answers what was said, by what found room.
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
        // Whoever asks from now on is told so.
    }

    /// Applies what is there, at most a batch, and tells; false at the end.
    fn batch(&mut self, changes: &mut Vec<Change>) -> Result<bool, NetlinkError> {
        let Ok(first) = self.from.recv() else { return Ok(false) };
        let mut next = Some(first);
        let mut done = 0;
        while let Some(item) = next {
            if !matches!(item, Item::Datagram(_)) {
                self.let_next_hops_go(changes);
            }
            match item {
                Item::Datagram(bytes) => self.apply(&bytes, changes),
                Item::Fpm(said) => done += self.announced(said, changes),
                Item::Overrun => {
                    self.tell(changes);
                    self.resync_patiently()?;
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

    /// Takes out the next-hop objects that have gone one after the other.
    fn let_next_hops_go(&mut self, changes: &mut Vec<Change>) {
        if !self.leaving.is_empty() {
            self.mirror.next_hops_gone(std::mem::take(&mut self.leaving), changes);
        }
    }

    /// Whether FPM says what becomes of something, and the kernel does not count.
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

    /// Asks the reader to say when it has read what is there.
    fn fence(&self) -> u64 {
        let fence = self.shared.fence.fetch_add(1, Ordering::AcqRel) + 1;
        self.shared.wake();
        fence
    }

    /// Tells those who wait for a fence.
    fn reached(&mut self, fence: u64) {
        self.waiting.retain(|(wanted, to)| {
            let waits = *wanted > fence;
            if !waits {
                let _ = to.send(());
            }
            waits
        });
    }

    /// The kernel's state now.
    fn dump(&mut self) -> Result<Mirror, NetlinkError> {
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
                if attempts == ATTEMPTS {
                    return Err(NetlinkError::Interrupted { what, times: attempts });
                }
            }
        }
        if let Some(sessions) = &self.sessions {
            sessions.table.carry(&self.mirror, &mut mirror);
        }
        Ok(mirror)
    }

    /// Dumps everything; what differs from before has changed.
    fn resync(&mut self) -> Result<(), NetlinkError> {
        let begun = Instant::now();
        let there = self.dump()?;
        let changes = self.mirror.differences(&there);
        self.mirror = there;
        let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.shared.counts.resync_ns.store(took, Ordering::Relaxed);
        self.shared.counts.resyncs.fetch_add(1, Ordering::Relaxed);
        (self.told)(&self.mirror, &changes);
        Ok(())
    }

    /// The same while changes go on: tried again when they interrupt it.
    fn resync_patiently(&mut self) -> Result<(), NetlinkError> {
        loop {
            match self.resync() {
                Err(NetlinkError::Interrupted { .. }) if !self.shared.end.load(Ordering::Acquire) => {}
                done => return done,
            }
        }
    }

    /// What differs from the kernel, and stays so though nothing is told of it: some changes are told a moment late.
    fn check(&mut self) -> Result<Drift, NetlinkError> {
        let mut drift = Drift::default();
        for (round, moments) in WAITS.into_iter().enumerate() {
            for _ in 0..moments {
                std::thread::sleep(MOMENT);
                // What is told goes on being applied.
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

    /// The kernel's state, what differs from it and was not told before or while it was dumped, and of how much something was told;
    /// `None` when there is nothing to compare: everything was dumped anew meanwhile, or this ends.
    fn compare(&mut self) -> Result<Option<(Mirror, Vec<Change>, usize)>, NetlinkError> {
        if !self.catch_up(&mut HashSet::new())? {
            return Ok(None);
        }
        let resyncs = self.shared.counts.resyncs.load(Ordering::Relaxed);
        let there = self.dump()?;
        let mut touched = HashSet::new();
        if !self.catch_up(&mut touched)? || self.shared.counts.resyncs.load(Ordering::Relaxed) != resyncs {
            return Ok(None);
        }
        let (busy, differing): (Vec<_>, Vec<_>) =
            self.mirror.differences(&there).into_iter().partition(|change| touched.contains(change));
        Ok(Some((there, differing, busy.len())))
    }

    /// Applies all that the kernel has told until now, and adds what it has changed to `touched`; false at the end.
    fn catch_up(&mut self, touched: &mut HashSet<Change>) -> Result<bool, NetlinkError> {
        let fence = self.fence();
        let mut changes = Vec::new();
        loop {
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
                Item::Overrun => self.resync_patiently()?,
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
                // One is under way.
                Item::Ask(Ask::Check(to)) => drop(to.send(Ok(Drift::default()))),
                Item::Ask(Ask::End) => return Ok(false),
            }
        }
    }
}

/// Asks for all objects of a kind.
fn request(kind: u16, family: u8) -> Request {
    // The family comes first in all of them.
    let header = match kind - 2 {
        decode::NEWNEXTHOP | decode::NEWADDR => 8,
        decode::NEWLINK => 16,
        decode::NEWNETCONF => 4,
        _ => 12,
    };
    let mut body = vec![0; header];
    body[0] = family;
    Request::new(kind, port::netlink::NLM_F_DUMP, &body)
}
