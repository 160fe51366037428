//! Reads the fields of a flow key that a bridge uses: the fields that decide VLAN admission, and the MAC addresses.

use packet::FlowKey;

pub(crate) const MAC_MASK: u64 = 0xffff_ffff_ffff;
/// Mask of the bits in the first word of a flow key that decide VLAN admission: ingress port, L2 flags, and outer TCI
/// (VLAN tag) without its priority bits.
const INGRESS_MASK: u64 = 0x0000_ff1f_00ff_ffff;

/// Returns the first word of a flow key, reduced to the fields that decide VLAN admission.
#[inline(always)]
pub(crate) fn ingress(key: &FlowKey) -> u64 {
    u64::from_le(key.words()[0]) & INGRESS_MASK
}

/// Returns the source and the destination MAC address of a frame, each in the form of [`crate::tables::mac_bits`].
#[inline(always)]
pub(crate) fn addresses(key: &FlowKey) -> (u64, u64) {
    let words = key.words();
    let (first, second) = (u64::from_le(words[1]), u64::from_le(words[2]));
    ((first >> 48 | second << 16) & MAC_MASK, first & MAC_MASK)
}
