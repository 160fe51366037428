//! VLANs of ports that are interfaces of their own. The kernel may have no VLAN devices, and the port's frames are ours anyway: so each
//! has a TAP in the router's namespace as its device there, named `DEVICE.VLAN`. What an operator or a routing daemon sets on it (addresses,
//! MTU, Ethernet address, up or down) holds for the VLAN; what is the kernel's own comes in by it, and what the kernel sends by it leaves
//! the port with the tag.
//!
//! These TAPs stay when the daemon goes, with all that was set on them, and a successor gets their queues: nobody sees them go down.

use std::collections::{BTreeMap, BTreeSet};

use control::{FailureKind, PlaneError};
use engine::{Engine, PortView, Room};
use model::{Config, Namespace, PortName, RouterName, RouterPort};
use packet::{PortId, QueueId, VlanId, WorkerId};
use port::Queue;
use port::link::{self, LinkError};
use port::netns::Netns;
use port::tap::{Tap, TapConfig, TapControl, TapQueue};

use super::super::device::inside;
use super::super::ids::Names;
use super::super::locked;
use super::super::ports::{Ports, Returned};
use super::door::TAP_MTU;
use super::{Running, object};

/// A VLAN's device in the kernel.
pub struct VlanDevice {
    /// What it is called.
    pub device: String,
    /// Its number among the ports.
    pub port: PortId,
    control: TapControl,
    /// As it was told last; `None`: nobody knows, for a predecessor has told it.
    carrier: Option<bool>,
}

/// Queues of VLANs' devices that a predecessor had, by their names as ports.
pub type Given = BTreeMap<String, (PortId, TapQueue)>;

/// The VLANs of a router's ports as `config` wants them, with their devices.
pub fn wanted<'c>(
    router: &'c model::Router,
    config: &'c Config,
) -> impl Iterator<Item = (&'c PortName, VlanId, String)> {
    router.ports.iter().flat_map(|(name, port)| {
        let device = config.ports.get(name).and_then(|port| port.kind.device());
        device.into_iter().flat_map(move |(device, _)| {
            let of = move |vlan| (name, vlan, RouterPort::vlan_device(device.as_str(), vlan));
            port.vlans.iter().map(of)
        })
    })
}

/// The name under which a VLAN's device is numbered among the ports. No port is called so: it has a slash.
fn port_name(router: &RouterName, device: &str) -> String {
    format!("{router}/{device}")
}

/// What says that a device is of our making (`port::tap`).
fn alias(device: &str) -> String {
    format!("trivium:{device}")
}

/// Whether a port of this name is a VLAN's device.
pub fn is_port(name: &str) -> bool {
    name.contains('/')
}

/// That no device which is not ours has the name of a VLAN's.
///
/// # Errors
/// The first one that has.
pub fn check(
    name: &RouterName,
    router: &model::Router,
    config: &Config,
    running: Option<&Running>,
) -> Result<(), PlaneError> {
    let namespace = router.settings.namespace.as_ref();
    for (port, vlan, device) in wanted(router, config) {
        let own = running.and_then(|running| running.vlans.get(&(port.clone(), vlan)));
        if own.is_some_and(|own| own.device == device) {
            continue;
        }
        let found = inside(&object(name), namespace, || Ok(link::find(&device)))?;
        if found.is_ok_and(|found| found.alias.as_deref() != Some(alias(&device).as_str())) {
            return Err(PlaneError {
                kind: FailureKind::Invalid,
                object: format!("{}.port.{port}.vlans", object(name)),
                cause: format!(
                    "VLAN {vlan} needs a device `{device}` of our making, and another one has that name"
                ),
                fix: format!("remove it (`ip link del {device}`), or leave the VLAN out"),
            });
        }
    }
    Ok(())
}

