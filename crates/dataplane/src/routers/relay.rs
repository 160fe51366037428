//! DHCP relay for a router's interfaces (`router::dhcp`, `router::dhcp6`). The relay is one thread with sockets in the
//! router's namespace.
//!
//! Workers pass the broadcasts and multicasts of clients to the kernel on the interface's device or its mirror device,
//! so that ordinary sockets receive them. Each interface has two sockets for each address family. One socket is bound
//! to the interface's device, for clients. The other socket is bound to the interface's IP address. It receives
//! messages of other relays, and replies of DHCP servers, which may arrive on any interface.
//!
//! The relay keeps no state between messages, and other sockets can be bound to its ports and addresses. A successor
//! process can therefore open its own sockets while these sockets exist.

mod relay_interface;
mod version;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use control::PlaneError;
use model::{Config, DhcpRelayState, Namespace, RouterName};
use netlink::{Follower, Mirror};
use packet::MacAddr;
use port::bound::{self, Received};
use router::dhcp;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::super::device::inside;
use super::super::lock::locked;
use super::ask::ANSWER_LIMIT;
use super::observed::State;
use super::{mirror_device, object};
use relay_interface::{Counts, Place, RelayInterface, RelayInterfaces};
use version::Key;

pub use version::Version;

/// Maximum number of DHCP messages that are read from one socket before the next socket is read.
const TURN: usize = 64;
/// Interval at which the relay reads the state and the addresses of the interfaces' devices.
const LOOK: Duration = Duration::from_secs(1);

/// DHCP relay settings of one device for one DHCP version.
#[derive(Clone, PartialEq, Eq, Default)]
struct Service {
    servers: Vec<IpAddr>,
    takes_relayed: bool,
}

type Wanted = BTreeMap<Key, Service>;

/// DHCP relay of a router's interfaces. The relay stops when this value is dropped.
pub struct Relay {
    wanted: Wanted,
    /// Name of the router's punt TAP, on which replies of servers may also arrive.
    punt_tap: String,
    counts: BTreeMap<Key, Arc<Counts>>,
    stop: Arc<OwnedFd>,
}

/// Returns the relay settings of the devices (of ports and VLANs) for which DHCP servers are configured.
fn wanted(router: &model::Router, config: &Config) -> Wanted {
    let own =
        router.ports.keys().filter_map(|name| Some((name, mirror_device::device(config, name)?.to_owned())));
    let vlans = mirror_device::wanted(router, config).map(|(name, _, device)| (name, device));
    let mut wanted = Wanted::new();
    for (name, device) in own.chain(vlans) {
        let Some(port) = router.ports.get(name) else { continue };
        for server in &port.dhcp_relay {
            let service = wanted.entry((device.clone(), Version::of(*server))).or_default();
            service.servers.push(*server);
            service.takes_relayed = port.dhcp_relay_agents;
        }
    }
    wanted
}

impl Relay {
    /// Starts, restarts or stops the DHCP relay as the router's configuration requires. `follower` is the thread that
    /// tracks the router's namespace, and `state` is its state. `punt_tap` is the name of the router's punt TAP.
    pub fn settle(
        relay: &mut Option<Relay>,
        name: &RouterName,
        router: &model::Router,
        config: &Config,
        (follower, state): (&Arc<Follower>, &Arc<Mutex<State>>),
        punt_tap: &str,
    ) {
        let wanted = wanted(router, config);
        let is_same =
            relay.as_ref().is_some_and(|relay| relay.wanted == wanted && relay.punt_tap == punt_tap);
        if is_same || relay.is_none() && wanted.is_empty() {
            return;
        }
        let before = relay.take();
        if wanted.is_empty() {
            return;
        }
        let known = |key: &Key| before.as_ref().and_then(|before| before.counts.get(key).cloned());
        let counts: BTreeMap<Key, Arc<Counts>> =
            wanted.keys().map(|key| (key.clone(), known(key).unwrap_or_default())).collect();
        let started = eventfd(0, EventfdFlags::CLOEXEC).map_err(std::io::Error::from).and_then(|stop| {
            let stop = Arc::new(stop);
            let mut thread = Thread {
                name: name.clone(),
                wanted: wanted.clone(),
                punt_tap: punt_tap.to_owned(),
                counts: counts.clone(),
                follower: Arc::clone(follower),
                state: Arc::clone(state),
                stop: Arc::clone(&stop),
                interface_relays: RelayInterfaces::new(),
                failed: BTreeSet::new(),
            };
            let namespace = router.settings.namespace.clone();
            let builder = std::thread::Builder::new().name("dhcp-relay".to_owned());
            builder.spawn(move || thread.run(namespace.as_ref()))?;
            Ok(stop)
        });
        match started {
            Ok(stop) => *relay = Some(Relay { wanted, punt_tap: punt_tap.to_owned(), counts, stop }),
            Err(error) => tracing::error!(router = %name, %error, "DHCP is not relayed"),
        }
    }

