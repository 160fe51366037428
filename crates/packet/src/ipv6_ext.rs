//! IPv6 extension headers (RFC 8200 section 4; AH RFC 4302): a bounded walk to the protocol above IP.

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{promised, write_header};
use crate::numbers::ip_proto;
use crate::{BuildError, DropReason, HeaderError};

/// Most extension headers that are walked; more than that is no real traffic.
pub const MAX_EXTENSIONS: usize = 8;

/// Whether this protocol number is an extension header that is walked. ESP hides what follows it and so ends the walk.
pub const fn is_extension(next_header: u8) -> bool {
    matches!(
        next_header,
        ip_proto::HOP_BY_HOP | ip_proto::ROUTING | ip_proto::FRAGMENT | ip_proto::DEST_OPTS | ip_proto::AH
    )
}

/// The fragment header as it lies in the packet: 8 bytes (RFC 8200 section 4.5).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FragmentHeader {
    /// Protocol of what follows.
    pub next_header: u8,
    /// Zero.
    pub reserved: u8,
    /// Offset in units of 8 octets (13 bits), reserved (2), more fragments (1).
    pub offset_more: U16,
    /// Identification, which the fragments of a packet share.
    pub id: U32,
}

impl FragmentHeader {
    /// Where this fragment's payload stands in the whole, in octets.
    pub fn offset(&self) -> u16 {
        self.offset_more.get() & 0xfff8
    }

    /// Whether further fragments follow.
    pub fn more(&self) -> bool {
        self.offset_more.get() & 1 != 0
    }

    /// Whether the header makes the packet a fragment; a lone one does not (RFC 6946).
    pub fn is_fragment(&self) -> bool {
        self.more() || self.offset() != 0
    }
}

/// One extension header: its protocol number and all its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extension<'a> {
    /// The number that announced it.
    pub kind: u8,
    /// The header, its next-header octet first.
    pub bytes: &'a [u8],
}

impl<'a> Extension<'a> {
    /// The fragment header, if it is one.
    pub fn fragment(&self) -> Option<&'a FragmentHeader> {
        let header = FragmentHeader::ref_from_bytes(self.bytes).ok()?;
        if self.kind == ip_proto::FRAGMENT { Some(header) } else { None }
    }
}

/// Walks extension headers; ends at the upper protocol, behind a later fragment's header, or with one error.
#[derive(Clone, Debug)]
pub struct Extensions<'a> {
    next_header: u8,
    rest: &'a [u8],
    left: usize,
    done: bool,
}

/// What the extension headers lead to.
#[derive(Clone, Copy, Debug)]
pub struct Upper<'a> {
    /// The protocol above IP.
    pub proto: u8,
    /// Its bytes; for a later fragment, a piece from its middle.
    pub payload: &'a [u8],
    /// The fragment header, if the packet is a fragment.
    pub fragment: Option<&'a FragmentHeader>,
}

impl<'a> Extensions<'a> {
    /// The extension headers in `bytes`, of which the first is announced by `next_header`.
    pub fn new(next_header: u8, bytes: &'a [u8]) -> Extensions<'a> {
        Extensions { next_header, rest: bytes, left: MAX_EXTENSIONS, done: false }
    }

    /// Walks the rest of the headers.
    ///
    /// # Errors
    /// [`DropReason::Ipv6ExtTruncated`], [`DropReason::Ipv6ExtTooMany`].
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
    /// Protocol of what follows.
    pub next_header: u8,
    /// Where this fragment's payload stands in the whole: octets, a multiple of 8.
    pub offset: u16,
    /// Further fragments follow.
    pub more: bool,
    /// Identification.
    pub id: u32,
}

impl FragmentRepr {
    /// Bytes that [`FragmentRepr::emit`] writes.
    pub const LEN: usize = size_of::<FragmentHeader>();

    /// The representation of a parsed header.
    pub fn parse(header: &FragmentHeader) -> FragmentRepr {
        FragmentRepr {
            next_header: header.next_header,
            offset: header.offset(),
            more: header.more(),
            id: header.id.get(),
        }
    }

    /// Writes the header and gives the bytes behind it.
    ///
    /// # Errors
    /// [`BuildError::BufferTooSmall`].
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
