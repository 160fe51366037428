//! Tests of the engine as a learning bridge over in-memory ports: the output frames, the conservation of
//! packets, and the correctness of `explain`.

mod common;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use common::{Rig, frame, transparent};
use engine::{EngineConfig, Function, PortView};
use packet::record::Step;
use packet::{DropReason, PortId, QueueId, VlanId, WorkerId};
use port::packet::{Flags, Gso, Offload};
use port::ring::{self, RingQueue};
use port::{Batch, Capabilities, Exported, FramePool, Queue, QueueStatus};
use proptest::prelude::*;
use switch::{Bridge, BridgePortConfig, VlanMode};

#[test]
fn learns_and_forwards() {
    let mut rig = Rig::new(&transparent(3));
    rig.send(0, &frame(1, 2, 0));
    assert_eq!(rig.round(), 1);
    let flooded: Vec<PortId> = rig.outputs().into_iter().map(|(port, _)| port).collect();
    assert_eq!(flooded, [PortId(1), PortId(2)]);
    rig.send(1, &frame(2, 1, 0));
    rig.round();
    assert_eq!(rig.outputs(), [(PortId(0), frame(2, 1, 0))]);
    rig.send(0, &frame(1, 2, 1));
    rig.round();
    assert_eq!(rig.outputs(), [(PortId(1), frame(1, 2, 1))]);
    rig.assert_accounted();
    assert_eq!(rig.totals()[0].copies, 1);
}

/// Checks that the number of segments of one burst is limited. A guest chooses the segment size, so a packet may have
/// one segment per octet of payload.
#[test]
fn segments_of_a_burst_have_a_budget() {
    let mut rig = Rig::new(&transparent(2));
    rig.send(1, &frame(2, 1, 0));
    rig.round();
    rig.outputs();
    let mut large = frame(1, 2, 0);
    large.resize(42 + 1000, 7);
    large[16..18].copy_from_slice(&1028_u16.to_be_bytes());
    large[38..40].copy_from_slice(&1008_u16.to_be_bytes());
    let mut flags = Flags::default();
    flags.insert(Flags::PARTIAL_CHECKSUM);
    flags.insert(Flags::SEGMENT);
    let offload = Offload { flags, gso: Gso::Udp, gso_size: 1, csum_start: 34, csum_offset: 6 };
    let mut batch = Batch::new();
    for _ in 0..64 {
        let mut packet = rig.pool.alloc_copy(&large).unwrap();
        packet.set_offload(rig.pool.memory(), offload);
        batch.push(packet);
    }
    let before = rig.totals()[0].copies;
    assert_eq!(rig.far[0].transmit(&mut rig.pool, &mut batch), 64);
    rig.round();
    let made = rig.totals()[0].copies - before;
    assert!((15_000..=u64::from(engine::stage::SEGMENT_BUDGET)).contains(&made), "{made} segments");
    assert_eq!(rig.dropped()[DropReason::CloneBudget.index()], 64 - 16);
    rig.assert_accounted();
    // The next burst has its own budget.
    rig.outputs();
    let mut packet = rig.pool.alloc_copy(&large).unwrap();
    packet.set_offload(rig.pool.memory(), Offload { gso_size: 500, ..offload });
    batch.push(packet);
    assert_eq!(rig.far[0].transmit(&mut rig.pool, &mut batch), 1);
    rig.round();
    assert_eq!(rig.outputs().len(), 2);
}

#[test]
fn vlans_separate_and_tags_change() {
    let mut config = transparent(3);
    let vlan = |v| VlanId::new(v).unwrap();
    config.ports[0].mode = VlanMode::Access(vlan(10));
    config.ports[1].mode = VlanMode::Access(vlan(20));
    config.ports[2] = BridgePortConfig::new(
        PortId(2),
        VlanMode::Trunk {
            allowed: [vlan(10), vlan(20)].into_iter().collect(),
            native: None,
            native_tagged: false,
        },
    );
    let mut rig = Rig::new(&config);
    rig.send(0, &frame(1, 9, 0));
    rig.round();
    let out = rig.outputs();
    assert_eq!(out.len(), 1, "only the trunk: {out:?}");
    assert_eq!(out[0].0, PortId(2));
    assert_eq!(out[0].1[12..16], [0x81, 0, 0, 10]);
    assert_eq!(out[0].1[16..], frame(1, 9, 0)[12..]);
    // In the other direction, the tag is removed.
    let mut tagged = frame(9, 1, 0);
    tagged.splice(12..12, [0x81, 0, 0x60, 10]);
    rig.send(2, &tagged);
    rig.round();
    assert_eq!(rig.outputs(), [(PortId(0), frame(9, 1, 0))]);
    rig.assert_accounted();
}

