//! Counters of the hook, one per outcome of the program. The kernel keeps them per CPU, and this module sums
//! them. The order of the counters is `enum trivium_counter` in `bpf/include/trivium_layout.h`.

use std::fmt;
use std::os::fd::BorrowedFd;

use crate::{Error, sys};

/// An outcome of a port's program. Each frame is counted under exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Counter {
    /// Redirected to the queue's socket. Losses at a full ring are counted by the socket.
    Steered,
    /// Passed to the kernel, because the queue has no socket and `when_down` is pass.
    DownPassed,
    /// Dropped, because the queue has no socket and `when_down` is drop.
    DownDropped,
    /// Passed to the kernel: neither IPv4 nor IPv6 (for example ARP, LLDP, LACP).
    PassedControl,
    /// Passed to the kernel: broadcast or multicast.
    PassedGroup,
    /// Passed to the kernel: packet to a local IPv4 address.
    PassedLocal4,
    /// Passed to the kernel: packet to a local or a link-local IPv6 address.
    PassedLocal6,
    /// Passed to the kernel: IP fragment.
    PassedFragment,
    /// Passed to the kernel: truncated or contradictory headers, or too many of them.
    PassedMalformed,
    /// A stage returned a verdict that it must not return, which is a defect.
    Aborted,
    /// Dropped by a rule of the filter.
    FilterDropped,
    /// Dropped, because the rate limit of a filter rule was exceeded.
    FilterLimited,
    /// Redirected to the device of a known station of the bridge.
    Bridged,
    /// Dropped: the device of the known destination station is gone, or the frame had no space for a VLAN
    /// tag.
    BridgeLost,
    /// Dropped: the frame waited for the order of its flow while the queue was losing frames.
    BridgeHeld,
    /// Forwarded by the kernel's routes and redirected.
    FibForwarded,
    /// Port with kernel routing, passed to the kernel: destination is another station's Ethernet address.
    FibStation,
    /// Port with kernel routing, passed to the kernel: VLAN tag.
    FibTagged,
    /// Port with kernel routing, passed to the kernel: an address that must not be forwarded. Examples are a
    /// source that is this host's own, a source whose reverse path leads elsewhere, and loopback, link-local
    /// and reserved addresses.
    FibAddress,
    /// Port with kernel routing, passed to the kernel: TTL or hop limit is 1 or 0.
    FibTtl,
    /// Port with kernel routing, passed to the kernel: IPv4 options or IPv6 extension headers.
    FibOptions,
    /// Port with kernel routing, passed to the kernel: partial checksum, which the stack must complete.
    FibPartial,
    /// Port with kernel routing, passed to the kernel: blackhole route.
    FibBlackhole,
    /// Port with kernel routing, passed to the kernel: unreachable route.
    FibUnreachable,
    /// Port with kernel routing, passed to the kernel: prohibit route.
    FibProhibit,
    /// Port with kernel routing, passed to the kernel: no route, or a route to this host or to a broadcast
    /// address.
    FibNoRoute,
    /// Port with kernel routing, passed to the kernel: forwarding is disabled on the device.
    FibDisabled,
    /// Port with kernel routing, passed to the kernel: the route encapsulates.
    FibTunnel,
    /// Port with kernel routing, passed to the kernel: the next hop's Ethernet address is unknown.
    FibNeighbor,
    /// Port with kernel routing, passed to the kernel: longer than the MTU of the route or the device.
    FibTooLong,
    /// Port with kernel routing, passed to the kernel: a kernel helper failed or returned an unknown code.
    FibFailed,
    /// Port with kernel routing, passed to the kernel: the output device is the input device.
    FibSameDevice,
    /// Port with kernel routing, passed to the kernel: the output device does not accept redirected frames of
    /// this kind.
    FibNoDevice,
    /// Passed to the kernel by an exact flow or the table of a steering.
    SteerKernel,
    /// Passed to the kernel on another CPU by an exact flow or the table of a steering.
    SteerCpu,
    /// SYN for a service, answered by the filter with a SYN cookie.
    FilterAnswered,
    /// Virtual router's port, passed to the kernel: destination is another station's Ethernet address.
    RouteStation,
    /// Virtual router's port, passed to the kernel: VLAN tag that is not configured.
    RouteTagged,
    /// Virtual router's port, passed to the kernel: an address that is never routed, or the router's own
    /// address as the source.
    RouteAddress,
    /// Virtual router's port, passed to the kernel: TTL or hop limit is 1 or 0.
    RouteTtl,
    /// Virtual router's port, passed to the kernel: IPv4 options or an IPv6 hop-by-hop header.
    RouteOptions,
    /// Forwarded by a virtual router's route in the hook and redirected to the next hop.
    RouteForwarded,
    /// Dropped by a blackhole route of a virtual router.
    RouteBlackhole,
    /// Matched a cached OpenFlow flow and was redirected to its output port's device.
    FlowForwarded,
    /// Dropped by the actions of a cached OpenFlow flow.
    FlowDropped,
    /// Virtual router's port, dropped: the reverse path of the source leads elsewhere or does not exist.
    RouteReversePath,
}

