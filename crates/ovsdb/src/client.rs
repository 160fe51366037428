//! Connection to the OVSDB server. The client reconnects after a loss of the connection, and sends a probe to the
//! server after a time without messages. The desired configuration and the state of the connection are published
//! through watch channels.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::rpc::{Framer, RpcError};
use crate::{Desired, Event, Session, SessionError, SwitchStatus, Target};

/// Maximum length of a message from the OVSDB server, in bytes. A message of this length contains some hundred thousand
/// database rows.
const MESSAGE_LIMIT: usize = 64 << 20;
/// Number of unsent bytes at which the client stops reading from the server. Otherwise, replies to the server's
/// requests could accumulate without limit.
const BACKLOG_LIMIT: usize = 16 << 20;
/// Maximum time for establishing a connection to the OVSDB server.
const CONNECT: Duration = Duration::from_secs(5);
/// Minimum interval between two transactions that write the switch status.
const TELL: Duration = Duration::from_millis(20);
/// Pause after the server has refused a transaction that writes the switch status. The client sends
/// the next such transaction after the pause.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// Options of the connection to the OVSDB server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Connection method and address of the server.
    pub target: Target,
    /// Name of the OVSDB lock that the client requests. `ovs-vswitchd` uses `ovs_vswitchd`.
    pub lock: String,
    /// Time without a received message after which the client sends a probe (echo request) to the server. After twice
    /// this time, the client closes the connection.
    pub probe: Duration,
    /// Pauses between attempts to connect: the first pause, and the maximum. Each pause is twice as long as
    /// the one before, up to the maximum.
    pub backoff: (Duration, Duration),
}

impl Options {
    /// Returns the options that `ovs-vswitchd` uses, with a shorter first pause between attempts to connect.
    pub fn new(target: Target) -> Options {
        let backoff = (Duration::from_millis(100), Duration::from_secs(8));
        Options { target, lock: "ovs_vswitchd".to_owned(), probe: Duration::from_secs(5), backoff }
    }
}

/// State of the connection to the OVSDB server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// Whether the client is connected to the server.
    pub connected: bool,
    /// Whether the client holds the OVSDB lock.
    pub locked: bool,
    /// Whether the client has read all monitored tables since the connection was established.
    pub whole: bool,
    /// Reason why the last connection ended or the last attempt to connect failed. `None` if there was no such
    /// failure.
    pub trouble: Option<String>,
}

/// Ends of the channels to the connection task ([`run`]) that the user of the client holds: the desired configuration,
/// the state of the connection, and the status to write.
#[derive(Debug)]
pub struct Client {
    /// Desired configuration in the tables of the database. `None` until the client has held the lock and read the
    /// tables. The value is kept while the client is not connected to the server.
    pub desired: watch::Receiver<Option<Arc<Desired>>>,
    /// State of the connection to the server.
    pub standing: watch::Receiver<Standing>,
    /// Status of the switch, which the user of the client sends to this channel. The client writes it to the database.
    pub told: watch::Sender<Arc<SwitchStatus>>,
}

/// Ends of the channels of a [`Client`] that the connection task ([`run`]) holds.
struct Ends {
    desired: watch::Sender<Option<Arc<Desired>>>,
    standing: watch::Sender<Standing>,
    told: watch::Receiver<Arc<SwitchStatus>>,
}

