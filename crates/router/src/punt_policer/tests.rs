use super::*;
use crate::adjacency::{Adjacencies, NextHop};

#[test]
fn a_flood_of_one_class_leaves_the_others_whole() {
    let rate = |class| if class == PuntClass::Ospf { 100 } else { 1000 };
    let policer = PuntPolicer::new(rate, 1, 0);
    let mut passed = 0;
    // A second of 10,000 hellos, with one BFD packet every 10 ms.
    for at in 0..10_000_u64 {
        passed += u32::from(policer.admit(PuntClass::Ospf, false, 0, at * 100_000));
        if at % 100 == 0 {
            assert!(policer.admit(PuntClass::Bfd, false, 0, at * 100_000));
        }
    }
    assert!((100..=165).contains(&passed), "{passed}: the rate and its first burst");
    assert_eq!(policer.counted(PuntClass::Bfd), (100, 0));
    assert_eq!(policer.counted(PuntClass::Ospf), (u64::from(passed), 10_000 - u64::from(passed)));
    // Changes the rate of one class.
    policer.set_rates(|_| 1000, 1_000_000_000);
    let more =
        (0..10_000).filter(|at| policer.admit(PuntClass::Ospf, false, 0, 1_000_000_000 + at * 100_000));
    assert!((900..1200).contains(&more.count()));
}

#[test]
fn what_passes_through_is_of_no_protocol() {
    let bgp = packet::spec::parse("ip_dst=10.0.0.1,tcp,dst_port=179").unwrap();
    assert_eq!(class(Punt::Own, &bgp, bgp.len()), PuntClass::Bgp);
    assert_eq!(class(Punt::NoRoute, &bgp, bgp.len()), PuntClass::NoRoute);
    let web = packet::spec::parse("ip_dst=10.0.0.1,tcp,dst_port=80").unwrap();
    assert_eq!(class(Punt::Own, &web, web.len()), PuntClass::Own);
}

fn origin(interface: u16, text: &str) -> Origin {
    let frame = packet::spec::parse(text).unwrap();
    Origin::of(interface, &frame, frame.len())
}

fn bgp(interface: u16, source: u32, ports: (u16, u16)) -> Origin {
    let source = std::net::Ipv4Addr::from(source);
    origin(
        interface,
        &format!("ip_src={source},ip_dst=10.0.0.1,tcp,src_port={},dst_port={}", ports.0, ports.1),
    )
}

/// A policer, and the router's neighbours that are known or that the kernel is resolving.
struct PolicedRouter {
    policer: PuntPolicer,
    adjacencies: Adjacencies,
    view: AdjacencyView,
}

impl PolicedRouter {
    /// Creates a policer with a rate for each class. The devices 11 and 12 belong to the interfaces 1 and 2.
    fn new(rate: u32) -> PolicedRouter {
        let mut adjacencies = Adjacencies::new(&sync::qsbr::Domain::new(), 16, 1);
        adjacencies.bind(11, Some(1));
        adjacencies.bind(12, Some(2));
        let view = adjacencies.view();
        PolicedRouter { policer: PuntPolicer::new(|_| rate, 1, 0), adjacencies, view }
    }

    fn admits(&self, class: PuntClass, origin: &Origin, now_ns: u64) -> bool {
        self.policer.admits_from(class, origin, &self.view, 0, now_ns)
    }

    /// Returns the class under which a packet was counted.
    fn counts_as(&self, class: PuntClass, origin: &Origin, now_ns: u64) -> PuntClass {
        let counts = || PuntClass::ALL.map(|class| self.policer.counted(class));
        let before = counts();
        self.admits(class, origin, now_ns);
        let changed = before.into_iter().zip(counts()).position(|(before, after)| before != after);
        PuntClass::ALL[changed.unwrap()]
    }
}

