//! Tests of packet specs and filters: accepted and refused texts, and filters against a naive implementation.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod frames;

use frames::frame;
use packet::filter::Filter;
use packet::spec::{self, TextError};
use packet::{FlowKey, L3Kind, MacAddr, PortId, ip_proto};
use proptest::prelude::*;

fn key_of(text: &str) -> FlowKey {
    let frame = spec::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut key = FlowKey::ZERO;
    let layers = FlowKey::extract(&frame, frame.len(), PortId(0), &mut key).unwrap();
    assert_eq!(layers.malformed(), None, "{text}");
    key
}

#[test]
fn specs_say_what_they_say() {
    let key = key_of(
        "eth_src=02:00:00:00:00:0a, eth_dst=02:00:00:00:00:0b, vlan=10, pcp=5, ip_src=10.1.0.1, ip_dst=10.1.0.2, \
         proto=udp, src_port=1000, dst_port=53, ttl=9, tos=0x10, len=200",
    );
    assert_eq!((key.eth_src(), key.eth_dst()), (MacAddr([2, 0, 0, 0, 0, 10]), MacAddr([2, 0, 0, 0, 0, 11])));
    assert_eq!((key.outer_vid().unwrap().get(), key.outer_pcp()), (10, 5));
    assert_eq!((key.ipv4_src().octets(), key.ipv4_dst().octets()), ([10, 1, 0, 1], [10, 1, 0, 2]));
    assert_eq!((key.proto(), key.src_port(), key.dst_port()), (ip_proto::UDP, 1000, 53));
    assert_eq!((key.ttl(), key.tos()), (9, 0x10));
    assert_eq!(spec::parse("udp,len=200").unwrap().len(), 200);
    assert_eq!(spec::parse("udp").unwrap().len(), 60);
    assert_eq!(spec::parse("udp,len=42").unwrap().len(), 42);
}

#[test]
fn open_vswitch_names_mean_the_same() {
    let ours = "eth_src=02:00:00:00:00:0a,eth_dst=02:00:00:00:00:0b,vlan=7,ip_src=1.2.3.4,ip_dst=5.6.7.8,proto=tcp,\
                src_port=1,dst_port=2,tos=3";
    let theirs = "tcp,dl_src=02:00:00:00:00:0a,dl_dst=02:00:00:00:00:0b,dl_vlan=7,nw_src=1.2.3.4,nw_dst=5.6.7.8,\
                  tp_src=1,tp_dst=2,nw_tos=3";
    assert_eq!(spec::parse(ours), spec::parse(theirs));
}

#[test]
fn what_is_not_said_is_sensible() {
    assert_eq!(key_of("").l3_kind(), L3Kind::None);
    assert_eq!(key_of("icmp6").l3_kind(), L3Kind::Ipv6);
    assert_eq!(key_of("icmp_type=0").proto(), ip_proto::ICMP);
    assert_eq!(key_of("proto=icmpv6,icmp_type=129").src_port(), 129);
    assert_eq!(key_of("arp").eth_dst(), MacAddr::BROADCAST);
    assert_eq!(key_of("arp,arp_op=reply").eth_dst(), MacAddr([2, 0, 0, 0, 0, 2]));
    assert_eq!(key_of("udp,ip_dst=239.1.2.3").eth_dst(), MacAddr([1, 0, 0x5e, 1, 2, 3]));
    assert_eq!(key_of("udp6,ip_dst=ff02::1").eth_dst(), MacAddr([0x33, 0x33, 0, 0, 0, 1]));
    assert_eq!(key_of("tcp").tcp_flags(), packet::tcp::flags::SYN);
    assert!(key_of("udp,frag=later").is_later_fragment());
    assert!(key_of("udp6,frag=first").is_fragment());
    assert_eq!(key_of("inner_vlan=5").inner_vid().unwrap().get(), 5);
    assert!(key_of("vlan=5,vlan_tpid=0x88a8").outer_is_service_tag());
}

