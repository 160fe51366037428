//! FRR's forwarding plane manager protocol (FPM) as a source of routes: zebra's module `dplane_fpm_nl` connects and says what it would
//! say to the kernel.
//!
//! ```text
//!   zebra ==TCP==> server thread: frames --events--> applier: Table, Mirror --changes--> whoever follows
//!     ^                  |                              |
//!     '----- RTM_F_OFFLOAD, one for each route <--------'
//! ```
//!
//! Links, addresses, neighbours, rules and everybody else's routes are the kernel's all the same; FRR's are the session's (`fpm/table.rs`).
//!
//! **Replays.** When zebra connects it announces everything anew, and does not say when it has. A replay counts as whole when nothing
//! has come for a while ([`Fpm::settle`]), or however busy it is after ten times as long. What was not announced again goes then, and not
//! before: a session that is lost, in a replay too, takes nothing with it.
//!
//! **An update** is a deletion and a new route. Both are applied before anybody is told; a deletion at the end of what has come waits a
//! moment for what replaces it.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use port::netns::{Netns, within_optional};
use port::tcp_users::{TcpUsers, User};
use rustix::fd::OwnedFd;

mod answers;
mod server;
pub mod speak;
mod table;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use answers::Answers;
pub(crate) use server::{BATCHES, Server};
pub(crate) use table::{Answer, Table, is_frrs};
pub use wire::{BadMessage, Cause, Counts, Decoder};

use crate::decode::Event;
use crate::mirror::Mirror;

/// Sessions that say FRR's routes.
#[derive(Debug)]
pub struct Fpm {
    /// What is said of it in the log: the router's name.
    pub name: String,
    /// Where zebra connects.
    pub listener: FpmListener,
    /// How long nothing comes when a replay is whole: longer than routing daemons that were started with zebra take to have their routes.
    pub settle: Duration,
    /// Most routes, whoever has made them; beyond that those of sessions are refused.
    pub routes: usize,
    /// Users of this machine whose processes may connect.
    pub users: Vec<u32>,
    /// Whether processes of other machines may connect. Nothing tells what they are.
    pub remote: bool,
}

/// A socket that zebra connects to, in a namespace.
pub struct FpmListener {
    address: SocketAddr,
    netns: Option<Netns>,
    socket: Option<TcpListener>,
    /// Finds the users behind peers, once one has come.
    users: Option<TcpUsers>,
}

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum FpmError {
    /// The namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] port::netns::NetnsError),
    /// Somebody has it, or it is none of this host's.
    #[error("zebra cannot be waited for at {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the kernel said.
        source: std::io::Error,
    },
}

impl std::fmt::Debug for FpmListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FpmListener")
            .field("address", &self.address)
            .field("netns", &self.netns)
            .finish_non_exhaustive()
    }
}

impl FpmListener {
    /// Listens on an address of a namespace (the caller's if none is named).
    ///
    /// # Errors
    /// [`FpmError`]: the address is taken, or not there.
    pub fn bind(netns: Option<&Netns>, address: SocketAddr) -> Result<FpmListener, FpmError> {
        let mut listener = FpmListener::later(netns, address);
        listener.listen()?;
        Ok(listener)
    }

    /// Will listen there as soon as it can be had: it is tried again every second.
    #[must_use]
    pub fn later(netns: Option<&Netns>, address: SocketAddr) -> FpmListener {
        FpmListener { address, netns: netns.cloned(), socket: None, users: None }
    }

    /// The address, with the port that was chosen where it says 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        let bound = self.socket.as_ref().and_then(|socket| socket.local_addr().ok());
        bound.unwrap_or(self.address)
    }

    /// Another handle of the same socket; none where there is none yet.
    #[must_use]
    pub fn share(&self) -> Option<FpmListener> {
        let socket = self.socket.as_ref()?.try_clone().ok()?;
        let (address, netns) = (self.address, self.netns.clone());
        Some(FpmListener { address, netns, socket: Some(socket), users: None })
    }

    /// Finds the user whose process has connected from `peer`.
    ///
    /// # Errors
    /// If the namespace or its sockets cannot be read.
    fn user_of(&mut self, peer: SocketAddr, local: SocketAddr) -> Result<User, String> {
        let netns = self.netns.as_ref();
        let users = match self.users.take() {
            Some(users) => users,
            None => within_optional(netns, TcpUsers::open).map_err(|error| error.to_string())?,
        };
        let users = self.users.insert(users);
        let found = if users.reads_list() {
            within_optional(netns, || users.user_of(peer, local)).map_err(|error| error.to_string())?
        } else {
            users.user_of(peer, local)
        };
        found.map_err(|error| format!("the kernel does not tell the user of its socket: {error}"))
    }

    fn listen(&mut self) -> Result<(), FpmError> {
        let address = self.address;
        let socket = within_optional(self.netns.as_ref(), || {
            let socket = TcpListener::bind(address)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        })?;
        self.socket = Some(socket.map_err(|source| FpmError::Listen { address, source })?);
        Ok(())
    }
}

