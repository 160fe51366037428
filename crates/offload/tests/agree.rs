//! Compares two stages of the hook with the worker's bridge: the bridge stage, and the cached-flow stage for flows with
//! the action `NORMAL`. Each frame that the hook forwards must leave exactly as if the worker had forwarded the frame.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use engine::explain::{Explained, explain};
use engine::state::{Forwarding, Function, PortView};
use offload::{BridgeOffload, HookPort, port_stage};
use packet::record::Step;
use packet::{BridgeId, FlowKey, MacAddr, PortId, VlanId, WorkerId};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use switch::{Bridge, BridgeConfig, BridgePortConfig, FdbEntry, StaticMac, VlanMode, VlanSet};
use testbed::{Lab, require};
use xdp::StageChange;
use xdp::bridge::{BridgeDevices, BridgePort, BridgeStage};
use xdp::flows::{FlowAction, FlowPort, FlowStage, FlowTable, FlowWriter};
use xdp::{
    AttachMode, Attached, Counter, Loaded, LocalAddresses, Owner, PortProgram, ProgramConfig, WhenDown,
};

const PORTS: u16 = 6;
const NOW: u32 = 100_000;

fn vlan(id: u16) -> VlanId {
    VlanId::new(id).unwrap()
}

fn mac(last: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, last])
}

/// Returns a bridge with an access port, a protected access port, trunks with and without a native VLAN, and
/// a port without learning.
fn bridge() -> Bridge {
    let trunk = |native: Option<u16>, native_tagged| VlanMode::Trunk {
        allowed: [vlan(10), vlan(20)].into_iter().collect::<VlanSet>(),
        native: native.map(vlan),
        native_tagged,
    };
    let modes = [
        VlanMode::Access(vlan(10)),
        VlanMode::Access(vlan(10)),
        trunk(None, false),
        trunk(Some(20), false),
        trunk(Some(10), true),
        VlanMode::Access(vlan(20)),
    ];
    let mut ports: Vec<BridgePortConfig> =
        (0..PORTS).zip(modes).map(|(port, mode)| BridgePortConfig::new(PortId(port), mode)).collect();
    ports[1].protected = true;
    ports[3].protected = true;
    ports[3].native_untagged_only = true;
    ports[5].learning = false;
    let statics = vec![
        StaticMac { vid: vlan(10), mac: mac(20), port: Some(PortId(2)) },
        StaticMac { vid: vlan(20), mac: mac(20), port: Some(PortId(5)) },
        StaticMac { vid: vlan(10), mac: mac(21), port: None },
    ];
    let config =
        BridgeConfig { id: BridgeId(0), name: "br0".to_owned(), ports, statics, ..BridgeConfig::default() };
    Bridge::new(&config, 7)
}

/// Returns MAC table entries for stations 0 to 11. Each station is on one port, in each VLAN of the port.
fn learned(bridge: &Bridge) -> Vec<FdbEntry> {
    let port = |last: u8| PortId(u16::from(last) % PORTS);
    let entries = (0..12).flat_map(|last| {
        [10, 20].map(|vid| FdbEntry {
            vid: vlan(vid),
            mac: mac(last),
            port: Some(port(last)),
            age_secs: 3,
            is_static: false,
        })
    });
    entries.filter(|entry| bridge.carries(entry.port.unwrap(), entry.vid)).collect()
}

/// Stage of the hook that looks up the MAC addresses of stations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Bridge,
    Flows,
}

impl By {
    fn counter(self) -> Counter {
        match self {
            By::Bridge => Counter::Bridged,
            By::Flows => Counter::FlowForwarded,
        }
    }
}

/// Hooks of the ports of one bridge.
struct Hooks {
    by: By,
    /// Flow table in which all packets of a port match one flow, whose action is `NORMAL`.
    flows: FlowWriter,
    attached: Vec<Attached>,
    loaded: Vec<Loaded>,
    ifindex: Vec<u32>,
    devices: BridgeDevices,
    offload: BridgeOffload,
}

