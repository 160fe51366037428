//! Filters over flow keys, in the syntax of packet specs. `trace` and `capture` select packets with filters.
//!
//! A filter is parsed once. Matching a packet then takes one masked comparison of the packet's flow key. A
//! packet must match all items of the filter.
//!
//! ```
//! use packet::filter::Filter;
//!
//! let filter = Filter::parse("ip_src=10.0.0.0/8, tcp, dst_port=443, tcp_flags=+syn-ack").unwrap();
//! assert!(!filter.matches(&packet::FlowKey::ZERO));
//! ```

use std::net::IpAddr;

use crate::flow_key::{FRAGMENT_ANY, FRAGMENT_LATER, TAG_PRESENT};
use crate::numbers::ip_proto;
use crate::words::{Field, Item, L3Word, Shorthand, items, prefix_v4, prefix_v6};
pub use crate::words::{HexFault, TextError};
use crate::{FlowKey, L3Kind, MacAddr, PortId};

/// A condition on flow keys. The default filter matches every packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    value: FlowKey,
    mask: FlowKey,
    upper: UpperNeed,
}

/// Class of L4 protocols that a filter item requires, because the item compares ports (such as
/// `dst_port=80`) or the ICMP type or code. The requirement applies only if no item of the filter
/// selects a protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum UpperNeed {
    #[default]
    Nothing,
    /// The packet is TCP, UDP or SCTP and not a later fragment.
    Ports,
    /// The packet is ICMP or ICMPv6 and not a later fragment.
    Icmp,
}

impl Filter {
    /// Parses a filter text: `field=value` items and words such as `tcp`, separated by commas. The filter of an
    /// empty text matches every packet.
    ///
    /// Addresses may have a mask or a prefix length (`ip_src=10.0.0.0/8`,
    /// `eth_dst=01:00:00:00:00:00/01:00:00:00:00:00`). Ports may have a mask (`dst_port=0x1000/0xf000`).
    /// `tcp`, `udp` and `sctp` match both IP versions.
    ///
    /// # Errors
    /// Returns a [`TextError`] that names the field, the cause and the remedy.
    pub fn parse(text: &str) -> Result<Filter, TextError> {
        let mut filter = Filter::default();
        let mut seen: Vec<Field> = Vec::new();
        for item in items(text) {
            match item? {
                Item::Word(word) => filter.add_word(word)?,
                Item::Field(field, value) => {
                    if seen.contains(&field) {
                        return Err(TextError::Repeated { field: field.name() });
                    }
                    seen.push(field);
                    filter.add(field, value)?;
                }
            }
        }
        Ok(filter)
    }

    /// Returns whether the filter matches a flow key. [`FlowKey::extract`] must have filled the key.
    #[inline]
    pub fn matches(&self, key: &FlowKey) -> bool {
        key.matches(&self.value, &self.mask) && self.upper_matches(key)
    }

    #[inline]
    fn upper_matches(&self, key: &FlowKey) -> bool {
        match self.upper {
            UpperNeed::Nothing => true,
            UpperNeed::Ports => {
                matches!(key.proto(), ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP)
                    && !key.is_later_fragment()
            }
            UpperNeed::Icmp => {
                matches!(
                    (key.l3_kind(), key.proto()),
                    (L3Kind::Ipv4, ip_proto::ICMP) | (L3Kind::Ipv6, ip_proto::ICMPV6)
                ) && !key.is_later_fragment()
            }
        }
    }

    fn add_word(&mut self, word: Shorthand) -> Result<(), TextError> {
        if let Some(l3) = word.l3 {
            self.need_l3(Field::EthType, l3)?;
        }
        word.proto.map_or(Ok(()), |proto| self.need_proto(Field::Proto, proto))
    }

    fn add(&mut self, field: Field, value: &str) -> Result<(), TextError> {
        match field {
            Field::InPort | Field::EthSrc | Field::EthDst | Field::EthType => self.add_l2(field, value),
            Field::Vlan | Field::Pcp | Field::InnerVlan | Field::VlanTpid => self.add_tag(field, value),
            Field::IpSrc | Field::IpDst | Field::Proto | Field::Tos | Field::Ttl | Field::Frag => {
                self.add_ip(field, value)
            }
            Field::SrcPort | Field::DstPort | Field::TcpFlags | Field::IcmpType | Field::IcmpCode => {
                self.add_l4(field, value)
            }
            Field::ArpOp | Field::ArpSpa | Field::ArpTpa => self.add_arp(field, value),
            Field::ArpSha | Field::ArpTha => {
                Err(field.conflict("flow keys do not hold it", "filter by eth_src or arp_spa instead"))
            }
            Field::Len => Err(field.conflict("flow keys do not hold it", "leave it out")),
        }
    }

