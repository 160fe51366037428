//! An OpenFlow bridge with one worker and one slow path. Some scenarios run the worker and the slow path on one thread.
//! Other scenarios run each of them on a separate core.

#![allow(clippy::disallowed_types, reason = "the slow path's bridges stand behind a lock of control threads")]

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};

use lookup::FlowLimits;
use packet::{MacAddr, PortId, QueueId, WorkerId};
use port::{FramePool, Queue};
use switch::flow::{
    Action, Field, FlowMod, FlowPort, Instructions, Match, Mod, Pipeline, PortDesc, port as numbers,
};
use switch::{Bridge, BridgeConfig, BridgePortConfig, VlanMode};
use sync::wake::Waker;

use crate::bench::scenario::{depot, publish};
use crate::bench::{BenchError, Options};
use crate::engine::{Engine, EngineConfig, owned};
use crate::flows::{FlowBridge, FlowTables};
use crate::idle::PollMode;
use crate::slow_path::{Bridges, SlowPath};
use crate::state::{Function, PortView};
use crate::worker::{Worker, monotonic};

/// An OpenFlow bridge with a worker and a slow path. See the module documentation. The port with index `n` has the
/// OpenFlow port number `n + 1`.
pub(crate) struct Switch {
    ports: u16,
    pub engine: Engine,
    pub worker: Worker,
    pub slow_path: Option<SlowPath>,
    pub tables: Arc<FlowTables>,
    pub pool: FramePool,
}

impl Switch {
    /// Creates a switch with `ports` ports, without rules and queues. `flows` is the maximum number of megaflows.
    pub fn new(name: &'static str, ports: u16, flows: u32) -> Result<Switch, BenchError> {
        let depot = depot(2)?;
        let config = EngineConfig { cores: vec![None], mode: PollMode::Busy, ..EngineConfig::default() };
        let (engine, mut workers) = Engine::prepare(&config, depot.clone())?;
        let Some(mut worker) = workers.pop() else { return Err(BenchError::Nothing(name)) };
        let waker = Arc::new(Waker::new()?);
        let tables = Arc::new(FlowTables::new(0, pipeline(ports), Arc::clone(&waker)));
        let config = BridgeConfig {
            name: "bench".to_owned(),
            ports: (0..ports)
                .map(|port| BridgePortConfig::new(PortId(port), VlanMode::Transparent))
                .collect(),
            mac_limit: 16_384,
            ..BridgeConfig::default()
        };
        let bridge = Arc::new(Bridge::new(&config, 0x5eed));
        let bridge =
            Arc::new(FlowBridge { tables: Arc::clone(&tables), bridge, connections: Arc::default() });
        let bridges: Bridges = Arc::new(Mutex::new(BTreeMap::from([(0, Arc::clone(&bridge))])));
        // The cache is larger than the flow limit, because ports that have less than their share of megaflows may
        // exceed the limit.
        let limits = FlowLimits { flows: flows + flows / 4, ..FlowLimits::default() };
        let mut slow_path = engine.slow_path(limits, waker, bridges)?;
        slow_path.allow(flows);
        worker.round_with_commands();
        publish(&engine, &mut worker, &move |forwarding: &mut crate::state::Forwarding| {
            for port in (0..ports).map(PortId) {
                let function = Function::OpenFlow(Arc::clone(&bridge));
                forwarding.set_port(port, Some(PortView::new(function, WorkerId(0))));
            }
        });
        let pool = depot.pool();
        Ok(Switch { ports, engine, worker, slow_path: Some(slow_path), tables, pool })
    }

    /// Adds `queue` to the worker as a queue of port `port`.
    pub fn plug(&mut self, port: u16, queue: Box<dyn Queue>) {
        self.worker.add(owned(WorkerId(0), PortId(port), QueueId(0), queue));
    }

    /// Applies changes to the flow tables.
    ///
    /// # Panics
    /// Panics if a change is refused.
    pub fn modify(&self, mods: &[Mod]) {
        let done = self.tables.change(|pipeline| pipeline.modify(mods, monotonic().ns));
        assert!(done.is_ok(), "a rule of the bench is refused: {done:?}");
    }

    /// Runs one round of the worker and one round of the slow path on this thread. Returns the number of packets that
    /// the worker has taken from its queues and rings.
    pub fn turn(&mut self) -> usize {
        let packets = self.worker.round();
        if let Some(slow_path) = &mut self.slow_path {
            slow_path.round();
        }
        packets
    }

    /// Returns the number of packets dropped so far on all ports.
    pub fn lost(&self) -> u64 {
        (0..self.ports).map(|port| self.engine.port_totals(PortId(port)).dropped()).sum()
    }

