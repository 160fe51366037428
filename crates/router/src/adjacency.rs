//! Adjacencies: the next hops (neighbours and links) to which packets are forwarded, each with its kernel device,
//! router interface and link-layer address.
//!
//! An adjacency number exists for each gateway of a route and each known neighbour (a pair of kernel device and IP
//! address), and for each device with on-link destinations. Paths refer to these numbers. A change of a neighbour's
//! link-layer address therefore needs only one write, however many routes use the neighbour. The adjacency of an
//! on-link destination is found in a hash table, by its device and address.
//!
//! ```text
//!   path ──number──► words: link-layer address, interface │ on the link: (device, destination) ──buckets──► number
//! ```
//!
//! Readers load a link-layer address as one word. While the address changes, a reader gets either the old or the new
//! address. A freed number is reused only after all readers have stopped using it. Number 0 means no adjacency. Routes
//! for which there was no space refer to number 0, and their packets are punted to the kernel.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use packet::MacAddr;
use sync::counter::{CounterArray, Row};
use sync::qsbr::Domain;
use sync::readers::{GracePeriods, Readers};

use crate::address_bits::{bits_of, halves};
use crate::adjacency_number::{MOST, place};
use crate::link_hash::LinkHash;
use crate::mirror::{NeighbourMirror, Neighbours};

/// Reserved interface number for a kernel device that is not an interface of the router.
pub const FOREIGN: u16 = u16::MAX;

const MAC_BITS: u64 = (1 << 48) - 1;
/// Flag in the first data word of an adjacency: the link-layer address is valid.
const RESOLVED: u64 = 1 << 48;
/// Flag in the first data word of an adjacency: the adjacency represents the on-link destinations of a device.
const ON_LINK: u64 = 1 << 49;

/// Key of an adjacency: index of the kernel device and IP address of the neighbour. The address is `None` for the
/// on-link destinations of the device.
type Key = (u32, Option<IpAddr>);

/// Maximum number of router interfaces whose kernel device is stored for workers.
const INTERFACES: usize = 4096;
/// Value in [`Shared::devices`] for an interface that has no kernel device.
const NO_DEVICE: u32 = 0;

/// A next hop of a route: the kernel device and the gateway to which packets are sent, and the weight of the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NextHop {
    /// Index of the kernel device through which packets are sent.
    pub interface: u32,
    /// IP address of the gateway. The gateway may belong to another address family than the route. The value is `None`
    /// if the destinations of the route are on the link itself.
    pub gateway: Option<IpAddr>,
    /// Weight of the next hop, at least 1. The next hop gets a share of the path's flows in proportion to its weight.
    pub weight: u16,
}

/// The entry of the kernel's neighbour table for the source IP address of a packet, compared with the packet's source
/// MAC address ([`AdjacencyView::knows`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquaintance {
    /// The neighbour table contains the source IP address with the source MAC address of the packet.
    Known,
    /// The kernel is resolving the source IP address with ARP or neighbour discovery, and holds packets to this address
    /// until the resolution ends.
    Asked,
    /// The neighbour table does not contain the source IP address, or contains it with another MAC address.
    Unknown,
}

/// The data of an adjacency that workers need to send a packet.
#[derive(Clone, Copy, Debug)]
pub struct Adjacency {
    word: u64,
    place: u64,
}

impl Adjacency {
    /// Returns whether the adjacency represents the on-link destinations of a device. If so, the adjacency of the
    /// destination itself must be looked up ([`AdjacencyView::find`]).
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

    /// Returns the neighbour's link-layer address as a word: the first octet is in the lowest bits, and the two highest
    /// octets are zero. Returns 0 if the address is not known.
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

    /// Returns the number of the router interface that leads to the neighbour. Returns [`FOREIGN`] if the kernel device
    /// is not an interface of the router.
    #[inline]
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "a field of the word")]
    pub fn interface(self) -> u16 {
        self.place as u16
    }

    /// Returns the router interface through which packets to the neighbour are sent. Returns `None` if the adjacency
    /// represents on-link destinations, if the neighbour's link-layer address is not known, or if the kernel device is
    /// not an interface of the router.
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

/// Number of entries of a hash bucket. The entries fill one cache line.
const PLACES: usize = 16;

/// A bucket of the hash table of on-link neighbours. Each entry contains the neighbour's adjacency number (24 bits) and
/// 8 bits of the hash of the neighbour's device and address. An entry of 0 is free.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU32; PLACES]);

/// The adjacency tables and counters that the writer shares with readers.
#[derive(Debug)]
struct Shared {
    /// The two data words of each adjacency ([`Adjacency`]), by adjacency number. The first word holds the flags and
    /// the link-layer address. The second word holds the device and the interface number.
    words: Box<[[AtomicU64; 2]]>,
    /// Device and address of each adjacency, by adjacency number.
    keys: Box<[[AtomicU64; 3]]>,
    buckets: Box<[Bucket]>,
    /// Hash function that selects the two buckets of an on-link address.
    hash: LinkHash,
    /// Counters of packets and bytes sent, by adjacency number.
    counts: CounterArray,
    /// Kernel device index of each interface, by interface number. [`NO_DEVICE`] represents an interface without a
    /// device.
    devices: Box<[AtomicU32]>,
}