    fn add_l2(&mut self, field: Field, value: &str) -> Result<(), TextError> {
        match field {
            Field::InPort => {
                self.value.set_in_port(PortId(field.number(value, u16::MAX)?));
                self.mask.set_in_port(PortId(u16::MAX));
            }
            Field::EthType => {
                self.value.set_eth_type(field.eth_type(value)?);
                self.mask.set_eth_type(u16::MAX);
            }
            _ => {
                let (mac, mask) = match value.split_once('/') {
                    Some((mac, mask)) => (field.mac(mac)?, field.mac(mask)?),
                    None => (field.mac(value)?, MacAddr::BROADCAST),
                };
                let mac = MacAddr::from_u64(mac.as_u64() & mask.as_u64());
                if field == Field::EthSrc {
                    self.value.set_eth_src(mac);
                    self.mask.set_eth_src(mask);
                } else {
                    self.value.set_eth_dst(mac);
                    self.mask.set_eth_dst(mask);
                }
            }
        }
        Ok(())
    }

    fn add_tag(&mut self, field: Field, value: &str) -> Result<(), TextError> {
        let tci = |key: &FlowKey| (key.outer_tci(), key.inner_tci());
        let ((outer, inner), (outer_mask, inner_mask)) = (tci(&self.value), tci(&self.mask));
        match field {
            Field::VlanTpid => {
                return Err(field.conflict("filters do not look at it", "leave it out"));
            }
            Field::Pcp => {
                if outer_mask & TAG_PRESENT != 0 && outer & TAG_PRESENT == 0 {
                    return Err(field.conflict("an untagged frame has no priority", "leave out vlan=none"));
                }
                self.value.set_outer_tci_bits(outer | TAG_PRESENT | field.number(value, 7)? << 13);
                self.mask.set_outer_tci_bits(outer_mask | TAG_PRESENT | 0xe000);
            }
            _ => {
                let (bits, mask) = match (value, field.vlan(value)) {
                    ("any" | "tagged", _) => (TAG_PRESENT, TAG_PRESENT),
                    (_, vlan) => vlan?.map_or((0, TAG_PRESENT), |vid| (vid | TAG_PRESENT, 0x1fff)),
                };
                if field == Field::InnerVlan {
                    self.value.set_inner_tci_bits(inner | bits);
                    self.mask.set_inner_tci_bits(inner_mask | mask);
                } else if bits == 0 && outer != 0 {
                    return Err(field.conflict("an untagged frame has no priority", "leave out pcp"));
                } else {
                    self.value.set_outer_tci_bits(outer | bits);
                    self.mask.set_outer_tci_bits(outer_mask | mask);
                }
            }
        }
        Ok(())
    }

    fn add_ip(&mut self, field: Field, value: &str) -> Result<(), TextError> {
        match field {
            Field::IpSrc | Field::IpDst => return self.add_address(field, value),
            Field::Proto => return self.need_proto(field, field.proto(value)?),
            Field::Tos => {
                self.value.set_tos(field.octet(value)?);
                self.mask.set_tos(0xff);
            }
            Field::Ttl => {
                self.value.set_ttl(field.octet(value)?);
                self.mask.set_ttl(0xff);
            }
            _ => {
                let both = FRAGMENT_ANY | FRAGMENT_LATER;
                let (bits, mask) = match value {
                    "none" | "no" => (0, both),
                    "not_later" => (0, FRAGMENT_LATER),
                    "any" | "yes" => (FRAGMENT_ANY, FRAGMENT_ANY),
                    "first" => (FRAGMENT_ANY, both),
                    "later" => (both, both),
                    _ => return Err(field.bad(value)),
                };
                self.value.set_fragment_bits(bits);
                self.mask.set_fragment_bits(mask);
            }
        }
        self.need_ip(field)
    }

    fn add_address(&mut self, field: Field, value: &str) -> Result<(), TextError> {
        let (text, mask) = value.split_once('/').unzip();
        let address = field.ip(text.unwrap_or(value))?;
        let bits = |mask: &str| if mask.contains(['.', ':', '+']) { None } else { mask.parse::<u32>().ok() };
        let source = field == Field::IpSrc;
        match address {
            IpAddr::V4(address) => {
                self.need_l3(field, L3Word::Ipv4)?;
                let mask = match mask {
                    None => prefix_v4(32),
                    Some(mask) => bits(mask).map_or_else(|| mask.parse().ok(), prefix_v4),
                };
                let mask = mask.ok_or_else(|| field.bad(value))?;
                self.set_ipv4(source, u32::from(address), mask.into());
            }
            IpAddr::V6(address) => {
                self.need_l3(field, L3Word::Ipv6)?;
                let mask = match mask {
                    None => prefix_v6(128),
                    Some(mask) => bits(mask).map_or_else(|| mask.parse().ok(), prefix_v6),
                };
                let mask = mask.ok_or_else(|| field.bad(value))?;
                let masked = (u128::from(address) & u128::from(mask)).into();
                if source {
                    self.value.set_ipv6_src(masked);
                    self.mask.set_ipv6_src(mask);
                } else {
                    self.value.set_ipv6_dst(masked);
                    self.mask.set_ipv6_dst(mask);
                }
            }
        }
        Ok(())
    }

