//! What programs of a user's own need besides: their maps pinned by us alone, and one bound that they may not refer to.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

use libbpf_rs::libbpf_sys as ffi;
use libbpf_rs::{AsRawLibbpf, OpenMapMut};

use super::{MapKind, MapSpec, check, map_create, map_update};

/// Makes an object's declaration of where a map is pinned void.
pub(crate) fn forget_pin_path(map: &mut OpenMapMut<'_>) -> io::Result<()> {
    // SAFETY: the map of an open object that we alone have; a null path means that it is not pinned at all.
    check(unsafe { ffi::bpf_map__set_pin_path(map.as_libbpf_object().as_ptr(), ptr::null()) }).map(drop)
}

/// Returns when every program that runs now has come to its end.
pub(crate) fn wait_for_programs() {
    if wait_by_map().is_ok() {
        return;
    }
    // SAFETY: takes integers; MEMBARRIER_CMD_GLOBAL waits for a grace period of RCU, under which programs run, if there is more
    // than one CPU.
    let refused = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) } != 0;
    if refused {
        // A kernel with cores of its own for user space (nohz_full). Programs run for microseconds.
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Waits as the kernel does behind an update of a map of maps: before that returns, all programs that may have found what stood in
/// the slot have ended (Linux 4.18 and later: `maybe_wait_bpf_programs`). It does so with any number of CPUs, of which `membarrier`
/// takes a single one for proof that nothing runs, and with cores of their own for user space (nohz_full), where `membarrier` is
/// refused.
pub(crate) fn wait_by_map() -> io::Result<()> {
    /// A slot, and what stands in it.
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

/// Lets a program keep a map, and tell of it, that its instructions need not refer to.
pub(crate) fn bind_map(program: BorrowedFd<'_>, map: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes two descriptors; null options are allowed.
    check(unsafe { ffi::bpf_prog_bind_map(program.as_raw_fd(), map.as_raw_fd(), ptr::null()) }).map(drop)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// A grace period passes by way of the map, wherever there is the privilege for it.
    #[test]
    fn programs_are_waited_for_by_a_map() {
        // SAFETY: takes and changes nothing.
        if unsafe { libc::geteuid() } != 0 {
            assert!(wait_by_map().is_err());
            return;
        }
        let start = Instant::now();
        for _ in 0..4 {
            wait_by_map().unwrap();
        }
        // Where no CPU idles, a grace period is some milliseconds; one that never comes is none.
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }
}
