//! Serves the API on its sockets, within limits that no client can talk us out of.
//!
//! Each socket has its own number of connections at once, so that the network cannot starve the unix socket. A client
//! has ten seconds for its TLS handshake and for each request's head, which may be 16 KiB long; bodies are limited
//! where they are read (`api`). HTTP/1.1 only. During a hand-over nobody is let in (`door`).

use std::convert::Infallible;
use std::future::Future;
use std::io;
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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::api::router;
use crate::door::{Door, Visit};
use crate::error::ApiError;
use crate::tls::Guard;
use crate::{Listeners, Store};

/// Connections on the unix socket at once.
const UNIX_CONNECTIONS: usize = 64;
/// Connections over TCP at once.
const TCP_CONNECTIONS: usize = 64;
/// Bytes of a request's head.
const HEAD_LIMIT: usize = 16 << 10;
/// Time for a TLS handshake, and for a request's head.
const PATIENCE: Duration = Duration::from_secs(10);
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
    sockets.spawn(serve_unix(unix, api.clone(), door.clone(), stopping.clone()));
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

async fn serve_unix(socket: UnixListener, api: Router, door: Door, stopping: watch::Receiver<()>) {
    let permits = Arc::new(Semaphore::new(UNIX_CONNECTIONS));
    let mut connections = JoinSet::new();
    while let Some(permit) = place(&permits, &mut connections, &stopping).await {
        let Some(stream) = accepted(|| socket.accept(), &door, &stopping).await else { break };
        let Ok((stream, _)) = stream else {
            pause_after_error().await;
            continue;
        };
        let visitor = Visitor { visit: door.enter(), door: door.clone(), permit };
        connections.spawn(connection(stream, api.clone(), visitor, stopping.clone()));
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
    let permits = Arc::new(Semaphore::new(TCP_CONNECTIONS));
    let mut connections = JoinSet::new();
    let acceptor = guard.acceptor.clone();
    let api =
        api.layer(axum::middleware::from_fn(move |request: Request<Body>, next: axum::middleware::Next| {
            let guard = guard.clone();
            async move {
                let authorization = request.headers().get(header::AUTHORIZATION);
                match guard.admits(authorization.map(|value| value.as_bytes())) {
                    true => next.run(request).await,
                    false => unauthorized(),
                }
            }
        }));
    while let Some(permit) = place(&permits, &mut connections, &stopping).await {
        let Some(stream) = accepted(|| socket.accept(), &door, &stopping).await else { break };
        let Ok((stream, _)) = stream else {
            pause_after_error().await;
            continue;
        };
        let visitor = Visitor { visit: door.enter(), door: door.clone(), permit };
        let (acceptor, api, stopping) = (acceptor.clone(), api.clone(), stopping.clone());
        connections.spawn(async move {
            // A client that does not get through its handshake gets no answer.
            if let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
                connection(stream, api, visitor, stopping).await;
            }
        });
    }
    drop(socket);
    while connections.join_next().await.is_some() {}
}

fn unauthorized() -> Response {
    let fix = "send `Authorization: Bearer TOKEN` with the token of daemon.tcp.token_file";
    ApiError::new(StatusCode::UNAUTHORIZED, "api", "the token is missing or wrong", fix).into_response()
}

/// Waits for a free place among the connections; `None` once the daemon shall stop.
async fn place(
    permits: &Arc<Semaphore>,
    connections: &mut JoinSet<()>,
    stopping: &watch::Receiver<()>,
) -> Option<OwnedSemaphorePermit> {
    while connections.try_join_next().is_some() {}
    let mut stopping = stopping.clone();
    tokio::select! {
        permit = permits.clone().acquire_owned() => permit.ok(),
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
    permit: OwnedSemaphorePermit,
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    api: Router,
    visitor: Visitor,
    mut stopping: watch::Receiver<()>,
) {
    let Visitor { visit, door, permit } = visitor;
    let first = Mutex::new(Some(visit));
    let ending = stopping.clone();
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let api = api.clone();
        let first = first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let visit = first.unwrap_or_else(|| door.enter());
        let ending = ending.clone();
        async move {
            let response = answer(api, request.map(Body::new)).await;
            drop(visit);
            Ok::<Response, Infallible>(ends_with(response, ending))
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
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
    drop(permit);
}

/// Lets a live view, which has no end of its own, end when the daemon does.
fn ends_with(response: Response, mut ending: watch::Receiver<()>) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| LIVE.iter().any(|live| kind.starts_with(live))) {
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
