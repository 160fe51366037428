//! Generates frames for property tests: all kinds of frames that the builder supports, intact or damaged.

#![allow(dead_code, reason = "each test binary uses its part")]

use packet::MacAddr;
use packet::build::{ArpRepr, IcmpRepr, Icmpv6Repr, IgmpRepr, MldRepr, PacketBuilder, at};
use proptest::collection::vec;
use proptest::prelude::*;

pub fn mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(MacAddr)
}

/// Generates a list of zero to two VLAN tags. Each tag is a customer tag or a service tag.
pub fn tags() -> impl Strategy<Value = Vec<(u16, u8, bool)>> {
    vec((0u16..4095, 0u8..8, any::<bool>()), 0..=2)
}

fn l2(src: MacAddr, dst: MacAddr, tags: &[(u16, u8, bool)]) -> PacketBuilder<'static, at::L2> {
    tags.iter().fold(PacketBuilder::eth(src, dst), |frame, (vid, pcp, service)| {
        if *service { frame.service_vlan(*vid).pcp(*pcp) } else { frame.vlan(*vid).pcp(*pcp) }
    })
}

/// Upper-layer header and payload of an IP packet.
#[derive(Clone, Copy, Debug)]
pub enum Upper {
    Tcp(u16, u16, u16),
    Udp(u16, u16),
    Sctp(u16, u16),
    Icmp(u8, u8),
    Group(u8),
    Other(u8),
}

pub fn upper() -> impl Strategy<Value = Upper> {
    prop_oneof![
        any::<(u16, u16, u16)>().prop_map(|(a, b, c)| Upper::Tcp(a, b, c & 0xfff)),
        any::<(u16, u16)>().prop_map(|(a, b)| Upper::Udp(a, b)),
        any::<(u16, u16)>().prop_map(|(a, b)| Upper::Sctp(a, b)),
        any::<(u8, u8)>().prop_map(|(a, b)| Upper::Icmp(a, b)),
        (0u8..3).prop_map(Upper::Group),
        any::<u8>().prop_map(Upper::Other),
    ]
}

#[derive(Clone, Debug)]
pub struct Ip4 {
    pub src: [u8; 4],
    pub dst: [u8; 4],
    pub tos: u8,
    pub ttl: u8,
    pub fragment: Option<(u16, bool)>,
    pub options: Vec<u8>,
}

/// Generates a fragment offset in units of 8 octets, often 0.
fn units() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0), 1u16..100]
}

pub fn ip4() -> impl Strategy<Value = Ip4> {
    let fragment = proptest::option::weighted(0.3, (units(), any::<bool>()));
    let options = prop_oneof![4 => Just(vec![]), 1 => vec(any::<u8>(), 0..=40)];
    (any::<[u8; 4]>(), any::<[u8; 4]>(), any::<u8>(), any::<u8>(), fragment, options).prop_map(
        |(src, dst, tos, ttl, fragment, options)| Ip4 {
            src,
            dst,
            tos,
            ttl,
            fragment: fragment.map(|(units, more)| (units * 8, more)),
            options,
        },
    )
}

pub fn frame_ipv4() -> impl Strategy<Value = Vec<u8>> {
    (mac(), mac(), tags(), ip4(), upper(), vec(any::<u8>(), 0..64), any::<bool>()).prop_map(
        |(src, dst, tags, ip, upper, payload, padded)| {
            let packet =
                l2(src, dst, &tags).ipv4(ip.src, ip.dst).tos(ip.tos).ttl(ip.ttl).options(&ip.options);
            let packet = ip.fragment.map_or(packet, |(offset, more)| packet.fragment(offset, more));
            let pad = if padded { 60 } else { 0 };
            if ip.fragment.is_some_and(|(offset, _)| offset != 0) {
                return packet.proto(17).payload(&payload).pad_to(pad).build();
            }
            match upper {
                Upper::Tcp(a, b, flags) => {
                    packet.tcp(a, b).flags(flags).payload(&payload).pad_to(pad).build()
                }
                Upper::Udp(a, b) => packet.udp(a, b).payload(&payload).pad_to(pad).build(),
                Upper::Sctp(a, b) => packet.sctp(a, b).payload(&payload).pad_to(pad).build(),
                Upper::Icmp(kind, code) => {
                    packet.icmp(IcmpRepr { kind, code, rest: [0; 4] }).payload(&payload).pad_to(pad).build()
                }
                Upper::Group(n) => {
                    let kind = [0x11, 0x16, 0x22][usize::from(n)];
                    let message = IgmpRepr { kind, max_resp: 9, group: ip.dst.into() };
                    packet.igmp(message).payload(&payload).pad_to(pad).build()
                }
                Upper::Other(proto) => packet.proto(proto).payload(&payload).pad_to(pad).build(),
            }
        },
    )
}

