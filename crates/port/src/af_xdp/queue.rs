//! One AF_XDP socket as a [`Queue`].
//!
//! System calls: in copy mode one `sendto` per burst that transmits (the kernel sends nothing by itself) and none to
//! receive; with a driver that has wake-ups, only when it asks.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::rings::Rings;
use super::{AfXdpConfig, AfXdpError, call::Call, socket};
use crate::link;
use crate::memory::FrameMemory;
use crate::pool::FramePool;
use crate::quarantine::{HOLD, Place};
use crate::queue::{Batch, Capabilities, Queue, QueueCounters, QueueState, QueueStatus, TransmitProgress};
use crate::sys;

/// Most calls of one kick: where the kernel's budget is fixed to 32, eight calls send a burst.
const MAX_CALLS: u32 = 8;
/// One in so many idle checks asks the socket whether its device is still there.
const HEALTH_EVERY: u32 = 16;

/// What happened to kicks; plain numbers of the owning worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AfXdpCounters {
    /// System calls made to send or to wake the driver.
    pub calls: u64,
    /// Calls that the kernel answered with "later" (EAGAIN, EBUSY, ENOBUFS): what was not sent stays in the ring.
    pub busy: u64,
    /// Calls that found the device down.
    pub down: u64,
    /// Descriptors and completions that named no frame of ours; always 0 with a sane kernel.
    pub strange: u64,
    /// Packets without an Ethernet header, or of more segments than the socket carries; the engine lets none of them come so far.
    pub refused: u64,
}

/// See the module documentation.
pub struct AfXdpQueue {
    pub(super) rings: Rings,
    pub(super) fd: OwnedFd,
    pub(super) memory: Arc<FrameMemory>,
    pub(super) config: AfXdpConfig,
    pub(super) zero_copy: bool,
    pub(super) multi_buffer: bool,
    pub(super) mtu: u32,
    /// The device's number, 0 if it is not known.
    pub(super) ifindex: u32,
    pub(super) reasons: Vec<String>,
    state: QueueState,
    idle_checks: u32,
    counters: AfXdpCounters,
}

impl AfXdpQueue {
    /// Opens, binds and fills one queue. Frames reach it when an XDP program redirects to [`Self::fd`].
    ///
    /// # Errors
    /// [`AfXdpError`], with the queue, the cause and the next step.
    pub fn open(config: AfXdpConfig, pool: &mut FramePool) -> Result<Self, AfXdpError> {
        let memory = pool.memory_arc();
        config.check(&memory)?;
        let info = link::find(&config.ifname).map_err(|_| config.error(super::AfXdpCause::NoDevice))?;
        let queues = link::channels(&config.ifname).map_or(info.rx_queues, |channels| channels.rx());
        let device = socket::Device { ifindex: info.ifindex, mtu: info.mtu, queues };
        let bound = socket::open(&config, &device, &memory)?;
        let mut queue = Self::assemble(config, memory, bound, info.mtu)?;
        queue.ifindex = info.ifindex;
        if let Some(place) = queue.place() {
            pool.depot().bound(&place);
        }
        queue.rings.refill(pool);
        Ok(queue)
    }

    /// A queue over a bound socket; the rings resume where they stand.
    pub(super) fn assemble(
        config: AfXdpConfig,
        memory: Arc<FrameMemory>,
        bound: socket::Bound,
        mtu: u32,
    ) -> Result<Self, AfXdpError> {
        let mut rings = socket::rings(bound.fd.as_fd(), config.ring_size, config.fill_level, memory.frames())
            .map_err(|cause| config.error(cause))?;
        rings.max_segments = if bound.multi_buffer { super::abi::MAX_SEGMENTS } else { 1 };
        Ok(Self {
            rings,
            fd: bound.fd,
            memory,
            config,
            zero_copy: bound.zero_copy,
            multi_buffer: bound.multi_buffer,
            mtu,
            ifindex: 0,
            reasons: bound.reasons,
            state: QueueState::Up,
            idle_checks: 0,
            counters: AfXdpCounters::default(),
        })
    }

    /// The queue that it is bound to, as far as the kernel tells.
    fn place(&self) -> Option<Place> {
        Place::of(self.fd.as_fd(), self.ifindex, self.config.queue)
    }

    /// The socket, to be put into the XSKMAP of the device's XDP program at this queue's index.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// How it was opened.
    #[must_use]
    pub fn config(&self) -> &AfXdpConfig {
        &self.config
    }

    /// Calls made and their troubles.
    #[must_use]
    pub fn kicks(&self) -> AfXdpCounters {
        AfXdpCounters { strange: self.rings.strange, refused: self.rings.refused, ..self.counters }
    }

    /// Frames that the kernel has of this queue: in its rings, and inside itself.
    #[must_use]
    pub fn frames_owned(&self) -> u32 {
        self.rings.owned.len()
    }

    /// Frames that can be seen to stand in a ring right now, one entry for each place.
    #[must_use]
    pub fn frames_in_rings(&self) -> Vec<u32> {
        self.rings.frames_in_rings(&self.memory)
    }

    /// Tells the queue that the device's MTU has changed.
    pub fn set_mtu(&mut self, mtu: u32) {
        self.mtu = mtu;
    }

    /// Sends what stands in the transmit ring. A call that takes nothing off it ends the attempt: what is stuck (completion
    /// ring full, no memory) is left for the next burst.
    fn send(&mut self) {
        let mut before = self.rings.tx.pending();
        for _ in 0..MAX_CALLS {
            self.counters.calls += 1;
            self.call(Call::Send);
            let left = self.rings.tx.pending();
            if left == 0 || left >= before || self.state != QueueState::Up {
                return;
            }
            before = left;
        }
    }

