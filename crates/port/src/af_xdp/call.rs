//! The two system calls that an AF_XDP queue makes on the data path. A queue makes at most one of
//! these calls per burst, but may repeat the call for transmission.
#![allow(unsafe_code, reason = "system calls without arguments that point to memory")]

use std::os::fd::{AsRawFd, BorrowedFd};

/// A system call of an AF_XDP socket, with the rings that the kernel processes during the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// The system call `sendto`, which makes the kernel process the transmit ring.
    Send,
    /// The system call `recvfrom`, which makes the kernel process the fill ring, and also the
    /// device's receive queue if busy polling is enabled.
    Receive,
}

impl Call {
    /// Makes the system call. Returns 0 for success or the error number.
    #[inline]
    pub(super) fn make(self, fd: BorrowedFd<'_>) -> i32 {
        let fd = fd.as_raw_fd();
        // SAFETY: null buffers of length 0; the kernel only accesses the socket's rings.
        let result = unsafe {
            match self {
                Self::Send => libc::sendto(fd, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0),
                Self::Receive => {
                    let none = std::ptr::null_mut();
                    libc::recvfrom(
                        fd,
                        none,
                        0,
                        libc::MSG_DONTWAIT,
                        std::ptr::null_mut(),
                        std::ptr::null_mut(),
                    )
                }
            }
        };
        if result < 0 { std::io::Error::last_os_error().raw_os_error().unwrap_or(0) } else { 0 }
    }
}
