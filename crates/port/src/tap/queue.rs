//! The [`Queue`] implementation for one file descriptor of a TAP.
//!
//! The queue keeps a list of free frames that is long enough for the largest packet (64 KiB before
//! segmentation), and reads each packet into the frames of this list. Frames that the packet does not fill are
//! used for the next packet. While free frames are scarce, a burst takes few of them, and packets wait in the kernel's
//! queue of the TAP. The function `transmit` only collects packets, and `kick` writes them to the TAP.
#![allow(unsafe_code, reason = "vectored reads and writes on frame memory; see the SAFETY comments")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use arrayvec::ArrayVec;

use super::control::TapControl;
use super::hand_over::TapHandOver;
use crate::memory::{FrameMemory, HEADROOM};
use crate::packet::Packet;
use crate::pool::FramePool;
use crate::queue::{BURST, Batch, Capabilities, Exported, Queue, QueueCounters, QueueState, QueueStatus};
use crate::sys;
use crate::vnet::{self, VNET_HEADER};

/// Length in bytes of the largest frame that the kernel delivers. The frame consists of a 64 KiB IP packet
/// before segmentation, the Ethernet header, and two VLAN tags.
const LARGEST: u32 = 65536 + 22;
/// Maximum number of free frames in the list into which a packet is read. With frames of 2048 bytes, 37 frames are
/// sufficient.
const STRIP: usize = 40;
/// Maximum number of frames of which a transmitted packet may consist.
const MAX_SEGMENTS: u16 = 63;
/// Maximum number of packets that one call of `receive` reads. Each read is a system call.
const READS: usize = 64;
/// Number of consecutive reads without a packet after which only one of [`IDLE_SKIP`] calls of `receive`
/// makes a system call.
const IDLE_AFTER: u32 = 16;
const IDLE_SKIP: u32 = 8;

/// A queue of a TAP, with its file descriptor. See the module documentation.
pub struct TapQueue {
    fd: OwnedFd,
    kind: &'static str,
    mtu: u32,
    uso: bool,
    landing: ArrayVec<u32, STRIP>,
    pending: ArrayVec<Packet, BURST>,
    state: QueueState,
    idle: u32,
    counters: QueueCounters,
}

const EMPTY: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

impl TapQueue {
    pub(super) fn new(fd: OwnedFd, kind: &'static str, mtu: u32, uso: bool) -> Self {
        Self {
            fd,
            kind,
            mtu,
            uso,
            landing: ArrayVec::new(),
            pending: ArrayVec::new(),
            state: QueueState::Up,
            idle: 0,
            counters: QueueCounters::default(),
        }
    }

    /// Returns a handle by which another thread can control the TAP.
    ///
    /// # Errors
    /// The error of duplicating the file descriptor.
    pub fn control(&self) -> io::Result<TapControl> {
        self.fd.try_clone().map(TapControl::new)
    }

    /// Resumes a queue that a predecessor process has exported ([`Queue::export`]).
    #[must_use]
    pub fn import(from: TapHandOver) -> Self {
        Self::new(from.fd, from.kind, from.mtu, from.uso)
    }

    fn release(&mut self, pool: &mut FramePool) {
        for frame in self.landing.drain(..) {
            pool.put_raw(frame);
        }
        for packet in self.pending.drain(..) {
            pool.free(packet);
        }
    }

    /// Returns the number of frames that one burst may take from the pool. The number is an eighth of the free frames
    /// (as for one refill of an AF_XDP socket), but at least the number of frames that the largest packet needs. Frames
    /// that are reserved for AF_XDP sockets are never taken. Therefore packets of many frames do not take the last free
    /// frames from other ports.
    fn allowance(pool: &FramePool) -> usize {
        let free = pool.depot().available() + pool.len();
        let unreserved = free.saturating_sub(pool.depot().reserved(free));
        (free / 8).max(Self::needed(pool)).min(unreserved)
    }

    /// Returns the number of frames that the largest packet needs.
    fn needed(pool: &FramePool) -> usize {
        LARGEST.div_ceil(pool.memory().data_room()) as usize
    }

    /// Fills the list of free frames into which packets are read, and subtracts their number from `allowance`. Returns
    /// false if the allowance does not suffice or no frame is free.
    fn prepare(&mut self, pool: &mut FramePool, allowance: &mut usize) -> bool {
        let missing = Self::needed(pool).saturating_sub(self.landing.len());
        if missing > *allowance {
            return false;
        }
        *allowance -= missing;
        for _ in 0..missing {
            let Some(frame) = pool.take_raw() else { return false };
            self.landing.push(frame);
        }
        true
    }

