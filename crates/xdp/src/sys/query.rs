//! Kernel queries of the memory use of maps, the run-time statistics of programs, and the availability of helpers.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::libbpf_sys as ffi;

use super::{check, name_of, owned, size32};

/// Properties of a BPF map that are needed only for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MapDetails {
    pub id: u32,
    pub name: String,
    /// Type of the map as a value of `enum bpf_map_type`.
    pub kind: u32,
    pub key_size: u32,
    pub value_size: u32,
    pub max_entries: u32,
    /// Kernel memory that the map uses, in bytes. `None` if the kernel does not report the memory use.
    pub bytes: Option<u64>,
}

pub(crate) fn map_details(map: BorrowedFd<'_>) -> io::Result<MapDetails> {
    let mut info = ffi::bpf_map_info::default();
    let mut length = size32::<ffi::bpf_map_info>();
    // SAFETY: the kernel writes at most `length` bytes into `info`.
    check(unsafe { ffi::bpf_map_get_info_by_fd(map.as_raw_fd(), &raw mut info, &raw mut length) })?;
    Ok(MapDetails {
        id: info.id,
        name: name_of(&info.name),
        kind: info.type_,
        key_size: info.key_size,
        value_size: info.value_size,
        max_entries: info.max_entries,
        bytes: memory(map),
    })
}

/// Returns the kernel memory that a map or a program uses, in bytes, from the descriptor's file in /proc. Returns
/// `None` if the file does not contain this value.
fn memory(object: BorrowedFd<'_>) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", object.as_raw_fd())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("memlock:"))?.trim().parse().ok()
}

/// Makes the kernel count the runs of BPF programs and their time as long as the returned descriptor is open.
pub(crate) fn enable_run_time_statistics() -> io::Result<OwnedFd> {
    // SAFETY: the call takes no memory.
    owned(unsafe { ffi::bpf_enable_stats(ffi::BPF_STATS_RUN_TIME) })
}

/// Returns whether the kernel allows XDP programs to call a BPF helper.
pub(crate) fn has_helper(helper: ffi::bpf_func_id) -> bool {
    // SAFETY: the call takes integers, and no options.
    unsafe { ffi::libbpf_probe_bpf_helper(ffi::BPF_PROG_TYPE_XDP, helper, std::ptr::null()) == 1 }
}
