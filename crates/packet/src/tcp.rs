//! TCP headers and options (RFC 9293; options RFC 7323, RFC 2018).
//!
//! Read by connection tracking, by segmentation in software and by `explain`; the flow key has ports and flags.

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{promised, split_header, write_header};
use crate::ip_options::RawOptions;
use crate::ipv4::Options;
use crate::{BuildError, DropReason, HeaderError, checksum};

/// Length of the header without options.
pub const MIN_LEN: usize = size_of::<Header>();
/// Where the checksum stands in the header.
pub const CHECKSUM_AT: usize = 16;

/// Bits of the flags field.
pub mod flags {
    /// No more data from the sender.
    pub const FIN: u16 = 0x001;
    /// Synchronise sequence numbers.
    pub const SYN: u16 = 0x002;
    /// Reset the connection.
    pub const RST: u16 = 0x004;
    /// Push.
    pub const PSH: u16 = 0x008;
    /// The acknowledgement number counts.
    pub const ACK: u16 = 0x010;
    /// The urgent pointer counts.
    pub const URG: u16 = 0x020;
    /// ECN echo, RFC 3168.
    pub const ECE: u16 = 0x040;
    /// Congestion window reduced, RFC 3168.
    pub const CWR: u16 = 0x080;
}

/// The fixed part as it lies in the packet: 20 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Source port.
    pub src_port: U16,
    /// Destination port.
    pub dst_port: U16,
    /// Sequence number.
    pub seq: U32,
    /// Acknowledgement number.
    pub ack: U32,
    /// Header length in 32-bit words (4 bits), reserved and [`flags`] (12 bits).
    pub offset_flags: U16,
    /// Receive window, not yet scaled.
    pub window: U16,
    /// Checksum over pseudo-header, header and payload.
    pub checksum: U16,
    /// Urgent pointer.
    pub urgent: U16,
}

/// A TCP segment whose header is whole.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<'a> {
    header: &'a Header,
    segment: &'a [u8],
    header_len: usize,
}

impl<'a> Tcp<'a> {
    /// Checks the header's length; `segment` is the IP packet's payload.
    ///
    /// # Errors
    /// [`DropReason::TcpTruncated`], [`DropReason::TcpBadHeader`].
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

    /// Source port.
    pub fn src_port(&self) -> u16 {
        self.header.src_port.get()
    }

    /// Destination port.
    pub fn dst_port(&self) -> u16 {
        self.header.dst_port.get()
    }

    /// Sequence number.
    pub fn seq(&self) -> u32 {
        self.header.seq.get()
    }

    /// Acknowledgement number.
    pub fn ack(&self) -> u32 {
        self.header.ack.get()
    }

    /// The twelve bits after the data offset: reserved bits and [`flags`].
    pub fn flags(&self) -> u16 {
        self.header.offset_flags.get() & 0x0fff
    }

    /// Receive window, not yet scaled.
    pub fn window(&self) -> u16 {
        self.header.window.get()
    }

    /// Urgent pointer.
    pub fn urgent(&self) -> u16 {
        self.header.urgent.get()
    }

    /// The checksum field.
    pub fn checksum(&self) -> u16 {
        self.header.checksum.get()
    }

    /// Whether the checksum is right, given the IP header's pseudo-header sum.
    pub fn checksum_ok(&self, pseudo_sum: u32) -> bool {
        checksum::finish(pseudo_sum + checksum::sum(self.segment)) == 0
    }

    /// Header length in bytes, 20..=60.
    pub fn header_len(&self) -> usize {
        self.header_len
    }

    /// The option bytes, padding included.
    pub fn option_bytes(&self) -> &'a [u8] {
        self.segment.get(MIN_LEN..self.header_len).unwrap_or_default()
    }

    /// The options.
    pub fn options(&self) -> TcpOptions<'a> {
        TcpOptions(RawOptions::new(self.option_bytes()))
    }

    /// The data.
    pub fn payload(&self) -> &'a [u8] {
        self.segment.get(self.header_len..).unwrap_or_default()
    }
}

/// One TCP option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpOption<'a> {
    /// Maximum segment size in octets.
    MaxSegmentSize(u16),
    /// Shift count of the window.
    WindowScale(u8),
    /// Selective acknowledgements may be sent.
    SackPermitted,
    /// Selectively acknowledged blocks: pairs of 32-bit sequence numbers.
    Sack(&'a [[u8; 8]]),
    /// Timestamp value and echo reply.
    Timestamps(u32, u32),
    /// Any other, or a known kind of unexpected length.
    Other(u8, &'a [u8]),
}

/// Iterates over TCP options; a bad length ends it with one error.
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

/// A TCP header to be written. The checksum is left zero; [`checksum::fill`] completes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpRepr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Bits of [`flags`], 12 bits.
    pub flags: u16,
    /// Receive window.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options.
    pub options: Options,
}

impl TcpRepr {
    /// The representation of a parsed header.
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

    /// Bytes that [`TcpRepr::emit`] writes.
    pub fn header_len(&self) -> usize {
        MIN_LEN + self.options.as_bytes().len()
    }

    /// Writes the header and gives the bytes behind it.
    ///
    /// # Errors
    /// [`BuildError::BufferTooSmall`].
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
