//! Virtual router stage of a port's XDP program. The stage passes packets for this host to the kernel's stack. If the
//! tables ([`Answers`]) contain the next hop of a packet to be routed, the stage forwards the packet itself. Otherwise,
//! it sends the packet to the worker.
//!
//! ```text
//!  frame --> [filter] --> to the port's MAC address, to be routed, to none of the router's own IP addresses?
//!                            |                                       [`Own`], shared by the router's ports
//!                            |-- yes --> route and next hop known, packet within the MTU? --yes--> next hop
//!                            |              [`Answers`], shared by the router's ports  |-- no --> [steer] --> worker
//!                            |-- no --> kernel's stack: ARP, ND, ICMP, TCP sessions, routing protocols, TTL exceeded
//! ```
//!
//! The stage reads two hash tables of the router's own addresses. User space changes the tables one address at
//! a time, while frames are processed. A process that takes over a pinned program reads the addresses from the
//! tables ([`Own::of`]).
//!
//! Before it reads a hash table, the stage reads a memory-mapped bit array with 65,536 bits for each address
//! family, one for each value of a hash of the destination. For most packets in transit the bit is not set, and
//! the hash table is not read. `bpf/include/stage_route.h` describes the packets that go to the kernel.

mod answers;
mod punts;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Error;
use crate::bridge::{self, Orders};
use crate::sys::{self, MapKind, MapSpec, Mapped};

pub use answers::{
    AnswerInterface, AnswerPort, AnswerSizes, Answers, LINK_SECRETS, ROUTE_INTERFACES, ROUTE_PORTS,
    RouteCounts, Sources, Words,
};
pub(crate) use answers::{AnswerMaps, link_secrets};
#[cfg(test)]
pub(crate) use answers::{
    COUNT_SIZE, FRAME_SIZE, GROUP_SIZE, INTERFACE_SIZE, LINE_SIZE, NEIGHBOUR_SIZE, SENT_SIZE,
};
pub(crate) use punts::PuntMaps;
#[cfg(test)]
pub(crate) use punts::{PEER_SIZE, PUNT_COUNT_SIZE, PUNT_FRAME_SIZE, STATE_WORDS};
pub use punts::{PUNT_CLASSES, PUNT_PEERS, PuntLimits, PuntPeer, PuntRate};

/// Maximum number of a virtual router's own IP addresses, for each address family (`ROUTE_OWN`).
pub const OWN_CAPACITY: usize = 65_536;

/// Number of 32-bit words of `struct route_conf` (the constants of the virtual router stage).
pub(crate) const ROUTE_WORDS: usize = 14;
/// Size in 32-bit words of the array `route_vlans`, which maps VLANs to interfaces of the router. Each word holds the
/// entries of two VLANs.
pub(crate) const VLAN_WORDS: usize = 2048;
/// `ROUTE_VLAN_UP`: entry in `route_vlans` for a VLAN interface of the router whose frames always
/// go to the worker.
const VLAN_UP: u16 = u16::MAX;
/// Flag in the first word of `struct route_conf` (`ROUTE_HAS_VLANS`): at least one VLAN is an interface of the router.
const HAS_VLANS: u32 = 2;
/// Flag in the first word of `struct route_conf` (`ROUTE_HAS_SERVICE`): frames with a service tag (IEEE 802.1ad) of a
/// VLAN of the router go to the worker.
const HAS_SERVICE: u32 = 4;
/// Flag in the first word of `struct route_conf` (`ROUTE_ORDERED`): frames to the worker have sequence numbers, and the
/// XDP program does not forward a frame while earlier frames of its flow are in the worker.
const ORDERED: u32 = 8;
/// Flag in the first word of `struct route_conf` (`ROUTE_LIMITED`): packets to the kernel's control plane (routing
/// protocols, ARP, ICMP and so on) are rate-limited.
const LIMITED: u32 = 16;
/// Index in `struct route_conf` of the first word about forwarding according to routes (member `answers`).
const ANSWERS_AT: usize = 4;
/// Index in `struct route_conf` of the word with the number of the router interface that receives
/// the port's untagged frames.
const INTERFACE_AT: usize = 12;
/// Index in `struct route_conf` of the word with the mode of the reverse path check ([`Sources`]).
const SOURCES_AT: usize = 13;
const OWN4: &str = "route_own4";
const OWN6: &str = "route_own6";
const OWN_BITS: &str = "route_own_bits";
/// Number of 64-bit words for each address family in the bit array of own addresses: `struct route_own_bits`.
pub(crate) const OWN_WORDS: usize = 1024;
/// Multipliers of the hash with which an own address selects its bit in the bit array: `ROUTE_MIX` and `ROUTE_MIX_LOW`.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const MIX_LOW: u64 = 0xd6e8_feb8_6659_fd93;
/// Map value of each own address. Programs only look up whether an address is in the map, and do not read the value.
const THERE: [u8; 4] = 1_u32.to_ne_bytes();