/// Checks that the bridge treats a VLAN tag after a priority tag as payload, as Linux's bridge does
/// (`__allowed_ingress` and `br_handle_vlan` in `net/bridge/br_vlan.c`). A priority tag names no VLAN. The frame
/// therefore belongs only to the VLAN of untagged frames.
#[test]
fn a_tag_behind_a_priority_tag_is_payload() {
    let vlan = |v| VlanId::new(v).unwrap();
    let trunk = |native| VlanMode::Trunk {
        allowed: [vlan(10), vlan(200)].into_iter().collect(),
        native,
        native_tagged: false,
    };
    let modes = [
        VlanMode::Access(vlan(10)),
        VlanMode::Access(vlan(10)),
        trunk(None),
        VlanMode::Access(vlan(200)),
        trunk(Some(vlan(200))),
    ];
    let mut config = transparent(5);
    for (port, mode) in config.ports.iter_mut().zip(modes) {
        port.mode = mode;
    }
    let mut rig = Rig::new(&config);
    let tags = |tags: &[u16]| {
        let mut tagged = frame(1, 9, 0);
        for tag in tags.iter().rev() {
            let [high, low] = tag.to_be_bytes();
            tagged.splice(12..12, [0x81, 0, high, low]);
        }
        tagged
    };
    // From the access port of VLAN 10, with a priority of 3.
    rig.send(0, &tags(&[0x6000, 200]));
    rig.round();
    let out = rig.outputs();
    let expected =
        [(PortId(1), tags(&[200])), (PortId(2), tags(&[0x600a, 200])), (PortId(4), tags(&[0x600a, 200]))];
    assert_eq!(out, expected, "nothing in VLAN 200");
    // Trunk ports do not use the second tag as the packet's VLAN either.
    rig.send(2, &tags(&[0, 200]));
    rig.round();
    assert_eq!(rig.outputs(), [], "a trunk without a native VLAN");
    rig.send(4, &tags(&[0, 10]));
    rig.round();
    assert_eq!(rig.outputs(), [(PortId(2), tags(&[200, 10])), (PortId(3), tags(&[10]))]);
    rig.assert_accounted();
}

#[test]
fn a_port_that_is_down_or_gone_gets_nothing_and_says_so() {
    let mut rig = Rig::new(&transparent(2));
    rig.publish(|f| f.ports[1].as_mut().unwrap().up = false);
    rig.send(0, &frame(1, 2, 0));
    rig.round();
    // The drop is counted at the port of arrival.
    assert_eq!(rig.totals()[0].drops[DropReason::PortDown as usize], 1);
    rig.publish(|f| f.set_port(PortId(1), None));
    rig.send(0, &frame(1, 2, 0));
    rig.round();
    assert_eq!(rig.dropped()[DropReason::PortRemoved as usize], 1);
    assert!(rig.outputs().is_empty());
    rig.assert_accounted();
}

#[test]
fn frames_longer_than_the_mtu_are_dropped_and_counted_where_they_came_in() {
    let mut rig = Rig::new(&transparent(2));
    let mut long = frame(1, 2, 0);
    long.resize(1519, 0);
    rig.send(0, &long);
    rig.round();
    assert_eq!(rig.totals()[0].drops[DropReason::MtuExceeded as usize], 1);
    assert_eq!(rig.totals()[1].dropped(), 0);
    rig.publish(|f| f.ports[1].as_mut().unwrap().max_frame = 9014);
    long.resize(9014, 7);
    rig.send(0, &long);
    rig.round();
    assert_eq!(rig.outputs(), [(PortId(1), long)]);
    rig.assert_accounted();
}

#[test]
fn full_rings_are_counted_for_minutes_and_nothing_leaks() {
    let mut rig = Rig::new(&transparent(2));
    rig.send(1, &frame(2, 1, 0));
    rig.round();
    for i in 0..20_000 {
        rig.send(0, &frame(1, 2, i));
        rig.round();
    }
    let drops = rig.totals()[0].drops[DropReason::TxRingFull as usize];
    assert_eq!(drops, 20_000 - 1024);
    assert_eq!(rig.outputs().iter().filter(|(port, _)| *port == PortId(1)).count(), 1024);
    rig.assert_accounted();
}

