//! Reasons for dropping a packet. Each reason has one counter, one stable number and one sentence of
//! explanation.
//!
//! The data path transmits every packet, punts it to the kernel, or drops it for one of these reasons. The
//! numbers of the reasons appear in captures, counters and metrics. Therefore the numbers are stable: new
//! reasons are appended, and numbers are not reused.

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $variant:ident = $id:literal, $name:literal, $explain:literal;)+) => {
        /// Reason for dropping a packet. The number of a reason is stable and is the index of the reason's
        /// counter.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum DropReason {
            $(#[doc = $explain] $(#[$doc])* $variant = $id,)+
        }

        impl DropReason {
            /// All reasons in the order of their numbers: `ALL[r as usize] == r`.
            pub const ALL: [DropReason; DropReason::COUNT] = [$(DropReason::$variant,)+];
            /// Number of drop reasons. The numbers of the reasons are 0..COUNT.
            pub const COUNT: usize = [$($id,)+].len();

            /// Returns the stable name of the reason in kebab case, as used in counters, metrics and
            /// captures.
            pub const fn name(self) -> &'static str {
                match self {
                    $(DropReason::$variant => $name,)+
                }
            }

            /// Returns one sentence with the cause of the drop and the next step for the operator.
            pub const fn explain(self) -> &'static str {
                match self {
                    $(DropReason::$variant => $explain,)+
                }
            }
        }
    };
}

