//! Extraction of the flow key from a frame. The extraction runs once for every received packet.
//!
//! A fast path handles the common packet (TCP or UDP over plain IPv4) after one bounds check of its
//! first bytes. The fast path builds the key as whole words and stores the key once. A longer path
//! handles all other packets. Both paths yield equal results. Tests compare the paths with each
//! other and with the header parsers of this crate.
//!
//! The length checks equal the checks of Linux on receipt (`ip_rcv`, `ip6_rcv`). A frame may be
//! longer than its IP packet, because of padding, but not shorter.

use super::l2::L2;
use super::read::{be16, le32, le64};
use super::{FRAGMENT_ANY, FRAGMENT_LATER, FlowKey, L2Key, L3Kind, Layers};
use crate::ipv6_ext::{MAX_EXTENSIONS, is_extension};
use crate::numbers::{ethertype, ip_proto};
use crate::{DropReason, PortId};

const ETH_LEN: u16 = 14;

impl FlowKey {
    /// Fills the key from a frame and returns the offsets of the frame's headers.
    ///
    /// `frame` is the first segment of the frame: the whole frame, or at least its first 128 bytes.
    /// `total_len` is the length of the whole frame over all segments in bytes, without FCS. Every field of
    /// `key` is written.
    ///
    /// # Errors
    /// Returns [`DropReason::EthTruncated`], [`DropReason::VlanTruncated`] or [`DropReason::VlanReservedId`]
    /// if the L2 header is malformed. The content of `key` is then unspecified. Malformed headers above L2
    /// are not errors. [`Layers::malformed`] reports them.
    #[inline(always)]
    pub fn extract(
        frame: &[u8],
        total_len: usize,
        in_port: PortId,
        key: &mut FlowKey,
    ) -> Result<Layers, DropReason> {
        if let Some(head) = frame.first_chunk::<54>()
            && head[12..15] == [0x08, 0x00, 0x45]
            && let Some(header) = head.last_chunk::<40>()
            && let Some(plain) = PlainIp::v4(header, total_len.saturating_sub(usize::from(ETH_LEN)))
        {
            *key = plain.key(u64::from(in_port.0), le64(head, 0), le64(head, 6) >> 16);
            return Ok(Layers::plain(ETH_LEN, 20));
        }
        extract_more(frame, total_len, in_port, key)
    }

    /// Fills only the metadata and L2 fields of the key (up to [`FlowKey::eth_type`]), for bridges without
    /// flow tables.
    ///
    /// The other fields keep their previous content, which has no meaning. In the returned [`Layers`], only
    /// [`Layers::l2_len`] is set.
    ///
    /// # Errors
    /// Returns the errors that [`FlowKey::extract`] returns.
    #[inline(always)]
    pub fn extract_l2(frame: &[u8], in_port: PortId, key: &mut L2Key) -> Result<Layers, DropReason> {
        let l2 = L2::read(frame, in_port)?;
        let own: &mut [u64; 8] = zerocopy::transmute_mut!(key);
        (own[0], own[1], own[2]) = (l2.w0.to_le(), l2.w1.to_le(), l2.w2.to_le());
        Ok(Layers::l2_only(l2.len))
    }
}

/// L3 and L4 fields of a TCP or UDP packet without IPv4 options, IPv6 extension headers or fragmentation. `src`,
/// `dst` and `l4` are the words 3 to 7 of the flow key, loaded as little-endian numbers.
struct PlainIp {
    kind: L3Kind,
    proto: u8,
    src: [u64; 2],
    dst: [u64; 2],
    l4: u64,
}

impl PlainIp {
    /// Parses an IPv4 packet. `header` begins with 0x45 (version 4, no options). `room` is the number of bytes from
    /// the IP header to the end of the frame. Returns `None` if the packet is malformed, is a fragment, or is
    /// neither TCP nor UDP.
    #[inline(always)]
    fn v4(header: &[u8; 40], room: usize) -> Option<PlainIp> {
        let total = be16(header, 2);
        let proto = header[9];
        let (flags, least) = if proto == ip_proto::UDP {
            (0, 28)
        } else if proto == ip_proto::TCP && header[32] >= 0x50 {
            (tcp_flags(header[32], header[33]), 20 + u16::from(header[32] >> 4) * 4)
        } else {
            return None;
        };
        let fragmented = be16(header, 6) & 0x3fff != 0;
        if fragmented | (total < least) | (usize::from(total) > room) {
            return None;
        }
        Some(PlainIp {
            kind: L3Kind::Ipv4,
            proto,
            src: [le32(header, 12), 0],
            dst: [le32(header, 16), 0],
            l4: le32(header, 20) | flags | service(header[1], header[8]),
        })
    }

