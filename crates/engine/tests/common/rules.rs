//! An OpenFlow bridge with a worker and a slow path that the test runs without threads.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::panic,
    reason = "test code; each test file uses its part"
)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use engine::idle::Waker;
use engine::slow_path::{Bridges, KnownFlow};
use engine::{EngineConfig, FlowBridge, FlowTables, Function, SlowPath};
use packet::{MacAddr, PortId};
use switch::Bridge;
use switch::flow::{Action, Event, Field, FlowMod, FlowPort, Instructions, Match, Mod, Pipeline, PortDesc};

use super::{Rig, transparent};

pub struct Switch {
    pub rig: Rig,
    pub slow_path: SlowPath,
    pub tables: Arc<FlowTables>,
    pub events: Arc<Mutex<Vec<Event>>>,
    waker: Arc<Waker>,
    bridges: Bridges,
}

/// Creates a pipeline. Port `n` of the engine has the OpenFlow port number `n + 1`.
fn pipeline(ports: u16) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for id in 0..ports {
        let number = u32::from(id) + 1;
        let desc = PortDesc {
            number,
            name: format!("p{number}"),
            mac: MacAddr([2; 6]),
            config: 0,
            state: 4,
            speed: 0,
        };
        let port =
            FlowPort { id: PortId(id), desc, floods: true, forwards: true, receives: true, live: true };
        pipeline.set_port(number, Some(port));
    }
    pipeline.take_events();
    pipeline
}

impl Switch {
    pub fn new(ports: u16) -> Switch {
        let waker = Arc::new(Waker::new().unwrap());
        let tables = Arc::new(FlowTables::new(0, pipeline(ports), Arc::clone(&waker)));
        let bridge = Arc::new(Bridge::new(&transparent(ports), 7));
        let bridge =
            Arc::new(FlowBridge { tables: Arc::clone(&tables), bridge, connections: Arc::default() });
        let ids: Vec<PortId> = (0..ports).map(PortId).collect();
        let mut rig = Rig::with(&EngineConfig::default(), &ids, |_| Function::OpenFlow(Arc::clone(&bridge)));
        let bridges: Bridges = Arc::new(Mutex::new(BTreeMap::from([(0, bridge)])));
        let (known, served) = (Arc::clone(&waker), Arc::clone(&bridges));
        let slow_path = rig.engine.slow_path(lookup::FlowLimits::default(), known, served).unwrap();
        rig.worker.round_with_commands();
        let events = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&events);
        tables.listen(Some(Arc::new(move |events: Vec<Event>| told.lock().unwrap().extend(events))));
        Switch { rig, slow_path, tables, events, waker, bridges }
    }

    pub fn add(&self, table: u8, priority: u16, matching: Match, actions: Vec<Action>) {
        let change = FlowMod::add(table, priority, matching, Instructions::apply(actions));
        self.modify(&[Mod::Flow(Box::new(change))]);
    }

    pub fn modify(&self, mods: &[Mod]) {
        self.tables.change(|pipeline| pipeline.modify(mods, engine::worker::monotonic().ns)).unwrap();
    }

    /// Creates another bridge with the number `number`. The bridge has no ports, and uses the slow path of this switch.
    pub fn another_bridge(&self, number: u16) -> Arc<FlowTables> {
        let tables = Arc::new(FlowTables::new(number, pipeline(0), Arc::clone(&self.waker)));
        let bridge = Arc::new(Bridge::new(&transparent(1), 7));
        let bridge = FlowBridge { tables: Arc::clone(&tables), bridge, connections: Arc::default() };
        self.bridges.lock().unwrap().insert(number, Arc::new(bridge));
        tables
    }

    /// Stops the slow path, and starts a new slow path with the megaflows that the stopped one knew.
    pub fn succeed(&mut self) {
        let begin = |known: &[KnownFlow]| {
            let (waker, bridges) = (Arc::clone(&self.waker), Arc::clone(&self.bridges));
            let next = self.rig.engine.slow_path_with(lookup::FlowLimits::default(), waker, bridges, known);
            next.unwrap()
        };
        let old = std::mem::replace(&mut self.slow_path, begin(&[]));
        old.knobs().stop.store(true, Ordering::Release);
        let known = old.run();
        self.slow_path = begin(&known);
        self.rig.worker.round_with_commands();
    }

    /// Runs the worker and the slow path until neither of them has work.
    pub fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < 3 {
            let busy = self.rig.round() > 0 || self.slow_path.round();
            quiet = if busy { 0 } else { quiet + 1 };
        }
    }

    pub fn outputs(&mut self) -> Vec<(PortId, Vec<u8>)> {
        self.settle();
        self.rig.outputs()
    }

    pub fn barrier(&mut self) {
        let done = barrier(&self.tables);
        for _ in 0..10_000 {
            if done.load(Ordering::Acquire) {
                return;
            }
            self.slow_path.round();
            self.rig.round();
        }
        panic!("the barrier is not answered");
    }

    pub fn view(&mut self) -> engine::stage::FlowsView {
        self.rig.worker.flows_view()
    }
}

/// Requests a barrier for the bridge with these flow tables. Returns a flag that becomes true when the barrier is
/// complete.
pub fn barrier(tables: &FlowTables) -> Arc<AtomicBool> {
    let done = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&done);
    tables.barrier(move || tells.store(true, Ordering::Release));
    done
}

pub fn out(port: u32) -> Action {
    Action::Output { port, max_len: 0xffff }
}

pub fn from(port: u32) -> Match {
    Match::ANY.with(Field::InPort, u128::from(port))
}
