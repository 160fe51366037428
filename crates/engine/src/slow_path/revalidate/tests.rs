#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::slow_path::upcall::Place;
use packet::spec;
use port::ring::{self, RingQueue};
use port::{Batch, Queue};
use switch::flow::{Match, MeterMod, Mod};

use super::*;
use crate::bench::rules::{Switch, sends};

/// A switch with two in-memory ports that forward to each other, and the test's ends of the ports' links.
struct Rig {
    switch: Switch,
    far: [RingQueue; 2],
}

impl Rig {
    fn new(flows: u32) -> Rig {
        let mut switch = Switch::new("look", 2, flows).unwrap();
        let across = |from: u32, to| sends(0, 1, Match::ANY.with(Field::InPort, u128::from(from)), to);
        switch.modify(&[across(1, 2), across(2, 1)]);
        let far = [0, 1].map(|port| {
            let (near, far) = ring::pair(64);
            switch.plug(port, Box::new(near));
            far
        });
        Rig { switch, far }
    }

    /// Sends a packet to the first port. The last three octets of the packet's destination IP address are those of
    /// `to`.
    fn arrives(&mut self, to: u32) {
        let last = to.to_be_bytes();
        let text = format!(
            "eth_dst=02:00:00:00:00:02,ip_src=10.0.0.1,ip_dst=10.{}.{}.{},udp",
            last[1], last[2], last[3]
        );
        let mut batch = Batch::new();
        batch.push(self.switch.pool.alloc_copy(&spec::parse(&text).unwrap()).unwrap());
        assert_eq!(self.far[0].transmit(&mut self.switch.pool, &mut batch), 1);
    }

    /// Sends a packet to the first port. Returns the indices of the ports that transmit the packet.
    fn leaves_by(&mut self) -> Vec<usize> {
        self.arrives(2);
        for _ in 0..8 {
            self.switch.turn();
        }
        let mut ports = Vec::new();
        for (port, far) in self.far.iter_mut().enumerate() {
            let mut batch = Batch::new();
            far.receive(&mut self.switch.pool, &mut batch);
            ports.extend(batch.iter().map(|_| port));
            batch.drain(..).for_each(|packet| self.switch.pool.free(packet));
        }
        ports
    }

    fn slow_path(&mut self) -> &mut SlowPath {
        self.switch.slow_path.as_mut().unwrap()
    }
}

/// Checks that revalidation finds and repairs a megaflow with wrong actions. The test changes the actions in
/// the slow path's record and in the worker's cache, as a defect would. The tables are not changed, so no
/// change triggers a translation.
#[test]
fn a_flow_that_is_wrong_is_found_and_mended() {
    let mut rig = Rig::new(1000);
    assert_eq!(rig.leaves_by(), [1]);
    let slow_path = rig.slow_path();
    let id = slow_path.records.iter().position(Option::is_some).unwrap();
    let record = slow_path.records[id].as_ref().unwrap();
    let (at, port, bridge) = (record.at.unwrap(), record.ports.port, Arc::clone(&record.bridge));
    let elsewhere = with_port(&record.bits.both().0, 2);
    let other =
        bridge.tables.lock().translate(TranslationInput { flow: &elsewhere, frame: None, trace: false });
    let other = slow_path.cached_actions.shared(port, other, Vec::new(), true);
    slow_path.records[id].as_mut().unwrap().actions = Arc::clone(&other);
    slow_path.answer(0, CacheCommand::Replace(at, Arc::clone(&other.compiled)));
    rig.switch.turn();
    assert_eq!(rig.leaves_by(), [0]);
    let slow_path = rig.slow_path();
    let view = slow_path.view();
    for second in 0..SAMPLE {
        assert!(view.wrong.load(Ordering::Relaxed) <= 1, "found once: it was mended then");
        slow_path.second = second;
        slow_path.look_at(u32::try_from(id).unwrap(), monotonic().ns);
    }
    assert_eq!(view.wrong.load(Ordering::Relaxed), 1);
    rig.switch.turn();
    assert_eq!(rig.leaves_by(), [1]);
}

