//! Fields of a fragment that the reassembler reads, and the reasons for which it refuses a fragment.
//!
//! All functions are total. Offsets and lengths are in octets, and count from the start of the fragmented part: the
//! data after the IPv4 header, or after the fragment header of IPv6.

use packet::ipv4::Ipv4;
use packet::ipv6::Ipv6;
use packet::sctp::{self, Sctp};
use packet::{DropReason, icmp, icmpv6, ip_proto, tcp, udp};

use crate::headers::{Content, NoTuple, Packet, Part};
use crate::sctp::first_chunks_len;
use crate::tuple::{Address, Tuple};

/// Largest length of an IPv4 packet with its header, and of an IPv6 packet without its fixed header.
const LONGEST: u32 = 65_535;
/// Length of the fixed IPv6 header.
const IPV6_LEN: u32 = 40;
/// Bytes of ICMPv6 that the tracker reads: the fixed header and an identifier.
const ICMPV6_LEN: usize = icmpv6::LEN + 4;
/// Bytes of SCTP that the tracker reads: the common header, the header of a chunk, and an initiate tag.
const SCTP_LEN: usize = sctp::LEN + 8;

/// Fields that the fragments of one datagram have in common. `A` is `u32` for IPv4 and `u128` for IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Key<A> {
    /// Source address.
    pub source: A,
    /// Destination address.
    pub destination: A,
    /// Identification. IPv4 uses the lower 16 bits.
    pub id: u32,
    /// Zone of the connection.
    pub zone: u16,
    /// IP protocol number (RFC 791 section 3.2). 0 for IPv6, where only the first fragment has the protocol number of
    /// the datagram (RFC 8200 section 4.5).
    pub protocol: u8,
}

impl<A: Address> Key<A> {
    /// Returns the key in the form of a tuple, for the hash function of tuples. The order of the addresses is kept.
    pub(super) fn hashed(&self) -> Tuple<A> {
        let [a, b, c, d] = self.id.to_be_bytes();
        Tuple {
            low: self.source,
            high: self.destination,
            low_port: u16::from_be_bytes([a, b]),
            high_port: u16::from_be_bytes([c, d]),
            zone: self.zone,
            protocol: self.protocol,
        }
    }
}

/// Reason for which a fragment is refused. The last column says what the reassembler refuses: the fragment, or the
/// datagram with all its fragments.
///
/// | reason | source | refused |
/// |---|---|---|
/// | [`Disabled`](Refused::Disabled) | | fragment |
/// | [`Length`](Refused::Length) | RFC 8200 section 4.5 | fragment |
/// | [`TooLong`](Refused::TooLong) | RFC 791 section 3.1, RFC 8200 section 4.5 | fragment |
/// | [`TooSmall`](Refused::TooSmall) | Open vSwitch | fragment |
/// | [`ShortHeader`](Refused::ShortHeader) | RFC 1858 section 3, RFC 7112 | datagram |
/// | [`EarlyOffset`](Refused::EarlyOffset) | RFC 1858, RFC 3128 | datagram |
/// | [`HeaderChain`](Refused::HeaderChain) | | datagram |
/// | [`Duplicate`](Refused::Duplicate) | RFC 8200 section 4.5 | fragment |
/// | [`Overlap`](Refused::Overlap) | RFC 5722 section 4 | datagram |
/// | [`End`](Refused::End) | | datagram |
/// | [`TooMany`](Refused::TooMany) | | datagram |
/// | [`Share`](Refused::Share) | | datagram |
/// | [`Crowded`](Refused::Crowded) | | fragment |
/// | [`RefusedBefore`](Refused::RefusedBefore) | RFC 5722 section 4 | fragment |
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Refused {
    /// Reassembly is switched off for the address family.
    Disabled,
    /// The fragment has no data, or other fragments follow and the length of its data is not a multiple of 8.
    Length,
    /// The reassembled packet would be longer than 65,535 octets.
    TooLong,
    /// Other fragments follow, and the fragment is smaller than the minimum.
    TooSmall,
    /// The first fragment ends before the end of the headers that the tracker reads.
    ShortHeader,
    /// A later fragment begins before the end of the headers that the tracker reads.
    EarlyOffset,
    /// The first fragment has too many extension headers, or a second fragment header.
    HeaderChain,
    /// The datagram has a fragment with equal offset and length. IPv4 has the rule too, as in Linux.
    Duplicate,
    /// The fragment overlaps another fragment of the datagram. IPv4 has the rule too, as in Linux.
    Overlap,
    /// The fragments of the datagram contradict each other about its end.
    End,
    /// The datagram has as many fragments as a datagram may have.
    TooMany,
    /// The share of the key is used up by this datagram.
    Share,
    /// The buckets of the datagram in the index are full. With random keys, the probability is negligible.
    Crowded,
    /// The datagram of the fragment was refused before.
    RefusedBefore,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Refused::Disabled => "reassembly is switched off",
            Refused::Length => "the length of the fragment is not a positive multiple of 8",
            Refused::TooLong => "the reassembled packet would be longer than 65,535 octets",
            Refused::TooSmall => "the fragment is smaller than the minimum",
            Refused::ShortHeader => "the first fragment ends inside its headers",
            Refused::EarlyOffset => "a later fragment begins inside the headers",
            Refused::HeaderChain => {
                "the first fragment has too many extension headers or two fragment headers"
            }
            Refused::Duplicate => "the fragment is a duplicate",
            Refused::Overlap => "the fragment overlaps another one",
            Refused::End => "the fragments contradict each other about the end of the datagram",
            Refused::TooMany => "the datagram has too many fragments",
            Refused::Share => "the share of the sender is used up",
            Refused::Crowded => "the buckets of the datagram are full",
            Refused::RefusedBefore => "the datagram was refused before",
        })
    }
}