    /// Parses an IPv6 packet like [`PlainIp::v4`]. `bytes` is the part of the packet in the first buffer of the
    /// frame.
    #[inline(always)]
    fn v6(bytes: &[u8], room: usize) -> Option<PlainIp> {
        let header = bytes.first_chunk::<48>()?;
        let (proto, payload) = (header[6], be16(header, 4));
        let (flags, least) = match proto {
            ip_proto::UDP => (0, 8),
            ip_proto::TCP => {
                let tcp = bytes.first_chunk::<60>()?;
                let least = if tcp[52] >= 0x50 { u16::from(tcp[52] >> 4) * 4 } else { u16::MAX };
                (tcp_flags(tcp[52], tcp[53]), least)
            }
            _ => return None,
        };
        if (header[0] >> 4 != 6) | (payload < least) | (40 + usize::from(payload) > room) {
            return None;
        }
        let class = header[0] << 4 | header[1] >> 4;
        Some(PlainIp {
            kind: L3Kind::Ipv6,
            proto,
            src: [le64(header, 8), le64(header, 16)],
            dst: [le64(header, 24), le64(header, 32)],
            l4: le32(header, 40) | flags | service(class, header[7]),
        })
    }

    /// Returns the complete flow key. `w0`, `w1` and `w2` are the L2 words of the key, as
    /// little-endian numbers.
    #[inline(always)]
    fn key(&self, w0: u64, w1: u64, w2: u64) -> FlowKey {
        let ([w3, w4], [w5, w6]) = (self.src, self.dst);
        let w0 = w0 | u64::from(self.kind as u8) << 24;
        let w2 = w2 | u64::from(self.proto) << 48;
        from_le_words([w0, w1, w2, w3, w4, w5, w6, self.l4])
    }
}

/// Returns the TCP flags at their position in word 7 of the key. `offset` is the TCP header octet
/// that contains the data offset in its high four bits and flags in its low four bits.
#[inline(always)]
fn tcp_flags(offset: u8, flags: u8) -> u64 {
    u64::from(u16::from_le_bytes([offset & 0x0f, flags])) << 32
}

/// Returns TOS and TTL at their position in word 7 of the key.
#[inline(always)]
fn service(tos: u8, ttl: u8) -> u64 {
    u64::from(u16::from_le_bytes([tos, ttl])) << 48
}

/// Extracts the key of a packet that the fast path of [`FlowKey::extract`] does not handle.
///
/// This function extracts the keys of untagged frames whose payload has no fields in the key (LLC, LLDP, PPPoE, MPLS),
/// and calls `extract_any` for all other frames. The extraction in `extract_any` saves registers on the stack, which is
/// not necessary for the simple frames.
#[inline(never)]
fn extract_more(
    frame: &[u8],
    total_len: usize,
    in_port: PortId,
    key: &mut FlowKey,
) -> Result<Layers, DropReason> {
    if let Some(head) = frame.first_chunk::<22>()
        && let Some(bare) = L2::read_bare(head, in_port)
    {
        *key = from_le_words([bare.w0, bare.w1, bare.w2, 0, 0, 0, 0, 0]);
        return Ok(Layers::l2_only(bare.len));
    }
    extract_any(frame, total_len, in_port, key)
}

/// Extracts the key of a frame with VLAN tags, or with an L3 header that has fields in the key.
#[inline(never)]
fn extract_any(
    frame: &[u8],
    total_len: usize,
    in_port: PortId,
    key: &mut FlowKey,
) -> Result<Layers, DropReason> {
    let l2 = L2::read(frame, in_port)?;
    let offset = usize::from(l2.len);
    let packet = L3Packet {
        bytes: frame.get(offset..).unwrap_or_default(),
        room: total_len.saturating_sub(offset),
        offset: l2.len,
    };
    let plain = match l2.eth_type {
        ethertype::IPV4 => packet
            .bytes
            .first_chunk::<40>()
            .filter(|header| header[0] == 0x45)
            .and_then(|header| PlainIp::v4(header, packet.room)),
        ethertype::IPV6 => PlainIp::v6(packet.bytes, packet.room),
        _ => None,
    };
    if let Some(plain) = plain {
        *key = plain.key(l2.w0, l2.w1, l2.w2);
        return Ok(Layers::plain(l2.len, if plain.kind == L3Kind::Ipv6 { 40 } else { 20 }));
    }
    *key = from_le_words([l2.w0, l2.w1, l2.w2, 0, 0, 0, 0, 0]);
    Ok(packet.read(l2.eth_type, key))
}