    /// Returns the message counts of the DHCP relay for a device and a DHCP version. Returns `None` if the relay does
    /// not serve the device.
    pub fn state(&self, device: &str, version: Version) -> Option<DhcpRelayState> {
        self.counts.get(&(device.to_owned(), version)).map(|counts| counts.state())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // The thread stops within moments. The drop does not wait for it.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
    }
}

struct Thread {
    name: RouterName,
    wanted: Wanted,
    punt_tap: String,
    counts: BTreeMap<Key, Arc<Counts>>,
    follower: Arc<Follower>,
    state: Arc<Mutex<State>>,
    stop: Arc<OwnedFd>,
    interface_relays: RelayInterfaces,
    /// Interfaces on which DHCP cannot be relayed. The failure to relay on these interfaces has already been logged.
    failed: BTreeSet<Key>,
}

impl Thread {
    fn run(&mut self, namespace: Option<&Namespace>) {
        let mut told = false;
        let name = object(&self.name);
        loop {
            let done = inside(&name, namespace, || {
                self.relay();
                Ok::<(), PlaneError>(())
            });
            let Err(error) = done else { return };
            if !told {
                tracing::warn!(%error, "DHCP is not relayed; it is tried again every second");
            }
            told = true;
            if self.wait() {
                return;
            }
        }
    }

