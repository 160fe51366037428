//! The policer (rate limiter) of packets that are punted to the kernel, and of the router's ICMP errors. Each class of
//! packets has its own rate limit and counters.
//!
//! Within a class, each interface and each source has a share of the rate. A packet within the shares of its interface
//! and source may use all tokens in the token bucket of its class. A packet beyond these shares may use only the tokens
//! above a reserve. A flood from one interface or source thus leaves the reserve and new tokens to others, and a class
//! with a single sender can still use its whole rate.
//!
//! Packets of known peers of routing protocols ([`Peer`]) and of known neighbours ([`Acquaintance`]) have separate
//! classes ([`KNOWN`]). Floods with forged sources do not use the tokens of these classes. The evidence for a peer
//! differs by protocol:
//!
//! - a BGP session is identified by its addresses and ports;
//! - a neighbour of a routing protocol is identified by its address, its interface and a hop count that
//!   proves that no router forwarded the packet (RFC 5082), or a hop count of 1 and its Ethernet address;
//! - a peer of multihop BFD (RFC 5883) and a DHCP server of a relay are identified by their address alone.
//!
//! These three kinds of peers have separate classes. Packets that are easy to forge therefore take no tokens
//! from the other kinds.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use packet::{FlowKey, L3Kind, PortId, PuntClass};
use sync::counter::CounterArray;
use sync::token_bucket::TokenBucket;

use crate::address_bits::bits_of;
use crate::adjacency::{Acquaintance, AdjacencyView};
use crate::punt::Punt;

const NS_PER_S: u64 = 1_000_000_000;
/// Number of per-interface rate limiters in each class, and also the number of per-source rate limiters. Each limiter
/// enforces the share of the class's rate that one interface or source may use. The limiter's index is the interface
/// number, or the hash of the source, modulo this number.
const SHARES: usize = 256;
/// The rate of a punt class outside [`KNOWN`] is divided by this number to get the share of one interface.
const OF_INTERFACE: u64 = 8;
/// The rate of a punt class outside [`KNOWN`] is divided by this number to get the share of one source.
const OF_SOURCE: u64 = 32;
/// The rate of a punt class in [`KNOWN`] is divided by this number to get the share of one interface. The number is
/// small, because there are few known senders.
const OF_KNOWN_INTERFACE: u64 = 2;
/// The rate of a punt class in [`KNOWN`] is divided by this number to get the share of one source.
const OF_KNOWN_SOURCE: u64 = 8;
/// Punt classes of known peers and known neighbours.
const KNOWN: [PuntClass; 4] =
    [PuntClass::Session, PuntClass::Peer, PuntClass::PeerMultihop, PuntClass::Neighbour];
/// Number of entries in the table of known peers. The table consists of sets of [`WAYS`] entries.
const PEERS: usize = 4096;
/// Number of entries in a set of the table of known peers.
const WAYS: usize = 8;
/// Number of slots for IP addresses that the kernel is resolving. A hash of the address selects the slot.
const ASKED: usize = 1024;
/// Time, in nanoseconds, for which the slot of an address that the kernel is resolving is valid. The time equals the
/// time that Linux takes for a resolution (`mcast_solicit`).
const ASKED_NS: u64 = 3 * NS_PER_S;
/// Mask of the bits of an entry of `PuntPolicer::asked` that hold a part of the address's hash. The other bits hold the
/// time until which a reply from the address is expected.
const ASKED_HASH: u64 = 0xffff;
/// TTL or hop limit that proves that no router has forwarded the packet (RFC 5082), as used by BFD (RFC 5881, section
/// 5).
const GTSM: u8 = 255;

/// A known peer of a routing protocol daemon or of the DHCP relay on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// A BGP session over TCP: local address and port, then address and port of the peer. Its packets belong
    /// to the class [`PuntClass::Session`].
    Session(SocketAddr, SocketAddr),
    /// A neighbour on the link of an interface: a gateway of a route, or the remote peer of a BGP session. The values
    /// are the interface number and the IP address. OSPF and single-hop BFD packets from this address belong to the
    /// class [`PuntClass::Peer`].
    Neighbour(u16, IpAddr),
    /// The remote peer of a BGP session, or a DHCP server of a relay, at any distance (IP address). Multihop BFD
    /// packets and replies of DHCP servers from this address belong to the class [`PuntClass::PeerMultihop`].
    Far(IpAddr),
}

