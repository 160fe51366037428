//! The match fields of OpenFlow: names, positions in a [`Flow`](super::Flow), widths, prerequisites and wire
//! identifiers (OpenFlow 1.5.1, 7.2.3.7, and Nicira's NXM as documented in Open vSwitch's `meta-flow.h` and
//! ovs-fields(7)).

/// A prerequisite: the kind of packet for which a field is defined (OpenFlow 1.5.1, table 7.2.3.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prerequisite {
    /// The field is defined for all packets.
    None,
    /// The packet has an outer 802.1Q tag.
    Vlan,
    /// The packet is IPv4 or IPv6.
    Ip,
    /// The packet is IPv4.
    Ipv4,
    /// The packet is IPv6.
    Ipv6,
    /// The packet is ARP or RARP.
    Arp,
    /// The packet is MPLS, unicast or multicast.
    Mpls,
    /// The packet is 802.1ah (PBB).
    Pbb,
    /// The packet is TCP over IPv4 or IPv6.
    Tcp,
    /// The packet is UDP over IPv4 or IPv6.
    Udp,
    /// The packet is SCTP over IPv4 or IPv6.
    Sctp,
    /// The packet is ICMP over IPv4.
    Icmpv4,
    /// The packet is ICMPv6.
    Icmpv6,
    /// The packet is a neighbour solicitation or advertisement.
    Nd,
    /// The packet is a neighbour solicitation.
    NdSolicit,
    /// The packet is a neighbour advertisement.
    NdAdvert,
    /// The connection tracker has seen the packet and found it valid ("CT" in ovs-fields(7)).
    Connection,
}

/// A wire identifier of a field: the class and field number of an OXM or NXM header, and the length of the
/// field's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WireId {
    /// Class of the identifier: 0x0000 and 0x0001 for Nicira, 0x8000 for OpenFlow basic, 0x8001 for packet
    /// registers.
    pub class: u16,
    /// Number of the field within the class.
    pub field: u8,
    /// Length of the field's value in octets, without the mask that may follow.
    pub len: u8,
}

macro_rules! fields {
    ($($variant:ident $name:literal at $byte:literal . $bit:literal bits $bits:literal $prereq:ident
       $(nxm $nclass:literal : $nfield:literal / $nlen:literal)? $(oxm $oclass:literal : $ofield:literal / $olen:literal)?
       $([$($flag:ident)*])? ;)+) => {
        /// A match field. See the module documentation.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum Field { $(#[doc = $name] $variant,)+ }

        impl Field {
            /// All fields. A field that determines another field's prerequisite comes before that field.
            pub const ALL: [Field; [$($bits,)+].len()] = [$(Field::$variant,)+];

            /// Returns the name that the field has in ovs-fields(7).
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Field::$variant => $name,)+ }
            }

            /// Returns the position of the field in a [`Flow`](super::Flow): its first bit, where bit 0 is the most
            /// significant bit of the first octet, and its width in bits.
            #[must_use]
            pub const fn place(self) -> (usize, usize) {
                match self { $(Field::$variant => ($byte * 8 + $bit, $bits),)+ }
            }

            /// Returns the prerequisite of the field.
            #[must_use]
            pub const fn prerequisite(self) -> Prerequisite {
                match self { $(Field::$variant => Prerequisite::$prereq,)+ }
            }

            /// Returns the NXM identifier of the field. Returns `None` if the field has no NXM identifier.
            /// The NXM value of `ip_dscp` is shifted left by two bits.
            #[must_use]
            pub const fn nxm(self) -> Option<WireId> {
                match self { $(Field::$variant => fields!(@id $($nclass $nfield $nlen)?),)+ }
            }

            /// Returns the OXM identifier of the field. Returns `None` if the field has no OXM identifier.
            #[must_use]
            pub const fn oxm(self) -> Option<WireId> {
                match self { $(Field::$variant => fields!(@id $($oclass $ofield $olen)?),)+ }
            }

            const fn flags(self) -> u8 {
                match self { $(Field::$variant => 0 $($(| fields!(@flag $flag))*)?,)+ }
            }
        }
    };
    (@id) => { None };
    (@id $class:literal $field:literal $len:literal) => { Some(WireId { class: $class, field: $field, len: $len }) };
    (@flag whole) => { WHOLE };
    (@flag fixed) => { FIXED };
}

/// Number of match fields for tunnel options. The fields are `tun_metadata0` to `tun_metadata7`.
pub const TUN_METADATA: u16 = 8;
/// Field flag: a match on the field cannot have a partial mask.
const WHOLE: u8 = 1;
/// Field flag: actions cannot set the field.
const FIXED: u8 = 2;

