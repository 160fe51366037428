//! Tests how the slow path installs, counts and removes hot megaflows in the XDP hook. The hook is simulated, and the
//! test sets its counters.

#![allow(clippy::unwrap_used, clippy::disallowed_types, clippy::panic, reason = "helpers of tests")]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Rig, frame, transparent};
use engine::idle::Waker;
use engine::slow_path::Bridges;
use engine::worker::monotonic;
use engine::{EngineConfig, FlowBridge, FlowTables, Function, HookCounts, HookFlows, SlowPath};
use packet::{DropReason, FlowKey, MacAddr, PortId};
use switch::Bridge;
use switch::flow::{
    Action, Field, FlowCommand, FlowFilter, FlowMod, FlowPort, Instructions, Match, Mod, Op, Pipeline,
    PortDesc, Program,
};

/// Contents and state of the simulated hook.
#[derive(Default)]
struct State {
    slots: BTreeMap<u32, (FlowKey, FlowKey, Program, HookCounts)>,
    /// Megaflows that were removed from the hook, and whose slots are not released yet.
    leaving: BTreeMap<u32, HookCounts>,
    /// Whether the hook reports each megaflow as displaced (to be removed in favour of other megaflows) and refuses new
    /// megaflows.
    is_displacing: bool,
    next: u32,
    asked: u64,
    passed: u64,
}

impl State {
    /// Adds packets to the counters of the only megaflow in the simulated hook. Returns the megaflow's slot.
    fn count(&mut self, packets: u64) -> u32 {
        let (slot, (.., counts)) = self.slots.iter_mut().next().unwrap();
        *counts = more(*counts, packets);
        *slot
    }
}

fn more(counts: HookCounts, packets: u64) -> HookCounts {
    let HookCounts { packets: before, bytes, .. } = counts;
    HookCounts { packets: before + packets, bytes: bytes + 64 * packets, used_ns: monotonic().ns }
}

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<State>>);

impl Memory {
    fn with<T>(&self, does: impl FnOnce(&mut State) -> T) -> T {
        does(&mut self.0.lock().unwrap())
    }
}

impl HookFlows for Memory {
    fn install(&mut self, key: &FlowKey, mask: &FlowKey, program: &Program) -> Option<u32> {
        self.with(|state| {
            let is_known = state.slots.values().any(|(own, own_mask, ..)| (own, own_mask) == (key, mask));
            assert!(!is_known, "twice");
            if state.is_displacing {
                return None;
            }
            state.next += 1;
            state.slots.insert(state.next, (*key, *mask, program.clone(), HookCounts::default()));
            Some(state.next)
        })
    }

    fn is_displaced(&self, _: u32) -> bool {
        self.with(|state| state.is_displacing)
    }

    fn remove(&mut self, slot: u32) {
        self.with(|state| {
            let (.., counts) = state.slots.remove(&slot).unwrap();
            assert!(state.leaving.insert(slot, counts).is_none());
        });
    }

    fn counts(&self, slot: u32) -> HookCounts {
        self.with(|state| {
            state.slots.get(&slot).map(|own| own.3).or(state.leaving.get(&slot).copied()).unwrap()
        })
    }

    fn release(&mut self, slot: u32) {
        self.with(|state| assert!(state.leaving.remove(&slot).is_some()));
    }

    fn begin_grace(&mut self) -> u64 {
        self.with(|state| {
            state.asked += 1;
            state.asked
        })
    }

    fn has_passed(&self, number: u64) -> bool {
        self.with(|state| state.passed >= number)
    }
}

struct Switch {
    rig: Rig,
    slow_path: SlowPath,
    tables: Arc<FlowTables>,
    hook: Memory,
}

impl Switch {
    /// Creates a switch. Port `n` of the engine has the OpenFlow port number `n + 1`.
    fn new(ports: u16) -> Switch {
        let mut pipeline = Pipeline::new();
        for id in 0..ports {
            let number = u32::from(id) + 1;
            let name = format!("p{number}");
            let desc = PortDesc { number, name, mac: MacAddr([2; 6]), config: 0, state: 4, speed: 0 };
            let port =
                FlowPort { id: PortId(id), desc, floods: true, forwards: true, receives: true, live: true };
            pipeline.set_port(number, Some(port));
        }
        pipeline.take_events();
        let waker = Arc::new(Waker::new().unwrap());
        let tables = Arc::new(FlowTables::new(0, pipeline, Arc::clone(&waker)));
        let bridge = Arc::new(Bridge::new(&transparent(ports), 7));
        let bridge =
            Arc::new(FlowBridge { tables: Arc::clone(&tables), bridge, connections: Arc::default() });
        let ids: Vec<PortId> = (0..ports).map(PortId).collect();
        let mut rig = Rig::with(&EngineConfig::default(), &ids, |_| Function::OpenFlow(Arc::clone(&bridge)));
        let bridges: Bridges = Arc::new(Mutex::new(BTreeMap::from([(0, bridge)])));
        let mut slow_path = rig.engine.slow_path(lookup::FlowLimits::default(), waker, bridges).unwrap();
        let hook = Memory::default();
        slow_path.set_hook(Box::new(hook.clone()));
        rig.worker.round_with_commands();
        Switch { rig, slow_path, tables, hook }
    }