    /// Runs `work` on this thread while the slow path runs on another thread. If the process may use several cores, the
    /// slow path's thread is pinned to a core that the worker does not use.
    pub fn beside<T>(
        &mut self,
        options: &Options,
        work: impl FnOnce(&mut Switch) -> T,
    ) -> Result<T, BenchError> {
        let Some(slow_path) = self.slow_path.take() else { return Err(BenchError::Nothing("slow path")) };
        let knobs = slow_path.knobs();
        // The allowed cores are read before the first scenario pins its thread.
        static CORES: OnceLock<Vec<usize>> = OnceLock::new();
        let cores = CORES.get_or_init(|| sync::cpu::allowed_cores().unwrap_or_default());
        let core = cores.iter().copied().find(|core| *core != options.first_core);
        let thread = std::thread::Builder::new().name("slow-path".to_owned()).spawn(move || {
            if let Some(core) = core {
                let _ = sync::cpu::pin_current_thread(core);
            }
            slow_path.run();
        })?;
        // This thread is pinned after the slow path's thread was created, because a new thread inherits the
        // allowed cores of its creator.
        let _ = sync::cpu::pin_current_thread(options.first_core);
        let done = work(self);
        knobs.stop.store(true, Ordering::Release);
        let _ = thread.join();
        Ok(done)
    }
}

fn pipeline(ports: u16) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for id in 0..ports {
        let number = u32::from(id) + 1;
        let mac = MacAddr([2, 0, 0, 0, 0xfe, id.to_le_bytes()[0]]);
        let desc = PortDesc { number, name: format!("p{number}"), mac, config: 0, state: 4, speed: 0 };
        let port =
            FlowPort { id: PortId(id), desc, floods: true, forwards: true, receives: true, live: true };
        pipeline.set_port(number, Some(port));
    }
    pipeline.take_events();
    pipeline
}

/// Returns a rule in table `table` that outputs matching packets to OpenFlow port `port`.
pub(crate) fn sends(table: u8, priority: u16, matching: Match, port: u32) -> Mod {
    let actions = vec![Action::Output { port, max_len: 0xffff }];
    Mod::Flow(Box::new(FlowMod::add(table, priority, matching, Instructions::apply(actions))))
}

/// Returns a rule in table `table` that drops matching packets.
pub(super) fn drops(table: u8, priority: u16, matching: Match) -> Mod {
    Mod::Flow(Box::new(FlowMod::add(table, priority, matching, Instructions::default())))
}

/// Returns a rule in table `table` that continues the processing of matching packets in table `to`
/// (`goto_table`).
pub(super) fn leads(table: u8, priority: u16, matching: Match, to: u8) -> Mod {
    let instructions = Instructions { goto: Some(to), ..Instructions::default() };
    Mod::Flow(Box::new(FlowMod::add(table, priority, matching, instructions)))
}

/// Returns a match for all IPv4 packets.
pub(super) fn ip() -> Match {
    Match::ANY.with(Field::EthType, 0x0800)
}

/// Returns a match for IPv4 packets whose destination lies in the prefix `address`/`length`.
pub(super) fn to_prefix(address: [u8; 4], length: u32) -> Match {
    let mut matching = ip();
    let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
    let address = u32::from_be_bytes(address) & mask;
    matching.put(Field::Ipv4Dst, u128::from(address), u128::from(mask));
    matching
}

/// Returns rules that lead every packet through `tables` tables. The last table outputs packets from the first port to
/// the second, from the second port to the first, and from the third port back to the third. Packets with different
/// destination addresses need different megaflows.
pub(super) fn chain(tables: u8) -> Vec<Mod> {
    let mut rules = Vec::new();
    let last = tables - 1;
    for table in 0..last {
        // These rules match no packet, but lookups must consider them.
        for host in 0..50_u32 {
            let address = mac_number(1_000_000 + u32::from(table) * 100 + host);
            rules.push(drops(table, 20, Match::ANY.with(Field::EthDst, address)));
            let own = [172, 16, table, host.to_le_bytes()[0]];
            rules.push(drops(table, 10, to_prefix(own, 24 + host % 2 * 8)));
        }
        rules.push(leads(table, 1, Match::ANY, table + 1));
    }
    // The mask is not a prefix, so no shorter mask distinguishes other addresses from this one.
    let mut nobody = ip();
    nobody.put(Field::Ipv4Dst, 0, 0x00ff_ffff);
    rules.push(drops(last, 10, nobody));
    for (from, to) in [(1, 2), (2, 1), (3, numbers::IN_PORT)] {
        rules.push(sends(last, 1, Match::ANY.with(Field::InPort, from), to));
    }
    rules
}

/// Returns the MAC address of a simulated host as the value of an OpenFlow match field.
pub(super) fn mac_number(host: u32) -> u128 {
    super::circuit::mac_of(host).iter().fold(0, |number, octet| number << 8 | u128::from(*octet))
}
