//! How many packets get into the kernel, and how many senders are told by the router itself: each class of them has its own limit and its own
//! counts.
//!
//! Within a class, each interface and each source has a share. A packet within the shares of its interface and its source may use the whole
//! bucket of its class; a packet beyond them may use the bucket down to a reserve. So a flood that one interface or one source sends leaves the
//! reserve and what comes in anew to others, and a class with a single sender still has its whole rate. Packets of known peers
//! ([`Peer`]) have a class of their own ([`PuntClass::Peer`]), which no flood of forged sources takes from.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use packet::{FlowKey, L3Kind, PortId, PuntClass};
use sync::counter::CounterArray;
use sync::token_bucket::TokenBucket;

use crate::adjacency::bits_of;
use crate::room::Punt;

const NS_PER_S: u64 = 1_000_000_000;
/// Shares of interfaces and of sources of a class, by hash.
const SHARES: usize = 256;
/// The part of a class' rate that one interface has as its share.
const OF_INTERFACE: u64 = 8;
/// The part of a class' rate that one source has as its share; of [`PuntClass::Peer`], whose interfaces have no shares, a larger one.
const OF_SOURCE: u64 = 32;
const OF_PEER: u64 = 4;
/// Places for known peers, in sets of eight.
const PEERS: usize = 4096;
const WAYS: usize = 8;
/// The hop count of messages that have crossed no router (RFC 5082), as BFD sends them (RFC 5881, section 5).
const GTSM: u8 = 255;

/// A known peer of a routing protocol of the kernel's daemons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// A TCP session of BGP: the address and port of this end, then those of the peer.
    Session(SocketAddr, SocketAddr),
    /// A gateway that routes use, or the other end of a BGP session: OSPF and BFD of this address are believed to be wanted.
    Neighbour(IpAddr),
}

/// Where a packet for the kernel comes from.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    interface: u16,
    key: FlowKey,
}

impl Origin {
    /// Of a frame that has come in by the interface of this number. `head` is the frame's first octets, `len` its length.
    #[must_use]
    pub fn of(interface: u16, head: &[u8], len: usize) -> Origin {
        let mut key = FlowKey::ZERO;
        // What cannot be read counts by its zero source.
        let _ = FlowKey::extract(head, len, PortId(0), &mut key);
        Origin { interface, key }
    }

    /// The source: of IP packets the address, of others that of the link layer.
    fn source(&self) -> u128 {
        match self.key.l3_kind() {
            L3Kind::Ipv4 => bits_of(self.key.ipv4_src().into()),
            L3Kind::Ipv6 => bits_of(self.key.ipv6_src().into()),
            L3Kind::None | L3Kind::Arp => self.key.eth_src().as_u64().into(),
        }
    }

    /// The known peer that a packet of a class would be of.
    fn peer(&self, class: PuntClass) -> Option<Peer> {
        let key = &self.key;
        let (source, destination): (IpAddr, IpAddr) = match key.l3_kind() {
            L3Kind::Ipv4 => (key.ipv4_src().into(), key.ipv4_dst().into()),
            L3Kind::Ipv6 => (key.ipv6_src().into(), key.ipv6_dst().into()),
            L3Kind::None | L3Kind::Arp => return None,
        };
        match class {
            PuntClass::Bgp => Some(Peer::Session(
                SocketAddr::new(destination, key.dst_port()),
                SocketAddr::new(source, key.src_port()),
            )),
            PuntClass::Ospf => Some(Peer::Neighbour(source)),
            // Control and echo of one hop bear the highest hop count; what bears another was sent from elsewhere.
            PuntClass::Bfd if matches!(key.dst_port(), 3784 | 3785) && key.ttl() != GTSM => None,
            PuntClass::Bfd => Some(Peer::Neighbour(source)),
            _ => None,
        }
    }
}

/// The limits of a router, which all its snapshots share.
#[derive(Debug)]
pub struct Gate {
    buckets: [TokenBucket; PuntClass::COUNT],
    rates: [AtomicU64; PuntClass::COUNT],
    /// By class, first of interfaces, then of sources: until when, in nanoseconds, each has had its share (the theoretical arrival time of
    /// ITU-T I.371's generic cell rate algorithm).
    shares: Box<[[AtomicU64; 2 * SHARES]]>,
    /// Hashes of known peers; 0: none.
    peers: Box<[AtomicU64]>,
    /// The secret of hashes.
    hasher: RandomState,
    /// By class: packets that were let in, and that were not.
    counts: CounterArray,
    /// Of the IPv4 error that is made next.
    id: AtomicU16,
}

