//! Packet specs: texts that describe a packet, for `trivium explain` and tests.
//!
//! A spec is a list of fields, such as `eth_src=02:00:00:00:00:0a,ip_dst=10.0.0.2,udp,dst_port=53,len=100`,
//! or raw bytes, such as `hex:0200...`. Open vSwitch field names are accepted too (`dl_src`, `nw_dst`,
//! `tp_dst`). Fields that the text does not set have these defaults:
//!
//! | field | default |
//! |---|---|
//! | `eth_src` | 02:00:00:00:00:01 |
//! | `eth_dst` | group MAC address for a multicast `ip_dst`, broadcast for ARP requests, else 02:00:00:00:00:02 |
//! | `ip_src`, `ip_dst` | 10.0.0.1, 10.0.0.2, or 2001:db8::1, 2001:db8::2 |
//! | `src_port`, `dst_port` | 49152, 80 |
//! | `icmp_type` | echo request |
//! | `tcp_flags` | syn |
//! | `ttl` | 64 |
//! | `len` | length of the headers, at least 60 bytes |
//! | all fields above Ethernet | EtherType 0x88b5 (local experiment, IEEE 802) |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::build::{ArpRepr, IcmpRepr, Icmpv6Repr, IgmpRepr, PacketBuilder, at};
use crate::numbers::{ethertype, ip_proto};
use crate::words::{Field, Item, L3Word, Shorthand, items};
pub use crate::words::{HexFault, TextError};
use crate::{MacAddr, arp, eth, icmpv6, igmp};

/// EtherType for local experiments (IEEE 802 clause 9.2.4), used for frames whose payload is not specified.
const EXPERIMENT: u16 = 0x88b5;

/// Protocol number for experiments (RFC 3692), used for IPv4 packets whose payload is not specified.
const EXPERIMENT_PROTO: u8 = 253;

/// Parses a packet spec and returns the bytes of the frame it describes, without FCS.
///
/// # Errors
/// Returns a [`TextError`] that names the field, the cause and the remedy.
pub fn parse(text: &str) -> Result<Vec<u8>, TextError> {
    if let Some(digits) = text.trim().strip_prefix("hex:") {
        return parse_hex(digits);
    }
    let mut spec = Spec::default();
    let mut seen: Vec<Field> = Vec::new();
    for item in items(text) {
        match item? {
            Item::Word(word) => spec.add_word(word)?,
            Item::Field(field, value) => {
                if seen.contains(&field) {
                    return Err(TextError::Repeated { field: field.name() });
                }
                seen.push(field);
                spec.add(field, value)?;
            }
        }
    }
    spec.build()
}

fn parse_hex(text: &str) -> Result<Vec<u8>, TextError> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let mut half = None;
    for (place, character) in text.chars().enumerate() {
        if character.is_whitespace() || character == ':' {
            continue;
        }
        let digit = character.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let digit = digit.ok_or(TextError::Hex(HexFault::Digit(place + 1)))?;
        match half.take() {
            None => half = Some(digit),
            Some(high) => bytes.push(high << 4 | digit),
        }
    }
    match half {
        Some(_) => Err(TextError::Hex(HexFault::Odd)),
        None if bytes.is_empty() => Err(TextError::Hex(HexFault::Empty)),
        None => Ok(bytes),
    }
}

/// Fields of a packet spec that the parser has set so far.
#[derive(Default)]
struct Spec {
    eth_src: Option<MacAddr>,
    eth_dst: Option<MacAddr>,
    eth_type: Option<u16>,
    vlan: Option<u16>,
    pcp: Option<u8>,
    inner_vlan: Option<u16>,
    service: bool,
    l3: Option<L3Word>,
    ip_src: Option<IpAddr>,
    ip_dst: Option<IpAddr>,
    proto: Option<u8>,
    tos: Option<u8>,
    ttl: Option<u8>,
    fragment: Option<Fragment>,
    src_port: Option<u16>,
    dst_port: Option<u16>,
    tcp_flags: Option<u16>,
    icmp_type: Option<u8>,
    icmp_code: Option<u8>,
    arp_op: Option<u8>,
    arp_sha: Option<MacAddr>,
    arp_tha: Option<MacAddr>,
    len: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fragment {
    First,
    Later,
}

impl Spec {
    fn add_word(&mut self, word: Shorthand) -> Result<(), TextError> {
        if let Some(l3) = word.l3 {
            self.need_l3(Field::EthType, l3)?;
        }
        match word.proto {
            Some(proto) => self.need_proto(Field::Proto, proto),
            None => Ok(()),
        }
    }

