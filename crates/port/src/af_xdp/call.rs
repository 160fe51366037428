//! The two system calls of the data path. At most one of them is made per burst and queue, except for
//! repeated transmit calls.
#![allow(unsafe_code, reason = "system calls without arguments that point to memory")]

use std::os::fd::{AsRawFd, BorrowedFd};

/// Side of the socket that the kernel is to process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// The transmit ring.
    Send,
    /// The fill ring, and the device's receive queue when busy polling.
    Receive,
}

impl Call {
    /// Makes the system call. Returns 0 or the error number.
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