impl Peer {
    fn class(self) -> PuntClass {
        match self {
            Peer::Session(..) => PuntClass::Session,
            Peer::Neighbour(..) => PuntClass::Peer,
            Peer::Far(_) => PuntClass::PeerMultihop,
        }
    }
}

/// The origin of a packet that is punted to the kernel: ingress interface and flow key.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    interface: u16,
    key: FlowKey,
}

impl Origin {
    /// Returns the origin of a frame that arrived on the interface with this number. `head` contains the first octets
    /// of the frame, and `len` is the frame's length in octets.
    #[must_use]
    pub fn of(interface: u16, head: &[u8], len: usize) -> Origin {
        let mut key = FlowKey::ZERO;
        // All frames that cannot be parsed are counted under one source, which is zero.
        let _ = FlowKey::extract(head, len, PortId(0), &mut key);
        Origin { interface, key }
    }

    /// Returns the source whose share the packet uses: the sender's MAC address for link-scope protocols (whose IP
    /// sources are unassigned or freely chosen), and the source IP address for other protocols.
    fn source(&self, class: PuntClass) -> u128 {
        let link = self.key.eth_src().as_u64().into();
        match (class, self.addresses()) {
            (PuntClass::Arp | PuntClass::Nd | PuntClass::Ra | PuntClass::Dhcp, _) | (_, None) => link,
            (_, Some((source, _))) => bits_of(source),
        }
    }

    /// Returns the source and destination IP addresses of the packet. Returns `None` for ARP and non-IP
    /// packets.
    fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        let key = &self.key;
        match key.l3_kind() {
            L3Kind::Ipv4 => Some((key.ipv4_src().into(), key.ipv4_dst().into())),
            L3Kind::Ipv6 => Some((key.ipv6_src().into(), key.ipv6_dst().into())),
            L3Kind::None | L3Kind::Arp => None,
        }
    }

    /// Returns the peer that has the addresses and ports of the packet. The caller looks this peer up in the table of
    /// known peers. Returns `None` for packets of a kind that known peers do not send.
    fn peer(&self, class: PuntClass) -> Option<Peer> {
        let key = &self.key;
        let (source, destination) = self.addresses()?;
        let far = SocketAddr::new(source, key.src_port());
        let is_direct = key.ttl() == GTSM;
        match class {
            PuntClass::Bgp => Some(Peer::Session(SocketAddr::new(destination, key.dst_port()), far)),
            // OSPF's multicast groups are link-local. A daemon sends to a single neighbour with hop count 1
            // (RFC 2328, A.1) or 255.
            PuntClass::Ospf if is_group_of_link(destination) || key.ttl() == 1 || is_direct => {
                Some(Peer::Neighbour(self.interface, source))
            }
            PuntClass::Bfd if key.dst_port() == 4784 => Some(Peer::Far(source)),
            // Servers send from these ports to relays (RFC 2131, section 4.1; RFC 8415, section 7.2).
            PuntClass::Dhcp if matches!(key.src_port(), 67 | 547) => Some(Peer::Far(source)),
            // Single-hop control and echo packets (RFC 5881), and those of link aggregation members (RFC
            // 7130).
            PuntClass::Bfd if is_direct => Some(Peer::Neighbour(self.interface, source)),
            _ => None,
        }
    }

    /// Returns whether the packet of a protocol whose peers are neighbours may come from a router further away: a
    /// packet to one address with hop count 1, which the last of several routers has forwarded.
    fn may_be_forwarded(&self, class: PuntClass) -> bool {
        let is_group = self.addresses().is_some_and(|(_, to)| is_group_of_link(to));
        class == PuntClass::Ospf && !is_group && self.key.ttl() != GTSM
    }

    /// Returns the IP address on the link that the sender of an ARP, neighbour discovery or DHCP packet claims to have.
    /// Returns `None` for other packets.
    fn neighbour(&self, class: PuntClass) -> Option<IpAddr> {
        let is_four = matches!(self.key.l3_kind(), L3Kind::Arp);
        match class {
            PuntClass::Arp if is_four => Some(self.key.ipv4_src().into()),
            PuntClass::Nd | PuntClass::Dhcp => self.addresses().map(|(source, _)| source),
            _ => None,
        }
    }
}

/// Returns whether an address is a link-local multicast group: in 224.0.0.0/24 (RFC 5771, section 4), or an IPv6 group
/// of link-local scope.
fn is_group_of_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }
}

/// The punt class under which a packet is counted, and the source share that it uses.
struct Place {
    class: PuntClass,
    /// Hash of the source of the packet, which selects the share.
    source: u64,
    /// Whether the sender claims an IP address that the kernel is resolving. The packet may then first try to take a
    /// token of [`PuntClass::Neighbour`], but no token of the reserve.
    is_asked: bool,
}