/// Checks that a bridge whose tables stay locked does not slow down the revalidation of another bridge: an attempt
/// to lock the tables counts as a whole slice.
#[test]
fn a_locked_bridge_leaves_the_turns_to_another_bridge() {
    const OTHER: u16 = 1;
    let mut rig = Rig::new(10_000);
    assert_eq!(rig.leaves_by(), [1]);
    let slow_path = rig.slow_path();
    let record = slow_path.records.iter().flatten().next().unwrap();
    let (locked, actions, ports) = (Arc::clone(&record.bridge), Arc::clone(&record.actions), record.ports);
    let (flow, mut mask) = record.bits.both();
    mask.want(Field::Ipv4Dst);
    let tables =
        Arc::new(FlowTables::new(OTHER, switch::flow::Pipeline::new(), Arc::clone(&slow_path.waker)));
    let version = tables.lock().version();
    let other = Arc::new(crate::flows::FlowBridge {
        tables,
        bridge: Arc::clone(&locked.bridge),
        connections: Arc::default(),
    });
    slow_path.bridges.lock().unwrap().insert(OTHER, Arc::clone(&other));
    for last in 0..1000 {
        let mut own = flow;
        own.set(Field::Ipv4Dst, last);
        let created = monotonic().ns;
        let place = Place { ports, arrival: ports.port, recirculation: None, in_port: 1 };
        slow_path.keep(0, &other, place, (&own, mask), Arc::clone(&actions), version, created);
    }
    // A new round of the other bridge begins, whose records are all due. The barrier of the locked bridge is
    // always in progress.
    slow_path.asking.push(Asking { tables: Arc::clone(&locked.tables), done: Box::new(|| ()) });
    slow_path.begin_barriers();
    let now = monotonic().ns + 2 * ROUND_NS;
    slow_path.sweeps.next(now, |_| false);
    let now = now + ROUND_NS;
    let held = locked.tables.lock();
    assert!(locked.tables.lock_for_packets().is_none(), "only the first attempt waits for the lock");
    let (begin, mut attempts) = (monotonic().ns, 0);
    loop {
        let (left, _) = slow_path.sweeps.round(OTHER, now);
        if left == 0 {
            break;
        }
        slow_path.look(now);
        attempts += u64::from(slow_path.sweeps.round(OTHER, now).0 == left);
    }
    let took = monotonic().ns - begin;
    assert!(attempts > 0 && attempts * SLICE_NS <= took + SLICE_NS, "{attempts} attempts in {took} ns");
    drop(held);
}

#[test]
fn fewer_flows_are_kept_when_a_look_at_all_takes_too_long() {
    let mut rig = Rig::new(10_000);
    let slow_path = rig.slow_path();
    let mut round = |ms: u64| {
        slow_path.evaluate(0, ms * 1_000_000);
        assert_eq!(slow_path.view.limit.load(Ordering::Relaxed), slow_path.limit as u64);
        slow_path.limit
    };
    assert_eq!((round(1001), round(5000), round(700)), (7500, 5625, 5625));
    assert_eq!((round(499), round(1)), (6625, 7625));
    assert_eq!((0..10).map(|_| round(1)).last(), Some(10_000), "as many as it may, and no more");
    assert_eq!((0..30).map(|_| round(2000)).last(), Some(1000), "some it keeps in any case");
}