    /// Reads one frame from the TAP. Returns `None` if no frame is available. Returns the packet as an error
    /// if its virtio header contradicts its contents.
    fn read(&mut self, memory: &FrameMemory) -> Option<Result<Packet, Packet>> {
        let mut header = [0; VNET_HEADER];
        let mut parts = [EMPTY; STRIP + 1];
        parts[0] = libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: VNET_HEADER };
        let room = memory.data_room();
        for (part, frame) in parts[1..].iter_mut().zip(&self.landing) {
            *part = libc::iovec { iov_base: memory.raw(*frame, HEADROOM).cast(), iov_len: room as usize };
        }
        let count = i32::try_from(1 + self.landing.len()).unwrap_or(0);
        // SAFETY: each part is valid for writes of its length. The header is a local variable, and the frames
        // of the list are owned, without a packet or slice of them.
        let got = unsafe { libc::readv(self.fd.as_raw_fd(), parts.as_ptr(), count) };
        let Ok(got) = usize::try_from(got) else {
            self.failed_read(&io::Error::last_os_error());
            return None;
        };
        self.state = QueueState::Up;
        let len = u32::try_from(got.saturating_sub(VNET_HEADER)).unwrap_or(0);
        if len == 0 || len > LARGEST {
            self.counters.rx_invalid += 1;
            return None;
        }
        let mut rest = len;
        let frames = self.landing.drain(..len.div_ceil(room) as usize).map(|frame| {
            let n = rest.min(room);
            rest -= n;
            (frame, HEADROOM, u16::try_from(n).unwrap_or(0))
        });
        let mut packet = Packet::chain(memory, frames)?;
        match vnet::decode(&header, &mut packet, memory) {
            Ok(()) => Some(Ok(packet)),
            Err(_) => Some(Err(packet)),
        }
    }

    /// Evaluates the result of writing a packet, which is an error number or 0 for success. Returns true if the
    /// packet was written or must be dropped. Returns false if the kernel accepts no more packets for now, so
    /// that the packet must be written again later.
    fn written(&mut self, errno: i32) -> bool {
        match errno {
            0 => {
                self.state = QueueState::Up;
                return true;
            }
            libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM => return false,
            libc::EBADFD | libc::EBADF | libc::ENODEV => self.state = QueueState::Gone,
            // The interface is down. Frames are lost, as with an unplugged cable.
            libc::EIO | libc::ENETDOWN => self.state = QueueState::Down,
            _ => {}
        }
        self.counters.tx_invalid += 1;
        true
    }

    fn failed_read(&mut self, error: &io::Error) {
        match sys::errno(error) {
            libc::EAGAIN | libc::EINTR => {}
            libc::EBADFD | libc::EBADF | libc::ENODEV => self.state = QueueState::Gone,
            libc::EIO | libc::ENETDOWN => self.state = QueueState::Down,
            _ => self.counters.rx_invalid += 1,
        }
    }
}

/// Writes one packet with its virtio header to the TAP. Returns 0 for success or the error number.
fn write(fd: BorrowedFd<'_>, memory: &FrameMemory, packet: &Packet) -> i32 {
    let header = vnet::encode(packet, memory);
    let mut parts = [EMPTY; MAX_SEGMENTS as usize + 1];
    parts[0] = libc::iovec { iov_base: header.as_ptr().cast_mut().cast(), iov_len: VNET_HEADER };
    let mut count = 1;
    for bytes in packet.parts(memory) {
        parts[count] = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        count += 1;
    }
    let n = i32::try_from(count).unwrap_or(0);
    // SAFETY: each part is valid for reads of its length while `packet` is borrowed.
    let result = unsafe { libc::writev(fd.as_raw_fd(), parts.as_ptr(), n) };
    if result < 0 { sys::errno(&io::Error::last_os_error()) } else { 0 }
}

impl Queue for TapQueue {
    fn receive(&mut self, pool: &mut FramePool, out: &mut Batch) -> usize {
        let before = out.len();
        if self.idle >= IDLE_AFTER && !self.idle.is_multiple_of(IDLE_SKIP) {
            self.idle = self.idle.wrapping_add(1);
            return 0;
        }
        let mut allowance = Self::allowance(pool);
        for _ in 0..READS.min(out.remaining_capacity()) {
            if self.state == QueueState::Gone {
                break;
            }
            if !self.prepare(pool, &mut allowance) {
                // Packets that arrive while no frame is free wait in the kernel, which drops them when its queue is
                // full.
                self.counters.rx_fill_empty += u64::from(out.len() == before);
                break;
            }
            match self.read(pool.memory()) {
                Some(Ok(packet)) => out.push(packet),
                Some(Err(packet)) => {
                    self.counters.rx_invalid += 1;
                    pool.free(packet);
                }
                None => break,
            }
        }
        let received = out.len() - before;
        self.idle = if received > 0 { 0 } else { self.idle.wrapping_add(1) };
        received
    }

    fn transmit(&mut self, pool: &mut FramePool, batch: &mut Batch) -> usize {
        if self.state == QueueState::Gone {
            return 0;
        }
        let taken = batch.len().min(self.pending.remaining_capacity());
        for packet in batch.drain(..taken) {
            if packet.segments() > MAX_SEGMENTS {
                self.counters.tx_invalid += 1;
                pool.free(packet);
            } else {
                self.pending.push(packet);
            }
        }
        taken
    }

