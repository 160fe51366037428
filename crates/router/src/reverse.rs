//! Whether packets come from where their sources are (unicast reverse path forwarding, RFC 3704 and 8704; Linux `fib_validate_source`).
//!
//! The tables are asked for the way back to the source, by the rules for a packet that goes there. It is asked of packets that would be routed or
//! given to the kernel on their way elsewhere; what is for this host or for a group, and addresses of the link, are the kernel's to judge.

use lookup::Hop;
use packet::record::WayBack;
use packet::{DropReason, FlowKey, L3Kind};
use sync::qsbr::Reader;

use crate::adjacency::FOREIGN;
use crate::paths::Verdict;
use crate::policy::Lookup;
use crate::room::{Decision, Punt, Routed, Router};

/// What an interface asks of the sources of packets that come in by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReversePath {
    /// Nothing.
    #[default]
    Off,
    /// That a route leads to them by this interface, as one way among others at least (RFC 3704, 2.2 and 2.3).
    Strict,
    /// That a route leads to them at all, a default route included (RFC 3704, 2.4).
    Loose,
}

/// Where packets to a source would leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Back {
    /// Nowhere: there is no route, or one to this host, or one that refuses.
    Nowhere,
    /// By the interface of this number, which is the one asked for if that is one of several.
    By(u16),
}

impl Router {
    /// Whether the sources of packets that came in by an interface are looked at.
    #[inline]
    #[must_use]
    pub fn checks(&self, interface: u16) -> bool {
        self.asks(interface) != ReversePath::Off
    }

    #[inline]
    fn asks(&self, interface: u16) -> ReversePath {
        self.reverse_paths.get(usize::from(interface)).copied().unwrap_or_default()
    }

    /// Drops those that have come in by an interface which does not accept them from their sources.
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
            if asks == ReversePath::Off || !is_on_its_way(*decision) {
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

    /// Where packets to the source of one that came in by an interface would leave.
    #[must_use]
    pub fn way_back(&self, interface: u16, reader: &Reader, key: &FlowKey) -> WayBack {
        match self.back(interface, reader, key) {
            Back::Nowhere => WayBack::None,
            Back::By(number) => match self.interfaces.get(usize::from(number)) {
                Some(Some(by)) => WayBack::Port(by.port),
                None | Some(None) => WayBack::Elsewhere,
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
            // What there is, and where it leads: to the interface asked for if one way does.
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
                    table.said(reader).each(hop, each);
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

/// Whether it would go elsewhere, be it by the kernel.
fn is_on_its_way(decision: Decision) -> bool {
    match decision {
        Decision::Forward { .. } | Decision::Refuse(_) => true,
        Decision::Punt(punt) => match punt {
            Punt::Expired
            | Punt::NoRoute
            | Punt::Unresolved
            | Punt::TooLong
            | Punt::Options
            | Punt::Elsewhere => true,
            Punt::NotIp | Punt::Group | Punt::Own | Punt::Scope | Punt::NotRouted => false,
        },
        Decision::Drop(_) => false,
    }
}
