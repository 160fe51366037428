//! Tests multicast snooping in the scenarios of RFC 4541. Bridge and snooper run together, and process the frames that
//! hosts and routers send.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod evasion;
mod forged_queriers;
mod hostile;
#[path = "../lab/mod.rs"]
mod lab;
mod mld_messages;
mod shared_ports;

use std::net::{Ipv4Addr, Ipv6Addr};

use lab::{Driven, station};
use packet::build::PacketBuilder;
use packet::icmpv6::Icmpv6Repr;
use packet::igmp::{IgmpRepr, kind};
use packet::mld::{self, MldRepr};
use packet::{DropReason, MacAddr, PortId, VlanId};
use switch::{
    Bridge, BridgeConfig, BridgePortConfig, Family, Now, SnoopedMessage, Snooper, SnooperConfig, VlanMode,
};

const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const V3_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
const NEWS: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
/// Multicast group whose frames have the same destination MAC address as those of the group [`NEWS`].
const TWIN: Ipv4Addr = Ipv4Addr::new(238, 129, 2, 3);
const NEWS6: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 1, 3);
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
/// Link-local address of the IPv6 router on port 9.
const ROUTER6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
const QUERIER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
/// Multicast group whose frames are always flooded.
const MDNS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
/// Time in seconds after which hosts no longer repeat the report that they sent when they joined a group. A later
/// report is an answer to a query.
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

    /// Creates a bridge with a querier on port 9. The querier is a switch and not a router: its queries have the source
    /// address 0.0.0.0. A host on port 2 has answered a query.
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

    /// Sends a frame through the bridge, and returns the frame's output ports. If the bridge punts the frame, the
    /// snooper processes a copy.
    fn send(&mut self, port: u16, bytes: &[u8]) -> Vec<u16> {
        self.send_in(1, port, bytes)
    }

    /// Sends a frame like [`Lab::send`]. `vid` is the VLAN to which the bridge assigns the frame.
    fn send_in(&mut self, vid: u16, port: u16, bytes: &[u8]) -> Vec<u16> {
        let outcome = self.driven.send_bytes(port, bytes, self.now());
        if outcome.punted {
            self.snooper.handle(&self.driven.bridge, PortId(port), vid, bytes, self.now());
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

/// Returns the frame with VLAN tags. Each tag is given by its TPID and its VLAN identifier.
fn with_tags(frame: &[u8], tags: &[(u16, u16)]) -> Vec<u8> {
    let tags = tags.iter().flat_map(|(tpid, vid)| [tpid.to_be_bytes(), vid.to_be_bytes()].concat());
    [frame[..12].to_vec(), tags.collect(), frame[12..].to_vec()].concat()
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

/// Builds an IGMPv3 report. Each record is given by its type, its group and its number of sources.
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

fn mld_report() -> Vec<u8> {
    mld_from(LINK_LOCAL, NEWS6, mld::kind::REPORT, NEWS6)
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

/// Without a querier, a report of one listener does not stop the flooding to other listeners, because no query asks the
/// other listeners to report.
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

/// If a flood of reports on a port exceeds the limit on copies to the snooper, the reports of other listeners on this
/// port can be lost. The memberships of these listeners must not end.
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
    // The memberships last for as long as a report would have extended them.
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
fn a_port_that_leaves_the_bridge_takes_its_memberships_along() {
    let mut lab = Lab::new();
    lab.send(9, &general_query());
    lab.send(1, &report(NEWS));
    lab.send(2, &report(NEWS));
    lab.driven.bridge = lab.driven.bridge.reconfigured(&bridge_config(&[2, 3, 4]));
    // Nothing is sent to removed ports, even before the snooper is adapted to the new configuration.
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

/// A jumbo frame can hold a report with more records than 2,048 octets. A copy without the end of its frame counts as
/// lost, and its port receives all groups.
#[test]
fn long_reports_are_read_and_cut_reports_count_as_lost() {
    let mut lab = Lab::new();
    let group = |number: u16| {
        let [high, low] = number.to_be_bytes();
        Ipv4Addr::new(239, 9, high, low)
    };
    let records: Vec<_> = (0..500).map(|number| (4, group(number), 2)).collect();
    let frame = report_v3(&records);
    assert!((8000..SnoopedMessage::MAX_FRAME).contains(&frame.len()));
    lab.send(2, &report(NEWS));
    let message = SnoopedMessage::read(&frame[..2048], frame.len(), 1);
    lab.snooper.apply(&lab.driven.bridge, PortId(1), &message, lab.now());
    assert!(message.is_empty());
    lab.wait(1);
    assert_eq!(lab.data(NEWS), [1, 2]);
    lab.snooper.apply(
        &lab.driven.bridge,
        PortId(3),
        &SnoopedMessage::read(&frame, frame.len(), 1),
        lab.now(),
    );
    lab.publish();
    assert_eq!(lab.snooper.groups().len(), 501);
    assert_eq!(lab.data(group(499)), [1, 3]);
    assert_eq!(lab.data(NEWS), [1, 2], "port 3 is complete");
}
