//! A session: one connection with a controller, or with a client such as `ovs-ofctl`.
//!
//! One task reads requests, answers them in their order and shows the bridge's events between them. It waits for nobody but its own
//! peer: what the peer does not take in time is lost (packets) or ends the session (answers), and others go on.

mod bundle;
pub(crate) mod multipart;
mod notice;
mod request;
pub(crate) mod snoop;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::Instant;

use self::bundle::Bundles;
use self::notice::{Async, Limit, Own};
use crate::budget::PacketOutBudget;
use crate::controllers::Board;
use crate::datapath::TableMod;
use crate::hub::{Hub, Role, Seat};
use crate::tls::{TlsError, is_from_tls};
use crate::wire::error::Error;
use crate::wire::flow::Monitor;
use crate::wire::packet::Form;
use crate::wire::{HEADER, Header, Put, Version, begin, finish};

/// Octets that are read at once.
const READ: usize = 64 * 1024;
/// Octets of answers that are gathered before they are sent.
const GATHER: usize = 256 * 1024;
/// How long a peer may take to say which versions it speaks.
const PATIENCE: Duration = Duration::from_secs(30);
/// For how long a session handles messages that have come together before others have their turn.
const TURN: Duration = Duration::from_millis(1);
/// News that are told before it is looked what the peer asks.
const NOTICES: usize = 256;
/// How long the packet-outs of a session whose peer has closed the connection may still wait; then they are dropped.
const LINGER: Duration = Duration::from_secs(1);
/// Octets a second that a peer has to take of an answer beyond the time that each answer has.
const LEAST_RATE: u32 = 256 * 1024;

/// What a session is given.
pub(crate) struct Options {
    /// We connected, so it is one of the bridge's controllers; else a client that came to us.
    pub controller: bool,
    pub inactivity_probe: Option<Duration>,
    pub rate_limit: Option<(u32, u32)>,
    pub asynchronous: bool,
    pub versions: Vec<Version>,
    /// Time that the peer has for the whole of an answer, besides what the answer takes at [`LEAST_RATE`].
    pub patience: Duration,
    /// Time after which a bundle that is left alone is removed.
    pub bundle_timeout: Duration,
    /// Is told when the peer asks for something.
    pub activity: Arc<Activity>,
}

/// When the peer of a session has asked for something last.
#[derive(Debug)]
pub(crate) struct Activity {
    began: Instant,
    /// Milliseconds from `began` on.
    last_ms: AtomicU64,
}

impl Default for Activity {
    fn default() -> Self {
        Activity { began: Instant::now(), last_ms: AtomicU64::new(0) }
    }
}

impl Activity {
    fn touch(&self) {
        let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(ms, Ordering::Relaxed);
    }

    /// The time since the peer has asked for something, or since it came.
    pub fn idle(&self) -> Duration {
        self.began.elapsed().saturating_sub(Duration::from_millis(self.last_ms.load(Ordering::Relaxed)))
    }
}

/// Why a session ended.
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

/// What it is told about a request: nothing more, or that it was refused.
pub(crate) type Answer = Result<(), Refused>;

/// Why a request was not done, or why the session cannot go on.
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

impl From<Ended> for Refused {
    fn from(ended: Ended) -> Refused {
        Refused::Ended(ended)
    }
}

/// The reading half, with what has come.
struct Incoming<S> {
    from: ReadHalf<S>,
    data: Vec<u8>,
    /// What has been used up.
    used: usize,
}

impl<S: AsyncRead> Incoming<S> {
    /// A message that has come whole.
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

