//! The hook's counters: one per way out of the program, per CPU in the kernel and summed here.
//! Their order is `enum trivium_counter` in `bpf/include/trivium_layout.h`.

use std::fmt;
use std::os::fd::BorrowedFd;

use crate::{Error, sys};

/// One way out of a port's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Counter {
    /// Redirected to the queue's socket. Losses at a full ring count at the socket.
    Steered,
    /// No socket in the queue's slot; passed to the kernel as `when_down` says.
    DownPassed,
    /// No socket in the queue's slot; dropped as `when_down` says.
    DownDropped,
    /// Neither IPv4 nor IPv6 (ARP, LLDP, LACP, ...): the kernel's.
    PassedControl,
    /// Broadcast or multicast: the kernel's.
    PassedGroup,
    /// To a local IPv4 address.
    PassedLocal4,
    /// To a local IPv6 address, or to a link-local one.
    PassedLocal6,
    /// An IP fragment: the kernel's.
    PassedFragment,
    /// Headers truncated, contradictory or too deep: the kernel's to judge.
    PassedMalformed,
    /// A verdict that no stage may give: a defect.
    Aborted,
    /// A rule of the filter dropped it.
    FilterDropped,
    /// Over the rate of a rule of the filter; dropped.
    FilterLimited,
    /// Redirected to the device of a known station of the bridge.
    Bridged,
    /// For a known station whose device went a moment ago; dropped.
    BridgeLost,
    /// The queue loses frames anyway, and the flow is about to change to the hook; dropped.
    BridgeHeld,
    /// Routed as the kernel would, and redirected.
    FibForwarded,
    /// For another station's Ethernet address: the kernel's, as the following.
    FibStation,
    /// With a VLAN tag.
    FibTagged,
    /// From or to an address that is not forwarded as it is: this host's as a source, one whose way
    /// back leads elsewhere, loopback, link-local, reserved ones.
    FibAddress,
    /// Its TTL or hop limit is used up.
    FibTtl,
    /// IPv4 options or IPv6 extension headers.
    FibOptions,
    /// Its sender left its checksum to be completed.
    FibPartial,
    /// A route says blackhole.
    FibBlackhole,
    /// A route says unreachable.
    FibUnreachable,
    /// A route says prohibit.
    FibProhibit,
    /// There is no route, or it leads to this host or to a broadcast address.
    FibNoRoute,
    /// Forwarding is off at the device.
    FibDisabled,
    /// The route encapsulates.
    FibTunnel,
    /// The next hop's Ethernet address is not known.
    FibNeighbor,
    /// Too long for the route or its device.
    FibTooLong,
    /// A helper of the kernel refused, or gave a code that is not known.
    FibFailed,
    /// It would leave by the device that it came from.
    FibSameDevice,
    /// Its device takes no redirected frames like this one.
    FibNoDevice,
    /// Given to the kernel by an exact flow or the table of a steering.
    SteerKernel,
    /// The same, on another CPU.
    SteerCpu,
    /// A SYN that was answered with a cookie for the service: the answer went back.
    FilterAnswered,
    /// On a virtual router's port, for another station's Ethernet address: the kernel's, as the following.
    RouteStation,
    /// With a VLAN tag.
    RouteTagged,
    /// From or to an address that leaves no network, or from one that no packet comes from: the router's own, for one.
    RouteAddress,
    /// Its TTL or hop limit is used up.
    RouteTtl,
    /// IPv4 options, or an IPv6 hop-by-hop header.
    RouteOptions,
    /// A virtual router's route was known in the hook; redirected to its next hop.
    RouteForwarded,
    /// Its route says blackhole; dropped.
    RouteBlackhole,
    /// Of a cached flow of OpenFlow's rules; redirected to the device of the port that they name.
    FlowForwarded,
    /// The same; its rules drop it.
    FlowDropped,
    /// On a virtual router's port: the way back to its source leads elsewhere, or nowhere; dropped.
    RouteReversePath,
}

impl Counter {
    /// In the order of the kernel's side.
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

    /// The name in metrics and tables; the kernel's side is `TRIVIUM_COUNT_` and this in capitals.
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

/// Packets by way out, since the port's maps were made (they survive swaps, pins, hand-overs).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters([u64; Counter::ALL.len()]);

impl Default for Counters {
    fn default() -> Self {
        Counters([0; Counter::ALL.len()])
    }
}

impl Counters {
    /// Packets that left this way.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter.index()]
    }

    /// Every counter with its packets.
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL.into_iter().map(|counter| (counter, self.get(counter)))
    }

    /// Packets that the program has seen: each leaves exactly one way.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.0.iter().fold(0, |sum, packets| sum.wrapping_add(*packets))
    }

    /// Reads the map. An older program's map may hold fewer counters: the others are zero.
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