impl Gate {
    /// Lets in so many packets a second of each class; counted by so many workers.
    #[must_use]
    pub fn new(rate: impl Fn(PuntClass) -> u32, workers: usize, now_ns: u64) -> Gate {
        let bucket = |class| TokenBucket::new(u64::from(rate(class)), burst(rate(class)), now_ns);
        Gate {
            buckets: PuntClass::ALL.map(bucket),
            rates: PuntClass::ALL.map(|class| AtomicU64::new(u64::from(rate(class)))),
            shares: (0..PuntClass::COUNT).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect(),
            peers: (0..PEERS).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
            counts: CounterArray::new(workers, 2 * PuntClass::COUNT),
            id: AtomicU16::new(1),
        }
    }

    /// Other rates, in packets a second. A class that keeps its rate keeps its bucket.
    pub fn set_rates(&self, rate: impl Fn(PuntClass) -> u32, now_ns: u64) {
        for ((class, bucket), set) in PuntClass::ALL.into_iter().zip(&self.buckets).zip(&self.rates) {
            let rate = rate(class);
            if set.swap(u64::from(rate), Ordering::Relaxed) != u64::from(rate) {
                bucket.set_rate(u64::from(rate), burst(rate), now_ns);
            }
        }
    }

    /// Makes these the known peers; of more than some thousands some are not known. For control threads, one at a time.
    pub fn set_peers(&self, peers: impl IntoIterator<Item = Peer>) {
        let mut places = vec![0; PEERS];
        for peer in peers {
            let hash = self.hash_of(peer);
            let set = &mut places[Self::set(hash)];
            if let Some(free) = set.iter_mut().find(|place| **place == 0) {
                *free = hash;
            }
        }
        // A peer that stays may move within its set: for a moment its packets are of their protocol's class.
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

    /// Whether one more packet that this router makes itself may pass; counts it. On the worker's own thread.
    pub fn admits(&self, class: PuntClass, worker: usize, now_ns: u64) -> bool {
        self.admit(class, false, worker, now_ns)
    }

    /// Whether one more packet from elsewhere may pass; counts it, under [`PuntClass::Peer`] if a known peer has sent it. On the worker's own
    /// thread.
    pub fn admits_from(&self, class: PuntClass, origin: &Origin, worker: usize, now_ns: u64) -> bool {
        let is_peer = origin.peer(class).is_some_and(|peer| self.knows(peer));
        let class = if is_peer { PuntClass::Peer } else { class };
        let rate = self.rates[class as usize].load(Ordering::Relaxed);
        let shares = &self.shares[class as usize];
        let place = |of: u64| usize::try_from(of % SHARES as u64).unwrap_or(0);
        let source = &shares[SHARES + place(self.hasher.hash_one((origin.interface, origin.source())))];
        let of_source = if is_peer { OF_PEER } else { OF_SOURCE };
        let interface = &shares[place(u64::from(origin.interface))];
        // Neither is charged where the other is used up: one source does not use up its interface's share, nor one interface, by
        // sources without end, those of others' sources.
        let is_within = (is_peer
            || next_share(interface.load(Ordering::Relaxed), rate, OF_INTERFACE, now_ns).is_some())
            && takes_share(source, rate, of_source, now_ns)
            && (is_peer || takes_share(interface, rate, OF_INTERFACE, now_ns));
        self.admit(class, is_within, worker, now_ns)
    }

    /// `is_within`: the packet may use the reserve of its class, too.
    fn admit(&self, class: PuntClass, is_within: bool, worker: usize, now_ns: u64) -> bool {
        let bucket = &self.buckets[class as usize];
        let rate = self.rates[class as usize].load(Ordering::Relaxed);
        let reserve = u64::from(reserve(u32::try_from(rate).unwrap_or(u32::MAX)));
        let admitted = (is_within || bucket.available(now_ns) > reserve) && bucket.take(now_ns, 1) == 1;
        self.counts.row(worker).add(2 * (class as usize) + usize::from(!admitted), 1);
        admitted
    }

    /// An identification that the last 65,535 IPv4 errors did not have (RFC 6864, 4.3).
    pub fn next_id(&self) -> u16 {
        self.id.fetch_add(1, Ordering::Relaxed)
    }

    /// Packets that were let in, and that were not.
    #[must_use]
    pub fn counted(&self, class: PuntClass) -> (u64, u64) {
        (self.counts.sum(2 * (class as usize)), self.counts.sum(2 * (class as usize) + 1))
    }
}

/// A tenth of a second's packets, and the reserve of those that are within their shares.
fn burst(rate: u32) -> u32 {
    saved(rate) + reserve(rate)
}

fn saved(rate: u32) -> u32 {
    (rate / 10).max(64)
}

fn reserve(rate: u32) -> u32 {
    saved(rate) / 2
}

/// Takes one packet from a share of one in `part` of a class' rate; false where the share is used up.
fn takes_share(until: &AtomicU64, rate: u64, part: u64, now_ns: u64) -> bool {
    let next = |until| next_share(until, rate, part, now_ns);
    until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
}

/// Until when a share would be used with one more packet; `None` where it is used up. At once it allows a tenth of a second's packets of it,
/// four at least.
fn next_share(until: u64, rate: u64, part: u64, now_ns: u64) -> Option<u64> {
    let step = (NS_PER_S * part).checked_div(rate)?;
    let begin = until.max(now_ns);
    (begin - now_ns <= (NS_PER_S / 10).max(3 * step)).then_some(begin + step)
}

/// The class of a frame that is given to the kernel for a reason: that of its protocol where it speaks to this host or its link. What is only on
/// its way through counts by the reason, so that it takes nothing from the daemons. `head` is the frame's first octets, `len` its length.
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
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_class_leaves_the_others_whole() {
        let rate = |class| if class == PuntClass::Ospf { 100 } else { 1000 };
        let gate = Gate::new(rate, 1, 0);
        let mut passed = 0;
        // A second of 10,000 hellos, and a BFD packet every 10 ms.
        for at in 0..10_000_u64 {
            passed += u32::from(gate.admits(PuntClass::Ospf, 0, at * 100_000));
            if at % 100 == 0 {
                assert!(gate.admits(PuntClass::Bfd, 0, at * 100_000));
            }
        }
        assert!((100..=165).contains(&passed), "{passed}: the rate and its first burst");
        assert_eq!(gate.counted(PuntClass::Bfd), (100, 0));
        assert_eq!(gate.counted(PuntClass::Ospf), (u64::from(passed), 10_000 - u64::from(passed)));
        // Another rate for one of them.
        gate.set_rates(|_| 1000, 1_000_000_000);
        let more = (0..10_000).filter(|at| gate.admits(PuntClass::Ospf, 0, 1_000_000_000 + at * 100_000));
        assert!((900..1200).contains(&more.count()));
    }

