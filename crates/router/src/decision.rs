//! The routing decision for each packet of a burst, made from extracted header fields without access to the
//! frames.
//!
//! The decisions are the same as those of Linux (`ip_rcv`, `ip_route_input`, `ip_forward` and their IPv6 counterparts),
//! with one difference. A packet that needs more than a new Ethernet header and a decremented TTL is punted to the
//! kernel. The kernel gets the packet unmodified and replies, resolves, fragments or delivers as usual. For packets
//! without a route, the router itself sends ICMP errors if it can build them ([`Router::error`]).

use std::net::IpAddr;
use std::sync::Arc;

use arrayvec::ArrayVec;
use lookup::Hop;
use packet::{DropReason, FlowKey, L3Kind, Layers};
use sync::qsbr::Reader;

use crate::address_bits::mapped;
use crate::adjacency::{AdjacencyView, FOREIGN};
use crate::buckets::spread;
use crate::fib::View;
use crate::icmp_settings::Errors;
use crate::interface::{Interface, ReversePath};
use crate::mirrored::{Kernel, Mirrored};
use crate::own_addresses::OwnAddresses;
use crate::paths::{PathEntries, Verdict};
use crate::policy::Lookup;
use crate::punt::Punt;
use crate::punt_policer::PuntPolicer;

/// Maximum number of packets in a burst.
const BURST: usize = 256;

/// Flag in the 64-bit word that holds an interface's MAC address: the interface also accepts the virtual MAC addresses
/// of VRRP. The MAC address itself leaves the two highest octets of the word unused.
const VRRP: u64 = 1 << 63;
/// First five octets of the virtual MAC addresses of VRRP for IPv4, as a word. The sixth octet of such an address is
/// the virtual router identifier.
const VRRP_4: u64 = u64::from_le_bytes([0, 0, 0x5e, 0, 1, 0, 0, 0]);
/// First five octets of the virtual MAC addresses of VRRP for IPv6, as a word.
const VRRP_6: u64 = u64::from_le_bytes([0, 0, 0x5e, 0, 2, 0, 0, 0]);
/// Mask of the first five octets of a MAC address that is stored in a word.
const VRRP_BITS: u64 = u64::from_le_bytes([0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0]);

/// The reason why a packet is dropped with an ICMP error to its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no route to the destination.
    NoRoute,
    /// The route marks the destination as unreachable.
    Unreachable,
    /// The route prohibits communication with the destination.
    Prohibit,
}

impl Refusal {
    /// Returns a text that describes the reason.
    #[must_use]
    pub const fn explain(self) -> &'static str {
        match self {
            Refusal::NoRoute => "There is no route to its destination",
            Refusal::Unreachable => "Its route says that the destination cannot be reached",
            Refusal::Prohibit => "Its route says that it is forbidden",
        }
    }
}

/// The routing decision for one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Forwards the packet to a neighbour.
    Forward {
        /// Number of the neighbour's adjacency ([`AdjacencyView::read`]). The packet is counted for this adjacency.
        adjacency: u32,
        /// Number of the egress interface.
        interface: u16,
    },
    /// Punts the packet to the kernel.
    Punt(Punt),
    /// Drops the packet and reports the drop to the sender with an ICMP error. The error is sent by this router
    /// ([`Router::error`]) or by the kernel.
    Refuse(Refusal),
    /// Drops the packet.
    Drop(DropReason),
}

const _: () = assert!(size_of::<Decision>() == 8);

impl Default for Decision {
    fn default() -> Self {
        Decision::Drop(DropReason::NoFunction)
    }
}

