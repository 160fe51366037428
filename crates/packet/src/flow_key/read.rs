//! Functions that read header fields at fixed offsets, for the parsers of L2 and of the higher layers.

use crate::numbers::ethertype;

/// Returns whether the flow key has fields for the header with this EtherType (IPv4, IPv6, ARP, RARP). `extract`
/// parses only such headers.
#[inline(always)]
pub(super) fn is_read_on(eth_type: u16) -> bool {
    matches!(eth_type, ethertype::IPV4 | ethertype::IPV6 | ethertype::ARP | ethertype::RARP)
}

#[inline(always)]
pub(super) fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
pub(super) fn le32<const N: usize>(b: &[u8; N], at: usize) -> u64 {
    u64::from(u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]))
}

#[inline(always)]
pub(super) fn le64<const N: usize>(b: &[u8; N], at: usize) -> u64 {
    le32(b, at) | le32(b, at + 4) << 32
}
