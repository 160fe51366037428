//! An OpenFlow session: one connection with a controller, or with a client such as `ovs-ofctl`.
//!
//! One task reads requests, replies to them in order, and sends events of the bridge between the replies. If an earlier
//! request takes long, echo requests are answered before this request is finished, because a peer that receives no echo
//! reply ends the session. The task waits only for its own peer. If the peer does not read in time, packet-in messages
//! are dropped, and a reply that is not read in time ends the session. Other sessions are not affected.

mod asynchronous;
mod bundle;
mod bundles;
pub(crate) mod multipart;
mod notice;
mod packet_in_scheduler;
mod request;
pub(crate) mod snoop;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::Instant;

use self::asynchronous::Async;
use self::bundles::Bundles;
use self::packet_in_scheduler::{PacketInScheduler, QueuedPacketIn};
use crate::budget::PacketOutBudget;
use crate::connection_manager::{ConnectionManager, Role, SessionSeat};
use crate::datapath::TableMod;
use crate::target_status::TargetStatus;
use crate::tls::{TlsError, is_from_tls};
use crate::wire::error::Error;
use crate::wire::flow::Monitor;
use crate::wire::ofp::msg;
use crate::wire::ofp::switch::OFPHET_VERSIONBITMAP;
use crate::wire::packet::Form;
use crate::wire::{HEADER, Header, Put, TooLong, Version, begin, finish};

/// Maximum number of octets that one read from the connection returns.
const READ: usize = 64 * 1024;
/// Amount of buffered replies, in octets, at which a session sends the replies to its peer.
const GATHER: usize = 256 * 1024;
/// Time limit for the negotiation of the OpenFlow version.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum time of one turn: the time for which a session processes received messages or notices (such as bridge
/// events) before it yields to other tasks.
const TURN: Duration = Duration::from_millis(1);
/// Maximum amount of work in one turn, after which the session yields to other tasks. The work of an event is 1 plus
/// the number of the session's flow monitors.
const TURN_WORK: usize = 4096;
/// Maximum number of notices (such as bridge events) that a session processes before it checks for requests of its
/// peer.
const NOTICES: usize = 256;
/// Time for which queued packet-outs are still processed after the peer of a session has closed the connection.
/// Packet-outs that are still queued after this time are dropped.
const LINGER: Duration = Duration::from_secs(1);
/// Minimum rate in octets per second at which a peer must read a reply. The time limit for a reply is a fixed time plus
/// the time that the transfer of the reply takes at this rate.
const LEAST_RATE: u32 = 256 * 1024;
/// Delay after which echo requests are answered while the session still processes an earlier
/// request.
const ECHO_DELAY: Duration = Duration::from_millis(250);
/// Maximum amount of received, unprocessed data in octets. While a session processes a request, the session reads more
/// data only up to this amount. Echo requests in later data are answered after the request.
const READ_AHEAD: usize = 256 * 1024;

/// Settings of an OpenFlow session, from the configuration of its controller or listener.
pub(crate) struct Options {
    /// Whether the peer is a controller to which the bridge has connected. False if the peer is a
    /// client that has connected to a listener.
    pub controller: bool,
    pub inactivity_probe: Option<Duration>,
    pub rate_limit: Option<(u32, u32)>,
    pub asynchronous: bool,
    pub versions: Vec<Version>,
    /// Fixed part of the time limit for the peer to read a reply. The time that the transfer of the reply takes at
    /// [`LEAST_RATE`] is added.
    pub patience: Duration,
    /// Maximum time between two messages about a bundle. After this time, the bundle is discarded.
    pub bundle_timeout: Duration,
    /// End of the handshake, and time of the peer's last request. Each request updates the time. A listener above its
    /// maximum number of sessions ends a session that has been idle for a long time.
    pub activity: Arc<Activity>,
}

