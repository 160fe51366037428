//! Kernel routing stage of a port's XDP program. The stage forwards packets according to the kernel's routes and
//! neighbour table if the kernel would forward them without special treatment.
//!
//! ```text
//!  frame --> [filter] --> to the port's MAC, no fragment, route, neighbour, output device known? --yes--> next hop
//!                            |                                  [`FibStage::set_devices`]
//!                            no --> kernel's stack: ICMP errors, ARP and ND, fragmentation, packets for this host
//! ```
//!
//! The stage queries the kernel for every frame. Routes and neighbours are not copied. Other processing of
//! the kernel's stack (netfilter, IPsec policies, tc) does not apply to packets that the stage forwards (see
//! `bpf/include/stage_fib.h`).

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::Error;
use crate::sys::{self, MapKind, MapSpec};

const DEVICES: &str = "fib_devices";
/// Name of the map with the packet and byte counts for output devices whose index is below [`FIB_DEVICES`].
const NEAR_COUNTS: &str = "fib_near_counts";
/// Name of the map with the packet and byte counts for all other output devices, by device index. The entry [`GONE`]
/// holds the sum for deleted devices.
const COUNTS: &str = "fib_counts";
/// Bit in the keys of the device map (`FIB_MULTI_BUFFER`). A device has a second key with this bit
/// if multi-buffer frames can be redirected to the device.
const MULTI_BUFFER: u32 = 1 << 31;
/// Number of 32-bit words of `struct fib_conf` (the constants of the kernel routing stage).
pub(crate) const FIB_WORDS: usize = 6;
/// Maximum number of output devices of a kernel routing stage (`FIB_DEVICES` in the BPF program).
pub const FIB_DEVICES: u32 = 4096;
/// Map key for the sum of the counts of deleted devices. No device has this index.
const GONE: u32 = 0;

/// Configuration of the kernel routing stage of one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FibPort {
    /// Ethernet address of the port's device. The stage routes only frames with this destination address.
    pub mac: [u8; 6],
    /// Whether the route to the source address of an IPv4 packet must lead through this port (reverse path check).
    /// Packets that fail the check go to the kernel's stack. The field is `true` if `rp_filter` is enabled on the
    /// device.
    pub check_sources: bool,
    /// Whether received frames may carry a transport checksum that is not complete yet (checksum offload). The kernel's
    /// stack completes the checksum of such frames.
    pub partial_checksums: bool,
}

/// Kinds of frames that can be redirected to an output device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Takes {
    /// No frame can be redirected to the device, so the kernel's stack sends the packets.
    Nothing,
    /// Frames in a single buffer can be redirected to the device.
    Frames,
    /// Frames in one or several buffers can be redirected to the device.
    MultiBuffer,
}

/// Numbers of packets and bytes that the kernel routing stage of a port has forwarded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FibCount {
    /// Number of packets that the stage has forwarded.
    pub packets: u64,
    /// Number of bytes of the forwarded packets, without frame check sequences.
    pub bytes: u64,
}

/// Kernel routing stage for one port's XDP program. [`crate::Attached::set_stage`] adds the stage to the program.
#[derive(Debug, Clone)]
pub struct FibStage {
    maps: Arc<FibMaps>,
}

/// Constants and maps of a kernel routing stage.
#[derive(Debug)]
pub(crate) struct FibMaps {
    pub conf: [u32; FIB_WORDS],
    devices: Arc<OwnedFd>,
    near_counts: Arc<OwnedFd>,
    counts: Arc<OwnedFd>,
}

impl FibStage {
    /// Creates a kernel routing stage that shares the device map and the packet counts of the stage `present`. If
    /// `present` is `None`, creates these maps.
    pub(crate) fn sharing(port: &FibPort, present: Option<&FibStage>) -> Result<FibStage, Error> {
        let maps = match present.map(|stage| &stage.maps) {
            Some(maps) => FibMaps {
                conf: words(port),
                devices: Arc::clone(&maps.devices),
                near_counts: Arc::clone(&maps.near_counts),
                counts: Arc::clone(&maps.counts),
            },
            None => {
                let (near_counts, counts) = new_counts()?;
                let devices = create(DEVICES, MapKind::DevicesByKey, 4, 2 * FIB_DEVICES)?;
                FibMaps { conf: words(port), devices, near_counts, counts }
            }
        };
        Ok(FibStage { maps: Arc::new(maps) })
    }

