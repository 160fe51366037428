//! Tests of exact matches, masked matches and set-field actions for all fields.

use openflow::wire::error::Error;
use openflow::wire::{Reader, Version, matching};
use switch::flow::{Action, Field, Match, Prerequisite};
use testbed::packet_cases::Feature;

use super::{Lab, Proven, VERSIONS, row};

/// Returns the prerequisite of a field in two forms: in the syntax of the stock client, and as a list of matched
/// fields.
fn prerequisite(need: Prerequisite) -> (&'static str, &'static [(Field, u128)]) {
    use Field::{CtState, EthType, Icmpv6Code, Icmpv6Type, IpProto, VlanTci};
    match need {
        Prerequisite::None => ("", &[]),
        Prerequisite::Connection => ("ct_state=+trk+est,", &[(CtState, 0x22)]),
        Prerequisite::Vlan => ("vlan_tci=0x1000/0x1000,", &[(VlanTci, 0x1000)]),
        Prerequisite::Ip | Prerequisite::Ipv4 => ("ip,", &[(EthType, 0x0800)]),
        Prerequisite::Ipv6 => ("ipv6,", &[(EthType, 0x86dd)]),
        Prerequisite::Arp => ("arp,", &[(EthType, 0x0806)]),
        Prerequisite::Mpls => ("mpls,", &[(EthType, 0x8847)]),
        Prerequisite::Pbb => ("dl_type=0x88e7,", &[(EthType, 0x88e7)]),
        Prerequisite::Tcp => ("tcp,", &[(EthType, 0x0800), (IpProto, 6)]),
        Prerequisite::Udp => ("udp,", &[(EthType, 0x0800), (IpProto, 17)]),
        Prerequisite::Sctp => ("sctp,", &[(EthType, 0x0800), (IpProto, 132)]),
        Prerequisite::Icmpv4 => ("icmp,", &[(EthType, 0x0800), (IpProto, 1)]),
        Prerequisite::Icmpv6 => ("icmp6,", &[(EthType, 0x86dd), (IpProto, 58)]),
        Prerequisite::Nd | Prerequisite::NdAdvert => (
            "icmp6,icmp_type=136,icmp_code=0,",
            &[(EthType, 0x86dd), (IpProto, 58), (Icmpv6Type, 136), (Icmpv6Code, 0)],
        ),
        Prerequisite::NdSolicit => (
            "icmp6,icmp_type=135,icmp_code=0,",
            &[(EthType, 0x86dd), (IpProto, 58), (Icmpv6Type, 135), (Icmpv6Code, 0)],
        ),
    }
}

/// Returns the prerequisite of a field as [`prerequisite`] does, with the other fields of
/// the connection that the stock client needs.
fn needs(field: Field) -> (&'static str, &'static [(Field, u128)]) {
    use Field::{CtNwProto, CtState, EthType, IpProto};
    match field {
        Field::CtNwSrc | Field::CtNwDst => ("ip,ct_state=+trk+est,", &[(EthType, 0x0800), (CtState, 0x22)]),
        Field::CtIpv6Src | Field::CtIpv6Dst => {
            ("ipv6,ct_state=+trk+est,", &[(EthType, 0x86dd), (CtState, 0x22)])
        }
        Field::CtTpSrc | Field::CtTpDst => (
            "tcp,ct_state=+trk+est,ct_nw_proto=6,",
            &[(EthType, 0x0800), (IpProto, 6), (CtState, 0x22), (CtNwProto, 6)],
        ),
        _ => prerequisite(field.prerequisite()),
    }
}

/// Returns whether the values of a field are IPv4 addresses.
fn is_ipv4(field: Field) -> bool {
    use Field::{ArpSpa, ArpTpa, CtNwDst, CtNwSrc, Ipv4Dst, Ipv4Src, TunDst, TunSrc};
    matches!(field, Ipv4Src | Ipv4Dst | ArpSpa | ArpTpa | TunSrc | TunDst | CtNwSrc | CtNwDst)
}

/// Returns whether the values of a field are IPv6 addresses.
fn is_ipv6(field: Field) -> bool {
    use Field::{CtIpv6Dst, CtIpv6Src, Ipv6Dst, Ipv6Src, NdTarget, TunIpv6Dst, TunIpv6Src};
    matches!(field, Ipv6Src | Ipv6Dst | NdTarget | TunIpv6Src | TunIpv6Dst | CtIpv6Src | CtIpv6Dst)
}

/// Returns a valid value of a field in two forms: in the syntax of the stock client, and as a number.
fn value(field: Field) -> (String, u128) {
    let bits = field.bits();
    match field {
        Field::EthType => ("0x0800".into(), 0x0800),
        Field::IpFrag => ("first".into(), 1),
        Field::VlanVid => ("0x1005".into(), 0x1005),
        Field::VlanTci => ("0x1005".into(), 0x1005),
        Field::TcpFlags => ("0x002".into(), 2),
        Field::TunFlags => ("oam".into(), 1),
        Field::IpDscp => ("32".into(), 32),
        _ if bits == 48 => ("02:00:00:00:00:05".into(), 0x0200_0000_0005),
        _ if is_ipv4(field) => ("10.0.0.5".into(), 0x0a00_0005),
        _ if is_ipv6(field) => ("::5".into(), 5),
        _ => ("1".into(), 1),
    }
}

