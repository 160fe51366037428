//! Tests in which a malicious sender attacks the other senders of an OpenFlow bridge: with many masks, many cache
//! misses, and many megaflows. The tests count packets and lookups. `trivium bench tuple-explosion` measures packet
//! rates.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and gives up after a time"
)]

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::frame;
use common::rules::{Switch, barrier, out};
use packet::{DropReason, PortId};
use switch::flow::{
    Action, Band, BandKind, Conjunction, Field, FlowMod, Instructions, Match, Meter, MeterMod, Mod,
};

/// Returns a UDP over IPv4 packet.
fn packet(source: u32, ports: [u16; 2]) -> Vec<u8> {
    let mut own = frame(1, 2, 0);
    own[26..30].copy_from_slice(&source.to_be_bytes());
    own[34..36].copy_from_slice(&ports[0].to_be_bytes());
    own[36..38].copy_from_slice(&ports[1].to_be_bytes());
    own
}

const FRIEND: u32 = 0x0a00_0001;
const FRIENDS_PORT: u16 = 12_345;
const SERVICE: u16 = 80;

/// Creates a switch with an access list of three rules. The rules match the destination port, the source address and
/// the source port, in this order. Packets that match one of the rules are sent to the last port.
fn access_list() -> Switch {
    let mut switch = Switch::new(4);
    let ip = Match::ANY.with(Field::EthType, 0x0800);
    let udp = ip.with(Field::IpProto, 17);
    let allowed = [
        (40, udp.with(Field::UdpDst, u128::from(SERVICE))),
        (30, ip.with(Field::Ipv4Src, u128::from(FRIEND))),
        (20, udp.with(Field::UdpSrc, u128::from(FRIENDS_PORT))),
    ];
    for (priority, matching) in allowed {
        switch.add(0, priority, matching, vec![out(4)]);
    }
    switch.modify(&[Mod::Flow(Box::new(FlowMod::add(0, 0, Match::ANY, Instructions::apply(Vec::new()))))]);
    // The exact-match cache would hide the cost of masks.
    switch.rig.engine.set_exact_cache(None).unwrap();
    switch.rig.worker.round_with_commands();
    switch
}

/// Calls `send` with bursts of 256 packets until all 8,192 different packets are sent. Each packet differs from each of
/// the three rules of the access list in exactly one bit. Returns the number of packets.
fn attack(mut send: impl FnMut(&[Vec<u8>])) -> u64 {
    let mut burst = Vec::new();
    for number in 0..32 * 16 * 16_u32 {
        let ports = [FRIENDS_PORT ^ 1 << (number % 16), SERVICE ^ 1 << (number / 16 % 16)];
        burst.push(packet(FRIEND ^ 1 << (number / 256), ports));
        if burst.len() == 256 {
            send(&burst);
            burst.clear();
        }
    }
    32 * 16 * 16
}

/// Sends packets to the port with the index `port`, and waits until they are processed. Returns the number of
/// transmitted packets, and the number of mask lookups per packet.
fn passed(switch: &mut Switch, port: u16, packets: &[Vec<u8>]) -> (usize, f64) {
    let before = switch.view().counters.probes;
    let mut left = 0;
    for burst in packets.chunks(256) {
        burst.iter().for_each(|packet| switch.rig.send(port, packet));
        left += switch.outputs().len();
    }
    let probes = switch.view().counters.probes - before;
    (left, f64::from(u32::try_from(probes).unwrap()) / f64::from(u32::try_from(packets.len()).unwrap()))
}

/// Returns 4,000 packets that the access list accepts. Some of them match the rule for the destination port, the others
/// match the rule for the source address.
fn victims() -> Vec<Vec<u8>> {
    let by_service = |n: u32| packet(0x0b00_0000 + n % 97, [5000 + n.to_le_bytes()[0] as u16, SERVICE]);
    let by_address = |n: u32| packet(FRIEND, [40_000, 7000 + u16::try_from(n % 11).unwrap()]);
    let one = |n: u32| if n.is_multiple_of(8) { by_address(n) } else { by_service(n) };
    (0..4000).map(one).collect()
}

