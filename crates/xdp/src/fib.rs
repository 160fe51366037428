//! The stage of kernel routing. The hook forwards packets by the kernel's routes and neighbours where the
//! kernel would forward them without special treatment.
//!
//! ```text
//!  frame --> [filter] --> ours, whole, its route and neighbour known, its device takes it? --yes--> next hop
//!                            |                                                   [`FibStage::set_devices`]
//!                            no --> the kernel's stack, which answers, resolves, fragments, refuses
//! ```
//!
//! The hook queries the kernel for every frame. Routes and neighbours are not copied. Other processing of the
//! stack (netfilter, IPsec policies, tc) does not apply to packets that the hook forwards (see
//! `bpf/include/stage_fib.h`).

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::sys::{self, MapKind, MapSpec};
use crate::{Attached, Error};

const DEVICES: &str = "fib_devices";
/// Map of the counts of devices whose index is below [`FIB_DEVICES`].
const NEAR_COUNTS: &str = "fib_near_counts";
/// Map of the counts of other devices by index. It also has the entry [`GONE`], and an entry for each device
/// that is or was present.
const COUNTS: &str = "fib_counts";
/// `FIB_MULTI_BUFFER`: bit in the key of a device that accepts multi-buffer frames.
const MULTI_BUFFER: u32 = 1 << 31;
/// Number of 32-bit words of `struct fib_conf`.
pub(crate) const FIB_WORDS: usize = 6;
/// Maximum number of output devices of a stage: `FIB_DEVICES`.
pub const FIB_DEVICES: u32 = 4096;
/// Key of the counts of deleted devices. No device has this index.
const GONE: u32 = 0;

/// Constants of one port's stage of kernel routing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FibPort {
    /// Ethernet address of the device. Frames to other addresses are not routed by the hook.
    pub mac: [u8; 6],
    /// Whether the reverse path of an IPv4 source must lead to this port. Other packets go to the stack. Set
    /// where `rp_filter` is on.
    pub check_sources: bool,
    /// Whether frames may arrive with a partial checksum, which the stack must complete.
    pub partial_checksums: bool,
}

/// Kinds of redirected frames that a device accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Takes {
    /// The device accepts no redirected frames, so the stack sends to it.
    Nothing,
    /// The device accepts frames of one buffer.
    Frames,
    /// The device also accepts frames of several buffers.
    MultiBuffer,
}

/// Number of packets and bytes that a port's stage has forwarded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FibCount {
    /// Number of frames.
    pub packets: u64,
    /// Number of bytes, without frame check sequences.
    pub bytes: u64,
}

/// The stage of kernel routing of one port. [`Attached::set_fib`] puts the stage into the port's program.
#[derive(Debug, Clone)]
pub struct FibStage {
    maps: Arc<FibMaps>,
}

/// Constants and maps of a stage of kernel routing.
#[derive(Debug)]
pub(crate) struct FibMaps {
    pub conf: [u32; FIB_WORDS],
    devices: Arc<OwnedFd>,
    near_counts: Arc<OwnedFd>,
    counts: Arc<OwnedFd>,
}

impl FibStage {
    /// Creates a stage for the program of `attached`. Keeps the devices and counts of a stage that the
    /// program already has.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn new(port: &FibPort, attached: &Attached) -> Result<FibStage, Error> {
        let present = attached.fib().map(|stage| stage.maps);
        let maps = match present {
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

    /// Returns whether the stage has the constants of `port`.
    #[must_use]
    pub fn is_for(&self, port: &FibPort) -> bool {
        self.maps.conf == words(port)
    }

    /// Sets the devices by which frames may leave. Devices are looked up in the namespace of the calling
    /// thread, which must be the port's. The kernel removes a deleted device from the map.
    ///
    /// # Errors
    /// [`Error::Map`].
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
        // Present keys are written again, because an index may belong to another device by now.
        for key in &wanted {
            let ifindex = (key & !MULTI_BUFFER).to_ne_bytes();
            match sys::map_update(map, &key.to_ne_bytes(), &ifindex) {
                // The device was deleted since the devices were listed.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENODEV)) => {}
                other => other.map_err(failed(DEVICES, "add to"))?,
            }
        }
        self.forget(&counted, devices)
    }

    /// Adds the counts of deleted devices to one sum, and removes their entries.
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

    /// Returns the packets and bytes sent to one device.
    ///
    /// # Errors
    /// [`Error::Map`].
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

    /// Returns the packets and bytes that this port's stage has forwarded, by output device. Index 0 holds
    /// the sum of deleted devices.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn counts(&self) -> Result<BTreeMap<u32, FibCount>, Error> {
        let keys = keys(self.maps.counts.as_fd());
        let keys = keys.map_err(|source| Error::Map { map: COUNTS, operation: "list", source })?;
        keys.into_iter().map(|ifindex| Ok((ifindex, self.count(ifindex)?))).collect()
    }
}

impl FibMaps {
    /// Returns a copy with new counts, so a test run does not change the counts of the port.
    pub fn scratch(&self) -> Result<FibMaps, Error> {
        let (near_counts, counts) = new_counts()?;
        let failed = |operation| move |source| Error::Map { map: COUNTS, operation, source };
        for ifindex in keys(self.counts.as_fd()).map_err(failed("list"))? {
            sys::map_fill_per_cpu(counts.as_fd(), ifindex, &[0; 2]).map_err(failed("add to"))?;
        }
        Ok(FibMaps { conf: self.conf, devices: Arc::clone(&self.devices), near_counts, counts })
    }

    /// Names of the maps that only a program with this stage has.
    pub const NAMES: [&'static str; 3] = [DEVICES, NEAR_COUNTS, COUNTS];

    pub fn list(&self) -> [(&'static str, BorrowedFd<'_>); 3] {
        let fds = [self.devices.as_fd(), self.near_counts.as_fd(), self.counts.as_fd()];
        let [a, b, c] = FibMaps::NAMES;
        let [devices, near_counts, counts] = fds;
        [(a, devices), (b, near_counts), (c, counts)]
    }

    /// Restores the stage of a program that is in the kernel already. `take` returns a map by its name.
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

/// Encodes `port` as `struct fib_conf`.
fn words(port: &FibPort) -> [u32; FIB_WORDS] {
    let [a, b, c, d, e, f] = port.mac;
    let (sources, partial) = (u32::from(port.check_sources), u32::from(port.partial_checksums));
    let (first, second) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, 0, 0]));
    [1, sources, partial, 0, first, second]
}
