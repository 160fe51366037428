//! Tests of snooping with a trunk that several VLANs share. The load of one VLAN removes no listener of another VLAN.

use super::*;
use switch::{GroupPorts, StormLimits};

/// Trunk with hosts in VLAN 10 and VLAN 20.
const TRUNK: u16 = 1;

/// Creates a bridge with a trunk on port 1, and with access ports 2, 3, 4 and 9 in VLAN 20. A querier is active on port
/// 9, and a host on port 2 listens to the group [`NEWS`].
fn lab(config: SnooperConfig, storm: StormLimits) -> Lab {
    let mut lab = Lab::without_querier(config);
    let vlan = |vid| VlanId::new(vid).unwrap();
    let trunk = VlanMode::Trunk {
        allowed: [10, 20].map(vlan).into_iter().collect(),
        native: None,
        native_tagged: false,
    };
    let mut ports = vec![BridgePortConfig { storm, ..BridgePortConfig::new(PortId(TRUNK), trunk) }];
    ports.extend([2, 3, 4, 9].map(|port| BridgePortConfig::new(PortId(port), VlanMode::Access(vlan(20)))));
    let config = BridgeConfig { ports, snooping: true, ..BridgeConfig::default() };
    lab.driven = Driven::new(Bridge::new(&config, 5));
    lab.send_in(20, 9, &general_query());
    lab.send_in(20, 2, &report(NEWS));
    lab.wait(SETTLED);
    assert_eq!(data(&mut lab, NEWS), [2, 9]);
    lab
}

/// Sends a frame of a group from port 4 in VLAN 20, and returns the output ports.
fn data(lab: &mut Lab, group: Ipv4Addr) -> Vec<u16> {
    lab.send_in(20, 4, &udp4(group))
}

/// Sends a report from a host behind the trunk.
fn report_from_trunk(lab: &mut Lab, vid: u16, group: Ipv4Addr) {
    lab.send_in(vid, TRUNK, &with_tags(&report(group), &[(0x8100, vid)]));
}

/// Checks that the trunk receives the group after the loss of the report of a host in VLAN 20, until the membership
/// interval has passed without another loss.
fn receives_until_complete(lab: &mut Lab) {
    let is_known = |group: &GroupPorts| group.vid.get() == 20 && group.members.contains(&PortId(TRUNK));
    assert!(!lab.snooper.groups().iter().any(is_known), "the report was lost");
    lab.wait(1);
    assert_eq!(data(lab, NEWS), [TRUNK, 2, 9]);
    assert_eq!(lab.snooper.incomplete_ports().into_iter().collect::<Vec<_>>(), [PortId(TRUNK)]);
    assert_eq!(lab.snooper.counts().incomplete, 1);
    for _ in 0..2 {
        lab.wait(125);
        lab.send_in(20, 9, &general_query());
        lab.send_in(20, 2, &report(NEWS));
    }
    assert_eq!(data(lab, NEWS), [TRUNK, 2, 9]);
    lab.wait(9);
    assert_eq!(data(lab, NEWS), [2, 9]);
    assert!(lab.snooper.incomplete_ports().is_empty());
}

#[test]
fn a_flood_in_one_vlan_deafens_no_listener_of_another() {
    let mut lab = lab(SnooperConfig::default(), StormLimits::default());
    (0..500).for_each(|_| report_from_trunk(&mut lab, 10, TWIN));
    report_from_trunk(&mut lab, 20, NEWS);
    receives_until_complete(&mut lab);
}

#[test]
fn a_report_above_the_storm_limit_counts_as_lost() {
    let storm = StormLimits { multicast: Some(1), ..StormLimits::default() };
    let mut lab = lab(SnooperConfig::default(), storm);
    // The reports of VLAN 10 take the storm limit's tokens, but not the tokens of the limit on copies.
    let burst = StormLimits::burst(1);
    (0..burst).for_each(|_| {
        drop(lab.driven.send_bytes(TRUNK, &with_tags(&udp4(TWIN), &[(0x8100, 10)]), lab.now()))
    });
    report_from_trunk(&mut lab, 20, NEWS);
    receives_until_complete(&mut lab);
}

#[test]
fn the_groups_of_one_vlan_take_no_place_of_another() {
    let bounds = SnooperConfig { max_groups_per_port: 3, ..SnooperConfig::default() };
    let mut lab = lab(bounds, StormLimits::default());
    (0..10).for_each(|number| report_from_trunk(&mut lab, 10, [239, 0, 0, number].into()));
    assert_eq!(lab.snooper.counts().refused, 7);
    report_from_trunk(&mut lab, 20, NEWS);
    assert_eq!(lab.snooper.counts().refused, 7);
    assert_eq!(data(&mut lab, NEWS), [TRUNK, 2, 9]);
    // In VLAN 10, which is at its limit, no membership of VLAN 20 expires.
    lab.wait(300);
    assert!(lab.snooper.groups().iter().any(|group| group.vid.get() == 20));
}

