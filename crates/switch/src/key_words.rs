//! Parts of a flow key's words that bridges use: what decides admission, and the addresses.

use packet::FlowKey;

pub(crate) const MAC_MASK: u64 = 0xffff_ffff_ffff;
/// Mask of the first key word's fields that decide admission: ingress port, L2 flags, outer TCI without its
/// priority.
const INGRESS_MASK: u64 = 0x0000_ff1f_00ff_ffff;

/// Returns the fields of a key's first word that decide admission.
#[inline(always)]
pub(crate) fn ingress(key: &FlowKey) -> u64 {
    u64::from_le(key.words()[0]) & INGRESS_MASK
}

/// Returns source and destination of a frame as [`crate::tables::mac_bits`], directly from the key's words.
#[inline(always)]
pub(crate) fn addresses(key: &FlowKey) -> (u64, u64) {
    let words = key.words();
    let (first, second) = (u64::from_le(words[1]), u64::from_le(words[2]));
    ((first >> 48 | second << 16) & MAC_MASK, first & MAC_MASK)
}
