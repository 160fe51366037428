//! Encoding and decoding of matches. The formats are the fixed matches of OpenFlow 1.0 (40 octets) and 1.1
//! (88 octets) with wildcard bits, and lists of NXM or OXM fields.

use packet::{MacAddr, ethertype, ip_proto};
use switch::flow::{Field, Match, Prerequisite, port};

use super::error::Error;
use super::ofp::matching::*;
use super::ofp::nx::NXM_NX_COOKIE;
use super::oxm::{Entry, Wire, entry};
use super::{Put, Reader, Version, low16, port_from_16, port_to_16};

/// Length of the OpenFlow 1.0 match in octets.
pub const MATCH_10: usize = 40;
/// Length of the OpenFlow 1.1 match in octets, including its header.
pub const MATCH_11: u16 = 88;
const PRESENT: u128 = OFPVID_PRESENT as u128;
/// VLAN ID that represents packets without a VLAN tag in matches of OpenFlow 1.0 and 1.1 (OFP_VLAN_NONE).
const NO_VLAN: u16 = 0xffff;
/// OXM field OXM_OF_PACKET_TYPE with the value for Ethernet (OpenFlow 1.5.1 section 7.2.3.11). The
/// decoder ignores the field, because every packet is an Ethernet packet.
const ETHERNET: [u8; 8] = [0x80, 0, 44 << 1, 4, 0, 0, 0, 0];

const IN_PORT: u32 = 1;
const DL_VLAN: u32 = 1 << 1;
const DL_SRC: u32 = 1 << 2;
const DL_DST: u32 = 1 << 3;
const DL_TYPE: u32 = 1 << 4;
const NW_PROTO: u32 = 1 << 5;
const TP_SRC: u32 = 1 << 6;
const TP_DST: u32 = 1 << 7;
const NW_SRC_SHIFT: u32 = 8;
const NW_DST_SHIFT: u32 = 14;
const DL_VLAN_PCP: u32 = 1 << 20;
const NW_TOS: u32 = 1 << 21;

/// Result of decoding a list of NXM or OXM match fields.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Fields {
    /// Match that the list describes.
    pub matching: Match,
    /// Cookie and cookie mask. In Nicira's messages, the list of fields contains both.
    pub cookie: (u64, u64),
}

/// Decodes a list of NXM or OXM match fields. The list must extend to the end of the reader.
///
/// # Errors
/// Returns the OFPBMC_* error of the first invalid field.
pub fn fields(mut from: Reader<'_>) -> Result<Fields, Error> {
    let mut out = Fields::default();
    while !from.is_empty() {
        if from.data.starts_with(&ETHERNET) {
            from.skip(ETHERNET.len())?;
            continue;
        }
        match entry(&mut from)? {
            Entry::Field(wire, value, mask) => {
                out.matching.add(wire.field, value, Some(mask))?;
            }
            Entry::Cookie(value, mask) => {
                if out.cookie.1 != 0 {
                    return Err(Error::MatchTwice);
                }
                out.cookie = (value & mask, mask);
            }
            Entry::Unknown => return Err(Error::MatchField),
        }
    }
    Ok(out)
}

/// Decodes an NXM match with a length of `octets` octets, and its padding.
///
/// # Errors
/// Returns the errors of [`fields`].
pub fn get_nxm(from: &mut Reader<'_>, octets: usize) -> Result<Fields, Error> {
    let body = from.take(octets)?;
    from.skip(octets.next_multiple_of(8) - octets)?;
    fields(Reader::new(body, Error::MatchLength))
}

/// Decodes a match in a format of OpenFlow 1.1 or later, with its header and padding: OFPMT_STANDARD
/// (OpenFlow 1.1) or OFPMT_OXM. Like in Open vSwitch, both formats are accepted in all versions.
///
/// # Errors
/// Returns the errors of [`fields`].
pub fn get_oxm(from: &mut Reader<'_>) -> Result<Fields, Error> {
    let kind = from.u16()?;
    let length = usize::from(from.u16()?);
    match kind {
        OFPMT_STANDARD if length == usize::from(MATCH_11) => {
            let mut body = Reader { short: Error::MatchLength, ..*from }.part(length - 4)?;
            from.skip(length - 4)?;
            return Ok(Fields { matching: get_11(&mut body)?, ..Fields::default() });
        }
        OFPMT_STANDARD => return Err(Error::MatchLength),
        OFPMT_OXM => {}
        _ => return Err(Error::MatchType),
    }
    let body = length.checked_sub(4).ok_or(Error::MatchLength)?;
    let padded = length.next_multiple_of(8) - 4;
    let body_octets = from.data.get(..padded).ok_or(Error::MatchLength)?;
    from.skip(padded)?;
    fields(Reader::new(&body_octets[..body], Error::MatchLength))
}