impl Hooks {
    fn new(lab: &Lab, bridge: &Bridge, by: By) -> Hooks {
        let hub = lab.hub();
        let flows = FlowTable::new(64, 0x1234_5678_9abc_def1).unwrap();
        flows.renew(u64::MAX);
        let mut flows = FlowWriter::new(&flows);
        let (devices, mut offload) = (BridgeDevices::new().unwrap(), BridgeOffload::new(256, 5).unwrap());
        assert!(bridge.tables().set_offload_invalidator(offload.offload_invalidator()));
        let (mut attached, mut loaded, mut ifindex) = (Vec::new(), Vec::new(), Vec::new());
        for port in 0..PORTS {
            hub.run([
                "ip",
                "link",
                "add",
                &format!("n{port}"),
                "type",
                "veth",
                "peer",
                "name",
                &format!("f{port}"),
            ])
            .unwrap();
            let shown = hub.run(["ip", "-o", "link", "show", "dev", &format!("n{port}")]).unwrap();
            let index: u32 = shown.split(':').next().unwrap().parse().unwrap();
            let config = ProgramConfig {
                owner: Owner::Bridged,
                when_down: WhenDown::Drop,
                queues: 1,
                locals: LocalAddresses::default(),
            };
            let made = hub.inside(|| {
                devices.set(port, index).unwrap();
                let one = PortProgram::load(&config).unwrap().attach(index, AttachMode::Auto, None).unwrap();
                let stage = port_stage(bridge, PortId(port), port == 0).unwrap();
                let program = match by {
                    By::Bridge => bridge_program(&one, &stage, &offload, &devices),
                    By::Flows => {
                        let own = FlowPort { port, partial_checksums: stage.partial_checksums };
                        let known = Some((&stage, offload.table()));
                        let stage = FlowStage::new(&own, &one, flows.table(), &devices, known).unwrap();
                        one.prepare_stage(StageChange::Flows(Some(&stage))).unwrap()
                    }
                };
                Ok((one, program))
            });
            let (mut key, mut mask) = (FlowKey::ZERO, FlowKey::ZERO);
            key.set_in_port(PortId(port));
            mask.set_in_port(PortId(u16::MAX));
            let normal = FlowAction { normal: true, ..FlowAction::default() };
            if flows.insert(key.words(), mask.words(), &normal).is_err() {
                flows.settle(flows.written());
                flows.insert(key.words(), mask.words(), &normal).unwrap();
            }
            let (one, program) = made.unwrap();
            attached.push(one);
            loaded.push(program);
            ifindex.push(index);
        }
        offload.sync(bridge, reached, NOW);
        Hooks { by, flows, attached, loaded, ifindex, devices, offload }
    }

    /// Returns the output port and the frame that the hook of the port `port` transmits for the frame `frame`. Returns
    /// `None` if the hook does not forward the frame.
    fn answer(&self, lab: &Lab, port: u16, frame: &[u8]) -> Option<(PortId, Vec<u8>)> {
        let at = usize::from(port);
        let bridged = || self.attached[at].counters().unwrap().get(self.by.counter());
        let sent =
            || (0..PORTS).map(|port| self.devices.counts(port).unwrap().tx_packets).collect::<Vec<_>>();
        let before = (bridged(), sent());
        let run =
            lab.hub().inside(|| Ok(self.loaded[at].test_run_from(frame, Some((self.ifindex[at], 0)), 1)));
        let run = run.unwrap().unwrap();
        if bridged() == before.0 {
            return None;
        }
        let now = sent();
        let to = (0..PORTS).find(|port| now[usize::from(*port)] != before.1[usize::from(*port)]).unwrap();
        Some((PortId(to), run.frame))
    }
}

impl Hooks {
    /// Restores the entries of those stations that the hook has removed from its table.
    fn restore(&self, bridge: &Bridge) {
        for entry in bridge.tables().fdb(0) {
            let (Some(port), key) = (entry.port, entry.key()) else { continue };
            if self.offload.table().get(key).is_none() {
                let place = xdp::bridge::Place {
                    port: port.0,
                    tagged: bridge.leaves_tagged(port, entry.vid).unwrap(),
                    protected: bridge.facts(port).unwrap().protected,
                    is_static: entry.is_static,
                    reached: reached(port).unwrap().reached,
                };
                assert!(self.offload.table().insert(key, place, NOW));
            }
        }
    }
}

