//! What can be said at each position of the chain.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{ArpRepr, FragmentRepr, IcmpRepr, Icmpv6Repr, IgmpRepr, Ipv4Repr, Ipv6Repr, Layer, MldRepr};
use super::{NeighbourRepr, Options, PacketBuilder, SctpRepr, TcpRepr, UdpRepr, VlanRepr, VxlanRepr, at};
use crate::{MacAddr, icmpv6, tcp};

impl<'p> PacketBuilder<'p, at::L2> {
    /// A customer tag (0x8100) with this VLAN identifier.
    pub fn vlan(self, vid: u16) -> Self {
        self.push(Layer::Vlan(VlanRepr { vid, ..VlanRepr::default() }, false))
    }

    /// A service tag (0x88a8) with this VLAN identifier.
    pub fn service_vlan(self, vid: u16) -> Self {
        self.push(Layer::Vlan(VlanRepr { vid, ..VlanRepr::default() }, true))
    }

    /// The priority of the tag just added, 0..=7; nothing without a tag.
    pub fn pcp(mut self, pcp: u8) -> Self {
        if let Some(Layer::Vlan(tag, _)) = self.last() {
            tag.pcp = pcp;
        }
        self
    }

    /// The type field of the header just added, where what follows does not say it.
    pub fn ethertype(mut self, ethertype: u16) -> PacketBuilder<'p, at::End> {
        match self.last() {
            Some(Layer::Eth(eth)) => eth.ethertype = ethertype,
            Some(Layer::Vlan(tag, _)) => tag.ethertype = ethertype,
            _ => {}
        }
        self.retag()
    }

    /// An ARP message.
    pub fn arp(self, message: ArpRepr) -> PacketBuilder<'p, at::End> {
        self.push(Layer::Arp(message))
    }

    /// An IPv4 header with TTL 64; the protocol follows from what comes next.
    pub fn ipv4(self, src: impl Into<Ipv4Addr>, dst: impl Into<Ipv4Addr>) -> PacketBuilder<'p, at::Ipv4> {
        self.push(Layer::Ipv4(Ipv4Repr {
            src: src.into(),
            dst: dst.into(),
            proto: UNSET,
            ..Ipv4Repr::default()
        }))
    }

    /// An IPv6 header with hop limit 64; the next header follows from what comes next.
    pub fn ipv6(self, src: impl Into<Ipv6Addr>, dst: impl Into<Ipv6Addr>) -> PacketBuilder<'p, at::Ipv6> {
        let (src, dst) = (src.into(), dst.into());
        self.push(Layer::Ipv6(Ipv6Repr { src, dst, next_header: UNSET, ..Ipv6Repr::default() }))
    }
}

/// Protocol 255 is reserved, and stands here for "as the next layer says".
pub(super) const UNSET: u8 = 255;

impl<'p> PacketBuilder<'p, at::Ipv4> {
    fn ip(mut self, change: impl FnOnce(&mut Ipv4Repr)) -> Self {
        if let Some(Layer::Ipv4(ip)) = self.last() {
            change(ip);
        }
        self
    }

    /// Time to live.
    pub fn ttl(self, ttl: u8) -> Self {
        self.ip(|ip| ip.ttl = ttl)
    }

    /// DSCP and ECN.
    pub fn tos(self, tos: u8) -> Self {
        self.ip(|ip| ip.tos = tos)
    }

    /// Identification.
    pub fn id(self, id: u16) -> Self {
        self.ip(|ip| ip.id = id)
    }

    /// Forbids routers to fragment the packet.
    pub fn dont_fragment(self) -> Self {
        self.ip(|ip| ip.dont_fragment = true)
    }

    /// Makes the packet a fragment: `offset` in octets (a multiple of 8), and whether more follow.
    ///
    /// Behind an offset other than 0 no L4 header belongs; use [`PacketBuilder::proto`] and a payload.
    pub fn fragment(self, offset: u16, more: bool) -> Self {
        self.ip(|ip| (ip.fragment_offset, ip.more_fragments) = (offset, more))
    }

    /// Options; more than 40 bytes are left out.
    pub fn options(self, bytes: &[u8]) -> Self {
        self.ip(|ip| ip.options = Options::new(bytes).unwrap_or_default())
    }

    /// A payload of this protocol without a header of its own here.
    pub fn proto(self, proto: u8) -> PacketBuilder<'p, at::End> {
        self.ip(|ip| ip.proto = proto).retag()
    }

    /// An ICMP message.
    pub fn icmp(self, message: IcmpRepr) -> PacketBuilder<'p, at::End> {
        self.push(Layer::Icmp(message))
    }

    /// An IGMP message.
    pub fn igmp(self, message: IgmpRepr) -> PacketBuilder<'p, at::End> {
        self.push(Layer::Igmp(message))
    }
}

impl<'p> PacketBuilder<'p, at::Ipv6> {
    fn ip(mut self, change: impl Fn(&mut Ipv6Repr)) -> Self {
        for layer in self.layers.iter_mut().rev().flatten() {
            if let Layer::Ipv6(ip) = layer {
                change(ip);
                break;
            }
        }
        self
    }

