//! Connection status of a bridge's targets (controllers and listeners). The sessions of a target update the
//! status.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::Semaphore;

use crate::connection_manager::Role;
use crate::target::Address;
use crate::wire::Version;

/// Maximum number of concurrent dumps (replies that list many objects) for one listener or one controller, in addition
/// to the dumps that are guaranteed to the bridge.
const OWN_DUMPS: usize = 4;

/// Connection status of a target (a controller or a listener).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Address of the controller or listener.
    pub address: Address,
    /// Whether a session of the target is connected and has negotiated a version. For a listener, one such
    /// session suffices.
    pub connected: bool,
    /// Role of the connected controller.
    pub role: Role,
    /// Negotiated OpenFlow version. `None` if no session is connected.
    pub version: Option<Version>,
    /// Number of sessions of the target. Only a listener can have several sessions.
    pub sessions: usize,
    /// Reason why the last session ended or could not be established. `None` if there was no such failure.
    pub last_error: Option<String>,
    /// Time when the last session began. `None` if there has been no session.
    pub came: Option<Instant>,
    /// Time when the last session ended. `None` if no session has ended.
    pub left: Option<Instant>,
    /// Number of messages to the target that were dropped, because the controller did not read them in time or
    /// because they exceeded the target's rate limit.
    pub lost: u64,
}

/// Status of a target (a controller or a listener). The target's task writes the status, and
/// [`Controllers::status`](crate::Controllers::status) reads the status.
pub(crate) struct TargetStatus {
    status: Mutex<Status>,
    pub lost: AtomicU64,
    /// Permits for concurrent dumps (replies that list many objects) in all sessions of the target.
    pub dumps: Arc<Semaphore>,
}

impl TargetStatus {
    /// Returns the status of a target that has had no session yet.
    pub fn new(address: Address) -> TargetStatus {
        TargetStatus {
            status: Mutex::new(Status {
                address,
                connected: false,
                role: Role::Equal,
                version: None,
                sessions: 0,
                last_error: None,
                came: None,
                left: None,
                lost: 0,
            }),
            lost: AtomicU64::new(0),
            dumps: Arc::new(Semaphore::new(OWN_DUMPS)),
        }
    }

    /// Returns the current connection status of the target.
    pub fn status(&self) -> Status {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Status { lost: self.lost.load(Ordering::Relaxed), ..status }
    }

    fn change(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub fn came(&self, version: Version) {
        self.change(|status| {
            status.sessions += 1;
            if !status.connected {
                status.came = Some(Instant::now());
            }
            (status.connected, status.version, status.role) = (true, Some(version), Role::Equal);
        });
    }

    pub fn left(&self) {
        self.change(|status| {
            status.sessions = status.sessions.saturating_sub(1);
            if status.sessions == 0 {
                (status.connected, status.version, status.left) = (false, None, Some(Instant::now()));
            }
        });
    }

    pub fn role(&self, role: Role) {
        self.change(|status| status.role = role);
    }

    pub fn failed(&self, why: String) {
        self.change(|status| status.last_error = Some(why));
    }
}
