//! MTU of bridges' internal ports. Unless the configuration sets an MTU, an internal port has the lowest MTU of the
//! bridge's other ports, as in Open vSwitch and in Linux's bridge. A longer packet from the host would be dropped on
//! the port with the lowest MTU.

use std::net::IpAddr;

use control::PlaneError;
use engine::Engine;
use model::{PortKind, PortName};
use port::link::{self, LinkChange, LinkInfo};

use super::device::{Device, failed, inside, object};
use super::open::ETHERNET_MTU;
use super::ports::{self, Running};
use super::running_state::RunningState;

/// Minimum MTU in bytes of a device with IPv6 addresses (RFC 8200, section 5). The kernel disables IPv6 on a
/// device with a lower MTU.
const IPV6_MTU: u32 = 1280;

/// Sets each internal port to the lowest MTU of its bridge's other ports, if this MTU has changed or is lower than the
/// device's MTU. Other settings of the device are not changed. Returns whether anything changed.
pub fn follow(running_state: &mut RunningState, engine: &Engine) -> bool {
    let mut changed = false;
    for (name, mtu) in behind(running_state) {
        let Some(running) = running_state.ports.get_mut(&name) else { continue };
        running.followed_mtu = Some((mtu, true));
        let Some(device) = running.device.clone() else { continue };
        if device.mtu == mtu {
            continue;
        }
        match set(&name, &device, mtu) {
            Ok(info) => {
                tracing::info!(port = %name, mtu = info.mtu, "its MTU follows the lowest one of the bridge's ports");
                if let Some(device) = &mut running.device {
                    device.refresh(&info);
                }
                running.mtu = info.mtu;
                ports::resize_queues(running, engine, info.mtu);
                changed = true;
            }
            Err(error) => {
                tracing::warn!(port = %name, mtu, %error, "its MTU cannot follow the bridge's ports");
                running.followed_mtu = Some((mtu, false));
            }
        }
    }
    if changed {
        running_state.publish(engine);
    }
    changed
}

/// Returns the internal ports whose MTU must change, each with its new MTU in bytes.
fn behind(running_state: &RunningState) -> Vec<(PortName, u32)> {
    let mut behind = Vec::new();
    for bridge in running_state.config.bridges.values() {
        let members = || bridge.ports.keys().filter_map(|name| Some((name, running_state.ports.get(name)?)));
        let others = members().filter(|(_, running)| !follows(running));
        let lowest = others.filter_map(|(_, running)| least_of(running)).min();
        let lowest = lowest.unwrap_or(ETHERNET_MTU);
        for (name, running) in members().filter(|(_, running)| follows(running)) {
            let Some(device) = &running.device else { continue };
            let mtu = if has_ipv6(running) { lowest.max(IPV6_MTU) } else { lowest };
            let is_behind = match running.followed_mtu {
                Some((followed, is_taken)) if followed == mtu => is_taken && device.mtu > mtu,
                _ => true,
            };
            if is_behind {
                behind.push((name.clone(), mtu));
            }
        }
    }
    behind
}

/// Returns the MTU in bytes with which a bridge's port takes part in the computation of the lowest MTU. Returns `None`
/// if the computation ignores the port.
///
/// The owner of a namespace can set any MTU on the devices in it. Therefore, an MTU of such a device below the minimum
/// that IPv6 requires is replaced by this minimum, unless the configuration itself sets a lower MTU for the port.
fn least_of(running: &Running) -> Option<u32> {
    let device = running.device.as_ref()?;
    let least = running.wanted.mtu().map_or(IPV6_MTU, |mtu| mtu.min(IPV6_MTU));
    Some(if device.namespace.is_some() { device.mtu.max(least) } else { device.mtu })
}

/// Returns whether the daemon sets the MTU of a port to the lowest MTU of the bridge's other ports.
fn follows(running: &Running) -> bool {
    matches!(running.wanted.port.kind, PortKind::Internal(_)) && running.wanted.port.mtu.is_none()
}

fn has_ipv6(running: &Running) -> bool {
    match &running.wanted.port.kind {
        PortKind::Internal(tap) => tap.address.iter().any(|own| matches!(own.address, IpAddr::V6(_))),
        _ => false,
    }
}

fn set(name: &PortName, device: &Device, mtu: u32) -> Result<LinkInfo, PlaneError> {
    inside(&object(name), device.namespace.as_ref(), || {
        let change = LinkChange { mtu: Some(mtu), ..LinkChange::default() };
        link::set(device.ifindex, &change)
            .and_then(|()| link::by_index(device.ifindex))
            .map_err(|error| failed(name, &error))
    })
}
