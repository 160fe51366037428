//! Compares the hook's cached-flow stage with the worker: the frames that the stage handles, the flow that it finds for
//! each frame, and every octet of its output.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "what a test cannot go on without fails it"
)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use offload::action;
use packet::{FlowKey, L3Kind, PortId};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use switch::flow::{ExtendedKey, Field, Flow, Op, Program, SetBits, rewrite};
use testbed::{Lab, require};
use xdp::StageChange;
use xdp::bridge::BridgeDevices;
use xdp::flows::{FlowAction, FlowPort, FlowStage, FlowTable, FlowWriter, Refused};
use xdp::{
    AttachMode, Attached, Counter, Loaded, LocalAddresses, Owner, PortProgram, ProgramConfig, WhenDown,
    wait_for_programs,
};

const IN: PortId = PortId(0x102);
const OUT: PortId = PortId(3);
const LONGEST: u32 = 1514;

/// A generator of pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    fn octets<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.next() as u8)
    }
}

fn l4(dice: &mut Dice, proto: u8) -> Vec<u8> {
    let ports = [dice.of(&[[0, 80], [0, 0], [0xff, 0xff]]), dice.of(&[[0x13, 0x88], [0, 53]])].concat();
    let rest = match proto {
        6 => {
            let words = dice.of(&[5_u8, 5, 5, 6, 4, 15]);
            let flags = dice.of(&[0x02_u8, 0x10, 0x18, 0xff]);
            let mut rest =
                [vec![0, 0, 0, 1, 0, 0, 0, 2, words << 4 | dice.below(16) as u8, flags], vec![1; 6]].concat();
            rest.resize(16 + dice.of(&[0, 4, 30]), 7);
            rest
        }
        _ => vec![dice.next() as u8; dice.of(&[4, 8, 20])],
    };
    let mut octets = [ports, rest].concat();
    let at = if proto == 6 {
        16
    } else if proto == 17 {
        6
    } else {
        2
    };
    let sum = dice.of(&[[0, 0], [0xff, 0xff], [0x12, 0x34], [0xff, 0xfe], [0, 1]]);
    octets[at..at + 2].copy_from_slice(&sum);
    if dice.one_in(20) {
        octets.truncate(dice.below(octets.len()));
    }
    octets
}

fn address<const N: usize>(dice: &mut Dice) -> [u8; N] {
    let mut octets = dice.of(&[[10_u8; N], [0xff; N], [0; N]]);
    octets[N - 1] = dice.below(3) as u8;
    octets
}

