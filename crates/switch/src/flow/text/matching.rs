//! Printing of matches, for example `priority=20,icmp,in_port=1`, in the order and with the shorthands of
//! `ovs-ofctl dump-flows`.

use super::field::{hex, value};
use crate::flow::numbers::eth_type::{ARP, IPV4 as IP, IPV6, MPLS, MPLS_MULTICAST, RARP};
use crate::flow::numbers::proto;
use crate::flow::{Field, Flow, Match};

/// `ovs-ofctl`'s default priority, which is not printed.
const DEFAULT_PRIORITY: u16 = 0x8000;
const TAG: u128 = 0x1000;

/// Prints a match. A priority that is given and is not the default is printed before the match.
#[must_use]
pub fn matching(of: &Match, priority: Option<u16>) -> String {
    let mut parts: Vec<String> = priority
        .filter(|priority| *priority != DEFAULT_PRIORITY)
        .map(|priority| format!("priority={priority}"))
        .into_iter()
        .collect();
    let printer = Printer::new(&of.value, &of.mask, &of.value, &of.mask);
    printer.write(&mut parts);
    parts.join(",")
}

/// Prints the fields of a flow that the mask `bits` covers. The names of the fields (for example `tcp_src`) depend
/// on the EtherType and IP protocol in the whole flow.
#[must_use]
pub fn part(flow: &Flow, bits: &Flow) -> String {
    let mut parts = Vec::new();
    let value = flow.masked(bits);
    Printer::new(&value, bits, flow, &crate::flow::all_bits()).write(&mut parts);
    parts.join(",")
}

/// Prints all fields of a flow.
#[must_use]
pub fn whole(flow: &Flow) -> String {
    let mut mask = Flow::ZERO;
    for field in [Field::InPort, Field::VlanTci, Field::EthSrc, Field::EthDst, Field::EthType] {
        mask.want(field);
    }
    for field in Field::ALL.into_iter().filter(|field| field.place().0 < crate::flow::STAGES[0] * 64) {
        let is_set = field != Field::ActsetOutput && flow.get(field) != 0;
        if is_set && field <= Field::Reg15 {
            mask.want(field);
        }
    }
    for field in Field::ALL {
        use crate::flow::Prerequisite;
        let need = field.prerequisite();
        let mut wild = Flow::ZERO;
        let is_there = !matches!(need, Prerequisite::None | Prerequisite::Vlan)
            && crate::flow::packet_meets(flow, need, &mut wild);
        // Open vSwitch has no field for extension headers, and prints the fields of a connection only if they are not
        // zero.
        let is_rare = field == Field::Ipv6Exthdr || is_of_connection(field);
        let is_free = need == Prerequisite::None && is_of_connection(field);
        if (is_there || is_free) && !(is_rare && flow.get(field) == 0) {
            mask.want(field);
        }
    }
    if flow.get(Field::VlanTci) & TAG != 0 {
        mask.set_bits((super::super::translate::TCI + 2) * 8, 16, 0xffff);
    }
    part(flow, &mask)
}

/// Returns whether the connection tracker determines the field.
fn is_of_connection(field: Field) -> bool {
    (Field::CtState..=Field::CtTpDst).contains(&field)
}

struct Printer<'a> {
    value: &'a Flow,
    mask: &'a Flow,
    eth_type: Option<u128>,
    proto: Option<u128>,
    /// Whether the mask covers the EtherType completely. If so, a word such as `tcp` can represent the EtherType and
    /// the IP protocol.
    shows_type: bool,
    shows_proto: bool,
}

