//! Route tables according to which XDP programs forward packets. The tables of a router are in memory that is shared
//! with the programs of its ports. The crate `router` writes the routes and neighbours. This module creates the tables,
//! and sets the output interfaces of the router.
//!
//! ```text
//!   route_trie4, _trie6 ──path──► route_paths ──► one next hop, or a bucket of route_groups ──► route_nexthops
//!     on-link destination: route_links holds its neighbour                                         │
//!   route_outputs: MAC address, MTU and port of the interface ◄──interface number──────────────────┘
//!     route_devices: the device that frames are redirected to
//! ```

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;
use crate::fib::Takes;
use crate::map_copy::duplicate;
use crate::sys::{self, MapKind, MapSpec, Mapped};

const TRIE4: &str = "route_trie4";
const TRIE6: &str = "route_trie6";
const PATHS: &str = "route_paths";
const GROUPS: &str = "route_groups";
const NEIGHBOURS: &str = "route_nexthops";
const LINKS: &str = "route_links";
const INTERFACES: &str = "route_outputs";
const SWITCH: &str = "route_switch";
const SENT: &str = "route_sent";
const DEVICES: &str = "route_devices";
const COUNTS: &str = "route_counts";
const FRAMES: &str = "route_frames";

/// Size of `struct route_group` (an entry of the table of next hop groups) in bytes. The next five constants are the
/// sizes in bytes of `struct route_neighbour`, `route_line`, `route_interface`, `route_sent` and `route_count`.
pub(crate) const GROUP_SIZE: u32 = 4096;
pub(crate) const NEIGHBOUR_SIZE: u32 = 32;
pub(crate) const LINE_SIZE: u32 = 64;
pub(crate) const INTERFACE_SIZE: u32 = 16;
pub(crate) const SENT_SIZE: u32 = 16;
pub(crate) const COUNT_SIZE: u32 = 32;
/// Size of `struct steer_frame` (the fields that the program reads from a frame) in bytes.
pub(crate) const FRAME_SIZE: u32 = 112;
/// Maximum number of output interfaces of a virtual router: `ROUTE_INTERFACES`.
pub const ROUTE_INTERFACES: u32 = 1024;
/// Maximum number of routed ports of a process: `ROUTE_PORTS`.
pub const ROUTE_PORTS: u32 = 1024;
/// Number of kernel maps for the route tables of a virtual router.
const MAPS: usize = 12;
/// Minimum size of a route trie in 64-bit words. Smaller requests are rounded up.
const WORDS_LEAST: u32 = 1 << 17;
/// Maximum size of a route trie in 64-bit words. A trie of this size takes 1 GiB.
const WORDS_MOST: u32 = 1 << 27;

/// `ROUTE_TAKES`: flag of an output interface to whose device frames can be redirected. `ROUTE_TAKES_MULTI` is the flag
/// for multi-buffer frames. Both flags are in the word with the MAC address.
const TAKES: u64 = 1 << 48;
const TAKES_MULTI: u64 = 1 << 49;
/// `ROUTE_TAG`: number of the lowest bit of the VLAN identifier in the first word of an output interface's table entry.
const TAG: u32 = 52;
/// `ROUTE_WHERE_PORT`: number of the lowest bit of the port number in the second word of an output interface's table
/// entry. `ROUTE_PORT` and `ROUTE_MTU` are the masks of port number and MTU.
const WHERE_PORT: u32 = 20;
const PORT: u64 = 0xfff;
const MTU: u64 = 0xf_ffff;

/// `ROUTE_IPV4` and `ROUTE_IPV6`: address families that the programs forward.
const IPV4: u64 = 1;
const IPV6: u64 = 2;
/// `ROUTE_WATCHED`: all packets of a queue that has a worker go to the worker.
const WATCHED: u64 = 4;
/// `ROUTE_WATCHED_TEST`: the packets of all queues go to the worker. Only test runs have this flag, because they have
/// no worker.
const WATCHED_TEST: u64 = 8;

