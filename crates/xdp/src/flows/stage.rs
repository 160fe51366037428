//! One port's stage: its constants, and the maps that its program refers to.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::table::{COUNTS, FlowTable, HINTS_MAP};
use crate::bridge::{self, BridgeDevices, BridgePort, KnownStations, Orders, StationTable};
use crate::{Attached, Error};

/// Words of `struct flows_conf`.
pub(crate) const FLOWS_WORDS: usize = 20;
/// Where the two halves of each factor begin.
const FACTORS: usize = 4;

/// What one port's stage is specialised by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowPort {
    /// Its number, below [`bridge::BRIDGE_PORTS`].
    pub port: u16,
    /// Whether its senders leave checksums open, to be completed by the worker.
    pub partial_checksums: bool,
}

/// A port's stage, to be put into its program by [`Attached::set_flows`].
#[derive(Debug, Clone)]
pub struct FlowStage {
    maps: Arc<FlowMaps>,
}

/// What a program needs: the constants, and every map that it refers to.
#[derive(Debug)]
pub(crate) struct FlowMaps {
    pub conf: [u32; FLOWS_WORDS],
    /// Whom flows that go by `NORMAL` ask.
    pub known: Option<KnownStations>,
    table: FlowTable,
    orders: Arc<Orders>,
    devices: OwnedFd,
    counts: OwnedFd,
    /// What a test run writes instead of the table's own.
    scratch: Option<[OwnedFd; 2]>,
}

impl FlowStage {
    /// For a port's program as it is now: its order of frames goes on where it has one. `stations`: what answers for flows that go by
    /// `NORMAL`, and how the bridge has the port; without them such flows go up.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn new(
        port: &FlowPort,
        attached: &Attached,
        table: &FlowTable,
        devices: &BridgeDevices,
        stations: Option<(&BridgePort, &StationTable)>,
    ) -> Result<FlowStage, Error> {
        let orders = bridge::orders_of(attached)?;
        let mut conf = [0; FLOWS_WORDS];
        let constants = [1, u32::from(port.port), u32::from(port.partial_checksums), table.maps.lines];
        conf[..FACTORS].copy_from_slice(&constants);
        for (to, factor) in conf[FACTORS..].chunks_exact_mut(2).zip(table.maps.factors) {
            let octets = factor.to_ne_bytes();
            for (half, octets) in to.iter_mut().zip(octets.chunks_exact(4)) {
                *half = octets.try_into().map_or(0, u32::from_ne_bytes);
            }
        }
        let known = stations.map(|(port, table)| KnownStations::new(port, table, bridge::FOR_FLOWS));
        let known = known.transpose()?;
        let [devices, counts] = devices.duplicate()?;
        let maps = FlowMaps { conf, known, table: table.clone(), orders, devices, counts, scratch: None };
        Ok(FlowStage { maps: Arc::new(maps) })
    }

    /// The order of the port's frames.
    #[must_use]
    pub fn orders(&self) -> &Arc<Orders> {
        &self.maps.orders
    }

    /// Whether a port's program has this very stage.
    #[must_use]
    pub fn is_on(&self, port: &Attached) -> bool {
        port.flow_maps().is_some_and(|maps| Arc::ptr_eq(maps, &self.maps))
    }

    pub(crate) fn maps(&self) -> &Arc<FlowMaps> {
        &self.maps
    }
}

impl FlowMaps {
    /// Names of the maps that only a program with this stage has.
    pub const NAMES: [&'static str; 8] = [
        super::table::TABLE,
        super::table::ENTRIES,
        COUNTS,
        super::table::MASKS_MAP,
        super::table::PORTS,
        super::table::STATE,
        HINTS_MAP,
        super::table::FRAMES,
    ];

    /// Its own maps, and those that it has in common with the stage of known stations.
    pub fn list(&self) -> impl Iterator<Item = (&'static str, BorrowedFd<'_>)> {
        let own = self.table.list().into_iter().map(|(name, map)| match (&self.scratch, name) {
            (Some([counts, _]), COUNTS) => (name, counts.as_fd()),
            (Some([_, hints]), HINTS_MAP) => (name, hints.as_fd()),
            _ => (name, map),
        });
        let shared = [(bridge::DEVICES, self.devices.as_fd()), (bridge::COUNTS, self.counts.as_fd())];
        own.chain(shared).chain(self.known.as_ref().map(KnownStations::map)).chain(self.orders.maps())
    }

    pub fn orders(&self) -> &Arc<Orders> {
        &self.orders
    }

    /// The same flows with counts and an order of their own, so that a test run changes nothing. Nothing is under way in that
    /// order.
    pub fn scratch(&self) -> Result<FlowMaps, Error> {
        let failed = |map| move |source| Error::Map { map, operation: "duplicate", source };
        Ok(FlowMaps {
            conf: self.conf,
            known: self.known.as_ref().map(KnownStations::scratch).transpose()?,
            table: self.table.clone(),
            orders: Arc::new(self.orders.scratch()?),
            devices: self.devices.try_clone().map_err(failed(bridge::DEVICES))?,
            counts: bridge::new_counts()?,
            scratch: Some(self.table.scratch()?),
        })
    }

    /// The port that a frame was counted as sent by.
    pub fn sent_to(&self) -> Result<Option<u16>, Error> {
        bridge::sent_to(self.counts.as_fd())
    }

    /// Those of a program that is in the kernel already, which `take` gives by name.
    pub fn adopt(
        conf: [u32; FLOWS_WORDS],
        known: Option<KnownStations>,
        mut take: impl FnMut(&'static str) -> Result<OwnedFd, Error>,
    ) -> Result<FlowMaps, Error> {
        let mut factors = [0; 8];
        for (factor, halves) in factors.iter_mut().zip(conf[FACTORS..].chunks_exact(2)) {
            let mut octets = [0; 8];
            for (to, half) in octets.chunks_exact_mut(4).zip(halves) {
                to.copy_from_slice(&half.to_ne_bytes());
            }
            *factor = u64::from_ne_bytes(octets);
        }
        let table = FlowTable::of(factors, conf[FACTORS - 1], &mut take)?;
        let (devices, counts) = (take(bridge::DEVICES)?, take(bridge::COUNTS)?);
        let orders = Arc::new(Orders::over(take(bridge::ORDERS)?, take(bridge::BUCKETS)?)?);
        Ok(FlowMaps { conf, known, table, orders, devices, counts, scratch: None })
    }
}
