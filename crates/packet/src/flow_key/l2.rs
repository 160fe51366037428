//! The L2 part of a flow key: MAC addresses, at most two VLAN tags (802.1Q, 802.1ad), EtherType or LLC.

use super::read::{be16, is_read_on, le32};
use super::{INNER_IS_SERVICE, OUTER_IS_SERVICE, TAG_PRESENT};
use crate::numbers::ethertype;
use crate::{DropReason, PortId, VlanId};

/// Destination and source service access points in the LLC header of a SNAP frame (IEEE 802).
const SNAP: [u8; 2] = [0xaa, 0xaa];

/// The L2 header as the first three words of the flow key, which are stored as little-endian numbers.
///
/// The words are three fields and not an array, because the compiler keeps fields in registers. The compiler would
/// write an array to the stack and then read it with loads that are wider than the preceding stores. Such loads stall.
#[derive(Clone, Copy)]
pub(super) struct L2 {
    pub(super) w0: u64,
    pub(super) w1: u64,
    pub(super) w2: u64,
    /// EtherType after the VLAN tags and the SNAP header.
    pub(super) eth_type: u16,
    /// Offset of the L2 payload, 14 to 30 octets.
    pub(super) len: u16,
}

/// VLAN tags of a frame. `bits` contains the bits of the tags in word 0 of the flow key.
struct Tags {
    bits: u64,
    eth_type: u16,
    len: u16,
}

impl L2 {
    #[inline(always)]
    pub(super) fn read(frame: &[u8], in_port: PortId) -> Result<L2, DropReason> {
        let head = frame.first_chunk::<14>().ok_or(DropReason::EthTruncated)?;
        let mut tags = Tags { bits: 0, eth_type: be16(head, 12), len: 14 };
        if is_tag(tags.eth_type) {
            tags = Tags::read(frame, tags.eth_type)?;
        }
        if tags.eth_type < ethertype::MIN {
            (tags.eth_type, tags.len) = read_llc(frame, tags.len);
        }
        Ok(L2::of(head, in_port, &tags))
    }

    /// Returns the L2 header of an untagged frame that carries neither IP nor ARP. Returns `None` for other
    /// frames.
    #[inline(always)]
    pub(super) fn read_bare(head: &[u8; 22], in_port: PortId) -> Option<L2> {
        let mut eth_type = be16(head, 12);
        if eth_type < ethertype::MIN {
            if head[14..16] == SNAP {
                return None;
            }
            eth_type = ethertype::LLC;
        }
        if is_read_on(eth_type) || is_tag(eth_type) {
            return None;
        }
        let tags = Tags { bits: 0, eth_type, len: 14 };
        head.first_chunk().map(|head| L2::of(head, in_port, &tags))
    }

    #[inline(always)]
    fn of(head: &[u8; 14], in_port: PortId, tags: &Tags) -> L2 {
        let w2 = le32(head, 8) | u64::from(tags.eth_type.swap_bytes()) << 32;
        let w0 = u64::from(in_port.0) | tags.bits;
        // The word is read with one load. If the word were assembled from bytes, the compiler would split it into bytes
        // again where a caller tests the group bit.
        let w1 = head.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
        L2 { w0, w1, w2, eth_type: tags.eth_type, len: tags.len }
    }
}

impl Tags {
    #[inline(always)]
    fn read(frame: &[u8], outer: u16) -> Result<Tags, DropReason> {
        let head = frame.first_chunk::<18>().ok_or(DropReason::VlanTruncated)?;
        let tci = be16(head, 14);
        if VlanId::from_tag(tci).is_none() {
            return Err(DropReason::VlanReservedId);
        }
        let service = if outer == ethertype::SERVICE_VLAN { OUTER_IS_SERVICE } else { 0 };
        let bits = u64::from(service) << 16 | present(tci) << 32;
        let next = be16(head, 16);
        if !is_tag(next) {
            return Ok(Tags { bits, eth_type: next, len: 18 });
        }
        let head = frame.first_chunk::<22>().ok_or(DropReason::VlanTruncated)?;
        let service = if next == ethertype::SERVICE_VLAN { INNER_IS_SERVICE } else { 0 };
        let bits = bits | u64::from(service) << 16 | present(be16(head, 18)) << 48;
        Ok(Tags { bits, eth_type: be16(head, 20), len: 22 })
    }
}

/// Returns the TCI of a VLAN tag as stored in the flow key: in network byte order, with [`TAG_PRESENT`] set.
#[inline]
fn present(tci: u16) -> u64 {
    u64::from((tci | TAG_PRESENT).swap_bytes())
}

#[inline]
fn is_tag(eth_type: u16) -> bool {
    eth_type == ethertype::VLAN || eth_type == ethertype::SERVICE_VLAN
}

/// Parses a frame whose type field is a length. Returns the EtherType of the SNAP header (RFC 1042), or
/// [`ethertype::LLC`] if there is no SNAP header. Also returns the length of the L2 header in octets.
#[cold]
fn read_llc(frame: &[u8], len: u16) -> (u16, u16) {
    let snap = frame.get(usize::from(len)..).and_then(<[u8]>::first_chunk::<8>);
    match snap {
        Some([0xaa, 0xaa, 0x03, 0, 0, 0, high, low]) if *high >= 0x06 => {
            (u16::from_be_bytes([*high, *low]), len + 8)
        }
        _ => (ethertype::LLC, len),
    }
}
