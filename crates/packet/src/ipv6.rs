//! IPv6 headers (RFC 8200). Extension headers are in [`crate::ipv6_ext`].
//!
//! This module parses the header where a packet is routed, punted or answered. Table look-ups use the fields of the
//! flow key ([`crate::FlowKey`]) instead.

use std::net::Ipv6Addr;

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{promised, split_header, write_header};
use crate::ipv6_ext::{Extensions, Upper};
use crate::numbers::ip_proto;
use crate::{BuildError, DropReason, HeaderError};

/// Length of the fixed IPv6 header, in bytes.
pub const LEN: usize = size_of::<Header>();

/// Fixed IPv6 header as laid out in the packet, 40 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Version (4 bits), traffic class (8 bits), flow label (20 bits).
    pub version_class_label: U32,
    /// Length of the data after this header in octets, including extension headers.
    pub payload_len: U16,
    /// Protocol number of the header that follows.
    pub next_header: u8,
    /// IPv6 hop limit.
    pub hop_limit: u8,
    /// IPv6 source address.
    pub src: [u8; 16],
    /// IPv6 destination address.
    pub dst: [u8; 16],
}

/// An IPv6 packet whose fixed header and length are valid.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6<'a> {
    header: &'a Header,
    payload: &'a [u8],
}

impl<'a> Ipv6<'a> {
    /// Checks version and length as Linux does on receipt (`ip6_rcv`). Padding after the packet is cut off.
    ///
    /// A packet with payload length 0 and hop-by-hop options is treated as a jumbogram (RFC 2675) that
    /// extends to the end of the frame.
    ///
    /// # Errors
    /// Returns an error with [`DropReason::Ipv6Truncated`], [`DropReason::Ipv6BadHeader`] or
    /// [`DropReason::Ipv6BadLength`] if a check fails.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, HeaderError> {
        let (header, rest): (&Header, _) = split_header(bytes, DropReason::Ipv6Truncated)?;
        let version = header.version_class_label.get() >> 28;
        if version != 6 {
            return Err(HeaderError::bad(DropReason::Ipv6BadHeader, "version", version));
        }
        let len = header.payload_len.get();
        let jumbo = len == 0 && header.next_header == ip_proto::HOP_BY_HOP;
        let payload = if jumbo { rest } else { promised(rest, len.into(), DropReason::Ipv6BadLength)? };
        Ok(Ipv6 { header, payload })
    }

    /// Returns the fixed IPv6 header.
    pub fn header(&self) -> &'a Header {
        self.header
    }

    /// Returns the traffic class octet: DSCP (6 bits) and ECN (2 bits).
    pub fn traffic_class(&self) -> u8 {
        let [high, low, ..] = *self.header.version_class_label.as_bytes() else { return 0 };
        high << 4 | low >> 4
    }

    /// Returns the IPv6 flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        self.header.version_class_label.get() & 0x000f_ffff
    }

    /// Returns the protocol number of the header that directly follows this header. The following header may
    /// be an extension header.
    pub fn next_header(&self) -> u8 {
        self.header.next_header
    }

    /// Returns the IPv6 hop limit.
    pub fn hop_limit(&self) -> u8 {
        self.header.hop_limit
    }

    /// Returns the IPv6 source address.
    pub fn src(&self) -> Ipv6Addr {
        self.header.src.into()
    }

    /// Returns the IPv6 destination address.
    pub fn dst(&self) -> Ipv6Addr {
        self.header.dst.into()
    }

    /// Returns the bytes after the fixed IPv6 header, including extension headers but not padding.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns an iterator over the extension headers.
    pub fn extensions(&self) -> Extensions<'a> {
        Extensions::new(self.next_header(), self.payload)
    }

    /// Returns the upper-layer protocol and the bytes of the upper layer, after all extension headers.
    ///
    /// # Errors
    /// Returns an error with [`DropReason::Ipv6ExtTruncated`] if an extension header is incomplete, or with
    /// [`DropReason::Ipv6ExtTooMany`] if there are too many extension headers.
    pub fn upper(&self) -> Result<Upper<'a>, HeaderError> {
        self.extensions().upper()
    }

    /// Returns the partial checksum of the IPv6 pseudo-header for an L4 packet of `len` octets (see
    /// [`crate::checksum`]).
    pub fn pseudo_sum(&self, proto: u8, len: usize) -> u32 {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        crate::checksum::l4_pseudo_v6(self.src(), self.dst(), proto, len)
    }
}

/// An IPv6 header to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv6Repr {
    /// IPv6 source address.
    pub src: Ipv6Addr,
    /// IPv6 destination address.
    pub dst: Ipv6Addr,
    /// Traffic class octet: DSCP (6 bits) and ECN (2 bits).
    pub traffic_class: u8,
    /// IPv6 flow label, 20 bits.
    pub flow_label: u32,
    /// Protocol number of the header that follows.
    pub next_header: u8,
    /// IPv6 hop limit.
    pub hop_limit: u8,
    /// Length of the data after this header, in octets.
    pub payload_len: u16,
}

impl Default for Ipv6Repr {
    fn default() -> Self {
        Ipv6Repr {
            src: Ipv6Addr::UNSPECIFIED,
            dst: Ipv6Addr::UNSPECIFIED,
            traffic_class: 0,
            flow_label: 0,
            next_header: ip_proto::NO_NEXT,
            hop_limit: 64,
            payload_len: 0,
        }
    }
}

impl Ipv6Repr {
    /// Converts a parsed IPv6 header to a header to be written.
    pub fn parse(view: &Ipv6<'_>) -> Ipv6Repr {
        Ipv6Repr {
            src: view.src(),
            dst: view.dst(),
            traffic_class: view.traffic_class(),
            flow_label: view.flow_label(),
            next_header: view.next_header(),
            hop_limit: view.hop_limit(),
            payload_len: view.header.payload_len.get(),
        }
    }

    /// Writes the IPv6 header at the start of `bytes` and returns the bytes after it.
    ///
    /// # Errors
    /// Returns [`BuildError::BufferTooSmall`] if `bytes` is too short.
    pub fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], BuildError> {
        let label = self.flow_label & 0x000f_ffff;
        let header = Header {
            version_class_label: (6 << 28 | u32::from(self.traffic_class) << 20 | label).into(),
            payload_len: self.payload_len.into(),
            next_header: self.next_header,
            hop_limit: self.hop_limit,
            src: self.src.octets(),
            dst: self.dst.octets(),
        };
        write_header(bytes, &header)
    }
}