    /// Hop limit.
    pub fn ttl(self, hop_limit: u8) -> Self {
        self.ip(|ip| ip.hop_limit = hop_limit)
    }

    /// DSCP and ECN.
    pub fn tos(self, traffic_class: u8) -> Self {
        self.ip(|ip| ip.traffic_class = traffic_class)
    }

    /// Flow label, 20 bits.
    pub fn flow_label(self, label: u32) -> Self {
        self.ip(|ip| ip.flow_label = label)
    }

    /// Hop-by-hop options with a router alert, as MLD has it.
    pub fn router_alert(self) -> Self {
        self.push(Layer::RouterAlert)
    }

    /// A fragment header: `offset` in octets (a multiple of 8), and whether more follow.
    pub fn fragment(self, offset: u16, more: bool, id: u32) -> Self {
        self.push(Layer::Fragment(FragmentRepr { next_header: UNSET, offset, more, id }))
    }

    /// A payload of this protocol without a header of its own here.
    pub fn proto(mut self, proto: u8) -> PacketBuilder<'p, at::End> {
        match self.last() {
            Some(Layer::Ipv6(ip)) => ip.next_header = proto,
            Some(Layer::Fragment(fragment)) => fragment.next_header = proto,
            _ => {}
        }
        self.retag()
    }

    /// An ICMPv6 message of which the first eight bytes are given.
    pub fn icmpv6(self, message: Icmpv6Repr) -> PacketBuilder<'p, at::End> {
        self.push(Layer::Icmpv6(message))
    }

    /// A solicitation for `target` by the owner of `link`; hop limit 255.
    pub fn neighbour_solicit(self, target: Ipv6Addr, link: MacAddr) -> PacketBuilder<'p, at::End> {
        let message = NeighbourRepr { kind: icmpv6::kind::NEIGHBOUR_SOLICIT, flags: 0, target, link };
        self.ttl(255).push(Layer::Neighbour(message))
    }

    /// An advertisement of `target` at `link`; flags 0x80 router, 0x40 solicited, 0x20 override; hop limit 255.
    pub fn neighbour_advert(self, flags: u8, target: Ipv6Addr, link: MacAddr) -> PacketBuilder<'p, at::End> {
        let message = NeighbourRepr { kind: icmpv6::kind::NEIGHBOUR_ADVERT, flags, target, link };
        self.ttl(255).push(Layer::Neighbour(message))
    }

    /// An MLD message of version 1 behind a router alert; hop limit 1.
    pub fn mld(self, message: MldRepr) -> PacketBuilder<'p, at::End> {
        self.ttl(1).router_alert().push(Layer::Mld(message))
    }
}

/// What both IP versions carry.
macro_rules! transports {
    ($at:ty) => {
        impl<'p> PacketBuilder<'p, $at> {
            /// A TCP header with the ACK flag.
            pub fn tcp(self, src_port: u16, dst_port: u16) -> PacketBuilder<'p, at::Tcp> {
                let (flags, window) = (tcp::flags::ACK, 65_535);
                self.push(Layer::Tcp(TcpRepr { src_port, dst_port, flags, window, ..TcpRepr::default() }))
            }

            /// A UDP header.
            pub fn udp(self, src_port: u16, dst_port: u16) -> PacketBuilder<'p, at::Udp> {
                self.push(Layer::Udp(UdpRepr { src_port, dst_port, payload_len: 0 }))
            }

            /// An SCTP common header; chunks are the payload.
            pub fn sctp(self, src_port: u16, dst_port: u16) -> PacketBuilder<'p, at::End> {
                self.push(Layer::Sctp(SctpRepr { src_port, dst_port, tag: 0 }))
            }
        }
    };
}

transports!(at::Ipv4);
transports!(at::Ipv6);

impl PacketBuilder<'_, at::Tcp> {
    fn header(mut self, change: impl FnOnce(&mut TcpRepr)) -> Self {
        if let Some(Layer::Tcp(tcp)) = self.last() {
            change(tcp);
        }
        self
    }

    /// Flags, as in [`tcp::flags`].
    pub fn flags(self, flags: u16) -> Self {
        self.header(|tcp| tcp.flags = flags)
    }

    /// Sequence number.
    pub fn seq(self, seq: u32) -> Self {
        self.header(|tcp| tcp.seq = seq)
    }

    /// Acknowledgement number.
    pub fn ack(self, ack: u32) -> Self {
        self.header(|tcp| tcp.ack = ack)
    }

    /// Receive window.
    pub fn window(self, window: u16) -> Self {
        self.header(|tcp| tcp.window = window)
    }

    /// Options; more than 40 bytes are left out.
    pub fn options(self, bytes: &[u8]) -> Self {
        self.header(|tcp| tcp.options = Options::new(bytes).unwrap_or_default())
    }
}

impl<'p> PacketBuilder<'p, at::Udp> {
    /// A VXLAN header and the Ethernet header of the frame inside.
    pub fn vxlan(self, vni: u32, src: MacAddr, dst: MacAddr) -> PacketBuilder<'p, at::L2> {
        let inside: PacketBuilder<'p, at::L2> = self.push(Layer::Vxlan(VxlanRepr { vni }));
        inside.push(Layer::Eth(super::EthRepr { dst, src, ethertype: 0 }))
    }
}
