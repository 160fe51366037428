//! The API's door: shut while another process takes over, so that whoever knocks meanwhile is let in by the successor, with
//! whom the listening sockets are shared.
//!
//! Who is inside already and has no answer yet is waited for, since a process that has given everything away has none.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How long a hand-over waits for those inside: somebody may have connected and never ask.
const LINGER: Duration = Duration::from_secs(1);
/// By then an accept that was under way when the door was shut has counted its client.
const SETTLE: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    shut: bool,
    /// Clients that were let in and wait for an answer.
    inside: usize,
}

/// The door; clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Door {
    state: Arc<watch::Sender<State>>,
}

impl Door {
    /// Counts a client as inside until the visit is dropped.
    pub fn enter(&self) -> Visit {
        self.state.send_modify(|state| state.inside += 1);
        Visit(self.clone())
    }

    /// Ready as soon as the door is open, or as soon as it is shut.
    pub async fn is(&self, open: bool) {
        let mut seen = self.state.subscribe();
        // The sender is ours: it cannot be gone.
        let _ = seen.wait_for(|state| state.shut != open).await;
    }

    /// Shuts the door behind everybody but the caller, itself a visitor.
    pub async fn shut(&self) -> Shut {
        self.state.send_modify(|state| state.shut = true);
        let shut = Shut(self.clone());
        sleep(SETTLE).await;
        let mut seen = self.state.subscribe();
        let _ = timeout(LINGER, seen.wait_for(|state| state.inside <= 1)).await;
        shut
    }
}

/// A client that waits for an answer.
#[derive(Debug)]
pub(crate) struct Visit(Door);

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| state.inside -= 1);
    }
}

/// A door that was shut; it opens again when this is dropped.
#[derive(Debug)]
pub(crate) struct Shut(Door);

impl Shut {
    /// It stays shut: everything has been given away.
    pub fn for_good(self) {
        std::mem::forget(self);
    }
}

impl Drop for Shut {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| state.shut = false);
    }
}
