//! Changing a port while it runs.

use control::PlaneError;
use engine::Engine;
use model::{PortKind, PortName};
use port::link::{self, LinkChange};

use super::af_xdp;
use super::device::{failed, inside, object};
use super::foreign;
use super::open::Wanted;
use super::ports::{Running, engine_failed, even_spread};

/// Makes a running port what is `wanted`. What fails half-way is made good by changing it back.
///
/// # Errors
/// If the device, the hook or a worker refuses.
pub fn change(
    engine: &Engine,
    name: &PortName,
    running: &mut Running,
    wanted: Wanted,
) -> Result<(), PlaneError> {
    let before = std::mem::replace(&mut running.wanted, wanted);
    let wanted = running.wanted.clone();
    if before.port.workers != wanted.port.workers {
        running.rehome(engine).map_err(|error| engine_failed(name, &error))?;
    }
    if before.port.spread != wanted.port.spread {
        running.spread = wanted.port.spread.then(|| even_spread(engine.workers()));
    }
    set_mtu(name, running, &before, &wanted)?;
    if (before.policy, before.bridged) != (wanted.policy, wanted.bridged) {
        change_hook(name, running, &before, &wanted)?;
    }
    Ok(())
}

/// Tells the hook who wants its packets now, and what becomes of them without us.
fn change_hook(
    name: &PortName,
    running: &mut Running,
    before: &Wanted,
    wanted: &Wanted,
) -> Result<(), PlaneError> {
    let Some(hook) = &mut running.hook else { return Ok(()) };
    let (former, sockets) = (running.footprint.former, &running.sockets);
    let ifindex = hook.ifindex();
    let foreign = matches!(wanted.port.kind, PortKind::AfXdp(_)) && before.bridged != wanted.bridged;
    let namespace = running.device.as_ref().and_then(|device| device.namespace.clone());
    inside(&object(name), namespace.as_ref(), || {
        if foreign && wanted.bridged {
            let info = link::by_index(ifindex).map_err(|error| failed(name, &error))?;
            foreign::silence(&info).map_err(|error| failed(name, &error))?;
        }
        let config = af_xdp::program(wanted.policy, wanted.bridged, hook.constants().queues);
        let swapped = hook.prepare(&config).and_then(|loaded| hook.swap(loaded));
        swapped
            .and_then(|()| af_xdp::steer(hook, sockets, wanted.bridged))
            .map_err(|error| failed(name, &error))?;
        match former.filter(|_| foreign && !wanted.bridged) {
            Some(former) => former.listen_again().map_err(|error| failed(name, &error)),
            None => Ok(()),
        }
    })
}

/// Gives the device the MTU that is wanted now.
fn set_mtu(
    name: &PortName,
    running: &mut Running,
    before: &Wanted,
    wanted: &Wanted,
) -> Result<(), PlaneError> {
    let Some(mtu) = wanted.mtu().filter(|_| before.port.mtu != wanted.port.mtu) else { return Ok(()) };
    if let Some(device) = &mut running.device {
        let (ifindex, namespace) = (device.ifindex, device.namespace.clone());
        inside(&object(name), namespace.as_ref(), || {
            link::set(ifindex, &LinkChange { mtu: Some(mtu), ..LinkChange::default() })
                .map_err(|error| failed(name, &error))
        })?;
        device.mtu = mtu;
    }
    running.mtu = mtu;
    Ok(())
}
