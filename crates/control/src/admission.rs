//! Admission gate of the API, which decides whether new connections are accepted. While a successor process takes over
//! the state of the daemon (hand-over), the gate is closed and new clients wait. The successor accepts the waiting
//! clients, because both processes share the listening sockets.
//!
//! The hand-over waits until clients that are already admitted have received their responses, because this process
//! cannot respond after the hand-over.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Maximum time for which a hand-over to a successor process waits for the responses to admitted API clients. The time
/// is limited because a client may connect and never send a request.
const LINGER: Duration = Duration::from_secs(1);
/// Time that a hand-over waits after closing the admission gate, so that accept calls in progress return and their
/// clients are counted as admitted.
const SETTLE: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    shut: bool,
    /// Number of admitted clients whose requests have not been answered yet.
    inside: usize,
}

/// Admission gate of the API, which is closed while a successor process takes over. Clones refer to the same gate.
#[derive(Clone, Debug, Default)]
pub(crate) struct AdmissionGate {
    state: Arc<watch::Sender<State>>,
}

impl AdmissionGate {
    /// Counts an API client as admitted until the returned value is dropped.
    pub fn enter(&self) -> ConnectionGuard {
        self.state.send_modify(|state| state.inside += 1);
        ConnectionGuard(self.clone())
    }

    /// Waits until the gate is open (if `open` is true) or closed (if `open` is false).
    pub async fn is(&self, open: bool) {
        let mut seen = self.state.subscribe();
        // The sender is owned by the gate, so it cannot be closed.
        let _ = seen.wait_for(|state| state.shut != open).await;
    }

    /// Closes the gate and waits until all admitted clients, except the client that requested the hand-over, have
    /// received their responses. The gate opens when the returned value is dropped. Returns `None` if the gate is
    /// already closed by another hand-over. Two hand-overs at a time are not possible, because the gate would open at
    /// the end of the first one.
    pub async fn shut(&self) -> Option<ClosedGate> {
        if !self.state.send_if_modified(|state| !std::mem::replace(&mut state.shut, true)) {
            return None;
        }
        let shut = ClosedGate(self.clone());
        sleep(SETTLE).await;
        let mut seen = self.state.subscribe();
        let _ = timeout(LINGER, seen.wait_for(|state| state.inside <= 1)).await;
        Some(shut)
    }
}

/// Registration of an admitted API client whose request has not been answered yet. When this value is dropped, the
/// client no longer counts as admitted.
#[derive(Debug)]
pub(crate) struct ConnectionGuard(AdmissionGate);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| state.inside -= 1);
    }
}

/// Guard of a closed admission gate. The gate opens when this value is dropped.
#[derive(Debug)]
pub(crate) struct ClosedGate(AdmissionGate);

impl ClosedGate {
    /// Keeps the admission gate closed until this process ends. This is called when the successor has taken over all
    /// state.
    pub fn for_good(self) {
        std::mem::forget(self);
    }
}

impl Drop for ClosedGate {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| state.shut = false);
    }
}
