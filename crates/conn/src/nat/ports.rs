//! Choice of the translated address and port of a connection with source NAT.
//!
//! A port of an address may have connections to several remote ends, because the tuples of the replies differ. This is
//! the endpoint-dependent mapping of RFC 4787 section 4.1. Each remote end therefore has a set of used ports of its
//! own, for each range, zone and protocol. The sets are trees of bitmaps, in which a free port is found in constant
//! time (see `nat/bitmap.rs`). The numbers of a set count the ports of the first address of the range, then the
//! ports of the second one, and so on. A search therefore skips addresses whose ports are all used.
//!
//! All connections of a subscriber have one address of the range, while the address has free ports (RFC 4787
//! requirement 2, pooling "paired"). A subscriber is a source address in a zone.
//!
//! Ranges that are equal share their sets. If ranges overlap otherwise, or if connections without NAT use an address of
//! a range, the function that is passed to [`Ports::allocate`] keeps the tuples apart.

use std::hash::{BuildHasher, RandomState};

use sync::hash::{Secret, WordHash};

use crate::nat::bitmap::Bitmaps;
use crate::nat::sparse::Words;
use crate::tuple::{Address, End, QueryClass};

/// Largest number of addresses of a range that are in use.
const ADDRESSES: u64 = 1 << 32;
/// Largest number of free ports that one allocation offers to the caller.
///
/// A worker accepts a port only if the tuple of the replies hashes to this worker, and does not know the used ports of
/// other workers. Let `n` be the number of workers, and `u` the use of the worker's share of the ports. An offer is
/// then accepted with the probability `(1 - u) / n`, so `n / (1 - u)` offers are needed on average. The worker finds no
/// port with the probability `(1 - (1 - u) / n)` to the power of [`OFFERS`]:
///
/// | workers | use 0 | use 0.5 | use 0.8 | use 0.9 | use 0.95 |
/// |---|---|---|---|---|---|
/// | 8 | 3e-238 | 2e-115 | 9e-46 | 4e-23 | 7e-12 |
/// | 16 | 2e-115 | 3e-57 | 4e-23 | 7e-12 | 3e-6 |
/// | 64 | 1e-28 | 1e-14 | 3e-6 | 0.002 | 0.04 |
///
/// The offers are ports at several random places. Consecutive ports alone would not do: as with linear probing, the
/// used ports of the worker form clusters. If the range has several addresses, the first half of the offers are ports
/// of the subscriber's address.
pub const OFFERS: u32 = 4096;
/// Number of consecutive free ports that are offered at one place.
const RUN: u32 = 32;
/// Largest number of offers in the failed allocations of a burst. Each failed allocation takes up to [`OFFERS`] offers,
/// and so a flood of new connections could otherwise occupy the worker while it has no free ports.
pub const FAILED_OFFERS: u32 = 2 * OFFERS;
/// Hash function of persistent choices. The hashes are equal in all processes.
const PERSISTENT: WordHash =
    WordHash::with(Secret { add: 0x9e37_79b9_7f4a_7c15, multiply: 0xbf58_476d_1ce4_e5b9 });

/// Addresses and ports for source NAT. Both limits are inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Range<A> {
    /// First address. At most 2^32 addresses from the first one on are in use.
    pub first_address: A,
    /// Last address.
    pub last_address: A,
    /// First port, or first identifier of ICMP queries. 0 for protocols without ports.
    pub first_port: u16,
    /// Last port, or last identifier of ICMP queries. 0 for protocols without ports.
    pub last_port: u16,
}

impl<A: Address> Range<A> {
    /// Returns the number of ports of each address. A range whose last port is less than the first one has none.
    fn ports(&self) -> u64 {
        (u64::from(self.last_port) + 1).saturating_sub(self.first_port.into())
    }

    /// Returns the number of addresses. A range whose last address is less than the first one has none.
    fn addresses(&self) -> u64 {
        let (first, last): (u128, u128) = (self.first_address.into(), self.last_address.into());
        let count = last.checked_sub(first).map_or(0, |more| more.saturating_add(1));
        u64::try_from(count).unwrap_or(u64::MAX).min(ADDRESSES)
    }

    /// Returns the number of a port in the sets of the range.
    fn number_of(&self, end: End<A>) -> Option<u64> {
        let address = end.address.into().checked_sub(self.first_address.into())?;
        let address = u64::try_from(address).ok().filter(|address| *address < self.addresses())?;
        let port = u64::from(end.port).checked_sub(self.first_port.into())?;
        (port < self.ports()).then(|| address * self.ports() + port)
    }

