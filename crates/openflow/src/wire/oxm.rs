//! Headers of match fields in the formats NXM and OXM, including the ONF experimenter class (OpenFlow 1.5.1
//! section 7.2.3, ovs-fields(7)).
//!
//! A header consists of the class (16 bits), the field number (7 bits), the has-mask flag (1 bit) and the
//! length of the value in octets (8 bits). In class 0xffff, the experimenter ID follows. [`Wire`] describes
//! the encoding of a [`Field`] in one version. Decoding accepts the encodings of all versions.

use std::sync::LazyLock;

use switch::flow::{Field, SubField};

use super::error::Error;
use super::ofp::matching::*;
use super::ofp::nx::NXM_NX_COOKIE;
use super::{ONF, Put, Reader, Version, port_from_16, port_to_16};

/// OXM class, field number and length of the cookie field in Nicira's flow-mods and requests. The length of the cookie
/// is 8 octets. A header with this class and field number but with a length of 1 octet is the header of the MPLS TTL
/// field.
const NXM_COOKIE: (u16, u8, usize) = (OFPXMC_NXM_1, NXM_NX_COOKIE, 8);

/// Encoding of a match field in messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wire {
    /// Match field that this encoding represents.
    pub field: Field,
    class: u16,
    number: u8,
    /// Length of the encoded value of the field in octets.
    len: u8,
    /// Number of bits by which the encoded value is shifted left, relative to the value of the
    /// [`Field`]. The number is 2 for the DSCP in the IP ToS octet, and 0 for all other fields.
    shift: u8,
    /// Width of the encoded value in bits, including leading zeros.
    bits: u16,
    /// Whether the encoded value is a 16-bit port number of OpenFlow 1.0.
    port16: bool,
}

fn plain(field: Field, (class, number, len): (u16, u8, u8)) -> Wire {
    let tos = field == Field::IpDscp && class == OFPXMC_NXM_0;
    Wire {
        field,
        class,
        number,
        len,
        shift: if tos { 2 } else { 0 },
        bits: match field {
            Field::ArpOp => 16,
            _ if tos => 8,
            field => u16::try_from(field.bits()).unwrap_or(0),
        },
        port16: false,
    }
}

const IN_PORT_16: Wire =
    Wire { field: Field::InPort, class: OFPXMC_NXM_0, number: 0, len: 2, shift: 0, bits: 16, port16: true };

/// Known encodings of match fields, indexed by class and field number. The classes are Nicira's two classes, OpenFlow's
/// basic class, the class of extended registers, and the ONF's class.
static KNOWN: LazyLock<[Vec<Option<Wire>>; 5]> = LazyLock::new(|| {
    let mut known: [Vec<Option<Wire>>; 5] = std::array::from_fn(|_| vec![None; 128]);
    for field in Field::ALL {
        for id in [field.nxm(), field.oxm()].into_iter().flatten() {
            if let Some(class) = class_index(id.class) {
                known[class][usize::from(id.field)] = Some(plain(field, (id.class, id.field, id.len)));
            }
        }
    }
    known[0][0] = Some(IN_PORT_16);
    for field in [Field::TcpFlags, Field::ActsetOutput] {
        if let Some(id) = field.oxm() {
            known[4][usize::from(id.field)] =
                Some(Wire { class: OFPXMC_EXPERIMENTER, ..plain(field, (id.class, id.field, id.len)) });
        }
    }
    known
});

fn class_index(class: u16) -> Option<usize> {
    match class {
        OFPXMC_NXM_0 => Some(0),
        OFPXMC_NXM_1 => Some(1),
        OFPXMC_OPENFLOW_BASIC => Some(2),
        OFPXMC_PACKET_REGS => Some(3),
        OFPXMC_EXPERIMENTER => Some(4),
        _ => None,
    }
}

/// Encoding of each match field in each OpenFlow version. NXM is used up to OpenFlow 1.1. OXM is used since OpenFlow
/// 1.2, if the field has an OXM number.
static BY_VERSION: LazyLock<[[Option<Wire>; 4]; Field::ALL.len()]> = LazyLock::new(|| {
    Field::ALL.map(|field| {
        let nxm = match field {
            Field::InPort => Some(IN_PORT_16),
            _ => field.nxm().or(field.oxm()).map(|id| plain(field, (id.class, id.field, id.len))),
        };
        let oxm = field.oxm().or(field.nxm()).map(|id| plain(field, (id.class, id.field, id.len)));
        let onf = matches!(field, Field::TcpFlags | Field::ActsetOutput);
        let oxm13 = oxm.map(|wire| if onf { Wire { class: OFPXMC_EXPERIMENTER, ..wire } } else { wire });
        // These fields have a standard number since OpenFlow 1.3.
        let oxm12 = match field {
            Field::TunId | Field::TcpFlags => nxm,
            _ => oxm13,
        };
        [nxm, oxm12, oxm13, oxm]
    })
});

