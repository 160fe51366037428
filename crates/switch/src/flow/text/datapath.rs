//! Printing of megaflows and their datapath actions in the style of `ovs-dpctl dump-flows`.

use packet::{PortId, ethertype};

use super::field::{ethernet, flags as flags_of, hex, value};
use crate::flow::action::{FTP, nat_text};
use crate::flow::numbers::{eth_type, proto};
use crate::flow::{Field, Flow, Op, TrackStep};

const TAG: u128 = 0x1000;

/// Prints a megaflow: the number of its recirculation, its ingress port `port`, then the fields that its mask covers.
#[must_use]
pub fn cached(recirculation: Option<PortId>, port: &str, flow: &Flow, mask: &Flow) -> String {
    let number = u128::from(recirculation.map_or(0, |number| number.0));
    let mut groups = vec![format!("recirc_id({})", hex(number)), format!("in_port({port})")];
    connection(flow, mask, &mut groups);
    fields(flow, mask, flow.get(Field::EthType), &mut groups);
    groups.join(",")
}

/// A printer of the masked fields of one header.
struct Header<'a> {
    flow: &'a Flow,
    mask: &'a Flow,
    parts: Vec<String>,
}

impl Header<'_> {
    fn add(&mut self, name: &str, field: Field) {
        let mask = self.mask.get(field);
        if mask == 0 {
            return;
        }
        let text = match field {
            Field::EthSrc | Field::EthDst if mask != field.all_ones() => {
                format!("{}/{}", ethernet(self.flow.get(field)), ethernet(mask))
            }
            _ => value(field, self.flow.get(field), mask),
        };
        self.parts.push(format!("{name}={text}"));
    }

    fn close(self, name: &str, groups: &mut Vec<String>) {
        if !self.parts.is_empty() {
            groups.push(format!("{name}({})", self.parts.join(",")));
        }
    }
}

/// Appends to `groups` the text of all fields of the connection that the mask covers.
fn connection(flow: &Flow, mask: &Flow, groups: &mut Vec<String>) {
    let all = [
        ("ct_state", Field::CtState),
        ("ct_zone", Field::CtZone),
        ("ct_mark", Field::CtMark),
        ("ct_label", Field::CtLabel),
    ];
    for (name, field) in all {
        let bits = mask.get(field);
        if bits != 0 {
            groups.push(format!("{name}({})", value(field, flow.get(field), bits)));
        }
    }
    let (name, [source, destination]) = if flow.get(Field::EthType) == eth_type::IPV6 {
        ("ct_tuple6", [Field::CtIpv6Src, Field::CtIpv6Dst])
    } else {
        ("ct_tuple4", [Field::CtNwSrc, Field::CtNwDst])
    };
    let mut tuple = Header { flow, mask, parts: Vec::new() };
    tuple.add("src", source);
    tuple.add("dst", destination);
    tuple.add("proto", Field::CtNwProto);
    tuple.add("tp_src", Field::CtTpSrc);
    tuple.add("tp_dst", Field::CtTpDst);
    tuple.close(name, groups);
}

/// Appends to `groups` the text of all header fields that the mask covers.
fn fields(flow: &Flow, mask: &Flow, eth_type: u128, groups: &mut Vec<String>) {
    let header = || Header { flow, mask, parts: Vec::new() };
    let mut eth = header();
    eth.add("src", Field::EthSrc);
    eth.add("dst", Field::EthDst);
    eth.close("eth", groups);
    tags(flow, mask, groups);
    if mask.get(Field::EthType) != 0 {
        groups.push(format!("eth_type(0x{:04x})", flow.get(Field::EthType)));
    }
    let proto = flow.get(Field::IpProto);
    match eth_type {
        eth_type::ARP | eth_type::RARP => {
            let mut arp = header();
            let all = [
                ("sip", Field::ArpSpa),
                ("tip", Field::ArpTpa),
                ("op", Field::ArpOp),
                ("sha", Field::ArpSha),
                ("tha", Field::ArpTha),
            ];
            all.into_iter().for_each(|(name, field)| arp.add(name, field));
            return arp.close("arp", groups);
        }
        eth_type::MPLS | eth_type::MPLS_MULTICAST => {
            let mut mpls = header();
            let all = [
                ("label", Field::MplsLabel),
                ("tc", Field::MplsTc),
                ("ttl", Field::MplsTtl),
                ("bos", Field::MplsBos),
            ];
            all.into_iter().for_each(|(name, field)| mpls.add(name, field));
            return mpls.close("mpls", groups);
        }
        eth_type::PBB => {
            let mut pbb = header();
            pbb.add("isid", Field::PbbIsid);
            pbb.add("uca", Field::PbbUca);
            return pbb.close("pbb", groups);
        }
        _ => {}
    }
    let mut ip = header();
    if eth_type == eth_type::IPV6 {
        let all = [
            ("src", Field::Ipv6Src),
            ("dst", Field::Ipv6Dst),
            ("label", Field::Ipv6Label),
            ("exthdr", Field::Ipv6Exthdr),
        ];
        all.into_iter().for_each(|(name, field)| ip.add(name, field));
    } else {
        ip.add("src", Field::Ipv4Src);
        ip.add("dst", Field::Ipv4Dst);
    }
    let all = [
        ("proto", Field::IpProto),
        ("dscp", Field::IpDscp),
        ("ecn", Field::IpEcn),
        ("ttl", Field::NwTtl),
        ("frag", Field::IpFrag),
    ];
    all.into_iter().for_each(|(name, field)| ip.add(name, field));
    ip.close(if eth_type == eth_type::IPV6 { "ipv6" } else { "ipv4" }, groups);
    transport(flow, mask, eth_type, proto, groups);
}

