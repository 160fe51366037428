//! Checks of ports: their devices, addresses, MTU and the options of their kind.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::port::kind::settings::{DeviceAddresses, OtherPort, Surroundings};
use crate::{Cause, Config, DeviceName, Mtu, Namespace, Port, PortName, Problem, XdpMode, ZeroCopy};

/// Key of a kernel device: the path of the device's network namespace (`None` for the daemon's namespace), and the name
/// of the device.
type DeviceKey<'a> = (Option<PathBuf>, &'a DeviceName);

pub(crate) fn devices(config: &Config, problems: &mut Vec<Problem>) {
    let file = |namespace: Option<&Namespace>| namespace.map(Namespace::path);
    // The daemon's own devices come first, so that the far end is reported as the duplicate.
    let mut claims: Vec<(DeviceKey<'_>, &PortName, &str)> = Vec::new();
    for (name, port) in &config.ports {
        claims.extend(
            port.kind.device().map(|(device, namespace)| ((file(namespace), device), name, "device")),
        );
    }
    for (name, port) in &config.ports {
        let key = |(device, namespace)| (file(namespace), device);
        let (ours, far) = (port.kind.device().map(key), port.kind.far_device().map(key));
        // [`port`] reports a pair whose ends are one device with a better message.
        if let Some(far) = far.filter(|far| ours.as_ref() != Some(far)) {
            claims.push((far, name, "peer.name"));
        }
    }
    let mut users: BTreeMap<DeviceKey<'_>, &PortName> = BTreeMap::new();
    for (key, name, field) in claims {
        let value = key.1.to_string();
        if let Some(other) = users.insert(key, name) {
            let cause = Cause::Duplicate { what: "device", value, other: format!("port.{other}") };
            problems.push(Problem::new(format!("port.{name}.{field}"), cause));
        }
    }
    check_addresses(config, problems);
}

fn check_addresses(config: &Config, problems: &mut Vec<Problem>) {
    let mut users: BTreeMap<(Option<PathBuf>, IpAddr), &PortName> = BTreeMap::new();
    for (name, port) in &config.ports {
        let Some(of_port) = port.kind.settings().addresses() else { continue };
        let DeviceAddresses { namespace, addresses, key } = of_port;
        for (index, address) in addresses.iter().enumerate() {
            // Link-local addresses are unique per interface only.
            if matches!(address.address, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
                continue;
            }
            if let Some(other) = users.insert((namespace.map(Namespace::path), address.address), name) {
                let cause = Cause::Duplicate {
                    what: "address",
                    value: address.to_string(),
                    other: format!("port.{other}"),
                };
                problems.push(Problem::new(format!("port.{name}.{key}[{index}]"), cause));
            }
        }
    }
}

pub(crate) fn port(config: &Config, name: &PortName, port: &Port, problems: &mut Vec<Problem>) {
    let object = format!("port.{name}");
    let mut add = |key: &str, cause| problems.push(Problem::new(format!("{object}.{key}"), cause));
    let count = config.engine.worker_count();
    for worker in &port.workers {
        if worker.index() >= count {
            add("workers", Cause::NoSuchWorker { worker: worker.0, count });
        }
    }
    let other = |other: &PortName| {
        let kind = &config.ports.get(other)?.kind;
        Some(OtherPort { kind: kind.name(), patch_peer: kind.settings().patch_peer() })
    };
    let surroundings = Surroundings { name, mtu: port.mtu, software_rss: port.software_rss, other: &other };
    for (key, cause) in port.kind.settings().check(&surroundings) {
        add(key, cause);
    }
    if let Some(xdp) = port.kind.xdp() {
        if xdp.mode == XdpMode::Generic && xdp.zero_copy == ZeroCopy::Require {
            add("zero_copy", Cause::GenericCopies);
        }
        let persists = config.hook_policy(name.as_str()).is_some_and(|policy| policy.persist);
        if xdp.when_down.is_some() && !persists {
            add("when_down", Cause::WhenDownUnused);
        }
        let bridge = config.bridge_of(name.as_str()).filter(|_| xdp.routing.is_some());
        if let Some((bridge, _)) = bridge {
            add("routing", Cause::RoutedAndBridged { bridge: bridge.to_string() });
        }
        if xdp.routing.is_some()
            && let Some((router, _)) = config.router_of(name.as_str())
        {
            add("routing", Cause::RoutedTwice { router: router.to_string() });
        }
    }
    for (key, cause) in mtu_causes(config, port) {
        add(key, cause);
    }
}

fn mtu_causes(config: &Config, port: &Port) -> Vec<(&'static str, Cause)> {
    let mut causes = Vec::new();
    let single = port.kind.settings().is_limited_to_a_frame();
    // Frame headroom, the Ethernet header and two VLAN tags.
    let max = config.memory.frame_size.saturating_sub(256 + 14 + 8);
    if let Some(mtu) = port.mtu.map(Mtu::get).filter(|mtu| single && u32::from(*mtu) > max) {
        causes.push(("mtu", Cause::MtuAboveFrame { mtu, max, kind: port.kind.name() }));
    }
    let (key, mtu) = match port.kind.settings().far_mtu() {
        Some(far) => ("peer.mtu", Some(far)),
        None => ("mtu", port.mtu),
    };
    let of_port = port.kind.settings().addresses();
    let v6 = of_port.and_then(|of_port| of_port.addresses.iter().find(|own| own.address.is_ipv6()));
    if let (Some(mtu), Some(v6)) = (mtu.map(Mtu::get).filter(|mtu| *mtu < 1280), v6) {
        causes.push((key, Cause::MtuBelowIpv6 { mtu, address: v6.address }));
    }
    causes
}
