//! The DHCP relay of a router's interfaces (`router::dhcp`): one thread that holds their sockets in the router's namespace.
//!
//! Clients' broadcasts are the kernel's anyway, by the interface's true device or its mirror, so ordinary sockets see them. Each interface
//! has two: one of its device for clients, one of its address for servers (whose replies come in anywhere) and other relays; replies leave
//! as frames, since their client may have no address to answer ARP for yet. Nothing is kept between messages, and sockets are shared: a
//! successor process opens its own beside these.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use control::PlaneError;
use model::{Config, DhcpRelayState, Namespace, RouterName};
use netlink::Follower;
use packet::MacAddr;
use port::bound::{self, FrameSender};
use router::dhcp::{self, Refusal, SERVER_PORT, Way};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::super::device::inside;
use super::{mirrors, object};

/// Messages in each direction that an interface's relay takes in a second.
const RATE: u32 = 1_000;
/// Messages that are read from a socket before the next one has its turn.
const TURN: usize = 64;
/// How often devices and addresses are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The servers of each device that relays.
type Wanted = BTreeMap<String, Vec<Ipv4Addr>>;

/// The relay of a router's interfaces; it ends when it is dropped.
pub struct Relay {
    wanted: Wanted,
    counts: BTreeMap<String, Arc<Counts>>,
    stop: Arc<OwnedFd>,
}

#[derive(Default)]
struct Counts {
    listens: AtomicBool,
    requests: AtomicU64,
    replies: AtomicU64,
    malformed: AtomicU64,
    looping: AtomicU64,
    strangers: AtomicU64,
    limited: AtomicU64,
    unsent: AtomicU64,
}

/// Devices whose ports have servers, those of VLANs as well.
fn wanted(router: &model::Router, config: &Config) -> Wanted {
    let own = router.ports.keys().filter_map(|name| Some((name, mirrors::device(config, name)?.to_owned())));
    let vlans = mirrors::wanted(router, config).map(|(name, _, device)| (name, device));
    let servers = own.chain(vlans).filter_map(|(name, device)| {
        let servers = &router.ports.get(name)?.dhcp_relay;
        (!servers.is_empty()).then(|| (device, servers.clone()))
    });
    servers.collect()
}

impl Relay {
    /// Makes the relay of a router what its configuration wants.
    pub fn settle(
        relay: &mut Option<Relay>,
        name: &RouterName,
        router: &model::Router,
        config: &Config,
        follower: &Arc<Follower>,
    ) {
        let wanted = wanted(router, config);
        if relay.as_ref().map(|relay| &relay.wanted) == Some(&wanted) || relay.is_none() && wanted.is_empty()
        {
            return;
        }
        let before = relay.take();
        if wanted.is_empty() {
            return;
        }
        let known = |device: &String| before.as_ref().and_then(|before| before.counts.get(device).cloned());
        let counts: BTreeMap<String, Arc<Counts>> =
            wanted.keys().map(|device| (device.clone(), known(device).unwrap_or_default())).collect();
        let started = eventfd(0, EventfdFlags::CLOEXEC).map_err(std::io::Error::from).and_then(|stop| {
            let stop = Arc::new(stop);
            let mut thread = Thread {
                name: name.clone(),
                wanted: wanted.clone(),
                counts: counts.clone(),
                follower: Arc::clone(follower),
                stop: Arc::clone(&stop),
                desks: BTreeMap::new(),
                failed: BTreeSet::new(),
            };
            let namespace = router.settings.namespace.clone();
            let builder = std::thread::Builder::new().name("dhcp-relay".to_owned());
            builder.spawn(move || thread.run(namespace.as_ref()))?;
            Ok(stop)
        });
        match started {
            Ok(stop) => *relay = Some(Relay { wanted, counts, stop }),
            Err(error) => tracing::error!(router = %name, %error, "DHCP is not relayed"),
        }
    }