    #[test]
    fn what_passes_through_is_of_no_protocol() {
        let bgp = packet::spec::parse("ip_dst=10.0.0.1,tcp,dst_port=179").unwrap();
        assert_eq!(class(Punt::Own, &bgp, bgp.len()), PuntClass::Bgp);
        assert_eq!(class(Punt::NoRoute, &bgp, bgp.len()), PuntClass::NoRoute);
        let web = packet::spec::parse("ip_dst=10.0.0.1,tcp,dst_port=80").unwrap();
        assert_eq!(class(Punt::Own, &web, web.len()), PuntClass::Own);
    }

    fn origin(interface: u16, text: &str) -> Origin {
        let frame = packet::spec::parse(text).unwrap();
        Origin::of(interface, &frame, frame.len())
    }

    fn bgp(interface: u16, source: u32, ports: (u16, u16)) -> Origin {
        let source = std::net::Ipv4Addr::from(source);
        origin(
            interface,
            &format!("ip_src={source},ip_dst=10.0.0.1,tcp,src_port={},dst_port={}", ports.0, ports.1),
        )
    }

    /// The session of an established neighbour gets every segment in while 20 times the limit of forged ones come in by the same interface,
    /// from port 179 and from the neighbour's own address among others.
    #[test]
    fn a_session_lives_in_a_flood_of_forged_segments() {
        let gate = Gate::new(|_| 100, 1, 0);
        let (here, there) = ("10.0.0.1:179".parse().unwrap(), "10.0.0.2:40000".parse().unwrap());
        gate.set_peers([Peer::Session(here, there), Peer::Neighbour(there.ip())]);
        let keepalive = bgp(1, 0x0a00_0002, (40_000, 179));
        let mut refused = 0;
        for number in 0..20_000_u32 {
            let now = u64::from(number) * 500_000;
            let forged = match number % 3 {
                0 => bgp(1, 0x0a00_0002, (179, 179)),
                _ => bgp(1, 0x0b00_0000 + number, (179, 5000)),
            };
            refused += u32::from(!gate.admits_from(PuntClass::Bgp, &forged, 0, now));
            if number % 200 == 0 {
                assert!(gate.admits_from(PuntClass::Bgp, &keepalive, 0, now), "at {number}");
            }
        }
        assert!(refused > 18_000, "{refused}");
        assert_eq!(gate.counted(PuntClass::Peer), (100, 0));
        // Once it is not known any more, it is one of many.
        gate.set_peers([]);
        let late = (0..20).filter(|at| {
            gate.admits_from(PuntClass::Bgp, &bgp(1, 7, (179, 5000)), 0, 10_000_000_000 + at);
            gate.admits_from(PuntClass::Bgp, &keepalive, 0, 10_000_000_000 + at)
        });
        assert!(late.count() < 20);
    }

