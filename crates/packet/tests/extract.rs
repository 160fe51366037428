//! Compares the flow key with the key of a slow reference implementation, which parses the frame with the header
//! parsers of this crate.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod frames;

use frames::{damaged, frame};
use packet::arp::Arp;
use packet::eth::Eth;
use packet::flow_key::{FRAGMENT_ANY, FRAGMENT_LATER};
use packet::icmp::Icmp;
use packet::icmpv6::Icmpv6;
use packet::ipv4::Ipv4;
use packet::ipv6::Ipv6;
use packet::sctp::Sctp;
use packet::tcp::Tcp;
use packet::vlan::Tags;
use packet::{DropReason, FlowKey, HeaderError, L3Kind, Layers, PortId, ethertype, ip_proto};
use proptest::prelude::*;

/// Result of the reference implementation: the key, and the reason why parsing stopped.
#[derive(Debug)]
struct Slow {
    key: FlowKey,
    l2_len: usize,
    l3: Option<usize>,
    l4: Option<usize>,
    malformed: Option<DropReason>,
    multicast_control: bool,
    extensions: bool,
    options: bool,
}

fn slow(frame: &[u8], port: PortId) -> Result<Slow, HeaderError> {
    let mut key = FlowKey::ZERO;
    let eth = Eth::parse(frame)?;
    key.set_in_port(port);
    key.set_eth_dst(eth.dst());
    key.set_eth_src(eth.src());
    let mut tags = Tags::of(&eth);
    if let Some(tag) = tags.next() {
        let (tpid, tag) = tag?;
        if tag.vid() == 4095 {
            let reason = DropReason::VlanReservedId;
            return Err(HeaderError::BadField { reason, field: "VID", value: 4095 });
        }
        key.set_outer_tag(Some(tag.tci()), tpid == ethertype::SERVICE_VLAN);
        if let Some(tag) = tags.next() {
            let (tpid, tag) = tag?;
            key.set_inner_tag(Some(tag.tci()), tpid == ethertype::SERVICE_VLAN);
        }
    }
    let (mut kind, mut payload) = (tags.ethertype(), tags.payload());
    if kind < 0x600 {
        kind = 0x05ff;
        if let Some(inner) = payload.strip_prefix(&[0xaa, 0xaa, 3, 0, 0, 0])
            && let Some((kind_bytes, rest)) = inner.split_first_chunk::<2>()
            && u16::from_be_bytes(*kind_bytes) >= 0x600
        {
            (kind, payload) = (u16::from_be_bytes(*kind_bytes), rest);
        }
    }
    key.set_eth_type(kind);
    let l2_len = frame.len() - payload.len();
    let mut slow = Slow {
        key,
        l2_len,
        l3: None,
        l4: None,
        malformed: None,
        multicast_control: false,
        extensions: false,
        options: false,
    };
    let outcome = match kind {
        ethertype::IPV4 => slow.ipv4(payload),
        ethertype::IPV6 => slow.ipv6(payload),
        ethertype::ARP | ethertype::RARP => slow.arp(payload),
        _ => Ok(()),
    };
    slow.malformed = outcome.err().map(HeaderError::reason);
    Ok(slow)
}

impl Slow {
    fn ipv4(&mut self, bytes: &[u8]) -> Result<(), HeaderError> {
        let ip = Ipv4::parse(bytes)?;
        self.l3 = Some(self.l2_len);
        self.options = !ip.option_bytes().is_empty();
        self.key.set_l3_kind(L3Kind::Ipv4);
        self.key.set_ipv4_src(ip.src());
        self.key.set_ipv4_dst(ip.dst());
        self.key.set_proto(ip.proto());
        self.key.set_tos(ip.tos());
        self.key.set_ttl(ip.ttl());
        self.fragment(ip.is_fragment(), ip.fragment_offset() != 0);
        self.multicast_control = ip.proto() == ip_proto::IGMP;
        self.l4(ip.payload(), self.l2_len + ip.header_len())
    }