/// Every segment of an established BGP session is admitted while forged segments arrive at 20 times the limit on
/// the same interface. Some of the forged segments are from port 179 or from the peer's own address.
#[test]
fn a_session_lives_in_a_flood_of_forged_segments() {
    let router = PolicedRouter::new(100);
    let (here, there) = ("10.0.0.1:179".parse().unwrap(), "10.0.0.2:40000".parse().unwrap());
    router.policer.set_peers([
        Peer::Session(here, there),
        Peer::Neighbour(1, there.ip()),
        Peer::Far(there.ip()),
    ]);
    let keepalive = bgp(1, 0x0a00_0002, (40_000, 179));
    let mut refused = 0;
    for number in 0..20_000_u32 {
        let now = u64::from(number) * 500_000;
        let forged = match number % 3 {
            0 => bgp(1, 0x0a00_0002, (179, 179)),
            _ => bgp(1, 0x0b00_0000 + number, (179, 5000)),
        };
        refused += u32::from(!router.admits(PuntClass::Bgp, &forged, now));
        if number % 200 == 0 {
            assert!(router.admits(PuntClass::Bgp, &keepalive, now), "at {number}");
        }
    }
    assert!(refused > 18_000, "{refused}");
    assert_eq!(router.policer.counted(PuntClass::Session), (100, 0));
    // Packets of a peer that is no longer known are counted in the class of their protocol.
    router.policer.set_peers([]);
    let late = (0..20).filter(|at| {
        router.admits(PuntClass::Bgp, &bgp(1, 7, (179, 5000)), 10_000_000_000 + at);
        router.admits(PuntClass::Bgp, &keepalive, 10_000_000_000 + at)
    });
    assert!(late.count() < 20);
}

/// Forged OSPF and BFD packets with a BGP peer's address, on any interface, take no tokens from the peer's session
/// or from the hellos of the true neighbour.
#[test]
fn forged_hellos_of_a_peer_take_nothing_from_its_session() {
    let router = PolicedRouter::new(100);
    let (here, there) = ("10.0.0.1:179".parse().unwrap(), "10.0.0.2:40000".parse().unwrap());
    router.policer.set_peers([
        Peer::Session(here, there),
        Peer::Neighbour(1, there.ip()),
        Peer::Far(there.ip()),
    ]);
    let keepalive = bgp(1, 0x0a00_0002, (40_000, 179));
    let hello = origin(1, "ip_src=10.0.0.2,ip_dst=224.0.0.5,ip_proto=89,ttl=1");
    let forged = [
        (PuntClass::Ospf, origin(2, "ip_src=10.0.0.2,ip_dst=224.0.0.5,ip_proto=89,ttl=1")),
        (PuntClass::Ospf, origin(1, "ip_src=10.0.0.2,ip_dst=10.0.0.1,ip_proto=89,ttl=1")),
        (PuntClass::Ospf, origin(1, "ip_src=10.0.0.2,ip_dst=10.0.0.1,ip_proto=89,ttl=60")),
        (PuntClass::Bfd, origin(1, "ip_src=10.0.0.2,ip_dst=10.0.0.1,udp,dst_port=4784,ttl=60")),
        (PuntClass::Bfd, origin(2, "ip_src=10.0.0.2,ip_dst=10.0.0.1,udp,dst_port=4784,ttl=255")),
    ];
    let mut refused = 0;
    for number in 0..20_000_usize {
        let now = number as u64 * 500_000;
        let (class, forged) = &forged[number % forged.len()];
        refused += u32::from(!router.admits(*class, forged, now));
        if number % 200 == 0 {
            assert!(router.admits(PuntClass::Bgp, &keepalive, now), "at {number}");
        }
        if number % 2000 == 0 {
            assert!(router.admits(PuntClass::Ospf, &hello, now), "at {number}");
        }
    }
    assert!(refused > 15_000, "{refused}");
    assert_eq!(router.policer.counted(PuntClass::Session), (100, 0));
}

