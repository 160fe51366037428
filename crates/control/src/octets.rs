//! Memory limits for responses that have not been sent yet. A client that does not read its responses can occupy
//! at most its share of the memory.
//!
//! Each request reserves memory for its response before the data plane is queried: [`SMALL`], or more for a long list.
//! When the response is complete, its length replaces the reservation until the client's socket has accepted the last
//! octet. A request waits if its client has no memory left, and is refused after [`PATIENCE`]. Long lists leave a
//! quarter of the memory to other responses. Clients of the scope `root` have a separate memory limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::Notify;

use crate::caller::Caller;
use crate::error::{ApiError, ApiResult};
use crate::quota::Holder;

/// Maximum memory for the unsent responses of one client, in octets. A longer response counts as this number of octets.
const SHARE: u64 = 128 << 20;
/// Maximum memory for the unsent responses of all clients without the scope `root`, in octets.
const OTHERS: u64 = 512 << 20;
/// Maximum memory for the unsent responses of all clients with the scope `root`, in octets.
const ROOT: u64 = 512 << 20;
/// Octets that are reserved for an API response that is not a list.
const SMALL: u64 = 256 << 10;
/// Octets that are reserved for each entry of a list in a response, and for each KiB of a configuration in a response.
const ENTRY: u64 = 1 << 10;
/// Maximum total size in octets of the texts in a list of texts, such as flow entries.
const TEXTS: usize = 32 << 20;
/// Number of octets of text that are allowed for each entry that a list may contain. The allowance of the whole list is
/// at least [`SOME_TEXTS`] and at most [`TEXTS`].
const TEXTS_OF_ENTRY: usize = 8 << 10;
/// Minimum number of octets that are allowed for the texts of a list, even if the list may contain
/// only a few entries.
const SOME_TEXTS: usize = 1 << 20;
/// Maximum length of an API response in octets.
pub(crate) const LONGEST: usize = 384 << 20;
/// Maximum time for which a request waits until its client has read earlier responses.
const PATIENCE: Duration = Duration::from_secs(10);

/// Counters of the octets of memory that unsent API responses use. Clones share the counters.
#[derive(Clone, Default)]
pub(crate) struct Octets {
    held: Arc<Mutex<Held>>,
    freed: Arc<Notify>,
}

#[derive(Default)]
struct Held {
    /// Octets of unsent responses for each client. Clients without unsent responses have no entry.
    of: HashMap<Holder, u64>,
    /// Octets of the unsent responses of all clients without the scope `root` together.
    others: u64,
}

/// Memory that is reserved for one API response. The memory is released when this value is dropped.
pub(crate) struct ReplyMemory {
    octets: Octets,
    holder: Holder,
    count: Mutex<u64>,
}

impl Held {
    /// Changes the number of octets that are counted for one response of a client from `before` to `now`.
    fn change(&mut self, holder: &Holder, before: u64, now: u64) {
        let own = self.of.entry(holder.clone()).or_default();
        *own = (*own + now).saturating_sub(before);
        if *own == 0 {
            self.of.remove(holder);
        }
        if *holder != Holder::Root {
            self.others = (self.others + now).saturating_sub(before);
        }
    }

    /// Returns whether a client may reserve `more` additional octets for a response.
    fn has_room(&self, holder: &Holder, more: u64) -> bool {
        let own = self.of.get(holder).copied().unwrap_or(0) + more;
        if *holder == Holder::Root {
            return own <= ROOT;
        }
        let most = if more > SMALL { OTHERS / 4 * 3 } else { OTHERS };
        own <= SHARE && self.others + more <= most
    }
}

impl Octets {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a memory reservation for a new response to a client. No octets are reserved yet.
    fn reply_memory(&self, holder: Holder) -> ReplyMemory {
        ReplyMemory { octets: self.clone(), holder, count: Mutex::new(0) }
    }
}

impl ReplyMemory {
    /// Waits until the memory for a response with a list of `entries` entries is reserved. Returns an error after
    /// `PATIENCE`.
    pub async fn reserve_list(&self, entries: usize) -> ApiResult<()> {
        let entries = u64::try_from(entries).unwrap_or(u64::MAX);
        self.reserve(entries.saturating_mul(ENTRY).min(SHARE / 2)).await
    }

    /// Waits until the memory for a response with a list of `entries` entries and their texts is reserved. The total
    /// size of the texts is limited by [`texts_of`]. Memory for the texts is reserved twice, because they are in the
    /// list of the data plane and in the response at the same time.
    pub async fn reserve_texts(&self, entries: usize) -> ApiResult<()> {
        let texts = u64::try_from(2 * texts_of(entries)).unwrap_or(u64::MAX);
        let entries = u64::try_from(entries).unwrap_or(u64::MAX);
        self.reserve(entries.saturating_mul(ENTRY / 2).saturating_add(texts).min(SHARE)).await
    }

    /// Waits until at least `octets` octets are reserved for the response. Returns an error after `PATIENCE`.
    async fn reserve(&self, octets: u64) -> ApiResult<()> {
        let room = async {
            loop {
                let freed = self.octets.freed.notified();
                if self.try_reserve(octets) {
                    return;
                }
                freed.await;
            }
        };
        tokio::time::timeout(PATIENCE, room).await.map_err(|_| full())
    }

