//! Computes the outputs of `NORMAL` (forwarding by the learning bridge) for one packet, for `ofproto/trace`. Workers do
//! not use this module, because they forward each packet according to the MAC table at the time of its arrival.

use packet::record::{Recorder, Step, Steps, TagChange};
use packet::{DropReason, FlowKey, MacAddr, PortId, ethertype};

use super::translate::TCI;
use super::{Field, Flow, Op};
use crate::bridge::Bridge;
use crate::config::Now;
use crate::decision::Decision;
use crate::forward::Scratch;

const TAG: u128 = 0x1000;
/// EtherTypes of the service tag and the customer tag (IEEE 802.1Q table 9-1).
const TAGS: [[u8; 2]; 2] = [[0x88, 0xa8], [0x81, 0x00]];
/// EtherType of a constructed frame without payload: a local experimental EtherType (IEEE 802
/// clause 9.2.4). No headers are parsed after this EtherType.
const NOTHING: [u8; 2] = [0x88, 0xb5];

/// A packet on arrival, with the data that is needed to replace the `NORMAL` steps of its program with outputs to
/// ports.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Engine port on which the packet arrived.
    pub port: PortId,
    /// Flow of the packet on arrival.
    pub flow: &'a Flow,
    /// Frame of the packet. If a frame is given, the bridge learns the source address, as
    /// `ofproto/trace` of Open vSwitch does.
    pub frame: Option<&'a [u8]>,
    /// Time at which the packet arrived.
    pub now: Now,
}

/// An event that occurs when one `NORMAL` step is replaced with outputs. The trace report lists these events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NormalNote {
    /// The source address was learned on the ingress port, in this VLAN.
    Learned(MacAddr, u16),
    /// The destination address is in the MAC table, and the packet is forwarded to the port of this entry.
    ToStation,
    /// The MAC table has the destination address on the ingress port, and the packet is therefore dropped.
    BackToStation,
    /// The destination is unknown or a group address, and the packet is flooded.
    Flood,
    /// The packet is forwarded to the listeners of a multicast group and to multicast routers.
    Group,
    /// The packet is dropped for this reason.
    Dropped(DropReason),
}

/// A program whose `NORMAL` steps are replaced with outputs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resolved {
    /// Steps of the program.
    pub ops: Vec<Op>,
    /// Events of each `NORMAL` step, in the order of the steps in the program.
    pub notes: Vec<Vec<NormalNote>>,
}

/// Replaces each `NORMAL` step with outputs to the ports that the bridge would forward to.
#[must_use]
pub fn resolve(bridge: &Bridge, arrival: Arrival<'_>, ops: &[Op]) -> Resolved {
    let mut resolved = Resolved::default();
    let mut flow = *arrival.flow;
    resolved.ops = steps(bridge, arrival, ops, &mut flow, &mut resolved.notes);
    resolved
}

fn steps(
    bridge: &Bridge,
    arrival: Arrival<'_>,
    ops: &[Op],
    flow: &mut Flow,
    notes: &mut Vec<Vec<NormalNote>>,
) -> Vec<Op> {
    let mut all = Vec::new();
    let mut at = 0;
    while let Some(op) = ops.get(at) {
        at += 1;
        match op {
            Op::Normal => {
                let (outputs, told) = decide(bridge, arrival, flow);
                notes.push(told);
                outputs.into_iter().for_each(|(port, tag)| send(&mut all, flow, port, tag));
                continue;
            }
            Op::Clone(n) => {
                let end = (at + usize::from(*n)).min(ops.len());
                let inner =
                    steps(bridge, arrival, ops.get(at..end).unwrap_or_default(), &mut flow.clone(), notes);
                at = end;
                all.push(Op::Clone(u16::try_from(inner.len()).unwrap_or(u16::MAX)));
                all.extend(inner);
                continue;
            }
            Op::Set(bits) => {
                for (word, (value, mask)) in flow.0.iter_mut().zip(bits.value.0.iter().zip(&bits.mask.0)) {
                    *word = *word & !mask | value & mask;
                }
            }
            Op::PushVlan(_, tci) => {
                let outer = flow.bits(TCI * 8, 16);
                flow.set_bits((TCI + 2) * 8, 16, outer);
                flow.set_bits(TCI * 8, 16, u128::from(*tci) | TAG);
            }
            Op::PopVlan => {
                let inner = flow.bits((TCI + 2) * 8, 16);
                flow.set_bits(TCI * 8, 16, inner);
                flow.set_bits((TCI + 2) * 8, 16, 0);
            }
            _ => {}
        }
        all.push(op.clone());
    }
    all
}