/// OSPF and BFD packets of a gateway are admitted as packets of a known peer on the gateway's interface. OSPF
/// packets to a unicast address must have TTL 255, or TTL 1 and the Ethernet address of the gateway, and single-hop
/// BFD packets must have TTL 255.
#[test]
fn hellos_of_gateways_are_of_known_peers() {
    use PuntClass::{Bfd, Dhcp, Neighbour, Ospf, Peer as Known, PeerMultihop, Rip};
    let mut router = PolicedRouter::new(1000);
    let mac = packet::MacAddr::from_u64(0x0200_0000_0002);
    router.adjacencies.resolve(11, [10, 0, 0, 2].into(), Some(mac));
    router.policer.set_peers([
        Peer::Neighbour(1, "10.0.0.2".parse().unwrap()),
        Peer::Neighbour(1, "fe80::2".parse().unwrap()),
        Peer::Far("10.9.0.9".parse().unwrap()),
        Peer::Far("10.0.0.2".parse().unwrap()),
    ]);
    for (interface, class, text, expected) in [
        (1, Ospf, "ip_src=10.0.0.2,ip_dst=224.0.0.5,ip_proto=89", Known),
        (2, Ospf, "ip_src=10.0.0.2,ip_dst=224.0.0.5,ip_proto=89", Ospf),
        (1, Ospf, "eth_src=02:00:00:00:00:02,ip_src=10.0.0.2,ip_dst=10.0.0.1,ip_proto=89,ttl=1", Known),
        (1, Ospf, "eth_src=02:00:00:00:00:09,ip_src=10.0.0.2,ip_dst=10.0.0.1,ip_proto=89,ttl=1", Ospf),
        (1, Ospf, "ip_src=10.0.0.2,ip_dst=10.0.0.1,ip_proto=89,ttl=255", Known),
        (1, Ospf, "ip_src=10.0.0.2,ip_dst=10.0.0.1,ip_proto=89,ttl=64", Ospf),
        (1, Ospf, "ip_src=fe80::2,ip_dst=ff02::5,ip_proto=89", Known),
        (1, Ospf, "ip_src=10.0.0.3,ip_dst=224.0.0.5,ip_proto=89", Ospf),
        (1, Bfd, "ip_src=10.0.0.2,ip_dst=10.0.0.1,udp,dst_port=3784,ttl=255", Known),
        (1, Bfd, "ip_src=10.0.0.2,ip_dst=10.0.0.1,udp,dst_port=6784,ttl=255", Known),
        (2, Bfd, "ip_src=10.0.0.2,ip_dst=10.0.0.1,udp,dst_port=3784,ttl=255", Bfd),
        (1, Bfd, "ip_src=10.0.0.2,ip_dst=10.0.0.1,udp,dst_port=3784,ttl=254", Bfd),
        (1, Bfd, "ip_src=10.9.0.9,ip_dst=10.0.0.1,udp,dst_port=4784,ttl=60", PeerMultihop),
        (1, Bfd, "ip_src=10.9.0.9,ip_dst=10.0.0.1,udp,dst_port=3784,ttl=255", Bfd),
        (1, Dhcp, "ip_src=10.9.0.9,ip_dst=10.0.0.1,udp,src_port=67,dst_port=67", PeerMultihop),
        (
            1,
            Dhcp,
            "eth_src=02:00:00:00:00:02,ip_src=10.0.0.2,ip_dst=10.0.0.1,udp,src_port=67,dst_port=67",
            Neighbour,
        ),
        (1, Dhcp, "ip_src=10.9.0.9,ip_dst=10.0.0.1,udp,src_port=68,dst_port=67", Dhcp),
        (1, Dhcp, "ip_src=10.9.0.8,ip_dst=10.0.0.1,udp,src_port=67,dst_port=67", Dhcp),
        (1, Rip, "ip_src=10.0.0.2,ip_dst=224.0.0.9,udp,dst_port=520", Rip),
    ] {
        assert_eq!(router.counts_as(class, &origin(interface, text), 0), expected, "{interface}: {text}");
    }
}

fn arp(interface: u16, station: u64, sender: [u8; 4]) -> Origin {
    let mut frame = packet::spec::parse("arp").unwrap();
    frame[6..12].copy_from_slice(&packet::MacAddr::from_u64(station).0);
    frame[28..32].copy_from_slice(&sender);
    Origin::of(interface, &frame, frame.len())
}

