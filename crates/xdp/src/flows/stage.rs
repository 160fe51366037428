//! Stage of cached flows in one port's XDP program: the constants and the maps of the stage.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::table::{COUNTS, FlowTable, HINTS_MAP};
use crate::Error;
use crate::bridge::{self, BridgeDevices, BridgePort, KnownStations, Orders, StationTable};
use crate::map_copy::duplicate;

/// Number of 32-bit words of `struct flows_conf` (the constants of the stage of cached flows).
pub(crate) const FLOWS_WORDS: usize = 20;
/// Index in `struct flows_conf` of the first secret factor of the flow hash. Each factor takes two 32-bit words.
const FACTORS: usize = 4;

/// Configuration of the stage of cached flows for one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowPort {
    /// Number of the port within its process, below [`bridge::BRIDGE_PORTS`].
    pub port: u16,
    /// Whether frames received on the port may carry a transport checksum that is not complete yet (checksum offload).
    /// Such frames go to the worker, which completes the checksum.
    pub partial_checksums: bool,
}

/// Stage of cached flows for one port's XDP program. [`crate::Attached::set_stage`] adds the stage to the program.
#[derive(Debug, Clone)]
pub struct FlowStage {
    maps: Arc<FlowMaps>,
}

/// Constants and maps of a stage of cached flows.
#[derive(Debug)]
pub(crate) struct FlowMaps {
    pub conf: [u32; FLOWS_WORDS],
    /// Station table (MAC table) for flows with the action `NORMAL`. With `None`, packets of such flows go to the
    /// worker.
    pub known: Option<KnownStations>,
    table: FlowTable,
    orders: Arc<Orders>,
    devices: OwnedFd,
    counts: OwnedFd,
    /// Maps of flow counts and of recently matched masks that a test run uses in place of the flow table's own maps.
    /// `None` outside test runs.
    scratch: Option<[OwnedFd; 2]>,
}

impl FlowStage {
    /// Creates a stage of cached flows that uses the frame sequence numbers in `orders`.
    pub(crate) fn with_orders(
        port: &FlowPort,
        orders: Arc<Orders>,
        table: &FlowTable,
        devices: &BridgeDevices,
        stations: Option<(&BridgePort, &StationTable)>,
    ) -> Result<FlowStage, Error> {
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

    /// Returns the frame sequence numbers with which the port's program and the workers keep the frames of a flow in
    /// order.
    #[must_use]
    pub fn orders(&self) -> &Arc<Orders> {
        &self.maps.orders
    }

    pub(crate) fn maps(&self) -> &Arc<FlowMaps> {
        &self.maps
    }
}

impl FlowMaps {
    /// Names of the maps that only a program with a stage of cached flows has.
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

    /// Returns the stage's maps with their names, including the maps that the bridge stage also
    /// uses.
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

    /// Returns a copy with new counts and new frame sequence numbers. A test run with the copy therefore changes no
    /// state of the flows. The test run assumes that no frame is in a worker.
    pub fn scratch(&self) -> Result<FlowMaps, Error> {
        Ok(FlowMaps {
            conf: self.conf,
            known: self.known.as_ref().map(KnownStations::scratch).transpose()?,
            table: self.table.clone(),
            orders: Arc::new(self.orders.scratch()?),
            devices: duplicate(bridge::DEVICES, &self.devices)?,
            counts: bridge::new_counts()?,
            scratch: Some(self.table.scratch()?),
        })
    }

    /// Returns the number of the port to which a test run redirected its packet: the only port whose transmitted
    /// packets were counted. Returns `None` if no packet was redirected.
    pub fn sent_to(&self) -> Result<Option<u16>, Error> {
        bridge::sent_to(self.counts.as_fd())
    }

    /// Restores the stage of cached flows of a program that is already in the kernel. `take` returns the program's map
    /// of a given name.
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
