//! IPv6 extension headers (RFC 8200 section 4, AH RFC 4302). The module finds the upper-layer protocol after a
//! limited number of extension headers.

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{promised, write_header};
use crate::numbers::ip_proto;
use crate::{BuildError, DropReason, HeaderError};

/// Maximum number of extension headers that the parser skips. Legitimate packets have fewer.
pub const MAX_EXTENSIONS: usize = 8;

/// Returns whether a protocol number belongs to an extension header that the parser skips. The parser does not skip
/// ESP, because ESP encrypts the headers that follow.
pub const fn is_extension(next_header: u8) -> bool {
    matches!(
        next_header,
        ip_proto::HOP_BY_HOP | ip_proto::ROUTING | ip_proto::FRAGMENT | ip_proto::DEST_OPTS | ip_proto::AH
    )
}

/// Fragment header as laid out in the packet, 8 bytes (RFC 8200 section 4.5).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FragmentHeader {
    /// Protocol number of the header that follows.
    pub next_header: u8,
    /// Reserved octet of the fragment header, zero.
    pub reserved: u8,
    /// Fragment offset in units of 8 octets (13 bits), reserved (2 bits), more fragments (1 bit).
    pub offset_more: U16,
    /// Identification, which is common to all fragments of a packet.
    pub id: U32,
}

impl FragmentHeader {
    /// Returns the offset of this fragment's payload in the original packet, in octets.
    pub fn offset(&self) -> u16 {
        self.offset_more.get() & 0xfff8
    }

    /// Returns whether more fragments of the original packet follow.
    pub fn more(&self) -> bool {
        self.offset_more.get() & 1 != 0
    }

    /// Returns whether the packet with this header is a fragment. A packet with an atomic fragment header
    /// (RFC 6946) is not a fragment.
    pub fn is_fragment(&self) -> bool {
        self.more() || self.offset() != 0
    }
}

/// One extension header of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extension<'a> {
    /// Protocol number of this extension header, from the next-header field of the previous header.
    pub kind: u8,
    /// Bytes of the extension header. The first byte is the next-header field.
    pub bytes: &'a [u8],
}

impl<'a> Extension<'a> {
    /// Returns the fragment header if this extension header is a fragment header. Returns `None`
    /// for other extension headers.
    pub fn fragment(&self) -> Option<&'a FragmentHeader> {
        let header = FragmentHeader::ref_from_bytes(self.bytes).ok()?;
        if self.kind == ip_proto::FRAGMENT { Some(header) } else { None }
    }
}

/// Iterator over the extension headers of a packet. The iteration ends at the upper-layer protocol, after the
/// fragment header of a later fragment, or after one error.
#[derive(Clone, Debug)]
pub struct Extensions<'a> {
    next_header: u8,
    rest: &'a [u8],
    left: usize,
    done: bool,
}

/// Upper-layer protocol and data that follow the extension headers.
#[derive(Clone, Copy, Debug)]
pub struct Upper<'a> {
    /// Upper-layer protocol number.
    pub proto: u8,
    /// Bytes of the upper layer. For a fragment other than the first, they are a later part of the upper-layer
    /// data.
    pub payload: &'a [u8],
    /// Fragment header of the packet. `None` if the packet is not a fragment.
    pub fragment: Option<&'a FragmentHeader>,
}

impl<'a> Extensions<'a> {
    /// Returns an iterator over the extension headers in `bytes`. `next_header` is the protocol number of the
    /// first extension header.
    pub fn new(next_header: u8, bytes: &'a [u8]) -> Extensions<'a> {
        Extensions { next_header, rest: bytes, left: MAX_EXTENSIONS, done: false }
    }

    /// Skips the remaining extension headers, and returns the upper-layer protocol and its data.
    ///
    /// # Errors
    /// Returns an error with [`DropReason::Ipv6ExtTruncated`] if an extension header is incomplete, or with
    /// [`DropReason::Ipv6ExtTooMany`] if there are too many extension headers.
    pub fn upper(mut self) -> Result<Upper<'a>, HeaderError> {
        let mut fragment = None;
        for extension in self.by_ref() {
            let seen = extension?.fragment().filter(|header| header.is_fragment());
            fragment = seen.or(fragment);
        }
        Ok(Upper { proto: self.next_header, payload: self.rest, fragment })
    }

    fn step(&mut self) -> Result<Extension<'a>, HeaderError> {
        let kind = self.next_header;
        let Some(left) = self.left.checked_sub(1) else {
            return Err(HeaderError::bad(DropReason::Ipv6ExtTooMany, "next header", kind.into()));
        };
        let head = promised(self.rest, 8, DropReason::Ipv6ExtTruncated)?;
        let len = match kind {
            ip_proto::FRAGMENT => 8,
            ip_proto::AH => (usize::from(head[1]) + 2) * 4,
            _ => (usize::from(head[1]) + 1) * 8,
        };
        let bytes = promised(self.rest, len, DropReason::Ipv6ExtTruncated)?;
        self.rest = self.rest.get(len..).unwrap_or_default();
        (self.next_header, self.left) = (head[0], left);
        let extension = Extension { kind, bytes };
        self.done = extension.fragment().is_some_and(|header| header.offset() != 0);
        Ok(extension)
    }
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Result<Extension<'a>, HeaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done || !is_extension(self.next_header) {
            return None;
        }
        let step = self.step();
        self.done |= step.is_err();
        Some(step)
    }
}

/// A fragment header to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FragmentRepr {
    /// Protocol number of the header that follows.
    pub next_header: u8,
    /// Offset of this fragment's payload in the original packet, in octets, a multiple of 8.
    pub offset: u16,
    /// Whether more fragments of the original packet follow.
    pub more: bool,
    /// Identification of the original packet.
    pub id: u32,
}

impl FragmentRepr {
    /// Number of bytes that [`FragmentRepr::emit`] writes.
    pub const LEN: usize = size_of::<FragmentHeader>();

    /// Converts a parsed fragment header to a header to be written.
    pub fn parse(header: &FragmentHeader) -> FragmentRepr {
        FragmentRepr {
            next_header: header.next_header,
            offset: header.offset(),
            more: header.more(),
            id: header.id.get(),
        }
    }

    /// Writes the fragment header at the start of `bytes` and returns the bytes after it.
    ///
    /// # Errors
    /// Returns [`BuildError::BufferTooSmall`] if `bytes` is too short.
    pub fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], BuildError> {
        let header = FragmentHeader {
            next_header: self.next_header,
            reserved: 0,
            offset_more: ((self.offset & 0xfff8) | u16::from(self.more)).into(),
            id: self.id.into(),
        };
        write_header(bytes, &header)
    }
}
