//! Checks of the relations between the objects of a configuration.
//!
//! The checks work on plain values. Therefore the same rules apply to a configuration file, to an object from the API,
//! and to the merged configuration of both. The problems have no position in a text. [`mod@crate::load`] finds the
//! position by the name of the object.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use crate::port::kind::settings::{DeviceAddresses, OtherPort, Surroundings};
use crate::spelling::nearest;
use crate::{
    Bridge, BridgeName, Cause, Config, DeviceName, FilterName, Mtu, Namespace, Port, PortKind, PortName,
    Problem, Router, RouterName, RouterPort, SteeringName, XdpMode, XdpOptions, ZeroCopy,
};

/// Properties of the machine that a configuration is checked against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Number of CPU cores of the machine.
    pub cores: usize,
    /// Number of frames in the frame memory of the running daemon, which may differ from the number in the
    /// configuration. `None`: no daemon runs.
    pub frames: Option<u32>,
}

/// Returns all problems in the relations between the objects of a configuration. The list is empty, or
/// contains only warnings, if the configuration is valid.
pub fn validate(config: &Config, machine: Option<&Machine>) -> Vec<Problem> {
    check(config, machine, &BTreeSet::new())
}

/// Checks a configuration like [`validate`], but treats the ports in `declared` as existing even if
/// their configuration could not be read.
pub(crate) fn check(config: &Config, machine: Option<&Machine>, declared: &BTreeSet<String>) -> Vec<Problem> {
    let mut problems = Vec::new();
    check_counts(config, &mut problems);
    check_memory(config, machine.and_then(|machine| machine.frames), &mut problems);
    check_cores(config, machine, &mut problems);
    check_devices(config, &mut problems);
    for (name, port) in &config.ports {
        check_port(config, name, port, &mut problems);
    }
    check_filters(config, &mut problems);
    check_steering(config, &mut problems);
    let mut homes = BTreeMap::new();
    for (name, bridge) in &config.bridges {
        check_members(config, name, bridge, declared, &mut homes, &mut problems);
        check_statics(config, name, bridge, declared, &mut problems);
    }
    check_namespaces(config, &mut problems);
    let mut functions: Functions<'_> =
        homes.into_iter().map(|(port, bridge)| (port, Function::Bridge(bridge))).collect();
    for (name, router) in &config.routers {
        check_interfaces(config, name, router, declared, &mut functions, &mut problems);
    }
    problems
}

/// Maximum number of ports in a configuration.
const PORT_LIMIT: usize = 4096;
/// Maximum number of bridges in a configuration.
const BRIDGE_LIMIT: usize = 1024;
/// Maximum number of virtual routers in a configuration.
const ROUTER_LIMIT: usize = 256;
/// Maximum number of filters in a configuration.
const FILTER_LIMIT: usize = 256;
/// Maximum number of steering policies in a configuration.
const STEERING_LIMIT: usize = 256;

/// Number of existing objects of one type, and maximum number of such objects. The objects of all
/// owners are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ObjectCount {
    /// First part of the objects' keys, for example `filter`.
    pub table: &'static str,
    /// Name of the object type in the plural, for messages.
    pub what: &'static str,
    /// Current number of objects of this type, of all owners together.
    pub count: usize,
    /// Maximum number of objects of this type.
    pub limit: usize,
}

/// Returns the counts of filters, steering policies, ports, bridges and routers with their maximums, in this order.
pub(crate) fn object_counts(counts: [usize; 5]) -> [ObjectCount; 5] {
    let [filters, policies, ports, bridges, routers] = counts;
    let of = |table, what, count, limit| ObjectCount { table, what, count, limit };
    [
        of("filter", "filters", filters, FILTER_LIMIT),
        of("steering", "steerings", policies, STEERING_LIMIT),
        of("port", "ports", ports, PORT_LIMIT),
        of("bridge", "bridges", bridges, BRIDGE_LIMIT),
        of("router", "routers", routers, ROUTER_LIMIT),
    ]
}

fn check_counts(config: &Config, problems: &mut Vec<Problem>) {
    let (filters, policies, ports) = (config.filters.len(), config.steering.len(), config.ports.len());
    let counts = object_counts([filters, policies, ports, config.bridges.len(), config.routers.len()]);
    for ObjectCount { table, what, count, limit } in counts {
        if count > limit {
            problems.push(Problem::new(table, Cause::TooManyObjects { what, count, limit }));
        }
    }
}

