//! One port's bridge stage: its constants, and the maps that its program refers to.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::devices::{COUNTS, DEVICES, new_counts, sent_to};
use super::orders::{BUCKETS, ORDERS, orders_of};
use super::table::TABLE;
use super::{BridgeDevices, Orders, StationTable};
use crate::sys::{self, MapKind, MapSpec, Mapped};
use crate::{Attached, Error};

/// Words of `struct bridge_conf`.
pub(crate) const BRIDGE_WORDS: usize = 10;
/// `BRIDGE_NO_VLAN`
const NO_VLAN: u32 = 0xffff;
/// `enum bridge_presence`
pub(crate) const STAGE: u32 = 1;
pub(crate) const FOR_FLOWS: u32 = 2;

/// What one port's stage is specialised by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BridgePort {
    /// Its number, below [`super::BRIDGE_PORTS`].
    pub port: u16,
    /// VLAN of untagged frames; without one they are the worker's.
    pub untagged: Option<u16>,
    /// Whether tagged frames are taken.
    pub tagged: bool,
    /// Whether that is so but for the tag of `untagged`, whose frames are the worker's.
    pub untagged_only: bool,
    /// Whether it is kept apart from other protected ports.
    pub protected: bool,
    /// Whether addresses are learned here.
    pub learning: bool,
    /// Whether its senders leave checksums open, to be completed by the worker.
    pub partial_checksums: bool,
}

/// A port's bridge stage, to be put into its program by [`Attached::set_bridge`].
#[derive(Debug, Clone)]
pub struct BridgeStage {
    maps: Arc<BridgeMaps>,
}

/// The stations that a program asks, and the constants that it asks by.
#[derive(Debug)]
pub(crate) struct KnownStations {
    pub conf: [u32; BRIDGE_WORDS],
    table: OwnedFd,
}

/// What a program needs of a bridge: the constants, and every map that it refers to.
#[derive(Debug)]
pub(crate) struct BridgeMaps {
    pub known: KnownStations,
    orders: Arc<Orders>,
    devices: OwnedFd,
    counts: OwnedFd,
}

impl BridgeStage {
    /// For a port's program as it is now: its order of frames goes on where it has one.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn new(
        port: &BridgePort,
        attached: &Attached,
        table: &StationTable,
        devices: &BridgeDevices,
    ) -> Result<BridgeStage, Error> {
        let orders = orders_of(attached)?;
        let known = KnownStations::new(port, table, STAGE)?;
        let [devices, counts] = devices.duplicate()?;
        Ok(BridgeStage { maps: Arc::new(BridgeMaps { known, orders, devices, counts }) })
    }

    /// The order of the port's frames.
    #[must_use]
    pub fn orders(&self) -> &Arc<Orders> {
        &self.maps.orders
    }

    /// Whether a port's program has this very stage.
    #[must_use]
    pub fn is_on(&self, port: &Attached) -> bool {
        port.bridge_maps().is_some_and(|maps| Arc::ptr_eq(maps, &self.maps))
    }

    pub(crate) fn maps(&self) -> &Arc<BridgeMaps> {
        &self.maps
    }
}

impl KnownStations {
    /// Its map.
    pub const NAME: &'static str = TABLE;

    /// For a port's program; `presence`: what asks.
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
        let duplicated = |source| Error::Map { map: TABLE, operation: "duplicate", source };
        Ok(KnownStations { conf, table: table.map().try_clone_to_owned().map_err(duplicated)? })
    }

    pub fn map(&self) -> (&'static str, BorrowedFd<'_>) {
        (TABLE, self.table.as_fd())
    }

    /// The same stations in a table of their own.
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

    /// Those of a program that is in the kernel already, which `take` gives by name.
    pub fn adopt(
        conf: [u32; BRIDGE_WORDS],
        mut take: impl FnMut(&'static str) -> Result<OwnedFd, Error>,
    ) -> Result<KnownStations, Error> {
        Ok(KnownStations { conf, table: take(TABLE)? })
    }

    /// Whether it is the stage of a bridge that learns alone that asks.
    pub fn is_stage(&self) -> bool {
        self.conf[0] == STAGE
    }
}

impl BridgeMaps {
    /// Those that a program with one of both stages of bridges has.
    pub const SHARED: [&'static str; 4] = [ORDERS, BUCKETS, DEVICES, COUNTS];

    pub fn orders(&self) -> &Arc<Orders> {
        &self.orders
    }

    pub fn list(&self) -> impl Iterator<Item = (&'static str, BorrowedFd<'_>)> {
        let own = [self.known.map(), (DEVICES, self.devices.as_fd()), (COUNTS, self.counts.as_fd())];
        own.into_iter().chain(self.orders.maps())
    }

    /// The same stations in a table of their own, with counts and an order of their own, so that a test run changes nothing. Nothing is under
    /// way in that order.
    pub fn scratch(&self) -> Result<BridgeMaps, Error> {
        let failed = |source| Error::Map { map: DEVICES, operation: "duplicate", source };
        Ok(BridgeMaps {
            known: self.known.scratch()?,
            orders: Arc::new(self.orders.scratch()?),
            devices: self.devices.try_clone().map_err(failed)?,
            counts: new_counts()?,
        })
    }

    /// The port that a frame was counted as sent by.
    pub fn sent_to(&self) -> Result<Option<u16>, Error> {
        sent_to(self.counts.as_fd())
    }

    /// Those of a program that is in the kernel already, which `take` gives by name.
    pub fn adopt(
        known: KnownStations,
        mut take: impl FnMut(&'static str) -> Result<OwnedFd, Error>,
    ) -> Result<BridgeMaps, Error> {
        let (devices, counts) = (take(DEVICES)?, take(COUNTS)?);
        let orders = Arc::new(Orders::over(take(ORDERS)?, take(BUCKETS)?)?);
        Ok(BridgeMaps { known, orders, devices, counts })
    }
}
