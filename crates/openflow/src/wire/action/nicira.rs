//! Decoding of Nicira's actions, with constants that the encoder of these actions also uses.

use switch::flow::{
    Action, BundleMode, Conjunction, Field, HashFields, Learn, LearnPart, LearnSource, SubField, port,
};

use super::field::{movement, set};
use super::nx;
use crate::wire::error::Error;
use crate::wire::ofp::nx::*;
use crate::wire::ofp::switch::OFPR_ACTION;
use crate::wire::oxm::{Entry, entry, header, subfield};
use crate::wire::{Reader, port_from_16, properties};

pub(super) const HASHES: [HashFields; 7] = [
    HashFields::EthSrc,
    HashFields::SymmetricL4,
    HashFields::SymmetricL3L4,
    HashFields::SymmetricL3L4Udp,
    HashFields::NwSrc,
    HashFields::NwDst,
    HashFields::SymmetricL3,
];
pub(super) const MULTIPATH: [BundleMode; 4] =
    [BundleMode::Modulo, BundleMode::Threshold, BundleMode::Weight, BundleMode::Iterative];
pub(super) const BUNDLE: [BundleMode; 2] = [BundleMode::ActiveBackup, BundleMode::Weight];
pub(super) const LEARN_IMMEDIATE: u16 = 1 << 13;
pub(super) const LEARN_LOAD: u16 = 1 << 11;
pub(super) const LEARN_OUTPUT: u16 = 2 << 11;

/// Returns the first bit and the width of a subfield from the packed 16-bit form in Nicira's actions.
fn bits(packed: u16) -> (u16, u16) {
    (packed >> 6, (packed & 0x3f) + 1)
}

fn destination(from: &mut Reader<'_>, first: u16, bits: u16) -> Result<SubField, Error> {
    let part = subfield(header(from)?.wire, first, bits, Error::ActionArgument)?;
    if part.field.is_writable() { Ok(part) } else { Err(Error::ActionArgument) }
}

fn choice<T: Copy>(all: &[T], number: u16) -> Result<T, Error> {
    all.get(usize::from(number)).copied().ok_or(Error::ActionArgument)
}

