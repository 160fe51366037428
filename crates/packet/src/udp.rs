//! UDP headers (RFC 768; over IPv6 RFC 8200 section 8.1).

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{promised, split_header, write_header};
use crate::{BuildError, DropReason, HeaderError, checksum};

/// Length of the header.
pub const LEN: usize = size_of::<Header>();
/// Where the checksum stands in the header.
pub const CHECKSUM_AT: usize = 6;

/// The header as it lies in the packet: 8 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Source port.
    pub src_port: U16,
    /// Destination port.
    pub dst_port: U16,
    /// Octets of header and payload; 0 in a jumbogram (RFC 2675).
    pub len: U16,
    /// Checksum over pseudo-header, header and payload; 0 means none (IPv4 only).
    pub checksum: U16,
}

/// A UDP datagram whose header and length are sound.
#[derive(Clone, Copy, Debug)]
pub struct Udp<'a> {
    header: &'a Header,
    datagram: &'a [u8],
}

impl<'a> Udp<'a> {
    /// Checks header and length; `bytes` is the IP packet's payload, of which more than the length is ignored.
    ///
    /// # Errors
    /// [`DropReason::UdpTruncated`], [`DropReason::UdpBadLength`].
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

    /// Source port.
    pub fn src_port(&self) -> u16 {
        self.header.src_port.get()
    }

    /// Destination port.
    pub fn dst_port(&self) -> u16 {
        self.header.dst_port.get()
    }

    /// The length field.
    pub fn len_field(&self) -> u16 {
        self.header.len.get()
    }

    /// The checksum field; 0 means none.
    pub fn checksum(&self) -> u16 {
        self.header.checksum.get()
    }

    /// Whether the checksum is right or absent, given the IP header's pseudo-header sum.
    ///
    /// Over IPv6 an absent checksum is an error, which the caller judges (RFC 6935 allows it for tunnels).
    pub fn checksum_ok(&self, pseudo_sum: u32) -> bool {
        self.checksum() == 0 || checksum::finish(pseudo_sum + checksum::sum(self.datagram)) == 0
    }

    /// The data.
    pub fn payload(&self) -> &'a [u8] {
        self.datagram.get(LEN..).unwrap_or_default()
    }
}

/// A UDP header to be written. The checksum is left zero; [`fill_checksum`] completes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UdpRepr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Octets behind the header.
    pub payload_len: u16,
}

impl UdpRepr {
    /// Bytes that [`UdpRepr::emit`] writes.
    pub const LEN: usize = LEN;

    /// The representation of a parsed header.
    pub fn parse(view: &Udp<'_>) -> UdpRepr {
        UdpRepr {
            src_port: view.src_port(),
            dst_port: view.dst_port(),
            payload_len: u16::try_from(view.payload().len()).unwrap_or(u16::MAX),
        }
    }

    /// Writes the header and gives the bytes behind it.
    ///
    /// # Errors
    /// [`BuildError::BufferTooSmall`].
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

/// Computes the checksum of a whole datagram and stores it; a computed 0 is stored as 0xffff.
///
/// Does nothing if there is no whole header.
pub fn fill_checksum(datagram: &mut [u8], pseudo_sum: u32) {
    let Ok((header, _)) = Header::mut_from_prefix(datagram) else { return };
    header.checksum = U16::ZERO;
    let value = checksum::finish_udp(pseudo_sum + checksum::sum(datagram));
    checksum::store(datagram, CHECKSUM_AT, value);
}
