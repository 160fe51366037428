//! Text form of a flow key, in the syntax of packet specs and filters ([`crate::spec`], [`crate::filter`]).

use std::fmt;

use super::{FlowKey, L3Kind};
use crate::numbers::ip_proto;

impl fmt::Display for FlowKey {
    /// Writes one line of `field=value` items: `in_port=1,eth_src=..,ip_dst=..,proto=udp,dst_port=53`. The
    /// line contains only fields that the packet has.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in_port={},eth_src={},eth_dst={}", self.in_port(), self.eth_src(), self.eth_dst())?;
        if self.outer_tci() != 0 {
            write!(f, ",vlan={},pcp={}", self.outer_tci() & 0xfff, self.outer_pcp())?;
        }
        if self.inner_tci() != 0 {
            write!(f, ",inner_vlan={}", self.inner_tci() & 0xfff)?;
        }
        write!(f, ",eth_type=0x{:04x}", self.eth_type())?;
        match self.l3_kind() {
            L3Kind::None => return Ok(()),
            L3Kind::Arp => {
                let (spa, tpa) = (self.ipv4_src(), self.ipv4_dst());
                return write!(f, ",arp_op={},arp_spa={spa},arp_tpa={tpa}", self.proto());
            }
            L3Kind::Ipv4 => write!(f, ",ip_src={},ip_dst={}", self.ipv4_src(), self.ipv4_dst())?,
            L3Kind::Ipv6 => write!(f, ",ip_src={},ip_dst={}", self.ipv6_src(), self.ipv6_dst())?,
        }
        write!(f, ",proto={},tos={},ttl={}", self.proto(), self.tos(), self.ttl())?;
        if self.is_fragment() {
            f.write_str(if self.is_later_fragment() { ",frag=later" } else { ",frag=first" })?;
        }
        match self.proto() {
            // The key holds the type and code of ICMP over IPv4 and of ICMPv6 over IPv6, but not of ICMP over IPv6 or
            // ICMPv6 over IPv4.
            ip_proto::ICMP if self.l3_kind() == L3Kind::Ipv6 => Ok(()),
            ip_proto::ICMPV6 if self.l3_kind() == L3Kind::Ipv4 => Ok(()),
            _ if self.is_later_fragment() => Ok(()),
            ip_proto::TCP => {
                let (from, to) = (self.src_port(), self.dst_port());
                write!(f, ",src_port={from},dst_port={to},tcp_flags=0x{:03x}", self.tcp_flags())
            }
            ip_proto::UDP | ip_proto::SCTP => {
                write!(f, ",src_port={},dst_port={}", self.src_port(), self.dst_port())
            }
            ip_proto::ICMP | ip_proto::ICMPV6 => {
                write!(f, ",icmp_type={},icmp_code={}", self.src_port(), self.dst_port())
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowKey({self})")
    }
}
