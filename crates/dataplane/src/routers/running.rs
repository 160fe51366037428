//! A running virtual router: its start, its interfaces, its hooks and its neighbours.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};

use control::PlaneError;
use engine::Engine;
use engine::worker::monotonic;
use model::{Config, Miss, PortName, RouterName, RouterPort, Rpf};
use netlink::{Change, Feed, Follower, Limits, Mirror};
use packet::VlanTags;
use port::link;
use port::netns::Netns;
use router::{Errors, Interface, Kernel, Mirrored, Peer, PuntPolicer, ReversePath, Router};
use sync::qsbr::Domain;
use xdp::route::{Own, RoutePort, Sources};

use super::super::device::inside;
use super::super::devices::identity;
use super::super::lock::locked;
use super::super::ports::Ports;
use super::announcer::Announcer;
use super::bgp_sessions::Sessions;
use super::hook::{self, Hook, PATHS};
use super::hook_limits::HookLimits;
use super::mirror_device::{self, MirrorDevice};
use super::object;
use super::observed::{self, Netdev, ObservedNamespace, State};
use super::prompts::Prompts;
use super::punt_tap::PuntTap;
use super::relay::Relay;

/// State of one running virtual router.
pub struct Running {
    pub wanted: model::Router,
    /// Device number and inode of the namespace's file when the router was opened. These numbers change if a new
    /// namespace is created under the old name. `None` if the router uses the daemon's own namespace.
    identity: Option<(u64, u64)>,
    pub follower: Arc<Follower>,
    pub state: Arc<Mutex<State>>,
    pub punt_policer: Arc<PuntPolicer>,
    pub hook_limits: HookLimits,
    pub seed: u32,
    pub punt_tap: PuntTap,
    /// Offload of the router's routes to the hooks (XDP programs) of its ports. `None` if the router does not use the
    /// offload.
    pub hook: Option<Hook>,
    /// BPF map of this host's own IP addresses, which the hooks of the router's ports read.
    pub own: Own,
    /// Mirror devices (TAPs) of interfaces for which the kernel has no other device: VLANs of ports, and ports without
    /// a kernel device.
    pub mirrors: BTreeMap<(PortName, Option<VlanTags>), MirrorDevice>,
    /// Interfaces whose mirror device could not be created. The failure has already been logged for these interfaces.
    pub mirrorless: BTreeSet<(PortName, Option<VlanTags>)>,
    /// DHCP relay of the router. `None` if no interface uses it.
    pub relay: Option<Relay>,
    /// Ethernet addresses of the router's IP addresses at the last check. A change is announced to the neighbours.
    pub announcer: Announcer,
    /// Number of packets sent to each neighbour, by interface index and IP address. The numbers were read when used
    /// neighbours were last reported to the kernel.
    pub sent: BTreeMap<(u32, IpAddr), u64>,
    /// Positions in the lists of neighbours at which the next report of used neighbours to the kernel continues.
    pub prompts: Prompts,
    /// Whether the failure to read the kernel's BGP sessions was already logged.
    pub lacks_sessions: bool,
}

/// Returns the size of a route trie (the longest-prefix-match table) for `routes` routes, in 64-bit words. Two words
/// for each route are enough for a full routing table and later changes. The minimum is the size of the trie's root.
fn words(routes: u32) -> usize {
    usize::try_from(routes).unwrap_or(usize::MAX).saturating_mul(2).max(1 << 21)
}

