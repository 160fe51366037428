//! Sockets of a DHCP relay interface, and the processing of each received message.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV6, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use model::DhcpRelayState;
use packet::MacAddr;
use port::bound::{self, FrameSender};
use router::dhcp::{self, Direction, Refusal};
use router::dhcp6;

use super::version::{Key, Version};

/// Maximum number of DHCP messages per second that the relay accepts on an interface, counted separately for clients,
/// for other relays, for replies of servers to clients, and for replies of servers to other relays.
const RATE: u32 = 1_000;
/// Maximum number of DHCP messages per second that the relay accepts from one client. Clients with equal hashes
/// share the limit.
const CLIENT_RATE: u32 = 16;
const CLIENTS: usize = 1_024;
/// Maximum number of DHCP messages per second that the relay accepts from one other relay.
const RELAY_RATE: u32 = 250;
/// Interface index of the loopback device, on which messages from this host to itself arrive.
const LOOPBACK: u32 = 1;

pub type RelayInterfaces = BTreeMap<Key, RelayInterface>;

/// Returns the UDP port on which servers and relays of this DHCP version receive messages.
pub fn port(version: Version) -> u16 {
    match version {
        Version::V4 => dhcp::SERVER_PORT,
        Version::V6 => dhcp6::SERVER_PORT,
    }
}

#[derive(Default)]
pub struct Counts {
    pub listens: AtomicBool,
    requests: AtomicU64,
    replies: AtomicU64,
    malformed: AtomicU64,
    looping: AtomicU64,
    strangers: AtomicU64,
    limited: AtomicU64,
    unsent: AtomicU64,
}

impl Counts {
    pub fn state(&self) -> DhcpRelayState {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        DhcpRelayState {
            listens: self.listens.load(Ordering::Relaxed),
            requests: count(&self.requests),
            replies: count(&self.replies),
            malformed: count(&self.malformed),
            looping: count(&self.looping),
            strangers: count(&self.strangers),
            limited: count(&self.limited),
            unsent: count(&self.unsent),
        }
    }

