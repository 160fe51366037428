//! Wire format of each action: the type and subtype numbers, the decoder, and the encoder for each
//! OpenFlow version.
//!
//! In this crate a new Nicira action needs lines in this file only. A new standard action also needs its number in
//! `wire/ofp/action.rs`. The decoder for OpenFlow 1.0 and the actions of OpenFlow 1.1 that set
//! one field are in `get.rs`, because no later version adds such actions.

use packet::ethertype;
use switch::flow::{Action, Field, port};

use super::conntrack::put_ct;
use super::field::{
    copy_field, destination, get_set_field, put_move, put_set, reg_load, reg_move, set, transport,
};
use super::frame::{either, nicira, put_packed, standard};
use super::nicira::{
    bundle, conjunction, controller2, dec_ttl_ids, learn, multipath, output_reg, put_bundle, put_controller,
    put_learn, put_multipath, put_stack, stack,
};
use crate::wire::error::Error;
use crate::wire::ofp::action::*;
use crate::wire::oxm::{Entry, entry, nx_subfield};
use crate::wire::{Put, Reader, Version, low16, port_from_16, port_to_16};

/// Subtype numbers of Nicira's actions (NXAST_*). Some subtype numbers are defined in the modules that encode and
/// decode these actions, and are re-exported here.
pub(super) mod nx {
    pub use super::super::conntrack::nx::*;
    pub use super::super::field::nx::*;
    pub use super::super::nicira::nx::*;

    pub const RESUBMIT: u16 = 1;
    pub const SET_QUEUE: u16 = 4;
    pub const POP_QUEUE: u16 = 5;
    pub const NOTE: u16 = 8;
    pub const MULTIPATH: u16 = 10;
    pub const RESUBMIT_TABLE: u16 = 14;
    pub const OUTPUT_REG: u16 = 15;
    pub const EXIT: u16 = 17;
    pub const DEC_TTL: u16 = 18;
    pub const FIN_TIMEOUT: u16 = 19;
    pub const DEC_TTL_CNT_IDS: u16 = 21;
    pub const WRITE_METADATA: u16 = 22;
    pub const PUSH_MPLS: u16 = 23;
    pub const POP_MPLS: u16 = 24;
    pub const SET_MPLS_TTL: u16 = 25;
    pub const DEC_MPLS_TTL: u16 = 26;
    pub const STACK_PUSH: u16 = 27;
    pub const STACK_POP: u16 = 28;
    pub const OUTPUT_REG2: u16 = 32;
    pub const CONJUNCTION: u16 = 34;
    pub const GROUP: u16 = 40;
    pub const CLONE: u16 = 42;
    pub const CHECK_PKT_LARGER: u16 = 49;
    /// Subtype number of the ONF's copy-field action, for OpenFlow 1.3 and 1.4.
    pub const ONF_COPY_FIELD: u16 = 3200;
}

/// Returns the length of an action of OpenFlow 1.1 or later, in octets. Returns `None` if the length varies.
///
/// # Errors
/// Returns [`Error::ActionType`] if the version has no such action.
pub(super) fn exact_length(kind: u16, version: Version) -> Result<Option<usize>, Error> {
    Ok(match kind {
        OFPAT_OUTPUT | ofp11::OFPAT_SET_DL_SRC | ofp11::OFPAT_SET_DL_DST => Some(16),
        OFPAT_SET_FIELD if version >= Version::V12 => None,
        OFPAT_COPY_FIELD => None,
        ofp11::OFPAT_SET_VLAN_VID..=OFPAT_DEC_NW_TTL => Some(8),
        OFPAT_PUSH_PBB | OFPAT_POP_PBB | OFPAT_METER if version >= Version::V13 => Some(8),
        _ => return Err(Error::ActionType),
    })
}