drop_reasons! {
    // Headers. A bridge forwards frames with malformed upper layers. Only stages that must read the upper layers drop
    // such frames.
    EthTruncated = 0, "eth-truncated",
        "The frame is shorter than an Ethernet header (14 bytes); look for a broken sender or a driver that truncates.";
    VlanTruncated = 1, "vlan-truncated",
        "The frame ends inside a VLAN tag; look for a broken sender or a driver that truncates.";
    VlanReservedId = 2, "vlan-reserved-id",
        "The outer VLAN tag carries the reserved identifier 4095; configure the sender with a VLAN from 1 to 4094.";
    ArpTruncated = 3, "arp-truncated",
        "The frame ends inside its ARP message (28 bytes for IPv4 over Ethernet); look for a broken sender.";
    ArpBadField = 4, "arp-bad-field",
        "The ARP message has address lengths that do not fit IPv4 over Ethernet; look for a broken or hostile sender.";
    Ipv4Truncated = 5, "ipv4-truncated",
        "The frame ends inside its IPv4 header; look for a broken sender or a driver that truncates.";
    Ipv4BadHeader = 6, "ipv4-bad-header",
        "The IPv4 header has a version other than 4 or a header length under 20 bytes; look for a broken or hostile sender.";
    Ipv4BadLength = 7, "ipv4-bad-length",
        "The IPv4 total length is under the header's or over what the frame carries; look for a broken sender or a path that truncates.";
    Ipv4BadChecksum = 8, "ipv4-bad-checksum",
        "The IPv4 header checksum is wrong; look for corruption on the path or a sender that rewrites headers without it.";
    Ipv6Truncated = 9, "ipv6-truncated",
        "The frame ends inside its IPv6 header (40 bytes); look for a broken sender or a driver that truncates.";
    Ipv6BadHeader = 10, "ipv6-bad-header",
        "The IPv6 header has a version other than 6; look for a broken or hostile sender.";
    Ipv6BadLength = 11, "ipv6-bad-length",
        "The IPv6 payload length is over what the frame carries; look for a broken sender or a path that truncates.";
    Ipv6ExtTruncated = 12, "ipv6-ext-truncated",
        "The packet ends inside an IPv6 extension header; look for a broken or hostile sender.";
    Ipv6ExtTooMany = 13, "ipv6-ext-too-many",
        "The packet chains more than eight IPv6 extension headers; real traffic does not, so look for a hostile sender.";
    TcpTruncated = 14, "tcp-truncated",
        "The packet ends inside its TCP header; look for a broken sender or tiny-fragment evasion.";
    TcpBadHeader = 15, "tcp-bad-header",
        "The TCP data offset is under 20 bytes or past the packet's end; look for a broken or hostile sender.";
    UdpTruncated = 16, "udp-truncated",
        "The packet ends inside its UDP header; look for a broken sender or tiny-fragment evasion.";
    UdpBadLength = 17, "udp-bad-length",
        "The UDP length is under 8 or over what the packet carries; look for a broken or hostile sender.";
    SctpTruncated = 18, "sctp-truncated",
        "The packet ends inside its SCTP header; look for a broken sender or tiny-fragment evasion.";
    IcmpTruncated = 19, "icmp-truncated",
        "The packet ends inside its ICMP header; look for a broken sender.";
    Icmpv6Truncated = 20, "icmpv6-truncated",
        "The packet ends inside its ICMPv6 header; look for a broken sender.";
    IgmpTruncated = 21, "igmp-truncated",
        "The packet ends inside its IGMP message; look for a broken sender.";
    MulticastControlBad = 22, "multicast-control-bad",
        "A frame that is or may be IGMP or MLD is a fragment, is sent to the broadcast address, has more tags or extension headers than are read, or has a wrong checksum, hop limit or record count; look for a broken or hostile host.";
    L4BadChecksum = 23, "l4-bad-checksum",
        "The transport checksum is wrong; look for corruption on the path or a sender whose checksum offload is not completed.";

    // Admission to a bridge.
    VlanNotAllowed = 24, "vlan-not-allowed",
        "The frame's VLAN is not among those of the port; add it to `trunk` (or make it `access`) in the port's membership of the bridge, or fix the sender.";
    VlanTaggedOnAccess = 25, "vlan-tagged-on-access",
        "A tagged frame came in on an access port; make the port a trunk or stop the sender's tagging.";
    VlanUntaggedNotAdmitted = 26, "vlan-untagged-not-admitted",
        "An untagged frame came in on a trunk without a native VLAN; set `native` on the port or tag at the sender.";
    SourceMulticast = 27, "source-multicast",
        "The source address is a group address, which no station may send from; look for a broken or hostile sender.";
    SourceStaticMoved = 28, "source-static-moved",
        "The source address has a static entry on another port; remove the entry if the host has moved, else look for spoofing.";
    ReservedMulticast = 29, "reserved-multicast",
        "The destination is an 802.1D reserved group address (01:80:c2:00:00:0x), which bridges never forward; nothing to do.";
    StormBroadcast = 30, "storm-broadcast",
        "The port's broadcast limit was exceeded; look for a loop or raise the port's `storm.broadcast`.";
    StormMulticast = 31, "storm-multicast",
        "The port's multicast limit was exceeded; look for a loop or raise the port's `storm.multicast`.";
    StormUnknown = 32, "storm-unknown",
        "The port's limit for unknown destinations was exceeded; look for a silent host or raise the port's `storm.unknown`.";

    // Forwarding decisions.
    SamePort = 33, "same-port",
        "The destination is on the port that the frame came from, so the neighbour has it already; nothing to do.";
    ProtectedPort = 34, "protected-port",
        "Both ports are protected, and protected ports do not talk to each other; unset `protected` on one of them if they should.";
    NoMember = 35, "no-member",
        "No other port that is up is a member of the VLAN (or of the multicast group); add members or check their links.";
    FdbDiscard = 36, "fdb-discard",
        "A static entry says that frames for this address are discarded; remove the entry to let them pass.";
    NoFunction = 37, "no-function",
        "The port belongs to no bridge, router or balancer; give it a place in the configuration.";
    HopLimit = 38, "hop-limit",
        "The packet passed between rooms or through patch ports more often than allowed; look for a loop in the configuration.";

    // Output.
    PortDown = 39, "port-down",
        "The port that the packet came in by, or would leave by, is down; set `admin = \"up\"` or the device up, or check its link.";
    PortRemoved = 40, "port-removed",
        "The output port was removed while the packet was under way; nothing to do.";
    DeviceGone = 41, "device-gone",
        "The port's device was deleted or its namespace is gone; recreate it or remove the port from the configuration.";
    TxRingFull = 42, "tx-ring-full",
        "The output port's transmit ring is full: the receiver is slower than the traffic; enlarge the ring or relieve the receiver.";
    TxFailed = 43, "tx-failed",
        "The kernel refused the frame on transmit; see the port's errors and `trivium doctor`.";
    MtuExceeded = 44, "mtu-exceeded",
        "The frame is longer than the output port's MTU allows; make the MTUs of the bridge's ports equal.";
    OffloadUnsupported = 45, "offload-unsupported",
        "The frame needs segmentation or a checksum that cannot be completed for it in software; switch that offload off at the sender.";
    TooManySegments = 46, "too-many-segments",
        "The frame has more segments than the output port takes; lower the MTU or enlarge the frame size.";
    TagOverflow = 47, "tag-overflow",
        "There is no room to add a VLAN tag to the frame; enlarge the frame size of the port's memory.";

    // Limits of the engine.
    WorkerRingFull = 48, "worker-ring-full",
        "The ring to the worker that owns the packet's output or flow is full; that worker is overloaded, so spread its ports or queues.";
    WorkerGone = 49, "worker-gone",
        "The worker that owns the packet's output or flow is not running; it is being replaced or was removed.";
    NoFrame = 50, "no-frame",
        "The frame memory is exhausted; raise `frames` in the configuration or look for a port whose ring stays full.";
    CloneBudget = 51, "clone-budget",
        "Copies for a flood or mirror, or segments of large packets, exceeded the burst's budget; look for a broadcast storm or reduce mirrors.";
    Draining = 52, "draining",
        "The port or process is being shut down and no longer accepts packets; nothing to do.";

    // Input.
    RxOversized = 53, "rx-oversized",
        "The frame is longer than the port's frame memory or segments can hold; lower the sender's MTU or enlarge the frame size.";
    RxBadDescriptor = 54, "rx-bad-descriptor",
        "The peer handed over a descriptor that points outside its memory or breaks the ring's rules; the tenant is broken or hostile.";
    RxBadOffload = 55, "rx-bad-offload",
        "The peer's offload metadata contradicts the frame (header offsets or segment size); the tenant is broken or hostile.";

    // Encapsulated and additional headers.
    VxlanTruncated = 56, "vxlan-truncated",
        "The packet ends inside its VXLAN header or the frame that it carries; look for a path MTU that cuts tunnels.";
    VxlanBadHeader = 57, "vxlan-bad-header",
        "The VXLAN header does not carry a network identifier; something other than VXLAN is sent to its UDP port.";
    NdBadOption = 58, "nd-bad-option",
        "An IPv6 neighbour discovery message has an option of length zero or past its end; look for a broken or hostile host.";
    IpOptionBad = 59, "ip-option-bad",
        "An IPv4 or TCP option has an impossible length; look for a broken or hostile sender.";
    FloodDisabled = 60, "flood-disabled",
        "The port does not take frames for unknown destinations; set `flood` on it if silent hosts are behind it.";

    // Routing.
    NotForUs = 61, "not-for-us",
        "The frame's destination is another station's address than the router interface's; look for a hub, a mirror or a stale neighbour entry.";
    MartianSource = 62, "martian-source",
        "No packet on its way may come from such an address (RFC 1812, 5.3.7; RFC 4291); look for a broken or hostile sender.";
    MartianDestination = 63, "martian-destination",
        "No packet on its way may go to such an address (RFC 1812, 5.3.7; RFC 4291); look for a broken or hostile sender.";
    RouteBlackhole = 64, "route-blackhole",
        "The route to the destination is a blackhole; see it with `trivium show why ADDRESS`, and remove it if the destination is to be reached.";
    PuntLimit = 65, "punt-limit",
        "More packets of this kind are for the kernel than the router's `punts` lets in each second; look for a flood, or raise it.";
    NoKernel = 66, "no-kernel",
        "The packet is for the kernel, and there is no way into it from here; see `trivium doctor`.";
    IngressStage = 67, "ingress-stage",
        "A stage of your own, which this program has put into the port's path, refused the packet; see its code.";

    // OpenFlow.
    RuleMiss = 68, "rule-miss",
        "No rule of the bridge's first table matches the packet; add one (of priority 0 for all the rest), see `ovs-ofctl dump-flows`.";
    RuleDrop = 69, "rule-drop",
        "The rules that the packet meets send it nowhere; see which by `trivium explain`.";
    RuleLoop = 70, "rule-loop",
        "The packet was looked up too often, or meets groups inside groups without end; look for a loop of resubmits by `trivium explain`.";
    UpcallLimit = 71, "upcall-limit",
        "More packets of unknown flows came by the port than are decided at a time; look for a scan or a flood, or spare the tables work.";
    MeterDrop = 72, "meter-drop",
        "The packets were more than the meter of their rule lets through; see `ovs-ofctl meter-stats`.";
    ReversePath = 73, "reverse-path",
        "No route leads back to the source by the way that the interface's `rpf` asks for (RFC 3704); look for a forged source or asymmetric routes, or say `rpf = \"loose\"`.";
    NoRoute = 74, "no-route",
        "No route leads to the destination, or its route refuses it, and its sender is not told: it is an ICMP error or a later fragment, or the router's limit of `errors` is reached; see `trivium show why ADDRESS`.";
    ForwardingOff = 75, "forwarding-off",
        "Packets of this family that come in here are not routed: set `net.ipv4.conf.DEVICE.forwarding`, or `net.ipv6.conf.all.forwarding`, if they are to be.";

    // Filters.
    FilterDropped = 76, "filter-dropped",
        "A rule of the port's filter dropped it; `trivium show filters` tells which.";
    FilterLimited = 77, "filter-limited",
        "It was over the rate of a rule of the port's filter; `trivium show filters` tells which.";
}

