//! Writes the headers of a packet from the outermost to the innermost, then the checksums from the innermost
//! to the outermost.

use super::chain::UNSET;
use super::{ArpRepr, EthRepr, FragmentRepr, IcmpRepr, Icmpv6Repr, IgmpRepr, Layer, MldRepr, NeighbourRepr};
use super::{PacketBuilder, SctpRepr, UdpRepr, VlanRepr, VxlanRepr};
use crate::numbers::{ethertype, ip_proto};
use crate::{checksum, icmp, icmpv6, igmp, ipv6, sctp, tcp, udp};

/// Hop-by-hop header with the router alert option of MLD (RFC 2711), padded to eight bytes. The first byte is
/// the next-header field.
const ROUTER_ALERT: [u8; 8] = [0, 0, 5, 2, 0, 0, 1, 0];

impl Layer {
    pub(super) fn len(&self) -> usize {
        match self {
            Layer::Eth(_) => EthRepr::LEN,
            Layer::Vlan(..) => VlanRepr::LEN,
            Layer::Arp(_) => ArpRepr::LEN,
            Layer::Ipv4(ip) => ip.header_len(),
            Layer::Ipv6(_) => ipv6::LEN,
            Layer::RouterAlert => ROUTER_ALERT.len(),
            Layer::Fragment(_) => FragmentRepr::LEN,
            Layer::Tcp(tcp) => tcp.header_len(),
            Layer::Udp(_) => UdpRepr::LEN,
            Layer::Sctp(_) => SctpRepr::LEN,
            Layer::Icmp(_) => IcmpRepr::LEN,
            Layer::Icmpv6(_) => Icmpv6Repr::LEN,
            Layer::Neighbour(_) => NeighbourRepr::LEN,
            Layer::Igmp(_) => IgmpRepr::LEN,
            Layer::Mld(_) => MldRepr::LEN,
            Layer::Vxlan(_) => VxlanRepr::LEN,
        }
    }

    /// Returns the EtherType by which the preceding Ethernet header or VLAN tag refers to this header.
    fn ethertype(&self) -> u16 {
        match self {
            Layer::Vlan(_, true) => ethertype::SERVICE_VLAN,
            Layer::Vlan(_, false) => ethertype::VLAN,
            Layer::Arp(_) => ethertype::ARP,
            Layer::Ipv4(_) => ethertype::IPV4,
            Layer::Ipv6(_) => ethertype::IPV6,
            _ => 0,
        }
    }

    /// Returns the protocol number by which the preceding IP header refers to this header.
    fn proto(&self) -> u8 {
        match self {
            Layer::RouterAlert => ip_proto::HOP_BY_HOP,
            Layer::Fragment(_) => ip_proto::FRAGMENT,
            Layer::Tcp(_) => ip_proto::TCP,
            Layer::Udp(_) => ip_proto::UDP,
            Layer::Sctp(_) => ip_proto::SCTP,
            Layer::Icmp(_) => ip_proto::ICMP,
            Layer::Icmpv6(_) | Layer::Neighbour(_) | Layer::Mld(_) => ip_proto::ICMPV6,
            Layer::Igmp(_) => ip_proto::IGMP,
            _ => ip_proto::NO_NEXT,
        }
    }
}

