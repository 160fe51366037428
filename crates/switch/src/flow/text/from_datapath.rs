//! Conversion of flows from `ovs-dpctl`'s syntax, for example
//! `in_port(1),eth(src=02:00:00:00:00:01,...),eth_type(0x0800),ipv4(...)`, into `ovs-ofctl`'s syntax, which
//! [`super::parse()`] reads. `ovs-appctl ofproto/trace` accepts both.

/// A flow that was converted from the datapath syntax. The port is not converted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DatapathFlow {
    /// Datapath port in `in_port`: a number or a name.
    pub port: Option<String>,
    /// All other fields in `ovs-ofctl`'s syntax.
    pub words: String,
}

/// Maximum nesting depth of `encap` groups. A packet has at most two VLAN tags, and each adds one group.
const MAX_ENCAPS: usize = 2;

/// Converts a flow from the datapath syntax of `ovs-dpctl`. Returns `None` if the text is not in this syntax, or
/// nests more than two `encap` groups.
#[must_use]
pub fn from_datapath(text: &str) -> Option<DatapathFlow> {
    let mut flow = DatapathFlow::default();
    let mut words = Vec::new();
    read(text, 0, &mut flow.port, &mut words)?;
    flow.words = words.join(",");
    Some(flow)
}

/// Returns the comma-separated groups `name(content)` of a text as pairs of name and content. Parentheses may
/// be nested. Returns `None` if the text has another form.
fn groups(text: &str) -> Option<Vec<(&str, &str)>> {
    let mut all = Vec::new();
    let mut rest = text.trim().trim_start_matches(',');
    while !rest.is_empty() {
        let open = rest.find('(')?;
        let mut depth = 0_usize;
        let close = rest.char_indices().skip_while(|(at, _)| *at < open).find_map(|(at, letter)| {
            match letter {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            (letter == ')' && depth == 0).then_some(at)
        })?;
        all.push((rest.get(..open)?.trim(), rest.get(open + 1..close)?));
        rest = rest.get(close + 1..)?.trim_start_matches([',', ' ']);
    }
    Some(all)
}

/// Converts a text inside `depth` nested `encap` groups. Appends its fields in `ovs-ofctl`'s syntax to `words`.
fn read(text: &str, depth: usize, port: &mut Option<String>, words: &mut Vec<String>) -> Option<()> {
    if depth > MAX_ENCAPS {
        return None;
    }
    for (name, content) in groups(text)? {
        // Masks are ignored.
        let bare = |value: &str| value.split_once('/').map_or(value, |(value, _)| value).trim().to_owned();
        let fields: Vec<(&str, String)> = content
            .split(',')
            .filter_map(|field| field.trim().split_once('='))
            .map(|(key, value)| (key, bare(value)))
            .collect();
        let mut put = |table: &[(&str, &str)]| {
            for (key, value) in &fields {
                if let Some((_, own)) = table.iter().find(|(known, _)| known == key) {
                    words.push(format!("{own}={value}"));
                }
            }
        };
        let number = |key: &str| {
            let value = &fields.iter().find(|(known, _)| *known == key)?.1;
            match value.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16).ok(),
                None => value.parse().ok(),
            }
        };
        match name {
            "in_port" => *port = Some(bare(content)),
            "eth" => put(&[("src", "dl_src"), ("dst", "dl_dst")]),
            "eth_type" => words.push(format!("dl_type={}", bare(content))),
            "vlan" => put(&[("vid", "dl_vlan"), ("pcp", "dl_vlan_pcp"), ("tci", "vlan_tci")]),
            // Fields after a VLAN tag.
            "encap" => read(content, depth + 1, port, words)?,
            "ipv4" => {
                put(&[
                    ("src", "nw_src"),
                    ("dst", "nw_dst"),
                    ("proto", "nw_proto"),
                    ("ttl", "nw_ttl"),
                    ("frag", "nw_frag"),
                ]);
                put(&[("dscp", "ip_dscp"), ("ecn", "nw_ecn")]);
                traffic_class(number("tos"), words);
            }
            "ipv6" => {
                put(&[
                    ("src", "ipv6_src"),
                    ("dst", "ipv6_dst"),
                    ("label", "ipv6_label"),
                    ("proto", "nw_proto"),
                ]);
                put(&[
                    ("hlimit", "nw_ttl"),
                    ("ttl", "nw_ttl"),
                    ("frag", "nw_frag"),
                    ("dscp", "ip_dscp"),
                    ("ecn", "nw_ecn"),
                ]);
                traffic_class(number("tclass"), words);
            }
            "arp" => put(&[
                ("sip", "arp_spa"),
                ("tip", "arp_tpa"),
                ("op", "arp_op"),
                ("sha", "arp_sha"),
                ("tha", "arp_tha"),
            ]),
            "tcp" | "udp" | "sctp" | "l4" => put(&[("src", "tp_src"), ("dst", "tp_dst")]),
            "tcp_flags" => words.push(format!("tcp_flags={}", bare(content))),
            "icmp" => put(&[("type", "icmp_type"), ("code", "icmp_code")]),
            "icmpv6" => put(&[("type", "icmpv6_type"), ("code", "icmpv6_code")]),
            "nd" => put(&[("target", "nd_target"), ("sll", "nd_sll"), ("tll", "nd_tll")]),
            "mpls" => {
                put(&[("label", "mpls_label"), ("tc", "mpls_tc"), ("ttl", "mpls_ttl"), ("bos", "mpls_bos")])
            }
            "skb_mark" => words.push(format!("pkt_mark={}", bare(content))),
            "ct_state" | "ct_zone" | "ct_mark" | "ct_label" => {
                words.push(format!("{name}={}", bare(content)))
            }
            "ct_tuple4" | "ct_tuple6" => {
                let is_v6 = name == "ct_tuple6";
                put(&[
                    ("src", if is_v6 { "ct_ipv6_src" } else { "ct_nw_src" }),
                    ("dst", if is_v6 { "ct_ipv6_dst" } else { "ct_nw_dst" }),
                    ("proto", "ct_nw_proto"),
                    ("tp_src", "ct_tp_src"),
                    ("tp_dst", "ct_tp_dst"),
                ]);
            }
            // Packet metadata of Open vSwitch's datapaths that this data path does not have.
            "recirc_id" | "dp_hash" | "skb_priority" | "packet_type" | "tunnel" => {}
            _ => return None,
        }
    }
    Some(())
}

