//! Safe wrappers of the bpf(2) calls that this crate makes through libbpf, over owned and borrowed
//! descriptors. All `unsafe` blocks of the crate are in this module.

mod link_query;
mod memory;
mod print;
mod query;
mod run;
mod trace;
mod user;

pub(crate) use link_query::{ProgramIds, programs_on};
pub(crate) use memory::Mapped;
pub(crate) use print::listen;
pub(crate) use query::{MapDetails, enable_run_time_statistics, has_helper, map_details};
pub(crate) use run::{RunRequest, run};
pub(crate) use trace::{map_entries_per_cpu, map_zero_per_cpu, trace};
pub(crate) use user::{bind_map, forget_pin_path, wait_for_programs};

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use libbpf_rs::libbpf_sys as ffi;

/// Converts a return value of libbpf to an [`io::Result`]. libbpf returns errors as negative error numbers.
fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(result.saturating_neg())) } else { Ok(result) }
}

fn owned(result: i32) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: the kernel has just created this descriptor, and no other code knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

fn ifindex_arg(ifindex: u32) -> io::Result<i32> {
    i32::try_from(ifindex).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))
}

/// Returns the size of an options or info struct as the 32-bit integer that the kernel's interface requires.
fn size32<T>() -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(u32::MAX)
}

/// Creates an XDP link in the network namespace of the calling thread.
pub(crate) fn link_create(program: BorrowedFd<'_>, ifindex: u32, flags: u32) -> io::Result<OwnedFd> {
    let target = ifindex_arg(ifindex)?;
    // SAFETY: the struct holds integers, pointers and unions of these. All-zero means "unset".
    let mut options: ffi::bpf_link_create_opts = unsafe { zeroed() };
    options.sz = size_of::<ffi::bpf_link_create_opts>() as ffi::size_t;
    options.flags = flags;
    // SAFETY: `options` is initialised, carries its own size and outlives the call.
    owned(unsafe { ffi::bpf_link_create(program.as_raw_fd(), target, ffi::BPF_XDP, &raw const options) })
}

/// Attaches a tc program to a device's ingress, in front of all other tcx programs, in the network namespace of the
/// calling thread.
pub(crate) fn tcx_link_create(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<OwnedFd> {
    let target = ifindex_arg(ifindex)?;
    // SAFETY: the struct holds integers, pointers and unions of these. All-zero means "unset".
    let mut options: ffi::bpf_link_create_opts = unsafe { zeroed() };
    options.sz = size_of::<ffi::bpf_link_create_opts>() as ffi::size_t;
    options.flags = ffi::BPF_F_BEFORE;
    // SAFETY: `options` is initialised, carries its own size and outlives the call.
    owned(unsafe {
        ffi::bpf_link_create(program.as_raw_fd(), target, ffi::BPF_TCX_INGRESS, &raw const options)
    })
}

/// Replaces the program of an XDP link atomically.
pub(crate) fn link_update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: null options are allowed and mean "replace the current program".
    check(unsafe { ffi::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), ptr::null()) }).map(drop)
}

/// Detaches an XDP link from its device, even if other processes have the link open.
pub(crate) fn link_detach(link: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes a descriptor and no memory.
    check(unsafe { ffi::bpf_link_detach(link.as_raw_fd()) }).map(drop)
}

/// Properties of an XDP or tcx link, as the kernel reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkInfo {
    pub is_xdp: bool,
    pub id: u32,
    pub program: u32,
    /// Index of the link's device. 0 if the device no longer exists.
    pub ifindex: u32,
}

/// Returns whether a descriptor is a BPF link. The kernel's info query cannot show this, because it also
/// accepts programs and maps, and returns a different struct for each.
pub(crate) fn is_link(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let kind = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    Ok(matches!(kind.as_os_str().as_bytes(), b"anon_inode:bpf-link" | b"anon_inode:bpf_link"))
}