/// Progress of a connection: the end of its handshake, and the time of the last request from the peer of its OpenFlow
/// session.
#[derive(Debug)]
pub(crate) struct Activity {
    began: Instant,
    /// Time of the end of the handshake or of the last request in milliseconds since `began`.
    last_ms: AtomicU64,
    is_admitted: AtomicBool,
    /// Notified when the handshake has ended.
    admitted: Arc<Notify>,
}

impl Activity {
    /// Creates the value for a connection that begins now. `admitted` is notified when the peer has finished its
    /// handshake.
    pub fn new(admitted: Arc<Notify>) -> Activity {
        let (last_ms, is_admitted) = (AtomicU64::new(0), AtomicBool::new(false));
        Activity { began: Instant::now(), last_ms, is_admitted, admitted }
    }

    /// Records that the peer has finished the TLS handshake, if the listener uses TLS, and the negotiation of the
    /// version. The connection is an OpenFlow session from now on.
    fn admit(&self) {
        self.touch();
        self.is_admitted.store(true, Ordering::Release);
        self.admitted.notify_one();
    }

    /// Returns whether the peer has finished its handshake.
    pub fn is_admitted(&self) -> bool {
        self.is_admitted.load(Ordering::Acquire)
    }

    fn touch(&self) {
        let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(ms, Ordering::Relaxed);
    }

    /// Returns the time since the last request of the peer. If there was no request, returns the time since the end of
    /// the handshake, or since the peer connected if the handshake has not ended.
    pub fn idle(&self) -> Duration {
        self.began.elapsed().saturating_sub(Duration::from_millis(self.last_ms.load(Ordering::Relaxed)))
    }
}

/// Reason why an OpenFlow session ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error("the session was ended here")]
    Stopped,
    #[error("it closed the connection")]
    Closed,
    #[error("{0}; see that it runs and can be reached")]
    Io(io::Error),
    #[error(
        "TLS: {0}; see that it speaks TLS, and that each side's certificate comes from the CA that the other one knows"
    )]
    Secret(io::Error),
    #[error("TLS: {0}")]
    Keys(#[from] TlsError),
    #[error("TLS: it has not finished its greeting within {} s", .0.as_secs())]
    Shy(Duration),
    #[error("it speaks none of the versions that are allowed here; allow one of its own")]
    Version,
    #[error("it does not speak OpenFlow: {0}")]
    Garbage(&'static str),
    #[error("it has not answered for {} s", .0.as_secs())]
    Silent(Duration),
    #[error("it takes an answer too slowly: less than {} KiB/s", LEAST_RATE / 1024)]
    Stuck,
    #[error(
        "changes of rules were lost that its flow monitors should have been told of, as it is too slow or they are too many at once; it has to monitor anew"
    )]
    Behind,
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Ended {
        if is_from_tls(&error) { Ended::Secret(error) } else { Ended::Io(error) }
    }
}

/// Result of processing a request. `Ok` means that the request has been processed, and that any reply has been written.
pub(crate) type Answer = Result<(), Refused>;

/// Reason why a request of the peer was refused, or why the session must end.
#[derive(Debug)]
pub(crate) enum Refused {
    Error(Error),
    Ended(Ended),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Error(error)
    }
}

impl From<TooLong> for Refused {
    fn from(error: TooLong) -> Refused {
        Refused::Error(error.into())
    }
}

impl From<Ended> for Refused {
    fn from(ended: Ended) -> Refused {
        Refused::Ended(ended)
    }
}

/// Processing time and work of a session since the session last yielded to other tasks (a turn).
struct Turn {
    began: Instant,
    work: usize,
}

impl Turn {
    fn new() -> Turn {
        Turn { began: Instant::now(), work: 0 }
    }

    /// Adds `work` to the current turn. If the turn has reached its limit of work or time, begins a new turn and
    /// returns true. The caller must then yield to other tasks.
    fn ends_after(&mut self, work: usize) -> bool {
        self.work += work;
        let ends = self.work >= TURN_WORK || self.began.elapsed() >= TURN;
        if ends {
            *self = Turn::new();
        }
        ends
    }
}

