//! Registration of the frame memory as the umem of an AF_XDP socket, and the check whether the kernel has
//! released a queue. The module depends only on the frame memory, so the quarantine of frames can use the
//! check.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::memory::{FrameMemory, HugePages, MemoryConfig};
use crate::sys;

/// Registers frame memory as the umem of a socket (`XDP_UMEM_REG`).
pub(super) fn register(fd: BorrowedFd<'_>, memory: &FrameMemory) -> io::Result<()> {
    let registration = libc::xdp_umem_reg {
        addr: memory.base().as_ptr().expose_provenance() as u64,
        len: memory.bytes(),
        chunk_size: memory.frame_size(),
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    sys::set_option(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)
}

/// Returns the socket address with which an AF_XDP socket is bound to a queue. `flags` are bind flags (`XDP_*`).
#[allow(clippy::cast_possible_truncation, reason = "the address family is a small constant")]
pub(super) fn address(ifindex: u32, queue: u32, flags: u16) -> libc::sockaddr_xdp {
    libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: ifindex,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    }
}

/// Returns whether a socket can be bound to a queue of a device in the calling thread's namespace. This is
/// not possible while a socket is bound to the queue or the kernel has not released a closed socket. Returns
/// `None` if the check fails for another reason. The queue of a deleted device counts as free.
pub(crate) fn is_free(ifindex: u32, queue: u32) -> Option<bool> {
    const RING: u32 = 64;
    let memory =
        FrameMemory::new(MemoryConfig { frames: RING, frame_size: 2048, huge_pages: HugePages::Off });
    let memory = memory.ok()?;
    let fd = sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0).ok()?;
    register(fd.as_fd(), &memory).ok()?;
    for name in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING] {
        sys::set_option(fd.as_fd(), libc::SOL_XDP, name, &RING).ok()?;
    }
    match sys::bind(fd.as_fd(), &address(ifindex, queue, libc::XDP_COPY)) {
        Ok(()) => Some(true),
        Err(error) => match sys::errno(&error) {
            libc::EBUSY => Some(false),
            libc::ENODEV | libc::ENXIO => Some(true),
            _ => None,
        },
    }
}