/// Snapshot of a router's settings, interfaces and rules, from which workers make routing decisions. If interfaces or
/// rules change, a new snapshot replaces this one. Changes of routes and adjacencies are visible to workers without a
/// new snapshot.
#[derive(Clone, Debug)]
pub struct Router {
    /// Interfaces of the router, by interface number.
    pub interfaces: Vec<Option<Interface>>,
    /// Policy rules for IPv4, in the order of their evaluation.
    pub four: Vec<Lookup>,
    /// Policy rules for IPv6, in the order of their evaluation.
    pub six: Vec<Lookup>,
    /// Read access to the router's adjacencies.
    pub adjacencies: AdjacencyView,
    /// Punt TAP of the router, through which the kernel receives packets of all interfaces that have no separate punt
    /// TAP. The value is `None` if the router has no common punt TAP.
    pub kernel: Option<Kernel>,
    /// VLAN tags of the interfaces, and the punt TAPs of interfaces that have a separate punt TAP.
    pub mirrored: Mirrored,
    /// Reverse path check mode of each interface, by interface number: how the source addresses of received packets are
    /// verified. Interfaces beyond the end of the list have the mode [`ReversePath::Off`].
    pub reverse_paths: Vec<ReversePath>,
    /// IPv4 addresses of this host, and broadcast addresses of its links. A packet to be forwarded must not have such a
    /// source address.
    pub own_addresses: Arc<OwnAddresses>,
    /// Settings of the router's ICMP errors.
    pub errors: Errors,
    /// Rate limits of punted packets and ICMP errors.
    pub punt_policer: Arc<PuntPolicer>,
    /// Seed of the flow hash. Routers with different seeds choose next hops independently of each other.
    pub seed: u32,
}

/// Working memory of one worker for routing decisions: the packets of the current burst that are to be routed, with
/// their destinations. The memory is reused for each burst.
pub struct Scratch {
    four: Pending<u32>,
    six: Pending<u128>,
    hops: Box<[Hop; BURST]>,
    /// Indices, in the burst, of the packets whose TTL or hop limit has expired.
    expired: ArrayVec<u16, BURST>,
}

impl Default for Scratch {
    fn default() -> Self {
        let hops = Box::new([Hop::NONE; BURST]);
        Scratch { four: Pending::new(0), six: Pending::new(0), hops, expired: ArrayVec::new() }
    }
}

impl Scratch {
    /// Clears the memory for a new burst, and returns the collector of the burst's packets.
    #[inline]
    pub fn begin(&mut self) -> Gathering<'_> {
        self.expired.clear();
        let Scratch { four, six, expired, .. } = self;
        Gathering { four: four.begin(), six: six.begin(), expired }
    }
}

/// A collector of the packets of a burst that are to be routed. The collector accepts at most 256 packets and ignores
/// additional packets.
pub struct Gathering<'a> {
    four: Filling<'a, u32>,
    six: Filling<'a, u128>,
    expired: &'a mut ArrayVec<u16, BURST>,
}

impl Gathering<'_> {
    /// Adds plain IPv4 packets ([`crate::fast_path`]) with consecutive indices from `from` on, up to the first packet
    /// for which `destination` returns `None`. Returns the number of packets added.
    #[inline(always)]
    pub fn fours(&mut self, from: usize, destination: impl FnMut(usize) -> Option<u32>) -> usize {
        self.four.extend(from, destination)
    }

    /// Adds plain IPv6 packets with consecutive indices, like [`Gathering::fours`].
    #[inline(always)]
    pub fn sixes(&mut self, from: usize, destination: impl FnMut(usize) -> Option<u128>) -> usize {
        self.six.extend(from, destination)
    }

    /// Adds the packet at index `place` of the burst to the packets to be routed. `admitted` is the result of
    /// [`Router::admit`] for the packet. If the packet is not to be routed, the function returns the decision in
    /// `admitted` instead.
    #[inline(always)]
    pub fn admitted(&mut self, admitted: Admitted, place: usize) -> Option<Decision> {
        let (destination, hops) = match admitted {
            Admitted::Not(decision) => return Some(decision),
            Admitted::To { destination, hops } => (destination, hops),
        };
        match destination {
            IpAddr::V4(address) => self.four.push(address.to_bits(), place),
            IpAddr::V6(address) => self.six.push(address.to_bits(), place),
        }
        if hops <= 1 {
            let _ = self.expired.try_push(u16::try_from(place).unwrap_or(0));
        }
        None
    }

    /// Ends the collection of the burst's packets.
    #[inline]
    pub fn end(self) {
        let Gathering { four, six, .. } = self;
        (*four.whole, *six.whole) = (four.len, six.len);
    }
}