/// Encodes all fields of a match as a list of NXM or OXM fields.
pub fn put_fields(out: &mut Vec<u8>, matching: &Match, version: Version) {
    let meets = |field: Field| matching.meets(field.prerequisite());
    for field in Field::ALL {
        let mask = matching.mask.get(field);
        if mask == 0 {
            continue;
        }
        match field {
            // Extended registers are encoded as the registers that they consist of.
            Field::Xreg0
            | Field::Xreg1
            | Field::Xreg2
            | Field::Xreg3
            | Field::Xreg4
            | Field::Xreg5
            | Field::Xreg6
            | Field::Xreg7
            | Field::Xxreg0
            | Field::Xxreg1
            | Field::Xxreg2
            | Field::Xxreg3
            | Field::VlanVid
            | Field::VlanPcp => {}
            Field::VlanTci => put_vlan(out, matching, version),
            _ if !meets(field) => {}
            _ => {
                if let Some(wire) = Wire::of(field, version) {
                    wire.put(out, matching.value.get(field), mask);
                }
            }
        }
    }
}

fn put_vlan(out: &mut Vec<u8>, matching: &Match, version: Version) {
    let tci = (matching.value.get(Field::VlanTci), matching.mask.get(Field::VlanTci));
    let pcp = matching.mask.get(Field::VlanPcp);
    let (vid, vid_mask) = (matching.value.get(Field::VlanVid), matching.mask.get(Field::VlanVid));
    // The priority can be encoded separately if the tag is present, and need not be encoded if the tag is
    // absent.
    let present = vid & vid_mask & PRESENT != 0;
    let absent = vid_mask & PRESENT != 0 && vid & PRESENT == 0;
    let apart = pcp == 0 || absent || (present && pcp == Field::VlanPcp.all_ones());
    if version <= Version::V11 || !apart {
        if let Some(wire) = Field::VlanTci.nxm().and_then(|_| Wire::of(Field::VlanTci, Version::V10)) {
            wire.put(out, tci.0, tci.1);
        }
        return;
    }
    if let Some(wire) = Wire::of(Field::VlanVid, version) {
        wire.put(out, vid, vid_mask);
    }
    if let (true, true, Some(wire)) = (pcp != 0, present, Wire::of(Field::VlanPcp, version)) {
        wire.put(out, matching.value.get(Field::VlanPcp), pcp);
    }
}

/// Encodes an NXM match with its padding. Returns the length in octets without the padding.
pub fn put_nxm(out: &mut Vec<u8>, matching: &Match, cookie: Option<(u64, u64)>) -> u16 {
    let start = out.len();
    put_fields(out, matching, Version::V10);
    if let Some((value, mask)) = cookie.filter(|cookie| cookie.1 != 0) {
        out.u16(OFPXMC_NXM_1);
        out.extend_from_slice(&[NXM_NX_COOKIE << 1 | u8::from(mask != u64::MAX), 8]);
        if mask == u64::MAX {
            out.u64(value);
        } else {
            let at = out.len() - 1;
            out[at] = 16;
            out.u64(value);
            out.u64(mask);
        }
    }
    let octets = low16(out.len() - start);
    out.align(start);
    octets
}

/// Encodes a match with its header and padding. The format is OFPMT_STANDARD in OpenFlow 1.1, and OFPMT_OXM
/// in later versions.
pub fn put_oxm(out: &mut Vec<u8>, matching: &Match, version: Version) {
    if version == Version::V11 {
        put_11(out, matching);
        return;
    }
    let start = out.len();
    out.u16(OFPMT_OXM);
    out.u16(0);
    put_fields(out, matching, version);
    out.set_length(start, 2);
    out.align(start);
}

/// Returns an IPv4 address mask in which the `wild` low bits are wildcarded. OpenFlow 1.0 encodes
/// prefix lengths as numbers of wildcarded bits.
fn prefix(wild: u32) -> u128 {
    if wild >= 32 { 0 } else { u128::from(u32::MAX << wild) }
}