    fn refuse(&self, refusal: Refusal) {
        add(match refusal {
            Refusal::Malformed | Refusal::Hardware => &self.malformed,
            Refusal::Looping => &self.looping,
        });
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// Current state of a device on which DHCP is relayed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub ifindex: u32,
    pub mac: MacAddr,
    pub own: IpAddr,
}

/// A DHCP relay interface for one address family.
pub struct RelayInterface {
    pub place: Place,
    pub clients: UdpSocket,
    pub servers: UdpSocket,
    /// Socket that sends DHCPv4 replies as Ethernet frames, because a client may have no address yet and may not answer
    /// ARP.
    frames: FrameSender,
    allowed: Vec<IpAddr>,
    /// For each DHCP server, the devices through which the kernel's routes to the server lead. The server's replies may
    /// arrive only on these devices.
    ways: BTreeMap<IpAddr, Vec<u32>>,
    /// Whether the relay accepts messages that another relay has already forwarded, if they arrive through the socket
    /// for clients.
    takes_relayed: bool,
    counts: Arc<Counts>,
    up: Limits,
    down: Replies,
}

impl RelayInterface {
    pub fn open(
        device: &str,
        place: Place,
        allowed: &[IpAddr],
        takes_relayed: bool,
        counts: &Arc<Counts>,
    ) -> std::io::Result<RelayInterface> {
        let version = Version::of(place.own);
        let any = match version {
            Version::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Version::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let clients = bound::udp(any, port(version), Some(device))?;
        if version == Version::V6 {
            clients.join_multicast_v6(&dhcp6::RELAYS_AND_SERVERS, place.ifindex)?;
        }
        Ok(RelayInterface {
            place,
            clients,
            servers: bound::udp(place.own, port(version), None)?,
            frames: FrameSender::open(place.ifindex)?,
            allowed: allowed.to_owned(),
            ways: BTreeMap::new(),
            takes_relayed,
            counts: Arc::clone(counts),
            up: Limits { clients: Requests::new(CLIENT_RATE), relays: Requests::new(RELAY_RATE) },
            down: Replies::default(),
        })
    }

    /// Sends a DHCP message to all configured servers.
    fn to_servers(&self, message: &[u8]) {
        let port = port(Version::of(self.place.own));
        let sent =
            self.allowed.iter().filter(|server| self.servers.send_to(message, (**server, port)).is_ok());
        add(if sent.count() > 0 { &self.counts.requests } else { &self.counts.unsent });
    }

    fn replied<E>(&self, sent: Result<(), E>) {
        add(if sent.is_ok() { &self.counts.replies } else { &self.counts.unsent });
    }
}

/// Rate limits of the DHCP messages that the relay forwards to servers.
struct Limits {
    /// Rate limits for messages that clients send on the link.
    clients: Requests,
    /// Rate limits for messages that other relays send to the interface's address. Any host that has a route to the
    /// address can send such messages, so they must not use up the limit of the clients.
    relays: Requests,
}

impl Limits {
    /// Counts one DHCP message that is to be forwarded to the servers. Returns false if a rate limit is exceeded.
    /// `by_address` is true if the message was sent to the interface's own address, and false if it was sent to a
    /// multicast or broadcast address on the link.
    fn take(&mut self, by_address: bool, from: impl Hash, client: impl Hash) -> bool {
        let now = Instant::now();
        if by_address { self.relays.take(from, now) } else { self.clients.take(client, now) }
    }
}

/// Rate limits of the DHCP messages that the relay forwards from servers. Any host can ask the servers through another
/// relay, and each of several servers answers. The replies to relays therefore do not use up the limit of the replies
/// to clients.
#[derive(Default)]
struct Replies {
    to_clients: Allowance,
    to_relays: Allowance,
}

impl Replies {
    fn take(&mut self, to_relay: bool, now: Instant) -> bool {
        let own = if to_relay { &mut self.to_relays } else { &mut self.to_clients };
        own.take(now, RATE)
    }
}

/// Rate limits of accepted DHCP messages: one for all senders together, and one for each sender.
struct Requests {
    all: Allowance,
    /// Message counter of each sender, indexed by the hash of the sender. Several senders may share a counter.
    each: Box<[Allowance]>,
    /// Maximum number of messages per second that the relay accepts from one sender.
    rate: u32,
    hasher: RandomState,
}

impl Requests {
    fn new(rate: u32) -> Requests {
        let each = (0..CLIENTS).map(|_| Allowance::default()).collect();
        Requests { all: Allowance::default(), each, rate, hasher: RandomState::new() }
    }