#[test]
fn raw_bytes_pass_as_they_are() {
    assert_eq!(spec::parse("hex:02 00:00\nff").unwrap(), [2, 0, 0, 255]);
    assert!(spec::parse("hex:").unwrap_err().to_string().contains("none is there"));
    assert!(spec::parse("hex:020").unwrap_err().to_string().contains("lacks a digit"));
    assert!(spec::parse("hex:02zz").unwrap_err().to_string().contains("character 3"));
}

#[test]
fn mistakes_are_named_with_their_fix() {
    for (text, parts) in [
        ("colour=red", ["`colour`", "known are", "eth_src"]),
        ("ip_src", ["`ip_src`", "no value", "10.0.0.1"]),
        ("ip_src=10.0.0.256", ["`ip_src`", "10.0.0.256", "such as 10.0.0.1"]),
        ("vlan=4095", ["`vlan`", "4095", "0 to 4094"]),
        ("vlan=+5", ["`vlan`", "+5", "0 to 4094"]),
        ("ttl=256", ["`ttl`", "256", "0 to 255"]),
        ("udp,dst_port=99999", ["`dst_port`", "99999", "0 to 65535"]),
        ("dst_port=80", ["`dst_port`", "only TCP, UDP and SCTP", "proto=tcp"]),
        ("ip_src=10.0.0.1,ip_dst=::1", ["`ip_dst`", "different network header", "keep one"]),
        ("udp,tcp", ["`proto`", "different protocol", "keep one"]),
        ("arp,ttl=3", ["`proto`", "ARP carries no IP header", "leave out"]),
        ("ttl=3,ttl=4", ["`ttl`", "twice", "keep one"]),
        ("udp,len=41", ["`len`", "41", "len=42"]),
        ("in_port=1", ["`in_port`", "does not carry its port", "--in"]),
        ("eth_type=0x88cc,ip_src=1.1.1.1", ["`eth_type`", "another type", "leave"]),
        ("tcp_flags=+foo", ["`tcp_flags`", "+foo", "syn+ack"]),
    ] {
        let message = spec::parse(text).expect_err(text).to_string();
        for part in parts {
            assert!(message.contains(part), "{text}: `{message}` lacks `{part}`");
        }
    }
    assert!(matches!(Filter::parse("len=60"), Err(TextError::Conflict { field: "len", .. })));
    assert!(Filter::parse("arp,dst_port=1").is_err());
    assert!(Filter::parse("tcp,arp").is_err());
    assert!(Filter::parse("ip_src=10.0.0.0/33").is_err());
    assert!(Filter::parse("dst_port=1,icmp_type=2").is_err());
    assert!(Filter::parse("vlan=none,pcp=3").is_err());
    assert!(Filter::parse("pcp=3,vlan=none").is_err());
}

#[test]
fn filters_pick_what_they_name() {
    let picks = |filter: &str, spec: &str| Filter::parse(filter).unwrap().matches(&key_of(spec));
    assert!(picks("", "arp"));
    assert!(picks("tcp", "tcp") && picks("tcp", "tcp6") && !picks("tcp", "udp"));
    assert!(picks("tcp6", "tcp6") && !picks("tcp6", "tcp"));
    // ARP operation and protocol number are different fields, although the key stores both in one octet.
    assert!(!picks("proto=2", "arp,arp_op=reply") && picks("arp,arp_op=reply", "arp,arp_op=reply"));
    assert!(!picks("dst_port=0", "icmp,icmp_type=8,icmp_code=0"));
    assert!(!picks("icmp_type=8", "udp,src_port=8"));
    assert!(
        picks("ip_src=10.0.0.0/8", "udp,ip_src=10.255.0.1")
            && !picks("ip_src=10.0.0.0/8", "udp,ip_src=11.0.0.1")
    );
    assert!(picks("ip_src=10.0.0.1/255.0.0.255", "udp,ip_src=10.9.9.1"));
    assert!(picks("ip_dst=2001:db8::/32", "udp6,ip_dst=2001:db8::9") && !picks("ip_dst=::/0", "udp"));
    assert!(picks("ip_dst=0.0.0.0/0", "udp") && !picks("ip_dst=0.0.0.0/0", "arp"));
    assert!(picks("vlan=none", "udp") && !picks("vlan=none", "udp,vlan=0"));
    assert!(picks("vlan=0", "udp,vlan=0") && !picks("vlan=0", "udp"));
    assert!(picks("vlan=any", "udp,vlan=9") && !picks("vlan=any", "udp"));
    assert!(picks("vlan=9,pcp=3", "udp,vlan=9,pcp=3") && !picks("pcp=3", "udp,vlan=9,pcp=2"));
    assert!(picks("eth_dst=01:00:00:00:00:00/01:00:00:00:00:00", "arp"));
    assert!(picks("tcp_flags=+syn-ack", "tcp") && !picks("tcp_flags=+syn-ack", "tcp,tcp_flags=syn+ack"));
    assert!(picks("dst_port=0x1000/0xf000", "udp,dst_port=0x1abc"));
    assert!(picks("frag=first", "udp,frag=first") && !picks("frag=first", "udp,frag=later"));
    assert!(picks("frag=none", "udp") && picks("frag=any", "udp,frag=later"));
}