/// Returns whether the OpenFlow 1.0 match at the front of a reader has no wildcard bit.
#[must_use]
pub fn is_exact_10(from: &Reader<'_>) -> bool {
    let all = u32::from_be_bytes([0, 0x3f, 0xff, 0xff]);
    from.data.first_chunk().is_some_and(|wild| u32::from_be_bytes(*wild) & all == 0)
}

/// Decodes an OpenFlow 1.0 match. Fields that packets of the matched protocols do not have are ignored, as the
/// specification requires.
///
/// # Errors
/// Returns the errors of the reader.
pub fn get_10(from: &mut Reader<'_>) -> Result<Match, Error> {
    let wild = from.u32()?;
    let in_port = from.u16()?;
    let (src, dst) = (from.mac()?, from.mac()?);
    let (vlan, pcp) = (from.u16()?, from.u8()?);
    from.skip(1)?;
    let eth_type = from.u16()?;
    let (tos, proto) = (from.u8()?, from.u8()?);
    from.skip(2)?;
    let (nw_src, nw_dst) = (u128::from(from.u32()?), u128::from(from.u32()?));
    let (tp_src, tp_dst) = (from.u16()?, from.u16()?);

    let asked = |bit: u32| wild & bit == 0;
    let mut out = Match::ANY;
    let mut whole = |field: Field, value: u128| out.put(field, value, field.all_ones());
    if asked(IN_PORT) {
        whole(Field::InPort, u128::from(port_from_16(in_port)));
    }
    if asked(DL_SRC) {
        whole(Field::EthSrc, mac_bits(src));
    }
    if asked(DL_DST) {
        whole(Field::EthDst, mac_bits(dst));
    }
    if asked(DL_VLAN) && vlan == NO_VLAN {
        whole(Field::VlanTci, 0);
    } else {
        if asked(DL_VLAN) {
            whole(Field::VlanVid, PRESENT | u128::from(vlan & 0xfff));
        }
        if asked(DL_VLAN_PCP) {
            out.put(Field::VlanTci, PRESENT | u128::from(pcp & 7) << 13, 0xf000);
        }
    }
    if !asked(DL_TYPE) {
        return Ok(out);
    }
    let mut whole = |field: Field, value: u128| out.put(field, value, field.all_ones());
    whole(Field::EthType, u128::from(eth_type));
    let arp = matches!(eth_type, ethertype::ARP | ethertype::RARP);
    let ip = matches!(eth_type, ethertype::IPV4 | ethertype::IPV6);
    if arp && asked(NW_PROTO) {
        whole(Field::ArpOp, u128::from(proto));
    }
    if ip && asked(NW_PROTO) {
        whole(Field::IpProto, u128::from(proto));
    }
    if ip && asked(NW_TOS) {
        whole(Field::IpDscp, u128::from(tos >> 2));
    }
    if ip && asked(NW_PROTO) {
        let (first, second) = match (proto, eth_type) {
            (ip_proto::TCP, _) => (Field::TcpSrc, Field::TcpDst),
            (ip_proto::UDP, _) => (Field::UdpSrc, Field::UdpDst),
            (ip_proto::SCTP, _) => (Field::SctpSrc, Field::SctpDst),
            // A number above 255 is not an ICMP type or code. All 16 bits are compared, so the flow entry
            // matches no packet.
            (ip_proto::ICMP, ethertype::IPV4) => {
                (icmp_field(tp_src, Field::Icmpv4Type), icmp_field(tp_dst, Field::Icmpv4Code))
            }
            (ip_proto::ICMPV6, ethertype::IPV6) => {
                (icmp_field(tp_src, Field::Icmpv6Type), icmp_field(tp_dst, Field::Icmpv6Code))
            }
            _ => (Field::InPort, Field::InPort),
        };
        if first != Field::InPort {
            if asked(TP_SRC) {
                whole(first, u128::from(tp_src));
            }
            if asked(TP_DST) {
                whole(second, u128::from(tp_dst));
            }
        }
    }
    if arp || eth_type == ethertype::IPV4 {
        let fields = if arp { (Field::ArpSpa, Field::ArpTpa) } else { (Field::Ipv4Src, Field::Ipv4Dst) };
        out.put(fields.0, nw_src, prefix(wild >> NW_SRC_SHIFT & 63));
        out.put(fields.1, nw_dst, prefix(wild >> NW_DST_SHIFT & 63));
    }
    Ok(out)
}

