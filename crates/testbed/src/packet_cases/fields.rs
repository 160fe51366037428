//! Cases that test match fields. For a header field, a case matches two frames that differ only in the lowest bit of
//! the field, and another case sets the field from one value to the other. A field outside of the packet (a register,
//! tunnel metadata) is set by one table and matched by the next table.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Feature::{Match, Part, Set};
use super::frames::{self, with};
use super::{PacketCase, Step};

/// Notation of a field's value in `ovs-ofctl` syntax.
#[derive(Clone, Copy)]
enum Form {
    Hex,
    Mac,
    Ipv4,
    Ipv6,
    /// Hexadecimal TCI of a VLAN tag, including the bit that states that the tag is present.
    Tag,
}

impl Form {
    fn text(self, value: u128) -> String {
        let low = |bits: u32| value & (u128::MAX >> (128 - bits));
        match self {
            Form::Hex => format!("{value:#x}"),
            Form::Tag => format!("{:#x}", value | 0x1000),
            Form::Mac => {
                let octets: Vec<String> =
                    value.to_be_bytes()[10..].iter().map(|octet| format!("{octet:02x}")).collect();
                octets.join(":")
            }
            Form::Ipv4 => Ipv4Addr::from_bits(u32::try_from(low(32)).unwrap_or_default()).to_string(),
            Form::Ipv6 => Ipv6Addr::from_bits(value).to_string(),
        }
    }
}

/// A header field that the cases test.
struct Header {
    name: &'static str,
    /// Prerequisites of the field in `ovs-ofctl` syntax, such as `mpls,`. A rule must match these before it can match
    /// the field.
    needs: &'static str,
    frame: fn() -> Vec<u8>,
    /// Index of the first bit of the field in the frame. `bits` is the number of bits.
    first: usize,
    bits: usize,
    value: u128,
    form: Form,
    has_masks: bool,
    is_set: bool,
}

const TAG: &str = "vlan_tci=0x1000/0x1000,";
const MPLS: &str = "mpls,";
const SOLICITATION: &str = "icmp6,icmp_type=135,icmp_code=0,";
const ADVERTISEMENT: &str = "icmp6,icmp_type=136,icmp_code=0,";

#[rustfmt::skip]
fn headers() -> Vec<Header> {
    use Form::{Hex, Ipv4, Ipv6, Mac, Tag};
    type Row = (&'static str, &'static str, fn() -> Vec<u8>, usize, usize, u128, Form, bool, bool);
    const V6: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0004;
    let rows: [Row; 38] = [
        ("eth_dst", "", frames::tcp, 0, 48, 0x0200_0000_0002, Mac, true, true),
        ("eth_src", "", frames::tcp, 48, 48, 0x0200_0000_0004, Mac, true, true),
        ("eth_type", "", frames::tcp, 12 * 8, 16, 0x0800, Hex, false, false),
        ("vlan_tci", "", frames::vlan, 14 * 8, 16, 0x2005, Tag, true, true),
        ("vlan_vid", TAG, frames::vlan, 14 * 8 + 4, 12, 5, Tag, true, true),
        ("vlan_pcp", TAG, frames::vlan, 14 * 8, 3, 5, Hex, false, true),
        ("mpls_label", MPLS, frames::mpls, 14 * 8, 20, 18, Hex, false, true),
        ("mpls_tc", MPLS, frames::mpls, 14 * 8 + 20, 3, 5, Hex, false, true),
        ("mpls_bos", MPLS, frames::mpls, 14 * 8 + 23, 1, 1, Hex, false, false),
        ("mpls_ttl", MPLS, frames::mpls, 14 * 8 + 24, 8, 64, Hex, false, true),
        ("ip_proto", "ip,", frames::tcp, 23 * 8, 8, 6, Hex, false, false),
        ("arp_op", "arp,", frames::arp, 21 * 8, 8, 2, Hex, false, true),
        ("ip_src", "ip,", frames::tcp, 26 * 8, 32, 0x0a00_0004, Ipv4, true, true),
        ("ip_dst", "ip,", frames::tcp, 30 * 8, 32, 0x0a00_0008, Ipv4, true, true),
        ("arp_spa", "arp,", frames::arp, 28 * 8, 32, 0x0a00_0004, Ipv4, true, true),
        ("arp_tpa", "arp,", frames::arp, 38 * 8, 32, 0x0a00_0008, Ipv4, true, true),
        ("arp_sha", "arp,", frames::arp, 22 * 8, 48, 0x0200_0000_0014, Mac, true, true),
        ("arp_tha", "arp,", frames::arp, 32 * 8, 48, 0x0200_0000_0024, Mac, true, true),
        ("ipv6_src", "ipv6,", frames::udp6, 22 * 8, 128, V6, Ipv6, true, true),
        ("ipv6_dst", "ipv6,", frames::udp6, 38 * 8, 128, V6 + 4, Ipv6, true, true),
        ("ipv6_label", "ipv6,", frames::udp6, 14 * 8 + 12, 20, 0x1234, Hex, true, true),
        ("ip_dscp", "ip,", frames::tcp, 15 * 8, 6, 0x20, Hex, false, true),
        ("nw_ecn", "ip,", frames::tcp, 15 * 8 + 6, 2, 2, Hex, false, true),
        ("nw_ttl", "ip,", frames::tcp, 22 * 8, 8, 64, Hex, false, true),
        ("tcp_src", "tcp,", frames::tcp, 34 * 8, 16, 0x1234, Hex, true, true),
        ("tcp_dst", "tcp,", frames::tcp, 36 * 8, 16, 80, Hex, true, true),
        ("tcp_flags", "tcp,", frames::tcp, 46 * 8 + 4, 12, 0x012, Hex, true, false),
        ("udp_src", "udp,", frames::udp, 34 * 8, 16, 0x1234, Hex, true, true),
        ("udp_dst", "udp,", frames::udp, 36 * 8, 16, 0x4321, Hex, true, true),
        ("sctp_src", "sctp,", frames::sctp, 34 * 8, 16, 0x1234, Hex, true, true),
        ("sctp_dst", "sctp,", frames::sctp, 36 * 8, 16, 9, Hex, true, true),
        ("icmp_type", "icmp,", frames::icmp, 34 * 8, 8, 8, Hex, false, true),
        ("icmp_code", "icmp,", frames::icmp, 35 * 8, 8, 2, Hex, false, true),
        ("icmpv6_type", "icmp6,", frames::icmp6, 54 * 8, 8, 128, Hex, false, true),
        ("icmpv6_code", "icmp6,", frames::icmp6, 55 * 8, 8, 2, Hex, false, true),
        ("nd_target", ADVERTISEMENT, frames::advertisement, 62 * 8, 128, V6 + 8, Ipv6, true, true),
        ("nd_sll", SOLICITATION, frames::solicitation, 80 * 8, 48, 0x0200_0000_0014, Mac, true, true),
        ("nd_tll", ADVERTISEMENT, frames::advertisement, 80 * 8, 48, 0x0200_0000_0014, Mac, true, true),
    ];
    let row = |(name, needs, frame, first, bits, value, form, has_masks, is_set)| {
        Header { name, needs, frame, first, bits, value, form, has_masks, is_set }
    };
    rows.into_iter().map(row).collect()
}