fields! {
    InPort "in_port" at 0 . 0 bits 32 None oxm 0x8000 : 0 / 4 [whole];
    ActsetOutput "actset_output" at 4 . 0 bits 32 None oxm 0x8000 : 43 / 4 [whole fixed];
    Metadata "metadata" at 8 . 0 bits 64 None oxm 0x8000 : 2 / 8;
    TunId "tun_id" at 16 . 0 bits 64 None nxm 1 : 16 / 8 oxm 0x8000 : 38 / 8;
    TunSrc "tun_src" at 24 . 0 bits 32 None nxm 1 : 31 / 4;
    TunDst "tun_dst" at 28 . 0 bits 32 None nxm 1 : 32 / 4;
    TunIpv6Src "tun_ipv6_src" at 112 . 0 bits 128 None nxm 1 : 109 / 16;
    TunIpv6Dst "tun_ipv6_dst" at 128 . 0 bits 128 None nxm 1 : 110 / 16;
    TunGbpId "tun_gbp_id" at 106 . 0 bits 16 None nxm 1 : 38 / 2;
    TunGbpFlags "tun_gbp_flags" at 105 . 0 bits 8 None nxm 1 : 39 / 1;
    TunFlags "tun_flags" at 104 . 7 bits 1 None nxm 1 : 104 / 2;
    TunMetadata0 "tun_metadata0" at 144 . 0 bits 64 None nxm 1 : 40 / 8;
    TunMetadata1 "tun_metadata1" at 152 . 0 bits 64 None nxm 1 : 41 / 8;
    TunMetadata2 "tun_metadata2" at 160 . 0 bits 64 None nxm 1 : 42 / 8;
    TunMetadata3 "tun_metadata3" at 168 . 0 bits 64 None nxm 1 : 43 / 8;
    TunMetadata4 "tun_metadata4" at 176 . 0 bits 64 None nxm 1 : 44 / 8;
    TunMetadata5 "tun_metadata5" at 184 . 0 bits 64 None nxm 1 : 45 / 8;
    TunMetadata6 "tun_metadata6" at 192 . 0 bits 64 None nxm 1 : 46 / 8;
    TunMetadata7 "tun_metadata7" at 200 . 0 bits 64 None nxm 1 : 47 / 8;
    PktMark "pkt_mark" at 32 . 0 bits 32 None nxm 1 : 33 / 4;
    ConjId "conj_id" at 36 . 0 bits 32 None nxm 1 : 37 / 4 [whole fixed];
    Reg0 "reg0" at 40 . 0 bits 32 None nxm 1 : 0 / 4;
    Reg1 "reg1" at 44 . 0 bits 32 None nxm 1 : 1 / 4;
    Reg2 "reg2" at 48 . 0 bits 32 None nxm 1 : 2 / 4;
    Reg3 "reg3" at 52 . 0 bits 32 None nxm 1 : 3 / 4;
    Reg4 "reg4" at 56 . 0 bits 32 None nxm 1 : 4 / 4;
    Reg5 "reg5" at 60 . 0 bits 32 None nxm 1 : 5 / 4;
    Reg6 "reg6" at 64 . 0 bits 32 None nxm 1 : 6 / 4;
    Reg7 "reg7" at 68 . 0 bits 32 None nxm 1 : 7 / 4;
    Reg8 "reg8" at 72 . 0 bits 32 None nxm 1 : 8 / 4;
    Reg9 "reg9" at 76 . 0 bits 32 None nxm 1 : 9 / 4;
    Reg10 "reg10" at 80 . 0 bits 32 None nxm 1 : 10 / 4;
    Reg11 "reg11" at 84 . 0 bits 32 None nxm 1 : 11 / 4;
    Reg12 "reg12" at 88 . 0 bits 32 None nxm 1 : 12 / 4;
    Reg13 "reg13" at 92 . 0 bits 32 None nxm 1 : 13 / 4;
    Reg14 "reg14" at 96 . 0 bits 32 None nxm 1 : 14 / 4;
    Reg15 "reg15" at 100 . 0 bits 32 None nxm 1 : 15 / 4;
    Xreg0 "xreg0" at 40 . 0 bits 64 None oxm 0x8001 : 0 / 8;
    Xreg1 "xreg1" at 48 . 0 bits 64 None oxm 0x8001 : 1 / 8;
    Xreg2 "xreg2" at 56 . 0 bits 64 None oxm 0x8001 : 2 / 8;
    Xreg3 "xreg3" at 64 . 0 bits 64 None oxm 0x8001 : 3 / 8;
    Xreg4 "xreg4" at 72 . 0 bits 64 None oxm 0x8001 : 4 / 8;
    Xreg5 "xreg5" at 80 . 0 bits 64 None oxm 0x8001 : 5 / 8;
    Xreg6 "xreg6" at 88 . 0 bits 64 None oxm 0x8001 : 6 / 8;
    Xreg7 "xreg7" at 96 . 0 bits 64 None oxm 0x8001 : 7 / 8;
    Xxreg0 "xxreg0" at 40 . 0 bits 128 None nxm 1 : 111 / 16;
    Xxreg1 "xxreg1" at 56 . 0 bits 128 None nxm 1 : 112 / 16;
    Xxreg2 "xxreg2" at 72 . 0 bits 128 None nxm 1 : 113 / 16;
    Xxreg3 "xxreg3" at 88 . 0 bits 128 None nxm 1 : 114 / 16;
    EthDst "eth_dst" at 216 . 0 bits 48 None nxm 0 : 1 / 6 oxm 0x8000 : 3 / 6;
    EthSrc "eth_src" at 222 . 0 bits 48 None nxm 0 : 2 / 6 oxm 0x8000 : 4 / 6;
    EthType "eth_type" at 228 . 0 bits 16 None nxm 0 : 3 / 2 oxm 0x8000 : 5 / 2 [whole fixed];
    VlanTci "vlan_tci" at 212 . 0 bits 16 None nxm 0 : 4 / 2;
    VlanVid "vlan_vid" at 212 . 3 bits 13 None oxm 0x8000 : 6 / 2;
    VlanPcp "vlan_pcp" at 212 . 0 bits 3 Vlan oxm 0x8000 : 7 / 1;
    MplsLabel "mpls_label" at 232 . 0 bits 20 Mpls oxm 0x8000 : 34 / 4;
    MplsTc "mpls_tc" at 234 . 4 bits 3 Mpls oxm 0x8000 : 35 / 1;
    MplsBos "mpls_bos" at 234 . 7 bits 1 Mpls oxm 0x8000 : 36 / 1 [whole];
    MplsTtl "mpls_ttl" at 235 . 0 bits 8 Mpls nxm 1 : 30 / 1 [whole];
    PbbIsid "pbb_isid" at 245 . 0 bits 24 Pbb oxm 0x8000 : 37 / 3;
    PbbUca "pbb_uca" at 244 . 4 bits 1 Pbb oxm 0x8000 : 41 / 1 [whole];
    IpProto "ip_proto" at 230 . 0 bits 8 Ip nxm 0 : 6 / 1 oxm 0x8000 : 10 / 1 [whole fixed];
    ArpOp "arp_op" at 230 . 0 bits 8 Arp nxm 0 : 15 / 2 oxm 0x8000 : 21 / 2 [whole];
    IpFrag "ip_frag" at 231 . 6 bits 2 Ip nxm 1 : 26 / 1 [fixed];
    Ipv4Src "ip_src" at 248 . 0 bits 32 Ipv4 nxm 0 : 7 / 4 oxm 0x8000 : 11 / 4;
    Ipv4Dst "ip_dst" at 264 . 0 bits 32 Ipv4 nxm 0 : 8 / 4 oxm 0x8000 : 12 / 4;
    ArpSpa "arp_spa" at 248 . 0 bits 32 Arp nxm 0 : 16 / 4 oxm 0x8000 : 22 / 4;
    ArpTpa "arp_tpa" at 264 . 0 bits 32 Arp nxm 0 : 17 / 4 oxm 0x8000 : 23 / 4;
    ArpSha "arp_sha" at 304 . 0 bits 48 Arp nxm 1 : 17 / 6 oxm 0x8000 : 24 / 6;
    ArpTha "arp_tha" at 310 . 0 bits 48 Arp nxm 1 : 18 / 6 oxm 0x8000 : 25 / 6;
    Ipv6Src "ipv6_src" at 248 . 0 bits 128 Ipv6 nxm 1 : 19 / 16 oxm 0x8000 : 26 / 16;
    Ipv6Dst "ipv6_dst" at 264 . 0 bits 128 Ipv6 nxm 1 : 20 / 16 oxm 0x8000 : 27 / 16;
    Ipv6Label "ipv6_label" at 281 . 4 bits 20 Ipv6 nxm 1 : 27 / 4 oxm 0x8000 : 28 / 4;
    Ipv6Exthdr "ipv6_exthdr" at 284 . 7 bits 9 Ipv6 oxm 0x8000 : 39 / 2 [fixed];
    IpDscp "ip_dscp" at 326 . 0 bits 6 Ip nxm 0 : 5 / 1 oxm 0x8000 : 8 / 1 [whole];
    IpEcn "nw_ecn" at 326 . 6 bits 2 Ip nxm 1 : 28 / 1 oxm 0x8000 : 9 / 1 [whole];
    NwTtl "nw_ttl" at 327 . 0 bits 8 Ip nxm 1 : 29 / 1 [whole];
    TcpSrc "tcp_src" at 320 . 0 bits 16 Tcp nxm 0 : 9 / 2 oxm 0x8000 : 13 / 2;
    TcpDst "tcp_dst" at 322 . 0 bits 16 Tcp nxm 0 : 10 / 2 oxm 0x8000 : 14 / 2;
    TcpFlags "tcp_flags" at 324 . 4 bits 12 Tcp nxm 1 : 34 / 2 oxm 0x8000 : 42 / 2 [fixed];
    UdpSrc "udp_src" at 320 . 0 bits 16 Udp nxm 0 : 11 / 2 oxm 0x8000 : 15 / 2;
    UdpDst "udp_dst" at 322 . 0 bits 16 Udp nxm 0 : 12 / 2 oxm 0x8000 : 16 / 2;
    SctpSrc "sctp_src" at 320 . 0 bits 16 Sctp oxm 0x8000 : 17 / 2;
    SctpDst "sctp_dst" at 322 . 0 bits 16 Sctp oxm 0x8000 : 18 / 2;
    Icmpv4Type "icmp_type" at 321 . 0 bits 8 Icmpv4 nxm 0 : 13 / 1 oxm 0x8000 : 19 / 1 [whole];
    Icmpv4Code "icmp_code" at 323 . 0 bits 8 Icmpv4 nxm 0 : 14 / 1 oxm 0x8000 : 20 / 1 [whole];
    Icmpv6Type "icmpv6_type" at 321 . 0 bits 8 Icmpv6 nxm 1 : 21 / 1 oxm 0x8000 : 29 / 1 [whole];
    Icmpv6Code "icmpv6_code" at 323 . 0 bits 8 Icmpv6 nxm 1 : 22 / 1 oxm 0x8000 : 30 / 1 [whole];
    NdTarget "nd_target" at 288 . 0 bits 128 Nd nxm 1 : 23 / 16 oxm 0x8000 : 31 / 16;
    NdSll "nd_sll" at 304 . 0 bits 48 NdSolicit nxm 1 : 24 / 6 oxm 0x8000 : 32 / 6;
    NdTll "nd_tll" at 310 . 0 bits 48 NdAdvert nxm 1 : 25 / 6 oxm 0x8000 : 33 / 6;
    CtState "ct_state" at 328 . 0 bits 32 None nxm 1 : 105 / 4 [fixed];
    CtZone "ct_zone" at 332 . 0 bits 16 None nxm 1 : 106 / 2 [whole fixed];
    CtMark "ct_mark" at 336 . 0 bits 32 None nxm 1 : 107 / 4;
    CtLabel "ct_label" at 344 . 0 bits 128 None nxm 1 : 108 / 16;
    CtNwProto "ct_nw_proto" at 334 . 0 bits 8 Connection nxm 1 : 119 / 1 [whole fixed];
    CtNwSrc "ct_nw_src" at 360 . 0 bits 32 Connection nxm 1 : 120 / 4 [fixed];
    CtNwDst "ct_nw_dst" at 376 . 0 bits 32 Connection nxm 1 : 121 / 4 [fixed];
    CtIpv6Src "ct_ipv6_src" at 360 . 0 bits 128 Connection nxm 1 : 122 / 16 [fixed];
    CtIpv6Dst "ct_ipv6_dst" at 376 . 0 bits 128 Connection nxm 1 : 123 / 16 [fixed];
    CtTpSrc "ct_tp_src" at 392 . 0 bits 16 Connection nxm 1 : 124 / 2 [fixed];
    CtTpDst "ct_tp_dst" at 394 . 0 bits 16 Connection nxm 1 : 125 / 2 [fixed];
}

