//! Adjacencies: the next hops that packets are sent to, with the data needed to send.
//!
//! Each pair of device and address that a route names as its gateway, or that is a known neighbour, has an
//! adjacency number. Each device with on-link destinations has an adjacency number, too. Paths refer to these
//! numbers. A change of a neighbour's link-layer address therefore costs one write for all its routes.
//! On-link destinations are found by a hash of their address.
//!
//! ```text
//!   path ──number──► words: link-layer address, interface │ on the link: (device, destination) ──buckets──► number
//! ```
//!
//! Readers load whole words. While an address changes, a reader therefore sees either the old or the new one.
//! A freed number is reused only after all readers have released it. Number 0 stands for no neighbour. Routes
//! for which there was no space refer to number 0, and their packets are punted to the kernel.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use packet::MacAddr;
use sync::counter::{CounterArray, Row};
use sync::qsbr::Domain;
use sync::readers::{Readers, Ticket};

use crate::link_hash::LinkHash;
use crate::mirror::{NeighbourMirror, Neighbours};
use crate::paths::Way;

/// Maximum number of adjacencies. Adjacency numbers have 24 bits.
pub const MOST: u32 = (1 << 24) - 1;
/// Interface number of a kernel device that is not an interface of the router.
pub const FOREIGN: u16 = u16::MAX;

const MAC_BITS: u64 = (1 << 48) - 1;
/// Flag of an adjacency's word: the link-layer address is valid.
const RESOLVED: u64 = 1 << 48;
/// Flag of an adjacency's word: the adjacency stands for the on-link destinations of a device.
const ON_LINK: u64 = 1 << 49;

/// The key of an adjacency: the kernel device, and the address of the neighbour. The address is `None` for
/// the on-link destinations of the device.
type Key = (u32, Option<IpAddr>);

/// Maximum number of interfaces whose devices readers can look up.
const INTERFACES: usize = 4096;
/// Device index that stands for no device.
const NO_DEVICE: u32 = 0;

/// The router's knowledge of a station that claims an address on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquaintance {
    /// The address belongs to the station, according to the kernel's neighbour table.
    Known,
    /// The kernel is resolving the address. Packets to the address wait in the kernel.
    Asked,
    /// The address belongs to another station, or no neighbour with the address is known.
    Unknown,
}

/// An adjacency as seen by readers.
#[derive(Clone, Copy, Debug)]
pub struct Adjacency {
    word: u64,
    place: u64,
}

impl Adjacency {
    /// Returns whether the adjacency stands for the on-link destinations of a device. If so, the adjacency of
    /// the destination itself must be looked up ([`AdjacencyView::find`]).
    #[inline]
    #[must_use]
    pub fn is_on_link(self) -> bool {
        self.word & ON_LINK != 0
    }

    /// Returns whether the neighbour's link-layer address is known.
    #[inline]
    #[must_use]
    pub fn is_resolved(self) -> bool {
        self.word & RESOLVED != 0
    }

    /// Returns the neighbour's link-layer address in the layout of a frame's first word: the first octet is
    /// lowest, and the bits above the sixth octet are zero. Returns 0 if the address is not known.
    #[inline]
    #[must_use]
    pub fn wire_word(self) -> u64 {
        self.word & MAC_BITS
    }

    /// Returns the neighbour's link-layer address. Returns `None` if the address is not known.
    #[inline]
    #[must_use]
    pub fn mac(self) -> Option<MacAddr> {
        let [a, b, c, d, e, f, ..] = self.word.to_le_bytes();
        (self.word & RESOLVED != 0).then_some(MacAddr([a, b, c, d, e, f]))
    }

    /// Returns the interface of the neighbour. Returns [`FOREIGN`] if the device is not an interface of the
    /// router.
    #[inline]
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "a field of the word")]
    pub fn interface(self) -> u16 {
        self.place as u16
    }

    /// Returns the interface by which packets to the neighbour are sent. Returns `None` unless the adjacency
    /// is a single resolved neighbour on an interface of the router.
    #[inline(always)]
    #[must_use]
    pub fn leaves_by(self) -> Option<u16> {
        let interface = self.interface();
        (self.word & (RESOLVED | ON_LINK) == RESOLVED && interface != FOREIGN).then_some(interface)
    }

    /// Returns the index of the kernel device that leads to the neighbour.
    #[inline]
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "a field of the word")]
    pub fn device(self) -> u32 {
        (self.place >> 32) as u32
    }
}