/// Returns the cases for a header field: exact match, masked match and set action.
fn of_header(header: &Header) -> Vec<PacketCase> {
    let Header { name, needs, first, bits, value, form, .. } = *header;
    let variant = |value: u128| with(&(header.frame)(), first, bits, value);
    let (own, other) = (variant(value), variant(value ^ 1));
    let text = |value: u128| form.text(value);
    let way = |frame: &[u8], port: u8| Step::new(1, frame, &[(port, frame)]);
    let whole = format!("priority=2,{needs}{name}={},actions=output:2", text(value));
    let rest = "priority=1,actions=output:3";
    let mut cases =
        vec![PacketCase::new(&[Match(name)], &[&whole, rest], vec![way(&own, 2), way(&other, 3)])];
    if header.has_masks {
        let part = format!("priority=2,{needs}{name}={}/{},actions=output:2", text(value & 1), text(1));
        let outside = variant(value ^ 2);
        let steps = vec![way(&own, 2), way(&other, 3), way(&outside, 2)];
        cases.push(PacketCase::new(&[Part(name)], &[&part, rest], steps));
    }
    if header.is_set {
        let set = format!("{needs}actions=set_field:{}->{name},output:2", text(value ^ 1));
        cases.push(PacketCase::new(&[Set(name)], &[&set], vec![Step::new(1, &own, &[(2, &other)])]));
    }
    cases
}

/// Returns the names of the fields outside of the packet (such as registers), with the notation of their values. One
/// table sets these fields and the next table matches them.
fn beside_packets() -> Vec<(&'static str, Form)> {
    let mut fields = vec![
        ("metadata", Form::Hex),
        ("tun_id", Form::Hex),
        ("tun_src", Form::Ipv4),
        ("tun_dst", Form::Ipv4),
        ("tun_ipv6_src", Form::Ipv6),
        ("tun_ipv6_dst", Form::Ipv6),
        ("tun_gbp_id", Form::Hex),
        ("tun_gbp_flags", Form::Hex),
        ("pkt_mark", Form::Hex),
    ];
    let numbered = [
        "tun_metadata0",
        "tun_metadata1",
        "tun_metadata2",
        "tun_metadata3",
        "tun_metadata4",
        "tun_metadata5",
        "tun_metadata6",
        "tun_metadata7",
        "reg0",
        "reg1",
        "reg2",
        "reg3",
        "reg4",
        "reg5",
        "reg6",
        "reg7",
        "reg8",
        "reg9",
        "reg10",
        "reg11",
        "reg12",
        "reg13",
        "reg14",
        "reg15",
        "xreg0",
        "xreg1",
        "xreg2",
        "xreg3",
        "xreg4",
        "xreg5",
        "xreg6",
        "xreg7",
        "xxreg0",
        "xxreg1",
        "xxreg2",
        "xxreg3",
    ];
    fields.extend(numbered.map(|name| (name, Form::Hex)));
    fields
}