/// Read access to the adjacencies of a router, for workers. Clones share the same tables.
#[derive(Clone, Debug)]
pub struct AdjacencyView(Arc<Shared>);

/// Returns the bucket entry for an adjacency: its number, and a part of the hash of its device and address. The entry
/// is 0 only if the number is 0.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "takes eight bits")]
fn tagged(hash: u64, number: u32) -> u32 {
    hash as u32 & 0xff00_0000 | number
}

impl Shared {
    /// Returns the two buckets of the hash table that may contain a neighbour whose device and address have this hash.
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

impl AdjacencyView {
    /// Returns the data of the adjacency with the number `number`.
    #[inline]
    #[must_use]
    pub fn read(&self, number: u32) -> Adjacency {
        let Some([word, to]) = self.0.words.get(place(number)) else {
            return Adjacency { word: 0, place: u64::from(FOREIGN) };
        };
        Adjacency { word: word.load(Ordering::Relaxed), place: to.load(Ordering::Relaxed) }
    }

    /// Returns the number of the adjacency for an IP address on the link of a kernel device. Returns 0 if there is no
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

    /// Checks whether the kernel's neighbour table assigns the MAC address `station` to the IP address `address` on an
    /// interface. Both are source addresses of one packet.
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

    /// Returns the packet and byte counters of a worker. Only this worker may use the counters.
    #[inline]
    #[must_use]
    pub fn counts(&self, worker: usize) -> Counts<'_> {
        Counts(self.0.counts.row(worker))
    }
}

/// The counters of one worker: packets and bytes sent to each adjacency, by adjacency number.
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

/// Record of an adjacency in use, for the thread that changes the adjacencies.
#[derive(Debug)]
struct Used {
    number: u32,
    /// Number of next hops, over all paths, that refer to the adjacency.
    next_hops: usize,
    /// Whether the adjacency represents a neighbour whose link-layer address is known.
    known: bool,
    /// Whether the adjacency is in the hash buckets, so that readers can find it by its device and address.
    found: bool,
    /// Packet and byte counts of the adjacency's number at the time when the adjacency was created. Earlier adjacencies
    /// with this number have caused these counts, which are therefore subtracted for display.
    before: (u64, u64),
}

/// The state of an adjacency, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdjacencyUse {
    /// Index of the kernel device through which packets to the neighbour are sent.
    pub device: u32,
    /// IP address of the neighbour. The value is `None` for the on-link destinations of a device.
    pub address: Option<IpAddr>,
    /// Link-layer address of the neighbour, if known.
    pub mac: Option<MacAddr>,
    /// Number of next hops, over all paths, that refer to the adjacency.
    pub next_hops: usize,
    /// Number of packets sent to the neighbour.
    pub packets: u64,
    /// Number of bytes sent to the neighbour, counted from the Ethernet header on.
    pub bytes: u64,
}

/// The adjacencies of a router. Only the one thread that changes the adjacencies uses this type, and workers use
/// [`AdjacencyView`]. All routing tables of the router share the adjacencies.
pub struct Adjacencies {
    shared: Arc<Shared>,
    readers: Readers,
    mirror: Option<Neighbours>,
    used: HashMap<Key, Used>,
    by_number: HashMap<u32, Key>,
    /// Number of the router's interface on each kernel device, by device index.
    interfaces: HashMap<u32, u16>,
    free: Vec<u32>,
    leaving: VecDeque<(GracePeriods, u32)>,
    /// Known neighbours for which there was no space, with their link-layer addresses.
    waiting: BTreeMap<Key, MacAddr>,
    /// Number of adjacencies that have been created so far.
    created: u64,
    refused: u64,
}

impl Adjacencies {
    /// Creates an empty table of adjacencies with space for `limit` entries (at most [`MOST`]) and counters for
    /// `workers` workers. The threads that read the table register with `domain`.
    #[must_use]
    pub fn new(domain: &Arc<Domain>, limit: u32, workers: usize) -> Adjacencies {
        Adjacencies::made(&Readers::of(domain), limit, workers, None, LinkHash::new())
    }