/// Number of entries of a hash bucket, which is one cache line.
const PLACES: usize = 16;

/// A hash bucket. Each entry holds an adjacency number (24 bits) and a part of the key's hash (8 bits). An
/// entry of 0 is free.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU32; PLACES]);

/// The adjacency tables and counters that the writer shares with readers.
#[derive(Debug)]
struct Shared {
    /// Words of each adjacency ([`Adjacency`]), by adjacency number.
    words: Box<[[AtomicU64; 2]]>,
    /// Device and address of each adjacency, by adjacency number.
    keys: Box<[[AtomicU64; 3]]>,
    buckets: Box<[Bucket]>,
    /// Hash function of the buckets' keys.
    hash: LinkHash,
    /// Counters of packets and bytes sent, by adjacency number.
    counts: CounterArray,
    /// Kernel device index of each interface, by interface number. [`NO_DEVICE`] stands for an interface
    /// without a device.
    devices: Box<[AtomicU32]>,
}

/// The workers' view of the adjacencies of a router. Clones share the same tables.
#[derive(Clone, Debug)]
pub struct AdjacencyView(Arc<Shared>);

/// Returns an address of either family as 128 bits (IPv4 mapped as in RFC 4291, 2.5.5.2).
#[must_use]
pub fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => mapped(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Returns an IPv4 address as 128 bits, mapped as in RFC 4291, 2.5.5.2.
#[inline]
#[must_use]
pub fn mapped(address: u32) -> u128 {
    0xffff_0000_0000 | u128::from(address)
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "the halves of 128 bits")]
pub fn halves(address: u128) -> (u64, u64) {
    ((address >> 64) as u64, address as u64)
}

/// Returns the bucket entry of an adjacency, which holds its number and a part of its key's hash. The entry
/// is not 0 unless the number is 0.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "takes eight bits")]
fn tagged(hash: u64, number: u32) -> u32 {
    hash as u32 & 0xff00_0000 | number
}

impl Shared {
    /// Returns the two buckets that may hold a key with this hash.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "a mask leaves less")]
    fn homes(&self, hash: u64) -> [&Bucket; 2] {
        let mask = self.buckets.len() - 1;
        [&self.buckets[hash as usize & mask], &self.buckets[(hash >> 32) as usize & mask]]
    }

    #[inline]
    fn hash(&self, device: u32, address: u128) -> u64 {
        let (high, low) = halves(address);
        self.hash.of(device, high, low)
    }

    #[inline]
    fn is(&self, number: u32, device: u32, address: u128) -> bool {
        let (high, low) = halves(address);
        self.keys.get(place(number)).is_some_and(|[a, b, c]| {
            a.load(Ordering::Relaxed) == u64::from(device)
                && b.load(Ordering::Relaxed) == high
                && c.load(Ordering::Relaxed) == low
        })
    }
}