/// Destinations whose routes are still to be looked up, and the indices of their packets in the burst.
struct Pending<A> {
    addresses: Box<[A; BURST]>,
    places: Box<[u16; BURST]>,
    /// Working memory for the packets that a policy rule does not select, while the list is reordered.
    others: Box<[(A, u16); BURST]>,
    len: usize,
}

impl<A: Copy> Pending<A> {
    fn new(zero: A) -> Self {
        Pending {
            addresses: Box::new([zero; BURST]),
            places: Box::new([0; BURST]),
            others: Box::new([(zero, 0); BURST]),
            len: 0,
        }
    }

    #[inline(always)]
    fn begin(&mut self) -> Filling<'_, A> {
        let Pending { addresses, places, len, .. } = self;
        *len = 0;
        Filling { addresses, places, len: 0, whole: len }
    }

    /// Moves the packets for which `first` returns true to the front of the list, and returns the number of these
    /// packets. The order of the packets within both parts does not change.
    fn part(&mut self, first: impl Fn(usize) -> bool) -> usize {
        let (mut kept, mut others) = (0, 0);
        for at in 0..self.len {
            let (address, place) = (self.addresses[at], self.places[at]);
            if first(usize::from(place)) {
                (self.addresses[kept], self.places[kept]) = (address, place);
                kept += 1;
            } else {
                self.others[others] = (address, place);
                others += 1;
            }
        }
        for (at, (address, place)) in (kept..).zip(&self.others[..others]) {
            (self.addresses[at], self.places[at]) = (*address, *place);
        }
        kept
    }
}

/// Appends packets to a [`Pending`] list. The list's length is kept in a local copy here, so that the compiler can hold
/// the length in a register.
struct Filling<'a, A> {
    addresses: &'a mut [A; BURST],
    places: &'a mut [u16; BURST],
    len: usize,
    whole: &'a mut usize,
}

impl<A> Filling<'_, A> {
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "a burst has at most 256 places")]
    fn push(&mut self, address: A, place: usize) {
        if let (Some(at), Some(to)) = (self.addresses.get_mut(self.len), self.places.get_mut(self.len)) {
            (*at, *to) = (address, place as u16);
            self.len += 1;
        }
    }

    /// Appends the packets with consecutive indices from `from` on, as long as the list has space and `next` returns an
    /// address for the index. Returns the number of packets appended.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "a burst has at most 256 places")]
    fn extend(&mut self, from: usize, mut next: impl FnMut(usize) -> Option<A>) -> usize {
        let (Some(addresses), Some(places)) =
            (self.addresses.get_mut(self.len..), self.places.get_mut(self.len..))
        else {
            return 0;
        };
        let mut taken = 0;
        for to in addresses {
            let Some(address) = next(from + taken) else { break };
            *to = address;
            taken += 1;
        }
        for (place, to) in (from..).zip(places.iter_mut().take(taken)) {
            *to = place as u16;
        }
        self.len += taken;
        taken
    }
}

/// The type of a destination address: `u32` for IPv4, `u128` for IPv6.
pub(crate) trait Routed: Copy {
    fn route(
        view: &View,
        reader: &Reader,
        addresses: &[Self],
        hash: impl Fn(usize) -> u32,
        each: impl FnMut(usize, Verdict),
    );
    fn hops(view: &View, reader: &Reader, addresses: &[Self], hops: &mut [Hop]);
    fn bits(self) -> u128;
}

impl Routed for u32 {
    #[inline(always)]
    fn route(
        view: &View,
        reader: &Reader,
        addresses: &[u32],
        hash: impl Fn(usize) -> u32,
        each: impl FnMut(usize, Verdict),
    ) {
        view.route4(reader, addresses, hash, each);
    }

    #[inline(always)]
    fn hops(view: &View, reader: &Reader, addresses: &[u32], hops: &mut [Hop]) {
        view.hops4(reader, addresses, hops);
    }

