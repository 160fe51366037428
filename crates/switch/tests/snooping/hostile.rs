//! Tests of multicast snooping with forged messages, and of the limits on the number of memberships.

use super::*;

#[test]
fn a_forged_query_cannot_cut_listeners_off_at_once() {
    let mut lab = Lab::new();
    lab.send(9, &general_query());
    lab.send(1, &report(NEWS));
    lab.send(1, &leave(NEWS));
    // Response time zero in an IGMPv3 query (an IGMPv1 query names no group).
    let forged = IgmpRepr { kind: kind::QUERY, max_resp: 0, group: NEWS };
    lab.send(3, &igmp_to([10, 0, 0, 3].into(), NEWS, forged, &[0, 125, 0, 0]));
    lab.snooper.tick(&lab.driven.bridge, lab.now());
    lab.publish();
    assert_eq!(lab.data(NEWS), [1, 3, 9]);
    lab.send(1, &report(NEWS));
    lab.wait(10);
    assert_eq!(lab.data(NEWS), [1, 3, 9]);
}

#[test]
fn messages_that_a_host_would_not_believe_are_not_believed() {
    let mut lab = Lab::new();
    let good = report(NEWS);
    for at in [14 + 24, 14 + 24 + 2, 14 + 24 + 7, 14 + 10] {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        lab.snooper.handle(&lab.driven.bridge, PortId(1), 1, &bad, Now::from_secs(1));
        assert_eq!(lab.snooper.groups(), [], "octet {at}");
    }
    for len in 0..14 + 24 + 8 {
        lab.snooper.handle(&lab.driven.bridge, PortId(1), 1, &good[..len], Now::from_secs(1));
        assert_eq!(lab.snooper.groups(), [], "{len} octets");
    }
    assert_eq!(lab.snooper.counts().bad, 4 + 14 + 24 + 8);
    // A unicast address as the group, from a malicious host.
    lab.snooper.handle(
        &lab.driven.bridge,
        PortId(1),
        1,
        &host_igmp(NEWS, kind::REPORT_V2, QUERIER),
        Now::from_secs(1),
    );
    assert_eq!(lab.snooper.groups(), []);
}

#[test]
fn groups_are_bounded_per_port_and_per_bridge() {
    let bounds =
        SnooperConfig { max_groups: 5, max_groups_per_port: 3, fast_leave: true, ..SnooperConfig::default() };
    let mut lab = Lab::with(bounds);
    let group = |number: u8| Ipv4Addr::new(239, 0, 0, number);
    for number in 0..10 {
        lab.send(1, &report(group(number)));
    }
    assert_eq!(lab.snooper.groups().len(), 3);
    for number in 20..30 {
        lab.send(2, &report(group(number)));
    }
    assert_eq!(lab.snooper.groups().len(), 5);
    assert_eq!(lab.snooper.counts().refused, 7 + 8);
    // A known group accepts more listeners, and an unknown one floods.
    lab.send(2, &report(group(0)));
    assert_eq!(lab.data(group(0)), [1, 2]);
    assert_eq!(lab.data(group(9)), [1, 2, 3, 9]);
    // Frees the space of one membership. Port 2 has sent a report that was refused, and receives the group, too.
    lab.send(1, &leave(group(1)));
    lab.wait(2);
    lab.send(1, &report(group(9)));
    assert_eq!(lab.data(group(9)), [1, 2]);
    assert_eq!(lab.snooper.groups().last().unwrap().members, [PortId(2)]);
}