    /// What it has done for a device, if it does anything there.
    pub fn state(&self, device: &str) -> Option<DhcpRelayState> {
        let counts = self.counts.get(device)?;
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Some(DhcpRelayState {
            listens: counts.listens.load(Ordering::Relaxed),
            requests: count(&counts.requests),
            replies: count(&counts.replies),
            malformed: count(&counts.malformed),
            looping: count(&counts.looping),
            strangers: count(&counts.strangers),
            limited: count(&counts.limited),
            unsent: count(&counts.unsent),
        })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // It sees that within moments; nobody waits for it.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
    }
}

/// A device as it is, where DHCP is relayed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    ifindex: u32,
    mac: MacAddr,
    own: Ipv4Addr,
}

/// An interface that listens.
struct Desk {
    place: Place,
    clients: UdpSocket,
    servers: UdpSocket,
    frames: FrameSender,
    allowed: Vec<Ipv4Addr>,
    counts: Arc<Counts>,
    up: Allowance,
    down: Allowance,
}

impl Desk {
    fn open(device: &str, place: Place, allowed: &[Ipv4Addr], counts: &Arc<Counts>) -> std::io::Result<Desk> {
        Ok(Desk {
            place,
            clients: bound::udp(Ipv4Addr::UNSPECIFIED, SERVER_PORT, Some(device))?,
            servers: bound::udp(place.own, SERVER_PORT, None)?,
            frames: FrameSender::open(place.ifindex)?,
            allowed: allowed.to_owned(),
            counts: Arc::clone(counts),
            up: Allowance::default(),
            down: Allowance::default(),
        })
    }
}

/// What is left of a second's messages.
#[derive(Default)]
struct Allowance {
    since: Option<Instant>,
    taken: u32,
}

impl Allowance {
    fn take(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.duration_since(since) >= Duration::from_secs(1)) {
            *self = Allowance { since: Some(now), taken: 0 };
        }
        self.taken = self.taken.saturating_add(1);
        self.taken <= RATE
    }
}

struct Thread {
    name: RouterName,
    wanted: Wanted,
    counts: BTreeMap<String, Arc<Counts>>,
    follower: Arc<Follower>,
    stop: Arc<OwnedFd>,
    desks: BTreeMap<String, Desk>,
    /// Devices whose trouble was told.
    failed: BTreeSet<String>,
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

