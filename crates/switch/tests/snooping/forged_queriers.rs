//! Tests of snooping with a forged querier that a listener does not hear, and with other queries that cause the
//! listener to answer within the response time of the forged querier. The membership of the listener must not end
//! because the listener is silent towards the forged querier.

use super::*;

/// Port of the attacker.
const ATTACKER: u16 = 3;
const VICTIM: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// Source in another subnet, from which a host with `rp_filter` accepts no query.
const FOREIGN: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

fn report_of(host: Ipv4Addr) -> Vec<u8> {
    igmp_to(host, NEWS, IgmpRepr { kind: kind::REPORT_V2, max_resp: 0, group: NEWS }, &[])
}

/// Runs an attack and returns the ports of the listeners. The victim on port 1 and another host on port 2 listen. The
/// attacker sends general queries from `source`, which only the other host answers. In the response time of the first
/// of these queries, `cause` makes the victim answer. The true querier is silent, because `source` is a lower address.
fn listeners_after(source: Ipv4Addr, cause: impl Fn(&mut Lab)) -> Vec<u16> {
    let mut lab = Lab::without_querier(SnooperConfig::default());
    lab.send(1, &report_of(VICTIM));
    lab.send(2, &report_of(OTHER));
    lab.wait(SETTLED);
    for round in 0..6 {
        lab.send(ATTACKER, &query(source, 100, Ipv4Addr::UNSPECIFIED));
        if round == 0 {
            cause(&mut lab);
            lab.send(1, &report_of(VICTIM));
        }
        lab.send(2, &report_of(OTHER));
        lab.wait(100);
    }
    lab.snooper.groups()[0].members.iter().map(|port| port.0).collect()
}

/// Without another query, the answer of the victim shows that the victim has heard the querier.
#[test]
fn a_listener_that_answered_a_querier_and_fell_silent_is_removed() {
    assert_eq!(listeners_after(FOREIGN, |_| {}), [2]);
}

/// The victim discards queries from its own address. A query that the attacker sends to the Ethernet address of the
/// victim causes the answer. The snooper does not see this query.
#[test]
fn a_querier_with_the_address_of_a_listener_is_not_believed() {
    assert_eq!(listeners_after(VICTIM, |_| {}), [1, 2]);
}

#[test]
fn a_port_whose_host_has_the_address_of_a_querier_receives_all_groups() {
    let mut lab = Lab::without_querier(SnooperConfig::default());
    lab.send(ATTACKER, &query(VICTIM, 100, Ipv4Addr::UNSPECIFIED));
    lab.send(2, &report_of(OTHER));
    lab.wait(SETTLED);
    assert_eq!(lab.data(NEWS), [2, 3]);
    lab.send(1, &host_igmp(V3_ROUTERS, kind::REPORT_V2, TWIN));
    assert_eq!(lab.data(NEWS), [1, 2, 3], "snooping goes on for the other ports");
    // The reports of a querier on its own port change nothing.
    lab.send(9, &general_query());
    lab.send(9, &report_of(QUERIER));
    lab.send(2, &report_of(OTHER));
    lab.wait(SETTLED);
    assert_eq!(lab.data(NEWS), [1, 2, 3, 9]);
}

#[test]
fn an_answer_to_another_query_is_no_answer_to_the_querier() {
    let general = IgmpRepr { kind: kind::QUERY, max_resp: 100, group: Ipv4Addr::UNSPECIFIED };
    let other_ttl = {
        let eth = PacketBuilder::eth(station(3), MacAddr::for_ipv4_multicast(ALL_HOSTS));
        eth.ipv4(OTHER, ALL_HOSTS).ttl(2).options(&[0x94, 4, 0, 0]).igmp(general).build()
    };
    let causes = [
        ("a query about the group", query(OTHER, 100, NEWS)),
        (
            "a query about a source",
            igmp_to(OTHER, NEWS, IgmpRepr { group: NEWS, ..general }, &[0, 125, 0, 1, 10, 9, 9, 9]),
        ),
        ("a query with another TTL", other_ttl),
        ("a query to another group", {
            let eth = PacketBuilder::eth(station(3), MacAddr::for_ipv4_multicast(MDNS));
            eth.ipv4(OTHER, MDNS).ttl(1).igmp(general).build()
        }),
        ("a query with the source of another host", query(OTHER, 100, Ipv4Addr::UNSPECIFIED)),
    ];
    for (what, frame) in causes {
        let members = listeners_after(FOREIGN, |lab| drop(lab.send(ATTACKER, &frame)));
        assert_eq!(members, [1, 2], "{what}");
    }
    let lost = |lab: &mut Lab| lab.driven.bridge.note_unsnooped(PortId(ATTACKER), lab.now());
    assert_eq!(listeners_after(FOREIGN, lost), [1, 2], "a query that the snooper did not receive");
}

/// A query with a long response time causes an answer long after the query. A later query of the querier does not end
/// the response time.
#[test]
fn a_later_query_does_not_shorten_the_response_time() {
    let long = igmp_to(
        OTHER,
        ALL_HOSTS,
        IgmpRepr { kind: kind::QUERY, max_resp: 0xff, group: Ipv4Addr::UNSPECIFIED },
        &[0, 125, 0, 0],
    );
    let mut lab = Lab::without_querier(SnooperConfig::default());
    lab.send(1, &report_of(VICTIM));
    lab.wait(SETTLED);
    lab.send(ATTACKER, &long);
    lab.send(ATTACKER, &query(OTHER, 1, Ipv4Addr::UNSPECIFIED));
    lab.wait(300);
    for round in 0..4 {
        lab.send(ATTACKER, &query(FOREIGN, 100, Ipv4Addr::UNSPECIFIED));
        if round == 0 {
            lab.send(1, &report_of(VICTIM));
        }
        lab.wait(100);
    }
    assert_eq!(lab.snooper.groups()[0].members, [PortId(1)]);
}
