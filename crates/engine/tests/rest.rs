//! Tests that an idle worker sleeps and still executes commands immediately.
#![allow(clippy::disallowed_methods, reason = "a test waits with patience")]

mod common;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{depot, frame, transparent};
use engine::capture::Wanted;
use engine::{Engine, EngineConfig, Function, PollMode, PortView};
use packet::{PortId, QueueId, WorkerId};
use port::{Batch, Capabilities, Exported, FramePool, Queue, QueueStatus, ring};
use switch::Bridge;

fn config(mode: PollMode) -> EngineConfig {
    EngineConfig { cores: vec![None, None], mode, spin: Duration::from_micros(50), ..EngineConfig::default() }
}

#[test]
fn idle_workers_sleep() {
    let engine = Engine::start(&config(PollMode::Adaptive), depot(1024)).unwrap();
    let (near, _far) = ring::pair(64);
    engine.add_queue(WorkerId(0), PortId(0), QueueId(0), Box::new(near)).unwrap();
    let asleep = || engine.worker_views().iter().all(|w| w.asleep);
    let begin = Instant::now();
    while !asleep() {
        assert!(begin.elapsed() < Duration::from_secs(10), "workers do not fall asleep");
        std::thread::sleep(Duration::from_millis(1));
    }
    // Polls without work over three seconds of sleep take well under one percent of the time.
    let spent = |cycle: usize| engine.worker_views().iter().map(|w| w.cycles[cycle]).sum::<u64>();
    let (idle, naps) = (spent(1), spent(2));
    while spent(2) - naps < 4 * sync::cpu::tsc_hz() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    let (idle, naps) = (spent(1) - idle, spent(2) - naps);
    assert!(idle * 100 < naps, "{idle} cycles polling in vain against {naps} asleep");
    // Commands are executed without waiting for the timeout of a sleep.
    let begin = Instant::now();
    engine.update(|f| f.set_port(PortId(0), Some(PortView::new(Function::None, WorkerId(0)))));
    assert_eq!(engine.remove_queues(PortId(0)).unwrap().len(), 1);
    assert!(begin.elapsed() < Duration::from_millis(500), "{:?}", begin.elapsed());
}

/// A queue whose descriptor is readable although no packet can be received, like the queue of a deleted
/// device.
struct Readable(ring::RingQueue, std::os::fd::OwnedFd);

impl Queue for Readable {
    fn receive(&mut self, pool: &mut FramePool, out: &mut Batch) -> usize {
        self.0.receive(pool, out)
    }
    fn transmit(&mut self, pool: &mut FramePool, batch: &mut Batch) -> usize {
        self.0.transmit(pool, batch)
    }
    fn kick(&mut self, pool: &mut FramePool) {
        self.0.kick(pool);
    }
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.1.as_fd())
    }
    fn has_pending(&mut self) -> bool {
        self.0.has_pending()
    }
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
    fn status(&self) -> QueueStatus {
        self.0.status()
    }
    fn close(self: Box<Self>, pool: &mut FramePool) {
        Box::new(self.0).close(pool);
    }

    fn export(self: Box<Self>, pool: &mut FramePool) -> Exported {
        self.close(pool);
        Exported::Closed
    }
}

#[test]
fn a_descriptor_that_stays_readable_does_not_keep_a_worker_awake() {
    let engine = Engine::start(&config(PollMode::Adaptive), depot(1024)).unwrap();
    let (near, _far) = ring::pair(64);
    let (reading, writing) = rustix::pipe::pipe().unwrap();
    rustix::io::write(&writing, b"x").unwrap();
    let queue = Box::new(Readable(near, reading));
    engine.add_queue(WorkerId(0), PortId(0), QueueId(0), queue).unwrap();
    let sleeps = || engine.worker_views()[0].sleeps;
    std::thread::sleep(Duration::from_millis(200));
    let before = sleeps();
    std::thread::sleep(Duration::from_secs(2));
    // A sleep lasts a second.
    assert!(sleeps() - before < 10, "{} sleeps in two seconds", sleeps() - before);
}

#[test]
fn stopping_gives_every_queue_and_every_frame_back() {
    let depot = depot(4096);
    let all = depot.available();
    let engine = Engine::start(&config(PollMode::Busy), depot.clone()).unwrap();
    let function = Function::Bridge(Arc::new(Bridge::new(&transparent(2), 7)));
    let mut far = Vec::new();
    for port in [0_u16, 1] {
        let (near, end) = ring::pair(256);
        // Each port's queue belongs to another worker, so that packets cross the rings between workers.
        engine.add_queue(WorkerId(port), PortId(port), QueueId(0), Box::new(near)).unwrap();
        let view = PortView::new(function.clone(), WorkerId(port));
        engine.update(|f| f.set_port(PortId(port), Some(view)));
        far.push(end);
    }
    let mut pool = depot.pool();
    let mut batch = Batch::new();
    for n in 0..200 {
        batch.push(pool.alloc_copy(&frame(1, 2, n)).unwrap());
    }
    assert_eq!(far[0].transmit(&mut pool, &mut batch), 200);
    let begin = Instant::now();
    let mut got = 0;
    while got < 100 {
        got += far[1].receive(&mut pool, &mut batch);
        batch.drain(..).for_each(|packet| pool.free(packet));
        assert!(begin.elapsed() < Duration::from_secs(10), "{got} packets came through");
    }
    let queues = engine.stop().unwrap();
    assert_eq!(queues.len(), 2);
    for (.., queue) in queues {
        queue.close(&mut pool);
    }
    for end in far {
        Box::new(end).close(&mut pool);
    }
    drop(pool);
    assert_eq!(depot.available(), all, "frames were lost or doubled");
}

#[test]
fn only_one_capture_or_trace_at_a_time() {
    let engine = Engine::start(&config(PollMode::Adaptive), depot(1024)).unwrap();
    let reader = engine.capture(&Wanted { only_drops: true, ..Wanted::default() }).unwrap();
    let refused = engine.capture(&Wanted::default()).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(refused.contains("running already"), "{refused}");
    engine.end_capture(reader);
    let reader = engine.capture(&Wanted::all(Some(PortId(3)))).unwrap();
    engine.end_capture(reader);
}
