//! Quarantine of the frames of closed zero-copy sockets until the kernel has released them.
//!
//! In copy mode, the kernel writes to no frame of a socket after the socket is closed. In zero-copy mode, the
//! close only schedules `xp_release_deferred`, which takes RTNL and then makes the driver stop using the
//! queue. Until then, posted receive descriptors are active, and their frames must not be reused.
//!
//! The kernel refuses to bind a second socket to the queue (`EBUSY`) until the driver has stopped. The
//! release is therefore detected in one of two ways:
//!
//! - The port's own next socket is bound ([`Quarantine::bound`]).
//! - A temporary socket is bound as a check ([`Place::is_free`]).
//!
//! A place that cannot be checked counts as free after [`HOLD`]. A place that is still busy counts as free
//! after [`BUSY_HOLD`] more, because another process must have bound it by then.
//!
//! No code in this module runs per packet.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "control threads lock and read the clock; workers never do"
)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::af_xdp::is_free;

/// Maximum time to hold frames whose queue cannot be checked. The time is longer than the kernel's work queue
/// needs on any working machine.
pub const HOLD: Duration = Duration::from_secs(10);
/// Additional time to hold frames while the check reports that their queue is busy.
pub const BUSY_HOLD: Duration = Duration::from_secs(900);

/// A queue of a device in a network namespace.
#[derive(Debug)]
pub struct Place {
    namespace: OwnedFd,
    /// Inode number of the namespace, by which two descriptors of one namespace are recognized.
    inode: u64,
    ifindex: u32,
    queue: u32,
}

impl Place {
    /// Returns the queue that a socket is bound to, or `None` if the kernel does not report the socket's
    /// namespace.
    #[must_use]
    pub fn of(socket: BorrowedFd<'_>, ifindex: u32, queue: u32) -> Option<Place> {
        Place::within(crate::sys::namespace_of(socket).ok()?, ifindex, queue)
    }

    /// Returns a queue of a device in a network namespace. Returns `None` if the interface index is 0
    /// (unknown) or the descriptor is not a file.
    #[must_use]
    pub fn within(namespace: OwnedFd, ifindex: u32, queue: u32) -> Option<Place> {
        let inode = rustix::fs::fstat(&namespace).ok()?.st_ino;
        (ifindex != 0).then_some(Place { namespace, inode, ifindex, queue })
    }

    /// Returns the namespace, its inode number, the interface index and the queue number.
    #[must_use]
    pub fn parts(&self) -> (BorrowedFd<'_>, u64, u32, u32) {
        (self.namespace.as_fd(), self.inode, self.ifindex, self.queue)
    }

    fn duplicate(&self) -> Option<Place> {
        Some(Place { namespace: self.namespace.try_clone().ok()?, ..*self })
    }

    fn is_same(&self, other: &Place) -> bool {
        (self.inode, self.ifindex, self.queue) == (other.inode, other.ifindex, other.queue)
    }

    /// Returns whether the queue has no bound socket and no closed socket that is still being released.
    /// Returns `None` if the check is not possible.
    #[must_use]
    pub fn is_free(&self) -> Option<bool> {
        let path = format!("/proc/self/fd/{}", self.namespace.as_raw_fd());
        crate::netns::within(path, || is_free(self.ifindex, self.queue)).ok().flatten()
    }
}

struct Held {
    frames: Vec<u32>,
    place: Option<Place>,
    until: Instant,
}

/// Quarantined frames in the form that a successor process receives.
#[derive(Debug)]
pub struct HeldFrames {
    /// Indices of the frames.
    pub frames: Vec<u32>,
    /// Queue of the frames, if known.
    pub place: Option<Place>,
    /// Remaining time after which the frames count as free if the queue cannot be checked.
    pub left: Duration,
}

/// Quarantined frames of all queues. See the module documentation.
#[derive(Default)]
pub struct Quarantine {
    held: Mutex<Vec<Held>>,
}

impl Quarantine {
    fn held(&self) -> std::sync::MutexGuard<'_, Vec<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds frames until `place` is free. If the check is not possible, the frames are held until `until`.
    /// If the place stays busy, the frames are held at most [`BUSY_HOLD`] longer.
    pub fn hold(&self, frames: Vec<u32>, place: Option<Place>, until: Instant) {
        if !frames.is_empty() {
            self.held().push(Held { frames, place, until });
        }
    }

    /// Takes the frames of a queue to which a socket has just been bound, which proves that the kernel has
    /// released them.
    pub fn bound(&self, place: &Place) -> Vec<u32> {
        self.take(|held| held.place.as_ref().is_some_and(|own| own.is_same(place)))
    }

    /// Takes the frames whose place is free according to `is_free`, and the frames whose time has expired.
    pub fn released(&self, now: Instant, is_free: impl Fn(&Place) -> Option<bool>) -> Vec<u32> {
        self.take(|held| match held.place.as_ref().and_then(&is_free) {
            Some(true) => true,
            Some(false) => now >= held.until + BUSY_HOLD,
            None => now >= held.until,
        })
    }

    /// Returns the number of frames that have been held for longer than the kernel should need.
    pub fn overdue(&self, now: Instant) -> usize {
        self.held().iter().filter(|held| now >= held.until).map(|held| held.frames.len()).sum()
    }

    fn take(&self, is_over: impl Fn(&Held) -> bool) -> Vec<u32> {
        let mut held = self.held();
        held.extract_if(.., |held| is_over(held)).flat_map(|held| held.frames).collect()
    }

    /// Returns whether no frame is held.
    pub fn is_empty(&self) -> bool {
        self.held().is_empty()
    }

