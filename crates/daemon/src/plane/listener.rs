//! Whoever reads frames of a ring over the API: what it does not take in time is lost and counted, and told with the next frame.

use std::time::{Duration, Instant};

use control::{FailureKind, PlaneError};
use model::CapturedFrame;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

/// How long a new reader waits for the previous reader of the same ring to be removed. The daemon notices within about a second that a client has
/// closed its connection.
const SUCCESSION: Duration = Duration::from_secs(2);
/// Time between two attempts to become the reader of a ring.
const RETRY: Duration = Duration::from_millis(20);

/// Calls `begin` until it returns something else than [`FailureKind::Busy`], for at most [`SUCCESSION`]: a command that starts right
/// after the end of another is not refused for the other's sake.
///
/// # Errors
/// What `begin` returns last.
pub fn succeed<T>(mut begin: impl FnMut() -> Result<T, PlaneError>) -> Result<T, PlaneError> {
    let deadline = Instant::now() + SUCCESSION;
    loop {
        match begin() {
            Err(error) if error.kind == FailureKind::Busy && Instant::now() < deadline => {
                std::thread::sleep(RETRY);
            }
            other => return other,
        }
    }
}

/// A client's queue, and what was lost on the way to it.
pub struct Listener {
    to: Sender<CapturedFrame>,
    /// Frames that did not fit into the ring so far.
    missed: u64,
    /// Frames that did not fit into the client's queue so far.
    lost: u64,
    /// Frames of whose loss the client knows, or that were lost before it came.
    told: u64,
}

impl Listener {
    /// `before`: frames that had not fitted into the ring when it came.
    pub fn new(to: Sender<CapturedFrame>, before: u64) -> Listener {
        Listener { to, missed: before, lost: 0, told: before }
    }

    /// Takes over what the ring has missed by now, if that can be read.
    pub fn missed(&mut self, missed: Result<u64, xdp::Error>) {
        self.missed = missed.unwrap_or(self.missed);
    }

    /// The same, when what was missed until now is nobody's loss.
    pub fn begin(&mut self, missed: Result<u64, xdp::Error>) {
        self.missed(missed);
        self.told = self.missed;
    }

    /// Whether it is still there.
    pub fn listens(&self) -> bool {
        !self.to.is_closed()
    }

    /// Gives it a frame, whose `missed` is filled in here, or counts it; false when it has gone.
    pub fn send(&mut self, frame: CapturedFrame) -> bool {
        let missed = self.missed + self.lost;
        match self.to.try_send(CapturedFrame { missed: missed.saturating_sub(self.told), ..frame }) {
            Ok(()) => self.told = missed,
            Err(TrySendError::Full(_)) => self.lost += 1,
            Err(TrySendError::Closed(_)) => return false,
        }
        true
    }
}