    /// Waits for more. Nothing is lost when the waiting ends early.
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

/// A session that has agreed on a version.
pub(crate) struct Session<S> {
    hub: Arc<Hub>,
    board: Arc<Board>,
    seat: Seat,
    options: Options,
    version: Version,
    to: WriteHalf<S>,
    /// Answers that are not sent yet.
    out: Vec<u8>,
    /// How long the peer may still hold up the answer in hand.
    credit: Duration,
    miss_send_len: u16,
    invalid_ttl: bool,
    table_ids: bool,
    nxm: bool,
    packet_form: Form,
    controller_id: u16,
    asynchronous: Option<Async>,
    limit: Option<Limit>,
    packet_outs: PacketOutBudget,
    bundles: Bundles,
    monitors: Vec<Monitor>,
    /// Whether the changes told last were of this session's own request.
    own: Own,
    /// Changes of rules were not told to its monitors.
    is_behind: bool,
    /// A request to describe tables of which more parts are to come, by its number.
    described: Option<(u32, Vec<TableMod>)>,
}

/// Resolves when it is to stop, or nobody is there any more who could say so.
pub(crate) async fn until(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// Carries a session to its end.
pub(crate) async fn run<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: S,
    hub: &Arc<Hub>,
    board: &Arc<Board>,
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
    let seat = hub.join(options.controller);
    tokio::select! {
        () = seat.told() => {}
        () = until(&mut stopped) => return Ended::Stopped,
    }
    let mut session = Session {
        packet_outs: PacketOutBudget::new(seat.number(), Arc::clone(&hub.packet_outs)),
        seat,
        hub: Arc::clone(hub),
        board: Arc::clone(board),
        version,
        to,
        out: Vec::new(),
        credit: options.patience,
        // Clients hear of packets when they have said how much of them.
        miss_send_len: if options.controller { 128 } else { 0 },
        invalid_ttl: false,
        table_ids: false,
        nxm: false,
        packet_form: Form::Standard,
        controller_id: 0,
        asynchronous: None,
        limit: options.rate_limit.map(Limit::new),
        bundles: Bundles::default(),
        monitors: Vec::new(),
        own: Own::No,
        is_behind: false,
        described: None,
        options,
    };
    board.came(version);
    session.follow_misses();
    let ended = tokio::select! {
        ended = session.serve(&mut incoming) => ended,
        () = until(&mut stopped) => Ended::Stopped,
    };
    if matches!(ended, Ended::Closed) {
        // Who has sent a packet and closes at once has it sent.
        let _ = tokio::time::timeout(LINGER, session.packet_outs.drained()).await;
    }
    let lost = Arc::clone(&session.seat.lost);
    drop(session);
    board.lost.fetch_add(lost.load(Ordering::Relaxed), Ordering::Relaxed);
    board.left();
    ended
}

/// Says which versions are spoken, hears the same, and takes the highest that both have (OpenFlow 1.5.1, 6.3.1).
async fn negotiate<S: AsyncRead + AsyncWrite + Send>(
    incoming: &mut Incoming<S>,
    to: &mut WriteHalf<S>,
    versions: &[Version],
) -> Result<Version, Ended> {
    let highest = versions.iter().max().copied().unwrap_or(Version::V15);
    let mut hello = Vec::new();
    let start = begin(&mut hello, highest, 0, 1);
    if highest > Version::V10 {
        hello.u16(1);
        hello.u16(8);
        hello.u32(versions.iter().fold(0, |bits, version| bits | 1 << version.number()));
    }
    finish(&mut hello, start);
    to.write_all(&hello).await?;
    // Over TLS what is written may not have left.
    to.flush().await?;
    let message = loop {
        if let Some(message) = incoming.message()? {
            break message;
        }
        // No greeting is long; who sends other things is not let go on.
        if incoming.data.len() >= HEADER && incoming.data[1] != 0 {
            return Err(Ended::Garbage("it does not begin with a greeting"));
        }
        incoming.more().await?;
    };
    let head = Header::read(&message).ok_or(Ended::Garbage("a message is shorter than its header"))?;
    if head.kind != 0 {
        return Err(Ended::Garbage("it does not begin with a greeting"));
    }
    let theirs = bitmap(&message[HEADER..]);
    let agreed = match theirs {
        Some(bits) => versions.iter().filter(|version| bits & 1 << version.number() != 0).max().copied(),
        // Without a list: the lower of both highest ones, if it is spoken.
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

/// The versions in a greeting, as far as they have numbers below 32.
fn bitmap(mut elements: &[u8]) -> Option<u32> {
    while let [kind0, kind1, len0, len1, rest @ ..] = elements {
        let length = usize::from(u16::from_be_bytes([*len0, *len1]));
        let body = rest.get(..length.checked_sub(4)?)?;
        if (*kind0, *kind1) == (0, 1) {
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
                // What has been answered is still sent, if that goes at once.
                let _ = tokio::time::timeout(Duration::from_millis(100), self.to.write_all(&self.out)).await;
                let _ = tokio::time::timeout(Duration::from_millis(100), self.to.shutdown()).await;
                ended
            }
        }
    }

    async fn serve_until(&mut self, incoming: &mut Incoming<S>) -> Result<std::convert::Infallible, Ended> {
        let mut heard = Instant::now();
        let mut asked = false;
        loop {
            let mut busy = Instant::now();
            while let Some(message) = incoming.message()? {
                (heard, asked) = (Instant::now(), false);
                self.overheard(&message);
                // Greetings and answers to probes ask for nothing.
                if !matches!(message[1], 0 | 3) {
                    self.options.activity.touch();
                }
                self.credit = self.options.patience;
                self.handle(&message).await?;
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
            // Not for ever: what the peer asks comes in between.
            for _ in 0..NOTICES {
                let Ok(notice) = self.seat.notices.try_recv() else { break };
                self.notice(notice);
                if self.out.len() >= GATHER {
                    self.flush().await?;
                }
            }
            self.flush().await?;
            if self.is_behind || self.seat.is_behind() {
                return Err(Ended::Behind);
            }
            let probe = self.options.inactivity_probe.filter(|probe| !probe.is_zero());
            let due = heard + probe.unwrap_or(Duration::from_secs(3600)) * if asked { 2 } else { 1 };
            let bundle_due = self.bundles.first_timeout(self.options.bundle_timeout);
            tokio::select! {
                more = incoming.more() => more?,
                () = tokio::time::sleep_until(bundle_due.unwrap_or(due)), if bundle_due.is_some() => {}
                Some(notice) = self.seat.notices.recv() => self.notice(notice),
                () = tokio::time::sleep_until(due), if probe.is_some() => {
                    if asked {
                        return Err(Ended::Silent(heard.elapsed()));
                    }
                    asked = true;
                    let start = begin(&mut self.out, self.version, 2, 0);
                    finish(&mut self.out, start);
                }
            }
        }
    }

    /// Sends what has been gathered, within the time that is left to the answer in hand.
    async fn flush(&mut self) -> Result<(), Ended> {
        if self.out.is_empty() {
            return Ok(());
        }
        let sent = async {
            self.to.write_all(&self.out).await?;
            self.to.flush().await
        };
        let octets = u32::try_from(self.out.len()).unwrap_or(u32::MAX);
        let most = self.credit + Duration::from_secs(1) * octets / LEAST_RATE;
        let begin = Instant::now();
        tokio::time::timeout(most, sent).await.map_err(|_| Ended::Stuck)??;
        self.credit = most.saturating_sub(begin.elapsed()).min(self.options.patience);
        self.overheard(&self.out);
        self.out.clear();
        self.out.shrink_to(GATHER * 2);
        Ok(())
    }

    /// Lets who listens to controllers hear this.
    fn overheard(&self, messages: &[u8]) {
        if self.options.controller {
            self.hub.overhear(messages);
        }
    }

    async fn handle(&mut self, message: &[u8]) -> Result<(), Ended> {
        let Some(head) = Header::read(message) else { return Ok(()) };
        // Greetings, errors and echoes ask nothing of the bridge.
        if head.kind > 3 && self.hub.is_changing() {
            self.flush().await?;
            drop(self.hub.turn().await);
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
