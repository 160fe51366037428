//! Requests of control threads that the slow path is processing: barriers, dumps and purges.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use crate::flows::{FlowTables, MegaflowView};

/// A barrier request for one bridge. The slow path calls `done` when the flow caches agree with the bridge's tables.
pub(super) struct Asking {
    pub tables: Arc<FlowTables>,
    pub done: Box<dyn FnOnce() + Send>,
}

/// A barrier of one bridge in progress. A barrier serves all requests of the bridge that were pending when the
/// barrier started.
pub(super) struct Barrier {
    pub tables: Arc<FlowTables>,
    pub done: Vec<Box<dyn FnOnce() + Send>>,
    /// Bridges whose megaflows the barrier revalidates, with the number of megaflow records that are left. `None` when
    /// all records have been revalidated and the synchronization message has been sent to the workers.
    pub sweep: Option<Vec<(u16, usize)>>,
    pub number: u64,
    /// For each worker, whether the barrier still waits for the worker to confirm the synchronization message
    /// (`CacheCommand::Sync`).
    pub left: Vec<bool>,
    /// For each worker, whether the worker needs another synchronization message, because a removal of a
    /// megaflow became due after the first message.
    pub again: Vec<bool>,
    /// For each worker, whether a new synchronization message is due, because the worker confirmed the last
    /// message while removals of megaflows were still due.
    pub resync: Vec<bool>,
    /// Number of the grace period of the XDP hook that must end before the barrier completes. `None` if there
    /// is no such grace period.
    pub hook: Option<u64>,
}

impl Barrier {
    /// Returns the number of megaflow records of a bridge that the barrier has not revalidated yet. Returns `None` if
    /// no record is left.
    pub fn left_of(&self, bridge: u16) -> Option<usize> {
        let own = self.sweep.iter().flatten().find(|(own, _)| *own == bridge)?;
        (own.1 > 0).then_some(own.1)
    }

    pub fn set_left(&mut self, bridge: u16, left: usize) {
        if let Some(own) = self.sweep.iter_mut().flatten().find(|(own, _)| *own == bridge) {
            own.1 = left;
        }
    }
}

/// A dump or purge of megaflows in progress.
pub(super) enum Job {
    Dump { bridge: u16, at: usize, to: SyncSender<MegaflowView> },
    Purge { bridge: u16, at: usize, done: Option<Box<dyn FnOnce() + Send>> },
}