    /// Waits for DHCP messages, for at most a second. Returns whether the relay's thread must stop.
    fn wait(&self) -> bool {
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        let mut polled = vec![PollFd::from_borrowed_fd((*self.stop).as_fd(), PollFlags::IN)];
        let sockets = self
            .interface_relays
            .values()
            .flat_map(|interface_relay| [&interface_relay.clients, &interface_relay.servers]);
        polled.extend(sockets.map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)));
        // An interrupted wait ends like an expired one.
        let _ = poll(&mut polled, Some(&second));
        polled.first().is_some_and(|stop| !stop.revents().is_empty())
    }

    fn relay(&mut self) {
        let mut buffer = vec![0; dhcp::MOST + 1];
        let mut looked: Option<Instant> = None;
        loop {
            if looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
                self.look();
                looked = Some(Instant::now());
            }
            if self.wait() {
                return;
            }
            let keys: Vec<Key> = self.interface_relays.keys().cloned().collect();
            for key in keys {
                for by_address in [false, true] {
                    self.read(&key, by_address, &mut buffer);
                }
            }
        }
    }

    /// Opens sockets of the DHCP relay for devices and addresses that have appeared, and closes the sockets of
    /// devices and addresses that have disappeared.
    fn look(&mut self) {
        let keys: Vec<Key> = self.wanted.keys().cloned().collect();
        let punt_tap = self.punt_tap.clone();
        // A device may have been renamed, so it is found by its index.
        let devices: BTreeMap<String, u32> = locked(&self.state)
            .seen
            .devices
            .iter()
            .map(|(name, netdev)| (name.clone(), netdev.index))
            .collect();
        let seen = self.follower.look_within(ANSWER_LIMIT, move |mirror| {
            let seen = |key: Key| Some((place(mirror, *devices.get(&key.0)?, key.1)?, key));
            let places = keys.into_iter().filter_map(seen);
            let places = places.map(|(place, key)| (key, place)).collect::<BTreeMap<_, _>>();
            (places, mirror.links.values().find(|link| link.name == punt_tap).map(|link| link.index))
        });
        // If the follower is busy, the next call gets the state. Until then, the sockets stay open.
        if matches!(seen, Err(netlink::NetlinkError::Busy(_))) {
            return;
        }
        // If the follower has ended, no device is known and all sockets are closed. `show routers` reports the failure.
        let (places, punt_tap) = seen.unwrap_or_default();
        for (key, Service { servers, takes_relayed }) in &self.wanted {
            let (found, Some(counts)) = (places.get(key), self.counts.get(key)) else { continue };
            let place = found.map(|(place, _)| place);
            if let Some(interface_relay) = self
                .interface_relays
                .get_mut(key)
                .filter(|interface_relay| Some(&interface_relay.place) == place)
            {
                interface_relay.find_ways(punt_tap);
                continue;
            }
            if place.is_none() && !self.interface_relays.contains_key(key) {
                continue;
            }
            self.interface_relays.remove(key);
            if let Some((place, device)) = found {
                match RelayInterface::open(device, *place, servers, *takes_relayed, counts) {
                    Ok(mut interface_relay) => {
                        interface_relay.find_ways(punt_tap);
                        self.failed.remove(key);
                        self.interface_relays.insert(key.clone(), interface_relay);
                    }
                    Err(error) => {
                        if self.failed.insert(key.clone()) {
                            let (router, (device, version), port) =
                                (&self.name, key, relay_interface::port(key.1));
                            tracing::warn!(
                                %router, device, %error,
                                "{version} is not relayed there; it is tried again every second (`ss -lunp` in its namespace shows who has port {port})"
                            );
                        }
                    }
                }
            }
            counts.listens.store(self.interface_relays.contains_key(key), Ordering::Relaxed);
        }
    }

    fn read(&mut self, key: &Key, by_address: bool, buffer: &mut [u8]) {
        for _ in 0..TURN {
            let Some(interface_relay) = self.interface_relays.get(key) else { return };
            let socket = if by_address { &interface_relay.servers } else { &interface_relay.clients };
            let Ok(Received { length, from, ifindex }) = bound::receive(socket, buffer) else { return };
            let Some(message) = buffer.get_mut(..length) else { continue };
            let interface_relays = &mut self.interface_relays;
            match from {
                SocketAddr::V4(from) => {
                    relay_interface::take4(interface_relays, key, by_address, message, *from.ip(), ifindex)
                }
                SocketAddr::V6(from) => {
                    relay_interface::take6(interface_relays, key, by_address, message, *from.ip(), ifindex)
                }
            }
        }
    }
}

/// Returns the current state of a device and its name. For DHCPv4, the state contains the device's lowest
/// IPv4 address. For DHCPv6, the state contains the device's lowest IPv6 address that is not link-local.
/// Returns `None` if DHCP cannot be relayed on the device.
fn place(mirror: &Mirror, device: u32, version: Version) -> Option<(Place, String)> {
    let link = mirror.links.get(&device)?;
    let mac = MacAddr(link.address.as_slice().try_into().ok()?);
    let here = mirror.addresses.iter().filter(|address| address.link == link.index);
    let is_useful = |local: &IpAddr| match local {
        IpAddr::V4(_) => version == Version::V4,
        IpAddr::V6(own) => version == Version::V6 && !own.is_unicast_link_local(),
    };
    let own = here.map(|address| address.local).find(is_useful)?;
    Some((Place { ifindex: link.index, mac, own }, link.name.clone()))
}
