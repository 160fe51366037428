//! Encoding of the headers and the padding of actions.

use switch::flow::SubField;

use crate::wire::ofp::action::OFPAT_EXPERIMENTER;
use crate::wire::oxm::nx_subfield;
use crate::wire::{NICIRA, Put, Version};

/// Encodes a standard action of type `kind`, with the given body and padding.
pub(super) fn standard(out: &mut Vec<u8>, kind: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.u16(kind);
    out.u16(0);
    body(out);
    out.align(start);
    out.set_length(start, 2);
}

/// Encodes an action of Nicira that has the subtype `subtype`, the given body, and padding.
pub(super) fn nicira(out: &mut Vec<u8>, subtype: u16, body: impl FnOnce(&mut Vec<u8>)) {
    standard(out, OFPAT_EXPERIMENTER, |out| {
        out.u32(NICIRA);
        out.u16(subtype);
        body(out);
        // The minimum length is 16 octets.
    });
    debug_assert!(out.len().is_multiple_of(2));
}

/// Encodes an action that is a standard action since OpenFlow 1.1. In OpenFlow 1.0, the function
/// encodes an action of Nicira instead.
pub(super) fn either(
    out: &mut Vec<u8>,
    version: Version,
    kind: u16,
    subtype: u16,
    body: impl FnOnce(&mut Vec<u8>),
) {
    if version == Version::V10 { nicira(out, subtype, body) } else { standard(out, kind, body) }
}

/// Returns the first bit and the width of a subfield in the 16-bit form that Nicira's actions
/// contain.
pub(super) fn packed(first: u16, bits: u16) -> u16 {
    first << 6 | bits.saturating_sub(1) & 0x3f
}

/// Encodes a subfield in the format of Nicira's actions: the packed first bit and width, then the
/// output of `between`, then the header of the field.
pub(super) fn put_packed(out: &mut Vec<u8>, part: &SubField, between: impl FnOnce(&mut Vec<u8>)) {
    if let Some((wire, first, bits)) = nx_subfield(part, Version::V10) {
        out.u16(packed(first, bits));
        between(out);
        wire.put_header(out, false);
    }
}
