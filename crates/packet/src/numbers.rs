//! EtherTypes and IP protocol numbers, as assigned by IANA and IEEE.

/// EtherTypes (IANA "IEEE 802 Numbers").
pub mod ethertype {
    /// EtherType of IPv4 (RFC 894).
    pub const IPV4: u16 = 0x0800;
    /// EtherType of ARP (RFC 826).
    pub const ARP: u16 = 0x0806;
    /// EtherType of reverse ARP (RFC 903). Hypervisors announce migrated machines with RARP.
    pub const RARP: u16 = 0x8035;
    /// EtherType of IPv6 (RFC 2464).
    pub const IPV6: u16 = 0x86dd;
    /// Tag protocol identifier of a customer VLAN tag (IEEE 802.1Q).
    pub const VLAN: u16 = 0x8100;
    /// Tag protocol identifier of a service VLAN tag (IEEE 802.1ad).
    pub const SERVICE_VLAN: u16 = 0x88a8;
    /// EtherType of the slow protocols, which include LACP (IEEE 802.3 annex 57A).
    pub const SLOW: u16 = 0x8809;
    /// EtherType of LLDP (IEEE 802.1AB).
    pub const LLDP: u16 = 0x88cc;
    /// EtherType of MPLS with a label that the downstream router has assigned (RFC 3032, RFC 5332).
    pub const MPLS: u16 = 0x8847;
    /// EtherType of MPLS with a label that the upstream router has assigned (RFC 5332), formerly of multicast
    /// packets.
    pub const MPLS_MULTICAST: u16 = 0x8848;
    /// EtherType of provider backbone bridges (IEEE 802.1ah).
    pub const PBB: u16 = 0x88e7;
    /// Smallest EtherType. A smaller value in the type field of a frame is a payload length (IEEE 802.3
    /// clause 3.2.6).
    pub const MIN: u16 = 0x0600;
    /// EtherType that a flow key holds for 802.3 frames with a length field and without a SNAP header. The
    /// value never occurs as a type on the wire.
    pub const LLC: u16 = 0x05ff;
}

/// Protocol numbers of protocols above IP and of IPv6 extension headers (IANA "Protocol Numbers").
pub mod ip_proto {
    /// Protocol number of IPv6 hop-by-hop options (RFC 8200 section 4.3).
    pub const HOP_BY_HOP: u8 = 0;
    /// Protocol number of ICMP (RFC 792).
    pub const ICMP: u8 = 1;
    /// Protocol number of IGMP (RFC 3376).
    pub const IGMP: u8 = 2;
    /// Protocol number of TCP (RFC 9293).
    pub const TCP: u8 = 6;
    /// Protocol number of UDP (RFC 768).
    pub const UDP: u8 = 17;
    /// Protocol number of the IPv6 routing header (RFC 8200 section 4.4).
    pub const ROUTING: u8 = 43;
    /// Protocol number of the IPv6 fragment header (RFC 8200 section 4.5).
    pub const FRAGMENT: u8 = 44;
    /// Protocol number of GRE (RFC 2784).
    pub const GRE: u8 = 47;
    /// Protocol number of the encapsulating security payload (RFC 4303).
    pub const ESP: u8 = 50;
    /// Protocol number of the authentication header (RFC 4302).
    pub const AH: u8 = 51;
    /// Protocol number of ICMPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// Protocol number that means that no header follows (RFC 8200 section 4.7).
    pub const NO_NEXT: u8 = 59;
    /// Protocol number of IPv6 destination options (RFC 8200 section 4.6).
    pub const DEST_OPTS: u8 = 60;
    /// Protocol number of OSPF (RFC 2328).
    pub const OSPF: u8 = 89;
    /// Protocol number of VRRP (RFC 9568).
    pub const VRRP: u8 = 112;
    /// Protocol number of SCTP (RFC 9260).
    pub const SCTP: u8 = 132;
}

/// Returns whether an ICMPv6 type belongs to multicast listener discovery (RFC 2710, RFC 3810).
#[inline]
pub(crate) const fn is_mld(icmpv6_type: u8) -> bool {
    matches!(icmpv6_type, 130..=132 | 143)
}
