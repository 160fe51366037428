//! Packet counters of a port's XDP program, one for each outcome. The kernel keeps the counters per CPU, and this
//! module sums them over the CPUs. The order of the counters is `enum trivium_counter` in
//! `bpf/include/trivium_layout.h`.

use std::fmt;
use std::os::fd::BorrowedFd;

use crate::{Error, sys};

/// An outcome of a port's XDP program for a frame. Each frame is counted under exactly one outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Counter {
    /// The frame was redirected to the AF_XDP socket of its receive queue. If the socket's ring is full, the frame is
    /// lost and counted by the socket.
    Steered,
    /// The frame was passed to the kernel, because the frame's receive queue has no socket and `when_down` is pass.
    DownPassed,
    /// The frame was dropped, because the frame's receive queue has no socket and `when_down` is drop, or because the
    /// port is closed ([`crate::Owner::Closed`]).
    DownDropped,
    /// The frame was passed to the kernel, because the frame is neither IPv4 nor IPv6 (for example ARP, LLDP, LACP).
    PassedControl,
    /// The frame was passed to the kernel, because the frame's destination is broadcast or multicast.
    PassedGroup,
    /// The frame was passed to the kernel, because the frame is a packet to a local IPv4 address.
    PassedLocal4,
    /// The frame was passed to the kernel, because the frame is a packet to a local or a link-local IPv6 address.
    PassedLocal6,
    /// The frame was passed to the kernel, because the frame is an IP fragment.
    PassedFragment,
    /// The frame was passed to the kernel, because the frame has truncated or contradictory headers, or too many
    /// headers.
    PassedMalformed,
    /// The program stopped with an error, because one of its stages returned an invalid verdict. This is a
    /// defect of the program.
    Aborted,
    /// A drop rule of the filter dropped the frame.
    FilterDropped,
    /// The frame was dropped, because the frame exceeded the rate limit of a filter rule.
    FilterLimited,
    /// The bridge stage redirected the frame to the output device of its destination MAC address (station).
    Bridged,
    /// The bridge stage dropped the frame, because the output device for its destination MAC address no longer exists
    /// or the frame buffer had no space for a VLAN tag.
    BridgeLost,
    /// The bridge stage dropped the frame, because the frame's receive queue was overflowing. The frame would have gone
    /// to the worker only so that the frame does not overtake earlier frames of its flow.
    BridgeHeld,
    /// The kernel routing stage forwarded the frame according to the kernel's routes.
    FibForwarded,
    /// The kernel routing stage passed the frame to the kernel's network stack, because the frame's destination MAC
    /// address is not the MAC address of the port.
    FibStation,
    /// The kernel routing stage passed the frame to the kernel's network stack, because the frame has a VLAN tag.
    FibTagged,
    /// The kernel routing stage passed the frame to the kernel's network stack, because one of the frame's IP addresses
    /// must not be forwarded. Examples are a source address of this host, a source whose reverse path leads to another
    /// device, and loopback, link-local and reserved addresses.
    FibAddress,
    /// The kernel routing stage passed the frame to the kernel's network stack, because the TTL or hop limit is 1 or 0.
    FibTtl,
    /// The kernel routing stage passed the frame to the kernel's network stack, because the frame has IPv4 options or
    /// IPv6 extension headers.
    FibOptions,
    /// The kernel routing stage passed the frame to the kernel's network stack, because the frame's transport checksum
    /// is not complete (checksum offload). The kernel's stack completes the checksum.
    FibPartial,
    /// The kernel routing stage passed the frame to the kernel's network stack, because the frame's route is a
    /// blackhole route.
    FibBlackhole,
    /// The kernel routing stage passed the frame to the kernel's network stack, because the frame's route is an
    /// unreachable route.
    FibUnreachable,
    /// The kernel routing stage passed the frame to the kernel's network stack, because the frame's route is a prohibit
    /// route.
    FibProhibit,
    /// The kernel routing stage passed the frame to the kernel's network stack, because the frame has no route, or the
    /// frame's route leads to this host or to a broadcast address.
    FibNoRoute,
    /// The kernel routing stage passed the frame to the kernel's network stack, because forwarding is disabled on the
    /// receiving device.
    FibDisabled,
    /// The kernel routing stage passed the frame to the kernel's network stack, because the frame's route encapsulates
    /// packets.
    FibTunnel,
    /// The kernel routing stage passed the frame to the kernel's network stack, because the next hop's Ethernet address
    /// is unknown.
    FibNeighbor,
    /// The kernel routing stage passed the frame to the kernel's network stack, because the packet is longer than the
    /// MTU of the route or the output device.
    FibTooLong,
    /// The kernel routing stage passed the frame to the kernel's network stack, because a kernel helper failed or
    /// returned an unknown code.
    FibFailed,
    /// The kernel routing stage passed the frame to the kernel's network stack, because the output device is the
    /// receiving device.
    FibSameDevice,
    /// The kernel routing stage passed the frame to the kernel's network stack, because the output device does not
    /// accept redirected frames of this kind.
    FibNoDevice,
    /// Flow steering passed the frame to the kernel on the CPU that received it. An exact flow or the table of
    /// hash buckets selected this target.
    SteeringKernel,
    /// Flow steering passed the frame to the kernel on another CPU. An exact flow or the table of hash buckets
    /// selected this target.
    SteeringCpu,
    /// The filter replied to the frame, a TCP SYN to a protected service, with a SYN cookie.
    FilterAnswered,
    /// The virtual router stage passed the frame to the kernel's network stack, because the frame's destination MAC
    /// address does not belong to the router's port.
    RouteStation,
    /// The virtual router stage passed the frame to the kernel's network stack, because the frame's VLAN is not an
    /// interface of the router.
    RouteTagged,
    /// The virtual router stage passed the frame to the kernel's network stack, because one of the frame's IP addresses
    /// is never routed, or the frame's source address is one of the router's own addresses.
    RouteAddress,
    /// The virtual router stage passed the frame to the kernel's network stack, because the TTL or hop limit is 1 or 0.
    RouteTtl,
    /// The virtual router stage passed the frame to the kernel's network stack, because the frame has IPv4 options or
    /// an IPv6 hop-by-hop header.
    RouteOptions,
    /// The virtual router stage forwarded the frame according to a route and redirected it to the next hop.
    RouteForwarded,
    /// The virtual router stage dropped the frame, because the frame's route is a blackhole route.
    RouteBlackhole,
    /// The frame matched a cached OpenFlow flow, and the stage of cached flows redirected the frame to the flow's
    /// output device.
    FlowForwarded,
    /// The frame matched a cached OpenFlow flow, and the stage of cached flows dropped the frame according to the
    /// flow's actions.
    FlowDropped,
    /// The virtual router stage dropped the frame, because the frame failed the reverse path check: the route to its
    /// source leads to another interface or does not exist.
    RouteReversePath,
    /// The virtual router stage dropped the frame, because the frame is control traffic that exceeds a rate limit of
    /// the router.
    RouteLimited,
}

impl Counter {
    /// All counters, in the order of `enum trivium_counter`.
    pub const ALL: [Counter; 47] = [
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
        Counter::SteeringKernel,
        Counter::SteeringCpu,
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
        Counter::RouteLimited,
    ];

    /// Returns the name of the counter in metrics and tables. The name in C is `TRIVIUM_COUNT_` followed by
    /// this name in capital letters.
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
            Counter::SteeringKernel => "steering_kernel",
            Counter::SteeringCpu => "steering_cpu",
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
            Counter::RouteLimited => "route_limited",
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

/// Number of packets for each outcome since the port's maps were created. The counts are kept when the
/// program is replaced, pinned or handed over.
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

    /// Returns every outcome with the number of its packets.
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL.into_iter().map(|counter| (counter, self.get(counter)))
    }

    /// Returns the number of frames that the program has processed, which is the sum of all counters.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.0.iter().fold(0, |sum, packets| sum.wrapping_add(*packets))
    }

    /// Reads the counters from a kernel map. A counter that the map lacks, because an older program created the map, is
    /// zero.
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
