//! Connections of the data path: the tables of the connection tracker, which the workers and all OpenFlow bridges
//! share, and the passes of packets through the tracker.
//!
//! One lock protects the tables of both address families, so that NAT may use every port of a range. (If each worker
//! had tables of its own, the replies of a translated connection would have to hash to the same worker, which only one
//! port in as many as there are workers does.) A worker holds the lock for one packet.
//!
//! The tables get their memory when the first packet is tracked.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the tables are locked for one packet, and the slow path sweeps them in short slices"
)]

mod select;
#[cfg(test)]
mod tests;

pub use select::{ConnectionView, IcmpView};

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use conn::headers::{NoTuple, Packet};
use conn::helper::{self, Helper};
use conn::nat::ports::{Choice, Selection};
use conn::nat::spec::{Nat, Target};
use conn::nat::translate::{Checksum, NotTranslated, Rewrite, translate_ipv4, translate_ipv6};
use conn::table::{Sizes, Table};
use conn::track::{Commit, CtState, Invalid, Tracked, Tracker};
use conn::tuple::{Address, QueryClass, Side, Tuple, TupleHash};
use conn::zone::Zones;
use packet::ipv4::Ipv4;
use packet::ipv6::Ipv6;
use packet::tcp::Tcp;
use packet::udp::Udp;
use packet::{checksum, ip_proto};
use switch::Now;
use switch::flow::{ConnectionFields, CtNat, FTP, NatEnd, NatRange, NatSelection, TFTP, TrackStep};

/// Returns a time in milliseconds, modulo 2^32.
#[allow(clippy::cast_possible_truncation, reason = "the tracker's clock wraps by definition")]
pub(crate) const fn milliseconds(now: Now) -> u32 {
    (now.ns / 1_000_000) as u32
}

/// Largest number of IPv4 connections.
const IPV4_ENTRIES: u32 = 1 << 21;
/// Largest number of IPv6 connections.
const IPV6_ENTRIES: u32 = 1 << 19;
/// Number of calls of [`Connections::sweep`] that visit all entries. At two calls a second, an expired connection is
/// removed after at most 8 s.
const SWEEPS: u32 = 16;
/// Largest number of free ports that NAT tries for a connection, if connections without NAT use ports of the range. The
/// search takes some 20 us, during which other workers wait.
const OFFERS: u32 = 256;
/// State bits of a packet that was translated.
const TRANSLATED: u8 = CtState::SNAT.0 | CtState::DNAT.0;

/// Connections of the data path, which all workers and all OpenFlow bridges share.
#[derive(Debug, Default)]
pub struct Connections {
    tables: OnceLock<Tables>,
}

/// Trackers of both address families, with their lock.
#[derive(Debug)]
struct Tables(Mutex<Trackers>);

#[derive(Debug)]
struct Trackers {
    ipv4: Tracker<u32>,
    ipv6: Tracker<u128>,
    zones: Zones,
}

/// An IP packet on its way through the tracker.
pub(crate) struct Passing<'a> {
    /// The packet from its IP header on.
    pub ip: &'a mut [u8],
    pub is_ipv6: bool,
    /// State of the checksum of TCP and UDP.
    pub checksum: Checksum,
    /// Whether the checksums of the packet are correct, or were not checked because the port completes them.
    pub is_sound: bool,
    /// Connection fields of the packet so far.
    pub fields: ConnectionFields,
    /// Time in milliseconds of the monotonic clock.
    pub now: u32,
    /// Whether no connection changes (explain).
    pub is_dry: bool,
}

impl Connections {
    /// Tracks a packet, commits its connection and translates the packet, as `step` asks for. Returns the connection
    /// fields of the packet.
    pub(crate) fn pass(&self, packet: Passing<'_>, step: &TrackStep) -> ConnectionFields {
        let tables = match self.tables.get() {
            Some(tables) => tables,
            None if packet.is_dry => return without_tables(&packet, step.zone),
            None => self.tables.get_or_init(Tables::new),
        };
        if packet.is_ipv6 { pass::<u128>(tables, packet, step) } else { pass::<u32>(tables, packet, step) }
    }

    /// Allocates the memory of the tables if it was not allocated yet. The slow path calls the function before a worker
    /// tracks the first packet, because the allocation takes long.
    pub(crate) fn prepare(&self) {
        self.tables.get_or_init(Tables::new);
    }