impl Running {
    /// Reads the routing state of the router's namespace, and starts the thread that tracks its changes.
    pub fn start(
        name: &RouterName,
        wanted: &model::Router,
        domain: &Arc<Domain>,
        workers: usize,
        wake: &SyncSender<()>,
        fpm: Option<netlink::Fpm>,
    ) -> Result<Running, PlaneError> {
        let failed = |error: &dyn std::error::Error| {
            PlaneError::failed(object(name), error, "see that its namespace is there, and the privileges")
        };
        // The identity is read before anything in the namespace is opened. If another namespace gets its name in the
        // meantime, the change is then detected.
        let identity = wanted.settings.namespace.as_ref().map(identity).transpose();
        let identity = identity.map_err(|error| failed(&error))?;
        // The punt TAP is created before the state of the namespace is read. If it cannot be created, a large state is
        // not read in vain.
        let punt_tap = PuntTap::make(name, wanted.settings.namespace.as_ref())?;
        let limits = Limits {
            words: words(wanted.settings.routes),
            routes: usize::try_from(wanted.settings.routes).unwrap_or(usize::MAX),
            paths: PATHS,
            neighbours: wanted.settings.neighbours,
        };
        let (hook, feed) = match hook::wanted(name, &wanted.settings, domain) {
            Some((hook, programs)) => (Some(hook), Feed::mirrored(domain, limits, workers, programs)),
            None => (None, Feed::new(domain, limits, workers)),
        };
        let state = Arc::new(Mutex::new(State {
            router: name.clone(),
            feed,
            interfaces: BTreeMap::new(),
            open: BTreeMap::new(),
            bound: BTreeMap::new(),
            seen: ObservedNamespace::default(),
            permanent: BTreeSet::new(),
            answers: hook.as_ref().map(|hook| Arc::clone(hook.answers())),
            wake: wake.clone(),
            refused: None,
            errors: Vec::new(),
            is_renumbered: false,
        }));
        let netns = wanted.settings.namespace.as_ref().map(|namespace| Netns::Path(namespace.path()));
        let writer = Arc::clone(&state);
        let told = move |mirror: &Mirror, changes: &[Change]| observed::apply(&writer, mirror, changes);
        let follower = match fpm {
            Some(fpm) => Follower::start_with_fpm(netns.as_ref(), Follower::BUFFER, fpm, told),
            None => Follower::start(netns.as_ref(), Follower::BUFFER, move |mirror: &Mirror, changes| {
                drop(told(mirror, changes));
            }),
        };
        let follower = follower.map_err(|error| failed(&error))?;
        Ok(Running {
            wanted: wanted.clone(),
            identity,
            follower: Arc::new(follower),
            state,
            punt_policer: Arc::new(PuntPolicer::new(
                |class| wanted.settings.punts_of(class),
                workers,
                monotonic().ns,
            )),
            hook_limits: HookLimits::new(name, &wanted.settings),
            seed: fastrand(),
            punt_tap,
            hook,
            own: Own::new(name.as_str()).map_err(|error| failed(&error))?,
            mirrors: BTreeMap::new(),
            mirrorless: BTreeSet::new(),
            relay: None,
            announcer: Announcer::default(),
            sent: BTreeMap::new(),
            prompts: Prompts::default(),
            lacks_sessions: false,
        })
    }

    /// Assigns interface numbers to the router's interfaces. Interfaces that already have a number keep it.
    pub fn number(&self, config: &Config, ports: &Ports, name: &RouterName) -> Result<(), PlaneError> {
        let device = |port: &PortName| mirror_device::device(config, port).map(str::to_owned);
        let mut wanted: BTreeSet<String> = self.wanted.ports.keys().filter_map(device).collect();
        wanted.extend(mirror_device::wanted(&self.wanted, config).map(|(_, _, device)| device));
        let mut state = locked(&self.state);
        let before = state.interfaces.clone();
        let index = |port: &PortName| {
            let kind = &config.ports.get(port)?.kind;
            let is_here = kind.device()?.1 == self.wanted.settings.namespace.as_ref();
            let running = ports.get(port)?.device.as_ref().filter(|_| is_here)?;
            (!RouterPort::is_mirrored(kind))
                .then(|| (RouterPort::device(port, kind).to_owned(), running.ifindex))
        };
        state.open = self.wanted.ports.keys().filter_map(index).collect();
        state.interfaces.retain(|device, _| wanted.contains(device));
        for device in wanted {
            let taken: BTreeSet<u16> = state.interfaces.values().copied().collect();
            let free = (0..router::FOREIGN).find(|number| !taken.contains(number));
            if let (false, Some(number)) = (state.interfaces.contains_key(&device), free) {
                state.interfaces.insert(device, number);
            }
        }
        if state.interfaces == before {
            return Ok(());
        }
        // If the router's thread is busy and does not answer in time, it reads the state later, because of this flag,
        // and then wakes the routing thread.
        state.is_renumbered = true;
        drop(state);
        let writer = Arc::clone(&self.state);
        super::ask::ask(name.as_str(), &self.follower, move |mirror| locked(&writer).look_renumbered(mirror))
    }