    fn add(&mut self, field: Field, value: &str) -> Result<(), TextError> {
        match field {
            Field::InPort => {
                return Err(field.conflict("a packet does not carry its port", "name the port with --in"));
            }
            Field::EthSrc => self.eth_src = Some(field.mac(value)?),
            Field::EthDst => self.eth_dst = Some(field.mac(value)?),
            Field::EthType => self.add_eth_type(value)?,
            Field::Vlan => self.vlan = field.vlan(value)?,
            Field::Pcp => self.pcp = u8::try_from(field.number(value, 7)?).ok(),
            Field::InnerVlan => self.inner_vlan = field.vlan(value)?,
            Field::VlanTpid => match field.number(value, u16::MAX)? {
                ethertype::VLAN => self.service = false,
                ethertype::SERVICE_VLAN => self.service = true,
                _ => return Err(field.bad(value)),
            },
            Field::Len => match usize::from(field.number(value, u16::MAX)?) {
                len if len >= 14 => self.len = Some(len),
                _ => return Err(field.bad(value)),
            },
            Field::ArpOp | Field::ArpSpa | Field::ArpTpa | Field::ArpSha | Field::ArpTha => {
                self.add_arp(field, value)?;
            }
            _ => self.add_ip(field, value)?,
        }
        Ok(())
    }

    fn add_eth_type(&mut self, value: &str) -> Result<(), TextError> {
        let field = Field::EthType;
        let eth_type = field.eth_type(value)?;
        match eth_type {
            ethertype::IPV4 => self.need_l3(field, L3Word::Ipv4),
            ethertype::IPV6 => self.need_l3(field, L3Word::Ipv6),
            ethertype::ARP => self.need_l3(field, L3Word::Arp),
            _ => {
                self.eth_type = Some(eth_type);
                Ok(())
            }
        }
    }

    fn add_ip(&mut self, field: Field, value: &str) -> Result<(), TextError> {
        match field {
            Field::IpSrc | Field::IpDst => {
                let address = field.ip(value)?;
                self.need_l3(field, if address.is_ipv4() { L3Word::Ipv4 } else { L3Word::Ipv6 })?;
                let place = if field == Field::IpSrc { &mut self.ip_src } else { &mut self.ip_dst };
                *place = Some(address);
            }
            Field::Proto => self.need_proto(field, field.proto(value)?)?,
            Field::Tos => self.tos = Some(field.octet(value)?),
            Field::Ttl => self.ttl = Some(field.octet(value)?),
            Field::Frag => {
                self.fragment = match value {
                    "none" | "no" => None,
                    "first" | "any" | "yes" => Some(Fragment::First),
                    "later" => Some(Fragment::Later),
                    _ => return Err(field.bad(value)),
                }
            }
            Field::SrcPort => self.src_port = Some(field.number(value, u16::MAX)?),
            Field::DstPort => self.dst_port = Some(field.number(value, u16::MAX)?),
            Field::TcpFlags => {
                self.tcp_flags = Some(field.tcp_flags(value)?.0);
                self.need_proto(field, ip_proto::TCP)?;
            }
            Field::IcmpType => self.icmp_type = Some(field.octet(value)?),
            _ => self.icmp_code = Some(field.octet(value)?),
        }
        Ok(())
    }

    fn add_arp(&mut self, field: Field, value: &str) -> Result<(), TextError> {
        self.need_l3(field, L3Word::Arp)?;
        match field {
            Field::ArpOp => self.arp_op = Some(field.arp_op(value)?),
            Field::ArpSpa => self.ip_src = Some(field.ipv4(value)?.into()),
            Field::ArpTpa => self.ip_dst = Some(field.ipv4(value)?.into()),
            Field::ArpSha => self.arp_sha = Some(field.mac(value)?),
            _ => self.arp_tha = Some(field.mac(value)?),
        }
        Ok(())
    }

