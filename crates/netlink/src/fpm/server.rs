//! Thread that communicates with zebra. The thread reads and decodes messages, passes them to the applier (the thread
//! that updates the mirror), and sends answers. The thread never blocks on the connection of a peer.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use port::tcp_users::User;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

use super::wire::Decoder;
use super::{FpmListener, Said, Shared, locked};
use crate::decode::{Event, Object};

/// Maximum number of bytes that are read from a connection in one call.
const CHUNK: usize = 256 << 10;
/// Maximum number of consecutive reads from a connection. After these reads, the thread sends answers and does its
/// other work.
const TURNS: usize = 16;
/// Maximum number of connections that are accepted consecutively before the thread continues with the open FPM session.
const ACCEPTS: usize = 4;
/// Number of decoded events that are passed to the applier (the thread that updates the mirror) in one batch.
const BATCH: usize = 4096;
/// Maximum number of batches of events that the applier thread has not processed yet.
pub(crate) const BATCHES: usize = 16;
/// Time for which the deletion of a route is held back, because a new route that replaces it may follow.
const HOLD: Duration = Duration::from_millis(5);
/// Number of bytes of encoded answers to zebra that are written to a connection in one call.
const ANSWERS: usize = 64 << 10;
/// Time after which a peer is disconnected if it does not read its answers, so that no further byte can be sent.
const UNREAD: Duration = Duration::from_secs(30);
/// Maximum number of unsent answers to zebra, in addition to the maximum number of routes.
const SPARE: usize = 65_536;
/// Interval at which the idle thread checks whether it must end, and tries to open its listening socket if the socket
/// does not exist yet.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time without received data after which the kernel sends a keepalive probe to the peer. Two more probes follow at
/// half this interval.
const SILENCE: Duration = Duration::from_secs(10);
/// Multiple of the settling time (`super::Fpm::settle`) after which a replay (zebra's announcement of all routes)
/// counts as complete even if messages keep arriving.
const BUSY: u32 = 10;
/// Maximum number of log lines per minute that peers can cause.
const LINES: u32 = 20;

/// FPM server. The server accepts connections of zebra and reads one FPM session at a time.
pub(crate) struct Server<S> {
    name: String,
    listener: FpmListener,
    settle: Duration,
    /// Maximum number of unsent answers to zebra.
    most: usize,
    /// Numeric IDs of the local users whose processes may connect.
    users: Vec<u32>,
    /// Whether processes of other machines may connect.
    remote: bool,
    /// Function that passes input to the applier thread. Returns `false` if the applier thread has ended.
    say: S,
    permits: SyncSender<()>,
    shared: Arc<Shared>,
    session: Option<Session>,
    sessions: u64,
    /// Start of the current minute, and the number of log lines in this minute that peers have caused.
    lines: (Instant, u32),
    chunk: Vec<u8>,
}

struct Session {
    stream: TcpStream,
    peer: SocketAddr,
    decoder: Decoder,
    events: Vec<Event>,
    /// Time since which route deletions at the end of `events` are held back. `None` if no deletions are held back.
    held: Option<Instant>,
    begun: Instant,
    /// Time at which data was last received from the peer.
    last: Instant,
    replaying: bool,
    /// Encoded answers to zebra. The first `left` bytes have been sent.
    out: Vec<u8>,
    left: usize,
    /// Time since which no bytes of `out` could be sent. `None` if bytes can be sent.
    stuck: Option<Instant>,
    /// Message counters of the FPM session at the time when they were last added to the status.
    counted: super::Counts,
}

/// Enables TCP keepalive probes on a connection, so that the kernel also closes the connection if the peer's machine
/// has failed without closing the connection.
fn probe_silence(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENCE)?;
    sockopt::set_tcp_keepintvl(stream, SILENCE / 2)?;
    sockopt::set_tcp_keepcnt(stream, 2)
}

/// Returns whether the peer's end of a connection is still open. Unlike a read, this detects a close even if received
/// data is still unread.
fn is_open(stream: &TcpStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::RDHUP)];
    let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    match poll(&mut fds, Some(&Timespec::default())) {
        Ok(_) => !fds[0].revents().intersects(closed),
        Err(_) => true,
    }
}

/// Error that reports that the applier thread has ended.
struct Ended;

/// Reason for the end of an FPM session.
enum End {
    Closed,
    Because(String),
    /// The applier thread has ended. Therefore the server must end as well.
    All,
}

impl From<Ended> for End {
    fn from(_: Ended) -> End {
        End::All
    }
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> End {
        End::Because(error.to_string())
    }
}

impl<S: Fn(Said) -> bool> Server<S> {
    /// Creates an FPM server. `say` passes input to the applier thread, and returns `false` after this thread has
    /// ended. The server takes one permit for each batch of events, and the applier returns the permit.
    pub(crate) fn new(fpm: super::Fpm, say: S, permits: SyncSender<()>, shared: Arc<Shared>) -> Server<S> {
        *locked(&shared.listener) = fpm.listener.share();
        Server {
            name: fpm.name,
            listener: fpm.listener,
            settle: fpm.settle,
            most: fpm.routes.saturating_add(SPARE),
            users: fpm.users,
            remote: fpm.remote,
            say,
            permits,
            shared,
            session: None,
            sessions: 0,
            lines: (Instant::now(), 0),
            chunk: vec![0; CHUNK],
        }
    }

