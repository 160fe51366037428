//! Methods that read and set single fields of a flow key.
//!
//! The set methods serve rewrites, matches and tests. A set method writes only its field and does
//! not adjust related fields. For example, setting an IPv6 address does not set the L3 protocol to
//! IPv6.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{FRAGMENT_ANY, FRAGMENT_LATER, FlowKey, INNER_IS_SERVICE, L3Kind, OUTER_IS_SERVICE, TAG_PRESENT};
use crate::{MacAddr, PortId, VlanId};

/// Accessors for metadata and L2, which are valid after `extract` and after `extract_l2`.
impl FlowKey {
    /// Returns the identifier of the port that received the packet.
    #[inline]
    pub fn in_port(&self) -> PortId {
        PortId(self.in_port.get())
    }

    /// Returns the destination MAC address.
    #[inline]
    pub fn eth_dst(&self) -> MacAddr {
        MacAddr(self.eth_dst)
    }

    /// Returns the destination MAC address as a word whose lowest octet is the first on the wire (see
    /// [`MacAddr::to_wire_word`]).
    #[inline(always)]
    pub fn eth_dst_word(&self) -> u64 {
        u64::from_le(self.words()[1]) & 0xffff_ffff_ffff
    }

    /// Returns the L3 protocol (none, IPv4, IPv6 or ARP) of a frame without VLAN tags, and [`L3Kind::None`] for a
    /// tagged frame.
    #[inline(always)]
    pub fn untagged_l3(&self) -> L3Kind {
        // Without the port, the word equals the L3 kind only if the L2 flags and both TCIs are zero. The frame then has
        // no tags.
        match u64::from_le(self.words()[0]) >> 16 {
            0x0100 => L3Kind::Ipv4,
            0x0300 => L3Kind::Ipv6,
            0x0200 => L3Kind::Arp,
            _ => L3Kind::None,
        }
    }

    /// Returns the source MAC address.
    #[inline]
    pub fn eth_src(&self) -> MacAddr {
        MacAddr(self.eth_src)
    }

    /// Returns the EtherType after at most two VLAN tags. Returns [`LLC`](crate::ethertype::LLC) for 802.3
    /// frames.
    #[inline]
    pub fn eth_type(&self) -> u16 {
        self.eth_type.get()
    }

    /// Returns the tag control information (TCI) of the outer VLAN tag with [`TAG_PRESENT`] set, or 0 if the frame
    /// is untagged.
    #[inline]
    pub fn outer_tci(&self) -> u16 {
        self.vlan[0].get()
    }

    /// Returns the tag control information (TCI) of the second VLAN tag with [`TAG_PRESENT`] set, or 0 if there is
    /// no second tag.
    #[inline]
    pub fn inner_tci(&self) -> u16 {
        self.vlan[1].get()
    }

    /// Returns whether the frame has a VLAN tag. A tag with VLAN identifier 0 (priority tag) counts as a tag.
    #[inline]
    pub fn is_tagged(&self) -> bool {
        self.outer_tci() != 0
    }

    /// Returns the VLAN of the outer tag. Returns `None` for a frame without a tag, and [`VlanId::NONE`] for
    /// a priority tag.
    #[inline]
    pub fn outer_vid(&self) -> Option<VlanId> {
        if self.is_tagged() { VlanId::from_tag(self.outer_tci()) } else { None }
    }

    /// Returns the VLAN of the second tag. Returns `None` for a frame without a second tag, and for the
    /// reserved identifier 4095.
    #[inline]
    pub fn inner_vid(&self) -> Option<VlanId> {
        if self.inner_tci() != 0 { VlanId::from_tag(self.inner_tci()) } else { None }
    }

    /// Returns the priority of the outer tag, 0..=7. Returns 0 for a frame without a tag.
    #[inline]
    pub fn outer_pcp(&self) -> u8 {
        self.vlan[0].as_ref()[0] >> 5
    }

    /// Returns whether the outer tag is a service tag (802.1ad, 0x88a8) rather than a customer tag (802.1Q,
    /// 0x8100).
    #[inline]
    pub fn outer_is_service_tag(&self) -> bool {
        self.l2_flags & OUTER_IS_SERVICE != 0
    }

