//! Tests of several bridges joined by patch ports, with removals of ports and bridges. The test runs worker
//! and slow path without threads.

#![allow(clippy::unwrap_used, clippy::disallowed_types, reason = "helpers of tests")]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ::port::{Batch, Flags, Offload, Queue};
use common::rules::barrier;
use common::{Rig, frame};
use engine::idle::Waker;
use engine::ordering::CompletionSink;
use engine::slow_path::Bridges;
use engine::{EngineConfig, FlowBridge, FlowTables, Function, PortView, SlowPath};
use packet::record::Step;
use packet::{DropReason, MacAddr, PortId, QueueId, WorkerId};
use switch::flow::{Action, Field, FlowMod, FlowPort, Instructions, Match, Mod, Pipeline, PortDesc, port};
use switch::{Bridge, BridgeConfig, BridgePortConfig, VlanMode};

fn learning(ports: &[u16], seed: u64) -> Arc<Bridge> {
    let config = BridgeConfig {
        ports: ports.iter().map(|p| BridgePortConfig::new(PortId(*p), VlanMode::Transparent)).collect(),
        ..BridgeConfig::default()
    };
    Arc::new(Bridge::new(&config, seed))
}

/// Joins two ports as patch ports.
fn join(rig: &mut Rig, one: u16, other: u16) {
    rig.publish(|forwarding| {
        for (own, peer) in [(one, other), (other, one)] {
            let view = forwarding.port(PortId(own)).unwrap().clone();
            forwarding.set_port(PortId(own), Some(PortView { patch: Some(PortId(peer)), ..view }));
        }
    });
}

/// Creates two bridges with the ports 0 and 1, and 2 and 3. Ports 1 and 2 are joined.
fn two_bridges() -> Rig {
    let (a, b) = (learning(&[0, 1], 1), learning(&[2, 3], 2));
    let function = |port: PortId| Function::Bridge(Arc::clone(if port.0 < 2 { &a } else { &b }));
    let mut rig = Rig::with(&EngineConfig::default(), &[0, 1, 2, 3].map(PortId), function);
    join(&mut rig, 1, 2);
    rig
}

fn counts(rig: &Rig, port: u16) -> (u64, u64) {
    let totals = rig.engine.port_totals(PortId(port));
    (totals.rx_packets, totals.tx_packets)
}

#[test]
fn what_one_end_is_sent_the_other_receives_in_the_same_round() {
    let mut rig = two_bridges();
    for sequence in 0..100 {
        rig.send(0, &frame(1, 2, sequence));
    }
    assert_eq!(rig.round(), 100);
    let there: Vec<_> = (0..100).map(|sequence| (PortId(3), frame(1, 2, sequence))).collect();
    assert_eq!(rig.outputs(), there, "in order, and nothing into the wires of the patch ports' own queues");
    rig.send(3, &frame(2, 1, 0));
    rig.round();
    assert_eq!(rig.outputs(), [(PortId(0), frame(2, 1, 0))]);
    assert_eq!((counts(&rig, 1), counts(&rig, 2)), ((1, 100), (100, 1)));
    assert_eq!(rig.round(), 0, "nothing is left that would keep a worker awake");
    rig.assert_accounted();
}

#[test]
fn checksums_that_are_open_stay_open_between_the_ends() {
    let mut rig = two_bridges();
    let mut batch = Batch::new();
    let mut packet = rig.pool.alloc_copy(&frame(1, 2, 7)).unwrap();
    let mut flags = Flags::default();
    flags.insert(Flags::PARTIAL_CHECKSUM);
    let open = Offload { flags, csum_start: 34, csum_offset: 6, ..Offload::default() };
    packet.set_offload(rig.pool.memory(), open);
    batch.push(packet);
    assert_eq!(rig.far[0].transmit(&mut rig.pool, &mut batch), 1);
    rig.round();
    let outputs = rig.outputs();
    let bytes = &outputs[0].1;
    assert_eq!((outputs.len(), outputs[0].0), (1, PortId(3)));
    // The ring accepts no partial checksum. The checksum was completed once, over the contents of the field.
    let mut sum: u32 = bytes[34..].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    assert_eq!(sum, 0xffff);
}

