//! Compares the bridge with a naive bridge, with random topologies, frames, pauses and changes. Every output, tag, drop
//! reason and table entry must agree. Every frame is first explained (a dry run). The explanation must predict the
//! outcome and change no state.

mod lab;

use std::net::IpAddr;
use std::sync::Arc;

use lab::oracle::Oracle;
use lab::{Driven, Frame, Outcome, Payload, station};
use packet::record::{NoRecord, Step, Steps};
use packet::{BridgeId, MacAddr, PortId, VlanId};
use proptest::prelude::*;
use switch::{
    Bridge, BridgeConfig, BridgePortConfig, FdbEntry, Groups, Now, StaticMac, StormLimits, VlanMode,
};

const PORTS: u16 = 6;
/// Limit of the MAC table for tests with more stations than the per-worker MAC cache can hold by address. Workers then
/// read the table for every frame, and prefetch its buckets.
const LARGE: u32 = 10_000;
const CROWD: u16 = 1100;

#[derive(Clone, Debug)]
enum Op {
    Frames(Vec<Frame>),
    /// Lets this number of tenths of a second pass.
    Wait(u64),
    Age,
    FlushPort(u16),
    FlushVlan(u16),
    FlushMac(u8),
    FlushAll,
    Reconfigure(BridgeConfig),
    /// Sets the snooped groups (group number, VLAN and member ports) and the multicast router ports of VLANs.
    Groups(Vec<(u8, u16, Vec<u16>)>, Vec<(u16, bool, Vec<u16>)>),
}

fn vlan(vid: u16) -> VlanId {
    VlanId::new(vid).unwrap_or(VlanId::NONE)
}

fn mode() -> impl Strategy<Value = VlanMode> {
    let trunk = (prop::collection::vec(1u16..4, 0..3), prop::option::of(1u16..4), any::<bool>());
    prop_oneof![
        3 => (1u16..4).prop_map(|vid| VlanMode::Access(vlan(vid))),
        3 => trunk.prop_map(|(allowed, native, native_tagged)| VlanMode::Trunk {
            allowed: allowed.into_iter().map(vlan).collect(),
            native: native.map(vlan),
            native_tagged,
        }),
        1 => Just(VlanMode::Transparent),
    ]
}

fn rate() -> impl Strategy<Value = Option<u32>> {
    // Rates give whole tokens in a tenth of a second, so that the oracle needs no fractions.
    prop_oneof![6 => Just(None), 1 => Just(Some(0)), 1 => Just(Some(10)), 1 => Just(Some(40))]
}

fn member() -> impl Strategy<Value = BridgePortConfig> {
    let flags =
        (any::<bool>(), prop::bool::weighted(0.3), prop::bool::weighted(0.9), prop::bool::weighted(0.8));
    let limits = (prop::option::weighted(0.3, 0u32..4), rate(), rate(), rate());
    (mode(), flags, limits).prop_map(
        |(
            mode,
            (native_untagged_only, protected, learning, flood),
            (mac_limit, broadcast, multicast, unknown),
        )| {
            let storm = StormLimits { broadcast, multicast, unknown };
            BridgePortConfig {
                port: PortId(0),
                mode,
                native_untagged_only,
                protected,
                multicast_router: None,
                learning,
                flood,
                mac_limit,
                storm,
            }
        },
    )
}

fn config() -> impl Strategy<Value = BridgeConfig> {
    let members = prop::collection::vec(prop::option::weighted(0.85, member()), usize::from(PORTS));
    let fixed = (0u16..4, 0u8..6, prop::option::weighted(0.8, 0..PORTS + 1));
    let statics = prop::collection::vec(fixed, 0..3);
    (members, statics, 10u32..300, prop_oneof![4 => 1u32..9, 4 => Just(100), 1 => Just(LARGE)], any::<bool>())
        .prop_map(|(members, statics, ageing_secs, mac_limit, snooping)| BridgeConfig {
            id: BridgeId(3),
            name: "br0".into(),
            ageing_secs,
            mac_limit,
            snooping,
            ports: (0..PORTS)
                .zip(members)
                .filter_map(|(port, member)| Some(BridgePortConfig { port: PortId(port), ..member? }))
                .collect(),
            statics: statics
                .into_iter()
                .map(|(vid, mac, port)| StaticMac {
                    vid: vlan(vid),
                    mac: station(mac),
                    port: port.map(PortId),
                })
                .collect(),
        })
}

/// Returns the multicast group with this number. Even numbers are IPv4 groups, and odd numbers are IPv6 groups. The
/// bridge always floods the groups with the highest numbers.
fn group(number: u8) -> IpAddr {
    match number {
        0 | 2 => [239, 1, 1, number].into(),
        1 | 3 => [0xff05, 0, 0, 0, 0, 0, 1, u16::from(number)].into(),
        4 => [224, 0, 0, 251].into(),
        _ => [0xff02, 0, 0, 0, 0, 0, 0, 0xfb].into(),
    }
}