    /// Returns the port with a number in the sets of the range.
    fn end(&self, number: u64) -> End<A> {
        let (address, port) = (number / self.ports().max(1), number % self.ports().max(1));
        let address = self.first_address.into().saturating_add(address.into());
        let address = A::try_from(address).unwrap_or(self.last_address);
        End { address, port: self.first_port.saturating_add(u16::try_from(port).unwrap_or_default()) }
    }
}

/// Ends of a connection for the choice of its translated source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Flow<A> {
    /// Zone of the connection.
    pub zone: u16,
    /// IP protocol number of the connection.
    pub protocol: u8,
    /// Class of the ICMP or ICMPv6 query. `None` for other protocols.
    pub query: Option<QueryClass>,
    /// Original source of the first packet. The port of a query is the identifier.
    pub source: End<A>,
    /// Translated destination of the first packet. The port of a query has no meaning.
    pub remote: End<A>,
}

impl<A> Flow<A> {
    /// Returns the port of the remote end. For a query, returns the number of the class.
    fn remote_port(&self) -> u16 {
        self.query.map_or(self.remote.port, |class| class as u16)
    }
}

/// Choice of the first port that an allocation considers. If this port is used, the next free port is allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Choice {
    /// The source port stays unchanged if it is free. Otherwise, the choice is random.
    #[default]
    Keep,
    /// The port is random, and a receiver cannot predict it (RFC 6056).
    Random,
    /// The port is a hash of both ends.
    Hashed,
}

/// Options of the choice of an address and port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Selection {
    /// Choice of the port.
    pub choice: Choice,
    /// Whether hashes are equal after a restart, so that a subscriber keeps its address. Ports that are hashed are
    /// equal after a restart, too.
    pub is_persistent: bool,
}

/// Reason for which no port is allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotAllocated {
    /// The range has no address or no port.
    EmptyRange,
    /// The subscriber has as many ports as the limit allows.
    SubscriberLimit,
    /// All ports of the range are used towards the remote end.
    Exhausted,
    /// The caller has refused all free ports, or [`OFFERS`] of them.
    Clash,
    /// Allocations of the same burst have failed after [`FAILED_OFFERS`] offers.
    BurstLimit,
    /// The memory for used ports is full.
    NoMemory,
}

impl std::fmt::Display for NotAllocated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            NotAllocated::EmptyRange => "the range has no address or no port",
            NotAllocated::SubscriberLimit => "the subscriber has reached its limit of ports",
            NotAllocated::Exhausted => "all ports of the range are used towards the remote end",
            NotAllocated::Clash => "other connections use the free ports of the range",
            NotAllocated::BurstLimit => "too many searches for a free port have failed in this burst",
            NotAllocated::NoMemory => "the memory for used ports is full",
        })
    }
}

impl std::error::Error for NotAllocated {}

/// Numbers of allocations since the creation of the ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Ports that were allocated.
    pub allocated: u64,
    /// Ports that were released.
    pub released: u64,
    /// Allocations that were refused because of the limit of the subscriber.
    pub subscriber_limit: u64,
    /// Allocations that were refused because all ports were used.
    pub exhausted: u64,
    /// Allocations that were refused because the caller refused all free ports, or [`OFFERS`] of them.
    pub clashes: u64,
    /// Allocations that were refused because others of the same burst had failed after [`FAILED_OFFERS`] offers.
    pub burst_limit: u64,
    /// Allocations that were refused because the memory was full.
    pub no_memory: u64,
    /// Words of bitmaps that searches for free ports have read.
    pub words_read: u64,
}

/// Key of an allocated port in the sets of used ports. The lease and the subscriber are all that a release needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Lease {
    /// Key of the set of used ports.
    set: u64,
    /// Number of the port in the set.
    number: u64,
}

impl Lease {
    /// Lease of no port.
    pub const NONE: Lease = Lease { set: 0, number: u64::MAX };
}

/// Used ports of one worker, for IPv4 (`u32`) or IPv6 (`u128`).
#[derive(Debug)]
pub struct Ports<A> {
    bitmaps: Bitmaps,
    /// Numbers of ports of the subscribers. The key is the hash of the zone and the address.
    subscribers: Words,
    subscriber_limit: u64,
    /// Largest number of free ports that one allocation offers to the caller.
    offers: u32,
    /// Number of offers in the failed allocations of the current burst.
    failed_offers: u32,
    hash: WordHash,
    /// Keyed function of the random numbers.
    random: RandomState,
    /// Number of random numbers so far.
    randoms: u64,
    counts: Counts,
    address: std::marker::PhantomData<A>,
}