impl std::error::Error for Refused {}

/// Headers of the first fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct First<A> {
    /// Fields that the tracker reads, as far as the first fragment has them.
    packet: Result<Packet<A>, NoTuple>,
    /// Length of the fragment's data.
    len: u32,
    /// Length of the extension headers between the fragment header and the upper layer.
    extensions: u32,
    /// Length of the upper layer that its headers state, at least.
    stated: u32,
}

impl<A> First<A> {
    /// Returns the fields that the tracker reads from the datagram, whose length is `end`.
    pub(super) fn complete(self, end: u32) -> Result<Packet<A>, NoTuple> {
        let mut packet = self.packet?;
        if self.stated > end.saturating_sub(self.extensions) {
            let is_udp = packet.content == Content::Udp;
            let reason = if is_udp { DropReason::UdpBadLength } else { DropReason::SctpTruncated };
            return Err(NoTuple::Header(reason));
        }
        if let Content::Tcp(segment) = &mut packet.content {
            segment.payload += end.saturating_sub(self.len);
        }
        Ok(packet)
    }
}

/// Fields of a fragment.
#[derive(Clone, Copy, Debug)]
pub struct Fragment<A> {
    key: Key<A>,
    offset: u16,
    len: u32,
    is_last: bool,
    /// Length of the packet with its headers, as Open vSwitch compares it with the minimum.
    packet_len: u32,
    /// Length of the headers that the reassembled packet has besides the data, as far as they count for [`LONGEST`].
    header_len: u32,
    /// Headers of the first fragment, or the reason for which the datagram is refused. `None` for a later fragment.
    first: Option<Result<First<A>, Refused>>,
    /// IP protocol number, from the fragment header of IPv6.
    protocol: u8,
}

impl Fragment<u32> {
    /// Reads the fields of an IPv4 fragment. The caller has checked the checksum of the header. Returns `None` if the
    /// packet is not a fragment.
    #[must_use]
    pub fn of_ipv4(packet: &Ipv4<'_>, zone: u16) -> Option<Fragment<u32>> {
        if !packet.is_fragment() {
            return None;
        }
        let (source, destination) = (packet.src().to_bits(), packet.dst().to_bits());
        let protocol = packet.proto();
        let data = packet.payload();
        let first = || {
            if data.len() < header_len::<u32>(protocol, data) {
                return Err(Refused::ShortHeader);
            }
            let packet = Packet::of_ipv4_part(packet, zone, Part::FirstFragment);
            Ok(First { packet, len: length(data), extensions: 0, stated: stated_len(protocol, data) })
        };
        Some(Fragment {
            key: Key { source, destination, id: packet.id().into(), zone, protocol },
            offset: u16::try_from(packet.fragment_offset()).unwrap_or(u16::MAX),
            len: length(data),
            is_last: !packet.more_fragments(),
            packet_len: packet.total_len().into(),
            header_len: u32::try_from(packet.header_len()).unwrap_or(LONGEST),
            first: (packet.fragment_offset() == 0).then(first),
            protocol,
        })
    }
}