    fn try_reserve(&self, octets: u64) -> bool {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let more = octets.saturating_sub(*count);
        let mut held = self.octets.held();
        if more > 0 && !held.has_room(&self.holder, more) {
            return false;
        }
        held.change(&self.holder, 0, more);
        *count += more;
        true
    }

    /// Replaces the reservation with the length of the complete response.
    fn settle(&self, octets: u64) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let octets = octets.min(SHARE);
        self.octets.held().change(&self.holder, *count, octets);
        *count = octets;
        self.octets.freed.notify_waiters();
    }
}

impl Drop for ReplyMemory {
    fn drop(&mut self) {
        self.settle(0);
    }
}

/// Returns the maximum total size in octets of the texts in a list of at most `entries` entries.
pub(crate) fn texts_of(entries: usize) -> usize {
    entries.saturating_mul(TEXTS_OF_ENTRY).clamp(SOME_TEXTS, TEXTS)
}

fn full() -> ApiError {
    ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "api",
        "answers that this client, or all clients together, have not read yet take all the memory that they may",
        "read the answers, or ask for less at once",
    )
}

/// The octets of a complete response. They count as unsent until this value is dropped, after the last octet has been
/// sent.
struct Unsent {
    bytes: Bytes,
    _answer: Arc<ReplyMemory>,
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reserves memory for the response to a request, and then serves the request. The request's extensions contain the
/// reservation as a [`ReplyMemory`]. A body of unknown length is a streaming response (events, a trace or a capture),
/// whose memory is limited by the length of its queue.
pub(crate) async fn count(State(octets): State<Octets>, mut request: Request, next: Next) -> Response {
    let holder = request.extensions().get::<Caller>().map_or(Holder::Unknown, Holder::from);
    let answer = Arc::new(octets.reply_memory(holder));
    if let Err(refusal) = answer.reserve(SMALL).await {
        return refusal.into_response();
    }
    request.extensions_mut().insert(answer.clone());
    let response = next.run(request).await;
    let length = response.body().size_hint().exact().unwrap_or(0);
    answer.settle(length);
    if length == 0 {
        return response;
    }
    let (head, body) = response.into_parts();
    // The complete body is already in memory.
    match axum::body::to_bytes(body, usize::MAX).await {
        Ok(bytes) => {
            Response::from_parts(head, Body::from(Bytes::from_owner(Unsent { bytes, _answer: answer })))
        }
        Err(error) => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "api", error.to_string(), "ask again")
            .into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the unread responses of a client take at most the client's share of the memory, and leave enough
    /// memory for small responses to other clients.
    #[tokio::test(start_paused = true)]
    async fn unread_answers_of_some_leave_memory_to_others() {
        let octets = Octets::default();
        let list = async |holder: Holder| {
            let answer = octets.reply_memory(holder);
            answer.reserve_list(100_000).await.map(|()| answer)
        };
        let mut held = Vec::new();
        for user in 0..8 {
            while let Ok(answer) = list(Holder::User(user)).await {
                answer.settle(40 << 20);
                held.push(answer);
            }
        }
        let own = |user| octets.held().of.get(&Holder::User(user)).copied().unwrap_or(0);
        assert!((0..8).all(|user| own(user) <= SHARE), "{held:?}", held = held.len());
        assert!(octets.held().others <= OTHERS / 4 * 3);
        assert!(list(Holder::User(9)).await.is_err());
        for holder in [Holder::User(9), Holder::Token("grafana".to_owned())] {
            octets.reply_memory(holder).reserve(SMALL).await.unwrap();
        }
        list(Holder::Root).await.unwrap();
        drop(held);
        assert!(octets.held().of.is_empty() && octets.held().others == 0);
    }

    /// Checks that lists of long texts that are made at the same time fit into the memory limit of responses.
    #[tokio::test(start_paused = true)]
    async fn lists_of_long_texts_reserve_memory_for_their_texts() {
        for entries in [0, 1, 100, 1_000, 10_000, 100_000] {
            let octets = Octets::default();
            let mut held = Vec::new();
            for user in 0..1_000 {
                let answer = octets.reply_memory(Holder::User(user));
                match answer.reserve_texts(entries).await {
                    Ok(()) => held.push(answer),
                    Err(_) => break,
                }
            }
            let texts = 2 * u64::try_from(texts_of(entries) * held.len()).unwrap();
            assert!((3..1_000).contains(&held.len()), "{entries}: {}", held.len());
            assert!(texts <= OTHERS / 4 * 3, "{entries}: {texts}");
        }
        assert_eq!(texts_of(100_000), 32 << 20);
    }

    /// Checks that a request of a client waits while the client is still reading earlier responses.
    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_answers_that_are_read() {
        let octets = Octets::default();
        let first = octets.reply_memory(Holder::User(1));
        first.settle(SHARE);
        let second = octets.reply_memory(Holder::User(1));
        let waiting = tokio::spawn(async move { second.reserve(SMALL).await });
        tokio::time::sleep(PATIENCE / 2).await;
        drop(first);
        waiting.await.unwrap().unwrap();
    }
}