#[test]
fn an_attack_on_the_tuple_space_costs_another_port_no_look_up_and_its_own_few() {
    let mut switch = access_list();
    let victims = victims();
    assert_eq!(passed(&mut switch, 0, &victims).0, 4000);
    let rerank = |switch: &mut Switch| {
        for _ in 0..20_000 {
            switch.rig.round();
        }
    };
    rerank(&mut switch);
    let (_, quiet) = passed(&mut switch, 0, &victims);
    // The victims use the attacker's port, and then another port.
    passed(&mut switch, 1, &victims);
    rerank(&mut switch);
    let (_, own_quiet) = passed(&mut switch, 1, &victims);
    let before = switch.view();
    let mut sent = 0;
    sent += attack(|burst| assert_eq!(passed(&mut switch, 1, burst).0, 0, "the access list holds"));
    let after = switch.view();
    let asked = after.counters.probes - before.counters.probes;
    assert!(asked <= sent * 66, "{asked} look-ups by masks for {sent} packets");
    assert!(after.masks <= before.masks + 65, "{} masks, {} before", after.masks, before.masks);
    let narrowed = switch.slow_path.view().narrowed.load(Ordering::Relaxed);
    assert!(narrowed > 100, "{narrowed} flows of every bit: the attack is none");
    assert_eq!(switch.rig.dropped()[DropReason::RuleDrop.index()], sent);
    let (left, attacked) = passed(&mut switch, 0, &victims);
    assert_eq!((left, attacked), (4000, quiet), "another port's packets ask its own masks");
    // After a rerank, the masks of a victim on the attacker's port come first if they have more hits.
    rerank(&mut switch);
    let (left, attacked) = passed(&mut switch, 1, &victims);
    assert_eq!(left, 4000);
    assert!(attacked <= own_quiet * 1.25, "{attacked} look-ups a packet, {own_quiet} before");
    switch.rig.assert_accounted();
}

