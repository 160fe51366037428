//! Admission gate of the API. The gate is closed during a hand-over. New clients then wait, and the successor
//! accepts them, because both processes share the listening sockets.
//!
//! The hand-over waits for clients that are already admitted and have no answer yet. After the hand-over,
//! this process has no state to answer from.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Time that a hand-over waits for admitted clients. A limit is required because a client may connect and
/// never send a request.
const LINGER: Duration = Duration::from_secs(1);
/// Time after which an accept that was in progress when the gate was closed has counted its client.
const SETTLE: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    shut: bool,
    /// Number of admitted clients that wait for an answer.
    inside: usize,
}

/// The admission gate. Clones share one gate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Door {
    state: Arc<watch::Sender<State>>,
}

impl Door {
    /// Counts a client as admitted until the returned visit is dropped.
    pub fn enter(&self) -> Visit {
        self.state.send_modify(|state| state.inside += 1);
        Visit(self.clone())
    }

    /// Waits until the gate is open (`true`) or closed (`false`).
    pub async fn is(&self, open: bool) {
        let mut seen = self.state.subscribe();
        // The sender is owned by the gate, so it cannot be closed.
        let _ = seen.wait_for(|state| state.shut != open).await;
    }

    /// Closes the gate and waits for all admitted clients except the caller, which is admitted itself.
    pub async fn shut(&self) -> Shut {
        self.state.send_modify(|state| state.shut = true);
        let shut = Shut(self.clone());
        sleep(SETTLE).await;
        let mut seen = self.state.subscribe();
        let _ = timeout(LINGER, seen.wait_for(|state| state.inside <= 1)).await;
        shut
    }
}

/// An admitted client that waits for an answer.
#[derive(Debug)]
pub(crate) struct Visit(Door);

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| state.inside -= 1);
    }
}

/// Guard of a closed gate. The gate opens when this value is dropped.
#[derive(Debug)]
pub(crate) struct Shut(Door);

impl Shut {
    /// Keeps the gate closed, because the successor has taken over all state.
    pub fn for_good(self) {
        std::mem::forget(self);
    }
}

impl Drop for Shut {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| state.shut = false);
    }
}