#[test]
fn a_port_that_is_down_at_the_other_end_ends_packets_there() {
    let mut rig = two_bridges();
    rig.publish(|forwarding| {
        let view = forwarding.port(PortId(2)).unwrap().clone();
        forwarding.set_port(PortId(2), Some(PortView { up: false, ..view }));
    });
    rig.send(0, &frame(1, 2, 0));
    rig.round();
    assert_eq!(rig.engine.port_totals(PortId(2)).drops[DropReason::PortDown.index()], 1);
    rig.publish(|forwarding| forwarding.set_port(PortId(2), None));
    rig.send(0, &frame(1, 2, 0));
    rig.round();
    assert_eq!(rig.engine.port_totals(PortId(2)).drops[DropReason::PortRemoved.index()], 1);
    assert_eq!(rig.outputs(), []);
}

#[test]
fn loops_end_and_are_counted() {
    // Bridges of ports 0 to 3 and 4 to 7 are joined three times, so each packet that circulates becomes two.
    let (a, b) = (learning(&[0, 1, 2, 3], 1), learning(&[4, 5, 6, 7], 2));
    let function = |port: PortId| Function::Bridge(Arc::clone(if port.0 < 4 { &a } else { &b }));
    let mut rig = Rig::with(&EngineConfig::default(), &[0, 1, 2, 3, 4, 5, 6, 7].map(PortId), function);
    join(&mut rig, 1, 5);
    rig.send(0, &frame(1, 0xff, 0));
    rig.round();
    assert_eq!(rig.outputs().len(), 5, "one way alone: the others are wires");
    join(&mut rig, 2, 6);
    let mut broadcast = frame(1, 2, 1);
    broadcast[..6].fill(0xff);
    rig.send(0, &broadcast);
    rig.round();
    let lost = rig.dropped();
    // Two loops are cut after 31 ports each.
    assert_eq!(lost[DropReason::HopLimit.index()], 2);
    rig.outputs();
    join(&mut rig, 3, 7);
    rig.send(0, &broadcast);
    rig.round();
    let lost = rig.dropped();
    assert!(lost[DropReason::HopLimit.index()] > 2 && lost[DropReason::CloneBudget.index()] > 0);
    assert_eq!(rig.round(), 0, "nothing of it is left");
    let (through, _) = counts(&rig, 1);
    assert!(through < 20_000, "{through}");
    rig.assert_accounted();
}

fn pipeline(ports: &[u16]) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for id in ports {
        let number = u32::from(*id) + 1;
        let name = format!("p{number}");
        let desc = PortDesc { number, name, mac: MacAddr([2; 6]), config: 0, state: 4, speed: 0 };
        let port =
            FlowPort { id: PortId(*id), desc, floods: true, forwards: true, receives: true, live: true };
        pipeline.set_port(number, Some(port));
    }
    pipeline.take_events();
    pipeline
}

struct Joined {
    rig: Rig,
    slow_path: SlowPath,
    tables: [Arc<FlowTables>; 2],
    bridges: [Arc<FlowBridge>; 2],
    served: Bridges,
}

/// Creates two OpenFlow bridges with the ports 0 and 1, and 2 and 3. Ports 1 and 2 are joined.
fn with_rules() -> Joined {
    with_hosts(0)
}

/// Creates two OpenFlow bridges like [`with_rules`]. The first bridge also has the ports 4 to `3 + more`.
fn with_hosts(more: u16) -> Joined {
    let first: Vec<u16> = [0, 1].into_iter().chain(4..4 + more).collect();
    let waker = Arc::new(Waker::new().unwrap());
    let make = |number: u16, ports: &[u16]| {
        let tables = Arc::new(FlowTables::new(number, pipeline(ports), Arc::clone(&waker)));
        Arc::new(FlowBridge { tables, bridge: learning(ports, 7), connections: Arc::default() })
    };
    let bridges = [make(0, &first), make(1, &[2, 3])];
    let of_second = |port: PortId| matches!(port.0, 2 | 3);
    let function = |port: PortId| Function::OpenFlow(Arc::clone(&bridges[usize::from(of_second(port))]));
    let ports: Vec<PortId> = (0..4 + more).map(PortId).collect();
    let mut rig = Rig::with(&EngineConfig::default(), &ports, function);
    join(&mut rig, 1, 2);
    let served: Bridges =
        Arc::new(Mutex::new(BTreeMap::from([(0, Arc::clone(&bridges[0])), (1, Arc::clone(&bridges[1]))])));
    let (limits, waker) = (lookup::FlowLimits::default(), Arc::clone(&waker));
    let slow_path = rig.engine.slow_path(limits, waker, Arc::clone(&served)).unwrap();
    rig.worker.round_with_commands();
    let tables = bridges.each_ref().map(|bridge| Arc::clone(&bridge.tables));
    Joined { rig, slow_path, tables, bridges, served }
}

