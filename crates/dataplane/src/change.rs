//! Changes the settings of a port while the port runs.

use control::{FailureKind, PlaneError};
use engine::Engine;
use model::{InterfaceAddress, PortKind, PortName, Tap};
use port::link::{self, LinkChange, LinkError};
use port::veth::{self, VethConfig};

use xdp::StageChange;

use super::af_xdp;
use super::device::{failed, inside, object};
use super::foreign;
use super::open::{self, ETHERNET_MTU, PortSpec};
use super::ports::{self, Running, engine_failed, even_rss_table};
use super::routing;

/// Changes a running port to the settings in `wanted`. If an error occurs after some settings were changed, the caller
/// must restore the former settings.
///
/// # Errors
/// Returns an error if the device, the hook or a worker refuses a setting.
pub fn change(
    engine: &Engine,
    name: &PortName,
    running: &mut Running,
    wanted: PortSpec,
) -> Result<(), PlaneError> {
    let before = std::mem::replace(&mut running.wanted, wanted);
    let wanted = running.wanted.clone();
    if before.port.workers != wanted.port.workers {
        running.rehome(engine).map_err(|error| engine_failed(name, &error))?;
    }
    if before.port.software_rss != wanted.port.software_rss {
        running.rss_table = wanted.port.software_rss.then(|| even_rss_table(engine.workers()));
    }
    if device_differs(&before, &wanted) {
        change_device(engine, name, running, &before, &wanted)?;
    }
    if let Some(options) = wanted.port.kind.xdp() {
        let own = matches!(wanted.port.kind, PortKind::Veth(_));
        running.complete_checksums = af_xdp::completes(options, own);
    }
    let hook = |wanted: &PortSpec| (wanted.policy, wanted.bridged, wanted.routed);
    if hook(&before) != hook(&wanted) {
        let changed = change_hook(name, running, &before, &wanted);
        match &running.hook {
            Some(hook) => af_xdp::unless_detached(name, hook, changed)?,
            None => changed?,
        }
    }
    Ok(())
}

/// Updates a port's hook (XDP program) after a change of the port's function (bridge or router), or
/// after a change of the policy for packets that arrive while the daemon does not run.
fn change_hook(
    name: &PortName,
    running: &mut Running,
    before: &PortSpec,
    wanted: &PortSpec,
) -> Result<(), PlaneError> {
    if !routing::is_wanted(wanted) {
        routing::remove(running).map_err(|error| failed(name, &error))?;
    }
    let Some(hook) = &mut running.hook else { return Ok(()) };
    if !wanted.routed && hook.route().is_some() {
        hook.set_stage(StageChange::Route(None)).map_err(|error| failed(name, &error))?;
    }
    let (former, sockets) = (running.footprint.former, &running.sockets);
    let ifindex = hook.ifindex();
    let foreign = matches!(wanted.port.kind, PortKind::AfXdp(_)) && before.bridged != wanted.bridged;
    let namespace = running.device.as_ref().and_then(|device| device.namespace.clone());
    inside(&object(name), namespace.as_ref(), || {
        if foreign && wanted.bridged {
            let info = link::by_index(ifindex).map_err(|error| failed(name, &error))?;
            foreign::silence(&info).map_err(|error| failed(name, &error))?;
        }
        // A hook that the change has closed gets this program after the workers have the new configuration.
        if !af_xdp::is_locked(hook) {
            af_xdp::unlock(name, wanted, hook, sockets)?;
        }
        match former.filter(|_| foreign && !wanted.bridged) {
            Some(former) => former.listen_again().map_err(|error| failed(name, &error)),
            None => Ok(()),
        }
    })
}