    /// Removes expired connections among a part of the entries. [`SWEEPS`] consecutive calls visit all entries.
    pub(crate) fn sweep(&self, now: u32) {
        /// Number of entries that are visited under one lock.
        const SLICE: u32 = 1024;
        let Some(tables) = self.tables.get() else { return };
        for _ in 0..IPV4_ENTRIES.div_ceil(SWEEPS * SLICE) {
            let mut trackers = tables.lock();
            trackers.ipv4.table.sweep(now, SLICE);
            trackers.ipv6.table.sweep(now, SLICE / (IPV4_ENTRIES / IPV6_ENTRIES));
        }
    }
}

impl Tables {
    fn new() -> Tables {
        Tables(Mutex::new(Trackers::new()))
    }

    fn lock(&self) -> MutexGuard<'_, Trackers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trackers {
    fn new() -> Trackers {
        let sizes = |entries| Sizes { translations: entries, ..Sizes::of_entries(entries) };
        let hash = TupleHash::new();
        let (mut ipv4, mut ipv6) =
            (Tracker::new(sizes(IPV4_ENTRIES), hash.clone()), Tracker::new(sizes(IPV6_ENTRIES), hash));
        ipv4.table.set_offers(OFFERS);
        ipv6.table.set_offers(OFFERS);
        ipv4.table.enable_helpers(helper::Sizes::default());
        ipv6.table.enable_helpers(helper::Sizes::default());
        Trackers { ipv4, ipv6, zones: Zones::new() }
    }
}

/// Address of one of the two families.
trait Family: Address {
    /// Largest number of connections.
    const ENTRIES: u32;
    /// Returns the tracker of the address family, and the zones.
    fn tracker(trackers: &mut Trackers) -> (&mut Tracker<Self>, &Zones);
    fn read(ip: &[u8], zone: u16) -> Result<Packet<Self>, NoTuple>;
    fn translate(ip: &mut [u8], rewrite: &Rewrite<Self>, checksum: Checksum) -> Result<(), NotTranslated>;
    /// Returns the payload of TCP or UDP.
    fn payload(ip: &[u8]) -> Option<&[u8]>;
    fn of(address: IpAddr) -> Option<Self>;
    fn ip(self) -> IpAddr;
    /// Returns the octets of the address, followed by zeros.
    fn octets(self) -> [u8; 16];
}

impl Family for u32 {
    const ENTRIES: u32 = IPV4_ENTRIES;

    fn tracker(trackers: &mut Trackers) -> (&mut Tracker<u32>, &Zones) {
        (&mut trackers.ipv4, &trackers.zones)
    }

    fn read(ip: &[u8], zone: u16) -> Result<Packet<u32>, NoTuple> {
        Packet::of_ipv4(&Ipv4::parse(ip)?, zone)
    }

    fn translate(ip: &mut [u8], rewrite: &Rewrite<u32>, checksum: Checksum) -> Result<(), NotTranslated> {
        translate_ipv4(ip, rewrite, checksum)
    }

    fn payload(ip: &[u8]) -> Option<&[u8]> {
        let view = Ipv4::parse(ip).ok()?;
        payload_of(view.proto(), view.payload())
    }

    fn of(address: IpAddr) -> Option<u32> {
        if let IpAddr::V4(address) = address { Some(address.to_bits()) } else { None }
    }

    fn ip(self) -> IpAddr {
        IpAddr::V4(self.into())
    }

    fn octets(self) -> [u8; 16] {
        let mut octets = [0; 16];
        octets[..4].copy_from_slice(&self.to_be_bytes());
        octets
    }
}

impl Family for u128 {
    const ENTRIES: u32 = IPV6_ENTRIES;

    fn tracker(trackers: &mut Trackers) -> (&mut Tracker<u128>, &Zones) {
        (&mut trackers.ipv6, &trackers.zones)
    }

    fn read(ip: &[u8], zone: u16) -> Result<Packet<u128>, NoTuple> {
        Packet::of_ipv6(&Ipv6::parse(ip)?, zone)
    }

    fn translate(ip: &mut [u8], rewrite: &Rewrite<u128>, checksum: Checksum) -> Result<(), NotTranslated> {
        translate_ipv6(ip, rewrite, checksum)
    }

    fn payload(ip: &[u8]) -> Option<&[u8]> {
        let upper = Ipv6::parse(ip).ok()?.upper().ok()?;
        payload_of(upper.proto, upper.payload)
    }

    fn of(address: IpAddr) -> Option<u128> {
        if let IpAddr::V6(address) = address { Some(address.to_bits()) } else { None }
    }

    fn ip(self) -> IpAddr {
        IpAddr::V6(self.into())
    }

    fn octets(self) -> [u8; 16] {
        self.to_be_bytes()
    }
}

