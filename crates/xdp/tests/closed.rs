//! Tests of a closed port: its program drops every frame before all stages, whichever stages it has.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod support;

use std::net::Ipv4Addr;

use packet::net::FiveTuple;
use support::config;
use support::router::{Router, ipv4};
use xdp::fib::FibStage;
use xdp::steer::{FlowEntry, SteerConfig, SteerTo, Steering};
use xdp::{Attached, Counter, Owner, StageChange, Verdict, WhenDown};

fn swap(port: &mut Attached, owner: Owner) {
    let loaded = port.prepare(&config(owner, WhenDown::Pass)).unwrap();
    port.swap(loaded).unwrap();
    assert_eq!(port.constants().owner, owner);
}

#[track_caller]
fn see(port: &Attached, frame: &[u8]) -> (Verdict, Counter) {
    let said = port.explainer().unwrap().explain(frame).unwrap();
    (said.verdict, said.counter)
}

#[test]
fn a_closed_port_with_any_stage_drops_every_frame() {
    need_root!();
    let mut router = Router::new();
    let destination = Ipv4Addr::new(10, 0, 2, 2);
    let frame = ipv4(destination, 60, |_| ());
    let dropped = (Verdict::Drop, Counter::DownDropped);
    swap(&mut router.attached, Owner::Closed);
    assert_eq!(see(&router.attached, &frame), dropped);
    // Stages that are added, replaced and removed leave the port closed.
    let stage = FibStage::new(&Router::port(), &router.attached).unwrap();
    router.attached.set_stage(StageChange::Fib(Some(&stage))).unwrap();
    assert_eq!(see(&router.attached, &frame), dropped);
    let flows = SteerConfig { capacity: 64, table: false, metadata: false, cpu_queue: 192 };
    let mut steering = Steering::new(&flows).unwrap();
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let source = Ipv4Addr::from(<[u8; 4]>::try_from(&frame[26..30]).unwrap()).into();
    let ports = Some((port(34), port(36)));
    let flow = FiveTuple { vlan: None, source, destination: destination.into(), protocol: frame[23], ports };
    let entry = FlowEntry { to: SteerTo::Kernel, mark: 0, expires: None, live: false };
    steering.insert(flow, entry).unwrap();
    router.attached.set_stage(StageChange::Steering(Some(&steering))).unwrap();
    assert_eq!(see(&router.attached, &frame), dropped);
    // The open port applies the stages.
    swap(&mut router.attached, Owner::Routed);
    assert_ne!(see(&router.attached, &frame), dropped);
    swap(&mut router.attached, Owner::Closed);
    router.attached.set_stage(StageChange::Fib(None)).unwrap();
    assert_eq!(see(&router.attached, &frame), dropped);
}