impl Joined {
    fn add(&self, bridge: usize, from: u32, actions: Vec<Action>) {
        let matching = Match::ANY.with(Field::InPort, u128::from(from));
        let change = FlowMod::add(0, 5, matching, Instructions::apply(actions));
        let mods = [Mod::Flow(Box::new(change))];
        self.tables[bridge].change(|own| own.modify(&mods, engine::worker::monotonic().ns)).unwrap();
    }

    /// Waits until the caches agree with the tables of both bridges.
    fn barrier(&mut self) {
        let served = self.served.lock().unwrap().clone();
        let done: Vec<Arc<AtomicBool>> = served.values().map(|bridge| barrier(&bridge.tables)).collect();
        while !done.iter().all(|done| done.load(Ordering::Acquire)) {
            self.slow_path.round();
            self.rig.round();
        }
    }

    /// Moves a port from the first bridge to the second, where it gets the number 9.
    fn moves(&mut self, id: u16) {
        let (port, bridge) = (PortId(id), Arc::clone(&self.bridges[1]));
        let desc = PortDesc {
            number: 9,
            name: "moved".to_owned(),
            mac: MacAddr([2; 6]),
            config: 0,
            state: 4,
            speed: 0,
        };
        let moved = FlowPort { id: port, desc, floods: true, forwards: true, receives: true, live: true };
        self.tables[1].change(|own| own.set_port(9, Some(moved)));
        self.barrier();
        self.rig.publish(|forwarding| {
            let view = forwarding.port(port).unwrap().clone();
            forwarding.set_port(port, Some(PortView { function: Function::OpenFlow(bridge), ..view }));
        });
    }

    fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < 3 {
            let busy = self.rig.round() > 0 || self.slow_path.round();
            quiet = if busy { 0 } else { quiet + 1 };
        }
    }
}

fn out(port: u32) -> Action {
    Action::Output { port, max_len: 0xffff }
}

#[test]
fn rules_of_both_bridges_are_met_and_each_caches_its_own() {
    let mut joined = with_rules();
    joined.add(0, 1, vec![out(2)]);
    joined.add(1, 3, vec![out(4)]);
    for sequence in 0..50 {
        joined.rig.send(0, &frame(1, 2, sequence));
    }
    joined.settle();
    let all: Vec<_> = (0..50).map(|sequence| (PortId(3), frame(1, 2, sequence))).collect();
    assert_eq!(joined.rig.outputs(), all, "in order, though each bridge has had to decide first");
    joined.rig.send(0, &frame(1, 2, 50));
    assert_eq!(joined.rig.round(), 1);
    assert_eq!(joined.rig.outputs(), [(PortId(3), frame(1, 2, 50))], "by the caches of both, in one round");
    assert_eq!([0, 1].map(|bridge| joined.tables[bridge].upcalls()), [1, 1]);
    joined.rig.assert_accounted();
}

#[test]
fn a_loop_through_the_slow_path_ends_as_well() {
    let mut joined = with_rules();
    // A packet that comes back is sent again, and each pass sends a copy to controllers. No pass is cached.
    let controller = Action::Output { port: port::CONTROLLER, max_len: 64 };
    joined.add(0, 1, vec![out(2)]);
    joined.add(0, 2, vec![controller.clone(), Action::Output { port: port::IN_PORT, max_len: 0 }]);
    joined.add(1, 3, vec![controller, Action::Output { port: port::IN_PORT, max_len: 0 }]);
    joined.rig.send(0, &frame(1, 2, 0));
    joined.settle();
    assert_eq!(joined.rig.dropped()[DropReason::HopLimit.index()], 1);
    let (received, sent) = counts(&joined.rig, 2);
    assert_eq!(received + sent, 31, "each port that it goes through counts");
    assert_eq!(joined.rig.outputs(), []);
    joined.rig.assert_accounted();
}

