//! Tests of software RSS with several workers: packets of a flow keep their order whenever the indirection table
//! changes or queues move.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test waits with patience and fails by panicking"
)]

mod common;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{depot, frame, transparent};
use engine::{Arrivals, Engine, EngineConfig, Function, IngressStage, PollMode, PortView, Verdicts};
use packet::{PortId, QueueId, WorkerId};
use port::ring::{self, RingQueue};
use port::{Batch, Queue};
use switch::Bridge;

/// An ingress stage that counts packets for each worker.
#[derive(Default)]
struct Seen([AtomicU64; 3]);

impl IngressStage for Seen {
    fn run(&self, arrivals: &mut Arrivals<'_>, _: &mut Verdicts) {
        self.0[arrivals.worker.index()].fetch_add(arrivals.packets.len() as u64, Ordering::Relaxed);
    }
}

/// Sends packets of 100 flows from one link to the other for three seconds. If `enough` still returns `false`, for
/// example on a loaded machine, continues for up to 40 seconds. Checks that the packets of each flow arrive in order
/// and that none is missing. `meanwhile` is called repeatedly with the number of packets that have arrived so far.
/// Returns the total number of packets.
fn all_arrive_in_order(
    engine: &Engine,
    from: &mut RingQueue,
    to: &mut RingQueue,
    mut meanwhile: impl FnMut(u64),
    enough: impl Fn() -> bool,
) -> u64 {
    let mut pool = engine.depot().pool();
    let mut sequence: HashMap<u8, u32> = HashMap::new();
    let mut last: HashMap<u8, u32> = HashMap::new();
    let (mut sent, mut received) = (0_u64, 0_u64);
    let begin = Instant::now();
    let mut batch = Batch::new();
    let mut flow = 1_u8;
    loop {
        let sends = begin.elapsed() < Duration::from_secs(3)
            || !enough() && begin.elapsed() < Duration::from_secs(40);
        if !sends && received >= sent {
            break;
        }
        if sends && sent - received < 900 {
            for _ in 0..32 {
                flow = flow % 100 + 1;
                let next = sequence.entry(flow).or_default();
                *next += 1;
                batch.push(pool.alloc_copy(&frame(flow, 200, *next)).unwrap());
            }
            sent += from.transmit(&mut pool, &mut batch) as u64;
            assert!(batch.is_empty(), "fewer packets are under way than any ring holds");
        }
        while to.receive(&mut pool, &mut batch) > 0 {
            for packet in batch.drain(..) {
                let head = packet.head(pool.memory());
                let (flow, n) = (head[11], u32::from_be_bytes([head[42], head[43], head[44], head[45]]));
                let before = last.insert(flow, n).unwrap_or(0);
                let drops = || engine.port_totals(PortId(1)).drops;
                assert_eq!(n, before + 1, "flow {flow} overtaken or lost, the {received}th; {:?}", drops());
                received += 1;
                pool.free(packet);
            }
        }
        meanwhile(received);
        assert!(begin.elapsed() < Duration::from_secs(60), "stuck: sent {sent}, received {received}");
    }
    received
}

#[test]
fn flows_keep_their_order_while_buckets_move() {
    const WORKERS: u16 = 3;
    let depot = depot(16_384);
    let config = EngineConfig {
        cores: vec![None; usize::from(WORKERS)],
        mode: PollMode::Busy,
        spin: Duration::from_micros(200),
        ..EngineConfig::default()
    };
    let engine = Engine::start(&config, depot.clone()).unwrap();
    let bridge = Arc::new(Bridge::new(&transparent(2), 7));
    let (near0, mut far0) = ring::pair(2048);
    let (near1, mut far1) = ring::pair(2048);
    // The output queue belongs to another worker than the input queue.
    engine.add_queue(WorkerId(0), PortId(0), QueueId(0), Box::new(near0)).unwrap();
    engine.add_queue(WorkerId(1), PortId(1), QueueId(0), Box::new(near1)).unwrap();
    let table = |seed: u64| {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            WorkerId(u16::try_from((state >> 33) % u64::from(WORKERS)).unwrap())
        };
        Arc::new(std::array::from_fn(|_| next()))
    };
    let seen = Arc::new(Seen::default());
    engine.update(|f| {
        let mut view = PortView::new(Function::Bridge(bridge.clone()), WorkerId(0));
        view.rss_table = Some(table(0));
        view.own = Some(seen.clone());
        f.set_port(PortId(0), Some(view));
        f.set_port(PortId(1), Some(PortView::new(Function::Bridge(bridge.clone()), WorkerId(1))));
    });
    let mut moves = 0_u64;
    let change = |received: u64| {
        if received / 200 > moves {
            moves = received / 200;
            // Every other change disables software RSS.
            let rss_table = moves.is_multiple_of(2).then(|| table(moves));
            engine.update(|f| f.ports[0].as_mut().unwrap().rss_table = rss_table);
        }
    };
    let received = all_arrive_in_order(&engine, &mut far0, &mut far1, change, || true);
    assert!(moves > 20, "the table was hardly changed: {moves} moves, {received} packets");
    let busy = engine.worker_views().iter().filter(|w| w.packets > 0).count();
    assert_eq!(busy, usize::from(WORKERS), "every worker had its share");
    // The port's ingress stage sees a packet once, before the packet moves to another worker.
    assert_eq!(seen.0.each_ref().map(|count| count.load(Ordering::Relaxed)), [received, 0, 0]);
}

/// Checks the packet order while the receive queue, the transmit queue and the hash buckets of software RSS move
/// between workers under load.
#[test]
fn flows_keep_their_order_while_queues_move() {
    const WORKERS: u16 = 3;
    let depot = depot(16_384);
    let config = EngineConfig {
        cores: vec![None; usize::from(WORKERS)],
        mode: PollMode::Adaptive,
        spin: Duration::from_micros(50),
        ..EngineConfig::default()
    };
    let engine = Engine::start(&config, depot.clone()).unwrap();
    let bridge = Arc::new(Bridge::new(&transparent(2), 7));
    let (near0, mut far0) = ring::pair(2048);
    let (near1, mut far1) = ring::pair(2048);
    engine.add_queue(WorkerId(0), PortId(0), QueueId(0), Box::new(near0)).unwrap();
    engine.add_queue(WorkerId(1), PortId(1), QueueId(0), Box::new(near1)).unwrap();
    engine.update(|f| {
        let mut view = PortView::new(Function::Bridge(bridge.clone()), WorkerId(0));
        view.rss_table =
            Some(Arc::new(std::array::from_fn(|bucket| WorkerId(u16::try_from(bucket).unwrap() % WORKERS))));
        f.set_port(PortId(0), Some(view));
        f.set_port(PortId(1), Some(PortView::new(Function::Bridge(bridge.clone()), WorkerId(1))));
    });
    let moves = std::sync::atomic::AtomicU16::new(0);
    let done = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(relaxed) {
                let turn = moves.fetch_add(1, relaxed);
                for (port, worker) in [(0, turn % WORKERS), (1, (turn / WORKERS + 1) % WORKERS)] {
                    engine.move_queues(PortId(port), &[(QueueId(0), WorkerId(worker))]).unwrap();
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        all_arrive_in_order(&engine, &mut far0, &mut far1, |_| (), || moves.load(relaxed) > 20);
        done.store(true, relaxed);
    });
    let moves = moves.into_inner();
    assert!(moves > 20, "hardly moved: {moves} times");
}
