//! Opens AF_XDP sockets. The module registers the umem, creates the rings, sets the socket options, and binds
//! the socket in the best mode that the device supports.
//!
//! The modes are tried from best to worst: zero-copy mode before copy mode, and several frames per packet
//! before one frame. Each attempt uses a new socket, because a refused bind leaves `XDP_UMEM_SG_FLAG` on the
//! memory of its socket (`xp_assign_dev`), and drivers would then get shorter buffers. The reason of each
//! refusal is kept as text for `show ports` and `doctor`.
//!
//! Zero-copy mode is not tried if the driver reports that the mode is not supported, because the
//! kernel pins all frames and rebuilds its tables for each attempt. The code runs on control
//! threads and may block.
#![allow(unsafe_code, reason = "maps the rings; see the SAFETY comments")]
#![allow(clippy::disallowed_methods, reason = "for control threads, when a queue is opened")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use super::ring::{Consumer, Producer, Shared};
use super::rings::Rings;
use super::{AfXdpCause, AfXdpConfig, AfXdpError, BusyPoll, ZeroCopy};
use super::{abi, umem};
use crate::memory::FrameMemory;
use crate::netdev;
use crate::sys;

/// Size in bytes of the send buffer to request for each packet that may be in transmission. The kernel doubles the
/// requested size, and charges the size of each packet's skb to the buffer. The doubling is needed because the skb of a
/// packet in a frame of 2048 bytes is larger than the packet.
const CHARGE: u32 = 2048;
/// Pause between two attempts to bind to a queue whose previous socket the kernel has not released.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// A bound AF_XDP socket with its mode, and the reasons why better modes were not used.
pub(super) struct Bound {
    pub(super) fd: OwnedFd,
    pub(super) zero_copy: bool,
    pub(super) multi_buffer: bool,
    pub(super) reasons: Vec<String>,
}

/// A mode in which an AF_XDP socket can be bound: with or without zero-copy, and with one or several frames per packet.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Mode {
    zero_copy: bool,
    multi_buffer: bool,
}

impl Mode {
    fn flags(self) -> u16 {
        let copy = if self.zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
        libc::XDP_USE_NEED_WAKEUP | copy | if self.multi_buffer { libc::XDP_USE_SG } else { 0 }
    }

    fn name(self) -> &'static str {
        match (self.zero_copy, self.multi_buffer) {
            (true, true) => "zero copy with several buffers a packet",
            (true, false) => "zero copy",
            (false, true) => "copy mode with several buffers a packet",
            (false, false) => "copy mode",
        }
    }
}

/// Opens a socket and binds it in the best mode that both `config` and the device allow.
pub(super) fn open(config: &AfXdpConfig, device: &Device, memory: &FrameMemory) -> Result<Bound, AfXdpError> {
    let mut reasons = Vec::new();
    let mut last = AfXdpCause::NoMode;
    let lacks_zero_copy = config.zero_copy == ZeroCopy::Auto && !may_have_zero_copy(device.ifindex);
    if lacks_zero_copy {
        reasons.push("the driver has no zero copy".to_owned());
    }
    for mode in modes(config, device, memory) {
        if lacks_zero_copy && mode.zero_copy {
            continue;
        }
        let bound =
            prepare(config, memory).and_then(|fd| bind(fd.as_fd(), config, device, mode).map(|()| fd));
        match bound {
            Ok(fd) => {
                let options: libc::xdp_options = sys::get_option(
                    fd.as_fd(),
                    libc::SOL_XDP,
                    libc::XDP_OPTIONS,
                    libc::xdp_options { flags: 0 },
                )
                .unwrap_or(libc::xdp_options { flags: 0 });
                let zero_copy = options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0;
                return Ok(Bound { fd, zero_copy, multi_buffer: mode.multi_buffer, reasons });
            }
            Err(AfXdpCause::Mode { mode, source }) => {
                reasons.push(format!("the driver refuses {mode} ({source})"));
                last = AfXdpCause::Mode { mode, source };
            }
            Err(cause) => return Err(config.error(cause)),
        }
    }
    Err(config.error(last))
}

/// Returns whether the driver of the device may support zero-copy mode. Returns true if the kernel
/// does not report whether the driver supports the mode.
fn may_have_zero_copy(ifindex: u32) -> bool {
    let features = netdev::xdp_features_of(ifindex).ok().flatten();
    features.is_none_or(|bits| bits & netdev::XSK_ZERO_COPY != 0)
}

