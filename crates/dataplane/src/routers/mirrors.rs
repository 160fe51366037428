//! Mirror devices (TAPs) of router interfaces for which the kernel has no other device. These interfaces are ports
//! without a kernel device, and VLANs of ports: the daemon receives the frames of the VLAN itself, and the kernel need
//! not have a VLAN device. A mirror device is a TAP in the router's namespace. The name of the TAP is `DEVICE.VLAN` or
//! the name of the port.
//!
//! Settings that an operator or a routing daemon makes on the TAP (addresses, MTU, Ethernet address, up or down) apply
//! to the interface. The kernel receives on the TAP the packets that workers pass to it for the interface (punts).
//! Packets that the kernel sends on the TAP leave through the port, with the VLAN's tag.
//!
//! When the daemon ends, the TAPs stay with all their settings. In a hand-over, the successor receives the queues of
//! the TAPs, so the TAPs never go down.

use std::collections::{BTreeMap, BTreeSet};

use control::{FailureKind, PlaneError};
use engine::{Engine, Function, PortView};
use model::{Config, PortName, RouterName, RouterPort};
use packet::{PortId, QueueId, WorkerId};
use port::Queue;
use port::link::{self, LinkError};
use port::netns::Netns;
use port::tap::{Tap, TapConfig, TapQueue};

use super::super::device::inside;
use super::super::ids::Names;
use super::super::lock::locked;
use super::super::ports::{Ports, Returned};
use super::mirror_device::{Given, Key, MirrorDevice, alias, failed, port_name, wanted};
use super::punt_tap::TAP_MTU;
use super::{Running, object};

/// Checks that the names of mirror devices to be created are not in use by devices that the daemon did not create.
///
/// # Errors
/// Returns an error for the first mirror device whose name is already in use.
pub fn check(
    name: &RouterName,
    router: &model::Router,
    config: &Config,
    running: Option<&Running>,
) -> Result<(), PlaneError> {
    let namespace = router.settings.namespace.as_ref();
    for (port, vlan, device) in wanted(router, config) {
        let own = running.and_then(|running| running.mirrors.get(&(port.clone(), vlan)));
        if own.is_some_and(|own| own.device == device) {
            continue;
        }
        let found = inside(&object(name), namespace, || Ok(link::find(&device)))?;
        if found.is_ok_and(|found| found.alias.as_deref() != Some(alias(&device).as_str())) {
            let (key, what, way) = match vlan {
                Some(tags) => {
                    let key = if tags.inner.is_some() { ".qinq" } else { ".vlans" };
                    (key, format!("VLAN {tags}"), "leave the VLAN out")
                }
                None => ("", "the port".to_owned(), "give the port another name"),
            };
            return Err(PlaneError {
                kind: FailureKind::Invalid,
                object: format!("{}.port.{port}{key}", object(name)),
                cause: format!(
                    "{what} needs a device `{device}` of our making, and another one has that name"
                ),
                fix: format!("remove it (`ip link del {device}`), or {way}"),
            });
        }
    }
    Ok(())
}

impl Running {
    /// Creates the mirror devices that the configuration needs and whose port exists. Removes mirror devices that the
    /// configuration no longer needs. Returns the queues of the new devices.
    pub fn follow_mirrors(
        &mut self,
        name: &RouterName,
        engine: Option<&Engine>,
        config: &Config,
        ports: &Ports,
        names: &mut Names,
        given: &mut Given,
    ) -> Vec<Returned> {
        let namespace = self.wanted.settings.namespace.clone();
        let wanted: BTreeMap<Key, String> =
            wanted(&self.wanted, config).map(|(port, vlan, device)| ((port.clone(), vlan), device)).collect();
        let stale = |key: &Key, own: &MirrorDevice| wanted.get(key) != Some(&own.device);
        let gone: Vec<MirrorDevice> =
            self.mirrors.extract_if(.., |key, own| stale(key, own)).map(|it| it.1).collect();
        for own in gone {
            own.remove(name, namespace.as_ref(), engine);
        }
        self.mirrorless.retain(|key| wanted.contains_key(key));
        let mut queues = Vec::new();
        let mirrored =
            |port: &PortName| config.ports.get(port).is_some_and(|own| RouterPort::is_mirrored(&own.kind));
        for (key, device) in wanted {
            if self.mirrors.contains_key(&key) {
                continue;
            }
            let known = port_name(name, &device);
            let made = match (given.remove(&known), ports.get(&key.0)) {
                (Some((port, queue)), _) => Ok(Some((port, queue))),
                (None, Some(base)) if base.device.is_some() || mirrored(&key.0) => {
                    let number = names.ports.find(&known).or_else(|| names.ports.take(&known));
                    // The Ethernet address of the port's device applies only if this device represents the interface.
                    // For a port without a kernel device of its own, the address belongs to another device.
                    let own = base.device.as_ref().filter(|_| !mirrored(&key.0));
                    let mac = own.and_then(|device| device.mac);
                    let config = TapConfig {
                        netns: namespace.as_ref().map(|namespace| Netns::Path(namespace.path())),
                        // With two tags the MTU is 4 bytes lower, so that frames are as long as with one tag,
                        // which every device can carry.
                        mtu: if key.1.is_some_and(|tags| tags.inner.is_some()) {
                            base.mtu.saturating_sub(4)
                        } else {
                            base.mtu
                        },
                        mac,
                        persistent: true,
                        ..TapConfig::new(device.clone())
                    };
                    make(name, number, &config)
                }
                // The mirror device is created later, when the port's device exists.
                (None, _) => Ok(None),
            };
            let made = made.and_then(|made| match made {
                Some((port, queue)) => {
                    let control = queue.control().map_err(|error| failed(name, &error))?;
                    Ok(Some((port, queue, control)))
                }
                None => Ok(None),
            });
            match made {
                Ok(Some((port, queue, control))) => {
                    self.mirrorless.remove(&key);
                    queues.push((WorkerId(0), port, QueueId(0), Box::new(queue) as Box<dyn Queue>));
                    self.mirrors.insert(key, MirrorDevice { device, port, control, carrier: None });
                }
                Ok(None) => {}
                // Each second another attempt is made, and only the first failure is logged.
                Err(error) if self.mirrorless.insert(key.clone()) => {
                    let vlan = key.1.map(|vlan| format!("VLAN {vlan} of ")).unwrap_or_default();
                    tracing::error!(%error, "{vlan}{} has no device", key.0);
                }
                Err(_) => {}
            }
        }
        queues
    }