/// Checks that packets are looked up in the first bridge while a control thread has locked the tables of the second
/// bridge, and packets of the same host wait for them.
#[test]
fn a_locked_bridge_behind_a_patch_port_does_not_stop_the_first_bridge() {
    let mut joined = with_hosts(1);
    joined.add(1, 3, vec![out(4)]);
    // The first bridge looks at the source address of each packet. The last bit of the address selects the way.
    for (address, actions) in [(0, vec![out(2)]), (1, vec![out(5)])] {
        let mut own = Match::ANY.with(Field::InPort, 1);
        own.put(Field::EthSrc, address, 1);
        let change = [Mod::Flow(Box::new(FlowMod::add(0, 9, own, Instructions::apply(actions))))];
        joined.tables[0].change(|own| own.modify(&change, engine::worker::monotonic().ns)).unwrap();
    }
    joined.slow_path.knobs().megaflows.store(false, Ordering::Relaxed);
    let tables = Arc::clone(&joined.tables[1]);
    let locked = tables.lock();
    for number in 0..600_u32 {
        joined.rig.send(0, &of_flow(number));
        joined.rig.round();
        joined.slow_path.round();
    }
    drop(locked);
    joined.rig.round();
    let to_first = joined.rig.outputs().iter().filter(|(port, _)| *port == PortId(4)).count();
    assert_eq!(to_first, 300, "the first bridge has processed its packets");
    joined.settle();
}

/// Checks that a host whose packets all miss in the second bridge does not use up the slow path for another host behind
/// the same patch port.
#[test]
fn hosts_behind_one_patch_port_have_their_own_shares_of_the_slow_path() {
    let mut joined = with_hosts(1);
    for host in [1, 5] {
        joined.add(0, host, vec![out(2)]);
    }
    joined.add(1, 3, vec![out(4)]);
    // The second bridge looks at the source address of each packet.
    let matching = Match::ANY.with(Field::EthSrc, 0xff);
    let change = [Mod::Flow(Box::new(FlowMod::add(0, 9, matching, Instructions::apply(vec![]))))];
    joined.tables[1].change(|own| own.modify(&change, engine::worker::monotonic().ns)).unwrap();
    for host in [0, 4] {
        joined.rig.send(host, &of_flow(1));
    }
    joined.settle();
    assert_eq!(joined.rig.outputs().len(), 2);
    let lost = |joined: &Joined| joined.rig.dropped()[DropReason::UpcallLimit.index()];
    for number in 0..600 {
        joined.rig.send(0, &of_flow(1000 + number));
        joined.rig.round();
    }
    assert_eq!(lost(&joined), 600 - 256, "half of the limit of one port");
    let of_host = joined.rig.engine.port_totals(PortId(0)).drops[DropReason::UpcallLimit.index()];
    assert_eq!(of_host, 600 - 256, "the drops count for the port whose limit is exceeded");
    for number in 0..100 {
        joined.rig.send(4, &of_flow(2000 + number));
        joined.rig.round();
    }
    assert_eq!(lost(&joined), 600 - 256);
    joined.settle();
    assert_eq!(joined.rig.outputs().len(), 256 + 100);
    joined.rig.assert_accounted();
}

/// Receiver of progress reports that keeps the last reported number.
struct Reported(Arc<AtomicU32>);

impl CompletionSink for Reported {
    fn number(&self, before: [u8; 8]) -> Option<u32> {
        u32::try_from(u64::from_ne_bytes(before)).ok().filter(|number| *number != 0)
    }

    fn finish(&self, number: u32) {
        self.0.store(number, Ordering::Release);
    }
}

