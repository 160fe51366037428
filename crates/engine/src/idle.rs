//! Idle policy of a worker, which determines when the worker polls and when it sleeps.
//!
//! - A worker with the adaptive policy polls while there is work and for a short time afterwards. The worker
//!   then sleeps in epoll until a queue has packets, another worker hands over packets, or a command arrives.
//! - A worker with the busy policy never sleeps.
//!
//! `sync::wake` implements the protocol that prevents lost wake-ups.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;

pub use sync::wake::Waker;

/// Idle policy of the workers of an engine. See the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PollMode {
    /// Workers sleep when they are idle.
    #[default]
    Adaptive,
    /// Workers never sleep.
    Busy,
}

/// Number of consecutive rounds without work after which a worker starts to measure how long it has been idle.
const PATIENCE: u32 = 64;
/// Maximum duration of one sleep. After this time, a worker wakes up and runs a round even if no event has
/// occurred.
const NAP: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
const WAKER: u64 = u64::MAX;

/// Idle state of one worker, from which the worker determines when to sleep.
pub struct Rest {
    mode: PollMode,
    spin_cycles: u64,
    empty_rounds: u32,
    idle_since: u64,
    epoll: OwnedFd,
    waker: Arc<Waker>,
}

impl Rest {
    /// Creates the idle state of a worker. `spin_cycles` is the time in TSC cycles that the worker polls
    /// without finding work before it sleeps.
    ///
    /// # Errors
    /// The error of epoll_create1(2) or epoll_ctl(2).
    pub fn new(mode: PollMode, spin_cycles: u64, waker: Arc<Waker>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &*waker, epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN)?;
        Ok(Self { mode, spin_cycles, empty_rounds: 0, idle_since: 0, epoll, waker })
    }

    /// Adds `fd` to the file descriptors that wake the worker. The watch is edge-triggered, because the descriptor of a
    /// removed device stays readable until a control thread closes it. With a level-triggered watch, such a descriptor
    /// would keep the worker awake.
    ///
    /// # Errors
    /// The error of epoll_ctl(2).
    pub fn watch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(0), edges)?)
    }

    /// Removes `fd` from the file descriptors that wake the worker.
    pub fn forget(&self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Returns whether the worker should sleep after a round that found `packets` packets. `tsc` is the
    /// current time in TSC cycles.
    #[inline]
    pub fn wants_sleep(&mut self, packets: usize, tsc: u64) -> bool {
        if packets > 0 {
            self.empty_rounds = 0;
            return false;
        }
        self.empty_rounds = self.empty_rounds.saturating_add(1);
        if self.mode == PollMode::Busy || self.empty_rounds < PATIENCE {
            sync::cpu::pause();
            return false;
        }
        if self.empty_rounds == PATIENCE {
            self.idle_since = tsc;
        }
        tsc.saturating_sub(self.idle_since) >= self.spin_cycles
    }

    /// Sleeps until an event wakes the worker. Returns immediately if `pending` returns true, which means
    /// that work has arrived in the meantime.
    pub fn sleep(&mut self, pending: impl FnOnce() -> bool, asleep: impl FnOnce(&mut dyn FnMut())) {
        self.waker.prepare_sleep();
        if !pending() {
            let epoll = &self.epoll;
            asleep(&mut || {
                // The source of the wake-up does not matter, because a round polls every queue and ring.
                let _ = wait(epoll);
            });
        }
        self.waker.awake();
        self.empty_rounds = 0;
    }
}

fn wait(epoll: &OwnedFd) -> io::Result<()> {
    let mut events = [const { std::mem::MaybeUninit::uninit() }; 16];
    epoll::wait(epoll, &mut events, Some(&NAP))?;
    Ok(())
}
