//! Sleeping and waking of a worker without a lost wake-up.
//!
//! The consumer announces its sleep, then looks once more for work; the producer publishes work, then looks for a
//! sleeper. With a SeqCst fence between the two steps on both sides, at least one sees the other (Dekker), and only
//! the producer that turns the flag back pays for the system call.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::primitives::{AtomicBool, Ordering, fence};

/// Whether a consumer sleeps, or is about to.
#[derive(Debug)]
pub struct WakeFlag {
    sleeping: AtomicBool,
}

impl WakeFlag {
    /// Awake.
    #[must_use]
    pub fn new() -> Self {
        Self { sleeping: AtomicBool::new(false) }
    }

    /// Consumer: announces the sleep. It must then look for work once more, and either [`WakeFlag::awake`] if there is
    /// some, or sleep until notified and then [`WakeFlag::awake`].
    pub fn prepare_sleep(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Consumer: the sleep is over or was not begun.
    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Producer, after publishing work: calls `notify` if the consumer sleeps, once per sleep. Costs a full fence: call
    /// it once per burst. True if it notified.
    #[inline]
    pub fn notify_if_sleeping(&self, notify: impl FnOnce()) -> bool {
        fence(Ordering::SeqCst);
        let notifies = self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::AcqRel);
        if notifies {
            notify();
        }
        notifies
    }

    /// Whether the consumer sleeps or is about to: a hint.
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

/// A [`WakeFlag`] with an eventfd, for a consumer that sleeps in `poll` beside its sockets.
#[derive(Debug)]
pub struct Waker {
    flag: WakeFlag,
    event: OwnedFd,
}

impl Waker {
    /// Makes the eventfd (non-blocking, close-on-exec).
    ///
    /// # Errors
    /// Of eventfd(2): no descriptors left.
    pub fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { flag: WakeFlag::new(), event })
    }

    /// Consumer: see [`WakeFlag::prepare_sleep`]. Then poll the descriptor for reading.
    pub fn prepare_sleep(&self) {
        self.flag.prepare_sleep();
    }

    /// Consumer: see [`WakeFlag::awake`]; also empties the eventfd.
    pub fn awake(&self) {
        self.flag.awake();
        // EAGAIN: nobody notified, which is fine.
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
    }

    /// Producer, after publishing work; a system call only if the consumer sleeps.
    #[inline]
    pub fn notify_if_sleeping(&self) -> bool {
        self.flag.notify_if_sleeping(|| self.notify())
    }

    /// Wakes the consumer whether it sleeps or not.
    pub fn notify(&self) {
        // EAGAIN: the count is at its maximum, so the consumer is notified anyway.
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
