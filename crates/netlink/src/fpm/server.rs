//! The thread that speaks with zebra: it reads, takes apart, hands on, and sends answers. It never waits for a peer.

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

/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;
/// Times that is done before answers and others have their turn.
const TURNS: usize = 16;
/// Connections that are looked at before the session and the end have their turn.
const ACCEPTS: usize = 4;
/// Messages that are handed on together.
const BATCH: usize = 4096;
/// How many of these may wait to be applied.
pub(crate) const BATCHES: usize = 16;
/// How long a deletion waits for the route that replaces it.
const HOLD: Duration = Duration::from_millis(5);
/// Bytes of answers that are sent at once.
const ANSWERS: usize = 64 << 10;
/// How long a peer may leave answers unread.
const UNREAD: Duration = Duration::from_secs(30);
/// Answers that wait at most, beyond one for each route.
const SPARE: usize = 65_536;
/// How long the thread waits at most before it looks whether it is to end, and whether there is an address to listen on.
const PATIENCE: Duration = Duration::from_secs(1);
/// Silence of a peer after which the kernel asks for it; it asks twice more, in half of that.
const SILENCE: Duration = Duration::from_secs(10);
/// A replay counts as whole after so many times the settling time, however busy it is.
const BUSY: u32 = 10;
/// Lines of the log that peers can cause, a minute.
const LINES: u32 = 20;

/// Waits for sessions and reads them, one at a time.
pub(crate) struct Server<S> {
    name: String,
    listener: FpmListener,
    settle: Duration,
    /// Most answers that wait.
    most: usize,
    /// Users of this machine who may connect, and whether other machines may.
    users: Vec<u32>,
    remote: bool,
    /// Hands on.
    say: S,
    permits: SyncSender<()>,
    shared: Arc<Shared>,
    session: Option<Session>,
    sessions: u64,
    /// Of this minute.
    lines: (Instant, u32),
    chunk: Vec<u8>,
}

struct Session {
    stream: TcpStream,
    peer: SocketAddr,
    decoder: Decoder,
    events: Vec<Event>,
    /// Since when deletions at the end of `events` wait.
    held: Option<Instant>,
    begun: Instant,
    /// When something came.
    last: Instant,
    replaying: bool,
    /// Answers under way, and how much of that has left.
    out: Vec<u8>,
    left: usize,
    /// Since when none of that leaves.
    stuck: Option<Instant>,
    /// Messages that were counted.
    counted: super::Counts,
}

/// Has the kernel end a connection whose other end does not answer: another machine that is gone closes nothing.
fn probe_silence(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENCE)?;
    sockopt::set_tcp_keepintvl(stream, SILENCE / 2)?;
    sockopt::set_tcp_keepcnt(stream, 2)
}

/// Whether the other end of a connection is open still, whatever of it is unread.
fn is_open(stream: &TcpStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::RDHUP)];
    let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    match poll(&mut fds, Some(&Timespec::default())) {
        Ok(_) => !fds[0].revents().intersects(closed),
        Err(_) => true,
    }
}

/// The applier has ended.
struct Ended;

/// Why a session ends.
enum End {
    Closed,
    Because(String),
    /// So does everything.
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
    /// Hands on by `say`, which is false when nobody takes it any more, batches against permits.
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

    /// Until something happens or is due.
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
            // Who has said nothing is waited for as long as it takes.
            if session.replaying && session.counted.messages > 0 {
                until = until.min(self.settle.saturating_sub(session.last.elapsed()));
            }
        }
        // A moment more: what is due is due then.
        let patience = Timespec::try_from(until + Duration::from_millis(1)).unwrap_or_default();
        let _ = poll(&mut fds, Some(&patience));
        let mut count = [0; 8];
        let _ = rustix::io::read(self.shared.wake.as_fd(), &mut count);
    }

    /// Takes a peer that has come, if it may say routes. A session that is open at the other end stays; one that is closed there gives way
    /// to the next. Those that are refused, however many come, take no more than a few turns from the session, and least while it is open.
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

    /// Finds out whether a peer may say routes.
    ///
    /// # Errors
    /// Why it may not.
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
        // What was whole counts.
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
        // Who says nothing has nothing to replay.
        if session.replaying && quiet && settled && session.counted.messages > 0 {
            self.flush(session, true)?;
            self.shared.settling.fetch_add(1, Ordering::Relaxed);
            self.hand_on(Said::Settled)?;
            session.replaying = false;
            locked(&self.shared.seen).status.replaying = false;
        }
        Ok(())
    }

    /// Reads what is there, or a good part of it; whether that was all.
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

    /// Hands on what was read; deletions at its end wait, unless it is to be `all`.
    fn flush(&mut self, session: &mut Session, all: bool) -> Result<(), Ended> {
        let replaced =
            |event: &Event| event.gone && matches!(event.object, Object::Route4(..) | Object::Route6(..));
        // A table that goes does not wait as a whole.
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

    /// Sends as many answers as the peer takes.
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

    /// Whether a peer may cause another line.
    fn may_log(&mut self) -> bool {
        let (since, lines) = &mut self.lines;
        if since.elapsed() >= Duration::from_secs(60) {
            (*since, *lines) = (Instant::now(), 0);
        }
        *lines += 1;
        *lines <= LINES
    }
}