impl Running {
    /// Makes devices of VLANs that are wanted and whose port is there, and removes those that are not wanted any more. Gives the queues of
    /// new ones.
    pub fn follow_vlans(
        &mut self,
        name: &RouterName,
        engine: Option<&Engine>,
        config: &Config,
        ports: &Ports,
        names: &mut Names,
        given: &mut Given,
    ) -> Vec<Returned> {
        let namespace = self.wanted.settings.namespace.clone();
        let wanted: BTreeMap<(PortName, VlanId), String> =
            wanted(&self.wanted, config).map(|(port, vlan, device)| ((port.clone(), vlan), device)).collect();
        let stale = |key: &(PortName, VlanId), own: &VlanDevice| wanted.get(key) != Some(&own.device);
        let gone: Vec<VlanDevice> =
            self.vlans.extract_if(.., |key, own| stale(key, own)).map(|it| it.1).collect();
        for own in gone {
            own.remove(name, namespace.as_ref(), engine);
        }
        self.vlanless.retain(|key| wanted.contains_key(key));
        let mut queues = Vec::new();
        for (key, device) in wanted {
            if self.vlans.contains_key(&key) {
                continue;
            }
            let known = port_name(name, &device);
            let made = match (given.remove(&known), ports.get(&key.0)) {
                (Some((port, queue)), _) => Ok(Some((port, queue))),
                (None, Some(base)) if base.device.is_some() => {
                    let number = names.ports.find(&known).or_else(|| names.ports.take(&known));
                    let mac = base.device.as_ref().and_then(|device| device.mac);
                    let config = TapConfig {
                        netns: namespace.as_ref().map(|namespace| Netns::Path(namespace.path())),
                        mtu: base.mtu,
                        mac,
                        persistent: true,
                        ..TapConfig::new(device.clone())
                    };
                    make(name, number, &config)
                }
                // It comes with its port's device.
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
                    self.vlanless.remove(&key);
                    queues.push((WorkerId(0), port, QueueId(0), Box::new(queue) as Box<dyn Queue>));
                    self.vlans.insert(key, VlanDevice { device, port, control, carrier: None });
                }
                Ok(None) => {}
                // It is tried again each second; once is enough to say so.
                Err(error) if self.vlanless.insert(key.clone()) => {
                    tracing::error!(%error, "VLAN {} of {} has no device", key.1, key.0);
                }
                Err(_) => {}
            }
        }
        queues
    }

    /// Takes over the devices of VLANs from the router that it replaces, where that stood in the same namespace.
    pub fn inherit_vlans(&mut self, before: &mut Running) {
        if before.wanted.settings.namespace == self.wanted.settings.namespace {
            self.vlans = std::mem::take(&mut before.vlans);
        }
    }

    /// Tells VLANs' devices whether their ports are up, and forgets those that somebody has removed: they are made anew.
    pub fn watch_vlans(&mut self, name: &RouterName, engine: &Engine, ports: &Ports) {
        let seen: BTreeSet<String> = locked(&self.state).seen.devices.keys().cloned().collect();
        let namespace = self.wanted.settings.namespace.clone();
        let is_gone = |own: &VlanDevice| {
            let found = || inside(&object(name), namespace.as_ref(), || Ok(link::find(&own.device)));
            !seen.contains(&own.device)
                && found().is_ok_and(|found| found.as_ref().is_err_and(LinkError::is_missing))
        };
        let gone: Vec<VlanDevice> = self.vlans.extract_if(.., |_, own| is_gone(own)).map(|it| it.1).collect();
        for own in gone {
            tracing::warn!(router = %name, device = %own.device, "somebody has removed it; it is made anew");
            own.close(Some(engine));
        }
        self.tell_carriers(ports);
    }

    /// Tells VLANs' devices whether their ports are up.
    pub fn tell_carriers(&mut self, ports: &Ports) {
        for ((port, _), own) in &mut self.vlans {
            let up = ports.get(port).is_some_and(|port| port.is_up());
            if own.carrier != Some(up) && own.control.set_carrier(up).is_ok() {
                own.carrier = Some(up);
            }
        }
    }

    /// VLANs' devices as ports of the data path: what the kernel sends there leaves with the tag.
    pub fn vlan_ports<'p>(&'p self, ports: &'p Ports) -> impl Iterator<Item = (PortId, PortView)> + 'p {
        self.vlans.iter().map(|((name, vlan), own)| {
            let base = ports.get(name);
            let room = base.map_or(Room::None, |base| Room::Tagged(base.id, vlan.get()));
            (own.port, PortView { max_frame: TAP_MTU + 14, ..PortView::new(room, WorkerId(0)) })
        })
    }

    /// Whether one of its VLANs' devices has this name among the ports.
    pub fn has_vlan_port(&self, router: &RouterName, name: &str) -> bool {
        self.vlans.values().any(|own| port_name(router, &own.device) == name)
    }

    /// Removes the devices of all its VLANs.
    pub fn remove_vlans(&mut self, name: &RouterName, engine: &Engine) {
        let namespace = self.wanted.settings.namespace.clone();
        for own in std::mem::take(&mut self.vlans).into_values() {
            own.remove(name, namespace.as_ref(), Some(engine));
        }
    }
}

impl VlanDevice {
    fn close(self, engine: Option<&Engine>) {
        let Some(engine) = engine else { return };
        let mut pool = engine.pool();
        let queues = engine.remove_queues(self.port).unwrap_or_default();
        queues.into_iter().for_each(|(_, _, queue)| queue.close(&mut pool));
    }

    fn remove(self, router: &RouterName, namespace: Option<&Namespace>, engine: Option<&Engine>) {
        let device = self.device.clone();
        self.close(engine);
        let deleted = inside(&object(router), namespace, || {
            // What somebody has put in its place is his.
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

fn failed(name: &RouterName, error: &dyn std::error::Error) -> PlaneError {
    PlaneError::failed(object(name), error, "")
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