/// Sizes of a virtual router's route tables for XDP programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerSizes {
    /// Size of the IPv4 route trie in 64-bit words. The size is rounded up to a power of two from 2^17 to 2^27.
    pub words4: u32,
    /// Size of the IPv6 route trie in 64-bit words. The size is rounded up to a power of two from 2^17 to 2^27.
    pub words6: u32,
    /// Number of entries of the path table (from a route to its next hops), including path 0, which means no path.
    pub paths: u32,
    /// Number of entries of the table of next hop groups.
    pub groups: u32,
    /// Number of entries of the neighbour table, including neighbour 0, which means no neighbour.
    pub neighbours: u32,
}

/// An interface of a virtual router through which the XDP program forwards packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerInterface {
    /// Number of the port that the interface is on, below [`ROUTE_PORTS`].
    pub port: u16,
    /// Index of the interface's kernel device, which is the device of the port or of the VLAN on the port.
    pub device: u32,
    /// Ethernet address of the interface.
    pub mac: [u8; 6],
    /// Maximum length of an IP packet on the interface in bytes (MTU).
    pub mtu: u32,
    /// Kinds of frames that can be redirected to the port's device.
    pub takes: Takes,
    /// VLAN identifier in the 802.1Q tag of the interface's frames, 1 to 4094. 0 if the frames are untagged.
    pub vlan: u16,
}

/// Reverse path check of the source addresses of packets (RFC 3704).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sources {
    /// Source addresses are not checked. Every packet passes the check.
    #[default]
    Any,
    /// Strict mode: a route to the source must lead out of the interface that received the packet.
    Strict,
    /// Loose mode: a route to the source must exist and may lead out of any interface.
    Loose,
}

impl Sources {
    /// Returns the mode of the reverse path check as a value of `enum route_sources`.
    pub(crate) const fn word(self) -> u32 {
        match self {
            Sources::Any => 0,
            Sources::Strict => 1,
            Sources::Loose => 2,
        }
    }
}

/// Parameters with which the XDP program of one port forwards packets according to routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerPort {
    /// Number of the port in its process. [`AnswerInterface::port`] contains this number.
    pub number: u16,
    /// Number of the router interface that receives the port's untagged frames (see [`Answers::set_interface`]).
    pub interface: u16,
    /// Reverse path check for packets on all interfaces of the port. The XDP program drops packets that fail
    /// the check.
    pub sources: Sources,
    /// Whether frames received on the port may carry a transport checksum that is not complete yet (checksum offload).
    /// Such frames go to the worker, which completes the checksum.
    pub partial_checksums: bool,
    /// Seed of the flow hash that selects one of several next hops (ECMP). The worker must use the same seed, so that
    /// it selects the same next hop as the XDP program.
    pub seed: u32,
}

/// Numbers of packets and bytes that XDP programs routed from one port and to this port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RouteCounts {
    /// Number of packets that the port received and its XDP program redirected.
    pub rx_packets: u64,
    /// Number of bytes of the packets in `rx_packets`, measured as transmitted.
    pub rx_bytes: u64,
    /// Number of packets that XDP programs redirected to the port's device.
    pub tx_packets: u64,
    /// Number of bytes of the packets in `tx_packets`, measured as transmitted.
    pub tx_bytes: u64,
}

/// Memory of one route table as 64-bit words. XDP programs read the words while the crate `router` writes them.
/// Each word is read and written atomically.
#[derive(Clone)]
pub struct Words(Arc<Mapped>);

impl AsRef<[AtomicU64]> for Words {
    fn as_ref(&self) -> &[AtomicU64] {
        self.0.words()
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Words").field(&self.as_ref().len()).finish()
    }
}

/// Route tables of one virtual router that the XDP programs of all its ports read. With empty tables the programs
/// forward no packets.
#[derive(Debug)]
pub struct Answers {
    maps: Arc<AnswerMaps>,
    /// Memory of the first seven maps in [`AnswerMaps::NAMES`], in that order.
    words: [Words; 7],
    interfaces: Words,
    switch: Words,
}