impl Counter {
    /// All counters, in the order of `enum trivium_counter`.
    pub const ALL: [Counter; 46] = [
        Counter::Steered,
        Counter::DownPassed,
        Counter::DownDropped,
        Counter::PassedControl,
        Counter::PassedGroup,
        Counter::PassedLocal4,
        Counter::PassedLocal6,
        Counter::PassedFragment,
        Counter::PassedMalformed,
        Counter::Aborted,
        Counter::FilterDropped,
        Counter::FilterLimited,
        Counter::Bridged,
        Counter::BridgeLost,
        Counter::BridgeHeld,
        Counter::FibForwarded,
        Counter::FibStation,
        Counter::FibTagged,
        Counter::FibAddress,
        Counter::FibTtl,
        Counter::FibOptions,
        Counter::FibPartial,
        Counter::FibBlackhole,
        Counter::FibUnreachable,
        Counter::FibProhibit,
        Counter::FibNoRoute,
        Counter::FibDisabled,
        Counter::FibTunnel,
        Counter::FibNeighbor,
        Counter::FibTooLong,
        Counter::FibFailed,
        Counter::FibSameDevice,
        Counter::FibNoDevice,
        Counter::SteerKernel,
        Counter::SteerCpu,
        Counter::FilterAnswered,
        Counter::RouteStation,
        Counter::RouteTagged,
        Counter::RouteAddress,
        Counter::RouteTtl,
        Counter::RouteOptions,
        Counter::RouteForwarded,
        Counter::RouteBlackhole,
        Counter::FlowForwarded,
        Counter::FlowDropped,
        Counter::RouteReversePath,
    ];

    /// Returns the name of the counter in metrics and tables. The name in C is `TRIVIUM_COUNT_` followed by
    /// this name in capitals.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Counter::Steered => "steered",
            Counter::DownPassed => "down_passed",
            Counter::DownDropped => "down_dropped",
            Counter::PassedControl => "passed_control",
            Counter::PassedGroup => "passed_group",
            Counter::PassedLocal4 => "passed_local4",
            Counter::PassedLocal6 => "passed_local6",
            Counter::PassedFragment => "passed_fragment",
            Counter::PassedMalformed => "passed_malformed",
            Counter::Aborted => "aborted",
            Counter::FilterDropped => "filter_dropped",
            Counter::FilterLimited => "filter_limited",
            Counter::Bridged => "bridged",
            Counter::BridgeLost => "bridge_lost",
            Counter::BridgeHeld => "bridge_held",
            Counter::FibForwarded => "fib_forwarded",
            Counter::FibStation => "fib_station",
            Counter::FibTagged => "fib_tagged",
            Counter::FibAddress => "fib_address",
            Counter::FibTtl => "fib_ttl",
            Counter::FibOptions => "fib_options",
            Counter::FibPartial => "fib_partial",
            Counter::FibBlackhole => "fib_blackhole",
            Counter::FibUnreachable => "fib_unreachable",
            Counter::FibProhibit => "fib_prohibit",
            Counter::FibNoRoute => "fib_no_route",
            Counter::FibDisabled => "fib_disabled",
            Counter::FibTunnel => "fib_tunnel",
            Counter::FibNeighbor => "fib_neighbor",
            Counter::FibTooLong => "fib_too_long",
            Counter::FibFailed => "fib_failed",
            Counter::FibSameDevice => "fib_same_device",
            Counter::FibNoDevice => "fib_no_device",
            Counter::SteerKernel => "steer_kernel",
            Counter::SteerCpu => "steer_cpu",
            Counter::FilterAnswered => "filter_answered",
            Counter::RouteStation => "route_station",
            Counter::RouteTagged => "route_tagged",
            Counter::RouteAddress => "route_address",
            Counter::RouteTtl => "route_ttl",
            Counter::RouteOptions => "route_options",
            Counter::RouteForwarded => "route_forwarded",
            Counter::RouteBlackhole => "route_blackhole",
            Counter::FlowForwarded => "flow_forwarded",
            Counter::FlowDropped => "flow_dropped",
            Counter::RouteReversePath => "route_reverse_path",
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Number of packets per outcome since the port's maps were created. The counts survive swaps, pins and
/// hand-overs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters([u64; Counter::ALL.len()]);

impl Default for Counters {
    fn default() -> Self {
        Counters([0; Counter::ALL.len()])
    }
}

impl Counters {
    /// Returns the number of packets with this outcome.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter.index()]
    }

    /// Returns every counter with its number of packets.
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL.into_iter().map(|counter| (counter, self.get(counter)))
    }

    /// Returns the number of packets that the program has seen, which is the sum of all counters.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.0.iter().fold(0, |sum, packets| sum.wrapping_add(*packets))
    }

    /// Reads the counters map. Counters that the map of an older program does not have are zero.
    pub(crate) fn read(map: BorrowedFd<'_>) -> Result<Counters, Error> {
        let failed = |source| Error::Map { map: "counters", operation: "read", source };
        let entries = sys::map_info(map).map_err(failed)?.max_entries;
        let mut counters = Counters::default();
        for (key, sum) in (0..entries).zip(counters.0.iter_mut()) {
            let per_cpu = sys::map_lookup_per_cpu(map, key, 1).map_err(failed)?;
            *sum = per_cpu.iter().fold(0, |sum: u64, packets| sum.wrapping_add(*packets));
        }
        Ok(counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_in_order_and_have_distinct_names() {
        for (index, counter) in Counter::ALL.into_iter().enumerate() {
            assert_eq!(counter.index(), index);
        }
        let names: std::collections::BTreeSet<_> = Counter::ALL.iter().map(|c| c.name()).collect();
        assert_eq!(names.len(), Counter::ALL.len());
    }
}