/// Checks that the revalidation of a megaflow with learn actions counts as a translation, because the execution
/// of learn actions may take as long.
#[test]
fn a_look_that_has_taught_counts_as_followed() {
    use switch::flow::{Action, FlowMod, Instructions, Learn, LearnPart, LearnSource, Mod, SubField};
    let mut rig = Rig::new(1000);
    let source = SubField::whole(Field::EthSrc);
    let learn = Learn {
        idle_timeout: 0,
        hard_timeout: 0,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        priority: 5,
        cookie: 0,
        flags: 0,
        table: 1,
        limit: 0,
        result: None,
        parts: vec![LearnPart::Match(LearnSource::Field(source), source)],
    };
    let actions = vec![Action::Learn(Box::new(learn)), Action::Output { port: 2, max_len: 0 }];
    let teacher = FlowMod::add(0, 9, Match::ANY.with(Field::InPort, 1), Instructions::apply(actions));
    rig.switch.modify(&[Mod::Flow(Box::new(teacher))]);
    assert_eq!((rig.leaves_by(), rig.leaves_by()), (vec![1], vec![1]));
    let slow_path = rig.slow_path();
    let id = u32::try_from(slow_path.records.iter().position(Option::is_some).unwrap()).unwrap();
    // Neither revalidation translates the megaflow as a sample.
    slow_path.second = (1..).find(|second| !(u64::from(id) + second).is_multiple_of(SAMPLE)).unwrap();
    let now = monotonic().ns;
    slow_path.look_at(id, now);
    assert!(slow_path.look_at(id, now) == Some(false), "no packet has come since");
    slow_path.records[id as usize].as_mut().unwrap().seen.0 -= 1;
    assert!(slow_path.look_at(id, now) == Some(true));
}

#[test]
fn packets_of_a_turn_are_looked_up_ahead_where_there_are_many_rules() {
    for (rules, wanted) in [(0, 0), (5000, 8)] {
        let mut rig = Rig::new(10_000);
        let matching = Match::ANY.with(Field::EthType, 0x800);
        let to = |last: u32| matching.with(Field::Ipv4Dst, u128::from(0x0a00_0000 + last));
        rig.switch.modify(&(0..rules).map(|last| sends(0, 2, to(last), 2)).collect::<Vec<_>>());
        (0..8).for_each(|last| rig.arrives(last));
        rig.switch.worker.round();
        let slow_path = rig.slow_path();
        slow_path.collect();
        assert_eq!(slow_path.look_ahead(crate::flows::UpcallPorts::default()).len(), wanted, "{rules} rules");
    }
}

/// The statistics of very many meters are added to the tables in parts, between which other threads can lock the
/// tables. Each packet is counted once, and the state of a removed meter is removed.
#[test]
fn statistics_of_many_meters_are_added_in_parts() {
    let count = u32::try_from(METERS).unwrap() * 2 + 100;
    let mut rig = Rig::new(10);
    let tables = Arc::clone(&rig.switch.tables);
    let meter = |id| switch::flow::Meter { id, packets: true, bursts: false, stats: true, bands: Vec::new() };
    let adds: Vec<Mod> = (1..=count).map(|id| Mod::Meter(MeterMod::Add(meter(id)))).collect();
    tables.change(|pipeline| pipeline.modify(&adds, 0)).unwrap();
    let slow_path = rig.slow_path();
    for id in 1..=count {
        let live = Arc::new(MeterLive::new(&meter(id), 0));
        (0..id % 3).for_each(|_| _ = live.pass(100, 0));
        slow_path.meters.insert((tables.number(), id), (Arc::clone(&tables), live));
    }
    tables.change(|pipeline| pipeline.modify(&[Mod::Meter(MeterMod::Delete(Some(7)))], 0)).unwrap();
    (0..2).for_each(|now| slow_path.tick(now));
    assert!(!slow_path.meters.contains_key(&(tables.number(), 7)));
    assert_eq!(slow_path.meters.len(), METERS * 2 + 99);
    let stats = tables.lock().meter_stats(0);
    assert_eq!(stats.len(), METERS * 2 + 99);
    for own in stats {
        assert_eq!((own.packets, own.bytes), (u64::from(own.id % 3), u64::from(own.id % 3) * 100));
    }
}