/// The punt policer of a router, shared by all snapshots of the router ([`crate::Router`]).
#[derive(Debug)]
pub struct PuntPolicer {
    buckets: [TokenBucket; PuntClass::COUNT],
    rates: [AtomicU64; PuntClass::COUNT],
    /// Time, in nanoseconds, until which each share is used up: the theoretical arrival time of the generic
    /// cell rate algorithm (ITU-T I.371). The first index is the class. The second index is the slot of an
    /// interface, or `SHARES` plus the slot of a source.
    shares: Box<[[AtomicU64; 2 * SHARES]]>,
    /// Hashes of the known peers. A hash of 0 marks a free entry.
    peers: Box<[AtomicU64]>,
    /// Time, in nanoseconds, until which an ARP or neighbour discovery reply from an IP address is expected, because
    /// the kernel is resolving the address. A hash of the address selects the entry. The bits in [`ASKED_HASH`] hold a
    /// part of this hash instead of the time.
    asked: Box<[AtomicU64]>,
    /// Secret key of the hash function for peers, sources and addresses.
    hasher: RandomState,
    /// Numbers of packets admitted and refused, for each class.
    counts: CounterArray,
    /// IPv4 identification of the next ICMP error.
    id: AtomicU16,
}

impl PuntPolicer {
    /// Creates a policer. `rate` returns the limit of each class in packets per second, and `workers` is the
    /// number of workers, each of which has its own counters.
    #[must_use]
    pub fn new(rate: impl Fn(PuntClass) -> u32, workers: usize, now_ns: u64) -> PuntPolicer {
        let bucket = |class| TokenBucket::new(u64::from(rate(class)), burst(rate(class)), now_ns);
        PuntPolicer {
            buckets: PuntClass::ALL.map(bucket),
            rates: PuntClass::ALL.map(|class| AtomicU64::new(u64::from(rate(class)))),
            shares: (0..PuntClass::COUNT).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect(),
            peers: (0..PEERS).map(|_| AtomicU64::new(0)).collect(),
            asked: (0..ASKED).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
            counts: CounterArray::new(workers, 2 * PuntClass::COUNT),
            id: AtomicU16::new(1),
        }
    }

    /// Sets the rate of each class, in packets per second. A class whose rate does not change keeps its token
    /// bucket.
    pub fn set_rates(&self, rate: impl Fn(PuntClass) -> u32, now_ns: u64) {
        for ((class, bucket), set) in PuntClass::ALL.into_iter().zip(&self.buckets).zip(&self.rates) {
            let rate = rate(class);
            if set.swap(u64::from(rate), Ordering::Relaxed) != u64::from(rate) {
                bucket.set_rate(u64::from(rate), burst(rate), now_ns);
            }
        }
    }

    /// Replaces the known peers. Some peers are ignored if there are more than a few thousand. Only control threads may
    /// call this method, one at a time.
    pub fn set_peers(&self, peers: impl IntoIterator<Item = Peer>) {
        let mut places = vec![0; PEERS];
        for peer in peers {
            let hash = self.hash_of(peer);
            let set = &mut places[Self::set(hash)];
            if let Some(free) = set.iter_mut().find(|place| **place == 0) {
                *free = hash;
            }
        }
        // A peer that is kept may move within its set. For a moment its packets are counted under their
        // protocol's class.
        for (place, hash) in self.peers.iter().zip(places) {
            place.store(hash, Ordering::Relaxed);
        }
    }

    fn hash_of(&self, peer: Peer) -> u64 {
        self.hasher.hash_one(peer) | 1
    }

    fn set(hash: u64) -> std::ops::Range<usize> {
        let sets = PEERS / WAYS;
        let first = usize::try_from(hash >> 32).unwrap_or(0) % sets * WAYS;
        first..first + WAYS
    }

    fn knows(&self, peer: Peer) -> bool {
        let hash = self.hash_of(peer);
        self.peers[Self::set(hash)].iter().any(|place| place.load(Ordering::Relaxed) == hash)
    }

