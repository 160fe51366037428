//! The [`Queue`] implementation for an AF_XDP socket.
//!
//! In copy mode, the kernel transmits only during a system call, so each burst with packets to
//! transmit makes a `sendto` call. Reception makes no system call. If the driver supports wake-up
//! requests, the queue makes a system call only when the driver requests a wake-up.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::hand_over::AfXdpHandOver;
use super::owned::OwnedFrames;
use super::rings::Rings;
use super::{AfXdpCause, AfXdpConfig, AfXdpError, call::Call, socket};
use crate::link;
use crate::memory::FrameMemory;
use crate::pool::FramePool;
use crate::quarantine::{HOLD, Place};
use crate::queue::{
    Batch, Capabilities, Exported, Queue, QueueCounters, QueueState, QueueStatus, TransmitProgress,
};
use crate::sys;

/// Maximum number of system calls that one call of `kick` makes. A kernel that transmits only 32 packets per
/// call needs eight calls for a burst.
const MAX_CALLS: u32 = 8;
/// Interval, in calls of `has_pending`, at which the queue queries the kernel for a pending error of the socket. The
/// worker calls `has_pending` before it sleeps.
const HEALTH_EVERY: u32 = 16;

/// Counters of an AF_XDP queue for system calls and errors. Only the worker that owns the queue updates the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AfXdpCounters {
    /// Number of system calls made to transmit packets or to wake the driver.
    pub calls: u64,
    /// Number of system calls that failed temporarily (EAGAIN, EBUSY, ENOBUFS). The packets that were not transmitted
    /// stay in the transmit ring.
    pub busy: u64,
    /// Number of system calls that failed because the device was down.
    pub down: u64,
    /// Number of invalid descriptors and completions that the kernel returned. A descriptor or
    /// completion is invalid if the address belongs to no frame that the kernel holds, or the data
    /// exceeds the frame. The number is 0 if the kernel works correctly.
    pub strange: u64,
    /// Number of packets that the socket cannot transmit, because they are shorter than an Ethernet header or consist
    /// of more segments than the socket supports. The engine does not send such packets.
    pub refused: u64,
}

/// A queue of a device that is accessed through an AF_XDP socket. See the module documentation.
pub struct AfXdpQueue {
    pub(super) rings: Rings,
    pub(super) fd: OwnedFd,
    pub(super) memory: Arc<FrameMemory>,
    pub(super) config: AfXdpConfig,
    pub(super) zero_copy: bool,
    pub(super) multi_buffer: bool,
    pub(super) mtu: u32,
    /// Interface index of the device, or 0 if the index is not known.
    pub(super) ifindex: u32,
    pub(super) reasons: Vec<String>,
    state: QueueState,
    idle_checks: u32,
    counters: AfXdpCounters,
}

impl AfXdpQueue {
    /// Opens and binds the socket of a queue and fills its fill ring. The queue receives frames when an XDP
    /// program redirects them to [`Self::fd`].
    ///
    /// # Errors
    /// [`AfXdpError`] with the queue, the cause and advice for the operator.
    pub fn open(config: AfXdpConfig, pool: &mut FramePool) -> Result<Self, AfXdpError> {
        let memory = pool.memory_arc();
        config.check(&memory)?;
        let info = link::find(&config.ifname).map_err(|_| config.error(AfXdpCause::NoDevice))?;
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

    /// Resumes a queue that a predecessor has exported ([`Queue::export`]). `memory` must be the predecessor's frame
    /// memory, mapped with [`FrameMemory::from_fd`].
    ///
    /// # Errors
    /// [`AfXdpError`] if the rings cannot be mapped, or if the handed-over frames are not part of `memory`.
    pub fn import(memory: Arc<FrameMemory>, from: AfXdpHandOver) -> Result<Self, AfXdpError> {
        from.config.check(&memory)?;
        if from.frames.iter().any(|frame| *frame >= memory.frames()) {
            return Err(from.config.error(AfXdpCause::HandOver("a frame lies outside of it")));
        }
        let AfXdpHandOver { fd, config, ifindex, zero_copy, multi_buffer, mtu, reasons, frames } = from;
        let bound = socket::Bound { fd, zero_copy, multi_buffer, reasons };
        let mut queue = Self::assemble(config, memory, bound, mtu)?;
        queue.ifindex = ifindex;
        let mut owned = OwnedFrames::new(queue.memory.frames());
        for frame in frames {
            owned.insert(frame);
        }
        // The visible ring entries are authoritative. A list that contradicts them belongs to another socket.
        if queue.frames_in_rings().iter().any(|frame| !owned.contains(*frame)) {
            return Err(queue.config.error(AfXdpCause::HandOver("a frame in the rings is not on the list")));
        }
        queue.rings.owned = owned;
        Ok(queue)
    }

    /// Creates a queue from a bound socket. The rings continue at the indices that the shared memory
    /// contains.
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

    /// Returns the device queue to which the socket is bound. Returns `None` if the kernel does not report
    /// the socket's namespace.
    fn place(&self) -> Option<Place> {
        Place::of(self.fd.as_fd(), self.ifindex, self.config.queue)
    }

    /// Returns the AF_XDP socket. To receive frames, the caller must insert the socket into the XSKMAP of the
    /// device's XDP program, at the index of this queue.
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

    /// Returns the number of frames that the kernel holds for this queue, in the queue's rings or internally.
    #[must_use]
    pub fn frames_owned(&self) -> u32 {
        self.rings.owned.len()
    }

    /// Returns the indices of the frames that are currently in the queue's rings, with one element for each ring entry.
    #[must_use]
    pub fn frames_in_rings(&self) -> Vec<u32> {
        self.rings.frames_in_rings(&self.memory)
    }

    /// Makes system calls until the kernel has transmitted the contents of the transmit ring. Stops early if
    /// a call takes no descriptor from the ring (because the completion ring is full or memory is short). The
    /// remaining packets are transmitted with the next burst.
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

    /// Makes one system call and updates the state of the device from its result.
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

    /// Queries the pending error of the socket, which the kernel sets when the device is deleted. A sleeping
    /// worker cannot detect the deletion in another way.
    fn check_health(&mut self) {
        if let Ok(code) = sys::get_option(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR, 0)
            && code != 0
        {
            self.state = QueueState::Gone;
        }
    }
}

/// Returns the kernel's counters of an AF_XDP socket. Control threads use this function with a duplicate of
/// the socket, while a worker owns the queue.
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

    fn set_mtu(&mut self, mtu: u32) {
        self.mtu = mtu;
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
        let Self { rings, fd, zero_copy, .. } = *self;
        // After the socket's release, the kernel writes to no frame in copy mode. The kernel may still read frames in
        // transmission. A frame that is reused corrupts the content of its old packet, but not the memory of
        // this process.
        drop(fd);
        let mut owned = rings.unmap();
        if zero_copy {
            // The driver may use the frames for some time.
            let mut frames = Vec::new();
            owned.drain(|frame| frames.push(frame));
            pool.depot().quarantine(frames, place, HOLD);
        } else {
            owned.drain(|frame| pool.put_raw(frame));
        }
    }

    fn export(self: Box<Self>, _pool: &mut FramePool) -> Exported {
        Exported::AfXdp(AfXdpHandOver {
            frames: self.rings.owned.iter().collect(),
            fd: self.fd,
            config: self.config,
            ifindex: self.ifindex,
            zero_copy: self.zero_copy,
            multi_buffer: self.multi_buffer,
            mtu: self.mtu,
            reasons: self.reasons,
        })
    }
}
