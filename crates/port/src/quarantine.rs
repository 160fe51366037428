//! Frames of closed zero-copy sockets, until the kernel has let go of them.
//!
//! In copy mode the kernel writes to no frame of a socket any more when the socket is closed. In zero-copy mode it may: the close only
//! schedules `xp_release_deferred`, which takes RTNL and then has the driver end its use of the queue. Until then posted receive
//! descriptors are live, and their frames must not become another packet. The kernel refuses to bind a second socket to the queue
//! (`EBUSY`) until the driver has ended its use, which is how the end is found out: by the port's own next socket
//! ([`Quarantine::bound`]), or by a socket that is bound for a moment to try ([`Place::is_free`]). A place that cannot be tried is believed
//! free after [`HOLD`], and one of which every attempt says that it is not, after [`BUSY_HOLD`] more: by then another process has bound it.
//!
//! Not on a packet's path.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "control threads lock and read the clock; workers never do"
)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::af_xdp::is_free;

/// How long frames are held at most: longer than the kernel's work queue needs on any machine that still works.
pub const HOLD: Duration = Duration::from_secs(10);
/// How much longer frames are held while an attempt says that their queue is not free.
pub const BUSY_HOLD: Duration = Duration::from_secs(900);

/// A queue of a device in a network namespace.
#[derive(Debug)]
pub struct Place {
    namespace: OwnedFd,
    /// The namespace's number, by which two descriptors of it are known to be the same.
    inode: u64,
    ifindex: u32,
    queue: u32,
}

impl Place {
    /// Returns the queue that a socket is bound to; `None` if the kernel does not tell the socket's namespace.
    #[must_use]
    pub fn of(socket: BorrowedFd<'_>, ifindex: u32, queue: u32) -> Option<Place> {
        Place::within(crate::sys::namespace_of(socket).ok()?, ifindex, queue)
    }

    /// Returns a queue of a device in a network namespace; `None` if the device is not known (0), or the descriptor is of no file.
    #[must_use]
    pub fn within(namespace: OwnedFd, ifindex: u32, queue: u32) -> Option<Place> {
        let inode = rustix::fs::fstat(&namespace).ok()?.st_ino;
        (ifindex != 0).then_some(Place { namespace, inode, ifindex, queue })
    }

    /// Returns the namespace, its number, the device and the queue.
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

    /// Whether no socket is bound to the queue, and none that was closed is still being released; `None` if that cannot be found out.
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

/// Frames in quarantine, as a successor process gets them.
#[derive(Debug)]
pub struct HeldFrames {
    /// The frames.
    pub frames: Vec<u32>,
    /// Their queue, if it is known.
    pub place: Option<Place>,
    /// Time after which they are free, if the queue cannot be tried.
    pub left: Duration,
}

/// See the module documentation.
#[derive(Default)]
pub struct Quarantine {
    held: Mutex<Vec<Held>>,
}

impl Quarantine {
    fn held(&self) -> std::sync::MutexGuard<'_, Vec<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds frames until `place` is free; until `until` if that cannot be found out, and [`BUSY_HOLD`] longer at the latest.
    pub fn hold(&self, frames: Vec<u32>, place: Option<Place>, until: Instant) {
        if !frames.is_empty() {
            self.held().push(Held { frames, place, until });
        }
    }

    /// Returns the frames of a queue to which a socket has just been bound: the kernel has let go of them.
    pub fn bound(&self, place: &Place) -> Vec<u32> {
        self.take(|held| held.place.as_ref().is_some_and(|own| own.is_same(place)))
    }

    /// Returns the frames whose place is free by `is_free`, and those whose time is over.
    pub fn released(&self, now: Instant, is_free: impl Fn(&Place) -> Option<bool>) -> Vec<u32> {
        self.take(|held| match held.place.as_ref().and_then(&is_free) {
            Some(true) => true,
            Some(false) => now >= held.until + BUSY_HOLD,
            None => now >= held.until,
        })
    }

    /// Returns the number of frames that are held longer than the kernel should need.
    pub fn overdue(&self, now: Instant) -> usize {
        self.held().iter().filter(|held| now >= held.until).map(|held| held.frames.len()).sum()
    }

    fn take(&self, is_over: impl Fn(&Held) -> bool) -> Vec<u32> {
        let mut held = self.held();
        held.extract_if(.., |held| is_over(held)).flat_map(|held| held.frames).collect()
    }

    /// Whether no frame is held.
    pub fn is_empty(&self) -> bool {
        self.held().is_empty()
    }

    /// Returns the number of frames that are held.
    pub fn len(&self) -> usize {
        self.held().iter().map(|held| held.frames.len()).sum()
    }

    /// Returns what is held, each with the time that is left, for a successor process.
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

    /// The kernel as far as it matters here: a closed socket's frames are live until its work queue has run.
    #[derive(Default)]
    struct Kernel {
        /// Queues with a bound socket and its frames.
        bound: BTreeMap<u32, Vec<u32>>,
        /// Queues whose socket was closed and is not released yet.
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
        /// A port opens this queue, and posts some of the free frames.
        Open(u32),
        /// It closes it.
        Close(u32),
        /// The kernel's work queue gets to this queue.
        Release(u32),
        /// Housekeeping looks.
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
        /// Whatever the order of closes, releases and opens: no frame is free that the kernel may still write to, none is lost, and none is
        /// in two places.
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
            // A queue that is bound by another socket is not tried; its frames come when their time is over.
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
        // A successor tries the same queue.
        let list = quarantine.list(now + HOLD);
        assert!(list[0].place.as_ref().unwrap().is_same(&place(3)) && list[0].left.is_zero());
        assert_eq!(quarantine.released(now + HOLD * 2, busy), Vec::<u32>::new());
        assert_eq!(quarantine.released(now + HOLD + BUSY_HOLD, busy), [1, 2]);
    }
}