impl<At> PacketBuilder<'_, At> {
    /// Writes the packet to `frame`, whose length must equal [`PacketBuilder::frame_len`].
    pub(super) fn write(&self, frame: &mut [u8]) {
        let packet_len = self.headers_len() + self.payload.len();
        let (packet, padding) = frame.split_at_mut(packet_len);
        padding.fill(0);
        let (_, payload) = packet.split_at_mut(packet_len - self.payload.len());
        payload.copy_from_slice(self.payload);
        let mut start = 0;
        for place in 0..self.count {
            let Some((layer, bytes)) = self.layer(place).zip(packet.get_mut(start..)) else { return };
            start += layer.len();
            self.write_header(place, layer, bytes);
        }
        for place in (0..self.count).rev() {
            let Some(layer) = self.layer(place) else { return };
            start -= layer.len();
            if let Some(bytes) = packet.get_mut(start..) {
                self.write_checksum(place, layer, bytes);
            }
        }
    }

    fn layer(&self, place: usize) -> Option<&Layer> {
        self.layers.get(place)?.as_ref()
    }

    /// Writes the header `layer`, which has the index `place` in the packet. `bytes` begins with this header,
    /// extends to the end of the packet, and is long enough for the header.
    fn write_header(&self, place: usize, layer: &Layer, bytes: &mut [u8]) {
        let behind = u16::try_from(bytes.len() - layer.len()).unwrap_or(u16::MAX);
        let next = self.layer(place + 1);
        let next_type = |own: u16| next.map_or(own, Layer::ethertype);
        let next_proto = |own: u8| match next {
            Some(next) if own == UNSET => next.proto(),
            None if own == UNSET => ip_proto::NO_NEXT,
            _ => own,
        };
        let written = match *layer {
            Layer::Eth(eth) => EthRepr { ethertype: next_type(eth.ethertype), ..eth }.emit(bytes),
            Layer::Vlan(tag, _) => VlanRepr { ethertype: next_type(tag.ethertype), ..tag }.emit(bytes),
            Layer::Arp(arp) => arp.emit(bytes),
            Layer::Ipv4(mut ip) => {
                (ip.proto, ip.payload_len) = (next_proto(ip.proto), behind);
                ip.emit(bytes)
            }
            Layer::Ipv6(mut ip) => {
                (ip.next_header, ip.payload_len) = (next_proto(ip.next_header), behind);
                ip.emit(bytes)
            }
            Layer::RouterAlert => {
                let [_, rest @ ..] = ROUTER_ALERT;
                let [a, b, c, d, e, f, g] = rest;
                crate::error::write_header(bytes, &[next_proto(UNSET), a, b, c, d, e, f, g])
            }
            Layer::Fragment(fragment) => {
                FragmentRepr { next_header: next_proto(fragment.next_header), ..fragment }.emit(bytes)
            }
            Layer::Tcp(tcp) => tcp.emit(bytes),
            Layer::Udp(udp) => UdpRepr { payload_len: behind, ..udp }.emit(bytes),
            Layer::Sctp(sctp) => sctp.emit(bytes),
            Layer::Icmp(icmp) => icmp.emit(bytes),
            Layer::Icmpv6(icmp) => icmp.emit(bytes),
            Layer::Neighbour(message) => message.emit(bytes),
            Layer::Igmp(igmp) => igmp.emit(bytes),
            Layer::Mld(mld) => mld.emit(bytes),
            Layer::Vxlan(vxlan) => vxlan.emit(bytes),
        };
        debug_assert!(written.is_ok(), "the frame is as long as its headers");
    }

    /// Writes the checksum of the header `layer`, which has the index `place` in the packet. `bytes` begins with
    /// this header and extends to the end of the packet. All inner headers must be complete.
    ///
    /// For a first fragment, the written L4 checksum covers only the bytes of this fragment. A
    /// correct checksum would also cover the data in the later fragments.
    fn write_checksum(&self, place: usize, layer: &Layer, bytes: &mut [u8]) {
        match layer {
            Layer::Tcp(_) => {
                checksum::fill(bytes, tcp::CHECKSUM_AT, self.pseudo_sum(place, layer, bytes.len()))
            }
            Layer::Udp(_) => udp::fill_checksum(bytes, self.pseudo_sum(place, layer, bytes.len())),
            Layer::Sctp(_) => sctp::fill_checksum(bytes),
            Layer::Icmp(_) => checksum::fill(bytes, icmp::CHECKSUM_AT, 0),
            Layer::Igmp(_) => checksum::fill(bytes, igmp::CHECKSUM_AT, 0),
            Layer::Icmpv6(_) | Layer::Neighbour(_) | Layer::Mld(_) => {
                checksum::fill(bytes, icmpv6::CHECKSUM_AT, self.pseudo_sum(place, layer, bytes.len()));
            }
            _ => {}
        }
    }

    /// Returns the partial Internet checksum of the pseudo-header for an L4 packet of `len` bytes. The addresses
    /// are those of the nearest IP header before this header.
    fn pseudo_sum(&self, place: usize, layer: &Layer, len: usize) -> u32 {
        let proto = layer.proto();
        let outside = self.layers.get(..place).unwrap_or_default();
        let sum = outside.iter().rev().flatten().find_map(|outer| match outer {
            Layer::Ipv4(ip) => {
                let len = u16::try_from(len).unwrap_or(u16::MAX);
                Some(checksum::l4_pseudo_v4(ip.src, ip.dst, proto, len))
            }
            Layer::Ipv6(ip) => {
                let len = u32::try_from(len).unwrap_or(u32::MAX);
                Some(checksum::l4_pseudo_v6(ip.src, ip.dst, proto, len))
            }
            _ => None,
        });
        sum.unwrap_or_default()
    }
}
