//! Tests of traces: the report contains the whole path of a packet over several workers, and is correct for
//! frames that cannot be parsed.
#![allow(clippy::disallowed_methods, reason = "a test waits with patience")]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Rig, depot, frame, transparent};
use engine::trace::{TraceFilter, Traced};
use engine::{Engine, EngineConfig, Function, PollMode, PortView};
use packet::filter::Filter;
use packet::record::Step;
use packet::{DropReason, PortId, QueueId, WorkerId};
use port::{Batch, Queue, ring};
use switch::Bridge;

/// Returns the next trace report of any worker.
fn next(rings: &mut [sync::spsc::Consumer<Box<Traced>>]) -> Box<Traced> {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(10) {
        if let Some(traced) = rings.iter_mut().find_map(|ring| ring.pop()) {
            return traced;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("nothing was traced");
}

#[test]
fn a_packet_that_software_rss_hands_over_is_followed_to_its_end() {
    let depot = depot(4096);
    let config = EngineConfig {
        cores: vec![None; 2],
        mode: PollMode::Adaptive,
        spin: Duration::from_micros(50),
        ..EngineConfig::default()
    };
    let engine = Engine::start(&config, depot.clone()).unwrap();
    let bridge = Arc::new(Bridge::new(&transparent(2), 7));
    let (near0, mut far0) = ring::pair(1024);
    let (near1, _far1) = ring::pair(1024);
    engine.add_queue(WorkerId(0), PortId(0), QueueId(0), Box::new(near0)).unwrap();
    engine.add_queue(WorkerId(0), PortId(1), QueueId(0), Box::new(near1)).unwrap();
    engine.update(|f| {
        let mut view = PortView::new(Function::Bridge(bridge.clone()), WorkerId(0));
        // The queue's own worker processes no packet.
        view.rss_table = Some(Arc::new([WorkerId(1); engine::state::RSS_BUCKETS]));
        f.set_port(PortId(0), Some(view));
        f.set_port(PortId(1), Some(PortView::new(Function::Bridge(bridge.clone()), WorkerId(0))));
    });
    let mut rings = engine.trace(TraceFilter::new([Filter::default()], 2)).unwrap();
    let mut pool = depot.pool();
    for sequence in 1..=2 {
        let mut batch = Batch::new();
        batch.push(pool.alloc_copy(&frame(1, 2, sequence)).unwrap());
        assert_eq!(far0.transmit(&mut pool, &mut batch), 1);
        let traced = next(&mut rings);
        assert_eq!((traced.worker, traced.port), (WorkerId(1), PortId(0)), "{traced:?}");
        let at = |wanted: fn(&Step) -> bool| traced.steps.iter().position(wanted);
        let received = at(|step| matches!(step, Step::Received { .. }));
        let distributed = at(|step| matches!(step, Step::SoftwareRss { worker: WorkerId(1), .. }));
        let parsed = at(|step| matches!(step, Step::Parsed { .. }));
        assert_eq!((received, distributed), (Some(0), Some(1)), "{traced:?}");
        assert!(parsed > distributed && at(|step| matches!(step, Step::Flood { .. })) > parsed, "{traced:?}");
        let leaves = Step::Transmitted { port: PortId(1), queue: QueueId(0) };
        let out = traced
            .steps
            .iter()
            .any(|step| *step == leaves || matches!(step, Step::Output { port: PortId(1), .. }));
        assert!(out, "its way ends where it leaves: {traced:?}");
    }
    engine.end_trace(engine.generation());
}

/// Checks that a packet sent directly after the start of a trace is traced, although every worker was asleep.
#[test]
fn the_first_packet_after_arming_is_traced() {
    let depot = depot(1024);
    let config = EngineConfig {
        cores: vec![None; 2],
        mode: PollMode::Adaptive,
        spin: Duration::from_micros(1),
        ..EngineConfig::default()
    };
    let engine = Engine::start(&config, depot.clone()).unwrap();
    let bridge = Arc::new(Bridge::new(&transparent(1), 7));
    let (near, mut far) = ring::pair(64);
    engine.add_queue(WorkerId(0), PortId(0), QueueId(0), Box::new(near)).unwrap();
    engine.update(|f| {
        let mut view = PortView::new(Function::Bridge(bridge.clone()), WorkerId(0));
        view.rss_table = Some(Arc::new([WorkerId(1); engine::state::RSS_BUCKETS]));
        f.set_port(PortId(0), Some(view));
    });
    let mut pool = depot.pool();
    for sequence in 0..100 {
        let mut rings = engine.trace(TraceFilter::new([Filter::default()], 1)).unwrap();
        let mut batch = Batch::new();
        batch.push(pool.alloc_copy(&frame(1, 2, sequence)).unwrap());
        assert_eq!(far.transmit(&mut pool, &mut batch), 1);
        let traced = next(&mut rings);
        assert_eq!(traced.worker, WorkerId(1), "{traced:?}");
        engine.end_trace(engine.generation());
    }
}

#[test]
fn a_frame_that_cannot_be_read_does_not_borrow_the_key_of_the_one_before() {
    let mut rig = Rig::new(&transparent(2));
    let rings = rig.worker.while_offline(|| {
        let filter = TraceFilter::new([Filter::parse("in_port=0").unwrap()], 8);
        rig.engine.trace(filter)
    });
    let mut rings = rings.unwrap();
    rig.worker.round_with_commands();
    let mut tagged_short = frame(1, 2, 0)[..15].to_vec();
    tagged_short[12..14].copy_from_slice(&[0x81, 0]);
    rig.send(0, &frame(1, 2, 1));
    rig.send(0, &tagged_short);
    rig.round();
    let (whole, broken) = (rings[0].pop().unwrap(), rings[0].pop().unwrap());
    assert!(whole.key.is_some_and(|key| key.dst_port() == 9));
    assert_eq!((broken.key, broken.len), (None, 15));
    assert!(
        matches!(broken.steps.last(), Some(Step::Dropped(reason)) if *reason != DropReason::NoFunction),
        "{broken:?}"
    );
    // A frame without a flow key (`tagged_short`) does not match a filter that tests more than the ingress port.
    rig.worker.while_offline(|| rig.engine.end_trace(rig.engine.generation()));
    rig.worker.round_with_commands();
    let filter =
        TraceFilter::new([Filter::parse("in_port=0").unwrap()], 8).and(Filter::parse("udp").unwrap());
    let mut rings = rig.worker.while_offline(|| rig.engine.trace(filter)).unwrap();
    rig.worker.round_with_commands();
    rig.send(0, &frame(1, 2, 2));
    rig.send(0, &tagged_short);
    rig.round();
    assert!(rings[0].pop().is_some() && rings[0].pop().is_none());
}