    /// Returns whether the second tag is a service tag (802.1ad).
    #[inline]
    pub fn inner_is_service_tag(&self) -> bool {
        self.l2_flags & INNER_IS_SERVICE != 0
    }

    /// Sets the identifier of the port that received the packet.
    #[inline]
    pub fn set_in_port(&mut self, port: PortId) {
        self.in_port.set(port.0);
    }

    /// Sets the destination MAC address.
    #[inline]
    pub fn set_eth_dst(&mut self, mac: MacAddr) {
        self.eth_dst = mac.0;
    }

    /// Sets the source MAC address.
    #[inline]
    pub fn set_eth_src(&mut self, mac: MacAddr) {
        self.eth_src = mac.0;
    }

    /// Sets the EtherType of the payload after the VLAN tags.
    #[inline]
    pub fn set_eth_type(&mut self, eth_type: u16) {
        self.eth_type.set(eth_type);
    }

    /// Sets the TCI of the outer VLAN tag, including [`TAG_PRESENT`], and whether this tag is a service tag. `None`
    /// removes the tag from the key.
    pub fn set_outer_tag(&mut self, tci: Option<u16>, service: bool) {
        self.vlan[0].set(tci.map_or(0, |tci| tci | TAG_PRESENT));
        self.l2_flags &= !OUTER_IS_SERVICE;
        self.l2_flags |= if tci.is_some() && service { OUTER_IS_SERVICE } else { 0 };
    }

    /// Sets the TCI of the second VLAN tag, including [`TAG_PRESENT`], and whether this tag is a service tag. `None`
    /// removes the tag from the key.
    pub fn set_inner_tag(&mut self, tci: Option<u16>, service: bool) {
        self.vlan[1].set(tci.map_or(0, |tci| tci | TAG_PRESENT));
        self.l2_flags &= !INNER_IS_SERVICE;
        self.l2_flags |= if tci.is_some() && service { INNER_IS_SERVICE } else { 0 };
    }

    /// Sets the raw bits of the outer TCI, for the value or mask of a match.
    pub fn set_outer_tci_bits(&mut self, bits: u16) {
        self.vlan[0].set(bits);
    }

    /// Sets the raw bits of the second TCI, for the value or mask of a match.
    pub fn set_inner_tci_bits(&mut self, bits: u16) {
        self.vlan[1].set(bits);
    }
}

/// Accessors for L3 and L4, which are valid after `extract` only.
impl FlowKey {
    /// Returns the L3 protocol (none, IPv4, IPv6 or ARP) to which the content of the address fields belongs.
    #[inline]
    pub fn l3_kind(&self) -> L3Kind {
        match self.l3_kind {
            1 => L3Kind::Ipv4,
            2 => L3Kind::Arp,
            3 => L3Kind::Ipv6,
            _ => L3Kind::None,
        }
    }