fn bridge_program(
    one: &Attached,
    stage: &BridgePort,
    offload: &BridgeOffload,
    devices: &BridgeDevices,
) -> Loaded {
    let stage = BridgeStage::new(stage, one, offload.table(), devices).unwrap();
    one.prepare_stage(StageChange::Bridge(Some(&stage))).unwrap()
}

/// Returns the hook of a port. The device of port 4 does not accept redirected frames.
fn reached(port: PortId) -> Option<HookPort> {
    Some(HookPort { reached: (port.0 != 4).then_some(1514) })
}

fn forwarding(bridge: &Bridge) -> Forwarding {
    let mut forwarding = Forwarding::default();
    let room = Arc::new(bridge.clone());
    for port in 0..PORTS {
        let view = PortView::new(Function::Bridge(Arc::clone(&room)), WorkerId(0));
        let view = PortView { complete_checksums: port == 0, ..view };
        forwarding.set_port(PortId(port), Some(view));
    }
    forwarding
}

prop_compose! {
    fn frames()(
        port in 0..PORTS,
        addresses in (0_u8..24, 0_u8..24),
        likely in (0_u8..12, 0_u8..2, prop::bool::weighted(0.8), prop::bool::weighted(0.8)),
        group in prop::bool::weighted(0.05),
        tags in prop::collection::vec((prop::sample::select(vec![0x8100_u16, 0x8100, 0x8100, 0x88a8]),
            prop::sample::select(vec![10_u16, 20, 0x600a, 30, 0, 0x2000])), 0..3),
        tagged in prop::bool::weighted(0.5),
        ip in prop::bool::weighted(0.6),
        bare in any::<bool>(),
        protocol in prop::sample::select(vec![6_u8, 17, 1]),
        length in prop::sample::select(vec![60_usize, 60, 60, 300, 1514, 1518, 1519]),
        mutation in prop::option::weighted(0.2, (0_usize..60, any::<u8>())),
    ) -> (u16, Vec<u8>) {
        // The source is mostly a station of this port and the destination a known one, tagged where that is
        // valid.
        let (destination, source) = match likely {
            (to, second, true, _) => (to, u8::try_from(port).unwrap() + 6 * second),
            _ => addresses,
        };
        let addresses = (destination, source);
        let tagged = if likely.3 { (2..5).contains(&port) } else { tagged };
        let tags = if likely.3 && tagged { vec![(0x8100, if likely.1 == 0 { 0x600a } else { 20 })] } else { tags };
        let mut frame = Vec::new();
        frame.extend(if group { [1, 0, 0x5e, 0, 0, addresses.0] } else { mac(addresses.0).0 });
        frame.extend(mac(addresses.1).0);
        for (kind, control) in tags.iter().take(if tagged { 2 } else { 0 }) {
            frame.extend(kind.to_be_bytes());
            frame.extend(control.to_be_bytes());
        }
        frame.extend(if ip { [8, 0] } else { [0x88, 0xb5] });
        let from = frame.len();
        let length = length.max(from + 46);
        frame.resize(length, 0x5a);
        if ip {
            let total = u16::try_from(length - from).unwrap();
            let [high, low] = total.to_be_bytes();
            frame[from..from + 20].copy_from_slice(
                &[0x45, 0, high, low, 0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            let sum = u32::from(0x0a00_u16) * 2 + 3 + u32::from(protocol) + u32::from(total - 20);
            let sum = u16::try_from(sum % 0xffff).unwrap();
            let place = from + 20 + if protocol == 6 { 16 } else { 6 };
            if bare {
                frame[place..place + 2].copy_from_slice(&sum.to_be_bytes());
            }
        }
        if let Some((at, value)) = mutation {
            frame[at] = value;
        }
        (port, frame)
    }
}

/// Class of a frame whose source and destination the worker's bridge has learned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Untagged,
    Tagged,
    TagPushed,
    TagPopped,
    /// Frame to the port whose device does not accept redirected frames.
    Unreached,
    /// Frame longer than the devices accept.
    TooLong,
    /// Frame with a checksum that the worker completes.
    Unsummed,
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::Untagged,
        Kind::Tagged,
        Kind::TagPushed,
        Kind::TagPopped,
        Kind::Unreached,
        Kind::TooLong,
        Kind::Unsummed,
    ];

    /// Returns the class of a frame. Returns `None` if the worker drops or floods the frame, or learns its source
    /// address.
    fn of(explained: &Explained, frame: &[u8]) -> Option<Kind> {
        let told = |wanted: fn(&Step) -> bool| explained.steps.iter().any(wanted);
        let [(to, out)] = explained.outputs.as_slice() else { return None };
        if !told(|step| matches!(step, Step::SourceKnown { .. }))
            || !told(|step| matches!(step, Step::Found { .. }))
        {
            return None;
        }
        Some(match out.len().cmp(&frame.len()) {
            _ if to.0 == 4 => Kind::Unreached,
            _ if out.len() > 1514 => Kind::TooLong,
            _ if told(|step| matches!(step, Step::ChecksumCompleted)) => Kind::Unsummed,
            Ordering::Greater => Kind::TagPushed,
            Ordering::Less => Kind::TagPopped,
            Ordering::Equal if frame[12..14] == [0x81, 0] => Kind::Tagged,
            Ordering::Equal => Kind::Untagged,
        })
    }

    /// Returns the minimum percentage of the frames of this class that the hook must forward. The frames differ between
    /// runs, so the minimum is about three standard deviations below the lowest percentage in ten runs.
    fn least_answered(self, by: By) -> u32 {
        match (self, by) {
            (Kind::TagPopped, _) => 86,
            (Kind::Untagged, _) => 88,
            (Kind::Tagged | Kind::TagPushed, _) => 82,
            // The maximum frame length of a device excludes the tag, so that the hook forwards some of these
            // frames.
            (Kind::TooLong, _) => 30,
            (Kind::Unsummed, By::Bridge) => 75,
            (Kind::Unsummed, By::Flows) | (Kind::Unreached, _) => 0,
        }
    }
}

