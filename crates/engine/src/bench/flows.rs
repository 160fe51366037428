//! Scenarios of OpenFlow bridges that measure one tier of the flow cache. Each scenario installs megaflows in the
//! worker's cache directly, without the slow path, so that all packets hit the tier to measure.

use std::num::NonZeroU32;
use std::sync::Arc;

use packet::{DropReason, FlowKey, PortId};
use switch::Bridge;
use switch::flow::{Op, Pipeline, Program};
use sync::wake::Waker;

use crate::bench::generator::Destinations;
use crate::flows::{CachedFlow, Compiled, FlowBridge, FlowTables, Live, rings};
use crate::stage::flow_cache::Flows;
use crate::state::Function;
use crate::worker::Worker;

pub(super) const A: PortId = PortId(0);
pub(super) const B: PortId = PortId(1);

/// Number and kind of the megaflows that a scenario installs in the flow cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowLoad {
    /// Number of megaflows for each of the two ports.
    pub each: u32,
    /// Number of distinct megaflow masks, from 1 to 31.
    pub masks: u32,
    /// Whether the exact-match cache is enabled. If so, every packet that misses the exact-match
    /// cache adds an entry.
    pub exact: bool,
}

impl FlowLoad {
    /// Returns the number of megaflows for one port.
    pub fn flows(self) -> usize {
        self.each as usize
    }

    /// Returns the destination addresses of the generated packets. Each megaflow has one address. The order of the
    /// addresses is random, so that hardware prefetchers cannot predict the accesses.
    pub fn destinations(self) -> Destinations {
        let mut all: Vec<u32> = (0..self.each).map(|flow| 0x0a00_0000 + flow).collect();
        let mut state = 0x9e37_79b9_u64;
        for at in (1..all.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let with = usize::try_from((state >> 33) % (at as u64 + 1)).unwrap_or(0);
            all.swap(at, with);
        }
        Destinations::Four(all.into())
    }

    /// Installs the megaflows in a worker's flow cache. The masks differ in the lowest bits of the source
    /// address. These bits have the same value in all packets.
    pub fn put(self, worker: &mut Worker) {
        let Ok(waker) = Waker::new() else { return };
        let waker = Arc::new(waker);
        let (mine, _) = rings(&waker, &waker);
        let mut flows = Flows::new(mine, lookup::FlowLimits::default());
        flows.set_exact(if self.exact { NonZeroU32::new(1) } else { None });
        for (port, out) in [(A, B), (B, A)] {
            let program = Program { ops: vec![Op::Output(out)] };
            let compiled = Arc::new(Compiled::new(program, DropReason::RuleDrop, Vec::new()));
            for flow in 0..self.each {
                let (key, mask) = self.flow(port, flow);
                let cached =
                    CachedFlow { id: flow, compiled: Arc::clone(&compiled), live: Arc::<Live>::default() };
                flows.put(&key, &mask, cached);
            }
        }
        worker.context.flows = Some(Box::new(flows));
    }

    fn flow(self, port: PortId, flow: u32) -> (FlowKey, FlowKey) {
        let (mut key, mut mask) = (FlowKey::ZERO, FlowKey::ZERO);
        key.set_in_port(port);
        mask.set_in_port(PortId(u16::MAX));
        key.set_eth_type(0x0800);
        mask.set_eth_type(0xffff);
        key.set_ipv4_dst((0x0a00_0000 + flow).into());
        mask.set_ipv4_dst(u32::MAX.into());
        key.set_ipv4_src(0x0a00_0001.into());
        mask.set_ipv4_src((flow % self.masks).into());
        (key.masked(&mask), mask)
    }
}

/// Returns an OpenFlow bridge whose tables are empty. A packet that matches no megaflow is counted as a miss.
pub(super) fn function(bridge: Arc<Bridge>) -> Function {
    // No thread waits for this waker, because there is no slow path.
    let waker = Arc::new(Waker::new().unwrap_or_else(|error| panic!("an eventfd cannot be had: {error}")));
    let tables = Arc::new(FlowTables::new(0, Pipeline::new(), waker));
    Function::OpenFlow(Arc::new(FlowBridge { tables, bridge, connections: Arc::default() }))
}