fn payload() -> impl Strategy<Value = Payload> {
    (0u8..6, 0u8..12).prop_map(|(number, what)| match (group(number), what) {
        (_, 0) => Payload::Pim4,
        (_, 1) => Payload::Pim6,
        (_, 2) => Payload::Other,
        (IpAddr::V4(to), 3) => Payload::Igmp(to.octets(), 0x11),
        (IpAddr::V4(to), 4) => Payload::Igmp(to.octets(), 0x16),
        (IpAddr::V4(to), 5) => Payload::Igmp(to.octets(), 0x22),
        (IpAddr::V4(to), 6) => Payload::Igmp(to.octets(), 0x31),
        (IpAddr::V6(to), 3) => Payload::Icmp6(to.segments(), 130),
        (IpAddr::V6(to), 4) => Payload::Icmp6(to.segments(), 131),
        (IpAddr::V6(to), 5) => Payload::Icmp6(to.segments(), 143),
        (IpAddr::V6(to), 6) => Payload::Icmp6(to.segments(), 136),
        (IpAddr::V4(to), _) => Payload::Udp4(to.octets()),
        (IpAddr::V6(to), _) => Payload::Udp6(to.segments()),
    })
}

fn frame() -> impl Strategy<Value = Frame> {
    let tci = prop_oneof![Just(0u16), 1u16..5, Just(0xe000), Just(0x6002)];
    let tag = prop_oneof![3 => Just(None), 4 => (tci, prop::bool::weighted(0.1)).prop_map(Some)];
    let source = prop_oneof![20 => (0u8..6).prop_map(station), 1 => Just(MacAddr([3, 0, 0, 0, 0, 1])), 1 => Just(MacAddr::ZERO)];
    let to = prop_oneof![
        6 => (0u8..6).prop_map(|to| Some(station(to))),
        1 => Just(Some(MacAddr::BROADCAST)),
        1 => (0u8..17).prop_map(|low| Some(MacAddr([1, 0x80, 0xc2, 0, 0, low]))),
        3 => Just(None),
    ];
    (0..PORTS + 1, source, to, tag, payload()).prop_map(|(port, src, to, tag, payload)| {
        let frame = Frame::multicast(port, 0, payload);
        Frame { src, dst: to.unwrap_or(frame.dst), tag, ..frame }
    })
}

fn op() -> impl Strategy<Value = Op> {
    let ports = || prop::collection::vec(0..PORTS + 1, 1..4);
    let groups = prop::collection::vec((0u8..6, 0u16..4, ports()), 0..5);
    let routers = prop::collection::vec((0u16..4, any::<bool>(), ports()), 0..3);
    prop_oneof![
        12 => prop::collection::vec(frame(), 1..12).prop_map(Op::Frames),
        4 => (0u64..20).prop_map(Op::Wait),
        1 => (0u64..4000).prop_map(Op::Wait),
        2 => Just(Op::Age),
        1 => (0..PORTS).prop_map(Op::FlushPort),
        1 => (0u16..4).prop_map(Op::FlushVlan),
        1 => (0u8..6).prop_map(Op::FlushMac),
        1 => Just(Op::FlushAll),
        1 => config().prop_map(Op::Reconfigure),
        2 => (groups, routers).prop_map(|(groups, routers)| Op::Groups(groups, routers)),
    ]
}

/// The bridge and the oracle, which receive the same operations.
struct Pair {
    real: Driven,
    oracle: Oracle,
    tenths: u64,
    /// Whether the table has ever been sized for [`LARGE`] addresses.
    is_large: bool,
}

impl Pair {
    fn now(&self) -> Now {
        Now::from_ns(self.tenths * 100_000_000)
    }

    /// Adds many learned stations on the first member port to the bridge and to the oracle.
    fn crowd(&mut self, config: &BridgeConfig) {
        let Some(member) = config.ports.first() else { return };
        let vid = match &member.mode {
            VlanMode::Access(vlan) => Some(*vlan),
            VlanMode::Trunk { allowed, native, .. } => native.or(allowed.iter().next()),
            VlanMode::Transparent => Some(VlanId::NONE),
        };
        let Some(vid) = vid.filter(|_| member.mac_limit.is_none()) else { return };
        let entry = |number: u16| {
            let [high, low] = number.to_be_bytes();
            let mac = MacAddr([2, 0, 0, 1, high, low]);
            FdbEntry { vid, mac, port: Some(member.port), age_secs: 0, is_static: false }
        };
        let entries: Vec<_> = (0..CROWD).map(entry).collect();
        assert_eq!(self.real.bridge.import(&entries, self.now().secs), entries.len());
        for entry in entries {
            self.oracle.know(vid.get(), entry.mac, member.port.0, self.now().ns / 1_000_000_000);
        }
    }

