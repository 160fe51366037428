//! FRR's Forwarding Plane Manager protocol (FPM) as a source of routes. The module `dplane_fpm_nl` of FRR's zebra
//! connects to this server, and sends the rtnetlink messages that it also sends to the kernel.
//!
//! ```text
//!   zebra ==TCP==> server thread: frames --events--> applier: Table, Mirror --changes--> callback
//!     ^                  |                              |
//!     '----- RTM_F_OFFLOAD, one for each route <--------'
//! ```
//!
//! The mirror (the copy of the kernel's routing state in this process) contains the kernel's links, addresses,
//! neighbours and rules, and the kernel's routes whose origin is not FRR. The routes of FRR come from the FPM session
//! (`fpm/table.rs`).
//!
//! **Replays.** After connecting, zebra announces all its routes, and does not mark the end of this replay. A replay
//! counts as complete if no message has arrived for the duration [`Fpm::settle`]. If messages keep arriving, the replay
//! counts as complete after ten times this duration. When a replay is complete, routes that it did not announce are
//! removed. The loss of a session, even during a replay, removes no routes.
//!
//! **Updates.** zebra sends an update as a deletion followed by a new route. Both are applied before changes are
//! reported. A deletion at the end of the received data is held back for a short time, because the route that replaces
//! it may follow.

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
pub(crate) use table::{Answer, Table};
pub use wire::{BadMessage, Cause, Counts, Decoder};

use crate::decode::Event;
use crate::mirror::Mirror;

/// Configuration of the FPM server, to which FRR's zebra sends routes.
#[derive(Debug)]
pub struct Fpm {
    /// Name of the virtual router, for log messages.
    pub name: String,
    /// Listening socket to which zebra connects.
    pub listener: FpmListener,
    /// Time without a message after which a replay (zebra's announcement of all routes) counts as complete. This time
    /// must exceed the time between the starts of zebra and of the routing daemons.
    pub settle: Duration,
    /// Maximum number of routes of all origins in the mirror of the kernel's routing state. Additional routes that
    /// zebra announces are refused.
    pub routes: usize,
    /// Numeric IDs of the local users whose processes may connect.
    pub users: Vec<u32>,
    /// Whether processes of other machines may connect. Their users cannot be identified.
    pub remote: bool,
}

/// A listening socket in a network namespace, to which zebra connects.
pub struct FpmListener {
    address: SocketAddr,
    netns: Option<Netns>,
    socket: Option<TcpListener>,
    /// Interface that finds the user whose process has connected ([`TcpUsers`]). `None` until the first process has
    /// connected.
    users: Option<TcpUsers>,
}

/// Reason why the listening socket of the FPM server cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum FpmError {
    /// The network namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] port::netns::NetnsError),
    /// The socket cannot listen on the address, because the address is in use or is not an address of this host.
    #[error("zebra cannot be waited for at {address}: {source}")]
    Listen {
        /// Address and port on which the socket was to listen.
        address: SocketAddr,
        /// Error that the kernel returned for the socket.
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
    /// Returns a socket that listens on an address in a network namespace (the caller's if `netns` is
    /// `None`).
    ///
    /// # Errors
    /// Returns [`FpmError`] if the address is in use, or if it does not exist.
    pub fn bind(netns: Option<&Netns>, address: SocketAddr) -> Result<FpmListener, FpmError> {
        let mut listener = FpmListener::later(netns, address);
        listener.listen()?;
        Ok(listener)
    }

    /// Returns a listener whose socket is created as soon as the address is available. The server tries to create the
    /// socket every second.
    #[must_use]
    pub fn later(netns: Option<&Netns>, address: SocketAddr) -> FpmListener {
        FpmListener { address, netns: netns.cloned(), socket: None, users: None }
    }

    /// Returns the address on which the socket listens. If the configured port is 0, the address contains the
    /// port that the kernel assigned.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        let bound = self.socket.as_ref().and_then(|socket| socket.local_addr().ok());
        bound.unwrap_or(self.address)
    }

    /// Returns a duplicate of the listening socket. Returns `None` if the socket does not exist yet.
    #[must_use]
    pub fn share(&self) -> Option<FpmListener> {
        let socket = self.socket.as_ref()?.try_clone().ok()?;
        let (address, netns) = (self.address, self.netns.clone());
        Some(FpmListener { address, netns, socket: Some(socket), users: None })
    }

    /// Returns the user whose process has opened the connection from the address `peer` to the address `local`.
    ///
    /// # Errors
    /// Returns an error if the namespace or its sockets cannot be read.
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