    /// Returns the router as it appears in the configuration snapshot of the workers, and the interface number of each
    /// of its ports.
    pub fn compose(&self, config: &Config, ports: &Ports) -> (Router, BTreeMap<PortName, u16>) {
        let state = locked(&self.state);
        let mut numbers = BTreeMap::new();
        let most = state.interfaces.values().max().map_or(0, |number| usize::from(*number) + 1);
        let mut interfaces = vec![None; most];
        for name in self.wanted.ports.keys() {
            let Some(device) = mirror_device::device(config, name) else { continue };
            let Some(number) = state.interfaces.get(device) else { continue };
            numbers.insert(name.clone(), *number);
            if self.mirrors.contains_key(&(name.clone(), None)) {
                continue;
            }
            let (Some(running), Some(netdev)) = (ports.get(name), state.seen.devices.get(device)) else {
                continue;
            };
            interfaces[usize::from(*number)] = Some(Interface {
                port: running.id,
                mac: netdev.mac,
                mtu: netdev.mtu,
                vrrp: self.has_vrrp(name),
            });
        }
        let mut mirrored = Mirrored::default();
        let asks = |name: &PortName| self.wanted.ports.get(name).map(|port| port.rpf).unwrap_or_default();
        let mut reverse_paths = vec![ReversePath::Off; most];
        let mut errors = Errors::default();
        let mut tells = |name: &PortName, device: &str, number: u16| {
            let miss = self.wanted.ports.get(name).map(|port| port.miss).unwrap_or_default();
            let index = state.seen.devices.get(device).map(|netdev| netdev.index);
            let own = index.and_then(|index| state.seen.addresses.get(&index)).into_iter().flatten();
            errors.set(number, miss == Miss::Unreachable, own.copied());
        };
        for (name, number) in &numbers {
            reverse_paths[usize::from(*number)] = reverse_path(asks(name));
            if let Some(device) = mirror_device::device(config, name) {
                tells(name, device, *number);
            }
        }
        for ((name, vlan), own) in &self.mirrors {
            let (Some(base), Some(number)) = (numbers.get(name), state.interfaces.get(&own.device)) else {
                continue;
            };
            reverse_paths[usize::from(*number)] = reverse_path(asks(name));
            tells(name, &own.device, *number);
            if let Some(vlan) = vlan {
                mirrored.add_vlan(*number, *base, *vlan);
            }
            let netdev = state.seen.devices.get(&own.device);
            let Some(netdev) = netdev.filter(|netdev| netdev.up) else { continue };
            mirrored.add_kernel(*number, Kernel { port: own.port, mac: netdev.mac });
            let port = ports.get(name).map(|base| base.id);
            interfaces[usize::from(*number)] = port.map(|port| Interface {
                port,
                mac: netdev.mac,
                mtu: netdev.mtu,
                vrrp: self.has_vrrp(name),
            });
        }
        // If no interface has a reverse path check, workers omit the look-up.
        if reverse_paths.iter().all(|asks| *asks == ReversePath::Off) {
            reverse_paths.clear();
        }
        let router = Router {
            interfaces,
            four: state.seen.four.clone(),
            six: state.seen.six.clone(),
            adjacencies: state.feed.adjacencies().view(),
            kernel: self.punt_tap.port.map(|port| Kernel { port, mac: self.punt_tap.mac }),
            mirrored,
            reverse_paths,
            own_addresses: Arc::new(state.seen.own.0.iter().copied().collect()),
            errors,
            punt_policer: Arc::clone(&self.punt_policer),
            seed: self.seed,
        };
        (router, numbers)
    }

    /// Returns whether a port accepts frames that are addressed to the virtual Ethernet address of a VRRP router.
    fn has_vrrp(&self, port: &PortName) -> bool {
        self.wanted.ports.get(port).is_some_and(|port| port.vrrp)
    }

