//! Bridge stage of one port's XDP program: the constants of the stage and its maps.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::devices::{COUNTS, DEVICES, new_counts, sent_to};
use super::orders::{BUCKETS, ORDERS};
use super::table::TABLE;
use super::{BridgeDevices, Orders, StationTable};
use crate::Error;
use crate::map_copy::duplicate;
use crate::sys::{self, MapKind, MapSpec, Mapped};

/// Number of 32-bit words of `struct bridge_conf` (the constants of the bridge stage).
pub(crate) const BRIDGE_WORDS: usize = 10;
/// `BRIDGE_NO_VLAN`: value of the VLAN constant on a port whose untagged frames belong to no VLAN.
const NO_VLAN: u32 = 0xffff;
/// Value of the first word of `struct bridge_conf` (`enum bridge_presence`) if the bridge stage reads the station
/// table. The value is `FOR_FLOWS` if the stage of cached flows reads the table.
pub(crate) const STAGE: u32 = 1;
pub(crate) const FOR_FLOWS: u32 = 2;

/// Configuration of the bridge stage of one port's XDP program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BridgePort {
    /// Number of the port, which is unique within the daemon and less than [`super::BRIDGE_PORTS`].
    pub port: u16,
    /// VLAN to which untagged frames belong. With `None`, untagged frames go to the worker.
    pub untagged: Option<u16>,
    /// Whether the XDP program forwards tagged frames. If not, tagged frames go to the worker.
    pub tagged: bool,
    /// Whether tagged frames of the VLAN in `untagged` go to the worker instead of being forwarded.
    pub untagged_only: bool,
    /// Whether the port is protected. Frames are not forwarded between two protected ports.
    pub protected: bool,
    /// Whether the bridge learns source addresses on the port.
    pub learning: bool,
    /// Whether frames received on the port may carry a transport checksum that is not complete yet (checksum offload).
    /// Such frames go to the worker, which completes the checksum.
    pub partial_checksums: bool,
}

/// Bridge stage for one port's XDP program. [`crate::Attached::set_stage`] adds the stage to the program.
#[derive(Debug, Clone)]
pub struct BridgeStage {
    maps: Arc<BridgeMaps>,
}

/// Station table (MAC table) that a program reads, with the constants with which the program accesses it.
#[derive(Debug)]
pub(crate) struct KnownStations {
    pub conf: [u32; BRIDGE_WORDS],
    table: OwnedFd,
}

/// Constants and maps of the bridge stage of one program.
#[derive(Debug)]
pub(crate) struct BridgeMaps {
    pub known: KnownStations,
    orders: Arc<Orders>,
    devices: OwnedFd,
    counts: OwnedFd,
}

impl BridgeStage {
    /// Creates a bridge stage that uses the frame sequence numbers in `orders`.
    pub(crate) fn with_orders(
        port: &BridgePort,
        orders: Arc<Orders>,
        table: &StationTable,
        devices: &BridgeDevices,
    ) -> Result<BridgeStage, Error> {
        let known = KnownStations::new(port, table, STAGE)?;
        let [devices, counts] = devices.duplicate()?;
        Ok(BridgeStage { maps: Arc::new(BridgeMaps { known, orders, devices, counts }) })
    }

    /// Returns the frame sequence numbers of the port.
    #[must_use]
    pub fn orders(&self) -> &Arc<Orders> {
        &self.maps.orders
    }

    pub(crate) fn maps(&self) -> &Arc<BridgeMaps> {
        &self.maps
    }
}

impl KnownStations {
    /// Name of the kernel map that holds the station table.
    pub const NAME: &'static str = TABLE;

