//! Tests of MLD snooping.

use super::*;

#[test]
fn mld_is_to_ipv6_what_igmp_is_to_ipv4() {
    let mut lab = Lab::new();
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let all_routers = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
    assert_eq!(lab.send(4, &udp6(NEWS6)), [1, 2, 3, 9]);
    assert_eq!(
        lab.send(9, &mld_from(ROUTER6, all_nodes, mld::kind::QUERY, Ipv6Addr::UNSPECIFIED)),
        [1, 2, 3, 4]
    );
    lab.wait(1);
    assert_eq!(lab.send(1, &mld_from(LINK_LOCAL, NEWS6, mld::kind::REPORT, NEWS6)), [9]);
    assert_eq!(lab.send(4, &udp6(NEWS6)), [1, 9]);
    assert_eq!(lab.snooper.routers()[0].family, Family::V6);
    // The IPv6 router does not get IPv4 groups.
    lab.send(2, &report(NEWS));
    assert_eq!(lab.data(NEWS), [2]);
    // A Done message, and the querier's query for the group.
    assert_eq!(lab.send(1, &mld_from(LINK_LOCAL, all_routers, mld::kind::DONE, NEWS6)), [9]);
    lab.send(9, &mld_from(LINK_LOCAL, NEWS6, mld::kind::QUERY, NEWS6));
    lab.wait(2);
    assert_eq!(lab.send(4, &udp6(NEWS6)), [1, 2, 3, 9]);
}

#[test]
fn mld_version_2_reports_and_impostors() {
    let mut lab = Lab::new();
    let to = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 16);
    let report = |hop_limit, src| {
        let mut payload = vec![4, 0, 0, 0];
        payload.extend(NEWS6.octets());
        let eth = PacketBuilder::eth(station(1), MacAddr::for_ipv6_multicast(to));
        let message = Icmpv6Repr { kind: mld::kind::REPORT_V2, code: 0, rest: [0, 0, 0, 1] };
        eth.ipv6(src, to).ttl(hop_limit).router_alert().icmpv6(message).payload(&payload).build()
    };
    // From another link, or from a global address.
    lab.send(1, &report(2, LINK_LOCAL));
    lab.send(1, &report(1, Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)));
    assert_eq!(lab.snooper.groups(), []);
    assert_eq!(lab.snooper.counts().bad, 2);
    // A host without an address may report.
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    lab.send(9, &mld_from(ROUTER6, all_nodes, mld::kind::QUERY, Ipv6Addr::UNSPECIFIED));
    lab.send(1, &report(1, Ipv6Addr::UNSPECIFIED));
    lab.wait(1);
    assert_eq!(lab.send(4, &udp6(NEWS6)), [1, 9]);
}

/// Builds an MLD query. `extensions` are the headers between the IPv6 header and the MLD message, and `next_header` is
/// the Next Header value of the IPv6 header.
fn mld_behind(next_header: u8, extensions: &[u8], payload_len: Option<u16>) -> Vec<u8> {
    let bare = PacketBuilder::eth(station(3), MacAddr::for_ipv6_multicast(NEWS6));
    let message = Icmpv6Repr { kind: mld::kind::QUERY, code: 0, rest: [0, 10, 0, 0] };
    let mut frame = bare.ipv6(LINK_LOCAL, NEWS6).ttl(1).icmpv6(message).payload(&NEWS6.octets()).build();
    let length = u16::try_from(frame.len() - 14 - 40 + extensions.len()).unwrap();
    frame.splice(14 + 40..14 + 40, extensions.iter().copied());
    frame[14 + 4..14 + 6].copy_from_slice(&payload_len.unwrap_or(length).to_be_bytes());
    frame[14 + 6] = next_header;
    frame
}

#[test]
fn queries_that_ipv6_discards_have_no_effect() {
    const ALERT: [u8; 4] = [5, 2, 0, 0];
    let hop_by_hop = |options: &[u8]| {
        let units = u8::try_from((2 + options.len()) / 8 - 1).unwrap();
        [[58, units].as_slice(), options].concat()
    };
    let mut lab = Lab::new();
    let believed = |lab: &mut Lab, frame: &[u8]| {
        let queries = lab.snooper.counts().queries;
        lab.snooper.handle(&lab.driven.bridge, PortId(3), 1, frame, lab.now());
        lab.snooper.counts().queries > queries
    };
    let pad_0 = [1, 0].as_slice();
    for (what, good, options) in [
        ("padding behind", true, [ALERT.as_slice(), pad_0].concat()),
        ("padding in front", true, [pad_0, &ALERT].concat()),
        ("two paddings of one", true, [ALERT.as_slice(), &[0, 0]].concat()),
        ("an option that hosts discard", false, [ALERT.as_slice(), &[0x40, 0]].concat()),
        ("one that hosts discard and answer", false, [ALERT.as_slice(), &[0x80, 0]].concat()),
        ("one that hosts skip", false, [ALERT.as_slice(), &[0x1e, 0]].concat()),
        ("a jumbo payload", false, [ALERT.as_slice(), &[0xc2, 4, 0, 1, 0, 0]].concat()),
        ("another alert behind", false, [ALERT.as_slice(), &[5, 2, 0, 1], &[1, 4, 0, 0, 0, 0]].concat()),
        ("another alert in front", false, [[5, 2, 0, 1].as_slice(), &ALERT, &[1, 4, 0, 0, 0, 0]].concat()),
        ("padding that is not zero", false, [ALERT.as_slice(), pad_0, &[1, 6, 0, 0, 0, 0, 0, 1]].concat()),
        ("too much padding", false, [ALERT.as_slice(), pad_0, &[1, 6, 0, 0, 0, 0, 0, 0]].concat()),
        ("an option beyond the header", false, [ALERT.as_slice(), &[1, 1]].concat()),
        ("no alert", false, [1, 4, 0, 0, 0, 0].to_vec()),
    ] {
        assert_eq!(believed(&mut lab, &mld_behind(0, &hop_by_hop(&options), None)), good, "{what}");
    }
    let alert = hop_by_hop(&[ALERT.as_slice(), pad_0].concat());
    assert!(!believed(&mut lab, &mld_behind(0, &alert, Some(0))), "a payload length of zero");
    for kind in [43, 60] {
        let mut behind = alert.clone();
        behind[0] = kind;
        behind.extend([58, 0, 1, 4, 0, 0, 0, 0]);
        assert!(!believed(&mut lab, &mld_behind(0, &behind, None)), "an extension header {kind}");
    }
}
