//! Tests that built packets can be parsed by the header parsers of this crate and by etherparse, an independent parser.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod frames;

use etherparse::{LaxSlicedPacket, LinkSlice, NetSlice, SlicedPacket, TransportSlice, VlanSlice};
use frames::{frame, frame_arp, frame_ipv4, frame_ipv6, mac};
use packet::arp::{Arp, ArpRepr};
use packet::build::*;
use packet::eth::Eth;
use packet::icmp::Icmp;
use packet::icmpv6::{Icmpv6, NdOption};
use packet::igmp::{self, Igmp};
use packet::ipv4::Ipv4;
use packet::ipv6::Ipv6;
use packet::mld::Mld;
use packet::sctp::Sctp;
use packet::tcp::{Tcp, TcpOption};
use packet::udp::Udp;
use packet::vlan::{Tags, Vlan};
use packet::vxlan::Vxlan;
use packet::{BuildError, FlowKey, L3Kind, MacAddr, PortId, ip_proto};
use proptest::collection::vec;
use proptest::prelude::*;

/// Calls `emit` with a buffer longer than `len` bytes, checks that `emit` refuses a buffer that is one byte too short,
/// and returns the bytes that `emit` wrote.
fn emitted(len: usize, emit: impl Fn(&mut [u8]) -> Result<usize, BuildError>) -> Vec<u8> {
    let mut buffer = vec![0xee; len + 7];
    assert_eq!(emit(&mut buffer), Ok(7));
    assert_eq!(&buffer[len..], [0xee; 7], "nothing behind the header is touched");
    buffer.truncate(len);
    assert!(matches!(emit(&mut buffer[..len - 1]), Err(BuildError::BufferTooSmall { .. })));
    buffer
}

macro_rules! emit {
    ($repr:expr, $len:expr) => {
        emitted($len, |buffer| $repr.emit(buffer).map(|rest| rest.len()))
    };
}

