//! Tests a flood of source addresses: memory stays bounded, and known hosts stay reachable. The test has its own
//! binary, because it measures the memory of the process.

mod lab;

use lab::{Driven, broadcast, udp};
use packet::record::NoRecord;
use packet::{FlowKey, Layers, MacAddr, PortId, VlanId};
use switch::{Bridge, BridgeConfig, BridgePortConfig, Decision, Now, Scratch, VlanMode};

/// Returns the number of source addresses in the flood. The number is larger if the environment variable TRIVIUM_SOAK
/// is set.
fn flood_size() -> u64 {
    if std::env::var_os("TRIVIUM_SOAK").is_some() { 10_000_000 } else { 300_000 }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

#[test]
fn a_flood_of_addresses_is_bounded_and_hurts_no_known_host() {
    const LIMIT: u32 = 16_384;
    let member = |port| BridgePortConfig::new(PortId(port), VlanMode::Access(VlanId::MIN));
    let config =
        BridgeConfig { ports: (1..=3).map(member).collect(), mac_limit: LIMIT, ..BridgeConfig::default() };
    let mut bridge = Driven::new(Bridge::new(&config, 0xfeed));
    let now = Now::from_secs(5);
    for host in 0..50 {
        bridge.send(&broadcast(1, host), now);
    }
    let mut frames: [FlowKey; 256] = [FlowKey::ZERO; 256];
    let (mut out, mut scratch) = ([Decision::default(); 256], Scratch::new());
    let resident = resident_kib();
    for burst in 0..flood_size() / 256 {
        for (at, key) in (0..).zip(&mut frames) {
            key.set_in_port(PortId(2));
            key.set_eth_src(MacAddr::from_u64(0x0600_0000_0000 + (burst * 256 + at) * 0x9e37 % (1 << 40)));
            key.set_eth_dst(MacAddr::BROADCAST);
        }
        let layers = [Layers::default(); 256];
        bridge.bridge.forward(&frames, &layers, now, &mut scratch, &mut out, &mut NoRecord);
        assert!(out.iter().all(|out| matches!(out, Decision::Flood { .. })), "still forwarded");
    }
    assert!(bridge.bridge.tables().len() <= LIMIT);
    assert!(bridge.bridge.tables().len() > LIMIT * 99 / 100, "the table is used to its limit");
    assert_eq!(bridge.bridge.tables().fdb(5).count(), bridge.bridge.tables().len() as usize);
    assert!(resident_kib() < resident + 2048, "memory grew from {resident} to {} KiB", resident_kib());
    for host in 0..50 {
        assert_eq!(bridge.ports(&udp(3, 60, host), now), [1], "host {host}");
    }
    // A known host may even move to another port.
    bridge.send(&broadcast(3, 7), now);
    assert_eq!(bridge.ports(&udp(1, 8, 7), now), [3]);
}

/// A port fills the table and refreshes its entries continuously. New addresses on this port displace only entries of
/// this port. A host that first sends during the flood is learned and stays in the table.
#[test]
fn a_station_that_comes_late_is_learned_in_a_table_that_another_port_has_filled() {
    const LIMIT: u32 = 4096;
    let member = |port| BridgePortConfig::new(PortId(port), VlanMode::Access(VlanId::MIN));
    let config =
        BridgeConfig { ports: (1..=3).map(member).collect(), mac_limit: LIMIT, ..BridgeConfig::default() };
    let mut bridge = Driven::new(Bridge::new(&config, 0xfeed));
    let now = Now::from_secs(5);
    let flood = |bridge: &Driven, from: u64, now: Now| {
        let mut frames: Vec<_> = (from..from + u64::from(LIMIT))
            .map(|host| {
                let mut key = FlowKey::ZERO;
                key.set_in_port(PortId(2));
                key.set_eth_src(MacAddr::from_u64(0x0600_0000_0000 + host));
                key.set_eth_dst(MacAddr::BROADCAST);
                key
            })
            .collect();
        let layers = vec![Layers::default(); frames.len()];
        let mut out = vec![Decision::default(); frames.len()];
        let mut scratch = Scratch::new();
        for ((keys, layers), out) in frames.chunks_mut(64).zip(layers.chunks(64)).zip(out.chunks_mut(64)) {
            bridge.bridge.forward(keys, layers, now, &mut scratch, out, &mut NoRecord);
        }
    };
    flood(&bridge, 0, now);
    assert_eq!(bridge.bridge.tables().len(), LIMIT);
    for host in 0..50 {
        bridge.send(&broadcast(1, host), now);
        assert_eq!(bridge.ports(&udp(3, 60, host), now), [1], "host {host} is not learned");
    }
    // The flood continues for the whole ageing time, with old and new addresses. The hosts are silent.
    for second in 0..30 {
        flood(&bridge, second * 500, Now::from_secs(6 + second));
    }
    let later = Now::from_secs(36);
    for host in 0..50 {
        assert_eq!(bridge.ports(&udp(3, 60, host), later), [1], "host {host} was displaced");
    }
    let tables = bridge.bridge.tables();
    assert!(tables.len() <= LIMIT, "{} entries", tables.len());
    assert_eq!(tables.learned_on(PortId(1)), 50);
    assert!(tables.counts().evicted > 50, "{:?}", tables.counts());
    // Each removed entry is subtracted from the count of its port.
    assert_eq!(
        tables.learned_on(PortId(1)) + tables.learned_on(PortId(2)) + tables.learned_on(PortId(3)),
        tables.len()
    );
}

/// Static entries are never displaced, and a table with only static entries learns nothing.
#[test]
fn static_entries_do_not_give_way() {
    let member = |port| BridgePortConfig::new(PortId(port), VlanMode::Access(VlanId::MIN));
    let fixed =
        |host| switch::StaticMac { vid: VlanId::MIN, mac: MacAddr::from_u64(host), port: Some(PortId(3)) };
    let config = BridgeConfig {
        ports: (1..=3).map(member).collect(),
        statics: (0x0200_0000_1000..0x0200_0000_1008).map(fixed).collect(),
        mac_limit: 8,
        ..BridgeConfig::default()
    };
    let mut bridge = Driven::new(Bridge::new(&config, 0xfeed));
    bridge.send(&broadcast(1, 1), Now::from_secs(5));
    let fdb: Vec<_> = bridge.bridge.tables().fdb(5).collect();
    assert!(fdb.len() == 8 && fdb.iter().all(|entry| entry.is_static), "{fdb:?}");
}
