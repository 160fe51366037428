//! Encoding of actions and instructions.

use packet::ethertype;
use switch::flow::{Action, Field, Instructions, Learn, LearnPart, LearnSource, SubField, port};

use super::get::transport;
use super::nicira::{BUNDLE, HASHES, LEARN_IMMEDIATE, LEARN_LOAD, LEARN_OUTPUT, MULTIPATH};
use super::nx;
use crate::wire::ofp::action::*;
use crate::wire::ofp::instruction::*;
use crate::wire::ofp::nx::*;
use crate::wire::ofp::switch::OFPR_ACTION;
use crate::wire::oxm::{Wire, nx_subfield};
use crate::wire::{NICIRA, Put, Version, low16, port_to_16};

/// Encodes a list of OpenFlow actions.
pub fn put_actions(out: &mut Vec<u8>, version: Version, actions: &[Action]) {
    let mut rest = actions;
    while let Some((action, behind)) = rest.split_first() {
        put(out, version, action);
        // OpenFlow 1.0 and 1.1 have one action for the ports of all protocols.
        let skipped = if version <= Version::V11 && sets_any_transport(rest) { 2 } else { 0 };
        rest = &behind[skipped..];
    }
}

/// Returns whether a list of actions begins with the three actions into which `get_plain` decodes
/// OFPAT_SET_TP_SRC or OFPAT_SET_TP_DST when the match has no transport protocol.
fn sets_any_transport(actions: &[Action]) -> bool {
    let Some(first) = actions.first_chunk::<3>() else { return false };
    let Action::Set { field, value, .. } = first[0] else { return false };
    let fields = transport(field == Field::TcpDst);
    first.iter().zip(fields).all(|(action, wanted)| {
        let mask = wanted.all_ones();
        *action == Action::Set { field: wanted, value, mask, load: false }
    })
}

/// Encodes the instructions of a flow entry for a format that has only actions. This is the format of
/// OpenFlow 1.0 and of Nicira's messages. Write-actions, goto-table and other instructions are encoded as
/// actions of Nicira, or omitted.
pub fn put_plain(out: &mut Vec<u8>, version: Version, instructions: &Instructions) {
    put_actions(out, version, &instructions.apply);
    if let Some((value, mask)) = instructions.metadata {
        nicira(out, nx::WRITE_METADATA, |out| {
            out.zeros(6);
            out.u64(value);
            out.u64(mask);
        });
    }
    if let Some(table) = instructions.goto {
        put(out, version, &Action::Resubmit { port: None, table: Some(table) });
    }
}

/// Encodes instructions in the format of OpenFlow 1.1 and later.
pub fn put_instructions(out: &mut Vec<u8>, version: Version, instructions: &Instructions) {
    let mut apply = instructions.apply.as_slice();
    let mut meter = instructions.meter;
    if let (true, None, [Action::Meter(id), rest @ ..]) = (version < Version::V15, meter, apply) {
        (meter, apply) = (Some(*id), rest);
    }
    // OpenFlow 1.1 and 1.2 have no meters.
    if let (Some(id), Version::V13 | Version::V14) = (meter, version) {
        out.u16(OFPIT_METER);
        out.u16(8);
        out.u32(id);
    }
    let meter = meter.filter(|_| version >= Version::V15);
    if !apply.is_empty() || meter.is_some() {
        list(out, OFPIT_APPLY_ACTIONS, |out| {
            if let Some(id) = meter {
                put(out, version, &Action::Meter(id));
            }
            put_actions(out, version, apply);
        });
    }
    if instructions.clear {
        out.u16(OFPIT_CLEAR_ACTIONS);
        out.u16(8);
        out.u32(0);
    }
    if !instructions.write.is_empty() {
        list(out, OFPIT_WRITE_ACTIONS, |out| put_actions(out, version, &instructions.write));
    }
    if let Some((value, mask)) = instructions.metadata {
        out.u16(OFPIT_WRITE_METADATA);
        out.u16(24);
        out.u32(0);
        out.u64(value);
        out.u64(mask);
    }
    if let Some(table) = instructions.goto {
        out.u16(OFPIT_GOTO_TABLE);
        out.u16(8);
        out.extend_from_slice(&[table, 0, 0, 0]);
    }
}

fn list(out: &mut Vec<u8>, kind: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.u16(kind);
    out.u16(0);
    out.u32(0);
    body(out);
    out.set_length(start, 2);
}