#[inline]
pub fn place(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl AdjacencyView {
    /// Returns the adjacency that has this number.
    #[inline]
    #[must_use]
    pub fn read(&self, number: u32) -> Adjacency {
        let Some([word, to]) = self.0.words.get(place(number)) else {
            return Adjacency { word: 0, place: u64::from(FOREIGN) };
        };
        Adjacency { word: word.load(Ordering::Relaxed), place: to.load(Ordering::Relaxed) }
    }

    /// Returns the number of the adjacency for an address on the link of a device. Returns 0 if there is no
    /// such adjacency.
    #[inline]
    #[must_use]
    pub fn find(&self, device: u32, address: u128) -> u32 {
        let hash = self.0.hash(device, address);
        for home in self.0.homes(hash) {
            for entry in &home.0 {
                let entry = entry.load(Ordering::Acquire);
                let number = entry & MOST;
                if entry == tagged(hash, number) && number != 0 && self.0.is(number, device, address) {
                    return number;
                }
            }
        }
        0
    }

    /// Returns the router's knowledge of the station with the MAC address `station`, which claims `address`
    /// on the link of an interface.
    #[must_use]
    pub fn knows(&self, interface: u16, address: u128, station: MacAddr) -> Acquaintance {
        let device =
            self.0.devices.get(usize::from(interface)).map_or(NO_DEVICE, |at| at.load(Ordering::Relaxed));
        let number = if device == NO_DEVICE { 0 } else { self.find(device, address) };
        let adjacency = self.read(number);
        match adjacency.mac() {
            _ if number == 0 => Acquaintance::Unknown,
            Some(known) if known == station => Acquaintance::Known,
            Some(_) => Acquaintance::Unknown,
            None => Acquaintance::Asked,
        }
    }

    /// Returns the counters of a worker. Only this worker may use them.
    #[inline]
    #[must_use]
    pub fn counts(&self, worker: usize) -> Counts<'_> {
        Counts(self.0.counts.row(worker))
    }
}

/// The counters of one worker: packets and bytes sent, by adjacency number.
#[derive(Clone, Copy, Debug)]
pub struct Counts<'a>(Row<'a>);

impl Counts<'_> {
    /// Adds packets and bytes that were sent to a neighbour to the counters of the neighbour's adjacency.
    #[inline(always)]
    pub fn add(&self, number: u32, packets: u64, bytes: u64) {
        let at = place(number) * 2;
        self.0.add(at, packets);
        self.0.add(at + 1, bytes);
    }
}

impl fmt::Debug for Adjacencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adjacencies").field("used", &self.used.len()).finish_non_exhaustive()
    }
}

/// The writer's record of an adjacency in use.
#[derive(Debug)]
struct Used {
    number: u32,
    /// Number of next hops, over all paths, that refer to the adjacency.
    ways: usize,
    /// Whether the adjacency is a neighbour whose link-layer address is known.
    known: bool,
    /// Whether readers can find the adjacency by its address in the hash buckets.
    found: bool,
    /// Packets and bytes that were counted for earlier adjacencies with this number.
    before: (u64, u64),
}

/// The state of an adjacency, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdjacencyUse {
    /// Index of the kernel's device.
    pub device: u32,
    /// Address of the neighbour. The value is `None` for the on-link destinations of a device.
    pub address: Option<IpAddr>,
    /// Link-layer address, if known.
    pub mac: Option<MacAddr>,
    /// Number of next hops, over all paths, that refer to the adjacency.
    pub ways: usize,
    /// Number of packets sent to the adjacency.
    pub packets: u64,
    /// Number of bytes sent to the adjacency, counted from the Ethernet header on.
    pub bytes: u64,
}

/// The writer of the adjacencies, one for all tables of a router.
pub struct Adjacencies {
    shared: Arc<Shared>,
    readers: Readers,
    mirror: Option<Neighbours>,
    used: HashMap<Key, Used>,
    by_number: HashMap<u32, Key>,
    /// Interface number of the router for each kernel device.
    interfaces: HashMap<u32, u16>,
    free: Vec<u32>,
    leaving: VecDeque<(Ticket, u32)>,
    refused: u64,
}

impl Adjacencies {
    /// Creates an empty set with space for `limit` adjacencies (at most [`MOST`]) and counters for `workers`
    /// workers. Readers register with `domain`.
    #[must_use]
    pub fn new(domain: &Arc<Domain>, limit: u32, workers: usize) -> Adjacencies {
        Adjacencies::made(&Readers::of(domain), limit, workers, None, LinkHash::new())
    }

    /// Like [`Adjacencies::new`], with a mirror. The mirror has space for `limit` adjacencies and for number
    /// 0.
    #[must_use]
    pub fn mirrored(readers: &Readers, limit: u32, workers: usize, mirror: NeighbourMirror) -> Adjacencies {
        Adjacencies::made(readers, limit, workers, Some(Neighbours::new(mirror)), LinkHash::new())
    }

