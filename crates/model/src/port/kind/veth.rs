//! Ports of kind `veth`: pairs of veth devices that the daemon creates.

use packet::MacAddr;
use serde::Serialize;

use super::super::xdp_options::{XdpOptions, ZeroCopy};
use super::settings::{DeviceAddresses, DeviceInNamespace, KindSettings, Surroundings};
use crate::load::fields::{Fields, Findings, table_of};
use crate::{Cause, DeviceName, InterfaceAddress, Mtu, Namespace, PortName, text};

/// Settings of a pair of veth devices that the daemon creates.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Veth {
    /// Name of the near device of the pair, which the daemon uses.
    pub device: DeviceName,
    /// Namespace of the near device. `None`: the daemon's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Settings of the peer device of the pair.
    pub peer: Peer,
    /// AF_XDP settings of the near device.
    #[serde(flatten)]
    pub xdp: XdpOptions,
}

/// Settings of the peer device of a veth pair, which the daemon does not use itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Peer {
    /// Name of the peer device.
    pub name: DeviceName,
    /// Namespace into which the peer device is moved. `None`: the daemon's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Addresses of the peer device.
    pub address: Vec<InterfaceAddress>,
    /// Ethernet address of the peer device. `None`: the kernel chooses an address.
    #[serde(serialize_with = "text::mac_option::serialize", skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// MTU of the peer device. `None`: the MTU of the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Mtu>,
}

impl Veth {
    /// Keys of `[port.NAME]` that are specific to this kind of port, in addition to the keys of [`XdpOptions`].
    pub(super) const KEYS: &[&str] = &["device", "namespace", "queues", "peer"];

    pub(super) fn read(name: &PortName, fields: &mut Fields<'_>, findings: &mut Findings) -> Option<Self> {
        let device = fields.device_of(name, findings);
        let namespace = fields.namespace(findings);
        let xdp = XdpOptions::read(fields, findings);
        let peer = Peer::read(fields, findings);
        Some(Veth { device: device?, namespace: namespace?, peer: peer?, xdp })
    }
}

impl Peer {
    fn read(fields: &mut Fields<'_>, findings: &mut Findings) -> Option<Peer> {
        const EXAMPLE: &str = "peer = { name = \"eth0\", namespace = \"web1\" }";
        let Some(entry) = fields.get("peer", findings) else {
            fields.missing("peer", EXAMPLE, findings);
            return None;
        };
        let mut peer = table_of(&fields.path("peer"), &entry.node, findings)?;
        if !peer.has("name") {
            peer.missing("name", "name = \"eth0\"", findings);
        }
        let name = peer.device("name", findings);
        let namespace = peer.namespace(findings);
        let address = peer.addresses(findings);
        let mac = peer.station("mac", findings);
        let mtu = peer.mtu(findings);
        peer.finish(findings);
        Some(Peer { name: name?, namespace: namespace?, address, mac, mtu })
    }
}

impl KindSettings for Veth {
    fn device(&self) -> Option<DeviceInNamespace<'_>> {
        Some((&self.device, self.namespace.as_ref()))
    }

    fn far_device(&self) -> Option<DeviceInNamespace<'_>> {
        Some((&self.peer.name, self.peer.namespace.as_ref()))
    }

    fn far_mtu(&self) -> Option<Mtu> {
        self.peer.mtu
    }

    fn xdp(&self) -> Option<&XdpOptions> {
        Some(&self.xdp)
    }

    fn addresses(&self) -> Option<DeviceAddresses<'_>> {
        let Peer { namespace, address, .. } = &self.peer;
        Some(DeviceAddresses { namespace: namespace.as_ref(), addresses: address, key: "peer.address" })
    }

    fn changes_live(&self, key: &str) -> bool {
        match key {
            "peer.address" | "peer.mtu" => true,
            // If the kernel is to choose the address again, a new device is required.
            "peer.mac" => self.peer.mac.is_some(),
            key => XdpOptions::changes_live(key),
        }
    }

    fn check(&self, port: &Surroundings<'_>) -> Vec<(&'static str, Cause)> {
        let mut causes = Vec::new();
        if self.xdp.zero_copy == ZeroCopy::Require {
            causes.push(("zero_copy", Cause::NoZeroCopy { kind: "veth" }));
        }
        let ours = (self.namespace.as_ref().map(Namespace::path), &self.device);
        if ours == (self.peer.namespace.as_ref().map(Namespace::path), &self.peer.name) {
            causes.push(("peer.name", Cause::PairOfOne { device: self.device.to_string() }));
        }
        let (peer, own) = (self.peer.mtu.map(Mtu::get), port.mtu.unwrap_or(Mtu::ETHERNET).get());
        if let Some(peer) = peer.filter(|peer| *peer > own) {
            causes.push(("peer.mtu", Cause::PeerMtuAbove { peer, port: own }));
        }
        causes
    }
}