/// Own addresses of one virtual router: the IP addresses at which the host itself receives packets, including the
/// broadcast addresses of subnets. The XDP programs of all the router's ports read these addresses and pass packets to
/// an own address to the kernel. Packets to multicast and link-local addresses go to the kernel in any case.
///
/// This value must be the only writer of the kernel maps.
#[derive(Debug)]
pub struct Own {
    router: String,
    maps: Arc<OwnMaps>,
    bits: Mapped,
    /// Number of own addresses for each bit of the bit array, by index of the bit. Several addresses may share a bit.
    /// Bits without addresses are omitted.
    held: BTreeMap<usize, usize>,
    addresses: BTreeSet<IpAddr>,
}

/// Kernel maps of a router's own addresses: two hash tables and the bit array.
#[derive(Debug)]
struct OwnMaps {
    v4: OwnedFd,
    v6: OwnedFd,
    bits: OwnedFd,
}

/// Configuration of the virtual router stage of one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoutePort {
    /// Ethernet address of the port's device. The stage routes only frames with this destination address.
    pub mac: [u8; 6],
    /// Whether the stage also routes frames with the destination MAC address of a virtual router (VRRP, RFC
    /// 9568: 00:00:5e:00:01:xx for IPv4, 00:00:5e:00:02:xx for IPv6).
    pub vrrp: bool,
}

/// Virtual router stage for one port's XDP program. [`crate::Attached::set_stage`] adds the stage to the
/// program.
#[derive(Debug, Clone)]
pub struct RouteStage {
    maps: Arc<RouteMaps>,
}

/// Constants and maps of a virtual router stage.
#[derive(Debug)]
pub(crate) struct RouteMaps {
    pub conf: [u32; ROUTE_WORDS],
    pub vlans: Vlans,
    own: Arc<OwnMaps>,
    answers: Option<Arc<AnswerMaps>>,
    /// Maps of the rate limits for control traffic to the kernel. `None` if control traffic is not
    /// limited.
    punts: Option<Arc<PuntMaps>>,
    /// Frame sequence numbers that the XDP program shares with the workers. `None` if frame order is not kept.
    orders: Option<Arc<Orders>>,
}

/// Contents of `route_vlans`: one entry for each VLAN identifier. The entry is 0 if the VLAN is not an interface of the
/// router. Otherwise the entry is the interface number plus 1, or [`VLAN_UP`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vlans(Box<[u16]>);

impl Vlans {
    pub fn none() -> Vlans {
        Vlans(vec![0; 2 * VLAN_WORDS].into())
    }

    /// Decodes the VLAN entries from the words of `route_vlans` in a loaded program.
    pub fn read(words: &[u32; VLAN_WORDS]) -> Vlans {
        let halves = |word: &u32| {
            let [a, b, c, d] = word.to_ne_bytes();
            [u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d])]
        };
        Vlans(words.iter().flat_map(halves).collect())
    }

    /// Encodes the VLAN entries as the bytes of `route_vlans`.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    fn set(&mut self, vlan: u16, interface: Option<u16>) {
        if let (1..=4094, Some(at)) = (vlan, self.0.get_mut(usize::from(vlan))) {
            let answered = interface.filter(|number| u32::from(*number) < ROUTE_INTERFACES);
            *at = answered.map_or(VLAN_UP, |number| number + 1);
        }
    }

    fn iter(&self) -> impl Iterator<Item = (u16, Option<u16>)> + '_ {
        let there = (0..).zip(&*self.0).filter(|(_, number)| **number != 0);
        there.map(|(vlan, number)| (vlan, (*number != VLAN_UP).then(|| number - 1)))
    }
}