pub(crate) fn link_info(link: BorrowedFd<'_>) -> io::Result<LinkInfo> {
    // SAFETY: the struct holds integers, pointers and unions of these.
    let mut info: ffi::bpf_link_info = unsafe { zeroed() };
    let mut length = size32::<ffi::bpf_link_info>();
    // SAFETY: the kernel writes at most `length` bytes into `info`.
    check(unsafe { ffi::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut length) })?;
    let is_xdp = info.type_ == ffi::BPF_LINK_TYPE_XDP;
    // SAFETY: `xdp` and `tcx` are the members that the kernel fills for these types. All members are plain integers
    // over zeroed memory, so each of them may be read.
    let (xdp, tcx) = unsafe { (info.__bindgen_anon_1.xdp, info.__bindgen_anon_1.tcx) };
    let ifindex = match info.type_ {
        ffi::BPF_LINK_TYPE_XDP => xdp.ifindex,
        ffi::BPF_LINK_TYPE_TCX => tcx.ifindex,
        _ => 0,
    };
    Ok(LinkInfo { is_xdp, id: info.id, program: info.prog_id, ifindex })
}

/// Returns the id of the next BPF link after the id `id`. Returns `None` if there is no other link.
pub(crate) fn link_next(id: u32) -> io::Result<Option<u32>> {
    let mut next = 0;
    // SAFETY: the call writes one u32.
    match check(unsafe { ffi::bpf_link_get_next_id(id, &raw mut next) }) {
        Ok(_) => Ok(Some(next)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn link_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no memory.
    owned(unsafe { ffi::bpf_link_get_fd_by_id(id) })
}

pub(crate) fn program_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no memory.
    owned(unsafe { ffi::bpf_prog_get_fd_by_id(id) })
}

pub(crate) fn map_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no memory.
    owned(unsafe { ffi::bpf_map_get_fd_by_id(id) })
}

/// Properties of a BPF program, as the kernel reports them, with the ids of its maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawProgramInfo {
    pub id: u32,
    pub tag: [u8; 8],
    pub name: String,
    pub translated_bytes: u32,
    pub jited_bytes: u32,
    pub verified: u32,
    pub run_time_ns: u64,
    pub run_count: u64,
    pub maps: Vec<u32>,
}

/// Maximum number of map ids that are read for a BPF program. Every program of this crate has fewer maps.
const MAPS_MAX: usize = 64;

pub(crate) fn program_info(program: BorrowedFd<'_>) -> io::Result<RawProgramInfo> {
    let mut maps = [0_u32; MAPS_MAX];
    let mut info = ffi::bpf_prog_info {
        nr_map_ids: u32::try_from(MAPS_MAX).unwrap_or(0),
        map_ids: maps.as_mut_ptr().expose_provenance() as u64,
        ..Default::default()
    };
    let mut length = size32::<ffi::bpf_prog_info>();
    // SAFETY: the kernel writes at most `length` bytes into `info`, and at most `nr_map_ids` ids
    // through `map_ids`, which points at that many and outlives the call.
    check(unsafe { ffi::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut length) })?;
    let count = usize::try_from(info.nr_map_ids).unwrap_or(0).min(MAPS_MAX);
    Ok(RawProgramInfo {
        id: info.id,
        tag: info.tag,
        name: name_of(&info.name),
        translated_bytes: info.xlated_prog_len,
        jited_bytes: info.jited_prog_len,
        verified: info.verified_insns,
        run_time_ns: info.run_time_ns,
        run_count: info.run_cnt,
        maps: maps[..count].to_vec(),
    })
}

/// Decodes a name in the kernel's format, which is ASCII padded with NUL.
fn name_of(raw: &[std::ffi::c_char]) -> String {
    raw.iter().take_while(|c| **c != 0).map(|c| char::from(c.to_ne_bytes()[0])).collect()
}

/// Properties of a BPF map, as the kernel reports them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MapInfo {
    pub id: u32,
    pub name: String,
    pub key_size: u32,
    pub value_size: u32,
    pub max_entries: u32,
}