/// ARP, neighbour discovery and DHCP packets of known neighbours are admitted while forged stations flood their
/// interface. Replies from an address that the kernel is resolving are admitted unless other stations claim the
/// address.
#[test]
fn known_neighbours_live_in_a_flood_of_stations() {
    let mut router = PolicedRouter::new(100);
    let mac = packet::MacAddr::from_u64(0x0200_0000_0007);
    let (four, six) = ([10, 0, 0, 7], "fe80::7");
    router.adjacencies.resolve(11, four.into(), Some(mac));
    router.adjacencies.resolve(11, six.parse().unwrap(), Some(mac));
    let known = [
        (PuntClass::Arp, arp(1, mac.as_u64(), four)),
        (
            PuntClass::Nd,
            origin(1, &format!("eth_src={mac},ip_src={six},ip_dst=ff02::1,icmpv6,icmp_type=136")),
        ),
        (
            PuntClass::Dhcp,
            origin(1, &format!("eth_src={mac},ip_src=10.0.0.7,ip_dst=10.0.0.1,udp,dst_port=67")),
        ),
    ];
    // Another station and another interface.
    for other in [arp(1, 9, four), arp(2, mac.as_u64(), four), arp(1, mac.as_u64(), [10, 0, 0, 8])] {
        assert_eq!(router.counts_as(PuntClass::Arp, &other, 0), PuntClass::Arp);
    }
    let mut refused = 0;
    for number in 0..20_000_u64 {
        let now = number * 500_000;
        let forged = match number % 2 {
            0 => arp(1, 0x0200_0100_0000 + number, four),
            _ => arp(1, 0x0200_0200_0000 + number, [10, 0, 1, 1]),
        };
        refused += u32::from(!router.admits(PuntClass::Arp, &forged, now));
        if number % 1000 == 0 {
            for (class, known) in &known {
                assert!(router.admits(*class, known, now), "{class:?} at {number}");
            }
        }
    }
    assert!(refused > 18_000, "{refused}");
    assert_eq!(router.policer.counted(PuntClass::Neighbour), (60, 0));
    // While a packet waits for the resolution of a neighbour, a reply of this neighbour is expected.
    let now = 10_000_000_000;
    let waiting = origin(2, "ip_src=10.0.2.2,ip_dst=10.0.0.99,udp");
    assert_eq!(router.counts_as(PuntClass::Arp, &arp(1, 99, [10, 0, 0, 99]), now), PuntClass::Arp);
    assert!(router.admits(PuntClass::Unresolved, &waiting, now));
    assert_eq!(router.counts_as(PuntClass::Arp, &arp(1, 99, [10, 0, 0, 99]), now + 1), PuntClass::Neighbour);
    let late = now + ASKED_NS + 1;
    assert_eq!(router.counts_as(PuntClass::Arp, &arp(1, 99, [10, 0, 0, 99]), late), PuntClass::Arp);
}

/// Any number of stations that claim an address which the kernel is resolving cannot use the reserve for known
/// neighbours.
#[test]
fn claims_to_be_who_is_asked_for_leave_the_known_theirs() {
    let mut router = PolicedRouter::new(100);
    let mac = packet::MacAddr::from_u64(7);
    router.adjacencies.resolve(11, [10, 0, 0, 7].into(), Some(mac));
    let gateway = NextHop { interface: 11, gateway: Some([10, 0, 0, 1].into()), weight: 1 };
    assert_ne!(router.adjacencies.take(&gateway), 0);
    for number in 0..20_000_u64 {
        let now = number * 500_000;
        router.admits(PuntClass::Arp, &arp(1, 0x0200_0100_0000 + number, [10, 0, 0, 1]), now);
        if number % 1000 == 0 {
            assert!(router.admits(PuntClass::Arp, &arp(1, 7, [10, 0, 0, 7]), now), "at {number}");
        }
    }
    assert_eq!(router.policer.counted(PuntClass::Neighbour).1, 0);
    let (_, refused) = router.policer.counted(PuntClass::Arp);
    assert!(refused > 15_000, "{refused}");
}

