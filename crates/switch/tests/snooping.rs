//! Multicast snooping in the scenarios of RFC 4541: bridge and snooper together, with frames as hosts and
//! routers send them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod lab;

use std::net::{Ipv4Addr, Ipv6Addr};

use lab::{Driven, station};
use packet::build::PacketBuilder;
use packet::icmpv6::Icmpv6Repr;
use packet::igmp::{IgmpRepr, kind};
use packet::mld::{self, MldRepr};
use packet::{DropReason, MacAddr, PortId, VlanId};
use switch::{Bridge, BridgeConfig, BridgePortConfig, Family, Now, Snooper, SnooperConfig, VlanMode};

const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const V3_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
const NEWS: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
/// A group with the MAC address of [`NEWS`].
const TWIN: Ipv4Addr = Ipv4Addr::new(238, 129, 2, 3);
const NEWS6: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 1, 3);
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const QUERIER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
/// A group that always floods.
const MDNS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
/// Seconds after which a report is not a host's own repetition of its first one.
const SETTLED: u64 = 12;

/// A bridge with hosts on ports 1 to 4, a router on port 9, and port 5 in another VLAN.
struct Lab {
    driven: Driven,
    snooper: Snooper,
    secs: u64,
}

impl Lab {
    fn new() -> Lab {
        Lab::with(SnooperConfig::default())
    }

    /// Creates a bridge with a querier that is not a router, a switch behind port 9, whose query a host on
    /// port 2 has answered.
    fn with(config: SnooperConfig) -> Lab {
        let mut lab = Lab::without_querier(config);
        lab.send(9, &query(Ipv4Addr::UNSPECIFIED, 100, Ipv4Addr::UNSPECIFIED));
        lab.send(2, &report(MDNS));
        lab.wait(SETTLED);
        lab
    }

    fn without_querier(config: SnooperConfig) -> Lab {
        Lab {
            driven: Driven::new(Bridge::new(&bridge_config(&[1, 2, 3, 4, 9]), 5)),
            snooper: Snooper::new(config, 6),
            secs: 1000,
        }
    }

    fn now(&self) -> Now {
        Now::from_secs(self.secs)
    }

    /// Sends a frame, passes it to the snooper if requested, and returns its output ports.
    fn send(&mut self, port: u16, bytes: &[u8]) -> Vec<u16> {
        let outcome = self.driven.send_bytes(port, bytes, self.now());
        if outcome.punted {
            self.snooper.handle(&self.driven.bridge, PortId(port), 1, bytes, self.now());
            self.publish();
        }
        outcome.outputs.into_iter().map(|(port, _)| port).collect()
    }

    fn publish(&mut self) {
        if let Some(groups) = self.snooper.take_groups() {
            self.driven.bridge = self.driven.bridge.with_groups(groups);
        }
    }

    /// Lets time pass, second by second.
    fn wait(&mut self, secs: u64) {
        for _ in 0..secs {
            self.secs += 1;
            self.snooper.tick(&self.driven.bridge, self.now());
        }
        self.publish();
    }

    fn data(&mut self, group: Ipv4Addr) -> Vec<u16> {
        self.send(4, &udp4(group))
    }
}

fn bridge_config(ports: &[u16]) -> BridgeConfig {
    let access = |vid| VlanMode::Access(VlanId::new(vid).unwrap());
    let mut members: Vec<_> =
        ports.iter().map(|&port| BridgePortConfig::new(PortId(port), access(1))).collect();
    members.push(BridgePortConfig::new(PortId(5), access(2)));
    BridgeConfig { ports: members, snooping: true, ..BridgeConfig::default() }
}

fn udp4(group: Ipv4Addr) -> Vec<u8> {
    let eth = PacketBuilder::eth(station(4), MacAddr::for_ipv4_multicast(group));
    eth.ipv4([10, 0, 0, 4], group).udp(5000, 5000).payload(b"news").build()
}

fn udp6(group: Ipv6Addr) -> Vec<u8> {
    let eth = PacketBuilder::eth(station(4), MacAddr::for_ipv6_multicast(group));
    eth.ipv6(LINK_LOCAL, group).udp(5000, 5000).payload(b"news").build()
}

fn igmp_to(src: Ipv4Addr, to: Ipv4Addr, message: IgmpRepr, payload: &[u8]) -> Vec<u8> {
    let eth = PacketBuilder::eth(station(1), MacAddr::for_ipv4_multicast(to));
    eth.ipv4(src, to).ttl(1).options(&[0x94, 4, 0, 0]).igmp(message).payload(payload).pad_to(60).build()
}