impl Wire {
    /// Returns the encoding of a match field in messages of an OpenFlow version. Returns `None` if the version cannot
    /// encode the field.
    #[must_use]
    pub fn of(field: Field, version: Version) -> Option<Wire> {
        let column = match version {
            Version::V10 | Version::V11 => 0,
            Version::V12 => 1,
            Version::V13 | Version::V14 => 2,
            Version::V15 => 3,
        };
        BY_VERSION[field as usize][column]
    }

    fn known(class: u16, number: u8, len: usize) -> Option<Wire> {
        let wire = (*KNOWN.get(class_index(class)?)?.get(usize::from(number))?)?;
        if wire.field.tun_metadata_number().is_some() {
            // The length is that of the option, or Open vSwitch's 124 octets.
            let len = u8::try_from(len).ok().filter(|len| (1..=124).contains(len))?;
            return Some(Wire { len, ..wire });
        }
        (usize::from(wire.len) == len).then_some(wire)
    }

    /// Returns the length in octets of the encoded match field, including its header. If `masked`
    /// is true, the length includes a mask.
    #[must_use]
    pub fn octets(&self, masked: bool) -> usize {
        4 + if self.class == OFPXMC_EXPERIMENTER { 4 } else { 0 }
            + usize::from(self.len) * if masked { 2 } else { 1 }
    }

    /// Returns the length in octets of the encoded header of the match field.
    #[must_use]
    pub fn octets_of_header(&self) -> usize {
        if self.class == OFPXMC_EXPERIMENTER { 8 } else { 4 }
    }

    /// Encodes the header of the match field without a value. The length in the header covers the
    /// value, and the mask if `masked` is true.
    pub fn put_header(&self, out: &mut Vec<u8>, masked: bool) {
        let experimenter = if self.class == OFPXMC_EXPERIMENTER { 4 } else { 0 };
        let len = (self.len << u8::from(masked)) + experimenter;
        out.u16(self.class);
        out.u8(self.number << 1 | u8::from(masked));
        out.u8(len);
        if experimenter > 0 {
            out.u32(ONF);
        }
    }

    fn put_value(&self, out: &mut Vec<u8>, value: u128) {
        let bytes = (value << self.shift).to_be_bytes();
        out.extend_from_slice(&bytes[16 - usize::from(self.len)..]);
    }

    /// Encodes a match field with its value. The mask is included unless all its bits are set.
    pub fn put(&self, out: &mut Vec<u8>, value: u128, mask: u128) {
        let all = self.field.all_ones();
        if self.port16 {
            self.put_header(out, false);
            out.u16(port_to_16(u32::try_from(value).unwrap_or(u32::MAX)));
        } else if mask & all == all {
            self.put_header(out, false);
            self.put_value(out, value);
        } else {
            self.put_header(out, true);
            self.put_value(out, value);
            self.put_value(out, mask);
        }
    }

    /// Decodes the value of a match field. If `mask` is true, decodes the mask of the field
    /// instead.
    fn value(&self, bytes: &[u8], mask: bool) -> Result<u128, Error> {
        let (above, bytes) = bytes.split_at(bytes.len().saturating_sub(16));
        let mut value = bytes.iter().fold(0_u128, |value, byte| value << 8 | u128::from(*byte));
        if !mask && above.iter().any(|byte| *byte != 0) {
            return Err(Error::MatchValue);
        }
        if self.port16 {
            return Ok(u128::from(port_from_16(u16::try_from(value).unwrap_or(u16::MAX))));
        }
        if mask && value.trailing_ones() >= u32::from(self.bits) {
            // A full mask may have more ones than the field has bits (ARP operation).
            return Ok(self.field.all_ones());
        }
        if self.shift > 0 && value.trailing_zeros() < u32::from(self.shift) {
            return Err(Error::MatchValue);
        }
        value >>= self.shift;
        if value & !self.field.all_ones() != 0 {
            return Err(Error::MatchValue);
        }
        Ok(value)
    }
}

/// A decoded header of a match field.
#[derive(Clone, Copy, Debug)]
pub struct FieldHeader {
    /// Encoding of the field. `None` if the field is unknown.
    pub wire: Option<Wire>,
    /// Whether the field is Nicira's cookie field.
    pub cookie: bool,
    /// Whether the value is followed by a mask.
    pub masked: bool,
    /// Length in octets of the data that follow the header and the experimenter ID.
    pub len: usize,
}