/// A query to a link-layer address that hosts do not receive removes no listener. Queries to other IP destinations,
/// queries that a router has forwarded, and IPv6 queries without a router alert also remove no listener.
#[test]
fn queries_that_hosts_do_not_hear_have_no_effect() {
    let mut lab = Lab::new();
    lab.send(9, &general_query());
    lab.send(1, &report(NEWS));
    let elsewhere = MacAddr([1, 0, 0x5e, 0x7f, 0xff, 0xff]);
    let about_news = IgmpRepr { kind: kind::QUERY, max_resp: 1, group: NEWS };
    let general = IgmpRepr { kind: kind::QUERY, max_resp: 1, group: Ipv4Addr::UNSPECIFIED };
    let forged = |mac, to, ttl, message| {
        let eth = PacketBuilder::eth(station(3), mac).ipv4([10, 0, 0, 3], to).ttl(ttl);
        eth.options(&[0x94, 4, 0, 0]).igmp(message).pad_to(60).build()
    };
    let other = Ipv4Addr::new(239, 9, 9, 9);
    for frame in [
        forged(elsewhere, NEWS, 1, about_news),
        forged(MacAddr::for_ipv4_multicast(NEWS), NEWS, 2, about_news),
        forged(MacAddr::for_ipv4_multicast(other), other, 1, about_news),
        forged(elsewhere, ALL_HOSTS, 1, general),
        forged(MacAddr::for_ipv4_multicast(NEWS), NEWS, 1, general),
    ] {
        let bad = lab.snooper.counts().bad;
        lab.send(3, &frame);
        assert_eq!(lab.snooper.counts().bad, bad + 1);
    }
    assert_eq!(lab.snooper.routers()[0].ports, [PortId(9)], "the forger gets no groups");
    lab.wait(5);
    assert_eq!(lab.data(NEWS), [1, 9]);
    // A query to all hosts about a group that the host has left. Other listeners receive the query.
    lab.send(1, &leave(NEWS));
    lab.send(9, &forged(MacAddr::for_ipv4_multicast(ALL_HOSTS), ALL_HOSTS, 1, about_news));
    lab.wait(2);
    assert_eq!(lab.data(NEWS), [1, 2, 3, 9]);
    // The IPv6 cases.
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    lab.send(9, &mld_from(ROUTER6, all_nodes, mld::kind::QUERY, Ipv6Addr::UNSPECIFIED));
    lab.send(1, &mld_from(LINK_LOCAL, NEWS6, mld::kind::REPORT, NEWS6));
    let bare = PacketBuilder::eth(station(3), MacAddr::for_ipv6_multicast(NEWS6));
    let message = Icmpv6Repr { kind: mld::kind::QUERY, code: 0, rest: [0, 1, 0, 0] };
    let bare = bare.ipv6(LINK_LOCAL, NEWS6).ttl(1).icmpv6(message).payload(&NEWS6.octets()).build();
    lab.send(3, &bare);
    lab.send(3, &mld_from(Ipv6Addr::UNSPECIFIED, NEWS6, mld::kind::QUERY, NEWS6));
    lab.wait(5);
    assert_eq!(lab.send(4, &udp6(NEWS6)), [1, 9]);
}

fn protected(ports: &[u16], router: Option<bool>) -> BridgeConfig {
    let mut config = bridge_config(&[1, 2, 3, 4, 9]);
    for port in config.ports.iter_mut().filter(|port| ports.contains(&port.port.0)) {
        port.protected = true;
        port.multicast_router = router;
    }
    config
}

/// If a tenant on a protected port sends queries and PIM hellos, the bridge does not treat the port as a router port.
/// Other protected ports do not receive the tenant's queries, so these queries do not remove memberships.
#[test]
fn a_protected_port_neither_cuts_off_nor_captures_the_groups_of_others() {
    for router in [None, Some(true)] {
        let mut lab = Lab::new();
        lab.driven.bridge = lab.driven.bridge.reconfigured(&protected(&[1, 2, 3], router));
        lab.send(9, &general_query());
        lab.send(1, &report(NEWS));
        lab.send(3, &general_query());
        lab.send(3, &query(QUERIER, 1, NEWS));
        lab.send(3, &pim_hello());
        lab.wait(5);
        let expected: &[u16] = if router.is_none() { &[1, 9] } else { &[1, 3, 9] };
        assert_eq!(lab.data(NEWS), expected, "a router may be there: {router:?}");
        // The tenant's own memberships are accepted.
        lab.send(3, &report(NEWS));
        assert_eq!(lab.data(NEWS), [1, 3, 9]);
    }
}

/// The queries of a querier on a protected port do not reach listeners on protected ports. If these listeners send no
/// reports, frames to the group are flooded.
#[test]
fn a_querier_on_a_protected_port_starves_no_protected_listener() {
    let mut lab = Lab::without_querier(SnooperConfig::default());
    lab.driven.bridge = lab.driven.bridge.reconfigured(&protected(&[1, 3], Some(true)));
    lab.send(1, &report(NEWS));
    for _ in 0..13 {
        lab.send(3, &general_query());
        lab.send(2, &report(NEWS));
        lab.wait(20);
    }
    assert_eq!(lab.data(NEWS), [1, 2, 3, 9]);
}

