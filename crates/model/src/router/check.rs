//! Checks of virtual routers: their namespaces, and the devices of their interfaces.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::references::{Function, Functions, exists, namespace_text, no_such_port};
use crate::{
    Cause, Config, DeviceName, Namespace, PortKind, PortName, Problem, Router, RouterName, RouterPort,
};

/// Rejects two routers in one namespace, because both would use the kernel's routing tables of that namespace.
pub(crate) fn namespaces(config: &Config, problems: &mut Vec<Problem>) {
    let mut users = BTreeMap::new();
    for (name, router) in &config.routers {
        let namespace = router.settings.namespace.as_ref();
        if let Some(other) = users.insert(namespace.map(Namespace::path), name) {
            let cause =
                Cause::SharedNamespace { namespace: namespace_text(namespace), other: other.to_string() };
            problems.push(Problem::new(format!("router.{name}.namespace"), cause));
        }
    }
}

pub(crate) fn interfaces<'a>(
    config: &Config,
    name: &'a RouterName,
    router: &'a Router,
    declared: &BTreeSet<String>,
    functions: &mut Functions<'a>,
    problems: &mut Vec<Problem>,
) {
    let count = router.ports.values().map(|port| port.tags().count()).sum();
    if count > RouterPort::VLANS_MAX {
        let cause = Cause::TooManyVlans { count, limit: RouterPort::VLANS_MAX };
        problems.push(Problem::new(format!("router.{name}"), cause));
    }
    for (port, settings) in &router.ports {
        let object = format!("router.{name}.port.{port}");
        if !exists(config, declared, port) {
            let cause = no_such_port(config, port, problems.len());
            problems.push(Problem::new(object.clone(), cause));
        }
        if let Some(other) = functions.insert(port, Function::Router(name)) {
            let cause = Cause::TwoFunctions { port: port.to_string(), other: other.to_string() };
            problems.push(Problem::new(object.clone(), cause));
        }
        let Some(kind) = config.ports.get(port).map(|port| &port.kind) else { continue };
        let own = router.settings.namespace.as_ref();
        let cause = match kind.device().filter(|_| !RouterPort::is_mirrored(kind)) {
            Some((_, namespace)) if namespace.map(Namespace::path) != own.map(Namespace::path) => {
                let of_port = namespace_text(namespace);
                Some(Cause::OtherNamespace {
                    port: port.to_string(),
                    of_port,
                    of_router: namespace_text(own),
                })
            }
            Some(_) => None,
            None => check_mirror(config, port, kind, own),
        };
        let Some(cause) = cause else {
            check_vlans(config, &object, (port, kind, own), settings, problems);
            continue;
        };
        problems.push(Problem::new(object, cause));
    }
}

/// Returns the port whose device has the name `device` in this namespace. Returns `None` if no port has such
/// a device.
fn owner_of<'c>(config: &'c Config, device: &str, namespace: Option<&Namespace>) -> Option<&'c PortName> {
    let place = |namespace: Option<&Namespace>| namespace.map(Namespace::path);
    let is_it = |(other, beside): (&DeviceName, Option<&Namespace>)| {
        other.as_str() == device && place(beside) == place(namespace)
    };
    config.ports.iter().find(|(_, port)| port.kind.device().is_some_and(is_it)).map(|(name, _)| name)
}

/// Checks the name of the TAP device (mirror interface) that the daemon creates for a port without a kernel device. The
/// device has the name of the port.
fn check_mirror(
    config: &Config,
    port: &PortName,
    kind: &PortKind,
    namespace: Option<&Namespace>,
) -> Option<Cause> {
    let (port, kind) = (port.to_string(), kind.name());
    if let Err(why) = port.parse::<DeviceName>() {
        return Some(Cause::MirrorName { port, kind, why });
    }
    let other = owner_of(config, &port, namespace)?.to_string();
    Some(Cause::MirrorTaken { port, kind, other })
}

/// Checks the names of the devices that the daemon creates for the VLANs of a router port, in addition to the device of
/// the port.
fn check_vlans(
    config: &Config,
    object: &str,
    (port, kind, namespace): (&PortName, &PortKind, Option<&Namespace>),
    settings: &RouterPort,
    problems: &mut Vec<Problem>,
) {
    for vlan in settings.tags() {
        let device = RouterPort::vlan_device(RouterPort::device(port, kind), vlan);
        let cause = match owner_of(config, &device, namespace) {
            _ if device.len() > 15 => Cause::VlanDeviceTooLong { vlan, device },
            Some(port) => Cause::VlanDeviceTaken { vlan, device, port: port.to_string() },
            None => continue,
        };
        let key = if vlan.inner.is_some() { "qinq" } else { "vlans" };
        problems.push(Problem::new(format!("{object}.{key}"), cause));
    }
}
