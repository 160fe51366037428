//! IPv4 headers with options and fragments (RFC 791, DSCP RFC 2474, ECN RFC 3168).
//!
//! This module parses the header where a packet is routed, punted or answered. Table look-ups use the fields of the
//! flow key ([`crate::FlowKey`]) instead.

use std::net::Ipv4Addr;

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{promised, split_header, write_header};
pub use crate::ip_options::{RawOption, RawOptions};
use crate::{BuildError, DropReason, HeaderError, checksum};

/// Length of the IPv4 header without options, in bytes.
pub const MIN_LEN: usize = size_of::<Header>();
/// Maximum length of the options, in bytes.
pub const MAX_OPTIONS: usize = 40;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;

/// Fixed part of the IPv4 header as laid out in the packet, 20 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Version (4 bits) and header length in 32-bit words (4 bits).
    pub version_ihl: u8,
    /// DSCP (6 bits) and ECN (2 bits).
    pub tos: u8,
    /// Length of the IPv4 header and the payload in octets.
    pub total_len: U16,
    /// Identification, which is common to all fragments of a packet.
    pub id: U16,
    /// Flags (reserved, "don't fragment" and "more fragments", 1 bit each) and fragment offset in units of 8
    /// octets (13 bits).
    pub fragment: U16,
    /// IPv4 time to live, in hops.
    pub ttl: u8,
    /// IP protocol number of the payload.
    pub proto: u8,
    /// Checksum over the IPv4 header.
    pub checksum: U16,
    /// IPv4 source address.
    pub src: [u8; 4],
    /// IPv4 destination address.
    pub dst: [u8; 4],
}

/// An IPv4 packet whose header and lengths are valid. The checksum is not verified.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<'a> {
    header: &'a Header,
    header_bytes: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Ipv4<'a> {
    /// Checks version and lengths as Linux does on receipt (`ip_rcv`). Padding after the packet is cut off.
    ///
    /// # Errors
    /// Returns an error with [`DropReason::Ipv4Truncated`], [`DropReason::Ipv4BadHeader`] or
    /// [`DropReason::Ipv4BadLength`] if a check fails.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, HeaderError> {
        let (header, _): (&Header, _) = split_header(bytes, DropReason::Ipv4Truncated)?;
        let (version, words) = (header.version_ihl >> 4, header.version_ihl & 0x0f);
        if version != 4 {
            return Err(HeaderError::bad(DropReason::Ipv4BadHeader, "version", version.into()));
        }
        if words < 5 {
            return Err(HeaderError::bad(DropReason::Ipv4BadHeader, "IHL", words.into()));
        }
        let header_bytes = promised(bytes, usize::from(words) * 4, DropReason::Ipv4Truncated)?;
        let total = header.total_len.get();
        let packet = promised(bytes, total.into(), DropReason::Ipv4BadLength)?;
        let Some(payload) = packet.get(header_bytes.len()..) else {
            return Err(HeaderError::bad(DropReason::Ipv4BadLength, "total length", total.into()));
        };
        Ok(Ipv4 { header, header_bytes, payload })
    }

    /// Returns the fixed part of the IPv4 header.
    pub fn header(&self) -> &'a Header {
        self.header
    }

    /// Returns the length of the IPv4 header in bytes, 20..=60.
    pub fn header_len(&self) -> usize {
        self.header_bytes.len()
    }

    /// Returns the length of the IPv4 header and the payload in octets.
    pub fn total_len(&self) -> u16 {
        self.header.total_len.get()
    }

    /// Returns the type of service octet: DSCP (6 bits) and ECN (2 bits).
    pub fn tos(&self) -> u8 {
        self.header.tos
    }

    /// Returns the identification field of the IPv4 header.
    pub fn id(&self) -> u16 {
        self.header.id.get()
    }

    /// Returns whether the "don't fragment" flag is set.
    pub fn dont_fragment(&self) -> bool {
        self.header.fragment.get() & DONT_FRAGMENT != 0
    }

    /// Returns whether the "more fragments" flag is set.
    pub fn more_fragments(&self) -> bool {
        self.header.fragment.get() & MORE_FRAGMENTS != 0
    }

    /// Returns the offset of this fragment's payload in the original packet, in octets.
    pub fn fragment_offset(&self) -> usize {
        usize::from(self.header.fragment.get() & 0x1fff) * 8
    }

    /// Returns whether the packet is a fragment, either the first or a later one.
    pub fn is_fragment(&self) -> bool {
        self.more_fragments() || self.fragment_offset() != 0
    }

    /// Returns the IPv4 time to live, in hops.
    pub fn ttl(&self) -> u8 {
        self.header.ttl
    }

    /// Returns the IP protocol number of the payload.
    pub fn proto(&self) -> u8 {
        self.header.proto
    }

    /// Returns the checksum field of the IPv4 header.
    pub fn checksum(&self) -> u16 {
        self.header.checksum.get()
    }

    /// Returns whether the IPv4 header checksum is correct.
    pub fn checksum_ok(&self) -> bool {
        checksum::ipv4_header(self.header_bytes) == 0
    }

    /// Returns the IPv4 source address.
    pub fn src(&self) -> Ipv4Addr {
        self.header.src.into()
    }

    /// Returns the IPv4 destination address.
    pub fn dst(&self) -> Ipv4Addr {
        self.header.dst.into()
    }

    /// Returns the bytes of the IPv4 options, including padding.
    pub fn option_bytes(&self) -> &'a [u8] {
        self.header_bytes.get(MIN_LEN..).unwrap_or_default()
    }

    /// Returns an iterator over the IPv4 options.
    pub fn options(&self) -> RawOptions<'a> {
        RawOptions::new(self.option_bytes())
    }

    /// Returns the payload of the IPv4 packet without padding.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the partial checksum of the IPv4 pseudo-header for the payload of this packet (see
    /// [`crate::checksum`]).
    pub fn pseudo_sum(&self) -> u32 {
        let len = u16::try_from(self.payload.len()).unwrap_or(u16::MAX);
        checksum::l4_pseudo_v4(self.src(), self.dst(), self.proto(), len)
    }
}

