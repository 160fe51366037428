//! Places of the fields in IPv4 and IPv6 packets, and in the packets that ICMP errors quote.
//!
//! All functions are total. Errors of ICMP (RFC 792) and ICMPv6 (RFC 4443) quote the start of the packet that caused
//! them. The lengths in the quoted headers therefore exceed the quoted bytes, and this module does not check them.

use packet::ipv6_ext::Extensions;
use packet::{icmp, icmpv6, ip_proto, ipv4, ipv6};
use zerocopy::FromBytes;

use crate::tuple::Address;

/// Places of the fields in a packet, which may be a truncated quote.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// Offset of the source address. The destination address follows.
    pub(crate) source: usize,
    /// Offset of the checksum of the IPv4 header.
    pub(crate) header_checksum: Option<usize>,
    /// Protocol above IP.
    pub(crate) protocol: u8,
    /// Offset of the header above IP. `None` for a fragment other than the first, and for a quote without this header.
    pub(crate) upper: Option<usize>,
    /// Whether the packet is a fragment.
    pub(crate) is_fragment: bool,
}

impl Layout {
    /// Returns the layout of an IPv4 packet. Returns `None` if the header without options is incomplete or invalid.
    pub(crate) fn of_ipv4(bytes: &[u8]) -> Option<Layout> {
        let (header, _) = ipv4::Header::ref_from_prefix(bytes).ok()?;
        let (version, words) = (header.version_ihl >> 4, usize::from(header.version_ihl & 0x0f));
        if version != 4 || words < 5 {
            return None;
        }
        // The lower 13 bits are the offset, and the bit above them says that more fragments follow.
        let (offset, is_fragment) = (header.fragment.get() & 0x1fff, header.fragment.get() & 0x3fff != 0);
        let upper = Some(words * 4).filter(|upper| offset == 0 && *upper <= bytes.len());
        Some(Layout { source: 12, header_checksum: Some(10), protocol: header.proto, upper, is_fragment })
    }

    /// Returns the layout of an IPv6 packet. Returns `None` if the header without extensions is incomplete or invalid.
    pub(crate) fn of_ipv6(bytes: &[u8]) -> Option<Layout> {
        let (header, rest) = ipv6::Header::ref_from_prefix(bytes).ok()?;
        if header.version_class_label.get() >> 28 != 6 {
            return None;
        }
        let layout =
            Layout { source: 8, header_checksum: None, protocol: 0, upper: None, is_fragment: false };
        let Ok(upper) = Extensions::new(header.next_header, rest).upper() else { return Some(layout) };
        let is_first = upper.fragment.is_none_or(|fragment| fragment.offset() == 0);
        Some(Layout {
            protocol: upper.proto,
            upper: is_first.then_some(bytes.len() - upper.payload.len()),
            is_fragment: upper.fragment.is_some(),
            ..layout
        })
    }

    pub(crate) fn is_ipv6(&self) -> bool {
        self.header_checksum.is_none()
    }

    pub(crate) fn is_icmp(&self) -> bool {
        self.protocol == if self.is_ipv6() { ip_proto::ICMPV6 } else { ip_proto::ICMP }
    }

    /// Returns whether the bytes above IP are a redirect.
    pub(crate) fn is_redirect(&self, upper: &[u8]) -> bool {
        let redirect = if self.is_ipv6() { icmpv6::kind::REDIRECT } else { icmp::kind::REDIRECT };
        self.is_icmp() && upper.first() == Some(&redirect)
    }

    /// Returns the layout of the packet that an ICMP error of this address family quotes.
    pub(crate) fn of_quote(&self, quote: &[u8]) -> Option<Layout> {
        if self.is_ipv6() { Layout::of_ipv6(quote) } else { Layout::of_ipv4(quote) }
    }

    /// Returns the source and the destination of the packet. Returns `None` if the addresses are incomplete.
    pub(crate) fn addresses<A: Address>(&self, bytes: &[u8]) -> Option<[A; 2]> {
        let address = |at: usize| {
            let bytes = bytes.get(at..at + size_of::<A>())?;
            A::try_from(bytes.iter().fold(0, |bits: u128, byte| bits << 8 | u128::from(*byte))).ok()
        };
        Some([address(self.source)?, address(self.source + size_of::<A>())?])
    }
}