/// Appends the steps that change the outer VLAN tag, output the packet to a port, and restore the tag.
fn send(ops: &mut Vec<Op>, flow: &Flow, port: PortId, tag: TagChange) {
    let tci = u16::try_from(flow.get(Field::VlanTci)).unwrap_or_default();
    let tagged = |vid: u16| tci & 0xe000 | 0x1000 | vid;
    let set = |tci: u16| Op::PushVlan(ethertype::VLAN, tci);
    match tag {
        TagChange::Keep => ops.push(Op::Output(port)),
        TagChange::Push(vid) => ops.extend([set(tagged(vid)), Op::Output(port), Op::PopVlan]),
        TagChange::PushService(vid) => {
            ops.extend([Op::PushVlan(ethertype::SERVICE_VLAN, tagged(vid)), Op::Output(port), Op::PopVlan]);
        }
        TagChange::Pop => ops.extend([Op::PopVlan, Op::Output(port), set(tci)]),
        TagChange::Set(vid) => {
            ops.extend([Op::PopVlan, set(tagged(vid)), Op::Output(port), Op::PopVlan, set(tci)]);
        }
    }
}

/// Builds a frame with the addresses and tags of the flow, followed by the payload of the packet.
fn frame_of(flow: &Flow, frame: Option<&[u8]>) -> Vec<u8> {
    let address = |field: Field| flow.get(field).to_be_bytes();
    let mut octets = Vec::with_capacity(64);
    for field in [Field::EthDst, Field::EthSrc] {
        octets.extend_from_slice(&address(field)[10..]);
    }
    for tci in [flow.bits(TCI * 8, 16), flow.bits((TCI + 2) * 8, 16)] {
        if tci & TAG != 0 {
            let tci = u16::try_from(tci & !TAG).unwrap_or_default();
            octets.extend([0x81, 0x00]);
            octets.extend(tci.to_be_bytes());
        }
    }
    let mut rest = frame.and_then(|frame| frame.get(12..)).unwrap_or_default();
    while rest.get(..2).is_some_and(|kind| TAGS.iter().any(|tag| tag == kind)) {
        rest = rest.get(4..).unwrap_or_default();
    }
    if rest.len() < 2 {
        octets.extend(NOTHING);
    }
    octets.extend_from_slice(rest);
    octets.resize(octets.len().max(64), 0);
    octets
}

/// Returns the ports to which the bridge forwards the packet, each with the change of the outer VLAN tag, and the
/// events for the trace report.
fn decide(bridge: &Bridge, arrival: Arrival<'_>, flow: &Flow) -> (Vec<(PortId, TagChange)>, Vec<NormalNote>) {
    if arrival.frame.is_some() {
        ask(bridge, arrival, flow, Steps::<false>::default(), |steps| &steps.0)
    } else {
        ask(bridge, arrival, flow, Steps::<true>::default(), |steps| &steps.0)
    }
}

fn ask<R: Recorder>(
    bridge: &Bridge,
    arrival: Arrival<'_>,
    flow: &Flow,
    mut recorder: R,
    told: impl Fn(&R) -> &Vec<Step>,
) -> (Vec<(PortId, TagChange)>, Vec<NormalNote>) {
    let frame = frame_of(flow, arrival.frame);
    let mut key = FlowKey::ZERO;
    let layers = match FlowKey::extract(&frame, frame.len(), arrival.port, &mut key) {
        Ok(layers) => layers,
        Err(reason) => return (Vec::new(), vec![NormalNote::Dropped(reason)]),
    };
    let mut decision = [Decision::default()];
    bridge.forward(&[key], &[layers], arrival.now, &mut Scratch::new(), &mut decision, &mut recorder);
    let mut notes = Vec::new();
    let mut vlan = 0;
    for step in told(&recorder) {
        match step {
            Step::Vlan { vid, .. } => vlan = *vid,
            Step::Learned { mac, .. } if arrival.frame.is_some() => {
                notes.push(NormalNote::Learned(*mac, vlan))
            }
            _ => {}
        }
    }
    let [decision] = decision;
    let mut outputs = Vec::new();
    match decision {
        Decision::Forward { port, tag } => {
            outputs.push((port, tag));
            notes.push(NormalNote::ToStation);
        }
        Decision::Flood { .. } => notes.push(NormalNote::Flood),
        Decision::Group { .. } => notes.push(NormalNote::Group),
        Decision::Drop(DropReason::SamePort) => notes.push(NormalNote::BackToStation),
        Decision::Drop(reason) => notes.push(NormalNote::Dropped(reason)),
    }
    bridge.flood(arrival.port, &decision, |port, tag| outputs.push((port, tag)));
    (outputs, notes)
}