    /// One system call, and what its answer says about the device.
    fn call(&mut self, call: Call) {
        self.state = match call.make(self.fd.as_fd()) {
            0 => QueueState::Up,
            libc::ENETDOWN => {
                self.counters.down += 1;
                QueueState::Down
            }
            libc::ENXIO | libc::EBADF | libc::ENODEV => QueueState::Gone,
            _ => {
                self.counters.busy += 1;
                QueueState::Up
            }
        };
    }

    /// Asks the socket for its pending error: the kernel sets one when the device goes away, and a sleeping worker learns of
    /// it by nothing else.
    fn check_health(&mut self) {
        if let Ok(code) = sys::get_option(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR, 0)
            && code != 0
        {
            self.state = QueueState::Gone;
        }
    }
}

/// What the kernel has counted on a socket: for control threads that hold a duplicate of it while a worker has the queue.
#[must_use]
pub fn statistics(socket: BorrowedFd<'_>) -> QueueCounters {
    // Older kernels know only the first three numbers; the others stay 0.
    let zero = libc::xdp_statistics {
        rx_dropped: 0,
        rx_invalid_descs: 0,
        tx_invalid_descs: 0,
        rx_ring_full: 0,
        rx_fill_ring_empty_descs: 0,
        tx_ring_empty_descs: 0,
    };
    let kernel = sys::get_option(socket, libc::SOL_XDP, libc::XDP_STATISTICS, zero).unwrap_or(zero);
    QueueCounters {
        rx_ring_full: kernel.rx_ring_full,
        rx_fill_empty: kernel.rx_fill_ring_empty_descs,
        // The kernel counts a frame for which no buffer stood ready here, too.
        rx_invalid: kernel.rx_dropped.saturating_sub(kernel.rx_fill_ring_empty_descs)
            + kernel.rx_invalid_descs,
        tx_invalid: kernel.tx_invalid_descs,
    }
}

impl Queue for AfXdpQueue {
    #[inline]
    fn receive(&mut self, pool: &mut FramePool, out: &mut Batch) -> usize {
        let received = self.rings.receive(pool, out);
        self.rings.refill(pool);
        received
    }

    #[inline]
    fn transmit(&mut self, pool: &mut FramePool, batch: &mut Batch) -> usize {
        if self.state == QueueState::Gone {
            return 0;
        }
        self.rings.reclaim(pool);
        self.rings.transmit(pool, batch)
    }

    #[inline]
    fn kick(&mut self, pool: &mut FramePool) {
        if self.state == QueueState::Gone {
            return;
        }
        if self.rings.tx.pending() > 0 && self.rings.tx.needs_wakeup() {
            self.send();
        } else if self.config.busy_poll.is_some() || self.rings.fill.needs_wakeup() {
            self.counters.calls += 1;
            self.call(Call::Receive);
        }
        // Also without a call: completions come late where the receiver holds on to packets, and a port that nothing is sent
        // to any more must not keep their frames.
        self.rings.reclaim(pool);
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        // A dead socket polls readable for ever.
        (self.state != QueueState::Gone).then(|| self.fd.as_fd())
    }

    fn has_pending(&mut self) -> bool {
        if self.rings.rx.available() > 0 {
            return true;
        }
        self.idle_checks += 1;
        if self.idle_checks.is_multiple_of(HEALTH_EVERY) && self.state != QueueState::Gone {
            self.check_health();
        }
        self.state == QueueState::Up && self.rings.tx.pending() > 0 && self.rings.tx.needs_wakeup()
    }

    fn transmit_progress(&mut self) -> Option<TransmitProgress> {
        (self.state == QueueState::Up).then(|| self.rings.tx.progress())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_segments: if self.multi_buffer { super::abi::MAX_SEGMENTS } else { 1 },
            max_frame: self.mtu + 14,
            ..Capabilities::default()
        }
    }

    fn counters(&self) -> QueueCounters {
        let kernel = statistics(self.fd.as_fd());
        QueueCounters {
            rx_invalid: kernel.rx_invalid + self.rings.strange,
            tx_invalid: kernel.tx_invalid + self.rings.refused,
            ..kernel
        }
    }

    fn status(&self) -> QueueStatus {
        QueueStatus {
            kind: "af_xdp",
            zero_copy: self.zero_copy,
            need_wakeup: true,
            reasons: self.reasons.clone(),
        }
    }

    fn state(&self) -> QueueState {
        self.state
    }

    fn in_flight(&self) -> usize {
        self.rings.tx_in_flight()
    }

    fn frames(&self) -> usize {
        usize::try_from(self.frames_owned()).unwrap_or(usize::MAX)
    }

    fn close(self: Box<Self>, pool: &mut FramePool) {
        let place = if self.zero_copy { self.place() } else { None };
        let Self { mut rings, fd, zero_copy, .. } = *self;
        // After this the kernel writes to no frame of ours in copy mode. It may still read some that are on their way out; a frame that
        // is used anew then costs such a packet its content, not us our memory.
        drop(fd);
        if zero_copy {
            // The driver has the frames a while longer.
            let mut frames = Vec::new();
            rings.owned.drain(|frame| frames.push(frame));
            pool.depot().quarantine(frames, place, HOLD);
        } else {
            rings.owned.drain(|frame| pool.put_raw(frame));
        }
    }
}