/// Kernel maps of a virtual router's route tables, in the order of [`AnswerMaps::NAMES`].
#[derive(Debug)]
pub(crate) struct AnswerMaps {
    maps: [OwnedFd; MAPS],
    words4: u32,
    words6: u32,
    lines: u32,
    neighbours: u32,
    secrets: [u64; LINK_SECRETS],
}

/// Number of secret values for two hashes: the hash by which on-link destinations are looked up, and the hash that
/// assigns a flow to one of the buckets with which XDP program and workers keep frames in order. Equal to
/// `ROUTE_LINK_SECRETS` of the BPF programs.
pub const LINK_SECRETS: usize = 12;

/// Decodes, from 32-bit words of a program's constants, the [`LINK_SECRETS`] secret values of the hashes.
pub(crate) fn link_secrets(words: &[u32; 2 * LINK_SECRETS]) -> [u64; LINK_SECRETS] {
    let mut secrets = [0; LINK_SECRETS];
    for (secret, halves) in secrets.iter_mut().zip(words.chunks_exact(2)) {
        let mut bytes = [0; 8];
        for (byte, from) in bytes.iter_mut().zip(halves.iter().flat_map(|half| half.to_ne_bytes())) {
            *byte = from;
        }
        *secret = u64::from_ne_bytes(bytes);
    }
    secrets
}

