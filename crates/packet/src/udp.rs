//! UDP headers (RFC 768, and RFC 8200 section 8.1 for UDP over IPv6).

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{promised, split_header, write_header};
use crate::{BuildError, DropReason, HeaderError, checksum};

/// Length of the UDP header, in bytes.
pub const LEN: usize = size_of::<Header>();
/// Offset of the checksum in the UDP header, in bytes.
pub const CHECKSUM_AT: usize = 6;

/// UDP header as laid out in the packet, 8 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// UDP source port.
    pub src_port: U16,
    /// UDP destination port.
    pub dst_port: U16,
    /// Length of the UDP header and the payload in octets. 0 in a jumbogram (RFC 2675).
    pub len: U16,
    /// Checksum over the pseudo-header, the UDP header and the payload. 0 means that there is no checksum
    /// (IPv4 only).
    pub checksum: U16,
}

/// A UDP datagram whose header and length are valid.
#[derive(Clone, Copy, Debug)]
pub struct Udp<'a> {
    header: &'a Header,
    datagram: &'a [u8],
}

impl<'a> Udp<'a> {
    /// Checks the UDP header and its length field. `bytes` is the payload of the IP packet. Bytes after the
    /// UDP length are ignored.
    ///
    /// # Errors
    /// Returns an error with [`DropReason::UdpTruncated`] if the datagram is incomplete, or with
    /// [`DropReason::UdpBadLength`] if the length field is invalid.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, HeaderError> {
        let (header, _): (&Header, _) = split_header(bytes, DropReason::UdpTruncated)?;
        let datagram = match header.len.get() {
            0 => bytes,
            len if usize::from(len) < LEN => {
                return Err(HeaderError::bad(DropReason::UdpBadLength, "length", len.into()));
            }
            len => promised(bytes, len.into(), DropReason::UdpBadLength)?,
        };
        Ok(Udp { header, datagram })
    }

    /// Returns the UDP source port.
    pub fn src_port(&self) -> u16 {
        self.header.src_port.get()
    }

    /// Returns the UDP destination port.
    pub fn dst_port(&self) -> u16 {
        self.header.dst_port.get()
    }

    /// Returns the length field of the header, in octets.
    pub fn len_field(&self) -> u16 {
        self.header.len.get()
    }

    /// Returns the checksum field of the UDP header. 0 means that there is no checksum.
    pub fn checksum(&self) -> u16 {
        self.header.checksum.get()
    }

    /// Returns whether the UDP checksum is correct or absent. `pseudo_sum` is the partial checksum of the
    /// pseudo-header (see [`crate::checksum`]).
    ///
    /// Over IPv6, an absent checksum is an error that the caller has to check (RFC 6935 allows it for
    /// tunnels).
    pub fn checksum_ok(&self, pseudo_sum: u32) -> bool {
        self.checksum() == 0 || checksum::finish(pseudo_sum + checksum::sum(self.datagram)) == 0
    }

    /// Returns the payload of the UDP datagram.
    pub fn payload(&self) -> &'a [u8] {
        self.datagram.get(LEN..).unwrap_or_default()
    }
}

/// A UDP header to be written. [`UdpRepr::emit`] writes zero as the checksum, and [`fill_checksum`] then
/// stores the correct value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UdpRepr {
    /// UDP source port.
    pub src_port: u16,
    /// UDP destination port.
    pub dst_port: u16,
    /// Length of the payload after the header, in octets.
    pub payload_len: u16,
}

impl UdpRepr {
    /// Number of bytes that [`UdpRepr::emit`] writes.
    pub const LEN: usize = LEN;

    /// Converts a parsed UDP header to a header to be written.
    pub fn parse(view: &Udp<'_>) -> UdpRepr {
        UdpRepr {
            src_port: view.src_port(),
            dst_port: view.dst_port(),
            payload_len: u16::try_from(view.payload().len()).unwrap_or(u16::MAX),
        }
    }

    /// Writes the UDP header at the start of `bytes` and returns the bytes after it.
    ///
    /// # Errors
    /// Returns [`BuildError::BufferTooSmall`] if `bytes` is too short.
    pub fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], BuildError> {
        let header = Header {
            src_port: self.src_port.into(),
            dst_port: self.dst_port.into(),
            len: self.payload_len.saturating_add(8).into(),
            checksum: U16::ZERO,
        };
        write_header(bytes, &header)
    }
}

/// Computes the checksum of a complete UDP datagram and stores it in the datagram. A computed 0 is stored as 0xffff
/// (RFC 768). `pseudo_sum` is the partial checksum of the pseudo-header (see [`crate::checksum`]).
///
/// Does nothing if the datagram is shorter than a UDP header.
pub fn fill_checksum(datagram: &mut [u8], pseudo_sum: u32) {
    let Ok((header, _)) = Header::mut_from_prefix(datagram) else { return };
    header.checksum = U16::ZERO;
    let value = checksum::finish_udp(pseudo_sum + checksum::sum(datagram));
    checksum::store(datagram, CHECKSUM_AT, value);
}