/// Maximum number of packets that a worker processes together in one burst.
const BURST: u64 = 256;
/// Minimum number of frames for the fill ring of each AF_XDP queue, regardless of the number of
/// queues that share the frame memory. An equal number of frames is reserved for transmission.
pub const LEAST_FILL: u32 = 64;

fn check_memory(config: &Config, runs: Option<u32>, problems: &mut Vec<Problem>) {
    // The number of queues of an existing device is known only when the device is opened. The minimum is one.
    let queues = |options: &XdpOptions| options.queues.count().unwrap_or(1) as u64;
    let options = || config.ports.values().filter_map(|port| port.kind.xdp());
    let queues_of_all: u64 = options().map(queues).sum();
    let full: u64 = options().map(|options| 2 * queues(options) * u64::from(options.ring_size)).sum();
    let workers = config.engine.worker_count() as u64;
    let needed = 2 * u64::from(LEAST_FILL) * queues_of_all + workers * BURST;
    let frames = u64::from(config.memory.frames);
    let mut add = |cause| problems.push(Problem::new("memory.frames", cause));
    match runs.map(u64::from) {
        _ if frames < needed => add(Cause::FramesTooFew { frames, queues: queues_of_all, needed }),
        Some(runs) if runs < needed => {
            add(Cause::FramesRunning { runs, frames, queues: queues_of_all, needed })
        }
        _ if frames < full => {
            problems.push(Problem::new("memory.frames", Cause::FramesScarce { frames, full }).warning());
        }
        _ => {}
    }
}

fn check_cores(config: &Config, machine: Option<&Machine>, problems: &mut Vec<Problem>) {
    let Some(&Machine { cores, .. }) = machine else { return };
    for &core in &config.engine.workers {
        if usize::from(core) >= cores {
            problems.push(Problem::new("engine.workers", Cause::NoSuchCore { core, cores }).warning());
        }
    }
}

fn check_filters(config: &Config, problems: &mut Vec<Problem>) {
    for (name, port) in &config.ports {
        let Some(filter) = &port.filter else { continue };
        let object = || format!("port.{name}.filter");
        if let Some(rules) = config.filters.get(filter).map(|filter| &filter.rules) {
            let kind = port.kind.name();
            let needs_hook = rules.iter().find(|rule| rule.action.needs_hook());
            if let Some(rule) = needs_hook.filter(|_| port.kind.xdp().is_none()) {
                let (filter, rule, action) = (filter.to_string(), rule.name.to_string(), rule.action.name());
                problems.push(Problem::new(object(), Cause::NeedsHook { kind, filter, rule, action }));
            }
        } else {
            let known = config.filters.keys().map(FilterName::as_str).filter(|_| problems.len() < GUESSED);
            let near = nearest(filter.as_str(), known).map(str::to_owned);
            let cause = Cause::NoSuchFilter { filter: filter.to_string(), near };
            problems.push(Problem::new(object(), cause));
        }
    }
}

fn check_steering(config: &Config, problems: &mut Vec<Problem>) {
    for (name, port) in &config.ports {
        let Some(steering) = port.kind.xdp().and_then(|xdp| xdp.steering.as_ref()) else { continue };
        if !config.steering.contains_key(steering) {
            let known = config.steering.keys().map(SteeringName::as_str).filter(|_| problems.len() < GUESSED);
            let near = nearest(steering.as_str(), known).map(str::to_owned);
            let cause = Cause::NoSuchSteering { steering: steering.to_string(), near };
            problems.push(Problem::new(format!("port.{name}.steering"), cause));
        }
    }
}

/// Key of a kernel device: the path of the device's network namespace (`None` for the daemon's namespace), and the name
/// of the device.
type DeviceKey<'a> = (Option<PathBuf>, &'a DeviceName);