impl<A: Address> Ports<A> {
    /// Returns ports for at most `connections` connections at a time. The secret numbers are new. Subscribers have no
    /// limit.
    #[must_use]
    pub fn new(connections: u32) -> Ports<A> {
        Ports {
            bitmaps: Bitmaps::new(connections),
            subscribers: Words::new(connections),
            subscriber_limit: u64::MAX,
            offers: OFFERS,
            failed_offers: 0,
            hash: WordHash::new(),
            random: RandomState::new(),
            randoms: 0,
            counts: Counts::default(),
            address: std::marker::PhantomData,
        }
    }

    /// Returns the memory of the ports in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.bitmaps.memory() + self.subscribers.memory()
    }

    /// Returns the numbers of allocations since the creation.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { words_read: self.bitmaps.reads(), ..self.counts }
    }

    /// Sets the largest number of ports of a subscriber in a zone. `None`: subscribers have no limit. Subscribers that
    /// exceed the limit keep their ports.
    pub fn set_subscriber_limit(&mut self, limit: Option<u32>) {
        self.subscriber_limit = limit.map_or(u64::MAX, u64::from);
    }

    /// Sets the largest number of free ports that one allocation offers to the caller, at most [`OFFERS`]. A table that
    /// several workers share needs few offers, because only connections without NAT use other ports of a range.
    pub fn set_offers(&mut self, offers: u32) {
        self.offers = offers.clamp(1, OFFERS);
    }

    /// Begins a burst of packets. The limit [`FAILED_OFFERS`] applies to each burst.
    pub fn begin_burst(&mut self) {
        self.failed_offers = 0;
    }

    /// Returns the number of ports that a subscriber has in a zone.
    #[must_use]
    pub fn subscriber_ports(&self, zone: u16, subscriber: A) -> u64 {
        self.subscribers.get(self.subscriber(zone, subscriber))
    }

    /// Allocates an address and port of a range for a connection. `is_unique` returns whether the table of connections
    /// accepts the tuple of the replies, and whether the tuple hashes to this worker. The function offers at most
    /// [`OFFERS`] free ports to `is_unique`.
    ///
    /// # Errors
    /// Returns the reason for which no port is allocated. Nothing is changed then.
    pub fn allocate(
        &mut self,
        range: &Range<A>,
        flow: &Flow<A>,
        selection: Selection,
        mut is_unique: impl FnMut(End<A>) -> bool,
    ) -> Result<End<A>, NotAllocated> {
        let chosen = self.within_burst(|ports, offered| {
            ports.choose(range, flow, selection, &mut |end| {
                *offered += 1;
                is_unique(end)
            })
        });
        match chosen {
            Ok(_) => self.counts.allocated += 1,
            Err(NotAllocated::EmptyRange) => {}
            Err(NotAllocated::SubscriberLimit) => self.counts.subscriber_limit += 1,
            Err(NotAllocated::Exhausted) => self.counts.exhausted += 1,
            Err(NotAllocated::Clash) => self.counts.clashes += 1,
            Err(NotAllocated::BurstLimit) => self.counts.burst_limit += 1,
            Err(NotAllocated::NoMemory) => self.counts.no_memory += 1,
        }
        chosen
    }

    /// Releases the address and port of a connection. `range` and `flow` are equal to the arguments of the allocation.
    /// Returns whether the port was used.
    pub fn release(&mut self, range: &Range<A>, flow: &Flow<A>, external: End<A>) -> bool {
        self.end_lease(self.lease(range, flow, external), flow.zone, flow.source.address)
    }

    /// Returns the lease of a port of a range. Returns [`Lease::NONE`] if the range does not have the port.
    #[must_use]
    pub fn lease(&self, range: &Range<A>, flow: &Flow<A>, external: End<A>) -> Lease {
        let of = |number| Lease { set: self.set(range, flow), number };
        range.number_of(external).map_or(Lease::NONE, of)
    }

    /// Releases the port of a lease. Returns whether the port was used. `zone` and `subscriber` are those of the flow.
    pub fn end_lease(&mut self, lease: Lease, zone: u16, subscriber: A) -> bool {
        let Lease { set, number } = lease;
        if lease == Lease::NONE || !self.bitmaps.is_used(set, number) {
            return false;
        }
        self.bitmaps.remove(set, number);
        let subscriber = self.subscriber(zone, subscriber);
        let ports = self.subscribers.get(subscriber).saturating_sub(1);
        // A smaller number never needs a new slot.
        let _ = self.subscribers.set(subscriber, ports);
        self.counts.released += 1;
        true
    }

    /// Chooses the translated destination of a connection from a range. The first choice is a hash of both ends, a hash
    /// of the subscriber if the selection is persistent, or random. If `is_unique` refuses a destination, the next port
    /// is the next choice, and after the last port the next address. Nothing is allocated, because connections of
    /// different sources may have equal destinations.
    ///
    /// # Errors
    /// Returns an error if the range is empty, or if `is_unique` has refused the range or [`OFFERS`] destinations.
    pub fn choose_destination(
        &mut self,
        range: &Range<A>,
        flow: &Flow<A>,
        selection: Selection,
        mut is_unique: impl FnMut(End<A>) -> bool,
    ) -> Result<End<A>, NotAllocated> {
        let (addresses, ports) = (range.addresses(), range.ports());
        if addresses == 0 || ports == 0 {
            return Err(NotAllocated::EmptyRange);
        }
        let hash = if selection.is_persistent { &PERSISTENT } else { &self.hash };
        let (of_flow, of_subscriber) =
            (hash.of(flow_words(flow)), hash.of(subscriber_words(flow.zone, flow.source.address)));
        let is_random = selection.choice == Choice::Random;
        let port = if is_random { self.random() } else { of_flow };
        let address = match (selection.is_persistent, is_random) {
            (true, _) => of_subscriber,
            (false, true) => self.random(),
            // The upper bits of the hash select the port.
            (false, false) => of_flow.rotate_left(32),
        };
        let (first, count) = (scale(address, addresses) * ports + scale(port, ports), addresses * ports);
        let most = self.offers;
        self.within_burst(|_, offered| {
            let mut offers = (0..count.min(most.into())).map(|step| range.end((first + step) % count));
            let is_accepted = |end: &End<A>| {
                *offered += 1;
                is_unique(*end)
            };
            offers.find(is_accepted).ok_or(NotAllocated::Clash)
        })
    }

    /// Calls `search`, unless searches of the burst have failed after [`FAILED_OFFERS`] offers. `search` counts its
    /// offers in its second argument. The offers count toward the limit if the search fails.
    fn within_burst<T>(
        &mut self,
        search: impl FnOnce(&mut Self, &mut u32) -> Result<T, NotAllocated>,
    ) -> Result<T, NotAllocated> {
        if self.failed_offers >= FAILED_OFFERS {
            return Err(NotAllocated::BurstLimit);
        }
        let mut offered = 0;
        let found = search(self, &mut offered);
        if found.is_err() {
            self.failed_offers = self.failed_offers.saturating_add(offered);
        }
        found
    }

    /// Chooses a free port and marks the port as used.
    fn choose(
        &mut self,
        range: &Range<A>,
        flow: &Flow<A>,
        selection: Selection,
        is_unique: &mut impl FnMut(End<A>) -> bool,
    ) -> Result<End<A>, NotAllocated> {
        let (addresses, ports) = (range.addresses(), range.ports());
        if addresses == 0 || ports == 0 {
            return Err(NotAllocated::EmptyRange);
        }
        let subscriber = self.subscriber(flow.zone, flow.source.address);
        if self.subscribers.get(subscriber) >= self.subscriber_limit {
            return Err(NotAllocated::SubscriberLimit);
        }
        let set = self.set(range, flow);
        let hash = if selection.is_persistent { &PERSISTENT } else { &self.hash };
        // The numbers of the ports of the subscriber's address begin with `begin`, and end before `end`.
        let begin = scale(hash.of(subscriber_words(flow.zone, flow.source.address)), addresses) * ports;
        let end = begin + ports;
        if selection.choice == Choice::Keep
            && let Some(kept) = u64::from(flow.source.port).checked_sub(range.first_port.into())
            && kept < ports
            && !self.bitmaps.is_used(set, begin + kept)
            && is_unique(range.end(begin + kept))
        {
            return self.take(range, set, subscriber, begin + kept);
        }
        let number = match selection.choice {
            Choice::Hashed => hash.of(flow_words(flow)),
            Choice::Keep | Choice::Random => self.random(),
        };
        let first = begin + scale(number, ports);
        let mut offers = 0;
        // The ports of the subscriber's address come first, then the ports of the other addresses.
        let mut parts = [(first, end), (begin, first), (end, addresses * ports), (0, begin)];
        if ports > self.offers.into() {
            // The address has more ports than are offered, so the offers are at random places.
            let (limit, mut from) = (if addresses > 1 { self.offers / 2 } else { self.offers }, first);
            while let Some(free) = self.find_free_around(set, from, begin, end) {
                if is_unique(range.end(free)) {
                    return self.take(range, set, subscriber, free);
                }
                offers += 1;
                if offers >= limit {
                    break;
                }
                from = match selection.choice {
                    _ if offers % RUN != 0 => free + 1,
                    Choice::Hashed => begin + scale(PERSISTENT.of([number, offers.into()]), ports),
                    Choice::Keep | Choice::Random => begin + scale(self.random(), ports),
                };
            }
            parts[..2].fill((0, 0));
        }
        for (mut from, end) in parts {
            while let Some(free) = self.bitmaps.find_free(set, from, end) {
                if is_unique(range.end(free)) {
                    return self.take(range, set, subscriber, free);
                }
                offers += 1;
                if offers >= self.offers {
                    return Err(NotAllocated::Clash);
                }
                from = free + 1;
            }
        }
        Err(if offers == 0 { NotAllocated::Exhausted } else { NotAllocated::Clash })
    }

    /// Returns the first free number from `from` on, or from `begin` on. The number is less than `end`.
    fn find_free_around(&mut self, set: u64, from: u64, begin: u64, end: u64) -> Option<u64> {
        let found = self.bitmaps.find_free(set, from, end);
        found.or_else(|| self.bitmaps.find_free(set, begin, end))
    }

    /// Marks a free port as used by a subscriber, and returns the port.
    fn take(
        &mut self,
        range: &Range<A>,
        set: u64,
        subscriber: u64,
        number: u64,
    ) -> Result<End<A>, NotAllocated> {
        self.bitmaps.insert(set, number).map_err(|_| NotAllocated::NoMemory)?;
        let ports = self.subscribers.get(subscriber) + 1;
        if self.subscribers.set(subscriber, ports).is_err() {
            self.bitmaps.remove(set, number);
            return Err(NotAllocated::NoMemory);
        }
        Ok(range.end(number))
    }

    /// Returns the key of the set of used ports for a range and a remote end.
    fn set(&self, range: &Range<A>, flow: &Flow<A>) -> u64 {
        let ports = u64::from(range.first_port) << 16 | u64::from(range.last_port);
        let kind = u64::from(flow.zone) << 24 | u64::from(flow.remote_port()) << 8 | u64::from(flow.protocol);
        let [a, b] = words(range.first_address);
        let [c, d] = words(range.last_address);
        let [e, f] = words(flow.remote.address);
        self.hash.of([a, b, c, d, e, f, ports, kind])
    }

    /// Returns the key of a subscriber.
    fn subscriber(&self, zone: u16, address: A) -> u64 {
        self.hash.of(subscriber_words(zone, address))
    }

    /// Returns a random number. A receiver of packets cannot derive the next number from the earlier ones, because the
    /// numbers are a keyed pseudo-random function of a counter (SipHash).
    fn random(&mut self) -> u64 {
        self.randoms += 1;
        self.random.hash_one(self.randoms)
    }
}

/// Returns the words of the hash of a subscriber.
fn subscriber_words<A: Address>(zone: u16, address: A) -> [u64; 3] {
    let [high, low] = words(address);
    [high, low, zone.into()]
}

/// Returns the words of the hash of both ends.
fn flow_words<A: Address>(flow: &Flow<A>) -> [u64; 5] {
    let [a, b] = words(flow.source.address);
    let [c, d] = words(flow.remote.address);
    let kind =
        u64::from(flow.source.port) << 24 | u64::from(flow.remote_port()) << 8 | u64::from(flow.protocol);
    [a, b, c, d, kind]
}

/// Returns the two halves of an address.
#[allow(clippy::cast_possible_truncation, reason = "takes the two halves apart")]
fn words<A: Address>(address: A) -> [u64; 2] {
    let bits: u128 = address.into();
    [(bits >> 64) as u64, bits as u64]
}

/// Reduces a hash to a number less than `count`.
#[allow(clippy::cast_possible_truncation, reason = "the upper half of the product is less than the count")]
fn scale(hash: u64, count: u64) -> u64 {
    ((u128::from(hash) * u128::from(count)) >> 64) as u64
}