    /// Returns the number of held frames.
    pub fn len(&self) -> usize {
        self.held().iter().map(|held| held.frames.len()).sum()
    }

    /// Returns the held frames with their remaining time, for a successor process.
    pub fn list(&self, now: Instant) -> Vec<HeldFrames> {
        let entry = |held: &Held| HeldFrames {
            frames: held.frames.clone(),
            place: held.place.as_ref().and_then(Place::duplicate),
            left: held.until.saturating_duration_since(now),
        };
        self.held().iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs::File;

    use proptest::prelude::*;

    use super::*;

    fn place(queue: u32) -> Place {
        Place { namespace: File::open("/dev/null").unwrap().into(), inode: 1, ifindex: 7, queue }
    }

    /// A model of the kernel: the frames of a closed socket are active until the kernel's work queue has run.
    #[derive(Default)]
    struct Kernel {
        /// Queues with a bound socket, each with its frames.
        bound: BTreeMap<u32, Vec<u32>>,
        /// Queues whose socket was closed but not released yet.
        releasing: BTreeMap<u32, Vec<u32>>,
    }

    impl Kernel {
        fn is_free(&self, queue: u32) -> bool {
            !self.bound.contains_key(&queue) && !self.releasing.contains_key(&queue)
        }

        fn writes_to(&self) -> BTreeSet<u32> {
            self.bound.values().chain(self.releasing.values()).flatten().copied().collect()
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// A port opens this queue and posts some of the free frames.
        Open(u32),
        /// A port closes this queue.
        Close(u32),
        /// The kernel's work queue releases this queue.
        Release(u32),
        /// The housekeeping thread checks the quarantine.
        Look,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0_u32..3).prop_map(Step::Open),
            (0_u32..3).prop_map(Step::Close),
            (0_u32..3).prop_map(Step::Release),
            Just(Step::Look),
        ];
        proptest::collection::vec(step, 0..80)
    }

    proptest! {
        /// Checks for arbitrary orders of closes, releases and opens that no frame is free that the kernel
        /// may write to, that no frame is lost, and that no frame is in two places.
        #[test]
        fn no_frame_is_free_while_the_kernel_may_write_to_it(steps in steps()) {
            const FRAMES: u32 = 32;
            let begin = Instant::now();
            let (quarantine, mut kernel) = (Quarantine::default(), Kernel::default());
            let mut free: Vec<u32> = (0..FRAMES).collect();
            for step in steps {
                match step {
                    Step::Open(queue) if kernel.is_free(queue) => {
                        free.extend(quarantine.bound(&place(queue)));
                        let posted = free.split_off(free.len().saturating_sub(8));
                        kernel.bound.insert(queue, posted);
                    }
                    Step::Close(queue) => if let Some(frames) = kernel.bound.remove(&queue) {
                        quarantine.hold(frames.clone(), Some(place(queue)), begin + HOLD);
                        kernel.releasing.insert(queue, frames);
                    },
                    Step::Release(queue) => drop(kernel.releasing.remove(&queue)),
                    Step::Look => free.extend(quarantine.released(begin, |at| Some(kernel.is_free(at.queue)))),
                    Step::Open(_) => {}
                }
                let live = kernel.writes_to();
                prop_assert!(free.iter().all(|frame| !live.contains(frame)), "a free frame is written to");
                let bound: usize = kernel.bound.values().map(Vec::len).sum();
                prop_assert_eq!(free.len() + bound + quarantine.len(), FRAMES as usize);
            }
            kernel.releasing.clear();
            free.extend(quarantine.released(begin, |at| Some(kernel.is_free(at.queue))));
            free.extend(kernel.bound.into_values().flatten());
            // A queue that is bound by another socket is not checked. The queue's frames are released when
            // their time expires.
            free.extend(quarantine.released(begin + HOLD, |_| None));
            free.sort_unstable();
            prop_assert!(free.into_iter().eq(0..FRAMES), "every frame is back once");
        }
    }

    #[test]
    fn a_place_that_cannot_be_tried_is_held_for_its_time() {
        let (quarantine, now) = (Quarantine::default(), Instant::now());
        quarantine.hold(vec![1, 2], None, now + HOLD);
        assert_eq!(quarantine.released(now + HOLD / 2, |_| Some(true)), Vec::<u32>::new());
        let list = quarantine.list(now + HOLD / 2);
        assert_eq!((&list[0].frames, list[0].left, list.len()), (&vec![1, 2], HOLD / 2, 1));
        assert_eq!(quarantine.released(now + HOLD, |_| None), [1, 2]);
        assert_eq!(quarantine.len(), 0);
    }

    #[test]
    fn frames_of_a_queue_that_is_still_busy_are_held_on() {
        let (quarantine, now) = (Quarantine::default(), Instant::now());
        quarantine.hold(vec![1, 2], Some(place(3)), now + HOLD);
        quarantine.hold(vec![3], Some(place(4)), now + HOLD);
        assert_eq!(quarantine.overdue(now), 0);
        let busy = |at: &Place| Some(at.queue == 4);
        assert_eq!(quarantine.released(now + HOLD, busy), [3], "the driver may still write to the others");
        assert_eq!(quarantine.overdue(now + HOLD), 2);
        // A successor checks the same queue.
        let list = quarantine.list(now + HOLD);
        assert!(list[0].place.as_ref().unwrap().is_same(&place(3)) && list[0].left.is_zero());
        assert_eq!(quarantine.released(now + HOLD * 2, busy), Vec::<u32>::new());
        assert_eq!(quarantine.released(now + HOLD + BUSY_HOLD, busy), [1, 2]);
    }
}