    fn ipv6(&mut self, bytes: &[u8]) -> Result<(), HeaderError> {
        let ip = Ipv6::parse(bytes)?;
        self.l3 = Some(self.l2_len);
        self.key.set_l3_kind(L3Kind::Ipv6);
        self.key.set_ipv6_src(ip.src());
        self.key.set_ipv6_dst(ip.dst());
        self.key.set_tos(ip.traffic_class());
        self.key.set_ttl(ip.hop_limit());
        self.key.set_proto(ip.next_header());
        self.extensions = packet::ipv6_ext::is_extension(ip.next_header());
        for extension in ip.extensions() {
            let extension = extension?;
            self.key.set_proto(extension.bytes[0]);
            if let Some(header) = extension.fragment().filter(|header| header.is_fragment()) {
                self.fragment(true, header.offset() != 0);
            }
        }
        let upper = ip.upper()?;
        assert_eq!(upper.proto, self.key.proto());
        let offset = self.l2_len + 40 + ip.payload().len() - upper.payload.len();
        self.l4(upper.payload, offset)
    }

    fn arp(&mut self, bytes: &[u8]) -> Result<(), HeaderError> {
        // ARP for a protocol other than IPv4 over Ethernet is not an error, because the key has no fields for such a
        // message.
        if bytes.get(..4).is_some_and(|head| head != [0, 1, 8, 0]) && bytes.len() >= 8 {
            return Ok(());
        }
        if let Some(head) = bytes.get(..8)
            && head[4..6] != [6, 4]
        {
            let reason = DropReason::ArpBadField;
            return Err(HeaderError::BadField { reason, field: "lengths", value: 0 });
        }
        let arp = Arp::parse(bytes)?;
        self.l3 = Some(self.l2_len);
        self.key.set_l3_kind(L3Kind::Arp);
        self.key.set_proto(u8::try_from(arp.operation()).unwrap_or(0));
        self.key.set_ipv4_src(arp.sender_ip());
        self.key.set_ipv4_dst(arp.target_ip());
        Ok(())
    }

    fn fragment(&mut self, any: bool, later: bool) {
        let bits = if any { FRAGMENT_ANY } else { 0 } | if later { FRAGMENT_LATER } else { 0 };
        self.key.set_fragment_bits(self.key.fragment_bits() | bits);
    }

    fn l4(&mut self, bytes: &[u8], offset: usize) -> Result<(), HeaderError> {
        if self.key.is_later_fragment() {
            return Ok(());
        }
        let truncated = |reason| HeaderError::Truncated { reason, need: 8, have: bytes.len() };
        match (self.key.proto(), self.key.l3_kind()) {
            (ip_proto::TCP, _) => {
                let tcp = Tcp::parse(bytes)?;
                self.ports(tcp.src_port(), tcp.dst_port());
                self.key.set_tcp_flags(tcp.flags());
            }
            (ip_proto::UDP, _) => {
                // The length field is not checked for the key. The ports are valid with any length.
                let head = bytes.get(..8).ok_or(truncated(DropReason::UdpTruncated))?;
                self.ports(u16::from_be_bytes([head[0], head[1]]), u16::from_be_bytes([head[2], head[3]]));
            }
            (ip_proto::SCTP, _) => {
                let sctp = Sctp::parse(bytes)?;
                self.ports(sctp.src_port(), sctp.dst_port());
            }
            (ip_proto::ICMP, L3Kind::Ipv4) => {
                let icmp = Icmp::parse(bytes)?;
                self.ports(icmp.kind().into(), icmp.code().into());
            }
            (ip_proto::IGMP, L3Kind::Ipv4) => {
                let head = bytes.get(..8).ok_or(truncated(DropReason::IgmpTruncated))?;
                self.ports(head[0].into(), head[1].into());
            }
            (ip_proto::ICMPV6, L3Kind::Ipv6) => {
                let icmp = Icmpv6::parse(bytes)?;
                self.ports(icmp.kind().into(), icmp.code().into());
                self.multicast_control = matches!(icmp.kind(), 130..=132 | 143);
            }
            _ => {}
        }
        self.l4 = Some(offset);
        Ok(())
    }

    fn ports(&mut self, src: u16, dst: u16) {
        self.key.set_src_port(src);
        self.key.set_dst_port(dst);
    }
}