pub(crate) fn map_info(map: BorrowedFd<'_>) -> io::Result<MapInfo> {
    let mut info = ffi::bpf_map_info::default();
    let mut length = size32::<ffi::bpf_map_info>();
    // SAFETY: the kernel writes at most `length` bytes into `info`.
    check(unsafe { ffi::bpf_map_get_info_by_fd(map.as_raw_fd(), &raw mut info, &raw mut length) })?;
    Ok(MapInfo {
        id: info.id,
        name: name_of(&info.name),
        key_size: info.key_size,
        value_size: info.value_size,
        max_entries: info.max_entries,
    })
}

/// Types of the BPF maps that this crate creates without a map definition in a BPF object file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapKind {
    /// Array that user space can map into its memory (mmap).
    Mappable,
    Array,
    PerCpuArray,
    PerCpuHash,
    Hash,
    LruHash,
    LongestPrefix,
    Ring,
    /// Array that user space can map into its memory (mmap), for a slot of an outer map. The slot accepts arrays of any
    /// length.
    Inner,
    /// Outer map: an array whose elements are maps of the same type as the template map.
    Outer,
    /// Array of devices for redirects (DEVMAP).
    Devices,
    /// Hash table of devices for redirects (DEVMAP_HASH).
    DevicesByKey,
    /// Per-CPU hash table that allocates its elements when they are added.
    SparsePerCpuHash,
    /// Hash table that allocates its elements when they are added.
    SparseHash,
    /// Array of CPUs for redirects (CPUMAP).
    Cpus,
    /// Array of programs for tail calls.
    Programs,
    /// Array of AF_XDP sockets for redirects (XSKMAP).
    Sockets,
}

/// Name, type and sizes of a BPF map to create.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MapSpec {
    pub name: &'static str,
    pub kind: MapKind,
    pub key: u32,
    pub value: u32,
    pub entries: u32,
}

pub(crate) fn map_create(spec: MapSpec, template: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    let name = CString::new(spec.name)?;
    let mut options = ffi::bpf_map_create_opts {
        sz: size_of::<ffi::bpf_map_create_opts>() as ffi::size_t,
        ..Default::default()
    };
    let kind = match spec.kind {
        MapKind::Mappable => {
            options.map_flags = ffi::BPF_F_MMAPABLE;
            ffi::BPF_MAP_TYPE_ARRAY
        }
        MapKind::Inner => {
            options.map_flags = ffi::BPF_F_MMAPABLE | ffi::BPF_F_INNER_MAP;
            ffi::BPF_MAP_TYPE_ARRAY
        }
        MapKind::Outer => ffi::BPF_MAP_TYPE_ARRAY_OF_MAPS,
        MapKind::Array => ffi::BPF_MAP_TYPE_ARRAY,
        MapKind::PerCpuArray => ffi::BPF_MAP_TYPE_PERCPU_ARRAY,
        MapKind::PerCpuHash => ffi::BPF_MAP_TYPE_PERCPU_HASH,
        MapKind::Hash => ffi::BPF_MAP_TYPE_HASH,
        MapKind::LruHash => ffi::BPF_MAP_TYPE_LRU_HASH,
        MapKind::LongestPrefix => {
            options.map_flags = ffi::BPF_F_NO_PREALLOC;
            ffi::BPF_MAP_TYPE_LPM_TRIE
        }
        MapKind::Ring => ffi::BPF_MAP_TYPE_RINGBUF,
        MapKind::Devices => ffi::BPF_MAP_TYPE_DEVMAP,
        MapKind::DevicesByKey => ffi::BPF_MAP_TYPE_DEVMAP_HASH,
        MapKind::Programs => ffi::BPF_MAP_TYPE_PROG_ARRAY,
        MapKind::Sockets => ffi::BPF_MAP_TYPE_XSKMAP,
        MapKind::SparsePerCpuHash => {
            options.map_flags = ffi::BPF_F_NO_PREALLOC;
            ffi::BPF_MAP_TYPE_PERCPU_HASH
        }
        MapKind::SparseHash => {
            options.map_flags = ffi::BPF_F_NO_PREALLOC;
            ffi::BPF_MAP_TYPE_HASH
        }
        MapKind::Cpus => ffi::BPF_MAP_TYPE_CPUMAP,
    };
    if let Some(template) = template {
        options.inner_map_fd = u32::try_from(template.as_raw_fd()).unwrap_or(u32::MAX);
    }
    // SAFETY: the name is NUL-terminated, the options carry their own size, and both outlive the call.
    owned(unsafe {
        ffi::bpf_map_create(kind, name.as_ptr(), spec.key, spec.value, spec.entries, &raw const options)
    })
}