/// A condition in two forms: as filter text, and as a closure that checks a flow key.
type Condition = (String, Box<dyn Fn(&FlowKey) -> bool>);

fn is_ip(key: &FlowKey) -> bool {
    matches!(key.l3_kind(), L3Kind::Ipv4 | L3Kind::Ipv6)
}

fn has_ports(key: &FlowKey) -> bool {
    is_ip(key) && matches!(key.proto(), 6 | 17 | 132) && !key.is_later_fragment()
}

/// Returns conditions that compare fields of a key with the fields of `like`. A key that is similar to `like` meets
/// many of these conditions, so that both results of a filter are tested.
fn conditions(like: FlowKey) -> Vec<Condition> {
    let (src, dst, port, vid) = (like.eth_src(), like.ipv4_dst(), like.dst_port(), like.outer_tci() & 0xfff);
    let (proto, ttl, src6) = (like.proto(), like.ttl(), like.ipv6_src());
    let mut list: Vec<Condition> = vec![
        (format!("eth_src={src}"), Box::new(move |key| key.eth_src() == src)),
        (format!("eth_type={}", like.eth_type()), Box::new(move |key| key.eth_type() == like.eth_type())),
        (format!("proto={proto}"), Box::new(move |key| is_ip(key) && key.proto() == proto)),
        (format!("ttl={ttl}"), Box::new(move |key| is_ip(key) && key.ttl() == ttl)),
        ("frag=any".into(), Box::new(|key| is_ip(key) && key.is_fragment())),
        ("vlan=none".into(), Box::new(|key| !key.is_tagged())),
        ("vlan=any".into(), Box::new(|key| key.is_tagged())),
        (format!("dst_port={port}"), Box::new(move |key| has_ports(key) && key.dst_port() == port)),
        (format!("src_port={}/0xff00", like.src_port()), {
            let high = like.src_port() >> 8;
            Box::new(move |key| has_ports(key) && key.src_port() >> 8 == high)
        }),
        (format!("ip_dst={dst}/12"), {
            let net = u32::from(dst) >> 20;
            Box::new(move |key| key.l3_kind() == L3Kind::Ipv4 && u32::from(key.ipv4_dst()) >> 20 == net)
        }),
        (format!("ip_src={src6}/65"), {
            let net = u128::from(src6) >> 63;
            Box::new(move |key| key.l3_kind() == L3Kind::Ipv6 && u128::from(key.ipv6_src()) >> 63 == net)
        }),
        ("ip".into(), Box::new(|key| key.l3_kind() == L3Kind::Ipv4)),
        ("arp".into(), Box::new(|key| key.l3_kind() == L3Kind::Arp)),
        ("udp".into(), Box::new(|key| is_ip(key) && key.proto() == 17)),
    ];
    if vid < 4095 {
        let text = format!("vlan={vid}");
        list.push((text, Box::new(move |key| key.is_tagged() && key.outer_tci() & 0xfff == vid)));
    }
    list
}