/// The part of a frame after its L2 header.
#[derive(Clone, Copy)]
struct L3Packet<'a> {
    /// Bytes of the packet that the first segment of the frame contains.
    bytes: &'a [u8],
    /// Length of the packet over all segments in bytes, including padding.
    room: usize,
    /// Offset of the packet in the frame, in bytes.
    offset: u16,
}

impl L3Packet<'_> {
    /// Parses a packet field by field, for packets that the fast path does not handle. The function is not inlined, so
    /// that the fast path need not save the registers that this function uses.
    #[inline(never)]
    fn read(self, eth_type: u16, key: &mut FlowKey) -> Layers {
        let mut layers = Layers::l2_only(self.offset);
        let outcome = match eth_type {
            ethertype::IPV4 => self.ipv4(key, &mut layers),
            ethertype::IPV6 => self.ipv6(key, &mut layers),
            ethertype::ARP | ethertype::RARP => self.arp(key, &mut layers),
            _ => Ok(()),
        };
        if let Err(reason) = outcome {
            layers.set_malformed(reason);
        }
        layers
    }

    fn ipv4(&self, key: &mut FlowKey, layers: &mut Layers) -> Result<(), DropReason> {
        let header = self.bytes.first_chunk::<20>().ok_or(DropReason::Ipv4Truncated)?;
        let (version, words) = (header[0] >> 4, header[0] & 0x0f);
        if version != 4 || words < 5 {
            return Err(DropReason::Ipv4BadHeader);
        }
        let header_len = u16::from(words) * 4;
        if self.bytes.len() < usize::from(header_len) {
            return Err(DropReason::Ipv4Truncated);
        }
        let total = be16(header, 2);
        if total < header_len || usize::from(total) > self.room {
            return Err(DropReason::Ipv4BadLength);
        }
        layers.set_l3(self.offset);
        key.l3_kind = L3Kind::Ipv4 as u8;
        key.ip_src[..4].copy_from_slice(&header[12..16]);
        key.ip_dst[..4].copy_from_slice(&header[16..20]);
        (key.tos, key.ttl, key.proto) = (header[1], header[8], header[9]);
        if words > 5 {
            layers.set_ipv4_options();
        }
        let fragment = be16(header, 6);
        if fragment & 0x3fff != 0 {
            mark_fragment(key, layers, fragment & 0x1fff != 0);
        }
        if key.proto == ip_proto::IGMP {
            layers.set_multicast_control();
        }
        self.l4(header_len, total, key, layers)
    }

    fn ipv6(&self, key: &mut FlowKey, layers: &mut Layers) -> Result<(), DropReason> {
        let header = self.bytes.first_chunk::<40>().ok_or(DropReason::Ipv6Truncated)?;
        if header[0] >> 4 != 6 {
            return Err(DropReason::Ipv6BadHeader);
        }
        let payload = usize::from(be16(header, 4));
        let (length, next) = (40 + payload, header[6]);
        if length > self.room {
            return Err(DropReason::Ipv6BadLength);
        }
        // The payload length field of a jumbogram (RFC 2675) is 0, and the packet extends to the end of the frame.
        // Frames are never longer than jumbo frames.
        let jumbo = payload == 0 && next == ip_proto::HOP_BY_HOP;
        let length = if jumbo { self.room } else { length };
        layers.set_l3(self.offset);
        key.l3_kind = L3Kind::Ipv6 as u8;
        key.ip_src.copy_from_slice(&header[8..24]);
        key.ip_dst.copy_from_slice(&header[24..40]);
        (key.tos, key.ttl, key.proto) = (header[0] << 4 | header[1] >> 4, header[7], next);
        let mut offset = 40;
        if next == ip_proto::HOP_BY_HOP {
            layers.set_hop_by_hop();
        }
        if is_extension(next) {
            layers.set_ipv6_extensions();
            offset = self.ipv6_extensions(next, length, key, layers)?;
        }
        self.l4(offset, u16::try_from(length).unwrap_or(u16::MAX), key, layers)
    }

    /// Skips the extension headers. Returns the distance in bytes from the IPv6 header to the header after the
    /// extension headers, and stores the protocol of this later header in the key.
    fn ipv6_extensions(
        &self,
        first: u8,
        length: usize,
        key: &mut FlowKey,
        layers: &mut Layers,
    ) -> Result<u16, DropReason> {
        let (mut next, mut offset) = (first, 40);
        for _ in 0..MAX_EXTENSIONS {
            let header = self.bytes.get(offset..).and_then(<[u8]>::first_chunk::<8>);
            let header = header.ok_or(DropReason::Ipv6ExtTruncated)?;
            let size = match next {
                ip_proto::FRAGMENT => 8,
                ip_proto::AH => (usize::from(header[1]) + 2) * 4,
                _ => (usize::from(header[1]) + 1) * 8,
            };
            if offset + size > length {
                return Err(DropReason::Ipv6ExtTruncated);
            }
            let fragment = if next == ip_proto::FRAGMENT { be16(header, 2) & 0xfff9 } else { 0 };
            next = header[0];
            key.proto = next;
            offset += size;
            // Offset 0 without "more fragments" is an atomic fragment, which is a complete packet (RFC 6946).
            if fragment != 0 {
                mark_fragment(key, layers, fragment & 0xfff8 != 0);
            }
            if !is_extension(next) || fragment & 0xfff8 != 0 {
                return u16::try_from(offset).map_err(|_| DropReason::Ipv6ExtTruncated);
            }
        }
        Err(DropReason::Ipv6ExtTooMany)
    }

    fn arp(&self, key: &mut FlowKey, layers: &mut Layers) -> Result<(), DropReason> {
        let fixed = self.bytes.first_chunk::<8>().ok_or(DropReason::ArpTruncated)?;
        if (be16(fixed, 0), be16(fixed, 2)) != (1, ethertype::IPV4) {
            return Ok(()); // The key has no fields for ARP of other networks.
        }
        if fixed[4..6] != [6, 4] {
            return Err(DropReason::ArpBadField);
        }
        let message = self.bytes.first_chunk::<28>().ok_or(DropReason::ArpTruncated)?;
        layers.set_l3(self.offset);
        key.l3_kind = L3Kind::Arp as u8;
        key.proto = if message[6] == 0 { message[7] } else { 0 };
        key.ip_src[..4].copy_from_slice(&message[14..18]);
        key.ip_dst[..4].copy_from_slice(&message[24..28]);
        Ok(())
    }

    /// Parses the L4 header. `offset` is the distance of the L4 header from the IP header, and `length` is
    /// the length of the IP packet, both in bytes.
    #[inline]
    fn l4(&self, offset: u16, length: u16, key: &mut FlowKey, layers: &mut Layers) -> Result<(), DropReason> {
        if key.fragment & FRAGMENT_LATER != 0 {
            return Ok(());
        }
        let end = self.bytes.len().min(usize::from(length));
        let bytes = self.bytes.get(usize::from(offset)..end).unwrap_or_default();
        match key.proto {
            ip_proto::TCP => {
                let header = bytes.first_chunk::<20>().ok_or(DropReason::TcpTruncated)?;
                let header_len = u16::from(header[12] >> 4) * 4;
                if header_len < 20 || header_len > length - offset {
                    return Err(DropReason::TcpBadHeader);
                }
                set_ports(key, header);
                key.tcp_flags.set(be16(header, 12) & 0x0fff);
            }
            ip_proto::UDP => set_ports(key, bytes.first_chunk::<8>().ok_or(DropReason::UdpTruncated)?),
            ip_proto::SCTP => set_ports(key, bytes.first_chunk::<12>().ok_or(DropReason::SctpTruncated)?),
            ip_proto::ICMP if key.l3_kind == L3Kind::Ipv4 as u8 => {
                set_type_and_code(key, bytes.first_chunk::<8>().ok_or(DropReason::IcmpTruncated)?);
            }
            ip_proto::IGMP if key.l3_kind == L3Kind::Ipv4 as u8 => {
                set_type_and_code(key, bytes.first_chunk::<8>().ok_or(DropReason::IgmpTruncated)?);
            }
            ip_proto::ICMPV6 if key.l3_kind == L3Kind::Ipv6 as u8 => {
                let header = bytes.first_chunk::<4>().ok_or(DropReason::Icmpv6Truncated)?;
                set_type_and_code(key, header);
                if crate::numbers::is_mld(header[0]) {
                    layers.set_multicast_control();
                }
            }
            _ => {}
        }
        layers.set_l4(self.offset + offset);
        Ok(())
    }
}

fn mark_fragment(key: &mut FlowKey, layers: &mut Layers, later: bool) {
    key.fragment = FRAGMENT_ANY | if later { FRAGMENT_LATER } else { 0 };
    layers.set_fragment(later);
}

#[inline]
fn set_ports<const N: usize>(key: &mut FlowKey, header: &[u8; N]) {
    key.src_port.set(be16(header, 0));
    key.dst_port.set(be16(header, 2));
}

#[inline]
fn set_type_and_code<const N: usize>(key: &mut FlowKey, header: &[u8; N]) {
    key.src_port.set(u16::from(header[0]));
    key.dst_port.set(u16::from(header[1]));
}

/// Returns the flow key whose words are these numbers. The lowest octet of each number becomes the first octet of
/// the word in memory, on machines of either byte order.
#[inline(always)]
fn from_le_words(words: [u64; 8]) -> FlowKey {
    FlowKey::from_words(words.map(u64::to_le))
}
