//! Sleeping and waking of a worker without lost wake-ups.
//!
//! The consumer announces that it will sleep, then checks again for work. The producer publishes work, then
//! checks for a sleeper. With a SeqCst fence between the two steps on both sides, at least one side sees the
//! other (Dekker's algorithm). Only the producer that resets the flag executes the system call.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::primitives::{AtomicBool, Ordering, fence};

/// Flag that records whether a consumer sleeps or is about to sleep.
#[derive(Debug)]
pub struct WakeFlag {
    sleeping: AtomicBool,
}

impl WakeFlag {
    /// Returns the flag of a consumer that is awake.
    #[must_use]
    pub fn new() -> Self {
        Self { sleeping: AtomicBool::new(false) }
    }

    /// Announces the consumer's sleep. The consumer must then check again for work. With work it calls
    /// [`WakeFlag::awake`], otherwise it sleeps until notified and then calls [`WakeFlag::awake`].
    pub fn prepare_sleep(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Ends the consumer's sleep, or cancels a sleep that was announced but not begun.
    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Calls `notify` if the consumer sleeps, once per sleep. The producer calls it after publishing work.
    /// Costs a full fence, so call it once per burst. Returns whether `notify` was called.
    #[inline]
    pub fn notify_if_sleeping(&self, notify: impl FnOnce()) -> bool {
        fence(Ordering::SeqCst);
        let notifies = self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::AcqRel);
        if notifies {
            notify();
        }
        notifies
    }

    /// Returns whether the consumer sleeps or is about to sleep. The result is a hint.
    #[must_use]
    pub fn is_sleeping(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed)
    }
}

impl Default for WakeFlag {
    fn default() -> Self {
        Self::new()
    }
}

/// A [`WakeFlag`] with an eventfd, for a consumer that sleeps in `poll` together with its sockets.
#[derive(Debug)]
pub struct Waker {
    flag: WakeFlag,
    event: OwnedFd,
}

impl Waker {
    /// Creates the eventfd (non-blocking, close-on-exec).
    ///
    /// # Errors
    /// Returns the error of eventfd(2), for example when no descriptors are left.
    pub fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { flag: WakeFlag::new(), event })
    }

    /// Announces the consumer's sleep. See [`WakeFlag::prepare_sleep`]. The consumer then polls the
    /// descriptor for reading.
    pub fn prepare_sleep(&self) {
        self.flag.prepare_sleep();
    }

    /// Ends the consumer's sleep and empties the eventfd. See [`WakeFlag::awake`].
    pub fn awake(&self) {
        self.flag.awake();
        // EAGAIN means that there was no notification, which is no error.
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
    }

    /// Wakes the consumer if it sleeps. The producer calls it after publishing work. A system call occurs
    /// only if the consumer sleeps.
    #[inline]
    pub fn notify_if_sleeping(&self) -> bool {
        self.flag.notify_if_sleeping(|| self.notify())
    }

    /// Wakes the consumer unconditionally.
    pub fn notify(&self) {
        // EAGAIN means that the count is at its maximum, so the consumer is already notified.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn readable(waker: &Waker) -> bool {
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(waker, PollFlags::IN)], Some(&now)) == Ok(1)
    }

    #[test]
    fn only_a_sleeper_is_notified_and_once() {
        let waker = Waker::new().unwrap();
        assert!(!waker.notify_if_sleeping() && !readable(&waker));
        waker.prepare_sleep();
        assert!(waker.notify_if_sleeping() && readable(&waker));
        assert!(!waker.notify_if_sleeping());
        waker.awake();
        assert!(!readable(&waker));
        waker.prepare_sleep();
        waker.awake();
        assert!(!waker.notify_if_sleeping());
    }
}