pub fn frame_ipv6() -> impl Strategy<Value = Vec<u8>> {
    let fragment = proptest::option::weighted(0.3, (units(), any::<bool>()));
    (
        (mac(), mac(), tags()),
        (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<u8>(), any::<u8>()),
        (fragment, 0usize..4),
        upper(),
        vec(any::<u8>(), 0..64),
    )
        .prop_map(|((src, dst, tags), (from, to, class, hops), (fragment, alerts), upper, payload)| {
            let mut packet = l2(src, dst, &tags).ipv6(from, to).tos(class).ttl(hops);
            for _ in 0..alerts {
                packet = packet.router_alert();
            }
            if let Some((units, more)) = fragment {
                packet = packet.fragment(units * 8, more, 7);
                if units != 0 {
                    return packet.proto(6).payload(&payload).build();
                }
            }
            match upper {
                Upper::Tcp(a, b, flags) => packet.tcp(a, b).flags(flags).payload(&payload).build(),
                Upper::Udp(a, b) => packet.udp(a, b).payload(&payload).build(),
                Upper::Sctp(a, b) => packet.sctp(a, b).payload(&payload).build(),
                Upper::Icmp(kind, code) => {
                    packet.icmpv6(Icmpv6Repr { kind, code, rest: [1; 4] }).payload(&payload).build()
                }
                Upper::Group(n) => packet
                    .mld(MldRepr { kind: 130 + n, max_resp: 5, group: to.into() })
                    .payload(&payload)
                    .build(),
                Upper::Other(proto) => packet.proto(proto).payload(&payload).build(),
            }
        })
}

pub fn frame_arp() -> impl Strategy<Value = Vec<u8>> {
    (mac(), mac(), tags(), any::<u16>(), any::<[u8; 4]>(), any::<[u8; 4]>()).prop_map(
        |(src, dst, tags, operation, a, b)| {
            let message = ArpRepr {
                operation,
                sender_mac: src,
                sender_ip: a.into(),
                target_mac: dst,
                target_ip: b.into(),
            };
            l2(src, dst, &tags).arp(message).pad_to(60).build()
        },
    )
}

/// Generates an intact frame of any kind, including LLC frames and unknown EtherTypes.
pub fn frame() -> impl Strategy<Value = Vec<u8>> {
    let other = (mac(), mac(), tags(), prop_oneof![any::<u16>(), 0u16..1600], vec(any::<u8>(), 0..80))
        .prop_map(|(src, dst, tags, kind, payload)| {
            l2(src, dst, &tags).ethertype(kind).payload(&payload).build()
        });
    prop_oneof![4 => frame_ipv4(), 4 => frame_ipv6(), 1 => frame_arp(), 1 => other]
}

/// Generates a frame in which some bytes may have been changed, and which may be truncated. Most of these frames still
/// have upper-layer headers.
pub fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>());
    (frame(), vec(change, 0..4), proptest::option::weighted(0.4, any::<prop::sample::Index>())).prop_map(
        |(mut frame, changes, cut)| {
            for (place, byte) in changes {
                let place = place.index(frame.len());
                frame[place] = byte;
            }
            if let Some(cut) = cut {
                frame.truncate(cut.index(frame.len() + 1));
            }
            frame
        },
    )
}