impl Answers {
    /// Creates the route tables with the given sizes. The memory of all tables is allocated immediately.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn new(sizes: &AnswerSizes) -> Result<Answers, Error> {
        let power = |words: u32| words.clamp(WORDS_LEAST, WORDS_MOST).next_power_of_two();
        let (words4, words6) = (power(sizes.words4), power(sizes.words6));
        // At least half of the slots stay free. The two lines in which an address may be stored are therefore
        // practically never both full.
        let lines = (sizes.neighbours.min(1 << 24) / 4).next_power_of_two();
        let cpus = sys::possible_cpus().map_err(|source| Error::Query { what: "the CPUs", source })?;
        let sent = sizes.neighbours.saturating_mul(cpus);
        let mappable = |name, value, entries| create(name, MapKind::Mappable, value, entries);
        let maps = [
            mappable(TRIE4, words4 * 8, 1)?,
            mappable(TRIE6, words6 * 8, 1)?,
            mappable(PATHS, 8, sizes.paths)?,
            mappable(GROUPS, GROUP_SIZE, sizes.groups)?,
            mappable(NEIGHBOURS, NEIGHBOUR_SIZE, sizes.neighbours)?,
            mappable(LINKS, LINE_SIZE, lines)?,
            mappable(SENT, SENT_SIZE, sent)?,
            mappable(INTERFACES, INTERFACE_SIZE, ROUTE_INTERFACES)?,
            mappable(SWITCH, 8, 1)?,
            create(DEVICES, MapKind::Devices, 4, ROUTE_PORTS)?,
            create(COUNTS, MapKind::PerCpuArray, COUNT_SIZE, ROUTE_PORTS)?,
            create(FRAMES, MapKind::PerCpuArray, FRAME_SIZE, 1)?,
        ];
        // The numbers are secret, because a sender that knows them could choose addresses that occupy all slots for
        // another address.
        let random = RandomState::new();
        let secrets = std::array::from_fn(|nth| random.hash_one(nth));
        let maps = AnswerMaps { maps, words4, words6, lines, neighbours: sizes.neighbours, secrets };
        Answers::over(Arc::new(maps))
    }

    fn over(maps: Arc<AnswerMaps>) -> Result<Answers, Error> {
        let mapped = |at: usize| {
            let map = AnswerMaps::NAMES[at];
            let failed = |source| Error::Map { map, operation: "map", source };
            Mapped::new(maps.maps[at].as_fd()).map(|mapped| Words(Arc::new(mapped))).map_err(failed)
        };
        let words = [mapped(0)?, mapped(1)?, mapped(2)?, mapped(3)?, mapped(4)?, mapped(5)?, mapped(6)?];
        let (interfaces, switch) = (mapped(7)?, mapped(8)?);
        Ok(Answers { maps, words, interfaces, switch })
    }

    fn words(&self, nth: usize) -> Words {
        self.words[nth].clone()
    }

    /// Returns the memory of the IPv4 route trie, which the crate `router` writes.
    #[must_use]
    pub fn four(&self) -> Words {
        self.words(0)
    }

    /// Returns the memory of the IPv6 route trie, which the crate `router` writes.
    #[must_use]
    pub fn six(&self) -> Words {
        self.words(1)
    }

    /// Returns the memory of the path table, which the crate `router` writes.
    #[must_use]
    pub fn paths(&self) -> Words {
        self.words(2)
    }

    /// Returns the memory of the table of next hop groups, which the crate `router` writes.
    #[must_use]
    pub fn groups(&self) -> Words {
        self.words(3)
    }

    /// Returns the memory of the neighbour table, which the crate `router` writes.
    #[must_use]
    pub fn neighbours(&self) -> Words {
        self.words(4)
    }

    /// Returns the memory of the hash table of on-link addresses, which the crate `router` writes.
    #[must_use]
    pub fn links(&self) -> Words {
        self.words(5)
    }

    /// Returns the secret values of the hash with which on-link destinations are looked up. The writer of
    /// [`Answers::links`] needs these values.
    #[must_use]
    pub fn link_secrets(&self) -> [u64; LINK_SECRETS] {
        self.maps.secrets
    }

    /// Returns the memory with the packet and byte counts of each neighbour. The memory holds the
    /// counts of all neighbours on the first CPU, then the counts on the second CPU, and so on.
    #[must_use]
    pub fn sent(&self) -> Words {
        self.words(6)
    }

    /// Enables forwarding according to routes in the XDP programs for each address family, from the next frame on.
    /// Packets of a family that is not enabled go to the worker.
    pub fn answer(&self, ipv4: bool, ipv6: bool) {
        let families = if ipv4 { IPV4 } else { 0 } | if ipv6 { IPV6 } else { 0 };
        self.set(IPV4 | IPV6, families);
    }

    /// Sets whether all packets go to the worker, from the next frame on. The setting is needed while packets are
    /// captured or traced in the workers. A queue without a worker is not affected, so that a router whose daemon was
    /// killed continues to forward.
    pub fn watch(&self, on: bool) {
        self.set(WATCHED, if on { WATCHED } else { 0 });
    }

    /// Replaces the bits in `mask` of the flag word that the XDP programs read (`route_switch`) with `bits`. Another
    /// thread may change other bits of the word at the same time.
    fn set(&self, mask: u64, bits: u64) {
        if let [word] = self.switch.as_ref() {
            word.fetch_and(!mask | bits, Ordering::AcqRel);
            word.fetch_or(bits, Ordering::AcqRel);
        }
    }

    /// Returns whether the XDP programs of queues with a worker forward IPv4 packets, and whether they forward IPv6
    /// packets.
    #[must_use]
    pub fn answers(&self) -> (bool, bool) {
        let word = self.switch.as_ref().first().map_or(0, |word| word.load(Ordering::Acquire));
        let word = if word & WATCHED == 0 { word } else { 0 };
        (word & IPV4 != 0, word & IPV6 != 0)
    }

    /// Sets the output interface with this number. With `None` the XDP programs send no packets to this interface. If
    /// the kernel device of the interface changes, the call waits some milliseconds, during which the XDP programs do
    /// not use the interface. Without this wait, a frame could leave through one of the two devices with the source MAC
    /// address of the other device.
    pub fn set_interface(&self, number: u16, interface: Option<&AnswerInterface>) {
        let at = 2 * usize::from(number);
        let Some([from, to]) = self.interfaces.as_ref().get(at..at + 2) else { return };
        let Some(interface) = interface else { return from.store(0, Ordering::Release) };
        let [a, b, c, d, e, f] = interface.mac;
        let flags = match interface.takes {
            Takes::Nothing => 0,
            Takes::Frames => TAKES,
            Takes::MultiBuffer => TAKES | TAKES_MULTI,
        };
        let tag = u64::from(interface.vlan & 0xfff) << TAG;
        let word = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]) | flags | tag;
        let port = (u64::from(interface.port) & PORT) << WHERE_PORT;
        let place = u64::from(interface.device) << 32 | port | u64::from(interface.mtu).min(MTU);
        let before = to.load(Ordering::Relaxed);
        if before >> WHERE_PORT != place >> WHERE_PORT && before != 0 {
            from.store(0, Ordering::Release);
            sys::wait_for_programs();
        }
        to.store(place, Ordering::Release);
        from.store(word, Ordering::Release);
    }

    /// Sets the device to which XDP programs redirect the frames for port `port`. The device is looked up in the
    /// network namespace of the calling thread. The kernel removes a deleted device from the map.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn set_device(&self, port: u16, device: u32) -> Result<(), Error> {
        sys::map_update(self.maps.get(DEVICES), &u32::from(port).to_ne_bytes(), &device.to_ne_bytes())
            .map_err(|source| Error::Map { map: DEVICES, operation: "add to", source })
    }

    /// Removes the device to which frames for port `port` are redirected.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn clear_device(&self, port: u16) -> Result<(), Error> {
        sys::map_delete(self.maps.get(DEVICES), &u32::from(port).to_ne_bytes())
            .map(drop)
            .map_err(|source| Error::Map { map: DEVICES, operation: "clear", source })
    }

    /// Sets the packet and byte counts of port `port` to 0.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn clear_counts(&self, port: u16) -> Result<(), Error> {
        sys::map_fill_per_cpu(self.maps.get(COUNTS), u32::from(port), &[0; 4]).map_err(|source| Error::Map {
            map: COUNTS,
            operation: "clear",
            source,
        })
    }

    /// Returns the numbers of packets and bytes that XDP programs have routed from and to port `port`.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn counts(&self, port: u16) -> Result<RouteCounts, Error> {
        self.maps.counts(u32::from(port))
    }

    pub(crate) fn maps(&self) -> &Arc<AnswerMaps> {
        &self.maps
    }
}

