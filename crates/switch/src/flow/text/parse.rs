//! Parsing of flows, for example `in_port=1,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80`, in the syntax of
//! `ovs-appctl ofproto/trace`.

use super::value::{find, number, read_value};
use crate::flow::numbers::{eth_type, proto};
use crate::flow::{Field, Flow, packet_meets, translate};

/// The reason why a flow cannot be parsed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FlowTextError {
    /// The field does not exist.
    #[error("unknown keyword {0}")]
    Field(String),
    /// A field has no value.
    #[error("{0}: missing value")]
    Missing(String),
    /// A field has an invalid value.
    #[error("{1}: invalid value for {0}")]
    Value(String, String),
    /// The bridge does not have the port.
    #[error("{0}: invalid or unknown port for in_port")]
    Port(String),
    /// The flow does not fulfil the field's prerequisite.
    #[error("{0}: prerequisites not met; name the protocol too, such as tcp")]
    Prerequisite(String),
}

/// Parses a flow, which consists of packet fields and metadata. `port` converts a port name into an OpenFlow port
/// number. Fields that do not occur in the text are zero.
///
/// # Errors
/// Returns [`FlowTextError`] for the first part that cannot be parsed.
pub fn parse(text: &str, port: impl Fn(&str) -> Option<u32>) -> Result<Flow, FlowTextError> {
    let mut flow = Flow::ZERO;
    let words: Vec<&str> =
        text.split([',', ' ', '\t', '\n']).map(str::trim).filter(|word| !word.is_empty()).collect();
    // Packet types are processed first, because fields that depend on them may come in any order.
    let mut fields = Vec::new();
    for word in words {
        match word.split_once('=') {
            None if word == "eth" => {}
            None => {
                let (eth_type, proto) = kind(word).ok_or_else(|| FlowTextError::Field(word.to_owned()))?;
                flow.set(Field::EthType, eth_type);
                flow.set(Field::IpProto, proto);
            }
            Some((name, value)) => fields.push((name, value)),
        }
    }
    // Fields that determine the packet type are processed before others.
    let turn = |name: &str| match name {
        "dl_type" | "eth_type" => 0,
        "nw_proto" | "ip_proto" | "arp_op" => 1,
        "nw_frag" | "ip_frag" => 2,
        "icmp_type" | "icmpv6_type" => 3,
        _ => 4,
    };
    fields.sort_by_key(|(name, _)| turn(name));
    for (name, text) in fields {
        one(&mut flow, name, text, &port)?;
    }
    Ok(flow)
}

fn one(
    flow: &mut Flow,
    name: &str,
    text: &str,
    port: &impl Fn(&str) -> Option<u32>,
) -> Result<(), FlowTextError> {
    let wrong = || FlowTextError::Value(name.to_owned(), text.to_owned());
    // The mask of a match is ignored.
    let bare = text.split_once('/').map_or(text, |(value, _)| value);
    if bare.is_empty() {
        return Err(FlowTextError::Missing(name.to_owned()));
    }
    if let "dl_vlan" | "dl_vlan_pcp" | "vlan_vid" = name {
        let value = number(bare).ok_or_else(wrong)?;
        let tci = flow.get(Field::VlanTci) | 0x1000;
        let is_pcp = name == "dl_vlan_pcp";
        // OFP_VLAN_NONE of OpenFlow 1.0 means no tag.
        if name == "dl_vlan" && value == 0xffff {
            flow.set(Field::VlanTci, 0);
            return Ok(());
        }
        if value > if is_pcp { 7 } else { 0x1fff } {
            return Err(wrong());
        }
        if is_pcp {
            flow.set(Field::VlanTci, tci & !0xe000 | value << 13);
        } else {
            flow.set(Field::VlanTci, tci & !0xfff | value & 0xfff);
        }
        return Ok(());
    }
    // The inner tag is no match field, but a printed flow can contain it under this name.
    if name == "vlan_tci1" {
        let value = number(bare).filter(|value| *value <= 0xffff).ok_or_else(wrong)?;
        flow.set_bits((translate::TCI + 2) * 8, 16, value);
        return Ok(());
    }
    // Open vSwitch's internal fields, which do not exist here.
    if let "recirc_id" | "packet_type" | "skb_priority" = name {
        return if number(bare) == Some(0) { Ok(()) } else { Err(FlowTextError::Field(name.to_owned())) };
    }
    let field = find(flow, name).ok_or_else(|| FlowTextError::Field(name.to_owned()))?;
    let mut value = read_value(field, bare, port)
        .map_err(|unknown| if unknown { FlowTextError::Port(bare.to_owned()) } else { wrong() })?;
    if name == "nw_tos" {
        value >>= 2;
    }
    if value & !field.defined_bits() != 0 {
        return Err(wrong());
    }
    let mut looked_at = Flow::ZERO;
    if !packet_meets(flow, field.prerequisite(), &mut looked_at) {
        return Err(FlowTextError::Prerequisite(name.to_owned()));
    }
    flow.set(field, value);
    Ok(())
}

/// Returns the EtherType and the IP protocol that a word such as `tcp` represents. Returns `None` if the word is
/// unknown.
fn kind(word: &str) -> Option<(u128, u128)> {
    Some(match word {
        "ip" => (eth_type::IPV4, 0),
        "icmp" => (eth_type::IPV4, proto::ICMP),
        "igmp" => (eth_type::IPV4, proto::IGMP),
        "tcp" => (eth_type::IPV4, proto::TCP),
        "udp" => (eth_type::IPV4, proto::UDP),
        "sctp" => (eth_type::IPV4, proto::SCTP),
        "ipv6" | "ip6" => (eth_type::IPV6, 0),
        "icmp6" => (eth_type::IPV6, proto::ICMPV6),
        "tcp6" => (eth_type::IPV6, proto::TCP),
        "udp6" => (eth_type::IPV6, proto::UDP),
        "sctp6" => (eth_type::IPV6, proto::SCTP),
        "arp" => (eth_type::ARP, 0),
        "rarp" => (eth_type::RARP, 0),
        "mpls" => (eth_type::MPLS, 0),
        "mplsm" => (eth_type::MPLS_MULTICAST, 0),
        _ => return None,
    })
}