/// A group-specific query removes only a port that has left the group, whatever the source address of the query is. A
/// host discards a query whose source address is on another subnet (`rp_filter`) or is the host's own address, and does
/// not answer the query.
#[test]
fn a_query_that_listeners_discard_cuts_no_listener_off() {
    let mut lab = Lab::new();
    lab.send(9, &general_query());
    for port in [1, 2] {
        lab.send(port, &report(NEWS));
        lab.send(port, &mld_from(LINK_LOCAL, NEWS6, mld::kind::REPORT, NEWS6));
    }
    for source in [[203, 0, 113, 1], [10, 0, 0, 255], [10, 0, 0, 1]] {
        lab.send(3, &query(source.into(), 1, NEWS));
    }
    lab.wait(5);
    assert_eq!(lab.data(NEWS), [1, 2, 3, 9]);
    // A port that has left is removed by the next query.
    lab.send(2, &leave(NEWS));
    lab.send(9, &query(QUERIER, 10, NEWS));
    lab.wait(2);
    assert_eq!(lab.data(NEWS), [1, 3, 9]);
}

/// An attacker joins a group and sends forged general queries that reach no other host. The other members stay in the
/// group, although the queries do not reach them and they send no reports.
#[test]
fn a_querier_that_listeners_do_not_hear_starves_none() {
    let forged = || query([203, 0, 113, 1].into(), 100, Ipv4Addr::UNSPECIFIED);
    let mut lab = Lab::without_querier(SnooperConfig::default());
    lab.send(1, &report(NEWS));
    lab.send(2, &report(NEWS));
    lab.wait(SETTLED);
    let ask = |lab: &mut Lab, times: u32| {
        for _ in 0..times {
            lab.send(3, &forged());
            lab.send(3, &report(NEWS));
            lab.wait(120);
        }
    };
    ask(&mut lab, 4);
    assert_eq!(lab.data(NEWS), [1, 2, 3, 9], "no port but the forger's has answered");
    // A new listener's report counts as an answer, but the silence of others does not end their memberships.
    lab.send(3, &forged());
    lab.send(9, &report(NEWS));
    ask(&mut lab, 4);
    assert_eq!(lab.data(NEWS), [1, 2, 3, 9]);
    assert_eq!(lab.snooper.groups()[0].members.len(), 4);
    // With a true querier besides the forger, a listener that answers and then falls silent is removed.
    lab.wait(SETTLED);
    for _ in 0..4 {
        lab.send(9, &general_query());
        lab.send(2, &report(NEWS));
        lab.wait(SETTLED);
        lab.send(3, &forged());
        lab.wait(110);
    }
    let members = lab.snooper.groups()[0].members.clone();
    assert_eq!(
        members,
        [1, 2, 9].map(PortId),
        "ports 1 and 9 have not answered it, the forger has fallen silent"
    );
    lab.send(9, &general_query());
    lab.send(1, &report(NEWS));
    for _ in 0..3 {
        lab.wait(110);
        lab.send(9, &general_query());
        lab.send(2, &report(NEWS));
    }
    assert!(!lab.data(NEWS).contains(&1), "{:?}", lab.snooper.groups());
    assert!(lab.data(NEWS).contains(&2));
}

/// A port at its limit of groups loses memberships that are no longer reported, so that new groups have space.
#[test]
fn silent_memberships_make_room_at_a_port_that_is_full() {
    let bounds = SnooperConfig { max_groups_per_port: 3, ..SnooperConfig::default() };
    let mut lab = Lab::without_querier(bounds);
    let group = |number: u8| Ipv4Addr::new(239, 0, 0, number);
    for number in 0..3 {
        lab.send(1, &report(group(number)));
    }
    lab.send(2, &report(group(0)));
    lab.wait(100);
    lab.send(1, &report(group(1)));
    lab.wait(160);
    let known: Vec<_> = lab.snooper.groups().into_iter().map(|known| (known.group, known.members)).collect();
    assert_eq!(known, [(group(0).into(), vec![PortId(2)]), (group(1).into(), vec![PortId(1)])]);
}

