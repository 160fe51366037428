//! The per-worker MAC cache does not change results. Long bursts between a few stations are processed twice: once by
//! one worker with a cache, and once with a new worker and an empty cache for each frame. The decisions and the tables
//! must be equal. With many stations, every address is looked up in the MAC table, and only the decision for each table
//! entry is cached.

mod lab;

use lab::{Frame, Payload, station};
use packet::record::NoRecord;
use packet::{FlowKey, Layers, MacAddr, PortId, VlanId};
use proptest::prelude::*;
use switch::{Bridge, BridgeConfig, BridgePortConfig, Decision, FdbEntry, Now, Scratch, StaticMac, VlanMode};

const PORTS: u16 = 5;
/// Number of stations, more than the cache of a worker holds.
const CROWD: u16 = 1100;

/// The operations of a test. Bursts come from a few ports and stations, so that most frames are in the cache.
#[derive(Clone, Debug)]
enum Op {
    Burst(Vec<Frame>),
    Second,
    Flush(u16),
    Reconfigure(BridgeConfig),
}

fn vlan(vid: u16) -> VlanId {
    VlanId::new(vid).unwrap_or(VlanId::NONE)
}

fn config() -> impl Strategy<Value = BridgeConfig> {
    let mode = prop_oneof![
        3 => Just(VlanMode::Access(vlan(1))),
        1 => Just(VlanMode::Access(vlan(2))),
        2 => any::<bool>().prop_map(|native_tagged| VlanMode::Trunk {
            allowed: [1, 2].into_iter().map(vlan).collect(),
            native: Some(vlan(1)),
            native_tagged,
        }),
        1 => Just(VlanMode::Transparent),
    ];
    let member = (mode, prop::bool::weighted(0.3), prop::bool::weighted(0.9));
    let members = prop::collection::vec(member, usize::from(PORTS));
    let fixed = (1u16..3, 0u8..6, prop::option::of(0..PORTS + 1));
    (members, prop::collection::vec(fixed, 0..2)).prop_map(|(members, statics)| BridgeConfig {
        ports: (0..PORTS)
            .zip(members)
            .map(|(port, (mode, protected, learning))| BridgePortConfig {
                protected,
                learning,
                ..BridgePortConfig::new(PortId(port), mode)
            })
            .collect(),
        statics: statics
            .into_iter()
            .map(|(vid, mac, port)| StaticMac { vid: vlan(vid), mac: station(mac), port: port.map(PortId) })
            .collect(),
        ..BridgeConfig::default()
    })
}

/// Generates a frame on a port, mostly from a station of that port.
fn frame(port: u16) -> impl Strategy<Value = Frame> {
    let home = u8::try_from(port).unwrap_or(0);
    let src = prop_oneof![
        60 => (0u8..3).prop_map(move |n| station(home * 3 + n)),
        1 => (0u8..15).prop_map(station),
        1 => Just(MacAddr::ZERO),
        1 => Just(MacAddr::BROADCAST),
    ];
    let dst = prop_oneof![
        60 => (0u8..15).prop_map(station),
        1 => Just(MacAddr::BROADCAST),
        1 => Just(MacAddr([1, 0x80, 0xc2, 0, 0, 2])),
        1 => Just(station(99)),
    ];
    let tag = prop_oneof![20 => Just(None), 1 => (0u16..4).prop_map(|tci| Some((tci, false)))];
    (src, dst, tag).prop_map(move |(src, dst, tag)| Frame { port, src, dst, tag, payload: Payload::Other })
}

fn op() -> impl Strategy<Value = Op> {
    let burst = (0..PORTS, 0..PORTS).prop_flat_map(|(a, b)| {
        prop::collection::vec(prop_oneof![20 => frame(a).boxed(), 1 => frame(b).boxed()], 1..300)
    });
    prop_oneof![
        20 => burst.prop_map(Op::Burst),
        2 => Just(Op::Second),
        1 => (0..PORTS).prop_map(Op::Flush),
        1 => config().prop_map(Op::Reconfigure),
    ]
}

struct Side {
    bridge: Bridge,
    scratch: Scratch,
}

impl Side {
    fn new(config: &BridgeConfig, crowded: bool, seed: u64, now: Now) -> Side {
        let bridge = Bridge::new(config, seed);
        let entry = |number: u16, member: &BridgePortConfig| {
            let [high, low] = number.to_be_bytes();
            let vid = match &member.mode {
                VlanMode::Transparent => VlanId::NONE,
                VlanMode::Access(vid) => *vid,
                VlanMode::Trunk { .. } => vlan(1),
            };
            let mac = MacAddr([2, 0, 0, 1, high, low]);
            FdbEntry { vid, mac, port: Some(member.port), age_secs: 0, is_static: false }
        };
        let crowd: Vec<_> = (0..CROWD).map(|number| entry(number, &config.ports[0])).collect();
        if crowded {
            assert_eq!(bridge.import(&crowd, now.secs), crowd.len());
        }
        Side { bridge, scratch: Scratch::new() }
    }

    fn burst(&mut self, frames: &[(FlowKey, Layers)], now: Now) -> Vec<Decision> {
        let (keys, layers): (Vec<_>, Vec<_>) = frames.iter().cloned().unzip();
        let mut out = vec![Decision::default(); frames.len()];
        self.bridge.forward(&keys, &layers, now, &mut self.scratch, &mut out, &mut NoRecord);
        out
    }

    fn one_by_one(&mut self, frames: &[(FlowKey, Layers)], now: Now) -> Vec<Decision> {
        let one = |frame| {
            self.scratch = Scratch::new();
            self.burst(std::slice::from_ref(frame), now)[0]
        };
        frames.iter().map(one).collect()
    }

    fn listing(&self, now: Now) -> Vec<FdbEntry> {
        let mut entries: Vec<_> = self.bridge.tables().fdb(now.secs).collect();
        entries.sort_unstable();
        entries
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_recalled_is_what_the_table_says(
        config in config(),
        ops in prop::collection::vec(op(), 1..30),
        crowded: bool,
        seed: u64,
    ) {
        let mut secs = 65_530;
        let new = || Side::new(&config, crowded, seed, Now::from_secs(secs));
        let (mut mac_caching, mut forgetful) = (new(), new());
        for op in ops {
            let now = Now::from_secs(secs);
            match op {
                Op::Burst(frames) => {
                    let keys: Vec<_> = frames.iter().map(Frame::key).collect();
                    let (got, expected) = (mac_caching.burst(&keys, now), forgetful.one_by_one(&keys, now));
                    for ((frame, got), expected) in frames.iter().zip(&got).zip(&expected) {
                        prop_assert_eq!(got, expected, "{:?}", frame);
                    }
                }
                Op::Second => secs += 1,
                Op::Flush(port) => for side in [&mac_caching, &forgetful] {
                    side.bridge.tables().flush_port(PortId(port));
                },
                Op::Reconfigure(config) => for side in [&mut mac_caching, &mut forgetful] {
                    side.bridge = side.bridge.reconfigured(&config);
                },
            }
            prop_assert_eq!(mac_caching.listing(now), forgetful.listing(now));
        }
    }
}