    pub(crate) fn run(mut self) {
        let mut tried = None;
        while !self.shared.end.load(Ordering::Acquire) {
            if self.listener.socket.is_none() && tried.is_none_or(|at: Instant| at.elapsed() >= PATIENCE) {
                self.listen(tried.is_none());
                tried = Some(Instant::now());
            }
            self.wait();
            if self.accept().is_err() {
                return;
            }
            let Some(mut session) = self.session.take() else { continue };
            match self.serve(&mut session) {
                Ok(()) => self.session = Some(session),
                Err(End::All) => return,
                Err(end) => {
                    if self.close(session, end).is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn listen(&mut self, first: bool) {
        let trouble = self.listener.listen().err().map(|error| error.to_string());
        if let (Some(trouble), true) = (&trouble, first) {
            let next = "free the address, or name another as `fpm`; it is tried again every second";
            tracing::error!(router = %self.name, "{trouble}; {next}");
        }
        *locked(&self.shared.listener) = self.listener.share();
        locked(&self.shared.seen).status.trouble = trouble;
    }

    /// Waits until a file descriptor is ready or a time limit of the FPM session is reached.
    fn wait(&self) {
        let mut until = PATIENCE;
        let mut fds = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
        if let Some(socket) = &self.listener.socket {
            fds.push(PollFd::new(socket, PollFlags::IN));
        }
        if let Some(session) = &self.session {
            let out = if session.left < session.out.len() { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::new(&session.stream, PollFlags::IN | out));
            if let Some(held) = session.held {
                until = until.min(HOLD.saturating_sub(held.elapsed()));
            }
            // A session without any message has no time limit.
            if session.replaying && session.counted.messages > 0 {
                until = until.min(self.settle.saturating_sub(session.last.elapsed()));
            }
        }
        // One millisecond is added, so that the timer has certainly expired.
        let patience = Timespec::try_from(until + Duration::from_millis(1)).unwrap_or_default();
        let _ = poll(&mut fds, Some(&patience));
        let mut count = [0; 8];
        let _ = rustix::io::read(self.shared.wake.as_fd(), &mut count);
    }

    /// Accepts new connections whose peers are permitted. If an FPM session is open, the open session is kept and the
    /// new connection is refused. A session that its peer has closed is replaced. The number of connections that one
    /// call accepts is limited, so that refused connections do not delay the session.
    fn accept(&mut self) -> Result<(), Ended> {
        for _ in 0..ACCEPTS {
            if self.shared.end.load(Ordering::Acquire) {
                break;
            }
            let Some(Ok((stream, peer))) = self.listener.socket.as_ref().map(TcpListener::accept) else {
                break;
            };
            let session = self.session.as_ref();
            if let Some(by) = session.filter(|open| is_open(&open.stream)).map(|open| open.peer) {
                if self.may_log() {
                    tracing::warn!(router = %self.name, %peer, "it is refused: the session with {by} is open; end that process first");
                }
                continue;
            }
            if stream.set_nonblocking(true).is_err() || probe_silence(&stream).is_err() {
                continue;
            }
            if let Err(why) = self.admit(&stream, peer) {
                if self.may_log() {
                    tracing::warn!(router = %self.name, %peer, "it may not say routes by FPM: {why}");
                }
                continue;
            }
            if let Some(before) = self.session.take() {
                self.close(before, End::Closed)?;
            }
            self.sessions += 1;
            let (number, now) = (self.sessions, Instant::now());
            locked(&self.shared.answers).begin(number, self.most);
            self.hand_on(Said::Begin(number))?;
            {
                let mut seen = locked(&self.shared.seen);
                seen.since = Some(now);
                seen.status.peer = Some((peer, Duration::ZERO));
                seen.status.replaying = true;
                seen.status.sessions = number;
            }
            if self.may_log() {
                tracing::info!(router = %self.name, %peer, "zebra has connected");
            }
            self.session = Some(Session {
                stream,
                peer,
                decoder: Decoder::new(),
                events: Vec::new(),
                held: None,
                begun: now,
                last: now,
                replaying: true,
                out: Vec::new(),
                left: 0,
                stuck: None,
                counted: super::Counts::default(),
            });
        }
        Ok(())
    }

    /// Checks whether a connected peer may announce routes.
    ///
    /// # Errors
    /// Returns the reason why the peer may not announce routes.
    fn admit(&mut self, stream: &TcpStream, peer: SocketAddr) -> Result<(), String> {
        let local = stream.local_addr().map_err(|error| error.to_string())?;
        match self.listener.user_of(peer, local)? {
            User::Local(user) if self.users.contains(&user) => Ok(()),
            User::Local(user) => {
                Err(format!("it is a process of user {user}; name the user in `fpm_users` if that is meant"))
            }
            User::Gone => Err("it is closed already".to_owned()),
            User::Elsewhere if self.remote => Ok(()),
            User::Elsewhere => {
                Err("it is no process of this namespace; set `fpm_remote` if that is meant".to_owned())
            }
        }
    }

    fn close(&mut self, mut session: Session, end: End) -> Result<(), Ended> {
        // Complete messages are still applied.
        self.flush(&mut session, true)?;
        self.hand_on(Said::Lost)?;
        let why = match end {
            End::Because(why) => why,
            _ => "it was closed at the other end".to_owned(),
        };
        let peer = session.peer;
        if self.may_log() {
            let when = if session.replaying { " in a replay" } else { "" };
            tracing::warn!(router = %self.name, %peer, "its session has ended{when}: {why}; its routes stay");
        }
        let mut seen = locked(&self.shared.seen);
        seen.since = None;
        seen.status.peer = None;
        seen.status.replaying = false;
        seen.status.ended = Some(format!("{peer}: {why}"));
        Ok(())
    }

    fn serve(&mut self, session: &mut Session) -> Result<(), End> {
        self.answer(session)?;
        let quiet = self.read(session);
        {
            let counts = session.decoder.counts();
            let mut seen = locked(&self.shared.seen);
            seen.status.messages += counts.messages - session.counted.messages;
            seen.status.left += counts.left - session.counted.left;
            session.counted = counts;
        }
        let quiet = quiet?;
        let due = session.held.is_some_and(|held| held.elapsed() >= HOLD);
        if quiet || session.events.len() >= BATCH {
            self.flush(session, due)?;
        }
        let settled = session.last.elapsed() >= self.settle || session.begun.elapsed() >= self.settle * BUSY;
        // A session without any message has nothing to replay.
        if session.replaying && quiet && settled && session.counted.messages > 0 {
            self.flush(session, true)?;
            self.shared.settling.fetch_add(1, Ordering::Relaxed);
            self.hand_on(Said::Settled)?;
            session.replaying = false;
            locked(&self.shared.seen).status.replaying = false;
        }
        Ok(())
    }

    /// Reads a limited amount of the data that is available on the connection. Returns whether all available data was
    /// read.
    fn read(&mut self, session: &mut Session) -> Result<bool, End> {
        for _ in 0..TURNS {
            let read = match session.stream.read(&mut self.chunk) {
                Ok(0) => return Err(End::Closed),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            session.last = Instant::now();
            let told = session.decoder.feed(&self.chunk[..read], &mut session.events);
            told.map_err(|bad| End::Because(bad.to_string()))?;
            if session.events.len() >= BATCH {
                self.flush(session, false)?;
            }
        }
        Ok(false)
    }

    /// Passes the decoded events to the applier. If `all` is false, route deletions at the end of the events are held
    /// back: zebra sends an update as a deletion followed by a new route, and the new route may arrive soon.
    fn flush(&mut self, session: &mut Session, all: bool) -> Result<(), Ended> {
        let replaced =
            |event: &Event| event.gone && matches!(event.object, Object::Route4(..) | Object::Route6(..));
        // A large number of deletions, such as a whole table, does not wait.
        let held = session.events.iter().rev().take_while(|event| replaced(event)).count();
        let held = if all || held > BATCH { 0 } else { held };
        let rest = session.events.split_off(session.events.len() - held);
        let events = std::mem::replace(&mut session.events, rest);
        if session.events.is_empty() {
            session.held = None;
        } else if !events.is_empty() || session.held.is_none() {
            session.held = Some(Instant::now());
        }
        if events.is_empty() {
            return Ok(());
        }
        self.permits.send(()).map_err(|_| Ended)?;
        self.hand_on(Said::Events(events))
    }

    fn hand_on(&self, said: Said) -> Result<(), Ended> {
        if (self.say)(said) { Ok(()) } else { Err(Ended) }
    }

    /// Sends as many unsent answers to zebra as the connection accepts.
    fn answer(&mut self, session: &mut Session) -> Result<(), End> {
        loop {
            let written = {
                let mut answers = locked(&self.shared.answers);
                if answers.overflows() {
                    let why = "it does not read its answers: more wait than there are routes";
                    return Err(End::Because(why.to_owned()));
                }
                if session.left == session.out.len() {
                    session.out.clear();
                    session.left = 0;
                    answers.write(&mut session.out, ANSWERS)
                } else {
                    0
                }
            };
            if session.out.is_empty() {
                return Ok(());
            }
            locked(&self.shared.seen).status.answers += written;
            match session.stream.write(&session.out[session.left..]) {
                Ok(written) => {
                    session.left += written;
                    session.stuck = None;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let since = *session.stuck.get_or_insert_with(Instant::now);
                    if since.elapsed() >= UNREAD {
                        let seconds = UNREAD.as_secs();
                        let why = format!("it does not read its answers: none for {seconds} s");
                        return Err(End::Because(why));
                    }
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Counts a log line that a peer causes. Returns false if the limit of the current minute (`LINES`) is exceeded.
    fn may_log(&mut self) -> bool {
        let (since, lines) = &mut self.lines;
        if since.elapsed() >= Duration::from_secs(60) {
            (*since, *lines) = (Instant::now(), 0);
        }
        *lines += 1;
        *lines <= LINES
    }
}
