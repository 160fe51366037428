//! Where a packet's headers begin, and what stands out about them: the companion of the flow key.

use std::fmt;

use crate::DropReason;

const FRAGMENT: u8 = 1;
const LATER_FRAGMENT: u8 = 2;
const IPV4_OPTIONS: u8 = 4;
const IPV6_EXTENSIONS: u8 = 8;
const MULTICAST_CONTROL: u8 = 16;

/// Header offsets and findings of one packet: 8 bytes beside the [`FlowKey`](super::FlowKey).
///
/// Offsets count from the first octet of the frame. An offset is given only where the header there is whole and
/// sound (L4: also where its protocol is one that we do not look into).
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Layers {
    l3: u16,
    l4: u16,
    l2_len: u16,
    flags: u8,
    malformed: Option<DropReason>,
}

const _: () = assert!(size_of::<Layers>() == 8);

impl Layers {
    #[inline]
    pub(super) fn l2_only(l2_len: u16) -> Layers {
        Layers { l3: 0, l4: 0, l2_len, flags: 0, malformed: None }
    }

    #[inline]
    pub(super) fn plain(l2_len: u16, l3_len: u16) -> Layers {
        Layers { l3: l2_len, l4: l2_len + l3_len, l2_len, flags: 0, malformed: None }
    }

    #[inline]
    pub(super) fn set_l3(&mut self, offset: u16) {
        self.l3 = offset;
    }

    #[inline]
    pub(super) fn set_l4(&mut self, offset: u16) {
        self.l4 = offset;
    }

    #[inline]
    pub(super) fn set_malformed(&mut self, reason: DropReason) {
        self.malformed = Some(reason);
    }

    #[inline]
    pub(super) fn set_fragment(&mut self, later: bool) {
        self.flags |= FRAGMENT | if later { LATER_FRAGMENT } else { 0 };
    }

    #[inline]
    pub(super) fn set_ipv4_options(&mut self) {
        self.flags |= IPV4_OPTIONS;
    }

    #[inline]
    pub(super) fn set_ipv6_extensions(&mut self) {
        self.flags |= IPV6_EXTENSIONS;
    }

    #[inline]
    pub(super) fn set_multicast_control(&mut self) {
        self.flags |= MULTICAST_CONTROL;
    }

    /// Octets of addresses, tags, EtherType and SNAP header together: where the L2 payload begins.
    #[inline]
    pub fn l2_len(&self) -> usize {
        usize::from(self.l2_len)
    }

    /// Where the IPv4, IPv6 or ARP header begins.
    #[inline]
    pub fn l3(&self) -> Option<usize> {
        if self.l3 == 0 { None } else { Some(usize::from(self.l3)) }
    }

    /// Where the header above IP begins. `None` for fragments other than the first.
    #[inline]
    pub fn l4(&self) -> Option<usize> {
        if self.l4 == 0 { None } else { Some(usize::from(self.l4)) }
    }

    /// Whether the packet is an IP fragment, first or later.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.flags & FRAGMENT != 0
    }

    /// Whether the packet is an IP fragment other than the first.
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        self.flags & LATER_FRAGMENT != 0
    }

    /// Whether the IPv4 header has options.
    #[inline]
    pub fn has_ipv4_options(&self) -> bool {
        self.flags & IPV4_OPTIONS != 0
    }

    /// Whether there are IPv6 extension headers.
    #[inline]
    pub fn has_ipv6_extensions(&self) -> bool {
        self.flags & IPV6_EXTENSIONS != 0
    }

    /// Whether the packet is IGMP or MLD, which a snooping bridge reads.
    #[inline]
    pub fn is_multicast_control(&self) -> bool {
        self.flags & MULTICAST_CONTROL != 0
    }

    /// What is wrong above L2, if anything. Parsing stopped there; a bridge forwards such a frame all the same.
    #[inline]
    pub fn malformed(&self) -> Option<DropReason> {
        self.malformed
    }
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layers")
            .field("l2_len", &self.l2_len)
            .field("l3", &self.l3())
            .field("l4", &self.l4())
            .field("fragment", &self.is_fragment())
            .field("later_fragment", &self.is_later_fragment())
            .field("ipv4_options", &self.has_ipv4_options())
            .field("ipv6_extensions", &self.has_ipv6_extensions())
            .field("multicast_control", &self.is_multicast_control())
            .field("malformed", &self.malformed)
            .finish()
    }
}
