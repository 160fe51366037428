//! Parsing of the parts of flows and actions: names of fields, values, subfields and numbers.

use std::net::{Ipv4Addr, Ipv6Addr};

use packet::MacAddr;

use super::field::{Form, flag_names, form, read_wire_name};
use crate::flow::action::port as reserved;
use crate::flow::numbers::{eth_type, proto};
use crate::flow::{Field, Flow, SubField};

/// Parses the value of a field. The error is true if the value names a port that the bridge does not have,
/// and false if the value is invalid.
pub(in crate::flow) fn read_value(
    field: Field,
    text: &str,
    port: &impl Fn(&str) -> Option<u32>,
) -> Result<u128, bool> {
    let value = match form(field) {
        Form::Port => match number(text).and_then(|number| u32::try_from(number).ok()) {
            Some(number) => Some(u128::from(number)),
            None => return special(text).or_else(|| port(text)).map(u128::from).ok_or(true),
        },
        Form::Ethernet => {
            let mac: Option<MacAddr> = text.parse().ok();
            mac.map(|mac| mac.0.iter().fold(0, |all, octet| all << 8 | u128::from(*octet)))
        }
        Form::Ipv4 => text.parse().ok().map(|address: Ipv4Addr| u128::from(u32::from(address))),
        Form::Ipv6 => text.parse().ok().map(|address: Ipv6Addr| u128::from(address)),
        Form::Fragment => match text {
            "no" | "not_later" => Some(0),
            "yes" | "first" => Some(1),
            "later" => Some(3),
            _ => None,
        },
        Form::Flags => number(text).or_else(|| flags(field, text)),
        Form::Decimal | Form::Hex => number(text),
    };
    value.ok_or(false)
}

/// Returns the field that a name represents in a packet with this flow. The meaning of some names depends on the
/// protocol. Returns `None` if there is no such field.
pub(in crate::flow) fn find(flow: &Flow, name: &str) -> Option<Field> {
    let is_v6 = flow.get(Field::EthType) == eth_type::IPV6;
    let number = flow.get(Field::IpProto);
    let of = |tcp: Field, udp: Field, sctp: Field| match number {
        proto::UDP => udp,
        proto::SCTP => sctp,
        _ => tcp,
    };
    let is_arp = matches!(flow.get(Field::EthType), eth_type::ARP | eth_type::RARP);
    Some(match name {
        "dl_src" => Field::EthSrc,
        "dl_dst" => Field::EthDst,
        "dl_type" => Field::EthType,
        "nw_src" if is_arp => Field::ArpSpa,
        "nw_dst" if is_arp => Field::ArpTpa,
        "nw_src" => Field::Ipv4Src,
        "nw_dst" => Field::Ipv4Dst,
        "nw_proto" if is_arp => Field::ArpOp,
        "nw_proto" => Field::IpProto,
        "nw_tos" | "ip_dscp" => Field::IpDscp,
        "ip_ecn" => Field::IpEcn,
        "ip_ttl" => Field::NwTtl,
        "nw_frag" => Field::IpFrag,
        "tp_src" => of(Field::TcpSrc, Field::UdpSrc, Field::SctpSrc),
        "tp_dst" => of(Field::TcpDst, Field::UdpDst, Field::SctpDst),
        "icmp_type" if is_v6 => Field::Icmpv6Type,
        "icmp_code" if is_v6 => Field::Icmpv6Code,
        "tunnel_id" => Field::TunId,
        other => Field::from_name(other).or_else(|| read_wire_name(other))?,
    })
}

/// Parses a subfield, given by the field's name or its NXM or OXM name: `NXM_OF_VLAN_TCI[0..11]`, `reg0[3]`,
/// `eth_src[]`, `eth_src`. Returns `None` if the field or the bits do not exist.
#[must_use]
pub fn sub_field(text: &str) -> Option<SubField> {
    let (name, bits) = match text.split_once('[') {
        Some((name, rest)) => (name, rest.strip_suffix(']')?),
        None => (text, ""),
    };
    let field = Field::from_name(name).or_else(|| read_wire_name(name))?;
    let (first, last) = match bits.split_once("..") {
        Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
        None if bits.is_empty() => (0, u16::try_from(field.bits() - 1).ok()?),
        None => (bits.parse().ok()?, bits.parse().ok()?),
    };
    let bits = u16::checked_sub(last, first)?.checked_add(1)?;
    Some(SubField { field, first, bits }).filter(SubField::is_sound)
}

/// Parses a decimal or hexadecimal number. Returns `None` if the number is invalid.
pub(in crate::flow) fn number(text: &str) -> Option<u128> {
    match text.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Parses flags in the form `+syn-ack` or `syn|ack`. Returns `None` if the text is invalid.
fn flags(field: Field, text: &str) -> Option<u128> {
    let bit = |name: &str| flag_names(field).iter().position(|own| *own == name).map(|bit| 1_u128 << bit);
    if !text.starts_with(['+', '-']) {
        return text.split('|').try_fold(0, |all, name| Some(all | bit(name)?));
    }
    let mut all = 0;
    for part in text.split_inclusive(['+', '-']).collect::<Vec<_>>().windows(2) {
        let [sign, name] = part else { return None };
        let value = bit(name.trim_end_matches(['+', '-']))?;
        all |= if sign.ends_with('+') { value } else { 0 };
    }
    Some(all)
}

/// Parses `text` as an integer of type `T`. Returns `None` if the text is not a valid number, or if the number does not
/// fit in `T`.
pub(in crate::flow) fn integer<T: TryFrom<u128>>(text: &str) -> Option<T> {
    T::try_from(number(text)?).ok()
}

/// Returns the number of the reserved port with this name. Only actions, not fields, can name these
/// ports. Returns `None` for other names.
pub(in crate::flow) fn reserved_port(text: &str) -> Option<u32> {
    Some(match text.to_ascii_uppercase().as_str() {
        "IN_PORT" => reserved::IN_PORT,
        "TABLE" => reserved::TABLE,
        "NORMAL" => reserved::NORMAL,
        "FLOOD" => reserved::FLOOD,
        "ALL" => reserved::ALL,
        _ => return None,
    })
}

/// Returns the number of the reserved port with this name. Actions and fields can name these ports.
/// Returns `None` for other names.
pub(in crate::flow) fn special(text: &str) -> Option<u32> {
    Some(match text.to_ascii_uppercase().as_str() {
        "LOCAL" => reserved::LOCAL,
        "CONTROLLER" => reserved::CONTROLLER,
        "ANY" | "NONE" => reserved::ANY,
        "UNSET" => reserved::UNSET,
        _ => return None,
    })
}