/// Returns a mask that covers a part of a field, in two forms: in the syntax of the stock client, and as a number.
fn mask(field: Field) -> (String, u128) {
    let all = field.all_ones();
    match field {
        Field::IpFrag => (String::new(), 0),
        Field::CtState => ("0x55".into(), 0x55),
        _ if is_ipv4(field) => ("255.255.0.255".into(), 0xffff_00ff),
        _ if is_ipv6(field) => ("::ffff".into(), 0xffff),
        _ if field.bits() == 48 => ("ff:ff:ff:00:00:ff".into(), 0xffff_ff00_00ff),
        Field::VlanVid | Field::VlanTci => ("0x100f".into(), 0x100f),
        _ => {
            let mask = if field.bits() > 2 { all & 0x5555_5555_5555_5555_5555_5555_5555_5555 } else { 1 };
            (format!("{mask:#x}"), mask)
        }
    }
}

/// Returns whether a match equals the original after it has been encoded and decoded.
fn on_the_wire(version: Version, wanted: &Match) -> bool {
    let mut octets = Vec::new();
    let read = if version == Version::V10 {
        let length = matching::put_nxm(&mut octets, wanted, None);
        matching::get_nxm(&mut Reader::new(&octets, Error::BadLength), length.into())
            .map(|read| read.matching)
    } else {
        matching::put_oxm(&mut octets, wanted, version);
        matching::get_oxm(&mut Reader::new(&octets, Error::BadLength)).map(|read| read.matching)
    };
    read.is_ok_and(|read| read == *wanted)
}

pub async fn table(lab: &Lab, proven: &mut Proven, text: &mut String) {
    text.push_str(
        "\n## Fields\n\nEach matched whole; *part*: under a mask; *set*: by `set_field`, here in 1.5.\n\n",
    );
    text.push_str(
        "| field | 1.0 | 1.1 | 1.2 | 1.3 | 1.4 | 1.5 | part | set | packets |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for field in Field::ALL {
        let (words, needs) = needs(field);
        let mut base = Match::ANY;
        for (need, value) in needs {
            let is_bit = matches!(need, Field::VlanTci | Field::CtState);
            let all = if is_bit { *value } else { need.all_ones() };
            base.put(*need, *value, all);
        }
        let (said, number) = value(field);
        let whole = {
            let mut whole = base;
            whole.put(field, number, field.all_ones());
            whole
        };
        let mut cells = vec![format!("`{}`", field.name())];
        for (version, name) in VERSIONS {
            let rule = format!("{words}{}={said},actions=drop", field.name());
            cells.push(cell(lab, version, name, &rule, &whole).await);
        }
        let part = if field.is_maskable() {
            let (said_mask, mask) = mask(field);
            let mut part = base;
            part.put(field, number & mask, mask);
            // Parts of this field have names.
            let rule = if field == Field::IpFrag {
                part.put(field, 1, 1);
                format!("{words}ip_frag=yes,actions=drop")
            } else {
                format!("{words}{}={:#x}/{said_mask},actions=drop", field.name(), number & mask)
                    .replace("=0xa000005/", "=10.0.0.5/")
                    .replace("=0x5/::", "=::5/::")
                    .replace("=0x20000000005/", "=02:00:00:00:00:05/")
            };
            cell(lab, Version::V15, "OpenFlow15", &rule, &part).await
        } else {
            String::new()
        };
        cells.push(part);
        // The VLAN ID can be set only if there is a tag.
        let words = if field == Field::VlanVid { prerequisite(Prerequisite::Vlan).0 } else { words };
        let rule = format!("{words}actions=set_field:{said}->{}", field.name());
        let is_set = |action: &Action| matches!(action, Action::Set { field: own, .. } if *own == field);
        let takes = lab.takes("OpenFlow15", &rule).await;
        let sets = takes && lab.bridge.lock().flows[0].instructions.apply.iter().any(is_set);
        assert!(field.is_writable() || !sets, "{field:?}");
        cells.push(if sets { "+".into() } else { String::new() });
        let name = field.name();
        let ways =
            [(Feature::Match(name), "match"), (Feature::Part(name), "part"), (Feature::Set(name), "set")];
        cells.push(proven.cell(&ways));
        row(text, &cells);
    }
}

async fn cell(lab: &Lab, version: Version, name: &str, rule: &str, wanted: &Match) -> String {
    // Wider registers are represented by their parts.
    if lab.takes(name, rule).await {
        let found = lab.bridge.lock().flows[0].matching;
        // The client assumes that OpenFlow 1.1 can match ECN, and sends a match without it.
        if version == Version::V11 && !on_the_wire(version, wanted) {
            return String::new();
        }
        if found != *wanted {
            return "**read otherwise**".into();
        }
        assert!(lab.printed(name).await.contains("actions=drop"), "{name} {rule}");
        return "+".into();
    }
    if on_the_wire(version, wanted) { "wire".into() } else { String::new() }
}