/// Receiving half of an OpenFlow session's connection, with received data that the session has not
/// processed yet.
struct Incoming<S> {
    from: ReadHalf<S>,
    data: Vec<u8>,
    /// Number of octets at the start of `data` that have already been processed.
    used: usize,
}

impl<S: AsyncRead> Incoming<S> {
    /// Returns the next OpenFlow message. Returns `None` if the message has not been received
    /// completely.
    fn message(&mut self) -> Result<Option<Vec<u8>>, Ended> {
        let rest = &self.data[self.used..];
        let Some(head) = Header::read(rest) else { return Ok(None) };
        let length = usize::from(head.length);
        if length < HEADER {
            return Err(Ended::Garbage("a message is shorter than its header"));
        }
        let Some(message) = rest.get(..length) else { return Ok(None) };
        self.used += length;
        Ok(Some(message.to_vec()))
    }

    /// Removes all completely received echo requests of the given OpenFlow version from the received data, and returns
    /// them.
    fn take_echoes(&mut self, version: Version) -> Vec<Vec<u8>> {
        let (mut at, mut kept, mut taken) = (self.used, self.used, Vec::new());
        while let Some(head) = self.data.get(at..).and_then(Header::read) {
            let end = at + usize::from(head.length);
            if usize::from(head.length) < HEADER || end > self.data.len() {
                break;
            }
            if (head.kind, head.version) == (msg::OFPT_ECHO_REQUEST, version.number()) {
                taken.push(self.data[at..end].to_vec());
            } else {
                // Kept messages are moved over the removed echo requests. Each kept message is moved once.
                self.data.copy_within(at..end, kept);
                kept += end - at;
            }
            at = end;
        }
        self.data.drain(kept..at);
        taken
    }

    /// Waits until more data have been received from the peer. No data are lost if the caller drops the future before
    /// it completes.
    async fn more(&mut self) -> Result<(), Ended> {
        self.data.drain(..self.used);
        self.used = 0;
        self.data.reserve(READ);
        match self.from.read_buf(&mut self.data).await? {
            0 if self.data.is_empty() => Err(Ended::Closed),
            0 => Err(Ended::Garbage("it closed the connection within a message")),
            _ => Ok(()),
        }
    }
}

/// Writes the reply to an echo request.
fn put_echo_reply(out: &mut Vec<u8>, version: Version, xid: u32, data: &[u8]) -> Result<(), TooLong> {
    let start = begin(out, version, msg::OFPT_ECHO_REPLY, xid);
    out.extend_from_slice(data);
    finish(out, start)
}

/// Sending half of an OpenFlow session's connection.
struct Outgoing<S> {
    to: WriteHalf<S>,
    /// Echo replies that are sent before the replies to earlier requests. Part of the first echo
    /// reply may already have been sent. The session must therefore send these replies before any
    /// other message.
    echoes: Vec<u8>,
}

impl<S: AsyncWrite> Outgoing<S> {
    /// Sends the pending echo replies. No reply is lost if the caller drops the future before it
    /// completes.
    async fn send_echoes(&mut self) -> io::Result<()> {
        while !self.echoes.is_empty() {
            match self.to.write(&self.echoes).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                sent => drop(self.echoes.drain(..sent)),
            }
        }
        self.to.flush().await
    }

    /// Sends complete messages, after the echo replies that are still pending.
    async fn send(&mut self, messages: &[u8]) -> io::Result<()> {
        if !self.echoes.is_empty() {
            self.send_echoes().await?;
        }
        self.to.write_all(messages).await?;
        // With TLS, written data may still be buffered.
        self.to.flush().await
    }
}