impl AnswerMaps {
    /// Names of all maps that only a program that forwards packets according to routes has.
    pub const NAMES: [&'static str; MAPS] =
        [TRIE4, TRIE6, PATHS, GROUPS, NEIGHBOURS, LINKS, SENT, INTERFACES, SWITCH, DEVICES, COUNTS, FRAMES];

    pub fn list(&self) -> impl Iterator<Item = (&'static str, BorrowedFd<'_>)> {
        AnswerMaps::NAMES.into_iter().zip(self.maps.iter().map(AsFd::as_fd))
    }

    pub fn secrets(&self) -> &[u64; LINK_SECRETS] {
        &self.secrets
    }

    fn get(&self, name: &str) -> BorrowedFd<'_> {
        let at = AnswerMaps::NAMES.iter().position(|own| *own == name).unwrap_or(0);
        self.maps[at].as_fd()
    }

    /// Returns the words of `struct route_conf` about forwarding according to routes, from the member `answers` on.
    pub fn conf(&self, port: &AnswerPort) -> [u32; 10] {
        let less = |count: u32| count - 1;
        [
            1,
            u32::from(port.partial_checksums),
            u32::from(port.number),
            port.seed,
            less(self.words4),
            less(self.words6),
            less(self.lines),
            self.neighbours,
            u32::from(port.interface),
            port.sources.word(),
        ]
    }

    /// Returns the kernel's id of one of the route table maps. The id identifies the router whose routes a program
    /// reads.
    pub fn id(&self) -> Result<u32, Error> {
        let failed = |source| Error::Map { map: SWITCH, operation: "query", source };
        sys::map_info(self.get(SWITCH)).map(|info| info.id).map_err(failed)
    }

    fn counts(&self, port: u32) -> Result<RouteCounts, Error> {
        let words = sys::map_lookup_per_cpu(self.get(COUNTS), port, 4).map_err(|source| Error::Map {
            map: COUNTS,
            operation: "read",
            source,
        })?;
        let sum = |at: usize| words.iter().skip(at).step_by(4).fold(0, |a: u64, b| a.wrapping_add(*b));
        Ok(RouteCounts { rx_packets: sum(0), rx_bytes: sum(1), tx_packets: sum(2), tx_bytes: sum(3) })
    }

