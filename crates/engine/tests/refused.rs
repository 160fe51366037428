//! Tests that a packet which a queue accepts and the kernel refuses later is counted as a drop, not as
//! transmitted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::depot;
use engine::{Engine, EngineConfig};
use packet::{DropReason, PortId, QueueId, WorkerId};
use port::{Batch, Capabilities, Exported, FramePool, Queue, QueueCounters, QueueState, QueueStatus};

/// A test queue. The test sets the state of its device, and the number of packets that the kernel has refused.
struct Failing {
    refused: Arc<AtomicU64>,
    gone: bool,
}

impl Queue for Failing {
    fn receive(&mut self, _: &mut FramePool, _: &mut Batch) -> usize {
        0
    }
    fn transmit(&mut self, _: &mut FramePool, _: &mut Batch) -> usize {
        0
    }
    fn kick(&mut self, _: &mut FramePool) {}
    fn has_pending(&mut self) -> bool {
        false
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }
    fn counters(&self) -> QueueCounters {
        QueueCounters { tx_invalid: self.refused.load(Ordering::Relaxed), ..QueueCounters::default() }
    }
    fn status(&self) -> QueueStatus {
        QueueStatus { kind: "failing", reasons: vec!["it fails".to_owned()], ..QueueStatus::default() }
    }
    fn state(&self) -> QueueState {
        if self.gone { QueueState::Gone } else { QueueState::Up }
    }
    fn in_flight(&self) -> usize {
        if self.gone { 3 } else { 0 }
    }
    fn close(self: Box<Self>, _: &mut FramePool) {}

    fn export(self: Box<Self>, pool: &mut FramePool) -> Exported {
        self.close(pool);
        Exported::Closed
    }
}

#[test]
fn what_the_kernel_refuses_is_counted_once() {
    let engine = Engine::start(&EngineConfig::default(), depot(1024)).unwrap();
    // A queue from a predecessor has refused packets before, which must not be counted.
    let refused = Arc::new(AtomicU64::new(40));
    let queue = |gone| Box::new(Failing { refused: Arc::clone(&refused), gone });
    engine.add_queue(WorkerId(0), PortId(0), QueueId(0), queue(false)).unwrap();
    engine.add_queue(WorkerId(0), PortId(1), QueueId(5), queue(true)).unwrap();
    let drops = |port, reason: DropReason| engine.port_totals(PortId(port)).drops[reason as usize];
    let views = engine.inspect();
    assert_eq!(views.len(), 2);
    assert_eq!((views[1].port, views[1].queue, views[1].state), (PortId(1), QueueId(5), QueueState::Gone));
    assert_eq!(views[0].status.reasons, ["it fails"]);
    assert_eq!(drops(0, DropReason::TxFailed), 0);
    engine.counters()[0].port(PortId(0)).tx_packets.add(10);
    refused.store(44, Ordering::Relaxed);
    let _ = engine.inspect();
    let _ = engine.inspect();
    assert_eq!((drops(0, DropReason::TxFailed), drops(1, DropReason::DeviceGone)), (4, 4));
    assert_eq!(engine.port_totals(PortId(0)).tx_packets, 6, "each packet is counted once");
    // The last refused packets are counted when the queue is removed, together with the packets that never
    // left.
    refused.store(45, Ordering::Relaxed);
    for port in [0, 1] {
        let gone = engine.remove_queues(PortId(port)).unwrap();
        assert_eq!(gone.len(), 1);
    }
    assert_eq!((drops(0, DropReason::TxFailed), drops(1, DropReason::DeviceGone)), (5, 8));
}