#[test]
fn what_the_hook_answers_is_what_the_worker_would_have_done() {
    require!("ip");
    agrees(By::Bridge);
}

#[test]
fn what_the_hook_answers_by_normal_is_what_the_worker_would_have_done() {
    require!("ip");
    agrees(By::Flows);
}

fn agrees(by: By) {
    let lab = Lab::new().unwrap();
    let bridge = bridge();
    let secs = u16::try_from(NOW & 0xffff).unwrap();
    let entries = learned(&bridge);
    assert_eq!(bridge.import(&entries, secs), entries.len());
    let hooks = Hooks::new(&lab, &bridge, by);
    assert_eq!((hooks.offload.stations(), hooks.offload.refused()), (entries.len() + 2, 0));
    let forwarding = forwarding(&bridge);
    let reader = engine::engine::domain().register().unwrap();
    let mut runner = TestRunner::new(Config { cases: 6000, failure_persistence: None, ..Config::default() });
    let (answered, kinds) = (Cell::new(0_u32), RefCell::new(BTreeMap::<Kind, (u32, u32)>::new()));
    runner
        .run(&frames(), |(port, frame)| {
            let answer = hooks.answer(&lab, port, &frame);
            let explained = explain(&forwarding, &reader, PortId(port), &frame);
            answered.set(answered.get() + u32::from(answer.is_some()));
            if let Some(kind) = Kind::of(&explained, &frame) {
                let mut kinds = kinds.borrow_mut();
                let (by_hook, all) = kinds.entry(kind).or_default();
                *by_hook += u32::from(answer.is_some());
                *all += 1;
            }
            let told = |wanted: fn(&Step) -> bool| explained.steps.iter().any(wanted);
            if let Some(answer) = answer {
                let (to, frame) = &answer;
                let alike = match explained.outputs.as_slice() {
                    [(out, worker)] if told(|step| matches!(step, Step::ChecksumCompleted)) => {
                        // No socket serves these hooks, so an incomplete checksum is forwarded unchanged.
                        let differ = frame.iter().zip(worker).filter(|(one, other)| one != other).count();
                        out == to && frame.len() == worker.len() && differ <= 2
                    }
                    outputs => outputs == [answer.clone()],
                };
                prop_assert!(alike, "{:?} and {:?}: {:?}", answer, explained.outputs, explained.steps);
                prop_assert!(told(|step| matches!(step, Step::SourceKnown { .. })), "{:?}", explained.steps);
                prop_assert!(told(|step| matches!(step, Step::Found { .. })), "{:?}", explained.steps);
            }
            // An address that appeared on another port has removed its station.
            hooks.restore(&bridge);
            Ok(())
        })
        .unwrap();
    let kinds = kinds.into_inner();
    println!("answered by the hook, of all that known stations send to known ones: {kinds:?}");
    for kind in Kind::ALL {
        let (by_hook, all) = kinds.get(&kind).copied().unwrap_or_default();
        assert!(all > 10, "{kind:?}: {all} frames are too few to say anything");
        let least = kind.least_answered(by);
        assert!(by_hook * 100 >= all * least, "{kind:?}: the hook answers {by_hook} of {all}, not {least} %");
    }
    let counted: u64 = (0..u32::from(PORTS)).map(|slot| hooks.flows.counts(slot).packets).sum();
    assert_eq!(counted, if by == By::Flows { u64::from(answered.get()) } else { 0 });
}

