//! An AF_XDP socket as a [`Queue`].
//!
//! In copy mode, each burst that transmits makes one `sendto`, because the kernel sends nothing by itself.
//! Reception makes no system call. With a driver that supports wake-up requests, system calls are made only
//! on request.

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

/// Maximum number of system calls of one kick. On kernels with a fixed budget of 32 packets, eight calls
/// transmit a burst.
const MAX_CALLS: u32 = 8;
/// Interval of health checks: one of this number of idle checks queries the socket for a pending error.
const HEALTH_EVERY: u32 = 16;

/// Counters of kicks, which only the owning worker updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AfXdpCounters {
    /// Number of system calls made to transmit or to wake the driver.
    pub calls: u64,
    /// Number of calls that failed temporarily (EAGAIN, EBUSY, ENOBUFS). Packets that were not transmitted
    /// stay in the ring.
    pub busy: u64,
    /// Number of calls that failed because the device was down.
    pub down: u64,
    /// Number of descriptors and completions that named no frame of the queue. The number is always 0 with a
    /// correct kernel.
    pub strange: u64,
    /// Number of packets refused because they have no Ethernet header or more segments than the socket
    /// supports. The engine sends no such packets.
    pub refused: u64,
}

/// A queue of a device, over an AF_XDP socket. See the module documentation.
pub struct AfXdpQueue {
    pub(super) rings: Rings,
    pub(super) fd: OwnedFd,
    pub(super) memory: Arc<FrameMemory>,
    pub(super) config: AfXdpConfig,
    pub(super) zero_copy: bool,
    pub(super) multi_buffer: bool,
    pub(super) mtu: u32,
    /// Interface index of the device, or 0 if not known.
    pub(super) ifindex: u32,
    pub(super) reasons: Vec<String>,
    state: QueueState,
    idle_checks: u32,
    counters: AfXdpCounters,
}

impl AfXdpQueue {
    /// Opens and binds a queue and fills its fill ring. Frames arrive when an XDP program redirects to
    /// [`Self::fd`].
    ///
    /// # Errors
    /// [`AfXdpError`], with the queue, the cause and advice.
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

    /// Creates a queue over a bound socket. The rings resume at their current indices.
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

    /// Returns the queue that the socket is bound to, or `None` if the kernel does not report it.
    fn place(&self) -> Option<Place> {
        Place::of(self.fd.as_fd(), self.ifindex, self.config.queue)
    }

    /// Returns the socket, which must be inserted into the XSKMAP of the device's XDP program at this queue's
    /// index.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the configuration with which the queue was opened.
    #[must_use]
    pub fn config(&self) -> &AfXdpConfig {
        &self.config
    }

    /// Returns the counters of system calls and errors.
    #[must_use]
    pub fn kicks(&self) -> AfXdpCounters {
        AfXdpCounters { strange: self.rings.strange, refused: self.rings.refused, ..self.counters }
    }

    /// Returns the number of frames that the kernel holds for this queue, in the rings and internally.
    #[must_use]
    pub fn frames_owned(&self) -> u32 {
        self.rings.owned.len()
    }

    /// Returns the frames that are visible in the rings, one element for each ring entry.
    #[must_use]
    pub fn frames_in_rings(&self) -> Vec<u32> {
        self.rings.frames_in_rings(&self.memory)
    }

    /// Updates the MTU after a change of the device's MTU.
    pub fn set_mtu(&mut self, mtu: u32) {
        self.mtu = mtu;
    }

    /// Transmits the contents of the transmit ring. The loop ends when a call takes no descriptor off the
    /// ring (completion ring full, no memory). The rest is left for the next burst.
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

    /// Makes one system call and derives the device's state from its result.
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

    /// Queries the socket's pending error, which the kernel sets when the device is deleted. A sleeping
    /// worker has no other indication of the deletion.
    fn check_health(&mut self) {
        if let Ok(code) = sys::get_option(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR, 0)
            && code != 0
        {
            self.state = QueueState::Gone;
        }
    }
}

/// Returns the kernel's counters of a socket. For control threads that hold a duplicate of the socket while a
/// worker owns the queue.
#[must_use]
pub fn statistics(socket: BorrowedFd<'_>) -> QueueCounters {
    // Older kernels know only the first three numbers. The others stay 0.
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
        // The kernel also counts a frame without a ready buffer in this number.
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
        // Completions are also reclaimed without a call. Completions arrive late if the receiver holds
        // packets, and a port without further transmissions must not keep the frames of these packets.
        self.rings.reclaim(pool);
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        // A dead socket is always readable.
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
        // After the close, the kernel writes to no frame in copy mode. The kernel may still read frames in
        // transmission. A frame that is reused corrupts the content of its old packet, but not the memory of
        // this process.
        drop(fd);
        if zero_copy {
            // The driver may use the frames for some time.
            let mut frames = Vec::new();
            rings.owned.drain(|frame| frames.push(frame));
            pool.depot().quarantine(frames, place, HOLD);
        } else {
            rings.owned.drain(|frame| pool.put_raw(frame));
        }
    }
}