/// A queue whose transmit ring has little space. A kick (a request to the kernel to transmit) frees more space.
struct Narrow {
    ring: RingQueue,
    function: Arc<AtomicUsize>,
    more: Arc<AtomicUsize>,
}

impl Queue for Narrow {
    fn receive(&mut self, pool: &mut FramePool, out: &mut Batch) -> usize {
        self.ring.receive(pool, out)
    }

    fn transmit(&mut self, pool: &mut FramePool, batch: &mut Batch) -> usize {
        let count = batch.len().min(self.function.load(Relaxed));
        self.function.fetch_sub(count, Relaxed);
        let mut part: Batch = batch.drain(..count).collect();
        assert_eq!(self.ring.transmit(pool, &mut part), count, "the test empties the ring behind each burst");
        count
    }

    fn kick(&mut self, _pool: &mut FramePool) {
        self.function.fetch_add(self.more.swap(0, Relaxed), Relaxed);
    }

    fn has_pending(&mut self) -> bool {
        self.ring.has_pending()
    }

    fn capabilities(&self) -> Capabilities {
        self.ring.capabilities()
    }

    fn status(&self) -> QueueStatus {
        self.ring.status()
    }

    fn close(self: Box<Self>, pool: &mut FramePool) {
        Box::new(self.ring).close(pool);
    }

    fn export(self: Box<Self>, pool: &mut FramePool) -> Exported {
        self.close(pool);
        Exported::Closed
    }
}

/// Sends a burst to a transmit ring that accepts one part of the burst immediately and another part after a kick.
/// Checks that the port counters count the packets and bytes of these two parts as sent, and the other packets of the
/// burst as dropped.
#[test]
fn octets_of_a_burst_that_is_sent_in_part_are_those_that_left() {
    const BURST: usize = 16;
    let bridge = Arc::new(Bridge::new(&transparent(2), 7));
    let function = || Function::Bridge(Arc::clone(&bridge));
    let mut rig = Rig::with(&EngineConfig::default(), &[PortId(0)], |_| function());
    let (near, far) = ring::pair(1024);
    let (free, more) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let narrow = Narrow { ring: near, function: Arc::clone(&free), more: Arc::clone(&more) };
    rig.engine.add_queue(WorkerId(0), PortId(1), QueueId(0), Box::new(narrow)).unwrap();
    rig.far.push(far);
    rig.worker.round_with_commands();
    let view = PortView::new(function(), WorkerId(0));
    rig.publish(|forwarding| forwarding.set_port(PortId(1), Some(view)));
    rig.send(1, &frame(2, 1, 0));
    rig.round();
    rig.outputs();
    let counted = |rig: &Rig| {
        let totals = rig.totals();
        // A drop is counted at the port of arrival.
        (totals[1].tx_packets, totals[1].tx_bytes, totals[0].drops[DropReason::TxRingFull as usize])
    };
    let mut sequence = 0;
    for (at_once, behind_kick) in [(5, 0), (0, 0), (3, 4), (0, 7), (BURST, 0), (1, 14), (1, BURST)] {
        free.store(at_once, Relaxed);
        more.store(behind_kick, Relaxed);
        let burst: Vec<Vec<u8>> = (0..BURST)
            .map(|place| {
                sequence += 1;
                let mut frame = frame(1, 2, sequence);
                // The lengths differ, so that a different part of the burst would have a different number of
                // bytes.
                frame.resize(64 + (1 << (place % 8)) + 37 * place, 0);
                frame
            })
            .collect();
        burst.iter().for_each(|frame| rig.send(0, frame));
        let before = counted(&rig);
        rig.round();
        let after = counted(&rig);
        let left: Vec<Vec<u8>> = rig.outputs().into_iter().map(|(_, frame)| frame).collect();
        let sent = BURST.min(at_once + behind_kick);
        assert_eq!(left, burst[..sent], "{at_once} at once, {behind_kick} behind a kick");
        let octets: usize = left.iter().map(Vec::len).sum();
        let grown = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
        let wanted = [sent, octets, BURST - sent].map(|number| u64::try_from(number).unwrap());
        assert_eq!(grown, wanted.into(), "{at_once} at once, {behind_kick} behind a kick");
    }
    rig.assert_accounted();
}

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let base = (1..6_u8, 1..6_u8, 0..4_u8, 0..5_usize).prop_map(|(src, dst, vlan, kind)| {
        let mut f = frame(src, dst, 0);
        match kind {
            1 => f[0] = 0xff,
            2 => f[..6].fill(0xff),
            3 => f[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0, 0, 0]),
            4 => f[..6].copy_from_slice(&[0x01, 0, 0x5e, 1, 2, 3]),
            _ => {}
        }
        if vlan > 0 {
            f.splice(12..12, [0x81, 0, 0, vlan * 10]);
        }
        f
    });
    let mutation = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (base, mutation, prop::option::weighted(0.2, any::<prop::sample::Index>())).prop_map(
        |(mut f, changes, cut)| {
            for (at, byte) in changes {
                let at = at.index(f.len());
                f[at] = byte;
            }
            if let Some(cut) = cut {
                f.truncate(cut.index(f.len()).max(1));
            }
            f
        },
    )
}