/// One trunk takes at most a quarter of the groups of the bridge, however many VLANs it carries.
#[test]
fn the_groups_of_one_trunk_leave_places_for_other_ports() {
    let bounds = SnooperConfig { max_groups: 16, max_groups_per_port: 3, ..SnooperConfig::default() };
    let mut lab = lab(bounds, StormLimits::default());
    for vid in [10, 20] {
        (0..3).for_each(|number| {
            report_from_trunk(&mut lab, vid, [239, 0, u8::try_from(vid).unwrap(), number].into())
        });
    }
    assert_eq!(lab.snooper.counts().refused, 2);
    lab.send_in(20, 3, &report([239, 7, 7, 7].into()));
    assert_eq!(lab.snooper.counts().refused, 2);
}

/// A port whose join was refused at the limit of the bridge receives the group when another port joins it later.
#[test]
fn a_join_refused_at_the_limit_of_the_bridge_deafens_no_listener() {
    let bounds = SnooperConfig { max_groups: 4, fast_leave: true, ..SnooperConfig::default() };
    let mut lab = lab(bounds, StormLimits::default());
    let other = Ipv4Addr::new(239, 7, 7, 7);
    (0..3).for_each(|number| report_from_trunk(&mut lab, 10, [239, 0, 0, number].into()));
    report_from_trunk(&mut lab, 20, other);
    assert_eq!(lab.snooper.counts().refused, 1);
    lab.send_in(10, TRUNK, &with_tags(&leave([239, 0, 0, 0].into()), &[(0x8100, 10)]));
    lab.send_in(20, 3, &report(other));
    assert_eq!(data(&mut lab, other), [TRUNK, 3, 9]);
    // Other VLANs of the port are complete.
    assert_eq!(lab.snooper.incomplete_ports().len(), 1);
    lab.wait(260);
    assert!(lab.snooper.incomplete_ports().is_empty());
}

/// Messages and data behind a second tag belong to an inner network, and are flooded in the VLAN of the outer tag. A
/// second tag with the VLAN identifier 0 (priority tag) names no network.
#[test]
fn frames_of_an_inner_network_are_flooded_in_the_outer_vlan() {
    let mut lab = lab(SnooperConfig::default(), StormLimits::default());
    let groups = lab.snooper.groups();
    for inner in [(0x8100, 30), (0x88a8, 30), (0x8100, 20)] {
        let tags = [(0x8100, 20), inner];
        let messages = [report(TWIN), leave(NEWS), general_query(), udp4(NEWS), mld_report(), pim_hello()];
        for (at, frame) in messages.iter().enumerate() {
            let outcome = lab.driven.send_bytes(TRUNK, &with_tags(frame, &tags), lab.now());
            let ports: Vec<u16> = outcome.outputs.iter().map(|(port, _)| *port).collect();
            assert_eq!((ports, outcome.punted), (vec![2, 3, 4, 9], false), "message {at} behind {tags:x?}");
        }
    }
    assert_eq!(lab.snooper.groups(), groups);
    // Service tags of an access port, and all tags of a transparent port, name an inner network, too.
    let outer = with_tags(&report(TWIN), &[(0x88a8, 30)]);
    assert_eq!(lab.send_in(20, 3, &outer), [TRUNK, 2, 4, 9]);
    let ports = [1, 2, 3].map(|port| BridgePortConfig::new(PortId(port), VlanMode::Transparent)).to_vec();
    lab.driven.bridge = Bridge::new(&BridgeConfig { ports, snooping: true, ..BridgeConfig::default() }, 5);
    assert_eq!(lab.send_in(0, 1, &with_tags(&report(TWIN), &[(0x8100, 30)])), [2, 3]);
    assert_eq!(lab.send_in(0, 1, &with_tags(&report(TWIN), &[(0x8100, 0)])), [0; 0]);
}

#[test]
fn a_second_priority_tag_hides_no_report() {
    let mut lab = lab(SnooperConfig::default(), StormLimits::default());
    assert_eq!(lab.send_in(20, TRUNK, &with_tags(&report(NEWS), &[(0x8100, 20), (0x8100, 0)])), [9]);
    assert_eq!(data(&mut lab, NEWS), [TRUNK, 2, 9]);
}
