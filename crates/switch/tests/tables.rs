//! Tests of the MAC table: limits, ageing, flushes, hand-over and explanations.

mod lab;

use lab::{Driven, broadcast, station, udp};
use packet::record::{NoRecord, Step, Steps};
use packet::{DropReason, MacAddr, PortId, VlanId};
use switch::{Bridge, BridgeConfig, BridgePortConfig, FdbEntry, Now, StaticMac, VlanMode};

fn vlan(vid: u16) -> VlanId {
    VlanId::new(vid).unwrap_or(VlanId::NONE)
}

/// Returns a configuration with access ports 1 to `ports` in VLAN 10.
fn config(ports: u16, mac_limit: u32) -> BridgeConfig {
    let member = |port| BridgePortConfig::new(PortId(port), VlanMode::Access(vlan(10)));
    BridgeConfig { ports: (1..=ports).map(member).collect(), mac_limit, ..BridgeConfig::default() }
}

fn driven(ports: u16, mac_limit: u32) -> Driven {
    Driven::new(Bridge::new(&config(ports, mac_limit), 0xfeed))
}

#[test]
fn a_port_at_its_limit_learns_no_more_but_forwards() {
    let mut limited = config(3, 1000);
    limited.ports[1].mac_limit = Some(2);
    let mut bridge = Driven::new(Bridge::new(&limited, 1));
    let now = Now::from_secs(9);
    for host in [1, 2, 3] {
        assert_eq!(bridge.ports(&broadcast(2, host), now), [1, 3]);
    }
    assert_eq!(bridge.bridge.tables().learned_on(PortId(2)), 2);
    assert_eq!(bridge.ports(&udp(1, 9, 2), now), [2]);
    assert_eq!(bridge.ports(&udp(1, 9, 3), now), [2, 3]);
    // A station that appears on a full port keeps its old entry.
    bridge.send(&broadcast(2, 9), now);
    assert_eq!(bridge.ports(&udp(3, 8, 9), now), [1]);
    assert_eq!(bridge.bridge.tables().moves(), 0);
    // A station that is removed frees space.
    bridge.send(&broadcast(1, 1), now);
    assert_eq!(bridge.bridge.tables().moves(), 1);
    bridge.send(&broadcast(2, 3), now);
    assert_eq!(bridge.ports(&udp(1, 9, 3), now), [2]);
}

#[test]
fn silent_stations_age_out_and_talking_ones_stay() {
    let mut bridge = driven(3, 1000);
    // Around the wrap of the coarse clock.
    let start = 65_400;
    bridge.send(&broadcast(1, 1), Now::from_secs(start));
    bridge.send(&broadcast(1, 2), Now::from_secs(start));
    bridge.send(&broadcast(1, 2), Now::from_secs(start + 200));
    let secs = |secs| Now::from_secs(start + secs).secs;
    assert_eq!(bridge.bridge.age(secs(300)), 0);
    assert_eq!(bridge.bridge.age(secs(301)), 1);
    assert_eq!(bridge.ports(&udp(2, 9, 1), Now::from_secs(start + 301)), [1, 3]);
    assert_eq!(bridge.ports(&udp(2, 9, 2), Now::from_secs(start + 301)), [1]);
    assert_eq!(bridge.bridge.age(secs(501)), 1);
    assert_eq!(bridge.bridge.tables().learned_on(PortId(1)), 0);
}

/// Regression test. If a worker has cached a station as a destination, the worker must still refresh the station's
/// table entry when the station sends its next frame.
#[test]
fn a_station_that_was_just_a_destination_is_still_refreshed_as_a_source() {
    let mut bridge = driven(3, 1000);
    bridge.burst(&[broadcast(1, 1), broadcast(2, 2)], Now::from_secs(100), &mut NoRecord);
    let later = Now::from_secs(350);
    bridge.burst(&[udp(2, 2, 1), udp(1, 1, 2)], later, &mut NoRecord);
    let ages: Vec<_> = bridge.bridge.tables().fdb(later.secs).map(|entry| entry.age_secs).collect();
    assert_eq!(ages, [0, 0]);
}

#[test]
fn a_clock_reading_older_than_an_entry_ages_nothing() {
    let mut bridge = driven(3, 1000);
    bridge.send(&broadcast(1, 1), Now::from_secs(1000));
    assert_eq!(bridge.bridge.age(998), 0);
    assert_eq!(bridge.bridge.tables().fdb(998).next().map(|entry| entry.age_secs), Some(0));
}

#[test]
fn a_large_table_is_aged_in_parts() {
    let bridge = Driven::new(Bridge::new(&config(3, 100_000), 3));
    let entry = |number: u64| FdbEntry {
        vid: vlan(10),
        mac: MacAddr::from_u64(0x0200_0000_0000 + number),
        port: Some(PortId(1)),
        age_secs: 400,
        is_static: false,
    };
    let entries: Vec<_> = (0..60_000).map(entry).collect();
    assert_eq!(bridge.bridge.import(&entries, 1000), 60_000);
    let first = bridge.bridge.age(1000);
    assert!((5_000..10_000).contains(&first), "{first} entries in one call");
    let rest: usize = (0..7).map(|_| bridge.bridge.age(1000)).sum();
    assert_eq!(first + rest, 60_000);
    assert!(bridge.bridge.tables().is_empty());
    assert_eq!(bridge.bridge.tables().learned_on(PortId(1)), 0);
}