/// Returns the cases for a field outside of the packet (such as a register). In frames from 02:00:00:00:00:01 the field
/// gets the value 5, and in frames from 02:00:00:00:00:02 the value 4. In the case with a mask, a third frame gets the
/// value 7.
fn beside(name: &'static str, form: Form) -> [PacketCase; 2] {
    let from = |last: u128| with(&frames::tcp(), 48, 48, 0x0200_0000_0000 + last);
    let way = |last: u128, port: u8| Step::new(1, &from(last), &[(port, &from(last))]);
    let set = |last: u128, value: u128| {
        format!("eth_src=02:00:00:00:00:0{last},actions=set_field:{}->{name},resubmit(,1)", form.text(value))
    };
    let (one, two, three) = (set(1, 5), set(2, 4), set(3, 7));
    let rest = "table=1,priority=1,actions=output:3";
    let whole = format!("table=1,priority=2,{name}={},actions=output:2", form.text(5));
    let part = format!("table=1,priority=2,{name}={}/{},actions=output:2", form.text(1), form.text(1));
    [
        PacketCase::new(&[Match(name), Set(name)], &[&one, &two, &whole, rest], vec![way(1, 2), way(2, 3)]),
        PacketCase::new(
            &[Part(name)],
            &[&one, &two, &three, &part, rest],
            vec![way(1, 2), way(2, 3), way(3, 2)],
        ),
    ]
}

/// Returns the cases for the remaining fields, such as `in_port` and `actset_output`. These cases are written
/// individually, because they need special rules.
fn others() -> Vec<PacketCase> {
    let tcp = frames::tcp();
    let from = |last: u128| with(&tcp, 48, 48, 0x0200_0000_0000 + last);
    let way = |port: u8, frame: &[u8], out: u8| Step::new(port, frame, &[(out, frame)]);
    let fragment = |field: u128| with(&tcp, 20 * 8, 16, field);
    let (first, later) = (fragment(0x2000), fragment(0x00b9));
    let rest = "priority=1,actions=output:3";
    vec![
        PacketCase::new(
            &[Match("in_port")],
            &["priority=2,in_port=1,actions=output:2", rest],
            vec![way(1, &tcp, 2), way(4, &tcp, 3)],
        ),
        // A frame does not leave by its in_port, unless the in_port was changed.
        PacketCase::new(
            &[Set("in_port")],
            &["actions=output:1,set_field:4->in_port,output:1"],
            vec![way(1, &tcp, 1)],
        ),
        PacketCase::new(
            &[Match("actset_output")],
            &[
                "eth_src=02:00:00:00:00:01,actions=write_actions(output:2),goto_table:1",
                "eth_src=02:00:00:00:00:02,actions=write_actions(output:3),goto_table:1",
                "table=1,priority=2,actset_output=2,actions=output:3",
                "table=1,priority=1,actions=output:4",
            ],
            vec![
                Step::new(1, &from(1), &[(2, &from(1)), (3, &from(1))]),
                Step::new(1, &from(2), &[(3, &from(2)), (4, &from(2))]),
            ],
        ),
        PacketCase::new(
            &[Match("ip_frag")],
            &["priority=2,ip,ip_frag=first,actions=output:2", rest],
            vec![way(1, &first, 2), way(1, &later, 3), way(1, &tcp, 3)],
        ),
        PacketCase::new(
            &[Part("ip_frag")],
            &["priority=2,ip,ip_frag=yes,actions=output:2", rest],
            vec![way(1, &first, 2), way(1, &later, 2), way(1, &tcp, 3)],
        ),
        PacketCase::new(
            &[Match("tun_flags"), Set("tun_flags")],
            &[
                "eth_src=02:00:00:00:00:01,actions=set_field:oam->tun_flags,resubmit(,1)",
                "eth_src=02:00:00:00:00:02,actions=resubmit(,1)",
                "table=1,priority=2,tun_flags=oam,actions=output:2",
                "table=1,priority=1,actions=output:3",
            ],
            vec![way(1, &from(1), 2), way(1, &from(2), 3)],
        ),
    ]
}

pub fn cases() -> Vec<PacketCase> {
    let mut cases: Vec<PacketCase> = headers().iter().flat_map(of_header).collect();
    cases.extend(beside_packets().into_iter().flat_map(|(name, form)| beside(name, form)));
    cases.extend(others());
    cases
}
