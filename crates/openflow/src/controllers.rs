//! The controllers of a bridge. OpenFlow sessions are started and ended when the list of targets (controllers and
//! listeners) changes.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, watch};
use tokio::task::{Id, JoinHandle, JoinSet};

use crate::admission::Admission;
use crate::connection_manager::ConnectionManager;
use crate::datapath::Datapath;
use crate::session::{self, Activity, Ended, Options};
use crate::sockets::{OpenSocket, Sockets, bind_private};
use crate::target::{Address, Target};
use crate::target_status::{Status, TargetStatus};
use crate::tls::{AcceptorError, Listening, TlsError};

/// Maximum number of concurrent OpenFlow sessions of a listener.
const SESSIONS: usize = 64;
/// Maximum number of connections of a listener whose peers have not finished the handshake: the TLS handshake, if the
/// listener uses TLS, and the negotiation of the OpenFlow version. These connections do not count towards `SESSIONS`.
const HANDSHAKES: usize = 64;
/// Maximum number of connections of a listener that are ending but are not closed yet. These connections count neither
/// towards `SESSIONS` nor towards `HANDSHAKES`.
const LEAVING: usize = 8;
/// Timeout for establishing a connection to a controller, and for a TLS handshake.
const CONNECT: Duration = Duration::from_secs(5);

struct Running {
    target: Target,
    board: Arc<TargetStatus>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// The controllers of a bridge, and the listeners for OpenFlow clients. This type requires a multi-threaded tokio
/// runtime. Dropping a value ends all its sessions.
pub struct Controllers {
    manager: Arc<ConnectionManager>,
    events: JoinHandle<()>,
    running: HashMap<Address, Running>,
    sockets: Arc<Sockets>,
}

impl Controllers {
    /// Creates an empty set of controllers for the bridge that `datapath` represents.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    #[must_use]
    pub fn new(datapath: Arc<dyn Datapath>) -> Controllers {
        Self::with_sockets(datapath, Arc::default())
    }

    /// Creates an empty set of controllers. `sockets` contains the listening Unix sockets, which an upgrade passes
    /// from the old process to the new one.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    #[must_use]
    pub fn with_sockets(datapath: Arc<dyn Datapath>, sockets: Arc<Sockets>) -> Controllers {
        let subscription = datapath.subscribe();
        let manager = ConnectionManager::new(datapath, subscription.interest.clone());
        let events = tokio::spawn(Arc::clone(&manager).run(subscription));
        Controllers { manager, events, running: HashMap::new(), sockets }
    }

    /// Replaces the list of targets (controllers and listeners). Sessions of unchanged targets
    /// continue. Sessions of removed targets end, and sessions of new targets start. If several
    /// targets have an equal address, the last of these targets is used.
    pub async fn set(&mut self, targets: Vec<Target>) {
        let wanted: HashMap<Address, Target> =
            targets.into_iter().map(|target| (target.address.clone(), target)).collect();
        let gone: Vec<Address> = self
            .running
            .iter()
            .filter(|(address, running)| wanted.get(*address) != Some(&running.target))
            .map(|(address, _)| address.clone())
            .collect();
        for address in gone {
            if let Some(running) = self.running.remove(&address) {
                end(running).await;
            }
        }
        for (address, target) in wanted {
            if !self.running.contains_key(&address) {
                let running = self.begin(target);
                self.running.insert(address, running);
            }
        }
    }

    fn begin(&self, target: Target) -> Running {
        let board = Arc::new(TargetStatus::new(target.address.clone()));
        let (stop, stopped) = watch::channel(false);
        let own = Own {
            manager: Arc::clone(&self.manager),
            board: Arc::clone(&board),
            target: target.clone(),
            stopped,
            sockets: Arc::clone(&self.sockets),
            tls: Arc::default(),
        };
        let task = if target.address.is_passive() {
            tokio::spawn(own.listen())
        } else {
            tokio::spawn(own.connect())
        };
        Running { target, board, stop, task }
    }

