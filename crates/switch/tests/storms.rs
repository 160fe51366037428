//! Tests of storm control. The limits are exact for each traffic class and port: the number of frames that pass in any
//! interval is the burst size plus the number that the rate allows.

mod lab;

use lab::{Driven, Frame, Outcome, Payload, broadcast, udp};
use packet::record::{NoRecord, Steps};
use packet::{DropReason, PortId, VlanId};
use switch::{Bridge, BridgeConfig, BridgePortConfig, Now, StormLimits, VlanMode};

fn limited(storm: StormLimits) -> BridgeConfig {
    let member = |port, storm| BridgePortConfig {
        storm,
        ..BridgePortConfig::new(PortId(port), VlanMode::Access(VlanId::MIN))
    };
    let ports = vec![member(1, storm), member(2, storm), member(3, StormLimits::default())];
    BridgeConfig { ports, ..BridgeConfig::default() }
}

fn passed(outcomes: &[Outcome]) -> usize {
    outcomes.iter().filter(|outcome| outcome.dropped.is_none()).count()
}

#[test]
fn what_passes_is_the_burst_and_then_the_rate() {
    let storm = StormLimits { broadcast: Some(1000), ..StormLimits::default() };
    let mut bridge = Driven::new(Bridge::new(&limited(storm), 1));
    let start = 77_000_000_000;
    let frames = vec![broadcast(1, 1); 300];
    let first = bridge.burst(&frames, Now::from_ns(start), &mut NoRecord);
    assert_eq!(passed(&first), 100, "a tenth of a second's worth");
    assert!(first[..100].iter().all(|outcome| outcome.dropped.is_none()), "the first ones pass");
    assert_eq!(first[100].dropped, Some(DropReason::StormBroadcast));
    // Ten seconds at 50,000 frames per second, in bursts of uneven length.
    let (mut sum, mut sent, mut at) = (0, 0, start);
    while at < start + 10_000_000_000 {
        let len = 1 + sent % 170;
        at = (at + len as u64 * 20_000).min(start + 10_000_000_000);
        sum += passed(&bridge.burst(&frames[..len], Now::from_ns(at), &mut NoRecord));
        sent += len;
    }
    assert_eq!(sum, 10_000);
    // The other port has a separate bucket.
    assert_eq!(passed(&bridge.burst(&vec![broadcast(2, 2); 300], Now::from_ns(at), &mut NoRecord)), 100);
}

#[test]
fn each_class_has_its_limit() {
    let storm = StormLimits { broadcast: Some(10), multicast: Some(20), unknown: Some(0) };
    let mut bridge = Driven::new(Bridge::new(&limited(storm), 1));
    let mut frames = Vec::new();
    for _ in 0..40 {
        frames.push(broadcast(1, 1));
        frames.push(Frame::multicast(1, 1, Payload::Udp4([239, 1, 1, 1])));
        frames.push(udp(1, 1, 9));
    }
    let outcomes = bridge.burst(&frames, Now::from_secs(9), &mut NoRecord);
    for (class, (expected, reason)) in
        [(10, DropReason::StormBroadcast), (20, DropReason::StormMulticast), (0, DropReason::StormUnknown)]
            .into_iter()
            .enumerate()
    {
        let of_class: Vec<_> = outcomes.iter().skip(class).step_by(3).cloned().collect();
        assert_eq!(passed(&of_class), expected);
        assert!(of_class[expected..].iter().all(|outcome| outcome.dropped == Some(reason)));
    }
    // A frame to a known destination has no storm limit.
    bridge.send(&broadcast(3, 9), Now::from_secs(9));
    assert_eq!(bridge.ports(&udp(1, 1, 9), Now::from_secs(9)), [3]);
}

#[test]
fn the_order_of_ports_in_a_burst_does_not_matter() {
    let storm = StormLimits { broadcast: Some(10), ..StormLimits::default() };
    let mut bridge = Driven::new(Bridge::new(&limited(storm), 1));
    let frames: Vec<_> =
        (0u8..90).map(|number| broadcast(u16::from(number % 3) + 1, number % 3 + 1)).collect();
    let outcomes = bridge.burst(&frames, Now::from_secs(1), &mut NoRecord);
    let of = |port: usize| outcomes.iter().skip(port - 1).step_by(3).cloned().collect::<Vec<_>>();
    assert_eq!((passed(&of(1)), passed(&of(2)), passed(&of(3))), (10, 10, 30));
}

#[test]
fn explaining_takes_no_token() {
    let storm = StormLimits { broadcast: Some(1), ..StormLimits::default() };
    let mut bridge = Driven::new(Bridge::new(&limited(storm), 1));
    for _ in 0..5 {
        let explained = bridge.burst(&[broadcast(1, 1)], Now::from_secs(1), &mut Steps::<true>::default());
        assert_eq!(explained[0].dropped, None);
    }
    assert_eq!(bridge.send(&broadcast(1, 1), Now::from_secs(1)).dropped, None);
    assert_eq!(bridge.send(&broadcast(1, 1), Now::from_secs(1)).dropped, Some(DropReason::StormBroadcast));
}

#[test]
fn a_change_elsewhere_does_not_refill_a_bucket() {
    let storm = StormLimits { broadcast: Some(10), unknown: Some(10), ..StormLimits::default() };
    let mut bridge = Driven::new(Bridge::new(&limited(storm), 1));
    let now = Now::from_secs(5);
    assert_eq!(passed(&bridge.burst(&vec![broadcast(1, 1); 50], now, &mut NoRecord)), 10);
    let changed = StormLimits { unknown: Some(20), ..storm };
    bridge.bridge = bridge.bridge.reconfigured(&limited(changed));
    assert_eq!(passed(&bridge.burst(&vec![broadcast(1, 1); 50], now, &mut NoRecord)), 0);
    assert_eq!(passed(&bridge.burst(&vec![udp(1, 1, 9); 50], now, &mut NoRecord)), 20);
}

#[test]
fn bursts_longer_than_the_stage_takes_at_once_are_cut() {
    let storm = StormLimits { broadcast: Some(10_000), ..StormLimits::default() };
    let mut bridge = Driven::new(Bridge::new(&limited(storm), 1));
    let outcomes = bridge.burst(&vec![broadcast(1, 1); 1300], Now::from_secs(5), &mut NoRecord);
    assert_eq!(passed(&outcomes), 1000);
    assert_eq!(passed(&outcomes[..1000]), 1000);
}
