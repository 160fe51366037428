//! Delivers captured frames from a ring to an API client. If the client reads too slowly, frames are dropped and
//! counted, and the next frame states their number.

use std::time::{Duration, Instant};

use control::{FailureKind, PlaneError};
use model::CapturedFrame;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

/// Maximum time for which a new client waits until the previous reader of a ring of captured frames has been removed.
/// The daemon detects within about a second that a client has closed its connection.
const SUCCESSION: Duration = Duration::from_secs(2);
/// Interval at which a new client tries to become the reader of a ring of captured frames.
const RETRY: Duration = Duration::from_millis(20);

/// Calls `begin`. If the call fails with [`FailureKind::Busy`], repeats the call for at most [`SUCCESSION`]. A client
/// that starts a capture right after the end of another capture is therefore not refused.
///
/// # Errors
/// Returns the last error of `begin`.
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

/// Queue of captured frames to an API client, with counts of the frames that were dropped before the client read them.
pub struct Listener {
    to: Sender<CapturedFrame>,
    /// Total number of captured frames that did not fit into the ring between the data path and the daemon's thread.
    missed: u64,
    /// Total number of captured frames that did not fit into the client's queue.
    lost: u64,
    /// Number of dropped frames that are not to be reported any more: they were already reported to the client, or were
    /// dropped before the client connected.
    told: u64,
}

impl Listener {
    /// Creates a listener for the client's queue `to`. `before` is the number of frames that did not fit into
    /// the ring before the client connected.
    pub fn new(to: Sender<CapturedFrame>, before: u64) -> Listener {
        Listener { to, missed: before, lost: 0, told: before }
    }

    /// Updates the total number of captured frames that did not fit into the ring. If `missed` is an error, the
    /// number stays unchanged.
    pub fn missed(&mut self, missed: Result<u64, xdp::Error>) {
        self.missed = missed.unwrap_or(self.missed);
    }

    /// Sets the number of frames that did not fit into the ring, like [`Listener::missed`]. Frames that were
    /// dropped until now are not reported to the client.
    pub fn begin(&mut self, missed: Result<u64, xdp::Error>) {
        self.missed(missed);
        self.told = self.missed;
    }

    /// Returns whether the client's queue is still open.
    pub fn listens(&self) -> bool {
        !self.to.is_closed()
    }

    /// Fills in the frame's field `missed` and sends the frame to the client. If the queue is full,
    /// counts the frame as dropped. Returns false when the client has closed the queue.
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
