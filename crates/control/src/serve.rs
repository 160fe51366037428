//! Serves the API on its sockets, within limits that no client can talk us out of.
//!
//! Each socket has its own number of connections at once, so that the network cannot starve the unix socket, and each
//! client has a share of them (`places`). A client has three seconds for its TLS handshake and five for each request's
//! head, which may be 16 KiB long; bodies are limited where they are read (`api`). A client has to read its answers at a least rate (`pace`), and
//! what it has not read yet counts for it (`octets`). HTTP/1.1 only. The loops that accept wait for no
//! client: a connection waits for its place in its own task. During a hand-over
//! nobody is let in (`door`). Each request is given its [`Caller`]: the peer of the unix socket, or the holder of a token.

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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::api::router;
use crate::caller::{Caller, Origin};
use crate::door::{Door, Visit};
use crate::error::ApiError;
use crate::pace::Paced;
use crate::places::{Arrival, Client, Place, Places};
use crate::tls::Guard;
use crate::{Listeners, Store};

/// Connections on the unix socket at once, without root's own.
const UNIX_CONNECTIONS: usize = 64;
/// Connections of one user on the unix socket at once.
const USER_CONNECTIONS: usize = 48;
/// Connections on the unix socket that only root has.
const ROOT_CONNECTIONS: usize = 64;
/// Connections over TCP at once.
const TCP_CONNECTIONS: usize = 64;
/// Connections over TCP of one address at once.
const ADDRESS_CONNECTIONS: usize = 16;
/// Bytes of a request's head.
const HEAD_LIMIT: usize = 16 << 10;
/// Time for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(3);
/// Time for a request's head, from the one before it on.
const HEAD: Duration = Duration::from_secs(5);
/// What live views are sent as.
const LIVE: [&str; 3] = ["text/event-stream", "application/x-ndjson", "application/x-pcapng"];
/// Time that requests have to end once the daemon shall stop.
const FAREWELL: Duration = Duration::from_secs(3);

/// Why serving ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A socket cannot be used.
    #[error("api: the listening socket cannot be used: {0}; restart the daemon")]
    Socket(#[from] io::Error),
}

/// Serves the API until `shutdown` is ready, and then for a moment those requests that have begun.
///
/// # Errors
///
/// If a socket cannot be handed to the event loop.
pub async fn serve(
    listeners: Listeners,
    store: Arc<Store>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let door = Door::default();
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
    // Live views never end by themselves.
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
    door: Door,
    stopping: watch::Receiver<()>,
) {
    let places = Places::new(UNIX_CONNECTIONS, USER_CONNECTIONS, ROOT_CONNECTIONS);
    let mut connections = JoinSet::new();
    while let Some(stream) = accepted(|| socket.accept(), &door, &stopping).await {
        let Ok((stream, _)) = stream else {
            pause_after_error().await;
            continue;
        };
        // Counted from here on: a hand-over waits for the answer.
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
            let visitor = Visitor { visit, door, asked: place.asked() };
            place.serve(connection(stream, api, caller, None, visitor, stopping)).await;
        });
    }
    // The socket is free for others while the last requests end.
    drop(socket);
    while connections.join_next().await.is_some() {}
}

async fn serve_tcp(
    socket: TcpListener,
    guard: Guard,
    api: Router,
    door: Door,
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
        while connections.try_join_next().is_some() {}
        let Some(arrival) = places.arrive(Client::at(address)) else { continue };
        let (door, api, guard, stopping) = (door.clone(), api.clone(), guard.clone(), stopping.clone());
        connections.spawn(async move {
            let Some(place) = until_placed(arrival, &stopping).await else { return };
            let visitor = Visitor { visit, door, asked: place.asked() };
            let served = async move {
                // A client that does not get through its handshake gets no answer.
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

/// The user whose process this is.
fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn unauthorized() -> Response {
    let fix = "send `Authorization: Bearer TOKEN` with a token of [daemon.tcp]";
    ApiError::new(StatusCode::UNAUTHORIZED, "api", "the token is missing or wrong", fix).into_response()
}

/// Waits for the place of a connection; `None` if the connection is to be closed, also once the daemon shall stop.
async fn until_placed(arrival: Arrival, stopping: &watch::Receiver<()>) -> Option<Place> {
    let mut stopping = stopping.clone();
    tokio::select! {
        biased;
        place = arrival.place() => place,
        _ = stopping.changed() => None,
    }
}

/// The next client while the door is open; `None` once the daemon shall stop.
async fn accepted<T, F: Future<Output = T>>(
    accept: impl Fn() -> F,
    door: &Door,
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

/// Out of descriptors, most likely: trying again at once would only spin.
async fn pause_after_error() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// A client that was let in.
struct Visitor {
    /// Until its first request is answered.
    visit: Visit,
    door: Door,
    /// Set with the first request that it may make.
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
            // What the client did wrong is the client's business.
            let _ = served.await;
        }
    }
}

/// Returns whether the response is a live view.
fn is_live(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| LIVE.iter().any(|live| kind.starts_with(live)))
}

/// Lets a live view, which has no end of its own, end when the daemon does.
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