fn any_mode() -> impl Strategy<Value = VlanMode> {
    let vlan = |v: u16| VlanId::new(v).unwrap_or(VlanId::NONE);
    prop_oneof![
        Just(VlanMode::Transparent),
        (1..4_u16).prop_map(move |v| VlanMode::Access(vlan(v * 10))),
        prop::option::of(1..4_u16).prop_map(move |native| VlanMode::Trunk {
            allowed: [vlan(10), vlan(20)].into_iter().collect(),
            native: native.map(|v| vlan(v * 10)),
            native_tagged: false,
        }),
    ]
}

proptest! {
    /// Checks that `explain` predicts the processing of a frame correctly. The bridge must transmit the predicted
    /// frames through the predicted ports, or drop the frame for the predicted reason.
    #[test]
    fn explain_tells_what_happens(
        modes in prop::collection::vec((any_mode(), any::<bool>()), 4),
        frames in prop::collection::vec((0..4_u16, any_frame()), 1..40),
    ) {
        let mut config = transparent(4);
        for (port, (mode, protected)) in config.ports.iter_mut().zip(modes) {
            port.mode = mode;
            port.protected = protected;
        }
        let mut rig = Rig::new(&config);
        for (port, bytes) in frames {
            let before = rig.dropped();
            let told = rig.engine.explain(PortId(port), &bytes);
            prop_assert_eq!(&rig.dropped(), &before, "explain leaves no mark");
            rig.send(port, &bytes);
            rig.round();
            let mut told_outputs = told.outputs.clone();
            told_outputs.sort();
            let mut outputs = rig.outputs();
            outputs.sort();
            prop_assert_eq!(&told_outputs, &outputs);
            let after = rig.dropped();
            let dropped: Vec<u8> = (0..).zip(before.iter().zip(&after)).filter(|(_, (b, a))| a > b).map(|(i, _)| i).collect();
            let told_drops: Vec<u8> =
                told.steps.iter().filter_map(|s| if let Step::Dropped(r) = s { Some(*r as u8) } else { None }).collect();
            prop_assert_eq!(told_drops, dropped, "{:?}", told.steps);
        }
        rig.assert_accounted();
    }
}

/// Checks with random and mutated frames, truncated at every byte, that no panic occurs and every packet is accounted
/// for. The test sends 100,000 frames, or the number in the environment variable `TRIVIUM_SOAK_FRAMES` (`make soak`:
/// ten million).
#[test]
fn every_mutated_and_truncated_frame_is_accounted_for() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let wanted: u64 =
        std::env::var("TRIVIUM_SOAK_FRAMES").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let mut config = transparent(4);
    config.snooping = true;
    let vlan = |v: u16| VlanId::new(v).unwrap_or(VlanId::NONE);
    config.ports[1].mode = VlanMode::Access(vlan(10));
    config.ports[2].mode = VlanMode::Trunk {
        allowed: [vlan(10), vlan(20)].into_iter().collect(),
        native: Some(vlan(20)),
        native_tagged: false,
    };
    let mut rig = Rig::new(&config);
    let mut runner = TestRunner::deterministic();
    let mut sent = 0;
    while sent < wanted {
        let whole = any_frame().new_tree(&mut runner).unwrap().current();
        for cut in 1..=whole.len() {
            rig.send(u16::try_from(sent % 4).unwrap(), &whole[..cut]);
            sent += 1;
            if sent % 64 == 0 {
                rig.round();
                rig.outputs();
            }
        }
    }
    while rig.round() > 0 {
        rig.outputs();
    }
    assert_eq!(rig.totals().iter().map(|t| t.rx_packets).sum::<u64>(), sent);
    rig.assert_accounted();
}