    /// Counts one DHCP message of a sender. Returns false if the sender's limit or the common limit is exceeded.
    fn take(&mut self, sender: impl Hash, now: Instant) -> bool {
        let place = usize::try_from(self.hasher.hash_one(sender) % CLIENTS as u64).unwrap_or(0);
        let rate = self.rate;
        let is_within = self.each.get_mut(place).is_none_or(|own| own.take(now, rate));
        is_within && self.all.take(now, RATE)
    }
}

/// Counter of the messages in the current second, which limits the number of messages per second.
#[derive(Default)]
struct Allowance {
    since: Option<Instant>,
    taken: u32,
}

impl Allowance {
    fn take(&mut self, now: Instant, rate: u32) -> bool {
        if self.since.is_none_or(|since| now.duration_since(since) >= Duration::from_secs(1)) {
            *self = Allowance { since: Some(now), taken: 0 };
        }
        self.taken = self.taken.saturating_add(1);
        self.taken <= rate
    }
}

/// Processes a DHCPv4 message that was received on an interface. `arrived_by` is the interface index of the device on
/// which the message arrived.
pub fn take4(
    interface_relays: &mut RelayInterfaces,
    key: &Key,
    by_address: bool,
    message: &mut [u8],
    from: Ipv4Addr,
    arrived_by: u32,
) {
    let of_interface =
        |interface_relay: &RelayInterface, own: Ipv4Addr| interface_relay.place.own == IpAddr::V4(own);
    let direction = dhcp::direction(message);
    let is_ours = matches!(direction, Ok(Direction::Up(first)) if interface_relays.values().any(|interface_relay| of_interface(interface_relay, first)));
    let Some(interface_relay) = interface_relays.get_mut(key) else { return };
    match direction {
        Err(refusal) => interface_relay.counts.refuse(refusal),
        Ok(Direction::Up(_)) if is_ours => add(&interface_relay.counts.looping),
        // Clients are on the link and broadcast. A message to this address is from another relay.
        Ok(Direction::Up(first)) if by_address && first.is_unspecified() => {
            add(&interface_relay.counts.strangers)
        }
        Ok(Direction::Up(first)) if !first.is_unspecified() && !interface_relay.takes_relayed => {
            add(&interface_relay.counts.strangers)
        }
        Ok(Direction::Up(_)) if !interface_relay.up.take(by_address, from, dhcp::client(message)) => {
            add(&interface_relay.counts.limited)
        }
        Ok(Direction::Up(_)) => {
            let IpAddr::V4(own) = interface_relay.place.own else { return };
            match dhcp::forward(message, own) {
                Ok(()) => interface_relay.to_servers(message),
                Err(refusal) => interface_relay.counts.refuse(refusal),
            }
        }
        Ok(Direction::Down(own)) => {
            let counts = Arc::clone(&interface_relay.counts);
            let Some(interface_relay) =
                interface_relays.values_mut().find(|interface_relay| of_interface(interface_relay, own))
            else {
                return add(&counts.strangers);
            };
            // A reply to another relay goes to its address without this relay.
            if !interface_relay.lets_down(IpAddr::V4(from), arrived_by, false) {
                return;
            }
            match dhcp::reply_frame(message, interface_relay.place.mac) {
                Ok(frame) => interface_relay.replied(interface_relay.frames.send(&frame)),
                Err(refusal) => interface_relay.counts.refuse(refusal),
            }
        }
    }
}

/// Processes a DHCPv6 message that was received on an interface. `arrived_by` is the interface index of the device on
/// which the message arrived.
pub fn take6(
    interface_relays: &mut RelayInterfaces,
    key: &Key,
    by_address: bool,
    message: &[u8],
    from: Ipv6Addr,
    arrived_by: u32,
) {
    let is_ours =
        interface_relays.values().any(|interface_relay| interface_relay.place.own == IpAddr::V6(from));
    let Some(interface_relay) = interface_relays.get_mut(key) else { return };
    match dhcp6::direction(message) {
        Err(refusal) => interface_relay.counts.refuse(refusal),
        Ok(dhcp6::Direction::Up { .. }) if is_ours => add(&interface_relay.counts.looping),
        // Clients multicast their messages.
        Ok(dhcp6::Direction::Up { relayed: false }) if by_address => add(&interface_relay.counts.strangers),
        Ok(dhcp6::Direction::Up { relayed: true }) if !interface_relay.takes_relayed => {
            add(&interface_relay.counts.strangers)
        }
        Ok(dhcp6::Direction::Up { .. }) if !interface_relay.up.take(by_address, from, from) => {
            add(&interface_relay.counts.limited)
        }
        Ok(dhcp6::Direction::Up { .. }) => {
            let IpAddr::V6(own) = interface_relay.place.own else { return };
            match dhcp6::forward(message, from, own, &key.0) {
                Ok(envelope) => interface_relay.to_servers(&envelope),
                Err(refusal) => interface_relay.counts.refuse(refusal),
            }
        }
        Ok(dhcp6::Direction::Down) => match dhcp6::reply(message) {
            Ok(reply) => {
                let counts = Arc::clone(&interface_relay.counts);
                let is_meant = |(device, _): &Key, interface_relay: &RelayInterface| match reply.interface {
                    Some(name) => name == device.as_bytes(),
                    None => interface_relay.place.own == IpAddr::V6(reply.link),
                };
                let found = interface_relays
                    .iter_mut()
                    .find(|(key, interface_relay)| key.1 == Version::V6 && is_meant(key, interface_relay));
                let Some((_, interface_relay)) = found else { return add(&counts.strangers) };
                if interface_relay.lets_down(IpAddr::V6(from), arrived_by, reply.to_relay) {
                    interface_relay.deliver(&reply);
                }
            }
            Err(refusal) => interface_relay.counts.refuse(refusal),
        },
    }
}

impl RelayInterface {
    /// Reads the kernel's routes to the DHCP servers, in the calling thread's namespace. Replies of the servers may
    /// also arrive on the device `extra`.
    pub fn find_ways(&mut self, extra: Option<u32>) {
        let ways = |server: &IpAddr| {
            // Without a route to the server, no message is sent to it and no reply is accepted from it.
            let mut ways = port::ways::ways_to(*server).unwrap_or_default();
            ways.extend(extra);
            (*server, ways)
        };
        self.ways = self.allowed.iter().map(ways).collect();
    }