/// Decodes a standard action of OpenFlow 1.1 or later.
pub(super) fn get_standard(kind: u16, version: Version, mut body: Reader<'_>) -> Result<Action, Error> {
    Ok(match kind {
        OFPAT_OUTPUT => Action::Output { port: body.u32()?, max_len: body.u16()? },
        OFPAT_COPY_TTL_OUT => Action::CopyTtlOut,
        OFPAT_COPY_TTL_IN => Action::CopyTtlIn,
        OFPAT_SET_MPLS_TTL => Action::SetMplsTtl(body.u8()?),
        OFPAT_DEC_MPLS_TTL => Action::DecMplsTtl,
        OFPAT_PUSH_VLAN => match body.u16()? {
            kind @ (ethertype::VLAN | ethertype::SERVICE_VLAN) => Action::PushVlan(kind),
            _ => return Err(Error::ActionArgument),
        },
        OFPAT_POP_VLAN => Action::PopVlan,
        OFPAT_PUSH_MPLS => match body.u16()? {
            kind @ (ethertype::MPLS | ethertype::MPLS_MULTICAST) => Action::PushMpls(kind),
            _ => return Err(Error::ActionArgument),
        },
        OFPAT_POP_MPLS => Action::PopMpls(body.u16()?),
        OFPAT_SET_QUEUE => Action::SetQueue(body.u32()?),
        OFPAT_GROUP => Action::Group(body.u32()?),
        OFPAT_SET_NW_TTL => Action::SetTtl(body.u8()?),
        OFPAT_DEC_NW_TTL => Action::DecTtl(Vec::new()),
        OFPAT_SET_FIELD => get_set_field(&mut body, version)?,
        OFPAT_PUSH_PBB => match body.u16()? {
            kind @ ethertype::PBB => Action::PushPbb(kind),
            _ => return Err(Error::ActionArgument),
        },
        OFPAT_POP_PBB => Action::PopPbb,
        OFPAT_COPY_FIELD if version >= Version::V15 => {
            let (bits, from_bit, to_bit) = (body.u16()?, body.u16()?, body.u16()?);
            body.skip(2)?;
            copy_field(body, bits, from_bit, to_bit)?
        }
        OFPAT_METER if version >= Version::V15 => Action::Meter(body.u32()?),
        _ => return Err(Error::ActionType),
    })
}

