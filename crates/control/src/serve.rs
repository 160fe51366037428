//! Server of the API on its sockets. The server enforces limits that no client can exceed.
//!
//! - Each socket has a separate limit of connections, so that network clients cannot exhaust the Unix socket.
//!   Each client may use a limited number of the connections (`places`).
//! - A client has three seconds for its TLS handshake, and five seconds for the head of each request, which
//!   may be 16 KiB long. Bodies are limited where they are read (`api`).
//! - A client must read its responses at a minimum rate (`pace`), and unread responses count towards its memory
//!   limit (`octets`).
//! - A TCP connection ends if the client's machine has not answered for two minutes, so that a live view of a machine
//!   that has vanished ends as well.
//! - Only HTTP/1.1 is supported.
//! - The loops that accept connections never wait for a client. A connection waits for its slot in a separate task.
//! - During a hand-over to a successor process, no connection is accepted (`admission`).
//!
//! Each request carries its [`Caller`], which is the peer of the Unix socket or the holder of a token.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use model::Scope;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::admission::{AdmissionGate, ConnectionGuard};
use crate::api::router;
use crate::caller::{Caller, Origin};
use crate::error::ApiError;
use crate::pace::Paced;
use crate::places::{Arrival, Client, Place, Places};
use crate::tls::Guard;
use crate::{Listeners, Store};

/// Maximum number of API connections on the Unix socket, without those reserved for root.
const UNIX_CONNECTIONS: usize = 64;
/// Maximum number of API connections of one user on the Unix socket.
const USER_CONNECTIONS: usize = 48;
/// Number of connections on the Unix socket that are reserved for root.
const ROOT_CONNECTIONS: usize = 64;
/// Maximum number of API connections on the TCP socket.
const TCP_CONNECTIONS: usize = 64;
/// Maximum number of API connections from one client address on the TCP socket.
const ADDRESS_CONNECTIONS: usize = 16;
/// Maximum size of the head (request line and header fields) of an HTTP request in bytes.
const HEAD_LIMIT: usize = 16 << 10;
/// Maximum time for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(3);
/// Maximum time in which a client must send the complete head of an HTTP request. The time starts with the connection,
/// or with the end of the previous request.
const HEAD: Duration = Duration::from_secs(5);
/// Time without received data after which the kernel sends a keepalive probe to a TCP client. Further probes follow at
/// half this interval.
const SILENCE: Duration = Duration::from_secs(30);
/// Time after which the kernel closes a TCP connection whose client acknowledges neither data nor keepalive probes, or
/// whose client's receive buffer is full.
const UNANSWERED: Duration = Duration::from_secs(120);
/// Content types of streaming responses: events, traces and captures.
const LIVE: [&str; 3] = ["text/event-stream", "application/x-ndjson", "application/x-pcapng"];
/// Maximum time for which a stopping daemon waits for the end of requests in progress.
const FAREWELL: Duration = Duration::from_secs(3);

/// Reason why the API can no longer be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A listening socket cannot be used.
    #[error("api: the listening socket cannot be used: {0}; restart the daemon")]
    Socket(#[from] io::Error),
}

/// Serves the API until the future `shutdown` is ready. Requests in progress then have a short time to end.
///
/// # Errors
///
/// Returns an error if a socket cannot be registered with the event loop.
pub async fn serve(
    listeners: Listeners,
    store: Arc<Store>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let door = AdmissionGate::default();
    let api = router(store, door.clone());
    listeners.unix.set_nonblocking(true)?;
    let unix = UnixListener::from_std(listeners.unix)?;
    let tcp = match listeners.tcp {
        None => None,
        Some((socket, guard)) => {
            socket.set_nonblocking(true)?;
            Some((TcpListener::from_std(socket)?, guard))
        }
    };
    let (stop, stopping) = watch::channel(());
    let mut sockets = JoinSet::new();
    let group = listeners.group_scope;
    sockets.spawn(serve_unix(unix, group, api.clone(), door.clone(), stopping.clone()));
    if let Some((socket, guard)) = tcp {
        sockets.spawn(serve_tcp(socket, guard, api, door, stopping));
    }
    shutdown.await;
    drop(stop);
    // Streaming responses never end by themselves.
    let ended = tokio::time::timeout(FAREWELL, async { while sockets.join_next().await.is_some() {} }).await;
    if ended.is_err() {
        tracing::info!("api: some clients were cut off");
    }
    Ok(())
}