proptest! {
    #[test]
    fn filters_agree_with_a_naive_reading(
        (like, other) in (frame(), frame()),
        picks in proptest::collection::vec(any::<prop::sample::Index>(), 1..4),
    ) {
        let key = |frame: &[u8]| {
            let mut key = FlowKey::ZERO;
            FlowKey::extract(frame, frame.len(), PortId(1), &mut key).ok().map(|_| key)
        };
        if let (Some(like), Some(other)) = (key(&like), key(&other)) {
            let list = conditions(like);
            let chosen: Vec<&Condition> = picks.iter().map(|pick| &list[pick.index(list.len())]).collect();
            let text: Vec<&str> = chosen.iter().map(|(text, _)| text.as_str()).collect();
            for key in [like, other] {
                let naive = chosen.iter().all(|(_, holds)| holds(&key));
                match Filter::parse(&text.join(",")) {
                    Ok(filter) => prop_assert_eq!(filter.matches(&key), naive, "{:?} on {}", text, key),
                    // If the text is refused as contradictory, the conditions must not match the key either.
                    Err(TextError::Conflict { .. }) => prop_assert!(!naive, "{:?} refused but holds for {}", text, key),
                    Err(TextError::Repeated { .. }) => {}
                    Err(error) => prop_assert!(false, "{text:?}: {error}"),
                }
            }
        }
    }

    /// Checks that the text form of a key is a valid filter, and that the key matches this filter.
    #[test]
    fn a_key_passes_the_filter_that_it_prints(frame in frame()) {
        let mut key = FlowKey::ZERO;
        if FlowKey::extract(&frame, frame.len(), PortId(3), &mut key).is_ok() && key.inner_tci() & 0xfff != 0xfff {
            let text = key.to_string();
            let filter = Filter::parse(&text).map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
            prop_assert!(filter.matches(&key), "{}", text);
        }
    }

    /// Checks that the text form of a key contains no ICMP type for a packet with ICMPv6 over IPv4, because the key has
    /// no such type. (Regression test: the text form contained a type.)
    #[test]
    fn icmpv6_over_ipv4_prints_no_type(kind: u8) {
        let frame = packet::build::PacketBuilder::eth(MacAddr::ZERO, MacAddr::ZERO)
            .ipv4([0; 4], [0; 4])
            .proto(58)
            .payload(&[kind; 8])
            .build();
        let mut key = FlowKey::ZERO;
        FlowKey::extract(&frame, frame.len(), PortId(0), &mut key).unwrap();
        prop_assert!(!key.to_string().contains("icmp_type"));
    }

    #[test]
    fn no_text_panics(text in "[a-z_=,0-9.:/+x -]{0,60}") {
        let _ = spec::parse(&text);
        let _ = Filter::parse(&text);
    }

    /// Checks that the parsers do not panic on texts that consist of real field names and unusual values. Such texts
    /// reach more of the parser's code than random characters.
    #[test]
    fn no_likely_text_panics(
        items in proptest::collection::vec(
            (prop::sample::select(vec![
                "eth_src", "eth_type", "vlan", "pcp", "ip_src", "ip_dst", "proto", "frag", "src_port", "tcp_flags",
                "icmp_type", "arp_op", "arp_spa", "len", "tcp", "arp", "ip6", "hex:",
            ]),
            prop::sample::select(vec![
                "", "=", "=0", "=1", "=65535", "=10.0.0.1", "=::1", "=10.0.0.1/8", "=::/129", "=syn+", "=+-", "=first",
                "=02:00:00:00:00:01", "=14", "=0x", "=none",
            ])),
            0..6,
        ),
    ) {
        let text: Vec<String> = items.iter().map(|(name, value)| format!("{name}{value}")).collect();
        let _ = Filter::parse(&text.join(","));
        if let Ok(frame) = spec::parse(&text.join(",")) {
            prop_assert!(frame.len() >= 14 || text[0].starts_with("hex"));
        }
    }
}