/// Returns the field that represents an ICMP type or code of an OpenFlow 1.0 match, which is a 16-bit number. Returns
/// `field` for numbers below 256. For larger numbers, which no ICMP packet contains, returns the 16-bit field `TcpSrc`
/// or `TcpDst`, whose low octet is `field` in the flow key.
fn icmp_field(number: u16, field: Field) -> Field {
    match field {
        _ if number <= 0xff => field,
        Field::Icmpv4Type | Field::Icmpv6Type => Field::TcpSrc,
        _ => Field::TcpDst,
    }
}

fn mac_bits(mac: MacAddr) -> u128 {
    mac.0.iter().fold(0, |value, byte| value << 8 | u128::from(*byte))
}

/// Encodes an OpenFlow 1.0 match. Fields that OpenFlow 1.0 cannot express are wildcarded.
pub fn put_10(out: &mut Vec<u8>, matching: &Match) {
    let mut wild = 0x003f_ffff & !(63 << NW_SRC_SHIFT) & !(63 << NW_DST_SHIFT);
    let tci = (matching.value.get(Field::VlanTci), matching.mask.get(Field::VlanTci));
    let untagged = tci.1 & PRESENT != 0 && tci.0 & PRESENT == 0;
    if untagged {
        // An untagged packet has no priority. Like in Open vSwitch, both fields are encoded as exact.
        wild &= !(DL_VLAN | DL_VLAN_PCP);
    }
    let mut whole = |field: Field, bit: u32| -> u128 {
        if !matching.meets(field.prerequisite()) {
            return 0;
        }
        matching.exact(field).map_or(0, |value| {
            wild &= !bit;
            value
        })
    };
    let number = |value: u128| u16::try_from(value).unwrap_or(u16::MAX);
    let in_port = whole(Field::InPort, IN_PORT);
    let (src, dst) = (whole(Field::EthSrc, DL_SRC), whole(Field::EthDst, DL_DST));
    let (vlan, pcp) = if untagged {
        (NO_VLAN, 0)
    } else {
        (number(whole(Field::VlanVid, DL_VLAN)) & 0xfff, number(whole(Field::VlanPcp, DL_VLAN_PCP)))
    };
    let eth_type = number(whole(Field::EthType, DL_TYPE));
    let tos = number(whole(Field::IpDscp, NW_TOS)) << 2;
    let proto = number(whole(Field::IpProto, NW_PROTO) | whole(Field::ArpOp, NW_PROTO));
    let is_icmp = matching.meets(Prerequisite::Icmpv4) || matching.meets(Prerequisite::Icmpv6);
    let mut ports = |fields: &[Field], bit| {
        let value = fields.iter().fold(0, |sum, field| sum | number(whole(*field, bit)));
        // See `icmp_field`.
        let wide = fields.first().filter(|_| is_icmp).and_then(|field| matching.exact(*field));
        wide.map_or(value, number)
    };
    let tp_src =
        ports(&[Field::TcpSrc, Field::UdpSrc, Field::SctpSrc, Field::Icmpv4Type, Field::Icmpv6Type], TP_SRC);
    let tp_dst =
        ports(&[Field::TcpDst, Field::UdpDst, Field::SctpDst, Field::Icmpv4Code, Field::Icmpv6Code], TP_DST);
    let address = |fields: [Field; 2]| -> (u32, u32) {
        let field = fields.into_iter().find(|field| matching.meets(field.prerequisite()));
        let (value, mask) =
            field.map_or((0, 0), |field| (matching.value.get(field), matching.mask.get(field)));
        let mask = u32::try_from(mask).unwrap_or(0);
        let wild = mask.trailing_zeros();
        if mask == u32::MAX.checked_shl(wild).unwrap_or(0) {
            (u32::try_from(value).unwrap_or(0), wild)
        } else {
            (0, 32)
        }
    };
    let (nw_src, src_wild) = address([Field::Ipv4Src, Field::ArpSpa]);
    let (nw_dst, dst_wild) = address([Field::Ipv4Dst, Field::ArpTpa]);

    out.u32(wild | src_wild << NW_SRC_SHIFT | dst_wild << NW_DST_SHIFT);
    out.u16(port_to_16(u32::try_from(in_port).unwrap_or(u32::MAX)));
    out.extend_from_slice(&src.to_be_bytes()[10..]);
    out.extend_from_slice(&dst.to_be_bytes()[10..]);
    out.u16(vlan);
    out.u8(pcp.to_be_bytes()[1]);
    out.u8(0);
    out.u16(eth_type);
    out.u8(tos.to_be_bytes()[1]);
    out.u8(proto.to_be_bytes()[1]);
    out.zeros(2);
    out.u32(nw_src);
    out.u32(nw_dst);
    out.u16(tp_src);
    out.u16(tp_dst);
}