    /// Takes over the mirror devices of the router `before`, which this router replaces. Does nothing if the two
    /// routers are in different namespaces.
    pub fn inherit_mirrors(&mut self, before: &mut Running) {
        if before.wanted.settings.namespace == self.wanted.settings.namespace {
            self.mirrors = std::mem::take(&mut before.mirrors);
        }
    }

    /// Sets the carrier of each mirror device to the link state of its port. If a device was removed, drops its record,
    /// so that it is created again.
    pub fn watch_mirrors(&mut self, name: &RouterName, engine: &Engine, ports: &Ports) {
        let seen: BTreeSet<String> = locked(&self.state).seen.devices.keys().cloned().collect();
        let namespace = self.wanted.settings.namespace.clone();
        let is_gone = |own: &MirrorDevice| {
            let found = || inside(&object(name), namespace.as_ref(), || Ok(link::find(&own.device)));
            !seen.contains(&own.device)
                && found().is_ok_and(|found| found.as_ref().is_err_and(LinkError::is_missing))
        };
        let gone: Vec<MirrorDevice> =
            self.mirrors.extract_if(.., |_, own| is_gone(own)).map(|it| it.1).collect();
        for own in gone {
            tracing::warn!(router = %name, device = %own.device, "somebody has removed it; it is made anew");
            own.close(Some(engine));
        }
        self.tell_carriers(ports);
    }

    /// Sets the carrier of each mirror device to the link state of its port.
    pub fn tell_carriers(&mut self, ports: &Ports) {
        for ((port, _), own) in &mut self.mirrors {
            let up = ports.get(port).is_some_and(|port| port.is_up());
            if own.carrier != Some(up) && own.control.set_carrier(up).is_ok() {
                own.carrier = Some(up);
            }
        }
    }

    /// Returns the mirror devices as ports of the data path. A packet that the kernel sends on a mirror device is
    /// transmitted through its port, with the VLAN's tag.
    pub fn mirror_ports<'p>(&'p self, ports: &'p Ports) -> impl Iterator<Item = (PortId, PortView)> + 'p {
        self.mirrors.iter().map(|((name, vlan), own)| {
            let base = ports.get(name);
            let room = match (base, vlan) {
                (Some(base), Some(tags)) => Function::TaggedCrossConnect(base.id, *tags),
                (Some(base), None) => Function::CrossConnect(base.id),
                (None, _) => Function::None,
            };
            (own.port, PortView { max_frame: TAP_MTU + 14, ..PortView::new(room, WorkerId(0)) })
        })
    }

    /// Returns whether `name` is the name to which the port number of one of the router's mirror devices is assigned.
    pub fn has_mirror(&self, router: &RouterName, name: &str) -> bool {
        self.mirrors.values().any(|own| port_name(router, &own.device) == name)
    }

    /// Closes the queues of all mirror devices of the router. The kernel removes the devices together with
    /// their namespace.
    pub fn close_mirrors(&mut self, engine: &Engine) {
        std::mem::take(&mut self.mirrors).into_values().for_each(|own| own.close(Some(engine)));
    }

    /// Removes all mirror devices of the router, with their TAPs in the kernel.
    pub fn remove_mirrors(&mut self, name: &RouterName, engine: &Engine) {
        let namespace = self.wanted.settings.namespace.clone();
        for own in std::mem::take(&mut self.mirrors).into_values() {
            own.remove(name, namespace.as_ref(), Some(engine));
        }
    }
}

fn make(
    name: &RouterName,
    number: Option<u16>,
    config: &TapConfig,
) -> Result<Option<(PortId, TapQueue)>, PlaneError> {
    let Some(number) = number else {
        return Err(PlaneError {
            kind: FailureKind::Failed,
            object: object(name),
            cause: "all numbers of ports are in use".to_owned(),
            fix: "remove ports or VLANs".to_owned(),
        });
    };
    let tap = Tap::create(config).map_err(|error| failed(name, &error))?;
    Ok(tap.queues.into_iter().next().map(|queue| (PortId(number), queue)))
}
