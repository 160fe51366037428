//! What programs of a user's own need besides: their maps pinned by us alone, and one bound that they may not refer to.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

use libbpf_rs::libbpf_sys as ffi;
use libbpf_rs::{AsRawLibbpf, OpenMapMut};

use super::check;

/// Makes an object's declaration of where a map is pinned void.
pub(crate) fn forget_pin_path(map: &mut OpenMapMut<'_>) -> io::Result<()> {
    // SAFETY: the map of an open object that we alone have; a null path means that it is not pinned at all.
    check(unsafe { ffi::bpf_map__set_pin_path(map.as_libbpf_object().as_ptr(), ptr::null()) }).map(drop)
}

/// Returns when every program that runs now has come to its end.
pub(crate) fn wait_for_programs() {
    // SAFETY: takes integers; MEMBARRIER_CMD_GLOBAL waits for a grace period of RCU, under which programs run.
    let refused = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) } != 0;
    if refused {
        // A kernel with cores of its own for user space (nohz_full). Programs run for microseconds.
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Lets a program keep a map, and tell of it, that its instructions need not refer to.
pub(crate) fn bind_map(program: BorrowedFd<'_>, map: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes two descriptors; null options are allowed.
    check(unsafe { ffi::bpf_prog_bind_map(program.as_raw_fd(), map.as_raw_fd(), ptr::null()) }).map(drop)
}
