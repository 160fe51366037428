//! Header offsets and parse results of a packet, which extraction returns together with the flow key.

use std::fmt;

use crate::DropReason;

const L4: u32 = 16;
const L2_LEN: u32 = 32;
const FLAGS: u32 = 48;
const MALFORMED: u32 = 56;

const FRAGMENT: u64 = 1 << FLAGS;
const LATER_FRAGMENT: u64 = 2 << FLAGS;
const IPV4_OPTIONS: u64 = 4 << FLAGS;
const IPV6_EXTENSIONS: u64 = 8 << FLAGS;
const MULTICAST_CONTROL: u64 = 16 << FLAGS;
const HOP_BY_HOP: u64 = 32 << FLAGS;

/// Header offsets and parse results of one packet, 8 bytes in addition to the [`FlowKey`](super::FlowKey).
///
/// Offsets are counted from the first octet of the frame. An offset is set only if the header at the offset
/// is complete and valid. The L4 offset is also set for protocols that the parser does not parse.
///
/// The type is a single word, because a word is built and returned in a register. The word contains the L3 offset,
/// the L4 offset and the L2 length (16 bits each), the flags (8 bits), and the number of the drop reason of a
/// malformed header (8 bits, 0 if no header is malformed). The reason with number 0, "eth-truncated", cannot occur
/// here, because extraction then returns no `Layers`.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Layers(u64);

impl Layers {
    #[inline(always)]
    pub(super) fn l2_only(l2_len: u16) -> Layers {
        Layers(u64::from(l2_len) << L2_LEN)
    }

    #[inline(always)]
    pub(super) fn plain(l2_len: u16, l3_len: u16) -> Layers {
        let l2_len = u64::from(l2_len);
        Layers(l2_len | (l2_len + u64::from(l3_len)) << L4 | l2_len << L2_LEN)
    }

    #[inline]
    pub(super) fn set_l3(&mut self, offset: u16) {
        self.0 |= u64::from(offset);
    }

    #[inline]
    pub(super) fn set_l4(&mut self, offset: u16) {
        self.0 |= u64::from(offset) << L4;
    }

    #[inline]
    pub(super) fn set_malformed(&mut self, reason: DropReason) {
        self.0 |= u64::from(reason as u8) << MALFORMED;
    }

    #[inline]
    pub(super) fn set_fragment(&mut self, later: bool) {
        self.0 |= FRAGMENT | if later { LATER_FRAGMENT } else { 0 };
    }

    #[inline]
    pub(super) fn set_ipv4_options(&mut self) {
        self.0 |= IPV4_OPTIONS;
    }

    #[inline]
    pub(super) fn set_ipv6_extensions(&mut self) {
        self.0 |= IPV6_EXTENSIONS;
    }

    #[inline]
    pub(super) fn set_hop_by_hop(&mut self) {
        self.0 |= HOP_BY_HOP;
    }

    #[inline]
    pub(super) fn set_multicast_control(&mut self) {
        self.0 |= MULTICAST_CONTROL;
    }

    #[inline]
    fn field(self, shift: u32) -> usize {
        usize::try_from(self.0 >> shift & 0xffff).unwrap_or_default()
    }

    /// Returns the offset of the L2 payload: the length of MAC addresses, VLAN tags, EtherType and SNAP
    /// header, in octets.
    #[inline]
    pub fn l2_len(&self) -> usize {
        self.field(L2_LEN)
    }

    /// Returns the offset of the IPv4, IPv6 or ARP header in the frame, in octets. Returns `None` if the frame has
    /// no such header, or a malformed one.
    #[inline]
    pub fn l3(&self) -> Option<usize> {
        Some(self.field(0)).filter(|offset| *offset != 0)
    }

    /// Returns the offset of the header above IP in the frame, in octets. Returns `None` for fragments other than
    /// the first, and for malformed packets.
    #[inline]
    pub fn l4(&self) -> Option<usize> {
        Some(self.field(L4)).filter(|offset| *offset != 0)
    }

    /// Returns whether the packet is an IP fragment, either the first or a later one.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.0 & FRAGMENT != 0
    }

    /// Returns whether the packet is an IP fragment other than the first.
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        self.0 & LATER_FRAGMENT != 0
    }

    /// Returns whether the IPv4 header has options.
    #[inline]
    pub fn has_ipv4_options(&self) -> bool {
        self.0 & IPV4_OPTIONS != 0
    }

    /// Returns whether the packet has IPv6 extension headers.
    #[inline]
    pub fn has_ipv6_extensions(&self) -> bool {
        self.0 & IPV6_EXTENSIONS != 0
    }

    /// Returns whether the first IPv6 extension header is a hop-by-hop header. Every router processes this
    /// header (RFC 8200 section 4.3).
    #[inline]
    pub fn has_hop_by_hop(&self) -> bool {
        self.0 & HOP_BY_HOP != 0
    }

    /// Returns whether the router's fast path cannot handle the packet. This is the case if the L2 header is
    /// not exactly 14 octets long, a header is malformed, or the packet has IPv4 options or a hop-by-hop
    /// header.
    #[inline]
    pub fn is_special(&self) -> bool {
        let looked_at = 0xffff << L2_LEN | IPV4_OPTIONS | HOP_BY_HOP | 0xff << MALFORMED;
        self.0 & looked_at != 14 << L2_LEN
    }

    /// Returns whether the packet is IGMP or MLD, which multicast snooping processes.
    #[inline]
    pub fn is_multicast_control(&self) -> bool {
        self.0 & MULTICAST_CONTROL != 0
    }

    /// Returns the reason why a header above L2 is malformed. Parsing stopped at this header. Returns `None`
    /// if no header is malformed. A bridge forwards frames with malformed headers above L2.
    #[inline]
    pub fn malformed(&self) -> Option<DropReason> {
        match self.0 >> MALFORMED {
            0 => None,
            reason => u8::try_from(reason).ok().and_then(DropReason::from_u8),
        }
    }
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layers")
            .field("l2_len", &self.l2_len())
            .field("l3", &self.l3())
            .field("l4", &self.l4())
            .field("fragment", &self.is_fragment())
            .field("later_fragment", &self.is_later_fragment())
            .field("ipv4_options", &self.has_ipv4_options())
            .field("ipv6_extensions", &self.has_ipv6_extensions())
            .field("multicast_control", &self.is_multicast_control())
            .field("malformed", &self.malformed())
            .finish()
    }
}