    /// Creates a table like [`Adjacencies::new`], and also copies the neighbours to `mirror`, a table that BPF programs
    /// read. `mirror` has space for `limit` adjacencies and for number 0.
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
            waiting: BTreeMap::new(),
            created: 0,
            refused: 0,
        }
    }

    /// Returns a handle through which workers read the adjacencies.
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

    /// Returns how often the creation of an adjacency failed because the table or the hash buckets of its address were
    /// full. The kernel forwards the packets of the affected routes.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the kernel device and the neighbour's IP address of the adjacency with this number. The address is
    /// `None` if the adjacency represents on-link destinations. Returns `None` if the number is not in use.
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
                next_hops: used.next_hops,
                packets: packets.wrapping_sub(used.before.0),
                bytes: bytes.wrapping_sub(used.before.1),
            }
        })
    }

    /// Sets the link-layer address of the neighbour with the IP address `address` on a kernel device. A `mac` of `None`
    /// means that the link-layer address is no longer known. A neighbour for which there is no space is added later
    /// ([`Adjacencies::retry`]).
    pub fn resolve(&mut self, device: u32, address: IpAddr, mac: Option<MacAddr>) {
        let key = (device, Some(address));
        match mac {
            Some(mac) => {
                let Some(number) = self.number(key) else {
                    self.waiting.insert(key, mac);
                    return;
                };
                if let Some(used) = self.used.get_mut(&key) {
                    used.known = true;
                }
                self.write(number, mac.to_wire_word() | RESOLVED);
            }
            None => {
                self.waiting.remove(&key);
                let Some(used) = self.used.get_mut(&key) else { return };
                used.known = false;
                let number = used.number;
                self.write(number, 0);
                self.release(key);
            }
        }
    }

    /// Returns the number of known neighbours that have no adjacency because the table is full.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether some freed adjacency numbers cannot be reused yet because readers may still use these numbers.
    #[must_use]
    pub fn is_freeing(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Returns whether the table has space for another adjacency.
    pub(crate) fn has_room(&mut self) -> bool {
        self.collect();
        !self.free.is_empty()
    }

    /// Returns the number of adjacencies that have been created so far.
    pub(crate) fn created(&self) -> u64 {
        self.created
    }

    /// Tries again to create adjacencies for the known neighbours for which the table was full.
    pub fn retry(&mut self) {
        while !self.waiting.is_empty() && self.has_room() {
            let Some(((device, address), mac)) = self.waiting.pop_first() else { return };
            if let Some(address) = address {
                self.resolve(device, address, Some(mac));
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

    /// Returns the number of the adjacency of a next hop, and counts one more reference to the adjacency. Returns 0 if
    /// there is no space for the adjacency.
    pub(crate) fn take(&mut self, hop: &NextHop) -> u32 {
        let key = (hop.interface, hop.gateway);
        let Some(number) = self.number(key) else { return 0 };
        if let Some(used) = self.used.get_mut(&key) {
            used.next_hops += 1;
        }
        number
    }

    /// Releases one reference to the adjacency with this number.
    pub(crate) fn give_back(&mut self, number: u32) {
        let Some(key) = self.by_number.get(&number).copied() else { return };
        if let Some(used) = self.used.get_mut(&key) {
            used.next_hops -= 1;
        }
        self.release(key);
    }

    /// Makes the freed numbers available that no reader uses any more. If there is no such number and no other free
    /// number, waits until external readers (BPF programs) have stopped using a freed number, unless waiting is
    /// disabled for this writer ([`Readers::without_waiting`]).
    fn collect(&mut self) {
        while let Some((ticket, number)) = self.leaving.front().copied() {
            if self.free.is_empty() {
                // There is no wait for workers: a worker reaches the end of the grace period soon, or, if it does not
                // run, never. External readers reach it within milliseconds.
                self.readers.wait_for_strangers(ticket);
            }
            if !self.readers.are_past(ticket) {
                break;
            }
            self.leaving.pop_front();
            self.free.push(number);
        }
    }

    fn number(&mut self, key: Key) -> Option<u32> {
        if let Some(used) = self.used.get(&key) {
            return Some(used.number);
        }
        self.collect();
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
        // A neighbour that has waited for space is known.
        let mac = self.waiting.remove(&key);
        let unknown = if address.is_none() { ON_LINK } else { 0 };
        self.write(number, mac.map_or(unknown, |mac| mac.to_wire_word() | RESOLVED));
        self.place(number, device);
        let found = address.is_some() && self.enter(number, self.shared.hash(device, bits));
        if let (Some(mirror), Some(address)) = (&self.mirror, address) {
            mirror.enter(number, device, address);
        }
        let used = Used { number, next_hops: 0, known: mac.is_some(), found, before: self.counted(number) };
        self.used.insert(key, used);
        self.by_number.insert(number, key);
        self.created += 1;
        Some(number)
    }

    /// Adds an adjacency to the hash buckets. Readers find the adjacency there by its device and address. Returns false
    /// if both buckets of the address are full.
    fn enter(&mut self, number: u32, hash: u64) -> bool {
        let homes = self.shared.homes(hash);
        let free = homes.iter().flat_map(|home| &home.0).find(|entry| entry.load(Ordering::Relaxed) == 0);
        match free {
            Some(entry) => entry.store(tagged(hash, number), Ordering::Release),
            None => self.refused += 1,
        }
        free.is_some()
    }

    /// Frees the number of an adjacency if no next hop refers to it and its link-layer address is not known.
    fn release(&mut self, key: Key) {
        let Some(used) = self.used.get(&key).filter(|used| used.next_hops == 0 && !used.known) else {
            return;
        };
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
mod tests;
