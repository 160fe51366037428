//! Matches: OpenFlow 1.0's 40 octets with their wildcards, and lists of NXM and OXM fields.

use packet::MacAddr;
use switch::flow::{Field, Match, Prerequisite};

use super::error::Error;
use super::oxm::{Entry, Wire, entry};
use super::{Put, Reader, Version, low16, port_from_16, port_to_16};

/// Octets of OpenFlow 1.0's match.
pub const MATCH_10: usize = 40;
const PRESENT: u128 = 0x1000;
const NO_VLAN: u16 = 0xffff;
/// OXM_OF_PACKET_TYPE of Ethernet (OpenFlow 1.5.1, 7.2.3.11), which every packet is here: it says nothing.
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

/// What a list of fields says.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Fields {
    /// The match.
    pub matching: Match,
    /// The cookie and the bits of it that count (Nicira's).
    pub cookie: (u64, u64),
}

/// Reads a list of fields up to the end.
///
/// # Errors
/// OFPBMC_* by field.
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

/// Reads Nicira's match of so many octets and its padding.
///
/// # Errors
/// See [`fields`].
pub fn get_nxm(from: &mut Reader<'_>, octets: usize) -> Result<Fields, Error> {
    let body = from.take(octets)?;
    from.skip(octets.next_multiple_of(8) - octets)?;
    fields(Reader::new(body, Error::MatchLength))
}

/// Reads the match of OpenFlow 1.2 and later with header and padding.
///
/// # Errors
/// See [`fields`].
pub fn get_oxm(from: &mut Reader<'_>) -> Result<Fields, Error> {
    let kind = from.u16()?;
    let length = usize::from(from.u16()?);
    if kind != 1 {
        return Err(Error::MatchType);
    }
    let body = length.checked_sub(4).ok_or(Error::MatchLength)?;
    let padded = length.next_multiple_of(8) - 4;
    let body_octets = from.data.get(..padded).ok_or(Error::MatchLength)?;
    from.skip(padded)?;
    fields(Reader::new(&body_octets[..body], Error::MatchLength))
}

/// Writes all fields of a match.
pub fn put_fields(out: &mut Vec<u8>, matching: &Match, version: Version) {
    let meets = |field: Field| matching.meets(field.prerequisite());
    for field in Field::ALL {
        let mask = matching.mask.get(field);
        if mask == 0 {
            continue;
        }
        match field {
            // Packet registers are written as the registers that they consist of.
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
    // A priority can be written on its own where the tag is there, and need not be where it is not.
    let present = vid & vid_mask & PRESENT != 0;
    let absent = vid_mask & PRESENT != 0 && vid & PRESENT == 0;
    let apart = pcp == 0 || absent || (present && pcp == Field::VlanPcp.all_ones());
    if version == Version::V10 || !apart {
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

/// Writes Nicira's match and its padding; the octets without the padding come back.
pub fn put_nxm(out: &mut Vec<u8>, matching: &Match, cookie: Option<(u64, u64)>) -> u16 {
    let start = out.len();
    put_fields(out, matching, Version::V10);
    if let Some((value, mask)) = cookie.filter(|cookie| cookie.1 != 0) {
        out.extend_from_slice(&[0, 1, 30 << 1 | u8::from(mask != u64::MAX), 8]);
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

/// Writes the match of OpenFlow 1.2 and later with header and padding.
pub fn put_oxm(out: &mut Vec<u8>, matching: &Match, version: Version) {
    let start = out.len();
    out.u16(1);
    out.u16(0);
    put_fields(out, matching, version);
    out.set_length(start, 2);
    out.align(start);
}

/// The mask of an address of which so many low bits are wild.
fn prefix(wild: u32) -> u128 {
    if wild >= 32 { 0 } else { u128::from(u32::MAX << wild) }
}

/// Returns whether the OpenFlow 1.0 match in front of a reader has no wildcard.
#[must_use]
pub fn is_exact_10(from: &Reader<'_>) -> bool {
    let all = u32::from_be_bytes([0, 0x3f, 0xff, 0xff]);
    from.data.first_chunk().is_some_and(|wild| u32::from_be_bytes(*wild) & all == 0)
}

/// Reads OpenFlow 1.0's match. Fields that the packet cannot have are ignored, as the specification's wildcards mean it.
///
/// # Errors
/// The reader's.
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
    let arp = matches!(eth_type, 0x0806 | 0x8035);
    let ip = matches!(eth_type, 0x0800 | 0x86dd);
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
            (6, _) => (Field::TcpSrc, Field::TcpDst),
            (17, _) => (Field::UdpSrc, Field::UdpDst),
            (132, _) => (Field::SctpSrc, Field::SctpDst),
            // A number over 255 is no ICMP type or code. All its 16 bits count, so such a rule matches nothing.
            (1, 0x0800) | (58, 0x86dd) => (
                icmp_field(tp_src, if proto == 1 { Field::Icmpv4Type } else { Field::Icmpv6Type }),
                icmp_field(tp_dst, if proto == 1 { Field::Icmpv4Code } else { Field::Icmpv6Code }),
            ),
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
    if arp || eth_type == 0x0800 {
        let fields = if arp { (Field::ArpSpa, Field::ArpTpa) } else { (Field::Ipv4Src, Field::Ipv4Dst) };
        out.put(fields.0, nw_src, prefix(wild >> NW_SRC_SHIFT & 63));
        out.put(fields.1, nw_dst, prefix(wild >> NW_DST_SHIFT & 63));
    }
    Ok(out)
}

/// Returns the field of an ICMP type (or code) of OpenFlow 1.0: `field` where eight bits suffice, else the 16 bits in which the field stands.
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

/// Writes OpenFlow 1.0's match; what it cannot say is left wild.
pub fn put_10(out: &mut Vec<u8>, matching: &Match) {
    let mut wild = 0x003f_ffff & !(63 << NW_SRC_SHIFT) & !(63 << NW_DST_SHIFT);
    let tci = (matching.value.get(Field::VlanTci), matching.mask.get(Field::VlanTci));
    let untagged = tci.1 & PRESENT != 0 && tci.0 & PRESENT == 0;
    if untagged {
        // An untagged packet has no priority: as Open vSwitch does it, both fields come back as exact.
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
