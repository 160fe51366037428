//! Encoding and decoding of the actions of the connection tracker: `ct`, the action `nat` inside of `ct`, and
//! `ct_clear` (NXAST_CT, NXAST_NAT and NXAST_CT_CLEAR, Open vSwitch's `ofp-actions.c`).

use std::net::IpAddr;

use switch::flow::{Action, Ct, CtNat, NatEnd, NatRange, NatSelection, ZoneSource};

use super::field::bits;
use super::frame::{nicira, packed};
use crate::wire::error::Error;
use crate::wire::oxm::{header, nx_subfield, subfield};
use crate::wire::{Put, Reader, Version};

/// Subtype numbers of Nicira's actions of the connection tracker (NXAST_*).
pub(super) mod nx {
    pub const CT: u16 = 35;
    pub const NAT: u16 = 36;
    pub const CT_CLEAR: u16 = 43;
}

/// Flag of NXAST_CT: the connection is entered into the table.
const NX_CT_F_COMMIT: u16 = 1;
/// Flag of NXAST_CT: the packet opens a new connection in place of an existing one of the other direction.
const NX_CT_F_FORCE: u16 = 1 << 1;
/// Table number of NXAST_CT that means that no copy of the packet goes on in a table.
const NX_CT_RECIRC_NONE: u8 = 0xff;

const NX_NAT_F_SRC: u16 = 1;
const NX_NAT_F_DST: u16 = 1 << 1;
const NX_NAT_F_PERSISTENT: u16 = 1 << 2;
const NX_NAT_F_PROTO_HASH: u16 = 1 << 3;
const NX_NAT_F_PROTO_RANDOM: u16 = 1 << 4;
const NX_NAT_F_MASK: u16 = (1 << 5) - 1;

const NX_NAT_RANGE_IPV4_MIN: u16 = 1;
const NX_NAT_RANGE_IPV4_MAX: u16 = 1 << 1;
const NX_NAT_RANGE_IPV6_MIN: u16 = 1 << 2;
const NX_NAT_RANGE_IPV6_MAX: u16 = 1 << 3;
const NX_NAT_RANGE_PROTO_MIN: u16 = 1 << 4;
const NX_NAT_RANGE_PROTO_MAX: u16 = 1 << 5;
const NX_NAT_RANGE_MASK: u16 = (1 << 6) - 1;

/// Decodes NXAST_CT up to its nested actions. The result has no `nat` and no `exec`.
pub(super) fn ct_head(body: &mut Reader<'_>) -> Result<Ct, Error> {
    let flags = body.u16()?;
    let (commit, force) = (flags & NX_CT_F_COMMIT != 0, flags & NX_CT_F_FORCE != 0);
    if flags & !(NX_CT_F_COMMIT | NX_CT_F_FORCE) != 0 || (force && !commit) {
        return Err(Error::ActionArgument);
    }
    let mut source = body.part(4)?;
    let number = body.u16()?;
    let zone = if source.data == [0; 4] {
        ZoneSource::Number(number)
    } else {
        // The header of a field of an experimenter does not fit.
        source.short = Error::ActionSetType;
        let wire = header(&mut source)?.wire.ok_or(Error::ActionSetType)?;
        let (first, width) = bits(number);
        if width != 16 {
            return Err(Error::ActionSetLength);
        }
        ZoneSource::Field(subfield(Some(wire), first, width, Error::ActionSetLength)?)
    };
    let table = Some(body.u8()?).filter(|table| *table != NX_CT_RECIRC_NONE);
    body.skip(3)?;
    Ok(Ct { commit, force, zone, table, alg: body.u16()?, nat: None, exec: Vec::new() })
}

/// Returns the action `ct` with its nested actions. Refuses actions that do not set the mark or label of the
/// connection, and actions for new connections in an action that does not commit the connection.
pub(super) fn ct(head: Ct, nat: Option<CtNat>, exec: Vec<Action>) -> Result<Action, Error> {
    let is_for_new = !exec.is_empty() || matches!(nat, Some(CtNat::New(_)));
    if (is_for_new && !head.commit) || !exec.iter().all(Action::sets_connection) {
        return Err(Error::ActionArgument);
    }
    Ok(Action::Ct(Box::new(Ct { nat, exec, ..head })))
}