    /// Applies the rate limits to a packet that is to be punted or answered with an ICMP error, and counts the packet.
    /// Returns false if a limit is exceeded. A packet of a known sender is counted in the class for such senders.
    /// `adjacencies` are the router's neighbours. `worker` must be the number of the calling worker.
    pub fn admits_from(
        &self,
        class: PuntClass,
        origin: &Origin,
        adjacencies: &AdjacencyView,
        worker: usize,
        now_ns: u64,
    ) -> bool {
        let Place { class, source, is_asked } = self.place(class, origin, adjacencies, now_ns);
        // Any station can claim an address under resolution, and must not take from known neighbours. Such claims
        // have no share of an interface or source in the class `Neighbour`. If a flood of claims uses up the tokens
        // above the reserve, a claim is judged by the class and shares of its protocol. The flood then leaves the
        // shares of other interfaces free.
        if is_asked && self.take(PuntClass::Neighbour, false, now_ns) {
            self.count(PuntClass::Neighbour, true, worker);
            return true;
        }
        let rate = self.rates[class as usize].load(Ordering::Relaxed);
        let shares = &self.shares[class as usize];
        let slot = |of: u64| usize::try_from(of % SHARES as u64).unwrap_or(0);
        let (source, interface) =
            (&shares[SHARES + slot(source)], &shares[slot(u64::from(origin.interface))]);
        let (of_interface, of_source) = match KNOWN.contains(&class) {
            true => (OF_KNOWN_INTERFACE, OF_KNOWN_SOURCE),
            false => (OF_INTERFACE, OF_SOURCE),
        };
        // Neither share is charged if the other share is used up. Therefore one source cannot use up its interface's
        // share, and one interface cannot use up the source shares of other interfaces with an endless number of
        // sources.
        let is_within = next_share(interface.load(Ordering::Relaxed), rate, of_interface, now_ns).is_some()
            && takes_share(source, rate, of_source, now_ns)
            && takes_share(interface, rate, of_interface, now_ns);
        let is_admitted = self.admit(class, is_within, worker, now_ns);
        if class == PuntClass::Unresolved
            && is_admitted
            && let Some((_, destination)) = origin.addresses()
        {
            self.expect(destination, now_ns);
        }
        is_admitted
    }

    /// Records that the kernel is resolving an IP address, so that a reply from it is expected for some time.
    fn expect(&self, address: IpAddr, now_ns: u64) {
        let hash = self.hasher.hash_one(address);
        let until = (now_ns + ASKED_NS) & !ASKED_HASH;
        self.asked(hash).store(until | hash & ASKED_HASH, Ordering::Relaxed);
    }

    /// Returns whether a reply from an IP address is expected, because the kernel is resolving the address.
    fn expects(&self, address: IpAddr, now_ns: u64) -> bool {
        let hash = self.hasher.hash_one(address);
        let slot = self.asked(hash).load(Ordering::Relaxed);
        (slot ^ hash) & ASKED_HASH == 0 && slot & !ASKED_HASH > now_ns
    }

    /// Returns the entry of `asked` for an IP address with this hash. The bits of the hash that select the entry are
    /// not among the bits in [`ASKED_HASH`].
    fn asked(&self, hash: u64) -> &AtomicU64 {
        &self.asked[usize::try_from((hash >> 32) % ASKED as u64).unwrap_or(0)]
    }

    /// Returns the class under which a packet is counted, and the source share that the packet uses. The share of a
    /// known sender depends on its interface, protocol and address, and on whether the packet is multicast. Therefore
    /// packets that claim another session, protocol or interface take no tokens from this share.
    fn place(&self, class: PuntClass, origin: &Origin, adjacencies: &AdjacencyView, now_ns: u64) -> Place {
        let is_neighbour = || {
            let knows = |source| adjacencies.knows(origin.interface, bits_of(source), origin.key.eth_src());
            origin.addresses().is_some_and(|(source, _)| knows(source) == Acquaintance::Known)
        };
        let is_believed = || match class {
            // A server on the link is a known neighbour, whose address is harder to forge than that of a server further
            // away.
            PuntClass::Dhcp => !is_neighbour(),
            _ => !origin.may_be_forwarded(class) || is_neighbour(),
        };
        if let Some(peer) = origin.peer(class).filter(|peer| self.knows(*peer) && is_believed()) {
            let is_group = origin.addresses().is_some_and(|(_, to)| is_group_of_link(to));
            let source = self.hasher.hash_one((origin.interface, class, peer, is_group));
            return Place { class: peer.class(), source, is_asked: false };
        }
        let mut is_asked = false;
        if let Some(address) = origin.neighbour(class) {
            let station = origin.key.eth_src();
            let known = adjacencies.knows(origin.interface, bits_of(address), station);
            if known == Acquaintance::Known {
                let source = self.hasher.hash_one((origin.interface, class, address, station.as_u64()));
                return Place { class: PuntClass::Neighbour, source, is_asked };
            }
            // Only ARP and neighbour discovery resolve addresses.
            is_asked =
                class != PuntClass::Dhcp && (known == Acquaintance::Asked || self.expects(address, now_ns));
        }
        let source = self.hasher.hash_one((origin.interface, origin.source(class)));
        Place { class, source, is_asked }
    }

