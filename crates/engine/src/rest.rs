//! When a worker polls and when it sleeps.
//!
//! Adaptive: it polls while there is work and for a little while after, then sleeps in epoll until a queue has packets, another worker
//! hands some over, or control has a command. Busy: it never sleeps. The protocol that loses no wake-up is `sync::wake`'s.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;

pub use sync::wake::Waker;

/// See the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PollMode {
    /// Sleep when idle.
    #[default]
    Adaptive,
    /// Never sleep.
    Busy,
}

/// Rounds without work before a worker looks at the clock.
const PATIENCE: u32 = 64;
/// A sleeping worker looks around this often even if nobody wakes it.
const NAP: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
const WAKER: u64 = u64::MAX;

/// A worker's decision when to sleep.
pub struct Rest {
    mode: PollMode,
    spin_cycles: u64,
    empty_rounds: u32,
    idle_since: u64,
    epoll: OwnedFd,
    waker: Arc<Waker>,
}

impl Rest {
    /// `spin_cycles`: TSC cycles of polling in vain before sleep.
    ///
    /// # Errors
    /// When the kernel gives no epoll instance.
    pub fn new(mode: PollMode, spin_cycles: u64, waker: Arc<Waker>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &*waker, epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN)?;
        Ok(Self { mode, spin_cycles, empty_rounds: 0, idle_since: 0, epoll, waker })
    }

    /// Lets `fd` wake the worker, each time that something new comes: the descriptor of a device that is gone stays readable for ever, and
    /// must not keep the worker awake until control has closed it.
    ///
    /// # Errors
    /// Of epoll_ctl(2).
    pub fn watch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(0), edges)?)
    }

    /// Takes `fd` out again.
    pub fn forget(&self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Whether the worker should sleep after a round that found `packets`.
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

    /// Sleeps until woken, unless `pending` says that work has come meanwhile.
    pub fn sleep(&mut self, pending: impl FnOnce() -> bool, asleep: impl FnOnce(&mut dyn FnMut())) {
        self.waker.prepare_sleep();
        if !pending() {
            let epoll = &self.epoll;
            asleep(&mut || {
                // Whoever woke it, a round looks everywhere.
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