    fn apply(&mut self, op: Op) -> Result<(), TestCaseError> {
        let now = self.now();
        match op {
            Op::Frames(frames) => self.frames(&frames)?,
            Op::Wait(tenths) => self.tenths += tenths,
            Op::Age => {
                // Each call examines a part of a large table.
                for _ in 0..8 {
                    self.real.bridge.age(now.secs);
                }
                self.oracle.age(now.ns / 1_000_000_000);
            }
            Op::FlushPort(port) => {
                self.real.bridge.tables().flush_port(PortId(port));
                self.oracle.flush(|_, _, on| on == port);
            }
            Op::FlushVlan(vid) => {
                self.real.bridge.tables().flush_vlan(vlan(vid));
                self.oracle.flush(|on, _, _| on == vid);
            }
            Op::FlushMac(number) => {
                self.real.bridge.tables().flush_mac(station(number));
                self.oracle.flush(|_, mac, _| mac == station(number));
            }
            Op::FlushAll => {
                self.real.bridge.tables().flush_all();
                self.oracle.flush(|_, _, _| true);
            }
            Op::Reconfigure(mut config) => {
                // For an eviction the bridge reads a part of a table much larger than its limit. The oracle
                // reads all of its table.
                self.is_large |= config.mac_limit == LARGE;
                if self.is_large {
                    config.mac_limit = LARGE;
                }
                self.real.bridge = self.real.bridge.reconfigured(&config);
                self.oracle.reconfigure(&config);
            }
            Op::Groups(groups, routers) => self.groups(groups, routers),
        }
        self.same_tables()
    }

    fn groups(&mut self, groups: Vec<(u8, u16, Vec<u16>)>, routers: Vec<(u16, bool, Vec<u16>)>) {
        self.oracle.groups =
            groups.into_iter().map(|(number, vid, ports)| ((vid, group(number)), ports)).collect();
        self.oracle.routers = routers.into_iter().map(|(vid, v6, ports)| ((vid, v6), ports)).collect();
        let (groups, routers) = self.oracle.tables();
        self.real.bridge = self.real.bridge.with_groups(Arc::new(Groups::new(&groups, &routers, 7)));
    }

    /// Sends a burst through the bridge and the same frames one by one through the oracle.
    fn frames(&mut self, frames: &[Frame]) -> Result<(), TestCaseError> {
        let now = self.now();
        let explained = self.explain(&frames[0])?;
        let outcomes = self.real.burst(frames, now, &mut NoRecord);
        prop_assert_eq!(&explained, &outcomes[0], "explain foretold otherwise for {:?}", &frames[0]);
        for (frame, outcome) in frames.iter().zip(&outcomes) {
            prop_assert_eq!(outcome, &self.oracle.frame(frame, now), "{:?}", frame);
        }
        Ok(())
    }

    fn explain(&mut self, frame: &Frame) -> Result<Outcome, TestCaseError> {
        let before = self.listing();
        let mut steps = Steps::<true>::default();
        let outcome = self.real.burst(std::slice::from_ref(frame), self.now(), &mut steps).remove(0);
        prop_assert_eq!(before, self.listing(), "explain left a mark");
        let told = steps.0.iter().filter_map(|step| match step {
            Step::Output { port, tag } => Some((port.0, *tag)),
            _ => None,
        });
        prop_assert_eq!(&told.collect::<Vec<_>>(), &outcome.outputs);
        let dropped = steps.0.iter().find_map(|step| match step {
            Step::Dropped(reason) => Some(*reason),
            _ => None,
        });
        prop_assert_eq!(dropped, outcome.dropped);
        prop_assert_eq!(steps.0.contains(&Step::Punted), outcome.punted);
        Ok(outcome)
    }

    fn listing(&self) -> Vec<(u16, MacAddr, Option<u16>, u64, bool)> {
        let entries = self.real.bridge.tables().fdb(self.now().secs);
        let mut list: Vec<_> = entries
            .map(|e| (e.vid.get(), e.mac, e.port.map(|port| port.0), u64::from(e.age_secs), e.is_static))
            .collect();
        list.sort_unstable();
        list
    }

    fn same_tables(&self) -> Result<(), TestCaseError> {
        let tables = self.real.bridge.tables();
        let expected = self.oracle.listing(self.now().ns / 1_000_000_000);
        prop_assert_eq!(tables.len() as usize, expected.len());
        prop_assert_eq!(self.listing(), expected);
        prop_assert_eq!(tables.moves(), self.oracle.moves);
        for port in 0..=PORTS {
            prop_assert_eq!(tables.learned_on(PortId(port)) as usize, self.oracle.learned_on(port));
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn the_bridge_is_the_naive_bridge(
        config in config(),
        ops in prop::collection::vec(op(), 1..40),
        // Starts shortly before the coarse clock wraps.
        start in 652_000u64..656_000,
        seed: u64,
    ) {
        let mut pair = Pair {
            real: Driven::new(Bridge::new(&config, seed)),
            oracle: Oracle::new(&config),
            tenths: start,
            is_large: config.mac_limit == LARGE,
        };
        if config.mac_limit == LARGE {
            pair.crowd(&config);
        }
        pair.same_tables()?;
        for op in ops {
            pair.apply(op)?;
        }
    }
}