/// Reason why the connection to the OVSDB server ended.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error("connecting fails: {0}")]
    Connect(#[source] io::Error),
    #[error("no connection within {} s", CONNECT.as_secs())]
    Slow,
    #[error("the connection broke: {0}")]
    Broken(#[source] io::Error),
    #[error("the server has closed the connection")]
    Closed,
    #[error("the server says nothing any more")]
    Silent,
    #[error("{0}")]
    Rpc(#[from] RpcError),
    #[error("{}", with_source(.0))]
    Session(#[from] SessionError),
    /// The user has dropped the [`Client`], so the connection is no longer needed.
    #[error("nobody wants it any more")]
    Abandoned,
}

fn with_source(error: &SessionError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Starts to monitor the database of an OVSDB server. Returns the channels for the caller, and a future that maintains
/// the connection. The future must be polled. It ends when the [`Client`] is dropped.
pub fn run(options: Options) -> (Client, impl Future<Output = ()> + Send + 'static) {
    let (desired, wanted) = watch::channel(None);
    let (standing, stands) = watch::channel(Standing::default());
    let (tell, told) = watch::channel(Arc::default());
    let ends = Ends { desired, standing, told };
    (Client { desired: wanted, standing: stands, told: tell }, follow(options, ends))
}

async fn follow(options: Options, mut ends: Ends) {
    let (first, longest) = options.backoff;
    let mut pause = first;
    let mut last = Session::default();
    loop {
        let mut session = Session::resume(&options.lock, std::mem::take(&mut last));
        let error = match connect(&options.target).await {
            Ok(Stream::Unix(stream)) => talk(stream, &options, &mut session, &mut ends).await,
            Ok(Stream::Tcp(stream)) => talk(stream, &options, &mut session, &mut ends).await,
            Err(error) => error,
        };
        if matches!(error, ConnectionError::Abandoned) || ends.told.has_changed().is_err() {
            return;
        }
        let before = ends.standing.borrow().clone();
        if before.connected || before.trouble.is_none() {
            tracing::warn!("{}: {error}; trying again", options.target);
        }
        ends.standing.send_replace(Standing { trouble: Some(error.to_string()), ..Standing::default() });
        if before.whole {
            pause = first;
        }
        let wait = sleep_until(Instant::now() + pause);
        tokio::pin!(wait);
        loop {
            tokio::select! {
                () = &mut wait => break,
                changed = ends.told.changed() => if changed.is_err() { return },
            }
        }
        pause = (pause * 2).min(longest);
        last = session;
    }
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

async fn connect(target: &Target) -> Result<Stream, ConnectionError> {
    let connected = async {
        match target {
            Target::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
            Target::Tcp(host, port) => TcpStream::connect((host.as_str(), *port)).await.map(Stream::Tcp),
        }
    };
    match timeout(CONNECT, connected).await {
        Ok(connected) => connected.map_err(ConnectionError::Connect),
        Err(_) => Err(ConnectionError::Slow),
    }
}

/// Exchanges OVSDB messages on a connection until the connection ends. Returns the reason why the connection ended.
async fn talk(
    stream: impl AsyncRead + AsyncWrite + Send,
    options: &Options,
    session: &mut Session,
    ends: &mut Ends,
) -> ConnectionError {
    ends.standing.send_modify(|standing| standing.connected = true);
    match talk_on(stream, options, session, ends).await {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

async fn talk_on(
    stream: impl AsyncRead + AsyncWrite + Send,
    options: &Options,
    session: &mut Session,
    ends: &mut Ends,
) -> Result<std::convert::Infallible, ConnectionError> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut framer = Framer::new(MESSAGE_LIMIT);
    let mut received = vec![0; 1 << 16];
    let mut backlog: Vec<u8> = Vec::new();
    let mut heard = Instant::now();
    let mut probed = false;
    let mut tell_at = Instant::now();
    // Whether the database or the status may have changed since the last comparison.
    let mut dirty = true;
    loop {
        backlog.extend(session.outgoing().iter().flat_map(crate::rpc::Message::bytes));
        let silence = heard + if probed { options.probe * 2 } else { options.probe };
        let may_read = backlog.len() < BACKLOG_LIMIT;
        tokio::select! {
            read = reader.read(&mut received), if may_read => {
                let count = read.map_err(ConnectionError::Broken)?;
                if count == 0 {
                    return Err(ConnectionError::Closed);
                }
                (heard, probed) = (Instant::now(), false);
                framer.push(received.get(..count).unwrap_or_default());
                dirty = true;
                let mut is_stale = false;
                while let Some(message) = framer.next_message()? {
                    let event = session.take(message)?;
                    if let Event::Refused(why) = &event {
                        tracing::warn!("{}: what is told was refused: {why}", options.target);
                        tell_at = Instant::now() + TELL_AGAIN;
                    }
                    is_stale |= publish_standing(&event, options, session, ends);
                }
                if is_stale {
                    publish_desired(session, ends).await;
                }
            }
            written = writer.write(&backlog), if !backlog.is_empty() => {
                let count = written.map_err(ConnectionError::Broken)?;
                if count == 0 {
                    return Err(ConnectionError::Closed);
                }
                backlog.drain(..count);
            }
            changed = ends.told.changed() => {
                if changed.is_err() {
                    return Err(ConnectionError::Abandoned);
                }
                dirty = true;
            }
            () = sleep_until(tell_at), if dirty && session.is_free() => {
                let told = Arc::clone(&ends.told.borrow_and_update());
                dirty = session.tell(&told);
                tell_at = Instant::now() + TELL;
            }
            () = sleep_until(silence) => {
                if probed {
                    return Err(ConnectionError::Silent);
                }
                session.probe();
                probed = true;
            }
        }
    }
}

/// Publishes the state of the connection ([`Standing`]) after a message from the server. Returns whether the message
/// may have changed the desired configuration.
fn publish_standing(event: &Event, options: &Options, session: &Session, ends: &Ends) -> bool {
    let (locked, whole) = (session.is_locked(), session.replica().is_some());
    let standing = Standing { connected: true, locked, whole, trouble: None };
    let changed = ends.standing.send_if_modified(|before| {
        // The trouble is kept until the tables have been read again.
        let trouble = before.trouble.take().filter(|_| !whole);
        let now = Standing { trouble, ..standing };
        let changed = *before != now;
        *before = now;
        changed
    });
    if changed && whole && locked {
        tracing::info!("{}: following the database", options.target);
    } else if *event == Event::Locked(false) {
        tracing::warn!("{}: another daemon holds the lock {}; waiting for it", options.target, options.lock);
    }
    matches!(event, Event::Changed | Event::Locked(_)) && whole
}

/// Publishes the desired configuration that the replica contains, once for all messages that were received together.
/// The configuration is read and compared on a blocking thread, because the tables may have very many rows. While this
/// function waits, no message changes the replica.
async fn publish_desired(session: &Session, ends: &Ends) {
    let replica = session.replica().filter(|_| session.is_locked()).cloned();
    let before = ends.desired.borrow().clone();
    let read = move || {
        let desired = replica.and_then(|replica| Desired::read(&replica));
        (before.as_deref() != desired.as_ref()).then(|| desired.map(Arc::new))
    };
    match tokio::task::spawn_blocking(read).await {
        Ok(Some(desired)) => drop(ends.desired.send_replace(desired)),
        Ok(None) => {}
        Err(error) => tracing::error!(%error, "the configuration in the database could not be read"),
    }
}