fn modes(config: &AfXdpConfig, device: &Device, memory: &FrameMemory) -> Vec<Mode> {
    let fits_one = device.mtu + 18 <= memory.data_room();
    let zero_copies: &[bool] = match config.zero_copy {
        ZeroCopy::Auto => &[true, false],
        ZeroCopy::Require => &[true],
        ZeroCopy::Off => &[false],
    };
    let mut modes = Vec::new();
    for &zero_copy in zero_copies {
        if config.multi_buffer {
            modes.push(Mode { zero_copy, multi_buffer: true });
        }
        // Without multi-buffer mode, packets that do not fit into one frame would be lost silently.
        if fits_one || !config.multi_buffer {
            modes.push(Mode { zero_copy, multi_buffer: false });
        }
    }
    modes
}

/// Returns a socket with its umem and its rings, which is ready to be bound.
fn prepare(config: &AfXdpConfig, memory: &FrameMemory) -> Result<OwnedFd, AfXdpCause> {
    let fd = sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0).map_err(|e| match sys::errno(&e) {
        libc::EAFNOSUPPORT => AfXdpCause::NoAfXdp,
        libc::EPERM | libc::EACCES => AfXdpCause::Privilege,
        _ => AfXdpCause::os("socket(AF_XDP)", e),
    })?;
    register_umem(fd.as_fd(), memory)?;
    for (call, name) in [
        ("setsockopt(XDP_UMEM_FILL_RING)", libc::XDP_UMEM_FILL_RING),
        ("setsockopt(XDP_UMEM_COMPLETION_RING)", libc::XDP_UMEM_COMPLETION_RING),
        ("setsockopt(XDP_RX_RING)", libc::XDP_RX_RING),
        ("setsockopt(XDP_TX_RING)", libc::XDP_TX_RING),
    ] {
        sys::set_option(fd.as_fd(), libc::SOL_XDP, name, &config.ring_size)
            .map_err(|e| AfXdpCause::os(call, e))?;
    }
    if let Some(busy) = config.busy_poll {
        set_busy_poll(fd.as_fd(), busy)?;
    }
    // Kernels before 6.17 do not know this option and transmit 32 packets per call. `kick` repeats the call.
    let budget = config.ring_size.clamp(abi::TX_BATCH, super::TX_BUDGET);
    let _ = sys::set_option(fd.as_fd(), libc::SOL_XDP, abi::XDP_MAX_TX_SKB_BUDGET, &budget);
    raise_send_buffer(fd.as_fd(), config.ring_size);
    Ok(fd)
}

/// Enlarges the send buffer of the socket, so that transmission is limited by the ring and not by the buffer.
/// In copy mode, each packet in transmission is charged to the send buffer, and the default buffer is
/// sufficient for fewer than 300 packets. Without the privilege to exceed the system's limit, the buffer has
/// the size of this limit.
fn raise_send_buffer(fd: BorrowedFd<'_>, ring_size: u32) {
    let bytes = i32::try_from(ring_size.saturating_mul(CHARGE)).unwrap_or(i32::MAX / 2);
    if sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes).is_err() {
        let _ = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes);
    }
}

fn register_umem(fd: BorrowedFd<'_>, memory: &FrameMemory) -> Result<(), AfXdpCause> {
    umem::register(fd, memory).map_err(|e| match sys::errno(&e) {
        libc::ENOBUFS | libc::ENOMEM | libc::EPERM => {
            AfXdpCause::MemoryLock { bytes: memory.bytes(), source: e }
        }
        _ => AfXdpCause::os("setsockopt(XDP_UMEM_REG)", e),
    })
}

fn set_busy_poll(fd: BorrowedFd<'_>, busy: BusyPoll) -> Result<(), AfXdpCause> {
    let int = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    for (name, value) in [
        (libc::SO_PREFER_BUSY_POLL, 1),
        (libc::SO_BUSY_POLL, int(busy.microseconds)),
        (libc::SO_BUSY_POLL_BUDGET, int(busy.budget)),
    ] {
        sys::set_option(fd, libc::SOL_SOCKET, name, &value)
            .map_err(|e| AfXdpCause::os("setsockopt(SO_BUSY_POLL)", e))?;
    }
    Ok(())
}