    fn kick(&mut self, pool: &mut FramePool) {
        let mut done = 0;
        while done < self.pending.len() {
            let errno = write(self.fd.as_fd(), pool.memory(), &self.pending[done]);
            if !self.written(errno) {
                break;
            }
            done += 1;
        }
        for packet in self.pending.drain(..done) {
            pool.free(packet);
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        (self.state != QueueState::Gone).then(|| self.fd.as_fd())
    }

    fn has_pending(&mut self) -> bool {
        // The next receive makes a system call regardless of the idle count.
        self.idle = 0;
        self.state != QueueState::Gone && (!self.pending.is_empty() || sys::is_readable(self.fd.as_fd()))
    }

    fn set_mtu(&mut self, mtu: u32) {
        self.mtu = mtu;
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            partial_checksum: true,
            tcp_segmentation: true,
            udp_segmentation: self.uso,
            max_segments: MAX_SEGMENTS,
            max_frame: self.mtu + 14,
        }
    }

    fn counters(&self) -> QueueCounters {
        self.counters
    }

    fn status(&self) -> QueueStatus {
        QueueStatus { kind: self.kind, ..QueueStatus::default() }
    }

    fn state(&self) -> QueueState {
        self.state
    }

    fn in_flight(&self) -> usize {
        self.pending.len()
    }

    fn close(mut self: Box<Self>, pool: &mut FramePool) {
        self.release(pool);
    }

    fn export(mut self: Box<Self>, pool: &mut FramePool) -> Exported {
        // Packets that wait for transmission are written, as the worker would have done.
        self.kick(pool);
        self.release(pool);
        Exported::Tap(TapHandOver { fd: self.fd, kind: self.kind, mtu: self.mtu, uso: self.uso })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::sync::Arc;

    use super::*;
    use crate::memory::{HugePages, MemoryConfig};
    use crate::pool::{Depot, LEAST_FILL};

    /// Creates a queue whose packets come from a socket instead of a TAP.
    fn queue() -> (TapQueue, UnixDatagram) {
        let (near, far) = UnixDatagram::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        (TapQueue::new(near.into(), "tap", 1500, true), far)
    }

    fn depot(frames: u32) -> Arc<Depot> {
        let config = MemoryConfig { frames, frame_size: 2048, huge_pages: HugePages::Off };
        Depot::new(Arc::new(FrameMemory::new(config).unwrap()))
    }

    /// Sends packets of the largest size. Returns the number of packets that the kernel's queue holds.
    fn fill(far: &UnixDatagram) -> usize {
        let packet = vec![0; VNET_HEADER + LARGEST as usize];
        (0..4).take_while(|_| far.send(&packet).is_ok()).count()
    }

    /// Receives and keeps packets until a burst is empty.
    fn receive(queue: &mut TapQueue, far: &UnixDatagram, pool: &mut FramePool, kept: &mut Vec<Packet>) {
        loop {
            let mut batch = Batch::new();
            fill(far);
            if queue.receive(pool, &mut batch) == 0 {
                return;
            }
            kept.extend(batch);
        }
    }

    /// Checks that packets of many frames, which are never released, leave frames for the fill rings of AF_XDP sockets.
    #[test]
    fn packets_of_many_frames_leave_frames_for_other_ports() {
        let depot = depot(1024);
        let shares: Vec<_> = (0..4).map(|_| depot.share()).collect();
        let mut pool = depot.pool();
        let (mut queue, far) = queue();
        let mut kept = Vec::new();
        receive(&mut queue, &far, &mut pool, &mut kept);
        assert!(kept.len() > 4, "{} packets", kept.len());
        assert!(depot.available() + pool.len() >= 4 * LEAST_FILL as usize);
        assert!(queue.counters().rx_fill_empty > 0);
        // Without other ports, the last frames are taken as well.
        drop(shares);
        receive(&mut queue, &far, &mut pool, &mut kept);
        assert!(depot.available() + pool.len() < TapQueue::needed(&pool));
        for packet in kept {
            pool.free(packet);
        }
        assert!(queue.receive(&mut pool, &mut Batch::new()) > 0);
    }

    /// Checks that a TAP receives beside AF_XDP sockets for which all free frames would be reserved if their fill rings
    /// were empty.
    #[test]
    fn full_fill_rings_leave_frames_for_a_tap() {
        let depot = depot(1024);
        let mut shares: Vec<_> = (0..12).map(|_| depot.share()).collect();
        let mut pool = depot.pool();
        let rings: Vec<_> = (0..512).map(|_| pool.take_raw().unwrap()).collect();
        let (mut queue, far) = queue();
        let mut kept = Vec::new();
        receive(&mut queue, &far, &mut pool, &mut kept);
        assert_eq!(kept.len(), 0, "the free frames are reserved for empty rings");
        shares.iter_mut().for_each(|share| share.set_lacking(0));
        receive(&mut queue, &far, &mut pool, &mut kept);
        assert!(kept.len() >= 4, "{} packets", kept.len());
        kept.into_iter().for_each(|packet| pool.free(packet));
        rings.into_iter().for_each(|frame| pool.put_raw(frame));
    }
}
