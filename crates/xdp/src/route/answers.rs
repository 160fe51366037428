//! Routes answered in the hook: a router's tables, in memory that the programs of its ports read. Who writes them is
//! `router`'s writer; here they are made, and the router's interfaces stand beside them.
//!
//! ```text
//!   route_trie4, _trie6 ──hop──► route_paths ──► way, or a bucket of route_groups ──► route_nexthops
//!     on the link itself: route_links finds the destination's own                          │
//!   route_outputs: its device's address and MTU, the port ◄──number of the interface────┘
//!     route_devices: the device that frames are redirected to
//! ```

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;
use crate::fib::Takes;
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

/// Bytes of `struct route_group`, `route_neighbour`, `route_line`, `route_interface`, `route_sent`, `route_count`.
pub(crate) const GROUP_SIZE: u32 = 4096;
pub(crate) const NEIGHBOUR_SIZE: u32 = 32;
pub(crate) const LINE_SIZE: u32 = 64;
pub(crate) const INTERFACE_SIZE: u32 = 16;
pub(crate) const SENT_SIZE: u32 = 16;
pub(crate) const COUNT_SIZE: u32 = 32;
/// Bytes of `struct steer_frame`.
pub(crate) const FRAME_SIZE: u32 = 104;
/// Interfaces that a router can have: `ROUTE_INTERFACES`.
pub const ROUTE_INTERFACES: u32 = 1024;
/// Ports of a process: `ROUTE_PORTS`.
pub const ROUTE_PORTS: u32 = 1024;
/// Maps of a router's tables.
const MAPS: usize = 12;
/// Fewest words of a trie: more than a root has.
const WORDS_LEAST: u32 = 1 << 17;
/// Most words: 1 GiB.
const WORDS_MOST: u32 = 1 << 27;

/// `ROUTE_TAKES` and `ROUTE_TAKES_MULTI`, above the address.
const TAKES: u64 = 1 << 48;
const TAKES_MULTI: u64 = 1 << 49;
/// `ROUTE_TAG`.
const TAG: u32 = 52;
/// `ROUTE_WHERE_PORT`, `ROUTE_PORT` and `ROUTE_MTU`.
const WHERE_PORT: u32 = 20;
const PORT: u64 = 0xfff;
const MTU: u64 = 0xf_ffff;

/// How large a router's tables are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerSizes {
    /// Words of eight bytes of the IPv4 trie: rounded up to a power of two, from 2^17 to 2^27.
    pub words4: u32,
    /// The same of the IPv6 trie.
    pub words6: u32,
    /// Numbers of paths, 0 included.
    pub paths: u32,
    /// Groups of ways.
    pub groups: u32,
    /// Numbers of neighbours, 0 included.
    pub neighbours: u32,
}

/// An interface as the hook sends by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerInterface {
    /// The number of its port, below [`ROUTE_PORTS`].
    pub port: u16,
    /// The index of the device that stands for it in the kernel: the port's own, or its VLAN's.
    pub device: u32,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Bytes of the largest IP packet.
    pub mtu: u32,
    /// What its device does with frames that are redirected to it.
    pub takes: Takes,
    /// The VLAN whose tag (IEEE 802.1Q) its frames bear on the port, 1 to 4094; 0: they bear none.
    pub vlan: u16,
}

/// What is asked of the sources of packets (RFC 3704).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sources {
    /// Nothing.
    #[default]
    Any,
    /// A route leads to them by the interface that they came by.
    Strict,
    /// A route leads to them.
    Loose,
}

/// What one port's stage is specialised by where routes are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerPort {
    /// Its number, as [`AnswerInterface::port`].
    pub number: u16,
    /// The number of its own interface, which frames without a tag come by ([`Answers::set_interface`]).
    pub interface: u16,
    /// What is asked of sources of packets, whatever their tag: others are dropped here.
    pub sources: Sources,
    /// Whether its senders leave checksums open, to be completed by the worker.
    pub partial_checksums: bool,
    /// The seed of the choice among several ways, which is the worker's own.
    pub seed: u32,
}

/// Packets and bytes that the hook has routed, as received or sent by one port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RouteCounts {
    /// Received by the port and redirected.
    pub rx_packets: u64,
    /// Bytes of these, as they left.
    pub rx_bytes: u64,
    /// Redirected to the port's device.
    pub tx_packets: u64,
    /// Bytes of these.
    pub tx_bytes: u64,
}

/// Words that programs read while they are written, each whole: for `router`'s mirrors.
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

/// The tables of one virtual router, for the hooks of all its ports. Empty, they answer nothing.
#[derive(Debug)]
pub struct Answers {
    maps: Arc<AnswerMaps>,
    /// Of the first of [`AnswerMaps::NAMES`], in that order.
    words: [Words; 7],
    interfaces: Words,
    switch: Words,
}

/// The tables in the kernel, in the order of [`AnswerMaps::NAMES`].
#[derive(Debug)]
pub(crate) struct AnswerMaps {
    maps: [OwnedFd; MAPS],
    words4: u32,
    words6: u32,
    lines: u32,
    neighbours: u32,
    secrets: [u64; LINK_SECRETS],
}

/// Secret numbers of the hash by which addresses on links are found: `ROUTE_LINK_SECRETS`.
pub const LINK_SECRETS: usize = 12;