    fn add(&self, priority: u16, matching: Match, actions: Vec<Action>) {
        let change = FlowMod::add(0, priority, matching, Instructions::apply(actions));
        let change = [Mod::Flow(Box::new(change))];
        self.tables.change(|pipeline| pipeline.modify(&change, monotonic().ns)).unwrap();
    }

    fn turn(&mut self) {
        self.rig.round();
        self.slow_path.round();
    }

    /// Runs the worker and the slow path until the condition `holds` returns true. `what` names the condition in error
    /// messages.
    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Switch) -> bool) {
        for _ in 0..4_000 {
            if holds(self) {
                return;
            }
            self.turn();
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("never: {what}");
    }

    /// Sends packets until the slow path has installed a megaflow for these packets in the hook.
    fn heat(&mut self, from: u8) {
        let before = self.hook.with(|state| state.slots.len());
        self.until("the flow is hot", |switch| {
            for sequence in 0..4 {
                switch.rig.send(0, &frame(from, 200, sequence));
            }
            switch.turn();
            switch.rig.outputs();
            switch.hook.with(|state| state.slots.len() > before)
        });
    }

    fn packets(&self) -> u64 {
        let stats = self.tables.lock().flows(&FlowFilter::default(), 0);
        stats.iter().map(|rule| rule.packets).sum()
    }

    fn barrier(&self) -> Arc<AtomicBool> {
        let done = Arc::new(AtomicBool::new(false));
        let tells = Arc::clone(&done);
        self.tables.barrier(move || tells.store(true, Ordering::Release));
        done
    }
}

fn out(port: u32) -> Action {
    Action::Output { port, max_len: 0xffff }
}

fn from(host: u128) -> Match {
    Match::ANY.with(Field::EthSrc, 0x0200_0000_0000 + host)
}

#[test]
fn a_hot_flow_is_told_with_its_mask_and_a_cold_one_leaves() {
    let mut switch = Switch::new(2);
    switch.add(5, from(1), vec![out(2)]);
    switch.heat(1);
    switch.hook.with(|state| {
        let (key, mask, program, _) = state.slots.values().next().unwrap();
        assert_eq!((key.in_port(), mask.in_port()), (PortId(0), PortId(u16::MAX)));
        assert_eq!(program.ops, [Op::Output(PortId(1))]);
        let mut own = FlowKey::ZERO;
        FlowKey::extract(&frame(1, 9, 9), 64, PortId(0), &mut own).unwrap();
        assert!(own.matches(key, mask), "another destination is the same flow");
    });
    assert_eq!(switch.tables.hooked(), 1);
    // Packets that only the hook counts keep the megaflow in the hook.
    let begin = monotonic().ns;
    switch.until("two seconds", |switch| {
        switch.hook.with(|state| state.count(4));
        monotonic().ns - begin > 2_000_000_000
    });
    let counted = switch.hook.with(|state| state.slots.values().next().unwrap().3.packets);
    switch.until("it is cold", |switch| switch.hook.with(|state| state.slots.is_empty()));
    assert_eq!(switch.tables.hooked(), 0);
    // Packets counted after the removal are included. The slot is free afterwards.
    switch.hook.with(|state| state.leaving.values_mut().for_each(|counts| *counts = more(*counts, 3)));
    for _ in 0..50 {
        switch.turn();
    }
    assert_eq!(switch.hook.with(|state| state.leaving.len()), 1, "programs may still meet it");
    switch.hook.with(|state| state.passed = state.asked);
    switch.until("it is gone", |switch| switch.hook.with(|state| state.leaving.is_empty()));
    let sent = switch.rig.engine.port_totals(PortId(1)).tx_packets;
    assert_eq!(switch.packets(), sent + counted + 3, "each packet is counted once");
}