    #[inline(always)]
    fn bits(self) -> u128 {
        mapped(self)
    }
}

impl Routed for u128 {
    #[inline(always)]
    fn route(
        view: &View,
        reader: &Reader,
        addresses: &[u128],
        hash: impl Fn(usize) -> u32,
        each: impl FnMut(usize, Verdict),
    ) {
        view.route6(reader, addresses, hash, each);
    }

    #[inline(always)]
    fn hops(view: &View, reader: &Reader, addresses: &[u128], hops: &mut [Hop]) {
        view.hops6(reader, addresses, hops);
    }

    #[inline(always)]
    fn bits(self) -> u128 {
        self
    }
}

/// The result of the checks of a packet before routing.
#[derive(Clone, Copy, Debug)]
pub enum Admitted {
    /// The packet is to be routed.
    To {
        /// Destination address of the packet.
        destination: IpAddr,
        /// Remaining TTL or hop limit of the packet.
        hops: u8,
    },
    /// The packet is not to be routed. The value is the decision for it.
    Not(Decision),
}

/// The parameters of one route look-up: functions that return the ingress interface and the flow key of a packet, and
/// the reader of the routing tables.
struct Asked<'a, I, K> {
    /// Function that returns the ingress interface of the packet at an index.
    interface: I,
    reader: &'a Reader,
    /// Function that returns the flow key of the packet at an index.
    key: K,
}

impl Router {
    /// Makes the routing decisions for a burst of packets that arrived on one interface. The number of packets
    /// is the length of the shortest slice, at most 256.
    pub fn decide(
        &self,
        interface: u16,
        reader: &Reader,
        keys: &[FlowKey],
        layers: &[Layers],
        scratch: &mut Scratch,
        out: &mut [Decision],
    ) {
        self.decide_each(|_| interface, reader, keys, layers, scratch, out);
    }

    /// Makes the routing decisions like [`Router::decide`], for packets that arrived on several interfaces. `interface`
    /// returns the number of the ingress interface of the packet at an index.
    pub fn decide_each(
        &self,
        interface: impl Fn(usize) -> u16,
        reader: &Reader,
        keys: &[FlowKey],
        layers: &[Layers],
        scratch: &mut Scratch,
        out: &mut [Decision],
    ) {
        let mut gathering = scratch.begin();
        let (mut last, mut own) = (None, None);
        for (place, ((key, layers), out)) in keys.iter().zip(layers).zip(&mut *out).enumerate() {
            let number = interface(place);
            if last != Some(number) {
                (last, own) = (Some(number), self.own(number));
            }
            let Some(own) = own else {
                *out = Decision::Drop(DropReason::NoFunction);
                continue;
            };
            if let Some(decision) = gathering.admitted(self.admit(own, key, layers), place) {
                *out = decision;
            }
        }
        gathering.end();
        self.answer(interface, reader, |place| keys.get(place).copied().unwrap_or_default(), scratch, out);
    }

    /// Returns the MAC address of an interface as a word ([`packet::MacAddr::to_wire_word`]), with a flag for VRRP.
    /// Returns `None` if the router has no interface with this number. The caller then drops packets that arrived on
    /// this interface.
    #[inline]
    #[must_use]
    pub fn own(&self, interface: u16) -> Option<u64> {
        let own = self.interfaces.get(usize::from(interface))?.as_ref()?;
        Some(own.mac.to_wire_word() | if own.vrrp { VRRP } else { 0 })
    }

    /// Checks whether a packet is to be routed, like Linux's receive path. `own` is the MAC address of the packet's
    /// ingress interface as a word ([`Router::own`]).
    #[inline(always)]
    #[must_use]
    pub fn admit(&self, own: u64, key: &FlowKey, layers: &Layers) -> Admitted {
        if key.eth_dst_word() != own || layers.is_special() {
            return self.special(own, key, layers);
        }
        match key.untagged_l3() {
            L3Kind::Ipv4 => four(&self.own_addresses, key),
            L3Kind::Ipv6 => six(key),
            L3Kind::None | L3Kind::Arp => self.special(own, key, layers),
        }
    }