/// Sets the configured MTU and addresses on a port's device.
fn change_device(
    engine: &Engine,
    name: &PortName,
    running: &mut Running,
    before: &PortSpec,
    wanted: &PortSpec,
) -> Result<(), PlaneError> {
    if wanted.mtu().is_some() {
        running.followed_mtu = None;
    }
    let Some(device) = &mut running.device else {
        running.mtu = wanted.mtu().unwrap_or(running.mtu);
        return Ok(());
    };
    let (former, followed) = (running.footprint.former, running.followed_mtu.map(|(mtu, _)| mtu));
    let info = inside(&object(name), device.namespace.clone().as_ref(), || {
        match (&before.port.kind, &wanted.port.kind) {
            (PortKind::Veth(old), PortKind::Veth(new)) => {
                let pair = open::pair(new, wanted.mtu(), wanted.speaks());
                amend_pair(name, &pair, &old.peer.address, device.name.as_str())?;
            }
            (PortKind::Tap(old) | PortKind::Internal(old), PortKind::Tap(new) | PortKind::Internal(new)) => {
                let mtu = wanted.mtu().or(followed).unwrap_or(ETHERNET_MTU);
                amend_tap(device.ifindex, old, new, mtu).map_err(|error| failed(name, &error))?;
            }
            _ => {
                // Without a configured MTU, the device gets its former MTU.
                let mtu = wanted.mtu().or(former.map(|former| former.mtu()));
                let change = LinkChange { mtu, ..LinkChange::default() };
                link::set(device.ifindex, &change).map_err(|error| failed(name, &error))?;
            }
        }
        link::by_index(device.ifindex).map_err(|error| failed(name, &error))
    })?;
    device.refresh(&info);
    if running.mtu != info.mtu {
        running.mtu = info.mtu;
        ports::resize_queues(running, engine, info.mtu);
    }
    Ok(())
}

/// Applies changed settings to the two ends of an existing veth pair.
fn amend_pair(
    name: &PortName,
    pair: &VethConfig,
    before: &[InterfaceAddress],
    device: &str,
) -> Result<(), PlaneError> {
    if pair.name != device {
        return Err(PlaneError {
            kind: FailureKind::Invalid,
            object: object(name),
            cause: format!("its device was renamed to {device}"),
            fix: format!("name it {} again (`ip link set dev {device} name {}`)", pair.name, pair.name),
        });
    }
    // Old addresses are removed first. The kernel may remove other addresses of the same network with them,
    // which are then added again.
    veth::remove_addresses(pair, &obsolete(before, &pair.addresses))
        .and_then(|()| veth::ensure(pair))
        .map(drop)
        .map_err(|error| failed(name, &error))
}

fn amend_tap(ifindex: u32, old: &Tap, new: &Tap, mtu: u32) -> Result<(), LinkError> {
    for address in obsolete(&old.address, &new.address) {
        link::remove_address(ifindex, address)?;
    }
    let mac = new.mac.filter(|mac| old.mac != Some(*mac));
    link::set(ifindex, &LinkChange { mtu: Some(mtu), mac, ..LinkChange::default() })?;
    new.address.iter().try_for_each(|address| link::add_address(ifindex, *address))
}

/// Returns the addresses that the former configuration assigned to an interface and that the new configuration does not
/// contain.
fn obsolete(before: &[InterfaceAddress], wanted: &[InterfaceAddress]) -> Vec<InterfaceAddress> {
    before.iter().copied().filter(|address| !wanted.contains(address)).collect()
}

/// Returns whether two configurations of a port differ in a setting of the port's device, such as its MTU.
fn device_differs(before: &PortSpec, wanted: &PortSpec) -> bool {
    let kinds = match (&before.port.kind, &wanted.port.kind) {
        (PortKind::Veth(old), PortKind::Veth(new)) => {
            old.peer != new.peer || before.speaks() != wanted.speaks()
        }
        (PortKind::Tap(old) | PortKind::Internal(old), PortKind::Tap(new) | PortKind::Internal(new)) => {
            old != new
        }
        _ => false,
    };
    kinds || before.port.mtu != wanted.port.mtu
}