    /// Returns a copy with new counts that refers to the same route tables. A test run with the copy
    /// therefore does not change the counts of the router.
    pub fn scratch(&self) -> Result<AnswerMaps, Error> {
        let one = |(name, map): (&'static str, BorrowedFd<'_>)| match name {
            SENT => {
                let failed = |source| Error::Map { map: SENT, operation: "query", source };
                create(SENT, MapKind::Mappable, SENT_SIZE, sys::map_info(map).map_err(failed)?.max_entries)
            }
            COUNTS => create(COUNTS, MapKind::PerCpuArray, COUNT_SIZE, ROUTE_PORTS),
            SWITCH => {
                let copy = create(SWITCH, MapKind::Mappable, 8, 1)?;
                let word = sys::map_lookup::<8>(map, 0).map(u64::from_ne_bytes);
                let word = word.map_err(|source| Error::Map { map: SWITCH, operation: "read", source })?;
                let word = if word & WATCHED == 0 { word } else { word | WATCHED_TEST };
                sys::map_update(copy.as_fd(), &0_u32.to_ne_bytes(), &word.to_ne_bytes())
                    .map_err(|source| Error::Map { map: SWITCH, operation: "write", source })?;
                Ok(copy)
            }
            name => duplicate(name, &map),
        };
        let maps: Vec<OwnedFd> = self.list().map(one).collect::<Result<_, _>>()?;
        Ok(AnswerMaps { maps: all(maps)?, ..*self })
    }

    /// Returns the number of the port to which a test run redirected its packet, and the table index of the neighbour
    /// (next hop), as the packet counts show them. Returns `None` if no packet was redirected.
    pub fn sent_to(&self) -> Result<Option<(u16, u32)>, Error> {
        let failed = |source| Error::Map { map: SENT, operation: "map", source };
        let sent = Mapped::new(self.get(SENT)).map_err(failed)?;
        let numbers = (0..self.neighbours).cycle();
        let first = sent.words().iter().step_by(2).zip(numbers).find(|(n, _)| n.load(Ordering::Relaxed) > 0);
        let Some((_, neighbour)) = first else { return Ok(None) };
        for port in 0..ROUTE_PORTS {
            if self.counts(port)?.tx_packets > 0 {
                return Ok(u16::try_from(port).ok().map(|port| (port, neighbour)));
            }
        }
        Ok(None)
    }

    /// Restores the route tables of a program that is already in the kernel. `take` returns the program's map of a
    /// given name. `conf` holds the words of `struct route_conf` from the member `answers` on. Returns `None` if the
    /// program does not forward packets according to routes.
    pub fn adopt(
        conf: &[u32],
        secrets: [u64; LINK_SECRETS],
        take: impl FnMut(&'static str) -> Result<OwnedFd, Error>,
    ) -> Result<Option<AnswerMaps>, Error> {
        let [1, _, _, _, words4, words6, lines, neighbours, ..] = *conf else { return Ok(None) };
        let maps: Vec<OwnedFd> = AnswerMaps::NAMES.into_iter().map(take).collect::<Result<_, _>>()?;
        let more = |count: u32| count.saturating_add(1);
        let (words4, words6, lines) = (more(words4), more(words6), more(lines));
        Ok(Some(AnswerMaps { maps: all(maps)?, words4, words6, lines, neighbours, secrets }))
    }
}

fn all(maps: Vec<OwnedFd>) -> Result<[OwnedFd; MAPS], Error> {
    maps.try_into().map_err(|_| Error::Object { object: "trivium", what: TRIE4 })
}

fn create(name: &'static str, kind: MapKind, value: u32, entries: u32) -> Result<OwnedFd, Error> {
    let spec = MapSpec { name, kind, key: 4, value, entries };
    sys::map_create(spec, None).map_err(|source| Error::Map { map: name, operation: "create", source })
}