async fn serve_unix(
    socket: UnixListener,
    group: Scope,
    api: Router,
    door: AdmissionGate,
    stopping: watch::Receiver<()>,
) {
    let places = Places::new(UNIX_CONNECTIONS, USER_CONNECTIONS, ROOT_CONNECTIONS);
    let mut connections = JoinSet::new();
    while let Some(stream) = accepted(|| socket.accept(), &door, &stopping).await {
        let Ok((stream, _)) = stream else {
            pause_after_error().await;
            continue;
        };
        // From here on, the client counts as admitted, so that a hand-over waits for its response.
        let visit = door.enter();
        let Ok(credentials) = stream.peer_cred() else { continue };
        let (uid, pid) = (credentials.uid(), credentials.pid());
        let root = uid == 0 || uid == own_uid();
        let scope = Some(if root { Scope::Root } else { group });
        let client = if root { Client::Root } else { Client::User(uid) };
        while connections.try_join_next().is_some() {}
        let Some(arrival) = places.arrive(client) else { continue };
        let caller = Caller { scope, from: Origin::Process { uid, pid } };
        let (door, api, stopping) = (door.clone(), api.clone(), stopping.clone());
        connections.spawn(async move {
            let Some(place) = until_placed(arrival, &stopping).await else { return };
            let visitor = Visitor { visit, door, asked: place.request_flag() };
            place.serve(connection(stream, api, caller, None, visitor, stopping)).await;
        });
    }
    // The listening socket is closed before the last requests end, so that another process can use its
    // address.
    drop(socket);
    while connections.join_next().await.is_some() {}
}

async fn serve_tcp(
    socket: TcpListener,
    guard: Guard,
    api: Router,
    door: AdmissionGate,
    stopping: watch::Receiver<()>,
) {
    let places = Places::new(TCP_CONNECTIONS, ADDRESS_CONNECTIONS, 0);
    let mut connections = JoinSet::new();
    while let Some(stream) = accepted(|| socket.accept(), &door, &stopping).await {
        let Ok((stream, address)) = stream else {
            pause_after_error().await;
            continue;
        };
        let visit = door.enter();
        if limit_silence(&stream).is_err() {
            continue;
        }
        while connections.try_join_next().is_some() {}
        let Some(arrival) = places.arrive(Client::at(address)) else { continue };
        let (door, api, guard, stopping) = (door.clone(), api.clone(), guard.clone(), stopping.clone());
        connections.spawn(async move {
            let Some(place) = until_placed(arrival, &stopping).await else { return };
            let visitor = Visitor { visit, door, asked: place.request_flag() };
            let served = async move {
                // A client that fails its handshake gets no answer.
                if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, guard.acceptor.accept(stream)).await {
                    let caller = Caller { scope: None, from: Origin::Unknown };
                    connection(stream, api, caller, Some((guard, address)), visitor, stopping).await;
                }
            };
            place.serve(served).await;
        });
    }
    drop(socket);
    while connections.join_next().await.is_some() {}
}

/// Limits the time for which a TCP connection stays open without any answer of the client's machine to [`UNANSWERED`].
/// Keepalive probes detect that the machine of an idle client has vanished. The probes are sent for live views, too,
/// which send data only if packets match.
fn limit_silence(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENCE)?;
    sockopt::set_tcp_keepintvl(stream, SILENCE / 2)?;
    let unanswered = u32::try_from(UNANSWERED.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, unanswered)
}

/// Returns the effective user ID of this process.
fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn unauthorized() -> Response {
    let fix = "send `Authorization: Bearer TOKEN` with a token of [daemon.tcp]";
    ApiError::new(StatusCode::UNAUTHORIZED, "api", "the token is missing or wrong", fix).into_response()
}