fn transport(flow: &Flow, mask: &Flow, eth_type: u128, proto: u128, groups: &mut Vec<String>) {
    let header = || Header { flow, mask, parts: Vec::new() };
    let mut ports = header();
    match (eth_type, proto) {
        (eth_type::IPV4, proto::ICMP) => {
            ports.add("type", Field::Icmpv4Type);
            ports.add("code", Field::Icmpv4Code);
            return ports.close("icmp", groups);
        }
        (eth_type::IPV6, proto::ICMPV6) => {
            ports.add("type", Field::Icmpv6Type);
            ports.add("code", Field::Icmpv6Code);
            ports.close("icmpv6", groups);
            let mut nd = header();
            nd.add("target", Field::NdTarget);
            nd.add("sll", Field::NdSll);
            nd.add("tll", Field::NdTll);
            return nd.close("nd", groups);
        }
        _ => {}
    }
    ports.add("src", Field::TcpSrc);
    ports.add("dst", Field::TcpDst);
    let name = match proto {
        proto::TCP => "tcp",
        proto::UDP => "udp",
        proto::SCTP => "sctp",
        // The mask covers L4 bits because of other rules, although the packet has another protocol.
        _ => "l4",
    };
    ports.close(name, groups);
    let flags = mask.get(Field::TcpFlags);
    if flags != 0 {
        groups.push(format!("tcp_flags({})", flags_of(Field::TcpFlags, flow.get(Field::TcpFlags), flags)));
    }
}

fn tags(flow: &Flow, mask: &Flow, groups: &mut Vec<String>) {
    let tci = mask.get(Field::VlanTci);
    if tci != 0 {
        let value = flow.get(Field::VlanTci);
        groups.push(match (tci & value & TAG != 0, tci) {
            (true, 0xffff) => format!("vlan(vid={},pcp={})", value & 0xfff, value >> 13),
            (true, 0x1fff) => format!("vlan(vid={})", value & 0xfff),
            _ => format!("vlan(tci=0x{value:04x}/0x{tci:04x})"),
        });
    }
    let inner = (super::super::translate::TCI + 2) * 8;
    let tci = mask.bits(inner, 16);
    if tci != 0 {
        groups.push(format!("cvlan(tci=0x{:04x}/0x{tci:04x})", flow.bits(inner, 16)));
    }
}

/// Prints the steps of a program. `name` returns the name of a port. A program without steps is printed as `drop`.
pub fn program(ops: &[Op], name: &impl Fn(PortId) -> String) -> String {
    if ops.is_empty() {
        return "drop".to_owned();
    }
    steps(ops, name).join(",")
}

