//! State of a router for the API.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use control::{FailureKind, PlaneError};
use model::{Config, DhcpRelayState, DriftState, InterfaceState, Miss, PortName, PuntState, RouterState};
use netlink::{Follower, Mirror, NetlinkError};
use packet::{MacAddr, PuntClass, VlanId, VlanTags};

use super::super::locked;
use super::super::ports::Ports;
use super::super::routes;
use super::relay::Version;
use super::{Running, fpm};

/// Time limit for a router's thread to answer. A tenant can keep the thread busy with changes.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// Time limit for a comparison with the kernel. The comparison reads all routes, and reads them several times
/// if some differ.
const CHECK_LIMIT: Duration = Duration::from_secs(60);

/// A closure that computes the state of a router.
pub type StateOf = Box<dyn FnOnce() -> RouterState>;

/// Calls `look` with the mirror of a router, on the router's thread, and returns the result.
///
/// # Errors
/// Returns an error if the router's namespace is no longer followed, or if the thread does not answer in
/// time.
pub fn ask<R: Send + 'static>(
    name: &str,
    follower: &Follower,
    look: impl FnOnce(&Mirror) -> R + Send + 'static,
) -> Result<R, PlaneError> {
    follower.look_within(ANSWER_LIMIT, look).map_err(|error| ended(name, &error))
}

/// Compares the tables of a router with the kernel's tables, and repairs differences.
///
/// # Errors
/// Returns the errors of [`ask`], or an error if the kernel's tables cannot be read.
pub fn drift(name: &str, follower: &Follower) -> Result<DriftState, PlaneError> {
    let found = follower.check_within(CHECK_LIMIT).map_err(|error| ended(name, &error))?;
    Ok(routes::drift(&found, ask(name, follower, routes::objects)?))
}

fn ended(name: &str, error: &NetlinkError) -> PlaneError {
    let object = format!("router.{name}");
    if let NetlinkError::Busy(_) = error {
        let fix = "try again in a moment; `ip monitor all` in its namespace shows what changes".to_owned();
        return PlaneError { kind: FailureKind::Busy, object, cause: error.to_string(), fix };
    }
    PlaneError::failed(object, error, "restart the daemon if it lasts")
}

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
            let (punted, over) = self.gate.counted(class);
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
        let vlans: Vec<(PortName, String, Miss, Option<VlanTags>)> = super::mirrors::wanted(wanted, config)
            .filter_map(|(name, vlan, device)| {
                let miss = wanted.ports.get(name).map(|port| port.miss).unwrap_or_default();
                Some((name.clone(), device, miss, Some(vlan?)))
            })
            .collect();
        let mut devices: Vec<(PortName, String, Miss, Option<VlanTags>)> = wanted
            .ports
            .iter()
            .filter_map(|(name, port)| {
                let device = super::mirrors::device(config, name)?;
                Some((name.clone(), device.to_owned(), port.miss, None))
            })
            .collect();
        devices.extend(vlans);
        let up: BTreeMap<PortName, bool> =
            ports.iter().map(|(name, running)| (name.clone(), running.is_up())).collect();
        let relays = |version| -> BTreeMap<String, DhcpRelayState> {
            let relayed = |(_, device, ..): &(PortName, String, Miss, Option<VlanTags>)| {
                Some((device.clone(), self.relay.as_ref()?.state(device, version)?))
            };
            devices.iter().filter_map(relayed).collect()
        };
        let (relays4, relays6) = (relays(Version::V4), relays(Version::V6));
        let fpm = fpm::state(&self.follower, wanted);
        let netdevs: BTreeMap<String, u32> = {
            let state = locked(&self.state);
            state.seen.devices.iter().map(|(device, netdev)| (device.clone(), netdev.index)).collect()
        };
        let look = move |mirror: &Mirror| {
            let interfaces = devices.into_iter().map(|(port, device, miss, vlan)| {
                let link = netdevs.get(&device).and_then(|index| mirror.links.get(index));
                InterfaceState {
                    index: link.map_or(0, |link| link.index),
                    mac: link.and_then(|link| link.address.as_slice().try_into().ok()).map(MacAddr),
                    mtu: link.map_or(0, |link| link.mtu),
                    up: up.get(&port).copied().unwrap_or(false)
                        && link.is_some_and(|link| link.up && link.carrier),
                    addresses: link.map(|link| routes::addresses(mirror, link.index)).unwrap_or_default(),
                    dhcp_relay: relays4.get(&device).copied(),
                    dhcp6_relay: relays6.get(&device).copied(),
                    port: port.to_string(),
                    device: link.map_or(device, |link| link.name.clone()),
                    miss,
                    vlan: vlan.map(|tags| tags.outer.get()),
                    inner_vlan: vlan.and_then(|tags| tags.inner).map(VlanId::get),
                    ..InterfaceState::default()
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_router_is_said_to_be_busy() {
        let said = ended("edge", &NetlinkError::Busy(ANSWER_LIMIT));
        assert_eq!((said.kind, said.object.as_str()), (FailureKind::Busy, "router.edge"));
        assert!(said.cause.contains("within 2s"), "{}", said.cause);
        let said = ended("edge", &NetlinkError::Ended("its thread has panicked".to_owned()));
        assert_eq!(said.kind, FailureKind::Failed);
    }
}