    /// OSPF and BFD of a gateway that routes use; BFD of one hop only with the hop count that no router lets through.
    #[test]
    fn hellos_of_gateways_are_of_known_peers() {
        let gate = Gate::new(|_| 1000, 1, 0);
        gate.set_peers([
            Peer::Neighbour("10.0.0.2".parse().unwrap()),
            Peer::Neighbour("fe80::2".parse().unwrap()),
        ]);
        for (class, text, expected) in [
            (PuntClass::Ospf, "ip_src=10.0.0.2,ip_dst=224.0.0.5,ip_proto=89", 1),
            (PuntClass::Ospf, "ip_src=fe80::2,ip_dst=ff02::5,ip_proto=89", 1),
            (PuntClass::Ospf, "ip_src=10.0.0.3,ip_dst=224.0.0.5,ip_proto=89", 0),
            (PuntClass::Bfd, "ip_src=10.0.0.2,ip_dst=10.0.0.1,udp,dst_port=3784,ttl=255", 1),
            (PuntClass::Bfd, "ip_src=10.0.0.2,ip_dst=10.0.0.1,udp,dst_port=3784,ttl=254", 0),
            (PuntClass::Bfd, "ip_src=10.0.0.2,ip_dst=10.0.0.1,udp,dst_port=4784,ttl=60", 1),
            (PuntClass::Rip, "ip_src=10.0.0.2,ip_dst=224.0.0.9,udp,dst_port=520", 0),
        ] {
            let before = gate.counted(PuntClass::Peer).0;
            assert!(gate.admits_from(class, &origin(1, text), 0, 0));
            assert_eq!(gate.counted(PuntClass::Peer).0 - before, expected, "{text}");
        }
    }

    /// ARP of one interface, whatever its sources, leaves another interface's whole; and one source leaves another's.
    #[test]
    fn a_flood_of_one_interface_leaves_the_class_to_others() {
        let gate = Gate::new(|_| 1000, 1, 0);
        let arp = |interface, source: u64| {
            let mut frame = packet::spec::parse("arp").unwrap();
            frame[6..12].copy_from_slice(&packet::MacAddr::from_u64(source).0);
            Origin::of(interface, &frame, frame.len())
        };
        let mut flood = 0;
        for number in 0..20_000_u64 {
            let now = number * 100_000;
            flood += u64::from(gate.admits_from(PuntClass::Arp, &arp(1, 0x0200_0000_0000 + number), 0, now));
            if number % 400 == 0 {
                assert!(gate.admits_from(PuntClass::Arp, &arp(2, 2), 0, now), "at {number}");
            }
        }
        // The flood has what the other leaves: the class' rate is used whole.
        assert!((1700..2200).contains(&flood), "{flood}");
        // One source, on one interface.
        for number in 0..20_000_u64 {
            let now = 10_000_000_000 + number * 100_000;
            gate.admits_from(PuntClass::Arp, &arp(1, 1), 0, now);
            if number % 1000 == 0 {
                assert!(gate.admits_from(PuntClass::Arp, &arp(1, 2), 0, now), "at {number}");
            }
        }
    }
}