    fn made(
        readers: &Readers,
        limit: u32,
        workers: usize,
        mirror: Option<Neighbours>,
        hash: LinkHash,
    ) -> Adjacencies {
        let limit = limit.min(MOST);
        let numbers = place(limit) + 1;
        let nobody = || [AtomicU64::new(0), AtomicU64::new(u64::from(FOREIGN))];
        // At least half of the entries stay free, so that both buckets of a key are practically never full.
        let buckets = (2 * numbers).div_ceil(PLACES).next_power_of_two();
        let shared = Shared {
            words: (0..numbers).map(|_| nobody()).collect(),
            keys: (0..numbers).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect(),
            buckets: (0..buckets).map(|_| Bucket::default()).collect(),
            hash,
            counts: CounterArray::new(workers, 2 * numbers),
            devices: (0..INTERFACES).map(|_| AtomicU32::new(NO_DEVICE)).collect(),
        };
        Adjacencies {
            shared: Arc::new(shared),
            readers: readers.clone(),
            mirror,
            used: HashMap::new(),
            by_number: HashMap::new(),
            interfaces: HashMap::new(),
            free: (1..=limit).rev().collect(),
            leaving: VecDeque::new(),
            refused: 0,
        }
    }

    /// Returns the workers' view of the adjacencies.
    #[must_use]
    pub fn view(&self) -> AdjacencyView {
        AdjacencyView(Arc::clone(&self.shared))
    }