/// Answers echo requests of a session's peer while the session processes an earlier request.
struct Echoes<S> {
    to: Arc<Mutex<Outgoing<S>>>,
    version: Version,
    activity: Arc<Activity>,
    /// Connection manager that passes copies of the session's messages to snooping listeners. `None` if no copies are
    /// passed.
    overhears: Option<Arc<ConnectionManager>>,
}

impl<S: AsyncRead + AsyncWrite> Echoes<S> {
    /// Waits for [`ECHO_DELAY`], and then answers the echo requests of the peer. The session keeps
    /// other messages and processes them later. The function never returns, because the session
    /// itself detects the end of the connection.
    async fn answer(&self, incoming: &mut Incoming<S>) -> std::convert::Infallible {
        tokio::time::sleep(ECHO_DELAY).await;
        loop {
            let mut to = self.to.lock().await;
            for request in incoming.take_echoes(self.version) {
                let Some(head) = Header::read(&request) else { continue };
                self.activity.touch();
                let start = to.echoes.len();
                // A reply is as long as its request, and therefore never too long.
                let _ = put_echo_reply(&mut to.echoes, self.version, head.xid, &request[HEADER..]);
                if let Some(manager) = &self.overhears {
                    manager.overhear(&request);
                    manager.overhear(&to.echoes[start..]);
                }
            }
            let is_broken = !to.echoes.is_empty() && to.send_echoes().await.is_err();
            drop(to);
            let received = incoming.data.len() - incoming.used;
            if is_broken || received >= READ_AHEAD || incoming.more().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

/// Cause of a change of flow entries that the session's flow monitors report. A change that this
/// session has requested may be reported in abbreviated form.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Own {
    /// The change was caused by another session, or by no session.
    No,
    /// The change was caused by this session's request with this transaction ID.
    Yes(u32),
    /// The change was caused by this session, and an abbreviated update has already been sent for it.
    SharedEvent,
}

/// An OpenFlow session whose version has been negotiated.
pub(crate) struct Session<S> {
    manager: Arc<ConnectionManager>,
    board: Arc<TargetStatus>,
    /// Number of the session in the status of the target.
    number: u64,
    seat: SessionSeat,
    options: Options,
    version: Version,
    to: Arc<Mutex<Outgoing<S>>>,
    /// Encoded messages to the peer that have not been sent yet.
    out: Vec<u8>,
    /// Remaining part of the fixed time limit (`patience`) for the peer to read the current reply.
    credit: Duration,
    miss_send_len: u16,
    invalid_ttl: bool,
    table_ids: bool,
    nxm: bool,
    packet_form: Form,
    controller_id: u16,
    asynchronous: Option<Async>,
    /// Queued packet-ins. `None` if the session has no rate limit. Packet-ins are then sent immediately.
    packet_ins: Option<PacketInScheduler<QueuedPacketIn>>,
    packet_outs: PacketOutBudget,
    bundles: Bundles,
    monitors: Vec<Monitor>,
    /// Cause of the changes of flow entries in the last event. If the event arrives in several parts, the cause applies
    /// to all parts, so that one abbreviated update reports all changes.
    own: Own,
    /// Whether an update for the session's flow monitors was dropped. The session then ends.
    is_behind: bool,
    /// Table features request of which only some parts have been received, with its transaction ID.
    /// `None` if no such request is pending.
    described: Option<(u32, Vec<TableMod>)>,
}

/// Waits for the signal that stops the session. The function also returns if the sender of the
/// signal is dropped.
pub(crate) async fn until(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// Runs an OpenFlow session on a connection until the session ends. Returns the reason for the end.
pub(crate) async fn run<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: S,
    manager: &Arc<ConnectionManager>,
    board: &Arc<TargetStatus>,
    options: Options,
    mut stopped: watch::Receiver<bool>,
) -> Ended {
    let (from, mut to) = tokio::io::split(stream);
    let mut incoming = Incoming { from, data: Vec::new(), used: 0 };
    let negotiated = tokio::select! {
        done = tokio::time::timeout(PATIENCE, negotiate(&mut incoming, &mut to, &options.versions)) => done,
        () = until(&mut stopped) => return Ended::Stopped,
    };
    let version = match negotiated {
        Ok(Ok(version)) => version,
        Ok(Err(ended)) => return ended,
        Err(_) => return Ended::Silent(PATIENCE),
    };
    options.activity.admit();
    let seat = manager.join(options.controller, Arc::clone(&board.lost));
    tokio::select! {
        () = seat.told() => {}
        () = until(&mut stopped) => return Ended::Stopped,
    }
    let mut session = Session {
        packet_outs: PacketOutBudget::new(seat.number(), Arc::clone(&manager.packet_outs)),
        seat,
        manager: Arc::clone(manager),
        board: Arc::clone(board),
        number: board.came(version),
        version,
        to: Arc::new(Mutex::new(Outgoing { to, echoes: Vec::new() })),
        out: Vec::new(),
        credit: options.patience,
        // Clients receive packets only after setting `miss_send_len`.
        miss_send_len: if options.controller { 128 } else { 0 },
        invalid_ttl: false,
        table_ids: false,
        nxm: false,
        packet_form: Form::Standard,
        controller_id: 0,
        asynchronous: None,
        packet_ins: options.rate_limit.map(|limit| PacketInScheduler::new(limit, Instant::now())),
        bundles: Bundles::default(),
        monitors: Vec::new(),
        own: Own::No,
        is_behind: false,
        described: None,
        options,
    };
    session.follow_misses();
    let ended = tokio::select! {
        ended = session.serve(&mut incoming) => ended,
        () = until(&mut stopped) => Ended::Stopped,
    };
    if matches!(ended, Ended::Closed) {
        // The packets of a peer that closes the connection immediately are still sent.
        let _ = tokio::time::timeout(LINGER, session.packet_outs.drained()).await;
    }
    let number = session.number;
    drop(session);
    board.left(number);
    ended
}

/// Exchanges the supported OpenFlow versions with the peer and selects the highest common version (OpenFlow 1.5.1
/// section 6.3.1).
async fn negotiate<S: AsyncRead + AsyncWrite + Send>(
    incoming: &mut Incoming<S>,
    to: &mut WriteHalf<S>,
    versions: &[Version],
) -> Result<Version, Ended> {
    let highest = versions.iter().max().copied().unwrap_or(Version::V15);
    let mut hello = Vec::new();
    let start = begin(&mut hello, highest, msg::OFPT_HELLO, 1);
    if highest > Version::V10 {
        hello.u16(OFPHET_VERSIONBITMAP);
        hello.u16(8);
        hello.u32(versions.iter().fold(0, |bits, version| bits | 1 << version.number()));
    }
    finish(&mut hello, start).map_err(io::Error::other)?;
    to.write_all(&hello).await?;
    // With TLS, written data may still be buffered.
    to.flush().await?;
    let message = loop {
        if let Some(message) = incoming.message()? {
            break message;
        }
        // A hello message is short. A peer that begins with another message is disconnected.
        if incoming.data.len() >= HEADER && incoming.data[1] != msg::OFPT_HELLO {
            return Err(Ended::Garbage("it does not begin with a greeting"));
        }
        incoming.more().await?;
    };
    let head = Header::read(&message).ok_or(Ended::Garbage("a message is shorter than its header"))?;
    if head.kind != msg::OFPT_HELLO {
        return Err(Ended::Garbage("it does not begin with a greeting"));
    }
    let theirs = bitmap(&message[HEADER..]);
    let agreed = match theirs {
        Some(bits) => versions.iter().filter(|version| bits & 1 << version.number() != 0).max().copied(),
        // Without a version bitmap, the lower of the two highest versions is selected if it is supported.
        None => Version::from_wire(head.version.min(highest.number()))
            .filter(|version| versions.contains(version)),
    };
    let Some(version) = agreed else {
        let mut out = Vec::new();
        let lower = Version::ALL.into_iter().rev().find(|version| version.number() <= head.version);
        let text = b"OpenFlow 1.0 to 1.5 are spoken here, as far as they are allowed";
        Error::HelloIncompatible.write(&mut out, lower.unwrap_or(Version::V10), head.xid, text);
        to.write_all(&out).await?;
        to.flush().await?;
        return Err(Ended::Version);
    };
    Ok(version)
}

/// Returns the bitmap of OpenFlow versions in a hello message. Only versions below 32 are included. Returns `None` if
/// the message has no bitmap.
fn bitmap(mut elements: &[u8]) -> Option<u32> {
    while let [kind0, kind1, len0, len1, rest @ ..] = elements {
        let length = usize::from(u16::from_be_bytes([*len0, *len1]));
        let body = rest.get(..length.checked_sub(4)?)?;
        if u16::from_be_bytes([*kind0, *kind1]) == OFPHET_VERSIONBITMAP {
            return body.first_chunk().map(|bits| u32::from_be_bytes(*bits));
        }
        elements = rest.get(length.next_multiple_of(8) - 4..)?;
    }
    None
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Session<S> {
    async fn serve(&mut self, incoming: &mut Incoming<S>) -> Ended {
        match self.serve_until(incoming).await {
            Ok(never) => match never {},
            Err(ended) => {
                // Completed answers are sent if this is possible immediately.
                let mut to = self.to.lock().await;
                let _ = tokio::time::timeout(Duration::from_millis(100), to.send(&self.out)).await;
                let _ = tokio::time::timeout(Duration::from_millis(100), to.to.shutdown()).await;
                ended
            }
        }
    }

    async fn serve_until(&mut self, incoming: &mut Incoming<S>) -> Result<std::convert::Infallible, Ended> {
        let mut heard = Instant::now();
        let mut asked = false;
        let echoes = Echoes {
            to: Arc::clone(&self.to),
            version: self.version,
            activity: Arc::clone(&self.options.activity),
            overhears: self.options.controller.then(|| Arc::clone(&self.manager)),
        };
        loop {
            let mut busy = Instant::now();
            while let Some(message) = incoming.message()? {
                self.overheard(&message);
                if !matches!(message[1], msg::OFPT_HELLO | msg::OFPT_ECHO_REPLY) {
                    self.options.activity.touch();
                }
                self.credit = self.options.patience;
                tokio::select! {
                    biased;
                    handled = self.handle(&message) => handled?,
                    never = echoes.answer(incoming) => match never {},
                }
                // The time for which the session was busy does not count as silence of the peer.
                (heard, asked) = (Instant::now(), false);
                if self.out.len() >= GATHER {
                    self.flush().await?;
                }
                if busy.elapsed() >= TURN {
                    tokio::task::yield_now().await;
                    busy = Instant::now();
                }
            }
            self.credit = self.options.patience;
            for (xid, opened) in self.bundles.expire(self.options.bundle_timeout) {
                Error::BundleTimeout.write(&mut self.out, self.version, xid, &opened);
            }
            let mut turn = Turn::new();
            // The number is limited, so that requests of the peer are processed in between.
            for _ in 0..NOTICES {
                let Ok(notice) = self.seat.notices.try_recv() else { break };
                self.notice(notice, &mut turn).await;
                if self.out.len() >= GATHER {
                    self.flush().await?;
                }
            }
            self.report_demotion();
            self.send_packet_ins();
            self.flush().await?;
            if self.is_behind || self.seat.is_behind() {
                return Err(Ended::Behind);
            }
            let probe = self.options.inactivity_probe.filter(|probe| !probe.is_zero());
            let due = heard + probe.unwrap_or(Duration::from_secs(3600)) * if asked { 2 } else { 1 };
            let packet_due = self.packet_ins.as_ref().and_then(PacketInScheduler::due);
            let bundle_due = self.bundles.first_timeout(self.options.bundle_timeout);
            tokio::select! {
                more = incoming.more() => more?,
                () = tokio::time::sleep_until(bundle_due.unwrap_or(due)), if bundle_due.is_some() => {}
                () = tokio::time::sleep_until(packet_due.unwrap_or(due)), if packet_due.is_some() => {}
                Some(notice) = self.seat.notices.recv() => self.notice(notice, &mut turn).await,
                () = tokio::time::sleep_until(due), if probe.is_some() => {
                    if asked {
                        return Err(Ended::Silent(heard.elapsed()));
                    }
                    asked = true;
                    let start = begin(&mut self.out, self.version, msg::OFPT_ECHO_REQUEST, 0);
                    finish(&mut self.out, start).map_err(io::Error::other)?;
                }
            }
        }
    }

    /// Sends the buffered replies. Returns an error, which ends the session, if the peer does not read the replies in
    /// time (see `credit`), or if the session misses changes of flow entries while it waits for the peer. The memory of
    /// the notices that wait for the session is then free for other sessions.
    async fn flush(&mut self) -> Result<(), Ended> {
        // An echo reply may have been sent in part. If another task holds the lock, it may wait for a peer
        // that does not read. Then, the time limit applies also to the lock.
        if self.out.is_empty() && self.to.try_lock().is_ok_and(|to| to.echoes.is_empty()) {
            return Ok(());
        }
        let sent = async { self.to.lock().await.send(&self.out).await };
        let octets = u32::try_from(self.out.len()).unwrap_or(u32::MAX);
        let most = self.credit + Duration::from_secs(1) * octets / LEAST_RATE;
        let begin = Instant::now();
        let sent = tokio::select! {
            biased;
            sent = tokio::time::timeout(most, sent) => match sent {
                Ok(sent) => sent.map_err(Ended::from),
                Err(_) => Err(Ended::Stuck),
            },
            () = self.seat.fell_behind() => Err(Ended::Behind),
        };
        if sent.is_err() {
            // A part of the messages may have been sent, so that they cannot be sent again.
            self.out.clear();
        }
        sent?;
        self.credit = most.saturating_sub(begin.elapsed()).min(self.options.patience);
        self.overheard(&self.out);
        self.out.clear();
        self.out.shrink_to(GATHER * 2);
        Ok(())
    }

    /// Passes copies of messages of this session to the snooping listeners.
    fn overheard(&self, messages: &[u8]) {
        if self.options.controller {
            self.manager.overhear(messages);
        }
    }

    async fn handle(&mut self, message: &[u8]) -> Result<(), Ended> {
        let Some(head) = Header::read(message) else { return Ok(()) };
        // Hello, error and echo messages do not access the bridge.
        if head.kind > msg::OFPT_ECHO_REPLY && self.manager.is_changing() {
            self.flush().await?;
            drop(self.manager.turn().await);
        }
        let answer = self.request(head, message).await;
        self.follow_misses();
        self.follow_requests();
        self.seat.told().await;
        match answer {
            Ok(()) => Ok(()),
            Err(Refused::Error(error)) => {
                tracing::debug!("request {} refused: {error}", head.kind);
                error.write(&mut self.out, self.version, head.xid, message);
                Ok(())
            }
            Err(Refused::Ended(ended)) => Err(ended),
        }
    }

    fn slave(&self) -> bool {
        self.seat.current() == Role::Slave
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that a session with many flow monitors yields to other sessions after a few flow monitor updates,
    /// even if each update is processed quickly.
    #[test]
    fn notices_for_many_monitors_are_told_in_turns() {
        let mut turn = Turn::new();
        let ends = (0..NOTICES).filter(|_| turn.ends_after(1 + 1024)).count();
        assert!(ends >= NOTICES / 4, "{ends} turns");
    }
}
