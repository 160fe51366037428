//! Reading and writing single fields of a flow key.
//!
//! The setters serve rewrites, matches and tests; they keep each field's form but not the relation between fields
//! (setting an IPv6 address does not make the key's kind IPv6).

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{FRAGMENT_ANY, FRAGMENT_LATER, FlowKey, INNER_IS_SERVICE, L3Kind, OUTER_IS_SERVICE, TAG_PRESENT};
use crate::{MacAddr, PortId, VlanId};

/// Metadata and L2: valid after `extract` and after `extract_l2`.
impl FlowKey {
    /// The port that the packet came in on.
    #[inline]
    pub fn in_port(&self) -> PortId {
        PortId(self.in_port.get())
    }

    /// Destination address.
    #[inline]
    pub fn eth_dst(&self) -> MacAddr {
        MacAddr(self.eth_dst)
    }

    /// The destination MAC as [`MacAddr::to_wire_word`] gives it.
    #[inline(always)]
    pub fn eth_dst_word(&self) -> u64 {
        u64::from_le(self.words()[1]) & 0xffff_ffff_ffff
    }

    /// What the L3 fields hold, of a frame without VLAN tags; [`L3Kind::None`] of one that has any.
    #[inline(always)]
    pub fn untagged_l3(&self) -> L3Kind {
        // The kind stands alone above the port only when the flags and the tags, which say that they are there, are zero.
        match u64::from_le(self.words()[0]) >> 16 {
            0x0100 => L3Kind::Ipv4,
            0x0300 => L3Kind::Ipv6,
            0x0200 => L3Kind::Arp,
            _ => L3Kind::None,
        }
    }

    /// Source address.
    #[inline]
    pub fn eth_src(&self) -> MacAddr {
        MacAddr(self.eth_src)
    }

    /// The EtherType behind the (at most two) VLAN tags; [`LLC`](crate::ethertype::LLC) for 802.3 frames.
    #[inline]
    pub fn eth_type(&self) -> u16 {
        self.eth_type.get()
    }

    /// The outer tag's control information with [`TAG_PRESENT`] set, or 0 if the frame is untagged.
    #[inline]
    pub fn outer_tci(&self) -> u16 {
        self.vlan[0].get()
    }

    /// The second tag's control information with [`TAG_PRESENT`] set, or 0 if there is none.
    #[inline]
    pub fn inner_tci(&self) -> u16 {
        self.vlan[1].get()
    }

    /// Whether the frame carries a VLAN tag (a priority tag counts).
    #[inline]
    pub fn is_tagged(&self) -> bool {
        self.outer_tci() != 0
    }

    /// The outer tag's VLAN: `None` without a tag, [`VlanId::NONE`] for a priority tag.
    #[inline]
    pub fn outer_vid(&self) -> Option<VlanId> {
        if self.is_tagged() { VlanId::from_tag(self.outer_tci()) } else { None }
    }

    /// The second tag's VLAN: `None` without a second tag or if it carries the reserved 4095.
    #[inline]
    pub fn inner_vid(&self) -> Option<VlanId> {
        if self.inner_tci() != 0 { VlanId::from_tag(self.inner_tci()) } else { None }
    }

    /// The outer tag's priority, 0..=7; 0 without a tag.
    #[inline]
    pub fn outer_pcp(&self) -> u8 {
        self.vlan[0].as_ref()[0] >> 5
    }

    /// Whether the outer tag is a service tag (802.1ad, 0x88a8) rather than a customer tag (802.1Q, 0x8100).
    #[inline]
    pub fn outer_is_service_tag(&self) -> bool {
        self.l2_flags & OUTER_IS_SERVICE != 0
    }

    /// Whether the second tag is a service tag.
    #[inline]
    pub fn inner_is_service_tag(&self) -> bool {
        self.l2_flags & INNER_IS_SERVICE != 0
    }

    /// Sets the port that the packet came in on.
    #[inline]
    pub fn set_in_port(&mut self, port: PortId) {
        self.in_port.set(port.0);
    }

    /// Sets the destination address.
    #[inline]
    pub fn set_eth_dst(&mut self, mac: MacAddr) {
        self.eth_dst = mac.0;
    }

    /// Sets the source address.
    #[inline]
    pub fn set_eth_src(&mut self, mac: MacAddr) {
        self.eth_src = mac.0;
    }

    /// Sets the EtherType.
    #[inline]
    pub fn set_eth_type(&mut self, eth_type: u16) {
        self.eth_type.set(eth_type);
    }

    /// Sets the outer tag; `None` takes it away. [`TAG_PRESENT`] is added.
    pub fn set_outer_tag(&mut self, tci: Option<u16>, service: bool) {
        self.vlan[0].set(tci.map_or(0, |tci| tci | TAG_PRESENT));
        self.l2_flags &= !OUTER_IS_SERVICE;
        self.l2_flags |= if tci.is_some() && service { OUTER_IS_SERVICE } else { 0 };
    }

    /// Sets the second tag; `None` takes it away. [`TAG_PRESENT`] is added.
    pub fn set_inner_tag(&mut self, tci: Option<u16>, service: bool) {
        self.vlan[1].set(tci.map_or(0, |tci| tci | TAG_PRESENT));
        self.l2_flags &= !INNER_IS_SERVICE;
        self.l2_flags |= if tci.is_some() && service { INNER_IS_SERVICE } else { 0 };
    }