    fn need_l3(&mut self, field: Field, l3: L3Word) -> Result<(), TextError> {
        if self.l3.replace(l3).is_some_and(|before| before != l3) {
            let cause = "another field asks for a different network header";
            return Err(field.conflict(cause, "keep one of IPv4, IPv6 and ARP"));
        }
        Ok(())
    }

    fn need_proto(&mut self, field: Field, proto: u8) -> Result<(), TextError> {
        if self.proto.replace(proto).is_some_and(|before| before != proto) {
            return Err(field.conflict("another field asks for a different protocol", "keep one of them"));
        }
        Ok(())
    }

    fn build(mut self) -> Result<Vec<u8>, TextError> {
        self.settle()?;
        let frame = match self.l3 {
            None => self.l2().ethertype(self.eth_type.unwrap_or(EXPERIMENT)),
            Some(L3Word::Arp) => self.arp(),
            Some(L3Word::Ipv4) => self.ipv4(),
            Some(L3Word::Ipv6) => self.ipv6(),
        };
        let Some(len) = self.len else { return Ok(frame.pad_to(eth::MIN_FRAME).build()) };
        let headers = frame.headers_len();
        let Some(behind) = len.checked_sub(headers) else {
            return Err(TextError::TooShort { len, need: headers });
        };
        // Only padding may follow an ARP message.
        let payload = vec![0; if self.l3 == Some(L3Word::Arp) { 0 } else { behind }];
        Ok(frame.payload(&payload).pad_to(len).build())
    }

    /// Sets the fields that other fields imply, for example the network header that `ttl` requires, and checks for
    /// conflicts. The caller must have added all items of the text.
    fn settle(&mut self) -> Result<(), TextError> {
        if self.pcp.is_some() || self.inner_vlan.is_some() || self.service {
            self.vlan = self.vlan.or(Some(0));
        }
        if self.icmp_type.is_some() || self.icmp_code.is_some() {
            let v6 = self.l3 == Some(L3Word::Ipv6) || self.proto == Some(ip_proto::ICMPV6);
            self.need_proto(Field::IcmpType, if v6 { ip_proto::ICMPV6 } else { ip_proto::ICMP })?;
        }
        let has_ports = matches!(self.proto, Some(ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP));
        let ports = [(Field::SrcPort, self.src_port), (Field::DstPort, self.dst_port)];
        if let Some((field, _)) = ports.into_iter().find(|(_, port)| port.is_some() && !has_ports) {
            return Err(
                field.conflict("only TCP, UDP and SCTP have ports", "add proto=tcp, proto=udp or proto=sctp")
            );
        }
        let above =
            self.proto.is_some() || self.tos.is_some() || self.ttl.is_some() || self.fragment.is_some();
        if above && self.l3.is_none() {
            let v6 = self.proto == Some(ip_proto::ICMPV6);
            self.l3 = Some(if v6 { L3Word::Ipv6 } else { L3Word::Ipv4 });
        }
        if above && self.l3 == Some(L3Word::Arp) {
            return Err(Field::Proto.conflict("ARP carries no IP header", "leave out `arp` or the IP fields"));
        }
        if self.eth_type.is_some() && self.l3.is_some() {
            let cause = "the network header's fields say another type";
            return Err(Field::EthType.conflict(cause, "leave it out, or leave those out"));
        }
        Ok(())
    }

    fn l2(&self) -> PacketBuilder<'static, at::L2> {
        let src = self.eth_src.unwrap_or(MacAddr([2, 0, 0, 0, 0, 1]));
        let eth = PacketBuilder::eth(src, self.eth_dst.unwrap_or_else(|| self.default_dst()));
        let Some(vid) = self.vlan else { return eth };
        let tagged = if self.service { eth.service_vlan(vid) } else { eth.vlan(vid) };
        let tagged = tagged.pcp(self.pcp.unwrap_or(0));
        match self.inner_vlan {
            Some(vid) => tagged.vlan(vid),
            None => tagged,
        }
    }

    fn default_dst(&self) -> MacAddr {
        let request = self.l3 == Some(L3Word::Arp) && self.arp_op.is_none_or(|op| op == 1);
        match self.ip_dst {
            _ if request => MacAddr::BROADCAST,
            Some(IpAddr::V4(address)) if address.is_broadcast() => MacAddr::BROADCAST,
            Some(IpAddr::V4(address)) if address.is_multicast() => MacAddr::for_ipv4_multicast(address),
            Some(IpAddr::V6(address)) if address.is_multicast() => MacAddr::for_ipv6_multicast(address),
            _ => MacAddr([2, 0, 0, 0, 0, 2]),
        }
    }