    /// Checks a packet that is not addressed to the interface's own MAC address, or that is not a plain IP packet.
    #[cold]
    fn special(&self, own: u64, key: &FlowKey, layers: &Layers) -> Admitted {
        let is_group = key.eth_dst().is_multicast();
        Admitted::Not(if !is_group && !is_own(own, key) {
            Decision::Drop(DropReason::NotForUs)
        } else if let (None, Some(reason)) = (layers.l3(), layers.malformed()) {
            // A packet malformed above L3 is routed like any other. A header that is not whole in the first segment of
            // the packet looks malformed here, and the kernel would read it past the reverse path check.
            Decision::Drop(reason)
        } else if is_group {
            Decision::Punt(Punt::Group)
        } else if key.is_tagged()
            || matches!(key.l3_kind(), L3Kind::None | L3Kind::Arp)
            || layers.l2_len() != 14
        {
            Decision::Punt(Punt::NotIp)
        } else if layers.has_ipv4_options() || layers.has_hop_by_hop() {
            Decision::Punt(Punt::Options)
        } else if key.l3_kind() == L3Kind::Ipv4 {
            return four(&self.own_addresses, key);
        } else {
            return six(key);
        })
    }

    /// Makes the routing decisions for the packets collected in `scratch`. `interface` returns the ingress interface of
    /// the packet at an index, and `key` returns its flow key. Both functions are called only if a policy rule or a
    /// choice among several next hops needs them.
    pub fn answer(
        &self,
        interface: impl Fn(usize) -> u16,
        reader: &Reader,
        key: impl Fn(usize) -> FlowKey,
        scratch: &mut Scratch,
        out: &mut [Decision],
    ) {
        let Scratch { four, six, hops, expired } = scratch;
        let asked = Asked { interface, reader, key };
        if !self.ask_once(&asked, &self.four, four, hops, out) {
            self.ask(&asked, &self.four, four, out);
        }
        if !self.ask_once(&asked, &self.six, six, hops, out) {
            self.ask(&asked, &self.six, six, out);
        }
        for place in expired.iter() {
            let Some(out) = out.get_mut(usize::from(*place)) else { continue };
            if matches!(out, Decision::Forward { .. } | Decision::Punt(Punt::Unresolved | Punt::Elsewhere)) {
                *out = Decision::Punt(Punt::Expired);
            }
        }
        if !self.reverse_paths.is_empty() {
            self.check_sources(&asked.interface, reader, &asked.key, out);
        }
    }

    /// Handles the common case of one policy rule that selects all packets and refers to a routing table: looks up all
    /// packets in this table and stores the decisions. In any other case, the function does nothing and returns false.
    #[inline(always)]
    fn ask_once<A: Routed, I, K: Fn(usize) -> FlowKey>(
        &self,
        asked: &Asked<'_, I, K>,
        lookups: &[Lookup],
        pending: &Pending<A>,
        hops: &mut [Hop; BURST],
        out: &mut [Decision],
    ) -> bool {
        let n = pending.len;
        if n == 0 {
            return true;
        }
        let [only] = lookups else { return false };
        let (None, Ok(table)) = (only.selector(), only.ask()) else { return false };
        let (Some(addresses), Some(hops)) = (pending.addresses.get(..n), hops.get_mut(..n)) else {
            return false;
        };
        A::hops(table, asked.reader, addresses, hops);
        let said = table.path_entries(asked.reader);
        for ((hop, address), place) in hops.iter().zip(addresses).zip(&*pending.places) {
            let Some(out) = out.get_mut(usize::from(*place)) else { continue };
            *out = match said.onward(*hop).and_then(|adjacency| self.forward(adjacency)) {
                Some(forward) => forward,
                None => self.seldom(asked, &said, *hop, address.bits(), *place),
            };
        }
        true
    }