proptest! {
    #[test]
    fn ethernet_vlan_arp_vxlan_round_trip(
        (dst, src) in (mac(), mac()),
        (ethertype, vid, pcp, dei) in (any::<u16>(), 0u16..4096, 0u8..8, any::<bool>()),
        (operation, a, b) in any::<(u16, [u8; 4], [u8; 4])>(),
        vni in 0u32..1 << 24,
    ) {
        let eth = EthRepr { dst, src, ethertype };
        prop_assert_eq!(EthRepr::parse(&Eth::parse(&emit!(eth, EthRepr::LEN)).unwrap()), eth);
        let tag = VlanRepr { vid, pcp, dei, ethertype };
        prop_assert_eq!(VlanRepr::parse(&Vlan::parse(&emit!(tag, VlanRepr::LEN)).unwrap()), tag);
        let arp = ArpRepr { operation, sender_mac: src, sender_ip: a.into(), target_mac: dst, target_ip: b.into() };
        prop_assert_eq!(ArpRepr::parse(&Arp::parse(&emit!(arp, ArpRepr::LEN)).unwrap()), arp);
        let vxlan = VxlanRepr { vni };
        prop_assert_eq!(VxlanRepr::parse(&Vxlan::parse(&emit!(vxlan, VxlanRepr::LEN)).unwrap()), vxlan);
    }

    #[test]
    fn ipv4_round_trips(
        (src, dst, proto, tos, ttl, id) in any::<([u8; 4], [u8; 4], u8, u8, u8, u16)>(),
        (dont_fragment, more_fragments, units) in (any::<bool>(), any::<bool>(), 0u16..0x2000),
        options in vec(any::<u8>(), 0..=40),
        payload_len in 0u16..100,
    ) {
        let ip = Ipv4Repr {
            src: src.into(), dst: dst.into(), proto, tos, ttl, id, dont_fragment, more_fragments,
            fragment_offset: units * 8,
            options: Options::new(&options).unwrap(),
            payload_len,
        };
        let mut bytes = emit!(ip, ip.header_len());
        bytes.resize(bytes.len() + usize::from(payload_len), 0);
        let view = Ipv4::parse(&bytes).unwrap();
        prop_assert!(view.checksum_ok());
        prop_assert_eq!(Ipv4Repr::parse(&view), ip);
        let mut broken = bytes.clone();
        broken[8] ^= 1;
        prop_assert!(!Ipv4::parse(&broken).unwrap().checksum_ok());
    }

    #[test]
    fn ipv6_and_fragment_round_trip(
        (src, dst, traffic_class, next_header, hop_limit) in any::<([u8; 16], [u8; 16], u8, u8, u8)>(),
        (flow_label, payload_len) in (0u32..1 << 20, 1u16..100),
        (units, more, id) in (0u16..0x2000, any::<bool>(), any::<u32>()),
    ) {
        let (src, dst) = (src.into(), dst.into());
        let ip = Ipv6Repr { src, dst, traffic_class, flow_label, next_header, hop_limit, payload_len };
        let mut bytes = emit!(ip, 40);
        bytes.resize(40 + usize::from(payload_len), 0);
        prop_assert_eq!(Ipv6Repr::parse(&Ipv6::parse(&bytes).unwrap()), ip);
        let fragment = FragmentRepr { next_header, offset: units * 8, more, id };
        let bytes = emit!(fragment, FragmentRepr::LEN);
        let seen = packet::ipv6_ext::Extensions::new(ip_proto::FRAGMENT, &bytes).next().unwrap().unwrap();
        prop_assert_eq!(FragmentRepr::parse(seen.fragment().unwrap()), fragment);
    }

    #[test]
    fn transports_round_trip(
        (src_port, dst_port, seq, ack, flags, window, urgent) in any::<(u16, u16, u32, u32, u16, u16, u16)>(),
        options in vec(any::<u8>(), 0..=40),
        payload_len in 0u16..100,
    ) {
        let flags = flags & 0xfff;
        let options = Options::new(&options).unwrap();
        let tcp = TcpRepr { src_port, dst_port, seq, ack, flags, window, urgent, options };
        prop_assert_eq!(TcpRepr::parse(&Tcp::parse(&emit!(tcp, tcp.header_len())).unwrap()), tcp);
        let udp = UdpRepr { src_port, dst_port, payload_len };
        let mut bytes = emit!(udp, UdpRepr::LEN);
        bytes.resize(8 + usize::from(payload_len), 0);
        prop_assert_eq!(UdpRepr::parse(&Udp::parse(&bytes).unwrap()), udp);
        let sctp = SctpRepr { src_port, dst_port, tag: seq };
        prop_assert_eq!(SctpRepr::parse(&Sctp::parse(&emit!(sctp, SctpRepr::LEN)).unwrap()), sctp);
    }

    #[test]
    fn messages_round_trip(
        (kind, code, rest, group6, link) in any::<(u8, u8, [u8; 4], [u8; 16], [u8; 6])>(),
        max_resp in any::<u8>(),
    ) {
        let icmp = IcmpRepr { kind, code, rest };
        prop_assert_eq!(IcmpRepr::parse(&Icmp::parse(&emit!(icmp, IcmpRepr::LEN)).unwrap()), icmp);
        let icmpv6 = Icmpv6Repr { kind, code, rest };
        prop_assert_eq!(Icmpv6Repr::parse(&Icmpv6::parse(&emit!(icmpv6, Icmpv6Repr::LEN)).unwrap()), icmpv6);

        let group = rest.into();
        let query = IgmpRepr { kind: igmp::kind::QUERY, max_resp: max_resp.max(1), group };
        let bytes = emit!(query, IgmpRepr::LEN);
        let Igmp::Query(seen) = Igmp::parse(&bytes).unwrap() else { panic!("a query") };
        prop_assert_eq!((seen.version, seen.max_resp, seen.group), (2, u32::from(max_resp.max(1)), group));

        let group = group6.into();
        let report = MldRepr { kind: packet::mld::kind::REPORT, max_resp: 0, group };
        let bytes = emit!(report, MldRepr::LEN);
        let Mld::Report { group: seen } = Mld::parse(&bytes).unwrap() else { panic!("a report") };
        prop_assert_eq!(seen, group);

        let advert = NeighbourRepr { kind: 136, flags: 0x60, target: group, link: MacAddr(link) };
        let bytes = emit!(advert, NeighbourRepr::LEN);
        let nd = Icmpv6::parse(&bytes).unwrap().neighbour_discovery().unwrap().unwrap();
        prop_assert_eq!((nd.target(), nd.advert_flags()), (Some(group), (false, true, true)));
        prop_assert_eq!(nd.options().collect::<Vec<_>>(), [Ok(NdOption::TargetLink(MacAddr(link)))]);
    }

    #[test]
    fn etherparse_reads_ipv4_as_we_do(frame in frame_ipv4()) {
        check_against_etherparse(&frame)?;
    }

    #[test]
    fn etherparse_reads_ipv6_as_we_do(frame in frame_ipv6()) {
        check_against_etherparse(&frame)?;
    }

    #[test]
    fn build_into_writes_what_build_gives(frame in frame_arp(), short in 0usize..42) {
        // The builder of `frame` no longer exists, so its ARP message is parsed from the frame. A constant message
        // replaces it if the frame has none.
        let arp = ArpRepr::parse(&Arp::parse(&frame[frame.len() - 46..]).unwrap_or_else(|_| {
            Arp::parse(&ARP).unwrap()
        }));
        let builder = PacketBuilder::eth(MacAddr([2; 6]), MacAddr::BROADCAST).arp(arp);
        let mut buffer = [0xee; 100];
        prop_assert_eq!(builder.build_into(&mut buffer), 42);
        prop_assert_eq!(&buffer[..42], builder.build());
        prop_assert!(buffer[42..].iter().all(|byte| *byte == 0xee));
        let mut small = [0xee; 42];
        prop_assert_eq!(builder.build_into(&mut small[..short]), 42);
        prop_assert_eq!(small, [0xee; 42]);
    }

    /// Checks that no header parser panics on any frame, at whatever offset of the frame the parsing starts.
    #[test]
    fn no_view_panics(frame in frame(), start in 0usize..60) {
        let bytes = &frame[start.min(frame.len())..];
        for len in 0..=bytes.len() {
            read_everything(&bytes[..len]);
        }
    }
}