/// Decodes a header of a match field, and the experimenter ID if there is one.
///
/// # Errors
/// Returns the errors of the reader.
pub fn header(from: &mut Reader<'_>) -> Result<FieldHeader, Error> {
    let class = from.u16()?;
    let number = from.u8()?;
    let (masked, number) = (number & 1 != 0, number >> 1);
    let mut len = usize::from(from.u8()?);
    let mut onf = true;
    if class == OFPXMC_EXPERIMENTER {
        onf = from.u32()? == ONF;
        len = len.checked_sub(4).ok_or(from.short)?;
    }
    let own = if masked { len / 2 } else { len };
    let whole = !masked || len.is_multiple_of(2);
    let wire = if onf && whole { Wire::known(class, number, own) } else { None };
    Ok(FieldHeader { wire, cookie: (class, number, own) == NXM_COOKIE && whole, masked, len })
}

/// A match field that [`entry`] has decoded.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    /// A known field, with its value and mask.
    Field(Wire, u128, u128),
    /// The cookie field, with its value and mask.
    Cookie(u64, u64),
    /// A field that is not known.
    Unknown,
}

/// Decodes a match field with its value and mask. Value bits outside of the mask are not checked.
///
/// # Errors
/// Returns the errors of the reader, or [`Error::MatchValue`] if the value is out of range.
pub fn entry(from: &mut Reader<'_>) -> Result<Entry, Error> {
    let head = header(from)?;
    let own = if head.masked { head.len / 2 } else { head.len };
    let mut body = from.part(head.len)?;
    if head.cookie {
        let value = body.u64()?;
        return Ok(Entry::Cookie(value, if head.masked { body.u64()? } else { u64::MAX }));
    }
    let Some(wire) = head.wire else { return Ok(Entry::Unknown) };
    let value = wire.value(body.take(own)?, false)?;
    let mask = if head.masked { wire.value(body.take(own)?, true)? } else { wire.field.all_ones() };
    Ok(Entry::Field(wire, value, mask))
}

/// Returns the subfield that an action of Nicira specifies. `first` and `bits` count bits of the encoded
/// value.
///
/// # Errors
/// Returns `bad` if the field is unknown, or if the bits are not within it.
pub fn subfield(wire: Option<Wire>, first: u16, bits: u16, bad: Error) -> Result<SubField, Error> {
    let wire = wire.ok_or(bad)?;
    if bits == 0 || first.checked_add(bits).is_none_or(|end| end > wire.bits.max(1)) {
        return Err(bad);
    }
    if wire.shift > 0 {
        let first = first.checked_sub(u16::from(wire.shift)).ok_or(bad)?;
        return Ok(SubField { field: wire.field, first, bits });
    }
    let own = u16::try_from(wire.field.bits()).unwrap_or(0);
    let bits = bits.min(own.checked_sub(first).filter(|left| *left > 0).ok_or(bad)?);
    Ok(SubField { field: wire.field, first, bits })
}

/// Returns the encoding of a subfield in Nicira's actions: the field's encoding, the first bit, and the width
/// in bits of the encoded value. Returns `None` if the subfield cannot be encoded.
#[must_use]
pub fn nx_subfield(part: &SubField, version: Version) -> Option<(Wire, u16, u16)> {
    // A port number is encoded in 16 bits if possible, like in Open vSwitch.
    let version = if part.field == Field::InPort { Version::V10 } else { version };
    let mut wire = Wire::of(part.field, version)?;
    if wire.port16 && part.first + part.bits > 16 {
        wire = Wire::of(part.field, Version::V15)?;
    }
    // A complete field may be wider on the wire.
    let whole = part.first == 0 && usize::from(part.bits) == part.field.bits() && wire.shift == 0;
    let bits = if whole { wire.bits } else { part.bits };
    Some((wire, part.first + u16::from(wire.shift), bits))
}

impl Wire {
    /// Returns the number of the field among OpenFlow's basic fields (OFPXMT_OFB_*). Returns `None` if the field is not
    /// a basic field.
    #[must_use]
    pub fn basic_number(&self) -> Option<u8> {
        (self.class == OFPXMC_OPENFLOW_BASIC).then_some(self.number)
    }

    /// Returns whether the encoded value is a 16-bit port number of OpenFlow 1.0.
    #[must_use]
    pub fn is_port16(&self) -> bool {
        self.port16
    }

    /// Returns the width in bits of the encoded value of the match field.
    #[must_use]
    pub fn wire_bits(&self) -> u16 {
        self.bits
    }
}