/// Decodes an action of Nicira that contains no nested actions. NXAST_WRITE_METADATA is decoded elsewhere, because it
/// stands for an instruction.
pub(super) fn get(subtype: u16, mut body: Reader<'_>) -> Result<Action, Error> {
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

fn reg_move(body: &mut Reader<'_>) -> Result<Action, Error> {
    let (bits, from_bit, to_bit) = (body.u16()?, body.u16()?, body.u16()?);
    let from = subfield(header(body)?.wire, from_bit, bits, Error::ActionArgument)?;
    let to = subfield(header(body)?.wire, to_bit, bits, Error::ActionArgument)?;
    movement(from, to)
}

/// Decodes NXAST_OUTPUT_REG or, if `second` is true, NXAST_OUTPUT_REG2, which has the field at the end.
fn output_reg(body: &mut Reader<'_>, second: bool) -> Result<Action, Error> {
    let (first, width) = bits(body.u16()?);
    let before = if second { Some(body.u16()?) } else { None };
    let source = subfield(header(body)?.wire, first, width, Error::ActionArgument)?;
    let max_len = match before {
        Some(max_len) => max_len,
        None => body.u16()?,
    };
    Ok(Action::OutputReg { source, max_len })
}

fn dec_ttl_ids(body: &mut Reader<'_>) -> Result<Action, Error> {
    let count = usize::from(body.u16()?);
    body.skip(4)?;
    let mut ids = body.part(count * 2)?;
    let mut out = Vec::new();
    while !ids.is_empty() {
        out.push(ids.u16()?);
    }
    Ok(Action::DecTtl(out))
}

fn stack(body: &mut Reader<'_>, is_push: bool) -> Result<Action, Error> {
    let first = body.u16()?;
    let wire = header(body)?.wire;
    let part = subfield(wire, first, body.u16()?, Error::ActionArgument)?;
    match is_push {
        true => Ok(Action::Push(part)),
        false if part.field.is_writable() => Ok(Action::Pop(part)),
        false => Err(Error::ActionArgument),
    }
}

fn conjunction(body: &mut Reader<'_>) -> Result<Action, Error> {
    let (clause, clauses) = (body.u8()?, body.u8()?);
    let id = body.u32()?;
    if !(2..=64).contains(&clauses) || clause >= clauses {
        return Err(Error::ActionArgument);
    }
    Ok(Action::Conjunction(Conjunction { id, clause, clauses }))
}

fn reg_load(body: &mut Reader<'_>) -> Result<Action, Error> {
    let (first, width) = bits(body.u16()?);
    let wire = header(body)?.wire.ok_or(Error::ActionSetType)?;
    let value = body.u64()?;
    if width < 64 && value >> width != 0 {
        return Err(Error::ActionArgument);
    }
    if !wire.field.is_writable() {
        return Err(Error::ActionSetType);
    }
    if wire.is_port16() && (first, width) == (0, 16) {
        let port = port_from_16(u16::try_from(value).unwrap_or(u16::MAX));
        return set(wire, u128::from(port), wire.field.all_ones(), true);
    }
    let part = subfield(Some(wire), first, width, Error::ActionArgument)?;
    let value = u128::from(value) << part.first;
    if value & !part.mask() != 0 {
        return Err(Error::ActionArgument);
    }
    set(wire, value, part.mask(), true)
}

fn multipath(body: &mut Reader<'_>) -> Result<Action, Error> {
    let fields = choice(&HASHES, body.u16()?)?;
    let basis = body.u16()?;
    body.skip(2)?;
    let mode = choice(&MULTIPATH, body.u16()?)?;
    let max_link = body.u16()?;
    let argument = body.u32()?;
    body.skip(2)?;
    let (first, width) = bits(body.u16()?);
    let to = destination(body, first, width)?;
    if width < 16 && u32::from(max_link) >= 1 << width {
        return Err(Error::ActionArgument);
    }
    Ok(Action::Multipath { fields, basis, mode, max_link, argument, to })
}

fn bundle(body: &mut Reader<'_>, load: bool) -> Result<Action, Error> {
    let mode = choice(&BUNDLE, body.u16()?)?;
    let fields = choice(&HASHES, body.u16()?)?;
    let basis = body.u16()?;
    // Members are ports.
    if body.u32()? != NXM_OF_IN_PORT {
        return Err(Error::ActionArgument);
    }
    let members = usize::from(body.u16()?);
    let (first, width) = bits(body.u16()?);
    let to = if load {
        Some(destination(body, first, width)?)
    } else {
        body.skip(4)?;
        None
    };
    body.skip(4)?;
    let mut list = body.part(members * 2)?;
    let mut ports = Vec::new();
    while !list.is_empty() {
        ports.push(port_from_16(list.u16()?));
    }
    Ok(Action::Bundle { fields, basis, mode, ports, to })
}

fn controller2(body: &mut Reader<'_>) -> Result<Action, Error> {
    body.skip(6)?;
    let (mut max_len, mut id, mut reason, mut pause, mut meter) = (u16::MAX, 0, OFPR_ACTION, false, None);
    let mut userdata = Vec::new();
    properties(Reader::new(body.data, Error::PropertyLength), |kind, mut value| {
        match kind {
            NXAC2PT_MAX_LEN => max_len = value.u16()?,
            NXAC2PT_CONTROLLER_ID => id = value.u16()?,
            NXAC2PT_REASON => reason = value.u8()?,
            NXAC2PT_USERDATA => userdata = value.data.to_vec(),
            NXAC2PT_PAUSE => pause = true,
            NXAC2PT_METER_ID => meter = Some(value.u32()?),
            _ => return Err(Error::PropertyType),
        }
        Ok(())
    })?;
    Ok(Action::Controller { max_len, id, reason, userdata, pause, meter })
}

fn learn(body: &mut Reader<'_>, second: bool) -> Result<Action, Error> {
    let (idle_timeout, hard_timeout, priority) = (body.u16()?, body.u16()?, body.u16()?);
    let (cookie, flags, table) = (body.u64()?, body.u16()?, body.u8()?);
    body.skip(1)?;
    let (fin_idle_timeout, fin_hard_timeout) = (body.u16()?, body.u16()?);
    let (mut limit, mut result) = (0, None);
    let first = NX_LEARN_F_SEND_FLOW_REM | NX_LEARN_F_DELETE_LEARNED;
    let allowed = first | if second { NX_LEARN_F_WRITE_RESULT } else { 0 };
    if flags & !allowed != 0 || table == 0xff {
        return Err(Error::ActionArgument);
    }
    if second {
        limit = body.u32()?;
        let first = body.u16()?;
        body.skip(2)?;
        if flags & NX_LEARN_F_WRITE_RESULT != 0 {
            result = Some(destination(body, first, 1)?);
        }
    }
    let mut parts = Vec::new();
    while !body.is_empty() {
        let head = body.u16()?;
        if head == 0 {
            break;
        }
        parts.push(learn_part(body, head)?);
    }
    if body.data.iter().any(|byte| *byte != 0) {
        return Err(Error::ActionArgument);
    }
    Ok(Action::Learn(Box::new(Learn {
        idle_timeout,
        hard_timeout,
        fin_idle_timeout,
        fin_hard_timeout,
        priority,
        cookie,
        flags,
        table,
        limit,
        result,
        parts,
    })))
}

fn learn_part(body: &mut Reader<'_>, head: u16) -> Result<LearnPart, Error> {
    let width = head & 0x3ff;
    if head & 0xc000 != 0 || head & 0x0400 != 0 || width == 0 || width > 128 {
        return Err(Error::ActionArgument);
    }
    let mut source = if head & LEARN_IMMEDIATE != 0 {
        let octets = 2 * usize::from(width.div_ceil(16));
        let value = body.take(octets)?.iter().fold(0, |value, byte| value << 8 | u128::from(*byte));
        if width < 128 && value >> width != 0 {
            return Err(Error::ActionArgument);
        }
        LearnSource::Constant { value, bits: width }
    } else {
        let wire = header(body)?.wire;
        LearnSource::Field(subfield(wire, body.u16()?, width, Error::ActionArgument)?)
    };
    let kind = head & (3 << 11);
    if kind == LEARN_OUTPUT {
        return match source {
            LearnSource::Field(part) => Ok(LearnPart::Output(part)),
            LearnSource::Constant { .. } => Err(Error::ActionArgument),
        };
    }
    if kind > LEARN_OUTPUT {
        return Err(Error::ActionArgument);
    }
    let wire = header(body)?.wire;
    let to = subfield(wire, body.u16()?, width, Error::ActionArgument)?;
    if let LearnSource::Constant { value, bits } = &mut source {
        // The field may be wider on the wire than its value.
        *bits = to.bits;
        if to.bits < 128 && *value >> to.bits != 0 {
            return Err(Error::ActionArgument);
        }
    }
    if kind == LEARN_LOAD {
        if !to.field.is_writable() {
            return Err(Error::ActionArgument);
        }
        return Ok(LearnPart::Load(source, to));
    }
    Ok(LearnPart::Match(source, to))
}