    /// Installs the virtual router stage in the hooks of the router's ports. Also updates the host's own addresses and
    /// the router's interfaces in the tables that the hooks read.
    pub fn tell_hooks(&mut self, router: &RouterName, config: &Config, ports: &mut Ports) {
        let (own, devices, numbers) = {
            let state = locked(&self.state);
            (state.seen.own.clone(), state.seen.devices.clone(), state.interfaces.clone())
        };
        let own = own.0.into_iter().map(IpAddr::V4).chain(own.1.into_iter().map(IpAddr::V6)).collect();
        if let Err(error) = self.own.replace_all(&own) {
            tracing::error!(%error, "hooks do not know all of this host's addresses; workers give those packets to the kernel");
        }
        let names = self.wanted.ports.keys().filter_map(|name| {
            let device = mirror_device::device(config, name)?;
            Some((name, *numbers.get(device)?, *devices.get(device)?))
        });
        let mut names: Vec<(&PortName, u16, Netdev)> = names.collect();
        names.retain(|(name, ..)| ports.get(*name).is_some_and(|port| port.hook.is_some()));
        let vlans: Vec<Vlan> = self.vlans(&numbers, &devices);
        if let Some(hook) = &mut self.hook {
            // If the offload is disabled, all interfaces are removed from it.
            let wanted = names.iter().filter(|_| self.wanted.settings.hook);
            let seen = wanted.flat_map(|(name, number, netdev)| {
                let port = ports.get(*name);
                let own = port.map(|port| hook::ObservedNamespace {
                    number: *number,
                    name,
                    port,
                    netdev: *netdev,
                    vlan: None,
                });
                let of = vlans.iter().filter(move |vlan| vlan.port == **name);
                let vlan = move |vlan: &Vlan| {
                    let (number, up, port) =
                        (vlan.answered()?, vlan.netdev.filter(|netdev| netdev.up)?, port?);
                    // The MTU of the interface cannot exceed the MTU of the port's device.
                    let netdev = Netdev { mtu: up.mtu.min(netdev.mtu), ..up };
                    Some(hook::ObservedNamespace {
                        number,
                        name,
                        port,
                        netdev,
                        vlan: Some(vlan.tags.outer.get()),
                    })
                };
                own.into_iter().chain(of.filter_map(vlan))
            });
            let seen: Vec<_> = seen.collect();
            hook.tell(router, self.wanted.settings.namespace.as_ref(), &seen);
        }
        for (name, number, netdev) in names {
            let Some(port) = ports.get_mut(name) else { continue };
            let mut none = None;
            let hook = if self.wanted.settings.hook { &mut self.hook } else { &mut none };
            let asks = self.wanted.ports.get(name);
            let wanted = hook::Wanted {
                of: RoutePort { mac: netdev.mac.0, vrrp: asks.is_some_and(|port| port.vrrp) },
                own: &self.own,
                interface: number,
                sources: sources(asks.map(|port| port.rpf).unwrap_or_default()),
                seed: self.seed,
                vlans: of_hook(vlans.iter().filter(|it| it.port == *name)),
                service: vlans.iter().any(|it| it.port == *name && it.tags.service),
                limits: &self.hook_limits,
            };
            if let Err(error) = hook::put(hook, name, port, &wanted) {
                tracing::error!(port = %name, %error, "its hook does not route");
            }
        }
    }

    /// Returns the VLANs of the router's ports that are router interfaces and whose kernel device exists.
    fn vlans(&self, numbers: &BTreeMap<String, u16>, devices: &BTreeMap<String, Netdev>) -> Vec<Vlan> {
        let vlan = |((port, vlan), own): (&mirror_device::Key, &MirrorDevice)| {
            Some(Vlan {
                port: port.clone(),
                tags: (*vlan)?,
                number: numbers.get(&own.device).copied(),
                netdev: devices.get(&own.device).copied(),
            })
        };
        self.mirrors.iter().filter_map(vlan).collect()
    }

    /// Reports to the kernel the neighbours to which packets were sent, so that the kernel keeps their neighbour
    /// entries reachable. Also makes the kernel resolve gateways whose Ethernet address is unknown.
    pub fn prompt(&mut self, name: &RouterName) {
        let (used, permanent) = {
            let state = locked(&self.state);
            let used: Vec<router::AdjacencyUse> = state.feed.adjacencies().iter().collect();
            (used, state.permanent.clone())
        };
        let (mut gateways, mut others) = (Vec::new(), Vec::new());
        let mut sent = BTreeMap::new();
        for one in used {
            let Some(address) = one.address else { continue };
            let key = (one.device, address);
            // Reporting a permanent neighbour as used would remove its permanent state (Linux
            // `__neigh_update`), and a permanent neighbour needs no report.
            if permanent.contains(&key) {
                continue;
            }
            let is_used = self.sent.get(&key).is_some_and(|before| *before != one.packets);
            if one.next_hops > 0 && (is_used || one.mac.is_none()) {
                gateways.push(key);
            } else if is_used {
                others.push(key);
            }
            sent.insert(key, one.packets);
        }
        self.sent = sent;
        let wanted = self.prompts.next(gateways, others);
        if wanted.is_empty() {
            return;
        }
        let told = inside(&object(name), self.wanted.settings.namespace.as_ref(), || {
            link::use_neighbours(wanted).map_err(|error| PlaneError::failed(object(name), &error, ""))
        });
        if let Err(error) = told {
            tracing::warn!(router = %name, %error, "the kernel cannot be told which neighbours are used");
        }
    }

