//! Type-safe wrappers of the socket options and ioctls that the ports use. Each wrapper converts the return
//! code of the system call into an [`std::io::Error`]. The length that is passed to the kernel is derived from
//! the type.
#![allow(unsafe_code, reason = "system calls; see the SAFETY comments")]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Converts the return value of a system call into a result. If the value is negative, the error is taken from `errno`.
pub(crate) fn check(code: c_int) -> io::Result<c_int> {
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(code) }
}

/// Returns the error number (errno) of an I/O error, or 0 if the error has no error number.
pub(crate) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}

/// Opens a socket that is closed when the process executes another program (close-on-exec).
pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let fd = check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[allow(clippy::cast_possible_truncation, reason = "sizes of small C structures")]
const fn len_of<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}

/// Sets a socket option whose value is a plain C type (`setsockopt`).
pub(crate) fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: `value` is valid for reads of the length passed.
    check(unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), len_of::<T>())
    })
    .map(drop)
}

/// Queries a socket option whose value is a plain C type (`getsockopt`). Bytes that the kernel does not write keep
/// their values from `default`.
pub(crate) fn get_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    default: T,
) -> io::Result<T> {
    let mut value = default;
    let mut len = len_of::<T>();
    // SAFETY: `value` is valid for writes of `len` bytes, and any bytes are a valid plain C value.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, std::ptr::from_mut(&mut value).cast(), &raw mut len)
    })?;
    Ok(value)
}

/// Binds a socket to an address that is a plain C type (`bind`).
pub(crate) fn bind<T: Copy>(fd: BorrowedFd<'_>, address: &T) -> io::Result<()> {
    // SAFETY: `address` is valid for reads of the length passed.
    check(unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(address).cast(), len_of::<T>()) }).map(drop)
}

/// Makes an ioctl whose argument is a pointer to a plain C structure. The kernel may read and write the
/// structure.
///
/// # Safety
/// The request must not access memory outside `T`. Pointers in `T` must be valid for all accesses of the
/// request.
pub(crate) unsafe fn ioctl<T>(fd: BorrowedFd<'_>, request: u64, value: &mut T) -> io::Result<c_int> {
    // SAFETY: `value` is valid for reads and writes; the rest is the caller's contract.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request as libc::Ioctl, std::ptr::from_mut(value)) })
}

/// Buffers for the sender's address and the ancillary data of a received datagram. Both buffers are in the
/// kernel's format (`struct sockaddr`, `struct cmsghdr`).
#[repr(C, align(8))]
pub(crate) struct Envelope {
    pub(crate) from: [u8; 128],
    pub(crate) control: [u8; 128],
}

/// Receives one datagram (`recvmsg`). Returns the length of the datagram and the length of the ancillary
/// data.
pub(crate) fn receive(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    envelope: &mut Envelope,
) -> io::Result<(usize, usize)> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut message = libc::msghdr {
        msg_name: envelope.from.as_mut_ptr().cast(),
        msg_namelen: 128,
        msg_iov: &raw mut part,
        msg_iovlen: 1,
        msg_control: envelope.control.as_mut_ptr().cast(),
        msg_controllen: envelope.control.len(),
        msg_flags: 0,
    };
    // SAFETY: name, part and control are valid for writes of the given lengths during the call, and any bytes
    // are valid in them.
    let length = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, 0) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    Ok((length, message.msg_controllen))
}

/// Makes an ioctl whose argument is a number.
pub(crate) fn ioctl_number(fd: BorrowedFd<'_>, request: u64, value: u64) -> io::Result<c_int> {
    // SAFETY: the request takes a plain number, so the kernel accesses no memory of this process.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request as libc::Ioctl, value) })
}

/// Returns a file descriptor for the network namespace to which a socket belongs.
pub(crate) fn namespace_of(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    /// Request number of the ioctl `SIOCGSKNS` (`linux/sockios.h`).
    const SIOCGSKNS: u64 = 0x894C;
    let fd = ioctl_number(socket, SIOCGSKNS, 0)?;
    // SAFETY: a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets a sysctl under `/proc/sys`, in the network namespace of the calling thread. A sysctl that does not exist is not
/// an error, because a kernel without the sysctl also lacks the feature.
pub(crate) fn set_sysctl(path: &str, value: &str) -> io::Result<()> {
    match std::fs::write(format!("/proc/sys/{path}"), value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Returns whether data can be read from `fd` without waiting.
pub(crate) fn is_readable(fd: impl AsFd) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry, no waiting.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 && poll.revents & libc::POLLIN != 0 }
}
