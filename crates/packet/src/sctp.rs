//! SCTP common headers and chunks (RFC 9260 section 3). The SCTP checksum is a CRC32c over the whole packet.

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::byteorder::little_endian;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{crc32c, crc32c_continue};
use crate::error::{promised, split_header, write_header};
use crate::{BuildError, DropReason, HeaderError};

/// Length of the SCTP common header, in bytes.
pub const LEN: usize = size_of::<Header>();
/// Offset of the checksum in the SCTP header, in bytes.
pub const CHECKSUM_AT: usize = 8;

/// SCTP common header as laid out in the packet, 12 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// SCTP source port.
    pub src_port: U16,
    /// SCTP destination port.
    pub dst_port: U16,
    /// SCTP verification tag.
    pub tag: U32,
    /// CRC32c over the common header and the chunks, computed with zero in this field. The least significant octet
    /// is sent first (RFC 9260 appendix A).
    pub checksum: little_endian::U32,
}

/// An SCTP packet whose common header is complete.
#[derive(Clone, Copy, Debug)]
pub struct Sctp<'a> {
    header: &'a Header,
    packet: &'a [u8],
}

impl<'a> Sctp<'a> {
    /// Checks that the SCTP common header is complete. `packet` is the payload of the IP packet.
    ///
    /// # Errors
    /// Returns an error with [`DropReason::SctpTruncated`] if the header is incomplete.
    pub fn parse(packet: &'a [u8]) -> Result<Self, HeaderError> {
        let (header, _) = split_header(packet, DropReason::SctpTruncated)?;
        Ok(Sctp { header, packet })
    }

    /// Returns the SCTP source port.
    pub fn src_port(&self) -> u16 {
        self.header.src_port.get()
    }

    /// Returns the SCTP destination port.
    pub fn dst_port(&self) -> u16 {
        self.header.dst_port.get()
    }

    /// Returns the SCTP verification tag.
    pub fn tag(&self) -> u32 {
        self.header.tag.get()
    }

    /// Returns whether the CRC32c of the packet is correct.
    pub fn checksum_ok(&self) -> bool {
        self.header.checksum.get() == packet_crc(self.packet)
    }

    /// Returns the bytes after the SCTP common header.
    pub fn payload(&self) -> &'a [u8] {
        self.packet.get(LEN..).unwrap_or_default()
    }

    /// Returns an iterator over the chunks of the packet.
    pub fn chunks(&self) -> Chunks<'a> {
        Chunks { rest: self.payload() }
    }
}

/// One SCTP chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk<'a> {
    /// Type of the SCTP chunk.
    pub kind: u8,
    /// Flags of the SCTP chunk.
    pub flags: u8,
    /// Value of the SCTP chunk without padding.
    pub value: &'a [u8],
}

/// Iterator over the chunks of an SCTP packet. A chunk with a bad length yields one error and ends the
/// iteration.
#[derive(Clone, Debug)]
pub struct Chunks<'a> {
    rest: &'a [u8],
}

impl<'a> Chunks<'a> {
    fn step(&mut self) -> Result<Chunk<'a>, HeaderError> {
        let head = promised(self.rest, 4, DropReason::SctpTruncated)?;
        let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let chunk = promised(self.rest, len.max(4), DropReason::SctpTruncated)?;
        self.rest = self.rest.get(chunk.len().next_multiple_of(4)..).unwrap_or_default();
        Ok(Chunk { kind: head[0], flags: head[1], value: &chunk[4..] })
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<Chunk<'a>, HeaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let step = self.step();
        if step.is_err() {
            self.rest = &[];
        }
        Some(step)
    }
}

/// An SCTP common header to be written. [`SctpRepr::emit`] writes zero as the checksum, and [`fill_checksum`]
/// then stores the correct value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SctpRepr {
    /// SCTP source port.
    pub src_port: u16,
    /// SCTP destination port.
    pub dst_port: u16,
    /// SCTP verification tag.
    pub tag: u32,
}

impl SctpRepr {
    /// Number of bytes that [`SctpRepr::emit`] writes.
    pub const LEN: usize = LEN;

    /// Converts a parsed SCTP header to a header to be written.
    pub fn parse(view: &Sctp<'_>) -> SctpRepr {
        SctpRepr { src_port: view.src_port(), dst_port: view.dst_port(), tag: view.tag() }
    }

    /// Writes the SCTP header at the start of `bytes` and returns the bytes after it.
    ///
    /// # Errors
    /// Returns [`BuildError::BufferTooSmall`] if `bytes` is too short.
    pub fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], BuildError> {
        let header = Header {
            src_port: self.src_port.into(),
            dst_port: self.dst_port.into(),
            tag: self.tag.into(),
            checksum: little_endian::U32::ZERO,
        };
        write_header(bytes, &header)
    }
}

/// Computes the CRC32c of a complete SCTP packet and stores it in the packet. Does nothing if the packet is
/// shorter than the common header.
pub fn fill_checksum(packet: &mut [u8]) {
    let crc = packet_crc(packet);
    if let Ok((header, _)) = Header::mut_from_prefix(packet) {
        header.checksum.set(crc);
    }
}

/// Returns the CRC32c over the packet, computed with zero in the checksum field.
fn packet_crc(packet: &[u8]) -> u32 {
    let (Some(before), Some(after)) = (packet.get(..CHECKSUM_AT), packet.get(LEN..)) else {
        return crc32c(packet);
    };
    let state = crc32c_continue(crc32c_continue(u32::MAX, before), &[0; 4]);
    !crc32c_continue(state, after)
}
