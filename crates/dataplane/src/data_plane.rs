//! State of one daemon's data plane, which the data plane's threads and the requests of the control plane share.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Instant;

use control::{FailureKind, PlaneError};
use engine::{Engine, EngineConfig};
use model::Merged;
use packet::PortId;
use port::FrameMemory;
use sync::qsbr::Domain;

use super::devices::DeviceWatches;
use super::flows::Keeper;
use super::handover::progress::Progress;
use super::handover::send::ListenerSet;
use super::ids::Names;
use super::lock::locked;
use super::ports::no_such_port;
use super::running_state::RunningState;
use super::snoop::{SnoopReader, Snooping};
use super::watch::Load;
use super::watches::Watches;

/// The data plane of one daemon: packet engine, ports, bridges, routers, hooks (XDP programs of the ports) and
/// housekeeping threads.
pub struct DataPlane {
    pub(super) engine: RwLock<Option<Engine>>,
    /// Domain of the quiescent-state-based memory reclamation (QSBR). Memory is freed only when no
    /// worker can read it any more.
    pub(super) domain: Arc<Domain>,
    pub(super) memory: Arc<FrameMemory>,
    /// Settings of the configuration section `[memory]` with which the frame memory was created, in this process or in
    /// a predecessor.
    pub(super) made_by: model::Memory,
    pub(super) running_state: Mutex<RunningState>,
    /// Reader of the IGMP and MLD packets that workers copy for snooping. This lock is taken before `snooping`.
    pub(super) snooped: Mutex<SnoopReader>,
    /// State of IGMP and MLD snooping. This lock is taken before `running_state`.
    pub(super) snooping: Mutex<Snooping>,
    /// Subscriptions to the kernel's notifications about devices in the ports' namespaces. This lock is taken
    /// after the lock of `running_state`.
    pub(super) devices: Mutex<DeviceWatches>,
    /// Running packet captures and packet traces of API clients.
    pub(super) watches: Watches,
    /// Engine configuration with which the workers were started. Later changes of the running configuration
    /// do not change this value.
    pub(super) workers: EngineConfig,
    /// Earliest time at which the housekeeping thread next removes expired rules of filters. The removal may be late,
    /// because expired rules match no packets.
    pub(super) next_expiry: Mutex<Instant>,
    pub(super) loads: Mutex<Vec<Load>>,
    pub(super) beats: Mutex<Vec<u64>>,
    pub(super) merged: Mutex<Merged>,
    pub(super) around: Mutex<Option<ListenerSet>>,
    pub(super) left: tokio::sync::watch::Sender<Option<u32>>,
    pub(super) handing_over: Arc<Progress>,
    /// Writer of the rule files, which store the bridges' OpenFlow rules on disk. This lock is taken before all other
    /// locks and is held while files are written.
    pub(super) keeper: Mutex<Option<Keeper>>,
    /// Time from which the port counters count: the start of this process or, after hand-overs, the start of the first
    /// process in the chain of predecessors.
    pub(super) started: Instant,
    /// Whether the start of the daemon is complete. During the start, a port whose device is missing waits for the
    /// device. Afterwards, such a port is refused.
    pub(super) settled: AtomicBool,
    pub(super) me: Weak<DataPlane>,
}

impl DataPlane {
    /// Calls `work` with the engine. Returns `None` if the engine has been handed over.
    pub fn with_engine<T>(&self, work: impl FnOnce(&Engine) -> T) -> Option<T> {
        let engine = self.engine.read().unwrap_or_else(PoisonError::into_inner);
        engine.as_ref().map(work)
    }

    pub(super) fn engine<T>(
        &self,
        work: impl FnOnce(&Engine) -> Result<T, PlaneError>,
    ) -> Result<T, PlaneError> {
        self.with_engine(work).unwrap_or_else(|| Err(handed_over()))
    }

    /// Returns a copy of the table that maps the data path's numbers of ports and bridges to their names. Packet traces
    /// contain only the numbers.
    pub fn names(&self) -> Names {
        locked(&self.running_state).names.clone()
    }

    pub(super) fn port_id(&self, name: &str) -> Result<PortId, PlaneError> {
        let running_state = locked(&self.running_state);
        running_state.ports.get(name).map(|running| running.id).ok_or_else(|| no_such_port(name))
    }

    pub(super) fn me(&self) -> Result<Arc<DataPlane>, PlaneError> {
        self.me.upgrade().ok_or_else(handed_over)
    }
}

/// Returns the error for a request that arrives after the data plane was handed over to a successor process.
pub fn handed_over() -> PlaneError {
    PlaneError {
        kind: FailureKind::Busy,
        object: "daemon".to_owned(),
        cause: "it is handing over to its successor or ending".to_owned(),
        fix: "try again in a moment".to_owned(),
    }
}