    pub(crate) fn over(maps: Arc<FibMaps>) -> FibStage {
        FibStage { maps }
    }

    pub(crate) fn maps(&self) -> &Arc<FibMaps> {
        &self.maps
    }

    /// Returns whether the stage was created with the configuration `port`.
    #[must_use]
    pub fn is_for(&self, port: &FibPort) -> bool {
        self.maps.conf == words(port)
    }

    /// Sets the output devices to which the stage may redirect packets. Devices are looked up in the network
    /// namespace of the calling thread, which must be the namespace of the port. The kernel removes a deleted
    /// device from the map.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn set_devices(&self, devices: &BTreeMap<u32, Takes>) -> Result<(), Error> {
        let failed = |map, operation| move |source| Error::Map { map, operation, source };
        let (map, counts) = (self.maps.devices.as_fd(), self.maps.counts.as_fd());
        let counted = keys(counts).map_err(failed(COUNTS, "list"))?;
        // Counters are added before the device, so the first frame is counted.
        for ifindex in devices.keys().filter(|ifindex| !counted.contains(ifindex)) {
            sys::map_fill_per_cpu(counts, *ifindex, &[0; 2]).map_err(failed(COUNTS, "add to"))?;
        }
        let of = |(ifindex, takes): (&u32, &Takes)| {
            let multiple = (*takes == Takes::MultiBuffer).then_some(*ifindex | MULTI_BUFFER);
            let single = (*takes != Takes::Nothing).then_some(*ifindex);
            [single, multiple].into_iter().flatten()
        };
        let wanted: BTreeSet<u32> = devices.iter().flat_map(of).collect();
        let present = keys(map).map_err(failed(DEVICES, "list"))?;
        for key in present.difference(&wanted) {
            sys::map_delete(map, &key.to_ne_bytes()).map_err(failed(DEVICES, "delete from"))?;
        }
        // Keys that are already in the map need no update. The kernel deletes the keys of a device that is deleted or
        // moved to another namespace.
        for key in wanted.difference(&present) {
            let ifindex = (key & !MULTI_BUFFER).to_ne_bytes();
            match sys::map_update(map, &key.to_ne_bytes(), &ifindex) {
                // The device was deleted since the devices were listed.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENODEV)) => {}
                other => other.map_err(failed(DEVICES, "add to"))?,
            }
        }
        self.forget(&counted, devices)
    }

    /// Adds the counts of deleted devices to the sum in the entry [`GONE`], and removes the entries of these
    /// devices.
    fn forget(&self, counted: &BTreeSet<u32>, devices: &BTreeMap<u32, Takes>) -> Result<(), Error> {
        let failed = |operation| move |source| Error::Map { map: COUNTS, operation, source };
        let counts = self.maps.counts.as_fd();
        for ifindex in counted.iter().filter(|ifindex| **ifindex != GONE && !devices.contains_key(ifindex)) {
            let (sum, more) = (self.count(GONE)?, self.count(*ifindex)?);
            let all = [sum.packets.wrapping_add(more.packets), sum.bytes.wrapping_add(more.bytes)];
            sys::map_delete(counts, &ifindex.to_ne_bytes()).map_err(failed("delete from"))?;
            if *ifindex < FIB_DEVICES {
                sys::map_fill_per_cpu(self.maps.near_counts.as_fd(), *ifindex, &[0; 2])
                    .map_err(failed("clear"))?;
            }
            sys::map_write_one_cpu(counts, GONE, &all).map_err(failed("add to"))?;
        }
        Ok(())
    }

    /// Returns the numbers of packets and bytes that the stage has forwarded to one output device.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn count(&self, ifindex: u32) -> Result<FibCount, Error> {
        let of = |map: &'static str, fd: BorrowedFd<'_>| match sys::map_lookup_per_cpu(fd, ifindex, 2) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Vec::new()),
            other => other.map_err(|source| Error::Map { map, operation: "read", source }),
        };
        let mut words = of(COUNTS, self.maps.counts.as_fd())?;
        if ifindex < FIB_DEVICES {
            words.extend(of(NEAR_COUNTS, self.maps.near_counts.as_fd())?);
        }
        let sum = |at: usize| words.iter().skip(at).step_by(2).fold(0, |a: u64, b| a.wrapping_add(*b));
        Ok(FibCount { packets: sum(0), bytes: sum(1) })
    }

    /// Returns the numbers of packets and bytes that this port's stage has forwarded, for each output device by its
    /// index. Index 0 holds the sum for deleted devices.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn counts(&self) -> Result<BTreeMap<u32, FibCount>, Error> {
        let keys = keys(self.maps.counts.as_fd());
        let keys = keys.map_err(|source| Error::Map { map: COUNTS, operation: "list", source })?;
        keys.into_iter().map(|ifindex| Ok((ifindex, self.count(ifindex)?))).collect()
    }
}