fn agree(frame: &[u8]) -> Result<(), TestCaseError> {
    let port = PortId(0x1234);
    // The previous memory content must not show in the key.
    let mut key = FlowKey::from_words([u64::MAX; 8]);
    let layers = FlowKey::extract(frame, frame.len(), port, &mut key);
    let mut light = FlowKey::from_words([u64::MAX; 8]);
    let light_layers = FlowKey::extract_l2(frame, port, &mut light);
    match slow(frame, port) {
        Err(error) => {
            prop_assert_eq!(layers, Err(error.reason()));
            prop_assert_eq!(light_layers, Err(error.reason()));
        }
        Ok(slow) => {
            let layers = layers.expect("the views read it");
            prop_assert_eq!(key, slow.key, "{:?} {:?}", layers, slow);
            same_layers(&layers, &slow)?;
            let l2_words =
                [light.words()[0] & !0xff00_0000, light.words()[1], light.words()[2] & 0xffff_ffff_ffff];
            let full_words =
                [key.words()[0] & !0xff00_0000, key.words()[1], key.words()[2] & 0xffff_ffff_ffff];
            prop_assert_eq!(l2_words, full_words);
            prop_assert_eq!(light_layers.map(|layers| layers.l2_len()), Ok(slow.l2_len));
        }
    }
    Ok(())
}

fn same_layers(layers: &Layers, slow: &Slow) -> Result<(), TestCaseError> {
    prop_assert_eq!(layers.l2_len(), slow.l2_len);
    prop_assert_eq!(layers.l3(), slow.l3);
    prop_assert_eq!(layers.l4(), slow.l4);
    prop_assert_eq!(layers.malformed(), slow.malformed);
    prop_assert_eq!(layers.is_fragment(), slow.key.is_fragment());
    prop_assert_eq!(layers.is_later_fragment(), slow.key.is_later_fragment());
    prop_assert_eq!(layers.is_multicast_control(), slow.multicast_control);
    prop_assert_eq!(layers.has_ipv6_extensions(), slow.extensions);
    prop_assert_eq!(layers.has_ipv4_options(), slow.options);
    Ok(())
}

proptest! {
    #[test]
    fn whole_frames_are_read_alike(frame in frame()) {
        agree(&frame)?;
    }

    #[test]
    fn damaged_frames_are_read_alike(frame in damaged()) {
        agree(&frame)?;
    }

    #[test]
    fn every_truncation_is_read_alike(frame in frame()) {
        for len in 0..frame.len() {
            agree(&frame[..len])?;
        }
    }

    #[test]
    fn random_bytes_are_read_alike(frame in proptest::collection::vec(any::<u8>(), 0..128), kind in 0usize..5) {
        let mut frame = frame;
        let kinds: [&[u8]; 5] = [&[8, 0], &[8, 0, 0x45], &[0x86, 0xdd, 0x60], &[0x81, 0], &[8, 6]];
        if let Some(place) = frame.get_mut(12..12 + kinds[kind].len()) {
            place.copy_from_slice(kinds[kind]);
        }
        agree(&frame)?;
    }

    /// Checks that the first segment of a longer frame is sufficient to extract the key of the whole frame.
    #[test]
    fn the_first_segment_is_enough(
        (ports, len) in (any::<(u16, u16)>(), 200usize..9000),
        head in 128usize..200,
        v6: bool,
    ) {
        let (a, b) = (packet::MacAddr([2; 6]), packet::MacAddr([4; 6]));
        let payload = vec![7; len];
        let start = packet::build::PacketBuilder::eth(a, b).vlan(9);
        let frame = if v6 {
            start.ipv6([1; 16], [2; 16]).router_alert().tcp(ports.0, ports.1).payload(&payload).build()
        } else {
            start.ipv4([1; 4], [2; 4]).options(&[1; 40]).udp(ports.0, ports.1).payload(&payload).build()
        };
        let (mut whole, mut part) = (FlowKey::ZERO, FlowKey::ZERO);
        let whole_layers = FlowKey::extract(&frame, frame.len(), PortId(1), &mut whole);
        let part_layers = FlowKey::extract(&frame[..head], frame.len(), PortId(1), &mut part);
        prop_assert_eq!(whole, part);
        prop_assert_eq!(whole_layers, part_layers);
        prop_assert_eq!(whole_layers.unwrap().malformed(), None);
        // If the total length is that of the first bytes only, the packet is truncated.
        let cut = FlowKey::extract(&frame[..head], head, PortId(1), &mut part).unwrap();
        prop_assert!(cut.malformed().is_some());
    }

    #[test]
    fn the_hash_is_the_same_for_both_directions(frame in frame()) {
        let mut key = FlowKey::ZERO;
        if let Ok(layers) = FlowKey::extract(&frame, frame.len(), PortId(1), &mut key) {
            let mut back = key;
            back.set_eth_src(key.eth_dst());
            back.set_eth_dst(key.eth_src());
            back.set_ipv6_src(key.ipv6_dst());
            back.set_ipv6_dst(key.ipv6_src());
            back.set_src_port(key.dst_port());
            back.set_dst_port(key.src_port());
            prop_assert_eq!(key.hash_symmetric(), back.hash_symmetric());
            if layers.is_fragment() {
                back.set_src_port(9);
                back.set_fragment_bits(FRAGMENT_ANY | FRAGMENT_LATER);
                prop_assert_eq!(key.hash_symmetric(), back.hash_symmetric());
            }
        }
    }
}