    /// Returns the decision for a packet whose path is not a single next hop with a resolved neighbour.
    #[inline(never)]
    fn seldom<I, K: Fn(usize) -> FlowKey>(
        &self,
        asked: &Asked<'_, I, K>,
        said: &PathEntries<'_>,
        hop: Hop,
        destination: u128,
        place: u16,
    ) -> Decision {
        let hash = || self.hash(&(asked.key)(usize::from(place)));
        self.conclude(said.verdict(hop, hash), || destination)
    }

    /// Returns the decision to forward a packet to an adjacency. Returns `None` unless the adjacency is a
    /// resolved neighbour on an interface of the router.
    #[inline(always)]
    fn forward(&self, adjacency: u32) -> Option<Decision> {
        let interface = self.adjacencies.read(adjacency).leaves_by()?;
        Some(Decision::Forward { adjacency, interface })
    }

    /// Returns the hash of a flow, which selects one of several next hops.
    #[inline(always)]
    fn hash(&self, key: &FlowKey) -> u32 {
        spread(self.seed, key.hash_symmetric())
    }

    /// Looks packets up in the routing tables of the policy rules, one table after another. A table is used
    /// only for packets that its rule selects and for which no earlier table has a result.
    #[inline(always)]
    fn ask<A: Routed, I: Fn(usize) -> u16, K: Fn(usize) -> FlowKey>(
        &self,
        asked: &Asked<'_, I, K>,
        lookups: &[Lookup],
        pending: &mut Pending<A>,
        out: &mut [Decision],
    ) {
        let Asked { interface, reader, key } = asked;
        for lookup in lookups {
            if pending.len == 0 {
                return;
            }
            let mine = match lookup.selector() {
                None => pending.len,
                Some(selector) => pending.part(|place| selector.selects(&key(place), interface(place))),
            };
            let Pending { addresses, places, others, len } = pending;
            let mut left = 0;
            let each = |at: usize, verdict: Verdict| {
                let (address, place) = (addresses[at], places[at]);
                let Some(out) = out.get_mut(usize::from(place)) else { return };
                *out = self.conclude(verdict, || address.bits());
                if matches!(verdict, Verdict::NoRoute | Verdict::Throw) {
                    // A later table may have a route.
                    others[left] = (address, place);
                    left += 1;
                }
            };
            match lookup.ask() {
                Ok(table) => {
                    let hash = |at: usize| self.hash(&key(usize::from(places[at])));
                    A::route(table, reader, &addresses[..mine], hash, each);
                }
                Err(verdict) => {
                    let mut each = each;
                    (0..mine).for_each(|at| each(at, verdict));
                }
            }
            if left == 0 && mine == *len {
                *len = 0;
                return;
            }
            // Packets that the rule has not selected follow the packets without a result.
            for at in mine..*len {
                others[left] = (addresses[at], places[at]);
                left += 1;
            }
            for (at, (address, place)) in others[..left].iter().enumerate() {
                (addresses[at], places[at]) = (*address, *place);
            }
            *len = left;
        }
        // Packets that no rule selected have no decision yet.
        for place in &pending.places[..pending.len] {
            if let Some(out) = out.get_mut(usize::from(*place)) {
                *out = Decision::Refuse(Refusal::NoRoute);
            }
        }
    }

    /// Converts the result of a packet's route look-up to a routing decision. `destination` returns the packet's
    /// destination address.
    #[inline(always)]
    fn conclude(&self, verdict: Verdict, destination: impl FnOnce() -> u128) -> Decision {
        if let Verdict::Forward(adjacency) = verdict
            && let Some(forward) = self.forward(adjacency)
        {
            return forward;
        }
        self.otherwise(verdict, destination())
    }

    /// Returns the routing decision for a look-up result that [`Router::forward`] does not handle: any result other
    /// than a single next hop with a resolved neighbour.
    #[inline(never)]
    fn otherwise(&self, verdict: Verdict, destination: u128) -> Decision {
        match verdict {
            Verdict::Forward(number) => self.towards(number, destination),
            Verdict::Local => Decision::Punt(Punt::Own),
            Verdict::Blackhole => Decision::Drop(DropReason::RouteBlackhole),
            Verdict::NotForwarding => Decision::Drop(DropReason::ForwardingOff),
            Verdict::NoRoute | Verdict::Throw => Decision::Refuse(Refusal::NoRoute),
            Verdict::Unreachable => Decision::Refuse(Refusal::Unreachable),
            Verdict::Prohibit => Decision::Refuse(Refusal::Prohibit),
        }
    }

