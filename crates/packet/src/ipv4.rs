//! IPv4 headers with options and fragments (RFC 791; DSCP RFC 2474, ECN RFC 3168).
//!
//! Read where a packet is routed, punted or answered; the flow key has what look-ups need.

use std::net::Ipv4Addr;

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{promised, split_header, write_header};
pub use crate::ip_options::{RawOption, RawOptions};
use crate::{BuildError, DropReason, HeaderError, checksum};

/// Length of the header without options.
pub const MIN_LEN: usize = size_of::<Header>();
/// Most bytes of options.
pub const MAX_OPTIONS: usize = 40;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;

/// The fixed part as it lies in the packet: 20 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Version (4 bits) and header length in 32-bit words (4 bits).
    pub version_ihl: u8,
    /// DSCP (6 bits) and ECN (2 bits).
    pub tos: u8,
    /// Octets of header and payload.
    pub total_len: U16,
    /// Identification, which the fragments of a packet share.
    pub id: U16,
    /// Reserved, don't fragment, more fragments (a bit each), offset in units of 8 octets (13 bits).
    pub fragment: U16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub proto: u8,
    /// Header checksum.
    pub checksum: U16,
    /// Source address.
    pub src: [u8; 4],
    /// Destination address.
    pub dst: [u8; 4],
}

/// An IPv4 packet whose header and lengths are sound. The checksum is not yet verified.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<'a> {
    header: &'a Header,
    header_bytes: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Ipv4<'a> {
    /// Checks version and lengths as Linux does on receipt; padding behind the packet is cut off.
    ///
    /// # Errors
    /// [`DropReason::Ipv4Truncated`], [`DropReason::Ipv4BadHeader`], [`DropReason::Ipv4BadLength`].
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

    /// The fixed part.
    pub fn header(&self) -> &'a Header {
        self.header
    }

    /// Header length in bytes, 20..=60.
    pub fn header_len(&self) -> usize {
        self.header_bytes.len()
    }

    /// Octets of header and payload.
    pub fn total_len(&self) -> u16 {
        self.header.total_len.get()
    }

    /// DSCP and ECN.
    pub fn tos(&self) -> u8 {
        self.header.tos
    }

    /// Identification.
    pub fn id(&self) -> u16 {
        self.header.id.get()
    }

    /// Whether routers must not fragment the packet.
    pub fn dont_fragment(&self) -> bool {
        self.header.fragment.get() & DONT_FRAGMENT != 0
    }

    /// Whether further fragments follow.
    pub fn more_fragments(&self) -> bool {
        self.header.fragment.get() & MORE_FRAGMENTS != 0
    }

    /// Where this fragment's payload stands in the whole, in octets.
    pub fn fragment_offset(&self) -> usize {
        usize::from(self.header.fragment.get() & 0x1fff) * 8
    }

    /// Whether the packet is a fragment, first or later.
    pub fn is_fragment(&self) -> bool {
        self.more_fragments() || self.fragment_offset() != 0
    }

    /// Time to live.
    pub fn ttl(&self) -> u8 {
        self.header.ttl
    }

    /// Protocol of the payload.
    pub fn proto(&self) -> u8 {
        self.header.proto
    }

    /// The checksum field.
    pub fn checksum(&self) -> u16 {
        self.header.checksum.get()
    }

    /// Whether the header checksum is right.
    pub fn checksum_ok(&self) -> bool {
        checksum::ipv4_header(self.header_bytes) == 0
    }

    /// Source address.
    pub fn src(&self) -> Ipv4Addr {
        self.header.src.into()
    }

    /// Destination address.
    pub fn dst(&self) -> Ipv4Addr {
        self.header.dst.into()
    }

    /// The option bytes, padding included.
    pub fn option_bytes(&self) -> &'a [u8] {
        self.header_bytes.get(MIN_LEN..).unwrap_or_default()
    }

    /// The options.
    pub fn options(&self) -> RawOptions<'a> {
        RawOptions::new(self.option_bytes())
    }

    /// What the packet carries, without padding.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The pseudo-header sum for the payload as one L4 packet.
    pub fn pseudo_sum(&self) -> u32 {
        let len = u16::try_from(self.payload.len()).unwrap_or(u16::MAX);
        checksum::l4_pseudo_v4(self.src(), self.dst(), self.proto(), len)
    }
}

/// An IPv4 header to be written; its checksum is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4Repr {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Protocol of the payload.
    pub proto: u8,
    /// DSCP and ECN.
    pub tos: u8,
    /// Time to live.
    pub ttl: u8,
    /// Identification.
    pub id: u16,
    /// Routers must not fragment the packet.
    pub dont_fragment: bool,
    /// Further fragments follow.
    pub more_fragments: bool,
    /// Where this fragment's payload stands in the whole: octets, a multiple of 8.
    pub fragment_offset: u16,
    /// Options.
    pub options: Options,
    /// Octets behind the header.
    pub payload_len: u16,
}

/// Up to 40 bytes of options, padded with end-of-list to a multiple of four.
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
    /// No options.
    pub const NONE: Options = Options { bytes: [0; MAX_OPTIONS], len: 0 };

    /// These bytes as options; `None` if there are more than 40.
    pub fn new(bytes: &[u8]) -> Option<Options> {
        let mut options = Options::NONE;
        options.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        options.len = u8::try_from(bytes.len().next_multiple_of(4)).ok()?;
        Some(options)
    }

    /// The bytes with their padding: a multiple of four.
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
    /// The representation of a parsed header.
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

    /// Bytes that [`Ipv4Repr::emit`] writes.
    pub fn header_len(&self) -> usize {
        MIN_LEN + self.options.as_bytes().len()
    }

    /// Writes the header with its checksum and gives the bytes behind it.
    ///
    /// # Errors
    /// [`BuildError::BufferTooSmall`].
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