const ARP: [u8; 28] = [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];

fn read_everything(bytes: &[u8]) {
    let _ = Eth::parse(bytes).map(|eth| Tags::of(&eth).count());
    let _ = Arp::parse(bytes).map(|arp| ArpRepr::parse(&arp));
    let _ = Ipv4::parse(bytes).map(|ip| (Ipv4Repr::parse(&ip), ip.options().count(), ip.checksum_ok()));
    let _ = Ipv6::parse(bytes).map(|ip| (Ipv6Repr::parse(&ip), ip.extensions().count(), ip.upper().is_ok()));
    let _ = Tcp::parse(bytes).map(|tcp| (TcpRepr::parse(&tcp), tcp.options().count(), tcp.checksum_ok(1)));
    let _ = Udp::parse(bytes).map(|udp| (UdpRepr::parse(&udp), udp.checksum_ok(1)));
    let _ = Sctp::parse(bytes).map(|sctp| (sctp.chunks().count(), sctp.checksum_ok()));
    let _ = Icmp::parse(bytes)
        .map(|icmp| (icmp.echo(), icmp.next_hop_mtu(), icmp.gateway(), icmp.payload().len()));
    let _ = Icmpv6::parse(bytes).map(|icmp| {
        let nd = icmp.neighbour_discovery().and_then(Result::ok);
        nd.map(|nd| (nd.target(), nd.destination(), nd.advert_flags(), nd.options().count()))
    });
    if let Ok(Igmp::ReportV3(records)) = Igmp::parse(bytes) {
        records.count();
    }
    if let Ok(Mld::ReportV2(records)) = Mld::parse(bytes) {
        records.count();
    }
    let _ = Vxlan::parse(bytes).map(|vxlan| vxlan.vni());
}

