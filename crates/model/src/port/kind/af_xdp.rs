//! Ports of kind `af_xdp`: kernel devices that are used through AF_XDP.

use serde::Serialize;

use super::super::xdp_options::XdpOptions;
use super::settings::{DeviceInNamespace, KindSettings};
use crate::load::fields::{Fields, Findings};
use crate::{DeviceName, Namespace, PortName};

/// Settings of a kernel device that is used through AF_XDP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AfXdp {
    /// Name of the device.
    pub device: DeviceName,
    /// Namespace of the device. `None`: the daemon's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// AF_XDP settings of the device.
    #[serde(flatten)]
    pub xdp: XdpOptions,
}

impl AfXdp {
    /// Keys of `[port.NAME]` that are specific to this kind of port, in addition to the keys of [`XdpOptions`].
    pub(super) const KEYS: &[&str] = &["device", "namespace", "queues"];

    pub(super) fn read(name: &PortName, fields: &mut Fields<'_>, findings: &mut Findings) -> Option<Self> {
        let device = fields.device_of(name, findings);
        let namespace = fields.namespace(findings);
        let xdp = XdpOptions::read(fields, findings);
        Some(AfXdp { device: device?, namespace: namespace?, xdp })
    }
}

impl KindSettings for AfXdp {
    fn device(&self) -> Option<DeviceInNamespace<'_>> {
        Some((&self.device, self.namespace.as_ref()))
    }

    fn xdp(&self) -> Option<&XdpOptions> {
        Some(&self.xdp)
    }

    fn changes_live(&self, key: &str) -> bool {
        XdpOptions::changes_live(key)
    }
}