impl Joined {
    /// Sets a receiver of progress reports for the queue of a port. Returns the last reported number.
    fn report(&mut self, port: u16) -> Arc<AtomicU32> {
        let reported = Arc::new(AtomicU32::new(0));
        let sink = Box::new(Reported(Arc::clone(&reported)));
        self.rig.engine.tell_progress(WorkerId(0), PortId(port), QueueId(0), Some(sink)).unwrap();
        self.rig.worker.round_with_commands();
        reported
    }

    /// Sends a frame with a frame number in front of it, as the XDP hook sends frames to a worker.
    fn send_numbered(&mut self, port: u16, number: u32, bytes: &[u8]) {
        let Rig { pool, far, .. } = &mut self.rig;
        let mut packet = pool.alloc_copy(bytes).unwrap();
        assert!(packet.prepend(8));
        packet.head_mut(pool.memory())[..8].copy_from_slice(&u64::from(number).to_ne_bytes());
        assert!(packet.trim_front(8));
        let mut batch = Batch::new();
        batch.push(packet);
        assert_eq!(far[usize::from(port)].transmit(pool, &mut batch), 1);
    }
}

/// Returns a frame that belongs to flow `number`.
fn of_flow(number: u32) -> Vec<u8> {
    let mut own = frame(1, 2, number);
    own[8..12].copy_from_slice(&number.to_be_bytes());
    own
}

/// Checks that packets that miss again after passing a patch port do not delay the progress reports of other queues,
/// and that the reports of their own queue continue.
#[test]
fn a_stream_of_misses_behind_a_patch_port_does_not_stop_progress_reports() {
    let mut joined = with_rules();
    joined.add(0, 1, vec![out(2)]);
    joined.add(1, 3, vec![out(4)]);
    joined.add(1, 4, vec![]);
    joined.slow_path.knobs().megaflows.store(false, Ordering::Relaxed);
    joined.send_numbered(3, 1, &frame(7, 2, 0));
    joined.settle();
    let (own, other) = (joined.report(0), joined.report(3));
    // In each round, a packet that has passed the patch port still waits when the round ends.
    for number in 1..=200_u32 {
        joined.send_numbered(0, number, &of_flow(number));
        joined.send_numbered(3, number, &frame(7, 2, number));
        joined.rig.round();
        joined.slow_path.round();
        if number > 4 {
            assert_eq!(other.load(Ordering::Acquire), number, "the other queue's packets have left");
            let left = u32::try_from(counts(&joined.rig, 3).1).unwrap();
            assert_eq!(own.load(Ordering::Acquire), left, "{number}");
            assert!(left + 3 >= number && left < number, "no packet waits");
        }
    }
    joined.settle();
    assert_eq!(own.load(Ordering::Acquire), 200);
    assert_eq!(joined.rig.outputs().len(), 200);
    joined.rig.assert_accounted();
}

/// Checks that packets of one flow, which arrived in several bursts and wait in both bridges, are reported only when
/// they have left the engine through the second bridge.
#[test]
fn packets_that_wait_in_both_bridges_are_reported_when_they_leave() {
    let mut joined = with_rules();
    joined.add(0, 1, vec![out(2)]);
    joined.add(1, 3, vec![out(4)]);
    let own = joined.report(0);
    for number in 1..=20 {
        joined.send_numbered(0, number, &frame(1, 2, number));
        joined.rig.round();
    }
    // The first bridge's decision releases all packets to the second bridge, where all wait again.
    joined.slow_path.round();
    joined.rig.round();
    assert_eq!((counts(&joined.rig, 2).0, counts(&joined.rig, 3).1), (20, 0));
    for number in 21..=30 {
        joined.send_numbered(0, number, &frame(1, 2, number));
        joined.rig.round();
    }
    assert_eq!(own.load(Ordering::Acquire), 0, "all wait behind the patch port");
    joined.settle();
    assert_eq!(own.load(Ordering::Acquire), 30);
    let all: Vec<_> = (1..=30).map(|sequence| (PortId(3), frame(1, 2, sequence))).collect();
    assert_eq!(joined.rig.outputs(), all, "in order");
    assert_eq!(joined.tables[1].upcalls(), 1);
    joined.rig.assert_accounted();
}

