//! Quarantine for the frames of closed zero-copy sockets. The frames are not reused until the
//! kernel has released them.
//!
//! In copy mode, the kernel does not write to the frames of a socket after the socket is closed. In zero-copy
//! mode, closing the socket only schedules `xp_release_deferred`, which takes RTNL and then makes the driver
//! stop using the queue. Until then, the receive descriptors in the driver are active, and their frames must
//! not be reused.
//!
//! Until the driver has stopped, the kernel refuses to bind another socket to the queue (`EBUSY`). The module
//! therefore detects the release in one of two ways:
//!
//! - The next socket of the port is bound to the queue ([`Quarantine::bound`]).
//! - A temporary socket is bound to the queue as a check ([`Place::is_free`]).
//!
//! If a queue cannot be checked, its frames become free after [`HOLD`]. If a queue stays busy, its frames
//! become free [`BUSY_HOLD`] later, because another process must have bound a socket to the queue by then.
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

/// Maximum time that frames stay in quarantine if their queue cannot be checked. On any machine that works normally,
/// the kernel's work queue needs less time to release the frames.
pub const HOLD: Duration = Duration::from_secs(10);
/// Additional time that frames stay in quarantine while the check reports that a socket is bound to their
/// queue.
pub const BUSY_HOLD: Duration = Duration::from_secs(900);

/// A queue of a device, identified by network namespace, interface index and queue index.
#[derive(Debug)]
pub struct Place {
    namespace: OwnedFd,
    /// Inode number of the namespace. Two file descriptors refer to one namespace if the inode numbers are
    /// equal.
    inode: u64,
    ifindex: u32,
    queue: u32,
}

impl Place {
    /// Returns the device queue to which a socket is bound. Returns `None` if the kernel does not report the
    /// namespace of the socket.
    #[must_use]
    pub fn of(socket: BorrowedFd<'_>, ifindex: u32, queue: u32) -> Option<Place> {
        Place::within(crate::sys::namespace_of(socket).ok()?, ifindex, queue)
    }

    /// Returns the identification of queue `queue` of the device with interface index `ifindex` in `namespace`. Returns
    /// `None` if the interface index is 0 (unknown), or if the inode number of `namespace` cannot be read.
    #[must_use]
    pub fn within(namespace: OwnedFd, ifindex: u32, queue: u32) -> Option<Place> {
        let inode = rustix::fs::fstat(&namespace).ok()?.st_ino;
        (ifindex != 0).then_some(Place { namespace, inode, ifindex, queue })
    }

    /// Returns the parts of the identification: namespace, inode number of the namespace, interface index,
    /// queue index.
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

    /// Returns whether a socket can be bound to the queue. This is not possible while a socket is bound, or
    /// while the kernel has not released a closed socket. Returns `None` if the check fails for another
    /// reason.
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

/// Quarantined frames of one queue, in the form that is handed over to a successor process.
#[derive(Debug)]
pub struct HeldFrames {
    /// Indices of the quarantined frames.
    pub frames: Vec<u32>,
    /// Queue to which the frames' socket was bound, or `None` if the queue is not known.
    pub place: Option<Place>,
    /// Remaining time after which the frames become free if the queue cannot be checked.
    pub left: Duration,
}

/// The quarantined frames of all queues. See the module documentation.
#[derive(Default)]
pub struct Quarantine {
    held: Mutex<Vec<Held>>,
}

impl Quarantine {
    fn held(&self) -> std::sync::MutexGuard<'_, Vec<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts `frames` into quarantine until a check finds that the queue `place` is free. If the queue cannot be
    /// checked, the quarantine ends at `until`. If the queue stays busy, the quarantine ends [`BUSY_HOLD`] after
    /// `until` at the latest.
    pub fn hold(&self, frames: Vec<u32>, place: Option<Place>, until: Instant) {
        if !frames.is_empty() {
            self.held().push(Held { frames, place, until });
        }
    }

    /// Removes the frames of a queue from the quarantine and returns them. The caller has just bound a socket
    /// to the queue, which proves that the kernel has released the frames.
    pub fn bound(&self, place: &Place) -> Vec<u32> {
        self.take(|held| held.place.as_ref().is_some_and(|own| own.is_same(place)))
    }

    /// Removes and returns the frames whose queue is free according to `is_free`, and the frames whose maximum
    /// time in quarantine has passed.
    pub fn released(&self, now: Instant, is_free: impl Fn(&Place) -> Option<bool>) -> Vec<u32> {
        self.take(|held| match held.place.as_ref().and_then(&is_free) {
            Some(true) => true,
            Some(false) => now >= held.until + BUSY_HOLD,
            None => now >= held.until,
        })
    }

    /// Returns the number of quarantined frames that the kernel should have released by now, because their maximum time
    /// in quarantine (without [`BUSY_HOLD`]) has passed.
    pub fn overdue(&self, now: Instant) -> usize {
        self.held().iter().filter(|held| now >= held.until).map(|held| held.frames.len()).sum()
    }

    fn take(&self, is_over: impl Fn(&Held) -> bool) -> Vec<u32> {
        let mut held = self.held();
        held.extract_if(.., |held| is_over(held)).flat_map(|held| held.frames).collect()
    }

    /// Returns whether no frame is in quarantine.
    pub fn is_empty(&self) -> bool {
        self.held().is_empty()
    }

    /// Returns the number of frames in quarantine.
    pub fn len(&self) -> usize {
        self.held().iter().map(|held| held.frames.len()).sum()
    }

    /// Returns the frames in quarantine with their queues and remaining times, to hand them over to a successor
    /// process.
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

    /// A model of the kernel, which may write to the frames of a closed socket until the kernel's work queue
    /// has released the socket.
    #[derive(Default)]
    struct Kernel {
        /// Queues to which a socket is bound. The value is the list of the socket's frames.
        bound: BTreeMap<u32, Vec<u32>>,
        /// Queues whose socket was closed but has not been released. The value is the list of the socket's
        /// frames.
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
        /// A port opens this queue and passes some of the free frames to the kernel.
        Open(u32),
        /// A port closes this queue.
        Close(u32),
        /// The kernel's work queue releases this queue.
        Release(u32),
        /// The control thread checks whether the kernel has released the queues in quarantine.
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
        /// Checks three properties for arbitrary orders of closes, releases and opens: no frame is free while
        /// the kernel may write to it, no frame is lost, and no frame is in two places.
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