const MPLS_LABEL: u32 = 1 << 8;
const MPLS_TC: u32 = 1 << 9;
const ANY_VLAN: u16 = 0xfffe;
const MAC_BITS: u64 = 0xffff_ffff_ffff;

/// Wildcard bits of the OpenFlow 1.1 match (OFPFW_*), which differ from the wildcard bits of
/// OpenFlow 1.0.
mod wild11 {
    pub const IN_PORT: u32 = 1;
    pub const DL_VLAN: u32 = 1 << 1;
    pub const DL_VLAN_PCP: u32 = 1 << 2;
    pub const DL_TYPE: u32 = 1 << 3;
    pub const NW_TOS: u32 = 1 << 4;
    pub const NW_PROTO: u32 = 1 << 5;
    pub const TP_SRC: u32 = 1 << 6;
    pub const TP_DST: u32 = 1 << 7;
}

/// Wire format of an OpenFlow 1.1 match, without its header (OpenFlow 1.1 section A.2.3). A bit that is set in a mask
/// means that the corresponding bit of the field is wildcarded.
struct Raw11 {
    in_port: u32,
    wild: u32,
    dl_src: (u64, u64),
    dl_dst: (u64, u64),
    vlan: u16,
    pcp: u8,
    eth_type: u16,
    tos: u8,
    proto: u8,
    nw_src: (u32, u32),
    nw_dst: (u32, u32),
    tp_src: u16,
    tp_dst: u16,
    mpls_label: u32,
    mpls_tc: u8,
    metadata: (u64, u64),
}

