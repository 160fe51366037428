//! Tests of snooping with reports and queries that hosts accept and that the bridge cannot examine. A host that accepts
//! the report of another host suppresses its own report.

use super::*;
use packet::ip_proto;

/// IPv6 destination options header with padding, 8 octets. The first octet is the Next Header value.
const fn dest_opts(next_header: u8) -> [u8; 8] {
    [next_header, 0, 1, 4, 0, 0, 0, 0]
}

/// Returns the two fragments of an IPv4 packet without options, which are cut 8 octets after the IP header.
fn fragments4(proto: u8, group: Ipv4Addr, payload: &[u8]) -> [Vec<u8>; 2] {
    [(0, &payload[..8]), (8, &payload[8..])].map(|(offset, part)| {
        let eth = PacketBuilder::eth(station(1), MacAddr::for_ipv4_multicast(group));
        let ip = eth.ipv4([10, 0, 0, 1], group).ttl(1).fragment(offset, offset == 0);
        ip.proto(proto).payload(part).build()
    })
}

/// Builds an IPv6 fragment.
fn fragment6(offset: u16, more: bool, next_header: u8, part: &[u8]) -> Vec<u8> {
    let eth = PacketBuilder::eth(station(1), MacAddr::for_ipv6_multicast(NEWS6));
    let ip = eth.ipv6(LINK_LOCAL, NEWS6).ttl(1).fragment(offset, more, 7);
    ip.proto(next_header).payload(part).build()
}

/// Checks that the frame is dropped as an unreadable message, and that a broadcast copy of the frame is dropped, too.
fn is_dropped(lab: &mut Lab, frame: &[u8], what: &str) {
    let mut broadcast = frame.to_vec();
    broadcast[..6].fill(0xff);
    for (frame, cast) in [(frame, "multicast"), (&broadcast, "broadcast")] {
        let outcome = lab.driven.send_bytes(3, frame, lab.now());
        let expected = (Some(DropReason::MulticastControlBad), vec![]);
        assert_eq!((outcome.dropped, outcome.outputs), expected, "{what}, {cast}");
    }
}

#[test]
fn reports_and_queries_to_the_broadcast_address_reach_no_host() {
    let mut lab = Lab::new();
    lab.send(9, &general_query());
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let messages = [
        report(NEWS),
        report_v3(&[(4, NEWS, 0)]),
        leave(NEWS),
        general_query(),
        mld_report(),
        mld_from(LINK_LOCAL, all_nodes, mld::kind::QUERY, Ipv6Addr::UNSPECIFIED),
    ];
    for mut frame in messages {
        frame[..6].fill(0xff);
        let outcome = lab.driven.send_bytes(3, &frame, lab.now());
        assert_eq!(outcome.dropped, Some(DropReason::MulticastControlBad), "{frame:x?}");
    }
    // Other broadcast frames are flooded.
    let mut data = udp4(NEWS);
    data[..6].fill(0xff);
    assert_eq!(lab.send(4, &data), [1, 2, 3, 9]);
}

#[test]
fn fragments_of_reports_reach_no_host() {
    let mut lab = Lab::new();
    lab.send(1, &report(NEWS));
    lab.send(1, &mld_report());
    let igmp = [&[0x16, 0, 0xf8, 0xfa, 239, 1, 2, 3][..], &[0; 8]].concat();
    for (at, frame) in fragments4(ip_proto::IGMP, NEWS, &igmp).iter().enumerate() {
        is_dropped(&mut lab, frame, &format!("IGMP fragment {at}"));
    }
    let mld = &mld_report()[14 + 40 + 8..];
    let options = [&dest_opts(ip_proto::ICMPV6), mld].concat();
    let long_options = [&[ip_proto::ICMPV6, 1, 1, 12, 0, 0, 0, 0][..], &[0; 8], mld].concat();
    for (proto, payload, what) in [
        (ip_proto::ICMPV6, mld, "MLD"),
        (ip_proto::DEST_OPTS, &options, "MLD after options"),
        (ip_proto::DEST_OPTS, &long_options, "MLD after options that are cut"),
    ] {
        is_dropped(&mut lab, &fragment6(0, true, proto, &payload[..8]), &format!("first of {what}"));
        is_dropped(&mut lab, &fragment6(8, false, proto, &payload[8..]), &format!("last of {what}"));
    }
    // Fragments of data go to the listeners.
    for frame in fragments4(ip_proto::UDP, NEWS, &[0; 16]) {
        assert_eq!(lab.send(4, &frame), [1]);
    }
    // An unfragmented packet with a fragment header (RFC 6946) is examined.
    assert_eq!(lab.send(4, &fragment6(0, false, ip_proto::ICMPV6, mld)), [0; 0]);
}

/// Hosts accept more extension headers than the bridge reads.
#[test]
fn a_report_after_many_extension_headers_reaches_no_host() {
    let mut lab = Lab::new();
    let mld = &mld_report()[14 + 40 + 8..];
    let behind = |count: usize| {
        let options = (1..=count)
            .flat_map(|at| dest_opts(if at == count { ip_proto::ICMPV6 } else { ip_proto::DEST_OPTS }));
        let payload: Vec<u8> = options.chain(mld.iter().copied()).collect();
        let eth = PacketBuilder::eth(station(1), MacAddr::for_ipv6_multicast(NEWS6));
        eth.ipv6(LINK_LOCAL, NEWS6).ttl(1).proto(ip_proto::DEST_OPTS).payload(&payload).build()
    };
    assert_eq!(lab.send(1, &behind(8)), [0; 0], "a report without router ports");
    is_dropped(&mut lab, &behind(9), "nine headers");
}

/// Hosts remove any number of priority tags. The bridge reads two tags.
#[test]
fn a_report_behind_three_priority_tags_reaches_no_host() {
    let mut lab = Lab::new();
    for (frame, what) in [(report(NEWS), "IGMP"), (mld_report(), "MLD")] {
        for tpid in [0x8100, 0x88a8] {
            let tags = [(0x8100, 0), (tpid, 0), (tpid, 0)];
            is_dropped(&mut lab, &with_tags(&frame, &tags), &format!("{what} behind {tags:x?}"));
        }
        assert_eq!(lab.send(1, &with_tags(&frame, &[(0x8100, 0), (0x8100, 0)])), [0; 0], "{what}");
    }
    // Frames of an inner network are flooded. Hosts of the VLAN do not accept them.
    let inner = with_tags(&report(NEWS), &[(0x8100, 0), (0x8100, 20), (0x8100, 0)]);
    assert_eq!(lab.send(4, &inner), [1, 2, 3, 9]);
}
