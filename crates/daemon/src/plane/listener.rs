//! Delivery of frames from a ring to an API client. Frames that the client does not take in time are dropped
//! and counted. The count is sent with the next frame.

use std::time::{Duration, Instant};

use control::{FailureKind, PlaneError};
use model::CapturedFrame;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

/// Time limit for a new reader to wait until the previous reader of the ring is removed. The daemon detects
/// within about a second that a client has closed its connection.
const SUCCESSION: Duration = Duration::from_secs(2);
/// Interval between two attempts to become the reader of a ring.
const RETRY: Duration = Duration::from_millis(20);

/// Calls `begin` until it returns a result other than [`FailureKind::Busy`], for at most [`SUCCESSION`]. A
/// command that starts right after the end of another one is then not refused.
///
/// # Errors
/// The last error of `begin`.
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

/// Queue of a client, with counters of lost frames.
pub struct Listener {
    to: Sender<CapturedFrame>,
    /// Number of frames that did not fit into the ring so far.
    missed: u64,
    /// Number of frames that did not fit into the client's queue so far.
    lost: u64,
    /// Number of lost frames that were reported to the client or were lost before the client connected.
    told: u64,
}

impl Listener {
    /// Creates a listener for the queue `to`. `before` is the number of frames that had not fitted into the
    /// ring at that time.
    pub fn new(to: Sender<CapturedFrame>, before: u64) -> Listener {
        Listener { to, missed: before, lost: 0, told: before }
    }

    /// Takes over the number of frames that did not fit into the ring, if it can be read.
    pub fn missed(&mut self, missed: Result<u64, xdp::Error>) {
        self.missed = missed.unwrap_or(self.missed);
    }

    /// Like [`Listener::missed`], but does not report the frames missed until now to the client.
    pub fn begin(&mut self, missed: Result<u64, xdp::Error>) {
        self.missed(missed);
        self.told = self.missed;
    }

    /// Returns whether the client still listens.
    pub fn listens(&self) -> bool {
        !self.to.is_closed()
    }

    /// Sends a frame to the client, with its `missed` field filled in, or counts the frame as lost if the
    /// queue is full. Returns false when the client has closed the queue.
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
