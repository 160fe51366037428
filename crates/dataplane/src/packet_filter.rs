//! Packet filters of API clients, and one-line descriptions of packets. Both are based on the flow key that the data
//! path extracts from a packet.

use std::fmt::Write as _;
use std::net::IpAddr;

use model::PacketFilter;
use packet::filter::Filter;
use packet::{FlowKey, L3Kind, PortId, ip_proto};

/// Returns a one-line description of a packet from its flow key. `length` is the length of the packet in
/// bytes.
pub fn describe(key: &FlowKey, length: u32) -> String {
    let mut text = String::new();
    for vid in [key.outer_vid(), key.inner_vid()].into_iter().flatten() {
        let _ = write!(text, "vlan {vid}, ");
    }
    let _ = write!(text, "{} > {}, ", key.eth_src(), key.eth_dst());
    match addresses(key) {
        Some((source, destination)) if key.l3_kind() != L3Kind::Arp => {
            let ports = matches!(key.proto(), ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP)
                && !key.is_later_fragment();
            let end = |address: IpAddr, port: u16| match (ports, address) {
                (false, _) => address.to_string(),
                (true, IpAddr::V4(_)) => format!("{address}:{port}"),
                (true, IpAddr::V6(_)) => format!("[{address}]:{port}"),
            };
            let (from, to) = (end(source, key.src_port()), end(destination, key.dst_port()));
            let _ = write!(text, "{} {from} > {to}", protocol(key.proto()));
            if key.is_fragment() {
                text.push_str(" (fragment)");
            }
        }
        Some((source, destination)) => {
            let _ = write!(text, "ARP {source} > {destination}");
        }
        None => {
            let _ = write!(text, "ethertype 0x{:04x}", key.eth_type());
        }
    }
    let _ = write!(text, ", {length} bytes");
    text
}

fn addresses(key: &FlowKey) -> Option<(IpAddr, IpAddr)> {
    match key.l3_kind() {
        L3Kind::Ipv4 | L3Kind::Arp => Some((key.ipv4_src().into(), key.ipv4_dst().into())),
        L3Kind::Ipv6 => Some((key.ipv6_src().into(), key.ipv6_dst().into())),
        L3Kind::None => None,
    }
}

fn protocol(number: u8) -> String {
    match number {
        ip_proto::ICMP => "ICMP".to_owned(),
        ip_proto::ICMPV6 => "ICMPv6".to_owned(),
        ip_proto::IGMP => "IGMP".to_owned(),
        ip_proto::TCP => "TCP".to_owned(),
        ip_proto::UDP => "UDP".to_owned(),
        ip_proto::SCTP => "SCTP".to_owned(),
        other => format!("protocol {other}"),
    }
}

/// Converts a packet filter of an API client into filters over flow keys. A packet matches if it matches at least one
/// of the returned filters. Each field that means "source or destination" doubles their number.
pub fn compile(wanted: &PacketFilter, port: Option<PortId>) -> Vec<Filter> {
    let mut texts = vec![Vec::new()];
    let mut both = |one: Vec<String>, other: Vec<String>| {
        let with = |more: Vec<String>| texts.iter().map(move |text| [text.clone(), more.clone()].concat());
        texts = with(one).chain(with(other)).collect::<Vec<Vec<String>>>();
    };
    if let Some(mac) = wanted.mac {
        both(vec![format!("eth_src={mac}")], vec![format!("eth_dst={mac}")]);
    }
    // Address and port of one endpoint belong together: "10.0.0.1 and port 80" is one side of a connection.
    let end = |side: &str| {
        let ip = wanted.ip.map(|ip| format!("ip_{side}={ip}"));
        let port = wanted.l4_port.map(|port| format!("{side}_port={port}"));
        ip.into_iter().chain(port).collect::<Vec<_>>()
    };
    if wanted.ip.is_some() || wanted.l4_port.is_some() {
        both(end("src"), end("dst"));
    }
    let mut common: Vec<String> = port.map(|port| format!("in_port={port}")).into_iter().collect();
    common.extend(wanted.vlan.map(|vlan| format!("vlan={vlan}")));
    common.extend(wanted.ether_type.map(|kind| format!("eth_type=0x{kind:04x}")));
    common.extend(wanted.protocol.map(|protocol| format!("proto={protocol}")));
    // A contradictory combination (an IPv6 address in an IPv4 packet) matches nothing and is left out.
    texts
        .iter()
        .filter_map(|text| Filter::parse(&[text.clone(), common.clone()].concat().join(",")).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use packet::spec;

    use super::*;

    fn key(text: &str) -> FlowKey {
        let frame = spec::parse(text).unwrap();
        let mut key = FlowKey::default();
        FlowKey::extract(&frame, frame.len(), PortId(3), &mut key).unwrap();
        key
    }

    fn matches(wanted: &PacketFilter, text: &str) -> bool {
        compile(wanted, Some(PortId(3))).iter().any(|filter| filter.matches(&key(text)))
    }

    #[test]
    fn an_end_is_matched_in_both_directions() {
        let ip = "10.0.0.2".parse().unwrap();
        let wanted = PacketFilter { ip: Some(ip), l4_port: Some(53), ..PacketFilter::default() };
        assert!(matches(&wanted, "ip_dst=10.0.0.2,udp,dst_port=53"));
        assert!(matches(&wanted, "ip_src=10.0.0.2,udp,src_port=53"));
        assert!(!matches(&wanted, "ip_src=10.0.0.2,ip_dst=10.0.0.9,udp,dst_port=53"));
        assert!(!matches(&wanted, "ip_dst=10.0.0.3,udp,dst_port=53"));
    }

    #[test]
    fn nothing_wanted_is_everything() {
        assert!(matches(&PacketFilter::default(), "ip_dst=10.0.0.2,tcp"));
        assert!(
            compile(&PacketFilter::default(), Some(PortId(4)))
                .iter()
                .all(|filter| !filter.matches(&key("tcp")))
        );
    }

    #[test]
    fn packets_are_described_in_one_line() {
        let text =
            "eth_src=02:00:00:00:00:0a,vlan=10,ip_src=10.0.0.1,ip_dst=10.0.0.2,udp,src_port=1,dst_port=53";
        assert_eq!(
            describe(&key(text), 64),
            "vlan 10, 02:00:00:00:00:0a > 02:00:00:00:00:02, UDP 10.0.0.1:1 > 10.0.0.2:53, 64 bytes"
        );
    }
}