    /// Waits for messages, a second at most; whether it is to end.
    fn wait(&self) -> bool {
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        let mut polled = vec![PollFd::from_borrowed_fd((*self.stop).as_fd(), PollFlags::IN)];
        let sockets = self.desks.values().flat_map(|desk| [&desk.clients, &desk.servers]);
        polled.extend(sockets.map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)));
        // A signal is as good as a second.
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
            let devices: Vec<String> = self.desks.keys().cloned().collect();
            for device in devices {
                for by_address in [false, true] {
                    self.read(&device, by_address, &mut buffer);
                }
            }
        }
    }

    /// Opens and closes sockets as devices and addresses come and go.
    fn look(&mut self) {
        let devices: Vec<String> = self.wanted.keys().cloned().collect();
        let seen = self.follower.look(move |mirror| {
            let place = |device: String| {
                let link = mirror.links.values().find(|link| link.name == device)?;
                let mac = MacAddr(link.address.as_slice().try_into().ok()?);
                let own = mirror.addresses.iter().find_map(|address| match address.local {
                    IpAddr::V4(own) if address.link == link.index => Some(own),
                    _ => None,
                })?;
                Some((device, Place { ifindex: link.index, mac, own }))
            };
            devices.into_iter().filter_map(place).collect::<BTreeMap<_, _>>()
        });
        // Without a follower nothing is known: `show routers` tells.
        let places = seen.unwrap_or_default();
        for (device, servers) in &self.wanted {
            let (place, Some(counts)) = (places.get(device), self.counts.get(device)) else { continue };
            if self.desks.get(device).map(|desk| &desk.place) == place {
                continue;
            }
            self.desks.remove(device);
            if let Some(place) = place {
                match Desk::open(device, *place, servers, counts) {
                    Ok(desk) => {
                        self.failed.remove(device);
                        self.desks.insert(device.clone(), desk);
                    }
                    Err(error) => {
                        if self.failed.insert(device.clone()) {
                            let router = &self.name;
                            tracing::warn!(
                                %router, device, %error,
                                "DHCP is not relayed there; it is tried again every second (`ss -lunp` in its namespace shows who has port 67)"
                            );
                        }
                    }
                }
            }
            counts.listens.store(self.desks.contains_key(device), Ordering::Relaxed);
        }
    }

    fn read(&mut self, device: &str, by_address: bool, buffer: &mut [u8]) {
        for _ in 0..TURN {
            let Some(desk) = self.desks.get(device) else { return };
            let socket = if by_address { &desk.servers } else { &desk.clients };
            let Ok((length, SocketAddr::V4(from))) = socket.recv_from(buffer) else { return };
            if let Some(message) = buffer.get_mut(..length) {
                self.take(device, by_address, message, *from.ip());
            }
        }
    }

    fn take(&mut self, device: &str, by_address: bool, message: &mut [u8], from: Ipv4Addr) {
        let now = Instant::now();
        match dhcp::way(message) {
            Err(refusal) => {
                if let Some(desk) = self.desks.get(device) {
                    refuse(desk, refusal);
                }
            }
            Ok(Way::Up(first)) => {
                let is_ours = self.desks.values().any(|desk| desk.place.own == first);
                let Some(desk) = self.desks.get_mut(device) else { return };
                if is_ours {
                    add(&desk.counts.looping);
                } else if by_address && first.is_unspecified() {
                    // Clients are on the link, and ask all: who asks this address is another relay.
                    add(&desk.counts.strangers);
                } else if desk.up.take(now) {
                    up(desk, message);
                } else {
                    add(&desk.counts.limited);
                }
            }
            Ok(Way::Down(own)) => {
                let Some(desk) = self.desks.values_mut().find(|desk| desk.place.own == own) else {
                    if let Some(desk) = self.desks.get(device) {
                        add(&desk.counts.strangers);
                    }
                    return;
                };
                if !desk.allowed.contains(&from) {
                    add(&desk.counts.strangers);
                } else if desk.down.take(now) {
                    down(desk, message);
                } else {
                    add(&desk.counts.limited);
                }
            }
        }
    }
}

/// Sends a client's message to the servers.
fn up(desk: &Desk, message: &mut [u8]) {
    if let Err(refusal) = dhcp::forward(message, desk.place.own) {
        return refuse(desk, refusal);
    }
    let sent = desk.allowed.iter().filter(|server| {
        let to = (**server, SERVER_PORT);
        desk.servers.send_to(message, to).is_ok()
    });
    add(if sent.count() > 0 { &desk.counts.requests } else { &desk.counts.unsent });
}

/// Sends a server's message to its client.
fn down(desk: &Desk, message: &[u8]) {
    match dhcp::reply_frame(message, desk.place.mac) {
        Ok(frame) if desk.frames.send(&frame).is_ok() => add(&desk.counts.replies),
        Ok(_) => add(&desk.counts.unsent),
        Err(refusal) => refuse(desk, refusal),
    }
}

fn refuse(desk: &Desk, refusal: Refusal) {
    add(match refusal {
        Refusal::Malformed | Refusal::Hardware => &desk.counts.malformed,
        Refusal::Looping => &desk.counts.looping,
    });
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_messages() {
        let (mut allowance, begin) = (Allowance::default(), Instant::now());
        let taken = (0..RATE + 5).filter(|_| allowance.take(begin)).count();
        assert_eq!(taken, usize::try_from(RATE).unwrap());
        assert!(!allowance.take(begin + Duration::from_millis(999)));
        assert!(allowance.take(begin + Duration::from_secs(1)));
    }
}