fn host_igmp(to: Ipv4Addr, kind: u8, group: Ipv4Addr) -> Vec<u8> {
    igmp_to([10, 0, 0, 1].into(), to, IgmpRepr { kind, max_resp: 0, group }, &[])
}

fn report(group: Ipv4Addr) -> Vec<u8> {
    host_igmp(group, kind::REPORT_V2, group)
}

fn leave(group: Ipv4Addr) -> Vec<u8> {
    host_igmp(ALL_ROUTERS, kind::LEAVE, group)
}

fn query(src: Ipv4Addr, max_resp: u8, group: Ipv4Addr) -> Vec<u8> {
    let to = if group.is_unspecified() { ALL_HOSTS } else { group };
    igmp_to(src, to, IgmpRepr { kind: kind::QUERY, max_resp, group }, &[])
}

fn general_query() -> Vec<u8> {
    query(QUERIER, 100, Ipv4Addr::UNSPECIFIED)
}

/// Builds a version 3 report of records of this kind, group and number of sources.
fn report_v3(records: &[(u8, Ipv4Addr, u8)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for &(kind, group, sources) in records {
        payload.extend([kind, 0, 0, sources]);
        payload.extend(group.octets());
        (0..sources).for_each(|source| payload.extend([10, 9, 9, source]));
    }
    let count = u16::try_from(records.len()).unwrap();
    igmp_to([10, 0, 0, 1].into(), V3_ROUTERS, IgmpRepr::report_v3(count), &payload)
}

fn mld_from(src: Ipv6Addr, to: Ipv6Addr, kind: u8, group: Ipv6Addr) -> Vec<u8> {
    let eth = PacketBuilder::eth(station(1), MacAddr::for_ipv6_multicast(to));
    eth.ipv6(src, to).mld(MldRepr { kind, max_resp: 1000, group }).build()
}

fn pim_hello() -> Vec<u8> {
    let to = Ipv4Addr::new(224, 0, 0, 13);
    let eth = PacketBuilder::eth(station(9), MacAddr::for_ipv4_multicast(to));
    eth.ipv4(QUERIER, to).ttl(1).proto(103).payload(&[0x20, 0, 0xdf, 0xff]).build()
}

#[test]
fn unknown_groups_flood_and_known_ones_go_to_listeners() {
    let mut lab = Lab::new();
    assert_eq!(lab.data(NEWS), [1, 2, 3, 9]);
    lab.send(1, &report(NEWS));
    lab.send(3, &report(NEWS));
    assert_eq!(lab.data(NEWS), [1, 3]);
    // The frame is never sent back to the sender, even if it listens too.
    lab.send(4, &report(NEWS));
    assert_eq!(lab.data(NEWS), [1, 3]);
}

#[test]
fn reports_go_to_router_ports_only() {
    let mut lab = Lab::new();
    assert_eq!(lab.send(1, &report(NEWS)), [0; 0]);
    assert_eq!(lab.driven.send_bytes(1, &report(NEWS), lab.now()).dropped, Some(DropReason::NoMember));
    lab.send(9, &general_query());
    assert_eq!(lab.send(1, &report(NEWS)), [9]);
    assert_eq!(lab.send(1, &report_v3(&[(2, NEWS, 0)])), [9]);
    assert_eq!(lab.send(1, &leave(NEWS)), [9]);
}

#[test]
fn queries_flood_and_make_router_ports_which_get_every_group() {
    let mut lab = Lab::new();
    assert_eq!(lab.send(9, &general_query()), [1, 2, 3, 4]);
    lab.send(1, &report(NEWS));
    assert_eq!(lab.data(NEWS), [1, 9]);
    assert_eq!(lab.snooper.routers()[0].ports, [PortId(9)]);
    // Without another query the router is forgotten after 255 s.
    lab.wait(254);
    assert_eq!(lab.snooper.routers().len(), 1);
    lab.wait(1);
    assert_eq!(lab.snooper.routers(), []);
}

#[test]
fn a_query_from_address_zero_makes_no_router() {
    let mut lab = Lab::without_querier(SnooperConfig::default());
    assert_eq!(lab.send(9, &query(Ipv4Addr::UNSPECIFIED, 100, Ipv4Addr::UNSPECIFIED)), [1, 2, 3, 4]);
    assert_eq!(lab.snooper.routers(), []);
    assert_eq!(lab.snooper.counts().queries, 1);
}

#[test]
fn pim_hellos_flood_and_make_router_ports() {
    let mut lab = Lab::new();
    assert_eq!(lab.send(9, &pim_hello()), [1, 2, 3, 4]);
    lab.send(1, &report(NEWS));
    assert_eq!(lab.data(NEWS), [1, 9]);
    assert_eq!(lab.snooper.counts().hellos, 1);
}

#[test]
fn groups_that_share_a_mac_address_are_told_apart() {
    let mut lab = Lab::new();
    assert_eq!(MacAddr::for_ipv4_multicast(NEWS), MacAddr::for_ipv4_multicast(TWIN));
    lab.send(1, &report(NEWS));
    lab.send(2, &report(TWIN));
    assert_eq!(lab.data(NEWS), [1]);
    assert_eq!(lab.data(TWIN), [2]);
}

#[test]
fn link_local_groups_always_flood() {
    let mut lab = Lab::new();
    lab.send(1, &report(MDNS));
    assert_eq!(lab.data(MDNS), [1, 2, 3, 9]);
    assert_eq!(lab.snooper.groups(), []);
    let mdns = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
    lab.send(1, &mld_from(LINK_LOCAL, mdns, mld::kind::REPORT, mdns));
    assert_eq!(lab.send(4, &udp6(mdns)), [1, 2, 3, 9]);
}

#[test]
fn silent_listeners_are_forgotten_while_a_querier_asks() {
    let mut lab = Lab::new();
    lab.send(1, &report(NEWS));
    lab.send(2, &report(NEWS));
    lab.wait(SETTLED);
    lab.send(9, &general_query());
    lab.send(1, &report(NEWS));
    lab.send(2, &report(NEWS));
    // Host 1 answers each query, and host 2 is silent.
    for _ in 0..2 {
        lab.wait(125);
        lab.send(9, &general_query());
        lab.send(1, &report(NEWS));
        assert_eq!(lab.data(NEWS), [1, 2, 9]);
    }
    lab.wait(9);
    assert_eq!(lab.data(NEWS), [1, 2, 9]);
    lab.wait(1);
    assert_eq!(lab.data(NEWS), [1, 9]);
}

/// One listener's report does not exclude listeners that no querier asks to report.
#[test]
fn without_a_querier_all_groups_flood() {
    let mut lab = Lab::without_querier(SnooperConfig::default());
    for _ in 0..5 {
        lab.send(1, &report(NEWS));
        assert_eq!(lab.data(NEWS), [1, 2, 3, 9]);
        lab.wait(240);
    }
    // A query about one group does not affect other groups. The query makes its port a router port.
    lab.send(9, &query(QUERIER, 10, TWIN));
    lab.wait(20);
    lab.send(1, &report(NEWS));
    assert_eq!(lab.data(NEWS), [1, 2, 3, 9]);
    // After a general query and its response time, other ports get nothing.
    lab.send(9, &general_query());
    lab.wait(9);
    assert_eq!(lab.data(NEWS), [1, 2, 3, 9]);
    lab.send(2, &report(NEWS));
    lab.wait(1);
    assert_eq!(lab.data(NEWS), [1, 2, 9]);
    // IPv6 has a separate querier.
    lab.send(1, &mld_from(LINK_LOCAL, NEWS6, mld::kind::REPORT, NEWS6));
    assert_eq!(lab.send(4, &udp6(NEWS6)), [1, 2, 3, 9]);
    // The group is restricted until the querier is gone, even if a listener still reports.
    lab.wait(200);
    lab.send(1, &report(NEWS));
    lab.wait(44);
    assert_eq!(lab.data(NEWS), [1, 2, 9]);
    lab.wait(1);
    assert_eq!(lab.data(NEWS), [1, 2, 3, 9]);
}

/// If a flood of reports displaced copies of a port, other listeners behind the port keep their groups.
#[test]
fn listeners_behind_a_port_whose_copies_were_left_out_stay() {
    let mut lab = Lab::new();
    lab.send(1, &report(NEWS));
    lab.send(2, &report(NEWS));
    lab.wait(SETTLED);
    lab.send(9, &general_query());
    lab.send(1, &report(NEWS));
    lab.send(2, &report(NEWS));
    let flood = |lab: &mut Lab| (0..500).for_each(|_| drop(lab.send(1, &report(TWIN))));
    for _ in 0..3 {
        lab.wait(100);
        lab.send(9, &general_query());
        flood(&mut lab);
        // These reports are lost in the flood.
        lab.send(1, &report(NEWS));
    }
    assert_eq!(lab.data(NEWS), [1, 9], "the member without a flood has fallen silent");
    // A query about the group after a leave does not remove the listeners either.
    lab.send(1, &leave(NEWS));
    lab.send(9, &query(QUERIER, 10, NEWS));
    lab.wait(5);
    assert_eq!(lab.data(NEWS), [1, 9]);
    // This lasts for as long as a report would have lasted.
    lab.wait(125);
    lab.send(9, &general_query());
    lab.wait(129);
    assert_eq!(lab.data(NEWS), [1, 9]);
    lab.wait(1);
    assert_eq!(lab.data(NEWS), [1, 2, 3, 9]);
}

#[test]
fn a_leave_waits_for_the_querier_to_ask() {
    let mut lab = Lab::new();
    lab.send(9, &general_query());
    lab.send(1, &report(NEWS));
    lab.send(2, &report(NEWS));
    lab.send(1, &leave(NEWS));
    lab.wait(3);
    assert_eq!(lab.data(NEWS), [1, 2, 9]);
    // The querier sends group queries with a response time of one second, and host 2 answers.
    lab.send(9, &query(QUERIER, 10, NEWS));
    lab.send(2, &report(NEWS));
    lab.wait(1);
    assert_eq!(lab.data(NEWS), [1, 2, 9]);
    lab.wait(1);
    assert_eq!(lab.data(NEWS), [2, 9]);
}

#[test]
fn a_leave_without_a_querier_takes_two_seconds_and_hurts_no_other() {
    let mut lab = Lab::without_querier(SnooperConfig::default());
    lab.send(1, &report(NEWS));
    lab.send(2, &report(NEWS));
    lab.send(1, &leave(NEWS));
    lab.wait(1);
    assert_eq!(lab.snooper.groups()[0].members, [PortId(1), PortId(2)]);
    lab.wait(1);
    assert_eq!(lab.snooper.groups()[0].members, [PortId(2)]);
    assert_eq!(lab.data(NEWS), [1, 2, 3, 9]);
}

#[test]
fn a_fast_leave_takes_effect_at_once() {
    let mut lab = Lab::with(SnooperConfig { fast_leave: true, ..SnooperConfig::default() });
    lab.send(9, &general_query());
    lab.send(1, &report(NEWS));
    lab.send(2, &report(NEWS));
    lab.send(1, &leave(NEWS));
    assert_eq!(lab.data(NEWS), [2, 9]);
    lab.send(2, &leave(NEWS));
    assert_eq!(lab.data(NEWS), [1, 2, 3, 9]);
}

#[test]
fn a_forged_query_cannot_cut_listeners_off_at_once() {
    let mut lab = Lab::new();
    lab.send(9, &general_query());
    lab.send(1, &report(NEWS));
    lab.send(1, &leave(NEWS));
    // Response time zero in a version 3 query (a version 1 query has no group).
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
fn version_3_queries_may_spare_the_timers() {
    let mut lab = Lab::new();
    lab.send(9, &general_query());
    lab.send(1, &report(NEWS));
    lab.send(1, &leave(NEWS));
    let asked = IgmpRepr { kind: kind::QUERY, max_resp: 10, group: NEWS };
    // A query with the S flag, then one for a single source.
    lab.send(9, &igmp_to(QUERIER, NEWS, asked, &[8, 125, 0, 0]));
    lab.send(9, &igmp_to(QUERIER, NEWS, asked, &[0, 125, 0, 1, 10, 9, 9, 9]));
    lab.wait(5);
    assert_eq!(lab.data(NEWS), [1, 9]);
    lab.send(9, &igmp_to(QUERIER, NEWS, asked, &[0, 125, 0, 0]));
    lab.wait(2);
    assert_eq!(lab.data(NEWS), [1, 2, 3, 9]);
}

#[test]
fn version_3_records_join_and_leave() {
    let joins = [(1, 1), (2, 0), (2, 2), (3, 1), (4, 0), (4, 1), (5, 1)];
    for (kind, sources) in joins {
        let mut lab = Lab::new();
        lab.send(2, &report_v3(&[(kind, TWIN, sources), (kind, NEWS, sources)]));
        assert_eq!(lab.data(NEWS), [2], "record {kind} with {sources} sources");
        assert_eq!(lab.data(TWIN), [2]);
    }
    for (kind, sources, stays) in [(3, 0, false), (1, 0, false), (6, 1, true), (5, 0, true), (77, 0, true)] {
        let mut lab = Lab::with(SnooperConfig { fast_leave: true, ..SnooperConfig::default() });
        lab.send(1, &report(NEWS));
        lab.send(2, &report_v3(&[(4, NEWS, 0)]));
        lab.send(2, &report_v3(&[(kind, NEWS, sources)]));
        let expected: &[u16] = if stays { &[1, 2] } else { &[1] };
        assert_eq!(lab.data(NEWS), expected, "record {kind} with {sources} sources");
    }
}

#[test]
fn version_1_reports_count_too() {
    let mut lab = Lab::new();
    lab.send(2, &host_igmp(NEWS, kind::REPORT_V1, NEWS));
    assert_eq!(lab.data(NEWS), [2]);
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
fn mld_is_to_ipv6_what_igmp_is_to_ipv4() {
    let mut lab = Lab::new();
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let all_routers = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
    assert_eq!(lab.send(4, &udp6(NEWS6)), [1, 2, 3, 9]);
    assert_eq!(
        lab.send(9, &mld_from(LINK_LOCAL, all_nodes, mld::kind::QUERY, Ipv6Addr::UNSPECIFIED)),
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
    lab.send(9, &mld_from(LINK_LOCAL, all_nodes, mld::kind::QUERY, Ipv6Addr::UNSPECIFIED));
    lab.send(1, &report(1, Ipv6Addr::UNSPECIFIED));
    lab.wait(1);
    assert_eq!(lab.send(4, &udp6(NEWS6)), [1, 9]);
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
    // Leaves free space.
    lab.send(1, &leave(group(1)));
    lab.wait(2);
    lab.send(1, &report(group(9)));
    assert_eq!(lab.data(group(9)), [1]);
}

#[test]
fn a_port_that_leaves_the_bridge_takes_its_memberships_along() {
    let mut lab = Lab::new();
    lab.send(9, &general_query());
    lab.send(1, &report(NEWS));
    lab.send(2, &report(NEWS));
    lab.driven.bridge = lab.driven.bridge.reconfigured(&bridge_config(&[2, 3, 4]));
    // Even before the snooper follows, nothing is sent to removed ports.
    assert_eq!(lab.data(NEWS), [2]);
    lab.snooper.follow(&lab.driven.bridge.clone());
    lab.publish();
    assert_eq!(lab.snooper.groups()[0].members, [PortId(2)]);
    assert_eq!(lab.snooper.routers(), []);
    // Without snooping the bridge floods known groups, too.
    lab.driven.bridge =
        lab.driven.bridge.reconfigured(&BridgeConfig { snooping: false, ..bridge_config(&[1, 2, 3, 4, 9]) });
    assert_eq!(lab.data(NEWS), [1, 2, 3, 9]);
}

#[test]
fn protected_ports_get_no_group_from_each_other() {
    let mut lab = Lab::new();
    let mut config = bridge_config(&[1, 2, 3, 4, 9]);
    config
        .ports
        .iter_mut()
        .filter(|port| [1, 4].contains(&port.port.0))
        .for_each(|port| port.protected = true);
    lab.driven.bridge = lab.driven.bridge.reconfigured(&config);
    lab.send(1, &report(NEWS));
    lab.send(2, &report(NEWS));
    assert_eq!(lab.data(NEWS), [2]);
}

/// A query to a link-layer address that no host receives removes no listener. Neither does a query to another
/// IP destination, one that has crossed a router, or one over IPv6 without a router alert.
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
    // A query to all hosts about a group that the host has left, which other listeners hear.
    lab.send(1, &leave(NEWS));
    lab.send(9, &forged(MacAddr::for_ipv4_multicast(ALL_HOSTS), ALL_HOSTS, 1, about_news));
    lab.wait(2);
    assert_eq!(lab.data(NEWS), [1, 2, 3, 9]);
    // The IPv6 cases.
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    lab.send(9, &mld_from(LINK_LOCAL, all_nodes, mld::kind::QUERY, Ipv6Addr::UNSPECIFIED));
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

/// A tenant on a protected port is not a router, and queries of the tenant, which other tenants do not hear,
/// do not remove their memberships.
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

/// A querier that protected listeners do not hear does not keep a group from flooding when they are silent.
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

/// A query about a group removes only a port that has left, whatever the query's source. Hosts discard a
/// query with a source on another subnet (`rp_filter`) or with their own address, and do not answer it.
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

/// A forger that joins a group and sends general queries that no host hears does not deprive others of the
/// group.
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

/// A port at its bound of groups keeps no silent ones, to have space for new ones.
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

/// Messages that Linux's IP input, IGMP and MLD discard: invalid sources, options, headers and tags before
/// the message.
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

/// Builds an IPv6 query with `extensions` between its fixed header, which announces `next_header`, and the
/// MLD message.
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

/// 1,100 reports a second of one port leave the snooper's ring to others, because a port is limited to 100
/// copies a second and bursts of 50.
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