fn pass<A: Family>(tables: &Tables, packet: Passing<'_>, step: &TrackStep) -> ConnectionFields {
    let invalid = || ConnectionFields {
        state: (CtState::INVALID | CtState::TRACKED).0,
        zone: step.zone,
        ..ConnectionFields::default()
    };
    if !packet.is_sound {
        return invalid();
    }
    let Ok(read) = A::read(packet.ip, step.zone) else { return invalid() };
    let mut trackers = tables.lock();
    let (tracker, zones) = A::tracker(&mut trackers);
    let before = CtState(packet.fields.state);
    let is_known = before.has(CtState::TRACKED) && packet.fields.zone == step.zone;
    let mut tracked = if is_known {
        let id = tracker.table.find(&read.tuple, packet.now);
        let invalid = before.has(CtState::INVALID).then_some(Invalid::NoConnection);
        Tracked { state: before, id, invalid }
    } else if packet.is_dry {
        tracker.peek(&read, packet.now)
    } else {
        tracker.track(zones, &read, packet.now)
    };
    let was_known = tracked.id.is_some();
    if step.commit && !packet.is_dry && tracked.invalid.is_none() {
        if tracked.id.is_none() && !makes_room(&mut tracker.table, step.zone) {
            return invalid();
        }
        let commit = Commit {
            force: step.force,
            mark: step.mark,
            label: step.label,
            nat: if let Some(CtNat::New(range)) = &step.nat { nat_of(range, &read) } else { None },
            helper: match step.alg {
                FTP => Some(Helper::Ftp),
                TFTP => Some(Helper::Tftp),
                _ => None,
            },
        };
        if tracker.commit(zones, &read, &mut tracked, &commit, packet.now).is_err() {
            return invalid();
        }
    }
    // A packet that was tracked before has been read then, unless it opens the connection now.
    let is_unread = !is_known || !was_known;
    if !packet.is_dry && is_unread && tracker.has_helper(&tracked) && !help(tracker, &read, &tracked, &packet)
    {
        return invalid();
    }
    let is_translated = is_known && before.0 & TRANSLATED != 0;
    if step.nat.is_some()
        && !is_translated
        && let Some(rewrite) = tracker.translate(&read, &mut tracked)
        && A::translate(packet.ip, &rewrite, packet.checksum).is_err()
    {
        return invalid();
    }
    fields(tracker, &read, &tracked, step.zone)
}

/// Returns whether a zone may have another connection. A zone may use half of the entries, and half of the places of
/// embryonic connections, that the others leave free. Beyond its embryonic connections, the oldest one of the zone
/// gives way. The connections of one zone therefore never fill the table, nor displace those of another zone.
fn makes_room<A: Address>(table: &mut Table<A>, zone: u16) -> bool {
    let sizes = table.sizes();
    if table.zone_embryonic_count(zone) >= sizes.embryonic.saturating_sub(table.embryonic_count()) {
        table.displace_embryonic(zone);
    }
    table.zone_count(zone) < sizes.entries.saturating_sub(table.count())
}

/// Lets the helper of a connection read the payload of a packet. Returns false if the payload announces a connection
/// that cannot be expected, or if NAT would have to change the payload, which is not supported.
fn help<A: Family>(
    tracker: &mut Tracker<A>,
    packet: &Packet<A>,
    tracked: &Tracked,
    passing: &Passing<'_>,
) -> bool {
    let payload = A::payload(passing.ip).unwrap_or_default();
    tracker.help(packet, tracked, payload, passing.now).is_ok_and(|help| help.replacement.is_none())
}

/// Returns the payload of a TCP or UDP packet.
fn payload_of(protocol: u8, message: &[u8]) -> Option<&[u8]> {
    match protocol {
        ip_proto::TCP => Tcp::parse(message).ok().map(|tcp| tcp.payload()),
        ip_proto::UDP => Udp::parse(message).ok().map(|udp| udp.payload()),
        _ => None,
    }
}

/// Returns the translation of a new connection that a packet opens. Returns `None` if the range has addresses of the
/// other family.
fn nat_of<A: Family>(range: &NatRange, packet: &Packet<A>) -> Option<Nat<A>> {
    let (target, own) = match range.end {
        // The source keeps its address.
        NatEnd::Source => (Target::Source, A::default()),
        NatEnd::Destination => (Target::Destination, packet.tuple.ends(packet.source)[1].address),
    };
    let (first_address, last_address) = match range.addresses {
        Some((first, last)) => (A::of(first)?, A::of(last)?),
        None => (own, own),
    };
    let choice = match range.selection {
        NatSelection::Any => Choice::default(),
        NatSelection::Hash => Choice::Hashed,
        NatSelection::Random => Choice::Random,
    };
    Some(Nat {
        target,
        first_address,
        last_address,
        ports: range.ports.map(|(first, last)| [first, last]),
        selection: Selection { choice, is_persistent: range.persistent },
    })
}