#[test]
fn the_story_goes_on_behind_the_patch() {
    let joined = with_rules();
    joined.add(0, 1, vec![out(2)]);
    joined.add(1, 3, vec![out(4)]);
    let told = joined.rig.engine.explain(PortId(0), &frame(1, 2, 0));
    assert_eq!(told.outputs, [(PortId(3), frame(1, 2, 0))]);
    assert_eq!(told.trace_reports.len(), 2, "one for each bridge");
    let arrives = |step: &Step| matches!(step, Step::Received { port: PortId(2), .. });
    assert!(told.steps.iter().any(arrives), "{:?}", told.steps);
    // The packet loops. The explanation ends at the hop limit.
    joined.add(1, 3, vec![Action::Output { port: port::IN_PORT, max_len: 0 }]);
    joined.add(0, 2, vec![Action::Output { port: port::IN_PORT, max_len: 0 }]);
    let told = joined.rig.engine.explain(PortId(0), &frame(1, 2, 0));
    assert_eq!(told.outputs, []);
    assert!(told.steps.contains(&Step::Dropped(DropReason::HopLimit)));
    assert_eq!(counts(&joined.rig, 2), (0, 0), "nothing is counted");
}

/// Creates two separate bridges with one cached megaflow each.
fn apart() -> Joined {
    let mut two = with_rules();
    two.rig.publish(|forwarding| {
        for port in [PortId(1), PortId(2)] {
            let view = forwarding.port(port).unwrap().clone();
            forwarding.set_port(port, Some(PortView { patch: None, ..view }));
        }
    });
    two.add(0, 1, vec![out(2)]);
    two.add(1, 3, vec![out(4)]);
    for port in [0, 2] {
        two.rig.send(port, &frame(1, 2, 0));
    }
    two.settle();
    assert_eq!(two.rig.outputs().len(), 2);
    assert_eq!(two.rig.worker.flows_view().flows, 2);
    two
}

#[test]
fn a_port_that_goes_takes_no_flow_of_another_bridge_along() {
    let mut two = apart();
    two.tables[0].change(|own| own.set_port(1, None));
    two.rig.send(2, &frame(1, 2, 1));
    // A packet that arrives meanwhile is processed without a new megaflow.
    two.rig.send(0, &frame(1, 2, 1));
    two.barrier();
    assert_eq!(two.rig.worker.flows_view().flows, 1, "the other bridge's");
    two.rig.send(0, &frame(1, 2, 2));
    two.settle();
    assert_eq!(two.rig.worker.flows_view().flows, 1);
    two.rig.outputs();
    two.moves(0);
    two.add(1, 9, vec![out(3)]);
    two.barrier();
    two.rig.send(0, &frame(1, 2, 3));
    two.rig.send(2, &frame(1, 2, 3));
    two.settle();
    assert_eq!(two.rig.outputs(), [(PortId(2), frame(1, 2, 3)), (PortId(3), frame(1, 2, 3))]);
    assert_eq!(two.tables[1].upcalls(), 2, "its own first packet, and that of the port that came");
    two.rig.assert_accounted();
}

#[test]
fn a_bridge_that_goes_takes_its_own_flows_alone() {
    let mut two = apart();
    // A packet of the removed bridge is on its way to the slow path, and another one waits in its queue.
    two.add(0, 2, vec![out(1)]);
    two.barrier();
    two.rig.send(1, &frame(2, 1, 0));
    two.rig.round();
    two.served.lock().unwrap().remove(&0);
    two.rig.send(1, &frame(2, 1, 1));
    two.barrier();
    two.settle();
    assert_eq!(two.rig.outputs().len(), 2, "they are decided by the rules of then");
    assert_eq!(two.rig.worker.flows_view().flows, 1, "and leave nothing behind");
    two.moves(1);
    two.add(1, 9, vec![out(4)]);
    two.barrier();
    two.rig.send(1, &frame(2, 1, 2));
    two.rig.send(2, &frame(1, 2, 2));
    two.settle();
    let outputs = two.rig.outputs();
    assert!(outputs.len() == 2 && outputs.iter().all(|(port, _)| *port == PortId(3)), "{outputs:?}");
    assert_eq!(two.tables[1].upcalls(), 2, "no flow of its own was decided again");
    two.rig.assert_accounted();
}