#[test]
fn the_hook_forgets_with_the_bridge() {
    require!("ip");
    let lab = Lab::new().unwrap();
    let bridge = bridge();
    let secs = u16::try_from(NOW & 0xffff).unwrap();
    bridge.import(&learned(&bridge), secs);
    let mut hooks = Hooks::new(&lab, &bridge, By::Bridge);
    let frame = |to: u8, from: u8| {
        let mut frame = [mac(to).0, mac(from).0].concat();
        frame.extend([0x88, 0xb5]);
        frame.resize(60, 0);
        frame
    };
    // Stations 0 and 6 are on port 0, 1 and 7 on port 1, all in VLAN 10.
    let crosses =
        |hooks: &Hooks, to, from| hooks.answer(&lab, u16::from(from) % PORTS, &frame(to, from)).is_some();
    assert!(crosses(&hooks, 1, 0) && crosses(&hooks, 7, 0) && crosses(&hooks, 0, 1));
    bridge.tables().flush_mac(mac(1));
    assert!(!crosses(&hooks, 1, 0) && crosses(&hooks, 7, 0), "flushed");
    bridge.tables().flush_port(PortId(0));
    assert!(!crosses(&hooks, 7, 0), "its source is unknown");
    bridge.import(&learned(&bridge), secs);
    assert!(!crosses(&hooks, 7, 0), "nobody has told the hook");
    hooks.offload.sync(&bridge, reached, NOW);
    assert!(crosses(&hooks, 7, 0) && crosses(&hooks, 1, 0));

    // A station used in the hook does not age, and an unused one does.
    let later = NOW + 250;
    hooks.loaded = (0..usize::from(PORTS))
        .map(|at| {
            let number = PortId(u16::try_from(at).unwrap());
            let stage = port_stage(&bridge, number, false).unwrap();
            let stage =
                BridgeStage::new(&stage, &hooks.attached[at], hooks.offload.table(), &hooks.devices).unwrap();
            stage.orders().set_now(later);
            hooks.attached[at].prepare_stage(StageChange::Bridge(Some(&stage))).unwrap()
        })
        .collect();
    assert!(crosses(&hooks, 7, 0));
    hooks.offload.feed_back(&bridge);
    let aged = u16::try_from((NOW + 310) & 0xffff).unwrap();
    while bridge.age(aged) > 0 {}
    assert!(bridge.tables().port_of(learned(&bridge)[0].key()).is_some(), "0 was seen in the hook");
    assert_eq!(bridge.tables().port_of(key_of(7)), None, "7 was not");
    assert!(!crosses(&hooks, 7, 0));
    hooks.offload.clear();
    assert_eq!(hooks.offload.stations(), 0);
}

fn key_of(last: u8) -> u64 {
    FdbEntry { vid: vlan(10), mac: mac(last), port: None, age_secs: 0, is_static: false }.key()
}
