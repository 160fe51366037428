//! Attachment of tracing programs, and access to the per-CPU hash tables in which these programs count events.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use libbpf_rs::libbpf_sys as ffi;

use super::{check, check_sizes, map_keys, owned};

/// Attaches a tracing program to the target it was loaded for: a tracepoint, or the entry or exit of another
/// program. The program stays attached as long as the descriptor is open.
pub(crate) fn trace(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: a program that knows its target needs no name.
    owned(unsafe { ffi::bpf_raw_tracepoint_open(ptr::null(), program.as_raw_fd()) })
}

fn cpus() -> io::Result<usize> {
    // SAFETY: the call takes and returns integers.
    let cpus = check(unsafe { ffi::libbpf_num_possible_cpus() })?;
    Ok(usize::try_from(cpus).unwrap_or(0))
}

/// Returns the keys of a per-CPU hash table with 64-bit values, each with the sum of its values over all
/// CPUs. Elements that are deleted during the call are left out.
pub(crate) fn map_entries_per_cpu<const N: usize>(map: BorrowedFd<'_>) -> io::Result<Vec<([u8; N], u64)>> {
    check_sizes(map, N, Some(size_of::<u64>()))?;
    let mut values = vec![0_u64; cpus()?];
    let mut entries = Vec::new();
    for key in map_keys::<N>(map)? {
        // SAFETY: the key has the map's size, checked above. The kernel writes one u64 per possible CPU.
        let found = check(unsafe {
            ffi::bpf_map_lookup_elem(map.as_raw_fd(), key.as_ptr().cast(), values.as_mut_ptr().cast())
        });
        match found {
            Ok(_) => entries.push((key, values.iter().fold(0, |sum: u64, value| sum.wrapping_add(*value)))),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(entries)
}

/// Adds an element to a per-CPU hash table with 64-bit values. The value of the element is zero on every CPU.
pub(crate) fn map_zero_per_cpu(map: BorrowedFd<'_>, key: &[u8]) -> io::Result<()> {
    check_sizes(map, key.len(), Some(size_of::<u64>()))?;
    let zeros = vec![0_u64; cpus()?];
    // SAFETY: the key has the map's size, checked above. The kernel reads one u64 per possible CPU.
    check(unsafe { ffi::bpf_map_update_elem(map.as_raw_fd(), key.as_ptr().cast(), zeros.as_ptr().cast(), 0) })
        .map(drop)
}