/// Checks that a megaflow that the hook reports as displaced is removed from the hook although it is hot. Each of its
/// packets is counted once, and the megaflow is installed again when the hook has space.
#[test]
fn a_displaced_flow_leaves_while_hot_and_returns() {
    let mut switch = Switch::new(2);
    switch.add(5, from(1), vec![out(2)]);
    switch.heat(1);
    let slot = switch.hook.with(|state| {
        state.is_displacing = true;
        state.count(10_000)
    });
    switch.until("it is taken out", |switch| switch.hook.with(|state| state.leaving.contains_key(&slot)));
    assert_eq!(switch.tables.hooked(), 0);
    // The megaflow is hot, and stays with the workers.
    let begin = monotonic().ns;
    switch.until("a second", |switch| {
        for sequence in 0..8 {
            switch.rig.send(0, &frame(1, 200, sequence));
        }
        switch.turn();
        switch.rig.outputs();
        monotonic().ns - begin > 1_000_000_000
    });
    switch.hook.with(|state| {
        assert!(state.slots.is_empty() && state.leaving.len() == 1, "programs may still meet it");
        state.leaving.values_mut().for_each(|counts| *counts = more(*counts, 7));
        state.passed = state.asked;
    });
    switch.until("it is gone", |switch| switch.hook.with(|state| state.leaving.is_empty()));
    switch.until("all are counted", |switch| {
        switch.packets() == switch.rig.engine.port_totals(PortId(1)).tx_packets + 10_007
    });
    switch.hook.with(|state| state.is_displacing = false);
    switch.heat(1);
    assert_eq!(switch.tables.hooked(), 1);
}

#[test]
fn a_barrier_waits_for_programs_that_may_meet_the_old_fate() {
    let mut switch = Switch::new(3);
    switch.add(5, Match::ANY, vec![out(2)]);
    switch.heat(1);
    // The megaflow does not match the new rule, so the barrier removes nothing from the hook and waits for no
    // grace period.
    switch.add(9, from(77).with(Field::InPort, 3), vec![]);
    let done = switch.barrier();
    switch.until("the barrier is answered", |_| done.load(Ordering::Acquire));
    assert_eq!(switch.hook.with(|state| (state.slots.len(), state.asked)), (1, 0));
    // The actions change. The megaflow is removed at once, and the barrier is answered when no program can
    // match it any more.
    let slot = switch.hook.with(|state| state.count(10));
    switch.add(5, Match::ANY, vec![out(3)]);
    let done = switch.barrier();
    switch.until("it is taken out", |switch| switch.hook.with(|state| state.leaving.contains_key(&slot)));
    for _ in 0..100 {
        switch.turn();
    }
    assert!(!done.load(Ordering::Acquire), "programs may still meet it");
    switch.hook.with(|state| state.passed = state.asked);
    switch.until("the barrier is answered", |_| done.load(Ordering::Acquire));
    let programs = |state: &mut State| state.slots.values().map(|own| own.2.ops.clone()).collect::<Vec<_>>();
    assert!(switch.hook.with(programs).iter().all(|ops| *ops == [Op::Output(PortId(2))]));
    switch.heat(2);
    assert_eq!(switch.hook.with(programs), [[Op::Output(PortId(2))]]);
}

#[test]
fn drops_in_the_hook_are_the_ports() {
    let mut switch = Switch::new(2);
    switch.add(5, from(1), vec![]);
    switch.heat(1);
    let before = switch.rig.dropped()[DropReason::RuleDrop.index()];
    let slot = switch.hook.with(|state| state.count(50));
    switch.until("they are counted", |switch| {
        switch.rig.dropped()[DropReason::RuleDrop.index()] == before + 50
    });
    // The rule is removed, and packets that match meanwhile still count as drops.
    switch.tables.change(|pipeline| {
        let all = FlowMod {
            command: FlowCommand::Delete { strict: false },
            ..FlowMod::add(0, 0, Match::ANY, Instructions::default())
        };
        pipeline.modify(&[Mod::Flow(Box::new(all))], monotonic().ns).unwrap();
    });
    switch.until("it is taken out", |switch| switch.hook.with(|state| state.leaving.contains_key(&slot)));
    switch.hook.with(|state| {
        state.leaving.values_mut().for_each(|counts| *counts = more(*counts, 7));
        state.passed = state.asked + 1;
    });
    switch
        .until("all are counted", |switch| switch.rig.dropped()[DropReason::RuleDrop.index()] == before + 57);
}

#[test]
fn what_only_workers_can_do_stays_theirs() {
    let mut switch = Switch::new(3);
    // The actions depend on fields that the hook does not parse.
    switch.add(5, Match::ANY.with(Field::EthType, 0x0806).with(Field::ArpSha, 7), vec![out(2)]);
    switch.add(1, Match::ANY, vec![out(3)]);
    let mut arp = frame(1, 200, 0);
    arp[12..14].copy_from_slice(&[8, 6]);
    arp[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
    let begin = monotonic().ns;
    switch.until("two seconds", |switch| {
        for _ in 0..8 {
            switch.rig.send(0, &arp);
        }
        switch.turn();
        switch.rig.outputs();
        monotonic().ns - begin > 2_000_000_000
    });
    assert!(switch.hook.with(|state| state.slots.is_empty() && state.next == 0));
}