/// An IPv4 header to be written. [`Ipv4Repr::emit`] computes its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4Repr {
    /// IPv4 source address.
    pub src: Ipv4Addr,
    /// IPv4 destination address.
    pub dst: Ipv4Addr,
    /// IP protocol number of the payload.
    pub proto: u8,
    /// Type of service octet: DSCP (6 bits) and ECN (2 bits).
    pub tos: u8,
    /// IPv4 time to live, in hops.
    pub ttl: u8,
    /// Identification field of the IPv4 header.
    pub id: u16,
    /// Whether the "don't fragment" flag is set.
    pub dont_fragment: bool,
    /// Whether the "more fragments" flag is set.
    pub more_fragments: bool,
    /// Offset of this fragment's payload in the original packet, in octets, a multiple of 8.
    pub fragment_offset: u16,
    /// IPv4 options.
    pub options: Options,
    /// Length of the payload after the header, in octets.
    pub payload_len: u16,
}

/// Up to 40 bytes of IPv4 or TCP options. The options are padded with end-of-list options to a
/// multiple of four bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    bytes: [u8; MAX_OPTIONS],
    len: u8,
}

impl Default for Options {
    fn default() -> Self {
        Options::NONE
    }
}

impl Options {
    /// An option list without options.
    pub const NONE: Options = Options { bytes: [0; MAX_OPTIONS], len: 0 };

    /// Returns an option list with the given bytes. Returns `None` if there are more than 40 bytes.
    pub fn new(bytes: &[u8]) -> Option<Options> {
        let mut options = Options::NONE;
        options.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        options.len = u8::try_from(bytes.len().next_multiple_of(4)).ok()?;
        Some(options)
    }

    /// Returns the bytes of the options and their padding. The length is a multiple of four.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl Default for Ipv4Repr {
    fn default() -> Self {
        Ipv4Repr {
            src: Ipv4Addr::UNSPECIFIED,
            dst: Ipv4Addr::UNSPECIFIED,
            proto: 0,
            tos: 0,
            ttl: 64,
            id: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            options: Options::NONE,
            payload_len: 0,
        }
    }
}

impl Ipv4Repr {
    /// Converts a parsed IPv4 header to a header to be written.
    pub fn parse(view: &Ipv4<'_>) -> Ipv4Repr {
        Ipv4Repr {
            src: view.src(),
            dst: view.dst(),
            proto: view.proto(),
            tos: view.tos(),
            ttl: view.ttl(),
            id: view.id(),
            dont_fragment: view.dont_fragment(),
            more_fragments: view.more_fragments(),
            fragment_offset: u16::try_from(view.fragment_offset()).unwrap_or(u16::MAX),
            options: Options::new(view.option_bytes()).unwrap_or_default(),
            payload_len: u16::try_from(view.payload().len()).unwrap_or(u16::MAX),
        }
    }

    /// Returns the number of bytes that [`Ipv4Repr::emit`] writes.
    pub fn header_len(&self) -> usize {
        MIN_LEN + self.options.as_bytes().len()
    }

    /// Writes the IPv4 header, including its checksum, at the start of `bytes` and returns the bytes after it.
    ///
    /// # Errors
    /// Returns [`BuildError::BufferTooSmall`] if `bytes` is too short.
    pub fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], BuildError> {
        let (options, header_len) = (self.options.as_bytes(), self.header_len());
        if bytes.len() < header_len {
            return Err(BuildError::BufferTooSmall { need: header_len, have: bytes.len() });
        }
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        let header_len_field = u8::try_from(header_len).unwrap_or(u8::MAX);
        let mut header = Header {
            version_ihl: 0x40 | (header_len_field / 4),
            tos: self.tos,
            total_len: self.payload_len.saturating_add(header_len_field.into()).into(),
            id: self.id.into(),
            fragment: (flag(self.dont_fragment, DONT_FRAGMENT)
                | flag(self.more_fragments, MORE_FRAGMENTS)
                | (self.fragment_offset / 8))
                .into(),
            ttl: self.ttl,
            proto: self.proto,
            checksum: U16::ZERO,
            src: self.src.octets(),
            dst: self.dst.octets(),
        };
        let sum = checksum::sum(header.as_bytes()) + checksum::sum(options);
        header.checksum = checksum::finish(sum).into();
        let (place, rest) = write_header(bytes, &header)?.split_at_mut(options.len());
        place.copy_from_slice(options);
        Ok(rest)
    }
}
