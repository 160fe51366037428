//! Printing of field values and names of subfields.

use std::net::{Ipv4Addr, Ipv6Addr};

use packet::MacAddr;

use crate::flow::action::port as reserved;
use crate::flow::{Field, SubField};

/// The notation in which a field's value is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Decimal,
    Hex,
    Ethernet,
    Ipv4,
    Ipv6,
    Port,
    Fragment,
    Flags,
}

pub(super) fn form(field: Field) -> Form {
    use Field as F;
    match field {
        F::InPort | F::ActsetOutput => Form::Port,
        F::EthDst | F::EthSrc | F::ArpSha | F::ArpTha | F::NdSll | F::NdTll => Form::Ethernet,
        F::TunSrc | F::TunDst | F::Ipv4Src | F::Ipv4Dst | F::ArpSpa | F::ArpTpa => Form::Ipv4,
        F::Ipv6Src | F::Ipv6Dst | F::NdTarget | F::TunIpv6Src | F::TunIpv6Dst => Form::Ipv6,
        F::IpFrag => Form::Fragment,
        F::CtNwSrc | F::CtNwDst => Form::Ipv4,
        F::CtIpv6Src | F::CtIpv6Dst => Form::Ipv6,
        F::TcpFlags | F::TunFlags | F::CtState => Form::Flags,
        F::ConjId | F::TunGbpId | F::VlanVid | F::VlanPcp => Form::Decimal,
        F::MplsLabel | F::MplsTc | F::MplsBos | F::MplsTtl => Form::Decimal,
        F::IpProto | F::ArpOp | F::IpDscp | F::IpEcn | F::NwTtl => Form::Decimal,
        F::TcpSrc | F::TcpDst | F::UdpSrc | F::UdpDst | F::SctpSrc | F::SctpDst => Form::Decimal,
        F::Icmpv4Type | F::Icmpv4Code | F::Icmpv6Type | F::Icmpv6Code => Form::Decimal,
        F::CtZone | F::CtNwProto | F::CtTpSrc | F::CtTpDst => Form::Decimal,
        _ => Form::Hex,
    }
}

/// Names of the TCP flags, beginning with the lowest bit (RFC 9293, 3.1, and RFC 8311 for NS).
pub(super) const TCP_FLAGS: [&str; 12] =
    ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]"];

/// Names of the tunnel flags: Geneve's control packet bit (RFC 8926, 3.4).
const TUN_FLAGS: [&str; 1] = ["oam"];

/// Names of the state bits of a tracked packet (ovs-fields(7), `ct_state`), beginning with the lowest bit.
const CT_STATES: [&str; 8] = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];

/// Prints an OpenFlow port as its number, or as its name if it is reserved.
#[must_use]
pub fn port(number: u32) -> String {
    let name = match number {
        reserved::UNSET => "UNSET",
        reserved::IN_PORT => "IN_PORT",
        reserved::TABLE => "TABLE",
        reserved::NORMAL => "NORMAL",
        reserved::FLOOD => "FLOOD",
        reserved::ALL => "ALL",
        reserved::CONTROLLER => "CONTROLLER",
        reserved::LOCAL => "LOCAL",
        reserved::ANY => "ANY",
        number => return number.to_string(),
    };
    name.to_owned()
}

/// Prints a field's value, followed by its mask if the mask is partial.
pub(in crate::flow) fn value(field: Field, value: u128, mask: u128) -> String {
    let whole = mask == field.all_ones();
    let low = |bits: u128| u32::try_from(bits & 0xffff_ffff).unwrap_or_default();
    match form(field) {
        Form::Port => port(low(value)),
        Form::Ethernet if whole => ethernet(value),
        Form::Ethernet => format!("{}/{}", ethernet(value), ethernet(mask)),
        Form::Ipv4 => {
            let written = Ipv4Addr::from(low(value)).to_string();
            written + &prefix(mask, 32, || Ipv4Addr::from(low(mask)).to_string())
        }
        Form::Ipv6 => {
            Ipv6Addr::from(value).to_string() + &prefix(mask, 128, || Ipv6Addr::from(mask).to_string())
        }
        Form::Fragment => fragment(value, mask).to_owned(),
        Form::Flags => flags(field, value, mask),
        Form::Decimal if whole => value.to_string(),
        _ if whole => hex(value),
        _ => format!("{}/{}", hex(value), hex(mask)),
    }
}

/// Prints a number like C's `%#x`.
pub(in crate::flow) fn hex(value: u128) -> String {
    if value == 0 { "0".to_owned() } else { format!("{value:#x}") }
}

