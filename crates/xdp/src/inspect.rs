//! Queries for the XDP program that is attached to a device, and for the XDP features of the device's driver. The
//! functions that attach programs, and `trivium doctor`, use these queries. Devices are looked up in the network
//! namespace of the calling thread.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::libbpf_sys as ffi;

use crate::mode::{Mode, ProgramOnDevice};
use crate::{Error, sys};

/// Returns the XDP program that is attached to a device. If both an offloaded and a native program
/// are attached, returns the offloaded program, which runs first. Returns `None` if no program is
/// attached.
///
/// # Errors
/// Returns [`Error::NoDevice`] if the device does not exist, and [`Error::Query`] without the required
/// privilege.
pub fn inspect(ifindex: u32) -> Result<Option<ProgramOnDevice>, Error> {
    let query = query(ifindex)?;
    let found =
        [(query.offload, Mode::Offload), (query.native, Mode::Native), (query.generic, Mode::Generic)]
            .into_iter()
            .find(|(id, _)| *id != 0);
    let Some((id, mode)) = found else { return Ok(None) };
    // Without CAP_SYS_ADMIN, only the program's id is available. The program may also be removed between the two calls.
    let name = sys::program_by_id(id).and_then(|fd| sys::program_info(fd.as_fd())).map(|i| i.name);
    let link = holding_link(id, ifindex).unwrap_or_default();
    Ok(Some(ProgramOnDevice { id, name: name.unwrap_or_default(), mode, link }))
}

/// Returns the id of the BPF link through which the program with the id `program` is attached to the device `ifindex`.
/// The kernel does not report the namespace of a link, so links are compared by program id and device index. Returns
/// `None` if there is no such link.
fn holding_link(program: u32, ifindex: u32) -> io::Result<Option<u32>> {
    let mut at = 0;
    while let Some(id) = sys::link_next(at)? {
        at = id;
        // The link may be removed between the two calls.
        let info = sys::link_by_id(id).and_then(|fd| sys::link_info(fd.as_fd()));
        if info.is_ok_and(|info| info.is_xdp && info.program == program && info.ifindex == ifindex) {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// Returns the ids of the XDP programs on a device, one id for each XDP mode.
pub(crate) fn query(ifindex: u32) -> Result<sys::ProgramIds, Error> {
    sys::programs_on(ifindex).map_err(|source| not_queried(ifindex, source))
}

fn not_queried(ifindex: u32, source: io::Error) -> Error {
    match source.raw_os_error() {
        Some(libc::ENODEV | libc::ENXIO) => Error::NoDevice { ifindex },
        _ => Error::Query { what: "XDP state of a device", source },
    }
}

/// XDP features of a device and its driver (`xdp-features` of the kernel's netdev family).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// Whether the driver supports the verdicts `XDP_PASS`, `XDP_DROP`, `XDP_ABORTED` and `XDP_TX` in native
    /// mode.
    pub basic: bool,
    /// Whether the driver supports the verdict `XDP_REDIRECT` for received frames.
    pub redirect: bool,
    /// Whether the device can be the target of a redirect. A veth device can be a target only while its peer
    /// runs an XDP program or GRO.
    pub transmit: bool,
    /// Whether the driver supports AF_XDP zero copy.
    pub zero_copy: bool,
    /// Whether the network card itself can run XDP programs (offload mode).
    pub offload: bool,
    /// Whether the driver supports received frames of several buffers.
    pub receive_multi_buffer: bool,
    /// Whether the device can be the target of a redirect of frames with several buffers.
    pub transmit_multi_buffer: bool,
    /// Maximum number of buffers of one frame on an AF_XDP socket with zero copy. The value is 0 or 1 if the
    /// driver does not support several buffers.
    pub zero_copy_segments: u32,
}

impl Features {
    /// Returns the names of the supported features, as `ethtool` and the kernel's documentation spell them.
    #[must_use]
    pub fn words(&self) -> Vec<&'static str> {
        let all = [
            (self.basic, "basic"),
            (self.redirect, "redirect"),
            (self.transmit, "ndo-xmit"),
            (self.zero_copy, "xsk-zerocopy"),
            (self.offload, "hw-offload"),
            (self.receive_multi_buffer, "rx-sg"),
            (self.transmit_multi_buffer, "ndo-xmit-sg"),
        ];
        all.into_iter().filter(|(there, _)| *there).map(|(_, word)| word).collect()
    }

    /// Decodes the features from the bits of `enum netdev_xdp_act` (`linux/netdev.h`).
    #[must_use]
    pub fn from_bits(bits: u64, zero_copy_segments: u32) -> Features {
        let has = |bit: u32| bits & (1 << bit) != 0;
        Features {
            basic: has(0),
            redirect: has(1),
            transmit: has(2),
            zero_copy: has(3),
            offload: has(4),
            receive_multi_buffer: has(5),
            transmit_multi_buffer: has(6),
            zero_copy_segments,
        }
    }
}

/// Returns the XDP features of a device in the calling thread's network namespace. Kernels before 6.3 do not
/// report features. All fields are then false or 0.
///
/// # Errors
/// Returns [`Error::NoDeviceNamed`] if the device does not exist, or [`Error::Query`] if the query fails.
pub fn features(name: &str) -> Result<Features, Error> {
    let ifindex = sys::device_index(name).ok_or_else(|| Error::NoDeviceNamed { name: name.to_owned() })?;
    let (result, _said) = crate::log::captured(|| sys::features(ifindex));
    let found = result.map_err(|source| not_queried(ifindex, source))?;
    Ok(Features::from_bits(found.bits, found.zero_copy_segments))
}

/// Returns the driver name of a device in the calling thread's network namespace, as `ethtool -i` shows it.
/// Returns `None` if the device does not report a driver.
#[must_use]
pub fn driver(name: &str) -> Option<String> {
    sys::driver_name(name)
}

/// Properties of a loaded BPF program, as the kernel reports them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramInfo {
    /// Id of the program in the kernel.
    pub id: u32,
    /// Hash of the program's instructions.
    pub tag: [u8; 8],
    /// Name of the program, up to 15 characters.
    pub name: String,
    /// Number of instructions after the verifier removed unreachable code.
    pub instructions: u32,
    /// Size of the program's machine code in bytes. 0 if the kernel has no JIT compiler.
    pub jited_bytes: u32,
    /// Number of instructions that the verifier processed, out of its budget of one million.
    pub verified_instructions: u32,
    /// Time in nanoseconds that the program has run while `kernel.bpf_stats_enabled` was 1.
    pub run_time_ns: u64,
    /// Number of runs of the program while `kernel.bpf_stats_enabled` was 1.
    pub runs: u64,
}