/// Status of the FPM sessions of one virtual router.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FpmStatus {
    /// Address of the connected peer, and the duration of its FPM session so far. `None` if no peer is connected.
    pub peer: Option<(SocketAddr, Duration)>,
    /// Whether zebra's replay of its routes is in progress. Also true after the replay, until the routes that the
    /// replay did not announce have been removed.
    pub replaying: bool,
    /// Reason why no peer can connect. `None` if peers can connect.
    pub trouble: Option<String>,
    /// Reason for the end of the last FPM session. `None` if no session has ended.
    pub ended: Option<String>,
    /// Number of FPM sessions since the start of the server.
    pub sessions: u64,
    /// Number of FPM messages that were received in all FPM sessions.
    pub messages: u64,
    /// Number of messages that were ignored, because the mirror does not contain objects of their type, or because the
    /// kernel, and not FRR, is the source of the routes.
    pub left: u64,
    /// Number of announced routes and next-hop objects that were refused, because a table was full or the next hop is
    /// unknown.
    pub refused: u64,
    /// Number of routes that were removed because a replay of zebra's routes did not announce them.
    pub swept: u64,
    /// Number of messages to zebra that report whether a route was installed.
    pub answers: u64,
    /// Number of routes that FRR has announced in this FPM session so far, or `None` after the first complete replay.
    /// From then on, all routes of FRR come from FPM sessions ([`Mirror::announced`]).
    pub named: Option<u64>,
}

/// Input that the FPM server passes to the thread that updates the mirror (the applier).
#[derive(Debug)]
pub(crate) enum Said {
    /// An FPM session with this number has started. Each session has a new number.
    Begin(u64),
    /// Routes and next-hop objects that zebra has announced or withdrawn, in the order of arrival.
    Events(Vec<Event>),
    /// The replay (announcement of all routes) of the FPM session is complete.
    Settled,
    /// The connection of the FPM session has ended.
    Lost,
}

/// State that the FPM server shares with the applier thread and with threads that read the status.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) end: AtomicBool,
    /// Event counter that wakes the server when answers are queued, or when the server must end.
    pub(crate) wake: OwnedFd,
    pub(crate) answers: Mutex<Answers>,
    /// Number of ignored messages for [`FpmStatus`]. The applier thread writes this counter, `refused` and `swept`.
    pub(crate) left: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) swept: AtomicU64,
    /// Value of [`Table::named`]: number of routes that FRR has announced in this FPM session. The maximum value
    /// represents `None`.
    pub(crate) named: AtomicU64,
    /// Number of complete replays of zebra's routes that the applier thread has not processed yet. Routes that these
    /// replays did not announce are still in the mirror.
    pub(crate) settling: AtomicU64,
    seen: Mutex<Seen>,
    /// Duplicate of the server's listening socket. `None` until the socket exists.
    listener: Mutex<Option<FpmListener>>,
}

/// Part of the status ([`FpmStatus`]) that the server writes.
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
        // A write to a full counter fails, but a full counter wakes the server as well.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    pub(crate) fn status(&self) -> FpmStatus {
        use std::sync::atomic::Ordering::{Acquire, Relaxed};
        let seen = locked(&self.seen);
        let mut status = seen.status.clone();
        // This counter is read first, so that a reader who sees the end of a replay also sees the removed
        // routes.
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

/// Decodes the bytes of an FPM session and applies the messages to an empty mirror as one complete replay. The bytes
/// arrive in `pieces`. Returns the mirror and the result of decoding. The function is for tests and fuzzing, and uses
/// no threads and no sockets.
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