pub(super) fn ethernet(value: u128) -> String {
    let [.., a, b, c, d, e, f] = value.to_be_bytes();
    MacAddr([a, b, c, d, e, f]).to_string()
}

/// Prints an address mask as a prefix length, for example `/24`, or as an address if the mask is not a
/// prefix. A full mask is omitted.
fn prefix(mask: u128, width: u32, written: impl Fn() -> String) -> String {
    let aligned = mask << (128 - width);
    let ones = aligned.leading_ones();
    if ones == width {
        String::new()
    } else if aligned.count_ones() == ones {
        format!("/{ones}")
    } else {
        format!("/{}", written())
    }
}

/// Prints the fragment bits (`ip_frag`) of a packet. Bit 0 is set in every fragment, and bit 1 in every fragment but
/// the first.
pub(super) fn fragment(value: u128, mask: u128) -> &'static str {
    match (mask, value) {
        (2, 2) | (3, 3) => "later",
        (2, _) => "not_later",
        (1, 1) => "yes",
        (3, 1) => "first",
        _ => "no",
    }
}

/// Returns the names of the bits of a flags field, beginning with the lowest bit.
pub(super) fn flag_names(field: Field) -> &'static [&'static str] {
    match field {
        Field::TunFlags => &TUN_FLAGS,
        Field::CtState => &CT_STATES,
        _ => &TCP_FLAGS,
    }
}

pub(super) fn flags(field: Field, value: u128, mask: u128) -> String {
    // The single tunnel flag is always printed with its sign, as in Open vSwitch.
    let known = field.defined_bits();
    let whole = mask & known == known && field != Field::TunFlags;
    let named = flag_names(field).iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1);
    if whole {
        let set: Vec<&str> = named.filter(|(bit, _)| value >> bit & 1 == 1).map(|(_, name)| *name).collect();
        return if set.is_empty() { "0".to_owned() } else { set.join("|") };
    }
    let signs = named.map(|(bit, name)| format!("{}{name}", if value >> bit & 1 == 1 { '+' } else { '-' }));
    signs.collect()
}

/// Prints a subfield with its NXM or OXM name, for example `NXM_NX_REG0[0..15]`.
pub(in crate::flow) fn sub_field(part: &SubField) -> String {
    // The NXM port field has 16 bits, the OXM port field 32.
    let is_narrow = part.field == Field::InPort && part.first + part.bits <= 16;
    let name = if part.field == Field::InPort && !is_narrow {
        "OXM_OF_IN_PORT".to_owned()
    } else {
        wire_name(part.field)
    };
    let width = if is_narrow { 16 } else { part.field.bits() };
    match (part.first, part.bits) {
        (0, bits) if usize::from(bits) == width => format!("{name}[]"),
        (first, 1) => format!("{name}[{first}]"),
        (first, bits) => format!("{name}[{first}..{}]", first + bits - 1),
    }
}

/// Returns the NXM name of a field, or the OXM name if there is no NXM name.
fn wire_name(field: Field) -> String {
    use Field as F;
    if let Some(number) = register(field, F::Reg0, F::Reg15) {
        return format!("NXM_NX_REG{number}");
    }
    if let Some(number) = register(field, F::Xreg0, F::Xreg7) {
        return format!("OXM_OF_PKT_REG{number}");
    }
    if let Some(number) = register(field, F::Xxreg0, F::Xxreg3) {
        return format!("NXM_NX_XXREG{number}");
    }
    let name = match field {
        F::Ipv4Src => "IP_SRC".to_owned(),
        F::Ipv4Dst => "IP_DST".to_owned(),
        F::IpEcn => "IP_ECN".to_owned(),
        F::NwTtl => "IP_TTL".to_owned(),
        F::TunSrc => "TUN_IPV4_SRC".to_owned(),
        F::TunDst => "TUN_IPV4_DST".to_owned(),
        F::Icmpv6Type => "ICMPV6_TYPE".to_owned(),
        other => other.name().to_ascii_uppercase(),
    };
    let class = match field.nxm() {
        _ if field == F::IpDscp => "OXM_OF",
        Some(id) if id.class == 0 => "NXM_OF",
        Some(_) => "NXM_NX",
        None if field == F::InPort => "NXM_OF",
        None => "OXM_OF",
    };
    format!("{class}_{name}")
}

fn register(field: Field, first: Field, last: Field) -> Option<usize> {
    (field >= first && field <= last).then(|| field as usize - first as usize)
}

/// Returns the field with this NXM or OXM name. Returns `None` if there is no such field.
pub(super) fn read_wire_name(name: &str) -> Option<Field> {
    Field::ALL.into_iter().find(|field| wire_name(*field) == name)
}