/// These numbers as a program has them, in words of 32 bits.
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
    /// Makes the tables, which take their memory at once.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn new(sizes: &AnswerSizes) -> Result<Answers, Error> {
        let power = |words: u32| words.clamp(WORDS_LEAST, WORDS_MOST).next_power_of_two();
        let (words4, words6) = (power(sizes.words4), power(sizes.words6));
        // Half of the places stay free, so that two lines are practically never full.
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
        // Whoever knew them could choose addresses that take all places of another's.
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

    /// The words of the IPv4 trie.
    #[must_use]
    pub fn four(&self) -> Words {
        self.words(0)
    }

    /// The words of the IPv6 trie.
    #[must_use]
    pub fn six(&self) -> Words {
        self.words(1)
    }

    /// The words of paths.
    #[must_use]
    pub fn paths(&self) -> Words {
        self.words(2)
    }

    /// The words of groups.
    #[must_use]
    pub fn groups(&self) -> Words {
        self.words(3)
    }

    /// The words of neighbours.
    #[must_use]
    pub fn neighbours(&self) -> Words {
        self.words(4)
    }

    /// The words by which addresses on links are found.
    #[must_use]
    pub fn links(&self) -> Words {
        self.words(5)
    }

    /// The secret numbers of the hash by which addresses on links are found, for the writer of [`Answers::links`].
    #[must_use]
    pub fn link_secrets(&self) -> [u64; LINK_SECRETS] {
        self.maps.secrets
    }

    /// What was sent to neighbours, for one CPU after the other.
    #[must_use]
    pub fn sent(&self) -> Words {
        self.words(6)
    }

    /// Says for which families routes are answered; the others go up, from the next frame on.
    pub fn answer(&self, ipv4: bool, ipv6: bool) {
        if let [word] = self.switch.as_ref() {
            word.store(u64::from(ipv4) | u64::from(ipv6) << 1, Ordering::Release);
        }
    }

    /// The families for which routes are answered: IPv4, IPv6.
    #[must_use]
    pub fn answers(&self) -> (bool, bool) {
        let word = self.switch.as_ref().first().map_or(0, |word| word.load(Ordering::Acquire));
        (word & 1 != 0, word & 2 != 0)
    }

    /// Says what the interface of a number is; `None`: frames are not sent by it. One that becomes another device is no interface for some
    /// milliseconds in between, so that no frame leaves by one of them with the other's address.
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

    /// Lets frames for a port leave by a device of the calling thread's network namespace. The kernel forgets a device that is deleted.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn set_device(&self, port: u16, device: u32) -> Result<(), Error> {
        sys::map_update(self.maps.get(DEVICES), &u32::from(port).to_ne_bytes(), &device.to_ne_bytes())
            .map_err(|source| Error::Map { map: DEVICES, operation: "add to", source })
    }

    /// Forgets a port's device.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn clear_device(&self, port: u16) -> Result<(), Error> {
        sys::map_delete(self.maps.get(DEVICES), &u32::from(port).to_ne_bytes())
            .map(drop)
            .map_err(|source| Error::Map { map: DEVICES, operation: "clear", source })
    }

    /// Begins the counts of a port at zero.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn clear_counts(&self, port: u16) -> Result<(), Error> {
        sys::map_fill_per_cpu(self.maps.get(COUNTS), u32::from(port), &[0; 4]).map_err(|source| Error::Map {
            map: COUNTS,
            operation: "clear",
            source,
        })
    }

    /// What was routed in the hook.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn counts(&self, port: u16) -> Result<RouteCounts, Error> {
        self.maps.counts(u32::from(port))
    }

    pub(crate) fn maps(&self) -> &Arc<AnswerMaps> {
        &self.maps
    }
}

impl AnswerMaps {
    /// Names of all maps that only a program that answers routes has.
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

    /// The constants of `struct route_conf` from `answers` on.
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
            match port.sources {
                Sources::Any => 0,
                Sources::Strict => 1,
                Sources::Loose => 2,
            },
        ]
    }

    /// The kernel's number of one of them: what has the same one is the same router's.
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

    /// The same tables with counts of their own, so that a test run counts nothing where others read it.
    pub fn scratch(&self) -> Result<AnswerMaps, Error> {
        let one = |(name, map): (&'static str, BorrowedFd<'_>)| match name {
            SENT => {
                let failed = |source| Error::Map { map: SENT, operation: "query", source };
                create(SENT, MapKind::Mappable, SENT_SIZE, sys::map_info(map).map_err(failed)?.max_entries)
            }
            COUNTS => create(COUNTS, MapKind::PerCpuArray, COUNT_SIZE, ROUTE_PORTS),
            name => map.try_clone_to_owned().map_err(|source| Error::Map {
                map: name,
                operation: "duplicate",
                source,
            }),
        };
        let maps: Vec<OwnedFd> = self.list().map(one).collect::<Result<_, _>>()?;
        Ok(AnswerMaps { maps: all(maps)?, ..*self })
    }

    /// The port that a frame was counted as sent by, and the number of the neighbour.
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

    /// Those of a program that is in the kernel already, which `take` gives by name; `conf` are its constants from `answers` on.
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