impl Own {
    /// Creates the tables of own addresses for a router without own addresses. `router` is the router's name in errors.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn new(router: &str) -> Result<Own, Error> {
        let maps = OwnMaps { v4: create(OWN4, 4)?, v6: create(OWN6, 16)?, bits: no_bits()? };
        Own::over(router, Arc::new(maps), BTreeSet::new())
    }

    /// Returns the own addresses in the tables that a virtual router stage reads. `router` is the router's
    /// name in errors.
    pub(crate) fn of_stage(stage: &RouteStage, router: &str) -> Result<Own, Error> {
        let maps = Arc::clone(&stage.maps.own);
        let v4 = sys::map_keys::<4>(maps.v4.as_fd()).map_err(failed(OWN4, "list"))?;
        let v6 = sys::map_keys::<16>(maps.v6.as_fd()).map_err(failed(OWN6, "list"))?;
        let v4 = v4.into_iter().map(|octets| IpAddr::from(Ipv4Addr::from(octets)));
        let v6 = v6.into_iter().map(|octets| IpAddr::from(Ipv6Addr::from(octets)));
        Own::over(router, maps, v4.chain(v6).collect())
    }

    /// Takes over the kernel maps of own addresses, which contain `addresses`. Writes the bit array again, because the
    /// previous process may have ended after it added an address and before it set the address's bit.
    fn over(router: &str, maps: Arc<OwnMaps>, addresses: BTreeSet<IpAddr>) -> Result<Own, Error> {
        let bits = Mapped::new(maps.bits.as_fd()).map_err(failed(OWN_BITS, "map"))?;
        let mut held = BTreeMap::new();
        let mut words = [0; 2 * OWN_WORDS];
        for bit in addresses.iter().map(bit_of) {
            *held.entry(bit).or_default() += 1;
            if let Some(word) = words.get_mut(bit / 64) {
                *word |= 1 << (bit % 64);
            }
        }
        for (place, word) in bits.words().iter().zip(words) {
            place.store(word, Ordering::Release);
        }
        Ok(Own { router: router.to_owned(), maps, bits, held, addresses })
    }

    /// Adds an own address of the router. Returns `false` if the address is present already.
    ///
    /// # Errors
    /// Returns [`Error::OwnFull`] if the table has no space, or [`Error::Own`] if a map operation fails.
    /// Nothing changes on failure.
    pub fn insert(&mut self, address: IpAddr) -> Result<bool, Error> {
        if self.addresses.contains(&address) {
            return Ok(false);
        }
        self.set(address, true)?;
        Ok(true)
    }

    /// Removes an own address of the router. Returns `false` if the address was not present.
    ///
    /// # Errors
    /// Returns [`Error::Own`] if a map operation fails. Nothing changes on failure.
    pub fn remove(&mut self, address: IpAddr) -> Result<bool, Error> {
        if !self.addresses.contains(&address) {
            return Ok(false);
        }
        self.set(address, false)?;
        Ok(true)
    }

    /// Replaces the router's own addresses with `wanted`. An address that is in the old and in the new set stays
    /// present throughout. New addresses are added before old ones are removed, unless the table has no space for both.
    ///
    /// # Errors
    /// Returns [`Error::OwnFull`] if the table has no space, or [`Error::Own`] if a map operation fails.
    /// Nothing changes on failure.
    pub fn replace_all(&mut self, wanted: &BTreeSet<IpAddr>) -> Result<(), Error> {
        let mut steps = Vec::new();
        for family in [IpAddr::is_ipv4, IpAddr::is_ipv6] {
            let of = |all: &BTreeSet<IpAddr>| all.iter().filter(|a| family(a)).copied().collect();
            let (present, wanted): (BTreeSet<IpAddr>, BTreeSet<IpAddr>) = (of(&self.addresses), of(wanted));
            if let Some(address) = wanted.iter().nth(OWN_CAPACITY) {
                return Err(self.full(*address));
            }
            steps.extend(way(&present, &wanted, OWN_CAPACITY));
        }
        for (done, (address, there)) in steps.iter().enumerate() {
            if let Err(error) = self.set(*address, *there) {
                for (address, there) in steps.iter().take(done).rev() {
                    // The first error is reported. An error of the rollback is ignored.
                    let _ = self.set(*address, !there);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns the name of the virtual router. Errors contain this name.
    #[must_use]
    pub fn router(&self) -> &str {
        &self.router
    }

    /// Returns the router's own addresses that are in the tables.
    #[must_use]
    pub fn addresses(&self) -> &BTreeSet<IpAddr> {
        &self.addresses
    }

    /// Returns the kernel's id of the map of own IPv4 addresses. Virtual router stages with equal ids belong to the
    /// same router.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn id(&self) -> Result<u32, Error> {
        self.maps.id()
    }

    fn set(&mut self, address: IpAddr, there: bool) -> Result<(), Error> {
        match self.maps.write(address, there) {
            Ok(()) => {}
            // The capacity of the table is [`OWN_CAPACITY`].
            Err(error) if error.raw_os_error() == Some(libc::E2BIG) => return Err(self.full(address)),
            Err(source) => {
                let map = if address.is_ipv4() { OWN4 } else { OWN6 };
                let operation = if there { "add to it" } else { "delete from it" };
                return Err(Error::Own { router: self.router.clone(), address, map, operation, source });
            }
        }
        if there {
            self.addresses.insert(address)
        } else {
            self.addresses.remove(&address)
        };
        self.mark(bit_of(&address), there);
        Ok(())
    }

    /// Records that an own address with the index `bit` in the bit array was added (`there`) or removed. The bit is set
    /// while at least one address with this index is present.
    fn mark(&mut self, bit: usize, there: bool) {
        let held = self.held.entry(bit).or_default();
        *held = if there { *held + 1 } else { held.saturating_sub(1) };
        let Some(word) = self.bits.words().get(bit / 64) else { return };
        if *held > 0 {
            word.fetch_or(1 << (bit % 64), Ordering::Release);
        } else {
            self.held.remove(&bit);
            word.fetch_and(!(1 << (bit % 64)), Ordering::Release);
        }
    }

    fn full(&self, address: IpAddr) -> Error {
        let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
        Error::OwnFull { router: self.router.clone(), address, family, capacity: OWN_CAPACITY }
    }
}

/// Creates the bit array of a router without own addresses.
fn no_bits() -> Result<OwnedFd, Error> {
    let value = u32::try_from(8 * OWN_WORDS).unwrap_or(u32::MAX);
    let spec = MapSpec { name: OWN_BITS, kind: MapKind::Mappable, key: 4, value, entries: 2 };
    sys::map_create(spec, None).map_err(failed(OWN_BITS, "create"))
}

/// Creates a bit array in which all bits are set, so the stage always reads the hash tables. The
/// array is used with the hash tables of an earlier release that had no bit array.
fn all_bits() -> Result<OwnedFd, Error> {
    let bits = no_bits()?;
    let words = Mapped::new(bits.as_fd()).map_err(failed(OWN_BITS, "map"))?;
    words.words().iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
    Ok(bits)
}

/// Returns the index of an own address's bit in the bit array. The bits of IPv6 addresses follow
/// the bits of IPv4 addresses. `route_is_own4` and `route_is_own6` of the XDP program compute equal
/// indices.
fn bit_of(address: &IpAddr) -> usize {
    let hash = |mixed: u64| usize::try_from(mixed >> 48).unwrap_or(0);
    match address {
        IpAddr::V4(v4) => hash(u64::from(u32::from_ne_bytes(v4.octets())).wrapping_mul(MIX)),
        IpAddr::V6(v6) => {
            // Both halves are read in memory order.
            let number = u128::from_le_bytes(v6.octets());
            let half = |number: u128| u64::try_from(number & u128::from(u64::MAX)).unwrap_or(0);
            let (high, low) = (half(number).wrapping_mul(MIX), half(number >> 64));
            64 * OWN_WORDS + hash((high ^ high >> 32 ^ low).wrapping_mul(MIX_LOW))
        }
    }
}

fn failed(map: &'static str, operation: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Map { map, operation, source }
}

/// Returns the steps from the address set `present` to the set `wanted`. Each step adds (`true`) or removes (`false`)
/// one address. Addresses in both sets stay present, the set never exceeds `capacity`, and old addresses are removed as
/// late as possible.
fn way(present: &BTreeSet<IpAddr>, wanted: &BTreeSet<IpAddr>, capacity: usize) -> Vec<(IpAddr, bool)> {
    let mut room = capacity.saturating_sub(present.len());
    let mut stale = present.difference(wanted);
    let mut steps = Vec::new();
    for new in wanted.difference(present) {
        match room.checked_sub(1) {
            Some(less) => room = less,
            None => steps.extend(stale.next().map(|old| (*old, false))),
        }
        steps.push((*new, true));
    }
    steps.extend(stale.map(|old| (*old, false)));
    steps
}

impl OwnMaps {
    fn id(&self) -> Result<u32, Error> {
        sys::map_info(self.v4.as_fd()).map(|info| info.id).map_err(failed(OWN4, "query"))
    }

    fn write(&self, address: IpAddr, there: bool) -> io::Result<()> {
        let write = |map: BorrowedFd<'_>, key: &[u8]| match there {
            true => sys::map_update(map, key, &THERE),
            false => sys::map_delete(map, key).map(drop),
        };
        match address {
            IpAddr::V4(v4) => write(self.v4.as_fd(), &v4.octets()),
            IpAddr::V6(v6) => write(self.v6.as_fd(), &v6.octets()),
        }
    }
}

impl RouteStage {
    /// Creates the virtual router stage of a port. The stage passes packets to the own addresses in
    /// `own` to the kernel, and sends packets to be routed to the worker.
    #[must_use]
    pub fn new(port: &RoutePort, own: &Own) -> RouteStage {
        let (conf, vlans) = (words(port), Vlans::none());
        let own = Arc::clone(&own.maps);
        RouteStage::over(Arc::new(RouteMaps { conf, vlans, own, answers: None, punts: None, orders: None }))
    }

    /// Creates a stage like [`RouteStage::new`] that also forwards packets itself, according to the routes in
    /// `answers`.
    #[must_use]
    pub fn answering(port: &RoutePort, own: &Own, answers: &Answers, answer: &AnswerPort) -> RouteStage {
        let mut conf = words(port);
        for (word, more) in conf.iter_mut().skip(ANSWERS_AT).zip(answers.maps().conf(answer)) {
            *word = more;
        }
        let (vlans, answers) = (Vlans::none(), Some(Arc::clone(answers.maps())));
        let own = Arc::clone(&own.maps);
        RouteStage::over(Arc::new(RouteMaps { conf, vlans, own, answers, punts: None, orders: None }))
    }

    /// Returns a copy of the stage that treats the given VLANs (IEEE 802.1Q, 1 to 4094) as interfaces of the router.
    /// Each VLAN has an interface number or `None`.
    ///
    /// - Packets of a VLAN whose interface has a number ([`Answers::set_interface`]) are routed like untagged
    ///   packets.
    /// - All other frames of these VLANs go to the worker.
    /// - Frames of all other VLANs go to the kernel.
    #[must_use]
    pub fn with_vlans(self, vlans: impl IntoIterator<Item = (u16, Option<u16>)>) -> RouteStage {
        let mut maps = self.maps.shared();
        maps.vlans = Vlans::none();
        vlans.into_iter().for_each(|(vlan, interface)| maps.vlans.set(vlan, interface));
        maps.conf[0] &= !HAS_VLANS;
        if maps.vlans.iter().next().is_some() {
            maps.conf[0] |= HAS_VLANS;
        }
        RouteStage::over(Arc::new(maps))
    }

    /// Returns a copy of the stage that sends frames with a service tag (IEEE 802.1ad) of one of the stage's VLANs to
    /// the worker.
    #[must_use]
    pub fn with_service_tags(self) -> RouteStage {
        let mut maps = self.maps.shared();
        maps.conf[0] |= HAS_SERVICE;
        RouteStage::over(Arc::new(maps))
    }

    /// Returns a copy of the stage that limits the rate of control packets to the kernel as `limits` specifies.
    /// `interface` is the number of the router interface that receives the port's untagged frames. Packets from known
    /// neighbours have rate limits of their own. Only a stage that forwards packets recognises known neighbours,
    /// because this requires the route tables.
    #[must_use]
    pub fn limited(self, limits: &PuntLimits, interface: u16) -> RouteStage {
        let mut maps = self.maps.shared();
        maps.conf[0] |= LIMITED;
        maps.conf[INTERFACE_AT] = interface.into();
        maps.punts = Some(Arc::clone(limits.maps()));
        RouteStage::over(Arc::new(maps))
    }

    /// Returns a copy of the stage that sends packets with IPv4 options or an IPv6 hop-by-hop header to the worker and
    /// not to the kernel. The worker first checks the source address (reverse path check in the mode `sources`), and
    /// then passes the packet to the kernel for forwarding.
    #[must_use]
    pub fn with_source_check(self, sources: Sources) -> RouteStage {
        let mut maps = self.maps.shared();
        maps.conf[SOURCES_AT] = sources.word();
        RouteStage::over(Arc::new(maps))
    }

    /// Returns a copy of the stage that keeps the frame order between XDP program and worker with the sequence numbers
    /// in `orders`.
    pub(crate) fn with_orders(self, orders: Arc<Orders>) -> RouteStage {
        let mut maps = self.maps.shared();
        maps.conf[0] |= ORDERED;
        maps.orders = Some(orders);
        RouteStage::over(Arc::new(maps))
    }

    /// Returns the frame sequence numbers that the XDP program shares with the workers. Returns `None` if the stage
    /// does not keep frame order ([`RouteStage::in_order`]).
    #[must_use]
    pub fn orders(&self) -> Option<&Arc<Orders>> {
        self.maps.orders()
    }

    /// Returns the VLANs that are interfaces of the router. Each VLAN has the number of its interface, or
    /// `None` if its frames all go to the worker.
    pub fn vlans(&self) -> impl Iterator<Item = (u16, Option<u16>)> + '_ {
        self.maps.vlans.iter()
    }

    pub(crate) fn over(maps: Arc<RouteMaps>) -> RouteStage {
        RouteStage { maps }
    }

    /// Returns whether the stage was created with the configuration `port` and reads the own addresses in `own`.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn is_for(&self, port: &RoutePort, own: &Own) -> Result<bool, Error> {
        Ok(self.maps.conf == words(port) && self.own_id()? == own.id()?)
    }

    /// Returns whether two virtual router stages have equal constants and read the same kernel maps.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn is_same(&self, other: &RouteStage) -> Result<bool, Error> {
        let tables = |stage: &RouteStage| stage.maps.answers.as_ref().map(|maps| maps.id()).transpose();
        let constants = |stage: &RouteStage| (stage.maps.conf, stage.maps.vlans.clone());
        let same_order = match (&self.maps.orders, &other.maps.orders) {
            (None, None) => true,
            (Some(own), Some(others)) => Arc::ptr_eq(own, others),
            _ => false,
        };
        let limits = |stage: &RouteStage| stage.maps.punts.as_ref().map(|maps| maps.id()).transpose();
        let alike = constants(self) == constants(other) && self.own_id()? == other.own_id()?;
        Ok(alike && same_order && tables(self)? == tables(other)? && limits(self)? == limits(other)?)
    }

    /// Returns whether the stage itself forwards packets according to routes. Otherwise the workers forward the
    /// packets.
    #[must_use]
    pub fn is_answering(&self) -> bool {
        self.maps.answers.is_some()
    }

    /// Returns the configuration with which the virtual router stage was created.
    #[must_use]
    pub fn port(&self) -> RoutePort {
        let [_, vrrp, first, second, ..] = self.maps.conf;
        let ([a, b, c, d], [e, f, ..]) = (first.to_ne_bytes(), second.to_ne_bytes());
        RoutePort { mac: [a, b, c, d, e, f], vrrp: vrrp != 0 }
    }

    /// Returns the kernel's id that identifies the tables of the router's own addresses ([`Own::id`]).
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn own_id(&self) -> Result<u32, Error> {
        self.maps.own.id()
    }

    pub(crate) fn maps(&self) -> &Arc<RouteMaps> {
        &self.maps
    }
}