fn check_devices(config: &Config, problems: &mut Vec<Problem>) {
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
        // `check_port` reports a pair whose ends are one device with a better message.
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

fn check_port(config: &Config, name: &PortName, port: &Port, problems: &mut Vec<Problem>) {
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

/// Number of problems from which messages about missing ports, filters and steering policies no
/// longer suggest a similar name. Further suggestions would take too much time.
const GUESSED: usize = 50;

fn no_such_port(config: &Config, port: &PortName, problems: usize) -> Cause {
    let known = config.ports.keys().map(PortName::as_str).filter(|_| problems < GUESSED);
    let near = nearest(port.as_str(), known).map(str::to_owned);
    Cause::NoSuchPort { port: port.to_string(), near }
}

fn exists(config: &Config, declared: &BTreeSet<String>, port: &PortName) -> bool {
    config.ports.contains_key(port) || declared.contains(port.as_str())
}

fn check_members<'a>(
    config: &Config,
    name: &'a BridgeName,
    bridge: &'a Bridge,
    declared: &BTreeSet<String>,
    homes: &mut BTreeMap<&'a PortName, &'a BridgeName>,
    problems: &mut Vec<Problem>,
) {
    let mut numbers = BTreeMap::new();
    for (port, member) in &bridge.ports {
        let object = format!("bridge.{name}.port.{port}");
        if let Some(number) = member.number
            && let Some(other) = numbers.insert(number, port)
        {
            let cause = Cause::NumberTaken { number, other: other.to_string() };
            problems.push(Problem::new(format!("{object}.number"), cause));
        }
        if !exists(config, declared, port) {
            let cause = no_such_port(config, port, problems.len());
            problems.push(Problem::new(object.clone(), cause));
        }
        if let Some(other) = homes.insert(port, name) {
            let cause = Cause::TwoBridges { port: port.to_string(), other: other.to_string() };
            problems.push(Problem::new(object.clone(), cause));
        }
        let bridge_limit = bridge.settings.mac_limit;
        if let Some(limit) = member.mac_limit.filter(|limit| *limit > bridge_limit) {
            let cause = Cause::LimitAboveBridge { limit, bridge: bridge_limit };
            problems.push(Problem::new(format!("{object}.mac_limit"), cause));
        }
        let storm = member.storm;
        let rates =
            [("broadcast", storm.broadcast), ("multicast", storm.multicast), ("unknown", storm.unknown)];
        for (key, _) in rates.iter().filter(|(_, rate)| *rate == Some(0)) {
            problems.push(Problem::new(format!("{object}.storm.{key}"), Cause::ZeroStorm));
        }
    }
    let members = bridge.ports.len();
    if members > 1 && bridge.ports.values().all(|member| member.protected) {
        problems.push(Problem::new(format!("bridge.{name}.port"), Cause::AllProtected { members }).warning());
    }
}

fn check_statics(
    config: &Config,
    name: &BridgeName,
    bridge: &Bridge,
    declared: &BTreeSet<String>,
    problems: &mut Vec<Problem>,
) {
    for (key, port) in &bridge.statics {
        let cause = match bridge.ports.get(port) {
            None if exists(config, declared, port) => Cause::NotAMember { port: port.to_string() },
            None => no_such_port(config, port, problems.len()),
            Some(member) if !member.vlans.carries(key.vlan) => {
                Cause::VlanNotCarried { port: port.to_string(), vlan: key.vlan }
            }
            Some(_) => continue,
        };
        problems.push(Problem::new(format!("bridge.{name}.static.{key}"), cause));
    }
    let (count, limit) = (bridge.statics.len(), bridge.settings.mac_limit as usize);
    if count > limit {
        let object = format!("bridge.{name}.static");
        problems.push(Problem::new(object, Cause::TooMany { what: "static entries", count, limit }));
    }
}

/// Rejects two routers in one namespace, because both would use the kernel's routing tables of that namespace.
fn check_namespaces(config: &Config, problems: &mut Vec<Problem>) {
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

fn namespace_text(namespace: Option<&Namespace>) -> String {
    namespace.map_or_else(|| "the daemon's namespace".to_owned(), |name| format!("namespace `{name}`"))
}

/// Bridge or router that a port belongs to.
#[derive(Clone, Copy)]
enum Function<'a> {
    Bridge(&'a BridgeName),
    Router(&'a RouterName),
}

type Functions<'a> = BTreeMap<&'a PortName, Function<'a>>;

impl std::fmt::Display for Function<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Function::Bridge(bridge) => write!(f, "bridge `{bridge}`"),
            Function::Router(router) => write!(f, "router `{router}`"),
        }
    }
}

fn check_interfaces<'a>(
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
            let cause = Cause::TwoRooms { port: port.to_string(), other: other.to_string() };
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

/// Checks the names of the devices that the daemon creates for the VLANs of a router port, besides the device of the
/// port.
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
