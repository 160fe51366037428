//! Tests of programs with nested clones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;

use packet::{DropReason, PortId, spec};
use port::ring::{self, RingQueue};
use port::{Batch, Queue};
use switch::flow::{Action, Field, FlowMod, Instructions, MAX_CLONES, Match, Mod};

use crate::bench::rules::Switch;

/// Stack size of the thread that runs the worker, in octets: an eighth of the stack size of a worker's own thread.
const STACK: usize = 256 << 10;

thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// Counts an operation that the current thread executes on a packet or skips.
pub(super) fn count_step() {
    STEPS.set(STEPS.get() + 1);
}

/// A switch with two in-memory ports, and the test's ends of the ports' links.
struct Rig {
    switch: Switch,
    far: [RingQueue; 2],
}

impl Rig {
    /// Creates a switch with one rule in each of the first `tables` flow tables. `actions` returns the actions of the
    /// rule for the number of a table.
    fn new(tables: u8, actions: impl Fn(u8) -> Vec<Action>) -> Rig {
        let mut switch = Switch::new("clones", 2, 1000).unwrap();
        let rule = |table| FlowMod::add(table, 1, Match::ANY, Instructions::apply(actions(table)));
        switch.modify(&(0..tables).map(|table| Mod::Flow(Box::new(rule(table)))).collect::<Vec<_>>());
        let far = [0, 1].map(|port| {
            let (near, far) = ring::pair(256);
            switch.plug(port, Box::new(near));
            far
        });
        Rig { switch, far }
    }

    /// Sends a packet to the first port. Returns the number of packets that the second port transmits, and the number
    /// of operations that the worker has visited.
    fn send(&mut self) -> (usize, usize) {
        let frame = spec::parse("eth_dst=02:00:00:00:00:02,ip_src=10.0.0.1,ip_dst=10.0.0.2,udp").unwrap();
        let pool = &mut self.switch.pool;
        let mut batch = Batch::new();
        batch.push(pool.alloc_copy(&frame).unwrap());
        assert_eq!(self.far[0].transmit(pool, &mut batch), 1);
        let (mut sent, mut steps) = (0, 0);
        for _ in 0..8 {
            steps += round_on_small_stack(&mut self.switch);
            self.switch.slow_path.as_mut().unwrap().round();
            let mut batch = Batch::new();
            while self.far[1].receive(&mut self.switch.pool, &mut batch) > 0 {
                sent += batch.len();
                batch.drain(..).for_each(|packet| self.switch.pool.free(packet));
            }
        }
        (sent, steps)
    }
}

/// Runs a round of the worker on a thread with a stack of [`STACK`] octets. Returns the number of operations that the
/// worker has visited.
fn round_on_small_stack(switch: &mut Switch) -> usize {
    let worker = &mut switch.worker;
    std::thread::scope(|scope| {
        let round = move || {
            worker.round();
            STEPS.take()
        };
        std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, round).unwrap().join().unwrap()
    })
}

fn resubmit(table: u8) -> Action {
    Action::Resubmit { port: None, table: Some(table) }
}

fn ttl(ttl: u8) -> Action {
    Action::Set { field: Field::NwTtl, value: u128::from(ttl), mask: 255, load: false }
}

const OUT: Action = Action::Output { port: 2, max_len: 0 };

/// Checks that a worker executes a program with the deepest nesting of clones on a small stack, and visits each
/// operation once for each packet.
#[test]
fn nested_clones_need_little_stack_and_linear_time() {
    let depth = u8::try_from(MAX_CLONES).unwrap();
    // An output follows each clone, so that each clone needs a copy of the packet.
    let mut rig = Rig::new(depth + 1, |table| match table {
        _ if table == depth => vec![OUT],
        _ => vec![Action::Clone(vec![ttl(table), resubmit(table + 1)]), OUT],
    });
    for _ in 0..3 {
        // Each clone accounts for three operations: the clone itself, the change of its packet, and the output that
        // follows it. The innermost clone contains one output.
        assert_eq!(rig.send(), (MAX_CLONES + 1, 3 * MAX_CLONES + 1));
    }
    // No operation follows the clones, so that no copy is made.
    let mut rig = Rig::new(depth + 1, |table| match table {
        _ if table == depth => vec![OUT],
        _ => vec![Action::Clone(vec![ttl(table), resubmit(table + 1)])],
    });
    assert_eq!(rig.send(), (1, 2 * MAX_CLONES + 1));
}

/// Checks that the packet is dropped if the rules of successive tables nest clones more deeply than the limit.
#[test]
fn clones_nested_without_limit_drop_the_packet() {
    let nested = |inner: Action| (0..62).fold(inner, |inner, _| Action::Clone(vec![inner]));
    let mut rig = Rig::new(180, |table| match table {
        179 => vec![ttl(9), OUT],
        _ => vec![nested(resubmit(table + 1))],
    });
    assert_eq!(rig.send(), (0, 0));
    let dropped = rig.switch.engine.port_totals(PortId(0)).drops;
    assert_eq!(dropped[DropReason::RuleLoop.index()], 1);
}
