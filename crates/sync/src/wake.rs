//! Sleeping and waking of a worker without lost wake-ups.
//!
//! The consumer announces that it will sleep, and then checks again for work. The producer publishes work, and then
//! checks whether the consumer sleeps. Both execute a SeqCst fence between these two steps. Therefore the producer sees
//! the announcement, or the consumer sees the work (Dekker's algorithm). Only the producer that resets the flag makes
//! the system call that wakes the consumer.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::primitives::{AtomicBool, Ordering, fence};

/// Flag that is set while a consumer (a worker) sleeps or is about to sleep.
#[derive(Debug)]
pub struct WakeFlag {
    sleeping: AtomicBool,
}

impl WakeFlag {
    /// Returns a flag for a consumer that is awake.
    #[must_use]
    pub fn new() -> Self {
        Self { sleeping: AtomicBool::new(false) }
    }

    /// Announces that the consumer will sleep. The consumer must then check again for work. If there is work, the
    /// consumer calls [`WakeFlag::awake`]. Otherwise the consumer sleeps until it is notified, and then calls
    /// [`WakeFlag::awake`].
    pub fn prepare_sleep(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Ends the consumer's sleep, or cancels a sleep that was announced but did not begin.
    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Calls `notify` if the consumer sleeps, at most once for each sleep. The producer calls this method after it has
    /// published work. The method costs a full fence. Therefore producers call the method once per burst. Returns
    /// whether `notify` was called.
    #[inline]
    pub fn notify_if_sleeping(&self, notify: impl FnOnce()) -> bool {
        fence(Ordering::SeqCst);
        let notifies = self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::AcqRel);
        if notifies {
            notify();
        }
        notifies
    }

    /// Returns whether the consumer sleeps or is about to sleep. The result may be outdated when the method
    /// returns.
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

/// A [`WakeFlag`] with an eventfd, for a consumer that sleeps in `poll`. With one call of `poll`, the consumer waits
/// for the eventfd and for its sockets.
#[derive(Debug)]
pub struct Waker {
    flag: WakeFlag,
    event: OwnedFd,
}

impl Waker {
    /// Creates a waker with a new eventfd (non-blocking, close-on-exec).
    ///
    /// # Errors
    /// Returns the error of eventfd(2), for example if the process has no free file descriptors.
    pub fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { flag: WakeFlag::new(), event })
    }

    /// Announces that the consumer will sleep. See [`WakeFlag::prepare_sleep`]. The consumer then polls the
    /// eventfd for reading.
    pub fn prepare_sleep(&self) {
        self.flag.prepare_sleep();
    }

    /// Ends the consumer's sleep and resets the eventfd. See [`WakeFlag::awake`].
    pub fn awake(&self) {
        self.flag.awake();
        // EAGAIN means that there was no notification, which is no error.
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
    }

    /// Wakes the consumer if it sleeps. The producer calls this method after it has published work. The method makes a
    /// system call only if the consumer sleeps. Returns whether the consumer was woken.
    #[inline]
    pub fn notify_if_sleeping(&self) -> bool {
        self.flag.notify_if_sleeping(|| self.notify())
    }

    /// Wakes the consumer even if the flag is not set.
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
