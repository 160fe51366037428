//! Numbers that protocols are known by on the wire, as IANA and IEEE assign them.

/// EtherTypes (IANA "IEEE 802 Numbers").
pub mod ethertype {
    /// IPv4, RFC 894.
    pub const IPV4: u16 = 0x0800;
    /// ARP, RFC 826.
    pub const ARP: u16 = 0x0806;
    /// Reverse ARP, RFC 903; hypervisors announce moved machines with it.
    pub const RARP: u16 = 0x8035;
    /// IPv6, RFC 2464.
    pub const IPV6: u16 = 0x86dd;
    /// Customer VLAN tag, IEEE 802.1Q.
    pub const VLAN: u16 = 0x8100;
    /// Service VLAN tag, IEEE 802.1ad.
    pub const SERVICE_VLAN: u16 = 0x88a8;
    /// Slow protocols, LACP among them, IEEE 802.3 annex 57A.
    pub const SLOW: u16 = 0x8809;
    /// LLDP, IEEE 802.1AB.
    pub const LLDP: u16 = 0x88cc;
    /// The smallest EtherType; a smaller number in its place is a length (IEEE 802.3 clause 3.2.6).
    pub const MIN: u16 = 0x0600;
    /// What a flow key carries for 802.3 frames with a length and no SNAP header. Never on the wire as a type.
    pub const LLC: u16 = 0x05ff;
}

/// Protocols above IP, and IPv6 extension headers (IANA "Protocol Numbers").
pub mod ip_proto {
    /// IPv6 hop-by-hop options, RFC 8200 section 4.3.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP, RFC 792.
    pub const ICMP: u8 = 1;
    /// IGMP, RFC 3376.
    pub const IGMP: u8 = 2;
    /// TCP, RFC 9293.
    pub const TCP: u8 = 6;
    /// UDP, RFC 768.
    pub const UDP: u8 = 17;
    /// IPv6 routing header, RFC 8200 section 4.4.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header, RFC 8200 section 4.5.
    pub const FRAGMENT: u8 = 44;
    /// GRE, RFC 2784.
    pub const GRE: u8 = 47;
    /// Encapsulating security payload, RFC 4303.
    pub const ESP: u8 = 50;
    /// Authentication header, RFC 4302.
    pub const AH: u8 = 51;
    /// ICMPv6, RFC 4443.
    pub const ICMPV6: u8 = 58;
    /// No next header, RFC 8200 section 4.7.
    pub const NO_NEXT: u8 = 59;
    /// IPv6 destination options, RFC 8200 section 4.6.
    pub const DEST_OPTS: u8 = 60;
    /// OSPF, RFC 2328.
    pub const OSPF: u8 = 89;
    /// VRRP, RFC 9568.
    pub const VRRP: u8 = 112;
    /// SCTP, RFC 9260.
    pub const SCTP: u8 = 132;
}

/// Whether an ICMPv6 type is one of multicast listener discovery (RFC 2710, RFC 3810).
#[inline]
pub(crate) const fn is_mld(icmpv6_type: u8) -> bool {
    matches!(icmpv6_type, 130..=132 | 143)
}