    /// Checks whether a server's DHCP reply may be sent to a client. The source address of the reply must be the
    /// address of one of the interface's DHCP servers, and the reply must have arrived on a device through which the
    /// route to this server leads. Counts a refused reply.
    fn lets_down(&mut self, from: IpAddr, arrived_by: u32, to_relay: bool) -> bool {
        let is_routed = self.ways.get(&from).is_some_and(|ways| ways.contains(&arrived_by));
        let refused = if !is_routed && (arrived_by != LOOPBACK || !self.allowed.contains(&from)) {
            &self.counts.strangers
        } else if !self.down.take(to_relay, Instant::now()) {
            &self.counts.limited
        } else {
            return true;
        };
        add(refused);
        false
    }

    /// Sends the DHCPv6 message that a server has encapsulated in a relay reply. The receiver is a client on
    /// the link, or another relay, which may be off-link.
    fn deliver(&self, reply: &dhcp6::Reply<'_>) {
        let on_link = reply.peer.is_unicast_link_local();
        let port = if reply.to_relay { dhcp6::SERVER_PORT } else { dhcp6::CLIENT_PORT };
        let to = SocketAddrV6::new(reply.peer, port, 0, if on_link { self.place.ifindex } else { 0 });
        let socket = if reply.to_relay && !on_link { &self.servers } else { &self.clients };
        self.replied(socket.send_to(reply.message, to).map(drop));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that sends 5,000 messages a second does not prevent the relay from accepting messages of other
    /// clients.
    #[test]
    fn one_client_leaves_the_relay_to_others() {
        let (mut requests, begin) = (Requests::new(CLIENT_RATE), Instant::now());
        let busy = MacAddr([2, 0, 0, 0, 0, 1]);
        let taken = (0..5_000).filter(|_| requests.take(Some(busy), begin)).count();
        assert_eq!(taken, usize::try_from(CLIENT_RATE).unwrap());
        let others =
            (0..200_u8).filter(|number| requests.take(Some(MacAddr([2, 0, 0, 0, 1, *number])), begin));
        // Another client may have the same hash as the busy client.
        assert!(others.count() >= 190);
    }

    /// Messages that other hosts send to the interface's address do not use up the limit of the clients on the link.
    #[test]
    fn forged_messages_of_relays_leave_the_limit_of_clients() {
        let mut limits = Limits { clients: Requests::new(CLIENT_RATE), relays: Requests::new(RELAY_RATE) };
        let one: Ipv4Addr = [192, 0, 2, 1].into();
        let forged = (0..5_000_u32).filter(|number| limits.take(true, one, number)).count();
        assert_eq!(forged, usize::try_from(RELAY_RATE).unwrap());
        let many =
            (0..5_000_u32).filter(|number| limits.take(true, Ipv4Addr::from_bits(*number), number)).count();
        assert!(many <= usize::try_from(RATE).unwrap());
        let clients = (0..200_u8).filter(|number| {
            let client = Some(MacAddr([2, 0, 0, 0, 1, *number]));
            limits.take(false, Ipv4Addr::UNSPECIFIED, client)
        });
        assert_eq!(clients.count(), 200);
    }

    /// Replies to other relays do not use up the limit of the replies to clients.
    #[test]
    fn replies_to_relays_leave_the_limit_of_clients() {
        let (mut replies, begin) = (Replies::default(), Instant::now());
        let taken = |replies: &mut Replies, to_relay, of: u32| {
            (0..of).filter(|_| replies.take(to_relay, begin)).count()
        };
        assert_eq!(taken(&mut replies, true, 5_000), usize::try_from(RATE).unwrap());
        assert_eq!(taken(&mut replies, false, 200), 200);
    }

    #[test]
    fn a_second_has_so_many_messages() {
        let (mut allowance, begin) = (Allowance::default(), Instant::now());
        let taken = (0..RATE + 5).filter(|_| allowance.take(begin, RATE)).count();
        assert_eq!(taken, usize::try_from(RATE).unwrap());
        assert!(!allowance.take(begin + Duration::from_millis(999), RATE));
        assert!(allowance.take(begin + Duration::from_secs(1), RATE));
    }
}