fn traffic_class(octet: Option<u32>, words: &mut Vec<String>) {
    if let Some(octet) = octet {
        words.push(format!("nw_tos={},nw_ecn={}", octet & 0xfc, octet & 3));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{Field, text};

    /// Text with `encap` groups nested deeper than the limit is refused, however far the depth exceeds the limit.
    /// Without the limit, deep nesting would exhaust the stack.
    #[test]
    fn encap_groups_nested_too_deep_are_refused() {
        let nested =
            |depth: usize| format!("{}eth_type(0x0800){}", "encap(".repeat(depth), ")".repeat(depth));
        assert!(from_datapath(&nested(2)).is_some());
        assert!([3, 200_000].iter().all(|depth| from_datapath(&nested(*depth)).is_none()));
    }

    #[test]
    fn flows_of_data_paths_are_read() {
        let flow = from_datapath(
            "recirc_id(0),in_port(p1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07/ff:ff:ff:00:00:00),\
             eth_type(0x8100),vlan(vid=5,pcp=3),encap(eth_type(0x0800),ipv4(src=192.168.0.1,dst=192.168.0.2,proto=6,tos=0x29,ttl=64,frag=no),\
             tcp(src=1,dst=80),tcp_flags(ack))",
        )
        .unwrap();
        assert_eq!(flow.port.as_deref(), Some("p1"));
        let read = text::parse(&flow.words, |_| None).unwrap();
        for (field, value) in [
            (Field::EthSrc, 0x5054_0000_0005),
            (Field::EthType, 0x0800),
            (Field::VlanTci, 0x7005),
            (Field::Ipv4Dst, 0xc0a8_0002),
            (Field::IpProto, 6),
            (Field::IpDscp, 10),
            (Field::IpEcn, 1),
            (Field::NwTtl, 64),
            (Field::TcpDst, 80),
            (Field::TcpFlags, 0x10),
        ] {
            assert_eq!(read.get(field), value, "{field:?}");
        }
        let tracked = from_datapath(
            "ct_state(+est-rel+trk),ct_zone(0x5),ct_mark(0x1/0xff),ct_label(0x7),eth_type(0x0800),ipv4(proto=17),\
             ct_tuple4(src=10.0.0.1,dst=10.0.0.2/255.0.0.0,proto=6,tp_src=1000,tp_dst=80)",
        );
        let read = text::parse(&tracked.unwrap().words, |_| None).unwrap();
        for (field, value) in [
            (Field::CtState, 0x22),
            (Field::CtZone, 5),
            (Field::CtMark, 1),
            (Field::CtLabel, 7),
            (Field::CtNwSrc, 0x0a00_0001),
            (Field::CtNwDst, 0x0a00_0002),
            (Field::CtNwProto, 6),
            (Field::CtTpSrc, 1000),
            (Field::CtTpDst, 80),
        ] {
            assert_eq!(read.get(field), value, "{field:?}");
        }
        assert_eq!(from_datapath("in_port(1)").unwrap().words, "");
        for other in ["in_port=1", "in_port=1,tcp", "bogus(1)", "in_port(1", "br0", ")", "a)b("] {
            assert_eq!(from_datapath(other), None, "{other}");
        }
        assert_eq!(from_datapath("").unwrap(), DatapathFlow::default());
    }
}