impl<'a> Printer<'a> {
    /// Creates a printer of the bits of `value` that `mask` covers. `kind` holds the packet's EtherType and protocol in
    /// the bits that are set in `known`.
    fn new(value: &'a Flow, mask: &'a Flow, kind: &Flow, known: &Flow) -> Printer<'a> {
        let exact = |field: Field| (known.get(field) == field.all_ones()).then(|| kind.get(field));
        let eth_type = exact(Field::EthType);
        let proto = exact(Field::IpProto).filter(|_| matches!(eth_type, Some(IP | IPV6)));
        let all = |field: Field| mask.get(field) == field.all_ones();
        Printer {
            value,
            mask,
            eth_type,
            proto,
            shows_type: all(Field::EthType),
            shows_proto: all(Field::IpProto),
        }
    }

    /// Prints a field with the name `name` if its mask is not zero.
    fn field(&self, parts: &mut Vec<String>, name: &str, field: Field) {
        let mask = self.mask.get(field);
        if mask != 0 {
            parts.push(format!("{name}={}", value(field, self.value.get(field), mask)));
        }
    }

    fn named(&self, parts: &mut Vec<String>, fields: &[Field]) {
        for field in fields {
            self.field(parts, field.name(), *field);
        }
    }

    fn is_ip(&self) -> bool {
        matches!(self.eth_type, Some(IP | IPV6))
    }

    /// Returns the word that represents the EtherType and the IP protocol (for example `tcp`), if there is such a word,
    /// and whether this word includes the protocol.
    fn shorthand(&self) -> (Option<&'static str>, bool) {
        if !self.shows_type {
            return (None, false);
        }
        let proto = self.proto.filter(|_| self.shows_proto);
        match (self.eth_type, proto) {
            (Some(IP), Some(proto::ICMP)) => (Some("icmp"), true),
            (Some(IP), Some(proto::IGMP)) => (Some("igmp"), true),
            (Some(IP), Some(proto::TCP)) => (Some("tcp"), true),
            (Some(IP), Some(proto::UDP)) => (Some("udp"), true),
            (Some(IP), Some(proto::SCTP)) => (Some("sctp"), true),
            (Some(IPV6), Some(proto::ICMPV6)) => (Some("icmp6"), true),
            (Some(IPV6), Some(proto::TCP)) => (Some("tcp6"), true),
            (Some(IPV6), Some(proto::UDP)) => (Some("udp6"), true),
            (Some(IPV6), Some(proto::SCTP)) => (Some("sctp6"), true),
            (Some(IP), _) => (Some("ip"), false),
            (Some(IPV6), _) => (Some("ipv6"), false),
            (Some(ARP), _) => (Some("arp"), false),
            (Some(RARP), _) => (Some("rarp"), false),
            (Some(MPLS), _) => (Some("mpls"), false),
            (Some(MPLS_MULTICAST), _) => (Some("mplsm"), false),
            _ => (None, false),
        }
    }

    fn write(&self, parts: &mut Vec<String>) {
        let (word, says_proto) = self.shorthand();
        self.named(parts, &[Field::PktMark, Field::ConjId, Field::ActsetOutput]);
        self.connection(parts);
        parts.extend(word.map(str::to_owned));
        self.named(parts, &Field::ALL[Field::Reg0 as usize..=Field::Reg15 as usize]);
        self.named(parts, &Field::ALL[Field::TunId as usize..=Field::TunMetadata7 as usize]);
        self.named(parts, &[Field::Metadata, Field::InPort]);
        self.tags(parts);
        self.field(parts, "dl_src", Field::EthSrc);
        self.field(parts, "dl_dst", Field::EthDst);
        let eth_type = self.mask.get(Field::EthType);
        if word.is_none() && eth_type != 0 {
            let all = eth_type == Field::EthType.all_ones();
            let rest = if all { String::new() } else { format!("/0x{eth_type:04x}") };
            parts.push(format!("dl_type=0x{:04x}{rest}", self.value.get(Field::EthType)));
        }
        self.network(parts, says_proto);
        self.transport(parts);
    }

    fn connection(&self, parts: &mut Vec<String>) {
        self.named(parts, &[Field::CtState, Field::CtZone, Field::CtMark, Field::CtLabel]);
        if self.is_v6([Field::CtIpv6Src, Field::CtIpv6Dst]) {
            self.named(parts, &[Field::CtIpv6Src, Field::CtIpv6Dst]);
        } else {
            self.named(parts, &[Field::CtNwSrc, Field::CtNwDst]);
        }
        self.named(parts, &[Field::CtNwProto, Field::CtTpSrc, Field::CtTpDst]);
    }

    /// Returns whether the match is printed with IPv6 addresses: the packets are IPv6 packets, or the EtherType is
    /// unknown and the mask covers bits of the addresses `fields` that IPv4 addresses do not have.
    fn is_v6(&self, fields: [Field; 2]) -> bool {
        let extended = |field: Field| self.mask.get(field) & (u128::MAX >> 32) != 0;
        self.eth_type == Some(IPV6) || self.eth_type.is_none() && fields.into_iter().any(extended)
    }

    fn tags(&self, parts: &mut Vec<String>) {
        let mask = self.mask.get(Field::VlanTci);
        if mask != 0 {
            let tci = self.value.get(Field::VlanTci);
            let (vid, pcp) = (mask & 0xfff, mask >> 13);
            let whole = |bits: u128, all: u128| bits == 0 || bits == all;
            if mask & tci & TAG != 0 && whole(vid, 0xfff) && whole(pcp, 7) && mask != TAG {
                if vid != 0 {
                    parts.push(format!("dl_vlan={}", tci & 0xfff));
                }
                if pcp != 0 {
                    parts.push(format!("dl_vlan_pcp={}", tci >> 13));
                }
            } else if mask == 0xffff {
                parts.push(format!("vlan_tci=0x{tci:04x}"));
            } else {
                parts.push(format!("vlan_tci=0x{tci:04x}/0x{mask:04x}"));
            }
        }
        // The inner tag has no match field. Only translation depends on it.
        let inner = (super::super::translate::TCI + 2) * 8;
        let mask = self.mask.bits(inner, 16);
        if mask == 0xffff {
            parts.push(format!("vlan_tci1=0x{:04x}", self.value.bits(inner, 16)));
        } else if mask != 0 {
            parts.push(format!("vlan_tci1=0x{:04x}/0x{mask:04x}", self.value.bits(inner, 16)));
        }
    }

    fn network(&self, parts: &mut Vec<String>, says_proto: bool) {
        let is_arp = matches!(self.eth_type, Some(ARP | RARP));
        if self.is_v6([Field::Ipv6Src, Field::Ipv6Dst]) {
            self.named(parts, &[Field::Ipv6Src, Field::Ipv6Dst]);
            let label = self.mask.get(Field::Ipv6Label);
            if label == Field::Ipv6Label.all_ones() {
                parts.push(format!("ipv6_label=0x{:05x}", self.value.get(Field::Ipv6Label)));
            } else {
                self.named(parts, &[Field::Ipv6Label]);
            }
            self.named(parts, &[Field::Ipv6Exthdr]);
        } else if is_arp {
            self.named(parts, &[Field::ArpSpa, Field::ArpTpa]);
        } else {
            self.field(parts, "nw_src", Field::Ipv4Src);
            self.field(parts, "nw_dst", Field::Ipv4Dst);
        }
        if !says_proto {
            self.field(parts, if is_arp { "arp_op" } else { "nw_proto" }, Field::IpProto);
        }
        if is_arp {
            self.named(parts, &[Field::ArpSha, Field::ArpTha]);
        }
        let dscp = self.mask.get(Field::IpDscp);
        if dscp == Field::IpDscp.all_ones() {
            parts.push(format!("nw_tos={}", self.value.get(Field::IpDscp) << 2));
        } else if dscp != 0 {
            parts.push(format!("nw_tos={}/{}", hex(self.value.get(Field::IpDscp) << 2), hex(dscp << 2)));
        }
        self.named(parts, &[Field::IpEcn, Field::NwTtl]);
        self.named(parts, &[Field::MplsLabel, Field::MplsTc, Field::MplsTtl, Field::MplsBos]);
        self.named(parts, &[Field::PbbIsid, Field::PbbUca]);
        self.field(parts, "nw_frag", Field::IpFrag);
    }

    fn transport(&self, parts: &mut Vec<String>) {
        let is_v6 = self.eth_type == Some(IPV6);
        match (self.is_ip(), self.proto) {
            (true, Some(proto::ICMP)) if !is_v6 => {
                self.named(parts, &[Field::Icmpv4Type, Field::Icmpv4Code]);
            }
            (true, Some(proto::ICMPV6)) if is_v6 => {
                self.field(parts, "icmp_type", Field::Icmpv6Type);
                self.field(parts, "icmp_code", Field::Icmpv6Code);
                self.named(parts, &[Field::NdTarget, Field::NdSll, Field::NdTll]);
            }
            _ => {
                self.field(parts, "tp_src", Field::TcpSrc);
                self.field(parts, "tp_dst", Field::TcpDst);
            }
        }
        self.named(parts, &[Field::TcpFlags]);
    }
}