/// Compares the fields of a frame with the result of etherparse, and its checksums with the checksums that etherparse
/// computes.
fn check_against_etherparse(frame: &[u8]) -> Result<(), TestCaseError> {
    let mut key = FlowKey::ZERO;
    let layers = FlowKey::extract(frame, frame.len(), PortId(1), &mut key).unwrap();
    let sliced = match SlicedPacket::from_ethernet(frame) {
        Ok(sliced) if layers.malformed().is_none() => sliced,
        // If the payload has an arbitrary protocol number, both parsers parse it as this protocol, and either parser
        // may find it malformed.
        _ => return Ok(()),
    };
    let Some(LinkSlice::Ethernet2(eth)) = &sliced.link else { panic!("built on Ethernet") };
    prop_assert_eq!((MacAddr(eth.source()), MacAddr(eth.destination())), (key.eth_src(), key.eth_dst()));
    match &sliced.vlan {
        None => prop_assert!(!key.is_tagged()),
        Some(VlanSlice::SingleVlan(tag)) => {
            prop_assert_eq!(key.outer_tci() & 0xfff, tag.vlan_identifier().value());
            prop_assert_eq!(key.outer_pcp(), tag.priority_code_point().value());
        }
        Some(VlanSlice::DoubleVlan(tags)) => {
            prop_assert_eq!(key.outer_tci() & 0xfff, tags.outer().vlan_identifier().value());
            prop_assert_eq!(key.inner_tci() & 0xfff, tags.inner().vlan_identifier().value());
        }
    }
    match &sliced.net {
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header();
            prop_assert_eq!(
                (key.ipv4_src(), key.ipv4_dst()),
                (header.source_addr(), header.destination_addr())
            );
            prop_assert_eq!((key.ttl(), key.proto()), (header.ttl(), header.protocol().0));
            prop_assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
            prop_assert_eq!(key.is_fragment(), header.is_fragmenting_payload());
            // For etherparse, an authentication header (RFC 4302) is part of the IP header. In this crate, it is the
            // beginning of the payload.
            let authentication = ip.extensions().auth.as_ref().map_or(0, |header| header.slice().len());
            prop_assert_eq!(
                authentication + ip.payload().payload.len(),
                Ipv4::parse(&frame[layers.l2_len()..]).unwrap().payload().len()
            );
        }
        Some(NetSlice::Ipv6(ip)) => {
            let header = ip.header();
            prop_assert_eq!(
                (key.ipv6_src(), key.ipv6_dst()),
                (header.source_addr(), header.destination_addr())
            );
            prop_assert_eq!(key.ttl(), header.hop_limit());
            // etherparse reads the data of later fragments as extension headers if the next-header field
            // announces one.
            if !key.is_later_fragment() {
                prop_assert_eq!(key.proto(), ip.payload().ip_number.0);
            }
        }
        None => prop_assert!(false, "no network header"),
    }
    check_transport(&sliced, &key, frame)
}

fn check_transport(sliced: &SlicedPacket<'_>, key: &FlowKey, frame: &[u8]) -> Result<(), TestCaseError> {
    let lax = LaxSlicedPacket::from_ethernet(frame).unwrap();
    prop_assert_eq!(lax.transport.is_some(), sliced.transport.is_some());
    let ports = (key.src_port(), key.dst_port());
    let built = matches!(key.proto(), ip_proto::TCP | ip_proto::UDP) && !key.is_fragment();
    match &sliced.transport {
        Some(TransportSlice::Udp(udp)) if built => {
            prop_assert_eq!(ports, (udp.source_port(), udp.destination_port()));
            // A payload of another protocol can look like UDP. Only a UDP datagram must have a correct
            // checksum.
            let expected = match &sliced.net {
                Some(NetSlice::Ipv4(ip)) => {
                    let (src, dst) = (ip.header().source(), ip.header().destination());
                    udp.to_header().calc_checksum_ipv4_raw(src, dst, udp.payload()).unwrap()
                }
                Some(NetSlice::Ipv6(ip)) => {
                    let (src, dst) = (ip.header().source(), ip.header().destination());
                    udp.to_header().calc_checksum_ipv6_raw(src, dst, udp.payload()).unwrap()
                }
                None => 0,
            };
            if usize::from(udp.length()) == udp.slice().len() && udp.checksum() != 0 {
                prop_assert_eq!(udp.checksum(), expected);
            }
        }
        Some(TransportSlice::Tcp(tcp)) if built => {
            prop_assert_eq!(ports, (tcp.source_port(), tcp.destination_port()));
        }
        // etherparse accepts ICMP over IPv6 and ICMPv6 over IPv4 as messages.
        Some(TransportSlice::Icmpv4(icmp)) if key.l3_kind() == L3Kind::Ipv4 => {
            prop_assert_eq!(ports, (icmp.type_u8().into(), icmp.code_u8().into()));
        }
        Some(TransportSlice::Icmpv6(icmp)) if key.l3_kind() == L3Kind::Ipv6 => {
            prop_assert_eq!(ports, (icmp.type_u8().into(), icmp.code_u8().into()));
        }
        _ => {}
    }
    Ok(())
}

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