    fn set_ipv4(&mut self, source: bool, address: u32, mask: u32) {
        let (address, mask) = ((address & mask).into(), mask.into());
        if source {
            self.value.set_ipv4_src(address);
            self.mask.set_ipv4_src(mask);
        } else {
            self.value.set_ipv4_dst(address);
            self.mask.set_ipv4_dst(mask);
        }
    }

    fn add_l4(&mut self, field: Field, value: &str) -> Result<(), TextError> {
        if field == Field::TcpFlags {
            let (flags, mask) = field.tcp_flags(value)?;
            self.value.set_tcp_flags(flags & mask);
            self.mask.set_tcp_flags(mask);
            return self.need_proto(field, ip_proto::TCP);
        }
        let icmp = matches!(field, Field::IcmpType | Field::IcmpCode);
        let max = if icmp { 255 } else { u16::MAX };
        let (number, mask) = match value.split_once('/') {
            Some((number, mask)) if !icmp => (field.number(number, max)?, field.number(mask, max)?),
            _ => (field.number(value, max)?, u16::MAX),
        };
        if matches!(field, Field::SrcPort | Field::IcmpType) {
            self.value.set_src_port(number & mask);
            self.mask.set_src_port(mask);
        } else {
            self.value.set_dst_port(number & mask);
            self.mask.set_dst_port(mask);
        }
        let need = if icmp { UpperNeed::Icmp } else { UpperNeed::Ports };
        if self.upper != UpperNeed::Nothing && self.upper != need {
            return Err(field.conflict("ICMP has no ports, and ports no ICMP type", "keep one of them"));
        }
        self.upper = need;
        self.need_ip(field)
    }

    fn add_arp(&mut self, field: Field, value: &str) -> Result<(), TextError> {
        self.need_l3(field, L3Word::Arp)?;
        if field == Field::ArpOp {
            self.value.set_proto(field.arp_op(value)?);
            self.mask.set_proto(0xff);
            return Ok(());
        }
        let (text, bits) = value.split_once('/').unzip();
        let address = field.ipv4(text.unwrap_or(value))?;
        let mask = bits.map_or(Some(32), |bits| bits.parse().ok()).and_then(prefix_v4);
        let mask = mask.ok_or_else(|| field.bad(value))?;
        self.set_ipv4(field == Field::ArpSpa, address.into(), mask.into());
        Ok(())
    }

    /// Restricts the filter to IPv4 and IPv6 packets, because only these packets have the field `field`. Returns an
    /// error that names `field` if the filter is already restricted to ARP.
    fn need_ip(&mut self, field: Field) -> Result<(), TextError> {
        if self.value.l3_kind() == L3Kind::Arp {
            return Err(field.conflict("ARP does not have it", "leave out the ARP fields or this one"));
        }
        if !self.kind_is_fixed() {
            self.set_kind(L3Kind::Ipv4, IS_IP);
        }
        Ok(())
    }

    fn need_l3(&mut self, field: Field, l3: L3Word) -> Result<(), TextError> {
        let kind = match l3 {
            L3Word::Ipv4 => L3Kind::Ipv4,
            L3Word::Ipv6 => L3Kind::Ipv6,
            L3Word::Arp => L3Kind::Arp,
        };
        let loosely_ip = self.value.l3_kind() != L3Kind::None && !self.kind_is_fixed();
        let differs = self.kind_is_fixed() && self.value.l3_kind() != kind;
        if differs || (loosely_ip && kind == L3Kind::Arp) {
            let cause = "another field asks for a different network header";
            return Err(field.conflict(cause, "keep one of IPv4, IPv6 and ARP"));
        }
        self.set_kind(kind, WHOLE_KIND);
        Ok(())
    }

    fn need_proto(&mut self, field: Field, proto: u8) -> Result<(), TextError> {
        if self.mask.proto() != 0 && self.value.proto() != proto {
            let cause = "another field asks for a different protocol";
            return Err(field.conflict(cause, "keep one of them"));
        }
        self.value.set_proto(proto);
        self.mask.set_proto(0xff);
        self.need_ip(field)
    }

    fn kind_is_fixed(&self) -> bool {
        self.mask.l3_kind_bits() == WHOLE_KIND
    }

    fn set_kind(&mut self, kind: L3Kind, mask: u8) {
        self.value.set_l3_kind_bits(kind as u8 & mask);
        self.mask.set_l3_kind_bits(mask);
    }
}

/// Bit of [`L3Kind`] that is set for both IP versions and for no other kind.
const IS_IP: u8 = 1;
const WHOLE_KIND: u8 = 0xff;