fn steps(ops: &[Op], name: &impl Fn(PortId) -> String) -> Vec<String> {
    let mut parts = Vec::new();
    let mut at = 0;
    while let Some(op) = ops.get(at) {
        at += 1;
        parts.push(match op {
            Op::Output(port) => name(*port),
            Op::Normal => "normal".to_owned(),
            Op::Set(bits) => set(&bits.value, &bits.mask),
            Op::PushVlan(tpid, tci) => {
                // A tag that is changed immediately is printed with its changed value.
                let mut tci = u128::from(*tci);
                let mut rest = None;
                if let Some(Op::Set(bits)) = ops.get(at)
                    && bits.mask.get(Field::VlanTci) != 0
                {
                    at += 1;
                    let changed = bits.mask.get(Field::VlanTci);
                    tci = tci & !changed | bits.value.get(Field::VlanTci) & changed;
                    let mut mask = bits.mask;
                    mask.set(Field::VlanTci, 0);
                    rest = (mask != Flow::ZERO).then(|| set(&bits.value, &mask));
                }
                // Open vSwitch omits the default TPID.
                let tpid =
                    if *tpid == ethertype::VLAN { String::new() } else { format!("tpid=0x{tpid:04x},") };
                let push = format!("push_vlan({tpid}vid={},pcp={})", tci & 0xfff, tci >> 13);
                rest.into_iter().fold(push, |all, rest| all + "," + &rest)
            }
            Op::PopVlan => "pop_vlan".to_owned(),
            Op::PushMpls(eth_type, entry) => format!(
                "push_mpls(label={},tc={},ttl={},bos={},eth_type=0x{eth_type:04x})",
                entry >> 12,
                entry >> 9 & 7,
                entry & 0xff,
                entry >> 8 & 1
            ),
            Op::PopMpls(eth_type) => format!("pop_mpls(eth_type=0x{eth_type:04x})"),
            Op::CopyTtlIn(ttl) => format!("copy_ttl_in({ttl})"),
            Op::PushPbb(eth_type, tag) => {
                format!("push_pbb(isid={},eth_type=0x{eth_type:04x})", tag & 0xff_ffff)
            }
            Op::PopPbb => "pop_pbb".to_owned(),
            Op::Meter(id) => format!("meter({id})"),
            Op::Queue(Some(queue)) => format!("set(queue({queue}))"),
            Op::Queue(None) => "set(queue(default))".to_owned(),
            Op::Track(step) => track(step),
            Op::ClearTrack => "ct_clear".to_owned(),
            Op::Recirculate(to) => format!("recirc({:#x})", to.number.map_or(0, |number| number.0)),
            Op::Clone(n) => {
                let end = (at + usize::from(*n)).min(ops.len());
                let inner = steps(ops.get(at..end).unwrap_or_default(), name);
                at = end;
                format!("clone({})", inner.join(","))
            }
        });
    }
    parts
}

/// Prints a pass through the connection tracker.
fn track(step: &TrackStep) -> String {
    let mut parts = Vec::new();
    if step.commit {
        parts.push(if step.force { "force_commit" } else { "commit" }.to_owned());
    }
    if step.zone != 0 {
        parts.push(format!("zone={}", step.zone));
    }
    if let Some((value, mask)) = step.mark {
        parts.push(format!("mark={value:#x}/{mask:#x}"));
    }
    if let Some((value, mask)) = step.label {
        parts.push(format!("label={value:#x}/{mask:#x}"));
    }
    match step.alg {
        0 => {}
        FTP => parts.push("helper=ftp".to_owned()),
        _ => parts.push("helper=tftp".to_owned()),
    }
    parts.extend(step.nat.as_ref().map(nat_text));
    if parts.is_empty() { "ct".to_owned() } else { format!("ct({})", parts.join(",")) }
}

/// Prints a step that sets fields.
fn set(value: &Flow, mask: &Flow) -> String {
    let mut groups = Vec::new();
    fields(value, mask, eth_type_of(mask), &mut groups);
    format!("set({})", groups.join(","))
}

/// Returns the EtherType of the packets to which a set step applies, determined from the header bits `mask` that the
/// step writes. IPv4 and IPv6 are distinguished by the length of the addresses.
fn eth_type_of(mask: &Flow) -> u128 {
    let extended = |field: Field| mask.get(field) & (u128::MAX >> 32) != 0;
    let labels = [Field::MplsLabel, Field::MplsTc, Field::MplsTtl];
    let is_there = |field: &Field| mask.get(*field) != 0;
    if extended(Field::Ipv6Src) || extended(Field::Ipv6Dst) || mask.get(Field::Ipv6Label) != 0 {
        eth_type::IPV6
    } else if labels.iter().any(is_there) {
        eth_type::MPLS
    } else if [Field::ArpSha, Field::ArpTha].iter().any(is_there) {
        eth_type::ARP
    } else {
        eth_type::IPV4
    }
}