impl Field {
    /// Returns the register field with this number, from `reg0` to `reg15`. Returns `None` for other numbers.
    #[must_use]
    pub fn reg(number: u8) -> Option<Field> {
        (number < 16).then(|| Field::ALL[Field::Reg0 as usize + usize::from(number)])
    }

    /// Returns the field for tunnel options with this number, from `tun_metadata0` to `tun_metadata7`.
    /// Returns `None` for other numbers.
    #[must_use]
    pub fn tun_metadata(number: u16) -> Option<Field> {
        (number < TUN_METADATA).then(|| Field::ALL[Field::TunMetadata0 as usize + usize::from(number)])
    }

    /// Returns the number of a field for tunnel options, which is 0 for `tun_metadata0`. Returns `None` for
    /// other fields.
    #[must_use]
    pub fn tun_metadata_number(self) -> Option<u16> {
        let number = (self as u16).checked_sub(Field::TunMetadata0 as u16)?;
        (number < TUN_METADATA).then_some(number)
    }

    /// Returns whether the field can be matched with a mask.
    #[must_use]
    pub const fn is_maskable(self) -> bool {
        self.flags() & WHOLE == 0
    }

    /// Returns whether actions can set the field.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        self.flags() & FIXED == 0
    }

    /// Returns the index in a [`Flow`](super::Flow) of the octet in which the field begins.
    #[must_use]
    pub const fn octet(self) -> usize {
        self.place().0 / 8
    }

    /// Returns the index range in a [`Flow`](super::Flow) of `count` octets, beginning with the field's first octet.
    #[must_use]
    pub const fn octets(self, count: usize) -> std::ops::Range<usize> {
        self.octet()..self.octet() + count
    }

    /// Returns the width of the field in bits.
    #[must_use]
    pub const fn bits(self) -> usize {
        self.place().1
    }

    /// Returns a value for the field with all bits set: the mask of an exact match.
    #[must_use]
    pub const fn all_ones(self) -> u128 {
        u128::MAX >> (128 - self.bits())
    }

    /// Returns the bits of the field that have a meaning. These are the low 8 bits of `ct_state`, and all bits of the
    /// other fields.
    #[must_use]
    pub const fn defined_bits(self) -> u128 {
        match self {
            Field::CtState => 0xff,
            _ => self.all_ones(),
        }
    }

    /// Returns whether only an action inside of a `ct` action can set the field.
    #[must_use]
    pub const fn belongs_to_connection(self) -> bool {
        matches!(self, Field::CtMark | Field::CtLabel)
    }

    /// Returns the field whose NXM or OXM identifier has this class and field number. Returns `None` if there
    /// is no such field.
    #[must_use]
    pub fn from_wire(class: u16, field: u8) -> Option<Field> {
        let is = |id: Option<WireId>| id.is_some_and(|id| id.class == class && id.field == field);
        Field::ALL.into_iter().find(|it| is(it.nxm()) || is(it.oxm()))
    }

    /// Returns the field that has this name in ovs-fields(7). Returns `None` if there is no such field.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Field> {
        Field::ALL.into_iter().find(|field| field.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{FLOW_WORDS, Flow};

    #[test]
    fn fields_hold_what_they_are_given_and_touch_nothing_else() {
        for field in Field::ALL {
            let (at, bits) = field.place();
            assert!(at + bits <= FLOW_WORDS * 64, "{field:?}");
            let mut flow = Flow::ZERO;
            let value = 0x1234_5678_9abc_def1_0fed_cba9_8765_4321_u128 & field.all_ones();
            flow.set(field, u128::MAX);
            let ones: u32 = flow.0.iter().map(|word| word.count_ones()).sum();
            assert_eq!(ones as usize, bits, "{field:?}");
            flow.set(field, value);
            assert_eq!(flow.get(field), value, "{field:?}");
            let mut full = Flow([u64::MAX; FLOW_WORDS]);
            full.set(field, 0);
            let zeros: u32 = full.0.iter().map(|word| word.count_zeros()).sum();
            assert_eq!(zeros as usize, bits, "{field:?}");
        }
    }

    #[test]
    fn numbers_on_the_wire_name_one_field_each() {
        for field in Field::ALL {
            for id in [field.nxm(), field.oxm()].into_iter().flatten() {
                assert_eq!(Field::from_wire(id.class, id.field), Some(field));
                assert!(usize::from(id.len) * 8 >= field.bits() || field == Field::ArpOp, "{field:?}");
            }
            assert_eq!(Field::from_name(field.name()), Some(field));
        }
        assert_eq!(Field::reg(15), Some(Field::Reg15));
        assert_eq!(Field::reg(16), None);
    }
}