/// Decodes NXAST_NAT.
pub(super) fn nat(body: &mut Reader<'_>) -> Result<CtNat, Error> {
    body.short = Error::ActionArgument;
    body.skip(2)?;
    let (flags, present) = (body.u16()?, body.u16()?);
    if flags & !NX_NAT_F_MASK != 0 || present & !NX_NAT_RANGE_MASK != 0 {
        return Err(Error::ActionArgument);
    }
    let end = match (flags & NX_NAT_F_SRC != 0, flags & NX_NAT_F_DST != 0) {
        (false, false) if flags == 0 && present == 0 => return Ok(CtNat::Existing),
        (true, false) => NatEnd::Source,
        (false, true) => NatEnd::Destination,
        _ => return Err(Error::ActionArgument),
    };
    let selection = match (flags & NX_NAT_F_PROTO_HASH != 0, flags & NX_NAT_F_PROTO_RANDOM != 0) {
        (false, false) => NatSelection::Any,
        (true, false) => NatSelection::Hash,
        (false, true) => NatSelection::Random,
        (true, true) => return Err(Error::ActionArgument),
    };
    let ipv4 = range(body, present, (NX_NAT_RANGE_IPV4_MIN, NX_NAT_RANGE_IPV4_MAX), |body| body.u32())?;
    let ipv6 = range(body, present, (NX_NAT_RANGE_IPV6_MIN, NX_NAT_RANGE_IPV6_MAX), |body| {
        Ok(body.take(16)?.iter().fold(0_u128, |value, byte| value << 8 | u128::from(*byte)))
    })?;
    let ports = range(body, present, (NX_NAT_RANGE_PROTO_MIN, NX_NAT_RANGE_PROTO_MAX), |body| body.u16())?;
    if ports.is_some_and(|(first, _)| first == 0) {
        return Err(Error::ActionArgument);
    }
    let addresses = match (ipv4, ipv6) {
        (Some((first, last)), None) => Some((IpAddr::V4(first.into()), IpAddr::V4(last.into()))),
        (None, Some((first, last))) => Some((IpAddr::V6(first.into()), IpAddr::V6(last.into()))),
        (None, None) if ports.is_none() => None,
        _ => return Err(Error::ActionArgument),
    };
    let persistent = flags & NX_NAT_F_PERSISTENT != 0;
    Ok(CtNat::New(NatRange { end, addresses, ports, persistent, selection }))
}

/// Decodes the first and the last value of a range. `flags` are the bits of `present` that specify which of the values
/// the message has. A missing last value is equal to the first value.
fn range<T: Copy + PartialOrd>(
    body: &mut Reader<'_>,
    present: u16,
    flags: (u16, u16),
    mut get: impl FnMut(&mut Reader<'_>) -> Result<T, Error>,
) -> Result<Option<(T, T)>, Error> {
    let (has_first, has_last) = (present & flags.0 != 0, present & flags.1 != 0);
    if !has_first {
        return if has_last { Err(Error::ActionArgument) } else { Ok(None) };
    }
    let first = get(body)?;
    let last = if has_last { get(body)? } else { first };
    if last < first { Err(Error::ActionArgument) } else { Ok(Some((first, last))) }
}

/// Encodes NXAST_CT. `exec` encodes the actions of the action's `exec`.
pub(super) fn put_ct(out: &mut Vec<u8>, ct: &Ct, exec: impl FnOnce(&mut Vec<u8>)) {
    nicira(out, nx::CT, |out| {
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        out.u16(flag(ct.commit, NX_CT_F_COMMIT) | flag(ct.force, NX_CT_F_FORCE));
        match &ct.zone {
            ZoneSource::Number(zone) => {
                out.u32(0);
                out.u16(*zone);
            }
            ZoneSource::Field(part) => match nx_subfield(part, Version::V10) {
                Some((wire, first, bits)) => {
                    wire.put_header(out, false);
                    out.u16(packed(first, bits));
                }
                None => out.zeros(6),
            },
        }
        out.u8(ct.table.unwrap_or(NX_CT_RECIRC_NONE));
        out.zeros(3);
        out.u16(ct.alg);
        if let Some(nat) = &ct.nat {
            put_nat(out, nat);
        }
        exec(out);
    });
}

fn put_nat(out: &mut Vec<u8>, nat: &CtNat) {
    let CtNat::New(range) = nat else {
        return nicira(out, nx::NAT, |out| out.zeros(6));
    };
    let mut flags = match range.end {
        NatEnd::Source => NX_NAT_F_SRC,
        NatEnd::Destination => NX_NAT_F_DST,
    };
    if range.persistent {
        flags |= NX_NAT_F_PERSISTENT;
    }
    flags |= match range.selection {
        NatSelection::Any => 0,
        NatSelection::Hash => NX_NAT_F_PROTO_HASH,
        NatSelection::Random => NX_NAT_F_PROTO_RANDOM,
    };
    let mut present = 0;
    let mut values = Vec::new();
    if let Some((first, last)) = range.addresses {
        let (min, max) = match first {
            IpAddr::V4(_) => (NX_NAT_RANGE_IPV4_MIN, NX_NAT_RANGE_IPV4_MAX),
            IpAddr::V6(_) => (NX_NAT_RANGE_IPV6_MIN, NX_NAT_RANGE_IPV6_MAX),
        };
        present |= min;
        put_address(&mut values, first);
        if last != first {
            present |= max;
            put_address(&mut values, last);
        }
    }
    if let Some((first, last)) = range.ports {
        present |= NX_NAT_RANGE_PROTO_MIN;
        values.u16(first);
        if last != first {
            present |= NX_NAT_RANGE_PROTO_MAX;
            values.u16(last);
        }
    }
    nicira(out, nx::NAT, |out| {
        out.zeros(2);
        out.u16(flags);
        out.u16(present);
        out.extend_from_slice(&values);
    });
}

fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
    }
}
