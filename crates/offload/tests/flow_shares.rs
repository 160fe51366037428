//! Tests of the shares of the ingress ports in the hook's flow table: a port that holds all masks or all slots of the
//! table gives up a part for the flows of another port.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use offload::FlowOffload;
use packet::{FlowKey, MacAddr, PortId};
use switch::flow::{Op, Program};
use testbed::require;
use xdp::flows::FlowTable;

const HOLDER: PortId = PortId(0x102);
const OTHER: PortId = PortId(5);
const OUT: PortId = PortId(3);
/// Time limit for the slow path to reach the expected state. If the state is not reached in this time, the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A flow of a port: the port, the number of the flow's mask, and the number of the flow among the flows with this
/// mask.
type Flow = (PortId, u8, u8);

/// A naive model of the slow path. None of the model's flows becomes idle.
struct SlowPath {
    offload: FlowOffload,
    passed: Receiver<()>,
    /// Slots of the flows in the hook.
    slots: BTreeMap<Flow, u32>,
}

impl SlowPath {
    fn new(flows: u32) -> SlowPath {
        let table = FlowTable::new(flows, 0x1234_5678_9abc_def1).unwrap();
        table.set_reached(OUT.0, Some(1514));
        for port in [HOLDER, OTHER] {
            table.set_served(port.0, true, false);
        }
        let (tell, passed) = channel();
        let offload = FlowOffload::new(&table, move || _ = tell.send(())).unwrap();
        SlowPath { offload, passed, slots: BTreeMap::new() }
    }

    fn install(&mut self, flow: Flow) -> Option<u32> {
        let (port, number, nth) = flow;
        let (mut key, mut mask) = (FlowKey::ZERO, FlowKey::ZERO);
        key.set_in_port(port);
        key.set_eth_dst(MacAddr([2, 0, 0, 0, 0, nth]));
        mask.set_in_port(PortId(u16::MAX));
        mask.set_eth_dst(MacAddr([0xff; 6]));
        mask.set_ttl(number);
        self.offload.install(&key, &mask, &Program { ops: vec![Op::Output(OUT)] })
    }

    /// Visits each flow once: removes displaced flows, and installs flows that are not in the hook. Then waits until
    /// all running XDP programs have ended, and releases the slots of the removed flows.
    fn round(&mut self, flows: &[Flow]) {
        let mut leaving = Vec::new();
        for flow in flows {
            match self.slots.get(flow).copied() {
                Some(slot) if self.offload.is_displaced(slot) => {
                    self.offload.remove(slot);
                    assert!(!self.offload.is_displaced(slot), "the flow was removed");
                    self.slots.remove(flow);
                    leaving.push(slot);
                }
                Some(_) => {}
                None => {
                    let slot = self.install(*flow);
                    self.slots.extend(slot.map(|slot| (*flow, slot)));
                }
            }
        }
        let number = self.offload.begin_grace();
        while !self.offload.has_passed(number) {
            self.passed.recv_timeout(PATIENCE).unwrap();
        }
        leaving.into_iter().for_each(|slot| self.offload.release(slot));
    }

    fn held(&self, port: PortId) -> usize {
        self.slots.keys().filter(|flow| flow.0 == port).count()
    }

    /// Visits the flows repeatedly until the two ports have the expected numbers of flows in the hook.
    #[track_caller]
    fn until(&mut self, flows: &[Flow], expected: (usize, usize)) {
        let begin = Instant::now();
        let held = |path: &SlowPath| (path.held(HOLDER), path.held(OTHER));
        while held(self) != expected {
            assert!(begin.elapsed() < PATIENCE, "{:?} in the hook", held(self));
            self.round(flows);
        }
    }

    /// Checks that further visits change nothing.
    #[track_caller]
    fn check_is_constant(&mut self, flows: &[Flow]) {
        let before = self.slots.clone();
        (0..20).for_each(|_| self.round(flows));
        assert_eq!(self.slots, before);
    }
}

/// Returns flows of the port `port`: one flow for each mask number in `masks`.
fn by_masks(port: PortId, masks: std::ops::Range<u8>) -> Vec<Flow> {
    masks.map(|mask| (port, mask, 0)).collect()
}

/// Checks that a port gets a mask in the hook although the flows of another port use all eight masks. If both ports
/// need many masks, each port gets half of them.
#[test]
fn a_port_that_holds_all_masks_gives_one_up() {
    require!();
    let mut path = SlowPath::new(64);
    let holder = by_masks(HOLDER, 0..20);
    path.until(&holder, (8, 0));
    path.check_is_constant(&holder);
    let flows = [holder.clone(), by_masks(OTHER, 100..101)].concat();
    path.until(&flows, (7, 1));
    path.check_is_constant(&flows);
    let flows = [holder, by_masks(OTHER, 100..120)].concat();
    path.until(&flows, (4, 4));
    path.check_is_constant(&flows);
}

/// Checks that a port gets slots in the hook's flow table although another port has filled the table. If both ports
/// need many slots, each port gets half of them.
#[test]
fn a_port_that_fills_the_table_gives_slots_up() {
    require!();
    let mut path = SlowPath::new(64);
    let of = |port, many: u8| (0..many).map(move |nth| (port, 255, nth));
    let holder: Vec<Flow> = of(HOLDER, 200).collect();
    path.until(&holder, (64, 0));
    path.check_is_constant(&holder);
    let flows: Vec<Flow> = of(OTHER, 100).chain(holder).collect();
    path.until(&flows, (32, 32));
    path.check_is_constant(&flows);
}