    /// Takes a token of a class and counts the packet. Returns false if no token is available. `is_within` is true if
    /// the packet is within its shares, and may therefore use the class's reserve of tokens.
    fn admit(&self, class: PuntClass, is_within: bool, worker: usize, now_ns: u64) -> bool {
        let admitted = self.take(class, is_within, now_ns);
        self.count(class, admitted, worker);
        admitted
    }

    /// Takes a token of a class. Returns false if no token is available. `is_within` is true if the packet is within
    /// its shares, and may therefore use the class's reserve of tokens.
    fn take(&self, class: PuntClass, is_within: bool, now_ns: u64) -> bool {
        let bucket = &self.buckets[class as usize];
        let rate = self.rates[class as usize].load(Ordering::Relaxed);
        let reserve = u64::from(reserve(u32::try_from(rate).unwrap_or(u32::MAX)));
        (is_within || bucket.available(now_ns) > reserve) && bucket.take(now_ns, 1) == 1
    }

    fn count(&self, class: PuntClass, admitted: bool, worker: usize) {
        self.counts.row(worker).add(2 * (class as usize) + usize::from(!admitted), 1);
    }

    /// Returns an IPv4 identification that none of the last 65,535 ICMP errors used (RFC 6864, 4.3).
    pub fn next_id(&self) -> u16 {
        self.id.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of admitted packets and the number of refused packets of a class.
    #[must_use]
    pub fn counted(&self, class: PuntClass) -> (u64, u64) {
        (self.counts.sum(2 * (class as usize)), self.counts.sum(2 * (class as usize) + 1))
    }
}

/// Returns the burst size of a punt class, in packets: the packets of a tenth of a second, plus the reserve for packets
/// within the shares of their interface and source. `rate` is in packets per second.
fn burst(rate: u32) -> u32 {
    saved(rate) + reserve(rate)
}

fn saved(rate: u32) -> u32 {
    (rate / 10).max(64)
}

fn reserve(rate: u32) -> u32 {
    saved(rate) / 2
}

/// Returns the burst size of a punt class and the reserve within this burst, both in packets. `rate` is in packets per
/// second. Packets beyond the shares of their interface and source cannot use the reserve.
#[must_use]
pub fn punt_burst(rate: u32) -> (u32, u32) {
    (burst(rate), reserve(rate))
}

/// Counts one packet against the share of an interface or source in the rate of a punt class. Returns false if the
/// share is already used up. The rate of the share is the rate of the class (`rate`, in packets per second) divided by
/// `part`. `until` is the time until which the share is used up.
fn takes_share(until: &AtomicU64, rate: u64, part: u64, now_ns: u64) -> bool {
    let next = |until| next_share(until, rate, part, now_ns);
    until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
}

/// Returns the time, in nanoseconds, until which the share of an interface or source is used up if one more packet uses
/// the share. Returns `None` if the share is already used up at `now_ns`. A share allows a burst of a tenth of a
/// second's packets, and at least four packets.
fn next_share(until: u64, rate: u64, part: u64, now_ns: u64) -> Option<u64> {
    let step = (NS_PER_S * part).checked_div(rate)?;
    let begin = until.max(now_ns);
    (begin - now_ns <= (NS_PER_S / 10).max(3 * step)).then_some(begin + step)
}

/// Returns the punt class of a frame that is punted for the reason `why`. A packet to this host or its link belongs to
/// the class of its protocol. A transit packet belongs to the class of the reason. Therefore a transit packet takes no
/// tokens from the host's daemons. `head` contains the first octets of the frame, and `len` is the frame's length in
/// octets.
#[must_use]
pub fn class(why: Punt, head: &[u8], len: usize) -> PuntClass {
    let protocol = match why {
        Punt::NotIp | Punt::Group | Punt::Own | Punt::Scope => PuntClass::of_protocol(head, len),
        Punt::Expired
        | Punt::NoRoute
        | Punt::Unresolved
        | Punt::TooLong
        | Punt::Options
        | Punt::Elsewhere
        | Punt::NotRouted => None,
    };
    protocol.unwrap_or(why.class())
}

#[cfg(test)]
mod tests;
