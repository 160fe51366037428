//! Methods of the packet builder, grouped by the last header in the chain.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{ArpRepr, FragmentRepr, IcmpRepr, Icmpv6Repr, IgmpRepr, Ipv4Repr, Ipv6Repr, Layer, MldRepr};
use super::{NeighbourRepr, Options, PacketBuilder, SctpRepr, TcpRepr, UdpRepr, VlanRepr, VxlanRepr, at};
use crate::{MacAddr, icmpv6, tcp};

impl<'p> PacketBuilder<'p, at::L2> {
    /// Adds a customer VLAN tag (802.1Q, TPID 0x8100) with this VLAN identifier.
    pub fn vlan(self, vid: u16) -> Self {
        self.push(Layer::Vlan(VlanRepr { vid, ..VlanRepr::default() }, false))
    }

    /// Adds a service VLAN tag (802.1ad, TPID 0x88a8) with this VLAN identifier.
    pub fn service_vlan(self, vid: u16) -> Self {
        self.push(Layer::Vlan(VlanRepr { vid, ..VlanRepr::default() }, true))
    }

    /// Sets the priority code point (PCP, 0..=7) of the last VLAN tag. Does nothing if the last header is not a
    /// VLAN tag.
    pub fn pcp(mut self, pcp: u8) -> Self {
        if let Some(Layer::Vlan(tag, _)) = self.last() {
            tag.pcp = pcp;
        }
        self
    }

    /// Sets the EtherType in the last Ethernet header or VLAN tag, for a payload for which the builder has no
    /// header.
    pub fn ethertype(mut self, ethertype: u16) -> PacketBuilder<'p, at::End> {
        match self.last() {
            Some(Layer::Eth(eth)) => eth.ethertype = ethertype,
            Some(Layer::Vlan(tag, _)) => tag.ethertype = ethertype,
            _ => {}
        }
        self.retag()
    }

    /// Adds an ARP message.
    pub fn arp(self, message: ArpRepr) -> PacketBuilder<'p, at::End> {
        self.push(Layer::Arp(message))
    }

    /// Adds an IPv4 header with TTL 64. The protocol number is derived from the header that follows.
    pub fn ipv4(self, src: impl Into<Ipv4Addr>, dst: impl Into<Ipv4Addr>) -> PacketBuilder<'p, at::Ipv4> {
        self.push(Layer::Ipv4(Ipv4Repr {
            src: src.into(),
            dst: dst.into(),
            proto: UNSET,
            ..Ipv4Repr::default()
        }))
    }

    /// Adds an IPv6 header with hop limit 64. The next-header field is derived from the header that follows.
    pub fn ipv6(self, src: impl Into<Ipv6Addr>, dst: impl Into<Ipv6Addr>) -> PacketBuilder<'p, at::Ipv6> {
        let (src, dst) = (src.into(), dst.into());
        self.push(Layer::Ipv6(Ipv6Repr { src, dst, next_header: UNSET, ..Ipv6Repr::default() }))
    }
}

/// Placeholder for a protocol number that is derived from the header that follows. IANA reserves the number
/// 255.
pub(super) const UNSET: u8 = 255;

impl<'p> PacketBuilder<'p, at::Ipv4> {
    fn ip(mut self, change: impl FnOnce(&mut Ipv4Repr)) -> Self {
        if let Some(Layer::Ipv4(ip)) = self.last() {
            change(ip);
        }
        self
    }

    /// Sets the IPv4 time to live.
    pub fn ttl(self, ttl: u8) -> Self {
        self.ip(|ip| ip.ttl = ttl)
    }

    /// Sets the type of service octet (DSCP and ECN).
    pub fn tos(self, tos: u8) -> Self {
        self.ip(|ip| ip.tos = tos)
    }

    /// Sets the IPv4 identification field.
    pub fn id(self, id: u16) -> Self {
        self.ip(|ip| ip.id = id)
    }

    /// Sets the "don't fragment" flag of the IPv4 header.
    pub fn dont_fragment(self) -> Self {
        self.ip(|ip| ip.dont_fragment = true)
    }

    /// Makes the packet a fragment. `offset` is the fragment offset in octets, a multiple of 8. If `more` is
    /// `true`, the "more fragments" flag is set.
    ///
    /// A packet with an offset other than 0 must not have an L4 header. For such a packet, call
    /// [`PacketBuilder::proto`] and set a payload.
    pub fn fragment(self, offset: u16, more: bool) -> Self {
        self.ip(|ip| (ip.fragment_offset, ip.more_fragments) = (offset, more))
    }

    /// Sets the IPv4 options. If `bytes` has more than 40 bytes, the header gets no options.
    pub fn options(self, bytes: &[u8]) -> Self {
        self.ip(|ip| ip.options = Options::new(bytes).unwrap_or_default())
    }

