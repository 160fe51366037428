//! A flood of source addresses: memory stays bounded and known hosts reachable. In a process of its own, because it
//! looks at the process's memory.

mod lab;

use lab::{Driven, broadcast, udp};
use packet::record::NoRecord;
use packet::{FlowKey, Layers, MacAddr, PortId, VlanId};
use switch::{Bridge, BridgeConfig, BridgePortConfig, Decision, Now, Scratch, VlanMode};

/// The long version runs with TRIVIUM_SOAK set.
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
    // A known host may even move.
    bridge.send(&broadcast(3, 7), now);
    assert_eq!(bridge.ports(&udp(1, 8, 7), now), [3]);
}