/// Returns a frame, mostly of a common kind and sometimes malformed.
fn frame(dice: &mut Dice) -> Vec<u8> {
    let mut frame = [[2, 0, 0, 0, 0, dice.below(3) as u8], [2, 0, 0, 0, 1, dice.below(2) as u8]].concat();
    for _ in 0..dice.of(&[0, 0, 0, 1, 1, 1, 2]) {
        frame.extend(dice.of(&[[0x81, 0x00], [0x81, 0x00], [0x88, 0xa8]]));
        frame.extend(dice.of(&[[0x00, 0x0a], [0x60, 0x0a], [0x10, 0x14], [0x00, 0x00], [0x0f, 0xff]]));
    }
    let proto = dice.of(&[6_u8, 6, 17, 17, 1, 2, 58, 132, 47, 59, 0, 43, 44]);
    match dice.below(12) {
        0..5 => {
            let message = l4(dice, proto);
            let options = if dice.one_in(12) { 4 } else { 0 };
            let mut head = vec![0x45 + options / 4, dice.of(&[0, 0xb8, 3]), 0, 0, 0, 1, 0, 0];
            if dice.one_in(12) {
                head[6] = dice.of(&[0x20, 0x00, 0x40]);
                head[7] = dice.of(&[0, 5]);
            }
            head.extend([dice.of(&[64, 1, 0, 255]), proto]);
            head.extend(dice.of(&[[0, 0], [0xff, 0xff], [0x43, 0x21]]));
            head.extend(address::<4>(dice));
            head.extend(address::<4>(dice));
            head.resize(20 + usize::from(options), 1);
            let total = head.len() + message.len() + if dice.one_in(15) { dice.below(9) } else { 0 };
            head[2..4].copy_from_slice(&(total as u16).to_be_bytes());
            frame.extend([0x08, 0x00]);
            frame.extend(head);
            frame.extend(message);
        }
        5..9 => {
            let message = l4(dice, proto);
            frame.extend([0x86, 0xdd, 0x60 | dice.of(&[0, 0xb, 3]), dice.of(&[0, 0x80, 0x35]), 1, 2]);
            let payload = message.len() + if dice.one_in(15) { dice.below(9) } else { 0 };
            frame.extend((payload as u16).to_be_bytes());
            frame.extend([proto, dice.of(&[64, 1, 255])]);
            frame.extend(address::<16>(dice));
            frame.extend(address::<16>(dice));
            frame.extend(message);
        }
        9 => {
            frame.extend(dice.of(&[[0x08, 0x06], [0x80, 0x35]]));
            let mut arp =
                vec![0, dice.of(&[1, 1, 1, 6]), 8, 0, 6, dice.of(&[4, 4, 4, 6]), dice.of(&[0, 0, 1]), 2];
            arp.extend([2, 0, 0, 0, 1, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
            frame.extend(arp);
        }
        10 => {
            frame.extend(dice.of(&[[0x88, 0xb5], [0x88, 0x47], [0x88, 0xcc]]));
            frame.extend(dice.octets::<20>());
        }
        // LLC, and SNAP followed by IPv4.
        _ => frame.extend([
            0, 30, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10,
            0, 0, 2,
        ]),
    }
    if dice.one_in(25) {
        let at = dice.below(frame.len());
        frame[at] = dice.next() as u8;
    }
    let least = dice.of(&[60, 14, 18, 70, LONGEST as usize, LONGEST as usize + 4]);
    if !dice.one_in(3) && frame.len() < least {
        frame.resize(least, 0x5a);
    }
    frame
}

/// Returns a mask that a flow could have. The mask is similar to the masks that real flow entries cause.
fn mask(dice: &mut Dice, key: &FlowKey) -> FlowKey {
    let mut flow = Flow::ZERO;
    let fields = [
        Field::EthDst,
        Field::EthSrc,
        Field::EthType,
        Field::VlanTci,
        Field::IpProto,
        Field::IpDscp,
        Field::IpEcn,
        Field::NwTtl,
        Field::TcpFlags,
        Field::TcpSrc,
        Field::TcpDst,
        Field::Ipv6Src,
        Field::Ipv6Dst,
    ];
    for field in fields {
        if dice.one_in(3) {
            flow.want(field);
        }
    }
    if dice.one_in(3) {
        flow.set(Field::Ipv4Dst, 0xffff_ff00);
    }
    // Fields that the operations write are matched first.
    flow.want(Field::EthType);
    if matches!(key.l3_kind(), L3Kind::Ipv4 | L3Kind::Ipv6) {
        flow.want(Field::IpProto);
    }
    let mut mask = flow.key();
    mask.set_in_port(PortId(u16::MAX));
    mask
}

fn program(dice: &mut Dice, key: &FlowKey) -> Program {
    let mut ops = Vec::new();
    let (mut value, mut bits) = (Flow::ZERO, Flow::ZERO);
    let mut set = |dice: &mut Dice, field: Field| {
        if dice.one_in(3) {
            let odd = u128::from(dice.next()) << 64 | u128::from(dice.next());
            bits.set(field, if dice.one_in(3) { odd } else { u128::MAX });
            value.set(field, dice.of(&[odd, 0, u128::MAX]));
        }
    };
    set(dice, Field::EthDst);
    set(dice, Field::EthSrc);
    set(dice, Field::VlanTci);
    match key.l3_kind() {
        L3Kind::Ipv4 => {
            set(dice, Field::Ipv4Src);
            set(dice, Field::Ipv4Dst);
        }
        L3Kind::Ipv6 => {
            set(dice, Field::Ipv6Src);
            set(dice, Field::Ipv6Dst);
        }
        _ => {}
    }
    if matches!(key.l3_kind(), L3Kind::Ipv4 | L3Kind::Ipv6) {
        set(dice, Field::IpDscp);
        set(dice, Field::IpEcn);
        set(dice, Field::NwTtl);
        if [6, 17].contains(&key.proto()) {
            set(dice, Field::TcpSrc);
            set(dice, Field::TcpDst);
        }
    }
    let set = Op::Set(Box::new(SetBits { value: value.masked(&bits), mask: bits }));
    let tag = |dice: &mut Dice, ops: &mut Vec<Op>| {
        if key.is_tagged() && dice.one_in(3) {
            ops.push(Op::PopVlan);
        }
        if dice.one_in(3) {
            ops.push(Op::PushVlan(dice.of(&[0x8100, 0x88a8]), dice.of(&[0x1014, 0xe00a])));
        }
    };
    let first = dice.one_in(2);
    if first {
        tag(dice, &mut ops);
    }
    if bits != Flow::ZERO {
        ops.push(set);
    }
    if !first {
        tag(dice, &mut ops);
    }
    ops.push(Op::Output(OUT));
    if dice.one_in(8) {
        ops.clear();
    }
    Program { ops }
}

struct Hook {
    lab: Lab,
    _attached: Attached,
    loaded: Loaded,
    ifindex: u32,
    devices: BridgeDevices,
    writer: FlowWriter,
    stage: FlowStage,
}

impl Hook {
    fn new() -> Hook {
        let lab = Lab::new().unwrap();
        let link = |name: &str| -> u32 {
            let peer = format!("p{name}");
            lab.hub().run(["ip", "link", "add", name, "type", "veth", "peer", "name", &peer]).unwrap();
            let shown = lab.hub().run(["ip", "-o", "link", "show", "dev", name]).unwrap();
            shown.split(':').next().unwrap().parse().unwrap()
        };
        let (ifindex, out) = (link("n1"), link("n2"));
        let devices = BridgeDevices::new().unwrap();
        let table = FlowTable::new(64, 0x1234_5678_9abc_def1).unwrap();
        table.set_reached(OUT.0, Some(LONGEST));
        table.renew(u64::MAX);
        let config = ProgramConfig {
            owner: Owner::Bridged,
            when_down: WhenDown::Drop,
            queues: 1,
            locals: LocalAddresses::default(),
        };
        let made = lab.hub().inside(|| {
            devices.set(OUT.0, out).unwrap();
            let attached =
                PortProgram::load(&config).unwrap().attach(ifindex, AttachMode::Native, None).unwrap();
            let port = FlowPort { port: IN.0, partial_checksums: false };
            let stage = FlowStage::new(&port, &attached, &table, &devices, None).unwrap();
            let loaded = attached.prepare_stage(StageChange::Flows(Some(&stage))).unwrap();
            Ok((attached, loaded, stage))
        });
        let (attached, loaded, stage) = made.unwrap();
        Hook { lab, _attached: attached, loaded, ifindex, devices, writer: FlowWriter::new(&table), stage }
    }

    fn install(&mut self, key: &FlowKey, mask: &FlowKey, action: &FlowAction) -> Result<u32, Refused> {
        match self.writer.insert(key.words(), mask.words(), action) {
            // No program runs except those that a test waits for.
            Err(Refused::Soon) => self.writer.settle(self.writer.written()),
            other => return other,
        }
        self.writer.insert(key.words(), mask.words(), action)
    }

    /// Returns the result of the hook for a frame: `None` if the hook does not handle the frame, `Some(None)` if the
    /// hook drops the frame, and the transmitted frame in all other cases.
    fn answer(&self, frame: &[u8]) -> Option<Option<Vec<u8>>> {
        let count = || {
            let counters = self.loaded.counters().unwrap();
            let of = |counter| counters.get(counter);
            (of(Counter::FlowForwarded), of(Counter::FlowDropped), of(Counter::BridgeLost), counters.seen())
        };
        let before = count();
        let run = self.lab.hub().inside(|| Ok(self.loaded.test_run_from(frame, Some((self.ifindex, 0)), 1)));
        let after = count();
        assert_eq!(after.3, before.3 + 1, "one way out");
        assert_eq!(after.2, before.2, "lost");
        let run = run.unwrap().unwrap();
        if after.0 != before.0 {
            return Some(Some(run.frame));
        }
        (after.1 != before.1).then_some(None)
    }
}

/// Returns whether the hook's parser accepts a frame with these headers.
fn is_plain(frame: &[u8], key: &FlowKey, layers: &packet::Layers) -> bool {
    let tags = key.words()[0] >> 48 != 0;
    let at = if key.is_tagged() { 16 } else { 12 };
    // If the field is a length, LLC follows, possibly with SNAP.
    let llc = frame.get(at).is_none_or(|high| *high < 6);
    let odd = layers.malformed().is_some()
        || key.is_fragment()
        || layers.has_ipv4_options()
        || layers.has_ipv6_extensions();
    let is_arp = matches!(key.eth_type(), 0x0806 | 0x8035) && key.l3_kind() != L3Kind::Arp;
    frame.len() >= 18 && !tags && !llc && key.eth_type() >= 0x600 && !odd && !is_arp
}

#[test]
fn what_the_hook_answers_is_what_the_worker_would_have_sent() {
    require!("ip");
    let hook = RefCell::new(Hook::new());
    let counted: Cell<[u32; 4]> = Cell::new([0; 4]);
    let mut runner = TestRunner::new(Config { cases: 4000, failure_persistence: None, ..Config::default() });
    let done = runner.run(&any::<u64>(), |seed| {
        let (mut dice, mut hook) = (Dice(seed), hook.borrow_mut());
        let sample = frame(&mut dice);
        let mut key = FlowKey::ZERO;
        if FlowKey::extract(&sample, sample.len(), IN, &mut key).is_err() {
            prop_assert_eq!(hook.answer(&sample), None);
            return Ok(());
        }
        let mask = mask(&mut dice, &key);
        let program = program(&mut dice, &key);
        let Some(action) = action(&program, &key, &mask) else { return Ok(()) };
        let slot = hook.install(&key, &mask, &action).unwrap();
        let mut frames = vec![sample.clone()];
        for _ in 0..4 {
            // Other frames, and frames that differ slightly.
            frames.push(frame(&mut dice));
            let mut near = sample.clone();
            let at = dice.below(near.len().min(60));
            near[at] ^= 1 << dice.below(8);
            frames.push(near);
        }
        let (mut packets, mut bytes) = (0, 0);
        for frame in frames {
            let mut own = FlowKey::ZERO;
            let read = FlowKey::extract(&frame, frame.len(), IN, &mut own);
            let plain = read.is_ok_and(|layers| is_plain(&frame, &own, &layers));
            let meets = read.is_ok() && own.matches(&key, &mask);
            let mut sent = frame.clone();
            let done: Vec<_> = program.ops.iter().map(|op| rewrite(&mut sent, op)).collect();
            let tag = usize::from(matches!(sent[12..14], [0x81, 0x00] | [0x88, 0xa8])) * 4;
            let fits = program.ops.is_empty() || sent.len() - tag <= LONGEST as usize;
            let expected = (plain && meets && fits).then_some((!program.ops.is_empty()).then_some(sent));
            let answer = hook.answer(&frame);
            prop_assert_eq!(
                &answer,
                &expected,
                "{:x?}\nflow {:x?}\nmask {:x?}\nby {:?}\n{:?}",
                frame,
                key.words(),
                mask.words(),
                program,
                done
            );
            let mut all = counted.get();
            if answer.is_some() {
                (packets, bytes) = (packets + 1, bytes + frame.len() as u64);
                all[usize::from(program.ops.len() > 1) + usize::from(program.ops.is_empty()) * 2] += 1;
            }
            all[3] += 1;
            counted.set(all);
        }
        let counts = hook.writer.counts(slot);
        prop_assert_eq!((counts.packets, counts.bytes), (packets, bytes));
        hook.writer.remove(slot);
        prop_assert_eq!(hook.answer(&sample), None);
        hook.writer.release(slot);
        Ok(())
    });
    done.unwrap();
    let [plain, written, dropped, all] = counted.get();
    assert!(
        plain * 200 > all && written * 16 > all && dropped * 80 > all,
        "{:?}: too few to say anything",
        counted
    );
}

/// Returns a UDP packet of 60 octets. Packets with different numbers differ in each field.
fn numbered_frame(nth: u8, one: u8) -> Vec<u8> {
    let mut frame = vec![0x45; 60];
    frame[..14].copy_from_slice(&[2, nth, 0, 0, 0, one, 4, nth, 0, 0, 0, one, 8, 0]);
    frame[14..26].copy_from_slice(&[
        0x45,
        nth << 5 | one << 2,
        0,
        46,
        0,
        0,
        0,
        0,
        100 + nth * 8 + one,
        17,
        0,
        0,
    ]);
    frame[26..34].copy_from_slice(&[10, nth, 0, one, 11, nth, 0, one]);
    frame[34..42].copy_from_slice(&[nth, one, 1 + nth, one, 0, 26, 0, 0]);
    frame
}

/// Checks that each packet matches its own flow under each mask, and that each flow counts only its own packets.
#[test]
fn flows_are_found_by_every_mask_and_counted_apart() {
    require!("ip");
    let mut hook = Hook::new();
    let mut frames = BTreeMap::new();
    let masks = [
        Field::EthDst,
        Field::EthSrc,
        Field::Ipv4Src,
        Field::Ipv4Dst,
        Field::TcpSrc,
        Field::TcpDst,
        Field::NwTtl,
        Field::IpDscp,
    ];
    for (nth, field) in (0_u8..).zip(masks) {
        for one in 0..6_u8 {
            let frame = numbered_frame(nth, one);
            let mut key = FlowKey::ZERO;
            let layers = FlowKey::extract(&frame, 60, IN, &mut key).unwrap();
            let mut mask = Flow::ZERO;
            mask.want(Field::EthType);
            mask.want(field);
            let _ = ExtendedKey::extract(&frame, &key, &layers);
            let mut mask = mask.key();
            mask.set_in_port(PortId(u16::MAX));
            let action = action(&Program { ops: vec![Op::Output(OUT)] }, &key, &mask).unwrap();
            match hook.install(&key, &mask, &action) {
                Ok(slot) => drop(frames.insert(slot, frame)),
                Err(refused) => panic!("{refused:?}"),
            }
        }
    }
    assert_eq!(hook.writer.flows(), 48);
    for round in 1..=3 {
        for (slot, frame) in &frames {
            assert_eq!(hook.answer(frame), Some(Some(frame.clone())));
            assert_eq!(hook.writer.counts(*slot).packets, round);
        }
    }
    assert_eq!(hook.devices.counts(OUT.0).unwrap().tx_packets, 144);
    assert_eq!(hook.devices.counts(IN.0).unwrap().rx_bytes, 144 * 60);
    // A ninth mask has no place until all flows of another mask are released.
    let (first, frame) = frames.iter().next().map(|(slot, frame)| (*slot, frame.clone())).unwrap();
    let mut key = FlowKey::ZERO;
    FlowKey::extract(&frame, 60, IN, &mut key).unwrap();
    let mut other = FlowKey::ZERO;
    other.set_in_port(PortId(u16::MAX));
    let drops = FlowAction::default();
    assert_eq!(hook.install(&key, &other, &drops), Err(Refused::Masks));
    for slot in first..first + 6 {
        hook.writer.remove(slot);
    }
    wait_for_programs();
    assert_eq!(hook.install(&key, &other, &drops), Err(Refused::Masks), "counts are not taken yet");
    for slot in first..first + 6 {
        hook.writer.release(slot);
    }
    // Two flows need the one number that is left. The first to request it gets it, however often the other
    // requests it.
    let mut third = other;
    third.set_ttl(u8::MAX);
    let insert = |hook: &mut Hook, mask: &FlowKey| hook.writer.insert(key.words(), mask.words(), &drops);
    assert_eq!(insert(&mut hook, &other), Err(Refused::Soon));
    for _ in 0..3 {
        hook.writer.settle(hook.writer.written());
        assert_eq!(insert(&mut hook, &third), Err(Refused::Masks));
    }
    let slot = insert(&mut hook, &other).unwrap();
    assert_eq!((hook.writer.counts(slot).packets, hook.answer(&frame)), (0, Some(None)));
}

#[test]
fn nothing_is_answered_that_is_not_to_be() {
    require!("ip");
    let mut hook = Hook::new();
    let mut frame = vec![0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    let mut key = FlowKey::ZERO;
    FlowKey::extract(&frame, 60, IN, &mut key).unwrap();
    let mut mask = FlowKey::ZERO;
    mask.set_in_port(PortId(u16::MAX));
    let output = Program { ops: vec![Op::Output(OUT)] };
    let slot = hook.install(&key, &mask, &action(&output, &key, &mask).unwrap()).unwrap();
    assert!(hook.answer(&frame).is_some());
    let table = hook.writer.table().clone();
    table.set_reached(OUT.0, Some(59));
    assert_eq!(hook.answer(&frame), None, "too long");
    table.set_reached(OUT.0, None);
    assert_eq!(hook.answer(&frame), None, "its device is not reached");
    table.set_reached(OUT.0, Some(60));
    assert!(hook.answer(&frame).is_some());
    table.renew(1);
    assert_eq!(hook.answer(&frame), None, "nobody looks after the flows");
    table.renew(u64::MAX);
    hook.stage.orders().set_bypass(true);
    assert!(hook.answer(&frame).is_some(), "no worker is there that could be watched");
    hook.stage.orders().set_bypass(false);
    assert!(hook.answer(&frame).is_some());
    // Output to the receiving port, and operations that only workers execute.
    let not = |ops: Vec<Op>| assert_eq!(action(&Program { ops }, &key, &mask), None);
    not(vec![Op::Output(IN)]);
    not(vec![Op::Normal, Op::Output(OUT)]);
    not(vec![Op::PopVlan, Op::Normal]);
    not(vec![Op::Output(OUT), Op::Output(PortId(4))]);
    not(vec![Op::Meter(1), Op::Output(OUT)]);
    not(vec![Op::Meter(1)]);
    not(vec![Op::Clone(1), Op::Output(OUT), Op::Output(PortId(4))]);
    not(vec![Op::PopVlan, Op::Output(OUT)]);
    // NORMAL in a program that has no stations to look up.
    let normal = action(&Program { ops: vec![Op::Normal] }, &key, &mask).unwrap();
    hook.writer.remove(slot);
    frame[5] = 9;
    FlowKey::extract(&frame, 60, IN, &mut key).unwrap();
    let mut mask = Flow::ZERO;
    mask.want(Field::EthDst);
    let mut mask = mask.key();
    mask.set_in_port(PortId(u16::MAX));
    hook.install(&key, &mask, &normal).unwrap();
    assert_eq!(hook.answer(&frame), None, "nobody knows where it goes");
}