impl ProgramInfo {
    pub(crate) fn read(program: std::os::fd::BorrowedFd<'_>) -> Result<ProgramInfo, Error> {
        let info = sys::program_info(program)
            .map_err(|source| Error::Query { what: "information about a program", source })?;
        Ok(ProgramInfo {
            id: info.id,
            tag: info.tag,
            name: info.name,
            instructions: info.translated_bytes / 8,
            jited_bytes: info.jited_bytes,
            verified_instructions: info.verified,
            run_time_ns: info.run_time_ns,
            runs: info.run_count,
        })
    }

    /// Returns the tag as hexadecimal text, as `bpftool` prints it.
    #[must_use]
    pub fn tag_text(&self) -> String {
        self.tag.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Properties of a BPF map, as the kernel reports them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapInfo {
    /// Id of the map in the kernel.
    pub id: u32,
    /// Name of the map, up to 15 characters.
    pub name: String,
    /// Type of the map, as `bpftool` names it. The value is a number if the name of the type is unknown.
    pub kind: String,
    /// Size of a key of the map in bytes.
    pub key_size: u32,
    /// Size of a value of the map in bytes.
    pub value_size: u32,
    /// Maximum number of elements of the map. For a ring buffer, this is the size of the buffer in bytes.
    pub max_entries: u32,
    /// Kernel memory that the map uses, in bytes. `None` if the kernel does not report the memory use.
    pub bytes: Option<u64>,
}

/// Returns the properties of the program with this id, and of the maps that it uses.
///
/// # Errors
/// Returns [`Error::Query`] if the program no longer exists, or without CAP_SYS_ADMIN.
pub fn program(id: u32) -> Result<(ProgramInfo, Vec<MapInfo>), Error> {
    let failed = |what| move |source| Error::Query { what, source };
    let fd = sys::program_by_id(id).map_err(failed("a program by its id"))?;
    let info = ProgramInfo::read(fd.as_fd())?;
    let ids = sys::program_info(fd.as_fd()).map_err(failed("information about a program"))?.maps;
    let map = |id| {
        let fd = sys::map_by_id(id).map_err(failed("the maps of a program"))?;
        sys::map_details(fd.as_fd()).map(MapInfo::from).map_err(failed("information about a map"))
    };
    Ok((info, ids.into_iter().map(map).collect::<Result<_, _>>()?))
}

impl From<sys::MapDetails> for MapInfo {
    fn from(raw: sys::MapDetails) -> MapInfo {
        MapInfo {
            id: raw.id,
            name: raw.name,
            kind: map_kind(raw.kind).map_or_else(|| format!("type {}", raw.kind), str::to_owned),
            key_size: raw.key_size,
            value_size: raw.value_size,
            max_entries: raw.max_entries,
            bytes: raw.bytes,
        }
    }
}

/// Returns the name of a value of `enum bpf_map_type`. Returns `None` for map types that this crate's
/// programs do not use.
fn map_kind(kind: u32) -> Option<&'static str> {
    Some(match kind {
        ffi::BPF_MAP_TYPE_HASH => "hash",
        ffi::BPF_MAP_TYPE_ARRAY => "array",
        ffi::BPF_MAP_TYPE_PROG_ARRAY => "prog_array",
        ffi::BPF_MAP_TYPE_PERCPU_HASH => "percpu_hash",
        ffi::BPF_MAP_TYPE_PERCPU_ARRAY => "percpu_array",
        ffi::BPF_MAP_TYPE_LRU_HASH => "lru_hash",
        ffi::BPF_MAP_TYPE_LRU_PERCPU_HASH => "lru_percpu_hash",
        ffi::BPF_MAP_TYPE_LPM_TRIE => "lpm_trie",
        ffi::BPF_MAP_TYPE_ARRAY_OF_MAPS => "array_of_maps",
        ffi::BPF_MAP_TYPE_HASH_OF_MAPS => "hash_of_maps",
        ffi::BPF_MAP_TYPE_DEVMAP => "devmap",
        ffi::BPF_MAP_TYPE_DEVMAP_HASH => "devmap_hash",
        ffi::BPF_MAP_TYPE_CPUMAP => "cpumap",
        ffi::BPF_MAP_TYPE_XSKMAP => "xskmap",
        ffi::BPF_MAP_TYPE_RINGBUF => "ringbuf",
        _ => return None,
    })
}

/// A request for run-time statistics of BPF programs. While the value exists, the kernel counts the runs of every BPF
/// program and the time of the runs, which costs about 20 ns for each run. Other processes may make such requests too.
#[derive(Debug)]
pub struct RunStatistics {
    _while_open: OwnedFd,
}

impl RunStatistics {
    /// Makes the kernel collect run-time statistics until the returned value is dropped.
    ///
    /// # Errors
    /// Returns [`Error::Query`] without CAP_SYS_ADMIN, or on kernels before 5.8.
    pub fn enable() -> Result<RunStatistics, Error> {
        let source = sys::enable_run_time_statistics();
        source
            .map(|fd| RunStatistics { _while_open: fd })
            .map_err(|source| Error::Query { what: "run-time statistics of programs", source })
    }
}

/// Returns the name of a device in the calling thread's network namespace, for use in messages.
pub(crate) fn device_text(ifindex: u32) -> String {
    sys::device_name(ifindex).unwrap_or_else(|| format!("#{ifindex}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_bits_are_the_kernels() {
        let veth = Features::from_bits(0x23, 0);
        assert!(veth.basic && veth.redirect && veth.receive_multi_buffer);
        assert!(!veth.transmit && !veth.zero_copy && !veth.offload && !veth.transmit_multi_buffer);
    }

    #[test]
    fn unknown_devices_are_named() {
        let error = features("no-such-dev").unwrap_err();
        assert!(error.to_string().contains("no-such-dev"), "{error}");
    }
}