    /// Sets the bits of the outer TCI as they are, as the value or mask of a match needs.
    pub fn set_outer_tci_bits(&mut self, bits: u16) {
        self.vlan[0].set(bits);
    }

    /// Sets the bits of the second TCI as they are, as the value or mask of a match needs.
    pub fn set_inner_tci_bits(&mut self, bits: u16) {
        self.vlan[1].set(bits);
    }
}

/// L3 and L4: valid after `extract` only.
impl FlowKey {
    /// What the address fields hold.
    #[inline]
    pub fn l3_kind(&self) -> L3Kind {
        match self.l3_kind {
            1 => L3Kind::Ipv4,
            2 => L3Kind::Arp,
            3 => L3Kind::Ipv6,
            _ => L3Kind::None,
        }
    }

    /// IPv4 source address, or ARP sender protocol address; 0.0.0.0 otherwise.
    #[inline]
    pub fn ipv4_src(&self) -> Ipv4Addr {
        let [a, b, c, d, ..] = self.ip_src;
        Ipv4Addr::new(a, b, c, d)
    }

    /// IPv4 destination address, or ARP target protocol address; 0.0.0.0 otherwise.
    #[inline]
    pub fn ipv4_dst(&self) -> Ipv4Addr {
        let [a, b, c, d, ..] = self.ip_dst;
        Ipv4Addr::new(a, b, c, d)
    }

    /// IPv6 source address, if [`FlowKey::l3_kind`] says IPv6.
    #[inline]
    pub fn ipv6_src(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.ip_src)
    }

    /// IPv6 destination address, if [`FlowKey::l3_kind`] says IPv6.
    #[inline]
    pub fn ipv6_dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.ip_dst)
    }

    /// The protocol above IP (behind IPv6 extension headers), or the low octet of the ARP operation.
    #[inline]
    pub fn proto(&self) -> u8 {
        self.proto
    }

    /// DSCP and ECN: IPv4 type of service or IPv6 traffic class.
    #[inline]
    pub fn tos(&self) -> u8 {
        self.tos
    }

    /// IPv4 time to live or IPv6 hop limit.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.ttl
    }

    /// [`FRAGMENT_ANY`] and [`FRAGMENT_LATER`].
    #[inline]
    pub fn fragment_bits(&self) -> u8 {
        self.fragment
    }

    /// Whether the packet is a fragment, first or later.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.fragment & FRAGMENT_ANY != 0
    }

    /// Whether the packet is a fragment other than the first.
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        self.fragment & FRAGMENT_LATER != 0
    }

    /// Source port of TCP, UDP and SCTP; type of ICMP, ICMPv6 and IGMP.
    #[inline]
    pub fn src_port(&self) -> u16 {
        self.src_port.get()
    }

    /// Destination port of TCP, UDP and SCTP; code of ICMP and ICMPv6.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        self.dst_port.get()
    }

    /// The twelve bits after TCP's data offset: reserved bits and flags, FIN in bit 0.
    #[inline]
    pub fn tcp_flags(&self) -> u16 {
        self.tcp_flags.get()
    }

    /// Sets what the address fields hold.
    #[inline]
    pub fn set_l3_kind(&mut self, kind: L3Kind) {
        self.l3_kind = kind as u8;
    }

    /// The kind's bits as they are, as the mask of a match has them.
    #[inline]
    pub fn l3_kind_bits(&self) -> u8 {
        self.l3_kind
    }

    /// Sets the kind's bits as they are, as the mask of a match needs.
    #[inline]
    pub fn set_l3_kind_bits(&mut self, bits: u8) {
        self.l3_kind = bits;
    }

    /// Sets the source address to IPv4 (or ARP's sender).
    #[inline]
    pub fn set_ipv4_src(&mut self, address: Ipv4Addr) {
        self.ip_src = widened(address);
    }

    /// Sets the destination address to IPv4 (or ARP's target).
    #[inline]
    pub fn set_ipv4_dst(&mut self, address: Ipv4Addr) {
        self.ip_dst = widened(address);
    }

    /// Sets the source address to IPv6.
    #[inline]
    pub fn set_ipv6_src(&mut self, address: Ipv6Addr) {
        self.ip_src = address.octets();
    }

    /// Sets the destination address to IPv6.
    #[inline]
    pub fn set_ipv6_dst(&mut self, address: Ipv6Addr) {
        self.ip_dst = address.octets();
    }

    /// Sets the protocol or ARP operation.
    #[inline]
    pub fn set_proto(&mut self, proto: u8) {
        self.proto = proto;
    }

    /// Sets DSCP and ECN.
    #[inline]
    pub fn set_tos(&mut self, tos: u8) {
        self.tos = tos;
    }

    /// Sets the time to live.
    #[inline]
    pub fn set_ttl(&mut self, ttl: u8) {
        self.ttl = ttl;
    }

    /// Sets [`FRAGMENT_ANY`] and [`FRAGMENT_LATER`].
    #[inline]
    pub fn set_fragment_bits(&mut self, bits: u8) {
        self.fragment = bits;
    }

    /// Sets the source port or ICMP type.
    #[inline]
    pub fn set_src_port(&mut self, port: u16) {
        self.src_port.set(port);
    }

    /// Sets the destination port or ICMP code.
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
