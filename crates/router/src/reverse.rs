//! Unicast reverse path forwarding: verification of source addresses (RFC 3704 and 8704, Linux
//! `fib_validate_source`).
//!
//! The route to the source address of a packet is looked up, with the policy rules that apply to a packet in the
//! reverse direction. The check applies to packets that the router or the kernel would forward, and to packets to this
//! host. Packets to multicast groups are not checked, nor are IPv6 packets that can only come from the link: packets
//! with a link-local source, and neighbour discovery.

use lookup::Hop;
use packet::record::ReverseRoute;
use packet::{DropReason, FlowKey, L3Kind, ip_proto};
use sync::qsbr::Reader;

use crate::adjacency::FOREIGN;
use crate::decision::{Decision, Routed, Router};
use crate::interface::ReversePath;
use crate::paths::Verdict;
use crate::policy::Lookup;
use crate::punt::Punt;

/// ICMPv6 types of neighbour discovery messages (RFC 4861).
const DISCOVERY: std::ops::RangeInclusive<u16> = 133..=137;
/// Hop limit of a neighbour discovery message, which proves that no router has forwarded it.
const DISCOVERY_HOPS: u8 = 255;

/// The result of the look-up of the route to a packet's source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Back {
    /// There is no route to the source address, or the route is local or refuses packets.
    Nowhere,
    /// The route to the source address leads to the interface with this number. If one of several next hops is on the
    /// ingress interface, the value is the ingress interface.
    By(u16),
}

impl Router {
    /// Returns whether the source addresses of packets that arrive on an interface are verified.
    #[inline]
    #[must_use]
    pub fn checks(&self, interface: u16) -> bool {
        self.asks(interface) != ReversePath::Off
    }

    #[inline]
    fn asks(&self, interface: u16) -> ReversePath {
        self.reverse_paths.get(usize::from(interface)).copied().unwrap_or_default()
    }

    /// Drops packets whose source address fails the reverse path check of their ingress interface.
    #[inline(never)]
    pub(crate) fn check_sources(
        &self,
        interface: &impl Fn(usize) -> u16,
        reader: &Reader,
        key: &impl Fn(usize) -> FlowKey,
        out: &mut [Decision],
    ) {
        for (place, decision) in out.iter_mut().enumerate() {
            let arrival = interface(place);
            let asks = self.asks(arrival);
            if asks == ReversePath::Off || !is_checked(*decision, || key(place)) {
                continue;
            }
            let accepted = match (asks, self.back(arrival, reader, &key(place))) {
                (_, Back::Nowhere) => false,
                (ReversePath::Strict, Back::By(interface)) => interface == arrival,
                (ReversePath::Off | ReversePath::Loose, Back::By(_)) => true,
            };
            if !accepted {
                *decision = Decision::Drop(DropReason::ReversePath);
            }
        }
    }

    /// Looks up the route to the source address of a packet. Returns the port through which this route leads. If there
    /// is no such port, the result states whether there is no route, or whether the route leads to a device that is not
    /// a port of the router.
    #[must_use]
    pub fn reverse_route(&self, interface: u16, reader: &Reader, key: &FlowKey) -> ReverseRoute {
        match self.back(interface, reader, key) {
            Back::Nowhere => ReverseRoute::None,
            Back::By(number) => match self.interfaces.get(usize::from(number)) {
                Some(Some(by)) => ReverseRoute::Port(by.port),
                None | Some(None) => ReverseRoute::Elsewhere,
            },
        }
    }

    fn back(&self, interface: u16, reader: &Reader, key: &FlowKey) -> Back {
        match key.l3_kind() {
            L3Kind::Ipv4 => self.leads(&self.four, key.ipv4_src().to_bits(), interface, reader, key),
            L3Kind::Ipv6 => self.leads(&self.six, key.ipv6_src().to_bits(), interface, reader, key),
            L3Kind::None | L3Kind::Arp => Back::Nowhere,
        }
    }

    fn leads<A: Routed>(
        &self,
        lookups: &[Lookup],
        source: A,
        interface: u16,
        reader: &Reader,
        key: &FlowKey,
    ) -> Back {
        for lookup in lookups {
            if lookup.selector().is_some_and(|selector| !selector.selects_back(key)) {
                continue;
            }
            // Scans all next hops. A next hop on the ingress interface takes precedence.
            let (mut said, mut by) = (Verdict::NoRoute, FOREIGN);
            let each = |verdict: Verdict| {
                if let Verdict::Forward(number) = verdict {
                    let leaves = self.adjacencies.read(number).interface();
                    if !matches!(said, Verdict::Forward(_)) || leaves == interface {
                        by = leaves;
                    }
                }
                said = verdict;
            };
            match lookup.ask() {
                Ok(table) => {
                    let mut hops = [Hop::NONE];
                    A::hops(table, reader, &[source], &mut hops);
                    let [hop] = hops;
                    table.path_entries(reader).each(hop, each);
                }
                Err(verdict) => said = verdict,
            }
            match said {
                Verdict::NoRoute | Verdict::Throw => {}
                Verdict::Forward(_) => return Back::By(by),
                Verdict::Local
                | Verdict::Blackhole
                | Verdict::Unreachable
                | Verdict::Prohibit
                | Verdict::NotForwarding => return Back::Nowhere,
            }
        }
        Back::Nowhere
    }
}

/// Returns whether the reverse path check applies to a packet with this routing decision. `key` returns the
/// packet's flow key.
fn is_checked(decision: Decision, key: impl FnOnce() -> FlowKey) -> bool {
    match decision {
        Decision::Forward { .. } | Decision::Refuse(_) => true,
        Decision::Punt(punt) => match punt {
            Punt::Expired
            | Punt::NoRoute
            | Punt::Unresolved
            | Punt::TooLong
            | Punt::Options
            | Punt::Elsewhere => true,
            // Packets are also punted as `Own` if the kernel forwards them along a route that only the kernel supports.
            Punt::Own | Punt::Scope => !is_from_link(&key()),
            Punt::Group => is_unicast_from_elsewhere(&key()),
            Punt::NotIp | Punt::NotRouted => false,
        },
        Decision::Drop(_) => false,
    }
}

/// Returns whether a packet that was sent to a group MAC address must be checked: its IP destination is a unicast
/// address other than 0.0.0.0 and 255.255.255.255, and its source need not be on the link. The kernel receives these
/// packets like other packets to its own addresses.
fn is_unicast_from_elsewhere(key: &FlowKey) -> bool {
    match key.l3_kind() {
        _ if key.is_tagged() => false,
        L3Kind::Ipv4 => {
            let destination = key.ipv4_dst();
            let is_group =
                destination.is_multicast() || destination.is_broadcast() || destination.is_unspecified();
            // DHCP clients have no address yet.
            !is_group && !key.ipv4_src().is_unspecified()
        }
        L3Kind::Ipv6 => !key.ipv6_dst().is_multicast() && !is_from_link(key),
        L3Kind::None | L3Kind::Arp => false,
    }
}

/// Returns whether an IPv6 packet can only come from the link of its interface.
fn is_from_link(key: &FlowKey) -> bool {
    let is_discovery = key.proto() == ip_proto::ICMPV6
        && key.ttl() == DISCOVERY_HOPS
        && !key.is_later_fragment()
        && DISCOVERY.contains(&key.src_port());
    key.l3_kind() == L3Kind::Ipv6 && (key.ipv6_src().is_unicast_link_local() || is_discovery)
}
