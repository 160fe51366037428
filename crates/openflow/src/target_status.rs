//! Connection status of a bridge's targets (controllers and listeners). The sessions of a target update the
//! status.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Semaphore;

use crate::connection_manager::Role;
use crate::losses::Losses;
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
    /// Role of the connected controller. For a listener, role of the oldest session, as in Open vSwitch.
    pub role: Role,
    /// Negotiated OpenFlow version, for a listener of the oldest session. `None` if no session is connected.
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
    /// because they exceeded the target's rate limit. A message to several sessions of a listener counts for each
    /// session.
    pub lost: u64,
}

/// Role and version of a connected session of a target.
struct SessionStatus {
    role: Role,
    version: Version,
}

/// Values that the sessions of a target change.
struct Values {
    /// Status without the values of the connected sessions.
    status: Status,
    /// Connected sessions by the number that [`TargetStatus::came`] returned. A later session has a higher number.
    sessions: BTreeMap<u64, SessionStatus>,
    /// Number of the next session.
    next: u64,
}

/// Status of a target (a controller or a listener). The target's task writes the status, and
/// [`Controllers::status`](crate::Controllers::status) reads the status.
pub(crate) struct TargetStatus {
    values: Mutex<Values>,
    pub lost: Arc<Losses>,
    /// Permits for concurrent dumps (replies that list many objects) in all sessions of the target.
    pub dumps: Arc<Semaphore>,
}

impl TargetStatus {
    /// Returns the status of a target that has had no session yet.
    pub fn new(address: Address) -> TargetStatus {
        let lost = Arc::new(Losses::new(&address));
        let status = Status {
            address,
            connected: false,
            role: Role::Equal,
            version: None,
            sessions: 0,
            last_error: None,
            came: None,
            left: None,
            lost: 0,
        };
        TargetStatus {
            values: Mutex::new(Values { status, sessions: BTreeMap::new(), next: 0 }),
            lost,
            dumps: Arc::new(Semaphore::new(OWN_DUMPS)),
        }
    }

    /// Returns the current connection status of the target.
    pub fn status(&self) -> Status {
        let values = self.values();
        let oldest = values.sessions.values().next();
        Status {
            connected: oldest.is_some(),
            role: oldest.map_or(Role::Equal, |session| session.role),
            version: oldest.map(|session| session.version),
            sessions: values.sessions.len(),
            lost: self.lost.count(),
            ..values.status.clone()
        }
    }

    fn values(&self) -> MutexGuard<'_, Values> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a session has negotiated a version. Returns the number of the session in this status.
    pub fn came(&self, version: Version) -> u64 {
        let mut values = self.values();
        if values.sessions.is_empty() {
            values.status.came = Some(Instant::now());
        }
        let number = values.next;
        values.next += 1;
        values.sessions.insert(number, SessionStatus { role: Role::Equal, version });
        number
    }

    /// Records that the session with this number has ended.
    pub fn left(&self, number: u64) {
        let mut values = self.values();
        if values.sessions.remove(&number).is_some() && values.sessions.is_empty() {
            values.status.left = Some(Instant::now());
        }
    }

    /// Records the role of the session with this number.
    pub fn role(&self, number: u64, role: Role) {
        if let Some(session) = self.values().sessions.get_mut(&number) {
            session.role = role;
        }
    }

    pub fn failed(&self, why: String) {
        self.values().status.last_error = Some(why);
    }
}
