//! Tests of one bridge that two workers use while a control thread ages, lists and flushes the table entries. No entry
//! may be lost, every entry must belong to its host, and the counts of entries must be correct.

mod lab;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use packet::record::NoRecord;
use packet::{FlowKey, Layers, MacAddr, PortId, VlanId};
use switch::{Bridge, BridgeConfig, BridgePortConfig, Decision, Now, Scratch, StormLimits, VlanMode};

const HOSTS: u64 = 2000;
const BURST: u64 = 64;

fn bridge(storm: StormLimits, mac_limit: u32) -> Bridge {
    let member = |port| BridgePortConfig {
        storm,
        ..BridgePortConfig::new(PortId(port), VlanMode::Access(VlanId::MIN))
    };
    Bridge::new(
        &BridgeConfig { ports: (0..4).map(member).collect(), mac_limit, ..BridgeConfig::default() },
        99,
    )
}

fn mac(host: u64) -> MacAddr {
    MacAddr::from_u64(0x0200_0000_0000 | host)
}

/// Returns the port of host number `host`. The port number is `host % 4`.
fn home(host: u64) -> PortId {
    PortId(u16::try_from(host % 4).unwrap_or(0))
}

fn key(from: u64, to: MacAddr) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_in_port(home(from));
    key.set_eth_src(mac(from));
    key.set_eth_dst(to);
    key
}

fn forward(bridge: &Bridge, keys: &[FlowKey], now: Now, scratch: &mut Scratch) -> Vec<Decision> {
    let mut out = vec![Decision::default(); keys.len()];
    bridge.forward(keys, &vec![Layers::default(); keys.len()], now, scratch, &mut out, &mut NoRecord);
    out
}

#[test]
fn no_entry_is_lost_and_every_value_belongs_to_its_key() {
    let bridge = bridge(StormLimits::default(), 8192);
    let done = AtomicBool::new(false);
    let worker = |salt: u64| {
        let mut scratch = Scratch::new();
        for round in 0..300u64 {
            let keys: Vec<_> = (0..BURST)
                .map(|at| {
                    let number = (round * BURST + at).wrapping_mul(0x9e37_79b9) ^ salt;
                    key(number % HOSTS, mac((number >> 20) % HOSTS))
                })
                .collect();
            let now = Now::from_secs(1 + round / 100);
            for (key, decision) in keys.iter().zip(forward(&bridge, &keys, now, &mut scratch)) {
                let to = key.eth_dst().as_u64() & 0xffff_ffff;
                match decision {
                    Decision::Forward { port, .. } => assert_eq!(port, home(to), "the port of another host"),
                    Decision::Drop(_) => assert_eq!(key.in_port(), home(to), "not on its own port"),
                    Decision::Flood { .. } => {}
                    Decision::Group { .. } => panic!("no group was asked for"),
                }
            }
        }
    };
    thread::scope(|scope| {
        let control = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                bridge.age(3);
                bridge.tables().fdb(3).for_each(|entry| {
                    assert_eq!(entry.port, Some(home(entry.mac.as_u64() & 0xffff_ffff)));
                });
                thread::yield_now();
            }
        });
        let workers = [scope.spawn(|| worker(0)), scope.spawn(|| worker(0x5bd1))];
        workers.into_iter().for_each(|worker| worker.join().expect("a worker"));
        done.store(true, Ordering::Relaxed);
        control.join().expect("control");
    });
    // Addresses that contention kept from being learned are learned at the next frame. No learned address is
    // lost.
    let mut scratch = Scratch::new();
    for host in 0..HOSTS {
        forward(&bridge, &[key(host, MacAddr::BROADCAST)], Now::from_secs(4), &mut scratch);
    }
    let tables = bridge.tables();
    assert_eq!((u64::from(tables.len()), tables.fdb(4).count() as u64), (HOSTS, HOSTS));
    assert_eq!((0..4).map(|port| u64::from(tables.learned_on(PortId(port)))).sum::<u64>(), HOSTS);
    assert_eq!(tables.moves(), 0);
}

#[test]
fn counts_are_right_after_stations_moved_under_two_workers() {
    let bridge = bridge(StormLimits::default(), 100);
    let worker = |port: u16| {
        let mut scratch = Scratch::new();
        for round in 0..2000u64 {
            let keys: Vec<_> = (0..32)
                .map(|at| {
                    // More addresses than the limit, each of which appears on the ports of both workers.
                    let mut key = key((round * 7 + at) % 150, MacAddr::BROADCAST);
                    key.set_in_port(PortId(port));
                    key
                })
                .collect();
            forward(&bridge, &keys, Now::from_secs(1), &mut scratch);
        }
    };
    thread::scope(|scope| {
        let flusher = scope.spawn(|| {
            for _ in 0..50 {
                bridge.tables().flush_port(PortId(1));
                thread::yield_now();
            }
        });
        let workers = [scope.spawn(|| worker(1)), scope.spawn(|| worker(2))];
        workers.into_iter().for_each(|worker| worker.join().expect("a worker"));
        flusher.join().expect("the flusher");
    });
    let tables = bridge.tables();
    let entries: Vec<_> = tables.fdb(1).collect();
    assert_eq!(tables.len() as usize, entries.len());
    assert!(tables.len() <= 100);
    for port in 1..=2 {
        let on = entries.iter().filter(|entry| entry.port == Some(PortId(port))).count();
        assert_eq!(tables.learned_on(PortId(port)) as usize, on, "port {port}");
    }
    tables.flush_all();
    assert_eq!((tables.len(), tables.learned_on(PortId(1)), tables.learned_on(PortId(2))), (0, 0, 0));
}

#[test]
fn two_workers_share_one_storm_limit_exactly() {
    let storm = StormLimits { broadcast: Some(5000), ..StormLimits::default() };
    let bridge = bridge(storm, 100);
    let worker = || {
        let mut scratch = Scratch::new();
        let keys = vec![key(1, MacAddr::BROADCAST); 32];
        let mut passed = 0;
        for round in 0..1000u64 {
            // One round per millisecond on both workers gives them 5 tokens together.
            let now = Now::from_ns(1_000_000_000 + round * 1_000_000);
            let out = forward(&bridge, &keys, now, &mut scratch);
            passed += out.iter().filter(|out| matches!(out, Decision::Flood { .. })).count();
        }
        passed
    };
    let passed = thread::scope(|scope| {
        let workers = [scope.spawn(worker), scope.spawn(worker)];
        workers.into_iter().map(|worker| worker.join().expect("a worker")).sum::<usize>()
    });
    assert_eq!(passed, 500 + 999 * 5);
}