    /// Returns the IPv4 source address or the ARP sender protocol address. Returns 0.0.0.0 if the packet has
    /// neither.
    #[inline]
    pub fn ipv4_src(&self) -> Ipv4Addr {
        let [a, b, c, d, ..] = self.ip_src;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Returns the IPv4 destination address or the ARP target protocol address. Returns 0.0.0.0 if the packet
    /// has neither.
    #[inline]
    pub fn ipv4_dst(&self) -> Ipv4Addr {
        let [a, b, c, d, ..] = self.ip_dst;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Returns the IPv6 source address. The result is valid only if [`FlowKey::l3_kind`] is [`L3Kind::Ipv6`].
    #[inline]
    pub fn ipv6_src(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.ip_src)
    }

    /// Returns the IPv6 destination address. The result is valid only if [`FlowKey::l3_kind`] is
    /// [`L3Kind::Ipv6`].
    #[inline]
    pub fn ipv6_dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.ip_dst)
    }

    /// Returns the protocol number above IP (after IPv6 extension headers), or the low octet of the ARP
    /// operation.
    #[inline]
    pub fn proto(&self) -> u8 {
        self.proto
    }

    /// Returns the octet with DSCP and ECN: the IPv4 type of service or the IPv6 traffic class.
    #[inline]
    pub fn tos(&self) -> u8 {
        self.tos
    }

    /// Returns the IPv4 time to live or the IPv6 hop limit.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.ttl
    }

    /// Returns the bits [`FRAGMENT_ANY`] (the packet is a fragment) and [`FRAGMENT_LATER`] (the packet is a
    /// fragment other than the first).
    #[inline]
    pub fn fragment_bits(&self) -> u8 {
        self.fragment
    }

    /// Returns whether the packet is an IP fragment, either the first or a later one.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.fragment & FRAGMENT_ANY != 0
    }

    /// Returns whether the packet is an IP fragment other than the first.
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        self.fragment & FRAGMENT_LATER != 0
    }

    /// Returns the source port of TCP, UDP and SCTP, or the type of ICMP, ICMPv6 and IGMP.
    #[inline]
    pub fn src_port(&self) -> u16 {
        self.src_port.get()
    }

    /// Returns the destination port of TCP, UDP and SCTP, or the code of ICMP and ICMPv6.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        self.dst_port.get()
    }

    /// Returns the twelve bits after the TCP data offset: reserved bits and flags, FIN in bit 0.
    #[inline]
    pub fn tcp_flags(&self) -> u16 {
        self.tcp_flags.get()
    }

    /// Sets the L3 protocol (none, IPv4, IPv6 or ARP) to which the content of the address fields belongs.
    #[inline]
    pub fn set_l3_kind(&mut self, kind: L3Kind) {
        self.l3_kind = kind as u8;
    }

    /// Returns the bits that encode the L3 protocol (none, IPv4, IPv6 or ARP) in the flow key, for the mask of a match.
    #[inline]
    pub fn l3_kind_bits(&self) -> u8 {
        self.l3_kind
    }

    /// Sets the bits that encode the L3 protocol (none, IPv4, IPv6 or ARP) in the flow key, for the mask of a match.
    #[inline]
    pub fn set_l3_kind_bits(&mut self, bits: u8) {
        self.l3_kind = bits;
    }

    /// Sets the IPv4 source address or the ARP sender protocol address.
    #[inline]
    pub fn set_ipv4_src(&mut self, address: Ipv4Addr) {
        self.ip_src = widened(address);
    }

    /// Sets the IPv4 destination address or the ARP target protocol address.
    #[inline]
    pub fn set_ipv4_dst(&mut self, address: Ipv4Addr) {
        self.ip_dst = widened(address);
    }

    /// Sets the IPv6 source address.
    #[inline]
    pub fn set_ipv6_src(&mut self, address: Ipv6Addr) {
        self.ip_src = address.octets();
    }

    /// Sets the IPv6 destination address.
    #[inline]
    pub fn set_ipv6_dst(&mut self, address: Ipv6Addr) {
        self.ip_dst = address.octets();
    }

    /// Sets the IP protocol number or the low octet of the ARP operation.
    #[inline]
    pub fn set_proto(&mut self, proto: u8) {
        self.proto = proto;
    }

    /// Sets the octet with DSCP and ECN: the IPv4 type of service or the IPv6 traffic class.
    #[inline]
    pub fn set_tos(&mut self, tos: u8) {
        self.tos = tos;
    }

    /// Sets the IPv4 time to live or the IPv6 hop limit.
    #[inline]
    pub fn set_ttl(&mut self, ttl: u8) {
        self.ttl = ttl;
    }

    /// Sets the fragment bits: [`FRAGMENT_ANY`], [`FRAGMENT_LATER`], or both.
    #[inline]
    pub fn set_fragment_bits(&mut self, bits: u8) {
        self.fragment = bits;
    }

    /// Sets the source port or the ICMP type.
    #[inline]
    pub fn set_src_port(&mut self, port: u16) {
        self.src_port.set(port);
    }

    /// Sets the destination port or the ICMP code.
    #[inline]
    pub fn set_dst_port(&mut self, port: u16) {
        self.dst_port.set(port);
    }

    /// Sets the TCP flags (12 bits).
    #[inline]
    pub fn set_tcp_flags(&mut self, flags: u16) {
        self.tcp_flags.set(flags);
    }
}

#[inline]
fn widened(address: Ipv4Addr) -> [u8; 16] {
    let [a, b, c, d] = address.octets();
    [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}