impl FibMaps {
    /// Returns a copy of the stage's maps with new counts, for a test run. The test run therefore
    /// does not change the counts of the port.
    pub fn scratch(&self) -> Result<FibMaps, Error> {
        let (near_counts, counts) = new_counts()?;
        let failed = |operation| move |source| Error::Map { map: COUNTS, operation, source };
        for ifindex in keys(self.counts.as_fd()).map_err(failed("list"))? {
            sys::map_fill_per_cpu(counts.as_fd(), ifindex, &[0; 2]).map_err(failed("add to"))?;
        }
        Ok(FibMaps { conf: self.conf, devices: Arc::clone(&self.devices), near_counts, counts })
    }

    /// Names of the maps that only a program with a kernel routing stage has.
    pub const NAMES: [&'static str; 3] = [DEVICES, NEAR_COUNTS, COUNTS];

    pub fn list(&self) -> [(&'static str, BorrowedFd<'_>); 3] {
        let fds = [self.devices.as_fd(), self.near_counts.as_fd(), self.counts.as_fd()];
        let [a, b, c] = FibMaps::NAMES;
        let [devices, near_counts, counts] = fds;
        [(a, devices), (b, near_counts), (c, counts)]
    }

    /// Restores the kernel routing stage of a program that is already in the kernel. `take` returns the program's map
    /// of a given name.
    pub fn adopt(
        conf: [u32; FIB_WORDS],
        mut take: impl FnMut(&'static str) -> Result<OwnedFd, Error>,
    ) -> Result<FibMaps, Error> {
        let [devices, near_counts, counts] = FibMaps::NAMES;
        Ok(FibMaps {
            conf,
            devices: Arc::new(take(devices)?),
            near_counts: Arc::new(take(near_counts)?),
            counts: Arc::new(take(counts)?),
        })
    }
}

fn new_counts() -> Result<(Arc<OwnedFd>, Arc<OwnedFd>), Error> {
    Ok((
        create(NEAR_COUNTS, MapKind::PerCpuArray, 16, FIB_DEVICES)?,
        create(COUNTS, MapKind::SparsePerCpuHash, 16, FIB_DEVICES)?,
    ))
}

fn create(name: &'static str, kind: MapKind, value: u32, entries: u32) -> Result<Arc<OwnedFd>, Error> {
    let spec = MapSpec { name, kind, key: 4, value, entries };
    sys::map_create(spec, None).map(Arc::new).map_err(|source| Error::Map {
        map: name,
        operation: "create",
        source,
    })
}

fn keys(map: BorrowedFd<'_>) -> std::io::Result<BTreeSet<u32>> {
    Ok(sys::map_keys::<4>(map)?.into_iter().map(u32::from_ne_bytes).collect())
}

/// Encodes the configuration `port` as `struct fib_conf` (the constants of the kernel routing stage).
fn words(port: &FibPort) -> [u32; FIB_WORDS] {
    let [a, b, c, d, e, f] = port.mac;
    let (sources, partial) = (u32::from(port.check_sources), u32::from(port.partial_checksums));
    let (first, second) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, 0, 0]));
    [1, sources, partial, 0, first, second]
}
