//! TCP headers and options (RFC 9293, options RFC 7323 and RFC 2018).
//!
//! Connection tracking, software segmentation and `trivium explain` use these parsers. The flow key contains only
//! the ports and flags of the TCP header.

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{promised, split_header, write_header};
use crate::ip_options::RawOptions;
use crate::ipv4::Options;
use crate::{BuildError, DropReason, HeaderError, checksum};

/// Length of the TCP header without options, in bytes.
pub const MIN_LEN: usize = size_of::<Header>();
/// Offset of the checksum in the TCP header, in bytes.
pub const CHECKSUM_AT: usize = 16;

/// Flag bits of the TCP header.
pub mod flags {
    /// FIN flag: the sender has no more data.
    pub const FIN: u16 = 0x001;
    /// SYN flag: synchronise sequence numbers.
    pub const SYN: u16 = 0x002;
    /// RST flag: reset the connection.
    pub const RST: u16 = 0x004;
    /// PSH flag: the receiver should pass the data to the application promptly.
    pub const PSH: u16 = 0x008;
    /// ACK flag: the acknowledgement number is valid.
    pub const ACK: u16 = 0x010;
    /// URG flag: the urgent pointer is valid.
    pub const URG: u16 = 0x020;
    /// ECE flag: ECN echo (RFC 3168).
    pub const ECE: u16 = 0x040;
    /// CWR flag: congestion window reduced (RFC 3168).
    pub const CWR: u16 = 0x080;
}

/// Fixed part of the TCP header as laid out in the packet, 20 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// TCP source port.
    pub src_port: U16,
    /// TCP destination port.
    pub dst_port: U16,
    /// TCP sequence number.
    pub seq: U32,
    /// TCP acknowledgement number.
    pub ack: U32,
    /// Header length in 32-bit words (4 bits), reserved bits and [`flags`] (12 bits).
    pub offset_flags: U16,
    /// TCP receive window before scaling (RFC 7323).
    pub window: U16,
    /// Checksum over the pseudo-header, the TCP header and the payload.
    pub checksum: U16,
    /// TCP urgent pointer.
    pub urgent: U16,
}

/// A TCP segment whose header is complete.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<'a> {
    header: &'a Header,
    segment: &'a [u8],
    header_len: usize,
}

impl<'a> Tcp<'a> {
    /// Checks the TCP header and its length. `segment` is the payload of the IP packet.
    ///
    /// # Errors
    /// Returns an error with [`DropReason::TcpTruncated`] if the header is incomplete, or with
    /// [`DropReason::TcpBadHeader`] if its length is invalid.
    pub fn parse(segment: &'a [u8]) -> Result<Self, HeaderError> {
        let (header, _): (&Header, _) = split_header(segment, DropReason::TcpTruncated)?;
        let words = header.offset_flags.get() >> 12;
        if words < 5 {
            return Err(HeaderError::bad(DropReason::TcpBadHeader, "data offset", words.into()));
        }
        let header_len = usize::from(words) * 4;
        promised(segment, header_len, DropReason::TcpBadHeader)?;
        Ok(Tcp { header, segment, header_len })
    }

    /// Returns the TCP source port.
    pub fn src_port(&self) -> u16 {
        self.header.src_port.get()
    }

    /// Returns the TCP destination port.
    pub fn dst_port(&self) -> u16 {
        self.header.dst_port.get()
    }

    /// Returns the TCP sequence number.
    pub fn seq(&self) -> u32 {
        self.header.seq.get()
    }

    /// Returns the TCP acknowledgement number.
    pub fn ack(&self) -> u32 {
        self.header.ack.get()
    }

    /// Returns the twelve bits after the data offset: reserved bits and [`flags`].
    pub fn flags(&self) -> u16 {
        self.header.offset_flags.get() & 0x0fff
    }

    /// Returns the TCP receive window before scaling (RFC 7323).
    pub fn window(&self) -> u16 {
        self.header.window.get()
    }

    /// Returns the TCP urgent pointer.
    pub fn urgent(&self) -> u16 {
        self.header.urgent.get()
    }

    /// Returns the checksum field of the TCP header.
    pub fn checksum(&self) -> u16 {
        self.header.checksum.get()
    }

    /// Returns whether the TCP checksum is correct. `pseudo_sum` is the partial checksum of the pseudo-header (see
    /// [`crate::checksum`]).
    pub fn checksum_ok(&self, pseudo_sum: u32) -> bool {
        checksum::finish(pseudo_sum + checksum::sum(self.segment)) == 0
    }

