//! Encoding and decoding of Nicira's actions that have several arguments.

use switch::flow::{Action, BundleMode, Conjunction, HashFields, Learn, LearnPart, LearnSource, SubField};

use super::field::{bits, destination};
use super::frame::{nicira, put_packed};
use crate::wire::error::Error;
use crate::wire::ofp::nx::*;
use crate::wire::ofp::switch::OFPR_ACTION;
use crate::wire::oxm::{header, nx_subfield, subfield};
use crate::wire::{Put, Reader, Version, low16, port_from_16, port_to_16, properties};

/// Subtype numbers of Nicira's actions whose encoding depends on their arguments (NXAST_*).
pub(super) mod nx {
    pub const BUNDLE: u16 = 12;
    pub const BUNDLE_LOAD: u16 = 13;
    pub const LEARN: u16 = 16;
    pub const CONTROLLER: u16 = 20;
    pub const CONTROLLER2: u16 = 37;
    pub const LEARN2: u16 = 45;
}

const HASHES: [HashFields; 7] = [
    HashFields::EthSrc,
    HashFields::SymmetricL4,
    HashFields::SymmetricL3L4,
    HashFields::SymmetricL3L4Udp,
    HashFields::NwSrc,
    HashFields::NwDst,
    HashFields::SymmetricL3,
];
const MULTIPATH: [BundleMode; 4] =
    [BundleMode::Modulo, BundleMode::Threshold, BundleMode::Weight, BundleMode::Iterative];
const BUNDLE: [BundleMode; 2] = [BundleMode::ActiveBackup, BundleMode::Weight];
const LEARN_IMMEDIATE: u16 = 1 << 13;
const LEARN_LOAD: u16 = 1 << 11;
const LEARN_OUTPUT: u16 = 2 << 11;

fn choice<T: Copy>(all: &[T], number: u16) -> Result<T, Error> {
    all.get(usize::from(number)).copied().ok_or(Error::ActionArgument)
}

/// Decodes NXAST_OUTPUT_REG. If `second` is true, decodes NXAST_OUTPUT_REG2, whose field is at the
/// end.
pub(super) fn output_reg(body: &mut Reader<'_>, second: bool) -> Result<Action, Error> {
    let (first, width) = bits(body.u16()?);
    let before = if second { Some(body.u16()?) } else { None };
    let source = subfield(header(body)?.wire, first, width, Error::ActionArgument)?;
    let max_len = match before {
        Some(max_len) => max_len,
        None => body.u16()?,
    };
    Ok(Action::OutputReg { source, max_len })
}

pub(super) fn dec_ttl_ids(body: &mut Reader<'_>) -> Result<Action, Error> {
    let count = usize::from(body.u16()?);
    body.skip(4)?;
    let mut ids = body.part(count * 2)?;
    let mut out = Vec::new();
    while !ids.is_empty() {
        out.push(ids.u16()?);
    }
    Ok(Action::DecTtl(out))
}

pub(super) fn stack(body: &mut Reader<'_>, is_push: bool) -> Result<Action, Error> {
    let first = body.u16()?;
    let wire = header(body)?.wire;
    let part = subfield(wire, first, body.u16()?, Error::ActionArgument)?;
    match is_push {
        true => Ok(Action::Push(part)),
        false if part.field.is_writable() => Ok(Action::Pop(part)),
        false => Err(Error::ActionArgument),
    }
}

pub(super) fn conjunction(body: &mut Reader<'_>) -> Result<Action, Error> {
    let (clause, clauses) = (body.u8()?, body.u8()?);
    let id = body.u32()?;
    if !(2..=64).contains(&clauses) || clause >= clauses {
        return Err(Error::ActionArgument);
    }
    Ok(Action::Conjunction(Conjunction { id, clause, clauses }))
}

pub(super) fn multipath(body: &mut Reader<'_>) -> Result<Action, Error> {
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

pub(super) fn bundle(body: &mut Reader<'_>, load: bool) -> Result<Action, Error> {
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

pub(super) fn controller2(body: &mut Reader<'_>) -> Result<Action, Error> {
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

pub(super) fn learn(body: &mut Reader<'_>, second: bool) -> Result<Action, Error> {
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

fn place<T: PartialEq>(all: &[T], one: &T) -> u16 {
    low16(all.iter().position(|it| it == one).unwrap_or(0))
}

pub(super) fn put_stack(out: &mut Vec<u8>, subtype: u16, part: &SubField) {
    if let Some((wire, first, bits)) = nx_subfield(part, Version::V10) {
        nicira(out, subtype, |out| {
            out.u16(first);
            wire.put_header(out, false);
            out.u16(bits);
        });
    }
}

/// Encodes the arguments of NXAST_MULTIPATH.
pub(super) fn put_multipath(
    out: &mut Vec<u8>,
    (fields, basis, mode): (HashFields, u16, BundleMode),
    max_link: u16,
    argument: u32,
    to: &SubField,
) {
    out.u16(place(&HASHES, &fields));
    out.u16(basis);
    out.zeros(2);
    out.u16(place(&MULTIPATH, &mode));
    out.u16(max_link);
    out.u32(argument);
    out.zeros(2);
    put_packed(out, to, |_| {});
}

pub(super) fn put_bundle(
    out: &mut Vec<u8>,
    (fields, basis, mode): (HashFields, u16, BundleMode),
    ports: &[u32],
    to: Option<&SubField>,
) {
    nicira(out, if to.is_some() { nx::BUNDLE_LOAD } else { nx::BUNDLE }, |out| {
        out.u16(place(&BUNDLE, &mode));
        out.u16(place(&HASHES, &fields));
        out.u16(basis);
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

pub(super) fn put_controller(
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

pub(super) fn put_learn(out: &mut Vec<u8>, learn: &Learn) {
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