    /// Sets the protocol number of a payload for which the builder adds no header.
    pub fn proto(self, proto: u8) -> PacketBuilder<'p, at::End> {
        self.ip(|ip| ip.proto = proto).retag()
    }

    /// Adds an ICMP message.
    pub fn icmp(self, message: IcmpRepr) -> PacketBuilder<'p, at::End> {
        self.push(Layer::Icmp(message))
    }

    /// Adds an IGMP message.
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

    /// Sets the IPv6 hop limit.
    pub fn ttl(self, hop_limit: u8) -> Self {
        self.ip(|ip| ip.hop_limit = hop_limit)
    }

    /// Sets the traffic class octet (DSCP and ECN).
    pub fn tos(self, traffic_class: u8) -> Self {
        self.ip(|ip| ip.traffic_class = traffic_class)
    }

    /// Sets the IPv6 flow label, 20 bits.
    pub fn flow_label(self, label: u32) -> Self {
        self.ip(|ip| ip.flow_label = label)
    }

    /// Adds a hop-by-hop options header with a router alert option, as MLD requires.
    pub fn router_alert(self) -> Self {
        self.push(Layer::RouterAlert)
    }

    /// Adds a fragment header with the identification `id`. `offset` is the fragment offset in octets, a multiple
    /// of 8. If `more` is `true`, the "more fragments" flag is set.
    pub fn fragment(self, offset: u16, more: bool, id: u32) -> Self {
        self.push(Layer::Fragment(FragmentRepr { next_header: UNSET, offset, more, id }))
    }

    /// Sets the protocol number of a payload for which the builder adds no header.
    pub fn proto(mut self, proto: u8) -> PacketBuilder<'p, at::End> {
        match self.last() {
            Some(Layer::Ipv6(ip)) => ip.next_header = proto,
            Some(Layer::Fragment(fragment)) => fragment.next_header = proto,
            _ => {}
        }
        self.retag()
    }

    /// Adds the first eight bytes of an ICMPv6 message. The caller passes the other bytes as payload.
    pub fn icmpv6(self, message: Icmpv6Repr) -> PacketBuilder<'p, at::End> {
        self.push(Layer::Icmpv6(message))
    }

    /// Adds a neighbour solicitation for `target` with source link-layer address `link`. Sets the hop limit
    /// to 255.
    pub fn neighbour_solicit(self, target: Ipv6Addr, link: MacAddr) -> PacketBuilder<'p, at::End> {
        let message = NeighbourRepr { kind: icmpv6::kind::NEIGHBOUR_SOLICIT, flags: 0, target, link };
        self.ttl(255).push(Layer::Neighbour(message))
    }

    /// Adds a neighbour advertisement, which announces `link` as the MAC address of `target`, and sets the hop
    /// limit to 255. Flags: 0x80 router, 0x40 solicited, 0x20 override.
    pub fn neighbour_advert(self, flags: u8, target: Ipv6Addr, link: MacAddr) -> PacketBuilder<'p, at::End> {
        let message = NeighbourRepr { kind: icmpv6::kind::NEIGHBOUR_ADVERT, flags, target, link };
        self.ttl(255).push(Layer::Neighbour(message))
    }

    /// Adds an MLDv1 message after a router alert and sets the hop limit to 1.
    pub fn mld(self, message: MldRepr) -> PacketBuilder<'p, at::End> {
        self.ttl(1).router_alert().push(Layer::Mld(message))
    }
}

/// Defines the methods that add transport headers, for both IP versions.
macro_rules! transports {
    ($at:ty) => {
        impl<'p> PacketBuilder<'p, $at> {
            /// Adds a TCP header in which the ACK flag is set.
            pub fn tcp(self, src_port: u16, dst_port: u16) -> PacketBuilder<'p, at::Tcp> {
                let (flags, window) = (tcp::flags::ACK, 65_535);
                self.push(Layer::Tcp(TcpRepr { src_port, dst_port, flags, window, ..TcpRepr::default() }))
            }

            /// Adds a UDP header.
            pub fn udp(self, src_port: u16, dst_port: u16) -> PacketBuilder<'p, at::Udp> {
                self.push(Layer::Udp(UdpRepr { src_port, dst_port, payload_len: 0 }))
            }

            /// Adds an SCTP common header. The caller passes the chunks as payload.
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

    /// Sets the TCP flags, 12 bits. See [`tcp::flags`].
    pub fn flags(self, flags: u16) -> Self {
        self.header(|tcp| tcp.flags = flags)
    }

    /// Sets the TCP sequence number.
    pub fn seq(self, seq: u32) -> Self {
        self.header(|tcp| tcp.seq = seq)
    }

    /// Sets the TCP acknowledgement number.
    pub fn ack(self, ack: u32) -> Self {
        self.header(|tcp| tcp.ack = ack)
    }

    /// Sets the TCP receive window.
    pub fn window(self, window: u16) -> Self {
        self.header(|tcp| tcp.window = window)
    }

    /// Sets the TCP options. If `bytes` has more than 40 bytes, the header gets no options.
    pub fn options(self, bytes: &[u8]) -> Self {
        self.header(|tcp| tcp.options = Options::new(bytes).unwrap_or_default())
    }
}

impl<'p> PacketBuilder<'p, at::Udp> {
    /// Adds a VXLAN header and the Ethernet header of the encapsulated frame.
    pub fn vxlan(self, vni: u32, src: MacAddr, dst: MacAddr) -> PacketBuilder<'p, at::L2> {
        let inside: PacketBuilder<'p, at::L2> = self.push(Layer::Vxlan(VxlanRepr { vni }));
        inside.push(Layer::Eth(super::EthRepr { dst, src, ethertype: 0 }))
    }
}