    /// Updates the known peers of the router's routing daemons, whose control packets have separate rate limits. A
    /// known peer is one of the following: the two addresses of a BGP session of the kernel, the remote address of such
    /// a session, a neighbour that is a gateway or has such a remote address, or a DHCP server of the relay.
    pub fn learn_peers(&mut self, name: &RouterName, sessions: Sessions) {
        let sessions = match sessions {
            Ok(sessions) => sessions,
            Err(error) => {
                if !std::mem::replace(&mut self.lacks_sessions, true) {
                    tracing::warn!(router = %name, %error, "BGP's sessions are not known: a flood of forged segments may starve them");
                }
                Vec::new()
            }
        };
        let far: BTreeSet<IpAddr> = sessions.iter().map(|(_, far)| far.ip()).collect();
        let mut peers: BTreeSet<Peer> =
            sessions.iter().map(|(here, far)| Peer::Session(*here, *far)).collect();
        {
            let state = locked(&self.state);
            for used in state.feed.adjacencies().iter() {
                let (Some(address), Some(interface)) = (used.address, state.bound.get(&used.device)) else {
                    continue;
                };
                if used.next_hops > 0 || far.contains(&address) {
                    peers.insert(Peer::Neighbour(*interface, address));
                }
            }
        }
        let servers = self.wanted.ports.values().flat_map(|port| &port.dhcp_relay);
        peers.extend(far.iter().chain(servers).copied().map(Peer::Far));
        self.hook_limits.set_peers(name, &peers);
        self.punt_policer.set_peers(peers);
    }

    /// Returns whether the settings in `wanted` can be applied to the router while it runs, without opening it again.
    pub fn fits(&self, wanted: &model::Router) -> bool {
        // The tables that hooks read are created with the router.
        if wanted.settings.hook && !self.wanted.settings.hook && self.hook.is_none() {
            return false;
        }
        let built = |router: &model::Router| {
            let settings = &router.settings;
            let limits = (settings.routes, settings.neighbours);
            let fpm = (settings.fpm, settings.fpm_settle, settings.fpm_remote, settings.fpm_users.clone());
            (settings.namespace.clone(), limits, fpm)
        };
        built(&self.wanted) == built(wanted)
    }

    /// Returns whether the router's namespace was removed, or another namespace now has its name.
    pub fn is_gone(&self) -> bool {
        let namespace = self.wanted.settings.namespace.as_ref();
        namespace.is_some_and(|namespace| identity(namespace).ok() != self.identity)
    }

    pub fn close(mut self, name: &RouterName, engine: &Engine) {
        self.remove_mirrors(name, engine);
        let mut pool = engine.pool();
        if let Some(port) = self.punt_tap.port {
            let queues = engine.remove_queues(port).unwrap_or_default();
            queues.into_iter().for_each(|(_, _, queue)| queue.close(&mut pool));
        }
        if let Some(queue) = self.punt_tap.queue.take() {
            queue.close(&mut pool);
        }
        tracing::debug!(tap = self.punt_tap.name, "a router's way into the kernel is closed");
    }
}

/// A VLAN of a port. The VLAN is a router interface.
struct Vlan {
    port: PortName,
    tags: VlanTags,
    number: Option<u16>,
    netdev: Option<Netdev>,
}

impl Vlan {
    /// Returns the number of the VLAN's router interface if hooks route its packets. Returns `None` for a VLAN with two
    /// tags, whose packets workers route.
    fn answered(&self) -> Option<u16> {
        self.number.filter(|_| self.tags.inner.is_none())
    }
}

/// Returns the outer VLAN IDs of a port's VLANs. The second value is the number of the VLAN's router interface if hooks
/// route the packets of the VLAN, or `None` if workers route these packets.
fn of_hook<'v>(vlans: impl Iterator<Item = &'v Vlan>) -> Vec<(u16, Option<u16>)> {
    let mut all = BTreeMap::new();
    for vlan in vlans {
        let number = all.entry(vlan.tags.outer.get()).or_insert(None);
        *number = number.or(vlan.answered());
    }
    all.into_iter().collect()
}

fn sources(asks: Rpf) -> Sources {
    match asks {
        Rpf::Off => Sources::Any,
        Rpf::Strict => Sources::Strict,
        Rpf::Loose => Sources::Loose,
    }
}

fn reverse_path(asks: Rpf) -> ReversePath {
    match asks {
        Rpf::Off => ReversePath::Off,
        Rpf::Strict => ReversePath::Strict,
        Rpf::Loose => ReversePath::Loose,
    }
}

/// Returns a random number, used as the seed of a router's flow hash.
fn fastrand() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    u32::try_from(RandomState::new().hash_one(0) >> 32).unwrap_or(1)
}