#[test]
fn a_mask_that_many_ask_for_takes_the_place_of_one_that_serves_nobody() {
    let mut switch = access_list();
    attack(|burst| assert_eq!(passed(&mut switch, 1, burst).0, 0));
    // New hosts arrive all the time, from a network whose flows need a mask of their own.
    let network = Match::ANY.with(Field::EthType, 0x0806);
    switch.add(0, 50, network, vec![out(4)]);
    let mut neighbour = frame(1, 2, 0);
    neighbour[12..14].copy_from_slice(&[0x08, 0x06]);
    neighbour[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
    let (begin, mut host) = (Instant::now(), 0_u32);
    loop {
        let asked = switch.tables.upcalls();
        for _ in 0..64 {
            host += 1;
            neighbour[8..12].copy_from_slice(&host.to_be_bytes());
            switch.rig.send(1, &neighbour);
        }
        assert_eq!(switch.outputs().len(), 64);
        let asked = switch.tables.upcalls() - asked;
        assert!(host > 64 || asked == 64, "there is no room for its mask, {asked} are asked about");
        if asked == 0 {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "each is still asked about");
    }
    switch.rig.assert_accounted();
}

#[test]
fn a_storm_of_misses_leaves_others_their_packets_and_their_flows() {
    const STEPS: u32 = 300;
    let mut switch = Switch::new(3);
    // Each source has its own megaflow.
    switch.add(0, 5, Match::ANY.with(Field::EthSrc, 0x0200_0000_ffff), vec![]);
    switch.add(0, 1, Match::ANY, vec![out(3)]);
    switch.slow_path.knobs().limit.store(1000, Ordering::Relaxed);
    let begin = Instant::now();
    while switch.slow_path.view().limit.load(Ordering::Relaxed) != 1000 {
        assert!(begin.elapsed() < Duration::from_secs(60));
        switch.slow_path.round();
    }
    let station = |kind: u8, number: u32| {
        let mut own = frame(1, 2, number);
        own[7] = kind;
        own[8..12].copy_from_slice(&number.to_be_bytes());
        own
    };
    for known in 0..20 {
        switch.rig.send(1, &station(1, known));
    }
    assert_eq!(switch.outputs().len(), 20);
    let (mut sent, mut left) = (0, 0);
    for step in 0..STEPS {
        for number in 0..256 {
            switch.rig.send(0, &station(9, step * 256 + number));
        }
        // Each step sends known sources, one new source, and the source before the last again.
        for known in 0..20 {
            switch.rig.send(1, &station(1, known));
        }
        switch.rig.send(1, &station(2, step));
        switch.rig.send(1, &station(2, step.saturating_sub(2)));
        sent += 22;
        // The numbers of worker and slow-path rounds match those of a system with a core for each.
        switch.rig.round();
        switch.slow_path.round();
        left += switch.rig.outputs().iter().filter(|(_, frame)| frame[7] != 9).count();
    }
    switch.settle();
    left += switch.rig.outputs().iter().filter(|(_, frame)| frame[7] != 9).count();
    assert!(left * 10 >= sent * 9, "{left} of {sent}");
    assert!(switch.rig.dropped()[DropReason::UpcallLimit.index()] > 1000, "a storm that is none");
    // The attacker's megaflows do not keep other megaflows out of the cache.
    let list = switch.tables.megaflows();
    let mut flows = Vec::new();
    loop {
        // The slow path sends no more megaflows than the channel of the list holds.
        switch.settle();
        let before = flows.len();
        flows.extend(list.try_iter());
        if flows.len() == before {
            break;
        }
    }
    let kept = flows.iter().filter(|flow| flow.port == PortId(1)).count();
    assert!(
        kept * 10 >= (20 + STEPS as usize) * 9,
        "{kept} flows of {} stations, {} in all",
        20 + STEPS,
        flows.len()
    );
    assert!(flows.len() <= 1250, "{}", flows.len());
    switch.rig.assert_accounted();
}

#[test]
fn the_frames_that_wait_for_a_storm_are_bounded() {
    let mut switch = Switch::new(2);
    switch.add(0, 1, Match::ANY, vec![out(2)]);
    // The slow path never returns the first packet of one flow. A limited number of later packets of the flow waits for
    // it.
    for sequence in 0..3000 {
        switch.rig.send(0, &frame(1, 2, sequence));
        if sequence % 200 == 199 {
            switch.rig.round();
        }
    }
    assert_eq!(switch.rig.dropped()[DropReason::UpcallLimit.index()], 3000 - 513);
    assert_eq!(switch.outputs().len(), 513);
    switch.rig.assert_accounted();
}

/// Checks that the packets of one port that wait for the slow path leave space for packets of other ports. The packets
/// of a new flow from another port wait for the slow path, and all of them are then transmitted.
#[test]
fn waiting_packets_of_one_port_leave_places_for_another_ports() {
    let mut switch = Switch::new(4);
    switch.add(0, 1, Match::ANY, vec![out(4)]);
    // The attacker sends ten flows with 450 packets each, more than the total limit, while the slow path is
    // busy.
    for flow in 0..10 {
        for _ in 0..450 / 90 {
            (0..90).for_each(|_| switch.rig.send(1, &packet(0x0b00_0000 + flow, [1000, 2000])));
            switch.rig.round();
            switch.rig.round();
        }
    }
    let victim = packet(FRIEND, [3000, 4000]);
    (0..50).for_each(|_| switch.rig.send(0, &victim));
    switch.rig.round();
    switch.rig.round();
    let left =
        switch.outputs().into_iter().filter(|(_, bytes)| bytes[26..30] == FRIEND.to_be_bytes()).count();
    assert_eq!(left, 50, "packets of the victim's flow that left");
    let totals = switch.rig.totals();
    assert_eq!(totals[0].dropped(), 0);
    assert!(totals[1].dropped() > 0, "the attacker's packets beyond its share are dropped");
}

/// Checks that packets that span many frames, such as packets from TAP ports, occupy only a limited part of the frame
/// memory during an upcall. The limits apply to the packets that the slow path processes, and to the packets that wait
/// in the worker. The packets of another port are still forwarded.
#[test]
fn the_frames_of_large_packets_that_wait_are_limited() {
    let mut switch = Switch::new(4);
    switch.add(0, 1, Match::ANY, vec![out(4)]);
    let large = |source: u32| {
        let mut own = packet(source, [1000, 2000]);
        own.resize(65_000, 0);
        own
    };
    let segments = {
        let one = switch.rig.pool.alloc_copy(&large(0)).unwrap();
        let segments = u64::from(one.segments());
        switch.rig.pool.free(one);
        segments
    };
    assert!(segments > 30);
    let lost = |switch: &Switch| switch.rig.totals()[1].drops[DropReason::UpcallLimit.index()];
    // Each packet is the first packet of its flow.
    (0..64).for_each(|flow| switch.rig.send(1, &large(0x0b00_0000 + flow)));
    switch.rig.round();
    let first = lost(&switch);
    assert_eq!(64 - first, 512 / segments, "packets at the slow path");
    // The other packets wait for the slow path to return the first packet of their flow.
    (0..120).for_each(|_| switch.rig.send(1, &large(0x0b00_0000)));
    switch.rig.round();
    assert_eq!(120 - (lost(&switch) - first), 2048 / segments, "packets that wait in the worker");
    for flow in 0..50 {
        (0..2).for_each(|_| switch.rig.send(0, &packet(FRIEND + flow, [3000, 4000])));
    }
    switch.rig.round();
    let left = switch.outputs().into_iter().filter(|(_, bytes)| bytes.len() == 64).count();
    assert_eq!((left, switch.rig.totals()[0].dropped()), (100, 0));
    // Packets that were returned no longer count.
    let before = lost(&switch);
    (0..10).for_each(|flow| switch.rig.send(2, &large(0x0c00_0000 + flow)));
    (0..10).for_each(|flow| switch.rig.send(1, &large(0x0d00_0000 + flow)));
    switch.outputs();
    assert_eq!(lost(&switch), before);
    switch.rig.assert_accounted();
}

/// Checks that the slow path serves each port for a limited time. Packets of one port whose lookups take long therefore
/// do not delay the packets of other ports.
#[test]
fn packets_that_are_much_work_end_their_ports_turn() {
    let mut switch = Switch::new(3);
    // The rules contain about 30,000 conjunctions, none of which is complete.
    let part = |id| Action::Conjunction(Conjunction { id, clause: 0, clauses: 2 });
    for rule in 0..8 {
        let parts = (0..4000).map(|id| part(rule * 4000 + id)).collect();
        switch.add(0, 1000 + u16::try_from(rule).unwrap(), Match::ANY.with(Field::InPort, 1), parts);
    }
    // Each source has its own megaflow.
    switch.add(0, 5, Match::ANY.with(Field::EthSrc, 0x0200_0000_ffff), vec![]);
    switch.add(0, 1, Match::ANY, vec![out(3)]);
    let station = |port: u8, number: u8| {
        let mut own = frame(1, 2, 0);
        (own[10], own[11]) = (port, number);
        own
    };
    for number in 0..64 {
        switch.rig.send(0, &station(0, number));
        switch.rig.send(1, &station(1, number));
    }
    switch.rig.round();
    // A round may end after the expensive packets. The next round then continues with the other port.
    let (mut much, mut usual) = (0, 0);
    for _ in 0..4 {
        switch.slow_path.round();
        switch.rig.round();
        let outputs = switch.rig.outputs();
        much += outputs.iter().filter(|(_, frame)| frame[10] == 0).count();
        usual += outputs.iter().filter(|(_, frame)| frame[10] == 1).count();
    }
    assert!((1..=32).contains(&much), "{much} packets of much work in four rounds");
    assert_eq!(usual, 64, "usual packets in four rounds");
    switch.settle();
    switch.rig.assert_accounted();
}

/// Checks that the barrier of a bridge is not delayed by another bridge whose megaflows take long to revalidate.
#[test]
fn flows_that_are_much_work_keep_no_other_bridges_barrier_waiting() {
    let mut switch = Switch::new(3);
    let other = switch.another_bridge(1);
    // The rules contain about 30,000 conjunctions, none of which is complete.
    let part = |id| Action::Conjunction(Conjunction { id, clause: 0, clauses: 2 });
    for rule in 0..8 {
        let parts = (0..4000).map(|id| part(rule * 4000 + id)).collect();
        switch.add(0, 1000 + u16::try_from(rule).unwrap(), Match::ANY.with(Field::InPort, 1), parts);
    }
    // Each source has its own megaflow.
    switch.add(0, 5, Match::ANY.with(Field::EthSrc, 0x0200_0000_ffff), vec![]);
    switch.add(0, 1, Match::ANY, vec![out(3)]);
    for number in 0..64 {
        let mut packet = frame(1, 2, 0);
        packet[11] = number;
        switch.rig.send(0, &packet);
    }
    switch.settle();
    assert_eq!(switch.view().flows, 64);
    switch.add(0, 2, Match::ANY.with(Field::InPort, 1), vec![out(2)]);
    let (own, others) = (barrier(&switch.tables), barrier(&other));
    let begin = Instant::now();
    while !others.load(Ordering::Acquire) {
        assert!(begin.elapsed() < Duration::from_secs(10), "the other bridge's barrier waits");
        switch.slow_path.round();
        switch.rig.round();
    }
    assert!(!own.load(Ordering::Acquire), "the other bridge's barrier waited for the expensive megaflows");
    while !own.load(Ordering::Acquire) {
        assert!(begin.elapsed() < Duration::from_secs(10), "the bridge's own barrier waits");
        switch.slow_path.round();
        switch.rig.round();
    }
    switch.rig.assert_accounted();
}

/// Checks that the time for the translation of `meter` actions does not depend on the number of meters. A flow entry
/// with 4,000 `meter` actions is translated quickly although 65,536 meters exist.
#[test]
fn meters_are_found_by_their_numbers() {
    const METERS: u32 = 65_536;
    let mut switch = Switch::new(2);
    let bands = vec![Band { kind: BandKind::Drop, rate: 1_000_000, burst: 0 }];
    let meter = |id| Meter { id, packets: true, bursts: false, stats: true, bands: bands.clone() };
    let mods: Vec<Mod> = (1..=METERS).map(|id| Mod::Meter(MeterMod::Add(meter(id)))).collect();
    switch.modify(&mods);
    let all_of = |last: u32| (0..4000).map(|n| Action::Meter(METERS - n % last)).chain([out(2)]).collect();
    switch.add(0, 5, Match::ANY.with(Field::EthSrc, 0x0200_0000_0001), all_of(1));
    switch.add(0, 5, Match::ANY.with(Field::EthSrc, 0x0200_0000_0002), all_of(4000));
    for number in 1..=2 {
        let mut packet = frame(1, 2, 0);
        packet[6..12].copy_from_slice(&[2, 0, 0, 0, 0, number]);
        switch.rig.send(0, &packet);
        switch.rig.round();
        let begin = Instant::now();
        switch.slow_path.round();
        let took = begin.elapsed();
        // A search of all meters for each step would take over 200 ms.
        assert!(took < Duration::from_millis(80), "{number}: {took:?}");
        assert_eq!(switch.outputs().len(), 1, "{number}");
    }
    switch.slow_path.round();
    let counted = || switch.tables.lock().meter_stats(0).iter().map(|meter| meter.packets).sum::<u64>();
    let begin = Instant::now();
    while counted() != 8000 {
        assert!(begin.elapsed() < Duration::from_secs(10), "{} packets were counted", counted());
        switch.slow_path.round();
    }
}

/// Checks that a control thread which locks a bridge's rules for a long time delays only that bridge. Upcalls, barriers
/// and the expiry of flow entries continue on other bridges. The work for the locked bridge is done after the lock is
/// released.
#[test]
fn rules_that_are_held_keep_no_other_bridge_waiting() {
    let mut switch = Switch::new(2);
    let other = switch.another_bridge(1);
    switch.add(0, 1, Match::ANY, vec![out(2)]);
    let mut known = frame(1, 2, 0);
    switch.rig.send(0, &known);
    assert_eq!(switch.outputs().len(), 1);
    // The barrier requires the revalidation of a megaflow of the bridge.
    let tables = Arc::clone(&switch.tables);
    let held = tables.lock();
    known[11] = 9;
    switch.rig.send(0, &known);
    let (own, others) = (barrier(&tables), barrier(&other));
    let begin = Instant::now();
    while !others.load(Ordering::Acquire) {
        assert!(begin.elapsed() < Duration::from_secs(10), "the other bridge's barrier waits");
        switch.rig.round();
        switch.slow_path.round();
    }
    // Rules expire and megaflows are revalidated within this second.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(1200) {
        switch.rig.round();
        switch.slow_path.round();
    }
    assert!(!own.load(Ordering::Acquire), "flows of the bridge were not looked at");
    drop(held);
    assert_eq!(switch.outputs().len(), 1);
    while !own.load(Ordering::Acquire) {
        assert!(begin.elapsed() < Duration::from_secs(10), "the bridge's own barrier waits");
        switch.rig.round();
        switch.slow_path.round();
    }
    switch.barrier();
    let begin = Instant::now();
    let counted = || tables.lock().flows(&switch::flow::FlowFilter::default(), 0)[0].packets;
    while counted() != 2 {
        assert!(begin.elapsed() < Duration::from_secs(10), "{} packets were counted", counted());
        switch.slow_path.round();
    }
    switch.rig.assert_accounted();
}

/// Checks that packets of one port that the slow path releases, and that are divided into very many segments, leave
/// segments for the packets of another port that it releases in the same round.
#[test]
fn released_segments_of_one_port_leave_segments_for_another_port() {
    let mut switch = Switch::new(3);
    // Each packet has a flow of its own, and so each waits for the slow path.
    let exact = Match::ANY.with(Field::EthType, 0x0800).with(Field::IpProto, 17).with(Field::UdpSrc, 9);
    switch.add(0, 20, exact, vec![]);
    switch.add(0, 10, Match::ANY, vec![out(3)]);
    (0..40).for_each(|number| switch.rig.send_large(0, 1000 + number, 1000));
    (0..100).for_each(|number| switch.rig.send_large(1, 2000 + number, 50));
    for _ in 0..8 {
        switch.rig.round();
    }
    while switch.slow_path.round() {}
    switch.rig.round();
    let dropped = |port| switch.rig.engine.port_totals(PortId(port)).drops[DropReason::CloneBudget.index()];
    assert_eq!((dropped(0), dropped(1)), (40 - 8, 0));
}
