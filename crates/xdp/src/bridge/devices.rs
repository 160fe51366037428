//! Devices to which XDP programs redirect the frames of bridge ports, and counts of the redirected frames.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::BRIDGE_PORTS;
use crate::Error;
use crate::map_copy::duplicate;
use crate::sys::{self, MapKind, MapSpec};

pub(crate) const DEVICES: &str = "bridge_devices";
pub(crate) const COUNTS: &str = "bridge_counts";

/// Numbers of packets and bytes that XDP programs forwarded from one port and to this port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BridgeCounts {
    /// Number of packets that were received on the port and redirected by the port's XDP program.
    pub rx_packets: u64,
    /// Number of bytes of the packets in `rx_packets`, measured as received.
    pub rx_bytes: u64,
    /// Number of packets that XDP programs redirected to the port's device.
    pub tx_packets: u64,
    /// Number of bytes of the packets in `tx_packets`, measured as transmitted.
    pub tx_bytes: u64,
}

impl std::ops::Add for BridgeCounts {
    type Output = BridgeCounts;

    fn add(self, other: BridgeCounts) -> BridgeCounts {
        BridgeCounts {
            rx_packets: self.rx_packets + other.rx_packets,
            rx_bytes: self.rx_bytes + other.rx_bytes,
            tx_packets: self.tx_packets + other.tx_packets,
            tx_bytes: self.tx_bytes + other.tx_bytes,
        }
    }
}

/// Output devices and packet counts of all bridge ports of a process.
#[derive(Debug)]
pub struct BridgeDevices {
    pub(super) devices: OwnedFd,
    pub(super) counts: OwnedFd,
}

impl BridgeDevices {
    /// Creates the map of output devices and the map of packet counts. No port has an output device yet.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn new() -> Result<BridgeDevices, Error> {
        Ok(BridgeDevices { devices: create(DEVICES, MapKind::Devices, 4)?, counts: new_counts()? })
    }

    /// Returns duplicates of two file descriptors: the map of output devices, and the map of packet counts.
    pub(crate) fn duplicate(&self) -> Result<[OwnedFd; 2], Error> {
        Ok([duplicate(DEVICES, &self.devices)?, duplicate(COUNTS, &self.counts)?])
    }

    /// Sets the device to which XDP programs redirect the frames for port `port`. The device is looked up in the
    /// network namespace of the calling thread. The kernel removes a deleted device from the map.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn set(&self, port: u16, ifindex: u32) -> Result<(), Error> {
        sys::map_update(self.devices.as_fd(), &u32::from(port).to_ne_bytes(), &ifindex.to_ne_bytes())
            .map_err(|source| Error::Map { map: DEVICES, operation: "add to", source })
    }

    /// Removes the device to which frames for port `port` are redirected, and sets the port's counts to 0.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn clear(&self, port: u16) -> Result<(), Error> {
        let failed = |map| move |source| Error::Map { map, operation: "clear", source };
        sys::map_delete(self.devices.as_fd(), &u32::from(port).to_ne_bytes()).map_err(failed(DEVICES))?;
        sys::map_fill_per_cpu(self.counts.as_fd(), u32::from(port), &[0; 4]).map_err(failed(COUNTS))
    }

    /// Returns the numbers of packets and bytes that XDP programs have forwarded from and to port `port`.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn counts(&self, port: u16) -> Result<BridgeCounts, Error> {
        let words = sys::map_lookup_per_cpu(self.counts.as_fd(), u32::from(port), 4)
            .map_err(|source| Error::Map { map: COUNTS, operation: "read", source })?;
        let sum = |at: usize| words.iter().skip(at).step_by(4).fold(0, |a: u64, b| a.wrapping_add(*b));
        Ok(BridgeCounts { rx_packets: sum(0), rx_bytes: sum(1), tx_packets: sum(2), tx_bytes: sum(3) })
    }
}

fn create(name: &'static str, kind: MapKind, value: u32) -> Result<OwnedFd, Error> {
    let spec = MapSpec { name, kind, key: 4, value, entries: BRIDGE_PORTS };
    sys::map_create(spec, None).map_err(|source| Error::Map { map: name, operation: "create", source })
}

/// Creates a map of packet counts. All counts are 0.
pub(crate) fn new_counts() -> Result<OwnedFd, Error> {
    create(COUNTS, MapKind::PerCpuArray, 32)
}

/// Returns the number of the port to which a test run redirected its packet. The result is the only port whose count in
/// `counts` is not zero. Returns `None` if no packet was redirected.
pub(crate) fn sent_to(counts: BorrowedFd<'_>) -> Result<Option<u16>, Error> {
    for port in 0..BRIDGE_PORTS {
        let words = sys::map_lookup_per_cpu(counts, port, 4);
        let words = words.map_err(|source| Error::Map { map: COUNTS, operation: "read", source })?;
        if words.iter().skip(2).step_by(4).any(|count| *count > 0) {
            return Ok(u16::try_from(port).ok());
        }
    }
    Ok(None)
}
