//! Kernel calls for custom programs. These calls ensure that only this crate pins the maps of a custom program, and
//! bind a map to a custom program whose instructions do not refer to the map.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

use libbpf_rs::libbpf_sys as ffi;
use libbpf_rs::{AsRawLibbpf, OpenMapMut};

use super::{MapKind, MapSpec, check, map_create, map_update};

/// Removes the pin path that an object declares for a map, so libbpf does not pin the map.
pub(crate) fn forget_pin_path(map: &mut OpenMapMut<'_>) -> io::Result<()> {
    // SAFETY: the map belongs to an open object that is borrowed exclusively. A null path means that the map
    // is not pinned.
    check(unsafe { ffi::bpf_map__set_pin_path(map.as_libbpf_object().as_ptr(), ptr::null()) }).map(drop)
}

/// Waits until every BPF program run that is in progress has ended.
pub(crate) fn wait_for_programs() {
    if wait_by_map().is_ok() {
        return;
    }
    // SAFETY: the call takes integers. With more than one CPU, MEMBARRIER_CMD_GLOBAL waits for an RCU grace period,
    // which does not end before the running programs end.
    let refused = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) } != 0;
    if refused {
        // The kernel refuses the call if some CPUs are reserved for user space (nohz_full). A program run takes
        // microseconds, so that all runs end within a second.
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Waits for BPF program runs by updating a map of maps. Before the update returns, all programs that may
/// have found the old map in the slot have ended (Linux 4.18 and later: `maybe_wait_bpf_programs`).
///
/// This method works with any number of CPUs, whereas `membarrier` returns immediately on a machine with a single CPU.
/// The method also works with CPUs reserved for user space (nohz_full), on which the kernel refuses `membarrier`.
pub(crate) fn wait_by_map() -> io::Result<()> {
    /// An outer map with one slot, and the inner map for the slot.
    static MAPS: OnceLock<io::Result<(OwnedFd, OwnedFd)>> = OnceLock::new();
    let spec = |name, kind, value| MapSpec { name, kind, key: 4, value, entries: 1 };
    let made = MAPS.get_or_init(|| {
        let inner = map_create(spec("grace_inner", MapKind::Array, 4), None)?;
        let outer = map_create(spec("grace_outer", MapKind::Outer, 4), Some(inner.as_fd()))?;
        Ok((outer, inner))
    });
    let (outer, inner) = made.as_ref().map_err(|error| io::Error::from(error.kind()))?;
    map_update(outer.as_fd(), &0_u32.to_ne_bytes(), &inner.as_raw_fd().to_ne_bytes())
}

/// Binds a map to a program. The program then keeps the map open and lists the map, even if the program's instructions
/// do not refer to it.
pub(crate) fn bind_map(program: BorrowedFd<'_>, map: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes two descriptors. Null options are allowed.
    check(unsafe { ffi::bpf_prog_bind_map(program.as_raw_fd(), map.as_raw_fd(), ptr::null()) }).map(drop)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Checks that a map update waits for running programs. Without the privilege to create maps,
    /// checks that the update fails.
    #[test]
    fn programs_are_waited_for_by_a_map() {
        // SAFETY: the call takes nothing and changes nothing.
        if unsafe { libc::geteuid() } != 0 {
            assert!(wait_by_map().is_err());
            return;
        }
        let start = Instant::now();
        for _ in 0..4 {
            wait_by_map().unwrap();
        }
        // A grace period takes some milliseconds while CPUs are busy. The test fails if a grace period does not end.
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }
}