/// Queries that Linux discards in IP, IGMP or MLD because of an invalid source address, option, header or VLAN tag are
/// counted as bad, and remove no membership.
#[test]
fn queries_that_ip_discards_have_no_effect() {
    let mut lab = Lab::new();
    lab.send(9, &general_query());
    lab.send(1, &report(NEWS));
    lab.send(1, &leave(NEWS));
    let mac = |group| MacAddr::for_ipv4_multicast(group);
    let about_news = IgmpRepr { kind: kind::QUERY, max_resp: 10, group: NEWS };
    let with_options = |options: &[u8]| {
        let eth = PacketBuilder::eth(station(3), mac(NEWS)).ipv4([10, 0, 0, 3], NEWS).ttl(1);
        eth.options(options).igmp(about_news).build()
    };
    let refused = |lab: &mut Lab, frame: &[u8], what: &str| {
        let bad = lab.snooper.counts().bad;
        lab.snooper.handle(&lab.driven.bridge, PortId(3), 1, frame, lab.now());
        assert_eq!(lab.snooper.counts().bad, bad + 1, "{what}");
    };
    let sources =
        [[127, 0, 0, 1], [255, 255, 255, 255], [224, 0, 0, 9], [239, 9, 9, 9], [240, 0, 0, 1], [0, 0, 0, 7]];
    for source in sources {
        refused(&mut lab, &query(source.into(), 10, NEWS), &format!("{source:?}"));
        refused(&mut lab, &query(source.into(), 100, Ipv4Addr::UNSPECIFIED), &format!("{source:?}"));
    }
    // A loose source route, a full record route, a length beyond the header, and a CIPSO option.
    for options in [[131, 3, 4, 0].as_slice(), &[7, 3, 4, 0], &[148, 9, 0, 0], &[134, 4, 0, 0]] {
        refused(&mut lab, &with_options(options), &format!("{options:?}"));
    }
    let general = IgmpRepr { kind: kind::QUERY, max_resp: 100, group: Ipv4Addr::UNSPECIFIED };
    let with_source = igmp_to(QUERIER, ALL_HOSTS, general, &[0, 125, 0, 1, 10, 9, 9, 9]);
    refused(&mut lab, &with_source, "a general query with a source");
    let mut long = general_query();
    long.resize(1400, 0);
    refused(&mut lab, &long, "longer than a listener's MTU may be");
    for tags in [[0x88, 0xa8, 0, 1].as_slice(), &[0x81, 0, 0, 7], &[0x81, 0, 0, 1, 0x81, 0, 0, 1]] {
        let mut tagged = general_query();
        tagged.splice(12..12, tags.iter().copied());
        refused(&mut lab, &tagged, &format!("behind {tags:x?}"));
    }
    lab.wait(5);
    assert_eq!(lab.data(NEWS), [1, 9]);
    // Padding and the VLAN's own tag are accepted.
    let mut tagged = with_options(&[1, 148, 4, 0, 0, 0, 0, 0]);
    tagged.splice(12..12, [0x81, 0, 0, 1]);
    lab.snooper.handle(&lab.driven.bridge, PortId(3), 1, &tagged, lab.now());
    lab.wait(2);
    assert_eq!(lab.data(NEWS), [1, 2, 3, 9]);
}

/// One port sends 1,100 reports per second. Reports from other ports still reach the snooper, because the bridge copies
/// at most 100 packets per second of one port to the snooper, with bursts of 50.
#[test]
fn a_flood_of_reports_has_a_share_of_the_copies() {
    let mut lab = Lab::new();
    let punted =
        |lab: &mut Lab, port, now| usize::from(lab.driven.send_bytes(port, &report(NEWS), now).punted);
    let ns = |number: u64| Now::from_ns(1_000_000_000_000 + number * 1_000_000_000 / 1100);
    let copies: usize = (0..1100).map(|number| punted(&mut lab, 3, ns(number))).sum();
    assert!((100..=151).contains(&copies), "{copies} copies");
    // Another port's report is processed despite the flood. A changed configuration gives the flooding port
    // no new tokens.
    assert_eq!(punted(&mut lab, 1, ns(1100)), 1);
    lab.driven.bridge = lab.driven.bridge.reconfigured(&bridge_config(&[1, 2, 3, 4, 9]));
    let more: usize = (0..10).map(|_| punted(&mut lab, 3, ns(1100))).sum();
    assert!(more <= 1, "{more} more");
}
