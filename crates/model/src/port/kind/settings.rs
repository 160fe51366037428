//! Interface through which the checks and comparisons of configurations read the settings of a port of any kind.

use std::path::Path;

use super::super::xdp_options::XdpOptions;
use crate::{Cause, DeviceName, InterfaceAddress, Mtu, Namespace, PortName};

/// A kernel device in a network namespace. The namespace is `None` for the daemon's own namespace.
pub type DeviceInNamespace<'a> = (&'a DeviceName, Option<&'a Namespace>);

/// IP addresses that the settings of a port assign to a device.
pub struct DeviceAddresses<'a> {
    /// Namespace of the device. `None`: the daemon's namespace.
    pub namespace: Option<&'a Namespace>,
    /// Addresses of the device.
    pub addresses: &'a [InterfaceAddress],
    /// Key of the list of addresses in `[port.NAME]`.
    pub key: &'static str,
}

/// A port other than the port whose settings are checked.
pub struct OtherPort<'a> {
    /// Name of the port's kind.
    pub kind: &'static str,
    /// Peer of the port if it is a patch port.
    pub patch_peer: Option<&'a PortName>,
}

/// The port whose settings are checked, and the other ports of the configuration.
pub struct Surroundings<'a> {
    /// Name of the port.
    pub name: &'a PortName,
    /// MTU of the port. `None`: the MTU of the device, or 1500.
    pub mtu: Option<Mtu>,
    /// Whether received packets are distributed over all workers.
    pub software_rss: bool,
    /// Returns another port of the configuration. Returns `None` if the port does not exist.
    pub other: &'a dyn Fn(&PortName) -> Option<OtherPort<'a>>,
}

/// Settings of a port of one kind. The default methods suit a kind of port that has no kernel device and names no
/// files.
pub trait KindSettings {
    /// Returns the kernel device of the port. Returns `None` if the port has no device.
    fn device(&self) -> Option<DeviceInNamespace<'_>> {
        None
    }

    /// Returns the peer device of a pair of devices. The daemon creates the peer device but does not use it.
    fn far_device(&self) -> Option<DeviceInNamespace<'_>> {
        None
    }

    /// Returns the MTU of the peer device. Returns `None` if the peer device has the MTU of the port.
    fn far_mtu(&self) -> Option<Mtu> {
        None
    }

    /// Returns the AF_XDP settings of the port. Returns `None` if the port does not use AF_XDP.
    fn xdp(&self) -> Option<&XdpOptions> {
        None
    }

    /// Returns the IP addresses that the port's settings assign to a device.
    fn addresses(&self) -> Option<DeviceAddresses<'_>> {
        None
    }

    /// Returns the name of the peer port of a patch port. Returns `None` for other kinds of ports.
    fn patch_peer(&self) -> Option<&PortName> {
        None
    }

    /// Returns the files that the port reads or writes, each with its key.
    fn files(&self) -> Vec<(&'static str, &Path)> {
        Vec::new()
    }

    /// Returns whether each packet of the port must fit into one frame of the frame memory. This
    /// requirement limits the MTU.
    fn is_limited_to_a_frame(&self) -> bool {
        false
    }

    /// Returns whether a change of the setting with this key is possible without a new port. `self`
    /// contains the settings after the change.
    fn changes_live(&self, _key: &str) -> bool {
        false
    }

    /// Returns the problems of the settings, each with its key.
    fn check(&self, _port: &Surroundings<'_>) -> Vec<(&'static str, Cause)> {
        Vec::new()
    }
}