/// Returns an IGMPv2 report of this host for 239.1.2.3.
fn igmp_report(host: u8) -> Vec<u8> {
    let mut f = vec![0; 60];
    f[..6].copy_from_slice(&[1, 0, 0x5e, 1, 2, 3]);
    f[6..12].copy_from_slice(&[2, 0, 0, 0, 0, host]);
    f[12..14].copy_from_slice(&[8, 0]);
    f[14..34].copy_from_slice(&[0x45, 0, 0, 28, 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 0, host, 239, 1, 2, 3]);
    f[34..42].copy_from_slice(&[0x16, 0, 0xfa, 0xfb, 239, 1, 2, 3]);
    f
}

/// Checks that ports which flood the snooper's ring leave space for the reports of other ports, and that the counters
/// of a port include the reports that did not fit into the ring.
#[test]
fn a_flood_of_reports_leaves_others_their_places_in_the_ring() {
    const FLOODING: u16 = 20;
    let mut config = transparent(FLOODING + 12);
    config.snooping = true;
    let bridge = Arc::new(Bridge::new(&config, 7));
    let ports: Vec<PortId> = config.ports.iter().map(|member| member.port).collect();
    let function = Function::Bridge(Arc::clone(&bridge));
    let mut rig = Rig::with(&EngineConfig::default(), &ports, |_| function.clone());
    let mut copies = rig.engine.punts().unwrap().remove(0);
    rig.worker.round_with_commands();
    let mut read = |rig: &mut Rig, port: u16| {
        let mut of_port = 0;
        while let Some(punt) = copies.pop() {
            of_port += u32::from(punt.port == PortId(port));
            rig.pool.free(punt.packet);
        }
        of_port
    };
    // A member may have 50 copies at once. 20 members have 1000, which is four times the capacity of the
    // ring.
    let sent = |rig: &mut Rig, ports: std::ops::Range<u16>, times: u32| {
        for port in ports {
            for _ in 0..times {
                rig.send(port, &igmp_report(u8::try_from(port + 1).unwrap()));
            }
            while rig.round() > 0 {}
            rig.outputs();
        }
    };
    sent(&mut rig, 0..FLOODING, 50);
    sent(&mut rig, FLOODING..FLOODING + 12, 2);
    let missed = |port: u16| bridge.snooped_incompletely(PortId(port)).is_some();
    assert!((3..FLOODING).all(missed), "members whose copies were left out");
    assert!((FLOODING..FLOODING + 12).all(|port| !missed(port)), "members that send little");
    assert!(!missed(0), "what the ring has places for");
    assert_eq!(read(&mut rig, FLOODING + 11), 2);
    // After the copies are read, the ring has space again.
    sent(&mut rig, FLOODING..FLOODING + 1, 40);
    assert_eq!(read(&mut rig, FLOODING), 40);
    assert!(!missed(FLOODING));
    rig.assert_accounted();
}

/// Checks that a port that is down neither sends nor receives, that no address is learned from it, and that
/// `explain` reports it.
#[test]
fn a_port_that_is_down_does_nothing() {
    let mut rig = Rig::new(&transparent(3));
    rig.send(1, &frame(2, 9, 0));
    rig.round();
    rig.outputs();
    let set = |rig: &mut Rig, up: bool| {
        rig.publish(move |f| f.ports[0].as_mut().unwrap().up = up);
    };
    set(&mut rig, false);
    rig.send(0, &frame(1, 2, 0));
    rig.round();
    assert_eq!(rig.outputs(), [], "in by a port that is down");
    rig.send(1, &frame(2, 1, 0));
    rig.round();
    // The location of host 1 has not been learned. The frame is flooded, and only the port that is up
    // transmits it.
    assert_eq!(rig.outputs().iter().map(|(port, _)| port.0).collect::<Vec<_>>(), [2]);
    for port in [0, 1] {
        assert_eq!(rig.totals()[port].drops[DropReason::PortDown as usize], 1, "each where it came in");
    }
    let told = rig.engine.explain(PortId(0), &frame(1, 2, 0));
    assert_eq!(told.steps.last(), Some(&Step::Dropped(DropReason::PortDown)));
    set(&mut rig, true);
    rig.send(0, &frame(1, 2, 0));
    rig.round();
    assert_eq!(rig.outputs().len(), 1);
    rig.assert_accounted();
}