/// Returns the time of CLOCK_MONOTONIC in nanoseconds, as `bpf_ktime_get_ns()` returns it.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec, and cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Checks that key and value have the sizes that the map declares, in bytes. The kernel reads and writes as
/// many bytes as the map declares, so a mismatch must be detected before the call.
fn check_sizes(map: BorrowedFd<'_>, key: usize, value: Option<usize>) -> io::Result<()> {
    let info = map_info(map)?;
    let fits = |have: usize, want: u32| u32::try_from(have).is_ok_and(|have| have == want);
    if fits(key, info.key_size) && value.is_none_or(|value| fits(value, info.value_size)) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EINVAL))
    }
}

/// Writes one element of a BPF map. The map must not be a per-CPU map.
pub(crate) fn map_update(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    check_sizes(map, key.len(), Some(value.len()))?;
    // SAFETY: both buffers are as long as the map's key and value, checked above.
    check(unsafe { ffi::bpf_map_update_elem(map.as_raw_fd(), key.as_ptr().cast(), value.as_ptr().cast(), 0) })
        .map(drop)
}

/// Removes one element of a BPF map. Returns `Ok(false)` if the element was not present.
pub(crate) fn map_delete(map: BorrowedFd<'_>, key: &[u8]) -> io::Result<bool> {
    check_sizes(map, key.len(), None)?;
    // SAFETY: the key is as long as the map's, checked above.
    match check(unsafe { ffi::bpf_map_delete_elem(map.as_raw_fd(), key.as_ptr().cast()) }) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns all keys of a BPF map. The caller must be the map's only writer.
pub(crate) fn map_keys<const N: usize>(map: BorrowedFd<'_>) -> io::Result<Vec<[u8; N]>> {
    check_sizes(map, N, None)?;
    let mut keys = Vec::new();
    let mut last: Option<[u8; N]> = None;
    loop {
        let mut next = [0_u8; N];
        let from = last.as_ref().map_or(ptr::null(), |key| key.as_ptr().cast());
        // SAFETY: `from` is null or N readable bytes, and `next` is N writable bytes. N is the size of a key.
        match check(unsafe { ffi::bpf_map_get_next_key(map.as_raw_fd(), from, next.as_mut_ptr().cast()) }) {
            Ok(_) => {
                keys.push(next);
                last = Some(next);
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(keys),
            Err(error) => return Err(error),
        }
    }
}

/// Returns the value of one element of an array map. The map must not be a per-CPU map.
pub(crate) fn map_lookup<const V: usize>(map: BorrowedFd<'_>, key: u32) -> io::Result<[u8; V]> {
    check_sizes(map, size_of::<u32>(), Some(V))?;
    let mut value = [0_u8; V];
    // SAFETY: key and value have the map's sizes, checked above.
    check(unsafe {
        ffi::bpf_map_lookup_elem(map.as_raw_fd(), (&raw const key).cast(), value.as_mut_ptr().cast())
    })?;
    Ok(value)
}

/// Returns the value of one element of a BPF map. Returns `None` if the element is not present. The map must not be a
/// per-CPU map.
pub(crate) fn map_get<const V: usize>(map: BorrowedFd<'_>, key: &[u8]) -> io::Result<Option<[u8; V]>> {
    check_sizes(map, key.len(), Some(V))?;
    let mut value = [0_u8; V];
    // SAFETY: key and value have the map's sizes, checked above.
    let found = check(unsafe {
        ffi::bpf_map_lookup_elem(map.as_raw_fd(), key.as_ptr().cast(), value.as_mut_ptr().cast())
    });
    match found {
        Ok(_) => Ok(Some(value)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the number of possible CPUs. An element of a per-CPU map has one value for each possible CPU.
pub(crate) fn possible_cpus() -> io::Result<u32> {
    // SAFETY: the call takes and returns integers.
    let cpus = check(unsafe { ffi::libbpf_num_possible_cpus() })?;
    Ok(u32::try_from(cpus).unwrap_or(0))
}

/// Returns the values of one element of a per-CPU map, one CPU after the other. The value of each CPU has
/// `words` 64-bit words.
pub(crate) fn map_lookup_per_cpu(map: BorrowedFd<'_>, key: u32, words: usize) -> io::Result<Vec<u64>> {
    check_sizes(map, size_of::<u32>(), Some(words * size_of::<u64>()))?;
    // SAFETY: the call takes and returns integers.
    let cpus = check(unsafe { ffi::libbpf_num_possible_cpus() })?;
    let mut values = vec![0_u64; usize::try_from(cpus).unwrap_or(0) * words];
    // SAFETY: the kernel writes one value, a multiple of 8 bytes, per possible CPU.
    check(unsafe {
        ffi::bpf_map_lookup_elem(map.as_raw_fd(), (&raw const key).cast(), values.as_mut_ptr().cast())
    })?;
    Ok(values)
}

/// Writes `value` to one element of a per-CPU map, as the value for every CPU.
pub(crate) fn map_fill_per_cpu(map: BorrowedFd<'_>, key: u32, value: &[u64]) -> io::Result<()> {
    check_sizes(map, size_of::<u32>(), Some(size_of_val(value)))?;
    // SAFETY: the call takes and returns integers.
    let cpus = check(unsafe { ffi::libbpf_num_possible_cpus() })?;
    let all = value.repeat(usize::try_from(cpus).unwrap_or(0));
    // SAFETY: the kernel reads one value, a multiple of 8 bytes, per possible CPU.
    check(unsafe {
        ffi::bpf_map_update_elem(map.as_raw_fd(), (&raw const key).cast(), all.as_ptr().cast(), 0)
    })
    .map(drop)
}

/// Writes `value` to one element of a per-CPU map, as the value for the first CPU. The values for the other CPUs are
/// set to zero.
pub(crate) fn map_write_one_cpu(map: BorrowedFd<'_>, key: u32, value: &[u64]) -> io::Result<()> {
    check_sizes(map, size_of::<u32>(), Some(size_of_val(value)))?;
    // SAFETY: the call takes and returns integers.
    let cpus = check(unsafe { ffi::libbpf_num_possible_cpus() })?;
    let mut all = value.to_vec();
    all.resize(value.len() * usize::try_from(cpus).unwrap_or(0), 0);
    // SAFETY: the kernel reads one value, a multiple of 8 bytes, per possible CPU.
    check(unsafe {
        ffi::bpf_map_update_elem(map.as_raw_fd(), (&raw const key).cast(), all.as_ptr().cast(), 0)
    })
    .map(drop)
}

pub(crate) fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the string is NUL-terminated and outlives the call.
    check(unsafe { ffi::bpf_obj_pin(object.as_raw_fd(), path.as_ptr()) }).map(drop)
}

pub(crate) fn pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    // SAFETY: the string is NUL-terminated and outlives the call.
    owned(unsafe { ffi::bpf_obj_get(path.as_ptr()) })
}

/// Returns whether `path` is on a BPF file system.
pub(crate) fn is_bpffs(path: &Path) -> io::Result<bool> {
    let path = c_path(path)?;
    // SAFETY: the struct holds integers only.
    let mut stat: libc::statfs = unsafe { zeroed() };
    // SAFETY: the string is NUL-terminated, and the kernel fills the struct.
    if unsafe { libc::statfs(path.as_ptr(), &raw mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(stat.f_type == libc::BPF_FS_MAGIC)
}

/// Mounts a BPF file system that only its owner may enter. With the kernel's default mode, any user could
/// create directories in it.
pub(crate) fn mount_bpffs(path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    let data = c"mode=0700".as_ptr();
    // SAFETY: the strings are NUL-terminated and outlive the call.
    let result = unsafe { libc::mount(c"bpf".as_ptr(), path.as_ptr(), c"bpf".as_ptr(), 0, data.cast()) };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns the effective user id of the process.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// XDP features of a device.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeviceFeatures {
    /// XDP features as bits of `enum netdev_xdp_act`.
    pub bits: u64,
    pub zero_copy_segments: u32,
}

/// Returns the XDP features of a device. The call lists all devices of the namespace.
pub(crate) fn features(ifindex: u32) -> io::Result<DeviceFeatures> {
    let target = ifindex_arg(ifindex)?;
    let mut options = ffi::bpf_xdp_query_opts {
        sz: size_of::<ffi::bpf_xdp_query_opts>() as ffi::size_t,
        ..Default::default()
    };
    // SAFETY: `options` carries its own size, and libbpf writes no further than that.
    check(unsafe { ffi::bpf_xdp_query(target, 0, &raw mut options) })?;
    Ok(DeviceFeatures { bits: options.feature_flags, zero_copy_segments: options.xdp_zc_max_segs })
}

/// Attaches a program to a device through netlink. On failure, netlink returns the driver's error message, which the
/// creation of a BPF link does not (see `attach.rs`).
pub(crate) fn netlink_attach(ifindex: u32, program: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    let target = ifindex_arg(ifindex)?;
    // SAFETY: null options are allowed.
    check(unsafe { ffi::bpf_xdp_attach(target, program.as_raw_fd(), flags, ptr::null()) }).map(drop)
}

pub(crate) fn netlink_detach(ifindex: u32, flags: u32) -> io::Result<()> {
    let target = ifindex_arg(ifindex)?;
    // SAFETY: null options are allowed.
    check(unsafe { ffi::bpf_xdp_detach(target, flags, ptr::null()) }).map(drop)
}

pub(crate) fn device_name(ifindex: u32) -> Option<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the IF_NAMESIZE bytes that the function may write.
    let found = unsafe { libc::if_indextoname(ifindex, name.as_mut_ptr()) };
    (!found.is_null()).then(|| name_of(&name))
}

pub(crate) fn device_index(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: the string is NUL-terminated.
    let ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (ifindex != 0).then_some(ifindex)
}

/// `struct ethtool_drvinfo`: the command number, the driver's name, and 160 bytes of other information that is
/// not read.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [std::ffi::c_char; 32],
    others: [u8; 160],
}

const ETHTOOL_GDRVINFO: u32 = 3;

/// Returns the driver name of a device in the calling thread's network namespace. Returns `None` if the
/// device does not report a driver.
pub(crate) fn driver_name(device: &str) -> Option<String> {
    // SAFETY: the call takes integers, and the result is checked.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    let socket = owned(fd).ok()?;
    let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], others: [0; 160] };
    // SAFETY: the struct holds integers, arrays and unions of these and of pointers.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let name = device.as_bytes();
    // The last byte stays NUL.
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = std::ffi::c_char::from_ne_bytes([*from]);
    }
    request.ifr_ifru.ifru_data = (&raw mut info).cast();
    // SAFETY: the name is NUL-terminated. `info` has the size of this command's result and outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    (result == 0).then(|| name_of(&info.driver)).filter(|driver| !driver.is_empty())
}