    /// Returns the connection status of all targets (controllers and listeners), ordered by address.
    #[must_use]
    pub fn status(&self) -> Vec<Status> {
        let mut all: Vec<Status> = self.running.values().map(|running| running.board.status()).collect();
        all.sort_by_key(|status| status.address.to_string());
        all
    }

    /// Ends all OpenFlow sessions and waits until they have ended.
    pub async fn shutdown(mut self) {
        for (_, running) in std::mem::take(&mut self.running) {
            end(running).await;
        }
    }
}

async fn end(running: Running) {
    // The task may have ended by itself.
    let _ = running.stop.send(true);
    let _ = running.task.await;
}

impl Drop for Controllers {
    fn drop(&mut self) {
        self.events.abort();
        for running in self.running.values() {
            running.task.abort();
        }
    }
}

/// State of the task that serves one target (a controller or a listener), or one session of a
/// listener.
#[derive(Clone)]
struct Own {
    manager: Arc<ConnectionManager>,
    board: Arc<TargetStatus>,
    target: Target,
    stopped: watch::Receiver<bool>,
    sockets: Arc<Sockets>,
    tls: Arc<Listening>,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Own {
    fn options(&self, activity: Arc<Activity>) -> Options {
        Options {
            patience: self.target.patience,
            bundle_timeout: self.target.bundle_timeout,
            activity,
            controller: !self.target.address.is_passive(),
            inactivity_probe: self.target.inactivity_probe,
            rate_limit: self.target.rate_limit,
            asynchronous: self.target.asynchronous,
            versions: self.target.versions.clone(),
        }
    }

    /// Connects to the controller and runs the OpenFlow session. Repeats both steps until the task
    /// is stopped. The pause after a session or a failed attempt doubles up to `max_backoff`. A
    /// session that lasts at least `max_backoff` resets the pause.
    async fn connect(mut self) {
        let mut pause = Duration::from_secs(1);
        loop {
            let began = Instant::now();
            let stream = tokio::select! {
                stream = open(&self.target) => stream,
                () = session::until(&mut self.stopped) => return,
            };
            let error = match stream {
                Ok(stream) => {
                    session::run(
                        stream,
                        &self.manager,
                        &self.board,
                        self.options(Arc::new(Activity::new(Arc::default()))),
                        self.stopped.clone(),
                    )
                    .await
                }
                Err(error) => error,
            };
            if matches!(error, Ended::Stopped) {
                return;
            }
            let why = format!("controller {}: {error}", self.target.address);
            tracing::debug!("{why}");
            self.board.failed(why);
            if began.elapsed() >= self.target.max_backoff.max(Duration::from_secs(1)) {
                pause = Duration::from_secs(1);
            }
            tokio::select! {
                () = tokio::time::sleep(pause.min(self.target.max_backoff)) => {}
                () = session::until(&mut self.stopped) => return,
            }
            pause = (pause * 2).min(self.target.max_backoff);
        }
    }

    /// Runs the OpenFlow session with a peer that has connected to a listener. When the session has
    /// ended, returns the reason for the end.
    async fn serve(&self, stream: Box<dyn Stream>, activity: Arc<Activity>) -> Ended {
        let mut stopped = self.stopped.clone();
        let stream = match self.target.address {
            Address::ListenTls(_) => tokio::select! {
                secured = accept_tls(&self.target, &self.tls, stream) => match secured {
                    Ok(secured) => secured,
                    Err(ended) => return ended,
                },
                () = session::until(&mut stopped) => return Ended::Stopped,
            },
            _ => stream,
        };
        if self.target.snoops {
            let versions = &self.target.versions;
            return session::snoop::run(stream, &self.manager, &self.board, versions, &activity, stopped)
                .await;
        }
        session::run(stream, &self.manager, &self.board, self.options(activity), stopped).await
    }

    /// Returns whether a peer may connect to the listener. A refused peer is logged and recorded in the listener's
    /// status.
    async fn admits(&self, admission: &mut Option<Admission>, peer: SocketAddr, local: SocketAddr) -> bool {
        let Some(admission) = admission else { return true };
        let Err(why) = admission.admit(peer, local).await else { return true };
        let why = format!("controller {}: {peer} is refused: {why}", self.target.address);
        if admission.may_log() {
            tracing::warn!("{why}");
        }
        self.board.failed(why);
        false
    }

    /// Accepts connections of peers to the listener and runs a session on each of them.
    async fn listen(self) {
        let mut stopped = self.stopped.clone();
        if self.target.address.is_open() && !self.target.allow_remote {
            let why = format!(
                "controller {}: whoever can reach this address could change the rules, so it is not listened there; listen at 127.0.0.1, use \
                 pssl:, or allow it (`allow_remote = true`, in OVSDB the bridge's other_config:allow-remote=true)",
                self.target.address
            );
            tracing::error!("{why}");
            self.board.failed(why);
            return session::until(&mut stopped).await;
        }
        if self.target.address.is_open() {
            tracing::warn!(
                "controller {}: whoever can reach this address may change the rules, without authentication",
                self.target.address
            );
        }
        loop {
            let listener = match Listener::open(&self.target.address, &self.sockets).await {
                Ok(listener) => listener,
                Err(error) => {
                    let why = format!(
                        "controller {}: cannot listen there: {error}; free the address, or choose another",
                        self.target.address
                    );
                    tracing::warn!("{why}");
                    self.board.failed(why);
                    tokio::select! {
                        () = tokio::time::sleep(self.target.max_backoff.max(Duration::from_secs(1))) => continue,
                        () = session::until(&mut stopped) => return,
                    }
                }
            };
            return self.accept_all(listener).await;
        }
    }

    /// Accepts connections of peers until the listener is stopped. Ends connections above the limits.
    async fn accept_all(&self, listener: Listener) {
        let mut stopped = self.stopped.clone();
        let mut admission = Admission::of(&self.target);
        let mut sessions = JoinSet::new();
        let mut slots: HashMap<Id, Slot> = HashMap::new();
        let admitted = Arc::<Notify>::default();
        let mut held = self.sockets.held();
        loop {
            let holds = *held.borrow_and_update();
            tokio::select! {
                // A held listener does not accept a connection that arrives at the same time.
                biased;
                Ok(()) = held.changed() => {}
                Some(ended) = sessions.join_next_with_id() => {
                    slots.remove(&ended.map_or_else(|error| error.id(), |(id, ())| id));
                }
                () = session::until(&mut stopped) => {
                    drop(listener);
                    slots.into_values().for_each(|slot| slot.end());
                    while sessions.join_next().await.is_some() {}
                    return;
                }
                () = admitted.notified() => self.make_room(&slots),
                // A few additional connections may be ending.
                stream = listener.accept(), if slots.len() < SESSIONS + HANDSHAKES + LEAVING && !holds => match stream {
                    Ok((stream, ends)) => {
                        if let Some((peer, local)) = ends
                            && !self.admits(&mut admission, peer, local).await
                        {
                            continue;
                        }
                        let peer = ends.map(|(peer, _)| host(peer.ip()));
                        let (stop, stopped) = watch::channel(false);
                        let activity = Arc::new(Activity::new(Arc::clone(&admitted)));
                        let own = Own { stopped, ..self.clone() };
                        let (session, asked) = (self.sockets.session(), Arc::clone(&activity));
                        let task = sessions.spawn(async move {
                            let ended = own.serve(stream, asked).await;
                            drop(session);
                            if !matches!(ended, Ended::Closed | Ended::Stopped) {
                                own.board.failed(format!("controller {}: {ended}", own.target.address));
                            }
                        });
                        slots.insert(task.id(), Slot { peer, activity, stop });
                        self.make_room(&slots);
                    }
                    Err(error) => {
                        self.board.failed(format!("controller {}: {error}", self.target.address));
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
    }

    /// Ends the connections above the limits. The limit of connections in a handshake is separate, so that a peer
    /// without a certificate ends no session.
    fn make_room(&self, slots: &HashMap<Id, Slot>) {
        while let Some(slot) = handshake_above_limit(slots) {
            slot.end();
            self.board.failed(format!(
                "controller {}: {HANDSHAKES} connections have not finished their handshakes; the oldest one gave way to another",
                self.target.address
            ));
        }
        while let Some(slot) = session_above_limit(slots) {
            slot.end();
            self.board.failed(format!(
                "controller {}: there are {SESSIONS} sessions; the longest idle one gave way to another",
                self.target.address
            ));
        }
    }
}

async fn open(target: &Target) -> Result<Box<dyn Stream>, Ended> {
    let late = |_| Ended::Io(io::ErrorKind::TimedOut.into());
    let stream = tokio::time::timeout(CONNECT, connect(&target.address)).await.map_err(late)??;
    let Address::Tls(to) = target.address else { return Ok(stream) };
    let tls = target.tls.clone().ok_or(TlsError::Missing)?;
    let connector = blocking(move || tls.connector()).await??;
    let secured = tokio::time::timeout(CONNECT, connector.connect(ServerName::from(to.ip()), stream));
    Ok(Box::new(secured.await.map_err(|_| Ended::Shy(CONNECT))?.map_err(Ended::Secret)?))
}

async fn connect(address: &Address) -> io::Result<Box<dyn Stream>> {
    Ok(match address {
        Address::Tcp(to) | Address::Tls(to) => {
            let stream = TcpStream::connect(to).await?;
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
        Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
        Address::ListenTcp(_) | Address::ListenTls(_) | Address::ListenUnix(_) => {
            return Err(io::ErrorKind::InvalidInput.into());
        }
    })
}

/// Performs the TLS handshake with a peer that connected to a listener.
async fn accept_tls(
    target: &Target,
    listening: &Listening,
    stream: Box<dyn Stream>,
) -> Result<Box<dyn Stream>, Ended> {
    let tls = target.tls.as_ref().ok_or(TlsError::Missing)?;
    let acceptor = listening.acceptor(tls).await.map_err(|error| match error {
        AcceptorError::Tls(error) => Ended::from(error),
        AcceptorError::Io(error) => Ended::Io(error),
    })?;
    let secured = tokio::time::timeout(CONNECT, acceptor.accept(stream));
    Ok(Box::new(secured.await.map_err(|_| Ended::Shy(CONNECT))?.map_err(Ended::Secret)?))
}

/// Runs `work`, which reads files, on a blocking thread, because reading files may block.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    Ok(tokio::task::spawn_blocking(work).await?)
}

/// Returns the address under which connections from the host with `address` are counted. A host
/// with several addresses counts once: all loopback addresses count as one host, and all IPv6
/// addresses of a /64 prefix count as one host.
fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        own if own.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

/// State that a listener keeps about one of its connections.
struct Slot {
    /// Host of the peer, as returned by [`host`]. `None` for a Unix socket.
    peer: Option<IpAddr>,
    activity: Arc<Activity>,
    stop: watch::Sender<bool>,
}

impl Slot {
    /// Returns whether the connection has not been told to end.
    fn is_staying(&self) -> bool {
        !*self.stop.borrow()
    }

    /// Ends the connection. The call has no effect if the connection has already ended.
    fn end(&self) {
        let _ = self.stop.send(true);
    }
}

/// Returns the connection to end if more than [`HANDSHAKES`] connections of a listener have not finished their
/// handshakes. The candidates are these connections of the hosts with the most of them. The function selects the oldest
/// candidate.
fn handshake_above_limit(slots: &HashMap<Id, Slot>) -> Option<&Slot> {
    let handshakes = slots.values().filter(|slot| slot.is_staying() && !slot.activity.is_admitted());
    first_to_end(&handshakes.collect::<Vec<_>>(), HANDSHAKES)
}

/// Returns the session to end if a listener has more than [`SESSIONS`] sessions. The candidates are the sessions of the
/// hosts with the most sessions. The function selects the candidate that has sent no request for the longest time.
fn session_above_limit(slots: &HashMap<Id, Slot>) -> Option<&Slot> {
    let sessions = slots.values().filter(|slot| slot.is_staying() && slot.activity.is_admitted());
    first_to_end(&sessions.collect::<Vec<_>>(), SESSIONS)
}

/// Returns the connection that has been idle for the longest time among the connections of the hosts with the most
/// connections. Returns `None` if there are at most `limit` connections.
fn first_to_end<'a>(slots: &[&'a Slot], limit: usize) -> Option<&'a Slot> {
    if slots.len() <= limit {
        return None;
    }
    let mut by_peer: HashMap<Option<IpAddr>, usize> = HashMap::new();
    slots.iter().for_each(|slot| *by_peer.entry(slot.peer).or_default() += 1);
    slots.iter().copied().max_by_key(|slot| (by_peer.get(&slot.peer).copied(), slot.activity.idle()))
}

enum Listener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        /// Registration of the socket for a successor process. The socket file is removed when the value is dropped.
        _open: OpenSocket,
    },
}

impl Listener {
    async fn open(address: &Address, sockets: &Arc<Sockets>) -> io::Result<Listener> {
        match address {
            Address::ListenTcp(at) | Address::ListenTls(at) => {
                Ok(Listener::Tcp(TcpListener::bind(at).await?))
            }
            Address::ListenUnix(path) => {
                let listener = if let Some(given) = sockets.take(path) {
                    given.set_nonblocking(true)?;
                    UnixListener::from_std(given)?
                } else {
                    clear(path).await?;
                    let listener = bind_private(path)?;
                    listener.set_nonblocking(true)?;
                    UnixListener::from_std(listener)?
                };
                let open = sockets.keep(path, &listener)?;
                Ok(Listener::Unix { listener, _open: open })
            }
            Address::Tcp(_) | Address::Tls(_) | Address::Unix(_) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Accepts the next connection on the listener. For TCP, the result includes the address of the
    /// peer and the local address.
    async fn accept(&self) -> io::Result<(Box<dyn Stream>, Option<(SocketAddr, SocketAddr)>)> {
        Ok(match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let local = stream.local_addr()?;
                (Box::new(stream), Some((peer, local)))
            }
            Listener::Unix { listener, .. } => (Box::new(listener.accept().await?.0), None),
        })
    }
}

/// Removes the file of a Unix socket on which no process listens. Returns an error if the file is not such a socket. A
/// process also listens if its queue of connections is full (`EAGAIN`).
async fn clear(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => {}
        Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that all loopback addresses count as one host, and so do all addresses of a /64 prefix.
    #[test]
    fn a_host_is_one_peer_whatever_its_addresses() {
        let of = |text: &str| host(text.parse().unwrap());
        for own in ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.2"] {
            assert_eq!(of(own), IpAddr::V4(Ipv4Addr::LOCALHOST), "{own}");
        }
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    /// Checks that a Unix socket on which a process listens is not removed, even if the process's queue of connections
    /// is full. Checks that a socket file without a listener is removed.
    #[tokio::test]
    async fn a_socket_with_a_listener_is_in_use() {
        let path = std::env::temp_dir().join(format!("trivium-controllers-use-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let mut waiting = Vec::new();
        // One attempt more than the queue has places is refused with `EAGAIN`.
        let full = loop {
            assert_eq!(clear(&path).await.unwrap_err().kind(), io::ErrorKind::AddrInUse);
            match UnixStream::connect(&path).await {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
            assert!(waiting.len() < 100_000, "the queue of connections has no limit");
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(clear(&path).await.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop((waiting, listener));
        clear(&path).await.unwrap();
        assert!(!path.exists());
    }
}
