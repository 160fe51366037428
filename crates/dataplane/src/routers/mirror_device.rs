//! Mirror devices: TAPs in the kernel that represent router interfaces for which the kernel has no other device
//! ([`super::mirrors`]).

use std::collections::BTreeMap;

use control::PlaneError;
use engine::Engine;
use model::{Config, Namespace, PortName, RouterName, RouterPort};
use packet::{PortId, VlanTags};
use port::link;
use port::tap::{TapControl, TapQueue};

use super::super::device::inside;
use super::messages::object;

/// A TAP in the kernel that represents a router interface.
pub struct MirrorDevice {
    /// Name of the TAP in the router's namespace.
    pub device: String,
    /// Number by which the data path identifies the mirror device as a port.
    pub port: PortId,
    pub control: TapControl,
    /// Carrier state that was last set on the device. `None` if a predecessor set it.
    pub carrier: Option<bool>,
}

/// TAP queues of mirror devices that a predecessor process has handed over, with the devices' port numbers. The key is
/// the name to which the port number is assigned.
pub type Given = BTreeMap<String, (PortId, TapQueue)>;

/// A router interface that has a mirror device. Without VLAN tags, the interface is the port itself. With VLAN tags, it
/// is a VLAN of the port.
pub type Key = (PortName, Option<VlanTags>);

/// Returns the name of the kernel device that represents a port in its router's namespace.
pub fn device<'c>(config: &'c Config, port: &'c PortName) -> Option<&'c str> {
    config.ports.get(port).map(|own| RouterPort::device(port, &own.kind))
}

/// Returns the interfaces of a router that need a mirror device according to `config`, with the names of these
/// devices.
pub fn wanted<'c>(
    router: &'c model::Router,
    config: &'c Config,
) -> impl Iterator<Item = (&'c PortName, Option<VlanTags>, String)> {
    router.ports.iter().flat_map(|(name, port)| {
        let kind = config.ports.get(name).map(|own| &own.kind);
        kind.into_iter().flat_map(move |kind| {
            let device = RouterPort::device(name, kind);
            let own = RouterPort::is_mirrored(kind).then(|| (name, None, device.to_owned()));
            let of = move |tags| (name, Some(tags), RouterPort::vlan_device(device, tags));
            own.into_iter().chain(port.tags().map(of))
        })
    })
}

/// Returns the name to which the port number of a mirror device is assigned. The name contains a slash, which is not
/// allowed in the names of configured ports.
pub fn port_name(router: &RouterName, device: &str) -> String {
    format!("{router}/{device}")
}

/// Returns the interface alias that marks a device as created by the daemon (`port::tap`).
pub fn alias(device: &str) -> String {
    format!("trivium:{device}")
}

/// Returns whether a port name is the name of a mirror device.
pub fn is_port(name: &str) -> bool {
    name.contains('/')
}

impl MirrorDevice {
    /// Closes the queues of the mirror device. The device stays in the kernel.
    pub fn close(self, engine: Option<&Engine>) {
        let Some(engine) = engine else { return };
        let mut pool = engine.pool();
        let queues = engine.remove_queues(self.port).unwrap_or_default();
        queues.into_iter().for_each(|(_, _, queue)| queue.close(&mut pool));
    }

    /// Closes the queues of the mirror device and deletes the device in the kernel.
    pub fn remove(self, router: &RouterName, namespace: Option<&Namespace>, engine: Option<&Engine>) {
        let device = self.device.clone();
        self.close(engine);
        let deleted = inside(&object(router), namespace, || {
            // A device that another program created under this name stays.
            match link::find(&device) {
                Ok(found) if found.alias.as_deref() == Some(alias(&device).as_str()) => {
                    link::delete(&device).map_err(|error| failed(router, &error))
                }
                _ => Ok(()),
            }
        });
        if let Err(error) = deleted {
            tracing::warn!(%router, device, %error, "it could not be removed");
        }
    }
}

/// Converts the error of an operation on a mirror device of the router `name` into an API error.
pub fn failed(name: &RouterName, error: &dyn std::error::Error) -> PlaneError {
    PlaneError::failed(object(name), error, "")
}