    fn v4_addresses(&self) -> (Ipv4Addr, Ipv4Addr) {
        let or = |address, default: [u8; 4]| match address {
            Some(IpAddr::V4(address)) => address,
            _ => default.into(),
        };
        (or(self.ip_src, [10, 0, 0, 1]), or(self.ip_dst, [10, 0, 0, 2]))
    }

    fn v6_addresses(&self) -> (Ipv6Addr, Ipv6Addr) {
        let or = |address, last| match address {
            Some(IpAddr::V6(address)) => address,
            _ => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last),
        };
        (or(self.ip_src, 1), or(self.ip_dst, 2))
    }

    fn arp(&self) -> PacketBuilder<'static> {
        let (sender_ip, target_ip) = self.v4_addresses();
        let sender_mac = self.arp_sha.or(self.eth_src).unwrap_or(MacAddr([2, 0, 0, 0, 0, 1]));
        let operation = self.arp_op.map_or(arp::REQUEST, u16::from);
        let target_mac = self.arp_tha.unwrap_or(match operation {
            arp::REQUEST => MacAddr::ZERO,
            _ => self.eth_dst.unwrap_or_else(|| self.default_dst()),
        });
        self.l2().arp(ArpRepr { operation, sender_mac, sender_ip, target_mac, target_ip })
    }

    fn ports(&self) -> (u16, u16) {
        (self.src_port.unwrap_or(49152), self.dst_port.unwrap_or(80))
    }

    fn ipv4(&self) -> PacketBuilder<'static> {
        let (src, dst) = self.v4_addresses();
        let ip = self.l2().ipv4(src, dst).ttl(self.ttl.unwrap_or(64)).tos(self.tos.unwrap_or(0));
        let proto = self.proto.unwrap_or(EXPERIMENT_PROTO);
        let ip = match self.fragment {
            None => ip,
            Some(Fragment::First) => ip.fragment(0, true),
            Some(Fragment::Later) => return ip.fragment(1480, false).proto(proto),
        };
        let (src_port, dst_port) = self.ports();
        match proto {
            ip_proto::TCP => ip.tcp(src_port, dst_port).flags(self.tcp_flags.unwrap_or(SYN)).retag(),
            ip_proto::UDP => ip.udp(src_port, dst_port).retag(),
            ip_proto::SCTP => ip.sctp(src_port, dst_port),
            ip_proto::ICMP => {
                let kind = self.icmp_type.unwrap_or(crate::icmp::kind::ECHO);
                ip.icmp(IcmpRepr { kind, code: self.icmp_code.unwrap_or(0), rest: [0; 4] })
            }
            ip_proto::IGMP => ip.igmp(IgmpRepr { kind: igmp::kind::REPORT_V2, max_resp: 0, group: dst }),
            other => ip.proto(other),
        }
    }

    fn ipv6(&self) -> PacketBuilder<'static> {
        let (src, dst) = self.v6_addresses();
        let ip = self.l2().ipv6(src, dst).ttl(self.ttl.unwrap_or(64)).tos(self.tos.unwrap_or(0));
        let proto = self.proto.unwrap_or(ip_proto::NO_NEXT);
        let ip = match self.fragment {
            None => ip,
            Some(Fragment::First) => ip.fragment(0, true, 1),
            Some(Fragment::Later) => return ip.fragment(1480, false, 1).proto(proto),
        };
        let (src_port, dst_port) = self.ports();
        match proto {
            ip_proto::TCP => ip.tcp(src_port, dst_port).flags(self.tcp_flags.unwrap_or(SYN)).retag(),
            ip_proto::UDP => ip.udp(src_port, dst_port).retag(),
            ip_proto::SCTP => ip.sctp(src_port, dst_port),
            ip_proto::ICMPV6 => {
                let kind = self.icmp_type.unwrap_or(icmpv6::kind::ECHO);
                ip.icmpv6(Icmpv6Repr { kind, code: self.icmp_code.unwrap_or(0), rest: [0; 4] })
            }
            other => ip.proto(other),
        }
    }
}

const SYN: u16 = crate::tcp::flags::SYN;