    /// Returns the number of adjacencies in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.used.len()
    }

    /// Returns whether no adjacency is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    /// Returns the number of times that an adjacency did not find space. The kernel forwards the packets of
    /// the routes affected.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the device of the adjacency with a number, and its address. The address is `None` if the
    /// adjacency stands for on-link destinations. Returns `None` if the number is not in use.
    #[must_use]
    pub fn leads(&self, number: u32) -> Option<(u32, Option<IpAddr>)> {
        self.by_number.get(&number).copied()
    }

    /// Returns the state of all adjacencies in use.
    pub fn iter(&self) -> impl Iterator<Item = AdjacencyUse> + '_ {
        self.used.iter().map(|((device, address), used)| {
            let (packets, bytes) = self.counted(used.number);
            AdjacencyUse {
                device: *device,
                address: *address,
                mac: AdjacencyView(Arc::clone(&self.shared)).read(used.number).mac(),
                ways: used.ways,
                packets: packets.wrapping_sub(used.before.0),
                bytes: bytes.wrapping_sub(used.before.1),
            }
        })
    }

    /// Sets the link-layer address of the neighbour with `address` on a device. A `mac` of `None` means that
    /// the link-layer address is no longer known.
    pub fn resolve(&mut self, device: u32, address: IpAddr, mac: Option<MacAddr>) {
        let key = (device, Some(address));
        match mac {
            Some(mac) => {
                let Some(number) = self.number(key) else { return };
                if let Some(used) = self.used.get_mut(&key) {
                    used.known = true;
                }
                self.write(number, mac.to_wire_word() | RESOLVED);
            }
            None => {
                let Some(used) = self.used.get_mut(&key) else { return };
                used.known = false;
                let number = used.number;
                self.write(number, 0);
                self.release(key);
            }
        }
    }

    /// Sets the interface of the router that belongs to a kernel device. An `interface` of `None` means that
    /// the device is not an interface of the router.
    pub fn bind(&mut self, device: u32, interface: Option<u16>) {
        let before = match interface {
            Some(interface) => self.interfaces.insert(device, interface),
            None => self.interfaces.remove(&device),
        };
        let of = |interface: u16| self.shared.devices.get(usize::from(interface));
        // Another device may use the interface number by now.
        if let Some(at) = before.and_then(of).filter(|at| at.load(Ordering::Relaxed) == device) {
            at.store(NO_DEVICE, Ordering::Relaxed);
        }
        if let Some(at) = interface.and_then(of) {
            at.store(device, Ordering::Relaxed);
        }
        for ((at, _), used) in &self.used {
            if *at == device {
                self.place(used.number, device);
            }
        }
    }

    /// Returns the number of the adjacency that a next hop leads to, and counts one more reference to it.
    /// Returns 0 if there is no space for the adjacency.
    pub(crate) fn take(&mut self, way: &Way) -> u32 {
        let key = (way.interface, way.gateway);
        let Some(number) = self.number(key) else { return 0 };
        if let Some(used) = self.used.get_mut(&key) {
            used.ways += 1;
        }
        number
    }

    /// Releases one reference to the adjacency with a number.
    pub(crate) fn give_back(&mut self, number: u32) {
        let Some(key) = self.by_number.get(&number).copied() else { return };
        if let Some(used) = self.used.get_mut(&key) {
            used.ways -= 1;
        }
        self.release(key);
    }

    fn number(&mut self, key: Key) -> Option<u32> {
        if let Some(used) = self.used.get(&key) {
            return Some(used.number);
        }
        while let Some((ticket, number)) = self.leaving.front().copied() {
            if self.free.is_empty() {
                // Workers pass it soon or not at all. External readers pass it within milliseconds.
                self.readers.wait_for_strangers(ticket);
            }
            if !self.readers.are_past(ticket) {
                break;
            }
            self.leaving.pop_front();
            self.free.push(number);
        }
        let Some(number) = self.free.pop() else {
            self.refused += 1;
            return None;
        };
        let (device, address) = key;
        let bits = address.map_or(0, bits_of);
        let (high, low) = halves(bits);
        if let Some([a, b, c]) = self.shared.keys.get(place(number)) {
            a.store(u64::from(device), Ordering::Relaxed);
            b.store(high, Ordering::Relaxed);
            c.store(low, Ordering::Relaxed);
        }
        self.write(number, if address.is_none() { ON_LINK } else { 0 });
        self.place(number, device);
        let found = address.is_some() && self.enter(number, self.shared.hash(device, bits));
        if let (Some(mirror), Some(address)) = (&self.mirror, address) {
            mirror.enter(number, device, address);
        }
        let used = Used { number, ways: 0, known: false, found, before: self.counted(number) };
        self.used.insert(key, used);
        self.by_number.insert(number, key);
        Some(number)
    }

    /// Enters an adjacency into the hash buckets, in which readers find it by its address. Returns false if
    /// both buckets are full.
    fn enter(&mut self, number: u32, hash: u64) -> bool {
        let homes = self.shared.homes(hash);
        let free = homes.iter().flat_map(|home| &home.0).find(|entry| entry.load(Ordering::Relaxed) == 0);
        match free {
            Some(entry) => entry.store(tagged(hash, number), Ordering::Release),
            None => self.refused += 1,
        }
        free.is_some()
    }

    /// Frees the number of an adjacency to which nothing refers any more.
    fn release(&mut self, key: Key) {
        let Some(used) = self.used.get(&key).filter(|used| used.ways == 0 && !used.known) else { return };
        let (number, found) = (used.number, used.found);
        if let (true, Some(address)) = (found, key.1) {
            let hash = self.shared.hash(key.0, bits_of(address));
            let entries = self.shared.homes(hash).into_iter().flat_map(|home| &home.0);
            for entry in entries.filter(|entry| entry.load(Ordering::Relaxed) == tagged(hash, number)) {
                entry.store(0, Ordering::Release);
            }
        }
        if let (Some(mirror), Some(address)) = (&self.mirror, key.1) {
            mirror.leave(number, key.0, address);
        }
        self.used.remove(&key);
        self.by_number.remove(&number);
        self.leaving.push_back((self.readers.begin(), number));
    }

    fn write(&self, number: u32, word: u64) {
        if let Some([place, _]) = self.shared.words.get(place(number)) {
            place.store(word, Ordering::Relaxed);
        }
        if let Some(mirror) = &self.mirror {
            mirror.write(number, word);
        }
    }

    fn place(&self, number: u32, device: u32) {
        let interface = self.interfaces.get(&device).copied().unwrap_or(FOREIGN);
        let word = u64::from(device) << 32 | u64::from(interface);
        if let Some([_, at]) = self.shared.words.get(place(number)) {
            at.store(word, Ordering::Relaxed);
        }
        if let Some(mirror) = &self.mirror {
            mirror.place(number, word);
        }
    }

    fn counted(&self, number: u32) -> (u64, u64) {
        let at = place(number) * 2;
        let own = (self.shared.counts.sum(at), self.shared.counts.sum(at + 1));
        let mirror = self.mirror.as_ref();
        let more = mirror.map_or((0, 0), |mirror| mirror.counted(number, self.shared.words.len()));
        (own.0.wrapping_add(more.0), own.1.wrapping_add(more.1))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::link_hash::LINK_SECRETS;

    #[derive(Clone, Debug)]
    enum Step {
        Take(u32, Option<u8>),
        GiveBack(usize),
        Resolve(u32, u8, Option<u8>),
        Bind(u32, Option<u16>),
        Quiescent,
    }

    fn step() -> impl Strategy<Value = Step> {
        let device = 1_u32..4;
        prop_oneof![
            4 => (device.clone(), proptest::option::of(0_u8..6)).prop_map(|(d, a)| Step::Take(d, a)),
            4 => any::<usize>().prop_map(Step::GiveBack),
            4 => (device.clone(), 0_u8..6, proptest::option::of(any::<u8>()))
                .prop_map(|(d, a, mac)| Step::Resolve(d, a, mac)),
            1 => (device, proptest::option::of(0_u16..9)).prop_map(|(d, i)| Step::Bind(d, i)),
            2 => Just(Step::Quiescent),
        ]
    }

    /// Returns an address that ends in `last`: an IPv4 address for even values, and an IPv6 address for odd
    /// ones.
    fn address(last: u8) -> IpAddr {
        if last.is_multiple_of(2) {
            [10, 0, 0, last].into()
        } else {
            [0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)].into()
        }
    }

    fn mac(last: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, last])
    }

    proptest! {
        #[test]
        fn readers_find_whom_the_writer_knows(steps in proptest::collection::vec(step(), 1..200)) {
            let domain = Domain::new();
            let mut reader = domain.register().unwrap();
            // Few enough that numbers run out and are reused.
            let mut all = Adjacencies::new(&domain, 9, 2);
            let view = all.view();
            let mut taken: Vec<(u32, Key)> = Vec::new();
            let mut known = BTreeMap::new();
            let mut bound = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Take(device, last) => {
                        let way = Way { interface: device, gateway: last.map(address), weight: 1 };
                        match all.take(&way) {
                            0 => prop_assert!(all.refused() > 0),
                            number => taken.push((number, (device, way.gateway))),
                        }
                    }
                    Step::GiveBack(nth) if !taken.is_empty() => {
                        let (number, _) = taken.swap_remove(nth % taken.len());
                        all.give_back(number);
                    }
                    Step::GiveBack(_) => {}
                    Step::Resolve(device, last, hardware) => {
                        let before = all.refused();
                        all.resolve(device, address(last), hardware.map(mac));
                        match hardware {
                            Some(hardware) if all.refused() == before => {
                                known.insert((device, Some(address(last))), mac(hardware));
                            }
                            _ => drop(known.remove(&(device, Some(address(last))))),
                        }
                    }
                    Step::Bind(device, interface) => {
                        all.bind(device, interface);
                        bound.insert(device, interface);
                    }
                    Step::Quiescent => reader.quiescent(),
                }
                // Readers find all known or referenced neighbours and no others.
                for (device, last) in (1..4).flat_map(|device| (0..6).map(move |last| (device, last))) {
                    let key = (device, Some(address(last)));
                    let led_to = taken.iter().find(|(_, to)| *to == key).map(|(number, _)| *number);
                    let number = view.find(device, bits_of(address(last)));
                    prop_assert_eq!(number != 0, led_to.is_some() || known.contains_key(&key));
                    prop_assert!(led_to.is_none_or(|led_to| led_to == number));
                    prop_assert_eq!(view.read(number).mac(), known.get(&key).copied());
                    if number != 0 {
                        let interface = bound.get(&device).copied().flatten().unwrap_or(FOREIGN);
                        prop_assert_eq!(view.read(number).interface(), interface);
                        prop_assert_eq!(all.leads(number), Some(key));
                    }
                }
                for (number, (device, address)) in &taken {
                    let adjacency = view.read(*number);
                    prop_assert_eq!((adjacency.is_on_link(), adjacency.device()), (address.is_none(), *device));
                }
                prop_assert_eq!(all.iter().count(), all.len());
            }
        }
    }

    #[test]
    fn who_comes_later_begins_at_nothing() {
        let domain = Domain::new();
        let mut all = Adjacencies::new(&domain, 1, 2);
        let view = all.view();
        all.resolve(3, address(0), Some(mac(1)));
        let number = view.find(3, bits_of(address(0)));
        view.counts(0).add(number, 2, 120);
        view.counts(1).add(number, 1, 60);
        assert_eq!(all.iter().map(|it| (it.packets, it.bytes)).collect::<Vec<_>>(), [(3, 180)]);
        all.resolve(3, address(0), None);
        assert!(all.is_empty() && view.read(number).mac().is_none());
        all.resolve(3, address(1), Some(mac(2)));
        let seen: Vec<AdjacencyUse> = all.iter().collect();
        let [only] = seen.as_slice() else { panic!("{seen:?}") };
        assert_eq!((only.address, only.packets, only.bytes), (Some(address(1)), 0, 0));
    }

    /// A host on the link that knew the secret of the hash could fill all entries that another address may
    /// use. With another secret, the same addresses do not collide.
    #[test]
    fn addresses_that_collide_under_one_secret_do_not_under_another() {
        let known: [u64; LINK_SECRETS] = std::array::from_fn(|nth| 0x9e37_79b9_7f4a_7c15 << nth);
        let domain = Domain::new();
        let table = |hash| Adjacencies::made(&Readers::of(&domain), 1000, 1, None, hash);
        let homes = |all: &Adjacencies, address: u128| {
            let homes = all.shared.homes(all.shared.hash(1, address));
            homes.map(std::ptr::from_ref::<Bucket>)
        };
        let net = 0x2001_0db8_u128 << 96;
        let mut attacked = table(LinkHash::with(known));
        let victim = homes(&attacked, net | 1);
        assert_ne!(victim[0], victim[1]);
        let same = |address: &u128| match homes(&attacked, *address) {
            [one, other] => one != other && victim.contains(&one) && victim.contains(&other),
        };
        let chosen: Vec<u128> = (2..1 << 32).map(|low| net | low).filter(same).take(2 * PLACES).collect();
        assert_eq!(chosen.len(), 2 * PLACES);
        let address = |bits: u128| IpAddr::V6(bits.into());
        let mut safe = table(LinkHash::new());
        for all in [&mut attacked, &mut safe] {
            chosen.iter().for_each(|bits| all.resolve(1, address(*bits), Some(mac(2))));
            all.resolve(1, address(net | 1), Some(mac(1)));
        }
        assert_eq!((attacked.refused(), attacked.view().find(1, net | 1)), (1, 0), "it is kept out");
        assert_eq!(safe.refused(), 0);
        assert!(chosen.iter().chain([&(net | 1)]).all(|bits| safe.view().find(1, *bits) != 0));
    }

    /// Half of the bucket entries are free. Every neighbour therefore finds an entry, even with consecutive
    /// addresses, whatever the secret is.
    #[test]
    fn a_full_table_finds_everybody() {
        for round in 0..20 {
            let domain = Domain::new();
            let mut all = Adjacencies::new(&domain, 20_000, 1);
            for nth in 0..20_001_u32 {
                all.resolve(1, IpAddr::from(nth.to_be_bytes()), Some(mac(1)));
            }
            assert_eq!((all.len(), all.refused()), (20_000, 1), "round {round}");
            let view = all.view();
            assert!((0..20_000).all(|nth| view.find(1, mapped(nth)) != 0), "round {round}");
            assert_eq!(view.find(1, mapped(20_000)), 0, "round {round}");
        }
    }
}