impl Fragment<u128> {
    /// Reads the fields of an IPv6 fragment. Returns `None` if the packet is not a fragment, or if an extension header
    /// before the fragment header is invalid. An atomic fragment (RFC 6946) is not a fragment.
    #[must_use]
    pub fn of_ipv6(packet: &Ipv6<'_>, zone: u16) -> Option<Fragment<u128>> {
        let mut extensions = packet.extensions();
        let mut before = 0;
        let header = loop {
            let extension = extensions.next()?.ok()?;
            match extension.fragment().filter(|header| header.is_fragment()) {
                Some(header) => break header,
                None => before += extension.bytes.len(),
            }
        };
        let data = packet.payload().get(before + size_of_val(header)..)?;
        let first = || {
            for extension in extensions {
                match extension {
                    Ok(extension) if extension.fragment().is_none_or(|header| !header.is_fragment()) => {}
                    Err(error) if error.reason() == DropReason::Ipv6ExtTruncated => {
                        return Err(Refused::ShortHeader);
                    }
                    _ => return Err(Refused::HeaderChain),
                }
            }
            let upper = packet.upper().map_err(|_| Refused::HeaderChain)?;
            let bytes = upper.payload;
            if bytes.len() < header_len::<u128>(upper.proto, bytes) {
                return Err(Refused::ShortHeader);
            }
            let (len, extensions) = (length(data), length(data).saturating_sub(length(bytes)));
            let packet = Packet::of_ipv6_part(packet, &upper, zone, Part::FirstFragment);
            Ok(First { packet, len, extensions, stated: stated_len(upper.proto, bytes) })
        };
        let (source, destination) = (packet.src().to_bits(), packet.dst().to_bits());
        Some(Fragment {
            key: Key { source, destination, id: header.id.get(), zone, protocol: 0 },
            offset: header.offset(),
            len: length(data),
            is_last: !header.more(),
            packet_len: length(packet.payload()).saturating_add(IPV6_LEN),
            header_len: u32::try_from(before).unwrap_or(LONGEST),
            first: (header.offset() == 0).then(first),
            protocol: header.next_header,
        })
    }
}

impl<A: Address> Fragment<A> {
    /// Returns the fields that the fragments of the datagram have in common.
    #[must_use]
    pub fn key(&self) -> &Key<A> {
        &self.key
    }

    /// Returns the offset of the data in the datagram.
    #[must_use]
    pub fn offset(&self) -> u16 {
        self.offset
    }

    /// Returns the length of the data.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Returns the offset of the first octet after the data.
    pub(super) fn end(&self) -> u32 {
        self.len.saturating_add(self.offset.into())
    }

    /// Returns whether the fragment is the last one of its datagram.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    /// Returns whether the fragment is smaller than the minimum for fragments that others follow.
    pub(super) fn is_too_small(&self, least: u32) -> bool {
        !self.is_last && self.packet_len < least
    }

    /// Returns the headers of the first fragment. Returns `None` for a later fragment.
    pub(super) fn first(&self) -> Option<First<A>> {
        self.first.and_then(Result::ok)
    }

    /// Checks the length of the data.
    ///
    /// # Errors
    /// Returns the reason for which the fragment is refused.
    pub(super) fn check_length(&self) -> Result<(), Refused> {
        if self.len == 0 || !self.is_last && !self.len.is_multiple_of(8) {
            return Err(Refused::Length);
        }
        let is_too_long = self.end().saturating_add(self.header_len) > LONGEST;
        if is_too_long { Err(Refused::TooLong) } else { Ok(()) }
    }

    /// Checks that the first fragment has the headers that the tracker reads, and that a later fragment has no part of
    /// these headers. A later fragment of IPv6 states its protocol itself. If this protocol is wrong, the fragment
    /// overlaps the first one.
    ///
    /// # Errors
    /// Returns the reason for which the datagram is refused.
    pub(super) fn check_headers(&self) -> Result<(), Refused> {
        match self.first {
            Some(first) => first.map(|_| ()),
            None if usize::from(self.offset) < header_len::<A>(self.protocol, &[]) => {
                Err(Refused::EarlyOffset)
            }
            None => Ok(()),
        }
    }
}

/// Returns the number of bytes that the tracker reads at least from the header of a protocol that begins with these
/// bytes.
fn header_len<A: Address>(protocol: u8, bytes: &[u8]) -> usize {
    match protocol {
        // The upper half of the byte is the length in 32-bit words.
        ip_proto::TCP => bytes.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4).max(tcp::MIN_LEN),
        ip_proto::UDP => udp::LEN,
        ip_proto::SCTP => SCTP_LEN,
        ip_proto::ICMP if A::ICMP == ip_proto::ICMP => icmp::LEN,
        ip_proto::ICMPV6 if A::ICMP == ip_proto::ICMPV6 => ICMPV6_LEN,
        _ => 0,
    }
}

/// Returns the length that a UDP header or the chunks of SCTP state. Returns 0 for other protocols, and the largest
/// number for an invalid UDP header.
fn stated_len(protocol: u8, bytes: &[u8]) -> u32 {
    match (protocol, bytes) {
        (ip_proto::UDP, [_, _, _, _, a, b, ..]) => match u16::from_be_bytes([*a, *b]) {
            1..=7 => u32::MAX,
            len => len.into(),
        },
        (ip_proto::SCTP, _) => Sctp::parse(bytes).map_or(0, |sctp| first_chunks_len(&sctp)),
        _ => 0,
    }
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}
