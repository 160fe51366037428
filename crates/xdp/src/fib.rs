//! The stage of the kernel's own routing: what the kernel would forward without further ado leaves from the hook, by the
//! kernel's tables of routes and neighbours.
//!
//! ```text
//!  frame --> [filter] --> ours, whole, its route and neighbour known, its device takes it? --yes--> next hop
//!                            |                                                   [`FibStage::set_devices`]
//!                            no --> the kernel's stack, which answers, resolves, fragments, refuses
//! ```
//!
//! The hook asks the kernel for every frame: routes and neighbours are never copied here. What the stack would do besides
//! (netfilter, IPsec policies, tc) does not happen to what the hook forwards: see `bpf/include/stage_fib.h`.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::sys::{self, MapKind, MapSpec};
use crate::{Attached, Error};

const DEVICES: &str = "fib_devices";
/// By index: devices of less than [`FIB_DEVICES`].
const NEAR_COUNTS: &str = "fib_near_counts";
/// By index: the others, [`GONE`], and an entry for each device that is or was there.
const COUNTS: &str = "fib_counts";
/// `FIB_MULTI_BUFFER`
const MULTI_BUFFER: u32 = 1 << 31;
/// Words of `struct fib_conf`.
pub(crate) const FIB_WORDS: usize = 6;
/// Devices that a stage can send to: `FIB_DEVICES`.
pub const FIB_DEVICES: u32 = 4096;
/// Where the counts of devices that are gone are kept: no device has this index.
const GONE: u32 = 0;

/// What one port's stage is specialised by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FibPort {
    /// The device's Ethernet address: frames to others are not the router's.
    pub mac: [u8; 6],
    /// Whether the way back to an IPv4 source must lead to this port, else the stack judges: where `rp_filter` is on.
    pub check_sources: bool,
    /// Whether its senders leave checksums open, to be completed by the stack.
    pub partial_checksums: bool,
}

/// What a device does with frames that are redirected to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Takes {
    /// It takes none, so the stack sends to it.
    Nothing,
    /// It takes frames of one buffer.
    Frames,
    /// It takes frames of several buffers too.
    MultiBuffer,
}

/// What a port's stage has forwarded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FibCount {
    /// Frames.
    pub packets: u64,
    /// Without frame check sequences.
    pub bytes: u64,
}

/// A port's stage, to be put into its program by [`Attached::set_fib`].
#[derive(Debug, Clone)]
pub struct FibStage {
    maps: Arc<FibMaps>,
}

/// What a program needs: the constants, and the maps that it refers to.
#[derive(Debug)]
pub(crate) struct FibMaps {
    pub conf: [u32; FIB_WORDS],
    devices: Arc<OwnedFd>,
    near_counts: Arc<OwnedFd>,
    counts: Arc<OwnedFd>,
}

impl FibStage {
    /// For a port's program as it is now: its devices and counts go on where it has such a stage.
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

    /// Whether it is specialised by this.
    #[must_use]
    pub fn is_for(&self, port: &FibPort) -> bool {
        self.maps.conf == words(port)
    }

    /// Lets frames leave by these devices of the calling thread's network namespace, which is the port's, and by no
    /// others. The kernel forgets a device that is deleted by itself.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn set_devices(&self, devices: &BTreeMap<u32, Takes>) -> Result<(), Error> {
        let failed = |map, operation| move |source| Error::Map { map, operation, source };
        let (map, counts) = (self.maps.devices.as_fd(), self.maps.counts.as_fd());
        let counted = keys(counts).map_err(failed(COUNTS, "list"))?;
        // Counted from the first frame on.
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
        // Those that are there are written too: an index may stand for another device by now.
        for key in &wanted {
            let ifindex = (key & !MULTI_BUFFER).to_ne_bytes();
            match sys::map_update(map, &key.to_ne_bytes(), &ifindex) {
                // It went while its namespace was looked at.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENODEV)) => {}
                other => other.map_err(failed(DEVICES, "add to"))?,
            }
        }
        self.forget(&counted, devices)
    }

    /// Keeps what was sent to devices that are gone as one sum.
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

    /// What was sent by one device.
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

    /// What this port's stage has forwarded, by the devices that it left by; 0: those that are gone.
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
    /// The same with counts of its own, so that a test run counts nothing where others read it.
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

    /// Those of a program that is in the kernel already, which `take` gives by name.
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

/// `struct fib_conf`
fn words(port: &FibPort) -> [u32; FIB_WORDS] {
    let [a, b, c, d, e, f] = port.mac;
    let (sources, partial) = (u32::from(port.check_sources), u32::from(port.partial_checksums));
    let (first, second) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, 0, 0]));
    [1, sources, partial, 0, first, second]
}
