//! State that the threads of a follower share: the flag that requests the threads to end, the fences, and the counters.

use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

/// Interval at which a waiting thread checks whether it must end.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);

/// Counters of a follower (the threads that follow the kernel's routing state) since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Number of kernel notifications that the follower has decoded.
    pub events: u64,
    /// Number of times that the netlink receive buffer was full. The kernel has then discarded notifications.
    pub overruns: u64,
    /// Number of complete dumps of the kernel's state. A dump is made at the start, and after the kernel has discarded
    /// notifications.
    pub resyncs: u64,
    /// Duration of the last complete dump in nanoseconds.
    pub resync_ns: u64,
    /// Number of objects in the mirror of the kernel's routing state that were corrected, because they differed from
    /// the kernel's state although no notification had reported a change.
    pub drifted: u64,
    /// Number of notification datagrams of the kernel that were read, but not yet applied.
    pub behind: u64,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) events: AtomicU64,
    pub(super) overruns: AtomicU64,
    pub(super) resyncs: AtomicU64,
    pub(super) resync_ns: AtomicU64,
    pub(super) drifted: AtomicU64,
    pub(super) read: AtomicU64,
    pub(super) applied: AtomicU64,
}

/// State that the reader thread shares with the applier thread and with users of the follower.
pub(super) struct Shared {
    pub(super) end: AtomicBool,
    /// Sequence number of the fence that was requested last (a fence is a mark in the queue,
    /// [`super::item::Item::Fence`]).
    pub(super) fence: AtomicU64,
    pub(super) wake: OwnedFd,
    pub(super) counts: Counts,
    /// Reason why the applier thread has ended. `None` while the thread runs, and also after it has ended on request.
    pub(super) failed: Mutex<Option<String>>,
}

impl Shared {
    pub(super) fn wake(&self) {
        // A write to a full counter fails, but a full counter wakes the reader as well.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}