/// Replies on one interface are admitted although stations on another interface send many packets that claim an
/// address which the kernel is resolving. This also applies to replies from addresses that the kernel is resolving.
#[test]
fn a_flood_of_claims_on_one_interface_leaves_replies_on_another() {
    let mut router = PolicedRouter::new(1000);
    let gateway = NextHop { interface: 12, gateway: Some([10, 0, 2, 1].into()), weight: 1 };
    assert_ne!(router.adjacencies.take(&gateway), 0);
    let solicited = |station: u64| {
        let mac = packet::MacAddr::from_u64(station);
        origin(2, &format!("eth_src={mac},ip_src=fd00:2::9,ip_dst=fd00:2::1,icmpv6,icmp_type=136"))
    };
    for number in 0..40_000_u64 {
        let now = number * 50_000;
        if number % 20_000 == 0 {
            // Packets to unused and used addresses on the link.
            for to in ["ip_dst=10.0.1.99", "ip_dst=10.0.2.99", "ip_src=fd00::7,ip_dst=fd00:2::9"] {
                assert!(router.admits(PuntClass::Unresolved, &origin(1, &format!("{to},udp")), now));
            }
        }
        router.admits(PuntClass::Arp, &arp(1, 0x0200_0100_0000 + number, [10, 0, 1, 99]), now);
        if number % 1000 == 0 {
            assert!(router.admits(PuntClass::Arp, &arp(2, 1, [10, 0, 2, 1]), now), "gateway at {number}");
            assert!(router.admits(PuntClass::Arp, &arp(2, 99, [10, 0, 2, 99]), now), "host at {number}");
            assert!(router.admits(PuntClass::Nd, &solicited(9), now), "IPv6 host at {number}");
        }
    }
    let (_, refused) = router.policer.counted(PuntClass::Arp);
    assert!(refused > 30_000, "{refused}");
}

/// Replies are expected from the addresses that the kernel is resolving, and from hardly any other address, even if
/// the kernel is resolving many addresses.
#[test]
fn addresses_under_resolution_stand_for_no_others() {
    let router = PolicedRouter::new(1_000_000);
    for number in 0..8192_u32 {
        router.policer.expect(std::net::Ipv4Addr::from(0x0a01_0000 + number).into(), 0);
    }
    let others = 0..1000_u32;
    let expected = others
        .filter(|number| router.policer.expects(std::net::Ipv4Addr::from(0x0a02_0000 + number).into(), 1));
    assert!(expected.count() < 5);
    let asked = IpAddr::from([10, 1, 0, 0]);
    router.policer.expect(asked, 0);
    assert!(router.policer.expects(asked, ASKED_NS / 2) && !router.policer.expects(asked, ASKED_NS));
}

/// A source that causes an endless number of ICMP errors does not use the shares of other sources.
#[test]
fn one_source_of_errors_leaves_them_to_others() {
    let router = PolicedRouter::new(100);
    let (flood, other) = (origin(1, "ip_src=10.0.0.2,udp"), origin(1, "ip_src=10.0.0.3,udp"));
    for number in 0..20_000_u64 {
        let now = number * 500_000;
        router.admits(PuntClass::Errors, &flood, now);
        if number % 2000 == 0 {
            assert!(router.admits(PuntClass::Errors, &other, now), "at {number}");
        }
    }
}

/// A flood of ARP packets on one interface does not use the share of another interface, even if every packet of the
/// flood has another source. Packets of one source do not use the share of another source.
#[test]
fn a_flood_of_one_interface_leaves_the_class_to_others() {
    let router = PolicedRouter::new(1000);
    let arp = |interface, source| arp(interface, source, [10, 0, 0, 9]);
    let mut flood = 0;
    for number in 0..20_000_u64 {
        let now = number * 100_000;
        flood += u64::from(router.admits(PuntClass::Arp, &arp(1, 0x0200_0000_0000 + number), now));
        if number % 400 == 0 {
            assert!(router.admits(PuntClass::Arp, &arp(2, 2), now), "at {number}");
        }
    }
    // The flood gets all that the other interface leaves, so that the rate of the class is fully used.
    assert!((1700..2200).contains(&flood), "{flood}");
    // One source on one interface.
    for number in 0..20_000_u64 {
        let now = 10_000_000_000 + number * 100_000;
        router.admits(PuntClass::Arp, &arp(1, 1), now);
        if number % 1000 == 0 {
            assert!(router.admits(PuntClass::Arp, &arp(1, 2), now), "at {number}");
        }
    }
}