/// How sessions are doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FpmStatus {
    /// Who is connected, and for how long.
    pub peer: Option<(SocketAddr, Duration)>,
    /// Whether what it announces is not whole yet, or the routes that it did not announce again are not removed yet.
    pub replaying: bool,
    /// Why nobody can connect, if so.
    pub trouble: Option<String>,
    /// Why the last session ended.
    pub ended: Option<String>,
    /// Sessions so far.
    pub sessions: u64,
    /// Messages of all of them.
    pub messages: u64,
    /// Those about things that are not followed, and routes that the kernel tells.
    pub left: u64,
    /// Announcements that found no room, or led nowhere.
    pub refused: u64,
    /// Routes that were not announced again, and went.
    pub swept: u64,
    /// Answers that were sent.
    pub answers: u64,
    /// Routes that the session has announced, until a first replay is whole; from then on all of FRR's are sessions' ([`Mirror::announced`]).
    pub named: Option<u64>,
}

/// What the server tells the applier.
#[derive(Debug)]
pub(crate) enum Said {
    /// A session begins.
    Begin(u64),
    /// What it says.
    Events(Vec<Event>),
    /// It has announced everything.
    Settled,
    /// It has ended.
    Lost,
}

/// Between server, applier and those who ask.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) end: AtomicBool,
    /// There are answers, or it is to end.
    pub(crate) wake: OwnedFd,
    pub(crate) answers: Mutex<Answers>,
    /// The parts of [`FpmStatus`] that the applier counts.
    pub(crate) left: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) swept: AtomicU64,
    /// [`Table::named`]; the largest number: nothing.
    pub(crate) named: AtomicU64,
    /// Replays that are whole, and of which the mirror has not lost yet what they did not name.
    pub(crate) settling: AtomicU64,
    seen: Mutex<Seen>,
    /// Another handle of the socket.
    listener: Mutex<Option<FpmListener>>,
}

/// The server's part of [`FpmStatus`].
#[derive(Debug, Default)]
struct Seen {
    status: FpmStatus,
    since: Option<Instant>,
}

impl Shared {
    pub(crate) fn new(wake: OwnedFd) -> Shared {
        Shared {
            end: AtomicBool::new(false),
            wake,
            answers: Mutex::default(),
            left: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            swept: AtomicU64::new(0),
            named: AtomicU64::new(0),
            settling: AtomicU64::new(0),
            seen: Mutex::default(),
            listener: Mutex::default(),
        }
    }

    pub(crate) fn wake(&self) {
        // A counter that is full wakes as well.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    pub(crate) fn status(&self) -> FpmStatus {
        use std::sync::atomic::Ordering::{Acquire, Relaxed};
        let seen = locked(&self.seen);
        let mut status = seen.status.clone();
        // Read first: whoever sees that a replay is over also sees what it swept.
        status.replaying |= self.settling.load(Acquire) > 0;
        if let (Some((_, lasts)), Some(since)) = (&mut status.peer, seen.since) {
            *lasts = since.elapsed();
        }
        status.left += self.left.load(Relaxed);
        status.refused += self.refused.load(Relaxed);
        status.swept += self.swept.load(Relaxed);
        status.named = Some(self.named.load(Relaxed)).filter(|named| *named != u64::MAX);
        status
    }

    pub(crate) fn listener(&self) -> Option<FpmListener> {
        locked(&self.listener).as_ref().and_then(FpmListener::share)
    }
}

/// What a session leaves in an empty mirror, and how its reading ended: it comes in these pieces, and is whole behind the last. For tests
/// and fuzzing; no thread and no socket takes part.
pub fn played<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Mirror, Result<(), BadMessage>) {
    let (mut decoder, mut table, mut mirror) = (Decoder::new(), Table::new(1 << 16), Mirror::default());
    let (mut events, mut changes, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    mirror.told_apart = true;
    table.begin();
    let ended = pieces.into_iter().try_for_each(|piece| decoder.feed(piece, &mut events));
    for event in events {
        table.apply(&mut mirror, event, &mut changes, &mut answers);
    }
    table.settled(&mut mirror, &mut changes);
    (mirror, ended)
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
