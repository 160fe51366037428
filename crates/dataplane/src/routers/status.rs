//! Computes the state of a router for the API.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Config, DhcpRelayState, InterfaceState, Miss, PortName, PuntState, RouterState};
use netlink::{Link, Mirror};
use packet::{MacAddr, PuntClass, VlanId, VlanTags};

use super::super::lock::locked;
use super::super::ports::Ports;
use super::super::routes;
use super::ask::ANSWER_LIMIT;
use super::relay::Version;
use super::{Running, fpm, mirror_device};

/// A closure that computes the state of a router.
pub type StateOf = Box<dyn FnOnce() -> RouterState>;

impl Running {
    /// Returns a closure that computes the state of the router for the API.
    pub fn state(
        &self,
        wanted: &model::Router,
        config: &Config,
        ports: &Ports,
        empty: RouterState,
    ) -> StateOf {
        let status = self.follower.status();
        let punt = |class: PuntClass| {
            let (punted, over) = self.punt_policer.counted(class);
            let (passed, dropped) = self.hook_limits.counted(class);
            let (packets, refused) = (punted + passed, over + dropped);
            PuntState {
                class: class.name().to_owned(),
                limit: wanted.settings.punts_of(class),
                packets,
                refused,
            }
        };
        let state = RouterState {
            in_step: status.behind == 0,
            events: status.events,
            overruns: status.overruns,
            resyncs: status.resyncs,
            resync_ms: status.resync_ns / 1_000_000,
            drifted: status.drifted,
            punts: PuntClass::ALL.map(punt).into(),
            ..empty
        };
        let interfaces = wanted_interfaces(wanted, config);
        let up: BTreeMap<PortName, bool> =
            ports.iter().map(|(name, running)| (name.clone(), running.is_up())).collect();
        let relays = |version| -> BTreeMap<String, DhcpRelayState> {
            let relayed = |interface: &WantedInterface| {
                Some((interface.device.clone(), self.relay.as_ref()?.state(&interface.device, version)?))
            };
            interfaces.iter().filter_map(relayed).collect()
        };
        let relays = [relays(Version::V4), relays(Version::V6)];
        let fpm = fpm::state(&self.follower, wanted);
        let netdevs: BTreeMap<String, u32> = {
            let state = locked(&self.state);
            state.seen.devices.iter().map(|(device, netdev)| (device.clone(), netdev.index)).collect()
        };
        let look = move |mirror: &Mirror| {
            let interfaces = interfaces.into_iter().map(|interface| {
                let link = netdevs.get(&interface.device).and_then(|index| mirror.links.get(index));
                interface.state(mirror, link, &up, &relays)
            });
            let interfaces: Vec<InterfaceState> = interfaces.collect();
            RouterState {
                interfaces,
                routes4: mirror.routes4.len() as u64,
                routes6: mirror.routes6.len() as u64,
                neighbours: mirror.neighbours.len() as u64,
                rules: u32::try_from(mirror.rules.len()).unwrap_or(u32::MAX),
                fpm: fpm.map(|fpm| fpm.told(mirror)),
                ..RouterState::default()
            }
        };
        let (follower, own) = (Arc::clone(&self.follower), Arc::clone(&self.state));
        Box::new(move || {
            let looked = follower.look_within(ANSWER_LIMIT, look);
            let (refused, tables) = {
                let own = locked(&own);
                (own.feed.refused(), u32::try_from(own.feed.tables().count()).unwrap_or(u32::MAX))
            };
            match looked {
                Ok(looked) => RouterState {
                    interfaces: looked.interfaces,
                    routes4: looked.routes4,
                    routes6: looked.routes6,
                    neighbours: looked.neighbours,
                    rules: looked.rules,
                    fpm: looked.fpm,
                    tables,
                    refused,
                    ..state
                },
                Err(error) => {
                    RouterState { in_step: false, tables, refused, trouble: Some(error.to_string()), ..state }
                }
            }
        })
    }
}

/// An interface that a router has according to the configuration.
struct WantedInterface {
    port: PortName,
    /// Configured name of the device whose addresses are the interface's addresses.
    device: String,
    miss: Miss,
    /// VLAN tags of the interface. `None` for the interface of the port itself.
    vlan: Option<VlanTags>,
}

/// Returns the interfaces that a router has according to the configuration: first those of the ports
/// themselves, then the VLAN interfaces.
fn wanted_interfaces(wanted: &model::Router, config: &Config) -> Vec<WantedInterface> {
    let of_ports = wanted.ports.iter().filter_map(|(name, port)| {
        let device = mirror_device::device(config, name)?.to_owned();
        Some(WantedInterface { port: name.clone(), device, miss: port.miss, vlan: None })
    });
    let of_vlans = mirror_device::wanted(wanted, config).filter_map(|(name, vlan, device)| {
        let miss = wanted.ports.get(name).map(|port| port.miss).unwrap_or_default();
        Some(WantedInterface { port: name.clone(), device, miss, vlan: Some(vlan?) })
    });
    of_ports.chain(of_vlans).collect()
}

impl WantedInterface {
    /// Returns the state of the interface. `link` is the interface's device in the kernel. `up` contains the link
    /// state of each port, and `relays` the DHCPv4 and DHCPv6 relays by device.
    fn state(
        self,
        mirror: &Mirror,
        link: Option<&Link>,
        up: &BTreeMap<PortName, bool>,
        relays: &[BTreeMap<String, DhcpRelayState>; 2],
    ) -> InterfaceState {
        let WantedInterface { port, device, miss, vlan } = self;
        InterfaceState {
            index: link.map_or(0, |link| link.index),
            mac: link.and_then(|link| link.address.as_slice().try_into().ok()).map(MacAddr),
            mtu: link.map_or(0, |link| link.mtu),
            up: up.get(&port).copied().unwrap_or(false) && link.is_some_and(|link| link.up && link.carrier),
            addresses: link.map(|link| routes::addresses(mirror, link.index)).unwrap_or_default(),
            dhcp_relay: relays[0].get(&device).copied(),
            dhcp6_relay: relays[1].get(&device).copied(),
            port: port.to_string(),
            device: link.map_or(device, |link| link.name.clone()),
            miss,
            vlan: vlan.map(|tags| tags.outer.get()),
            inner_vlan: vlan.and_then(|tags| tags.inner).map(VlanId::get),
            ..InterfaceState::default()
        }
    }
}