/// Returns the connection fields of a packet in a dry run, if no packet was tracked yet.
fn without_tables(packet: &Passing<'_>, zone: u16) -> ConnectionFields {
    fn of<A: Family>(packet: &Passing<'_>, zone: u16) -> Option<ConnectionFields> {
        let read = A::read(packet.ip, zone).ok().filter(|_| packet.is_sound)?;
        let tracker = Tracker::<A>::new(Sizes::of_entries(1), TupleHash::new());
        Some(fields(&tracker, &read, &tracker.peek(&read, packet.now), zone))
    }
    let fields = if packet.is_ipv6 { of::<u128>(packet, zone) } else { of::<u32>(packet, zone) };
    let state = (CtState::INVALID | CtState::TRACKED).0;
    fields.unwrap_or(ConnectionFields { state, zone, ..ConnectionFields::default() })
}

/// Returns the connection fields of a packet.
fn fields<A: Family>(
    tracker: &Tracker<A>,
    packet: &Packet<A>,
    tracked: &Tracked,
    zone: u16,
) -> ConnectionFields {
    let entry = tracked.id.and_then(|id| tracker.table.get(id));
    // A packet that does not belong to the connection with its tuple has no mark.
    let valid = tracked.id.filter(|_| tracked.invalid.is_none());
    let extension = valid.map(|id| tracker.table.extension(id)).unwrap_or_default();
    let (tuple, originator) =
        entry.map_or((packet.tuple, packet.source), |entry| (entry.tuple(), entry.originator()));
    let [source, destination] = tuple.ends(originator);
    ConnectionFields {
        state: tracked.state.0,
        zone,
        mark: extension.mark,
        label: extension.label,
        protocol: tuple.protocol,
        source: source.address.octets(),
        destination: destination.address.octets(),
        ports: ports(&tuple, originator),
    }
}

/// Returns the ports of the first packet of a connection, or type and code of an ICMP query.
fn ports<A: Address>(tuple: &Tuple<A>, originator: Side) -> [u16; 2] {
    match tuple.query() {
        Some(class) => [icmp_types(class, tuple.protocol)[0].into(), 0],
        None => tuple.ends(originator).map(|end| end.port),
    }
}

/// Returns the types of the request and of the reply of an ICMP or ICMPv6 query.
const fn icmp_types(class: QueryClass, protocol: u8) -> [u8; 2] {
    match class {
        QueryClass::Echo if protocol == ip_proto::ICMPV6 => [128, 129],
        QueryClass::Echo => [8, 0],
        QueryClass::Timestamp => [13, 14],
        QueryClass::Information => [15, 16],
        QueryClass::AddressMask => [17, 18],
    }
}

/// Returns whether the checksums of an IP packet are correct: of the IPv4 header, and of TCP, UDP and ICMP unless the
/// packet is a fragment.
pub(crate) fn is_sound(ip: &[u8], is_ipv6: bool) -> bool {
    let (protocol, pseudo, message) = if is_ipv6 {
        let Ok(view) = Ipv6::parse(ip) else { return false };
        let Ok(upper) = view.upper() else { return false };
        if upper.fragment.is_some() {
            return true;
        }
        let len = u32::try_from(upper.payload.len()).unwrap_or(u32::MAX);
        (upper.proto, checksum::l4_pseudo_v6(view.src(), view.dst(), upper.proto, len), upper.payload)
    } else {
        let Ok(view) = Ipv4::parse(ip) else { return false };
        if ip.get(..view.header_len()).is_none_or(|header| checksum::ipv4_header(header) != 0) {
            return false;
        }
        if view.is_fragment() {
            return true;
        }
        let (protocol, message) = (view.proto(), view.payload());
        let len = u16::try_from(message.len()).unwrap_or(u16::MAX);
        let pseudo = match protocol {
            ip_proto::ICMP => 0,
            _ => checksum::l4_pseudo_v4(view.src(), view.dst(), protocol, len),
        };
        (protocol, pseudo, message)
    };
    match protocol {
        // A UDP datagram over IPv4 may have no checksum (RFC 768).
        ip_proto::UDP if !is_ipv6 && message.get(6..8) == Some(&[0, 0]) => true,
        ip_proto::TCP | ip_proto::UDP | ip_proto::ICMPV6 => {
            checksum::finish(pseudo + checksum::sum(message)) == 0
        }
        ip_proto::ICMP if !is_ipv6 => checksum::finish(checksum::sum(message)) == 0,
        _ => true,
    }
}