/// Decodes an action of Nicira that contains no nested actions. NXAST_WRITE_METADATA is not decoded here, because it
/// represents an instruction.
pub(super) fn get_nicira(subtype: u16, mut body: Reader<'_>) -> Result<Action, Error> {
    let whole = |field: Field, value: u128| Action::Set { field, value, mask: field.all_ones(), load: false };
    Ok(match subtype {
        nx::RESUBMIT => Action::Resubmit { port: resubmit_port(body.u16()?), table: None },
        nx::RESUBMIT_TABLE => {
            let port = resubmit_port(body.u16()?);
            let table = body.u8()?;
            if body.take(3)? != [0; 3] {
                return Err(Error::ActionMustBeZero);
            }
            Action::Resubmit { port, table: (table != 0xff).then_some(table) }
        }
        nx::SET_TUNNEL => {
            body.skip(2)?;
            whole(Field::TunId, u128::from(body.u32()?))
        }
        nx::SET_TUNNEL64 => {
            body.skip(6)?;
            whole(Field::TunId, u128::from(body.u64()?))
        }
        nx::SET_QUEUE => {
            body.skip(2)?;
            Action::SetQueue(body.u32()?)
        }
        nx::POP_QUEUE => Action::PopQueue,
        nx::REG_MOVE => reg_move(&mut body)?,
        nx::REG_LOAD => reg_load(&mut body)?,
        nx::REG_LOAD2 => match entry(&mut body)? {
            Entry::Field(wire, value, mask) => set(wire, value, mask, true)?,
            Entry::Cookie(..) | Entry::Unknown => return Err(Error::ActionSetType),
        },
        nx::NOTE => Action::Note(body.data.to_vec()),
        nx::MULTIPATH => multipath(&mut body)?,
        nx::BUNDLE | nx::BUNDLE_LOAD => bundle(&mut body, subtype == nx::BUNDLE_LOAD)?,
        nx::OUTPUT_REG | nx::OUTPUT_REG2 => output_reg(&mut body, subtype == nx::OUTPUT_REG2)?,
        nx::LEARN | nx::LEARN2 => learn(&mut body, subtype == nx::LEARN2)?,
        nx::EXIT => Action::Exit,
        nx::DEC_TTL => Action::DecTtl(Vec::new()),
        nx::FIN_TIMEOUT => Action::FinTimeout { idle: body.u16()?, hard: body.u16()? },
        nx::CONTROLLER => {
            let (max_len, id, reason) = (body.u16()?, body.u16()?, body.u8()?);
            Action::Controller { max_len, id, reason, userdata: Vec::new(), pause: false, meter: None }
        }
        nx::CONTROLLER2 => controller2(&mut body)?,
        nx::DEC_TTL_CNT_IDS => dec_ttl_ids(&mut body)?,
        nx::PUSH_MPLS => Action::PushMpls(body.u16()?),
        nx::POP_MPLS => Action::PopMpls(body.u16()?),
        nx::SET_MPLS_TTL => Action::SetMplsTtl(body.u8()?),
        nx::DEC_MPLS_TTL => Action::DecMplsTtl,
        nx::SET_MPLS_LABEL => {
            body.skip(2)?;
            match body.u32()? {
                label if label < 1 << 20 => whole(Field::MplsLabel, u128::from(label)),
                _ => return Err(Error::ActionArgument),
            }
        }
        nx::SET_MPLS_TC => match body.u8()? {
            class if class < 8 => whole(Field::MplsTc, u128::from(class)),
            _ => return Err(Error::ActionArgument),
        },
        nx::STACK_PUSH | nx::STACK_POP => stack(&mut body, subtype == nx::STACK_PUSH)?,
        nx::CONJUNCTION => conjunction(&mut body)?,
        nx::GROUP => {
            body.skip(2)?;
            Action::Group(body.u32()?)
        }
        nx::CT_CLEAR if body.data.len() != 6 => return Err(Error::ActionLength),
        nx::CT_CLEAR => Action::CtClear,
        nx::CHECK_PKT_LARGER => {
            let len = body.u16()?;
            let first = body.u16()?;
            Action::CheckPktLarger { len, to: destination(&mut body, first, 1)? }
        }
        _ => return Err(Error::ActionExperimenterType),
    })
}

fn resubmit_port(port: u16) -> Option<u32> {
    Some(port_from_16(port)).filter(|port| *port != port::IN_PORT)
}

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

/// Returns whether a list of actions begins with the three actions that set the TCP, UDP and SCTP port. `get_plain`
/// decodes OFPAT_SET_TP_SRC or OFPAT_SET_TP_DST into these three actions if the match specifies no transport protocol.
fn sets_any_transport(actions: &[Action]) -> bool {
    let Some(first) = actions.first_chunk::<3>() else { return false };
    let Action::Set { field, value, .. } = first[0] else { return false };
    let fields = transport(field == Field::TcpDst);
    first.iter().zip(fields).all(|(action, wanted)| {
        let mask = wanted.all_ones();
        *action == Action::Set { field: wanted, value, mask, load: false }
    })
}

/// Encodes an action. An action that does not exist in the OpenFlow version is encoded as an action of Nicira. If
/// Nicira has no such action, the action is omitted.
#[allow(clippy::too_many_lines, reason = "one arm for each action")]
pub(super) fn put(out: &mut Vec<u8>, version: Version, action: &Action) {
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
        // In OpenFlow 1.0, setting the VLAN pushes a tag.
        Action::PushVlan(kind) if !plain => standard(out, OFPAT_PUSH_VLAN, |out| out.u16(*kind)),
        Action::PushVlan(_) => {}
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
                put_multipath(out, (*fields, *basis, *mode), *max_link, *argument, to);
            });
        }
        Action::Bundle { fields, basis, mode, ports, to } => {
            put_bundle(out, (*fields, *basis, *mode), ports, to.as_ref());
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
        Action::Ct(ct) => put_ct(out, ct, |out| put_actions(out, version, &ct.exec)),
        Action::CtClear => nicira(out, nx::CT_CLEAR, |out| out.zeros(6)),
        Action::Exit => nicira(out, nx::EXIT, |out| out.zeros(6)),
    }
}