/// Checks that the checksums of built packets are correct, with the header parsers of this crate and with etherparse.
#[test]
fn checksums_are_filled_in() {
    let tcp4 = PacketBuilder::eth(A, B).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1, 2).payload(b"odd").build();
    let ip = Ipv4::parse(&tcp4[14..]).unwrap();
    assert!(ip.checksum_ok() && Tcp::parse(ip.payload()).unwrap().checksum_ok(ip.pseudo_sum()));
    let sliced = SlicedPacket::from_ethernet(&tcp4).unwrap();
    let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("TCP") };
    assert_eq!(tcp.checksum(), tcp.calc_checksum_ipv4([10, 0, 0, 1], [10, 0, 0, 2]).unwrap());

    let icmp =
        PacketBuilder::eth(A, B).ipv6([1; 16], [2; 16]).icmpv6(Icmpv6Repr::echo(7, 8)).payload(b"x").build();
    let ip = Ipv6::parse(&icmp[14..]).unwrap();
    let view = Icmpv6::parse(ip.payload()).unwrap();
    assert!(view.checksum_ok(ip.pseudo_sum(ip_proto::ICMPV6, ip.payload().len())));
    assert_eq!(view.echo(), Some((7, 8)));
    let sliced = SlicedPacket::from_ethernet(&icmp).unwrap();
    let Some(TransportSlice::Icmpv6(theirs)) = sliced.transport else { panic!("ICMPv6") };
    assert!(theirs.is_checksum_valid([1; 16], [2; 16]));

    let sctp =
        PacketBuilder::eth(A, B).ipv4([1; 4], [2; 4]).sctp(5, 6).payload(&[1, 0, 0, 6, 9, 9, 0, 0]).build();
    let view = Sctp::parse(&sctp[34..]).unwrap();
    assert!(view.checksum_ok());
    let chunks: Vec<_> = view.chunks().map(|chunk| chunk.unwrap().value.to_vec()).collect();
    assert_eq!(chunks, [[9, 9]]);
    let mut broken = sctp;
    broken[40] ^= 1;
    assert!(!Sctp::parse(&broken[34..]).unwrap().checksum_ok());
}

#[test]
fn vxlan_carries_a_whole_frame() {
    let frame = PacketBuilder::eth(A, B)
        .vlan(7)
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(50_000, packet::vxlan::PORT)
        .vxlan(0x00ab_cdef, B, A)
        .vlan(8)
        .ipv6([1; 16], [2; 16])
        .tcp(80, 81)
        .flags(packet::tcp::flags::SYN)
        .options(&[2, 4, 5, 180, 4, 2, 1, 3, 3, 7])
        .build();
    let outer = Ipv4::parse(&frame[18..]).unwrap();
    let udp = Udp::parse(outer.payload()).unwrap();
    assert!(udp.checksum() != 0 && udp.checksum_ok(outer.pseudo_sum()));
    let vxlan = Vxlan::parse(udp.payload()).unwrap();
    assert_eq!(vxlan.vni(), 0x00ab_cdef);
    let inner = Ipv6::parse(&vxlan.payload()[18..]).unwrap();
    let tcp = Tcp::parse(inner.upper().unwrap().payload).unwrap();
    assert!(tcp.checksum_ok(inner.pseudo_sum(ip_proto::TCP, inner.payload().len())));
    let options: Vec<_> = tcp.options().map(Result::unwrap).collect();
    assert_eq!(
        options,
        [TcpOption::MaxSegmentSize(1460), TcpOption::SackPermitted, TcpOption::WindowScale(7)]
    );
}