impl RouteMaps {
    /// Names of the maps that only a program with a virtual router stage has.
    pub const NAMES: [&'static str; 3] = [OWN4, OWN6, OWN_BITS];

    pub fn list(&self) -> [(&'static str, BorrowedFd<'_>); 3] {
        let OwnMaps { v4, v6, bits } = &*self.own;
        [(OWN4, v4.as_fd()), (OWN6, v6.as_fd()), (OWN_BITS, bits.as_fd())]
    }

    /// Returns the maps of the routes according to which the stage forwards packets. Returns `None` if the stage does
    /// not forward packets.
    pub fn answers(&self) -> Option<&AnswerMaps> {
        self.answers.as_deref()
    }

    /// Returns the maps of the rate limits of control traffic. Returns `None` if control traffic is
    /// not limited.
    pub fn punts(&self) -> Option<&PuntMaps> {
        self.punts.as_deref()
    }

    /// Returns the frame sequence numbers that the XDP program shares with the workers. Returns `None` if frame order
    /// is not kept.
    pub fn orders(&self) -> Option<&Arc<Orders>> {
        self.orders.as_ref()
    }

    /// Returns a copy of the stage that refers to the same kernel maps.
    fn shared(&self) -> RouteMaps {
        let RouteMaps { conf, vlans, own, answers, punts, orders } = self;
        let (own, answers, orders) = (Arc::clone(own), answers.clone(), orders.clone());
        RouteMaps { conf: *conf, vlans: vlans.clone(), own, answers, punts: punts.clone(), orders }
    }

    /// Returns a copy for a test run, with new counts, rate limits and frame sequence numbers. A test run with the copy
    /// changes no state of the router. The test run assumes that no frame is in a worker.
    pub fn scratch(&self) -> Result<RouteMaps, Error> {
        let answers = self.answers.as_ref().map(|answers| answers.scratch().map(Arc::new)).transpose()?;
        let orders = self.orders.as_ref().map(|orders| orders.scratch().map(Arc::new)).transpose()?;
        let punts = self.punts.as_ref().map(|punts| punts.scratch().map(Arc::new)).transpose()?;
        Ok(RouteMaps { answers, punts, orders, ..self.shared() })
    }

    /// Restores the virtual router stage of a program that is already in the kernel. `take` returns the program's map
    /// of a given name.
    pub fn adopt(
        mut conf: [u32; ROUTE_WORDS],
        vlans: Vlans,
        secrets: [u64; LINK_SECRETS],
        mut take: impl FnMut(&'static str) -> Result<OwnedFd, Error>,
    ) -> Result<RouteMaps, Error> {
        let own = Arc::new(OwnMaps {
            v4: take(OWN4)?,
            v6: take(OWN6)?,
            bits: take(OWN_BITS).or_else(|_| all_bits())?,
        });
        let orders = match conf[0] & ORDERED {
            0 => None,
            _ => Some(Arc::new(Orders::over(take(bridge::ORDERS)?, take(bridge::BUCKETS)?)?)),
        };
        let punts = match conf[0] & LIMITED {
            0 => None,
            _ => PuntMaps::adopt(&mut take)?.map(Arc::new),
        };
        if punts.is_none() {
            // Without maps, the limits are disabled. The router sets them again when it installs its next stage.
            conf[0] &= !LIMITED;
        }
        let answers = AnswerMaps::adopt(conf.get(ANSWERS_AT..).unwrap_or(&[]), secrets, take)?.map(Arc::new);
        Ok(RouteMaps { conf, vlans, own, answers, punts, orders })
    }
}

fn create(name: &'static str, key: u32) -> Result<OwnedFd, Error> {
    let entries = u32::try_from(OWN_CAPACITY).unwrap_or(u32::MAX);
    let spec = MapSpec { name, kind: MapKind::SparseHash, key, value: 4, entries };
    sys::map_create(spec, None).map_err(failed(name, "create"))
}

/// Encodes the configuration `port` as `struct route_conf` (the constants of the virtual router stage).
fn words(port: &RoutePort) -> [u32; ROUTE_WORDS] {
    let [a, b, c, d, e, f] = port.mac;
    let (first, second) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, 0, 0]));
    let mut words = [0; ROUTE_WORDS];
    [words[0], words[1], words[2], words[3]] = [1, u32::from(port.vrrp), first, second];
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some() -> impl Strategy<Value = BTreeSet<IpAddr>> {
        let address = (0..24_u8).prop_map(|last| IpAddr::from([192, 0, 2, last]));
        proptest::collection::btree_set(address, 0..12)
    }

    proptest! {
        #[test]
        fn the_way_between_sets_keeps_what_stays_and_never_holds_too_many(
            present in some(), wanted in some(), spare in 0..12_usize
        ) {
            let capacity = present.len().max(wanted.len()) + spare;
            let staying: BTreeSet<IpAddr> = present.intersection(&wanted).copied().collect();
            let mut now = present.clone();
            for (address, there) in way(&present, &wanted, capacity) {
                // An old address is removed early only to make space for a new address.
                prop_assert!(there || now.len() == capacity || wanted.is_subset(&now));
                let changed = if there { now.insert(address) } else { now.remove(&address) };
                prop_assert!(changed);
                prop_assert!(now.len() <= capacity && staying.is_subset(&now));
            }
            prop_assert_eq!(now, wanted);
        }
    }

    #[test]
    fn constants_survive_the_way_into_the_kernel_and_back() {
        for vrrp in [false, true] {
            let port = RoutePort { mac: [2, 1, 9, 8, 7, 6], vrrp };
            let own = OwnMaps { v4: null(), v6: null(), bits: null() };
            let stage = RouteStage::over(Arc::new(RouteMaps {
                conf: words(&port),
                vlans: Vlans::none(),
                own: Arc::new(own),
                answers: None,
                punts: None,
                orders: None,
            }));
            assert_eq!(stage.port(), port);
            let numbers =
                [(4094, Some(7)), (1, Some(0)), (32, None), (31, Some(1023)), (0, None), (4095, None)];
            let stage = stage.with_vlans(numbers.into_iter().chain([(33, Some(1024))]));
            let found = [(1, Some(0)), (31, Some(1023)), (32, None), (33, None), (4094, Some(7))];
            assert!(stage.vlans().eq(found) && stage.port() == port);
            let bytes = stage.maps.vlans.bytes();
            let words: Vec<u32> =
                bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
            assert_eq!(Vlans::read(&words.try_into().unwrap()), stage.maps.vlans);
            assert_eq!(stage.with_vlans([]).vlans().count(), 0);
        }
    }

    /// Checks that a bit is set if and only if one of its addresses is present, and that a process that takes over the
    /// tables sets the bits that its predecessor did not set.
    #[test]
    fn bits_are_those_of_the_addresses() {
        let mut own = match Own::new("blue") {
            Err(Error::Map { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
                return testbed::skip("needs root (BPF)");
            }
            own => own.unwrap(),
        };
        let first = IpAddr::from([10, 0, 0, 1]);
        let other = (2_u32..).map(|n| IpAddr::from(Ipv4Addr::from_bits(10 << 24 | n)));
        let twin = other.into_iter().find(|other| bit_of(other) == bit_of(&first)).unwrap();
        let set = |own: &Own| -> Vec<usize> {
            let words = own.bits.words().iter().map(|word| word.load(Ordering::Relaxed)).enumerate();
            let bits = |(at, word): (usize, u64)| {
                (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| 64 * at + bit)
            };
            words.flat_map(bits).collect()
        };
        for address in [first, twin, IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1])] {
            own.insert(address).unwrap();
        }
        let all = set(&own);
        assert_eq!(all.len(), 2);
        assert!(all[0] == bit_of(&first) && (64 * OWN_WORDS..128 * OWN_WORDS).contains(&all[1]));
        own.remove(first).unwrap();
        assert_eq!(set(&own), all);
        own.remove(twin).unwrap();
        assert_eq!(set(&own), all[1..]);
        own.insert(twin).unwrap();
        own.bits.words()[all[0] / 64].store(0, Ordering::Relaxed);
        own.bits.words()[0].fetch_or(1, Ordering::Relaxed);
        let successor = Own::over("blue", Arc::clone(&own.maps), own.addresses.clone()).unwrap();
        assert_eq!(set(&successor), all);
    }

    fn null() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }
}
