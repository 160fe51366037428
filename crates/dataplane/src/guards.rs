//! Guards of devices with a filter. A guard is a tc program that drops all frames that a device passes to the kernel's
//! network stack. The guard is attached while the XDP program with the filter is detached and the next XDP program is
//! not attached yet.

use model::{Config, PortName};
use port::link;
use xdp::IngressGuard;

use super::device::{failed, inside, object};
use super::port_spec::PortSpec;
use super::ports::Running;

/// Attaches a guard (a program that drops all frames that a device passes to the kernel) to the device of a port whose
/// hook has a filter. Returns `None` if no guard is needed, or if the kernel does not support guards.
pub fn guard(name: &PortName, running: &Running) -> Option<IngressGuard> {
    running.hook.as_ref()?;
    guard_port(name, &running.wanted, running.device.as_ref().map(|device| device.ifindex))
}

/// Attaches the guard of a port that waits for its device to the device that has the configured name now, if another
/// device has the guard.
pub fn renew(name: &PortName, running: &mut Running) {
    let (Some(guard), Some((device, namespace))) = (&running.guard, running.wanted.port.kind.device()) else {
        return;
    };
    let found = inside(&object(name), namespace, || Ok(link::find(device.as_str()).ok()));
    let ifindex = found.ok().flatten().map(|info| info.ifindex);
    if ifindex.is_some()
        && guard.ifindex() != ifindex
        && let Some(fresh) = guard_port(name, &running.wanted, None)
    {
        running.guard = Some(fresh);
    }
}

/// Returns whether the configuration assigns a filter to the port's hook.
pub fn has_filter(wanted: &PortSpec) -> bool {
    wanted.filter().is_some() && wanted.port.kind.xdp().is_some()
}

/// Attaches a guard (a program that drops all frames that a device passes to the kernel) to the device of each given
/// port whose hook has a filter according to `config`. Each port has the interface index of its device. The caller
/// passes ports whose file descriptors were sent in a hand-over.
pub fn guards<'a>(
    ports: impl IntoIterator<Item = (&'a str, Option<u32>)>,
    config: &Config,
) -> Vec<IngressGuard> {
    let ports =
        ports.into_iter().filter_map(|(name, ifindex)| Some((name.parse::<PortName>().ok()?, ifindex)));
    ports.filter_map(|(name, ifindex)| guard_port(&name, &PortSpec::of(config, &name)?, ifindex)).collect()
}

/// Attaches a guard (a program that drops all frames that a device passes to the kernel) to the device of a port, if
/// the configuration assigns a filter to the port's hook. `ifindex` is the interface index of the device, which may
/// have another name now. If `ifindex` is `None` or the device no longer exists, the device is found by its configured
/// name. Returns `None` if no guard is needed, if the device does not exist, or if the kernel does not support guards.
pub fn guard_port(name: &PortName, wanted: &PortSpec, ifindex: Option<u32>) -> Option<IngressGuard> {
    let (device, namespace) = wanted.port.kind.device().filter(|_| has_filter(wanted))?;
    if namespace.is_some_and(|namespace| !namespace.path().exists()) {
        return None;
    }
    let attached = inside(&object(name), namespace, || {
        let known = ifindex.and_then(|ifindex| link::by_index(ifindex).ok());
        match known.map_or_else(|| link::find(device.as_str()), Ok) {
            Ok(found) => Ok(guard_device(name, found.ifindex)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(failed(name, &error)),
        }
    });
    attached.inspect_err(|error| warn(name, error)).ok().flatten()
}

/// Attaches a guard (a program that drops all frames that a device passes to the kernel) to the device with interface
/// index `ifindex` in the network namespace of the calling thread. Logs a warning and returns `None` if the kernel
/// refuses the guard.
pub fn guard_device(name: &PortName, ifindex: u32) -> Option<IngressGuard> {
    IngressGuard::attach(ifindex).inspect_err(|error| warn(name, error)).ok()
}

fn warn(name: &PortName, error: &dyn std::error::Error) {
    tracing::warn!(
        port = %name,
        %error,
        "no guard could be attached: the kernel receives the device's frames unfiltered until the port's next program is \
         attached"
    );
}