impl Raw11 {
    fn get(from: &mut Reader<'_>) -> Result<Raw11, Error> {
        let (in_port, wild) = (from.u32()?, from.u32()?);
        let mut mac = || -> Result<u64, Error> {
            Ok(from.take(6)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
        };
        let (dl_src, dl_dst) = ((mac()?, mac()?), (mac()?, mac()?));
        let (vlan, pcp) = (from.u16()?, from.u8()?);
        from.skip(1)?;
        let (eth_type, tos, proto) = (from.u16()?, from.u8()?, from.u8()?);
        let (nw_src, nw_dst) = ((from.u32()?, from.u32()?), (from.u32()?, from.u32()?));
        let (tp_src, tp_dst) = (from.u16()?, from.u16()?);
        let (mpls_label, mpls_tc) = (from.u32()?, from.u8()?);
        from.skip(3)?;
        let metadata = (from.u64()?, from.u64()?);
        Ok(Raw11 {
            in_port,
            wild,
            dl_src,
            dl_dst,
            vlan,
            pcp,
            eth_type,
            tos,
            proto,
            nw_src,
            nw_dst,
            tp_src,
            tp_dst,
            mpls_label,
            mpls_tc,
            metadata,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.u16(OFPMT_STANDARD);
        out.u16(MATCH_11);
        out.u32(self.in_port);
        out.u32(self.wild);
        for address in [self.dl_src.0, self.dl_src.1, self.dl_dst.0, self.dl_dst.1] {
            out.extend_from_slice(&address.to_be_bytes()[2..]);
        }
        out.u16(self.vlan);
        out.extend_from_slice(&[self.pcp, 0]);
        out.u16(self.eth_type);
        out.extend_from_slice(&[self.tos, self.proto]);
        for address in [self.nw_src.0, self.nw_src.1, self.nw_dst.0, self.nw_dst.1] {
            out.u32(address);
        }
        out.u16(self.tp_src);
        out.u16(self.tp_dst);
        out.u32(self.mpls_label);
        out.extend_from_slice(&[self.mpls_tc, 0, 0, 0]);
        out.u64(self.metadata.0);
        out.u64(self.metadata.1);
    }
}

/// Decodes an OpenFlow 1.1 match without its header. Fields that packets of the matched protocols do not have are
/// ignored, as the specification requires.
///
/// # Errors
/// Returns the errors of the reader, and [`Error::MatchValue`] if a value is out of range.
fn get_11(from: &mut Reader<'_>) -> Result<Match, Error> {
    let raw = Raw11::get(from)?;
    let asked = |bit: u32| raw.wild & bit == 0;
    let mut out = Match::ANY;
    let whole = |out: &mut Match, field: Field, value: u128| out.put(field, value, field.all_ones());
    if asked(wild11::IN_PORT) {
        if (port::MAX..0xffff_ff00).contains(&raw.in_port) {
            return Err(Error::MatchValue);
        }
        whole(&mut out, Field::InPort, u128::from(raw.in_port));
    }
    if asked(wild11::DL_VLAN) {
        match raw.vlan {
            NO_VLAN => whole(&mut out, Field::VlanTci, 0),
            ANY_VLAN => {}
            vid if vid < 0x1000 => whole(&mut out, Field::VlanVid, PRESENT | u128::from(vid)),
            _ => return Err(Error::MatchValue),
        }
        if raw.vlan != NO_VLAN {
            out.put(Field::VlanTci, PRESENT, PRESENT);
            if asked(wild11::DL_VLAN_PCP) {
                if raw.pcp > 7 {
                    return Err(Error::MatchValue);
                }
                out.put(Field::VlanTci, PRESENT | u128::from(raw.pcp) << 13, 0xf000);
            }
        }
    }
    let typed = asked(wild11::DL_TYPE);
    let eth_type = if typed { raw.eth_type } else { 0 };
    if typed {
        whole(&mut out, Field::EthType, u128::from(eth_type));
    }
    let (ip, arp) = (eth_type == ethertype::IPV4, matches!(eth_type, ethertype::ARP | ethertype::RARP));
    if ip && asked(wild11::NW_TOS) {
        if raw.tos & 3 != 0 {
            return Err(Error::MatchValue);
        }
        whole(&mut out, Field::IpDscp, u128::from(raw.tos >> 2));
    }
    let by_protocol = asked(wild11::NW_PROTO);
    if (ip || arp) && by_protocol {
        whole(&mut out, if arp { Field::ArpOp } else { Field::IpProto }, u128::from(raw.proto));
    }
    if ip && by_protocol {
        let fields = match raw.proto {
            ip_proto::TCP => Some((Field::TcpSrc, Field::TcpDst)),
            ip_proto::UDP => Some((Field::UdpSrc, Field::UdpDst)),
            ip_proto::SCTP => Some((Field::SctpSrc, Field::SctpDst)),
            ip_proto::ICMP => Some((Field::Icmpv4Type, Field::Icmpv4Code)),
            _ => None,
        };
        for (bit, value, second) in [(wild11::TP_SRC, raw.tp_src, false), (wild11::TP_DST, raw.tp_dst, true)]
        {
            let Some((first_field, second_field)) = fields.filter(|_| asked(bit)) else { continue };
            if raw.proto == ip_proto::ICMP && value > 0xff {
                return Err(Error::MatchField);
            }
            whole(&mut out, if second { second_field } else { first_field }, u128::from(value));
        }
    }
    if matches!(eth_type, ethertype::MPLS | ethertype::MPLS_MULTICAST) {
        if asked(MPLS_LABEL) {
            if raw.mpls_label >> 20 != 0 {
                return Err(Error::MatchValue);
            }
            whole(&mut out, Field::MplsLabel, u128::from(raw.mpls_label));
        }
        if asked(MPLS_TC) {
            if raw.mpls_tc > 7 {
                return Err(Error::MatchValue);
            }
            whole(&mut out, Field::MplsTc, u128::from(raw.mpls_tc));
        }
    }
    let addresses = if arp { (Field::ArpSpa, Field::ArpTpa) } else { (Field::Ipv4Src, Field::Ipv4Dst) };
    if ip || arp {
        out.put(addresses.0, u128::from(raw.nw_src.0), u128::from(!raw.nw_src.1));
        out.put(addresses.1, u128::from(raw.nw_dst.0), u128::from(!raw.nw_dst.1));
    }
    out.put(Field::EthSrc, u128::from(raw.dl_src.0), u128::from(!raw.dl_src.1 & MAC_BITS));
    out.put(Field::EthDst, u128::from(raw.dl_dst.0), u128::from(!raw.dl_dst.1 & MAC_BITS));
    out.put(Field::Metadata, u128::from(raw.metadata.0), u128::from(!raw.metadata.1));
    Ok(out)
}

/// Encodes an OpenFlow 1.1 match with its header. Fields that OpenFlow 1.1 cannot express are wildcarded.
fn put_11(out: &mut Vec<u8>, matching: &Match) {
    let mut wild = 0x3ff;
    let mut whole = |field: Field, bit: u32| -> u128 {
        if !matching.meets(field.prerequisite()) {
            return 0;
        }
        matching.exact(field).map_or(0, |value| {
            wild &= !bit;
            value
        })
    };
    let low8 = |value: u128| value.to_be_bytes()[15];
    let low16 = |value: u128| u16::try_from(value & 0xffff).unwrap_or(0);
    let low32 = |value: u128| u32::try_from(value & 0xffff_ffff).unwrap_or(0);
    let low64 = |value: u128| u64::try_from(value & u128::from(u64::MAX)).unwrap_or(0);
    let in_port = low32(whole(Field::InPort, wild11::IN_PORT));
    let tci = (matching.value.get(Field::VlanTci), matching.mask.get(Field::VlanTci));
    let (vlan, pcp) = if tci.1 & PRESENT == 0 {
        (0, 0)
    } else if tci.0 & PRESENT == 0 {
        whole(Field::VlanVid, wild11::DL_VLAN);
        (NO_VLAN, 0)
    } else {
        let pcp = low8(whole(Field::VlanPcp, wild11::DL_VLAN_PCP));
        match matching.exact(Field::VlanVid) {
            Some(_) => (low16(whole(Field::VlanVid, wild11::DL_VLAN)) & 0xfff, pcp),
            None => (ANY_VLAN, pcp),
        }
    };
    let eth_type = low16(whole(Field::EthType, wild11::DL_TYPE));
    let tos = low8(whole(Field::IpDscp, wild11::NW_TOS)) << 2;
    let narrow = matching.exact(Field::ArpOp).is_none_or(|operation| operation < 0x100);
    let operation = if narrow { whole(Field::ArpOp, wild11::NW_PROTO) } else { 0 };
    let proto = low8(whole(Field::IpProto, wild11::NW_PROTO) | operation);
    let mut ports =
        |fields: &[Field], bit| fields.iter().fold(0, |sum, field| sum | low16(whole(*field, bit)));
    let tp_src = ports(
        &[Field::TcpSrc, Field::UdpSrc, Field::SctpSrc, Field::Icmpv4Type, Field::Icmpv6Type],
        wild11::TP_SRC,
    );
    let tp_dst = ports(
        &[Field::TcpDst, Field::UdpDst, Field::SctpDst, Field::Icmpv4Code, Field::Icmpv6Code],
        wild11::TP_DST,
    );
    let mpls_label = low32(whole(Field::MplsLabel, MPLS_LABEL));
    let mpls_tc = low8(whole(Field::MplsTc, MPLS_TC));
    if vlan == ANY_VLAN {
        wild &= !wild11::DL_VLAN;
    }
    let masked = |field: Field| -> (u64, u64) {
        let meets = matching.meets(field.prerequisite());
        let mask = if meets { matching.mask.get(field) } else { 0 };
        (low64(matching.value.get(field) & mask), low64(!mask & field.all_ones()))
    };
    let address = |fields: [Field; 2]| {
        let field = fields.into_iter().find(|field| matching.meets(field.prerequisite()));
        let (value, wild) = field.map_or((0, u64::from(u32::MAX)), masked);
        (low32(value.into()), low32(wild.into()))
    };
    Raw11 {
        in_port,
        wild,
        dl_src: masked(Field::EthSrc),
        dl_dst: masked(Field::EthDst),
        vlan,
        pcp,
        eth_type,
        tos,
        proto,
        nw_src: address([Field::Ipv4Src, Field::ArpSpa]),
        nw_dst: address([Field::Ipv4Dst, Field::ArpTpa]),
        tp_src,
        tp_dst,
        mpls_label,
        mpls_tc,
        metadata: masked(Field::Metadata),
    }
    .put(out);
}