    /// Returns the length of the TCP header in bytes, 20..=60.
    pub fn header_len(&self) -> usize {
        self.header_len
    }

    /// Returns the bytes of the TCP options, including padding.
    pub fn option_bytes(&self) -> &'a [u8] {
        self.segment.get(MIN_LEN..self.header_len).unwrap_or_default()
    }

    /// Returns an iterator over the TCP options.
    pub fn options(&self) -> TcpOptions<'a> {
        TcpOptions(RawOptions::new(self.option_bytes()))
    }

    /// Returns the payload of the TCP segment.
    pub fn payload(&self) -> &'a [u8] {
        self.segment.get(self.header_len..).unwrap_or_default()
    }
}

/// One TCP option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpOption<'a> {
    /// Maximum segment size (MSS) in octets.
    MaxSegmentSize(u16),
    /// Shift count of the receive window (window scale).
    WindowScale(u8),
    /// The sender accepts selective acknowledgements.
    SackPermitted,
    /// Selectively acknowledged blocks: pairs of 32-bit sequence numbers.
    Sack(&'a [[u8; 8]]),
    /// Timestamp value and timestamp echo reply.
    Timestamps(u32, u32),
    /// Another option, or a known kind with an unexpected length. The fields are the kind and the data.
    Other(u8, &'a [u8]),
}

/// Iterator over the options of a TCP header. An option with a bad length yields one error and ends the
/// iteration.
#[derive(Clone, Debug)]
pub struct TcpOptions<'a>(RawOptions<'a>);

impl<'a> Iterator for TcpOptions<'a> {
    type Item = Result<TcpOption<'a>, HeaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        let raw = match self.0.next()? {
            Ok(raw) => raw,
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(match (raw.kind, raw.data) {
            (2, &[a, b]) => TcpOption::MaxSegmentSize(u16::from_be_bytes([a, b])),
            (3, &[shift]) => TcpOption::WindowScale(shift),
            (4, &[]) => TcpOption::SackPermitted,
            (5, data) if data.len().is_multiple_of(8) => TcpOption::Sack(data.as_chunks().0),
            (8, &[a, b, c, d, e, f, g, h]) => {
                TcpOption::Timestamps(u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
            }
            (kind, data) => TcpOption::Other(kind, data),
        }))
    }
}

/// A TCP header to be written. [`TcpRepr::emit`] writes zero as the checksum, and [`checksum::fill`] then
/// stores the correct value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpRepr {
    /// TCP source port.
    pub src_port: u16,
    /// TCP destination port.
    pub dst_port: u16,
    /// TCP sequence number.
    pub seq: u32,
    /// TCP acknowledgement number.
    pub ack: u32,
    /// TCP flags, 12 bits. See [`flags`].
    pub flags: u16,
    /// TCP receive window before scaling (RFC 7323).
    pub window: u16,
    /// TCP urgent pointer.
    pub urgent: u16,
    /// TCP options.
    pub options: Options,
}

impl TcpRepr {
    /// Converts a parsed TCP header to a header to be written.
    pub fn parse(view: &Tcp<'_>) -> TcpRepr {
        TcpRepr {
            src_port: view.src_port(),
            dst_port: view.dst_port(),
            seq: view.seq(),
            ack: view.ack(),
            flags: view.flags(),
            window: view.window(),
            urgent: view.urgent(),
            options: Options::new(view.option_bytes()).unwrap_or_default(),
        }
    }

    /// Returns the number of bytes that [`TcpRepr::emit`] writes.
    pub fn header_len(&self) -> usize {
        MIN_LEN + self.options.as_bytes().len()
    }

    /// Writes the TCP header at the start of `bytes` and returns the bytes after it.
    ///
    /// # Errors
    /// Returns [`BuildError::BufferTooSmall`] if `bytes` is too short.
    pub fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], BuildError> {
        let (options, header_len) = (self.options.as_bytes(), self.header_len());
        if bytes.len() < header_len {
            return Err(BuildError::BufferTooSmall { need: header_len, have: bytes.len() });
        }
        let words = u16::try_from(header_len / 4).unwrap_or_default();
        let header = Header {
            src_port: self.src_port.into(),
            dst_port: self.dst_port.into(),
            seq: self.seq.into(),
            ack: self.ack.into(),
            offset_flags: (words << 12 | (self.flags & 0x0fff)).into(),
            window: self.window.into(),
            checksum: U16::ZERO,
            urgent: self.urgent.into(),
        };
        let (place, rest) = write_header(bytes, &header)?.split_at_mut(options.len());
        place.copy_from_slice(options);
        Ok(rest)
    }
}