#[test]
fn what_was_learned_goes_over_to_another_process() {
    let fixed = StaticMac { vid: vlan(10), mac: station(50), port: Some(PortId(3)) };
    let with_static = BridgeConfig { statics: vec![fixed], ..config(3, 1000) };
    let mut old = Driven::new(Bridge::new(&with_static, 1));
    for host in 0..40 {
        old.send(&broadcast(u16::from(host % 2) + 1, host), Now::from_secs(100 + u64::from(host)));
    }
    let exported = old.bridge.export(150);
    assert_eq!(exported.len(), 40);
    // Another seed and another clock, and port 2 is removed.
    let mut smaller = with_static.clone();
    smaller.ports.remove(1);
    let mut new = Driven::new(Bridge::new(&smaller, 2));
    assert_eq!(new.bridge.import(&exported, 7), 20);
    assert_eq!(new.bridge.import(&exported, 7), 0, "what is known stays");
    assert_eq!(new.ports(&udp(3, 60, 4), Now::from_secs(7)), [1]);
    assert_eq!(new.ports(&udp(1, 4, 50), Now::from_secs(7)), [3]);
    let entry = new.bridge.tables().fdb(7).find(|entry| entry.mac == station(6)).unwrap();
    assert_eq!((entry.age_secs, entry.port, entry.vid), (44, Some(PortId(1)), vlan(10)));
    // Ages are kept: the oldest is 50 s old at the hand-over.
    assert_eq!(new.bridge.tables().age(7 + 251, 300), 1);
}

#[test]
fn a_larger_limit_keeps_what_is_known() {
    let mut bridge = driven(3, 8);
    let now = Now::from_secs(3);
    for host in 0..8 {
        bridge.send(&broadcast(1, host), now);
    }
    assert_eq!(bridge.bridge.tables().len(), 8);
    bridge.bridge = bridge.bridge.reconfigured(&config(3, 5000));
    assert_eq!(bridge.bridge.tables().len(), 8);
    assert_eq!(bridge.ports(&udp(2, 30, 0), now), [1]);
    bridge.send(&broadcast(1, 11), now);
    assert_eq!(bridge.ports(&udp(2, 30, 11), now), [1]);
}

#[test]
fn an_entry_learned_by_a_worker_that_is_behind_is_not_believed() {
    let mut bridge = driven(3, 1000);
    let now = Now::from_secs(3);
    let old = bridge.bridge.clone();
    bridge.bridge = bridge.bridge.reconfigured(&config(2, 1000));
    let mut behind = Driven::new(old);
    behind.send(&broadcast(3, 1), now);
    assert_eq!(bridge.bridge.tables().learned_on(PortId(3)), 1);
    assert_eq!(bridge.ports(&udp(1, 2, 1), now), [2], "floods");
    assert_eq!(bridge.bridge.prune(), 1);
    assert_eq!(bridge.bridge.tables().learned_on(PortId(3)), 0);
}

#[test]
fn the_same_address_in_two_vlans_is_two_stations() {
    let trunk = |port| {
        let allowed = [10, 20].into_iter().map(vlan).collect();
        BridgePortConfig::new(PortId(port), VlanMode::Trunk { allowed, native: None, native_tagged: false })
    };
    let config = BridgeConfig { ports: vec![trunk(1), trunk(2), trunk(3)], ..BridgeConfig::default() };
    let mut bridge = Driven::new(Bridge::new(&config, 1));
    let now = Now::from_secs(1);
    bridge.send(&broadcast(1, 7).tagged(10), now);
    bridge.send(&broadcast(2, 7).tagged(20), now);
    assert_eq!(bridge.ports(&udp(3, 8, 7).tagged(10), now), [1]);
    assert_eq!(bridge.ports(&udp(3, 8, 7).tagged(20), now), [2]);
    assert_eq!(bridge.bridge.tables().moves(), 0);
    assert_eq!(bridge.bridge.tables().flush_vlan(vlan(10)), 2);
    assert_eq!(bridge.ports(&udp(3, 8, 7).tagged(10), now), [1, 2]);
    assert_eq!(bridge.ports(&udp(3, 8, 7).tagged(20), now), [2]);
}

#[test]
fn explain_tells_what_happened_and_why() {
    let mut members = config(4, 1000);
    members.ports[0].protected = true;
    members.ports[2].protected = true;
    members.ports[3].flood = false;
    let mut bridge = Driven::new(Bridge::new(&members, 1));
    let now = Now::from_secs(30);
    bridge.send(&broadcast(2, 2), Now::from_secs(10));
    let mut steps = Steps::<true>::default();
    bridge.burst(&[udp(1, 1, 9)], now, &mut steps);
    assert!(steps.0.contains(&Step::Learned { mac: station(1), from: None }), "would be learned: {steps:?}");
    assert!(steps.0.contains(&Step::NotTo { port: PortId(1), reason: DropReason::SamePort }));
    assert!(steps.0.contains(&Step::NotTo { port: PortId(3), reason: DropReason::ProtectedPort }));
    assert!(steps.0.contains(&Step::NotTo { port: PortId(4), reason: DropReason::FloodDisabled }));
    assert_eq!(bridge.bridge.tables().len(), 1, "but was not");
    let mut steps = Steps::<true>::default();
    bridge.burst(&[udp(1, 1, 2)], now, &mut steps);
    let found = Step::Found { mac: station(2), port: PortId(2), age: 20, is_static: false };
    assert!(steps.0.contains(&found), "{steps:?}");
    // A trace that is not dry changes the table.
    let mut steps = Steps::<false>::default();
    bridge.burst(&[udp(1, 1, 2)], now, &mut steps);
    assert_eq!(bridge.bridge.tables().len(), 2);
}