#[test]
fn more_extension_headers_than_the_limit_are_malformed() {
    let (a, b) = (packet::MacAddr([2; 6]), packet::MacAddr([4; 6]));
    let chain = |count| {
        let start = packet::build::PacketBuilder::eth(a, b).ipv6([1; 16], [2; 16]);
        let frame = (0..count).fold(start, |packet, _| packet.router_alert()).udp(1, 2).build();
        let mut key = FlowKey::ZERO;
        let layers = FlowKey::extract(&frame, frame.len(), PortId(1), &mut key).unwrap();
        (layers.malformed(), key.dst_port())
    };
    assert_eq!(chain(8), (None, 2));
    assert_eq!(chain(9), (Some(DropReason::Ipv6ExtTooMany), 0));
}

fn extracted(frame: &[u8]) -> (FlowKey, Layers) {
    agree(frame).unwrap();
    let mut key = FlowKey::ZERO;
    let layers = FlowKey::extract(frame, frame.len(), PortId(1), &mut key).unwrap();
    (key, layers)
}

#[test]
fn a_tcp_header_past_the_end_has_no_ports() {
    let (a, b) = (packet::MacAddr([2; 6]), packet::MacAddr([4; 6]));
    // The TCP segment has 24 bytes, and its data offset is set to 24 (valid), 28 (beyond the end) and 16 (too small).
    // The frame is unpadded at first, and then padded to 80 bytes.
    for pad in [0, 80] {
        let mut frame = packet::build::PacketBuilder::eth(a, b)
            .ipv4([1; 4], [2; 4])
            .tcp(5, 6)
            .payload(&[0; 4])
            .pad_to(pad)
            .build();
        frame[46] = 0x60;
        assert_eq!(extracted(&frame).1.malformed(), None);
        frame[46] = 0x70;
        let (key, layers) = extracted(&frame);
        assert_eq!((layers.malformed(), key.src_port()), (Some(DropReason::TcpBadHeader), 0));
        frame[46] = 0x40;
        assert_eq!(extracted(&frame).1.malformed(), Some(DropReason::TcpBadHeader));
    }
}

#[test]
fn an_extension_header_may_not_reach_into_padding() {
    let (a, b) = (packet::MacAddr([2; 6]), packet::MacAddr([4; 6]));
    let frame = |len: u8| {
        let mut frame = packet::build::PacketBuilder::eth(a, b)
            .ipv6([1; 16], [2; 16])
            .router_alert()
            .proto(59)
            .payload(&[0; 8])
            .pad_to(90)
            .build();
        frame[54..56].copy_from_slice(&[59, 1]);
        frame[19] = len;
        frame
    };
    assert_eq!(extracted(&frame(16)).1.malformed(), None);
    assert_eq!(extracted(&frame(15)).1.malformed(), Some(DropReason::Ipv6ExtTruncated));
}

#[test]
fn snap_gives_the_type_only_if_it_is_one() {
    let frame = |high: u8| {
        let payload = [0xaa, 0xaa, 3, 0, 0, 0, high, 0xff];
        let (a, b) = (packet::MacAddr([2; 6]), packet::MacAddr([4; 6]));
        packet::build::PacketBuilder::eth(a, b).ethertype(8).payload(&payload).build()
    };
    let seen = |high| (extracted(&frame(high)).0.eth_type(), extracted(&frame(high)).1.l2_len());
    assert_eq!(seen(6), (0x06ff, 22));
    assert_eq!(seen(5), (ethertype::LLC, 14));
}