impl DropReason {
    /// Returns the reason with this number. Returns `None` if no reason has the number.
    #[inline]
    pub const fn from_u8(id: u8) -> Option<DropReason> {
        if (id as usize) < Self::COUNT { Some(Self::ALL[id as usize]) } else { None }
    }

    /// Returns the reason with this stable name, or with a name that an older release used for it. Returns
    /// `None` if no reason has the name.
    pub fn from_name(name: &str) -> Option<DropReason> {
        let name = match name {
            "no-room" => "no-function",
            "own-stage" => "ingress-stage",
            name => name,
        };
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// Returns the number of the reason as an index into arrays of drop counters.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl std::fmt::Display for DropReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_of_older_releases_are_understood() {
        assert_eq!(DropReason::from_name("no-room"), Some(DropReason::NoFunction));
        assert_eq!(DropReason::from_name("own-stage"), Some(DropReason::IngressStage));
        assert_eq!(DropReason::from_name("no-such-reason"), None);
    }

    #[test]
    fn numbers_are_dense_and_names_unique() {
        for (place, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), place);
            assert_eq!(DropReason::from_u8(u8::try_from(place).unwrap()), Some(reason));
            assert_eq!(DropReason::from_name(reason.name()), Some(reason));
        }
        assert_eq!(DropReason::from_u8(u8::try_from(DropReason::COUNT).unwrap()), None);
        let names: HashSet<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), DropReason::COUNT);
    }

    #[test]
    fn names_are_kebab_case_and_explanations_are_sentences() {
        for reason in DropReason::ALL {
            let name = reason.name();
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{name}"
            );
            let sentence = reason.explain();
            assert!(sentence.ends_with('.') && sentence.len() > 40, "{name}: {sentence}");
        }
    }

    /// Checks that the numbers of drop reasons have not changed, because capture files and dashboards contain these
    /// numbers.
    #[test]
    fn numbers_are_stable() {
        assert_eq!(DropReason::EthTruncated as u8, 0);
        assert_eq!(DropReason::VlanNotAllowed as u8, 24);
        assert_eq!(DropReason::SamePort as u8, 33);
        assert_eq!(DropReason::TxRingFull as u8, 42);
        assert_eq!(DropReason::NoFrame as u8, 50);
        assert_eq!(DropReason::RxBadOffload as u8, 55);
    }
}
