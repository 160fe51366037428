//! Encoding and decoding of actions that write fields. All encodings of these actions share the
//! checks in this module.

use switch::flow::{Action, Field, SubField};

use super::frame::{either, nicira, packed, standard};
use crate::wire::error::Error;
use crate::wire::ofp::action::*;
use crate::wire::oxm::{Entry, Wire, entry, header, nx_subfield, subfield};
use crate::wire::{Put, Reader, Version, port_from_16, port_to_16};

/// Subtype numbers of Nicira's actions that write fields (NXAST_*).
pub(super) mod nx {
    pub const SET_TUNNEL: u16 = 2;
    pub const REG_MOVE: u16 = 6;
    pub const REG_LOAD: u16 = 7;
    pub const SET_TUNNEL64: u16 = 9;
    pub const SET_MPLS_LABEL: u16 = 30;
    pub const SET_MPLS_TC: u16 = 31;
    pub const REG_LOAD2: u16 = 33;
}

/// Returns the action that sets the bits of `mask` in a field to `value`.
pub(super) fn set(wire: Wire, value: u128, mask: u128, load: bool) -> Result<Action, Error> {
    if !wire.field.is_writable() {
        return Err(Error::ActionSetType);
    }
    if value & !mask != 0 {
        return Err(Error::ActionSetArgument);
    }
    Ok(Action::Set { field: wire.field, value, mask, load })
}

/// Returns the action that copies the subfield `from` to the subfield `to`.
pub(super) fn movement(from: SubField, to: SubField) -> Result<Action, Error> {
    if from.bits != to.bits {
        return Err(Error::ActionArgument);
    }
    if !to.field.is_writable() {
        return Err(Error::ActionSetType);
    }
    Ok(Action::Move { from, to })
}

/// Returns the fields that an OpenFlow 1.0 action for a transport port can set: the source ports of
/// TCP, UDP and SCTP, or the destination ports if `to` is true.
pub(super) fn transport(to: bool) -> [Field; 3] {
    if to {
        [Field::TcpDst, Field::UdpDst, Field::SctpDst]
    } else {
        [Field::TcpSrc, Field::UdpSrc, Field::SctpSrc]
    }
}

/// Returns the first bit and the width of a subfield. `packed` is the 16-bit form that Nicira's
/// actions contain.
pub(super) fn bits(packed: u16) -> (u16, u16) {
    (packed >> 6, (packed & 0x3f) + 1)
}

pub(super) fn destination(from: &mut Reader<'_>, first: u16, bits: u16) -> Result<SubField, Error> {
    let part = subfield(header(from)?.wire, first, bits, Error::ActionArgument)?;
    if part.field.is_writable() { Ok(part) } else { Err(Error::ActionArgument) }
}

pub(super) fn reg_move(body: &mut Reader<'_>) -> Result<Action, Error> {
    let (bits, from_bit, to_bit) = (body.u16()?, body.u16()?, body.u16()?);
    let from = subfield(header(body)?.wire, from_bit, bits, Error::ActionArgument)?;
    let to = subfield(header(body)?.wire, to_bit, bits, Error::ActionArgument)?;
    movement(from, to)
}

pub(super) fn reg_load(body: &mut Reader<'_>) -> Result<Action, Error> {
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

/// Decodes a set-field action. The action contains a field with its value and padding. Since
/// OpenFlow 1.5, the action can also contain a mask.
pub(super) fn get_set_field(body: &mut Reader<'_>, version: Version) -> Result<Action, Error> {
    body.short = Error::ActionSetLength;
    let masked = body.data.get(2).is_some_and(|number| number & 1 != 0);
    let action = match entry(body)? {
        Entry::Field(wire, value, mask) => set(wire, value, mask, false)?,
        Entry::Cookie(..) | Entry::Unknown => return Err(Error::ActionSetType),
    };
    if masked && version < Version::V15 {
        return Err(Error::ActionSetMask);
    }
    if body.data.len() >= 8 {
        return Err(Error::ActionSetLength);
    }
    if body.data.iter().any(|byte| *byte != 0) {
        return Err(Error::ActionMustBeZero);
    }
    Ok(action)
}

/// Decodes the two fields of a copy-field action. In the action, the fields follow the number of bits and the two bit
/// offsets.
pub(super) fn copy_field(
    mut body: Reader<'_>,
    bits: u16,
    from_bit: u16,
    to_bit: u16,
) -> Result<Action, Error> {
    let from = header(&mut body)?.wire;
    let to = header(&mut body)?.wire;
    movement(
        subfield(from, from_bit, bits, Error::ActionSetType)?,
        subfield(to, to_bit, bits, Error::ActionSetType)?,
    )
}

pub(super) fn put_move(out: &mut Vec<u8>, version: Version, from: &SubField, to: &SubField) {
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

pub(super) fn put_set(
    out: &mut Vec<u8>,
    version: Version,
    field: Field,
    value: u128,
    mask: u128,
    load: bool,
) {
    let whole = mask == field.all_ones();
    match version {
        Version::V15 => put_set_field(out, version, field, value, mask),
        Version::V10 | Version::V11 if !load && whole && put_legacy(out, version, field, value) => {}
        Version::V12 | Version::V13 | Version::V14 if !load && whole => {
            put_set_field(out, version, field, value, mask)
        }
        _ => put_load(out, field, value, mask),
    }
}

fn put_set_field(out: &mut Vec<u8>, version: Version, field: Field, value: u128, mask: u128) {
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

/// Encodes an action that sets a field. The encoding is an action of OpenFlow 1.0 or 1.1, or an
/// action of Nicira. Returns false if there is no such action for the field.
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

fn number(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