    /// Creates the constants for reading `table` in a port's program. `presence` is the value of `enum
    /// bridge_presence` for the program stage that reads the table.
    pub fn new(port: &BridgePort, table: &StationTable, presence: u32) -> Result<KnownStations, Error> {
        let (low, high) = (table.factor & u64::from(u32::MAX), table.factor >> 32);
        let half = |word: u64| u32::try_from(word).unwrap_or(0);
        let conf = [
            presence,
            u32::from(port.port),
            port.untagged.map_or(NO_VLAN, u32::from),
            u32::from(port.tagged) << u32::from(port.untagged_only),
            u32::from(port.protected),
            u32::from(port.learning),
            u32::from(port.partial_checksums),
            table.shift,
            half(if cfg!(target_endian = "little") { low } else { high }),
            half(if cfg!(target_endian = "little") { high } else { low }),
        ];
        Ok(KnownStations { conf, table: duplicate(TABLE, &table.map())? })
    }

    pub fn map(&self) -> (&'static str, BorrowedFd<'_>) {
        (TABLE, self.table.as_fd())
    }

    /// Returns a copy for a test run. The copy has a new station table with the same stations.
    pub fn scratch(&self) -> Result<KnownStations, Error> {
        let failed = |map, operation| move |source| Error::Map { map, operation, source };
        let entries = sys::map_info(self.table.as_fd()).map_err(failed(TABLE, "query"))?.max_entries;
        let spec = MapSpec { name: TABLE, kind: MapKind::Mappable, key: 4, value: 64, entries };
        let table = sys::map_create(spec, None).map_err(failed(TABLE, "create"))?;
        let (from, to) = (Mapped::new(self.table.as_fd()), Mapped::new(table.as_fd()));
        let (from, to) = (from.map_err(failed(TABLE, "map"))?, to.map_err(failed(TABLE, "map"))?);
        for (from, to) in from.words().iter().zip(to.words()) {
            to.store(from.load(Ordering::Acquire), Ordering::Relaxed);
        }
        Ok(KnownStations { conf: self.conf, table })
    }

    /// Restores the station table of a program that is already in the kernel. `take` returns the program's map of a
    /// given name.
    pub fn adopt(
        conf: [u32; BRIDGE_WORDS],
        mut take: impl FnMut(&'static str) -> Result<OwnedFd, Error>,
    ) -> Result<KnownStations, Error> {
        Ok(KnownStations { conf, table: take(TABLE)? })
    }

    /// Returns whether the bridge stage reads the station table. If not, the stage of cached flows reads it.
    pub fn is_stage(&self) -> bool {
        self.conf[0] == STAGE
    }
}

impl BridgeMaps {
    /// Names of the maps that both the bridge stage and the stage of cached flows use.
    pub const SHARED: [&'static str; 4] = [ORDERS, BUCKETS, DEVICES, COUNTS];

    pub fn orders(&self) -> &Arc<Orders> {
        &self.orders
    }

    pub fn list(&self) -> impl Iterator<Item = (&'static str, BorrowedFd<'_>)> {
        let own = [self.known.map(), (DEVICES, self.devices.as_fd()), (COUNTS, self.counts.as_fd())];
        own.into_iter().chain(self.orders.maps())
    }

    /// Returns a copy with a new station table, new counts and new frame sequence numbers. A test run with the copy
    /// therefore changes no state of the bridge. The test run assumes that no frame is in a worker.
    pub fn scratch(&self) -> Result<BridgeMaps, Error> {
        Ok(BridgeMaps {
            known: self.known.scratch()?,
            orders: Arc::new(self.orders.scratch()?),
            devices: duplicate(DEVICES, &self.devices)?,
            counts: new_counts()?,
        })
    }

    /// Returns the number of the port to which a test run redirected its packet: the only port whose transmitted
    /// packets were counted. Returns `None` if no packet was redirected.
    pub fn sent_to(&self) -> Result<Option<u16>, Error> {
        sent_to(self.counts.as_fd())
    }

    /// Restores the bridge stage of a program that is already in the kernel. `take` returns the program's map of a
    /// given name.
    pub fn adopt(
        known: KnownStations,
        mut take: impl FnMut(&'static str) -> Result<OwnedFd, Error>,
    ) -> Result<BridgeMaps, Error> {
        let (devices, counts) = (take(DEVICES)?, take(COUNTS)?);
        let orders = Arc::new(Orders::over(take(ORDERS)?, take(BUCKETS)?)?);
        Ok(BridgeMaps { known, orders, devices, counts })
    }
}