#[test]
fn group_reports_are_read_with_their_records() {
    let records = [
        4, 0, 0, 0, 239, 1, 1, 1, // TO_EX with no sources: a join
        3, 1, 0, 1, 239, 2, 2, 2, 10, 0, 0, 1, 0xaa, 0xaa, 0xaa,
        0xaa, // one source and four bytes of auxiliary data
        9, 0, 0, 0, 239, 3, 3, 3, // an unassigned record type
    ];
    let frame = PacketBuilder::eth(A, B)
        .ipv4([10, 0, 0, 1], [224, 0, 0, 22])
        .igmp(IgmpRepr::report_v3(3))
        .payload(&records)
        .build();
    let ip = Ipv4::parse(&frame[14..]).unwrap();
    assert!(igmp::checksum_ok(ip.payload()));
    let Igmp::ReportV3(seen) = Igmp::parse(ip.payload()).unwrap() else { panic!("a report") };
    let seen: Vec<_> =
        seen.map(Result::unwrap).map(|r| (r.kind.map(|k| k as u8), r.group, r.sources.len())).collect();
    assert_eq!(
        seen,
        [
            (Some(4), [239, 1, 1, 1].into(), 0),
            (Some(3), [239, 2, 2, 2].into(), 1),
            (None, [239, 3, 3, 3].into(), 0)
        ]
    );
    // A message that announces one more record than it contains must result in an error. It must not cause a panic or
    // be accepted.
    let mut message = ip.payload().to_vec();
    message[7] = 4;
    let Igmp::ReportV3(records) = Igmp::parse(&message).unwrap() else { panic!("a report") };
    assert_eq!(records.filter(Result::is_err).count(), 1);
}

#[test]
fn queries_tell_their_version() {
    let version = |message: &[u8]| match Igmp::parse(message) {
        Ok(Igmp::Query(query)) => Some((query.version, query.max_resp, query.sources.len())),
        _ => None,
    };
    assert_eq!(version(&[0x11, 0, 0, 0, 0, 0, 0, 0]), Some((1, 100, 0)));
    assert_eq!(version(&[0x11, 50, 0, 0, 0, 0, 0, 0]), Some((2, 50, 0)));
    assert_eq!(version(&[0x11, 0x8a, 0, 0, 0, 0, 0, 0, 2, 125, 0, 1, 10, 0, 0, 1]), Some((3, 208, 1)));
    assert_eq!(version(&[0x11, 0, 0, 0, 0, 0, 0, 0, 2, 125, 0, 2, 10, 0, 0, 1]), None);
    assert_eq!(packet::mld::decode_delay(0x8000), 0x1000 << 3);
}

#[test]
fn mld_goes_behind_a_router_alert() {
    let group = std::net::Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x99);
    let message = MldRepr { kind: packet::mld::kind::REPORT, max_resp: 0, group };
    let frame = PacketBuilder::eth(A, B).ipv6([0xfe; 16], group).mld(message).build();
    let mut key = FlowKey::ZERO;
    let layers = FlowKey::extract(&frame, frame.len(), PortId(1), &mut key).unwrap();
    assert!(layers.is_multicast_control() && layers.has_ipv6_extensions());
    assert_eq!((key.ttl(), key.proto(), key.src_port()), (1, ip_proto::ICMPV6, 131));
    let ip = Ipv6::parse(&frame[14..]).unwrap();
    let upper = ip.upper().unwrap();
    let view = Icmpv6::parse(upper.payload).unwrap();
    assert!(view.checksum_ok(ip.pseudo_sum(upper.proto, upper.payload.len())));
}