fn bind(fd: BorrowedFd<'_>, config: &AfXdpConfig, device: &Device, mode: Mode) -> Result<(), AfXdpCause> {
    let address = umem::address(device.ifindex, config.queue, mode.flags());
    let begin = Instant::now();
    loop {
        let Err(error) = sys::bind(fd, &address) else { return Ok(()) };
        match sys::errno(&error) {
            // The kernel releases a closed socket's queue only after the last transmitted packet has been
            // consumed.
            libc::EBUSY if begin.elapsed() < config.busy_wait => std::thread::sleep(BUSY_PAUSE),
            libc::EBUSY => return Err(AfXdpCause::QueueBusy),
            libc::ENODEV => return Err(AfXdpCause::NoDevice),
            libc::ENETDOWN => return Err(AfXdpCause::DeviceDown),
            libc::EPERM | libc::EACCES => return Err(AfXdpCause::Privilege),
            libc::EINVAL if config.queue >= device.queues => {
                return Err(AfXdpCause::NoQueue { queues: device.queues });
            }
            _ => return Err(AfXdpCause::Mode { mode: mode.name(), source: error }),
        }
    }
}

/// Properties of a device that must be known before a socket is bound to it.
pub(super) struct Device {
    pub(super) ifindex: u32,
    pub(super) mtu: u32,
    /// Number of receive queues in use. If the driver does not report this number, the field is the
    /// number of receive queues with which the device was created.
    pub(super) queues: u32,
}

/// Maps the four rings of a socket. The rings continue at the indices in the shared memory. The
/// kernel does not report which frames the kernel holds, so the caller must set the owned frames.
pub(super) fn map_rings(fd: BorrowedFd<'_>, ring_size: u32) -> Result<[RingOf; 4], AfXdpCause> {
    let zero = libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
    let empty = libc::xdp_mmap_offsets { rx: zero, tx: zero, fr: zero, cr: zero };
    let offsets = sys::get_option(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, empty)
        .map_err(|e| AfXdpCause::os("getsockopt(XDP_MMAP_OFFSETS)", e))?;
    let descriptor = size_of::<abi::Descriptor>();
    Ok([
        RingOf::map(fd, libc::XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, ring_size, size_of::<u64>())?,
        RingOf::map(fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, ring_size, size_of::<u64>())?,
        RingOf::map(fd, libc::XDP_PGOFF_RX_RING.unsigned_abs(), &offsets.rx, ring_size, descriptor)?,
        RingOf::map(fd, libc::XDP_PGOFF_TX_RING.unsigned_abs(), &offsets.tx, ring_size, descriptor)?,
    ])
}

/// A mapped ring whose entry type is not selected yet.
pub(super) struct RingOf {
    base: NonNull<u8>,
    len: usize,
    offsets: libc::xdp_ring_offset,
    size: u32,
}

impl RingOf {
    fn map(
        fd: BorrowedFd<'_>,
        page_offset: u64,
        offsets: &libc::xdp_ring_offset,
        size: u32,
        entry: usize,
    ) -> Result<Self, AfXdpCause> {
        let fail = |e: rustix::io::Errno| AfXdpCause::os("mmap of an AF_XDP ring", e.into());
        let len = usize::try_from(offsets.desc).unwrap_or(usize::MAX).saturating_add(size as usize * entry);
        let (prot, flags) = (
            rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
            rustix::mm::MapFlags::SHARED | rustix::mm::MapFlags::POPULATE,
        );
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, fd, page_offset) }
            .map_err(fail)?;
        let base = NonNull::new(base.cast()).ok_or_else(|| fail(rustix::io::Errno::FAULT))?;
        Ok(Self { base, len, offsets: *offsets, size })
    }

    fn shared<T: Copy>(self) -> Result<Shared<T>, AfXdpCause> {
        // SAFETY: the kernel mapped this ring of `T`; the value is consumed, so no other code unmaps it.
        let shared = unsafe { Shared::from_mapping(self.base, self.len, &self.offsets, self.size) };
        shared.ok_or_else(|| {
            AfXdpCause::os("ring layout of AF_XDP", io::Error::from_raw_os_error(libc::EINVAL))
        })
    }
}

/// Creates the four rings of a socket with an empty set of owned frames.
pub(super) fn rings(
    fd: BorrowedFd<'_>,
    ring_size: u32,
    fill_target: u32,
    frames: u32,
) -> Result<Rings, AfXdpCause> {
    let [fill, completion, rx, tx] = map_rings(fd, ring_size)?;
    Ok(Rings {
        fill: Producer::new(fill.shared()?),
        completion: Consumer::new(completion.shared()?),
        rx: Consumer::new(rx.shared()?),
        tx: Producer::new(tx.shared()?),
        owned: super::owned::OwnedFrames::new(frames),
        fill_target: fill_target.clamp(1, ring_size),
        share: None,
        max_segments: 1,
        strange: 0,
        refused: 0,
    })
}
