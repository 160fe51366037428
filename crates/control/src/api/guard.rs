//! Authorization of API requests by the access scope that each API route declares in its description, and the audit log
//! of changes.
//!
//! An API route without a declared scope requires `root`. A refused request is answered with the status 403, and the
//! response names the required scope. Each change, and each refusal of a change, is logged in one line with the target
//! `audit`. The line contains the client, the method, the path and the result.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use model::Scope;
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::Operation;

use crate::caller::Caller;
use crate::error::{ApiError, Refused};

/// Maximum number of refused requests that are logged per minute. Additional refused requests are only counted, and
/// their number is logged later.
const REFUSALS: u32 = 60;
/// Maximum number of characters of a request path or a result in one log line.
const LINE: usize = 400;

/// Result of a request that changed the state, as text for the audit log. Handlers add the value to the extensions of
/// their response.
#[derive(Clone, Debug)]
pub(super) struct Done(pub String);

/// Access scopes that the API routes require, and the count of logged refusals.
#[derive(Clone)]
pub(super) struct Guard {
    scopes: Arc<HashMap<(Method, String), Scope>>,
    refusals: Arc<Refusals>,
}

#[derive(Default)]
struct Refusals {
    since: Mutex<Option<Instant>>,
    logged: AtomicU32,
}

impl Guard {
    /// Collects the access scopes of all API routes from the API description.
    pub fn of(document: &OpenApi) -> Guard {
        let mut scopes = HashMap::new();
        for (path, item) in &document.paths.paths {
            for (method, operation) in [
                (Method::GET, &item.get),
                (Method::PUT, &item.put),
                (Method::POST, &item.post),
                (Method::DELETE, &item.delete),
                (Method::PATCH, &item.patch),
            ] {
                let Some(operation) = operation else { continue };
                scopes.insert((method, path.clone()), declared(operation).unwrap_or(Scope::Root));
            }
        }
        scopes.insert((Method::GET, "/openapi.json".to_owned()), Scope::Read);
        Guard { scopes: Arc::new(scopes), refusals: Arc::default() }
    }

    /// Returns the access scope that a request requires. Returns `None` if the request matches no API route. Such a
    /// request is then answered with the status 404 or 405.
    fn needed(&self, method: &Method, path: Option<&MatchedPath>) -> Option<Scope> {
        let method = if method == Method::HEAD { Method::GET } else { method.clone() };
        self.scopes.get(&(method, path?.as_str().to_owned())).copied()
    }
}

/// Returns the access scope that an operation of the API description declares in its security requirements, or `None`
/// if it declares no scope.
pub(super) fn declared(operation: &Operation) -> Option<Scope> {
    let security = serde_json::to_value(operation.security.as_ref()?).ok()?;
    let words = security.as_array()?.iter().filter_map(|one| one["token"][0].as_str());
    words.filter_map(|word| Scope::ALL.into_iter().find(|scope| scope.word() == word)).next()
}

/// Passes permitted API requests to their handler, refuses other requests, and logs changes.
pub(super) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>().cloned().unwrap_or_else(Caller::unknown);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let needed = guard.needed(&method, request.extensions().get());
    let response = match needed {
        Some(needed) if caller.scope < Some(needed) => forbidden(&caller, needed).into_response(),
        _ => next.run(request).await,
    };
    // Routes with the scope `read` make no changes, regardless of their method.
    if needed.is_some_and(|needed| needed > Scope::Read) && !method.is_safe() {
        guard.audit(&caller, &method, &path, &response);
    }
    response
}

impl Guard {
    fn audit(&self, caller: &Caller, method: &Method, path: &str, response: &Response) {
        let path = shortened(path);
        if response.status().is_success() {
            match response.extensions().get::<Done>() {
                // A dry run has made no change and is not logged.
                Some(Done(what)) if what.is_empty() => {}
                Some(Done(what)) => {
                    tracing::info!(target: "audit", "{caller}: {method} {path}: {}", shortened(what))
                }
                None => tracing::info!(target: "audit", "{caller}: {method} {path}: done"),
            }
            return;
        }
        if !self.refusals.may_log() {
            return;
        }
        let status = response.status().as_u16();
        match response.extensions().get::<Refused>() {
            Some(Refused(why)) => {
                tracing::warn!(target: "audit", "{caller}: {method} {path}: refused ({status}): {}", shortened(why));
            }
            None => tracing::warn!(target: "audit", "{caller}: {method} {path}: refused ({status})"),
        }
    }
}

impl Refusals {
    /// Counts a refused request, and returns whether the refusal may be logged in this minute.
    fn may_log(&self) -> bool {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if since.is_none_or(|since| since.elapsed() >= Duration::from_secs(60)) {
            *since = Some(Instant::now());
            let left_out = self.logged.swap(0, Ordering::Relaxed).saturating_sub(REFUSALS);
            if left_out > 0 {
                tracing::warn!(target: "audit", "{left_out} more refusals in the minute before");
            }
        }
        self.logged.fetch_add(1, Ordering::Relaxed) < REFUSALS
    }
}

fn forbidden(caller: &Caller, needed: Scope) -> ApiError {
    let has = caller.scope.map_or("none".to_owned(), |scope| format!("`{scope}`"));
    let cause = format!("this needs the scope `{needed}`, and {caller} has {has}");
    let fix = match needed {
        Scope::Root => {
            "ask as root at the unix socket (`sudo`), or with a token whose `scope` in [daemon.tcp.token.NAME] is \"root\""
        }
        Scope::Configure => {
            "use a member of `daemon.group` (see `daemon.group_scope`), or a token whose `scope` is \"configure\""
        }
        Scope::Read => "use a member of `daemon.group`, or a token of [daemon.tcp]",
    };
    ApiError::new(StatusCode::FORBIDDEN, "api", cause, fix)
}

/// Returns the text with control characters replaced by spaces, truncated to the maximum length in a log
/// line.
fn shortened(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    match text.char_indices().nth(LINE) {
        None => text.chars().map(clean).collect(),
        Some((end, _)) => text[..end].chars().map(clean).chain("...".chars()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails for an API route without a declared access scope. At run time, such an API route requires the scope
    /// `root`.
    #[test]
    fn every_route_declares_its_scope() {
        let (_, document) = super::super::routes().split_for_parts();
        let mut missing = Vec::new();
        for (path, item) in &document.paths.paths {
            for operation in
                [&item.get, &item.put, &item.post, &item.delete, &item.patch].into_iter().flatten()
            {
                if declared(operation).is_none() {
                    missing.push(path);
                }
            }
        }
        assert!(missing.is_empty(), "{missing:?} declare no scope by `security`");
    }

    #[test]
    fn control_characters_do_not_reach_the_log() {
        assert_eq!(shortened("/v1/a\nfaked line"), "/v1/a faked line");
        assert_eq!(shortened(&"ä".repeat(500)).chars().count(), LINE + 3);
    }
}
