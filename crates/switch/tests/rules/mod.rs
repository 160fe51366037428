//! Test functions that build a pipeline of flow tables, build packets, and run packets through the pipeline.
#![allow(dead_code, clippy::unwrap_used, reason = "test code; each test file uses its part")]

use packet::{FlowKey, MacAddr, PortId};
use switch::flow::{
    Action, ExtendedKey, Field, Flow, FlowMod, FlowPort, Instructions, Match, Mod, Op, Pipeline, PortDesc,
    TranslationInput, rewrite,
};

pub fn flow_port(number: u32) -> FlowPort {
    let desc =
        PortDesc { number, name: format!("p{number}"), mac: MacAddr([2; 6]), config: 0, state: 4, speed: 0 };
    FlowPort {
        id: PortId(u16::try_from(number).unwrap()),
        desc,
        floods: true,
        forwards: true,
        receives: true,
        live: true,
    }
}

pub fn pipeline() -> Pipeline {
    let mut pipeline = Pipeline::new();
    for number in 1..=4 {
        pipeline.set_port(number, Some(flow_port(number)));
    }
    pipeline
}

pub fn add(pipeline: &mut Pipeline, table: u8, priority: u16, matching: Match, actions: Vec<Action>) {
    let change = FlowMod::add(table, priority, matching, Instructions::apply(actions));
    pipeline.modify(&[Mod::Flow(Box::new(change))], 0).unwrap();
}

pub fn from(port: u32) -> Match {
    Match::ANY.with(Field::InPort, u128::from(port))
}

pub fn out(port: u32) -> Action {
    Action::Output { port, max_len: 0 }
}

pub fn set(field: Field, value: u128) -> Action {
    Action::Set { field, value, mask: field.all_ones(), load: false }
}

/// Builds a frame with a TCP packet over IPv4, with or without a VLAN tag, and with correct checksums.
pub fn tcp(vlan: Option<u16>, src: [u8; 4], dst: [u8; 4], ports: (u16, u16), ttl: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if let Some(vid) = vlan {
        frame.extend([0x81, 0x00]);
        frame.extend(vid.to_be_bytes());
    }
    frame.extend([0x08, 0x00]);
    let at = frame.len();
    frame.extend([0x45, 0, 0, 44, 0, 1, 0, 0, ttl, 6, 0, 0]);
    frame.extend(src);
    frame.extend(dst);
    let sum = packet::checksum::ipv4_header(&frame[at..at + 20]);
    frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ports.0.to_be_bytes());
    frame.extend(ports.1.to_be_bytes());
    frame.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0, b'a', b'b', b'c', b'd']);
    let pseudo = packet::checksum::l4_pseudo_v4(src.into(), dst.into(), 6, 24);
    packet::checksum::fill(&mut frame[at + 20..], 16, pseudo);
    frame
}

pub fn read(frame: &[u8], in_port: u32) -> Flow {
    let mut key = FlowKey::ZERO;
    let layers = FlowKey::extract(frame, frame.len(), PortId(0), &mut key).unwrap();
    Flow::new(&key, &ExtendedKey::extract(frame, &key, &layers), in_port)
}

pub fn asked<'a>(flow: &'a Flow, frame: Option<&'a [u8]>) -> TranslationInput<'a> {
    TranslationInput { flow, frame, trace: false }
}

/// Translates and executes the rules for a frame. Returns each transmitted frame with its output port.
pub fn run(pipeline: &Pipeline, frame: &[u8], in_port: u32) -> Vec<(PortId, Vec<u8>)> {
    let flow = read(frame, in_port);
    let translated = pipeline.translate(asked(&flow, Some(frame)));
    let mut left = Vec::new();
    execute(&translated.program.ops, frame.to_vec(), &mut left);
    left
}

pub fn execute(ops: &[Op], mut frame: Vec<u8>, left: &mut Vec<(PortId, Vec<u8>)>) {
    let mut at = 0;
    while at < ops.len() {
        match &ops[at] {
            Op::Output(port) => left.push((*port, frame.clone())),
            Op::Clone(n) => {
                execute(&ops[at + 1..at + 1 + usize::from(*n)], frame.clone(), left);
                at += usize::from(*n);
            }
            op => rewrite(&mut frame, op).unwrap(),
        }
        at += 1;
    }
}

pub fn is_sound(frame: &[u8]) -> bool {
    let mut key = FlowKey::ZERO;
    let layers = FlowKey::extract(frame, frame.len(), PortId(0), &mut key).unwrap();
    let (Some(l3), Some(l4)) = (layers.l3(), layers.l4()) else { return false };
    let len = u16::from_be_bytes([frame[l3 + 2], frame[l3 + 3]]);
    let end = l3 + usize::from(len);
    let pseudo = packet::checksum::l4_pseudo_v4(key.ipv4_src(), key.ipv4_dst(), 6, len - 20);
    let mut again = frame[l4..end].to_vec();
    packet::checksum::fill(&mut again, 16, pseudo);
    again == frame[l4..end] && packet::checksum::ipv4_header(&frame[l3..l3 + 20]) == 0
}