    /// Returns the routing decision for a packet whose route leads to the adjacency with this number. If the adjacency
    /// represents on-link destinations, the adjacency of the packet's own destination is used instead.
    fn towards(&self, mut number: u32, destination: u128) -> Decision {
        let mut adjacency = self.adjacencies.read(number);
        if adjacency.is_on_link() {
            number = self.adjacencies.find(adjacency.device(), destination);
            adjacency = self.adjacencies.read(number);
        }
        match adjacency.interface() {
            _ if !adjacency.is_resolved() => Decision::Punt(Punt::Unresolved),
            FOREIGN => Decision::Punt(Punt::Elsewhere),
            interface => Decision::Forward { adjacency: number, interface },
        }
    }
}

/// Returns whether an interface accepts the Ethernet destination address of a packet. `own` is the MAC address of the
/// interface as a word ([`Router::own`]).
fn is_own(own: u64, key: &FlowKey) -> bool {
    let to = key.eth_dst_word();
    let virtual_router = match key.l3_kind() {
        L3Kind::Ipv4 => VRRP_4,
        L3Kind::Ipv6 => VRRP_6,
        L3Kind::None | L3Kind::Arp => return to == own & !VRRP,
    };
    to == own & !VRRP || own & VRRP != 0 && to & VRRP_BITS == virtual_router
}

/// Checks the source and destination addresses of an IPv4 packet (RFC 1812, 5.3.7, Linux `ip_route_input_slow`).
#[inline(always)]
fn four(own: &OwnAddresses, key: &FlowKey) -> Admitted {
    let (source, destination) = (key.ipv4_src().to_bits(), key.ipv4_dst().to_bits());
    let admitted = Admitted::To { destination: key.ipv4_dst().into(), hops: key.ttl() };
    let (from, to) = (source >> 24, destination >> 24);
    let is_own = own.holds(source);
    // Both first octets are in 1 to 223 and not 127.
    if from.wrapping_sub(1) < 223 && to.wrapping_sub(1) < 223 && from != 127 && to != 127 && !is_own {
        return admitted;
    }
    let group = |address: u32| address >> 28 == 0xe || address == u32::MAX;
    Admitted::Not(if group(destination) {
        Decision::Punt(Punt::Group)
    } else if group(source) || matches!(from, 0 | 127) || is_own {
        // A source that is this host's own or a broadcast address.
        Decision::Drop(DropReason::MartianSource)
    } else if matches!(to, 0 | 127) {
        Decision::Drop(DropReason::MartianDestination)
    } else {
        return admitted;
    })
}

/// Checks the source and destination addresses of an IPv6 packet (RFC 4291, 2.5, Linux `ip6_rcv_core`, `ip6_forward`).
#[inline(always)]
fn six(key: &FlowKey) -> Admitted {
    let (source, destination) = (key.ipv6_src().to_bits(), key.ipv6_dst().to_bits());
    let admitted = Admitted::To { destination: key.ipv6_dst().into(), hops: key.ttl() };
    // 2000::/3 covers all global unicast addresses assigned today.
    if source >> 125 == 1 && destination >> 125 == 1 {
        return admitted;
    }
    let link = |address: u128| address >> 118 == 0xfe80 >> 6;
    Admitted::Not(if source >> 120 == 0xff || source <= 1 || source >> 32 == 0xffff {
        Decision::Drop(DropReason::MartianSource)
    } else if destination >> 120 == 0xff {
        Decision::Punt(Punt::Group)
    } else if destination <= 1 {
        Decision::Drop(DropReason::MartianDestination)
    } else if link(source) || link(destination) {
        Decision::Punt(Punt::Scope)
    } else {
        return admitted;
    })
}
