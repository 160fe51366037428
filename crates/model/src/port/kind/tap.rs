//! Ports of the kinds `tap` and `internal`: TAP devices.

use packet::MacAddr;
use serde::Serialize;

use super::settings::{DeviceAddresses, DeviceInNamespace, KindSettings};
use crate::load::fields::{Fields, Findings};
use crate::{DeviceName, InterfaceAddress, Namespace, PortName, text};

/// Settings of a TAP device, through which the host itself may be connected to a bridge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Tap {
    /// Name of the device.
    pub device: DeviceName,
    /// Namespace of the device. `None`: the daemon's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Addresses of the device.
    pub address: Vec<InterfaceAddress>,
    /// Ethernet address of the device. `None`: the kernel chooses an address.
    #[serde(serialize_with = "text::mac_option::serialize", skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// Number of queues of the device, 1..=256.
    pub queues: u16,
}

impl Tap {
    /// Keys of `[port.NAME]` that are specific to these kinds of ports.
    pub(super) const KEYS: &[&str] = &["device", "namespace", "queues", "address", "mac"];

    pub(super) fn read(name: &PortName, fields: &mut Fields<'_>, findings: &mut Findings) -> Option<Self> {
        let device = fields.device_of(name, findings);
        let namespace = fields.namespace(findings);
        let address = fields.addresses(findings);
        let mac = fields.station("mac", findings);
        let queues = fields.number("queues", (1, 256), "", findings).unwrap_or(1);
        Some(Tap { device: device?, namespace: namespace?, address, mac, queues })
    }
}

impl KindSettings for Tap {
    fn device(&self) -> Option<DeviceInNamespace<'_>> {
        Some((&self.device, self.namespace.as_ref()))
    }

    fn addresses(&self) -> Option<DeviceAddresses<'_>> {
        let namespace = self.namespace.as_ref();
        Some(DeviceAddresses { namespace, addresses: &self.address, key: "address" })
    }

    fn changes_live(&self, key: &str) -> bool {
        match key {
            "address" => true,
            // If the kernel is to choose the address again, a new device is required.
            "mac" => self.mac.is_some(),
            _ => false,
        }
    }
}