/// Waits until a connection has a slot. Returns `None` if the connection must be closed, or if the daemon stops in the
/// meantime.
async fn until_placed(arrival: Arrival, stopping: &watch::Receiver<()>) -> Option<Place> {
    let mut stopping = stopping.clone();
    tokio::select! {
        biased;
        place = arrival.place() => place,
        _ = stopping.changed() => None,
    }
}

/// Waits for the next connection and accepts it. While the admission gate is closed, no connection is
/// accepted. Returns `None` when the daemon stops.
async fn accepted<T, F: Future<Output = T>>(
    accept: impl Fn() -> F,
    door: &AdmissionGate,
    stopping: &watch::Receiver<()>,
) -> Option<T> {
    let mut stopping = stopping.clone();
    loop {
        tokio::select! {
            _ = stopping.changed() => return None,
            () = door.is(true) => {}
        }
        tokio::select! {
            biased;
            _ = stopping.changed() => return None,
            () = door.is(false) => {}
            accepted = accept() => return Some(accepted),
        }
    }
}

/// Waits a short time after the daemon failed to accept a connection, usually because no file
/// descriptor is free. Immediate retries would be a busy loop.
async fn pause_after_error() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// An accepted API client, for the task that serves its connection.
struct Visitor {
    /// Registration at the admission gate. The client counts as admitted until its first request is answered.
    visit: ConnectionGuard,
    door: AdmissionGate,
    /// Flag that is set by the first permitted request of the client. While the flag is not set, the connection can be
    /// evicted to free its slot.
    asked: Arc<AtomicBool>,
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    api: Router,
    caller: Caller,
    guard: Option<(Guard, SocketAddr)>,
    visitor: Visitor,
    mut stopping: watch::Receiver<()>,
) {
    let Visitor { visit, door, asked } = visitor;
    let first = Mutex::new(Some(visit));
    let (ending, live) = (stopping.clone(), Arc::new(AtomicBool::new(false)));
    let stream = Paced::new(stream, live.clone());
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (api, guard, asked, mut caller) = (api.clone(), guard.clone(), asked.clone(), caller.clone());
        let first = first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let visit = first.unwrap_or_else(|| door.enter());
        let (ending, live) = (ending.clone(), live.clone());
        async move {
            let mut request = request.map(Body::new);
            if let Some((guard, address)) = guard {
                let authorization = request.headers().get(header::AUTHORIZATION);
                let Some(known) = guard.admits(authorization.map(|value| value.as_bytes())) else {
                    return Ok(unauthorized());
                };
                let from = Origin::Token { name: known.name.clone(), address };
                caller = Caller { scope: Some(known.scope), from };
            }
            asked.store(true, Ordering::Relaxed);
            request.extensions_mut().insert(caller);
            let response = answer(api, request).await;
            drop(visit);
            live.store(is_live(&response), Ordering::Relaxed);
            Ok::<Response, Infallible>(ends_with(response, ending))
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_LIMIT)
        .keep_alive(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = std::pin::pin!(served);
    tokio::select! {
        _ = served.as_mut() => {}
        _ = stopping.changed() => {
            served.as_mut().graceful_shutdown();
            // Errors of the client are ignored.
            let _ = served.await;
        }
    }
}

/// Returns whether the response is a streaming response, according to its content type.
fn is_live(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| LIVE.iter().any(|live| kind.starts_with(live)))
}

/// Ends the body of a streaming response when the daemon stops. Other responses are unchanged, because they end by
/// themselves.
fn ends_with(response: Response, mut ending: watch::Receiver<()>) -> Response {
    if !is_live(&response) {
        return response;
    }
    response.map(|body| {
        let end = Box::pin(async move { while ending.changed().await.is_ok() {} });
        Body::from_stream(body.into_data_stream().take_until(end))
    })
}

async fn answer(api: Router, request: Request<Body>) -> Response {
    match api.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