/// Encodes a standard action of type `kind`, with the given body and padding.
fn standard(out: &mut Vec<u8>, kind: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.u16(kind);
    out.u16(0);
    body(out);
    out.align(start);
    out.set_length(start, 2);
}

/// Encodes an action of Nicira with this subtype, with the given body and padding.
fn nicira(out: &mut Vec<u8>, subtype: u16, body: impl FnOnce(&mut Vec<u8>)) {
    standard(out, OFPAT_EXPERIMENTER, |out| {
        out.u32(NICIRA);
        out.u16(subtype);
        body(out);
        // The minimum length is 16 octets.
    });
    debug_assert!(out.len().is_multiple_of(2));
}

/// Encodes an action that is standard since OpenFlow 1.1. In OpenFlow 1.0, it is encoded as an action of
/// Nicira.
fn either(out: &mut Vec<u8>, version: Version, kind: u16, subtype: u16, body: impl FnOnce(&mut Vec<u8>)) {
    if version == Version::V10 { nicira(out, subtype, body) } else { standard(out, kind, body) }
}

fn number(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

fn packed(first: u16, bits: u16) -> u16 {
    first << 6 | bits.saturating_sub(1) & 0x3f
}

/// Encodes a subfield as Nicira's actions do: the packed first bit and width, the output of `between`, and
/// the header of the field.
fn put_packed(out: &mut Vec<u8>, part: &SubField, between: impl FnOnce(&mut Vec<u8>)) {
    if let Some((wire, first, bits)) = nx_subfield(part, Version::V10) {
        out.u16(packed(first, bits));
        between(out);
        wire.put_header(out, false);
    }
}

fn put(out: &mut Vec<u8>, version: Version, action: &Action) {
    let plain = version == Version::V10;
    match action {
        Action::Output { port, max_len } if plain => standard(out, ofp10::OFPAT_OUTPUT, |out| {
            out.u16(port_to_16(*port));
            out.u16(*max_len);
        }),
        Action::Output { port, max_len } => standard(out, OFPAT_OUTPUT, |out| {
            out.u32(*port);
            out.u16(*max_len);
            out.zeros(6);
        }),
        Action::OutputReg { source, max_len } => nicira(out, nx::OUTPUT_REG, |out| {
            put_packed(out, source, |_| {});
            out.u16(*max_len);
            out.zeros(6);
        }),
        Action::Controller { max_len, id, reason, userdata, pause, meter } => {
            put_controller(out, (*max_len, *id, *reason), userdata, *pause, *meter);
        }
        Action::Enqueue { port, queue } if plain => standard(out, ofp10::OFPAT_ENQUEUE, |out| {
            out.u16(port_to_16(*port));
            out.zeros(6);
            out.u32(*queue);
        }),
        Action::Enqueue { port, queue } => {
            put(out, version, &Action::SetQueue(*queue));
            put(out, version, &Action::Output { port: *port, max_len: 0 });
            put(out, version, &Action::PopQueue);
        }
        Action::SetQueue(queue) => either(out, version, OFPAT_SET_QUEUE, nx::SET_QUEUE, |out| {
            if plain {
                out.zeros(2);
            }
            out.u32(*queue);
        }),
        Action::PopQueue => nicira(out, nx::POP_QUEUE, |out| out.zeros(6)),
        Action::Group(group) => either(out, version, OFPAT_GROUP, nx::GROUP, |out| {
            if plain {
                out.zeros(2);
            }
            out.u32(*group);
        }),
        Action::Meter(meter) => {
            if version >= Version::V15 {
                standard(out, OFPAT_METER, |out| out.u32(*meter));
            }
        }
        Action::Set { field, value, mask, load } => put_set(out, version, *field, *value, *mask, *load),
        Action::Move { from, to } => put_move(out, version, from, to),
        Action::Push(part) => put_stack(out, nx::STACK_PUSH, part),
        Action::Pop(part) => put_stack(out, nx::STACK_POP, part),
        Action::PushVlan(_) | Action::PopVlan | Action::SetVlanVid(_) | Action::SetVlanPcp(_) => {
            put_vlan(out, version, action);
        }
        Action::PushMpls(_)
        | Action::PopMpls(_)
        | Action::PushPbb(_)
        | Action::PopPbb
        | Action::CopyTtlOut
        | Action::CopyTtlIn
        | Action::SetMplsTtl(_)
        | Action::DecMplsTtl
        | Action::SetTtl(_)
        | Action::DecTtl(_) => put_header(out, version, action),
        Action::Resubmit { .. }
        | Action::Learn(_)
        | Action::Conjunction(_)
        | Action::Note(_)
        | Action::Clone(_)
        | Action::Multipath { .. }
        | Action::Bundle { .. }
        | Action::CheckPktLarger { .. }
        | Action::FinTimeout { .. }
        | Action::Exit => put_nicira(out, version, action),
    }
}

/// Encodes an action that changes VLAN tags or VLAN fields.
fn put_vlan(out: &mut Vec<u8>, version: Version, action: &Action) {
    let plain = version == Version::V10;
    match action {
        // In OpenFlow 1.0, setting the VLAN pushes a tag.
        Action::PushVlan(kind) if !plain => standard(out, OFPAT_PUSH_VLAN, |out| out.u16(*kind)),
        Action::PopVlan => {
            let kind = if plain { ofp10::OFPAT_STRIP_VLAN } else { OFPAT_POP_VLAN };
            standard(out, kind, |out| out.zeros(4));
        }
        Action::SetVlanVid(vid) if plain => standard(out, ofp10::OFPAT_SET_VLAN_VID, |out| out.u16(*vid)),
        Action::SetVlanVid(vid) => {
            standard(out, OFPAT_PUSH_VLAN, |out| out.u16(ethertype::VLAN));
            let value = 0x1000 | u128::from(*vid);
            put_set(out, version, Field::VlanVid, value, Field::VlanVid.all_ones(), false);
        }
        Action::SetVlanPcp(pcp) if plain => standard(out, ofp10::OFPAT_SET_VLAN_PCP, |out| out.u8(*pcp)),
        Action::SetVlanPcp(pcp) => {
            standard(out, OFPAT_PUSH_VLAN, |out| out.u16(ethertype::VLAN));
            put_set(out, version, Field::VlanPcp, u128::from(*pcp), Field::VlanPcp.all_ones(), false);
        }
        _ => {}
    }
}

/// Encodes an action that pushes or removes an MPLS or PBB header, or changes a TTL.
fn put_header(out: &mut Vec<u8>, version: Version, action: &Action) {
    let plain = version == Version::V10;
    match action {
        Action::PushMpls(kind) => either(out, version, OFPAT_PUSH_MPLS, nx::PUSH_MPLS, |out| out.u16(*kind)),
        Action::PopMpls(kind) => either(out, version, OFPAT_POP_MPLS, nx::POP_MPLS, |out| out.u16(*kind)),
        Action::PushPbb(kind) if version >= Version::V13 => {
            standard(out, OFPAT_PUSH_PBB, |out| out.u16(*kind))
        }
        Action::PopPbb if version >= Version::V13 => standard(out, OFPAT_POP_PBB, |out| out.zeros(4)),
        Action::CopyTtlOut if !plain => standard(out, OFPAT_COPY_TTL_OUT, |out| out.zeros(4)),
        Action::CopyTtlIn if !plain => standard(out, OFPAT_COPY_TTL_IN, |out| out.zeros(4)),
        // Earlier versions and Nicira have no such actions.
        Action::PushPbb(_) | Action::PopPbb | Action::CopyTtlOut | Action::CopyTtlIn => {}
        Action::SetMplsTtl(ttl) => {
            either(out, version, OFPAT_SET_MPLS_TTL, nx::SET_MPLS_TTL, |out| out.u8(*ttl))
        }
        Action::DecMplsTtl => either(out, version, OFPAT_DEC_MPLS_TTL, nx::DEC_MPLS_TTL, |out| out.zeros(4)),
        Action::SetTtl(ttl) if plain => {
            put_set(out, version, Field::NwTtl, u128::from(*ttl), Field::NwTtl.all_ones(), true);
        }
        Action::SetTtl(ttl) => standard(out, OFPAT_SET_NW_TTL, |out| out.u8(*ttl)),
        Action::DecTtl(ids) if ids.is_empty() => {
            either(out, version, OFPAT_DEC_NW_TTL, nx::DEC_TTL, |out| out.zeros(4))
        }
        Action::DecTtl(ids) => nicira(out, nx::DEC_TTL_CNT_IDS, |out| {
            out.u16(low16(ids.len()));
            out.zeros(4);
            ids.iter().for_each(|id| out.u16(*id));
        }),
        _ => {}
    }
}

/// Encodes an action that exists only as an extension of Nicira.
fn put_nicira(out: &mut Vec<u8>, version: Version, action: &Action) {
    match action {
        Action::Resubmit { port, table } => {
            let port = port_to_16(port.unwrap_or(port::IN_PORT));
            match table {
                None => nicira(out, nx::RESUBMIT, |out| out.u16(port)),
                Some(table) => nicira(out, nx::RESUBMIT_TABLE, |out| {
                    out.u16(port);
                    out.u8(*table);
                }),
            }
        }
        Action::Learn(learn) => put_learn(out, learn),
        Action::Conjunction(part) => nicira(out, nx::CONJUNCTION, |out| {
            out.u8(part.clause);
            out.u8(part.clauses);
            out.u32(part.id);
        }),
        Action::Note(note) => nicira(out, nx::NOTE, |out| out.extend_from_slice(note)),
        Action::Clone(actions) => nicira(out, nx::CLONE, |out| {
            out.zeros(6);
            put_actions(out, version, actions);
        }),
        Action::Multipath { fields, basis, mode, max_link, argument, to } => {
            nicira(out, nx::MULTIPATH, |out| {
                out.u16(place(&HASHES, fields));
                out.u16(*basis);
                out.zeros(2);
                out.u16(place(&MULTIPATH, mode));
                out.u16(*max_link);
                out.u32(*argument);
                out.zeros(2);
                put_packed(out, to, |_| {});
            });
        }
        Action::Bundle { fields, basis, mode, ports, to } => {
            let subtype = if to.is_some() { nx::BUNDLE_LOAD } else { nx::BUNDLE };
            nicira(out, subtype, |out| {
                out.u16(place(&BUNDLE, mode));
                out.u16(place(&HASHES, fields));
                out.u16(*basis);
                out.u32(NXM_OF_IN_PORT);
                out.u16(low16(ports.len()));
                match to {
                    Some(to) => put_packed(out, to, |_| {}),
                    None => out.zeros(6),
                }
                out.zeros(4);
                ports.iter().for_each(|port| out.u16(port_to_16(*port)));
            });
        }
        Action::CheckPktLarger { len, to } => nicira(out, nx::CHECK_PKT_LARGER, |out| {
            out.u16(*len);
            if let Some((wire, first, _)) = nx_subfield(to, Version::V10) {
                out.u16(first);
                wire.put_header(out, false);
            }
        }),
        Action::FinTimeout { idle, hard } => nicira(out, nx::FIN_TIMEOUT, |out| {
            out.u16(*idle);
            out.u16(*hard);
        }),
        Action::Exit => nicira(out, nx::EXIT, |out| out.zeros(6)),
        _ => {}
    }
}

fn place<T: PartialEq>(all: &[T], one: &T) -> u16 {
    low16(all.iter().position(|it| it == one).unwrap_or(0))
}

fn put_stack(out: &mut Vec<u8>, subtype: u16, part: &SubField) {
    if let Some((wire, first, bits)) = nx_subfield(part, Version::V10) {
        nicira(out, subtype, |out| {
            out.u16(first);
            wire.put_header(out, false);
            out.u16(bits);
        });
    }
}

fn put_move(out: &mut Vec<u8>, version: Version, from: &SubField, to: &SubField) {
    let (head, standards) = if version >= Version::V15 { (version, true) } else { (Version::V10, false) };
    let narrow = |part: &SubField| {
        // Both widths are equal, so a field that is wider on the wire keeps its own width.
        nx_subfield(part, head).map(|(wire, first, _)| (wire, first))
    };
    let (Some((from_wire, from_bit)), Some((to_wire, to_bit))) = (narrow(from), narrow(to)) else { return };
    let body = |out: &mut Vec<u8>| {
        out.u16(from.bits);
        out.u16(from_bit);
        out.u16(to_bit);
        if standards {
            out.zeros(2);
        }
        from_wire.put_header(out, false);
        to_wire.put_header(out, false);
    };
    if standards { standard(out, OFPAT_COPY_FIELD, body) } else { nicira(out, nx::REG_MOVE, body) }
}

fn put_set(out: &mut Vec<u8>, version: Version, field: Field, value: u128, mask: u128, load: bool) {
    let whole = mask == field.all_ones();
    match version {
        Version::V15 => set_field(out, version, field, value, mask),
        Version::V10 | Version::V11 if !load && whole && put_legacy(out, version, field, value) => {}
        Version::V12 | Version::V13 | Version::V14 if !load && whole => {
            set_field(out, version, field, value, mask)
        }
        _ => put_load(out, field, value, mask),
    }
}

fn set_field(out: &mut Vec<u8>, version: Version, field: Field, value: u128, mask: u128) {
    // Open vSwitch's clients only support this action for 16-bit port numbers.
    let version = if field == Field::InPort { Version::V10 } else { version };
    if let Some(wire) = Wire::of(field, version) {
        standard(out, OFPAT_SET_FIELD, |out| wire.put(out, value, mask));
    }
}

/// Encodes an action that loads a value into a field. NXAST_REG_LOAD is used for up to 64 contiguous bits, and
/// NXAST_REG_LOAD2 otherwise.
fn put_load(out: &mut Vec<u8>, field: Field, value: u128, mask: u128) {
    let first = mask.trailing_zeros();
    let width = mask.count_ones();
    let contiguous = width > 0 && mask >> first == u128::MAX >> (128 - width);
    let part =
        SubField { field, first: u16::try_from(first).unwrap_or(0), bits: u16::try_from(width).unwrap_or(0) };
    if let (true, Some((wire, from, bits))) = (contiguous && width <= 64, nx_subfield(&part, Version::V10)) {
        let whole_port = field == Field::InPort && mask == field.all_ones();
        let port16 = u32::try_from(value).map_or(u16::MAX, port_to_16);
        if let (true, Some(wire)) = (whole_port, Wire::of(field, Version::V10)) {
            nicira(out, nx::REG_LOAD, |out| {
                out.u16(packed(0, 16));
                wire.put_header(out, false);
                out.u64(u64::from(port16));
            });
            return;
        }
        nicira(out, nx::REG_LOAD, |out| {
            out.u16(packed(from, bits));
            wire.put_header(out, false);
            out.u64(number(value >> first));
        });
    } else if let Some(wire) = Wire::of(field, Version::V10) {
        nicira(out, nx::REG_LOAD2, |out| wire.put(out, value, mask));
    }
}

/// Encodes an action that sets a field as an action of OpenFlow 1.0 or 1.1, or as an action of Nicira.
/// Returns false if there is no such action for the field.
fn put_legacy(out: &mut Vec<u8>, version: Version, field: Field, value: u128) -> bool {
    let bytes = value.to_be_bytes();
    let last = |octets: usize| &bytes[16 - octets..];
    let old = version == Version::V10;
    let by_version = |number_10: u16, number_11: u16| if old { number_10 } else { number_11 };
    match field {
        Field::TunId => {
            if let Ok(id) = u32::try_from(value) {
                nicira(out, nx::SET_TUNNEL, |out| {
                    out.zeros(2);
                    out.u32(id);
                });
            } else {
                nicira(out, nx::SET_TUNNEL64, |out| {
                    out.zeros(6);
                    out.u64(number(value));
                });
            }
            return true;
        }
        Field::MplsLabel => {
            either(out, version, ofp11::OFPAT_SET_MPLS_LABEL, nx::SET_MPLS_LABEL, |out| {
                if old {
                    out.zeros(2);
                }
                out.extend_from_slice(last(4));
            });
            return true;
        }
        Field::MplsTc => {
            either(out, version, ofp11::OFPAT_SET_MPLS_TC, nx::SET_MPLS_TC, |out| out.u8(bytes[15]));
            return true;
        }
        _ => {}
    }
    let dscp = [bytes[15] << 2];
    let vid = [bytes[14] & 0xf, bytes[15]];
    let (kind, body): (u16, &[u8]) = match field {
        Field::VlanVid if !old => (ofp11::OFPAT_SET_VLAN_VID, &vid),
        Field::VlanPcp if !old => (ofp11::OFPAT_SET_VLAN_PCP, last(1)),
        Field::EthSrc => (by_version(ofp10::OFPAT_SET_DL_SRC, ofp11::OFPAT_SET_DL_SRC), last(6)),
        Field::EthDst => (by_version(ofp10::OFPAT_SET_DL_DST, ofp11::OFPAT_SET_DL_DST), last(6)),
        Field::Ipv4Src => (by_version(ofp10::OFPAT_SET_NW_SRC, ofp11::OFPAT_SET_NW_SRC), last(4)),
        Field::Ipv4Dst => (by_version(ofp10::OFPAT_SET_NW_DST, ofp11::OFPAT_SET_NW_DST), last(4)),
        Field::IpDscp => (by_version(ofp10::OFPAT_SET_NW_TOS, ofp11::OFPAT_SET_NW_TOS), &dscp),
        Field::IpEcn if !old => (ofp11::OFPAT_SET_NW_ECN, last(1)),
        Field::TcpSrc | Field::UdpSrc | Field::SctpSrc => {
            (by_version(ofp10::OFPAT_SET_TP_SRC, ofp11::OFPAT_SET_TP_SRC), last(2))
        }
        Field::TcpDst | Field::UdpDst | Field::SctpDst => {
            (by_version(ofp10::OFPAT_SET_TP_DST, ofp11::OFPAT_SET_TP_DST), last(2))
        }
        _ => return false,
    };
    standard(out, kind, |out| out.extend_from_slice(body));
    true
}

fn put_controller(
    out: &mut Vec<u8>,
    (max_len, id, reason): (u16, u16, u8),
    userdata: &[u8],
    pause: bool,
    meter: Option<u32>,
) {
    if userdata.is_empty() && !pause && meter.is_none() {
        nicira(out, nx::CONTROLLER, |out| {
            out.u16(max_len);
            out.u16(id);
            out.u8(reason);
            out.u8(0);
        });
        return;
    }
    nicira(out, nx::CONTROLLER2, |out| {
        out.zeros(6);
        let mut property = |kind: u16, length: usize, value: &[u8]| {
            let start = out.len();
            out.u16(kind);
            out.u16(low16(length));
            out.extend_from_slice(value);
            out.align(start);
        };
        if max_len != u16::MAX {
            property(NXAC2PT_MAX_LEN, 8, &max_len.to_be_bytes());
        }
        if id != 0 {
            property(NXAC2PT_CONTROLLER_ID, 8, &id.to_be_bytes());
        }
        if reason != OFPR_ACTION {
            property(NXAC2PT_REASON, 8, &[reason]);
        }
        if !userdata.is_empty() {
            property(NXAC2PT_USERDATA, 4 + userdata.len(), userdata);
        }
        if pause {
            property(NXAC2PT_PAUSE, 4, &[]);
        }
        if let Some(meter) = meter {
            property(NXAC2PT_METER_ID, 8, &meter.to_be_bytes());
        }
    });
}

fn put_learn(out: &mut Vec<u8>, learn: &Learn) {
    let second = learn.limit != 0 || learn.flags & NX_LEARN_F_WRITE_RESULT != 0;
    nicira(out, if second { nx::LEARN2 } else { nx::LEARN }, |out| {
        out.u16(learn.idle_timeout);
        out.u16(learn.hard_timeout);
        out.u16(learn.priority);
        out.u64(learn.cookie);
        out.u16(learn.flags);
        out.u8(learn.table);
        out.u8(0);
        out.u16(learn.fin_idle_timeout);
        out.u16(learn.fin_hard_timeout);
        if second {
            let result = learn.result.filter(|_| learn.flags & NX_LEARN_F_WRITE_RESULT != 0);
            let result = result.and_then(|part| nx_subfield(&part, Version::V10));
            out.u32(learn.limit);
            out.u16(result.map_or(0, |(_, first, _)| first));
            out.zeros(2);
            if let Some((wire, ..)) = result {
                wire.put_header(out, false);
            }
        }
        for part in &learn.parts {
            match part {
                LearnPart::Match(source, to) => put_learn_part(out, 0, source, Some(to)),
                LearnPart::Load(source, to) => put_learn_part(out, LEARN_LOAD, source, Some(to)),
                LearnPart::Output(from) => {
                    put_learn_part(out, LEARN_OUTPUT, &LearnSource::Field(*from), None);
                }
            }
        }
    });
}

fn put_learn_part(out: &mut Vec<u8>, kind: u16, source: &LearnSource, to: Option<&SubField>) {
    let to = to.and_then(|part| nx_subfield(part, Version::V10));
    match source {
        LearnSource::Field(part) => {
            let Some((wire, first, bits)) = nx_subfield(part, Version::V10) else { return };
            out.u16(kind | if to.is_some() { part.bits } else { bits });
            wire.put_header(out, false);
            out.u16(first);
        }
        LearnSource::Constant { value, bits } => {
            let bits = to.map_or(*bits, |(_, _, bits)| bits);
            out.u16(kind | LEARN_IMMEDIATE | bits);
            let octets = 2 * usize::from(bits.div_ceil(16));
            out.extend_from_slice(&value.to_be_bytes()[16 - octets.min(16)..]);
        }
    }
    if let Some((wire, first, _)) = to {
        wire.put_header(out, false);
        out.u16(first);
    }
}
